//! The jobs by number. Each lies in memory of its own: an entry has most of a kilobyte. Numbers are given in order, so
//! those of the jobs that are there are near each other: they are kept in pages of consecutive numbers, and a page is
//! found by how far it is from the first. Every event looks its job up some times; a tree took as long for that as the
//! event's own work.

use muster_model::ids::JobId;
use muster_model::job::Job;
use std::ops::Index;

/// Numbers of a page.
const PAGE: u64 = 64;

/// Changes that are noted at most; a reader of more had better look at everything.
const NOTED_MAX: usize = 1 << 16;

/// Records of jobs, in order of their numbers. What can change of them is changed through this, so that it can note which
/// did.
#[derive(Debug, Default)]
pub struct JobTable {
    /// By the page's number, without pages that have no job.
    pages: Vec<(u64, Box<Page>)>,
    len: usize,
    /// Numbers of those that were added, taken out or lent to be changed since somebody asked, while they are few.
    noted: Option<Vec<JobId>>,
}

/// A copy is of the records; nobody has asked it what changed.
impl Clone for JobTable {
    fn clone(&self) -> JobTable {
        JobTable {
            pages: self.pages.clone(),
            len: self.len,
            noted: None,
        }
    }
}

impl PartialEq for JobTable {
    fn eq(&self, other: &JobTable) -> bool {
        self.pages == other.pages
    }
}

/// Jobs with consecutive numbers.
#[derive(Clone, Debug, PartialEq)]
struct Page {
    jobs: [Option<Box<Job>>; PAGE as usize],
    len: u32,
}

/// The page of a number, and its place there.
fn place(id: JobId) -> (u64, usize) {
    (id.0 / PAGE, (id.0 % PAGE) as usize)
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

    /// Where the page of that number is, or would be.
    #[inline]
    fn find(&self, page: u64) -> Result<usize, usize> {
        let Some((first, _)) = self.pages.first() else {
            return Err(0);
        };
        let Some(distance) = page.checked_sub(*first) else {
            return Err(0);
        };
        // Pages may be missing, none is there twice: it is no further than that.
        let most = usize::try_from(distance).unwrap_or(usize::MAX);
        let guess = most.min(self.pages.len() - 1);
        if self.pages[guess].0 == page {
            return Ok(guess);
        }
        self.pages[..=guess].binary_search_by_key(&page, |(number, _)| *number)
    }

    /// The record of that number.
    #[inline]
    pub fn get(&self, id: &JobId) -> Option<&Job> {
        let (page, at) = place(*id);
        let found = self.find(page).ok()?;
        self.pages[found].1.jobs[at].as_deref()
    }

    /// The record, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.note(*id);
        let (page, at) = place(*id);
        let found = self.find(page).ok()?;
        self.pages[found].1.jobs[at].as_deref_mut()
    }

    /// Whether there is one of that number.
    pub fn contains_key(&self, id: &JobId) -> bool {
        self.get(id).is_some()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Numbers, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobId> {
        self.values().map(|job| &job.id)
    }

    /// All of them, in order.
    pub fn values(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.pages.iter().flat_map(|(_, page)| &page.jobs);
        jobs.filter_map(Option::as_deref)
    }

    /// Numbers and records, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.values().map(|job| (&job.id, job))
    }

    /// The jobs of this number and beyond, in order.
    pub fn values_from(&self, first: JobId) -> impl Iterator<Item = &Job> {
        let (Ok(begin) | Err(begin)) = self.find(place(first).0);
        let jobs = self.pages[begin..].iter().flat_map(|(_, page)| &page.jobs);
        let jobs = jobs.filter_map(Option::as_deref);
        jobs.skip_while(move |job| job.id < first)
    }

    /// Adds a record, whose number this is; the one that had its number before, if one did.
    pub fn insert(&mut self, id: JobId, job: Job) -> Option<Job> {
        debug_assert_eq!(id, job.id, "a record lies under its own number");
        self.note(id);
        let (page, at) = place(id);
        let found = self.find(page).unwrap_or_else(|before| {
            let empty = Page {
                jobs: [const { None }; PAGE as usize],
                len: 0,
            };
            self.pages.insert(before, (page, Box::new(empty)));
            before
        });
        let page = &mut self.pages[found].1;
        let old = page.jobs[at].replace(Box::new(job));
        if old.is_none() {
            page.len += 1;
            self.len += 1;
        }
        old.map(|job| *job)
    }

    /// Takes a record out.
    pub fn remove(&mut self, id: &JobId) -> Option<Job> {
        self.note(*id);
        let (page, at) = place(*id);
        let found = self.find(page).ok()?;
        let page = &mut self.pages[found].1;
        let job = page.jobs[at].take()?;
        page.len -= 1;
        if page.len == 0 {
            self.pages.remove(found);
        }
        self.len -= 1;
        Some(*job)
    }
}

