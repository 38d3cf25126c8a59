//! A connection of srun, or of the node above.

use muster_proto::frame;
use muster_proto::frame::Frames;
use muster_proto::step::{FromStepd, ToStepd};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// The connection and what waits on it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    input: Frames,
    /// Frames that it has not taken yet.
    pub(crate) output: Vec<u8>,
    /// It has not hung up.
    pub(crate) open: bool,
    /// It has been told that this connection is over.
    pub(crate) told_over: bool,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        Ok(Client {
            stream,
            input: Frames::default(),
            output: Vec::new(),
            open: true,
            told_over: false,
        })
    }

    /// Takes in what has come.
    pub(crate) fn read(&mut self) {
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.open = false,
            Ok(n) => self.input.push(&chunk[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.open = false,
        }
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Option<ToStepd> {
        self.input.take().unwrap_or_else(|e| {
            eprintln!("a message from srun is not understood: {e}");
            self.open = false;
            self.input = Frames::default();
            None
        })
    }

    pub(crate) fn send(&mut self, message: &FromStepd) {
        frame::encode_into(message, &mut self.output);
    }

    /// Writes as much as it takes.
    pub(crate) fn write(&mut self) {
        let mut done = 0;
        while done < self.output.len() && self.open {
            match self.stream.write(&self.output[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.open = false,
            }
        }
        self.output.drain(..done);
    }
}
