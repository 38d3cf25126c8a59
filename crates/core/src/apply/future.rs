//! Nodes in state FUTURE: how they become so, and how hosts take them.

use super::node::set_service;
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
        host.set_in(&mut node.config);
    }
}

/// A host has a node.
pub(super) fn take(node: &mut Node, host: &NodeHost) {
    let line = NodeHost::of(&node.config);
    node.line_host.get_or_insert(line);
    host.set_in(&mut node.config);
}

/// A node's line was read. What made it FUTURE, or took it out of that state, counts until the line says something else of that than
/// it did before.
pub(super) fn set_line(node: &mut Node, line: &NodeConfig) {
    let host = node.line_host.take().map(|_| NodeHost::of(&node.config));
    let before = std::mem::replace(&mut node.config, line.clone()).state;
    let (was, is) = (before, line.state);
    let is_named = |state| state == InitialState::Future;
    match (is_named(was), is_named(is)) {
        (false, true) if node.jobs.is_empty() => {
            set_service(node, ServiceMove::LeaveForFuture);
            leave(node);
        }
        (true, false) => {
            if std::mem::take(&mut node.future) {
                set_service(node, ServiceMove::Resume);
            }
        }
        (true | false, _) => {
            if let Some(host) = host {
                take(node, &host);
            }
        }
    }
}
