//! Partitions that administrators make, change and remove, and what a new configuration does to them.

use crate::world::{World, config, partition, spec};
use muster_model::command::{KeptPartitions, UserCommand};
use muster_model::config::PartitionState;
use muster_model::job::JobState;
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;

#[test]
fn partitions_are_changed_by_administrators() {
    let mut world = World::new();
    let update = |pairs: &[(&str, &str)]| UserCommand::UpdatePartition {
        name: "batch".into(),
        pairs: pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        read: Vec::new(),
    };
    assert_eq!(
        world.refused(1000, update(&[("State", "DOWN")])),
        RefusalCode::AccessDenied
    );
    assert_eq!(
        world.refused(0, update(&[("State", "SIDEWAYS")])),
        RefusalCode::InvalidValue
    );
    assert_eq!(
        world.refused(0, update(&[("Colour", "red")])),
        RefusalCode::NotSupported
    );
    let id = world.submit(spec("j"));
    world.must(
        0,
        update(&[
            ("State", "DOWN"),
            ("MaxTime", "1-0"),
            ("nodes", "n[1-2]"),
            ("CpuBind", "ldom"),
        ]),
    );
    assert_eq!(
        world.state.partition("batch").and_then(|p| p.cpu_bind),
        Some(muster_model::binding::BindDefault::Ldoms)
    );
    assert!(!world.start(id, &[0]), "the partition is down");
    world.must(0, update(&[("State", "UP")]));
    assert!(!world.start(id, &[2]), "n3 is not in it any more");
    assert!(world.start(id, &[1]));
    assert_eq!(
        world.state.partition("batch").map(|p| p.max_time),
        Some(TimeLimit::Minutes(1440))
    );
    world.must(
        0,
        UserCommand::UpdatePartition {
            name: "short".into(),
            pairs: vec![("Default".into(), "YES".into())],
            read: Vec::new(),
        },
    );
    let next = world.submit(spec("j"));
    assert_eq!(world.job(next).partition, "short");
    world.check_replay();
}

#[test]
fn partitions_are_made_and_removed() {
    let mut world = World::new();
    let create = |name: &str, pairs: &[(&str, &str)]| UserCommand::CreatePartition {
        name: name.into(),
        pairs: pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
    };
    let delete = |name: &str| UserCommand::DeletePartition { name: name.into() };
    assert_eq!(
        world.refused(1000, create("mine", &[])),
        RefusalCode::AccessDenied
    );
    for name in ["batch", "", "a,b", "a b", "Default"] {
        let code = world.refused(0, create(name, &[]));
        assert_eq!(code, RefusalCode::InvalidPartition, "{name:?}");
    }
    assert_eq!(
        world.refused(0, create("mine", &[("Nodes", "n[1-9]")])),
        RefusalCode::InvalidNode
    );
    assert!(world.state.partition("mine").is_none(), "all or nothing");
    world.must(
        0,
        create(
            "mine",
            &[("Nodes", "ALL"), ("MaxTime", "10"), ("Default", "YES")],
        ),
    );
    let default: Vec<&str> = world
        .state
        .partitions
        .iter()
        .filter(|p| p.default)
        .map(|p| p.name.as_str())
        .collect();
    assert_eq!(default, ["mine"]);
    let id = world.submit(spec("j"));
    assert_eq!(world.job(id).partition, "mine");
    assert_eq!(
        world.refused(0, delete("mine")),
        RefusalCode::PartitionInUse
    );
    assert!(world.start(id, &[2]));
    assert_eq!(
        world.refused(0, delete("mine")),
        RefusalCode::PartitionInUse
    );
    world.finish(id, 0);
    let either = world.submit(JobSpec {
        partitions: vec!["batch".into(), "mine".into()],
        ..spec("j")
    });
    assert_eq!(
        world.refused(0, delete("mine")),
        RefusalCode::PartitionInUse
    );
    assert!(world.start(either, &[0]));
    assert_eq!(world.job(either).partition, "batch");
    assert_eq!(
        world.refused(1000, delete("mine")),
        RefusalCode::AccessDenied
    );
    world.must(0, delete("mine"));
    assert_eq!(
        world.refused(0, delete("mine")),
        RefusalCode::InvalidPartition
    );
    world.check_replay();
}

/// A range was one host whose name nothing has: no job came from any.
#[test]
fn hosts_that_jobs_may_come_from_are_set_as_ranges() {
    let mut world = World::new();
    let mut hosts = |value: &str| {
        world.must(
            0,
            UserCommand::UpdatePartition {
                name: "batch".into(),
                pairs: vec![("AllocNodes".into(), value.into())],
                read: Vec::new(),
            },
        );
        let partition = world.state.partition("batch").unwrap();
        partition.alloc_nodes.join(" ")
    };
    assert_eq!(hosts("login[1-2],gate"), "login1 login2 gate");
    assert_eq!(hosts("all"), "");
    let wrong = UserCommand::UpdatePartition {
        name: "batch".into(),
        pairs: vec![("AllocNodes".into(), "login[1-".into())],
        read: Vec::new(),
    };
    assert_eq!(world.refused(0, wrong), RefusalCode::InvalidValue);
}

