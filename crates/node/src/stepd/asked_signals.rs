//! Signals for all tasks that srun or the MPI host requests. Delivering one requires looking at all
//! processes of the step, which may be thousands, and one read may return a megabyte of requests.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Numbers of signals.
const NUMBERS: RangeInclusive<i32> = 1..=64;

/// Signals requested in the current read.
#[derive(Debug, Default)]
pub(super) struct AskedSignals(Option<BTreeSet<i32>>);

impl AskedSignals {
    /// Begins a new read.
    pub(super) fn begin(&mut self) {
        self.0 = Some(BTreeSet::new());
    }

    /// All requests of the read were handled.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Whether to deliver a signal: only once per read. The request to end the step is always
    /// delivered, because its processes would otherwise stay.
    pub(super) fn is_due(&mut self, signal: i32) -> bool {
        let Some(asked) = &mut self.0 else {
            return true;
        };
        NUMBERS.contains(&signal) && (asked.insert(signal) || signal == libc::SIGKILL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred thousand requests had root's daemon look at all tasks as often, before it looked at what its launcher said.
    #[test]
    fn a_signal_is_delivered_once_of_what_was_read_at_once() {
        let mut asked = AskedSignals::default();
        for _ in 0..2 {
            asked.begin();
            let numbers = (0..100_000).map(|n| n % 200);
            let due = numbers.filter(|n| *n != libc::SIGKILL && asked.is_due(*n));
            assert_eq!(due.count(), 63);
            assert!(asked.is_due(libc::SIGKILL) && asked.is_due(libc::SIGKILL));
            asked.end();
        }
        assert!(asked.is_due(libc::SIGTERM) && asked.is_due(libc::SIGTERM));
    }
}
