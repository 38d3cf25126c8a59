//! The launcher's log, `shim.log` in the spool directory: standard error of the launcher, and of
//! its children until they get their own.

use crate::sys;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Size at which a new file is begun. One earlier file is kept.
const BYTES_MAX: u64 = 16 << 20;

/// The log file.
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Makes the file in the spool directory standard error.
    pub(super) fn open(spool: &Path) -> io::Result<Log> {
        let path = spool.join("shim.log");
        let file = open(&path)?;
        sys::dup_to(file.as_raw_fd(), 2)?;
        Ok(Log { path, file })
    }

    /// Begins a new file if this one is long. Step daemons that have the old one continue to write
    /// to it until they end.
    pub(super) fn rotate_if_long(&mut self) {
        // If no new file can be created, the old one is used.
        if let Some(file) = self.next_file(BYTES_MAX)
            && sys::dup_to(file.as_raw_fd(), 2).is_ok()
        {
            self.file = file;
        }
    }

    /// Creates a new file if the present one is larger than this, and renames the old one.
    fn next_file(&self, bytes: u64) -> Option<File> {
        let length = self.file.metadata().ok()?.len();
        if length <= bytes {
            return None;
        }
        std::fs::rename(&self.path, self.path.with_extension("log.1")).ok()?;
        open(&self.path).ok()
    }
}

fn open(path: &Path) -> io::Result<File> {
    // The log contains information about all users' jobs.
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    // A file left by an earlier version keeps its old mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_long_file_is_moved_away_and_a_new_one_begun() {
        let dir = std::env::temp_dir().join(format!("muster-launcher-log.{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("shim.log");
        let file = open(&path).unwrap();
        let mut log = Log { path, file };
        log.file.write_all(b"a line\n").unwrap();
        assert!(log.next_file(7).is_none());
        let mut next = log.next_file(6).unwrap();
        next.write_all(b"another\n").unwrap();
        let text = |name| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(text("shim.log"), "another\n");
        assert_eq!(text("shim.log.1"), "a line\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
