//! Groups of the steps of a daemon, below those of its job.

use super::Entrances;
use super::group::Group;
use super::together;
use muster_model::ids::StepNo;
use muster_node_core::cgroup::{GroupUsage, MemoryLimits, StepGroups};
use std::io;

/// Groups of a job, as its daemons know them.
#[derive(Debug)]
pub(crate) struct JobGroups {
    of: StepGroups,
    tracking: Option<Group>,
    memory: Option<Group>,
}

/// Groups of a running step.
#[derive(Debug)]
pub(crate) struct StepGroup {
    name: String,
    tracking: Option<Group>,
    memory: Option<Group>,
    /// Resource usage is collected.
    accounts: bool,
    /// The group that tasks join.
    pub(crate) entrances: Entrances,
}

impl JobGroups {
    /// Opens them.
    pub(crate) fn open(of: StepGroups) -> io::Result<JobGroups> {
        Ok(JobGroups {
            tracking: of.tracking.as_ref().map(Group::at).transpose()?,
            memory: of.memory.as_ref().map(Group::at).transpose()?,
            of,
        })
    }

    /// Creates the groups of a step with a memory limit in MiB; 0 is the limit of the job.
    pub(crate) fn begin(&self, step: StepNo, memory_mib: u64) -> io::Result<StepGroup> {
        let name = format!("step_{step}");
        let make = |job: &Option<Group>| job.as_ref().map(|job| job.make(&name)).transpose();
        let (tracking, memory) = (make(&self.tracking)?, make(&self.memory)?);
        let limits = MemoryLimits::of(&self.of.settings, memory_mib, self.of.machine_memory);
        let in_tracking = self.of.tracking.as_ref().is_some_and(|t| t.has_memory);
        let limited = memory
            .as_ref()
            .or(tracking.as_ref().filter(|_| in_tracking));
        if let Some(limited) = limited {
            limited.limit_memory(&limits)?;
        }
        let entrances = [&tracking, &memory].into_iter().flatten();
        let entrances = entrances.map(Group::entrance).collect::<io::Result<_>>()?;
        Ok(StepGroup {
            name,
            tracking,
            memory,
            accounts: self.of.settings.accounts,
            entrances: Entrances(entrances),
        })
    }

    /// Ends the step: kills its remaining processes, and removes its groups once these have ended.
    pub(crate) fn end(&self, step: &StepGroup) {
        step.kill();
        for job in [&self.tracking, &self.memory].into_iter().flatten() {
            // A group that is not empty yet is removed with the job's.
            let _ = job.remove(&step.name);
        }
    }
}

impl StepGroup {
    /// Kills all processes in the group.
    pub(crate) fn kill(&self) {
        if let Some(group) = self.tracking.as_ref().filter(|g| g.is_populated()) {
            group.kill();
        }
    }

    /// Resource usage of its processes so far, if usage is collected.
    pub(crate) fn usage(&self) -> Option<GroupUsage> {
        let groups = [&self.memory, &self.tracking].into_iter().flatten();
        self.accounts.then(|| together(groups))
    }

    /// Number of processes that the kernel has killed for lack of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let groups = [&self.memory, &self.tracking].into_iter().flatten();
        groups.map(Group::oom_kills).max().unwrap_or(0)
    }
}
