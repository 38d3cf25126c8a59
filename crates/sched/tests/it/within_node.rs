//! What a job gets of a node: sockets, cores and devices that are near each other, and what the system keeps.

use crate::world::{World, cases, cluster, job, node, nodes, wide};
use muster_core::event::Event;
use muster_model::config::ClusterConfig;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::node::{GresConfig, NodeConfig, NodeInfo};
use muster_model::spec::{GresAsk, JobSpec, MemoryAsk, Sharing};
use muster_sched::Scheduler;
use proptest::prelude::*;

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
fn sockets_in_turn_where_the_job_says_so() {
    let with_threads = |distribution: &str, tasks: u32, threads: u32| {
        let mut world = World::new(config(vec![two_sockets("n0", 2)], &["CR_Core"]));
        let small = world.submit(job(2, 60));
        let mut spec = job(tasks, 60);
        spec.ask.distribution = Some(distribution.to_owned());
        spec.ask.cpus_per_task = Some(threads);
        let id = world.submit(spec);
        world.pass();
        assert_eq!(cpus(&world, small), [0, 1]);
        cpus(&world, id)
    };
    let of = |distribution: &str, tasks: u32| with_threads(distribution, tasks, 1);
    assert_eq!(of("block:cyclic", 4), [2, 3, 8, 9]);
    assert_eq!(of("cyclic:fcyclic", 6), [2, 3, 4, 5, 8, 9]);
    // One socket has less left than its half.
    assert_eq!(of("*:cyclic", 14).len(), 14);
    // CPUs of a task are of one socket, unless they are to be spread.
    assert_eq!(with_threads("*:cyclic", 2, 4), [2, 3, 4, 5, 8, 9, 10, 11]);
    assert_eq!(with_threads("*:fcyclic", 1, 4), [2, 3, 8, 9]);
    assert_eq!(with_threads("*:cyclic", 2, 3), [2, 3, 4, 5, 6, 7]);
    assert_eq!(of("block:block", 4), [2, 3, 4, 5]);
    assert_eq!(of("cyclic", 4), [2, 3, 4, 5]);
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

#[test]
fn a_partition_leaves_some_cpus_of_each_socket() {
    let mut config = config(vec![two_sockets("n0", 1)], &[]);
    let mut cpu = config.partitions[0].clone();
    cpu.name = "cpu".into();
    cpu.max_cpus_per_socket = Some(3);
    config.partitions.push(cpu);
    let mut world = World::new(config);
    let of_cpu = |tasks| {
        let mut spec = job(tasks, 60);
        spec.partitions = vec!["cpu".into()];
        spec
    };
    let never = world.submit(of_cpu(7));
    let first = world.submit(of_cpu(2));
    let second = world.submit(of_cpu(3));
    let third = world.submit(of_cpu(2));
    world.pass_by_core();
    assert_eq!(cpus(&world, never), [0u32; 0]);
    assert_eq!(cpus(&world, first), [0, 1]);
    assert_eq!(cpus(&world, second), [4, 5, 6]);
    // One CPU of the first socket is left to the partition, and two to others.
    assert_eq!(cpus(&world, third), [0u32; 0]);
    let other = world.submit(job(3, 60));
    world.pass_by_core();
    assert_eq!(cpus(&world, other), [2, 3, 7]);
    world.end(first);
    world.pass_by_core();
    assert_eq!(cpus(&world, third), [0, 1]);
}

#[test]
fn who_waits_for_the_partitions_own_cpus_holds_up_nobody_else() {
    for by_socket in [false, true] {
        let mut config = config(vec![two_sockets("n0", 1)], &[]);
        let mut cpu = config.partitions[0].clone();
        cpu.name = "cpu".into();
        match by_socket {
            true => cpu.max_cpus_per_socket = Some(2),
            false => cpu.max_cpus_per_node = Some(4),
        }
        config.partitions.push(cpu);
        let mut world = World::new(config);
        let of_cpu = |tasks| {
            let mut spec = job(tasks, 60);
            spec.partitions = vec!["cpu".into()];
            spec
        };
        let first = world.submit(of_cpu(1));
        let second = world.submit(of_cpu(3));
        let third = world.submit(of_cpu(2));
        let other = world.submit(job(4, 90));
        world.pass_by_core();
        assert_eq!(cpus(&world, third), [0u32; 0]);
        assert_eq!(cpus(&world, other).len(), 4, "{by_socket}");
        // Less than it waits for becomes free: with what was left it is enough.
        world.end(first);
        world.pass_by_core();
        assert_eq!(cpus(&world, third), [0u32; 0]);
        world.end(second);
        world.pass_by_core();
        assert_eq!(cpus(&world, third).len(), 2, "{by_socket}");
    }
}

#[test]
fn a_partition_gives_whole_sockets_and_another_cores() {
    for by_socket in [false, true] {
        let words: &[&str] = if by_socket { &["CR_Socket"] } else { &[] };
        let mut config = config(vec![two_sockets("n0", 1)], words);
        let mut other = config.partitions[0].clone();
        other.name = "q".into();
        other.whole_sockets = Some(!by_socket);
        config.partitions.push(other);
        let (cores, sockets) = if by_socket { ("q", "p") } else { ("p", "q") };
        let mut world = World::new(config);
        let in_part = |tasks, name: &str| {
            let mut spec = job(tasks, 60);
            spec.partitions = vec![name.into()];
            spec
        };
        let small = world.submit(in_part(1, cores));
        let socket = world.submit(in_part(1, sockets));
        let more = world.submit(in_part(1, sockets));
        world.pass_by_core();
        assert_eq!(cpus(&world, small), [0], "{by_socket}");
        assert_eq!(cpus(&world, socket), [4, 5, 6, 7], "{by_socket}");
        assert_eq!(cpus(&world, more), [0u32; 0], "{by_socket}");
        world.end(small);
        world.pass_by_core();
        assert_eq!(cpus(&world, more), [0, 1, 2, 3], "{by_socket}");
    }
}

#[test]
fn memory_by_cpu_is_counted_by_the_threads_that_are_used() {
    let mut config = config(vec![two_sockets("n0", 2)], &[]);
    config.memory_is_consumable = true;
    let mut world = World::new(config);
    let of = |threads| {
        let mut spec = job(3, 60);
        spec.ask.memory = MemoryAsk::PerCpu(100);
        spec.ask.threads_per_core = threads;
        spec
    };
    let mib = |world: &World, id: JobId| {
        let share = &world.state.jobs[&id].alloc.as_ref().unwrap().nodes[0];
        (share.cpus.len(), share.memory_mib)
    };
    let both = world.submit(of(None));
    let one = world.submit(of(Some(1)));
    world.pass_by_core();
    assert_eq!(mib(&world, both), (4, 400));
    assert_eq!(mib(&world, one), (6, 300));
}

/// Whether a job of so many CPUs fits on one node now, by the simplest means: each socket for itself.
fn naive_fits(world: &World, partition: &str, cpus_wanted: u32) -> bool {
    let socket = |node: usize, s: u32| -> (u32, u32) {
        let node = &world.state.nodes[node];
        let range = s * 4..s * 4 + 4;
        let free = range
            .clone()
            .filter(|c| node.free_cpus.contains(*c))
            .count();
        let active = world.state.active.iter().map(|id| &world.state.jobs[id]);
        let allocs = active.filter_map(|j| j.alloc.as_ref());
        let own = allocs
            .filter(|a| a.partition == "lim")
            .flat_map(|a| &a.nodes);
        let held = own.filter(|share| share.node == node.idx);
        let held = held
            .flat_map(|share| share.cpus.iter())
            .filter(|c| range.contains(c));
        (
            u32::try_from(free).unwrap(),
            u32::try_from(held.count()).unwrap(),
        )
    };
    (0..world.state.nodes.len()).any(|node| {
        let room: u32 = (0..2)
            .map(|s| match (partition, socket(node, s)) {
                ("lim", (free, held)) => free.min(3 - held),
                ("sock", (free, _)) => free / 4 * 4,
                (_, (free, _)) => free,
            })
            .sum();
        room >= cpus_wanted
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// Jobs of partitions that bound the CPUs of sockets, or give whole ones, and of one that does neither, come and
    /// go: rules are kept, whatever fits starts when nobody is before it, and following events changes nothing.
    #[test]
    fn rules_about_sockets_are_kept(
        ops in proptest::collection::vec((0u32..5, 1u32..9, any::<usize>()), 1..40),
    ) {
        let mut config = config(vec![two_sockets("n0", 1), two_sockets("n1", 1)], &[]);
        for name in ["lim", "sock"] {
            let mut part = config.partitions[0].clone();
            part.name = name.into();
            match name {
                "lim" => part.max_cpus_per_socket = Some(3),
                _ => part.whole_sockets = Some(true),
            }
            config.partitions.push(part);
        }
        let mut world = World::new(config);
        for (kind, tasks, which) in ops {
            let partition = ["p", "lim", "sock"].get(kind as usize);
            if let Some(partition) = partition {
                let idle = world.state.pending.is_empty();
                let mut spec = wide(1, tasks, 10);
                spec.partitions = vec![(*partition).into()];
                let fits = naive_fits(&world, partition, tasks);
                let id = world.submit(spec);
                let fresh = Scheduler::new(&world.state).plan(&world.state, world.now);
                let plan = world.sched.plan(&world.state, world.now);
                prop_assert_eq!(&plan.starts, &fresh.starts);
                world.pass_by_core();
                if idle {
                    let started = world.state.jobs[&id].alloc.is_some();
                    prop_assert_eq!(started, fits, "{} CPUs of {}", tasks, partition);
                }
            } else {
                let running: Vec<JobId> = world.state.active.iter().copied().collect();
                if let Some(id) = running.get(which % running.len().max(1)) {
                    world.end(*id);
                }
                world.pass_by_core();
            }
            prop_assert_eq!(world.state.check_invariants(), Ok(()));
            for id in &world.state.active {
                let alloc = world.state.jobs[id].alloc.as_ref().unwrap();
                for share in alloc.nodes.iter().filter(|_| alloc.partition == "sock") {
                    prop_assert!(share.cpus.len() % 4 == 0);
                    let sockets = (0..2u32).filter(|s| (s * 4..s * 4 + 4).all(|c| share.cpus.contains(c)));
                    prop_assert_eq!(sockets.count() as u32 * 4, share.cpus.len());
                }
            }
            for node in &world.state.nodes {
                for s in 0..2u32 {
                    let of_lim = world.state.active.iter().filter_map(|id| world.state.jobs[id].alloc.as_ref());
                    let shares = of_lim.filter(|a| a.partition == "lim").flat_map(|a| &a.nodes);
                    let held = shares.filter(|share| share.node == node.idx).flat_map(|share| share.cpus.iter());
                    prop_assert!(held.filter(|c| c / 4 == s).count() <= 3);
                }
            }
        }
    }
}

/// Two sockets of two cores of two threads.
fn threaded(count: u32, whole_cores: bool) -> World {
    let mut all = nodes(count, 8);
    for node in &mut all {
        (node.sockets, node.cores_per_socket, node.threads_per_core) = (2, 2, 2);
    }
    let mut config = cluster(all);
    config.whole_cores = whole_cores;
    World::new(config)
}

#[test]
fn a_core_is_one_jobs_where_threads_are_counted() {
    let mut world = threaded(1, false);
    let mut started = |spec: JobSpec| {
        let id = world.submit(spec);
        world.pass_by_core();
        cpus(&world, id)
    };
    assert_eq!(started(job(1, 10)), [0]);
    // The rest of the first core is nobody's.
    assert_eq!(started(job(1, 10)), [2]);
    // A thread of each core, where tasks have cores to themselves.
    let mut apart = job(2, 10);
    apart.ask.threads_per_core = Some(1);
    assert_eq!(started(apart), [4, 6]);
    assert_eq!(started(job(1, 10)), [0u32; 0]);
}

#[test]
fn tasks_share_cores_before_a_node_gets_more_of_them() {
    let places = |whole_cores: bool, tasks: u32, nodes: u32| {
        let mut world = threaded(4, whole_cores);
        let id = world.submit(wide(nodes, tasks, 10));
        world.pass_by_core();
        let alloc = world.state.jobs[&id].alloc.clone().unwrap();
        let cpus = alloc.nodes.iter().map(|share| share.cpus.len());
        (world.tasks(id), cpus.sum::<u32>())
    };
    assert_eq!(places(true, 7, 3), (vec![4, 2, 1], 8));
    assert_eq!(places(true, 6, 2), (vec![4, 2], 6));
    assert_eq!(places(true, 5, 4), (vec![2, 1, 1, 1], 8));
    assert_eq!(places(false, 7, 3), (vec![3, 2, 2], 7));
}

#[test]
fn tasks_of_each_socket_are_on_as_many_sockets() {
    let mut world = threaded(2, true);
    let mut spec = job(4, 10);
    spec.ask.ntasks_per_socket = Some(1);
    let id = world.submit(spec);
    world.pass_by_core();
    let alloc = world.state.jobs[&id].alloc.clone().unwrap();
    let of = |at: usize| alloc.nodes[at].cpus.iter().collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec![0, 1, 4, 5], vec![0, 1, 4, 5]));
}

#[test]
fn one_node_jobs_go_where_they_leave_least() {
    let mut world = World::new(cluster(nodes(4, 8)));
    let mut on = |node: &str, cpus: u32| {
        let mut spec = job(cpus, 10);
        spec.ask.nodelist = Some(node.into());
        world.submit(spec);
        world.pass_by_core();
    };
    on("n1", 3);
    on("n2", 5);
    let mut place = |tasks: u32| {
        let id = world.submit(job(tasks, 10));
        world.pass_by_core();
        world.place(id)
    };
    assert_eq!(place(4), "n1:4");
    assert_eq!(place(2), "n2:2");
    assert_eq!(place(8), "n0:8");
    assert_eq!(place(2), "n3:2");
}
