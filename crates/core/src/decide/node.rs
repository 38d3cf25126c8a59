//! Reports of nodes: registration and loss, ends of scripts and steps, released resources, failed launches.
//! Messages of another attempt than the job's current one are ignored.

use super::draft::Draft;
use super::ending::{self, JobEnding};
use super::job_limits::Moved;
use super::node_loss;
use super::{power, reboot, turns};
use crate::event::{Event, JobChange, NodeChange};
use crate::state::DisplayUpdate;
use muster_model::command::NodeCommand;
use muster_model::config::ExitCodeRange;
use muster_model::grid_engine::is_marked;
use muster_model::ids::{JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{ExitStatus, Job, JobState, Phase, Reason, Step, StepEnd};
use muster_model::limits::{LAUNCH_FAILURES_MAX, TEXT_BYTES_MAX};
use muster_model::mail::last_lines;
use muster_model::node::{NodeInfo, NodeLink, NodeReason};
use muster_model::spec::JobKind;
use muster_model::visible_text::make_visible;
use std::sync::Arc;

/// Takes in what a node tells.
pub(super) fn decide_node_report(draft: &mut Draft<'_>, idx: NodeIdx, command: &NodeCommand) {
    if draft.node(idx).is_none() {
        return;
    }
    match command {
        NodeCommand::Register { info, present } => register(draft, idx, info, present),
        NodeCommand::Lost => {
            if draft.node(idx).is_some_and(|n| n.link == NodeLink::Up) {
                change(draft, idx, NodeChange::LinkLost);
            }
        }
        NodeCommand::Health {
            load_centi,
            free_mib,
        } => draft.note(DisplayUpdate::Health {
            node: idx,
            load_centi: *load_centi,
            free_mib: *free_mib,
        }),
        NodeCommand::Configuration { error } => configuration(draft, idx, error.as_deref()),
        NodeCommand::BatchEnded {
            job,
            attempt,
            exit,
            oom,
            end,
        } => batch_ended(
            draft,
            idx,
            JobAttempt::new(*job, *attempt),
            *exit,
            *oom,
            end,
        ),
        NodeCommand::Released { job, attempt } => {
            released(draft, idx, JobAttempt::new(*job, *attempt))
        }
        NodeCommand::LaunchFailed {
            job,
            attempt,
            error,
            node_fault,
            prolog,
            lack,
        } => {
            let why = if *prolog {
                LaunchFault::Prolog
            } else if *lack {
                LaunchFault::Lack
            } else if *node_fault {
                LaunchFault::Node
            } else {
                LaunchFault::Job
            };
            launch_failed(draft, idx, JobAttempt::new(*job, *attempt), error, why);
        }
        NodeCommand::NodeFault {
            job,
            attempt,
            error,
        } => {
            if current(draft, idx, JobAttempt::new(*job, *attempt)).is_some() {
                drain(draft, idx, shortened(error));
                super::expedite_fault::node_fault(draft, *job, error);
            }
        }
        NodeCommand::Vanished { job, attempt } => {
            if current(draft, idx, JobAttempt::new(*job, *attempt)).is_some() {
                ending::lose_script(draft, *job, idx);
            }
        }
        NodeCommand::StepStarted { job, attempt, step } => {
            step_started(draft, idx, JobAttempt::new(*job, *attempt), step);
        }
        NodeCommand::StepEnded {
            job,
            attempt,
            step,
            end,
        } => {
            // Parts of a step on other nodes may begin and end after the last of the job has left the node that leads it.
            let known = with_steps(draft, idx, JobAttempt::new(*job, *attempt))
                .is_some_and(|job| job.steps.iter().any(|s| s.step == *step));
            if known {
                // Lines are of the script.
                let end = Box::new(StepEnd {
                    last_lines: None,
                    ..(**end).clone()
                });
                draft.emit(Event::StepEnded {
                    id: *job,
                    step: *step,
                    end,
                });
            }
        }
    }
}

/// The job and the node's place in it, if it is the current attempt and the job still holds the node.
fn current<'d>(draft: &'d Draft<'_>, idx: NodeIdx, launch: JobAttempt) -> Option<(u32, &'d Job)> {
    let job = draft
        .job(launch.job)
        .filter(|job| job.attempt == launch.attempt)?;
    Some((ending::position_on(job, idx)?, job))
}

/// The job of whose steps a node may report: one that holds it, or that it leads and that is not over on other nodes.
fn with_steps<'d>(draft: &'d Draft<'_>, idx: NodeIdx, launch: JobAttempt) -> Option<&'d Job> {
    let job = draft
        .job(launch.job)
        .filter(|job| job.attempt == launch.attempt)?;
    let lead = job.alloc.as_ref()?.nodes.first()?;
    let is_led = lead.node == idx && !job.nodes_held.is_empty();
    (is_led || ending::position_on(job, idx).is_some()).then_some(job)
}

