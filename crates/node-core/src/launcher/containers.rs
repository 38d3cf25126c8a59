//! Private directories of a job on this node (`JobContainerType`): made after the job's prolog, before any of its
//! processes starts, and removed after its epilog, both by a child process of the launcher.

use super::interface::{Action, Failure, Timer};
use super::job::{JobEntry, Program};
use super::launches::Launches;
use super::node::LauncherNode;
use super::programs::{Programs, describe};
use super::records::Fault;
use super::retry::RETRY_MS;
use super::state::{LauncherState, Role};
use super::{Move, NodeJobPhase};
use crate::JobContainer;
use crate::exit_status::exit_status;
use muster_model::ids::JobAttempt;
use muster_proto::job_container::ContainerSettings;
use muster_proto::node::JobGrant;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Time that a job's release waits for the removal of its directories: the default of `KillWait`. The release goes on
/// after that.
const REMOVAL_WAIT_MS: u64 = 30_000;
/// Exit status of the process that makes them if there is no room for them, which jobs can use up: `EX_TEMPFAIL` of sysexits(3).
pub const CONTAINER_LACK_STATUS: u32 = 75;

impl LauncherNode {
    /// Whether the site asks for directories that cannot be made.
    pub(super) fn lacks_containers(&self) -> bool {
        !self.settings.containers.is_empty() && self.setup.uid != 0
    }

    pub(super) fn container_settings(&self) -> Option<&ContainerSettings> {
        let settings = self.settings.containers.first();
        settings.filter(|_| self.setup.uid == 0)
    }

    /// Where directories of this node's jobs are.
    fn container_base(&self, settings: &ContainerSettings) -> PathBuf {
        let base = settings.base.replacen("%h", &self.setup.host, 1);
        PathBuf::from(base).join(&self.setup.own)
    }

    /// The private directories that a job is to have.
    pub(super) fn container_of(&self, grant: &JobGrant) -> Option<Box<JobContainer>> {
        let settings = self.container_settings()?;
        let owner = &grant.spec.owner;
        let name = format!("{}.{}", grant.job, grant.attempt.0);
        Some(Box::new(JobContainer {
            path: self.container_base(settings).join(name),
            settings: settings.clone(),
            uid: owner.uid,
            gid: owner.gid,
            must_see: vec![
                self.setup.spool.clone(),
                PathBuf::from(&self.settings.conf_path),
            ],
        }))
    }
}

impl JobEntry {
    /// The job's private directories.
    pub(super) fn container(&self) -> Option<&JobContainer> {
        self.prolog_epilog.as_ref()?.container.as_deref()
    }

    /// The file of the mount namespace that its processes join.
    pub(super) fn namespace(&self) -> Option<PathBuf> {
        self.container().map(JobContainer::namespace)
    }
}

impl LauncherState {
    /// Logs that there are no private directories, because the launcher is not root.
    pub(super) fn log_lack_of_containers(&mut self) {
        if self.node.lacks_containers() {
            self.actions.log(
                "JobContainerType: only root makes directories that jobs have to themselves; start slurmd as root. Jobs here share \
                 those of the machine",
            );
        }
    }

    /// Removes directories of unknown jobs.
    pub(super) fn sweep_containers(&mut self) {
        let mut kept: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
        if let Some(settings) = self.node.container_settings() {
            kept.insert(self.node.container_base(settings), BTreeSet::new());
        }
        for entry in self.jobs.values() {
            let path = entry.container().map(|container| &container.path);
            let of = path.and_then(|path| Some((path.parent()?, path.file_name()?.to_str()?)));
            let Some((base, name)) = of else { continue };
            let kept = kept.entry(base.to_owned()).or_default();
            if !entry.phase.is_released() {
                kept.insert(name.to_owned());
            }
        }
        for (base, kept) in kept {
            self.actions.push(Action::SweepContainers { base, kept });
        }
    }
}

/// Party at fault if directories of a job cannot be made.
fn fault_of_making(status: i32, is_late: bool) -> Fault {
    match exit_status(status).code == CONTAINER_LACK_STATUS && !is_late {
        true => Fault::Lack,
        false => Fault::Node,
    }
}

