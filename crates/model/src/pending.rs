//! Signals that wait to be delivered. Equal ones are one, as the kernel's pending standard signals are, so that what waits is
//! bounded by how many different signals there are and not by how often one is sent.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Signals that may wait for one job: each signal for its script and for dozens of its steps.
pub const PENDING_MAX: usize = 4096;

/// SIGCONT on Linux.
const SIGCONT: u32 = 18;
/// The last of SIGSTOP, SIGTSTP, SIGTTIN and SIGTTOU, which follow SIGCONT.
const SIGTTOU: u32 = 22;

/// Waiters for one job each, in order.
#[derive(Clone, Debug)]
pub struct JobWaiters<T> {
    next: u64,
    in_order: BTreeMap<u64, T>,
    places: HashMap<T, u64>,
}

impl<T> Default for JobWaiters<T> {
    fn default() -> JobWaiters<T> {
        JobWaiters {
            next: 0,
            in_order: BTreeMap::new(),
            places: HashMap::new(),
        }
    }
}

impl<T: Copy + Eq + Hash> JobWaiters<T> {
    /// Adds what delivers a signal, unless an equal one waits already. Of signals that stop and continue processes the last
    /// decides whether they run: such a one takes the place after all that wait. Whether it waits: there may be too many.
    pub fn push(&mut self, delivery: T, signal: u32) -> bool {
        if let Some(&place) = self.places.get(&delivery) {
            if !(SIGCONT..=SIGTTOU).contains(&signal) {
                return true;
            }
            self.in_order.remove(&place);
        } else if self.places.len() >= PENDING_MAX {
            return false;
        }
        self.in_order.insert(self.next, delivery);
        self.places.insert(delivery, self.next);
        self.next += 1;
        true
    }

    /// Removes the first.
    pub fn pop(&mut self) -> Option<T> {
        let (_, delivery) = self.in_order.pop_first()?;
        self.places.remove(&delivery);
        Some(delivery)
    }

    /// Number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(pending: &mut JobWaiters<u32>) -> Vec<u32> {
        std::iter::from_fn(|| pending.pop()).collect()
    }

    #[test]
    fn equal_signals_are_one_and_different_ones_keep_their_order() {
        let mut pending = JobWaiters::default();
        for signal in [15, 10, 15, 9, 10, 10] {
            assert!(pending.push(signal, signal));
        }
        assert_eq!(pending.len(), 3);
        assert_eq!(drain(&mut pending), [15, 10, 9]);
        // Once it is delivered, another may wait.
        assert!(pending.push(15, 15));
        assert_eq!(drain(&mut pending), [15]);
    }

    #[test]
    fn the_last_of_stop_and_continue_decides() {
        let mut pending = JobWaiters::default();
        for signal in [19, 18, 10, 19] {
            pending.push(signal, signal);
        }
        assert_eq!(drain(&mut pending), [18, 10, 19]);
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let mut pending = JobWaiters::default();
        let many = 2 * u32::try_from(PENDING_MAX).unwrap();
        let taken = (0..many).filter(|step| pending.push(*step, 10));
        assert_eq!(taken.count(), PENDING_MAX);
        assert!(pending.push(0, 10), "it waits already");
        assert_eq!(drain(&mut pending).len(), PENDING_MAX);
    }
}
