//! Jobs on this node: the controller's orders, and the launcher's reports about them.

use super::interface::Timer;
use super::node_steps::Listening;
use super::stepds::{RunningDaemon, StepdEndpoint};
use super::transition::{NodeJobEvent, NodeJobState};
use super::{Agent, Event};
use crate::exit_status::{OUT_OF_MEMORY, exit_status};
use crate::messages::{KnownJob, LauncherCommand, LauncherEvent};
use minicbor::bytes::ByteVec;
use muster_model::command::SignalScope;
use muster_model::effect::TerminateReason;
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_model::job::{ExitStatus, JobState, StepEnd};
use muster_proto::address::Address;
use muster_proto::node::{JobGrant, Order, Orders, Report};
use std::rc::Rc;

/// Time beyond `KillWait`, in which they end at the latest, that the release of a job waits for the ends of its steps
/// on other nodes, milliseconds. They come at once, unless a node is lost.
const RELEASE_WAIT_MS: u64 = 5_000;

impl Agent {
    /// The job whose step daemons may have sent messages that belong before this event.
    pub(super) fn job_to_read_before(&self, event: &Event) -> Option<JobAttempt> {
        match event {
            Event::Launcher(event) => match **event {
                LauncherEvent::BatchEnded { attempt, .. }
                | LauncherEvent::Vanished(attempt)
                | LauncherEvent::Released(attempt)
                | LauncherEvent::StepEnded { attempt, .. } => Some(attempt),
                LauncherEvent::State { .. }
                | LauncherEvent::LaunchFailed { .. }
                | LauncherEvent::StepReady { .. }
                | LauncherEvent::StepFailed { .. }
                | LauncherEvent::Processes { .. }
                | LauncherEvent::Measured { .. }
                | LauncherEvent::Busy(_)
                | LauncherEvent::NodeFault { .. }
                | LauncherEvent::SessionKey(_)
                | LauncherEvent::SessionBegun(_)
                | LauncherEvent::SessionFailed(_)
                | LauncherEvent::Greeting(_)
                | LauncherEvent::Refused(_)
                | LauncherEvent::StepChannel(..)
                | LauncherEvent::StepFound { .. } => None,
            },
            Event::ConnClosed(conn) => self.steps.led.job_of_client(*conn),
            Event::Dialed(_)
            | Event::ControllerAnswered(..)
            | Event::ControllerUp
            | Event::Controller(_)
            | Event::Orders { .. }
            | Event::ControllerLost
            | Event::LauncherUp
            | Event::LauncherLost
            | Event::StepOffered(..)
            | Event::StepdEvents { .. }
            | Event::StepdsRead
            | Event::Request(_)
            | Event::PeerAnswered(..)
            | Event::TimerDue(_)
            | Event::Idle => None,
        }
    }

