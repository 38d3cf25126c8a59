//! What the writer sends to the replica. The bytes of it that wait there are bounded: a replica that does not go on, because a disk
//! keeps accounting waiting, would otherwise let the writer fill the memory. Then the writer waits, and with it all that is to be
//! acknowledged.

use crate::mail::ToReplica;
use crate::watchdog::{Doing, Pulse};
use muster_core::event::Event;
use muster_core::state::Note;
use muster_journal::Position;
use muster_model::ids::JobId;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that may wait: of events in the journal, and of what holds them in memory.
const BYTES_MAX: usize = 256 << 20;

/// The writer's end.
pub(crate) struct ReplicaFeed {
    send: Sender<ToReplica>,
    backlog: Arc<Backlog>,
}

/// Bytes of messages that the replica has not worked off yet.
#[derive(Debug, Default)]
struct Backlog {
    bytes: Mutex<usize>,
    fewer: Condvar,
}

impl Backlog {
    fn bytes(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a message, which are counted until this is dropped.
#[derive(Debug)]
pub struct WaitingBytes {
    bytes: usize,
    backlog: Arc<Backlog>,
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        let mut all = self.backlog.bytes();
        *all = all.saturating_sub(self.bytes);
        drop(all);
        self.backlog.fewer.notify_all();
    }
}

impl ReplicaFeed {
    pub(crate) fn new(send: Sender<ToReplica>) -> ReplicaFeed {
        ReplicaFeed {
            send,
            backlog: Arc::default(),
        }
    }

    /// Sends durable events, the first of them at `first`, and notes. Waits until there is room.
    pub(crate) fn batch(
        &self,
        first: Position,
        bytes: u64,
        (events, notes): (Vec<Event>, Vec<Note>),
        pulse: &Pulse,
    ) {
        let in_memory = events.len().saturating_mul(size_of::<Event>());
        let encoded = usize::try_from(bytes).unwrap_or(usize::MAX);
        let counted = self.wait_for_room(encoded.saturating_add(in_memory), BYTES_MAX, pulse);
        let _ = self.send.send(ToReplica::Batch {
            first,
            bytes,
            events: Arc::new(events),
            notes,
            counted,
        });
    }

    /// Sends what somebody has to say to the holder of an allocation. Waits likewise.
    pub(crate) fn tell(&self, job: JobId, text: String, pulse: &Pulse) {
        let bytes = size_of::<ToReplica>() + text.len();
        let counted = self.wait_for_room(bytes, BYTES_MAX, pulse);
        let _ = self.send.send(ToReplica::Tell { job, text, counted });
    }

    pub(crate) fn stop(&self) {
        let _ = self.send.send(ToReplica::Stop);
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(crate) fn waiting_bytes(&self) -> usize {
        *self.backlog.bytes()
    }

    /// Counts bytes once no more than `most` wait with them, or no others.
    fn wait_for_room(&self, bytes: usize, most: usize, pulse: &Pulse) -> WaitingBytes {
        let is_full = |waiting: &usize| *waiting > 0 && waiting.saturating_add(bytes) > most;
        let mut waiting = self.backlog.bytes();
        if is_full(&waiting) {
            pulse.goes_on(Doing::Handing);
            let fewer = &self.backlog.fewer;
            waiting = (fewer.wait_while(waiting, |waiting| is_full(waiting)))
                .unwrap_or_else(PoisonError::into_inner);
            pulse.goes_on(Doing::Sending);
        }
        *waiting = waiting.saturating_add(bytes);
        drop(waiting);
        WaitingBytes {
            bytes,
            backlog: Arc::clone(&self.backlog),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::time::Duration;

    /// The channel took whatever the writer sent, as fast as the disk of the journal let it, while another kept the replica waiting.
    #[test]
    fn the_writer_waits_for_a_replica_that_is_too_far_behind() {
        let (send, _receive) = channel();
        let feed = ReplicaFeed::new(send);
        let pulse = Pulse::new("writer");
        // A message that is larger is sent alone.
        let large = feed.wait_for_room(300, 100, &pulse);
        drop(large);
        let first = feed.wait_for_room(60, 100, &pulse);
        let second = feed.wait_for_room(40, 100, &pulse);
        pulse.begin(Doing::Sending);
        std::thread::scope(|scope| {
            let (done, is_done) = channel();
            let (feed, pulse) = (&feed, &pulse);
            let writer = scope.spawn(move || {
                let third = feed.wait_for_room(50, 100, pulse);
                done.send(()).unwrap();
                drop(third);
            });
            // While it waits it does not count as stuck.
            while pulse.busy().is_some() && !writer.is_finished() {
                std::thread::yield_now();
            }
            assert_eq!(is_done.try_recv(), Err(TryRecvError::Empty));
            // Not enough for it.
            drop(second);
            assert_eq!(is_done.try_recv(), Err(TryRecvError::Empty));
            drop(first);
            is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        });
        assert_eq!(feed.waiting_bytes(), 0);
    }
}
