//! Applying events: the only way in which the state changes. What an event does to one job or node is in `job` and
//! `node`; here are the tables, the arrays, the resources of nodes and the indexes.

mod accounts;
pub(crate) mod dynamic;
mod future;
pub(crate) mod job;
pub(crate) mod node;
mod specs;
mod triggers;

use crate::event::{AccountsChange, Event, JobChange, NodeChange};
use crate::fair_share;
use crate::index::{Counts, Keys};
use crate::policy::limits::{self, Charge, charged};
use crate::policy::priority::calculate_scale;
use crate::state::limit_use::AccrualGroup;
use crate::state::queue_size::in_record;
use crate::state::{Blob, DisplayUpdate, State};
use muster_model::accounts::Accounts;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::ids::{JobId, NodeIdx};
use muster_model::index_set::IndexSet;
use muster_model::job::{Allocation, ArrayInfo, ArrayRole, Job, JobState};
use muster_model::node::Node;
use muster_model::order_config::Multifactor;
use muster_model::reservation::{Flags, Reservation};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The text before the unavailable nodes that a job names, where reasons are shown.
pub(crate) const UNAVAILABLE: &str = "UnavailableNodes:";

impl State {
    /// Applies one event. Total: an event that does not fit the state is a bug and panics by name.
    pub fn apply(&mut self, event: &Event) {
        let node = triggers::before(self, event);
        match event {
            Event::Configured {
                config,
                at,
                partitions,
            } => {
                self.keep_priorities();
                self.evaluated.clear();
                let partitions = partitions.as_ref().unwrap_or(&config.partitions);
                self.configure(config, partitions, *at);
            }
            Event::BlobStored { id, bytes } => {
                self.blobs.entry(*id).or_insert_with(|| Blob {
                    bytes: bytes.clone(),
                    users: 0,
                    owners: Default::default(),
                });
            }
            Event::JobSubmitted { .. } => self.submit(event),
            Event::TaskSplit { base, index, id } => self.split(*base, *index, *id, event),
            Event::JobChanged {
                id,
                change: JobChange::SpecOf(other),
                at,
            } => {
                let job = self.jobs.get(other);
                let job = job.unwrap_or_else(|| panic!("job {other} does not exist: {event:?}"));
                self.apply(&Event::JobChanged {
                    id: *id,
                    change: JobChange::Spec(job.spec.clone()),
                    at: *at,
                });
            }
            Event::JobChanged { id, change, .. } => {
                if let JobChange::Spec(spec) | JobChange::ReservationGone { spec, .. } = change {
                    self.change_spec(*id, spec);
                }
                self.apply_to_job(*id, event);
            }
            Event::JobStarted { id, alloc, .. } => {
                self.apply_to_job(*id, event);
                for share in &alloc.nodes {
                    let power = self.power_key(share.node);
                    node::take(self.node_mut(share.node), *id, share, alloc);
                    self.power_moved(share.node, power);
                }
            }
            Event::NodeReleased { id, position, at } => {
                release_node(self, *id, *position, *at, event);
            }
            Event::JobEnding { id, at, .. } => {
                self.apply_to_job(*id, event);
                if let Some(job) = self.jobs.get(id) {
                    self.run_times.ended(job, *at);
                }
            }
            Event::JobSuspended { id, .. } | Event::JobResumed { id, .. } => {
                let lent = |state: &State| {
                    state
                        .jobs
                        .get(id)
                        .map(|job| job.cpus_released_by_preemption)
                };
                let before = lent(self);
                self.apply_to_job(*id, event);
                if before != lent(self) {
                    self.lend_or_hold_cpus(*id);
                }
            }
            Event::JobRequeued { id, .. }
            | Event::StepStarted { id, .. }
            | Event::StepEnded { id, .. } => self.apply_to_job(*id, event),
            Event::JobsPurged { ids } => ids.iter().for_each(|id| self.purge(*id, event)),
            Event::NodeRegistered { node, .. } => self.apply_to_node(*node, event),
            Event::NodeChanged { node, change, .. } => change_node(self, *node, change, event),
            Event::NodesCreated { nodes, at } => {
                self.keep_priorities();
                self.evaluated.clear();
                dynamic::create_nodes(self, nodes, *at);
            }
            Event::NodesDeleted { nodes, .. } => {
                self.keep_priorities();
                self.evaluated.clear();
                dynamic::delete_nodes(self, nodes);
            }
            Event::PartitionChanged { partition } => {
                self.keep_priorities();
                self.change_partition(partition);
                self.scale = calculate_scale(self);
            }
            Event::PartitionRemoved { name } => {
                self.partitions.retain(|p| p.name != *name);
                self.evaluated.clear();
                self.rebuild_indexes();
            }
            Event::AccountsChanged { changes, at, .. } => change_accounts(self, changes, *at),
            Event::PrioritiesCalculated { at } => {
                self.keep_priorities();
                self.calculate_shares(*at);
                self.scale = calculate_scale(self);
            }
            Event::ReservationSet { reservation, .. } => {
                if self.reservations.get(&reservation.name).is_none() {
                    self.reservations_made += 1;
                }
                self.reservations.insert((**reservation).clone());
            }
            Event::ReservationStarted { name, .. } => {
                if let Some(reservation) = self.reservations.get_mut(name) {
                    reservation.active = true;
                }
            }
            Event::ReservationGone { name, .. } => {
                self.reservations.remove(name);
            }
            Event::CrontabSet { uid, crontab, .. } => match crontab {
                Some(crontab) => drop(self.crontabs.insert(*uid, (**crontab).clone())),
                None => drop(self.crontabs.remove(uid)),
            },
            // See `triggers::after`.
            Event::TriggersChanged { .. } => {}
        }
        triggers::after(self, event, node);
    }

