//! The steps of an outlook: gains of task capacity on nodes as jobs end.

use super::Outlook;
use super::future::{Capacity, FutureNodes};
use muster_model::time::Timestamp;
use std::cmp::Reverse;
use std::iter::{Enumerate, Peekable};
use std::slice;

/// The time at which a node can run more tasks of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub(super) at: Timestamp,
    /// CPUs of the node that are free already. Of nodes that gain at the same time, those with the
    /// fewest free CPUs are held.
    pub(super) free: Reverse<u32>,
    /// The node's place in the partition.
    pub(super) pos: u32,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// The capacity after a step.
fn with(capacity: Capacity, step: &Step) -> Capacity {
    Capacity {
        nodes: capacity.nodes + u64::from(step.from == 0),
        tasks: capacity.tasks + u64::from(step.to - step.from),
    }
}

/// The remaining steps on the walk forward in time.
pub(super) struct StepsAhead<'o> {
    steps: Peekable<Enumerate<slice::Iter<'o, Step>>>,
    /// The capacity after the steps taken so far.
    pub(super) capacity: Capacity,
    /// The nodes have changed since the job was last tried.
    pub(super) changed: bool,
}

impl<'o> StepsAhead<'o> {
    pub(super) fn new(outlook: &'o Outlook, changed: bool) -> StepsAhead<'o> {
        StepsAhead {
            steps: outlook.steps.iter().enumerate().peekable(),
            capacity: Capacity {
                nodes: outlook.nodes,
                tasks: outlook.tasks,
            },
            changed,
        }
    }

    /// The time of the next step.
    pub(super) fn next_at(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.steps.peek().map(|(_, step)| step.at.max(now))
    }

    /// Takes steps while `is_such(step, capacity after it)` holds.
    pub(super) fn take_while(
        &mut self,
        future: &mut FutureNodes<'_>,
        is_such: impl Fn(&Step, Capacity) -> bool,
    ) {
        let capacity = &mut self.capacity;
        while let Some((place, step)) = self
            .steps
            .next_if(|(_, step)| is_such(step, with(*capacity, step)))
        {
            *capacity = with(*capacity, step);
            future.gain(step.pos as usize, step.to);
            future.grown = place + 1;
            self.changed = true;
        }
    }
}
