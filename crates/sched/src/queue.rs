//! Waiting jobs by shape. Jobs of one *shape* are equal to placement: request, partitions, time limit. A *lane* is a shape in one of its
//! partitions. It is `woken` when a change may affect it and is blocked otherwise; a blocked lane costs nothing.

pub(crate) mod feasibility_cache;
mod feasible;
mod kind;
mod reasons;
mod slab;

pub(crate) use self::feasible::{feasible, partitions_of};
use self::feasible::{least_cpus, may_use, planned_ms};
use self::kind::Kind;
use self::slab::Slab;
use crate::backfill::gains::{BlockedKey, PartQueue, RelaxedHold};
use crate::backfill::together::EmptyFit;
use crate::demand::licenses::asked;
use crate::demand::{Demand, PartitionTerms};
use crate::nodes::fleet::Fleet;
use crate::nodes::node_map::NumberMap;
use crate::nodes::room::SharingKey;
use crate::nodes::rooms::narrow;
use crate::order::{HeadKey, LaneHead, PreemptTier, QueueKey, QueueOrder};
use crate::place::Shortfall;
use crate::place::holds::Holds;
use crate::queue::feasibility_cache::FeasibilityCache;
use foldhash::fast::RandomState;
use muster_core::state::State;
use muster_model::account_limits::Scope;
use muster_model::het::HetPlace;
use muster_model::ids::JobId;
use muster_model::job::{Job, Reason};
use muster_model::licenses::Counts;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Maximum number of specifications by which a shape can be found; more would cost more memory than they save.
const SPECS_OF_SHAPE: usize = 64;

/// Jobs with equal requests.
#[derive(Debug)]
pub(crate) struct Shape {
    kind: Kind,
    hash: u64,
    pub(crate) queue: BTreeSet<QueueKey>,
    pub(crate) lanes: Vec<u32>,
    /// Owner of the job for which the shape was made.
    maker: u32,
    /// Specifications of its jobs by which the shape can be found.
    specs: Vec<Arc<JobSpec>>,
}

/// A shape in one partition.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) shape: u32,
    pub(crate) part: u32,
    ordinal: u32,
    /// The demand in the partition, or why the shape cannot run there.
    pub(crate) demand: Result<Demand, Reason>,
    /// Assumed run time of its jobs in milliseconds: as predicted, else their limit.
    pub(crate) planned_ms: Option<u64>,
    /// Its position in the partition's order, if it can run there.
    pub(crate) key: Option<HeadKey>,
    /// The smallest number of free CPUs with which a node is of use to the lane.
    least_cpus: u32,
    /// Its key among the blocked lanes.
    blocked: Option<BlockedKey>,
    /// A reservation for another job reduced the room of nodes when the lane was last tried.
    pub(crate) held: bool,
    /// Unique number of the lane's current demand.
    pub(crate) stamp: u64,
    /// The reason why it waits, apart from missing nodes.
    cause: Option<Reason>,
    /// The common part of its jobs' ranks, see [`QueueOrder::base`].
    base: i64,
    /// Its jobs may preempt running jobs.
    pub(crate) preempts: bool,
    /// Licenses that its jobs request: all of one alternative.
    pub(crate) licenses: Arc<[Counts]>,
    /// Minimum time limit that its jobs accept in milliseconds, if it is less than their limit.
    pub(crate) least_ms: Option<u64>,
}

impl Lane {
    /// The reason why the lane waits, apart from missing nodes.
    pub(crate) fn cause(&self) -> Option<Reason> {
        self.cause
    }

    /// Whether free CPUs alone do not decide: its jobs may preempt or share with running jobs, or counts alone do not tell whether a node
    /// fits one.
    fn counts_whole(&self) -> bool {
        let whole = |demand: &Demand| demand.sharers > 1 || demand.is_intricate();
        self.preempts || self.demand.as_ref().is_ok_and(whole)
    }
}

