//! A configuration was read.

use super::draft::Draft;
use super::{calendar, triggers};
use crate::apply::dynamic::take_in;
use crate::event::Event;
use crate::state::State;
use muster_model::command::KeptPartitions;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::hostlist;
use muster_model::node::Node;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Takes it over, unless it is in force already.
pub(super) fn configure(draft: &mut Draft<'_>, config: &Arc<ClusterConfig>, keep: KeptPartitions) {
    let state = draft.state;
    let mut partitions = match (&state.config, keep) {
        (None, _) | (_, KeptPartitions::File) => config.partitions.clone(),
        (Some(_), KeptPartitions::States) => with_states(state, config),
        (Some(before), KeptPartitions::All) => merged(state, before, config),
    };
    calendar::ask_all(draft, config, &mut partitions);
    let same = state.config.as_ref().is_some_and(|known| known == config);
    let mut in_force = partitions.clone();
    let in_file: BTreeSet<&str> = config.nodes.iter().map(|line| line.name.as_str()).collect();
    let others = |node: &&Node| !in_file.contains(node.config.name.as_str());
    take_in(&mut in_force, state.nodes.iter().filter(others));
    if !same || state.partitions != in_force || has_changed_nodes(state, config) {
        let at = draft.now;
        draft.emit(Event::Configured {
            config: config.clone(),
            at,
            partitions: (partitions != config.partitions).then_some(partitions),
        });
    }
    in_force
        .iter()
        .for_each(|partition| calendar::follow(draft, partition));
    calendar::follow_removed(draft, &in_force);
    triggers::drop_those_of_users(draft, config);
}

/// Whether nodes have other features or weights than the file says, as an administrator changed them: reading the file
/// takes that back.
fn has_changed_nodes(state: &State, config: &ClusterConfig) -> bool {
    config.nodes.iter().any(|line| {
        let known = state.node_named(&line.name);
        known.is_some_and(|node| {
            node.config.features != line.features || node.config.weight != line.weight
        })
    })
}

/// The file's partitions, up or down as they are now.
fn with_states(state: &State, config: &ClusterConfig) -> Vec<PartitionConfig> {
    let mut partitions = config.partitions.clone();
    for partition in &mut partitions {
        if let Some(known) = state.partition(&partition.name) {
            partition.state = known.state;
        }
    }
    partitions
}

/// The partitions as they are now where the file is unchanged, and as in the file where it has changed.
fn merged(state: &State, before: &ClusterConfig, config: &ClusterConfig) -> Vec<PartitionConfig> {
    let line = |config: &ClusterConfig, name: &str| {
        let mut lines = config.partitions.iter();
        lines.find(|p| p.name == name).cloned()
    };
    let in_file = config.partitions.iter().filter_map(|new| {
        if line(before, &new.name).as_ref() == Some(new) {
            // Absent when it was deleted at run time.
            state.partition(&new.name).cloned()
        } else {
            Some(new.clone())
        }
    });
    let mut partitions: Vec<PartitionConfig> = in_file.collect();
    let made = state
        .partitions
        .iter()
        .filter(|p| line(config, &p.name).is_none() && line(before, &p.name).is_none());
    partitions.extend(made.cloned());
    let named: BTreeSet<&str> = config.nodes.iter().map(|line| line.name.as_str()).collect();
    let is_dynamic = |node: &Node| node.config.dynamic;
    let known = |node: &String| {
        named.contains(node.as_str()) || state.node_named(node).is_some_and(is_dynamic)
    };
    for partition in &mut partitions {
        if !partition.nodes.iter().all(known) {
            partition.nodes.retain(known);
            partition.nodes_text = hostlist::compress(&partition.nodes);
        }
    }
    one_default(&mut partitions, config);
    partitions
}

/// Keeps the file's default among several.
fn one_default(partitions: &mut [PartitionConfig], config: &ClusterConfig) {
    if partitions.iter().filter(|p| p.default).count() < 2 {
        return;
    }
    let by_file = config.partitions.iter().find(|p| p.default);
    for partition in partitions {
        partition.default &= by_file.is_some_and(|p| p.name == partition.name);
    }
}
