//! Step numbers: those that the agent of a job's first node assigns in ascending order, each once, and those that a
//! launcher has seen, because no two steps may have the same number.

use muster_model::ids::StepNo;
use muster_model::index_set::IndexSet;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Runs of numbers of steps that are known of a job. Where there are more, the numbers between the lowest count as used.
const NUMBER_RUNS_MAX: usize = 1024;
/// Limit of the stored ranges of numbers that steps of other components have had. A step with an older number has
/// waited while that many others started.
const SKIPPED_MAX: usize = 64;

/// The numbers of a job.
#[derive(Debug, Default)]
pub struct StepNumbers {
    /// No step has had this one, nor any later one.
    next: u32,
    /// Given out by this agent for steps of a heterogeneous job, and not used by the leading component yet.
    given: BTreeSet<u32>,
    /// Below `next`, and not used by this component.
    skipped: VecDeque<Range<u32>>,
}

impl StepNumbers {
    /// The first number that no step is known to have had.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// No step gets a number below this.
    pub fn raise(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Gives a step the next number, unless that is at or above `end`.
    pub fn assign(&mut self, end: u32) -> Option<u32> {
        let number = self.next;
        if number >= end {
            return None;
        }
        self.next = number + 1;
        Some(number)
    }

    /// A number was given out for a step of a heterogeneous job, whose leading component is here.
    pub fn give_out(&mut self, number: u32) {
        self.given.insert(number);
    }

    /// Takes a number that the agent of the leading component, which may be this one, has given out; whether it is free.
    pub fn take(&mut self, number: u32, is_leader: bool) -> bool {
        if is_leader {
            return self.given.remove(&number);
        }
        if number >= self.next {
            if number > self.next {
                self.skipped.push_back(self.next..number);
                if self.skipped.len() > SKIPPED_MAX {
                    self.skipped.pop_front();
                }
            }
            self.next = number + 1;
            return true;
        }
        let Some(at) = self.skipped.iter().position(|run| run.contains(&number)) else {
            return false;
        };
        let run = self.skipped.remove(at).unwrap_or_default();
        for part in [run.start..number, number + 1..run.end] {
            if !part.is_empty() {
                self.skipped.push_back(part);
            }
        }
        true
    }
}

/// Numbers that steps of a job have had here.
#[derive(Debug, Default)]
pub struct UsedStepNumbers(IndexSet);

impl UsedStepNumbers {
    /// A step has this one.
    pub fn insert(&mut self, step: StepNo) {
        self.0.insert(step.0);
        let mut runs = self.0.ranges();
        if let (Some((first, _)), Some((_, last))) = (runs.next(), runs.next())
            && runs.count() + 2 > NUMBER_RUNS_MAX
        {
            self.0.insert_range(first, last);
        }
    }

    /// Whether a step has, or had, this one.
    pub fn contains(&self, step: StepNo) -> bool {
        self.0.contains(step.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_takes_only_what_it_gave() {
        let mut numbers = StepNumbers::default();
        numbers.given.extend([3, 5]);
        numbers.raise(6);
        for wrong in [0, 2, 4, 6, u32::MAX] {
            assert!(!numbers.take(wrong, true), "{wrong}");
        }
        assert!(numbers.take(5, true));
        assert!(!numbers.take(5, true), "once");
        assert!(numbers.take(3, true));
    }

    #[test]
    fn other_components_take_each_number_once() {
        let mut numbers = StepNumbers::default();
        assert!(numbers.take(2, false));
        assert!(!numbers.take(2, false));
        assert!(numbers.take(7, false));
        for number in [4, 3, 6, 5, 0, 1] {
            assert!(numbers.take(number, false), "{number}");
            assert!(!numbers.take(number, false), "{number} again");
        }
        assert_eq!(numbers.next, 8);
        assert!(numbers.skipped.is_empty());
        for number in (10..500).step_by(2) {
            assert!(numbers.take(number, false));
        }
        assert_eq!(numbers.skipped.len(), SKIPPED_MAX);
    }

    #[test]
    fn numbers_are_used_once_and_take_little_memory() {
        let mut used = UsedStepNumbers::default();
        for step in 0..5 * NUMBER_RUNS_MAX {
            let step = StepNo(u32::try_from(3 * step + 1).unwrap());
            assert!(!used.contains(step));
            used.insert(step);
            assert!(used.contains(step));
            assert!(used.0.ranges().count() <= NUMBER_RUNS_MAX);
        }
        assert!(!used.contains(StepNo(0)));
    }
}
