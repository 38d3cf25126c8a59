//! Nodes at later times: the earliest time at which a job fits, and the nodes that are kept for it from then on.
//!
//! An [`Outlook`] is kept for the first job that waits in a partition: how many of its tasks each node holds, now and
//! each time that a job on it ends. When something changes on a node, that node's part is worked out again and the
//! rest stays, so that a pass does not look at all that runs.

mod future;

use self::future::{FutureNodes, NodeSubset, PLACES, ROOMS};
use crate::demand::Demand;
use crate::demand::pick::Pick;
use crate::demand::task_counts::TaskCounts;
use crate::nodes::allocations::{Ends, NEVER, layers_of};
use crate::nodes::fleet::{Fleet, PartView, Room};
use crate::nodes::node_set::NodeSet;
use crate::nodes::rooms::{needs_of, take_away};
use crate::place::holds::{Holds, NodeHold, SharedHolds};
use crate::place::node_source::end_after;
use crate::place::{Placement, choose};
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
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

/// How many tasks of one demand nodes hold, now and later. Reservations are left out: they only take away.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// The part of the demand that concerns nodes.
    of: Demand,
    /// Most tasks that any node holds.
    best: u32,
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
    /// Changes to come, by time.
    steps: Vec<Step>,
    /// CPUs that others share may be had, too: as many as now.
    shared: bool,
    /// Changes of the fleet that are in it.
    seen: u64,
    /// The last answer to [`Outlook::earliest_alone`].
    answer: Option<EarliestStart>,
    kept: Option<LastReservation>,
    /// Places that have changed, during an update.
    marks: Vec<bool>,
    /// Nodes that have changed, while a reservation is made.
    changed: NodeSet,
}

/// When and where the job fits while nothing else is reserved.
#[derive(Debug)]
struct EarliestStart {
    /// The version of the fleet that it is about.
    version: u64,
    start: Timestamp,
    /// Until it is asked what is kept for the job then.
    picks: Vec<Pick>,
    /// The holds for the job from then on.
    made: SharedHolds,
}

/// The last reservation that was worked out. Its holds stay valid for nodes that have not changed since.
#[derive(Debug)]
struct LastReservation {
    /// Changes of the fleet that are in it.
    seen: u64,
    start: Timestamp,
    picks: Vec<Pick>,
    /// The hold of each pick.
    made: SharedHolds,
}

impl LastReservation {
    /// The hold of a pick, if its node has not changed. Picks must be asked for in order; `from` is where the search goes on.
    fn of(&self, pick: &Pick, changed: &NodeSet, from: &mut usize) -> Option<&NodeHold> {
        let before = self.picks[*from..].iter();
        *from += before.take_while(|other| other.node < pick.node).count();
        let same = self.picks.get(*from) == Some(pick) && !changed.contains(pick.node);
        same.then(|| &self.made[*from])
    }
}

/// Memory that is used again for the next node.
#[derive(Default)]
struct Scratch {
    /// Ends of allocations, and their places in the node's list.
    leaving: Vec<(Timestamp, usize)>,
    task_counts: TaskCounts,
}

