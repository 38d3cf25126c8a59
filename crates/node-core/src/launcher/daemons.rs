//! Connections to step daemons: their reports, and the reuse of a daemon whose step has ended. Such a daemon waits
//! for another step of its job, which the agent sends by its own connection and then reports here. The launcher asks
//! daemons that an earlier launcher started which step they run, because agent and launcher may both have been lost
//! between a step's start and its report. Such a daemon has a copy of the step's stored entries; if the daemon has
//! ended too, its result file has one.

use super::end::EncodedEnd;
use super::end::lost;
use super::interface::StartedStepd;
use super::interface::{Action, ProcessOwner, ResultPurpose, StepResult, StepdConnId};
use super::state::{LauncherState, Role};
use super::step_process::{ConnectedStepd, Placing, StepProcess};
use crate::messages::{KeptEntries, KeptEntry, LauncherEvent, RunningStep, StepdCommand, VERSIONS};
use crate::signals;
use crate::stepd_reuse::SPARES_MAX;
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_model::job::StepEnd;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepdPlace {
    /// It runs a step.
    Step(JobAttempt, StepNo),
    /// It waits for another.
    Spare(JobAttempt),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StepDaemons {
    pub(super) stepds: BTreeMap<StepdConnId, StepdPlace>,
}

impl StepDaemons {
    /// A step daemon was started, or could not be.
    pub(super) fn stepd_started(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        started: Result<StartedStepd, String>,
    ) {
        let Some(placing) = state.take_placing(attempt, step) else {
            return;
        };
        match started {
            Ok(StartedStepd {
                stepd,
                pid,
                mesh_address,
            }) => {
                let stepd = ConnectedStepd {
                    id: stepd,
                    pid,
                    socket: placing.socket.clone(),
                    is_owned: true,
                    is_adopted: false,
                };
                state.sessions.insert(pid, attempt);
                self.step_ready(
                    state,
                    AttemptStep::new(attempt, step),
                    stepd,
                    placing,
                    mesh_address,
                );
            }
            Err(error) => state.actions.send(LauncherEvent::StepFailed {
                attempt,
                step,
                error,
            }),
        }
    }

    /// Whether a daemon that has had a step has got this one.
    pub(super) fn step_given(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        is_sent: bool,
    ) {
        let entry = state.jobs.get_mut(&attempt);
        let placing = entry.and_then(|e| e.placing.get_mut(&step));
        let Some(mut spare) = placing.and_then(|p| p.spare.take()) else {
            return;
        };
        if is_sent {
            let Some(placing) = state.take_placing(attempt, step) else {
                return;
            };
            spare.is_owned = true;
            return self.step_ready(state, AttemptStep::new(attempt, step), spare, placing, None);
        }
        state
            .actions
            .push(Action::Signal(spare.pid, signals::SIGKILL));
        mark_dismissed(state, spare.pid, None);
        state.actions.push(Action::RemoveSocket(spare.socket));
        self.close_stepd(state, spare.id);
        state.find_stepd(attempt, step);
    }

    pub(super) fn step_ready(
        &mut self,
        state: &mut LauncherState,
        AttemptStep { attempt, step }: AttemptStep,
        stepd: ConnectedStepd,
        placing: Placing,
        mesh_address: Option<String>,
    ) {
        let (id, pid) = (stepd.id, stepd.pid);
        let socket = stepd.socket.to_string_lossy().into_owned();
        self.enter_step(state, attempt, step, stepd, placing.dirs);
        state.actions.push(Action::ListenTo(id));
        state.actions.send(LauncherEvent::StepReady {
            attempt,
            step,
            socket,
            mesh_address,
            direct: placing.is_direct,
            pid,
        });
        if state
            .jobs
            .get(&attempt)
            .is_some_and(|e| e.phase.is_leaving())
        {
            return state.end_step(attempt, step);
        }
        state.signal_first_step(attempt, step);
    }

    /// A step runs in a daemon to which there is a connection.
    pub(super) fn enter_step(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        stepd: ConnectedStepd,
        dirs: Vec<PathBuf>,
    ) {
        let (id, pid) = (stepd.id, stepd.pid);
        let now_ms = state.now.mono_ms;
        state.records.step(attempt, step, pid, now_ms);
        state.roles.insert(pid, Role::Step(attempt, step));
        self.stepds.insert(id, StepdPlace::Step(attempt, step));
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            let process = StepProcess {
                dirs,
                ..StepProcess::new(pid, Some(stepd))
            };
            entry.enter_step(step, process);
        }
    }

    /// A step daemon reports that a step has ended.
    pub(super) fn step_reported(
        &mut self,
        state: &mut LauncherState,
        id: StepdConnId,
        step: StepNo,
        end: EncodedEnd,
    ) {
        // Another step is one that a lost agent gave, and did not report.
        let (attempt, current) = match self.stepds.get(&id).copied() {
            Some(StepdPlace::Step(attempt, current)) => (attempt, current),
            Some(StepdPlace::Spare(attempt)) => {
                return self.dismissed_reported(state, attempt, id, step, end);
            }
            None => return,
        };
        let entry = state.jobs.get_mut(&attempt).filter(|_| current == step);
        let process = entry.and_then(|e| e.steps.get_mut(&step));
        let Some((stepd, process)) = process.and_then(|p| Some((p.stepd.take()?, p))) else {
            return;
        };
        process.is_reported = true;
        state.actions.push(Action::StopListening(id));
        state.records.step_ended(attempt, step, end.clone());
        self.end_of_step(state, attempt, step, end, stepd.is_owned);
        if stepd.is_adopted {
            state.roles.remove(&stepd.pid);
            state.actions.push(Action::Unwatch(stepd.pid));
            self.dismiss(state, stepd);
        } else {
            self.keep_spare(state, attempt, stepd);
        }
    }

    /// A daemon that has been ordered to end reports the end of a step that the agent has given it: the report of the agent is on
    /// its way, or lost with the agent. It may come after the job's release.
    fn dismissed_reported(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        id: StepdConnId,
        step: StepNo,
        end: EncodedEnd,
    ) {
        let entry = state.jobs.get(&attempt);
        let mut dismissed = entry.into_iter().flat_map(|e| e.dismissed.values());
        let Some(stepd) = dismissed.find_map(|d| d.as_ref().filter(|d| d.id == id)) else {
            return;
        };
        let is_known = stepd.is_owned;
        // It had the step when the order came, and has not followed it.
        state
            .actions
            .push(Action::SendStepd(id, StepdCommand::Exit));
        if state.may_have_step(attempt, step) {
            self.enter_ended(state, attempt, step, end, is_known);
        }
    }

    pub(super) fn result_read(
        &mut self,
        state: &mut LauncherState,
        AttemptStep { attempt, step }: AttemptStep,
        purpose: ResultPurpose,
        result: Option<StepResult>,
    ) {
        let now = state.now.wall;
        match purpose {
            ResultPurpose::DaemonEnded | ResultPurpose::DaemonWentOn => {
                let entry = state.jobs.get(&attempt);
                let Some(pid) = entry.and_then(|e| e.live_step(step)).map(|p| p.pid) else {
                    return;
                };
                if result.is_none() && purpose == ResultPurpose::DaemonEnded && pid > 0 {
                    let of = state.members(attempt);
                    state.actions.push(Action::KillRemnants(of, pid));
                }
                let end = result.map_or_else(|| lost(now), |result| result.end);
                self.end_of_step(state, attempt, step, EncodedEnd::of(&end), false);
            }
            ResultPurpose::Assigned => {
                let end = result.map_or_else(|| lost(now), |result| result.end);
                state.actions.push(Action::RemoveResult(attempt, step));
                self.assigned_ended(state, attempt, step, end);
            }
            ResultPurpose::Found => {
                if let Some(StepResult { end, kept }) = result {
                    self.step_found(state, attempt, step, &end, kept);
                }
            }
        }
    }

    /// A step that an agent had assigned ended with its daemon before the launcher received the report. The end is
    /// stored until the agent acknowledges it, because the agent may be lost before it has reported the end.
    fn assigned_ended(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        end: StepEnd,
    ) {
        if !state.may_have_step(attempt, step) {
            let end = Box::new(end);
            let ended = LauncherEvent::StepEnded { attempt, step, end };
            return state.actions.send(ended);
        }
        self.enter_ended(state, attempt, step, EncodedEnd::of(&end), false);
    }

    /// The launcher learns of a step and its end at once.
    fn enter_ended(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        end: EncodedEnd,
        is_known: bool,
    ) {
        if let Some(entry) = state.jobs.get_mut(&attempt) {
            let mut process = StepProcess::new(0, None);
            process.is_reported = true;
            entry.enter_step(step, process);
        }
        let now_ms = state.now.mono_ms;
        state.records.step(attempt, step, 0, now_ms);
        state.records.step_ended(attempt, step, end.clone());
        self.end_of_step(state, attempt, step, end, is_known);
    }

    /// `is_known`: the agent knows the step.
    pub(super) fn end_of_step(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        end: EncodedEnd,
        is_known: bool,
    ) {
        let Some(process) = state
            .jobs
            .get_mut(&attempt)
            .and_then(|e| e.steps.get_mut(&step))
        else {
            return;
        };
        let dirs = std::mem::take(&mut process.dirs);
        process.ended = Some(end.clone());
        if let Some(stepd) = process.stepd.take() {
            self.close_stepd(state, stepd.id);
        }
        state.remove_dirs(attempt, dirs);
        if !is_known {
            let end = Box::new(end.decoded(state.now.wall));
            state
                .actions
                .send(LauncherEvent::StepEnded { attempt, step, end });
        }
        state.is_unsettled = true;
    }

    /// A daemon does not accept messages, so the launcher uses signals instead.
    pub(super) fn not_sent(
        &mut self,
        state: &mut LauncherState,
        id: StepdConnId,
        command: &StepdCommand,
    ) {
        let Some(StepdPlace::Step(attempt, step)) = self.stepds.get(&id).copied() else {
            return;
        };
        let process = state.jobs.get(&attempt).and_then(|e| e.steps.get(&step));
        if let (StepdCommand::EndStep(_), Some(process)) = (command, process)
            && process.ended.is_none()
            && process.pid > 0
        {
            let pid = process.pid;
            state.actions.push(Action::Signal(pid, signals::SIGTERM));
        }
    }

    /// Keeps a daemon whose step has ended, unless there are enough.
    pub(super) fn keep_spare(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        stepd: ConnectedStepd,
    ) {
        state.roles.insert(stepd.pid, Role::Spare(attempt));
        self.stepds.insert(stepd.id, StepdPlace::Spare(attempt));
        match state.jobs.get_mut(&attempt) {
            // The agent limits the number of its own daemons.
            Some(entry)
                if !entry.phase.is_leaving()
                    && (stepd.is_owned || entry.spares.len() < SPARES_MAX) =>
            {
                entry.spares.push(stepd);
            }
            _ => self.dismiss(state, stepd),
        }
    }

    /// Ends a daemon that has no step, as far as the agent has said. A child's connection stays until it has ended: it may have sent
    /// ends of steps that the agent has given it since.
    pub(super) fn dismiss(&mut self, state: &mut LauncherState, stepd: ConnectedStepd) {
        let (id, pid) = (stepd.id, stepd.pid);
        let socket = stepd.socket.clone();
        state.actions.push(Action::RemoveSocket(socket));
        let keeper = mark_dismissed(state, pid, Some(stepd));
        if let Some(attempt) = keeper {
            self.stepds.insert(id, StepdPlace::Spare(attempt));
            state.actions.push(Action::ListenTo(id));
        }
        // If it is gone already, there is nothing to do.
        state
            .actions
            .push(Action::SendStepd(id, StepdCommand::Exit));
        if keeper.is_none() {
            self.close_stepd(state, id);
        }
    }

    pub(super) fn close_stepd(&mut self, state: &mut LauncherState, id: StepdConnId) {
        self.stepds.remove(&id);
        state.actions.push(Action::CloseStepd(id));
    }

    /// The agent was lost or replaced, and with it its connections to daemons. It may have given a waiting daemon a step without
    /// reporting it. So the launcher closes its connections too: a daemon without a step exits, one with a step reports it as to a
    /// new launcher.
    pub(super) fn take_back(&mut self, state: &mut LauncherState) {
        let mut sockets = Vec::new();
        let mut closed = Vec::new();
        for (attempt, entry) in &mut state.jobs {
            for stepd in entry.dismissed.values_mut().flatten() {
                stepd.is_owned = false;
            }
            let running = entry.steps.values_mut();
            for stepd in running.filter_map(|process| process.stepd.as_mut()) {
                stepd.is_owned = false;
            }
            for spare in entry.spares.extract_if(.., |spare| spare.is_owned) {
                // The job is not over before it has ended or reported a step.
                if state.roles.get(&spare.pid) == Some(&Role::Spare(*attempt)) {
                    entry.dismissed.insert(spare.pid, None);
                }
                closed.push(spare.id);
                sockets.push(spare.socket);
            }
        }
        for id in closed {
            self.close_stepd(state, id);
        }
        if !sockets.is_empty() {
            state.actions.push(Action::AskStepds(Some(sockets)));
        }
    }

    /// Ends the daemons of a job that wait for another step.
    pub(super) fn dismiss_spares(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let entry = state.jobs.get_mut(&attempt);
        let spares = entry.map(|e| std::mem::take(&mut e.spares));
        for spare in spares.into_iter().flatten() {
            self.dismiss(state, spare);
        }
    }

    /// The agent has daemons enough that wait for a step.
    pub(super) fn release_stepd(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        pid: i32,
    ) {
        if let Some(spare) = state.jobs.get_mut(&attempt).and_then(|e| e.take_spare(pid)) {
            self.dismiss(state, spare);
        }
    }

    /// A daemon without a step has ended.
    pub(super) fn spare_ended(&mut self, state: &mut LauncherState, attempt: JobAttempt, pid: i32) {
        let entry = state.jobs.get_mut(&attempt);
        if let Some(Some(stepd)) = entry.and_then(|e| e.dismissed.remove(&pid)) {
            self.close_stepd(state, stepd.id);
        }
        if let Some(spare) = state.jobs.get_mut(&attempt).and_then(|e| e.take_spare(pid)) {
            state.actions.push(Action::RemoveSocket(spare.socket));
            self.close_stepd(state, spare.id);
        }
    }

    /// The agent has given a step to a waiting daemon.
    pub(super) fn step_assigned(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        pid: i32,
    ) {
        let entry = state.jobs.get_mut(&attempt);
        if entry.is_some_and(|e| e.steps.contains_key(&step)) {
            // Its daemon has reported it before.
            return;
        }
        if !state.may_have_step(attempt, step) {
            return state.report_lost(attempt, step);
        }
        if let Some(spare) = state.jobs.get_mut(&attempt).and_then(|e| e.take_spare(pid)) {
            let id = spare.id;
            self.enter_step(state, attempt, step, spare, Vec::new());
            // It may have ended, which was sent with the end of the one before.
            return state.actions.push(Action::ListenTo(id));
        }
        match state.roles.get(&pid) {
            // The daemon has been dismissed meanwhile.
            Some(Role::Spare(of)) if *of == attempt => {
                let entry = state.jobs.get_mut(&attempt);
                let stepd = entry.and_then(|e| e.dismissed.remove(&pid)).flatten();
                let Some(stepd) = stepd else {
                    state.roles.insert(pid, Role::Step(attempt, step));
                    return state.enter_assigned(attempt, step, pid);
                };
                self.enter_step(state, attempt, step, stepd, Vec::new());
                let entry = state.jobs.get(&attempt);
                if entry.is_some_and(|e| e.phase.is_leaving()) {
                    state.end_step(attempt, step);
                }
            }
            Some(_) => {
                state
                    .actions
                    .log_refusal(&format!("process {pid} is not of the job"));
                state.report_lost(attempt, step);
            }
            // An earlier launcher started it, or the agent's report is false.
            None => state.actions.push(Action::WatchStepd(attempt, step, pid)),
        }
    }

    /// The result for a step daemon that an earlier launcher started: its owner, if it runs.
    pub(super) fn stepd_watched(
        &mut self,
        state: &mut LauncherState,
        AttemptStep { attempt, step }: AttemptStep,
        pid: i32,
        belongs: Option<ProcessOwner>,
    ) {
        let process = state.jobs.get(&attempt).and_then(|e| e.steps.get(&step));
        let is_adopted = process.is_some_and(|p| p.pid == pid);
        let is_it = match belongs {
            None | Some(ProcessOwner::ToSite) => false,
            Some(ProcessOwner::To(of)) => of == attempt,
            // A daemon that has answered on its socket is authentic.
            Some(ProcessOwner::Unknown) => is_adopted || state.sessions.get(&pid) == Some(&attempt),
        };
        let is_it = is_it && (is_adopted || state.may_have_step(attempt, step));
        if is_it {
            state.roles.insert(pid, Role::Step(attempt, step));
        } else if belongs.is_some() {
            state.actions.push(Action::Unwatch(pid));
        }
        match (is_adopted, is_it) {
            (true, true) => {}
            (true, false) => state.stepd_ended(attempt, step),
            (false, true) => state.enter_assigned(attempt, step, pid),
            (false, false) => {
                state
                    .actions
                    .log_refusal(&format!("process {pid} is not of the job"));
                state.report_lost(attempt, step);
            }
        }
    }

    /// Takes over a daemon that has reported its step: one of an earlier launcher, or one to which an earlier agent
    /// may have given a step. A daemon with an incompatible version is left alone: it leaves a result file when its
    /// step and process end.
    pub(super) fn adopt(
        &mut self,
        state: &mut LauncherState,
        id: StepdConnId,
        socket: PathBuf,
        running: RunningStep,
    ) {
        let RunningStep {
            attempt,
            step,
            pid,
            dirs,
            kept,
            greeting,
        } = running;
        let is_child = state.roles.get(&pid) == Some(&Role::Spare(attempt));
        let theirs = greeting.unwrap_or_default();
        let is_too_old = VERSIONS.is_too_old(&theirs);
        if is_too_old {
            let they = format!("the step daemon {pid} of step {}.{step}", attempt.job);
            let why = VERSIONS.difference(&theirs, &they, "the launcher");
            state.actions.log(format!(
                "{why}; the step goes on, and its result is reported when it has ended"
            ));
            state.actions.push(Action::CloseStepd(id));
        }
        let stepd = (!is_too_old).then_some(ConnectedStepd {
            id,
            pid,
            socket,
            is_owned: false,
            is_adopted: !is_child,
        });
        let entry = state.jobs.get_mut(&attempt);
        if let Some(Some(before)) = entry.and_then(|e| e.dismissed.remove(&pid)) {
            self.close_stepd(state, before.id);
        }
        let Some(entry) = state
            .jobs
            .get_mut(&attempt)
            .filter(|e| !e.phase.is_released())
        else {
            // Nobody knows of the job any more.
            return stepd
                .into_iter()
                .for_each(|stepd| self.dismiss(state, stepd));
        };
        let is_ending = entry.phase.is_ending();
        match entry.steps.get_mut(&step) {
            Some(process) if process.ended.is_some() => {
                return stepd
                    .into_iter()
                    .for_each(|stepd| self.dismiss(state, stepd));
            }
            Some(process) => process.stepd = stepd,
            None => {
                if !dirs.is_empty() {
                    state.records.step_dirs(attempt, step, &dirs);
                }
                let now_ms = state.now.mono_ms;
                state.records.step(attempt, step, pid, now_ms);
                let process = StepProcess {
                    dirs,
                    ..StepProcess::new(pid, stepd)
                };
                entry.enter_step(step, process);
                note_found(state, attempt, step, kept);
                match is_child {
                    true => drop(state.roles.insert(pid, Role::Step(attempt, step))),
                    false => state.actions.push(Action::WatchStepd(attempt, step, pid)),
                }
            }
        }
        if !is_too_old {
            self.stepds.insert(id, StepdPlace::Step(attempt, step));
        }
        end_steps_before(state, attempt, step, pid);
        if is_ending {
            state.end_step(attempt, step);
        }
        if !is_too_old {
            // The step may have ended since.
            state.actions.push(Action::ListenTo(id));
        }
    }

    pub(super) fn step_found(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        step: StepNo,
        end: &StepEnd,
        kept: KeptEntries,
    ) {
        let is_new = |e: &&mut super::JobEntry| !e.phase.is_released() && !e.had_step(step);
        let Some(entry) = state.jobs.get_mut(&attempt).filter(is_new) else {
            return;
        };
        entry.enter_step(step, StepProcess::new(0, None));
        note_found(state, attempt, step, kept);
        self.end_of_step(state, attempt, step, EncodedEnd::of(end), false);
    }
}

