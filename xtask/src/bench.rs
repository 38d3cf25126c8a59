//! `cargo xtask bench all`: performance of Muster on this machine beside a peer, or beside a limit that the machine
//! sets, in the same run. Sections are independent of each other and can be run alone; sizes scale. docs/performance.md
//! explains the output.

mod emulated;
mod pages;
mod plot;
mod real;
mod scale;
mod site;

pub(crate) use scale::{ASK, asks};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

const HELP: &str = "\
cargo xtask bench all [OPTIONS]

  --only=NAME,...  only these sections
  --scale=X        sizes times X (default 1), such as 0.01 for a try
  --large          arrays of 20,000 real jobs instead of 2,000, steps over 1,000 real agents instead of 64
  --no-peers       without Slurm and HyperQueue
  --muster=FILE    this program instead of one that is built from here
  --plots=DIR      where plots are written (default: beside the JSON, in cargo's target directory)
  --list           the sections
";

/// A part of the measurements.
struct Section {
    name: &'static str,
    what: &'static str,
    run: fn(&mut Bench) -> Result<()>,
}

const SECTIONS: [Section; 14] = [
    Section {
        name: "array",
        what: "an array of real jobs over 4 agents",
        run: real::array,
    },
    Section {
        name: "singles",
        what: "single real jobs from 8 clients",
        run: real::singles,
    },
    Section {
        name: "steps",
        what: "srun in an allocation, in a loop and 32 at once",
        run: real::steps,
    },
    Section {
        name: "submit",
        what: "sbatch, one after another",
        run: real::submit,
    },
    Section {
        name: "emulated",
        what: "an array through 1,000 emulated nodes, and whether it slows down",
        run: emulated::throughput,
    },
    Section {
        name: "flow",
        what: "single submissions from 64 connections, run while they come",
        run: emulated::flow,
    },
    Section {
        name: "ideas",
        what: "what accounting, group commit, order and shapes cost",
        run: emulated::ideas,
    },
    Section {
        name: "queue",
        what: "throughput against queue length",
        run: emulated::queue,
    },
    Section {
        name: "pollers",
        what: "100,000 pending jobs and 205 clients that look at them",
        run: scale::pollers,
    },
    Section {
        name: "pages",
        what: "slurmrestd with 100,000 jobs that wait: pages, metrics, submissions, 200 pages that follow changes",
        run: pages::pages,
    },
    Section {
        name: "agents",
        what: "10,000 agents connected",
        run: scale::agents,
    },
    Section {
        name: "restart",
        what: "restart with a long queue, and memory of what waits",
        run: scale::restart,
    },
    Section {
        name: "wide",
        what: "messages that a step over many nodes costs the controller",
        run: scale::wide,
    },
    Section {
        name: "wide-job",
        what: "what a job over 10,000 nodes costs the controller",
        run: scale::wide_job,
    },
];

/// A run: its options and results.
pub(crate) struct Bench {
    scale: f64,
    large: bool,
    peers: bool,
    dir: PathBuf,
    plots: PathBuf,
    rows: Vec<Value>,
}

/// Reference for a figure.
enum Beside {
    /// Nothing.
    Nothing,
    /// Another product, or what the machine can do: name, value, and the ratio that is wanted of it, if one is.
    Other(&'static str, f64, Option<f64>),
    /// An absolute bound: at most.
    AtMost(f64),
    /// An absolute bound: at least.
    AtLeast(f64),
}

/// Runs the sections.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let place = crate::build::target();
    let mut bench = Bench {
        scale: 1.0,
        large: false,
        peers: true,
        dir: std::env::temp_dir().join(format!("muster-bench-{}", std::process::id())),
        plots: place.clone(),
        rows: Vec::new(),
    };
    let mut only: Vec<String> = Vec::new();
    for arg in args {
        match arg.split_once('=') {
            Some(("--scale", x)) => bench.scale = x.parse().context("--scale takes a number")?,
            Some(("--only", names)) => only = names.split(',').map(str::to_owned).collect(),
            Some(("--muster", file)) => crate::build::use_given(file)?,
            Some(("--plots", dir)) => bench.plots = dir.into(),
            _ if arg == "--large" => bench.large = true,
            _ if arg == "--no-peers" => bench.peers = false,
            _ if arg == "--list" => {
                for section in &SECTIONS {
                    println!("{:<10} {}", section.name, section.what);
                }
                return Ok(());
            }
            _ => bail!("{HELP}"),
        }
    }
    if let Some(unknown) = only.iter().find(|n| SECTIONS.iter().all(|s| s.name != **n)) {
        bail!("there is no section '{unknown}'; --list shows them");
    }
    fs::create_dir_all(&bench.dir)?;
    let mut failed = Vec::new();
    for section in &SECTIONS {
        if !only.is_empty() && !only.iter().any(|n| n == section.name) {
            continue;
        }
        println!("\n{}: {}", section.name, section.what);
        if let Err(e) = (section.run)(&mut bench) {
            println!("  FAILED: {e:#}");
            failed.push(section.name);
        }
    }
    let _ = fs::remove_dir_all(&bench.dir);
    fs::create_dir_all(&place)?;
    let out = place.join("bench-all.json");
    let all = json!({ "scale": bench.scale, "failed": &failed, "figures": bench.rows });
    fs::write(&out, serde_json::to_string_pretty(&all)?)?;
    println!("\nJSON: {}", out.display());
    anyhow::ensure!(failed.is_empty(), "sections failed: {}", failed.join(", "));
    Ok(())
}

impl Bench {
    /// A size, scaled.
    fn size(&self, full: u32) -> u32 {
        (f64::from(full) * self.scale).max(1.0) as u32
    }

    /// A figure: printed, and kept for the JSON. More is better if it is a rate ("/s").
    fn figure(&mut self, name: &str, value: f64, unit: &'static str, beside: &Beside) {
        let more_is_better = unit.ends_with("/s");
        let (text, other, ratio, met) = match *beside {
            Beside::Nothing => (String::new(), Value::Null, None, None),
            Beside::Other(who, theirs, wanted) => {
                let ratio = if more_is_better {
                    value / theirs
                } else {
                    theirs / value
                };
                let met = wanted.map(|wanted| ratio >= wanted);
                let bar = wanted.map_or(String::new(), |w| format!(", wanted {w}x"));
                let text = format!("{who} {} = {ratio:.2}x{bar}", show(theirs));
                (
                    text,
                    json!({ "name": who, "value": theirs }),
                    Some(ratio),
                    met,
                )
            }
            Beside::AtMost(most) => {
                let met = Some(value <= most);
                (format!("at most {}", show(most)), json!(most), None, met)
            }
            Beside::AtLeast(least) => {
                let met = Some(value >= least);
                (format!("at least {}", show(least)), json!(least), None, met)
            }
        };
        let verdict = match met {
            Some(true) => " (met)",
            Some(false) => " (NOT MET)",
            None => "",
        };
        println!("  {name:<58} {:>10} {unit:<7} {text}{verdict}", show(value));
        self.rows.push(json!({
            "figure": name, "unit": unit, "value": value, "beside": other, "ratio": ratio, "met": met,
        }));
    }

    /// A plot, into a file of that name.
    fn plot(&self, name: &str, plot: &plot::Plot<'_>) -> Result<()> {
        let file = self.plots.join(name);
        fs::create_dir_all(&self.plots)?;
        fs::write(&file, plot.svg())?;
        println!("  plot: {}", file.display());
        Ok(())
    }
}

/// A number with about three digits that count.
fn show(v: f64) -> String {
    match v.abs() {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    }
}
