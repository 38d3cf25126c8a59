//! The ways in which a job ends or loses nodes: shared by cancellation, limits, node failure and completion.

use super::draft::Draft;
use crate::event::{Event, JobChange};
use crate::policy::limits::note_counts;
use muster_model::het::HetPlace;
use muster_model::hostlist;
use muster_model::ids::{JobId, NodeIdx, StepNo};
use muster_model::job::{
    AfterCompleting, Allocation, ExitStatus, Hold, Job, JobState, NodeShare, Phase, Reason,
    ResourceUsage, StepEnd,
};
use muster_model::limits::{LAUNCH_BACKOFF_MAX_S, LAUNCH_BACKOFF_S};
use muster_model::node::Node;
use muster_model::spec::JobKind;
use muster_model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// SIGTERM on Linux: what steps get when their job is ended.
const SIGTERM: u32 = 15;

/// State and status of a job's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobEnding {
    state: JobState,
    reason: Reason,
    exit: ExitStatus,
    cancelled_by: Option<u32>,
    requeue: Option<bool>,
    /// It does not come back, though it is an entry of a crontab: nobody looks further.
    assumed: bool,
}

impl JobEnding {
    /// For good, with exit status 0.
    pub(super) fn new(state: JobState, reason: Reason) -> JobEnding {
        JobEnding {
            state,
            reason,
            exit: ExitStatus::default(),
            cancelled_by: None,
            requeue: None,
            assumed: false,
        }
    }

    /// Back to the queue.
    pub(super) fn requeue(reason: Reason, hold: bool) -> JobEnding {
        JobEnding {
            requeue: Some(hold),
            ..JobEnding::new(JobState::Pending, reason)
        }
    }

    /// Whether it comes back to the queue.
    pub(super) fn requeues(&self) -> bool {
        self.requeue.is_some()
    }

    /// Whether it is held there.
    pub(super) fn holds(&self) -> bool {
        self.requeue == Some(true)
    }

    /// The state that it ends in.
    pub(super) fn state(&self) -> JobState {
        self.state
    }

    /// It could not be launched.
    pub(super) fn never_ran(&self) -> bool {
        self.reason == Reason::JobLaunchFailure
    }

    /// Makes room for another, for good or back to the queue.
    pub(super) fn preempted(requeue: bool) -> JobEnding {
        JobEnding {
            requeue: requeue.then_some(false),
            ..JobEnding::new(JobState::Preempted, Reason::None)
        }
    }

    /// Cancelled by that user.
    pub(super) fn cancelled(uid: u32) -> JobEnding {
        JobEnding {
            cancelled_by: Some(uid),
            ..JobEnding::new(JobState::Cancelled, Reason::None)
        }
    }

    /// This end with the exit status that the job had.
    pub(super) fn with_exit(self, exit: ExitStatus) -> JobEnding {
        JobEnding { exit, ..self }
    }

    /// Its script or holder ended with that status.
    pub(super) fn exited(exit: ExitStatus, oom: bool) -> JobEnding {
        let (state, reason) = if oom {
            (JobState::OutOfMemory, Reason::OutOfMemory)
        } else if exit.signal != 0 {
            (JobState::Failed, Reason::RaisedSignal)
        } else if exit.code != 0 {
            (JobState::Failed, Reason::NonZeroExitCode)
        } else {
            (JobState::Completed, Reason::None)
        };
        JobEnding {
            exit,
            ..JobEnding::new(state, reason)
        }
    }
}

/// Ends a job; its nodes, if it has some, are cleaned from now on. Other components of a heterogeneous job may end
/// with it.
pub(super) fn end(draft: &mut Draft<'_>, id: JobId, how: JobEnding) {
    let het = draft.job(id).and_then(|job| Some((job.het?, job.phase())));
    let Some((part, phase)) = het else {
        return end_one(draft, id, how);
    };
    // A job that cannot come back whole does not come back.
    let how = if how.requeue.is_some() && !is_whole(draft, part) {
        JobEnding::new(JobState::NodeFail, how.reason)
    } else {
        how
    };
    // It may have ended with another component in this very decision.
    match phase {
        Phase::Ended | Phase::Gone => return,
        Phase::Completing if how.requeue.is_none() => return,
        Phase::Completing
        | Phase::Pending
        | Phase::Running
        | Phase::Suspended
        | Phase::Requeueing => {}
    }
    end_one(draft, id, how);
    follow(draft, id, part, phase, how);
}

