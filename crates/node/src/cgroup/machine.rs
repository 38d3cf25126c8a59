//! The hierarchies of this machine.

use muster_node_core::cgroup::Hierarchies;
use muster_proto::cgroup::CgroupVersion;
use std::fs;

/// Those that the site lets be used.
pub(super) fn hierarchies(version: CgroupVersion, mount_point: &str) -> Hierarchies {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let controllers = |root: &std::path::Path| fs::read_to_string(root.join("cgroup.controllers"));
    Hierarchies::find(
        &text("/proc/self/cgroup"),
        &text("/proc/self/mountinfo"),
        (version, mount_point),
        |root| controllers(root).ok(),
    )
}

/// Memory, bytes.
pub(super) fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}
