//! Jobs on this node as the agent knows them, the controller's orders about them, and what the shim tells of them.

use super::controller::Sealed;
use super::step_node::Listening;
use super::{Agent, ShimOutlet};
use muster_model::effect::TerminateReason;
use muster_model::ids::StepNo;
use muster_model::job::{ExitStatus, JobState, StepEnd};
use muster_node_core::job_table::Job;
use muster_node_core::messages::{JobAttempt, KnownJob, LauncherCommand, LauncherEvent};
use muster_proto::node::{JobGrant, Order, Report};
use std::rc::Rc;

/// A wait status as Slurm shows it.
pub(crate) fn exit_status(status: i32) -> ExitStatus {
    let bits = status.unsigned_abs();
    ExitStatus {
        code: (bits >> 8) & 0xff,
        signal: bits & 0x7f,
    }
}

impl Agent {
    pub(super) fn shim_up(&mut self, outlet: ShimOutlet) {
        self.shim = Some(outlet);
        self.synced = false;
        self.to_shim.clear();
        self.daemons.retire();
    }

    pub(super) fn shim_said(&mut self, message: LauncherEvent) {
        // What has ended before is known before.
        if let LauncherEvent::BatchEnded { run, .. }
        | LauncherEvent::Vanished(run)
        | LauncherEvent::Released(run)
        | LauncherEvent::StepEnded { run, .. } = message
        {
            self.receive_from_daemons_of(run);
        }
        match message {
            LauncherEvent::State(known) => self.sync(known),
            LauncherEvent::SessionKey(key) => self.greet(key),
            LauncherEvent::SessionBegun(error) => self.session_begun(error),
            LauncherEvent::SessionFailed(error) => {
                log::error!(
                    "the shim refuses orders, the connection to the controller is closed: {error}"
                );
                self.leave_controller();
            }
            LauncherEvent::BatchEnded {
                run,
                status,
                mut usage,
                end,
            } => {
                let exit = exit_status(status);
                usage.set_node(&self.options.name);
                let mut end = StepEnd {
                    end_time: end,
                    exit,
                    state: end_state(exit),
                    usage,
                    cancelled_by: None,
                };
                let oom = self.add_samples(run, StepNo::BATCH, &mut end);
                let report = Report::BatchEnded {
                    exit: end.exit,
                    oom,
                    end: Box::new(end),
                };
                self.conclude(run, report);
            }
            LauncherEvent::LaunchFailed {
                run,
                error,
                node_fault,
                prolog,
                lack,
            } => self.conclude(
                run,
                Report::LaunchFailed {
                    error,
                    node_fault,
                    prolog,
                    lack,
                },
            ),
            LauncherEvent::NodeFault { run, error } => {
                self.reports
                    .push(run.job, run.attempt, Report::NodeFault { error });
            }
            LauncherEvent::Vanished(run) => self.conclude(run, Report::Vanished),
            LauncherEvent::Released(run) => self.released(run),
            LauncherEvent::StepReady {
                run,
                step,
                socket,
                wire,
                direct,
                pid,
            } => {
                let place = (pid, format!("unix:{socket}"));
                self.daemons.ready((run, step), place);
                let listening = Listening {
                    address: format!("unix:{socket}"),
                    wire,
                    direct,
                };
                self.stepd_started(run, step, Ok(listening));
            }
            LauncherEvent::StepFailed { run, step, error } => {
                self.stepd_started(run, step, Err(error));
            }
            LauncherEvent::StepEnded { run, step, end } => self.stepd_ended(run, step, *end),
            LauncherEvent::Processes { tag, list } => self.inspected(tag, list),
            LauncherEvent::Measured { tag, tasks } => self.shim_measured(tag, tasks),
            LauncherEvent::StepFound { run, step, kept } => {
                log::info!(
                    "step {}.{step} runs, or has run, and was on no file",
                    run.job
                );
                self.adopt_steps(run, kept);
            }
            // The connection has taken them.
            LauncherEvent::Greeting(_) | LauncherEvent::Refused(_) => {}
            LauncherEvent::Busy(_) => {}
        }
    }

    /// Compares what the shim knows with what the agent knows. After an agent's restart the former is all there
    /// is. Launches that a lost shim never began are forgotten: the controller repeats them when it is greeted.
    fn sync(&mut self, known: Vec<KnownJob>) {
        let unknown = self.daemons.beyond(&known);
        let steps_of = |k: &KnownJob| {
            k.steps
                .iter()
                .map(|step| (k.run, *step))
                .collect::<Vec<_>>()
        };
        let known_steps = known.iter().flat_map(steps_of).collect();
        let missing: Vec<JobAttempt> = self
            .jobs
            .iter()
            .filter(|(run, j)| !j.released && !known.iter().any(|k| k.run == *run))
            .map(|(run, _)| run)
            .collect();
        for k in known {
            self.adopt(k);
        }
        self.synced = true;
        for (run, step, pid) in unknown {
            self.shim_order(&LauncherCommand::StepAssigned { run, step, pid });
        }
        self.repeat_starts(&known_steps);
        for run in missing {
            let leaving = self.jobs.get(run).is_some_and(Job::is_leaving);
            if leaving {
                // It was ordered to end before it began, or did not begin: there is nothing of it.
                self.released(run);
            } else {
                self.refuse_waiting_steps(run);
                self.jobs.remove(run);
                self.forget_steps(run);
            }
        }
        self.open_sessions();
    }

