//! How jobs end: asked, then killed, and released when no process is left.
//!
//! A job's end leaves no process: what survives its script was orphaned on the way and thus adopted by the launcher, so
//! after each script's end it is enough to look whether the launcher has children that it did not start.

use super::event::{Action, MessageKind, TimerKey};
use super::job::{JobEntry, Program};
use super::{Launcher, Move, Phase, Role};
use crate::messages::{JobAttempt, LauncherEvent};
use crate::signals;
use muster_model::command::SignalScope;
use muster_model::ids::StepNo;
use std::path::PathBuf;

/// How long step daemons may go on after their tasks were killed, to pass on the last output.
const AFTER_KILL_MS: u64 = 10_000;
/// How long a message may take to be written: a job that ends waits for it.
const MESSAGE_WAIT_MS: u64 = 2000;
/// How long the directories of a step may take to be removed: its job ends only then.
const REMOVAL_WAIT_MS: u64 = 30_000;

impl Launcher {
    /// A job is on its way out.
    pub(super) fn begin_end(&mut self, run: JobAttempt, happens: Move) {
        if !self.advance(run, happens) {
            return;
        }
        self.actions.stop_timer(TimerKey::Retry(run));
        self.queued.retain(|queued| *queued != run);
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        let is_new = entry.kill_at_ms.is_none();
        if is_new && entry.phase.is_ending() {
            entry.kill_at_ms = Some(self.now.mono_ms + self.node.kill_wait_ms);
        }
        self.dismiss_spares(run);
        if is_new {
            self.actions
                .set_timer(TimerKey::Kill(run), self.node.kill_wait_ms);
        }
        self.is_unsettled = true;
    }

    pub(super) fn terminate(&mut self, run: JobAttempt, at_once: bool, message: Option<String>) {
        let Some(phase) = self.jobs.get(&run).map(|e| e.phase) else {
            return self.actions.send(LauncherEvent::Released(run));
        };
        if phase.is_released() {
            return self.actions.send(LauncherEvent::Released(run));
        }
        if self.end_unbegun(run) {
            return;
        }
        let is_first = !phase.is_ending();
        let last = self.waiting.take_last(run, self.jobs.get(&run));
        self.deliver(last);
        if is_first {
            self.records.ending(run);
        }
        self.begin_end(run, Move::Terminate);
        if at_once {
            self.kill_job(run);
        } else if is_first {
            // The message comes before what the script writes when it is signalled, as in Slurm.
            let is_printed = message.as_ref().is_some_and(|text| {
                let text = format!("*** JOB {} ON {} {text} ***", run.job, self.node.place.node);
                let outlet = (&mut self.jobs, &mut self.actions);
                (self.notices).print(outlet, run, Some(text), MessageKind::BeforeTerm)
            });
            if !is_printed {
                self.ask_to_end(run);
            }
            self.end_all_steps(run, message.as_deref());
        }
    }

    /// Signals the script that it should end.
    fn ask_to_end(&mut self, run: JobAttempt) {
        self.signal_script(run, signals::SIGCONT);
        self.signal_script(run, signals::SIGTERM);
    }

    /// Prints a line for a script, and then kills it if that is wanted: it is printed before its end.
    pub(super) fn print_in_script(&mut self, run: JobAttempt, text: String, kill: bool) {
        let outlet = (&mut self.jobs, &mut self.actions);
        if !kill {
            self.notices.add(outlet, run, text);
        } else if !(self.notices).print(outlet, run, Some(text), MessageKind::BeforeKill) {
            self.signal_script(run, signals::SIGKILL);
        }
    }

