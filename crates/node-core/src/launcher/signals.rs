//! Signals that the controller orders. They wait for their turn ([`WaitingSignals`]), and a job that is to be stopped may have to
//! be asked first.

use super::interface::Timer;
use super::job::JobEntry;
use super::state::LauncherState;
use super::waiting::{Delivery, Round, WaitingSignals};
use crate::messages::StepdCommand;
use crate::signals;
use muster_model::command::SignalScope;
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::time::TimeLimit;
use std::collections::BTreeSet;

/// See the module.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) waiting: WaitingSignals,
    /// Jobs to which was announced that they will be stopped.
    pub(super) stops: BTreeSet<JobAttempt>,
}

impl Signals {
    pub(super) fn signal_ordered(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: Option<StepNo>,
        signal: u32,
        scope: SignalScope,
    ) {
        let Ok(signal) = i32::try_from(signal) else {
            return;
        };
        let signal = match (step, scope, signal) {
            (None, SignalScope::Full, signals::SIGSTOP)
                if self.stop_is_announced(state, attempt) =>
            {
                signals::SIGTSTP
            }
            (None, SignalScope::Full, signals::SIGCONT) => {
                if self.stops.remove(&attempt) {
                    state.actions.stop_timer(Timer::Stop(attempt));
                }
                signal
            }
            _ => signal,
        };
        let delivery = Delivery::signal(step, signal, scope);
        let job = (state.jobs.get(&attempt), &mut state.actions);
        self.waiting.add(job, attempt, delivery);
    }

    /// Whether a job that is to be stopped gets a signal first that it can prepare itself at; then it is stopped later.
    pub(super) fn stop_is_announced(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
    ) -> bool {
        let grace_ms = u64::from(state.node.settings.suspend_grace_s) * 1000;
        let begun = |e: &JobEntry| !e.phase.has_not_begun();
        if grace_ms == 0 || !state.jobs.get(&attempt).is_some_and(begun) {
            return false;
        }
        if self.stops.insert(attempt) {
            state.actions.set_timer(Timer::Stop(attempt), grace_ms);
        }
        true
    }

    /// Stops a job to which that was announced, unless it goes on by now.
    pub(super) fn stop_announced(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let is_here = |e: &JobEntry| !e.phase.is_released();
        if self.stops.remove(&attempt) && state.jobs.get(&attempt).is_some_and(is_here) {
            let delivery = Delivery::signal(None, signals::SIGSTOP, SignalScope::Full);
            let job = (state.jobs.get(&attempt), &mut state.actions);
            self.waiting.add(job, attempt, delivery);
        }
    }

    /// The tasks of a step may run for another time. Its daemon learns it when it is its turn, and of the last limit only.
    pub(super) fn limit_step(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        limit: TimeLimit,
    ) {
        let entry = state.jobs.get_mut(&attempt);
        let Some(process) = entry.and_then(|e| e.steps.get_mut(&step)) else {
            return;
        };
        process.new_limit = Some(limit);
        let job = (state.jobs.get(&attempt), &mut state.actions);
        self.waiting.add(job, attempt, Delivery::LimitStep(step));
    }

    /// Carries out what had to wait for its turn.
    pub(super) fn deliver(&mut self, state: &mut LauncherState, round: Round) {
        for (attempt, delivery) in round {
            match delivery {
                Delivery::Signal {
                    step,
                    signal,
                    scope,
                } => state.signal(attempt, step, signal, scope),
                Delivery::EndStep(step) => state.end_step(attempt, step),
                Delivery::LimitStep(step) => {
                    let entry = state.jobs.get_mut(&attempt);
                    let process = entry.and_then(|e| e.steps.get_mut(&step));
                    if let Some(limit) = process.and_then(|p| p.new_limit.take()) {
                        let command = StepdCommand::SetTimeLimit(limit.seconds(), Some(step));
                        state.command_step(attempt, step, command);
                    }
                }
            }
        }
    }
}
