//! An archive of the files of all roles, for hosts without either kind of package.

use super::{Release, output, renew};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// Makes it.
pub(super) fn make(release: &Release) -> Result<PathBuf> {
    let name = format!("muster-{}-linux-{}", release.version, release.processor);
    let whole = release.out.join(&name);
    renew(&whole)?;
    for role in &release.roles {
        let files = format!("{}/.", role.root.display());
        output(Command::new("cp").args(["-a", &files]).arg(&whole))?;
    }
    let file = release.out.join(format!("{name}.tar.gz"));
    let mut tar = release.tool("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--format=gnu",
    ]);
    tar.arg(format!("--mtime=@{}", release.epoch));
    let level = match release.is_small {
        true => "gzip -9n",
        false => "gzip -1n",
    };
    tar.arg(format!("--use-compress-program={level}"));
    tar.arg("-C").arg(&release.out).arg("-cf").arg(&file);
    output(tar.arg(&name))?;
    std::fs::remove_dir_all(&whole)?;
    Ok(file)
}
