//! Power saving: nodes go to sleep and are woken for jobs.

use crate::world::{World, allocation, config, spec, target};
use muster_model::command::{KeptPartitions, NodeUpdate, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Reason};
use muster_model::node::{Node, NodeLink};
use muster_model::node_state::InitialState;
use muster_model::power::{Power, PowerConfig, PowerUpWait, SuspendException};
use muster_model::refusal::RefusalCode;
use muster_model::time::TimeLimit;

fn saving() -> PowerConfig {
    PowerConfig {
        suspend_time_s: Some(100),
        suspend_timeout_s: 30,
        resume_timeout_s: 60,
        suspend_rate: 0,
        resume_rate: 0,
        keep: Vec::new(),
        except_states: Vec::new(),
    }
}

fn world(change: impl FnOnce(&mut ClusterConfig)) -> World {
    let mut config = ClusterConfig {
        power: Some(saving()),
        ..config()
    };
    change(&mut config);
    World::with(config)
}

fn set(nodes: &str, state: &str) -> UserCommand {
    UserCommand::UpdateNodes {
        nodes: nodes.to_owned(),
        update: NodeUpdate {
            state: Some(state.to_owned()),
            ..NodeUpdate::default()
        },
    }
}

/// Where nodes are: `.` up, else the mark that listings have.
fn marks(world: &World) -> String {
    let mark = |node: &Node| match node.power {
        Some(_) => node.state(false, None).mark().unwrap_or('?'),
        None => '.',
    };
    world.state.nodes.iter().map(mark).collect()
}

/// All nodes have been powered down, and their agents are gone.
fn asleep(world: &mut World) {
    world.pass(100);
    for node in 0..3 {
        world.node(node, muster_model::command::NodeCommand::Lost);
    }
    world.pass(30);
    assert_eq!(marks(world), "~~~");
}

fn runs(world: &World, id: JobId) -> bool {
    world.job(id).state == JobState::Running && !world.job(id).configuring
}

#[test]
fn idle_nodes_are_powered_down_and_are_not_missed() {
    let mut world = world(|_| {});
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0]));
    assert_eq!(
        world.state.next_tick(world.now),
        Some(world.now.plus_s(100))
    );
    world.pass(99);
    assert_eq!(marks(&world), "...");
    world.pass(1);
    assert_eq!(marks(&world), ".%%");
    assert!(!world.state.nodes[1].is_usable());
    world.node(1, muster_model::command::NodeCommand::Lost);
    world.pass(29);
    assert_eq!(marks(&world), ".%%");
    world.pass(1);
    assert_eq!(marks(&world), ".~~");
    world.pass(1000);
    assert!(
        !world.state.nodes[1].down,
        "silence is what it is meant to keep"
    );
    assert!(world.state.nodes[1].is_usable());
    world.finish(id, 0);
    world.pass(99);
    assert_eq!(marks(&world), ".~~");
    world.pass(1);
    assert_eq!(marks(&world), "%~~");
    world.check_replay();
}

#[test]
fn jobs_wake_nodes_and_their_time_begins_when_all_are_up() {
    let mut world = world(|_| {});
    asleep(&mut world);
    let mut long = spec("j");
    long.time_limit = Some(TimeLimit::Minutes(1));
    let id = world.submit(long);
    assert!(world.start(id, &[0, 1]));
    assert_eq!(marks(&world), "##~");
    assert_eq!(world.job(id).power_up, Some(PowerUpWait::Nodes));
    assert!(world.launches().is_empty() && world.job(id).configuring);
    world.pass(50);
    world.register(0, "boot2", &[]);
    assert_eq!(marks(&world), ".#~");
    assert!(world.launches().is_empty());
    world.pass(9);
    world.register(1, "boot2", &[]);
    assert_eq!(world.launches(), [(0, id), (1, id)]);
    assert!(runs(&world, id));
    assert_eq!(world.job(id).start_time, Some(world.now));
    world.pass(59);
    assert_eq!(
        world.job(id).state,
        JobState::Running,
        "its minute is not over"
    );
    world.pass(1);
    assert_eq!(world.job(id).state, JobState::Timeout);
    world.check_replay();
}

