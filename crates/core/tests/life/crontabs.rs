//! Crontabs: jobs that come back to the queue, and the text that says so.

use crate::world::{SCRIPT, World, config, exit, spec, target, user};
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::command::{CrontabAsk, JobSelection, JobUpdate, NodeCommand, Reply, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::cron::CrontabConfig;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Phase, Reason};
use muster_model::limits::CRONTAB_JOBS_MAX;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{JobSpec, Owner};
use muster_model::time::Timestamp;

fn world_with(explicit_cancel: bool) -> World {
    World::with(ClusterConfig {
        crontabs: CrontabConfig {
            enabled: true,
            explicit_cancel,
            zone: "UTC0".to_owned(),
        },
        ..config()
    })
}

fn world() -> World {
    world_with(false)
}

fn ask(text: &str, jobs: Vec<JobSpec>) -> UserCommand {
    UserCommand::SetCrontab(Box::new(CrontabAsk {
        owner: Owner::default(),
        text: Some(text.to_owned()),
        jobs,
        blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
    }))
}

fn remove() -> UserCommand {
    UserCommand::SetCrontab(Box::default())
}

/// A user's crontab with a job for each entry.
fn set(world: &mut World, uid: u32, text: &str, entries: usize) -> Vec<JobId> {
    world.must(uid, ask(text, vec![spec("e"); entries]));
    world.state.crontabs[&uid].jobs.clone()
}

fn cancel(job: JobId, cron: bool) -> UserCommand {
    UserCommand::Cancel {
        selection: JobSelection {
            targets: vec![target(job)],
            cron,
            ..JobSelection::default()
        },
    }
}

/// Runs the job on the first node and lets its script end with that code.
fn run(world: &mut World, id: JobId, code: u32) {
    assert!(world.start(id, &[0]));
    world.now = world.now.plus_s(1);
    world.finish(id, code);
}

fn begin(world: &World, id: JobId) -> Option<i64> {
    world.job(id).begin_at.map(Timestamp::unix_s)
}

#[test]
fn an_entry_waits_for_its_time_and_again_after_each_run() {
    // It is 00:16:40.
    let mut world = world();
    let jobs = set(&mut world, 1000, "*/5 * * * * true\n@hourly true\n", 2);
    let [often, hourly] = jobs[..] else {
        panic!("{jobs:?}")
    };
    assert_eq!(
        world.state_of(often),
        (JobState::Pending, Reason::BeginTime)
    );
    assert_eq!(begin(&world, often), Some(1200));
    assert_eq!(begin(&world, hourly), Some(3600));
    for code in [0, 1] {
        world.now = Timestamp::from_unix_s(begin(&world, often).unwrap());
        world.tick();
        let began = world.now;
        run(&mut world, often, code);
        assert_eq!(world.job(often).phase(), Phase::Pending);
        assert_eq!(world.state_of(often).1, Reason::BeginTime);
        assert_eq!(begin(&world, often), Some(began.unix_s() + 300));
    }
    assert_eq!(world.job(often).restarts, 2);
    assert_eq!(
        world.state.crontabs[&1000].text,
        "*/5 * * * * true\n@hourly true\n"
    );
    world.check_replay();
}

#[test]
fn a_new_crontab_replaces_what_waits_and_lets_run_what_runs() {
    let mut world = world();
    let jobs = set(&mut world, 1000, "*/5 * * * * a\n*/5 * * * * b\n", 2);
    world.now = Timestamp::from_unix_s(1200);
    world.tick();
    assert!(world.start(jobs[0], &[0]));
    let new = set(&mut world, 1000, "@daily c\n", 1);
    assert_eq!(world.job(jobs[0]).phase(), Phase::Running);
    assert_eq!(world.state_of(jobs[1]).0, JobState::Cancelled);
    assert_eq!(world.state.crontabs[&1000].text, "@daily c\n");
    // It does not come back.
    let job = jobs[0];
    world.finish(job, 0);
    assert_eq!(world.job(job).phase(), Phase::Ended);
    assert_eq!(world.state_of(job).0, JobState::Completed);
    world.must(1000, remove());
    assert!(world.state.crontabs.is_empty());
    assert_eq!(world.state_of(new[0]).0, JobState::Cancelled);
}

