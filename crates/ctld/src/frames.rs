//! Frames from a socket. A buffer grows with the bytes that have arrived, not with the announced length, and so does the
//! memory that a large frame reserves; where there is none, it waits.

use crate::executor::pause;
use crate::quota::{FrameRoom, Share};
use muster_closer::passed;
use muster_proto::client::Request;
use muster_proto::frame;
use std::io;
use std::pin::Pin;
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
    /// That room, while it waits to grow. It is kept when the wait for the next frame is dropped, and with it the place among
    /// all that wait.
    growing: Option<Pin<Box<dyn Future<Output = FrameRoom>>>>,
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
            growing: None,
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
            self.make_room(share).await?;
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

    /// Waits until there is room for the next read of a large frame.
    async fn make_room(&mut self, share: &Share) -> io::Result<()> {
        if self.growing.is_none() {
            if self.room.is_none()
                && let Some(header) = self.buffer[self.start..].first_chunk::<4>()
            {
                self.room = share.frame(frame::length_of::<Request>(*header)?);
            }
            let next = self.buffer.len() - self.start + READ;
            if let Some(mut room) = self.room.take() {
                match room.grow_now(next) {
                    true => self.room = Some(room),
                    false => self.growing = Some(Box::pin(room.grow(next))),
                }
            }
        }
        if let Some(growing) = &mut self.growing {
            // Until there is room, the client is not late.
            self.spent += self.begun.take().map_or(Duration::ZERO, |b| b.elapsed());
            self.room = Some(growing.as_mut().await);
            self.growing = None;
        }
        Ok(())
    }

    /// Ends when a frame has begun to come and takes too long. The wait for room goes on meanwhile: room that nobody looks at
    /// would be kept from others, and this client would not be late.
    pub(crate) async fn stall(&mut self, most: Duration) {
        if let Some(growing) = &mut self.growing {
            self.room = Some(growing.as_mut().await);
            self.growing = None;
            self.begun = Some(Instant::now());
        }
        match self.begun {
            Some(begun) => {
                let left = most.saturating_sub(self.spent + begun.elapsed());
                tokio::time::sleep(left).await;
            }
            None => std::future::pending().await,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{SMALL_FRAME, Users};
    use crate::rate_limit::RateLimit;
    use muster_model::limits::REQUEST_BYTES_MAX;
    use std::sync::Arc;
    use std::task::Poll;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;
    use tokio::net::unix::OwnedWriteHalf;

    /// A connection on which a frame of this length was begun.
    async fn reader(bytes: usize) -> (FrameReader, UnixStream, OwnedWriteHalf) {
        let (mut client, server) = UnixStream::pair().unwrap();
        let head = u32::try_from(bytes).unwrap().to_be_bytes();
        client.write_all(&head).await.unwrap();
        client.write_all(&[0; 12]).await.unwrap();
        let (read, write) = server.into_split();
        (FrameReader::new(read, 1000, true), client, write)
    }

    /// Looks for the next frame as a connection does, which drops the wait again and again.
    async fn look(reader: &mut FrameReader, share: &Share) {
        for _ in 0..3 {
            let mut next = std::pin::pin!(reader.next(share));
            let mut polls = 0;
            std::future::poll_fn(|cx| {
                polls += 1;
                assert!(next.as_mut().poll(cx).is_pending());
                cx.waker().wake_by_ref();
                if polls < 3 {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
            .await;
            tokio::task::yield_now().await;
        }
    }

    /// A frame that waited for room went behind all others each time that its connection was looked at.
    #[tokio::test]
    async fn a_frame_that_waits_for_room_keeps_its_place() {
        let users = Users::new(1024, RateLimit::default(), Arc::default());
        let share = users.connect(1).ok().unwrap();
        let mut first = share.frame(REQUEST_BYTES_MAX).unwrap();
        assert!(first.grow_now(SMALL_FRAME));
        let mut second = reader(REQUEST_BYTES_MAX / 2).await;
        let mut third = reader(REQUEST_BYTES_MAX).await;
        look(&mut second.0, &share).await;
        look(&mut third.0, &share).await;
        assert!(second.0.growing.is_some() && third.0.growing.is_some());
        look(&mut second.0, &share).await;
        drop(first);
        look(&mut third.0, &share).await;
        assert!(third.0.growing.is_some(), "it came later");
        look(&mut second.0, &share).await;
        assert!(second.0.growing.is_none());
    }

    /// Room that came while the connection wrote something else was kept, and its client was never late.
    #[tokio::test]
    async fn who_has_room_is_late_also_while_something_is_written() {
        let users = Users::new(1024, RateLimit::default(), Arc::default());
        let share = users.connect(1).ok().unwrap();
        let mut first = share.frame(REQUEST_BYTES_MAX).unwrap();
        assert!(first.grow_now(SMALL_FRAME));
        let (mut second, _client, _write) = reader(REQUEST_BYTES_MAX).await;
        look(&mut second, &share).await;
        assert!(second.growing.is_some());
        let poll = |reader: &mut FrameReader, most| {
            let stall = std::pin::pin!(reader.stall(most));
            stall.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
        };
        assert!(
            poll(&mut second, Duration::ZERO).is_pending(),
            "it waits for room"
        );
        drop(first);
        assert!(poll(&mut second, Duration::MAX).is_pending(), "it has time");
        assert!(second.growing.is_none() && second.room.is_some());
        second.stall(Duration::ZERO).await;
    }
}
