//! Heterogeneous jobs in a pass: all components start now, or nodes are held for all of them from
//! one time on.

mod turns;

pub(crate) use self::turns::HetTurns;
use super::reservations::{self, ComponentPicks, HetReservation};
use super::starts::Budget;
use super::{Pass, PlacementResult, starts};
use crate::NODES_PER_PASS_MAX;
use crate::backfill::gains::BackfillReservation;
use crate::backfill::together::{
    EmptyFit, JOINT_NODES_MAX, JointPlacement, JointTerms, Member, MemberLane, ORDERS_LEAST,
    TriedOrders, could_fit, earliest_together, pairs,
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
use muster_core::state::limit_use::CurrentUse;
use muster_model::account_limits::Scope;
use muster_model::command::PlannedExpectation;
use muster_model::het::HetPlace;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, Job, Reason};
use muster_model::time::Timestamp;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of placements in one pass after which components are tried in only a few orders.
const PLACEMENTS_MAX: u64 = 4096;
/// Number of nodes that one pass looks at to check and start heterogeneous jobs, after which the
/// remaining ones wait for another pass; also the number for one such job after which only a few
/// orders are tried.
const NODES_MAX: u64 = NODES_PER_PASS_MAX / 2;
/// Maximum number of nodes that one pass looks at to find earliest times of such jobs.
const SEARCHED_MAX: u64 = 2 * JOINT_NODES_MAX;

/// The result for a heterogeneous job in this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HetResult {
    /// All components start.
    Started,
    /// The job does not block others: one of its components is held or cannot run anywhere, or as
    /// far as is known the components never fit at once, or no time is known at which they would.
    Incomplete,
    /// The job does not fit now.
    Waits,
}

/// A component and the lanes in which it waits.
struct Component {
    job: JobId,
    lanes: Vec<u32>,
}

/// Nodes and budgets before components took resources from them.
struct Undo {
    nodes: Vec<NodeUndo>,
    licenses: Licenses,
    limit_use: BTreeMap<Scope, CurrentUse>,
}

/// A node before a component took resources from it.
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

/// Why a component was not placed.
struct Failure {
    /// Index of the component.
    at: usize,
    /// Reservations or earlier components of the same job prevented the placement.
    narrowed: bool,
    /// `None` if the shortfall is not known.
    missing: Option<Vec<LaneShortfall>>,
}

/// Why a component was not placed in a lane.
struct LaneShortfall {
    lane: u32,
    short: Shortfall,
    /// Reservations prevented the placement.
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

    /// Saves the nodes of a component before it takes resources from them.
    fn keep(&mut self, pass: &Pass<'_>, picks: &[Pick]) {
        self.nodes.extend(picks.iter().map(|pick| NodeUndo {
            node: pick.node,
            snapshot: pass.s.fleet.keep(pick.node),
            holds: pass.reservations.holds.of(pick.node).to_vec(),
        }));
    }

