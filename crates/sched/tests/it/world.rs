//! A small cluster for tests: applies events to the state and lets a scheduler observe them.

use muster_core::decide::decide;
use muster_core::event::{Event, JobChange, NodeChange};
use muster_core::state::{DisplayUpdate, State};
use muster_model::command::{Command, Identity, Plan, Reply, UserCommand};
use muster_model::config::{
    ClusterConfig, EnforcePartLimits, OverSubscribe, PartitionConfig, PartitionState,
};
use muster_model::ids::{Attempt, JobId, NodeIdx};
use muster_model::job::{ArrayRole, ExitStatus, Hold, JobState, Reason};
use muster_model::node::{NodeConfig, NodeInfo, NodeReason};
use muster_model::spec::{ArraySpec, JobSpec, MemoryAsk, ResourceAsk};
use muster_model::time::{TimeLimit, Timestamp};
use muster_sched::Scheduler;
use std::sync::Arc;

pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) sched: Scheduler,
    pub(crate) now: Timestamp,
}

/// A node line.
pub(crate) fn node(name: &str, cpus: u32, mib: u64) -> NodeConfig {
    NodeConfig {
        name: name.into(),
        cpus,
        boards: 1,
        sockets: 1,
        cores_per_socket: cpus,
        threads_per_core: 1,
        memory_mib: mib,
        weight: 1,
        ..NodeConfig::default()
    }
}

/// Nodes n0, n1, ...
pub(crate) fn nodes(count: u32, cpus: u32) -> Vec<NodeConfig> {
    (0..count)
        .map(|i| node(&format!("n{i}"), cpus, 1000))
        .collect()
}

/// A partition over these nodes.
pub(crate) fn partition(name: &str, nodes: &[NodeConfig]) -> PartitionConfig {
    PartitionConfig {
        name: name.into(),
        nodes: nodes.iter().map(|n| n.name.clone()).collect(),
        nodes_text: String::new(),
        default: name == "p",
        state: PartitionState::Up,
        max_time: TimeLimit::Unlimited,
        default_time: None,
        min_nodes: 0,
        max_nodes: None,
        max_cpus_per_node: None,
        allow_groups: vec![],
        allow_accounts: vec![],
        deny_accounts: vec![],
        allow_qos: vec![],
        deny_qos: vec![],
        alloc_nodes: vec![],
        priority_tier: 1,
        priority_job_factor: 1,
        over_subscribe: OverSubscribe::No,
        default_memory: MemoryAsk::Default,
        max_memory: MemoryAsk::Default,
        hidden: false,
        root_only: false,
        disable_root_jobs: false,
        exclusive_user: false,
        lln: false,
        req_resv: false,
        qos: None,
        grace_time_s: 0,
        preempt_mode: None,
        over_time_limit_min: None,
        billing_weights: None,
        topology: None,
        ..PartitionConfig::named("")
    }
}

/// A cluster with one partition `p` over these nodes.
pub(crate) fn cluster(nodes: Vec<NodeConfig>) -> ClusterConfig {
    let partitions = vec![partition("p", &nodes)];
    ClusterConfig {
        cluster_name: "test".into(),
        nodes,
        partitions,
        first_job_id: 1,
        max_job_count: 1_000_000,
        max_array_size: 1_000_001,
        min_job_age_s: 300,
        kill_wait_s: 30,
        node_timeout_s: 300,
        return_to_service: 0,
        job_requeue: true,
        default_memory: MemoryAsk::Default,
        max_memory: MemoryAsk::Default,
        enforce_part_limits: EnforcePartLimits::No,
        memory_is_consumable: false,
        whole_nodes: false,
        backfill: true,
        over_time_limit_min: None,
        kill_invalid_depend: false,
        inactive_limit_s: 0,
        admin_uids: vec![],
        whole_cores: false,
        select_parameters: vec![],
        scheduler_parameters: vec![],
        ..ClusterConfig::default()
    }
}

