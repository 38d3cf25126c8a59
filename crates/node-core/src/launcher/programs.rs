//! `Prolog` and `Epilog`: programs of the site that run as the launcher's own user, usually root, before a job begins
//! on this node and after its last process has ended. A job's launch and its steps wait for the prolog, its release
//! for the epilog. Background processes of these programs belong to the site, and are left alone.

use super::interface::{Action, JobProgramKind, LaunchFiles, Timer};
use super::job::{JobEntry, Program};
use super::node::LauncherNode;
use super::state::{LauncherState, Role};
use super::{Move, NodeJobPhase};
use crate::PrologEpilog;
use crate::exit_status::exit_status;
use crate::job_view::job_view;
use crate::messages::LauncherEvent;
use crate::{signals, tmp_dir};
use muster_model::ids::JobAttempt;
use muster_model::job_env;
use muster_proto::node::JobGrant;
use std::collections::VecDeque;

impl LauncherNode {
    /// The site's programs around a job, if there are any.
    pub(super) fn programs_of(
        &self,
        grant: &JobGrant,
        files: LaunchFiles,
    ) -> Option<Box<PrologEpilog>> {
        let settings = &self.settings;
        let container = self.container_of(grant);
        let place = &self.place;
        let tmp_dir = tmp_dir::of_job(grant, &place.cluster, settings, &place.node);
        let has_programs = settings.prolog.is_some() || settings.epilog.is_some();
        if !has_programs && container.is_none() && tmp_dir.is_none() {
            return None;
        }
        if !has_programs && container.is_none() {
            // No program needs an environment, and each job's is in the record file.
            return Some(Box::new(PrologEpilog {
                tmp_dir,
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
    fn must_wait_turn(&self, state: &LauncherState, attempt: JobAttempt) -> bool {
        let is_of_site = |program: Program, of: JobAttempt| match program {
            Program::None => false,
            Program::Starting => true,
            Program::Running { pid, .. } => {
                matches!(state.roles.get(&pid), Some(Role::Prolog(by) | Role::Epilog(by)) if *by == of)
            }
        };
        let mut jobs = state.jobs.iter();
        state.node.settings.serial_programs
            && jobs.any(|(of, e)| *of != attempt && is_of_site(e.program, *of))
    }

    /// No prolog or epilog runs any more: the next that waits for that does.
    pub(super) fn go_on_in_turn(&mut self, state: &mut LauncherState) {
        while let Some(next) = self.waiting.pop_front() {
            let is_in_prolog = |e: &JobEntry| e.phase == NodeJobPhase::Prolog;
            if state.jobs.get(&next).is_some_and(is_in_prolog) {
                return self.start_prolog(state, next);
            }
        }
    }

    pub(super) fn start_programs(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        kind: JobProgramKind,
        programs: Vec<String>,
    ) {
        let entry = state.jobs.get(&attempt);
        let around = entry.and_then(|e| e.prolog_epilog.as_ref());
        let mut env = around.map(|p| p.env.clone()).unwrap_or_default();
        if env.is_empty() {
            env.push(format!("SLURM_JOB_ID={}", attempt.job));
            env.push(format!("SLURMD_NODENAME={}", state.node.place.node));
        }
        state.actions.push(Action::StartPrograms {
            attempt,
            kind,
            programs,
            env,
        });
    }

    /// Runs the prolog of a job that is on file; its launch, if it has one here, waits.
    pub(super) fn start_prolog(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let is_first = |phase| phase == NodeJobPhase::Recording;
        if state.jobs.get(&attempt).is_some_and(|e| is_first(e.phase))
            && !state.advance(attempt, Move::StartProlog)
        {
            return;
        }
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        let Some(programs) = &entry.prolog_epilog else {
            return;
        };
        if programs.prolog.is_empty() || entry.is_past_prolog {
            return self.start_container(state, attempt);
        }
        let prolog = programs.prolog.clone();
        if self.must_wait_turn(state, attempt) {
            if !self.waiting.contains(&attempt) {
                self.waiting.push_back(attempt);
            }
            return;
        }
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.program = Program::Starting;
        self.start_programs(state, attempt, JobProgramKind::Prolog, prolog);
    }

    pub(super) fn program_runs(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        pid: i32,
        timeout_s: fn(&PrologEpilog) -> Option<u32>,
    ) {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.tries = 0;
        entry.program = Program::Running {
            pid,
            is_late: false,
        };
        let timeout_s = entry.prolog_epilog.as_ref().and_then(|p| timeout_s(p));
        if let Some(timeout_s) = timeout_s {
            let timer = Timer::Programs(attempt);
            state.actions.set_timer(timer, u64::from(timeout_s) * 1000);
        }
        if self.is_killing {
            state
                .actions
                .push(Action::SignalGroup(pid, signals::SIGKILL));
        }
    }

    /// The last of a job is gone: whether its epilog has to run, and does so from now on.
    pub(super) fn start_epilog(&mut self, state: &mut LauncherState, attempt: JobAttempt) -> bool {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return false;
        };
        let epilog = entry.prolog_epilog.as_ref().map(|p| p.epilog.clone());
        let Some(programs) = epilog.filter(|programs| !programs.is_empty()) else {
            return false;
        };
        if self.is_killing || entry.phase == NodeJobPhase::Epilog {
            return false;
        }
        if self.must_wait_turn(state, attempt) {
            // The end of the other has this job looked at again.
            return true;
        }
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return false;
        };
        let status = match &entry.outcome {
            Some(LauncherEvent::BatchEnded { status, .. }) => Some(*status),
            _ => None,
        };
        entry.program = Program::Starting;
        self.start_programs(state, attempt, JobProgramKind::Epilog(status), programs);
        true
    }

    /// The programs around a job have ended; whether they had been killed because their time was over.
    pub(super) fn program_ended(&mut self, state: &mut LauncherState, attempt: JobAttempt) -> bool {
        state.actions.stop_timer(Timer::Programs(attempt));
        let entry = state.jobs.get_mut(&attempt);
        let program = entry.map(|e| std::mem::take(&mut e.program));
        matches!(program, Some(Program::Running { is_late: true, .. }))
    }

    /// Kills programs around a job whose time is over.
    pub(super) fn programs_late(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        if self.leave_removal(state, attempt) {
            return;
        }
        let Some(entry) = state.jobs.get_mut(&attempt) else {
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
    pub(super) fn run_unkillable(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        program: String,
    ) {
        self.start_programs(state, attempt, JobProgramKind::Unkillable, vec![program]);
    }

    /// Kills programs that run around jobs; no more are started.
    pub(super) fn end_programs(&mut self, state: &mut LauncherState) {
        self.is_killing = true;
        let programs = state.jobs.values().map(|e| e.program);
        for program in programs.collect::<Vec<_>>() {
            if let Program::Running { pid, .. } = program
                && !matches!(state.roles.get(&pid), Some(Role::ContainerRemoval(_)))
            {
                // Each program leads its own session, and thus its process group.
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
