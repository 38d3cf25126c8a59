//! The controller over its real protocol, with nodes that one process speaks for: throughput, whether it falls with what
//! has already run or with what waits, and what each of the ideas costs or gives.

use super::plot::Plot;
use super::site::{Site, number, second_number};
use super::{Bench, Beside};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Jobs that ended, by time since the submission in seconds.
type Curve = Vec<(f64, u64)>;

/// Time between two looks. The look is a command of its own, so that it takes little of the machine.
const LOOK: Duration = Duration::from_millis(200);
/// Nothing ends for so long: something is wrong.
const STALL: Duration = Duration::from_secs(120);

/// Submits an array and follows it until the last row is in the accounting store.
pub(super) fn follow(bench: &Bench, site: &Site, submit: &[&str], jobs: u64) -> Result<Curve> {
    let before = site.diag(bench, "Jobs completed")?;
    let started = Instant::now();
    site.quiet(submit, &bench.dir)?;
    let mut curve = vec![(0.0, 0)];
    let mut moved = Instant::now();
    loop {
        std::thread::sleep(LOOK);
        let text = site.text(&["sdiag"], &bench.dir)?;
        let done = number(&text, "Jobs completed")?.saturating_sub(before);
        let behind = number(&text, "DBD Agent queue size")?;
        if curve.last().is_none_or(|(_, last)| *last != done) {
            moved = Instant::now();
        }
        curve.push((started.elapsed().as_secs_f64(), done));
        if done >= jobs && behind == 0 {
            return Ok(curve);
        }
        ensure!(
            moved.elapsed() < STALL,
            "{done} of {jobs} jobs ended, and then nothing"
        );
    }
}

/// When so many had ended.
fn time_of(curve: &Curve, jobs: f64) -> f64 {
    let after = curve.iter().position(|(_, done)| *done as f64 >= jobs);
    let Some(at) = after.filter(|at| *at > 0) else {
        return 0.0;
    };
    let ((t0, d0), (t1, d1)) = (curve[at - 1], curve[at]);
    t0 + (t1 - t0) * (jobs - d0 as f64) / (d1 as f64 - d0 as f64).max(1.0)
}

/// Rates of as many equal parts of the jobs.
fn rates(curve: &Curve, jobs: u64, parts: u32) -> Vec<(f64, f64)> {
    let each = jobs as f64 / f64::from(parts);
    let end = |part: u32| each * f64::from(part);
    (1..=parts)
        .map(|part| {
            let took = time_of(curve, end(part)) - time_of(curve, end(part - 1));
            (end(part), each / took.max(1e-9))
        })
        .collect()
}

fn array(count: u32) -> String {
    format!("--array=1-{count}")
}

/// Throughput, decay and where the time goes.
pub(super) fn throughput(bench: &mut Bench) -> Result<()> {
    let count = bench.size(1_000_000);
    let site = bench.emulated(1_000, 64, "")?;
    let (resident, before, starved) = (site.resident()?, site.cpu_ms()?, site.starved_ms()?);
    let submit = ["sbatch", &array(count), "-o", "/dev/null", "--wrap", "true"];
    let curve = follow(bench, &site, &submit, u64::from(count))?;
    let (after, starved_after) = (site.cpu_ms()?, site.starved_ms()?);
    let took = curve.last().map_or(1.0, |last| last.0);
    let name = format!("{count} emulated jobs on 1,000 nodes, to the last row");
    let rate = f64::from(count) / took;
    bench.figure(&name, rate, "jobs/s", &Beside::AtLeast(20_000.0));
    let parts = rates(&curve, u64::from(count), 10);
    let ratio = parts[9].1 / parts[0].1;
    bench.figure(
        "rate of the last tenth by that of the first",
        ratio,
        "",
        &Beside::AtLeast(0.9),
    );
    for (name, ms) in &after {
        let used = ms - before.get(name).copied().unwrap_or(0);
        if used > 0 {
            let each = used as f64 * 1e3 / f64::from(count);
            bench.figure(
                &format!("processor time of a job: {name}"),
                each,
                "us",
                &Beside::Nothing,
            );
        }
    }
    for thread in ["writer", "replica", "accounting", "slurmctld"] {
        let of = |all: &BTreeMap<String, u64>| all.get(thread).copied().unwrap_or(0);
        let share = (of(&starved_after) - of(&starved)) as f64 / took / 10.0;
        let name = format!("of the time, ready without a processor: {thread}");
        bench.figure(&name, share, "%", &Beside::Nothing);
    }
    let completed = ["-s", "CD", "-S", "now-1day", "-E", "now"];
    let args = [&["sacct", "-X", "-n", "-o", "jobid"][..], &completed].concat();
    let rows = site.text(&args, &bench.dir)?;
    let rows = rows.lines().count();
    ensure!(
        rows == count as usize,
        "{rows} of {count} rows in the accounting store"
    );
    site.until("ended jobs have left", || {
        let all = ["squeue", "-h", "-t", "all", "-o", "%A"];
        Ok(site.text(&all, &bench.dir)?.is_empty())
    })?;
    let grown = site.resident()?.saturating_sub(resident) as f64 / f64::from(count);
    bench.figure(
        "memory that is left of each when all are over",
        grown,
        "bytes",
        &Beside::Nothing,
    );
    let points = rates(&curve, u64::from(count), 40);
    bench.plot(
        "throughput-by-history.svg",
        &Plot {
            title: "Throughput by jobs that are already over",
            x: "jobs over",
            y: "jobs/s",
            bar: Some(20_000.0),
            points: &points,
        },
    )
}

