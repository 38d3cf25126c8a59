//! Ends of jobs: asked, then killed, and released when no process is left.
//!
//! A job's end leaves no process: survivors of its script were orphaned on the way and thus adopted by the launcher, so
//! after each script's end it is enough to look whether the launcher has children that it did not start.

use super::interface::{Action, Leftovers, MessageKind, Timer};
use super::job::{JobEntry, Program};
use super::launches::Launches;
use super::state::LauncherState;
use super::{Move, NodeJobPhase};
use crate::messages::LauncherEvent;
use crate::signals;
use muster_model::ids::JobAttempt;

/// Time that step daemons may go on after their tasks were killed, to pass on the last output.
const AFTER_KILL_MS: u64 = 10_000;

impl Launches {
    /// A job is on its way out.
    pub(super) fn begin_end(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        happens: Move,
    ) {
        if !state.advance(attempt, happens) {
            return;
        }
        state.actions.stop_timer(Timer::Retry(attempt));
        self.queued.retain(|queued| *queued != attempt);
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        if entry.is_stopped {
            state.actions.push(Action::FreezeGroups(attempt, false));
        }
        if entry.phase.is_ending() {
            // Its script will not be started any more.
            entry.launch.batch = None;
        }
        let is_new = entry.kill_at_ms.is_none();
        if is_new && entry.phase.is_ending() {
            entry.kill_at_ms = Some(state.now.mono_ms + state.node.kill_wait_ms);
        }
        self.daemons.dismiss_spares(state, attempt);
        if is_new {
            state
                .actions
                .set_timer(Timer::Kill(attempt), state.node.kill_wait_ms);
        }
        state.is_unsettled = true;
    }

    pub(super) fn terminate(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        at_once: bool,
        message: Option<String>,
    ) {
        let Some(phase) = state.jobs.get(&attempt).map(|e| e.phase) else {
            return state.actions.send(LauncherEvent::Released(attempt));
        };
        if phase.is_released() {
            return state.actions.send(LauncherEvent::Released(attempt));
        }
        if self.end_unbegun(state, attempt) {
            return;
        }
        let is_first = !phase.is_ending();
        let last = self
            .signals
            .waiting
            .take_last(attempt, state.jobs.get(&attempt));
        self.signals.deliver(state, last);
        if is_first {
            state.records.ending(attempt);
        }
        self.begin_end(state, attempt, Move::Terminate);
        if at_once {
            self.kill_job(state, attempt);
        } else if is_first {
            // As in Slurm, the message comes before the script's own output after the signal.
            let is_printed = message.as_ref().is_some_and(|text| {
                let text = format!(
                    "*** JOB {} ON {} {text} ***",
                    attempt.job, state.node.place.node
                );
                (self.writers.notices).print(state, attempt, Some(text), MessageKind::BeforeTerm)
            });
            if !is_printed {
                state.ask_to_end(attempt);
            }
            state.end_all_steps(attempt, message.as_deref());
        }
    }

    /// Kills everything of a job but its step daemons, which end by themselves once their tasks are gone.
    pub(super) fn kill_job(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        if !state.advance(attempt, Move::Kill) {
            return;
        }
        state.signal_script(attempt, signals::SIGKILL);
        let roots = state
            .jobs
            .get(&attempt)
            .map_or_else(Vec::new, JobEntry::daemons);
        let of = state.members(attempt);
        if !roots.is_empty() {
            state.actions.push(Action::SignalBelow {
                of,
                roots,
                signal: signals::SIGKILL,
            });
        }
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        let writers: Vec<i32> = entry.writers.iter().copied().collect();
        if entry.phase != NodeJobPhase::Epilog {
            entry.kill_at_ms = Some(state.now.mono_ms + AFTER_KILL_MS);
            state.actions.set_timer(Timer::Kill(attempt), AFTER_KILL_MS);
        }
        for pid in writers {
            state.actions.push(Action::Signal(pid, signals::SIGKILL));
        }
        // A daemon that has no task yet must not start one.
        state.ask_steps_to_end(attempt);
        state.is_unsettled = true;
    }