#[test]
fn billing_weights_are_set_and_taken_away() {
    let mut world = World::new();
    let weights = |value: &str| UserCommand::UpdatePartition {
        name: "batch".into(),
        pairs: vec![("TRESBillingWeights".into(), value.into())],
        read: Vec::new(),
    };
    let now = |world: &World| {
        let partition = world.state.partition("batch").unwrap();
        partition.billing_weights.clone().unwrap_or_default()
    };
    let text = "cPu=1,mem=-0.5G,node=.3,energy=-10";
    world.must(0, weights(text));
    assert_eq!(now(&world), text);
    for wrong in ["cpu=abc", "cpu", "=1", "cpu=inf", "cpu=1,,mem=1", "mem=1GG"] {
        let refused = world.refused(0, weights(wrong));
        assert_eq!(refused, RefusalCode::InvalidValue, "{wrong}");
    }
    assert_eq!(now(&world), text);
    world.must(0, weights(""));
    assert_eq!(now(&world), "");
    world.check_replay();
}

/// Two administrators who add a node each at the same time have both added one, or one of them is refused.
#[test]
fn a_change_of_what_has_changed_meanwhile_is_refused() {
    let mut world = World::new();
    let update = |pair: (&str, &str), read: (&str, &str)| UserCommand::UpdatePartition {
        name: "batch".into(),
        pairs: vec![(pair.0.into(), pair.1.into())],
        read: vec![(read.0.into(), read.1.into())],
    };
    world.must(0, update(("Nodes", "n1"), ("Nodes", "n[2,3,1]")));
    world.must(0, update(("Nodes", "n[1-2]"), ("Nodes", "n1")));
    for read in ["n1", "nosuch", ""] {
        assert_eq!(
            world.refused(0, update(("Nodes", "n[1,3]"), ("Nodes", read))),
            RefusalCode::Busy,
            "{read}"
        );
    }
    let nodes = &world.state.partition("batch").unwrap().nodes;
    assert_eq!(nodes, &["n1", "n2"]);
    for (key, read, value) in [
        ("AllowGroups", "", "a,b"),
        ("AllowGroups", "a,b", "b"),
        ("DenyAccounts", "", "x"),
        ("MaxCPUsPerNode", "UNLIMITED", "3"),
        ("MaxCPUsPerNode", "3", "UNLIMITED"),
        ("Nodes", "n[1-2]", ""),
        ("Nodes", "", "ALL"),
        ("Nodes", "n[1-3]", "n1"),
        ("AllocNodes", "ALL", "login[1-3]"),
        ("AllocNodes", "login[1-3]", "login[2-4]"),
        ("AllocNodes", "login4,login[2-3]", "ALL"),
    ] {
        world.must(0, update((key, value), (key, read)));
        assert_eq!(
            world.refused(0, update((key, value), (key, "n3"))),
            RefusalCode::Busy,
            "{key}"
        );
    }
}

#[test]
fn a_new_configuration_and_partitions_of_run_time() {
    let mut world = World::new();
    let create = |name: &str| UserCommand::CreatePartition {
        name: name.into(),
        pairs: vec![("Nodes".into(), "n[1,3]".into())],
    };
    let down = UserCommand::UpdatePartition {
        name: "batch".into(),
        pairs: vec![
            ("State".into(), "DOWN".into()),
            ("MaxNodes".into(), "1".into()),
        ],
        read: Vec::new(),
    };
    let short = UserCommand::DeletePartition {
        name: "short".into(),
    };
    let names = |world: &World| -> Vec<String> {
        let partitions = world.state.partitions.iter();
        partitions.map(|p| p.name.clone()).collect()
    };
    for command in [create("made"), down.clone(), short.clone()] {
        world.must(0, command);
    }
    // The controller starts again with the same file.
    world.configure(config(), KeptPartitions::All);
    assert!(world.events.is_empty(), "nothing is new");
    // And with a file in which other lines changed.
    let mut next = config();
    next.nodes.remove(0);
    next.partitions[0].nodes.remove(0);
    next.partitions.push(partition("new", &["n2"], false));
    world.configure(next.clone(), KeptPartitions::All);
    assert_eq!(names(&world), ["batch", "new", "made"]);
    let batch = world.state.partition("batch").expect("it is in the file");
    assert_eq!((batch.state, batch.max_nodes), (PartitionState::Up, None));
    let made = world.state.partition("made").expect("it was kept");
    assert_eq!((made.nodes.len(), made.nodes_text.as_str()), (1, "n3"));
    world.must(0, down);
    // KeepPartState.
    world.configure(next.clone(), KeptPartitions::States);
    assert_eq!(names(&world), ["batch", "short", "new"]);
    let batch = world.state.partition("batch").expect("it is in the file");
    assert_eq!((batch.state, batch.max_nodes), (PartitionState::Down, None));
    // The file alone; a job in a partition that goes waits and tells why.
    world.must(
        0,
        UserCommand::CreatePartition {
            name: "made".into(),
            pairs: vec![("Nodes".into(), "n3".into())],
        },
    );
    let id = world.submit(JobSpec {
        partitions: vec!["made".into()],
        ..spec("j")
    });
    world.configure(next, KeptPartitions::File);
    assert_eq!(names(&world), ["batch", "short", "new"]);
    assert_eq!(
        world.state.partition("batch").map(|p| p.state),
        Some(PartitionState::Up)
    );
    assert!(!world.start(id, &[2]), "there is no such partition");
    assert_eq!(world.job(id).state, JobState::Pending);
    world.check_replay();
}

