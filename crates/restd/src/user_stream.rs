//! A connection of a local user's. What descriptors come by it, which nobody wants, are closed where nobody waits for that.

use muster_closer::passed;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// See the module.
pub(crate) struct UserStream {
    /// None while it is being closed.
    stream: Option<UnixStream>,
    /// The user at the other end: a number of no user if that is not known.
    uid: u32,
}

impl UserStream {
    /// Takes over a connection.
    pub(crate) fn new(stream: UnixStream, uid: Option<u32>) -> UserStream {
        UserStream {
            stream: Some(stream),
            uid: uid.unwrap_or(u32::MAX),
        }
    }

    /// For writing, which is as with any other.
    fn writer(&mut self) -> io::Result<Pin<&mut UnixStream>> {
        let stream = self.stream.as_mut().map(Pin::new);
        stream.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for UserStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(stream) = &self.stream else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        loop {
            ready!(stream.poll_read_ready(context))?;
            let unfilled = room.initialize_unfilled();
            let read = stream.try_io(Interest::READABLE, || {
                passed::receive_into(self.uid, stream, unfilled)
            });
            match read {
                Ok(count) => {
                    room.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // It is not, then.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncWrite for UserStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer()?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer()?.poll_shutdown(context)
    }
}

impl Drop for UserStream {
    fn drop(&mut self) {
        if let Some(Ok(stream)) = self.stream.take().map(UnixStream::into_std) {
            passed::close(self.uid, stream.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt::Linger};
    use std::io::{IoSlice, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;
    use std::time::{Duration, Instant};
    use tokio::io::AsyncReadExt as _;

    /// A socket whose close takes as long as its peer does not read, at most a time that is longer than the test's; and the peer.
    fn slow_to_close() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let linger = nix::libc::linger {
            l_onoff: 1,
            l_linger: 20,
        };
        setsockopt(&sender, Linger, &linger).unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.write(&[0; 64 << 10]).is_ok() {}
        (sender, peer)
    }

    fn pass(over: &std::os::unix::net::UnixStream, descriptor: TcpStream) {
        let rights = [descriptor.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&rights)];
        let bytes = [IoSlice::new(b"x")];
        sendmsg::<()>(over.as_raw_fd(), &bytes, &control, MsgFlags::empty(), None).unwrap();
    }

    /// On kernels that cannot refuse descriptors, they come.
    #[tokio::test]
    async fn descriptors_that_are_slow_to_close_hold_up_no_other_connection() {
        passed::start().unwrap();
        let (client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let server = UnixStream::from_std(server).unwrap();
        let mut server = UserStream::new(server, Some(4_000_000_011));
        (&client).write_all(b"GET").unwrap();
        let mut read = [0; 8];
        assert_eq!(server.read(&mut read).await.unwrap(), 3);
        let (received, _peer) = slow_to_close();
        pass(&client, received);
        let begun = Instant::now();
        let refused = server.read(&mut read).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let (unread, _other_peer) = slow_to_close();
        pass(&client, unread);
        drop(server);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
