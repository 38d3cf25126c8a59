//! The course of jobs on a node between the events of their processes. `launch` begins jobs, `programs` runs the
//! site's programs around them, and `ending` ends them.

use super::Move;
use super::daemons::StepDaemons;
use super::end::ScriptEnd;
use super::interface::{self, Action, MessageKind};
use super::last_lines;
use super::programs::Programs;
use super::records::Fault;
use super::scripts::Scripts;
use super::signals::Signals;
use super::state::LauncherState;
use super::steps;
use super::writers::Writers;
use crate::cgroup::oom_line;
use crate::messages::LauncherEvent;
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::job::ResourceUsage;

/// See the module.
#[derive(Default)]
pub(super) struct Launches {
    pub(super) scripts: Scripts,
    pub(super) programs: Programs,
    pub(super) signals: Signals,
    pub(super) writers: Writers,
    pub(super) daemons: StepDaemons,
    /// Launches that wait until the last user of their share has ended, in order.
    pub(super) queued: Vec<JobAttempt>,
    /// Jobs have left their shares since it was last looked for launches that wait for those.
    pub(super) share_is_free: bool,
    /// Jobs that begin when they are on file.
    pub(super) recording: Vec<JobAttempt>,
    /// Launches among them whose records are being written.
    pub(super) being_recorded: Vec<JobAttempt>,
    /// The record file could not be written in this wake-up.
    pub(super) is_full: bool,
}

impl Launches {
    /// A script ended, with a status if anyone knows it.
    pub(super) fn script_ended(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        status: Option<i32>,
        usage: ResourceUsage,
        failure: Option<interface::ScriptFailure>,
    ) {
        if let Some(failure) = failure {
            let fault = match failure.is_nodes {
                true => Fault::Node,
                false => Fault::Job,
            };
            return self.fail(state, attempt, failure.error, fault);
        }
        let Some(status) = status else {
            return self.finish(state, attempt, LauncherEvent::Vanished(attempt));
        };
        let oom_kills = state.jobs.get(&attempt).map_or(0, |e| e.oom_kills);
        if oom_kills > 0 {
            let line = oom_line(attempt.job, StepNo::BATCH, oom_kills);
            (self.writers.notices).print(state, attempt, Some(line), MessageKind::Notice);
        }
        let ended = ScriptEnd {
            status,
            usage,
            end: state.now.wall,
            oom_kills,
            last_lines: None,
        };
        state.records.ended(attempt, &ended);
        if let Some(ended) = last_lines::begin(state, attempt, ended) {
            self.finish(state, attempt, ended.event(attempt));
        }
    }

    /// The last lines of a script's standard error were read, or cannot be.
    pub(super) fn last_lines_read(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        bytes: &[u8],
    ) {
        if let Some(ended) = last_lines::end(state, attempt, bytes) {
            self.finish(state, attempt, ended.event(attempt));
        }
    }

    pub(super) fn fail(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        error: String,
        fault: Fault,
    ) {
        state.records.failed(attempt, fault, &error);
        self.finish(state, attempt, fault.event(attempt, error));
    }

    /// The script's part is over: reports it, and begins the job's end here.
    pub(super) fn finish(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        outcome: LauncherEvent,
    ) {
        state.actions.send(outcome.clone());
        let Some(entry) = state.jobs.get_mut(&attempt) else {
            return;
        };
        entry.script = None;
        entry.is_starting = false;
        entry.outcome = Some(outcome);
        // Its script will not be started again, and the record may stay for long.
        entry.launch.batch = None;
        let has_steps = entry.has_live_step();
        let happens = match has_steps {
            true => Move::EndWithSteps,
            false => Move::End,
        };
        self.begin_end(state, attempt, happens);
        if has_steps {
            state.end_all_steps(attempt, None);
        }
    }

    pub(super) fn write_records(&mut self, state: &mut LauncherState) {
        if let Some(lines) = state.records.take_pending() {
            self.being_recorded = std::mem::take(&mut self.recording);
            state.steps_being_recorded = std::mem::take(&mut state.recording_steps);
            state.actions.push(Action::AppendRecords(lines));
        } else if !state.records.has_pending() {
            // Records of these are on file already, because they waited for that.
            let recorded = std::mem::take(&mut self.recording);
            recorded
                .into_iter()
                .for_each(|attempt| self.begin(state, attempt));
            let steps = std::mem::take(&mut state.recording_steps);
            steps::recorded(state, steps, Ok(()));
        }
    }

    pub(super) fn records_appended(
        &mut self,
        state: &mut LauncherState,
        written: Result<(), interface::Failure>,
    ) {
        let recorded = std::mem::take(&mut self.being_recorded);
        let steps = std::mem::take(&mut state.steps_being_recorded);
        if state.records.appended(written.is_ok()) {
            let all = state.records.rewritten();
            state.actions.push(Action::RewriteRecords(all));
        }
        match written {
            Ok(()) => {
                recorded
                    .into_iter()
                    .for_each(|attempt| self.begin(state, attempt));
                steps::recorded(state, steps, Ok(()));
            }
            Err(e) => {
                self.is_full = true;
                // If these records are lost, a crash of the launcher leads to a second report of a job, never to a
                // second launch: launches and steps wait until their records are on file.
                let spool = state.node.setup.spool.display();
                let line = format!("{spool}: attempts: {}", e.error);
                state.actions.log(line);
                for attempt in recorded {
                    self.not_on_file(state, attempt, &e);
                }
                steps::recorded(state, steps, Err(&e.error));
            }
        }
    }

    pub(super) fn records_rewritten(
        &mut self,
        state: &mut LauncherState,
        written: Result<(), String>,
    ) {
        if let Err(e) = written {
            let line = format!("{}: attempts: {e}", state.node.setup.spool.display());
            state.actions.log(line);
        }
    }
}
