//! Frames as they come from a socket. A buffer grows with what has come, not with what was announced, and so does the room
//! that a large frame takes; where there is none, it waits.

use crate::executor::pause;
use crate::quota::{FrameRoom, SMALL_FRAME, Share};
use muster_closer::passed;
use muster_proto::client::Request;
use muster_proto::frame;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::unix::OwnedReadHalf;

/// Bytes read at once.
const READ: usize = 16 << 10;

/// A whole frame's body, and the room that it takes.
pub(crate) struct Frame {
    pub(crate) body: Vec<u8>,
    pub(crate) room: Option<FrameRoom>,
}

/// Reads whole frames; safe to cancel between bytes.
pub(crate) struct FrameReader {
    stream: OwnedReadHalf,
    /// The user of the connection.
    uid: u32,
    buffer: Vec<u8>,
    start: usize,
    /// Room for the frame that is coming.
    room: Option<FrameRoom>,
    /// Since when it comes, unless it waits for room, and how long it came before such a wait.
    begun: Option<Instant>,
    spent: Duration,
    /// The kernel refuses descriptors that are sent here.
    refuses_descriptors: bool,
}

impl FrameReader {
    /// Reads from this half of a user's socket.
    pub(crate) fn new(stream: OwnedReadHalf, uid: u32, refuses_descriptors: bool) -> FrameReader {
        FrameReader {
            stream,
            uid,
            buffer: Vec::new(),
            start: 0,
            room: None,
            begun: None,
            spent: Duration::ZERO,
            refuses_descriptors,
        }
    }

    /// The next frame; `None` when the peer closed.
    ///
    /// # Errors
    /// A frame that is too long, or what the socket gives.
    pub(crate) async fn next(&mut self, share: &Share) -> io::Result<Option<Frame>> {
        loop {
            if let Some(body) = self.take()? {
                let room = self.room.take();
                return Ok(Some(Frame { body, room }));
            }
            if self.room.is_none()
                && let Some(header) = self.buffer[self.start..].first_chunk::<4>()
            {
                let bytes = frame::length_of::<Request>(*header)?;
                if bytes > SMALL_FRAME {
                    self.wait_begins();
                    self.room = share.frame(bytes).await;
                }
            }
            let next = self.buffer.len() - self.start + READ;
            if self.room.as_mut().is_some_and(|room| !room.grow_now(next)) {
                self.wait_begins();
                if let Some(room) = &mut self.room {
                    room.grow(next).await;
                }
            }
            if self.begun.is_none() && !self.is_empty() {
                self.begun = Some(Instant::now());
            }
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            if self.buffer.is_empty() {
                // An idle connection holds no memory.
                self.buffer = Vec::new();
                self.stream.readable().await?;
            }
            match self.read().await? {
                0 => return Ok(None),
                // More of a long frame: it comes as fast as it is read, and others wait.
                READ.. => pause().await,
                _ => {}
            }
        }
    }

    /// Until there is room, the client is not late.
    fn wait_begins(&mut self) {
        self.spent += self.begun.take().map_or(Duration::ZERO, |b| b.elapsed());
    }

    async fn read(&mut self) -> io::Result<usize> {
        loop {
            let FrameReader {
                stream,
                uid,
                buffer,
                refuses_descriptors,
                ..
            } = self;
            let socket: &tokio::net::UnixStream = stream.as_ref();
            let read = if *refuses_descriptors {
                buffer.reserve(READ);
                stream.try_read_buf(buffer)
            } else {
                socket.try_io(Interest::READABLE, || passed::receive(*uid, socket, buffer))
            };
            match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.stream.readable().await?,
                read => return read,
            }
        }
    }

    /// Waits until something, or the end, has come that was not read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Whether nothing has come yet of the next frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.len() == self.start
    }

    /// Whether a frame has begun to come and takes too long.
    pub(crate) fn is_stalled(&self, most: Duration) -> bool {
        self.begun
            .is_some_and(|begun| self.spent + begun.elapsed() > most)
    }

    /// A frame that is already here.
    ///
    /// # Errors
    /// A frame that is too long.
    pub(crate) fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let rest = &self.buffer[self.start..];
        let Some(header) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let end = 4 + frame::length_of::<Request>(*header)?;
        let Some(body) = rest.get(4..end) else {
            return Ok(None);
        };
        (self.begun, self.spent) = (None, Duration::ZERO);
        if self.start == 0 && self.buffer.len() == end {
            let mut body = std::mem::take(&mut self.buffer);
            body.drain(..4);
            return Ok(Some(body));
        }
        let body = body.to_vec();
        self.start += end;
        Ok(Some(body))
    }
}
