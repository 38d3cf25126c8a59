//! `cargo xtask check`: format, lints as errors, every test. One build serves lints and tests alike. The clusters that tests
//! start run the commands that releases have: those that are linked statically.

use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// Runs all checks.
pub(crate) fn run() -> Result<()> {
    step(&["fmt", "--all", "--check"], None)?;
    let commands = crate::build::commands(false)?;
    let lints = [
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    step(&[&["clippy"], &lints[..]].concat(), commands.as_deref())?;
    step(&["test", "--workspace", "--quiet"], commands.as_deref())
}

fn step(args: &[&str], commands: Option<&Path>) -> Result<()> {
    eprintln!("cargo {}", args.join(" "));
    let mut cargo = Command::new("cargo");
    if let Some(commands) = commands {
        cargo.env("MUSTER_COMMANDS", commands);
    }
    let status = cargo.args(args).status()?;
    ensure!(status.success(), "cargo {} failed", args.join(" "));
    Ok(())
}
