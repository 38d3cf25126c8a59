//! What the processes of a job use, and which tasks they are: asked by the agent, and found out by a process of its own each time,
//! as files of a process may be slow to read, and there may be very many processes.

use super::Launcher;
use super::event::{Action, TimerKey};
use crate::messages::LauncherEvent;
use minicbor::{Decode, Encode};
use muster_model::ids::{JobId, StepNo};
use muster_model::validate::Validate;
use muster_proto::node::MemoryCount;

/// Measurements of a user's jobs that are under way at a time.
const USER_MAX: usize = 16;
/// How long one may take before it is killed.
const WAIT_MS: u64 = 120_000;

/// One under way.
#[derive(Debug)]
pub(super) struct Measurement {
    /// From the request.
    tag: u64,
    /// The job's owner.
    uid: u32,
    wanted: Wanted,
}

/// What is asked about processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum Wanted {
    /// What they use: counted so, or the most of it.
    #[n(0)]
    Usage(#[n(0)] Option<MemoryCount>),
    /// Which there are.
    #[n(1)]
    List,
}

impl Wanted {
    /// The answer, from what the process that measures has said.
    fn answer(self, tag: u64, bytes: &[u8]) -> LauncherEvent {
        match self {
            Wanted::Usage(_) => LauncherEvent::Measured {
                tag,
                tasks: minicbor::decode(bytes).ok(),
            },
            Wanted::List => LauncherEvent::Processes {
                tag,
                list: minicbor::decode(bytes).unwrap_or_default(),
            },
        }
    }
}

/// From which all processes of a job come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobProcesses {
    /// Its script.
    pub script: Option<i32>,
    /// Its step daemons, which are not the job's themselves.
    pub daemons: Vec<(StepNo, i32)>,
}

impl Launcher {
    /// Has it measured what a job uses, or listed what it has. The answer comes later; at once if there is none.
    pub(super) fn measure(&mut self, job: JobId, tag: u64, wanted: Wanted) {
        let none = wanted.answer(tag, &[]);
        let owner = self.jobs.iter().find(|(run, _)| run.job == job);
        let Some(uid) = owner.map(|(_, entry)| entry.uid) else {
            return self.actions.send(none);
        };
        let under_way = self.measurements.values().filter(|m| m.uid == uid);
        if under_way.count() >= USER_MAX {
            return self.actions.send(none);
        }
        self.last_measurement += 1;
        let id = self.last_measurement;
        let measurement = Measurement { tag, uid, wanted };
        self.measurements.insert(id, measurement);
        let of = self.processes_of(job);
        self.actions.set_timer(TimerKey::Measurement(id), WAIT_MS);
        self.actions.push(Action::Measure { id, wanted, of });
    }

    fn processes_of(&self, job: JobId) -> JobProcesses {
        let mut of = JobProcesses::default();
        for (_, entry) in self.jobs.iter().filter(|(run, _)| run.job == job) {
            let live = entry.steps.iter().filter(|(_, p)| p.ended.is_none());
            of.daemons
                .extend(live.filter(|(_, p)| p.pid > 0).map(|(s, p)| (*s, p.pid)));
            of.script = entry.script.or(of.script);
        }
        of
    }

    /// A measurement has ended; or is given up, where it has said nothing.
    pub(super) fn measured(&mut self, id: u64, bytes: Option<&[u8]>) {
        let Some(Measurement { tag, wanted, .. }) = self.measurements.remove(&id) else {
            return;
        };
        self.actions.stop_timer(TimerKey::Measurement(id));
        self.actions
            .send(wanted.answer(tag, bytes.unwrap_or_default()));
    }

    /// Ends a measurement that has taken too long.
    pub(super) fn measurement_late(&mut self, id: u64) {
        self.actions.push(Action::StopMeasurement(id));
        self.measured(id, None);
    }

    /// The agent that has asked for them is gone.
    pub(super) fn stop_measurements(&mut self) {
        for id in std::mem::take(&mut self.measurements).into_keys() {
            self.actions.stop_timer(TimerKey::Measurement(id));
            self.actions.push(Action::StopMeasurement(id));
        }
    }
}
