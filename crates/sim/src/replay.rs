//! Replays a workload through the real scheduler: the controller's own engine (decide, apply, plan, commit) on a
//! virtual clock that jumps from one submission or end to the next. Nodes carry out orders at once. What the
//! scheduler may know it knows as in a cluster: limits, not run times.

pub mod metrics;
pub mod plot;

use crate::workload::Workload;
use metrics::{Finished, Sample};
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::command::{Command, Identity, NodeCommand, Reply, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::node::NodeInfo;
use muster_model::spec::{JobKind, JobSpec, Owner, ResourceAsk};
use muster_model::time::{TimeLimit, Timestamp};
use muster_sched::engine::{Engine, Turn};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// Begin of the virtual clock, seconds since 1970: traces count from 0, and 0 stands for unknown in places.
const BEGIN_S: i64 = 1_700_000_000;
/// Number of ends after which ended jobs leave the queue.
const ENDS_PER_PURGE: u64 = 1000;

/// Setting of the scheduler; the words of `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As Muster ships: no `PriorityType`, `sched/backfill`, so run times are predicted.
    Default,
    /// First come first served, and backfill with one promise, made by limits, to the first job that waits.
    Easy,
    /// First come first served, and backfill with promises, made by limits, to the first twenty that wait.
    Conservative,
    /// Nobody passes anybody (`sched/builtin`).
    Fifo,
}

impl Policy {
    /// All of them, with their words and descriptions.
    pub const ALL: [(&'static str, Policy, &'static str); 4] = [
        ("default", Policy::Default, "as Muster ships"),
        (
            "easy",
            Policy::Easy,
            "first come, first served; backfill by limits",
        ),
        (
            "conservative",
            Policy::Conservative,
            "the same with promises to the first 20 that wait (bf_promises=20)",
        ),
        (
            "fifo",
            Policy::Fifo,
            "first come, first served, without backfill",
        ),
    ];

    /// The lines of slurm.conf that make it.
    fn settings(self) -> &'static str {
        match self {
            Policy::Default => "",
            Policy::Easy | Policy::Conservative => {
                "PriorityType=priority/basic\nSchedulerType=sched/backfill\n"
            }
            Policy::Fifo => "PriorityType=priority/basic\nSchedulerType=sched/builtin\n",
        }
    }
}

/// Machine and scheduler of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Setting of the scheduler.
    pub policy: Policy,
    /// Further `SchedulerParameters`.
    pub parameters: Vec<String>,
    /// CPUs of a node; as many nodes as the workload's processors need.
    pub cpus_per_node: u32,
}

impl Options {
    /// A machine like the one the workload is from: its nodes where they are known and equal, else nodes of one CPU.
    pub fn new(policy: Policy, workload: &Workload) -> Options {
        let nodes = workload.nodes.unwrap_or(workload.processors).max(1);
        let whole = workload.processors.is_multiple_of(nodes);
        Options {
            policy,
            parameters: Vec::new(),
            cpus_per_node: if whole {
                workload.processors / nodes
            } else {
                1
            }
            .max(1),
        }
    }
}

/// Result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Jobs with their start, in order of their end.
    pub jobs: Vec<Finished>,
    /// Queue and machine over time, one sample for each instant at which something changed.
    pub samples: Vec<Sample>,
    /// CPUs of the machine.
    pub processors: u32,
    /// Jobs that the machine is too small for.
    pub too_large: usize,
    /// Passes of the scheduler.
    pub passes: u64,
}

/// Why a workload cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayError(pub String);

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReplayError {}

