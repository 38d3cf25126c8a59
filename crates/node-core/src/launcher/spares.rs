//! Step daemons that have had a step and wait for another of their job: the agent gives it to them by its own connection, and says
//! so afterwards. Those that an earlier launcher has started are asked what they run; agent and launcher may both have been
//! lost between a step and the message that it was given. Such a daemon knows what the launcher would have kept of the step; where
//! it has ended meanwhile, its result says it.

use super::end::EncodedEnd;
use super::event::{Action, Belongs, ResultPurpose, StepdId};
use super::steps::{StepProcess, Stepd, StepdPlace};
use super::{Launcher, Role};
use crate::messages::{
    JobAttempt, KeptEntries, LauncherEvent, RunningStep, StepdCommand, VERSIONS,
};
use crate::stepd_reuse::SPARES_MAX;
use muster_model::ids::StepNo;
use muster_model::job::StepEnd;
use std::path::PathBuf;

impl Launcher {
    /// Keeps a daemon whose step has ended, unless there are enough.
    pub(super) fn keep_spare(&mut self, run: JobAttempt, stepd: Stepd) {
        self.roles.insert(stepd.pid, Role::Spare(run));
        self.stepds.insert(stepd.id, StepdPlace::Spare(run));
        match self.jobs.get_mut(&run) {
            // Of its own, the agent says when there are enough.
            Some(entry)
                if !entry.phase.is_leaving()
                    && (stepd.is_owned || entry.spares.len() < SPARES_MAX) =>
            {
                entry.spares.push(stepd);
            }
            _ => self.dismiss(stepd),
        }
    }

    /// Has a daemon without a step end.
    pub(super) fn dismiss(&mut self, stepd: Stepd) {
        if let Some(Role::Spare(run)) = self.roles.get(&stepd.pid)
            && let Some(entry) = self.jobs.get_mut(run)
        {
            entry.dismissed.insert(stepd.pid);
        }
        self.actions.push(Action::RemoveSocket(stepd.socket));
        // If it is gone already, there is nothing to do.
        self.actions
            .push(Action::SendStepd(stepd.id, StepdCommand::Exit));
        self.close_stepd(stepd.id);
    }

    pub(super) fn close_stepd(&mut self, id: StepdId) {
        self.stepds.remove(&id);
        self.actions.push(Action::CloseStepd(id));
    }

    /// Has the daemons of a job that wait for another step end.
    pub(super) fn dismiss_spares(&mut self, run: JobAttempt) {
        let entry = self.jobs.get_mut(&run);
        let spares = entry.map(|e| std::mem::take(&mut e.spares));
        for spare in spares.into_iter().flatten() {
            self.dismiss(spare);
        }
    }

    /// The agent has daemons enough that wait for a step.
    pub(super) fn release_stepd(&mut self, run: JobAttempt, pid: i32) {
        if let Some(spare) = self.jobs.get_mut(&run).and_then(|e| e.take_spare(pid)) {
            self.dismiss(spare);
        }
    }

