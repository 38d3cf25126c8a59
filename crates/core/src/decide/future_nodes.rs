//! Nodes in state FUTURE: `scontrol update NodeName= State=FUTURE`, and hosts that take one (`slurmd -F`).

use super::draft::Draft;
use super::dynamic_nodes::check_host;
use crate::event::{Event, NodeChange};
use muster_model::command::Reply;
use muster_model::ids::NodeIdx;
use muster_model::node::{Node, NodeLink};
use muster_model::node_host::FutureHost;
use muster_model::refusal::{Refusal, RefusalCode};

fn invalid_state(detail: String) -> Refusal {
    Refusal::new(RefusalCode::InvalidNodeState, detail)
}

/// Whether nodes can become FUTURE: nothing of anybody is on them.
pub(super) fn check_idle(draft: &Draft<'_>, nodes: &[NodeIdx]) -> Result<(), Refusal> {
    for idx in nodes {
        let Some(node) = draft.node(*idx) else {
            continue;
        };
        let name = &node.config.name;
        if let Some(job) = node.jobs.first() {
            return Err(invalid_state(format!(
                "job {job} is on node {name}: drain the node, and set State=FUTURE when no job is there"
            )));
        }
        if node.power.is_some() || node.reboot.is_some() {
            return Err(invalid_state(format!(
                "node {name} is in power saving or about to be rebooted: set State=FUTURE when that is over"
            )));
        }
    }
    Ok(())
}

/// Refuses a change of FUTURE nodes that only existing nodes can carry out.
pub(super) fn refuse_what_needs_a_node(
    draft: &Draft<'_>,
    nodes: &[NodeIdx],
) -> Result<(), Refusal> {
    let mut nodes = nodes.iter().filter_map(|idx| draft.node(*idx));
    match nodes.find(|node| node.future) {
        Some(node) => Err(invalid_state(format!(
            "node {} is FUTURE: State=RESUME makes it available first",
            node.config.name
        ))),
        None => Ok(()),
    }
}

/// A node becomes FUTURE. The agent of a host that has taken it is not the node's any more.
pub(super) fn leave(draft: &mut Draft<'_>, idx: NodeIdx) {
    let Some(node) = draft.node(idx) else {
        return;
    };
    if node.line_host.is_some() && node.link == NodeLink::Up {
        change(draft, idx, NodeChange::LinkLost);
    }
    change(draft, idx, NodeChange::Future);
}

/// Gives a host the node that it has, or the first in state FUTURE that fits.
pub(super) fn take(draft: &mut Draft<'_>, asked: &FutureHost) -> Result<Option<Reply>, Refusal> {
    check_host(&asked.host).map_err(|what| Refusal::new(RefusalCode::InvalidValue, what))?;
    let own = |node: &&Node| {
        !node.removed
            && node.line_host.is_some()
            && node.config.hostname == asked.host.hostname
            && !node.config.hostname.is_empty()
    };
    let free = |node: &&Node| {
        !node.removed && node.future && node.link != NodeLink::Up && node.config.is_like(asked)
    };
    let nodes = &draft.state.nodes;
    let found = nodes.iter().find(own).or_else(|| nodes.iter().find(free));
    let Some(node) = found else {
        return Err(none_fits(asked));
    };
    let (idx, name) = (node.idx, &node.config.name);
    let has_moved = node.line_host.is_some() && node.config.addr != asked.host.addr;
    if has_moved && node.link == NodeLink::Up {
        return Err(Refusal::new(
            RefusalCode::Busy,
            format!(
                "host {} is node {name} already, at {}, and its agent is connected",
                asked.host.hostname, node.config.addr
            ),
        ));
    }
    if node.future {
        change(draft, idx, NodeChange::Resume);
    }
    change(draft, idx, NodeChange::Taken(Box::new(asked.host.clone())));
    let config = draft.node(idx).map(|node| node.config.clone());
    Ok(config.map(|config| Reply::NodeTaken(Box::new(config))))
}

fn none_fits(asked: &FutureHost) -> Refusal {
    let feature = asked.feature.as_ref();
    let feature = feature.map_or_else(String::new, |feature| {
        format!(" with the feature {}", feature.escape_debug())
    });
    Refusal::new(
        RefusalCode::InvalidNode,
        format!(
            "no node in state FUTURE{feature} has Sockets={} CoresPerSocket={} ThreadsPerCore={}",
            asked.sockets, asked.cores_per_socket, asked.threads_per_core
        ),
    )
}

fn change(draft: &mut Draft<'_>, node: NodeIdx, change: NodeChange) {
    let at = draft.now;
    draft.emit(Event::NodeChanged { node, change, at });
}
