//! Groups of the jobs of a node, as its launcher creates, uses and removes them.

use super::Entrances;
use super::group::Group;
use super::machine;
use super::together;
use muster_model::ids::JobAttempt;
use muster_node_core::cgroup::{
    CgroupController, Confinement, GroupUsage, Hierarchies, Hierarchy, MemoryLimits,
    MissingController, StepGroups, Version, cpu_list,
};
use muster_proto::cgroup::{CgroupSettings, CgroupVersion};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The group above all groups of this program.
const ROOT: &str = "muster";
/// Groups of a job: one for its script and one for its step daemons.
const SCRIPT: &str = "step_batch";
const DAEMONS: &str = "stepd";

/// Controllers that limit the resources of jobs.
const LIMITING: [CgroupController; 3] = [
    CgroupController::Memory,
    CgroupController::Cpuset,
    CgroupController::Devices,
];

/// See the module.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// Name of this node's group below [`ROOT`]. No other node on this machine has the same name.
    own: String,
    machine_memory: u64,
    is_root: bool,
    /// The effective settings, from the site settings that jobs had last.
    site: Option<Site>,
    jobs: BTreeMap<JobAttempt, JobCgroups>,
    /// Jobs whose processes were killed and may still exist.
    killed: RefCell<BTreeSet<JobAttempt>>,
    /// Groups whose removal has failed so far, by the directory above.
    left: Vec<(PathBuf, String)>,
}

/// The effective site settings on this machine.
#[derive(Debug)]
struct Site {
    settings: CgroupSettings,
    found: Hierarchies,
    /// The group of this node.
    nodes: HashMap<CgroupController, Group>,
}

/// Groups of a job.
#[derive(Debug, Default)]
struct JobCgroups {
    name: String,
    tracking: Option<Group>,
    /// The version 1 group that limits memory.
    memory: Option<Group>,
    /// Other groups of version 1.
    others: Vec<Group>,
    /// `tracking` limits memory.
    has_memory: bool,
    /// Settings of groups created for the job's resources; `None` if an earlier launcher created
    /// them, which are only used for tracking.
    settings: Option<CgroupSettings>,
}

impl Jobs {
    /// Opens the groups of the node with this spool directory. Groups that an earlier launcher left
    /// for unknown jobs are killed and removed; those of known jobs continue.
    pub(crate) fn open(spool: &Path, known: &[JobAttempt]) -> io::Result<Jobs> {
        let mut jobs = Jobs {
            own: crate::own_name(spool)?,
            machine_memory: machine::memory(),
            is_root: nix::unistd::geteuid().is_root(),
            site: None,
            jobs: BTreeMap::new(),
            killed: RefCell::default(),
            left: Vec::new(),
        };
        let all = machine::hierarchies(CgroupVersion::Any, "");
        for hierarchy in all.all() {
            let path = hierarchy.base.join(ROOT).join(&jobs.own);
            if let Ok(node) = Group::open(&path, hierarchy.version) {
                jobs.take_over(&node, hierarchy, &all, known);
            }
        }
        Ok(jobs)
    }

    fn take_over(&mut self, node: &Group, at: &Hierarchy, all: &Hierarchies, known: &[JobAttempt]) {
        let is_tracking = all.tracking() == Some(at);
        let names = node.children_like("job_");
        for name in names.clone() {
            let attempt = run_of_group(&name, &names, known);
            let Ok(group) = node.below(&name) else {
                continue;
            };
            match attempt {
                Some(attempt) => {
                    let entry = self.jobs.entry(*attempt).or_default();
                    entry.name = name;
                    let is_memory = all.of(CgroupController::Memory) == Some(at);
                    match (is_tracking, is_memory) {
                        (true, is_memory) => {
                            entry.has_memory = is_memory;
                            entry.tracking = Some(group);
                        }
                        (false, true) => entry.memory = Some(group),
                        (false, false) => entry.others.push(group),
                    }
                }
                None => {
                    if is_tracking && group.is_populated() {
                        eprintln!("{}: left over, and killed", group.path.display());
                        group.kill();
                    }
                    self.left.push((node.path.clone(), name));
                }
            }
        }
    }

