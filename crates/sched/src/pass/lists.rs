//! The working lists of a pass. Their memory is handed on from one pass to the next.

use crate::nodes::node_map::{NumberMap, NumberSet};
use crate::order::{LaneHead, PreemptTier, QueueKey};
use muster_model::ids::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Order among the lanes that pass by a waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PassingKey {
    pub(super) tier: PreemptTier,
    /// Milliseconds that the job is taken to run, less a credit for its wait; shorter is earlier.
    pub(super) length_ms: i64,
    pub(super) head: LaneHead,
}

/// A lane that did not fit, and may fit once its partition has gained as much as it lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnblockedLane {
    pub(super) key: PassingKey,
    /// The gain with which it may fit.
    pub(super) due: u64,
    pub(super) part: u32,
}

/// The lane whose turn it is.
pub(super) struct NextLane {
    pub(super) head: LaneHead,
    /// It comes in the order of the queue, not among those that pass by.
    pub(super) in_order: bool,
}

/// The state of a partition in a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartPass {
    pub(super) touched: bool,
    /// The first job that waits there.
    pub(super) head: Option<JobId>,
    /// Jobs that had their chance of a reservation.
    pub(super) reservations: u32,
}

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
