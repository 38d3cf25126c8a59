//! What users order faster than it can be carried out: it is counted what the launcher does about it.

use super::super::notices::NOTICES_MAX;
use super::super::waiting::SEARCHES_MAX;
use super::*;
use crate::messages::KnownJob;
use crate::signals::{SIGCONT, SIGSTOP};
use muster_proto::frame;

const FLOOD: usize = 10_000;
const OTHER: u32 = 2000;

fn signal_order(attempt: JobAttempt, signal: i32) -> Order {
    Order::Signal {
        job: attempt.job,
        attempt: attempt.attempt,
        step: None,
        signal: signal.unsigned_abs(),
        scope: SignalScope::Full,
        cancelled_by: None,
    }
}

fn notice(attempt: JobAttempt, text: impl ToString) -> Order {
    Order::Notify {
        job: attempt.job,
        attempt: attempt.attempt,
        text: text.to_string(),
    }
}

fn launch_of(attempt: JobAttempt, uid: u32) -> Order {
    let mut grant = grant(attempt, JobKind::Batch);
    let spec = std::sync::Arc::make_mut(&mut grant.spec);
    spec.owner.uid = uid;
    Order::Launch(Box::new(grant))
}

impl World {
    /// Jobs of a user, which run.
    fn run_jobs(&mut self, uid: u32, numbers: std::ops::Range<u64>) -> Vec<JobAttempt> {
        let attempts: Vec<JobAttempt> = numbers.map(attempt_of).collect();
        for attempt in &attempts {
            self.order(launch_of(*attempt, uid));
            self.answer_look_ups();
            assert_eq!(self.phase(*attempt), NodeJobPhase::Running);
        }
        self.signals.clear();
        attempts
    }

    fn wake_up(&mut self, orders: Vec<Order>) {
        self.orders(orders, None);
        self.finish_wakeup();
    }

    fn signals_of(&self, attempt: JobAttempt) -> Vec<i32> {
        let script = self.script(attempt);
        let its = self.signals.iter().filter(|(pid, _)| *pid == script);
        its.map(|(_, signal)| *signal).collect()
    }

    fn writers(&self) -> Vec<i32> {
        self.pids(|kind| *kind == Kind::Helper)
    }
}

#[test]
fn equal_signals_that_wait_are_one() {
    let mut world = World::new();
    let job = world.run_jobs(UID, 1..2)[0];
    let flood = (0..FLOOD).flat_map(|_| [signal_order(job, 10), signal_order(job, 12)]);
    world.wake_up(flood.collect());
    assert_eq!(world.signals_of(job), [10, 12]);
    // The next is another.
    world.wake_up(vec![signal_order(job, 10)]);
    assert_eq!(world.signals_of(job), [10, 12, 10]);
}

#[test]
fn different_signals_come_in_their_order() {
    let mut world = World::new();
    let job = world.run_jobs(UID, 1..2)[0];
    let orders = [SIGTERM, 10, SIGSTOP, SIGCONT, SIGTERM, SIGSTOP];
    world.wake_up(orders.map(|signal| signal_order(job, signal)).to_vec());
    // A job that was stopped last is stopped.
    assert_eq!(world.signals_of(job), [SIGTERM, 10, SIGCONT, SIGSTOP]);
    world.signals.clear();
    // The end comes after them.
    let end = Order::Terminate {
        job: job.job,
        attempt: job.attempt,
        now: true,
        why: TerminateReason::Cancelled,
    };
    let script = world.script(job);
    world.wake_up(vec![signal_order(job, SIGTERM), end]);
    assert_eq!(world.signals[..2], [(script, SIGTERM), (script, SIGKILL)]);
}

/// The flood of one user, on as many jobs as the node has, delays neither a launch nor an end nor a signal of another's.
#[test]
fn signals_of_a_user_wait_for_each_other_and_others_do_not_wait_for_them() {
    let mut world = World::new();
    let flooded = world.run_jobs(UID, 1..101);
    let others = world.run_jobs(OTHER, 201..203);
    let all: Vec<Order> = flooded
        .iter()
        .flat_map(|attempt| {
            (1..9)
                .chain(34..64)
                .map(|signal| signal_order(*attempt, signal))
        })
        .collect();
    let count = all.len();
    let launch = launch_of(attempt_of(301), OTHER);
    let end = Order::Terminate {
        job: others[1].job,
        attempt: others[1].attempt,
        now: true,
        why: TerminateReason::Cancelled,
    };
    world.wake_up(
        all.into_iter()
            .chain([signal_order(others[0], SIGTERM), launch, end])
            .collect(),
    );
    assert_eq!(world.phase(attempt_of(301)), NodeJobPhase::Running);
    assert_eq!(world.signals_of(others[0]), [SIGTERM]);
    let carried_out = |world: &World| {
        let of = |attempt: &JobAttempt| world.signals_of(*attempt).len();
        flooded.iter().map(of).sum::<usize>()
    };
    assert_eq!(carried_out(&world), SEARCHES_MAX);
    // Each wake-up goes on with it, until nothing waits.
    let mut rounds = 1;
    while world.timers.contains_key(&Timer::Signals) {
        let before = carried_out(&world);
        world.timers.remove(&Timer::Signals);
        world.deliver(Event::TimerDue(Timer::Signals));
        world.finish_wakeup();
        rounds += 1;
        assert!(carried_out(&world) - before <= SEARCHES_MAX);
    }
    assert_eq!(carried_out(&world), count);
    assert_eq!(rounds, count.div_ceil(SEARCHES_MAX));
}

