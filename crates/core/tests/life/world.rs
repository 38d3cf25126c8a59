//! A small cluster in memory: commands go in, every event is applied and followed by a check of all invariants.

use muster_core::decide::{Decision, decide};
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::command::{
    Command, Identity, JobSelection, JobTarget, KeptPartitions, NodeCommand, Plan, PlannedStart,
    Reply, UserCommand,
};
use muster_model::config::{ClusterConfig, EnforcePartLimits, PartitionConfig};
use muster_model::cpuset::CpuSet;
use muster_model::effect::Effect;
use muster_model::ids::{BlobId, JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{
    Allocation, ArrayRole, ExitStatus, Job, JobState, NodeShare, Reason, ResourceUsage, StepEnd,
};
use muster_model::node::{NodeConfig, NodeInfo};
use muster_model::node_state::InitialState;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, JobKind, JobSpec, MemoryAsk,
};
use muster_model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

/// The script that all jobs of these tests have.
pub(crate) const SCRIPT: BlobId = BlobId([7; 32]);

/// The cluster, its history and its clock.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) history: Vec<Event>,
    pub(crate) now: Timestamp,
    /// Effects of the last command.
    pub(crate) effects: Vec<Effect>,
    /// Events of the last command.
    pub(crate) events: Vec<Event>,
    pub(crate) checked: bool,
}

pub(crate) fn node_config(name: &str, cpus: u32, memory_mib: u64) -> NodeConfig {
    NodeConfig {
        name: name.to_owned(),
        hostname: name.to_owned(),
        addr: name.to_owned(),
        cpus,
        boards: 1,
        sockets: 1,
        cores_per_socket: cpus,
        threads_per_core: 1,
        memory_mib,
        weight: 1,
        state: InitialState::Unknown,
        ..NodeConfig::default()
    }
}

pub(crate) fn partition(name: &str, nodes: &[&str], default: bool) -> PartitionConfig {
    PartitionConfig {
        nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
        nodes_text: nodes.join(","),
        default,
        ..PartitionConfig::named(name)
    }
}

pub(crate) fn config() -> ClusterConfig {
    ClusterConfig {
        cluster_name: "test".to_owned(),
        nodes: vec![
            node_config("n1", 4, 1000),
            node_config("n2", 4, 1000),
            node_config("n3", 8, 2000),
        ],
        partitions: vec![
            partition("batch", &["n1", "n2", "n3"], true),
            PartitionConfig {
                max_time: TimeLimit::Minutes(30),
                max_nodes: Some(2),
                ..partition("short", &["n1", "n2"], false)
            },
        ],
        first_job_id: 1,
        max_job_count: 10_000,
        max_array_size: 1_000_001,
        min_job_age_s: 300,
        kill_wait_s: 30,
        node_timeout_s: 60,
        return_to_service: 1,
        job_requeue: true,
        default_memory: MemoryAsk::PerCpu(10),
        max_memory: MemoryAsk::Default,
        enforce_part_limits: EnforcePartLimits::No,
        memory_is_consumable: true,
        whole_nodes: false,
        backfill: false,
        over_time_limit_min: None,
        kill_invalid_depend: false,
        inactive_limit_s: 0,
        admin_uids: vec![64_030],
        whole_cores: false,
        select_parameters: Vec::new(),
        scheduler_parameters: Vec::new(),
        ..ClusterConfig::default()
    }
}

pub(crate) fn info(boot: &str, node: &NodeConfig) -> NodeInfo {
    NodeInfo {
        boot_id: boot.to_owned(),
        cpus: node.cpus,
        memory_mib: node.memory_mib,
        hostname: node.name.clone(),
        ..NodeInfo::default()
    }
}

pub(crate) fn user(uid: u32) -> Identity {
    let name = match uid {
        0 => "root".to_owned(),
        _ => format!("u{uid}"),
    };
    Identity {
        uid,
        gid: uid,
        user: name.clone(),
        group: name.clone(),
        groups: vec![name],
        gids: vec![uid],
        host: None,
        granted: Default::default(),
        is_ordinary: false,
    }
}

