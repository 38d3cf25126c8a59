//! Temporary directories of jobs of the Grid Engine commands.

use super::*;
use muster_model::grid_engine::COMMAND;

/// One whose directory is being made.
fn launch(world: &mut World, job: u64) -> JobAttempt {
    let attempt = attempt_of(job);
    let mut of = grant(attempt, JobKind::Batch);
    let mut spec = (*of.spec).clone();
    spec.shown.push((COMMAND.to_owned(), "qsub".to_owned()));
    of.spec = std::sync::Arc::new(spec);
    world.order(Order::Launch(Box::new(of)));
    world.answer_look_ups();
    attempt
}

fn world(has_containers: bool) -> World {
    let mut world = World::new();
    world.has_tmp_dirs = true;
    world.has_containers = has_containers;
    world.attach();
    world
}

fn makers(world: &World) -> Vec<i32> {
    world.pids(|kind| matches!(kind, Kind::Programs(_, ProgramKind::TmpDir)))
}

fn has_none(world: &World, job: JobAttempt) -> bool {
    world.launcher.state.jobs[&job].has_no_tmp_dir
}

#[test]
fn none_is_made_unless_the_site_wants_it() {
    let mut world = World::new();
    world.attach();
    launch(&mut world, 1);
    assert_eq!((makers(&world).len(), world.scripts.len()), (0, 1));
}

/// A user who had put something in the way of a temporary directory had jobs of others fail, and nodes drained.
#[test]
fn a_temporary_directory_that_cannot_be_made_is_no_fault_of_the_node() {
    for has_containers in [false, true] {
        for status in [0, 1 << 8, 75 << 8, 9] {
            let mut world = world(has_containers);
            let job = launch(&mut world, 1);
            if has_containers {
                world.end_and_reap(world.program(job), 0);
            }
            assert_eq!((makers(&world).len(), world.scripts.len()), (1, 0));
            world.end_and_reap(world.program(job), status);
            assert_eq!(has_none(&world, job), status != 0);
            assert!(world.scripts.len() == 1 && world.outcome(job).is_none());
            // Steps that a launcher started meanwhile is given know it, too.
            world.crash();
            assert_eq!(has_none(&world, job), status != 0);
        }
    }
}

/// What makes a directory may be held in the kernel by another user: jobs waited for it, or failed.
#[test]
fn a_job_does_not_wait_for_a_late_temporary_directory() {
    let mut world = world(false);
    for number in 1..=8 {
        let job = launch(&mut world, number);
        assert!(!world.scripts.contains_key(&job));
        while !world.scripts.contains_key(&job) {
            assert!(world.fire_timer());
        }
        assert!(has_none(&world, job) && world.outcome(job).is_none());
    }
    // As many wait in the kernel as may: nothing is tried again.
    let late = world.launcher.state.node.late_tmp_dirs.clone();
    assert_eq!(late.len(), 8);
    let job = launch(&mut world, 9);
    assert!(world.scripts.contains_key(&job));
    let first = late.first().copied().unwrap();
    world.end_and_reap(first, 9);
    let job = launch(&mut world, 10);
    assert!(!world.scripts.contains_key(&job));
}

#[test]
fn a_job_begins_without_where_no_process_can_be_started() {
    let mut world = world(true);
    let job = launch(&mut world, 1);
    world.lacks = true;
    world.end(world.program(job), 0);
    world.lacks = true;
    world.reap();
    assert!(has_none(&world, job) && makers(&world).is_empty());
}