/// A signal for all of a job costs a search for each of its steps.
#[test]
fn signals_for_many_steps_count_as_many() {
    let mut world = World::new();
    let job = world.run_jobs(UID, 1..2)[0];
    let steps = 3 * SEARCHES_MAX;
    for step in 0..steps {
        world.start_step(job, StepNo(u32::try_from(step).unwrap()));
    }
    world.wake_up(vec![signal_order(job, 10), signal_order(job, 12)]);
    assert_eq!(world.signals.len(), 1 + steps, "one of them");
    assert!(world.fire_timer());
    assert_eq!(world.signals.len(), 2 * (1 + steps));
}

/// Limits that one user changes as fast as possible: a daemon gets the last, and others do not wait.
#[test]
fn a_daemon_gets_the_last_limit_and_the_steps_of_a_user_take_turns() {
    let mut world = World::new();
    let job = world.run_jobs(UID, 1..2)[0];
    let other = world.run_jobs(OTHER, 2..3)[0];
    let steps = 2 * u32::try_from(SEARCHES_MAX).unwrap();
    for step in 0..steps {
        world.start_step(job, StepNo(step));
    }
    let order = |step, minutes| Order::StepLimit {
        job: job.job,
        attempt: job.attempt,
        step: StepNo(step),
        limit: TimeLimit::Minutes(minutes),
    };
    let of_round = |round| (0..=steps).map(move |step| order(step, round));
    let flood = (1..=100).flat_map(of_round);
    world.wake_up(flood.chain([signal_order(other, 10)]).collect());
    assert_eq!(world.signals_of(other), [10]);
    assert_eq!(world.limits.len(), SEARCHES_MAX);
    assert!(world.fire_timer());
    assert_eq!(world.limits.len(), 2 * SEARCHES_MAX, "each once");
    let is_last = |(_, seconds): &(i32, Option<u64>)| *seconds == Some(100 * 60);
    assert!(world.limits.iter().all(is_last));
}

#[test]
fn a_step_ends_after_the_signals_that_it_was_sent() {
    let mut world = World::new();
    let job = world.run_jobs(UID, 1..2)[0];
    let step = StepNo(0);
    world.start_step(job, step);
    world.deliver(Event::Command(LauncherCommand::SignalStep {
        attempt: job,
        step,
        signal: 10,
    }));
    world.deliver(Event::Command(LauncherCommand::EndStep {
        attempt: job,
        step,
    }));
    assert!(world.signals.is_empty() && world.launcher.state.jobs[&job].has_live_step());
    world.finish_wakeup();
    assert_eq!(world.signals.len(), 1);
    assert!(!world.launcher.state.jobs[&job].has_live_step());
}

#[test]
fn one_process_writes_the_notices_of_a_user_and_the_last_lines_count() {
    let mut world = World::new();
    let jobs = world.run_jobs(UID, 1..3);
    let other = world.run_jobs(OTHER, 3..4)[0];
    world.wake_up((0..FLOOD).map(|at| notice(jobs[0], at)).collect());
    world.wake_up(vec![notice(jobs[1], "second"), notice(other, "other")]);
    assert_eq!(world.writers().len(), 2, "one for each user");
    assert_eq!(world.messages, [1, 1]);
    while let Some(writer) = world.writers().pop() {
        world.end_and_reap(writer, 0);
        assert!(world.writers().len() <= 2);
    }
    assert_eq!(world.messages, [1, 1, NOTICES_MAX, 1]);
    // One that cannot be started is not waited for.
    world.lacks = true;
    world.wake_up(vec![notice(jobs[0], "lost")]);
    world.lacks = false;
    world.wake_up(vec![notice(jobs[0], "written")]);
    assert_eq!(world.writers().len(), 1);
}

