//! Signals for all tasks that srun or the MPI host requests. Delivering one requires looking at all
//! processes of the step, which may be thousands, and one read may return a megabyte of requests.

use std::ops::RangeInclusive;

/// Numbers of signals.
const NUMBERS: RangeInclusive<i32> = 1..=64;

/// The signals requested in one read, each once, in the order of their last requests: after STOP, CONT and STOP the
/// tasks are stopped.
#[derive(Debug, Default)]
pub(super) struct AskedSignals(Vec<i32>);

impl AskedSignals {
    /// A signal is to be delivered once all is dealt with that was read with it. One that is none is left out.
    pub(super) fn ask(&mut self, signal: i32) {
        if NUMBERS.contains(&signal) {
            self.0.retain(|asked| *asked != signal);
            self.0.push(signal);
        }
    }

    /// Takes the signals to deliver now.
    pub(super) fn take(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{SIGCONT, SIGKILL, SIGSTOP};

    /// A hundred thousand requests had root's daemon look at all tasks as often, before it looked at what its launcher said.
    #[test]
    fn a_signal_is_delivered_once_of_what_was_read_at_once() {
        let mut asked = AskedSignals::default();
        for _ in 0..2 {
            (0..100_000).for_each(|n| asked.ask(n % 200));
            (0..100_000).for_each(|_| asked.ask(SIGKILL));
            let due = asked.take();
            assert_eq!((due.len(), due.last()), (64, Some(&SIGKILL)));
        }
        assert!(asked.take().is_empty());
    }

    /// The last of them was dropped, and the tasks ran.
    #[test]
    fn what_was_asked_for_last_is_what_tasks_get_last() {
        let mut asked = AskedSignals::default();
        for signal in [SIGSTOP, SIGCONT, SIGSTOP] {
            asked.ask(signal);
        }
        assert_eq!(asked.take(), [SIGCONT, SIGSTOP]);
    }
}
