//! Devices however they are counted: by job, node, socket and task; what goes with them, and what is next to them.

use crate::world::{World, cases, cluster, job, node, wide};
use muster_core::event::JobChange;
use muster_model::config::ClusterConfig;
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::{Hold, NodeShare, Reason};
use muster_model::node::{GresConfig, NodeConfig};
use muster_model::spec::{DeviceAsk, DeviceBinding, GresAsk, JobSpec, Sharing};
use proptest::prelude::*;

fn gpus(kind: Option<&str>, count: u64, near: Vec<CpuSet>) -> GresConfig {
    GresConfig {
        name: "gpu".into(),
        kind: kind.map(str::to_owned),
        count,
        files: vec![],
        near,
        ..GresConfig::default()
    }
}

/// Nodes n0, n1, ... of 8 CPUs with so many GPUs.
fn lines(counts: &[u64]) -> Vec<NodeConfig> {
    let line = |(count, i): (&u64, usize)| NodeConfig {
        gres: vec![gpus(None, *count, vec![])],
        ..node(&format!("n{i}"), 8, 1000)
    };
    counts.iter().zip(0..).map(line).collect()
}

fn world(counts: &[u64]) -> World {
    World::new(config(lines(counts)))
}

fn config(lines: Vec<NodeConfig>) -> ClusterConfig {
    let mut config = cluster(lines);
    config.memory_is_consumable = true;
    config
}

fn some(count: u64) -> Vec<GresAsk> {
    vec![GresAsk {
        name: "gpu".into(),
        kind: None,
        count,
    }]
}

fn with(mut spec: JobSpec, devices: DeviceAsk) -> JobSpec {
    spec.ask.devices = Some(Box::new(devices));
    spec.ask.memory = muster_model::spec::MemoryAsk::PerNode(1);
    spec
}

/// `--gpus`.
fn in_all(spec: JobSpec, count: u64) -> JobSpec {
    let per_job = some(count);
    with(
        spec,
        DeviceAsk {
            per_job,
            ..DeviceAsk::default()
        },
    )
}

fn no_tasks(mut spec: JobSpec) -> JobSpec {
    spec.ask.ntasks = None;
    spec
}

