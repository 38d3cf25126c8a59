//! `Prolog` and `Epilog`: programs of the site that run as the launcher's own user, root as a rule, before a job begins on
//! this node and after the last of it is gone. A job's launch and its steps wait for the former, its release for the
//! latter. What these programs leave in the background is the site's, and left alone.

use super::interface::{Action, Failure, LaunchFiles, ProgramKind, Timer};
use super::job::{JobEntry, Program};
use super::launch::{RETRY_MS, TRIES_MAX, fault_of};
use super::launches::Launches;
use super::node::Node;
use super::records::Fault;
use super::state::{Role, State};
use super::{Move, Phase};
use crate::PrologEpilog;
use crate::exit_status::exit_status;
use crate::job_view::job_view;
use crate::messages::LauncherEvent;
use crate::signals;
use muster_model::ids::JobAttempt;
use muster_model::job_env;
use muster_proto::node::JobGrant;
use std::collections::VecDeque;

impl Node {
    /// What the site runs around a job, if anything.
    pub(super) fn programs_of(
        &self,
        grant: &JobGrant,
        files: LaunchFiles,
    ) -> Option<Box<PrologEpilog>> {
        let settings = &self.settings;
        let container = self.container_of(grant);
        let tmp_dir = self.tmp_dir_of(grant);
        let has_programs = settings.prolog.is_some() || settings.epilog.is_some();
        if !has_programs && container.is_none() && tmp_dir.is_none() {
            return None;
        }
        if !has_programs && container.is_none() {
            // No program needs an environment, and each job's is in the record file.
            return Some(Box::new(PrologEpilog {
                tmp_dir,
                prolog_timeout_s: settings.prolog_timeout_s,
                ..PrologEpilog::default()
            }));
        }
        let position = usize::try_from(grant.position).unwrap_or(usize::MAX);
        let view = job_view(grant, &self.place.cluster, settings);
        let mut env: Vec<String> = job_env::program_env(&view, position)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        env.push(format!("MUSTER_SPOOL={}", self.setup.spool.display()));
        Some(Box::new(PrologEpilog {
            prolog: files.prolog,
            epilog: files.epilog,
            env,
            prolog_timeout_s: settings.prolog_timeout_s,
            epilog_timeout_s: settings.epilog_timeout_s,
            container,
            tmp_dir,
        }))
    }
}

impl Launches {
    /// Programs around a job run, or could not be started.
    pub(super) fn programs_started(
        &mut self,
        state: &mut State,
        run: JobAttempt,
        kind: ProgramKind,
        started: Result<i32, Failure>,
    ) {
        match (kind, started) {
            (ProgramKind::Unkillable, Ok(pid)) => drop(state.roles.insert(pid, Role::Other)),
            (ProgramKind::Unkillable, Err(e)) => {
                let line = format!("job {}: UnkillableStepProgram: fork: {}", run.job, e.error);
                state.actions.log(line);
            }
            (ProgramKind::Prolog, Ok(pid)) => {
                state.roles.insert(pid, Role::Prolog(run));
                self.programs
                    .program_runs(state, run, pid, |programs| programs.prolog_timeout_s);
            }
            (ProgramKind::Epilog(_), Ok(pid)) => {
                state.roles.insert(pid, Role::Epilog(run));
                if state.advance(run, Move::StartEpilog) {
                    state.actions.stop_timer(Timer::Kill(run));
                }
                self.programs
                    .program_runs(state, run, pid, |programs| programs.epilog_timeout_s);
            }
            (ProgramKind::Container, Ok(pid)) => {
                state.roles.insert(pid, Role::Container(run));
                self.programs
                    .program_runs(state, run, pid, |programs| programs.prolog_timeout_s);
            }
            (ProgramKind::Container, Err(e)) => {
                self.prolog_not_started(state, run, "JobContainerType", &e)
            }
            (ProgramKind::ContainerRemoval, started) => {
                self.container_removal_started(state, run, started)
            }
            (ProgramKind::Prolog, Err(e)) => self.prolog_not_started(state, run, "Prolog", &e),
            (ProgramKind::Epilog(_), Err(e)) => self.epilog_not_started(state, run, &e),
        }
    }

    /// There are no processes left, as a rule, which users can use up: it is tried again for a while.
    pub(super) fn prolog_not_started(
        &mut self,
        state: &mut State,
        run: JobAttempt,
        key: &str,
        e: &Failure,
    ) {
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        entry.program = Program::None;
        state.is_unsettled = true;
        self.programs.go_on_in_turn(state);
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        if entry.phase != Phase::Prolog {
            // It is ending: there is nothing to try again for.
            return state.start_early_steps(run);
        }
        entry.tries += 1;
        let tries = entry.tries;
        if e.is_temporary && tries <= TRIES_MAX {
            if tries == 1 {
                let line = format!(
                    "job {}: {key}: fork: {}; it is tried again",
                    run.job, e.error
                );
                state.actions.log(line);
            }
            if state.advance(run, Move::Lack) {
                state.actions.set_timer(Timer::Retry(run), RETRY_MS);
            }
            return;
        }
        let fault = fault_of(e.is_temporary);
        self.fail(state, run, format!("{key}: fork: {}", e.error), fault);
        state.start_early_steps(run);
    }

