//! Random commands: invariants hold after every event, the history replays to the same state.

use crate::world::{World, after, allocation, array, exit, on, spec, step, step_end, target, task};
use muster_model::command::{
    Command, JobSelection, JobUpdate, KeptPartitions, NodeCommand, NodeUpdate, SignalScope,
    UserCommand,
};
use muster_model::ids::{Attempt, JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{ExitStatus, Job, JobState};
use muster_model::node_host::{FutureHost, NodeHost};
use muster_model::node_state::InitialState;
use muster_model::power::PowerConfig;
use muster_model::spec::{
    Dependency, DependencyKind, DependencyTerm, JobSpec, ResourceAsk, WarnSignal,
};
use muster_model::time::TimeLimit;
use muster_model::trigger::{TriggerAsk, TriggerEvents, TriggerReport, TriggerRunId};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Submit {
        kind: u8,
        a: u32,
        b: u32,
        uid: u8,
    },
    Schedule,
    BatchEnd {
        pick: u32,
        code: u8,
        stale: bool,
        oom: bool,
    },
    Release {
        pick: u32,
        stale: bool,
    },
    Step {
        pick: u32,
        no: u8,
        end: bool,
    },
    Trouble {
        pick: u32,
        kind: u8,
    },
    Verb {
        pick: u32,
        verb: u8,
        uid: u8,
        index: Option<u8>,
    },
    Update {
        pick: u32,
        field: u8,
        value: u32,
        uid: u8,
    },
    Filter {
        uid: u8,
        what: u8,
    },
    Node {
        idx: u8,
        verb: u8,
    },
    Pass {
        seconds: u32,
        accounted: bool,
    },
    Reconfigure {
        kind: u8,
    },
    Trigger {
        pick: u32,
        kind: u8,
        permanent: bool,
    },
    Started {
        pick: u32,
    },
}

pub(crate) fn ops() -> impl Strategy<Value = Op> {
    let uid = 0u8..4;
    prop_oneof![
        6 => (0u8..14, 0u32..12, 0u32..6, uid.clone())
            .prop_map(|(kind, a, b, uid)| Op::Submit { kind, a, b, uid }),
        6 => Just(Op::Schedule),
        5 => (any::<u32>(), 0u8..3, prop::bool::weighted(0.1), prop::bool::weighted(0.1))
            .prop_map(|(pick, code, stale, oom)| Op::BatchEnd { pick, code, stale, oom }),
        6 => (any::<u32>(), prop::bool::weighted(0.1))
            .prop_map(|(pick, stale)| Op::Release { pick, stale }),
        2 => (any::<u32>(), 0u8..3, any::<bool>()).prop_map(|(pick, no, end)| Op::Step { pick, no, end }),
        2 => (any::<u32>(), 0u8..4).prop_map(|(pick, kind)| Op::Trouble { pick, kind }),
        6 => (any::<u32>(), 0u8..11, uid.clone(), prop::option::of(0u8..8))
            .prop_map(|(pick, verb, uid, index)| Op::Verb { pick, verb, uid, index }),
        2 => (any::<u32>(), 0u8..14, 0u32..40, uid.clone())
            .prop_map(|(pick, field, value, uid)| Op::Update { pick, field, value, uid }),
        1 => (uid, 0u8..4).prop_map(|(uid, what)| Op::Filter { uid, what }),
        3 => (0u8..3, 0u8..10).prop_map(|(idx, verb)| Op::Node { idx, verb }),
        3 => (0u32..200, any::<bool>()).prop_map(|(seconds, accounted)| Op::Pass { seconds, accounted }),
        1 => (0u8..4).prop_map(|kind| Op::Reconfigure { kind }),
    ]
}

