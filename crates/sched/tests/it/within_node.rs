//! What a job gets of a node: sockets, cores and devices that are near each other, and what the system keeps.

use crate::world::{World, cluster, job, node, wide};
use muster_core::config::ClusterConfig;
use muster_core::cpuset::CpuSet;
use muster_core::event::Event;
use muster_core::ids::{JobId, NodeIdx};
use muster_core::node::{GresConfig, NodeConfig, NodeInfo};
use muster_core::spec::{GresAsk, MemoryAsk, Sharing};

/// Two sockets of four cores with so many threads.
fn two_sockets(name: &str, threads: u32) -> NodeConfig {
    NodeConfig {
        sockets: 2,
        cores_per_socket: 4,
        threads_per_core: threads,
        ..node(name, 8 * threads, 1000)
    }
}

fn config(nodes: Vec<NodeConfig>, words: &[&str]) -> ClusterConfig {
    let mut config = cluster(nodes);
    config.whole_cores = true;
    config.select_parameters = words.iter().map(|w| (*w).to_owned()).collect();
    config
}

fn cpus(world: &World, id: JobId) -> Vec<u32> {
    let alloc = world.state.jobs[&id].alloc.as_ref();
    alloc.map_or(vec![], |a| a.nodes[0].cpus.iter().collect())
}

#[test]
fn a_job_stays_in_the_socket_that_it_fits_best() {
    let mut world = World::new(config(vec![two_sockets("n0", 1)], &[]));
    let first = world.submit(job(3, 60));
    let second = world.submit(job(2, 60));
    let third = world.submit(job(1, 60));
    world.pass();
    assert_eq!(cpus(&world, first), [0, 1, 2]);
    assert_eq!(cpus(&world, second), [4, 5]);
    assert_eq!(cpus(&world, third), [3]);
}

#[test]
fn the_domains_that_a_node_reports_count() {
    let mut world = World::new(config(vec![two_sockets("n0", 1)], &[]));
    let info = NodeInfo {
        numa_domains: Some(4),
        ..NodeInfo::default()
    };
    let at = world.now;
    world.apply(&Event::NodeRegistered {
        node: NodeIdx(0),
        info: Box::new(info),
        at,
    });
    let first = world.submit(job(1, 60));
    let second = world.submit(job(2, 60));
    let third = world.submit(job(4, 60));
    world.pass();
    assert_eq!(cpus(&world, first), [0]);
    assert_eq!(cpus(&world, second), [2, 3]);
    assert_eq!(cpus(&world, third), [4, 5, 6, 7]);
}

#[test]
fn memory_is_near_where_it_can_be() {
    let mut config = config(vec![two_sockets("n0", 1)], &[]);
    config.memory_is_consumable = true;
    let mut world = World::new(config);
    let with = |mib| {
        let mut spec = job(1, 60);
        spec.ask.memory = MemoryAsk::PerNode(mib);
        spec
    };
    // Half of the memory is at each socket: the second job's is at the other one, the third's fits beside the first's.
    let first = world.submit(with(400));
    let second = world.submit(with(300));
    let third = world.submit(with(100));
    // What is left is at the second.
    let fourth = world.submit(with(200));
    world.pass();
    assert_eq!(cpus(&world, first), [0]);
    assert_eq!(cpus(&world, second), [4]);
    assert_eq!(cpus(&world, third), [1]);
    assert_eq!(cpus(&world, fourth), [5]);
}

#[test]
fn whole_sockets_are_given_with_cr_socket() {
    let mut world = World::new(config(vec![two_sockets("n0", 2)], &["CR_Socket"]));
    let one = world.submit(job(3, 60));
    let two = world.submit(job(8, 60));
    let none = world.submit(job(1, 60));
    world.pass();
    assert_eq!(cpus(&world, one), (0..8).collect::<Vec<_>>());
    assert_eq!(cpus(&world, two), (8..16).collect::<Vec<_>>());
    assert_eq!(world.place(none), "-");
}

#[test]
fn one_task_a_core_where_the_site_says_so() {
    let mut world = World::new(config(
        vec![two_sockets("n0", 2)],
        &["CR_ONE_TASK_PER_CORE"],
    ));
    let id = world.submit(job(3, 60));
    world.pass();
    assert_eq!(world.place(id), "n0:6");
    let mut spec = job(4, 60);
    spec.ask.ntasks_per_core = Some(2);
    let two = world.submit(spec);
    world.pass();
    assert_eq!(world.place(two), "n0:4");
}

#[test]
fn tasks_are_packed_where_the_site_or_the_job_says_so() {
    let nodes = || vec![two_sockets("n0", 1), two_sockets("n1", 1)];
    let exclusive = || {
        let mut spec = wide(2, 8, 60);
        spec.ask.sharing = Sharing::Exclusive;
        spec
    };
    let tasks = |words: &[&str], distribution: Option<&str>| {
        let mut world = World::new(config(nodes(), words));
        let mut spec = exclusive();
        spec.ask.distribution = distribution.map(str::to_owned);
        let id = world.submit(spec);
        world.pass();
        world.tasks(id)
    };
    assert_eq!(tasks(&[], None), [4, 4]);
    assert_eq!(tasks(&["CR_Pack_Nodes"], None), [7, 1]);
    assert_eq!(tasks(&[], Some("block,pack")), [7, 1]);
    assert_eq!(tasks(&["CR_Pack_Nodes"], Some("block,nopack")), [4, 4]);
}

