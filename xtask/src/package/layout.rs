//! Which file is in which package. The roles are those of a site's hosts: the controller, nodes, and where users work; what all
//! of them need is a package of its own. A further daemon gets a row, a unit in packaging/systemd, and is taken out of the
//! client's commands by that.

use super::{output, renew};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A package.
pub(super) struct Role {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// The daemon that it has, if it is one's. The unit bears the same name.
    pub(super) daemon: Option<&'static str>,
    /// Packages of other makers that have the same files.
    pub(super) deb_conflicts: &'static [&'static str],
    pub(super) rpm_conflicts: &'static [&'static str],
    /// Its files, below a directory that stands for `/`.
    pub(super) root: PathBuf,
}

impl Role {
    /// The units of its daemon: the service, and its sockets if it has some.
    pub(super) fn units(&self) -> Vec<String> {
        let of = |daemon: &str| ["service", "socket"].map(|kind| format!("{daemon}.{kind}"));
        let all = self.daemon.into_iter().flat_map(of);
        all.filter(|unit| Path::new("packaging/systemd").join(unit).exists())
            .collect()
    }

    /// Where the daemon's log is rotated, if it has one.
    pub(super) fn rotation(&self) -> Option<String> {
        let daemon = self.daemon?;
        let has_log = Path::new("packaging/logrotate").join(daemon).exists();
        has_log.then(|| format!("etc/logrotate.d/{daemon}"))
    }
}

/// Needed by the others.
pub(super) const COMMON: &str = "muster-common";
/// Has the commands of users.
pub(super) const CLIENT: &str = "muster-client";

fn roles() -> [Role; 7] {
    let role = |name, summary, daemon, deb_conflicts, rpm_conflicts| Role {
        name,
        summary,
        daemon,
        deb_conflicts,
        rpm_conflicts,
        root: PathBuf::new(),
    };
    [
        role(
            COMMON,
            "workload manager for HPC clusters: what every host needs",
            None,
            &[],
            &[],
        ),
        role(
            CLIENT,
            "workload manager for HPC clusters: sbatch, srun, squeue and the other commands",
            None,
            // Some of the commands of Grid Engine and of Torque have the same names; the last two have libslurm and its headers.
            &[
                "slurm-client",
                "slurm-smd-client",
                "gridengine-client",
                "slurm-wlm-torque",
                "libslurm38",
                "libslurm-dev",
            ],
            &["slurm", "gridengine", "slurm-torque", "slurm-devel"],
        ),
        role(
            "muster-slurmctld",
            "workload manager for HPC clusters: the controller, with accounting",
            Some("slurmctld"),
            &["slurmctld", "slurm-smd-slurmctld"],
            &["slurm-slurmctld"],
        ),
        role(
            "muster-slurmdbd",
            "workload manager for HPC clusters: accounting in MariaDB or PostgreSQL",
            Some("slurmdbd"),
            &["slurmdbd", "slurm-smd-slurmdbd"],
            &["slurm-slurmdbd"],
        ),
        role(
            "muster-slurmrestd",
            "workload manager for HPC clusters: HTTP and JSON in front of the controller",
            Some("slurmrestd"),
            &["slurmrestd", "slurm-smd-slurmrestd"],
            &["slurm-slurmrestd"],
        ),
        role(
            "muster-slurmd",
            "workload manager for HPC clusters: the daemon of a node",
            Some("slurmd"),
            &["slurmd", "slurm-smd-slurmd"],
            &["slurm-slurmd"],
        ),
        role(
            "muster-sackd",
            "workload manager for HPC clusters: credentials on login hosts, by auth/slurm",
            Some("sackd"),
            &["sackd", "slurm-smd-sackd"],
            &["slurm-sackd"],
        ),
    ]
}

/// Description of every package.
pub(super) const DESCRIPTION: [&str; 3] = [
    "Muster schedules and runs jobs on clusters and speaks Slurm's language:",
    "commands, slurm.conf, environment, output and exit codes. What it",
    "acknowledged is durable.",
];

/// Lays out the packages below `place`, whose contents are replaced.
pub(super) fn lay_out(muster: &Path, place: &Path, version: &str, epoch: u64) -> Result<Vec<Role>> {
    renew(place)?;
    let mut roles = roles();
    for role in &mut roles {
        role.root = place.join(role.name);
    }
    let made = place.join("made");
    let bin = made.join("bin");
    fs::create_dir_all(&bin)?;
    let run = |words: &[&str], dir: &Path| -> Result<()> {
        let mut command = Command::new(muster);
        let status = command
            .args(words)
            .arg(dir)
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "muster {} failed", words.join(" "));
        Ok(())
    };
    run(&["install"], &bin)?;
    run(&["generate", "man"], &made.join("man"))?;
    run(&["generate", "completion"], &made.join("completion"))?;
    programs(&roles, &bin)?;
    libraries(of_name(&roles, LIBRARY), &bin)?;
    manuals(&roles, &made.join("man"), &bin)?;
    completion(&roles, &made.join("completion/muster"), &bin)?;
    for role in &roles {
        service(role)?;
        documents(role, version, epoch)?;
    }
    fs::remove_dir_all(&made)?;
    Ok(roles.into())
}

