//! Large clusters and long queues: answers while many look, agents, restarts, memory.

use super::emulated::follow;
use super::site::{Site, with_children_ms, within};
use super::{Bench, Beside};
use crate::peer;
use anyhow::{Result, ensure};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a command may take to come true.
const PATIENCE: Duration = Duration::from_secs(300);

/// The first of the users who wait and look, where the benchmark may act for others: numbers that no user has.
const FIRST_UID: u32 = 61_000;
/// Connections of the one who floods the controller with questions.
const FLOOD: u32 = 8;

/// Results of one look at a busy cluster.
struct Look {
    /// Milliseconds to the acknowledgement that 99 of 100 submissions had, on an open connection.
    acknowledged: f64,
    /// Milliseconds of the whole command sbatch, likewise.
    command: f64,
    /// Milliseconds from the start of a job to its launch on the node that half, and 99 of 100, had, when few come.
    launched: (f64, f64),
    /// Milliseconds of a listing of everything.
    listing: f64,
    /// Microseconds of the thread that decides, a job.
    writer: f64,
    /// Jobs a second.
    rate: f64,
    /// Share of one processor that the clients took.
    clients: f64,
}

/// A client that asks again and again.
struct Poller {
    uid: Option<u32>,
    args: &'static [&'static str],
    /// Time between two questions; none: as often as it is answered.
    every: Duration,
}

