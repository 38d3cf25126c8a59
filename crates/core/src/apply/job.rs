//! The effect of each event on one record of the queue. The same code runs when a decision looks ahead over the
//! events it has made so far (`decide::draft`) and when they are applied.

use crate::event::{Event, JobChange};
use crate::transition::{move_of, next_phase};
use muster_model::ids::{Attempt, JobId, NodeIdx, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{
    AfterCompleting, Allocation, ArrayRole, ExitStatus, GresShare, Hold, Job, JobState, Reason,
    Step, StepEnd,
};
use muster_model::limits::STEP_LINE_BYTES_MAX;
use muster_model::power::PowerUpWait;
use muster_model::spec::JobKind;
use muster_model::time::Timestamp;
use muster_model::visible_text::beginning;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The record that a `JobSubmitted` makes; `None` for another event.
pub(crate) fn submitted(event: &Event) -> Option<Job> {
    let Event::JobSubmitted {
        id,
        spec,
        at,
        priority,
        hold,
        time_limit,
        waiting_on,
        reason,
        partition,
        requeueable,
        het,
    } = event
    else {
        return None;
    };
    let mut job = Job::new(*id, spec.clone(), *time_limit, *at);
    job.priority = *priority;
    job.hold = *hold;
    job.waiting_on = waiting_on.clone();
    job.reason = *reason;
    job.partition = partition.clone();
    job.requeueable = *requeueable;
    job.het = *het;
    job.eligible_time = job.is_startable().then_some(*at);
    Some(job)
}

/// The record that a task gets when it leaves this array's record. Made field by field, so that the indices of
/// the array are not copied.
pub(crate) fn task(job: &Job, id: JobId, index: u32) -> Job {
    Job {
        id,
        spec: job.spec.clone(),
        array: ArrayRole::Task {
            base: job.id,
            index,
        },
        nodes_held: job.nodes_held.clone(),
        alloc: None,
        waiting_on: job.waiting_on.clone(),
        steps: Vec::new(),
        partition: job.partition.clone(),
        reason_detail: job.reason_detail.clone(),
        accrual: (job.accrual.as_ref()).map(|accrual| Box::new(accrual.of_next())),
        unreported_steps: job.unreported_steps.clone(),
        ..*job
    }
}

/// Applies an event about this record.
pub(crate) fn apply_event(job: &mut Job, event: &Event) {
    let before = job.phase();
    let Some(turn) = move_of(job, event) else {
        panic!("job {} is asked to apply {event:?}", job.id);
    };
    let expected = next_phase(before, turn)
        .unwrap_or_else(|| panic!("job {} is {before:?}: {event:?} is impossible", job.id));
    match event {
        Event::TaskSplit { index, id, .. } => split(job, *index, *id),
        Event::JobChanged { change, at, .. } => apply_change(job, change, *at),
        Event::JobStarted {
            attempt,
            at,
            alloc,
            configuring,
            priority,
            ..
        } => {
            start(job, *attempt, *at, alloc);
            job.configuring = *configuring;
            job.priority = priority.unwrap_or(job.priority);
        }
        Event::JobEnding {
            at,
            state,
            reason,
            exit,
            cancelled_by,
            requeue,
            ..
        } => {
            let state = match requeue {
                Some(_) => *state,
                None => ended_for_good(*state),
            };
            end(job, *at, state, *reason, *exit);
            job.cancelled_by = *cancelled_by;
            job.after_completing = match requeue {
                Some(hold) => AfterCompleting::Requeue { hold: *hold },
                None => AfterCompleting::End,
            };
        }
        Event::NodeReleased { position, .. } => {
            job.nodes_held.remove(*position);
            if job.nodes_held.is_empty() && job.after_completing == AfterCompleting::End {
                job.completing = false;
                job.state = ended_for_good(job.state);
            }
        }
        Event::JobRequeued {
            at,
            hold,
            not_before,
            ..
        } => requeue(job, *at, *hold, *not_before),
        Event::JobSuspended {
            at,
            turn,
            by_calendar,
            ..
        } => {
            job.state = JobState::Suspended;
            job.stopped_by_calendar = *by_calendar;
            job.suspend_time = Some(*at);
            job.cpus_released_by_preemption = turn.is_none();
            job.gang_slice_ends = *turn;
        }
        Event::JobResumed { at, .. } => {
            job.state = JobState::Running;
            job.stopped_by_calendar = false;
            end_suspension(job, *at);
            if std::mem::take(&mut job.cpus_released_by_preemption) {
                job.resumed = true;
                job.preempted = None;
            }
            job.gang_slice_ends = None;
        }
        Event::StepStarted { step, .. } => start_step(job, step),
        Event::StepEnded { step, end, .. } => end_step(job, *step, end),
        Event::JobsPurged { .. } => return,
        Event::Configured { .. }
        | Event::BlobStored { .. }
        | Event::JobSubmitted { .. }
        | Event::NodeRegistered { .. }
        | Event::NodeChanged { .. }
        | Event::PartitionChanged { .. }
        | Event::PartitionRemoved { .. }
        | Event::NodesCreated { .. }
        | Event::NodesDeleted { .. }
        | Event::ReservationSet { .. }
        | Event::ReservationStarted { .. }
        | Event::ReservationGone { .. }
        | Event::CrontabSet { .. }
        | Event::TriggersChanged { .. }
        | Event::AccountsChanged { .. }
        | Event::PrioritiesCalculated { .. } => {}
    }
    assert_eq!(
        job.phase(),
        expected,
        "job {} came from {before:?} to a phase that {event:?} does not lead to",
        job.id
    );
}

fn split(job: &mut Job, index: u32, id: JobId) {
    let ArrayRole::Pending { indices } = &mut job.array else {
        panic!(
            "job {} is not an array: task {index} cannot leave it",
            job.id
        );
    };
    assert!(
        indices.remove(index),
        "task {index} is not in the record of array {}",
        job.id
    );
    if indices.is_empty() {
        assert_eq!(
            id, job.id,
            "the last task of array {} takes its record",
            job.id
        );
        job.array = ArrayRole::Task {
            base: job.id,
            index,
        };
    } else {
        assert_ne!(id, job.id, "array {} has tasks left", job.id);
        if let Some(accrual) = &mut job.accrual {
            accrual.take_next();
        }
    }
}

fn apply_change(job: &mut Job, change: &JobChange, at: Timestamp) {
    match change {
        JobChange::Spec(spec) => {
            if spec.ask.switches != job.spec.ask.switches {
                job.switch_wait_since = None;
            }
            if spec.begin != job.spec.begin {
                job.begin_at = spec.begin.filter(|begin| *begin > at);
            }
            if job.state == JobState::Pending && !spec.partitions.contains(&job.partition) {
                job.partition = spec.partitions.first().cloned().unwrap_or_default();
            }
            job.spec = spec.clone();
            job.priority_least = 0;
        }
        JobChange::SpecOf(other) => {
            panic!(
                "job {} cannot have the specification of job {other}: nobody looked that up",
                job.id
            )
        }
        JobChange::Hold { hold, priority } => {
            // A job that has started keeps its priority, and whether that was set.
            let is_kept = *priority > 0 && *priority == job.priority;
            job.hold = *hold;
            job.priority = *priority;
            job.priority_least = 0;
            if *hold == Hold::None {
                // Why the system held it is over.
                job.reason_detail = None;
            }
            let usual = job.default_priority();
            let is_asked_for = job.spec.priority.is_some_and(|p| p > 0);
            if !is_kept {
                job.priority_fixed = *priority > 0 && (*priority != usual || is_asked_for);
            }
        }
        JobChange::TimeLimit(limit) => job.time_limit = *limit,
        JobChange::Priority(priority) => {
            (job.priority, job.priority_fixed) = (*priority, true);
        }
        JobChange::WaitingOn { terms, reason } => {
            job.waiting_on = terms.clone();
            job.reason = *reason;
        }
        JobChange::DependenciesDecided { terms, reason } => {
            // They are in the order of the list.
            let mut decided = terms.iter().peekable();
            let waiting = &mut job.waiting_on;
            waiting.retain(|term| decided.next_if_eq(&term).is_none());
            job.reason = *reason;
        }
        JobChange::Requeueable(requeueable) => job.requeueable = *requeueable,
        JobChange::Warned => job.warned = true,
        JobChange::Eligible => {
            // Why it could not be launched before has been waited for.
            (job.begin_at, job.reason_detail) = (None, None);
        }
        JobChange::TermSent => job.term_time = Some(at),
        JobChange::NotBefore(time) => {
            job.begin_at = job.begin_at.max(Some(*time).filter(|t| *t > at));
        }
        JobChange::SpecialExit(special) => job.special_exit = *special,
        JobChange::Detail(text) => job.reason_detail = Some(text.clone()),
        JobChange::Ready => match job.power_up {
            None => job.configuring = false,
            Some(_) => job.power_up = Some(PowerUpWait::Nodes),
        },
        JobChange::Waking(waking) => job.power_up = Some(*waking),
        JobChange::NodesUp => {
            job.configuring = job.power_up == Some(PowerUpWait::NodesAndProlog);
            job.power_up = None;
            job.start_time = Some(at);
        }
        JobChange::ReservationGone { spec, hold } => {
            job.spec = spec.clone();
            if *hold {
                (job.hold, job.priority) = (Hold::User, 0);
                // A job that can never start keeps that reason, whatever else held it: once released no event would set it again.
                if job.reason != Reason::DependencyNeverSatisfied {
                    job.reason = Reason::ReservationDeleted;
                }
            }
        }
        JobChange::EndBy(at) => job.end_by = *at,
        JobChange::Resized(alloc) => resize(job, alloc, at),
        JobChange::StepLimit { step, limit } => {
            if let Some(step) = job.steps.iter_mut().find(|s| s.step == *step) {
                let step = Arc::make_mut(step);
                step.time_limit = Some(*limit);
            }
        }
        JobChange::Preempted(how) => job.preempted = Some(*how),
        // Nothing else about its waiting changes.
        JobChange::TurnDue(due) => job.gang_slice_ends = Some(*due),
        JobChange::SwitchWait => {
            job.switch_wait_since = Some(at);
            return;
        }
        JobChange::Accrues(tasks) => {
            let accrual = job.accrual.get_or_insert_default();
            accrual.since.push((at, *tasks));
            return;
        }
    }
    if job.state == JobState::Pending && !job.completing {
        settle_waiting(job, at);
    }
}

/// Sets the reason to wait and the eligible time from what holds a pending job back.
fn settle_waiting(job: &mut Job, at: Timestamp) {
    job.reason = waiting_reason(job);
    if !job.is_startable() {
        (job.eligible_time, job.accrual) = (None, None);
    } else if job.eligible_time.is_none() {
        (job.eligible_time, job.accrual) = (Some(at), None);
    }
}

/// The reason that holds a pending job back before the scheduler is asked, if any.
pub(crate) fn waiting_reason(job: &Job) -> Reason {
    if job.reason == Reason::DependencyNeverSatisfied && !job.waiting_on.is_empty() {
        return Reason::DependencyNeverSatisfied;
    }
    match job.hold {
        Hold::User if job.reason == Reason::ReservationDeleted => {
            return Reason::ReservationDeleted;
        }
        Hold::User => return Reason::JobHeldUser,
        Hold::Admin => return Reason::JobHeldAdmin,
        Hold::None => {}
    }
    if !job.waiting_on.is_empty() {
        Reason::Dependency
    } else if job.begin_at.is_none() {
        Reason::None
    } else if job.reason == Reason::LaunchBackoff {
        Reason::LaunchBackoff
    } else {
        Reason::BeginTime
    }
}

fn start(job: &mut Job, attempt: Attempt, at: Timestamp, alloc: &Arc<Allocation>) {
    assert!(job.is_startable(), "job {} may not start", job.id);
    assert!(
        !matches!(job.array, ArrayRole::Pending { .. }),
        "a task of array {} starts without having left it",
        job.id
    );
    job.state = JobState::Running;
    job.reason = Reason::None;
    job.reason_detail = None;
    job.attempt = attempt;
    job.preempted = None;
    job.cpus_released_by_preemption = false;
    job.gang_slice_ends = None;
    job.stopped_by_calendar = false;
    job.resumed = false;
    job.start_time = Some(at);
    job.end_time = None;
    job.term_time = None;
    job.suspend_time = None;
    job.suspended_ms = 0;
    job.resize_time = None;
    job.nodes_held = (0..u32::try_from(alloc.nodes.len()).unwrap_or(u32::MAX)).collect();
    job.partition = alloc.partition.clone();
    job.end_by = alloc.end_by;
    job.alloc = Some(alloc.clone());
    job.exit = ExitStatus::default();
    job.derived_exit = ExitStatus::default();
    job.cancelled_by = None;
    job.warned = false;
    job.special_exit = false;
    job.expected_start = None;
    job.next_step = 0;
    job.unreported_steps = IndexSet::default();
    job.steps = Vec::new();
    if let (JobKind::Batch, Some(lead)) = (job.spec.kind, alloc.nodes.first()) {
        job.steps.push(Arc::new(Step {
            step: StepNo::BATCH,
            name: "batch".to_owned(),
            hostlist: lead.name.clone(),
            nodes: 1,
            tasks: 1,
            cpus: lead.cpus.len(),
            memory_mib: lead.memory_mib,
            start_time: at,
            stdio: job.spec.stdio.clone(),
            // Tasks of an array share that of their specification.
            submit_line: beginning(&job.spec.submit_line, STEP_LINE_BYTES_MAX).to_owned(),
            time_limit: None,
            distribution: None,
            maker: None,
            devices: GresShare::sums(lead.gres.iter()),
            device_ask: None,
        }));
    }
}

fn resize(job: &mut Job, alloc: &Arc<Allocation>, at: Timestamp) {
    let held: BTreeSet<NodeIdx> = job.held().map(|(share, _)| share.node).collect();
    job.nodes_held = (0u32..)
        .zip(&alloc.nodes)
        .filter(|(_, share)| held.contains(&share.node))
        .map(|(position, _)| position)
        .collect();
    job.alloc = Some(alloc.clone());
    job.resize_time = Some(at);
    job.resizes += 1;
}

fn end(job: &mut Job, at: Timestamp, state: JobState, reason: Reason, exit: ExitStatus) {
    end_suspension(job, at);
    job.state = state;
    job.reason = reason;
    job.exit = exit;
    job.end_time = Some(at);
    job.term_time = Some(at);
    job.completing = !job.nodes_held.is_empty();
    job.waiting_on = Vec::new();
    job.begin_at = None;
    job.switch_wait_since = None;
    job.expected_start = None;
    job.power_up = None;
}

/// The state of a job that does not come back. Journals and snapshots may have another one, of entries of crontabs that were
/// replaced while such an entry was on its way back to the queue: these are cancelled.
fn ended_for_good(state: JobState) -> JobState {
    match state.is_ended() {
        true => state,
        false => JobState::Cancelled,
    }
}

/// Whether something else than its own end ended it.
fn was_stopped(job: &Job) -> bool {
    matches!(
        job.state,
        JobState::Cancelled
            | JobState::Timeout
            | JobState::Deadline
            | JobState::Preempted
            | JobState::NodeFail
    )
}

/// Adds the time for which a job was suspended: at least a millisecond, also where the clock was set back, since nodes that
/// connect are ordered to resume each job that was ever suspended.
fn end_suspension(job: &mut Job, at: Timestamp) {
    if let Some(since) = job.suspend_time.take() {
        let suspended_ms = at.since_ms(since).max(1);
        job.suspended_ms = job.suspended_ms.saturating_add(suspended_ms);
    }
}

fn requeue(job: &mut Job, at: Timestamp, hold: Hold, not_before: Option<Timestamp>) {
    // A launch that failed is not the user's affair: the script sees no restart.
    let unseen = job.reason == Reason::JobLaunchFailure;
    if !unseen {
        job.restarts = job.restarts.saturating_add(1);
    }
    job.state = JobState::Pending;
    job.completing = false;
    job.after_completing = AfterCompleting::End;
    job.hold = hold;
    job.alloc = None;
    job.cpus_released_by_preemption = false;
    job.gang_slice_ends = None;
    job.stopped_by_calendar = false;
    job.start_time = None;
    job.end_time = None;
    job.term_time = None;
    job.suspended_ms = 0;
    job.exit = ExitStatus::default();
    job.derived_exit = ExitStatus::default();
    job.cancelled_by = None;
    job.warned = false;
    job.steps = Vec::new();
    job.eligible_time = None;
    job.end_by = None;
    job.begin_at = not_before.filter(|time| *time > at);
    job.priority_least = 0;
    job.priority = match hold {
        Hold::User | Hold::Admin => 0,
        Hold::None if job.priority == 0 => job.default_priority(),
        Hold::None => job.priority,
    };
    job.reason = if unseen {
        Reason::LaunchBackoff
    } else {
        Reason::None
    };
    settle_waiting(job, at);
}

fn start_step(job: &mut Job, step: &Arc<Step>) {
    assert!(
        job.steps.iter().all(|s| s.step != step.step),
        "step {}.{} runs already",
        job.id,
        step.step
    );
    if step.step < StepNo::INTERACTIVE {
        let no = step.step.0;
        job.unreported_steps.remove(no);
        // Several are made at a time, and some are ready before others.
        if let Some(last) = no.checked_sub(1) {
            job.unreported_steps.insert_range(job.next_step, last);
        }
        job.next_step = job.next_step.max(no + 1);
    }
    job.steps.push(Arc::clone(step));
}

fn end_step(job: &mut Job, step: StepNo, end: &StepEnd) {
    job.steps.retain(|s| s.step != step);
    if step == StepNo::BATCH {
        // The script of a job that was ordered to end: its status is shown, the accounting row keeps the first one.
        if job.state.is_ended() {
            job.exit = end.exit;
        }
    } else if step < StepNo::INTERACTIVE && !was_stopped(job) {
        // Steps that ended with the job do not count for its derived exit status.
        job.derived_exit = job.derived_exit.max(end.exit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::job::Phase;
    use muster_model::spec::JobSpec;
    use muster_model::time::TimeLimit;

    /// As a snapshot of before may have it.
    #[test]
    fn a_job_that_completes_in_no_state_of_an_end_is_cancelled() {
        let (spec, at) = (Arc::new(JobSpec::default()), Timestamp(1));
        let mut job = Job::single(JobId(1), spec, TimeLimit::Unlimited, at);
        (job.state, job.completing) = (JobState::Pending, true);
        job.nodes_held.insert(0);
        assert_eq!(job.phase(), Phase::Completing);
        let (id, position) = (job.id, 0);
        apply_event(&mut job, &Event::NodeReleased { id, position, at });
        assert_eq!(job.phase(), Phase::Ended);
        assert_eq!(job.state, JobState::Cancelled);
    }
}
