//! One pass: it visits lanes in order of their heads, places jobs, makes backfill reservations, and sets reasons.

mod het;
mod lists;
mod more_tasks;
pub(crate) mod noted;
pub(crate) mod preempt;
mod reservations;
pub(crate) mod scheduler;
mod shorter;
pub(crate) mod starts;
pub(crate) mod submission;
pub(crate) mod trial;
mod visit;

pub(crate) use self::lists::Lists;
use self::lists::{NextLane, PartPass, PassingKey, UnblockedLane};
use self::reservations::PassReservations;
use self::starts::{Budget, array_budget};
use crate::NODES_PER_CHECK;
use crate::NODES_PER_PASS_MAX;
use crate::STARTS_PER_PASS_MAX;
use crate::backfill::gains::{BackfillReservation, PartQueue};
use crate::demand::Demand;
use crate::nodes::fleet::PartView;
use crate::nodes::node_map::NumberMap;
use crate::order::{HeadKey, LaneHead, QueueKey};
use crate::pass::preempt::PreemptOutcome;
use crate::pass::scheduler::Scheduler;
use crate::place::node_source::{CurrentNodes, choose_now, end_after};
use crate::place::{Placement, Shortfall};
use muster_core::state::{Priorities, State};
use muster_model::command::{Plan, PlannedReason, ShortenedLimit};
use muster_model::het::HetPlace;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Reason};
use muster_model::time::Timestamp;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Maximum number of jobs per shape whose wait for few leaf switches begins at once; for other jobs
/// it begins when they get this far in the queue.
const SWITCH_WAITERS_MAX: usize = 32;
/// A job that has waited longer than this is planned by time limits, not by predictions, so that no
/// backfilled job can delay it. The same span limits how far predictions change the order
/// (`Job::default_priority`).
const CAUTIOUS_AFTER_MS: u64 = 86_400_000;
/// Among jobs that may pass a waiting one, this many hours of wait reduce the assumed length by one
/// hour. Chosen from recorded workloads: the longest wait stays near that of a plain queue, and the
/// mean wait hardly grows.
const WAIT_OF_LENGTH: u64 = 40;

/// The result of a search for nodes.
pub(crate) struct PlacementResult {
    pub(crate) placement: Placement,
    /// Reservations for other jobs prevented a placement.
    pub(crate) narrowed: bool,
    /// Cause that prevented a placement apart from missing nodes: a limit, licenses, a reservation.
    pub(crate) cause: Option<Reason>,
}

impl PlacementResult {
    /// A failure for which only `cause` is known.
    fn failed(placement: Placement, cause: Option<Reason>) -> PlacementResult {
        PlacementResult {
            placement,
            narrowed: false,
            cause,
        }
    }
}

/// The result for a job that does not fit.
enum Unplaced {
    /// The job starts, or waits for preempted jobs to leave.
    Settled,
    /// The job waits. The shortfall is the least that it misses with a shorter limit or with
    /// preemption; the flag says whether reservations for other jobs prevented those.
    Waits(Shortfall, bool),
}

