//! `cargo xtask package`: what a site installs. Packages for Debian and for distributions with RPM, one for each role of a
//! host, and an archive of the same files. They hold what `muster install` and `muster generate` make, and packaging/; the
//! formats are made by the tools of the distributions, `dpkg-deb` and `rpmbuild`. The same source and the same programs give
//! the same bytes.

mod archive;
mod check;
mod deb;
mod layout;
mod libraries;
mod rpm;

use crate::build::{self, Profile};
use anyhow::{Context, Result, bail, ensure};
use layout::Role;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Common properties of all packages of a run.
struct Release {
    version: String,
    /// The processor, as the kernel calls it.
    processor: String,
    /// The official time of the build, seconds.
    epoch: u64,
    /// Requirements of the program on the C library.
    libraries: libraries::Needs,
    /// Whether to spend time on small packages.
    is_small: bool,
    /// Where packages go.
    out: PathBuf,
    /// For each role its files, below a directory that stands for `/`.
    roles: Vec<Role>,
}

impl Release {
    /// Runs a tool for which the time is that of the release.
    fn tool(&self, name: &str) -> Command {
        let mut tool = Command::new(name);
        tool.env("SOURCE_DATE_EPOCH", self.epoch.to_string());
        tool.env("LC_ALL", "C").env("TZ", "UTC");
        tool
    }
}

/// Runs it with the words of the command line.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut profile = Profile::Release;
    let mut formats: Vec<&str> = Vec::new();
    let mut is_check = false;
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--debug" => profile = Profile::Dev,
            "--quick" => profile = Profile::Quick,
            "--check" => is_check = true,
            "--muster" => build::use_given(words.next().context("--muster takes a file")?)?,
            "deb" | "rpm" | "archive" => formats.push(word),
            _ => bail!(
                "usage: cargo xtask package [--check] [--debug|--quick|--muster FILE] [deb] [rpm] [archive]"
            ),
        }
    }
    let muster = build::muster(profile)?;
    let place = build::target().join("package");
    fs::create_dir_all(&place)?;
    let place = fs::canonicalize(place)?;
    if is_check {
        return check::run(&muster, &place);
    }
    if formats.is_empty() {
        formats = vec!["deb", "rpm", "archive"];
    }
    let version = env!("CARGO_PKG_VERSION");
    let release = prepare(&muster, &place, version, true)?;
    for file in make(&release, &formats)? {
        println!("{}", file.display());
    }
    fs::remove_dir_all(place.join("root"))?;
    Ok(())
}

/// Lays out the files of all roles in `place`.
fn prepare(muster: &Path, place: &Path, version: &str, is_small: bool) -> Result<Release> {
    let epoch = epoch()?;
    let out = place.join(version);
    renew(&out)?;
    let roles = layout::lay_out(muster, &place.join("root"), version, epoch)?;
    Ok(Release {
        version: version.to_owned(),
        processor: libraries::processor(muster)?.to_owned(),
        epoch,
        libraries: libraries::needs(muster)?,
        is_small,
        out,
        roles,
    })
}

/// Makes packages of these formats.
fn make(release: &Release, formats: &[&str]) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for format in formats {
        made.extend(match *format {
            "deb" => deb::make(release)?,
            "rpm" => rpm::make(release)?,
            _ => vec![archive::make(release)?],
        });
    }
    Ok(made)
}

/// `SOURCE_DATE_EPOCH`, else the time of the commit.
fn epoch() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]))
            .context("the time of the release: set SOURCE_DATE_EPOCH")?,
    };
    text.trim()
        .parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH is a number of seconds, not '{text}'"))
}

/// Runs a command, and returns its output.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command
        .output()
        .with_context(|| format!("{name} cannot be started"))?;
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{name} failed: {errors}");
    Ok(String::from_utf8(out.stdout)?)
}

/// Makes an empty directory of this name.
fn renew(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}

#[cfg(test)]
mod tests {
    const CONTROLLER: &str = include_str!("../../packaging/systemd/slurmctld.service");
    const NODE: &str = include_str!("../../packaging/systemd/slurmd.service");

    fn has(unit: &str, line: &str) -> bool {
        unit.lines().any(|own| own == line)
    }

    /// Root without CAP_KILL may not signal a process of SlurmUser, or that of a user's trigger.
    #[test]
    fn a_reload_may_signal_the_controller() {
        let mut lines = CONTROLLER.lines();
        let bounds = lines.find(|line| line.starts_with("CapabilityBoundingSet="));
        assert!(bounds.unwrap().contains("CAP_KILL"));
        assert!(has(CONTROLLER, "ExecReload=+/bin/kill -HUP $MAINPID"));
    }

    /// systemd gives a StateDirectory to root at each start, and a controller refuses state that is not SlurmUser's; other
    /// settings keep it from where slurm.conf has it.
    #[test]
    fn the_unit_leaves_the_state_to_slurm_conf() {
        for setting in [
            "StateDirectory=",
            "ProtectHome=",
            "PrivateTmp=",
            "ProtectSystem=strict",
        ] {
            assert!(
                !CONTROLLER.lines().any(|line| line.starts_with(setting)),
                "{setting}"
            );
        }
    }

    #[test]
    fn jobs_outlive_a_restart_of_a_node_daemon() {
        assert!(has(NODE, "KillMode=process"));
        assert!(has(NODE, "Delegate=yes"));
    }
}
