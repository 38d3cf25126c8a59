//! Control groups, as far as no file is touched: where the kernel has their hierarchies, by the texts of /proc, what
//! cgroup.conf(5) limits a job or step to, and what the kernel's files say.

mod limits;
mod place;

pub use limits::{MemoryLimits, oom_kills};
pub use place::{Controller, Hierarchies, Hierarchy, Lack, Version};

use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_proto::cgroup::CgroupSettings;
use std::path::PathBuf;

/// What a job is held to on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// What the site says.
    pub settings: CgroupSettings,
    /// The job's share of the memory; 0 where memory is not given out.
    pub memory_mib: u64,
    /// Its CPUs by the kernel's numbers; none where they are not this machine's.
    pub cpus: Option<CpuSet>,
}

/// Groups of a job for its step daemons, which make those of steps below them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StepGroups {
    /// The job's group whose processes are followed.
    #[n(0)]
    pub tracking: Option<GroupPlace>,
    /// The one whose memory is limited, if that is another.
    #[n(1)]
    pub memory: Option<GroupPlace>,
    /// What the site says.
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

    #[test]
    fn cpus_are_written_as_ranges() {
        let list = |cpus: &[u32]| cpu_list(&cpus.iter().copied().collect());
        assert_eq!(list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(list(&[]), "");
    }
}
