//! The link by which the launcher gets the agent's orders.

use crate::sys;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use tokio::io::Interest;

/// The end for writing, which does not block; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct OrderLink(Arc<File>);

impl OrderLink {
    /// Takes it over.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub(super) fn new(link: OwnedFd) -> io::Result<OrderLink> {
        fcntl(&link, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(OrderLink(Arc::new(link.into())))
    }

    /// Writes as much as it takes at once; how many bytes that is.
    ///
    /// # Errors
    /// The launcher is gone.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        // The first write after the launcher's end would go well.
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

    /// Whether the launcher has closed it.
    fn is_closed(&self) -> bool {
        let mut fds = [libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        }];
        sys::poll(&mut fds, 0).is_err() || fds[0].revents != 0
    }

    /// Writes all.
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

    /// Waits until it takes more. It is watched only as long: otherwise the agent would be woken each time that the launcher has
    /// read something.
    async fn until_writable(&self) -> io::Result<()> {
        let other = sys::watch(self.0.try_clone()?, Interest::WRITABLE)?;
        other.writable().await?.retain_ready();
        Ok(())
    }
}
