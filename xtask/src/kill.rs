//! `cargo xtask kill`: a cluster of real processes under full submission load, whose controller, agents, or all that
//! there is are killed (SIGKILL) in turn, again and again. Afterwards: no acknowledged job is lost, no number was
//! given twice, no launch ran twice, and the exit code of every task is on record.
//!
//! What a job is to exit with is part of its script, so a mixed-up record shows. Jobs that a killed machine took with
//! it run again with a restart count; what may never happen is that the same count runs twice.

use crate::build::target;
use crate::cluster::Cluster;
use crate::hostile::Attackers;
use anyhow::{Context, Result, bail, ensure};
use muster_hostile::network::NetworkDaemons;
use muster_hostile::target::{PORT_NODE, Target};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Submissions that are acknowledged between two kills.
const PER_ROUND: u64 = 12;
/// How long the cluster may make no progress.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between looks at something that nothing announces.
const LOOK: Duration = Duration::from_millis(20);
/// Tasks of the arrays among the submissions.
const ARRAY: u64 = 5;

/// Options of the command line.
struct KillOptions {
    rounds: u64,
    nodes: u64,
    clients: u64,
    seed: u64,
    /// Processes of unprivileged users attack the cluster meanwhile.
    hostile: bool,
}

impl KillOptions {
    fn read(args: &[String]) -> Result<KillOptions> {
        let mut options = KillOptions {
            rounds: 50,
            nodes: 3,
            clients: 4,
            seed: 1,
            hostile: false,
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if word == "--muster" {
                crate::build::use_given(words.next().context("--muster: a program must follow")?)?;
                continue;
            }
            if word == "--hostile" {
                options.hostile = true;
                continue;
            }
            let value = words.next().and_then(|v| v.parse().ok());
            let value = value.with_context(|| format!("{word}: a number must follow"))?;
            match word.as_str() {
                "--rounds" => options.rounds = value,
                "--nodes" => options.nodes = value.max(1),
                "--clients" => options.clients = value.max(1),
                "--seed" => options.seed = value.max(1),
                _ => bail!(
                    "{word}: --rounds, --nodes, --clients, --seed, --hostile and --muster are known"
                ),
            }
        }
        if options.hostile {
            options.nodes = muster_hostile::target::NODES;
        }
        Ok(options)
    }
}

/// Processes killed in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Controller,
    /// A supervisor, with which its agent goes.
    Supervisor,
    /// An agent, with which its supervisor goes.
    Agent,
    Daemons,
    Everything,
}

const VICTIMS: [Victim; 5] = [
    Victim::Controller,
    Victim::Supervisor,
    Victim::Agent,
    Victim::Daemons,
    Victim::Everything,
];

/// Processes killed when everything is.
#[derive(Clone, Copy)]
enum Process {
    Shim,
    OfJob,
}

/// Data shared by clients and killer.
struct Test<'a> {
    cluster: &'a Cluster,
    /// The same, as it is attacked.
    target: Target,
    options: &'a KillOptions,
    /// How the whole cluster is started.
    up: Vec<String>,
    /// Where jobs write that they have begun.
    ran: PathBuf,
    /// Acknowledged submissions: number, tasks (0: no array), exit code.
    acked: Mutex<Vec<(u64, u64, u64)>>,
    count: AtomicU64,
    /// Submissions that were not acknowledged.
    refused: AtomicU64,
    stop: AtomicBool,
}

/// Runs the test.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = KillOptions::read(args)?;
    let place = target().join("kill");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let started = Instant::now();
    let mut cluster = Cluster::stopped("kill", false)?;
    let up = match options.hostile {
        true => crate::hostile::prepare(&cluster, &place)?,
        false => ["--nodes", &options.nodes.to_string(), "--cpus", "8"]
            .map(str::to_owned)
            .to_vec(),
    };
    let words: Vec<&str> = up.iter().map(String::as_str).collect();
    cluster.start(&place, &words)?;
    let target = Target::new(&cluster.home);
    // Other hosts' attacks need an agent's port and sackd.
    let _network = match options.hostile {
        true => Some(NetworkDaemons::start(&target).context("SlurmdPort and sackd")?),
        false => None,
    };
    let attackers = options
        .hostile
        .then(|| Attackers::start(&cluster, options.seed));
    let test = Test {
        up,
        target,
        cluster: &cluster,
        options: &options,
        ran: cluster.home.join("ran"),
        acked: Mutex::new(Vec::new()),
        count: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let killed = std::thread::scope(|scope| {
        for client in 0..options.clients {
            let test = &test;
            scope.spawn(move || test.submit(client));
        }
        let killed = test.rounds();
        test.stop.store(true, Ordering::Relaxed);
        killed
    });
    if let Some(attackers) = attackers {
        println!(
            "{} attacks of {} s",
            attackers.stop(),
            crate::hostile::ATTACK.as_secs()
        );
        test.shell(crate::hostile::CANCEL)?;
    }
    let verdict = killed.and_then(|()| test.finish());
    let acked = test.count.load(Ordering::Relaxed);
    let refused = test.refused.load(Ordering::Relaxed);
    match verdict {
        Ok(runs) => {
            println!(
                "{} rounds: {acked} submissions acknowledged ({refused} not), {} tasks, {} runs, in {} s: nothing lost, \
                 nothing twice, all exit codes on record",
                options.rounds,
                runs.tasks,
                runs.runs,
                started.elapsed().as_secs()
            );
            Ok(())
        }
        Err(e) => {
            cluster.keep = true;
            let home = cluster.home.display();
            Err(e.context(format!("state and logs of the cluster are in {home}")))
        }
    }
}

