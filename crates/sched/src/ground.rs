//! The grounds on which a job may be placed: nodes as they are now under reservations, empty nodes, and nodes as
//! they will be at a later time. Finds the earliest time at which a job fits.

use crate::demand::Demand;
use crate::fleet::{Fleet, NOWHERE, PartView, Room};
use crate::node_map::NodeMap;
use crate::place::{Ground, Pick, Placement, choose};
use crate::sharing::{Tenants, lend};
use muster_core::command::PlannedStart;
use muster_core::cpuset::CpuSet;
use muster_core::ids::JobId;
use muster_core::job::{Allocation, Job, NodeShare, Reason};
use muster_core::state::State;
use muster_core::time::Timestamp;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

/// A part of a node promised to a waiting job from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// What is promised.
    pub(crate) needs: Room,
    /// What others may still take of the node beyond `start`.
    pub(crate) spare: Room,
}

/// Promises by node.
pub(crate) type Holds = NodeMap<Vec<Hold>>;

/// `a` without `b`; with `all` nothing remains.
fn minus(a: &Room, b: &Room) -> Room {
    Room {
        usable: a.usable,
        cpus: if b.exclusive {
            0
        } else {
            a.cpus.saturating_sub(b.cpus)
        },
        mib: a.mib.saturating_sub(b.mib),
        jobs: a.jobs + b.jobs,
        exclusive: a.exclusive || b.exclusive,
        tenants: a.tenants,
        by_user: a.by_user,
        gres: a
            .gres
            .iter()
            .enumerate()
            .map(|(i, n)| n.saturating_sub(b.gres.get(i).copied().unwrap_or(0)))
            .collect(),
    }
}

fn narrow(room: &mut Room, spare: &Room) {
    room.cpus = room.cpus.min(spare.cpus);
    room.mib = room.mib.min(spare.mib);
    room.jobs = room.jobs.max(spare.jobs);
    room.exclusive |= spare.exclusive;
    room.gres
        .iter_mut()
        .zip(&spare.gres)
        .for_each(|(a, b)| *a = (*a).min(*b));
}

/// What a share takes, in the terms of its node.
fn needs_of(fleet: &Fleet, node: u32, want: &crate::fleet::Want) -> Room {
    let class = &fleet.classes[fleet.nodes[node as usize].class as usize];
    let consumable = fleet
        .config
        .as_ref()
        .is_some_and(|c| c.memory_is_consumable);
    let mut gres = vec![0u32; class.gres.len()];
    for (name, kind, count) in &want.gres {
        let mut left = u32::try_from(*count).unwrap_or(u32::MAX);
        for (i, (n, k, total)) in class.gres.iter().enumerate() {
            if n == name && (kind.is_none() || kind == k) {
                let part = left.min(u32::try_from(*total).unwrap_or(u32::MAX) - gres[i]);
                gres[i] += part;
                left -= part;
            }
        }
    }
    Room {
        usable: true,
        cpus: want.cpus,
        mib: if consumable { want.mib } else { 0 },
        jobs: 1,
        exclusive: want.alone || want.only_user,
        gres,
        tenants: Tenants::None,
        by_user: false,
    }
}

/// The nodes as they are now, for a job that would end at `end`.
pub(crate) struct Live<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) part: &'a PartView,
    pub(crate) holds: &'a Holds,
    /// Nodes kept for a waiting job of higher priority (without backfill).
    pub(crate) closed: &'a [bool],
    pub(crate) end: Timestamp,
    /// When it ends at the latest: reservations are kept whatever was predicted.
    pub(crate) latest: Timestamp,
    /// Set when a promise made a node smaller than it is.
    pub(crate) narrowed: Cell<bool>,
    /// Set when a reservation did.
    pub(crate) reserved: Cell<Option<Reason>>,
    pub(crate) visited: Cell<u64>,
    /// CPUs that others share may be had, too.
    pub(crate) shared: bool,
}

