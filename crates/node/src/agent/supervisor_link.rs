//! What the agent asks its supervisor for: connections, and sockets of jobs. See [`crate::supervisor::lines`].

use super::socket::Socket;
use crate::supervisor::lines::{SocketRequest, peer_request, take_answer};
use crate::{descriptors, sys};
use muster_core::ids::JobId;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

/// How long the agent waits for the socket of a job. The supervisor has nothing else to do as a rule; meanwhile the agent
/// does nothing.
const SOCKET_WAIT: Duration = Duration::from_secs(1);

/// Asks for connections to one place, one at a time.
#[derive(Debug)]
pub(super) struct Dialer(AsyncFd<OwnedFd>);

impl Dialer {
    /// Has to be called with the runtime there.
    pub(super) fn new(line: OwnedFd) -> io::Result<Dialer> {
        Ok(Dialer(sys::watch(line, Interest::READABLE)?))
    }

    /// A new connection to the only place.
    pub(super) async fn connect(&self) -> io::Result<Socket> {
        self.ask(0, b"c").await
    }

    /// A connection that is asked for under this number. There is at most one request under way.
    async fn ask(&self, number: u64, request: &[u8]) -> io::Result<Socket> {
        descriptors::send(self.0.get_ref(), request, &[])?;
        let answer = |line: &OwnedFd| take_answer(line);
        loop {
            let (of, connected) = self.0.async_io(Interest::READABLE, answer).await?;
            // Others are for requests that were given up.
            if of == number {
                return Socket::new(UnixStream::from(connected?));
            }
        }
    }
}

/// Asks for connections to other agents, for several at a time.
#[derive(Debug)]
pub(crate) struct PeerDialer(Mutex<(Dialer, u64)>);

impl PeerDialer {
    /// Has to be called with the runtime there.
    pub(super) fn new(line: OwnedFd) -> io::Result<PeerDialer> {
        Ok(PeerDialer(Mutex::new((Dialer::new(line)?, 0))))
    }

    /// A new connection to the agent whose socket has this path.
    pub(super) async fn connect(&self, path: &str) -> io::Result<Socket> {
        let mut dialer = self.0.lock().await;
        let (dialer, last) = &mut *dialer;
        *last += 1;
        dialer.ask(*last, &peer_request(*last, path)).await
    }
}

/// Asks for sockets of jobs.
#[derive(Debug)]
pub(super) struct JobSockets(OwnedFd);

impl JobSockets {
    pub(super) fn new(line: OwnedFd) -> JobSockets {
        JobSockets(line)
    }

    /// Where a job's owner asks for further steps.
    pub(super) fn open(&self, job: JobId, uid: u32) -> io::Result<UnixListener> {
        self.say(SocketRequest::Open(job, uid))?;
        let until = Instant::now() + SOCKET_WAIT;
        loop {
            match take_answer(&self.0) {
                // An answer that had come too late for the one who waited.
                Ok((of, _)) if of != job.0 => {}
                Ok((_, socket)) => return Ok(UnixListener::from(socket?)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(until)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the supervisor does not answer",
            )),
            _ => Ok(()),
        }
    }

    /// It is not needed any more.
    pub(super) fn close(&self, job: JobId) {
        if let Err(e) = self.say(SocketRequest::Close(job)) {
            log::warn!("the socket of job {job} is not removed: {e}");
        }
    }

    fn say(&self, request: SocketRequest) -> io::Result<()> {
        let bytes = minicbor::to_vec(request).map_err(io::Error::other)?;
        descriptors::send(&self.0, &bytes, &[]).map(drop)
    }
}
