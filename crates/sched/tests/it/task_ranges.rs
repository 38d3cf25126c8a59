//! Jobs that leave the number of their tasks open: each starts with the greatest number of its range that can be had then, and
//! waits for the least.

use crate::account_limits;
use crate::drawn::drawn;
use crate::searches::{at_both_sockets, two_sockets};
use crate::world::{World, cluster, job, wide};
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::spec::JobSpec;
use muster_model::task_range::TaskRange;

fn with_range(mut spec: JobSpec, parts: &[(u32, u32)]) -> JobSpec {
    let mut range = TaskRange {
        tasks_of_node: spec.ask.ntasks_per_node,
        ..TaskRange::default()
    };
    for (first, last) in parts {
        range.counts.insert_range(*first, *last);
    }
    range.check().unwrap();
    spec.ask.task_range = Some(Box::new(range));
    spec
}

/// `-pe mpi FIRST-LAST,...`.
fn open(parts: &[(u32, u32)], minutes: u32) -> JobSpec {
    with_range(job(parts[0].0, minutes), parts)
}

/// Tasks on each node that a job has now.
fn started(world: &mut World, spec: JobSpec) -> Vec<u32> {
    let id = world.submit(spec);
    assert_eq!(world.pass_by_core(), [id]);
    world.state.check_invariants().unwrap();
    let alloc = world.state.jobs[&id].alloc.as_ref().unwrap();
    assert_eq!(
        alloc.ntasks,
        alloc.nodes.iter().map(|s| s.tasks).sum::<u32>()
    );
    world.tasks(id)
}

#[test]
fn the_greatest_number_is_taken_that_can_be_had() {
    let of = |spec: JobSpec| started(&mut World::simple(3, 4), spec);
    assert_eq!(of(open(&[(2, 8)], 9)), [4, 4]);
    assert_eq!(of(open(&[(2, 9_999_999)], 9)), [4, 4, 4]);
    assert_eq!(of(open(&[(2, 2), (4, 7), (13, 20)], 9)), [4, 3]);
    // On one node.
    assert_eq!(of(with_range(wide(1, 2, 9), &[(2, 9)])), [4]);
    // With devices or CPUs for each.
    let mut two_each = open(&[(1, 9)], 9);
    two_each.ask.cpus_per_task = Some(3);
    assert_eq!(of(two_each), [1, 1, 1]);
    // Two or four on each node.
    let on_each = |each: u32, parts: &[(u32, u32)]| {
        let mut spec = wide(1, each, 9);
        spec.ask.ntasks_per_node = Some(each);
        with_range(spec, parts)
    };
    assert_eq!(of(on_each(2, &[(1, 2)])), [2, 2]);
    assert_eq!(of(on_each(4, &[(1, 1), (3, 9)])), [4, 4, 4]);
    assert_eq!(of(on_each(3, &[(1, 1), (4, 9)])), [3]);
}

#[test]
fn what_others_have_is_left_to_them() {
    let mut world = World::simple(2, 4);
    assert_eq!(started(&mut world, job(3, 30)), [3]);
    assert_eq!(started(&mut world, open(&[(2, 8)], 9)), [1, 4]);
    // With one number that can be had, it is the least.
    let waits = world.submit(open(&[(2, 8)], 9));
    assert_eq!(world.pass_by_core(), []);
    assert_eq!(world.reason(waits), Reason::Resources);
}

/// B needs both nodes when A ends. C, which is open, ends later: it takes the one CPU that B leaves, although three are free.
#[test]
fn nodes_that_are_kept_for_others_do_not_count() {
    let mut world = World::simple(1, 4);
    let specs = vec![job(1, 20), job(3, 20), open(&[(1, 4)], 40)];
    let ids: Vec<JobId> = vec![
        world.submit(specs[0].clone()),
        world.submit(wide(1, 4, 20)),
        world.submit(open(&[(1, 4)], 20)),
    ];
    let expected = "\
n0 AABB
n0 CCBB
n0 CCBB
n0 CCBB
";
    assert_eq!(drawn(&mut world, &ids, 6), expected);
    let mut world = World::simple(1, 4);
    let ids: Vec<JobId> = specs.into_iter().map(|spec| world.submit(spec)).collect();
    let third = ids[2];
    world.pass_by_core();
    assert_eq!(world.place(third), "-");
    let mut world = World::simple(1, 4);
    let ids = vec![
        world.submit(job(2, 20)),
        world.submit(job(3, 20)),
        world.submit(open(&[(1, 4)], 40)),
    ];
    let expected = "\
n0 AABB
n0 AABB
n0 CCCC
n0 ..BB
";
    assert_eq!(drawn(&mut world, &ids, 6), expected);
}

#[test]
fn limits_bound_the_number() {
    let mut world = account_limits::with("grptres=cpu=5", "", "", "");
    let spec = account_limits::of("u", open(&[(2, 16)], 9));
    assert_eq!(started(&mut world, spec), [4, 1]);
    let mut world = account_limits::with("maxtres=node=2", "", "", "");
    let spec = account_limits::of("u", open(&[(2, 16)], 9));
    assert_eq!(started(&mut world, spec), [4, 4]);
}

/// The search is by halves, and other jobs do not pay for it.
#[test]
fn few_numbers_are_tried() {
    let mut world = World::simple(1000, 8);
    assert_eq!(started(&mut world, job(4, 30)), [4]);
    let id = world.submit(with_range(wide(1, 1, 9), &[(1, 9_999_999)]));
    let plan = world.sched.plan(&world.state, world.now);
    assert_eq!((plan.starts[0].job, plan.starts[0].alloc.ntasks), (id, 8));
    let cost = world.sched.cost();
    assert!(cost.nodes_visited <= 16, "{cost:?}");
    world.commit(&plan);
    world.submit(open(&[(1, 9_999_999)], 9));
    let plan = world.sched.plan(&world.state, world.now);
    assert_eq!(plan.starts[0].alloc.ntasks, 998 * 8 + 4);
    let cost = world.sched.cost();
    assert!(cost.nodes_visited <= 5 * 1000, "{cost:?}");
}

/// What it takes to find a greater number counts as other searches do.
#[test]
fn searches_for_more_tasks_count_what_they_compare() {
    let of = |spec: JobSpec| {
        let mut world = World::new(cluster(vec![two_sockets("n0", false, true)]));
        let id = world.submit(spec);
        assert_eq!(world.pass(), [id]);
        world.sched.cost().socket_tries
    };
    let plain = of(at_both_sockets(wide(1, 2, 9)));
    let open = of(with_range(at_both_sockets(wide(1, 2, 9)), &[(2, 8)]));
    assert!(open > plain, "{open}, {plain}");
}
