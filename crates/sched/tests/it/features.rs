//! Features of nodes: counts, preferences, and changes while jobs wait.

use crate::world::{World, cases, cluster, job, nodes, wide};
use muster_core::event::{Event, NodeChange};
use muster_model::ids::NodeIdx;
use muster_model::job::Reason;
use muster_model::spec::JobSpec;
use proptest::prelude::*;

/// Nodes n0, n1, ... with these features.
fn featured(features: &[&str]) -> World {
    let mut all = nodes(features.len() as u32, 2);
    for (node, features) in all.iter_mut().zip(features) {
        node.features = features.split_whitespace().map(String::from).collect();
    }
    World::new(cluster(all))
}

fn constrained(constraint: &str, mut spec: JobSpec) -> JobSpec {
    spec.ask.constraint = Some(constraint.into());
    spec
}

/// A job without a number of tasks or nodes.
fn any_nodes(constraint: &str) -> JobSpec {
    let mut spec = constrained(constraint, job(1, 10));
    spec.ask.ntasks = None;
    spec
}

#[test]
fn the_script_runs_on_a_node_of_its_kind() {
    let mut world = featured(&["slow", "slow", "fast big", "fast"]);
    let mut spec = wide(4, 4, 10);
    let mut first = |batch: &str| {
        spec.ask.batch = Some(batch.into());
        let id = world.submit(spec.clone());
        world.pass_by_core();
        let place = world.place(id);
        world.end(id);
        place
    };
    assert_eq!(first("fast"), "n2:1 n0:1 n1:1 n3:1");
    assert_eq!(first("big|slow"), "n0:1 n1:1 n2:1 n3:1");
    assert_eq!(first("big&slow"), "n0:1 n1:1 n2:1 n3:1");
}

#[test]
fn counts_of_nodes() {
    let mut world = featured(&["a", "b", "b", "a", "", "a b"]);
    let cases = [
        // Among the nodes there are so many of the kind.
        (constrained("a*1", wide(2, 2, 10)), "n0:1 n1:1"),
        (constrained("a*2", wide(3, 3, 10)), "n0:1 n1:1 n3:1"),
        // A count alone asks for as many nodes.
        (any_nodes("[a*2&b*1]"), "n0:1 n1:1 n3:1"),
        // A node with both is counted once.
        (any_nodes("[a*3&b*2]"), "n0:1 n1:1 n2:1 n3:1 n5:1"),
        (constrained("[(a&b)*1&b*1]", wide(2, 2, 10)), "n1:1 n5:1"),
        // What is not counted holds for all.
        (constrained("[a*1&b]", wide(2, 2, 10)), "n1:1 n5:1"),
    ];
    for (spec, place) in cases {
        let text = spec.ask.constraint.clone();
        let id = world.submit(spec);
        world.pass_by_core();
        assert_eq!(world.place(id), place, "{text:?}");
        world.end(id);
    }
    let never = world.submit(any_nodes("[a*4&b*1]"));
    world.pass_by_core();
    assert_eq!(world.reason(never), Reason::BadConstraints);
}

#[test]
fn counted_nodes_are_waited_for() {
    let mut world = featured(&["a", "", ""]);
    let mut busy = wide(1, 2, 10);
    busy.ask.nodelist = Some("n0".into());
    let busy = world.submit(busy);
    let counts = world.submit(constrained("a*1", wide(2, 2, 10)));
    world.pass_by_core();
    assert_eq!(
        (world.place(counts).as_str(), world.reason(counts)),
        ("-", Reason::Resources)
    );
    world.end(busy);
    world.pass_by_core();
    assert_eq!(world.place(counts), "n0:1 n1:1");
}

#[test]
fn preferred_nodes_are_taken_where_they_are_free() {
    let mut world = featured(&["", "fast", "fast old", ""]);
    let prefer = |text: &str, mut spec: JobSpec| {
        spec.ask.prefer = Some(text.into());
        spec
    };
    let first = world.submit(prefer("fast", wide(1, 2, 10)));
    let second = world.submit(constrained("old", prefer("fast", wide(1, 2, 10))));
    let third = world.submit(prefer("fast", wide(1, 2, 10)));
    let unknown = world.submit(prefer("nosuch", wide(1, 2, 10)));
    world.pass_by_core();
    let places = [first, second, third, unknown].map(|id| world.place(id));
    assert_eq!(places, ["n1:2", "n2:2", "n0:2", "n3:2"]);
}

