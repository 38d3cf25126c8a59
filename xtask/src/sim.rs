//! `cargo xtask sim`: the deterministic simulator, built with optimization, over many seeds or one; and
//! `cargo xtask bench sched`, the scheduler's own benchmark.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Hands its words to the simulator.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "muster-sim",
            "--",
        ])
        .args(words)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the simulator found something, or was asked for something unknown");
    }
    Ok(())
}

/// `cargo xtask bench sched`.
pub(crate) fn bench_sched() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let words = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "muster-sched",
        "--example",
        "pass_time",
    ];
    let status = Command::new(cargo)
        .args(words)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the benchmark stopped");
    }
    Ok(())
}