    /// The effective settings on this machine, after creating this node's groups. Unavailable
    /// controllers are left out and logged once.
    fn site(&mut self, settings: &CgroupSettings) -> &Site {
        let is_it = |site: &Site| site.settings == *settings;
        let site = self.site.take().filter(is_it);
        let site = site.unwrap_or_else(|| Site::find(settings, &self.own));
        self.site.insert(site)
    }

    /// The groups that a job's script joins.
    pub(crate) fn of_script(
        &mut self,
        attempt: JobAttempt,
        of: Option<&Confinement>,
    ) -> io::Result<Entrances> {
        match self.of_root(of) {
            Some(of) => self.job(attempt, of)?.entrances(SCRIPT),
            None => Ok(Entrances::default()),
        }
    }

    /// The groups that a step daemon joins, and those in which it creates groups of its steps.
    pub(crate) fn of_daemon(
        &mut self,
        attempt: JobAttempt,
        of: Option<&Confinement>,
    ) -> io::Result<(Entrances, Option<StepGroups>)> {
        let Some(of) = self.of_root(of) else {
            return Ok((Entrances::default(), None));
        };
        let machine_memory = self.machine_memory;
        let job = self.job(attempt, of)?;
        let groups = StepGroups {
            tracking: job.tracking.as_ref().map(|g| g.place(job.has_memory)),
            memory: job.memory.as_ref().map(|g| g.place(true)),
            settings: of.settings.clone(),
            machine_memory,
        };
        Ok((job.entrances(DAEMONS)?, Some(groups)))
    }

