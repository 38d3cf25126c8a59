//! Tasks that fit beside reservations, on the walk through later times. A walk may try thousands of times beside the holds of
//! thousands of nodes: only places are counted again that have gained tasks, or where a hold begins or ends to be in the way.

use super::{Capacity, FutureNodes};
use crate::demand::Demand;
use crate::nodes::allocations::{ANY_MOMENT, NEVER};
use crate::place::holds::NodeHold;
use crate::place::node_source::end_after;
use muster_model::time::Timestamp;

/// A place with holds of reservations.
#[derive(Debug)]
pub(in super::super) struct HeldPlace<'a> {
    pos: usize,
    holds: &'a [NodeHold],
    /// Tasks that the holds in the way leave room for; absent if they are not counted by CPUs.
    left: Option<u32>,
    /// Until then the same holds are in the way.
    same_until: Timestamp,
    /// The part of its capacity that the place lacks by them.
    lost: LostCapacity,
}

/// A part of the capacity of one place.
#[derive(Clone, Copy, Debug, Default)]
struct LostCapacity {
    node: bool,
    tasks: u32,
}

impl<'a> HeldPlace<'a> {
    pub(in super::super) fn new(pos: usize, holds: &'a [NodeHold]) -> HeldPlace<'a> {
        HeldPlace {
            pos,
            holds,
            left: None,
            same_until: ANY_MOMENT,
            lost: LostCapacity::default(),
        }
    }

    /// Looks at the holds that are in the way of a job from `start` on, and until when they are.
    fn look(&mut self, start: Timestamp, length_ms: Option<u64>, cpus: u32, of_tasks: u32) {
        let end = end_after(start, length_ms);
        let (mut taken, mut alone) = (0u32, false);
        self.same_until = NEVER;
        for hold in self.holds.iter().filter(|hold| start < hold.end) {
            if hold.start < end {
                taken = taken.saturating_add(hold.needs.cpus);
                alone |= hold.needs.exclusive;
                self.same_until = self.same_until.min(hold.end);
            } else {
                // From the millisecond on in which the job would still run at its start.
                let ahead = hold.start.since_ms(end).saturating_add(1);
                self.same_until = self.same_until.min(start.plus_ms(ahead));
            }
        }
        self.left = match cpus.saturating_sub(taken) {
            left if alone || left == 0 => Some(0),
            left => left.checked_div(of_tasks),
        };
    }
}

/// The counts of the walk so far.
#[derive(Debug)]
pub(super) struct OpenCount {
    /// For each place its index in the list of held ones, or [`NOT_HELD`].
    index: Vec<u32>,
    /// Places that have gained tasks since the last count.
    gained: Vec<usize>,
    /// No place has to be looked at again before, except for gains.
    same_until: Timestamp,
    lost_nodes: u64,
    lost_tasks: u64,
}

const NOT_HELD: u32 = u32::MAX;

impl Default for OpenCount {
    fn default() -> OpenCount {
        OpenCount {
            index: Vec::new(),
            gained: Vec::new(),
            same_until: ANY_MOMENT,
            lost_nodes: 0,
            lost_tasks: 0,
        }
    }
}

impl OpenCount {
    /// A place has gained tasks.
    pub(super) fn note(&mut self, pos: usize) {
        self.gained.push(pos);
    }
}

impl FutureNodes<'_> {
    /// Upper bound of the capacity that reservations leave. Rooms are computed only if it is large
    /// enough.
    pub(in super::super) fn count_open(
        &mut self,
        demand: &Demand,
        least: u32,
        capacity: Capacity,
    ) -> Capacity {
        if self.held.is_empty() {
            return capacity;
        }
        if self.open.is_empty() {
            self.open.clone_from(&self.most);
            self.open_count.index = vec![NOT_HELD; self.most.len()];
            for (held, at) in self.held.iter().zip(0u32..) {
                self.open_count.index[held.pos] = at;
            }
        }
        let mut gained = std::mem::take(&mut self.open_count.gained);
        for pos in gained.drain(..) {
            match self.open_count.index[pos] {
                NOT_HELD => self.open[pos] = self.most[pos],
                at => self.count_place(at as usize, least),
            }
        }
        self.open_count.gained = gained;
        if self.start >= self.open_count.same_until {
            let mut same_until = NEVER;
            for at in 0..self.held.len() {
                if self.start >= self.held[at].same_until {
                    let held = &mut self.held[at];
                    let class = self.fleet.nodes[self.part.order[held.pos] as usize].class;
                    let cpus = self.fleet.classes[class as usize].job_cpus();
                    held.look(self.start, self.length_ms, cpus, demand.cpus_of_tasks());
                    self.count_place(at, least);
                }
                same_until = same_until.min(self.held[at].same_until);
            }
            self.open_count.same_until = same_until;
        }
        Capacity {
            nodes: capacity.nodes - self.open_count.lost_nodes,
            tasks: capacity.tasks - self.open_count.lost_tasks,
        }
    }

    /// Counts what a held place can run.
    fn count_place(&mut self, at: usize, least: u32) {
        let (held, count) = (&mut self.held[at], &mut self.open_count);
        let most = self.most[held.pos];
        let left = held.left.unwrap_or(most);
        let open = if left < least { 0 } else { left.min(most) };
        self.open[held.pos] = open;
        let lost = LostCapacity {
            node: most > 0 && open == 0,
            tasks: most - open,
        };
        let old = std::mem::replace(&mut held.lost, lost);
        count.lost_nodes = count.lost_nodes + u64::from(lost.node) - u64::from(old.node);
        count.lost_tasks = count.lost_tasks + u64::from(lost.tasks) - u64::from(old.tasks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::room::Room;

    fn hold(start: i64, end: i64, cpus: u32) -> NodeHold {
        NodeHold {
            node: 0,
            lane: 0,
            claimed_by: None,
            start: Timestamp(start),
            end: Timestamp(end),
            needs: Room {
                cpus,
                ..Room::default()
            },
            spare: Room::default(),
        }
    }

    /// The walk looks at a place again only when that could change something, and has missed nothing then.
    #[test]
    fn holds_in_the_way_are_the_same_until_the_time_that_is_known() {
        let holds = [
            hold(0, 40, 3),
            hold(10, 20, 2),
            hold(35, 50, 4),
            hold(60, i64::MAX, 1),
        ];
        for length in [Some(1), Some(7), Some(30), None] {
            let mut kept = HeldPlace::new(0, &holds);
            let mut looks = 0;
            for now in 0..80 {
                let mut anew = HeldPlace::new(0, &holds);
                anew.look(Timestamp(now), length, 16, 1);
                if Timestamp(now) >= kept.same_until {
                    kept.look(Timestamp(now), length, 16, 1);
                    looks += 1;
                }
                assert_eq!(kept.left, anew.left, "{length:?} at {now}");
                assert!(kept.same_until > Timestamp(now));
            }
            // Once at first, and once for each begin and end.
            assert!(looks <= 1 + 2 * holds.len(), "{length:?}: {looks}");
        }
    }
}
