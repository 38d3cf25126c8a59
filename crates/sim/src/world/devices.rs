//! Devices of nodes, which some clusters have, and the jobs and steps that ask for them. All of it is drawn from a stream of its
//! own: a seed without devices does the same as if there were none in the simulator.

use crate::random::Random;
use muster_model::config::ClusterConfig;
use muster_model::node::GresConfig;
use muster_model::spec::{GPU, GresAsk, MemoryAsk};

/// Devices of each node.
const COUNT: u64 = 2;
/// Memory that a step asks for, MiB: more than some jobs have.
const STEP_MIB: u64 = 150;

/// Devices of a cluster, and chance.
pub(crate) struct Devices {
    random: Random,
    has_some: bool,
}

impl Devices {
    /// Gives each node of some clusters its devices.
    pub(super) fn draw(mut random: Random, config: &mut ClusterConfig) -> Devices {
        let has_some = random.one_in(2);
        if has_some {
            for node in &mut config.nodes {
                node.gres = vec![GresConfig {
                    name: GPU.to_owned(),
                    count: COUNT,
                    ..GresConfig::default()
                }];
            }
        }
        Devices { random, has_some }
    }

    /// A request of a job, or a step, for devices of each of its nodes.
    pub(super) fn requested(&mut self) -> Vec<GresAsk> {
        if !self.has_some || !self.random.one_in(4) {
            return Vec::new();
        }
        vec![GresAsk {
            name: GPU.to_owned(),
            kind: None,
            count: 1,
        }]
    }

    /// Memory that a step asks for of each of its nodes, in clusters with devices.
    pub(super) fn requested_memory(&mut self) -> MemoryAsk {
        match self.has_some && self.random.one_in(4) {
            true => MemoryAsk::PerNode(STEP_MIB),
            false => MemoryAsk::Default,
        }
    }
}
