//! Triggers, the events recorded for them, and programs of triggers that fired. All indexes are kept by each change, so
//! that an event costs as much as it changes, however many triggers there are.

use crate::state::State;
use minicbor::{Decode, Encode};
use muster_model::hostlist;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{JobState, Phase};
use muster_model::node::{Node, NodeLink};
use muster_model::time::Timestamp;
use muster_model::trigger::{TRIGGER_PERIOD_S, Trigger, TriggerEvents, TriggerRun, TriggerRunId};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Triggers and all that belongs to them.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    stored: StoredTriggers,
    index: TriggerIndex,
}

/// The durable part.
#[derive(Clone, Debug, Default, Encode, Decode)]
pub(crate) struct StoredTriggers {
    /// The number that the next trigger gets, less one.
    #[n(0)]
    last: u32,
    #[n(1)]
    all: BTreeMap<u32, Trigger>,
    #[n(2)]
    runs: BTreeMap<TriggerRunId, TriggerRun>,
    #[n(3)]
    recorded: PendingTriggerEvents,
}

/// Events that were not compared with triggers yet.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct PendingTriggerEvents {
    /// When the first of it happened.
    #[n(0)]
    pub since: Timestamp,
    /// To which nodes, by event.
    #[n(1)]
    pub nodes: BTreeMap<TriggerEvents, BTreeSet<NodeIdx>>,
    /// To nodes of which jobs that have triggers.
    #[n(2)]
    pub jobs: BTreeSet<(JobId, TriggerEvents)>,
    /// Events that are about no node.
    #[n(3)]
    pub others: TriggerEvents,
}

impl PendingTriggerEvents {
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.jobs.is_empty() && self.others == TriggerEvents::NONE
    }
}

/// A trigger of a time limit, and when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueTrigger {
    at: Timestamp,
    id: u32,
}

/// A node that is idle, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IdleNode {
    since: Timestamp,
    node: NodeIdx,
}

/// The triggers of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TriggersOfUser {
    /// Number of them, and of programs that were not started.
    pub(crate) count: usize,
    /// Number of those for idle nodes.
    pub(crate) idle: usize,
    /// Names of nodes in them.
    pub(crate) node_names: usize,
    /// Bytes of their texts, and of these programs.
    pub(crate) bytes: usize,
}

impl TriggersOfUser {
    /// One trigger with this number of names of nodes.
    fn one(trigger: &Trigger, node_names: usize) -> TriggersOfUser {
        TriggersOfUser {
            count: 1,
            idle: usize::from(watches_idle(trigger)),
            node_names,
            bytes: trigger.bytes(),
        }
    }

    /// One program that was not started.
    fn one_run(run: &TriggerRun) -> TriggersOfUser {
        TriggersOfUser {
            count: 1,
            bytes: run.bytes(),
            ..TriggersOfUser::default()
        }
    }

    fn add(&mut self, other: TriggersOfUser) {
        self.count += other.count;
        self.idle += other.idle;
        self.node_names += other.node_names;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: TriggersOfUser) {
        self.count -= other.count;
        self.idle -= other.idle;
        self.node_names -= other.node_names;
        self.bytes -= other.bytes;
    }
}

#[derive(Clone, Debug, Default)]
struct TriggerIndex {
    /// Triggers that are about no job and no particular nodes, by event.
    general: BTreeMap<TriggerEvents, BTreeSet<u32>>,
    /// Triggers about particular nodes, by event and node.
    of_node: BTreeMap<TriggerEvents, BTreeMap<String, BTreeSet<u32>>>,
    of_job: BTreeMap<JobId, BTreeSet<u32>>,
    /// Jobs that are over and whose triggers wait for the next comparison.
    ended_jobs: BTreeSet<JobId>,
    /// Triggers of time limits, by when they fire.
    by_time: BTreeSet<DueTrigger>,
    time_of: BTreeMap<u32, Timestamp>,
    idle: BTreeMap<u32, IdleWatch>,
    /// Programs whose time has not come.
    waiting: BTreeSet<(Timestamp, TriggerRunId)>,
    of_user: BTreeMap<u32, TriggersOfUser>,
    /// Programs that were not started, by trigger.
    runs_of: BTreeMap<u32, usize>,
    bytes: usize,
    node_names: usize,
}

