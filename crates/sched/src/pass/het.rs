//! Heterogeneous jobs in a pass: all components start now, or nodes are kept for all of them from one time on.

use super::reservations::{self, ComponentPicks, HetReservation};
use super::starts::Budget;
use super::{Pass, PlacementResult, starts};
use crate::NODES_PER_PASS_MAX;
use crate::backfill::gains::BackfillReservation;
use crate::backfill::together::{
    JOINT_NODES_MAX, JointPlacement, JointTerms, Member, MemberLane, ORDERS_LEAST, TriedOrders,
    could_fit, earliest_together,
};
use crate::demand::Demand;
use crate::demand::licenses::Licenses;
use crate::demand::pick::Pick;
use crate::nodes::allocations::{Ends, JobEnds};
use crate::nodes::fleet::NodeSnapshot;
use crate::order::HeadKey;
use crate::pass::starts::allocate;
use crate::place::NodeSource as _;
use crate::place::holds::{Holds, NodeHold};
use crate::place::node_source::{CurrentNodes, end_after};
use crate::place::{Placement, Shortfall};
use muster_core::state::limit_use::InUse;
use muster_model::account_limits::Scope;
use muster_model::command::PlannedExpectation;
use muster_model::het::HetPlace;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, Job, Reason};
use muster_model::time::Timestamp;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Places that are looked for in one pass before components are tried in a few orders only.
const PLACEMENTS_MAX: u64 = 4096;
/// Nodes that one pass looks at for components of heterogeneous jobs before the next of these jobs wait for another pass.
const NODES_MAX: u64 = NODES_PER_PASS_MAX / 2;

/// The outcome for a heterogeneous job in this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// All components start.
    Started,
    /// Not all of its components wait for nodes: one is held, or cannot run anywhere.
    Incomplete,
    /// It does not fit now.
    Waits,
}

/// Which heterogeneous jobs have had their turn, where there are too many for one pass.
#[derive(Debug, Default)]
pub(crate) struct HetTurns {
    /// Leaders of those that were tried in passes before, and wait until all have been.
    before: BTreeSet<JobId>,
    /// Likewise in this pass.
    now: BTreeSet<JobId>,
    /// Some have to wait for the next pass.
    is_cut: bool,
}

impl HetTurns {
    pub(super) fn end_pass(&mut self) {
        match std::mem::take(&mut self.is_cut) {
            true => self.before.append(&mut self.now),
            false => {
                self.before.clear();
                self.now.clear();
            }
        }
    }
}

/// A component and the lanes in which it waits.
struct Component {
    job: JobId,
    lanes: Vec<u32>,
}

/// Nodes and budgets as they were before components took of them.
struct Undo {
    nodes: Vec<NodeUndo>,
    licenses: Licenses,
    limit_use: BTreeMap<Scope, InUse>,
}

/// A node as it was before a component took of it.
struct NodeUndo {
    node: u32,
    snapshot: NodeSnapshot,
    holds: Vec<NodeHold>,
}

/// A component that starts.
struct ComponentStart {
    ends: JobEnds,
    alloc: Allocation,
}

/// Why a component found no place.
struct Failure {
    /// Its place among the components.
    at: usize,
    /// Reservations or earlier components of the same job were in the way.
    narrowed: bool,
    /// `None` if that is not known.
    missing: Option<Vec<LaneShortfall>>,
}

/// Why a component found no place in a lane.
struct LaneShortfall {
    lane: u32,
    short: Shortfall,
    /// Reservations were in the way.
    held: bool,
}

impl Undo {
    fn new(budget: &Budget) -> Undo {
        Undo {
            nodes: Vec::new(),
            licenses: budget.licenses.clone(),
            limit_use: budget.limit_use.clone(),
        }
    }

    /// Keeps the nodes of a component as they are, before it takes of them.
    fn keep(&mut self, pass: &Pass<'_>, picks: &[Pick]) {
        self.nodes.extend(picks.iter().map(|pick| NodeUndo {
            node: pick.node,
            snapshot: pass.s.fleet.keep(pick.node),
            holds: pass.reservations.holds.of(pick.node).to_vec(),
        }));
    }