/// How much there was.
struct Runs {
    tasks: usize,
    runs: usize,
}

impl Test<'_> {
    /// Submits jobs until it is stopped.
    fn submit(&self, client: u64) {
        let mut turn = 0;
        while !self.stop.load(Ordering::Relaxed) {
            turn += 1;
            let exit = (client + turn) % 4;
            let tasks = if turn % 5 == 0 { ARRAY } else { 0 };
            let array = match tasks {
                0 => String::new(),
                n => format!("--array=1-{n}"),
            };
            let sleep = turn % 3;
            let script = format!(
                "sbatch --parsable {array} -o /dev/null --wrap '{BEGIN} >>{}; sleep 0.{sleep}; exit {exit}'",
                self.ran.display()
            );
            let acked = self.shell(&script).ok().and_then(|output| {
                let text = String::from_utf8(output.stdout).ok()?;
                let number = text.trim().parse().ok()?;
                output.status.success().then_some(number)
            });
            let Some(number) = acked else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(LOOK);
                continue;
            };
            if let Ok(mut all) = self.acked.lock() {
                all.push((number, tasks, exit));
            }
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn rounds(&self) -> Result<()> {
        let mut random = self.options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for round in 0..self.options.rounds {
            let wanted = (round + 1) * PER_ROUND;
            self.until("enough is acknowledged", || {
                Ok(self.count.load(Ordering::Relaxed) >= wanted)
            })?;
            // Anywhere in what goes on.
            std::thread::sleep(Duration::from_millis(next(200)));
            let victim = VICTIMS[usize::try_from(round).unwrap_or(0) % VICTIMS.len()];
            let node = format!("n{}", 1 + next(self.options.nodes));
            self.strike(victim, &node)
                .with_context(|| format!("round {round}, {victim:?}"))?;
            println!("round {:>3}: {victim:?}", round + 1);
        }
        Ok(())
    }

    /// Kills, and starts the killed ones again.
    fn strike(&self, victim: Victim, node: &str) -> Result<()> {
        let names: Vec<String> = (1..=self.options.nodes).map(|n| format!("n{n}")).collect();
        let supervisors = |names: &[String]| -> Result<Vec<i32>> {
            let mut pids = Vec::new();
            for name in names {
                pids.push(self.pid(&format!("run/noded.{name}.pid"))?);
            }
            Ok(pids)
        };
        let controller = || self.pid("run/ctld.pid");
        let one = [node.to_owned()];
        let pids = match victim {
            Victim::Controller => vec![controller()?],
            Victim::Supervisor | Victim::Agent => supervisors(&one)?,
            Victim::Daemons | Victim::Everything => {
                let mut pids = supervisors(&names)?;
                pids.push(controller()?);
                pids
            }
        };
        match victim {
            Victim::Agent => kill(Vec::from_iter(self.target.agent_process(node)).as_slice()),
            _ => kill(&pids),
        }
        if victim == Victim::Everything {
            // As when the power fails: nothing of a job is left, nor what looks after it. That goes first, or it
            // would see the jobs being killed, and tell.
            for kind in [Process::Shim, Process::OfJob] {
                loop {
                    let left = self.processes(kind);
                    if left.is_empty() {
                        break;
                    }
                    kill(&left);
                }
            }
        }
        self.until("what was killed is gone", || {
            Ok(!pids.iter().any(|pid| alive(*pid)))
        })?;
        let again = match victim {
            Victim::Controller => "slurmctld".to_owned(),
            Victim::Supervisor | Victim::Agent => self.target.agent_command(node),
            Victim::Daemons => {
                let agent = |n: &String| format!(" && {}", self.target.agent_command(n));
                let all = names.iter().map(agent);
                format!("slurmctld{}", all.collect::<String>())
            }
            Victim::Everything => {
                let output = self.cluster.command(&["up"]).args(&self.up).output()?;
                ensure!(output.status.success(), "muster up: {}", said(&output));
                return self.serve_port_again();
            }
        };
        let output = self.shell(&again)?;
        ensure!(output.status.success(), "{again}: {}", said(&output));
        Ok(())
    }

    /// Starts the agent again that serves its port to attackers, if there are any: `muster up` has started it without.
    fn serve_port_again(&self) -> Result<()> {
        if self.options.hostile {
            let again = self.target.restart_agent(PORT_NODE);
            ensure!(again.code == 0, "slurmd: {}", again.err);
        }
        Ok(())
    }

    /// Shims, or all that runs under them, by what their command line or environment says.
    fn processes(&self, kind: Process) -> Vec<i32> {
        let home = self.cluster.home.display().to_string();
        let spool = format!("MUSTER_SPOOL={home}/");
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| alive(*pid))
            .filter(|pid| {
                let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
                let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
                let shim = line.starts_with("muster-shim") || line.contains("/muster-shim");
                match kind {
                    Process::Shim => shim && line.contains(&home),
                    Process::OfJob => String::from_utf8_lossy(&read("environ")).contains(&spool),
                }
            })
            .collect()
    }

    /// Waits until all is done, and looks at what came of it.
    fn finish(&self) -> Result<Runs> {
        self.until("the queue is empty", || {
            let output = self.shell("squeue -h -o %i")?;
            Ok(output.status.success() && output.stdout.is_empty())
        })?;
        let begun = self.begun()?;
        let records = self.records()?;
        let acked = self.acked.lock().map(|all| all.clone()).unwrap_or_default();
        let mut wrong = Vec::new();
        let mut numbers = BTreeSet::new();
        let mut tasks = 0;
        for (number, count, exit) in acked {
            if !numbers.insert(number) {
                wrong.push(format!("number {number} was given twice"));
            }
            let names: Vec<String> = match count {
                0 => vec![number.to_string()],
                n => (1..=n).map(|task| format!("{number}_{task}")).collect(),
            };
            for name in names {
                tasks += 1;
                if !begun.contains_key(&name) {
                    wrong.push(format!("{name} was acknowledged and never ran"));
                }
                let expected = match exit {
                    0 => "COMPLETED|0:0".to_owned(),
                    code => format!("FAILED|{code}:0"),
                };
                match records.get(&name) {
                    Some(record) if *record == expected => {}
                    Some(record) => wrong.push(format!("{name}: {record} in place of {expected}")),
                    None => wrong.push(format!("{name} is not on record")),
                }
            }
        }
        let mut runs = 0;
        for (name, counts) in &begun {
            runs += counts.len();
            let distinct: BTreeSet<&u64> = counts.iter().collect();
            if distinct.len() != counts.len() {
                wrong.push(format!(
                    "{name} ran twice with one restart count: {counts:?}"
                ));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(Runs { tasks, runs })
    }

    /// Restart counts with which each task began.
    fn begun(&self) -> Result<BTreeMap<String, Vec<u64>>> {
        let mut begun: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for line in fs::read_to_string(&self.ran)?.lines() {
            let read = line.split_once(' ');
            let read = read.and_then(|(name, count)| Some((name, count.parse().ok()?)));
            let (name, count) =
                read.with_context(|| format!("'{line}' is not the beginning of a job"))?;
            begun.entry(name.to_owned()).or_default().push(count);
        }
        Ok(begun)
    }

    /// State and exit code of each task.
    fn records(&self) -> Result<HashMap<String, String>> {
        let output = self.shell("sacct -a -X -n -P -S 2000-01-01 -o JobID,State,ExitCode")?;
        ensure!(output.status.success(), "sacct: {}", said(&output));
        let text = String::from_utf8(output.stdout)?;
        let pairs = text.lines().filter_map(|line| line.split_once('|'));
        Ok(pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).collect())
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        while !holds()? {
            ensure!(started.elapsed() < PATIENCE, "gave up waiting until {what}");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn shell(&self, script: &str) -> Result<Output> {
        let script = format!("{}\n{script}", self.cluster.env);
        let mut command = Command::new("bash");
        command.args(["-c", &script]).stdin(Stdio::null());
        Ok(command.output()?)
    }

    fn pid(&self, file: &str) -> Result<i32> {
        let path: &Path = &self.cluster.home.join(file);
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(text.trim().parse()?)
    }
}

/// Prints a task's name and restart count, in one write.
const BEGIN: &str = "echo \"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID} \
                     ${SLURM_RESTART_COUNT:-0}\"";

fn kill(pids: &[i32]) {
    let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
    // One that has just gone is no matter.
    let _ = Command::new("kill")
        .arg("-9")
        .args(&list)
        .stderr(Stdio::null())
        .status();
}

/// Whether a process exists and is no zombie.
fn alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

fn said(output: &Output) -> String {
    format!(
        "{} {}",
        String::from_utf8_lossy(&output.stdout).trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    )
}
