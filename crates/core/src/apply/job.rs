//! What each event does to one record of the queue. The same code runs when a decision looks ahead over the events
//! it has made so far (`decide::draft`) and when they are applied.

use crate::event::{Event, JobChange};
use crate::ids::{Attempt, JobId, NodeIdx, StepNo};
use crate::index_set::IndexSet;
use crate::job::{
    AfterCompleting, Allocation, ArrayRole, ExitStatus, Hold, Job, JobState, Reason, Step, StepEnd,
};
use crate::limits::PRIORITY_TOP;
use crate::power::Waking;
use crate::spec::{JobKind, JobSpec};
use crate::time::{TimeLimit, Timestamp};
use crate::transition::next_phase;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Job {
    /// A new record that waits for nothing yet.
    pub fn new(id: JobId, spec: Arc<JobSpec>, time_limit: TimeLimit, at: Timestamp) -> Job {
        let array = match &spec.array {
            Some(array) => ArrayRole::Pending {
                indices: array.indices.clone(),
            },
            None => ArrayRole::None,
        };
        Job {
            id,
            array,
            state: JobState::Pending,
            completing: false,
            reason: Reason::None,
            hold: Hold::None,
            priority: 0,
            submit_time: at,
            eligible_time: None,
            start_time: None,
            end_time: None,
            suspend_time: None,
            suspended_ms: 0,
            restarts: 0,
            attempt: Attempt(0),
            alloc: None,
            nodes_held: Default::default(),
            exit: ExitStatus::default(),
            derived_exit: ExitStatus::default(),
            time_limit,
            waiting_on: Vec::new(),
            steps: Vec::new(),
            after_completing: AfterCompleting::End,
            cancelled_by: None,
            partition: spec.partitions.first().cloned().unwrap_or_default(),
            warned: false,
            term_time: None,
            requeueable: false,
            special_exit: false,
            last_sched_eval: None,
            expected_start: None,
            next_step: 0,
            unreported_steps: IndexSet::default(),
            reason_detail: None,
            begin_at: spec.begin.filter(|begin| *begin > at),
            configuring: false,
            power_up: None,
            end_by: None,
            switch_wait_since: None,
            resize_time: None,
            resizes: 0,
            accrual: None,
            predicted_s: None,
            priority_fixed: spec.priority.is_some_and(|p| p > 0),
            priority_least: 0,
            het: None,
            preempted: None,
            cpus_released_by_preemption: false,
            gang_slice_ends: None,
            resumed: false,
            spec,
        }
    }

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
    pub(crate) fn task(&self, id: JobId, index: u32) -> Job {
        Job {
            id,
            spec: self.spec.clone(),
            array: ArrayRole::Task {
                base: self.id,
                index,
            },
            nodes_held: self.nodes_held.clone(),
            alloc: None,
            waiting_on: self.waiting_on.clone(),
            steps: Vec::new(),
            partition: self.partition.clone(),
            reason_detail: self.reason_detail.clone(),
            accrual: (self.accrual.as_ref()).map(|accrual| Box::new(accrual.of_next())),
            unreported_steps: self.unreported_steps.clone(),
            ..*self
        }
    }

    /// The priority that it has when nobody holds it: as asked for, else less for later submissions. Where run times
    /// are predicted, a job's place is that of a later submission by four times what it is predicted to run, a day at
    /// most: short jobs pass long ones, and none is passed by jobs that are submitted more than a day after it.
    pub fn default_priority(&self) -> u32 {
        let number = u32::try_from(self.submitted_as().0).unwrap_or(u32::MAX);
        let later = match self.predicted_s {
            Some(run_s) => {
                let since_2020 = self.submit_time.unix_s() - 1_577_836_800;
                let submitted = u32::try_from(since_2020.max(0)).unwrap_or(u32::MAX);
                submitted.saturating_add(run_s.saturating_mul(4).min(86_400))
            }
            None => number,
        };
        match self.spec.priority {
            Some(priority) if priority > 0 => priority,
            Some(_) | None => {
                let by_age = i64::from(PRIORITY_TOP.saturating_sub(later));
                let nice = by_age - i64::from(self.spec.nice);
                u32::try_from(nice.clamp(1, i64::from(PRIORITY_TOP))).unwrap_or(1)
            }
        }
    }

    /// Applies an event about this record.
    pub(crate) fn apply(&mut self, event: &Event) {
        let before = self.phase();
        let Some(turn) = self.move_of(event) else {
            panic!("job {} is asked to apply {event:?}", self.id);
        };
        let expected = next_phase(before, turn)
            .unwrap_or_else(|| panic!("job {} is {before:?}: {event:?} is impossible", self.id));
        match event {
            Event::TaskSplit { index, id, .. } => self.split(*index, *id),
            Event::JobChanged { change, at, .. } => self.change(change, *at),
            Event::JobStarted {
                attempt,
                at,
                alloc,
                configuring,
                priority,
                ..
            } => {
                self.start(*attempt, *at, alloc);
                self.configuring = *configuring;
                self.priority = priority.unwrap_or(self.priority);
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
                self.end(*at, *state, *reason, *exit);
                self.cancelled_by = *cancelled_by;
                self.after_completing = match requeue {
                    Some(hold) => AfterCompleting::Requeue { hold: *hold },
                    None => AfterCompleting::End,
                };
            }
            Event::NodeReleased { position, .. } => {
                self.nodes_held.remove(*position);
                if self.nodes_held.is_empty() && self.after_completing == AfterCompleting::End {
                    self.completing = false;
                }
            }
            Event::JobRequeued {
                at,
                hold,
                not_before,
                ..
            } => self.requeue(*at, *hold, *not_before),
            Event::JobSuspended { at, turn, .. } => {
                self.state = JobState::Suspended;
                self.suspend_time = Some(*at);
                self.cpus_released_by_preemption = turn.is_none();
                self.gang_slice_ends = *turn;
            }
            Event::JobResumed { at, .. } => {
                self.state = JobState::Running;
                self.end_suspension(*at);
                if std::mem::take(&mut self.cpus_released_by_preemption) {
                    self.resumed = true;
                    self.preempted = None;
                }
                self.gang_slice_ends = None;
            }
            Event::StepStarted { step, .. } => self.start_step(step),
            Event::StepEnded { step, end, .. } => self.end_step(*step, end),
            Event::JobsPurged { .. } => return,
            Event::Configured { .. }
            | Event::BlobStored { .. }
            | Event::JobSubmitted { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeChanged { .. }
            | Event::PartitionChanged { .. }
            | Event::PartitionRemoved { .. }
            | Event::ReservationSet { .. }
            | Event::ReservationStarted { .. }
            | Event::ReservationGone { .. }
            | Event::AccountsChanged { .. }
            | Event::PrioritiesCalculated { .. } => {}
        }
        assert_eq!(
            self.phase(),
            expected,
            "job {} came from {before:?} to a phase that {event:?} does not lead to",
            self.id
        );
    }

    fn split(&mut self, index: u32, id: JobId) {
        let ArrayRole::Pending { indices } = &mut self.array else {
            panic!("job {} is no array: task {index} cannot leave it", self.id);
        };
        assert!(
            indices.remove(index),
            "task {index} is not in the record of array {}",
            self.id
        );
        if indices.is_empty() {
            assert_eq!(
                id, self.id,
                "the last task of array {} takes its record",
                self.id
            );
            self.array = ArrayRole::Task {
                base: self.id,
                index,
            };
        } else {
            assert_ne!(id, self.id, "array {} has tasks left", self.id);
            if let Some(accrual) = &mut self.accrual {
                accrual.take_next();
            }
        }
    }

    fn change(&mut self, change: &JobChange, at: Timestamp) {
        match change {
            JobChange::Spec(spec) => {
                if spec.ask.switches != self.spec.ask.switches {
                    self.switch_wait_since = None;
                }
                if spec.begin != self.spec.begin {
                    self.begin_at = spec.begin.filter(|begin| *begin > at);
                }
                if self.state == JobState::Pending && !spec.partitions.contains(&self.partition) {
                    self.partition = spec.partitions.first().cloned().unwrap_or_default();
                }
                self.spec = spec.clone();
                self.priority_least = 0;
            }
            JobChange::Hold { hold, priority } => {
                self.hold = *hold;
                self.priority = *priority;
                self.priority_least = 0;
                if *hold == Hold::None {
                    // Why the system held it is over.
                    self.reason_detail = None;
                }
                let usual = self.default_priority();
                self.priority_fixed = *priority > 0
                    && (*priority != usual || self.spec.priority.is_some_and(|p| p > 0));
            }
            JobChange::TimeLimit(limit) => self.time_limit = *limit,
            JobChange::Priority(priority) => {
                (self.priority, self.priority_fixed) = (*priority, true);
            }
            JobChange::WaitingOn { terms, reason } => {
                self.waiting_on = terms.clone();
                self.reason = *reason;
            }
            JobChange::Requeueable(requeueable) => self.requeueable = *requeueable,
            JobChange::Warned => self.warned = true,
            JobChange::Eligible => self.begin_at = None,
            JobChange::TermSent => self.term_time = Some(at),
            JobChange::NotBefore(time) => {
                self.begin_at = self.begin_at.max(Some(*time).filter(|t| *t > at));
            }
            JobChange::SpecialExit(special) => self.special_exit = *special,
            JobChange::Detail(text) => self.reason_detail = Some(text.clone()),
            JobChange::Ready => match self.power_up {
                None => self.configuring = false,
                Some(_) => self.power_up = Some(Waking::Nodes),
            },
            JobChange::Waking(waking) => self.power_up = Some(*waking),
            JobChange::NodesUp => {
                self.configuring = self.power_up == Some(Waking::NodesAndProlog);
                self.power_up = None;
                self.start_time = Some(at);
            }
            JobChange::ReservationGone { spec, hold } => {
                self.spec = spec.clone();
                if *hold {
                    (self.hold, self.priority) = (Hold::User, 0);
                    // What can never start stays so, whatever else held it: once released nothing would tell it again.
                    if self.reason != Reason::DependencyNeverSatisfied {
                        self.reason = Reason::ReservationDeleted;
                    }
                }
            }
            JobChange::EndBy(at) => self.end_by = *at,
            JobChange::Resized(alloc) => self.resize(alloc, at),
            JobChange::StepLimit { step, limit } => {
                if let Some(step) = self.steps.iter_mut().find(|s| s.step == *step) {
                    step.time_limit = Some(*limit);
                }
            }
            JobChange::Preempted(how) => self.preempted = Some(*how),
            // Nothing else about its waiting changes.
            JobChange::TurnDue(due) => self.gang_slice_ends = Some(*due),
            JobChange::SwitchWait => {
                self.switch_wait_since = Some(at);
                return;
            }
            JobChange::Accrues(tasks) => {
                let accrual = self.accrual.get_or_insert_default();
                accrual.since.push((at, *tasks));
                return;
            }
        }
        if self.state == JobState::Pending && !self.completing {
            self.settle_waiting(at);
        }
    }

    /// Sets the reason to wait and the eligible time from what holds a pending job back.
    fn settle_waiting(&mut self, at: Timestamp) {
        self.reason = self.waiting_reason();
        if !self.is_startable() {
            (self.eligible_time, self.accrual) = (None, None);
        } else if self.eligible_time.is_none() {
            (self.eligible_time, self.accrual) = (Some(at), None);
        }
    }

    /// The reason that holds a pending job back before the scheduler is asked, if any.
    pub(crate) fn waiting_reason(&self) -> Reason {
        if self.reason == Reason::DependencyNeverSatisfied && !self.waiting_on.is_empty() {
            return Reason::DependencyNeverSatisfied;
        }
        match self.hold {
            Hold::User if self.reason == Reason::ReservationDeleted => {
                return Reason::ReservationDeleted;
            }
            Hold::User => return Reason::JobHeldUser,
            Hold::Admin => return Reason::JobHeldAdmin,
            Hold::None => {}
        }
        if !self.waiting_on.is_empty() {
            Reason::Dependency
        } else if self.begin_at.is_none() {
            Reason::None
        } else if self.reason == Reason::LaunchBackoff {
            Reason::LaunchBackoff
        } else {
            Reason::BeginTime
        }
    }

    fn start(&mut self, attempt: Attempt, at: Timestamp, alloc: &Arc<Allocation>) {
        assert!(self.is_startable(), "job {} may not start", self.id);
        assert!(
            !matches!(self.array, ArrayRole::Pending { .. }),
            "a task of array {} starts without having left it",
            self.id
        );
        self.state = JobState::Running;
        self.reason = Reason::None;
        self.reason_detail = None;
        self.attempt = attempt;
        self.preempted = None;
        self.cpus_released_by_preemption = false;
        self.gang_slice_ends = None;
        self.resumed = false;
        self.start_time = Some(at);
        self.end_time = None;
        self.term_time = None;
        self.suspend_time = None;
        self.suspended_ms = 0;
        self.resize_time = None;
        self.nodes_held = (0..u32::try_from(alloc.nodes.len()).unwrap_or(u32::MAX)).collect();
        self.partition = alloc.partition.clone();
        self.end_by = alloc.end_by;
        self.alloc = Some(alloc.clone());
        self.exit = ExitStatus::default();
        self.derived_exit = ExitStatus::default();
        self.cancelled_by = None;
        self.warned = false;
        self.special_exit = false;
        self.expected_start = None;
        self.next_step = 0;
        self.unreported_steps = IndexSet::default();
        self.steps = Vec::new();
        if let (JobKind::Batch, Some(lead)) = (self.spec.kind, alloc.nodes.first()) {
            self.steps.push(Step {
                step: StepNo::BATCH,
                name: "batch".to_owned(),
                hostlist: lead.name.clone(),
                nodes: 1,
                tasks: 1,
                cpus: lead.cpus.len(),
                memory_mib: lead.memory_mib,
                start_time: at,
                stdio: self.spec.stdio.clone(),
                submit_line: self.spec.submit_line.clone(),
                time_limit: None,
                distribution: None,
                maker: None,
            });
        }
    }

    fn resize(&mut self, alloc: &Arc<Allocation>, at: Timestamp) {
        let held: BTreeSet<NodeIdx> = self.held().map(|(share, _)| share.node).collect();
        self.nodes_held = (0u32..)
            .zip(&alloc.nodes)
            .filter(|(_, share)| held.contains(&share.node))
            .map(|(position, _)| position)
            .collect();
        self.alloc = Some(alloc.clone());
        self.resize_time = Some(at);
        self.resizes += 1;
    }

    fn end(&mut self, at: Timestamp, state: JobState, reason: Reason, exit: ExitStatus) {
        self.end_suspension(at);
        self.state = state;
        self.reason = reason;
        self.exit = exit;
        self.end_time = Some(at);
        self.term_time = Some(at);
        self.completing = !self.nodes_held.is_empty();
        self.waiting_on = Vec::new();
        self.begin_at = None;
        self.switch_wait_since = None;
        self.expected_start = None;
        self.power_up = None;
    }

    /// Whether something else than its own end ended it.
    fn was_stopped(&self) -> bool {
        matches!(
            self.state,
            JobState::Cancelled
                | JobState::Timeout
                | JobState::Deadline
                | JobState::Preempted
                | JobState::NodeFail
        )
    }

    fn end_suspension(&mut self, at: Timestamp) {
        if let Some(since) = self.suspend_time.take() {
            self.suspended_ms = self.suspended_ms.saturating_add(at.since_ms(since));
        }
    }

    fn requeue(&mut self, at: Timestamp, hold: Hold, not_before: Option<Timestamp>) {
        // A launch that failed is not the user's affair: the script sees no restart.
        let unseen = self.reason == Reason::JobLaunchFailure;
        if !unseen {
            self.restarts = self.restarts.saturating_add(1);
        }
        self.state = JobState::Pending;
        self.completing = false;
        self.after_completing = AfterCompleting::End;
        self.hold = hold;
        self.alloc = None;
        self.cpus_released_by_preemption = false;
        self.gang_slice_ends = None;
        self.start_time = None;
        self.end_time = None;
        self.term_time = None;
        self.suspended_ms = 0;
        self.exit = ExitStatus::default();
        self.derived_exit = ExitStatus::default();
        self.cancelled_by = None;
        self.warned = false;
        self.steps = Vec::new();
        self.eligible_time = None;
        self.end_by = None;
        self.begin_at = not_before.filter(|time| *time > at);
        self.priority_least = 0;
        self.priority = match hold {
            Hold::User | Hold::Admin => 0,
            Hold::None if self.priority == 0 => self.default_priority(),
            Hold::None => self.priority,
        };
        self.reason = if unseen {
            Reason::LaunchBackoff
        } else {
            Reason::None
        };
        self.settle_waiting(at);
    }

    fn start_step(&mut self, step: &Step) {
        assert!(
            self.steps.iter().all(|s| s.step != step.step),
            "step {}.{} runs already",
            self.id,
            step.step
        );
        if step.step < StepNo::INTERACTIVE {
            let no = step.step.0;
            self.unreported_steps.remove(no);
            // Several are made at a time, and some are ready before others.
            if let Some(last) = no.checked_sub(1) {
                self.unreported_steps.insert_range(self.next_step, last);
            }
            self.next_step = self.next_step.max(no + 1);
        }
        self.steps.push(step.clone());
    }

    fn end_step(&mut self, step: StepNo, end: &StepEnd) {
        self.steps.retain(|s| s.step != step);
        if step == StepNo::BATCH {
            // The script of a job that was ordered to end: its status is shown, the accounting row keeps the first one.
            if self.state.is_ended() {
                self.exit = end.exit;
            }
        } else if step < StepNo::INTERACTIVE && !self.was_stopped() {
            // What ended with the job says nothing of how its steps fared.
            self.derived_exit = self.derived_exit.max(end.exit);
        }
    }
}