/// A trigger for idle nodes.
#[derive(Clone, Debug, Default)]
struct IdleWatch {
    /// Particular nodes.
    names: Option<HashSet<String>>,
    offset_s: u64,
    /// Its nodes that are idle, by the beginning of that time.
    idle: BTreeSet<IdleNode>,
    since: BTreeMap<NodeIdx, Timestamp>,
    /// Not again before this time.
    not_before: Timestamp,
}

impl IdleWatch {
    fn due(&self) -> Option<Timestamp> {
        let first = self.idle.first()?;
        Some(first.since.plus_s(self.offset_s).max(self.not_before))
    }

    fn follow(&mut self, node: &Node, at: Timestamp) {
        let is_meant = |names: &HashSet<String>| names.contains(&node.config.name);
        if !self.names.as_ref().is_none_or(is_meant) {
            return;
        }
        let was = self.since.get(&node.idx).copied();
        match (was, is_idle(node)) {
            (None, true) => {
                self.since.insert(node.idx, at);
                self.idle.insert(IdleNode {
                    since: at,
                    node: node.idx,
                });
            }
            (Some(since), false) => {
                self.since.remove(&node.idx);
                self.idle.remove(&IdleNode {
                    since,
                    node: node.idx,
                });
            }
            (None, false) | (Some(_), true) => {}
        }
    }
}

/// Whether a node has no jobs and could have some.
pub(crate) fn is_idle(node: &Node) -> bool {
    let is_in_service = !node.down && !node.drain && !node.fail && !node.removed;
    is_in_service && node.link == NodeLink::Up && node.power.is_none() && node.jobs.is_empty()
}

/// Names of particular nodes; empty for all.
pub(crate) fn names(trigger: &Trigger, most: usize) -> Option<Vec<String>> {
    match trigger.nodes.as_str() {
        "" => Some(Vec::new()),
        nodes => hostlist::parse_limited(nodes, most).ok(),
    }
}

/// All names of particular nodes; none of a trigger that is about a job.
fn all_names(trigger: &Trigger) -> Vec<String> {
    match trigger.job {
        Some(_) => Vec::new(),
        None => names(trigger, usize::MAX).unwrap_or_default(),
    }
}

/// Whether a trigger is for idle nodes.
pub(crate) fn watches_idle(trigger: &Trigger) -> bool {
    trigger.job.is_none() && trigger.fires_on().meets(TriggerEvents::IDLE)
}

impl Triggers {
    /// All, by number.
    pub fn all(&self) -> &BTreeMap<u32, Trigger> {
        &self.stored.all
    }

    /// Programs of triggers that fired and that were not started yet.
    pub fn runs(&self) -> &BTreeMap<TriggerRunId, TriggerRun> {
        &self.stored.runs
    }

    pub(crate) fn stored(&self) -> &StoredTriggers {
        &self.stored
    }

    /// Events recorded since the last comparison.
    pub fn recorded(&self) -> &PendingTriggerEvents {
        &self.stored.recorded
    }

    /// The number that the next one gets.
    pub(crate) fn next_id(&self) -> u32 {
        self.stored.last.saturating_add(1)
    }

    /// Triggers of a user.
    pub(crate) fn of_user(&self, uid: u32) -> TriggersOfUser {
        self.index.of_user.get(&uid).copied().unwrap_or_default()
    }

    /// Number for all users.
    pub(crate) fn count(&self) -> usize {
        self.stored.all.len() + self.stored.runs.len()
    }

    /// Bytes of all texts.
    pub(crate) fn bytes(&self) -> usize {
        self.index.bytes
    }

