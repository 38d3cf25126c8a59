//! A node: its machine, its disk, and the real agent and launcher on it. What runs is the truth of the machine's table of
//! processes; the machines of agent and launcher know of it what their executors ([`crate::world`]) show them.

mod agent;
mod disk;
mod launcher;
mod machine;
mod srun;
mod step_link;
mod stepd;

pub(crate) use agent::{AgentInput, AgentProcess, Dial, DialStage, RequestSource, ToLauncher};
pub(crate) use disk::{Disk, DiskFault};
pub(crate) use launcher::{LauncherProcess, StepdConnection};
pub(crate) use machine::{
    Channel, ChannelId, Down, Kind, Machine, Parent, Process, Share, wait_status,
};
pub(crate) use srun::{AgentConnection, SrunProcess};
pub(crate) use step_link::{Direction, LinkArrival, LinkClient, LinkServer, StepLinkId, StepLinks};
pub(crate) use stepd::{BelowNode, Greeted, StepTasks, StepdProcess, StreamKey};

use muster_model::ids::{JobAttempt, StepNo};
use muster_model::job::{ExitStatus, JobState, ResourceUsage, StepEnd};
use muster_model::node::NodeInfo;
use muster_model::time::Timestamp;
use muster_node_core::agent::view;
use muster_node_core::launcher::known_jobs;
use muster_proto::node::{NodeHello, NumberedReport, Report};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A task of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskKey {
    pub(crate) attempt: JobAttempt,
    pub(crate) step: StepNo,
    /// Its global number.
    pub(crate) task: u32,
}

/// Acknowledged reports that are remembered.
const REMEMBERED: usize = 40;

/// The connection between agent and launcher.
#[derive(Debug)]
pub(crate) struct Link {
    /// Its number; messages of an earlier one are lost.
    pub(crate) id: u64,
    /// Times of the last delivery in each direction, so that nothing is overtaken.
    pub(crate) last_up: u64,
    pub(crate) last_down: u64,
    /// Messages that the agent has sent and the launcher has not received, in the order in which they arrive.
    pub(crate) to_launcher: VecDeque<Vec<ToLauncher>>,
    /// Number of them that arrive even if the agent is killed: the others are in its memory.
    pub(crate) written: usize,
}

/// A node.
pub(crate) struct Node {
    /// `NodeName`.
    pub(crate) name: String,
    /// CPUs of the machine.
    pub(crate) cpus: u32,
    /// Memory, MiB.
    pub(crate) memory_mib: u64,
    /// The machine is on.
    pub(crate) machine_up: bool,
    /// Number of the boot.
    pub(crate) boot: u64,
    /// When it was, milliseconds.
    pub(crate) booted_at: u64,
    /// Cut off from the controller and other nodes until this time, milliseconds.
    pub(crate) cut_off_until: u64,
    /// State that lasts until the machine goes down.
    pub(crate) machine: Machine,
    /// State that stays.
    pub(crate) disk: Disk,
    /// The agent's process, if it lives.
    pub(crate) agent: Option<AgentProcess>,
    /// Starts of agents.
    pub(crate) agent_lives: u64,
    /// The launcher's process, if it lives.
    pub(crate) launcher: Option<LauncherProcess>,
    /// Starts of launchers.
    pub(crate) launcher_lives: u64,
    /// Between the two.
    pub(crate) link: Option<Link>,
    /// Reports that this life of the agent has sent and that were not acknowledged.
    pub(crate) reported: BTreeMap<u64, NumberedReport>,
    /// Reports that were acknowledged, the last ones.
    pub(crate) said: Vec<NumberedReport>,
    /// Launches of this boot whose release was acknowledged.
    pub(crate) released: BTreeSet<JobAttempt>,
    /// When the last process that a fault killed here died, milliseconds.
    pub(crate) disturbed_at: u64,
}

impl Node {
    /// A machine that is on, with nothing started yet.
    pub(crate) fn new(name: String, cpus: u32, memory_mib: u64) -> Node {
        Node {
            name,
            cpus,
            memory_mib,
            machine_up: true,
            boot: 1,
            booted_at: 0,
            cut_off_until: 0,
            machine: Machine::default(),
            disk: Disk::default(),
            agent: None,
            agent_lives: 0,
            launcher: None,
            launcher_lives: 0,
            link: None,
            reported: BTreeMap::new(),
            said: Vec::new(),
            released: BTreeSet::new(),
            disturbed_at: 0,
        }
    }

    /// The spool directory.
    pub(crate) fn spool(&self) -> String {
        format!("/spool/{}", self.name)
    }

    /// Where the agent listens.
    pub(crate) fn address(&self) -> String {
        format!("unix:{}/noded.sock", self.spool())
    }

    /// The kernel's name of this boot.
    pub(crate) fn boot_id(&self) -> String {
        format!("{}-{}", self.name, self.boot)
    }

