//! `cargo xtask build`: Muster with its user commands linked statically inside, where the toolchain can do that.

use crate::cluster::target;
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The target whose C library asks the processor nothing at its start.
fn static_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds it, for release or with debug assertions, and says where it is.
pub(crate) fn muster(release: bool) -> Result<PathBuf> {
    let commands = commands(release)?;
    let mut build = cargo(&["build", "-p", "muster"], release);
    if let Some(commands) = commands {
        build.env("MUSTER_COMMANDS", commands);
    }
    ensure!(build.status()?.success(), "muster does not build");
    Ok(fs::canonicalize(built(&target(), release).join("muster"))?)
}

/// Builds the commands; `None` where the toolchain has no such target and cannot get it.
pub(crate) fn commands(release: bool) -> Result<Option<PathBuf>> {
    let triple = static_target();
    if !has(&triple)? && !fetch(&triple) {
        eprintln!(
            "The toolchain has no target {triple}: commands will start more slowly. 'rustup target add {triple}' gets it."
        );
        return Ok(None);
    }
    let mut build = cargo(
        &["build", "-p", "muster-commands", "--target", &triple],
        release,
    );
    ensure!(build.status()?.success(), "the commands do not build");
    let file = built(&target().join(&triple), release).join("muster-commands");
    Ok(Some(fs::canonicalize(file)?))
}

fn cargo(words: &[&str], release: bool) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(words);
    if release {
        cargo.arg("--release");
    }
    cargo
}

fn built(target: &Path, release: bool) -> PathBuf {
    target.join(if release { "release" } else { "debug" })
}

fn has(triple: &str) -> Result<bool> {
    let words = ["--print", "target-libdir", "--target", triple];
    let out = Command::new("rustc").args(words).output()?;
    let dir = String::from_utf8(out.stdout)?;
    Ok(out.status.success() && Path::new(dir.trim()).exists())
}

fn fetch(triple: &str) -> bool {
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", triple]).stdout(Stdio::null());
    rustup.status().is_ok_and(|status| status.success())
}
