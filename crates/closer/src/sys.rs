//! System calls of this crate that nix does not have.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

/// Descriptors sent to a socket, and to those accepted by it, are refused by the kernel: their sender gets an error
/// (`SO_PASSRIGHTS`, Linux 6.16).
const SO_PASSRIGHTS: libc::c_int = 83;

/// Has the kernel refuse descriptors that are sent to a socket and to those accepted by it.
///
/// # Errors
/// `ENOPROTOOPT` where the kernel does not know of it.
pub fn refuse_descriptors(socket: &impl AsFd) -> nix::Result<()> {
    let off: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of_val(&off)).unwrap_or(4);
    // SAFETY: the descriptor is open while it is borrowed, and the value is an int of the length that is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            length,
        )
    };
    Errno::result(result).map(drop)
}

/// Takes a descriptor that has just come with a message.
pub(crate) fn adopt(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the kernel has made it for this process, and nobody else has its number.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
