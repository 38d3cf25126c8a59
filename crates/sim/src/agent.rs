//! A node: its agent, the shim that outlives the agent, and the processes of jobs, as far as the protocol shows them.
//! The tables here are also the truth about what runs, which the controller's belief is compared with.

use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, JobId};
use muster_model::job::{ExitStatus, JobState, StepEnd, Usage};
use muster_model::node::NodeInfo;
use muster_model::time::Timestamp;
use muster_proto::node::{JobGrant, NodeHello, NumberedReport, Report};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One launch of a job.
pub(crate) type Run = (JobId, Attempt);

/// Acknowledged reports that are remembered.
const REMEMBERED: usize = 40;

/// A node.
pub(crate) struct Agent {
    /// `NodeName`.
    pub(crate) name: String,
    /// CPUs of the machine.
    pub(crate) cpus: u32,
    /// Memory, MiB.
    pub(crate) memory_mib: u64,
    /// The machine is on.
    pub(crate) machine_up: bool,
    /// The agent's process lives.
    pub(crate) agent_up: bool,
    /// Number of the boot.
    pub(crate) boot: u64,
    /// Open connection, as the agent sees it.
    pub(crate) conn: Option<u64>,
    /// The welcome came; reports may go.
    pub(crate) welcomed: bool,
    /// Cut off from the controller until this time, milliseconds.
    pub(crate) cut_off_until: u64,
    /// What the shim knows.
    pub(crate) runs: BTreeMap<Run, Local>,
    /// Launches that wait for CPUs whose last job is being killed, in order.
    pub(crate) waiting: VecDeque<JobGrant>,
    /// Those of them that are to be stopped as soon as they run.
    pub(crate) stopped: BTreeSet<Run>,
    /// Highest launch of each job that was seen in this boot; never started again.
    pub(crate) seen: BTreeMap<JobId, Attempt>,
    /// Reports that were not acknowledged.
    pub(crate) outbox: VecDeque<NumberedReport>,
    /// Number of the last report.
    pub(crate) seq: u64,
    /// Reports that were acknowledged, the last ones.
    pub(crate) said: Vec<NumberedReport>,
    /// Until when it cannot write down what it starts, and why.
    pub(crate) failing: Option<(u64, &'static str)>,
}

/// A job on this node.
pub(crate) struct Local {
    /// CPUs granted here.
    pub(crate) cpus: CpuSet,
    /// The partition whose jobs may have them, too.
    pub(crate) shared_with: Option<String>,
    /// Processes exist.
    pub(crate) alive: bool,
    /// It leads and has a script.
    pub(crate) script: bool,
    /// The script's own end if nothing disturbs it.
    pub(crate) exit: ExitStatus,
    /// Distinguishes timers: an older one does nothing.
    pub(crate) timer: u64,
    /// When the script ends, milliseconds.
    pub(crate) ends_at: u64,
    /// Milliseconds that were left when it was stopped.
    pub(crate) stopped: Option<u64>,
    /// It was ordered to end.
    pub(crate) ending: bool,
    /// `Released` was reported.
    pub(crate) released: bool,
}

impl Local {
    /// It was ordered to end, and its end is not reported yet.
    pub(crate) fn is_being_killed(&self) -> bool {
        self.ending && !self.released
    }
}

impl Agent {
    /// A machine that is on, with no agent connected yet.
    pub(crate) fn new(name: String, cpus: u32, memory_mib: u64) -> Agent {
        Agent {
            name,
            cpus,
            memory_mib,
            machine_up: true,
            agent_up: true,
            boot: 1,
            conn: None,
            welcomed: false,
            cut_off_until: 0,
            runs: BTreeMap::new(),
            waiting: VecDeque::new(),
            stopped: BTreeSet::new(),
            seen: BTreeMap::new(),
            outbox: VecDeque::new(),
            seq: 0,
            said: Vec::new(),
            failing: None,
        }
    }