/// Replays a workload; `progress` gets the number of jobs that have ended.
///
/// # Errors
/// A parameter that the configuration does not take, a job that is refused or that never starts.
pub fn replay(
    workload: &Workload,
    options: &Options,
    progress: &mut dyn FnMut(usize),
) -> Result<Outcome, ReplayError> {
    let config = configuration(workload, options)?;
    let mut machine = ReplayMachine::new(config, workload);
    let mut next = 0;
    while let Some(now_s) = machine.next_event(next) {
        machine.now = Timestamp::from_unix_s(BEGIN_S + now_s);
        machine.end_due(now_s)?;
        while let Some(job) = workload
            .jobs
            .get(next)
            .filter(|j| seconds(j.submit_s) <= now_s)
        {
            machine.submit(job)?;
            next += 1;
        }
        machine.schedule(now_s);
        progress(machine.outcome.jobs.len());
    }
    match machine.outcome.jobs.len() + machine.outcome.too_large {
        all if all == workload.jobs.len() => Ok(machine.outcome),
        done => {
            let state = machine.engine.state();
            let first = state.pending.first().and_then(|id| state.jobs.get(id));
            Err(ReplayError(format!(
                "{} jobs never started, the first for the reason {}",
                workload.jobs.len() - done,
                first.map_or("unknown", |job| job.reason.name()),
            )))
        }
    }
}

