//! Placement by the network's shape: fewest leaves, the tightest leaf, waits for `--switches`; against the plainest
//! way to find the same.

use crate::world::{World, cluster, job, nodes, wide};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::spec::{JobSpec, Segments, Sharing};
use muster_model::topology::{Switch, SwitchAsk, Topology, TopologyKind};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Leaves of so many nodes each, named n0.. in order; `pairs` of neighbouring leaves have a switch above them, and one
/// is above all.
pub(crate) fn tree(leaves: &[u32], pairs: bool) -> Topology {
    let mut switches = Vec::new();
    let mut next = 0;
    for (count, i) in leaves.iter().zip(0..) {
        let names: Vec<String> = (next..next + count).map(|n| format!("n{n}")).collect();
        next += count;
        switches.push(Switch {
            name: format!("s{i}"),
            nodes: names.join(","),
            link_speed: 1,
            ..Switch::default()
        });
    }
    let mut below: Vec<u32> = (0..u32::try_from(leaves.len()).unwrap()).collect();
    let mut level = 0;
    if pairs {
        let groups: Vec<Vec<u32>> = below.chunks(2).map(<[u32]>::to_vec).collect();
        below.clear();
        level = 1;
        for children in groups {
            below.push(u32::try_from(switches.len()).unwrap());
            switches.push(Switch {
                name: format!("t{}", switches.len()),
                children,
                level: 1,
                ..Switch::default()
            });
        }
    }
    switches.push(Switch {
        name: "root".into(),
        children: below,
        level: level + 1,
        ..Switch::default()
    });
    Topology {
        name: "default".into(),
        kind: TopologyKind::Tree,
        switches,
        cluster_default: true,
        ..Topology::default()
    }
}

fn config(leaves: &[u32], cpus: u32, pairs: bool) -> ClusterConfig {
    let mut config = cluster(nodes(leaves.iter().sum(), cpus));
    config.topologies = vec![tree(leaves, pairs)];
    config
}

fn world(leaves: &[u32], cpus: u32) -> World {
    World::new(config(leaves, cpus, false))
}

fn on(mut spec: JobSpec, nodes: &str) -> JobSpec {
    spec.ask.nodelist = Some(nodes.into());
    spec
}

fn switches(mut spec: JobSpec, count: u32, wait_s: u64) -> JobSpec {
    spec.ask.switches = Some(SwitchAsk {
        count,
        wait_s: Some(wait_s),
    });
    spec
}

#[test]
fn a_job_takes_the_leaf_that_fits_best() {
    // n0-n3, n4-n6, n7-n8.
    let mut world = world(&[4, 3, 2], 1);
    let busy = world.submit(on(wide(3, 3, 60), "n[0,4,7]"));
    world.pass();
    assert_eq!(world.place(busy), "n0:1 n4:1 n7:1");
    let three = world.submit(wide(3, 3, 60));
    let two = world.submit(wide(2, 2, 60));
    let one = world.submit(job(1, 60));
    world.pass();
    assert_eq!(world.place(three), "n1:1 n2:1 n3:1");
    assert_eq!(world.place(two), "n5:1 n6:1");
    assert_eq!(world.place(one), "n8:1");
}

/// `-N1-9`: Slurm goes on at other leaves while fewer nodes than the most are found.
#[test]
fn a_range_of_node_counts_takes_nodes_of_several_leaves() {
    let mut world = world(&[4, 3, 2], 1);
    let range = |least: u32, most: u32| {
        let mut spec = job(1, 60);
        spec.ask.ntasks = None;
        spec.ask.nodes_set = true;
        spec.ask.min_nodes = least;
        spec.ask.max_nodes = Some(most);
        spec
    };
    let near = world.submit(switches(range(1, 9), 1, 3600));
    world.pass();
    assert_eq!(leaves_of(&world, near, &[4, 3, 2]).len(), 1);
    world.end(near);
    let most = world.submit(range(1, 8));
    world.pass();
    assert_eq!(world.place(most).split(' ').count(), 8);
    let rest = world.submit(range(1, 2));
    world.pass();
    assert_eq!(world.place(rest).split(' ').count(), 1);
}

#[test]
fn small_jobs_leave_empty_leaves_alone() {
    let mut world = world(&[2, 2, 2], 4);
    let first = world.submit(job(1, 60));
    let second = world.submit(wide(2, 2, 60));
    let whole = world.submit({
        let mut spec = wide(2, 8, 60);
        spec.ask.sharing = Sharing::Exclusive;
        spec
    });
    let third = world.submit(job(4, 60));
    world.pass();
    assert_eq!(world.place(first), "n0:1");
    assert_eq!(world.place(second), "n0:1 n1:1");
    assert_eq!(world.place(whole), "n2:4 n3:4");
    assert_eq!(world.place(third), "n4:4");
}

