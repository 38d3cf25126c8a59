//! Nodes that no file names.

use crate::world::{World, config, node_config, spec};
use muster_model::command::{KeptPartitions, NodeUpdate, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::NodeIdx;
use muster_model::job::JobState;
use muster_model::node::NodeConfig;
use muster_model::node_state::InitialState;
use muster_model::refusal::RefusalCode;

/// The usual cluster, with room for two more nodes and a partition for those that have a feature.
fn roomy() -> ClusterConfig {
    let mut config = config();
    config.max_node_count = 5;
    config.partitions[0].takes_all = true;
    config.partitions[1].takes_features = vec!["fast".to_owned()];
    config
}

/// A node that is not in the file.
pub(crate) fn dynamic(name: &str, features: &[&str]) -> NodeConfig {
    NodeConfig {
        port: 6818,
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        ..node_config(name, 4, 1000)
    }
}

fn create(nodes: &[NodeConfig]) -> UserCommand {
    UserCommand::CreateNodes {
        nodes: nodes.to_vec(),
    }
}

fn delete(nodes: &str) -> UserCommand {
    UserCommand::DeleteNodes {
        nodes: nodes.to_owned(),
    }
}

fn members(world: &World, partition: &str) -> String {
    let partition = world.state.partition(partition).expect("it is configured");
    partition.nodes.join(" ")
}

#[test]
fn nodes_join_partitions_run_jobs_and_go_when_nobody_is_there() {
    let mut world = World::with(roomy());
    world.must(0, create(&[dynamic("d1", &["fast"]), dynamic("d2", &[])]));
    assert_eq!(members(&world, "batch"), "n1 n2 n3 d1 d2");
    assert_eq!(members(&world, "short"), "n1 n2 d1");
    world.register(3, "boot", &[]);
    let node = world.state.node_named("d1").unwrap();
    let mut shown = String::new();
    node.state(false, None).write_complete(&mut shown);
    assert_eq!(shown, "IDLE+DYNAMIC_NORM");
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[3]));
    assert_eq!(
        world.refused(0, delete("d1")),
        RefusalCode::InvalidNodeState
    );
    world.finish(id, 0);
    assert_eq!(world.job(id).state, JobState::Completed);
    world.must(0, delete("d1"));
    assert!(world.state.node_named("d1").is_none());
    assert_eq!(members(&world, "batch"), "n1 n2 n3 d2");
    assert_eq!(members(&world, "short"), "n1 n2");
    world.check_replay();
}

#[test]
fn a_place_is_another_nodes_when_no_record_names_it_any_more() {
    let mut world = World::with(roomy());
    world.must(0, create(&[dynamic("d1", &[])]));
    world.register(3, "boot", &[]);
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[3]));
    world.finish(id, 0);
    world.must(0, delete("d1"));
    // The job is still in the queue's memory.
    world.must(0, create(&[dynamic("d2", &[])]));
    assert_eq!(
        world.state.node_named("d2").map(|n| n.idx),
        Some(NodeIdx(4))
    );
    world.must(0, delete("d2"));
    world.must(0, create(&[dynamic("d3", &[])]));
    assert_eq!(
        world.state.node_named("d3").map(|n| n.idx),
        Some(NodeIdx(4))
    );
    world.pass(1000);
    assert!(!world.state.jobs.contains_key(&id));
    world.must(0, create(&[dynamic("d4", &[])]));
    assert_eq!(
        world.state.node_named("d4").map(|n| n.idx),
        Some(NodeIdx(3))
    );
    // A name comes back to its place.
    world.must(0, delete("d[3-4]"));
    world.must(0, create(&[dynamic("d4", &[])]));
    assert_eq!(
        world.state.node_named("d4").map(|n| n.idx),
        Some(NodeIdx(3))
    );
    world.check_replay();
}

#[test]
fn they_outlive_a_new_configuration_until_a_file_names_them() {
    let mut world = World::with(roomy());
    world.must(0, create(&[dynamic("d1", &["fast"]), dynamic("d2", &[])]));
    let events = world.history.len();
    world.configure(roomy(), KeptPartitions::File);
    assert_eq!(world.history.len(), events, "nothing is new in it");
    let mut other = roomy();
    other.kill_wait_s += 1;
    world.configure(other.clone(), KeptPartitions::File);
    assert_eq!(members(&world, "batch"), "n1 n2 n3 d1 d2");
    assert_eq!(members(&world, "short"), "n1 n2 d1");
    assert!(muster_core::config_diff::differences(&world.state, &other).is_empty());
    // With another feature a node is in other partitions.
    let update = NodeUpdate {
        features: Some(vec!["slow".to_owned()]),
        ..NodeUpdate::default()
    };
    world.must(
        0,
        UserCommand::UpdateNodes {
            nodes: "d1".to_owned(),
            update,
        },
    );
    assert_eq!(members(&world, "short"), "n1 n2");
    other.nodes.push(node_config("d1", 8, 1000));
    world.configure(other, KeptPartitions::All);
    let named = world.state.node_named("d1").unwrap();
    assert!(!named.config.dynamic && named.config.cpus == 8);
    assert_eq!(world.refused(0, delete("d1")), RefusalCode::NotSupported);
    world.must(0, delete("d2"));
    world.check_replay();
}

#[test]
fn what_cannot_be_a_node_is_refused_and_nothing_is_made() {
    let mut world = World::with(roomy());
    let good = dynamic("d1", &[]);
    let with = |change: &dyn Fn(&mut NodeConfig)| {
        let mut node = good.clone();
        change(&mut node);
        node
    };
    let long = "x".repeat(300);
    let bad = [
        with(&|n| n.name = String::new()),
        with(&|n| n.name = "a b".to_owned()),
        with(&|n| n.name = "../x".to_owned()),
        with(&|n| n.name = "all".to_owned()),
        with(&|n| n.name.clone_from(&long)),
        with(&|n| n.name = "n1".to_owned()),
        with(&|n| n.addr = "1.2.3.4\nx".to_owned()),
        with(&|n| n.cpus = 0),
        with(&|n| n.cpus = 3),
        with(&|n| n.sockets = u32::MAX),
        with(&|n| n.port = 70_000),
        with(&|n| n.spec_cpus = muster_model::cpuset::CpuSet::first(4)),
        with(&|n| n.state = InitialState::Drain),
    ];
    for node in &bad {
        world.refused(0, create(&[dynamic("d2", &[]), node.clone()]));
        assert!(world.state.node_named("d2").is_none(), "{node:?}");
    }
    assert_eq!(
        world.refused(1000, create(std::slice::from_ref(&good))),
        RefusalCode::AccessDenied
    );
    world.refused(0, create(&[good.clone(), good.clone()]));
    world.refused(0, create(&[]));
    // As many as MaxNodeCount says.
    let three = ["d1", "d2", "d3"].map(|name| dynamic(name, &[]));
    assert_eq!(world.refused(0, create(&three)), RefusalCode::NotSupported);
    world.must(0, create(&three[..2]));
    assert_eq!(world.refused(0, delete("n1")), RefusalCode::NotSupported);
    assert_eq!(world.refused(1000, delete("d1")), RefusalCode::AccessDenied);
    assert_eq!(world.refused(0, delete("d9")), RefusalCode::InvalidNode);
    // One that was announced comes by the same name.
    world.must(0, delete("d[1-2]"));
    let announced = with(&|n| n.state = InitialState::Future);
    world.must(0, create(&[announced]));
    world.must(0, create(&[good]));
    world.check_replay();
}
