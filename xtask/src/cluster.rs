//! A cluster of the debug build for one task, in a directory of its own; it goes away with its value.

use crate::build::Profile;
use crate::guard::Guard;
use anyhow::{Context as _, Result, ensure};
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
    guard: Option<Guard>,
}

impl Cluster {
    /// Builds Muster and starts a cluster; what `muster up` prints goes into a file of `place`.
    pub(crate) fn up(name: &str, place: &Path, args: &[&str]) -> Result<Cluster> {
        let mut cluster = Cluster::stopped(name, false)?;
        cluster.start(place, args)?;
        Ok(cluster)
    }

    /// Builds Muster, for release or with debug assertions; the cluster does not run yet.
    pub(crate) fn stopped(name: &str, release: bool) -> Result<Cluster> {
        let muster = crate::build::muster(if release {
            Profile::Release
        } else {
            Profile::Dev
        })?;
        // Sockets lie in it, and their names must be short.
        let home = std::env::temp_dir().join(format!("muster-{name}-{}", std::process::id()));
        // Made by this user, since others may write beside it, and would be first.
        std::fs::create_dir(&home).with_context(|| home.display().to_string())?;
        let down = [&*muster.to_string_lossy(), "down", "--purge"];
        let guard = Guard::new(&down, &[("MUSTER_HOME", &*home.to_string_lossy())], None)?;
        Ok(Cluster {
            muster,
            home,
            env: String::new(),
            keep: false,
            guard: Some(guard),
        })
    }

    /// Starts it.
    pub(crate) fn start(&mut self, place: &Path, args: &[&str]) -> Result<()> {
        let up = self
            .command(&["up"])
            .args(args)
            .stdout(File::create(place.join("up.log"))?)
            .status()?;
        ensure!(up.success(), "muster up failed");
        let output = self.command(&["env"]).output()?;
        self.env = String::from_utf8(output.stdout)?;
        Ok(())
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
        let guard = self.guard.take();
        if self.keep {
            guard.into_iter().for_each(Guard::stand_down);
            let _ = self.command(&["down"]).stdout(Stdio::null()).status();
        }
    }
}
