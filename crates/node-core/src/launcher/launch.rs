//! Launches of jobs: from the controller's grant to a running script, through a sequence of conditions. A launch
//! waits until the previous users of its share have ended, until the groups of its user are known, until its script's
//! file and its records are written, and for its prolog. If the launcher lacks a resource that users can exhaust,
//! such as descriptors, processes, or disk space, it retries. If the resource is missing for longer than a minute,
//! the launch fails, which is not the node's fault. Steps of the job wait with the launch.

use super::context::Context;
use super::interface::{
    Action, Failure, LaunchFiles, ScriptFile, ScriptLaunch, ScriptNotStarted, Timer, UserAccount,
};
use super::job::{JobEntry, Launch, Program, ScriptFiles};
use super::launches::Launches;
use super::node::LauncherNode;
use super::records::Fault;
use super::retry::{LaunchRefusal, RETRY_MS, TRIES_MAX, fault_of};
use super::state::{LauncherState, Role};
use super::{Move, NodeJobPhase, encoded};
use crate::job_container::SCRATCH;
use crate::job_view::{job_view, propagated_limits};
use crate::messages::LauncherEvent;
use crate::pattern::{Symbols, expand};
use crate::{signals, tmp_dir};
use muster_model::environment::Environment;
use muster_model::grid_engine::{STREAM_PATHS, is_marked};
use muster_model::ids::{Attempt, JobAttempt};
use muster_model::job::{GresShare, NodeShare};
use muster_model::job_env;
use muster_model::spec::{JobKind, Owner};
use muster_proto::node::JobGrant;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Whether a grant is for the node that runs the job's script.
fn has_script(grant: &JobGrant) -> bool {
    grant.position == 0 && grant.spec.kind == JobKind::Batch
}

