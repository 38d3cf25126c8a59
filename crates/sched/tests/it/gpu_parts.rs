//! GPUs that jobs share by parts: `mps` and `shard`.

use crate::world::{World, cases, cluster, job, node};
use muster_model::config::ClusterConfig;
use muster_model::cpuset::CpuSet;
use muster_model::gpu_parts::PartsOfGpus;
use muster_model::ids::JobId;
use muster_model::node::{GresConfig, NodeConfig};
use muster_model::spec::{GresAsk, JobSpec, Sharing};
use muster_sched::Scheduler;
use proptest::prelude::*;

fn entry(name: &str, count: u64) -> GresConfig {
    GresConfig {
        name: name.into(),
        count,
        ..GresConfig::default()
    }
}

/// Nodes n0, n1, ... of 8 CPUs, two GPUs and four parts of each.
fn config(nodes: u32, name: &str, words: &[&str]) -> ClusterConfig {
    let line = |i: u32| NodeConfig {
        gres: vec![
            entry("gpu", 2),
            GresConfig {
                parts: Some(PartsOfGpus {
                    of: vec![4, 4],
                    one_gpu: name == "mps",
                }),
                ..entry(name, 8)
            },
        ],
        ..node(&format!("n{i}"), 8, 1000)
    };
    let mut config = cluster((0..nodes).map(line).collect());
    config.select_parameters = words.iter().map(|w| (*w).to_owned()).collect();
    config
}

fn asking(name: &str, count: u64) -> JobSpec {
    let mut spec = job(1, 10);
    spec.ask.gres = vec![GresAsk {
        name: name.into(),
        kind: None,
        count,
    }];
    spec
}

/// `name:instances` of a job that runs, with the GPUs that they are parts of.
fn got(world: &World, id: JobId) -> String {
    let Some(alloc) = &world.state.jobs[&id].alloc else {
        return "-".into();
    };
    let shares = alloc.nodes.iter().flat_map(|s| &s.gres);
    let text = |s: &muster_model::job::GresShare| {
        let ids: Vec<String> = s.ids.iter().map(|id| id.to_string()).collect();
        let gpus: Vec<String> = s
            .gpu_parts()
            .map(|(gpu, n, of)| format!("{gpu}={n}/{of}"))
            .collect();
        format!("{}:{} {}", s.name, ids.join(","), gpus.join(" "))
            .trim_end()
            .to_owned()
    };
    shares.map(text).collect::<Vec<_>>().join(" ")
}

fn run(world: &mut World, specs: Vec<JobSpec>) -> Vec<String> {
    let ids: Vec<JobId> = specs.into_iter().map(|spec| world.submit(spec)).collect();
    world.pass_by_core();
    ids.iter().map(|id| got(world, *id)).collect()
}

#[test]
fn a_job_has_parts_of_one_gpu_and_fills_it_before_the_next() {
    let mut world = World::new(config(1, "shard", &[]));
    let jobs = [2, 3, 2, 1].map(|n| asking("shard", n)).to_vec();
    assert_eq!(
        run(&mut world, jobs),
        [
            "shard:0,1 0=2/4",
            "shard:4,5,6 1=3/4",
            "shard:2,3 0=2/4",
            "shard:7 1=1/4"
        ]
    );
    let mut world = World::new(config(1, "shard", &[]));
    assert_eq!(run(&mut world, vec![asking("shard", 5)]), ["-"]);
    let mut world = World::new(config(1, "shard", &["MULTIPLE_SHARING_GRES_PJ"]));
    assert_eq!(
        run(&mut world, vec![asking("shard", 5)]),
        ["shard:0,1,2,3,4 0=4/4 1=1/4"]
    );
    let mut world = World::new(config(1, "shard", &["LL_SHARED_GRES"]));
    let jobs = [1, 1].map(|n| asking("shard", n)).to_vec();
    assert_eq!(run(&mut world, jobs), ["shard:0 0=1/4", "shard:4 1=1/4"]);
}

