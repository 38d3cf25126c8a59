//! The agent's part in steps: the steps that it leads (`lead`), this node's part of any step (`node_steps`), and the
//! agents of their other nodes (`step_tree`).

use super::lead::LedSteps;
use super::node_steps::NodeSteps;
use super::sampling::Samples;
use super::step_tree::StepTree;
use super::stepds::Stepds;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) led: LedSteps,
    pub(super) node_steps: NodeSteps,
    pub(super) tree: StepTree,
    pub(super) stepds: Stepds,
    pub(super) samples: Samples,
}
