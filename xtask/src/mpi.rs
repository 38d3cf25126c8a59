//! `cargo xtask bench mpi`: `muster bench mpi` of a release build.

use anyhow::{Result, ensure};
use std::process::Command;

/// Runs it with these options.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let ran = Command::new(crate::build::muster(crate::build::Profile::Release)?)
        .args(["bench", "mpi"])
        .args(args)
        .status()?;
    ensure!(ran.success(), "muster bench mpi failed");
    Ok(())
}