/// All waiting jobs.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    order: QueueOrder,
    shapes: Slab<Shape>,
    lanes: Slab<Lane>,
    /// Number of lanes of shapes that were made for jobs of a user.
    lanes_of_users: NumberMap<u32, usize>,
    /// Shapes by hash; only looked up, never iterated.
    by_hash: NumberMap<u64, Vec<u32>>,
    hash: RandomState,
    /// Shapes by the address of a specification that their jobs share; the shape keeps the specification alive. This is only a shortcut: a
    /// shape that is not found here is found by hash.
    by_spec: NumberMap<u64, u32>,
    pub(crate) jobs: NumberMap<JobId, (u32, QueueKey)>,
    pub(crate) parts: Vec<PartQueue>,
    pub(crate) woken: BTreeSet<u32>,
    /// Lanes blocked by reservations.
    pub(crate) held: BTreeSet<u32>,
    /// Components in which something changed.
    pub(crate) touched: BTreeSet<u32>,
    /// Jobs whose reason may have changed.
    pub(crate) announce: BTreeSet<JobId>,
    /// Jobs that were kept out of the queue, and why.
    pub(crate) refused: BTreeMap<JobId, Reason>,
    /// Waiting components of heterogeneous jobs.
    pub(crate) het: BTreeMap<JobId, HetPlace>,
    /// Heterogeneous jobs whose components would fit one by one but not all at one time, by leader.
    pub(crate) het_restless: BTreeSet<JobId>,
    /// Whether all components fit on empty nodes, by leader, as far as it was checked.
    pub(crate) het_fits: BTreeMap<JobId, EmptyFit>,
    /// Lanes blocked by limits, and the scopes of these limits.
    limited: BTreeMap<u32, Vec<Scope>>,
    /// Lanes whose jobs request licenses.
    licensed: BTreeSet<u32>,
    /// Lanes for whose jobs preemption makes room, and their components.
    claims: BTreeMap<u32, u32>,
    /// Jobs for which preemption makes room, and their components.
    pub(crate) claimants: BTreeMap<JobId, u32>,
    stamps: u64,
    /// Demands of submissions that are not queued yet.
    pub(crate) feasibility: FeasibilityCache,
}

impl Queue {
    pub(crate) fn new(state: &State, fleet: &Fleet) -> Queue {
        let parts = fleet.parts.iter().map(|_| PartQueue::default()).collect();
        Queue {
            order: QueueOrder::new(state),
            parts,
            ..Queue::default()
        }
    }

    pub(crate) fn shape(&self, id: u32) -> &Shape {
        self.shapes.get(id)
    }

    pub(crate) fn lane(&self, id: u32) -> &Lane {
        self.lanes.get(id)
    }

    /// Number of waiting shapes, counted once per partition.
    pub(crate) fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// The kind of a job. The cost of many different jobs in many partitions is limited per user: above the limit, each job is tried in one
    /// partition only, and shares no shape with jobs of other users.
    fn kind_of(&self, state: &State, fleet: &Fleet, job: &Job) -> Kind {
        let owner = job.spec.owner.uid;
        let lanes = self.lanes_of_users.get(&owner).copied().unwrap_or(0);
        Kind::of(state, &self.order, job, fleet).crowded_by(lanes, owner)
    }

    /// Number of waiting shapes.
    pub(crate) fn shape_count(&self) -> usize {
        self.shapes.len()
    }

    /// Inserts a job, or moves it to its present place.
    pub(crate) fn put(&mut self, state: &State, fleet: &Fleet, job: &Job) {
        let known = self.shape_by_spec(job);
        let key = QueueKey {
            within: Reverse(self.order.within(state, job)),
            job: job.id,
        };
        if let Some(&(shape, old)) = self.jobs.get(&job.id) {
            if known == Some(shape)
                || (self.kind_of(state, fleet, job)).stays(&self.shapes.get(shape).kind)
            {
                if old != key {
                    let shape_ref = self.shapes.get_mut(shape);
                    shape_ref.queue.remove(&old);
                    shape_ref.queue.insert(key);
                    self.jobs.insert(job.id, (shape, key));
                    self.reorder(fleet, shape);
                }
                return;
            }
            self.remove(fleet, job.id);
        }
        let shape = match self.shape_by_spec(job) {
            Some(shape) => shape,
            None => {
                let kind = self.kind_of(state, fleet, job);
                let shape = self.shape_for(state, fleet, job, kind);
                self.know_by_spec(job, shape);
                shape
            }
        };
        let queue = &mut self.shapes.get_mut(shape).queue;
        queue.insert(key);
        let leads = queue.first() == Some(&key);
        self.jobs.insert(job.id, (shape, key));
        if let Some(part) = job.het {
            self.het.insert(job.id, part);
            self.het_changed(fleet, part);
        }
        if leads {
            self.reorder(fleet, shape);
        }
    }