/// `node:tasks/cpus/gpus` of each node.
fn got(world: &World, id: JobId) -> String {
    let Some(alloc) = &world.state.jobs[&id].alloc else {
        return "-".into();
    };
    let text = |s: &NodeShare| {
        let gpus: u32 = s.gres.iter().map(|g| g.ids.len()).sum();
        format!("{}:{}/{}/{gpus}", s.name, s.tasks, s.cpus.len())
    };
    alloc.nodes.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn run(world: &mut World, spec: JobSpec) -> String {
    let id = world.submit(spec);
    world.pass_by_core();
    got(world, id)
}

#[test]
fn gpus_of_the_job_come_from_the_fewest_nodes() {
    let nodes = || world(&[4, 2, 1]);
    let any = |count| in_all(no_tasks(job(1, 10)), count);
    // What fits one node goes where it leaves least.
    assert_eq!(run(&mut nodes(), any(1)), "n2:1/1/1");
    assert_eq!(run(&mut nodes(), any(2)), "n1:1/1/2");
    assert_eq!(run(&mut nodes(), any(4)), "n0:1/1/4");
    assert_eq!(run(&mut nodes(), any(5)), "n0:1/1/4 n2:1/1/1");
    assert_eq!(run(&mut nodes(), any(7)), "n0:1/1/4 n1:1/1/2 n2:1/1/1");
    assert_eq!(run(&mut nodes(), any(8)), "-");
    // Each node that is asked for gives one.
    let on = |nodes| no_tasks(wide(nodes, 1, 10));
    assert_eq!(run(&mut nodes(), in_all(on(2), 2)), "n1:1/1/1 n2:1/1/1");
    assert_eq!(
        run(&mut nodes(), in_all(on(3), 5)),
        "n0:1/1/2 n1:1/1/2 n2:1/1/1"
    );
}

#[test]
fn gpus_of_the_job_go_with_its_tasks() {
    let mut uneven = world(&[4, 2]);
    assert_eq!(
        run(&mut uneven, in_all(job(12, 10), 6)),
        "n0:8/8/4 n1:4/4/2"
    );
    let mut world = world(&[4, 4]);
    let mut filler = job(5, 60);
    filler.ask.memory = muster_model::spec::MemoryAsk::PerNode(1);
    world.submit(filler);
    world.pass();
    // Three CPUs are left of the first node.
    assert_eq!(
        run(&mut world, in_all(wide(2, 9, 10), 6)),
        "n0:3/3/2 n1:6/6/4"
    );
}

#[test]
fn cpus_and_memory_that_go_with_gpus() {
    let by_gpu = |cpus: Option<u32>, mib: Option<u64>| DeviceAsk {
        per_job: some(3),
        cpus_per_gpu: cpus,
        mib_per_gpu: mib,
        ..DeviceAsk::default()
    };
    let job = || no_tasks(job(1, 10));
    let mut w = world(&[4, 4]);
    assert_eq!(
        run(&mut w, with(job(), by_gpu(Some(4), None))),
        "n0:1/8/2 n1:1/4/1"
    );
    let mut w = world(&[4, 4]);
    let id = w.submit(with(job(), by_gpu(None, Some(450))));
    w.pass_by_core();
    assert_eq!(got(&w, id), "n0:1/1/2 n1:1/1/1");
    let alloc = w.state.jobs[&id].alloc.as_ref().unwrap();
    let mib: Vec<u64> = alloc.nodes.iter().map(|s| s.memory_mib).collect();
    assert_eq!(mib, [900, 450]);
    let mut spec = with(job(), by_gpu(Some(2), Some(10)));
    spec.ask.devices.as_mut().unwrap().per_job = vec![];
    spec.ask.gres = some(3);
    assert_eq!(run(&mut world(&[2, 3]), spec), "n1:1/6/3");
}

#[test]
fn gpus_of_each_task() {
    let each = |count, per_gpu: Option<u32>| DeviceAsk {
        per_task: some(count),
        cpus_per_gpu: per_gpu,
        ..DeviceAsk::default()
    };
    assert_eq!(
        run(&mut world(&[4, 4]), with(job(3, 10), each(2, None))),
        "n0:2/2/4 n1:1/1/2"
    );
    // Each GPU brings three CPUs, so that the node holds two.
    assert_eq!(
        run(&mut world(&[4, 4]), with(job(3, 10), each(1, Some(3)))),
        "n0:2/6/2 n1:1/3/1"
    );
    // Out of what each node is asked for.
    let mut spec = with(job(4, 10), each(2, None));
    spec.ask.gres = some(4);
    assert_eq!(run(&mut world(&[4, 4]), spec), "n0:2/2/4 n1:2/2/4");
}

#[test]
fn tasks_that_share_a_gpu_stay_together() {
    let shared = |gpus, each| DeviceAsk {
        per_job: some(gpus),
        ntasks_per_gpu: Some(each),
        ..DeviceAsk::default()
    };
    let mut w = world(&[2, 2]);
    assert_eq!(
        run(&mut w, with(job(6, 10), shared(3, 2))),
        "n0:4/4/2 n1:2/2/1"
    );
    let mut w = world(&[4, 4]);
    assert_eq!(
        run(&mut w, with(wide(2, 6, 10), shared(3, 2))),
        "n0:4/4/2 n1:2/2/1"
    );
}

#[test]
fn types_are_counted_apart_and_numbered_through() {
    let mut line = node("n0", 8, 1000);
    line.gres = vec![gpus(Some("a"), 2, vec![]), gpus(Some("b"), 2, vec![])];
    let mut world = World::new(config(vec![line]));
    let of = |kind: &str, count| GresAsk {
        name: "gpu".into(),
        kind: Some(kind.into()),
        count,
    };
    let both = DeviceAsk {
        per_job: vec![of("a", 1), of("b", 2)],
        ..DeviceAsk::default()
    };
    let id = world.submit(with(no_tasks(job(1, 10)), both));
    world.pass_by_core();
    let share = &world.state.jobs[&id].alloc.as_ref().unwrap().nodes[0];
    let numbers: Vec<u32> = share.gres.iter().flat_map(|g| g.numbers()).collect();
    assert_eq!(numbers, [0, 2, 3]);
}

#[test]
fn who_has_a_node_alone_has_its_gpus() {
    let mut world = world(&[4]);
    let mut spec = job(1, 10);
    spec.ask.sharing = Sharing::Exclusive;
    spec.ask.memory = muster_model::spec::MemoryAsk::PerNode(1);
    assert_eq!(run(&mut world, spec), "n0:1/8/4");
}

/// Two sockets of four cores, two GPUs at each.
fn two_sockets() -> NodeConfig {
    let (left, right) = (CpuSet::first(4), (4..8).collect::<CpuSet>());
    NodeConfig {
        sockets: 2,
        cores_per_socket: 4,
        gres: vec![gpus(
            None,
            4,
            vec![left.clone(), left, right.clone(), right],
        )],
        ..node("n0", 8, 1000)
    }
}

fn enforced(gpus: u64, tasks: u32) -> JobSpec {
    let mut spec = with(
        job(tasks, 10),
        DeviceAsk {
            binding: DeviceBinding::Enforced,
            ..DeviceAsk::default()
        },
    );
    spec.ask.gres = some(gpus);
    spec
}

fn numbers(world: &World, id: JobId) -> Option<(Vec<u32>, Vec<u32>)> {
    let share = &world.state.jobs[&id].alloc.as_ref()?.nodes[0];
    let ids = share.gres.iter().flat_map(|g| g.numbers());
    Some((share.cpus.iter().collect(), ids.collect()))
}

#[test]
fn enforced_binding_waits_for_what_is_next_to_each_other() {
    let mut world = World::new(config(vec![two_sockets()]));
    let filler = |cpus| {
        let mut spec = job(cpus, 60);
        spec.ask.memory = muster_model::spec::MemoryAsk::PerNode(1);
        spec
    };
    let left = world.submit(filler(4));
    let first = world.submit(enforced(1, 1));
    world.pass_by_core();
    assert_eq!(numbers(&world, first), Some((vec![4], vec![2])));
    // One GPU is free at either socket, and CPUs only at the second.
    let second = world.submit(enforced(2, 1));
    // What does not ask for it takes them where they are.
    world.pass_by_core();
    assert_eq!(numbers(&world, second), None);
    assert!(world.state.jobs[&second].expected_start.is_some());
    let mut loose = enforced(1, 1);
    loose.time_limit = Some(muster_model::time::TimeLimit::Minutes(1));
    let loose = world.submit(loose);
    world.pass_by_core();
    assert_eq!(numbers(&world, loose), Some((vec![5], vec![3])));
    world.end(left);
    world.pass_by_core();
    assert_eq!(numbers(&world, second), Some((vec![0], vec![0, 1])));
}

#[test]
fn enforced_binding_may_have_both_sockets() {
    let mut world = World::new(config(vec![two_sockets()]));
    let id = world.submit(enforced(2, 6));
    world.pass_by_core();
    assert_eq!(
        numbers(&world, id),
        Some((vec![0, 1, 2, 4, 5, 6], vec![0, 2]))
    );
    world.end(id);
    // One GPU is next to four CPUs, whether each node is asked for it or all of them are.
    let never = world.submit(enforced(1, 5));
    let of_all = |gpus: u64, tasks: u32| {
        let mut spec = enforced(0, tasks);
        spec.ask.gres = Vec::new();
        spec.ask.devices.as_mut().unwrap().per_job = some(gpus);
        spec
    };
    let never_either = world.submit(of_all(1, 5));
    world.pass_by_core();
    assert_eq!(numbers(&world, never), None);
    assert_eq!(numbers(&world, never_either), None);
    let four = world.submit(of_all(1, 4));
    world.pass_by_core();
    assert_eq!(numbers(&world, four), Some((vec![0, 1, 2, 3], vec![0])));
    // Of two for two nodes each has one.
    let second = NodeConfig {
        name: "n1".into(),
        ..two_sockets()
    };
    let mut world = World::new(config(vec![two_sockets(), second]));
    let mut both = of_all(2, 8);
    both.ask.min_nodes = 2;
    both.ask.nodes_set = true;
    let both = world.submit(both);
    world.pass_by_core();
    let alloc = world.state.jobs[&both].alloc.as_ref().unwrap();
    for share in &alloc.nodes {
        assert_eq!(share.cpus, CpuSet::first(4), "{}", share.name);
    }
}

/// What a job whose CPUs must be next to its GPUs gets: nodes as `name:cpus/gpus`; panics where a CPU is next to none of
/// its GPUs.
fn bound(world: &World, id: JobId) -> String {
    let Some(alloc) = &world.state.jobs[&id].alloc else {
        return "waits".into();
    };
    let one = |share: &NodeShare| {
        let near = share.gres.iter().flat_map(|g| &g.near);
        let mut reached = CpuSet::default();
        near.for_each(|near| reached.union_with(near));
        let far: Vec<u32> = share
            .cpus
            .iter()
            .filter(|c| !reached.contains(*c))
            .collect();
        assert_eq!(far, [0u32; 0], "{} of job {id}", share.name);
        let gpus: u32 = share.gres.iter().map(|g| g.ids.len()).sum();
        format!("{}:{}/{gpus}", share.name, share.cpus.len())
    };
    alloc.nodes.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A job on a range of nodes whose CPUs must be next to so many GPUs over all of them.
fn bound_in_all((least, most): (u32, u32), gpus: u64, tasks: u32) -> JobSpec {
    let mut spec = enforced(0, tasks);
    spec.ask.gres = Vec::new();
    spec.ask.devices.as_mut().unwrap().per_job = some(gpus);
    (spec.ask.min_nodes, spec.ask.max_nodes) = (least, Some(most));
    spec.ask.nodes_set = true;
    spec
}

fn two_of_two_sockets() -> World {
    let second = NodeConfig {
        name: "n1".into(),
        ..two_sockets()
    };
    World::new(config(vec![two_sockets(), second]))
}

#[test]
fn gpus_shared_out_over_nodes_keep_cpus_next_to_them() {
    // Spread evenly, five tasks each, a node with one GPU of three would have one CPU far from it.
    let mut world = two_of_two_sockets();
    let mut uneven = bound_in_all((1, 2), 3, 10);
    uneven.ask.spread = true;
    let uneven = world.submit(uneven);
    world.pass_by_core();
    assert_eq!(bound(&world, uneven), "n0:6/2 n1:4/1");
    world.end(uneven);
    // One node has but one GPU with CPUs next to it.
    let mut filler = job(4, 60);
    filler.ask.memory = muster_model::spec::MemoryAsk::PerNode(1);
    filler.ask.nodelist = Some("n0".into());
    let filler = world.submit(filler);
    let two = world.submit(bound_in_all((1, 2), 2, 8));
    world.pass_by_core();
    assert_eq!(bound(&world, two), "n1:8/2");
    // Four CPUs at most are next to the GPUs of each node if each has one.
    let apart = world.submit(bound_in_all((2, 2), 2, 9));
    world.end(filler);
    world.end(two);
    world.pass_by_core();
    assert_eq!(bound(&world, apart), "waits");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]
    /// Whatever the range of nodes, no CPU is far from the job's GPUs.
    #[test]
    fn cpus_of_jobs_are_next_to_their_gpus(
        fillers in proptest::collection::vec(1u32..5, 0..3),
        jobs in proptest::collection::vec((1u32..3, 0u32..2, 1u64..7, 1u32..13, any::<bool>()), 1..4),
    ) {
        let mut world = two_of_two_sockets();
        for cpus in fillers {
            let mut spec = job(cpus, 60);
            spec.ask.memory = muster_model::spec::MemoryAsk::PerNode(1);
            world.submit(spec);
        }
        let mut ids = Vec::new();
        for (nodes, more, gpus, tasks, spread) in jobs {
            let mut spec = bound_in_all((nodes, nodes + more), gpus.max(u64::from(nodes)), tasks.max(nodes));
            spec.ask.spread = spread;
            ids.push(world.submit(spec));
        }
        for _ in 0..4 {
            world.pass_by_core();
            ids.iter().for_each(|id| { bound(&world, *id); });
            let runs: Vec<JobId> = world.state.active.iter().copied().collect();
            runs.into_iter().for_each(|id| world.end(id));
        }
    }
}

#[test]
fn gpus_of_each_socket() {
    let mut world = World::new(config(vec![two_sockets()]));
    let mut spec = with(
        job(2, 10),
        DeviceAsk {
            per_socket: some(1),
            ..DeviceAsk::default()
        },
    );
    spec.ask.sockets_per_node = Some(2);
    let first = world.submit(spec.clone());
    let second = world.submit(spec.clone());
    world.pass_by_core();
    assert_eq!(numbers(&world, first), Some((vec![0, 4], vec![0, 2])));
    assert_eq!(numbers(&world, second), Some((vec![1, 5], vec![1, 3])));
    world.end(first);
    spec.ask.sockets_per_node = Some(1);
    let one = world.submit(spec);
    world.pass_by_core();
    assert_eq!(numbers(&world, one), Some((vec![0, 2], vec![0])));
    // One task has a core at each of its sockets.
    let mut world = World::new(config(vec![two_sockets()]));
    let per_socket = some(1);
    let devices = DeviceAsk {
        per_socket,
        ..DeviceAsk::default()
    };
    let mut spec = with(job(1, 10), devices);
    spec.ask.sockets_per_node = Some(2);
    let id = world.submit(spec);
    world.pass_by_core();
    assert_eq!(numbers(&world, id), Some((vec![0, 4], vec![0, 2])));
}

/// Links of gres.conf: 0 and 2 are linked, and 1 and 3.
#[test]
fn gpus_that_are_linked_go_together() {
    let line = |own: usize| {
        (0..4).map(move |i| [0, -1][usize::from(i == own)] + 4 * i32::from(i == (own + 2) % 4))
    };
    let gpus = GresConfig {
        links: (0..4).map(|own| line(own).collect()).collect(),
        ..gpus(None, 4, vec![])
    };
    let line = NodeConfig {
        gres: vec![gpus],
        ..node("n0", 8, 1000)
    };
    let mut world = World::new(config(vec![line]));
    let asks = |count| {
        let mut spec = with(job(1, 10), DeviceAsk::default());
        spec.ask.gres = some(count);
        spec
    };
    let ids = |world: &World, id| numbers(world, id).map(|(_, ids)| ids);
    let first = world.submit(asks(1));
    let second = world.submit(asks(1));
    world.pass_by_core();
    assert_eq!(ids(&world, first), Some(vec![0]));
    assert_eq!(ids(&world, second), Some(vec![2]));
    world.end(first);
    let pair = world.submit(asks(2));
    world.pass_by_core();
    assert_eq!(ids(&world, pair), Some(vec![1, 3]));
}

#[test]
fn tasks_of_each_socket() {
    let mut world = World::new(config(vec![two_sockets()]));
    let mut spec = job(2, 10);
    spec.ask.memory = muster_model::spec::MemoryAsk::PerNode(1);
    let filler = world.submit(spec.clone());
    spec.ask.ntasks_per_socket = Some(1);
    let spread = world.submit(spec.clone());
    world.pass_by_core();
    let cpus = |world: &World, id| numbers(world, id).map(|(cpus, _)| cpus);
    assert_eq!(cpus(&world, filler), Some(vec![0, 1]));
    assert_eq!(cpus(&world, spread), Some(vec![2, 4]));
    // No socket has two tasks of three CPUs, and the first has no room for one.
    spec.ask.cpus_per_task = Some(3);
    let waits = world.submit(spec);
    world.pass_by_core();
    assert_eq!(cpus(&world, waits), None);
}

/// A node without a task would give GPUs that no task can use.
#[test]
fn nodes_with_gpus_of_a_job_have_tasks() {
    let mut world = world(&[3, 4]);
    let never = world.submit(in_all(job(1, 10), 5));
    let one = world.submit(in_all(job(1, 10), 4));
    world.pass_by_core();
    assert!(world.state.jobs[&never].alloc.is_none());
    assert_eq!(world.state.jobs[&never].reason, Reason::BadConstraints);
    assert_eq!(got(&world, one), "n1:1/1/4");
    world.end(one);
    let two = world.submit(in_all(job(2, 10), 5));
    world.pass_by_core();
    assert_eq!(
        world.state.jobs[&two].alloc.as_ref().unwrap().nodes.len(),
        2
    );
}

/// How a drawn job counts its GPUs.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    tasks: Option<u32>,
    nodes: Option<u32>,
    in_all: u64,
    cpus_per_gpu: Option<u32>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let maybe = |most: u32| prop_oneof![Just(None), (1..most).prop_map(Some)];
    (maybe(6), maybe(4), 1u64..9, maybe(4)).prop_map(|(tasks, nodes, in_all, cpus_per_gpu)| {
        let nodes = nodes.map(|n| n.min(u32::try_from(in_all).unwrap()));
        Drawn {
            tasks,
            nodes: nodes.map(|n| n.min(tasks.unwrap_or(n))),
            in_all,
            cpus_per_gpu,
        }
    })
}

