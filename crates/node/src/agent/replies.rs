//! Replies to clients, until they are read. A client that does not read would make the agent store
//! as much as it requests, so bytes are counted per user and in total, and each connection has a
//! limit too. Beyond a limit nothing more is stored for the connection and its requests are not
//! served: it is closed.

use super::socket::Socket;
use muster_channel::admission::{ByteBounds, ByteCount};
use muster_proto::frame;
use muster_proto::step::AgentReply;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Byte limit of one connection.
pub(super) const UNREAD_BYTES_MAX: usize = 64 << 20;
/// Byte limit of users.
pub(super) const UNREAD: ByteBounds = ByteBounds {
    own: UNREAD_BYTES_MAX,
    all: 256 << 20,
    few: 1 << 20,
};
/// Byte limit of each other agent, which sends requests of several users.
pub(super) const UNREAD_OF_AGENTS: ByteBounds = ByteBounds {
    own: 2 * UNREAD_BYTES_MAX,
    all: 1 << 30,
    few: 1 << 20,
};
/// Room required before a request is served: about the size of a reply on a step of ten thousand
/// tasks.
const REPLY_BYTES: usize = 64 << 10;

/// State shared by both ends.
#[derive(Debug)]
struct ReplyState {
    /// Unset for a client without limits.
    count: OnceLock<ByteCount>,
    waiting: AtomicUsize,
    is_over: AtomicBool,
}

impl ReplyState {
    fn take(&self, bytes: usize) -> bool {
        let fits = self.waiting.load(Relaxed) + bytes <= UNREAD_BYTES_MAX
            && self
                .count
                .get()
                .is_none_or(|count| count.take(bytes).is_ok());
        if fits {
            self.waiting.fetch_add(bytes, Relaxed);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        let had = self.waiting.fetch_sub(bytes, Relaxed);
        debug_assert!(had >= bytes, "bytes are given back once");
        if let Some(count) = self.count.get() {
            count.give_back(bytes);
        }
    }
}

/// The end to which replies are written. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    sender: UnboundedSender<Vec<u8>>,
    account: Arc<ReplyState>,
}

/// The end from which replies are sent.
#[derive(Debug)]
pub(super) struct Inbox {
    receiver: UnboundedReceiver<Vec<u8>>,
    account: Arc<ReplyState>,
}

/// Both ends, for a client whose bytes are counted, or that has no limits.
pub(super) fn channel(count: Option<ByteCount>) -> (Outbox, Inbox) {
    let (sender, receiver) = unbounded_channel();
    let account = Arc::new(ReplyState {
        count: count.map(OnceLock::from).unwrap_or_default(),
        waiting: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    });
    let outbox = Outbox {
        sender,
        account: Arc::clone(&account),
    };
    (outbox, Inbox { receiver, account })
}

impl Outbox {
    /// Adds a reply, unless the client has disconnected or was given up because it does not read.
    pub(super) fn send(&self, reply: &AgentReply) {
        if self.is_over() || self.sender.is_closed() {
            return;
        }
        let bytes = frame::encode(reply);
        let length = bytes.len();
        match self.account.take(length) {
            false => self.give_up(),
            true if self.sender.send(bytes).is_err() => self.account.give_back(length),
            true => {}
        }
    }

    /// Whether a request of the client may be served. If there is no room for the reply, the client
    /// is given up.
    pub(super) fn may_ask(&self) -> bool {
        let account = &self.account;
        let fits = account.waiting.load(Relaxed) + REPLY_BYTES <= UNREAD_BYTES_MAX;
        let count = account.count.get();
        if !fits || count.is_some_and(|count| count.check(REPLY_BYTES).is_err()) {
            self.give_up();
        }
        !self.is_over()
    }

    /// Counts the client's bytes from now on. Nothing may have been sent to it before.
    pub(super) fn count_for(&self, count: ByteCount) {
        // The owner of the connection is determined once.
        let _ = self.account.count.set(count);
    }

    /// Whether the client was given up.
    pub(super) fn is_over(&self) -> bool {
        self.account.is_over.load(Relaxed)
    }

    /// Whether a request of the client is queued, or its effect is not over.
    pub(super) fn is_awaited(&self) -> bool {
        self.sender.strong_count() > 1
    }