    /// Gives back what components have taken.
    fn apply(self, pass: &mut Pass<'_>) {
        for before in self.nodes.into_iter().rev() {
            pass.s.fleet.restore(before.node, before.snapshot);
            if !before.holds.is_empty() {
                pass.reservations.holds.set(before.node, before.holds);
            }
        }
        pass.budget.licenses = self.licenses;
        pass.budget.limit_use = self.limit_use;
    }
}

/// Starts all components if they fit side by side. Tried once in a pass, and only if what one of them missed may be
/// there; `leads` says that it has become the first in line.
pub(super) fn try_het(pass: &mut Pass<'_>, lane: u32, place: HetPlace, leads: bool) -> Tried {
    if let Some(known) = pass.het_tried.get(&place.leader) {
        return *known;
    }
    let Some(components) = components(pass, place) else {
        pass.s.queue.block(lane, Shortfall::ANYTHING, false);
        pass.het_tried.insert(place.leader, Tried::Incomplete);
        return Tried::Incomplete;
    };
    let fits = fits_empty_nodes(pass, place, &components);
    // Nobody waits behind one that would find no place even then; it has one when it finds one.
    let waits = if fits {
        Tried::Waits
    } else {
        Tried::Incomplete
    };
    if pass.backfill && !leads && !may_fit(pass, place, &components) {
        return waits;
    }
    if !has_turn(pass, place) {
        pass.het_tried.insert(place.leader, waits);
        return waits;
    }
    let visited = pass.s.cost.nodes_visited;
    let tried = match try_components(pass, place, components) {
        Tried::Waits => waits,
        tried => tried,
    };
    pass.s.cost.het_tried_nodes += pass.s.cost.nodes_visited - visited;
    pass.het_tried.insert(place.leader, tried);
    tried
}

/// Whether the job is tried in this pass: there is a limit of nodes that are looked at for such jobs, and in the next pass
/// it is the turn of the others. One has its turn in each pass, whatever that costs.
fn has_turn(pass: &mut Pass<'_>, place: HetPlace) -> bool {
    let tried = &mut pass.s.het_turns;
    if tried.before.contains(&place.leader) {
        return false;
    }
    if pass.s.cost.het_tried_nodes >= NODES_MAX && !tried.now.is_empty() {
        tried.is_cut = true;
        return false;
    }
    tried.now.insert(place.leader);
    true
}

/// Whether the components find places beside each other on empty nodes that take jobs. What is found is kept.
fn fits_empty_nodes(pass: &mut Pass<'_>, place: HetPlace, components: &[Component]) -> bool {
    if let Some(known) = pass.s.queue.het_fits.get(&place.leader) {
        return *known;
    }
    let (fits, cost) = could_fit(&members(pass, components), &pass.s.fleet);
    pass.s.cost.count_joint(cost);
    pass.s.queue.het_fits.insert(place.leader, fits);
    fits
}

/// Whether what one of the components missed may be there now.
fn may_fit(pass: &mut Pass<'_>, place: HetPlace, components: &[Component]) -> bool {
    if pass.s.queue.het_restless.contains(&place.leader) {
        return true;
    }
    let lanes = components.iter().flat_map(|c| &c.lanes);
    lanes
        .copied()
        .collect::<Vec<u32>>()
        .into_iter()
        .any(|lane| {
            let end = end_after(pass.now, pass.length_ms(lane));
            let queue = &mut pass.s.queue;
            queue.woken.contains(&lane)
                || queue.is_unblocked(&pass.s.fleet, lane, &pass.reservations.holds, end)
        })
}

/// The components, if all of them are in the queue and can run somewhere.
fn components(pass: &Pass<'_>, place: HetPlace) -> Option<Vec<Component>> {
    let of = |job: JobId| {
        let lanes = pass.s.queue.lanes_of(job);
        (!lanes.is_empty()).then_some(Component { job, lanes })
    };
    place.ids().map(of).collect()
}