    /// Takes note of data that is shown but is not history. A reason is taken only for a job that the scheduler may
    /// start; the reason of the others is known better here.
    pub fn note(&mut self, note: &DisplayUpdate) {
        match note {
            DisplayUpdate::Reason(id, reason) => {
                if let Some(job) = self.jobs.get_mut(id).filter(|job| job.is_startable()) {
                    job.reason = *reason;
                    let nodes = |detail: &mut String| detail.starts_with(UNAVAILABLE);
                    job.reason_detail.take_if(nodes);
                }
            }
            DisplayUpdate::Unavailable(id, nodes) => {
                let job = self.jobs.get_mut(id).filter(|job| job.is_startable());
                // The reason of an event stays: a note is not written down.
                let is_noted = |job: &&mut Job| {
                    let detail = job.reason_detail.as_deref();
                    detail.is_none_or(|detail| detail.starts_with(UNAVAILABLE))
                };
                if let Some(job) = job.filter(is_noted) {
                    job.reason_detail = Some(format!("{UNAVAILABLE}{nodes}"));
                }
            }
            DisplayUpdate::Expected(id, time) => {
                if let Some(job) = self.jobs.get_mut(id).filter(|job| job.is_startable()) {
                    job.expected_start = *time;
                }
            }
            DisplayUpdate::Evaluated(partitions, at) => {
                self.evaluated
                    .resize(self.partitions.len(), Timestamp::default());
                for &position in partitions {
                    if let Some(evaluated) = self.evaluated.get_mut(position as usize) {
                        *evaluated = *at;
                    }
                }
            }
            DisplayUpdate::Health {
                node,
                load_centi,
                free_mib,
            } => {
                if let Some(node) = self.nodes.get_mut(node.0 as usize) {
                    node::set_health(node, *load_centi, *free_mib);
                }
            }
        }
    }

    /// Seconds that a job is taken to run for planning, where the configuration wants that and something is known.
    pub fn predicted_s(&self, spec: &JobSpec, limit: TimeLimit) -> Option<u32> {
        let wanted = self.config.as_ref().is_some_and(|c| c.predicts_run_times());
        wanted
            .then(|| self.run_times.predict(spec, limit))
            .flatten()
    }

    fn node_mut(&mut self, idx: NodeIdx) -> &mut Node {
        self.nodes
            .get_mut(idx.0 as usize)
            .unwrap_or_else(|| panic!("an allocation names node {}, which does not exist", idx.0))
    }