#[test]
fn prolog_and_nodes_may_be_ready_in_any_order() {
    for prolog_first in [true, false] {
        let mut world = world(|c| c.prolog_slurmctld = true);
        asleep(&mut world);
        let id = world.submit(spec("j"));
        assert!(world.start(id, &[0]));
        assert_eq!(world.job(id).power_up, Some(PowerUpWait::NodesAndProlog));
        let attempt = world.job(id).attempt;
        let prolog = muster_model::command::Command::PrologEnded {
            job: id,
            attempt,
            well: true,
        };
        if prolog_first {
            world.run(prolog);
            assert!(!runs(&world, id) && world.launches().is_empty());
            world.register(0, "boot2", &[]);
        } else {
            world.register(0, "boot2", &[]);
            assert!(!runs(&world, id) && world.launches().is_empty());
            world.run(prolog);
        }
        assert!(runs(&world, id));
        assert_eq!(world.launches(), [(0, id)]);
    }
}

#[test]
fn a_node_that_does_not_come_up_is_down_and_its_jobs_wait_again() {
    let mut world = world(|_| {});
    asleep(&mut world);
    let mut fixed = spec("j");
    fixed.requeue = Some(false);
    let id = world.submit(fixed);
    assert!(world.start(id, &[0, 1]));
    world.register(1, "boot2", &[]);
    world.pass(60);
    assert_eq!(marks(&world), "~.~");
    assert!(world.state.nodes[0].down);
    assert_eq!(
        world.state.nodes[0].reason.as_ref().unwrap().text,
        "ResumeTimeout reached"
    );
    assert_eq!(world.terminations(), [(1, id)], "the other node is told");
    world.release(id);
    assert_eq!(world.job(id).state, JobState::Pending, "nothing of it ran");
    // An administrator brings it back: it may be tried again.
    world.must(0, set("n1", "RESUME"));
    assert!(world.state.nodes[0].is_usable() && marks(&world) == "~.~");
    world.check_replay();
}

#[test]
fn a_job_that_is_cancelled_while_its_nodes_come_up_is_over_at_once() {
    let mut world = world(|_| {});
    asleep(&mut world);
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1]));
    world.cancel(1000, target(id));
    assert!(world.job(id).is_over());
    assert!(world.state.nodes[0].jobs.is_empty());
    world.register(0, "boot2", &[]);
    assert_eq!(marks(&world), ".#~");
    let held = world.submit(allocation("s"));
    assert!(world.start(held, &[2]));
    world.pass(60);
    assert_eq!(world.state_of(held), (JobState::NodeFail, Reason::NodeDown));
    world.check_replay();
}

#[test]
fn what_is_excepted_stays_up() {
    let mut world = world(|c| {
        c.nodes[2].stays_up = Some(true);
        let power = c.power.as_mut().unwrap();
        power.keep = vec![SuspendException {
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            count: 1,
        }];
    });
    world.pass(5000);
    assert_eq!(marks(&world), "%..");
    world.pass(5000);
    assert_eq!(marks(&world), "~..");
    // What power saving leaves alone is not asked for all the time.
    let next = world.state.next_tick(world.now).unwrap();
    assert!(next > world.now);
}

#[test]
fn states_may_be_excepted() {
    let mut world = world(|c| c.power.as_mut().unwrap().except_states = vec!["DRAIN".to_owned()]);
    let update = NodeUpdate {
        state: Some("DRAIN".to_owned()),
        reason: Some("x".to_owned()),
        ..NodeUpdate::default()
    };
    let nodes = "n2".to_owned();
    world.must(0, UserCommand::UpdateNodes { nodes, update });
    world.pass(100);
    assert_eq!(marks(&world), "%.%");
}

