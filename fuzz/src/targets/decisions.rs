//! Sequences of commands: whatever users and nodes say, no decision panics, every state keeps the invariants, and the events
//! make the same state again when they are read back.

use muster_core::event::Event;
use muster_core::state::State;
use muster_hostile::cbor::Value;
use muster_hostile::requests::{self, Ids};
use muster_model::command::{Command, Identity, KeptPartitions, NodeCommand};
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::ids::{Attempt, JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{ExitStatus, Job, JobState, Step, StepEnd};
use muster_model::node::{NodeConfig, NodeInfo};
use muster_model::spec::{MemoryAsk, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::PROTOCOL;
use muster_proto::client::{Request, RequestBody};
use muster_proto::frame;
use muster_sched::engine::{Engine, Turn};
use std::sync::{Arc, LazyLock};

/// Commands of one input: more only make it slow.
const STEPS_MAX: usize = 40;
/// Turns of the scheduler after one command.
const TURNS_MAX: u32 = 4;

fn node(name: &str, cpus: u32) -> NodeConfig {
    NodeConfig {
        name: name.to_owned(),
        hostname: name.to_owned(),
        addr: name.to_owned(),
        cpus,
        boards: 1,
        sockets: 2,
        cores_per_socket: cpus / 2,
        threads_per_core: 1,
        memory_mib: 1000,
        weight: 1,
        features: vec!["a".to_owned()],
        state: muster_model::node_state::InitialState::Unknown,
        ..NodeConfig::default()
    }
}

fn config() -> ClusterConfig {
    let partition = |name: &str, nodes: &[&str], default| PartitionConfig {
        nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
        nodes_text: nodes.join(","),
        default,
        ..PartitionConfig::named(name)
    };
    ClusterConfig {
        cluster_name: "test".to_owned(),
        nodes: vec![node("n1", 4), node("n2", 4), node("n3", 8)],
        partitions: vec![
            partition("batch", &["n1", "n2", "n3"], true),
            PartitionConfig {
                max_time: TimeLimit::Minutes(30),
                max_nodes: Some(2),
                ..partition("short", &["n1", "n2"], false)
            },
        ],
        first_job_id: 1,
        max_job_count: 300,
        max_array_size: 201,
        min_job_age_s: 300,
        kill_wait_s: 30,
        node_timeout_s: 60,
        return_to_service: 1,
        job_requeue: true,
        default_memory: MemoryAsk::PerCpu(10),
        memory_is_consumable: true,
        backfill: true,
        admin_uids: vec![64_030],
        ..ClusterConfig::default()
    }
}

/// A cluster with its nodes registered, and what led to it.
static FRESH: LazyLock<(State, Vec<Event>)> = LazyLock::new(|| {
    let mut world = World {
        engine: Engine::new(State::default()),
        history: Vec::new(),
        now: Timestamp(1_000_000),
    };
    world.run(&Command::Configure {
        config: Arc::new(config()),
        keep: KeptPartitions::File,
    });
    for node in 0..3 {
        world.register(node, "boot");
    }
    (world.engine.state().clone(), world.history)
});

struct World {
    engine: Engine,
    history: Vec<Event>,
    now: Timestamp,
}

impl World {
    fn new() -> World {
        let (state, history) = FRESH.clone();
        World {
            engine: Engine::new(state),
            history,
            now: Timestamp(1_000_000),
        }
    }

    fn state(&self) -> &State {
        self.engine.state()
    }

    fn run(&mut self, command: &Command) {
        let mut turn = Turn::default();
        self.engine.decide(0, command, self.now, &mut turn);
        self.history.append(&mut turn.events);
        self.check(command);
    }

    fn schedule(&mut self) {
        for _ in 0..TURNS_MAX {
            let mut turn = Turn::default();
            self.engine.schedule(self.now, &mut turn);
            self.history.append(&mut turn.events);
            self.check(&"a plan");
            if !turn.more {
                break;
            }
        }
    }

    fn check(&self, what: &dyn std::fmt::Debug) {
        let state = self.state();
        let holds = state
            .check_invariants()
            .and_then(|()| state.check_het_jobs());
        if let Err(broken) = holds {
            panic!("{broken} after {what:?}");
        }
    }

    fn register(&mut self, node: u32, boot: &str) {
        let Some(known) = self.state().nodes.get(node as usize) else {
            return;
        };
        let info = NodeInfo {
            boot_id: boot.to_owned(),
            cpus: known.config.cpus,
            memory_mib: known.config.memory_mib,
            hostname: known.config.name.clone(),
            ..NodeInfo::default()
        };
        let jobs = self.state().jobs_on(NodeIdx(node));
        let present = jobs
            .map(|job| JobAttempt::new(job.id, job.attempt))
            .collect();
        self.run(&Command::Node(
            NodeIdx(node),
            NodeCommand::Register {
                info: Box::new(info),
                present,
            },
        ));
    }

    /// A job that holds nodes, as numbers of the input pick it.
    fn active(&self, pick: u64) -> Option<&Job> {
        let active = &self.state().active;
        let count = active.len().max(1) as u64;
        let id = active.iter().nth(usize::try_from(pick % count).ok()?)?;
        self.state().jobs.get(id)
    }

    /// A node's report about a job that it has, or had.
    fn report(&mut self, what: u64, pick: u64, stale: bool) {
        let Some(job) = self.active(pick) else { return };
        let (id, attempt) = (
            job.id,
            Attempt(job.attempt.0.saturating_sub(u32::from(stale))),
        );
        let shares = job.alloc.as_ref().map_or(&[][..], |alloc| &alloc.nodes);
        let at = usize::try_from(pick / 7).unwrap_or(0) % shares.len().max(1);
        let Some(node) = shares.get(at).map(|share| share.node) else {
            return;
        };
        let command = node_command(what, id, attempt, pick, self.now);
        self.run(&Command::Node(node, command));
    }

    /// One element of an input.
    fn step(&mut self, step: &Value) {
        let Value::Array(parts) = step else { return };
        let number = |at: usize| match parts.get(at) {
            Some(Value::Unsigned(number)) => *number,
            _ => 0,
        };
        let (what, by, pick) = (number(0), number(1), number(2));
        match what % 12 {
            0..=5 => {
                if let Some(body) = parts.get(3) {
                    self.user(by, body);
                }
            }
            6 | 7 => self.schedule(),
            8 => self.report(by, pick, false),
            9 => self.report(by, pick, by.is_multiple_of(5)),
            10 => {
                self.now = self.now.plus_s(pick % 100_000);
                self.run(&Command::Tick {
                    accounted: by.is_multiple_of(2),
                });
            }
            _ => self.node(by, pick),
        }
    }

    fn node(&mut self, by: u64, pick: u64) {
        let node = u32::try_from(pick % 3).unwrap_or(0);
        match by % 4 {
            0 => self.run(&Command::Node(NodeIdx(node), NodeCommand::Lost)),
            1 => self.register(node, "boot"),
            2 => self.register(node, "another boot"),
            _ => self.run(&Command::Node(
                NodeIdx(node),
                NodeCommand::Health {
                    load_centi: u32::try_from(pick % 1000).unwrap_or(0),
                    free_mib: pick,
                },
            )),
        }
    }

    /// A request of a user, by the way that it has in the controller.
    fn user(&mut self, by: u64, body: &Value) {
        let request = Value::Array(vec![Value::Unsigned(PROTOCOL.into()), body.clone()]);
        let Ok(request) = frame::decode::<Request>(&request.encode()) else {
            return;
        };
        if let RequestBody::Command(command) = request.body {
            self.run(&Command::User(identity(by), *command));
        }
    }

    /// Reads the journal back: it makes the same state.
    fn replay(&self) {
        let mut state = State::default();
        for event in &self.history {
            let bytes = minicbor::to_vec(event).expect("writing to memory cannot fail");
            let read: Event = minicbor::decode(&bytes).expect("an event can be read back");
            state.apply(&read);
        }
        assert_eq!(
            state.digest(),
            self.state().digest(),
            "a replay gives another state"
        );
        let mut snapshot = Vec::new();
        state.encode_snapshot(&mut snapshot);
        let read = State::decode_snapshot(&snapshot).expect("a snapshot can be read back");
        assert_eq!(
            state.digest(),
            read.digest(),
            "a snapshot gives another state"
        );
        if let Err(broken) = read.check_invariants() {
            panic!("{broken} in a snapshot");
        }
    }
}

fn identity(by: u64) -> Identity {
    let uid = [1000, 1001, 1002, 0, 64_030][usize::try_from(by % 5).unwrap_or(0)];
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

fn node_command(what: u64, job: JobId, attempt: Attempt, pick: u64, now: Timestamp) -> NodeCommand {
    let exit = ExitStatus {
        code: u32::try_from(pick % 3).unwrap_or(0),
        signal: 0,
    };
    let end = StepEnd {
        exit,
        state: JobState::Completed,
        ..StepEnd::never_ran(now)
    };
    let numbers = [
        StepNo(0),
        StepNo(1),
        StepNo(u32::MAX - 3),
        StepNo::BATCH,
        StepNo::EXTERN,
    ];
    let step = numbers[usize::try_from(pick / 3 % 5).unwrap_or(0)];
    match what % 8 {
        0 | 1 => NodeCommand::Released { job, attempt },
        2 | 3 => NodeCommand::BatchEnded {
            job,
            attempt,
            exit,
            oom: pick.is_multiple_of(2),
            end,
        },
        4 => NodeCommand::LaunchFailed {
            job,
            attempt,
            error: "no".to_owned(),
            node_fault: pick.is_multiple_of(2),
            prolog: pick.is_multiple_of(3),
            lack: false,
        },
        5 => NodeCommand::Vanished { job, attempt },
        6 => NodeCommand::StepStarted {
            job,
            attempt,
            step: Box::new(Step {
                step,
                name: "s".to_owned(),
                hostlist: "n1".to_owned(),
                nodes: 1,
                tasks: 1,
                cpus: 1,
                memory_mib: 0,
                start_time: now,
                stdio: StdioSpec::default(),
                submit_line: String::new(),
                time_limit: (pick.is_multiple_of(2)).then_some(TimeLimit::Minutes(1)),
                distribution: None,
                maker: None,
                devices: Vec::new(),
                device_ask: None,
            }),
        },
        _ => NodeCommand::StepEnded {
            job,
            attempt,
            step,
            end: Box::new(end),
        },
    }
}

fn play(input: &Value) -> World {
    let mut world = World::new();
    if let Value::Array(steps) = input {
        steps
            .iter()
            .take(STEPS_MAX)
            .for_each(|step| world.step(step));
    }
    world
}

/// Runs the target.
pub(super) fn run(data: &[u8]) {
    if let Ok(input) = Value::decode(data) {
        play(&input).replay();
    }
}

fn step(what: u64, by: u64, pick: u64) -> Value {
    Value::Array([what, by, pick].map(Value::Unsigned).to_vec())
}

fn asked(by: u64, body: RequestBody) -> Value {
    let request = Value::of(&Request {
        version: PROTOCOL,
        client: None,
        body,
    });
    let Value::Array(mut parts) = request else {
        return request;
    };
    let mut all = [0, by, 0].map(Value::Unsigned).to_vec();
    all.extend(parts.pop());
    Value::Array(all)
}

/// One sequence of commands for each kind of request: jobs are submitted and run, then it comes, then they end.
fn sequences() -> Vec<Value> {
    let ids = Ids {
        pending: JobId(2),
        array: JobId(3),
        running: JobId(1),
    };
    let job = || requests::job("/");
    let array = muster_model::spec::ArraySpec {
        indices: requests::range(0, 5),
        throttle: Some(2),
    };
    let submitted = |spec| asked(0, requests::submit(spec, "#!/bin/sh\n"));
    let begin = || {
        vec![
            submitted(job()),
            step(6, 0, 0),
            submitted(muster_model::spec::JobSpec {
                hold: true,
                ..job()
            }),
            submitted(muster_model::spec::JobSpec {
                array: Some(array.clone()),
                ..job()
            }),
        ]
    };
    let end = [
        step(6, 0, 0),
        step(8, 6, 0),
        step(8, 2, 0),
        step(8, 0, 0),
        step(10, 0, 400),
        step(11, 0, 0),
        step(11, 2, 0),
        step(6, 0, 0),
    ];
    let mut bodies: Vec<(u64, RequestBody)> = requests::samples(&ids)
        .into_iter()
        .filter(|sample| matches!(sample.body, RequestBody::Command(_)))
        .map(|sample| match sample.rights {
            requests::Rights::Administrator => (3, sample.body),
            _ => (0, sample.body),
        })
        .collect();
    bodies.push((0, requests::submit(requests::full_job("/"), "#!/bin/sh\n")));
    bodies
        .into_iter()
        .map(|(by, body)| {
            let mut steps = begin();
            steps.push(asked(by, body));
            steps.extend(end.clone());
            Value::Array(steps)
        })
        .collect()
}

/// Inputs to begin with.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    sequences().iter().map(Value::encode).collect()
}

/// Results of the inputs: events, and the state that they make.
pub(super) fn histories() -> Vec<(Vec<Event>, State)> {
    let played = sequences().into_iter().step_by(3).map(|input| play(&input));
    played
        .map(|world| (world.history.clone(), world.state().clone()))
        .collect()
}
