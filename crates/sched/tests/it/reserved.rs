//! Reservations, drawn: rows are CPUs of nodes, columns are ten minutes each, letters are jobs by order of submission.
//! The core makes and ends the reservations and commits the plans.

use crate::drawn::drawn;
use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_core::event::JobChange;
use muster_model::command::{NameList, ReservationAsk, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::{JobState, Reason};
use muster_model::reservation::Flags;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_sched::Scheduler;

/// `StartTime=now+start Duration=minutes Nodes=nodes Users=all but nobody`.
fn ask(world: &World, name: &str, start_min: u64, minutes: u32, nodes: &str) -> ReservationAsk {
    ReservationAsk {
        name: Some(name.into()),
        start: Some(world.now.plus_s(start_min * 60)),
        duration: Some(TimeLimit::Minutes(minutes)),
        nodes: Some(nodes.into()),
        users: Some(NameList::AllBut(vec!["nobody".into()])),
        ..ReservationAsk::default()
    }
}

fn reserve(world: &mut World, ask: ReservationAsk) {
    world.admin(UserCommand::CreateReservation(Box::new(ask)));
}

fn inside(mut spec: JobSpec, name: &str) -> JobSpec {
    spec.reservation = Some(name.into());
    spec
}

fn scenario(world: &mut World, specs: Vec<JobSpec>, columns: usize) -> String {
    let ids: Vec<JobId> = specs.into_iter().map(|s| world.submit(s)).collect();
    drawn(world, &ids, columns)
}

#[test]
fn what_would_run_into_it_waits_until_it_is_over() {
    let mut world = World::simple(2, 1);
    let r = ask(&world, "r", 20, 30, "n0");
    reserve(&mut world, r);
    // A fits before it; B takes the other node; C would run into it and B has the other node.
    let specs = vec![job(1, 20), job(1, 60), job(1, 30)];
    let expected = "\
n0 AA...CCC
n1 BBBBBB
";
    assert_eq!(scenario(&mut world, specs, 9), expected);
}

/// The node is reserved for B when A leaves it: the reservation will be as far ahead then as it is now.
#[test]
fn one_that_floats_is_as_far_ahead_when_a_job_starts_later() {
    let mut world = World::simple(1, 1);
    let floating = ReservationAsk {
        flags: Flags::TIME_FLOAT,
        ..ask(&world, "r", 30, 600, "n0")
    };
    reserve(&mut world, floating);
    let first = world.submit(job(1, 20));
    let second = world.submit(job(1, 20));
    assert_eq!(world.pass_by_core(), [first]);
    let expected = world.state.jobs[&second].expected_start;
    assert_eq!(expected, Some(world.now.plus_s(20 * 60)));
}

#[test]
fn its_own_jobs_wait_for_its_begin_and_have_its_nodes() {
    let mut world = World::simple(2, 1);
    let r = ask(&world, "r", 20, 30, "n1");
    reserve(&mut world, r);
    let specs = vec![
        inside(job(1, 10), "r"),
        job(1, 20),
        job(1, 40),
        inside(job(1, 10), "r"),
    ];
    let expected = "\
n0 BBCCCC
n1 ..AD
";
    assert_eq!(scenario(&mut world, specs, 8), expected);
}

#[test]
fn a_job_inside_ends_with_it() {
    let mut world = World::simple(1, 2);
    let r = ask(&world, "r", 0, 30, "n0");
    reserve(&mut world, r);
    let a = world.submit(inside(job(1, 100), "r"));
    let b = world.submit(job(1, 10));
    assert_eq!(world.pass_by_core(), [a]);
    assert_eq!(world.reason(b), Reason::NodesReserved);
    world.now = world.now.plus_s(1800);
    world.tick();
    assert_eq!(world.state.jobs[&a].state, JobState::Timeout);
    assert!(world.state.reservations.is_empty());
    assert_eq!(world.pass_by_core(), [b]);
}

#[test]
fn every_day_at_the_same_time() {
    let mut world = World::simple(1, 1);
    let mut r = ask(&world, "r", 60, 60, "n0");
    r.flags = Flags::DAILY;
    reserve(&mut world, r);
    // A day without the hour is left to a job of 23 hours; one of 24 never fits.
    let long = world.submit(job(1, 23 * 60));
    let longer = world.submit(job(1, 24 * 60));
    let short = world.submit(job(1, 60));
    assert_eq!(world.pass_by_core(), [short]);
    assert_eq!(world.reason(longer), Reason::NodesReserved);
    world.now = world.now.plus_s(3600);
    world.end(short);
    world.tick();
    assert_eq!(world.pass_by_core(), []);
    world.now = world.now.plus_s(3600);
    world.tick();
    let next = world.state.reservations.get("r").unwrap();
    assert_eq!(next.start, world.now.plus_s(23 * 3600));
    assert_eq!(world.pass_by_core(), [long]);
    // It would run into tomorrow's whenever it began.
    world.now = world.now.plus_s(23 * 3600);
    world.end(long);
    world.tick();
    assert_eq!(world.pass_by_core(), []);
    assert_eq!(world.reason(longer), Reason::NodesReserved);
}

#[test]
fn maintenance_is_told_as_such() {
    let mut world = World::simple(2, 1);
    let mut r = ask(&world, "m", 30, 60, "ALL");
    r.flags = Flags::MAINT.with(Flags::IGNORE_JOBS);
    reserve(&mut world, r);
    let a = world.submit(job(1, 40));
    let b = world.submit(job(1, 30));
    let mut endless = job(1, 1);
    endless.time_limit = Some(TimeLimit::Unlimited);
    let c = world.submit(endless);
    assert_eq!(world.pass_by_core(), [b]);
    assert_eq!(world.reason(a), Reason::ReservedForMaintenance);
    assert_eq!(world.reason(c), Reason::ReservedForMaintenance);
    // Its expected start is the end of the maintenance.
    let expected = world.state.jobs[&a].expected_start;
    assert_eq!(expected, Some(world.now.plus_s(90 * 60)));
}

#[test]
fn cores_of_a_node() {
    let mut world = World::simple(1, 4);
    let mut r = ask(&world, "r", 0, 60, "n0");
    r.core_counts = vec![3];
    reserve(&mut world, r);
    let specs = vec![
        job(2, 10),
        job(1, 20),
        inside(job(2, 20), "r"),
        inside(job(2, 20), "r"),
    ];
    // Outside there is one core; the job of two waits for the end of the reservation.
    let expected = "\
n0 CCDD..A
n0 CCDD..A
n0 .......
n0 BB
";
    let expected = expected.replace(".......", "");
    let drawn = scenario(&mut world, specs, 8);
    let trimmed: Vec<&str> = drawn.lines().map(str::trim_end).collect();
    let wanted: Vec<&str> = expected.lines().map(str::trim_end).collect();
    assert_eq!(trimmed, wanted);
}

/// One pass places jobs inside and outside of a reservation on one node: the maximum of their partition counts both.
#[test]
fn a_partitions_most_cpus_of_a_node_count_inside_and_outside_together() {
    for (by_socket, inside_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut config = cluster(nodes(1, 8));
        match by_socket {
            true => config.partitions[0].max_cpus_per_socket = Some(4),
            false => config.partitions[0].max_cpus_per_node = Some(4),
        }
        let mut world = World::new(config);
        let cores = ReservationAsk {
            core_counts: vec![4],
            ..ask(&world, "r", 0, 60, "n0")
        };
        reserve(&mut world, cores);
        let mut specs = vec![job(3, 20), inside(job(3, 20), "r")];
        if inside_first {
            specs.reverse();
        }
        let ids: Vec<JobId> = specs.into_iter().map(|s| world.submit(s)).collect();
        let started = world.pass_by_core();
        assert_eq!(started.len(), 1, "{by_socket} {inside_first}: {started:?}");
        assert!(world.pass_by_core().is_empty());
        // What is left of the maximum is for either.
        let one = world.submit(job(1, 20));
        assert_eq!(world.pass_by_core(), [one]);
        world.end(started[0]);
        let second = ids.iter().find(|id| **id != started[0]);
        assert_eq!(world.pass_by_core().first(), second);
    }
}

/// A job that may have less time runs on cores that are reserved for later, until then.
#[test]
fn a_shorter_run_before_cores_are_reserved() {
    let mut world = World::simple(1, 4);
    let cores = ReservationAsk {
        core_counts: vec![4],
        ..ask(&world, "r", 20, 60, "n0")
    };
    reserve(&mut world, cores);
    let mut spec = job(2, 60);
    spec.time_min = Some(TimeLimit::Minutes(10));
    let id = world.submit(spec);
    assert_eq!(world.pass_by_core(), [id]);
    assert_eq!(world.place(id), "n0:2");
    assert!(world.state.jobs[&id].time_limit <= TimeLimit::Minutes(20));
}

/// Who may have less time than it wants at least, because its limit was changed, still starts.
#[test]
fn a_limit_below_the_least_time_is_a_limit() {
    let mut world = World::simple(1, 4);
    let mut spec = job(2, 60);
    spec.time_min = Some(TimeLimit::Minutes(30));
    let id = world.submit(spec);
    world.change(id, JobChange::TimeLimit(TimeLimit::Minutes(10)));
    assert_eq!(world.pass_by_core(), [id]);
}

#[test]
fn flexible_jobs_are_not_bound_to_it() {
    let mut world = World::simple(2, 1);
    let mut r = ask(&world, "r", 10, 30, "n0");
    r.flags = Flags::FLEX;
    reserve(&mut world, r);
    let specs = vec![job(1, 20), inside(job(1, 50), "r"), inside(job(1, 10), "r")];
    let expected = "\
n0 BBBBB
n1 AAC
";
    assert_eq!(scenario(&mut world, specs, 6), expected);
}

#[test]
fn magnetic_ones_draw_jobs_in() {
    let mut world = World::simple(2, 1);
    let mut r = ask(&world, "r", 0, 60, "n1");
    r.flags = Flags::MAGNETIC;
    reserve(&mut world, r);
    let a = world.submit(job(1, 20));
    let b = world.submit(job(1, 20));
    assert_eq!(world.pass_by_core(), [a, b]);
    let inside = |id: &JobId| {
        world.state.jobs[id]
            .alloc
            .as_ref()
            .unwrap()
            .reservation
            .clone()
    };
    assert_eq!((inside(&a), inside(&b)), (Some("r".into()), None));
}

#[test]
fn the_first_inside_is_protected_inside() {
    let mut world = World::simple(3, 1);
    let r = ask(&world, "r", 0, 120, "n[1-2]");
    reserve(&mut world, r);
    // B waits for both nodes of the reservation; C would delay it, D not; E is none of theirs.
    let specs = vec![
        inside(job(1, 30), "r"),
        inside(wide(2, 2, 20), "r"),
        inside(job(1, 40), "r"),
        inside(job(1, 30), "r"),
        job(1, 60),
    ];
    let expected = "\
n0 EEEEEE
n1 AAABBCCCC
n2 DDDBB
";
    assert_eq!(scenario(&mut world, specs, 9), expected);
}

#[test]
fn others_are_not_held_up_by_the_first_inside() {
    let mut config = cluster(nodes(2, 1));
    config.backfill = false;
    config.partitions = vec![partition("p", &config.nodes)];
    let mut world = World::new(config);
    let r = ask(&world, "r", 0, 60, "n1");
    reserve(&mut world, r);
    let specs = vec![
        inside(job(1, 30), "r"),
        inside(job(1, 20), "r"),
        job(1, 10),
        job(1, 10),
    ];
    let expected = "\
n0 CD
n1 AAABB
";
    assert_eq!(scenario(&mut world, specs, 6), expected);
}

#[test]
fn a_pass_does_not_look_at_what_others_reserved_again() {
    let mut world = World::simple(100, 2);
    let mut r = ask(&world, "r", 0, 600, "n[0-49]");
    r.flags = Flags::MAINT;
    reserve(&mut world, r);
    for minutes in 1..40 {
        world.submit(job(200, minutes));
    }
    world.pass_by_core();
    let a = world.submit(job(1, 10));
    assert_eq!(world.pass_by_core(), [a]);
    // The new job's lane, and nobody else's.
    assert!(
        world.sched.cost().shapes_visited <= 2,
        "{:?}",
        world.sched.cost()
    );
    assert_eq!(world.pass_by_core(), []);
    assert_eq!(world.sched.cost().shapes_visited, 0);
}

#[test]
fn jobs_of_a_reservation_that_is_gone_are_held_or_go_elsewhere() {
    for (flags, held) in [(Flags::default(), true), (Flags::NO_HOLD_JOBS_AFTER, false)] {
        let mut world = World::simple(1, 1);
        let mut r = ask(&world, "r", 0, 10, "n0");
        r.flags = flags;
        reserve(&mut world, r);
        let a = world.submit(inside(job(1, 60), "r"));
        let b = world.submit(inside(job(1, 60), "r"));
        assert_eq!(world.pass_by_core(), [a]);
        world.now = world.now.plus_s(600);
        world.tick();
        world.tick();
        let job = &world.state.jobs[&b];
        assert_eq!(job.spec.reservation, None);
        assert_eq!(job.reason == Reason::ReservationDeleted, held);
        assert_eq!(job.priority == 0, held);
    }
}

/// Who is behind another partition's first job and would run into a reservation as well is told the former: the latter
/// is known of the last try only, and planning anew would not say so once others have the reserved node.
#[test]
fn what_the_queue_says_comes_before_reservations() {
    let mut config = cluster(nodes(2, 1));
    let mut q = partition("q", &config.nodes[1..]);
    q.priority_tier = 2;
    config.partitions.push(q);
    let mut world = World::new(config);
    let in_q = |minutes| JobSpec {
        partitions: vec!["q".into()],
        ..job(1, minutes)
    };
    world.submit(in_q(60));
    let first_in_q = world.submit(in_q(60));
    world.pass_by_core();
    let r = ask(&world, "r", 20, 30, "n0");
    reserve(&mut world, r);
    let long = world.submit(job(1, 60));
    let short = world.submit(job(1, 10));
    assert_eq!(world.pass_by_core(), [short]);
    assert_eq!(world.reason(first_in_q), Reason::Resources);
    assert_eq!(world.reason(long), Reason::NodesUnavailable);
    // Nothing has changed for it, and a scheduler that begins now says the same.
    world.pass_by_core();
    assert_eq!(world.reason(long), Reason::NodesUnavailable);
    world.sched = Scheduler::new(&world.state);
    world.pass_by_core();
    assert_eq!(world.reason(long), Reason::NodesUnavailable);
}
