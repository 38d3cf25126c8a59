//! What the controller orders, from the batches that it has sealed: nothing else makes, signals or ends a job here.

use super::event::{Action, TimerKey};
use super::waiting::Delivery;
use super::{JobEntry, Launcher};
use crate::messages::{JobAttempt, LauncherEvent};
use crate::signals;
use muster_model::command::SignalScope;
use muster_model::effect::TerminateReason;
use muster_model::ids::{BlobId, StepNo};
use muster_proto::node::{NodeSettings, Order, Orders};
use std::collections::HashSet;
use std::rc::Rc;

/// What is printed on standard error when a job is ended.
fn end_message(why: TerminateReason, at: &str) -> Option<String> {
    let cause = match why {
        TerminateReason::Cancelled => "",
        TerminateReason::TimeLimit => " DUE TO TIME LIMIT",
        TerminateReason::Requeued => " DUE to JOB REQUEUE",
        TerminateReason::Preempted => " DUE TO PREEMPTION",
        TerminateReason::NodeFailure => " DUE TO NODE FAILURE",
        TerminateReason::Finished => return None,
    };
    Some(format!("CANCELLED AT {at}{cause}"))
}

impl Launcher {
    /// Carries out what the controller has sealed.
    pub(super) fn take_sealed(&mut self, orders: &[u8], seal: &[u8], local_time: &str) {
        match self.session.check(&self.node.place, orders, seal) {
            Ok(orders) => self.carry_out(orders, local_time),
            Err(e) => {
                self.actions.log(format!("orders are refused: {e}"));
                self.actions.send(LauncherEvent::SessionFailed(e));
            }
        }
    }

    fn carry_out(&mut self, orders: Orders, local_time: &str) {
        if let Some(settings) = orders.settings {
            self.apply_settings(*settings);
        }
        for (id, bytes) in orders.blobs {
            self.blobs.insert(id, Vec::from(bytes).into());
        }
        for order in orders.orders {
            match order {
                Order::Launch(grant) => self.launch_job(Rc::new(*grant)),
                Order::Terminate {
                    job,
                    attempt,
                    now,
                    why,
                } => {
                    let message = end_message(why, local_time);
                    self.terminate(JobAttempt::new(job, attempt), now, message);
                }
                Order::Signal {
                    job,
                    attempt,
                    step,
                    signal,
                    scope,
                } => self.signal_ordered(JobAttempt::new(job, attempt), step, signal, scope),
                Order::StepLimit {
                    job,
                    attempt,
                    step,
                    limit,
                } => self.limit_step(JobAttempt::new(job, attempt), step, limit),
                Order::Tell { job, attempt, text } => {
                    self.print_in_script(JobAttempt::new(job, attempt), text, false);
                }
                Order::Reboot => self.reboot(),
            }
        }
        for id in orders.drop_blobs {
            self.blobs.remove(&id);
            self.contexts.remove(id);
            self.drop_script(id);
        }
    }

    fn apply_settings(&mut self, settings: NodeSettings) {
        if settings != self.node.settings {
            let bytes = minicbor::to_vec(&settings).expect("writing to memory cannot fail");
            self.actions.push(Action::KeepSettings(bytes));
        }
        let wanted = settings.health_check.clone();
        self.node.apply(settings);
        self.site.configure(wanted, &mut self.actions);
    }

    fn signal_ordered(
        &mut self,
        run: JobAttempt,
        step: Option<StepNo>,
        signal: u32,
        scope: SignalScope,
    ) {
        let Ok(signal) = i32::try_from(signal) else {
            return;
        };
        let signal = match (step, scope, signal) {
            (None, SignalScope::Full, signals::SIGSTOP) if self.stop_is_announced(run) => {
                signals::SIGTSTP
            }
            (None, SignalScope::Full, signals::SIGCONT) => {
                if self.stops.remove(&run) {
                    self.actions.stop_timer(TimerKey::Stop(run));
                }
                signal
            }
            _ => signal,
        };
        let delivery = Delivery::signal(step, signal, scope);
        let job = (self.jobs.get(&run), &mut self.actions);
        self.waiting.add(job, run, delivery);
    }

    /// Whether a job that is to be stopped gets a signal first that it can prepare itself at; then it is stopped later.
    fn stop_is_announced(&mut self, run: JobAttempt) -> bool {
        let grace_ms = u64::from(self.node.settings.suspend_grace_s) * 1000;
        let begun = |e: &JobEntry| !e.phase.has_not_begun();
        if grace_ms == 0 || !self.jobs.get(&run).is_some_and(begun) {
            return false;
        }
        if self.stops.insert(run) {
            self.actions.set_timer(TimerKey::Stop(run), grace_ms);
        }
        true
    }

    /// Stops a job to which that was announced, unless it goes on by now.
    pub(super) fn stop_announced(&mut self, run: JobAttempt) {
        let is_here = |e: &JobEntry| !e.phase.is_released();
        if self.stops.remove(&run) && self.jobs.get(&run).is_some_and(is_here) {
            let delivery = Delivery::signal(None, signals::SIGSTOP, SignalScope::Full);
            let job = (self.jobs.get(&run), &mut self.actions);
            self.waiting.add(job, run, delivery);
        }
    }

    /// Removes scripts that no job here runs.
    pub(super) fn drop_unused_scripts(&mut self) {
        let used: HashSet<(BlobId, u32)> = self
            .jobs
            .values()
            .filter_map(|e| {
                let spec = &e.grant.as_ref()?.spec;
                Some((spec.script?, spec.owner.uid))
            })
            .collect();
        self.actions.push(Action::KeepScripts(used));
    }

    /// Removes a script that the controller does not refer to any more, once no job here runs it.
    pub(super) fn drop_script(&mut self, id: BlobId) {
        let mut grants = self.jobs.values().filter_map(|e| e.grant.as_ref());
        if grants.any(|grant| grant.spec.script == Some(id)) {
            self.stale_scripts.insert(id);
        } else {
            self.actions.push(Action::DropScript(id));
        }
    }
}
