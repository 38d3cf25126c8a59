//! Nodes as they will be: the earliest time at which a job fits, and what is promised to it from then on.
//!
//! An [`Outlook`] is kept for the first job that waits in a partition: how many of its tasks each node holds, now and
//! each time that a job on it ends. When something changes on a node, that node's part is worked out again and the
//! rest stays, so that a pass does not look at all that runs.

use crate::alike::Alike;
use crate::demand::Demand;
use crate::fleet::{Detail, Fleet, PartView, Room};
use crate::ground::{end_after, minus, needs_of, take_away, tightest};
use crate::holds::{Hold, Holds};
use crate::node_map::NodeMap;
use crate::place::{Ground, Pick, Placement, choose};
use crate::tenants::{Ends, NEVER};
use muster_core::time::Timestamp;
use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// A node comes to hold more tasks of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    at: Timestamp,
    /// CPUs of the node that are free already; of nodes that come at once those with the fewest are kept.
    free: Reverse<u32>,
    /// The node's place in the partition.
    pos: u32,
    from: u32,
    to: u32,
}

/// How many tasks of one demand nodes hold, now and later. Promises are left out: they only take away.
#[derive(Debug)]
pub(crate) struct Outlook {
    ends: Ends,
    /// When jobs end of which that is not known.
    endless: Option<Timestamp>,
    /// Fewest tasks with which a node is of any use.
    least: u32,
    nodes_needed: u64,
    tasks_needed: u64,
    /// Tasks by place, now.
    now: Vec<u32>,
    nodes: u64,
    tasks: u64,
    /// What comes, by time.
    steps: Vec<Step>,
    /// CPUs that others share may be had, too: as many as now.
    shared: bool,
    /// Changes of the fleet that are in it.
    seen: u64,
    /// The last answer to [`Outlook::earliest_alone`].
    answer: Option<Answer>,
}

/// When and where the job fits while nothing else is promised.
#[derive(Debug)]
struct Answer {
    /// The version of the fleet that it is about.
    version: u64,
    start: Timestamp,
    picks: Vec<Pick>,
    /// What is kept for the job then, once that was asked for.
    made: Arc<Vec<(u32, Hold)>>,
}

/// What looks at nodes leave to the next look.
#[derive(Default)]
struct Scratch {
    /// Who leaves, and when.
    leaving: Vec<(Timestamp, usize)>,
    alike: Alike,
}

impl Outlook {
    /// Looks at every node of the partition.
    pub(crate) fn new(
        demand: &Demand,
        fleet: &Fleet,
        part: &PartView,
        (ends, endless): (Ends, Option<Timestamp>),
    ) -> Outlook {
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
        let mut outlook = Outlook {
            ends,
            endless,
            least,
            nodes_needed: u64::from(demand.min_nodes),
            tasks_needed,
            now: vec![0; part.order.len()],
            nodes: 0,
            tasks: 0,
            steps: Vec::new(),
            shared: demand.sharers > 1,
            seen: fleet.changes.count(),
            answer: None,
        };
        let (mut scratch, mut steps) = (Scratch::default(), Vec::new());
        for pos in 0..part.order.len() {
            outlook.look(demand, fleet, part, pos, (&mut scratch, &mut steps));
        }
        outlook.steps = steps;
        outlook.steps.sort_unstable();
        outlook
    }

    /// Which ends it counts on.
    pub(crate) fn ends(&self) -> Ends {
        self.ends
    }

    /// When the last of those ends whose end makes room and is known.
    pub(crate) fn last_end(&self) -> Option<Timestamp> {
        self.steps.last().map(|step| step.at)
    }

    /// Looks at the nodes that changed; `false` if there is no knowing which did.
    pub(crate) fn update(&mut self, demand: &Demand, fleet: &Fleet, part: &PartView) -> bool {
        let Some(changed) = fleet.changes.since(self.seen) else {
            return false;
        };
        self.seen = fleet.changes.count();
        let place = |node: &u32| part.place(*node);
        let mut places: Vec<usize> = changed.iter().filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        if places.is_empty() {
            return true;
        }
        let is_new = |step: &Step| places.binary_search(&(step.pos as usize)).is_ok();
        self.steps.retain(|step| !is_new(step));
        let (mut scratch, mut new) = (Scratch::default(), Vec::new());
        for pos in places.iter().copied() {
            self.look(demand, fleet, part, pos, (&mut scratch, &mut new));
        }
        // Two sorted runs: the sort merges them.
        new.sort_unstable();
        self.steps.append(&mut new);
        self.steps.sort();
        true
    }

