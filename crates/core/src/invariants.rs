//! Invariants of the state after every event. They read the whole state: for tests and the simulator.

use crate::apply;
use crate::index::Counts;
use crate::policy::priority::calculate_scale;
use crate::state::State;
use crate::state::queue_size::QueueSize;
use crate::state::stored_bytes::{StoredBytes, blobs_of};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{BlobId, JobId};
use muster_model::job::{Allocation, ArrayInfo, ArrayRole, Job, JobState, Phase};
use muster_model::node::Node;
use std::collections::BTreeMap;

macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}

impl State {
    /// Checks the whole state; meant for tests and the simulator (it reads everything).
    ///
    /// # Errors
    /// The names of violated invariants.
    pub fn check_invariants(&self) -> Result<(), String> {
        for job in self.jobs.values() {
            self.check_job(job)?;
        }
        for node in &self.nodes {
            self.check_node(node)?;
        }
        for (base, info) in &self.arrays {
            self.check_array(*base, info)?;
        }
        ensure!(
            self.queue_size == QueueSize::count(self),
            "jobs are counted wrongly: {:?}",
            self.queue_size
        );
        self.check_blobs()?;
        self.check_stored()?;
        self.check_indexes()
    }

    /// Checks what holds between decisions, though not after each of their events: no component of a heterogeneous job
    /// runs while another waits.
    ///
    /// # Errors
    /// The component that is alone.
    pub fn check_het_jobs(&self) -> Result<(), String> {
        for job in self.jobs.values() {
            let Some(part) = job.het else { continue };
            let runs = matches!(job.phase(), Phase::Running | Phase::Suspended);
            let waits = |other: &&Job| other.phase() == Phase::Pending;
            let alone = self.het_jobs(part).find(waits).filter(|_| runs);
            ensure!(
                alone.is_none(),
                "component {} of a heterogeneous job runs while another waits",
                part.name()
            );
        }
        Ok(())
    }

    fn check_job(&self, job: &Job) -> Result<(), String> {
        let id = job.id;
        ensure!(
            id.0 < self.next_job_id,
            "job {id} has a number that was not given yet"
        );
        let holds = !job.nodes_held.is_empty();
        let runs = matches!(job.state, JobState::Running | JobState::Suspended);
        ensure!(
            !holds || runs || job.completing,
            "job {id} is {} and holds nodes",
            job.state.name()
        );
        ensure!(
            !runs || holds,
            "job {id} is {} without a node",
            job.state.name()
        );
        ensure!(!runs || !job.completing, "job {id} runs and is completing");
        ensure!(
            job.state != JobState::Suspended || job.suspend_time.is_some(),
            "job {id} is suspended since never"
        );
        let pending = job.state == JobState::Pending && !job.completing;
        ensure!(
            !pending || (job.alloc.is_none() && job.steps.is_empty()),
            "job {id} waits and has an allocation or steps"
        );
        ensure!(
            !pending || (job.hold == muster_model::job::Hold::None) == (job.priority > 0),
            "job {id} has priority {} and hold {:?}",
            job.priority,
            job.hold
        );
        ensure!(
            !job.state.is_ended() || job.end_time.is_some(),
            "job {id} ended at no time"
        );
        let tasks = job.alloc.as_ref().map_or(0, |alloc| alloc.ntasks);
        ensure!(
            job.spec.ask.task_range.is_none() || tasks <= job.spec.ask.most_tasks(),
            "job {id} has {tasks} tasks, more than its range"
        );
        for position in job.nodes_held.iter() {
            let share = job
                .alloc
                .as_ref()
                .and_then(|alloc| alloc.nodes.get(position as usize));
            ensure!(
                share
                    .and_then(|s| self.node(s.node))
                    .is_some_and(|n| n.jobs.contains(&id)),
                "job {id} holds its node {position}, which does not know it"
            );
        }
        if let ArrayRole::Task { base, index } = job.array {
            let known = self
                .arrays
                .get(&base)
                .and_then(|info| info.tasks.get(&index));
            ensure!(
                known == Some(&id),
                "array {base} does not know task {index}, job {id}"
            );
        }
        if let ArrayRole::Pending { indices } = &job.array {
            ensure!(!indices.is_empty(), "array {id} has a record without tasks");
            ensure!(self.arrays.contains_key(&id), "array {id} has no entry");
        }
        Ok(())
    }

