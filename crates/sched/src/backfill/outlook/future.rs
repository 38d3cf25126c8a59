//! The nodes at a later time, as a node source for placement: all of them, and a subset.

pub(super) mod held;

use self::held::{HeldPlace, OpenCount};
use super::Outlook;
use crate::demand::Demand;
use crate::nodes::allocations::EndAssumption;
use crate::nodes::fleet::{Fleet, PartFleet, PartView};
use crate::nodes::node_map::NodeMap;
use crate::nodes::room::{Detail, Room};
use crate::nodes::rooms::take_away;
use crate::place::NodeSource;
use crate::place::holds::Holds;
use crate::place::node_source::{end_after, tightest};
use muster_model::reservation::RunWindow;
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Initial capacity for rooms.
pub(super) const ROOMS: usize = 128;
/// Minimum cost of one moment, in nodes.
const MOMENT_LEAST: u64 = 16;
/// Number of nodes whose counts are copied in the time of looking at one node.
const COPIED_AS_ONE: u64 = 64;
/// Initial capacity for places.
pub(super) const PLACES: usize = 64;
/// Cost, in nodes, of looking at one node in detail: its sockets are computed again without ended
/// jobs, and compared.
const DETAIL_AS_NODES: u64 = 64;

/// Number of nodes that can run tasks of the job, and the sum of those tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) nodes: u64,
    pub(super) tasks: u64,
}

/// The nodes after some jobs have ended.
pub(super) struct FutureNodes<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) part: &'a PartView,
    pub(super) holds: &'a Holds,
    pub(super) assumed: EndAssumption,
    pub(super) start: Timestamp,
    pub(super) length_ms: Option<u64>,
    pub(super) shared: bool,
    /// Tasks of the job by place, at `start`.
    pub(super) most: Vec<u32>,
    /// Places with holds of reservations.
    pub(super) held: Vec<HeldPlace<'a>>,
    /// Upper bounds of the tasks by place, without what reservations hold; empty if there are no
    /// reservations.
    pub(super) open: Vec<u32>,
    open_count: OpenCount,
    /// Number of steps taken so far.
    pub(super) grown: usize,
    /// Rooms computed for `start`.
    pub(super) rooms: RefCell<NodeMap<Room>>,
    /// Cost of detailed looks at sockets, in nodes.
    pub(super) tries: Cell<u64>,
}

impl<'a> FutureNodes<'a> {
    pub(super) fn new(
        demand: &Demand,
        on: PartFleet<'a>,
        holds: &'a Holds,
        outlook: &Outlook,
        start: Timestamp,
        rooms: usize,
    ) -> FutureNodes<'a> {
        FutureNodes {
            fleet: on.fleet,
            part: on.part,
            holds,
            assumed: outlook.assumed,
            start,
            length_ms: demand.length_ms,
            shared: outlook.shared,
            most: Vec::new(),
            held: Vec::new(),
            open: Vec::new(),
            open_count: OpenCount::default(),
            grown: 0,
            rooms: RefCell::new(NodeMap::with_capacity_and_hasher(rooms, Default::default())),
            tries: Cell::new(0),
        }
    }

    /// A place can run so many tasks from now on.
    pub(super) fn gain(&mut self, pos: usize, most: u32) {
        self.most[pos] = most;
        if !self.open.is_empty() {
            self.open_count.note(pos);
        }
    }

    pub(super) fn go_to(&mut self, time: Timestamp) {
        if time > self.start {
            self.start = time;
        }
        let rooms = self.rooms.get_mut();
        if !rooms.is_empty() {
            rooms.clear();
        }
    }

    /// Cost of one more moment, in nodes: nodes with holds are looked at, the counts of the others
    /// are copied.
    pub(super) fn nodes_of_moment(&self) -> u64 {
        let (held, all) = (self.held.len() as u64, self.most.len() as u64);
        MOMENT_LEAST + held + all / COPIED_AS_ONE
    }

    /// Upper bound of the tasks that a place can run beside reservations.
    pub(super) fn may_have(&self, pos: usize) -> u32 {
        self.open.get(pos).copied().unwrap_or(self.most[pos])
    }

    /// The node's room without the jobs that have ended by then.
    fn bare(&self, node: u32) -> Room {
        let mut rooms = self.rooms.borrow_mut();
        let room = rooms.entry(node).or_insert_with(|| self.bare_anew(node));
        room.clone()
    }

    /// As above, computed again for nodes that are looked at only once.
    pub(super) fn bare_anew(&self, node: u32) -> Room {
        self.fleet.room_at(node, self.start, self.assumed)
    }

    /// The room without resources reserved for other jobs while the job would run.
    fn left(&self, node: u32) -> Room {
        // In a network with several leaves, leaves are looked at before their nodes.
        let room = match self.part.network {
            Some(_) => self.bare(node),
            None => self.bare_anew(node),
        };
        self.left_of(node, room)
    }

    /// As above, for a node whose room is known.
    pub(super) fn left_of(&self, node: u32, mut room: Room) -> Room {
        let place = self.part.place(node).filter(|_| self.shared);
        if let Some(cpus) = place.and_then(|pos| self.part.shared_cpus(pos)) {
            room.cpus = room.cpus.max(cpus);
        }
        let end = end_after(self.start, self.length_ms);
        for hold in self.holds.of(node) {
            if hold.start < end && self.start < hold.end {
                take_away(&mut room, &hold.needs);
            }
        }
        let blocks = &self.fleet.blocks;
        if blocks.all.is_empty() {
            return room;
        }
        let window = RunWindow {
            now: self.fleet.now,
            start: self.start,
            end,
        };
        let left = blocks.narrow(self.part.own.as_ref(), node, window, Cow::Owned(room));
        left.0.into_owned()
    }
}

