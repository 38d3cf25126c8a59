//! A cluster under test that goes away with its value, and what its controller uses.

use super::Bench;
use crate::peer::{self, Product};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

    /// Slurm, if it is to be measured and is installed.
    pub(super) fn slurm(&self) -> Result<Option<Site>> {
        if !self.peers {
            return Ok(None);
        }
        let home = self.dir.join("s");
        let product = peer::start_slurm(&home).inspect_err(|_| {
            // What of it did start.
            let down = Command::new("bench/slurm-peer.sh")
                .arg("down")
                .arg(&home)
                .status();
            drop(down);
        })?;
        if product.is_none() {
            println!(
                "  Slurm is not measured: slurm-wlm, slurmctld, slurmd or munge is not installed"
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

/// The number after a key in what `sdiag` printed.
pub(super) fn number(text: &str, key: &str) -> Result<u64> {
    let after = text.lines().find_map(|l| l.trim().strip_prefix(key));
    let word = after.and_then(|l| l.trim_start_matches(':').split_whitespace().next());
    word.and_then(|w| w.parse().ok())
        .with_context(|| format!("sdiag prints no '{key}'"))
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

/// Processor time of all commands that this process has waited for, milliseconds.
pub(super) fn children_ms() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = rest
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|f| f.parse().ok())
        .collect();
    fields.iter().sum::<u64>() * TICK_MS
}
