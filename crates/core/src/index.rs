//! The indexes of the state: derived from the records, rebuilt after a snapshot or a new configuration, kept up to
//! date by every event. An event on one job costs O(log jobs).

use crate::policy::priority::calculate_scale;
use crate::state::limit_use::{AccrualTurn, Counted};
use crate::state::queue_size::QueueSize;
use crate::state::{DependencyKey, State};
use muster_model::config::PartitionConfig;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Allocation, ArrayInfo, ArrayRole, Job, JobState, Phase};
use muster_model::node::{Node, NodeLink};
use muster_model::power::{Power, PowerConfig};
use muster_model::reservation::Reservation;
use muster_model::spec::{DependencyKind, DependencyTerm, JobSpec};
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Where one record stands in the indexes.
#[derive(Default)]
pub(crate) struct Keys {
    limit: Option<Timestamp>,
    warning: Option<Timestamp>,
    begin: Option<Timestamp>,
    deadline: Option<Timestamp>,
    turn: Option<Timestamp>,
    ended: Option<Timestamp>,
    pending: bool,
    active: bool,
    live: Option<(Arc<JobSpec>, JobId)>,
    /// Its contribution.
    counted: Counted,
    /// It waits for its turn to gain age.
    accrual: Option<AccrualTurn>,
    /// It has licenses.
    pub(crate) licenses: Option<Arc<Allocation>>,
    /// In order, each once.
    waits_for: Vec<DependencyKey>,
    /// The submission that it belongs to, if it waits for earlier ones of its name.
    singleton: Option<JobId>,
}

/// The contribution of a record to its array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) running: u32,
    pub(crate) pending: u32,
    pub(crate) unfinished: u32,
    pub(crate) failed: u32,
    pub(crate) unstarted: u32,
}

impl Counts {
    /// The contribution of `job`.
    pub(crate) fn of(job: &Job) -> Counts {
        let tasks = match &job.array {
            ArrayRole::None => return Counts::default(),
            ArrayRole::Task { .. } => 1,
            ArrayRole::Pending { indices } => u32::try_from(indices.len()).unwrap_or(u32::MAX),
        };
        let phase = job.phase();
        let in_record = matches!(job.array, ArrayRole::Pending { .. }) && phase == Phase::Pending;
        let when = |yes: bool| if yes { tasks } else { 0 };
        Counts {
            running: when(matches!(phase, Phase::Running | Phase::Suspended)),
            pending: when(in_record),
            unfinished: when(phase != Phase::Ended),
            failed: when(phase == Phase::Ended && job.state != JobState::Completed),
            unstarted: when(job.attempt.0 == 0 && !job.state.is_ended()),
        }
    }

    /// The counts of an array.
    pub(crate) fn of_array(info: &ArrayInfo) -> Counts {
        Counts {
            running: info.running,
            pending: info.pending,
            unfinished: info.unfinished,
            failed: info.failed,
            unstarted: info.unstarted,
        }
    }

    /// These counts after a record that counted for `before` came to count for `after`.
    pub(crate) fn moved(self, before: Counts, after: Counts) -> Counts {
        let shift =
            |now: u32, minus: u32, plus: u32| now.saturating_sub(minus).saturating_add(plus);
        Counts {
            running: shift(self.running, before.running, after.running),
            pending: shift(self.pending, before.pending, after.pending),
            unfinished: shift(self.unfinished, before.unfinished, after.unfinished),
            failed: shift(self.failed, before.failed, after.failed),
            unstarted: shift(self.unstarted, before.unstarted, after.unstarted),
        }
    }

    /// Writes them to an array.
    pub(crate) fn store(self, info: &mut ArrayInfo) {
        info.running = self.running;
        info.pending = self.pending;
        info.unfinished = self.unfinished;
        info.failed = self.failed;
        info.unstarted = self.unstarted;
    }
}

/// The key under which `job` waits for what `term` names; `None` for `singleton`.
pub(crate) fn dependency_key(job: &Job, term: &DependencyTerm) -> Option<DependencyKey> {
    match term {
        DependencyTerm::Singleton => None,
        DependencyTerm::Job {
            kind: DependencyKind::AfterCorr,
            job: target,
            task: None,
            ..
        } => Some(DependencyKey::new(*target, job.task_index())),
        DependencyTerm::Job {
            job: target, task, ..
        } => Some(DependencyKey::new(*target, *task)),
    }
}