impl Ground for Live<'_> {
    fn next(&self, places: Range<usize>, cpus: u32, mib: u64) -> Option<usize> {
        let found = self.part.next(places.start, cpus, mib);
        found.filter(|pos| *pos < places.end)
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
        if let Some(holds) = self.holds.get(&node) {
            for hold in holds.iter().filter(|h| h.start < self.end) {
                self.narrowed.set(true);
                narrow(room.to_mut(), &hold.spare);
            }
        }
        room
    }
}

/// All nodes empty.
pub(crate) struct Ideal<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) part: &'a PartView,

    /// Without nodes that take no jobs now.
    pub(crate) usable_only: bool,
}

impl Ground for Ideal<'_> {
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
}

/// The nodes as they will be when some jobs have ended.
pub(crate) struct Future<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) part: &'a PartView,
    pub(crate) holds: &'a Holds,
    pub(crate) grown: NodeMap<Room>,
    /// CPUs of stopped jobs that were counted as free already.
    pub(crate) lent: NodeMap<CpuSet>,
    /// CPUs that several jobs have still.
    pub(crate) layers: NodeMap<Vec<CpuSet>>,
    pub(crate) start: Timestamp,
    pub(crate) length_ms: Option<u64>,
    /// CPUs that others share may be had, too: as many as now.
    pub(crate) shared: bool,
}

impl Future<'_> {
    fn bare(&self, node: u32) -> &Room {
        self.grown
            .get(&node)
            .unwrap_or(&self.fleet.nodes[node as usize].room)
    }

    fn end(&self) -> Timestamp {
        end_after(self.start, self.length_ms)
    }

    fn shared_cpus(&self, node: u32) -> Option<u32> {
        let pos = *self.part.pos_of.get(node as usize)?;
        let there = self.shared && pos != NOWHERE;
        there.then(|| self.part.shared_cpus(pos as usize)).flatten()
    }

    /// The room without what is promised to others while the job would run.
    fn left(&self, node: u32) -> Cow<'_, Room> {
        let mut room = Cow::Borrowed(self.bare(node));
        if let Some(cpus) = self.shared_cpus(node).filter(|cpus| *cpus > room.cpus) {
            room.to_mut().cpus = cpus;
        }
        if let Some(holds) = self.holds.get(&node) {
            let end = self.end();
            for hold in holds.iter().filter(|h| h.start < end && self.start < h.end) {
                room = Cow::Owned(minus(&room, &hold.needs));
            }
        }
        let window = (self.fleet.now, self.start, self.end());
        let blocks = &self.fleet.blocks;
        blocks.narrow(self.part, node, window, room).0
    }

    /// A job's share comes back when it ends.
    fn release(&mut self, share: &NodeShare) {
        self.give_back(share, (true, true, true));
    }

    /// A job's share comes back: all of it as the job ends, or its CPUs as it is stopped. What is stopped already has
    /// lent its CPUs and is not counted among the node's jobs.
    pub(crate) fn release_of(&mut self, job: &Job, share: &NodeShare, whole: bool) {
        if job.cpus_lent && !whole {
            return self.show_stopped(share);
        }
        self.give_back(share, (!job.cpus_lent, whole, !job.cpus_lent));
    }

    /// CPUs of a stopped job that are free, and kept for it.
    fn show_stopped(&mut self, share: &NodeShare) {
        let node = share.node.0;
        let fleet = self.fleet;
        let mut more = fleet.kept_for_stopped(node).clone();
        more.intersect_with(&share.cpus);
        let known = self.lent.entry(node).or_default();
        more.subtract(known);
        known.union_with(&more);
        let room =
            (self.grown.entry(node)).or_insert_with(|| fleet.nodes[node as usize].room.clone());
        room.cpus = room.cpus.saturating_add(more.len());
    }

    fn give_back(&mut self, share: &NodeShare, (cpus, rest, counted): (bool, bool, bool)) {
        let node = share.node.0;
        if self
            .part
            .pos_of
            .get(node as usize)
            .is_none_or(|&p| p == NOWHERE)
        {
            return;
        }
        let fleet = self.fleet;
        let view = &fleet.nodes[node as usize];
        let class = &fleet.classes[view.class as usize];
        let room = self.grown.entry(node).or_insert_with(|| view.room.clone());
        if cpus {
            let freed = match fleet.layers(node) {
                [] => share.cpus.len(),
                layers => {
                    let left = self.layers.entry(node);
                    lend(left.or_insert_with(|| layers.to_vec()), &share.cpus).len()
                }
            };
            room.cpus = room.cpus.saturating_add(freed).min(class.job_cpus());
        }
        room.jobs = room.jobs.saturating_sub(u32::from(counted));
        if room.jobs == 0 {
            room.exclusive = false;
            if rest {
                (room.by_user, room.tenants) = (false, Tenants::None);
            }
        }
        if !rest {
            return;
        }
        room.mib = room.mib.saturating_add(share.memory_mib).min(class.mib);
        for gres in &share.gres {
            for (i, (name, kind, count)) in class.gres.iter().enumerate() {
                if *name == gres.name && *kind == gres.kind {
                    let count = u32::try_from(*count).unwrap_or(u32::MAX);
                    room.gres[i] = room.gres[i].saturating_add(gres.ids.len()).min(count);
                }
            }
        }
    }
}

