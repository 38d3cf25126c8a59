//! `cargo xtask generate`: the committed pages that are made from tables.

use anyhow::{Result, ensure};
use std::process::Command;

/// Writes docs/compat.md, the made part of docs/security.md, and the pages of docs/formats that are made of the source.
pub(crate) fn run() -> Result<()> {
    let cargo = ["run", "--quiet", "--package", "muster", "--"];
    for page in ["compat", "security"] {
        let status = Command::new("cargo")
            .args(cargo)
            .args(["generate", page, "docs"])
            .status()?;
        ensure!(status.success(), "muster generate {page} failed");
    }
    let status = Command::new("cargo")
        .args(["test", "--quiet", "--package", "xtask"])
        .args(["--test", "tidy", "--", "format"])
        .env("UPDATE_DOCS", "1")
        .status()?;
    ensure!(status.success(), "docs/formats cannot be written");
    Ok(())
}