/// The role that a name of `muster install` belongs to.
fn of_name<'a>(roles: &'a [Role], name: &str) -> &'a Role {
    let by = |test: &dyn Fn(&Role) -> bool| roles.iter().find(|role| test(role));
    let own = matches!(name, "muster" | "muster-commands").then_some(COMMON);
    by(&|role| role.daemon == Some(name))
        .or_else(|| by(&|role| role.name == own.unwrap_or(CLIENT)))
        .expect("both are in the table")
}

fn names(bin: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(bin)? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.contains("drmaa") && !name.contains("libslurm") && name != "slurm");
    Ok(names)
}

/// DRMAA's library.
const LIBRARY: &str = "libdrmaa.so.1.0";
/// That of DRMAA 2.
const SECOND_LIBRARY: &str = "libdrmaa2.so";

/// Slurm's library, and the headers of its directory.
const SLURM_LIBRARY: &str = "libslurm.so.38";
const SLURM_HEADERS: [&str; 4] = ["slurm.h", "slurm_errno.h", "slurm_version.h", "slurmdb.h"];

/// Libraries with which programs are linked, where the loader finds them, and their headers.
fn libraries(role: &Role, bin: &Path) -> Result<()> {
    let lib = role.root.join("usr/lib");
    for (library, header) in [(LIBRARY, "drmaa.h"), (SECOND_LIBRARY, "drmaa2.h")] {
        if !bin.join(library).exists() {
            continue;
        }
        copy(&bin.join(library), &lib.join(library), 0o644)?;
        let include = role.root.join("usr/include");
        copy(&bin.join(header), &include.join(header), 0o644)?;
        if library == LIBRARY {
            link(LIBRARY, &lib.join("libdrmaa.so"))?;
        }
    }
    if bin.join(SLURM_LIBRARY).exists() {
        copy(&bin.join(SLURM_LIBRARY), &lib.join(SLURM_LIBRARY), 0o644)?;
        link(SLURM_LIBRARY, &lib.join("libslurm.so"))?;
        let include = role.root.join("usr/include/slurm");
        for header in SLURM_HEADERS {
            copy(
                &bin.join("slurm").join(header),
                &include.join(header),
                0o644,
            )?;
        }
        let settings = "pkgconfig/slurm.pc";
        copy(
            Path::new("packaging/slurm/slurm.pc"),
            &lib.join(settings),
            0o644,
        )?;
    }
    Ok(())
}

/// Programs, and links to them where `muster install` makes hard ones, which cannot be between packages.
fn programs(roles: &[Role], bin: &Path) -> Result<()> {
    let inode = |name: &str| fs::metadata(bin.join(name)).map(|found| found.ino());
    let commands = inode("muster-commands").ok();
    let known = names(bin)?;
    for daemon in roles.iter().filter_map(|role| role.daemon) {
        ensure!(
            known.contains(daemon),
            "this muster has no {daemon}; is it of another version than this source?"
        );
    }
    for name in known {
        let role = of_name(roles, &name);
        if role.name == COMMON {
            let file = role.root.join("usr/bin").join(&name);
            copy(&bin.join(&name), &file, 0o755)?;
            strip(&file)?;
            continue;
        }
        let program = match commands == Some(inode(&name)?) {
            true => "muster-commands",
            false => "muster",
        };
        match role.daemon {
            Some(_) => link(
                &format!("../bin/{program}"),
                &role.root.join("usr/sbin").join(name),
            )?,
            None => link(program, &role.root.join("usr/bin").join(name))?,
        }
    }
    Ok(())
}

/// Symbols stay, so that a backtrace has names; lines of the source go.
fn strip(file: &Path) -> Result<()> {
    let strip = std::env::var("STRIP").unwrap_or_else(|_| "strip".to_owned());
    output(Command::new(strip).arg("--strip-debug").arg(file)).map(drop)
}

