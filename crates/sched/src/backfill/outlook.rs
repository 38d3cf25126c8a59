//! Nodes at later times: the earliest time at which a job fits, and the nodes held for it from then
//! on.
//!
//! An [`Outlook`] belongs to the first job that waits in a partition. It records how many of the
//! job's tasks each node can run, now and after each end of a job on the node. When a node changes,
//! only the part of that node is computed again, so that a pass does not look at all running jobs.

mod future;
mod steps;

use self::future::held::HeldPlace;
use self::future::{Capacity, FutureNodes, NodeSubset, PLACES, ROOMS};
use self::steps::{Step, StepsAhead};
use crate::demand::Demand;
use crate::demand::pick::Pick;
use crate::demand::task_counts::TaskCounts;
use crate::nodes::allocations::{EndAssumption, Ends, NEVER, layers_of};
use crate::nodes::fleet::{Fleet, PartFleet, PartView};
use crate::nodes::node_set::NodeSet;
use crate::nodes::room::Room;
use crate::nodes::rooms::{needs_of, take_away};
use crate::place::holds::{Holds, NodeHold, SharedHolds};
use crate::place::node_source::end_after;
use crate::place::{Placement, Shortfall, choose};
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Minimum cost, in nodes, of a search for an earliest time, because the found nodes are reserved
/// afterwards.
const PLACE_LEAST: u64 = 128;
/// Number of nodes that are prepared for such a search in the time of looking at one node.
const PREPARED_AS_ONE: u64 = 4;
/// Cost of an allocation while an outlook is computed, in nodes: a node may have hundreds.
const ALLOCATION_AS_NODES: u64 = 4;
/// Number of steps that cost as much as looking at one node.
const STEPS_AS_ONE: u64 = 16;

/// The nodes on which the first job of a lane will run, and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedPlacement<'a> {
    pub(crate) lane: u32,
    pub(crate) start: Timestamp,
    pub(crate) picks: &'a [Pick],
}

/// The earliest start found for a job.
#[derive(Debug)]
pub(crate) struct FoundStart {
    pub(crate) start: Timestamp,
    pub(crate) picks: Vec<Pick>,
}

/// Resources of nodes that are held for other jobs.
#[derive(Clone, Copy)]
pub(crate) struct KeptNodes<'a> {
    pub(crate) holds: &'a Holds,
    /// End times of the reservations that the holds belong to.
    pub(crate) ends: &'a BTreeSet<Timestamp>,
}

/// Times that bound the search for a start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTimes {
    pub(crate) now: Timestamp,
    /// The job cannot start before this time, and may fit at it.
    pub(crate) from: Option<Timestamp>,
    /// The time since which the job could run on more leaf switches than it requests, if it could.
    pub(crate) waited: Option<Timestamp>,
    /// Nodes that are looked at before ever fewer times are tried: every second one, every fourth, and so on, and the last.
    pub(crate) nodes_max: u64,
}

/// Numbers of tasks of one demand that the nodes can run, now and later. Reservations are ignored here, because they
/// can only reduce the numbers.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// The node-related part of the demand.
    of: Demand,
    /// The largest number of tasks on any node.
    best: u32,
    assumed: EndAssumption,
    /// The smallest number of tasks that makes a node useful.
    least: u32,
    nodes_needed: u64,
    tasks_needed: u64,
    /// Tasks by place in the partition, now.
    now: Vec<u32>,
    nodes: u64,
    tasks: u64,
    /// Future changes, by time.
    steps: Vec<Step>,
    /// CPUs in use by sharing jobs count as well, in the number that they have now.
    shared: bool,
    /// Number of fleet changes that this outlook includes.
    seen: u64,
    /// The last result of [`Outlook::earliest_alone`].
    answer: Option<EarliestStart>,
    kept: Option<LastReservation>,
    /// Places that have changed; used during an update.
    marks: Vec<bool>,
    /// Nodes that have changed; used while a reservation is made.
    changed: NodeSet,
    /// Number of nodes looked at to compute the outlook and to search for an earliest time.
    looked_at: Cell<u64>,
}

