//! Allocations that end with a connection. What this remembers is bounded by the jobs that there are: who submits allocations
//! and ends them otherwise, for as long as the connection lives, leaves no numbers behind.

use muster_core::state::State;
use muster_model::ids::JobId;
use std::collections::BTreeSet;
use std::collections::btree_set::IntoIter;

/// Numbers below which nothing is looked for.
const LOOK_MIN: usize = 64;

/// Allocations that a connection holds.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldAllocations {
    jobs: BTreeSet<JobId>,
    /// Number of them that the queue had at the last search.
    known: usize,
}

impl HeldAllocations {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn add(&mut self, job: JobId) {
        self.jobs.insert(job);
    }

    pub(super) fn remove(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// Whether they are twice as many as when they were looked for last: each is looked for twice on average.
    pub(super) fn is_look_due(&self) -> bool {
        self.jobs.len() >= LOOK_MIN.max(self.known.saturating_mul(2))
    }

    /// Removes those that have left the queue.
    pub(super) fn retain_known(mut self, state: &State) -> HeldAllocations {
        let is_known = |id: &JobId| state.jobs.contains_key(id) || state.arrays.contains_key(id);
        self.jobs.retain(is_known);
        self.known = self.jobs.len();
        self
    }
}

impl IntoIterator for HeldAllocations {
    type Item = JobId;
    type IntoIter = IntoIter<JobId>;

    fn into_iter(self) -> IntoIter<JobId> {
        self.jobs.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::job::Job;
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};
    use std::sync::Arc;

    /// The numbers of all allocations that were ever submitted stayed until the connection ended, and each was cancelled then.
    #[test]
    fn allocations_that_have_left_the_queue_are_forgotten() {
        let mut state = State::default();
        let spec = Arc::new(JobSpec::default());
        let (mut held, mut looks, mut most) = (HeldAllocations::default(), 0, 0);
        for number in 1..=100_000 {
            let id = JobId(number);
            let job = Job::new(id, Arc::clone(&spec), TimeLimit::Unlimited, Timestamp(0));
            state.jobs.insert(id, job);
            // The queue has the last hundred.
            state.jobs.remove(&JobId(number.saturating_sub(100)));
            held.add(id);
            if held.is_look_due() {
                looks += held.jobs.len();
                held = held.retain_known(&state);
            }
            most = most.max(held.jobs.len());
        }
        assert!(most <= 200, "{most}");
        assert!(looks <= 210_000, "{looks}");
        held.remove(JobId(100_000));
        let held = held.retain_known(&state);
        let last: Vec<_> = held.into_iter().collect();
        assert!(last.iter().all(|id| state.jobs.contains_key(id)));
        assert!(!last.is_empty() && !last.contains(&JobId(100_000)));
    }
}