/// A job with a waiting daemon does not end before the daemon. Returns that job, which keeps the connection.
fn mark_dismissed(
    state: &mut LauncherState,
    pid: i32,
    stepd: Option<ConnectedStepd>,
) -> Option<JobAttempt> {
    let Some(Role::Spare(attempt)) = state.roles.get(&pid) else {
        return None;
    };
    state.jobs.get_mut(attempt)?.dismissed.insert(pid, stepd);
    Some(*attempt)
}

/// Earlier steps of this daemon have ended without a report to the earlier launcher. A daemon that goes on to another
/// step leaves a file with the results that were not received.
fn end_steps_before(state: &mut LauncherState, attempt: JobAttempt, step: StepNo, pid: i32) {
    let entry = state.jobs.get(&attempt);
    for earlier in entry.map_or_else(Vec::new, |e| e.live_steps_in(pid)) {
        if earlier != step {
            let purpose = ResultPurpose::DaemonWentOn;
            state
                .actions
                .push(Action::ReadResult(attempt, earlier, purpose));
        }
    }
}

/// Stores the entries of a step that was never reported.
fn note_found(state: &mut LauncherState, attempt: JobAttempt, step: StepNo, kept: KeptEntries) {
    state
        .actions
        .log(format!("step {}.{} had no record", attempt.job, step.0));
    for KeptEntry { key, bytes } in &kept {
        if !state.records.keeps(attempt, *key) {
            state.records.keep(attempt, *key, bytes.clone());
        }
    }
    state.actions.send(LauncherEvent::StepFound {
        attempt,
        step,
        kept,
    });
}
