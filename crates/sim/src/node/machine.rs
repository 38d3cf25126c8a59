//! A machine that is on: its processes, as far as the kernel shows them, and the sockets between those of Muster.

use super::TaskKey;
use super::step_link::StepLinkId;
use super::stepd::StepdProcess;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{AttemptStep, JobAttempt};
use muster_model::job::{ExitStatus, GresShare};
use muster_node_core::launcher::interface::{
    JobProgramKind, ProcessOwner, ProcessTraits, ScriptFailure,
};
use muster_node_core::messages::{StepdCommand, StepdEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

/// Number of a socket pair of which a step daemon has one end.
pub(crate) type ChannelId = u64;

/// Kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A batch script.
    Script(JobAttempt),
    /// A step daemon.
    Stepd(JobAttempt),
    /// A task of a step.
    Task(TaskKey),
    /// Programs of the site around a job.
    Programs(JobAttempt, JobProgramKind),
    /// A process that serves the launcher itself.
    Helper,
    /// A leftover of a script, or of a task of this step daemon.
    Orphan(JobAttempt, Option<i32>),
}

impl Kind {
    /// The job whose CPUs it uses.
    pub(crate) fn attempt(self) -> Option<JobAttempt> {
        match self {
            Kind::Script(attempt) | Kind::Orphan(attempt, _) => Some(attempt),
            Kind::Task(key) => Some(key.attempt),
            Kind::Stepd(_) | Kind::Programs(..) | Kind::Helper => None,
        }
    }

    /// The job that the kernel says it belongs to.
    fn belongs(self) -> ProcessOwner {
        match self {
            Kind::Script(attempt)
            | Kind::Task(TaskKey { attempt, .. })
            | Kind::Orphan(attempt, _)
            | Kind::Stepd(attempt) => ProcessOwner::To(attempt),
            Kind::Programs(..) => ProcessOwner::ToSite,
            Kind::Helper => ProcessOwner::Unknown,
        }
    }
}

/// Process that collects a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The launcher, also for orphans below it.
    Launcher,
    /// A step daemon.
    Stepd(i32),
    /// init, which does so at once.
    Init,
}

/// A process's share of its node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// CPUs.
    pub(crate) cpus: CpuSet,
    /// The partition whose jobs may have them, too.
    pub(crate) shared_with: Option<String>,
    /// Devices, which are never shared.
    pub(crate) devices: Vec<GresShare>,
}

/// A process.
pub(crate) struct Process {
    pub(crate) kind: Kind,
    pub(crate) parent: Parent,
    pub(crate) uid: u32,
    /// When it started, milliseconds since boot.
    pub(crate) start_ms: u64,
    pub(crate) share: Share,
    /// Its wait status, when it has ended and was not collected.
    pub(crate) ended: Option<i32>,
    /// Why it never executed its program.
    pub(crate) failure: Option<ScriptFailure>,
    /// Its status if it ends by itself.
    pub(crate) status: i32,
    /// Distinguishes timers: an older one does nothing.
    pub(crate) timer: u64,
    /// When it ends by itself, milliseconds.
    pub(crate) ends_at: Option<u64>,
    /// Milliseconds that were left when it was stopped.
    pub(crate) stopped: Option<u64>,
    /// SIGTERM does nothing, or waits until it goes on.
    pub(crate) ignores_term: bool,
    pub(crate) has_pending_term: bool,
}

impl Process {
    /// One that has just been started.
    pub(crate) fn new(kind: Kind, parent: Parent, uid: u32, start_ms: u64) -> Process {
        Process {
            kind,
            parent,
            uid,
            start_ms,
            share: Share::default(),
            ended: None,
            failure: None,
            status: 0,
            timer: 0,
            ends_at: None,
            stopped: None,
            ignores_term: false,
            has_pending_term: false,
        }
    }

    /// It runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.ended.is_none()
    }

    /// Its attributes as the launcher sees them.
    pub(crate) fn traits(&self) -> ProcessTraits {
        ProcessTraits {
            belongs: self.kind.belongs(),
            session: None,
            uid: Some(self.uid),
        }
    }
}

/// Message to a step daemon.
#[derive(Debug)]
pub(crate) enum Down {
    /// A command, and the daemon's end of a channel to the agent that goes with it.
    Command(Box<StepdCommand>, Option<ChannelId>),
    /// Streams of an srun's, with the daemon's end of this connection to it.
    Streams(StepLinkId),
}

