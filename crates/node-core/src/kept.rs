//! Numbers of the entries that the launcher stores for the agent: a step's record under the step's own number, and
//! this node's part of it under a higher one; and the format of the latter.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::ids::{JobAttempt, StepNo};

/// Kept records of this node's part of a step have this number plus the step's.
const KEPT_NODE: u32 = 1 << 30;
/// Under this number the next step's number is kept.
pub const KEPT_NEXT: u32 = u32::MAX;

/// The stored entry of this node's part of a step, from which the agent can report its end.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct KeptNodeStep {
    /// The job's launch.
    #[n(0)]
    pub attempt: JobAttempt,
    /// The node's place in the step.
    #[n(1)]
    pub position: u32,
    /// The agent that leads the step.
    #[n(2)]
    pub lead: String,
    /// The agent above in the tree, if that is not the lead.
    #[n(3)]
    pub above: Option<String>,
    /// The step's key, which its daemon requests; absent in records of earlier versions.
    #[n(4)]
    #[cbor(default)]
    pub step_key: Option<ByteVec>,
}

/// Under which number this node's part of a step is kept.
pub fn kept_of_node(step: StepNo) -> u32 {
    KEPT_NODE.saturating_add(step.0)
}

/// The step whose part on this node is kept under a number, if one is.
pub fn step_of_node(kept: u32) -> Option<StepNo> {
    kept.checked_sub(KEPT_NODE).map(StepNo)
}

/// Whether the entry under a number belongs to this step.
pub fn is_kept_of(kept: u32, step: StepNo) -> bool {
    kept == step.0 || kept == kept_of_node(step)
}