    /// Names of nodes in all triggers.
    pub(crate) fn node_names(&self) -> usize {
        self.index.node_names
    }

    /// Triggers for idle nodes.
    pub(crate) fn idle_count(&self) -> usize {
        self.index.idle.len()
    }

    /// Whether a trigger is about this job.
    pub(crate) fn concerns(&self, job: JobId) -> bool {
        self.index.of_job.contains_key(&job)
    }

    /// Whether a trigger is about a job.
    pub(crate) fn concerns_jobs(&self) -> bool {
        !self.index.of_job.is_empty()
    }

    /// Triggers about a job.
    pub(crate) fn of_job(&self, job: JobId) -> impl Iterator<Item = &Trigger> {
        let ids = self.index.of_job.get(&job).into_iter().flatten();
        ids.filter_map(|id| self.stored.all.get(id))
    }

    /// Jobs that are over and have triggers left.
    pub(crate) fn ended_jobs(&self) -> impl Iterator<Item = JobId> {
        self.index.ended_jobs.iter().copied()
    }

    /// Triggers for an event that are about no job and no particular nodes.
    pub(crate) fn general(&self, event: TriggerEvents) -> impl Iterator<Item = &Trigger> {
        let ids = self.index.general.get(&event).into_iter().flatten();
        ids.filter_map(|id| self.stored.all.get(id))
    }

    /// Triggers for an event that name this node.
    pub(crate) fn of_node(
        &self,
        event: TriggerEvents,
        name: &str,
    ) -> impl Iterator<Item = &Trigger> {
        let of_event = self.index.of_node.get(&event);
        let ids = of_event.and_then(|nodes| nodes.get(name));
        let ids = ids.into_iter().flatten();
        ids.filter_map(|id| self.stored.all.get(id))
    }

    /// Triggers for an event that name nodes.
    pub(crate) fn naming(&self, event: TriggerEvents) -> BTreeSet<u32> {
        let of_event = self.index.of_node.get(&event).into_iter();
        of_event
            .flat_map(BTreeMap::values)
            .flatten()
            .copied()
            .collect()
    }

    /// Whether there is a trigger for one of these events.
    pub(crate) fn wants(&self, events: TriggerEvents) -> bool {
        let is_wanted = |event| {
            self.index.general.contains_key(&event) || self.index.of_node.contains_key(&event)
        };
        events.each().any(is_wanted)
    }

    /// Whether a program of this trigger was not started yet.
    pub(crate) fn has_run(&self, trigger: u32) -> bool {
        self.index.runs_of.contains_key(&trigger)
    }

    /// Triggers of time limits that are due. A trigger whose last program was not started yet is not, however long ago its
    /// time was: it fires when that program has been started.
    pub(crate) fn due_by_time(&self, now: Timestamp) -> Vec<u32> {
        let by_time = self.index.by_time.iter();
        let due = by_time.take_while(|due| due.at <= now);
        due.map(|due| due.id)
            .filter(|id| !self.has_run(*id))
            .collect()
    }

