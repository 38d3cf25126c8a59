//! Backfill reservations: they are made for the first job of each partition, and replaced by newer
//! ones.

use super::{Pass, waited_ms};
use crate::NODES_PER_PASS_MAX;
use crate::backfill::gains::BackfillReservation;
use crate::backfill::outlook::{
    FoundStart, KeptNodes, Outlook, PlannedPlacement, StartTimes, ends_on_nodes, reserve,
};
use crate::backfill::together::COUNTED_AS_ONE;
use crate::demand::Demand;
use crate::demand::licenses::LicensesDue;
use crate::demand::pick::Pick;
use crate::nodes::allocations::{EndAssumption, Ends};
use crate::nodes::node_map::{NumberMap, NumberSet};
use crate::order::HeadKey;
use crate::place::holds::{CLAIM, Holds, NodeHold, SharedHolds};
use muster_core::state::Scale;
use muster_model::command::PlannedExpectation;
use muster_model::ids::JobId;
use muster_model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of nodes that one pass looks at for earliest times of waiting jobs before it shortens
/// such searches.
const LATER_NODES_MAX: u64 = NODES_PER_PASS_MAX;

/// Number of nodes that one pass looks at to make reservations anew before jobs make room. Searches for waiting jobs have
/// a budget of their own.
const ANEW_NODES_MAX: u64 = NODES_PER_PASS_MAX;

/// Times at which all nodes of a partition can be looked at for a job, whatever others have cost.
const TIMES_LEAST: u64 = 8;

/// Nodes that a pass keeps for waiting jobs.
#[derive(Default)]
pub(crate) struct PassReservations {
    pub(crate) holds: Holds,
    /// End times of reservations.
    pub(crate) ends: BTreeSet<Timestamp>,
    /// Nodes held for a waiting job, without backfill.
    pub(crate) closed: Vec<bool>,
    /// Reservations made in this pass, by partition.
    pub(super) made: NumberMap<u32, BackfillReservation>,
    /// Reservations of earlier passes in the partitions of this pass, in order.
    pub(super) earlier: BTreeSet<(HeadKey, usize)>,
    /// Jobs whose turn is over because they wait, if several jobs of a shape have reservations.
    pub(super) jobs: NumberSet<JobId>,
    /// Reservations of heterogeneous jobs that are first in line, by leader.
    pub(super) het: NumberMap<JobId, Option<HetReservation>>,
    /// Outlooks of lanes behind the first waiting one, if these get reservations too.
    pub(super) outlooks: NumberMap<u32, Outlook>,
    /// Components whose first waiting job counts on time limits.
    pub(super) cautious: BTreeSet<u32>,
}

/// Nodes held for all components of a heterogeneous job.
pub(super) struct HetReservation {
    pub(super) start: Timestamp,
    pub(super) picks: Vec<ComponentPicks>,
    /// Holds for all components, by node.
    pub(super) holds: Vec<NodeHold>,
}

/// The lane chosen for a component of such a job, and its nodes there.
#[derive(Clone)]
pub(super) struct ComponentPicks {
    pub(super) job: JobId,
    pub(super) lane: u32,
    pub(super) picks: Vec<Pick>,
}

/// The outlook of a partition's first waiting job.
#[derive(Debug)]
pub(crate) struct LaneOutlook {
    /// Stamp of the lane for which it was made.
    pub(crate) stamp: u64,
    pub(crate) outlook: Box<Outlook>,
}

impl PassReservations {
    /// The holds on nodes so far.
    fn kept(&self) -> KeptNodes<'_> {
        KeptNodes {
            holds: &self.holds,
            ends: &self.ends,
        }
    }
}

