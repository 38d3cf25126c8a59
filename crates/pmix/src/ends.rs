//! The sockets of a host, and the function that waits on them.

use crate::control::{FromHost, ToHost};
use muster_proto::frame::{self, Frames};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The connections of a host.
#[derive(Debug)]
pub struct Endpoints {
    /// Socket to the step daemon.
    pub control: UnixStream,
    /// Listener for other hosts, and the address at which they reach it.
    pub listener: Option<(TcpListener, String)>,
}

/// The socket to the step daemon.
pub(crate) struct Control {
    pub(crate) stream: UnixStream,
    input: Frames,
    pub(crate) open: bool,
}

impl Control {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Control> {
        stream.set_nonblocking(false)?;
        Ok(Control {
            stream,
            input: Frames::default(),
            open: true,
        })
    }

    /// The step daemon always reads, so this does not block for long.
    pub(crate) fn send(&mut self, message: &FromHost) {
        if self.stream.write_all(&frame::encode(message)).is_err() {
            self.open = false;
        }
    }

    /// Reads the available bytes; to be called when the socket is readable.
    pub(crate) fn read(&mut self) -> Vec<ToHost> {
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) | Err(_) => self.open = false,
            Ok(n) => self.input.push(&chunk[..n]),
        }
        let mut out = Vec::new();
        while let Ok(Some(message)) = self.input.take() {
            out.push(message);
        }
        out
    }
}

/// Time remaining until the deadline, as a timeout for [`poll`].
pub(crate) fn wait_ms(until: Option<Instant>) -> i32 {
    until.map_or(-1, |at| {
        let wait = at.saturating_duration_since(Instant::now()).as_millis() + 1;
        i32::try_from(wait).unwrap_or(i32::MAX)
    })
}

#[allow(unsafe_code)]
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> io::Result<()> {
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    // SAFETY: pointer and length describe a live slice.
    if unsafe { libc::poll(fds.as_mut_ptr(), count, timeout_ms) } < 0 {
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
        fds.iter_mut().for_each(|f| f.revents = 0);
    }
    Ok(())
}