    /// Programs whose time has come.
    pub(crate) fn due_runs(&self, now: Timestamp) -> Vec<TriggerRunId> {
        let waiting = self.index.waiting.iter();
        let due = waiting.take_while(|(due, _)| *due <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Triggers for idle nodes that are due, and the nodes; as with time limits, none whose last program was not started.
    pub(crate) fn due_idle(&self, now: Timestamp) -> Vec<(u32, Vec<NodeIdx>)> {
        let due = |watch: &IdleWatch| watch.due().is_some_and(|due| due <= now);
        let watches = self.free_watches().filter(|(_, watch)| due(watch));
        let nodes = |watch: &IdleWatch| {
            let long = watch.idle.iter();
            let long = long.take_while(|idle| idle.since.plus_s(watch.offset_s) <= now);
            long.map(|idle| idle.node).collect()
        };
        watches.map(|(id, watch)| (*id, nodes(watch))).collect()
    }

    /// Triggers for idle nodes, but for those whose last program was not started.
    fn free_watches(&self) -> impl Iterator<Item = (&u32, &IdleWatch)> {
        let watches = self.index.idle.iter();
        watches.filter(|(id, _)| !self.has_run(**id))
    }

    /// Time at which recorded events are compared with triggers.
    pub(crate) fn check_due(&self) -> Option<Timestamp> {
        let recorded = &self.stored.recorded;
        let is_wanted = !self.stored.all.is_empty() && !recorded.is_empty();
        (is_wanted || !self.index.ended_jobs.is_empty()).then(|| end_of_period(recorded.since))
    }

    /// When something is to be decided.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let index = &self.index;
        let mut by_time = index.by_time.iter();
        let times = [
            by_time.find(|due| !self.has_run(due.id)).map(|due| due.at),
            index.waiting.first().map(|(due, _)| *due),
            self.free_watches()
                .filter_map(|(_, watch)| watch.due())
                .min(),
            self.check_due(),
        ];
        times.into_iter().flatten().min()
    }

    /// A trigger is there now. `nodes`, for idle ones, are those of the cluster.
    pub(crate) fn insert(&mut self, trigger: &Trigger, nodes: &[Node], at: Timestamp) {
        forget_old(&mut self.stored, at);
        self.stored.last = self.stored.last.max(trigger.id);
        self.stored.all.insert(trigger.id, trigger.clone());
        self.add_to_index(trigger, nodes, at);
    }

    fn add_to_index(&mut self, trigger: &Trigger, nodes: &[Node], at: Timestamp) {
        let index = &mut self.index;
        let names = all_names(trigger);
        index.bytes += trigger.bytes();
        index.node_names += names.len();
        let of_user = index.of_user.entry(trigger.uid).or_default();
        of_user.add(TriggersOfUser::one(trigger, names.len()));
        if let Some(job) = trigger.job {
            index.of_job.entry(job).or_default().insert(trigger.id);
            return;
        }
        if watches_idle(trigger) {
            let mut watch = IdleWatch {
                names: (!names.is_empty()).then(|| names.iter().cloned().collect()),
                offset_s: u64::try_from(trigger.offset_s).unwrap_or(0),
                not_before: trigger.fired.map_or(Timestamp(0), after_period),
                ..IdleWatch::default()
            };
            for node in nodes {
                watch.follow(node, node.last_busy.unwrap_or(at).min(at));
            }
            index.idle.insert(trigger.id, watch);
        }
        for event in trigger.fires_on().each() {
            if names.is_empty() {
                index.general.entry(event).or_default().insert(trigger.id);
                continue;
            }
            let of_event = index.of_node.entry(event).or_default();
            for name in &names {
                of_event.entry(name.clone()).or_default().insert(trigger.id);
            }
        }
    }

    /// A trigger is gone.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some(trigger) = self.stored.all.remove(&id) else {
            return;
        };
        let index = &mut self.index;
        let names = all_names(&trigger);
        index.bytes -= trigger.bytes();
        index.node_names -= names.len();
        let own = TriggersOfUser::one(&trigger, names.len());
        drop_of_user(&mut index.of_user, trigger.uid, own);
        index.idle.remove(&id);
        if let Some(due) = index.time_of.remove(&id) {
            index.by_time.remove(&DueTrigger { at: due, id });
        }
        if let Some(job) = trigger.job {
            if let Some(ids) = index.of_job.get_mut(&job) {
                ids.remove(&id);
                if ids.is_empty() {
                    index.of_job.remove(&job);
                    index.ended_jobs.remove(&job);
                }
            }
            return;
        }
        for event in trigger.fires_on().each() {
            if names.is_empty() {
                drop_id(&mut index.general, &event, id);
            } else if let Some(of_event) = index.of_node.get_mut(&event) {
                names.iter().for_each(|name| drop_id(of_event, name, id));
                if of_event.is_empty() {
                    index.of_node.remove(&event);
                }
            }
        }
    }

    /// A trigger fires.
    pub(crate) fn fire(&mut self, id: u32, argument: &str, due: Timestamp, at: Timestamp) {
        let Some(trigger) = self.stored.all.get_mut(&id) else {
            return;
        };
        let run = TriggerRun {
            id: TriggerRunId {
                trigger: id,
                fired: at,
            },
            uid: trigger.uid,
            gid: trigger.gid,
            program: trigger.program.clone(),
            argument: argument.to_owned(),
            due,
            begun: due <= at,
        };
        trigger.fired = Some(at);
        let is_permanent = trigger.permanent;
        if let Some(watch) = self.index.idle.get_mut(&id) {
            watch.not_before = after_period(at);
        }
        if let Some(due) = self.index.time_of.remove(&id) {
            self.index.by_time.remove(&DueTrigger { at: due, id });
        }
        if !is_permanent {
            self.remove(id);
        }
        self.count_run(&run);
        self.stored.runs.insert(run.id, run);
    }

    fn count_run(&mut self, run: &TriggerRun) {
        if self.stored.runs.contains_key(&run.id) {
            return;
        }
        let of_user = self.index.of_user.entry(run.uid).or_default();
        of_user.add(TriggersOfUser::one_run(run));
        *self.index.runs_of.entry(run.id.trigger).or_default() += 1;
        if !run.begun {
            self.index.waiting.insert((run.due, run.id));
        }
    }

    /// The time of a program has come.
    pub(crate) fn begin(&mut self, id: TriggerRunId) {
        if let Some(run) = self.stored.runs.get_mut(&id) {
            run.begun = true;
            self.index.waiting.remove(&(run.due, id));
        }
    }

    /// A program was started.
    pub(crate) fn start(&mut self, id: TriggerRunId) {
        if let Some(run) = self.stored.runs.remove(&id) {
            self.index.waiting.remove(&(run.due, id));
            let own = TriggersOfUser::one_run(&run);
            drop_of_user(&mut self.index.of_user, run.uid, own);
            drop_one(&mut self.index.runs_of, id.trigger);
        }
    }

    /// Something happened that is about no node.
    pub(crate) fn record(&mut self, events: TriggerEvents, at: Timestamp) {
        let recorded = self.open_record(at);
        recorded.others = recorded.others.with(events);
    }

    /// Something happened to a node, which has these jobs.
    pub(crate) fn record_node(&mut self, node: &Node, events: TriggerEvents, at: Timestamp) {
        let jobs = node.jobs.iter().filter(|job| self.concerns(**job));
        let jobs: Vec<JobId> = jobs.copied().collect();
        let recorded = self.open_record(at);
        for event in events.each() {
            recorded.nodes.entry(event).or_default().insert(node.idx);
            let of_jobs = jobs.iter().map(|job| (*job, event));
            recorded.jobs.extend(of_jobs);
        }
    }

    fn open_record(&mut self, at: Timestamp) -> &mut PendingTriggerEvents {
        forget_old(&mut self.stored, at);
        let recorded = &mut self.stored.recorded;
        if recorded.is_empty() {
            recorded.since = at;
        }
        recorded
    }

    /// Forgets the recorded events, which were compared with triggers.
    pub(crate) fn checked(&mut self) {
        self.stored.recorded = PendingTriggerEvents::default();
    }

    /// A node came to be idle, or ceased to be.
    pub(crate) fn follow_idle(&mut self, node: &Node, at: Timestamp) {
        for watch in self.index.idle.values_mut() {
            watch.follow(node, at);
        }
    }

    /// The triggers of a job that is no longer known are gone.
    pub(crate) fn purge(&mut self, job: JobId) {
        let ids = self.index.of_job.get(&job).cloned().unwrap_or_default();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// A job has changed: it is over, or its time limit is due at `limit`.
    fn follow_job(&mut self, job: JobId, is_over: bool, limit: Option<(Timestamp, Timestamp)>) {
        if is_over {
            self.index.ended_jobs.insert(job);
        } else {
            self.index.ended_jobs.remove(&job);
        }
        let ids = self.index.of_job.get(&job).cloned().unwrap_or_default();
        for id in ids {
            let Some(trigger) = self.stored.all.get(&id) else {
                continue;
            };
            let due = limit.filter(|(start, _)| {
                let has_fired = trigger.fired.is_some_and(|fired| fired >= *start);
                trigger.events.meets(TriggerEvents::TIME) && !has_fired
            });
            let due = due.map(|(_, limit)| after(limit, trigger.offset_s));
            let index = &mut self.index;
            let before = match due {
                Some(due) => index.time_of.insert(id, due),
                None => index.time_of.remove(&id),
            };
            if let Some(before) = before {
                index.by_time.remove(&DueTrigger { at: before, id });
            }
            index.by_time.extend(due.map(|at| DueTrigger { at, id }));
        }
    }
}