fn change(draft: &mut Draft<'_>, node: NodeIdx, change: NodeChange) {
    let at = draft.now;
    draft.emit(Event::NodeChanged { node, change, at });
}

fn register(draft: &mut Draft<'_>, idx: NodeIdx, info: &NodeInfo, present: &[JobAttempt]) {
    let Some(node) = draft.node(idx) else {
        return;
    };
    let rebooted = node
        .report
        .as_ref()
        .is_some_and(|known| known.boot_id != info.boot_id);
    // Its jobs wait for this very boot.
    let was_asleep = node.is_powered_down();
    let at = draft.now;
    draft.emit(Event::NodeRegistered {
        node: idx,
        info: Box::new(info.clone()),
        at,
    });
    power::registered(draft, idx);
    let jobs = draft.node(idx).map(|n| n.jobs.clone()).unwrap_or_default();
    for id in jobs {
        let Some(job) = draft.job(id) else {
            continue;
        };
        if present.contains(&JobAttempt::new(id, job.attempt)) {
            continue;
        }
        match (job.phase(), ending::position_on(job, idx)) {
            // The job that was being ended is gone.
            (Phase::Completing | Phase::Requeueing, Some(position)) => {
                ending::release(draft, id, position);
            }
            (Phase::Running | Phase::Suspended, _) if rebooted && !was_asleep => {
                ending::lose_node(draft, id, idx);
            }
            // Otherwise it never got there, and is launched again.
            _ => {}
        }
    }
    if rebooted {
        reboot::booted(draft, idx);
    }
    check_machine(draft, idx, info);
    super::pending_reboot::order_if_idle(draft, idx);
}

/// A machine with less than the configuration says is drained; one that was down comes back by `ReturnToService`.
fn check_machine(draft: &mut Draft<'_>, idx: NodeIdx, info: &NodeInfo) {
    let Some(node) = draft.node(idx) else {
        return;
    };
    if node.future {
        return;
    }
    let lacks = if info.cpus < node.config.cpus {
        Some("Low socket*core*thread count")
    } else if info.memory_mib < node.config.memory_mib {
        Some("Low RealMemory")
    } else {
        None
    };
    if let Some(text) = lacks {
        return drain(draft, idx, text.to_owned());
    }
    let returns = match draft
        .state
        .config
        .as_ref()
        .map_or(0, |c| c.return_to_service)
    {
        0 => false,
        1 => node_loss::fell_silent(node.reason.as_ref()),
        _ => true,
    };
    if node.down && returns {
        change(draft, idx, NodeChange::Returned);
    }
}

fn batch_ended(
    draft: &mut Draft<'_>,
    idx: NodeIdx,
    launch: JobAttempt,
    exit: ExitStatus,
    oom: bool,
    end: &StepEnd,
) {
    let id = launch.job;
    // Only the leading node runs the script.
    let Some((0, job)) = current(draft, idx, launch) else {
        return;
    };
    if job.spec.kind != JobKind::Batch {
        return;
    }
    let (phase, runs) = (
        job.phase(),
        job.steps.iter().any(|s| s.step == StepNo::BATCH),
    );
    // The node was asked for these lines, or says what nobody wants to know.
    let wanted = job.spec.mail.as_ref().and_then(|mail| mail.lines);
    let lines = wanted.and_then(|wanted| {
        let lines = last_lines(end.last_lines.as_deref()?, wanted);
        (!lines.is_empty()).then(|| lines.to_owned())
    });
    if runs {
        draft.emit(Event::StepEnded {
            id,
            step: StepNo::BATCH,
            end: Box::new(StepEnd {
                last_lines: lines,
                ..end.clone()
            }),
        });
    }
    launched(draft, idx);
    if !matches!(phase, Phase::Running | Phase::Suspended) {
        return;
    }
    // A job that ends in the grace time without being done made room, and may have another go.
    if let Some(job) = draft.job(id).filter(|j| j.grace_end().is_some())
        && !(exit.is_ok() || oom)
    {
        let how = super::preempt::end_of(job).with_exit(exit);
        return ending::end(draft, id, how);
    }
    let back = requeue_after(draft, id, exit, oom).filter(|_| has_room(draft, id));
    match back {
        None => ending::end(draft, id, JobEnding::exited(exit, oom)),
        Some(hold) => {
            ending::end(draft, id, JobEnding::requeue(Reason::NonZeroExitCode, hold));
            if hold {
                draft.change(id, JobChange::SpecialExit(true));
            }
        }
    }
}

/// Exit code by which a script of Grid Engine asks to be run again.
const RESCHEDULE_EXIT: u32 = 99;
/// Exit code by which it says that it cannot run: its job waits in error state, held.
const ERROR_STATE_EXIT: u32 = 100;

