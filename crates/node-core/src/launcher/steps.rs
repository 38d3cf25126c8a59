//! Steps of jobs. Each step gets a new step daemon, or one that has finished an earlier step. A step ends with its
//! job, and its result is stored until the agent acknowledges it. The executor delivers reports of step daemons
//! before those of the agent.

use super::NodeJobPhase;
use super::early_steps;
use super::interface::{Action, ResultPurpose, StepdConnId};
use super::job::{EarlyStep, JobEntry};
use super::node::LauncherNode;
use super::state::LauncherState;
use super::step_process::{ConnectedStepd, Placing, StepProcess};
use crate::kept::is_kept_of;
use crate::messages::StepBounds;
use crate::messages::{
    FirstOrder, KeptEntries, KeptEntry, LauncherEvent, NextStep, PmixOrder, StepOrder, StepdCommand,
};
use crate::pmix_place::SHARED_MEMORY;
use crate::signals;
use crate::stepd_reuse::{ORDER_MAX, result_path, socket_path};
use minicbor::bytes::ByteVec;
use muster_model::ids::{Attempt, AttemptStep, JobAttempt, JobId, StepNo};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Beginning of names of directories that a step has for itself.
const STEP_DIR: &str = "muster-pmix.";

/// The step that a file is the result of ([`result_path`]).
pub fn step_of_result(name: &str) -> Option<AttemptStep> {
    let numbers = name.strip_prefix("step-")?.strip_suffix(".end")?;
    let mut numbers = numbers.split('.');
    let job = numbers.next()?.parse().ok()?;
    let attempt = numbers.next()?.parse().ok()?;
    let step = numbers.next()?.parse().ok()?;
    let attempt = JobAttempt::new(JobId(job), Attempt(attempt));
    numbers
        .next()
        .is_none()
        .then_some(AttemptStep::new(attempt, StepNo(step)))
}

/// The name of a step's directories, which are in places where everybody may list names: it has nothing of the job.
fn step_dir_name(node: &str, spool: &Path, random: u64) -> String {
    let mut hasher = DefaultHasher::new();
    spool.hash(&mut hasher);
    let place = hasher.finish();
    format!("{STEP_DIR}{node}.{place:016x}.{random:016x}")
}

/// Whether a path leads to a private directory of a step.
pub fn is_step_dir(path: &str) -> bool {
    let name = Path::new(path).file_name();
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(STEP_DIR.as_bytes()))
}

impl JobEntry {
    /// Processes of the job's step daemons, including those without a step that have not ended.
    pub(super) fn daemons(&self) -> Vec<i32> {
        let live = self.steps.values();
        let live = live.filter(|s| s.ended.is_none() && s.pid > 0);
        let all: BTreeSet<i32> = live
            .map(|s| s.pid)
            .chain(self.dismissed.keys().copied())
            .collect();
        all.into_iter().collect()
    }

    /// Steps that have not ended as far as is known.
    pub(super) fn live_steps(&self) -> Vec<StepNo> {
        let live = self.steps.iter().filter(|(_, p)| p.ended.is_none());
        live.map(|(step, _)| *step).collect()
    }

    /// Number of live steps.
    pub(super) fn live_step_count(&self) -> usize {
        self.steps.values().filter(|p| p.ended.is_none()).count()
    }

    /// Steps among these that run in this process.
    pub(super) fn live_steps_in(&self, pid: i32) -> Vec<StepNo> {
        let live = self.steps.iter();
        let live = live.filter(|(_, p)| p.pid == pid && p.ended.is_none());
        live.map(|(step, _)| *step).collect()
    }

    /// Takes a daemon that waits for a step, if this is one.
    pub(super) fn take_spare(&mut self, pid: i32) -> Option<ConnectedStepd> {
        let at = self.spares.iter().position(|spare| spare.pid == pid)?;
        Some(self.spares.swap_remove(at))
    }

    /// A step that has not ended.
    pub(super) fn live_step(&self, step: StepNo) -> Option<&StepProcess> {
        self.steps.get(&step).filter(|p| p.ended.is_none())
    }
}

