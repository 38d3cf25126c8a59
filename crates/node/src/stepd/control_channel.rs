//! A connection to a process that gives steps: the launcher or the agent.

use crate::descriptors;
use muster_proto::frame::Frames;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// See the module.
pub(super) struct ControlChannel {
    pub(super) stream: UnixStream,
    pub(super) input: Frames,
    /// Descriptors that came with messages.
    pub(super) descriptors: VecDeque<OwnedFd>,
}

impl ControlChannel {
    pub(super) fn new(stream: UnixStream) -> io::Result<ControlChannel> {
        stream.set_nonblocking(true)?;
        Ok(ControlChannel {
            stream,
            input: Frames::default(),
            descriptors: VecDeque::new(),
        })
    }

    /// Reads everything that has arrived. Returns whether the peer is still connected.
    pub(super) fn read(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        loop {
            match descriptors::receive(&self.stream, &mut chunk, &mut self.descriptors) {
                Ok(0) => return false,
                Ok(n) => {
                    self.input.push(&chunk[..n]);
                    if n < chunk.len() {
                        return true;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Sends a frame. Returns whether the kernel took all of it.
    pub(super) fn send(&mut self, frame: &[u8]) -> bool {
        self.stream.write_all(frame).is_ok()
    }
}
