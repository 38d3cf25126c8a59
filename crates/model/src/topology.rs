//! The network's shape as the configuration describes it: nodes that share a switch or block, and the levels above
//! them. Plain data and the names that users see; its use in placement is the scheduler's matter.

use crate::hostlist;
use crate::validate::Validate;
use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// One description of the network. A cluster may have several; a partition uses the one it names.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Topology {
    /// `topology:` of topology.yaml; `default` for topology.conf.
    #[n(0)]
    pub name: String,
    /// The kind of network.
    #[n(1)]
    pub kind: TopologyKind,
    /// Switches (or blocks), in the order of the file.
    #[n(2)]
    pub switches: Vec<Switch>,
    /// `BlockSizes`: nodes of a block that is planned for, and of the groups of blocks above it, ascending.
    #[n(3)]
    pub block_sizes: Vec<u32>,
    /// Used by partitions that name none (`cluster_default`).
    #[n(4)]
    pub cluster_default: bool,
    /// `TopologyParam=TopoOptional`: only jobs that ask for `--switches` are placed by it.
    #[n(5)]
    pub optional: bool,
}

/// Kinds of networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum TopologyKind {
    /// Every node is as near to every other.
    #[default]
    #[n(0)]
    Flat,
    /// Switches above switches above nodes.
    #[n(1)]
    Tree,
    /// Blocks of nodes, in groups of growing size.
    #[n(2)]
    Block,
}

/// A switch or a block.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Switch {
    /// `SwitchName`, `BlockName`.
    #[n(0)]
    pub name: String,
    /// Nodes at it, as a hostlist; empty for a switch above others.
    #[n(1)]
    pub nodes: String,
    /// Switches below it: places in [`Topology::switches`].
    #[n(2)]
    pub children: Vec<u32>,
    /// `LinkSpeed`, in units of the site's choice; shown only.
    #[n(3)]
    pub link_speed: u32,
    /// 0 for a leaf, else one more than the highest below.
    #[n(4)]
    pub level: u32,
}

/// The place of a node in the network, as jobs have it in their environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyAddress {
    /// `SLURM_TOPOLOGY_ADDR`.
    pub address: String,
    /// `SLURM_TOPOLOGY_ADDR_PATTERN`.
    pub pattern: String,
}

impl Topology {
    /// For each switch the one above it.
    pub fn parents(&self) -> Vec<Option<u32>> {
        let mut parents = vec![None; self.switches.len()];
        for (switch, place) in self.switches.iter().zip(0u32..) {
            for child in &switch.children {
                if let Some(parent) = parents.get_mut(*child as usize) {
                    *parent = Some(place);
                }
            }
        }
        parents
    }

    /// Names of the nodes at a leaf.
    pub fn nodes_at(&self, place: u32) -> Vec<String> {
        let at = |s: &Switch| hostlist::parse(&s.nodes).unwrap_or_default();
        self.switches.get(place as usize).map_or(Vec::new(), at)
    }

    /// Names of the nodes at or below a switch.
    pub fn nodes_below(&self, place: u32) -> Vec<String> {
        let (mut open, mut names) = (vec![place], Vec::new());
        // A switch is below one other at most, so each is met once; the count guards against files that say otherwise.
        for _ in 0..self.switches.len() {
            let Some(place) = open.pop() else { break };
            names.extend(self.nodes_at(place));
            let children = self.switches.get(place as usize).map(|s| &s.children);
            open.extend(children.into_iter().flatten().rev());
        }
        names
    }

    /// From the leaf that each node is at up to its root.
    pub fn paths(&self) -> BTreeMap<String, Vec<u32>> {
        let parents = self.parents();
        let mut paths = BTreeMap::new();
        for (switch, place) in self.switches.iter().zip(0u32..) {
            if switch.nodes.is_empty() {
                continue;
            }
            let path: Vec<u32> =
                std::iter::successors(Some(place), |p| parents.get(*p as usize).copied().flatten())
                    .take(self.switches.len())
                    .collect();
            for node in self.nodes_at(place) {
                paths.entry(node).or_insert_with(|| path.clone());
            }
        }
        paths
    }

