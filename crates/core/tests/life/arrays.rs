//! Arrays: one record until tasks leave it.

use crate::world::{World, array, exit, spec, step_end, target, task};
use muster_core::event::Event;
use muster_model::command::{JobTarget, JobUpdate, NodeCommand, PlannedStart, Reply, UserCommand};
use muster_model::index_set::IndexSet;
use muster_model::job::{ArrayRole, JobState, Reason};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{ArraySpec, JobSpec};

fn submit(world: &mut World, last: u32, throttle: Option<u32>) -> muster_model::ids::JobId {
    world.submit(JobSpec {
        array: array(0, last, throttle),
        ..spec("a")
    })
}

#[test]
fn a_million_tasks_are_one_event_and_one_record() {
    let mut world = World::with(muster_model::config::ClusterConfig {
        max_job_count: 1_000_000,
        ..crate::world::config()
    });
    let base = submit(&mut world, 999_999, None);
    assert_eq!(world.state.jobs.len(), 1);
    let info = &world.state.arrays[&base];
    assert_eq!(
        (info.count, info.pending, info.unfinished),
        (1_000_000, 1_000_000, 1_000_000)
    );
    assert!(world.start(base, &[0]));
    assert_eq!(world.state.jobs.len(), 2);
    let id = world.task_id(base, 0);
    assert_eq!(world.job(id).array, ArrayRole::Task { base, index: 0 });
    world.cancel(1000, target(base));
    let endings = world
        .events
        .iter()
        .filter(|e| matches!(e, Event::JobEnding { .. }))
        .count();
    assert_eq!(
        (endings, world.events.len()),
        (2, 2),
        "the record and the running task"
    );
    world.release(id);
    assert_eq!(world.state.arrays[&base].unfinished, 0);
    world.pass(301);
    assert!(world.state.jobs.is_empty() && world.state.arrays.is_empty());
    world.check_replay();
}

#[test]
fn the_last_task_takes_over_the_arrays_record() {
    let mut world = World::new();
    let base = submit(&mut world, 2, None);
    let alloc = |world: &World| world.alloc(base, &[2], 1);
    let mut starts = Vec::new();
    for cpu in 0..3 {
        let mut alloc = alloc(&world);
        alloc.nodes[0].cpus = [cpu].into_iter().collect();
        starts.push(PlannedStart { job: base, alloc });
    }
    assert_eq!(world.plan(starts), 3);
    assert_eq!(world.task_id(base, 2), base);
    assert_eq!(world.job(base).array, ArrayRole::Task { base, index: 2 });
    let numbers: Vec<u64> = (0..3).map(|i| world.task_id(base, i).0).collect();
    assert_eq!(numbers, [2, 3, 1], "as Slurm numbers them");
    assert!(!world.start(base, &[1]), "it runs already");
    for index in 0..3 {
        let id = world.task_id(base, index);
        world.finish(id, index);
    }
    let info = &world.state.arrays[&base];
    assert_eq!((info.unfinished, info.failed, info.running), (0, 2, 0));
    world.check_replay();
}

#[test]
fn the_throttle_holds_and_can_be_changed() {
    let mut world = World::new();
    let base = submit(&mut world, 9, Some(2));
    assert_eq!(world.schedule(), 2);
    assert_eq!(world.schedule(), 0);
    let first = world.task_id(base, 0);
    world.end_batch(first, 0);
    assert_eq!(
        world.schedule(),
        1,
        "a task that is over makes room, though its nodes are not clean"
    );
    let throttle = |n| UserCommand::UpdateJob {
        target: target(base),
        update: Box::new(JobUpdate {
            array_throttle: Some(n),
            ..JobUpdate::default()
        }),
    };
    world.must(1000, throttle(0));
    assert_eq!(world.state.arrays[&base].throttle, None);
    assert!(world.schedule() > 3);
    world.check_replay();
}

