//! The connection to one step daemon: bytes received, and bytes still to send.

use crate::agent::AgentStream;
use crate::submit::incoming::Incoming;
use muster_node_core::srun::interface::StepdIdx;
use muster_proto::step::FromStepd;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{MsgFlags, send};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

/// A connection to a step daemon.
pub(crate) struct Peer {
    pub(crate) id: StepdIdx,
    stream: AgentStream,
    incoming: Incoming,
    outgoing: Vec<u8>,
}

impl Peer {
    pub(crate) fn new(id: StepdIdx, stream: AgentStream) -> Peer {
        Peer {
            id,
            stream,
            incoming: Incoming::default(),
            outgoing: Vec::new(),
        }
    }

    /// Sends of a message's frame what the socket takes now, and queues the rest.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.push();
        match self.outgoing.is_empty() {
            true => {
                let sent = self.write(frame);
                self.outgoing.extend_from_slice(&frame[sent..]);
            }
            false => self.outgoing.extend_from_slice(frame),
        }
    }

    /// Bytes that wait to be sent.
    pub(crate) fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        let mut events = PollFlags::POLLIN;
        if !self.outgoing.is_empty() {
            events |= PollFlags::POLLOUT;
        }
        PollFd::new(self.stream.as_fd(), events)
    }

    /// Sends and receives what can be without waiting: the messages that have come, and why no more can.
    pub(crate) fn exchange(&mut self) -> (Vec<FromStepd>, Option<io::Error>) {
        self.push();
        let mut messages = Vec::new();
        let open = self.incoming.fill(&self.stream);
        let error = take_whole(&mut self.incoming, &mut messages).err();
        let end = match open {
            Ok(true) => None,
            Ok(false) => Some(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Some(error),
        };
        (messages, error.or(end))
    }

    fn push(&mut self) {
        if !self.outgoing.is_empty() {
            let sent = self.write(&self.outgoing);
            self.outgoing.drain(..sent);
        }
    }

    /// Number of these bytes that need not be sent any more.
    fn write(&self, bytes: &[u8]) -> usize {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let mut sent = 0;
        while sent < bytes.len() {
            match send(self.stream.as_raw_fd(), &bytes[sent..], flags) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                // Its earlier messages may still be read; receiving finds the end.
                Err(_) => return bytes.len(),
            }
        }
        sent
    }
}

/// Takes the messages that have come; fails if one of them is not understood.
fn take_whole(incoming: &mut Incoming, messages: &mut Vec<FromStepd>) -> io::Result<()> {
    while let Some(message) = incoming.next()? {
        messages.push(message);
    }
    Ok(())
}
