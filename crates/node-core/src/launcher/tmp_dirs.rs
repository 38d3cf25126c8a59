//! Temporary directories of Grid Engine jobs: where they are made, and what jobs get where they cannot be.

use super::interface::{Action, Failure};
use super::job::{JobEntry, Program};
use super::launches::Launches;
use super::node::Node;
use super::programs::{Programs, describe};
use super::state::{Role, State};
use crate::messages::StepOrder;
use crate::{JobTmpDir, signals, tmp_dir};
use muster_model::environment::Environment;
use muster_model::ids::JobAttempt;
use muster_proto::node::JobGrant;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How long a job waits for its temporary directory, which may take as long as another user wants. It goes on without.
const WAIT_S: u32 = 5;
/// Processes that make one and are late; while there are that many no job gets one.
const LATE_MAX: usize = 8;
/// How often the log says that jobs have none, milliseconds.
const LOG_INTERVAL_MS: u64 = 60_000;

impl Node {
    fn tmp_parent_path(&self) -> PathBuf {
        tmp_dir::parent(&self.place.cluster, &self.settings, &self.place.node)
    }

    /// Where a Grid Engine job has its temporary directory, if it can be made.
    pub(super) fn tmp_dir_of(&self, grant: &JobGrant) -> Option<Box<JobTmpDir>> {
        let place = &self.place;
        let path = tmp_dir::path(grant, &place.cluster, &self.settings, &place.node)?;
        if !self.settings.job_tmp_dirs {
            return None;
        }
        if self.late_tmp_dirs.len() >= LATE_MAX {
            return None;
        }
        let is_ready = self.tmp_parent.as_deref() == path.parent();
        if !is_ready && !self.is_in_container(&path) {
            return None;
        }
        let owner = &grant.spec.owner;
        let (uid, gid) = (owner.uid, owner.gid);
        Some(Box::new(JobTmpDir { path, uid, gid }))
    }

    /// Whether a path is in a directory that each job has to itself.
    fn is_in_container(&self, path: &Path) -> bool {
        let settings = self.container_settings();
        settings.is_some_and(|of| of.dirs.iter().any(|dir| path.starts_with(dir)))
    }

    /// What a job's script or a step finds in `TMPDIR` and `TMP`; none if that is for the user to say.
    fn tmp_variable(&self, entry: Option<&JobEntry>, grant: &JobGrant) -> Option<PathBuf> {
        let place = &self.place;
        tmp_dir::path(grant, &place.cluster, &self.settings, &place.node)?;
        let programs = entry.and_then(|e| e.prolog_epilog.as_ref());
        let own = programs.and_then(|p| p.tmp_dir.as_ref());
        let own = own.filter(|_| entry.is_some_and(|e| !e.has_no_tmp_dir));
        let path = own.map(|dir| dir.path.clone());
        Some(path.unwrap_or_else(|| tmp_dir::base(&self.settings, &place.node)))
    }

    /// Puts the variables of a job's script into its environment; whether they are not the user's.
    pub(super) fn set_tmp_dir(
        &self,
        entry: &JobEntry,
        grant: &JobGrant,
        env: &mut Environment,
    ) -> bool {
        let path = self.tmp_variable(Some(entry), grant);
        for name in tmp_dir::VARIABLES.iter().filter(|_| path.is_some()) {
            let value = path.as_deref().unwrap_or(Path::new("/"));
            env.push(&[name.as_bytes(), b"=", value.to_string_lossy().as_bytes()]);
        }
        path.is_some()
    }

    /// An agent does not know whether a job's directory could be made: its steps get what its script has.
    pub(super) fn correct_tmp_dir(&self, entry: &JobEntry, order: &mut StepOrder) {
        let Some(grant) = &entry.grant else { return };
        let Some(path) = self.tmp_variable(Some(entry), grant) else {
            return;
        };
        let path = path.to_string_lossy();
        for name in tmp_dir::VARIABLES.map(str::as_bytes) {
            if order.env.value(name) != Some(path.as_bytes()) {
                order.env.set(name, path.as_bytes());
            }
        }
    }
}

impl Programs {
    /// Has a job's temporary directory made; whether it is to have one.
    pub(super) fn start_tmp_dir(&mut self, state: &mut State, attempt: JobAttempt) -> bool {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return false;
        };
        let programs = entry.prolog_epilog.as_ref();
        let Some(programs) = programs.filter(|p| p.tmp_dir.is_some()) else {
            return false;
        };
        let action = Action::MakeTmpDir(attempt, programs.clone());
        entry.program = Program::Starting;
        state.actions.push(action);
        true
    }
}