/// A partition that scontrol made had a QOS that did not exist, whose limits nobody had.
#[test]
fn the_qos_of_a_partition_exists() {
    use crate::accounts::edit;
    use muster_model::command::{AccountsAsk, QosAsk};
    let mut world = World::new();
    let make = |name: &str, qos: &str| UserCommand::CreatePartition {
        name: name.into(),
        pairs: vec![("QOS".to_owned(), qos.to_owned())],
    };
    world.must(0, edit(&["high"], AccountsAsk::AddQos(QosAsk::default())));
    assert_eq!(
        world.refused(0, make("a", "nosuch")),
        RefusalCode::InvalidQos
    );
    world.must(0, make("a", "high"));
    world.must(0, make("b", "normal"));
    world.must(0, make("c", ""));
    let made = |name: &str| world.state.partition(name).unwrap();
    assert_eq!(made("a").qos.as_deref(), Some("high"));
    assert_eq!((made("c").qos.as_deref(), made("c").min_nodes), (None, 1));
}

fn change_partition(name: &str, key: &str, value: &str) -> UserCommand {
    UserCommand::UpdatePartition {
        name: name.into(),
        pairs: vec![(key.into(), value.into())],
        read: Vec::new(),
    }
}

/// `Alternate` was refused, and ignored in slurm.conf.
#[test]
fn a_drained_partition_gives_new_jobs_to_its_alternate() {
    let mut world = World::new();
    let change = change_partition;
    for wrong in ["nowhere", "batch"] {
        let refused = world.refused(0, change("batch", "Alternate", wrong));
        assert_eq!(refused, RefusalCode::InvalidPartition, "{wrong}");
    }
    world.must(0, change("batch", "Alternate", "short"));
    let before = world.submit(spec("j"));
    assert_eq!(world.job(before).partition, "batch");
    for state in ["DRAIN", "INACTIVE"] {
        world.must(0, change("batch", "State", state));
        for named in [vec![], vec!["batch"], vec!["batch", "short"]] {
            let job = world.submit(JobSpec {
                partitions: named.iter().map(|name| (*name).to_owned()).collect(),
                ..spec("j")
            });
            assert_eq!(world.job(job).spec.partitions, ["short"], "{named:?}");
        }
    }
    world.must(0, change("batch", "State", "DOWN"));
    let waits = world.submit(spec("j"));
    assert_eq!(world.job(waits).partition, "batch", "it takes jobs");
    // A ring of which none takes jobs.
    world.must(0, change("short", "Alternate", "batch"));
    for name in ["batch", "short"] {
        world.must(0, change(name, "State", "DRAIN"));
    }
    assert_eq!(world.refusal(spec("j")), RefusalCode::PartitionNotAvailable);
    for (name, none) in [("batch", ""), ("short", "none")] {
        world.must(0, change(name, "Alternate", none));
        assert_eq!(world.state.partition(name).unwrap().alternate, None);
    }
    world.check_replay();
}

#[test]
fn the_way_of_preemption_in_a_partition_is_changed() {
    let mut world = World::new();
    let change = |value| change_partition("batch", "PreemptMode", value);
    for wrong in ["sideways", "within", "cancel,within", "cluster"] {
        let refused = world.refused(0, change(wrong));
        assert_eq!(refused, RefusalCode::InvalidValue, "{wrong}");
    }
    for (given, kept) in [
        ("requeue", Some("REQUEUE")),
        ("suspend,gang", Some("SUSPEND,GANG")),
        ("off", Some("OFF")),
        ("", None),
    ] {
        world.must(0, change(given));
        let mode = world.state.partition("batch").unwrap().preempt_mode.clone();
        assert_eq!(mode.as_deref(), kept);
    }
}