/// Ends one job, whatever it is a component of.
pub(super) fn end_one(draft: &mut Draft<'_>, id: JobId, how: JobEnding) {
    let at = draft.now;
    let asleep = asleep_of(draft, id);
    let how = JobEnding {
        requeue: how.requeue.or(comes_back(draft, id, how).then_some(false)),
        ..how
    };
    draft.emit(Event::JobEnding {
        id,
        at,
        state: how.state,
        reason: how.reason,
        exit: how.exit,
        cancelled_by: how.cancelled_by,
        requeue: how.requeue,
    });
    if how.requeue.is_none() && !how.assumed {
        super::cron_entry::disable_entry(draft, id);
    }
    for position in asleep {
        release(draft, id, position);
    }
}

/// Whether it is an entry of a crontab whose run is over, however that ended.
fn comes_back(draft: &Draft<'_>, id: JobId, how: JobEnding) -> bool {
    let runs = |job: &&Job| matches!(job.phase(), Phase::Running | Phase::Suspended);
    let job = draft.job(id).filter(runs);
    !how.assumed && how.cancelled_by.is_none() && job.is_some_and(super::cron_entry::recurs)
}

/// The job is over, and well, and nothing of it is left anywhere.
pub(super) fn assume_ended(draft: &mut Draft<'_>, id: JobId) {
    let Some(job) = draft.job(id) else { return };
    if matches!(job.phase(), Phase::Running | Phase::Suspended) {
        let how = JobEnding::new(JobState::Completed, Reason::None);
        end(
            draft,
            id,
            JobEnding {
                assumed: true,
                ..how
            },
        );
    }
    let held = draft.job(id).map(|job| job.nodes_held.clone());
    for position in held.iter().flat_map(|held| held.iter()) {
        release(draft, id, position);
    }
}

/// Puts a running job back to the queue if the system may do so, else ends it.
pub(super) fn fail(draft: &mut Draft<'_>, id: JobId, otherwise: JobEnding) {
    let requeueable = draft.job(id).is_some_and(|job| {
        job.requeueable && (job.spec.kind == JobKind::Batch || job.het.is_some())
    });
    let how = if requeueable {
        JobEnding::requeue(otherwise.reason, false)
    } else {
        otherwise
    };
    end(draft, id, how);
}

/// Nothing of the job is left at that place of its allocation. With the last place the job is over or in the queue
/// again.
pub(super) fn release(draft: &mut Draft<'_>, id: JobId, position: u32) {
    let at = draft.now;
    let node = draft
        .job(id)
        .and_then(|job| Some(job.alloc.as_ref()?.nodes.get(position as usize)?.node));
    draft.emit(Event::NodeReleased { id, position, at });
    if let Some(node) = node {
        super::pending_reboot::order_if_idle(draft, node);
        super::turns::resume_on(draft, node);
    }
    if draft.only_released(id) {
        return;
    }
    let Some(job) = draft.job(id) else {
        return;
    };
    if !job.nodes_held.is_empty() {
        return;
    }
    let cancelled_by = job.cancelled_by;
    let steps: Vec<StepNo> = job.steps.iter().map(|s| s.step).collect();
    let requeue = match job.after_completing {
        AfterCompleting::End => None,
        AfterCompleting::Requeue { hold } => {
            let backoff = backoff_s(job).map(|s| at.plus_s(s));
            let wait = match super::expedite::is_due(draft, job) {
                true => None,
                false => requeue_wait(draft),
            };
            let not_before = backoff.max(wait);
            let not_before = not_before.max(super::cron_entry::next_time(draft, job));
            Some((after_requeue(job, hold), not_before))
        }
    };
    for step in steps {
        // It runs nothing that could have ended otherwise.
        let (signal, state) = match step == StepNo::EXTERN {
            true => (0, JobState::Completed),
            false => (SIGTERM, JobState::Cancelled),
        };
        let end = Box::new(StepEnd {
            end_time: at,
            exit: ExitStatus { code: 0, signal },
            state,
            usage: ResourceUsage::default(),
            cancelled_by: cancelled_by.filter(|_| step != StepNo::EXTERN),
            last_lines: None,
        });
        draft.emit(Event::StepEnded { id, step, end });
    }
    if let Some((hold, not_before)) = requeue {
        let expedited = (draft.job(id)).is_some_and(|job| super::expedite::is_due(draft, job));
        draft.emit(Event::JobRequeued {
            id,
            at,
            hold,
            not_before,
        });
        if expedited {
            super::expedite::raise(draft, id);
        }
    }
}

