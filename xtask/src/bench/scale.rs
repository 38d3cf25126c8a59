//! Large clusters and long queues: answers while many look, agents, restarts, memory.

use super::emulated::follow;
use super::site::{Site, children_ms};
use super::{Bench, Beside};
use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a command may take to come true.
const PATIENCE: Duration = Duration::from_secs(300);

/// What one look at a busy cluster shows.
struct Look {
    /// Milliseconds to the acknowledgement that 99 of 100 submissions had.
    acknowledged: f64,
    /// Milliseconds of a listing of everything.
    listing: f64,
    /// Microseconds of the thread that decides, a job.
    writer: f64,
    /// Jobs a second.
    rate: f64,
    /// Share of one processor that the clients took.
    clients: f64,
}

/// Answers with a long queue, without and with clients that look at it.
pub(super) fn pollers(bench: &mut Bench) -> Result<()> {
    let (pending, users, whole) = (bench.size(100_000), bench.size(200), bench.size(5));
    let nodes = bench.size(10_000).max(10);
    let site = bench.emulated(nodes, 128, "")?;
    let last = format!("n{nodes}");
    let update = format!("nodename={last}");
    site.quiet(
        &["scontrol", "update", &update, "state=drain", "reason=bench"],
        &bench.dir,
    )?;
    let wait = ["sbatch", "-w", &last, "-o", "/dev/null", "--wrap", "true"];
    site.burst(pending, 4, &wait, &bench.dir)?;
    let calm = look(bench, &site, &last)?;
    let stop = AtomicBool::new(false);
    let polled = std::thread::scope(|scope| {
        for number in 0..users + whole {
            let (site, stop, bench) = (&site, &stop, &*bench);
            let args: &[&str] = match number < users {
                true => &["squeue", "--me", "-t", "R"],
                false => &["squeue"],
            };
            scope.spawn(move || poll(bench, site, args, number, stop));
        }
        let polled = look(bench, &site, &last);
        stop.store(true, Ordering::Relaxed);
        polled
    })?;
    println!(
        "  {pending} jobs wait, {nodes} nodes; then {users} clients ask 'squeue --me' and {whole} ask 'squeue', once a second"
    );
    for (when, look) in [("calm", &calm), ("polled", &polled)] {
        bench.figure(
            &format!("{when}: sbatch acknowledged, p99"),
            look.acknowledged,
            "ms",
            &Beside::AtMost(10.0),
        );
        bench.figure(
            &format!("{when}: squeue of everything"),
            look.listing,
            "ms",
            &Beside::AtMost(300.0),
        );
        bench.figure(
            &format!("{when}: throughput"),
            look.rate,
            "jobs/s",
            &Beside::Nothing,
        );
    }
    bench.figure(
        "polled: the writer's time a job",
        polled.writer,
        "us",
        &Beside::Other("calm", calm.writer, Some(0.9)),
    );
    bench.figure(
        "polled: processors that the clients took",
        polled.clients,
        "",
        &Beside::Nothing,
    );
    Ok(())
}

/// Asks once a second.
fn poll(bench: &Bench, site: &Site, args: &[&str], number: u32, stop: &AtomicBool) {
    std::thread::sleep(Duration::from_millis(u64::from(number) * 37 % 1000));
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let _ = site.quiet(args, &bench.dir);
        std::thread::sleep(Duration::from_secs(1).saturating_sub(started.elapsed()));
    }
}

fn look(bench: &Bench, site: &Site, avoid: &str) -> Result<Look> {
    let (started, clients) = (Instant::now(), children_ms());
    let jobs = bench.size(50_000);
    let before = site.cpu_ms()?;
    let array = format!("--array=1-{jobs}");
    let submit = [
        "sbatch",
        &array,
        "-x",
        avoid,
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    ];
    let curve = follow(bench, site, &submit, u64::from(jobs))?;
    let after = site.cpu_ms()?;
    let took = curve.last().map_or(1.0, |last| last.0);
    let mut acks = Vec::new();
    for _ in 0..bench.size(500).max(20) {
        let started = Instant::now();
        site.quiet(
            &["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"],
            &bench.dir,
        )?;
        acks.push(started.elapsed().as_secs_f64() * 1e3);
    }
    acks.sort_by(f64::total_cmp);
    let listing = site.burst(3, 1, &["squeue"], &bench.dir)? / 3.0 * 1e3;
    let used =
        after.get("writer").copied().unwrap_or(0) - before.get("writer").copied().unwrap_or(0);
    Ok(Look {
        acknowledged: acks[acks.len() * 99 / 100],
        listing,
        writer: used as f64 * 1e3 / f64::from(jobs),
        rate: f64::from(jobs) / took,
        clients: (children_ms() - clients) as f64 / started.elapsed().as_secs_f64() / 1e3,
    })
}