    fn give_up(&self) {
        if !self.account.is_over.swap(true, Relaxed) {
            // Wakes the sending task, which may have ended.
            let _ = self.sender.send(Vec::new());
        }
    }
}

impl Inbox {
    /// Whether no reply was added.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// Number of added replies.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.receiver.len()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.receiver.close();
        self.account.give_back(self.account.waiting.load(Relaxed));
    }
}

/// Sends replies as they are added. Ends the connection of a client that was given up.
pub(super) async fn send(socket: Socket, mut inbox: Inbox) {
    let (mut frames, mut written) = (Vec::new(), 0);
    while let Some(reply) = inbox.receiver.recv().await {
        frames.extend(reply);
        while written < frames.len() || inbox.account.is_over.load(Relaxed) {
            while let Ok(more) = inbox.receiver.try_recv() {
                frames.extend(more);
            }
            if inbox.account.is_over.load(Relaxed) {
                return socket.close();
            }
            match socket.write_now(&frames[written..]) {
                Ok(0) => {}
                Ok(more) => {
                    written += more;
                    inbox.account.give_back(more);
                    if written > frames.len() / 2 {
                        frames.drain(..written);
                        written = 0;
                    }
                    continue;
                }
                Err(_) => return,
            }
            tokio::select! {
                writable = socket.until_writable() => if writable.is_err() { return },
                // No more replies follow, but the remaining ones are still sent.
                Some(more) = inbox.receiver.recv() => frames.extend(more),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::refusal::{Refusal, RefusalCode};
    use muster_proto::frame::Frames;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    fn reply_of(bytes: usize) -> AgentReply {
        AgentReply::Refused(Refusal::new(RefusalCode::Busy, "x".repeat(bytes)))
    }

    /// The replies to another agent that did not read them piled up.
    #[tokio::test]
    async fn replies_that_are_not_read_end_a_connection() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (out, inbox) = channel(None);
        let large = reply_of(1 << 20);
        (0..3).for_each(|_| out.send(&large));
        let sending = tokio::spawn(send(Socket::new(near).unwrap(), inbox));
        let mut frames = Frames::default();
        let reader = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; 64 << 10];
            let mut count = 0;
            while count < 3 {
                let n = far.read(&mut chunk).unwrap();
                frames.push(&chunk[..n]);
                while let Some(AgentReply::Refused(_)) = frames.take().unwrap() {
                    count += 1;
                }
            }
            far
        });
        let _far = reader.await.unwrap();
        assert!(out.may_ask());
        (0..=UNREAD_BYTES_MAX >> 20).for_each(|_| out.send(&large));
        sending.await.unwrap();
        assert!(out.is_over() && !out.may_ask());
        assert_eq!(out.account.waiting.load(Relaxed), 0);
    }

    /// Earlier, each of a thousand connections had its own limit.
    #[tokio::test]
    async fn what_a_user_does_not_read_is_bounded_by_user_and_for_all() {
        let first = ByteCount::new(UNREAD);
        let reply = reply_of(40_000);
        let ask = |count: &ByteCount| {
            let ends: Vec<_> = (0..100).map(|_| channel(Some(count.clone()))).collect();
            for (out, _) in &ends {
                (0..64)
                    .filter(|_| out.may_ask())
                    .for_each(|_| out.send(&reply));
            }
            ends
        };
        let of_first = ask(&first);
        assert!(first.own() > UNREAD.own - 2 * REPLY_BYTES && first.own() <= UNREAD.own);
        let over = of_first.iter().filter(|(out, _)| out.is_over()).count();
        assert!((70..80).contains(&over), "{over}");
        let others: Vec<ByteCount> = (0..20).map(|_| first.of_another()).collect();
        let _of_others: Vec<_> = others.iter().map(ask).collect();
        assert!(first.all() <= UNREAD.all, "{}", first.all());
        // A client with few bytes is served all the same.
        let (out, inbox) = channel(Some(first.of_another()));
        assert!(out.may_ask());
        out.send(&reply);
        assert!(!out.is_over());
        drop((of_first, inbox));
        assert_eq!(first.own(), 0);
        out.send(&reply);
        assert_eq!(out.account.waiting.load(Relaxed), 0, "it is gone");
    }
}
