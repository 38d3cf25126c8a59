//! `MaxMemPerNode` and `MaxMemPerCPU`: no way to ask for memory gives more of a node.

use crate::world::{World, cluster, job, node, partition, wide};
use muster_model::config::{ClusterConfig, JobDefaults, PartitionConfig};
use muster_model::job::Reason;
use muster_model::node::{GresConfig, NodeConfig};
use muster_model::spec::{DeviceAsk, GresAsk, JobSpec, MemoryAsk, Sharing};

const PER_NODE: MemoryAsk = MemoryAsk::PerNode(100);
const PER_CPU: MemoryAsk = MemoryAsk::PerCpu(50);

/// Two nodes of 8 CPUs, 1000 MiB and 4 GPUs.
fn config(change: impl FnOnce(&mut PartitionConfig)) -> ClusterConfig {
    let line = |name: &str| NodeConfig {
        gres: vec![GresConfig {
            name: "gpu".into(),
            count: 4,
            ..GresConfig::default()
        }],
        ..node(name, 8, 1000)
    };
    let mut config = cluster(vec![line("n0"), line("n1")]);
    config.memory_is_consumable = true;
    let mut limited = partition("limited", &config.nodes);
    change(&mut limited);
    config.partitions.push(limited);
    config
}

fn asking(mut spec: JobSpec, memory: MemoryAsk) -> JobSpec {
    spec.partitions = vec!["limited".into()];
    spec.ask.memory = memory;
    spec
}

fn with_gpus(mut spec: JobSpec, count: u64, mib: Option<u64>) -> JobSpec {
    spec.ask.devices = Some(Box::new(DeviceAsk {
        per_job: vec![GresAsk {
            name: "gpu".into(),
            kind: None,
            count,
        }],
        mib_per_gpu: mib,
        ..DeviceAsk::default()
    }));
    spec
}

/// `CPUs/MiB` of each node, by the scheduler and the core, or why it waits.
fn got(config: ClusterConfig, spec: JobSpec) -> Result<String, Reason> {
    let mut world = World::new(config);
    let id = world.submit(spec);
    if world.pass_by_core().is_empty() {
        return Err(world.reason(id));
    }
    let alloc = world.state.jobs[&id].alloc.clone().expect("it started");
    let text = |s: &muster_model::job::NodeShare| format!("{}/{}", s.cpus.len(), s.memory_mib);
    Ok(alloc.nodes.iter().map(text).collect::<Vec<_>>().join(" "))
}

#[test]
fn memory_is_within_what_a_partition_allows() {
    let exclusive = |mut spec: JobSpec| {
        spec.ask.sharing = Sharing::Exclusive;
        spec
    };
    let all = MemoryAsk::PerNode(0);
    let none = MemoryAsk::Default;
    let each = MemoryAsk::PerCpu(50);
    let over = Err(Reason::MaxMemPerLimit);
    let is = |text: &str| Ok(text.to_owned());
    let cases = [
        (PER_NODE, asking(job(1, 9), all), is("1/100")),
        (PER_NODE, asking(job(1, 9), none), is("1/100")),
        (PER_CPU, asking(job(1, 9), all), is("1/50")),
        (PER_CPU, asking(job(3, 9), none), is("3/150")),
        (PER_CPU, exclusive(asking(job(1, 9), all)), is("8/400")),
        (PER_NODE, asking(job(2, 9), each), is("2/100")),
        (PER_NODE, asking(wide(1, 4, 9), each), over.clone()),
        (PER_NODE, asking(wide(2, 4, 9), each), is("2/100 2/100")),
        (PER_NODE, exclusive(asking(job(1, 9), each)), is("8/100")),
        (
            PER_CPU,
            asking(job(1, 9), MemoryAsk::PerNode(301)),
            is("7/301"),
        ),
        (
            PER_CPU,
            asking(job(1, 9), MemoryAsk::PerNode(401)),
            Err(Reason::BadConstraints),
        ),
        (
            PER_NODE,
            asking(with_gpus(job(1, 9), 1, Some(100)), none),
            is("1/100"),
        ),
        (
            PER_NODE,
            asking(with_gpus(job(1, 9), 1, Some(101)), none),
            over.clone(),
        ),
        (
            PER_NODE,
            asking(with_gpus(wide(1, 1, 9), 2, Some(60)), none),
            over,
        ),
        (
            PER_CPU,
            asking(with_gpus(job(1, 9), 2, Some(120)), none),
            is("6/240"),
        ),
        // Without GPUs it is as if it asked for no memory.
        (
            PER_NODE,
            {
                let mut spec = asking(job(1, 9), none);
                spec.ask.devices = Some(Box::new(DeviceAsk {
                    mib_per_gpu: Some(1),
                    ..DeviceAsk::default()
                }));
                spec
            },
            is("1/100"),
        ),
    ];
    for (most, spec, wanted) in cases {
        let text = format!("{most:?}: {:?}", spec.ask);
        let in_partition = config(|p| p.max_memory = most);
        let mut in_cluster = config(|_| {});
        in_cluster.max_memory = most;
        assert_eq!(got(in_partition, spec.clone()), wanted, "{text}");
        assert_eq!(got(in_cluster, spec), wanted, "of the cluster, {text}");
    }
}

