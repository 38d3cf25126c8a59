//! `cargo xtask build`: Muster with its user commands linked statically inside, where the toolchain can do that.

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
pub(crate) static GIVEN: OnceLock<PathBuf> = OnceLock::new();

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

/// The words of a task without `--muster FILE`, which it uses.
///
/// # Errors
/// There is no such file.
pub(crate) fn without_given(words: &[String]) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--muster" => use_given(words.next().context("--muster: a program must follow")?)?,
            _ => left.push(word.clone()),
        }
    }
    Ok(left)
}

/// The profiles of Cargo.toml.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    /// To be run: optimized.
    Release,
    /// To be worked on: with debug assertions, line numbers and files for incremental builds.
    Dev,
    /// To be built once and tried: as `Dev`, without what only later builds and debuggers need.
    Quick,
}

impl Profile {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Dev => "dev",
            Profile::Quick => "quick",
        }
    }

    /// Directory of cargo's output.
    fn folder(self) -> &'static str {
        match self {
            Profile::Dev => "debug",
            Profile::Release | Profile::Quick => self.name(),
        }
    }
}

/// Builds it with its static commands, and says where it is.
pub(crate) fn muster(profile: Profile) -> Result<PathBuf> {
    if let Some(given) = GIVEN.get() {
        return Ok(given.clone());
    }
    with_commands(profile, commands(profile)?.as_deref())
}

/// Builds it as quickly as can be: commands are links to it.
pub(crate) fn quick() -> Result<PathBuf> {
    with_commands(Profile::Quick, None)
}

fn with_commands(profile: Profile, commands: Option<&Path>) -> Result<PathBuf> {
    let mut build = cargo(&["build", "-p", "muster"], profile);
    if let Some(commands) = commands {
        build.env("MUSTER_COMMANDS", commands);
        build.env("MUSTER_DRMAA", library("drmaa", profile)?);
        build.env("MUSTER_DRMAA2", library("drmaa2", profile)?);
        build.env("MUSTER_LIBSLURM", library("libslurm", profile)?);
    }
    ensure!(build.status()?.success(), "muster does not build");
    Ok(fs::canonicalize(built(&target(), profile).join("muster"))?)
}

/// Builds a library for programs in C. Without debugging information it is a tenth.
fn library(crate_name: &str, profile: Profile) -> Result<PathBuf> {
    let package = format!("muster-{crate_name}");
    let mut build = cargo(&["build", "-p", &package], profile);
    ensure!(build.status()?.success(), "{package} does not build");
    let name = crate_name.trim_start_matches("lib");
    let folder = built(&target(), profile);
    let (whole, own) = (
        folder.join(format!("lib{name}.so")),
        folder.join(format!("lib{name}.stripped.so")),
    );
    let strip = std::env::var("STRIP").unwrap_or_else(|_| "strip".to_owned());
    let stripped = Command::new(strip)
        .args(["--strip-unneeded", "-o"])
        .args([&own, &whole])
        .status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(&whole, &own)?;
    }
    Ok(fs::canonicalize(own)?)
}

/// Builds it for release with a flag for the compiler that commands, macros and build scripts do not get.
pub(crate) fn with_flag(triple: &str, flag: &str, commands: Option<&Path>) -> Result<PathBuf> {
    let flags = format!("target.{triple}.rustflags=[{flag:?}]");
    let mut build = cargo(
        &[
            "build", "-p", "muster", "--target", triple, "--config", &flags,
        ],
        Profile::Release,
    );
    if let Some(commands) = commands {
        build.env("MUSTER_COMMANDS", commands);
        build.env("MUSTER_DRMAA", library("drmaa", Profile::Release)?);
        build.env("MUSTER_DRMAA2", library("drmaa2", Profile::Release)?);
        build.env("MUSTER_LIBSLURM", library("libslurm", Profile::Release)?);
    }
    ensure!(build.status()?.success(), "muster does not build");
    let program = built(&target().join(triple), Profile::Release).join("muster");
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
pub(crate) fn commands(profile: Profile) -> Result<Option<PathBuf>> {
    let triple = static_target();
    if !has(&triple)? && !fetch(&triple) {
        eprintln!(
            "The toolchain has no target {triple}: commands will start more slowly. 'rustup target add {triple}' gets it."
        );
        return Ok(None);
    }
    let mut build = cargo(
        &["build", "-p", "muster-commands", "--target", &triple],
        profile,
    );
    ensure!(build.status()?.success(), "the commands do not build");
    let file = built(&target().join(&triple), profile).join("muster-commands");
    Ok(Some(fs::canonicalize(file)?))
}

fn cargo(words: &[&str], profile: Profile) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(words).args(["--profile", profile.name()]);
    cargo
}

pub(crate) fn built(target: &Path, profile: Profile) -> PathBuf {
    target.join(profile.folder())
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

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
