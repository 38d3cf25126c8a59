//! Operations on a job's directory and files by small forked children of the launcher and of step daemons, which run
//! as the job's user.

use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::chdir;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Changes into a directory, or into /tmp with a line that says so.
pub(crate) fn go_to(dir: &str) -> io::Result<Option<String>> {
    let Err(e) = chdir(dir) else {
        return Ok(None);
    };
    chdir("/tmp")?;
    Ok(Some(format!(
        "couldn't chdir to `{dir}': {}: going to /tmp instead",
        e.desc()
    )))
}

/// Writes a line to standard error as slurmstepd does.
pub(crate) fn say(text: &str) {
    // Nothing can be done when the job's own file cannot be written.
    let _ = io::stderr().write_all(format!("slurmstepd: error: {text}\n").as_bytes());
}

/// Flags of output files: always append, so that several writers do not overwrite each other.
pub(crate) fn output_flags(append: bool) -> OFlag {
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_APPEND;
    if append {
        flags
    } else {
        flags | OFlag::O_TRUNC
    }
}

/// Opens a file as a standard descriptor. Directories of an output file that do not exist are made: programs that
/// name them after the job can only make them once they know its number, and by then the job may have started.
pub(crate) fn open_as(path: &str, flags: OFlag, target: i32) -> Result<(), String> {
    let mode = Mode::from_bits_truncate(0o666);
    let try_open = || open(path, flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY, mode);
    let mut opened = try_open();
    if matches!(opened, Err(Errno::ENOENT)) && flags.contains(OFlag::O_CREAT) {
        let directory = Path::new(path).parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(|e| e.to_string())?;
        opened = try_open();
    }
    let fd = opened.map_err(|e| e.desc().to_owned())?;
    sys::dup_to(fd.as_raw_fd(), target).map_err(|e| e.to_string())?;
    if fd.as_raw_fd() <= 2 {
        // It took the place of a standard descriptor that was closed; it must not be closed again.
        std::mem::forget(fd);
    }
    Ok(())
}
