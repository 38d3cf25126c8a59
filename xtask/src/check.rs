//! `cargo xtask check`: format, lints as errors, every test. One build serves lints and tests. The clusters that tests
//! start run the commands that releases have: those that are linked statically.

use crate::build::Profile;
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// Runs all checks.
pub(crate) fn run(profile: Profile) -> Result<()> {
    step(&["fmt", "--all", "--check"], None)?;
    let commands = crate::build::commands(profile)?;
    let commands = commands.as_deref();
    // Features are tasks of this program.
    let all = ["--workspace", "--all-features", "--quiet", "--profile"];
    let all = [&all[..], &[profile.name()]].concat();
    let warnings = ["--", "-D", "warnings"];
    step(
        &[&["clippy", "--all-targets"], &all[..], &warnings].concat(),
        commands,
    )?;
    // Lints look at examples, too. Documentation has no code that runs.
    let tests = ["test", "--lib", "--bins", "--tests"];
    step(&[&tests[..], &all].concat(), commands)
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
