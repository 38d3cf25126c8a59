//! Node sources for placement: present nodes under backfill reservations and advance reservations,
//! and empty nodes. Nodes at later times are in `outlook`.

use crate::demand::Demand;
use crate::nodes::fleet::{Fleet, LeastFree, PartView};
use crate::nodes::room::{Detail, Room};
use crate::nodes::rooms::narrow;
use crate::place::holds::Holds;
use crate::place::{NodeSource, Placement, choose};
use muster_model::job::Reason;
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

/// The nodes as they are now, for a job that would end at `end`.
pub(crate) struct CurrentNodes<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) part: &'a PartView,
    pub(crate) holds: &'a Holds,
    /// Nodes held for a waiting job of higher priority (without backfill).
    pub(crate) closed: &'a [bool],
    pub(crate) end: Timestamp,
    /// The latest end of the job: advance reservations are respected regardless of predictions.
    pub(crate) latest: Timestamp,
    /// Set when a backfill reservation has reduced the room of a node.
    pub(crate) narrowed: Cell<bool>,
    /// Set when an advance reservation has reduced it.
    pub(crate) reserved: Cell<Option<Reason>>,
    pub(crate) visited: Cell<u64>,
    /// Number of comparisons of needs with sockets.
    pub(crate) tries: Cell<u64>,
    /// CPUs used by sharing jobs may be taken too.
    pub(crate) shared: bool,
}

impl NodeSource for CurrentNodes<'_> {
    fn next(&self, places: Range<usize>, cpus: u32, mib: u64) -> Option<usize> {
        let found = self.part.next(places.start, cpus, mib);
        found.filter(|pos| *pos < places.end)
    }

    fn tightest(&self, least: LeastFree) -> Option<Box<dyn Iterator<Item = usize> + '_>> {
        Some(Box::new(self.part.tightest(least)?))
    }

    fn note_tries(&self, tries: u64) {
        self.tries.set(self.tries.get() + tries);
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        match &self.part.network {
            Some((_, leaves)) => Box::new(leaves.with_free(cpus)),
            None => Box::new(std::iter::empty()),
        }
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        self.visited.set(self.visited.get() + 1);
        let node = self.part.order[pos];
        let mut room = Cow::Borrowed(&self.fleet.nodes[node as usize].room);
        if let Some(cpus) = self.part.shared_cpus(pos).filter(|_| self.shared) {
            room.to_mut().cpus = cpus;
        }
        if self.closed.get(node as usize).copied().unwrap_or(false) {
            self.narrowed.set(true);
            room.to_mut().usable = false;
            return room;
        }
        let (mut room, why) = self.fleet.left_now(self.part, node, self.latest, room);
        if why.is_some() && self.reserved.get() != Some(Reason::ReservedForMaintenance) {
            self.reserved.set(why);
        }
        if let Some(left) = self.part.cpus_left(pos)
            && left < room.cpus
        {
            room.to_mut().cpus = left;
        }
        if self.part.cpus.rule.by_socket() && !self.shared {
            let free = self.fleet.detail_now(self.part, node, self.latest).free;
            let open = self.fleet.open_count(self.part, pos, &free);
            if open < room.cpus {
                room.to_mut().cpus = open;
            }
        }
        let holds = self.holds.of(node).iter();
        for hold in holds.filter(|hold| hold.start < self.end) {
            self.narrowed.set(true);
            narrow(room.to_mut(), &hold.spare);
        }
        room
    }

    fn detail(&self, pos: usize) -> Option<Detail> {
        let node = self.part.order[pos];
        let class = &self.fleet.classes[self.fleet.nodes[node as usize].class as usize];
        let detail = || {
            let mut detail = self.fleet.detail_now(self.part, node, self.latest);
            detail.free = self.part.cpus.open(class, pos, &detail.free);
            detail
        };
        (!self.shared).then(detail)
    }
}

/// All nodes empty.
pub(crate) struct EmptyNodes<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) part: &'a PartView,

    /// Without nodes that accept no jobs now.
    pub(crate) usable_only: bool,
}

impl NodeSource for EmptyNodes<'_> {
    fn next(&self, mut places: Range<usize>, _: u32, _: u64) -> Option<usize> {
        let usable = |pos: &usize| {
            !self.usable_only || self.fleet.nodes[self.part.order[*pos] as usize].room.usable
        };
        places.find(usable)
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        tightest(self.part, cpus, |pos| self.room(pos))
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        let node = &self.fleet.nodes[self.part.order[pos] as usize];
        if self.usable_only && !node.room.usable {
            return Cow::Owned(Room::default());
        }
        Cow::Borrowed(&self.fleet.empty[node.class as usize])
    }

    fn detail(&self, pos: usize) -> Option<Detail> {
        let class = self.fleet.nodes[self.part.order[pos] as usize].class;
        Some(Detail {
            free: self.fleet.classes[class as usize].open.clone(),
            gres_used: Vec::new(),
        })
    }
}

/// Leaves of the network with at least that many free CPUs: leaves in use first, then by fewest
/// free CPUs.
pub(crate) fn tightest<'a>(
    part: &PartView,
    cpus: u64,
    room: impl Fn(usize) -> Cow<'a, Room>,
) -> Box<dyn Iterator<Item = u32>> {
    let Some((_, leaves)) = &part.network else {
        return Box::new(std::iter::empty());
    };
    let mut order: Vec<(bool, u64, u32)> = Vec::new();
    for (places, leaf) in leaves.places.iter().zip(0u32..) {
        let (mut empty, mut free) = (true, 0);
        for pos in places.iter().flat_map(|p| p.start..p.end) {
            let room = room(pos as usize);
            empty &= room.jobs == 0;
            if room.usable && !room.exclusive {
                free += u64::from(room.cpus);
            }
        }
        if free >= cpus && !places.is_empty() {
            order.push((empty, free, leaf));
        }
    }
    order.sort_unstable();
    Box::new(order.into_iter().map(|(.., leaf)| leaf))
}

/// Chooses nodes as they are now: exclusive CPUs for the job if possible, else shared ones.
pub(crate) fn choose_now(
    demand: &Demand,
    source: &mut CurrentNodes<'_>,
    switches: Option<u32>,
) -> Placement {
    let placement = choose(demand, source.fleet, source.part, source, switches);
    if !matches!(placement, Placement::Nowhere(_)) || demand.sharers < 2 {
        return placement;
    }
    source.shared = true;
    choose(demand, source.fleet, source.part, source, switches)
}

/// The latest end of a job that starts at `start`.
pub(crate) fn end_after(start: Timestamp, length_ms: Option<u64>) -> Timestamp {
    length_ms.map_or(Timestamp(i64::MAX), |ms| start.plus_ms(ms))
}