/// With triggers, and nodes that are FUTURE or in power saving.
fn ops_of_nodes() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => ops(),
        2 => (any::<u32>(), 0u8..40, any::<bool>())
            .prop_map(|(pick, kind, permanent)| Op::Trigger { pick, kind, permanent }),
        1 => any::<u32>().prop_map(|pick| Op::Started { pick }),
        2 => (0u8..3, 10u8..16).prop_map(|(idx, verb)| Op::Node { idx, verb }),
        1 => (4u8..7).prop_map(|kind| Op::Reconfigure { kind }),
    ]
}

fn trigger(world: &mut World, which: u32, kind: u8, permanent: bool) {
    let job = pick(world, which).map(|job| job.id);
    let ask = match kind {
        39 => TriggerAsk::Clear {
            id: Some(which % 8),
            job: None,
            uid: None,
        },
        _ => TriggerAsk::Set {
            events: TriggerEvents(1 << (kind % 10) | 1 << (which % 10)),
            job: job.filter(|_| kind.is_multiple_of(2)),
            nodes: ["", "n1", "n[1-2]"][which as usize % 3].to_owned(),
            offset_s: i32::try_from(which % 200).expect("small") - 60,
            program: "/bin/true".to_owned(),
            permanent,
        },
    };
    world.user(0, UserCommand::Trigger(Box::new(ask)));
}

fn uid(small: u8) -> u32 {
    match small {
        0 => 0,
        n => 1000 + u32::from(n),
    }
}

pub(crate) fn pick(world: &World, pick: u32) -> Option<&Job> {
    let count = world.state.jobs.len();
    (count > 0)
        .then(|| world.state.jobs.values().nth(pick as usize % count))
        .flatten()
}

fn pick_active(world: &World, pick: u32) -> Option<&Job> {
    let count = world.state.active.len();
    let id = (count > 0).then(|| world.state.active.iter().nth(pick as usize % count))??;
    Some(world.job(*id))
}

fn submission(world: &World, kind: u8, a: u32, b: u32) -> JobSpec {
    let known = pick(world, a * 7 + b).map_or(JobId(999), Job::submission);
    let name = format!("job{}", a % 3);
    let base = spec(&name);
    let depends = |kind| JobSpec {
        dependency: after(vec![on(kind, known)]),
        kill_on_invalid_dep: Some(b.is_multiple_of(2)),
        ..base.clone()
    };
    match kind {
        0 => JobSpec {
            time_limit: Some(TimeLimit::Minutes(b)),
            ..base
        },
        1 => JobSpec {
            array: array(a % 3, a % 3 + b, Some(b).filter(|n| *n > 0)),
            ..base
        },
        2 => depends(DependencyKind::AfterOk),
        3 => depends(DependencyKind::AfterAny),
        4 => depends(DependencyKind::AfterNotOk),
        5 => JobSpec {
            array: array(0, b + 1, None),
            ..depends(DependencyKind::AfterCorr)
        },
        6 => JobSpec {
            dependency: after(vec![DependencyTerm::Singleton]),
            array: if b == 0 { array(0, 2, None) } else { None },
            ..base
        },
        7 => JobSpec {
            dependency: Dependency {
                terms: vec![
                    DependencyTerm::Job {
                        kind: DependencyKind::After,
                        job: known,
                        task: Some(b),
                        delay_minutes: a % 3,
                    },
                    on(DependencyKind::AfterOk, JobId(u64::from(a))),
                    on(DependencyKind::AfterNotOk, JobId(u64::from(b))),
                ],
                any: a.is_multiple_of(2),
            },
            ..base
        },
        8 => allocation(&name),
        9 => {
            let mut job = JobSpec {
                requeue: Some(b.is_multiple_of(2)),
                no_kill: a.is_multiple_of(2),
                ..base
            };
            job.ask.min_nodes = 1 + b % 3;
            job
        }
        10 => JobSpec {
            hold: b.is_multiple_of(2),
            begin: Some(world.now.plus_s(u64::from(a * 20))),
            ..base
        },
        11 => JobSpec {
            deadline: Some(world.now.plus_s(u64::from(60 * b + 100))),
            time_limit: Some(TimeLimit::Minutes(1)),
            ..base
        },
        12 => JobSpec {
            warn_signal: Some(WarnSignal {
                signal: 10,
                before_s: a * 10,
                batch_only: b.is_multiple_of(2),
            }),
            time_limit: Some(TimeLimit::Minutes(2)),
            ..base
        },
        _ => JobSpec {
            partitions: vec!["short".to_owned()],
            ..base
        },
    }
}

