//! Searches whose length users could choose, by counting: numbers of tasks and devices, combinations of sockets, components
//! of heterogeneous jobs.

use crate::world::{World, cluster, job, node, nodes, partition, wide};
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::node::{GresConfig, NodeConfig};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{DeviceAsk, DeviceBinding, GresAsk, JobSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_sched::Cost;

fn half(right: bool) -> CpuSet {
    let first = 4 * u32::from(right);
    (first..first + 4).collect()
}

/// Two sockets of four cores, and two GPUs at these sockets.
pub(crate) fn two_sockets(name: &str, first: bool, second: bool) -> NodeConfig {
    NodeConfig {
        sockets: 2,
        cores_per_socket: 4,
        gres: vec![GresConfig {
            name: "gpu".into(),
            count: 2,
            near: vec![half(first), half(second)],
            ..GresConfig::default()
        }],
        ..node(name, 8, 1000)
    }
}

fn devices(name: &str, count: u64) -> Vec<GresAsk> {
    vec![GresAsk {
        name: name.into(),
        kind: None,
        count,
    }]
}

/// A GPU at each of two sockets.
pub(crate) fn at_both_sockets(mut spec: JobSpec) -> JobSpec {
    spec.ask.sockets_per_node = Some(2);
    spec.ask.devices = Some(Box::new(DeviceAsk {
        per_socket: devices("gpu", 1),
        ..DeviceAsk::default()
    }));
    spec
}

fn plan(world: &mut World) -> (Vec<JobId>, Cost) {
    let started = world.pass();
    (started, world.sched.cost())
}

/// With --overcommit and no number of tasks a node holds billions: they are not tried one after another where its sockets
/// do not have the devices.
#[test]
fn tasks_that_take_no_cpus_are_not_counted_down() {
    let lines = vec![
        two_sockets("n0", false, false),
        two_sockets("n1", false, true),
    ];
    let mut world = World::new(cluster(lines));
    let mut filler = job(8, 60);
    filler.ask.nodelist = Some("n1".into());
    let filler = world.submit(filler);
    assert_eq!(world.pass(), [filler]);
    let mut spec = at_both_sockets(wide(1, 1, 10));
    (spec.ask.ntasks, spec.ask.overcommit) = (None, true);
    let id = world.submit(spec);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!(cost.socket_tries < 100, "{cost:?}");
    world.end(filler);
    assert_eq!(world.pass(), [id]);
    assert_eq!(world.place(id), "n1:2");
}

/// Nodes of one kind with the same free CPUs and devices are decided once.
#[test]
fn equal_nodes_are_looked_at_once_to_the_socket() {
    let lines: Vec<NodeConfig> = (0..50)
        .map(|i| two_sockets(&format!("n{i}"), false, true))
        .collect();
    let mut world = World::new(cluster(lines));
    let mut filler = wide(50, 150, 60);
    (filler.ask.ntasks, filler.ask.ntasks_per_node) = (None, Some(3));
    let fillers = world.submit(filler);
    assert_eq!(world.pass(), [fillers]);
    // A CPU of one socket of each node is left, and all of the other.
    let mut spec = wide(2, 8, 10);
    spec.ask.ntasks_per_socket = Some(2);
    let id = world.submit(spec);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!((1..20).contains(&cost.socket_tries), "{cost:?}");
    world.end(fillers);
    assert_eq!(world.pass(), [id]);
}

/// A device that is only counted may be there by the hundred thousand.
#[test]
fn counted_devices_of_a_job_are_shared_out_at_once() {
    let line = |i: u32| {
        let mut line = two_sockets(&format!("n{i}"), false, true);
        line.gres.push(GresConfig {
            name: "tokens".into(),
            count: 100_000,
            ..GresConfig::default()
        });
        line
    };
    let mut world = World::new(cluster((0..4).map(line).collect()));
    for binding in [DeviceBinding::default(), DeviceBinding::Enforced] {
        let mut spec = wide(4, 8, 10);
        spec.ask.devices = Some(Box::new(DeviceAsk {
            per_job: devices("tokens", 360_000),
            binding,
            ..DeviceAsk::default()
        }));
        let id = world.submit(spec);
        let (started, cost) = plan(&mut world);
        assert_eq!(started, [id]);
        assert!(cost.socket_tries < 100, "{cost:?}");
        let alloc = world.state.jobs[&id].alloc.as_ref().unwrap();
        let given = alloc.nodes.iter().flat_map(|share| &share.gres);
        let given: Vec<u32> = given.map(|gres| gres.ids.len()).collect();
        assert_eq!(given, [100_000, 86_667, 86_667, 86_666]);
        world.end(id);
    }
}

/// As many nodes of one CPU, each busy until another time.
fn busy(count: u32) -> (World, Vec<JobId>) {
    let mut world = World::simple(count, 1);
    let runs = (0..count).map(|i| world.submit(job(1, 10 + i))).collect();
    assert_eq!(world.pass().len(), count as usize);
    (world, runs)
}

/// Components that ask for the same are placed in one order only.
#[test]
fn equal_components_are_not_tried_in_every_order() {
    let (mut world, runs) = busy(160);
    let ids = world.submit_het(vec![job(1, 10); 128]);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    // One for each component that has a place at each of the times at which another node is free, and one for the next.
    assert!(cost.het_placements <= 129 * 129, "{cost:?}");
    world.end(runs[0]);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!(cost.het_placements <= 129 * 129, "{cost:?}");
    for run in &runs[1..127] {
        world.end(*run);
    }
    // The last has no place until another job ends, which is looked for every ten minutes.
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!(cost.het_placements <= 20 * 128, "{cost:?}");
    world.end(runs[127]);
    assert_eq!(world.pass(), ids);
}

/// As long as no node changes, nodes are kept from the same time on.
#[test]
fn nodes_of_a_heterogeneous_job_are_not_looked_for_again() {
    let (mut world, runs) = busy(20);
    let ids = world.submit_het(vec![job(1, 10), job(2, 10)]);
    let (_, cost) = plan(&mut world);
    assert!(cost.het_placements > 4, "{cost:?}");
    let expected = world.state.jobs[&ids[0]].expected_start;
    assert!(expected.is_some());
    for minutes in 11..15 {
        world.now = world.now.plus_s(1);
        world.submit(job(1, minutes));
        let (started, cost) = plan(&mut world);
        assert!(started.is_empty());
        assert!(cost.het_placements <= 4, "{cost:?}");
        assert_eq!(world.state.jobs[&ids[0]].expected_start, expected);
    }
    world.end(runs[2]);
    let (_, cost) = plan(&mut world);
    assert!(cost.het_placements > 4, "{cost:?}");
    assert!(world.state.jobs[&ids[0]].expected_start < expected);
}

/// A job of many unequal components may have nodes kept from a later time than it could, and starts as soon as it fits.
#[test]
fn unequal_components_are_tried_in_few_orders() {
    let (mut world, runs) = busy(160);
    let specs = (0..128).map(|i| job(1, 500 - i)).collect();
    let ids = world.submit_het(specs);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!(cost.het_nodes <= 5_000_000, "{cost:?}");
    for run in &runs[..127] {
        world.end(*run);
    }
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!(cost.het_nodes <= 5_000_000, "{cost:?}");
    world.end(runs[127]);
    assert_eq!(world.pass(), ids);
}

/// A job of many unequal components is ahead of one that fits on what it leaves. It uses up what a pass looks at for such jobs, in
/// each pass; the other has its turn all the same.
#[test]
fn a_costly_heterogeneous_job_keeps_none_from_its_turn() {
    let (mut world, runs) = busy(160);
    world.submit_het((0..128).map(|i| job(1, 500 - i)).collect());
    assert!(plan(&mut world).0.is_empty());
    let last = world.submit_het(vec![job(1, 1), job(1, 2)]);
    let mut started = Vec::new();
    // Nodes change, so that the earliest time of the first is looked for again.
    for run in &runs[..4] {
        world.end(*run);
        let (now, cost) = plan(&mut world);
        assert!(cost.het_nodes >= 2_000_000, "{cost:?}");
        started.extend(now);
    }
    assert_eq!(started, last);
}

/// Components that fit in the last of their partitions only began with the first in each pass, which ended before all were placed.
#[test]
fn a_job_that_fits_in_its_last_partitions_starts() {
    let gpus = |i: u32| NodeConfig {
        gres: vec![GresConfig {
            name: "gpu".into(),
            count: 1,
            ..GresConfig::default()
        }],
        ..node(&format!("n{i}"), 2, 1000)
    };
    let (held, free) = (5000, 128);
    let all: Vec<NodeConfig> = (0..held + free).map(gpus).collect();
    let mut config = cluster(all.clone());
    let names: Vec<String> = (0..10).map(|i| format!("p{i}")).collect();
    let of = |(i, name): (usize, &String)| match i {
        9 => partition(name, &all[held as usize..]),
        _ => partition(name, &all[..held as usize]),
    };
    config.partitions = names.iter().enumerate().map(of).collect();
    let mut world = World::new(config);
    let mut holder = wide(held, held, 1000);
    holder.partitions = vec!["p0".into()];
    holder.ask.gres = devices("gpu", 1);
    let holder = world.submit(holder);
    assert_eq!(world.pass(), [holder]);
    let component = |i: u32| {
        let mut spec = job(1, 500 - i);
        spec.partitions.clone_from(&names);
        spec.ask.gres = devices("gpu", 1);
        spec
    };
    let mut short = job(1, 10);
    short.partitions = vec!["p9".into()];
    let runs: Vec<JobId> = (0..2).map(|_| world.submit(short.clone())).collect();
    assert_eq!(world.pass(), runs);
    let ids = world.submit_het((0..128).map(component).collect());
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!(cost.het_tried_nodes >= 4_000_000, "{cost:?}");
    world.end(runs[0]);
    let (started, cost) = plan(&mut world);
    assert_eq!(started, ids, "{cost:?}");
}

/// Nodes of which nothing is kept are not looked at again for each end: components of an ordinary job on many nodes wait for the
/// earliest time at which they fit.
#[test]
fn large_heterogeneous_jobs_wait_for_the_earliest_time() {
    let mut world = World::simple(10_000, 1);
    for i in 0..600 {
        world.submit(job(1, 10 + i));
    }
    world.submit(wide(9400, 9400, 1000));
    assert_eq!(world.pass().len(), 601);
    let ids = world.submit_het(vec![wide(70, 70, 30); 8]);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    // 560 nodes are free when as many jobs have ended.
    let expected = world.state.jobs[&ids[0]].expected_start;
    let earliest = world.now.plus_s((10 + 559) * 60);
    assert_eq!(expected, Some(earliest), "{cost:?}");
}

/// 128 components that each fit and that none is like another; together they need more nodes than there are.
fn too_many(nodes: u32) -> Vec<JobSpec> {
    (0..128).map(|i| wide(nodes, nodes, 500 - i)).collect()
}

/// It was the first in line for ever, and no job behind it had nodes kept.
#[test]
fn nobody_waits_behind_a_job_that_is_too_costly_to_judge() {
    for backfill in [true, false] {
        let mut config = cluster(nodes(400, 1));
        config.backfill = backfill;
        let mut world = World::new(config);
        let runs = world.submit(job(1, 100));
        assert_eq!(world.pass(), [runs]);
        let het = world.submit_het(too_many(4));
        let all = world.submit_with(wide(400, 400, 10), 100);
        let late = world.submit_with(job(1, 200), 10);
        let (started, cost) = plan(&mut world);
        assert!(started.is_empty());
        assert!(cost.het_tried_nodes >= 4_000_000, "{cost:?}");
        assert_eq!(cost.het_nodes, 0);
        assert_ne!(world.reason(het[0]), Reason::Resources);
        assert_eq!(world.reason(all), Reason::Resources);
        assert_eq!(world.state.jobs[&all].expected_start.is_some(), backfill);
        // It is not judged again.
        world.submit_with(job(1, 300), 1);
        let (started, cost) = plan(&mut world);
        assert!(started.is_empty());
        assert!(cost.het_tried_nodes < 1_000_000, "{cost:?}");
        world.end(runs);
        assert_eq!(world.pass(), [all]);
        world.end(all);
        assert!(world.pass().contains(&late));
    }
}

/// All were judged in one pass, before any limit was looked at.
#[test]
fn costly_jobs_are_judged_in_turns() {
    let mut world = World::simple(400, 1);
    let most = world.submit(wide(399, 399, 1000));
    assert_eq!(world.pass(), [most]);
    for _ in 0..4 {
        world.submit_het(too_many(4));
    }
    let last = world.submit_het(vec![job(1, 1), job(1, 2)]);
    let mut passes = 0;
    loop {
        let (started, cost) = plan(&mut world);
        assert!(started.is_empty());
        assert!(cost.het_tried_nodes <= 4_500_000, "{cost:?}");
        passes += 1;
        if !world.sched.needs_another_plan() {
            break;
        }
    }
    assert_eq!(
        passes, 5,
        "each has its turn, and then there is nothing more to do"
    );
    assert_eq!(world.reason(last[0]), Reason::Resources);
    let expected = world.now.plus_s(1000 * 60);
    assert_eq!(world.state.jobs[&last[0]].expected_start, Some(expected));
    world.end(most);
    let mut started = Vec::new();
    while started.is_empty() {
        let (now, cost) = plan(&mut world);
        assert!(cost.het_tried_nodes <= 4_500_000, "{cost:?}");
        assert!(!now.is_empty() || world.sched.needs_another_plan());
        started = now;
    }
    assert_eq!(started, last);
}

/// A node of another partition says nothing of them.
#[test]
fn jobs_are_judged_again_when_nodes_of_their_partitions_change() {
    let all = nodes(8, 1);
    let mut config = cluster(all.clone());
    config.partitions = vec![partition("p", &all[..4]), partition("q", &all[4..])];
    let mut world = World::new(config);
    let most = world.submit(wide(3, 3, 1000));
    assert_eq!(world.pass(), [most]);
    world.submit_het(vec![wide(1, 1, 10), wide(2, 2, 10)]);
    let judged = |world: &mut World| {
        let (started, cost) = plan(world);
        assert!(started.is_empty());
        cost.het_tried_nodes
    };
    assert!(judged(&mut world) > 0);
    world.drain(7);
    assert_eq!(judged(&mut world), 0);
    world.drain(3);
    assert!(judged(&mut world) > 0);
}

/// That no end in sight makes room for all components was found out again in each pass, and nobody had nodes kept meanwhile.
#[test]
fn nobody_waits_behind_a_heterogeneous_job_for_which_no_time_is_known() {
    let mut world = World::simple(4, 1);
    let mut endless = job(1, 1);
    endless.time_limit = Some(TimeLimit::Unlimited);
    let endless = world.submit(endless);
    assert_eq!(world.pass(), [endless]);
    let busy = world.submit(job(1, 100));
    assert_eq!(world.pass(), [busy]);
    let het = world.submit_het(vec![wide(3, 3, 10), job(1, 20)]);
    let three = world.submit_with(wide(3, 3, 10), 100);
    let late = world.submit_with(job(1, 200), 10);
    let (started, cost) = plan(&mut world);
    assert!(
        started.is_empty(),
        "{late} would keep the other from its nodes"
    );
    assert!(cost.het_nodes > 0);
    assert!(world.state.jobs[&three].expected_start.is_some());
    world.now = world.now.plus_s(1);
    world.submit_with(job(1, 300), 5);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert_eq!(cost.het_nodes, 0, "it is known");
    world.end(endless);
    world.end(busy);
    assert_eq!(world.pass(), het);
}

/// A node whose first two GPUs are at the first socket, and the others at the other.
fn two_gpus_at_each_socket(name: &str) -> NodeConfig {
    let mut line = two_sockets(name, false, true);
    line.gres[0].count = 4;
    line.gres[0].near = [false, false, true, true].map(half).to_vec();
    line
}

/// 96 nodes whose GPUs at one of the sockets are held, on the first node for so many minutes, with four times as many jobs that end
/// one after the other; a job that needs both sockets is planned. When it is expected to start, when that was planned, and the
/// cost.
fn plan_at_both_sockets(first_min: u32) -> (Timestamp, Timestamp, Cost) {
    let count = 96;
    let lines = (0..count).map(|i| two_gpus_at_each_socket(&format!("n{i}")));
    let mut world = World::new(cluster(lines.collect()));
    let holders: Vec<JobId> = (0..count)
        .map(|i| {
            let mut holder = job(1, if i == 0 { first_min } else { 100_000 });
            holder.ask.nodelist = Some(format!("n{i}"));
            holder.ask.gres = devices("gpu", 2);
            holder.ask.devices = Some(Box::new(DeviceAsk {
                binding: DeviceBinding::Enforced,
                ..DeviceAsk::default()
            }));
            world.submit(holder)
        })
        .collect();
    assert_eq!(world.pass().len(), holders.len());
    let ends = (0..count * 4).map(|i| world.submit(job(1, 10 + i)));
    let ends = ends.count();
    assert_eq!(world.pass().len(), ends);
    let id = world.submit(at_both_sockets(wide(1, 2, 10)));
    let begun = world.now;
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    let start = world.state.jobs[&id]
        .expected_start
        .expect("a time is known");
    (start, begun, cost)
}

/// There were enough GPUs by number, but none at one of the sockets: each end of a job was a time at which all nodes were looked at.
#[test]
fn later_times_to_the_socket_are_bounded() {
    let (_, _, cost) = plan_at_both_sockets(100_000);
    assert!(
        (4_000_000..6_000_000).contains(&cost.later_nodes),
        "{cost:?}"
    );
}

/// Beyond the bound the last of all times alone was tried, which each job that starts moves on.
#[test]
fn some_times_are_tried_beyond_the_bound() {
    let (start, begun, cost) = plan_at_both_sockets(300);
    assert!(cost.later_nodes >= 4_000_000, "{cost:?}");
    let minutes = start.since_ms(begun) / 60_000;
    assert!((300..400).contains(&minutes), "{minutes}");
}

/// Nodes of two partitions that each have 64 jobs.
fn many_jobs_on_each_node(nodes: u32) -> World {
    let lines = (0..nodes).map(|i| node(&format!("n{i}"), 64, 1000));
    let mut config = cluster(lines.collect());
    config.partitions.push(partition("q", &config.nodes));
    let mut world = World::new(config);
    let count = nodes as usize * 64;
    for i in 0..count {
        world.submit(job(1, 100 + i as u32 % 500));
    }
    let mut running = 0;
    while running < count {
        let started = world.pass().len();
        assert!(started > 0);
        running += started;
    }
    world
}

/// 128 components had what becomes free on all nodes worked out 128 times, however many jobs there were on each: a second for
/// 1000 nodes of 64 jobs, which counted as little as if there were none.
#[test]
fn jobs_on_nodes_count_where_times_are_prepared() {
    let mut world = many_jobs_on_each_node(20);
    let few = world.submit_het(too_many(2).drain(..3).collect());
    plan(&mut world);
    assert!(world.state.jobs[&few[0]].expected_start.is_some());

    let mut world = many_jobs_on_each_node(200);
    let many: Vec<_> = (0..3).map(|_| world.submit_het(too_many(2))).collect();
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    // None of them costs what it would be.
    assert!(cost.het_nodes < 1_000_000, "{cost:?}");
    // As for others for which no time is known.
    assert!((many.iter()).all(|many| world.state.jobs[&many[0]].expected_start.is_none()));
    let late = world.submit_with(job(1, 10), 10);
    plan(&mut world);
    assert!(world.state.jobs[&late].expected_start.is_some());
    // Others have their turn in the same pass.
    let few = world.submit_het(too_many(2).drain(..3).collect());
    plan(&mut world);
    assert!(world.state.jobs[&few[0]].expected_start.is_some());
}

/// Whether a job starts at once is found out while the controller waits.
#[test]
fn what_is_to_start_at_once_is_not_searched_for_later_times() {
    let world = many_jobs_on_each_node(100);
    let now = |specs: &[JobSpec]| {
        let starts = world
            .sched
            .start_together_now(&world.state, specs, world.now);
        starts.map_err(|refusal| refusal.code)
    };
    assert_eq!(
        now(&too_many(2).drain(..3).collect::<Vec<_>>()),
        Err(RefusalCode::NotImmediate)
    );
    assert_eq!(now(&too_many(2)), Err(RefusalCode::NotImmediate));
    // Those that ask for the same are judged once.
    assert_eq!(
        now(&vec![wide(2, 2, 10); 128]),
        Err(RefusalCode::NotImmediate)
    );
}

/// What becomes free later was worked out all the same, for which busy nodes were too many while others were idle.
#[test]
fn components_start_on_idle_nodes_beside_many_jobs() {
    let mut world = many_jobs_on_each_node(100);
    let ids: Vec<JobId> = world.state.active.iter().copied().take(128).collect();
    ids.into_iter().for_each(|id| world.end(id));
    let specs: Vec<JobSpec> = (0..128).map(|i| job(1, 500 - i)).collect();
    let starts = |specs: &[JobSpec]| {
        let starts = (world.sched).start_together_now(&world.state, specs, world.now);
        starts.map_err(|refusal| refusal.code)
    };
    assert_eq!(starts(&specs), Ok(()));
    let more: Vec<JobSpec> = specs.iter().cloned().chain([job(1, 7)]).collect();
    assert_eq!(starts(&more), Err(RefusalCode::NotImmediate));
}

/// A job may name a thousand partitions, and the controller waits.
#[test]
fn partitions_in_which_a_job_is_to_start_at_once_are_bounded() {
    let mut world = World::simple(1000, 1);
    let all = world.submit(wide(1000, 1000, 10));
    assert_eq!(world.pass(), [all]);
    let starts = |partitions: usize| {
        let mut spec = job(1, 10);
        spec.partitions = vec!["p".into(); partitions];
        let starts = world.sched.starts_now(&world.state, &spec, world.now);
        starts.map_err(|refusal| refusal.code)
    };
    assert_eq!(starts(900), Err(RefusalCode::NotImmediate));
    assert_eq!(starts(1000), Err(RefusalCode::TooLong));
}

/// Only three times were tried for a job for which what becomes free alone was more than others had left, and then the last.
#[test]
fn times_are_tried_after_a_costly_preparation() {
    let mut world = many_jobs_on_each_node(200);
    let costly = world.submit_het((0..77).map(|i| job(1, 500 - i)).collect());
    let mut few = vec![job(1, 7), job(1, 8)];
    for node in 0..3 {
        let mut at_node = job(1, 10);
        at_node.ask.nodelist = Some(format!("n{node}"));
        few.push(at_node);
    }
    for spec in &mut few {
        spec.partitions = vec!["q".into()];
    }
    let few = world.submit_het(few);
    let begun = world.now;
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    assert!(cost.het_nodes > 4_000_000, "{cost:?}");
    assert!(world.state.jobs[&costly[0]].expected_start.is_some());
    let start = world.state.jobs[&few[0]].expected_start;
    let minutes = start.expect("a time is known").since_ms(begun) / 60_000;
    assert!((228..300).contains(&minutes), "{minutes}");
}

/// Each partition of each component was searched, also where an earlier one had room.
#[test]
fn no_partition_is_searched_after_one_with_room() {
    let all = nodes(150, 1);
    let mut config = cluster(all.clone());
    config.partitions = vec![partition("p", &all[..130])];
    let others = || (0..19).map(|i| format!("busy{i}"));
    for name in others() {
        config.partitions.push(partition(&name, &all[130..]));
    }
    let mut world = World::new(config);
    let first = world.submit(wide(130, 130, 100));
    let mut other = wide(20, 20, 1000);
    other.partitions = vec!["busy0".into()];
    let other = world.submit(other);
    assert_eq!(world.pass(), [first, other]);
    let mut spec = job(1, 10);
    spec.partitions.extend(others());
    let het = world.submit_het(vec![spec; 128]);
    let (started, cost) = plan(&mut world);
    assert!(started.is_empty());
    let expected = world.now.plus_s(100 * 60);
    assert_eq!(world.state.jobs[&het[0]].expected_start, Some(expected));
    assert!(cost.het_placements < 300, "{cost:?}");
}