    /// Only root can create groups.
    fn of_root<'c>(&self, of: Option<&'c Confinement>) -> Option<&'c Confinement> {
        of.filter(|_| self.is_root)
    }

    fn job(&mut self, attempt: JobAttempt, of: &Confinement) -> io::Result<&JobCgroups> {
        let is_made = |job: &JobCgroups| job.settings.is_some();
        if !self.jobs.get(&attempt).is_some_and(is_made) {
            let name = format!("job_{}", attempt.job);
            let taken = self
                .jobs
                .iter()
                .any(|(other, job)| *other != attempt && job.name == name);
            let name = match taken {
                // Another attempt of the job still exists.
                true => format!("{name}.{}", attempt.attempt.0),
                false => name,
            };
            let memory = self.machine_memory;
            let job = self.site(&of.settings).make_job(&name, of, memory)?;
            self.jobs.insert(attempt, job);
        }
        Ok(&self.jobs[&attempt])
    }

    /// Whether processes of a job remain in its groups.
    fn has_members(&self, attempt: JobAttempt) -> bool {
        let tracking = self
            .jobs
            .get(&attempt)
            .and_then(|job| job.tracking.as_ref());
        tracking.is_some_and(Group::is_populated)
    }

    /// Processes in a job's groups.
    pub(crate) fn members(&self, attempt: JobAttempt) -> Vec<i32> {
        let tracking = self
            .jobs
            .get(&attempt)
            .and_then(|job| job.tracking.as_ref());
        let populated = tracking.filter(|group| group.is_populated());
        populated.map(Group::members).unwrap_or_default()
    }

    /// Kills all processes of a job including its step daemons; returns whether the job has groups.
    pub(crate) fn kill(&self, attempt: JobAttempt) -> bool {
        let tracking = self
            .jobs
            .get(&attempt)
            .and_then(|job| job.tracking.as_ref());
        let Some(tracking) = tracking else {
            return false;
        };
        tracking.kill();
        self.killed.borrow_mut().insert(attempt);
        true
    }

    /// Kills all processes that descend from a job's script, apart from its steps.
    pub(crate) fn kill_script(&self, attempt: JobAttempt) {
        self.kill_below(attempt, |name| name == SCRIPT);
    }

    /// Kills the tasks of a job's steps, or of one step.
    pub(crate) fn kill_steps(&self, attempt: JobAttempt, step: Option<&str>) {
        self.kill_below(attempt, |name| match step {
            Some(step) => name.strip_prefix("step_") == Some(step),
            None => name != SCRIPT,
        });
    }

    /// Stops or continues a job's script and tasks. Its step daemons continue in any case.
    pub(crate) fn freeze(&self, attempt: JobAttempt, is_frozen: bool) {
        self.each_below(attempt, |_| true, |group| group.freeze(is_frozen));
    }

    fn kill_below(&self, attempt: JobAttempt, is_it: impl Fn(&str) -> bool) {
        self.each_below(attempt, is_it, Group::kill);
    }

    fn each_below(&self, attempt: JobAttempt, is_it: impl Fn(&str) -> bool, act: impl Fn(&Group)) {
        let tracking = self
            .jobs
            .get(&attempt)
            .and_then(|job| job.tracking.as_ref());
        let Some(tracking) = tracking else { return };
        let names = tracking.children_like("step_");
        for name in names.iter().filter(|name| is_it(name)) {
            if let Ok(group) = tracking.below(name) {
                act(&group);
            }
        }
    }

    /// Number of processes of a job's script that the kernel has killed for lack of memory.
    pub(crate) fn oom_kills_of_script(&self, attempt: JobAttempt) -> u64 {
        let memory = self
            .jobs
            .get(&attempt)
            .and_then(JobCgroups::memory_of_script);
        memory.map_or(0, |group| group.oom_kills())
    }

    /// Resource usage of a job's script, if usage is collected.
    pub(crate) fn usage_of_script(&self, attempt: JobAttempt) -> Option<GroupUsage> {
        let job = self
            .jobs
            .get(&attempt)
            .filter(|job| job.accounts_for(SCRIPT))?;
        let tracking = job.tracking.as_ref().and_then(|g| g.below(SCRIPT).ok());
        let groups = [tracking, job.memory_of_script()];
        Some(together(groups.iter().flatten()))
    }

    /// Removes the groups of a job without processes.
    pub(crate) fn remove(&mut self, attempt: JobAttempt) {
        if let Some(job) = self.jobs.remove(&attempt) {
            let groups = job.tracking.into_iter().chain(job.memory).chain(job.others);
            let above =
                groups.filter_map(|g| Some((g.path.parent()?.to_owned(), job.name.clone())));
            self.left.extend(above);
        }
        self.remove_left();
    }

    /// Retries failed removals of groups.
    pub(crate) fn remove_left(&mut self) {
        self.left.retain(|(above, name)| {
            let version = Version::V1;
            let removed = Group::open(above, version).and_then(|group| group.remove(name));
            removed.is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
        });
    }

    /// Whether all processes of some killed job have ended.
    pub(crate) fn take_emptied(&mut self) -> bool {
        let mut killed = std::mem::take(self.killed.get_mut());
        let before = killed.len();
        killed.retain(|attempt| self.has_members(*attempt));
        let is_any = killed.len() < before;
        *self.killed.get_mut() = killed;
        is_any
    }

    /// Whether the launcher waits for processes to end.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.left.is_empty() || !self.killed.borrow().is_empty()
    }
}

impl JobCgroups {
    /// The group that processes of a part of the job join.
    fn entrances(&self, part: &str) -> io::Result<Entrances> {
        let below = self.tracking.as_ref().map(|g| g.make(part)).transpose()?;
        let counted = self.memory.as_ref().filter(|_| self.accounts_for(part));
        let counted = counted.map(|g| g.make(part)).transpose()?;
        let memory = counted.as_ref().or(self.memory.as_ref());
        let groups = below.iter().chain(memory).chain(&self.others);
        let entrances = groups.map(Group::entrance).collect::<io::Result<_>>()?;
        Ok(Entrances(entrances))
    }

