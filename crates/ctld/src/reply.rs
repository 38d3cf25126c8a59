//! Where the answer to a command goes. The answer to a submission is written by the writer itself: that spares the
//! event loop a wake and its client the wait for it. The connection's task is told only if it asks meanwhile.

use crate::stats::Stats;
use muster_core::command::Reply;
use muster_proto::client::Response;
use muster_proto::frame;
use nix::sys::socket::{MsgFlags, send};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Instant;
use tokio::sync::oneshot;

/// Where a command's answer goes once it is durable.
pub enum ReplyTo {
    /// To whoever waits for it.
    Task(oneshot::Sender<Reply>),
    /// Straight to the client.
    Socket(Direct),
}

impl From<oneshot::Sender<Reply>> for ReplyTo {
    fn from(task: oneshot::Sender<Reply>) -> ReplyTo {
        ReplyTo::Task(task)
    }
}

impl ReplyTo {
    /// Sends the answer, or gives it to the task of the connection, which may already be gone.
    pub(crate) fn send(self, reply: Reply, stats: &Stats) {
        match self {
            ReplyTo::Task(task) => drop(task.send(reply)),
            ReplyTo::Socket(direct) => direct.send(reply, stats),
        }
    }
}

/// Neither answered nor asked for.
const OPEN: u8 = 0;
/// The whole answer was written.
const ANSWERED: u8 = 1;
/// The task of the connection waits to be told.
const ASKED: u8 = 2;

/// The writer's end of a client's socket.
pub struct Direct {
    socket: OwnedFd,
    state: Arc<AtomicU8>,
    rest: oneshot::Sender<Vec<u8>>,
    kind: &'static str,
    uid: u32,
    since: Instant,
}

/// The connection's end: what is left to do about an answer.
pub(crate) struct Pending {
    state: Arc<AtomicU8>,
    rest: oneshot::Receiver<Vec<u8>>,
}

impl Direct {
    /// Both ends, for a request of this kind and user that is served from now.
    pub(crate) fn new(socket: OwnedFd, kind: &'static str, uid: u32) -> (Direct, Pending) {
        let state = Arc::new(AtomicU8::new(OPEN));
        let (rest, left) = oneshot::channel();
        let pending = Pending {
            state: Arc::clone(&state),
            rest: left,
        };
        let direct = Direct {
            socket,
            state,
            rest,
            kind,
            uid,
            since: Instant::now(),
        };
        (direct, pending)
    }

    fn send(self, reply: Reply, stats: &Stats) {
        let mut bytes = frame::encode(&Response::Reply(Box::new(reply)));
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        // What the socket does not take now, and every error, is the task's business.
        let sent = send(self.socket.as_raw_fd(), &bytes, flags).unwrap_or(0);
        let us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        stats.request(self.kind, self.uid, us);
        bytes.drain(..sent);
        if !bytes.is_empty() || self.state.swap(ANSWERED, AcqRel) == ASKED {
            let _ = self.rest.send(bytes);
        }
    }
}

impl Pending {
    /// The client sent something or closed: whether its request is answered already. If not, [`Pending::rest`] is told
    /// of the answer from now on.
    pub(crate) fn is_answered(&self) -> bool {
        self.state.swap(ASKED, AcqRel) == ANSWERED
    }

    /// What is left of the answer to be written, as soon as that is known.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) async fn rest(&mut self) -> Result<Vec<u8>, oneshot::error::RecvError> {
        (&mut self.rest).await
    }
}
