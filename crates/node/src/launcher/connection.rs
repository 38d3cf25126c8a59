//! A connection to the launcher: of root, or of the agent to which root has passed it. An agent
//! sends its orders over a one-way link (TCP), because the agent may have been taken over: the link
//! carries no descriptors, which the launcher would have to close and whose closing can block, and
//! its sender cannot make a read block. Root has shut down the agent's end of the socket for
//! writing.

use super::output::Output;
use crate::descriptors;
use muster_node_core::launcher::interface::RootConnId;
use muster_node_core::messages::LauncherCommand;
use muster_proto::frame::Frames;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{SockaddrIn, getsockname};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

/// Bytes read per wake-up: their messages are handled before more is read.
const READ_MAX: usize = 1 << 20;

/// See the module.
pub(super) struct Connection {
    pub(super) id: RootConnId,
    stream: UnixStream,
    /// The link with the agent's orders, once root has passed the connection and no other agent has
    /// followed.
    orders: Option<File>,
    input: Frames,
    /// Descriptors that root has sent with messages.
    received: VecDeque<OwnedFd>,
    pub(super) output: Output,
    /// Nothing was received yet: the first message comes from the process that connected, which is
    /// root.
    pub(super) is_new: bool,
    pub(super) is_open: bool,
    /// Nothing more arrives on the socket.
    is_at_end: bool,
}

impl Connection {
    pub(super) fn new(id: RootConnId, stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            id,
            stream,
            orders: None,
            input: Frames::default(),
            received: VecDeque::new(),
            output: Output::default(),
            is_new: true,
            is_open: true,
            is_at_end: false,
        })
    }

    /// Whether the connection belongs to the agent.
    pub(super) fn is_attached(&self) -> bool {
        self.orders.is_some()
    }

    /// Passes the connection to the agent.
    ///
    /// # Errors
    /// The link for its orders was not received.
    pub(super) fn attach(&mut self) -> io::Result<()> {
        let is_tcp = |fd: &OwnedFd| getsockname::<SockaddrIn>(fd.as_raw_fd()).is_ok();
        let link = self.received.pop_front().filter(is_tcp);
        let link = link.ok_or_else(|| io::Error::other("no link for orders has come"))?;
        fcntl(&link, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        self.orders = Some(link.into());
        Ok(())
    }

    /// Called after the received messages were handled: closes a connection that has ended and was
    /// not passed to an agent.
    pub(super) fn settle(&mut self) {
        self.is_open &= !self.is_at_end || self.is_attached();
    }

    /// Another agent has followed.
    pub(super) fn detach(&mut self) {
        if self.orders.take().is_some() {
            self.is_open = false;
        }
    }

    /// Descriptors to poll: the socket, and the link for orders if there is one. There are no
    /// placeholder entries, because the kernel accepts at most as many entries as the descriptor
    /// limit.
    pub(super) fn polled(&self) -> Vec<libc::pollfd> {
        let entry = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let out = match self.output.is_empty() {
            true => 0,
            false => libc::POLLOUT,
        };
        // An agent's end is shut down for writing, so the socket would be readable for ever.
        let read = match self.is_attached() {
            true => 0,
            false => libc::POLLIN,
        };
        let stream = entry(self.stream.as_raw_fd(), read | out);
        let orders = self.orders.as_ref().filter(|_| !self.output.is_much());
        let orders = orders.map(|link| entry(link.as_raw_fd(), libc::POLLIN));
        std::iter::once(stream).chain(orders).collect()
    }

    /// Receives available data, if poll reported the socket or the link.
    pub(super) fn read(&mut self, seen: &[libc::pollfd]) -> bool {
        let mut seen = seen.iter().map(|entry| entry.revents & !libc::POLLOUT != 0);
        let on_stream = seen.next().unwrap_or(false);
        let on_link = seen.next().unwrap_or(false);
        if !on_stream && !on_link {
            return false;
        }
        // The buffer is small, because after each fork the first write to a page copies it.
        let mut chunk = [0; 4 << 10];
        for _ in 0..READ_MAX / chunk.len() {
            let read = match &mut self.orders {
                Some(link) => link.read(&mut chunk),
                None => descriptors::receive(&self.stream, &mut chunk, &mut self.received),
            };
            match read {
                Ok(0) if self.is_attached() => self.is_open = false,
                // Root has shut its end down; its last message may turn this into the agent's
                // connection.
                Ok(0) => self.is_at_end = true,
                Ok(n) => {
                    self.input.push(&chunk[..n]);
                    // A read that did not fill the buffer has emptied the queue.
                    if n == chunk.len() || (self.is_attached() && on_stream) {
                        continue;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // The agent is gone and its last orders have arrived.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.is_open &= !self.is_attached() || !on_stream;
                }
                Err(_) => self.is_open = false,
            }
            return true;
        }
        true
    }

    /// The next complete received message.
    pub(super) fn next_command(&mut self) -> Option<LauncherCommand> {
        match self.input.take() {
            Ok(message) => message,
            Err(e) => {
                eprintln!("invalid message from an agent ({e}); its connection is closed");
                self.is_open = false;
                self.input = Frames::default();
                None
            }
        }
    }

    /// Sends queued output as far as the socket takes it.
    pub(super) fn send(&mut self) {
        if self.is_open && !self.output.is_empty() {
            self.is_open = self.output.send(&self.stream).is_ok();
        }
        if self.output.is_too_much() {
            eprintln!("an agent does not read; its connection is closed");
            self.is_open = false;
        }
    }
}
