//! Which CPUs of a node the jobs of a partition may have: whole sockets only (`SelectTypeParameters` of a partition), so
//! many together (`MaxCPUsPerNode`), or so many of each socket (`MaxCPUsPerSocket`).

use crate::nodes::class::NodeClass;
use crate::nodes::sockets::sockets_of;
use muster_core::state::State;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::cpuset::CpuSet;
use muster_model::node::Node;

/// The rules of a partition about CPUs, where they differ from the cluster's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuRule {
    /// Its jobs get whole sockets, where the classes of nodes have cores.
    whole_sockets: bool,
    pub(crate) per_node: Option<u32>,
    per_socket: Option<u32>,
}

/// The rule of a partition, and what its jobs have.
#[derive(Debug)]
pub(crate) struct PartCpus {
    pub(crate) rule: CpuRule,
    /// CPUs that its jobs hold, by place, kept only where something bounds them.
    held: Vec<CpuSet>,
}

/// Whether cores are what is handed out, although the cluster says sockets: some partition wants cores.
pub(crate) fn sockets_by_partition(config: &ClusterConfig, partitions: &[PartitionConfig]) -> bool {
    is_by_socket(config) && partitions.iter().any(|p| p.whole_sockets == Some(false))
}

fn is_by_socket(config: &ClusterConfig) -> bool {
    config.select_parameters.iter().any(|w| w == "CR_Socket")
}

impl CpuRule {
    /// Whether it matters which CPUs are free, not only how many.
    pub(crate) fn by_socket(&self) -> bool {
        self.whole_sockets || self.per_socket.is_some()
    }

    /// Whether free CPUs of a node may be more than jobs of the partition can have.
    pub(crate) fn bounds(&self) -> bool {
        self.by_socket() || self.per_node.is_some()
    }

    /// Most CPUs of an empty node of this class.
    pub(crate) fn most(&self, class: &NodeClass) -> u32 {
        let all = self.per_node.unwrap_or(u32::MAX);
        let Some(each) = self.per_socket else {
            return all;
        };
        let sockets = u32::try_from(sockets_of(class).len()).unwrap_or(u32::MAX);
        all.min(each.saturating_mul(sockets))
    }

    /// CPUs that are handed out together to jobs of the partition.
    pub(crate) fn granule(&self, class: &NodeClass) -> u32 {
        match self.whole_sockets && class.cpus.is_multiple_of(class.sockets.max(1)) {
            true => (class.cpus / class.sockets.max(1)).max(class.granule),
            false => class.granule,
        }
        .max(1)
    }

    /// Of free CPUs those that a job may have, beside what others of the partition hold.
    pub(crate) fn open(&self, class: &NodeClass, held: &CpuSet, free: &CpuSet) -> CpuSet {
        if !self.by_socket() {
            return free.clone();
        }
        let mut open = CpuSet::default();
        for socket in sockets_of(class) {
            let here: CpuSet = socket.clone().filter(|cpu| free.contains(*cpu)).collect();
            if self.whole_sockets && here.len() < socket.end - socket.start {
                continue;
            }
            let Some(most) = self.per_socket else {
                open.union_with(&here);
                continue;
            };
            let of_socket = socket.filter(|cpu| held.contains(*cpu)).count();
            let held = u32::try_from(of_socket).unwrap_or(u32::MAX);
            let granule = self.granule(class);
            let most = most.saturating_sub(held) / granule * granule;
            // Whole granules come first: what is left of one is of no use.
            let whole = |cpu: &u32| {
                let first = cpu / granule * granule;
                (first..first + granule).all(|c| here.contains(c))
            };
            open.union_with(&here.iter().filter(whole).take(most as usize).collect());
        }
        open
    }
}

impl PartCpus {
    pub(crate) fn new(
        cluster: &ClusterConfig,
        config: &PartitionConfig,
        (nodes, cores_by_socket): (usize, bool),
    ) -> PartCpus {
        let sockets = match is_by_socket(cluster) {
            // The classes have whole sockets already.
            true => cores_by_socket && config.whole_sockets != Some(false),
            false => config.whole_sockets == Some(true),
        };
        // Jobs that get whole nodes get all of their CPUs (select/linear).
        let most = |most: Option<u32>| most.filter(|_| !cluster.whole_nodes);
        let rule = CpuRule {
            whole_sockets: sockets,
            per_node: most(config.max_cpus_per_node),
            per_socket: most(config.max_cpus_per_socket),
        };
        let bounded = rule.per_node.is_some() || rule.per_socket.is_some();
        PartCpus {
            rule,
            held: vec![CpuSet::default(); if bounded { nodes } else { 0 }],
        }
    }

    /// CPUs that jobs of the partition may still take at a place under `MaxCPUsPerNode`.
    pub(crate) fn left(&self, pos: usize) -> Option<u32> {
        Some(
            self.rule
                .per_node?
                .saturating_sub(self.held.get(pos)?.len()),
        )
    }

    /// Of free CPUs those that a job of the partition may have.
    pub(crate) fn open(&self, class: &NodeClass, pos: usize, free: &CpuSet) -> CpuSet {
        match self.held.get(pos) {
            Some(held) => self.rule.open(class, held, free),
            None => self.rule.open(class, &CpuSet::default(), free),
        }
    }

    /// Jobs of the partition have these CPUs, too.
    pub(crate) fn take(&mut self, pos: usize, cpus: &CpuSet) {
        if let Some(held) = self.held.get_mut(pos) {
            held.union_with(cpus);
        }
    }

    /// Reads what jobs of the partition hold at a place.
    pub(crate) fn sync(&mut self, pos: usize, state: &State, node: &Node, partition: &str) {
        if let Some(held) = self.held.get_mut(pos) {
            *held = held_by(state, node, partition);
        }
    }

    /// CPUs that jobs of the partition hold at a place, where they are counted.
    pub(crate) fn held(&self, pos: usize) -> Option<CpuSet> {
        self.held.get(pos).cloned()
    }

    /// They hold this.
    pub(crate) fn set_held(&mut self, pos: usize, cpus: CpuSet) {
        if let Some(held) = self.held.get_mut(pos) {
            *held = cpus;
        }
    }
}

fn held_by(state: &State, node: &Node, partition: &str) -> CpuSet {
    let jobs = node.jobs.iter().filter_map(|id| state.jobs.get(id));
    let allocs = jobs.filter_map(|job| job.alloc.as_ref());
    let shares = allocs
        .filter(|alloc| alloc.partition == partition)
        .flat_map(|alloc| &alloc.nodes)
        .filter(|share| share.node == node.idx);
    shares.fold(CpuSet::default(), |mut all, share| {
        all.union_with(&share.cpus);
        all
    })
}
