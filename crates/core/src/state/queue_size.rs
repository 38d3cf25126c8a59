//! Numbers of jobs, as `MaxJobCount` counts them, in all and of each user.

use super::State;
use muster_model::job::ArrayInfo;
use std::collections::BTreeMap;

/// Numbers of jobs; each task of an array is one, whether it has a record of its own or not. Jobs that have ended count until
/// they are purged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSize {
    total: u64,
    of_users: BTreeMap<u32, u64>,
}

impl QueueSize {
    /// Counts all jobs of a state.
    pub(crate) fn count(state: &State) -> QueueSize {
        let mut size = QueueSize::default();
        for job in state.jobs.values() {
            let info = state.arrays.get(&job.id);
            let in_record = info.map_or(0, in_record);
            size.add(job.spec.owner.uid, in_record.saturating_add(1));
        }
        size
    }

    /// All jobs.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The jobs of a user.
    pub fn of_user(&self, uid: u32) -> u64 {
        self.of_users.get(&uid).copied().unwrap_or(0)
    }

    /// Jobs of a user came.
    pub(crate) fn add(&mut self, uid: u32, jobs: u64) {
        self.total = self.total.saturating_add(jobs);
        let own = self.of_users.entry(uid).or_default();
        *own = own.saturating_add(jobs);
    }

    /// Jobs of a user went.
    pub(crate) fn subtract(&mut self, uid: u32, jobs: u64) {
        self.total = self.total.saturating_sub(jobs);
        let Some(own) = self.of_users.get_mut(&uid) else {
            return;
        };
        *own = own.saturating_sub(jobs);
        if *own == 0 {
            self.of_users.remove(&uid);
        }
    }
}

/// Tasks that are in the record of their array, without the first, for which the record itself counts.
pub(crate) fn in_record(info: &ArrayInfo) -> u64 {
    u64::from(info.pending.saturating_sub(1))
}