    /// The shape of other jobs with the identical specification, if this job equals them in the other fields too.
    fn shape_by_spec(&self, job: &Job) -> Option<u32> {
        if job.het.is_some() || job.priority_fixed {
            return None;
        }
        let shape = *self.by_spec.get(&address(&job.spec))?;
        let kind = &self.shapes.get(shape).kind;
        let partitions = partitions_of(&job.spec, std::slice::from_ref(&job.partition));
        let same = kind.limit == job.time_limit
            && kind.predicted_s == job.predicted_s
            && kind.partitions == partitions;
        same.then_some(shape)
    }

    /// Lets jobs with this job's specification be found by its address.
    fn know_by_spec(&mut self, job: &Job, shape: u32) {
        let specs = &mut self.shapes.get_mut(shape).specs;
        if job.het.is_none() && !job.priority_fixed && specs.len() < SPECS_OF_SHAPE {
            specs.push(Arc::clone(&job.spec));
            self.by_spec.insert(address(&job.spec), shape);
        }
    }

    /// A component was queued or may have changed: the other components get their turn too.
    fn het_changed(&mut self, fleet: &Fleet, place: HetPlace) {
        self.het_fits.remove(&place.leader);
        let lanes = place.ids().flat_map(|id| self.lanes_of(id));
        for lane in lanes.collect::<Vec<u32>>() {
            self.wake(fleet, lane);
        }
    }

    /// Removes a job.
    pub(crate) fn remove(&mut self, fleet: &Fleet, job: JobId) {
        let Some((shape, key)) = self.jobs.remove(&job) else {
            return;
        };
        if let Some(place) = self.het.remove(&job) {
            self.het_fits.remove(&place.leader);
            self.het_restless.remove(&place.leader);
        }
        self.shapes.get_mut(shape).queue.remove(&key);
        self.reorder(fleet, shape);
        if self.shapes.get(shape).queue.is_empty() {
            let gone = self.shapes.remove(shape);
            for spec in gone.specs {
                if self.by_spec.get(&address(&spec)) == Some(&shape) {
                    self.by_spec.remove(&address(&spec));
                }
            }
            if let Some(lanes) = self.lanes_of_users.get_mut(&gone.maker) {
                *lanes = lanes.saturating_sub(gone.lanes.len());
                if *lanes == 0 {
                    self.lanes_of_users.remove(&gone.maker);
                }
            }
            for lane in gone.lanes {
                let part = self.lanes.remove(lane).part;
                self.parts[part as usize].lanes.remove(&lane);
                self.claims.remove(&lane);
                self.licensed.remove(&lane);
                self.limited.remove(&lane);
            }
            if let Some(list) = self.by_hash.get_mut(&gone.hash) {
                list.retain(|&s| s != shape);
                if list.is_empty() {
                    self.by_hash.remove(&gone.hash);
                }
            }
        }
    }

