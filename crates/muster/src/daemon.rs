//! Going into the background, and pid files.

use anyhow::{Context, Result, bail};
use muster_node::open_own;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Tells the process that waits in the foreground that the daemon is ready.
pub(crate) struct Ready(Option<OwnedFd>);

impl Ready {
    /// For a process that stays in the foreground: nobody waits.
    pub(crate) fn foreground() -> Ready {
        Ready(None)
    }

    /// The daemon is ready: detaches from the terminal and lets the parent return success.
    pub(crate) fn report(self) {
        self.detach();
        if let Some(pipe) = self.0 {
            let _ = File::from(pipe).write_all(b"y");
        }
    }

    /// Detaches from the terminal, which processes that the daemon starts before it is ready would keep open.
    pub(crate) fn detach(&self) {
        if self.0.is_some()
            && let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null")
        {
            let _ = dup2_stdin(&null);
            let _ = dup2_stdout(&null);
            let _ = dup2_stderr(&null);
        }
    }
}

/// Goes into the background. The calling process waits until the daemon is ready (or has failed) and exits with its
/// verdict, so that a daemon can be used as soon as its start command returns. Errors reach the terminal until then.
///
/// # Errors
/// When the system refuses a process or a pipe.
pub(crate) fn daemonise() -> Result<Ready> {
    // No program that the daemon starts may keep the parent waiting.
    let (read, write) = pipe2(OFlag::O_CLOEXEC).context("cannot make a pipe")?;
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

/// The lock of a pid file. A killed daemon keeps its files until the last of its threads is gone, which may be waiting
/// for the disk: then the lock is waited for.
fn lock_of(file: File) -> std::result::Result<Flock<File>, (File, nix::errno::Errno)> {
    let (file, error) = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err(refused) => refused,
    };
    let mut text = String::new();
    let _ = (&file).read_to_string(&mut text);
    let stat = fs::read_to_string(format!("/proc/{}/stat", text.trim()));
    let dying = stat.is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    });
    if dying {
        return Flock::lock(file, FlockArg::LockExclusive);
    }
    Err((file, error))
}

/// A daemon's pid file. A file beside it is locked while the daemon lives: a process id alone may belong to another process
/// by now.
pub(crate) struct PidFile {
    path: PathBuf,
    _lock: Flock<File>,
}

impl PidFile {
    /// Takes the file for this process.
    ///
    /// # Errors
    /// When another daemon holds it (the message says which), or when it cannot be written.
    pub(crate) fn take(path: &Path) -> Result<PidFile> {
        if let Some(dir) = path.parent()
            && !dir.exists()
        {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let lock_file = lock_path(path);
        let file = open_lock(&lock_file)
            .with_context(|| format!("cannot open {}", lock_file.display()))?;
        let Ok(lock) = lock_of(file) else {
            let pid = alive(path).map_or_else(|| "?".to_owned(), |pid| pid.to_string());
            bail!("one runs already: process {pid}, by {}", path.display());
        };
        let file = open_own(
            path,
            OpenOptions::new().write(true).create(true).truncate(false),
        );
        write_own_id(&lock)
            .and_then(|()| write_own_id(&file?))
            .with_context(|| format!("cannot write the pid file {}", path.display()))?;
        Ok(PidFile {
            path: path.to_owned(),
            _lock: lock,
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(lock_path(&self.path));
    }
}

/// The file beside a pid file that its daemon locks. Everybody may read a pid file, and every process that can read a file can lock it.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn open_lock(path: &Path) -> io::Result<File> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    let file = open_own(path, open.mode(0o600))?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Makes this process's id all that a file says. Its old contents may have been read: it may stand anywhere.
fn write_own_id(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
}

/// The daemon that holds a pid file, if there is one.
pub(crate) fn alive(path: &Path) -> Option<i32> {
    let file = File::open(lock_path(path)).ok()?;
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => None,
        Err(_) => fs::read_to_string(path).ok()?.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_read_before_leaves_nothing_behind() {
        let path = std::env::temp_dir().join(format!("muster-pid-{}", std::process::id()));
        fs::write(&path, "123456789\n").unwrap();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        file.read_to_string(&mut String::new()).unwrap();
        write_own_id(&file).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }
}
