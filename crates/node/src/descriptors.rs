//! Descriptors passed with messages: srun's standard streams on their way to the task, and
//! connections to step daemons.

use crate::sys;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessage, MsgFlags, SockType, UnixAddr, getsockname, getsockopt, sendmsg, sockopt,
};
use nix::sys::stat::SFlag;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The byte sent with descriptors that have no message.
const ALONE: u8 = b'+';

/// Maximum number of descriptors per message.
const COME_MAX: usize = SrunStdio::COUNT;

/// The descriptors that srun passes for the only task of a step.
#[derive(Debug)]
pub(crate) struct SrunStdio {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// The step daemon's end of a connection to srun.
    pub(crate) line: OwnedFd,
}

impl SrunStdio {
    /// Number of descriptors per message.
    pub(crate) const COUNT: usize = 4;

    /// The next streams that have arrived, if any.
    pub(crate) fn take(received: &mut VecDeque<OwnedFd>) -> Option<SrunStdio> {
        if received.len() < Self::COUNT {
            return None;
        }
        Some(SrunStdio {
            stdin: received.pop_front()?,
            stdout: received.pop_front()?,
            stderr: received.pop_front()?,
            line: received.pop_front()?,
        })
    }

    /// The descriptors in order.
    pub(crate) fn into_fds(self) -> [OwnedFd; Self::COUNT] {
        [self.stdin, self.stdout, self.stderr, self.line]
    }

    /// Whether each descriptor has a permitted kind: a stream is a file, a pipe, a character device
    /// or a Unix socket, and the connection is a Unix socket.
    pub(crate) fn is_expected(&self) -> bool {
        let streams = [&self.stdin, &self.stdout, &self.stderr];
        streams.into_iter().all(is_stream) && is_connection(&self.line)
    }

    /// Sends the descriptors without a message; returns whether they were sent.
    pub(crate) fn send(&self, socket: &impl AsRawFd) -> bool {
        send(socket, &[ALONE], &self.numbers()).is_ok()
    }

    /// Waits for the streams that are [sent](SrunStdio::send) next.
    ///
    /// # Errors
    /// The streams do not arrive in time, or other data arrives.
    pub(crate) fn wait(socket: &UnixStream, patience: Duration) -> io::Result<SrunStdio> {
        let time = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut sockets = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        if poll(&mut sockets, time)? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (mut byte, mut received) = ([0], VecDeque::new());
        let count = receive(socket, &mut byte, &mut received)?;
        let is_alone = count == 1 && byte == [ALONE] && received.len() == Self::COUNT;
        let streams = SrunStdio::take(&mut received).filter(|_| is_alone);
        streams.ok_or_else(|| io::Error::other("no streams came"))
    }

    /// Descriptor numbers in order.
    pub(crate) fn numbers(&self) -> [RawFd; Self::COUNT] {
        [&self.stdin, &self.stdout, &self.stderr, &self.line].map(AsRawFd::as_raw_fd)
    }
}

/// The kind of the file, as far as it is known without contacting the server of its file system.
fn kind_of(fd: &OwnedFd) -> Option<SFlag> {
    Some(sys::kind_of(fd)?.0)
}

fn is_stream(fd: &OwnedFd) -> bool {
    match kind_of(fd) {
        Some(SFlag::S_IFREG | SFlag::S_IFCHR | SFlag::S_IFIFO) => true,
        Some(SFlag::S_IFSOCK) => getsockname::<UnixAddr>(fd.as_raw_fd()).is_ok(),
        _ => false,
    }
}

/// A connection over a Unix socket.
fn is_connection(fd: &OwnedFd) -> bool {
    getsockname::<UnixAddr>(fd.as_raw_fd()).is_ok()
        && getsockopt(fd, sockopt::SockType) == Ok(SockType::Stream)
}