    fn shape_for(&mut self, state: &State, fleet: &Fleet, job: &Job, kind: Kind) -> u32 {
        let hash = self.hash.hash_one(&kind);
        if let Some(&shape) = self
            .by_hash
            .get(&hash)
            .and_then(|list| list.iter().find(|&&s| self.shapes.get(s).kind == kind))
        {
            return shape;
        }
        let (parts, crowded) = (kind.parts(fleet), kind.crowded.is_some());
        let last = parts.last().copied();
        let (ask, limit, predicted_s) = (kind.ask.clone(), kind.limit, kind.predicted_s);
        let (barred, exempt) = (kind.barred.clone(), kind.exempt.clone());
        let (key, licenses): (_, Arc<[Counts]>) =
            (kind.key.clone(), asked(kind.licenses.as_deref()).into());
        let least_ms = (kind.time_min)
            .and_then(|least| least.seconds())
            .map(|s| s.saturating_mul(1000));
        let shape = self.shapes.insert(Shape {
            kind,
            hash,
            queue: BTreeSet::new(),
            lanes: Vec::new(),
            maker: job.spec.owner.uid,
            specs: Vec::new(),
        });
        self.by_hash.entry(hash).or_default().push(shape);
        let best = self.order.best(state, job);
        for (part, ordinal) in parts.into_iter().zip(0..) {
            let view = &fleet.parts[part as usize];
            let known = match key == SharingKey::default() {
                true => self.feasibility.take(fleet, (&job.spec, limit, part)),
                false => None,
            };
            let name = &view.config.name;
            let exempt = exempt.get(name).copied().unwrap_or_default();
            let terms = PartitionTerms { limit, exempt };
            let demand = match barred.get(name) {
                Some(reason) => Err(*reason),
                None => known.unwrap_or_else(|| feasible(&ask, terms, fleet, view, key.clone())),
            };
            if crowded && demand.is_err() && Some(part) != last {
                continue;
            }
            let can_run = demand.is_ok();
            let least_cpus = least_cpus(&demand, fleet);
            self.stamps += 1;
            let lane = Lane {
                shape,
                part,
                ordinal,
                demand,
                planned_ms: planned_ms(limit, predicted_s),
                key: None,
                least_cpus,
                blocked: None,
                held: false,
                stamp: self.stamps,
                cause: None,
                base: self.order.base(state, job, &view.config, best),
                preempts: state.may_preempt(job, &view.config.name),
                licenses: Arc::clone(&licenses),
                least_ms,
            };
            let licensed = !licenses.is_empty();
            let lane = self.lanes.insert(lane);
            self.licensed.extend(licensed.then_some(lane));
            self.parts[part as usize].lanes.insert(lane);
            self.shapes.get_mut(shape).lanes.push(lane);
            if crowded && can_run {
                break;
            }
        }
        let lanes = self.shapes.get(shape).lanes.len();
        *self.lanes_of_users.entry(job.spec.owner.uid).or_default() += lanes;
        shape
    }

    /// Moves a shape's lanes to the positions that follow from its first job.
    fn reorder(&mut self, fleet: &Fleet, shape: u32) {
        let first = self.shapes.get(shape).queue.first().copied();
        for lane in self.shapes.get(shape).lanes.clone() {
            self.place(fleet, lane, first);
        }
    }

    fn place(&mut self, fleet: &Fleet, id: u32, first: Option<QueueKey>) {
        let lane = self.lanes.get_mut(id);
        let view = &fleet.parts[lane.part as usize];
        let kind = &self.shapes.get(lane.shape).kind;
        let tier = PreemptTier {
            level: Reverse(self.order.level(kind.qos.as_deref())),
            tier: Reverse(view.config.priority_tier),
        };
        let line = &kind.line;
        let key = first.filter(|_| lane.demand.is_ok()).map(|first| HeadKey {
            tier,
            rank: Reverse(self.order.rank(line, lane.base, first.within.0)),
            job: first.job,
            ordinal: lane.ordinal,
        });
        let old = std::mem::replace(&mut lane.key, key);
        if old == key {
            return;
        }
        let queue = &mut self.parts[lane.part as usize];
        if let Some(old) = old {
            queue.order.remove(&LaneHead { key: old, lane: id });
        }
        self.touched.insert(view.component);
        match key {
            Some(key) => {
                queue.order.insert(LaneHead { key, lane: id });
                // At an earlier position the lane may pass reservations that blocked it.
                if old.is_none_or(|old| key < old) {
                    self.wake(fleet, id);
                }
            }
            None => {
                if let Some(key) = lane.blocked.take() {
                    queue.unblock(key, id);
                }
                lane.held = false;
                self.held.remove(&id);
                self.woken.remove(&id);
            }
        }
    }

    /// The position of a lane with that job as its first.
    pub(crate) fn head_key(&self, id: u32, tier: PreemptTier, first: QueueKey) -> HeadKey {
        let lane = self.lanes.get(id);
        let line = &self.shapes.get(lane.shape).kind.line;
        HeadKey {
            tier,
            rank: Reverse(self.order.rank(line, lane.base, first.within.0)),
            job: first.job,
            ordinal: lane.ordinal,
        }
    }

