//! Recovery of attempts in the record file of an earlier launcher. Nothing is launched again.
//!
//! The earlier launcher was killed, so processes of its jobs are now children of init and go on. The new one watches
//! them. If nobody knows how a script ended, its job is reported as vanished.

use super::interface::{Action, Recovered, Timer};
use super::job::{JobEntry, Launch};
use super::records::RecordedAttempt;
use super::state::{LauncherState, Role};
use super::step_process::StepProcess;
use super::{Launcher, Move, NodeJobPhase};
use crate::messages::LauncherEvent;
use muster_model::ids::{JobAttempt, JobId, StepNo};
use muster_proto::node::JobGrant;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A process started this much later than its record is another one with the same number.
const START_SLACK_MS: u64 = 2000;

impl Launcher {
    /// Takes over the attempts on file.
    pub(super) fn recover(&mut self, left: Recovered) {
        if let Some(settings) = left.settings {
            // Nobody has asked for a health check yet.
            self.state.node.apply(settings);
        }
        let mut processes = left.processes;
        for (attempt, old) in left.attempts {
            let noted = left.scripts.get(&attempt).copied();
            self.take_over(attempt, &old, left.same_boot, noted, &mut processes);
        }
        // Processes that are none of them have only got their numbers.
        for pid in processes.into_keys() {
            if !self.state.roles.contains_key(&pid) {
                self.state.actions.push(Action::Unwatch(pid));
            }
        }
        if left.same_boot {
            self.state.actions.push(Action::AskStepds(None));
        }
        let jobs: BTreeSet<JobId> = self.state.jobs.keys().map(|attempt| attempt.job).collect();
        self.state.actions.push(Action::RemoveFilesOfOthers(jobs));
        self.state.sweep_containers();
        self.state.is_unsettled = true;
    }

    fn take_over(
        &mut self,
        attempt: JobAttempt,
        old: &RecordedAttempt,
        same_boot: bool,
        noted: Option<i32>,
        processes: &mut BTreeMap<i32, u64>,
    ) {
        let grant = old
            .grant
            .as_ref()
            .and_then(|bytes| self.state.grant_of(attempt, bytes));
        let mut entry = JobEntry {
            phase: match old.released {
                true => NodeJobPhase::Released,
                false => NodeJobPhase::Running,
            },
            uid: old.uid,
            is_recovered: same_boot,
            grant,
            prolog_epilog: old.prolog_epilog.clone(),
            forgotten_steps: old.steps_gone.clone(),
            ..JobEntry::default()
        };
        entry.launch = Launch::recorded();
        for step in &old.steps_gone {
            entry.numbers.insert(*step);
        }
        self.state.jobs.insert(attempt, entry);
        if same_boot {
            if let Some(pid) = old.pid {
                self.state.sessions.insert(pid, attempt);
            }
            for (&step, &pid) in &old.steps {
                self.state.sessions.insert(pid, attempt);
                self.state
                    .take_over_step(attempt, step, pid, old, processes);
            }
        } else {
            let dirs = old.step_dirs.values().flatten().cloned();
            self.state.remove_dirs(attempt, dirs.collect());
        }
        if let Some(ended) = old.ended.clone() {
            return self.conclude(attempt, ended.event(attempt), old.released);
        }
        if let Some(failure) = old.failed.clone() {
            let event = failure.fault.event(attempt, failure.error);
            return self.conclude(attempt, event, old.released);
        }
        if old.batch && same_boot {
            // Where its fork was not written down any more, the script itself has noted it.
            let mut found = [old.pid, noted].into_iter().flatten();
            let is_it = |start_ms: u64| is_of(start_ms, old.boot_ms, START_SLACK_MS);
            let is_script = |pid: &i32| processes.get(pid).is_some_and(|start| is_it(*start));
            if let Some(pid) = found.find(is_script) {
                self.state.roles.insert(pid, Role::Script(attempt));
                if let Some(entry) = self.state.jobs.get_mut(&attempt) {
                    entry.script = Some(pid);
                }
                if old.ending {
                    self.state.resume_ending(attempt);
                }
                return;
            }
        }
        let programs = old.prolog_epilog.as_ref();
        let has_prolog = programs.is_some_and(|p| !p.prolog.is_empty() || p.container.is_some());
        let in_prolog = has_prolog && !old.prolog_over;
        if old.batch || in_prolog || !same_boot {
            self.conclude(attempt, LauncherEvent::Vanished(attempt), old.released);
        } else if old.ending {
            self.state.resume_ending(attempt);
        }
    }

    fn conclude(&mut self, attempt: JobAttempt, outcome: LauncherEvent, is_released: bool) {
        if is_released {
            if let Some(entry) = self.state.jobs.get_mut(&attempt) {
                entry.outcome = Some(outcome);
            }
        } else {
            self.launches.finish(&mut self.state, attempt, outcome);
        }
    }
}

impl LauncherState {
    /// The attempt was ordered to end before: starts the wait before KILL again.
    pub(super) fn resume_ending(&mut self, attempt: JobAttempt) {
        let is_here = |e: &JobEntry| !e.phase.is_released();
        if self.jobs.get(&attempt).is_some_and(is_here) && self.advance(attempt, Move::Terminate) {
            if let Some(entry) = self.jobs.get_mut(&attempt) {
                entry.kill_at_ms = Some(self.now.mono_ms + self.node.kill_wait_ms);
            }
            self.actions
                .set_timer(Timer::Kill(attempt), self.node.kill_wait_ms);
        }
    }

    pub(super) fn take_over_step(
        &mut self,
        attempt: JobAttempt,
        step: StepNo,
        pid: i32,
        old: &RecordedAttempt,
        processes: &BTreeMap<i32, u64>,
    ) {
        let dirs = old.step_dirs.get(&step).cloned().unwrap_or_default();
        let ended = old.step_ends.get(&step).cloned();
        let is_over = ended.is_some();
        // The process id may have been reused since. Earlier versions do not record the start time.
        let at_ms = old.steps_at_ms.get(&step).copied();
        let last_ms = at_ms.map_or(u64::MAX, |at_ms| at_ms.saturating_add(START_SLACK_MS));
        let is_it =
            |start_ms: &u64| is_of(*start_ms, old.boot_ms, u64::MAX) && *start_ms <= last_ms;
        let runs = !is_over && processes.get(&pid).is_some_and(is_it);
        if runs {
            self.roles.insert(pid, Role::Step(attempt, step));
        }
        let process = StepProcess {
            dirs,
            ended,
            ..StepProcess::new(if runs { pid } else { 0 }, None)
        };
        if let Some(entry) = self.jobs.get_mut(&attempt) {
            entry.enter_step(step, process);
        }
        if !is_over && !runs {
            self.stepd_ended(attempt, step);
        }
    }

    /// The grant that is on file.
    pub(super) fn grant_of(&mut self, attempt: JobAttempt, bytes: &[u8]) -> Option<Rc<JobGrant>> {
        match minicbor::decode(bytes) {
            Ok(grant) => Some(Rc::new(grant)),
            Err(e) => {
                self.actions.log(format!(
                    "job {}: its grant cannot be read back: {e}",
                    attempt.job
                ));
                None
            }
        }
    }
}

/// Whether a process that started at `start_ms` is the one recorded at `boot_ms`. It may have started up to `slack` later, and by
/// `START_SLACK_MS` earlier.
fn is_of(start_ms: u64, boot_ms: u64, slack: u64) -> bool {
    start_ms.saturating_add(START_SLACK_MS) >= boot_ms && start_ms <= boot_ms.saturating_add(slack)
}