    /// The first message on a connection.
    pub(crate) fn hello(&self, now: Timestamp) -> NodeHello {
        let waiting = self.waiting.iter().map(|grant| (grant.job, grant.attempt));
        NodeHello {
            name: self.name.clone(),
            info: NodeInfo {
                arch: "x86_64".to_owned(),
                os: "Linux".to_owned(),
                boot_id: format!("{}-{}", self.name, self.boot),
                boot_time: Timestamp(0),
                agent_start: now,
                cpus: self.cpus,
                memory_mib: self.memory_mib,
                free_mib: self.memory_mib,
                load_centi: 0,
                address: format!("unix:/run/{}", self.name),
                version: String::new(),
                hostname: self.name.clone(),
                numa_domains: None,
                numa_distances: Vec::new(),
                cross_memory: None,
            },
            // Nothing is sealed here: controller and agents are one process.
            key: Vec::new().into(),
            launcher_key: Vec::new().into(),
            present: self.runs.keys().copied().chain(waiting).collect(),
        }
    }

    /// Numbers a report and keeps it until it is acknowledged.
    pub(crate) fn report(&mut self, (job, attempt): Run, report: Report) {
        self.seq += 1;
        self.outbox.push_back(NumberedReport {
            seq: self.seq,
            job,
            attempt,
            report,
        });
    }

    /// Reports up to `seq` are durable at the controller; returns them.
    pub(crate) fn acknowledged(&mut self, seq: u64) -> Vec<NumberedReport> {
        let mut out = Vec::new();
        while self.outbox.front().is_some_and(|report| report.seq <= seq) {
            out.extend(self.outbox.pop_front());
        }
        self.said.extend(out.iter().cloned());
        let old = self.said.len().saturating_sub(REMEMBERED);
        self.said.drain(..old);
        for report in &out {
            // Each of these says that nothing of the job is here.
            if let Report::Released | Report::Vanished | Report::LaunchFailed { .. } = report.report
            {
                // Processes that an agent lied about stay in the truth.
                let run = (report.job, report.attempt);
                if self.runs.get(&run).is_some_and(|local| !local.alive) {
                    self.runs.remove(&run);
                }
            }
        }
        out
    }

    /// Whether this launch, or a later one of the job, was seen in this boot.
    pub(crate) fn has_seen(&self, (job, attempt): Run) -> bool {
        self.seen.get(&job).is_some_and(|seen| *seen >= attempt)
    }

    /// Remembers a launch, so that it never starts (again).
    pub(crate) fn mark_seen(&mut self, (job, attempt): Run) {
        let seen = self.seen.entry(job).or_default();
        *seen = (*seen).max(attempt);
    }

    /// Runs whose processes use a CPU of `cpus`; those that are stopped do not.
    /// Those that share with jobs of that partition do not matter.
    pub(crate) fn using(&self, cpus: &CpuSet, partition: Option<&str>) -> Vec<Run> {
        let uses = |local: &Local| {
            let shares = partition.is_some() && local.shared_with.as_deref() == partition;
            local.alive && local.stopped.is_none() && local.cpus.intersects(cpus) && !shares
        };
        self.runs
            .iter()
            .filter(|(_, local)| uses(local))
            .map(|(run, _)| *run)
            .collect()
    }

    /// The machine goes down: everything on it is gone.
    pub(crate) fn power_off(&mut self) {
        self.machine_up = false;
        self.agent_up = false;
        self.conn = None;
        self.welcomed = false;
        self.runs.clear();
        self.waiting.clear();
        self.stopped.clear();
        self.seen.clear();
        self.outbox.clear();
    }

    /// Nothing of any job is here and nothing is left to say.
    pub(crate) fn is_clean(&self) -> bool {
        self.runs.is_empty() && self.waiting.is_empty() && self.outbox.is_empty()
    }
}

/// The report of a script's end.
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
        usage: Usage::default(),
        cancelled_by: None,
    };
    Report::BatchEnded {
        exit,
        oom: false,
        end: Box::new(end),
    }
}
