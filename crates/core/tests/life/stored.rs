//! What commands write and what the queue keeps of a user: both have bounds, however cleverly jobs are made.

use crate::world::{SCRIPT, World, array, config, spec, step, target, user};
use minicbor::bytes::ByteVec;
use muster_core::event::{Event, JobChange};
use muster_core::state::State;
use muster_model::command::{
    Command, JobSelection, JobTarget, JobUpdate, NodeCommand, Reply, UserCommand,
};
use muster_model::config::ClusterConfig;
use muster_model::ids::StepNo;
use muster_model::ids::{BlobId, JobId};
use muster_model::index_set::IndexSet;
use muster_model::job::{Step, StepEnd};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;

fn hold_tasks(base: JobId, last: u32) -> UserCommand {
    let mut tasks = IndexSet::default();
    tasks.insert_range(0, last);
    let target = JobTarget {
        tasks: Some(tasks),
        ..target(base)
    };
    UserCommand::Hold { target, user: true }
}

fn comment(target: JobTarget, text: &str) -> UserCommand {
    let update = JobUpdate {
        comment: Some(text.to_owned()),
        ..JobUpdate::default()
    };
    UserCommand::UpdateJob {
        target,
        update: Box::new(update),
    }
}

/// An array of which all tasks but the last have records of their own.
fn split_array(world: &mut World, tasks: u32, spec: JobSpec) -> JobId {
    let base = world.submit(JobSpec {
        array: array(0, tasks - 1, None),
        ..spec
    });
    world.must(1000, hold_tasks(base, tasks - 2));
    assert_eq!(world.state.jobs.len(), tasks as usize);
    base
}

fn bytes_of(events: &[Event]) -> usize {
    let lengths = events
        .iter()
        .map(|e| minicbor::to_vec(e).expect("an event is encoded").len());
    lengths.sum()
}

#[test]
fn an_update_of_an_array_writes_its_specification_once() {
    let mut world = World::new();
    let base = split_array(&mut world, 50, spec("a"));
    let text = "x".repeat(60_000);
    world.must(1000, comment(target(base), &text));
    let written = bytes_of(&world.events);
    assert!(written < 70_000, "{written} bytes are written");
    let is_same = |event: &&Event| {
        matches!(
            event,
            Event::JobChanged {
                change: JobChange::SpecOf(_),
                ..
            }
        )
    };
    assert_eq!(world.events.iter().filter(is_same).count(), 49);
    for job in world.state.jobs.values() {
        assert_eq!(job.spec.comment.as_ref(), Some(&text));
    }
    world.check_replay();
}

/// Tasks that were changed one by one are equal all the same, and one that differs gets what is its own.
#[test]
fn equal_tasks_share_a_change_and_others_do_not() {
    let mut world = World::new();
    let base = split_array(&mut world, 4, spec("a"));
    for index in 0..3 {
        let name = if index == 1 { "other" } else { "same" };
        let update = JobUpdate {
            name: Some(name.to_owned()),
            ..JobUpdate::default()
        };
        world.must(
            1000,
            UserCommand::UpdateJob {
                target: crate::world::task(base, index),
                update: Box::new(update),
            },
        );
    }
    world.must(1000, comment(target(base), "c"));
    let mut names: Vec<&str> = Vec::new();
    for job in world.state.jobs.values() {
        assert_eq!(job.spec.comment.as_deref(), Some("c"));
        names.push(&job.spec.name);
    }
    names.sort_unstable();
    assert_eq!(names, ["a", "other", "same", "same"]);
    world.check_replay();
}

