//! What a job gets: nodes, tasks, CPUs, memory, devices; and why it gets nothing.

use crate::world::{World, cluster, job, node, nodes, partition, wide};
use muster_model::config::PartitionState;
use muster_model::job::Reason;
use muster_model::node::GresConfig;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{GresAsk, JobSpec, MemoryAsk, Sharing};
use muster_model::time::TimeLimit;

fn with(mut spec: JobSpec, change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    change(&mut spec);
    spec
}

/// Places one job in an empty cluster: nodes with CPUs, and tasks.
fn placed(world: &mut World, spec: JobSpec) -> (String, Vec<u32>) {
    let id = world.submit(spec);
    world.pass();
    (world.place(id), world.tasks(id))
}

fn reason_of(world: &mut World, spec: JobSpec) -> Reason {
    let id = world.submit(spec);
    assert_eq!(world.pass(), []);
    world.reason(id)
}

#[test]
fn tasks_are_laid_out_like_slurm_does() {
    let cases: Vec<(JobSpec, &str, Vec<u32>)> = vec![
        (job(1, 9), "n0:1", vec![1]),
        (job(4, 9), "n0:4", vec![4]),
        (job(6, 9), "n0:4 n1:2", vec![4, 2]),
        (wide(2, 4, 9), "n0:3 n1:1", vec![3, 1]),
        (wide(2, 5, 9), "n0:4 n1:1", vec![4, 1]),
        (
            with(job(2, 9), |s| s.ask.cpus_per_task = Some(3)),
            "n0:3 n1:3",
            vec![1, 1],
        ),
        (
            with(job(4, 9), |s| s.ask.ntasks_per_node = Some(2)),
            "n0:2 n1:2",
            vec![2, 2],
        ),
        (
            with(wide(3, 1, 9), |s| s.ask.ntasks = None),
            "n0:1 n1:1 n2:1",
            vec![1, 1, 1],
        ),
        (
            with(wide(2, 1, 9), |s| {
                (s.ask.ntasks, s.ask.ntasks_per_node) = (None, Some(3))
            }),
            "n0:3 n1:3",
            vec![3, 3],
        ),
        (
            with(wide(2, 2, 9), |s| s.ask.min_cpus_per_node = Some(3)),
            "n0:3 n1:3",
            vec![1, 1],
        ),
        (
            with(job(1, 9), |s| s.ask.sharing = Sharing::Exclusive),
            "n0:4",
            vec![1],
        ),
        (
            with(job(9, 9), |s| s.ask.overcommit = true),
            "n0:1",
            vec![9],
        ),
        (
            with(job(1, 9), |s| s.ask.nodelist = Some("n[1-2]".into())),
            "n1:1 n2:1",
            vec![1, 0],
        ),
        (
            with(job(1, 9), |s| s.ask.exclude = Some("n[0-1]".into())),
            "n2:1",
            vec![1],
        ),
        (
            with(job(3, 9), |s| s.ask.spread = true),
            "n0:1 n1:1 n2:1",
            vec![1, 1, 1],
        ),
        (
            with(job(6, 9), |s| s.ask.distribution = Some("cyclic".into())),
            "n0:3 n1:3",
            vec![3, 3],
        ),
    ];
    for (spec, place, tasks) in cases {
        let text = format!("{:?}", spec.ask);
        let mut world = World::simple(3, 4);
        assert_eq!(
            placed(&mut world, spec),
            (place.to_string(), tasks),
            "{text}"
        );
    }
}

#[test]
fn named_nodes_need_their_tasks_only_where_there_are_some() {
    let mut world = World::simple(3, 4);
    let id = world.submit(wide(2, 2, 9));
    world.pass();
    let alloc = world.state.jobs[&id].alloc.clone().expect("it started");
    assert_eq!(
        (
            alloc.hostlist.as_str(),
            alloc.ntasks,
            alloc.partition.as_str()
        ),
        ("n[0-1]", 2, "p")
    );
}

#[test]
fn lowest_weight_then_order() {
    let mut lines = nodes(3, 4);
    lines[0].weight = 9;
    let mut world = World::new(cluster(lines));
    assert_eq!(placed(&mut world, job(1, 9)).0, "n1:1");
    assert_eq!(placed(&mut world, job(4, 9)).0, "n2:4");
    assert_eq!(placed(&mut world, job(4, 9)).0, "n0:4");
}

