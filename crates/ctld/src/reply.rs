//! Where the answer to a command goes. The answer to a submission is written by the writer itself: that spares the
//! event loop a wake and its client the wait for it. The connection's task is woken only if it asks meanwhile.

use crate::audit::Entry;
use crate::peer::RequestOrigin;
use crate::stats::Stats;
use muster_core::state::State;
use muster_model::command::{Identity, Reply, UserCommand};
use muster_proto::client::Response;
use muster_proto::frame;
use nix::sys::socket::{MsgFlags, send};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::oneshot;

/// Where a command's answer goes once it is durable.
pub enum ReplyTo {
    /// To the task of a client, and where that is.
    Task(oneshot::Sender<Reply>, RequestOrigin),
    /// Straight to the client.
    Socket(ClientSocket),
    /// To nobody: the controller itself asks. Where that follows from what a user did, it is that user's turn which it takes.
    Own(Option<u32>),
}

impl From<oneshot::Sender<Reply>> for ReplyTo {
    fn from(task: oneshot::Sender<Reply>) -> ReplyTo {
        ReplyTo::Task(task, RequestOrigin::default())
    }
}

impl ReplyTo {
    /// Where the client is.
    pub(crate) fn place(&self) -> RequestOrigin {
        match self {
            ReplyTo::Task(_, place) => *place,
            ReplyTo::Socket(direct) => direct.place,
            ReplyTo::Own(_) => RequestOrigin::default(),
        }
    }

    /// The user whose doing a request of the controller itself follows from.
    pub(crate) fn because_of(&self) -> Option<u32> {
        match self {
            ReplyTo::Own(because_of) => *because_of,
            ReplyTo::Task(..) | ReplyTo::Socket(_) => None,
        }
    }

    /// The line of the audit log, if somebody asks for it.
    pub(crate) fn entry(
        &self,
        state: &State,
        identity: &Identity,
        command: &UserCommand,
    ) -> Option<Entry> {
        match self {
            ReplyTo::Own(_) => None,
            _ => Entry::of_command(state, identity, command, self.place()),
        }
    }

    /// Sends the answer, or gives it to the task of the connection, which may already be gone.
    pub(crate) fn send(self, reply: Reply, stats: &Stats) {
        match self {
            ReplyTo::Task(task, _) => drop(task.send(reply)),
            ReplyTo::Socket(direct) => direct.send(reply, stats),
            ReplyTo::Own(_) => {}
        }
    }
}

/// Neither answered nor asked for.
const OPEN: u8 = 0;
/// The whole answer was written.
const ANSWERED: u8 = 1;
/// The task of the connection waits to be woken.
const ASKED: u8 = 2;

/// The state of an answer, shared by both ends. An unused sender stays here: if dropped, it would wake the task.
struct Answer {
    state: AtomicU8,
    rest: Mutex<Option<oneshot::Sender<Vec<u8>>>>,
    /// Remarks for the user beside the answer.
    remarks: Mutex<Remarks>,
    kind: &'static str,
}

impl Answer {
    fn take_remarks(&self) -> Remarks {
        std::mem::take(&mut *self.remarks.lock().unwrap_or_else(|e| e.into_inner()))
    }