/// Handles the first waiting job of a partition: holds its nodes.
pub(super) fn waits(pass: &mut Pass<'_>, lane: u32, part: u32, key: HeadKey) {
    let job = key.job;
    let view = &pass.s.fleet.parts[part as usize];
    if !pass.backfill {
        view.order
            .iter()
            .for_each(|&node| pass.reservations.closed[node as usize] = true);
        return;
    }
    let cautious = pass.is_cautious(job);
    if cautious {
        pass.reservations.cautious.insert(view.component);
    }
    let Ok(demand) = &pass.s.queue.lane(lane).demand else {
        return;
    };
    let kept = pass.s.outlooks.remove(&part);
    let mut outlook = outlook_of(pass, kept, lane, demand, cautious);
    let alone = pass.reservations.holds.is_empty()
        && pass.reservations.ends.is_empty()
        && pass.s.fleet.blocks.all.is_empty()
        && pass.s.queue.lane(lane).licenses.is_empty()
        && demand.switches.is_none();
    let licensed = licensed(pass, lane, demand);
    let on = pass.s.fleet.of_part(part);
    let nodes_max = nodes_left(pass, part);
    let found = match &licensed {
        Some(_) if alone => {
            let start = outlook.earliest_alone(demand, on, pass.now, nodes_max);
            let picks = Vec::new();
            start.map(|start| FoundStart { start, picks })
        }
        Some(licenses) => {
            let times = StartTimes {
                now: pass.now,
                from: licenses.from,
                waited: waited_for_switches(pass, job),
                nodes_max,
            };
            outlook.earliest(demand, on, pass.reservations.kept(), times)
        }
        None => None,
    };
    pass.s.cost.later_nodes += outlook.take_looked_at();
    let mut new = None;
    if let Some(FoundStart { start, picks }) = found
        && may_reserve(pass, job, start)
    {
        let all = &mut pass.reservations.holds;
        let holds = match alone {
            true => outlook.reserve_alone(all, demand, on, lane),
            false => {
                let picks = picks.as_slice();
                let planned = PlannedPlacement { lane, start, picks };
                reserve(all, demand, on, planned, &outlook)
            }
        };
        let licensed = note_reserved(pass, job, start, &holds, licensed);
        new = Some(BackfillReservation {
            key,
            lane,
            start,
            cautious,
            licensed,
            holds,
        });
    }
    let stamp = pass.s.queue.lane(lane).stamp;
    pass.s.outlooks.insert(part, LaneOutlook { stamp, outlook });
    settle_reservation(pass, part, new);
}

/// Nodes that a search for a later time looks at before it is cut short. A costly one does not take it all from those after it.
fn nodes_left(pass: &Pass<'_>, part: u32) -> u64 {
    let left = LATER_NODES_MAX.saturating_sub(pass.s.cost.later_nodes);
    let nodes = pass.s.fleet.parts[part as usize].order.len() as u64;
    left.max(LATER_NODES_MAX / 64).max(TIMES_LEAST * nodes)
}

/// The time at which the licenses that the lane's jobs request are available; `None` if no known
/// job end frees them.
pub(super) fn licensed(pass: &Pass<'_>, lane: u32, demand: &Demand) -> Option<LicensesDue> {
    let view = pass.s.queue.lane(lane);
    if view.licenses.is_empty() {
        return Some(LicensesDue::default());
    }
    let (span, completing) = (pass.span(view, demand), &pass.s.completing);
    let licenses = &pass.budget.licenses;
    licenses.earliest(&view.licenses, span, completing)
}

/// Stores the partition's new reservation; lanes that an older one blocked may get another turn.
pub(super) fn settle_reservation(pass: &mut Pass<'_>, part: u32, new: Option<BackfillReservation>) {
    let component = pass.s.fleet.parts[part as usize].component;
    if let Some(old) = pass.s.queue.parts[part as usize].reservation.take() {
        relax_hold(pass, component, &old, new.as_ref());
        pass.s.queue.touched.clear();
    }
    if let Some(new) = new {
        pass.reservations.made.insert(part, new);
    }
}

/// Reservations as they would be with other ends of jobs.
struct MadeAnew {
    holds: Holds,
    ends: BTreeSet<Timestamp>,
    /// The time by which the jobs have left.
    gone_by: Timestamp,
    /// Number of nodes looked at in this pass for such reservations.
    looked_at: u64,
}