impl Launches {
    /// The node is part of a job now. An attempt that is known, or older than one that is, has been launched.
    pub(super) fn launch_job(&mut self, state: &mut LauncherState, grant: Rc<JobGrant>) {
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            // A job that was made smaller has less from now on.
            let had = entry.grant.as_ref();
            if had.is_none_or(|had| had.resizes < grant.resizes) {
                if entry.launch.is_recorded || !entry.phase.has_not_begun() {
                    state.records.grant(attempt, &encoded(&grant));
                }
                entry.grant = Some(grant);
            }
            return;
        }
        let later = JobAttempt::new(attempt.job, Attempt(attempt.attempt.0.saturating_add(1)))
            ..=JobAttempt::new(attempt.job, Attempt(u32::MAX));
        if attempt.attempt.0 < u32::MAX && state.jobs.range(later).next().is_some() {
            return;
        }
        let batch = match has_script(&grant) {
            true => self.scripts.batch_of(&grant).map(Some),
            false => Ok(None),
        };
        let may_run = state.node.check_user(grant.spec.owner.uid);
        let may_run = may_run.map_err(LaunchRefusal::of_job);
        let entry = JobEntry {
            uid: grant.spec.owner.uid,
            grant: Some(grant),
            ..JobEntry::default()
        };
        state.jobs.insert(attempt, entry);
        match batch.and_then(|batch| may_run.map(|()| batch)) {
            Err(refused) => self.refuse(state, attempt, refused),
            Ok(batch) => {
                if let Some(entry) = state.jobs.get_mut(&attempt) {
                    entry.launch.batch = batch;
                }
                if self.must_wait(state, attempt) {
                    let line = format!(
                        "job {}: processes of the previous job on these CPUs have not ended",
                        attempt.job
                    );
                    state.actions.log(line);
                    self.queued.push(attempt);
                } else {
                    self.prepare(state, attempt);
                }
            }
        }
    }

    /// Requests the prerequisites of a launch other than its share: groups, then files.
    pub(super) fn prepare(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let entry = state.jobs.get(&attempt);
        let Some(grant) = entry.and_then(|e| e.grant.clone()) else {
            return;
        };
        let owner = &grant.spec.owner;
        let Some(user) = state.user_of(owner) else {
            state.without_groups.insert(attempt);
            return;
        };
        let (uid, gid) = (owner.uid, owner.gid);
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.user = Some(user);
        let script = entry.launch.batch.as_ref().map(|batch| ScriptFile {
            id: batch.script,
            uid,
            gid,
            text: Rc::clone(&batch.text),
        });
        let is_recorded = entry.launch.is_recorded;
        let of_site = |program: &Option<String>| program.clone().filter(|_| !is_recorded);
        let prolog = of_site(&state.node.settings.prolog);
        let epilog = of_site(&state.node.settings.epilog);
        if script.is_none() && prolog.is_none() && epilog.is_none() {
            return self.launch_prepared(state, attempt, Ok(LaunchFiles::default()));
        }
        state.actions.push(Action::PrepareLaunch {
            attempt,
            script,
            prolog,
            epilog,
        });
    }

    /// The files of a launch were written, or could not be.
    pub(super) fn launch_prepared(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        files: Result<LaunchFiles, Failure>,
    ) {
        let is_waiting = |e: &&mut JobEntry| e.phase == NodeJobPhase::Waiting;
        let Some(entry) = state.jobs.get_mut(&attempt).filter(is_waiting) else {
            return;
        };
        match files {
            Ok(files) => {
                entry.launch.path = files.script.clone();
                if state.advance(attempt, Move::Prepare) {
                    self.note(state, attempt, files);
                    self.recording.push(attempt);
                }
            }
            Err(e) if e.is_temporary && entry.launch.tries < TRIES_MAX => {
                self.try_later(state, attempt, &e.error);
            }
            Err(e) => {
                let refused = LaunchRefusal {
                    error: e.error,
                    fault: fault_of(e.is_temporary),
                };
                self.refuse(state, attempt, refused);
            }
        }
    }

    /// Queues the job's entry for the record file, once per job.
    pub(super) fn note(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        files: LaunchFiles,
    ) {
        let entry = state.jobs.get(&attempt);
        let grant = entry.and_then(|e| e.grant.as_ref());
        let programs = grant.and_then(|grant| state.node.programs_of(grant, files));
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        if std::mem::replace(&mut entry.launch.is_recorded, true) {
            return;
        }
        entry.prolog_epilog = programs;
        let (uid, has_script) = (entry.uid, entry.launch.path.is_some());
        state
            .records
            .came(attempt, uid, has_script, state.now.mono_ms);
        if let Some(grant) = &entry.grant {
            state.records.grant(attempt, &encoded(grant));
        }
        if let Some(programs) = &entry.prolog_epilog {
            state.records.prolog_epilog(attempt, programs);
        }
    }

    pub(super) fn try_later(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        error: &str,
    ) {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.launch.tries += 1;
        if entry.launch.tries == 1 {
            state
                .actions
                .log(format!("job {}: {error}; it is tried again", attempt.job));
        }
        if state.advance(attempt, Move::Lack) {
            state.actions.set_timer(Timer::Retry(attempt), RETRY_MS);
        }
    }

    /// The record file could not be written.
    pub(super) fn not_on_file(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        e: &Failure,
    ) {
        let is_recording = |e: &&JobEntry| e.phase == NodeJobPhase::Recording;
        let Some(entry) = state.jobs.get(&attempt).filter(is_recording) else {
            return;
        };
        let spool = state.node.setup.spool.display();
        let error = format!("cannot write {spool}/attempts: {}", e.error);
        if e.is_temporary && entry.launch.tries < TRIES_MAX {
            return self.try_later(state, attempt, &error);
        }
        self.fail(state, attempt, error, fault_of(e.is_temporary));
        state.start_early_steps(attempt);
    }

    /// A launch fails before anything of it has begun.
    pub(super) fn refuse(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        LaunchRefusal { error, fault }: LaunchRefusal,
    ) {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        if !std::mem::replace(&mut entry.launch.is_recorded, true) {
            let uid = entry.uid;
            state.records.came(attempt, uid, false, state.now.mono_ms);
            if let Some(grant) = &entry.grant {
                state.records.grant(attempt, &encoded(grant));
            }
        }
        self.fail(state, attempt, error, fault);
        state.start_early_steps(attempt);
    }

    /// Begins a job that is on file.
    pub(super) fn begin(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let is_recording = |e: &&JobEntry| e.phase == NodeJobPhase::Recording;
        match state.jobs.get(&attempt).filter(is_recording) {
            Some(entry) if entry.has_prolog() => self.programs.start_prolog(state, attempt),
            Some(_) => self.start_script(state, attempt),
            None => {}
        }
    }

    /// Starts the script of a job that is on file and has no prolog before it, if it has one here; its steps may start.
    pub(super) fn start_script(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let entry = state.jobs.get(&attempt);
        let Some(launch) = entry.and_then(|e| state.node.script_launch(attempt, e)) else {
            if state.advance(attempt, Move::Begin) {
                if let Some(entry) = state.jobs.get_mut(&attempt) {
                    entry.early_signals.clear();
                }
                state.start_early_steps(attempt);
            }
            return;
        };
        if state.jobs[&attempt].phase != NodeJobPhase::Starting
            && !state.advance(attempt, Move::StartScript)
        {
            return;
        }
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            entry.is_starting = true;
            entry.files = Some(ScriptFiles::of(&launch));
        }
        state.actions.push(Action::StartScript(Box::new(launch)));
        state.start_early_steps(attempt);
    }

    pub(super) fn script_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        started: Result<i32, ScriptNotStarted>,
    ) {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.is_starting = false;
        let signals = std::mem::take(&mut entry.early_signals);
        match started {
            Ok(pid) => {
                entry.script = Some(pid);
                entry.launch = Launch::recorded();
                let is_stopped = entry.is_stopped;
                state.records.forked(attempt, pid);
                state.roles.insert(pid, Role::Script(attempt));
                state.sessions.insert(pid, attempt);
                let is_leaving = state.jobs[&attempt].phase != NodeJobPhase::Starting;
                if !is_leaving {
                    state.advance(attempt, Move::Begin);
                }
                if is_stopped {
                    state.actions.push(Action::Signal(pid, signals::SIGSTOP));
                }
                for signal in signals {
                    state.signal_script(attempt, signal);
                }
            }
            Err(ScriptNotStarted::Wrong(error)) => self.fail(state, attempt, error, Fault::Job),
            Err(ScriptNotStarted::Failed(e)) => self.script_lacks(state, attempt, &e),
        }
    }

    pub(super) fn script_lacks(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        e: &Failure,
    ) {
        state.actions.push(Action::ForgetScript(attempt));
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        if entry.phase != NodeJobPhase::Starting {
            // The job was ended meanwhile.
            state.is_unsettled = true;
            return;
        }
        entry.tries += 1;
        let tries = entry.tries;
        if !e.is_temporary || tries > TRIES_MAX {
            let fault = fault_of(e.is_temporary);
            return self.fail(state, attempt, format!("fork: {}", e.error), fault);
        }
        if tries == 1 {
            let line = format!("job {}: fork: {}; it is tried again", attempt.job, e.error);
            state.actions.log(line);
        }
        if state.advance(attempt, Move::Lack) {
            state.actions.set_timer(Timer::Retry(attempt), RETRY_MS);
        }
    }

    /// Retries because a missing resource may be available again.
    pub(super) fn retry(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        // The retry may concern an epilog.
        state.is_unsettled = true;
        match state.jobs.get(&attempt).map(|e| (e.phase, e.program)) {
            Some((NodeJobPhase::Waiting, _)) => self.prepare(state, attempt),
            Some((NodeJobPhase::Prolog, Program::None)) => {
                self.programs.start_prolog(state, attempt)
            }
            Some((NodeJobPhase::Starting, _)) => self.start_script(state, attempt),
            _ => {}
        }
    }

    /// The groups of a user are known: continues the launches and steps that need them.
    pub(super) fn groups_found(
        &mut self,
        state: &mut LauncherState,
        account: &UserAccount,
        groups: Vec<u32>,
    ) {
        let now_ms = state.now.mono_ms;
        if !state
            .groups
            .found(account, groups, now_ms, &mut state.actions)
        {
            return;
        }
        let is_of = |owner: &Owner| owner.user == account.name && owner.gid == account.gid;
        let waiting: Vec<_> = state.without_groups.iter().copied().collect();
        for attempt in waiting {
            let grant = state.jobs.get(&attempt).and_then(|e| e.grant.as_ref());
            if grant.is_none_or(|grant| is_of(&grant.spec.owner)) {
                state.without_groups.remove(&attempt);
                self.go_on_with_groups(state, attempt);
            }
        }
    }

    /// The groups of its user are known: a launch goes on, or steps of a job that an earlier launcher has begun.
    pub(super) fn go_on_with_groups(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        match state.jobs.get(&attempt) {
            Some(entry) if entry.phase == NodeJobPhase::Waiting => self.prepare(state, attempt),
            _ => state.start_early_steps(attempt),
        }
    }

    /// Jobs have released their shares: continues launches that wait for these.
    pub(super) fn go_on_with_queued(&mut self, state: &mut LauncherState) {
        for attempt in std::mem::take(&mut self.queued) {
            if self.must_wait(state, attempt) {
                self.queued.push(attempt);
            } else {
                self.prepare(state, attempt);
            }
        }
    }

    /// Ends a launch of which nothing has begun. Returns whether it was one.
    pub(super) fn end_unbegun(&mut self, state: &mut LauncherState, attempt: JobAttempt) -> bool {
        let Some(entry) = state.jobs.get(&attempt) else {
            return false;
        };
        if !entry.phase.has_not_begun() || !state.advance(attempt, Move::Terminate) {
            return false;
        }
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            entry.launch.batch = None;
        }
        if state.jobs[&attempt].launch.is_recorded {
            state.records.released(attempt);
        }
        self.queued.retain(|queued| *queued != attempt);
        self.recording.retain(|other| *other != attempt);
        self.being_recorded.retain(|other| *other != attempt);
        state.without_groups.remove(&attempt);
        state.actions.stop_timer(Timer::Retry(attempt));
        state.actions.send(LauncherEvent::Released(attempt));
        state.start_early_steps(attempt);
        true
    }

    /// Whether a launch must wait because other jobs use CPUs or devices of its share, and all of these jobs are
    /// ending. This happens when a node returns that the controller had taken for dead, because the controller has
    /// given the share to another job meanwhile. A share that several jobs may use at a time causes no wait.
    pub(super) fn must_wait(&self, state: &LauncherState, attempt: JobAttempt) -> bool {
        let wanted = state.jobs.get(&attempt).and_then(JobEntry::share);
        let Some(wanted) = wanted.filter(|_| !state.ending.is_empty()) else {
            return false;
        };
        let in_the_way = |other: JobAttempt, entry: &JobEntry| {
            other != attempt
                && !entry.phase.is_released()
                && entry.phase != NodeJobPhase::Waiting
                && entry.share().is_some_and(|s| meet(s, wanted))
        };
        let mut ending = state.ending.iter();
        let leaves = |other: &JobAttempt| {
            let entry = state.jobs.get(other);
            entry.is_some_and(|e| in_the_way(*other, e))
        };
        let mut all = state.jobs.iter();
        ending.any(leaves) && all.all(|(other, e)| e.phase.is_ending() || !in_the_way(*other, e))
    }
}

