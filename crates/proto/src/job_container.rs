//! Settings of private directories of jobs for nodes, from job_container.conf(5).

use minicbor::{Decode, Encode};
use muster_model::limits::HOSTLIST_BYTES_MAX;
use muster_model::validate::Validate;

/// A line of job_container.conf with `JobContainerType=job_container/tmpfs`, or the settings for all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ContainerSettings {
    /// `NodeName`; empty for all nodes, and for the node that gets this.
    #[n(0)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub nodes: String,
    /// `BasePath`, where `%h` stands for the host's name.
    #[n(1)]
    pub base: String,
    /// `AutoBasePath`.
    #[n(2)]
    pub auto_base: bool,
    /// `Dirs`.
    #[n(3)]
    pub dirs: Vec<String>,
    /// `Shared`.
    #[n(4)]
    pub shared: bool,
    /// `InitScript`.
    #[n(5)]
    pub init_script: Option<String>,
    /// `CloneNSScript`.
    #[n(6)]
    pub clone_script: Option<String>,
    /// `CloneNSScript_Wait`, seconds.
    #[n(7)]
    pub clone_script_wait_s: u32,
    /// `CloneNSEpilog`.
    #[n(8)]
    pub clone_epilog: Option<String>,
    /// `CloneNSEpilog_Wait`, seconds.
    #[n(9)]
    pub clone_epilog_wait_s: u32,
}

/// Default time limit of a script of job_container.conf, seconds.
pub const SCRIPT_WAIT_S: u32 = 10;

impl Default for ContainerSettings {
    /// As a line that says nothing.
    fn default() -> ContainerSettings {
        ContainerSettings {
            nodes: String::new(),
            base: String::new(),
            auto_base: false,
            dirs: vec!["/tmp".to_owned(), SHARED_MEMORY.to_owned()],
            shared: false,
            init_script: None,
            clone_script: None,
            clone_script_wait_s: SCRIPT_WAIT_S,
            clone_epilog: None,
            clone_epilog_wait_s: SCRIPT_WAIT_S,
        }
    }
}

/// The directory that is not made in `BasePath`, but in memory.
pub const SHARED_MEMORY: &str = "/dev/shm";