pub(crate) fn spec(name: &str) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        script: Some(SCRIPT),
        work_dir: "/tmp".to_owned(),
        ..JobSpec::default()
    }
}

pub(crate) fn array(first: u32, last: u32, throttle: Option<u32>) -> Option<ArraySpec> {
    let mut indices = IndexSet::default();
    indices.insert_range(first, last);
    Some(ArraySpec { indices, throttle })
}

pub(crate) fn on(kind: DependencyKind, job: JobId) -> DependencyTerm {
    DependencyTerm::Job {
        kind,
        job,
        task: None,
        delay_minutes: 0,
    }
}

pub(crate) fn after(terms: Vec<DependencyTerm>) -> Dependency {
    Dependency { terms, any: false }
}

pub(crate) fn target(id: JobId) -> JobTarget {
    JobTarget {
        job: id,
        tasks: None,
        component: None,
    }
}

pub(crate) fn task(id: JobId, index: u32) -> JobTarget {
    JobTarget {
        job: id,
        tasks: Some(IndexSet::single(index)),
        component: None,
    }
}

pub(crate) fn exit(code: u32) -> ExitStatus {
    ExitStatus { code, signal: 0 }
}

pub(crate) fn step_end(at: Timestamp, exit: ExitStatus) -> StepEnd {
    StepEnd {
        end_time: at,
        exit,
        state: if exit.is_ok() {
            JobState::Completed
        } else {
            JobState::Failed
        },
        usage: ResourceUsage::default(),
        cancelled_by: None,
        last_lines: None,
    }
}

impl World {
    /// Three nodes, registered.
    pub(crate) fn new() -> World {
        World::with(config())
    }

    pub(crate) fn with(config: ClusterConfig) -> World {
        let mut world = World {
            state: State::default(),
            history: Vec::new(),
            now: Timestamp(1_000_000),
            effects: Vec::new(),
            events: Vec::new(),
            checked: true,
        };
        world.configure(config, KeptPartitions::File);
        for idx in 0..world.state.nodes.len() as u32 {
            world.register(idx, "boot1", &[]);
        }
        world
    }

    pub(crate) fn configure(&mut self, config: ClusterConfig, keep: KeptPartitions) {
        let config = Arc::new(config);
        self.run(Command::Configure { config, keep });
    }

    pub(crate) fn run(&mut self, command: Command) -> Decision {
        let decision = decide(&self.state, &command, self.now);
        self.effects = Vec::new();
        for event in &decision.events {
            self.state.apply(event);
            self.effects.extend(self.state.effects_of(event));
            if self.checked
                && let Err(broken) = self.state.check_invariants()
            {
                panic!("after {event:?} of {command:?}: {broken}");
            }
        }
        if self.checked
            && let Err(broken) = self.state.check_het_jobs()
        {
            panic!("after {command:?}: {broken}");
        }
        for note in &decision.notes {
            self.state.note(note);
        }
        self.effects.extend(decision.effects.iter().cloned());
        decision.events.iter().for_each(crate::kept_events::offer);
        self.history.extend(decision.events.iter().cloned());
        self.events = decision.events.clone();
        decision
    }

    pub(crate) fn user(&mut self, uid: u32, command: UserCommand) -> Reply {
        let decision = self.run(Command::User(user(uid), command));
        decision.reply.expect("a user's command has an answer")
    }

    /// A command that must be carried out.
    pub(crate) fn must(&mut self, uid: u32, command: UserCommand) -> u32 {
        match self.user(uid, command.clone()) {
            Reply::Done { changed, refused } if refused.is_empty() => changed,
            other => panic!("{command:?} was answered with {other:?}"),
        }
    }

    /// A command that must be refused.
    pub(crate) fn refused(&mut self, uid: u32, command: UserCommand) -> RefusalCode {
        match self.user(uid, command.clone()) {
            Reply::Refused(Refusal { code, .. }) => code,
            Reply::Done {
                refused,
                changed: 0,
            } if refused.len() == 1 => refused[0].1.code,
            other => panic!("{command:?} was answered with {other:?}"),
        }
    }

