//! The connection to one step daemon: what it has sent, and what it has still to take.

use super::super::stdio_passing::StepdChannel;
use crate::submit::agent::AgentStream;
use crate::submit::incoming::Incoming;
use muster_proto::frame;
use muster_proto::step::{FromStepd, ToStepd};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{MsgFlags, send};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};

/// A connection to a step daemon.
pub(super) struct Peer {
    /// The nodes that are reached by it: its own, and those below that in a tree.
    pub(super) nodes: Range<usize>,
    /// It speaks for a branch of a tree, even if that is one node.
    pub(super) tree: bool,
    /// Gone once everything was said.
    stream: Option<AgentStream>,
    incoming: Incoming,
    outgoing: Vec<u8>,
    broken: bool,
    /// It knew of srun from the start.
    pub(super) greeted: bool,
    /// A message that was read before the connection was served here.
    early_message: Option<FromStepd>,
}

impl Peer {
    pub(super) fn new(nodes: Range<usize>, tree: bool, stream: AgentStream) -> Peer {
        Peer {
            nodes,
            tree,
            stream: Some(stream),
            incoming: Incoming::default(),
            outgoing: Vec::new(),
            broken: false,
            greeted: false,
            early_message: None,
        }
    }

    /// One whose connection came with the step.
    pub(super) fn greeted(nodes: Range<usize>, channel: StepdChannel) -> Peer {
        Peer {
            greeted: true,
            early_message: channel.early_message,
            incoming: channel.incoming,
            ..Peer::new(nodes, false, channel.stream)
        }
    }

    /// Queues a message and sends what the socket takes now.
    pub(super) fn send(&mut self, message: &ToStepd) {
        frame::encode_into(message, &mut self.outgoing);
        self.push();
    }

    /// Bytes that wait to be sent.
    pub(super) fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// All was said, or the connection is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.stream.is_none()
    }

    /// The connection broke before all was said.
    pub(super) fn is_broken(&self) -> bool {
        self.broken && self.stream.is_some()
    }

    pub(super) fn close(&mut self) {
        self.stream = None;
        self.outgoing.clear();
    }

    /// To poll; only for one that is not closed.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let mut events = PollFlags::POLLIN;
        if !self.outgoing.is_empty() {
            events |= PollFlags::POLLOUT;
        }
        let stream = self.stream.as_ref().expect("only open peers are polled");
        PollFd::new(stream.as_fd(), events)
    }

    /// Sends and receives what can be without waiting.
    pub(super) fn exchange(&mut self) -> Vec<FromStepd> {
        self.push();
        let mut messages = Vec::from_iter(self.early_message.take());
        let Some(stream) = &self.stream else {
            return messages;
        };
        // What came with the word of the step may be all.
        let mut whole = take_whole(&mut self.incoming, &mut messages);
        if messages.is_empty() {
            let open = self.incoming.fill(stream);
            whole &= take_whole(&mut self.incoming, &mut messages) && matches!(open, Ok(true));
        }
        self.broken |= !whole;
        messages
    }

    fn push(&mut self) {
        let Some(stream) = &self.stream else { return };
        while !self.outgoing.is_empty() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(stream.as_raw_fd(), &self.outgoing, flags) {
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                // What it has said may still be read; receiving finds the end.
                Err(_) => {
                    self.outgoing.clear();
                    return;
                }
            }
        }
    }
}

/// Takes the messages that have come; whether all of them are understood.
fn take_whole(incoming: &mut Incoming, messages: &mut Vec<FromStepd>) -> bool {
    loop {
        match incoming.next() {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