#[test]
fn lighter_nodes_before_fewer_ones() {
    let mut lines = nodes(5, 4);
    for line in &mut lines[2..4] {
        (line.cpus, line.cores_per_socket, line.weight) = (16, 16, 5);
    }
    (lines[4].cpus, lines[4].cores_per_socket) = (8, 8);
    lines[4].weight = 9;
    let cases = [
        (job(4, 9), "n0:4"),
        (job(5, 9), "n0:4 n1:1"),
        // The light ones do not hold it, and then few nodes are better.
        (job(9, 9), "n2:9"),
        (job(20, 9), "n0:4 n2:16"),
        (job(33, 9), "n0:4 n2:16 n3:13"),
        (wide(2, 20, 9), "n0:4 n2:16"),
        (wide(2, 24, 9), "n2:16 n3:8"),
        // No lighter nodes are to be had in so small a number.
        (with(job(5, 9), |s| s.ask.max_nodes = Some(1)), "n2:5"),
        // Of a range as many as there are.
        (
            with(wide(1, 24, 9), |s| s.ask.max_nodes = Some(3)),
            "n0:4 n1:4 n2:16",
        ),
        (
            with(wide(2, 24, 9), |s| s.ask.max_nodes = Some(5)),
            "n0:4 n1:4 n2:14 n3:1 n4:1",
        ),
        (
            with(job(4, 9), |s| s.ask.spread = true),
            "n0:1 n1:1 n2:1 n3:1",
        ),
    ];
    for (spec, place) in cases {
        let text = format!("{:?}", spec.ask);
        let mut world = World::new(cluster(lines.clone()));
        assert_eq!(placed(&mut world, spec).0, place, "{text}");
    }
}

#[test]
fn whole_cores() {
    let mut lines = nodes(1, 8);
    lines[0].cores_per_socket = 4;
    lines[0].threads_per_core = 2;
    let mut config = cluster(lines);
    config.whole_cores = true;
    let mut world = World::new(config);
    assert_eq!(placed(&mut world, job(1, 9)), ("n0:2".into(), vec![1]));
    assert_eq!(placed(&mut world, job(3, 9)), ("n0:4".into(), vec![3]));
    let one_thread = with(job(2, 9), |s| s.ask.threads_per_core = Some(1));
    assert_eq!(placed(&mut world, one_thread).0, "-");
}

#[test]
fn memory_is_handed_out() {
    let mut config = cluster(nodes(2, 4));
    config.memory_is_consumable = true;
    let mut world = World::new(config);
    let asks = |m| with(job(1, 9), |s| s.ask.memory = m);
    assert_eq!(placed(&mut world, asks(MemoryAsk::PerNode(600))).0, "n0:1");
    assert_eq!(placed(&mut world, asks(MemoryAsk::PerNode(600))).0, "n1:1");
    assert_eq!(placed(&mut world, asks(MemoryAsk::PerNode(600))).0, "-");
    assert_eq!(placed(&mut world, asks(MemoryAsk::PerCpu(400))).0, "n0:1");
    assert_eq!(
        reason_of(&mut world, asks(MemoryAsk::PerNode(1001))),
        Reason::BadConstraints
    );
    // All of a node that others use is not there.
    assert_eq!(placed(&mut world, asks(MemoryAsk::PerNode(0))).0, "-");
    assert_eq!(placed(&mut world, asks(MemoryAsk::Default)).0, "-");
}

#[test]
fn memory_that_is_not_handed_out_must_still_be_there() {
    let mut world = World::simple(1, 4);
    let asks = |m| with(job(1, 9), |s| s.ask.memory = m);
    assert_eq!(placed(&mut world, asks(MemoryAsk::PerNode(600))).0, "n0:1");
    let id = world.submit(asks(MemoryAsk::PerNode(600)));
    world.pass();
    assert_eq!(
        world.state.jobs[&id]
            .alloc
            .as_ref()
            .expect("started")
            .memory_mib(),
        0
    );
    assert_eq!(
        reason_of(&mut world, asks(MemoryAsk::PerNode(1001))),
        Reason::BadConstraints
    );
}

