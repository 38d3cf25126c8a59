//! Times passes of the scheduler: 10,000 nodes of 128 CPUs, 100,000 waiting jobs of 2,000 shapes. Prints the first
//! pass, passes after single events, and the start of an array of many tasks.
//!
//! `cargo run --release -p muster-sched --example pass_time`
#![allow(clippy::unwrap_used, reason = "an example stops at the first surprise")]

#[path = "../tests/it/world.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod world;

use muster_core::ids::JobId;
use std::time::{Duration, Instant};
use world::{World, cluster, job, node, wide};

const NODES: u32 = 10_000;
const CPUS: u32 = 128;
const JOBS: u32 = 100_000;
const SHAPES: u32 = 2_000;

fn main() {
    let lines = (0..NODES)
        .map(|i| node(&format!("n{i}"), CPUS, 256 << 10))
        .collect();
    let mut world = World::new(cluster(lines));
    for i in 0..JOBS {
        let shape = i % SHAPES;
        let spec = match shape % 20 {
            0 => wide(2 + shape % 63, (2 + shape % 63) * CPUS, 60 + shape % 600),
            1..5 => job(CPUS + shape % 1000, 60 + shape),
            _ => job(1 + shape % CPUS, 30 + shape),
        };
        world.submit(spec);
    }
    println!("{NODES} nodes x {CPUS} CPUs, {JOBS} jobs, {SHAPES} shapes");
    let mut running: Vec<JobId> = Vec::new();
    for n in 1.. {
        let started = timed(&format!("pass {n} (filling)"), &mut world);
        running.extend(&started);
        if !world.sched.more() {
            break;
        }
    }
    timed("nothing changed but the last starts", &mut world);
    timed("nothing changed", &mut world);
    let mut worst = Duration::ZERO;
    let mut total = Duration::ZERO;
    for n in 0..100 {
        let id = running[n * 7 % running.len()];
        if world.state.jobs[&id].completing || world.state.jobs[&id].state.is_ended() {
            continue;
        }
        world.now = world.now.plus_s(1);
        world.end(id);
        let before = Instant::now();
        let plan = world.sched.plan(&world.state, world.now);
        let took = before.elapsed();
        (worst, total) = (worst.max(took), total + took);
        if n < 3 {
            println!(
                "  one job ended: {took:?}, {} starts, {:?}",
                plan.starts.len(),
                world.sched.cost()
            );
        }
        running.extend(world.commit(&plan));
    }
    println!(
        "100 passes, each after the end of one job: mean {:?}, worst {worst:?}",
        total / 100
    );
    world.submit(job(3, 77));
    timed("one new job of a new shape", &mut world);

    let lines = (0..NODES)
        .map(|i| node(&format!("n{i}"), CPUS, 256 << 10))
        .collect();
    let mut world = World::new(cluster(lines));
    world.array(job(1, 60), 4_000, None);
    timed("4,000 tasks of an array", &mut world);
}

fn timed(what: &str, world: &mut World) -> Vec<JobId> {
    let before = Instant::now();
    let plan = world.sched.plan(&world.state, world.now);
    let took = before.elapsed();
    let (starts, cost) = (plan.starts.len(), world.sched.cost());
    println!(
        "{what}: {took:?}, {starts} starts, {} reasons, {cost:?}",
        plan.reasons.len()
    );
    world.commit(&plan)
}