#[test]
fn of_a_range_the_least_with_use_min_nodes() {
    let mut world = World::simple(4, 2);
    let mut spec = job(1, 10);
    spec.ask.ntasks = None;
    (spec.ask.min_nodes, spec.ask.max_nodes) = (2, Some(4));
    let most = world.submit(spec.clone());
    world.pass_by_core();
    assert_eq!(world.place(most).split(' ').count(), 4);
    world.end(most);
    spec.ask.use_min_nodes = true;
    let least = world.submit(spec);
    world.pass_by_core();
    assert_eq!(world.place(least).split(' ').count(), 2);
    world.end(least);
    // The same with tasks, of which each node has one at least.
    for (tasks, use_min_nodes, place) in [
        (4, false, "n0:2 n1:1 n2:1"),
        (2, false, "n0:1 n1:1"),
        (4, true, "n0:2 n1:2"),
        (5, true, "n0:2 n1:2 n2:1"),
    ] {
        let mut spec = job(tasks, 10);
        (spec.ask.min_nodes, spec.ask.max_nodes) = (1, Some(3));
        spec.ask.use_min_nodes = use_min_nodes;
        let id = world.submit(spec);
        world.pass_by_core();
        assert_eq!(world.place(id), place, "{tasks} {use_min_nodes}");
        world.end(id);
    }
}

#[test]
fn a_feature_that_a_node_gets_lets_a_job_start() {
    let mut world = featured(&["", ""]);
    let id = world.submit(constrained("new", wide(1, 1, 10)));
    world.pass_by_core();
    assert_eq!(world.reason(id), Reason::BadConstraints);
    world.apply(&Event::NodeChanged {
        node: NodeIdx(1),
        change: NodeChange::Features(vec!["new".into()]),
        at: world.now,
    });
    world.pass_by_core();
    assert_eq!(world.place(id), "n1:1");
}

/// Which nodes a job of the tests below is to have.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Any,
    Spread,
    LeastLoaded,
    Counted(&'static str, usize, usize),
    Contiguous,
}

/// A job on nodes with these CPUs, weights and features.
#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<(u32, u32, &'static str)>,
    choice: Choice,
    tasks: u32,
    least: u32,
    most: u32,
    /// Nodes that it names.
    named: Vec<usize>,
}

impl Case {
    /// The job's place.
    fn place(&self) -> String {
        let mut all = nodes(self.nodes.len() as u32, 1);
        for (node, (cpus, weight, feature)) in all.iter_mut().zip(&self.nodes) {
            (node.cpus, node.cores_per_socket) = (*cpus, *cpus);
            node.weight = *weight;
            node.features = vec![(*feature).to_owned()];
        }
        let mut config = cluster(all);
        config.partitions[0].lln = matches!(self.choice, Choice::LeastLoaded);
        let mut world = World::new(config);
        let mut spec = wide(self.least, self.tasks, 10);
        spec.ask.max_nodes = Some(self.most);
        spec.ask.spread = matches!(self.choice, Choice::Spread);
        if let Choice::Counted(constraint, ..) = self.choice {
            spec.ask.constraint = Some(constraint.into());
        }
        spec.ask.contiguous = matches!(self.choice, Choice::Contiguous);
        if !self.named.is_empty() {
            let names: Vec<_> = self.named.iter().map(|at| format!("n{at}")).collect();
            spec.ask.nodelist = Some(names.join(","));
        }
        let id = world.submit(spec);
        world.pass_by_core();
        world.place(id)
    }