impl Ground for Future<'_> {
    fn next(&self, mut places: Range<usize>, cpus: u32, mib: u64) -> Option<usize> {
        places.find(|&pos| {
            let node = self.part.order[pos];
            let room = self.bare(node);
            let shared = self.shared_cpus(node).unwrap_or(0);
            room.usable && !room.exclusive && room.cpus.max(shared) >= cpus && room.mib >= mib
        })
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        tightest(self.part, cpus, |pos| {
            Cow::Borrowed(self.bare(self.part.order[pos]))
        })
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        self.left(self.part.order[pos])
    }
}

/// Leaves of the network with at least so many free CPUs, those that jobs use first, then by least free.
fn tightest<'a>(
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

/// Chooses nodes as they are now: CPUs of its own for the job, else such as it may share.
pub(crate) fn choose_now(
    demand: &Demand,
    ground: &mut Live<'_>,
    switches: Option<u32>,
) -> Placement {
    let placement = choose(demand, ground.fleet, ground.part, ground, switches);
    if placement != Placement::Nowhere || demand.sharers < 2 {
        return placement;
    }
    ground.shared = true;
    choose(demand, ground.fleet, ground.part, ground, switches)
}

/// When a job that starts at `start` ends at the latest.
pub(crate) fn end_after(start: Timestamp, length_ms: Option<u64>) -> Timestamp {
    length_ms.map_or(Timestamp(i64::MAX), |ms| start.plus_ms(ms))
}

/// What runs and when it ends.
pub(crate) struct Running<'a> {
    pub(crate) state: &'a State,
    /// Jobs that are being cleaned up: they end any moment.
    pub(crate) completing: &'a BTreeSet<JobId>,
    /// Starts planned in this pass, and their places in that list by their end.
    pub(crate) starts: &'a [PlannedStart],
    pub(crate) started: &'a BTreeSet<(Timestamp, usize)>,
    /// Jobs without an end, and the end to assume for them.
    pub(crate) endless: Option<Timestamp>,
    /// Ends as they are predicted; by limits when absent.
    pub(crate) planned: Option<&'a BTreeSet<(Timestamp, JobId)>>,
}

impl Running<'_> {
    /// When the last of those ends whose end is known.
    pub(crate) fn last_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.ends(now).map(|(end, _)| end).last()
    }

    /// Ends in order of time; an end that is overdue is now.
    fn ends(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Ending<'_>)> {
        let at = move |&(t, id): &(Timestamp, JobId)| (t.max(now), id);
        let timed = |(t, id): &&(Timestamp, JobId)| t.0 < i64::MAX && !self.completing.contains(id);
        let by_time = self.planned.unwrap_or(&self.state.by_limit);
        let known = by_time.iter().filter(timed).map(at);
        let clean = self.completing.iter().map(move |&id| (now, id));
        let endless = self.endless.into_iter().flat_map(move |t| {
            let forever = move |id: &&JobId| {
                let limit = |j: &Job| j.time_limit.seconds().is_none();
                self.state.jobs.get(id).is_some_and(limit)
            };
            self.state
                .active
                .iter()
                .filter(forever)
                .map(move |&id| (t, id))
        });
        let mut known = clean.chain(known).chain(endless).peekable();
        let mut fresh = self.started.iter().peekable();
        std::iter::from_fn(move || {
            let take_fresh = match (known.peek(), fresh.peek()) {
                (Some((a, _)), Some((b, _))) => b < a,
                (None, Some(_)) => true,
                _ => false,
            };
            if take_fresh {
                let &(end, place) = fresh.next()?;
                let alloc = &self.starts.get(place)?.alloc;
                return (end.0 < i64::MAX).then_some((end, Ending::Started(alloc)));
            }
            let (end, id) = known.next()?;
            Some((end, Ending::Job(self.state.jobs.get(&id))))
        })
    }
}

