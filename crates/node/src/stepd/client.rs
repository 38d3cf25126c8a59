//! A connection of srun, or of the node above.

use super::wire::Wire;
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