    /// A daemon without a step has ended.
    pub(super) fn spare_ended(&mut self, run: JobAttempt, pid: i32) {
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.dismissed.remove(&pid);
        }
        if let Some(spare) = self.jobs.get_mut(&run).and_then(|e| e.take_spare(pid)) {
            self.actions.push(Action::RemoveSocket(spare.socket));
            self.close_stepd(spare.id);
        }
    }

    /// There is another agent: it has no connections to daemons that are here.
    pub(super) fn disown_stepds(&mut self) {
        for entry in self.jobs.values_mut() {
            let busy = entry.steps.values_mut().filter_map(|p| p.stepd.as_mut());
            busy.chain(&mut entry.spares)
                .for_each(|stepd| stepd.is_owned = false);
        }
    }

    /// The agent has given a step to a daemon that waited for one.
    pub(super) fn step_assigned(&mut self, run: JobAttempt, step: StepNo, pid: i32) {
        if !self.may_have_step(run, step) {
            return self.report_lost(run, step);
        }
        if let Some(spare) = self.jobs.get_mut(&run).and_then(|e| e.take_spare(pid)) {
            let id = spare.id;
            self.enter_step(run, step, spare, Vec::new());
            // It may have ended, which was sent with the end of the one before.
            return self.actions.push(Action::ListenTo(id));
        }
        match self.roles.get(&pid) {
            // It has been dismissed meanwhile.
            Some(Role::Spare(of)) if *of == run => {
                self.roles.insert(pid, Role::Step(run, step));
                if let Some(entry) = self.jobs.get_mut(&run) {
                    entry.dismissed.remove(&pid);
                }
                self.enter_assigned(run, step, pid);
            }
            Some(_) => {
                self.actions
                    .log_refusal(&format!("process {pid} is not of the job"));
                self.report_lost(run, step);
            }
            // An earlier launcher has started it, or the agent says what is not true.
            None => self.actions.push(Action::WatchStepd(run, step, pid)),
        }
    }

    fn may_have_step(&self, run: JobAttempt, step: StepNo) -> bool {
        let entry = self.jobs.get(&run).filter(|e| !e.phase.is_released());
        entry.is_some_and(|e| !e.had_step(step))
    }

    fn enter_assigned(&mut self, run: JobAttempt, step: StepNo, pid: i32) {
        self.records.step(run, step, pid);
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        entry.enter_step(step, StepProcess::new(pid, None));
        if entry.phase.is_ending() {
            self.end_step(run, step);
        }
    }

    /// Whether a step daemon that an earlier launcher has started is there, and whose it is.
    pub(super) fn stepd_watched(
        &mut self,
        (run, step): (JobAttempt, StepNo),
        pid: i32,
        belongs: Option<Belongs>,
    ) {
        let process = self.jobs.get(&run).and_then(|e| e.steps.get(&step));
        let is_adopted = process.is_some_and(|p| p.pid == pid);
        let is_it = match belongs {
            None | Some(Belongs::ToSite) => false,
            Some(Belongs::To(of)) => of == run,
            // A daemon that has answered by its socket is what it says.
            Some(Belongs::Unknown) => is_adopted || self.sessions.get(&pid) == Some(&run),
        };
        let is_it = is_it && (is_adopted || self.may_have_step(run, step));
        if is_it {
            self.roles.insert(pid, Role::Step(run, step));
        } else if belongs.is_some() {
            self.actions.push(Action::Unwatch(pid));
        }
        match (is_adopted, is_it) {
            (true, true) => {}
            (true, false) => self.stepd_ended(run, step),
            (false, true) => self.enter_assigned(run, step, pid),
            (false, false) => {
                self.actions
                    .log_refusal(&format!("process {pid} is not of the job"));
                self.report_lost(run, step);
            }
        }
    }

    /// A step that was given ended with its daemon before this process knew of it.
    pub(super) fn report_lost(&mut self, run: JobAttempt, step: StepNo) {
        self.actions
            .push(Action::ReadResult(run, step, ResultPurpose::Assigned));
    }

    /// A daemon of an earlier launcher's has said what it runs, and is taken over. One whose version is not spoken here is left
    /// alone: without a launcher it leaves a file when its step ends, which is when its process does.
    pub(super) fn adopt(&mut self, id: StepdId, socket: PathBuf, running: RunningStep) {
        let RunningStep {
            run,
            step,
            pid,
            dirs,
            kept,
            greeting,
        } = running;
        let theirs = greeting.unwrap_or_default();
        let is_too_old = VERSIONS.is_too_old(&theirs);
        if is_too_old {
            let they = format!("the step daemon {pid} of step {}.{step}", run.job);
            let why = VERSIONS.difference(&theirs, &they, "the launcher");
            self.actions.log(format!(
                "{why}; it is left alone, and what comes of the step is reported when it has ended"
            ));
            self.actions.push(Action::CloseStepd(id));
        }
        let stepd = (!is_too_old).then_some(Stepd {
            id,
            pid,
            socket,
            is_owned: false,
            is_adopted: true,
        });
        let Some(entry) = self.jobs.get_mut(&run).filter(|e| !e.phase.is_released()) else {
            // Nobody knows of the job any more.
            return stepd.into_iter().for_each(|stepd| self.dismiss(stepd));
        };
        let is_ending = entry.phase.is_ending();
        match entry.steps.get_mut(&step) {
            Some(process) if process.ended.is_some() => {
                return stepd.into_iter().for_each(|stepd| self.dismiss(stepd));
            }
            Some(process) => process.stepd = stepd,
            None => {
                if !dirs.is_empty() {
                    self.records.step_dirs(run, step, &dirs);
                }
                self.records.step(run, step, pid);
                let process = StepProcess {
                    dirs,
                    ..StepProcess::new(pid, stepd)
                };
                entry.enter_step(step, process);
                self.note_found(run, step, kept);
                self.actions.push(Action::WatchStepd(run, step, pid));
            }
        }
        if !is_too_old {
            self.stepds.insert(id, StepdPlace::Step(run, step));
        }
        self.end_steps_before(run, step, pid);
        if is_ending {
            self.end_step(run, step);
        }
        if !is_too_old {
            // It may have ended since.
            self.actions.push(Action::ListenTo(id));
        }
    }

    /// Steps that a daemon had before this one have ended, which the launcher before had not received. A daemon that goes on
    /// to another step leaves what was not received.
    fn end_steps_before(&mut self, run: JobAttempt, step: StepNo, pid: i32) {
        let entry = self.jobs.get(&run);
        for earlier in entry.map_or_else(Vec::new, |e| e.live_steps_in(pid)) {
            if earlier != step {
                let purpose = ResultPurpose::DaemonWentOn;
                self.actions.push(Action::ReadResult(run, earlier, purpose));
            }
        }
    }

    /// Takes in results of steps that are known from nowhere else.
    pub(super) fn results_listed(&mut self, results: Vec<(JobAttempt, StepNo)>) {
        for (run, step) in results {
            let Some(entry) = self.jobs.get(&run).filter(|e| !e.phase.is_released()) else {
                continue;
            };
            if entry.forgotten_steps.contains(&step) {
                self.actions.push(Action::RemoveResult(run, step));
            } else if !entry.steps.contains_key(&step) {
                let purpose = ResultPurpose::Found;
                self.actions.push(Action::ReadResult(run, step, purpose));
            }
        }
    }

    pub(super) fn step_found(
        &mut self,
        run: JobAttempt,
        step: StepNo,
        end: &StepEnd,
        kept: KeptEntries,
    ) {
        let is_new = |e: &&mut super::JobEntry| !e.phase.is_released() && !e.had_step(step);
        let Some(entry) = self.jobs.get_mut(&run).filter(is_new) else {
            return;
        };
        entry.enter_step(step, StepProcess::new(0, None));
        self.note_found(run, step, kept);
        self.end_of_step(run, step, EncodedEnd::of(end), false);
    }

    /// What was to be kept of a step that nobody had reported.
    fn note_found(&mut self, run: JobAttempt, step: StepNo, kept: KeptEntries) {
        self.actions
            .log(format!("step {}.{} was not on file", run.job, step.0));
        for (key, bytes) in &kept {
            if !self.records.keeps(run, *key) {
                self.records.keep(run, *key, bytes.clone());
            }
        }
        self.actions
            .send(LauncherEvent::StepFound { run, step, kept });
    }
}