fn manuals(roles: &[Role], made: &Path, bin: &Path) -> Result<()> {
    let known = names(bin)?;
    for page in names(made)? {
        let (name, section) = page
            .rsplit_once('.')
            .context("a man page without section")?;
        // Commands that are only spoken of are no files.
        let role = match known.contains(name) {
            true => of_name(roles, name),
            false => of_name(roles, "muster"),
        };
        let file = role.root.join(format!("usr/share/man/man{section}/{page}"));
        copy(&made.join(&page), &file, 0o644)?;
        compress(&file)?;
    }
    Ok(())
}

fn compress(file: &Path) -> Result<()> {
    output(Command::new("gzip").arg("-9n").arg(file)).map(drop)
}

/// One file serves all commands; it is found by their names.
fn completion(roles: &[Role], made: &Path, bin: &Path) -> Result<()> {
    let dir = "usr/share/bash-completion/completions";
    for name in names(bin)? {
        let file = of_name(roles, &name).root.join(dir).join(&name);
        match name.as_str() {
            "muster" => copy(made, &file, 0o644)?,
            "muster-commands" => {}
            _ => link("muster", &file)?,
        }
    }
    Ok(())
}

/// Files of the service manager and logrotate.
fn service(role: &Role) -> Result<()> {
    let source = Path::new("packaging");
    if role.name == COMMON {
        let accounts = "sysusers.d/muster.conf";
        copy(
            &source.join(accounts),
            &role.root.join("usr/lib").join(accounts),
            0o644,
        )?;
        make_dir(&role.root.join("etc/slurm"))?;
        // Where `$SGE_ROOT` has them: verifiers source them.
        let libraries = role
            .root
            .join("usr/share/muster/gridengine/util/resources/jsv");
        for name in ["jsv_include.sh", "JSV.pm", "JSV.tcl", "jsv.py"] {
            copy(
                &source.join("gridengine").join(name),
                &libraries.join(name),
                0o644,
            )?;
        }
    }
    let Some(daemon) = role.daemon else {
        return Ok(());
    };
    for unit in role.units() {
        let installed = role.root.join("usr/lib/systemd/system").join(&unit);
        copy(&source.join("systemd").join(unit), &installed, 0o644)?;
    }
    let Some(rotation) = role.rotation() else {
        return Ok(());
    };
    let own = source.join("logrotate").join(daemon);
    copy(&own, &role.root.join(rotation), 0o644)?;
    make_dir(&role.root.join("var/log/slurm"))
}

fn documents(role: &Role, version: &str, epoch: u64) -> Result<()> {
    let doc = role.root.join("usr/share/doc").join(role.name);
    copy(Path::new("LICENSE"), &doc.join("copyright"), 0o644)?;
    if role.name != COMMON {
        return Ok(());
    }
    let date = output(
        Command::new("date")
            .env("LC_ALL", "C")
            .args(["-u", "-R", "-d"])
            .arg(format!("@{epoch}")),
    )?;
    let maintainer = super::deb::maintainer();
    let changes = format!(
        "muster ({version}-1) unstable; urgency=medium\n\n  * Release {version}.\n\n -- {maintainer}  {date}"
    );
    let file = doc.join("changelog.Debian");
    fs::write(&file, changes)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    compress(&file)?;
    for (from, to) in [
        ("docs/install.md", "install.md"),
        ("docs/compat.md", "compat.md"),
        ("docs/security.md", "security.md"),
        ("docs/faults.md", "faults.md"),
        ("docs/mpi.md", "mpi.md"),
        ("docs/rest.md", "rest.md"),
        ("docs/grid-engine.md", "grid-engine.md"),
        ("docs/torque.md", "torque.md"),
        ("docs/libslurm.md", "libslurm.md"),
        ("docs/node.md", "node.md"),
        ("docs/accounting.md", "accounting.md"),
        ("docs/verifiers.md", "verifiers.md"),
        ("packaging/examples/slurm.conf", "examples/slurm.conf"),
        (
            "packaging/monitoring/prometheus.yml",
            "monitoring/prometheus.yml",
        ),
        ("packaging/monitoring/alerts.yml", "monitoring/alerts.yml"),
        (
            "packaging/monitoring/grafana.json",
            "monitoring/grafana.json",
        ),
    ] {
        copy(Path::new(from), &doc.join(to), 0o644)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_dir(to.parent().context("a file without directory")?)?;
    fs::copy(from, to).with_context(|| format!("{} cannot be copied", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn link(program: &str, at: &Path) -> Result<()> {
    make_dir(at.parent().context("a link without directory")?)?;
    symlink(program, at).with_context(|| at.display().to_string())
}

/// A directory for everybody to read, whatever the umask is.
fn make_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    make_dir(dir.parent().context("no directory above")?)?;
    fs::create_dir(dir).with_context(|| dir.display().to_string())?;
    Ok(fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?)
}
