//! Expected ends of running jobs: after the predicted run time, and once that has passed, at the
//! time limit. Maintained only if run times are predicted (`muster_core::state::run_times`).

use crate::nodes::node_map::NumberMap;
use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::time::Timestamp;
use std::collections::BTreeSet;

/// Expected ends of running jobs.
#[derive(Debug, Default)]
pub(crate) struct PlannedEnds {
    predicts: bool,
    by_time: BTreeSet<(Timestamp, JobId)>,
    of: NumberMap<JobId, Timestamp>,
}

impl PlannedEnds {
    pub(crate) fn new(state: &State) -> PlannedEnds {
        let mut ends = PlannedEnds {
            predicts: state
                .config
                .as_ref()
                .is_some_and(|c| c.predicts_run_times()),
            ..PlannedEnds::default()
        };
        for id in &state.active {
            ends.follow(state, *id);
        }
        ends
    }

    /// Whether run times are predicted.
    pub(crate) fn predicts(&self) -> bool {
        self.predicts
    }

    /// The expected end of a job, if it is predicted.
    pub(crate) fn end_of(&self, id: JobId) -> Option<Timestamp> {
        self.of.get(&id).copied()
    }

    /// Updates the end of one job from the state.
    pub(crate) fn follow(&mut self, state: &State, id: JobId) {
        if !self.predicts {
            return;
        }
        let job = state.jobs.get(&id);
        let new = job.and_then(|job| {
            let limit = state.limit_end(job);
            let predicted = match (job.start_time, job.predicted_s) {
                (Some(start), Some(run_s)) if limit.is_some() => {
                    Some(start.plus_s(u64::from(run_s)).plus_ms(job.suspended_ms))
                }
                _ => None,
            };
            limit.into_iter().chain(predicted).min()
        });
        self.set(id, new);
    }

    fn set(&mut self, id: JobId, new: Option<Timestamp>) {
        let old = match new {
            Some(at) => self.of.insert(id, at),
            None => self.of.remove(&id),
        };
        if let Some(old) = old {
            self.by_time.remove(&(old, id));
        }
        self.by_time.extend(new.map(|at| (at, id)));
    }

    /// Moves the expected end of jobs that exceed their prediction to their limit. Returns the jobs
    /// whose end has moved.
    pub(crate) fn correct(&mut self, state: &State, now: Timestamp) -> Vec<JobId> {
        let overdue = self.by_time.iter().take_while(|(at, _)| *at <= now);
        let later = overdue.filter_map(|&(at, id)| {
            let limit = state.limit_end(state.jobs.get(&id)?)?;
            (limit > at).then_some((limit, id))
        });
        let later: Vec<(Timestamp, JobId)> = later.collect();
        for &(limit, id) in &later {
            self.set(id, Some(limit));
        }
        later.into_iter().map(|(_, id)| id).collect()
    }
}