/// What makes a job's runs, or could not be started.
pub(super) fn started(
    launches: &mut Launches,
    state: &mut State,
    attempt: JobAttempt,
    started: Result<i32, Failure>,
) {
    match started {
        Ok(pid) => {
            state.roles.insert(pid, Role::TmpDir(attempt));
            launches
                .programs
                .program_runs(state, attempt, pid, |_| Some(WAIT_S));
        }
        Err(e) => {
            let failure = format!("fork: {}", e.error);
            end_making(launches, state, attempt, Some(failure));
        }
    }
}

/// It is there, or cannot be made.
pub(super) fn made(launches: &mut Launches, state: &mut State, attempt: JobAttempt, status: i32) {
    let failure = (status != 0).then(|| describe(status, false));
    end_making(launches, state, attempt, failure);
}

/// Its job begins, with it or without: users may have to do with a failure, which is thus neither the node's nor the job's.
fn end_making(
    launches: &mut Launches,
    state: &mut State,
    attempt: JobAttempt,
    failure: Option<String>,
) {
    launches.programs.program_ended(state, attempt);
    launches.programs.go_on_in_turn(state);
    if let Some(failure) = failure {
        state.go_on_without_tmp_dir(attempt, &failure);
    }
    launches.dirs_are_made(state, attempt);
}

/// The time of what runs around a job is over; whether that makes its temporary directory, and is not waited for any more.
pub(super) fn leave_late(launches: &mut Launches, state: &mut State, attempt: JobAttempt) -> bool {
    let program = state.jobs.get(&attempt).map(|e| e.program);
    let Some(Program::Running { pid, .. }) = program else {
        return false;
    };
    if state.roles.get(&pid) != Some(&Role::TmpDir(attempt)) {
        return false;
    }
    // In the kernel it may not end for as long as another user wants.
    state.roles.insert(pid, Role::Other);
    state.node.late_tmp_dirs.insert(pid);
    let kill = Action::SignalGroup(pid, signals::SIGKILL);
    state.actions.push(kill);
    let failure = format!("it takes longer than {WAIT_S} s");
    end_making(launches, state, attempt, Some(failure));
    true
}

impl State {
    fn go_on_without_tmp_dir(&mut self, attempt: JobAttempt, failure: &str) {
        let Some(entry) = self.jobs.get_mut(&attempt) else {
            return;
        };
        entry.has_no_tmp_dir = true;
        let log = &mut self.node.tmp_dir_lacks;
        let now_ms = self.now.mono_ms;
        if log
            .logged_ms
            .is_some_and(|at_ms| now_ms < at_ms.saturating_add(LOG_INTERVAL_MS))
        {
            log.unlogged += 1;
            return;
        }
        let others = match std::mem::take(&mut log.unlogged) {
            0 => String::new(),
            count => format!("; so it is for {count} jobs before"),
        };
        log.logged_ms = Some(now_ms);
        let programs = entry.prolog_epilog.as_ref();
        let path = programs.and_then(|p| p.tmp_dir.as_ref());
        let path = path.map_or_else(PathBuf::new, |dir| dir.path.clone());
        self.actions.log(format!(
            "job {}: TMPDIR {} cannot be made ({failure}): TMPDIR is TmpFS{others}",
            attempt.job,
            path.display()
        ));
    }
}

/// Has the directory made that those of jobs are in, once it is known where that is.
pub(super) fn prepare(state: &mut State) {
    let parent = state.node.tmp_parent_path();
    let settings = &state.node.settings;
    let is_known = !state.node.place.node.is_empty() && !settings.tmp_fs.is_empty();
    if !settings.job_tmp_dirs || !is_known || state.node.tmp_parent.as_ref() == Some(&parent) {
        return;
    }
    let live = state.jobs.values().filter(|e| !e.phase.is_released());
    let programs = live.filter_map(|e| e.prolog_epilog.as_ref());
    let dirs = programs.filter_map(|p| p.tmp_dir.as_ref());
    let here = dirs.filter(|dir| dir.path.parent() == Some(&parent));
    let names = here.filter_map(|dir| dir.path.file_name()?.to_str());
    let kept: BTreeSet<String> = names.map(str::to_owned).collect();
    state.actions.push(Action::PrepareTmpDirs { parent, kept });
}

/// It is there, or cannot be made.
pub(super) fn prepared(state: &mut State, parent: PathBuf, is_there: bool) {
    let node = &mut state.node;
    if is_there {
        node.failed_tmp_parent = None;
        node.tmp_parent = Some(parent);
        return;
    }
    node.tmp_parent = None;
    if node.failed_tmp_parent.as_ref() != Some(&parent) {
        state.actions.log(format!(
            "TmpFS: {} cannot be made: TMPDIR of Grid Engine jobs is the directory that it would be in, for all of them",
            parent.display()
        ));
        node.failed_tmp_parent = Some(parent);
    }
}
