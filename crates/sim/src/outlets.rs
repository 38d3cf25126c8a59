//! The writer's surroundings as it sees them: the far ends of all its channels, and the journal, which is watched.
//! The watch learns what became durable and sees whether anything left the writer before it was.

use crate::Plant;
use muster_core::event::Event;
use muster_ctld::mail::{ToLink, ToReplica};
use muster_journal::{Batch, Error, FileLog, FinishedSnapshot, Log, Position, SnapshotWriter};
use muster_model::command::Reply;
use muster_model::ids::NodeIdx;
use muster_model::refusal::Refusal;
use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::oneshot;

/// A thread of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Panics before its turn is in the journal.
    WriterBeforeCommit,
    /// Panics when its turn is durable and nobody knows.
    WriterAfterCommit,
    /// Reads are not answered any more, and snapshots not made.
    Replica,
    /// Rows do not reach the store any more.
    Accounting,
    /// Forecasts.
    Forecaster,
    /// The site's programs.
    Programs,
    /// Connections.
    EventLoop,
}

/// Number of a connection; the controller knows it as the generation.
pub(crate) type Conn = u64;
/// Number of a client's request.
pub(crate) type RequestId = u64;

/// Far ends of the writer's channels.
pub(crate) struct Outlets {
    /// Channel of the replica.
    pub(crate) replica: Receiver<ToReplica>,
    /// Channels of nodes' connections.
    pub(crate) links: BTreeMap<Conn, UnboundedReceiver<ToLink>>,
    /// Channels of connections whose hello is being decided.
    pub(crate) answers: BTreeMap<Conn, oneshot::Receiver<Result<NodeIdx, Refusal>>>,
    /// Channels of clients that wait.
    pub(crate) replies: BTreeMap<RequestId, oneshot::Receiver<Reply>>,
}

/// Messages that came out of them.
#[derive(Default)]
pub(crate) struct Outputs {
    /// For the replica.
    pub(crate) replica: Vec<ToReplica>,
    /// For nodes.
    pub(crate) links: Vec<(Conn, ToLink)>,
    /// Answers to hellos.
    pub(crate) answers: Vec<(Conn, Result<NodeIdx, Refusal>)>,
    /// Answers to clients.
    pub(crate) replies: Vec<(RequestId, Reply)>,
    /// Connections that the writer let go.
    pub(crate) closed: Vec<Conn>,
}

impl Outlets {
    /// Takes everything that was sent.
    pub(crate) fn drain(&mut self, out: &mut Outputs) {
        out.replica.extend(self.replica.try_iter());
        self.answers.retain(|conn, answer| match answer.try_recv() {
            Ok(found) => {
                out.answers.push((*conn, found));
                false
            }
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(oneshot::error::TryRecvError::Closed) => false,
        });
        self.links.retain(|conn, link| {
            loop {
                match link.try_recv() {
                    Ok(message) => out.links.push((*conn, message)),
                    Err(TryRecvError::Empty) => return true,
                    Err(TryRecvError::Disconnected) => {
                        out.closed.push(*conn);
                        return false;
                    }
                }
            }
        });
        self.replies
            .retain(|request, reply| match reply.try_recv() {
                Ok(found) => {
                    out.replies.push((*request, found));
                    false
                }
                Err(oneshot::error::TryRecvError::Empty) => true,
                Err(oneshot::error::TryRecvError::Closed) => false,
            });
    }
}

impl Outputs {
    /// The first thing here that rests on events, by name. Refusals of hellos and new settings rest on none.
    fn rests_on_events(&self) -> Option<String> {
        if let Some((request, reply)) = self.replies.first() {
            return Some(format!("the reply to request {request}: {reply:?}"));
        }
        if self
            .replica
            .iter()
            .any(|m| matches!(m, ToReplica::Batch { .. }))
        {
            return Some("a batch for the replica".to_owned());
        }
        if let Some((conn, _)) = self.answers.iter().find(|(_, answer)| answer.is_ok()) {
            return Some(format!("the acceptance of connection {conn}"));
        }
        self.links.iter().find_map(|(conn, message)| match message {
            ToLink::Welcome(..) | ToLink::Order(..) | ToLink::Ack(_) => {
                Some(format!("{} on connection {conn}", name_of(message)))
            }
            ToLink::Settings(_) | ToLink::Stop(_) | ToLink::Replaced => None,
        })
    }
}

