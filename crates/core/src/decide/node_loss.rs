//! Nodes that are lost: set down, or without what runs there.

use super::draft::Draft;
use super::ending;
use crate::event::{Event, NodeChange};
use muster_model::ids::NodeIdx;
use muster_model::node::NodeReason;

/// Slurm's words for a node that does not answer; `ReturnToService=1` goes by them.
pub(super) const NOT_RESPONDING: &str = "Not responding";

/// Takes a node out of service with all that runs on it.
pub(super) fn set_down(draft: &mut Draft<'_>, idx: NodeIdx, text: &str, uid: u32) {
    let now = draft.now;
    let Some(node) = draft.node(idx) else {
        return;
    };
    // Why it was drained before stays the better answer to a node that only fell silent.
    let kept = node
        .reason
        .clone()
        .filter(|_| text == NOT_RESPONDING && (node.drain || node.fail));
    let reason = kept.unwrap_or_else(|| NodeReason {
        text: text.to_owned(),
        uid,
        since: now,
    });
    draft.emit(Event::NodeChanged {
        node: idx,
        change: NodeChange::Down(reason),
        at: now,
    });
    lose_all(draft, idx);
}

/// Everything that ran on a node is gone.
pub(super) fn lose_all(draft: &mut Draft<'_>, idx: NodeIdx) {
    let jobs = draft.node(idx).map(|n| n.jobs.clone()).unwrap_or_default();
    for id in jobs {
        ending::lose_node(draft, id, idx);
    }
}

/// Whether a node was set down because it fell silent, as far as its reason tells.
pub(super) fn fell_silent(reason: Option<&NodeReason>) -> bool {
    reason.is_some_and(|r| r.text.starts_with(NOT_RESPONDING))
}
