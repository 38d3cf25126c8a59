//! Connections to node agents and step daemons: over a Unix socket on the same host, over TCP otherwise.

use crate::connect::await_answer;
use muster_proto::frame;
use muster_proto::step::{AgentReply, AgentRequest};
use muster_proto::version::Versions;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

/// A request, after what says which version is spoken here: both are written at once.
fn greeted(request: &AgentRequest) -> Vec<u8> {
    let mut bytes = frame::encode(&AgentRequest::Greeting(Versions::CLUSTER.greeting()));
    frame::encode_into(request, &mut bytes);
    bytes
}

/// An open connection.
#[derive(Debug)]
pub(crate) enum AgentStream {
    /// On this host.
    Unix(UnixStream),
    /// Anywhere.
    Tcp(TcpStream),
}

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

    /// The address of this host on the way to the peer.
    pub(crate) fn own_ip(&self) -> IpAddr {
        match self {
            AgentStream::Tcp(stream) => stream.local_addr().ok().map(|a| a.ip()),
            AgentStream::Unix(_) => None,
        }
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Sends one request.
    pub(crate) fn send(&mut self, request: &AgentRequest) -> io::Result<()> {
        self.write_all(&greeted(request))
    }

    /// Whether it is on this host.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, AgentStream::Unix(_))
    }

    /// Sends one request, and this program's standard streams and the far end of a connection with it; gives the near
    /// end. The agent must be on this host.
    pub(crate) fn send_with_streams(&mut self, request: &AgentRequest) -> io::Result<AgentStream> {
        let (near, far) = UnixStream::pair()?;
        let bytes = greeted(request);
        let handed = [0, 1, 2, far.as_raw_fd()];
        let with = [ControlMessage::ScmRights(&handed)];
        let slices = [IoSlice::new(&bytes)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(self.as_raw_fd(), &slices, &with, flags, None)?;
        self.write_all(&bytes[sent..])?;
        Ok(AgentStream::Unix(near))
    }

    /// Waits for one answer.
    pub(crate) fn receive(&mut self) -> io::Result<AgentReply> {
        await_answer(self);
        self.read_reply()
    }

    /// Reads an answer, the beginning of which is there.
    pub(crate) fn read_reply(&mut self) -> io::Result<AgentReply> {
        frame::read(self)
    }
}

impl Read for AgentStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            AgentStream::Unix(s) => s.read(buf),
            AgentStream::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for AgentStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            AgentStream::Unix(s) => s.write(buf),
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
            AgentStream::Unix(s) => s.as_raw_fd(),
            AgentStream::Tcp(s) => s.as_raw_fd(),
        }
    }
}

impl AsFd for AgentStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            AgentStream::Unix(s) => s.as_fd(),
            AgentStream::Tcp(s) => s.as_fd(),
        }
    }
}
