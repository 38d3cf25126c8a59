//! A disk that is nearly full: what users ask for is refused in time, and jobs end.

use super::*;
use muster_model::command::{CrontabAsk, JobUpdate};
use muster_model::spec::JobKind;

/// The answer to a command of bob's.
fn ask(world: &mut World, command: UserCommand) -> Reply {
    let (reply, mut answer) = oneshot::channel();
    let after = world.turns(vec![ToWriter::User {
        identity: bob(),
        command: Box::new(command),
        reply: reply.into(),
    }]);
    assert_eq!(
        after,
        NextAction::Sleep,
        "ends of jobs would wait for space"
    );
    answer.try_recv().unwrap()
}

/// A disk of 24 MiB, and a job of bob's that waits.
fn small_disk(name: &str) -> World {
    let mut world = World::new(name);
    let (held, mut answer) = submission("held", 10);
    world.turns(vec![held]);
    assert!(is_accepted(&mut answer));
    let capacity = world.storage.used() + (24 << 20);
    world.storage.set_capacity(Some(capacity));
    let storage = world.storage.clone();
    world.writer.reserve =
        DiskReserve::asking(world.dir.clone(), move || capacity - storage.used());
    world
}

fn job_one() -> JobTarget {
    JobTarget {
        job: JobId(1),
        tasks: None,
        component: None,
    }
}