/// Connected agents: what they cost while nothing happens, and how soon they are back.
pub(super) fn agents(bench: &mut Bench) -> Result<()> {
    let nodes = bench.size(10_000);
    let site = bench.emulated(nodes, 128, "")?;
    std::thread::sleep(Duration::from_secs(2));
    // Two rounds of the question whether they are there.
    let idle = Duration::from_secs(32);
    let all = |site: &Site| -> Result<u64> {
        let used = site.cpu_ms()?;
        Ok(used
            .iter()
            .filter(|(name, _)| *name != "emulator")
            .map(|(_, ms)| ms)
            .sum())
    };
    let before = all(&site)?;
    std::thread::sleep(idle);
    let share = (all(&site)? - before) as f64 / idle.as_millis() as f64 * 100.0;
    let name = format!("idle with {nodes} agents, of a processor");
    bench.figure(&name, share, "%", &Beside::AtMost(5.0));
    let resident = site.resident()? as f64 / (1 << 20) as f64;
    bench.figure("memory", resident, "MiB", &Beside::AtMost(2048.0));
    let started = site.kill_and_start()?;
    let args = ["sinfo", "-h", "-r", "-o", "%D"];
    loop {
        let up = site.text(&args, &bench.dir).unwrap_or_default();
        let up: u32 = up
            .lines()
            .filter_map(|l| l.trim().parse::<u32>().ok())
            .sum();
        // The state on disk says that they are there: their connections say that they are back.
        let connected = site.diag(bench, "Server thread count").unwrap_or(0);
        if up >= nodes && connected >= u64::from(nodes) {
            break;
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "{up} of {nodes} nodes came back"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    bench.figure(
        "all back after the controller was killed",
        started.elapsed().as_secs_f64(),
        "s",
        &Beside::AtMost(10.0),
    );
    Ok(())
}

/// A long queue: memory, and a restart with it.
pub(super) fn restart(bench: &mut Bench) -> Result<()> {
    let (singles, tasks) = (bench.size(100_000), bench.size(1_000_000));
    let site = bench.emulated(4, 64, "")?;
    let empty = site.resident()?;
    let args = ["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"];
    site.burst(singles, 4, &args, &bench.dir)?;
    let full = site.resident()?;
    let each = (full.saturating_sub(empty)) as f64 / f64::from(singles);
    bench.figure(
        "memory of a pending single job",
        each,
        "bytes",
        &Beside::AtMost(2048.0),
    );
    let array = format!("--array=1-{tasks}");
    let args = ["sbatch", &array, "-H", "-o", "/dev/null", "--wrap", "true"];
    site.quiet(&args, &bench.dir)?;
    let each = (site.resident()?.saturating_sub(full)) as f64 / f64::from(tasks);
    bench.figure(
        "memory of a pending array task",
        each,
        "bytes",
        &Beside::AtMost(32.0),
    );
    let started = site.kill_and_start()?;
    loop {
        let ready = site.text(&["sdiag"], &bench.dir);
        if ready.is_ok() {
            break;
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "the controller does not answer"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = started.elapsed().as_secs_f64();
    let waiting = site
        .text(&["squeue", "-h", "-r", "-o", "%A"], &bench.dir)?
        .lines()
        .count();
    ensure!(
        waiting as u64 == u64::from(singles) + u64::from(tasks),
        "{waiting} jobs wait after the restart"
    );
    let name = format!("restart with {tasks} array tasks and {singles} single jobs");
    bench.figure(&name, took, "s", &Beside::AtMost(3.0));
    Ok(())
}

/// How many messages a step costs the controller, by how many nodes it has.
pub(super) fn wide(bench: &mut Bench) -> Result<()> {
    let most = bench.size(64).max(4);
    let conf = format!(
        "{}NodeName=n[1-{most}] CPUs=4 RealMemory=1000 State=UNKNOWN\n\
         PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP\n",
        crate::peer::CONF
    );
    let site = bench.site(&conf, &[])?;
    let steps: u32 = 10;
    for nodes in [1, most / 4, most] {
        let shell = format!(
            "srun -Q -N{nodes} true; sdiag; for i in $(seq {steps}); do srun -Q -N{nodes} true; done; sdiag"
        );
        let width = format!("-N{nodes}");
        let text = site.text(&["salloc", "-Q", &width, "bash", "-c", &shell], &bench.dir)?;
        let looks: Vec<u64> = text
            .lines()
            .filter_map(|l| l.strip_prefix("Agents: "))
            .map(|l| {
                let numbers = l.split_whitespace().filter_map(|w| w.parse::<u64>().ok());
                numbers.sum()
            })
            .collect();
        ensure!(looks.len() == 2, "the steps did not run: {text}");
        let each = (looks[1] - looks[0]) as f64 / f64::from(steps);
        let name = format!("messages between controller and agents, a step of {nodes} nodes");
        bench.figure(&name, each, "", &Beside::AtMost(8.0));
    }
    Ok(())
}