/// Until when a job waits that goes back to the queue now.
pub(super) fn requeue_wait(draft: &Draft<'_>) -> Option<Timestamp> {
    let config = draft.state.config.as_ref()?;
    let wait_s = u64::from(config.requeue_wait_s);
    (wait_s > 0).then(|| draft.now.plus_s(wait_s))
}

/// Everything of the job on that node is gone: the node failed, was set down, restarted or lost track of it.
pub(super) fn lose_node(draft: &mut Draft<'_>, id: JobId, node: NodeIdx) {
    if let Some(position) = lose_script(draft, id, node) {
        release(draft, id, position);
    }
}

/// It is not known how the script of the job on that node has ended. Its steps and other processes may go on there: the node
/// ends them, and reports when the job has left it. Gives the job's place there until then.
pub(super) fn lose_script(draft: &mut Draft<'_>, id: JobId, node: NodeIdx) -> Option<u32> {
    let job = draft.job(id)?;
    let position = position_on(job, node)?;
    match job.phase() {
        Phase::Running | Phase::Suspended => {
            let lead = position == 0 && job.spec.kind == JobKind::Batch;
            let survives = job.spec.no_kill && !lead && job.nodes_held.len() > 1;
            // A job that never began can begin again, whatever was asked for.
            let never_began = job.power_up.is_some() && job.spec.kind == JobKind::Batch;
            if never_began {
                end(draft, id, JobEnding::requeue(Reason::NodeDown, false));
            } else if !survives {
                fail(
                    draft,
                    id,
                    JobEnding::new(JobState::NodeFail, Reason::NodeDown),
                );
            }
            let job = draft.job(id)?;
            position_on(job, node)?;
            if survives && !never_began {
                let others = job.held().map(|(share, _)| share.node);
                let kept = others.filter(|other| *other != node).collect();
                shrink(draft, id, &kept);
                return None;
            }
        }
        Phase::Completing | Phase::Requeueing => {}
        Phase::Pending | Phase::Ended | Phase::Gone => return None,
    }
    Some(position)
}

/// The place of a node in a job's allocation, if the job still holds it.
pub(super) fn position_on(job: &Job, node: NodeIdx) -> Option<u32> {
    let alloc = job.alloc.as_ref()?;
    (0u32..)
        .zip(&alloc.nodes)
        .find(|(position, share)| share.node == node && job.nodes_held.contains(*position))
        .map(|(position, _)| position)
}

/// The hold of a job that comes back to the queue.
pub(super) fn after_requeue(job: &Job, hold: bool) -> Hold {
    match (job.hold, hold) {
        // The system held it: its owner cannot know whether the cause is gone, also one who holds it, too.
        (_, true) if job.reason == Reason::JobLaunchFailure => Hold::Admin,
        (Hold::None, true) => Hold::User,
        (held, _) => held,
    }
}

/// Restarts that a job may have had when its exit code brings it back at once.
const FREE_RESTARTS: u32 = 1;