fn verb(world: &mut World, id: JobId, verb: u8, by: u32, index: Option<u8>) {
    let target = match index {
        Some(index) => task(id, u32::from(index)),
        None => target(id),
    };
    let selection = JobSelection {
        targets: vec![target.clone()],
        ..JobSelection::default()
    };
    let command = match verb {
        0 | 1 => UserCommand::Cancel { selection },
        2 => UserCommand::Hold {
            target,
            user: by.is_multiple_of(2),
        },
        3 => UserCommand::Release { target },
        4 => UserCommand::Requeue {
            target,
            hold: false,
            special_exit: false,
            incomplete: false,
        },
        5 => UserCommand::Requeue {
            target,
            hold: true,
            special_exit: true,
            incomplete: false,
        },
        6 => UserCommand::Suspend { target },
        7 => UserCommand::Resume { target },
        8 => UserCommand::Top { target },
        9 => UserCommand::EndAllocation {
            job: id,
            exit: exit(u32::from(index.unwrap_or(0))),
        },
        _ => UserCommand::Signal {
            selection,
            signal: 9 + by % 3,
            scope: SignalScope::Full,
        },
    };
    world.user(by, command);
}

fn update(world: &World, field: u8, value: u32) -> JobUpdate {
    let mut update = JobUpdate::default();
    match field {
        0 => update.time_limit = Some(TimeLimit::Minutes(value)),
        1 => update.time_delta_min = Some(i64::from(value) - 20),
        2 => update.priority = Some(value / 2),
        3 => update.nice = Some(value as i32 - 10),
        4 => update.partitions = Some(vec!["short".to_owned()]),
        5 => update.name = Some(format!("job{}", value % 3)),
        6 => {
            let job = pick(world, value).map_or(JobId(1), |job| job.id);
            update.dependency = Some(after(vec![on(DependencyKind::AfterAny, job)]));
        }
        7 => update.dependency = Some(Dependency::default()),
        8 => update.begin = Some(world.now.plus_s(u64::from(value))),
        9 => update.array_throttle = Some(value % 4),
        10 => update.requeue = Some(value.is_multiple_of(2)),
        11 => {
            let ask = pick(world, value).map(|job| job.spec.ask.clone());
            update.ask = ask.map(|ask| ResourceAsk {
                min_nodes: 1 + value % 3,
                ..ask
            });
        }
        12 => update.nodelist = Some(["n1", "n[1-2]", "n[1,3]"][value as usize % 3].to_owned()),
        _ => update.deadline = Some(world.now.plus_s(u64::from(value) * 20)),
    }
    update
}

fn present(world: &World, node: NodeIdx, all: bool) -> Vec<JobAttempt> {
    let jobs = world
        .state
        .jobs_on(node)
        .map(|job| JobAttempt::new(job.id, job.attempt));
    jobs.filter(|run| all || run.job.0 % 2 == 0).collect()
}

