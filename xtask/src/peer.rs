//! `cargo xtask bench peer`: Muster and, where it is installed, Slurm on this machine in one run, through their
//! commands, with the ratio between them. Absolute figures depend on the machine; ratios are what counts.

mod steps;

pub(crate) use steps::{IN_TURNS, INSIDE, burst, in_turns};

use crate::guard::Guard;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A product under test: how to reach it.
pub(crate) struct Product {
    pub(crate) name: &'static str,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) pid_file: PathBuf,
    pub(crate) start: String,
    _guard: Guard,
}

/// A figure: name, unit, whether more is better, the bar (ratio Muster must reach against Slurm, or an absolute
/// limit), and how to measure it.
struct Figure {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    ratio: Option<f64>,
    limit: Option<f64>,
    measure: fn(&Product, &Path) -> Result<f64>,
    /// Held against a Slurm that keeps accounts as Muster does, too.
    accounted: bool,
}

const FIGURES: [Figure; 16] = [
    Figure {
        name: "array of 2,000 true jobs, end to end",
        unit: "jobs/s",
        more_is_better: true,
        ratio: Some(15.0),
        limit: None,
        measure: array_throughput,
        accounted: true,
    },
    Figure {
        name: "800 single true jobs from 8 clients, end to end",
        unit: "jobs/s",
        more_is_better: true,
        ratio: Some(15.0),
        limit: None,
        measure: single_throughput,
        accounted: true,
    },
    Figure {
        name: "sbatch, held, one after another",
        unit: "/s",
        more_is_better: true,
        ratio: Some(3.0),
        limit: None,
        measure: submit_sequential,
        accounted: false,
    },
    Figure {
        name: "sbatch, held, 8 clients",
        unit: "/s",
        more_is_better: true,
        ratio: None,
        limit: None,
        measure: submit_parallel,
        accounted: false,
    },
    Figure {
        name: "array of 10,000 acknowledged",
        unit: "ms",
        more_is_better: false,
        ratio: None,
        limit: Some(20.0),
        measure: array_submit,
        accounted: false,
    },
    Figure {
        name: "sbatch to first instruction",
        unit: "ms",
        more_is_better: false,
        ratio: None,
        limit: Some(30.0),
        measure: start_latency,
        accounted: false,
    },
    Figure {
        name: "chain of 10 dependent jobs",
        unit: "s",
        more_is_better: false,
        ratio: None,
        limit: Some(0.5),
        measure: chain,
        accounted: false,
    },
    Figure {
        name: "srun over 4 nodes",
        unit: "ms",
        more_is_better: false,
        ratio: None,
        limit: None,
        measure: srun_four,
        accounted: false,
    },
    Figure {
        name: "steps in an allocation, one after another",
        unit: "/s",
        more_is_better: true,
        ratio: Some(10.0),
        limit: None,
        measure: steps::one_after_another,
        accounted: false,
    },
    Figure {
        name: "steps in an allocation, 8 at once",
        unit: "/s",
        more_is_better: true,
        ratio: Some(10.0),
        limit: None,
        measure: steps::eight_at_once,
        accounted: false,
    },
    Figure {
        name: "steps in an allocation, over 4 nodes",
        unit: "/s",
        more_is_better: true,
        ratio: Some(10.0),
        limit: None,
        measure: steps::over_four_nodes,
        accounted: false,
    },
    Figure {
        name: "steps in an allocation, of the bare program's rate",
        unit: "%",
        more_is_better: true,
        ratio: None,
        limit: Some(50.0),
        measure: steps::share_of_the_bare_program,
        accounted: false,
    },
    Figure {
        name: "the same, 8 at once",
        unit: "%",
        more_is_better: true,
        ratio: None,
        limit: Some(50.0),
        measure: steps::share_of_eight_bare_programs,
        accounted: false,
    },
    Figure {
        name: "squeue of 10,000 pending",
        unit: "ms",
        more_is_better: false,
        ratio: Some(3.0),
        limit: None,
        measure: squeue,
        accounted: false,
    },
    Figure {
        name: "squeue --json of 10,000 pending",
        unit: "ms",
        more_is_better: false,
        ratio: Some(10.0),
        limit: None,
        measure: squeue_json,
        accounted: false,
    },
    Figure {
        name: "controller killed and back with 10,000 jobs",
        unit: "s",
        more_is_better: false,
        ratio: None,
        limit: Some(0.5),
        measure: restart,
        accounted: false,
    },
];