/// Kind of a message to a node, in a word.
pub(crate) fn name_of(message: &ToLink) -> &'static str {
    match message {
        ToLink::Welcome(..) => "a welcome",
        ToLink::Order(..) => "an order",
        ToLink::Ack(_) => "an acknowledgement",
        ToLink::Settings(_) => "settings",
        ToLink::Stop(_) => "a stop",
        ToLink::Replaced => "a replacement",
    }
}

/// State of the watch.
pub(crate) struct Shared {
    /// The channels.
    pub(crate) outlets: Outlets,
    /// Results of the turn so far.
    pub(crate) came: Came,
    /// Where the writer panics in its next append.
    pub(crate) panics: Option<Thread>,
}

/// Results of a turn.
#[derive(Default)]
pub(crate) struct Came {
    /// Out of the channels.
    pub(crate) outputs: Outputs,
    /// Events that became durable.
    pub(crate) durable: Vec<(Position, Event)>,
    /// Events of an append that failed in a way that leaves them in doubt.
    pub(crate) doubt: Vec<Event>,
    /// Description of a message that left the writer before its events were durable.
    pub(crate) early: Option<String>,
    /// Bytes that were no event.
    pub(crate) unreadable: Option<String>,
}

/// Takes what came since it was called last.
pub(crate) fn collect(watch: &Watch) -> Came {
    let mut shared = lock(watch);
    let shared = &mut *shared;
    shared.outlets.drain(&mut shared.came.outputs);
    std::mem::take(&mut shared.came)
}

/// Shared between the journal under the writer and the world around it.
pub(crate) type Watch = Arc<Mutex<Shared>>;

/// The watch, locked. One thread uses it, so it is never waited for.
pub(crate) fn lock(watch: &Watch) -> MutexGuard<'_, Shared> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text of a planned panic.
pub(crate) const PLANNED: &str = "planned";

/// The real journal, with the watch beside it.
pub(crate) struct WatchedLog {
    inner: FileLog,
    watch: Watch,
    /// The planted fault: a batch is called durable and kept back until the next one.
    lies: bool,
    kept_back: Option<Batch>,
}

impl WatchedLog {
    /// Watches a journal.
    pub(crate) fn new(inner: FileLog, watch: Watch, plant: Option<Plant>) -> WatchedLog {
        WatchedLog {
            inner,
            watch,
            lies: plant == Some(Plant::EarlyAcknowledgement),
            kept_back: None,
        }
    }
}

impl Log for WatchedLog {
    fn append(&mut self, batch: &Batch) -> Result<Position, Error> {
        let mut events = Vec::with_capacity(batch.len());
        let mut shared = lock(&self.watch);
        for record in batch.iter() {
            match minicbor::decode::<Event>(record) {
                Ok(event) => events.push(event),
                Err(e) => shared.came.unreadable = Some(format!("{e}: {record:02x?}")),
            }
        }
        let Shared { outlets, came, .. } = &mut *shared;
        outlets.drain(&mut came.outputs);
        if came.early.is_none() {
            came.early = came.outputs.rests_on_events();
        }
        if shared.panics == Some(Thread::WriterBeforeCommit) {
            shared.panics = None;
            panic!("{PLANNED}");
        }
        let outcome = match (self.lies, self.kept_back.take()) {
            (false, _) => self.inner.append(batch),
            (true, None) => Ok(0),
            (true, Some(before)) => self.inner.append(&before),
        };
        if self.lies {
            self.kept_back = Some(batch.clone());
        }
        match outcome {
            Ok(_) => {
                let last = self.last_position();
                let first = last + 1 - events.len() as Position;
                shared.came.durable.extend((first..).zip(events));
                if shared
                    .panics
                    .take_if(|t| *t == Thread::WriterAfterCommit)
                    .is_some()
                {
                    panic!("{PLANNED}");
                }
                Ok(last)
            }
            Err(e) => {
                if !(e.is_temporary() || e.is_refusal()) {
                    shared.came.doubt = events;
                }
                Err(e)
            }
        }
    }

    fn last_position(&self) -> Position {
        self.inner.last_position() + self.kept_back.as_ref().map_or(0, |b| b.len() as Position)
    }

    fn start_snapshot(&mut self, position: Position) -> Result<SnapshotWriter, Error> {
        self.inner.start_snapshot(position)
    }

    fn finish_snapshot(&mut self, snapshot: FinishedSnapshot) -> Result<(), Error> {
        self.inner.finish_snapshot(snapshot)
    }
}
