//! Closes descriptors that clients have sent, on a thread, so that the agent's only loop does not
//! wait for it: see [`muster_closer`]. If many descriptors of a user wait to be closed, no further
//! ones are received from that user.

use crate::descriptors::{self, SrunStdio};
use crate::sys;
use muster_closer::{Closers, close_without_linger, holds_descriptors};
use nix::sys::stat::SFlag;
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

pub(super) use muster_closer::{Sender, WAITING_MAX};

/// Major number of memory devices, such as /dev/null.
const MEMORY_MAJOR: u32 = 1;

/// A descriptor or connection to close.
enum Item {
    Fd(OwnedFd),
    /// A connection whose queue may contain descriptors that were not received.
    Connection(UnixStream),
}

impl Item {
    fn close(self) {
        match self {
            Item::Fd(fd) => close_without_linger(fd),
            Item::Connection(stream) => close_with_queue(stream),
        }
    }
}

static CLOSERS: LazyLock<Closers<Item>> = LazyLock::new(|| Closers::new(Item::close));

/// To be called before anything is received from users.
///
/// # Errors
/// The thread that closes descriptors cannot be started.
pub(super) fn start() -> io::Result<()> {
    CLOSERS.keep_reserve()
}

/// Closes descriptors that a user or another node's agent has sent.
pub(super) fn close(sender: impl Into<Sender>, fds: impl IntoIterator<Item = OwnedFd>) {
    let sender = sender.into();
    for fd in fds {
        if !is_closed_at_once(&fd) {
            CLOSERS.close(sender.clone(), Item::Fd(fd));
        }
    }
}

/// Closes a connection that its client has not ended.
pub(super) fn close_connection(client: impl Into<Sender>, stream: UnixStream) {
    // After this the client can send nothing more.
    let _ = stream.shutdown(Shutdown::Both);
    if holds_descriptors(&stream) {
        CLOSERS.close(client, Item::Connection(stream));
    }
}

/// Number of descriptors of a user or of another node's agent that wait to be closed.
pub(super) fn count_waiting(sender: impl Into<Sender>) -> usize {
    CLOSERS.waiting_of(sender)
}

/// Whether closing cannot block: pipes and memory devices, which are the most frequent kinds.
fn is_closed_at_once(fd: &OwnedFd) -> bool {
    sys::kind_of(fd).is_some_and(|(kind, device)| {
        kind == SFlag::S_IFIFO || (kind == SFlag::S_IFCHR && device == MEMORY_MAJOR)
    })
}

/// Receives the descriptors in the queue first, because closing them with the socket would wait for
/// their linger time.
fn close_with_queue(stream: UnixStream) {
    let _ = stream.set_nonblocking(true);
    let (mut chunk, mut fds) = (vec![0; 8 << 10], VecDeque::new());
    loop {
        let received = descriptors::receive(&stream, &mut chunk, &mut fds);
        fds.drain(..).for_each(close_without_linger);
        match received {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {}
            Err(_) => return,
        }
    }
}

/// Streams that srun has passed. Unused ones are closed on the thread, where nothing waits for it.
#[derive(Debug)]
pub(super) struct Streams {
    uid: u32,
    fds: Option<SrunStdio>,
}

impl Streams {
    /// The next streams that have arrived, if any. A descriptor that cannot be a stream of srun is
    /// not accepted as one.
    pub(super) fn take(uid: u32, received: &mut VecDeque<OwnedFd>) -> Option<Streams> {
        let streams = Streams {
            uid,
            fds: Some(SrunStdio::take(received)?),
        };
        let expected = streams.fds.as_ref().is_some_and(SrunStdio::is_expected);
        if !expected {
            log::warn!("uid {uid} has sent other descriptors than streams with a request");
        }
        Some(streams).filter(|_| expected)
    }

    /// Sends the streams without a message to the daemon of their step.
    pub(super) fn send(&self, socket: &impl AsRawFd) -> bool {
        self.fds.as_ref().is_some_and(|fds| fds.send(socket))
    }

    /// Descriptor numbers in order.
    pub(super) fn numbers(&self) -> Vec<RawFd> {
        let fds = self.fds.iter();
        fds.flat_map(SrunStdio::numbers).collect()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        close(
            self.uid,
            self.fds.take().into_iter().flat_map(SrunStdio::into_fds),
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nix::sys::socket::{setsockopt, sockopt};
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

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
        while count_waiting(uid) > 0 {
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
        // Only the queue holds the first descriptor now.
        close_connection(4_000_000_001, near);
        close(4_000_000_002, [OwnedFd::from(second)]);
        wait_until_closed(4_000_000_001);
        wait_until_closed(4_000_000_002);
    }

    #[test]
    fn pipes_need_no_thread() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!([reader, writer, null.into()].iter().all(is_closed_at_once));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(!is_closed_at_once(&file.into()));
    }
}
