//! Descriptors that clients send with their bytes. The controller expects none. Closing one may take as long as its sender
//! wants (a TCP socket with `SO_LINGER`, a file of a file system in user space), so it is never done on a thread that
//! others wait for. Where the kernel can refuse descriptors, none arrive; on older kernels they are received, and closed by
//! a thread of the user who sent them, which is there while there is something to close. A user for whom many wait has
//! nothing received any more, and gets no further connection.

use crate::sys;
use log::warn;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, Shutdown, UnixAddr, recv, recvmsg, setsockopt, shutdown, sockopt,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, IoSliceMut};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Descriptors in one message, as the kernel has it (`SCM_MAX_FD`).
const MESSAGE_MAX: usize = 253;
/// Bytes read at once.
const READ: usize = 64 << 10;
/// Descriptors of a user that wait to be closed before nothing is received from the user any more.
const WAITING_MAX: usize = 128;
/// How long a thread waits for more to close.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of such a thread.
const STACK_BYTES: usize = 128 << 10;

/// The thread that closes what a user has sent.
struct Closer {
    items: Sender<OwnedFd>,
    waiting: usize,
}

static CLOSERS: LazyLock<Mutex<HashMap<u32, Closer>>> = LazyLock::new(Mutex::default);

thread_local! {
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> =
        RefCell::new((vec![0; READ], cmsg_space!([RawFd; MESSAGE_MAX])));
}

/// Reads what a user has sent, without waiting, and appends it. Descriptors that came with it are closed by another thread.
///
/// # Errors
/// What the socket gives; `InvalidInput` if there were descriptors, or if too many of the user's wait to be closed.
pub(crate) fn receive(uid: u32, socket: &impl AsFd, into: &mut Vec<u8>) -> io::Result<usize> {
    if has_too_many(uid) {
        return Err(invalid("descriptors that you have sent wait to be closed"));
    }
    BUFFERS.with_borrow_mut(|(bytes, control)| {
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
            into.extend_from_slice(&bytes[..count]);
            return Ok(count);
        }
        let text = format!(
            "{} descriptors came with a request; none are taken",
            passed.len()
        );
        passed.into_iter().for_each(|fd| close_in_thread(uid, fd));
        Err(invalid(&text))
    })
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}

/// Closes a socket of a client. What it was sent and nobody read goes with it, descriptors too, so where there is any it is
/// done by another thread.
pub(crate) fn close(uid: u32, socket: OwnedFd) {
    // From now on nothing more can be sent to it.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    let mut byte = [0];
    let unread = recv(socket.as_raw_fd(), &mut byte, flags);
    if unread.is_ok_and(|count| count > 0) {
        close_in_thread(uid, socket);
    }
}

/// Whether so many descriptors of a user wait to be closed that no more are to come. Root has no limits.
pub(crate) fn has_too_many(uid: u32) -> bool {
    uid != 0
        && closers()
            .get(&uid)
            .is_some_and(|closer| closer.waiting >= WAITING_MAX)
}

fn closers() -> MutexGuard<'static, HashMap<u32, Closer>> {
    CLOSERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close_in_thread(uid: u32, descriptor: OwnedFd) {
    let mut closers = closers();
    let closer = match closers.entry(uid) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => match start_closer(uid) {
            Ok(closer) => entry.insert(closer),
            Err(e) => {
                warn!(
                    "a descriptor that uid {uid} has sent stays open: no thread to close it: {e}"
                );
                // Closing it may block, and this thread must not.
                let _open = ManuallyDrop::new(descriptor);
                return;
            }
        },
    };
    closer.waiting += 1;
    // The thread ends only once it has taken itself off the list.
    let _ = closer.items.send(descriptor);
}

fn start_closer(uid: u32) -> io::Result<Closer> {
    let (items, inbox) = channel();
    let named = std::thread::Builder::new().name(format!("close-{uid}"));
    let closer = named.stack_size(STACK_BYTES);
    closer.spawn(move || close_all_of(uid, &inbox))?;
    Ok(Closer { items, waiting: 0 })
}

fn close_all_of(uid: u32, inbox: &Receiver<OwnedFd>) {
    loop {
        match inbox.recv_timeout(IDLE) {
            Ok(descriptor) => close_without_linger(descriptor),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let mut closers = closers();
                if closers.get(&uid).is_none_or(|closer| closer.waiting == 0) {
                    closers.remove(&uid);
                    return;
                }
                continue;
            }
        }
        if let Some(closer) = closers().get_mut(&uid) {
            closer.waiting = closer.waiting.saturating_sub(1);
        }
    }
}

fn close_without_linger(descriptor: OwnedFd) {
    let none = nix::libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    // It is no socket, or has none set.
    let _ = setsockopt(&descriptor, sockopt::Linger, &none);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, sendmsg, sockopt::Linger};
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

    /// A pipe of a file system in user space would do the same: here the closer is kept busy by a lock.
    #[test]
    fn a_user_whose_descriptors_do_not_close_sends_no_more() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"abc").unwrap();
        let (items, inbox) = channel();
        let waiting = WAITING_MAX;
        closers().insert(USERS[1], Closer { items, waiting });
        let mut bytes = Vec::new();
        let refused = receive(USERS[1], &server, &mut bytes).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(has_too_many(USERS[1]) && !has_too_many(USERS[2]));
        assert_eq!(receive(USERS[2], &server, &mut bytes).unwrap(), 3);
        // What a connection was sent waits with the rest.
        client.write_all(b"more").unwrap();
        close(USERS[1], server.into());
        assert_eq!(closers()[&USERS[1]].waiting, WAITING_MAX + 1);
        assert_eq!(inbox.try_iter().count(), 1);
        closers().remove(&USERS[1]);
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