/// What `scontrol requeue` and lost nodes put back is in the state PENDING while its nodes are cleaned: the job ended in that state,
/// and the release of its last node made the controller panic, each time that the node said it.
#[test]
fn an_entry_that_is_put_back_is_cancelled_with_its_crontab() {
    let lose = |world: &mut World, job: JobId| {
        let attempt = world.job(job).attempt;
        world.node(0, NodeCommand::Vanished { job, attempt });
    };
    let requeue = |world: &mut World, job: JobId| {
        let command = UserCommand::Requeue {
            target: target(job),
            hold: false,
            special_exit: false,
            incomplete: false,
        };
        world.must(1000, command);
    };
    let fail = |world: &mut World, job: JobId| {
        let failed = NodeCommand::LaunchFailed {
            job,
            attempt: world.job(job).attempt,
            error: "no space".to_owned(),
            node_fault: true,
            prolog: false,
            lack: false,
        };
        world.node(1, failed);
    };
    for put_back in [&lose as &dyn Fn(&mut World, JobId), &requeue, &fail] {
        for command in [remove(), ask("@daily b\n", vec![spec("b")])] {
            let mut world = world();
            let id = set(&mut world, 1000, "*/5 * * * * a\n", 1)[0];
            world.now = Timestamp::from_unix_s(1200);
            world.tick();
            assert!(world.start(id, &[0, 1]));
            put_back(&mut world, id);
            let job = world.job(id);
            assert_eq!(
                (job.phase(), job.state),
                (Phase::Requeueing, JobState::Pending)
            );
            world.must(1000, command);
            assert_eq!(world.job(id).phase(), Phase::Completing);
            world.release(id);
            assert_eq!(world.job(id).phase(), Phase::Ended);
            assert_eq!(world.state_of(id).0, JobState::Cancelled);
            assert_eq!(world.job(id).cancelled_by, Some(1000));
            world.check_replay();
        }
    }
}

/// A journal of before has an end in that state.
#[test]
fn an_end_without_a_state_of_its_own_is_a_cancellation() {
    let mut world = world();
    let id = set(&mut world, 1000, "*/5 * * * * a\n", 1)[0];
    world.now = Timestamp::from_unix_s(1200);
    world.tick();
    assert!(world.start(id, &[0]));
    let at = world.now;
    let ending = |requeue| Event::JobEnding {
        id,
        at,
        state: JobState::Pending,
        reason: Reason::None,
        exit: exit(0),
        cancelled_by: None,
        requeue,
    };
    for event in [ending(Some(false)), ending(None)] {
        world.state.apply(&event);
        world.history.push(event);
    }
    world.release(id);
    assert_eq!(world.job(id).phase(), Phase::Ended);
    assert_eq!(world.state_of(id).0, JobState::Cancelled);
    world.check_replay();
}

#[test]
fn scancel_takes_the_entry_out_of_use() {
    let mut world = world();
    let text = "#SCRON -t 5\n*/5 * * * * a\n@daily b\n";
    let jobs = set(&mut world, 1000, text, 2);
    world.now = Timestamp::from_unix_s(1200);
    world.tick();
    assert!(world.start(jobs[0], &[0]));
    world.must(1000, cancel(jobs[0], false));
    let crontab = &world.state.crontabs[&1000];
    assert_eq!(
        crontab.text,
        "#DISABLED: #SCRON -t 5\n#DISABLED: */5 * * * * a\n@daily b\n"
    );
    assert_eq!(crontab.jobs, [jobs[1]]);
    assert_eq!(world.job(jobs[0]).phase(), Phase::Completing);
    // All at once, and each leaves its mark.
    world.must(
        1000,
        UserCommand::Cancel {
            selection: JobSelection {
                uid: Some(1000),
                ..JobSelection::default()
            },
        },
    );
    assert!(
        world.state.crontabs[&1000]
            .text
            .ends_with("#DISABLED: @daily b\n")
    );
}

#[test]
fn explicit_scancel_asks_for_the_word() {
    let mut world = world_with(true);
    let jobs = set(&mut world, 1000, "@daily a\n", 1);
    let without = cancel(jobs[0], false);
    assert_eq!(world.refused(1000, without), RefusalCode::CannotCancelCron);
    let kill = UserCommand::Signal {
        selection: JobSelection {
            targets: vec![target(jobs[0])],
            ..JobSelection::default()
        },
        signal: 9,
        scope: muster_model::command::SignalScope::Full,
    };
    assert_eq!(world.refused(1000, kill), RefusalCode::CannotCancelCron);
    world.must(1000, cancel(jobs[0], true));
    assert_eq!(world.state_of(jobs[0]).0, JobState::Cancelled);
}

