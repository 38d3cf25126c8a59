//! The actions that follow from an event, as they are gathered, and the wording of what users read.

use super::interface::{Action, ControllerError};
use muster_model::refusal::Refusal;

/// The actions, in order.
#[derive(Debug)]
pub(super) struct Actions {
    list: Vec<Action>,
    quiet: bool,
    /// `--verbose` was given.
    pub(super) is_verbose: bool,
}

impl Actions {
    pub(super) fn new(quiet: bool, is_verbose: bool) -> Actions {
        Actions {
            list: Vec::new(),
            quiet,
            is_verbose,
        }
    }

    pub(super) fn push(&mut self, action: Action) {
        self.list.push(action);
    }

    pub(super) fn move_to(&mut self, actions: &mut Vec<Action>) {
        actions.append(&mut self.list);
    }

    /// A text from other processes, on a line of its own.
    pub(super) fn line(&mut self, text: &str) {
        self.push(Action::Print(format!("{}\n", text.trim_end())));
    }

    /// `srun: text`, unless quiet.
    pub(super) fn info(&mut self, text: &str) {
        if !self.quiet {
            self.push(Action::Print(format!("srun: {text}\n")));
        }
    }

    /// `srun: text`, with `-v`.
    pub(super) fn verbose(&mut self, text: &str) {
        if self.is_verbose {
            self.push(Action::Print(format!("srun: {text}\n")));
        }
    }

    /// `srun: error: text`.
    pub(super) fn error(&mut self, text: &str) {
        self.push(Action::Print(format!("srun: error: {text}\n")));
    }

    /// `srun: fatal: text`.
    pub(super) fn fatal(&mut self, text: &str) {
        self.push(Action::Print(format!("srun: fatal: {text}\n")));
    }

    /// The exact reason, then Slurm's wording.
    pub(super) fn refusal(&mut self, prefix: &str, refusal: &Refusal) {
        if !refusal.detail.is_empty() {
            self.error(&refusal.detail);
        }
        self.error(&format!("{prefix}: {}", refusal.code.text()));
    }

    /// Why the controller has given no answer.
    pub(super) fn controller_error(&mut self, prefix: &str, error: &ControllerError) {
        match error {
            ControllerError::Refused(refusal) => self.refusal(prefix, refusal),
            ControllerError::NotConfigured(text) => self.fatal(text),
            ControllerError::Failed(text) => self.error(&format!("{prefix}: {text}")),
        }
    }
}
