//! Processes that write messages to the standard error of scripts, and those that remove directories of steps. A job
//! ends once they have ended.

use super::interface::{Action, MessageKind, Timer};
use super::notices::Notices;
use super::state::{LauncherState, Role};
use crate::signals;
use muster_model::ids::JobAttempt;

/// Time limit for writing a message: a job that ends waits for it.
const MESSAGE_WAIT_MS: u64 = 2000;
/// Time limit for the removal of a step's directories: its job ends only then.
const REMOVAL_WAIT_MS: u64 = 30_000;

/// See the module.
#[derive(Default)]
pub(super) struct Writers {
    pub(super) notices: Notices,
}

impl Writers {
    /// Prints a line for a script, and then kills it if that is wanted: it is printed before its end.
    pub(super) fn print_in_script(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        text: String,
        kill: bool,
    ) {
        if !kill {
            self.notices.add(state, attempt, text);
        } else if !(self.notices).print(state, attempt, Some(text), MessageKind::BeforeKill) {
            state.signal_script(attempt, signals::SIGKILL);
        }
    }

    pub(super) fn message_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        kind: MessageKind,
        started: Result<i32, String>,
    ) {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.starting_writers = entry.starting_writers.saturating_sub(1);
        match started {
            Ok(pid) => {
                entry.writers.insert(pid);
                state.roles.insert(pid, Role::Message(attempt, kind));
                state
                    .actions
                    .set_timer(Timer::Writer(attempt, pid), MESSAGE_WAIT_MS);
            }
            Err(e) => {
                state.actions.log(format!(
                    "job {}: its message cannot be written: {e}",
                    attempt.job
                ));
                state.is_unsettled = true;
                self.message_written(state, attempt, kind);
            }
        }
    }

    /// A message was written, or cannot be.
    pub(super) fn message_written(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        kind: MessageKind,
    ) {
        match kind {
            MessageKind::Notice => {
                self.notices.written(state, attempt);
            }
            MessageKind::BeforeTerm => state.ask_to_end(attempt),
            MessageKind::BeforeKill => state.signal_script(attempt, signals::SIGKILL),
        }
    }

    pub(super) fn removal_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        pid: i32,
    ) {
        state.roles.insert(pid, Role::Remover(attempt));
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            entry.removers.insert(pid);
            state
                .actions
                .set_timer(Timer::Writer(attempt, pid), REMOVAL_WAIT_MS);
        }
    }

    /// A process that wrote a message or removed directories has ended.
    pub(super) fn writer_ended(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        pid: i32,
    ) {
        state.actions.stop_timer(Timer::Writer(attempt, pid));
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            entry.writers.remove(&pid);
            entry.removers.remove(&pid);
        }
    }

    /// Kills a process that has not written its message in time, or not removed its directories.
    pub(super) fn writer_late(&mut self, state: &mut LauncherState, attempt: JobAttempt, pid: i32) {
        let entry = state.jobs.get(&attempt);
        if entry.is_some_and(|e| e.writers.contains(&pid) || e.removers.contains(&pid)) {
            state.actions.push(Action::Signal(pid, signals::SIGKILL));
        }
    }
}
