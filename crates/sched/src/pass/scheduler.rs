//! The scheduler's entry points: following events, preparing a pass.

use crate::backfill::together::{JOINT_NODES_MAX, JointCost};
use crate::nodes::fleet::{Fleet, NodeView};
use crate::nodes::node_map::NumberMap;
use crate::nodes::planned::PlannedEnds;
use crate::nodes::reserved::waiting_for;
use crate::pass::het::{HetTurns, LastJoint};
use crate::pass::noted::Noted;
use crate::pass::preempt::PreemptableJobs;
use crate::pass::reservations::LaneOutlook;
use crate::pass::starts::array_budget;
use crate::pass::trial;
use crate::pass::{Lists, Pass};
use crate::place::holds::Holds;
use crate::queue::Queue;
use crate::queue::feasibility_cache::LastFeasible;
use muster_core::event::{Event, JobChange, NodeChange};
use muster_core::state::State;
use muster_model::account_limits::Scope;
use muster_model::command::Plan;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job, Reason};
use muster_model::refusal::Refusal;
use muster_model::spec::{JobSpec, Sharing};
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Number of node changes that are stored; a reader that missed more starts again from all nodes.
const CHANGES_KEPT: usize = 10_000;

/// Maximum number of nodes looked at to find out whether a job starts now. The
/// controller waits for the answer, as for a pass.
const IMMEDIATE_NODES_MAX: u64 = JOINT_NODES_MAX / 4;

/// Seconds between tries of lanes that usage limits block; such limits count in minutes.
const USE_LOOKED_AT_S: u64 = 60;

/// The cost of the last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of shapes (in a partition) for which a placement was tried; once per start and once
    /// per failure.
    pub shapes_visited: u64,
    /// Number of shapes that were only compared with the gains of nodes.
    pub shapes_compared: u64,
    /// Number of nodes whose room was looked at for a placement.
    pub nodes_visited: u64,
    /// Number of jobs that were queued, moved or considered.
    pub jobs_visited: u64,
    /// Number of placements that were begun, and of alternatives of licenses and limits that were
    /// compared before nodes were looked at.
    pub checks: u64,
    /// Number of comparisons of needs with sockets of a node, and of steps that distribute devices
    /// over sockets.
    pub socket_tries: u64,
    /// Number of placements tried for components of heterogeneous jobs.
    pub het_placements: u64,
    /// Number of nodes looked at to find the earliest time of heterogeneous jobs.
    pub het_nodes: u64,
    /// Number of nodes looked at to start heterogeneous jobs at once, and to check whether they
    /// could ever start.
    pub het_tried_nodes: u64,
    /// Number of nodes looked at to find the earliest time of other jobs.
    pub later_nodes: u64,
    /// Number of nodes looked at to make reservations anew before jobs make room.
    pub anew_nodes: u64,
    /// Number of nodes, and of what jobs leave on them, that were looked at to choose jobs to preempt.
    pub victim_nodes: u64,
    /// The part of these that was looked at for room that was refused.
    pub refused_nodes: u64,
}

impl Cost {
    /// The cost that counts towards the limit of a pass.
    pub(crate) fn nodes_and_tries(&self) -> u64 {
        self.nodes_visited + self.socket_tries
    }

    pub(crate) fn count_joint(&mut self, cost: JointCost) {
        self.het_placements += cost.placements;
        self.het_nodes += cost.nodes;
    }
}

/// A part of a node that the last pass holds for a waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldNode {
    /// The waiting job; for a heterogeneous job, its first waiting component.
    pub job: JobId,
    /// The node, by its index in the state.
    pub node: u32,
    /// Start of the hold.
    pub start: Timestamp,
    /// The latest end of the hold.
    pub end: Timestamp,
    /// CPUs.
    pub cpus: u32,
    /// MiB of memory, where memory is consumable.
    pub mib: u64,
}