/// A socket pair between agent or launcher and a step daemon.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// To the daemon, not read yet.
    pub(crate) down: VecDeque<Down>,
    /// From the daemon, not read yet.
    pub(crate) up: VecDeque<StepdEvent>,
    /// The agent's or launcher's end is closed.
    pub(crate) is_upper_closed: bool,
    /// The daemon's end is closed.
    pub(crate) is_lower_closed: bool,
    /// The daemon, once it has its end.
    pub(crate) stepd: Option<i32>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) processes: BTreeMap<i32, Process>,
    /// State of the processes that are step daemons.
    pub(crate) stepds: BTreeMap<i32, StepdProcess>,
    /// Where step daemons listen.
    pub(crate) sockets: BTreeMap<PathBuf, i32>,
    pub(crate) channels: BTreeMap<ChannelId, Channel>,
    /// Ends that are on their way from launcher to agent, with [`LauncherEvent::StepChannel`].
    ///
    /// [`LauncherEvent::StepChannel`]: muster_node_core::messages::LauncherEvent::StepChannel
    pub(crate) passed: BTreeMap<AttemptStep, ChannelId>,
    /// Scripts that have noted themselves.
    pub(crate) noted: BTreeMap<JobAttempt, i32>,
    last_pid: i32,
    last_channel: ChannelId,
}

impl Machine {
    /// Starts a process.
    pub(crate) fn spawn(&mut self, process: Process) -> i32 {
        self.last_pid += 1;
        let pid = 100 + self.last_pid;
        self.processes.insert(pid, process);
        pid
    }

    /// Makes a socket pair.
    pub(crate) fn open_channel(&mut self) -> ChannelId {
        self.last_channel += 1;
        self.channels.insert(self.last_channel, Channel::default());
        self.last_channel
    }

    /// A process that runs.
    pub(crate) fn live(&self, pid: i32) -> Option<&Process> {
        self.processes.get(&pid).filter(|p| p.is_alive())
    }

    /// Processes that run and are so.
    pub(crate) fn pids(&self, is_it: impl Fn(&Process) -> bool) -> Vec<i32> {
        let live = self.processes.iter().filter(|(_, p)| p.is_alive());
        live.filter(|(_, p)| is_it(p))
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// Processes of a step daemon.
    pub(crate) fn below(&self, daemon: i32) -> Vec<i32> {
        self.pids(|p| p.parent == Parent::Stepd(daemon))
    }

    /// Launches whose processes run.
    pub(crate) fn attempts(&self) -> BTreeSet<JobAttempt> {
        let live = self.processes.values().filter(|p| p.is_alive());
        let attempts = live.filter_map(|p| match p.kind {
            Kind::Stepd(attempt) => Some(attempt),
            kind => kind.attempt(),
        });
        attempts.collect()
    }

    /// Launches whose processes use a CPU of `cpus`; those that are stopped do not. Those that share with jobs of that
    /// partition do not matter.
    pub(crate) fn using(&self, cpus: &CpuSet, partition: Option<&str>) -> BTreeSet<JobAttempt> {
        let uses = |p: &&Process| {
            let shares = partition.is_some() && p.share.shared_with.as_deref() == partition;
            p.is_alive() && p.stopped.is_none() && p.share.cpus.intersects(cpus) && !shares
        };
        let all = self.processes.values();
        all.filter(uses).filter_map(|p| p.kind.attempt()).collect()
    }

    /// Launches whose processes have one of these devices, those that are stopped included.
    pub(crate) fn using_devices(&self, devices: &[GresShare]) -> BTreeSet<JobAttempt> {
        let is_same = |a: &GresShare, b: &GresShare| {
            a.name == b.name && a.kind == b.kind && a.ids.intersects(&b.ids)
        };
        let mut attempts = BTreeSet::new();
        for process in self.processes.values().filter(|p| p.is_alive()) {
            let mut own = process.share.devices.iter();
            if own.any(|own| devices.iter().any(|other| is_same(own, other))) {
                attempts.extend(process.kind.attempt());
            }
        }
        attempts
    }
}

/// The wait status of a process that ends so.
pub(crate) fn wait_status(exit: ExitStatus) -> i32 {
    let of = |number: u32| i32::try_from(number).unwrap_or(0);
    match exit.signal {
        0 => of(exit.code) << 8,
        signal => of(signal),
    }
}