impl NodeSource for FutureNodes<'_> {
    fn next(&self, mut places: Range<usize>, _: u32, _: u64) -> Option<usize> {
        places.find(|&pos| self.may_have(pos) > 0)
    }

    fn may_hold(&self, pos: usize, tasks: u32) -> bool {
        self.may_have(pos) >= tasks
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        tightest(self.part, cpus, |pos| {
            Cow::Owned(self.bare(self.part.order[pos]))
        })
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        let mut room = self.left(self.part.order[pos]);
        if self.part.cpus.rule.bounds() && !self.shared {
            let fleet = self.fleet;
            let open = fleet.open_at(self.part, pos, self.start, self.assumed);
            room.cpus = room.cpus.min(open);
        }
        Cow::Owned(room)
    }

    fn tasks(&self, pos: usize) -> Option<u32> {
        let alone = self.held.is_empty() && self.fleet.blocks.all.is_empty();
        let exact = alone && !self.part.cpus.rule.bounds();
        exact.then(|| self.most[pos])
    }

    fn note_tries(&self, tries: u64) {
        self.tries.set(self.tries.get() + tries);
    }

    fn detail(&self, pos: usize) -> Option<Detail> {
        self.note_tries(DETAIL_AS_NODES);
        let node = self.part.order[pos];
        self.fleet.detail_at(node, self.start, self.assumed)
    }
}

/// A subset of the nodes of a source.
pub(super) struct NodeSubset<'a> {
    pub(super) source: &'a FutureNodes<'a>,
    pub(super) kept: Vec<bool>,
    /// The selected places; sorted after [`Self::settle`] or as they came.
    pub(super) places: Vec<usize>,
    /// Index in `places` of the next place if places are looked at in order.
    pub(super) at: Cell<usize>,
}

impl NodeSubset<'_> {
    /// Sorts the places. A long list is already sorted, because then all places were looked at in
    /// order.
    pub(super) fn settle(&mut self) {
        const MANY: usize = 8;
        if self.places.len() * MANY < self.kept.len() {
            return self.places.sort_unstable();
        }
        self.places.clear();
        let kept = self.kept.iter().enumerate().filter(|(_, kept)| **kept);
        self.places.extend(kept.map(|(pos, _)| pos));
    }

    /// Index in `places` of the first place not before `start`.
    fn first_from(&self, start: usize) -> usize {
        let at = self.at.get();
        let before = |at: usize| at == 0 || self.places.get(at - 1).is_some_and(|p| *p < start);
        if before(at) && self.places.get(at).is_none_or(|pos| *pos >= start) {
            return at;
        }
        self.places.partition_point(|pos| *pos < start)
    }
}

impl NodeSource for NodeSubset<'_> {
    fn next(&self, places: Range<usize>, _: u32, _: u64) -> Option<usize> {
        let from = self.first_from(places.start);
        self.at.set(from + 1);
        let found = self.places.get(from).copied();
        found.filter(|pos| *pos < places.end)
    }

    fn may_hold(&self, pos: usize, tasks: u32) -> bool {
        self.source.may_hold(pos, tasks)
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        self.source.leaves(cpus)
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        if self.kept[pos] {
            self.source.room(pos)
        } else {
            Cow::Owned(Room::default())
        }
    }

    fn tasks(&self, pos: usize) -> Option<u32> {
        match self.kept[pos] {
            true => self.source.tasks(pos),
            false => Some(0),
        }
    }

    fn note_tries(&self, tries: u64) {
        self.source.note_tries(tries);
    }

    fn detail(&self, pos: usize) -> Option<Detail> {
        self.source.detail(pos)
    }
}
