//! `cargo xtask build`: Muster with its user commands linked statically inside, where the toolchain can do that.

use crate::cluster::target;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The target whose C library asks the processor nothing at its start.
fn static_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// A program to be used instead of one that is built.
static GIVEN: OnceLock<PathBuf> = OnceLock::new();

/// From now on, this program is used, and none is built.
///
/// # Errors
/// There is no such file.
pub(crate) fn use_given(file: &str) -> Result<()> {
    let file = fs::canonicalize(file).with_context(|| file.to_owned())?;
    // Given twice, the first counts.
    let _ = GIVEN.set(file);
    Ok(())
}

/// Builds it, for release or with debug assertions, and says where it is.
pub(crate) fn muster(release: bool) -> Result<PathBuf> {
    if let Some(given) = GIVEN.get() {
        return Ok(given.clone());
    }
    let commands = commands(release)?;
    let mut build = cargo(&["build", "-p", "muster"], release);
    if let Some(commands) = commands {
        build.env("MUSTER_COMMANDS", commands);
    }
    ensure!(build.status()?.success(), "muster does not build");
    Ok(fs::canonicalize(built(&target(), release).join("muster"))?)
}

/// Builds it for release, by a profile of what it does where the toolchain can do that, and says where it is.
pub(crate) fn profiled() -> Result<PathBuf> {
    if let Some(given) = GIVEN.get() {
        return Ok(given.clone());
    }
    let commands = commands(true)?;
    let triple = host()?;
    let Some(flag) = crate::profile::flag(&triple, commands.as_deref())? else {
        return muster(true);
    };
    let program = with_flag(&triple, &flag, commands.as_deref())?;
    let file = built(&target(), true).join("muster");
    fs::create_dir_all(built(&target(), true))?;
    // A link would change when the next build with counters writes its program.
    let beside = file.with_extension("new");
    fs::copy(&program, &beside)?;
    fs::rename(&beside, &file)?;
    Ok(fs::canonicalize(file)?)
}

/// Builds it for release with a flag for the compiler that commands, macros and build scripts do not get.
pub(crate) fn with_flag(triple: &str, flag: &str, commands: Option<&Path>) -> Result<PathBuf> {
    let flags = format!("target.{triple}.rustflags=[{flag:?}]");
    let mut build = cargo(
        &[
            "build", "-p", "muster", "--target", triple, "--config", &flags,
        ],
        true,
    );
    if let Some(commands) = commands {
        build.env("MUSTER_COMMANDS", commands);
    }
    ensure!(build.status()?.success(), "muster does not build");
    let program = built(&target().join(triple), true).join("muster");
    Ok(fs::canonicalize(program)?)
}

/// The target that this machine is.
pub(crate) fn host() -> Result<String> {
    let out = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8(out.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
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