/// `RequeueExit`, `RequeueExitHold`, and the exit codes of Grid Engine for its jobs: whether an exit code brings the job back to the
/// queue, and held.
fn requeue_after(draft: &Draft<'_>, id: JobId, exit: ExitStatus, oom: bool) -> Option<bool> {
    let config = draft.state.config.as_ref()?;
    if oom || exit.signal != 0 {
        return None;
    }
    let in_any = |ranges: &[ExitCodeRange]| ranges.iter().any(|range| range.has(exit.code));
    if in_any(&config.requeue_exit_hold) {
        return Some(true);
    }
    if in_any(&config.requeue_exit) {
        return Some(false);
    }
    let is_of_grid_engine = || draft.job(id).is_some_and(|job| is_marked(&job.spec));
    match exit.code {
        RESCHEDULE_EXIT => is_of_grid_engine().then_some(false),
        ERROR_STATE_EXIT => is_of_grid_engine().then_some(true),
        _ => None,
    }
}

/// Whether limits on jobs that are submitted leave room for the components of a heterogeneous job that come back to the queue with
/// it: those that ended alone do not count, and others may have been submitted in their place.
fn has_room(draft: &Draft<'_>, id: JobId) -> bool {
    let job = draft.job(id);
    job.is_none_or(|job| Moved::default().submit_again(draft, job).is_ok())
}

fn released(draft: &mut Draft<'_>, idx: NodeIdx, launch: JobAttempt) {
    let Some((position, job)) = current(draft, idx, launch) else {
        return;
    };
    match job.phase() {
        Phase::Completing | Phase::Requeueing => ending::release(draft, launch.job, position),
        // Nothing is left of a job that should run there.
        Phase::Running | Phase::Suspended => ending::lose_node(draft, launch.job, idx),
        Phase::Pending | Phase::Ended | Phase::Gone => {}
    }
}

fn step_started(draft: &mut Draft<'_>, idx: NodeIdx, launch: JobAttempt, step: &Step) {
    // A node that lost its memory tells of steps again, even of some that are over by now.
    let is_news = with_steps(draft, idx, launch).is_some_and(|job| !job.knows_step(step.step));
    if is_news {
        launched(draft, idx);
        let mut step = step.clone();
        make_visible(&mut step.name);
        make_visible(&mut step.submit_line);
        let names = step.devices.iter_mut().map(|tres| &mut tres.name);
        names.for_each(make_visible);
        let (id, step) = (launch.job, Arc::new(step));
        draft.emit(Event::StepStarted { id, step });
    }
}

/// A launch there worked: failures before it do not count any more.
fn launched(draft: &mut Draft<'_>, idx: NodeIdx) {
    if draft.node(idx).is_some_and(|n| n.launch_failures > 0) {
        change(draft, idx, NodeChange::LaunchFailed(false));
    }
}

/// `PrologSlurmctld` has ended: the job is launched, or goes back to the queue if it can.
pub(super) fn controllers_prolog(draft: &mut Draft<'_>, launch: JobAttempt, well: bool) {
    let JobAttempt { job: id, attempt } = launch;
    let waits = |job: &&Job| {
        job.configuring
            && job.attempt == attempt
            && matches!(job.phase(), Phase::Running | Phase::Suspended)
    };
    let Some(job) = draft.job(id).filter(waits) else {
        return;
    };
    if well {
        draft.change(id, JobChange::Ready);
        turns::began(draft, id);
        return super::calendar::began(draft, id);
    }
    let how = match job.spec.kind {
        JobKind::Batch => JobEnding::requeue(Reason::JobLaunchFailure, false),
        JobKind::Allocation if job.het.is_some() && job.requeueable => {
            JobEnding::requeue(Reason::JobLaunchFailure, false)
        }
        JobKind::Allocation => JobEnding::new(JobState::Cancelled, Reason::JobLaunchFailure),
    };
    draft.change(id, JobChange::Detail("PrologSlurmctld failed".to_owned()));
    ending::end(draft, id, how);
}

/// The cause of a failed launch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaunchFault {
    /// The job's own: it fails.
    Job,
    /// The node's: the job is tried again, on other nodes if the node goes on like that.
    Node,
    /// No known side's: users can use up the missing resource. The job is tried again, and the node stays in service.
    Lack,
    /// The site's prolog says that the node is unfit.
    Prolog,
}

