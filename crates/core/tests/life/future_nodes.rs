//! Nodes in state FUTURE, and hosts that take them.

use crate::world::{World, config, node_config, spec};
use muster_model::command::{KeptPartitions, NodeCommand, NodeUpdate, Reply, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::job::JobState;
use muster_model::node::{NodeConfig, NodeLink};
use muster_model::node_host::{FutureHost, NodeHost};
use muster_model::node_state::InitialState;
use muster_model::refusal::RefusalCode;

/// The usual cluster, and two nodes that are not there yet: places 3 and 4.
fn with_future_nodes() -> ClusterConfig {
    let mut config = config();
    for (name, cpus) in [("f1", 4), ("f2", 8)] {
        let node = NodeConfig {
            addr: name.to_owned(),
            hostname: name.to_owned(),
            port: 6818,
            state: InitialState::Future,
            features: vec!["new".to_owned()],
            ..node_config(name, cpus, 1000)
        };
        config.nodes.push(node);
        config.partitions[0].nodes.push(name.to_owned());
    }
    config
}

/// The usual cluster: nodes have yet to register.
fn world() -> World {
    let mut world = World::with(with_future_nodes());
    for idx in [3, 4] {
        world.node(idx, NodeCommand::Lost);
    }
    world
}

fn set(nodes: &str, state: &str) -> UserCommand {
    UserCommand::UpdateNodes {
        nodes: nodes.to_owned(),
        update: NodeUpdate {
            state: Some(state.to_owned()),
            reason: Some("test".to_owned()),
            ..NodeUpdate::default()
        },
    }
}

/// A machine like node `idx`.
fn host(world: &World, idx: usize, hostname: &str, addr: &str) -> FutureHost {
    let config = &world.state.nodes[idx].config;
    FutureHost {
        host: NodeHost {
            hostname: hostname.to_owned(),
            addr: addr.to_owned(),
            port: 6818,
        },
        sockets: config.sockets,
        cores_per_socket: config.cores_per_socket,
        threads_per_core: config.threads_per_core,
        feature: None,
    }
}

fn take(world: &mut World, host: FutureHost) -> Result<NodeConfig, RefusalCode> {
    match world.user(0, UserCommand::TakeNode(Box::new(host))) {
        Reply::NodeTaken(node) => Ok(*node),
        Reply::Refused(refusal) => Err(refusal.code),
        other => panic!("{other:?}"),
    }
}

fn state(world: &World, name: &str) -> String {
    let mut shown = String::new();
    let node = world.state.node_named(name).expect("it has one");
    node.state(false, None).write_complete(&mut shown);
    shown
}

#[test]
fn a_host_takes_the_first_that_fits_and_keeps_it() {
    let mut world = world();
    assert_eq!(state(&world, "f1"), "FUTURE");
    assert_eq!(
        world.refused(
            1000,
            UserCommand::TakeNode(Box::new(host(&world, 3, "h1", "10.0.0.9")))
        ),
        RefusalCode::AccessDenied
    );
    let mut wrong = host(&world, 3, "h1", "10.0.0.9");
    wrong.feature = Some("old".to_owned());
    assert_eq!(take(&mut world, wrong), Err(RefusalCode::InvalidNode));
    let mut wrong = host(&world, 3, "h1", "10.0.0.9");
    wrong.sockets += 1;
    assert_eq!(take(&mut world, wrong), Err(RefusalCode::InvalidNode));
    for (hostname, addr, port) in [("h\n", "a", 1), ("h", "a b", 1), ("h", "a", 70_000)] {
        let mut wrong = host(&world, 3, hostname, addr);
        wrong.host.port = port;
        assert_eq!(take(&mut world, wrong), Err(RefusalCode::InvalidValue));
    }
    let mut first = host(&world, 3, "h1", "10.0.0.9");
    first.feature = Some("new".to_owned());
    let taken = take(&mut world, first.clone()).unwrap();
    assert_eq!(
        (taken.name.as_str(), taken.addr.as_str()),
        ("f1", "10.0.0.9")
    );
    world.register(3, "boot", &[]);
    assert_eq!(state(&world, "f1"), "IDLE+DYNAMIC_FUTURE");
    // The other is another machine.
    let like_first = host(&world, 3, "h2", "10.0.0.10");
    assert_eq!(take(&mut world, like_first), Err(RefusalCode::InvalidNode));
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[3]));
    // Its slurmd is started again, and what an administrator has set stays.
    world.must(0, set("f1", "drain"));
    assert_eq!(take(&mut world, first).unwrap().name, "f1");
    assert!(world.state.node_named("f1").unwrap().drain);
    // No other host takes its place while it is there.
    let moved = host(&world, 3, "h1", "10.0.0.66");
    assert_eq!(take(&mut world, moved.clone()), Err(RefusalCode::Busy));
    world.node(3, NodeCommand::Lost);
    assert_eq!(take(&mut world, moved).unwrap().addr, "10.0.0.66");
    world.check_replay();
}

