//! The jobs by number. Each lies in memory of its own: numbers grow, and a tree that is only appended to leaves its
//! leaves half empty, which matters where an entry has most of a kilobyte, as does moving entries within a leaf.

use crate::ids::JobId;
use crate::job::Job;
use std::collections::BTreeMap;
use std::ops::Index;

/// Records of jobs, in order of their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobTable(BTreeMap<JobId, Box<Job>>);

impl JobTable {
    /// The record of that number.
    pub fn get(&self, id: &JobId) -> Option<&Job> {
        self.0.get(id).map(|job| &**job)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.0.get_mut(id).map(|job| &mut **job)
    }

    /// Whether there is one of that number.
    pub fn contains_key(&self, id: &JobId) -> bool {
        self.0.contains_key(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Numbers, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobId> {
        self.0.keys()
    }

    /// All of them, in order.
    pub fn values(&self) -> impl Iterator<Item = &Job> {
        self.0.values().map(|job| &**job)
    }

    /// Numbers and records, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.0.iter().map(|(id, job)| (id, &**job))
    }

    /// Adds a record; the one that had its number before, if one did.
    pub fn insert(&mut self, id: JobId, job: Job) -> Option<Job> {
        self.0.insert(id, Box::new(job)).map(|job| *job)
    }

    /// Takes a record out.
    pub fn remove(&mut self, id: &JobId) -> Option<Job> {
        self.0.remove(id).map(|job| *job)
    }
}

impl Index<&JobId> for JobTable {
    type Output = Job;

    /// The record of a number that is known to have one.
    fn index(&self, id: &JobId) -> &Job {
        &self.0[id]
    }
}

impl FromIterator<(JobId, Job)> for JobTable {
    fn from_iter<I: IntoIterator<Item = (JobId, Job)>>(jobs: I) -> JobTable {
        let boxed = |(id, job)| (id, Box::new(job));
        JobTable(jobs.into_iter().map(boxed).collect())
    }
}
