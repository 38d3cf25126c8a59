//! Jobs on this node as the agent knows them, the controller's orders about them, and what the shim tells of them.

use super::{Agent, Outlet, launch};
use crate::shim::wire::{FromShim, Known, Run, ToShim};
use crate::{now, sys};
use muster_core::command::SignalScope;
use muster_core::effect::TerminateReason;
use muster_core::ids::{Attempt, BlobId, JobId, StepNo};
use muster_core::job::{ExitStatus, JobState, StepEnd};
use muster_core::spec::JobKind;
use muster_proto::node::{JobGrant, Order, Orders, Report};
use std::rc::Rc;

/// A job here.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Which launch.
    pub(super) attempt: Attempt,
    /// Its share; absent when agent and shim were lost together.
    pub(super) grant: Option<Rc<JobGrant>>,
    /// It was told to end, other than because it is over.
    pub(super) ending: bool,
    /// The latest order to end it, given again to a shim that may have missed it: whether at once, and the message.
    termination: Option<(bool, Option<String>)>,
    /// The end of its script, or its failure to start, is in the reports.
    concluded: bool,
    /// So is its release.
    released: bool,
}

impl Job {
    /// Whether this node leads it.
    pub(super) fn leads(&self) -> bool {
        self.grant.as_ref().is_some_and(|g| g.position == 0)
    }

    /// Whether steps may still be made.
    pub(super) fn is_over(&self) -> bool {
        self.ending || self.concluded || self.released
    }
}

/// A wait status as Slurm shows it.
pub(crate) fn exit_status(status: i32) -> ExitStatus {
    let bits = status.unsigned_abs();
    ExitStatus {
        code: (bits >> 8) & 0xff,
        signal: bits & 0x7f,
    }
}

