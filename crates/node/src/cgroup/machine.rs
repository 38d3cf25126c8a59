//! The hierarchies of this machine.

use muster_node_core::cgroup::{CgroupController, Hierarchies, Version};
use muster_proto::cgroup::CgroupVersion;
use nix::sys::statvfs::{FsFlags, statvfs};
use std::fs;

/// Features of control groups on this machine that jobs can use.
#[derive(Clone, Debug)]
pub struct ControllerUse {
    controller: CgroupController,
    /// The version of the groups, or the reason why there are none.
    pub usable: Result<&'static str, String>,
    /// A required controller that is missing.
    pub effect: &'static str,
}

impl ControllerUse {
    /// The name to use in messages.
    pub fn name(&self) -> &'static str {
        match self.controller {
            CgroupController::Freezer => "processes",
            limiting => limiting.name(),
        }
    }
}

/// The hierarchies that a launcher can use here, as root or as another user.
pub fn uses(is_roots: bool) -> Vec<ControllerUse> {
    let found = hierarchies(CgroupVersion::Any, "");
    let all = [
        CgroupController::Freezer,
        CgroupController::Memory,
        CgroupController::Cpuset,
        CgroupController::Devices,
    ];
    let of = |controller: CgroupController| ControllerUse {
        controller,
        usable: usable(&found, controller, is_roots),
        effect: controller.without(),
    };
    all.into_iter().map(of).collect()
}

fn usable(
    found: &Hierarchies,
    of: CgroupController,
    is_roots: bool,
) -> Result<&'static str, String> {
    let Some(at) = found.of(of) else {
        return Err("no hierarchy that is mounted has it".to_owned());
    };
    if !is_roots {
        return Err("slurmd does not run as root".to_owned());
    }
    match statvfs(&at.base) {
        Ok(fs) if fs.flags().contains(FsFlags::ST_RDONLY) => {
            Err(format!("{} is mounted read-only", at.base.display()))
        }
        Ok(_) => Ok(match at.version {
            Version::V1 => "v1",
            Version::V2 => "v2",
        }),
        Err(e) => Err(format!("{}: {e}", at.base.display())),
    }
}

/// The controllers that the site permits.
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
