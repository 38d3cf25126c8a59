//! Places all components of a heterogeneous job together: on the nodes as they are, or at the
//! earliest time at which all of them fit at once.

use crate::backfill::outlook::{
    FoundStart, KeptNodes, Outlook, PlannedPlacement, StartTimes, ends_on_nodes, reserve,
};
use crate::demand::Demand;
use crate::demand::pick::Pick;
use crate::nodes::allocations::{EndAssumption, Ends, NEVER};
use crate::nodes::fleet::{Fleet, PartFleet};
use crate::nodes::node_map::NodeMap;
use crate::nodes::room::Room;
use crate::nodes::rooms::{needs_of, take_away};
use crate::place::holds::{Holds, SharedHolds};
use crate::place::node_source::EmptyNodes;
use crate::place::{NodeSource, choose};
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, Range};

/// Maximum number of times tried for all components, so that a job of many components cannot hold
/// up a pass.
const TIMES_MAX: usize = 1000;
/// Maximum number of nodes looked at for the components of one job. After half of them the search
/// skips times at which the components might fit; at the end it tries only the last time.
pub(crate) const JOINT_NODES_MAX: u64 = 4_000_000;
/// Number of further times tried after the node budget is used up, before the last time.
const TIMES_BEYOND: usize = 2;
/// Divisor of the node budget of a job: each component gets at least this fraction of it.
const MEMBER_SHARE: u64 = 256;
/// Number of nodes or allocations that are counted in the time of looking at one node.
pub(crate) const COUNTED_AS_ONE: u64 = 4;
/// Number of orders of components that are tried regardless of cost.
pub(crate) const ORDERS_LEAST: usize = 3;

/// One component: the lanes in which it may run, in its own order, and its needs there.
pub(crate) struct Member<'a> {
    pub(crate) lanes: Vec<MemberLane<'a>>,
    /// The time since which the component could run on more leaf switches than it requests, if it
    /// could.
    pub(crate) waited: Option<Timestamp>,
}

/// A lane of a component.
#[derive(Clone, Copy)]
pub(crate) struct MemberLane<'a> {
    pub(crate) lane: u32,
    pub(crate) part: u32,
    pub(crate) demand: &'a Demand,
}

/// The placement of a component.
#[derive(Clone, Debug, Default)]
pub(crate) struct JointPlacement {
    /// Index in its list of lanes.
    pub(crate) at: usize,
    pub(crate) picks: Vec<Pick>,
    /// Holds on the nodes.
    pub(crate) holds: SharedHolds,
}

/// The earliest placement of a component.
struct EarliestLane {
    start: Timestamp,
    /// Index in its list of lanes.
    at: usize,
    picks: Vec<Pick>,
}

/// All components, and an outlook for each of their lanes. Outlooks are computed again for each
/// job, because heterogeneous jobs are few.
struct JointSearch<'a> {
    members: &'a [Member<'a>],
    /// For each member, the first member with the same needs in the same partitions.
    kinds: Vec<usize>,
    /// Outlooks of each first member of its kind, in its first partitions.
    outlooks: Vec<Vec<Outlook>>,
    fleet: &'a Fleet,
    now: Timestamp,
    /// Only the present is tried.
    is_now_only: bool,
    /// Number of nodes looked at after which the search is shortened, without those looked at before it.
    nodes_max: u64,
    cost: Cell<JointCost>,
}

/// Parameters of the search for an earliest time.
#[derive(Clone, Copy)]
pub(crate) struct JointTerms {
    pub(crate) assumed: EndAssumption,
    pub(crate) now: Timestamp,
    /// Number of nodes looked at after which the search is shortened.
    pub(crate) nodes_max: u64,
    /// Number of nodes looked at to compute outlooks; where it would be more, no time is searched for.
    pub(crate) prepared_max: u64,
}

/// Cost of placing the components of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JointCost {
    /// Number of placements tried, each for one component.
    pub(crate) placements: u64,
    /// Number of nodes looked at for them.
    pub(crate) nodes: u64,
}

impl AddAssign for JointCost {
    fn add_assign(&mut self, other: JointCost) {
        self.placements += other.placements;
        self.nodes += other.nodes;
    }
}

/// Orders in which components were placed. Exchanging equal components gives the same order.
pub(crate) struct TriedOrders<'a> {
    kinds: &'a [usize],
    /// The current order.
    pub(crate) order: Vec<usize>,
    tried: BTreeSet<Vec<usize>>,
}

