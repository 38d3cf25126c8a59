//! Nodes that no file names: how they come and go, and which partitions they are in. A removed node keeps its place, as
//! records of jobs name places; whether nobody does any more is decided before another node takes it.

use super::node;
use crate::state::State;
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use muster_model::ids::NodeIdx;
use muster_model::node::{Node, NodeConfig, NodeLink};
use muster_model::time::Timestamp;
use std::collections::HashSet;

pub(super) fn create_nodes(state: &mut State, nodes: &[(NodeIdx, NodeConfig)], at: Timestamp) {
    let saves_power = state.config.as_ref().is_some_and(|c| c.power.is_some());
    for (idx, config) in nodes {
        let mut created = Node::new(*idx, config, at);
        if !saves_power {
            node::leave_power_saving(&mut created);
        }
        match state.nodes.get_mut(idx.0 as usize) {
            Some(place) => *place = created,
            None => state.nodes.push(created),
        }
    }
    follow_membership(state);
}

pub(super) fn delete_nodes(state: &mut State, nodes: &[NodeIdx]) {
    for idx in nodes {
        if let Some(node) = state.nodes.get_mut(idx.0 as usize) {
            node.removed = true;
            node.link = NodeLink::Never;
        }
    }
    follow_membership(state);
}

/// Brings partitions, and all that depends on them, to what the nodes are now.
pub(super) fn follow_membership(state: &mut State) {
    take_in(&mut state.partitions, &state.nodes);
    state.rebuild_indexes();
    state.follow_partitions();
}

/// Puts nodes that no file names into the partitions that take them, and takes out those that are gone or fit no more.
pub(crate) fn take_in<'a>(
    partitions: &mut [PartitionConfig],
    nodes: impl IntoIterator<Item = &'a Node>,
) {
    let mut named = HashSet::new();
    let mut dynamic = Vec::new();
    for node in nodes {
        if !node.removed {
            named.insert(node.config.name.as_str());
        }
        if node.config.dynamic {
            dynamic.push(node);
        }
    }
    if dynamic.is_empty() {
        return;
    }
    let removed = dynamic.iter().filter(|node| node.removed);
    let gone: HashSet<&str> = removed
        .map(|node| node.config.name.as_str())
        .filter(|name| !named.contains(name))
        .collect();
    for partition in partitions {
        let by_rule = partition.takes_all || !partition.takes_features.is_empty();
        let leaves: HashSet<&str> = dynamic
            .iter()
            .filter(|node| by_rule && !node.removed && !partition.takes(&node.config))
            .map(|node| node.config.name.as_str())
            .collect();
        let before = partition.nodes.len();
        let stays =
            |name: &String| !leaves.contains(name.as_str()) && !gone.contains(name.as_str());
        partition.nodes.retain(stays);
        if partition.nodes.len() != before && !by_rule {
            partition.nodes_text = hostlist::compress(&partition.nodes);
        }
        if !by_rule {
            continue;
        }
        let members: HashSet<String> = partition.nodes.iter().cloned().collect();
        let joining = dynamic.iter().filter(|node| {
            !node.removed && partition.takes(&node.config) && !members.contains(&node.config.name)
        });
        let joining: Vec<String> = joining.map(|node| node.config.name.clone()).collect();
        partition.nodes.extend(joining);
    }
}
