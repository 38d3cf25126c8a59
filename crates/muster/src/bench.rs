//! `muster bench mpi`: an MPI program started by srun and by mpirun, over the same nodes: how long the command takes, how
//! long MPI_Init does, and a ping-pong. The best of several runs counts, as others may work on the machine; what
//! matters are the ratios.

mod plot;

use crate::mpi::{self, Family, Mpi};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::process::ExitCode;

const HELP: &str = "\
muster bench mpi [OPTIONS]     MPI started by srun and by mpirun over the same nodes: times of start, MPI_Init, messages
muster bench fence [N,...]     a fence among so many hosts of PMIx on this machine (default 2 to 256): rounds, messages, time

Nodes are emulated on this machine, by a private cluster that is gone afterwards. IMB-MPI1 of the MPI is used where it
is found; else a program of the same output, which is built with mpicc.

  --ranks N,...    numbers of ranks to start (default 2,8,32)
  --nodes N,...    numbers of nodes (default 1,2)
  --reps N         runs of each kind, of which the best counts (default 5)
  --mpi WORD       openmpi, mpich or intel (default: the first on the path)
  --largest N      bytes of the largest message (default 268435456)
  --plot FILE      write start times and rates as SVG
  --json           one JSON object
";

/// A way to start a program.
#[derive(Clone, Copy)]
struct Launcher {
    name: &'static str,
    /// Lines of mpi.conf; `None` is mpirun.
    conf: Option<&'static str>,
}

const LAUNCHERS: [Launcher; 7] = [
    Launcher {
        name: "mpirun",
        conf: None,
    },
    Launcher {
        name: "srun",
        conf: Some(""),
    },
    Launcher {
        name: "srun, not early",
        conf: Some("PMIxDirectConnEarly=no\n"),
    },
    Launcher {
        name: "srun, topology not shared",
        conf: Some("PMIxShareServerTopology=no\n"),
    },
    Launcher {
        name: "srun, UCX",
        conf: Some("PMIxDirectConnUCX=yes\n"),
    },
    Launcher {
        name: "srun, CMA on",
        conf: Some("CrossMemoryAttach=yes\n"),
    },
    Launcher {
        name: "srun, CMA off",
        conf: Some("CrossMemoryAttach=no\n"),
    },
];
/// Launchers that differ in how programs start,
const STARTS: [usize; 5] = [0, 1, 2, 3, 4];
/// and in how they talk.
const TALKS: [usize; 4] = [0, 1, 5, 6];

/// Arguments of the command line.
struct Args {
    ranks: Vec<u32>,
    nodes: Vec<u32>,
    reps: u32,
    family: Option<Family>,
    largest: u64,
    plot: Option<String>,
    json: bool,
}

/// Start of a program: milliseconds of the best run.
#[derive(Debug)]
struct Start {
    nodes: u32,
    ranks: u32,
    by: &'static str,
    wall: f64,
    init: f64,
    first: f64,
}

/// Messages of a size.
#[derive(Debug)]
struct Message {
    nodes: u32,
    by: &'static str,
    bytes: u64,
    us: f64,
    rate: f64,
}

/// Runs the command.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    match words.split_first() {
        Some((word, rest)) if word == "mpi" && !rest.iter().any(|w| w == "--help" || w == "-h") => {
            measure(&parse(rest)?)
        }
        Some((word, rest))
            if word == "fence" && rest.len() < 2 && !rest.iter().any(|w| w.starts_with('-')) =>
        {
            fences(
                rest.first()
                    .map_or("2,4,8,16,32,64,128,256", String::as_str),
            )
        }
        _ => {
            say!("{HELP}");
            let asked = words.iter().any(|w| w == "--help" || w == "-h");
            Ok(ExitCode::from(u8::from(!asked)))
        }
    }
}

/// Bytes that a host brings to a fence: what Open MPI's ranks of a node of 32 put.
const FENCE_BYTES: usize = 1024;
/// Fences of each size, of which the average counts.
const FENCES: u32 = 20;