/// Components are placed in their order; if one finds no place beside those before it, it comes first. If it finds
/// none even then, all wait until it may.
fn try_components(pass: &mut Pass<'_>, place: HetPlace, components: Vec<Component>) -> Tried {
    let kinds = kinds_of(pass, &components);
    let mut orders = TriedOrders::new(&kinds);
    let mut narrowed = false;
    let mut missing = None;
    for round in 0..components.len() {
        if round >= ORDERS_LEAST && pass.s.cost.het_placements >= PLACEMENTS_MAX {
            break;
        }
        match place_all(pass, &components, &orders.order) {
            Ok(starts) => {
                start_all(pass, starts);
                return Tried::Started;
            }
            Err(failure) => {
                narrowed |= failure.narrowed;
                let nth = orders.order.iter().position(|c| *c == failure.at);
                let nth = nth.unwrap_or(0);
                if nth == 0 {
                    missing = failure.missing;
                    break;
                }
                if !orders.put_first(nth) {
                    break;
                }
            }
        }
    }
    let certain = missing.is_some();
    match certain {
        true => pass.s.queue.het_restless.remove(&place.leader),
        false => pass.s.queue.het_restless.insert(place.leader),
    };
    let missing = missing.unwrap_or_default();
    for lane in components.iter().flat_map(|c| &c.lanes) {
        let own = missing.iter().find(|of| of.lane == *lane);
        let (short, held) = match own {
            Some(own) => (own.short, own.held),
            // It waits for another component.
            None if certain => (Shortfall::NO_NODES, false),
            None => (Shortfall::ANYTHING, narrowed),
        };
        pass.s.queue.block(*lane, short, held);
    }
    Tried::Waits
}

/// For each component the first for which a search has the same outcome: it asks for the same in the same partitions, and
/// counts towards the same limits.
fn kinds_of(pass: &Pass<'_>, components: &[Component]) -> Vec<usize> {
    let queue = &pass.s.queue;
    let same_lane = |(a, b): (&u32, &u32)| {
        let (a, b) = (queue.lane(*a), queue.lane(*b));
        let as_long = (a.planned_ms, a.least_ms) == (b.planned_ms, b.least_ms);
        as_long && a.part == b.part && a.licenses == b.licenses && a.demand == b.demand
    };
    let same_job = |a: &Job, b: &Job| {
        a.switch_wait_since == b.switch_wait_since
            && a.spec.ask == b.spec.ask
            && a.spec.account_name() == b.spec.account_name()
            && pass.state.qos_of(a) == pass.state.qos_of(b)
    };
    let job = |c: &Component| pass.state.jobs.get(&c.job);
    let same = |a: &Component, b: &Component| {
        let lanes = a.lanes.len() == b.lanes.len();
        lanes
            && job(a).zip(job(b)).is_some_and(|(a, b)| same_job(a, b))
            && a.lanes.iter().zip(&b.lanes).all(same_lane)
    };
    let first = |c: &Component| components.iter().position(|other| same(other, c));
    let kinds = components.iter().zip(0..);
    kinds.map(|(c, own)| first(c).unwrap_or(own)).collect()
}

/// Takes nodes for all components, or gives back what was taken.
fn place_all(
    pass: &mut Pass<'_>,
    components: &[Component],
    order: &[usize],
) -> Result<Vec<ComponentStart>, Failure> {
    let mut starts = Vec::with_capacity(order.len());
    let mut undo = Undo::new(&pass.budget);
    let mut any_narrowed = false;
    for &at in order {
        let component = &components[at];
        let mut found = None;
        let mut missing = Some(Vec::new());
        for &lane in &component.lanes {
            pass.s.cost.het_placements += 1;
            let PlacementResult {
                placement,
                narrowed,
                cause,
            } = pass.try_now(lane, component.job);
            any_narrowed |= narrowed;
            missing = match placement {
                // More than nodes is missing, or they may do with a wait.
                Placement::Nowhere(_) if cause.is_some() => None,
                Placement::Scattered => None,
                Placement::Nowhere(short) => missing.map(|mut all: Vec<_>| {
                    all.push(LaneShortfall {
                        lane,
                        short,
                        held: narrowed,
                    });
                    all
                }),
                Placement::Here(_) => missing,
            };
            if cause.is_some_and(Reason::is_limit) {
                starts::limited(pass, lane, component.job);
            }
            if placement == Placement::Scattered {
                pass.wait_for_switches(lane);
            }
            if let Some(picks) = placement.picks() {
                found = Some((lane, picks));
                break;
            }
        }
        let Some((lane, picks)) = found else {
            undo.apply(pass);
            return Err(Failure {
                at,
                narrowed: any_narrowed,
                missing,
            });
        };
        undo.keep(pass, &picks);
        starts.push(take_all(pass, lane, component.job, &picks));
    }
    Ok(starts)
}