/// The earliest time and nodes of the job while nothing else is reserved.
#[derive(Debug)]
struct EarliestStart {
    /// The version of the fleet for which the result was computed.
    version: u64,
    start: Timestamp,
    /// The chosen nodes, until the holds for the job are requested.
    picks: Vec<Pick>,
    /// The holds for the job from its start on.
    made: SharedHolds,
}

/// The last computed reservation. Its holds stay valid for nodes that have not changed since.
#[derive(Debug)]
struct LastReservation {
    /// Number of fleet changes that the reservation includes.
    seen: u64,
    start: Timestamp,
    picks: Vec<Pick>,
    /// The hold of each pick.
    made: SharedHolds,
}

impl LastReservation {
    /// The hold of a pick, if its node has not changed. Picks must be requested in node order;
    /// `from` is where the search continues.
    fn of(&self, pick: &Pick, changed: &NodeSet, from: &mut usize) -> Option<&NodeHold> {
        let before = self.picks[*from..].iter();
        *from += before.take_while(|other| other.node < pick.node).count();
        let same = self.picks.get(*from) == Some(pick) && !changed.contains(pick.node);
        same.then(|| &self.made[*from])
    }
}

/// Buffers for computing one node after another, kept to reuse their memory.
#[derive(Default)]
struct Scratch {
    /// Ends of allocations, and the allocations' places in the node's list.
    leaving: Vec<(Timestamp, usize)>,
    task_counts: TaskCounts,
    /// The steps of all nodes looked at.
    steps: Vec<Step>,
}

/// The number of allocations with a known end on each node of a partition, by place.
pub(crate) fn ends_on_nodes(fleet: &Fleet, part: &PartView, assumed: EndAssumption) -> Vec<u64> {
    let ends = |node: &u32| {
        let view = &fleet.nodes[*node as usize];
        let known = view.allocations.iter().filter(|_| view.room.usable);
        known.filter(|a| a.end(assumed) < NEVER).count() as u64
    };
    part.order.iter().map(ends).collect()
}

