//! Directories that root makes and gives to a user.

use nix::unistd::Uid;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, fchown};

/// Gives a user a directory that this process has just made. Where the directory above has no sticky bit, somebody may have put
/// another in its place: one that somebody else has, or that has anything in it, or others may enter, is nobody's to get.
///
/// # Errors
/// It is such a one, or cannot be given away.
pub(crate) fn give_away(dir: &File, uid: u32, gid: u32) -> io::Result<()> {
    let found = dir.metadata()?;
    let is_own = found.uid() == Uid::effective().as_raw() && found.mode() & 0o077 == 0;
    // By its descriptor: the path may lead to another by now.
    let content = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))?;
    if !is_own || content.count() != 0 {
        return Err(io::Error::other(
            "somebody has put another directory in its place",
        ));
    }
    fchown(dir, Some(uid), Some(gid))
}