impl State {
    /// When the job's limit or deadline ends it, `OverTimeLimit` and suspensions included; `None` if nothing does or
    /// the job does not run.
    pub fn limit_end(&self, job: &Job) -> Option<Timestamp> {
        if job.state != JobState::Running || job.completing {
            return None;
        }
        let over_s = u64::from(self.over_time_limit_min(&job.partition)) * 60;
        // While its nodes are powered up its time has not begun.
        let by_limit = job.time_limit_end().filter(|_| job.power_up.is_none());
        let by_limit = by_limit.map(|end| end.plus_s(over_s));
        [by_limit, job.spec.deadline, job.end_by, job.grace_end()]
            .into_iter()
            .flatten()
            .min()
    }

    fn over_time_limit_min(&self, partition: &str) -> u32 {
        self.partition(partition)
            .and_then(|p| p.over_time_limit_min)
            .or(self.config.as_ref().and_then(|c| c.over_time_limit_min))
            .unwrap_or(0)
    }

    /// Where `job` stands in the indexes.
    pub(crate) fn keys_of(&self, job: &Job) -> Keys {
        let phase = job.phase();
        let mut keys = Keys {
            counted: self.counted(job),
            active: matches!(
                phase,
                Phase::Running | Phase::Suspended | Phase::Completing | Phase::Requeueing
            ),
            pending: phase == Phase::Pending,
            ..Keys::default()
        };
        if phase == Phase::Ended {
            keys.ended = Some(job.end_time.unwrap_or(job.submit_time));
            return keys;
        }
        keys.live = Some((job.spec.clone(), job.submitted_as()));
        if keys.active {
            let alloc = job.alloc.as_ref().filter(|a| !a.licenses.is_empty());
            keys.licenses = alloc.cloned();
        }
        if phase == Phase::Running {
            keys.limit = self.limit_end(job);
            keys.warning = job.warning_time();
        }
        if phase == Phase::Suspended {
            keys.turn = job.gang_slice_ends;
        }
        if phase == Phase::Pending {
            keys.begin = job.begin_at;
            keys.accrual = self.accrual_key(job);
            keys.deadline = job.too_late_at();
            let singleton = job.waiting_on.contains(&DependencyTerm::Singleton);
            keys.singleton = singleton.then(|| job.submitted_as());
            keys.waits_for = job
                .waiting_on
                .iter()
                .filter_map(|term| dependency_key(job, term))
                .collect();
            keys.waits_for.sort_unstable();
            keys.waits_for.dedup();
        }
        keys
    }

    /// Updates the indexes as a record changes.
    pub(crate) fn reindex(&mut self, id: JobId, before: &Keys, after: &Keys) {
        shift(&mut self.by_limit, id, before.limit, after.limit);
        shift(&mut self.by_warning, id, before.warning, after.warning);
        shift(&mut self.by_begin, id, before.begin, after.begin);
        shift(&mut self.by_deadline, id, before.deadline, after.deadline);
        shift(&mut self.by_turn, id, before.turn, after.turn);
        shift(&mut self.ended, id, before.ended, after.ended);
        flip(&mut self.pending, id, before.pending, after.pending);
        flip(&mut self.active, id, before.active, after.active);
        self.shift_counted(&before.counted, &after.counted);
        self.shift_accrual(id, before.accrual.as_ref(), after.accrual.as_ref());
        if before.licenses.is_some() != after.licenses.is_some() {
            self.shift_licenses(before.licenses.as_deref(), after.licenses.as_deref());
        }
        if before.singleton != after.singleton {
            let entry = |submission| (submission, id);
            before.singleton.map(|s| self.singletons.remove(&entry(s)));
            after.singleton.map(|s| self.singletons.insert(entry(s)));
        }
        if before.waits_for != after.waits_for {
            let (old, new) = (&before.waits_for, &after.waits_for);
            shift_dependent(&mut self.dependents, id, old, new);
        }
        let same = match (&before.live, &after.live) {
            (None, None) => true,
            (Some((a, base_a)), Some((b, base_b))) => Arc::ptr_eq(a, b) && base_a == base_b,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            if let Some((spec, submission)) = &before.live {
                self.leave_owner(spec, (*submission, id));
            }
            if let Some((spec, submission)) = &after.live {
                self.join_owner(spec, (*submission, id));
            }
        }
    }

    fn join_owner(&mut self, spec: &JobSpec, entry: (JobId, JobId)) {
        for name in spec.reservations() {
            let jobs = self.by_reservation.entry(name.to_owned()).or_default();
            jobs.insert(entry.1);
        }
        let names = self.by_owner.entry(spec.owner.uid).or_default();
        match names.get_mut(spec.name.as_str()) {
            Some(set) => {
                set.insert(entry);
            }
            None => {
                names.insert(spec.name.clone(), BTreeSet::from([entry]));
            }
        }
    }