pub(crate) fn act(world: &mut World, op: &Op) {
    match op {
        Op::Submit {
            kind,
            a,
            b,
            uid: by,
        } => {
            let spec = submission(world, *kind, *a, *b);
            let _ = world.try_submit(uid(*by), spec);
        }
        Op::Schedule => {
            world.schedule();
        }
        Op::BatchEnd {
            pick,
            code,
            stale,
            oom,
        } => {
            let Some(job) = pick_active(world, *pick) else {
                return;
            };
            let node = job.alloc.as_ref().expect("active").nodes[0].node.0;
            let exit = ExitStatus {
                code: u32::from(*code),
                signal: 0,
            };
            let command = NodeCommand::BatchEnded {
                job: job.id,
                attempt: Attempt(job.attempt.0 - u32::from(*stale)),
                exit,
                oom: *oom,
                end: step_end(world.now, exit),
            };
            world.node(node, command);
        }
        Op::Release { pick, stale } => {
            let Some(job) = pick_active(world, *pick) else {
                return;
            };
            // Nodes that take their time, and such that say too much.
            if !job.completing && pick % 4 != 0 {
                return;
            }
            let nodes = &job.alloc.as_ref().expect("active").nodes;
            let node = nodes[*pick as usize % nodes.len()].node.0;
            let attempt = Attempt(job.attempt.0 - u32::from(*stale));
            let command = NodeCommand::Released {
                job: job.id,
                attempt,
            };
            world.node(node, command);
        }
        Op::Step { pick, no, end } => {
            let Some(job) = pick_active(world, *pick) else {
                return;
            };
            let node = job.alloc.as_ref().expect("active").nodes[0].node.0;
            let (id, attempt, at) = (job.id, job.attempt, world.now);
            world.node(
                node,
                if *end {
                    NodeCommand::StepEnded {
                        job: id,
                        attempt,
                        step: StepNo(u32::from(*no)),
                        end: Box::new(step_end(at, exit(u32::from(*no)))),
                    }
                } else {
                    NodeCommand::StepStarted {
                        job: id,
                        attempt,
                        step: Box::new(step(u32::from(*no), at)),
                    }
                },
            );
        }
        Op::Trouble { pick, kind } => {
            let Some(job) = pick_active(world, *pick) else {
                return;
            };
            let nodes = &job.alloc.as_ref().expect("active").nodes;
            let node = nodes[*pick as usize % nodes.len()].node.0;
            let (job, attempt) = (job.id, job.attempt);
            let command = match kind {
                0 => NodeCommand::Vanished { job, attempt },
                n => NodeCommand::LaunchFailed {
                    job,
                    attempt,
                    error: "no space".to_owned(),
                    node_fault: *n < 3,
                    prolog: *n == 2,
                    lack: *n == 1,
                },
            };
            world.node(node, command);
        }
        Op::Verb {
            pick: which,
            verb: what,
            uid: by,
            index,
        } => {
            // Only administrators stop jobs, and only those that run.
            let (found, by) = match what {
                6 | 7 => (pick_active(world, *which), 0),
                _ => (pick(world, *which), uid(*by)),
            };
            if let Some(id) = found.map(|job| job.id) {
                let index = index.filter(|_| !matches!(what, 6 | 7));
                verb(world, id, *what, by, index);
            }
        }
        Op::Update {
            pick: which,
            field,
            value,
            uid: by,
        } => {
            if let Some(id) = pick(world, *which).map(|job| job.id) {
                let update = Box::new(update(world, *field, *value));
                let target = if which % 3 == 0 {
                    task(id, value % 4)
                } else {
                    target(id)
                };
                world.user(uid(*by), UserCommand::UpdateJob { target, update });
            }
        }
        Op::Filter { uid: by, what } => {
            let mut selection = JobSelection::default();
            match what {
                0 => selection.state = Some(JobState::Pending),
                1 => selection.name = Some("job1".to_owned()),
                2 => selection.nodes = vec!["n1".to_owned()],
                _ => selection.uid = Some(1001),
            }
            world.user(uid(*by), UserCommand::Cancel { selection });
        }
        Op::Node { idx, verb } => node(world, u32::from(*idx), *verb),
        Op::Pass { seconds, accounted } => {
            world.now = world.now.plus_s(u64::from(*seconds));
            let due = world.state.next_tick(world.now);
            world.run(Command::Tick {
                accounted: *accounted,
            });
            let nothing = world.events.is_empty();
            assert!(
                nothing || due.is_some_and(|at| at <= world.now.plus_s(1)),
                "a tick at {:?} did {:?}, next_tick said {due:?}",
                world.now,
                world.events
            );
            // A tick may make more due at once: a job that is requeued after its deadline ends, and then its triggers go.
            for _ in 0..2 {
                world.run(Command::Tick {
                    accounted: *accounted,
                });
            }
            let next = world.state.next_tick(world.now);
            assert!(
                next.is_none_or(|at| at > world.now),
                "the tick left something to do at {next:?}"
            );
        }
        Op::Reconfigure { kind } => {
            let mut config = crate::world::config();
            config.power = world.state.config.as_ref().and_then(|c| c.power.clone());
            match kind {
                4 => config.nodes[0].state = InitialState::Future,
                5 => config.nodes[1].state = InitialState::Future,
                6 => config.power = None,
                0 => config.nodes.truncate(2),
                1 => config.nodes.push(crate::world::node_config("n4", 2, 500)),
                2 => config.over_time_limit_min = Some(1),
                _ => {}
            }
            world.configure(config, KeptPartitions::All);
        }
        Op::Trigger {
            pick,
            kind,
            permanent,
        } => trigger(world, *pick, *kind, *permanent),
        Op::Started { pick } => {
            let runs = world.state.triggers.runs().values().filter(|run| run.begun);
            let runs: Vec<TriggerRunId> = runs.map(|run| run.id).collect();
            if let Some(run) = runs.get(*pick as usize % runs.len().max(1)) {
                world.run(Command::Trigger(TriggerReport::Started(*run)));
            }
        }
    }
}

