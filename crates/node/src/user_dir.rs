//! Directories that root makes and gives to a user.

use nix::unistd::Uid;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, fchown};

/// Gives a user a directory that this process has just created. If the parent has no sticky bit,
/// another user may have put another directory in its place: a directory that belongs to another
/// user, has any contents, or is accessible to other users is given to nobody.
///
/// # Errors
/// The directory was replaced, or cannot be given away.
pub(crate) fn give_away(dir: &File, uid: u32, gid: u32) -> io::Result<()> {
    let found = dir.metadata()?;
    let is_own = found.uid() == Uid::effective().as_raw() && found.mode() & 0o077 == 0;
    // Works by descriptor: the path may lead to another directory by now.
    let content = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))?;
    if !is_own || content.count() != 0 {
        return Err(io::Error::other(
            "somebody has put another directory in its place",
        ));
    }
    fchown(dir, Some(uid), Some(gid))
}
