//! Identities. Ids are never reused; what a user sees as a job id is the same number.

use crate::validate::{Fault, Validate};
use minicbor::{Decode, Encode};
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A job's number. Array tasks get a number of their own when they leave the array's record.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate,
)]
#[cbor(transparent)]
pub struct JobId(
    #[n(0)]
    #[valid(max = i64::MAX)]
    pub u64,
);

/// A node's place in `muster_core::state::State::nodes`; stable for the life of the cluster.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate,
)]
#[cbor(transparent)]
pub struct NodeIdx(#[n(0)] pub u32);

/// The n-th launch of a job, from 1. Messages of an earlier attempt are ignored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate,
)]
#[cbor(transparent)]
pub struct Attempt(#[n(0)] pub u32);

/// One launch of a job: an attempt is never launched twice.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate,
)]
pub struct JobAttempt {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// Which launch of it.
    #[n(1)]
    pub attempt: Attempt,
}

impl JobAttempt {
    /// This attempt of a job.
    #[must_use]
    pub fn new(job: JobId, attempt: Attempt) -> JobAttempt {
        JobAttempt { job, attempt }
    }
}

/// A step's number inside its job: 0, 1, ... for `srun` steps, and a few that Slurm gives names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
#[cbor(transparent)]
#[valid(with = StepNo::check)]
pub struct StepNo(#[n(0)] pub u32);

impl StepNo {
    /// The batch script: `JOB.batch`.
    pub const BATCH: StepNo = StepNo(u32::MAX);
    /// The container of processes that did not come through a step: `JOB.extern`.
    pub const EXTERN: StepNo = StepNo(u32::MAX - 1);
    /// The highest number that a step of srun can have. Nodes keep other things under higher ones.
    pub const COUNTED_MAX: u32 = (1 << 30) - 1;

    fn check(&self) -> Result<(), Fault> {
        match *self {
            StepNo(..=StepNo::COUNTED_MAX) => Ok(()),
            StepNo::BATCH | StepNo::EXTERN | StepNo::INTERACTIVE => Ok(()),
            StepNo(_) => Err(Fault::Malformed("is the number of no step")),
        }
    }

    /// The shell of `salloc` with `LaunchParameters=use_interactive_step`: `JOB.interactive`.
    pub const INTERACTIVE: StepNo = StepNo(u32::MAX - 2);
}

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId {
    /// The job it belongs to.
    pub job: JobId,
    /// Its number there.
    pub step: StepNo,
}

/// Content address (SHA-256) of a script or an execution context, so that what thousands of jobs share is kept once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
#[cbor(transparent)]
pub struct BlobId(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub [u8; 32],
);

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for b in &self.0[..6] {
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// As sacct names steps: `batch`, `extern`, `interactive`, or a number.
impl FromStr for StepNo {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<StepNo, ParseIntError> {
        match text {
            "batch" => Ok(StepNo::BATCH),
            "extern" => Ok(StepNo::EXTERN),
            "interactive" => Ok(StepNo::INTERACTIVE),
            number => number.parse().map(StepNo),
        }
    }
}

impl fmt::Display for StepNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StepNo::BATCH => f.pad("batch"),
            StepNo::EXTERN => f.pad("extern"),
            StepNo::INTERACTIVE => f.pad("interactive"),
            StepNo(n) => n.fmt(f),
        }
    }
}

impl StepId {
    /// The step of that number.
    pub fn new(job: JobId, step: StepNo) -> StepId {
        StepId { job, step }
    }
}

/// A step in one attempt of its job: a node may still have the step of an earlier attempt under the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptStep {
    /// The attempt it belongs to.
    pub attempt: JobAttempt,
    /// Its number there.
    pub step: StepNo,
}

impl AttemptStep {
    /// The step of that number.
    pub fn new(attempt: JobAttempt, step: StepNo) -> AttemptStep {
        AttemptStep { attempt, step }
    }

    /// The step as users name it.
    pub fn id(self) -> StepId {
        StepId::new(self.attempt.job, self.step)
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was a pair in versions that launchers may still run.
    #[test]
    fn an_attempt_is_encoded_as_a_pair() {
        let attempt = JobAttempt::new(JobId(7), Attempt(300));
        let bytes = minicbor::to_vec(attempt).unwrap();
        assert_eq!(bytes, minicbor::to_vec((7_u64, 300_u32)).unwrap());
        assert_eq!(minicbor::decode::<JobAttempt>(&bytes).unwrap(), attempt);
    }
}
