//! `cargo xtask bench mpi`: an MPI program started by srun through PMIx and by mpirun, in the same allocation of the
//! same emulated cluster: how long the command takes, how long MPI_Init does, and a ping-pong. The best of several
//! runs counts, as others may work on the machine; what matters are the ratios.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Numbers of ranks that are started.
const RANKS: [u32; 3] = [2, 8, 32];
/// Runs of each kind.
const REPS: usize = 5;

/// A way to start a program.
struct Launcher {
    name: &'static str,
    /// `RANKS` stands for their number, `NODES` for that of nodes.
    command: &'static str,
    /// Lines of mpi.conf.
    conf: &'static str,
}

const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "mpirun",
        command: "mpirun --oversubscribe -n RANKS",
        conf: "",
    },
    Launcher {
        name: "srun",
        command: "srun --mpi=pmix --overcommit -N NODES -n RANKS",
        conf: "",
    },
    Launcher {
        name: "srun, not early",
        command: "srun --mpi=pmix --overcommit -N NODES -n RANKS",
        conf: "PMIxDirectConnEarly=no\n",
    },
    Launcher {
        name: "srun, topology not shared",
        command: "srun --mpi=pmix --overcommit -N NODES -n RANKS",
        conf: "PMIxShareServerTopology=no\n",
    },
];

/// The best of one launcher's runs, milliseconds.
struct Best {
    wall: f64,
    init: f64,
    first: f64,
}

/// Runs it. Needs mpicc and mpirun of Open MPI.
pub(crate) fn run() -> Result<()> {
    let built = Command::new("cargo")
        .args(["build", "--release", "-p", "muster"])
        .status()?;
    ensure!(built.success(), "muster does not build");
    let muster = target().join("release/muster");
    let home = std::env::temp_dir().join(format!("muster-bench-mpi-{}", std::process::id()));
    std::fs::create_dir_all(home.join("work"))?;
    let cluster = Cluster { muster, home };
    cluster.muster(&["up", "--nodes", "2", "--cpus", "32"])?;
    for name in ["startup", "pingpong"] {
        let source = Path::new("xtask/src/mpi").join(format!("{name}.c"));
        let source = std::fs::canonicalize(source).context("run this at the repository's root")?;
        cluster.shell(&format!("mpicc -O2 -o {name} {}", source.display()))?;
    }
    for nodes in [1, 2] {
        println!("\n{nodes} node{}\n", if nodes == 1 { "" } else { "s" });
        println!("| ranks | started by | command ms | MPI_Init ms | first allreduce ms |");
        println!("|-|-|-|-|-|");
        for ranks in RANKS {
            for launcher in &LAUNCHERS {
                let best = cluster.startup(launcher, nodes, ranks)?;
                println!(
                    "| {ranks} | {} | {:.0} | {:.0} | {:.1} |",
                    launcher.name, best.wall, best.init, best.first
                );
            }
        }
        println!("\n| bytes | by | us | MB/s |\n|-|-|-|-|");
        for launcher in &LAUNCHERS[..2] {
            cluster.pingpong(launcher, nodes)?;
        }
    }
    Ok(())
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// A cluster for the time of the measurement.
struct Cluster {
    muster: PathBuf,
    home: PathBuf,
}

impl Cluster {
    fn muster(&self, args: &[&str]) -> Result<()> {
        let output = Command::new(&self.muster)
            .args(args)
            .env("MUSTER_HOME", &self.home)
            .output()?;
        ensure!(
            output.status.success(),
            "muster {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn shell(&self, script: &str) -> Result<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("timeout")
            .args(["120", "bash", "-c", script])
            .current_dir(self.home.join("work"))
            .env(
                "PATH",
                format!("{}:{path}", self.home.join("bin").display()),
            )
            .env("SLURM_CONF", self.home.join("slurm.conf"))
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .output()?;
        if !output.status.success() {
            bail!("{script}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A command of a launcher in an allocation of so many nodes; emulated nodes share memory that ranks of several
    /// nodes must not.
    fn in_allocation(
        &self,
        launcher: &Launcher,
        nodes: u32,
        ranks: u32,
        rest: &str,
    ) -> Result<String> {
        std::fs::write(self.home.join("mpi.conf"), launcher.conf)?;
        self.shell("scontrol reconfigure")?;
        let command = launcher
            .command
            .replace("RANKS", &ranks.to_string())
            .replace("NODES", &nodes.to_string());
        let transport = if nodes > 1 {
            "export OMPI_MCA_btl=self,tcp; "
        } else {
            ""
        };
        let inner = rest.replace("LAUNCH", &command);
        self.shell(&format!(
            "{transport}salloc -Q -N{nodes} -n{} bash -c '{inner}'",
            ranks.min(32 * nodes)
        ))
    }

    fn startup(&self, launcher: &Launcher, nodes: u32, ranks: u32) -> Result<Best> {
        let script = format!(
            "for i in $(seq {REPS}); do from=$(date +%s%N); LAUNCH ./startup || exit 1; \
             echo wall_us $((($(date +%s%N) - from) / 1000)); done"
        );
        let out = self.in_allocation(launcher, nodes, ranks, &script)?;
        let mut best = Best {
            wall: f64::MAX,
            init: f64::MAX,
            first: f64::MAX,
        };
        for line in out.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["ranks", size, "init_ms", init, "first_ms", first] => {
                    ensure!(
                        *size == ranks.to_string(),
                        "{}: {size} ranks instead of {ranks}",
                        launcher.name
                    );
                    best.init = best.init.min(init.parse()?);
                    best.first = best.first.min(first.parse()?);
                }
                ["wall_us", us] => best.wall = best.wall.min(us.parse::<f64>()? / 1000.0),
                _ => {}
            }
        }
        Ok(best)
    }

    fn pingpong(&self, launcher: &Launcher, nodes: u32) -> Result<()> {
        let map = if launcher.name == "mpirun" && nodes > 1 {
            "LAUNCH --map-by node ./pingpong"
        } else {
            "LAUNCH ./pingpong"
        };
        let out = self.in_allocation(launcher, nodes, 2, map)?;
        for line in out.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [
                bytes @ ("0" | "8" | "1024" | "65536" | "1048576" | "4194304"),
                _,
                us,
                rate,
            ] = words.as_slice()
            {
                println!("| {bytes} | {} | {us} | {rate} |", launcher.name);
            }
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(e) = self.muster(&["down", "--purge"]) {
            eprintln!("{e}");
        }
    }
}
