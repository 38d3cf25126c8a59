//! `cargo xtask generate`: the committed pages that are made from tables.

use anyhow::{Result, ensure};
use std::process::Command;

/// Writes docs/compat.md.
pub(crate) fn run() -> Result<()> {
    let cargo = ["run", "--quiet", "--package", "muster", "--"];
    let status = Command::new("cargo")
        .args(cargo)
        .args(["generate", "compat", "docs"])
        .status()?;
    ensure!(status.success(), "muster generate compat failed");
    Ok(())
}
