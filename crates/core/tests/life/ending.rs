//! How jobs end: exits, limits, warnings, deadlines, purges.

use crate::world::{World, config, exit, spec, step, step_end, target};
use muster_core::event::Event;
use muster_model::command::{Command, NodeCommand, SignalScope, UserCommand};
use muster_model::config::{ClusterConfig, ExitCodeRange};
use muster_model::effect::{Effect, TerminateReason};
use muster_model::grid_engine::COMMAND;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ExitStatus, Hold, JobState, Reason};
use muster_model::spec::{JobSpec, WarnSignal};
use muster_model::time::TimeLimit;

fn limited(minutes: u32) -> JobSpec {
    JobSpec {
        time_limit: Some(TimeLimit::Minutes(minutes)),
        ..spec("j")
    }
}

fn batch_end(world: &mut World, id: JobId, exit: ExitStatus, oom: bool) {
    let attempt = world.job(id).attempt;
    let end = step_end(world.now, exit);
    world.node(
        0,
        NodeCommand::BatchEnded {
            job: id,
            attempt,
            exit,
            oom,
            end,
        },
    );
}

#[test]
fn exit_status_makes_the_state() {
    let cases = [
        (
            ExitStatus { code: 0, signal: 0 },
            false,
            JobState::Completed,
            Reason::None,
        ),
        (
            ExitStatus { code: 7, signal: 0 },
            false,
            JobState::Failed,
            Reason::NonZeroExitCode,
        ),
        (
            ExitStatus { code: 0, signal: 9 },
            false,
            JobState::Failed,
            Reason::RaisedSignal,
        ),
        (
            ExitStatus { code: 0, signal: 9 },
            true,
            JobState::OutOfMemory,
            Reason::OutOfMemory,
        ),
    ];
    let mut world = World::new();
    for (exit, oom, state, reason) in cases {
        let id = world.submit(spec("j"));
        world.start(id, &[0, 1]);
        assert_eq!(world.job(id).steps[0].step, StepNo::BATCH);
        batch_end(&mut world, id, exit, oom);
        assert!(matches!(
            world.events[0],
            Event::StepEnded {
                step: StepNo::BATCH,
                ..
            }
        ));
        assert_eq!(
            world.terminations(),
            [(0, id), (1, id)],
            "leftovers are cleaned everywhere"
        );
        assert_eq!(
            (world.state_of(id), world.job(id).exit),
            ((state, reason), exit)
        );
        assert!(world.job(id).completing);
        world.release(id);
        assert!(world.job(id).is_over());
        assert_eq!(world.state.nodes[0].free_cpus.len(), 4);
    }
    world.check_replay();
}

#[test]
fn only_the_leading_node_ends_the_script() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0, 1]);
    let attempt = world.job(id).attempt;
    let end = step_end(world.now, exit(0));
    world.node(
        1,
        NodeCommand::BatchEnded {
            job: id,
            attempt,
            exit: exit(0),
            oom: false,
            end,
        },
    );
    assert_eq!(world.job(id).state, JobState::Running);
    assert!(world.events.is_empty());
}

#[test]
fn a_step_that_is_over_is_not_accounted_again() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    let attempt = world.job(id).attempt;
    let started = |world: &mut World, no: u32| {
        let step = Box::new(step(no, world.now));
        world.node(
            0,
            NodeCommand::StepStarted {
                job: id,
                attempt,
                step,
            },
        );
        world.events.len()
    };
    let ended = |world: &mut World, no: u32, code: u32| {
        let end = Box::new(step_end(world.now, exit(code)));
        let step = StepNo(no);
        world.node(
            0,
            NodeCommand::StepEnded {
                job: id,
                attempt,
                step,
                end,
            },
        );
        world.events.len()
    };
    // Two are made at a time: the later one may be ready, and over, first.
    assert_eq!(started(&mut world, 2), 1);
    assert_eq!(ended(&mut world, 2, 0), 1);
    assert_eq!(started(&mut world, 0), 1);
    assert_eq!(ended(&mut world, 0, 3), 1);
    // A node whose memory is older than what it has told tells it once more, and may have lost how it went.
    for no in [0, 2] {
        assert_eq!(started(&mut world, no), 0);
        assert_eq!(ended(&mut world, no, 9), 0);
    }
    assert_eq!(world.job(id).derived_exit.code, 3);
    // The one between them was never heard of, and may still come; then it is known as well.
    assert_eq!(started(&mut world, 1), 1);
    assert_eq!(started(&mut world, 1), 0);
    assert_eq!(ended(&mut world, 1, 0), 1);
    assert_eq!(started(&mut world, 1), 0);
    // The next run counts its steps from the beginning.
    let again = UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    world.must(1000, again);
    world.release(id);
    assert!(world.start(id, &[0]));
    let attempt = world.job(id).attempt;
    let step = Box::new(step(0, world.now));
    world.node(
        0,
        NodeCommand::StepStarted {
            job: id,
            attempt,
            step,
        },
    );
    assert_eq!(world.events.len(), 1);
}

