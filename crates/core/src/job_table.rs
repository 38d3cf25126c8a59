//! The jobs by number. Each lies in memory of its own: numbers grow, and a tree that is only appended to leaves its
//! leaves half empty, which matters where an entry has most of a kilobyte, as does moving entries within a leaf.

use crate::ids::JobId;
use crate::job::Job;
use std::collections::BTreeMap;
use std::ops::Index;

/// Changes that are noted at most; a reader of more had better look at everything.
const NOTED_MAX: usize = 1 << 16;

/// Records of jobs, in order of their numbers. What can change of them is changed through this, so that it can note which
/// did.
#[derive(Debug, Default)]
pub struct JobTable {
    jobs: BTreeMap<JobId, Box<Job>>,
    /// Numbers of those that were added, taken out or lent to be changed since somebody asked, while they are few.
    noted: Option<Vec<JobId>>,
}

/// A copy is of the records; nobody has asked it what changed.
impl Clone for JobTable {
    fn clone(&self) -> JobTable {
        JobTable {
            jobs: self.jobs.clone(),
            noted: None,
        }
    }
}

impl PartialEq for JobTable {
    fn eq(&self, other: &JobTable) -> bool {
        self.jobs == other.jobs
    }
}

impl JobTable {
    /// Which may have changed since this was asked last, in no order; nothing if it was not, or if they are too many. From
    /// now on changes are noted.
    pub fn take_changed(&mut self) -> Option<Vec<JobId>> {
        self.noted.replace(Vec::new())
    }

    /// Whether changes are being noted: [`JobTable::take_changed`] will tell them.
    pub fn is_noting(&self) -> bool {
        self.noted.is_some()
    }

    fn note(&mut self, id: JobId) {
        if let Some(noted) = &mut self.noted
            && noted.last() != Some(&id)
        {
            match noted.len() < NOTED_MAX {
                true => noted.push(id),
                false => self.noted = None,
            }
        }
    }

    /// The record of that number.
    pub fn get(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id).map(|job| &**job)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.note(*id);
        self.jobs.get_mut(id).map(|job| &mut **job)
    }

    /// Whether there is one of that number.
    pub fn contains_key(&self, id: &JobId) -> bool {
        self.jobs.contains_key(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Numbers, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobId> {
        self.jobs.keys()
    }

    /// All of them, in order.
    pub fn values(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().map(|job| &**job)
    }

    /// Numbers and records, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (id, &**job))
    }

    /// Adds a record; the one that had its number before, if one did.
    pub fn insert(&mut self, id: JobId, job: Job) -> Option<Job> {
        self.note(id);
        self.jobs.insert(id, Box::new(job)).map(|job| *job)
    }

    /// Takes a record out.
    pub fn remove(&mut self, id: &JobId) -> Option<Job> {
        self.note(*id);
        self.jobs.remove(id).map(|job| *job)
    }
}

impl Index<&JobId> for JobTable {
    type Output = Job;

    /// The record of a number that is known to have one.
    fn index(&self, id: &JobId) -> &Job {
        &self.jobs[id]
    }
}

impl FromIterator<(JobId, Job)> for JobTable {
    fn from_iter<I: IntoIterator<Item = (JobId, Job)>>(jobs: I) -> JobTable {
        let boxed = |(id, job)| (id, Box::new(job));
        JobTable {
            jobs: jobs.into_iter().map(boxed).collect(),
            noted: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{TimeLimit, Timestamp};
    use std::sync::Arc;

    fn job(id: u64) -> Job {
        let at = Timestamp::default();
        Job::new(JobId(id), Arc::default(), TimeLimit::Unlimited, at)
    }

    #[test]
    fn what_changes_is_told_to_who_asks() {
        let mut jobs: JobTable = (1..9).map(|id| (JobId(id), job(id))).collect();
        assert_eq!(jobs.take_changed(), None);
        assert_eq!(jobs.take_changed(), Some(Vec::new()));
        jobs.insert(JobId(9), job(9));
        jobs.get_mut(&JobId(2)).unwrap().priority = 1;
        jobs.get_mut(&JobId(2)).unwrap().priority = 2;
        jobs.remove(&JobId(1));
        assert_eq!(jobs.get(&JobId(3)).map(|job| job.id), Some(JobId(3)));
        let copy = jobs.clone();
        assert!(copy == jobs && !copy.is_noting());
        assert_eq!(jobs.take_changed(), Some([9, 2, 1].map(JobId).to_vec()));
    }

    #[test]
    fn nobody_is_told_of_too_many() {
        let mut jobs: JobTable = (1..3).map(|id| (JobId(id), job(id))).collect();
        jobs.take_changed();
        for n in 0..=NOTED_MAX as u64 {
            jobs.get_mut(&JobId(1 + n % 2));
        }
        assert!(!jobs.is_noting());
        assert_eq!(jobs.take_changed(), None);
        assert!(jobs.is_noting());
    }
}
