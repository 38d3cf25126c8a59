//! Times passes of the scheduler: 10,000 nodes of 128 CPUs, 100,000 waiting jobs of 2,000 shapes. Prints the first
//! pass, passes after single events, and the start of an array of many tasks.
//!
//! Memory is counted by the allocator: what is live after the submissions, scheduler and state apart.
//!
//! `cargo xtask bench sched`
#![allow(clippy::unwrap_used, reason = "an example stops at the first surprise")]

#[path = "../tests/it/world.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod world;

use muster_model::ids::JobId;
use muster_sched::Scheduler;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use world::{World, cluster, job, node, wide};

const NODES: u32 = 10_000;
const CPUS: u32 = 128;
const JOBS: u32 = 100_000;
const SHAPES: u32 = 2_000;

/// The system's allocator, with a count of the bytes that are live.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator unchanged; only a count is kept beside it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

fn main() {
    let lines = (0..NODES)
        .map(|i| node(&format!("n{i}"), CPUS, 256 << 10))
        .collect();
    let mut world = World::new(cluster(lines));
    let empty = live();
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
    world.sched = Scheduler::default();
    let state = live() - empty;
    world.sched = Scheduler::new(&world.state);
    println!(
        "memory: {} bytes of state a waiting job",
        state / JOBS as usize
    );
    let mut running: Vec<JobId> = Vec::new();
    for n in 1.. {
        let started = timed(&format!("pass {n} (filling)"), &mut world);
        running.extend(&started);
        if n == 1 {
            let all = (live() - empty) / JOBS as usize;
            println!(
                "memory: {all} bytes a job, scheduler and {} running jobs included",
                started.len()
            );
        }
        if !world.sched.needs_another_plan() {
            break;
        }
    }
    timed("nothing changed but the last starts", &mut world);
    timed("nothing changed", &mut world);
    let mut times: Vec<Duration> = Vec::new();
    for n in 0..1000 {
        let id = running[n * 7 % running.len()];
        if world.state.jobs[&id].completing || world.state.jobs[&id].state.is_ended() {
            continue;
        }
        world.now = world.now.plus_s(1);
        world.end(id);
        let before = Instant::now();
        let plan = world.sched.plan(&world.state, world.now);
        let took = before.elapsed();
        times.push(took);
        if times.len() <= 3 {
            println!(
                "  one job ended: {took:?}, {} starts, {:?}",
                plan.starts.len(),
                world.sched.cost()
            );
        }
        running.extend(world.commit(&plan));
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!(
        "{} passes, each after the end of one job: median {:?}, p99 {:?}, worst {:?}",
        times.len(),
        at(50),
        at(99),
        at(100)
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