/// Waiting jobs and free room, updated by events.
#[derive(Debug, Default)]
pub struct Scheduler {
    pub(crate) fleet: Fleet,
    pub(crate) queue: Queue,
    pub(crate) dirty_nodes: Noted<u32>,
    /// Jobs that are being cleaned up and end soon.
    pub(crate) completing: BTreeSet<JobId>,
    /// Allocations whose size or expected end may have changed: job, node.
    dirty_shares: Noted<(JobId, u32)>,
    dirty_jobs: Noted<JobId>,
    /// Expected ends of running jobs, if run times are predicted.
    pub(crate) planned: PlannedEnds,
    /// Running jobs that may be preempted.
    pub(crate) preemptable: PreemptableJobs,
    /// Jobs that the last plan starts, or whose wait for switches it begins. A job for which that
    /// was not committed is tried again, or gets a reason.
    pub(crate) proposed: BTreeSet<JobId>,
    /// Records that wait for their array's `%limit`, by array.
    throttled: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Jobs that became preemptable, or that leave and are counted on by preempting jobs.
    opened: BTreeSet<JobId>,
    /// Times at which jobs give up their limit on leaf switches.
    relents: BTreeSet<(Timestamp, JobId)>,
    /// When and where the first waiting job of a partition will fit, by partition.
    pub(crate) outlooks: NumberMap<u32, LaneOutlook>,
    /// Buffer for the reservations of a pass; empty between passes.
    pub(crate) holds: Holds,
    /// Buffer for the lists of a pass; empty between passes.
    pub(crate) lists: Lists,
    rebuild: bool,
    pub(crate) het_turns: HetTurns,
    /// The last heterogeneous job for which nodes were held.
    pub(crate) last_joint: Option<LastJoint>,
    /// The last feasible submission.
    pub(crate) last_feasible: LastFeasible,
    /// Limits whose use has decreased since the last pass.
    freed_scopes: BTreeSet<Scope>,
    /// Lanes blocked by usage limits, which may unblock with time; and the time of the next try.
    pub(crate) limited_by_use: BTreeSet<u32>,
    use_looked_at: Option<Timestamp>,
    /// Licenses were returned since the last pass.
    licenses_freed: bool,
    /// Priorities were computed since the last pass.
    reranked: bool,
    pub(crate) more: bool,
    pub(crate) cost: Cost,
    /// Indexes of the partitions that the last pass looked at.
    pub(crate) evaluated: Vec<u32>,
}

/// Whether a record may be queued now.
enum Eligibility {
    Now,
    /// The array's limit is reached.
    Throttled(JobId),
    No,
}

impl Scheduler {
    /// Reads the whole state; O(jobs + nodes).
    pub fn new(state: &State) -> Scheduler {
        let mut fleet = Fleet::new(state);
        let completing = |id: &&JobId| state.jobs.get(id).is_some_and(|j| j.completing);
        let planned = PlannedEnds::new(state);
        fleet.settle(state, &planned);
        Scheduler {
            queue: Queue::new(state, &fleet),
            fleet,
            dirty_jobs: state.pending.iter().copied().collect(),
            planned,
            preemptable: PreemptableJobs::new(state),
            completing: state.active.iter().filter(completing).copied().collect(),
            ..Scheduler::default()
        }
    }

    /// Whether all nodes and partitions have to be read again.
    pub(crate) fn is_stale(&self, state: &State) -> bool {
        self.rebuild || self.fleet.nodes.len() != state.nodes.len()
    }

