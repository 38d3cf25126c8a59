//! Descriptors that clients send with their bytes, to servers that expect none. Closing one may take as long as its sender
//! wants (a TCP socket with `SO_LINGER`, a file of a file system in user space), so it is never done on a thread that
//! others wait for. Where the kernel can refuse descriptors ([`refuse_descriptors`](crate::refuse_descriptors)), none arrive; on older
//! kernels they are received, and closed where nobody waits. A user for whom many wait has nothing received any more, and gets no
//! further connection.

use crate::sys;
use crate::{Closers, WAITING_MAX, close_without_linger, holds_descriptors};
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, Shutdown, UnixAddr, recvmsg, shutdown};
use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::LazyLock;

/// Descriptors in one message, as the kernel has it (`SCM_MAX_FD`).
const MESSAGE_MAX: usize = 253;
/// Bytes read at once.
const READ: usize = 64 << 10;
static CLOSERS: LazyLock<Closers<OwnedFd>> = LazyLock::new(|| Closers::new(close_without_linger));

/// To be called before anything is received from users.
///
/// # Errors
/// There is no thread that could close their items.
pub fn start() -> io::Result<()> {
    CLOSERS.keep_reserve()
}

thread_local! {
    static BYTES: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
    static CONTROL: RefCell<Vec<u8>> = RefCell::new(cmsg_space!([RawFd; MESSAGE_MAX]));
}

/// Reads what a user has sent, without waiting, and appends it. Descriptors that came with it are closed by another thread.
///
/// # Errors
/// What the socket gives; `InvalidInput` if there were descriptors, or if too many of the user's wait to be closed.
pub fn receive(uid: u32, socket: &impl AsFd, into: &mut Vec<u8>) -> io::Result<usize> {
    receive_by(&CLOSERS, uid, socket, into)
}

/// The same, as much as there is room for.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_into(uid: u32, socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    receive_into_by(&CLOSERS, uid, socket, bytes)
}

fn receive_by(
    closers: &Closers<OwnedFd>,
    uid: u32,
    socket: &impl AsFd,
    into: &mut Vec<u8>,
) -> io::Result<usize> {
    BYTES.with_borrow_mut(|bytes| {
        let count = receive_into_by(closers, uid, socket, bytes)?;
        into.extend_from_slice(&bytes[..count]);
        Ok(count)
    })
}

fn receive_into_by(
    closers: &Closers<OwnedFd>,
    uid: u32,
    socket: &impl AsFd,
    bytes: &mut [u8],
) -> io::Result<usize> {
    if is_full(closers, uid) {
        return Err(invalid("descriptors that you have sent wait to be closed"));
    }
    CONTROL.with_borrow_mut(|control| {
        let mut slices = [IoSliceMut::new(bytes)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let descriptor = socket.as_fd().as_raw_fd();
        let message = recvmsg::<UnixAddr>(descriptor, &mut slices, Some(control), flags)?;
        let mut passed: Vec<OwnedFd> = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(more) = control {
                passed.extend(more.into_iter().map(sys::adopt));
            }
        }
        let count = message.bytes;
        if passed.is_empty() {
            return Ok(count);
        }
        let text = format!(
            "{} descriptors came with a request; none are taken",
            passed.len()
        );
        passed.into_iter().for_each(|fd| closers.close(uid, fd));
        Err(invalid(&text))
    })
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}

/// Closes a socket of a client. Descriptors that it was sent and nobody received go with it, so where there are any it is done
/// by another thread.
pub fn close(uid: u32, socket: OwnedFd) {
    close_by(&CLOSERS, uid, socket);
}

fn close_by(closers: &Closers<OwnedFd>, uid: u32, socket: OwnedFd) {
    // From now on nothing more can be sent to it.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
    if holds_descriptors(&socket) {
        closers.close(uid, socket);
    }
}

/// Closes a socket for messages of a client: always where nobody waits, since such a queue cannot be looked at (a
/// message may have no bytes). Where the kernel refuses descriptors it may be closed at once.
pub fn close_messages(uid: u32, socket: OwnedFd) {
    CLOSERS.close(uid, socket);
}

