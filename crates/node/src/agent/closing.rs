//! Closes what clients have sent. The close of a descriptor may take as long as its sender wants: a TCP socket with
//! SO_LINGER and a full send buffer, a file of a FUSE or NFS server that does not answer, a Unix socket with such in its
//! queue. So the agent's only loop never closes them. Each user has a thread for that, which is there while there is
//! something to close; a user whose descriptors do not close delays nobody else, and has no further ones received.

use crate::descriptors::{self, HandedOver, WithOrder};
use crate::sys;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::stat::SFlag;
use std::collections::{HashMap, VecDeque};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Descriptors of a user that wait to be closed before none are received from the user any more.
pub(super) const WAITING_MAX: usize = 128;
/// How long a thread waits for more to close.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of such a thread.
const STACK_BYTES: usize = 128 << 10;
/// Major number of memory devices, such as /dev/null.
const MEMORY_MAJOR: u32 = 1;

/// Something to close.
enum Item {
    Fd(OwnedFd),
    /// A connection, in whose queue descriptors may be that nobody has received.
    Connection(UnixStream),
}

/// The thread of a user.
struct Closer {
    items: Sender<Item>,
    waiting: usize,
}

static CLOSERS: LazyLock<Mutex<HashMap<u32, Closer>>> = LazyLock::new(Mutex::default);

/// Closes descriptors that a user has sent.
pub(super) fn close(uid: u32, fds: impl IntoIterator<Item = OwnedFd>) {
    for fd in fds {
        if !is_closed_at_once(&fd) {
            hand_over(uid, Item::Fd(fd));
        }
    }
}

/// Closes a connection of a user that has not ended by itself.
pub(super) fn close_connection(uid: u32, stream: UnixStream) {
    hand_over(uid, Item::Connection(stream));
}

/// Closes what went with an order for a step of a user.
pub(super) fn close_order(uid: u32, with: WithOrder) {
    close(uid, with.srun.into_iter().flat_map(HandedOver::into_fds));
}

/// How many descriptors of a user wait to be closed.
pub(super) fn waiting_of(uid: u32) -> usize {
    let closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
    closers.get(&uid).map_or(0, |closer| closer.waiting)
}

/// Pipes and memory devices: most of what comes.
fn is_closed_at_once(fd: &OwnedFd) -> bool {
    sys::kind_of(fd).is_some_and(|(kind, device)| {
        kind == SFlag::S_IFIFO || (kind == SFlag::S_IFCHR && device == MEMORY_MAJOR)
    })
}

fn hand_over(uid: u32, item: Item) {
    let mut closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
    let closer = match closers.get_mut(&uid) {
        Some(closer) => closer,
        None => {
            let (items, inbox) = channel();
            let named = thread::Builder::new().name(format!("close-{uid}"));
            let started = named
                .stack_size(STACK_BYTES)
                .spawn(move || close_all_of(uid, &inbox));
            if let Err(e) = started {
                log::error!("what uid {uid} has sent stays open: no thread to close it: {e}");
                // Whoever closes it may wait; the only loop of this process may not.
                return std::mem::forget(item);
            }
            closers.entry(uid).or_insert(Closer { items, waiting: 0 })
        }
    };
    closer.waiting += 1;
    // The thread goes only once it has taken itself off the list.
    let _ = closer.items.send(item);
}

fn close_all_of(uid: u32, inbox: &Receiver<Item>) {
    loop {
        match inbox.recv_timeout(IDLE) {
            Ok(Item::Fd(fd)) => close_without_linger(fd),
            Ok(Item::Connection(stream)) => close_with_queue(stream),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let mut closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
                if closers.get(&uid).is_none_or(|closer| closer.waiting == 0) {
                    closers.remove(&uid);
                    return;
                }
                continue;
            }
        }
        let mut closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(closer) = closers.get_mut(&uid) {
            closer.waiting = closer.waiting.saturating_sub(1);
        }
    }
}

fn close_without_linger(fd: OwnedFd) {
    // It is no socket, or has none set.
    let _ = setsockopt(
        &fd,
        sockopt::Linger,
        &libc::linger {
            l_onoff: 0,
            l_linger: 0,
        },
    );
}

/// Receives what is in the queue first: what is closed with it has its linger time.
fn close_with_queue(stream: UnixStream) {
    // The client may be gone; if not, nothing more comes.
    let _ = stream.shutdown(Shutdown::Both);
    let _ = stream.set_nonblocking(true);
    let (mut chunk, mut come) = (vec![0; 8 << 10], VecDeque::new());
    loop {
        let received = descriptors::receive(&stream, &mut chunk, &mut come);
        come.drain(..).for_each(close_without_linger);
        match received {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {}
            Err(_) => return,
        }
    }
}

/// Streams that srun has handed over. What is not used is closed where that delays nobody.
#[derive(Debug)]
pub(super) struct Streams {
    uid: u32,
    fds: Option<HandedOver>,
}

impl Streams {
    /// The next that have come, if they have. What cannot be a stream of srun's is not taken for one.
    pub(super) fn take(uid: u32, come: &mut VecDeque<OwnedFd>) -> Option<Streams> {
        let streams = Streams {
            uid,
            fds: Some(HandedOver::take(come)?),
        };
        let expected = streams.fds.as_ref().is_some_and(HandedOver::is_expected);
        if !expected {
            log::warn!("uid {uid} has sent other descriptors than streams with a request");
        }
        Some(streams).filter(|_| expected)
    }

    /// What a user has sent.
    pub(super) fn of(uid: u32, fds: HandedOver) -> Streams {
        let fds = Some(fds);
        Streams { uid, fds }
    }

    /// Sends them alone to the daemon of their step.
    pub(super) fn send(&self, socket: &impl AsRawFd) -> bool {
        self.fds.as_ref().is_some_and(|fds| fds.send(socket))
    }

    /// For the task that is to have them.
    pub(super) fn into_fds(mut self) -> Option<HandedOver> {
        self.fds.take()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        close(
            self.uid,
            self.fds.take().into_iter().flat_map(HandedOver::into_fds),
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    /// A connection whose close takes long, and its other end.
    pub(in crate::agent) fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 600,
        };
        setsockopt(&near, sockopt::Linger, &linger).unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 64 << 10]).is_ok() {}
        (near, far)
    }

    pub(in crate::agent) fn wait_until_closed(uid: u32) {
        let until = Instant::now() + Duration::from_secs(20);
        while waiting_of(uid) > 0 {
            assert!(Instant::now() < until, "uid {uid} waits");
            thread::yield_now();
        }
    }

    #[test]
    fn sockets_that_linger_are_closed_nevertheless() {
        let (first, _far) = lingering();
        let (second, _far) = lingering();
        let (near, far) = UnixStream::pair().unwrap();
        descriptors::send(&far, b"a", &[first.as_raw_fd(), second.as_raw_fd()]).unwrap();
        drop(first);
        // Nobody but the queue has the first any more.
        close_connection(4_000_000_001, near);
        close(4_000_000_002, [OwnedFd::from(second)]);
        wait_until_closed(4_000_000_001);
        wait_until_closed(4_000_000_002);
    }

    #[test]
    fn pipes_need_no_thread() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        close(4_000_000_003, [reader, writer, null.into()]);
        let closers = CLOSERS.lock().unwrap();
        assert!(!closers.contains_key(&4_000_000_003));
    }
}
