//! Running jobs that give up nodes.

use crate::world::{World, spec, step, target};
use muster_model::command::{JobUpdate, NodeCommand, UserCommand};
use muster_model::effect::Effect;
use muster_model::ids::{JobAttempt, JobId, NodeIdx};
use muster_model::job::JobState;
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

fn update(id: JobId, update: JobUpdate) -> UserCommand {
    UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(update),
    }
}

fn nodes(world: &World, id: JobId, count: u32) -> UserCommand {
    let mut ask = world.job(id).spec.ask.clone();
    (ask.min_nodes, ask.max_nodes, ask.nodes_set) = (count, Some(count), true);
    let ask = Some(ask);
    update(
        id,
        JobUpdate {
            ask,
            ..JobUpdate::default()
        },
    )
}

fn list(id: JobId, list: &str) -> UserCommand {
    update(
        id,
        JobUpdate {
            nodelist: Some(list.to_owned()),
            ..JobUpdate::default()
        },
    )
}

fn running() -> (World, JobId) {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1, 2]));
    (world, id)
}

#[test]
fn a_job_gives_up_nodes_for_others_to_use() {
    let (mut world, id) = running();
    let before = world.state.accounts.clone();
    world.pass(60);
    let command = nodes(&world, id, 2);
    world.must(1000, command);
    let job = world.job(id);
    let alloc = job.alloc.as_ref().unwrap();
    assert_eq!((alloc.hostlist.as_str(), alloc.nodes.len()), ("n[1-2]", 2));
    assert_eq!((job.nodes_held.len(), job.state), (2, JobState::Running));
    assert_eq!((job.resize_time, job.resizes), (Some(world.now), 1));
    assert_ne!(before, world.state.accounts, "it is charged for less");
    assert_eq!(world.terminations(), [(2, id)]);
    assert!(world.launches().ends_with(&[(0, id), (1, id)]));
    let other = world.submit(spec("other"));
    assert!(world.start(other, &[2]));
    // What the node tells of the job now is nobody's business any more.
    let attempt = world.job(id).attempt;
    world.node(2, NodeCommand::Released { job: id, attempt });
    assert_eq!(world.job(id).state, JobState::Running);
    world.must(1000, list(id, "n1"));
    assert_eq!(world.job(id).alloc.as_ref().unwrap().hostlist, "n1");
    world.finish(id, 0);
    let job = world.job(id);
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.alloc.as_ref().unwrap().nodes.len(), 1);
    world.check_replay();
}

#[test]
fn it_gets_no_more_and_keeps_its_first_node() {
    let (mut world, id) = running();
    let more = nodes(&world, id, 4);
    assert_eq!(world.refused(1000, more), RefusalCode::NotSupported);
    for wrong in ["n2", "n[1-4]", "nosuch", "n[1"] {
        let refused = world.refused(1000, list(id, wrong));
        assert_eq!(refused, RefusalCode::InvalidNode, "{wrong}");
    }
    let fewer = nodes(&world, id, 1);
    assert_eq!(world.refused(1001, fewer), RefusalCode::AccessDenied);
    let mut ask = world.job(id).spec.ask.clone();
    ask.cpus_per_task = Some(2);
    let other = update(
        id,
        JobUpdate {
            ask: Some(ask),
            ..JobUpdate::default()
        },
    );
    assert_eq!(world.refused(1000, other), RefusalCode::JobNotPending);
    let same = nodes(&world, id, 3);
    world.must(1000, same);
    assert_eq!(world.job(id).resizes, 0);
    let waits = world.submit(spec("waits"));
    let refused = world.refused(1000, list(waits, "n1"));
    assert_eq!(refused, RefusalCode::JobPending);
}

#[test]
fn orders_that_were_lost_come_again() {
    let (mut world, id) = running();
    let (at, attempt) = (world.now, world.job(id).attempt);
    let step = Box::new(step(0, at));
    let started = NodeCommand::StepStarted {
        job: id,
        attempt,
        step,
    };
    world.node(0, started);
    world.node(0, NodeCommand::Lost);
    world.node(2, NodeCommand::Lost);
    world.must(0, list(id, "n[1-2]"));
    let again = world
        .state
        .orders_for_node(NodeIdx(0), &[JobAttempt::new(id, attempt)]);
    assert!(
        again.iter().any(|e| matches!(e, Effect::Launch { .. })),
        "{again:?}"
    );
    let ends = world
        .state
        .orders_for_node(NodeIdx(2), &[JobAttempt::new(id, attempt)]);
    assert!(matches!(ends[..], [Effect::Terminate { .. }]), "{ends:?}");
}

#[test]
fn a_job_that_can_do_without_a_node_has_what_is_left() {
    let mut world = World::new();
    let id = world.submit(JobSpec {
        no_kill: true,
        ..spec("j")
    });
    world.start(id, &[0, 1, 2]);
    world.must(0, crate::nodes::set("n2", "DOWN", Some("disk")));
    let job = world.job(id);
    assert_eq!(job.state, JobState::Running);
    assert_eq!(job.alloc.as_ref().unwrap().hostlist, "n[1,3]");
    assert_eq!(job.nodes_held.len(), 2);
    world.finish(id, 0);
    world.check_replay();
}

#[test]
fn jobs_keep_their_nodes_where_the_site_says_so() {
    let mut config = crate::world::config();
    config.scheduler_parameters = vec!["disable_job_shrink".into()];
    let mut world = World::with(config);
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1, 2]));
    let command = nodes(&world, id, 2);
    assert_eq!(world.refused(1000, command), RefusalCode::NotSupported);
    let command = list(id, "n1");
    assert_eq!(world.refused(1000, command), RefusalCode::NotSupported);
    // What names all that it has takes nothing away.
    world.must(1000, list(id, "n[1-3]"));
}

#[test]
fn orders_to_go_on_that_were_lost_come_again_with_the_smaller_allocation() {
    let (mut world, id) = running();
    let fewer = nodes(&world, id, 2);
    world.must(1000, fewer);
    world.must(0, UserCommand::Suspend { target: target(id) });
    // A clock that is set back gives the suspension no length.
    world.must(0, UserCommand::Resume { target: target(id) });
    let attempt = world.job(id).attempt;
    let orders = world
        .state
        .orders_for_node(NodeIdx(0), &[JobAttempt::new(id, attempt)]);
    assert!(
        matches!(
            orders[..],
            [Effect::Launch { .. }, Effect::Signal { signal: 18, .. }]
        ),
        "{orders:?}"
    );
    world.check_replay();
}

/// What is still cleaned up of a job that comes back was given to others.
#[test]
fn a_job_on_its_way_back_to_the_queue_keeps_its_nodes_until_they_are_clean() {
    let (mut world, id) = running();
    let requeue = UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    world.must(1000, requeue);
    let fewer = nodes(&world, id, 1);
    assert_eq!(world.refused(1000, fewer), RefusalCode::JobNotRunning);
    let refused = world.refused(1000, list(id, "n1"));
    assert_eq!(refused, RefusalCode::JobNotRunning);
    assert_eq!(world.job(id).nodes_held.len(), 3);
    world.release(id);
    assert_eq!(world.job(id).state, JobState::Pending);
}