/// The smallest number of tasks that makes a node useful, if nodes can run at most `best` tasks;
/// and the number of such nodes that the job needs.
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
    /// Computes the outlook from every node of the partition.
    pub(crate) fn new(
        demand: &Demand,
        fleet: &Fleet,
        part: &PartView,
        assumed: EndAssumption,
    ) -> Outlook {
        let best = (0..demand.alternatives.len())
            .map(|a| demand.tasks_at_most(a, &fleet.classes))
            .max()
            .unwrap_or(0);
        let (least, tasks_needed) = needed(demand, best);
        let mut outlook = Outlook {
            of: demand.clone(),
            best,
            assumed,
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
            looked_at: Cell::new(0),
        };
        let mut scratch = Scratch::default();
        for pos in 0..part.order.len() {
            outlook.look(demand, fleet, part, pos, &mut scratch);
        }
        outlook.steps = scratch.steps;
        outlook.steps.sort_unstable();
        outlook
    }

    /// Cost of [`Outlook::new`]; `ends` are the numbers of known ends by place, from [`ends_on_nodes`].
    pub(crate) fn cost_of(demand: &Demand, fleet: &Fleet, part: &PartView, ends: &[u64]) -> u64 {
        let cost = |(node, ends): (&u32, &u64)| {
            let class = fleet.nodes[*node as usize].class;
            let admitted = (0..demand.alternatives.len()).any(|a| demand.admits(a, class, *node));
            1 + ALLOCATION_AS_NODES * if admitted { *ends } else { 0 }
        };
        part.order.iter().zip(ends).map(cost).sum()
    }

    /// Reuses the outlook for another demand, if that demand asks for the same resources of each
    /// node and of all nodes. Returns whether it does.
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

    /// The kind of job ends that the outlook counts on.
    pub(crate) fn ends(&self) -> Ends {
        self.assumed.ends
    }

    /// The time of the last known job end that frees resources.
    pub(crate) fn last_end(&self) -> Option<Timestamp> {
        self.steps.last().map(|step| step.at)
    }

    /// Number of nodes looked at since the last call.
    pub(crate) fn take_looked_at(&self) -> u64 {
        self.looked_at.take()
    }

    /// Computes the changed nodes again; `false` if the list of changed nodes is not available.
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
        let mut scratch = Scratch::default();
        for pos in places.iter().copied() {
            self.marks[pos] = false;
            self.look(demand, fleet, part, pos, &mut scratch);
        }
        self.add_steps(scratch.steps);
        true
    }

    /// Adds steps in order.
    fn add_steps(&mut self, mut new: Vec<Step>) {
        /// A small number of steps is inserted one by one.
        const FEW: usize = 4;
        if new.len() <= FEW {
            for step in new {
                let at = self.steps.partition_point(|known| *known < step);
                self.steps.insert(at, step);
            }
            return;
        }
        // The list consists of two sorted runs, which the sort merges.
        new.sort_unstable();
        self.steps.append(&mut new);
        self.steps.sort();
    }

    /// Computes one node; appends its future steps to the scratch.
    fn look(
        &mut self,
        demand: &Demand,
        fleet: &Fleet,
        part: &PartView,
        pos: usize,
        scratch: &mut Scratch,
    ) {
        let node = part.order[pos];
        let view = &fleet.nodes[node as usize];
        let class = &fleet.classes[view.class as usize];
        let admitted = (0..demand.alternatives.len()).any(|a| demand.admits(a, view.class, node));
        let shared = part.shared_cpus(pos).filter(|_| self.shared);
        self.count_looked_at(1);
        let Scratch {
            leaving,
            task_counts,
            steps,
        } = scratch;
        let holds = |room: &Room| {
            let mut room = Cow::Borrowed(room);
            if let Some(cpus) = shared.filter(|cpus| *cpus > room.cpus) {
                room.to_mut().cpus = cpus;
            }
            match task_counts.tasks_in(demand, view.class, class, &room) {
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
            let end = allocation.end(self.assumed);
            if end < NEVER {
                leaving.push((end, at));
            }
        }
        leaving.sort_unstable();
        self.looked_at
            .set(self.looked_at.get() + ALLOCATION_AS_NODES * leaving.len() as u64);
        let (mut room, mut layers) = (view.room.clone(), layers_of(&view.layers));
        let most = fleet.empty[view.class as usize].cpus;
        let (mut at, mut free) = (0, room.cpus);
        while at < leaving.len() {
            let end = leaving[at].0;
            while at < leaving.len() && leaving[at].0 == end {
                view.allocations[leaving[at].1].leave(class, most, &mut room, &mut layers);
                at += 1;
            }
            if end <= self.assumed.gone_by {
                free = room.cpus;
            }
            let most = holds(&room);
            // Where the demand depends on more than counts, any job end may help.
            if most > last || (most > 0 && demand.is_intricate()) {
                steps.push(Step {
                    at: end,
                    free: Reverse(free),
                    pos: u32::try_from(pos).expect("fewer than 2^32 nodes"),
                    from: last,
                    to: most,
                });
                last = most;
            }
        }
    }

    /// [`Outlook::earliest`] for a job that no reservation affects and that waits for nodes only.
    /// The result stays the same as long as no node changes and its start time has not passed.
    pub(crate) fn earliest_alone(
        &mut self,
        demand: &Demand,
        on: PartFleet<'_>,
        now: Timestamp,
        nodes_max: u64,
    ) -> Option<Timestamp> {
        let version = on.fleet.changes.version();
        let known = |answer: &EarliestStart| answer.version == version && answer.start > now;
        if !self.answer.as_ref().is_some_and(known) {
            let (holds, ends) = (Holds::default(), BTreeSet::new());
            let kept = KeptNodes {
                holds: &holds,
                ends: &ends,
            };
            let times = StartTimes {
                now,
                from: None,
                waited: None,
                nodes_max,
            };
            let found = self.earliest(demand, on, kept, times);
            self.answer = found.map(|FoundStart { start, picks }| EarliestStart {
                version,
                start,
                picks,
                made: Arc::default(),
            });
        }
        self.answer.as_ref().map(|answer| answer.start)
    }

    /// [`reserve`] for the result of [`Outlook::earliest_alone`].
    pub(crate) fn reserve_alone(
        &mut self,
        holds: &mut Holds,
        demand: &Demand,
        on: PartFleet<'_>,
        lane: u32,
    ) -> SharedHolds {
        let Some(mut answer) = self.answer.take() else {
            return Arc::default();
        };
        if answer.made.is_empty() {
            let picks = std::mem::take(&mut answer.picks);
            let planned = PlannedPlacement {
                lane,
                start: answer.start,
                picks: &picks,
            };
            answer.made = self.keep(demand, on, planned);
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

    /// The holds for the job from its start on, if nothing else is reserved. Holds on nodes that
    /// have not changed are reused.
    fn keep(
        &mut self,
        demand: &Demand,
        on: PartFleet<'_>,
        planned: PlannedPlacement<'_>,
    ) -> SharedHolds {
        let PlannedPlacement { start, picks, .. } = planned;
        let changes = &on.fleet.changes;
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
                Arc::new(holds_for(&holds, demand, on, planned, self, known))
            }
        };
        changed.clear();
        self.changed = changed;
        made
    }

    /// The earliest time and nodes for a job that does not fit now; `None` if no known job end
    /// makes room for it. If the exact search is too costly, the result is a later time.
    pub(crate) fn earliest(
        &self,
        demand: &Demand,
        on: PartFleet<'_>,
        kept: KeptNodes<'_>,
        times: StartTimes,
    ) -> Option<FoundStart> {
        let StartTimes {
            now,
            from,
            waited,
            nodes_max,
        } = times;
        let mut future = self.future(demand, on, kept.holds, now);
        let moment = future.nodes_of_moment();
        self.count_looked_at(moment + PLACE_LEAST + on.part.order.len() as u64 / PREPARED_AS_ONE);
        let begun = self.looked_at.get();
        let mut moments: BTreeSet<Timestamp> = kept.ends.range(..NEVER).copied().collect();
        if self.assumed.ends != Ends::Ignored {
            moments.extend(on.part.ends_of_reservations(on.fleet, now));
        }
        moments.extend(from);
        // From then on the job accepts more switches.
        let mut relents = waited.and_then(|since| demand.relents_at(since));
        moments.extend(relents.filter(|t| *t > now));
        let mut ahead = StepsAhead::new(self, !moments.is_empty());
        if moments.is_empty() {
            // While nodes only gain capacity, only the times matter at which the capacity reaches
            // the need.
            ahead.take_while(&mut future, |_, then| !self.is_enough(then));
        }
        let (mut stride, mut left_out) = (1, 0);
        let found = loop {
            let next = match (ahead.next_at(now), moments.first().copied()) {
                (Some(a), Some(b)) => a.min(b),
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => break None,
            };
            future.go_to(next);
            while moments.first().is_some_and(|t| *t <= next) {
                moments.pop_first();
                ahead.changed = true;
            }
            ahead.take_while(&mut future, |step, _| step.at.max(now) <= next);
            let early = from.is_some_and(|from| future.start < from);
            if early || !ahead.changed || !self.is_enough(ahead.capacity) {
                continue;
            }
            let is_last = moments.is_empty() && ahead.next_at(now).is_none();
            if !is_last && self.looked_at.get() - begun >= nodes_max {
                if left_out < stride {
                    left_out += 1;
                    continue;
                }
                (stride, left_out) = (2 * stride, 0);
            }
            ahead.changed = false;
            self.count_looked_at(moment);
            if !self.is_enough(future.count_open(demand, self.least, ahead.capacity)) {
                continue;
            }
            let start = future.start;
            let placement = self.place_at(demand, &future, relents.is_some_and(|t| t <= start));
            self.count_looked_at(future.tries.take());
            match placement {
                Placement::Here(picks) => break Some(FoundStart { start, picks }),
                Placement::Scattered if relents.is_none() => {
                    relents = demand.relents_at(start);
                    moments.extend(relents);
                }
                Placement::Scattered | Placement::Nowhere(_) => {}
            }
        };
        self.count_looked_at(future.grown as u64 / STEPS_AS_ONE);
        found
    }

    fn count_looked_at(&self, nodes: u64) {
        self.looked_at.set(self.looked_at.get() + nodes);
    }

    fn is_enough(&self, capacity: Capacity) -> bool {
        capacity.nodes >= self.nodes_needed && capacity.tasks >= self.tasks_needed
    }

    /// The nodes as they are now, as the start of the walk through future times.
    fn future<'a>(
        &self,
        demand: &Demand,
        on: PartFleet<'a>,
        holds: &'a Holds,
        now: Timestamp,
    ) -> FutureNodes<'a> {
        // Leaves of a network are looked at before their nodes.
        let rooms = on.part.network.as_ref().map_or(0, |_| ROOMS);
        let mut future = FutureNodes::new(demand, on, holds, self, now, rooms);
        future.most.clone_from(&self.now);
        let held = holds
            .iter()
            .filter_map(|(node, list)| Some(HeldPlace::new(on.part.place(node)?, list)));
        future.held = held.collect();
        future
    }

    /// A placement at the time that `future` has reached.
    fn place_at(&self, demand: &Demand, future: &FutureNodes<'_>, relented: bool) -> Placement {
        if future.part.network.is_none() {
            let found = self.latest(demand, future);
            return found.map_or(Placement::Nowhere(Shortfall::ANYTHING), Placement::Here);
        }
        self.count_looked_at(future.part.order.len() as u64);
        // In a network with several leaves, its shape decides.
        let switches = demand.switches.filter(|_| !relented);
        let switches = switches.map(|limit| limit.most);
        choose(demand, future.fleet, future.part, future, switches)
    }

    /// A placement on the nodes that become free last. A reservation states how much is held, not
    /// where the job will run: nodes are chosen when it starts. Holding the nodes that are busy
    /// until then leaves nodes that are free earlier to longer jobs.
    fn latest(&self, demand: &Demand, future: &FutureNodes<'_>) -> Option<Vec<Pick>> {
        let (fleet, part) = (future.fleet, future.part);
        let mut among = NodeSubset {
            source: future,
            kept: vec![false; part.order.len()],
            places: Vec::with_capacity(PLACES),
            at: Cell::new(0),
        };
        // Resources free before the job starts do not become free last.
        let gone_by = Some(self.assumed.gone_by).filter(|by| *by <= future.start);
        let grown = self.steps[..future.grown].iter().rev();
        let grown = grown.take_while(|step| gone_by.is_none_or(|by| step.at > by));
        let all = (0..part.order.len()).rev();
        let mut places = grown.map(|step| step.pos as usize).chain(all);
        let (mut nodes, mut tasks, mut more) = (0u64, 0u64, 0u64);
        loop {
            // Begins with the number of nodes that counts require and doubles it each time, because
            // needs are not only counts.
            let enough = |nodes: u64, tasks: u64| {
                nodes >= self.nodes_needed + more && (tasks >= self.tasks_needed || more > 0)
            };
            let mut last = true;
            let mut looked_at = 0;
            for pos in places.by_ref() {
                looked_at += 1;
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
            self.count_looked_at(looked_at + among.places.len() as u64);
            let found = choose(demand, fleet, part, &among, None).picks();
            if found.is_some() || last {
                return found;
            }
            more = nodes;
        }
    }
}

/// Reserves nodes for the first job of a lane; returns the holds on them.
pub(crate) fn reserve(
    holds: &mut Holds,
    demand: &Demand,
    on: PartFleet<'_>,
    planned: PlannedPlacement<'_>,
    outlook: &Outlook,
) -> SharedHolds {
    let made = holds_for(holds, demand, on, planned, outlook, |_| None);
    let made = Arc::new(made);
    holds.add(&made);
    made
}

/// The hold of each node for the job; `known` returns holds that were computed before.
fn holds_for<'a>(
    holds: &Holds,
    demand: &Demand,
    on: PartFleet<'_>,
    planned: PlannedPlacement<'_>,
    outlook: &Outlook,
    mut known: impl FnMut(&Pick) -> Option<&'a NodeHold>,
) -> Vec<NodeHold> {
    let PlannedPlacement { lane, start, picks } = planned;
    let fleet = on.fleet;
    let end = end_after(start, demand.length_ms);
    let future = FutureNodes::new(demand, on, holds, outlook, start, 0);
    // Most nodes of a job are equal and get the same number of tasks.
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
            claimed_by: None,
            start,
            end,
            needs: needs.clone(),
            spare,
        });
    }
    made
}