    /// Priorities were computed: checks every lane's rank and moves only lanes whose rank changed. O(lanes), or O(jobs) if each job has its
    /// own priority.
    pub(crate) fn reranked(&mut self, state: &State, fleet: &Fleet) {
        self.order = QueueOrder::new(state);
        if self.order.rises() {
            for id in &state.pending {
                if let (true, Some(job)) = (self.jobs.contains_key(id), state.jobs.get(id)) {
                    self.put(state, fleet, job);
                }
            }
        }
        let mut bests = BTreeMap::new();
        for part in 0..self.parts.len() {
            for id in self.parts[part].lanes.clone() {
                let lane = self.lanes.get(id);
                let Some(&first) = self.shapes.get(lane.shape).queue.first() else {
                    continue;
                };
                let Some(job) = state.jobs.get(&first.job) else {
                    continue;
                };
                let best = bests.entry(lane.shape);
                let best = *best.or_insert_with(|| self.order.best(state, job));
                let base = (self.order).base(state, job, &fleet.parts[part].config, best);
                self.lanes.get_mut(id).base = base;
                self.place(fleet, id, Some(first));
            }
        }
    }

    /// Wakes a lane that a change may affect.
    pub(crate) fn wake(&mut self, fleet: &Fleet, id: u32) {
        let lane = self.lanes.get_mut(id);
        if let Some(key) = lane.blocked.take() {
            self.parts[lane.part as usize].unblock(key, id);
        }
        self.touched
            .insert(fleet.parts[lane.part as usize].component);
        self.woken.insert(id);
    }

    /// Wakes a lane, if a lane with that number still has waiting jobs.
    pub(crate) fn wake_lane(&mut self, fleet: &Fleet, id: u32) {
        if self.lanes.find(id).is_some_and(|lane| lane.key.is_some()) {
            self.wake(fleet, id);
        }
    }

    /// Wakes every lane of a job's shape, if the job waits.
    pub(crate) fn wake_job(&mut self, fleet: &Fleet, job: JobId) {
        let Some(&(shape, _)) = self.jobs.get(&job) else {
            return;
        };
        for lane in self.shapes.get(shape).lanes.clone() {
            if self.lanes.get(lane).key.is_some() {
                self.wake(fleet, lane);
            }
        }
    }

    /// The heterogeneous job to which a lane's job belongs.
    pub(crate) fn het_of(&self, lane: u32) -> Option<HetPlace> {
        self.shapes.get(self.lanes.get(lane).shape).kind.het
    }

    /// The lanes in which a queued job can run, in the order of its partitions.
    pub(crate) fn lanes_of(&self, job: JobId) -> Vec<u32> {
        let Some(&(shape, _)) = self.jobs.get(&job) else {
            return Vec::new();
        };
        let lanes = self.shapes.get(shape).lanes.iter().copied();
        lanes
            .filter(|lane| self.lanes.get(*lane).key.is_some())
            .collect()
    }

    /// Adds the components of nodes that heterogeneous jobs link to the touched ones: its reservation here depends on job ends
    /// there.
    pub(crate) fn link(&self, fleet: &Fleet, touched: &mut BTreeSet<u32>) {
        let component = |lane: u32| fleet.parts[self.lanes.get(lane).part as usize].component;
        loop {
            let before = touched.len();
            for part in self.het.values().filter(|part| part.leads()) {
                let lanes = part.ids().flat_map(|id| self.lanes_of(id));
                let linked: BTreeSet<u32> = lanes.map(component).collect();
                if linked.iter().any(|c| touched.contains(c)) {
                    touched.extend(linked);
                }
            }
            if touched.len() == before {
                return;
            }
        }
    }

    /// Tries heterogeneous jobs in these components again if each of their components would have fitted: when components are placed
    /// together, less room for one may allow a placement of all.
    pub(crate) fn wake_het(&mut self, fleet: &Fleet, touched: &BTreeSet<u32>) {
        let near = |lane: &u32| {
            let part = self.lanes.get(*lane).part;
            touched.contains(&fleet.parts[part as usize].component)
        };
        let restless = |place: &&HetPlace| self.het_restless.contains(&place.leader);
        let jobs = self.het.iter().filter(|(_, place)| restless(place));
        let lanes = jobs.flat_map(|(job, _)| self.lanes_of(*job));
        for lane in lanes.filter(near).collect::<Vec<u32>>() {
            self.wake(fleet, lane);
        }
    }

    /// The time at which a queued job gives up its limit on leaf switches, for which it has waited since `since`.
    pub(crate) fn relents_at(&self, job: JobId, since: Timestamp) -> Option<Timestamp> {
        let (shape, _) = self.jobs.get(&job)?;
        let lanes = self.shapes.get(*shape).lanes.iter();
        lanes
            .filter_map(|lane| {
                self.lanes
                    .get(*lane)
                    .demand
                    .as_ref()
                    .ok()?
                    .relents_at(since)
            })
            .min()
    }

