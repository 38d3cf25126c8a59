//! The kind of file that a descriptor is open for, without a request to a file server.

use nix::sys::stat::SFlag;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The kind of file that a descriptor is open for, and its device number if it is a device. The kernel answers from
/// its cache (`AT_STATX_DONT_SYNC`), so a file server that does not answer delays nobody.
pub(crate) fn kind_of(fd: &OwnedFd) -> Option<(SFlag, u32)> {
    // SAFETY: an all-zero statx is a valid value of that plain C struct.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is an empty string, and the last pointer leads to a live local of the right type.
    let failed = unsafe {
        libc::statx(
            fd.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_TYPE,
            &raw mut found,
        )
    };
    let kind = u32::from(found.stx_mode) & SFlag::S_IFMT.bits();
    (failed == 0).then(|| (SFlag::from_bits_truncate(kind), found.stx_rdev_major))
}
