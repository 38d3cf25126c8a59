//! Directories that a job has to itself.

use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::job_container::ContainerSettings;
use std::path::PathBuf;

/// The variable with the first of them that is on disk.
pub(crate) const SCRATCH: &str = "SLURM_JOB_SCRATCH";

/// A job's private directories, from job_container.conf at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct JobContainer {
    /// The directory of all private directories; its name consists of numbers.
    #[n(0)]
    pub path: PathBuf,
    /// The settings of the site.
    #[n(1)]
    pub settings: ContainerSettings,
    /// Owner of the directories.
    #[n(2)]
    pub uid: u32,
    /// The owner's group.
    #[n(3)]
    pub gid: u32,
    /// Paths that the job must be able to reach: no directory of its own may hide them.
    #[n(4)]
    pub must_see: Vec<PathBuf>,
}

impl JobContainer {
    /// The file on which the job's mount namespace is mounted, so that it lasts without a process.
    pub fn namespace(&self) -> PathBuf {
        self.path.join(".ns")
    }

    /// The directory that the job sees in the place of a directory of `Dirs`.
    pub fn source(&self) -> PathBuf {
        self.path.join("dirs")
    }
}