impl LauncherNode {
    /// For files of the tasks and of what serves them, and for memory that they share. No other step on this machine
    /// has a directory of that name, not even of another cluster or emulated node, and nobody can make it first.
    fn step_dirs(&self, pmix: &PmixOrder, random: u64) -> Vec<PathBuf> {
        let name = step_dir_name(&self.place.node, &self.setup.spool, random);
        let bases = [pmix.tmp_base.as_str(), SHARED_MEMORY];
        let mut dirs: Vec<PathBuf> = bases.map(|base| Path::new(base).join(&name)).into();
        dirs.dedup();
        dirs
    }

    fn step_socket(&self, entry: Option<&JobEntry>, step: StepNo) -> PathBuf {
        let grant = entry.and_then(|entry| entry.grant.as_ref());
        let job_key = grant.map_or(&[][..], |grant| &grant.key);
        socket_path(&self.setup.spool, job_key, step)
    }
}

/// The record file has the numbers of these steps, or could not be written.
pub(super) fn recorded(
    state: &mut LauncherState,
    steps: Vec<AttemptStep>,
    written: Result<(), &str>,
) {
    for AttemptStep { attempt, step } in steps {
        match written {
            Ok(()) => state.find_stepd(attempt, step),
            Err(error) => {
                state.take_placing(attempt, step);
                let spool = state.node.setup.spool.display();
                let error = format!("cannot write {spool}/attempts: {error}");
                refuse_step(state, attempt, step, error);
            }
        }
    }
}

fn refuse_step(state: &mut LauncherState, attempt: JobAttempt, step: StepNo, error: String) {
    let line = format!("step {}.{step}: {error}", attempt.job);
    state.actions.log_refusal(&line);
    state.actions.send(LauncherEvent::StepFailed {
        attempt,
        step,
        error,
    });
}

impl LauncherState {
    /// Starts a step daemon, or gives one that is there a step.
    pub(super) fn start_step(&mut self, order: Box<StepOrder>, random: Option<u64>) {
        let early = EarlyStep {
            order,
            random,
            bytes: 0,
        };
        let Some(EarlyStep { mut order, .. }) = self.wait_for_job(early) else {
            return;
        };
        let (attempt, step) = (order.attempt, order.launch.step);
        let checked = match (self.jobs.get(&attempt), random) {
            (None, _) => Err("the job is not on this node".to_owned()),
            (Some(e), _) if e.phase.is_leaving() => Err("the job is ending".to_owned()),
            (Some(_), None) => Err("cannot read random numbers".to_owned()),
            (Some(e), Some(random)) => {
                let confined = self.node.confine_step(e, &mut order);
                confined.map(|bounds| (bounds, random))
            }
        };
        match checked {
            Ok((bounds, random)) => self.place_step(order, bounds, random),
            Err(error) => refuse_step(self, attempt, step, error),
        }
    }

    /// Keeps a step's start until its job has begun, with its prolog, and the user's groups are known; gives it back if there
    /// is nothing to wait for.
    pub(super) fn wait_for_job(&mut self, early: EarlyStep) -> Option<EarlyStep> {
        let attempt = early.order.attempt;
        let is_here = |e: &&JobEntry| !e.phase.is_leaving();
        let Some(entry) = self.jobs.get(&attempt).filter(is_here) else {
            return Some(early);
        };
        let mut waits = entry.phase.has_not_begun() || entry.phase == NodeJobPhase::Prolog;
        if !waits && entry.user.is_none() {
            // An earlier launcher has begun the job.
            let grant = entry.grant.clone();
            let user = grant.and_then(|grant| self.user_of(&grant.spec.owner));
            waits = user.is_none() && self.jobs[&attempt].grant.is_some();
            if waits {
                self.without_groups.insert(attempt);
            }
            if let Some(entry) = self.jobs.get_mut(&attempt) {
                entry.user = user;
            }
        }
        if !waits {
            return Some(early);
        }
        let bytes = early_steps::bytes_of(&early.order);
        match early_steps::may_wait(self, attempt, bytes) {
            Ok(()) => {
                let entry = self.jobs.get_mut(&attempt);
                let early = EarlyStep { bytes, ..early };
                entry?.early_steps.push(early);
            }
            Err(error) => {
                let step = early.order.launch.step;
                self.actions.send(LauncherEvent::StepFailed {
                    attempt,
                    step,
                    error,
                });
            }
        }
        None
    }

