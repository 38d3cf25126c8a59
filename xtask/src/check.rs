//! `cargo xtask check`: format, lints as errors, every test. One build serves lints and tests alike.

use anyhow::{Result, ensure};
use std::process::Command;

/// Runs all checks.
pub(crate) fn run() -> Result<()> {
    step(&["fmt", "--all", "--check"])?;
    step(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ])?;
    step(&["test", "--workspace", "--quiet"])?;
    Ok(())
}

fn step(args: &[&str]) -> Result<()> {
    eprintln!("cargo {}", args.join(" "));
    let status = Command::new("cargo").args(args).status()?;
    ensure!(status.success(), "cargo {} failed", args.join(" "));
    Ok(())
}