    /// Blocks a lane that did not fit; `held` if reservations for other jobs prevented a placement.
    pub(crate) fn block(&mut self, id: u32, short: Shortfall, held: bool) {
        let lane = self.lanes.get_mut(id);
        self.woken.remove(&id);
        let part = &mut self.parts[lane.part as usize];
        let key = match lane.counts_whole() {
            true => BlockedKey::Whole(part.gained_whole + short.cpus),
            false => {
                let each = short.each.max(lane.least_cpus);
                BlockedKey::Free(each, part.gained + short.cpus)
            }
        };
        if let Some(old) = lane.blocked.replace(key) {
            part.unblock(old, id);
        }
        match key {
            BlockedKey::Whole(due) => {
                part.blocked_whole.insert((due, id));
            }
            BlockedKey::Free(each, due) => {
                part.blocked.entry(each).or_default().insert((due, id));
            }
        }
        lane.held = held;
        if held {
            self.held.insert(id);
        } else {
            self.held.remove(&id);
        }
    }

    /// Blocks the lane until the use of these limits decreases.
    pub(crate) fn limit(&mut self, lane: u32, scopes: Vec<Scope>) {
        self.limited.insert(lane, scopes);
    }

    /// The use of these limits has decreased: wakes lanes that they block.
    pub(crate) fn use_fell(&mut self, fleet: &Fleet, scopes: &BTreeSet<Scope>) {
        let concerned = |(_, of): &(&u32, &Vec<Scope>)| of.iter().any(|s| scopes.contains(s));
        let lanes: Vec<u32> = (self.limited.iter())
            .filter(concerned)
            .map(|(lane, _)| *lane)
            .collect();
        for lane in lanes {
            self.limited.remove(&lane);
            if self.lanes.get(lane).key.is_some() {
                self.wake(fleet, lane);
            }
        }
    }

    /// Licenses were returned or are no longer held: returns the lanes that may use them.
    pub(crate) fn licenses_freed(&mut self, fleet: &Fleet) -> Vec<u32> {
        let waits = |lane: &u32| self.lanes.get(*lane).key.is_some();
        let lanes: Vec<u32> = self.licensed.iter().copied().filter(waits).collect();
        lanes.iter().for_each(|lane| self.wake(fleet, *lane));
        lanes
    }

    /// Records that preemption makes room for a job of the lane.
    pub(crate) fn claim(&mut self, fleet: &Fleet, lane: u32, job: JobId) {
        let part = self.lanes.get(lane).part;
        let component = fleet.parts[part as usize].component;
        self.claims.insert(lane, component);
        self.claimants.insert(job, component);
        self.announce.insert(job);
    }

    /// Whether preemption is making room for a job of the lane.
    pub(crate) fn has_claim(&self, lane: u32) -> bool {
        self.claims.contains_key(&lane)
    }

    /// Renews claims in these components. Returns the components that had some.
    pub(crate) fn renew_claims(&mut self, fleet: &Fleet, touched: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut had = BTreeSet::new();
        let announce = &mut self.announce;
        self.claimants.retain(|job, component| {
            let near = touched.contains(component);
            if near {
                announce.insert(*job);
                had.insert(*component);
            }
            !near
        });
        let mut lanes = Vec::new();
        self.claims.retain(|lane, component| {
            let near = touched.contains(component);
            lanes.extend(near.then_some(*lane));
            !near
        });
        for lane in lanes {
            if self.lanes.get(lane).key.is_some() {
                self.wake(fleet, lane);
            }
        }
        had
    }

    /// Records that nodes have more room.
    pub(crate) fn nodes_freed(&mut self, fleet: &Fleet, nodes: &[u32]) {
        for &node in nodes {
            for &part in &fleet.nodes[node as usize].parts {
                let fresh = &mut self.parts[part as usize].fresh;
                fresh.freed.push(node);
                fresh.add(fleet, node);
            }
        }
    }