#[test]
fn features_and_devices() {
    let mut lines = nodes(3, 4);
    lines[1].features = vec!["ib".into(), "new".into()];
    lines[2].features = vec!["ib".into()];
    let files = vec![];
    lines[2].gres = vec![GresConfig {
        name: "gpu".into(),
        kind: Some("a".into()),
        count: 2,
        files,
        near: Vec::new(),
        ..GresConfig::default()
    }];
    let mut world = World::new(cluster(lines));
    let needs = |c: &str| with(job(1, 9), |s| s.ask.constraint = Some(c.into()));
    assert_eq!(placed(&mut world, needs("ib&new")).0, "n1:1");
    assert_eq!(
        reason_of(&mut world, needs("ib&old")),
        Reason::BadConstraints
    );
    assert_eq!(reason_of(&mut world, needs("ib*")), Reason::BadConstraints);
    let gpu = |n, kind: Option<&str>| {
        let ask = GresAsk {
            name: "gpu".into(),
            kind: kind.map(str::to_string),
            count: n,
        };
        with(job(1, 9), |s| s.ask.gres = vec![ask])
    };
    let id = world.submit(gpu(1, None));
    world.pass();
    let share = world.state.jobs[&id].alloc.as_ref().expect("started").nodes[0].clone();
    assert_eq!(
        (
            share.name.as_str(),
            share.gres[0].ids.iter().collect::<Vec<_>>()
        ),
        ("n2", vec![0])
    );
    assert_eq!(placed(&mut world, gpu(2, None)).0, "-");
    assert_eq!(placed(&mut world, gpu(1, Some("a"))).0, "n2:1");
    assert_eq!(
        reason_of(&mut world, gpu(1, Some("b"))),
        Reason::BadConstraints
    );
    assert_eq!(reason_of(&mut world, gpu(3, None)), Reason::BadConstraints);
}

#[test]
fn contiguous_nodes() {
    let mut world = World::simple(5, 4);
    world.submit(with(job(4, 9), |s| s.ask.nodelist = Some("n1".into())));
    world.pass();
    let spec = with(wide(2, 8, 9), |s| s.ask.contiguous = true);
    assert_eq!(placed(&mut world, spec).0, "n2:4 n3:4");
}

#[test]
fn reasons_of_what_can_never_run() {
    let mut config = cluster(nodes(4, 4));
    let mut small = partition("small", &config.nodes[..2]);
    small.max_time = TimeLimit::Minutes(10);
    small.max_nodes = Some(1);
    small.max_memory = MemoryAsk::PerNode(500);
    let mut down = partition("down", &config.nodes);
    down.state = PartitionState::Down;
    let mut inactive = partition("inactive", &config.nodes);
    inactive.state = PartitionState::Inactive;
    config.partitions.extend([small, down, inactive]);
    let mut world = World::new(config);
    let to = |p: &str, spec| with(spec, |s| s.partitions = vec![p.into()]);
    assert_eq!(
        reason_of(&mut world, to("small", job(1, 11))),
        Reason::PartitionTimeLimit
    );
    let large = with(job(1, 5), |s| s.ask.memory = MemoryAsk::PerNode(501));
    assert_eq!(
        reason_of(&mut world, to("small", large)),
        Reason::MaxMemPerLimit
    );
    assert_eq!(
        reason_of(&mut world, to("small", wide(2, 2, 5))),
        Reason::PartitionNodeLimit
    );
    assert_eq!(
        reason_of(&mut world, to("down", job(1, 5))),
        Reason::PartitionDown
    );
    assert_eq!(
        reason_of(&mut world, to("inactive", job(1, 5))),
        Reason::PartitionInactive
    );
    assert_eq!(
        reason_of(&mut world, wide(5, 5, 5)),
        Reason::PartitionConfig
    );
    assert_eq!(reason_of(&mut world, job(17, 5)), Reason::PartitionConfig);
    let larger = with(job(2, 5), |s| s.ask.cpus_per_task = Some(5));
    assert_eq!(reason_of(&mut world, larger), Reason::BadConstraints);
    world.drain(3);
    assert_eq!(
        reason_of(&mut world, wide(4, 4, 5)),
        Reason::NodesUnavailable
    );
    let named = with(job(1, 5), |s| s.ask.nodelist = Some("n3".into()));
    let named = world.submit(named);
    world.pass();
    assert_eq!(world.reason(named), Reason::ReqNodeNotAvail);
    world.resume(3);
    assert_eq!(world.pass().len(), 2, "both can run again");
}