    /// Records the changes of an event. To be called after each applied event, with the state after
    /// it.
    pub fn observe(&mut self, state: &State, event: &Event) {
        match event {
            Event::Configured { .. }
            | Event::NodesCreated { .. }
            | Event::NodesDeleted { .. }
            | Event::PartitionChanged { .. }
            | Event::PartitionRemoved { .. }
            | Event::ReservationSet { .. }
            | Event::ReservationGone { .. }
            | Event::CrontabSet { .. }
            | Event::AccountsChanged { .. } => self.rebuild = true,
            Event::TriggersChanged { .. } => {}
            Event::PrioritiesCalculated { .. } => self.reranked = true,
            Event::ReservationStarted { name, .. } => self.reservation_opened(state, name),
            Event::JobSubmitted { id, .. } | Event::JobRequeued { id, .. } => {
                self.completing.remove(id);
                self.follow_requested_nodes(state, *id);
                self.job(state, *id);
            }
            Event::TaskSplit { base, id, .. } => {
                self.dirty_jobs.insert(*base);
                self.dirty_jobs.insert(*id);
            }
            Event::JobChanged { id, change, .. } => self.job_changed(state, *id, change),
            Event::JobStarted { id, .. }
            | Event::JobSuspended { id, .. }
            | Event::JobResumed { id, .. } => {
                if matches!(event, Event::JobResumed { .. }) && state.preemption().is_some() {
                    // The resumed job took its resources back at once; a job of higher rank may
                    // have to preempt it now.
                    self.opened.insert(*id);
                }
                self.job(state, *id);
                self.nodes_of(state, *id);
                self.retimed(state, *id);
            }
            Event::JobEnding { id, .. } => {
                self.job(state, *id);
                self.follow_licenses(state, *id);
                self.follow_limits(state, *id);
                // Its resources become free at another time than assumed.
                self.retimed(state, *id);
                if state.jobs.get(id).is_some_and(|j| j.completing) {
                    self.completing.insert(*id);
                    if state.preemption().is_some() {
                        // With its resources, fewer other jobs need to be preempted.
                        self.opened.insert(*id);
                        self.nodes_of(state, *id);
                    }
                } else {
                    self.nodes_of(state, *id);
                }
            }
            Event::NodeReleased { id, position, .. } => {
                let job = state.jobs.get(id);
                let alloc = job.and_then(|j| j.alloc.as_ref());
                self.licenses_freed |= alloc.is_some_and(|a| !a.licenses.is_empty());
                if let Some(share) = alloc.and_then(|a| a.nodes.get(*position as usize)) {
                    self.dirty_nodes.insert(share.node.0);
                    self.dirty_shares.insert((*id, share.node.0));
                }
                // While an ended job's nodes are being cleaned up, nothing else about the job
                // changes.
                if job.is_none_or(|j| !j.completing) {
                    self.completing.remove(id);
                    self.job(state, *id);
                }
            }
            Event::JobsPurged { ids } => {
                for id in ids {
                    self.completing.remove(id);
                    if self.queue.jobs.contains_key(id) {
                        self.dirty_jobs.insert(*id);
                    }
                }
            }
            Event::NodeRegistered { node, .. } => {
                self.rebuild |= self.fleet.is_another(state, node.0);
                self.dirty_nodes.insert(node.0);
            }
            Event::NodeChanged { node, change, .. } => match change {
                NodeChange::Weight(_) | NodeChange::Features(_) => self.rebuild = true,
                // Nodes in power saving come last in the order.
                NodeChange::Power(_) | NodeChange::ResumeFailed => self.rebuild = true,
                NodeChange::LinkLost
                | NodeChange::Down(_)
                | NodeChange::Drain(_)
                | NodeChange::Fail(_)
                | NodeChange::Resume
                | NodeChange::Undrain
                | NodeChange::Returned
                | NodeChange::Future
                | NodeChange::Reboot(_)
                | NodeChange::LaunchFailed(_) => {
                    self.dirty_nodes.insert(node.0);
                }
                NodeChange::Reason(_)
                | NodeChange::Health { .. }
                | NodeChange::Comment(_)
                | NodeChange::Taken(_)
                | NodeChange::CpuBind(_) => {}
            },
            Event::BlobStored { .. } | Event::StepStarted { .. } | Event::StepEnded { .. } => {}
        }
    }