    /// The node's books against the allocations of its jobs.
    fn check_node(&self, node: &Node) -> Result<(), String> {
        let name = &node.config.name;
        let mut expected = Node {
            free_cpus: node.config.job_cpus(),
            used_mib: 0,
            used_gres: vec![CpuSet::default(); node.config.gres.len()],
            exclusive: false,
            shared_cpus: Vec::new(),
            alone: 0,
            alone_by_user: 0,
            only_user: None,
            alone_by_label: 0,
            mcs_label: None,
            stopped: 0,
            ..node.clone()
        };
        // CPUs in use, by the jobs that use them.
        let mut users: Vec<(&Job, &CpuSet, &Allocation)> = Vec::new();
        for id in &node.jobs {
            let job = self.jobs.get(id);
            let Some((job, alloc)) = job.and_then(|j| j.alloc.as_ref().map(|a| (j, a))) else {
                return Err(format!("node {name} has job {id}, which has no allocation"));
            };
            let share = (0u32..)
                .zip(&alloc.nodes)
                .find(|(p, s)| s.node == node.idx && job.nodes_held.contains(*p));
            let Some((_, share)) = share else {
                return Err(format!("node {name} has job {id}, which does not hold it"));
            };
            if !job.cpus_released_by_preemption {
                users.push((job, &share.cpus, alloc));
            }
            for gres in &share.gres {
                let used = node
                    .used_up_slot(gres)
                    .map(|slot| &expected.used_gres[slot]);
                ensure!(
                    used.is_none_or(|used| !used.intersects(&gres.ids)),
                    "job {id} shares a {} of node {name}",
                    gres.name
                );
            }
            let is_own = |other: &JobId| {
                let other = self.jobs.get(other).map(|j| j.spec.owner.uid);
                alloc.only_user.is_none_or(|uid| other == Some(uid))
            };
            ensure!(
                node.jobs.iter().all(is_own),
                "job {id} has node {name} for its user, whose jobs are {:?}",
                node.jobs
            );
            let label = &alloc.mcs_label;
            ensure!(
                label.is_none() || *label == node.mcs_label,
                "job {id} has node {name} for label {label:?}, which is {:?}",
                node.mcs_label
            );
            apply::node::hold_resources(
                &mut expected,
                share,
                alloc,
                job.cpus_released_by_preemption,
            );
        }
        check_users(name, &users)?;
        // A configuration that takes memory away from running jobs breaks this; nothing else does.
        ensure!(
            node.used_mib <= node.config.memory_mib
                || !self.config.as_ref().is_some_and(|c| c.memory_is_consumable),
            "jobs hold {} MiB of node {name}",
            node.used_mib
        );
        ensure!(
            expected == *node,
            "node {name} keeps wrong books: {node:?}, expected {expected:?}"
        );
        Ok(())
    }

    fn check_array(&self, base: JobId, info: &ArrayInfo) -> Result<(), String> {
        let mut counts = Counts::default();
        let record = self
            .jobs
            .get(&base)
            .filter(|job| matches!(job.array, ArrayRole::Pending { .. }));
        for (index, id) in &info.tasks {
            let role = self.jobs.get(id).map(|job| job.array.clone());
            ensure!(
                role == Some(ArrayRole::Task {
                    base,
                    index: *index
                }),
                "task {index} of array {base} is job {id}, which is {role:?}"
            );
        }
        let tasks = info.tasks.values().filter_map(|id| self.jobs.get(id));
        for job in tasks.chain(record) {
            counts = counts.moved(Counts::default(), Counts::of(job));
        }
        ensure!(
            record.is_some() || !info.tasks.is_empty(),
            "array {base} is kept without a record"
        );
        // Tasks that were purged count as failed for good.
        counts.failed = counts.failed.max(info.failed);
        ensure!(
            counts == Counts::of_array(info),
            "array {base} counts {:?}, its records {counts:?}",
            Counts::of_array(info)
        );
        Ok(())
    }

    fn check_blobs(&self) -> Result<(), String> {
        let mut users: BTreeMap<BlobId, u32> = BTreeMap::new();
        for job in self.jobs.values() {
            for id in blobs_of(&job.spec) {
                *users.entry(id).or_default() += 1;
            }
        }
        for (id, blob) in &self.blobs {
            let found = users.remove(id).unwrap_or(0);
            ensure!(
                blob.users == found,
                "blob {id:?} counts {} users and has {found}",
                blob.users
            );
        }
        match users.first_key_value() {
            Some((id, _)) => Err(format!("blob {id:?} is used and not stored")),
            None => Ok(()),
        }
    }

