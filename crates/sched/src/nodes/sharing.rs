//! CPUs used by several jobs: in partitions whose jobs share (`OverSubscribe`), and CPUs lent by
//! stopped jobs. Also nodes that are exclusive to one user.

use crate::nodes::class::{NodeClass, whole_granules};
use crate::nodes::room::{NodeLabel, NodeUsers};
use muster_core::state::State;
use muster_model::config::{OverSubscribe, PartitionConfig};
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::node::Node;
use muster_model::spec::Sharing;

/// CPUs of a partition's nodes as sharing jobs see them.
#[derive(Debug)]
pub(crate) struct PartSharing {
    /// Maximum number of jobs on each CPU, at least two.
    most: u32,
    /// CPUs, by place, used by jobs that do not share.
    pub(crate) closed: Vec<CpuSet>,
    /// Number of available CPUs, by place.
    pub(crate) free: Vec<u32>,
}

/// Whether some partition or job requires nodes that are exclusive to one user.
pub(crate) fn wants_nodes_by_user(state: &State) -> bool {
    let wants = |id: &JobId| {
        let job = state.jobs.get(id);
        job.is_some_and(|j| j.spec.ask.sharing == Sharing::ExclusiveUser)
    };
    state.partitions.iter().any(|p| p.exclusive_user)
        || state.pending.iter().chain(&state.active).any(wants)
}

pub(crate) fn users_of(state: &State, node: &Node, by_user: bool) -> NodeUsers {
    if !by_user {
        return NodeUsers::None;
    }
    let jobs = node.jobs.iter().filter_map(|id| state.jobs.get(id));
    jobs.fold(NodeUsers::None, |all, job| {
        all.with(Some(job.spec.owner.uid))
    })
}

/// The label that jobs must have beside those on a node.
pub(crate) fn label_of(node: &Node, by_label: bool) -> NodeLabel {
    let all = u32::try_from(node.jobs.len()).unwrap_or(u32::MAX);
    match (node.alone_by_label, &node.mcs_label) {
        _ if !by_label || all == 0 => NodeLabel::Any,
        (0, _) => NodeLabel::Without,
        (own, Some(label)) if own == all => NodeLabel::One(label.as_str().into()),
        _ => NodeLabel::Mixed,
    }
}

pub(crate) fn sharing_of(config: &PartitionConfig, nodes: usize) -> Option<PartSharing> {
    let most = match config.over_subscribe {
        OverSubscribe::Yes(most) | OverSubscribe::Force(most) => most,
        OverSubscribe::No | OverSubscribe::Exclusive => 0,
    };
    (most > 1).then(|| PartSharing {
        most,
        closed: vec![CpuSet::default(); nodes],
        free: vec![0; nodes],
    })
}

impl PartSharing {
    /// CPUs on which one more job may run.
    pub(crate) fn cpus(&self, class: &NodeClass, pos: usize, layers: &[CpuSet]) -> CpuSet {
        let mut cpus = class.open.clone();
        cpus.subtract(&self.closed[pos]);
        if let Some(full) = layers.get(self.most as usize - 2) {
            cpus.subtract(full);
        }
        cpus
    }

    /// Chooses the CPUs with the fewest jobs among the free CPUs and those that jobs use in layers.
    pub(crate) fn least_used(
        &self,
        class: &NodeClass,
        pos: usize,
        free: &CpuSet,
        layers: &[CpuSet],
        cpus: u32,
    ) -> CpuSet {
        let all = self.cpus(class, pos, layers);
        let mut from = free.clone();
        for layer in layers {
            let mut more = all.clone();
            more.subtract(layer);
            from.union_with(&more);
            if whole_granules(&from, class.granule) >= cpus {
                return from;
            }
        }
        from.union_with(&all);
        from
    }
}

/// Removes one job from these CPUs; returns the CPUs that no job uses then.
pub(crate) fn lend(layers: &mut [CpuSet], cpus: &CpuSet) -> CpuSet {
    let mut freed = cpus.clone();
    for layer in layers.iter_mut().rev() {
        let mut here = freed.clone();
        here.intersect_with(layer);
        layer.subtract(&here);
        freed.subtract(&here);
    }
    freed
}

/// Adds one job to these CPUs.
pub(crate) fn hold(free: &mut CpuSet, layers: &mut Vec<CpuSet>, cpus: &CpuSet) {
    let mut more = cpus.clone();
    more.subtract(free);
    free.subtract(cpus);
    for layer in layers.iter_mut() {
        let mut next = more.clone();
        next.intersect_with(layer);
        layer.union_with(&more);
        more = next;
    }
    if !more.is_empty() {
        layers.push(more);
    }
}

/// CPUs of a node used by jobs that do not share with jobs of the partition, or kept for stopped
/// jobs.
pub(crate) fn closed_cpus(state: &State, node: &Node, partition: &str) -> CpuSet {
    let mut closed = CpuSet::default();
    for job in node.jobs.iter().filter_map(|id| state.jobs.get(id)) {
        for (share, alloc) in job.held().filter(|(s, _)| s.node == node.idx) {
            let uses = !job.cpus_released_by_preemption || job.is_stopped_for_another();
            if uses && !(alloc.sharers > 0 && alloc.partition == partition) {
                closed.union_with(&share.cpus);
            }
        }
    }
    closed
}

/// A job stopped by preemption continues when all of its CPUs are free, so no other job may get
/// these meanwhile.
pub(crate) fn kept_for_stopped(state: &State, node: &Node) -> CpuSet {
    let mut kept = CpuSet::default();
    let jobs = node.jobs.iter().filter_map(|id| state.jobs.get(id));
    for job in jobs.filter(|job| job.is_stopped_for_another()) {
        for (share, _) in job.held().filter(|(s, _)| s.node == node.idx) {
            kept.union_with(&share.cpus);
        }
    }
    kept.intersect_with(&node.free_cpus);
    kept
}
