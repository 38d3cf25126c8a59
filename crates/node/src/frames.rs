//! Frames out of a stream of bytes.

use minicbor::Decode;
use muster_proto::frame;
use std::io;

/// Bytes that have come, and how far they were taken.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Adds what was read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole frame, if it has come.
    pub(crate) fn next<T: for<'b> Decode<'b, ()>>(&mut self) -> io::Result<Option<T>> {
        let rest = &self.bytes[self.at..];
        let Some(header) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let end = 4 + frame::length(*header)?;
        let Some(body) = rest.get(4..end) else {
            return Ok(None);
        };
        let message = frame::decode(body)?;
        self.at += end;
        Ok(Some(message))
    }
}