enum Ending<'a> {
    Job(Option<&'a Job>),
    Started(&'a Allocation),
}

/// The earliest time and place for a job that does not fit now, or not before a time at which it may fit; `None` if no
/// end in sight makes room for it. `waited` is since when it could run on more leaf switches than it asks for, if it
/// could.
pub(crate) fn earliest_from(
    demand: &Demand,
    (fleet, part): (&Fleet, &PartView),
    holds: &Holds,
    running: &Running<'_>,
    (now, from): (Timestamp, Option<Timestamp>),
    waited: Option<Timestamp>,
) -> Option<(Timestamp, Vec<Pick>)> {
    let grown = NodeMap::default();
    let mut future = Future {
        fleet,
        part,
        holds,
        grown,
        lent: NodeMap::default(),
        layers: NodeMap::default(),
        start: now,
        length_ms: demand.length_ms,
        shared: demand.sharers > 1,
    };
    let mut tally = Tally::new(demand, fleet, part);
    let mut promises: BTreeSet<Timestamp> = holds
        .values()
        .flatten()
        .map(|h| h.end)
        .filter(|t| t.0 < i64::MAX)
        .collect();
    promises.extend(fleet.blocks.ends(part, now));
    promises.extend(from);
    // From then on it takes more switches.
    let mut relents = waited.and_then(|since| demand.relents_at(since));
    promises.extend(relents.filter(|t| *t > now));
    let mut ends = running.ends(now).peekable();
    let mut changed = !promises.is_empty();
    loop {
        let next_end = ends.peek().map(|(t, _)| *t);
        let next = match (next_end, promises.first().copied()) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        future.start = next.max(future.start);
        while promises.first().is_some_and(|t| *t <= next) {
            promises.pop_first();
            changed = true;
        }
        while ends.peek().is_some_and(|(t, _)| *t <= next) {
            match ends.next()?.1 {
                Ending::Job(Some(job)) => {
                    let Some(alloc) = &job.alloc else { continue };
                    let held = alloc.nodes.iter().zip(0u32..);
                    for (share, _) in held.filter(|(_, i)| job.nodes_held.contains(*i)) {
                        changed |= tally.release(&mut future, share, Some(job));
                    }
                }
                Ending::Job(None) => {}
                Ending::Started(alloc) => {
                    for share in &alloc.nodes {
                        changed |= tally.release(&mut future, share, None);
                    }
                }
            }
        }
        let early = from.is_some_and(|from| future.start < from);
        if changed && !early && tally.may_do() {
            let relented = relents.is_some_and(|t| t <= future.start);
            let switches = demand.switches.filter(|_| !relented).map(|(most, _)| most);
            match choose(demand, fleet, part, &future, switches) {
                Placement::Here(picks) => {
                    // Where the network has a shape, that decides.
                    let flat = part.network.is_none();
                    let latest = flat.then(|| tally.latest(&future)).flatten();
                    return Some((future.start, latest.unwrap_or(picks)));
                }
                Placement::Scattered if relents.is_none() => {
                    relents = demand.relents_at(future.start);
                    promises.extend(relents);
                }
                Placement::Scattered | Placement::Nowhere => {}
            }
            changed = false;
        }
    }
}

/// Counts nodes that could take part, so that placement is only tried when it may succeed. Promises are left out:
/// they only take away.
struct Tally<'a> {
    demand: &'a Demand,
    most: Vec<u32>,
    /// Places in the order in which they became able to hold more.
    grown: Vec<u32>,
    least: u32,
    nodes: u64,
    tasks: u64,
    nodes_needed: u64,
    tasks_needed: u64,
}

