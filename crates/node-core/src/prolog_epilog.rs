//! Programs of the site that run before and after a job.

use crate::{JobContainer, JobTmpDir};
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;

/// Programs of the site around a job: none of them is the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct PrologEpilog {
    /// Run before anything of the job; if one fails, the job does not start.
    #[n(0)]
    pub prolog: Vec<String>,
    /// Run after the job's last process has ended.
    #[n(1)]
    pub epilog: Vec<String>,
    /// Environment, as `NAME=value`.
    #[n(2)]
    pub env: Vec<String>,
    /// Seconds after which they are killed, and count as failed.
    #[n(3)]
    pub prolog_timeout_s: Option<u32>,
    /// Likewise for the epilog.
    #[n(4)]
    pub epilog_timeout_s: Option<u32>,
    /// Directories that are made between prolog and job, and removed after the epilog.
    #[n(5)]
    pub container: Option<Box<JobContainer>>,
    /// The temporary directory of a Grid Engine job, which its processes create and which is removed after it.
    #[n(6)]
    pub tmp_dir: Option<Box<JobTmpDir>>,
}