    /// A job was stopped or goes on: its CPUs are free for others, or its own again.
    fn lend_or_hold_cpus(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        for (share, alloc) in job.held() {
            if let Some(node) = self.nodes.get_mut(share.node.0 as usize) {
                node::follow_stop(node, share, alloc, job.cpus_released_by_preemption);
            }
        }
    }

    fn alloc_of(&self, id: JobId, event: &Event) -> Arc<Allocation> {
        self.jobs
            .get(&id)
            .and_then(|job| job.alloc.clone())
            .unwrap_or_else(|| panic!("job {id} has no allocation: {event:?}"))
    }

    /// A job gives a place of its allocation back; whether others had the CPUs that it has there.
    fn give_up(&mut self, id: JobId, position: u32, event: &Event) -> bool {
        let job = self.jobs.get_mut(&id);
        let job = job.unwrap_or_else(|| panic!("job {id} does not exist: {event:?}"));
        assert!(
            job.nodes_held.contains(position),
            "job {id} does not hold its node {position}: {event:?}"
        );
        let lent = job.cpus_released_by_preemption;
        // Only with the last one something else comes of it.
        if job.completing && job.nodes_held.len() > 1 {
            job::apply_event(job, event);
        } else {
            self.apply_to_job(id, event);
        }
        lent
    }

    fn apply_to_job(&mut self, id: JobId, event: &Event) {
        let job = self
            .jobs
            .get(&id)
            .unwrap_or_else(|| panic!("job {id} does not exist: {event:?}"));
        let (keys, counts, base) = (self.keys_of(job), Counts::of(job), job.submission());
        let before = billing(job);
        let used = self.keeps_limits().then(|| charged(job));
        let (eligible, group) = (job.eligible_time, self.accrual_group_if_limited(job));
        let mut job = self.jobs.get_mut(&id);
        if let Some(job) = &mut job {
            job::apply_event(job, event);
            if changes_steps(event) {
                self.stored_bytes.change_steps(job);
            }
        }
        if let Some(group) = group {
            self.update_accrual(id, eligible, &group);
        }
        self.charge(id, before, used, event);
        self.moved(id, base, &keys, counts);
    }