    fn leave_owner(&mut self, spec: &JobSpec, entry: (JobId, JobId)) {
        for name in spec.reservations() {
            if let Some(jobs) = self.by_reservation.get_mut(name) {
                jobs.remove(&entry.1);
                if jobs.is_empty() {
                    self.by_reservation.remove(name);
                }
            }
        }
        let Some(names) = self.by_owner.get_mut(&spec.owner.uid) else {
            return;
        };
        if let Some(set) = names.get_mut(spec.name.as_str()) {
            set.remove(&entry);
            if set.is_empty() {
                names.remove(spec.name.as_str());
            }
        }
        if names.is_empty() {
            self.by_owner.remove(&spec.owner.uid);
        }
    }

    /// Builds every index from the records.
    pub(crate) fn rebuild_indexes(&mut self) {
        self.node_by_name = self
            .nodes
            .iter()
            .map(|n| (n.config.name.clone(), n.idx))
            .collect();
        self.by_limit = BTreeSet::new();
        self.by_warning = BTreeSet::new();
        self.by_begin = BTreeSet::new();
        self.by_deadline = BTreeSet::new();
        self.by_turn = BTreeSet::new();
        self.ended = BTreeSet::new();
        self.pending = BTreeSet::new();
        self.active = BTreeSet::new();
        self.dependents = BTreeMap::new();
        self.singletons = BTreeSet::new();
        self.by_owner = BTreeMap::new();
        self.specs = HashMap::default();
        self.by_reservation = BTreeMap::new();
        self.licenses_used = BTreeMap::new();
        self.limit_use = BTreeMap::new();
        self.accrual_waiting = BTreeMap::new();
        let jobs = std::mem::take(&mut self.jobs);
        for (id, job) in jobs.iter() {
            let keys = self.keys_of(job);
            self.reindex(*id, &Keys::default(), &keys);
        }
        for job in jobs.values().filter(|job| job.id == job.submission()) {
            match self.specs.get_mut(&job.spec) {
                Some(submissions) => *submissions += 1,
                None => drop(self.specs.insert(job.spec.clone(), 1)),
            }
        }
        self.jobs = jobs;
        self.lost_nodes = self
            .nodes
            .iter()
            .filter_map(|n| lost_key(n).map(|since| (since, n.idx)))
            .collect();
        let power = self.config.as_ref().and_then(|c| c.power.as_ref());
        self.power_due = power.map_or_else(BTreeSet::new, |config| {
            let due = self.nodes.iter();
            due.filter_map(|n| Some((power_due(n, config)?, n.idx)))
                .collect()
        });
        self.queue_size = QueueSize::count(self);
        self.index_partitions();
        self.scale = calculate_scale(self);
    }

    fn index_partitions(&mut self) {
        let mut of = vec![Vec::new(); self.nodes.len()];
        let by_name: HashMap<&str, NodeIdx> = self
            .node_by_name
            .iter()
            .map(|(n, i)| (n.as_str(), *i))
            .collect();
        for (position, partition) in self.partitions.iter().enumerate() {
            for idx in partition
                .nodes
                .iter()
                .filter_map(|n| by_name.get(n.as_str()))
            {
                let list: &mut Vec<usize> = &mut of[idx.0 as usize];
                if list.last() != Some(&position) {
                    list.push(position);
                }
            }
        }
        self.partitions_of = of;
    }

    /// A node whose jobs are about to change, for [`State::power_moved`].
    pub(crate) fn power_key(&self, idx: NodeIdx) -> Option<Timestamp> {
        let power = self.config.as_ref()?.power.as_ref()?;
        power_due(self.nodes.get(idx.0 as usize)?, power)
    }

    /// Jobs came to a node or left it.
    pub(crate) fn power_moved(&mut self, idx: NodeIdx, before: Option<Timestamp>) {
        let after = self.power_key(idx);
        shift(&mut self.power_due, idx, before, after);
    }