    pub(super) fn place_step(&mut self, order: Box<StepOrder>, bounds: StepBounds, random: u64) {
        let (attempt, step) = (order.attempt, order.launch.step);
        let is_direct = order.direct;
        let entry = self.jobs.get(&attempt);
        let socket = self.node.step_socket(entry, step);
        let next = NextStep {
            order,
            kill_wait_ms: self.node.kill_wait_ms,
            result: result_path(&self.node.setup.spool, attempt, step)
                .to_string_lossy()
                .into_owned(),
            kept: self.kept_of(attempt, step),
        };
        let placing = Placing {
            next: Some(next),
            bounds,
            random,
            is_direct,
            socket,
            dirs: Vec::new(),
            spare: None,
        };
        if let Some(entry) = self.jobs.get_mut(&attempt) {
            entry.placing.insert(step, placing);
        }
        // Another agent and launcher would not know the number of a step without a record, and give it to another.
        match self.records.has_pending() {
            true => self.recording_steps.push(AttemptStep::new(attempt, step)),
            false => self.find_stepd(attempt, step),
        }
    }

    /// Finds a daemon for the step: an existing one to which the agent has no connection, or a new one.
    pub(super) fn find_stepd(&mut self, attempt: JobAttempt, step: StepNo) {
        let Some(entry) = self.jobs.get_mut(&attempt) else {
            return;
        };
        let Some(placing) = entry.placing.get_mut(&step) else {
            return;
        };
        let Some(next) = &placing.next else {
            return;
        };
        // The streams of a direct step come from the agent, once it is connected to the daemon.
        let needs_start = next.order.pmix.is_some() || placing.is_direct;
        let free = entry.spares.iter().position(|spare| !spare.is_owned);
        if let Some(at) = free.filter(|_| !needs_start) {
            let frame = next.as_command();
            if frame.len() <= ORDER_MAX {
                let spare = entry.spares.swap_remove(at);
                let stepd = spare.id;
                placing.spare = Some(spare);
                return self.actions.push(Action::GiveStep {
                    attempt,
                    step,
                    stepd,
                    frame,
                });
            }
        }
        self.start_stepd(attempt, step);
    }

    pub(super) fn start_stepd(&mut self, attempt: JobAttempt, step: StepNo) {
        let placing = |state: &mut LauncherState| {
            let entry = state.jobs.get_mut(&attempt)?;
            let placing = entry.placing.get_mut(&step)?;
            Some((placing.next.take()?, placing.bounds.clone(), placing.random))
        };
        let Some((next, bounds, random)) = placing(self) else {
            return;
        };
        let pmix = next.order.pmix.as_ref();
        let listen = pmix.map(|pmix| pmix.listen.clone());
        let dirs = pmix.map(|pmix| self.node.step_dirs(pmix, random));
        let dirs = dirs.unwrap_or_default();
        if !dirs.is_empty() {
            self.records.step_dirs(attempt, step, &dirs);
        }
        let Some(entry) = self.jobs.get_mut(&attempt) else {
            return;
        };
        let (confinement, namespace) = (self.node.confinement(entry), entry.namespace());
        let Some(placing) = entry.placing.get_mut(&step) else {
            return;
        };
        placing.dirs.clone_from(&dirs);
        let socket = placing.socket.clone();
        let order = Box::new(FirstOrder {
            node: self.node.place.node.clone(),
            dirs,
            has_wire: listen.is_some(),
            has_agent: true,
            first_limits: self.node.setup.first_limits.clone(),
            bounds,
            spool: self.node.setup.spool.clone(),
            groups: None,
            step: next,
        });
        self.actions.push(Action::StartStepd {
            order,
            socket,
            listen,
            confinement,
            namespace,
        });
    }

    pub(super) fn take_placing(&mut self, attempt: JobAttempt, step: StepNo) -> Option<Placing> {
        self.is_unsettled = true;
        self.jobs.get_mut(&attempt)?.placing.remove(&step)
    }

    /// Results that were not reported are in the daemon's file, or lost; the end of the process decides.
    pub(super) fn stepd_closed(&mut self, id: StepdConnId) {
        self.actions.push(Action::StopListening(id));
    }