#[test]
fn rates_hold_for_a_minute() {
    let mut world = world(|c| {
        let power = c.power.as_mut().unwrap();
        (power.suspend_rate, power.resume_rate) = (2, 1);
    });
    world.now = world.now.plus_s(60 - (world.now.0 / 1000 % 60) as u64);
    for node in 0..3 {
        world.register(node, "boot1", &[]);
    }
    world.pass(120);
    assert_eq!(marks(&world), "%%.");
    world.pass(59);
    assert_eq!(marks(&world), "~~.");
    world.pass(1);
    assert_eq!(marks(&world), "~~%");
    for node in 0..3 {
        world.node(node, muster_model::command::NodeCommand::Lost);
    }
    world.pass(30);
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1]));
    assert_eq!(world.state.nodes[1].power, Some(Power::UpWanted));
    world.register(0, "boot2", &[]);
    world.pass(30);
    assert!(matches!(
        world.state.nodes[1].power,
        Some(Power::GoingUp { .. })
    ));
    world.check_replay();
}

#[test]
fn administrators_power_nodes_down_and_up() {
    let mut world = world(|_| {});
    assert_eq!(
        world.refused(1000, set("n1", "POWER_DOWN")),
        RefusalCode::AccessDenied
    );
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0]));
    world.must(0, set("n[1-2]", "POWER_DOWN"));
    assert_eq!(marks(&world), "!%.");
    assert!(!world.state.nodes[0].is_usable());
    assert_eq!(
        world.refused(0, set("n2", "POWER_UP")),
        RefusalCode::InvalidNodeState
    );
    world.finish(id, 0);
    world.tick();
    assert_eq!(marks(&world), "%%.");
    world.pass(30);
    assert_eq!(marks(&world), "~~.");
    // Both agents never went: they are there as soon as they are asked for.
    world.must(0, set("n1", "POWER_UP"));
    assert_eq!(marks(&world), ".~.");
    world.node(1, muster_model::command::NodeCommand::Lost);
    world.must(0, set("n2", "POWER_UP"));
    assert_eq!(marks(&world), ".#.");
    world.register(1, "boot2", &[]);
    assert_eq!(marks(&world), "...");
    // One that was to be powered down is let be.
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0]));
    world.must(0, set("n1", "POWER_DOWN_ASAP"));
    assert!(world.state.nodes[0].drain && marks(&world) == "!..");
    world.must(0, set("n1", "POWER_UP"));
    assert!(!world.state.nodes[0].drain && marks(&world) == "...");
    world.must(0, set("n1", "POWER_DOWN_ASAP"));
    world.finish(id, 0);
    world.tick();
    world.pass(30);
    assert!(!world.state.nodes[0].drain && marks(&world) == "~..");
    // By force, whatever runs.
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[1]));
    world.must(0, set("n2", "POWER_DOWN_FORCE"));
    assert_eq!(marks(&world), "~%.");
    assert_eq!(world.job(id).state, JobState::Pending);
    world.must(0, set("n2", "RESUME"));
    assert_eq!(marks(&world), "~..");
    world.check_replay();
}

#[test]
fn without_programs_there_is_no_power_saving() {
    let mut world = World::new();
    world.pass(100_000);
    assert_eq!(marks(&world), "...");
    assert_eq!(
        world.refused(0, set("n1", "POWER_DOWN")),
        RefusalCode::NotSupported
    );
    let mut world = self::world(|_| {});
    asleep(&mut world);
    world.configure(config(), KeptPartitions::File);
    assert_eq!(marks(&world), "...");
}

#[test]
fn nodes_of_a_cloud_begin_asleep() {
    let mut config = ClusterConfig {
        power: Some(saving()),
        ..config()
    };
    config.nodes[0].state = InitialState::Cloud;
    let mut world = World::with(ClusterConfig {
        nodes: config.nodes[1..].to_vec(),
        partitions: Vec::new(),
        ..config.clone()
    });
    world.configure(config, KeptPartitions::File);
    let cloud = world.state.node_named("n1").unwrap();
    assert_eq!(
        (cloud.power, cloud.link),
        (Some(Power::Down), NodeLink::Never)
    );
    assert!(cloud.is_usable());
    let (idx, id) = (cloud.idx.0, world.submit(spec("j")));
    assert!(world.start(id, &[idx]));
    world.register(idx, "boot1", &[]);
    assert!(runs(&world, id));
}
