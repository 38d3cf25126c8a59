//! Unix sockets of the agent. Sockets of the async runtime wake the agent each time that the other
//! side has read, several times per step and to no purpose. These ask for write readiness only
//! after a write has found the socket full.

use crate::descriptors;
use crate::sys;
use muster_proto::frame::{Frames, Message};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// A connection; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Socket(Arc<AsyncFd<UnixStream>>);

impl Socket {
    /// Wraps a connection.
    pub(super) fn new(stream: UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        let fd = sys::watch(stream, Interest::READABLE)?;
        Ok(Socket(Arc::new(fd)))
    }

    /// Connects.
    pub(super) async fn connect(path: &Path) -> io::Result<Socket> {
        Socket::new(tokio::net::UnixStream::connect(path).await?.into_std()?)
    }

    /// Receives available bytes and the descriptors that come with them; returns the number of
    /// bytes, 0 at the end. A client sends its request at once, so it may be there before the
    /// runtime reports it.
    pub(super) fn receive_now(
        &self,
        frames: &mut Frames,
        received: &mut VecDeque<OwnedFd>,
    ) -> io::Result<usize> {
        receive_into(self.0.get_ref(), frames, received)
    }

    /// As above, after waiting until bytes are available.
    pub(super) async fn receive(
        &self,
        frames: &mut Frames,
        received: &mut VecDeque<OwnedFd>,
    ) -> io::Result<usize> {
        self.receive_by(|stream| receive_into(stream, frames, received))
            .await
    }

    /// Reads available bytes after waiting for them; 0 at the end.
    pub(super) async fn read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        self.receive_by(|mut stream| stream.read(chunk)).await
    }

    async fn receive_by(
        &self,
        mut read: impl FnMut(&UnixStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| read(fd.get_ref())) {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                // Not ready after all.
                Err(_) => {}
            }
        }
    }

    /// Writes all.
    pub(super) async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.0.get_ref();
        let mut done = 0;
        while done < bytes.len() {
            match stream.write(&bytes[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.until_writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The stream, if this is its only clone.
    pub(super) fn into_stream(self) -> Option<UnixStream> {
        Arc::into_inner(self.0).map(AsyncFd::into_inner)
    }

    /// Writes as much as the socket takes at once.
    pub(super) fn write_some(&self, bytes: &[u8]) {
        // The client may have disconnected, or may not read.
        let _ = self.0.get_ref().write(bytes);
    }

    /// As above; returns the number of bytes.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.get_ref().write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                written => return written,
            }
        }
    }

    /// Ends the connection, also for its readers.
    pub(super) fn close(&self) {
        // The connection may have ended already.
        let _ = self.0.get_ref().shutdown(Shutdown::Both);
    }

    /// Waits until the socket takes more.
    pub(super) async fn until_writable(&self) -> io::Result<()> {
        let other = self.0.get_ref().try_clone()?;
        let other = sys::watch(other, Interest::WRITABLE)?;
        other.writable().await?.retain_ready();
        Ok(())
    }
}

thread_local! {
    /// Buffer shared by all connections: a separate buffer for each would have to be cleared each
    /// time.
    static CHUNK: RefCell<Vec<u8>> = RefCell::new(vec![0; 8 << 10]);
}

fn receive_into(
    stream: &UnixStream,
    frames: &mut Frames,
    received: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    CHUNK.with_borrow_mut(|chunk| {
        let n = descriptors::receive(stream, chunk, received)?;
        frames.push(&chunk[..n]);
        Ok(n)
    })
}

/// Writes what the outlet receives, until either end is gone.
pub(super) fn spawn_writer(socket: Socket) -> super::Outlet {
    let (outlet, mut inbox) = mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        while let Some(mut bytes) = inbox.recv().await {
            while let Ok(more) = inbox.try_recv() {
                bytes.extend_from_slice(&more);
            }
            if socket.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    outlet
}

/// As above, and receives descriptors; those of a message arrive before the message.
pub(super) async fn receive_frames<T: for<'b> minicbor::Decode<'b, ()> + Message>(
    socket: &Socket,
    received: &mut VecDeque<OwnedFd>,
    mut take: impl FnMut(T, &mut VecDeque<OwnedFd>),
) -> String {
    let mut frames = Frames::default();
    loop {
        match socket.receive(&mut frames, received).await {
            Ok(0) => return "closed by the other side".to_owned(),
            Ok(_) => {}
            Err(e) => return e.to_string(),
        }
        loop {
            match frames.take() {
                Ok(Some(message)) => take(message, received),
                Ok(None) => break,
                Err(e) => return e.to_string(),
            }
        }
    }
}

/// Passes on every frame until the stream ends; returns the reason for the end.
pub(super) async fn read_frames<T: for<'b> minicbor::Decode<'b, ()> + Message>(
    socket: Socket,
    mut take: impl FnMut(T),
) -> String {
    let mut frames = Frames::default();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match socket.read(&mut chunk).await {
            Ok(0) => return "closed by the other side".to_owned(),
            Ok(n) => frames.push(&chunk[..n]),
            Err(e) => return e.to_string(),
        }
        loop {
            match frames.take() {
                Ok(Some(message)) => take(message),
                Ok(None) => break,
                Err(e) => return e.to_string(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends more than a socket takes, so the writer waits for the reader.
    #[tokio::test]
    async fn what_does_not_fit_waits() {
        let (near, far) = UnixStream::pair().unwrap();
        let (near, far) = (Socket::new(near).unwrap(), Socket::new(far).unwrap());
        let sent: Vec<u8> = (0..4 << 20).map(|n: u32| n.to_le_bytes()[0]).collect();
        let bytes = sent.clone();
        let writer = tokio::spawn(async move { near.write_all(&bytes).await });
        let (mut got, mut chunk) = (Vec::new(), vec![0; 100_000]);
        loop {
            let n = far.read(&mut chunk).await.unwrap();
            if n == 0 {
                break;
            }
            got.extend_from_slice(&chunk[..n]);
        }
        writer.await.unwrap().unwrap();
        assert!(got == sent);
    }
}