#[test]
fn first_partition_with_room() {
    let mut config = cluster(nodes(2, 4));
    config.partitions = vec![
        partition("a", &config.nodes[..1]),
        partition("b", &config.nodes[1..]),
    ];
    let mut world = World::new(config);
    let spec = with(job(3, 9), |s| s.partitions = vec!["a".into(), "b".into()]);
    assert_eq!(placed(&mut world, spec.clone()).0, "n0:3");
    assert_eq!(placed(&mut world, spec.clone()).0, "n1:3");
    assert_eq!(placed(&mut world, spec).0, "-");
}

#[test]
fn a_limit_on_cpus_of_a_partition() {
    let mut config = cluster(nodes(1, 4));
    let mut cpu = partition("cpu", &config.nodes);
    cpu.max_cpus_per_node = Some(2);
    config.partitions.push(cpu);
    let mut world = World::new(config);
    let spec = with(job(1, 9), |s| s.partitions = vec!["cpu".into()]);
    assert_eq!(placed(&mut world, spec.clone()).0, "n0:1");
    assert_eq!(placed(&mut world, spec.clone()).0, "n0:1");
    assert_eq!(placed(&mut world, spec).0, "-");
    assert_eq!(placed(&mut world, job(2, 9)).0, "n0:2");
}

#[test]
fn least_loaded_first() {
    let mut config = cluster(nodes(2, 4));
    config.partitions[0].lln = true;
    let mut world = World::new(config);
    let places: Vec<String> = (0..4).map(|_| placed(&mut world, job(1, 9)).0).collect();
    assert_eq!(places, ["n0:1", "n1:1", "n0:1", "n1:1"]);
}

#[test]
fn array_limit_and_reasons() {
    let mut world = World::simple(1, 4);
    let array = world.array(job(1, 9), 10, Some(2));
    let started = world.pass();
    assert_eq!(started.len(), 2);
    assert_eq!(world.pass(), []);
    assert_eq!(world.reason(array), Reason::JobArrayTaskLimit);
    world.end(started[0]);
    assert_eq!(world.pass().len(), 1);
    let big = world.submit(job(4, 9));
    let bigger = world.submit(job(4, 9));
    world.pass();
    assert_eq!(
        (world.reason(big), world.reason(bigger)),
        (Reason::Resources, Reason::Priority)
    );
}

#[test]
fn a_whole_array_starts_and_its_last_task_takes_the_record() {
    let mut world = World::simple(2, 4);
    let array = world.array(job(1, 9), 8, None);
    let started = world.pass();
    assert_eq!(started.len(), 8);
    assert_eq!(started.last(), Some(&array));
    assert_eq!(world.pass(), []);
}

#[test]
fn starts_now_says_why_not() {
    let mut world = World::simple(2, 4);
    world.submit(job(7, 30));
    world.pass();
    let starts = |spec: &JobSpec| {
        let starts = world.sched.starts_now(&world.state, spec, world.now);
        starts.map_err(|refusal| refusal.code)
    };
    assert_eq!(starts(&job(1, 5)), Ok(()));
    assert_eq!(starts(&wide(2, 4, 5)), Err(RefusalCode::NotImmediate));
    let never = starts(&job(9, 5));
    assert_eq!(never, Err(RefusalCode::NodeConfigUnavailable));
    let lost = with(job(1, 5), |s| s.partitions = vec!["nowhere".into()]);
    assert_eq!(starts(&lost), Err(RefusalCode::InvalidPartition));
}

#[test]
fn a_small_node_is_not_taken_for_a_big_one() {
    let mut world = World::new(cluster(vec![node("s", 2, 100), node("b", 8, 900)]));
    let spec = with(job(1, 9), |s| s.ask.memory = MemoryAsk::PerNode(500));
    assert_eq!(placed(&mut world, spec).0, "b:1");
    assert_eq!(placed(&mut world, wide(2, 8, 9)).0, "s:2 b:6");
}
