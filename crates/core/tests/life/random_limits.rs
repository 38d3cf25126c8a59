//! Random commands about jobs that wait in several partitions with limits of their own: what counts for each is what is there.

use crate::accounts::{edit, users};
use crate::limit_use::limited;
use crate::random::{Op, act, ops, pick};
use crate::world::{SCRIPT, World, allocation, array, spec, target};
use muster_model::account_limits::Scope;
use muster_model::command::{
    AccountsAsk, JobSelection, JobUpdate, KeptPartitions, PlannedStart, TermsAsk, UserCommand,
};
use muster_model::job::{ArrayRole, Job, Phase};
use muster_model::spec::JobSpec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Orders in which a job may name partitions.
const PARTITIONS: [&[&str]; 7] = [
    &[],
    &["batch"],
    &["short"],
    &["batch", "short"],
    &["short", "batch"],
    &["wide", "short", "batch"],
    &["batch", "wide"],
];

#[derive(Clone, Debug)]
enum LimitOp {
    Other(Op),
    Submit { names: u8, kind: u8, qos: bool },
    Move { pick: u32, names: u8, field: u8 },
    Start { pick: u32, partition: u8 },
    Edit { kind: u8 },
}

fn limit_ops() -> impl Strategy<Value = LimitOp> {
    prop_oneof![
        4 => ops().prop_map(LimitOp::Other),
        4 => (0u8..7, 0u8..5, any::<bool>())
            .prop_map(|(names, kind, qos)| LimitOp::Submit { names, kind, qos }),
        2 => (any::<u32>(), 0u8..7, 0u8..4)
            .prop_map(|(pick, names, field)| LimitOp::Move { pick, names, field }),
        2 => (any::<u32>(), 0u8..7).prop_map(|(pick, partition)| LimitOp::Start { pick, partition }),
        1 => (0u8..12).prop_map(|kind| LimitOp::Edit { kind }),
    ]
}

fn named(names: u8) -> Vec<String> {
    let names = PARTITIONS[names as usize].iter();
    names.map(|name| (*name).to_owned()).collect()
}

fn submit(world: &mut World, names: u8, kind: u8, qos: bool) {
    let spec = JobSpec {
        partitions: named(names),
        qos: qos.then(|| "few".to_owned()),
        account: kind.is_multiple_of(2).then(|| "narrow".to_owned()),
        array: (kind == 1).then(|| array(0, 2, None)).flatten(),
        ..spec("limited")
    };
    if kind > 2 {
        let other = JobSpec {
            interactive: false,
            partitions: named((names + kind) % 7),
            ..allocation("limited")
        };
        let command = UserCommand::SubmitHet {
            specs: vec![spec, other],
            blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
            test_only: false,
        };
        world.user(1000, command);
    } else {
        let _ = world.try_submit(1000, spec);
    }
}

fn change(world: &mut World, which: u32, names: u8, field: u8) {
    let Some(id) = pick(world, which).map(|job| job.id) else {
        return;
    };
    let mut update = JobUpdate::default();
    match field {
        0 | 1 => update.partitions = Some(named(names)),
        2 => update.account = Some(["wide", "narrow"][names as usize % 2].to_owned()),
        _ => update.qos = Some(["normal", "few"][names as usize % 2].to_owned()),
    }
    let update = Box::new(update);
    let target = target(id);
    world.user(0, UserCommand::UpdateJob { target, update });
}

fn edit_something(world: &mut World, kind: u8) {
    let partition = |pairs: &str| UserCommand::UpdatePartition {
        name: if kind.is_multiple_of(2) {
            "short"
        } else {
            "wide"
        }
        .to_owned(),
        pairs: vec![("QOS".to_owned(), pairs.to_owned())],
        read: Vec::new(),
    };
    let command = match kind {
        0 | 1 => partition("few"),
        2 | 3 => partition("of_short"),
        4 | 5 => partition(""),
        6 | 7 => {
            let mut added = users("narrow", TermsAsk::default());
            if let AccountsAsk::AddUsers { partitions, .. } = &mut added {
                partitions.extend(named(kind - 3));
            }
            edit(&["u1000"], added)
        }
        8 => {
            let partitions = vec!["short".to_owned()];
            let accounts = vec!["narrow".to_owned()];
            edit(
                &["u1000"],
                AccountsAsk::DeleteUsers {
                    accounts,
                    partitions,
                },
            )
        }
        9 => edit(&["of_short"], AccountsAsk::DeleteQos),
        10 => edit(&["few"], AccountsAsk::DeleteQos),
        _ => {
            let mut config = (**world.state.config.as_ref().expect("configured")).clone();
            config.partitions[0].qos = match config.partitions[0].qos {
                None => Some("of_short".to_owned()),
                Some(_) => None,
            };
            return world.configure(config, KeptPartitions::File);
        }
    };
    world.user(0, command);
}

