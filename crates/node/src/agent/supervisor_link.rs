//! What the agent asks its supervisor for: connections, and sockets of jobs. See [`crate::supervisor::lines`].

use super::socket::Socket;
use crate::supervisor::lines::{RequestSender, SupervisorRequest, take_answer};
use crate::sys;
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
pub(super) struct Dialer {
    answers: AsyncFd<OwnedFd>,
    requests: RequestSender,
}

impl Dialer {
    /// Has to be called with the runtime there.
    pub(super) fn new(answers: OwnedFd, requests: RequestSender) -> io::Result<Dialer> {
        Ok(Dialer {
            answers: sys::watch(answers, Interest::READABLE)?,
            requests,
        })
    }

    /// A new connection to the launcher.
    pub(super) async fn connect_launcher(&self) -> io::Result<Socket> {
        self.ask(0, &SupervisorRequest::ConnectLauncher).await
    }

    /// A new connection to the controller.
    pub(super) async fn connect_controller(&self) -> io::Result<Socket> {
        self.ask(0, &SupervisorRequest::ConnectController).await
    }

    /// A connection that is asked for under this number. There is at most one request under way.
    async fn ask(&self, number: u64, request: &SupervisorRequest) -> io::Result<Socket> {
        self.requests.send(request)?;
        let answer = |line: &OwnedFd| take_answer(line);
        loop {
            let (of, connected) = self.answers.async_io(Interest::READABLE, answer).await?;
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
    pub(super) fn new(answers: OwnedFd, requests: RequestSender) -> io::Result<PeerDialer> {
        Ok(PeerDialer(Mutex::new((Dialer::new(answers, requests)?, 0))))
    }

    /// A new connection to the agent whose socket has this path. The supervisor has said by it which node this is.
    pub(super) async fn connect(&self, path: &str) -> io::Result<Socket> {
        let mut dialer = self.0.lock().await;
        let (dialer, last) = &mut *dialer;
        *last += 1;
        let request = SupervisorRequest::ConnectPeer {
            number: *last,
            path: path.to_owned(),
        };
        dialer.ask(*last, &request).await
    }
}

/// Asks for sockets of jobs.
#[derive(Debug)]
pub(super) struct JobSockets {
    answers: OwnedFd,
    requests: RequestSender,
}

impl JobSockets {
    pub(super) fn new(answers: OwnedFd, requests: RequestSender) -> JobSockets {
        JobSockets { answers, requests }
    }

    /// Where a job's owner asks for further steps.
    pub(super) fn open(&self, job: JobId, uid: u32) -> io::Result<UnixListener> {
        let request = SupervisorRequest::OpenJobSocket(job, uid);
        self.requests.send(&request)?;
        let until = Instant::now() + SOCKET_WAIT;
        loop {
            match take_answer(&self.answers) {
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
        let mut fds = [PollFd::new(self.answers.as_fd(), PollFlags::POLLIN)];
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
        if let Err(e) = self.requests.send(&SupervisorRequest::CloseJobSocket(job)) {
            log::warn!("the socket of job {job} is not removed: {e}");
        }
    }
}