    /// Returns what components have taken.
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

/// Starts all components if they fit at once. Tried once in a pass, and only if the resources
/// missing at the last try may be free; `leads` says that the job has become the first in line.
pub(super) fn try_het(pass: &mut Pass<'_>, lane: u32, place: HetPlace, leads: bool) -> HetResult {
    if let Some(known) = pass.het_tried.get(&place.leader) {
        return *known;
    }
    let Some(components) = components(pass, place) else {
        pass.s.queue.block(lane, Shortfall::ANYTHING, false);
        pass.het_tried.insert(place.leader, HetResult::Incomplete);
        return HetResult::Incomplete;
    };
    let Some(fit) = judge(pass, place, &components) else {
        pass.het_tried.insert(place.leader, HetResult::Incomplete);
        return HetResult::Incomplete;
    };
    // A job that does not fit even on empty nodes must not block others, nor must one for which this is unknown; once
    // it has been placed, it does.
    let waits = match fit {
        EmptyFit::Fits => HetResult::Waits,
        EmptyFit::FitsNot | EmptyFit::Unknown => HetResult::Incomplete,
    };
    if pass.backfill && !leads && !may_fit(pass, place, &components) {
        return waits;
    }
    if !has_turn(pass, place) {
        pass.het_tried.insert(place.leader, waits);
        return waits;
    }
    let own = OwnWork::new(pass, &components);
    let tried = match try_components(pass, place, components, own) {
        HetResult::Waits => waits,
        tried => tried,
    };
    pass.s.cost.het_tried_nodes += own.nodes(pass);
    pass.het_tried.insert(place.leader, tried);
    tried
}

/// Whether the job has its turn in this pass; the work per pass for such jobs is limited.
fn has_turn(pass: &mut Pass<'_>, place: HetPlace) -> bool {
    let is_spent = pass.s.cost.het_tried_nodes >= NODES_MAX;
    pass.s.het_turns.has_turn(place.leader, is_spent)
}

/// Whether the components fit at once on empty usable nodes; `None` if another pass will find out.
/// The result is stored.
fn judge(pass: &mut Pass<'_>, place: HetPlace, components: &[Component]) -> Option<EmptyFit> {
    if let Some(known) = pass.s.queue.het_fits.get(&place.leader) {
        return Some(*known);
    }
    if !has_turn(pass, place) {
        return None;
    }
    let (fit, cost) = could_fit(&members(pass, components), &pass.s.fleet);
    pass.s.cost.het_placements += cost.placements;
    pass.s.cost.het_tried_nodes += cost.nodes;
    pass.s.queue.het_fits.insert(place.leader, fit);
    Some(fit)
}

/// Whether the resources that one of the components missed may be free now.
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

/// The node budget of a pass for starting one job.
#[derive(Clone, Copy)]
struct OwnWork {
    /// Cost of the pass before this job.
    before: u64,
    /// Number of pairs of components that are compared, and of lanes in which they wait.
    compared: u64,
    /// The budget: enough to look at each node once per component.
    most: u64,
}

impl OwnWork {
    fn new(pass: &Pass<'_>, components: &[Component]) -> OwnWork {
        let lanes: usize = components.iter().map(|c| c.lanes.len()).sum();
        let nodes = pass.s.fleet.nodes.len() * components.len();
        OwnWork {
            before: pass.s.cost.nodes_and_tries(),
            compared: pairs(components.len()) + lanes as u64,
            most: JOINT_NODES_MAX.max(nodes as u64),
        }
    }