#[test]
fn its_crontab_says_all_of_a_job() {
    let mut world = world();
    let jobs = set(&mut world, 1000, "@daily a\n", 1);
    for command in [
        UserCommand::UpdateJob {
            target: target(jobs[0]),
            update: Box::new(JobUpdate {
                name: Some("x".to_owned()),
                ..JobUpdate::default()
            }),
        },
        UserCommand::Hold {
            target: target(jobs[0]),
            user: true,
        },
        UserCommand::Release {
            target: target(jobs[0]),
        },
    ] {
        assert_eq!(world.refused(1000, command), RefusalCode::CannotModifyCron);
    }
}

#[test]
fn a_crontab_is_accepted_whole_or_not_at_all() {
    let mut world = world();
    set(&mut world, 1000, "@daily a\n", 1);
    let before = world.state.digest();
    let nowhere = JobSpec {
        partitions: vec!["nosuch".to_owned()],
        ..spec("e")
    };
    let reply = world.user(
        1000,
        ask(
            "@daily a\n\n#SCRON -p x\n@daily b\n",
            vec![spec("e"), nowhere],
        ),
    );
    let Reply::Refused(refusal) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(refusal.code, RefusalCode::InvalidPartition);
    assert!(
        refusal.detail.starts_with("lines 3-4: "),
        "{}",
        refusal.detail
    );
    assert_eq!(world.state.digest(), before);
}

/// What a client may send that no scrontab would.
#[test]
fn nothing_that_a_client_says_of_times_is_believed() {
    let mut world = world();
    let many = "@daily a\n".repeat(CRONTAB_JOBS_MAX + 1);
    let array = JobSpec {
        array: crate::world::array(1, 3, None),
        ..spec("e")
    };
    let one = || vec![spec("e")];
    for (text, jobs) in [
        ("0 0 30 2 * true\n", one()),
        ("* * * * *\n", one()),
        ("@reboot x\n", one()),
        ("@daily a\n@daily b\n", one()),
        ("# nothing\n", one()),
        ("@daily a\0\n", one()),
        ("@daily a\n", vec![array]),
        (many.as_str(), vec![spec("e"); CRONTAB_JOBS_MAX + 1]),
    ] {
        world.refused(1000, ask(text, jobs));
        assert!(world.state.crontabs.is_empty() && world.state.jobs.is_empty());
    }
    // Who says that a job is an entry of a crontab has one that is not.
    let mut liar = set(&mut world, 1000, "@daily a\n", 1);
    let mut claimed = (*world.job(liar.remove(0)).spec).clone();
    claimed.begin = None;
    let id = world.submit(claimed);
    assert!(world.job(id).spec.cron.is_none());
    let early = JobSpec {
        begin: Some(Timestamp(1)),
        ..spec("e")
    };
    world.must(1001, ask("@daily a\n", vec![early]));
    let id = world.state.crontabs[&1001].jobs[0];
    assert_eq!(begin(&world, id), Some(86_400));
}

#[test]
fn root_sets_the_crontabs_of_others_and_nobody_else_does() {
    let mut world = world();
    let other = user(1001);
    let owner = Owner {
        uid: other.uid,
        gid: other.gid,
        user: other.user,
        group: other.group,
    };
    let mine = |owner: &Owner| {
        let UserCommand::SetCrontab(mut command) = ask("@daily a\n", vec![spec("e")]) else {
            unreachable!("it is one")
        };
        command.owner = owner.clone();
        UserCommand::SetCrontab(command)
    };
    assert_eq!(world.refused(1000, mine(&owner)), RefusalCode::AccessDenied);
    world.must(0, mine(&owner));
    let crontab = &world.state.crontabs[&1001];
    assert_eq!(world.job(crontab.jobs[0]).spec.owner, owner);
    let removal = UserCommand::SetCrontab(Box::new(CrontabAsk {
        owner,
        ..CrontabAsk::default()
    }));
    assert_eq!(
        world.refused(1000, removal.clone()),
        RefusalCode::AccessDenied
    );
    world.must(0, removal);
    assert!(world.state.crontabs.is_empty());
}

#[test]
fn without_enable_there_are_none() {
    let mut world = World::new();
    let refused = world.refused(1000, ask("@daily a\n", vec![spec("e")]));
    assert_eq!(refused, RefusalCode::CrontabsDisabled);
}

#[test]
fn a_snapshot_has_them() {
    let mut world = world();
    set(&mut world, 1000, "*/5 * * * * a\n", 1);
    let mut bytes = Vec::new();
    world.state.encode_snapshot(&mut bytes);
    let read = State::decode_snapshot(&bytes).unwrap();
    assert_eq!(read.crontabs, world.state.crontabs);
    assert_eq!(read.digest(), world.state.digest());
}
