//! `sacctmgr shutdown`: ends the slurmdbd of this host. Nothing connects to that daemon, so it is ended by a signal; the kernel says
//! who may send it one.

use super::ledger::error;
use super::slurmdbd_process;
use crate::listing::Failure;
use muster_conf::endpoint;
use muster_model::refusal::RefusalCode;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes that are read of a file of a PID.
const PID_BYTES_MAX: u64 = 32;

/// Sends SIGTERM to the slurmdbd whose slurmdbd.conf is beside slurm.conf.
pub(super) fn run() -> Result<(), Failure> {
    let conf = endpoint::conf_path().with_file_name("slurmdbd.conf");
    let text = match std::fs::read_to_string(&conf) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(error(
                "accounting is a part of the controller, and no slurmdbd.conf is beside slurm.conf; 'scontrol shutdown' stops the \
                 controller",
            ));
        }
        Err(e) => return Err(not_readable(&conf, &e)),
    };
    let file = pid_file(&text);
    let absent = || error(format!("no slurmdbd runs here, by {}", file.display()));
    match locked_pid(&file) {
        Ok(Some(pid)) => match kill(pid, Signal::SIGTERM) {
            Ok(()) => Ok(()),
            Err(Errno::ESRCH) => Err(absent()),
            Err(Errno::EPERM) => Err(error(RefusalCode::AccessDenied.text())),
            Err(e) => Err(error(e)),
        },
        Ok(None) => Err(absent()),
        Err(e) => Err(not_readable(&file, &e)),
    }
}

fn not_readable(path: &Path, e: &io::Error) -> Failure {
    match e.kind() {
        ErrorKind::PermissionDenied => error(RefusalCode::AccessDenied.text()),
        _ => error(format!("{}: {e}", path.display())),
    }
}

/// `PidFile` of slurmdbd.conf, or its default.
fn pid_file(conf: &str) -> PathBuf {
    let mut named = None;
    for line in conf.lines() {
        let line = line.split('#').next().unwrap_or("");
        if let Some((key, value)) = line.split_once('=')
            && key.trim().eq_ignore_ascii_case("PidFile")
        {
            named = Some(value.trim().trim_matches('"'));
        }
    }
    PathBuf::from(named.unwrap_or("/var/run/slurmdbd.pid"))
}

/// The process that holds the lock beside a PID file, as that says; none if nobody does. A PID file may be an old one.
///
/// slurmdbd.conf may be `SlurmUser`'s, who would have root signal any process by it: so the process is one of the lock's owner.
fn locked_pid(file: &Path) -> io::Result<Option<Pid>> {
    let mut lock = file.as_os_str().to_owned();
    lock.push(".lock");
    // The place is SlurmUser's choice as well: a named pipe there makes nobody wait.
    let mut options = File::options();
    options.custom_flags(OFlag::O_NONBLOCK.bits());
    let lock = match options.read(true).open(&lock) {
        Ok(lock) => lock,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let owner = lock.metadata()?.uid();
    let mut text = String::new();
    (&lock).take(PID_BYTES_MAX).read_to_string(&mut text)?;
    match Flock::lock(lock, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(None),
        Err((_, Errno::EWOULDBLOCK)) => {
            let pid = text.trim().parse::<i32>().ok().filter(|pid| *pid > 1);
            Ok(pid
                .filter(|pid| is_slurmdbd_of(*pid, owner))
                .map(Pid::from_raw))
        }
        Err((_, e)) => Err(e.into()),
    }
}

/// Whether a process is a slurmdbd that runs as this user.
fn is_slurmdbd_of(pid: i32, owner: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    slurmdbd_process::is_slurmdbd(&status, owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pid_file_that_is_named_counts() {
        let conf = "LogFile=/a\n# PidFile=/b\npidfile = \"/c\" # it\n";
        assert_eq!(pid_file(conf), Path::new("/c"));
        assert_eq!(pid_file(""), Path::new("/var/run/slurmdbd.pid"));
    }

    /// This process holds the lock, and is no slurmdbd.
    #[test]
    fn a_lock_names_no_other_process() {
        let dir = std::env::temp_dir().join(format!("muster-shutdown-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (pid, lock) = (dir.join("dbd.pid"), dir.join("dbd.pid.lock"));
        assert_eq!(locked_pid(&pid).unwrap(), None);
        std::fs::write(&lock, format!("{}\n", std::process::id())).unwrap();
        let held = Flock::lock(File::open(&lock).unwrap(), FlockArg::LockExclusiveNonblock);
        let held = held.map_err(|(_, e)| e).unwrap();
        assert_eq!(locked_pid(&pid).unwrap(), None);
        drop(held);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