impl<'a> TriedOrders<'a> {
    /// Components in their given order; `kinds` has for each component the first equal one.
    pub(crate) fn new(kinds: &'a [usize]) -> TriedOrders<'a> {
        TriedOrders {
            kinds,
            order: (0..kinds.len()).collect(),
            tried: BTreeSet::from([kinds.to_vec()]),
        }
    }

    /// Records the current order; `false` if an equal order was tried before.
    fn note(&mut self) -> bool {
        let kinds = self.order.iter().map(|number| self.kinds[*number]);
        self.tried.insert(kinds.collect())
    }

    /// Moves a component that did not fit beside those before it to the front. `false` if the
    /// resulting order was tried before.
    pub(crate) fn put_first(&mut self, place: usize) -> bool {
        let first = self.order.remove(place);
        self.order.insert(0, first);
        self.note()
    }
}

/// For each member, the first member with the same needs in the same partitions.
fn kinds_of(members: &[Member<'_>]) -> Vec<usize> {
    let same_lane =
        |(a, b): (&MemberLane<'_>, &MemberLane<'_>)| a.part == b.part && a.demand == b.demand;
    let same = |a: &Member<'_>, b: &Member<'_>| {
        let as_many = a.lanes.len() == b.lanes.len() && a.waited == b.waited;
        as_many && a.lanes.iter().zip(&b.lanes).all(same_lane)
    };
    let mut firsts: Vec<usize> = Vec::new();
    let kind = |number: usize| {
        let known = firsts
            .iter()
            .find(|first| same(&members[**first], &members[number]));
        known.copied().unwrap_or_else(|| {
            firsts.push(number);
            number
        })
    };
    (0..members.len()).map(kind).collect()
}

/// The earliest time at which all members fit at once, now included, and their placements, which
/// are added to `holds`. If the exact search is too costly, the result is a later time or none.
pub(crate) fn earliest_together(
    members: &[Member<'_>],
    fleet: &Fleet,
    holds: &mut Holds,
    terms: JointTerms,
) -> (Option<(Timestamp, Vec<JointPlacement>)>, JointCost) {
    let JointTerms {
        assumed,
        now,
        nodes_max,
        prepared_max,
    } = terms;
    let kinds = kinds_of(members);
    let mut cost = JointCost {
        placements: 0,
        nodes: pairs(members.len()),
    };
    // First partitions count as well, whatever other jobs have cost: there may be 128, and many jobs on each node.
    let mut costs = OutlookCosts::new(fleet, assumed);
    let mut firsts = 0;
    for (number, member) in members.iter().enumerate() {
        if let Some(lane) = member.lanes.first().filter(|_| kinds[number] == number) {
            firsts += costs.of(lane);
        }
        // Known before any of it is looked at: a job for which it is too much must not cost it.
        if firsts > prepared_max {
            cost.nodes += costs.counted / COUNTED_AS_ONE;
            return (None, cost);
        }
    }
    let mut prepared = 0;
    let mut outlooks = Vec::with_capacity(members.len());
    for (number, (member, kind)) in members.iter().zip(&kinds).enumerate() {
        let mut of_member = Vec::new();
        for lane in member.lanes.iter().filter(|_| number == *kind) {
            // If all partitions of a component are too many, its later partitions are left out.
            let is_first = of_member.is_empty();
            if !is_first && prepared >= nodes_max / 2 {
                break;
            }
            let own = costs.of(lane);
            if is_first {
                firsts -= own;
            } else if prepared + own + firsts > prepared_max {
                break;
            }
            let part = &fleet.parts[lane.part as usize];
            let outlook = Outlook::new(lane.demand, fleet, part, assumed);
            prepared += outlook.take_looked_at();
            of_member.push(outlook);
        }
        outlooks.push(of_member);
    }
    cost.nodes += prepared + costs.counted / COUNTED_AS_ONE;
    let search = JointSearch {
        members,
        outlooks,
        kinds,
        fleet,
        now,
        is_now_only: assumed.ends == Ends::Ignored,
        // However much was looked at before, some times are tried.
        nodes_max: nodes_max
            .saturating_sub(cost.nodes)
            .max(JOINT_NODES_MAX / 64),
        cost: Cell::default(),
    };
    let found = search.earliest(holds);
    cost += search.cost.get();
    (found, cost)
}

/// Cost of outlooks, without computing them.
struct OutlookCosts<'a> {
    fleet: &'a Fleet,
    assumed: EndAssumption,
    /// Known ends on the nodes of a partition, by its number.
    ends: BTreeMap<u32, Vec<u64>>,
    /// Number of nodes and allocations counted.
    counted: u64,
}

impl<'a> OutlookCosts<'a> {
    fn new(fleet: &'a Fleet, assumed: EndAssumption) -> OutlookCosts<'a> {
        OutlookCosts {
            fleet,
            assumed,
            ends: BTreeMap::new(),
            counted: 0,
        }
    }

    fn of(&mut self, lane: &MemberLane<'_>) -> u64 {
        let part = &self.fleet.parts[lane.part as usize];
        let ends = self.ends.entry(lane.part).or_insert_with(|| {
            let ends = ends_on_nodes(self.fleet, part, self.assumed);
            self.counted += ends.iter().sum::<u64>();
            ends
        });
        self.counted += ends.len() as u64;
        Outlook::cost_of(lane.demand, self.fleet, part, ends)
    }
}

/// Whether all components fit at once on empty nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmptyFit {
    Fits,
    /// They do not fit in any of the orders tried.
    FitsNot,
    /// The search was too costly to decide.
    Unknown,
}

/// Whether all members fit at once on empty nodes, by the same search as on other nodes.
pub(crate) fn could_fit(members: &[Member<'_>], fleet: &Fleet) -> (EmptyFit, JointCost) {
    let kinds = kinds_of(members);
    let mut orders = TriedOrders::new(&kinds);
    // Cost of comparing the members.
    let mut cost = JointCost {
        placements: 0,
        nodes: pairs(members.len()),
    };
    for _ in 0..members.len() {
        let mut taken = NodeMap::<Room>::default();
        let mut alone = None;
        for (place, &number) in orders.order.iter().enumerate() {
            match place_on_empty(&members[number], fleet, &mut taken, &mut cost) {
                EmptyFit::Fits => {}
                EmptyFit::FitsNot => {
                    alone = Some(place);
                    break;
                }
                EmptyFit::Unknown => return (EmptyFit::Unknown, cost),
            }
        }
        match alone {
            None => return (EmptyFit::Fits, cost),
            Some(0) => break,
            Some(place) if orders.put_first(place) => {}
            Some(_) => break,
        }
    }
    (EmptyFit::FitsNot, cost)
}

/// Places a member beside the resources already taken and takes its own; returns whether it fits.
fn place_on_empty(
    member: &Member<'_>,
    fleet: &Fleet,
    taken: &mut NodeMap<Room>,
    cost: &mut JointCost,
) -> EmptyFit {
    for MemberLane { part, demand, .. } in &member.lanes {
        if cost.nodes >= JOINT_NODES_MAX {
            return EmptyFit::Unknown;
        }
        let part = &fleet.parts[*part as usize];
        let source = EmptiedNodes {
            ideal: EmptyNodes {
                fleet,
                part,
                usable_only: true,
            },
            taken,
        };
        cost.placements += 1;
        cost.nodes += part.order.len() as u64;
        let Some(picks) = choose(demand, fleet, part, &source, None).picks() else {
            continue;
        };
        for pick in picks {
            let class = fleet.nodes[pick.node as usize].class as usize;
            let want = demand.want(&fleet.classes[class], &pick);
            let needs = needs_of(fleet, pick.node, &want);
            let room = taken.entry(pick.node);
            let room = room.or_insert_with(|| fleet.empty[class].clone());
            take_away(room, &needs);
        }
        return EmptyFit::Fits;
    }
    EmptyFit::FitsNot
}

/// Number of pairs of components.
pub(crate) fn pairs(components: usize) -> u64 {
    let components = components as u64;
    components * components.saturating_sub(1) / 2
}

/// Empty nodes without the resources of the components placed so far.
struct EmptiedNodes<'a> {
    ideal: EmptyNodes<'a>,
    taken: &'a NodeMap<Room>,
}

impl NodeSource for EmptiedNodes<'_> {
    fn next(&self, places: Range<usize>, cpus: u32, mib: u64) -> Option<usize> {
        self.ideal.next(places, cpus, mib)
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        self.ideal.leaves(cpus)
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        let room = self.ideal.room(pos);
        match self.taken.get(&self.ideal.part.order[pos]) {
            Some(left) if room.usable => Cow::Borrowed(left),
            _ => room,
        }
    }
}

/// Result of placing all members at one time.
enum Arranged {
    Together(Holds, Vec<JointPlacement>),
    /// One of the members fits only from this time on.
    NotBefore(Timestamp),
    Never,
}

impl JointSearch<'_> {
    fn on(&self, part: u32) -> PartFleet<'_> {
        self.fleet.of_part(part)
    }

    /// After the last job end and the last reservation nothing changes any more.
    fn last_change(&self, holds: &Holds) -> Timestamp {
        if self.is_now_only {
            return self.now;
        }
        let held = holds.iter().flat_map(|(_, list)| list);
        let held = held.map(|hold| hold.end);
        let ends = self.outlooks.iter().flatten().filter_map(Outlook::last_end);
        let reserved = self.members.iter().flat_map(|member| &member.lanes);
        let reserved = reserved.filter_map(|lane| {
            let part = &self.fleet.parts[lane.part as usize];
            part.ends_of_reservations(self.fleet, self.now).pop_last()
        });
        let finite = |time: &Timestamp| *time < NEVER;
        let last = held.filter(finite).chain(ends).chain(reserved).max();
        last.unwrap_or(self.now).max(self.now)
    }

    /// The earliest time for all members.
    fn earliest(&self, holds: &mut Holds) -> Option<(Timestamp, Vec<JointPlacement>)> {
        let last = self.last_change(holds);
        let held = holds.iter().flat_map(|(_, list)| list);
        let ends: BTreeSet<Timestamp> = held.map(|hold| hold.end).collect();
        let kept = KeptNodes { holds, ends: &ends };
        let mut at = self.now;
        let mut beyond = 0;
        for time in 1..=TIMES_MAX {
            let spent = self.cost.get().nodes;
            if spent >= self.nodes_max && at < last {
                beyond += 1;
            }
            if beyond > TIMES_BEYOND || time == TIMES_MAX {
                at = last;
            }
            let all_orders = at >= last || spent < self.nodes_max / 2;
            match self.arrange(kept, at, all_orders) {
                Arranged::Together(taken, found) => {
                    *holds = taken;
                    return Some((at, found));
                }
                Arranged::NotBefore(time) if time > at && time <= last => at = time,
                Arranged::NotBefore(_) | Arranged::Never => return None,
            }
        }
        None
    }

    /// Places all members at one time, one after another. A member that does not fit beside those
    /// before it is moved to the front. After the first success only that order counts, unless all
    /// orders are to be tried.
    fn arrange(&self, kept: KeptNodes<'_>, at: Timestamp, all_orders: bool) -> Arranged {
        let mut orders = TriedOrders::new(&self.kinds);
        let mut next: Option<Timestamp> = None;
        for round in 0..self.members.len() {
            if round >= ORDERS_LEAST && self.cost.get().nodes >= self.nodes_max {
                break;
            }
            let mut taken = kept.holds.clone();
            let mut found: Vec<JointPlacement> =
                vec![JointPlacement::default(); self.members.len()];
            let mut late = None;
            for (place, &number) in orders.order.iter().enumerate() {
                // All components start at the same time, so an end of one of them does not make
                // room for another.
                let kept = KeptNodes {
                    holds: &taken,
                    ends: kept.ends,
                };
                let Some(first) = self.first_of(number, kept, at) else {
                    return Arranged::Never;
                };
                if first.start > at {
                    next = Some(next.map_or(first.start, |known| known.min(first.start)));
                    late = Some(place);
                    break;
                }
                let MemberLane { lane, part, demand } = self.members[number].lanes[first.at];
                let outlook = &self.outlooks[self.kinds[number]][first.at];
                let planned = PlannedPlacement {
                    lane,
                    start: at,
                    picks: &first.picks,
                };
                let holds = reserve(&mut taken, demand, self.on(part), planned, outlook);
                found[number] = JointPlacement {
                    at: first.at,
                    picks: first.picks,
                    holds,
                };
            }
            match late {
                None => return Arranged::Together(taken, found),
                // The component does not fit alone either.
                Some(0) => break,
                Some(place) if all_orders && orders.put_first(place) => {}
                Some(_) => break,
            }
        }
        next.map_or(Arranged::Never, Arranged::NotBefore)
    }

    /// The earliest placement over a member's lanes, from a time on.
    fn first_of(
        &self,
        number: usize,
        kept: KeptNodes<'_>,
        from: Timestamp,
    ) -> Option<EarliestLane> {
        let member = &self.members[number];
        let mut best: Option<EarliestLane> = None;
        let outlooks = &self.outlooks[self.kinds[number]];
        let lanes = member.lanes.iter().zip(outlooks).enumerate();
        for (at, (MemberLane { part, demand, .. }, outlook)) in lanes {
            // Only an earlier start would be taken.
            if best.as_ref().is_some_and(|known| known.start <= from) {
                break;
            }
            let left = self.nodes_max.saturating_sub(self.cost.get().nodes);
            // There is no later time that could be tried instead.
            if self.is_now_only && left == 0 {
                break;
            }
            let times = StartTimes {
                now: self.now,
                from: Some(from),
                waited: member.waited,
                nodes_max: left.max(self.nodes_max / MEMBER_SHARE),
            };
            let found = outlook.earliest(demand, self.on(*part), kept, times);
            let mut cost = self.cost.get();
            cost += JointCost {
                placements: 1,
                nodes: outlook.take_looked_at(),
            };
            self.cost.set(cost);
            if let Some(FoundStart { start, picks }) = found
                && best.as_ref().is_none_or(|known| start < known.start)
            {
                best = Some(EarliestLane { start, at, picks });
            }
        }
        best
    }
}