    /// The connection to the controller, as the agent sees it.
    pub(crate) fn conn(&self) -> Option<u64> {
        Some(self.agent.as_ref()?.dial.as_ref()?.conn)
    }

    /// Reports may go.
    pub(crate) fn is_welcomed(&self) -> bool {
        let dial = self.agent.as_ref().and_then(|a| a.dial.as_ref());
        dial.is_some_and(|dial| dial.stage == DialStage::Up)
    }

    /// The first message on a connection, with these public keys.
    pub(crate) fn hello(
        &self,
        now: Timestamp,
        present: Vec<JobAttempt>,
        [key, launcher_key]: [Vec<u8>; 2],
    ) -> NodeHello {
        NodeHello {
            name: self.name.clone(),
            info: NodeInfo {
                arch: "x86_64".to_owned(),
                os: "Linux".to_owned(),
                boot_id: self.boot_id(),
                boot_time: Timestamp(0),
                agent_start: now,
                cpus: self.cpus,
                memory_mib: self.memory_mib,
                free_mib: self.memory_mib,
                load_centi: 0,
                address: self.address(),
                version: String::new(),
                hostname: self.name.clone(),
                numa_domains: None,
                numa_distances: Vec::new(),
                cross_memory: None,
                trusted_by: None,
                control_groups: None,
            },
            key: key.into(),
            launcher_key: launcher_key.into(),
            dynamic: None,
            present,
        }
    }

    /// Launches of which something is here, as far as anybody knows.
    pub(crate) fn present(&self) -> BTreeSet<JobAttempt> {
        let mut present: BTreeSet<JobAttempt> = BTreeSet::new();
        present.extend(self.machine.attempts());
        present.extend(self.agent.iter().flat_map(|a| view::known_jobs(&a.machine)));
        match &self.launcher {
            Some(launcher) => present.extend(known_jobs(&launcher.machine)),
            None => present.extend(self.disk.attempts(&self.boot_id())),
        }
        present
    }

    /// Reports up to `seq` are durable at the controller; returns them.
    pub(crate) fn acknowledged(&mut self, seq: u64) -> Vec<NumberedReport> {
        let later = self.reported.split_off(&seq.saturating_add(1));
        let known = std::mem::replace(&mut self.reported, later);
        let known: Vec<NumberedReport> = known.into_values().collect();
        for report in &known {
            if let Report::Released = report.report {
                let attempt = JobAttempt::new(report.job, report.attempt);
                self.released.insert(attempt);
            }
        }
        self.said.extend(known.iter().cloned());
        let old = self.said.len().saturating_sub(REMEMBERED);
        self.said.drain(..old);
        known
    }

    /// Nothing of any job is here and nothing is left to say.
    pub(crate) fn is_clean(&self) -> bool {
        let is_idle = self.agent.as_ref().is_some_and(|a| a.is_idle());
        let launcher = self.launcher.as_ref();
        is_idle
            && self.reported.is_empty()
            && launcher.is_some_and(|l| known_jobs(&l.machine).next().is_none())
            && self.machine.attempts().is_empty()
            && self.machine.stepds.is_empty()
    }

    /// Leftovers here, in words.
    pub(crate) fn remains(&self) -> String {
        let names = |jobs: Vec<JobAttempt>| -> Vec<String> {
            jobs.iter()
                .map(|attempt| format!("{}/{}", attempt.job, attempt.attempt.0))
                .collect()
        };
        let agent = self.agent.as_ref();
        let launcher = self.launcher.as_ref();
        format!(
            "{} (up {}): agent {:?} unfinished {:?} conn {:?} welcomed {}, launcher {:?}, processes {:?}, daemons {:?}, unacknowledged {}",
            self.name,
            self.machine_up,
            agent.map(|a| names(view::known_jobs(&a.machine).collect())),
            agent.map(|a| a.unfinished()),
            self.conn(),
            self.is_welcomed(),
            launcher.map(|l| names(known_jobs(&l.machine).collect())),
            self.machine
                .processes
                .iter()
                .map(|(pid, p)| (*pid, p.kind))
                .collect::<Vec<_>>(),
            self.machine.stepds.keys().collect::<Vec<_>>(),
            self.reported.len(),
        )
    }
}

/// The report of a script's end, for nodes that lie.
pub(crate) fn batch_ended(exit: ExitStatus, by_order: bool, now: Timestamp) -> Report {
    let state = match (by_order, exit.is_ok()) {
        (true, _) => JobState::Cancelled,
        (false, true) => JobState::Completed,
        (false, false) => JobState::Failed,
    };
    let end = StepEnd {
        end_time: now,
        exit,
        state,
        usage: ResourceUsage::default(),
        cancelled_by: None,
        last_lines: None,
    };
    Report::BatchEnded {
        exit,
        oom: false,
        end: Box::new(end),
    }
}
