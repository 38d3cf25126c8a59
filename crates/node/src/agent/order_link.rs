//! The link on which the launcher receives the agent's orders.

use crate::sys;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use tokio::io::Interest;

/// The writing end, which does not block; clones share it.
#[derive(Clone, Debug)]
pub(super) struct OrderLink(Arc<File>);

impl OrderLink {
    /// Wraps the descriptor.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub(super) fn new(link: OwnedFd) -> io::Result<OrderLink> {
        fcntl(&link, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(OrderLink(Arc::new(link.into())))
    }

    /// Writes as much as the link takes at once; returns the number of bytes.
    ///
    /// # Errors
    /// The launcher is gone.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        // The first write after the launcher's end would succeed.
        if self.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        loop {
            match (&*self.0).write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                written => return written,
            }
        }
    }

    /// Whether the launcher has closed the link.
    fn is_closed(&self) -> bool {
        let mut fds = [libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        }];
        sys::poll(&mut fds, 0).is_err() || fds[0].revents != 0
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// The launcher is gone.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_now(bytes)? {
                0 => self.until_writable().await?,
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// Waits until the link takes more. The link is watched only during the wait: otherwise the
    /// agent would wake up each time that the launcher reads.
    async fn until_writable(&self) -> io::Result<()> {
        let other = sys::watch(self.0.try_clone()?, Interest::WRITABLE)?;
        other.writable().await?.retain_ready();
        Ok(())
    }
}