    pub(super) fn on_launcher_event(&mut self, event: LauncherEvent) {
        match event {
            LauncherEvent::State { jobs, is_last } => self.take_known(jobs, is_last),
            LauncherEvent::SessionKey(key) => self.greet(key),
            LauncherEvent::SessionBegun(error) => self.sessions.begun(&mut self.state.out, error),
            LauncherEvent::SessionFailed(error) => {
                log::error!(
                    "the launcher refuses orders, the connection to the controller is closed: {error}"
                );
                self.state.leave_controller();
            }
            LauncherEvent::BatchEnded {
                attempt,
                status,
                usage,
                end,
                oom_kills,
                last_lines,
            } => {
                let end = StepEnd {
                    end_time: end,
                    exit: exit_status(status),
                    state: end_state(exit_status(status)),
                    usage,
                    cancelled_by: None,
                    last_lines,
                };
                self.batch_ended(attempt, end, oom_kills > 0);
            }
            LauncherEvent::LaunchFailed {
                attempt,
                error,
                node_fault,
                prolog,
                lack,
            } => {
                let report = Report::LaunchFailed {
                    error,
                    node_fault,
                    prolog,
                    lack,
                };
                self.conclude(attempt, report);
            }
            LauncherEvent::NodeFault { attempt, error } => {
                self.state
                    .reports
                    .push(attempt.job, attempt.attempt, Report::NodeFault { error });
            }
            LauncherEvent::Vanished(attempt) => self.conclude(attempt, Report::Vanished),
            LauncherEvent::Released(attempt) => self.released(attempt),
            LauncherEvent::StepReady {
                attempt,
                step,
                socket,
                mesh_address,
                direct,
                pid,
            } => {
                let own = Address::parse(&self.state.node.config.address);
                let address = match own {
                    Some(own) => own.beside(&socket).to_string(),
                    None => format!("unix:{socket}"),
                };
                let listening = Listening {
                    address,
                    mesh_address,
                    direct,
                };
                self.stepd_ready(attempt, step, pid, listening);
            }
            LauncherEvent::StepFailed {
                attempt,
                step,
                error,
            } => {
                self.steps
                    .stepd_started(&mut self.state, attempt, step, Err(error));
            }
            LauncherEvent::StepEnded { attempt, step, end } => {
                self.steps.stepd_ended(&mut self.state, attempt, step, *end)
            }
            LauncherEvent::Processes { tag, list } => {
                self.inspections
                    .answer_processes(&mut self.state.out, tag, list);
            }
            LauncherEvent::Measured { tag, tasks } => self.on_measured(tag, tasks),
            LauncherEvent::StepFound {
                attempt,
                step,
                kept,
            } => {
                log::info!(
                    "step {}.{step} runs, or has run, without a record",
                    attempt.job
                );
                self.steps.adopt_steps(&mut self.state, attempt, kept);
            }
            // The connection has taken them.
            LauncherEvent::Greeting(_)
            | LauncherEvent::Refused(_)
            | LauncherEvent::StepChannel(..) => {}
            LauncherEvent::Busy(_) => {}
        }
    }

    fn stepd_ready(&mut self, attempt: JobAttempt, step: StepNo, pid: i32, listening: Listening) {
        let place = StepdEndpoint {
            pid,
            address: listening.address.clone(),
        };
        self.steps
            .stepds
            .place(AttemptStep::new(attempt, step), place);
        self.steps
            .stepd_started(&mut self.state, attempt, step, Ok(listening));
    }

    fn batch_ended(&mut self, attempt: JobAttempt, mut end: StepEnd, was_killed: bool) {
        end.usage.set_node(&self.state.node.config.name);
        let oom = self
            .steps
            .samples
            .add_samples(&mut self.state, attempt, StepNo::BATCH, &mut end);
        if was_killed {
            end.state = JobState::OutOfMemory;
            end.exit = OUT_OF_MEMORY;
        }
        let report = Report::BatchEnded {
            exit: end.exit,
            oom: oom || was_killed,
            end: Box::new(end),
        };
        self.conclude(attempt, report);
    }

    /// Collects a part of the launcher's list of jobs. The list is processed once it is complete.
    fn take_known(&mut self, jobs: Vec<KnownJob>, is_last: bool) {
        for job in jobs {
            match self.state.known.last_mut() {
                Some(last) if last.attempt == job.attempt => last.add(job),
                _ => self.state.known.push(job),
            }
        }
        if is_last {
            let known = std::mem::take(&mut self.state.known);
            self.sync(known);
        }
    }

    /// Compares the launcher's list with the agent's jobs. After a restart of the agent, the list is all there is.
    /// Launches that a lost launcher never began are forgotten; the controller repeats them after the next greeting.
    fn sync(&mut self, known: Vec<KnownJob>) {
        let unknown = self.steps.stepds.unknown_to(&known);
        let steps_of = |k: &KnownJob| {
            let steps = k
                .steps
                .iter()
                .map(|step| AttemptStep::new(k.attempt, *step));
            steps.collect::<Vec<_>>()
        };
        let known_steps = known.iter().flat_map(steps_of).collect();
        let missing: Vec<JobAttempt> = self
            .state
            .jobs
            .iter()
            .filter(|(attempt, j)| {
                !j.state.has_left() && !known.iter().any(|k| k.attempt == *attempt)
            })
            .map(|(attempt, _)| attempt)
            .collect();
        for k in known {
            self.adopt(k);
        }
        self.state.is_synced = true;
        for RunningDaemon { attempt, step, pid } in unknown {
            self.state
                .out
                .command(LauncherCommand::StepAssigned { attempt, step, pid });
        }
        self.steps.repeat_starts(&mut self.state, &known_steps);
        for attempt in missing {
            let leaving = self
                .state
                .jobs
                .get(attempt)
                .is_some_and(|j| j.state.is_leaving());
            if leaving {
                // The job was ended before it began, or did not begin, so nothing of it remains.
                self.released(attempt);
            } else {
                self.steps.led.refuse_waiting(&mut self.state.out, attempt);
                self.state.jobs.remove(attempt);
                self.steps.forget_steps(&mut self.state, attempt);
            }
        }
        self.sessions.open(&mut self.state.out);
    }

