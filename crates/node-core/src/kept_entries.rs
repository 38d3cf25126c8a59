//! Under which numbers the launcher keeps what the agent wants back of a job: a step's record under the step's own, this node's
//! part of a step in another range.

use muster_core::ids::StepNo;

/// The first number of parts of steps. Numbers of steps are below.
pub const KEPT_NODE: u32 = 1 << 30;

/// Under which number this node's part of a step is kept.
pub fn kept_of_node(step: StepNo) -> u32 {
    KEPT_NODE.saturating_add(step.0)
}

/// Whether what is kept under a number is of this step.
pub fn is_kept_of(kept: u32, step: StepNo) -> bool {
    kept == step.0 || kept == kept_of_node(step)
}
