//! Events of accounting, for triggers: its store fails or works again, or the queue for it is nearly too long. It only
//! reports; the follower ensures that nothing is lost.

use crate::failure;
use crate::mail::ToWriter;
use muster_acct::{Follower, Health};
use muster_model::trigger::{TriggerEvents, TriggerReport};
use std::sync::Weak;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// How often accounting is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// How accounting was when it was looked at last.
#[derive(Debug, Default)]
struct AccountingState {
    is_failing: bool,
    is_full: bool,
}

impl AccountingState {
    /// Events since the last call. `room` is how many changes may wait.
    fn follow(&mut self, health: &Health, room: usize) -> TriggerEvents {
        let is_failing = health.failing.is_some();
        let is_full = health.waiting >= room / 10 * 9;
        let mut events = TriggerEvents::NONE;
        if is_failing != self.is_failing {
            events = match is_failing {
                true => TriggerEvents::ACCOUNTING_FAILS.with(TriggerEvents::DATABASE_FAILS),
                false => TriggerEvents::ACCOUNTING_RESUMES.with(TriggerEvents::DATABASE_RESUMES),
            };
        }
        if is_full && !self.is_full {
            events = events.with(TriggerEvents::ACCOUNTING_FULL);
        }
        *self = AccountingState {
            is_failing,
            is_full,
        };
        events
    }
}

/// Starts the thread that looks at accounting.
///
/// # Errors
/// When there is no thread.
pub(crate) fn watch(
    follower: Weak<Follower>,
    room: usize,
    writer: Sender<ToWriter>,
) -> std::io::Result<()> {
    let work = move || {
        let mut state = AccountingState::default();
        loop {
            std::thread::sleep(PERIOD);
            // The thread that stops the controller takes the follower back.
            if failure::is_stopping() {
                return;
            }
            let Some(health) = follower.upgrade().map(|follower| follower.health()) else {
                return;
            };
            let events = state.follow(&health, room);
            if events != TriggerEvents::NONE {
                let _ = writer.send(ToWriter::Trigger(TriggerReport::Happened(events)));
            }
        }
    };
    failure::spawn_worker("accounting events", work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn each_change_is_reported_once() {
        let mut state = AccountingState::default();
        let health = |fails: bool, waiting| Health {
            accepted: 0,
            stored: 0,
            synced: 0,
            waiting,
            failing: fails.then(|| (Instant::now(), 1, String::new())),
        };
        let fails = TriggerEvents::ACCOUNTING_FAILS.with(TriggerEvents::DATABASE_FAILS);
        let resumes = TriggerEvents::ACCOUNTING_RESUMES.with(TriggerEvents::DATABASE_RESUMES);
        let expected = [
            (health(false, 1), TriggerEvents::NONE),
            (health(true, 1), fails),
            (health(true, 95), TriggerEvents::ACCOUNTING_FULL),
            (health(true, 99), TriggerEvents::NONE),
            (health(false, 10), resumes),
            (health(false, 90), TriggerEvents::ACCOUNTING_FULL),
        ];
        for (health, events) in expected {
            assert_eq!(state.follow(&health, 100), events);
        }
    }
}
