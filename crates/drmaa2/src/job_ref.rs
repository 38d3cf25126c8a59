//! Jobs by their numbers as programs know them: `17`, and `17.3` for a task.

use crate::error::DrmaaError;
use muster_model::ids::JobId;

/// A job, or a task of a job array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobRef {
    /// The number of the submission.
    pub job: JobId,
    /// The task.
    pub task: Option<u32>,
}

impl JobRef {
    /// Reads it.
    ///
    /// # Errors
    /// It is no number of a job.
    pub fn parse(text: &str) -> Result<JobRef, DrmaaError> {
        let wrong = || DrmaaError::argument(format!("\"{text:.80}\" is not the id of a job"));
        let (job, task) = match text.split_once(['.', '_']) {
            Some((job, task)) => (job, Some(task)),
            None => (text, None),
        };
        let is_plain = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
        if !is_plain(job) || !task.is_none_or(is_plain) {
            return Err(wrong());
        }
        let number: u64 = job.parse().map_err(|_| wrong())?;
        let task = task.map(str::parse).transpose().map_err(|_| wrong())?;
        match number {
            0 => Err(wrong()),
            number => Ok(JobRef {
                job: JobId(number),
                task,
            }),
        }
    }
}

/// `17`, `17.3`.
impl std::fmt::Display for JobRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.task {
            Some(task) => write!(f, "{}.{task}", self.job),
            None => write!(f, "{}", self.job),
        }
    }
}

/// Indices of a job array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskIndices {
    /// The first one.
    pub first: u32,
    /// The last one at most.
    pub last: u32,
    /// From one to the next.
    pub step: u32,
}

/// Tasks of one job array.
const TASKS_MAX: u32 = 1_000_000;

impl TaskIndices {
    /// A range as programs give it.
    ///
    /// # Errors
    /// It is no range.
    pub fn of(first: i64, last: i64, step: i64) -> Result<TaskIndices, DrmaaError> {
        let number = |number: i64, what: &str| {
            let own = u32::try_from(number).ok().filter(|number| *number > 0);
            own.ok_or_else(|| {
                DrmaaError::argument(format!("{what} is {number}: tasks are counted from 1"))
            })
        };
        let own = TaskIndices {
            first: number(first, "begin_index")?,
            last: number(last, "end_index")?,
            step: number(step, "step")?,
        };
        if own.first > own.last {
            return Err(DrmaaError::argument(format!(
                "begin_index {first} is above end_index {last}"
            )));
        }
        if (own.last - own.first) / own.step >= TASKS_MAX {
            return Err(DrmaaError::argument(format!(
                "a job array has at most {TASKS_MAX} tasks"
            )));
        }
        Ok(own)
    }

    /// The indices.
    pub fn indices(self) -> impl Iterator<Item = u32> {
        (self.first..=self.last).step_by(usize::try_from(self.step).unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back() {
        for text in ["17", "17.3"] {
            assert_eq!(JobRef::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "0",
            "x",
            "17.",
            "17.x",
            "-1",
            "+1",
            "99999999999999999999",
        ] {
            assert!(JobRef::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_have_a_task_and_not_too_many() {
        let own = TaskIndices::of(1, 10, 4).unwrap();
        assert_eq!(own.indices().collect::<Vec<_>>(), [1, 5, 9]);
        for (first, last, step) in [(0, 1, 1), (2, 1, 1), (1, 2, 0), (1, 1 << 33, 1)] {
            assert!(TaskIndices::of(first, last, step).is_err());
        }
        assert!(TaskIndices::of(1, 2_000_000, 1).is_err());
    }
}
