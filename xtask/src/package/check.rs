//! `cargo xtask package --check`: builds packages of two versions, quickly and large, and installs, updates, removes and purges them
//! in a throwaway copy of this machine's root: an overlay in a mount namespace, where no service manager runs.

use super::{make, output, prepare, renew};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Script that runs in the copy.
const SCRIPT: &str = include_str!("check.sh");

/// A version that comes before every other.
const OLDER: &str = "0.0.1";

/// With this status the script says that it can make no copy here.
const IMPOSSIBLE: i32 = 77;

pub(super) fn run(muster: &Path, place: &Path) -> Result<()> {
    let work = place.join("check");
    renew(&work)?;
    let mut built: Vec<Vec<PathBuf>> = Vec::new();
    let newer = env!("CARGO_PKG_VERSION");
    for (round, version) in [("older", OLDER), ("newer", newer), ("again", newer)] {
        let release = prepare(muster, &work.join(round), version, false)?;
        built.push(make(&release, &["deb", "rpm", "archive"])?);
    }
    let [older, newer, again] = &built[..] else {
        unreachable!("three rounds")
    };
    for (one, other) in newer.iter().zip(again) {
        let name = one.file_name().context("a package has a name")?;
        ensure!(
            fs::read(one)? == fs::read(other)?,
            "{} is not the same when it is built again",
            name.display()
        );
    }
    println!("built twice, {} packages are the same bytes", newer.len());
    let may_mount = Command::new("unshare").args(["--mount", "true"]).output();
    if !is_root()? || !may_mount.is_ok_and(|out| out.status.success()) {
        println!("not root, or nothing can be mounted here: packages are not installed anywhere");
        return renew(&work);
    }
    let script = work.join("check.sh");
    fs::write(&script, SCRIPT)?;
    let folder = |files: &[PathBuf]| Some(files.first()?.parent()?.to_owned());
    let folders = [folder(older), folder(newer)].map(|dir| dir.context("there are packages"));
    let [older, newer] = folders;
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "-eu"]);
    inside.arg(script).arg(&work).arg(older?).arg(newer?);
    let status = inside.status()?;
    if status.code() == Some(IMPOSSIBLE) {
        println!("packages are not installed anywhere");
        return renew(&work);
    }
    ensure!(
        status.success(),
        "the packages do not work; what was done last is above"
    );
    renew(&work)
}

fn is_root() -> Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}
