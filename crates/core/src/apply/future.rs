//! Nodes in state FUTURE: how they become so, and how hosts take them.

use crate::node_transition::ServiceMove;
use muster_model::node::{Node, NodeConfig};
use muster_model::node_host::NodeHost;
use muster_model::node_state::InitialState;

/// A node is in state FUTURE, and no host has it any more.
pub(super) fn leave(node: &mut Node) {
    node.future = true;
    node.reason = None;
    node.launch_failures = 0;
    if let Some(host) = node.line_host.take() {
        node.config.set_host(&host);
    }
}

/// A host has a node.
pub(super) fn take(node: &mut Node, host: &NodeHost) {
    let line = node.config.host();
    node.line_host.get_or_insert(line);
    node.config.set_host(host);
}

/// A node's line was read. What made it FUTURE, or took it out of that state, counts until the line says something else of that than
/// it did before: then whether it takes jobs changes as the move says.
pub(super) fn set_line(node: &mut Node, line: &NodeConfig) -> Option<ServiceMove> {
    let host = node.line_host.take().map(|_| node.config.host());
    let before = std::mem::replace(&mut node.config, line.clone()).state;
    let is_future = |state| state == InitialState::Future;
    match (is_future(before), is_future(line.state)) {
        (false, true) if node.jobs.is_empty() => {
            leave(node);
            Some(ServiceMove::LeaveForFuture)
        }
        (true, false) => std::mem::take(&mut node.future).then_some(ServiceMove::Resume),
        (true | false, _) => {
            if let Some(host) = host {
                take(node, &host);
            }
            None
        }
    }
}