impl LauncherState {
    /// Starts the waiting steps of a job, or refuses them if it is ending.
    pub(super) fn start_early_steps(&mut self, attempt: JobAttempt) {
        let entry = self.jobs.get_mut(&attempt);
        let early = entry.map(|e| std::mem::take(&mut e.early_steps));
        for early in early.into_iter().flatten() {
            self.start_step(early.order, early.random);
        }
    }
}

impl LauncherNode {
    /// The process of a job's script; none if that is on another node.
    fn script_launch(&self, attempt: JobAttempt, entry: &JobEntry) -> Option<ScriptLaunch> {
        let (grant, user) = (entry.grant.as_ref()?, entry.user.as_ref()?);
        let (batch, path) = (entry.launch.batch.as_ref()?, entry.launch.path.as_ref()?);
        let spec = &grant.spec;
        let symbols = Symbols {
            job: grant.job,
            array: grant.array.task(),
            step: None,
            node: &self.place.node,
            node_position: 0,
            task: 0,
            user: &spec.owner.user,
            job_name: &spec.name,
        };
        let default = match symbols.array {
            Some(_) => "slurm-%A_%a.out",
            None => "slurm-%j.out",
        };
        let file = |pattern: &Option<String>| pattern.as_ref().map(|p| expand(p, &symbols));
        let share = grant.alloc.nodes.get(grant.position as usize);
        let machine = self.machine.as_ref();
        let stdin = file(&spec.stdio.stdin).unwrap_or_else(|| "/dev/null".to_owned());
        let stdout = file(&spec.stdio.stdout).unwrap_or_else(|| expand(default, &symbols));
        let stderr = file(&spec.stdio.stderr);
        let mut env = self.batch_env(entry, grant, &batch.context);
        if is_marked(spec) {
            let files = [&stdin, &stdout, stderr.as_ref().unwrap_or(&stdout)];
            for (name, path) in STREAM_PATHS.iter().zip(files) {
                let path = Path::new(&spec.work_dir).join(path);
                env.push(&[name.as_bytes(), b"=", path.as_os_str().as_bytes()]);
            }
        }
        Some(ScriptLaunch {
            attempt,
            user: Rc::clone(user),
            script: path.clone(),
            args: spec.argv.clone(),
            env,
            work_dir: spec.work_dir.clone(),
            stdin,
            stdout,
            stderr,
            append: spec.stdio.append.unwrap_or(self.settings.append),
            limits: propagated_limits(&self.settings, &batch.context.soft_limits),
            cpus: machine.and_then(|m| m.threads(&share?.cpus, &self.settings)),
            confinement: self.confinement(entry),
            namespace: entry.namespace(),
            tmp_dir: entry.tmp_dir().cloned(),
            context: Rc::clone(&batch.context),
        })
    }