    /// A record may have become one that can start, or one that other limits concern.
    fn update_accrual(&mut self, id: JobId, eligible: Option<Timestamp>, group: &AccrualGroup) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_startable()) else {
            return;
        };
        let accrual = if job.eligible_time != eligible {
            self.begin_accrual(job)
        } else if self.accrual_in_new_group(group, job) {
            Some(Box::default())
        } else {
            return;
        };
        if let Some(job) = self.jobs.get_mut(&id) {
            job.accrual = accrual;
        }
    }

    /// A job that begins or ceases to run is charged from now on, or no more; one with fewer nodes is charged for them.
    fn charge(&mut self, id: JobId, before: u64, used: Option<Charge>, event: &Event) {
        let at = match event {
            Event::JobStarted { at, .. }
            | Event::JobEnding { at, .. }
            | Event::JobSuspended { at, .. }
            | Event::JobResumed { at, .. }
            | Event::JobChanged {
                change: JobChange::Resized(_),
                at,
                ..
            } => *at,
            _ => return,
        };
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let after = billing(job);
        if before != after {
            let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
            let half_life_s = self.half_life_s();
            let moved = (after, before);
            fair_share::charge(&mut self.accounts, account, user, moved, at, half_life_s);
        }
        let Some(used) = used else { return };
        let job = &self.jobs[&id];
        let uses = charged(job);
        if used != uses {
            let scopes = self.scopes_of(job, &job.partition);
            self.charge_limits(&scopes, (&used, &uses), at);
        }
    }

    /// Half-life of use for fair share, seconds.
    pub(crate) fn half_life_s(&self) -> u64 {
        let settings = self
            .config
            .as_ref()
            .and_then(|c| c.order.multifactor.as_ref());
        settings.map_or(HALF_LIFE_S, |s| s.half_life_s)
    }

    fn calculate_shares(&mut self, at: Timestamp) {
        let settings = self.multifactor();
        fair_share::calculate(&mut self.accounts, at, &settings);
    }

    fn multifactor(&self) -> Multifactor {
        let settings = self
            .config
            .as_ref()
            .and_then(|c| c.order.multifactor.clone());
        settings.unwrap_or_else(|| Multifactor {
            fair_tree: true,
            half_life_s: HALF_LIFE_S,
            ..Multifactor::default()
        })
    }

    /// Accounts, with shares as of `now` where they are not worked out from time to time.
    pub fn accounts_at(&self, now: Timestamp) -> Accounts {
        let mut accounts = self.accounts.of_own_cluster();
        let worked_out = self
            .config
            .as_ref()
            .is_some_and(|c| c.order.multifactor.is_some());
        if !worked_out {
            fair_share::calculate(&mut accounts, now, &self.multifactor());
        }
        accounts
    }

    /// Brings indexes and array counts up to date after record `id` changed.
    fn moved(&mut self, id: JobId, base: JobId, keys: &Keys, counts: Counts) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let (after, counts_after) = (self.keys_of(job), Counts::of(job));
        let owner = job.spec.owner.uid;
        self.reindex(id, keys, &after);
        if counts != counts_after
            && let Some(info) = self.arrays.get(&base)
        {
            let counts = Counts::of_array(info).moved(counts, counts_after);
            self.store_counts(base, owner, counts);
        }
    }

    /// Writes the counts of a user's array, and counts its tasks in the queue.
    fn store_counts(&mut self, base: JobId, owner: u32, counts: Counts) {
        let Some(info) = self.arrays.get_mut(&base) else {
            return;
        };
        let before = in_record(info);
        counts.store(info);
        let after = in_record(info);
        self.queue_size
            .subtract(owner, before.saturating_sub(after));
        self.queue_size.add(owner, after.saturating_sub(before));
    }

    fn submit(&mut self, event: &Event) {
        let Some(mut job) = job::submitted(event) else {
            return;
        };
        job.spec = self.share_spec(&job.spec);
        job.predicted_s = self.predicted_s(&job.spec, job.time_limit);
        let id = job.id;
        assert!(
            id.0 >= self.next_job_id,
            "job {id} takes a number that is taken"
        );
        self.next_job_id = id.0 + 1;
        if let Some(array) = &job.spec.array {
            let info = array_info(&array.indices, array.throttle);
            self.arrays.insert(id, info);
            self.store_counts(id, job.spec.owner.uid, Counts::of(&job));
        }
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        fair_share::ensure_association(&mut self.accounts, account, user, job.submit_time);
        job.accrual = self.begin_accrual(&job);
        self.insert(job, None);
    }

    /// A record comes; one of a task has the specification of its array.
    fn insert(&mut self, job: Job, array: Option<JobId>) {
        let (id, keys) = (job.id, self.keys_of(&job));
        self.stored_bytes
            .add_record(&mut self.blobs, (id, &job.spec), array);
        self.queue_size.add(job.spec.owner.uid, 1);
        self.jobs.insert(id, job);
        self.reindex(id, &Keys::default(), &keys);
    }

    fn split(&mut self, base: JobId, index: u32, id: JobId, event: &Event) {
        let record = self
            .jobs
            .get(&base)
            .unwrap_or_else(|| panic!("array {base} does not exist: {event:?}"));
        if id == base {
            // The record becomes the task's; the jobs that it waits for may have to be found under the task's index.
            let (keys, counts) = (self.keys_of(record), Counts::of(record));
            if let Some(job) = self.jobs.get_mut(&base) {
                job::apply_event(job, event);
            }
            self.moved(base, base, &keys, counts);
        } else {
            assert!(
                id.0 >= self.next_job_id,
                "task {index} of array {base} takes number {id}, which is taken"
            );
            self.next_job_id = id.0 + 1;
            let task = job::task(record, id, index);
            let counted = self.counted(record);
            let owner = task.spec.owner.uid;
            if let Some(job) = self.jobs.get_mut(&base) {
                job::apply_event(job, event);
            }
            // The task counts for itself from now on.
            if let Some(record) = self.jobs.get(&base) {
                let left = self.counted(record);
                self.shift_counted(&counted, &left);
            }
            self.insert(task, Some(base));
            if let Some(info) = self.arrays.get(&base) {
                let mut counts = Counts::of_array(info);
                counts.pending = counts.pending.saturating_sub(1);
                self.store_counts(base, owner, counts);
            }
        }
        if let Some(info) = self.arrays.get_mut(&base) {
            info.tasks.insert(index, id);
        }
    }

    fn change_spec(&mut self, id: JobId, spec: &Arc<JobSpec>) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let (old, base) = (job.spec.clone(), job.submission());
        self.stored_bytes
            .change_record(&mut self.blobs, id, (&old, spec), id != base);
        if id == base {
            self.unshare_spec(&old);
            self.share_spec(spec);
        }
        if let (Some(array), Some(info)) = (&spec.array, self.arrays.get_mut(&base)) {
            info.throttle = array.throttle.filter(|n| *n > 0);
        }
    }

    fn purge(&mut self, id: JobId, event: &Event) {
        let Some(mut job) = self.jobs.remove(&id) else {
            panic!("job {id} does not exist: purged twice");
        };
        job::apply_event(&mut job, event);
        let keys = self.keys_of(&job);
        self.reindex(id, &keys, &Keys::default());
        self.queue_size.subtract(job.spec.owner.uid, 1);
        self.stored_bytes
            .remove_record(&mut self.blobs, id, &job.spec);
        if id == job.submission() {
            self.unshare_spec(&job.spec);
        }
        let base = job.submission();
        let Some(info) = self.arrays.get_mut(&base) else {
            return;
        };
        if let ArrayRole::Task { index, .. } = job.array {
            info.tasks.remove(&index);
        }
        let record_left = self
            .jobs
            .get(&base)
            .is_some_and(|job| matches!(job.array, ArrayRole::Pending { .. }));
        if info.tasks.is_empty() && !record_left {
            self.arrays.remove(&base);
        }
    }

    fn configure(
        &mut self,
        config: &Arc<ClusterConfig>,
        partitions: &[PartitionConfig],
        at: Timestamp,
    ) {
        self.next_job_id = self.next_job_id.max(config.first_job_id).max(1);
        for node in &mut self.nodes {
            // Nodes that no file names stay.
            node.removed |= !node.config.dynamic;
        }
        for line in &config.nodes {
            match self.node_by_name.get(&line.name) {
                Some(idx) => {
                    let node = &mut self.nodes[idx.0 as usize];
                    if let Some(happens) = future::set_line(node, line) {
                        node::set_service(node, happens);
                    }
                    node.removed = false;
                }
                None => {
                    let idx = NodeIdx(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
                    self.nodes.push(Node::new(idx, line, at));
                    self.node_by_name.insert(line.name.clone(), idx);
                }
            }
        }
        if config.power.is_none() {
            self.nodes.iter_mut().for_each(node::leave_power_saving);
        }
        self.partitions = partitions.to_vec();
        dynamic::take_in(&mut self.partitions, &self.nodes);
        self.config = Some(config.clone());
        self.recount_nodes();
        self.rebuild_indexes();
        self.follow_partitions();
    }

    /// Reservations of whole partitions (`PART_NODES`) have the nodes that the partitions have.
    fn follow_partitions(&mut self) {
        let all: Vec<Reservation> = self.reservations.iter().cloned().collect();
        for mut reservation in all {
            let partition = reservation.partition.as_deref();
            let partition = partition.and_then(|name| self.partition(name));
            if let Some(partition) = partition.filter(|_| reservation.flags.has(Flags::PART_NODES))
            {
                let nodes = partition.nodes.iter().filter_map(|n| self.node_named(n));
                let nodes: BTreeMap<NodeIdx, &Node> = nodes.map(|n| (n.idx, n)).collect();
                reservation.set_nodes(nodes.into_values());
                self.reservations.insert(reservation);
            }
        }
    }

    /// Computes the use of each node anew, after its CPUs or devices changed.
    pub(crate) fn recount_nodes(&mut self) {
        let jobs = &self.jobs;
        for node in &mut self.nodes {
            node::reset_use(node);
            for id in node.jobs.clone() {
                let Some(job) = jobs.get(&id) else {
                    continue;
                };
                let idx = node.idx;
                for (share, alloc) in job.held().filter(|(s, _)| s.node == idx) {
                    node::hold_resources(node, share, alloc, job.cpus_released_by_preemption);
                }
            }
        }
    }

    fn change_partition(&mut self, partition: &PartitionConfig) {
        match self
            .partitions
            .iter_mut()
            .find(|p| p.name == partition.name)
        {
            Some(known) => *known = partition.clone(),
            None => self.partitions.push(partition.clone()),
        }
        self.rebuild_indexes();
        self.follow_partitions();
    }
}

