//! Connections to node agents and step daemons: over a Unix socket on the same host, over TCP otherwise.

use crate::connect::await_answer;
use muster_proto::frame;
use muster_proto::step::{AgentReply, AgentRequest};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

/// An open connection.
#[derive(Debug)]
pub(crate) enum AgentStream {
    /// On this host.
    Unix(UnixStream),
    /// The same, by one end of a pair; the agent gets the other when the first request is in it, and is woken once for both.
    Pair(UnixStream, Option<Visit>),
    /// Anywhere.
    Tcp(TcpStream),
}

/// What the agent is yet to get.
#[derive(Debug)]
pub(crate) struct Visit {
    door: UnixDatagram,
    far: UnixStream,
}

/// So much of a request fits into a pair that nobody reads.
const AHEAD_MAX: usize = 64 << 10;

impl AgentStream {
    /// Connects to `unix:/path` or `host:port`.
    pub(crate) fn connect(address: &str) -> io::Result<AgentStream> {
        let stream = match address.strip_prefix("unix:") {
            Some(path) => AgentStream::Unix(UnixStream::connect(path)?),
            None => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                AgentStream::Tcp(stream)
            }
        };
        Ok(stream)
    }

    /// The same, for one who has a request at once.
    pub(crate) fn visit(address: &str) -> io::Result<AgentStream> {
        let Some(path) = address.strip_prefix("unix:") else {
            return AgentStream::connect(address);
        };
        let door = UnixDatagram::unbound()?;
        if door
            .connect(Path::new(path).with_extension("door"))
            .is_err()
        {
            // An agent of another version has none.
            return AgentStream::connect(address);
        }
        let (near, far) = UnixStream::pair()?;
        Ok(AgentStream::Pair(near, Some(Visit { door, far })))
    }

    /// Lets the agent have its end.
    fn enter(&mut self) -> io::Result<()> {
        let AgentStream::Pair(_, visit) = self else {
            return Ok(());
        };
        let Some(Visit { door, far }) = visit.take() else {
            return Ok(());
        };
        let end = [far.as_raw_fd()];
        let with = [ControlMessage::ScmRights(&end)];
        let bytes = [IoSlice::new(&[0])];
        sendmsg::<()>(
            door.as_raw_fd(),
            &bytes,
            &with,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }

    /// The address of this host on the way to the peer.
    pub(crate) fn own_ip(&self) -> IpAddr {
        match self {
            AgentStream::Tcp(stream) => stream.local_addr().ok().map(|a| a.ip()),
            AgentStream::Unix(_) | AgentStream::Pair(..) => None,
        }
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Sends one request.
    pub(crate) fn send(&mut self, request: &AgentRequest) -> io::Result<()> {
        let bytes = frame::encode(request);
        if bytes.len() > AHEAD_MAX {
            self.enter()?;
        }
        self.write_all(&bytes)?;
        self.enter()
    }

    /// Whether it is on this host.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, AgentStream::Unix(_) | AgentStream::Pair(..))
    }

    /// Sends one request, and this program's standard streams and the far end of a connection with it; gives the near
    /// end. The agent must be on this host.
    pub(crate) fn send_with_streams(&mut self, request: &AgentRequest) -> io::Result<AgentStream> {
        let (near, far) = UnixStream::pair()?;
        let bytes = frame::encode(request);
        if bytes.len() > AHEAD_MAX {
            self.enter()?;
        }
        let handed = [0, 1, 2, far.as_raw_fd()];
        let with = [ControlMessage::ScmRights(&handed)];
        let slices = [IoSlice::new(&bytes)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(self.as_raw_fd(), &slices, &with, flags, None)?;
        self.write_all(&bytes[sent..])?;
        self.enter()?;
        Ok(AgentStream::Unix(near))
    }

    /// Waits for one answer.
    pub(crate) fn receive(&mut self) -> io::Result<AgentReply> {
        await_answer(self);
        frame::read(self)
    }

    /// Waits no longer than this for an answer.
    pub(crate) fn receive_within(&mut self, patience: Duration) -> io::Result<AgentReply> {
        match self {
            AgentStream::Unix(s) | AgentStream::Pair(s, _) => s.set_read_timeout(Some(patience)),
            AgentStream::Tcp(s) => s.set_read_timeout(Some(patience)),
        }?;
        frame::read(self)
    }
}

impl Read for AgentStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            AgentStream::Unix(s) | AgentStream::Pair(s, _) => s.read(buf),
            AgentStream::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for AgentStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            AgentStream::Unix(s) | AgentStream::Pair(s, _) => s.write(buf),
            AgentStream::Tcp(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for AgentStream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            AgentStream::Unix(s) | AgentStream::Pair(s, _) => s.as_raw_fd(),
            AgentStream::Tcp(s) => s.as_raw_fd(),
        }
    }
}

impl AsFd for AgentStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            AgentStream::Unix(s) | AgentStream::Pair(s, _) => s.as_fd(),
            AgentStream::Tcp(s) => s.as_fd(),
        }
    }
}
