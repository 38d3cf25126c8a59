//! `SlurmdSpoolDir`: taken by one supervisor at a time, and written by root alone.

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

/// Refuses a directory in which others could put or move something: root writes there.
fn keep_to_ourselves(spool: &Path) -> io::Result<()> {
    let found = std::fs::metadata(spool)?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        let text = format!(
            "it belongs to uid {}, and not to slurmd's user",
            found.uid()
        );
        return Err(io::Error::other(text));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 == 0 {
        return Ok(());
    }
    log::warn!("{}: others may not write there any more", spool.display());
    std::fs::set_permissions(spool, Permissions::from_mode(mode & !0o022))
}