    /// A reservation leaves more of nodes than before; returns the partitions in which jobs may use that.
    pub(crate) fn relaxed(&mut self, fleet: &Fleet, nodes: Vec<RelaxedHold>) -> BTreeSet<u32> {
        let mut parts = BTreeSet::new();
        for relaxed in nodes {
            // The last partition, mostly the only one, gets the value itself; the others get copies.
            let Some((last, others)) = fleet.nodes[relaxed.node as usize].parts.split_last() else {
                continue;
            };
            for &part in others {
                self.parts[part as usize].relaxed(fleet, relaxed.clone());
                parts.insert(part);
            }
            self.parts[*last as usize].relaxed(fleet, relaxed);
            parts.insert(*last);
        }
        parts
    }

    /// Whether gains of nodes since a lane was blocked may be enough for it, if its job ends at `end` beside `holds`.
    pub(crate) fn is_unblocked(
        &mut self,
        fleet: &Fleet,
        id: u32,
        holds: &Holds,
        end: Timestamp,
    ) -> bool {
        let lane = self.lanes.get_mut(id);
        let (Some(key), Ok(demand)) = (lane.blocked, &lane.demand) else {
            return false;
        };
        let part = &self.parts[lane.part as usize];
        let fresh = &part.fresh;
        match key {
            BlockedKey::Whole(due) => return fresh.whole > 0 && due <= part.gain_whole(),
            BlockedKey::Free(each, due) if due > part.gain() || each > fresh.most => return false,
            BlockedKey::Free(..) => {}
        }
        let room = |node: u32| &fleet.nodes[node as usize].room;
        let looser = fresh.relaxed.iter().filter(|l| l.helps(end, room(l.node)));
        let nodes = fresh.freed.iter().copied().chain(looser.map(|l| l.node));
        let mut held = false;
        for node in nodes.filter(|&node| may_use(demand, fleet, node, room(node))) {
            let here = holds.of(node).iter();
            let mut here = here.filter(|hold| hold.start < end).peekable();
            if here.peek().is_none() {
                return true;
            }
            let mut left = room(node).clone();
            here.for_each(|hold| narrow(&mut left, &hold.spare));
            if may_use(demand, fleet, node, &left) {
                return true;
            }
            held = true;
        }
        if held {
            lane.held = true;
            self.held.insert(id);
        }
        false
    }

    /// Nodes of a partition were added or removed: computes again what can run there.
    pub(crate) fn partition_changed(&mut self, fleet: &Fleet, part: u32) {
        self.touched.insert(fleet.parts[part as usize].component);
        let lanes = self.parts[part as usize].lanes.iter();
        let places = lanes.filter_map(|lane| self.het_of(*lane));
        let judged = places.filter(|place| self.het_fits.contains_key(&place.leader));
        let judged: BTreeMap<JobId, HetPlace> = judged.map(|place| (place.leader, place)).collect();
        for place in judged.into_values() {
            self.het_changed(fleet, place);
        }
        for id in self.parts[part as usize].lanes.clone() {
            let lane = self.lanes.get(id);
            let shape = self.shapes.get(lane.shape);
            let view = &fleet.parts[part as usize];
            let kind = &shape.kind;
            if kind.barred.contains_key(&view.config.name) {
                continue;
            }
            let terms = kind.terms_in(&view.config.name);
            let demand = feasible(&kind.ask, terms, fleet, view, kind.key.clone());
            if demand.as_ref().err() == lane.demand.as_ref().err() {
                continue;
            }
            let first = shape.queue.first().copied();
            self.announce.extend(shape.queue.iter().map(|key| key.job));
            // Removes the old key before the new one is set, which depends on the new demand.
            self.place(fleet, id, None);
            let least_cpus = least_cpus(&demand, fleet);
            self.stamps += 1;
            let lane = self.lanes.get_mut(id);
            lane.demand = demand;
            lane.least_cpus = least_cpus;
            lane.stamp = self.stamps;
            self.place(fleet, id, first);
        }
    }

    /// Records the lane's reason, and whether reservations block it.
    pub(crate) fn set_cause(&mut self, id: u32, cause: Option<Reason>) {
        let lane = self.lanes.get_mut(id);
        if std::mem::replace(&mut lane.cause, cause) != cause {
            let shape = self.shapes.get(lane.shape);
            self.announce.extend(shape.queue.iter().map(|key| key.job));
        }
    }
}

/// The address of a specification: two live specifications at the same address are identical.
fn address(spec: &Arc<JobSpec>) -> u64 {
    Arc::as_ptr(spec).addr() as u64
}
