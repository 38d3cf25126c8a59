//! Running jobs that some job may preempt, in the order of victims.

use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// Order of victims: the lowest rank first, then the youngest or the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VictimKey {
    /// Preemption rank ([`State::preempt_rank`]).
    pub(super) rank: u32,
    /// Start time, if the youngest come first; else 0 for all.
    pub(super) by_age: Reverse<i64>,
    pub(super) cpus: u64,
    pub(super) start: Reverse<i64>,
    pub(super) job: JobId,
}

/// A running job that may be preempted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    key: VictimKey,
    /// The job is exempt until this time.
    pub(super) until: Timestamp,
}

/// PreemptExemptTime of a job, ordered by its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Exemption {
    until: Timestamp,
    job: JobId,
}

/// Running jobs that some job may preempt.
#[derive(Debug, Default)]
pub(crate) struct PreemptableJobs {
    pub(super) by_key: BTreeSet<VictimKey>,
    pub(super) of: HashMap<JobId, Victim>,
    /// Jobs that are exempt from preemption until a time.
    exempt: BTreeSet<Exemption>,
    /// Jobs in their grace time, and jobs stopped until there is room.
    pub(super) aside: BTreeSet<JobId>,
}

impl PreemptableJobs {
    pub(crate) fn new(state: &State) -> PreemptableJobs {
        let mut all = PreemptableJobs::default();
        for id in &state.active {
            all.follow(state, *id);
        }
        all
    }

    /// Updates one job from the state.
    pub(crate) fn follow(&mut self, state: &State, id: JobId) {
        let Some(settings) = state.preemption() else {
            return;
        };
        if let Some(Victim { key, until }) = self.of.remove(&id) {
            self.by_key.remove(&key);
            self.exempt.remove(&Exemption { until, job: id });
        }
        self.aside.remove(&id);
        let Some(job) = state.jobs.get(&id) else {
            return;
        };
        if job.is_stopped_for_another() || (job.grace_end().is_some() && !job.completing) {
            self.aside.insert(id);
        }
        let Some((_, until)) = state.preemptable(job) else {
            return;
        };
        let start = Reverse(job.start_time.unwrap_or_default().0);
        let by_age = if settings.youngest_first {
            start
        } else {
            Reverse(0)
        };
        let cpus = job.alloc.as_ref().map_or(0, |a| a.cpus());
        let key = VictimKey {
            rank: state.preempt_rank(job),
            by_age,
            cpus,
            start,
            job: id,
        };
        self.by_key.insert(key);
        if Some(until) > job.start_time {
            self.exempt.insert(Exemption { until, job: id });
        }
        self.of.insert(id, Victim { key, until });
    }

    /// Removes and returns the jobs whose exempt time has passed.
    pub(crate) fn now_open(&mut self, now: Timestamp) -> Vec<JobId> {
        let mut open = Vec::new();
        while let Some(&Exemption { until, job }) = self.exempt.first()
            && until <= now
        {
            self.exempt.pop_first();
            open.push(job);
        }
        open
    }

    /// The time at which the next exempt time ends.
    pub(crate) fn next_open(&self) -> Option<Timestamp> {
        self.exempt.first().map(|exemption| exemption.until)
    }
}
