//! Room that is made beside reservations of other jobs, which are made again when it is there.

use super::{config, within};
use crate::world::{World, job, partition, wide};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::preemption::PreemptMode;
use muster_model::spec::JobSpec;
use muster_sched::Scheduler;

fn at(node: u32, spec: JobSpec) -> JobSpec {
    let mut spec = spec;
    spec.ask.nodelist = Some(format!("n{node}"));
    spec
}

/// Two nodes of four CPUs, and a partition `first` of the highest tier over one of them.
fn two_nodes(first: u32) -> ClusterConfig {
    let mut config = config(2, 4, PreemptMode::Cancel);
    let mut part = partition("first", &config.nodes[first as usize..=first as usize]);
    part.priority_tier = 20;
    config.partitions.push(part);
    config
}

/// Each reservation near the victims was made anew for each preempting job, with an outlook of the whole partition, and
/// counted against the budget of waiting jobs.
#[test]
fn reservations_made_anew_are_bounded() {
    let (count, parts) = (50, 40);
    let mut config = config(count, 64, PreemptMode::Cancel);
    for number in 0..parts {
        let mut part = partition(&format!("first{number}"), &config.nodes);
        part.priority_tier = 20;
        config.partitions.push(part);
    }
    let mut world = World::new(config);
    for node in 0..count {
        world.submit(at(node, job(1, 1000)));
        for minutes in 100..163 {
            world.submit(at(node, within("first0", job(1, minutes))));
        }
    }
    let mut running = 0;
    while running < count as usize * 64 {
        let started = world.pass().len();
        assert!(started > 0);
        running += started;
    }
    let waiting: Vec<JobId> = (0..parts)
        .map(|number| world.submit(within(&format!("first{number}"), job(64, 10))))
        .collect();
    let mut alone = Scheduler::new(&world.state);
    alone.plan(&world.state, world.now);
    let urgent = (0..8).map(|_| world.submit(within("mid", job(1, 10))).0);
    let urgent: Vec<u64> = urgent.collect();
    let plan = world.sched.plan(&world.state, world.now);
    let by: Vec<u64> = plan.preemptions.iter().map(|p| p.by.0).collect();
    assert_eq!(by, urgent);
    let cost = world.sched.cost();
    assert!(
        (3_900_000..4_050_000).contains(&cost.anew_nodes),
        "{cost:?}"
    );
    assert_eq!(cost.later_nodes, alone.cost().later_nodes);
    world.carry_out(plan);
    let is_planned = |id: &JobId| world.state.jobs[id].expected_start.is_some();
    assert!(waiting.iter().all(is_planned));
}

/// The same victims were refused in each pass although others could have made room.
#[test]
fn others_make_room_where_the_first_would_make_it_for_a_reservation() {
    let mut world = World::new(two_nodes(0));
    let brings_forward = world.submit(at(0, job(1, 300)));
    let other = world.submit(at(1, job(1, 300)));
    world.submit(at(0, within("first", job(3, 60))));
    world.submit(at(1, within("hi", job(3, 500))));
    assert_eq!(world.pass().len(), 4);
    // It waits for both jobs of its node, of which it can end only one.
    let first = world.submit(within("first", job(4, 60)));
    let urgent = world.submit(within("mid", job(1, 100)));
    let (victims, started) = world.preempting_pass();
    assert_eq!((victims, started), (vec![other.0], vec![]));
    assert!(world.state.jobs[&first].expected_start.is_some());
    world.clean(other);
    assert_eq!(world.preempting_pass(), (vec![], vec![urgent.0]));
    assert!(world.state.active.contains(&brings_forward));
}

/// A job that leaves for another after an hour kept all others from room that they would have used before a reservation.
#[test]
fn a_job_does_not_wait_for_those_who_leave_for_others() {
    let mut config = two_nodes(1);
    config.partitions[0].grace_time_s = 3600;
    let quick = partition("quick", &config.nodes);
    config.partitions.push(quick);
    let mut world = World::new(config);
    let slow = world.submit(at(0, job(4, 1000)));
    let victim = world.submit(at(1, within("quick", job(1, 50))));
    world.submit(at(1, within("first", job(3, 50))));
    assert_eq!(world.pass().len(), 3);
    let wide = world.submit(within("mid", job(4, 100)));
    assert_eq!(world.preempting_pass(), (vec![slow.0], vec![]));
    let first = world.submit(within("first", job(4, 60)));
    let urgent = world.submit(within("mid", job(1, 20)));
    let (victims, started) = world.preempting_pass();
    assert_eq!((victims, started), (vec![victim.0], vec![]));
    assert!(world.state.jobs[&first].expected_start.is_some());
    world.clean(victim);
    assert_eq!(world.preempting_pass(), (vec![], vec![urgent.0]));
    assert!(world.state.jobs[&wide].is_startable());
}