    /// Works out what to start now. Proposals that are not committed are proposed again by the next plan.
    pub fn plan(&mut self, state: &State, now: Timestamp) -> Plan {
        if self.is_stale(state) {
            // The turns survive a full read, because a job that has had its turn waits for the
            // others in any case.
            let het_turns = std::mem::take(&mut self.het_turns);
            *self = Scheduler::new(state);
            self.het_turns = het_turns;
        }
        self.fleet.now = now;
        self.cost = Cost::default();
        self.more = false;
        for id in self.planned.correct(state, now) {
            self.retimed(state, id);
        }
        for id in self.preemptable.now_open(now) {
            self.nodes_of(state, id);
            self.opened.insert(id);
        }
        self.prepare(state);
        while let Some(&(at, id)) = self.relents.first()
            && at <= now
        {
            self.relents.pop_first();
            self.queue.wake_job(&self.fleet, id);
        }
        if self.use_looked_at.is_some_and(|at| at <= now) {
            self.use_looked_at = None;
            for lane in std::mem::take(&mut self.limited_by_use) {
                self.queue.wake_lane(&self.fleet, lane);
            }
        }
        let plan = Pass::new(self, state, now).run();
        if !self.limited_by_use.is_empty() && self.use_looked_at.is_none() {
            self.use_looked_at = Some(now.plus_s(USE_LOOKED_AT_S));
        }
        plan
    }

    /// The time at which a plan should be made even if nothing happens until then.
    pub fn next_look(&self) -> Option<Timestamp> {
        let relents = self.relents.first().map(|(at, _)| *at);
        let others = self
            .preemptable
            .next_open()
            .into_iter()
            .chain(self.use_looked_at);
        relents.into_iter().chain(others).min()
    }

    /// Whether another plan should follow at once: the last one reached its work limit, or it
    /// started a job for which it had first blocked other jobs.
    pub fn needs_another_plan(&self) -> bool {
        self.more
    }

    /// Indexes of the partitions whose waiting jobs the last pass looked at.
    pub fn evaluated(&self) -> &[u32] {
        &self.evaluated
    }

    /// The cost of the last pass.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The reservation of each partition's first waiting job.
    pub fn held_nodes(&self) -> Vec<HeldNode> {
        let reservations = self.queue.parts.iter().flat_map(|part| &part.reservation);
        let parts = reservations.flat_map(|reservation| {
            reservation.holds.iter().map(|hold| HeldNode {
                job: reservation.key.job,
                node: hold.node,
                start: hold.start,
                end: hold.end,
                cpus: hold.needs.cpus,
                mib: hold.needs.mib,
            })
        });
        parts.collect()
    }

    /// Number of waiting shapes, each counted once per partition.
    pub fn lanes(&self) -> usize {
        self.queue.lane_count()
    }

    /// Number of waiting shapes.
    pub fn shapes(&self) -> usize {
        self.queue.shape_count()
    }

    /// Whether a job would start now if it were the first in line, for `--immediate`.
    ///
    /// # Errors
    /// The reason why it would not.
    pub fn starts_now(&self, state: &State, spec: &JobSpec, now: Timestamp) -> Result<(), Refusal> {
        trial::starts_now(state, spec, now, IMMEDIATE_NODES_MAX)
    }

    /// As above, for all components of a heterogeneous job.
    ///
    /// # Errors
    /// The reason why they would not.
    pub fn start_together_now(
        &self,
        state: &State,
        specs: &[JobSpec],
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let question = trial::TrialGoal::Now;
        trial::would_start_together(state, specs, now, question, IMMEDIATE_NODES_MAX).map(|_| ())
    }

    fn job(&mut self, state: &State, id: JobId) {
        self.dirty_jobs.insert(id);
        self.planned.follow(state, id);
        self.preemptable.follow(state, id);
        if let Some(ArrayRole::Task { base, .. }) = state.jobs.get(&id).map(|j| &j.array)
            && self.throttled.contains_key(base)
        {
            self.dirty_jobs.insert(*base);
        }
    }