impl<'a> Tally<'a> {
    fn new(demand: &'a Demand, fleet: &Fleet, part: &PartView) -> Tally<'a> {
        let best = (0..demand.alternatives.len())
            .map(|a| demand.tasks_at_most(a, &fleet.classes))
            .max()
            .unwrap_or(0);
        let (least, tasks_needed) = match demand.tasks {
            Some(tasks) => {
                let others = u64::from(demand.max_nodes.saturating_sub(1)) * u64::from(best);
                let least = u64::from(tasks).saturating_sub(others).max(1);
                (u32::try_from(least).unwrap_or(u32::MAX), u64::from(tasks))
            }
            None => (demand.tasks_each, 0),
        };
        let mut tally = Tally {
            demand,
            most: vec![0; part.order.len()],
            grown: Vec::new(),
            least,
            nodes: 0,
            tasks: 0,
            nodes_needed: u64::from(demand.min_nodes),
            tasks_needed,
        };
        for pos in 0..part.order.len() {
            let node = part.order[pos];
            let mut room = Cow::Borrowed(&fleet.nodes[node as usize].room);
            if let Some(cpus) = part.shared_cpus(pos).filter(|_| demand.sharers > 1) {
                let cpus = cpus.max(room.cpus);
                room.to_mut().cpus = cpus;
            }
            tally.look(fleet, pos, node, &room);
        }
        tally
    }

    fn look(&mut self, fleet: &Fleet, pos: usize, node: u32, room: &Room) -> bool {
        let class = fleet.nodes[node as usize].class;
        let most = (0..self.demand.alternatives.len())
            .filter(|&a| self.demand.admits(a, class, node))
            .map(|_| self.demand.tasks_in(&fleet.classes[class as usize], room))
            .max()
            .unwrap_or(0);
        let most = if most >= self.least { most } else { 0 };
        let old = std::mem::replace(&mut self.most[pos], most);
        self.nodes = self.nodes + u64::from(most > 0) - u64::from(old > 0);
        self.tasks = self.tasks + u64::from(most) - u64::from(old);
        most > old
    }

    fn release(&mut self, future: &mut Future<'_>, share: &NodeShare, job: Option<&Job>) -> bool {
        let node = share.node.0;
        let Some(&pos) = future.part.pos_of.get(node as usize) else {
            return false;
        };
        if pos == NOWHERE {
            return false;
        }
        match job {
            Some(job) => future.release_of(job, share, true),
            None => future.release(share),
        }
        let room = &future.grown[&node];
        let more = self.look(future.fleet, pos as usize, node, room);
        if more {
            self.grown.push(pos);
        }
        more
    }

    fn may_do(&self) -> bool {
        self.nodes >= self.nodes_needed && self.tasks >= self.tasks_needed
    }

    /// A placement on the nodes that become able to hold the job last. A promise says how much is kept, not where the
    /// job will run: that is chosen when it starts. Keeping the nodes that are busy until then leaves those that are
    /// free already to jobs that run longer.
    fn latest(&self, future: &Future<'_>) -> Option<Vec<Pick>> {
        let (fleet, part) = (future.fleet, future.part);
        let mut among = Among {
            ground: future,
            kept: vec![false; part.order.len()],
        };
        let all = (0..part.order.len()).rev();
        let mut places = self.grown.iter().rev().map(|&pos| pos as usize).chain(all);
        let (mut nodes, mut tasks, mut more) = (0u64, 0u64, 0u64);
        loop {
            // At least what is needed by count; then twice as many each time, for needs that are not only counts.
            let enough = |nodes: u64, tasks: u64| {
                nodes >= self.nodes_needed + more && (tasks >= self.tasks_needed || more > 0)
            };
            let mut last = true;
            for pos in places.by_ref() {
                if self.most[pos] == 0 || std::mem::replace(&mut among.kept[pos], true) {
                    continue;
                }
                (nodes, tasks) = (nodes + 1, tasks + u64::from(self.most[pos]));
                if enough(nodes, tasks) {
                    last = false;
                    break;
                }
            }
            let found = choose(self.demand, fleet, part, &among, None).picks();
            if found.is_some() || last {
                return found;
            }
            more = nodes;
        }
    }
}

/// A ground without some of its nodes.
struct Among<'a> {
    ground: &'a Future<'a>,
    kept: Vec<bool>,
}