/// Whether so many descriptors of a user wait to be closed that no more are to come. Root has no limits.
pub fn has_too_many(uid: u32) -> bool {
    is_full(&CLOSERS, uid)
}

fn is_full(closers: &Closers<OwnedFd>, uid: u32) -> bool {
    uid != 0 && closers.waiting_of(uid) >= WAITING_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, sendmsg, setsockopt, sockopt::Linger};
    use std::io::{IoSlice, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
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

    /// Users that no test but one has.
    const USERS: [u32; 3] = [4_000_000_001, 4_000_000_002, 4_000_000_003];

    #[test]
    fn a_passed_descriptor_that_is_slow_to_close_blocks_nobody() {
        let (client, server) = UnixStream::pair().unwrap();
        let (slow, peer) = slow_to_close();
        pass(&client, &slow);
        // The controller's is the last.
        drop(slow);
        let begun = Instant::now();
        let mut bytes = Vec::new();
        let refused = receive(USERS[0], &server, &mut bytes).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(bytes.is_empty());
        // Nor does a connection that is closed with such a descriptor unread.
        let (other, _peer) = slow_to_close();
        pass(&client, &other);
        drop(other);
        close(USERS[0], server.into());
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        drop(peer);
    }

    /// A close waits for this.
    static GATE: Mutex<()> = Mutex::new(());

    fn close_late(descriptor: OwnedFd) {
        let _open = GATE.lock();
        drop(descriptor);
    }

    /// A pipe of a file system in user space would do the same: here closes wait for a lock.
    #[test]
    fn a_user_whose_descriptors_do_not_close_sends_no_more() {
        let closers = Closers::new(close_late);
        let gate = GATE.lock().unwrap();
        let (mut client, server) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut bytes = Vec::new();
        for _ in 0..WAITING_MAX {
            pass(&client, &null);
            let refused = receive_by(&closers, USERS[1], &server, &mut bytes).unwrap_err();
            assert!(refused.to_string().contains("none are taken"), "{refused}");
        }
        client.write_all(b"abc").unwrap();
        let refused = receive_by(&closers, USERS[1], &server, &mut bytes).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(is_full(&closers, USERS[1]) && !is_full(&closers, USERS[2]));
        assert_eq!(
            receive_by(&closers, USERS[2], &server, &mut bytes).unwrap(),
            3
        );
        // A connection's queue waits with the rest; one with bytes alone does not.
        let (mut plain, other_end) = UnixStream::pair().unwrap();
        plain.write_all(b"more").unwrap();
        close_by(&closers, USERS[1], other_end.into());
        assert_eq!(closers.waiting_of(USERS[1]), WAITING_MAX);
        client.write_all(b"more").unwrap();
        pass(&client, &null);
        close_by(&closers, USERS[1], server.into());
        assert_eq!(closers.waiting_of(USERS[1]), WAITING_MAX + 1);
        drop(gate);
        let until = Instant::now() + Duration::from_secs(20);
        while closers.waiting_of(USERS[1]) > 0 {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
    }

    #[test]
    fn bytes_without_descriptors_come_through() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"abc").unwrap();
        let mut bytes = b"01".to_vec();
        assert_eq!(receive(USERS[0], &server, &mut bytes).unwrap(), 3);
        assert_eq!(bytes, b"01abc");
        let empty = receive(USERS[0], &server, &mut bytes).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        drop(client);
        assert_eq!(receive(USERS[0], &server, &mut bytes).unwrap(), 0);
    }

    #[test]
    fn the_kernel_refuses_descriptors_where_it_can() {
        let dir = std::env::temp_dir().join(format!("muster-passed-{}", std::process::id()));
        let _ = std::fs::remove_file(&dir);
        let listener = std::os::unix::net::UnixListener::bind(&dir).unwrap();
        if let Err(e) = crate::refuse_descriptors(&listener) {
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
