//! Descriptors that clients send with their bytes. The controller expects none. Closing one may take as long as its sender
//! wants (a TCP socket with `SO_LINGER`, a file of a file system in user space), so it is never done on a thread that
//! others wait for. Where the kernel can refuse descriptors, none arrive; elsewhere they are received, and closed by
//! threads of their own.

use log::warn;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Descriptors in one message, as the kernel has it (`SCM_MAX_FD`).
const MESSAGE_MAX: usize = 253;
/// Bytes read at once.
const READ: usize = 64 << 10;
/// Threads that close at the same time. What comes beyond that stays open: the process ends sooner than it blocks.
const CLOSERS_MAX: usize = 64;

static CLOSERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> =
        RefCell::new((vec![0; READ], cmsg_space!([RawFd; MESSAGE_MAX])));
}

/// Reads what has come, without waiting, and appends it. Descriptors that came with it are closed elsewhere.
///
/// # Errors
/// What the socket gives; `InvalidInput` if there were descriptors.
pub(crate) fn receive(socket: &impl AsFd, into: &mut Vec<u8>) -> io::Result<usize> {
    BUFFERS.with_borrow_mut(|(bytes, control)| {
        let mut slices = [IoSliceMut::new(bytes)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let descriptor = socket.as_fd().as_raw_fd();
        let message = recvmsg::<UnixAddr>(descriptor, &mut slices, Some(control), flags)?;
        let mut passed: Vec<RawFd> = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(more) = control {
                passed.extend(more);
            }
        }
        let count = message.bytes;
        if passed.is_empty() {
            into.extend_from_slice(&bytes[..count]);
            return Ok(count);
        }
        let text = format!(
            "{} descriptors came with a request; none are taken",
            passed.len()
        );
        close_elsewhere(move || {
            for descriptor in passed {
                let _ = nix::unistd::close(descriptor);
            }
        });
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    })
}

/// Closes a socket of a client. What it was sent and nobody read goes with it, descriptors too, so where there is any it is
/// done elsewhere.
pub(crate) fn close(socket: OwnedFd) {
    // From now on nothing more can be sent to it.
    let _ = nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Both);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    let mut byte = [0];
    let unread = nix::sys::socket::recv(socket.as_raw_fd(), &mut byte, flags);
    if unread.is_ok_and(|count| count > 0) {
        close_elsewhere(move || drop(socket));
    }
}

fn close_elsewhere(close: impl FnOnce() + Send + 'static) {
    if CLOSERS.fetch_add(1, Ordering::Relaxed) >= CLOSERS_MAX {
        CLOSERS.fetch_sub(1, Ordering::Relaxed);
        warn!("descriptors that a client sent stay open: {CLOSERS_MAX} threads are closing others");
        std::mem::forget(close);
        return;
    }
    let work = move || {
        close();
        CLOSERS.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new()
        .name("closer".to_owned())
        .spawn(work);
    if let Err(e) = thread {
        CLOSERS.fetch_sub(1, Ordering::Relaxed);
        warn!("no thread to close what a client sent: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, sendmsg, setsockopt, sockopt::Linger};
    use std::io::{IoSlice, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    /// A socket that takes as long to close as its peer does not read: and the peer.
    fn slow_to_close() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let linger = nix::libc::linger {
            l_onoff: 1,
            l_linger: 20,
        };
        setsockopt(&sender, Linger, &linger).unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.write(&[0; 64 << 10]).is_ok() {}
        sender.set_nonblocking(false).unwrap();
        (sender, peer)
    }

    fn pass(over: &UnixStream, descriptor: &impl AsFd) {
        let rights = [descriptor.as_fd().as_raw_fd()];
        let control = [ControlMessage::ScmRights(&rights)];
        let bytes = [IoSlice::new(b"x")];
        let flags = MsgFlags::empty();
        sendmsg::<UnixAddr>(over.as_raw_fd(), &bytes, &control, flags, None).unwrap();
    }

    #[test]
    fn a_passed_descriptor_that_is_slow_to_close_blocks_nobody() {
        let (client, server) = UnixStream::pair().unwrap();
        let (slow, peer) = slow_to_close();
        pass(&client, &slow);
        // The controller's is the last.
        drop(slow);
        let begun = Instant::now();
        let mut bytes = Vec::new();
        let refused = receive(&server, &mut bytes).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(bytes.is_empty());
        // Nor does a connection that is closed with such a descriptor unread.
        let (other, _peer) = slow_to_close();
        pass(&client, &other);
        drop(other);
        close(server.into());
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        drop(peer);
    }

    #[test]
    fn bytes_without_descriptors_come_through() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"abc").unwrap();
        let mut bytes = b"01".to_vec();
        assert_eq!(receive(&server, &mut bytes).unwrap(), 3);
        assert_eq!(bytes, b"01abc");
        let empty = receive(&server, &mut bytes).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        drop(client);
        assert_eq!(receive(&server, &mut bytes).unwrap(), 0);
    }

    #[test]
    fn the_kernel_refuses_descriptors_where_it_can() {
        let dir = std::env::temp_dir().join(format!("muster-passed-{}", std::process::id()));
        let _ = std::fs::remove_file(&dir);
        let listener = std::os::unix::net::UnixListener::bind(&dir).unwrap();
        if let Err(e) = crate::sys::refuse_descriptors(&listener) {
            eprintln!("this kernel has no SO_PASSRIGHTS ({e}); this test looked at nothing");
            return;
        }
        // Connected before it is accepted, as a client is.
        let client = UnixStream::connect(&dir).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let rights = [file.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&rights)];
        let bytes = [IoSlice::new(b"x")];
        let sent = sendmsg::<UnixAddr>(
            client.as_raw_fd(),
            &bytes,
            &control,
            MsgFlags::empty(),
            None,
        );
        assert_eq!(sent, Err(nix::errno::Errno::EPERM));
        std::fs::remove_file(&dir).unwrap();
    }
}
