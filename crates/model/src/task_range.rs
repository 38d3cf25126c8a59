//! Numbers of tasks of which a job gets the greatest that it can have when it starts (`qsub -pe NAME 2-8`). What it asks for, and
//! waits for, is the least of them.

use crate::index_set::IndexSet;
use crate::limits::{TASK_RANGES_MAX, TASKS_MAX};
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// The numbers that will do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct TaskRange {
    /// Acceptable numbers of tasks.
    #[n(0)]
    pub counts: IndexSet,
    /// Tasks on each node, if the numbers are of nodes.
    #[n(1)]
    pub tasks_of_node: Option<u32>,
}

/// Why a range cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskRangeError {
    /// There is nothing in it, or a zero.
    #[error("a range of tasks has no number, or zero")]
    Empty,
    /// It is too long to be kept.
    #[error("a range of tasks has at most {TASK_RANGES_MAX} parts")]
    TooLong,
    /// It goes too far.
    #[error("a job has at most {TASKS_MAX} tasks")]
    TooMany,
    /// The least number is not what the job asks for.
    #[error("a range of tasks begins with --ntasks, and nodes follow from --ntasks-per-node")]
    AnotherLeast,
    /// Options counted by other units would not follow.
    #[error("a range of tasks cannot be had with {0}")]
    With(&'static str),
}

impl TaskRange {
    /// Tasks that each of the numbers counts.
    fn unit(&self) -> u32 {
        self.tasks_of_node.unwrap_or(1).max(1)
    }

    /// Fewest tasks.
    pub fn least(&self) -> u32 {
        let first = self.counts.first().unwrap_or(1);
        first.saturating_mul(self.unit())
    }

    /// Most tasks.
    pub fn most(&self) -> u32 {
        let last = self.counts.last().unwrap_or(1);
        last.saturating_mul(self.unit())
    }

    /// Whether the range has this number of tasks.
    pub fn admits(&self, tasks: u32) -> bool {
        let unit = self.unit();
        tasks.is_multiple_of(unit) && self.counts.contains(tasks / unit)
    }

    /// Number of elements that give at most this many tasks.
    pub fn len_up_to(&self, tasks: u32) -> u32 {
        let most = tasks / self.unit();
        let within = self.counts.ranges().take_while(|(first, _)| *first <= most);
        within.fold(0, |len: u32, (first, last)| {
            len.saturating_add(last.min(most) - first).saturating_add(1)
        })
    }

    /// Task count at this index of the range.
    pub fn at(&self, place: u32) -> Option<u32> {
        let mut left = place;
        for (first, last) in self.counts.ranges() {
            if left <= last - first {
                return Some((first + left).saturating_mul(self.unit()));
            }
            left -= last - first + 1;
        }
        None
    }

    /// Number of nodes for this number of tasks, where that follows.
    pub fn nodes_of(&self, tasks: u32) -> Option<u32> {
        self.tasks_of_node.map(|each| tasks / each.max(1))
    }

    /// Whether a job can ask for it.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), TaskRangeError> {
        if self.counts.first().is_none_or(|first| first == 0) {
            return Err(TaskRangeError::Empty);
        }
        if self.counts.ranges().count() > TASK_RANGES_MAX {
            return Err(TaskRangeError::TooLong);
        }
        match self.most() > TASKS_MAX {
            true => Err(TaskRangeError::TooMany),
            false => Ok(()),
        }
    }

    /// The numbers of tasks, where nodes are counted with those between.
    pub fn tasks(&self) -> IndexSet {
        let unit = self.unit();
        let mut tasks = IndexSet::default();
        for (first, last) in self.counts.ranges() {
            tasks.insert_range(first.saturating_mul(unit), last.saturating_mul(unit));
        }
        tasks
    }

    /// The numbers of tasks as Grid Engine writes them: `2,4-8`.
    pub fn text(&self) -> String {
        let unit = self.unit();
        let text = |(first, last): (u32, u32)| match first == last {
            true => first.saturating_mul(unit).to_string(),
            false => {
                let (first, last) = (first.saturating_mul(unit), last.saturating_mul(unit));
                format!("{first}-{last}")
            }
        };
        let all: Vec<String> = self.counts.ranges().map(text).collect();
        all.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(parts: &[(u32, u32)], tasks_of_node: Option<u32>) -> TaskRange {
        let mut counts = IndexSet::default();
        for (first, last) in parts {
            counts.insert_range(*first, *last);
        }
        TaskRange {
            counts,
            tasks_of_node,
        }
    }

    #[test]
    fn numbers_are_found_by_place() {
        let range = range(&[(2, 2), (4, 6), (9, 10)], None);
        let all: Vec<u32> = (0..7).map_while(|n| range.at(n)).collect();
        assert_eq!(all, [2, 4, 5, 6, 9, 10]);
        let lengths = [1, 2, 3, 5, 8, 9, 100].map(|most| range.len_up_to(most));
        assert_eq!(lengths, [0, 1, 1, 3, 4, 5, 6]);
        assert!(range.admits(9) && !range.admits(8));
        assert_eq!((range.least(), range.most()), (2, 10));
        assert_eq!(
            (range.text(), range.nodes_of(4)),
            ("2,4-6,9-10".to_owned(), None)
        );
        assert_eq!(range.check(), Ok(()));
    }

    #[test]
    fn nodes_follow_where_each_has_the_same_number() {
        let range = range(&[(2, 3)], Some(4));
        assert_eq!(range.check(), Ok(()));
        assert_eq!((range.least(), range.most()), (8, 12));
        assert_eq!((range.at(1), range.nodes_of(12)), (Some(12), Some(3)));
        assert_eq!((range.at(2), range.len_up_to(11)), (None, 1));
        assert!(range.admits(12) && !range.admits(10));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let of = |parts: &[(u32, u32)]| range(parts, None).check();
        assert_eq!(of(&[]), Err(TaskRangeError::Empty));
        assert_eq!(of(&[(0, 4)]), Err(TaskRangeError::Empty));
        assert_eq!(of(&[(1, u32::MAX)]), Err(TaskRangeError::TooMany));
        let many = range(&[(1, TASKS_MAX)], Some(u32::MAX)).check();
        assert_eq!(many, Err(TaskRangeError::TooMany));
        let long: Vec<(u32, u32)> = (1..200).map(|n| (2 * n - 1, 2 * n - 1)).collect();
        assert_eq!(of(&long), Err(TaskRangeError::TooLong));
    }
}