#[test]
fn some_tasks_can_be_cancelled() {
    let mut world = World::new();
    let base = submit(&mut world, 9, None);
    world.start(base, &[0]);
    let mut some = IndexSet::default();
    some.insert_range(0, 3);
    world.cancel(
        1000,
        JobTarget {
            job: base,
            tasks: Some(some),
            component: None,
        },
    );
    let info = &world.state.arrays[&base];
    assert_eq!((info.pending, info.tasks.len(), info.running), (6, 4, 0));
    let ArrayRole::Pending { indices } = &world.job(base).array else {
        panic!("the record is left");
    };
    assert_eq!(indices.first(), Some(4));
    assert_eq!(
        world.refused(
            1000,
            UserCommand::Hold {
                target: task(base, 99),
                user: true
            }
        ),
        RefusalCode::InvalidJobId
    );
    let mut rest = IndexSet::default();
    rest.insert_range(4, 4_000_000_000);
    world.cancel(
        1000,
        JobTarget {
            job: base,
            tasks: Some(rest),
            component: None,
        },
    );
    assert_eq!(world.events.len(), 1, "all that is left is one record");
    assert_eq!(world.job(base).state, JobState::Cancelled);
    let mut never_ran = IndexSet::default();
    never_ran.insert_range(4, 9);
    let requeue = UserCommand::Requeue {
        target: JobTarget {
            job: base,
            tasks: Some(never_ran),
            component: None,
        },
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    assert_eq!(world.refused(1000, requeue), RefusalCode::NotRequeuable);
    let all = UserCommand::Requeue {
        target: target(base),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    let Reply::Done {
        changed: 4,
        refused,
    } = world.user(1000, all)
    else {
        panic!("the tasks that were cancelled one by one are run again");
    };
    assert_eq!(refused[0].1.code, RefusalCode::NotRequeuable);
}

#[test]
fn a_requeued_task_stays_its_own_record() {
    let mut world = World::new();
    let base = submit(&mut world, 3, Some(1));
    world.start(base, &[0]);
    let id = world.task_id(base, 0);
    world.must(
        1000,
        UserCommand::Requeue {
            target: task(base, 0),
            hold: false,
            special_exit: false,
            incomplete: false,
        },
    );
    world.release(id);
    assert_eq!(world.job(id).array, ArrayRole::Task { base, index: 0 });
    assert_eq!(world.state.arrays[&base].unstarted, 3);
    assert!(world.start(id, &[0]));
    assert!(!world.start(base, &[0]), "the throttle counts it");
    world.finish(id, 0);
    assert!(world.start(base, &[0]));
    world.check_replay();
}

#[test]
fn the_environment_of_tasks_knows_the_stride() {
    let mut world = World::new();
    let mut indices = IndexSet::default();
    [2, 6, 10].into_iter().for_each(|i| indices.insert(i));
    let base = world.submit(JobSpec {
        array: Some(ArraySpec {
            indices,
            throttle: Some(0),
        }),
        ..spec("a")
    });
    let info = &world.state.arrays[&base];
    assert_eq!(
        (info.count, info.min, info.max, info.step, info.throttle),
        (3, 2, 10, 4, None)
    );
}

#[test]
fn tasks_share_what_was_asked_for() {
    let mut world = World::new();
    let base = submit(&mut world, 20, None);
    world.schedule();
    let id = world.task_id(base, 0);
    assert!(std::sync::Arc::ptr_eq(
        &world.job(id).spec,
        &world.job(base).spec
    ));
    let attempt = world.job(id).attempt;
    let stale = NodeCommand::BatchEnded {
        job: id,
        attempt: muster_model::ids::Attempt(attempt.0 + 1),
        exit: exit(0),
        oom: false,
        end: step_end(world.now, exit(0)),
    };
    world.node(0, stale);
    assert_eq!(
        world.state_of(id),
        (JobState::Running, Reason::None),
        "another attempt's message"
    );
    let mut bytes = Vec::new();
    world.state.encode_snapshot(&mut bytes);
    let read = muster_core::state::State::decode_snapshot(&bytes).expect("snapshot");
    assert!(std::sync::Arc::ptr_eq(
        &read.jobs[&id].spec,
        &read.jobs[&base].spec
    ));
}

#[test]
fn a_site_bounds_the_tasks_of_an_array() {
    let mut config = crate::world::config();
    config.scheduler_parameters = vec!["max_array_tasks=3".into()];
    let mut w = World::with(config);
    let array = |last| JobSpec {
        array: crate::world::array(0, last, None),
        ..spec("j")
    };
    assert_eq!(w.refusal(array(3)), RefusalCode::ArrayTooLarge);
    w.submit(array(2));
}