impl Agent {
    pub(super) fn shim_up(&mut self, outlet: Outlet) {
        self.shim = Some(outlet);
        self.synced = false;
        self.to_shim.clear();
        self.shim_contexts.clear();
        self.shim_order(&ToShim::Attach {
            node: self.options.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        self.tell_kill_wait();
    }

    pub(super) fn shim_said(&mut self, message: FromShim) {
        match message {
            FromShim::State(known) => self.sync(known),
            FromShim::BatchEnded {
                run,
                status,
                mut usage,
                end,
            } => {
                let exit = exit_status(status);
                usage.max_rss_node.clone_from(&self.options.name);
                let ending = self.jobs.get(&run.0).is_some_and(|j| j.ending);
                let end = StepEnd {
                    end_time: end,
                    exit,
                    state: end_state(exit, ending),
                    usage,
                    cancelled_by: None,
                };
                let report = Report::BatchEnded {
                    exit,
                    oom: false,
                    end: Box::new(end),
                };
                self.conclude(run, report);
            }
            FromShim::LaunchFailed {
                run,
                error,
                node_fault,
            } => self.conclude(run, Report::LaunchFailed { error, node_fault }),
            FromShim::Vanished(run) => self.conclude(run, Report::Vanished),
            FromShim::Released(run) => self.released(run),
            FromShim::StepReady { run, step, socket } => {
                self.stepd_started(run, step, Ok(format!("unix:{socket}")));
            }
            FromShim::StepFailed { run, step, error } => {
                self.stepd_started(run, step, Err(error));
            }
            FromShim::StepEnded { run, step, end } => self.stepd_ended(run, step, *end),
            FromShim::Processes { tag, list } => self.inspected(tag, list),
            FromShim::Busy(_) => {}
        }
    }

    /// Compares what the shim knows with what the agent knows. After an agent's restart the former is all there
    /// is; after a shim's, the latter gives grants back, and launches that the lost shim never began are repeated.
    fn sync(&mut self, known: Vec<Known>) {
        let mut missing: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(id, j)| !j.released && !known.iter().any(|k| k.run == (**id, j.attempt)))
            .map(|(id, _)| *id)
            .collect();
        for k in known {
            self.adopt(k);
        }
        self.synced = true;
        self.shim_missed_starts();
        missing.sort_unstable();
        for id in missing {
            if let Some(grant) = self.jobs.remove(&id).and_then(|j| j.grant) {
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
        let used = self.jobs.values().filter_map(|j| {
            let spec = &j.grant.as_ref()?.spec;
            Some((spec.script?, spec.owner.uid))
        });
        self.scripts.keep_only(&used.collect());
    }

    fn adopt(&mut self, known: Known) {
        let (id, attempt) = known.run;
        if self.jobs.get(&id).is_some_and(|j| j.attempt > attempt) {
            return;
        }
        let job = self.jobs.entry(id).or_default();
        job.attempt = attempt;
        match (&job.grant, &known.grant) {
            (None, Some(bytes)) => match minicbor::decode(bytes) {
                Ok(grant) => job.grant = Some(Rc::new(grant)),
                Err(e) => log::error!("job {id}: its grant cannot be read back: {e}"),
            },
            (Some(grant), None) => {
                let order = launch::hold(grant);
                self.shim_order(&order);
            }
            _ => {}
        }
        let run = known.run;
        self.adopt_steps(known);
        self.keep_steps(run);
        self.order_termination(run);
    }

    fn conclude(&mut self, run: Run, report: Report) {
        let Some(job) = self.jobs.get_mut(&run.0).filter(|j| j.attempt == run.1) else {
            return;
        };
        if !std::mem::replace(&mut job.concluded, true) {
            self.reports.push(run.0, run.1, report);
        }
        self.refuse_waiting_steps(run.0);
    }

    fn released(&mut self, run: Run) {
        match self.jobs.get_mut(&run.0).filter(|j| j.attempt == run.1) {
            Some(job) if job.released => {}
            Some(job) => {
                job.released = true;
                self.reports.push(run.0, run.1, Report::Released);
                self.refuse_waiting_steps(run.0);
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
        if self.jobs.values().any(runs) {
            self.stale_scripts.insert(id);
        } else {
            self.scripts.drop_blob(id);
        }
    }

    /// The node is part of a job now. An attempt that is known, or older than one that is, has been launched.
    fn launch(&mut self, grant: &Rc<JobGrant>) {
        if let Some(known) = self.jobs.get_mut(&grant.job)
            && known.attempt >= grant.attempt
        {
            if known.grant.is_none() && known.attempt == grant.attempt {
                known.grant = Some(Rc::clone(grant));
                let order = launch::hold(grant);
                self.shim_order(&order);
            }
            return;
        }
        let job = Job {
            attempt: grant.attempt,
            grant: Some(Rc::clone(grant)),
            ..Job::default()
        };
        self.jobs.insert(grant.job, job);
        let run = (grant.job, grant.attempt);
        let order = if grant.position == 0 && grant.spec.kind == JobKind::Batch {
            self.batch_launch(grant)
        } else {
            launch::may_run_as(grant.spec.owner.uid).map(|()| launch::hold(grant))
        };
        match order {
            Ok(order) => self.shim_order(&order),
            Err((error, node_fault)) => {
                self.conclude(run, Report::LaunchFailed { error, node_fault });
                self.released(run);
            }
        }
        self.grant_came(grant.job);
    }

    fn terminate(&mut self, run: Run, at_once: bool, why: TerminateReason) {
        let Some(job) = self.jobs.get_mut(&run.0).filter(|j| j.attempt == run.1) else {
            // Never launched here, or forgotten: there is nothing of it.
            return self.reports.push(run.0, run.1, Report::Released);
        };
        if job.released {
            // The report is on its way.
            return;
        }
        // The end of a job that is over is no cancellation of its steps.
        job.ending |= why != TerminateReason::Finished;
        let message = launch::end_message(why, &sys::local_time(now().unix_s()));
        job.termination = Some((at_once, message));
        self.refuse_waiting_steps(run.0);
        self.order_termination(run);
    }

    fn order_termination(&mut self, run: Run) {
        let job = self.jobs.get(&run.0).filter(|j| !j.released);
        if let Some((now, message)) = job.and_then(|j| j.termination.clone()) {
            self.shim_order(&ToShim::Terminate { run, now, message });
        }
    }

    fn signal(&mut self, run: Run, step: Option<StepNo>, signal: u32, scope: SignalScope) {
        let Ok(signal) = i32::try_from(signal) else {
            return;
        };
        self.shim_order(&ToShim::Signal {
            run,
            step,
            signal,
            scope,
        });
    }

    /// The controller has made reports durable: what they were about may be forgotten.
    pub(super) fn acknowledged(&mut self, seq: u64) {
        for report in self.reports.acknowledge(seq) {
            let run = (report.job, report.attempt);
            match report.report {
                Report::Released => {
                    if self.jobs.get(&run.0).is_some_and(|j| j.attempt == run.1) {
                        let job = self.jobs.remove(&run.0);
                        self.forget_steps(run.0);
                        let script = job.and_then(|j| j.grant?.spec.script);
                        if let Some(id) = script.filter(|id| self.stale_scripts.remove(id)) {
                            self.drop_script(id);
                        }
                    }
                    self.shim_order(&ToShim::Forget(run));
                }
                Report::StepEnded { step, .. } => self.step_acknowledged(run, step),
                Report::BatchEnded { .. }
                | Report::LaunchFailed { .. }
                | Report::Vanished
                | Report::StepStarted(_) => {}
            }
        }
    }
}

/// Slurm's state for the end of a script or step.
pub(super) fn end_state(exit: ExitStatus, ending: bool) -> JobState {
    if exit.is_ok() {
        JobState::Completed
    } else if ending && exit.signal != 0 {
        JobState::Cancelled
    } else {
        JobState::Failed
    }
}
