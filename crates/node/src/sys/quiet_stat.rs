//! Reads file attributes without a request to a file system that a user may have mounted there, which may never
//! answer.

use super::check;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileAttributes {
    /// Its owner.
    pub(crate) uid: u32,
    /// Kind and permissions.
    pub(crate) mode: u32,
    /// The device number of its file system.
    pub(crate) device: u64,
}

impl FileAttributes {
    pub(crate) fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// Attributes of a name in a directory. Links are not followed and automounts not triggered.
pub(crate) fn of_name(dir: &impl AsRawFd, name: &OsStr) -> io::Result<FileAttributes> {
    let name = CString::new(name.as_bytes())?;
    quiet_stat(dir.as_raw_fd(), &name, libc::AT_SYMLINK_NOFOLLOW)
}

/// Attributes of the file that a descriptor is open for.
pub(crate) fn of_descriptor(of: &impl AsRawFd) -> io::Result<FileAttributes> {
    quiet_stat(of.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn quiet_stat(dir: RawFd, name: &std::ffi::CStr, flags: i32) -> io::Result<FileAttributes> {
    // AT_STATX_DONT_SYNC: network and FUSE file systems get no request.
    const DONT_SYNC: i32 = 0x4000;
    const BASIC: u32 = 0x7ff;
    let flags = flags | libc::AT_NO_AUTOMOUNT | DONT_SYNC;
    // SAFETY: an all-zero statx is a valid value of that plain C struct.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: name is a live string of C, and the last pointer leads to a live local of the right type.
    let done = unsafe {
        libc::syscall(
            libc::SYS_statx,
            dir,
            name.as_ptr(),
            flags,
            BASIC,
            &raw mut found,
        )
    };
    check(i32::try_from(done).unwrap_or(-1))?;
    Ok(FileAttributes {
        uid: found.stx_uid,
        mode: found.stx_mode.into(),
        device: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
    })
}
