//! The working lists of a pass. Their memory is handed on from one pass to the next.

use super::{PartPass, PassingKey, UnblockedLane};
use crate::nodes::node_map::{NumberMap, NumberSet};
use crate::order::{LaneHead, QueueKey};
use muster_model::ids::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The lists; empty between passes.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(super) parts: Vec<PartPass>,
    /// Lanes whose turn comes in the order of the queue.
    pub(super) heap: BinaryHeap<Reverse<LaneHead>>,
    /// Lanes behind the first that waits, shortest first, where run times are predicted.
    pub(super) passing: BinaryHeap<Reverse<PassingKey>>,
    /// Lanes that did not fit and may fit now, in the order in which they are tried, with what their partition must
    /// have gained.
    pub(super) unblocked: BinaryHeap<Reverse<UnblockedLane>>,
    /// Lanes that are or were in the heap.
    pub(super) seen: NumberSet<u32>,
    /// Where a lane goes on in its shape's queue.
    pub(super) cursor: NumberMap<u32, QueueKey>,
    /// How many more tasks of a record may start; 0 once a job was started.
    pub(super) left: NumberMap<JobId, u32>,
}

impl Lists {
    /// Forgets what is in them, and the space that they took if that was much: to empty a table takes as long as it is.
    pub(super) fn clear(&mut self) {
        const MUCH: usize = 1 << 12;
        self.parts.clear();
        self.heap.clear();
        self.passing.clear();
        self.unblocked.clear();
        if self.seen.capacity().max(self.left.capacity()) > MUCH {
            (self.seen, self.cursor, self.left) = Default::default();
        }
        self.seen.clear();
        self.cursor.clear();
        self.left.clear();
    }
}
