//! The working lists of a pass. Their memory is handed on from one pass to the next.

use crate::nodes::node_map::{NumberMap, NumberSet};
use crate::order::{LaneHead, PreemptTier, QueueKey};
use muster_model::ids::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Order of the lanes that may pass a waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PassingKey {
    pub(super) tier: PreemptTier,
    /// Assumed run time of the job in milliseconds, reduced by a credit for its wait; shorter is
    /// earlier.
    pub(super) length_ms: i64,
    pub(super) head: LaneHead,
}

/// A blocked lane that may fit once the gain of its partition covers the shortfall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnblockedLane {
    pub(super) key: PassingKey,
    /// The gain at which the lane may fit.
    pub(super) due: u64,
    pub(super) part: u32,
}

/// The lane that has its turn.
pub(super) struct NextLane {
    pub(super) head: LaneHead,
    /// The turn is in queue order, not among lanes that pass a waiting job.
    pub(super) in_order: bool,
}

/// The state of a partition in a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartPass {
    pub(super) touched: bool,
    /// The first waiting job of the partition.
    pub(super) head: Option<JobId>,
    /// Number of jobs that were considered for a reservation.
    pub(super) reservations: u32,
}

/// The lists; empty between passes.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(super) parts: Vec<PartPass>,
    /// Lanes to visit in queue order.
    pub(super) heap: BinaryHeap<Reverse<LaneHead>>,
    /// Lanes behind the first waiting job, the shortest first, if run times are predicted.
    pub(super) passing: BinaryHeap<Reverse<PassingKey>>,
    /// Blocked lanes that may fit now, in the order in which they are tried, with the gain that
    /// their partition needs.
    pub(super) unblocked: BinaryHeap<Reverse<UnblockedLane>>,
    /// Lanes that are in the heap or have been in it.
    pub(super) seen: NumberSet<u32>,
    /// The position at which a lane continues in its shape's queue.
    pub(super) cursor: NumberMap<u32, QueueKey>,
    /// Number of further tasks of a record that may start; 0 after a job has started.
    pub(super) left: NumberMap<JobId, u32>,
}

impl Lists {
    /// Clears the lists, and releases their memory if they were large, because clearing a table
    /// takes time proportional to its capacity.
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
