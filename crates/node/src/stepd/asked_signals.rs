//! Signals for all tasks that the user's programs ask for: srun, and the MPI host. To deliver one is to look at all processes of
//! the step, which may be thousands, and a megabyte of requests is read at once.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Numbers of signals.
const NUMBERS: RangeInclusive<i32> = 1..=64;

/// The signals that were asked for in what is read now.
#[derive(Debug, Default)]
pub(super) struct AskedSignals(Option<BTreeSet<i32>>);

impl AskedSignals {
    /// What follows was read at once.
    pub(super) fn begin(&mut self) {
        self.0 = Some(BTreeSet::new());
    }

    /// All of it was dealt with.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Whether a signal is delivered: once of what was read at once. The end of a step is always: what it leaves would stay.
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