fn node(world: &mut World, idx: u32, verb: u8) {
    let update = |state: &str| NodeUpdate {
        state: Some(state.to_owned()),
        reason: Some("test".to_owned()),
        ..NodeUpdate::default()
    };
    let name = world.state.nodes[idx as usize].config.name.clone();
    let set = |world: &mut World, state: &str| {
        let nodes = name.clone();
        world.user(
            0,
            UserCommand::UpdateNodes {
                nodes,
                update: update(state),
            },
        );
    };
    match verb {
        0 => world.node(idx, NodeCommand::Lost),
        1 => register(world, idx, "boot1", true),
        2 => register(world, idx, "boot1", false),
        3 => register(world, idx, "boot2", false),
        4 => set(world, "DOWN"),
        5 => set(world, "DRAIN"),
        6..=8 => set(world, "RESUME"),
        9 => set(world, "FAIL"),
        10 | 11 => set(world, "FUTURE"),
        12 => set(world, "POWER_DOWN_FORCE"),
        13 => set(world, "POWER_UP"),
        14 => {
            let nodes = name.clone();
            world.user(0, UserCommand::CancelReboot { nodes });
        }
        _ => {
            let line = &world.state.nodes[idx as usize].config;
            let host = FutureHost {
                host: NodeHost {
                    hostname: format!("h{idx}"),
                    addr: "10.0.0.1".to_owned(),
                    port: 6818,
                },
                sockets: line.sockets,
                cores_per_socket: line.cores_per_socket,
                threads_per_core: line.threads_per_core,
                feature: None,
            };
            world.user(0, UserCommand::TakeNode(Box::new(host)));
        }
    }
}