impl Ground for Among<'_> {
    fn next(&self, mut places: Range<usize>, cpus: u32, mib: u64) -> Option<usize> {
        loop {
            let pos = self.ground.next(places.clone(), cpus, mib)?;
            if self.kept[pos] {
                return Some(pos);
            }
            places.start = pos + 1;
        }
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        self.ground.leaves(cpus)
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        if self.kept[pos] {
            self.ground.room(pos)
        } else {
            Cow::Owned(Room::default())
        }
    }
}

/// Promises nodes to a job from `start` on.
pub(crate) fn promise(
    holds: &mut Holds,
    demand: &Demand,
    (fleet, part): (&Fleet, &PartView),
    (start, picks): (Timestamp, &[Pick]),
    running: &Running<'_>,
    now: Timestamp,
) {
    let mut future = Future {
        fleet,
        part,
        holds,
        grown: NodeMap::default(),
        lent: NodeMap::default(),
        layers: NodeMap::default(),
        start,
        length_ms: demand.length_ms,
        shared: demand.sharers > 1,
    };
    let nodes: BTreeSet<u32> = picks.iter().map(|p| p.node).collect();
    for (_, ending) in running.ends(now).take_while(|(t, _)| *t <= start) {
        let (alloc, held) = match &ending {
            Ending::Job(Some(job)) => match &job.alloc {
                Some(alloc) => (alloc.as_ref(), Some(&job.nodes_held)),
                None => continue,
            },
            Ending::Job(None) => continue,
            Ending::Started(alloc) => (*alloc, None),
        };
        for (share, i) in alloc.nodes.iter().zip(0u32..) {
            if nodes.contains(&share.node.0) && held.is_none_or(|h| h.contains(i)) {
                match &ending {
                    Ending::Job(Some(job)) => future.release_of(job, share, true),
                    Ending::Job(None) | Ending::Started(_) => future.release(share),
                }
            }
        }
    }
    let made = pledge(&future, demand, picks);
    add_holds(holds, made);
}

/// What is kept of each node from the time of that ground on.
pub(crate) fn pledge(future: &Future<'_>, demand: &Demand, picks: &[Pick]) -> Vec<(u32, Hold)> {
    let (fleet, start, end) = (future.fleet, future.start, future.end());
    picks
        .iter()
        .map(|pick| {
            let class = &fleet.classes[fleet.nodes[pick.node as usize].class as usize];
            let needs = needs_of(fleet, pick.node, &demand.want(class, pick.tasks));
            let spare = minus(&future.left(pick.node), &needs);
            (
                pick.node,
                Hold {
                    start,
                    end,
                    needs,
                    spare,
                },
            )
        })
        .collect()
}

/// Adds promises to those that were made before.
pub(crate) fn add_holds(holds: &mut Holds, made: Vec<(u32, Hold)>) {
    for (node, hold) in made {
        let list = holds.entry(node).or_default();
        for earlier in list.iter_mut() {
            if hold.start <= earlier.start && earlier.start < hold.end {
                earlier.spare = minus(&earlier.spare, &hold.needs);
            }
        }
        list.push(hold);
    }
}

/// A job of another starts now on a promised node and outlasts the promise's begin: less is left to others.
pub(crate) fn take_spare(
    holds: &mut Holds,
    fleet: &Fleet,
    node: u32,
    end: Timestamp,
    want: &crate::fleet::Want,
) {
    let Some(list) = holds.get_mut(&node) else {
        return;
    };
    let needs = needs_of(fleet, node, want);
    for hold in list.iter_mut().filter(|h| h.start < end) {
        hold.spare = minus(&hold.spare, &needs);
    }
}
