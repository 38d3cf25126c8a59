//! The numbers under which the launcher keeps what an agent wants back: a step's record under the step's own number, this node's
//! part of it under a higher one.

use muster_model::ids::StepNo;

/// Kept records of this node's part of a step have this number plus the step's.
const KEPT_NODE: u32 = 1 << 30;
/// Under this number the next step's number is kept.
pub const KEPT_NEXT: u32 = u32::MAX;

/// Under which number this node's part of a step is kept.
pub fn kept_of_node(step: StepNo) -> u32 {
    KEPT_NODE.saturating_add(step.0)
}

/// The step whose part on this node is kept under a number, if one is.
pub fn step_of_node(kept: u32) -> Option<StepNo> {
    kept.checked_sub(KEPT_NODE).map(StepNo)
}

/// Whether what is kept under a number is of this step.
pub fn is_kept_of(kept: u32, step: StepNo) -> bool {
    kept == step.0 || kept == kept_of_node(step)
}