#[test]
fn notices_that_wait_are_written_with_the_end() {
    let mut world = World::new();
    let job = world.run_jobs(UID, 1..2)[0];
    world.wake_up((0..3).map(|at| notice(job, at)).collect());
    world.terminate(job, false);
    assert_eq!(world.messages, [1, 3], "two notices and the end");
    world.reap();
    for pid in world.writers() {
        world.end_and_reap(pid, 0);
    }
    world.end_and_reap(world.script(job), SIGTERM);
    assert!(world.is_released(job));
    assert_eq!(world.messages.len(), 2);
}

/// The records that a user's steps leave are more than a frame takes, and come to the next agent all the same.
#[test]
fn what_is_known_comes_in_frames_however_much_it_is() {
    let mut world = World::new();
    let jobs = world.run_jobs(UID, 1..4);
    let record: minicbor::bytes::ByteVec = vec![b'y'; 960 << 10].into();
    // As a launcher has them on file that had no bound for all jobs.
    for job in &jobs {
        for step in 0..8 {
            let records = &mut world.launcher.state.records;
            records.keep(*job, step, record.clone());
        }
    }
    world.attach();
    let (mut known, mut last) = (Vec::<KnownJob>::new(), 0);
    for event in &world.sent {
        let bytes = frame::encode(event);
        assert!(bytes.len() < 8 << 20, "{} bytes", bytes.len());
        frame::decode::<LauncherEvent>(&bytes[4..]).unwrap();
        let LauncherEvent::State { jobs, is_last } = event else {
            continue;
        };
        assert_eq!(last, 0, "nothing follows the last part");
        last += usize::from(*is_last);
        for job in jobs {
            match known.last_mut() {
                Some(known) if known.attempt == job.attempt => known.add(job.clone()),
                _ => known.push(job.clone()),
            }
        }
    }
    assert_eq!((known.len(), last), (3, 1));
    for job in known {
        assert!(job.grant.is_some());
        let keys: Vec<u32> = job.kept.iter().map(|entry| entry.key).collect();
        assert_eq!(keys, (0..8).collect::<Vec<_>>());
    }
}

/// What an agent has kept is bounded by user, over all jobs, and what was kept can always be dropped.
#[test]
fn what_is_kept_of_a_user_is_bounded() {
    let mut world = World::new();
    let jobs = world.run_jobs(UID, 1..4);
    let others = world.run_jobs(OTHER, 11..12)[0];
    let keep = |world: &mut World, attempt: JobAttempt, key: u32, bytes: usize| {
        let bytes = vec![b'y'; bytes].into();
        world.command(LauncherCommand::Keep {
            attempt,
            key,
            bytes,
        });
        world.launcher.state.records.keeps(attempt, key)
    };
    let kept = |world: &World| {
        let bytes = |attempt: &JobAttempt| world.launcher.state.records.kept_bytes(*attempt);
        jobs.iter().map(bytes).sum::<usize>()
    };
    for step in 0..90 {
        for job in &jobs {
            keep(&mut world, *job, step, 960 << 10);
        }
    }
    assert!((60 << 20..=64 << 20).contains(&kept(&world)));
    assert!(!keep(&mut world, jobs[2], 90, 2 << 20));
    // The same again is no more, and others have their own.
    assert!(keep(&mut world, jobs[0], 0, 960 << 10));
    assert!(keep(&mut world, others, 0, 960 << 10));
    assert!(!keep(&mut world, others, 1, 33 << 20), "it takes a frame");
    assert!(!keep(&mut world, jobs[0], 0, 0));
    assert!(keep(&mut world, jobs[2], 91, 900 << 10));
}

/// Steps with environments of 8 MiB come while the prologs of their user's jobs run.
#[test]
fn steps_that_wait_for_a_prolog_are_bounded_by_user() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.attach();
    for (number, uid) in [(1, UID), (2, UID), (3, OTHER)] {
        world.wake_up(vec![launch_of(attempt_of(number), uid)]);
        world.answer_look_ups();
        assert_eq!(world.phase(attempt_of(number)), NodeJobPhase::Prolog);
    }
    let start = |world: &mut World, job: u64, step: u32| {
        let mut order = step_order(attempt_of(job), StepNo(step));
        order.launch.spec.argv = vec!["x".repeat(8 << 20)];
        let before = world.sent.len();
        world.deliver(Event::StartStep {
            order,
            random: Some(1),
        });
        match world.sent.get(before..) {
            Some([LauncherEvent::StepFailed { error, .. }]) => Some(error.clone()),
            Some([]) => None,
            other => panic!("{other:?}"),
        }
    };
    let waiting = |world: &World| {
        let jobs = world.launcher.state.jobs.values();
        jobs.map(|entry| entry.early_steps.len()).sum::<usize>()
    };
    for step in 0..7 {
        assert_eq!(start(&mut world, 1 + u64::from(step % 2), step), None);
    }
    for step in 7..20 {
        let refused = start(&mut world, 1 + u64::from(step % 2), step);
        assert!(refused.unwrap().contains("64 MiB"));
    }
    assert_eq!(waiting(&world), 7);
    assert_eq!(start(&mut world, 3, 0), None);
}

