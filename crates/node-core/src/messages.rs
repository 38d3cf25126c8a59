//! Messages between the processes of a node, one file for each pair of peers. Variants and fields are numbered; a number is
//! never given to something else.

mod agent_launcher;
mod agent_stepd;
mod launcher_stepd;
mod step_order;

pub use agent_launcher::{
    AttachAgent, KnownJob, LauncherCommand, LauncherEvent, MachineClaim, TaskUsage,
};
pub use agent_stepd::{AgentToStepd, NextStep};
pub use launcher_stepd::{FirstOrder, RunningStep, StepBounds, StepdCommand, StepdEvent};
pub use step_order::{MemoryPolicy, PmixOrder, ProcessIdentity, StepOrder, TaskBinding, UcxOrder};

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::validate::Validate;
use muster_proto::version::Versions;

/// Versions of these messages that this release speaks. A launcher outlives updates of slurmd, and step daemons outlive
/// launchers: the newer side finds out which version the other speaks, and if that is too old, leaves it alone.
///
/// 2: the agent gives the launcher its orders by a pipe, and the launcher makes the control channels of step daemons.
/// 3: a TCP connection takes the place of the pipe.
pub const VERSIONS: Versions = Versions {
    oldest: 3,
    newest: 3,
};

/// Something that the launcher keeps of a job for the agent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct KeptEntry {
    /// Under which number; see [`crate::kept`].
    #[n(0)]
    pub key: u32,
    /// The encoded order, as the agent made it.
    #[n(1)]
    pub bytes: ByteVec,
}

/// The entries that the launcher stores of a job for the agent.
pub type KeptEntries = Vec<KeptEntry>;