    pub(super) fn message_started(
        &mut self,
        run: JobAttempt,
        kind: MessageKind,
        started: Result<i32, String>,
    ) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        entry.starting_writers = entry.starting_writers.saturating_sub(1);
        match started {
            Ok(pid) => {
                entry.writers.insert(pid);
                self.roles.insert(pid, Role::Message(run, kind));
                self.actions
                    .set_timer(TimerKey::Writer(run, pid), MESSAGE_WAIT_MS);
            }
            Err(e) => {
                self.actions.log(format!(
                    "job {}: its message cannot be written: {e}",
                    run.job
                ));
                self.is_unsettled = true;
                self.message_written(run, kind);
            }
        }
    }

    /// A message was written, or cannot be.
    pub(super) fn message_written(&mut self, run: JobAttempt, kind: MessageKind) {
        match kind {
            MessageKind::Notice => {
                let outlet = (&mut self.jobs, &mut self.actions);
                self.notices.written(outlet, run);
            }
            MessageKind::BeforeTerm => self.ask_to_end(run),
            MessageKind::BeforeKill => self.signal_script(run, signals::SIGKILL),
        }
    }

    /// Has directories of a job's removed; it ends when they are, or it has taken too long.
    pub(super) fn remove_dirs(&mut self, run: JobAttempt, dirs: Vec<PathBuf>) {
        if !dirs.is_empty() {
            self.actions.push(Action::RemoveDirs(run, dirs));
        }
    }

    pub(super) fn removal_started(&mut self, run: JobAttempt, pid: i32) {
        self.roles.insert(pid, Role::Remover(run));
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.removers.insert(pid);
            self.actions
                .set_timer(TimerKey::Writer(run, pid), REMOVAL_WAIT_MS);
        }
    }

    /// A process that wrote a message or removed directories has ended.
    pub(super) fn writer_ended(&mut self, run: JobAttempt, pid: i32) {
        self.actions.stop_timer(TimerKey::Writer(run, pid));
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.writers.remove(&pid);
            entry.removers.remove(&pid);
        }
    }

    /// Kills a process that has not written its message in time, or not removed its directories.
    pub(super) fn writer_late(&mut self, run: JobAttempt, pid: i32) {
        let entry = self.jobs.get(&run);
        if entry.is_some_and(|e| e.writers.contains(&pid) || e.removers.contains(&pid)) {
            self.actions.push(Action::Signal(pid, signals::SIGKILL));
        }
    }

    pub(super) fn signal(
        &mut self,
        run: JobAttempt,
        step: Option<StepNo>,
        signal: i32,
        scope: SignalScope,
    ) {
        match (step, scope) {
            (Some(StepNo::BATCH), _) => self.signal_script(run, signal),
            (Some(step), _) => self.signal_step(run, step, signal),
            (None, SignalScope::Batch) => self.signal_script_alone(run, signal),
            (None, SignalScope::Steps) => self.signal_steps(run, signal),
            (None, SignalScope::Full) => {
                if let Some(entry) = self.jobs.get_mut(&run) {
                    entry.is_stopped = match signal {
                        signals::SIGSTOP => true,
                        signals::SIGCONT => false,
                        _ => entry.is_stopped,
                    };
                }
                self.signal_script(run, signal);
                self.signal_steps(run, signal);
            }
        }
    }

    fn signal_steps(&mut self, run: JobAttempt, signal: i32) {
        let entry = self.jobs.get(&run);
        let steps = entry.map(|e| e.steps.keys().copied().collect::<Vec<_>>());
        for step in steps.unwrap_or_default() {
            self.signal_step(run, step, signal);
        }
    }

    fn signal_script_alone(&mut self, run: JobAttempt, signal: i32) {
        match self.jobs.get_mut(&run) {
            Some(JobEntry {
                script: Some(pid), ..
            }) => {
                let pid = *pid;
                self.actions.push(Action::Signal(pid, signal));
            }
            Some(entry) => drop(entry.keep_signal(signal)),
            None => {}
        }
    }

    /// Signals the script, its descendants, and orphans of the job: parents first, so that none sees a child end by the
    /// signal, and goes on or ends by itself, before it has the signal too.
    pub(super) fn signal_script(&mut self, run: JobAttempt, signal: i32) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if entry.keep_signal(signal) {
            return;
        }
        let script = entry.script;
        let of = self.members(run);
        self.actions
            .push(Action::SignalScript { of, script, signal });
    }

    /// Kills everything of a job but its step daemons, which end by themselves once their tasks are gone.
    pub(super) fn kill_job(&mut self, run: JobAttempt) {
        if !self.advance(run, Move::Kill) {
            return;
        }
        self.signal_script(run, signals::SIGKILL);
        let roots = self.jobs.get(&run).map_or_else(Vec::new, JobEntry::daemons);
        let of = self.members(run);
        if !roots.is_empty() {
            self.actions.push(Action::SignalBelow {
                of,
                roots,
                signal: signals::SIGKILL,
            });
        }
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        let writers: Vec<i32> = entry.writers.iter().copied().collect();
        if entry.phase != Phase::Epilog {
            entry.kill_at_ms = Some(self.now.mono_ms + AFTER_KILL_MS);
            self.actions.set_timer(TimerKey::Kill(run), AFTER_KILL_MS);
        }
        for pid in writers {
            self.actions.push(Action::Signal(pid, signals::SIGKILL));
        }
        // A daemon that has no task yet must not start one.
        self.ask_steps_to_end(run);
        self.is_unsettled = true;
    }

    /// `KillWait` is over, or SIGKILL has not helped for a while.
    pub(super) fn kill_wait_over(&mut self, run: JobAttempt) {
        let Some(phase) = self.jobs.get(&run).map(|e| e.phase) else {
            return;
        };
        if !phase.is_ending() || phase == Phase::Epilog {
            return;
        }
        if phase == Phase::Clearing {
            for pid in self.jobs.get(&run).map_or_else(Vec::new, JobEntry::daemons) {
                let job = run.job;
                self.actions.log(format!(
                    "job {job}: step daemon {pid} does not end and is killed"
                ));
                self.actions.push(Action::Signal(pid, signals::SIGKILL));
            }
        }
        self.kill_job(run);
        self.report_if_unkillable(run);
    }

    /// Processes that SIGKILL does not end make a node unfit: it is reported once, and the site's program is run.
    fn report_if_unkillable(&mut self, run: JobAttempt) {
        let Some((timeout_ms, program)) = self.node.unkillable.clone() else {
            return;
        };
        let now_ms = self.now.mono_ms;
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if entry.program != Program::None {
            // What runs is the site's.
            return;
        }
        let since_ms = *entry.killed_since_ms.get_or_insert(now_ms);
        if entry.is_unkillable || now_ms.saturating_sub(since_ms) < timeout_ms {
            return;
        }
        entry.is_unkillable = true;
        self.report_fault(run, "Kill task failed".to_owned());
        if let Some(program) = program {
            self.run_unkillable(run, program);
        }
    }

    /// The node is unfit for others: reported now, and to every agent that comes before the job is forgotten.
    pub(super) fn report_fault(&mut self, run: JobAttempt, error: String) {
        self.actions.log(format!("job {}: {error}", run.job));
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.fault = Some(error.clone());
        }
        self.actions.send(LauncherEvent::NodeFault { run, error });
    }

    /// Looks for what is left of jobs that are ending and have no process that is known; whether there are such jobs.
    pub(super) fn settle(&mut self) -> bool {
        let is_done = |run: &&JobAttempt| self.jobs.get(run).is_none_or(|e| !e.is_busy());
        let done = self.ending.iter().filter(is_done);
        let done: Vec<_> = done.map(|run| self.members(*run)).collect();
        let is_any = !done.is_empty();
        if is_any {
            self.actions.push(Action::FindLeftovers(done));
        }
        is_any
    }

    /// Releases jobs of which nothing is left, and kills what survived scripts that have ended.
    pub(super) fn leftovers_found(
        &mut self,
        left: Vec<(JobAttempt, Vec<i32>)>,
        is_unclear: bool,
        since_ms: u64,
    ) {
        for (run, found) in left {
            let Some(entry) = self.jobs.get(&run) else {
                continue;
            };
            if !entry.phase.is_ending() || entry.is_busy() {
                continue;
            }
            if found.is_empty() {
                if !self.start_epilog(run) {
                    self.release(run);
                }
            } else if entry.outcome.is_some() || entry.phase != Phase::Ending {
                let of = self.members(run);
                self.actions.push(Action::SignalFound {
                    of,
                    found,
                    since_ms,
                    signal: signals::SIGKILL,
                });
            }
        }
        if is_unclear {
            // With the last job of its user gone, an orphan that could have been any of several jobs' is nobody's.
            self.actions.push(Action::KillOrphans);
        }
    }

    pub(super) fn release(&mut self, run: JobAttempt) {
        if !self.advance(run, Move::Release) {
            return;
        }
        self.actions.stop_timer(TimerKey::Kill(run));
        self.actions.stop_timer(TimerKey::Retry(run));
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.files = None;
        }
        // Those that still wait for the groups of their user are refused now.
        self.start_early_steps(run);
        self.share_is_free = true;
        self.records.released(run);
        self.actions.send(LauncherEvent::Released(run));
    }
}
