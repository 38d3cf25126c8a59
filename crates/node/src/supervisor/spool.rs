//! `SlurmdSpoolDir`: taken by one supervisor at a time, and written by root alone. Others find in it what they know by name, such
//! as the socket of a step that they started, and cannot list it: names and owners of its files tell of all users' jobs.

use crate::sys;
use anyhow::Context as _;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Longest spool path: socket names in it must fit into an address of 108 bytes.
const PATH_MAX: usize = 72;

/// Makes the directory and takes it for this process, as long as what is given lives.
pub(super) fn take(spool: &Path) -> anyhow::Result<File> {
    let length = spool.as_os_str().len();
    anyhow::ensure!(
        spool.is_absolute() && length <= PATH_MAX,
        "SlurmdSpoolDir '{}': give an absolute path of at most {PATH_MAX} bytes, so that socket names fit",
        spool.display()
    );
    std::fs::create_dir_all(spool)
        .and_then(|()| keep_to_ourselves(spool))
        .with_context(|| format!("SlurmdSpoolDir {}", spool.display()))?;
    let path = spool.join("noded.lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .and_then(own_lock)
        .with_context(|| path.display().to_string())?;
    sys::lock_file(lock.as_fd())
        .with_context(|| format!("{}: another agent serves this node", path.display()))?;
    Ok(lock)
}

/// A file that nobody else can open from now on: a process that could read it could lock it.
fn own_lock(file: File) -> io::Result<File> {
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Refuses a directory in which others could put or move something, as root writes there, and lets nobody else list it.
fn keep_to_ourselves(spool: &Path) -> io::Result<()> {
    // Not one that a link leads to: who made the link would choose whose directory is changed.
    let mut open = OpenOptions::new();
    open.read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    let dir = open.open(spool)?;
    let found = dir.metadata()?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        let text = format!(
            "it belongs to uid {}, and not to slurmd's user",
            found.uid()
        );
        return Err(io::Error::other(text));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 != 0 {
        log::warn!("{}: others may not write there any more", spool.display());
    }
    match mode & 0o066 {
        0 => Ok(()),
        _ => dir.set_permissions(Permissions::from_mode(mode & !0o066)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `PrivateData=jobs` too, the sockets of steps said whose jobs run here.
    #[test]
    fn others_reach_files_by_name_and_list_none() {
        let spool = std::env::temp_dir().join(format!("muster-spool.{}", std::process::id()));
        for (before, after) in [(0o755, 0o711), (0o777, 0o711), (0o700, 0o700)] {
            std::fs::create_dir_all(&spool).unwrap();
            std::fs::set_permissions(&spool, Permissions::from_mode(before)).unwrap();
            keep_to_ourselves(&spool).unwrap();
            let mode = std::fs::metadata(&spool).unwrap().mode() & 0o7777;
            assert_eq!(mode, after, "{before:o}");
        }
        // Where a link leads is nobody's to choose.
        let link = spool.with_extension("link");
        std::os::unix::fs::symlink(&spool, &link).unwrap();
        keep_to_ourselves(&link).unwrap_err();
        std::fs::remove_file(&link).unwrap();
        std::fs::remove_dir_all(&spool).unwrap();
    }
}
