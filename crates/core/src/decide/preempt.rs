//! Jobs that make room for others. The scheduler says which and for whom; this module checks that it may be so, and decides
//! what happens to them. Stopped ones are resumed by `turns`, when all of their CPUs are free again.

use super::draft::Draft;
use super::ending::{self, JobEnding};
use super::turns::{nodes_of, resume_on};
use crate::event::{Event, JobChange};
use muster_model::command::PlannedPreemption;
use muster_model::ids::NodeIdx;
use muster_model::job::Job;
use muster_model::preemption::{PreemptMode, Preempted};
use std::collections::BTreeSet;

/// Ends, stops or warns a job so that another can start.
pub(super) fn preempt(draft: &mut Draft<'_>, planned: &PlannedPreemption) {
    let state = draft.state;
    let (Some(victim), Some(waiting)) = (draft.job(planned.victim), draft.job(planned.by)) else {
        return;
    };
    let Some((mode, exempt_until)) = state.preemptable(victim) else {
        return;
    };
    let is_higher = || {
        let of = |job: &Job, partition: &str| {
            let scale = draft.scale();
            scale.map_or(job.priority, |s| s.priority_in(state, job, partition))
        };
        of(waiting, &planned.partition) > of(victim, &victim.partition)
    };
    if exempt_until > draft.now
        || !waiting.is_startable()
        || !state.outranks(waiting, &planned.partition, victim, is_higher)
    {
        return;
    }
    let grace_s = match mode {
        PreemptMode::Cancel | PreemptMode::Requeue => state.grace_s(victim),
        PreemptMode::Off | PreemptMode::Suspend => 0,
    };
    let (id, at) = (planned.victim, draft.now);
    let how = Preempted {
        by: planned.by,
        at,
        mode,
        end: (grace_s > 0).then(|| at.plus_s(u64::from(grace_s))),
    };
    draft.change(id, JobChange::Preempted(how));
    if mode == PreemptMode::Suspend {
        draft.emit(Event::JobSuspended {
            id,
            at,
            turn: None,
            by_calendar: false,
        });
    } else if how.end.is_none() {
        ending::end(
            draft,
            id,
            JobEnding::preempted(mode == PreemptMode::Requeue),
        );
    }
}

/// End of a job whose grace time is over.
pub(super) fn end_of(job: &Job) -> JobEnding {
    let mode = job.preempted.as_ref().map(|p| p.mode);
    JobEnding::preempted(mode == Some(PreemptMode::Requeue))
}

/// Resumes jobs that were stopped for a start that was then dropped.
pub(super) fn undo_in_vain(draft: &mut Draft<'_>, planned: &[PlannedPreemption]) {
    let nodes: BTreeSet<NodeIdx> = planned
        .iter()
        .flat_map(|p| nodes_of(draft, p.victim))
        .collect();
    nodes.into_iter().for_each(|node| resume_on(draft, node));
}