    /// Whether any set of the nodes would do.
    fn fits(&self) -> bool {
        (0..1_u32 << self.nodes.len()).any(|set| {
            let chosen = self.nodes.iter().enumerate();
            let chosen = chosen.filter(|(at, _)| set & 1 << at != 0);
            let chosen: Vec<_> = chosen.map(|(_, node)| node).collect();
            let with = |feature| chosen.iter().filter(|node| node.2 == feature).count();
            let counts = match self.choice {
                Choice::Counted(_, a, b) => with("a") >= a && with("b") >= b,
                Choice::Contiguous => {
                    let run = set >> set.trailing_zeros().min(31);
                    run & (run + 1) == 0
                }
                _ => true,
            };
            let cpus: u32 = chosen.iter().map(|node| node.0).sum();
            (self.least..=self.most).contains(&set.count_ones())
                && cpus >= self.tasks
                && counts
                && self.named.iter().all(|at| set & 1 << at != 0)
        })
    }
}

/// The light nodes were taken first, and then there were more of them than the job may have.
#[test]
fn heavier_nodes_are_taken_where_the_lighter_ones_would_be_too_many() {
    let nodes = vec![
        (1, 1, "a"),
        (1, 1, "b"),
        (1, 1, "b"),
        (4, 9, "b"),
        (4, 9, "a"),
    ];
    let case = |choice, tasks, most| Case {
        nodes: nodes.clone(),
        choice,
        tasks,
        least: 1,
        most,
        named: Vec::new(),
    };
    let one = Choice::Counted("[a*1]", 1, 0);
    assert_eq!(case(one, 3, 3).place(), "n0:1 n1:1 n2:1");
    assert_eq!(case(one, 4, 2).place(), "n4:4");
    assert_eq!(case(one, 6, 2).place(), "n3:4 n4:2");
    let both = Choice::Counted("[a*1&b*1]", 1, 1);
    assert_eq!(case(both, 2, 2).place(), "n0:1 n1:1");
    assert_eq!(case(both, 8, 2).place(), "n3:4 n4:4");
    assert_eq!(case(Choice::LeastLoaded, 3, 3).place(), "n0:1 n1:1 n2:1");
    assert_eq!(case(Choice::LeastLoaded, 4, 2).place(), "n3:3 n4:1");
}

/// The first nodes of the run were enough without the last one that was named, and so the run was not found.
#[test]
fn neighbours_reach_as_far_as_the_last_node_that_is_named() {
    let case = |named: &[usize], most| Case {
        nodes: vec![(4, 1, "a"); 5],
        choice: Choice::Contiguous,
        tasks: 4,
        least: 1,
        most,
        named: named.to_vec(),
    };
    assert_eq!(case(&[1, 3], 3).place(), "n1:2 n2:1 n3:1");
    assert_eq!(case(&[3], 1).place(), "n3:4");
    assert_eq!(case(&[4], 2).place(), "n3:3 n4:1");
    assert_eq!(case(&[1, 3], 2).place(), "-");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]
    /// Compared with all sets of nodes.
    #[test]
    fn a_job_starts_wherever_some_of_the_nodes_hold_it(
        nodes in proptest::collection::vec((1u32..6, 1u32..4, prop_oneof![Just("a"), Just("b"), Just("c")]), 1..7),
        choice in prop_oneof![
            Just(Choice::Any),
            Just(Choice::Spread),
            Just(Choice::LeastLoaded),
            Just(Choice::Counted("[a*1]", 1, 0)),
            Just(Choice::Counted("[a*1&b*1]", 1, 1)),
            Just(Choice::Counted("[a*2&b*1]", 2, 1)),
            Just(Choice::Contiguous),
        ],
        named in proptest::collection::vec(any::<proptest::sample::Index>(), 0..3),
        (least, more, tasks) in (1u32..4, 0u32..3, 3u32..16),
    ) {
        let most = least + more;
        let mut named: Vec<_> = named.iter().map(|at| at.index(nodes.len())).collect();
        named.sort_unstable();
        named.dedup();
        let case = Case { nodes, choice, tasks, least, most, named };
        let place = case.place();
        prop_assert_eq!(place != "-", case.fits(), "{:?}", place);
        prop_assert!(place.split(' ').count() <= most as usize);
    }
}