/// Time that a job waits after a launch that failed: longer each time. It waits likewise after an exit code that brings
/// it back, from the third time on: such a script could go on for ever.
fn backoff_s(job: &Job) -> Option<u64> {
    let failures = match job.reason {
        Reason::JobLaunchFailure => job.attempt.0,
        Reason::NonZeroExitCode => job.restarts.saturating_sub(FREE_RESTARTS),
        _ => 0,
    };
    (failures > 0).then(|| (u64::from(failures) * LAUNCH_BACKOFF_S).min(LAUNCH_BACKOFF_MAX_S))
}

/// Whether all components that would come back to the queue are still known.
pub(super) fn is_whole(draft: &Draft<'_>, place: HetPlace) -> bool {
    place.ids().all(|id| draft.job(id).is_some())
}

/// A component has ended or goes back to the queue, as `how` says, and was in `phase` before: what becomes of the
/// others. They end with the leader, and with a component that was lost or never ran; a component that is cancelled or
/// reaches its limit while the others run ends alone. The queue takes all back or none.
fn follow(draft: &mut Draft<'_>, id: JobId, place: HetPlace, phase: Phase, how: JobEnding) {
    let others = || place.ids().filter(move |other| *other != id);
    if how.requeues() {
        let mut back = Vec::new();
        for other in others() {
            match draft.job(other).map(Job::phase) {
                Some(Phase::Running | Phase::Suspended | Phase::Completing) => {
                    end_one(draft, other, how);
                }
                Some(Phase::Ended) => back.push(other),
                Some(Phase::Pending | Phase::Requeueing | Phase::Gone) | None => {}
            }
        }
        let at = draft.now;
        for other in back {
            let Some(job) = draft.job(other) else {
                continue;
            };
            let hold = after_requeue(job, how.holds());
            draft.emit(Event::JobRequeued {
                id: other,
                at,
                hold,
                not_before: requeue_wait(draft),
            });
        }
        return;
    }
    let lost = matches!(
        how.state(),
        JobState::NodeFail | JobState::BootFail | JobState::Preempted
    ) || how.never_ran();
    if !(place.leads() || lost || matches!(phase, Phase::Pending | Phase::Requeueing)) {
        return;
    }
    for other in others() {
        if let Some(Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing) =
            draft.job(other).map(Job::phase)
        {
            end_one(draft, other, how);
        }
    }
}

/// The sleeping nodes of a job that ends were never used.
fn asleep_of(draft: &Draft<'_>, id: JobId) -> Vec<u32> {
    let Some(job) = draft.job(id).filter(|job| job.power_up.is_some()) else {
        return Vec::new();
    };
    let shares = job.alloc.iter().flat_map(|alloc| &alloc.nodes);
    (0..)
        .zip(shares)
        .filter(|(position, _)| job.nodes_held.contains(*position))
        .filter(|(_, share)| draft.node(share.node).is_some_and(Node::is_powered_down))
        .map(|(position, _)| position)
        .collect()
}

/// The job goes on with these of its nodes. What it has on others ends there.
pub(super) fn shrink(draft: &mut Draft<'_>, id: JobId, kept: &BTreeSet<NodeIdx>) {
    let held = draft.job(id).map(|job| job.nodes_held.clone());
    let alloc = draft.job(id).and_then(|job| job.alloc.clone());
    let (Some(held), Some(alloc)) = (held, alloc) else {
        return;
    };
    let dropped = (0u32..)
        .zip(&alloc.nodes)
        .filter(|(position, share)| held.contains(*position) && !kept.contains(&share.node));
    for (position, _) in dropped {
        release(draft, id, position);
    }
    let Some(job) = draft.job(id) else { return };
    let nodes: Vec<NodeShare> = job.held().map(|(share, _)| share.clone()).collect();
    let names: Vec<&str> = nodes.iter().map(|share| share.name.as_str()).collect();
    let mut left = Allocation {
        hostlist: hostlist::compress(&names),
        ntasks: nodes.iter().map(|share| share.tasks).sum(),
        nodes,
        ..(*alloc).clone()
    };
    note_counts(draft.state, job, &mut left);
    draft.change(id, JobChange::Resized(Arc::new(left)));
}