    fn job_changed(&mut self, state: &State, id: JobId, change: &JobChange) {
        match change {
            JobChange::Spec(_) | JobChange::SpecOf(_) | JobChange::TimeLimit(_) => {
                self.follow_requested_nodes(state, id);
                self.job(state, id);
                self.retimed(state, id);
            }
            JobChange::Hold { .. }
            | JobChange::Priority(_)
            | JobChange::WaitingOn { .. }
            | JobChange::DependenciesDecided { .. }
            | JobChange::Eligible
            | JobChange::Accrues(_)
            | JobChange::NotBefore(_) => self.job(state, id),
            JobChange::ReservationGone { .. } => self.job(state, id),
            JobChange::EndBy(_) | JobChange::NodesUp => self.retimed(state, id),
            JobChange::Resized(_) => {
                self.job(state, id);
                self.nodes_of(state, id);
                self.follow_limits(state, id);
                self.retimed(state, id);
            }
            JobChange::Preempted(_) => {
                self.job(state, id);
                self.opened.insert(id);
                self.nodes_of(state, id);
                self.retimed(state, id);
            }
            JobChange::SwitchWait => {
                self.job(state, id);
                if let Some(job) = state.jobs.get(&id) {
                    self.follow_switch_wait(job);
                }
            }
            JobChange::TurnDue(_)
            | JobChange::Requeueable(_)
            | JobChange::Warned
            | JobChange::TermSent
            | JobChange::SpecialExit(_)
            | JobChange::Detail(_)
            | JobChange::StepLimit { .. }
            | JobChange::Waking(_)
            | JobChange::Ready => {}
        }
    }

    /// Records that a job does not count towards limits any more.
    fn follow_limits(&mut self, state: &State, id: JobId) {
        if let Some(job) = state.jobs.get(&id).filter(|_| state.keeps_limits()) {
            let scopes = state.scopes_of(job, &job.partition);
            self.freed_scopes.extend(scopes);
        }
    }

    /// Records that a job returns licenses, or will soon.
    fn follow_licenses(&mut self, state: &State, id: JobId) {
        let alloc = state.jobs.get(&id).and_then(|job| job.alloc.as_ref());
        self.licenses_freed |= alloc.is_some_and(|a| !a.licenses.is_empty());
    }

    /// Reads users of nodes again when the first job requires nodes exclusively for its user.
    fn follow_requested_nodes(&mut self, state: &State, id: JobId) {
        let job = state.jobs.get(&id);
        let wants = job.is_some_and(|j| j.spec.ask.sharing == Sharing::ExclusiveUser);
        self.rebuild |= wants && !self.fleet.by_user;
    }

    /// Queues the jobs of a reservation whose time has begun.
    fn reservation_opened(&mut self, state: &State, name: &str) {
        for part in &mut self.fleet.parts {
            if let Some(own) = &mut part.own
                && self.fleet.blocks.all[own.at as usize].record.name == name
            {
                (own.open, part.changed) = (true, true);
            }
        }
        self.dirty_jobs.extend(waiting_for(state, name));
    }

    fn nodes_of(&mut self, state: &State, id: JobId) {
        if let Some(alloc) = state.jobs.get(&id).and_then(|j| j.alloc.as_ref()) {
            self.dirty_nodes
                .extend(alloc.nodes.iter().map(|share| share.node.0));
        }
    }

    /// Records that a running job will release its nodes at another time: dependent reservations
    /// are computed again.
    fn retimed(&mut self, state: &State, id: JobId) {
        let Some(alloc) = state.jobs.get(&id).and_then(|j| j.alloc.as_ref()) else {
            return;
        };
        let mut last = None;
        for share in &alloc.nodes {
            let Some(view) = self.fleet.nodes.get(share.node.0 as usize) else {
                continue;
            };
            self.dirty_shares.insert((id, share.node.0));
            touch(&mut self.queue, &self.fleet, view, &mut last);
        }
    }

