//! Temporary directories of jobs of the Grid Engine commands, and of steps.

use super::*;
use crate::messages::PmixOrder;
use muster_model::grid_engine::COMMAND;

/// A job of qsub.
fn launch(world: &mut World, attempt: JobAttempt) {
    let mut of = grant(attempt, JobKind::Batch);
    let mut spec = (*of.spec).clone();
    spec.shown.push((COMMAND.to_owned(), "qsub".to_owned()));
    of.spec = std::sync::Arc::new(spec);
    world.order(Order::Launch(Box::new(of)));
    world.answer_look_ups();
}

fn world(has_containers: bool) -> World {
    let mut world = World::new();
    world.has_tmp_dirs = true;
    world.has_containers = has_containers;
    world.attach();
    world
}

fn path(dir: &JobTmpDir) -> &str {
    dir.path.to_str().unwrap()
}

#[test]
fn one_is_for_jobs_of_qsub_alone_and_where_the_site_wants_it() {
    let mut none = World::new();
    none.attach();
    launch(&mut none, attempt_of(1));
    assert!(none.tmp_dirs.is_empty() && none.scripts.len() == 1);
    let mut world = world(false);
    world.launch(attempt_of(1), JobKind::Batch);
    assert!(world.tmp_dirs.is_empty());
    for job in [none.script(attempt_of(1)), world.script(attempt_of(1))] {
        none.end_and_reap(job, 0);
        world.end_and_reap(job, 0);
    }
    assert!(none.removed_tmp_dirs.is_empty() && world.removed_tmp_dirs.is_empty());
}

/// The launcher starts nothing for it before the job, and waits for nothing after it.
#[test]
fn nothing_waits_for_a_temporary_directory() {
    let mut world = world(false);
    let job = attempt_of(1);
    launch(&mut world, job);
    assert!(world.scripts.contains_key(&job));
    let dir = world.tmp_dirs[&job].clone();
    assert!(path(&dir).starts_with("/tmp/1.1.") && dir.uid == UID);
    world.end(world.script(job), 0);
    assert!(world.removed_tmp_dirs.is_empty());
    world.reap();
    assert!(world.is_released(job));
    assert_eq!(world.removed_tmp_dirs, [dir]);
}

/// What others can guess is not all that a job may use, and an attempt uses nothing of one before.
#[test]
fn names_differ_by_attempt_and_what_others_cannot_know() {
    let mut world = world(false);
    let first = attempt_of(1);
    let second = JobAttempt::new(first.job, Attempt(2));
    launch(&mut world, first);
    world.end_and_reap(world.script(first), 0);
    launch(&mut world, second);
    let dirs = [first, second].map(|attempt| world.tmp_dirs[&attempt].clone());
    assert_eq!(path(&dirs[1]), format!("{}.2", path(&dirs[0])));
    for dir in &dirs {
        let other = dir.other_path();
        let suffix = other.to_str().unwrap().strip_prefix(path(dir)).unwrap();
        assert_eq!((suffix.len(), dir.suffix.len()), (17, 16));
        assert_eq!(other.parent(), dir.path.parent());
    }
}

/// Steps are given the directory by the launcher, whatever an agent says; a launcher that was started meanwhile knows it, too, and has it
/// removed, also where `TmpFS` is another now.
#[test]
fn a_job_keeps_its_directory_when_the_launcher_is_started_anew() {
    let mut world = world(false);
    let job = attempt_of(1);
    launch(&mut world, job);
    let dir = world.tmp_dirs[&job].clone();
    world.crash();
    world.has_tmp_dirs = false;
    world.attach();
    let entry = &world.launcher.state.jobs[&job];
    assert_eq!(entry.tmp_dir(), Some(&dir));
    world.end_and_reap(world.script(job), 0);
    world.reap();
    assert!(world.is_released(job));
    assert_eq!(world.removed_tmp_dirs, [dir]);
}

/// It is in the job's own /tmp, and goes with that.
#[test]
fn one_in_a_directory_of_the_jobs_own_is_not_removed() {
    let mut world = world(true);
    let job = attempt_of(1);
    launch(&mut world, job);
    world.end_and_reap(world.program(job), 0);
    assert_eq!(path(&world.tmp_dirs[&job]), "/tmp/1.1.");
    world.end_and_reap(world.script(job), 0);
    world.end_and_reap(world.program(job), 0);
    world.reap();
    assert!(world.is_released(job) && world.removed_tmp_dirs.is_empty());
}

/// Everybody lists the names in /dev/shm and /tmp: those of steps with MPI showed the jobs of others.
#[test]
fn names_of_directories_of_steps_say_nothing_of_the_job() {
    let mut world = World::new();
    let job = attempt_of(4_711_000);
    world.launch(job, JobKind::Batch);
    let mut order = step_order(job, StepNo(0));
    order.pmix = Some(PmixOrder {
        nspace: "c.4711000.1@0".to_owned(),
        version: None,
        universe: 1,
        listen: "10.0.0.1".to_owned(),
        tmp_base: "/tmp".to_owned(),
        share_topology: false,
        early: false,
        timeout_s: 0,
        env: Vec::new(),
        pmi: false,
        cross_memory: None,
        plain_network: false,
        ucx: None,
        no_gpus: false,
        crowded_slack_us: 0,
        any: false,
    });
    world.deliver(Event::StartStep {
        order,
        random: Some(0x1234),
    });
    world.finish_wakeup();
    let dirs = &world.launcher.state.jobs[&job].steps[&StepNo(0)].dirs;
    assert_eq!(dirs.len(), 2);
    for dir in dirs {
        let name = dir.to_str().unwrap();
        assert!(is_step_dir(name) && name.ends_with(".0000000000001234"));
        let shown = ["4711000", &format!(".{UID}.")].map(|part| name.contains(part));
        assert_eq!(shown, [false, false], "{name}");
    }
}