#[test]
fn a_job_too_large_for_a_leaf_takes_the_fewest_and_the_tightest_last() {
    let mut world = world(&[2, 3, 1, 2], 1);
    let wide = world.submit(wide(4, 4, 60));
    world.pass();
    assert_eq!(world.place(wide), "n2:1 n3:1 n4:1 n5:1");
}

#[test]
fn the_lowest_switch_comes_first() {
    // Leaves of 2 below t0 (n0-n3) and t1 (n4-n7).
    let mut world = World::new(config(&[2, 2, 2, 2], 1, true));
    world.submit(on(job(1, 60), "n0"));
    world.pass();
    let three = world.submit(wide(3, 3, 60));
    world.pass();
    assert_eq!(world.place(three), "n1:1 n2:1 n3:1");
    let five = world.submit(wide(5, 5, 60));
    world.pass();
    assert_eq!(world.place(five), "-");
}

#[test]
fn nodes_that_are_named_are_joined_by_their_neighbours() {
    let mut world = world(&[2, 3], 1);
    let id = world.submit(on(wide(2, 2, 60), "n3"));
    world.pass();
    assert_eq!(world.place(id), "n2:1 n3:1");
}

#[test]
fn a_wish_for_one_switch_is_met_at_once_where_it_can_be() {
    let mut world = world(&[2, 2], 1);
    let id = world.submit(switches(wide(2, 2, 60), 1, 60));
    world.pass();
    assert_eq!(world.place(id), "n0:1 n1:1");
}

#[test]
fn a_wish_for_one_switch_is_given_up_when_its_time_is_over() {
    let mut world = world(&[2, 2], 1);
    world.submit(on(wide(2, 2, 600), "n[0,2]"));
    let id = world.submit(switches(wide(2, 2, 60), 1, 60));
    let twin = world.submit(switches(wide(2, 2, 60), 1, 60));
    world.pass();
    assert_eq!(
        (world.place(id).as_str(), world.reason(id)),
        ("-", Reason::Resources)
    );
    assert_eq!(
        world.state.jobs[&id].expected_start,
        Some(world.now.plus_s(60))
    );
    assert_eq!(world.sched.next_look(), Some(world.now.plus_s(60)));
    // Both waits began together.
    assert!(world.state.jobs[&twin].switch_wait_since.is_some());
    world.now = world.now.plus_s(59);
    assert_eq!(world.pass(), []);
    world.now = world.now.plus_s(1);
    assert_eq!(world.pass(), [id]);
    assert_eq!(world.place(id), "n1:1 n3:1");
    assert_eq!(world.pass(), []);
    assert_eq!(world.sched.next_look(), None);
}

#[test]
fn a_wish_for_one_switch_is_met_when_another_job_ends() {
    let mut world = world(&[2, 2], 1);
    let other = world.submit(on(wide(2, 2, 2), "n[0,2]"));
    let id = world.submit(switches(wide(2, 2, 60), 1, 180));
    world.pass();
    assert_eq!(
        world.state.jobs[&id].expected_start,
        Some(world.now.plus_s(120))
    );
    world.now = world.now.plus_s(100);
    world.end(other);
    assert_eq!(world.pass(), [id]);
    assert_eq!(world.place(id), "n0:1 n1:1");
}

#[test]
fn the_site_limits_the_wait() {
    let mut config = config(&[1, 1], 1, false);
    config.scheduler_parameters = vec!["max_switch_wait=30".into()];
    let mut world = World::new(config);
    world.submit(switches(wide(2, 2, 60), 1, 3600));
    world.pass();
    assert_eq!(world.sched.next_look(), Some(world.now.plus_s(30)));
}

#[test]
fn a_wait_does_not_begin_while_nothing_is_free() {
    let mut world = world(&[1, 1], 1);
    let other = world.submit(wide(2, 2, 60));
    let id = world.submit(switches(wide(2, 2, 60), 1, 30));
    world.pass();
    assert_eq!(world.state.jobs[&id].switch_wait_since, None);
    world.now = world.now.plus_s(100);
    world.end(other);
    assert_eq!(world.pass(), []);
    assert_eq!(world.sched.next_look(), Some(world.now.plus_s(30)));
}

#[test]
fn an_optional_network_guides_only_those_who_ask() {
    let mut config = config(&[1, 2], 1, false);
    config.topologies[0].optional = true;
    let mut world = World::new(config);
    let plain = world.submit(wide(2, 2, 60));
    world.pass();
    assert_eq!(world.place(plain), "n0:1 n1:1");
    world.end(plain);
    let asking = world.submit(switches(wide(2, 2, 60), 1, 60));
    world.pass();
    assert_eq!(world.place(asking), "n1:1 n2:1");
}