fn register(world: &mut World, idx: u32, boot: &str, all: bool) {
    let present = present(world, NodeIdx(idx), all);
    world.register(idx, boot, &present);
    let orders = world.state.orders_for_node(NodeIdx(idx), &present);
    for job in world.state.jobs_on(NodeIdx(idx)) {
        let there = present.contains(&JobAttempt::new(job.id, job.attempt));
        let ordered = orders
            .iter()
            .any(|order| format!("{order:?}").contains(&format!("{:?}", job.id)));
        assert!(
            there || ordered,
            "nobody tells node {idx} of job {}",
            job.id
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_and_history_replays(ops in prop::collection::vec(ops(), 1..120)) {
        let mut world = World::new();
        for op in &ops {
            act(&mut world, op);
        }
        world.check_replay();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_with_triggers_and_nodes_that_come_and_go(
        ops in prop::collection::vec(ops_of_nodes(), 1..120),
    ) {
        let mut config = crate::world::config();
        config.power = Some(PowerConfig {
            suspend_time_s: Some(100),
            suspend_timeout_s: 30,
            resume_timeout_s: 60,
            suspend_rate: 0,
            resume_rate: 0,
            keep: Vec::new(),
            except_states: Vec::new(),
        });
        let mut world = World::with(config);
        for op in &ops {
            act(&mut world, op);
        }
        world.check_replay();
    }
}

/// Once nothing is held and all nodes answer, everything that can end ends.
#[test]
fn the_queue_drains() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..30 {
        let ops = prop::collection::vec(ops(), 60..100)
            .new_tree(&mut runner)
            .expect("ops")
            .current();
        let mut world = World::new();
        ops.iter().for_each(|op| act(&mut world, op));
        world.configure(crate::world::config(), KeptPartitions::File);
        for idx in 0..3 {
            register(&mut world, idx, "boot3", false);
            node(&mut world, idx, 6);
        }
        for _ in 0..400 {
            let held: Vec<JobId> = world.state.pending.iter().copied().collect();
            for id in held {
                world.user(0, UserCommand::Release { target: target(id) });
            }
            let suspended: Vec<JobId> = world.state.active.iter().copied().collect();
            for id in suspended {
                world.user(0, UserCommand::Resume { target: target(id) });
            }
            world.schedule();
            let active: Vec<JobId> = world.state.active.iter().copied().collect();
            for id in active {
                match world.job(id).spec.kind {
                    _ if world.job(id).completing => {}
                    muster_model::spec::JobKind::Batch => world.end_batch(id, 0),
                    muster_model::spec::JobKind::Allocation => {
                        world.must(
                            0,
                            UserCommand::EndAllocation {
                                job: id,
                                exit: exit(0),
                            },
                        );
                    }
                }
                world.release(id);
            }
            world.pass(30);
        }
        for job in world.state.jobs.values() {
            let hopeless = job.reason == muster_model::job::Reason::DependencyNeverSatisfied;
            // `short` has two nodes only.
            let too_big = job.spec.ask.min_nodes > 2 && job.partition == "short";
            let circle = !job.waiting_on.is_empty();
            assert!(
                job.is_over() || hopeless || too_big || circle,
                "job {} is left: {job:?}",
                job.id
            );
        }
        world.check_replay();
    }
}

/// Every move that the table of transitions allows is one that really happens.
#[test]
fn every_transition_is_reached() {
    use muster_core::transition::{Move, move_of, next_phase};
    use muster_model::job::Phase;
    let mut missing: Vec<(Phase, Move)> = Phase::ALL
        .into_iter()
        .flat_map(|phase| Move::ALL.into_iter().map(move |step| (phase, step)))
        .filter(|(phase, step)| next_phase(*phase, *step).is_some())
        .collect();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..1500 {
        let ops = prop::collection::vec(ops(), 60..100)
            .new_tree(&mut runner)
            .expect("ops")
            .current();
        let mut world = World::new();
        world.checked = false;
        let before = world.history.len();
        ops.iter().for_each(|op| act(&mut world, op));
        let mut state = muster_core::state::State::default();
        world.history[..before]
            .iter()
            .for_each(|event| state.apply(event));
        for event in &world.history[before..] {
            // A submission moves no job: there was none before.
            for job in event.jobs().iter().filter_map(|id| state.jobs.get(id)) {
                if let Some(step) = move_of(job, event) {
                    let seen = (job.phase(), step);
                    missing.retain(|pair| *pair != seen);
                }
            }
            state.apply(event);
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("never happened: {missing:?}");
}
