//! The actions that follow from an event, as they are gathered.

use super::interface::Action;
use super::tree::FrameBelow;
use crate::now::Now;

/// The actions, in order.
#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) list: Vec<Action>,
    pub(super) now: Now,
}

impl Actions {
    pub(super) fn push(&mut self, action: Action) {
        self.list.push(action);
    }

    pub(super) fn log(&mut self, line: impl Into<String>) {
        self.push(Action::Log(line.into()));
    }

    pub(super) fn send_below(&mut self, frames: impl IntoIterator<Item = FrameBelow>) {
        let send = |below: FrameBelow| Action::SendBelow(below.position, below.frame);
        self.list.extend(frames.into_iter().map(send));
    }

    /// The time in `wait_ms` milliseconds.
    pub(super) fn after(&self, wait_ms: u64) -> u64 {
        self.now.mono_ms.saturating_add(wait_ms)
    }

    /// Whether a timer is due.
    pub(super) fn has_come(&self, at: Option<u64>) -> bool {
        at.is_some_and(|at| at <= self.now.mono_ms)
    }
}