impl Drawn {
    fn spec(self) -> JobSpec {
        let base = match self.nodes {
            Some(n) => wide(n, self.tasks.unwrap_or(1), 10),
            None => job(self.tasks.unwrap_or(1), 10),
        };
        let mut spec = in_all(base, self.in_all);
        spec.ask.ntasks = self.tasks;
        spec.ask.devices.as_mut().unwrap().cpus_per_gpu = self.cpus_per_gpu;
        spec
    }

    /// Whether any set of nodes, of which so many CPUs and GPUs are free, holds it; and the fewest that do.
    fn fewest(self, free: &[(u32, u32)]) -> Option<u32> {
        let each = self.cpus_per_gpu.unwrap_or(0);
        let holds = |set: &u32| {
            let of = || {
                (0..free.len())
                    .filter(|i| set & (1 << i) != 0)
                    .map(|i| free[i])
            };
            let gpus =
                |(cpus, gpus): (u32, u32)| cpus.checked_div(each).map_or(gpus, |n| gpus.min(n));
            let all_give = of().all(|node| node.0 > 0 && gpus(node) > 0);
            let given: u32 = of().map(gpus).sum();
            let tasks: u32 = of().map(|(cpus, _)| cpus).sum();
            let count = set.count_ones();
            all_give
                && u64::from(given) >= self.in_all
                && tasks >= self.tasks.unwrap_or(1)
                && self.nodes.is_none_or(|n| n == count)
                && u64::from(count) <= self.in_all
                && self.tasks.is_none_or(|most| count <= most)
        };
        let sets = 1..1u32 << free.len();
        sets.filter(holds).map(u32::count_ones).min()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]
    #[test]
    fn jobs_get_the_gpus_that_are_there(
        counts in proptest::collection::vec(0u64..5, 1..5),
        jobs in proptest::collection::vec(drawn(), 1..12),
    ) {
        prop_assume!(counts.iter().any(|n| *n > 0));
        let mut world = world(&counts);
        let mut running = std::collections::VecDeque::new();
        for drawn in jobs {
            let free: Vec<(u32, u32)> = world.state.nodes.iter().map(|n| {
                let used = n.used_gres.first().map_or(0, CpuSet::len);
                (n.free_cpus.len(), u32::try_from(n.config.gres[0].count).unwrap() - used)
            }).collect();
            let fewest = drawn.fewest(&free);
            let id = world.submit(drawn.spec());
            world.pass_by_core();
            let alloc = world.state.jobs[&id].alloc.clone();
            // With tasks as well there are two sums to reach, and not every set that does is found.
            let exact = drawn.tasks.is_none() || alloc.is_some();
            prop_assert!(!exact || alloc.is_some() == fewest.is_some(), "{:?} on {:?}", drawn, free);
            let Some(alloc) = alloc else {
                world.change(id, JobChange::Hold { hold: Hold::User, priority: 0 });
                world.end(running.pop_front().unwrap_or(id));
                continue;
            };
            let gpus: u32 = alloc.nodes.iter().flat_map(|s| &s.gres).map(|g| g.ids.len()).sum();
            prop_assert_eq!(u64::from(gpus), drawn.in_all);
            if drawn.tasks.is_none() {
                prop_assert_eq!(u32::try_from(alloc.nodes.len()).unwrap(), fewest.unwrap());
            }
            let tasks: u32 = alloc.nodes.iter().map(|s| s.tasks).sum();
            prop_assert_eq!(tasks, drawn.tasks.unwrap_or(u32::try_from(alloc.nodes.len()).unwrap()));
            for share in &alloc.nodes {
                let here: u32 = share.gres.iter().map(|g| g.ids.len()).sum();
                prop_assert!(here > 0 && share.tasks > 0);
                prop_assert!(share.cpus.len() >= share.tasks.max(here * drawn.cpus_per_gpu.unwrap_or(0)));
            }
            running.push_back(id);
        }
    }
}

