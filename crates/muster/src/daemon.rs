//! Going into the background, and pid files.

use anyhow::{Context, Result};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe, setsid};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Tells the process that waits in the foreground that the daemon is ready.
pub struct Ready(Option<OwnedFd>);

impl Ready {
    /// For a process that stays in the foreground: nobody waits.
    pub fn foreground() -> Ready {
        Ready(None)
    }

    /// The daemon is ready: detaches from the terminal and lets the parent return success.
    pub fn tell(self) {
        let Some(pipe) = self.0 else { return };
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _ = dup2_stdin(&null);
            let _ = dup2_stdout(&null);
            let _ = dup2_stderr(&null);
        }
        let _ = File::from(pipe).write_all(b"y");
    }
}

/// Goes into the background. The calling process waits until the daemon is ready (or has failed) and exits with its
/// verdict, so that whoever starts a daemon can use it at once. Errors reach the terminal until then.
///
/// # Errors
/// When the system refuses a process or a pipe.
pub fn daemonise() -> Result<Ready> {
    let (read, write) = pipe().context("cannot make a pipe")?;
    // SAFETY: called first thing in main, before any other thread exists.
    #[allow(unsafe_code)]
    let forked = unsafe { fork() }.context("cannot start a background process")?;
    if let ForkResult::Parent { .. } = forked {
        drop(write);
        let mut verdict = Vec::new();
        let _ = File::from(read).read_to_end(&mut verdict);
        std::process::exit(i32::from(verdict.is_empty()));
    }
    drop(read);
    setsid().context("cannot leave the terminal's session")?;
    Ok(Ready(Some(write)))
}

/// Writes this process's id.
///
/// # Errors
/// When the file cannot be written; the message names it.
pub fn write_pid_file(path: &Path) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let temporary = path.with_extension("pid.tmp");
    fs::write(&temporary, format!("{}\n", std::process::id()))
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write the pid file {}", path.display()))
}

/// The process of a pid file, if it is alive and is what it should be.
pub fn alive(path: &Path) -> Option<i32> {
    let pid: i32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).ok()?;
    Some(pid)
}