    fn check_stored(&self) -> Result<(), String> {
        let mut blobs = self.blobs.clone();
        let stored = StoredBytes::count(&self.jobs, &mut blobs);
        ensure!(
            self.stored_bytes == stored,
            "bytes of users are counted wrongly: {:?}",
            self.stored_bytes
        );
        for (id, blob) in &self.blobs {
            ensure!(
                blob.owners == blobs[id].owners,
                "blob {id:?} has not the owners that it counts: {:?}",
                blob.owners
            );
        }
        Ok(())
    }

    fn check_indexes(&self) -> Result<(), String> {
        let mut fresh = State {
            config: self.config.clone(),
            partitions: self.partitions.clone(),
            nodes: self.nodes.clone(),
            jobs: self.jobs.clone(),
            accounts: self.accounts.clone(),
            ..State::default()
        };
        fresh.rebuild_indexes();
        ensure!(
            self.node_by_name == fresh.node_by_name,
            "index node_by_name is wrong"
        );
        ensure!(self.by_limit == fresh.by_limit, "index by_limit is wrong");
        ensure!(
            self.by_warning == fresh.by_warning,
            "index by_warning is wrong"
        );
        ensure!(self.by_begin == fresh.by_begin, "index by_begin is wrong");
        ensure!(self.by_turn == fresh.by_turn, "index by_turn is wrong");
        ensure!(
            self.by_deadline == fresh.by_deadline,
            "index by_deadline is wrong"
        );
        ensure!(self.ended == fresh.ended, "index ended is wrong");
        ensure!(
            self.dependents == fresh.dependents,
            "index dependents is {:?}, should be {:?}",
            self.dependents,
            fresh.dependents
        );
        ensure!(self.pending == fresh.pending, "index pending is wrong");
        ensure!(self.active == fresh.active, "index active is wrong");
        ensure!(
            self.lost_nodes == fresh.lost_nodes && self.power_due == fresh.power_due,
            "index lost_nodes or power_due is wrong"
        );
        ensure!(
            self.limit_use == fresh.limit_use,
            "index limit_use is {:?}, should be {:?}",
            self.limit_use,
            fresh.limit_use
        );
        ensure!(
            self.accrual_waiting == fresh.accrual_waiting,
            "index accrual_waiting is wrong"
        );
        ensure!(self.specs == fresh.specs, "index specs is wrong");
        ensure!(self.by_owner == fresh.by_owner, "index by_owner is wrong");
        ensure!(
            self.singletons == fresh.singletons,
            "index singletons is wrong"
        );
        ensure!(
            self.by_reservation == fresh.by_reservation,
            "index by_reservation is wrong"
        );
        ensure!(
            self.scale == calculate_scale(self),
            "what priorities are worked out by is out of date"
        );
        ensure!(
            self.licenses_used == fresh.licenses_used,
            "index licenses_used is wrong"
        );
        ensure!(
            self.partitions_of == fresh.partitions_of,
            "index partitions_of is wrong"
        );
        Ok(())
    }
}

/// No CPU has two users, but for jobs that share (`OverSubscribe`), no more than may, and for jobs that were ordered to go
/// on while others had their CPUs.
fn check_users(name: &str, users: &[(&Job, &CpuSet, &Allocation)]) -> Result<(), String> {
    for (i, (job, cpus, alloc)) in users.iter().enumerate() {
        let mut sharers = 1;
        for (other, theirs, their_alloc) in users.iter().take(i) {
            if job.resumed || other.resumed {
                continue;
            }
            ensure!(
                !alloc.exclusive && !their_alloc.exclusive,
                "job {} has node {name} for itself, where job {} is",
                job.id,
                other.id
            );
            if !cpus.intersects(theirs) {
                continue;
            }
            sharers += 1;
            ensure!(
                alloc.sharers > 0
                    && their_alloc.sharers > 0
                    && alloc.partition == their_alloc.partition,
                "jobs {} and {} have the same CPU of node {name}",
                job.id,
                other.id
            );
        }
        // Jobs that share parts of its CPUs may be more; each CPU has its own count.
        let on_each = |cpu: u32| users.iter().filter(|(_, set, _)| set.contains(cpu)).count();
        let most = cpus.iter().map(on_each).max().unwrap_or(0);
        let resumed = users.iter().any(|(job, ..)| job.resumed);
        ensure!(
            sharers == 1 || resumed || most <= alloc.sharers as usize,
            "{most} jobs have a CPU of node {name} that {} may have",
            alloc.sharers
        );
    }
    Ok(())
}
