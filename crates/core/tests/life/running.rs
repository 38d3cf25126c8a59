//! What reaches into running jobs: limits of steps, and messages.

use crate::world::{World, config, spec, step, target};
use muster_core::event::Event;
use muster_model::command::{NodeCommand, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::effect::Effect;
use muster_model::ids::{JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{Job, JobState, Step, StepEnd};
use muster_model::limits::STEP_LINE_BYTES_MAX;
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::sync::Arc;

fn limit(id: JobId, step: Option<u32>, minutes: u32) -> UserCommand {
    UserCommand::UpdateStep {
        target: target(id),
        step: step.map(StepNo),
        time_limit: TimeLimit::Minutes(minutes),
    }
}

fn with_steps(numbers: &[u32]) -> (World, JobId) {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1]));
    for number in numbers {
        let attempt = world.job(id).attempt;
        let step = Box::new(step(*number, world.now));
        let job = id;
        world.node(0, NodeCommand::StepStarted { job, attempt, step });
    }
    (world, id)
}

#[test]
fn a_steps_limit_is_told_to_all_nodes_and_again_to_one_that_comes_back() {
    let (mut world, id) = with_steps(&[0, 1]);
    world.must(1000, limit(id, Some(1), 7));
    let attempt = world.job(id).attempt;
    let order = |node| Effect::StepLimit {
        node: NodeIdx(node),
        job: id,
        attempt,
        step: StepNo(1),
        limit: TimeLimit::Minutes(7),
    };
    assert_eq!(world.effects, [order(0), order(1)]);
    let limits: Vec<_> = world.job(id).steps.iter().map(|s| s.time_limit).collect();
    assert_eq!(limits, [None, None, Some(TimeLimit::Minutes(7))]);
    let again = world
        .state
        .orders_for_node(NodeIdx(1), &[JobAttempt::new(id, attempt)]);
    assert_eq!(again, [order(1)]);
    world.must(0, limit(id, None, 9));
    assert_eq!(world.effects.len(), 4);
    world.check_replay();
}

/// As often as a user asks for the same limit: nodes get it once, and nothing is written.
#[test]
fn a_limit_that_a_step_has_already_is_no_change() {
    let steps: Vec<u32> = (0..50).collect();
    let (mut world, id) = with_steps(&steps);
    world.must(1000, limit(id, None, 7));
    assert_eq!(world.effects.len(), 2 * steps.len());
    let written = world.history.len();
    for _ in 0..100 {
        world.must(1000, limit(id, None, 7));
        world.must(1000, limit(id, Some(3), 7));
        assert_eq!(world.effects, []);
    }
    assert_eq!(world.history.len(), written);
    world.must(1000, limit(id, Some(3), 8));
    world.must(1000, limit(id, None, 7));
    assert_eq!(world.effects.len(), 2, "one step on two nodes");
}

#[test]
fn limits_of_what_does_not_run_are_refused() {
    let (mut world, id) = with_steps(&[]);
    assert_eq!(
        world.refused(1000, limit(id, None, 1)),
        RefusalCode::AlreadyDone
    );
    assert_eq!(
        world.refused(1000, limit(id, Some(0), 1)),
        RefusalCode::AlreadyDone
    );
    let batch = limit(id, Some(StepNo::BATCH.0), 1);
    assert_eq!(world.refused(1000, batch), RefusalCode::AlreadyDone);
    assert_eq!(
        world.refused(7, limit(id, None, 1)),
        RefusalCode::AccessDenied
    );
    let pending = world.submit(spec("p"));
    assert_eq!(
        world.refused(1000, limit(pending, None, 1)),
        RefusalCode::JobPending
    );
}

