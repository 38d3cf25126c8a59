//! The actions that follow from an event, as they are gathered.

use super::{Action, RequestId, StdioId, Timer};
use crate::messages::LauncherCommand;
use minicbor::bytes::ByteVec;
use muster_model::ids::JobAttempt;
use muster_model::refusal::Refusal;
use muster_proto::step::AgentReply;

/// The actions, in order.
#[derive(Debug, Default)]
pub(super) struct Actions {
    list: Vec<Action>,
    /// The launcher is connected: commands reach it.
    pub(super) has_launcher: bool,
}

impl Actions {
    pub(super) fn push(&mut self, action: Action) {
        self.list.push(action);
    }

    pub(super) fn move_to(&mut self, actions: &mut Vec<Action>) {
        actions.append(&mut self.list);
    }

    pub(super) fn set_timer(&mut self, timer: Timer, after_ms: u64) {
        self.push(Action::SetTimer { timer, after_ms });
    }

    /// Sends a command to the launcher, if there is one.
    pub(super) fn command(&mut self, command: LauncherCommand) {
        if self.has_launcher {
            self.push(Action::Launcher(command));
        }
    }

    /// Makes the launcher store an entry of a job.
    pub(super) fn keep(&mut self, attempt: JobAttempt, key: u32, bytes: ByteVec) {
        self.command(LauncherCommand::Keep {
            attempt,
            key,
            bytes,
        });
    }

    /// Makes the launcher discard an entry.
    pub(super) fn drop_kept(&mut self, attempt: JobAttempt, key: u32) {
        self.keep(attempt, key, Vec::new().into());
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: AgentReply) {
        self.push(Action::Reply(request, reply));
    }

    /// Answers a request, for good.
    pub(super) fn finish(&mut self, request: RequestId, reply: AgentReply) {
        self.reply(request, reply);
        self.push(Action::EndRequest(request));
    }

    /// Refuses a request.
    pub(super) fn refuse(&mut self, request: RequestId, refusal: impl Into<Refusal>) {
        self.finish(request, AgentReply::Refused(refusal.into()));
    }

    pub(super) fn close_stdio(&mut self, stdio: Option<StdioId>) {
        if let Some(stdio) = stdio {
            self.push(Action::CloseStdio(stdio));
        }
    }
}
