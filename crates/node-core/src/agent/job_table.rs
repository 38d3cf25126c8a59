//! The jobs of this node as the agent knows them, by job and launch: a requeued job may come back while an earlier
//! launch of it is still being killed here.

use crate::messages::JobAttempt;
use crate::signals::{SIGCONT, SIGSTOP};
use muster_model::ids::{Attempt, JobId};
use muster_model::job::NodeShare;
use muster_proto::node::JobGrant;
use muster_trust::{JobKeyUse, derive_job_key, is_same_key};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A launch of a job here.
#[derive(Debug, Default)]
pub struct Job {
    /// Its share; absent when it is not known any more.
    pub grant: Option<Rc<JobGrant>>,
    /// The controller has ended it, other than because it is over.
    pub ending: bool,
    /// The controller has ended it, for any reason.
    pub terminated: bool,
    /// The controller has suspended it: others may have its CPUs.
    pub suspended: bool,
    /// The end of its script, or its failure to start, is in the reports.
    pub concluded: bool,
    /// Nothing of it is left here.
    pub released: bool,
    /// Steps that it leads are not over on other nodes: that is not in the reports yet.
    pub is_release_held: bool,
}

impl Job {
    /// Whether this node leads it.
    pub fn leads(&self) -> bool {
        self.grant.as_ref().is_some_and(|g| g.position == 0)
    }

    /// Whether steps may still be made.
    pub fn is_over(&self) -> bool {
        self.ending || self.concluded || self.released
    }

    /// Whether nothing of it will go on, though processes may still be here.
    pub fn is_leaving(&self) -> bool {
        !self.released && (self.concluded || self.terminated)
    }

    /// Its share of this node.
    pub fn share(&self) -> Option<&NodeShare> {
        let grant = self.grant.as_ref()?;
        grant.alloc.nodes.get(grant.position as usize)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Jobs {
    all: BTreeMap<JobAttempt, Job>,
    /// Those that may be leaving: few at any time, so that a launch need not look at all.
    leaving: BTreeSet<JobAttempt>,
}

impl Jobs {
    /// Whether a job's release was held back, and is not any more.
    pub fn take_held_release(&mut self, run: JobAttempt) -> bool {
        self.get_mut(run)
            .is_some_and(|job| std::mem::take(&mut job.is_release_held))
    }

    /// A launch, if it is known.
    pub fn get(&self, run: JobAttempt) -> Option<&Job> {
        self.all.get(&run)
    }

    /// See [`Jobs::get`].
    pub fn get_mut(&mut self, run: JobAttempt) -> Option<&mut Job> {
        self.all.get_mut(&run)
    }

    /// The launch, known from now on.
    pub fn entry(&mut self, run: JobAttempt) -> &mut Job {
        self.all.entry(run).or_default()
    }

    /// The launch was ordered to end, or has ended.
    pub fn leaves(&mut self, run: JobAttempt) {
        self.leaving.insert(run);
    }

    /// The last of it is gone.
    pub fn has_left(&mut self, run: JobAttempt) {
        self.leaving.remove(&run);
    }

    /// Forgets a launch.
    pub fn remove(&mut self, run: JobAttempt) -> Option<Job> {
        self.leaving.remove(&run);
        self.all.remove(&run)
    }

    /// The whole of a launch gets a signal: while it is suspended no step of it starts. Whether it goes on.
    pub fn signalled(&mut self, run: JobAttempt, signal: u32) -> bool {
        let (Some(job), Ok(signal)) = (self.all.get_mut(&run), i32::try_from(signal)) else {
            return false;
        };
        match signal {
            SIGSTOP => job.suspended = true,
            SIGCONT => job.suspended = false,
            _ => {}
        }
        signal == SIGCONT
    }

    /// Whether a launch is suspended: others may have its CPUs.
    pub fn is_suspended(&self, run: JobAttempt) -> bool {
        self.all.get(&run).is_some_and(|job| job.suspended)
    }

    /// All launches, by job and attempt.
    pub fn iter(&self) -> impl Iterator<Item = (JobAttempt, &Job)> {
        self.all.iter().map(|(&run, job)| (run, job))
    }

    /// The latest launch of a job.
    pub fn latest(&self, id: JobId) -> Option<(JobAttempt, &Job)> {
        self.launches(id).next_back()
    }

    /// The launch of a job that has this key.
    pub fn with_key(&self, id: JobId, key: &[u8]) -> Option<(JobAttempt, &Job)> {
        self.launches(id)
            .rev()
            .find(|(_, job)| job.grant.as_ref().is_some_and(|g| is_same_key(&g.key, key)))
    }

    /// The launch of a job whose owner's srun has this key.
    pub fn with_owner_key(&self, id: JobId, key: &[u8]) -> Option<(JobAttempt, &Job)> {
        let has = |g: &Rc<JobGrant>| is_owner_key(g, key);
        let mut launches = self.launches(id).rev();
        launches.find(|(_, job)| job.grant.as_ref().is_some_and(has))
    }

    /// All launches of a job, the oldest first.
    fn launches(&self, id: JobId) -> impl DoubleEndedIterator<Item = (JobAttempt, &Job)> {
        let all = JobAttempt::new(id, Attempt(0))..=JobAttempt::new(id, Attempt(u32::MAX));
        self.all.range(all).map(|(&run, job)| (run, job))
    }
}

/// Whether a key is the one by which the owner's srun asks for steps of a launch.
pub fn is_owner_key(grant: &JobGrant, key: &[u8]) -> bool {
    is_same_key(&derive_job_key(&grant.key, JobKeyUse::Owner), key)
}
