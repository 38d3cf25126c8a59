//! Delivery of a signal, or the order to end, to the processes of a job.

use super::interface::Action;
use super::job::JobEntry;
use super::state::LauncherState;
use crate::messages::LauncherEvent;
use crate::signals;
use muster_model::command::SignalScope;
use muster_model::ids::{JobAttempt, StepNo};
use std::path::PathBuf;

impl LauncherState {
    /// Signals the script that it should end. If it is stopped, it runs nothing before it learns of that.
    pub(super) fn ask_to_end(&mut self, attempt: JobAttempt) {
        self.signal_script(attempt, signals::SIGTERM);
        self.signal_script(attempt, signals::SIGCONT);
    }

    /// Removes directories of a job in a process that ends when they are removed, or when its time limit is over.
    pub(super) fn remove_dirs(&mut self, attempt: JobAttempt, dirs: Vec<PathBuf>) {
        let user = self.jobs.get(&attempt).map(|entry| entry.uid);
        if let Some(user) = user.filter(|_| !dirs.is_empty()) {
            self.actions.push(Action::RemoveDirs {
                attempt,
                user,
                dirs,
            });
        }
    }

    pub(super) fn signal(
        &mut self,
        attempt: JobAttempt,
        step: Option<StepNo>,
        signal: i32,
        scope: SignalScope,
    ) {
        match (step, scope) {
            (Some(StepNo::BATCH), _) => self.signal_script(attempt, signal),
            (Some(step), _) => self.signal_step(attempt, step, signal),
            (None, SignalScope::Batch) => self.signal_script_alone(attempt, signal),
            (None, SignalScope::Steps) => {
                let now_ms = self.now.mono_ms;
                if let Some(entry) = self.jobs.get_mut(&attempt) {
                    entry.keep_step_signal(signal, now_ms);
                }
                self.signal_steps(attempt, signal);
            }
            (None, SignalScope::Full) => {
                if let Some(entry) = self.jobs.get_mut(&attempt) {
                    entry.is_stopped = match signal {
                        signals::SIGSTOP => true,
                        signals::SIGCONT => false,
                        _ => entry.is_stopped,
                    };
                }
                if signal == signals::SIGCONT {
                    self.actions.push(Action::FreezeGroups(attempt, false));
                }
                signal_script(self, attempt, signal, true);
                self.signal_steps(attempt, signal);
                if signal == signals::SIGSTOP {
                    // Freezing also stops processes that the signal does not reach, and those that other processes
                    // would wake.
                    self.actions.push(Action::FreezeGroups(attempt, true));
                }
            }
        }
    }

    pub(super) fn signal_steps(&mut self, attempt: JobAttempt, signal: i32) {
        let entry = self.jobs.get(&attempt);
        let steps = entry.map(|e| e.steps.keys().copied().collect::<Vec<_>>());
        for step in steps.unwrap_or_default() {
            self.signal_step(attempt, step, signal);
        }
    }

    pub(super) fn signal_script_alone(&mut self, attempt: JobAttempt, signal: i32) {
        match self.jobs.get_mut(&attempt) {
            Some(JobEntry {
                script: Some(pid), ..
            }) => {
                let pid = *pid;
                self.actions.push(Action::Signal(pid, signal));
            }
            Some(entry) => drop(entry.keep_signal(signal)),
            None => {}
        }
    }

    /// Signals the script, its descendants, and orphans of the job: parents first, so that none sees a child end by the
    /// signal, and goes on or ends by itself, before it has the signal too.
    pub(super) fn signal_script(&mut self, attempt: JobAttempt, signal: i32) {
        signal_script(self, attempt, signal, false);
    }

    /// The node is unfit for others: reported now, and to every agent that comes before the job is forgotten.
    pub(super) fn report_fault(&mut self, attempt: JobAttempt, error: String) {
        self.actions.log(format!("job {}: {error}", attempt.job));
        if let Some(entry) = self.jobs.get_mut(&attempt) {
            entry.fault = Some(error.clone());
        }
        self.actions
            .send(LauncherEvent::NodeFault { attempt, error });
    }
}

/// Signals a job's script. With `steps_too`, its steps get the signal without it, which an srun in the script does not pass on.
fn signal_script(state: &mut LauncherState, attempt: JobAttempt, signal: i32, steps_too: bool) {
    let Some(entry) = state.jobs.get_mut(&attempt) else {
        return;
    };
    if entry.keep_signal(signal) {
        return;
    }
    let script = entry.script;
    let of = state.members(attempt);
    state.actions.push(Action::SignalScript {
        of,
        script,
        signal,
        steps_too,
    });
}