fn take_all(pass: &mut Pass<'_>, lane: u32, job: JobId, picks: &[Pick]) -> ComponentStart {
    let end = end_after(pass.now, pass.length_ms(lane));
    let number = lane;
    let passes = pass.lists.parts[pass.s.queue.lane(lane).part as usize]
        .head
        .is_some();
    let lane = pass.s.queue.lane(lane);
    let demand = (lane.demand.as_ref()).expect("only lanes that can run have a place in line");
    let limit = end_after(pass.now, demand.length_ms);
    let planned = end_after(pass.now, lane.planned_ms).min(limit);
    let taken = |fleet: &crate::nodes::fleet::Fleet, node, want: &crate::nodes::room::Want| {
        pass.reservations.holds.take_spare(fleet, node, end, want);
    };
    let mut alloc = allocate(&mut pass.s.fleet, lane.part, limit, demand, picks, taken);
    alloc.backfilled = passes;
    starts::count_start(pass, number, job, &mut alloc);
    let ends = JobEnds {
        job,
        planned,
        limit,
    };
    ComponentStart { ends, alloc }
}

fn start_all(pass: &mut Pass<'_>, mut starts: Vec<ComponentStart>) {
    starts.sort_by_key(|start| start.ends.job);
    for ComponentStart { ends, alloc } in starts {
        let job = ends.job;
        // Of what partitions have gained so much less is left; that is counted again before it matters.
        starts::propose(pass, ends, alloc);
        pass.lists.left.insert(job, 0);
        reservations::drop_reservations_of(pass, job);
    }
}

/// A component is the first that waits in its partition: all components have nodes reserved from one time on, or
/// start now if that is now. Says whether they have started.
pub(super) fn waits(pass: &mut Pass<'_>, place: HetPlace, lane: u32, key: HeadKey) -> bool {
    let number = pass.s.queue.lane(lane).part;
    let component = pass.s.fleet.parts[number as usize].component;
    let cautious = pass.is_cautious(key.job);
    if cautious {
        pass.reservations.cautious.insert(component);
    }
    if !pass.reservations.het.contains_key(&place.leader) {
        let before = pass.reservations.holds.clone();
        let reservation = reserve_all(pass, place, key.job, cautious);
        let ready = reservation
            .as_ref()
            .filter(|reservation| reservation.start == pass.now);
        if let Some(picks) = ready.map(|reservation| reservation.picks.clone()) {
            let own = std::mem::replace(&mut pass.reservations.holds, before);
            if start_picked(pass, picks) {
                pass.het_tried.insert(place.leader, Tried::Started);
                return true;
            }
            pass.reservations.holds = own;
        }
        pass.reservations.het.insert(place.leader, reservation);
        pass.s.queue.announce.extend(place.ids());
    }
    let reservation = pass.reservations.het.get(&place.leader);
    let new = reservation
        .and_then(Option::as_ref)
        .map(|reservation| BackfillReservation {
            key,
            lane,
            start: reservation.start,
            cautious,
            // Components of such jobs have licenses as they start; none are kept.
            licensed: false,
            holds: Arc::new(reservation.holds.clone()),
        });
    reservations::settle_reservation(pass, number, new);
    false
}