/// Runs the comparison.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut reps = 3;
    let mut only = String::new();
    let mut slurm = true;
    for arg in args {
        match arg.split_once('=') {
            Some(("--reps", n)) => reps = n.parse().context("--reps takes a number")?,
            Some(("--only", text)) => only = text.to_owned(),
            Some(("--muster", file)) => crate::build::use_given(file)?,
            _ if arg == "--no-slurm" => slurm = false,
            _ => bail!(
                "cargo xtask bench peer [--reps=N] [--only=TEXT] [--no-slurm] [--muster=FILE]"
            ),
        }
    }
    let dir = std::env::temp_dir().join(format!("muster-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let muster = start_muster(&dir.join("m"))?;
    let figures: Vec<&Figure> = FIGURES.iter().filter(|f| f.name.contains(&only)).collect();
    let mut peers = Vec::new();
    if slurm {
        peers.extend(start_slurm(&dir.join("s"), false)?);
        if figures.iter().any(|f| f.accounted) {
            peers.extend(start_slurm(&dir.join("a"), true)?);
        }
    }
    if peers.is_empty() {
        eprintln!("Slurm is not measured: install slurm-wlm slurmctld slurmd munge to compare.");
    }
    let mut rows = Vec::new();
    let result = (|| -> Result<()> {
        for figure in figures {
            rows.extend(measure(figure, &muster, &peers, reps, &dir)?);
        }
        Ok(())
    })();
    drop((muster, peers));
    let _ = fs::remove_dir_all(&dir);
    result?;
    let out = crate::build::target().join("bench-peer.json");
    fs::write(&out, serde_json::to_string_pretty(&Value::Array(rows))?)?;
    println!(
        "\nEach figure is the median of {reps} runs, taken in turns. JSON: {}",
        out.display()
    );
    Ok(())
}

/// Measures Muster and its peers in turns: a row a peer.
fn measure(
    figure: &Figure,
    muster: &Product,
    peers: &[Product],
    reps: usize,
    dir: &Path,
) -> Result<Vec<Value>> {
    let peers: Vec<&Product> = peers
        .iter()
        .filter(|p| figure.accounted || p.name == SLURM)
        .collect();
    let run = |product: &Product| {
        (figure.measure)(product, dir).with_context(|| format!("{}: {}", product.name, figure.name))
    };
    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); peers.len()];
    for _ in 0..reps {
        ours.push(run(muster)?);
        for (values, peer) in theirs.iter_mut().zip(&peers) {
            values.push(run(peer)?);
        }
    }
    let ours = median(&mut ours);
    if peers.is_empty() {
        return Ok(vec![row(figure, ours, None)]);
    }
    let beside = peers.iter().zip(&mut theirs);
    Ok(beside
        .map(|(peer, values)| row(figure, ours, Some((peer.name, median(values)))))
        .collect())
}

