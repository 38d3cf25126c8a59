//! The class of a node, from its configuration line and its registration.

use crate::nodes::class::{GresCount, NodeClass, PartRule};
use muster_model::config::ClusterConfig;
use muster_model::node::Node;

/// The class of a node. With `cores_by_socket` the granule is a core although the cluster says
/// socket.
pub(super) fn class_of(node: &Node, config: &ClusterConfig, cores_by_socket: bool) -> NodeClass {
    let c = &node.config;
    let threads = c.threads_per_core.max(1);
    let cores = c.sockets.max(1).saturating_mul(c.cores_per_socket.max(1));
    // `CPUs` may count cores although cores have threads; then one CPU represents one core.
    let by_thread = c.cpus == cores.saturating_mul(threads);
    let has = |word: &str| config.select_parameters.iter().any(|w| w == word);
    let by_socket = has("CR_Socket");
    let whole_sockets = by_socket && !cores_by_socket;
    let granule = if whole_sockets && c.cpus.is_multiple_of(c.sockets.max(1)) {
        c.cpus / c.sockets.max(1)
    } else if by_thread {
        // With `CR_CPU` jobs are charged for threads, but a core belongs to one job.
        threads
    } else {
        1
    };
    let numa = node
        .report
        .as_ref()
        .and_then(|r| r.numa_domains)
        .unwrap_or(0);
    let known = (node.report.as_ref()).map(|r| &r.numa_distances);
    let distances = known.filter(|d| {
        let square = numa.checked_mul(numa).map(|n| n as usize) == Some(d.len());
        square && numa > 2 && numa.is_multiple_of(c.sockets.max(1))
    });
    let mut features = c.features.clone();
    features.sort();
    NodeClass {
        cpus: c.cpus,
        open: c.job_cpus(),
        granule: granule.max(1),
        by_thread: !config.whole_cores && !by_socket && by_thread && threads > 1,
        numa_per_socket: if numa.is_multiple_of(c.sockets.max(1)) {
            (numa / c.sockets.max(1)).max(1)
        } else {
            1
        },
        distances: distances.cloned().unwrap_or_default(),
        threads_per_core: threads,
        cores_per_socket: c.cores_per_socket.max(1),
        sockets: c.sockets.max(1),
        mib: c.job_mib(),
        tmp_mib: c.tmp_disk_mib,
        features,
        gres: c
            .gres
            .iter()
            .map(|g| GresCount {
                name: g.name.clone(),
                kind: g.kind.clone(),
                count: g.count,
            })
            .collect(),
        near: c.gres.iter().map(|g| g.near.clone()).collect(),
        gpu_env: c.gres.iter().map(|g| g.env).collect(),
        parts: match c.gres.iter().any(|g| g.parts.is_some()) {
            true => c.gres.iter().map(|g| g.parts.clone()).collect(),
            false => Vec::new(),
        },
        links: match c.gres.iter().any(|g| !g.links.is_empty()) {
            true => c.gres.iter().map(|g| g.links.clone()).collect(),
            false => Vec::new(),
        },
        labels: match c.gres.iter().any(|g| !g.labels.is_empty()) {
            true => c.gres.iter().map(|g| g.labels.clone()).collect(),
            false => Vec::new(),
        },
        no_consume: c.gres.iter().map(|g| g.no_consume).collect(),
        part_rule: PartRule {
            several_gpus: has("MULTIPLE_SHARING_GRES_PJ"),
            least_loaded: has("LL_SHARED_GRES"),
        },
    }
}
