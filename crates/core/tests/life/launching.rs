//! What a launch waits for, and launches that fail again and again.

use crate::nodes::launch_failed;
use crate::world::{World, allocation, config, exit, spec, step, step_end, target};
use muster_core::event::Event;
use muster_model::command::{Command, JobSelection, NodeCommand, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::effect::Effect;
use muster_model::ids::{Attempt, JobId, NodeIdx, StepNo};
use muster_model::job::{Hold, JobState, Phase, Reason};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

#[test]
fn a_job_waits_for_the_controllers_prolog() {
    let mut world = World::with(ClusterConfig {
        prolog_slurmctld: true,
        ..config()
    });
    let ended = |world: &mut World, id: JobId, attempt: u32, well: bool| {
        world.run(Command::PrologEnded {
            job: id,
            attempt: Attempt(attempt),
            well,
        });
    };
    let launches = |world: &World| {
        let launched = |e: &&Effect| matches!(e, Effect::Launch { .. });
        world.effects.iter().filter(launched).count()
    };
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1]));
    assert!(world.job(id).configuring && launches(&world) == 0);
    world.register(0, "boot1", &[]);
    assert!(world.state.orders_for_node(NodeIdx(0), &[]).is_empty());
    assert_eq!(
        world.refused(0, UserCommand::Suspend { target: target(id) }),
        RefusalCode::JobPending
    );
    ended(&mut world, id, 7, true);
    assert!(world.job(id).configuring, "that was another launch");
    ended(&mut world, id, 1, true);
    assert_eq!((launches(&world), world.job(id).configuring), (2, false));
    ended(&mut world, id, 1, false);
    assert_eq!(world.job(id).state, JobState::Running, "once is enough");
    world.finish(id, 0);
    // It fails: a batch job goes back to the queue, an allocation ends.
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    ended(&mut world, id, 1, false);
    world.release(id);
    assert_eq!(world.job(id).state, JobState::Pending);
    let held = world.submit(allocation("a"));
    world.start(held, &[0]);
    ended(&mut world, held, 1, false);
    world.release(held);
    assert_eq!(world.job(held).state, JobState::Cancelled);
    // It is cancelled meanwhile.
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    world.must(
        1000,
        UserCommand::Cancel {
            selection: JobSelection {
                targets: vec![target(id)],
                ..JobSelection::default()
            },
        },
    );
    ended(&mut world, id, 1, true);
    assert_eq!(launches(&world), 0);
    world.release(id);
    assert_eq!(world.job(id).state, JobState::Cancelled);
    world.check_replay();
}

#[test]
fn a_job_whose_launches_fail_again_and_again_is_held() {
    let mut world = World::with(ClusterConfig {
        max_batch_requeue: Some(2),
        ..config()
    });
    let id = world.submit(spec("j"));
    for node in [0, 1] {
        assert!(world.start(id, &[node]));
        launch_failed(&mut world, id, node, true);
        assert_eq!(
            world.state_of(id),
            (JobState::Pending, Reason::LaunchBackoff)
        );
        world.pass(1000);
    }
    // A restart is no failed launch.
    assert!(world.start(id, &[2]));
    let target = target(id);
    world.must(
        0,
        UserCommand::Requeue {
            target,
            hold: false,
            special_exit: false,
            incomplete: false,
        },
    );
    world.release(id);
    world.pass(1000);
    assert!(world.start(id, &[2]));
    launch_failed(&mut world, id, 2, true);
    let job = world.job(id);
    assert_eq!((job.hold, job.priority), (Hold::Admin, 0));
    let detail = job.reason_detail.as_deref().unwrap_or("");
    assert!(
        detail.starts_with("launch failure limit exceeded"),
        "{detail}"
    );
}

#[test]
fn a_job_whose_prolog_fails_anywhere_goes_back_where_the_site_wants_that() {
    for (forced, state) in [(false, JobState::Failed), (true, JobState::Pending)] {
        let mut world = World::with(ClusterConfig {
            requeue_on_prolog_failure: forced,
            ..config()
        });
        let id = world.submit(JobSpec {
            requeue: Some(false),
            ..spec("j")
        });
        world.start(id, &[0, 1]);
        let attempt = world.job(id).attempt;
        world.node(
            1,
            NodeCommand::LaunchFailed {
                job: id,
                attempt,
                error: "Prolog /etc/prolog failed: exit status 4".to_owned(),
                node_fault: true,
                prolog: true,
                lack: false,
            },
        );
        world.release(id);
        assert_eq!(world.job(id).state, state);
        world.check_replay();
    }
}

/// Its owner's own hold made the hold of the system the owner's, and so did a requeue before the job was back.
#[test]
fn the_hold_after_failed_launches_is_an_administrators_whatever_its_owner_does() {
    let hold = |id| UserCommand::Hold {
        target: target(id),
        user: false,
    };
    let requeue = |id| UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    for (before, after) in [(true, false), (false, true), (false, false)] {
        let mut world = World::with(ClusterConfig {
            max_batch_requeue: Some(0),
            ..config()
        });
        let id = world.submit(spec("j"));
        assert!(world.start(id, &[0, 1]));
        if before {
            world.must(1000, hold(id));
        }
        launch_failed(&mut world, id, 0, true);
        assert_eq!(world.job(id).phase(), Phase::Requeueing);
        world.must(1000, if after { hold(id) } else { requeue(id) });
        world.release(id);
        let job = world.job(id);
        assert_eq!((job.phase(), job.hold), (Phase::Pending, Hold::Admin));
        let release = UserCommand::Release { target: target(id) };
        assert_eq!(world.refused(1000, release), RefusalCode::AccessDenied);
        world.check_replay();
    }
}

/// A step can have begun beside the launch that failed: what it reports of its end counts, and the node is held until then.
#[test]
fn a_failed_launch_keeps_its_node_until_the_steps_there_are_over() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    let attempt = world.job(id).attempt;
    let at = world.now;
    let started = NodeCommand::StepStarted {
        job: id,
        attempt,
        step: Box::new(step(0, at)),
    };
    world.node(0, started);
    let failed = NodeCommand::LaunchFailed {
        job: id,
        attempt,
        error: "no such directory".to_owned(),
        node_fault: false,
        prolog: false,
        lack: false,
    };
    world.node(0, failed);
    let job = world.job(id);
    assert_eq!((job.state, job.completing), (JobState::Failed, true));
    assert!(!job.nodes_held.is_empty());
    let ended = NodeCommand::StepEnded {
        job: id,
        attempt,
        step: StepNo(0),
        end: Box::new(step_end(world.now, exit(0))),
    };
    world.node(0, ended);
    assert!(matches!(
        &world.events[..],
        [Event::StepEnded { step: StepNo(0), end, .. }] if end.state == JobState::Completed
    ));
    world.node(0, NodeCommand::Released { job: id, attempt });
    assert!(world.job(id).is_over());
    world.check_replay();
}