/// The job waits behind the first of a partition, and nodes are kept for it as well.
pub(super) fn waits_too(pass: &mut Pass<'_>, place: HetPlace, key: HeadKey) {
    if !pass.reservations.het.contains_key(&place.leader) {
        let cautious = pass.is_cautious(key.job);
        let reservation = reserve_all(pass, place, key.job, cautious);
        pass.reservations.het.insert(place.leader, reservation);
    }
}

/// Starts all components on the nodes of a reservation, if they are free. A reservation may count on jobs that are still
/// being cleaned up.
fn start_picked(pass: &mut Pass<'_>, picks: Vec<ComponentPicks>) -> bool {
    let mut starts = Vec::with_capacity(picks.len());
    let mut undo = Undo::new(&pass.budget);
    for ComponentPicks { job, lane, picks } in picks {
        if !are_free(pass, lane, &picks) || !may_start(pass, lane, job, &picks) {
            undo.apply(pass);
            return false;
        }
        undo.keep(pass, &picks);
        starts.push(take_all(pass, lane, job, &picks));
    }
    start_all(pass, starts);
    true
}

/// Whether the nodes have room now for the tasks that were laid out on them.
fn are_free(pass: &Pass<'_>, lane: u32, picks: &[Pick]) -> bool {
    let end = end_after(pass.now, pass.length_ms(lane));
    let lane = pass.s.queue.lane(lane);
    let Ok(demand) = &lane.demand else {
        return false;
    };
    let part = &pass.s.fleet.parts[lane.part as usize];
    let source = CurrentNodes {
        fleet: &pass.s.fleet,
        part,
        holds: &pass.reservations.holds,
        closed: &pass.reservations.closed,
        end,
        latest: end_after(pass.now, demand.length_ms),
        narrowed: Cell::new(false),
        reserved: Cell::new(None),
        visited: Cell::new(0),
        tries: Cell::new(0),
        shared: false,
    };
    picks.iter().all(|pick| {
        let class = &pass.s.fleet.classes[pass.s.fleet.nodes[pick.node as usize].class as usize];
        let room = source.room(part.pos_of[pick.node as usize] as usize);
        demand.tasks_in(class, &room) >= pick.tasks.max(1)
    })
}

/// Whether licenses and limits let it start there.
fn may_start(pass: &Pass<'_>, lane: u32, job: JobId, picks: &[Pick]) -> bool {
    let view = pass.s.queue.lane(lane);
    let Ok(demand) = &view.demand else {
        return false;
    };
    let span = pass.span(view, demand);
    let licensed = pass
        .budget
        .licenses
        .to_be_had(&view.licenses, span)
        .is_some();
    licensed && starts::limit_on(pass, lane, job, picks).is_none()
}

fn members<'b>(pass: &'b Pass<'_>, components: &[Component]) -> Vec<Member<'b>> {
    let queue = &pass.s.queue;
    let member = |c: &Component| Member {
        lanes: (c.lanes.iter())
            .filter_map(|id| {
                let view = queue.lane(*id);
                Some(MemberLane {
                    lane: *id,
                    part: view.part,
                    demand: view.demand.as_ref().ok()?,
                })
            })
            .collect(),
        waited: (pass.state.jobs.get(&c.job)).and_then(|job| job.switch_wait_since),
    };
    components.iter().map(member).collect()
}

/// What an earliest time for all components depends on, where nothing else is reserved.
#[derive(Debug, PartialEq, Eq)]
struct JointQuestion {
    /// The version of the fleet.
    version: u64,
    ends: Ends,
    /// The lanes of each component, and the stamps of their demands.
    lanes: Vec<Vec<StampedLane>>,
}

/// A lane with the demand that it has.
#[derive(Debug, PartialEq, Eq)]
struct StampedLane {
    lane: u32,
    stamp: u64,
}

/// An earliest time for all components.
#[derive(Clone, Debug)]
struct Joint {
    start: Timestamp,
    places: Vec<JointPlacement>,
    /// What is kept of nodes then.
    holds: Holds,
}