#[test]
fn separate_networks_are_never_bridged() {
    let mut config = config(&[1, 1], 1, false);
    config.topologies[0].switches.pop();
    let mut world = World::new(config);
    let id = world.submit(wide(2, 2, 60));
    world.pass();
    assert_eq!(world.reason(id), Reason::BadConstraints);
}

#[test]
fn a_job_that_fits_into_a_block_waits_for_one() {
    // Blocks n0-n1 .. n6-n7 in groups of four nodes.
    let mut config = config(&[2, 2, 2, 2], 1, false);
    config.topologies[0].kind = TopologyKind::Block;
    config.topologies[0].switches.pop();
    config.topologies[0].block_sizes = vec![2, 4];
    let mut world = World::new(config);
    world.submit(on(wide(4, 4, 60), "n[1,3,5,6]"));
    let pair = world.submit(wide(2, 2, 60));
    world.pass();
    assert_eq!(
        (world.place(pair).as_str(), world.reason(pair)),
        ("-", Reason::Resources)
    );
    let mut world = World::new(world.state.config.as_deref().cloned().unwrap());
    let four = world.submit(wide(4, 4, 60));
    let all = world.submit(wide(3, 3, 60));
    world.pass();
    assert_eq!(world.place(four), "n0:1 n1:1 n2:1 n3:1");
    assert_eq!(world.place(all), "n4:1 n5:1 n6:1");
}

#[test]
fn a_job_that_fits_at_a_leaf_looks_at_no_other() {
    let mut world = world(&[8; 100], 4);
    for _ in 0..50 {
        world.submit(on(job(1, 600), "n0"));
    }
    let id = world.submit(wide(4, 16, 60));
    world.pass();
    world.end(id);
    let again = world.submit(wide(3, 12, 60));
    world.pass();
    assert_ne!(world.place(again), "-");
    let cost = world.sched.cost();
    assert!(cost.nodes_visited <= 8, "{cost:?}");
}

/// The level of the lowest switch above enough free nodes, and the fewest leaves below one such switch.
fn naive(leaves: &[u32], free: &[bool], wanted: usize, pairs: bool) -> Option<(usize, usize)> {
    let mut at = 0;
    let counts: Vec<usize> = leaves
        .iter()
        .map(|n| {
            let here = &free[at..at + *n as usize];
            at += *n as usize;
            here.iter().filter(|f| **f).count()
        })
        .collect();
    let all: Vec<usize> = (0..leaves.len()).collect();
    let mut levels: Vec<Vec<Vec<usize>>> = vec![all.iter().map(|l| vec![*l]).collect()];
    if pairs {
        levels.push(all.chunks(2).map(<[usize]>::to_vec).collect());
    }
    levels.push(vec![all]);
    for (level, groups) in levels.iter().enumerate() {
        let mut fewest = None;
        for group in groups {
            for set in 1u32..1 << group.len() {
                let chosen = group
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| set & (1 << i) != 0);
                let sum: usize = chosen.map(|(_, l)| counts[*l]).sum();
                let size = set.count_ones() as usize;
                if sum >= wanted && fewest.is_none_or(|f| size < f) {
                    fewest = Some(size);
                }
            }
        }
        if let Some(fewest) = fewest {
            return Some((level, fewest));
        }
    }
    None
}

fn leaf_of(leaves: &[u32], node: u32) -> usize {
    let mut end = 0;
    leaves
        .iter()
        .position(|n| {
            end += n;
            node < end
        })
        .unwrap()
}

fn leaves_of(world: &World, id: JobId, leaves: &[u32]) -> BTreeSet<usize> {
    let alloc = world.state.jobs[&id].alloc.as_ref().unwrap();
    alloc
        .nodes
        .iter()
        .map(|s| leaf_of(leaves, s.node.0))
        .collect()
}