    /// Cost so far, in nodes.
    fn nodes(&self, pass: &Pass<'_>) -> u64 {
        pass.s.cost.nodes_and_tries() - self.before + self.compared
    }
}

/// The components, if all of them are queued and can run somewhere.
fn components(pass: &Pass<'_>, place: HetPlace) -> Option<Vec<Component>> {
    let of = |job: JobId| {
        let lanes = pass.s.queue.lanes_of(job);
        (!lanes.is_empty()).then_some(Component { job, lanes })
    };
    place.ids().map(of).collect()
}

/// Places components in their order. A component that does not fit beside those before it is moved
/// to the front. If it does not fit even there, all components wait until it may.
fn try_components(
    pass: &mut Pass<'_>,
    place: HetPlace,
    components: Vec<Component>,
    own: OwnWork,
) -> HetResult {
    let kinds = kinds_of(pass, &components);
    let mut orders = TriedOrders::new(&kinds);
    let mut narrowed = false;
    let mut missing = None;
    for round in 0..components.len() {
        let is_much = pass.s.cost.het_placements >= PLACEMENTS_MAX || own.nodes(pass) >= NODES_MAX;
        if round >= ORDERS_LEAST && is_much {
            break;
        }
        match place_all(pass, place.leader, &components, &orders.order, own) {
            Ok(starts) => {
                start_all(pass, starts);
                return HetResult::Started;
            }
            Err(failure) => {
                narrowed |= failure.narrowed;
                if own.nodes(pass) >= own.most {
                    break;
                }
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
            // The component waits for another one.
            None if certain => (Shortfall::NO_NODES, false),
            None => (Shortfall::ANYTHING, narrowed),
        };
        pass.s.queue.block(*lane, short, held);
    }
    HetResult::Waits
}

/// For each component, the first for which a search has the same result: it requests the same in
/// the same partitions and counts towards the same limits.
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

/// Takes nodes for all components, or gives all of them back. Where not all lanes can be tried in this pass the next
/// one goes on there: one that fits in the last only would never start.
fn place_all(
    pass: &mut Pass<'_>,
    leader: JobId,
    components: &[Component],
    order: &[usize],
    own: OwnWork,
) -> Result<Vec<ComponentStart>, Failure> {
    let mut first_lanes = pass.s.het_turns.first_lanes(leader);
    first_lanes.resize(components.len(), 0);
    let mut is_cut = false;
    let mut starts = Vec::with_capacity(order.len());
    let mut undo = Undo::new(&pass.budget);
    let mut any_narrowed = false;
    for &at in order {
        let component = &components[at];
        let mut found = None;
        let mut missing = Some(Vec::new());
        let count = component.lanes.len();
        let first = first_lanes[at].min(count);
        for nth in (first..count).chain(0..first) {
            let lane = component.lanes[nth];
            if own.nodes(pass) >= own.most {
                (first_lanes[at], is_cut) = (nth, true);
                missing = None;
                break;
            }
            pass.s.cost.het_placements += 1;
            let PlacementResult {
                placement,
                narrowed,
                cause,
            } = pass.try_now(lane, component.job);
            any_narrowed |= narrowed;
            missing = match placement {
                // Something other than nodes is missing, or the components may fit after a wait for
                // switches.
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
                first_lanes[at] = nth;
                found = Some((lane, picks));
                break;
            }
        }
        let Some((lane, picks)) = found else {
            undo.apply(pass);
            let go_on = is_cut.then_some(first_lanes);
            pass.s.het_turns.set_first_lanes(leader, go_on);
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
        // The gains of partitions are now smaller; they are counted again before they matter.
        starts::propose(pass, ends, alloc);
        pass.lists.left.insert(job, 0);
        reservations::drop_reservations_of(pass, job);
    }
}

/// Handles a component that is the first waiting job of its partition: reserves nodes for all
/// components from one time on, or starts them if that time is now. Without such a time the
/// component does not count as the first.
pub(super) fn waits(pass: &mut Pass<'_>, place: HetPlace, lane: u32, key: HeadKey) -> HetResult {
    let number = pass.s.queue.lane(lane).part;
    let component = pass.s.fleet.parts[number as usize].component;
    let cautious = pass.is_cautious(key.job);
    if !pass.reservations.het.contains_key(&place.leader) {
        let before = pass.reservations.holds.clone();
        let Ok(reservation) = reserve_all(pass, place, key.job, cautious) else {
            pass.het_tried.insert(place.leader, HetResult::Incomplete);
            return HetResult::Incomplete;
        };
        let ready = reservation
            .as_ref()
            .filter(|reservation| reservation.start == pass.now);
        if let Some(picks) = ready.map(|reservation| reservation.picks.clone()) {
            let own = std::mem::replace(&mut pass.reservations.holds, before);
            if start_picked(pass, picks) {
                pass.het_tried.insert(place.leader, HetResult::Started);
                return HetResult::Started;
            }
            pass.reservations.holds = own;
        }
        pass.reservations.het.insert(place.leader, reservation);
        pass.s.queue.announce.extend(place.ids());
    }
    if cautious {
        pass.reservations.cautious.insert(component);
    }
    let reservation = pass.reservations.het.get(&place.leader);
    let new = reservation
        .and_then(Option::as_ref)
        .map(|reservation| BackfillReservation {
            key,
            lane,
            start: reservation.start,
            cautious,
            // Components have licenses only when they start; none are held.
            licensed: false,
            holds: Arc::new(reservation.holds.clone()),
        });
    reservations::settle_reservation(pass, number, new);
    HetResult::Waits
}

/// The job waits behind the first job of a partition and gets nodes held as well. Returns whether a
/// time for it is known.
pub(super) fn waits_too(pass: &mut Pass<'_>, place: HetPlace, key: HeadKey) -> bool {
    if !pass.reservations.het.contains_key(&place.leader) {
        let cautious = pass.is_cautious(key.job);
        let Ok(reservation) = reserve_all(pass, place, key.job, cautious) else {
            pass.het_tried.insert(place.leader, HetResult::Incomplete);
            return false;
        };
        pass.reservations.het.insert(place.leader, reservation);
    }
    true
}

/// Starts all components on the nodes of a reservation if these are free. A reservation may depend
/// on jobs that are still being cleaned up.
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

/// Whether the nodes have room now for the tasks assigned to them.
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

/// Whether licenses and limits let the component start there.
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

/// The input of a search for the earliest time of all components, if nothing else is reserved.
#[derive(Debug, PartialEq, Eq)]
struct JointQuestion {
    /// The version of the fleet.
    version: u64,
    ends: Ends,
    /// The lanes of each component, with the stamps of their demands.
    lanes: Vec<Vec<StampedLane>>,
}

/// A lane and its demand.
#[derive(Debug, PartialEq, Eq)]
struct StampedLane {
    lane: u32,
    stamp: u64,
}

/// The earliest time of all components.
#[derive(Clone, Debug)]
struct Joint {
    start: Timestamp,
    places: Vec<JointPlacement>,
    /// The holds on nodes from then on.
    holds: Holds,
}

/// The last computed time, or the result that there is none. It stays valid as long as no node
/// changes and the time has not come.
#[derive(Debug)]
pub(crate) struct LastJoint {
    question: JointQuestion,
    found: Option<Joint>,
}

/// No time is known at which all components fit.
struct NoTime;

impl JointQuestion {
    /// `None` if the result depends on more: other reservations, or waits for switches.
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

/// The earliest time and placement of all components beside existing reservations.
fn earliest(
    pass: &mut Pass<'_>,
    place: HetPlace,
    components: &[Component],
    ends: Ends,
) -> Option<Joint> {
    let question = JointQuestion::new(pass, components, ends);
    let last = pass.s.last_joint.as_ref();
    let known = last.filter(|last| {
        // Other jobs may have taken nodes found for the present.
        let holds = |joint: &Joint| joint.start > pass.now;
        Some(&last.question) == question.as_ref() && last.found.as_ref().is_none_or(holds)
    });
    if let Some(known) = known {
        return known.found.clone();
    }
    let is_spent = pass.s.cost.het_nodes >= SEARCHED_MAX;
    if !pass.s.het_turns.has_search(place.leader, is_spent) {
        return None;
    }
    let members = members(pass, components);
    let mut holds = pass.reservations.holds.clone();
    let left = JOINT_NODES_MAX.saturating_sub(pass.s.cost.het_nodes);
    let terms = JointTerms {
        assumed: ends.into(),
        now: pass.now,
        // One costly job must not use up the budget of those behind it.
        nodes_max: left.max(JOINT_NODES_MAX / 64),
        prepared_max: JOINT_NODES_MAX,
    };
    let (found, cost) = earliest_together(&members, &pass.s.fleet, &mut holds, terms);
    pass.s.cost.count_joint(cost);
    let found = found.map(|(start, places)| Joint {
        start,
        places,
        holds,
    });
    if found.is_none() {
        pass.s.het_turns.searched_in_vain(place.leader);
    }
    // Another pass with a larger budget may find a time.
    let is_whole = found.is_some() || left == JOINT_NODES_MAX;
    if let Some(question) = question.filter(|_| is_whole) {
        pass.s.last_joint = Some(LastJoint {
            question,
            found: found.clone(),
        });
    }
    found
}

fn reserve_all(
    pass: &mut Pass<'_>,
    place: HetPlace,
    first: JobId,
    cautious: bool,
) -> Result<Option<HetReservation>, NoTime> {
    let components = components(pass, place).ok_or(NoTime)?;
    let ends = match pass.s.planned.predicts() && !cautious {
        true => Ends::Planned,
        false => Ends::Limits,
    };
    let Joint {
        start,
        places,
        holds: taken,
    } = earliest(pass, place, &components, ends).ok_or(NoTime)?;
    if start > pass.now && !reservations::may_reserve(pass, first, start) {
        return Ok(None);
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
    Ok(Some(HetReservation {
        start,
        picks: chosen,
        holds,
    }))
}
