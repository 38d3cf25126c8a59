//! The network as placement sees it: the leaf (switch or block) of each node, the groups of leaves
//! above, and for each partition the free CPUs at each leaf, so that the best leaf is found without
//! looking at nodes of other leaves.

use crate::nodes::class::NOWHERE;
use muster_core::state::State;
use muster_model::topology::{Topology, TopologyKind};
use std::collections::BTreeSet;
use std::ops::Range;

/// One network.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// Leaf by node. Leaves below one switch have consecutive numbers. A node without a switch is a
    /// leaf of its own, in no group.
    pub(crate) leaf_of: Vec<u32>,
    pub(crate) leaves: u32,
    /// Groups of leaves by level, from the lowest level above the leaves on.
    pub(crate) levels: Vec<Vec<Range<u32>>>,
    /// Planned number of nodes of a leaf and of a group of each level: a job that fits into that
    /// many nodes must get them together (topology/block).
    sizes: Vec<u32>,
    /// The network matters only for jobs with `--switches`.
    pub(crate) optional: bool,
    /// Leaves are blocks.
    pub(crate) blocks: bool,
}

impl Network {
    /// The network over the nodes of the state; `None` if it is flat.
    pub(crate) fn new(topology: &Topology, state: &State) -> Option<Network> {
        let (order, levels) = match topology.kind {
            TopologyKind::Flat => return None,
            TopologyKind::Tree => tree(topology),
            TopologyKind::Block => blocks(topology),
        };
        let mut network = Network {
            leaf_of: vec![NOWHERE; state.nodes.len()],
            leaves: count(order.len()),
            levels,
            sizes: match topology.kind {
                TopologyKind::Block => topology.block_sizes.clone(),
                _ => Vec::new(),
            },
            optional: topology.optional,
            blocks: topology.kind == TopologyKind::Block,
        };
        for (place, leaf) in order.into_iter().zip(0..) {
            for name in topology.nodes_at(place) {
                let node = state.node_by_name.get(&name);
                if let Some(at) = node.and_then(|n| network.leaf_of.get_mut(n.0 as usize)) {
                    *at = leaf;
                }
            }
        }
        for leaf in network.leaf_of.iter_mut().filter(|leaf| **leaf == NOWHERE) {
            *leaf = network.leaves;
            network.leaves += 1;
        }
        Some(network)
    }

    /// Number of levels that a job of that many nodes may spread over: 0 is one leaf. All levels unless the network
    /// consists of blocks.
    pub(crate) fn levels_for(&self, nodes: u32) -> usize {
        let fitting = self.sizes.iter().position(|size| nodes <= *size);
        fitting.map_or(self.levels.len(), |level| level.min(self.levels.len()))
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 switches and nodes")
}

/// Leaves in the order of a walk from the roots, and the groups by level.
fn tree(topology: &Topology) -> (Vec<u32>, Vec<Vec<Range<u32>>>) {
    let parents = topology.parents();
    let highest = topology.switches.iter().map(|s| s.level).max().unwrap_or(0);
    let mut levels = vec![Vec::new(); highest as usize];
    let mut order = Vec::new();
    // The walk reaches a switch twice: on the way down, and after everything below it.
    let roots = (0..count(topology.switches.len())).filter(|s| parents[*s as usize].is_none());
    let mut open: Vec<(u32, Option<u32>)> = roots.map(|root| (root, None)).collect();
    open.reverse();
    while let Some((place, from)) = open.pop() {
        let switch = &topology.switches[place as usize];
        if let Some(from) = from {
            levels[switch.level as usize - 1].push(from..count(order.len()));
        } else if switch.children.is_empty() {
            order.push(place);
        } else {
            open.push((place, Some(count(order.len()))));
            open.extend(switch.children.iter().rev().map(|child| (*child, None)));
        }
    }
    (order, levels)
}

/// Blocks in the order of the file, in groups of the planned sizes, and one group of all blocks.
fn blocks(topology: &Topology) -> (Vec<u32>, Vec<Vec<Range<u32>>>) {
    let all = count(topology.switches.len());
    let base = topology.block_sizes.first().copied().unwrap_or(1).max(1);
    let mut levels: Vec<Vec<Range<u32>>> = Vec::new();
    for size in topology.block_sizes.iter().skip(1) {
        let width = (size / base).max(1);
        let starts = (0..all).step_by(width as usize);
        levels.push(starts.map(|from| from..(from + width).min(all)).collect());
    }
    levels.push(std::iter::once(0..all).collect());
    ((0..all).collect(), levels)
}

/// Free CPUs at the leaf switches, for one partition.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    /// Places in the partition's order, by leaf.
    pub(crate) places: Vec<Vec<Range<u32>>>,
    leaf_of: Vec<u32>,
    cpus: Vec<u32>,
    busy: Vec<bool>,
    free: Vec<u64>,
    jobs: Vec<u32>,
    /// Leaves that jobs already use come before empty ones; within these, fewest free CPUs first.
    order: BTreeSet<(bool, u64, u32)>,
}