#[test]
fn steps_left_behind_are_closed() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    let attempt = world.job(id).attempt;
    for no in 0..2 {
        world.node(
            0,
            NodeCommand::StepStarted {
                job: id,
                attempt,
                step: Box::new(step(no, world.now)),
            },
        );
    }
    world.node(
        0,
        NodeCommand::StepStarted {
            job: id,
            attempt,
            step: Box::new(step(1, world.now)),
        },
    );
    assert!(world.events.is_empty(), "told twice");
    world.node(
        0,
        NodeCommand::StepEnded {
            job: id,
            attempt,
            step: StepNo(1),
            end: Box::new(step_end(world.now, exit(4))),
        },
    );
    assert_eq!(world.job(id).derived_exit.code, 4);
    world.end_batch(id, 0);
    world.release(id);
    let last = world.events.last().expect("events");
    assert!(
        matches!(last, Event::StepEnded { step: StepNo(0), end, .. } if end.state == JobState::Cancelled),
        "{last:?}"
    );
    assert!(world.job(id).steps.is_empty());
    assert_eq!(
        world.job(id).exit,
        exit(0),
        "a step's end does not change the job's"
    );
    world.check_replay();
}

/// The agent that leads a step reports it once all nodes have ended their parts: by then the last of the job may have left its own.
#[test]
fn the_end_of_a_step_counts_when_its_lead_is_released() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0, 1]);
    let attempt = world.job(id).attempt;
    world.node(
        0,
        NodeCommand::StepStarted {
            job: id,
            attempt,
            step: Box::new(step(0, world.now)),
        },
    );
    world.end_batch(id, 0);
    world.node(0, NodeCommand::Released { job: id, attempt });
    let ended = |world: &World, code| NodeCommand::StepEnded {
        job: id,
        attempt,
        step: StepNo(0),
        end: Box::new(step_end(world.now, exit(code))),
    };
    let of_lead = ended(&world, 3);
    world.node(0, of_lead);
    assert!(matches!(&world.events[..], [Event::StepEnded { .. }]));
    assert_eq!(world.job(id).derived_exit.code, 3);
    let again = ended(&world, 4);
    world.node(0, again);
    assert!(world.events.is_empty(), "it has ended");
    // All nodes of another one have answered only now.
    let late = |world: &World, no| NodeCommand::StepStarted {
        job: id,
        attempt,
        step: Box::new(step(no, world.now)),
    };
    let second = late(&world, 1);
    world.node(0, second);
    assert!(matches!(&world.events[..], [Event::StepStarted { .. }]));
    world.node(1, NodeCommand::Released { job: id, attempt });
    let third = late(&world, 2);
    world.node(0, third);
    assert!(world.events.is_empty(), "the job is over");
    assert!(world.job(id).is_over());
    world.check_replay();
}

#[test]
fn the_time_limit_ends_a_job() {
    let mut world = World::new();
    let id = world.submit(limited(2));
    world.start(id, &[0]);
    assert_eq!(
        world.state.next_tick(world.now),
        Some(world.now.plus_s(120))
    );
    world.pass(119);
    assert_eq!(world.job(id).state, JobState::Running);
    world.pass(1);
    assert_eq!(world.state_of(id), (JobState::Timeout, Reason::TimeLimit));
    assert!(matches!(
        world.effects[..],
        [Effect::Terminate {
            why: TerminateReason::TimeLimit,
            now: false,
            ..
        }]
    ));
    let Some(Event::JobEnding { exit: row, .. }) = world.events.last() else {
        panic!("{:?}", world.events);
    };
    assert_eq!(*row, exit(0), "the accounting row says 0:0");
    batch_end(
        &mut world,
        id,
        ExitStatus {
            code: 0,
            signal: 15,
        },
        false,
    );
    assert_eq!(world.job(id).exit.signal, 15, "scontrol says 0:15");
    assert_eq!(world.job(id).state, JobState::Timeout);
    world.release(id);
    world.check_replay();
}