/// A node gets back what a job had of it.
fn release_node(state: &mut State, id: JobId, position: u32, at: Timestamp, event: &Event) {
    let alloc = state.alloc_of(id, event);
    let share = alloc
        .nodes
        .get(position as usize)
        .unwrap_or_else(|| panic!("job {id} has no node {position}: {event:?}"));
    let lent = state.give_up(id, position, event);
    let power = state.power_key(share.node);
    if let Some(node) = state.nodes.get_mut(share.node.0 as usize) {
        node::give_back(node, id, (share, &alloc), lent, at);
    }
    state.power_moved(share.node, power);
}

/// A node changes. With its features a dynamic node may come to be in other partitions.
fn change_node(state: &mut State, idx: NodeIdx, change: &NodeChange, event: &Event) {
    state.apply_to_node(idx, event);
    let changes_features = matches!(change, NodeChange::Features(_));
    let node = state.nodes.get(idx.0 as usize);
    if changes_features && node.is_some_and(|node| node.config.dynamic) {
        state.keep_priorities();
        state.evaluated.clear();
        dynamic::follow_membership(state);
    }
}

fn change_accounts(state: &mut State, changes: &[AccountsChange], at: Timestamp) {
    state.keep_priorities();
    for change in changes {
        if let AccountsChange::JobIdsReserved(last) = change {
            state.next_job_id = state.next_job_id.max(last.0.saturating_add(1));
        }
        if let AccountsChange::UserRenamed { from, to } = change {
            limits::rename_use(state, from, to);
        }
        accounts::apply_change(&mut state.accounts, change, at);
        accounts::assign_ids(&mut state.accounts);
    }
    limits::fold_names(state);
    if state.keeps_limits() {
        // The tree of users, and the QOS of jobs that name none, may have changed.
        state.rebuild_indexes();
        limits::settle_rates(state, at);
    }
    state.calculate_shares(at);
    state.scale = calculate_scale(state);
}

