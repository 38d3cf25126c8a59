//! A cluster of the debug build for one task, in a directory of its own; it goes away with its value.

use anyhow::{Result, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A cluster that goes away with this value.
pub(crate) struct Cluster {
    muster: PathBuf,
    pub(crate) home: PathBuf,
    /// Shell text that leads commands to it.
    pub(crate) env: String,
    /// It is to stay, for somebody to look at.
    pub(crate) keep: bool,
}

impl Cluster {
    /// Builds Muster and starts a cluster; what `muster up` prints goes into a file of `place`.
    pub(crate) fn up(name: &str, place: &Path, args: &[&str]) -> Result<Cluster> {
        let muster = crate::build::muster(false)?;
        // Sockets lie in it, and their names must be short.
        let home = std::env::temp_dir().join(format!("muster-{name}-{}", std::process::id()));
        let mut cluster = Cluster {
            muster,
            home,
            env: String::new(),
            keep: false,
        };
        let up = cluster
            .command(&["up"])
            .args(args)
            .stdout(File::create(place.join("up.log"))?)
            .status()?;
        ensure!(up.success(), "muster up failed");
        let output = cluster.command(&["env"]).output()?;
        cluster.env = String::from_utf8(output.stdout)?;
        Ok(cluster)
    }

    /// `muster ...` for this cluster.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.muster);
        command
            .args(args)
            .env("MUSTER_HOME", &self.home)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let stop: &[&str] = match self.keep {
            true => &["down"],
            false => &["down", "--purge"],
        };
        let mut down = self.command(stop);
        if !down
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
        {
            eprintln!(
                "'muster down' failed; the cluster is in {}",
                self.home.display()
            );
        }
    }
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