    fn adopt(&mut self, known: KnownJob) {
        let attempt = known.attempt;
        let job = self.state.jobs.entry(attempt);
        if let (None, Some(bytes)) = (&job.grant, &known.grant) {
            match minicbor::decode(bytes) {
                Ok(grant) => job.set_grant(Rc::new(grant)),
                Err(e) => log::error!("job {}: its grant cannot be read back: {e}", attempt.job),
            }
        }
        self.steps.adopt_steps(&mut self.state, attempt, known.kept);
        self.steps.keep_steps(&mut self.state, attempt);
    }

    fn conclude(&mut self, attempt: JobAttempt, report: Report) {
        if self
            .state
            .jobs
            .advance(attempt, NodeJobEvent::Concluded)
            .is_some()
        {
            self.state
                .reports
                .push(attempt.job, attempt.attempt, report);
            self.steps.led.refuse_waiting(&mut self.state.out, attempt);
        }
    }

    fn released(&mut self, attempt: JobAttempt) {
        if self.state.jobs.get(attempt).is_none() {
            return self
                .state
                .reports
                .push(attempt.job, attempt.attempt, Report::Released);
        }
        let event = match self.steps.led.leads_any(attempt) {
            true => NodeJobEvent::LeftBeforeSteps,
            false => NodeJobEvent::Left,
        };
        let Some(next) = self.state.jobs.advance(attempt, event) else {
            return;
        };
        self.steps.samples.forget(attempt);
        self.steps.led.refuse_waiting(&mut self.state.out, attempt);
        if next == NodeJobState::Held {
            let wait_ms = self.release_wait_ms();
            self.state.out.set_timer(Timer::Release(attempt), wait_ms);
        } else {
            self.state
                .reports
                .push(attempt.job, attempt.attempt, Report::Released);
        }
    }

    /// Time that a release waits. KillWait is known once there has been a controller.
    fn release_wait_ms(&self) -> u64 {
        let kill_wait_ms = u64::from(self.state.node.settings.kill_wait_s) * 1000;
        kill_wait_ms.saturating_add(RELEASE_WAIT_MS)
    }

    /// Other nodes have not said in time how their parts of steps ended: the job waits for them no longer. Without a controller,
    /// which would not learn of its release, and soon after there was none, it waits on: what kept the controller away may have
    /// kept them away too.
    pub(super) fn release_wait_over(&mut self, attempt: JobAttempt) {
        let job = self.state.jobs.get(attempt);
        if job.is_none_or(|job| job.state != NodeJobState::Held) {
            return;
        }
        let connected_ms = match self.state.is_controller_up {
            true => (self.state.now.mono_ms).saturating_sub(self.state.controller_up_ms),
            false => 0,
        };
        match self.release_wait_ms().saturating_sub(connected_ms) {
            0 => self.state.jobs.steps_over(&mut self.state.reports, attempt),
            left_ms => self.state.out.set_timer(Timer::Release(attempt), left_ms),
        }
    }

