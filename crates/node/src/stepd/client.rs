//! A connection of srun, or of the node above.

use super::wire::Wire;
use super::{Phase, Stepd};
use muster_proto::frame::{self, Frames};
use muster_proto::step::{FromStepd, ToStepd};
use std::io;
use std::os::unix::net::UnixStream;

/// The connection and what waits on it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) wire: Wire,
    /// It has been told that this connection is over.
    pub(crate) told_over: bool,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Client> {
        Ok(Client {
            wire: Wire::new(stream)?,
            told_over: false,
        })
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Option<ToStepd> {
        self.wire.input.take().unwrap_or_else(|e| {
            eprintln!("a message from srun is not understood: {e}");
            self.wire.open = false;
            self.wire.input = Frames::default();
            None
        })
    }

    pub(crate) fn send(&mut self, message: &FromStepd) {
        frame::encode_into(message, &mut self.wire.output);
    }

    /// Writes as much as it takes.
    pub(crate) fn write(&mut self) {
        if self.wire.write().is_err() {
            self.wire.open = false;
        }
    }
}

impl Stepd<'_> {
    /// Takes in who has connected.
    pub(super) fn accept(&mut self) {
        while let Ok((stream, _)) = self.home.listener.accept() {
            if let Ok(client) = Client::new(stream) {
                self.strangers.push(client);
            }
        }
    }

    /// Someone connected: srun, if the first message is the key.
    pub(super) fn take_stranger(&mut self, at: usize) {
        let mut stranger = self.strangers.swap_remove(at);
        stranger.wire.read();
        let absent = self.client.is_none() && !self.ending;
        let free = absent && self.phase == Phase::Waiting;
        // srun comes to the daemon of a direct step when it has lost the agent.
        let late = absent && self.order.direct && self.phase != Phase::Waiting;
        match stranger.next() {
            Some(ToStepd::Hello(key)) if late && key == self.order.launch.step_key => {
                self.client = Some(stranger);
                self.tell_started();
                self.client_messages();
            }
            Some(ToStepd::Hello(key)) if free && key == self.order.launch.step_key => {
                self.client = Some(stranger);
                self.start();
                self.tell_pmix_error();
                self.client_messages();
            }
            Some(ToStepd::Attach(attach))
                if (free || self.tree.is_some()) && attach.key == self.order.launch.step_key =>
            {
                self.attach(&attach, stranger);
            }
            None if stranger.wire.open => self.strangers.push(stranger),
            // Not the key, or srun is here already: the connection is dropped.
            _ => {}
        }
    }
}