impl Index<&JobId> for JobTable {
    type Output = Job;

    /// The record of a number that is known to have one.
    #[inline]
    fn index(&self, id: &JobId) -> &Job {
        self.get(id).expect("the job is known to be there")
    }
}

impl FromIterator<(JobId, Job)> for JobTable {
    fn from_iter<I: IntoIterator<Item = (JobId, Job)>>(jobs: I) -> JobTable {
        let mut table = JobTable::default();
        for (id, job) in jobs {
            table.insert(id, job);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn job(id: u64, at: i64) -> Job {
        let spec = Arc::new(JobSpec::default());
        Job::new(JobId(id), spec, TimeLimit::Unlimited, Timestamp(at))
    }

    #[test]
    fn changes_are_listed_for_each_reader() {
        let mut jobs: JobTable = (1..9).map(|id| (JobId(id), job(id, 0))).collect();
        assert_eq!(jobs.take_changed(), None);
        assert_eq!(jobs.take_changed(), Some(Vec::new()));
        jobs.insert(JobId(9), job(9, 0));
        jobs.get_mut(&JobId(2)).unwrap().priority = 1;
        jobs.get_mut(&JobId(2)).unwrap().priority = 2;
        jobs.remove(&JobId(1));
        assert_eq!(jobs.get(&JobId(3)).map(|job| job.id), Some(JobId(3)));
        let copy = jobs.clone();
        assert!(copy == jobs && !copy.is_noting());
        assert_eq!(jobs.take_changed(), Some([9, 2, 1].map(JobId).to_vec()));
    }

    #[test]
    fn those_from_a_number_on_are_listed() {
        let numbers = [70, 71, 300, 1000, 1001];
        let jobs: JobTable = numbers
            .map(|id| (JobId(id), job(id, 0)))
            .into_iter()
            .collect();
        for first in 0..1100 {
            let listed: Vec<u64> = jobs.values_from(JobId(first)).map(|job| job.id.0).collect();
            let expected = numbers.iter().filter(|id| **id >= first);
            assert!(listed.iter().eq(expected), "{first}");
        }
        assert_eq!(JobTable::default().values_from(JobId(1)).count(), 0);
    }

    #[test]
    fn too_many_changes_are_not_listed() {
        let mut jobs: JobTable = (1..3).map(|id| (JobId(id), job(id, 0))).collect();
        jobs.take_changed();
        for n in 0..=NOTED_MAX as u64 {
            jobs.get_mut(&JobId(1 + n % 2));
        }
        assert!(!jobs.is_noting());
        assert_eq!(jobs.take_changed(), None);
        assert!(jobs.is_noting());
    }

    proptest! {
        #[test]
        fn as_a_tree_would_have_it(
            changes in proptest::collection::vec((0u64..6, 0u64..90, any::<bool>()), 0..80),
        ) {
            let (mut table, mut tree) = (JobTable::default(), BTreeMap::new());
            for ((far, near, add), at) in changes.into_iter().zip(0i64..) {
                // Near each other, and far apart.
                let id = JobId(far * far * 1_000_003 + near);
                if add {
                    let new = job(id.0, at);
                    prop_assert_eq!(table.insert(id, new.clone()), tree.insert(id, new));
                } else {
                    prop_assert_eq!(table.remove(&id), tree.remove(&id));
                }
                prop_assert_eq!(table.len(), tree.len());
                prop_assert_eq!(table.is_empty(), tree.is_empty());
                prop_assert!(table.iter().eq(tree.iter()));
                for other in [id.0, near, id.0 + 1, id.0 + 64].map(JobId) {
                    prop_assert_eq!(table.get(&other), tree.get(&other));
                    prop_assert_eq!(table.contains_key(&other), tree.contains_key(&other));
                }
            }
            let again: JobTable = tree.clone().into_iter().collect();
            prop_assert!(again == table);
        }
    }
}
