//! `cargo xtask bench mpi`: `muster bench mpi` of a release build.

use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Runs it with these options.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let built = Command::new("cargo")
        .args(["build", "--release", "-p", "muster"])
        .status()?;
    ensure!(built.success(), "muster does not build");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let ran = Command::new(target.join("release/muster"))
        .args(["bench", "mpi"])
        .args(args)
        .status()?;
    ensure!(ran.success(), "muster bench mpi failed");
    Ok(())
}
