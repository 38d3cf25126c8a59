//! Real execution: bash scripts under real agents, beside the bare loop of fork, exec and wait on the same machine, and
//! beside other products.

use super::site::Site;
use super::{Bench, Beside};
use crate::peer::{self, Product};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// HyperQueue's own cluster in one process, which runs a script repeatedly; prints the rate.
const HYPERQUEUE: &str = "
import sys, time
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig
count, cores, script = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=cores))
    client = cluster.client()
    job = Job(default_workdir=sys.argv[4])
    for _ in range(count):
        job.program(['bash', script])
    start = time.time()
    client.wait_for_jobs([client.submit(job)])
    print('rate', count / (time.time() - start))
";

/// The peer that does what Muster does all the while.
const WITH_ACCOUNTING: &str = "Slurm with slurmdbd and MariaDB";

/// The script that each job runs, as `sbatch --wrap true` makes it.
fn script(bench: &Bench) -> Result<PathBuf> {
    let file = bench.dir.join("true.sh");
    fs::write(
        &file,
        "#!/bin/sh\n# This script was created by sbatch --wrap.\n\ntrue\n",
    )?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(file)
}

/// Programs per second that `parallel` processes start and wait for, with nothing around it.
fn bare(bench: &Bench, program: &Path, count: u32, parallel: u32) -> Result<f64> {
    let started = Instant::now();
    let make = || {
        let mut command = Command::new(program);
        command.current_dir(&bench.dir).stdin(peer::nothing());
        command.stdout(peer::nothing()).stderr(peer::nothing());
        command.env_clear().envs(peer::session());
        peer::again(command)
    };
    let failed = peer::together(count, parallel, make);
    ensure!(failed == 0, "{} does not run", program.display());
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

/// Jobs a second of an array, from sbatch to an empty queue.
fn array_rate(p: &Product, count: u32, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    let array = format!("--array=0-{}", count - 1);
    let started = Instant::now();
    p.quiet(
        &["sbatch", "-o", "/dev/null", &array, "-n1", "--wrap", "true"],
        dir,
    )?;
    p.drain(dir, Duration::from_millis(20))?;
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

/// An array of real jobs.
pub(super) fn array(bench: &mut Bench) -> Result<()> {
    let count = bench.size(if bench.large { 20_000 } else { 2_000 });
    let script = script(bench)?;
    let limit = bare(bench, &script, count, 2)?;
    let ours = array_rate(&*bench.real()?, count, &bench.dir)?;
    // Before and after: other work on the machine shows.
    let limit = limit.min(bare(bench, &script, count, 2)?);
    let name = format!("array of {count} real jobs");
    bench.figure(
        &name,
        ours,
        "jobs/s",
        &Beside::Other("fork+exec+wait", limit, Some(0.6)),
    );
    let peers = [
        ("Slurm", bench.slurm()?),
        (WITH_ACCOUNTING, bench.slurm_with_accounting()?),
    ];
    for (who, slurm) in peers {
        let Some(slurm) = slurm else { continue };
        let theirs = array_rate(&slurm, bench.size(1_000), &bench.dir)?;
        let beside = Beside::Other(who, theirs, Some(15.0));
        bench.figure(&name, ours, "jobs/s", &beside);
    }
    if let Some(theirs) = hyperqueue(bench, count, &script)? {
        bench.figure(
            &name,
            ours,
            "jobs/s",
            &Beside::Other("HyperQueue", theirs, Some(1.0)),
        );
    }
    Ok(())
}

/// The rate of HyperQueue, from the package index; nothing where it cannot be had.
fn hyperqueue(bench: &Bench, count: u32, script: &Path) -> Result<Option<f64>> {
    if !bench.peers {
        return Ok(None);
    }
    let place = crate::build::target().join("bench-hyperqueue");
    let python = place.join("bin/python3");
    if !python.exists() {
        let made = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&place)
            .status();
        let got = made.is_ok_and(|s| s.success())
            && Command::new(place.join("bin/pip"))
                .args(["install", "--quiet", "hyperqueue"])
                .status()?
                .success();
        if !got {
            let _ = fs::remove_dir_all(&place);
            println!("  HyperQueue is not measured: 'pip install hyperqueue' failed");
            return Ok(None);
        }
    }
    // It tells of its progress about once a second: a short run would measure that.
    let count = count.max(4_000);
    let output = Command::new(&python)
        .args(["-c", HYPERQUEUE, &count.to_string(), "64"])
        .arg(script)
        .arg(&bench.dir)
        .stderr(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text
        .lines()
        .find_map(|l| l.strip_prefix("rate ")?.parse().ok());
    if rate.is_none() {
        println!("  HyperQueue is not measured: its cluster did not run the tasks");
    }
    Ok(rate)
}

/// Times that what scatters is measured, in turns with its peer. The median counts.
const TURNS: u32 = 3;

/// Single jobs from several clients.
pub(super) fn singles(bench: &mut Bench) -> Result<()> {
    let count = bench.size(800);
    let rate = |p: &Product| -> Result<f64> {
        p.clear(&bench.dir)?;
        let started = Instant::now();
        let args = ["sbatch", "-o", "/dev/null", "-n1", "--wrap", "true"];
        p.burst(count, 8, &args, &bench.dir)?;
        p.drain(&bench.dir, Duration::from_millis(20))?;
        Ok(f64::from(count) / started.elapsed().as_secs_f64())
    };
    let muster = bench.real()?;
    let peers = [
        ("Slurm", bench.slurm()?),
        (WITH_ACCOUNTING, bench.slurm_with_accounting()?),
    ];
    let mut peers: Vec<(&str, Site, Vec<f64>)> = peers
        .into_iter()
        .filter_map(|(who, site)| Some((who, site?, Vec::new())))
        .collect();
    let mut ours = Vec::new();
    for _ in 0..TURNS {
        ours.push(rate(&muster)?);
        for (_, slurm, rates) in &mut peers {
            rates.push(rate(slurm)?);
        }
    }
    let (name, ours) = (
        format!("{count} single real jobs from 8 clients"),
        peer::median(&mut ours),
    );
    if peers.is_empty() {
        bench.figure(&name, ours, "jobs/s", &Beside::Nothing);
    }
    for (who, _, mut rates) in peers {
        let beside = Beside::Other(who, peer::median(&mut rates), Some(15.0));
        bench.figure(&name, ours, "jobs/s", &beside);
    }
    Ok(())
}

/// Steps of one allocation.
pub(super) fn steps(bench: &mut Bench) -> Result<()> {
    let count = bench.size(200);
    let muster = bench.real()?;
    let ours = [
        step_rates(&muster, bench, count, false)?,
        step_rates(&muster, bench, count, true)?,
    ];
    drop(muster);
    let theirs = match bench.slurm()? {
        // That number would take it minutes.
        Some(slurm) => {
            let count = (count / 4).max(8);
            Some([
                step_rates(&slurm, bench, count, false)?,
                step_rates(&slurm, bench, count, true)?,
            ])
        }
        None => None,
    };
    for (at, name) in ["srun true, in a loop", "srun true, 32 at once"]
        .into_iter()
        .enumerate()
    {
        let beside = match theirs {
            Some(theirs) => Beside::Other("Slurm", theirs[at], Some(10.0)),
            None => Beside::Nothing,
        };
        bench.figure(name, ours[at], "steps/s", &beside);
    }
    Ok(())
}

fn step_rates(p: &Product, bench: &Bench, count: u32, together: bool) -> Result<f64> {
    p.clear(&bench.dir)?;
    let runs = match together {
        true => format!(
            "for r in $(seq {}); do for i in $(seq 32); do srun -Q -n1 --overlap true & done; wait; done",
            count.div_ceil(32)
        ),
        false => format!("for i in $(seq {count}); do srun -Q -n1 --overlap true; done"),
    };
    let count = if together {
        count.div_ceil(32) * 32
    } else {
        count
    };
    let shell = format!(
        "srun -Q -n1 --overlap true; s=$(date +%s%N); {runs}; echo took $(($(date +%s%N) - s))"
    );
    let text = p.text(
        &["salloc", "-Q", "-N1", "-n32", "bash", "-c", &shell],
        &bench.dir,
    )?;
    let ns: f64 = text
        .lines()
        .find_map(|l| l.strip_prefix("took ")?.parse().ok())
        .with_context(|| format!("{}: the steps did not run: {text}", p.name))?;
    Ok(f64::from(count) / ns * 1e9)
}

/// sbatch, one after another, and what a command costs.
pub(super) fn submit(bench: &mut Bench) -> Result<()> {
    let count = bench.size(1_000);
    let dir = bench.dir.clone();
    let rate = |p: &Product, count: u32| -> Result<f64> {
        p.clear(&dir)?;
        let args = ["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"];
        Ok(f64::from(count) / p.burst(count, 1, &args, &dir)?)
    };
    let muster = bench.real()?;
    let ours = rate(&muster, count)?;
    let limit = bare(bench, Path::new("/bin/true"), count, 1)?;
    let took = muster.burst(count, 1, &["sbatch", "--version"], &bench.dir)?;
    let start = took / f64::from(count) * 1e3;
    opened(bench, &muster)?;
    drop(muster);
    let name = "sbatch, held, one after another";
    bench.figure(
        name,
        ours,
        "/s",
        &Beside::Other("spawn of /bin/true", limit, Some(0.5)),
    );
    bench.figure(
        "start of a command (sbatch --version)",
        start,
        "ms",
        &Beside::AtMost(3.0),
    );
    if let Some(slurm) = bench.slurm()? {
        let theirs = rate(&slurm, bench.size(200))?;
        bench.figure(name, ours, "/s", &Beside::Other("Slurm", theirs, Some(3.0)));
    }
    Ok(())
}

/// Counts what a submission opens and maps, where strace is installed.
fn opened(bench: &mut Bench, muster: &Site) -> Result<()> {
    if !Command::new("strace")
        .arg("-V")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        println!("  files opened and mapped are not counted: strace is not installed");
        return Ok(());
    }
    let calls = bench.dir.join("calls");
    let file = calls.display().to_string();
    let args = [
        "strace",
        "-o",
        &file,
        "sbatch",
        "-H",
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    ];
    muster.quiet(&args, &bench.dir)?;
    let text = fs::read_to_string(&calls)?;
    let count = |call: &str| text.lines().filter(|l| l.starts_with(call)).count() as f64;
    bench.figure(
        "files that sbatch opens",
        count("open"),
        "files",
        &Beside::Nothing,
    );
    bench.figure(
        "maps that it makes",
        count("mmap("),
        "maps",
        &Beside::Nothing,
    );
    Ok(())
}
