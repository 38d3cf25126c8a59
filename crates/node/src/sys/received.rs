//! Receives descriptors with recvmsg(2), also when the buffer was too small for all: nix does not return those that
//! fitted then, and they would stay open without an owner.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};

/// The kernel's limit of descriptors in one message (`SCM_MAX_FD`).
const SENT_MAX: usize = 253;
/// Words of a buffer for this number of descriptors and their header.
const WORDS: usize = (SENT_MAX * size_of::<RawFd>() + size_of::<libc::cmsghdr>()) / 8 + 2;

/// The result of [`receive_descriptors`].
pub(crate) struct Received {
    /// Bytes of the message.
    pub(crate) bytes: usize,
    /// Descriptors that came with the message, closed at the next exec.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// More descriptors were sent; the kernel discarded those without room.
    pub(crate) is_truncated: bool,
}

/// Receives bytes into `chunk`, and the descriptors that come with them.
///
/// # Errors
/// Those of recvmsg(2).
pub(crate) fn receive_descriptors(socket: &impl AsRawFd, chunk: &mut [u8]) -> io::Result<Received> {
    let mut control = [0_u64; WORDS];
    let mut bytes = libc::iovec {
        iov_base: chunk.as_mut_ptr().cast(),
        iov_len: chunk.len(),
    };
    // SAFETY: all zero is a value of it: no buffers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header names two live buffers of this function with their lengths.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let bytes = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    Ok(Received {
        bytes,
        descriptors: adopt_all(&header),
        is_truncated: header.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// The descriptors of the message.
fn adopt_all(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the kernel has filled the control buffer and set its length, which the macros hold themselves to. A
    // truncated message has the length of its received part.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = at.as_ref() {
            if message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(at).cast::<RawFd>();
                // The type differs by C library.
                #[allow(clippy::unnecessary_cast)]
                let length = message.cmsg_len as usize;
                let length = length.saturating_sub(libc::CMSG_LEN(0) as usize);
                for place in 0..length / size_of::<RawFd>() {
                    let number = data.add(place).read_unaligned();
                    // The kernel has just installed this descriptor, so nothing else owns it.
                    all.push(OwnedFd::from_raw_fd(number));
                }
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::fs::File;
    use std::io::IoSlice;
    use std::os::unix::net::UnixStream;

    /// A receiver has room for some descriptors only. Runs in a process of its own, because the limit is per process.
    #[test]
    fn what_came_before_there_was_no_room_is_closed() {
        match crate::sys::fork().unwrap() {
            crate::sys::Fork::Child => {
                let is_right = std::panic::catch_unwind(receive_with_little_room).is_ok();
                crate::sys::exit_now(i32::from(!is_right))
            }
            crate::sys::Fork::Parent(pid) => {
                assert_eq!(crate::sys::exit_code_of(pid), Some(0));
            }
        }
    }

    fn receive_with_little_room() {
        // Descriptors of other tests would use up the limit.
        crate::sys::close_from(3);
        let (near, far) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let numbers = [file.as_raw_fd(); 4];
        let with = [ControlMessage::ScmRights(&numbers)];
        let bytes = [IoSlice::new(b"a")];
        sendmsg::<()>(near.as_raw_fd(), &bytes, &with, MsgFlags::empty(), None).unwrap();
        // Room for two descriptors.
        let next = File::open("/dev/null").unwrap();
        let limit = libc::rlimit {
            rlim_cur: u64::try_from(next.as_raw_fd()).unwrap() + 2,
            rlim_max: u64::try_from(next.as_raw_fd()).unwrap() + 2,
        };
        drop(next);
        // SAFETY: the limit is a live value.
        let rc = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        assert_eq!(rc, 0);
        let received = receive_descriptors(&far, &mut [0; 8]).unwrap();
        assert!(received.is_truncated);
        assert_eq!((received.bytes, received.descriptors.len()), (1, 2));
        drop(received);
        File::open("/dev/null").unwrap();
    }
}