/// Fewest tasks with which a node is of any use, if nodes hold `best` at most; and how many it takes of all.
fn needed(demand: &Demand, best: u32) -> (u32, u64) {
    match demand.tasks {
        Some(tasks) => {
            let others = u64::from(demand.max_nodes.saturating_sub(1)) * u64::from(best);
            let least = u64::from(tasks).saturating_sub(others).max(1);
            (u32::try_from(least).unwrap_or(u32::MAX), u64::from(tasks))
        }
        None => (demand.tasks_each, 0),
    }
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
        let (least, tasks_needed) = needed(demand, best);
        let mut outlook = Outlook {
            of: demand.clone(),
            best,
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
            kept: None,
            marks: vec![false; part.order.len()],
            changed: NodeSet::default(),
        };
        let (mut scratch, mut steps) = (Scratch::default(), Vec::new());
        for pos in 0..part.order.len() {
            outlook.look(demand, fleet, part, pos, (&mut scratch, &mut steps));
        }
        outlook.steps = steps;
        outlook.steps.sort_unstable();
        outlook
    }

    /// Takes it for another demand than it was made for, if that asks for the same of each node and every node; whether
    /// it does.
    pub(crate) fn serves(&mut self, demand: &Demand) -> bool {
        if !self.of.is_like_on_nodes(demand) {
            return false;
        }
        let (least, tasks_needed) = needed(demand, self.best);
        if least != self.least {
            return false;
        }
        self.tasks_needed = tasks_needed;
        self.nodes_needed = u64::from(demand.min_nodes);
        (self.answer, self.kept) = (None, None);
        true
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
        places.iter().for_each(|pos| self.marks[*pos] = true);
        let marks = &self.marks;
        self.steps.retain(|step| !marks[step.pos as usize]);
        let (mut scratch, mut new) = (Scratch::default(), Vec::new());
        for pos in places.iter().copied() {
            self.marks[pos] = false;
            self.look(demand, fleet, part, pos, (&mut scratch, &mut new));
        }
        self.add_steps(new);
        true
    }

    /// Adds steps, in order.
    fn add_steps(&mut self, mut new: Vec<Step>) {
        /// So few are put where they belong one by one.
        const FEW: usize = 4;
        if new.len() <= FEW {
            for step in new {
                let at = self.steps.partition_point(|known| *known < step);
                self.steps.insert(at, step);
            }
            return;
        }
        // Two sorted runs: the sort merges them.
        new.sort_unstable();
        self.steps.append(&mut new);
        self.steps.sort();
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
        let Scratch {
            leaving,
            task_counts,
        } = scratch;
        let holds = |room: &Room| {
            let mut room = Cow::Borrowed(room);
            if let Some(cpus) = shared.filter(|cpus| *cpus > room.cpus) {
                room.to_mut().cpus = cpus;
            }
            match task_counts.tasks_in(demand, (view.class, class), &room) {
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
        for (at, allocation) in view.allocations.iter().enumerate() {
            let end = allocation.end((self.ends, self.endless));
            if end < NEVER {
                leaving.push((end, at));
            }
        }
        leaving.sort_unstable();
        let (mut room, mut layers) = (view.room.clone(), layers_of(view));
        let most = fleet.empty[view.class as usize].cpus;
        let mut at = 0;
        while at < leaving.len() {
            let end = leaving[at].0;
            while at < leaving.len() && leaving[at].0 == end {
                view.allocations[leaving[at].1].leave((class, most), &mut room, &mut layers);
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

    /// [`Outlook::earliest`] where no reservation of either kind is in the way, and nothing but nodes keeps the job back: as long as
    /// nothing has changed on any node, and the time has not come, the answer is the same.
    pub(crate) fn earliest_alone(
        &mut self,
        demand: &Demand,
        (fleet, part): (&Fleet, &PartView),
        now: Timestamp,
    ) -> Option<Timestamp> {
        let version = fleet.changes.version();
        let known = |answer: &EarliestStart| answer.version == version && answer.start > now;
        if !self.answer.as_ref().is_some_and(known) {
            let (holds, ends) = (Holds::default(), BTreeSet::new());
            let found = self.earliest(demand, (fleet, part), (&holds, &ends), (now, None), None);
            self.answer = found.map(|(start, picks)| EarliestStart {
                version,
                start,
                picks,
                made: Arc::default(),
            });
        }
        self.answer.as_ref().map(|answer| answer.start)
    }

    /// [`reserve`] of what [`Outlook::earliest_alone`] has just found.
    pub(crate) fn reserve_alone(
        &mut self,
        holds: &mut Holds,
        demand: &Demand,
        place: (&Fleet, &PartView, u32),
    ) -> SharedHolds {
        let Some(mut answer) = self.answer.take() else {
            return Arc::default();
        };
        if answer.made.is_empty() {
            let picks = std::mem::take(&mut answer.picks);
            answer.made = self.keep(demand, place, (answer.start, &picks));
            self.kept = Some(LastReservation {
                seen: self.seen,
                start: answer.start,
                picks,
                made: Arc::clone(&answer.made),
            });
        }
        holds.add(&answer.made);
        let made = Arc::clone(&answer.made);
        self.answer = Some(answer);
        made
    }

    /// What is to be kept for the job from then on, where nothing else is. It is what was kept before, as far as the
    /// nodes have not changed since.
    fn keep(
        &mut self,
        demand: &Demand,
        place: (&Fleet, &PartView, u32),
        (start, picks): (Timestamp, &[Pick]),
    ) -> SharedHolds {
        let changes = &place.0.changes;
        let mut changed = std::mem::take(&mut self.changed);
        let kept = self.kept.take().filter(|kept| kept.start == start);
        let kept = kept.and_then(|kept| Some((changes.since(kept.seen)?, kept)));
        let kept = kept.map(|(nodes, kept)| {
            for node in nodes {
                changed.insert(*node);
            }
            kept
        });
        let stays = |kept: &&LastReservation| {
            kept.picks == picks && !picks.iter().any(|pick| changed.contains(pick.node))
        };
        let made = match kept.as_ref().filter(stays) {
            Some(kept) => Arc::clone(&kept.made),
            None => {
                let mut from = 0;
                let known = |pick: &Pick| kept.as_ref()?.of(pick, &changed, &mut from);
                let holds = Holds::default();
                Arc::new(holds_for(
                    &holds,
                    demand,
                    place,
                    (start, picks),
                    self,
                    known,
                ))
            }
        };
        changed.clear();
        self.changed = changed;
        made
    }

    /// The earliest time and place for the job, which does not fit now; `None` if no end in sight makes room for it.
    /// `from` is a time before which it cannot start, and at which it may fit.
    /// `ends` are those of the reservations in `holds`; `waited` is since when it could run on more leaf switches than it
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
        let mut future = FutureNodes::new(demand, (fleet, part), holds, self, (now, rooms));
        future.most.clone_from(&self.now);
        let held = holds.iter().filter_map(|(node, list)| {
            let place = part.place(node)?;
            Some((place, list))
        });
        future.held = held.collect();
        let mut reservations: BTreeSet<Timestamp> = ends.range(..NEVER).copied().collect();
        reservations.extend(fleet.blocks.ends(part, now));
        reservations.extend(from);
        // From then on it takes more switches.
        let mut relents = waited.and_then(|since| demand.relents_at(since));
        reservations.extend(relents.filter(|t| *t > now));
        let (mut nodes, mut tasks) = (self.nodes, self.tasks);
        let mut steps = self.steps.iter().enumerate().peekable();
        let mut changed = !reservations.is_empty();
        let enough = |(nodes, tasks)| nodes >= self.nodes_needed && tasks >= self.tasks_needed;
        // As long as nodes come to hold more and nothing else happens, only those matter with which it is enough.
        while reservations.is_empty()
            && let Some((place, step)) = steps.next_if(|(_, step)| {
                let more = (u64::from(step.from == 0), u64::from(step.to - step.from));
                !enough((nodes + more.0, tasks + more.1))
            })
        {
            nodes += u64::from(step.from == 0);
            tasks += u64::from(step.to - step.from);
            future.most[step.pos as usize] = step.to;
            future.grown = place + 1;
            changed = true;
        }
        loop {
            let next_step = steps.peek().map(|(_, step)| step.at.max(now));
            let next = match (next_step, reservations.first().copied()) {
                (Some(a), Some(b)) => a.min(b),
                (a, b) => a.or(b)?,
            };
            future.go_to(next);
            while reservations.first().is_some_and(|t| *t <= next) {
                reservations.pop_first();
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
                    reservations.extend(relents);
                }
                Placement::Scattered | Placement::Nowhere(_) => {}
            }
        }
    }

    /// A placement on the nodes that become able to hold the job last. A reservation says how much is kept, not where the
    /// job will run: that is chosen when it starts. Keeping the nodes that are busy until then leaves those that are
    /// free already to jobs that run longer.
    fn latest(&self, demand: &Demand, future: &FutureNodes<'_>) -> Option<Vec<Pick>> {
        let (fleet, part) = (future.fleet, future.part);
        let mut among = NodeSubset {
            source: future,
            kept: vec![false; part.order.len()],
            places: Vec::with_capacity(PLACES),
            at: Cell::new(0),
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
            among.settle();
            let found = choose(demand, fleet, part, &among, None).picks();
            if found.is_some() || last {
                return found;
            }
            more = nodes;
        }
    }
}

/// Reserves nodes for the first job of a lane, from `start` on; gives the holds on them.
pub(crate) fn reserve(
    holds: &mut Holds,
    demand: &Demand,
    place: (&Fleet, &PartView, u32),
    found: (Timestamp, &[Pick]),
    outlook: &Outlook,
) -> SharedHolds {
    let made = holds_for(holds, demand, place, found, outlook, |_| None);
    let made = Arc::new(made);
    holds.add(&made);
    made
}

/// What each node keeps for the job; `known` says so of those of which that was worked out before.
fn holds_for<'a>(
    holds: &Holds,
    demand: &Demand,
    (fleet, part, lane): (&Fleet, &PartView, u32),
    (start, picks): (Timestamp, &[Pick]),
    outlook: &Outlook,
    mut known: impl FnMut(&Pick) -> Option<&'a NodeHold>,
) -> Vec<NodeHold> {
    let end = end_after(start, demand.length_ms);
    let future = FutureNodes::new(demand, (fleet, part), holds, outlook, (start, 0));
    // Most nodes of a job are of one kind and get as many of its tasks.
    let mut last: Option<(u32, &Pick, Room)> = None;
    let mut made = Vec::with_capacity(picks.len());
    for pick in picks {
        if let Some(hold) = known(pick) {
            made.push(hold.clone());
            continue;
        }
        let class = fleet.nodes[pick.node as usize].class;
        let same = |(of, other, _): &(u32, &Pick, Room)| {
            (*of, other.tasks, other.share) == (class, pick.tasks, pick.share)
        };
        let (.., needs) = match last.take_if(|last| same(last)) {
            Some(known) => last.insert(known),
            None => {
                let want = demand.want(&fleet.classes[class as usize], pick);
                last.insert((class, pick, needs_of(fleet, pick.node, &want)))
            }
        };
        let mut spare = future.left_of(pick.node, future.bare_anew(pick.node));
        take_away(&mut spare, needs);
        made.push(NodeHold {
            node: pick.node,
            lane,
            start,
            end,
            needs: needs.clone(),
            spare,
        });
    }
    made
}