/// The example of Slurm's guide to CPU management: eight tasks of two CPUs on three nodes of eight.
#[test]
fn tasks_fill_one_node_after_another() {
    let nodes = (0..3).map(|i| two_sockets(&format!("n{i}"), 1)).collect();
    let mut world = World::new(config(nodes, &[]));
    let mut tasks = |distribution: Option<&str>, count, per_task| {
        let mut spec = wide(3, count, 60);
        spec.ask.cpus_per_task = Some(per_task);
        spec.ask.distribution = distribution.map(str::to_owned);
        let id = world.submit(spec);
        world.pass_by_core();
        let tasks = world.tasks(id);
        world.end(id);
        tasks
    };
    assert_eq!(tasks(Some("plane=2"), 8, 2), [4, 3, 1]);
    assert_eq!(tasks(None, 4, 1), [2, 1, 1]);
    assert_eq!(tasks(Some("cyclic"), 8, 2), [3, 3, 2]);
    assert_eq!(tasks(Some("block,nopack"), 8, 2), [3, 3, 2]);
}

#[test]
fn what_the_system_keeps_no_job_gets() {
    let mut line = two_sockets("n0", 1);
    line.spec_cpus = CpuSet::from_iter([3, 7]);
    line.spec_mib = 200;
    let mut config = config(vec![line], &[]);
    config.memory_is_consumable = true;
    let mut world = World::new(config);
    let mut spec = job(6, 60);
    spec.ask.memory = MemoryAsk::PerNode(900);
    let large = world.submit(spec.clone());
    spec.ask.memory = MemoryAsk::PerNode(800);
    let fits = world.submit(spec);
    world.pass();
    assert_eq!(world.place(large), "-");
    assert_eq!(cpus(&world, fits), [0, 1, 2, 4, 5, 6]);
    world.end(fits);
    let mut whole = job(1, 60);
    whole.ask.sharing = Sharing::Exclusive;
    whole.ask.memory = MemoryAsk::PerNode(1);
    let whole = world.submit(whole);
    let seven = world.submit(job(7, 60));
    world.pass();
    assert_eq!(world.place(whole), "n0:6");
    assert_eq!(world.place(seven), "-");
}

#[test]
fn jobs_say_what_the_system_keeps() {
    let mut line = two_sockets("n0", 2);
    line.spec_cpus = CpuSet::from_iter([14, 15]);
    let mut config = config(vec![line], &[]);
    let with = |config: &ClusterConfig, cores: Option<u32>, threads: Option<u32>| {
        let mut world = World::new(config.clone());
        let mut spec = job(1, 60);
        (spec.ask.core_spec, spec.ask.thread_spec) = (cores, threads);
        let id = world.submit(spec);
        world.pass_by_core();
        let got = cpus(&world, id);
        // What is given back is what the node has for jobs.
        world.end(id);
        assert_eq!(world.state.nodes[0].free_cpus.len(), 14);
        got
    };
    // Not where the site does not let them.
    assert_eq!(with(&config, Some(2), None), [8, 9]);
    config.spec_by_job = true;
    assert_eq!(with(&config, Some(0), None), (0..16).collect::<Vec<_>>());
    let two: Vec<u32> = (0..6).chain(8..14).collect();
    assert_eq!(with(&config, Some(2), None), two);
    config.whole_cores = false;
    let three: Vec<u32> = (0..7).chain(8..14).collect();
    assert_eq!(with(&config, None, Some(3)), three);
}

#[test]
fn devices_and_cpus_are_next_to_each_other() {
    let mut line = two_sockets("n0", 1);
    let left = CpuSet::first(4);
    let right: CpuSet = (4..8).collect();
    line.gres = vec![GresConfig {
        name: "gpu".into(),
        kind: None,
        count: 4,
        files: vec![],
        near: vec![left.clone(), left, right.clone(), right],
        ..GresConfig::default()
    }];
    let mut world = World::new(config(vec![line], &[]));
    let mut spec = job(1, 60);
    spec.ask.gres = vec![GresAsk {
        name: "gpu".into(),
        kind: None,
        count: 2,
    }];
    let got = |world: &World, id: JobId| {
        let share = &world.state.jobs[&id].alloc.as_ref().unwrap().nodes[0];
        let ids: Vec<u32> = share.gres[0].ids.iter().collect();
        (share.cpus.iter().collect::<Vec<u32>>(), ids)
    };
    // Three of the first socket's cores are taken: best fit alone would go there twice.
    world.submit(job(2, 60));
    let first = world.submit(spec.clone());
    let second = world.submit(spec);
    world.pass();
    assert_eq!(got(&world, first), (vec![2], vec![0, 1]));
    assert_eq!(got(&world, second), (vec![4], vec![2, 3]));
}