impl Leaves {
    /// Builds the counts from nodes in the partition's order, in which nodes of one leaf and weight
    /// are adjacent.
    pub(crate) fn new(network: &Network, nodes: &[u32]) -> Leaves {
        let mut leaves = Leaves {
            places: vec![Vec::new(); network.leaves as usize],
            leaf_of: nodes
                .iter()
                .map(|&node| network.leaf_of[node as usize])
                .collect(),
            cpus: vec![0; nodes.len()],
            busy: vec![false; nodes.len()],
            free: vec![0; network.leaves as usize],
            jobs: vec![0; network.leaves as usize],
            order: BTreeSet::new(),
        };
        for (&leaf, pos) in leaves.leaf_of.iter().zip(0u32..) {
            let places = &mut leaves.places[leaf as usize];
            match places.last_mut() {
                Some(last) if last.end == pos => last.end = pos + 1,
                _ => places.push(pos..pos + 1),
            }
        }
        for leaf in (0..network.leaves).filter(|l| !leaves.places[*l as usize].is_empty()) {
            leaves.order.insert((true, 0, leaf));
        }
        leaves
    }

    /// The leaf of the node at a place.
    pub(crate) fn leaf_at(&self, pos: usize) -> u32 {
        self.leaf_of[pos]
    }

    /// Updates the room at a place.
    pub(crate) fn set(&mut self, pos: usize, cpus: u32, busy: bool) {
        if self.cpus[pos] == cpus && self.busy[pos] == busy {
            return;
        }
        let leaf = self.leaf_of[pos];
        let at = leaf as usize;
        self.order
            .remove(&(self.jobs[at] == 0, self.free[at], leaf));
        self.free[at] = self.free[at] + u64::from(cpus) - u64::from(self.cpus[pos]);
        self.jobs[at] = self.jobs[at] + u32::from(busy) - u32::from(self.busy[pos]);
        (self.cpus[pos], self.busy[pos]) = (cpus, busy);
        self.order.insert((self.jobs[at] == 0, self.free[at], leaf));
    }

    /// Leaves with at least that many free CPUs, the smallest first.
    pub(crate) fn with_free(&self, cpus: u64) -> impl Iterator<Item = u32> {
        let used = self.order.range((false, cpus, 0)..(true, 0, 0));
        let empty = self.order.range((true, cpus, 0)..);
        used.chain(empty).map(|(.., leaf)| *leaf)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a level may be one group")]
mod tests {
    use super::*;
    use muster_model::topology::Switch;

    fn switch(nodes: &str, children: &[u32], level: u32) -> Switch {
        Switch {
            nodes: nodes.into(),
            children: children.to_vec(),
            level,
            ..Switch::default()
        }
    }

    #[test]
    fn leaves_below_a_switch_follow_each_other() {
        let topology = Topology {
            kind: TopologyKind::Tree,
            switches: vec![
                switch("a", &[], 0),
                switch("", &[0, 3], 1),
                switch("b", &[], 0),
                switch("c", &[], 0),
                switch("", &[2, 1], 2),
            ],
            ..Topology::default()
        };
        let (order, levels) = tree(&topology);
        assert_eq!(order, [2, 0, 3]);
        assert_eq!(levels, [Vec::from([1..3]), Vec::from([0..3])]);
    }

    #[test]
    fn blocks_stand_in_groups() {
        let topology = Topology {
            kind: TopologyKind::Block,
            switches: vec![Switch::default(); 5],
            block_sizes: vec![4, 8],
            ..Topology::default()
        };
        let groups = [Vec::from([0..2, 2..4, 4..5]), Vec::from([0..5])];
        assert_eq!(blocks(&topology).1, groups);
    }
}