/// Brings the triggers of a job up to date with it.
pub(crate) fn follow_job(state: &mut State, id: JobId) {
    let Some(job) = state.jobs.get(&id) else {
        state.triggers.purge(id);
        return;
    };
    let is_over = matches!(job.phase(), Phase::Ended | Phase::Gone);
    let runs = job.state == JobState::Running && !job.completing && job.power_up.is_none();
    let limit = job.time_limit_end().filter(|_| runs);
    let limit = job.start_time.zip(limit);
    state.triggers.follow_job(id, is_over, limit);
}

/// Takes the triggers of a snapshot.
pub(crate) fn restore(state: &mut State, stored: StoredTriggers) {
    let mut triggers = Triggers::default();
    for trigger in stored.all.values() {
        // Nodes are idle since a job was there.
        triggers.add_to_index(trigger, &state.nodes, Timestamp(i64::MAX));
    }
    for run in stored.runs.values() {
        triggers.count_run(run);
    }
    triggers.stored = stored;
    let jobs: Vec<JobId> = triggers.index.of_job.keys().copied().collect();
    state.triggers = triggers;
    jobs.into_iter().for_each(|job| follow_job(state, job));
}

/// Forgets events recorded in an earlier period, when there was no trigger: they are none for later ones.
fn forget_old(stored: &mut StoredTriggers, at: Timestamp) {
    if stored.all.is_empty() && end_of_period(stored.recorded.since) <= at {
        stored.recorded = PendingTriggerEvents::default();
    }
}

/// When the period ends in which that was.
fn end_of_period(at: Timestamp) -> Timestamp {
    let period = i64::try_from(TRIGGER_PERIOD_S).unwrap_or(1) * 1000;
    Timestamp((at.0.div_euclid(period) + 1).saturating_mul(period))
}

fn after_period(at: Timestamp) -> Timestamp {
    at.plus_s(TRIGGER_PERIOD_S)
}

/// That many seconds later, or earlier.
pub(crate) fn after(at: Timestamp, offset_s: i32) -> Timestamp {
    Timestamp(at.0.saturating_add(i64::from(offset_s) * 1000).max(0))
}

fn drop_of_user(users: &mut BTreeMap<u32, TriggersOfUser>, uid: u32, own: TriggersOfUser) {
    if let Some(of_user) = users.get_mut(&uid) {
        of_user.subtract(own);
        if *of_user == TriggersOfUser::default() {
            users.remove(&uid);
        }
    }
}

fn drop_one(counts: &mut BTreeMap<u32, usize>, key: u32) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

fn drop_id<K: Ord>(map: &mut BTreeMap<K, BTreeSet<u32>>, key: &K, id: u32) {
    if let Some(ids) = map.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            map.remove(key);
        }
    }
}
