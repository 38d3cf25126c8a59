//! PMIx for the tasks of a step. A *host* is a process beside the step daemon, executed afresh as the job's user, that opens
//! the real libpmix, serves the tasks of its node through it, and exchanges with the hosts of the step's other nodes
//! the data that tasks need of each other. As a process of its own the host keeps the step daemon single-threaded, keeps root's
//! privileges out of a library that users connect to, and limits a crash of that library to itself.
//!
//! The host knows nothing of how tasks are started: the step daemon tells it about them and
//! receives its messages in the form of [`control`].
#![warn(missing_docs)]

mod collective;
pub mod control;
mod descriptors;
mod ends;
mod exchange;
pub mod fuzzing;
mod handshake;
mod host;
mod info;
mod job;
mod lane;
mod library;
mod link;
mod mesh;
pub mod pmi;
mod rehearsal;
mod server;
mod srun;
mod sys;
mod ucx;
mod upcall;
mod wire;

pub use ends::Endpoints;
pub use host::{HostSetup, Tuning, run};
pub use job::TaskOwner;
pub use library::{Library, library};
pub use rehearsal::{FenceFigures, rehearse_fence};
pub use ucx::{UcxChoice, ucx_version};

use minicbor::{Decode, Encode};
use muster_model::validate::Validate;

/// A process, as PMIx names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Validate)]
pub struct ProcName {
    /// Name space: one for each step.
    #[n(0)]
    pub nspace: String,
    /// Rank in it, or [`RANK_ALL`].
    #[n(1)]
    pub rank: u32,
}

/// Wildcard for all ranks of a name space.
pub const RANK_ALL: u32 = u32::MAX - 1;

/// Status codes of PMIx that this crate uses.
pub(crate) mod status {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const ERROR: i32 = -1;
    pub(crate) const TIMEOUT: i32 = -24;
    pub(crate) const BAD_PARAM: i32 = -27;
    pub(crate) const NOT_FOUND: i32 = -46;
    pub(crate) const NOT_SUPPORTED: i32 = -47;
    pub(crate) const PARTIAL_SUCCESS: i32 = -52;
    pub(crate) const DUPLICATE_KEY: i32 = -53;
    pub(crate) const LOST_CONNECTION: i32 = -61;
    pub(crate) const OPERATION_SUCCEEDED: i32 = -157;
}