#[test]
fn a_gpu_is_shared_or_whole() {
    let mut world = World::new(config(1, "shard", &[]));
    let jobs = vec![
        asking("shard", 1),
        asking("gpu", 2),
        asking("gpu", 1),
        asking("shard", 4),
    ];
    assert_eq!(run(&mut world, jobs), ["shard:0 0=1/4", "-", "gpu:1", "-"]);
    let shard = world.state.jobs.keys().next().copied().unwrap();
    world.end(shard);
    world.pass_by_core();
    // The second job waits for both GPUs, the last one takes the free one only if it does not hold that up.
    let last = *world.state.jobs.keys().last().unwrap();
    assert_eq!(got(&world, last), "shard:0,1,2,3 0=4/4");
}

#[test]
fn mps_serves_one_gpu_at_a_time() {
    let mut world = World::new(config(2, "mps", &[]));
    let jobs = [1, 4, 3, 4].map(|n| asking("mps", n)).to_vec();
    let got = run(&mut world, jobs);
    assert_eq!(
        got[..3],
        ["mps:0 0=1/4", "mps:0,1,2,3 0=4/4", "mps:1,2,3 0=3/4"]
    );
    assert_eq!(got[3], "-");
}

#[test]
fn a_whole_node_comes_with_its_gpus_and_not_with_their_parts() {
    let mut world = World::new(config(1, "shard", &[]));
    let mut spec = job(1, 10);
    spec.ask.sharing = Sharing::Exclusive;
    assert_eq!(run(&mut world, vec![spec]), ["gpu:0,1"]);
}

#[test]
fn what_is_not_used_up_is_there_for_all() {
    let mut line = node("n0", 8, 1000);
    line.gres = vec![GresConfig {
        no_consume: true,
        ..entry("lustre", 4)
    }];
    let mut world = World::new(cluster(vec![line]));
    let jobs = vec![
        asking("lustre", 4),
        asking("lustre", 3),
        asking("lustre", 5),
    ];
    assert_eq!(
        run(&mut world, jobs),
        ["lustre:0,1,2,3", "lustre:0,1,2", "-"]
    );
    assert!(world.state.nodes[0].used_gres[0].is_empty());
    assert_eq!(world.state.check_invariants(), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// However jobs come and go: no GPU is whole and in parts, no part is given twice, parts of a job are of one GPU,
    /// and a scheduler that followed events plans what a new one plans.
    #[test]
    fn gpus_are_given_out_once(
        ops in proptest::collection::vec((0u32..4, 1u64..5, any::<usize>()), 1..40),
        mps in any::<bool>(),
    ) {
        let name = if mps { "mps" } else { "shard" };
        let mut world = World::new(config(2, name, &[]));
        for (kind, count, which) in ops {
            match kind {
                0 => { world.submit(asking("gpu", count.min(2))); }
                1 | 2 => { world.submit(asking(name, count)); }
                _ => {
                    let running: Vec<JobId> = world.state.active.iter().copied().collect();
                    if let Some(id) = running.get(which % running.len().max(1)) {
                        world.end(*id);
                    }
                }
            }
            let plan = world.sched.plan(&world.state, world.now);
            let fresh = Scheduler::new(&world.state).plan(&world.state, world.now);
            prop_assert_eq!(&plan.starts, &fresh.starts);
            world.pass_by_core();
            prop_assert_eq!(world.state.check_invariants(), Ok(()));
            for node in &world.state.nodes {
                let parts = &node.used_gres[1];
                let of = |gpu: u32| parts.iter().filter(|p| p / 4 == gpu).count();
                for gpu in 0..2 {
                    prop_assert!(of(gpu) == 0 || !node.used_gres[0].contains(gpu));
                }
                prop_assert!(!mps || of(0) == 0 || of(1) == 0);
            }
            let held: Vec<&CpuSet> = (world.state.active.iter())
                .filter_map(|id| world.state.jobs[id].alloc.as_ref())
                .flat_map(|a| &a.nodes)
                .flat_map(|s| &s.gres)
                .filter(|g| g.name == name)
                .map(|g| &g.ids)
                .collect();
            for ids in held {
                let first = ids.iter().next().unwrap_or(0) / 4;
                prop_assert!(ids.iter().all(|id| id / 4 == first));
            }
        }
    }
}