    fn take_rest(&self) -> Option<oneshot::Sender<Vec<u8>>> {
        self.rest.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

/// The writer's end of a client's socket.
pub struct ClientSocket {
    socket: OwnedFd,
    answer: Arc<Answer>,
    uid: u32,
    place: RequestOrigin,
    since: Instant,
}

/// Remarks for the user beside the writer's answer.
#[derive(Default)]
pub(crate) struct Remarks {
    /// Lines of verifiers.
    pub(crate) lines: Vec<String>,
    /// The job's name, where a verifier has changed it.
    pub(crate) name: Option<String>,
}

impl Remarks {
    /// Adds it to an answer.
    pub(crate) fn add_to(self, reply: &mut Reply) {
        match reply {
            Reply::Submitted { lines, name, .. } => {
                lines.extend(self.lines);
                *name = self.name;
            }
            Reply::Refused(refusal) => refusal.lines.extend(self.lines),
            Reply::Done { .. }
            | Reply::WouldStart { .. }
            | Reply::Reserved { .. }
            | Reply::NodeTaken(_) => {}
        }
    }
}

/// The connection's end: the remaining work on an answer.
pub(crate) struct Pending {
    answer: Arc<Answer>,
    rest: oneshot::Receiver<Vec<u8>>,
}

impl ClientSocket {
    /// Both ends, for a request of this kind, user and place that has come at this time.
    pub(crate) fn new(
        socket: OwnedFd,
        kind: &'static str,
        (uid, place): (u32, RequestOrigin),
        since: Instant,
    ) -> (ClientSocket, Pending) {
        let (rest, left) = oneshot::channel();
        let answer = Arc::new(Answer {
            state: AtomicU8::new(OPEN),
            rest: Mutex::new(Some(rest)),
            remarks: Mutex::default(),
            kind,
        });
        let pending = Pending {
            answer: Arc::clone(&answer),
            rest: left,
        };
        let direct = ClientSocket {
            socket,
            answer,
            uid,
            place,
            since,
        };
        (direct, pending)
    }

    /// The user is answered this as well.
    pub(crate) fn with(self, remarks: Remarks) -> ClientSocket {
        *self
            .answer
            .remarks
            .lock()
            .unwrap_or_else(|e| e.into_inner()) = remarks;
        self
    }

    fn send(self, mut reply: Reply, stats: &Stats) {
        self.answer.take_remarks().add_to(&mut reply);
        let mut bytes = frame::encode(&Response::Reply(Box::new(reply)));
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        // The task sends the bytes that the socket does not take now, and handles every error.
        let sent = send(self.socket.as_raw_fd(), &bytes, flags).unwrap_or(0);
        let us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        stats.request(self.answer.kind, self.uid, us);
        bytes.drain(..sent);
        let complete = bytes.is_empty() && self.answer.state.swap(ANSWERED, AcqRel) != ASKED;
        if !complete && let Some(rest) = self.answer.take_rest() {
            let _ = rest.send(bytes);
        }
    }
}

impl Drop for ClientSocket {
    /// Without an answer, the task must know that none will come.
    fn drop(&mut self) {
        if self.answer.state.load(Acquire) != ANSWERED {
            drop(self.answer.take_rest());
        }
    }
}

impl Pending {
    /// The client sent something or closed: whether its request is answered already. If not, [`Pending::rest`] gets
    /// the answer from now on.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.state.swap(ASKED, AcqRel) == ANSWERED
    }

    /// The rest of the answer, if the writer cannot or must not write it alone.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) async fn rest(&mut self) -> Result<Vec<u8>, oneshot::error::RecvError> {
        (&mut self.rest).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn pair() -> (UnixStream, ClientSocket, Pending) {
        let (client, server) = UnixStream::pair().unwrap();
        let (direct, pending) = ClientSocket::new(
            server.into(),
            "TEST",
            (0, RequestOrigin::default()),
            Instant::now(),
        );
        (client, direct, pending)
    }

    fn rest(pending: &mut Pending) -> Poll<Result<Vec<u8>, oneshot::error::RecvError>> {
        pin!(pending.rest()).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn done() -> Reply {
        Reply::Done {
            changed: 1,
            refused: Vec::new(),
        }
    }

    #[test]
    fn a_written_answer_leaves_the_task_asleep_until_it_asks() {
        let (mut client, direct, mut pending) = pair();
        assert!(rest(&mut pending).is_pending());
        direct.send(done(), &Stats::default());
        let mut bytes = [0; 64];
        let read = client.read(&mut bytes).unwrap();
        assert_eq!(
            bytes[..read],
            frame::encode(&Response::Reply(Box::new(done())))
        );
        assert!(rest(&mut pending).is_pending(), "it need not wake");
        assert!(pending.is_answered());
    }

    #[test]
    fn a_task_that_asked_is_woken() {
        let (_client, direct, mut pending) = pair();
        assert!(!pending.is_answered());
        direct.send(done(), &Stats::default());
        assert_eq!(rest(&mut pending), Poll::Ready(Ok(Vec::new())));
    }

    #[test]
    fn what_the_socket_does_not_take_is_left_to_the_task() {
        let (client, direct, mut pending) = pair();
        drop(client);
        direct.send(done(), &Stats::default());
        let all = frame::encode(&Response::Reply(Box::new(done())));
        assert_eq!(rest(&mut pending), Poll::Ready(Ok(all)));
    }

    #[test]
    fn a_writer_that_stops_is_noticed() {
        let (_client, direct, mut pending) = pair();
        drop(direct);
        assert!(matches!(rest(&mut pending), Poll::Ready(Err(_))));
    }
}