/// Single jobs from many clients at once, and all of them run meanwhile.
pub(super) fn flow(bench: &mut Bench) -> Result<()> {
    let count = bench.size(200_000);
    let site = bench.emulated(1_000, 64, "")?;
    let before = site.diag(bench, "Jobs completed")?;
    let started = Instant::now();
    let args = ["-o", "/dev/null", "--wrap", "true"];
    let submitted = site.submit(count, 64, &args, &bench.dir)?;
    site.until("all jobs are accounted for", || {
        let text = site.text(&["sdiag"], &bench.dir)?;
        let done = number(&text, "Jobs completed")? - before;
        Ok(done >= u64::from(count) && number(&text, "DBD Agent queue size")? == 0)
    })?;
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    let name = format!("{count} single submissions by 64 clients, to the last row");
    bench.figure(&name, rate, "jobs/s", &Beside::Nothing);
    for (name, ms) in [
        ("  acknowledged, half of them", submitted.half),
        ("  acknowledged, 99 of 100", submitted.most),
    ] {
        bench.figure(name, ms, "ms", &Beside::Nothing);
    }
    Ok(())
}

/// Settings of slurm.conf for a row of the table.
type Setting = (&'static str, &'static str);

const NO_ACCOUNTING: &str = "AccountingStorageType=accounting_storage/none\n";
const FIFO: &str = "SchedulerType=sched/builtin\nPriorityType=priority/basic\n";
const MULTIFACTOR: &str =
    "PriorityType=priority/multifactor\nPriorityWeightAge=1000\nPriorityWeightFairshare=10000\n";

/// Each idea on and off.
pub(super) fn ideas(bench: &mut Bench) -> Result<()> {
    let both = format!("{NO_ACCOUNTING}{FIFO}");
    let settings: [Setting; 5] = [
        ("as it is: accounting, backfill, order by prediction", ""),
        ("accounting off", NO_ACCOUNTING),
        ("FIFO (sched/builtin, priority/basic)", FIFO),
        (
            "order of submission (priority/basic), backfill",
            "PriorityType=priority/basic\n",
        ),
        ("priority/multifactor", MULTIFACTOR),
    ];
    for (name, more) in settings {
        idea(bench, name, more)?;
    }
    idea(bench, "accounting off and FIFO", &both)?;
    pull(bench)?;
    shapes(bench)?;
    commits(bench)
}

fn idea(bench: &mut Bench, name: &str, more: &str) -> Result<()> {
    let count = bench.size(100_000);
    let submit = ["sbatch", &array(count), "-o", "/dev/null", "--wrap", "true"];
    let site = bench.emulated(1_000, 64, more)?;
    let before = site.cpu_ms()?;
    let curve = follow(bench, &site, &submit, u64::from(count))?;
    let rate = f64::from(count) / curve.last().map_or(1.0, |last| last.0);
    let used = site.cpu_ms()?;
    let of = |all: &BTreeMap<String, u64>| -> u64 {
        let controller = all.iter().filter(|(name, _)| *name != "emulator");
        controller.map(|(_, ms)| ms).sum()
    };
    let each = (of(&used) - of(&before)) as f64 * 1e3 / f64::from(count);
    bench.figure(name, rate, "jobs/s", &Beside::Nothing);
    bench.figure(
        "  processor time of the controller, a job",
        each,
        "us",
        &Beside::Nothing,
    );
    Ok(())
}

/// The answer to a job's end carries the next job, or does not: throughput, and messages between controller and agents,
/// which a job that comes alone shows too.
fn pull(bench: &mut Bench) -> Result<()> {
    let many = bench.size(20_000);
    let switch = "SchedulerParameters=no_pull\n";
    for (name, more) in [("pull on", ""), ("pull off (no_pull)", switch)] {
        idea(bench, name, more)?;
        let site = bench.emulated(4, 4, more)?;
        if more.is_empty() {
            let alone = bench.size(50).max(5);
            let before = messages(bench, &site)?;
            for _ in 0..alone {
                let wait = ["sbatch", "-W", "-o", "/dev/null", "--wrap", "true"];
                site.quiet(&wait, &bench.dir)?;
            }
            let each = (messages(bench, &site)? - before) as f64 / f64::from(alone);
            let name = "  messages with agents, a job that comes alone";
            bench.figure(name, each, "", &Beside::Nothing);
        }
        let before = messages(bench, &site)?;
        let submit = ["sbatch", &array(many), "-o", "/dev/null", "--wrap", "true"];
        let curve = follow(bench, &site, &submit, u64::from(many))?;
        let each = (messages(bench, &site)? - before) as f64 / f64::from(many);
        let rate = f64::from(many) / curve.last().map_or(1.0, |last| last.0);
        let name = "  messages with agents, a job while others wait, 16 CPUs";
        bench.figure(name, each, "", &Beside::Nothing);
        bench.figure("  throughput of 16 CPUs", rate, "jobs/s", &Beside::Nothing);
    }
    Ok(())
}

