//! Effects on a job when a program around it was started, could not be started, or has ended.

use super::interface::{Failure, JobProgramKind, Timer};
use super::job::Program;
use super::launches::Launches;
use super::programs::describe;
use super::records::Fault;
use super::retry::{RETRY_MS, TRIES_MAX, fault_of};
use super::state::{LauncherState, Role};
use super::{Move, NodeJobPhase};
use muster_model::ids::JobAttempt;

impl Launches {
    /// Programs around a job run, or could not be started.
    pub(super) fn programs_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        kind: JobProgramKind,
        started: Result<i32, Failure>,
    ) {
        match (kind, started) {
            (JobProgramKind::Unkillable, Ok(pid)) => drop(state.roles.insert(pid, Role::Other)),
            (JobProgramKind::Unkillable, Err(e)) => {
                let line = format!(
                    "job {}: UnkillableStepProgram: fork: {}",
                    attempt.job, e.error
                );
                state.actions.log(line);
            }
            (JobProgramKind::Prolog, Ok(pid)) => {
                state.roles.insert(pid, Role::Prolog(attempt));
                self.programs
                    .program_runs(state, attempt, pid, |programs| programs.prolog_timeout_s);
            }
            (JobProgramKind::Epilog(_), Ok(pid)) => {
                state.roles.insert(pid, Role::Epilog(attempt));
                if state.advance(attempt, Move::StartEpilog) {
                    state.actions.stop_timer(Timer::Kill(attempt));
                }
                self.programs
                    .program_runs(state, attempt, pid, |programs| programs.epilog_timeout_s);
            }
            (JobProgramKind::Container, Ok(pid)) => {
                state.roles.insert(pid, Role::Container(attempt));
                self.programs
                    .program_runs(state, attempt, pid, |programs| programs.prolog_timeout_s);
            }
            (JobProgramKind::Container, Err(e)) => {
                self.prolog_not_started(state, attempt, "JobContainerType", &e)
            }
            (JobProgramKind::ContainerRemoval, started) => {
                self.container_removal_started(state, attempt, started)
            }
            (JobProgramKind::Prolog, Err(e)) => {
                self.prolog_not_started(state, attempt, "Prolog", &e)
            }
            (JobProgramKind::Epilog(_), Err(e)) => self.epilog_not_started(state, attempt, &e),
        }
    }

    /// There are no processes left, as a rule, which users can use up: it is tried again for a while.
    pub(super) fn prolog_not_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        key: &str,
        e: &Failure,
    ) {
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.program = Program::None;
        state.is_unsettled = true;
        self.programs.go_on_in_turn(state);
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        if entry.phase != NodeJobPhase::Prolog {
            // The job is ending, so the prolog is not retried.
            return state.start_early_steps(attempt);
        }
        entry.tries += 1;
        let tries = entry.tries;
        if e.is_temporary && tries <= TRIES_MAX {
            if tries == 1 {
                let line = format!(
                    "job {}: {key}: fork: {}; it is tried again",
                    attempt.job, e.error
                );
                state.actions.log(line);
            }
            if state.advance(attempt, Move::Lack) {
                state.actions.set_timer(Timer::Retry(attempt), RETRY_MS);
            }
            return;
        }
        let fault = fault_of(e.is_temporary);
        self.fail(state, attempt, format!("{key}: fork: {}", e.error), fault);
        state.start_early_steps(attempt);
    }

    pub(super) fn prolog_ended(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        status: i32,
    ) {
        let is_late = self.programs.program_ended(state, attempt);
        self.programs.go_on_in_turn(state);
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.is_past_prolog = true;
        let programs = entry.prolog_epilog.as_ref();
        let has_container = programs.is_some_and(|p| p.container.is_some());
        if status != 0 && !self.programs.is_killing {
            let programs = programs.map_or_else(String::new, |p| p.prolog.join(", "));
            let error = format!("Prolog {programs} failed: {}", describe(status, is_late));
            state.actions.log(format!("job {}: {error}", attempt.job));
            self.fail(state, attempt, error, Fault::Prolog);
        } else if entry.phase == NodeJobPhase::Prolog && has_container {
            self.programs.start_prolog(state, attempt);
        } else if entry.phase == NodeJobPhase::Prolog {
            state.records.prolog_over(attempt, state.now.mono_ms);
            self.start_script(state, attempt);
        }
        // If the job is ending meanwhile, this refuses the steps.
        state.start_early_steps(attempt);
        state.is_unsettled = true;
    }

    pub(super) fn epilog_not_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        e: &Failure,
    ) {
        let line = format!("job {}: Epilog: fork: {}", attempt.job, e.error);
        state.actions.log(line);
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.program = Program::None;
        self.programs.go_on_in_turn(state);
        if !e.is_temporary {
            if !self.programs.start_container_removal(state, attempt) {
                self.release(state, attempt);
            }
            return;
        }
        // No job ends without it because users have used up all processes.
        if state.advance(attempt, Move::Lack) {
            state.actions.set_timer(Timer::Retry(attempt), RETRY_MS);
        }
    }

    pub(super) fn epilog_ended(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        status: i32,
    ) {
        let is_late = self.programs.program_ended(state, attempt);
        self.programs.go_on_in_turn(state);
        let entry = state.jobs.get(&attempt);
        let programs = entry.and_then(|e| e.prolog_epilog.as_ref());
        let programs = programs.map_or_else(String::new, |p| p.epilog.join(", "));
        if status != 0 && !self.programs.is_killing {
            let status = describe(status, is_late);
            state.report_fault(attempt, format!("Epilog error: {programs}: {status}"));
        }
        state.is_unsettled = true;
    }
}