impl Launches {
    /// The directories were made, or could not be.
    pub(super) fn container_made(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        status: i32,
    ) {
        let is_late = self.programs.program_ended(state, attempt);
        self.programs.go_on_in_turn(state);
        let is_in_prolog = |e: &JobEntry| e.phase == NodeJobPhase::Prolog;
        let goes_on = state.jobs.get(&attempt).is_some_and(is_in_prolog);
        if status != 0 && goes_on {
            let fault = fault_of_making(status, is_late);
            let status = describe(status, is_late);
            let error = format!(
                "JobContainerType: directories of the job cannot be made ({status}): see the log of the node's launcher"
            );
            state.actions.log(format!("job {}: {error}", attempt.job));
            self.fail(state, attempt, error, fault);
        } else if goes_on {
            state.records.prolog_over(attempt, state.now.mono_ms);
            self.start_script(state, attempt);
        }
        // If the job is ending meanwhile, this refuses the steps.
        state.start_early_steps(attempt);
        state.is_unsettled = true;
    }

    /// The process that removes a job's directories was started, or could not be.
    pub(super) fn container_removal_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        started: Result<i32, Failure>,
    ) {
        match started {
            Ok(pid) => {
                state.roles.insert(pid, Role::ContainerRemoval(attempt));
                let is_first = |e: &JobEntry| e.phase != NodeJobPhase::Epilog;
                if state.jobs.get(&attempt).is_some_and(is_first)
                    && state.advance(attempt, Move::StartEpilog)
                {
                    state.actions.stop_timer(Timer::Kill(attempt));
                }
                if let Some(entry) = state.jobs.get_mut(&attempt) {
                    entry.program = Program::Running {
                        pid,
                        is_late: false,
                    };
                }
                let timer = Timer::Programs(attempt);
                state.actions.set_timer(timer, REMOVAL_WAIT_MS);
            }
            Err(e) if e.is_temporary => {
                if let Some(entry) = state.jobs.get_mut(&attempt) {
                    entry.program = Program::None;
                }
                // No directories stay because users have used up all processes.
                state.actions.set_timer(Timer::Retry(attempt), RETRY_MS);
            }
            Err(e) => {
                let line = format!(
                    "job {}: its directories stay: fork: {}",
                    attempt.job, e.error
                );
                state.actions.log(line);
                self.programs.container_gone(state, attempt);
            }
        }
    }
}

impl Programs {
    /// Makes the directories of a job whose prolog, if it has one, is over.
    pub(super) fn start_container(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        let programs = entry.prolog_epilog.as_ref();
        let Some(programs) = programs.filter(|p| p.container.is_some()) else {
            return;
        };
        let action = Action::MakeContainer(attempt, programs.clone());
        entry.program = Program::Starting;
        state.actions.push(action);
    }

    /// The last of a job is gone and its epilog is over: whether its directories have to be removed, and are from now on.
    pub(super) fn start_container_removal(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
    ) -> bool {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return false;
        };
        let programs = entry
            .prolog_epilog
            .as_ref()
            .filter(|p| p.container.is_some());
        let Some(programs) = programs.filter(|_| !entry.has_no_container).cloned() else {
            return false;
        };
        entry.program = Program::Starting;
        state
            .actions
            .push(Action::RemoveContainer(attempt, programs));
        true
    }

    /// The directories of a job are removed, or the time limit for their removal is over.
    pub(super) fn container_gone(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        self.program_ended(state, attempt);
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            entry.has_no_container = true;
        }
        state.is_unsettled = true;
        self.go_on_in_turn(state);
    }

    /// Stops waiting for the process that removes a job's directories; the process goes on. Returns whether the
    /// process is one of these.
    pub(super) fn leave_removal(&mut self, state: &mut LauncherState, attempt: JobAttempt) -> bool {
        let program = state.jobs.get(&attempt).map(|e| e.program);
        let Some(Program::Running { pid, .. }) = program else {
            return false;
        };
        if state.roles.get(&pid) != Some(&Role::ContainerRemoval(attempt)) {
            return false;
        }
        state.roles.insert(pid, Role::Other);
        let job = attempt.job;
        let line = format!("job {job}: large directories are removed in the background");
        state.actions.log(line);
        self.container_gone(state, attempt);
        true
    }
}
