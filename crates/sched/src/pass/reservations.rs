//! Backfill reservations: they are made for the first job of each partition, and give way to newer ones.

use super::het::HetReservation;
use super::{Pass, waited_ms};
use crate::backfill::gains::BackfillReservation;
use crate::backfill::outlook::{
    FoundStart, KeptNodes, Outlook, PlannedPlacement, StartTimes, reserve,
};
use crate::demand::Demand;
use crate::demand::licenses::LicensesDue;
use crate::nodes::allocations::Ends;
use crate::nodes::node_map::{NumberMap, NumberSet};
use crate::order::HeadKey;
use crate::pass::scheduler::LaneOutlook;
use crate::place::holds::{Holds, SharedHolds};
use muster_core::state::Scale;
use muster_model::command::PlannedExpectation;
use muster_model::ids::JobId;
use muster_model::time::Timestamp;
use std::collections::BTreeSet;

/// Nodes that a pass keeps for waiting jobs.
#[derive(Default)]
pub(crate) struct PassReservations {
    pub(crate) holds: Holds,
    /// When what is reserved ends.
    pub(crate) ends: BTreeSet<Timestamp>,
    /// Nodes kept for a waiting job, without backfill.
    pub(crate) closed: Vec<bool>,
    /// Reservations made in this pass, by partition.
    pub(super) made: NumberMap<u32, BackfillReservation>,
    /// Reservations of earlier passes in partitions that this one looks at, in order.
    pub(super) earlier: BTreeSet<(HeadKey, usize)>,
    /// Jobs whose turn is over because they wait, where several of a shape have nodes reserved.
    pub(super) jobs: NumberSet<JobId>,
    /// Reservations of heterogeneous jobs that are first in line, by leader.
    pub(super) het: NumberMap<JobId, Option<HetReservation>>,
    /// Outlooks of lanes behind the first waiting one, where nodes are kept for them too.
    pub(super) outlooks: NumberMap<u32, Outlook>,
    /// Components in which the first that waits counts on limits.
    pub(super) cautious: BTreeSet<u32>,
}

impl PassReservations {
    /// What is kept of nodes so far.
    fn kept(&self) -> KeptNodes<'_> {
        KeptNodes {
            holds: &self.holds,
            ends: &self.ends,
        }
    }
}

