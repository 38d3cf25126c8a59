//! What passes put their work in. A pass makes most of it anew, so the space is handed on from one to the next.

use super::{PartPass, PassingKey};
use crate::node_map::{NumberMap, NumberSet};
use crate::queue::{HeadKey, QueueKey};
use muster_core::ids::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a pass fills and the next one fills again: empty between passes.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(super) parts: Vec<PartPass>,
    pub(super) heap: BinaryHeap<Reverse<(HeadKey, u32)>>,
    pub(super) passing: BinaryHeap<Reverse<PassingKey>>,
    pub(super) hopeful: BinaryHeap<Reverse<(PassingKey, u64, u32)>>,
    pub(super) seen: NumberSet<u32>,
    pub(super) cursor: NumberMap<u32, QueueKey>,
    pub(super) left: NumberMap<JobId, u32>,
}

impl Lists {
    /// Forgets what is in them, and the space that they took if that was much: to empty a table takes as long as it is.
    pub(super) fn clear(&mut self) {
        const MUCH: usize = 1 << 12;
        self.parts.clear();
        self.heap.clear();
        self.passing.clear();
        self.hopeful.clear();
        if self.seen.capacity().max(self.left.capacity()) > MUCH {
            (self.seen, self.cursor, self.left) = Default::default();
        }
        self.seen.clear();
        self.cursor.clear();
        self.left.clear();
    }
}