#[test]
fn messages_are_one_line_and_change_nothing() {
    let (mut world, id) = with_steps(&[]);
    let say = |id, text: &str| UserCommand::Notify {
        target: target(id),
        text: text.to_owned(),
    };
    world.must(1000, say(id, "maintenance\nat 5"));
    let text = "maintenance at 5".to_owned();
    assert_eq!(world.effects, [Effect::SendMessage { job: id, text }]);
    assert!(world.events.is_empty());
    assert_eq!(world.refused(7, say(id, "x")), RefusalCode::AccessDenied);
    let pending = world.submit(spec("p"));
    assert_eq!(
        world.refused(1000, say(pending, "x")),
        RefusalCode::JobPending
    );
    let long = "x".repeat(1 << 20);
    world.refused(1000, say(id, &long));
}

#[test]
fn an_extern_step_has_all_nodes_and_ends_with_its_job() {
    let mut world = World::with(ClusterConfig {
        extern_steps: true,
        ..config()
    });
    let id = world.submit(spec("j"));
    world.start(id, &[0, 1]);
    let steps = |world: &World| {
        let steps = world.job(id).steps.iter();
        steps
            .map(|s| (s.step, s.hostlist.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        steps(&world),
        [
            (StepNo::BATCH, "n1".to_owned()),
            (StepNo::EXTERN, "n[1-2]".to_owned())
        ]
    );
    world.finish(id, 1);
    assert_eq!(steps(&world), []);
    let end = world.history.iter().find_map(|event| match event {
        Event::StepEnded { step, end, .. } if *step == StepNo::EXTERN => Some(end),
        _ => None,
    });
    let end = end.expect("it has ended");
    assert_eq!((end.state, end.exit.is_ok()), (JobState::Completed, true));
    world.check_replay();
}

/// The record of a job was copied with all texts of all steps that run for each step that began or ended.
#[test]
fn copies_of_a_record_share_its_steps() {
    let (mut world, id) = with_steps(&[0, 1, 2]);
    let places = |job: &Job| -> Vec<(StepNo, *const Step)> {
        let steps = job.steps.iter();
        steps.map(|s| (s.step, Arc::as_ptr(s))).collect()
    };
    let before = places(world.job(id));
    assert_eq!(before.len(), 4, "with that of the script");
    assert_eq!(places(&world.job(id).clone()), before);
    // The event, the draft that it is decided in and the state have one step.
    let attempt = world.job(id).attempt;
    let new = Box::new(Step {
        submit_line: "srun ".repeat(1000),
        ..step(3, world.now)
    });
    let started = NodeCommand::StepStarted {
        job: id,
        attempt,
        step: new,
    };
    world.node(0, started);
    let of_event = world.events.iter().find_map(|event| match event {
        Event::StepStarted { step, .. } => Some(Arc::as_ptr(step)),
        _ => None,
    });
    let after = places(world.job(id));
    assert_eq!(after[..4], before);
    assert_eq!(after[4..], [(StepNo(3), of_event.unwrap())]);
    // A limit changes one of them, an end none of the others.
    world.must(1000, limit(id, Some(1), 7));
    let limited = places(world.job(id));
    let differ = limited.iter().zip(&after).filter(|(a, b)| a != b);
    assert_eq!(differ.map(|(a, _)| a.0).collect::<Vec<_>>(), [StepNo(1)]);
    let ended = NodeCommand::StepEnded {
        job: id,
        attempt,
        step: StepNo(0),
        end: Box::new(StepEnd::never_ran(world.now)),
    };
    world.node(0, ended);
    let left = limited.into_iter().filter(|(no, _)| *no != StepNo(0));
    assert_eq!(places(world.job(id)), left.collect::<Vec<_>>());
    world.check_replay();
}

/// The tasks of an array have one specification, and each that ran had a copy of its command line, of up to a megabyte.
#[test]
fn the_step_of_a_script_has_the_beginning_of_the_command_line() {
    let mut world = World::new();
    let id = world.submit(JobSpec {
        submit_line: format!("sbatch {}", "x".repeat(50_000)),
        ..spec("j")
    });
    assert!(world.start(id, &[0]));
    let lengths: Vec<usize> = (world.job(id).steps.iter())
        .map(|s| s.submit_line.len())
        .collect();
    assert_eq!(lengths, [STEP_LINE_BYTES_MAX]);
    world.check_replay();
}