    pub(super) fn prolog_ended(&mut self, state: &mut State, run: JobAttempt, status: i32) {
        let is_late = self.programs.program_ended(state, run);
        self.programs.go_on_in_turn(state);
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        entry.is_past_prolog = true;
        let programs = entry.prolog_epilog.as_ref();
        let has_dirs = programs.is_some_and(|p| p.has_dirs());
        if status != 0 && !self.programs.is_killing {
            let programs = programs.map_or_else(String::new, |p| p.prolog.join(", "));
            let error = format!("Prolog {programs} failed: {}", describe(status, is_late));
            state.actions.log(format!("job {}: {error}", run.job));
            self.fail(state, run, error, Fault::Prolog);
        } else if entry.phase == Phase::Prolog && has_dirs {
            self.programs.start_prolog(state, run);
        } else if entry.phase == Phase::Prolog {
            state.records.prolog_over(run, state.now.mono_ms);
            self.start_script(state, run);
        }
        // These are refused where the job is ending now.
        state.start_early_steps(run);
        state.is_unsettled = true;
    }

    pub(super) fn epilog_not_started(&mut self, state: &mut State, run: JobAttempt, e: &Failure) {
        let line = format!("job {}: Epilog: fork: {}", run.job, e.error);
        state.actions.log(line);
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        entry.program = Program::None;
        self.programs.go_on_in_turn(state);
        if !e.is_temporary {
            if !self.programs.start_container_removal(state, run) {
                self.release(state, run);
            }
            return;
        }
        // No job ends without it because users have used up all processes.
        if state.advance(run, Move::Lack) {
            state.actions.set_timer(Timer::Retry(run), RETRY_MS);
        }
    }

    pub(super) fn epilog_ended(&mut self, state: &mut State, run: JobAttempt, status: i32) {
        let is_late = self.programs.program_ended(state, run);
        self.programs.go_on_in_turn(state);
        let entry = state.jobs.get(&run);
        let programs = entry.and_then(|e| e.prolog_epilog.as_ref());
        let programs = programs.map_or_else(String::new, |p| p.epilog.join(", "));
        if status != 0 && !self.programs.is_killing {
            let status = describe(status, is_late);
            state.report_fault(run, format!("Epilog error: {programs}: {status}"));
        }
        state.is_unsettled = true;
    }
}

/// Programs around jobs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Everything is killed: none is started any more.
    pub(super) is_killing: bool,
    /// Jobs whose prolog waits until no other runs (`PrologFlags=Serial`).
    waiting: VecDeque<JobAttempt>,
}

impl Programs {
    /// Whether another job's prolog or epilog runs, and the site wants one at a time.
    fn must_wait_turn(&self, state: &State, run: JobAttempt) -> bool {
        let is_of_site = |program: Program, of: JobAttempt| match program {
            Program::None => false,
            Program::Starting => true,
            Program::Running { pid, .. } => {
                matches!(state.roles.get(&pid), Some(Role::Prolog(by) | Role::Epilog(by)) if *by == of)
            }
        };
        let mut jobs = state.jobs.iter();
        state.node.settings.serial_programs
            && jobs.any(|(of, e)| *of != run && is_of_site(e.program, *of))
    }

    /// No prolog or epilog runs any more: the next that waits for that does.
    pub(super) fn go_on_in_turn(&mut self, state: &mut State) {
        while let Some(next) = self.waiting.pop_front() {
            let is_in_prolog = |e: &JobEntry| e.phase == Phase::Prolog;
            if state.jobs.get(&next).is_some_and(is_in_prolog) {
                return self.start_prolog(state, next);
            }
        }
    }

    pub(super) fn start_programs(
        &mut self,
        state: &mut State,
        run: JobAttempt,
        kind: ProgramKind,
        programs: Vec<String>,
    ) {
        let entry = state.jobs.get(&run);
        let around = entry.and_then(|e| e.prolog_epilog.as_ref());
        let mut env = around.map(|p| p.env.clone()).unwrap_or_default();
        if env.is_empty() {
            env.push(format!("SLURM_JOB_ID={}", run.job));
            env.push(format!("SLURMD_NODENAME={}", state.node.place.node));
        }
        state.actions.push(Action::StartPrograms {
            run,
            kind,
            programs,
            env,
        });
    }