    /// Looks at one node; what comes there is added to `steps`.
    fn look(
        &mut self,
        demand: &Demand,
        fleet: &Fleet,
        part: &PartView,
        pos: usize,
        (scratch, steps): (&mut Scratch, &mut Vec<Step>),
    ) {
        let node = part.order[pos];
        let view = &fleet.nodes[node as usize];
        let class = &fleet.classes[view.class as usize];
        let admitted = (0..demand.alternatives.len()).any(|a| demand.admits(a, view.class, node));
        let shared = part.shared_cpus(pos).filter(|_| self.shared);
        let Scratch { leaving, alike } = scratch;
        let holds = |room: &Room| {
            let mut room = Cow::Borrowed(room);
            if let Some(cpus) = shared.filter(|cpus| *cpus > room.cpus) {
                room.to_mut().cpus = cpus;
            }
            match alike.tasks_in(demand, (view.class, class), &room) {
                most if admitted && most >= self.least => most,
                _ => 0,
            }
        };
        let mut last = holds(&view.room);
        let old = std::mem::replace(&mut self.now[pos], last);
        self.nodes = self.nodes + u64::from(last > 0) - u64::from(old > 0);
        self.tasks = self.tasks + u64::from(last) - u64::from(old);
        if !admitted || !view.room.usable {
            return;
        }
        leaving.clear();
        for (at, tenant) in view.tenants.iter().enumerate() {
            let end = tenant.end((self.ends, self.endless));
            if end < NEVER {
                leaving.push((end, at));
            }
        }
        leaving.sort_unstable();
        let (mut room, mut layers) = (view.room.clone(), view.layers.clone());
        let mut at = 0;
        while at < leaving.len() {
            let end = leaving[at].0;
            while at < leaving.len() && leaving[at].0 == end {
                view.tenants[leaving[at].1].leave(class, &mut room, &mut layers);
                at += 1;
            }
            let most = holds(&room);
            // Where counts do not say all, any end may help.
            if most > last || (most > 0 && demand.is_intricate()) {
                steps.push(Step {
                    at: end,
                    free: Reverse(view.room.cpus),
                    pos: u32::try_from(pos).expect("fewer than 2^32 nodes"),
                    from: last,
                    to: most,
                });
                last = most;
            }
        }
    }

    /// [`Outlook::earliest`] where nothing is promised or reserved, and nothing but nodes keeps the job back: as long as
    /// nothing has changed on any node, and the time has not come, the answer is the same.
    pub(crate) fn earliest_alone(
        &mut self,
        demand: &Demand,
        (fleet, part): (&Fleet, &PartView),
        now: Timestamp,
    ) -> Option<Timestamp> {
        let version = fleet.changes.version();
        let known = |answer: &Answer| answer.version == version && answer.start > now;
        if !self.answer.as_ref().is_some_and(known) {
            let (holds, ends) = (Holds::default(), BTreeSet::new());
            let found = self.earliest(demand, (fleet, part), (&holds, &ends), (now, None), None);
            self.answer = found.map(|(start, picks)| Answer {
                version,
                start,
                picks,
                made: Arc::default(),
            });
        }
        self.answer.as_ref().map(|answer| answer.start)
    }

    /// [`promise`] of what [`Outlook::earliest_alone`] has just found.
    pub(crate) fn promise_alone(
        &mut self,
        holds: &mut Holds,
        demand: &Demand,
        place: (&Fleet, &PartView, u32),
    ) -> Arc<Vec<(u32, Hold)>> {
        let Some(mut answer) = self.answer.take() else {
            return Arc::default();
        };
        if answer.made.is_empty() {
            let found = (answer.start, answer.picks.as_slice());
            answer.made = Arc::new(promise(holds, demand, place, found, self));
        } else {
            holds.add(&answer.made);
        }
        let made = Arc::clone(&answer.made);
        self.answer = Some(answer);
        made
    }

