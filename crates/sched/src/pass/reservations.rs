//! Backfill reservations: they are made for the first job of each partition, and give way to newer ones.

use super::het::HetReservation;
use super::{Pass, waited_ms};
use crate::backfill::gains::BackfillReservation;
use crate::backfill::outlook::{Outlook, reserve};
use crate::demand::Demand;
use crate::demand::licenses::Due;
use crate::nodes::allocations::Ends;
use crate::nodes::node_map::{NumberMap, NumberSet};
use crate::order::HeadKey;
use crate::place::holds::Holds;
use muster_core::state::Scale;
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
        let ends = if self.s.planned.predicts() && !cautious {
            Ends::Planned
        } else {
            Ends::Limits
        };
        let place = (&self.s.fleet, view);
        let stamp = self.s.queue.lane(lane).stamp;
        let outlook = self.s.outlooks.remove(&part);
        // The job that was first before may have asked for the same of each node.
        let mut outlook = outlook
            .and_then(|(of, mut kept)| {
                let serves = kept.ends() == ends && (of == stamp || kept.serves(demand));
                (serves && kept.update(demand, &self.s.fleet, view)).then_some(kept)
            })
            .unwrap_or_else(|| Box::new(Outlook::new(demand, &self.s.fleet, view, (ends, None))));
        let since = self.state.jobs[&job].switch_wait_since;
        let fresh = || self.plan.switch_waits.contains(&job).then_some(self.now);
        let waited = since.or_else(fresh);
        let licensed = self.licensed(lane, demand);
        let alone = self.reservations.holds.is_empty()
            && self.reservations.ends.is_empty()
            && self.s.fleet.blocks.all.is_empty()
            && self.s.queue.lane(lane).licenses.is_empty()
            && demand.switches.is_none();
        let found = match &licensed {
            Some(_) if alone => {
                let start = outlook.earliest_alone(demand, place, self.now);
                start.map(|start| (start, Vec::new()))
            }
            Some((from, _)) => {
                let held = (&self.reservations.holds, &self.reservations.ends);
                outlook.earliest(demand, place, held, (self.now, *from), waited)
            }
            None => None,
        };
        let mut new = None;
        if let Some((start, picks)) = found
            && self.may_reserve(job, start)
        {
            let place = (&self.s.fleet, view, lane);
            let holds = match alone {
                true => outlook.reserve_alone(&mut self.reservations.holds, demand, place),
                false => {
                    let found = (start, picks.as_slice());
                    reserve(&mut self.reservations.holds, demand, place, found, &outlook)
                }
            };
            self.reservations
                .ends
                .extend(holds.first().map(|hold| hold.end));
            let counts = licensed.map_or(Vec::new(), |(_, counts)| counts);
            let licensed = !counts.is_empty();
            self.budget.licenses.keep(start, counts);
            new = Some(BackfillReservation {
                key,
                lane,
                start,
                cautious,
                licensed,
                holds,
            });
            if self.state.jobs[&job].expected_start != Some(start) {
                self.plan.expected.push((job, start));
            }
        }
        self.s.outlooks.insert(part, (stamp, outlook));
        self.settle_reservation(part, new);
    }

    /// The licenses that the lane's jobs ask for: from when on they can be had, absent where that is now, and what
    /// there will be of them; `None` if no end in sight sets them free.
    pub(super) fn licensed(&self, lane: u32, demand: &Demand) -> Option<(Option<Timestamp>, Due)> {
        let view = self.s.queue.lane(lane);
        if view.licenses.is_empty() {
            return Some((None, Vec::new()));
        }
        let (span, completing) = (self.span(view, demand), &self.s.completing);
        let (at, counts) = self
            .budget
            .licenses
            .earliest(&view.licenses, span, completing)?;
        Some((Some(at).filter(|at| *at > self.now), counts))
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
            .unwrap_or_else(|| Outlook::new(demand, fleet, view, (ends, None)));
        let since = self.state.jobs[&job].switch_wait_since;
        let licensed = self.licensed(lane, demand);
        let found = licensed.as_ref().and_then(|(from, _)| {
            let held = (&self.reservations.holds, &self.reservations.ends);
            outlook.earliest(demand, (fleet, view), held, (self.now, *from), since)
        });
        if let Some((start, picks)) = found
            && self.may_reserve(job, start)
        {
            let holds = reserve(
                &mut self.reservations.holds,
                demand,
                (fleet, view, lane),
                (start, &picks),
                &outlook,
            );
            let counts = licensed.map_or(Vec::new(), |(_, counts)| counts);
            self.budget.licenses.keep(start, counts);
            self.reservations
                .ends
                .extend(holds.first().map(|hold| hold.end));
            if self.state.jobs[&job].expected_start != Some(start) {
                self.plan.expected.push((job, start));
            }
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
