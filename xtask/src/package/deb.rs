//! Packages for Debian and derivatives, by `dpkg-deb`.

use super::layout::{CLIENT, COMMON, DESCRIPTION, Role};
use super::{Release, output};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const ACCOUNTS: &str = include_str!("../../../packaging/scripts/accounts");
const UPDATED: &str = include_str!("../../../packaging/scripts/updated");
const REMOVED: &str = include_str!("../../../packaging/scripts/removed");

/// Maintainer of the packages: `DEBFULLNAME` and `DEBEMAIL`, as Debian's tools take them.
pub(super) fn maintainer() -> String {
    let of =
        |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let (name, mail) = (
        of("DEBFULLNAME", "Muster"),
        of("DEBEMAIL", "root@localhost"),
    );
    format!("{name} <{mail}>")
}

/// Makes a package for each role.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    release
        .roles
        .iter()
        .map(|role| package(release, role).with_context(|| format!("{}.deb", role.name)))
        .collect()
}

fn architecture(release: &Release) -> &str {
    match release.processor.as_str() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn package(release: &Release, role: &Role) -> Result<PathBuf> {
    // The control files are beside the others only while this runs.
    let control = role.root.join("DEBIAN");
    super::renew(&control)?;
    fs::set_permissions(&control, fs::Permissions::from_mode(0o755))?;
    let architecture = architecture(release);
    write(
        &control,
        "control",
        &fields(release, role, architecture)?,
        0o644,
    )?;
    for (name, text) in scripts(role) {
        write(&control, name, &format!("#!/bin/sh\nset -e\n{text}"), 0o755)?;
    }
    if let Some(rotation) = role.rotation() {
        write(&control, "conffiles", &format!("/{rotation}\n"), 0o644)?;
    }
    let name = format!("{}_{}-1_{architecture}.deb", role.name, release.version);
    let file = release.out.join(name);
    let compression = match release.is_small {
        true => "-Zxz",
        false => "-Znone",
    };
    let mut tool = release.tool("dpkg-deb");
    tool.args(["--root-owner-group", compression, "--build"]);
    output(tool.arg(&role.root).arg(&file))?;
    fs::remove_dir_all(&control)?;
    Ok(file)
}

fn fields(release: &Release, role: &Role, architecture: &str) -> Result<String> {
    let mut out = format!(
        "Package: {}\nVersion: {}-1\nArchitecture: {architecture}\nMaintainer: {}\nInstalled-Size: {}\n",
        role.name,
        release.version,
        maintainer(),
        size_kib(&role.root)?,
    );
    let mut field = |name: &str, values: &[String]| {
        if !values.is_empty() {
            let _ = writeln!(out, "{name}: {}", values.join(", "));
        }
    };
    let owned = |names: &[&str]| Vec::from_iter(names.iter().map(|&name| name.to_owned()));
    field("Depends", &depends(release, role));
    match role.name {
        // Hosts prove to each other by it who they are; it is opened where it is needed.
        COMMON => field("Recommends", &owned(&["munge"])),
        CLIENT => field("Suggests", &owned(&["bash-completion"])),
        // For MPI programs that srun starts.
        "muster-slurmd" => field("Recommends", &owned(&["libpmix2"])),
        _ => field("Suggests", &owned(&["logrotate"])),
    }
    // apt removes these first. No Replaces: dpkg would then remove them after it has unpacked, and with them what this package has by
    // the same name in another spelling (/lib, /usr/lib).
    field("Conflicts", &owned(role.deb_conflicts));
    if let Some(name) = role.deb_conflicts.first() {
        field("Provides", &owned(&[name]));
    }
    let _ = writeln!(
        out,
        "Section: admin\nPriority: optional\nDescription: {}",
        role.summary
    );
    for line in DESCRIPTION {
        let _ = writeln!(out, " {line}");
    }
    Ok(out)
}

fn depends(release: &Release, role: &Role) -> Vec<String> {
    if role.name != COMMON {
        return vec![format!("{COMMON} (= {}-1)", release.version)];
    }
    let needs = [
        ("libc6", &release.libraries.glibc),
        ("libgcc-s1", &release.libraries.libgcc),
    ];
    let needs = needs
        .into_iter()
        .filter_map(|(name, version)| Some(format!("{name} (>= {})", version.as_ref()?)));
    needs.chain(["passwd".to_owned()]).collect()
}

/// Size of the files as by `du`, KiB, whatever the file system makes of directories.
fn size_kib(dir: &Path) -> Result<u64> {
    let mut size = 1;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        size += match found.is_dir() {
            true if entry.file_name() == "DEBIAN" => 0,
            true => size_kib(&entry.path())?,
            false => found.len().div_ceil(1024),
        };
    }
    Ok(size)
}

fn scripts(role: &Role) -> Vec<(&'static str, String)> {
    if role.name == COMMON {
        let text = format!("[ \"$1\" = configure ] || exit 0\n{ACCOUNTS}");
        return vec![("postinst", text)];
    }
    let Some(daemon) = role.daemon else {
        return Vec::new();
    };
    let unit = format!("{daemon}.service");
    let units = role.units().join(" ");
    vec![
        (
            "postinst",
            format!(
                "[ \"$1\" = configure ] || exit 0\n\
                 # A package that was removed may have left its unit masked.\n\
                 deb-systemd-helper unmask {units} >/dev/null 2>&1 || true\n{}",
                UPDATED.replace("@UNIT@", &unit)
            ),
        ),
        (
            "prerm",
            format!(
                "[ \"$1\" = remove ] || exit 0\n{}",
                REMOVED.replace("@UNIT@", &units)
            ),
        ),
        ("postrm", removal(role, daemon)),
    ]
}

/// Commands after a daemon's files are gone.
fn removal(role: &Role, daemon: &str) -> String {
    let mut text = "[ ! -d /run/systemd/system ] || systemctl daemon-reload || true\n".to_owned();
    if role.rotation().is_some() {
        let _ = write!(
            text,
            "# Logs go. Not StateSaveLocation, which slurm.conf names: it has the queue and the accounting of the cluster.\n\
             [ \"$1\" != purge ] || rm -f /var/log/slurm/{daemon}.log /var/log/slurm/{daemon}.log.*\n"
        );
    }
    text
}

fn write(dir: &Path, name: &str, text: &str, mode: u32) -> Result<()> {
    let file = dir.join(name);
    fs::write(&file, text)?;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(mode))?)
}