/// `PriorityDecayHalfLife` where none is configured.
const HALF_LIFE_S: u64 = 7 * 86_400;

/// Whether a job has other steps after it.
fn changes_steps(event: &Event) -> bool {
    matches!(
        event,
        Event::StepStarted { .. }
            | Event::StepEnded { .. }
            | Event::JobStarted { .. }
            | Event::JobRequeued { .. }
    )
}

/// Billing units, in thousandths, of a job that runs.
fn billing(job: &Job) -> u64 {
    match (job.state, &job.alloc) {
        (JobState::Running, Some(alloc)) if !job.completing => alloc.billing_milli,
        _ => 0,
    }
}

fn array_info(indices: &IndexSet, throttle: Option<u32>) -> ArrayInfo {
    ArrayInfo {
        throttle: throttle.filter(|n| *n > 0),
        count: u32::try_from(indices.len()).unwrap_or(u32::MAX),
        min: indices.first().unwrap_or(0),
        max: indices.last().unwrap_or(0),
        step: stride(indices),
        ..ArrayInfo::default()
    }
}

/// The distance of neighbouring indices if it is the same for all, else 1 (`SLURM_ARRAY_TASK_STEP`).
fn stride(indices: &IndexSet) -> u32 {
    let mut ranges = indices.ranges();
    let Some((first, last)) = ranges.next() else {
        return 1;
    };
    if first != last {
        return 1;
    }
    let (mut previous, mut step) = (first, None);
    for (first, last) in ranges {
        let distance = first - previous;
        if first != last || step.is_some_and(|s| s != distance) {
            return 1;
        }
        step = Some(distance);
        previous = first;
    }
    step.unwrap_or(1)
}