    pub(crate) fn try_submit(&mut self, uid: u32, spec: JobSpec) -> Result<JobId, Refusal> {
        let blobs = match spec.script {
            Some(id) => vec![(id, b"#!/bin/sh\n".to_vec().into())],
            None => Vec::new(),
        };
        match self.user(
            uid,
            UserCommand::Submit {
                spec: Box::new(spec),
                blobs,
                test_only: false,
            },
        ) {
            Reply::Submitted { id, .. } => Ok(id),
            Reply::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn submit(&mut self, spec: JobSpec) -> JobId {
        self.try_submit(1000, spec).expect("accepted")
    }

    pub(crate) fn refusal(&mut self, spec: JobSpec) -> RefusalCode {
        self.try_submit(1000, spec).expect_err("refused").code
    }

    pub(crate) fn job(&self, id: JobId) -> &Job {
        &self.state.jobs[&id]
    }

    pub(crate) fn state_of(&self, id: JobId) -> (JobState, Reason) {
        (self.job(id).state, self.job(id).reason)
    }

    /// The record of an array's task.
    pub(crate) fn task_id(&self, base: JobId, index: u32) -> JobId {
        self.state.arrays[&base].tasks[&index]
    }

    pub(crate) fn register(&mut self, idx: u32, boot: &str, present: &[JobAttempt]) {
        let node = self.state.nodes[idx as usize].config.clone();
        self.node(
            idx,
            NodeCommand::Register {
                info: Box::new(info(boot, &node)),
                present: present.to_vec(),
            },
        );
    }

    pub(crate) fn node(&mut self, idx: u32, command: NodeCommand) {
        self.run(Command::Node(NodeIdx(idx), command));
    }

    pub(crate) fn tick(&mut self) {
        self.run(Command::Tick { accounted: true });
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus_s(seconds);
        self.tick();
    }

    /// An allocation of `cpus` free CPUs on each of the nodes.
    pub(crate) fn alloc(&self, id: JobId, nodes: &[u32], cpus: u32) -> Allocation {
        let shares = nodes.iter().map(|idx| {
            let node = &self.state.nodes[*idx as usize];
            NodeShare {
                node: NodeIdx(*idx),
                name: node.config.name.clone(),
                cpus: node.free_cpus.lowest(cpus),
                memory_mib: u64::from(cpus) * 10,
                tasks: cpus,
                gres: Vec::new(),
            }
        });
        Allocation {
            reservation: None,
            end_by: None,
            billing_milli: 0,
            billing_units_milli: None,
            cpus_counted: None,
            mcs_label: None,
            usage_factor_millionths: None,
            backfilled: false,
            sharers: 0,
            only_user: None,
            licenses: Vec::new(),
            nodes: shares.collect(),
            partition: self.job(id).partition.clone(),
            exclusive: false,
            hostlist: String::new(),
            ntasks: cpus,
        }
    }

    pub(crate) fn plan(&mut self, starts: Vec<PlannedStart>) -> usize {
        self.run(Command::Commit(Plan {
            starts,
            ..Plan::default()
        }));
        let started = |e: &&Event| matches!(e, Event::JobStarted { .. });
        self.events.iter().filter(started).count()
    }

    /// Starts a job on one CPU of each of the nodes; whether it started.
    pub(crate) fn start(&mut self, id: JobId, nodes: &[u32]) -> bool {
        let alloc = self.alloc(id, nodes, 1);
        self.plan(vec![PlannedStart { job: id, alloc }]) == 1
    }

    /// Whoever is first places every startable job on the first node with a free CPU.
    pub(crate) fn schedule(&mut self) -> usize {
        let mut free: Vec<CpuSet> = self
            .state
            .nodes
            .iter()
            .map(|n| n.free_cpus.clone())
            .collect();
        let mut starts = Vec::new();
        let mut ids: Vec<&Job> = self
            .state
            .pending
            .iter()
            .map(|id| &self.state.jobs[id])
            .filter(|job| job.is_startable())
            .collect();
        ids.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.id));
        for job in ids {
            let copies = match &job.array {
                ArrayRole::Pending { indices } => indices.len(),
                ArrayRole::None | ArrayRole::Task { .. } => 1,
            };
            for _ in 0..copies.min(20) {
                let wanted = job.spec.ask.min_nodes as usize;
                let partition = self.state.partition(&job.partition).expect("partition");
                let places: Vec<u32> = (0..free.len() as u32)
                    .filter(|i| {
                        let node = &self.state.nodes[*i as usize];
                        node.is_usable()
                            && !free[*i as usize].is_empty()
                            && partition.nodes.contains(&node.config.name)
                    })
                    .take(wanted)
                    .collect();
                if places.len() < wanted {
                    break;
                }
                let mut alloc = self.alloc(job.id, &places, 1);
                for share in &mut alloc.nodes {
                    let set = &mut free[share.node.0 as usize];
                    share.cpus = set.lowest(1);
                    set.subtract(&share.cpus);
                }
                starts.push(PlannedStart { job: job.id, alloc });
            }
        }
        self.plan(starts)
    }