    /// The earliest time and place for the job, which does not fit now; `None` if no end in sight makes room for it.
    /// `from` is a time before which it cannot start, and at which it may fit.
    /// `ends` are those of the promises in `holds`; `waited` is since when it could run on more leaf switches than it
    /// asks for, if it could.
    pub(crate) fn earliest(
        &self,
        demand: &Demand,
        (fleet, part): (&Fleet, &PartView),
        (holds, ends): (&Holds, &BTreeSet<Timestamp>),
        (now, from): (Timestamp, Option<Timestamp>),
        waited: Option<Timestamp>,
    ) -> Option<(Timestamp, Vec<Pick>)> {
        // Leaves of a network are looked at before their nodes.
        let rooms = part.network.as_ref().map_or(0, |_| ROOMS);
        let mut future = Future::new(demand, (fleet, part), holds, self, (now, rooms));
        future.most.clone_from(&self.now);
        let held = holds.iter().filter_map(|(node, list)| {
            let place = part.place(node)?;
            Some((place, list))
        });
        future.held = held.collect();
        let mut promises: BTreeSet<Timestamp> = ends.range(..NEVER).copied().collect();
        promises.extend(fleet.blocks.ends(part, now));
        promises.extend(from);
        // From then on it takes more switches.
        let mut relents = waited.and_then(|since| demand.relents_at(since));
        promises.extend(relents.filter(|t| *t > now));
        let (mut nodes, mut tasks) = (self.nodes, self.tasks);
        let mut steps = self.steps.iter().enumerate().peekable();
        let mut changed = !promises.is_empty();
        loop {
            let next_step = steps.peek().map(|(_, step)| step.at.max(now));
            let next = match (next_step, promises.first().copied()) {
                (Some(a), Some(b)) => a.min(b),
                (a, b) => a.or(b)?,
            };
            future.go_to(next);
            while promises.first().is_some_and(|t| *t <= next) {
                promises.pop_first();
                changed = true;
            }
            while let Some((place, step)) = steps.next_if(|(_, step)| step.at.max(now) <= next) {
                nodes += u64::from(step.from == 0);
                tasks += u64::from(step.to - step.from);
                future.most[step.pos as usize] = step.to;
                future.grown = place + 1;
                changed = true;
            }
            let early = from.is_some_and(|from| future.start < from);
            let enough = |(nodes, tasks)| nodes >= self.nodes_needed && tasks >= self.tasks_needed;
            if early || !changed || !enough((nodes, tasks)) {
                continue;
            }
            changed = false;
            if !enough(future.count_open(demand, self.least, (nodes, tasks))) {
                continue;
            }
            if part.network.is_none() {
                if let Some(picks) = self.latest(demand, &future) {
                    return Some((future.start, picks));
                }
                continue;
            }
            // Where the network has a shape, that decides.
            let relented = relents.is_some_and(|t| t <= future.start);
            let switches = demand.switches.filter(|_| !relented).map(|(most, _)| most);
            match choose(demand, fleet, part, &future, switches) {
                Placement::Here(picks) => return Some((future.start, picks)),
                Placement::Scattered if relents.is_none() => {
                    relents = demand.relents_at(future.start);
                    promises.extend(relents);
                }
                Placement::Scattered | Placement::Nowhere(_) => {}
            }
        }
    }