/// The slurm.conf of the machine, read as the controller reads a site's.
fn configuration(workload: &Workload, options: &Options) -> Result<ClusterConfig, ReplayError> {
    let cpus = options.cpus_per_node.max(1);
    let nodes = workload.processors.div_ceil(cpus).max(1);
    let policy = options.policy.settings();
    let mut words = options.parameters.clone();
    if options.policy == Policy::Conservative {
        words.insert(0, "bf_promises=20".to_owned());
    }
    let parameters = match words.as_slice() {
        [] => String::new(),
        words => format!("SchedulerParameters={}\n", words.join(",")),
    };
    let text = format!(
        "ClusterName=replay\nSlurmctldHost=localhost\nSlurmUser=root\nMaxJobCount=4000000\nMinJobAge=2\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n{policy}{parameters}\
         NodeName=n[1-{nodes}] CPUs={cpus} State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    );
    let (config, findings) = muster_conf::load_text(std::path::Path::new("replay.conf"), &text);
    let wrong = findings
        .iter()
        .find(|f| f.severity == muster_conf::Severity::Error);
    match wrong {
        Some(finding) => Err(ReplayError(finding.message.clone())),
        None => Ok(config.cluster(&[], &|_| None)),
    }
}

fn seconds(s: u64) -> i64 {
    i64::try_from(s).unwrap_or(i64::MAX / 2)
}

/// A job that was submitted and has not ended.
struct Live {
    job: crate::workload::WorkloadJob,
    start_s: i64,
}

struct ReplayMachine {
    engine: Engine,
    now: Timestamp,
    live: HashMap<JobId, Live>,
    /// Ends to come.
    ends: BinaryHeap<Reverse<(i64, JobId)>>,
    submits: Vec<i64>,
    waiting: usize,
    busy: u32,
    ended: u64,
    turn: Turn,
    outcome: Outcome,
}

impl ReplayMachine {
    fn new(config: ClusterConfig, workload: &Workload) -> ReplayMachine {
        let now = Timestamp::from_unix_s(BEGIN_S);
        let machines: Vec<NodeInfo> = (config.nodes.iter())
            .map(|node| NodeInfo {
                cpus: node.cpus,
                memory_mib: node.memory_mib,
                ..NodeInfo::default()
            })
            .collect();
        let processors = config.nodes.iter().map(|n| n.cpus).sum();
        let mut engine = Engine::new(State::default());
        let mut turn = Turn::default();
        let configure = Command::Configure {
            config: Arc::new(config),
            keep: Default::default(),
        };
        engine.decide(0, &configure, now, &mut turn);
        for (info, node) in machines.into_iter().zip((0..).map(NodeIdx)) {
            let register = NodeCommand::Register {
                info: Box::new(info),
                present: Vec::new(),
            };
            engine.decide(0, &Command::Node(node, register), now, &mut turn);
        }
        ReplayMachine {
            engine,
            now,
            live: HashMap::new(),
            ends: BinaryHeap::new(),
            submits: workload.jobs.iter().map(|j| seconds(j.submit_s)).collect(),
            waiting: 0,
            busy: 0,
            ended: 0,
            turn: Turn::default(),
            outcome: Outcome {
                processors,
                ..Outcome::default()
            },
        }
    }

    /// When the next job is submitted or ends.
    fn next_event(&self, next_job: usize) -> Option<i64> {
        let submit = self.submits.get(next_job).copied();
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        match (submit, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn decide(&mut self, command: &Command) {
        self.turn.clear();
        self.engine.decide(0, command, self.now, &mut self.turn);
    }

    /// Ends the jobs whose time has come, at once and everywhere.
    fn end_due(&mut self, now_s: i64) -> Result<(), ReplayError> {
        while let Some(Reverse((_, id))) = self
            .ends
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= now_s)
        {
            self.ends.pop();
            let Some(live) = self.live.remove(&id) else {
                continue;
            };
            self.decide(&Command::AssumeEnded { job: id });
            if self.turn.events.is_empty() {
                return Err(ReplayError(format!(
                    "job {id} does not run, and cannot end"
                )));
            }
            self.busy -= live.job.processors;
            self.outcome.jobs.push(Finished {
                job: live.job,
                start_s: live.start_s,
                end_s: now_s,
            });
            self.ended += 1;
            if self.ended.is_multiple_of(ENDS_PER_PURGE) {
                self.decide(&Command::Tick { accounted: true });
            }
        }
        Ok(())
    }

    fn submit(&mut self, job: &crate::workload::WorkloadJob) -> Result<(), ReplayError> {
        if job.processors > self.outcome.processors {
            self.outcome.too_large += 1;
            return Ok(());
        }
        let identity = identity(job.user);
        let minutes = u32::try_from(job.limit_s.div_ceil(60)).unwrap_or(u32::MAX);
        let spec = JobSpec {
            name: job
                .program
                .map_or_else(|| "job".to_owned(), |p| format!("program{p}")),
            owner: Owner {
                uid: identity.uid,
                gid: identity.gid,
                user: identity.user.clone(),
                group: identity.group.clone(),
            },
            kind: JobKind::Allocation,
            work_dir: "/".to_owned(),
            ask: ResourceAsk {
                ntasks: Some(job.processors),
                ..ResourceAsk::default()
            },
            time_limit: Some(TimeLimit::Minutes(minutes.max(1))),
            ..JobSpec::default()
        };
        let submit = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: Vec::new(),
            test_only: false,
        };
        self.decide(&Command::User(identity, submit));
        match self.turn.replies.first() {
            Some((_, Reply::Submitted { id, .. })) => {
                let live = Live {
                    job: *job,
                    start_s: 0,
                };
                self.live.insert(*id, live);
                self.waiting += 1;
                Ok(())
            }
            Some((_, Reply::Refused(refusal))) => Err(ReplayError(format!(
                "job {} of the workload is refused: {refusal}",
                job.number
            ))),
            _ => Err(ReplayError(format!("job {} has no answer", job.number))),
        }
    }

    /// Passes until one starts nothing, or nobody waits any more, and records the starts: with jobs that have just
    /// started, promises may be made where they keep fewer back.
    fn schedule(&mut self, now_s: i64) {
        loop {
            self.turn.clear();
            self.engine.schedule(self.now, &mut self.turn);
            self.outcome.passes += 1;
            let mut started = false;
            for event in &self.turn.events {
                let Event::JobStarted { id, .. } = event else {
                    continue;
                };
                started = true;
                let Some(live) = self.live.get_mut(id) else {
                    continue;
                };
                live.start_s = now_s;
                self.waiting -= 1;
                self.busy += live.job.processors;
                let runs_s = live.job.run_s.min(live.job.limit_s.max(1));
                self.ends.push(Reverse((now_s + seconds(runs_s), *id)));
            }
            if self.waiting == 0 || !started && !self.turn.more {
                break;
            }
        }
        self.outcome.samples.push(Sample {
            at_s: now_s,
            waiting: self.waiting,
            busy: self.busy,
        });
    }
}

/// The user of that number in the workload.
fn identity(user: u32) -> Identity {
    Identity {
        uid: 100_000u32.saturating_add(user),
        gid: 100_000,
        user: format!("user{user}"),
        group: "users".to_owned(),
        ..Identity::default()
    }
}

#[cfg(test)]
mod tests;