    /// The earliest time at which `Tick` would do something, `now` if it is overdue. A purge that is overdue (the
    /// accounting lags), and power saving that waits for something, is asked for once a second.
    pub fn next_tick(&self, now: Timestamp) -> Option<Timestamp> {
        let timeout_s = self.config.as_ref().map_or(0, |c| c.node_timeout_s);
        let lost = self
            .lost_nodes
            .first()
            .filter(|_| timeout_s > 0)
            .map(|(since, _)| since.plus_s(u64::from(timeout_s)));
        let due = [
            &self.by_limit,
            &self.by_warning,
            &self.by_begin,
            &self.by_deadline,
            &self.by_turn,
        ]
        .into_iter()
        .filter_map(|index| index.first().map(|(time, _)| *time))
        .chain(lost)
        .chain(self.reservations.iter().map(Reservation::next_change))
        .chain(self.partitions.iter().filter_map(calendar_due))
        .chain(self.priorities_due())
        .chain(self.triggers.next_due())
        .min()
        .map(|time| time.max(now));
        // Changes that power saving could not make yet wait for a rate, or stay as they are.
        let put_off = |time: Timestamp| if time <= now { now.plus_s(1) } else { time };
        let power = self.power_due.first().map(|(time, _)| put_off(*time));
        let purge = self.next_purge().map(put_off);
        [due, purge, power].into_iter().flatten().min()
    }

    /// Whether jobs old enough are left after a purge (`PURGE_MAX` each).
    pub fn purge_is_due(&self, now: Timestamp) -> bool {
        self.next_purge().is_some_and(|at| at <= now)
    }

    /// When the job that ended first may leave; `MinJobAge=0` keeps all.
    fn next_purge(&self) -> Option<Timestamp> {
        let age_s = self.config.as_ref().map_or(0, |c| c.min_job_age_s);
        let (ended, _) = self.ended.first().filter(|_| age_s > 0)?;
        Some(ended.plus_s(u64::from(age_s)))
    }
}

/// When the calendar of a partition is to be asked.
fn calendar_due(partition: &PartitionConfig) -> Option<Timestamp> {
    partition.calendar.as_ref()?.next_change
}

/// When power saving has something to do with it, a rate permitting.
pub(crate) fn power_due(node: &Node, config: &PowerConfig) -> Option<Timestamp> {
    if node.removed {
        return None;
    }
    let after = |at: Timestamp, s: u32| Some(at.plus_s(u64::from(s)));
    match node.power {
        Some(Power::DownWanted { .. }) => node.jobs.is_empty().then_some(Timestamp(0)),
        Some(Power::GoingDown { at, .. }) => after(at, config.suspend_timeout_s),
        Some(Power::Down) => None,
        Some(Power::UpWanted) => Some(Timestamp(0)),
        Some(Power::GoingUp { at }) => after(at, config.resume_timeout_s),
        None if !node.jobs.is_empty() || node.config.stays_up == Some(true) => None,
        None if node.future => None,
        None => after(node.last_busy?, config.suspend_time_s?),
    }
}

/// Since when it is lost without being down yet.
pub(crate) fn lost_key(node: &Node) -> Option<Timestamp> {
    match node.link {
        // A node that is powered down is meant to be silent.
        NodeLink::Lost(since) if !node.down && !node.removed && node.power.is_none() => Some(since),
        NodeLink::Lost(_) | NodeLink::Never | NodeLink::Up => None,
    }
}

/// A job waits for other records than before. Both lists are in order; what stays of a long one is not touched.
fn shift_dependent(
    dependents: &mut BTreeMap<DependencyKey, BTreeSet<JobId>>,
    id: JobId,
    before: &[DependencyKey],
    after: &[DependencyKey],
) {
    let mut kept = after.iter().peekable();
    let gone = before.iter().filter(|key| kept.next_if_eq(key).is_none());
    let gone: Vec<&DependencyKey> = gone.collect();
    let new: Vec<&DependencyKey> = kept.collect();
    for key in gone {
        if let Some(waiting) = dependents.get_mut(key) {
            waiting.remove(&id);
            if waiting.is_empty() {
                dependents.remove(key);
            }
        }
    }
    for key in new {
        dependents.entry(*key).or_default().insert(id);
    }
}

/// Moves an entry of an index by time.
pub(crate) fn shift<Id: Ord + Copy>(
    index: &mut BTreeSet<(Timestamp, Id)>,
    id: Id,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
) {
    if before == after {
        return;
    }
    if let Some(time) = before {
        index.remove(&(time, id));
    }
    if let Some(time) = after {
        index.insert((time, id));
    }
}

fn flip(index: &mut BTreeSet<JobId>, id: JobId, before: bool, after: bool) {
    match (before, after) {
        (false, true) => {
            index.insert(id);
        }
        (true, false) => {
            index.remove(&id);
        }
        (true, true) | (false, false) => {}
    }
}