/// Prints what came of a figure beside a peer, and keeps it.
fn row(figure: &Figure, ours: f64, peer: Option<(&str, f64)>) -> Value {
    let theirs = peer.map(|(_, value)| value);
    let name = peer.map_or(SLURM, |(name, _)| name);
    let ratio = theirs.map(|t| {
        if figure.more_is_better {
            ours / t
        } else {
            t / ours
        }
    });
    let bar = match (figure.ratio, figure.limit) {
        (Some(bar), _) => ratio.map(|r| (format!("{bar}x"), r >= bar)),
        (None, Some(limit)) => {
            let met = if figure.more_is_better {
                ours >= limit
            } else {
                ours <= limit
            };
            Some((format!("{limit} {}", figure.unit), met))
        }
        (None, None) => None,
    };
    let show = |v: f64| {
        if v >= 100.0 {
            format!("{v:.0}")
        } else {
            format!("{v:.2}")
        }
    };
    println!(
        "{:<50} {:>10} {:<7} {name} {:>9}  ratio {:>7}  bar {}",
        figure.name,
        show(ours),
        figure.unit,
        theirs.map_or("-".into(), show),
        ratio.map_or("-".into(), |r| format!("{r:.1}x")),
        bar.as_ref().map_or("-".into(), |(b, met)| format!(
            "{b} {}",
            if *met { "met" } else { "NOT MET" }
        )),
    );
    json!({ "figure": figure.name, "unit": figure.unit, "muster": ours, "beside": name, "slurm": theirs, "ratio": ratio,
        "bar": bar.as_ref().map(|b| &b.0), "met": bar.as_ref().map(|b| b.1) })
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The settings of the peer's cluster: CPUs are handed out, memory is not; ended jobs leave listings soon.
pub(crate) const CONF: &str = "\
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MaxArraySize=1000001
MaxJobCount=2000000
MinJobAge=2
KillWait=5
ReturnToService=2
AccountingStorageType=accounting_storage/slurmdbd
";

/// The nodes of the peer's cluster.
pub(crate) const NODES: &str = "\
NodeName=n[1-4] CPUs=512 RealMemory=8000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
";

fn start_muster(home: &Path) -> Result<Product> {
    start_muster_of(home, &format!("{CONF}{NODES}"), &[])
}

/// Builds Muster for release and starts a cluster of that configuration.
pub(crate) fn start_muster_of(home: &Path, conf: &str, words: &[&str]) -> Result<Product> {
    // Once: nothing is to be built between two measurements.
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| crate::profile::profiled().ok());
    let muster = built.as_ref().context("muster does not build")?;
    let home_text = home.display().to_string();
    let guard = Guard::new(
        &[&*muster.to_string_lossy(), "down", "--purge"],
        &[("MUSTER_HOME", &home_text)],
        Some(home),
    )?;
    fs::create_dir_all(home)?;
    let file = home.with_extension("conf");
    let host = String::from_utf8(Command::new("hostname").output()?.stdout)?;
    let head = format!("ClusterName=bench\nSlurmctldHost={}\n", host.trim());
    fs::write(&file, head + conf)?;
    let up = Command::new(muster)
        .arg("up")
        .arg("-f")
        .arg(&file)
        .args(words)
        .env("MUSTER_HOME", home)
        .stdout(Stdio::null())
        .status()?;
    anyhow::ensure!(up.success(), "muster up failed");
    let path = format!("{home_text}/bin:{}", std::env::var("PATH")?);
    Ok(Product {
        name: "muster",
        env: vec![
            ("SLURM_CONF".into(), format!("{home_text}/slurm.conf")),
            ("PATH".into(), path),
        ],
        pid_file: home.join("run/ctld.pid"),
        start: format!("SLURM_CONF={home_text}/slurm.conf {home_text}/bin/slurmctld"),
        _guard: guard,
    })
}

/// Slurm as its guide tunes it, without accounting.
const SLURM: &str = "slurm";
/// The same with slurmdbd and MariaDB.
const SLURM_WITH_ACCOUNTING: &str = "slurm+slurmdbd";

/// Starts Slurm, which keeps accounts if that is wanted; nothing where it is not installed.
pub(crate) fn start_slurm(dir: &Path, accounting: bool) -> Result<Option<Product>> {
    start_slurm_of(dir, accounting, None)
}

/// The same, with nodes, partitions and ways to select of a directory's slurm.conf and gres.conf.
pub(crate) fn start_slurm_of(
    dir: &Path,
    accounting: bool,
    site: Option<&Path>,
) -> Result<Option<Product>> {
    let down = ["bench/slurm-peer.sh", "down", &dir.display().to_string()];
    let guard = Guard::new(&down, &[], Some(dir))?;
    let output = Command::new("bench/slurm-peer.sh")
        .arg("up")
        .arg(dir)
        .arg(if accounting { "accounting" } else { "" })
        .args(site)
        .stderr(Stdio::inherit())
        .output()?;
    if output.status.code() == Some(3) {
        return Ok(None);
    }
    anyhow::ensure!(output.status.success(), "the Slurm cluster did not start");
    let text = String::from_utf8(output.stdout)?;
    let value = |key: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or("")
            .to_owned()
    };
    Ok(Some(Product {
        name: if accounting {
            SLURM_WITH_ACCOUNTING
        } else {
            SLURM
        },
        env: vec![("SLURM_CONF".into(), value("SLURM_CONF"))],
        pid_file: value("PIDFILE").into(),
        start: value("START"),
        _guard: guard,
    }))
}