fn act_limited(world: &mut World, op: &LimitOp) {
    match op {
        // Its configurations are without limits.
        LimitOp::Other(Op::Reconfigure { .. }) => {}
        LimitOp::Other(op) => act(world, op),
        LimitOp::Submit { names, kind, qos } => submit(world, *names, *kind, *qos),
        LimitOp::Move { pick, names, field } => change(world, *pick, *names, *field),
        LimitOp::Start {
            pick: which,
            partition,
        } => {
            let Some(job) = pick(world, *which).filter(|job| job.is_startable()) else {
                return;
            };
            let mut alloc = world.alloc(job.id, &[*partition as u32 % 2], 1);
            let all = &job.spec.partitions;
            if let Some(name) = all.get(*partition as usize % all.len().max(1)) {
                alloc.partition.clone_from(name);
            }
            let starts = vec![PlannedStart { job: job.id, alloc }];
            world.plan(starts);
        }
        LimitOp::Edit { kind } => edit_something(world, *kind),
    }
    check_counts(world);
}

/// Partitions in which a job counts as submitted, and the number of its tasks.
fn counts_in(job: &Job) -> (BTreeSet<&str>, u32) {
    let tasks = match &job.array {
        ArrayRole::Pending { indices } => u32::try_from(indices.len()).expect("few"),
        ArrayRole::None | ArrayRole::Task { .. } => 1,
    };
    let all = job.spec.partitions.iter().map(String::as_str);
    match job.phase() {
        Phase::Pending | Phase::Requeueing => {
            (all.chain([job.partition.as_str()]).collect(), tasks)
        }
        Phase::Running | Phase::Suspended => (BTreeSet::from([job.partition.as_str()]), tasks),
        Phase::Completing | Phase::Ended | Phase::Gone => (BTreeSet::new(), 0),
    }
}

/// Compares the use of QOS with what the jobs are.
fn check_counts(world: &World) {
    let state = &world.state;
    for qos in ["normal", "few", "of_short"] {
        let of_qos = |job: &&Job| {
            let own = job.spec.qos.as_deref().unwrap_or("normal");
            let (partitions, _) = counts_in(job);
            let of_partition = |name: &&str| {
                let partition = state.partition(name);
                partition.and_then(|p| p.qos.as_deref()) == Some(qos)
            };
            !partitions.is_empty() && own == qos || partitions.iter().any(of_partition)
        };
        let jobs = state.jobs.values().filter(of_qos);
        let count: u32 = jobs.map(|job| counts_in(job).1).sum();
        let used = state.limit_use.get(&Scope::Qos(qos.to_owned()));
        assert_eq!(used.map_or(0, |used| used.submitted), count, "{qos}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn jobs_of_several_partitions_count_where_they_are(ops in prop::collection::vec(limit_ops(), 1..120)) {
        let mut world = limited("maxsubmit=9", "maxsubmitpu=6");
        let mut config = (**world.state.config.as_ref().expect("configured")).clone();
        config.partitions.push(crate::world::partition("wide", &["n1", "n2", "n3"], false));
        world.configure(config, KeptPartitions::File);
        for op in &ops {
            act_limited(&mut world, op);
        }
        world.check_replay();
        // Nothing counts once all are over.
        let all: Vec<_> = world.state.jobs.keys().copied().collect();
        for id in all {
            world.user(0, UserCommand::Cancel {
                selection: JobSelection {
                    targets: vec![target(id)],
                    ..JobSelection::default()
                },
            });
        }
        let left = world.state.limit_use.values().map(|used| used.submitted);
        prop_assert_eq!(left.sum::<u32>(), 0);
    }
}