proptest! {
    #[test]
    fn as_few_leaves_below_as_low_a_switch_as_can_be(
        leaves in proptest::collection::vec(1u32..5, 1..6),
        taken in proptest::collection::vec(any::<bool>(), 24),
        wanted in 1u32..8,
        pairs in any::<bool>(),
        limit in proptest::option::of(1u32..3),
    ) {
        let mut world = World::new(config(&leaves, 1, pairs));
        let total: u32 = leaves.iter().sum();
        prop_assume!(wanted <= total);
        let mut free = vec![true; total as usize];
        for node in (0..total).filter(|n| taken[*n as usize]) {
            world.submit(on(job(1, 60), &format!("n{node}")));
            free[node as usize] = false;
        }
        world.pass();
        let mut spec = wide(wanted, wanted, 60);
        if let Some(limit) = limit {
            spec = switches(spec, limit, 60);
        }
        let id = world.submit(spec);
        world.pass();
        let best = naive(&leaves, &free, wanted as usize, pairs);
        let allowed = best.filter(|(_, count)| limit.is_none_or(|l| *count <= l as usize));
        let Some((level, count)) = allowed else {
            prop_assert_eq!(world.place(id), "-");
            // It starts all the same when it has waited, if it fits at all.
            world.now = world.now.plus_s(60);
            let started = world.pass();
            prop_assert_eq!(started.contains(&id), best.is_some());
            return Ok(());
        };
        prop_assert_ne!(world.place(id), "-", "{:?}", best);
        let at = leaves_of(&world, id, &leaves);
        prop_assert_eq!(at.len(), count);
        if pairs && level == 1 {
            let groups: BTreeSet<usize> = at.iter().map(|l| l / 2).collect();
            prop_assert_eq!(groups.len(), 1);
        }
        if level == 0 {
            // No leaf that fits is used already and has less left, nor is this one empty in vain.
            let key = |leaf: usize| {
                let of = (0..total).filter(|n| leaf_of(&leaves, *n) == leaf);
                let (all, open) = of.fold((0, 0), |(all, open), n| (all + 1, open + u32::from(free[n as usize])));
                (open == all, open)
            };
            let chosen = key(*at.first().unwrap());
            for leaf in 0..leaves.len() {
                prop_assert!(key(leaf).1 < wanted || key(leaf) >= chosen);
            }
        }
    }
}

/// Blocks of so many nodes each, in pairs.
fn blocks(sizes: &[u32]) -> World {
    let mut config = config(sizes, 1, false);
    let tree = config.topologies.remove(0);
    config.topologies.push(Topology {
        kind: TopologyKind::Block,
        switches: tree.switches[..sizes.len()].to_vec(),
        block_sizes: vec![4, 8],
        ..tree
    });
    World::new(config)
}

fn segments(nodes: u32, each: u32, how: Segments) -> JobSpec {
    let mut spec = wide(nodes, nodes, 10);
    spec.ask.segment = Some(each);
    spec.ask.segments = how;
    spec
}

#[test]
fn segments_are_each_in_one_block() {
    // Nodes 0-3, 4-7, 8-11 and 12-15; of the first block three are free, of the second two, of the third one.
    let busy = |world: &mut World| {
        for node in ["n0", "n4", "n5", "n8", "n9", "n10"] {
            world.submit(on(job(1, 60), node));
        }
        world.pass();
    };
    let placed = |spec: JobSpec| {
        let mut world = blocks(&[4, 4, 4, 4]);
        busy(&mut world);
        let id = world.submit(spec);
        world.pass_by_core();
        world.place(id).replace(":1", "")
    };
    use Segments::{Anywhere, Apart, Together};
    // The tightest block that does.
    assert_eq!(placed(segments(2, 2, Anywhere)), "n6 n7");
    assert_eq!(placed(segments(3, 3, Anywhere)), "n1 n2 n3");
    // In one block if there is one, else in the fewest.
    assert_eq!(placed(segments(4, 2, Anywhere)), "n12 n13 n14 n15");
    assert_eq!(placed(segments(6, 2, Anywhere)), "n6 n7 n12 n13 n14 n15");
    assert_eq!(placed(segments(8, 4, Anywhere)), "-");
    assert_eq!(placed(segments(4, 2, Apart)), "n1 n2 n6 n7");
    assert_eq!(placed(segments(8, 2, Apart)), "-");
    // The first pair of blocks has room for two.
    assert_eq!(placed(segments(2, 1, Together)), "n6 n7");
    assert_eq!(placed(segments(4, 1, Together)), "n1 n2 n3 n6");
    assert_eq!(placed(on(segments(4, 2, Anywhere), "n7")), "n1 n2 n6 n7");
    // Half a segment is none.
    assert_eq!(placed(segments(3, 2, Anywhere)), "-");
}

#[test]
fn segments_are_waited_for() {
    let mut world = blocks(&[2, 2]);
    let first = world.submit(on(job(1, 60), "n0"));
    let second = world.submit(on(job(1, 30), "n2"));
    world.pass();
    let waits = world.submit(segments(2, 2, Segments::Anywhere));
    world.pass_by_core();
    assert_eq!(world.place(waits), "-");
    let expected = world.state.jobs[&waits].expected_start;
    assert_eq!(expected, Some(world.now.plus_s(30 * 60)));
    world.end(second);
    world.pass_by_core();
    assert_eq!(world.place(waits), "n2:1 n3:1");
    world.end(first);
}
