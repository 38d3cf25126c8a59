//! Usage of a job's processes, and the list of its tasks, for the agent. A separate process reads them each time,
//! because files of a process may be slow to read, and there may be very many processes.

use super::interface::{Action, DaemonProcess, JobProcesses, ProcessQuery, Timer};
use super::state::LauncherState;
use crate::messages::LauncherEvent;
use muster_model::ids::JobId;
use std::collections::BTreeMap;

/// Measurements of a user's jobs that are under way at a time.
const USER_MAX: usize = 16;
/// Time limit of one before it is killed.
const WAIT_MS: u64 = 120_000;

/// One under way.
#[derive(Debug)]
pub(super) struct Measurement {
    /// From the request.
    tag: u64,
    /// The job's owner.
    uid: u32,
    wanted: ProcessQuery,
}

impl ProcessQuery {
    /// Converts the output of the measuring process into the answer.
    fn answer(self, tag: u64, bytes: &[u8]) -> LauncherEvent {
        match self {
            ProcessQuery::Usage(_) => LauncherEvent::Measured {
                tag,
                tasks: minicbor::decode(bytes).ok(),
            },
            ProcessQuery::List => LauncherEvent::Processes {
                tag,
                list: minicbor::decode(bytes).unwrap_or_default(),
            },
        }
    }
}

/// Measurements under way, by number.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    under_way: BTreeMap<u64, Measurement>,
    last: u64,
}

impl Measurements {
    /// Starts measuring the usage of a job, or listing its processes. The answer comes later, or at once if the job
    /// is not here.
    pub(super) fn measure(
        &mut self,
        state: &mut LauncherState,
        job: JobId,
        tag: u64,
        wanted: ProcessQuery,
    ) {
        let none = wanted.answer(tag, &[]);
        let owner = state.jobs.iter().find(|(attempt, _)| attempt.job == job);
        let Some(uid) = owner.map(|(_, entry)| entry.uid) else {
            return state.actions.send(none);
        };
        let under_way = self.under_way.values().filter(|m| m.uid == uid);
        if under_way.count() >= USER_MAX {
            return state.actions.send(none);
        }
        self.last += 1;
        let id = self.last;
        let measurement = Measurement { tag, uid, wanted };
        self.under_way.insert(id, measurement);
        let of = self.processes_of(state, job);
        state.actions.set_timer(Timer::Measurement(id), WAIT_MS);
        state.actions.push(Action::Measure { id, wanted, of });
    }

    pub(super) fn processes_of(&self, state: &LauncherState, job: JobId) -> JobProcesses {
        let mut of = JobProcesses::default();
        for (_, entry) in state.jobs.iter().filter(|(attempt, _)| attempt.job == job) {
            let live = entry.steps.iter().filter(|(_, p)| p.ended.is_none());
            let running = live.filter(|(_, p)| p.pid > 0);
            of.daemons.extend(running.map(|(step, p)| DaemonProcess {
                step: *step,
                pid: p.pid,
            }));
            of.script = entry.script.or(of.script);
        }
        of
    }

    /// A measurement has ended; or is given up, where it has said nothing.
    pub(super) fn measured(&mut self, state: &mut LauncherState, id: u64, bytes: Option<&[u8]>) {
        let Some(Measurement { tag, wanted, .. }) = self.under_way.remove(&id) else {
            return;
        };
        state.actions.stop_timer(Timer::Measurement(id));
        state
            .actions
            .send(wanted.answer(tag, bytes.unwrap_or_default()));
    }

    /// Ends a measurement that has taken too long.
    pub(super) fn measurement_late(&mut self, state: &mut LauncherState, id: u64) {
        state.actions.push(Action::StopMeasurement(id));
        self.measured(state, id, None);
    }

    /// The agent that has asked for them is gone.
    pub(super) fn stop_measurements(&mut self, state: &mut LauncherState) {
        for id in std::mem::take(&mut self.under_way).into_keys() {
            state.actions.stop_timer(Timer::Measurement(id));
            state.actions.push(Action::StopMeasurement(id));
        }
    }
}
