//! Messages that wait to be written to a connection: answers, and notices that are sent at their time. A client that does not
//! read would have the controller keep all answers that it asks for: bytes are counted by user and for all, and beyond a bound
//! no more are kept for it.

use muster_channel::admission::{ByteBounds, ByteCount};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes that wait to be written. Of one user: a listing of the largest queue, with all its texts, has a fraction of that.
pub(crate) const UNREAD: ByteBounds = ByteBounds {
    own: 256 << 20,
    all: 1 << 30,
    few: 4 << 20,
};

/// The memory of a message beside its bytes: short ones would cost more than they count.
const FIXED_BYTES: usize = 64;

/// State that both ends share.
#[derive(Debug)]
struct Account {
    /// None for users without limits.
    count: Option<ByteCount>,
    waiting: AtomicUsize,
    /// Messages that were sent and end no wait, less those that the reader has counted.
    interim: AtomicUsize,
    is_over: AtomicBool,
}

/// Where messages to a connection go. Clones lead to the same.
#[derive(Clone, Debug)]
pub struct Outbox {
    sender: UnboundedSender<Vec<u8>>,
    account: Arc<Account>,
}

/// Where they come out.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: UnboundedReceiver<Vec<u8>>,
    account: Arc<Account>,
}

/// The connection is gone, or reads too slowly.
#[derive(Debug, PartialEq, Eq)]
pub struct OutboxError;

/// Both ends, for a user whose bytes are counted, or who has no limits.
pub(crate) fn channel(count: Option<ByteCount>) -> (Outbox, Inbox) {
    let (sender, receiver) = unbounded_channel();
    let account = Arc::new(Account {
        count,
        waiting: AtomicUsize::new(0),
        interim: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    });
    let outbox = Outbox {
        sender,
        account: Arc::clone(&account),
    };
    (outbox, Inbox { receiver, account })
}

impl Outbox {
    /// Adds a message.
    ///
    /// # Errors
    /// The client is gone, or its queue is full: this message, and all that follow, are dropped.
    pub(crate) fn send(&self, bytes: Vec<u8>) -> Result<(), OutboxError> {
        let account = &self.account;
        if account.is_over.load(Relaxed) {
            return Err(OutboxError);
        }
        let length = bytes.len() + FIXED_BYTES;
        if let Some(count) = &account.count
            && count.take(length).is_err()
        {
            account.is_over.store(true, Relaxed);
            return Err(OutboxError);
        }
        account.waiting.fetch_add(length, Relaxed);
        self.sender.send(bytes).map_err(|_| {
            account.give_back(length);
            OutboxError
        })
    }

    /// Adds a message after which the client waits on.
    ///
    /// # Errors
    /// See [`Outbox::send`].
    pub(crate) fn send_interim(&self, bytes: Vec<u8>) -> Result<(), OutboxError> {
        // The message may be taken out before this returns.
        self.account.interim.fetch_add(1, Relaxed);
        self.send(bytes).inspect_err(|_| {
            self.account.interim.fetch_sub(1, Relaxed);
        })
    }

    /// Whether nobody takes messages out any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether all that is sent is dropped: the client is gone, or has read too slowly.
    pub(crate) fn is_gone(&self) -> bool {
        self.account.is_over.load(Relaxed) || self.is_closed()
    }

    /// Whether both lead to the same connection.
    pub(crate) fn is_same(&self, other: &Outbox) -> bool {
        self.sender.same_channel(&other.sender)
    }

    /// Bytes that the client has not been sent yet.
    pub(crate) fn waiting(&self) -> usize {
        self.account.waiting.load(Relaxed)
    }
}

impl Account {
    fn give_back(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Relaxed);
        if let Some(count) = &self.count {
            count.give_back(bytes);
        }
    }
}

impl Inbox {
    /// The next message; none once all senders are gone.
    pub(crate) async fn recv(&mut self) -> Option<Vec<u8>> {
        let bytes = self.receiver.recv().await?;
        self.account.give_back(bytes.len() + FIXED_BYTES);
        Some(bytes)
    }

    /// Whether one of the messages that were taken out ends no wait. Counts it.
    pub(crate) fn take_interim(&self) -> bool {
        let interim = &self.account.interim;
        let counted = interim.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        counted.is_ok()
    }

    /// The next message, if one is there.
    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Option<Vec<u8>> {
        let bytes = self.receiver.try_recv().ok()?;
        self.account.give_back(bytes.len() + FIXED_BYTES);
        Some(bytes)
    }

    /// Whether no message is there now.
    pub(crate) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// Whether messages were dropped since too much waited.
    pub(crate) fn is_over(&self) -> bool {
        self.account.is_over.load(Relaxed)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(bytes) = self.receiver.try_recv() {
            self.account.give_back(bytes.len() + FIXED_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Sixteen connections that read no answer had the controller keep sixteen copies of the queue.
    #[test]
    fn what_is_not_read_is_bounded_by_user_and_for_all() {
        let first = ByteCount::new(UNREAD);
        let fill = |count: &ByteCount| {
            let ends: Vec<_> = (0..16).map(|_| channel(Some(count.clone()))).collect();
            for (out, _) in &ends {
                while out.send(vec![0; MIB - FIXED_BYTES]).is_ok() {}
                assert!(
                    out.send(Vec::new()).is_err(),
                    "nothing follows what is lacking"
                );
            }
            ends
        };
        let of_first = fill(&first);
        assert_eq!(first.own(), UNREAD.own);
        let others: Vec<ByteCount> = (0..5).map(|_| first.of_another()).collect();
        let of_others: Vec<_> = others.iter().map(fill).collect();
        let all = first.all();
        assert!(all <= UNREAD.all, "{all}");
        // A user with little is served all the same.
        let (out, _inbox) = channel(Some(first.of_another()));
        out.send(vec![0; MIB]).unwrap();
        drop((of_first, of_others, _inbox));
        assert_eq!(first.all(), 0);
        let (out, inbox) = channel(None);
        for _ in 0..300 {
            out.send(vec![0; MIB]).unwrap();
        }
        assert!(!inbox.is_over());
    }

    /// A message of ten bytes takes a hundred.
    #[test]
    fn short_messages_count_what_they_take() {
        let count = ByteCount::new(UNREAD);
        let (out, inbox) = channel(Some(count.clone()));
        for _ in 0..100 {
            out.send(vec![0; 6]).unwrap();
        }
        assert_eq!((out.waiting(), count.own()), (7000, 7000));
        drop(inbox);
        assert_eq!(count.all(), 0);
    }

    #[tokio::test]
    async fn what_was_read_makes_room() {
        let count = ByteCount::new(UNREAD);
        let (out, mut inbox) = channel(Some(count.clone()));
        for _ in 0..1000 {
            out.send(vec![0; MIB]).unwrap();
            assert_eq!(inbox.recv().await.unwrap().len(), MIB);
        }
        assert_eq!((out.waiting(), count.own()), (0, 0));
        drop(out);
        assert!(inbox.recv().await.is_none());
    }
}