    /// A placement on the nodes that become able to hold the job last. A promise says how much is kept, not where the
    /// job will run: that is chosen when it starts. Keeping the nodes that are busy until then leaves those that are
    /// free already to jobs that run longer.
    fn latest(&self, demand: &Demand, future: &Future<'_>) -> Option<Vec<Pick>> {
        let (fleet, part) = (future.fleet, future.part);
        let mut among = Among {
            ground: future,
            kept: vec![false; part.order.len()],
            places: Vec::new(),
        };
        let grown = self.steps[..future.grown].iter().rev();
        let all = (0..part.order.len()).rev();
        let mut places = grown.map(|step| step.pos as usize).chain(all);
        let (mut nodes, mut tasks, mut more) = (0u64, 0u64, 0u64);
        loop {
            // At least what is needed by count; then twice as many each time, for needs that are not only counts.
            let enough = |nodes: u64, tasks: u64| {
                nodes >= self.nodes_needed + more && (tasks >= self.tasks_needed || more > 0)
            };
            let mut last = true;
            for pos in places.by_ref() {
                if future.may_have(pos) == 0 || std::mem::replace(&mut among.kept[pos], true) {
                    continue;
                }
                among.places.push(pos);
                (nodes, tasks) = (nodes + 1, tasks + u64::from(future.may_have(pos)));
                if enough(nodes, tasks) {
                    last = false;
                    break;
                }
            }
            among.places.sort_unstable();
            let found = choose(demand, fleet, part, &among, None).picks();
            if found.is_some() || last {
                return found;
            }
            more = nodes;
        }
    }
}

/// Rooms that there is space for at first.
const ROOMS: usize = 128;

/// The nodes as they will be when some jobs have ended.
struct Future<'a> {
    fleet: &'a Fleet,
    part: &'a PartView,
    holds: &'a Holds,
    ends: Ends,
    endless: Option<Timestamp>,
    start: Timestamp,
    length_ms: Option<u64>,
    shared: bool,
    /// Tasks of the job by place, at `start`.
    most: Vec<u32>,
    /// Places of which promises keep something.
    held: Vec<(usize, &'a [Hold])>,
    /// Likewise without what promises take, at most; not kept where there are none.
    open: Vec<u32>,
    /// Steps that have been taken by then.
    grown: usize,
    /// Rooms that were worked out for `start`.
    rooms: RefCell<NodeMap<Room>>,
}

impl<'a> Future<'a> {
    fn new(
        demand: &Demand,
        (fleet, part): (&'a Fleet, &'a PartView),
        holds: &'a Holds,
        outlook: &Outlook,
        (start, rooms): (Timestamp, usize),
    ) -> Future<'a> {
        Future {
            fleet,
            part,
            holds,
            ends: outlook.ends,
            endless: outlook.endless,
            start,
            length_ms: demand.length_ms,
            shared: outlook.shared,
            most: Vec::new(),
            held: Vec::new(),
            open: Vec::new(),
            grown: 0,
            rooms: RefCell::new(NodeMap::with_capacity_and_hasher(rooms, Default::default())),
        }
    }

    fn go_to(&mut self, time: Timestamp) {
        if time > self.start {
            self.start = time;
        }
        self.rooms.get_mut().clear();
    }

    /// Tasks that a place holds at most beside what is promised.
    fn may_have(&self, pos: usize) -> u32 {
        self.open.get(pos).copied().unwrap_or(self.most[pos])
    }

    /// Of so many nodes and tasks those that promises leave, at most. Room is only looked at where that is enough.
    fn count_open(
        &mut self,
        demand: &Demand,
        least: u32,
        (mut nodes, mut tasks): (u64, u64),
    ) -> (u64, u64) {
        if self.held.is_empty() {
            return (nodes, tasks);
        }
        self.open.clone_from(&self.most);
        let (start, end) = (self.start, end_after(self.start, self.length_ms));
        for (pos, list) in &self.held {
            let most = self.most[*pos];
            if most == 0 {
                continue;
            }
            let (mut taken, mut alone) = (0u32, false);
            for hold in list.iter().filter(|h| h.start < end && start < h.end) {
                taken = taken.saturating_add(hold.needs.cpus);
                alone |= hold.needs.exclusive;
            }
            let class = self.fleet.nodes[self.part.order[*pos] as usize].class;
            let all = self.fleet.classes[class as usize].job_cpus();
            let left = match all.saturating_sub(taken) {
                left if alone || left == 0 => 0,
                left => left.checked_div(demand.cpus_of_tasks()).unwrap_or(most),
            };
            let open = if left < least { 0 } else { left.min(most) };
            self.open[*pos] = open;
            nodes -= u64::from(open == 0);
            tasks -= u64::from(most - open);
        }
        (nodes, tasks)
    }

    /// The node's room without those who have left.
    fn bare(&self, node: u32) -> Room {
        let mut rooms = self.rooms.borrow_mut();
        let room = rooms.entry(node).or_insert_with(|| self.bare_anew(node));
        room.clone()
    }

    /// The same for nodes that are looked at once.
    fn bare_anew(&self, node: u32) -> Room {
        let ends = (self.ends, self.endless);
        self.fleet.room_at(node, self.start, ends)
    }

    /// The room without what is promised to others while the job would run.
    fn left(&self, node: u32) -> Room {
        // Where the network has a shape, leaves are looked at before their nodes.
        let room = match self.part.network {
            Some(_) => self.bare(node),
            None => self.bare_anew(node),
        };
        self.left_of(node, room)
    }

    /// Likewise of a node with that room.
    fn left_of(&self, node: u32, mut room: Room) -> Room {
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
        let window = (self.fleet.now, self.start, end);
        let left = blocks.narrow(self.part, node, window, Cow::Owned(room));
        left.0.into_owned()
    }
}