/// Answers with a long queue, without and with clients that look at it.
pub(super) fn pollers(bench: &mut Bench) -> Result<()> {
    let (pending, users, whole) = (bench.size(100_000), bench.size(200), bench.size(5));
    let nodes = bench.size(10_000).max(10);
    let site = bench.emulated(nodes, 128, "")?;
    let last = format!("n{nodes}");
    let update = format!("nodename={last}");
    site.settle(bench, nodes)?;
    site.quiet(
        &["scontrol", "update", &update, "state=drain", "reason=bench"],
        &bench.dir,
    )?;
    let owners = owners(users)?;
    let each = (pending / users).max(1).to_string();
    let wait = [
        "-w",
        &last,
        "-o",
        "/dev/null",
        "-D",
        "/tmp",
        "--wrap",
        "true",
    ];
    let head = ["muster", "emulate", "jobs", &each, "--json", "--"];
    // Together, so that they share syncs: the measurement comes later.
    let next = AtomicUsize::new(0);
    let submit = || {
        let owner = owners.get(next.fetch_add(1, Ordering::Relaxed));
        let mut submit = site.command(&[&head[..], &wait].concat(), Path::new("/tmp"));
        act_for(&mut submit, owner.copied().flatten());
        let status = submit.stdout(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let failed = peer::together(users, 32, || submit);
    ensure!(failed == 0, "{failed} of {users} users cannot submit");
    let sync = sync_time(bench)?;
    let name = "a sync of 4 KB in a file, 99 of 100";
    bench.figure(name, sync, "ms", &Beside::Nothing);
    let calm = look(bench, &site, &last, &Pollers(Vec::new()))?;
    let second = Duration::from_secs(1);
    let mut clients: Vec<Poller> = Vec::new();
    clients.extend(owners.iter().map(|uid| Poller {
        uid: *uid,
        args: &["squeue", "--me"],
        every: second,
    }));
    clients.extend((0..whole).map(|_| Poller {
        uid: None,
        args: &["squeue"],
        every: second,
    }));
    let asking = Pollers::start(bench, &site, &clients)?;
    let polled = look(bench, &site, &last, &asking)?;
    drop(asking);
    println!(
        "  {pending} jobs of {users} users wait, {nodes} nodes; then {users} clients ask 'squeue --me' and {whole} ask \
         'squeue', once a second"
    );
    tell(bench, "calm", &calm);
    tell(bench, "polled", &polled);
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
    flood(bench, &site, owners.first().copied().flatten())
}

fn tell(bench: &mut Bench, when: &str, look: &Look) {
    let figures = [
        (
            "a submission acknowledged, 99 of 100",
            look.acknowledged,
            10.0,
        ),
        (
            "a job's start to its launch, half of them",
            look.launched.0,
            20.0,
        ),
        (
            "a job's start to its launch, 99 of 100",
            look.launched.1,
            20.0,
        ),
        ("squeue of everything", look.listing, 300.0),
    ];
    for (what, ms, most) in figures {
        bench.figure(&format!("{when}: {what}"), ms, "ms", &Beside::AtMost(most));
    }
    let name = format!("{when}: the whole command sbatch, 99 of 100");
    bench.figure(&name, look.command, "ms", &Beside::Nothing);
    let name = format!("{when}: throughput");
    bench.figure(&name, look.rate, "jobs/s", &Beside::Nothing);
}

/// The users: others than this one where that may be.
fn owners(users: u32) -> Result<Vec<Option<u32>>> {
    let root = fs::metadata("/proc/self")?.uid() == 0;
    if !root {
        println!("  one user for all: only root may act for others");
    }
    Ok((0..users).map(|n| root.then_some(FIRST_UID + n)).collect())
}

/// Milliseconds within which 99 of 100 syncs of a file are done, by any program: less than the disk no acknowledgement
/// takes.
fn sync_time(bench: &Bench) -> Result<f64> {
    let file = fs::File::create(bench.dir.join("synced"))?;
    let block = [1_u8; 4096];
    file.write_all_at(&[0; 4096 * 64], 0)?;
    file.sync_all()?;
    let mut times = Vec::new();
    for turn in 0..200 {
        let begun = Instant::now();
        file.write_all_at(&block, turn % 64 * 4096)?;
        file.sync_data()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() * 99 / 100])
}

/// Has a command run as another user, if one is named.
fn act_for(command: &mut Command, uid: Option<u32>) {
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
}

/// Processes that ask, each for one user, until this goes away.
struct Pollers(Vec<Child>);

impl Drop for Pollers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Pollers {
    fn start(bench: &Bench, site: &Site, clients: &[Poller]) -> Result<Pollers> {
        let mut all = Pollers(Vec::new());
        for (number, client) in clients.iter().enumerate() {
            let command = site.command(client.args, &bench.dir);
            // Not all in the same moment.
            let first = client.every.mul_f64((number * 37 % 1000) as f64 / 1e3);
            let mut asker = Command::new(std::env::current_exe()?);
            asker.arg(ASK);
            for time in [first, client.every] {
                asker.arg(time.as_millis().to_string());
            }
            asker.arg(command.get_program()).args(command.get_args());
            asker.env_clear();
            asker.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
            asker.current_dir(&bench.dir).stdin(Stdio::null());
            asker.stdout(Stdio::null()).stderr(Stdio::null());
            act_for(&mut asker, client.uid);
            all.0.push(asker.spawn()?);
        }
        Ok(all)
    }

    /// Processor time that they and their commands took, milliseconds.
    fn cpu_ms(&self) -> u64 {
        let of = |child: &Child| with_children_ms(&child.id().to_string());
        self.0.iter().map(of).sum()
    }
}

/// First argument of this program where it asks for another user: to become that user for each question would take longer
/// than the question.
pub(crate) const ASK: &str = "ask";

/// `FIRST EVERY PROGRAM WORD...`: runs a command after so many milliseconds, and then again and again, so many between two
/// starts.
pub(crate) fn asks(args: &[String]) -> Result<()> {
    let [first, every, program, words @ ..] = args else {
        anyhow::bail!("{ASK} FIRST EVERY PROGRAM [ARGUMENT...]");
    };
    std::thread::sleep(Duration::from_millis(first.parse()?));
    let every = Duration::from_millis(every.parse()?);
    let mut command = Command::new(program);
    command.args(words).stdin(peer::nothing());
    command.stdout(peer::nothing()).stderr(peer::nothing());
    let mut ask = peer::again(command);
    loop {
        let started = Instant::now();
        ask();
        std::thread::sleep(every.saturating_sub(started.elapsed()));
    }
}

/// Milliseconds of a question.
fn ask(bench: &Bench, site: &Site, client: &Poller) -> Result<f64> {
    let started = Instant::now();
    let mut command = site.command(client.args, &bench.dir);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    act_for(&mut command, client.uid);
    ensure!(command.status()?.success(), "{:?} failed", client.args);
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// How long one user waits for a listing, alone and while another asks for everything all the time.
fn flood(bench: &mut Bench, site: &Site, uid: Option<u32>) -> Result<()> {
    let Some(uid) = uid else {
        println!("  no flood: it takes two users");
        return Ok(());
    };
    let client = |uid, args| Poller {
        uid: Some(uid),
        args,
        every: Duration::ZERO,
    };
    let other = client(uid + 1, &["squeue", "--me"]);
    let waits = || -> Result<f64> {
        let mut waits = Vec::new();
        for _ in 0..20 {
            waits.push(ask(bench, site, &other)?);
        }
        waits.sort_by(f64::total_cmp);
        Ok(waits[waits.len() / 2])
    };
    let alone = waits()?;
    let flood: Vec<Poller> = (0..FLOOD).map(|_| client(uid, &["squeue"])).collect();
    let asking = Pollers::start(bench, site, &flood)?;
    let (others, own) = (waits()?, ask(bench, site, &flood[0])?);
    drop(asking);
    for (name, ms) in [
        ("squeue --me of one user", alone),
        (
            "the same while another asks for everything 8 times at once",
            others,
        ),
        ("what the other waits for one of them", own),
    ] {
        bench.figure(name, ms, "ms", &Beside::Nothing);
    }
    Ok(())
}

fn look(bench: &Bench, site: &Site, avoid: &str, asking: &Pollers) -> Result<Look> {
    let used = || with_children_ms("self") + asking.cpu_ms();
    let (started, clients) = (Instant::now(), used());
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
    let clients = (used() - clients) as f64 / started.elapsed().as_secs_f64() / 1e3;
    // One job after another, as a user sees it.
    let launches = site.launches()?;
    let done = site.diag(bench, "Jobs completed")?;
    let count = bench.size(500).max(20);
    let args = ["-x", avoid, "-o", "/dev/null", "--wrap", "true"];
    let submitted = site.submit(count, 1, &args, &bench.dir)?;
    let mut commands = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        site.quiet(
            &["sbatch", "-x", avoid, "-o", "/dev/null", "--wrap", "true"],
            &bench.dir,
        )?;
        commands.push(started.elapsed().as_secs_f64() * 1e3);
    }
    commands.sort_by(f64::total_cmp);
    let count = u64::from(count) * 2;
    let seen: u64 = launches.iter().sum();
    site.until("the jobs are launched", || {
        let all = site.launches()?.iter().sum::<u64>() >= seen + count;
        Ok(all && site.diag(bench, "Jobs completed")? >= done + count)
    })?;
    let launched = site.launches()?;
    let listing = site.burst(3, 1, &["squeue"], &bench.dir)? / 3.0 * 1e3;
    let used =
        after.get("writer").copied().unwrap_or(0) - before.get("writer").copied().unwrap_or(0);
    Ok(Look {
        acknowledged: submitted.most,
        command: commands[commands.len() * 99 / 100],
        launched: (
            within(&launches, &launched, 0.5),
            within(&launches, &launched, 0.99),
        ),
        listing,
        writer: used as f64 * 1e3 / f64::from(jobs),
        rate: f64::from(jobs) / took,
        clients,
    })
}

/// Connected agents: their cost while nothing happens, and the time until they are back.
pub(super) fn agents(bench: &mut Bench) -> Result<()> {
    let nodes = bench.size(10_000);
    let site = bench.emulated(nodes, 128, "")?;
    site.settle(bench, nodes)?;
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
    let args = ["-H", "-o", "/dev/null", "--wrap", "true"];
    site.submit(singles, 8, &args, &bench.dir)?;
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
    let most = bench.size(if bench.large { 1_000 } else { 64 }).max(4);
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

/// Cost of a job for the controller by its number of nodes: from its submission until all nodes are free again.
pub(super) fn wide_job(bench: &mut Bench) -> Result<()> {
    let most = bench.size(10_000).max(100);
    let site = bench.emulated(most, 128, "")?;
    site.settle(bench, most)?;
    let used = || -> Result<u64> {
        let by_thread = site.cpu_ms()?;
        let of_controller = by_thread.iter().filter(|(name, _)| *name != "emulator");
        Ok(of_controller.map(|(_, ms)| ms).sum())
    };
    let mut calm = None;
    for nodes in [most / 10, most] {
        let jobs = most / nodes;
        let (width, before) = (format!("-N{nodes}"), used()?);
        let (done, started) = (site.diag(bench, "Jobs completed")?, Instant::now());
        for _ in 0..jobs {
            let args = ["sbatch", &width, "--exclusive", "-o", "/dev/null", "--wrap"];
            site.quiet(&[&args[..], &["true"]].concat(), &bench.dir)?;
        }
        site.until("the jobs are over", || {
            let all = site.diag(bench, "Jobs completed")? >= done + u64::from(jobs);
            Ok(all && site.text(&["squeue", "-h"], &bench.dir)?.is_empty())
        })?;
        let took = started.elapsed().as_secs_f64() / f64::from(jobs);
        let each = (used()? - before) as f64 * 1e3 / f64::from(most);
        let name = format!("a job over {nodes} nodes, from its submission until they are free");
        bench.figure(&name, took, "s", &Beside::Nothing);
        let name = format!("processor time of the controller, a node of a job over {nodes}");
        let beside = calm.map_or(Beside::Nothing, |calm| Beside::AtMost(2.0 * calm));
        bench.figure(&name, each, "us", &beside);
        calm = Some(each);
    }
    Ok(())
}
