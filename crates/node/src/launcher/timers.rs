//! When timers are due.

use muster_node_core::launcher::interface::Timer;
use std::collections::{BTreeMap, BTreeSet};

/// Timers by key, each with the time at which it is due, milliseconds since boot.
#[derive(Debug, Default)]
pub(super) struct Timers {
    times: BTreeMap<Timer, u64>,
    in_order: BTreeSet<(u64, Timer)>,
}

impl Timers {
    /// Sets a timer; replaces the time that was set before.
    pub(super) fn set(&mut self, key: Timer, at_ms: u64) {
        self.stop(&key);
        self.in_order.insert((at_ms, key.clone()));
        self.times.insert(key, at_ms);
    }

    pub(super) fn stop(&mut self, key: &Timer) {
        if let Some(entry) = self.times.remove_entry(key) {
            self.in_order.remove(&(entry.1, entry.0));
        }
    }

    /// Removes the first due timer.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<Timer> {
        let (at, _) = self.in_order.first()?;
        if *at > now_ms {
            return None;
        }
        let (_, key) = self.in_order.pop_first()?;
        self.times.remove(&key);
        Some(key)
    }

    /// Time of the next timer.
    pub(super) fn next(&self) -> Option<u64> {
        self.in_order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_due_once_and_in_order() {
        let mut timers = Timers::default();
        let key = Timer::Measurement;
        timers.set(key(1), 30);
        timers.set(key(2), 20);
        timers.set(key(3), 10);
        timers.set(key(2), 40);
        timers.stop(&key(3));
        timers.stop(&key(4));
        assert_eq!(timers.next(), Some(30));
        assert_eq!(timers.take_due(29), None);
        assert_eq!(timers.take_due(99), Some(key(1)));
        assert_eq!(timers.take_due(99), Some(key(2)));
        assert_eq!((timers.take_due(99), timers.next()), (None, None));
    }
}