    /// Orders of the controller. The launcher carries them out: it gets them as they were sealed, before anything that follows
    /// from them here.
    pub(super) fn on_orders(&mut self, orders: Orders, bytes: ByteVec, launcher_seal: ByteVec) {
        if !self.state.is_synced || !self.state.is_controller_up {
            // The orders belong to a connection that was given up.
            return;
        }
        self.state.out.command(LauncherCommand::Sealed {
            orders: bytes,
            seal: launcher_seal,
        });
        if let Some(settings) = orders.settings {
            self.state.node.apply(*settings);
            self.steps.samples.sample_all(&mut self.state);
        }
        for order in orders.orders {
            match order {
                Order::Launch(grant) => self.launch(&Rc::new(*grant)),
                Order::Terminate {
                    job, attempt, why, ..
                } => self.terminate(JobAttempt::new(job, attempt), why),
                Order::Signal {
                    job,
                    attempt,
                    step: None,
                    signal,
                    scope: SignalScope::Full,
                    ..
                } => {
                    let attempt = JobAttempt::new(job, attempt);
                    if self.state.jobs.signalled(attempt, signal) {
                        self.steps.led.retry_waiting(attempt);
                    }
                }
                Order::Signal {
                    job,
                    attempt,
                    step: Some(step),
                    cancelled_by: Some(uid),
                    ..
                } => (self.steps.led).cancelled(JobAttempt::new(job, attempt), step, uid),
                Order::Signal { .. }
                | Order::StepLimit { .. }
                | Order::Notify { .. }
                | Order::Reboot => {}
            }
        }
    }

    /// The node is part of a job now. An attempt that is known, or older than one that is, has been launched.
    fn launch(&mut self, grant: &Rc<JobGrant>) {
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        if let Some(known) = self.state.jobs.get_mut(attempt) {
            // A job that was made smaller has less from now on.
            let had = known.grant.as_ref();
            if had.is_none_or(|had| had.resizes < grant.resizes) {
                known.shrink(grant);
                self.steps.led.retry_waiting(attempt);
                self.steps.node_steps.grant_came(grant.job);
                self.steps.start_early(&mut self.state);
            }
            return;
        }
        if self
            .state
            .jobs
            .latest(attempt.job)
            .is_some_and(|(known, _)| known > attempt)
        {
            return;
        }
        self.state.jobs.entry(attempt).set_grant(Rc::clone(grant));
        self.steps.samples.sample_from_now(&mut self.state, grant);
        self.steps.node_steps.grant_came(grant.job);
        self.steps.start_early(&mut self.state);
    }

    /// The controller ends a job. If the agent does not know the job, the launcher does not either, and reports this.
    fn terminate(&mut self, attempt: JobAttempt, why: TerminateReason) {
        let event = match why == TerminateReason::Finished {
            true => NodeJobEvent::OrderedToFinish,
            false => NodeJobEvent::OrderedToEnd,
        };
        if self.state.jobs.advance(attempt, event).is_some() {
            self.steps.led.refuse_waiting(&mut self.state.out, attempt);
        }
    }

    /// The controller has made reports durable, so their subjects may be forgotten.
    pub(super) fn acknowledged(&mut self, seq: u64) {
        let known = self.state.reports.acknowledge(seq);
        self.steps.led.controller_acknowledged();
        for report in known {
            let attempt = JobAttempt::new(report.job, report.attempt);
            match report.report {
                Report::Released => {
                    if self.state.jobs.remove(attempt).is_some() {
                        self.steps.forget_steps(&mut self.state, attempt);
                    }
                    self.state.out.command(LauncherCommand::Forget(attempt));
                }
                Report::StepEnded { step, .. } => {
                    self.steps.step_acknowledged(&mut self.state, attempt, step)
                }
                // After a report that ends a job here, its release follows: processes that may have survived are
                // killed first.
                Report::BatchEnded { .. }
                | Report::LaunchFailed { .. }
                | Report::NodeFault { .. }
                | Report::Vanished
                | Report::StepStarted(_) => {}
            }
        }
    }
}

/// Slurm's state for the end of a script or step: one that a signal ended was cancelled, whatever sent the signal.
fn end_state(exit: ExitStatus) -> JobState {
    if exit.is_ok() {
        JobState::Completed
    } else if exit.signal != 0 {
        JobState::Cancelled
    } else {
        JobState::Failed
    }
}