#[test]
fn what_goes_with_each_gpu_where_the_job_does_not_say() {
    use muster_model::config::JobDefaults;
    let mut config = config(lines(&[4]));
    config.job_defaults = JobDefaults {
        cpus_per_gpu: Some(2),
        mib_per_gpu: Some(100),
    };
    let mut other = config.partitions[0].clone();
    other.name = "q".into();
    other.job_defaults.cpus_per_gpu = Some(3);
    config.partitions.push(other);
    let asking = |count, partition: &str| {
        let mut spec = in_all(no_tasks(job(1, 10)), count);
        spec.ask.memory = muster_model::spec::MemoryAsk::Default;
        spec.partitions = vec![partition.into()];
        spec
    };
    let run = |spec: JobSpec| {
        let mut world = World::new(config.clone());
        let id = world.submit(spec);
        world.pass_by_core();
        let mib = world.state.jobs[&id].alloc.as_ref().unwrap().memory_mib();
        (got(&world, id), mib)
    };
    assert_eq!(run(asking(3, "p")), ("n0:1/6/3".into(), 300));
    // The partition stands before the cluster.
    assert_eq!(run(asking(2, "q")), ("n0:1/6/2".into(), 200));
    // Who says how many CPUs a task has gets no more.
    let mut said = asking(2, "p");
    said.ask.cpus_per_task = Some(1);
    assert_eq!(run(said), ("n0:1/1/2".into(), 200));
    let mut said = asking(2, "p");
    said.ask.memory = muster_model::spec::MemoryAsk::PerNode(50);
    assert_eq!(run(said), ("n0:1/4/2".into(), 50));
    // Without GPUs nothing goes with them.
    assert_eq!(run(job(1, 10)), ("n0:1/1/0".into(), 1000));
}
