//! Components of a heterogeneous job are placed together: on the nodes as they are, or at the earliest time at which
//! all of them fit side by side.

use crate::backfill::outlook::{
    FoundStart, KeptNodes, Outlook, PlannedPlacement, StartTimes, reserve,
};
use crate::demand::Demand;
use crate::demand::pick::Pick;
use crate::nodes::allocations::{EndAssumption, NEVER};
use crate::nodes::fleet::{Fleet, PartFleet};
use crate::nodes::node_map::NodeMap;
use crate::nodes::room::Room;
use crate::nodes::rooms::{needs_of, take_away};
use crate::place::holds::{Holds, SharedHolds};
use crate::place::node_source::EmptyNodes;
use crate::place::{NodeSource, choose};
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

/// Times that are tried for all components at most, so that a job of many parts cannot hold up a pass.
const TIMES_MAX: usize = 1000;

/// One component: where it may run and what it needs there, in its order.
pub(crate) struct Member<'a> {
    pub(crate) lanes: Vec<MemberLane<'a>>,
    /// Since when it could run on more leaf switches than it asks for, if it could.
    pub(crate) waited: Option<Timestamp>,
}

/// A lane of a component.
#[derive(Clone, Copy)]
pub(crate) struct MemberLane<'a> {
    pub(crate) lane: u32,
    pub(crate) part: u32,
    pub(crate) demand: &'a Demand,
}

/// Where a component would run.
#[derive(Clone, Default)]
pub(crate) struct JointPlacement {
    /// Place in its list of lanes.
    pub(crate) at: usize,
    pub(crate) picks: Vec<Pick>,
    /// What is kept of the nodes.
    pub(crate) holds: SharedHolds,
}

/// The earliest place of a component.
struct EarliestLane {
    start: Timestamp,
    /// Place in its list of lanes.
    at: usize,
    picks: Vec<Pick>,
}

/// All components and what is ahead for each of their lanes. Nodes are looked at anew for each such job: there are few.
struct JointSearch<'a> {
    members: &'a [Member<'a>],
    outlooks: Vec<Vec<Outlook>>,
    fleet: &'a Fleet,
    now: Timestamp,
}

/// The earliest time at which all members fit at once, now included, and where. What they take is added to `holds`.
pub(crate) fn earliest_together(
    members: &[Member<'_>],
    fleet: &Fleet,
    holds: &mut Holds,
    assumed: EndAssumption,
    now: Timestamp,
) -> Option<(Timestamp, Vec<JointPlacement>)> {
    let outlook = |lane: &MemberLane<'_>| {
        Outlook::new(
            lane.demand,
            fleet,
            &fleet.parts[lane.part as usize],
            assumed,
        )
    };
    let outlooks = members
        .iter()
        .map(|member| member.lanes.iter().map(outlook).collect());
    let search = JointSearch {
        members,
        outlooks: outlooks.collect(),
        fleet,
        now,
    };
    let last = search.last_change(holds);
    let mut at = now;
    for _ in 0..TIMES_MAX {
        match search.arrange(holds, at) {
            Arranged::Together(taken, found) => {
                *holds = taken;
                return Some((at, found));
            }
            Arranged::NotBefore(time) if time > at && at <= last => at = time,
            Arranged::NotBefore(_) | Arranged::Never => return None,
        }
    }
    None
}

/// Whether all members find places side by side on empty nodes, the way they are looked for on others.
pub(crate) fn could_fit(members: &[Member<'_>], fleet: &Fleet) -> bool {
    let mut order: Vec<usize> = (0..members.len()).collect();
    for _ in 0..members.len() {
        let mut taken = NodeMap::<Room>::default();
        let alone = order.iter().position(|&number| {
            let lanes = members[number].lanes.iter();
            let mut places = lanes.map(|MemberLane { part, demand, .. }| {
                let part = &fleet.parts[*part as usize];
                let source = EmptiedNodes {
                    ideal: EmptyNodes {
                        fleet,
                        part,
                        usable_only: true,
                    },
                    taken: &taken,
                };
                Some((choose(demand, fleet, part, &source, None).picks()?, *demand))
            });
            let Some((picks, demand)) = places.find_map(|found| found) else {
                return true;
            };
            for pick in picks {
                let class = fleet.nodes[pick.node as usize].class as usize;
                let want = demand.want(&fleet.classes[class], &pick);
                let needs = needs_of(fleet, pick.node, &want);
                let room = taken.entry(pick.node);
                let room = room.or_insert_with(|| fleet.empty[class].clone());
                take_away(room, &needs);
            }
            false
        });
        match alone {
            None => return true,
            Some(0) => return false,
            Some(place) => {
                let first = order.remove(place);
                order.insert(0, first);
            }
        }
    }
    false
}

/// Empty nodes without what other components have of them.
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

/// The outcome of placing all members at one time.
enum Arranged {
    Together(Holds, Vec<JointPlacement>),
    /// One of them fits only from that time on.
    NotBefore(Timestamp),
    Never,
}

impl JointSearch<'_> {
    fn on(&self, part: u32) -> PartFleet<'_> {
        self.fleet.of_part(part)
    }

    /// After the last end and the last reservation nothing changes any more.
    fn last_change(&self, holds: &Holds) -> Timestamp {
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

    /// Places all members at a time, one after another; one that finds no place beside those before it comes first.
    fn arrange(&self, holds: &Holds, at: Timestamp) -> Arranged {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        let mut next: Option<Timestamp> = None;
        for _ in 0..self.members.len() {
            let mut taken = holds.clone();
            let mut found: Vec<JointPlacement> =
                vec![JointPlacement::default(); self.members.len()];
            let mut late = None;
            for (place, &number) in order.iter().enumerate() {
                let Some(first) = self.first_of(number, &taken, at) else {
                    return Arranged::Never;
                };
                if first.start > at {
                    next = Some(next.map_or(first.start, |known| known.min(first.start)));
                    late = Some(place);
                    break;
                }
                let MemberLane { lane, part, demand } = self.members[number].lanes[first.at];
                let outlook = &self.outlooks[number][first.at];
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
                // It does not fit alone either.
                Some(0) => break,
                Some(place) => {
                    let first = order.remove(place);
                    order.insert(0, first);
                }
            }
        }
        next.map_or(Arranged::Never, Arranged::NotBefore)
    }

    /// The earliest of a member's lanes from a time on.
    fn first_of(&self, number: usize, holds: &Holds, from: Timestamp) -> Option<EarliestLane> {
        let member = &self.members[number];
        let held = holds.iter().flat_map(|(_, list)| list);
        let ends: BTreeSet<Timestamp> = held.map(|hold| hold.end).collect();
        let mut best: Option<EarliestLane> = None;
        for (at, MemberLane { part, demand, .. }) in member.lanes.iter().enumerate() {
            let times = StartTimes {
                now: self.now,
                from: Some(from),
                waited: member.waited,
            };
            let kept = KeptNodes { holds, ends: &ends };
            let outlook = &self.outlooks[number][at];
            let found = outlook.earliest(demand, self.on(*part), kept, times);
            if let Some(FoundStart { start, picks }) = found
                && best.as_ref().is_none_or(|known| start < known.start)
            {
                best = Some(EarliestLane { start, at, picks });
            }
        }
        best
    }
}
