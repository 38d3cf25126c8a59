//! A non-blocking connection of a step daemon: received bytes that form no complete message yet,
//! and output that waits to be sent.

use crate::stepd_log;
use muster_channel::Channel;
use muster_proto::frame::Frames;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;

/// The transport of a connection.
#[derive(Debug)]
pub(crate) enum Link {
    /// A socket of this host.
    Local(UnixStream),
    /// A channel to another host, with encrypted bytes that were not sent yet.
    Remote(TcpStream, Box<Channel>, Vec<u8>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Wire {
    link: Link,
    pub(crate) input: Frames,
    /// Frames that were not sent yet.
    pub(crate) output: Vec<u8>,
    /// Whether the other side has not hung up.
    pub(crate) open: bool,
    /// Received bytes.
    pub(crate) received: usize,
}

impl Wire {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Wire> {
        stream.set_nonblocking(true)?;
        Ok(Wire::over(Link::Local(stream)))
    }

    /// Over a channel to another host.
    pub(crate) fn remote(tcp: TcpStream, channel: Channel) -> io::Result<Wire> {
        tcp.set_nonblocking(true)?;
        let mut wire = Wire::over(Link::Remote(tcp, Box::new(channel), Vec::new()));
        // Bytes that arrived with the handshake's answer.
        wire.open_received();
        Ok(wire)
    }

    fn over(link: Link) -> Wire {
        Wire {
            link,
            input: Frames::default(),
            output: Vec::new(),
            open: true,
            received: 0,
        }
    }

    /// The descriptor to poll.
    pub(crate) fn number(&self) -> RawFd {
        match &self.link {
            Link::Local(stream) => stream.as_raw_fd(),
            Link::Remote(tcp, ..) => tcp.as_raw_fd(),
        }
    }

    /// The socket, if the peer is on this host.
    pub(crate) fn local(&self) -> Option<&UnixStream> {
        match &self.link {
            Link::Local(stream) => Some(stream),
            Link::Remote(..) => None,
        }
    }

    /// See [`Wire::local`].
    pub(crate) fn into_local(self) -> Option<UnixStream> {
        match self.link {
            Link::Local(stream) => Some(stream),
            Link::Remote(..) => None,
        }
    }

    /// Whether output waits to be sent.
    pub(crate) fn has_output(&self) -> bool {
        let sealed = match &self.link {
            Link::Local(_) => false,
            Link::Remote(_, _, sealed) => !sealed.is_empty(),
        };
        sealed || !self.output.is_empty()
    }

    /// Receives available bytes.
    pub(crate) fn read(&mut self) {
        let mut chunk = [0; 64 << 10];
        let read = match &mut self.link {
            Link::Local(stream) => stream.read(&mut chunk),
            Link::Remote(tcp, ..) => tcp.read(&mut chunk),
        };
        match read {
            Ok(0) => self.open = false,
            Ok(n) => {
                self.received += n;
                match &mut self.link {
                    Link::Local(_) => self.input.push(&chunk[..n]),
                    Link::Remote(_, channel, _) => {
                        channel.opener.push(&chunk[..n]);
                        self.open_received();
                    }
                }
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.open = false,
        }
    }

    /// Decrypts received records of another host.
    fn open_received(&mut self) {
        let Link::Remote(_, channel, _) = &mut self.link else {
            return;
        };
        let mut plain = Vec::new();
        loop {
            match channel.opener.open_next(&mut plain) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => {
                    stepd_log::line(&format!("a connection to another host is closed: {e}"));
                    self.open = false;
                    break;
                }
            }
        }
        self.input.push(&plain);
    }

    /// Writes as much as the other side takes.
    ///
    /// # Errors
    /// The other side takes no more. The rest is dropped; data that it has sent may still be
    /// readable.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if !self.open {
            return Ok(());
        }
        let written = match &mut self.link {
            Link::Local(stream) => write_some(stream, &mut self.output),
            Link::Remote(tcp, channel, sealed) => {
                // Encrypted bytes are sent before more is encrypted, so a slow reader shows in the
                // length of this queue.
                write_some(tcp, sealed).and_then(|()| {
                    if !sealed.is_empty() || self.output.is_empty() {
                        return Ok(());
                    }
                    let sealing = channel.sealer.seal(&self.output, sealed);
                    sealing.map_err(io::Error::other)?;
                    self.output.clear();
                    write_some(tcp, sealed)
                })
            }
        };
        if written.is_err() {
            self.output.clear();
        }
        written
    }
}

/// Writes the bytes that can be written now, and keeps the rest.
fn write_some(to: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut done = 0;
    let mut result = Ok(());
    while done < bytes.len() {
        match to.write(&bytes[done..]) {
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    bytes.drain(..done);
    result
}
