//! Limits on jobs that are submitted (`MaxSubmitJobs`, `GrpSubmitJobs`, `DenyOnLimit`), for commands that bring several, or give
//! jobs another account, QOS or partition.

use super::draft::Draft;
use crate::policy::limits::{ExceededLimit, submit_limit_beside, submit_scopes};
use crate::state::State;
use muster_model::account_limits::Scope;
use muster_model::job::{Job, JobState, Phase};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The additions of a command to the scopes whose limits jobs count for, beside the state's counts, and its reductions.
#[derive(Clone, Default)]
pub(super) struct Moved {
    come: BTreeMap<Scope, u32>,
    gone: BTreeMap<Scope, u32>,
}

impl Moved {
    /// Counts a job that the command makes, if there is room for it.
    pub(super) fn submit(&mut self, state: &State, job: &Job) -> Result<(), Refusal> {
        let counts = |scope: &Scope, used: u32| Some(self.counted(scope, used));
        require(submit_limit_beside(state, job, true, 1, counts))?;
        if state.keeps_limits() {
            for scope in submit_scopes(state, job, true) {
                add(&mut self.come, scope, 1);
            }
        }
        Ok(())
    }

    /// Counts a job that goes back to the queue, and the components of a heterogeneous one, if there is room for all of them. Those
    /// that have not ended count already.
    pub(super) fn submit_again(&mut self, draft: &Draft<'_>, job: &Job) -> Result<(), Refusal> {
        let state = draft.state;
        let has_ended = |job: &Job| matches!(job.phase(), Phase::Completing | Phase::Ended);
        let Some(part) = job.het else {
            return match has_ended(job) {
                true => self.submit(state, job),
                false => Ok(()),
            };
        };
        let components = part.ids().filter_map(|id| draft.job(id));
        let mut with = self.clone();
        for ended in components.filter(|component| has_ended(component)) {
            with.submit(state, ended)?;
        }
        *self = with;
        Ok(())
    }

    /// A job that waits makes room.
    pub(super) fn leave(&mut self, state: &State, job: &Job) {
        if state.keeps_limits() {
            for scope in submit_scopes(state, job, true) {
                add(&mut self.gone, scope, 1);
            }
        }
    }

    fn counted(&self, scope: &Scope, used: u32) -> u32 {
        let of = |counts: &BTreeMap<Scope, u32>| counts.get(scope).copied().unwrap_or(0);
        used.saturating_add(of(&self.come))
            .saturating_sub(of(&self.gone))
    }

    /// Refuses a change of a job, or of some tasks of its record, unless those for whom it counts then have room for
    /// it. A job refused by its QOS at submission (`DenyOnLimit`) is not made by a change.
    pub(super) fn require_room(
        &self,
        draft: &Draft<'_>,
        job: &Job,
        changed: &Job,
        tasks: u32,
    ) -> Result<(), Refusal> {
        let state = draft.state;
        let waits = job.state == JobState::Pending;
        let before = submit_scopes(state, job, waits);
        let counts = |scope: &Scope, used: u32| {
            let is_new = !before.contains(scope);
            is_new.then(|| self.counted(scope, used))
        };
        require(submit_limit_beside(state, changed, waits, tasks, counts))?;
        let after = submit_scopes(state, changed, waits);
        let moves = after.iter().any(|scope| !before.contains(scope));
        // One that is over a limit since before may be changed otherwise.
        if let Some(over) = state.denied_by(changed, waits, draft.now)
            && (moves || state.denied_by(job, waits, draft.now).is_none())
        {
            return Err(denied(&over));
        }
        Ok(())
    }

    /// Counts a job, or some tasks of its record, that changes.
    pub(super) fn change(&mut self, state: &State, job: &Job, changed: &Job, tasks: u32) {
        let waits = job.state == JobState::Pending;
        let before = submit_scopes(state, job, waits);
        let after = submit_scopes(state, changed, waits);
        for scope in after.into_iter().filter(|scope| !before.contains(scope)) {
            add(&mut self.come, scope, tasks);
        }
    }
}

/// As much of a job with another specification and limit as limits are about.
pub(super) fn changed(job: &Job, spec: &Arc<JobSpec>, limit: TimeLimit, now: Timestamp) -> Job {
    let mut changed = Job::single(job.id, spec.clone(), limit, now);
    if job.state != JobState::Pending || spec.partitions.contains(&job.partition) {
        changed.partition.clone_from(&job.partition);
    }
    changed
}

fn add(counts: &mut BTreeMap<Scope, u32>, scope: Scope, tasks: u32) {
    let count = counts.entry(scope).or_default();
    *count = count.saturating_add(tasks);
}

/// Refuses a job that is over a limit on those that are submitted.
pub(super) fn require(limit: Option<&'static str>) -> Result<(), Refusal> {
    limit.map_or(Ok(()), |name| {
        Err(Refusal::new(RefusalCode::AccountingPolicy, name))
    })
}

/// The refusal of a job that is over a limit of its QOS, which takes none of these.
pub(super) fn denied(over: &ExceededLimit) -> Refusal {
    Refusal::new(RefusalCode::AccountingPolicy, over.reason.name())
}
