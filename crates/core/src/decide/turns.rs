//! Resumes jobs that are stopped while others have their CPUs: preempted ones, when all of their CPUs are free again, and those
//! of gang scheduling, where jobs that have the same CPUs (`OverSubscribe`) take turns of `SchedulerTimeSlice` (`PreemptMode`
//! has `GANG`). One that waits for its turn is stopped and keeps its allocation.

use super::calendar_stops;
use super::draft::Draft;
use crate::event::{Event, JobChange};
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Job, JobState};
use muster_model::time::Timestamp;
use std::collections::BTreeSet;

/// A job began: if others run on its CPUs, it waits for its turn.
pub(super) fn began(draft: &mut Draft<'_>, id: JobId) {
    let takes_turns = draft.job(id).is_some_and(|job| runs(job) && shares(job));
    if let Some(due) = next_turn(draft).filter(|_| takes_turns)
        && !opponents(draft, id).is_empty()
    {
        set_aside(draft, id, due);
    }
}

/// Jobs that have waited long enough get their turn, the longest wait first; the jobs that run on their CPUs wait.
pub(super) fn tick(draft: &mut Draft<'_>) {
    let now = draft.now;
    let due: Vec<JobId> = draft
        .state
        .by_turn
        .range(..=(now, JobId(u64::MAX)))
        .map(|(_, id)| *id)
        // Some may have been ended just now.
        .filter(|id| draft.job(*id).is_some_and(Job::waits_for_turn))
        .collect();
    let Some(next) = next_turn(draft) else {
        // A new configuration has no turns: everybody goes on.
        return due.into_iter().for_each(|id| go_on(draft, id));
    };
    let mut nodes = BTreeSet::new();
    let mut began = BTreeSet::new();
    for id in by_wait(draft, due) {
        let opponents = opponents(draft, id);
        if opponents.iter().any(|other| began.contains(other)) {
            draft.change(id, JobChange::TurnDue(next));
            continue;
        }
        for other in opponents {
            nodes.extend(nodes_of(draft, other));
            set_aside(draft, other, next);
        }
        go_on(draft, id);
        began.insert(id);
    }
    nodes.into_iter().for_each(|node| fill(draft, node));
}

/// CPUs of a node became free: jobs that wait for their turn there go on if nobody runs on theirs.
pub(super) fn fill(draft: &mut Draft<'_>, node: NodeIdx) {
    let Some(jobs) = draft.node(node).map(|n| &n.jobs) else {
        return;
    };
    let waits = |id: &JobId| draft.job(*id).is_some_and(Job::waits_for_turn);
    let waiting: Vec<JobId> = jobs.iter().copied().filter(waits).collect();
    for id in by_wait(draft, waiting) {
        if opponents(draft, id).is_empty() {
            go_on(draft, id);
        }
    }
}

/// The job's turn comes at once, by an administrator's word.
pub(super) fn give(draft: &mut Draft<'_>, id: JobId) {
    if let Some(next) = next_turn(draft) {
        for other in opponents(draft, id) {
            set_aside(draft, other, next);
        }
    }
    go_on(draft, id);
}

/// When a turn that begins now is over; nothing where there are no turns.
fn next_turn(draft: &Draft<'_>) -> Option<Timestamp> {
    let slice_s = draft.state.config.as_ref()?.order.time_slice_s?;
    Some(draft.now.plus_s(u64::from(slice_s)))
}

fn set_aside(draft: &mut Draft<'_>, id: JobId, due: Timestamp) {
    let at = draft.now;
    let turn = Some(due);
    draft.emit(Event::JobSuspended {
        id,
        at,
        turn,
        by_calendar: false,
    });
}

fn go_on(draft: &mut Draft<'_>, id: JobId) {
    let at = draft.now;
    draft.emit(Event::JobResumed { id, at });
}

fn by_wait(draft: &Draft<'_>, mut waiting: Vec<JobId>) -> Vec<JobId> {
    waiting.sort_by_key(|id| (draft.job(*id).and_then(|job| job.suspend_time), *id));
    waiting
}

fn runs(job: &Job) -> bool {
    // A job that was not launched yet cannot be stopped.
    job.state == JobState::Running && !job.completing && !job.configuring && job.power_up.is_none()
}

fn shares(job: &Job) -> bool {
    job.alloc.as_ref().is_some_and(|alloc| alloc.sharers > 1)
}

/// Jobs that run on CPUs which a job has too.
fn opponents(draft: &Draft<'_>, id: JobId) -> Vec<JobId> {
    let Some(job) = draft.job(id) else {
        return Vec::new();
    };
    let mut found = BTreeSet::new();
    for (share, _) in job.held() {
        let jobs = draft.node(share.node).map(|node| node.jobs.as_slice());
        let others = jobs
            .unwrap_or_default()
            .iter()
            .filter(|other| **other != id);
        for other in others.filter_map(|other| draft.job(*other)) {
            let meets = || {
                let mut theirs = other.held().map(|(theirs, _)| theirs);
                theirs
                    .any(|theirs| theirs.node == share.node && theirs.cpus.intersects(&share.cpus))
            };
            if runs(other) && shares(other) && meets() {
                found.insert(other.id);
            }
        }
    }
    found.into_iter().collect()
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
        .filter(|job| job.is_stopped_for_another() && !calendar_stops::get(draft, &job.partition))
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
    fill(draft, node);
}

/// Nodes that a job holds.
pub(super) fn nodes_of(draft: &Draft<'_>, id: JobId) -> Vec<NodeIdx> {
    let job = draft.job(id).into_iter();
    job.flat_map(|job| job.held().map(|(share, _)| share.node))
        .collect()
}