    /// Updates queue and nodes from the state.
    fn prepare(&mut self, state: &State) {
        let proposed = std::mem::take(&mut self.proposed);
        self.dirty_jobs.extend(proposed.iter().copied());
        let mut freed = Vec::new();
        self.fleet.changes.trim(CHANGES_KEPT);
        let shares = self.dirty_shares.take();
        for of_job in shares.chunk_by(|a, b| a.0 == b.0) {
            let nodes: Vec<u32> = of_job.iter().map(|(_, node)| *node).collect();
            self.fleet
                .set_allocation(state, &self.planned, of_job[0].0, &nodes);
        }
        self.dirty_shares.give_back(shares);
        let nodes = self.dirty_nodes.take();
        for &node in &nodes {
            let held = &state.nodes[node as usize].jobs;
            let opened = held.iter().any(|id| self.opened.contains(id));
            if self.fleet.sync(state, node) || opened {
                freed.push(node);
            }
        }
        self.dirty_nodes.give_back(nodes);
        for part in 0..self.fleet.parts.len() {
            if std::mem::take(&mut self.fleet.parts[part].changed) {
                let part = u32::try_from(part).expect("fewer than 2^32 partitions");
                self.queue.partition_changed(&self.fleet, part);
            }
        }
        let jobs = self.dirty_jobs.take();
        for &id in &jobs {
            self.refresh(state, id);
        }
        self.dirty_jobs.give_back(jobs);
        let freed_scopes = std::mem::take(&mut self.freed_scopes);
        if !freed_scopes.is_empty() {
            self.queue.use_fell(&self.fleet, &freed_scopes);
        }
        if std::mem::take(&mut self.licenses_freed) {
            self.queue.licenses_freed(&self.fleet);
        }
        if std::mem::take(&mut self.reranked) {
            self.queue.reranked(state, &self.fleet);
        }
        for id in proposed {
            self.queue.wake_job(&self.fleet, id);
        }
        self.opened.clear();
        let mut last = None;
        for &node in &freed {
            let view = &self.fleet.nodes[node as usize];
            touch(&mut self.queue, &self.fleet, view, &mut last);
        }
        self.queue.nodes_freed(&self.fleet, &freed);
    }

    /// Records the time at which a queued job gives up its limit on leaf switches.
    fn follow_switch_wait(&mut self, job: &Job) {
        let since = job.switch_wait_since;
        let at = since.and_then(|since| self.queue.relents_at(job.id, since));
        self.relents.extend(at.map(|at| (at, job.id)));
    }

    fn refresh(&mut self, state: &State, id: JobId) {
        self.cost.jobs_visited += 1;
        // When a task of an array ends, other tasks of that array may start.
        let waiting = self.throttled.remove(&id).unwrap_or_default();
        for other in waiting.into_iter().filter(|other| *other != id) {
            self.refresh_one(state, other);
        }
        self.refresh_one(state, id);
    }

    fn refresh_one(&mut self, state: &State, id: JobId) {
        let Some(job) = state.jobs.get(&id) else {
            return self.queue.remove(&self.fleet, id);
        };
        match eligibility(state, job) {
            Eligibility::Now => {
                self.queue.put(state, &self.fleet, job);
                self.queue.announce.insert(id);
                self.follow_switch_wait(job);
                return;
            }
            Eligibility::Throttled(base) => {
                self.throttled.entry(base).or_default().insert(id);
                self.queue.refused.insert(id, Reason::JobArrayTaskLimit);
            }
            Eligibility::No => {}
        }
        self.queue.remove(&self.fleet, id);
    }
}

/// Records a change of a node. Nodes in sequence mostly belong to one component: `last` is the
/// component of the previous node.
fn touch(queue: &mut Queue, fleet: &Fleet, view: &NodeView, last: &mut Option<u32>) {
    for &part in &view.parts {
        let component = fleet.parts[part as usize].component;
        if last.replace(component) != Some(component) {
            queue.touched.insert(component);
        }
    }
}

fn eligibility(state: &State, job: &Job) -> Eligibility {
    if !job.is_startable() || job.priority == 0 {
        return Eligibility::No;
    }
    if let Some((base, left)) = array_budget(state, job)
        && left == 0
    {
        return Eligibility::Throttled(base);
    }
    Eligibility::Now
}