/// The last such time that was worked out. It stays as long as nothing changes on any node and the time has not come.
#[derive(Debug)]
pub(crate) struct LastJoint {
    question: JointQuestion,
    found: Option<Joint>,
    /// When it was worked out.
    at: Timestamp,
}

impl JointQuestion {
    /// `None` where it depends on more: other reservations, and waits for switches.
    fn new(pass: &Pass<'_>, components: &[Component], ends: Ends) -> Option<JointQuestion> {
        let queue = &pass.s.queue;
        let lanes = |c: &Component| {
            let lane = |id: &u32| {
                let lane = queue.lane(*id);
                let by_switches = |demand: &Demand| demand.switches.is_some();
                let depends = lane.demand.as_ref().is_ok_and(by_switches);
                (!depends).then_some(StampedLane {
                    lane: *id,
                    stamp: lane.stamp,
                })
            };
            c.lanes.iter().map(lane).collect()
        };
        let alone = pass.reservations.holds.is_empty() && pass.s.fleet.blocks.all.is_empty();
        let lanes: Option<Vec<_>> = components.iter().filter(|_| alone).map(lanes).collect();
        lanes
            .filter(|lanes| !lanes.is_empty())
            .map(|lanes| JointQuestion {
                version: pass.s.fleet.changes.version(),
                ends,
                lanes,
            })
    }
}

/// When and where all components fit at the earliest, by what is reserved.
fn earliest(
    pass: &mut Pass<'_>,
    components: &[Component],
    question: Option<JointQuestion>,
    ends: Ends,
) -> Option<Joint> {
    let last = pass.s.last_joint.as_ref();
    let known = last.filter(|last| {
        let is_ahead = |joint: &Joint| joint.start > pass.now;
        Some(&last.question) == question.as_ref()
            && (last.at == pass.now || last.found.as_ref().is_some_and(is_ahead))
    });
    if let Some(known) = known {
        return known.found.clone();
    }
    let members = members(pass, components);
    let mut holds = pass.reservations.holds.clone();
    let left = JOINT_NODES_MAX.saturating_sub(pass.s.cost.het_nodes);
    let terms = JointTerms {
        assumed: ends.into(),
        now: pass.now,
        // A costly job does not take it all from those behind it.
        nodes_max: left.max(JOINT_NODES_MAX / 64),
    };
    let (found, cost) = earliest_together(&members, &pass.s.fleet, &mut holds, terms);
    pass.s.cost.count_joint(cost);
    let found = found.map(|(start, places)| Joint {
        start,
        places,
        holds,
    });
    if let Some(question) = question {
        pass.s.last_joint = Some(LastJoint {
            question,
            found: found.clone(),
            at: pass.now,
        });
    }
    found
}

fn reserve_all(
    pass: &mut Pass<'_>,
    place: HetPlace,
    first: JobId,
    cautious: bool,
) -> Option<HetReservation> {
    let components = components(pass, place)?;
    let ends = match pass.s.planned.predicts() && !cautious {
        true => Ends::Planned,
        false => Ends::Limits,
    };
    let question = JointQuestion::new(pass, &components, ends);
    let Joint {
        start,
        places,
        holds: taken,
    } = earliest(pass, &components, question, ends)?;
    if start > pass.now && !reservations::may_reserve(pass, first, start) {
        return None;
    }
    pass.reservations.holds = taken;
    let mut holds = Vec::new();
    let mut chosen = Vec::with_capacity(components.len());
    for (component, placed) in components.iter().zip(places) {
        pass.reservations
            .ends
            .extend(placed.holds.first().map(|hold| hold.end));
        holds.extend(placed.holds.iter().cloned());
        chosen.push(ComponentPicks {
            job: component.job,
            lane: component.lanes[placed.at],
            picks: placed.picks,
        });
        let known = pass.state.jobs.get(&component.job);
        if known.is_some_and(|job| job.expected_start != Some(start)) {
            pass.plan.expected.push(PlannedExpectation {
                job: component.job,
                start,
            });
        }
    }
    holds.sort_by_key(|hold| hold.node);
    Some(HetReservation {
        start,
        picks: chosen,
        holds,
    })
}