    /// Runs the prolog of a job that is on file; its launch, if it has one here, waits.
    pub(super) fn start_prolog(&mut self, state: &mut State, run: JobAttempt) {
        let is_first = |phase| phase == Phase::Recording;
        if state.jobs.get(&run).is_some_and(|e| is_first(e.phase))
            && !state.advance(run, Move::StartProlog)
        {
            return;
        }
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        let Some(programs) = &entry.prolog_epilog else {
            return;
        };
        if programs.prolog.is_empty() || entry.is_past_prolog {
            return self.start_container(state, run);
        }
        let prolog = programs.prolog.clone();
        if self.must_wait_turn(state, run) {
            if !self.waiting.contains(&run) {
                self.waiting.push_back(run);
            }
            return;
        }
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        entry.program = Program::Starting;
        self.start_programs(state, run, ProgramKind::Prolog, prolog);
    }

    pub(super) fn program_runs(
        &mut self,
        state: &mut State,
        run: JobAttempt,
        pid: i32,
        timeout_s: fn(&PrologEpilog) -> Option<u32>,
    ) {
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        entry.tries = 0;
        entry.program = Program::Running {
            pid,
            is_late: false,
        };
        let timeout_s = entry.prolog_epilog.as_ref().and_then(|p| timeout_s(p));
        if let Some(timeout_s) = timeout_s {
            let timer = Timer::Programs(run);
            state.actions.set_timer(timer, u64::from(timeout_s) * 1000);
        }
        if self.is_killing {
            state
                .actions
                .push(Action::SignalGroup(pid, signals::SIGKILL));
        }
    }

    /// The last of a job is gone: whether its epilog has to run, and does so from now on.
    pub(super) fn start_epilog(&mut self, state: &mut State, run: JobAttempt) -> bool {
        let Some(entry) = state.jobs.get_mut(&run) else {
            return false;
        };
        let epilog = entry.prolog_epilog.as_ref().map(|p| p.epilog.clone());
        let Some(programs) = epilog.filter(|programs| !programs.is_empty()) else {
            return false;
        };
        if self.is_killing || entry.phase == Phase::Epilog {
            return false;
        }
        if self.must_wait_turn(state, run) {
            // The end of the other has this job looked at again.
            return true;
        }
        let Some(entry) = state.jobs.get_mut(&run) else {
            return false;
        };
        let status = match &entry.outcome {
            Some(LauncherEvent::BatchEnded { status, .. }) => Some(*status),
            _ => None,
        };
        entry.program = Program::Starting;
        self.start_programs(state, run, ProgramKind::Epilog(status), programs);
        true
    }

    /// The programs around a job have ended; whether they had been killed because their time was over.
    pub(super) fn program_ended(&mut self, state: &mut State, run: JobAttempt) -> bool {
        state.actions.stop_timer(Timer::Programs(run));
        let entry = state.jobs.get_mut(&run);
        let program = entry.map(|e| std::mem::take(&mut e.program));
        matches!(program, Some(Program::Running { is_late: true, .. }))
    }

    /// Kills programs around a job whose time is over.
    pub(super) fn programs_late(&mut self, state: &mut State, run: JobAttempt) {
        if self.leave_removal(state, run) {
            return;
        }
        let Some(entry) = state.jobs.get_mut(&run) else {
            return;
        };
        if let Program::Running { pid, is_late } = &mut entry.program {
            *is_late = true;
            let pid = *pid;
            state
                .actions
                .push(Action::SignalGroup(pid, signals::SIGKILL));
        }
    }

    /// Runs the site's program for processes of a job that survive SIGKILL.
    pub(super) fn run_unkillable(&mut self, state: &mut State, run: JobAttempt, program: String) {
        self.start_programs(state, run, ProgramKind::Unkillable, vec![program]);
    }

    /// Kills programs that run around jobs; no more are started.
    pub(super) fn end_programs(&mut self, state: &mut State) {
        self.is_killing = true;
        let programs = state.jobs.values().map(|e| e.program);
        for program in programs.collect::<Vec<_>>() {
            if let Program::Running { pid, .. } = program
                && !matches!(state.roles.get(&pid), Some(Role::ContainerRemoval(_)))
            {
                // They lead their sessions and thus their groups.
                state
                    .actions
                    .push(Action::SignalGroup(pid, signals::SIGKILL));
            }
        }
    }
}

pub(super) fn describe(status: i32, is_late: bool) -> String {
    let exit = exit_status(status);
    if is_late && exit.signal == signals::SIGKILL.unsigned_abs() {
        "it ran longer than PrologEpilogTimeout and was killed".to_owned()
    } else if exit.signal != 0 {
        format!("it was killed by signal {}", exit.signal)
    } else {
        format!("exit status {}", exit.code)
    }
}