/// The site's own defaults do not keep jobs waiting for ever.
#[test]
fn defaults_over_the_most_are_cut() {
    let by_gpu = JobDefaults {
        mib_per_gpu: Some(150),
        ..JobDefaults::default()
    };
    let gpus = || asking(with_gpus(wide(1, 1, 9), 2, None), MemoryAsk::Default);
    let plain = || asking(job(2, 9), MemoryAsk::Default);
    let cases: [(MemoryAsk, MemoryAsk, JobSpec, &str); 5] = [
        (PER_NODE, MemoryAsk::PerNode(300), plain(), "2/100"),
        (PER_CPU, MemoryAsk::PerCpu(300), plain(), "2/100"),
        (PER_CPU, MemoryAsk::PerNode(300), plain(), "6/300"),
        (PER_NODE, MemoryAsk::Default, gpus(), "1/100"),
        (PER_CPU, MemoryAsk::Default, gpus(), "1/50"),
    ];
    for (most, default, spec, wanted) in cases {
        let config = config(|p| {
            (p.max_memory, p.default_memory) = (most, default);
            p.job_defaults = by_gpu;
        });
        let mut spec = spec;
        if default != MemoryAsk::Default {
            spec.ask.devices = None;
        }
        assert_eq!(
            got(config, spec),
            Ok(wanted.to_owned()),
            "{most:?} {default:?}"
        );
    }
}

#[test]
fn each_partition_that_a_job_names_has_its_own_most() {
    let mut config = config(|p| p.max_memory = PER_CPU);
    config.partitions[0].state = muster_model::config::PartitionState::Down;
    let mut spec = asking(job(1, 9), MemoryAsk::PerNode(200));
    spec.partitions = vec!["p".into(), "limited".into()];
    assert_eq!(got(config, spec), Ok("4/200".to_owned()));
}

/// What a plan was made for may have changed until it is carried out.
#[test]
fn a_start_with_more_is_dropped() {
    for most in [PER_NODE, MemoryAsk::PerCpu(100)] {
        let mut world = World::new(config(|_| {}));
        let id = world.submit(asking(job(1, 9), MemoryAsk::PerNode(101)));
        let plan = world.sched.plan(&world.state, world.now);
        assert_eq!(plan.starts.len(), 1);
        world.apply(&muster_core::event::Event::Configured {
            config: std::sync::Arc::new(config(|p| p.max_memory = most)),
            at: world.now,
            partitions: None,
        });
        world.decide(&muster_model::command::Command::Commit(plan));
        assert!(world.state.jobs[&id].alloc.is_none(), "{most:?}");
    }
}