fn messages(bench: &Bench, site: &Site) -> Result<u64> {
    let text = site.text(&["sdiag"], &bench.dir)?;
    Ok(number(&text, "Agents")? + second_number(&text, "Agents")?)
}

/// As many arrays of a shape each.
fn shapes(bench: &mut Bench) -> Result<()> {
    let shapes = bench.size(1_000);
    let each = 100;
    let jobs = u64::from(shapes) * each;
    for (name, different) in [("one shape", false), ("as many shapes as arrays", true)] {
        let site = bench.emulated(1_000, 64, "")?;
        // They wait for the last one to be submitted: scheduling is measured, not sbatch.
        site.quiet(
            &["scontrol", "update", "partitionname=batch", "state=down"],
            &bench.dir,
        )?;
        for shape in 0..shapes {
            let minutes = format!("-t{}", if different { 10 + shape } else { 10 });
            let array = format!("--array=1-{each}");
            site.quiet(
                &[
                    "sbatch",
                    &array,
                    &minutes,
                    "-o",
                    "/dev/null",
                    "--wrap",
                    "true",
                ],
                &bench.dir,
            )?;
        }
        let open = ["scontrol", "update", "partitionname=batch", "state=up"];
        let curve = follow(bench, &site, &open, jobs)?;
        let rate = jobs as f64 / curve.last().map_or(1.0, |last| last.0);
        let name = format!("{shapes} arrays of {each}, {name}");
        bench.figure(&name, rate, "jobs/s", &Beside::Nothing);
    }
    Ok(())
}

/// One client waits for a sync for each of its jobs; several share them.
fn commits(bench: &mut Bench) -> Result<()> {
    let site = bench.emulated(1_000, 64, "")?;
    for (clients, count) in [(1, 2_000), (8, 10_000), (64, 50_000)] {
        let count = bench.size(count);
        let before = journal_commits(bench, &site)?;
        let args = ["-H", "-o", "/dev/null", "--wrap", "true"];
        let submitted = site.submit(count, clients, &args, &bench.dir)?;
        let commits = journal_commits(bench, &site)? - before;
        let name = match clients {
            1 => "a sync for each job: one client submits".to_owned(),
            _ => format!("group commit: {clients} clients submit"),
        };
        bench.figure(&name, submitted.rate, "/s", &Beside::Nothing);
        let each = commits as f64 / f64::from(count);
        bench.figure("  syncs of the journal, a job", each, "", &Beside::Nothing);
    }
    Ok(())
}

fn journal_commits(bench: &Bench, site: &Site) -> Result<u64> {
    number(&site.text(&["sdiag"], &bench.dir)?, "Journal")
}

/// Throughput while so many others wait for a node that does not come.
pub(super) fn queue(bench: &mut Bench) -> Result<()> {
    let count = bench.size(50_000);
    let site = bench.emulated(1_000, 64, "")?;
    let drain = [
        "scontrol",
        "update",
        "nodename=n1000",
        "state=drain",
        "reason=bench",
    ];
    site.quiet(&drain, &bench.dir)?;
    let submit = [
        "sbatch",
        &array(count),
        "-x",
        "n1000",
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    ];
    let mut points = Vec::new();
    let mut waiting = 0;
    for queue in [0, 1_000, 10_000, 30_000, 100_000] {
        let queue = bench.size(queue).max(waiting);
        let wait = ["-w", "n1000", "-o", "/dev/null", "--wrap", "true"];
        site.submit(queue - waiting, 8, &wait, &bench.dir)?;
        waiting = queue;
        let curve = follow(bench, &site, &submit, u64::from(count))?;
        let rate = f64::from(count) / curve.last().map_or(1.0, |last| last.0);
        points.push((f64::from(queue), rate));
        let name = format!("{count} jobs while {queue} others wait");
        bench.figure(&name, rate, "jobs/s", &Beside::Nothing);
    }
    bench.plot(
        "throughput-by-queue.svg",
        &Plot {
            title: "Throughput by single jobs that wait for something else",
            x: "jobs waiting",
            y: "jobs/s",
            bar: None,
            points: &points,
        },
    )
}