fn launch_failed(
    draft: &mut Draft<'_>,
    idx: NodeIdx,
    launch: JobAttempt,
    error: &str,
    fault: LaunchFault,
) {
    let id = launch.job;
    let Some((position, job)) = current(draft, idx, launch) else {
        return;
    };
    let runs = matches!(job.phase(), Phase::Running | Phase::Suspended);
    // A script that never began can be started again, whatever was asked for; on another node it may have begun.
    let is_forced = fault == LaunchFault::Prolog && requeues_on_prolog_failure(draft);
    let safe = position == 0 || job.requeueable || is_forced;
    let batch = job.spec.kind == JobKind::Batch || (job.het.is_some() && job.requeueable);
    let requeue = fault != LaunchFault::Job && safe && batch;
    if runs {
        let hold = fault == LaunchFault::Prolog && holds_on_prolog_failure(draft);
        let (how, detail) = if requeue && failed_too_often(draft, job) {
            let detail = format!(
                "launch failure limit exceeded requeued held: {}",
                shortened(error)
            );
            (JobEnding::requeue(Reason::JobLaunchFailure, true), detail)
        } else if requeue && hold {
            let detail = format!("launch failed requeued held: {}", shortened(error));
            (JobEnding::requeue(Reason::JobLaunchFailure, true), detail)
        } else if requeue {
            (
                JobEnding::requeue(Reason::JobLaunchFailure, false),
                shortened(error),
            )
        } else {
            (
                JobEnding::new(JobState::Failed, Reason::JobLaunchFailure),
                shortened(error),
            )
        };
        draft.change(id, JobChange::Detail(detail));
        ending::end(draft, id, how);
    }
    // The node's release follows, when the launcher has ended the job's steps there and the epilog has run.
    match fault {
        LaunchFault::Job | LaunchFault::Lack => {}
        LaunchFault::Node => count_failure(draft, idx, error),
        LaunchFault::Prolog => drain(draft, idx, shortened(&format!("Prolog error: {error}"))),
    }
}

/// Whether `MaxBatchRequeue` launches of the job have failed, this one included. Attempts that were no failed launches
/// are its restarts.
fn failed_too_often(draft: &Draft<'_>, job: &Job) -> bool {
    let config = draft.state.config.as_ref();
    let most = config.and_then(|c| c.max_batch_requeue);
    most.is_some_and(|most| job.attempt.0.saturating_sub(job.restarts) > most)
}

/// `PrologFlags=ForceRequeueOnFail`.
fn requeues_on_prolog_failure(draft: &Draft<'_>) -> bool {
    let config = draft.state.config.as_ref();
    config.is_some_and(|config| config.requeue_on_prolog_failure)
}

/// A failed prolog holds the job unless `SchedulerParameters=nohold_on_prolog_fail`.
fn holds_on_prolog_failure(draft: &Draft<'_>) -> bool {
    let config = draft.state.config.as_ref();
    !config.is_some_and(|c| {
        let mut words = c.scheduler_parameters.iter();
        words.any(|word| word.eq_ignore_ascii_case("nohold_on_prolog_fail"))
    })
}

/// The circuit breaker: a node that fails one launch after another is drained before it eats the queue.
fn count_failure(draft: &mut Draft<'_>, idx: NodeIdx, error: &str) {
    change(draft, idx, NodeChange::LaunchFailed(true));
    let failures = draft.node(idx).map_or(0, |node| node.launch_failures);
    if failures >= LAUNCH_FAILURES_MAX {
        let error = shortened(error);
        drain(
            draft,
            idx,
            format!("{LAUNCH_FAILURES_MAX} launches failed, the last: {error}"),
        );
    }
}

/// Beginning of the reason of a node that has an older configuration than the controller.
const NOT_CONFIGURED: &str = "Configuration not applied";

/// A node that cannot apply the configuration takes no jobs until it can; one that is drained for another reason stays so.
fn configuration(draft: &mut Draft<'_>, idx: NodeIdx, error: Option<&str>) {
    let Some(node) = draft.node(idx) else {
        return;
    };
    let is_own = |reason: &NodeReason| reason.uid == 0 && reason.text.starts_with(NOT_CONFIGURED);
    let waits = node.drain && node.reason.as_ref().is_some_and(is_own);
    match error {
        Some(error) => {
            let mut text = format!("{NOT_CONFIGURED}: {}", shortened(error));
            make_visible(&mut text);
            drain(draft, idx, text);
        }
        None if waits => change(draft, idx, NodeChange::Undrain),
        None => {}
    }
}

/// Takes a node out of service for new jobs, unless it is already.
fn drain(draft: &mut Draft<'_>, idx: NodeIdx, text: String) {
    if draft.node(idx).is_some_and(|node| !node.drain) {
        let reason = NodeReason {
            text,
            uid: 0,
            since: draft.now,
        };
        change(draft, idx, NodeChange::Drain(reason));
    }
}

fn shortened(text: &str) -> String {
    let most = TEXT_BYTES_MAX / 64;
    text.chars().take(most).collect()
}