/// Sends as many bytes as the socket takes, and descriptors with the first of them.
///
/// # Errors
/// Those of sendmsg(2).
pub(crate) fn send(socket: &impl AsRawFd, bytes: &[u8], with: &[RawFd]) -> io::Result<usize> {
    let rights = [ControlMessage::ScmRights(with)];
    let with = if with.is_empty() {
        &rights[..0]
    } else {
        &rights
    };
    let flags = MsgFlags::MSG_NOSIGNAL;
    let bytes = [IoSlice::new(bytes)];
    Ok(sendmsg::<()>(
        socket.as_raw_fd(),
        &bytes,
        with,
        flags,
        None,
    )?)
}

/// Receives bytes and the descriptors that come with them, which are closed at the next exec.
/// Descriptors arrive before their message.
///
/// # Errors
/// Those of recvmsg(2); and `InvalidData` if more descriptors arrive than belong to a message,
/// because later ones would then be assigned to the wrong message.
pub(crate) fn receive(
    socket: &impl AsRawFd,
    chunk: &mut [u8],
    received: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let got = sys::receive_descriptors(socket, chunk)?;
    let (count, lost) = (got.descriptors.len(), got.is_truncated);
    // The caller must close the descriptors.
    received.extend(got.descriptors);
    if count > COME_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "more descriptors came than go with a message",
        ));
    }
    if lost {
        // Later descriptors would be taken for these.
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "descriptors were lost on the way: there is no room for them",
        ));
    }
    Ok(got.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    fn streams() -> (SrunStdio, [UnixStream; 4]) {
        let pairs = [(); 4].map(|()| UnixStream::pair().unwrap());
        let [(a, w), (b, x), (c, y), (d, z)] = pairs;
        let streams = SrunStdio {
            stdin: a.into(),
            stdout: b.into(),
            stderr: c.into(),
            line: d.into(),
        };
        (streams, [w, x, y, z])
    }

    #[test]
    fn streams_come_in_order_and_not_after_their_message() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut far_ends = Vec::new();
        for letter in [b"a", b"b"] {
            let (streams, ends) = streams();
            assert_eq!(send(&near, letter, &streams.numbers()).unwrap(), 1);
            far_ends.push(ends);
        }
        (&near).write_all(b"c").unwrap();
        let (mut received, mut got) = (VecDeque::new(), Vec::new());
        while !got.contains(&b'b') {
            let mut chunk = [0; 8];
            let n = receive(&far, &mut chunk, &mut received).unwrap();
            got.extend_from_slice(&chunk[..n]);
        }
        for mut ends in far_ends {
            let streams = SrunStdio::take(&mut received).unwrap();
            File::from(streams.stdout).write_all(b"hello").unwrap();
            let mut text = [0; 5];
            ends[1].read_exact(&mut text).unwrap();
            assert_eq!(&text, b"hello");
        }
        assert!(SrunStdio::take(&mut received).is_none());
    }

    #[test]
    fn other_descriptors_are_no_streams() {
        let with_stdout = |stdout: OwnedFd| {
            let (streams, _ends) = streams();
            SrunStdio { stdout, ..streams }
        };
        let file = |path| OwnedFd::from(File::open(path).unwrap());
        for good in ["/dev/null", "/proc/self/exe"] {
            assert!(with_stdout(file(good)).is_expected(), "{good}");
        }
        let inet = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for (bad, fd) in [("directory", file("/tmp")), ("socket", inet.into())] {
            assert!(!with_stdout(fd).is_expected(), "{bad}");
        }
        let (mut streams, _ends) = streams();
        assert!(streams.is_expected());
        streams.line = file("/dev/null");
        assert!(!streams.is_expected(), "the connection");
    }

    #[test]
    fn more_than_streams_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let (streams, _ends) = streams();
        let numbers = [streams.numbers(), streams.numbers()].concat();
        let with = [ControlMessage::ScmRights(&numbers)];
        let bytes = [IoSlice::new(b"a")];
        let flags = MsgFlags::empty();
        sendmsg::<()>(near.as_raw_fd(), &bytes, &with, flags, None).unwrap();
        let mut received = VecDeque::new();
        let got = receive(&far, &mut [0; 8], &mut received);
        assert_eq!(got.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
