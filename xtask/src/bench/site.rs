//! A cluster under test that goes away with its value, and what its controller uses.

use super::Bench;
use crate::peer::{self, Product};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a condition to come true.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two looks whether it has.
const LOOK: Duration = Duration::from_millis(50);

/// Milliseconds of one tick of the clock that /proc counts with, which is 100 Hz on Linux for every program.
const TICK_MS: u64 = 10;

/// A cluster.
pub(super) struct Site {
    product: Product,
    home: PathBuf,
}

impl Deref for Site {
    type Target = Product;

    fn deref(&self) -> &Product {
        &self.product
    }
}

impl Bench {
    /// Muster with four real agents.
    pub(super) fn real(&self) -> Result<Site> {
        self.site(&format!("{}{}", peer::CONF, peer::NODES), &[])
    }

    /// Slurm without accounting, if it is to be measured and is installed.
    pub(super) fn slurm(&self) -> Result<Option<Site>> {
        self.slurm_that(false)
    }

    /// Slurm that keeps accounts as Muster does.
    pub(super) fn slurm_with_accounting(&self) -> Result<Option<Site>> {
        self.slurm_that(true)
    }

    fn slurm_that(&self, accounting: bool) -> Result<Option<Site>> {
        if !self.peers {
            return Ok(None);
        }
        let home = self.dir.join(if accounting { "a" } else { "s" });
        let product = peer::start_slurm(&home, accounting)?;
        if product.is_none() {
            println!(
                "  {} is not measured: it is not installed",
                if accounting {
                    "Slurm with slurmdbd and MariaDB"
                } else {
                    "Slurm"
                }
            );
        }
        Ok(product.map(|product| Site { product, home }))
    }

    /// Muster with emulated nodes whose jobs take no time.
    pub(super) fn emulated(&self, nodes: u32, cpus: u32, more: &str) -> Result<Site> {
        let conf = format!(
            "{}{more}NodeName=n[1-{nodes}] CPUs={cpus} RealMemory=8000 State=UNKNOWN\n\
             PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP\n",
            peer::CONF
        );
        self.site(&conf, &["--emulate"])
    }

    /// Muster with that configuration.
    pub(super) fn site(&self, conf: &str, words: &[&str]) -> Result<Site> {
        let home = self.dir.join("m");
        let product = peer::start_muster_of(&home, conf, words)?;
        Ok(Site { product, home })
    }
}

impl Site {
    /// The controller's process.
    pub(super) fn pid(&self) -> Result<u32> {
        let text = fs::read_to_string(&self.pid_file)?;
        text.trim().parse().context("the controller's pid file")
    }