    /// Whether memory of a part is counted separately from that of steps.
    fn accounts_for(&self, part: &str) -> bool {
        part == SCRIPT && self.settings.as_ref().is_some_and(|s| s.accounts)
    }

    /// The group in which memory of the script is counted.
    fn memory_of_script(&self) -> Option<Group> {
        let tracking = self.tracking.as_ref().filter(|_| self.has_memory);
        let counted = self.memory.as_ref().or(tracking)?;
        match counted.below(SCRIPT) {
            Ok(group) => Some(group),
            Err(_) => Group::open(&counted.path, counted.version).ok(),
        }
    }
}

impl Site {
    fn find(settings: &CgroupSettings, own: &str) -> Site {
        let mut found = Site {
            settings: settings.clone(),
            found: machine::hierarchies(settings.version, &settings.mount_point),
            nodes: HashMap::new(),
        };
        let used = LIMITING.into_iter().chain([CgroupController::Freezer]);
        for controller in used.filter(|c| is_wanted(settings, *c)) {
            if let Err(why) = found.use_controller(controller, own) {
                eprintln!("control groups: {}", MissingController { controller, why });
            }
        }
        found
    }

    /// Creates this node's group in the hierarchy of a controller.
    fn use_controller(&mut self, controller: CgroupController, own: &str) -> Result<(), String> {
        let missing = || "no hierarchy that may be used has it".to_owned();
        let at = self.found.of(controller).ok_or_else(missing)?;
        let group = node_group(at, own, controller).map_err(|e| e.to_string())?;
        self.nodes.insert(controller, group);
        Ok(())
    }

    fn node(&self, controller: CgroupController) -> Option<&Group> {
        self.nodes.get(&controller)
    }

    /// Creates the groups of a job, with its limits.
    fn make_job(
        &self,
        name: &str,
        of: &Confinement,
        machine_memory: u64,
    ) -> io::Result<JobCgroups> {
        let settings = &self.settings;
        let mut job = JobCgroups {
            name: name.to_owned(),
            tracking: self
                .node(CgroupController::Freezer)
                .map(|n| n.make(name))
                .transpose()?,
            settings: Some(settings.clone()),
            ..JobCgroups::default()
        };
        let is_unified = |c: CgroupController| self.found.of(c) == self.found.tracking();
        if let Some(node) = self.node(CgroupController::Memory) {
            let limits = MemoryLimits::of(settings, of.memory_mib, machine_memory);
            match &job.tracking {
                Some(tracking) if is_unified(CgroupController::Memory) => {
                    tracking.limit_memory(&limits)?;
                    tracking.pass_on(&["memory"])?;
                    job.has_memory = true;
                }
                _ => {
                    let group = node.make(name)?;
                    group.limit_memory(&limits)?;
                    if let Some(swappiness) = settings.swappiness.filter(|_| settings.swap) {
                        group.write("memory.swappiness", &swappiness.to_string())?;
                    }
                    job.memory = Some(group);
                }
            }
        }
        if let Some(node) = self.node(CgroupController::Cpuset)
            && let Some(cpus) = &of.cpus
        {
            let group = match &job.tracking {
                Some(tracking) if is_unified(CgroupController::Cpuset) => tracking,
                _ => {
                    let group = node.make(name)?;
                    group.write("cpuset.mems", node.read("cpuset.mems")?.trim())?;
                    job.others.push(group);
                    &job.others[job.others.len() - 1]
                }
            };
            group.write("cpuset.cpus", &cpu_list(cpus))?;
        }
        if let Some(node) = self.node(CgroupController::Devices) {
            let group = node.make(name)?;
            for rule in of.denied.iter().filter_map(|file| device_rule(file)) {
                group.write("devices.deny", &rule)?;
            }
            job.others.push(group);
        }
        Ok(job)
    }
}

