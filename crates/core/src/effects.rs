//! Orders that follow from events.

use crate::effect::Effect;
use crate::event::Event;
use crate::ids::{Attempt, JobId, NodeIdx};
use crate::state::State;

impl State {
    /// What leaves the controller because of `event`, which was just applied (no later one was).
    pub fn effects_of(&self, event: &Event) -> Vec<Effect> {
        let _ = event;
        Vec::new()
    }

    /// What to send to a node that registered with `present`, after the events of its registration were applied:
    /// launches of what it should run and lacks, ends of what it has and should not.
    pub fn orders_for_node(&self, node: NodeIdx, present: &[(JobId, Attempt)]) -> Vec<Effect> {
        let _ = (node, present);
        Vec::new()
    }
}
