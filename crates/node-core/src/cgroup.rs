//! Control groups without file access: locations of the kernel's hierarchies from the texts of /proc, limits of a job
//! or step by cgroup.conf(5), and parsing of the kernel's files.

mod limits;
mod place;

pub use limits::{MemoryLimits, cpu_times, oom_kills};
pub use place::{CgroupController, Hierarchies, Hierarchy, MissingController, Version};

use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_model::gpu_parts::is_part;
use muster_model::job::{GresShare, ResourceUsage};
use muster_model::spec::GPU;
use muster_proto::cgroup::CgroupSettings;
use std::path::PathBuf;

/// The limits of a job on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The settings of the site.
    pub settings: CgroupSettings,
    /// The job's share of the memory; 0 where memory is not given out.
    pub memory_mib: u64,
    /// Its CPUs by the kernel's numbers; `None` if they are not this machine's.
    pub cpus: Option<CpuSet>,
    /// Files of devices that are not its own.
    pub denied: Vec<String>,
}

/// Device files of a node that a job with this share may not use: all that its share does not list.
pub fn denied_devices(settings: &CgroupSettings, share: &[GresShare]) -> Vec<String> {
    // Parts of GPUs are used by way of the GPUs.
    let has_parts = share.iter().any(|has| is_part(&has.name));
    let mut denied = Vec::new();
    for gres in settings
        .gres
        .iter()
        .filter(|g| !(has_parts && g.name == GPU))
    {
        let own: Vec<&GresShare> = share
            .iter()
            .filter(|has| has.name == gres.name && has.kind == gres.kind)
            .collect();
        for (at, files) in (0u32..).zip(&gres.files) {
            if !own.iter().any(|has| has.ids.contains(at)) {
                denied.extend(files.split(',').map(str::to_owned));
            }
        }
    }
    denied
}

/// Groups of a job for its step daemons, which make those of steps below them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StepGroups {
    /// The job's group whose processes are followed.
    #[n(0)]
    pub tracking: Option<GroupPlace>,
    /// The group with the memory limit, if it is not `tracking`.
    #[n(1)]
    pub memory: Option<GroupPlace>,
    /// The settings of the site.
    #[n(2)]
    pub settings: CgroupSettings,
    /// Memory of the machine, bytes.
    #[n(3)]
    pub machine_memory: u64,
}

/// A group by its path, which the launcher has made of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GroupPlace {
    /// Whether its files are those of version 2.
    #[n(0)]
    pub is_v2: bool,
    /// Its directory.
    #[n(1)]
    pub path: PathBuf,
    /// Memory is limited there.
    #[n(2)]
    pub has_memory: bool,
}

/// CPUs as the kernel writes them: `0-3,8`.
pub fn cpu_list(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus.iter() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

/// Usage of a group so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// CPU time as users, microseconds; 0 where the kernel does not count it.
    pub user_us: u64,
    /// CPU time in the kernel.
    pub system_us: u64,
    /// The highest memory use, KiB, including the page cache; 0 if memory is not counted.
    pub peak_kib: u64,
}

impl GroupUsage {
    /// Raises the usage of the collected processes to that of the group, which includes uncollected processes, and
    /// the common peak.
    pub fn raise(self, usage: &mut ResourceUsage) {
        usage.user_us = usage.user_us.max(self.user_us);
        usage.system_us = usage.system_us.max(self.system_us);
        usage.max_rss_kib = usage.max_rss_kib.max(self.peak_kib);
        usage.total_rss_kib = usage.total_rss_kib.max(self.peak_kib);
    }
}

/// The line that Slurm prints where the kernel has killed processes of a step for their memory.
pub fn oom_line(job: impl std::fmt::Display, step: impl std::fmt::Display, kills: u64) -> String {
    let s = if kills == 1 { "" } else { "s" };
    format!(
        "Detected {kills} oom_kill event{s} in StepId={job}.{step}. Some of the step tasks have been OOM Killed."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::cgroup::DeviceFiles;

    #[test]
    fn a_job_may_use_its_own_devices_alone() {
        let gpus = |kind: Option<&str>, files: &[&str]| DeviceFiles {
            name: GPU.to_owned(),
            kind: kind.map(str::to_owned),
            files: files.iter().map(|f| (*f).to_owned()).collect(),
        };
        let settings = CgroupSettings {
            gres: vec![
                gpus(Some("a"), &["/a0", "/a1,/a1c"]),
                gpus(Some("b"), &["/b0"]),
            ],
            ..CgroupSettings::default()
        };
        let has = |name: &str, kind: Option<&str>, ids: &[u32]| GresShare {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            ids: ids.iter().copied().collect(),
            ..GresShare::default()
        };
        assert_eq!(
            denied_devices(&settings, &[]),
            ["/a0", "/a1", "/a1c", "/b0"]
        );
        let one = has(GPU, Some("a"), &[1]);
        assert_eq!(denied_devices(&settings, &[one]), ["/a0", "/b0"]);
        let other = has(GPU, None, &[0]);
        assert_eq!(denied_devices(&settings, &[other]).len(), 4);
        let part = has("shard", None, &[0]);
        assert!(denied_devices(&settings, &[part]).is_empty());
    }

    #[test]
    fn cpus_are_written_as_ranges() {
        let list = |cpus: &[u32]| cpu_list(&cpus.iter().copied().collect());
        assert_eq!(list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(list(&[]), "");
    }
}
