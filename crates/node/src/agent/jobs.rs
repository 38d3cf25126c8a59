//! Jobs on this node as the agent knows them, the controller's orders about them, and what the shim tells of them.

use super::launch::Failure;
use super::step_node::Listening;
use super::table::Job;
use super::{Agent, Event, ShimOutlet, launch};
use crate::shim::wire::{FromShim, Known, Run, ToShim};
use crate::{now, sys};
use muster_core::command::SignalScope;
use muster_core::effect::TerminateReason;
use muster_core::ids::{BlobId, StepNo};
use muster_core::job::{ExitStatus, JobState, StepEnd};
use muster_core::spec::JobKind;
use muster_proto::node::{JobGrant, Order, Orders, Report};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// A wait status as Slurm shows it.
pub(crate) fn exit_status(status: i32) -> ExitStatus {
    let bits = status.unsigned_abs();
    ExitStatus {
        code: (bits >> 8) & 0xff,
        signal: bits & 0x7f,
    }
}

/// Wait before a launch is tried again that lacked something, as descriptors.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How often it is, before the node is at fault.
const TRIES_MAX: u32 = 60;

impl Agent {
    pub(super) fn shim_up(&mut self, outlet: ShimOutlet) {
        self.shim = Some(outlet);
        self.synced = false;
        self.to_shim.clear();
        self.daemons.retire();
        self.steps.none_stands();
        self.shim_contexts.clear();
        self.shim_order(&ToShim::Attach {
            node: self.options.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        self.tell_waits();
    }

    pub(super) fn shim_said(&mut self, message: FromShim) {
        // What has ended before is known before.
        if let FromShim::BatchEnded { run, .. }
        | FromShim::Vanished(run)
        | FromShim::Released(run)
        | FromShim::StepEnded { run, .. } = message
        {
            self.hear_daemons_of(run);
        }
        match message {
            FromShim::State(known) => self.sync(known),
            FromShim::BatchEnded {
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
            FromShim::LaunchFailed {
                run,
                error,
                node_fault,
                prolog,
            } => self.conclude(
                run,
                Report::LaunchFailed {
                    error,
                    node_fault,
                    prolog,
                },
            ),
            FromShim::NodeFault { run, error } => {
                self.reports.push(run.0, run.1, Report::NodeFault { error });
            }
            FromShim::Vanished(run) => self.conclude(run, Report::Vanished),
            FromShim::Released(run) => self.released(run),
            FromShim::StepReady {
                run,
                step,
                socket,
                wire,
                direct,
                pid,
                may_stand,
            } => {
                let place = (pid, format!("unix:{socket}"));
                self.daemons.ready((run, step), place, may_stand);
                let listening = Listening {
                    address: format!("unix:{socket}"),
                    wire,
                    direct,
                };
                self.stepd_started(run, step, Ok(listening));
            }
            FromShim::StepFailed { run, step, error } => {
                self.stepd_started(run, step, Err(error));
            }
            FromShim::StepEnded { run, step, end } => self.stepd_ended(run, step, *end),
            FromShim::StepTaken(running) => self.step_taken(&running, None),
            FromShim::Processes { tag, list } => self.inspected(tag, list),
            FromShim::StepFound { run, step, kept } => {
                log::info!("step {}.{step} runs, or has run, and was on no file", run.0);
                self.adopt_steps(run, kept);
            }
            FromShim::Busy(_) => {}
        }
    }

    /// Compares what the shim knows with what the agent knows. After an agent's restart the former is all there
    /// is; after a shim's, the latter gives grants back, and launches that the lost shim never began are repeated.
    fn sync(&mut self, known: Vec<Known>) {
        let unknown = self.daemons.beyond(&known);
        let missing: Vec<Run> = self
            .jobs
            .iter()
            .filter(|(run, j)| !j.released && !j.queued && !known.iter().any(|k| k.run == *run))
            .map(|(run, _)| run)
            .collect();
        for k in known {
            self.adopt(k);
        }
        self.synced = true;
        for (run, step, pid) in unknown {
            self.shim_order(&ToShim::StepGiven {
                run,
                step,
                pid,
                stands: false,
            });
        }
        self.shim_missed_starts();
        for run in missing {
            let leaving = self.jobs.get(run).is_some_and(Job::is_leaving);
            if leaving {
                // It was told to end before it began, or did not begin: there is nothing of it.
                self.released(run);
            } else if let Some(grant) = self.jobs.remove(run).and_then(|j| j.grant) {
                self.launch(&grant);
            }
        }
        self.drop_unused_scripts();
        self.greet();
        for orders in std::mem::take(&mut self.waiting) {
            self.ordered(orders);
        }
    }

    /// Removes scripts that no job here runs.
    pub(super) fn drop_unused_scripts(&mut self) {
        let used = self.jobs.iter().filter_map(|(_, j)| {
            let spec = &j.grant.as_ref()?.spec;
            Some((spec.script?, spec.owner.uid))
        });
        self.scripts.keep_only(&used.collect());
    }

    fn adopt(&mut self, known: Known) {
        let run = known.run;
        let job = self.jobs.entry(run);
        match (&job.grant, &known.grant) {
            (None, Some(bytes)) => match minicbor::decode(bytes) {
                Ok(grant) => job.grant = Some(Rc::new(grant)),
                Err(e) => log::error!("job {}: its grant cannot be read back: {e}", run.0),
            },
            (Some(grant), None) => {
                let order = launch::hold(grant, None);
                self.shim_order(&order);
            }
            _ => {}
        }
        self.adopt_steps(run, known.kept);
        self.keep_steps(run);
        self.order_termination(run);
    }

    fn conclude(&mut self, run: Run, report: Report) {
        let Some(job) = self.jobs.get_mut(run) else {
            return;
        };
        if !std::mem::replace(&mut job.concluded, true) {
            self.reports.push(run.0, run.1, report);
        }
        self.jobs.leaves(run);
        self.refuse_waiting_steps(run);
    }

    fn released(&mut self, run: Run) {
        match self.jobs.get_mut(run) {
            Some(job) if job.released => {}
            Some(job) => {
                job.released = true;
                self.jobs.has_left(run);
                self.forget_samples(run);
                self.reports.push(run.0, run.1, Report::Released);
                self.refuse_waiting_steps(run);
                self.launch_queued();
            }
            None => self.reports.push(run.0, run.1, Report::Released),
        }
    }

    pub(super) fn ordered(&mut self, orders: Orders) {
        if !self.synced {
            self.waiting.push(orders);
            return;
        }
        for (id, bytes) in orders.blobs {
            self.blobs.insert(id, Rc::new(bytes.into()));
        }
        for order in orders.orders {
            match order {
                Order::Launch(grant) => self.launch(&Rc::new(*grant)),
                Order::Terminate {
                    job,
                    attempt,
                    now,
                    why,
                } => self.terminate((job, attempt), now, why),
                Order::Signal {
                    job,
                    attempt,
                    step,
                    signal,
                    scope,
                } => self.signal((job, attempt), step, signal, scope),
                Order::StepLimit {
                    job,
                    attempt,
                    step,
                    limit,
                } => self.shim_order(&ToShim::StepLimit {
                    run: (job, attempt),
                    step,
                    seconds: limit.seconds(),
                }),
                Order::Tell { job, attempt, text } => {
                    let run = (job, attempt);
                    self.shim_order(&ToShim::Tell {
                        run,
                        text,
                        step: None,
                        kill: false,
                    });
                }
                Order::Reboot => self.reboot(),
            }
        }
        for id in orders.drop_blobs {
            self.blobs.remove(&id);
            self.contexts.remove(id);
            self.drop_script(id);
            if self.shim_contexts.remove(&id) {
                self.shim_order(&ToShim::DropContext(id));
            }
        }
    }

    /// Removes a script that the controller does not refer to any more, once no job here runs it.
    fn drop_script(&mut self, id: BlobId) {
        let runs = |j: &Job| j.grant.as_ref().is_some_and(|g| g.spec.script == Some(id));
        if self.jobs.iter().any(|(_, j)| runs(j)) {
            self.stale_scripts.insert(id);
        } else {
            self.scripts.drop_blob(id);
        }
    }

    /// The node is part of a job now. An attempt that is known, or older than one that is, has been launched.
    fn launch(&mut self, grant: &Rc<JobGrant>) {
        let run = (grant.job, grant.attempt);
        if let Some(known) = self.jobs.get_mut(run) {
            // A job that was made smaller has less from now on.
            let had = known.grant.as_ref();
            if had.is_none_or(|had| had.resizes < grant.resizes) {
                known.grant = Some(Rc::clone(grant));
                let order = launch::hold(grant, None);
                self.shim_order(&order);
                self.recall_orders(run);
                self.steps_may_fit();
                self.grant_came(grant.job);
            }
            return;
        }
        if self
            .jobs
            .latest(run.0)
            .is_some_and(|(known, _)| known > run)
        {
            return;
        }
        self.jobs.entry(run).grant = Some(Rc::clone(grant));
        if self.jobs.must_wait(run) {
            log::info!("job {}: what had its share is still being killed", run.0);
            self.jobs.entry(run).queued = true;
            self.queued.push_back(run);
            return;
        }
        self.begin(grant);
    }

    /// Something is gone: launches that waited for its share go on.
    fn launch_queued(&mut self) {
        for run in std::mem::take(&mut self.queued) {
            if self.jobs.must_wait(run) {
                self.queued.push_back(run);
            } else if let Some(job) = self.jobs.get_mut(run).filter(|j| j.queued) {
                job.queued = false;
                let stopped = job.stopped;
                if let Some(grant) = job.grant.clone() {
                    self.begin(&grant);
                }
                if stopped {
                    let stop = libc::SIGSTOP.unsigned_abs();
                    self.signal(run, None, stop, SignalScope::Full);
                }
            }
        }
    }

    /// Begins a launch that waited for something other than its share.
    pub(super) fn begin_delayed(&mut self, run: Run) {
        if !self.delayed.remove(&run) {
            return;
        }
        let Some(job) = self.jobs.get_mut(run).filter(|j| j.queued) else {
            return;
        };
        job.queued = false;
        let stopped = job.stopped;
        if let Some(grant) = job.grant.clone() {
            self.begin(&grant);
        }
        if stopped {
            let stop = libc::SIGSTOP.unsigned_abs();
            self.signal(run, None, stop, SignalScope::Full);
        }
    }

    /// Has a launch wait for [`Agent::begin_delayed`].
    fn delay(&mut self, run: Run) {
        self.jobs.entry(run).queued = true;
        self.delayed.insert(run);
    }

    /// Has a launch tried again soon that lacked something, unless that was done often.
    fn is_tried_again(&mut self, run: Run, error: &str) -> bool {
        let job = self.jobs.entry(run);
        job.tries += 1;
        if job.tries > TRIES_MAX {
            return false;
        }
        if job.tries == 1 {
            log::error!("job {}: {error}; it is tried again", run.0);
        }
        self.delay(run);
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(TRY_AGAIN).await;
            let _ = events.send(Event::LaunchAgain(run));
        });
        true
    }

    fn begin(&mut self, grant: &Rc<JobGrant>) {
        let run = (grant.job, grant.attempt);
        if self.groups_of(&grant.spec.owner).is_none() {
            return self.delay(run);
        }
        let order = if grant.position == 0 && grant.spec.kind == JobKind::Batch {
            self.batch_launch(grant)
        } else {
            self.may_run_as(grant.spec.owner.uid)
                .map(|()| launch::hold(grant, self.around(grant)))
        };
        match order {
            Ok(order) => {
                self.shim_order(&order);
                self.sample_from_now(grant);
            }
            Err(failure) if failure.is_temporary && self.is_tried_again(run, &failure.error) => {
                return;
            }
            Err(Failure {
                error, node_fault, ..
            }) => {
                self.conclude(
                    run,
                    Report::LaunchFailed {
                        error,
                        node_fault,
                        prolog: false,
                    },
                );
                self.released(run);
            }
        }
        self.grant_came(grant.job);
    }

    fn terminate(&mut self, run: Run, at_once: bool, why: TerminateReason) {
        let Some(job) = self.jobs.get_mut(run) else {
            // Never launched here, or forgotten: there is nothing of it.
            return self.reports.push(run.0, run.1, Report::Released);
        };
        if job.released {
            // The report is on its way.
            return;
        }
        if job.queued {
            job.queued = false;
            self.delayed.remove(&run);
            return self.released(run);
        }
        // The end of a job that is over is no cancellation of its steps.
        job.ending |= why != TerminateReason::Finished;
        let message = launch::end_message(why, &sys::local_time(now().unix_s()));
        job.termination = Some((at_once, message));
        self.jobs.leaves(run);
        self.refuse_waiting_steps(run);
        self.order_termination(run);
    }

    fn order_termination(&mut self, run: Run) {
        let job = self.jobs.get(run).filter(|j| !j.released);
        if let Some((now, message)) = job.and_then(|j| j.termination.clone()) {
            self.shim_order(&ToShim::Terminate { run, now, message });
        }
    }

    fn signal(&mut self, run: Run, step: Option<StepNo>, signal: u32, scope: SignalScope) {
        let Ok(signal) = i32::try_from(signal) else {
            return;
        };
        if let Some(job) = self.jobs.get_mut(run).filter(|j| j.queued) {
            job.stopped = match signal {
                libc::SIGSTOP => true,
                libc::SIGCONT => false,
                _ => job.stopped,
            };
            return;
        }
        let signal = match (step, scope, signal) {
            (None, SignalScope::Full, libc::SIGSTOP) => match self.stop_is_told(run) {
                true => libc::SIGTSTP,
                false => signal,
            },
            (None, SignalScope::Full, libc::SIGCONT) => {
                if let Some(job) = self.jobs.get_mut(run) {
                    job.stop_at = None;
                }
                signal
            }
            _ => signal,
        };
        self.shim_order(&ToShim::Signal {
            run,
            step,
            signal,
            scope,
        });
    }

    /// Whether a job that is to be stopped gets a signal first that it can prepare itself at; then it is stopped later.
    fn stop_is_told(&mut self, run: Run) -> bool {
        let grace = Duration::from_secs(self.settings.suspend_grace_s.into());
        let job = self.jobs.get_mut(run).filter(|_| !grace.is_zero());
        let Some(job) = job else {
            return false;
        };
        if job.stop_at.is_none() {
            let at = Instant::now() + grace;
            job.stop_at = Some(at);
            let events = self.events.clone();
            tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                let _ = events.send(Event::StopDue(run));
            });
        }
        true
    }

    /// Stops a job that was told so, unless it goes on by now or was told once more.
    pub(super) fn stop_due(&mut self, run: Run) {
        let due = |at: &mut Instant| *at <= Instant::now();
        let job = self.jobs.get_mut(run).filter(|job| !job.released);
        if job.is_some_and(|job| job.stop_at.take_if(due).is_some()) {
            self.shim_order(&ToShim::Signal {
                run,
                step: None,
                signal: libc::SIGSTOP,
                scope: SignalScope::Full,
            });
        }
    }

    /// The controller has made reports durable: what they were about may be forgotten.
    pub(super) fn acknowledged(&mut self, seq: u64) {
        let known = self.reports.acknowledge(seq);
        // Steps may have waited for that.
        self.steps_may_fit();
        for report in known {
            let run = (report.job, report.attempt);
            match report.report {
                Report::Released => {
                    if let Some(job) = self.jobs.remove(run) {
                        self.forget_steps(run);
                        let script = job.grant.and_then(|g| g.spec.script);
                        if let Some(id) = script.filter(|id| self.stale_scripts.remove(id)) {
                            self.drop_script(id);
                        }
                    }
                    self.shim_order(&ToShim::Forget(run));
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

/// Slurm's state for the end of a script or step: whom a signal ended was cancelled, whoever sent it.
pub(super) fn end_state(exit: ExitStatus) -> JobState {
    if exit.is_ok() {
        JobState::Completed
    } else if exit.signal != 0 {
        JobState::Cancelled
    } else {
        JobState::Failed
    }
}
