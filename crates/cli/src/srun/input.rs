//! Standard input for the tasks. It is read only as fast as the nodes take it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

/// Where input comes from.
pub(super) enum Input {
    /// srun's own.
    Own(io::Stdin),
    /// A file.
    File(File),
    /// Nowhere (any more).
    None,
}

impl Input {
    /// To poll; absent when there is nothing to wait for.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Input::Own(stdin) => Some(stdin.as_fd()),
            Input::File(file) => Some(file.as_fd()),
            Input::None => None,
        }
    }

    /// Reads the available input; empty at the end, after which there is no more.
    pub(super) fn read(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 32 << 10];
        let read = match self {
            // The descriptor itself: a buffer in between would hide bytes from poll.
            Input::Own(stdin) => nix::unistd::read(&*stdin, &mut bytes).map_err(io::Error::from),
            Input::File(file) => file.read(&mut bytes),
            Input::None => return None,
        };
        match read {
            Ok(n) if n > 0 => {
                bytes.truncate(n);
                Some(bytes)
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                None
            }
            _ => {
                *self = Input::None;
                Some(Vec::new())
            }
        }
    }
}
