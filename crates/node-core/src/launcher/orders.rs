//! The controller's orders, from sealed batches. Nothing else starts, signals or ends a job here.

use super::Launcher;
use super::interface::Action;
use crate::messages::LauncherEvent;
use muster_model::effect::TerminateReason;
use muster_model::ids::JobAttempt;
use muster_proto::node::{NodeSettings, Order, Orders};
use std::rc::Rc;

/// The message on standard error when a job is ended.
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
    /// Carries out a batch that the controller has sealed.
    pub(super) fn take_sealed(&mut self, orders: &[u8], seal: &[u8], local_time: &str) {
        match self.session.check(&self.state.node.place, orders, seal) {
            Ok(orders) => self.carry_out(orders, local_time),
            Err(e) => {
                self.state.actions.log(format!("orders are refused: {e}"));
                self.state.actions.send(LauncherEvent::SessionFailed(e));
            }
        }
    }

    fn carry_out(&mut self, orders: Orders, local_time: &str) {
        if let Some(settings) = orders.settings {
            self.apply_settings(*settings);
        }
        for (id, bytes) in orders.blobs {
            self.launches
                .scripts
                .blobs
                .insert(id, Vec::from(bytes).into());
        }
        for order in orders.orders {
            match order {
                Order::Launch(grant) => self.launches.launch_job(&mut self.state, Rc::new(*grant)),
                Order::Terminate {
                    job,
                    attempt,
                    now,
                    why,
                } => {
                    let message = end_message(why, local_time);
                    self.launches.terminate(
                        &mut self.state,
                        JobAttempt::new(job, attempt),
                        now,
                        message,
                    );
                }
                Order::Signal {
                    job,
                    attempt,
                    step,
                    signal,
                    scope,
                    cancelled_by: _,
                } => self.launches.signals.signal_ordered(
                    &mut self.state,
                    JobAttempt::new(job, attempt),
                    step,
                    signal,
                    scope,
                ),
                Order::StepLimit {
                    job,
                    attempt,
                    step,
                    limit,
                } => self.launches.signals.limit_step(
                    &mut self.state,
                    JobAttempt::new(job, attempt),
                    step,
                    limit,
                ),
                Order::Notify { job, attempt, text } => {
                    self.launches.writers.print_in_script(
                        &mut self.state,
                        JobAttempt::new(job, attempt),
                        text,
                        false,
                    );
                }
                Order::Reboot => self.site.reboot(&mut self.state),
            }
        }
        for id in orders.drop_blobs {
            self.launches.scripts.blobs.remove(&id);
            self.launches.scripts.contexts.remove(id);
            self.launches.scripts.drop_script(&mut self.state, id);
        }
        if self.launches.scripts.are_too_many() {
            // In the next session the controller begins with none.
            self.session.end();
            self.launches.scripts.clear(&mut self.state);
            let why = "the controller leaves too many scripts and environments on this node";
            self.state.actions.log(why.to_owned());
            let failed = LauncherEvent::SessionFailed(why.to_owned());
            self.state.actions.send(failed);
        }
    }

    fn apply_settings(&mut self, settings: NodeSettings) {
        if settings != self.state.node.settings {
            let bytes = minicbor::to_vec(&settings).expect("writing to memory cannot fail");
            self.state.actions.push(Action::KeepSettings(bytes));
        }
        let wanted = settings.health_check.clone();
        let has_changed = settings.containers != self.state.node.settings.containers;
        self.state.node.apply(settings);
        if has_changed {
            self.state.log_lack_of_containers();
            self.state.sweep_containers();
        }
        self.site.configure(wanted, &mut self.state.actions);
    }
}