    /// A step daemon ended: its result is read. One that was killed left none, perhaps processes, and files.
    pub(super) fn stepd_ended(&mut self, attempt: JobAttempt, step: StepNo) {
        let entry = self.jobs.get(&attempt);
        let process = entry.and_then(|e| e.steps.get(&step));
        if process.is_none_or(|p| p.ended.is_some()) {
            return;
        }
        let stepd = process.and_then(|p| p.stepd.as_ref());
        let socket = stepd.map(|s| s.socket.clone());
        let socket = socket.unwrap_or_else(|| self.node.step_socket(entry, step));
        self.actions.push(Action::RemoveSocket(socket));
        self.actions.push(Action::ReadResult(
            attempt,
            step,
            ResultPurpose::DaemonEnded,
        ));
    }

    /// The lead knows how a step ended here.
    pub(super) fn forget_step(&mut self, attempt: JobAttempt, step: StepNo) {
        let Some(entry) = self.jobs.get_mut(&attempt) else {
            return;
        };
        let Some(process) = entry.steps.get(&step).filter(|p| p.ended.is_some()) else {
            return;
        };
        let is_reported = process.is_reported;
        entry.steps.remove(&step);
        self.records.step_gone(attempt, step);
        if !is_reported {
            self.actions.push(Action::RemoveResult(attempt, step));
        }
    }

    /// Ends all steps of a job, and prints the reason on their standard error.
    pub(super) fn end_all_steps(&mut self, attempt: JobAttempt, message: Option<&str>) {
        for step in self
            .jobs
            .get(&attempt)
            .map_or_else(Vec::new, JobEntry::live_steps)
        {
            let process = self.jobs.get(&attempt).and_then(|e| e.steps.get(&step));
            let stepd = process.and_then(|p| p.stepd.as_ref()).map(|s| s.id);
            if let (Some(text), Some(stepd)) = (message, stepd) {
                let (job, node) = (attempt.job, &self.node.place.node);
                let text = format!("slurmstepd: error: *** STEP {job}.{step} ON {node} {text} ***");
                // A daemon that does not read is being killed anyway.
                let line = StepdCommand::PrintStepLine(text);
                self.actions.push(Action::SendStepd(stepd, line));
            }
            end_daemon(self, attempt, step, None);
        }
    }

    pub(super) fn ask_steps_to_end(&mut self, attempt: JobAttempt) {
        for step in self
            .jobs
            .get(&attempt)
            .map_or_else(Vec::new, JobEntry::live_steps)
        {
            end_daemon(self, attempt, step, None);
        }
    }

    /// Makes the daemon of a step end its tasks: by TERM, and after a delay by KILL.
    pub(super) fn end_step(&mut self, attempt: JobAttempt, step: StepNo) {
        end_daemon(self, attempt, step, Some(step));
    }

    /// Prints a line in the standard error of a step, whichever node it is on.
    pub(super) fn print_in_step(&mut self, attempt: JobAttempt, step: StepNo, text: &str) {
        let line = format!("slurmstepd: error: {text}");
        self.command_step(attempt, step, StepdCommand::PrintLine(line));
    }

    pub(super) fn command_step(
        &mut self,
        attempt: JobAttempt,
        step: StepNo,
        command: StepdCommand,
    ) {
        let process = self.jobs.get(&attempt).and_then(|e| e.steps.get(&step));
        let stepd = process.and_then(|p| p.stepd.as_ref()).map(|s| s.id);
        // A daemon that does not read is being killed.
        self.actions
            .extend(stepd.map(|stepd| Action::SendStepd(stepd, command)));
    }

    /// Signals all processes of a step; one that is to end it also ends a step whose tasks have not started.
    pub(super) fn signal_step(&mut self, attempt: JobAttempt, step: StepNo, signal: i32) {
        let entry = self.jobs.get(&attempt);
        let Some(pid) = entry.and_then(|e| e.live_step(step)).map(|p| p.pid) else {
            return;
        };
        let of = self.members(attempt);
        self.actions.push(Action::SignalStep {
            of,
            step,
            pid,
            signal,
        });
    }

