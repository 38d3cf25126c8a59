//! Rules for the CPUs of a node that jobs of a partition may use: whole sockets only
//! (`SelectTypeParameters` of a partition), a maximum per node (`MaxCPUsPerNode`), or a maximum per
//! socket (`MaxCPUsPerSocket`).

use crate::nodes::class::NodeClass;
use crate::nodes::sockets::sockets_of;
use muster_core::state::State;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::cpuset::CpuSet;
use muster_model::node::Node;

/// The CPU rules of a partition that differ from the cluster's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuRule {
    /// Jobs of the partition get whole sockets although the granule of the class is a core.
    whole_sockets: bool,
    pub(crate) per_node: Option<u32>,
    per_socket: Option<u32>,
}

/// The rules of a partition, and the CPUs that its jobs use.
#[derive(Debug)]
pub(crate) struct PartCpus {
    pub(crate) rule: CpuRule,
    /// CPUs used by its jobs, by place; tracked only if a rule limits them.
    held: Vec<CpuSet>,
}

/// Whether the granule is a core although the cluster says socket, because some partition requires
/// cores.
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

    /// Whether jobs of the partition may be unable to use all free CPUs of a node.
    pub(crate) fn bounds(&self) -> bool {
        self.by_socket() || self.per_node.is_some()
    }

    /// Maximum number of CPUs on an empty node of this class.
    pub(crate) fn most(&self, class: &NodeClass) -> u32 {
        let all = self.per_node.unwrap_or(u32::MAX);
        let Some(each) = self.per_socket else {
            return all;
        };
        let sockets = u32::try_from(sockets_of(class).len()).unwrap_or(u32::MAX);
        all.min(each.saturating_mul(sockets))
    }

    /// CPUs per granule for jobs of the partition.
    pub(crate) fn granule(&self, class: &NodeClass) -> u32 {
        match self.whole_sockets && class.cpus.is_multiple_of(class.sockets.max(1)) {
            true => (class.cpus / class.sockets.max(1)).max(class.granule),
            false => class.granule,
        }
        .max(1)
    }

    /// The free CPUs that a job may use beside other jobs of the partition.
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
            // Whole granules come first, because the rest of a partly used granule is of no use.
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
            // The classes already have sockets as granules.
            true => cores_by_socket && config.whole_sockets != Some(false),
            false => config.whole_sockets == Some(true),
        };
        // Jobs on whole nodes get all CPUs of them (select/linear).
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

    /// CPUs at a place that jobs of the partition may still take under `MaxCPUsPerNode`.
    pub(crate) fn left(&self, pos: usize) -> Option<u32> {
        Some(
            self.rule
                .per_node?
                .saturating_sub(self.held.get(pos)?.len()),
        )
    }

    /// Number of these free CPUs that jobs of the partition may take once its jobs have returned some.
    pub(crate) fn left_without(
        &self,
        class: &NodeClass,
        pos: usize,
        returned: &CpuSet,
        free: &CpuSet,
    ) -> u32 {
        let mut held = self.held(pos).unwrap_or_default();
        held.subtract(returned);
        let open = self.rule.open(class, &held, free).len();
        match self.rule.per_node {
            Some(most) => open.min(most.saturating_sub(held.len())),
            None => open,
        }
    }

    /// The free CPUs that a job of the partition may use.
    pub(crate) fn open(&self, class: &NodeClass, pos: usize, free: &CpuSet) -> CpuSet {
        match self.held.get(pos) {
            Some(held) => self.rule.open(class, held, free),
            None => self.rule.open(class, &CpuSet::default(), free),
        }
    }

    /// Adds CPUs that jobs of the partition use.
    pub(crate) fn take(&mut self, pos: usize, cpus: &CpuSet) {
        if let Some(held) = self.held.get_mut(pos) {
            held.union_with(cpus);
        }
    }

    /// Reads the CPUs that jobs of the partition use at a place.
    pub(crate) fn sync(&mut self, pos: usize, state: &State, node: &Node, partition: &str) {
        if let Some(held) = self.held.get_mut(pos) {
            *held = held_by(state, node, partition);
        }
    }

    /// CPUs that jobs of the partition use at a place, if they are tracked.
    pub(crate) fn held(&self, pos: usize) -> Option<CpuSet> {
        self.held.get(pos).cloned()
    }

    /// Sets the CPUs in use.
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
