//! The state as the events of one decision leave it. A decision may need many events that depend on each other (a
//! plan that fills a node with several jobs, a cancellation that resolves dependencies); each is applied here to
//! copies of the few records that it touches, with the very code that `apply` uses.

mod budget;
mod copies;
#[cfg(test)]
mod tests;

pub(super) use self::budget::EventBounds;
use self::budget::EventBudget;
use self::copies::{DraftedJobs, Nodes, ShareChange, Use};
use super::Decision;
use crate::apply;
use crate::event::{AccountsChange, Event, JobChange};
use crate::index::Counts;
use crate::policy::limits::amounts;
use crate::state::limit_use::CurrentUse;
use crate::state::{DisplayUpdate, LicenseSource, LicenseUse, Scale, State};
use muster_model::account_limits::Scope;
use muster_model::command::Reply;
use muster_model::cron::Crontab;
use muster_model::effect::Effect;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::index_set::IndexSet;
use muster_model::job::{Allocation, ArrayRole, Job, MILLION, Phase};
use muster_model::licenses::LicenseCount;
use muster_model::node::Node;
use muster_model::refusal::Refusal;
use muster_model::spec::{DependencyTerm, JobSpec};
use muster_model::time::Timestamp;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state and the events that were decided on it so far.
pub(super) struct Draft<'a> {
    /// The state before the decision.
    pub(super) state: &'a State,
    /// The time of the decision.
    pub(super) now: Timestamp,
    /// Decided so far, by [`Draft::emit`] alone.
    pub(super) events: Vec<Event>,
    /// The bytes that may still be written, where they have bounds.
    budget: Option<EventBudget>,
    /// See [`Draft::looked_at`].
    looked_at: Cell<u64>,
    effects: Vec<Effect>,
    notes: Vec<DisplayUpdate>,
    next_job_id: u64,
    /// Records and nodes that changed.
    jobs: DraftedJobs,
    nodes: Nodes,
    /// A job was stopped.
    stops: bool,
    counts: BTreeMap<JobId, Counts>,
    /// Tasks that left an array whose record was not copied: the array's indices are not copied for each start.
    left: BTreeMap<JobId, Left>,
    tasks: BTreeMap<(JobId, u32), JobId>,
    /// Records that started or came to their end: others may wait for that.
    pub(super) changed: BTreeSet<JobId>,
    /// Records that came by this draft and wait for others, by the jobs that they wait for.
    pub(super) new_dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Use of limits by the starts of this draft.
    pub(super) limits: BTreeMap<Scope, CurrentUse>,
    /// Licenses that starts of this draft take, by name and where they come from.
    pub(super) licenses: LicenseUse,
    /// Nodes that were powered down.
    pub(super) powered_down: u32,
    /// Nodes that were powered up.
    pub(super) powered_up: u32,
    /// Reservations that were changed.
    pub(super) reservations: BTreeSet<String>,
    /// Bytes of programs of each user's triggers that fired.
    pub(super) fired_bytes: BTreeMap<u32, usize>,
    /// Partitions whose calendars were asked, and whether they stop jobs now.
    pub(super) calendars: BTreeMap<String, bool>,
    /// Crontabs that were changed.
    crontabs: BTreeMap<u32, Option<Crontab>>,
    /// Owners and names whose first record may have changed, for `singleton`.
    pub(super) touched_names: BTreeSet<(u32, String)>,
}

/// Tasks that left an array's record in this draft.
#[derive(Default)]
struct Left {
    indices: BTreeSet<u32>,
    /// Every index of the record below this one has left: tasks start from the lowest on.
    next: u32,
}

impl<'a> Draft<'a> {
    /// Nothing decided yet.
    pub(super) fn new(state: &'a State, now: Timestamp) -> Draft<'a> {
        Draft {
            state,
            now,
            events: Vec::new(),
            budget: None,
            looked_at: Cell::new(0),
            effects: Vec::new(),
            notes: Vec::new(),
            next_job_id: state.next_job_id,
            jobs: DraftedJobs::default(),
            nodes: Nodes::default(),
            stops: false,
            counts: BTreeMap::new(),
            left: BTreeMap::new(),
            tasks: BTreeMap::new(),
            changed: BTreeSet::new(),
            new_dependents: BTreeMap::new(),
            touched_names: BTreeSet::new(),
            reservations: BTreeSet::new(),
            fired_bytes: BTreeMap::new(),
            calendars: BTreeMap::new(),
            crontabs: BTreeMap::new(),
            licenses: LicenseUse::new(),
            limits: BTreeMap::new(),
            powered_down: 0,
            powered_up: 0,
        }
    }

    /// The scale of priorities, if they are worked out.
    pub(super) fn scale(&self) -> Option<&'a Scale> {
        self.state.scale.as_ref()
    }

