//! The pipe by which the launcher gets the agent's orders.

use crate::sys;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;

/// The end for writing, which does not block; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct OrderPipe(Arc<File>);

impl OrderPipe {
    /// Takes it over.
    pub(super) fn new(pipe: OwnedFd) -> OrderPipe {
        OrderPipe(Arc::new(pipe.into()))
    }

    /// Writes as much as it takes at once; how many bytes that is.
    ///
    /// # Errors
    /// The launcher is gone.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&*self.0).write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                written => return written,
            }
        }
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
