//! Packages for distributions with RPM, by `rpmbuild`, which finds out itself what programs need of the C library.

use super::layout::{CLIENT, COMMON, DESCRIPTION, Role};
use super::{Release, output, renew};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const ACCOUNTS: &str = include_str!("../../../packaging/scripts/accounts");
const UPDATED: &str = include_str!("../../../packaging/scripts/updated");
const REMOVED: &str = include_str!("../../../packaging/scripts/removed");

/// Makes a package for each role.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    let work = release.out.join("rpmbuild");
    renew(&work)?;
    let file = work.join("muster.spec");
    fs::write(&file, spec(release)?)?;
    let mut tool = release.tool("rpmbuild");
    tool.arg("-bb")
        .args(["--target", &format!("{}-linux", release.processor)]);
    let payload = match release.is_small {
        true => "w10.zstdio",
        false => "w1.gzdio",
    };
    for (name, value) in [
        ("_topdir", work.display().to_string()),
        ("_rpmdir", release.out.display().to_string()),
        (
            "_build_name_fmt",
            "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned(),
        ),
        ("_binary_payload", payload.to_owned()),
        ("_buildhost", "localhost".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        ("_build_id_links", "none".to_owned()),
        ("debug_package", "%{nil}".to_owned()),
        // Files are stripped and compressed already.
        ("__os_install_post", "%{nil}".to_owned()),
    ] {
        tool.arg("--define").arg(format!("{name} {value}"));
    }
    output(tool.arg(&file)).context("rpmbuild (of package rpm-build, in Debian rpm)")?;
    fs::remove_dir_all(&work)?;
    let name = |role: &Role| {
        let file = format!(
            "{}-{}-1.{}.rpm",
            role.name, release.version, release.processor
        );
        release.out.join(file)
    };
    Ok(release.roles.iter().map(name).collect())
}

fn spec(release: &Release) -> Result<String> {
    let mut out = format!(
        "Name: muster\nVersion: {}\nRelease: 1\nSummary: workload manager for HPC clusters\nLicense: Apache-2.0\n\n\
         %description\n{}\n\n%install\n",
        release.version,
        DESCRIPTION.join("\n")
    );
    for role in &release.roles {
        let _ = writeln!(out, "cp -a '{}/.' %{{buildroot}}/", role.root.display());
    }
    for role in &release.roles {
        package(&mut out, release, role)?;
    }
    Ok(out)
}

fn package(out: &mut String, release: &Release, role: &Role) -> Result<()> {
    let name = role.name;
    let _ = writeln!(out, "\n%package -n {name}\nSummary: {}", role.summary);
    match name {
        COMMON => out.push_str("Requires(post): /usr/sbin/useradd\nRecommends: munge\n"),
        _ => {
            let _ = writeln!(out, "Requires: {COMMON} = {}-1", release.version);
        }
    }
    match name {
        CLIENT => out.push_str("Suggests: bash-completion\n"),
        // For MPI programs that srun starts.
        "muster-slurmd" => out.push_str("Recommends: pmix\n"),
        _ => {}
    }
    for other in role.rpm_conflicts {
        let _ = writeln!(out, "Conflicts: {other}");
    }
    let _ = writeln!(out, "%description -n {name}\n{}", DESCRIPTION.join("\n"));
    if name == COMMON {
        let _ = writeln!(out, "%post -n {name}\n{ACCOUNTS}");
    }
    if let Some(daemon) = role.daemon {
        let unit = format!("{daemon}.service");
        // The files of the version before are gone by then.
        let _ = writeln!(
            out,
            "%posttrans -n {name}\n{}",
            UPDATED.replace("@UNIT@", &unit)
        );
        let _ = writeln!(
            out,
            "%preun -n {name}\n[ \"$1\" = 0 ] || exit 0\n{}",
            REMOVED.replace("@UNIT@", &role.units().join(" "))
        );
    }
    let _ = writeln!(out, "%files -n {name}\n%defattr(-,root,root,-)");
    files(out, &role.root, Path::new("/"))
}

/// Directories of the system are others'; those of this project are listed.
fn files(out: &mut String, dir: &Path, path: &Path) -> Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        entries.push(entry?);
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = path.join(entry.file_name());
        let shown = path.display();
        if !entry.file_type()?.is_dir() {
            let kind = match shown.to_string() {
                text if text.starts_with("/etc/") => "%config(noreplace) ",
                text if text.ends_with("/copyright") => "%license ",
                text if text.starts_with("/usr/share/doc/") => "%doc ",
                _ => "",
            };
            let _ = writeln!(out, "{kind}{shown}");
            continue;
        }
        let is_ours = path.starts_with("/etc/slurm")
            || path.starts_with("/var/log/slurm")
            || path.parent() == Some(Path::new("/usr/share/doc"));
        if is_ours {
            let _ = writeln!(out, "%dir {shown}");
        }
        files(out, &entry.path(), &path)?;
    }
    Ok(())
}