impl Pass<'_> {
    /// The job is the first that waits in its partition: what it needs is kept for it.
    pub(super) fn waits(&mut self, lane: u32, part: u32, key: HeadKey) {
        let job = key.job;
        let view = &self.s.fleet.parts[part as usize];
        if !self.backfill {
            view.order
                .iter()
                .for_each(|&node| self.reservations.closed[node as usize] = true);
            return;
        }
        let cautious = self.is_cautious(job);
        if cautious {
            self.reservations.cautious.insert(view.component);
        }
        let Ok(demand) = &self.s.queue.lane(lane).demand else {
            return;
        };
        let kept = self.s.outlooks.remove(&part);
        let mut outlook = outlook_of(self, kept, lane, demand, cautious);
        let alone = self.reservations.holds.is_empty()
            && self.reservations.ends.is_empty()
            && self.s.fleet.blocks.all.is_empty()
            && self.s.queue.lane(lane).licenses.is_empty()
            && demand.switches.is_none();
        let licensed = self.licensed(lane, demand);
        let on = self.s.fleet.of_part(part);
        let found = match &licensed {
            Some(_) if alone => {
                let start = outlook.earliest_alone(demand, on, self.now);
                let picks = Vec::new();
                start.map(|start| FoundStart { start, picks })
            }
            Some(licenses) => {
                let times = StartTimes {
                    now: self.now,
                    from: licenses.from,
                    waited: waited_for_switches(self, job),
                };
                outlook.earliest(demand, on, self.reservations.kept(), times)
            }
            None => None,
        };
        let mut new = None;
        if let Some(FoundStart { start, picks }) = found
            && self.may_reserve(job, start)
        {
            let all = &mut self.reservations.holds;
            let holds = match alone {
                true => outlook.reserve_alone(all, demand, on, lane),
                false => {
                    let picks = picks.as_slice();
                    let planned = PlannedPlacement { lane, start, picks };
                    reserve(all, demand, on, planned, &outlook)
                }
            };
            let licensed = note_reserved(self, job, start, &holds, licensed);
            new = Some(BackfillReservation {
                key,
                lane,
                start,
                cautious,
                licensed,
                holds,
            });
        }
        let stamp = self.s.queue.lane(lane).stamp;
        self.s.outlooks.insert(part, LaneOutlook { stamp, outlook });
        self.settle_reservation(part, new);
    }

    /// When there are the licenses that the lane's jobs ask for; `None` if no end in sight sets them free.
    pub(super) fn licensed(&self, lane: u32, demand: &Demand) -> Option<LicensesDue> {
        let view = self.s.queue.lane(lane);
        if view.licenses.is_empty() {
            return Some(LicensesDue::default());
        }
        let (span, completing) = (self.span(view, demand), &self.s.completing);
        let licenses = &self.budget.licenses;
        licenses.earliest(&view.licenses, span, completing)
    }

    /// The partition's reservation is known now; lanes that an older one kept back may come again.
    pub(super) fn settle_reservation(&mut self, part: u32, new: Option<BackfillReservation>) {
        let component = self.s.fleet.parts[part as usize].component;
        if let Some(old) = self.s.queue.parts[part as usize].reservation.take() {
            self.relax_hold(component, &old, new.as_ref());
            self.s.queue.touched.clear();
        }
        if let Some(new) = new {
            self.reservations.made.insert(part, new);
        }
    }

    /// Whether nodes are kept for a job that will start then.
    pub(super) fn may_reserve(&self, job: JobId, start: Timestamp) -> bool {
        let settings = &self.s.fleet.settings;
        let held = |made: &BackfillReservation| made.key.job == job;
        let qos = |job| self.state.accounts.qos.get(self.state.qos_of(job));
        if qos(&self.state.jobs[&job]).is_some_and(|qos| qos.has("NoReserve")) {
            return false;
        }
        settings
            .window_ms
            .is_none_or(|window_ms| start.since_ms(self.now) <= window_ms)
            && waited_ms(self.state, job, self.now) >= settings.least_age_ms
            && self.has_priority(job, settings.least_priority)
            && !(settings.one_each && self.reservations.made.values().any(held))
    }

    /// Whether a job has the priority that it takes to have nodes kept for it: `least`, and its QOS's threshold.
    fn has_priority(&self, job: JobId, least: u32) -> bool {
        let job = &self.state.jobs[&job];
        let least = least.max(self.state.min_priority(job, &job.partition));
        least == 0 || self.state.priority_of(Scale::new(self.state).as_ref(), job) >= least
    }

    /// The job waits behind the first of its partition, and nodes are kept for it as well.
    pub(super) fn waits_too(&mut self, lane: u32, part: u32, key: HeadKey) {
        let job = key.job;
        let fleet = &self.s.fleet;
        let view = &fleet.parts[part as usize];
        let Ok(demand) = &self.s.queue.lane(lane).demand else {
            return;
        };
        let ends = if self.s.planned.predicts() {
            Ends::Planned
        } else {
            Ends::Limits
        };
        let kept = self.reservations.outlooks.remove(&lane);
        let outlook = kept
            .and_then(|mut kept| kept.update(demand, fleet, view).then_some(kept))
            .unwrap_or_else(|| Outlook::new(demand, fleet, view, ends.into()));
        let since = self.state.jobs[&job].switch_wait_since;
        let licensed = self.licensed(lane, demand);
        let on = fleet.of_part(part);
        let found = licensed.as_ref().and_then(|licenses| {
            let times = StartTimes {
                now: self.now,
                from: licenses.from,
                waited: since,
            };
            outlook.earliest(demand, on, self.reservations.kept(), times)
        });
        if let Some(FoundStart { start, picks }) = found
            && self.may_reserve(job, start)
        {
            let planned = PlannedPlacement {
                lane,
                start,
                picks: &picks,
            };
            let holds = &mut self.reservations.holds;
            let holds = reserve(holds, demand, on, planned, &outlook);
            note_reserved(self, job, start, &holds, licensed);
        }
        self.reservations.outlooks.insert(lane, outlook);
    }

    /// Gives up the reservation of a job that starts.
    pub(super) fn drop_reservations_of(&mut self, job: JobId) {
        for part in 0..self.lists.parts.len() {
            let reservation = self.s.queue.parts[part].reservation.as_ref();
            if reservation.is_some_and(|reservation| reservation.key.job == job) {
                self.drop_reservation(part);
            }
        }
    }

    /// Drops reservations of earlier passes for jobs that were not reserved again, as later jobs may fit now. Returns whether
    /// any was dropped.
    pub(super) fn drop_reservations_before(&mut self, next: Option<HeadKey>) -> bool {
        let mut any = false;
        while let Some(&(key, part)) = self.reservations.earlier.first()
            && next.is_none_or(|next| key < next)
        {
            self.reservations.earlier.pop_first();
            any |= self.s.queue.parts[part].reservation.is_some();
            self.drop_reservation(part);
        }
        any
    }

    /// The reservation of an earlier pass to a partition's first job is not made again.
    pub(super) fn drop_reservation(&mut self, part: usize) {
        if let Some(reservation) = self.s.queue.parts[part].reservation.take() {
            self.relax_hold(self.s.fleet.parts[part].component, &reservation, None);
            self.s.queue.touched.clear();
        }
    }

    /// A reservation is gone, or another takes its place: those whom it kept back and who may fit now are tried.
    pub(super) fn relax_hold(
        &mut self,
        component: u32,
        old: &BackfillReservation,
        new: Option<&BackfillReservation>,
    ) {
        let (queue, fleet) = (&mut self.s.queue, &self.s.fleet);
        if old.cautious && !new.is_some_and(|new| new.cautious) {
            // Jobs with a shorter prediction than before may fit although no node has changed.
            let near = |l: &u32| fleet.parts[queue.lane(*l).part as usize].component == component;
            let held: Vec<u32> = queue.held.iter().copied().filter(near).collect();
            held.iter().for_each(|lane| queue.wake(fleet, *lane));
            held.into_iter().for_each(|lane| self.push(lane));
        } else {
            let parts = queue.relaxed(fleet, old.relaxed_by(new));
            parts
                .into_iter()
                .for_each(|part| self.requeue_unblocked(part));
        }
        if old.licensed && !new.is_some_and(|new| new.key == old.key && new.start == old.start) {
            let fleet = &self.s.fleet;
            for lane in self.s.queue.licenses_freed(fleet) {
                self.push(lane);
            }
        }
    }
}

