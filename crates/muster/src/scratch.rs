//! A private cluster for the time of a check or a measurement, in a directory that goes with it, also when the check
//! is killed.

pub(crate) mod guard;

use anyhow::{Context, Result, bail, ensure};
use guard::Guard;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The cluster.
pub(crate) struct Scratch {
    home: PathBuf,
    guard: Guard,
}

impl Scratch {
    /// Starts it.
    pub(crate) fn start(nodes: u32, cpus: u32) -> Result<Scratch> {
        let home = private_dir(&std::env::temp_dir())?;
        let work = home.join("work");
        std::fs::create_dir(&work).with_context(|| work.display().to_string())?;
        let guard = Guard::start(&home)?;
        let scratch = Scratch { home, guard };
        let (nodes, cpus) = (nodes.to_string(), cpus.to_string());
        muster(&scratch.home, &["up", "--nodes", &nodes, "--cpus", &cpus])?;
        Ok(scratch)
    }

    /// A file of the directory that commands run in.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.join("work").join(name)
    }

    /// Replaces mpi.conf.
    pub(crate) fn set_mpi_conf(&self, text: &str) -> Result<()> {
        std::fs::write(self.home.join("mpi.conf"), text)?;
        self.ok("scontrol reconfigure", None)?;
        Ok(())
    }

    /// Runs a bash command with the cluster's commands first on its path, then those of another directory, for two
    /// minutes at most.
    pub(crate) fn run(&self, script: &str, first: Option<&Path>) -> Result<Output> {
        let mut path = self.home.join("bin").display().to_string();
        for dir in first
            .map(|p| p.display().to_string())
            .into_iter()
            .chain(std::env::var("PATH"))
        {
            path = format!("{path}:{dir}");
        }
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", "120", "bash", "-c", script])
            .current_dir(self.home.join("work"))
            .stdin(Stdio::null());
        let foreign = [
            "SLURM",
            "SBATCH",
            "PMIX",
            "PMI_",
            "OMPI_COMM",
            "OMPI_UNIVERSE",
        ];
        for (name, _) in std::env::vars() {
            if foreign.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
            .env("PATH", path)
            .env("SLURM_CONF", self.home.join("slurm.conf"))
            // A check that an administrator runs is no reason for Open MPI to refuse.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .output()
            .context("bash and timeout are needed")
    }

    /// As [`Self::run`], for a command that must succeed; returns its output.
    pub(crate) fn ok(&self, script: &str, first: Option<&Path>) -> Result<String> {
        let output = self.run(script, first)?;
        if !output.status.success() {
            bail!("{script}: {}", last_words(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Makes a directory that was not there before, under a name that nobody can guess. Others may pass through and change nothing,
/// since programs in it are run.
fn private_dir(parent: &Path) -> Result<PathBuf> {
    let template = parent.join(format!("muster-scratch-{}-XXXXXX", std::process::id()));
    let dir = nix::unistd::mkdtemp(&template).with_context(|| template.display().to_string())?;
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o711))
        .with_context(|| dir.display().to_string())?;
    Ok(dir)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = guard::clean(&self.home) {
            complain!("muster: {e}");
        }
        self.guard.release();
    }
}

/// Runs one of Muster's own commands for the cluster of a directory.
fn muster(home: &Path, args: &[&str]) -> Result<()> {
    let output = Command::new(std::env::current_exe()?)
        .args(args)
        .env("MUSTER_HOME", home)
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "muster {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Last message of a failed command, in a line.
pub(crate) fn last_words(output: &Output) -> String {
    let code = match output.status.code() {
        Some(124 | 137) => "it has not ended after two minutes".to_owned(),
        Some(code) => format!("exit status {code}"),
        None => "it was killed".to_owned(),
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|l| l.chars().any(char::is_alphanumeric));
    match lines.next() {
        Some(line) => format!("{code}: {line}"),
        None => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    /// A user who made the directory first would own the programs that root runs there.
    #[test]
    fn a_directory_is_never_one_that_was_there() {
        let parent = std::env::temp_dir();
        let (one, other) = (private_dir(&parent).unwrap(), private_dir(&parent).unwrap());
        assert_ne!(one, other);
        for dir in [one, other] {
            let found = std::fs::symlink_metadata(&dir).unwrap();
            assert!(found.is_dir() && found.mode() & 0o777 == 0o711);
            assert_eq!(found.uid(), nix::unistd::geteuid().as_raw());
            std::fs::remove_dir(dir).unwrap();
        }
    }
}