    /// No task of a step was there to be signalled: the step ends, or its daemon keeps the signal until the tasks run.
    pub(super) fn step_has_no_tasks(&mut self, attempt: JobAttempt, step: StepNo, signal: i32) {
        if matches!(
            signal,
            signals::SIGKILL | signals::SIGTERM | signals::SIGINT
        ) {
            return self.end_step(attempt, step);
        }
        let entry = self.jobs.get(&attempt);
        let stepd = entry.and_then(|e| e.live_step(step)?.stepd.as_ref());
        // Daemons of an earlier launcher may not know the message.
        if stepd.is_some_and(|stepd| !stepd.is_adopted) {
            let command = StepdCommand::SignalLater(signal.unsigned_abs(), Some(step));
            self.command_step(attempt, step, command);
        }
    }

    /// A first step got the signals that its job was sent before.
    pub(super) fn signal_first_step(&mut self, attempt: JobAttempt, step: StepNo) {
        let now_ms = self.now.mono_ms;
        let entry = self.jobs.get_mut(&attempt);
        let early = entry.map(|e| std::mem::take(&mut e.early_step_signals));
        for kept in early.unwrap_or_default() {
            if kept.until_ms > now_ms {
                self.signal_step(attempt, step, kept.signal);
            }
        }
    }

    /// The stored entries of a step, for its daemon.
    pub(super) fn kept_of(&self, attempt: JobAttempt, step: StepNo) -> KeptEntries {
        let kept = self.records.kept(attempt);
        let of_step = kept.filter(|(key, _)| is_kept_of(*key, step));
        let entry = |(key, bytes): (u32, &ByteVec)| KeptEntry {
            key,
            bytes: bytes.clone(),
        };
        of_step.map(entry).collect()
    }

    pub(super) fn may_have_step(&self, attempt: JobAttempt, step: StepNo) -> bool {
        let entry = self.jobs.get(&attempt).filter(|e| !e.phase.is_released());
        entry.is_some_and(|e| !e.had_step(step))
    }

    pub(super) fn enter_assigned(&mut self, attempt: JobAttempt, step: StepNo, pid: i32) {
        let now_ms = self.now.mono_ms;
        self.records.step(attempt, step, pid, now_ms);
        let Some(entry) = self.jobs.get_mut(&attempt) else {
            return;
        };
        entry.enter_step(step, StepProcess::new(pid, None));
        if entry.phase.is_ending() {
            self.end_step(attempt, step);
        }
    }

    /// A step that was assigned ended with its daemon before the launcher received a report.
    pub(super) fn report_lost(&mut self, attempt: JobAttempt, step: StepNo) {
        self.actions
            .push(Action::ReadResult(attempt, step, ResultPurpose::Assigned));
    }

    /// Takes in results of steps that are known from nowhere else.
    pub(super) fn results_listed(&mut self, results: Vec<AttemptStep>) {
        for AttemptStep { attempt, step } in results {
            let Some(entry) = self.jobs.get(&attempt).filter(|e| !e.phase.is_released()) else {
                continue;
            };
            if entry.forgotten_steps.contains(&step) {
                self.actions.push(Action::RemoveResult(attempt, step));
            } else if !entry.steps.contains_key(&step) {
                let purpose = ResultPurpose::Found;
                self.actions
                    .push(Action::ReadResult(attempt, step, purpose));
            }
        }
    }
}

/// Makes the daemon of a step end it; without `only`, also the step that its agent gave it since.
fn end_daemon(state: &mut LauncherState, attempt: JobAttempt, step: StepNo, only: Option<StepNo>) {
    let entry = state.jobs.get(&attempt);
    let Some(process) = entry.and_then(|e| e.live_step(step)) else {
        return;
    };
    match &process.stepd {
        Some(stepd) => {
            let command = StepdCommand::EndStep(only);
            let action = Action::SendStepd(stepd.id, command);
            state.actions.push(action);
        }
        None if process.pid > 0 => {
            let pid = process.pid;
            state.actions.push(Action::Signal(pid, signals::SIGTERM));
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_known_by_their_names() {
        let attempt = JobAttempt::new(JobId(7), Attempt(2));
        let path = result_path(Path::new("/spool"), attempt, StepNo(3));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            step_of_result(name),
            Some(AttemptStep::new(attempt, StepNo(3)))
        );
        for other in [
            "step-abcdefghijklmnop.3.sock",
            "step-7.2.3.next",
            "step-7.2.3.4.end",
            "7.2.3.end",
        ] {
            assert_eq!(step_of_result(other), None, "{other}");
        }
    }
}
