//! The actions that follow from an event, as they are gathered.

use super::interface::{Action, Timer};
use crate::messages::LauncherEvent;
use crate::now::Now;

/// Refusals that are written to the log in a [`REFUSALS_MS`].
const REFUSALS_MAX: u32 = 100;
/// The period for which refusals are counted, milliseconds.
const REFUSALS_MS: u64 = 60_000;

/// The actions, in order.
#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) list: Vec<Action>,
    pub(super) now: Now,
    /// An agent is connected: events reach it.
    pub(super) is_attached: bool,
    refused_since_ms: Option<u64>,
    refusals: u32,
}

impl Actions {
    pub(super) fn push(&mut self, action: Action) {
        self.list.push(action);
    }

    pub(super) fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.list.extend(actions);
    }

    pub(super) fn log(&mut self, line: impl Into<String>) {
        self.push(Action::Log(line.into()));
    }

    pub(super) fn set_timer(&mut self, key: Timer, wait_ms: u64) {
        let at = self.now.mono_ms.saturating_add(wait_ms);
        self.push(Action::SetTimer(key, at));
    }

    pub(super) fn stop_timer(&mut self, key: Timer) {
        self.push(Action::StopTimer(key));
    }

    /// Sends an event to the agent. If there is no agent, the next one receives it when it attaches.
    pub(super) fn send(&mut self, event: LauncherEvent) {
        if self.is_attached {
            self.push(Action::SendAgent(event));
        }
    }

    /// A line for the log about what an agent may not order, unless there were many.
    pub(super) fn log_refusal(&mut self, text: &str) {
        let now_ms = self.now.mono_ms;
        let is_old = |since: u64| now_ms.saturating_sub(since) > REFUSALS_MS;
        if self.refused_since_ms.is_none_or(is_old) {
            (self.refused_since_ms, self.refusals) = (Some(now_ms), 0);
        }
        self.refusals += 1;
        if self.refusals <= REFUSALS_MAX {
            self.log(format!("refused: {text}"));
        }
        if self.refusals == REFUSALS_MAX {
            self.log("further refusals of this minute are not written here");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_do_not_fill_the_log() {
        let mut actions = Actions::default();
        for _ in 0..10 * REFUSALS_MAX {
            actions.log_refusal("no");
        }
        assert_eq!(actions.list.len(), REFUSALS_MAX as usize + 1);
        actions.now.mono_ms += REFUSALS_MS + 1;
        actions.log_refusal("no");
        assert_eq!(actions.list.len(), REFUSALS_MAX as usize + 2);
    }
}