impl Ground for Future<'_> {
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
            let ends = (self.ends, self.endless);
            let open = self.fleet.open_at(self.part, pos, self.start, ends);
            room.cpus = room.cpus.min(open);
        }
        Cow::Owned(room)
    }

    fn tasks(&self, pos: usize) -> Option<u32> {
        let alone = self.held.is_empty() && self.fleet.blocks.all.is_empty();
        let exact = alone && !self.part.cpus.rule.bounds();
        exact.then(|| self.most[pos])
    }

    fn detail(&self, pos: usize) -> Option<Detail> {
        let ends = (self.ends, self.endless);
        self.fleet.detail_at(self.part.order[pos], self.start, ends)
    }
}

/// A ground without some of its nodes.
struct Among<'a> {
    ground: &'a Future<'a>,
    kept: Vec<bool>,
    /// The places kept, in order.
    places: Vec<usize>,
}

impl Ground for Among<'_> {
    fn next(&self, places: Range<usize>, _: u32, _: u64) -> Option<usize> {
        let from = self.places.partition_point(|pos| *pos < places.start);
        self.places
            .get(from)
            .copied()
            .filter(|pos| *pos < places.end)
    }

    fn may_hold(&self, pos: usize, tasks: u32) -> bool {
        self.ground.may_hold(pos, tasks)
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

    fn tasks(&self, pos: usize) -> Option<u32> {
        match self.kept[pos] {
            true => self.ground.tasks(pos),
            false => Some(0),
        }
    }

    fn detail(&self, pos: usize) -> Option<Detail> {
        self.ground.detail(pos)
    }
}

/// Promises nodes to the first job of a lane, from `start` on; gives what each node keeps for it.
pub(crate) fn promise(
    holds: &mut Holds,
    demand: &Demand,
    (fleet, part, lane): (&Fleet, &PartView, u32),
    (start, picks): (Timestamp, &[Pick]),
    outlook: &Outlook,
) -> Vec<(u32, Hold)> {
    let end = end_after(start, demand.length_ms);
    let future = Future::new(demand, (fleet, part), holds, outlook, (start, 0));
    // Most nodes of a job are of one kind and get as many of its tasks.
    let alike = |a: &Pick, b: &Pick| {
        let class = |pick: &Pick| fleet.nodes[pick.node as usize].class;
        (class(a), a.tasks, a.share) == (class(b), b.tasks, b.share)
    };
    let mut last: Option<(&Pick, Room)> = None;
    let made: Vec<(u32, Hold)> = picks
        .iter()
        .map(|pick| {
            let needs = match &last {
                Some((other, needs)) if alike(other, pick) => needs.clone(),
                _ => {
                    let class = &fleet.classes[fleet.nodes[pick.node as usize].class as usize];
                    needs_of(fleet, pick.node, &demand.want(class, pick))
                }
            };
            last = Some((pick, needs.clone()));
            let left = future.left_of(pick.node, future.bare_anew(pick.node));
            let spare = minus(&left, &needs);
            let hold = Hold {
                lane,
                start,
                end,
                needs,
                spare,
            };
            (pick.node, hold)
        })
        .collect();
    holds.add(&made);
    made
}