#[test]
fn a_configuration_leaves_a_taken_node_alone_until_its_line_changes() {
    let mut world = world();
    let asked = host(&world, 3, "h1", "10.0.0.9");
    take(&mut world, asked).unwrap();
    world.register(3, "boot", &[]);
    let mut other = with_future_nodes();
    other.kill_wait_s += 1;
    assert!(muster_core::config_diff::differences(&world.state, &other).is_empty());
    world.configure(other.clone(), KeptPartitions::File);
    assert_eq!(state(&world, "f1"), "IDLE+DYNAMIC_FUTURE");
    assert_eq!(state(&world, "f2"), "FUTURE");
    let known = world.state.node_named("f1").unwrap();
    assert_eq!(known.config.addr, "10.0.0.9");
    // Lines say that both are there.
    for node in &mut other.nodes {
        node.state = InitialState::Unknown;
    }
    world.configure(other.clone(), KeptPartitions::File);
    assert_eq!(state(&world, "f1"), "IDLE");
    assert_eq!(world.state.node_named("f1").unwrap().config.addr, "f1");
    assert_eq!(state(&world, "f2"), "IDLE+NOT_RESPONDING");
    // And that they are not, which holds for those without jobs.
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[3]));
    world.configure(with_future_nodes(), KeptPartitions::File);
    assert_ne!(state(&world, "f1"), "FUTURE");
    assert_eq!(state(&world, "f2"), "FUTURE");
    world.check_replay();
}

#[test]
fn administrators_make_nodes_available_and_give_them_back() {
    let mut world = world();
    for wrong in ["drain", "fail", "undrain"] {
        assert_eq!(
            world.refused(0, set("f1", wrong)),
            RefusalCode::InvalidNodeState
        );
    }
    world.must(0, set("f2", "resume"));
    world.register(4, "boot", &[]);
    assert_eq!(state(&world, "f2"), "IDLE");
    world.must(0, set("f2", "future"));
    assert_eq!(state(&world, "f2"), "FUTURE");
    // Its agent is connected, so that no other host takes it, and it comes into service by nothing but a command.
    let like = host(&world, 4, "h2", "10.0.0.10");
    assert_eq!(take(&mut world, like), Err(RefusalCode::InvalidNode));
    world.register(4, "boot", &[]);
    assert_eq!(state(&world, "f2"), "FUTURE");
    world.must(0, set("f2", "idle"));
    assert_eq!(state(&world, "f2"), "IDLE");
    // One that a host has taken is free again.
    let asked = host(&world, 3, "h1", "10.0.0.9");
    take(&mut world, asked).unwrap();
    world.register(3, "boot", &[]);
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[3]));
    assert_eq!(
        world.refused(0, set("n1,f1", "future")),
        RefusalCode::InvalidNodeState
    );
    assert_eq!(state(&world, "n1"), "IDLE");
    world.finish(id, 0);
    assert_eq!(world.job(id).state, JobState::Completed);
    assert_eq!(
        world.refused(1000, set("f1", "future")),
        RefusalCode::AccessDenied
    );
    world.must(0, set("f1", "future"));
    let known = world.state.node_named("f1").unwrap();
    assert_eq!(
        (known.config.addr.as_str(), known.config.hostname.as_str()),
        ("f1", "f1")
    );
    assert!(matches!(known.link, NodeLink::Lost(_)) && known.reason.is_none());
    // Nobody misses it.
    world.pass(100_000);
    assert_eq!(state(&world, "f1"), "FUTURE");
    let next = host(&world, 3, "h3", "10.0.0.11");
    assert_eq!(take(&mut world, next).unwrap().name, "f1");
    world.must(0, set("f1", "down"));
    assert_eq!(state(&world, "f1"), "DOWN+NOT_RESPONDING+DYNAMIC_FUTURE");
    world.check_replay();
}