/// A running pass: its input, its intermediate results and its plan.
pub(crate) struct Pass<'a> {
    pub(crate) s: &'a mut Scheduler,
    pub(crate) state: &'a State,
    pub(crate) now: Timestamp,
    pub(crate) plan: Plan,
    /// Whether later jobs may pass a waiting job.
    backfill: bool,
    /// Partitions, and the order in which lanes get their turn.
    lists: Lists,
    pub(crate) budget: Budget,
    pub(crate) reservations: PassReservations,
    /// Jobs to preempt; true if a job is only stopped.
    pub(crate) chosen: BTreeMap<JobId, bool>,
    /// Number of jobs for which room is being made.
    pub(crate) claimed: usize,
    /// A job that blocked others in one partition has started in another of its partitions.
    again: bool,
    /// Priorities, once somebody may be preempted for having a lower one.
    pub(crate) priorities: RefCell<Option<Priorities<'a>>>,
    /// Heterogeneous jobs that were tried, by leader.
    het_tried: NumberMap<JobId, het::HetResult>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(s: &'a mut Scheduler, state: &'a State, now: Timestamp) -> Pass<'a> {
        let backfill = s.fleet.config.as_ref().is_some_and(|c| c.backfill);
        let mut lists = std::mem::take(&mut s.lists);
        lists.parts.resize(s.fleet.parts.len(), PartPass::default());
        let holds = std::mem::take(&mut s.holds);
        let closed = if backfill {
            Vec::new()
        } else {
            vec![false; s.fleet.nodes.len()]
        };
        Pass {
            s,
            state,
            now,
            plan: Plan::default(),
            backfill,
            lists,
            budget: Budget::default(),
            reservations: PassReservations {
                holds,
                closed,
                ..PassReservations::default()
            },
            chosen: BTreeMap::new(),
            claimed: 0,
            again: false,
            priorities: RefCell::default(),
            het_tried: NumberMap::default(),
        }
    }

    pub(crate) fn run(mut self) -> Plan {
        self.seed();
        while let Some(turn) = self.next() {
            let work = self.work();
            if self.plan.starts.len() >= STARTS_PER_PASS_MAX || work >= NODES_PER_PASS_MAX {
                self.s.more = true;
                break;
            }
            visit::visit(&mut self, turn);
        }
        self.finish();
        self.plan
    }

    /// Cost of the pass so far, in nodes looked at. Comparisons and searches for jobs to preempt
    /// count only if the next pass continues behind lanes that were compared; without backfilling,
    /// and if many jobs have reservations, it starts again with all of them.
    fn work(&self) -> u64 {
        let cost = &self.s.cost;
        let goes_on = self.backfill && self.s.fleet.settings.reservations <= 1;
        let more = match goes_on {
            true => cost.victim_nodes + cost.checks.saturating_mul(NODES_PER_CHECK),
            false => 0,
        };
        cost.nodes_and_tries() + more
    }

    /// The next lane, and whether its turn is in queue order. Queue order applies until every
    /// partition has a waiting job; then lanes that may pass it follow, the shortest job first if
    /// run times are predicted.
    fn next(&mut self) -> Option<NextLane> {
        loop {
            let predicts = self.s.planned.predicts();
            let first = self.lists.heap.peek().map(|Reverse(head)| head.key);
            let unblocked = self.lists.unblocked.peek().map(|Reverse(lane)| lane.key);
            let in_line = unblocked.filter(|_| !predicts).map(|key| key.head.key);
            if reservations::drop_reservations_before(self, first.into_iter().chain(in_line).min())
            {
                continue;
            }
            let unblocked_is_next = unblocked.is_some_and(|key| match (predicts, first) {
                (false, Some(first)) => key.head.key < first,
                (true, Some(_)) => false,
                (_, None) => self
                    .lists
                    .passing
                    .peek()
                    .is_none_or(|Reverse(other)| key < *other),
            });
            if !unblocked_is_next {
                if let Some(Reverse(head)) = self.lists.heap.pop() {
                    let in_order = true;
                    return Some(NextLane { head, in_order });
                }
                let Reverse(PassingKey { head, .. }) = self.lists.passing.pop()?;
                let in_order = false;
                return Some(NextLane { head, in_order });
            }
            let Reverse(unblocked) = self.lists.unblocked.pop()?;
            let head = unblocked.key.head;
            let parts = &self.s.queue.parts;
            let is_due = |lane: &UnblockedLane| lane.due <= parts[lane.part as usize].gain();
            if !is_due(&unblocked) {
                // Another lane has used the gain, so lanes that need as much do not get a turn.
                self.lists.unblocked.retain(|Reverse(lane)| is_due(lane));
            } else if self.lists.seen.insert(head.lane) {
                self.s.cost.shapes_compared += 1;
                let in_order = !predicts;
                return Some(NextLane { head, in_order });
            }
        }
    }

    /// Queues blocked lanes of a partition for which the gains of nodes may be enough.
    fn requeue_unblocked(&mut self, part: u32) {
        let predicts = self.s.planned.predicts();
        let lanes = self.s.queue.parts[part as usize].unblocked_lanes(&self.s.fleet);
        let entry = |(due, lane): (u64, u32)| {
            let key = self.s.queue.lane(lane).key;
            let key = key.filter(|_| !self.lists.seen.contains(&lane))?;
            let length_ms = match predicts {
                true => self.passing_length_ms(lane, key.job),
                false => 0,
            };
            let key = PassingKey {
                tier: key.tier,
                length_ms,
                head: LaneHead { key, lane },
            };
            Some(Reverse(UnblockedLane { key, due, part }))
        };
        let entries: Vec<_> = lanes.into_iter().filter_map(entry).collect();
        self.lists.unblocked.extend(entries);
    }

    /// Queues a lane again for a later turn.
    fn put_back(&mut self, head: LaneHead) {
        let LaneHead { key, lane } = head;
        let view = self.s.queue.lane(lane);
        let behind = self.lists.parts[view.part as usize].head.is_some();
        if behind && self.s.planned.predicts() {
            let (tier, length_ms) = (key.tier, self.passing_length_ms(lane, key.job));
            self.lists.passing.push(Reverse(PassingKey {
                tier,
                length_ms,
                head,
            }));
        } else {
            self.lists.heap.push(Reverse(head));
        }
    }

    /// The assumed length of a job among those that may pass, reduced by its wait; the shortest
    /// goes first.
    fn passing_length_ms(&self, lane: u32, job: JobId) -> i64 {
        let length_ms = self.s.queue.lane(lane).planned_ms.unwrap_or(u64::MAX / 4);
        let credit_ms = waited_ms(self.state, job, self.now) / WAIT_OF_LENGTH;
        i64::try_from(length_ms).unwrap_or(i64::MAX / 2) - i64::try_from(credit_ms).unwrap_or(0)
    }

    /// Assumed run time of the lane's job in milliseconds.
    fn length_ms(&self, lane: u32) -> Option<u64> {
        let lane = self.s.queue.lane(lane);
        let component = self.s.fleet.parts[lane.part as usize].component;
        let by_limit =
            !self.s.planned.predicts() || self.reservations.cautious.contains(&component);
        match &lane.demand {
            Ok(demand) if by_limit => demand.length_ms,
            _ => lane.planned_ms,
        }
    }

    /// Whether wrong predictions may not delay this waiting job any more.
    fn is_cautious(&self, job: JobId) -> bool {
        self.s.planned.predicts() && waits_long(self.state, job, self.now)
    }

    /// Queues the initial lanes: lanes with a change, and the first lane of each partition that
    /// they may compete with.
    fn seed(&mut self) {
        let queue = &mut self.s.queue;
        let fleet = &self.s.fleet;
        let mut touched = std::mem::take(&mut queue.touched);
        let component = |lane: u32| fleet.parts[queue.lane(lane).part as usize].component;
        touched.extend(queue.woken.iter().map(|&lane| component(lane)));
        // A reservation that is due and has not started depends on jobs that end late; it is
        // computed again.
        let predicts = self.s.planned.predicts();
        let due = |p: &PartQueue| {
            p.reservation.as_ref().is_some_and(|r| {
                let cautious = predicts && waits_long(self.state, r.key.job, self.now);
                r.start <= self.now || r.cautious != cautious
            })
        };
        let late = queue.parts.iter().zip(&fleet.parts).filter(|(p, _)| due(p));
        touched.extend(late.map(|(_, view)| view.component));
        if !queue.het.is_empty() {
            queue.link(fleet, &mut touched);
            queue.wake_het(fleet, &touched);
        }
        // Nodes held for preempting jobs are computed again, so lanes blocked by these holds may
        // fit.
        let renewed = queue.renew_claims(fleet, &touched);
        if !renewed.is_empty() {
            let component = |lane: u32| fleet.parts[queue.lane(lane).part as usize].component;
            let near = |lane: &u32| renewed.contains(&component(*lane));
            let held: Vec<u32> = queue.held.iter().copied().filter(near).collect();
            held.into_iter().for_each(|lane| queue.wake(fleet, lane));
        }
        // The job of a reservation has left the queue, so the jobs that it blocked may fit.
        let mut gone = Vec::new();
        for (number, (part, view)) in queue.parts.iter_mut().zip(&fleet.parts).enumerate() {
            if !touched.contains(&view.component) {
                continue;
            }
            self.lists.parts[number].touched = true;
            let waits = |made: &BackfillReservation| part.order.contains(&made.head());
            if part.reservation.as_ref().is_some_and(|r| !waits(r)) {
                gone.extend(part.reservation.take().map(|r| (view.component, r)));
            }
            let earlier = part.reservation.as_ref().map(|r| (r.key, number));
            self.reservations.earlier.extend(earlier);
        }
        for (component, reservation) in gone {
            reservations::relax_hold(self, component, &reservation, None);
        }
        if self.s.fleet.settings.reservations > 1 {
            self.wake_touched();
        }
        for part in 0..self.lists.parts.len() {
            if self.backfill && self.lists.parts[part].touched {
                self.requeue_unblocked(index(part));
            }
        }
        let queue = &mut self.s.queue;
        queue.touched.clear();
        let firsts: Vec<u32> = (queue.parts.iter().zip(&self.lists.parts))
            .filter(|(_, pass)| pass.touched)
            .filter_map(|(part, _)| part.order.first().map(|head| head.lane))
            .collect();
        let woken = if self.backfill {
            queue.woken.iter().copied().collect()
        } else {
            Vec::new()
        };
        for lane in firsts.into_iter().chain(woken) {
            self.push(lane);
        }
    }

    /// If many jobs have reservations, all reservations are computed again.
    fn wake_touched(&mut self) {
        let touched = self.s.queue.parts.iter().zip(&self.lists.parts);
        let lanes: Vec<u32> = touched
            .filter(|(_, pass)| pass.touched)
            .flat_map(|(part, _)| part.order.iter().map(|head| head.lane))
            .collect();
        for lane in lanes {
            self.s.queue.wake(&self.s.fleet, lane);
        }
    }

    pub(crate) fn push(&mut self, lane: u32) {
        if let Some(key) = self.s.queue.lane(lane).key
            && self.lists.seen.insert(lane)
        {
            self.lists.heap.push(Reverse(LaneHead { key, lane }));
        }
    }

    /// Also queues the lane behind this one in its partition.
    fn push_next_after(&mut self, head: LaneHead) {
        let view = self.s.queue.lane(head.lane);
        if view.key != Some(head.key) {
            return;
        }
        let after = (Bound::Excluded(head), Bound::Unbounded);
        let order = &self.s.queue.parts[view.part as usize].order;
        if let Some(next) = order.range(after).next().map(|next| next.lane) {
            self.push(next);
        }
    }

    /// Tries to start a job that does not fit, with a shorter time limit or by preemption.
    fn try_alternatives(
        &mut self,
        head: LaneHead,
        narrowed: bool,
        cause: Option<Reason>,
        nowhere: bool,
    ) -> Unplaced {
        let (lane, job) = (head.lane, head.key.job);
        let unlicensed = cause == Some(Reason::Licenses);
        let reclaims = self.state.preemption().is_some_and(|p| p.reclaim_licenses);
        if cause.is_some_and(Reason::is_limit) || (unlicensed && !reclaims) {
            return Unplaced::Waits(Shortfall::NO_NODES, false);
        }
        let mut waits_for = Shortfall::NO_NODES;
        if narrowed || cause.is_some_and(|_| !unlicensed) {
            match shorter::try_shorter(self, lane, job) {
                Ok((picks, limit)) if starts::limit_on(self, lane, job, &picks).is_none() => {
                    let place = self.plan.starts.len();
                    self.plan.limits.push(ShortenedLimit { place, limit });
                    starts::start(self, lane, job, &picks);
                    return Unplaced::Settled;
                }
                Ok(_) => waits_for = Shortfall::ANYTHING,
                Err(short) => waits_for = short,
            }
        }
        match preempt::preempt(self, lane, job, nowhere) {
            PreemptOutcome::Settled => Unplaced::Settled,
            PreemptOutcome::Short(short, held) => Unplaced::Waits(waits_for.or(short), held),
        }
    }

    /// Handles a job that waits: the first of its partition, and if configured some jobs behind it,
    /// get nodes held for them.
    fn reserve_for(&mut self, lane: u32, key: HeadKey, het: Option<HetPlace>) {
        let part = self.s.queue.lane(lane).part;
        let pass = self.lists.parts[part as usize];
        let job = key.job;
        let het = het.filter(|_| self.backfill);
        if pass.head.is_none() {
            if het.is_some_and(|het| het::waits(self, het, lane, key) != het::HetResult::Waits) {
                return;
            }
            self.lists.parts[part as usize].head = Some(job);
            if het.is_none() {
                reservations::waits(self, lane, part, key);
            }
        } else if pass.reservations < self.s.fleet.settings.reservations {
            match het {
                Some(het) if !het::waits_too(self, het, key) => return,
                Some(_) => {}
                None => reservations::waits_too(self, lane, part, key),
            }
        }
        let pass = &mut self.lists.parts[part as usize];
        pass.reservations += 1;
        if self.backfill && pass.reservations < self.s.fleet.settings.reservations {
            // The next job of the shape gets a reservation too.
            self.reservations.jobs.insert(job);
            if let Some(next) = self.head(lane) {
                let key = self.s.queue.head_key(lane, key.tier, next);
                self.put_back(LaneHead { key, lane });
            }
        }
    }

    /// The first job of a lane that this pass has not started.
    fn head(&mut self, lane: u32) -> Option<QueueKey> {
        let shape = self.s.queue.shape(self.s.queue.lane(lane).shape);
        let from = self.lists.cursor.get(&lane).copied().unwrap_or(QueueKey {
            within: Reverse(i64::MAX),
            job: JobId(0),
        });
        for &key in shape.queue.range(from..) {
            self.s.cost.jobs_visited += 1;
            let job = &self.state.jobs[&key.job];
            if self.reservations.jobs.contains(&key.job) {
                continue;
            }
            let left = *self
                .lists
                .left
                .entry(key.job)
                .or_insert_with(|| match &job.array {
                    ArrayRole::Pending { indices } => {
                        u32::try_from(indices.len()).unwrap_or(u32::MAX)
                    }
                    _ => 1,
                });
            let budget = array_budget(self.state, job).map_or(u32::MAX, |(base, n)| {
                *self.budget.of_arrays.entry(base).or_insert(n)
            });
            if left.min(budget) > 0 {
                self.lists.cursor.insert(lane, key);
                return Some(key);
            }
        }
        None
    }

    /// Searches for nodes for a job of the lane now.
    fn try_now(&mut self, lane: u32, job: JobId) -> PlacementResult {
        self.s.cost.shapes_visited += 1;
        let nowhere = Placement::Nowhere(Shortfall::ANYTHING);
        let lane_number = lane;
        let lane = self.s.queue.lane(lane);
        let Ok(demand) = &lane.demand else {
            return PlacementResult::failed(nowhere, None);
        };
        self.s.cost.checks += 1 + lane.licenses.len() as u64;
        let span = self.span(lane, demand);
        // Resources taken in this pass may become free again without an event.
        let no_nodes = |certain: bool| match certain {
            true => Placement::Nowhere(Shortfall::NO_NODES),
            false => Placement::Nowhere(Shortfall::ANYTHING),
        };
        if self
            .budget
            .licenses
            .to_be_had(&lane.licenses, span)
            .is_none()
        {
            let placement = no_nodes(self.budget.licenses.are_untaken());
            return PlacementResult::failed(placement, Some(Reason::Licenses));
        }
        if let Some(limit) = starts::limit_for_minimum_request(self, job, lane.part) {
            let placement = no_nodes(self.budget.limit_use.is_empty());
            return PlacementResult::failed(placement, Some(limit));
        }
        let switches = self.switch_limit(job, demand);
        let mut source = self.nodes_now(lane_number, demand);
        let placement = choose_now(demand, &mut source, switches);
        let (narrowed, reserved) = (source.narrowed.get(), source.reserved.get());
        let (visited, tries) = (source.visited.get(), source.tries.get());
        self.s.cost.nodes_visited += visited;
        self.s.cost.socket_tries += tries;
        if let Placement::Here(picks) = &placement
            && let Some(limit) = starts::limit_on(self, lane_number, job, picks)
        {
            return PlacementResult::failed(nowhere, Some(limit));
        }
        let fits_not = matches!(placement, Placement::Nowhere(_));
        PlacementResult {
            placement,
            narrowed,
            cause: reserved.filter(|_| fits_not),
        }
    }

    /// The limit on leaf switches that applies to a job now; a job that has waited long enough
    /// gives the limit up.
    fn switch_limit(&self, job: JobId, demand: &Demand) -> Option<u32> {
        let waited = self.state.jobs[&job].switch_wait_since;
        let relents = waited.and_then(|since| demand.relents_at(since));
        let relented = relents.is_some_and(|at| at <= self.now);
        let limit = demand.switches.filter(|_| !relented);
        limit.map(|limit| limit.most)
    }

    /// The nodes of a lane's partition as one of its jobs sees them now.
    fn nodes_now(&self, lane: u32, demand: &Demand) -> CurrentNodes<'_> {
        let part = self.s.queue.lane(lane).part;
        CurrentNodes {
            fleet: &self.s.fleet,
            part: &self.s.fleet.parts[part as usize],
            holds: &self.reservations.holds,
            closed: &self.reservations.closed,
            end: end_after(self.now, self.length_ms(lane)),
            latest: end_after(self.now, demand.length_ms),
            narrowed: Cell::new(false),
            reserved: Cell::new(None),
            visited: Cell::new(0),
            tries: Cell::new(0),
            shared: false,
        }
    }

    /// Jobs of the lane would fit now without their limit on leaf switches (--switches): starts
    /// their wait.
    fn wait_for_switches(&mut self, lane: u32) {
        let shape = self.s.queue.shape(self.s.queue.lane(lane).shape);
        let first = shape.queue.iter().take(SWITCH_WAITERS_MAX);
        let new = first.map(|key| key.job).filter(|id| {
            let job = &self.state.jobs[id];
            job.switch_wait_since.is_none() && self.lists.left.get(id) != Some(&0)
        });
        self.plan.switch_waits.extend(new);
    }

    /// Partitions looked at in this pass; lanes of a reservation count for the real partition.
    fn evaluated(&self) -> Vec<u32> {
        let views = self.s.fleet.parts.iter().zip(0..);
        let touched = views
            .zip(&self.lists.parts)
            .filter(|(_, pass)| pass.touched);
        let position = |((view, number), _): ((&PartView, u32), &PartPass)| match view.own {
            None => Some(number),
            Some(_) => self.s.fleet.part_by_name.get(&view.config.name).copied(),
        };
        touched.filter_map(position).collect()
    }

    /// Stores heads and reservations, and reports changed reasons.
    fn finish(&mut self) {
        self.s.evaluated = self.evaluated();
        let queue = &mut self.s.queue;
        let mut moved = false;
        for (number, pass) in self.lists.parts.iter().enumerate() {
            // An incomplete pass has not reached every lane.
            if !pass.touched || (self.s.more && pass.head.is_none()) {
                continue;
            }
            let part = &mut queue.parts[number];
            if part.head != pass.head {
                queue
                    .announce
                    .extend(part.head.into_iter().chain(pass.head));
                part.head = pass.head;
                moved = true;
            }
            let number = index(number);
            let mut made = self.reservations.made.remove(&number);
            // Later starts and reservations for other jobs have reduced the held resources since.
            if self.reservations.holds.narrowed
                && let Some(made) = &mut made
            {
                made.narrow_to(&self.reservations.holds);
            }
            part.reservation = made;
        }
        self.reservations.holds.clear();
        self.s.holds = std::mem::take(&mut self.reservations.holds);
        let queue = &mut self.s.queue;
        if moved {
            // A lane may wait because of the first job of another partition.
            let heads = queue.parts.iter().filter_map(|part| part.head);
            queue.announce.extend(heads);
        }
        if !self.s.more {
            for part in &mut queue.parts {
                part.settle(&self.s.fleet);
            }
        }
        self.reasons();
        let starts = self.plan.starts.iter().map(|s| s.job);
        self.s.proposed = starts
            .chain(self.plan.switch_waits.iter().copied())
            .collect();
        self.s.more |= self.again;
        let newest = self.s.queue.het.last_key_value();
        let newest = newest.map(|(component, _)| *component);
        self.s.more |= self.s.het_turns.end_pass(newest);
        self.s.lists = std::mem::take(&mut self.lists);
        self.s.lists.clear();
    }

    /// Jobs that are first in a partition while jobs of a partition with a higher tier wait for the
    /// same nodes.
    fn below_others(&self) -> BTreeSet<JobId> {
        let (heads, views) = (&self.s.queue.parts, &self.s.fleet.parts);
        if views.len() < 2 {
            return BTreeSet::new();
        }
        let waiting = || heads.iter().zip(views).filter(|(p, _)| p.head.is_some());
        let mut highest: BTreeMap<u32, u32> = BTreeMap::new();
        for (_, view) in waiting().filter(|(_, view)| view.own.is_none()) {
            let tier = highest.entry(view.component).or_default();
            *tier = view.config.priority_tier.max(*tier);
        }
        let below = waiting().filter(|(_, view)| {
            let tier = highest.get(&view.component);
            view.own.is_none() && tier.is_some_and(|tier| *tier > view.config.priority_tier)
        });
        let above: BTreeSet<JobId> = waiting()
            .filter(|(_, view)| highest.get(&view.component) == Some(&view.config.priority_tier))
            .filter_map(|(p, _)| p.head)
            .collect();
        below
            .filter_map(|(p, _)| p.head)
            .filter(|id| !above.contains(id))
            .collect()
    }

    fn reasons(&mut self) {
        if self.s.queue.announce.is_empty() && self.s.queue.refused.is_empty() {
            return;
        }
        let below = self.below_others();
        let queue = &mut self.s.queue;
        let heads: BTreeSet<JobId> = queue.parts.iter().filter_map(|p| p.head).collect();
        // All components of a heterogeneous job wait for the same reason.
        let first_beside = |place: Option<HetPlace>| {
            place.is_some_and(|place| place.ids().any(|other| heads.contains(&other)))
        };
        let mut reported: Vec<PlannedReason> = Vec::new();
        for id in std::mem::take(&mut queue.announce) {
            let (Some(&(shape, _)), Some(job)) = (queue.jobs.get(&id), self.state.jobs.get(&id))
            else {
                continue;
            };
            let claims = queue.claimants.contains_key(&id);
            if self.lists.left.get(&id) == Some(&0) && !claims {
                continue;
            }
            // Whether reservations block a job depends on its other obstacles, and is known only
            // from the last try; the queue's own reason therefore comes first.
            let cause = queue.cause(shape);
            let by_reservation = |cause: &Reason| {
                matches!(
                    cause,
                    Reason::NodesReserved | Reason::ReservedForMaintenance
                )
            };
            let waiting = if let Some(cause) = cause.filter(|cause| !by_reservation(cause)) {
                cause
            } else if below.contains(&id) && !claims {
                Reason::NodesUnavailable
            } else if let Some(cause) = cause {
                cause
            } else if claims || heads.contains(&id) || first_beside(job.het) {
                Reason::Resources
            } else {
                Reason::Priority
            };
            queue.refused.remove(&id);
            let reason = queue.fatal(shape).unwrap_or(waiting);
            if job.reason != reason {
                reported.push(PlannedReason { job: id, reason });
            }
        }
        let jobs = &self.state.jobs;
        let new = |planned: &PlannedReason| {
            let job = jobs.get(&planned.job);
            job.is_some_and(|job| job.reason != planned.reason)
        };
        let refused = std::mem::take(&mut queue.refused).into_iter();
        let refused = refused.map(|(job, reason)| PlannedReason { job, reason });
        reported.extend(refused.filter(new));
        reported.sort_unstable_by_key(|planned| planned.job);
        self.plan.reasons = reported;
    }
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 partitions")
}

/// Whether a job has waited for more than a day since it became eligible.
fn waits_long(state: &State, job: JobId, now: Timestamp) -> bool {
    waited_ms(state, job, now) > CAUTIOUS_AFTER_MS
}

/// How long a job has waited since it became eligible.
fn waited_ms(state: &State, job: JobId, now: Timestamp) -> u64 {
    let since = state
        .jobs
        .get(&job)
        .map(|j| j.eligible_time.unwrap_or(j.submit_time));
    since.map_or(0, |since| now.since_ms(since))
}