    /// Processor time of the controller's threads by name, and of the process that speaks for emulated nodes,
    /// milliseconds.
    pub(super) fn cpu_ms(&self) -> Result<BTreeMap<String, u64>> {
        let mut all = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.pid()?))? {
            if let Some((name, ms)) = stat(&task?.path().join("stat")) {
                *all.entry(name).or_default() += ms;
            }
        }
        let emulator = fs::read_to_string(self.home.join("run/emulator.pid"));
        if let Ok(pid) = emulator
            && let Some((_, ms)) = stat(&PathBuf::from(format!("/proc/{}/stat", pid.trim())))
        {
            all.insert("emulator".to_owned(), ms);
        }
        Ok(all)
    }

    /// Time that the controller's threads were ready to run and had no processor, by name, milliseconds. Other work on
    /// the machine shows here.
    pub(super) fn starved_ms(&self) -> Result<BTreeMap<String, u64>> {
        let mut all = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.pid()?))? {
            let place = task?.path();
            let name = fs::read_to_string(place.join("comm")).unwrap_or_default();
            let text = fs::read_to_string(place.join("schedstat")).unwrap_or_default();
            let ns: Option<u64> = text.split_whitespace().nth(1).and_then(|w| w.parse().ok());
            *all.entry(name.trim().to_owned()).or_default() += ns.unwrap_or(0) / 1_000_000;
        }
        Ok(all)
    }

    /// Submits jobs over connections that stay open; what `muster emulate jobs` tells of it.
    pub(super) fn submit(
        &self,
        count: u32,
        clients: u32,
        args: &[&str],
        dir: &Path,
    ) -> Result<Submitted> {
        if count == 0 {
            return Ok(Submitted::default());
        }
        let (count, clients) = (count.to_string(), clients.to_string());
        let head = [
            "muster",
            "emulate",
            "jobs",
            &count,
            "--json",
            "--clients",
            &clients,
            "--",
        ];
        Submitted::read(&self.text(&[&head[..], args].concat(), dir)?)
    }

    /// Launches so far by the milliseconds from a job's start to its launch on an emulated node.
    pub(super) fn launches(&self) -> Result<Vec<u64>> {
        let text = fs::read_to_string(self.home.join("run/emulator.json"))?;
        let value: Value = serde_json::from_str(&text)?;
        let counts = value["launches_by_ms"].as_array();
        let counts = counts.context("the emulator's report has no launches")?;
        Ok(counts.iter().filter_map(Value::as_u64).collect())
    }

    /// Asks until something is so.
    pub(super) fn until(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        while !holds()? {
            ensure!(started.elapsed() < PATIENCE, "gave up waiting until {what}");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Has jobs run for another time from now on. None may run.
    pub(super) fn restart_emulator(&self, run_time: &str) -> Result<()> {
        let pid = fs::read_to_string(self.home.join("run/emulator.pid"))?;
        let pid = pid.trim();
        Command::new("kill").arg(pid).status()?;
        let process = PathBuf::from(format!("/proc/{pid}"));
        self.until("the emulator has ended", || Ok(!process.exists()))?;
        let words = ["muster", "up", "--emulate", "--run-time", run_time];
        let mut up = self.command(&words, &self.home);
        let status = up
            .env("MUSTER_HOME", &self.home)
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "muster up failed");
        Ok(())
    }

    /// Waits until `nodes` agents are connected and everything of theirs is accounted for.
    pub(super) fn settle(&self, bench: &Bench, nodes: u32) -> Result<()> {
        self.until("all agents are connected", || {
            let text = self.text(&["sdiag"], &bench.dir)?;
            let connected = number(&text, "Server thread count")? >= u64::from(nodes);
            Ok(connected && number(&text, "DBD Agent queue size")? == 0)
        })
    }

    /// Resident memory of the controller, bytes.
    pub(super) fn resident(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let kib = text.lines().find_map(|l| {
            l.strip_prefix("VmRSS:")?
                .trim()
                .split(' ')
                .next()?
                .parse()
                .ok()
        });
        kib.map(|kib: u64| kib << 10)
            .context("VmRSS of the controller")
    }

    /// A number of `sdiag`.
    pub(super) fn diag(&self, bench: &Bench, key: &str) -> Result<u64> {
        number(&self.text(&["sdiag"], &bench.dir)?, key)
    }

    /// Kills the controller and starts it again; the time from its start.
    pub(super) fn kill_and_start(&self) -> Result<Instant> {
        let pid = self.pid()?;
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()?;
        while PathBuf::from(format!("/proc/{pid}")).exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let started = Instant::now();
        let status = Command::new("bash")
            .arg("-c")
            .arg(&self.start)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "the controller did not start again");
        Ok(started)
    }
}

/// Result of submissions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Submitted {
    /// A second.
    pub(super) rate: f64,
    /// Milliseconds to the acknowledgement: half of them, 99 of 100.
    pub(super) half: f64,
    /// See above.
    pub(super) most: f64,
}

impl Submitted {
    /// From the JSON of `muster emulate jobs`.
    pub(super) fn read(text: &str) -> Result<Submitted> {
        let value: Value = serde_json::from_str(text)?;
        let number = |key: &str| {
            let number = value[key].as_f64();
            number.with_context(|| format!("no '{key}' in {text}"))
        };
        Ok(Submitted {
            rate: number("rate")?,
            half: number("p50_ms")?,
            most: number("p99_ms")?,
        })
    }
}

/// The millisecond within which this share of the counts between two looks lies.
pub(super) fn within(before: &[u64], after: &[u64], share: f64) -> f64 {
    let grown = |ms: usize| after[ms] - before.get(ms).copied().unwrap_or(0);
    let all: u64 = (0..after.len()).map(grown).sum();
    let mut seen = 0;
    for ms in 0..after.len() {
        seen += grown(ms);
        if seen as f64 >= all as f64 * share {
            return ms as f64;
        }
    }
    after.len() as f64
}

/// The number after a key in what `sdiag` printed.
pub(super) fn number(text: &str, key: &str) -> Result<u64> {
    let after = text.lines().find_map(|l| l.trim().strip_prefix(key));
    let word = after.and_then(|l| l.trim_start_matches(':').split_whitespace().next());
    word.and_then(|w| w.parse().ok())
        .with_context(|| format!("sdiag prints no '{key}'"))
}

/// The number after that.
pub(super) fn second_number(text: &str, key: &str) -> Result<u64> {
    let after = text.lines().find_map(|l| l.trim().strip_prefix(key));
    let words = after.into_iter().flat_map(str::split_whitespace);
    let mut numbers = words.filter_map(|w| w.parse().ok());
    numbers
        .nth(1)
        .with_context(|| format!("sdiag prints no second number for '{key}'"))
}

/// Name and processor time of a thread or process.
fn stat(path: &std::path::Path) -> Option<(String, u64)> {
    let text = fs::read_to_string(path).ok()?;
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((name, (user + system) * TICK_MS))
}

/// Processor time of a process and of all commands that it has waited for, milliseconds.
pub(super) fn with_children_ms(pid: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = rest
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|f| f.parse().ok())
        .collect();
    fields.iter().sum::<u64>() * TICK_MS
}