/// A job of `tasks` tasks for `minutes`.
pub(crate) fn job(tasks: u32, minutes: u32) -> JobSpec {
    JobSpec {
        partitions: vec!["p".into()],
        ask: ResourceAsk {
            ntasks: Some(tasks),
            ..ResourceAsk::default()
        },
        time_limit: Some(TimeLimit::Minutes(minutes)),
        ..JobSpec::default()
    }
}

/// The same on a number of nodes.
pub(crate) fn wide(nodes: u32, tasks: u32, minutes: u32) -> JobSpec {
    let mut spec = job(tasks, minutes);
    spec.ask.min_nodes = nodes;
    spec.ask.max_nodes = Some(nodes);
    spec.ask.nodes_set = true;
    spec
}

impl World {
    pub(crate) fn new(config: ClusterConfig) -> World {
        let mut state = State::default();
        let now = Timestamp::from_unix_s(1_000_000);
        let count = u32::try_from(config.nodes.len()).unwrap();
        state.apply(&Event::Configured {
            config: Arc::new(config),
            at: now,
            partitions: None,
        });
        for node in (0..count).map(NodeIdx) {
            let info = Box::new(NodeInfo::default());
            state.apply(&Event::NodeRegistered {
                node,
                info,
                at: now,
            });
        }
        World {
            sched: Scheduler::new(&state),
            state,
            now,
        }
    }

    /// One partition `p` of equal nodes.
    pub(crate) fn simple(count: u32, cpus: u32) -> World {
        World::new(cluster(nodes(count, cpus)))
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        self.state.apply(event);
        self.sched.observe(&self.state, event);
    }

    pub(crate) fn submit(&mut self, spec: JobSpec) -> JobId {
        self.submit_with(spec, 1000)
    }

    pub(crate) fn submit_with(&mut self, mut spec: JobSpec, priority: u32) -> JobId {
        let id = JobId(self.state.next_job_id.max(1));
        if spec.owner.uid == 0 {
            spec.owner.uid = 1000;
        }
        self.apply(&Event::JobSubmitted {
            id,
            at: self.now,
            priority,
            hold: Hold::None,
            time_limit: spec.time_limit.unwrap_or(TimeLimit::Unlimited),
            waiting_on: vec![],
            reason: Reason::None,
            partition: spec.partitions.first().cloned().unwrap_or_default(),
            requeueable: true,
            het: None,
            spec: Arc::new(spec),
        });
        id
    }

    pub(crate) fn array(&mut self, mut spec: JobSpec, tasks: u32, throttle: Option<u32>) -> JobId {
        let mut indices = muster_model::index_set::IndexSet::default();
        indices.insert_range(0, tasks - 1);
        spec.array = Some(ArraySpec { indices, throttle });
        self.submit(spec)
    }

    /// Carries out a plan; gives the numbers of the jobs started.
    pub(crate) fn commit(&mut self, plan: &Plan) -> Vec<JobId> {
        let mut started = Vec::new();
        for (place, start) in plan.starts.iter().enumerate() {
            let mut id = start.job;
            if let ArrayRole::Pending { indices } = &self.state.jobs[&id].array {
                let index = indices.first().expect("an array's record has tasks");
                if indices.len() > 1 {
                    id = JobId(self.state.next_job_id);
                }
                self.apply(&Event::TaskSplit {
                    base: start.job,
                    index,
                    id,
                });
            }
            if let Some(shorter) = plan.limits.iter().find(|shorter| shorter.place == place) {
                self.change(id, JobChange::TimeLimit(shorter.limit));
            }
            let attempt = Attempt(self.state.jobs[&id].attempt.0 + 1);
            let alloc = Arc::new(start.alloc.clone());
            self.apply(&Event::JobStarted {
                id,
                attempt,
                at: self.now,
                alloc,
                configuring: false,
                priority: None,
            });
            started.push(id);
        }
        for id in &plan.switch_waits {
            if self.state.jobs[id].switch_wait_since.is_none() {
                self.change(*id, JobChange::SwitchWait);
            }
        }
        self.note(plan);
        started
    }

    pub(crate) fn note(&mut self, plan: &Plan) {
        for planned in &plan.reasons {
            self.state
                .note(&DisplayUpdate::Reason(planned.job, planned.reason));
        }
        for planned in &plan.expected {
            self.state
                .note(&DisplayUpdate::Expected(planned.job, Some(planned.start)));
        }
    }

