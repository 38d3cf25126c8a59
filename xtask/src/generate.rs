//! `cargo xtask generate`: the committed pages that are made from tables.

use anyhow::{Result, ensure};
use std::process::Command;

/// Writes docs/compat.md, and the made part of docs/security.md.
pub(crate) fn run() -> Result<()> {
    let cargo = ["run", "--quiet", "--package", "muster", "--"];
    for page in ["compat", "security"] {
        let status = Command::new("cargo")
            .args(cargo)
            .args(["generate", page, "docs"])
            .status()?;
        ensure!(status.success(), "muster generate {page} failed");
    }
    Ok(())
}
