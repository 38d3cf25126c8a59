//! Messages of the writer to the replica. Their bytes are bounded: a replica that does not go on, because a disk keeps accounting
//! waiting, would otherwise let the writer fill the memory. Then the writer waits, and with it all acknowledgements.

use crate::backlog::Backlog;
use crate::mail::ToReplica;
use crate::watchdog::ThreadHeartbeat;
use muster_core::event::Event;
use muster_core::state::DisplayUpdate;
use muster_journal::Position;
use muster_model::ids::JobId;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Bytes that may wait: of events in the journal, and of what holds them in memory.
const BYTES_MAX: usize = 256 << 20;

/// The writer's end.
pub(crate) struct ReplicaFeed {
    send: Sender<ToReplica>,
    backlog: Arc<Backlog>,
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
        events: Vec<Event>,
        notes: Vec<DisplayUpdate>,
        pulse: &ThreadHeartbeat,
    ) {
        let in_memory = events.len().saturating_mul(size_of::<Event>());
        let encoded = usize::try_from(bytes).unwrap_or(usize::MAX);
        let counted =
            self.backlog
                .wait_for_room(encoded.saturating_add(in_memory), BYTES_MAX, pulse);
        let _ = self.send.send(ToReplica::Batch {
            first,
            bytes,
            events: Arc::new(events),
            notes,
            counted,
        });
    }

    /// Sends what somebody has to say to the holder of an allocation. Waits likewise.
    pub(crate) fn notify(&self, job: JobId, text: String, pulse: &ThreadHeartbeat) {
        let bytes = size_of::<ToReplica>() + text.len();
        let counted = self.backlog.wait_for_room(bytes, BYTES_MAX, pulse);
        let _ = self.send.send(ToReplica::Notify { job, text, counted });
    }

    pub(crate) fn stop(&self) {
        let _ = self.send.send(ToReplica::Stop);
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(crate) fn waiting_bytes(&self) -> usize {
        *self.backlog.bytes()
    }
}
