//! Jobs that make room for others. The scheduler says which and for whom; here is checked that it may be so, and what
//! happens to them. Those that were stopped go on when all of their CPUs are free again.

use super::draft::Draft;
use super::ending::{self, End};
use crate::event::{Event, JobChange};
use muster_model::command::PlannedPreemption;
use muster_model::ids::{JobId, NodeIdx};
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
    if exempt_until > draft.now
        || !waiting.is_startable()
        || !state.outranks(waiting, &planned.partition, victim)
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
        draft.emit(Event::JobSuspended { id, at, turn: None });
    } else if how.end.is_none() {
        ending::end(draft, id, End::preempted(mode == PreemptMode::Requeue));
    }
}

/// How a job ends whose grace time is over.
pub(super) fn end_of(job: &Job) -> End {
    let mode = job.preempted.as_ref().map(|p| p.mode);
    End::preempted(mode == Some(PreemptMode::Requeue))
}

/// Nodes that a job holds.
pub(super) fn nodes_of(draft: &Draft<'_>, id: JobId) -> Vec<NodeIdx> {
    let job = draft.job(id).into_iter();
    job.flat_map(|job| job.held().map(|(share, _)| share.node))
        .collect()
}

/// Resumes jobs that were stopped for a start that was then dropped.
pub(super) fn undo_in_vain(draft: &mut Draft<'_>, planned: &[PlannedPreemption]) {
    let nodes: BTreeSet<NodeIdx> = planned
        .iter()
        .flat_map(|p| nodes_of(draft, p.victim))
        .collect();
    nodes.into_iter().for_each(|node| resume_on(draft, node));
}

/// CPUs of a node became free: jobs that were stopped to make room go on, those stopped first before others, if all
/// that they had is free.
pub(super) fn resume_on(draft: &mut Draft<'_>, node: NodeIdx) {
    if !draft.may_have_stopped(node) {
        return;
    }
    let Some(jobs) = draft.node(node).map(|n| &n.jobs) else {
        return;
    };
    let mut stopped: Vec<_> = jobs
        .iter()
        .filter_map(|id| draft.job(*id))
        .filter(|job| job.is_stopped_for_another())
        .map(|job| (job.suspend_time, job.id))
        .collect();
    stopped.sort_unstable();
    let at = draft.now;
    for (_, id) in stopped {
        let free = draft.job(id).is_some_and(|job| {
            job.held().all(|(share, _)| {
                let node = draft.node(share.node);
                // CPUs that a new configuration took away never come back.
                node.is_some_and(|n| {
                    let mut cpus = share.cpus.clone();
                    cpus.intersect_with(&n.config.job_cpus());
                    n.free_cpus.is_superset(&cpus)
                })
            })
        });
        if free {
            draft.emit(Event::JobResumed { id, at });
        }
    }
    super::turns::fill(draft, node);
}
