//! Cleaning up after a private cluster whose owner was killed: by a process of its own that reads a pipe of which the
//! owner alone has the other end. The pipe ends with the owner, whatever ends that.

use anyhow::Result;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// The subcommand, which is for nobody else.
pub(crate) const COMMAND: &str = "scratch-guard";

/// The owner's side.
pub(super) struct Guard(Child);

impl Guard {
    /// Starts it, in a group of its own, so that an interrupt from the terminal does not reach it.
    pub(super) fn start(home: &Path) -> Result<Guard> {
        let child = Command::new(std::env::current_exe()?)
            .arg(COMMAND)
            .arg(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Guard(child))
    }

    /// Nothing of the cluster is there any more, or this sees to it.
    pub(super) fn release(&mut self) {
        drop(self.0.stdin.take());
        if let Err(e) = self.0.wait() {
            complain!("muster: {e}");
        }
    }
}

/// The process: waits for the end of its owner.
pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let [home] = args else {
        return Ok(ExitCode::from(1));
    };
    let home = PathBuf::from(home);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    if home.exists() {
        clean(&home)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends all of a cluster and removes its directory.
pub(super) fn clean(home: &Path) -> Result<()> {
    // A command that was starting it would go on starting it.
    kill_all(home, |words| words.get(1).is_some_and(|w| *w == b"up"));
    let down = super::muster(home, &["down"]);
    // Commands that were running in it, each a group of its own.
    kill_all(home, |_| true);
    std::fs::remove_dir_all(home)?;
    down
}

/// Kills those processes of the cluster that a condition on the command line holds for, and those they have started
/// meanwhile.
fn kill_all(home: &Path, condition: impl Fn(&[&[u8]]) -> bool) {
    let own = std::process::id();
    loop {
        let found: Vec<i32> = of_cluster(home)
            .filter(|pid| pid.cast_unsigned() != own)
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
                // Processes that have ended, and are not reaped yet, have none.
                !line.is_empty() && condition(&words)
            })
            .collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        std::thread::yield_now();
    }
}

/// Processes whose environment names this cluster.
fn of_cluster(home: &Path) -> impl Iterator<Item = i32> {
    let home = home.as_os_str().as_bytes();
    let marks = [
        [b"MUSTER_HOME=", home].concat(),
        [b"SLURM_CONF=", home, b"/slurm.conf"].concat(),
    ];
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let env = std::fs::read(entry.path().join("environ")).ok()?;
        let mut variables = env.split(|b| *b == 0);
        variables
            .any(|v| marks.iter().any(|m| m == v))
            .then_some(pid)
    })
}
