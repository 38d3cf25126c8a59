//! The system calls that no crate wraps yet.

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Descriptors that who started this process has left open are not passed on to the programs that it starts. Where the kernel does
/// not do that (before Linux 5.11), they are.
pub(crate) fn keep_descriptors() {
    let first: libc::c_uint = 3;
    // SAFETY: close_range(2) takes numbers; with this flag it closes nothing here.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// Takes over a descriptor that the kernel has just made.
fn adopt(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the kernel has made it for this process, and nobody else has its number.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// A descriptor that becomes readable when a child of this process has ended.
///
/// # Errors
/// An error of the kernel, such as `EMFILE`.
pub(crate) fn pidfd(child: u32) -> nix::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes numbers and gives a descriptor, which is close-on-exec.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) };
    let descriptor = i32::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
    Ok(adopt(descriptor))
}

/// Sets the nice value of the calling thread, which those that it starts inherit.
///
/// # Errors
/// `EACCES` where it is better than the present one and `RLIMIT_NICE` does not allow that.
pub(crate) fn set_nice(nice: i32) -> nix::Result<()> {
    // SAFETY: setpriority(2) takes numbers. Process 0 is the caller, which is a thread on Linux.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    Errno::result(result).map(drop)
}
