//! Cost of passes, by counting.

use crate::world::{World, job, wide};
use muster_model::job::Reason;
use muster_model::time::TimeLimit;
use muster_sched::{Cost, STARTS_PER_PASS_MAX};

#[test]
fn a_pass_after_an_end_does_not_touch_the_other_jobs() {
    let mut world = World::simple(10, 1);
    let first = world.submit(job(1, 30));
    for _ in 0..20_000 {
        world.submit(job(1, 30));
    }
    let started = world.pass();
    assert_eq!(started.len(), 10);
    assert!(world.sched.shapes() == 1);
    world.pass();
    for id in started.into_iter().take(5) {
        world.end(id);
        let plan = world.sched.plan(&world.state, world.now);
        assert_eq!(plan.starts.len(), 1);
        let cost = world.sched.cost();
        assert!(cost.shapes_visited <= 2, "{cost:?}");
        assert!(cost.nodes_visited <= 2, "{cost:?}");
        assert!(cost.jobs_visited <= 8, "{cost:?}");
        assert!(plan.reasons.len() <= 1, "{:?}", plan.reasons);
        world.commit(&plan);
    }
    assert_eq!(world.state.jobs[&first].reason, Reason::None);
}

/// Hundreds of shapes wait behind a reservation, all too long for the gap before it: an end looks at those alone that
/// what it freed may be enough for, and at the nodes that it freed.
#[test]
fn an_end_looks_only_at_shapes_that_what_it_freed_may_help() {
    let mut world = World::simple(200, 8);
    let runs: Vec<_> = (0..200).map(|i| world.submit(job(8, 60 + i))).collect();
    assert_eq!(world.pass().len(), 200);
    // The first in line needs half of the nodes, in two hours and more.
    world.submit(wide(100, 800, 60));
    for i in 0..600 {
        // Many tasks that may run anywhere, on single nodes, on several.
        let spec = match i % 3 {
            0 => job(9 + i, 3000 + i),
            1 => wide(1, 5 + i % 4, 3000 + i),
            _ => wide(2 + i % 9, 8 * (2 + i % 9), 3000 + i),
        };
        world.submit(spec);
    }
    assert_eq!(world.pass(), []);
    assert_eq!(world.sched.shapes(), 601);
    world.pass();
    // What becomes free is reserved, and they are all too long for it; but for two that come later.
    let ended = |world: &mut World, run, starts| {
        world.end(run);
        let plan = world.sched.plan(&world.state, world.now);
        let cost = world.sched.cost();
        assert_eq!(plan.starts.len(), starts, "{cost:?}");
        assert!(cost.shapes_visited <= 2, "{cost:?}");
        assert!(cost.shapes_compared <= 210, "{cost:?}");
        assert!(cost.nodes_visited <= 3, "{cost:?}");
        world.commit(&plan);
        world.pass();
    };
    ended(&mut world, runs[10], 0);
    let first = world.submit(job(8, 20));
    let second = world.submit(job(8, 20));
    assert_eq!(world.pass(), [first]);
    ended(&mut world, runs[199], 1);
    assert_ne!(world.place(second), "-");
}

#[test]
fn a_pass_in_which_nothing_changed_costs_nothing() {
    let mut world = World::simple(4, 4);
    for i in 0..50 {
        world.submit(job(1 + i % 4, 10 + i));
    }
    while !world.pass().is_empty() {}
    let plan = world.sched.plan(&world.state, world.now);
    assert_eq!(
        (plan, world.sched.cost()),
        (Default::default(), Cost::default())
    );
}

#[test]
fn a_submission_to_a_blocked_shape_is_not_tried() {
    let mut world = World::simple(4, 4);
    for _ in 0..50 {
        world.submit(wide(4, 16, 10));
    }
    while !world.pass().is_empty() {}
    let id = world.submit(wide(4, 16, 10));
    assert_eq!(world.pass(), []);
    assert_eq!(world.sched.cost().shapes_visited, 0);
    assert_eq!(world.reason(id), Reason::Priority);
}

#[test]
fn a_plan_is_bounded_and_says_that_there_is_more() {
    let mut world = World::simple(100, 64);
    world.array(job(1, 10), 6000, None);
    let first = world.pass();
    assert_eq!(
        (first.len(), world.sched.needs_another_plan()),
        (STARTS_PER_PASS_MAX, true)
    );
    let second = world.pass();
    assert_eq!(
        (second.len(), world.sched.needs_another_plan()),
        (6000 - STARTS_PER_PASS_MAX, false)
    );
    assert_eq!(world.pass(), []);
}

#[test]
fn reasons_are_told_once() {
    let mut world = World::simple(1, 1);
    world.submit(job(1, 10));
    let waiting: Vec<_> = (0..100).map(|_| world.submit(job(1, 10))).collect();
    let plan = world.sched.plan(&world.state, world.now);
    assert_eq!(plan.reasons.len(), 100);
    world.commit(&plan);
    let plan = world.sched.plan(&world.state, world.now);
    assert_eq!(plan.reasons, []);
    assert_eq!(world.reason(waiting[0]), Reason::Resources);
    assert_eq!(world.reason(waiting[99]), Reason::Priority);
}

/// A job that may be given less time waits for the nodes that it lacks like any other.
#[test]
fn a_job_that_may_have_less_time_is_not_tried_at_every_end() {
    let mut world = World::simple(8, 4);
    let runs: Vec<_> = (0..8).map(|i| world.submit(job(4, 100 + i))).collect();
    assert_eq!(world.pass().len(), 8);
    world.submit(wide(8, 32, 100));
    let mut shorter = wide(4, 16, 1000);
    shorter.time_min = Some(TimeLimit::Minutes(10));
    let shorter = world.submit(shorter);
    assert_eq!(world.pass(), []);
    world.pass();
    for run in &runs[..3] {
        world.end(*run);
        assert_eq!(world.pass(), []);
        let cost = world.sched.cost();
        assert_eq!(
            (cost.shapes_visited, cost.nodes_visited),
            (0, 0),
            "{cost:?}"
        );
    }
    world.end(runs[3]);
    assert_eq!(world.pass(), [shorter]);
}
