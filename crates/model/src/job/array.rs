//! A job's part in an array, and what the tasks of an array share.

use super::Job;
use crate::ids::JobId;
use crate::index_set::IndexSet;
use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::fmt;

/// A job's part in an array.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub enum ArrayRole {
    /// Not in an array.
    #[default]
    #[n(0)]
    None,
    /// The array's own record: tasks that have not left it.
    #[n(1)]
    Pending {
        /// Their indices; never empty while the record is pending.
        #[n(0)]
        indices: IndexSet,
    },
    /// A task with a record of its own. The last task to leave takes over the array's record and number.
    #[n(2)]
    Task {
        /// The array's number (`%F`, `SLURM_ARRAY_JOB_ID`).
        #[n(0)]
        base: JobId,
        /// Its index (`%K`, `SLURM_ARRAY_TASK_ID`).
        #[n(1)]
        index: u32,
    },
}

/// A task of an array, by the array's number and its own index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
pub struct ArrayTask {
    /// The array's number (`%F`, `SLURM_ARRAY_JOB_ID`).
    #[n(0)]
    pub array: JobId,
    /// Its index (`%K`, `SLURM_ARRAY_TASK_ID`).
    #[n(1)]
    pub index: u32,
}

/// State that the tasks of an array share beyond their specification.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct ArrayInfo {
    /// Tasks with records of their own, by index.
    #[n(0)]
    pub tasks: BTreeMap<u32, JobId>,
    /// Tasks that run now, for `%limit`.
    #[n(1)]
    pub running: u32,
    /// `%limit`.
    #[n(2)]
    pub throttle: Option<u32>,
    /// Tasks at submission (`SLURM_ARRAY_TASK_COUNT`).
    #[n(3)]
    pub count: u32,
    /// Lowest index (`SLURM_ARRAY_TASK_MIN`).
    #[n(4)]
    pub min: u32,
    /// Highest index (`SLURM_ARRAY_TASK_MAX`).
    #[n(5)]
    pub max: u32,
    /// Stride of the indexes (`SLURM_ARRAY_TASK_STEP`).
    #[n(6)]
    pub step: u32,
    /// Tasks that have not left the array's record.
    #[n(7)]
    pub pending: u32,
    /// Tasks that are not over, those in the array's record included.
    #[n(8)]
    pub unfinished: u32,
    /// Tasks that ended otherwise than with exit code 0, those purged since included.
    #[n(9)]
    pub failed: u32,
    /// Tasks that have neither started nor ended yet.
    #[n(10)]
    pub unstarted: u32,
}

impl ArrayRole {
    /// The task that it is, if it has a record of its own.
    pub fn task(&self) -> Option<ArrayTask> {
        match *self {
            ArrayRole::Task { base: array, index } => Some(ArrayTask { array, index }),
            ArrayRole::None | ArrayRole::Pending { .. } => None,
        }
    }
}

/// `31_4`.
impl fmt::Display for ArrayTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.array, self.index)
    }
}

impl ArrayInfo {
    /// An array as listings show it: everything but the list of its tasks, which may be long.
    pub fn without_tasks(&self) -> ArrayInfo {
        ArrayInfo {
            tasks: BTreeMap::new(),
            ..*self
        }
    }
}

impl Job {
    /// Number of jobs that it represents: the tasks of an array that have not left it.
    #[inline]
    pub fn tasks(&self) -> u32 {
        match &self.array {
            ArrayRole::Pending { indices } => u32::try_from(indices.len()).unwrap_or(u32::MAX),
            ArrayRole::None | ArrayRole::Task { .. } => 1,
        }
    }

    /// The number it was submitted under: the array's for a task, else its own.
    #[inline]
    pub fn submission(&self) -> JobId {
        match self.array {
            ArrayRole::Task { base, .. } => base,
            ArrayRole::None | ArrayRole::Pending { .. } => self.id,
        }
    }

    /// Its position in the array, if it is a task with a record of its own.
    #[inline]
    pub fn task_index(&self) -> Option<u32> {
        match self.array {
            ArrayRole::Task { index, .. } => Some(index),
            ArrayRole::None | ArrayRole::Pending { .. } => None,
        }
    }
}