    /// A pass, carried out.
    pub(crate) fn pass(&mut self) -> Vec<JobId> {
        let plan = self.sched.plan(&self.state, self.now);
        self.commit(&plan)
    }

    pub(crate) fn end(&mut self, id: JobId) {
        self.ending(id);
        let count = self.state.jobs[&id]
            .alloc
            .as_ref()
            .map_or(0, |a| a.nodes.len());
        for position in 0..u32::try_from(count).unwrap() {
            self.apply(&Event::NodeReleased {
                id,
                position,
                at: self.now,
            });
        }
    }

    pub(crate) fn ending(&mut self, id: JobId) {
        self.apply(&Event::JobEnding {
            id,
            at: self.now,
            state: JobState::Completed,
            reason: Reason::None,
            exit: ExitStatus::default(),
            cancelled_by: None,
            requeue: None,
        });
    }

    pub(crate) fn change(&mut self, id: JobId, change: JobChange) {
        self.apply(&Event::JobChanged {
            id,
            change,
            at: self.now,
        });
    }

    pub(crate) fn drain(&mut self, node: u32) {
        let reason = NodeReason {
            text: "test".into(),
            uid: 0,
            since: self.now,
        };
        let change = NodeChange::Drain(reason);
        self.apply(&Event::NodeChanged {
            node: NodeIdx(node),
            change,
            at: self.now,
        });
    }

    pub(crate) fn resume(&mut self, node: u32) {
        let change = NodeChange::Resume;
        self.apply(&Event::NodeChanged {
            node: NodeIdx(node),
            change,
            at: self.now,
        });
    }

    pub(crate) fn reason(&self, id: JobId) -> Reason {
        self.state.jobs[&id].reason
    }

    /// `node:cpus` of a running job, in order.
    pub(crate) fn place(&self, id: JobId) -> String {
        let job = &self.state.jobs[&id];
        match &job.alloc {
            Some(alloc) => (alloc.nodes.iter())
                .map(|s| format!("{}:{}", s.name, s.cpus.len()))
                .collect::<Vec<_>>()
                .join(" "),
            None => "-".into(),
        }
    }

    /// Tasks per node of a running job.
    pub(crate) fn tasks(&self, id: JobId) -> Vec<u32> {
        let alloc = self.state.jobs[&id].alloc.as_ref();
        alloc.map_or(vec![], |a| a.nodes.iter().map(|s| s.tasks).collect())
    }

    /// A command that the core decides.
    pub(crate) fn decide(&mut self, command: &Command) -> Option<Reply> {
        let decision = decide(&self.state, command, self.now);
        for event in &decision.events {
            self.apply(event);
        }
        decision.reply
    }

    /// An administrator's command that must be carried out.
    pub(crate) fn admin(&mut self, command: UserCommand) -> Reply {
        let root = Identity {
            user: "root".into(),
            ..Identity::default()
        };
        let reply = self.decide(&Command::User(root, command)).unwrap();
        assert!(!matches!(reply, Reply::Refused(_)), "{reply:?}");
        reply
    }

    /// Lets the core see what time it is.
    pub(crate) fn tick(&mut self) {
        self.decide(&Command::Tick { accounted: false });
    }

    /// A pass, committed by the core, which must agree to all of it.
    pub(crate) fn pass_by_core(&mut self) -> Vec<JobId> {
        let plan = self.sched.plan(&self.state, self.now);
        let before = self.state.active.clone();
        self.note(&plan);
        let planned = plan.starts.len();
        self.decide(&Command::Commit(plan));
        let started: Vec<JobId> = self.state.active.difference(&before).copied().collect();
        assert_eq!(started.len(), planned, "the core drops what was planned");
        started
    }
}

/// How many cases a property test draws: `PROPTEST_CASES`, else so many.
pub(crate) fn cases(usual: u32) -> u32 {
    let wanted = std::env::var("PROPTEST_CASES");
    wanted.map_or(usual, |cases| cases.parse().expect("a number"))
}