/// Each change writes the job's whole specification, and is small enough for its turn to wait rather than to be refused.
#[test]
fn changes_of_jobs_leave_the_space_that_is_kept_for_ends() {
    let mut world = small_disk("changes");
    let mut done = 0;
    let refusal = loop {
        let update = JobUpdate {
            comment: Some(format!("{done:05}{}", "#".repeat(12 << 10))),
            ..JobUpdate::default()
        };
        let command = UserCommand::UpdateJob {
            target: job_one(),
            update: Box::new(update),
        };
        match ask(&mut world, command) {
            Reply::Done { changed: 1, .. } => done += 1,
            Reply::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
        assert!(done < 3000, "the reserve is not asked");
    };
    assert_eq!(refusal.code, RefusalCode::StorageFull);
    assert!(done > 100, "{done}");
    let (more, mut answer) = submission("more", 20 << 10);
    world.turns(vec![more]);
    assert!(!is_accepted(&mut answer));
    // Jobs still end.
    let selection = JobSelection {
        targets: vec![job_one()],
        ..JobSelection::default()
    };
    let reply = ask(&mut world, UserCommand::Cancel { selection });
    assert!(matches!(reply, Reply::Done { changed: 1, .. }), "{reply:?}");
    assert_eq!(states(&world)[0].1, JobState::Cancelled);
    assert_eq!(world.writer.state().digest(), world.recovered().digest());
}

/// What a specification says counts as what a script has; so does a crontab.
#[test]
fn the_reserve_counts_all_that_a_command_writes() {
    let mut world = World::new("specs");
    let script = BlobId([1; 32]);
    let blobs = || vec![(script, b"#!/bin/sh\n".to_vec().into())];
    let large = || JobSpec {
        name: "large".to_owned(),
        script: Some(script),
        work_dir: "/tmp".to_owned(),
        comment: Some("#".repeat(12 << 10)),
        ..JobSpec::default()
    };
    let mut code = |bytes: u64, command| {
        world.writer.reserve = DiskReserve::asking(PathBuf::from("/t"), move || (16 << 20) + bytes);
        match ask(&mut world, command) {
            Reply::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    };
    let submit = |test_only| UserCommand::Submit {
        spec: Box::new(large()),
        blobs: blobs(),
        test_only,
    };
    let full = Some(RefusalCode::StorageFull);
    assert_eq!(code(12 << 10, submit(false)), full);
    assert_eq!(code(20 << 10, submit(false)), None);
    let component = JobSpec {
        script: None,
        kind: JobKind::Allocation,
        ..large()
    };
    let het = UserCommand::SubmitHet {
        specs: vec![component.clone(), component],
        blobs: Vec::new(),
        test_only: false,
    };
    assert_eq!(code(20 << 10, het), full);
    let crontab = || {
        UserCommand::SetCrontab(Box::new(CrontabAsk {
            text: Some(format!("#{}\n0 * * * * true\n", "#".repeat(8 << 10))),
            jobs: vec![large()],
            blobs: blobs(),
            ..CrontabAsk::default()
        }))
    };
    assert_eq!(code(16 << 10, crontab()), full);
    assert_eq!(code(40 << 10, crontab()), None);
    // Without it nothing runs again.
    assert_eq!(code(0, UserCommand::SetCrontab(Box::default())), None);
}

/// Each task that is ended alone becomes a record of its own.
#[test]
fn who_ends_tasks_of_an_array_leaves_space_for_reports() {
    let mut world = small_disk("tasks");
    let free = |bytes: u64| DiskReserve::asking(PathBuf::from("/t"), move || bytes);
    let cancel = || UserCommand::Cancel {
        selection: JobSelection {
            targets: vec![job_one()],
            ..JobSelection::default()
        },
    };
    world.writer.reserve = free(8 << 20);
    match ask(&mut world, cancel()) {
        Reply::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::StorageFull),
        other => panic!("{other:?}"),
    }
    assert_eq!(states(&world)[0].1, JobState::Pending);
    let (reply, mut answer) = oneshot::channel();
    world.turns(vec![ToWriter::User {
        identity: Identity::default(),
        command: Box::new(cancel()),
        reply: reply.into(),
    }]);
    let reply = answer.try_recv().unwrap();
    assert!(matches!(reply, Reply::Done { changed: 1, .. }), "{reply:?}");
}

/// An allocation of bob's that waits, beside the batch job 1.
fn with_allocation(world: &mut World) -> JobId {
    let spec = JobSpec {
        name: "held".to_owned(),
        work_dir: "/tmp".to_owned(),
        kind: JobKind::Allocation,
        interactive: true,
        ..JobSpec::default()
    };
    let command = UserCommand::Submit {
        spec: Box::new(spec),
        blobs: Vec::new(),
        test_only: false,
    };
    match ask(world, command) {
        Reply::Submitted { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

/// Who held batch jobs and disconnected ended them past the part that a user has of the space that is kept.
#[test]
fn what_ends_with_a_connection_takes_its_users_part() {
    let mut world = small_disk("connection");
    world.writer.reserve = DiskReserve::asking(PathBuf::from("/t"), || 8 << 20);
    world.turns(vec![ToWriter::cancel(JobId(1), Some(bob().uid))]);
    assert_eq!(states(&world)[0].1, JobState::Pending);
    // What the controller ends for reasons of its own needs no space.
    world.turns(vec![ToWriter::cancel(JobId(1), None)]);
    assert_eq!(states(&world)[0].1, JobState::Cancelled);
}

/// It was a cancel of its owner's: refused where the owner had no room for one, and in accounting the owner's doing.
#[test]
fn an_allocation_without_holder_is_ended_by_the_controller_itself() {
    let mut world = small_disk("unheld");
    let id = with_allocation(&mut world);
    world.writer.reserve = DiskReserve::asking(PathBuf::from("/t"), || 8 << 20);
    world.turns(vec![ToWriter::cancel(id, Some(bob().uid))]);
    let job = &world.writer.state().jobs[&id];
    assert_eq!(
        (job.state, job.cancelled_by),
        (JobState::Cancelled, Some(0))
    );
    assert_eq!(world.writer.state().digest(), world.recovered().digest());
}

/// A user who loses many allocations at once has no other wait for their ends.
#[test]
fn ends_of_allocations_without_holder_take_the_turn_of_who_held_them() {
    let state = State::default();
    let mut queue = Queue::default();
    let lost = (1..=3).map(|id| ToWriter::cancel(JobId(id), Some(1001)));
    let own = ToWriter::cancel(JobId(9), None);
    let messages = lost.chain([of(1002, submission("other", 10).0), own]);
    queue.extend(messages, &state);
    let order: Vec<u32> = std::iter::from_fn(|| {
        let (charge, _) = queue.next(true)?;
        let uid = match charge.as_ref().map(Charge::source) {
            Some(MessageSource::User(uid)) => uid,
            _ => 0,
        };
        if let Some(charge) = charge {
            let cost = Cost {
                events: &[],
                orders: 0,
                time: Duration::ZERO,
            };
            queue.charge(charge, &cost);
        }
        Some(uid)
    })
    .collect();
    assert_eq!(order, [0, 1001, 1002, 1001, 1001]);
}