    fn adopt(&mut self, known: KnownJob) {
        let run = known.run;
        let job = self.jobs.entry(run);
        if let (None, Some(bytes)) = (&job.grant, &known.grant) {
            match minicbor::decode(bytes) {
                Ok(grant) => job.grant = Some(Rc::new(grant)),
                Err(e) => log::error!("job {}: its grant cannot be read back: {e}", run.job),
            }
        }
        self.adopt_steps(run, known.kept);
        self.keep_steps(run);
    }

    fn conclude(&mut self, run: JobAttempt, report: Report) {
        let Some(job) = self.jobs.get_mut(run) else {
            return;
        };
        if !std::mem::replace(&mut job.concluded, true) {
            self.reports.push(run.job, run.attempt, report);
        }
        self.jobs.leaves(run);
        self.refuse_waiting_steps(run);
    }

    fn released(&mut self, run: JobAttempt) {
        match self.jobs.get_mut(run) {
            Some(job) if job.released => {}
            Some(job) => {
                job.released = true;
                self.jobs.has_left(run);
                self.forget_samples(run);
                self.reports.push(run.job, run.attempt, Report::Released);
                self.refuse_waiting_steps(run);
            }
            None => self.reports.push(run.job, run.attempt, Report::Released),
        }
    }

    /// Orders of the controller. The shim carries them out: it gets them as they were sealed, before anything that follows
    /// from them here.
    pub(super) fn ordered(&mut self, sealed: Sealed) {
        if !self.synced || self.controller.is_none() {
            // They are of a connection that is given up.
            return;
        }
        let Sealed {
            orders,
            bytes,
            launcher_seal,
        } = sealed;
        self.shim_order(&LauncherCommand::Sealed {
            orders: bytes,
            seal: launcher_seal,
        });
        if let Some(settings) = orders.settings {
            self.apply_settings(*settings);
        }
        for order in orders.orders {
            match order {
                Order::Launch(grant) => self.launch(&Rc::new(*grant)),
                Order::Terminate {
                    job, attempt, why, ..
                } => self.terminate(JobAttempt::new(job, attempt), why),
                Order::Signal { .. }
                | Order::StepLimit { .. }
                | Order::Tell { .. }
                | Order::Reboot => {}
            }
        }
    }

    /// The node is part of a job now. An attempt that is known, or older than one that is, has been launched.
    fn launch(&mut self, grant: &Rc<JobGrant>) {
        let run = JobAttempt::new(grant.job, grant.attempt);
        if let Some(known) = self.jobs.get_mut(run) {
            // A job that was made smaller has less from now on.
            let had = known.grant.as_ref();
            if had.is_none_or(|had| had.resizes < grant.resizes) {
                known.grant = Some(Rc::clone(grant));
                self.steps_may_fit();
                self.grant_came(grant.job);
            }
            return;
        }
        if self
            .jobs
            .latest(run.job)
            .is_some_and(|(known, _)| known > run)
        {
            return;
        }
        self.jobs.entry(run).grant = Some(Rc::clone(grant));
        self.sample_from_now(grant);
        self.grant_came(grant.job);
    }

    /// The controller ends a job. One that is not known is not known to the shim either, which says so.
    fn terminate(&mut self, run: JobAttempt, why: TerminateReason) {
        let Some(job) = self.jobs.get_mut(run).filter(|j| !j.released) else {
            return;
        };
        // The end of a job that is over is no cancellation of its steps.
        job.ending |= why != TerminateReason::Finished;
        job.terminated = true;
        self.jobs.leaves(run);
        self.refuse_waiting_steps(run);
    }

    /// The controller has made reports durable: what they were about may be forgotten.
    pub(super) fn acknowledged(&mut self, seq: u64) {
        let known = self.reports.acknowledge(seq);
        // Steps may have waited for that.
        self.steps_may_fit();
        for report in known {
            let run = JobAttempt::new(report.job, report.attempt);
            match report.report {
                Report::Released => {
                    if self.jobs.remove(run).is_some() {
                        self.forget_steps(run);
                    }
                    self.shim_order(&LauncherCommand::Forget(run));
                }
                Report::StepEnded { step, .. } => self.step_acknowledged(run, step),
                // Whatever ends a job here is followed by its release: what may have survived it is killed first.
                Report::BatchEnded { .. }
                | Report::LaunchFailed { .. }
                | Report::NodeFault { .. }
                | Report::Vanished
                | Report::StepStarted(_) => {}
            }
        }
    }
}

/// Slurm's state for the end of a script or step: whom a signal ended was cancelled, by any sender.
pub(super) fn end_state(exit: ExitStatus) -> JobState {
    if exit.is_ok() {
        JobState::Completed
    } else if exit.signal != 0 {
        JobState::Cancelled
    } else {
        JobState::Failed
    }
}