/// The partition's outlook for the first job of the lane. The job that was first before may have asked for the same of each
/// node.
fn outlook_of(
    pass: &Pass<'_>,
    kept: Option<LaneOutlook>,
    lane: u32,
    demand: &Demand,
    cautious: bool,
) -> Box<Outlook> {
    let ends = if pass.s.planned.predicts() && !cautious {
        Ends::Planned
    } else {
        Ends::Limits
    };
    let lane = pass.s.queue.lane(lane);
    let (fleet, view) = (&pass.s.fleet, &pass.s.fleet.parts[lane.part as usize]);
    let kept = kept.and_then(|LaneOutlook { stamp, mut outlook }| {
        let kept = &mut outlook;
        let serves = kept.ends() == ends && (stamp == lane.stamp || kept.serves(demand));
        (serves && kept.update(demand, fleet, view)).then_some(outlook)
    });
    kept.unwrap_or_else(|| Box::new(Outlook::new(demand, fleet, view, ends.into())))
}

/// Since when a job could run on more leaf switches than it asks for, if it could.
fn waited_for_switches(pass: &Pass<'_>, job: JobId) -> Option<Timestamp> {
    let since = pass.state.jobs[&job].switch_wait_since;
    since.or_else(|| pass.plan.switch_waits.contains(&job).then_some(pass.now))
}

/// Nodes are reserved for a job: when they are free again, its licenses and its expected start are noted. Says whether
/// licenses are kept.
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