/// The holds of this pass's reservations as they would be with the present ends of jobs on these nodes, once those who end
/// by a time are gone. `None` if they are as they were made, or if that is not known: a reservation includes licenses or
/// belongs to a heterogeneous job, or searches have become too costly. Of a partition only the reservation of its first
/// waiting job counts.
pub(super) fn made_anew(
    pass: &mut Pass<'_>,
    nodes: &BTreeSet<u32>,
    gone_by: Timestamp,
) -> Option<Holds> {
    if pass.s.cost.anew_nodes >= ANEW_NODES_MAX {
        return None;
    }
    let parts = &pass.s.fleet.parts;
    let is_near = |part: u32| nodes.iter().any(|node| parts[part as usize].has(*node));
    let is_plain =
        |made: &BackfillReservation| !made.licensed && pass.s.queue.het_of(made.lane).is_none();
    let made = pass.reservations.made.iter();
    let mut made: Vec<(bool, u32, &BackfillReservation)> = made
        .map(|(part, made)| (is_near(*part), *part, made))
        .collect();
    made.sort_unstable_by_key(|(.., made)| made.key);
    let near = || made.iter().filter(|(near, ..)| *near);
    if near().next().is_none() || !near().all(|(.., made)| is_plain(made)) {
        return None;
    }
    // Room that is being made for other jobs is theirs.
    let held = pass.reservations.holds.iter().flat_map(|(_, held)| held);
    let claims: Vec<NodeHold> = held.filter(|hold| hold.lane == CLAIM).cloned().collect();
    let mut anew = MadeAnew {
        holds: Holds::default(),
        ends: claims.iter().map(|hold| hold.end).collect(),
        gone_by,
        looked_at: pass.s.cost.anew_nodes,
    };
    anew.holds.add(&Arc::new(claims));
    let mut is_known = true;
    for (near, part, made) in made {
        let again = if near {
            reserve_again(pass, part, made, &mut anew)
        } else {
            anew.holds.add(&made.holds);
            Some(Arc::clone(&made.holds))
        };
        let Some(again) = again else {
            is_known = false;
            break;
        };
        anew.ends.extend(again.first().map(|hold| hold.end));
    }
    pass.s.cost.anew_nodes = anew.looked_at;
    is_known.then_some(anew.holds)
}

/// Searches anew for nodes for a job that has a reservation, beside other holds, and adds them to these. `None` if the
/// search is too costly.
fn reserve_again(
    pass: &Pass<'_>,
    part: u32,
    made: &BackfillReservation,
    anew: &mut MadeAnew,
) -> Option<SharedHolds> {
    let lane = made.lane;
    let Ok(demand) = &pass.s.queue.lane(lane).demand else {
        return Some(SharedHolds::default());
    };
    let on = pass.s.fleet.of_part(part);
    let assumed = EndAssumption {
        gone_by: anew.gone_by,
        ..ends_of(pass, made.cautious).into()
    };
    let ends = ends_on_nodes(on.fleet, on.part, assumed);
    anew.looked_at += (ends.len() as u64 + ends.iter().sum::<u64>()) / COUNTED_AS_ONE;
    let prepared = Outlook::cost_of(demand, on.fleet, on.part, &ends);
    let left = ANEW_NODES_MAX.saturating_sub(anew.looked_at);
    // Known before any of it is looked at: a search that would be too much must not cost it.
    let nodes_max = left.checked_sub(prepared)?;
    let outlook = Outlook::new(demand, on.fleet, on.part, assumed);
    let times = StartTimes {
        now: pass.now,
        from: None,
        waited: waited_for_switches(pass, made.key.job),
        nodes_max,
    };
    let kept = KeptNodes {
        holds: &anew.holds,
        ends: &anew.ends,
    };
    let found = outlook.earliest(demand, on, kept, times);
    anew.looked_at += outlook.take_looked_at();
    if anew.looked_at >= ANEW_NODES_MAX {
        return None;
    }
    let Some(FoundStart { start, picks }) = found else {
        return Some(SharedHolds::default());
    };
    let planned = PlannedPlacement {
        lane,
        start,
        picks: &picks,
    };
    Some(reserve(&mut anew.holds, demand, on, planned, &outlook))
}

