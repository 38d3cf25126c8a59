//! A connection of a step daemon's that never blocks: what was read and is no whole message yet, and what waits to be
//! taken.

use muster_proto::frame::Frames;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: UnixStream,
    pub(crate) input: Frames,
    /// Frames that the other side has not taken yet.
    pub(crate) output: Vec<u8>,
    /// The other side has not hung up.
    pub(crate) open: bool,
    /// Bytes that have come.
    pub(crate) received: usize,
}

impl Wire {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Wire> {
        stream.set_nonblocking(true)?;
        Ok(Wire {
            stream,
            input: Frames::default(),
            output: Vec::new(),
            open: true,
            received: 0,
        })
    }

    /// Takes in what has come.
    pub(crate) fn read(&mut self) {
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.open = false,
            Ok(n) => {
                self.input.push(&chunk[..n]);
                self.received += n;
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.open = false,
        }
    }

    /// Writes as much as the other side takes.
    ///
    /// # Errors
    /// It takes no more. The rest is dropped; what it has said before may still be to be read.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.output.len() && self.open {
            match self.stream.write(&self.output[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    self.output.clear();
                    return Err(e);
                }
            }
        }
        self.output.drain(..done);
        Ok(())
    }
}