/// All daemons of the node were read for each process that had ended.
#[test]
fn the_end_of_a_process_waits_for_what_its_jobs_daemons_have_sent() {
    let mut world = World::new();
    world.attach();
    let jobs = [1, 2].map(attempt_of);
    for job in jobs {
        world.launch(job, JobKind::Batch);
        world.start_step(job, StepNo(0));
        world.start_step(job, StepNo(1));
    }
    let before = |world: &World, pid: i32| -> Vec<i32> {
        let ids = world.launcher.stepds_before(pid).into_iter();
        ids.map(|id| world.stepds[&id].pid).collect()
    };
    for job in jobs {
        let stepds = world.pids(|kind| matches!(kind, Kind::Stepd(of, _) if *of == job));
        assert_eq!(stepds.len(), 2);
        assert_eq!(before(&world, world.script(job)), stepds);
        // One that waits for another step, too.
        world.end_tasks(stepds[0]);
        world.finish_wakeup();
        assert_eq!(world.launcher.state.jobs[&job].spares.len(), 1);
        for pid in stepds {
            assert_eq!(before(&world, pid), [pid]);
        }
    }
    assert!(before(&world, 1_000_000).is_empty(), "an orphan");
}

/// The controller has the launcher drop what is too much with the very order that uses it: the job has it then.
#[test]
fn a_job_starts_from_what_is_dropped_with_its_order() {
    let mut world = World::new();
    world.attach();
    let job = attempt_of(1);
    let orders = Orders {
        cluster: "c".to_owned(),
        node: "n1".to_owned(),
        at: Timestamp(0),
        blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
        orders: vec![launch_of(job, UID)],
        drop_blobs: vec![SCRIPT],
        settings: None,
    };
    let orders = minicbor::to_vec(orders).unwrap();
    let seal = world.controller.as_mut().unwrap().seal(&orders);
    world.deliver(Event::Sealed {
        orders: orders.into(),
        seal: seal.to_vec().into(),
        local_time: "2026-01-01T00:00:00".to_owned(),
    });
    world.finish_wakeup();
    world.answer_look_ups();
    assert!(world.scripts.contains_key(&job));
    assert!(world.launcher.launches.scripts.blobs.is_empty());
    // The file goes with the job.
    let stale = &world.launcher.launches.scripts.stale_scripts;
    assert!(stale.contains(&SCRIPT));
}

/// Blobs are dropped at the word of the controller alone, which may be of an earlier version, or forget it.
#[test]
fn a_session_that_leaves_too_much_ends() {
    let mut world = World::new();
    world.attach();
    let blob = |number: u32| {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&number.to_be_bytes());
        (BlobId(id), b"x".to_vec().into())
    };
    for (numbers, ends) in [(0..60_000, false), (60_000..70_000, true)] {
        let orders = Orders {
            cluster: "c".to_owned(),
            node: "n1".to_owned(),
            at: Timestamp(0),
            blobs: numbers.map(blob).collect(),
            orders: Vec::new(),
            drop_blobs: Vec::new(),
            settings: None,
        };
        let orders = minicbor::to_vec(orders).unwrap();
        let seal = world.controller.as_mut().unwrap().seal(&orders);
        world.deliver(Event::Sealed {
            orders: orders.into(),
            seal: seal.to_vec().into(),
            local_time: "2026-01-01T00:00:00".to_owned(),
        });
        world.finish_wakeup();
        assert_eq!(world.launcher.launches.scripts.blobs.is_empty(), ends);
        let failed = |event: &LauncherEvent| matches!(event, LauncherEvent::SessionFailed(_));
        assert_eq!(world.sent.iter().any(failed), ends);
    }
}

/// The record of a job that was ended before its script began stays until the controller knows.
#[test]
fn what_is_ended_before_it_begins_keeps_no_script() {
    let mut world = World::new();
    world.attach();
    let job = attempt_of(1);
    world.order(launch_of(job, UID));
    let kept = |world: &World| {
        let entry = world.launcher.state.jobs.get(&job);
        entry.map(|entry| entry.launch.batch.is_some())
    };
    assert_eq!(kept(&world), Some(true));
    world.terminate(job, false);
    assert_eq!(kept(&world), Some(false));
}