    /// The script ended with that status and every node is clean.
    pub(crate) fn finish(&mut self, id: JobId, code: u32) {
        self.end_batch(id, code);
        self.release(id);
    }

    pub(crate) fn end_batch(&mut self, id: JobId, code: u32) {
        let job = self.job(id);
        let lead = job.alloc.as_ref().expect("runs").nodes[0].node.0;
        let command = NodeCommand::BatchEnded {
            job: id,
            attempt: job.attempt,
            exit: exit(code),
            oom: false,
            end: step_end(self.now, exit(code)),
        };
        self.node(lead, command);
    }

    /// Every node that the job holds says that nothing is left.
    pub(crate) fn release(&mut self, id: JobId) {
        let job = self.job(id);
        let attempt = job.attempt;
        let alloc = job.alloc.clone().expect("has nodes");
        let held: Vec<u32> = job.nodes_held.iter().collect();
        for position in held {
            let node = alloc.nodes[position as usize].node.0;
            self.node(node, NodeCommand::Released { job: id, attempt });
        }
    }

    pub(crate) fn cancel(&mut self, uid: u32, target: JobTarget) -> Reply {
        self.user(
            uid,
            UserCommand::Cancel {
                selection: JobSelection {
                    targets: vec![target],
                    ..JobSelection::default()
                },
            },
        )
    }

    /// The history applied to nothing gives the same state; so does a snapshot.
    pub(crate) fn check_replay(&self) {
        let mut replayed = State::default();
        self.history.iter().for_each(|event| replayed.apply(event));
        assert_eq!(replayed.digest(), self.state.digest(), "replay differs");
        let mut bytes = Vec::new();
        self.state.encode_snapshot(&mut bytes);
        let read = State::decode_snapshot(&bytes).expect("snapshot");
        assert_eq!(read.digest(), self.state.digest(), "snapshot differs");
        read.check_invariants().expect("snapshot");
        let mut again = Vec::new();
        read.encode_snapshot(&mut again);
        assert_eq!(again, bytes, "snapshot of the snapshot differs");
    }

    pub(crate) fn terminations(&self) -> Vec<(u32, JobId)> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Terminate { node, job, .. } => Some((node.0, *job)),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn launches(&self) -> Vec<(u32, JobId)> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Launch { node, job, .. } => Some((node.0, *job)),
                _ => None,
            })
            .collect()
    }
}

/// An allocation held by a client.
pub(crate) fn allocation(name: &str) -> JobSpec {
    JobSpec {
        kind: JobKind::Allocation,
        script: None,
        interactive: true,
        ..spec(name)
    }
}

/// A step of a job, as its node reports it.
pub(crate) fn step(no: u32, at: Timestamp) -> muster_model::job::Step {
    muster_model::job::Step {
        step: StepNo(no),
        name: "hostname".to_owned(),
        hostlist: "n1".to_owned(),
        nodes: 1,
        tasks: 1,
        cpus: 1,
        memory_mib: 10,
        start_time: at,
        stdio: Default::default(),
        submit_line: String::new(),
        time_limit: None,
        distribution: None,
        maker: None,
        devices: Vec::new(),
        device_ask: None,
    }
}