fn fences(sizes: &str) -> Result<ExitCode> {
    let sizes: Result<Vec<usize>, _> = sizes.split(',').map(str::parse).collect();
    let sizes = sizes
        .ok()
        .filter(|s| s.iter().all(|n| (1..=1024).contains(n)));
    let sizes =
        sizes.context("bench fence: a list of numbers of 1 to 1024 is wanted, such as 2,8,32")?;
    say!(
        "| hosts | rounds | messages a host | messages | ms a fence | us a message |\n|-|-|-|-|-|-|\n"
    );
    for hosts in sizes {
        let figures = muster_pmix::rehearse_fence(hosts, FENCE_BYTES, FENCES)?;
        let ms = figures.time.as_secs_f64() * 1e3;
        let messages = figures.messages;
        let each = if messages == 0 {
            0.0
        } else {
            ms * 1e3 / messages as f64
        };
        say!(
            "| {hosts} | {} | {} | {messages} | {ms:.2} | {each:.1} |\n",
            figures.rounds,
            messages / hosts as u64
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(words: &[String]) -> Result<Args> {
    let mut args = Args {
        ranks: vec![2, 8, 32],
        nodes: vec![1, 2],
        reps: 5,
        family: None,
        largest: 256 << 20,
        plot: None,
        json: false,
    };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word == "--json" {
            args.json = true;
            continue;
        }
        let mut value = || rest.next().with_context(|| format!("{word} needs a value"));
        let numbers = |text: &str| -> Result<Vec<u32>> {
            let all: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
            let all = all.ok().filter(|all| all.iter().all(|n| *n > 0));
            all.with_context(|| {
                format!("{word}: '{text}' is not a list of numbers, such as 2,8,32")
            })
        };
        match word.as_str() {
            "--ranks" => args.ranks = numbers(value()?)?,
            "--nodes" => args.nodes = numbers(value()?)?,
            "--reps" => args.reps = numbers(value()?)?.into_iter().max().unwrap_or(1),
            "--largest" => {
                args.largest = value()?.parse().context("--largest: a number of bytes")?
            }
            "--plot" => args.plot = Some(value()?.clone()),
            "--mpi" => {
                args.family = Some(match value()?.as_str() {
                    "openmpi" => Family::OpenMpi,
                    "mpich" => Family::Mpich,
                    "intel" => Family::Intel,
                    other => bail!("--mpi: '{other}' is not one of openmpi, mpich, intel"),
                });
            }
            other => bail!("bench mpi has no option '{other}'; 'muster bench --help' lists them"),
        }
    }
    Ok(args)
}

fn measure(args: &Args) -> Result<ExitCode> {
    let wanted = |m: &Mpi| args.family.is_none_or(|f| f == m.family);
    let found = mpi::find().into_iter().find(wanted);
    let mpi = found
        .context("no such MPI is found: 'muster doctor' says what there is and what to install")?;
    let most = args.nodes.iter().max().copied().unwrap_or(1);
    let scratch = Scratch::start(most, args.ranks.iter().max().copied().unwrap_or(1).max(2))?;
    let bench = Bench { mpi, scratch };
    bench.build()?;
    let title = format!(
        "{} {}, {}",
        bench.mpi.family.name(),
        bench.mpi.version,
        bench.mpi.dir.display()
    );
    if !args.json {
        say!("{title}\n");
    }
    let (mut starts, mut messages) = (Vec::new(), Vec::new());
    for &nodes in &args.nodes {
        let ranks = args.ranks.iter().filter(|r| **r >= nodes);
        if bench.mpi.mpicc.is_some() {
            starts.extend(bench.starts(args, nodes, ranks.copied())?);
        }
        messages.extend(bench.messages(args, nodes)?);
    }
    if args.json {
        say!("{:#}\n", as_json(&title, &starts, &messages));
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(&title, &starts, &messages))
            .with_context(|| path.clone())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(title: &str, starts: &[Start], messages: &[Message]) -> serde_json::Value {
    let starts: Vec<_> = starts
        .iter()
        .map(|s| {
            json!({ "nodes": s.nodes, "ranks": s.ranks, "by": s.by, "command_ms": s.wall, "init_ms": s.init,
                    "first_allreduce_ms": s.first })
        })
        .collect();
    let messages: Vec<_> = messages
        .iter()
        .map(|m| json!({ "nodes": m.nodes, "by": m.by, "bytes": m.bytes, "us": m.us, "mb_s": m.rate }))
        .collect();
    json!({ "mpi": title, "start": starts, "messages": messages })
}

/// The measured MPI, and the place of measurement.
struct Bench {
    mpi: Mpi,
    scratch: Scratch,
}

impl Bench {
    fn build(&self) -> Result<()> {
        let Some(mpicc) = &self.mpi.mpicc else {
            ensure!(
                self.mpi.benchmark.is_some(),
                "{} has neither mpicc nor IMB-MPI1 in {}: install its development package",
                self.mpi.family.name(),
                self.mpi.dir.display()
            );
            return Ok(());
        };
        for (name, source) in [("startup", mpi::STARTUP), ("pingpong", mpi::PINGPONG)] {
            std::fs::write(self.scratch.path(&format!("{name}.c")), source)?;
            let command = format!("{} -O2 -o {name} {name}.c", mpicc.display());
            self.scratch.ok(&command, Some(&self.mpi.dir))?;
        }
        Ok(())
    }

    fn command(&self, launcher: &Launcher, nodes: u32, ranks: u32) -> String {
        let name = &self.mpi.mpirun;
        match (launcher.conf, self.mpi.family) {
            (Some(_), family) => {
                format!("srun --mpi={} -N{nodes} -n{ranks}", family.kind())
            }
            (None, Family::OpenMpi) => format!("{name} --oversubscribe --map-by node -n {ranks}"),
            (None, _) => format!("{name} -ppn {} -n {ranks}", ranks.div_ceil(nodes)),
        }
    }

    /// Runs a script in an allocation of this number of nodes. Emulated nodes share memory that ranks of several nodes
    /// must not use, and CPUs: processes that mpirun binds to the first of each would be on one, and ranks that wait
    /// for each other without giving way may take a time slice for each message.
    fn in_allocation(
        &self,
        launcher: &Launcher,
        nodes: u32,
        ranks: u32,
        script: &str,
    ) -> Result<String> {
        self.scratch.set_mpi_conf(launcher.conf.unwrap_or(""))?;
        let apart = if nodes > 1 {
            "export OMPI_MCA_btl=self,tcp OMPI_MCA_mpi_yield_when_idle=1 \
             OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none \
             MPIR_CVAR_NOLOCAL=1 I_MPI_FABRICS=ofi I_MPI_PIN=0; "
        } else {
            ""
        };
        let inner = script.replace("LAUNCH", &self.command(launcher, nodes, ranks));
        let prelude = self.mpi.prelude();
        let command = format!(
            "{prelude}{apart}salloc -Q -N{nodes} -n{} bash -c '{inner}'",
            ranks.max(nodes)
        );
        self.scratch.ok(&command, Some(&self.mpi.dir))
    }

    fn starts(
        &self,
        args: &Args,
        nodes: u32,
        ranks: impl Iterator<Item = u32>,
    ) -> Result<Vec<Start>> {
        if !args.json {
            say!(
                "\n{}\n\n| ranks | started by | command ms | MPI_Init ms | first allreduce ms |\n|-|-|-|-|-|\n",
                on(nodes)
            );
        }
        let mut all = Vec::new();
        for ranks in ranks {
            for at in STARTS {
                // Hosts of one node have nobody to talk to.
                if nodes == 1 && (at == 2 || at == 4) {
                    continue;
                }
                let best = self.start(&LAUNCHERS[at], nodes, ranks, args.reps)?;
                if !args.json {
                    say!(
                        "| {ranks} | {} | {:.0} | {:.0} | {:.1} |\n",
                        best.by,
                        best.wall,
                        best.init,
                        best.first
                    );
                }
                all.push(best);
            }
        }
        Ok(all)
    }

    fn start(&self, launcher: &Launcher, nodes: u32, ranks: u32, reps: u32) -> Result<Start> {
        let script = format!(
            "for i in $(seq {reps}); do from=$(date +%s%N); LAUNCH ./startup || exit 1; \
             echo wall_us $((($(date +%s%N) - from) / 1000)); done"
        );
        let out = self.in_allocation(launcher, nodes, ranks, &script)?;
        let mut best = Start {
            nodes,
            ranks,
            by: launcher.name,
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
        ensure!(
            best.init < f64::MAX,
            "{}: the program has printed nothing",
            launcher.name
        );
        Ok(best)
    }

    fn messages(&self, args: &Args, nodes: u32) -> Result<Vec<Message>> {
        if !args.json {
            say!(
                "\nmessages, {}\n\n| bytes | started by | us | MB/s |\n|-|-|-|-|\n",
                on(nodes)
            );
        }
        let program = match &self.mpi.benchmark {
            // It takes powers of two, and gives up a size after ten seconds unless an option forbids that.
            Some(path) => format!(
                "{} -npmin 2 -msglog 0:{} -time 60 PingPong",
                path.display(),
                args.largest.max(1).ilog2()
            ),
            None => format!("./pingpong {}", args.largest),
        };
        let mut all = Vec::new();
        for at in TALKS {
            let launcher = &LAUNCHERS[at];
            // Ranks of different nodes have no use for it.
            if nodes > 1 && launcher.name.contains("CMA") {
                continue;
            }
            let out = self.in_allocation(launcher, nodes, 2, &format!("LAUNCH {program}"))?;
            let rows = out.lines().filter_map(columns);
            let of_launcher: Vec<Message> = rows
                .map(|(bytes, us, rate)| Message {
                    nodes,
                    by: launcher.name,
                    bytes,
                    us,
                    rate,
                })
                .collect();
            ensure!(
                !of_launcher.is_empty(),
                "{}: the program has printed no rows",
                launcher.name
            );
            for m in of_launcher
                .iter()
                .filter(|m| !args.json && is_shown(m.bytes))
            {
                say!("| {} | {} | {:.2} | {:.0} |\n", m.bytes, m.by, m.us, m.rate);
            }
            all.extend(of_launcher);
        }
        Ok(all)
    }
}

fn on(nodes: u32) -> String {
    format!("{nodes} node{}", if nodes == 1 { "" } else { "s" })
}

/// The table has some sizes; plot and JSON have all.
fn is_shown(bytes: u64) -> bool {
    matches!(bytes, 0 | 8) || (bytes >= 1024 && bytes.trailing_zeros().is_multiple_of(2))
}

/// A row of the Intel MPI Benchmarks: bytes, repetitions, microseconds, MB/s.
fn columns(line: &str) -> Option<(u64, f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [bytes, times, us, rate] = words.as_slice() else {
        return None;
    };
    times.parse::<u64>().ok()?;
    Some((bytes.parse().ok()?, us.parse().ok()?, rate.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_benchmark_are_read() {
        assert_eq!(
            columns("     4194304     10   931.50   4502.74"),
            Some((4_194_304, 931.5, 4502.74))
        );
        assert_eq!(columns("#bytes #repetitions t[usec] Mbytes/sec"), None);
        assert_eq!(columns("# Number of processes"), None);
    }
}
