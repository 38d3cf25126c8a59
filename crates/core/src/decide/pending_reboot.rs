//! Reboots of nodes that were asked for and wait until nothing runs there.

use super::draft::Draft;
use crate::event::{Event, NodeChange};
use muster_model::ids::NodeIdx;
use muster_model::node::NodeLink;

/// Orders the reboot of a node that waits for it, once no job is there.
pub(super) fn order_if_idle(draft: &mut Draft<'_>, idx: NodeIdx) {
    let node = draft.node_but_for_jobs(idx);
    if node.is_none_or(|node| node.reboot.is_none()) {
        return;
    }
    let Some(node) = draft.node(idx) else {
        return;
    };
    let ready = node.jobs.is_empty() && node.link == NodeLink::Up;
    let waiting = node.reboot.clone().filter(|r| ready && r.issued.is_none());
    if let Some(mut reboot) = waiting {
        reboot.issued = Some(draft.now);
        change(draft, idx, NodeChange::Reboot(Some(reboot)));
    }
}

pub(super) fn change(draft: &mut Draft<'_>, node: NodeIdx, change: NodeChange) {
    let at = draft.now;
    draft.emit(Event::NodeChanged { node, change, at });
}