/// Whether nodes are held for a job that will start at this time.
pub(super) fn may_reserve(pass: &Pass<'_>, job: JobId, start: Timestamp) -> bool {
    let settings = &pass.s.fleet.settings;
    let held = |made: &BackfillReservation| made.key.job == job;
    let qos = |job| pass.state.accounts.qos.get(pass.state.qos_of(job));
    if qos(&pass.state.jobs[&job]).is_some_and(|qos| qos.has("NoReserve")) {
        return false;
    }
    settings
        .window_ms
        .is_none_or(|window_ms| start.since_ms(pass.now) <= window_ms)
        && waited_ms(pass.state, job, pass.now) >= settings.least_age_ms
        && has_priority(pass, job, settings.least_priority)
        && !(settings.one_each && pass.reservations.made.values().any(held))
}

/// Whether a job's priority reaches `least` and the threshold of its QOS for a reservation.
fn has_priority(pass: &Pass<'_>, job: JobId, least: u32) -> bool {
    let job = &pass.state.jobs[&job];
    let least = least.max(pass.state.min_priority(job, &job.partition));
    least == 0 || pass.state.priority_of(Scale::new(pass.state).as_ref(), job) >= least
}

/// Holds nodes for a job behind the first one of its partition as well.
pub(super) fn waits_too(pass: &mut Pass<'_>, lane: u32, part: u32, key: HeadKey) {
    let job = key.job;
    if pass.s.cost.later_nodes >= 2 * LATER_NODES_MAX {
        return;
    }
    let nodes_max = nodes_left(pass, part);
    let fleet = &pass.s.fleet;
    let view = &fleet.parts[part as usize];
    let Ok(demand) = &pass.s.queue.lane(lane).demand else {
        return;
    };
    let ends = ends_of(pass, false);
    let kept = pass.reservations.outlooks.remove(&lane);
    let outlook = kept
        .and_then(|mut kept| kept.update(demand, fleet, view).then_some(kept))
        .unwrap_or_else(|| Outlook::new(demand, fleet, view, ends.into()));
    let since = pass.state.jobs[&job].switch_wait_since;
    let licensed = licensed(pass, lane, demand);
    let on = fleet.of_part(part);
    let found = licensed.as_ref().and_then(|licenses| {
        let times = StartTimes {
            now: pass.now,
            from: licenses.from,
            waited: since,
            nodes_max,
        };
        outlook.earliest(demand, on, pass.reservations.kept(), times)
    });
    pass.s.cost.later_nodes += outlook.take_looked_at();
    if let Some(FoundStart { start, picks }) = found
        && may_reserve(pass, job, start)
    {
        let planned = PlannedPlacement {
            lane,
            start,
            picks: &picks,
        };
        let holds = &mut pass.reservations.holds;
        let holds = reserve(holds, demand, on, planned, &outlook);
        note_reserved(pass, job, start, &holds, licensed);
    }
    pass.reservations.outlooks.insert(lane, outlook);
}

/// Releases the reservation of a job that starts.
pub(super) fn drop_reservations_of(pass: &mut Pass<'_>, job: JobId) {
    for part in 0..pass.lists.parts.len() {
        let reservation = pass.s.queue.parts[part].reservation.as_ref();
        if reservation.is_some_and(|reservation| reservation.key.job == job) {
            drop_reservation(pass, part);
        }
    }
}

/// Drops reservations of earlier passes for jobs that got none in this pass, because later jobs may
/// then fit. Returns whether any was dropped.
pub(super) fn drop_reservations_before(pass: &mut Pass<'_>, next: Option<HeadKey>) -> bool {
    let mut any = false;
    while let Some(&(key, part)) = pass.reservations.earlier.first()
        && next.is_none_or(|next| key < next)
    {
        pass.reservations.earlier.pop_first();
        any |= pass.s.queue.parts[part].reservation.is_some();
        drop_reservation(pass, part);
    }
    any
}