    /// Bounds the events that are written from now on: see [`Draft::end_bounds`].
    pub(super) fn begin_bounds(&mut self, bounds: EventBounds) {
        let nodes = self.state.nodes.len() as u64;
        let records = self.state.queue_size.total().saturating_add(nodes);
        self.budget = Some(EventBudget::new(bounds, records));
    }

    /// Whether the decision is refused since it has too many events. Events are not kept any more: the caller may stop.
    pub(super) fn is_full(&self) -> bool {
        self.budget.as_ref().is_some_and(EventBudget::is_spent)
    }

    /// Refuses what went beyond the bounds; what follows from the decision has none.
    pub(super) fn end_bounds(&mut self) -> Result<(), Refusal> {
        self.budget.take().map_or(Ok(()), |budget| budget.check())
    }

    /// Number of items looked at to find a command's targets: ranges and records of tasks, jobs that others wait for.
    pub(super) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }

    /// Counts records that were looked at.
    pub(super) fn look_at(&self, count: usize) {
        self.looked_at.set(self.looked_at.get() + count as u64);
    }

    /// Hands the decision over.
    pub(super) fn into_decision(self, reply: Option<Reply>) -> Decision {
        Decision {
            events: self.events,
            effects: self.effects,
            reply,
            notes: self.notes,
        }
    }

    /// A record as it is now. Of an array's record only [`Draft::pending_indices`] knows the indices.
    pub(super) fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id, self.state)
    }

    /// A node as it is now.
    pub(super) fn node(&self, idx: NodeIdx) -> Option<&Node> {
        self.nodes.get(idx, self.state)
    }

    /// A node of which all is as it is now but what jobs have there.
    pub(super) fn node_but_for_jobs(&self, idx: NodeIdx) -> Option<&Node> {
        self.nodes.but_for_jobs(idx, self.state)
    }

    /// Whether a job may be stopped on a node.
    pub(super) fn may_have_stopped(&self, idx: NodeIdx) -> bool {
        let state = self.state;
        let here = || state.node(idx).is_some_and(|node| node.stopped > 0);
        self.stops || !state.by_turn.is_empty() || here()
    }

    /// Whether a job that gave a part of its allocation back holds others, and nothing else of it has changed.
    pub(super) fn only_released(&self, id: JobId) -> bool {
        self.jobs.only_released(id)
    }

    /// Whether nothing of any node has changed.
    pub(super) fn touched_no_node(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number that the next job or task gets.
    pub(super) fn next_job_id(&self) -> JobId {
        JobId(self.next_job_id)
    }

    /// A user's crontab as it is now.
    pub(super) fn crontab(&self, uid: u32) -> Option<&Crontab> {
        match self.crontabs.get(&uid) {
            Some(changed) => changed.as_ref(),
            None => self.state.crontabs.get(&uid),
        }
    }

    /// The counts of an array's tasks, as of now.
    pub(super) fn counts(&self, base: JobId) -> Option<Counts> {
        self.counts
            .get(&base)
            .copied()
            .or_else(|| self.state.arrays.get(&base).map(Counts::of_array))
    }

    /// The record of a task that left its array.
    pub(super) fn task_record(&self, base: JobId, index: u32) -> Option<JobId> {
        self.tasks.get(&(base, index)).copied().or_else(|| {
            let info = self.state.arrays.get(&base)?;
            info.tasks.get(&index).copied()
        })
    }

    /// All records of tasks that left an array, by index.
    pub(super) fn task_records(&self, base: JobId) -> Vec<(u32, JobId)> {
        let known = self.state.arrays.get(&base).map(|info| &info.tasks);
        let mut all: BTreeMap<u32, JobId> = known.cloned().unwrap_or_default();
        let new = self.tasks.range((base, 0)..=(base, u32::MAX));
        all.extend(new.map(|((_, index), id)| (*index, *id)));
        all.into_iter().collect()
    }

    /// Whether a task is still in its array's record.
    pub(super) fn is_in_record(&self, base: JobId, index: u32) -> bool {
        self.record_indices(base).is_some_and(|(indices, left)| {
            indices.contains(index) && !left.is_some_and(|l| l.indices.contains(&index))
        })
    }

    /// The lowest index of an array's record.
    pub(super) fn first_in_record(&self, base: JobId) -> Option<u32> {
        let (indices, left) = self.record_indices(base)?;
        let Some(left) = left else {
            return indices.first();
        };
        let mut at = indices.first_from(left.next)?;
        while left.indices.contains(&at) {
            self.look_at(1);
            at = indices.first_from(at.checked_add(1)?)?;
        }
        Some(at)
    }

    /// The indices of an array's record; `None` if `base` has none.
    pub(super) fn pending_indices(&self, base: JobId) -> Option<IndexSet> {
        let (indices, left) = self.record_indices(base)?;
        let mut out = indices.clone();
        for index in left.iter().flat_map(|l| &l.indices) {
            out.remove(*index);
        }
        Some(out)
    }

    /// The tasks of `tasks` that are in the record of array `base`. Costs as much as `tasks` has ranges and the result has.
    pub(super) fn pending_among(&self, base: JobId, tasks: &IndexSet) -> Option<IndexSet> {
        let (indices, left) = self.record_indices(base)?;
        let mut out = match tasks.len() {
            // However many ranges the array has.
            0..=8 => tasks.iter().filter(|i| indices.contains(*i)).collect(),
            _ => indices.intersection(tasks),
        };
        let left = left.into_iter().flat_map(|left| {
            let ranges = out.ranges();
            ranges.flat_map(|(first, last)| left.indices.range(first..=last))
        });
        let left: Vec<u32> = left.copied().collect();
        self.look_at(tasks.ranges().count() + out.ranges().count() + left.len());
        for index in left {
            out.remove(index);
        }
        Some(out)
    }

    /// The records of those of `tasks` that have left array `base`, by index. Costs as much as `tasks` has ranges and the
    /// result has.
    pub(super) fn records_among(&self, base: JobId, tasks: &IndexSet) -> Vec<JobId> {
        let known = self.state.arrays.get(&base).map(|info| &info.tasks);
        let mut found: Vec<(u32, JobId)> = Vec::new();
        for (first, last) in tasks.ranges() {
            self.look_at(1);
            let known = known.into_iter().flat_map(|k| k.range(first..=last));
            found.extend(known.map(|(index, id)| (*index, *id)));
            let new = self.tasks.range((base, first)..=(base, last));
            found.extend(new.map(|((_, index), id)| (*index, *id)));
        }
        self.look_at(found.len());
        found.sort_unstable_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether one of `tasks` has left array `base`. Looks at ranges or records, whichever are fewer.
    pub(super) fn has_record_among(&self, base: JobId, tasks: &IndexSet) -> bool {
        let known = self.state.arrays.get(&base).map(|info| &info.tasks);
        let new = self.tasks.range((base, 0)..=(base, u32::MAX));
        let ranges = tasks.ranges().count();
        if new.clone().count() + known.map_or(0, |k| k.len()) < ranges {
            let known = known.into_iter().flat_map(|k| k.keys());
            let mut all = known.chain(new.map(|((_, index), _)| index));
            return all.any(|index| tasks.contains(*index));
        }
        tasks.ranges().any(|(first, last)| {
            let mut new = self.tasks.range((base, first)..=(base, last));
            let known = known.is_some_and(|k| k.range(first..=last).next().is_some());
            known || new.next().is_some()
        })
    }

    fn record_indices(&self, base: JobId) -> Option<(&IndexSet, Option<&Left>)> {
        match &self.job(base)?.array {
            ArrayRole::Pending { indices } => Some((indices, self.left.get(&base))),
            ArrayRole::None | ArrayRole::Task { .. } => None,
        }
    }

    /// An order that no event carries.
    pub(super) fn send(&mut self, effects: impl IntoIterator<Item = Effect>) {
        let budget = &mut self.budget;
        let is_within = |effect: &Effect| budget.as_mut().is_none_or(|b| b.take_order(effect));
        self.effects.extend(effects.into_iter().filter(is_within));
    }

    /// Something to take note of.
    pub(super) fn note(&mut self, note: DisplayUpdate) {
        self.notes.push(note);
    }

    /// Something happens.
    pub(super) fn emit(&mut self, event: Event) {
        if self.budget.as_mut().is_some_and(|b| !b.take(&event)) {
            return;
        }
        match &event {
            Event::JobSubmitted { id, .. } => {
                if let Some(job) = apply::job::submitted(&event) {
                    if job.spec.array.is_some() {
                        self.counts.insert(*id, Counts::of(&job));
                    }
                    self.jobs.insert(*id, job);
                }
                self.next_job_id = self.next_job_id.max(id.0 + 1);
            }
            Event::TaskSplit { base, index, id } => self.split(*base, *index, *id, &event),
            Event::JobStarted { id, alloc, .. } => {
                self.count(*id, alloc);
                self.apply_to_job(*id, &event);
                for LicenseCount { name, count } in &alloc.licenses {
                    let reservation = alloc.reservation.as_deref();
                    let pool = self.state.license_pool(name, reservation);
                    let source = LicenseSource::new(name, pool);
                    *self.licenses.entry(source).or_default() += count;
                }
                self.nodes.expect(alloc.nodes.len());
                for position in (0u32..).take(alloc.nodes.len()) {
                    self.note_use(*id, alloc, position, ShareChange::Takes);
                }
            }
            Event::NodeReleased { id, position, .. } => {
                self.give_back(*id, *position);
                if !self.jobs.release(*id, *position, self.state) {
                    self.apply_to_job(*id, &event);
                }
            }
            Event::JobChanged {
                id,
                change: JobChange::SpecOf(other),
                at,
            } => {
                if let Some(spec) = self.job(*other).map(|job| Arc::clone(&job.spec)) {
                    self.change_spec(*id, spec, *at);
                }
            }
            Event::JobChanged {
                id,
                change: JobChange::Spec(spec),
                at,
            } => self.change_spec(*id, Arc::clone(spec), *at),
            Event::JobEnding {
                id, state, requeue, ..
            } => {
                assert!(
                    requeue.is_some() || state.is_ended(),
                    "job {id} ends for good in state {state:?}"
                );
                self.apply_to_job(*id, &event);
            }
            Event::JobChanged { id, .. }
            | Event::JobRequeued { id, .. }
            | Event::StepStarted { id, .. }
            | Event::StepEnded { id, .. } => self.apply_to_job(*id, &event),
            Event::JobSuspended { id, .. } | Event::JobResumed { id, .. } => {
                self.stops |= matches!(event, Event::JobSuspended { .. });
                let lent = |draft: &Self| draft.job(*id).map(|job| job.cpus_released_by_preemption);
                let before = lent(self);
                self.apply_to_job(*id, &event);
                if before != lent(self) {
                    self.lend_or_hold_cpus(*id);
                }
            }
            Event::NodeRegistered { node, .. } | Event::NodeChanged { node, .. } => {
                if let Some(node) = self.node_mut(*node) {
                    apply::node::apply_event(node, &event);
                }
            }
            Event::JobsPurged { .. }
            | Event::Configured { .. }
            | Event::BlobStored { .. }
            | Event::PartitionChanged { .. }
            | Event::PartitionRemoved { .. }
            | Event::NodesCreated { .. }
            | Event::NodesDeleted { .. }
            | Event::TriggersChanged { .. }
            | Event::PrioritiesCalculated { .. } => {}
            Event::AccountsChanged { changes, .. } => {
                for change in changes {
                    if let AccountsChange::JobIdsReserved(last) = change {
                        self.next_job_id = self.next_job_id.max(last.0.saturating_add(1));
                    }
                }
            }
            Event::CrontabSet { uid, crontab, .. } => {
                self.crontabs.insert(*uid, crontab.as_deref().cloned());
            }
            Event::ReservationSet { reservation, .. } => {
                self.reservations.insert(reservation.name.clone());
            }
            Event::ReservationStarted { name, .. } | Event::ReservationGone { name, .. } => {
                self.reservations.insert(name.clone());
            }
        }
        self.events.push(event);
    }

    /// A job has another specification, and perhaps another name.
    fn change_spec(&mut self, id: JobId, spec: Arc<JobSpec>, at: Timestamp) {
        if let Some(job) = self.job(id).filter(|job| job.spec.name != spec.name) {
            let entry = (job.spec.owner.uid, job.spec.name.clone());
            self.touched_names.insert(entry);
        }
        let change = JobChange::Spec(spec);
        self.apply_to_job(id, &Event::JobChanged { id, change, at });
    }

    /// A change of a job, now.
    pub(super) fn change(&mut self, id: JobId, change: JobChange) {
        let at = self.now;
        self.emit(Event::JobChanged { id, change, at });
    }

    /// Gives a task of an array's record a record of its own and returns its number.
    pub(super) fn split_task(&mut self, base: JobId, index: u32) -> JobId {
        let last = self.counts(base).is_none_or(|counts| counts.pending <= 1);
        let id = if last { base } else { self.next_job_id() };
        self.emit(Event::TaskSplit { base, index, id });
        id
    }

    /// A job starts: one more for each limit that it counts towards.
    fn count(&mut self, id: JobId, alloc: &Allocation) {
        if !self.state.keeps_limits() {
            return;
        }
        let scopes = self
            .job(id)
            .map(|job| self.state.scopes_of(job, &alloc.partition));
        let limit = self.job(id).and_then(|job| job.time_limit.seconds());
        let (tres, end) = (amounts(alloc), limit.map(|s| self.now.plus_s(s)));
        let factor = (self.job(id)).and_then(|job| self.state.usage_factor_millionths(job));
        let factor = factor.unwrap_or(MILLION);
        for scope in scopes.into_iter().flatten() {
            self.limits
                .entry(scope)
                .or_default()
                .add(&tres, end, factor);
        }
    }

    /// A job was stopped or goes on.
    fn lend_or_hold_cpus(&mut self, id: JobId) {
        let Some(job) = self.job(id).cloned() else {
            return;
        };
        for (share, alloc) in job.held() {
            if let Some(node) = self.node_mut(share.node) {
                apply::node::follow_stop(node, share, alloc, job.cpus_released_by_preemption);
            }
        }
    }

    /// A node has a share back.
    fn give_back(&mut self, id: JobId, position: u32) {
        let Some(job) = self.job(id) else { return };
        let Some(alloc) = job.alloc.clone() else {
            return;
        };
        let (lent, at) = (job.cpus_released_by_preemption, self.now);
        self.note_use(id, &alloc, position, ShareChange::GivesBack { lent, at });
    }

    fn note_use(&mut self, job: JobId, alloc: &Arc<Allocation>, position: u32, how: ShareChange) {
        let share = alloc.nodes.get(position as usize);
        let Some(idx) = share.map(|share| share.node) else {
            return;
        };
        if self.state.node(idx).is_some() {
            let alloc = Arc::clone(alloc);
            let used = Use {
                job,
                alloc,
                position,
                how,
            };
            self.nodes.note(idx, used);
        }
    }

    fn split(&mut self, base: JobId, index: u32, id: JobId, event: &Event) {
        self.tasks.insert((base, index), id);
        if id == base {
            self.own(base);
            self.apply_to_job(base, event);
            return;
        }
        self.next_job_id = self.next_job_id.max(id.0 + 1);
        if let Some(task) = self
            .job(base)
            .map(|record| apply::job::task(record, id, index))
        {
            for term in &task.waiting_on {
                if let DependencyTerm::Job { job, .. } = term {
                    self.new_dependents.entry(*job).or_default().insert(id);
                }
            }
            self.jobs.insert(id, task);
        }
        if let Some(mut counts) = self.counts(base) {
            counts.pending = counts.pending.saturating_sub(1);
            self.counts.insert(base, counts);
        }
        if let Some(record) = self.jobs.own_mut(base) {
            apply::job::apply_event(record, event);
            return;
        }
        let lowest = self.first_in_record(base);
        let left = self.left.entry(base).or_default();
        left.indices.insert(index);
        // Tasks that were passed over to find it are not looked at again.
        left.next = match lowest {
            Some(lowest) if lowest == index => index.saturating_add(1),
            Some(lowest) => lowest,
            None => left.next,
        };
    }

    fn apply_to_job(&mut self, id: JobId, event: &Event) {
        let Some(job) = self.own(id) else {
            return;
        };
        let (before, counts) = (job.phase(), Counts::of(job));
        apply::job::apply_event(job, event);
        let (after, counts_after, base) = (job.phase(), Counts::of(job), job.submission());
        let name = (job.spec.owner.uid, &job.spec.name);
        if after == Phase::Ended && before != Phase::Ended {
            let name = (name.0, name.1.clone());
            self.touched_names.insert(name);
        }
        let started = after == Phase::Running && before == Phase::Pending;
        if started || (after == Phase::Ended && before != Phase::Ended) {
            self.changed.insert(id);
        }
        if counts != counts_after
            && let Some(array) = self.counts(base)
        {
            self.counts.insert(base, array.moved(counts, counts_after));
        }
    }

    /// The record as this draft's own copy.
    fn own(&mut self, id: JobId) -> Option<&mut Job> {
        let (job, is_new) = self.jobs.get_mut(id, self.state)?;
        if is_new
            && let (ArrayRole::Pending { indices }, Some(left)) =
                (&mut job.array, self.left.remove(&id))
        {
            for index in left.indices {
                indices.remove(index);
            }
        }
        Some(job)
    }

    fn node_mut(&mut self, idx: NodeIdx) -> Option<&mut Node> {
        self.nodes.get_mut(idx, self.state)
    }
}