    /// `KillWait` is over, or SIGKILL has not helped for a while.
    pub(super) fn kill_wait_over(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let Some(phase) = state.jobs.get(&attempt).map(|e| e.phase) else {
            return;
        };
        if !phase.is_ending() || phase == NodeJobPhase::Epilog {
            return;
        }
        if phase == NodeJobPhase::Clearing {
            for pid in state
                .jobs
                .get(&attempt)
                .map_or_else(Vec::new, JobEntry::daemons)
            {
                let job = attempt.job;
                state.actions.log(format!(
                    "job {job}: step daemon {pid} does not end and is killed"
                ));
                state.actions.push(Action::Signal(pid, signals::SIGKILL));
            }
        }
        self.kill_job(state, attempt);
        self.report_if_unkillable(state, attempt);
    }

    /// Processes that SIGKILL does not end make a node unfit: it is reported once, and the site's program is run.
    pub(super) fn report_if_unkillable(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let Some((timeout_ms, program)) = state.node.unkillable.clone() else {
            return;
        };
        let now_ms = state.now.mono_ms;
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        if entry.program != Program::None {
            // The remaining processes belong to the site.
            return;
        }
        let since_ms = *entry.killed_since_ms.get_or_insert(now_ms);
        if entry.is_unkillable || now_ms.saturating_sub(since_ms) < timeout_ms {
            return;
        }
        entry.is_unkillable = true;
        state.report_fault(attempt, "Kill task failed".to_owned());
        if let Some(program) = program {
            self.programs.run_unkillable(state, attempt, program);
        }
    }

    /// Searches for remaining processes of ending jobs that have no known process. Returns whether there are such
    /// jobs.
    pub(super) fn settle(&mut self, state: &mut LauncherState) -> bool {
        let is_done = |attempt: &&JobAttempt| state.jobs.get(attempt).is_none_or(|e| !e.is_busy());
        let done = state.ending.iter().filter(is_done);
        let done: Vec<_> = done.map(|attempt| state.members(*attempt)).collect();
        let is_any = !done.is_empty();
        if is_any {
            state.actions.push(Action::FindLeftovers(done));
        }
        is_any
    }

    /// Releases jobs without remaining processes, and kills processes that survived scripts that have ended.
    pub(super) fn leftovers_found(
        &mut self,
        state: &mut LauncherState,
        left: Vec<Leftovers>,
        is_unclear: bool,
        since_ms: u64,
    ) {
        for Leftovers { attempt, pids } in left {
            let Some(entry) = state.jobs.get(&attempt) else {
                continue;
            };
            if !entry.phase.is_ending() || entry.is_busy() {
                continue;
            }
            if pids.is_empty() {
                if !self.programs.start_epilog(state, attempt)
                    && !self.programs.start_container_removal(state, attempt)
                {
                    self.release(state, attempt);
                }
            } else if entry.outcome.is_some() || entry.phase != NodeJobPhase::Ending {
                let of = state.members(attempt);
                state.actions.push(Action::SignalFound {
                    of,
                    found: pids,
                    since_ms,
                    signal: signals::SIGKILL,
                });
            }
        }
        if is_unclear {
            // With the last job of its user gone, an orphan that could have been any of several jobs' is nobody's.
            state.actions.push(Action::KillOrphans);
        }
    }

    pub(super) fn release(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        if !state.advance(attempt, Move::Release) {
            return;
        }
        state.actions.stop_timer(Timer::Kill(attempt));
        state.actions.stop_timer(Timer::Retry(attempt));
        state.actions.push(Action::RemoveGroups(attempt));
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            entry.files = None;
            let removal = entry.tmp_dir_to_remove().cloned();
            state.actions.extend(removal.map(Action::RemoveTmpDir));
        }
        // Steps that still wait for the groups of their user are refused now.
        state.start_early_steps(attempt);
        self.share_is_free = true;
        state.records.released(attempt);
        state.actions.send(LauncherEvent::Released(attempt));
    }
}