#[test]
fn over_time_limit_gives_more_time() {
    let mut world = World::with(ClusterConfig {
        over_time_limit_min: Some(3),
        ..config()
    });
    let id = world.submit(limited(2));
    world.start(id, &[0]);
    world.pass(299);
    assert_eq!(world.job(id).state, JobState::Running);
    world.pass(1);
    assert_eq!(world.job(id).state, JobState::Timeout);
}

#[test]
fn the_warning_signal_comes_once_and_in_time() {
    for (batch_only, scope) in [(false, SignalScope::Steps), (true, SignalScope::Batch)] {
        let mut world = World::new();
        let warn = WarnSignal {
            signal: 12,
            before_s: 90,
            batch_only,
        };
        let id = world.submit(JobSpec {
            warn_signal: Some(warn),
            ..limited(2)
        });
        world.start(id, &[0, 1]);
        world.pass(29);
        assert!(world.effects.is_empty());
        world.pass(1);
        let nodes = if batch_only { 1 } else { 2 };
        assert_eq!(world.effects.len(), nodes);
        assert!(
            matches!(world.effects[0], Effect::Signal { signal: 12, scope: s, .. } if s == scope)
        );
        world.pass(10);
        assert!(world.effects.is_empty());
        world.must(
            1000,
            UserCommand::Requeue {
                target: target(id),
                hold: false,
                special_exit: false,
                incomplete: false,
            },
        );
        world.release(id);
        world.start(id, &[0]);
        world.pass(30);
        assert_eq!(world.effects.len(), 1, "each run is warned");
        world.check_replay();
    }
}

/// Programs that take the signal have not said so yet when they begin.
#[test]
fn a_warning_due_before_the_start_comes_soon_after_it() {
    let mut world = World::new();
    let warn = WarnSignal {
        signal: 12,
        before_s: 120,
        batch_only: false,
    };
    let id = world.submit(JobSpec {
        warn_signal: Some(warn),
        ..limited(2)
    });
    world.start(id, &[0]);
    world.pass(14);
    assert!(world.effects.is_empty());
    world.pass(1);
    assert_eq!(world.effects.len(), 1);
    assert!(matches!(
        world.effects[0],
        Effect::Signal { signal: 12, .. }
    ));
}

#[test]
fn a_held_job_is_not_too_late_before_its_deadline() {
    let mut world = World::new();
    let held = world.submit(JobSpec {
        deadline: Some(world.now.plus_s(300)),
        hold: true,
        ..limited(6)
    });
    world.tick();
    assert_eq!(world.state_of(held).0, JobState::Pending);
    let release = UserCommand::Release {
        target: target(held),
    };
    world.must(1000, release);
    world.tick();
    assert_eq!(world.state_of(held), (JobState::Deadline, Reason::DeadLine));
    let forgotten = world.submit(JobSpec {
        deadline: Some(world.now.plus_s(300)),
        hold: true,
        ..limited(6)
    });
    world.pass(300);
    world.tick();
    assert_eq!(world.state_of(forgotten).0, JobState::Deadline);
}

#[test]
fn deadlines_end_what_cannot_make_it() {
    let mut world = World::new();
    let deadline = Some(world.now.plus_s(300));
    let waits = world.submit(JobSpec {
        deadline,
        ..limited(2)
    });
    // One that has too little time from the start is taken all the same, as by Slurm 22.05.
    let long = world.submit(JobSpec {
        deadline,
        ..limited(6)
    });
    let later = world.submit(JobSpec {
        deadline,
        ..limited(6)
    });
    world.start(long, &[1]);
    assert_eq!(world.job(long).time_limit, TimeLimit::Minutes(5));
    world.tick();
    assert_eq!(
        world.state_of(later),
        (JobState::Deadline, Reason::DeadLine)
    );
    let endless = world.submit(JobSpec {
        deadline,
        ..spec("j")
    });
    world.start(endless, &[0]);
    assert_eq!(world.job(endless).time_limit, TimeLimit::Minutes(5));
    world.pass(180);
    assert_eq!(
        world.job(waits).state,
        JobState::Pending,
        "a start now would do"
    );
    world.now = world.now.plus_ms(1);
    world.tick();
    assert_eq!(
        world.state_of(waits),
        (JobState::Deadline, Reason::DeadLine)
    );
    world.pass(120);
    assert_eq!(
        world.state_of(endless),
        (JobState::Deadline, Reason::DeadLine)
    );
    world.release(endless);
    world.check_replay();
}