/// /dev/null, opened once for all starts of a command.
pub(crate) fn nothing() -> Stdio {
    let file = fs::File::options().read(true).write(true).open("/dev/null");
    file.map_or_else(|_| Stdio::null(), Stdio::from)
}

/// Variables of this process's environment in a user's session. Cargo adds thirty variables that every job would
/// inherit, one of which has its shell look for the C library in five directories before the usual one.
pub(crate) fn session() -> impl Iterator<Item = (String, String)> {
    let names = [
        "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ", "PATH", "TMPDIR",
    ];
    names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
}

/// Runs the same command each time.
pub(crate) fn again(mut command: Command) -> impl FnMut() -> bool {
    move || command.status().is_ok_and(|status| status.success())
}

/// Runs something `count` times, `parallel` at once; returns the number of failures. Each thread makes its command
/// once: the measured program shares the processors with this.
pub(crate) fn together<Run: FnMut() -> bool>(
    count: u32,
    parallel: u32,
    make: impl Fn() -> Run + Sync,
) -> u32 {
    let next = AtomicU32::new(0);
    let failed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..parallel {
            scope.spawn(|| {
                let mut run = make();
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    failed.fetch_add(u32::from(!run()), Ordering::Relaxed);
                }
            });
        }
    });
    failed.into_inner()
}

impl Product {
    pub(crate) fn command(&self, args: &[&str], dir: &Path) -> Command {
        // The shell's own look-up is avoided: PATH of the child is searched by hand.
        let path = self
            .env
            .iter()
            .find(|(k, _)| k == "PATH")
            .map(|(_, v)| v.clone());
        let path = path.unwrap_or_else(|| std::env::var("PATH").unwrap_or_default());
        let found = path
            .split(':')
            .map(|p| Path::new(p).join(args[0]))
            .find(|p| p.exists());
        let mut command = Command::new(found.unwrap_or_else(|| args[0].into()));
        command.args(&args[1..]).current_dir(dir).stdin(nothing());
        command.env_clear().envs(session());
        command.envs(self.env.iter().cloned());
        command
    }

    pub(crate) fn text(&self, args: &[&str], dir: &Path) -> Result<String> {
        let output = self.command(args, dir).output()?;
        anyhow::ensure!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// As above, without a reader of the output.
    fn silent(&self, args: &[&str], dir: &Path) -> Command {
        let mut command = self.command(args, dir);
        command.stdout(nothing()).stderr(nothing());
        command
    }

    pub(crate) fn quiet(&self, args: &[&str], dir: &Path) -> Result<()> {
        let status = self.silent(args, dir).status()?;
        anyhow::ensure!(status.success(), "{args:?} failed with {status}");
        Ok(())
    }

    fn active(&self, dir: &Path) -> Result<usize> {
        Ok(self
            .text(&["squeue", "-h", "-t", "PD,R,CG,CF,S", "-o", "%i"], dir)?
            .lines()
            .count())
    }

    pub(crate) fn drain(&self, dir: &Path, every: Duration) -> Result<()> {
        let started = Instant::now();
        while self.active(dir)? > 0 {
            anyhow::ensure!(
                started.elapsed() < Duration::from_secs(300),
                "the queue does not empty"
            );
            std::thread::sleep(every);
        }
        Ok(())
    }

    pub(crate) fn clear(&self, dir: &Path) -> Result<()> {
        let _ = self
            .command(&["scancel", "-u", &user()], dir)
            .stderr(Stdio::null())
            .status();
        self.drain(dir, Duration::from_millis(100))
    }

    /// Runs a command `count` times, `parallel` at once; seconds it took.
    pub(crate) fn burst(
        &self,
        count: u32,
        parallel: u32,
        args: &[&str],
        dir: &Path,
    ) -> Result<f64> {
        let started = Instant::now();
        let failed = together(count, parallel, || again(self.silent(args, dir)));
        anyhow::ensure!(failed == 0, "{failed} of {count} commands {args:?} failed");
        Ok(started.elapsed().as_secs_f64())
    }

    fn fill(&self, dir: &Path) -> Result<()> {
        let have = self
            .text(&["squeue", "-h", "-o", "%i"], dir)?
            .lines()
            .count() as u32;
        if have < 10_000 {
            self.burst(
                10_000 - have,
                4,
                &["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"],
                dir,
            )?;
        }
        Ok(())
    }
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "root".into())
}