/// The reservation of an earlier pass for a partition's first job is not made again.
pub(super) fn drop_reservation(pass: &mut Pass<'_>, part: usize) {
    if let Some(reservation) = pass.s.queue.parts[part].reservation.take() {
        relax_hold(pass, pass.s.fleet.parts[part].component, &reservation, None);
        pass.s.queue.touched.clear();
    }
}

/// Tries the lanes that a removed or replaced reservation blocked and that may fit now.
pub(super) fn relax_hold(
    pass: &mut Pass<'_>,
    component: u32,
    old: &BackfillReservation,
    new: Option<&BackfillReservation>,
) {
    let (queue, fleet) = (&mut pass.s.queue, &pass.s.fleet);
    if old.cautious && !new.is_some_and(|new| new.cautious) {
        // Jobs whose prediction became shorter may fit although no node has changed.
        let near = |l: &u32| fleet.parts[queue.lane(*l).part as usize].component == component;
        let held: Vec<u32> = queue.held.iter().copied().filter(near).collect();
        held.iter().for_each(|lane| queue.wake(fleet, *lane));
        held.into_iter().for_each(|lane| pass.push(lane));
    } else {
        let parts = queue.relaxed(fleet, old.relaxed_by(new));
        parts
            .into_iter()
            .for_each(|part| pass.requeue_unblocked(part));
    }
    if old.licensed && !new.is_some_and(|new| new.key == old.key && new.start == old.start) {
        let fleet = &pass.s.fleet;
        for lane in pass.s.queue.licenses_freed(fleet) {
            pass.push(lane);
        }
    }
}

/// The kind of job ends that a search for a later time counts on.
fn ends_of(pass: &Pass<'_>, cautious: bool) -> Ends {
    if pass.s.planned.predicts() && !cautious {
        Ends::Planned
    } else {
        Ends::Limits
    }
}

/// The partition's outlook for the first job of the lane. The outlook of the previous first job is
/// reused if that job requested the same of each node.
fn outlook_of(
    pass: &Pass<'_>,
    kept: Option<LaneOutlook>,
    lane: u32,
    demand: &Demand,
    cautious: bool,
) -> Box<Outlook> {
    let ends = ends_of(pass, cautious);
    let lane = pass.s.queue.lane(lane);
    let (fleet, view) = (&pass.s.fleet, &pass.s.fleet.parts[lane.part as usize]);
    let kept = kept.and_then(|LaneOutlook { stamp, mut outlook }| {
        let kept = &mut outlook;
        let serves = kept.ends() == ends && (stamp == lane.stamp || kept.serves(demand));
        (serves && kept.update(demand, fleet, view)).then_some(outlook)
    });
    kept.unwrap_or_else(|| Box::new(Outlook::new(demand, fleet, view, ends.into())))
}

/// The time since which a job could run on more leaf switches than it requests, if it could.
fn waited_for_switches(pass: &Pass<'_>, job: JobId) -> Option<Timestamp> {
    let since = pass.state.jobs[&job].switch_wait_since;
    since.or_else(|| pass.plan.switch_waits.contains(&job).then_some(pass.now))
}

/// Reserves nodes for a job: records when they are free again, its licenses and its expected start.
/// Returns whether licenses are held.
fn note_reserved(
    pass: &mut Pass<'_>,
    job: JobId,
    start: Timestamp,
    holds: &SharedHolds,
    licensed: Option<LicensesDue>,
) -> bool {
    let end = holds.first().map(|hold| hold.end);
    pass.reservations.ends.extend(end);
    let counts = licensed.map_or(Vec::new(), |due| due.counts);
    let keeps_licenses = !counts.is_empty();
    pass.budget.licenses.keep(start, counts);
    if pass.state.jobs[&job].expected_start != Some(start) {
        pass.plan.expected.push(PlannedExpectation { job, start });
    }
    keeps_licenses
}