/// What a job gets was held for it for longer by the grace time of others that leave nodes on which it will not run.
#[test]
fn room_is_not_held_for_the_grace_time_of_others() {
    let mut config = two_nodes(1);
    config.partitions[0].grace_time_s = 3600;
    let quick = partition("quick", &config.nodes);
    config.partitions.push(quick);
    let mut world = World::new(config);
    let slow = world.submit(at(0, job(4, 1000)));
    let victim = world.submit(at(1, within("quick", job(1, 15))));
    world.submit(at(1, within("first", job(3, 10))));
    assert_eq!(world.pass().len(), 3);
    world.submit(within("mid", job(4, 100)));
    assert_eq!(world.preempting_pass(), (vec![slow.0], vec![]));
    world.submit(within("mid", job(1, 20)));
    let last = world.submit(at(1, within("quick", job(4, 60))));
    assert_eq!(world.preempting_pass(), (vec![victim.0], vec![]));
    let start = world.state.jobs[&last].expected_start;
    assert_eq!(start, Some(world.now.plus_s(20 * 60)));
}

/// Jobs that had just been chosen for another counted as if they stayed: with their room as well, a reservation was brought
/// forward to that of a job for which more had to leave.
#[test]
fn jobs_chosen_for_others_leave_too() {
    let mut config = config(1, 6, PreemptMode::Cancel);
    let mut part = partition("first", &config.nodes);
    part.priority_tier = 20;
    config.partitions.push(part);
    let mut world = World::new(config);
    let large = world.submit(job(2, 300));
    let small = world.submit(job(1, 400));
    world.submit(within("first", job(3, 50)));
    assert_eq!(world.pass().len(), 3);
    let first = world.submit(within("first", job(2, 50)));
    let reserved = world.submit(within("first", job(6, 60)));
    let late = world.submit(within("mid", job(1, 100)));
    assert_eq!(world.preempting_pass(), (vec![large.0], vec![]));
    world.clean(large);
    assert_eq!(world.preempting_pass(), (vec![], vec![first.0]));
    assert!(world.state.jobs[&reserved].expected_start.is_some());
    assert!(world.state.jobs[&late].is_startable());
    assert!(world.state.active.contains(&small));
}

/// For each job, other victims were chosen after a refusal, however much earlier jobs had cost.
#[test]
fn searches_after_refusals_are_bounded() {
    let mut world = refused_shapes(200, |config| {
        let words = &mut config.scheduler_parameters;
        words.push("bf_promises=2".to_owned());
    });
    let plan = world.sched.plan(&world.state, world.now);
    assert!(plan.preemptions.is_empty(), "{:?}", plan.preemptions);
    let cost = world.sched.cost();
    assert!(
        (4_000_000..4_500_000).contains(&cost.victim_nodes),
        "{cost:?}"
    );
    assert!(!world.sched.needs_another_plan());
}

/// The first search of each of hundreds of shapes, which makes hundreds of placements, counted as if it looked at each possible
/// victim once: a pass had no end for as long as there were shapes.
#[test]
fn first_searches_for_victims_end_a_pass_and_the_next_goes_on() {
    let mut world = refused_shapes(400, |_| ());
    let (mut passes, mut visited) = (0, 0);
    loop {
        let plan = world.sched.plan(&world.state, world.now);
        assert!(plan.preemptions.is_empty(), "{:?}", plan.preemptions);
        let cost = world.sched.cost();
        assert!(cost.victim_nodes < 4_500_000, "{cost:?}");
        (passes, visited) = (passes + 1, visited + cost.shapes_visited);
        let more = world.sched.needs_another_plan();
        world.carry_out(plan);
        if !more {
            break;
        }
    }
    assert!(
        (2..6).contains(&passes) && (401..410).contains(&visited),
        "{passes} {visited}"
    );
}

/// A hundred nodes, and jobs of so many shapes that may preempt for room that they would not keep.
fn refused_shapes(jobs: u32, set: impl FnOnce(&mut ClusterConfig)) -> World {
    let count = 100;
    let mut config = config(count, 4, PreemptMode::Cancel);
    let mut part = partition("first", &config.nodes);
    part.priority_tier = 20;
    config.partitions.push(part);
    set(&mut config);
    let mut world = World::new(config);
    for node in 0..count {
        world.submit(at(node, within("first", job(3, 50))));
        world.submit(at(node, job(1, 300)));
    }
    while world.state.active.len() < 2 * count as usize {
        assert!(!world.pass().is_empty());
    }
    // Each node that a job leaves is a node for it in 50 minutes.
    world.submit(within("first", wide(1, 4, 60)));
    for more in 0..jobs {
        let nodes = 16 + more % 8;
        world.submit(within("mid", wide(nodes, nodes, 61 + more / 8)));
    }
    world
}

/// Running jobs that a waiting job may not preempt were compared with it, and counted nothing: thousands of shapes beside
/// thousands of jobs of their own partition took the controller's turn for as long as they liked.
#[test]
fn jobs_that_may_not_be_preempted_count_as_looked_at() {
    let mut world = World::new(config(4, 16, PreemptMode::Cancel));
    for _ in 0..64 {
        world.submit(within("mid", job(1, 300)));
    }
    while world.state.active.len() < 64 {
        assert!(!world.pass().is_empty());
    }
    for minutes in 0..50 {
        world.submit(within("mid", job(1, 301 + minutes)));
    }
    let plan = world.sched.plan(&world.state, world.now);
    assert!(plan.preemptions.is_empty() && plan.starts.is_empty());
    let cost = world.sched.cost();
    assert!(cost.victim_nodes >= 50 * 64, "{cost:?}");
}