fn array_throughput(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    let started = Instant::now();
    p.quiet(
        &[
            "sbatch",
            "-o",
            "/dev/null",
            "--array=0-1999",
            "-n1",
            "--wrap",
            "true",
        ],
        dir,
    )?;
    p.drain(dir, Duration::from_millis(20))?;
    Ok(2000.0 / started.elapsed().as_secs_f64())
}

fn single_throughput(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    let started = Instant::now();
    p.burst(
        800,
        8,
        &["sbatch", "-o", "/dev/null", "-n1", "--wrap", "true"],
        dir,
    )?;
    p.drain(dir, Duration::from_millis(20))?;
    Ok(800.0 / started.elapsed().as_secs_f64())
}

fn submit_sequential(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    Ok(200.0
        / p.burst(
            200,
            1,
            &["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"],
            dir,
        )?)
}

fn submit_parallel(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    Ok(800.0
        / p.burst(
            800,
            8,
            &["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"],
            dir,
        )?)
}

fn array_submit(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    let took = p.burst(
        1,
        1,
        &[
            "sbatch",
            "-H",
            "-o",
            "/dev/null",
            "--array=0-9999",
            "--wrap",
            "true",
        ],
        dir,
    )?;
    Ok(took * 1e3)
}

fn start_latency(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    std::thread::sleep(Duration::from_secs(1));
    let file = dir.join("first");
    let _ = fs::remove_file(&file);
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_secs_f64();
    let wrap = format!("date +%s.%N >{0}.new && mv {0}.new {0}", file.display());
    p.quiet(&["sbatch", "-o", "/dev/null", "--wrap", &wrap], dir)?;
    let waited = Instant::now();
    while !file.exists() {
        anyhow::ensure!(
            waited.elapsed() < Duration::from_secs(60),
            "the job did not start"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    let first: f64 = fs::read_to_string(&file)?.trim().parse()?;
    Ok((first - started) * 1e3)
}

fn chain(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    let started = Instant::now();
    let mut last: Option<String> = None;
    for _ in 0..10 {
        let dependency = last.map(|id| format!("--dependency=afterok:{id}"));
        let mut args = vec!["sbatch", "--parsable", "-o", "/dev/null"];
        args.extend(dependency.as_deref());
        args.extend(["--wrap", "true"]);
        last = Some(p.text(&args, dir)?);
    }
    p.drain(dir, Duration::from_millis(10))?;
    Ok(started.elapsed().as_secs_f64())
}

fn srun_four(p: &Product, dir: &Path) -> Result<f64> {
    p.clear(dir)?;
    Ok(p.burst(10, 1, &["srun", "-Q", "-N4", "true"], dir)? / 10.0 * 1e3)
}

fn squeue(p: &Product, dir: &Path) -> Result<f64> {
    p.fill(dir)?;
    Ok(p.burst(5, 1, &["squeue"], dir)? / 5.0 * 1e3)
}

fn squeue_json(p: &Product, dir: &Path) -> Result<f64> {
    p.fill(dir)?;
    Ok(p.burst(3, 1, &["squeue", "--json"], dir)? / 3.0 * 1e3)
}

fn restart(p: &Product, dir: &Path) -> Result<f64> {
    p.fill(dir)?;
    // Slurm saves its state at most every five seconds; both get that time.
    std::thread::sleep(Duration::from_secs(6));
    let pid = fs::read_to_string(&p.pid_file)?;
    Command::new("kill").args(["-9", pid.trim()]).status()?;
    let proc_dir = PathBuf::from(format!("/proc/{}", pid.trim()));
    while proc_dir.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let started = Instant::now();
    let status = Command::new("bash")
        .arg("-c")
        .arg(&p.start)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    anyhow::ensure!(status.success(), "the controller did not start again");
    loop {
        let answered = p
            .text(&["squeue", "-h", "-t", "all", "-o", "%i"], dir)
            .map(|t| t.lines().count());
        if answered.is_ok_and(|n| n >= 10_000) {
            return Ok(started.elapsed().as_secs_f64());
        }
        anyhow::ensure!(
            started.elapsed() < Duration::from_secs(120),
            "the jobs did not come back"
        );
    }
}