/// Each of these tasks has a specification that is no other's.
#[test]
fn a_command_that_would_write_too_much_is_refused() {
    let mut world = World::with(config());
    world.checked = false;
    let text = "x".repeat(60_000);
    let long = |name: &str| JobSpec {
        command: text.clone(),
        work_dir: format!("/{}", &text[1..]),
        submit_line: text.clone(),
        ..spec(name)
    };
    let base = split_array(&mut world, 400, long("a"));
    for index in 0..399 {
        let update = JobUpdate {
            name: Some(format!("t{index}")),
            ..JobUpdate::default()
        };
        world.must(
            1000,
            UserCommand::UpdateJob {
                target: crate::world::task(base, index),
                update: Box::new(update),
            },
        );
    }
    let before = world.state.digest();
    let refused = world.refused(1000, comment(target(base), "c"));
    assert_eq!(refused, RefusalCode::TooLong);
    assert_eq!(world.state.digest(), before);
    world.state.check_invariants().unwrap();
}

fn submit(
    world: &mut World,
    uid: u32,
    spec: JobSpec,
    blobs: Vec<(BlobId, ByteVec)>,
) -> Result<JobId, Refusal> {
    let command = UserCommand::Submit {
        spec: Box::new(spec),
        blobs,
        test_only: false,
    };
    match world.run(Command::User(user(uid), command)).reply {
        Some(Reply::Submitted { id, .. }) => Ok(id),
        Some(Reply::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn script() -> Vec<(BlobId, ByteVec)> {
    vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())]
}

#[test]
fn nobody_stores_more_than_a_share() {
    let mut world = World::new();
    world.checked = false;
    // The texts are there once; each task may get its own, and counts as if it had.
    let text = "x".repeat(60_000);
    let shown = [
        "extra",
        "network",
        "power",
        "prefer",
        "profile",
        "tres-bind",
    ];
    let long = JobSpec {
        submit_line: text.clone(),
        comment: Some(text.clone()),
        shown: shown.map(|key| (key.to_owned(), text.clone())).to_vec(),
        ..spec("a")
    };
    let base = split_array(&mut world, 1100, long.clone());
    assert!(world.state.stored_bytes.of_user(1000) > 480 << 20);
    let refused = loop {
        match submit(&mut world, 1000, long.clone(), script()) {
            Ok(_) => {}
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refused.code, RefusalCode::StorageFull);
    assert!(
        refused.detail.contains("512 MiB for each user"),
        "{refused}"
    );
    // What is there cannot grow either, and nobody else is concerned.
    let Reply::Done { refused, .. } = world.user(1000, comment(target(base), &"y".repeat(65_000)))
    else {
        panic!("some of the tasks may still be changed");
    };
    assert!(refused.len() > 900, "{}", refused.len());
    let is_full = |(_, refusal): &(String, Refusal)| refusal.code == RefusalCode::StorageFull;
    assert!(refused.iter().all(is_full));
    submit(&mut world, 1001, long.clone(), script()).unwrap();
    submit(&mut world, 0, long.clone(), script()).unwrap();
    world.state.check_invariants().unwrap();
    // With the jobs goes what they took.
    let selection = JobSelection {
        targets: vec![target(base)],
        ..JobSelection::default()
    };
    world.must(1000, UserCommand::Cancel { selection });
    world.pass(301);
    submit(&mut world, 1000, long, script()).unwrap();
    world.state.check_invariants().unwrap();
}

/// A script of 4 KiB and an environment of 8 KiB, another for each job: as many as MaxJobCount has room for take half of it.
#[test]
fn ordinary_jobs_fit() {
    let most = ClusterConfig {
        max_job_count: 100_000,
        ..config()
    };
    for (config, quota) in [(config(), 512 << 20), (most, 100_000 * (16 << 10))] {
        let jobs = u64::from(config.max_job_count);
        let mut world = World::with(config);
        world.checked = false;
        for number in 0..100u8 {
            let id = BlobId([number; 32]);
            let text = format!("#!/bin/sh\n# {number}{}", "#".repeat(12 << 10));
            let job = JobSpec {
                script: Some(id),
                submit_line: "sbatch --nodes=2 --time=1:00:00 job.sh".to_owned(),
                ..spec("j")
            };
            let blobs = vec![(id, text.into_bytes().into())];
            submit(&mut world, 1000, job, blobs).unwrap();
        }
        let each = world.state.stored_bytes.of_user(1000) / 100;
        assert!(each * jobs < quota, "{each} bytes a job");
    }
}

#[test]
fn what_jobs_of_a_user_share_counts_once() {
    let mut world = World::new();
    let blob = |fill: u8| {
        (
            BlobId([fill; 32]),
            [b"#!".to_vec(), vec![fill; 9998]].concat().into(),
        )
    };
    let job = |name: &str| JobSpec {
        script: Some(BlobId([1; 32])),
        ..spec(name)
    };
    let small = |world: &World, uid| world.state.stored_bytes.of_user(uid) % 10_000;
    let large = |world: &World, uid| world.state.stored_bytes.of_user(uid) / 10_000;
    let first = submit(&mut world, 1000, job("a"), vec![blob(1)]).unwrap();
    let one = small(&world, 1000);
    submit(&mut world, 1000, job("b"), vec![blob(1)]).unwrap();
    assert_eq!((large(&world, 1000), small(&world, 1000)), (1, 2 * one));
    // It counts for another user, too.
    submit(&mut world, 1001, job("a"), vec![blob(1)]).unwrap();
    assert_eq!(large(&world, 1001), 1);
    world.cancel(1000, target(first));
    world.pass(301);
    assert_eq!((large(&world, 1000), small(&world, 1000)), (1, one));
    // A snapshot says the same.
    let mut bytes = Vec::new();
    world.state.encode_snapshot(&mut bytes);
    let read = State::decode_snapshot(&bytes).unwrap();
    assert_eq!(read.stored_bytes, world.state.stored_bytes);
    read.check_invariants().unwrap();
    world.check_replay();
}

/// Steps that run are in the queue with their texts, on every node that leads them.
#[test]
fn steps_that_run_count_for_their_user() {
    let mut world = World::new();
    let of_user = |world: &World| world.state.stored_bytes.of_user(1000);
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1]));
    let before = of_user(&world);
    let attempt = world.job(id).attempt;
    for number in 0..3 {
        let mut new = Step {
            submit_line: "x".repeat(4000),
            ..step(number, world.now)
        };
        new.stdio.stdout = Some("y".repeat(4000));
        let started = NodeCommand::StepStarted {
            job: id,
            attempt,
            step: Box::new(new),
        };
        world.node(0, started);
        let carried: u64 = world.events.iter().map(Event::carried_bytes).sum();
        assert!((8000..9000).contains(&carried), "{carried}");
    }
    let more = of_user(&world) - before;
    assert!((24_000..27_000).contains(&more), "{more}");
    // A snapshot says the same, and an update leaves it.
    let mut bytes = Vec::new();
    world.state.encode_snapshot(&mut bytes);
    let read = State::decode_snapshot(&bytes).unwrap();
    assert_eq!(read.stored_bytes, world.state.stored_bytes);
    world.must(1000, comment(target(id), "z"));
    assert!(of_user(&world) - before > more);
    world.must(1000, comment(target(id), ""));
    for number in 0..3 {
        let ended = NodeCommand::StepEnded {
            job: id,
            attempt,
            step: StepNo(number),
            end: Box::new(StepEnd::never_ran(world.now)),
        };
        world.node(0, ended);
    }
    let left = of_user(&world).abs_diff(before);
    assert!(left < 16, "{left}");
    world.check_replay();
}

#[test]
fn a_job_that_never_runs_is_not_requeued_without_end() {
    let mut world = World::new();
    let id = world.submit(JobSpec {
        hold: true,
        ..spec("j")
    });
    let requeue = || UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    for _ in 0..100 {
        world.cancel(1000, target(id));
        world.must(1000, requeue());
    }
    world.cancel(1000, target(id));
    assert_eq!(world.refused(1000, requeue()), RefusalCode::NotRequeuable);
    assert_eq!(world.job(id).restarts, 100);
    world.check_replay();
}