#[test]
fn ended_jobs_leave_when_they_are_old_and_accounted() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    world.finish(id, 0);
    assert_eq!(
        world.state.next_tick(world.now),
        Some(world.now.plus_s(300))
    );
    world.pass(299);
    assert!(world.state.jobs.contains_key(&id));
    world.now = world.now.plus_s(1);
    world.run(Command::Tick { accounted: false });
    assert!(
        world.state.jobs.contains_key(&id),
        "accounting has not got it yet"
    );
    assert_eq!(
        world.state.next_tick(world.now),
        Some(world.now.plus_s(1)),
        "asked again, not at once"
    );
    world.tick();
    assert!(world.state.jobs.is_empty());
    assert_eq!(world.state.next_job_id, 2, "numbers are not used again");
    assert_eq!(world.state.next_tick(world.now), None);
    let mut world = World::with(ClusterConfig {
        min_job_age_s: 0,
        ..config()
    });
    let id = world.submit(spec("j"));
    world.cancel(1000, target(id));
    world.pass(1_000_000);
    assert!(world.state.jobs.contains_key(&id), "zero keeps all");
    assert_eq!(world.state.next_tick(world.now), None);
}

#[test]
fn some_exit_codes_bring_a_job_back() {
    let mut world = World::with(ClusterConfig {
        requeue_exit: vec![ExitCodeRange { first: 3, last: 5 }],
        requeue_exit_hold: vec![ExitCodeRange { first: 9, last: 9 }],
        ..config()
    });
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    world.finish(id, 4);
    let job = world.job(id);
    assert_eq!(
        (job.state, job.hold, job.restarts),
        (JobState::Pending, Hold::None, 1)
    );
    world.start(id, &[0]);
    world.finish(id, 9);
    let job = world.job(id);
    assert_eq!(
        (job.state, job.hold, job.special_exit),
        (JobState::Pending, Hold::User, true)
    );
    world.must(1000, UserCommand::Release { target: target(id) });
    world.start(id, &[0]);
    world.finish(id, 6);
    assert_eq!(
        world.state_of(id),
        (JobState::Failed, Reason::NonZeroExitCode)
    );
    world.check_replay();
}

/// Otherwise it would keep controller, accounting and nodes busy for ever.
#[test]
fn a_script_that_asks_to_be_run_again_and_again_has_to_wait() {
    let mut world = World::with(config());
    let marked = JobSpec {
        shown: vec![(COMMAND.to_owned(), "qsub".to_owned())],
        ..spec("j")
    };
    let id = world.submit(marked);
    let mut waits = Vec::new();
    for _ in 0..3 {
        world.start(id, &[0]);
        world.finish(id, 99);
        waits.push(world.job(id).begin_at);
    }
    assert!(waits[0].is_none() && waits[1].is_none(), "{waits:?}");
    assert!(waits[2].is_some(), "{waits:?}");
}

#[test]
fn a_script_of_grid_engine_asks_to_be_run_again_by_its_exit_code() {
    let mut world = World::with(config());
    let marked = JobSpec {
        shown: vec![(COMMAND.to_owned(), "qsub".to_owned())],
        ..spec("j")
    };
    let id = world.submit(marked);
    world.start(id, &[0]);
    world.finish(id, 99);
    let job = world.job(id);
    assert_eq!(
        (job.state, job.hold, job.restarts, job.special_exit),
        (JobState::Pending, Hold::None, 1, false)
    );
    world.start(id, &[0]);
    world.finish(id, 100);
    let job = world.job(id);
    assert_eq!((job.state, job.special_exit), (JobState::Pending, true));
    assert_ne!(job.hold, Hold::None);
    world.must(1000, UserCommand::Release { target: target(id) });
    assert!(!world.job(id).special_exit);
    for code in [99, 100] {
        let other = world.submit(spec("of sbatch"));
        world.start(other, &[1]);
        world.finish(other, code);
        assert_eq!(
            world.state_of(other),
            (JobState::Failed, Reason::NonZeroExitCode)
        );
    }
    world.check_replay();
}

/// slurm.conf(5): `cred_expire` of AuthInfo "also controls how long a requeued job must wait before starting again".
#[test]
fn a_requeued_job_waits_as_the_configuration_says() {
    let mut world = World::with(ClusterConfig {
        requeue_wait_s: 60,
        ..config()
    });
    let requeue = |id| UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    let job = world.submit(spec("j"));
    for ends_first in [false, true] {
        assert!(world.start(job, &[0]));
        if ends_first {
            world.finish(job, 0);
        }
        world.must(0, requeue(job));
        if !ends_first {
            world.end_batch(job, 0);
            world.release(job);
        }
        world.tick();
        assert_eq!(world.state_of(job), (JobState::Pending, Reason::BeginTime));
        assert!(!world.start(job, &[0]), "it waits");
        world.pass(61);
    }
}
