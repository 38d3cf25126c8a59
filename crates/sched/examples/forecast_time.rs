//! Times a forecast of expected starts: copies of the state, slices of the simulation, and the whole.
//!
//! `cargo run --release -p muster-sched --example forecast_time [JOBS]`
#![allow(clippy::unwrap_used, reason = "an example stops at the first surprise")]

#[path = "../tests/it/world.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod world;

use muster_sched::Scheduler;
use muster_sched::forecast::{ForecastBounds, forecast};
use std::time::Instant;
use world::{World, cluster, job, node, wide};

const NODES: u32 = 1_000;
const CPUS: u32 = 128;
const SHAPES: u32 = 500;

fn main() {
    let jobs: u32 = std::env::args()
        .nth(1)
        .map_or(10_000, |n| n.parse().unwrap());
    let lines = (0..NODES)
        .map(|i| node(&format!("n{i}"), CPUS, 256 << 10))
        .collect();
    let mut world = World::new(cluster(lines));
    for i in 0..jobs {
        let shape = i % SHAPES;
        let spec = match shape % 20 {
            0 => wide(2 + shape % 63, (2 + shape % 63) * CPUS, 60 + shape % 600),
            1..5 => job(CPUS + shape % 1000, 60 + shape),
            _ => job(1 + shape % CPUS, 30 + shape),
        };
        world.submit(spec);
    }
    world.sched = Scheduler::new(&world.state);
    let mut running = 0;
    loop {
        let plan = world.sched.plan(&world.state, world.now);
        running += world.commit(&plan).len();
        if !world.sched.needs_another_plan() {
            break;
        }
    }
    println!("{NODES} nodes x {CPUS} CPUs, {jobs} jobs, {running} of them run");
    let before = Instant::now();
    let copy = world.state.clone();
    println!("copy of the state: {:?}", before.elapsed());
    let before = Instant::now();
    drop(copy);
    println!("drop of the copy: {:?}", before.elapsed());
    for starts in [0, 100, 1_000, 5_000] {
        let bounds = ForecastBounds {
            starts,
            ..ForecastBounds::default()
        };
        let before = Instant::now();
        let found = forecast(&world.state, world.now, bounds);
        println!(
            "{starts} starts: {:?}, {} instants, {} found",
            before.elapsed(),
            found.cost,
            found.starts.len()
        );
    }
}