/// The version 1 rule for a device; `None` if the file does not exist or is not a device.
fn device_rule(file: &str) -> Option<String> {
    let of = std::fs::metadata(file).ok()?;
    let kind = of.file_type();
    let letter = match (kind.is_char_device(), kind.is_block_device()) {
        (true, _) => 'c',
        (_, true) => 'b',
        _ => return None,
    };
    let (major, minor) = (nix::libc::major(of.rdev()), nix::libc::minor(of.rdev()));
    Some(format!("{letter} {major}:{minor} rwm"))
}

/// Whether a controller is needed.
fn is_wanted(settings: &CgroupSettings, controller: CgroupController) -> bool {
    match controller {
        CgroupController::Memory => settings.ram || settings.swap || settings.accounts,
        CgroupController::Cpuset => settings.cores,
        CgroupController::Devices => settings.devices,
        CgroupController::Freezer => true,
    }
}

/// Creates the group of this node and enables the controller for groups below it.
fn node_group(at: &Hierarchy, own: &str, used: CgroupController) -> io::Result<Group> {
    let pass_on = |group: &Group| match (at.version, used) {
        (Version::V2, CgroupController::Memory | CgroupController::Cpuset) => {
            group.pass_on(&[used.name()])
        }
        _ => Ok(()),
    };
    let mut group = Group::open(&at.base, at.version)?;
    for name in [ROOT, own] {
        pass_on(&group)?;
        let below = group.make(name)?;
        match (at.version, used) {
            (Version::V1, CgroupController::Cpuset) => {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    below.write(file, group.read(file)?.trim())?;
                }
            }
            (Version::V1, CgroupController::Memory) => {
                // The only way since Linux 5.11; before, a group's limit did not apply to groups
                // below.
                let _ = below.write("memory.use_hierarchy", "1");
            }
            _ => {}
        }
        group = below;
    }
    pass_on(&group)?;
    Ok(group)
}

/// The attempt that a group name belongs to: `job_7`, or `job_7.2` if the group of an earlier
/// attempt still existed.
fn run_of_group<'k>(
    name: &str,
    names: &[String],
    known: &'k [JobAttempt],
) -> Option<&'k JobAttempt> {
    let number = name.strip_prefix("job_")?;
    let of_attempt = |attempt: &JobAttempt| format!("job_{}.{}", attempt.job, attempt.attempt.0);
    if number.contains('.') {
        return known.iter().find(|attempt| of_attempt(attempt) == name);
    }
    let job: u64 = number.parse().ok()?;
    let has_other = |attempt: &JobAttempt| names.contains(&of_attempt(attempt));
    let mut of_job = known.iter().filter(|attempt| attempt.job.0 == job);
    of_job.find(|attempt| !has_other(attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::{Attempt, JobId};

    /// Earlier, a group that the next launcher did not recognize was taken for the remains of no job, and all
    /// processes in it were killed.
    #[test]
    fn each_group_is_the_attempts_that_it_was_made_for() {
        let run = |job, attempt| JobAttempt::new(JobId(job), Attempt(attempt));
        let known = [run(7, 1), run(7, 2), run(8, 3), run(77, 1)];
        let names = [
            "job_7", "job_7.2", "job_8", "job_9", "job_77", "job_x", "job_7.9",
        ];
        let names = names.map(str::to_owned);
        let of = |name: &str| run_of_group(name, &names, &known).copied();
        assert_eq!(of("job_7"), Some(run(7, 1)));
        assert_eq!(of("job_7.2"), Some(run(7, 2)));
        assert_eq!(of("job_8"), Some(run(8, 3)));
        assert_eq!(of("job_77"), Some(run(77, 1)));
        for name in ["job_9", "job_x", "job_7.9"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