    fn shared_tmp_dir(&self, grant: &JobGrant) -> Option<PathBuf> {
        let place = &self.place;
        tmp_dir::shared(grant, &place.cluster, &self.settings, &place.node)
    }

    fn batch_env(&self, entry: &JobEntry, grant: &JobGrant, context: &Context) -> Environment {
        let position = usize::try_from(grant.position).unwrap_or(usize::MAX);
        let view = job_view(grant, &self.place.cluster, &self.settings);
        let mut env = Environment::default();
        for (name, value) in job_env::batch_env(&view, position) {
            let value = match (&context.submit_dir, name.as_str()) {
                (Some(dir), "SLURM_SUBMIT_DIR") => dir,
                _ => &value,
            };
            env.push(&[name.as_bytes(), b"=", value.as_bytes()]);
        }
        let spool = self.setup.spool.to_string_lossy();
        env.push(&[b"MUSTER_SPOOL=", spool.as_bytes()]);
        let attempt = grant.attempt.0.to_string();
        env.push(&[b"MUSTER_ATTEMPT=", attempt.as_bytes()]);
        if let Some(dir) = self.settings.job_scratch() {
            env.push(&[SCRATCH.as_bytes(), b"=", dir.as_bytes()]);
        }
        match self.shared_tmp_dir(grant) {
            // The process that makes the directory sets the variable.
            Some(_) if entry.tmp_dir().is_some() => {}
            Some(shared) => {
                let value = shared.to_string_lossy();
                for name in tmp_dir::VARIABLES {
                    env.push(&[name.as_bytes(), b"=", value.as_bytes()]);
                }
            }
            None => {
                context.tmp_env.iter().for_each(|own| env.push(&[own]));
                if context.tmp_env.value(b"TMPDIR").is_none() {
                    env.push(&[b"TMPDIR=/tmp"]);
                }
            }
        }
        env
    }
}

impl ScriptFiles {
    pub(super) fn of(launch: &ScriptLaunch) -> ScriptFiles {
        let stderr = launch.stderr.as_ref().unwrap_or(&launch.stdout);
        ScriptFiles {
            user: Rc::clone(&launch.user),
            work_dir: launch.work_dir.clone(),
            stderr: stderr.clone(),
        }
    }
}

fn meet(a: &NodeShare, b: &NodeShare) -> bool {
    let same = |x: &GresShare, y: &GresShare| x.name == y.name && x.ids.intersects(&y.ids);
    a.cpus.intersects(&b.cpus) || a.gres.iter().any(|x| b.gres.iter().any(|y| same(x, y)))
}