    /// [`Topology::address`] of every node, by name.
    pub fn addresses(&self) -> BTreeMap<String, TopologyAddress> {
        let paths = self.paths();
        let address = |(node, path): (String, Vec<u32>)| {
            let address = self.address(&node, &path);
            (node, address)
        };
        paths.into_iter().map(address).collect()
    }

    /// The place of a node, whose way through the switches is `path`.
    pub fn address(&self, node: &str, path: &[u32]) -> TopologyAddress {
        let word = match self.kind {
            TopologyKind::Block => "block",
            TopologyKind::Flat | TopologyKind::Tree => "switch",
        };
        let (mut address, mut pattern) = (String::new(), String::new());
        for switch in path
            .iter()
            .rev()
            .filter_map(|p| self.switches.get(*p as usize))
        {
            address.push_str(&switch.name);
            address.push('.');
            pattern.push_str(word);
            pattern.push('.');
        }
        TopologyAddress {
            address: address + node,
            pattern: pattern + "node",
        }
    }
}

/// `--switches=count[@time]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Validate)]
pub struct SwitchAsk {
    /// Leaf switches that the job's nodes may be on.
    pub count: u32,
    /// Time for which the job waits for this number of switches, seconds; the site's limit if absent.
    pub wait_s: Option<u64>,
}

/// An array of two, also where the last is absent: a derived one would leave that out, and records of jobs are as they were.
impl<C> Encode<C> for SwitchAsk {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        (self.count, self.wait_s).encode(encoder, context)
    }
}

impl<'b, C> Decode<'b, C> for SwitchAsk {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<SwitchAsk, decode::Error> {
        let (count, wait_s) = Decode::decode(decoder, context)?;
        Ok(SwitchAsk { count, wait_s })
    }
}

/// Seconds that a job waits for few leaf switches at most, unless `max_switch_wait` says otherwise.
const SWITCH_WAIT_S: u64 = 300;

/// Seconds that a job waits for few leaf switches: as long as it asks for, within `max_switch_wait` of
/// `SchedulerParameters`.
pub fn switch_wait_s(asked: Option<u64>, scheduler_parameters: &[String]) -> u64 {
    let most = scheduler_parameters
        .iter()
        .rev()
        .find_map(|p| p.strip_prefix("max_switch_wait="))
        .and_then(|n| n.parse().ok())
        .unwrap_or(SWITCH_WAIT_S);
    asked.unwrap_or(u64::MAX).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str, nodes: &str, children: &[u32]) -> Switch {
        Switch {
            name: name.into(),
            nodes: nodes.into(),
            children: children.to_vec(),
            ..Switch::default()
        }
    }

    /// It was a tuple in versions whose journals are read.
    #[test]
    fn what_is_asked_of_switches_is_encoded_as_an_array() {
        for wait_s in [None, Some(300)] {
            let asked = SwitchAsk { count: 2, wait_s };
            let bytes = minicbor::to_vec(asked).unwrap();
            assert_eq!(bytes, minicbor::to_vec((2_u32, wait_s)).unwrap());
            assert_eq!(minicbor::decode::<SwitchAsk>(&bytes).unwrap(), asked);
        }
    }

    #[test]
    fn addresses_name_the_switches_from_the_top() {
        let tree = Topology {
            kind: TopologyKind::Tree,
            switches: vec![
                switch("s0", "n[1-2]", &[]),
                switch("s1", "n3", &[]),
                switch("root", "", &[0, 1]),
            ],
            ..Topology::default()
        };
        let paths = tree.paths();
        let address = |address: &str, pattern: &str| TopologyAddress {
            address: address.to_owned(),
            pattern: pattern.to_owned(),
        };
        assert_eq!(
            tree.address("n3", &paths["n3"]),
            address("root.s1.n3", "switch.switch.node")
        );
        assert_eq!(tree.address("n9", &[]), address("n9", "node"));
        assert_eq!(tree.nodes_below(2), ["n1", "n2", "n3"]);
        assert_eq!(tree.parents(), [Some(2), Some(2), None]);
    }
}
