//! Answers to reads, from a state. Large ones leave in parts, so that a client can begin and memory stays bounded.

use crate::keys::Keys;
use crate::writer::{addresses, cluster_name, components, now};
use muster_core::alike::Records;
use muster_core::command::Identity;
use muster_core::config::{ClusterConfig, PartitionConfig};
use muster_core::cpuset::CpuSet;
use muster_core::event::Event;
use muster_core::het::HetPart;
use muster_core::ids::{JobId, NodeIdx};
use muster_core::job::{ArrayRole, Job, JobState};
use muster_core::priority::Scale;
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::reservation::{Flags, Reservation};
use muster_core::shared_spec::SpecTable;
use muster_core::state::{ArrayInfo, State};
use muster_core::time::Timestamp;
use muster_proto::client::{
    AccountsAnswer, AllocationInfo, ClusterPart, Diag, JobFilter, JobPriority, JobsPartRef,
    JobsResponse, Pong, PrioritiesAnswer, ReservationsAnswer, Response,
};
use muster_proto::frame;
use muster_sched::forecast::Forecast;
use std::collections::{BTreeSet, HashMap};

/// Records in one part of an answer.
const PART: usize = 200;
/// The same where most are told by what differs from the one before.
const PART_OF_RUNS: usize = 1000;

/// Records of the queue that match a filter, as frames. Specifications are written once.
pub(crate) fn jobs(
    state: &State,
    filter: &JobFilter,
    starts: Option<&Forecast>,
    send: &mut impl FnMut(Vec<u8>),
) {
    let mut answer = JobsAnswer {
        state,
        filter,
        part: begun(filter),
        arrays: BTreeSet::new(),
        specs: SpecTable::default(),
        scale: Scale::new(state),
        evaluated: (state.partitions.iter().zip(&state.evaluated))
            .map(|(partition, at)| (partition.name.as_str(), *at))
            .collect(),
        starts,
        send,
    };
    let active = |id| &state.jobs[id];
    match (filter.ids.is_empty(), filter.active) {
        (true, true) if !filter.uids.is_empty() => answer.add_of_owners(),
        (true, true) => answer.add_all(state.pending.union(&state.active).map(active)),
        (true, false) => answer.add_all(state.jobs.values()),
        (false, _) => answer.add_named(),
    }
    answer.leave(false);
}

/// An answer that is being written.
struct JobsAnswer<'s, S> {
    state: &'s State,
    filter: &'s JobFilter,
    part: JobsPartRef<'s>,
    /// Arrays told of so far.
    arrays: BTreeSet<JobId>,
    specs: SpecTable,
    scale: Option<Scale>,
    /// When the scheduler looked at each partition.
    evaluated: HashMap<&'s str, Timestamp>,
    starts: Option<&'s Forecast>,
    send: &'s mut S,
}

impl<'s, S: FnMut(Vec<u8>)> JobsAnswer<'s, S> {
    fn add_all(&mut self, jobs: impl Iterator<Item = &'s Job>) {
        jobs.for_each(|job| self.add(job));
    }

    /// Records of some users that are not over, without a look at those of others, nor at those that wait if they are
    /// not asked for.
    fn add_of_owners(&mut self) {
        let state = self.state;
        let states = &self.filter.states;
        if !states.is_empty() && !states.contains(&JobState::Pending) {
            return self.add_all(state.active.iter().filter_map(|id| state.jobs.get(id)));
        }
        let owned = |uid: &u32| state.by_owner.get(uid);
        let names = self.filter.uids.iter().filter_map(owned);
        let records = names.flat_map(|names| names.values().flatten());
        let ids: BTreeSet<JobId> = records.map(|(_, id)| *id).collect();
        self.add_all(ids.into_iter().filter_map(|id| state.jobs.get(&id)));
    }

    fn add_named(&mut self) {
        let state = self.state;
        let mut ids = BTreeSet::new();
        for &id in &self.filter.ids {
            let before = ids.len();
            if let Some(info) = state.arrays.get(&id) {
                ids.extend(info.tasks.values().copied());
            }
            if let Some(job) = state.jobs.get(&id) {
                ids.insert(id);
                // A leader stands for all components.
                let led = job.het.filter(|part| part.leads());
                ids.extend(led.into_iter().flat_map(HetPart::ids));
            } else if ids.len() == before && !state.arrays.contains_key(&id) {
                self.part.unknown.push(id);
            }
        }
        self.add_all(ids.into_iter().filter_map(|id| state.jobs.get(&id)));
    }

    fn add(&mut self, job: &'s Job) {
        if !matches(job, self.filter) {
            return;
        }
        let base = match job.array {
            ArrayRole::Task { base, .. } => Some(base),
            ArrayRole::Pending { .. } => Some(job.id),
            ArrayRole::None => None,
        };
        if let Some(base) = base
            && self.arrays.insert(base)
            && let Some(info) = self.state.arrays.get(&base)
        {
            self.part.arrays.push((base, info.without_tasks()));
        }
        if let Some(scale) = self
            .scale
            .as_ref()
            .filter(|_| job.state == JobState::Pending)
        {
            let place = u32::try_from(self.part.jobs.jobs.len()).unwrap_or(u32::MAX);
            let priority = self.state.priority_of(Some(scale), job);
            self.part.priorities.push((place, priority));
        }
        if let Some(start) = self.starts.and_then(|starts| starts.starts.get(&job.id)) {
            let place = u32::try_from(self.part.jobs.jobs.len()).unwrap_or(u32::MAX);
            if job.state == JobState::Pending {
                self.part.starts.push((place, start.clone()));
            }
        }
        self.add_evaluated(job);
        self.part.jobs.jobs.push(job);
        let most = match self.filter.runs {
            true => PART_OF_RUNS,
            false => PART,
        };
        if self.part.jobs.jobs.len() == most {
            self.leave(true);
        }
    }

    /// Records that follow each other were often looked at together.
    fn add_evaluated(&mut self, job: &Job) {
        if !job.is_startable() || job.priority == 0 {
            return;
        }
        let partitions = match job.spec.partitions.as_slice() {
            [] => std::slice::from_ref(&job.partition),
            several => several,
        };
        let known = partitions.iter();
        let known = known.filter_map(|name| self.evaluated.get(name.as_str()));
        let Some(&at) = known.max().filter(|at| **at >= job.submit_time) else {
            return;
        };
        let place = u32::try_from(self.part.jobs.jobs.len()).unwrap_or(u32::MAX);
        match self.part.evaluated.last_mut() {
            Some((_, end, before)) if *end == place && *before == at => *end += 1,
            _ => self.part.evaluated.push((place, place + 1, at)),
        }
    }

    /// Sends the part. What names nothing is told with the last.
    fn leave(&mut self, more: bool) {
        self.part.more = more;
        self.part.now = now();
        let unknown = if more {
            std::mem::take(&mut self.part.unknown)
        } else {
            Vec::new()
        };
        let next = JobsPartRef {
            unknown,
            ..begun(self.filter)
        };
        let part = std::mem::replace(&mut self.part, next);
        (self.send)(frame::encode_in(&JobsResponse::Jobs(part), &mut self.specs));
    }
}

/// A part without records.
fn begun<'s>(filter: &JobFilter) -> JobsPartRef<'s> {
    let jobs = Records {
        jobs: Vec::new(),
        runs: filter.runs,
    };
    JobsPartRef {
        jobs,
        ..JobsPartRef::default()
    }
}

fn matches(job: &Job, filter: &JobFilter) -> bool {
    (filter.uids.is_empty() || filter.uids.contains(&job.spec.owner.uid))
        && (!filter.active || !job.state.is_ended() || job.completing)
        && (filter.states.is_empty() || filter.states.contains(&job.state))
        && (filter.partitions.is_empty()
            || filter.partitions.contains(&job.partition)
            || job
                .spec
                .partitions
                .iter()
                .any(|p| filter.partitions.contains(p)))
}

/// Partitions and settings as listings of jobs need them, made once until one of them changes: with the first of the
/// nodes of each partition, whatever their number.
#[derive(Default)]
pub(crate) struct Head {
    made: Option<(Vec<PartitionConfig>, Option<Box<ClusterConfig>>)>,
}

impl Head {
    /// Something has happened.
    pub(crate) fn heard(&mut self, event: &Event) {
        if matches!(
            event,
            Event::Configured { .. }
                | Event::PartitionChanged { .. }
                | Event::PartitionRemoved { .. }
        ) {
            self.made = None;
        }
    }

    /// The answer.
    pub(crate) fn answer(&mut self, state: &State) -> Response {
        let (partitions, config) = self.made.get_or_insert_with(|| {
            let mut part = head(state);
            for partition in &mut part.partitions {
                partition.nodes.truncate(1);
            }
            (part.partitions, part.config)
        });
        Response::Cluster(Box::new(ClusterPart {
            partitions: partitions.clone(),
            config: config.clone(),
            now: now(),
            ..ClusterPart::default()
        }))
    }
}

fn head(state: &State) -> ClusterPart {
    let config = state.config.as_ref().map(|c| {
        Box::new(ClusterConfig {
            nodes: Vec::new(),
            partitions: Vec::new(),
            ..(**c).clone()
        })
    });
    ClusterPart {
        partitions: state.partitions.clone(),
        config,
        now: now(),
        ..ClusterPart::default()
    }
}

/// Nodes, partitions and settings.
pub(crate) fn cluster(state: &State, send: &mut impl FnMut(Response)) {
    let mut part = head(state);
    for node in state.nodes.iter().filter(|n| !n.removed) {
        if part.nodes.len() == PART {
            part.more = true;
            let next = ClusterPart {
                now: part.now,
                ..ClusterPart::default()
            };
            send(Response::Cluster(Box::new(std::mem::replace(
                &mut part, next,
            ))));
        }
        let completing = |id| state.jobs.get(id).is_some_and(|job: &Job| job.completing);
        if node.jobs.iter().any(completing) {
            part.completing.push(node.idx);
        }
        if let Some(maintenance) = reserved(state, node.idx) {
            part.reserved.push((node.idx, maintenance));
        }
        part.nodes.push(node.clone());
    }
    send(Response::Cluster(Box::new(part)));
}

/// What sacctmgr keeps, and shares.
pub(crate) fn accounts(state: &State) -> Response {
    let settings = state
        .config
        .as_ref()
        .and_then(|c| c.order.multifactor.as_ref());
    Response::Accounts(Box::new(AccountsAnswer {
        accounts: state.accounts_at(now()),
        cluster: cluster_name(state),
        fair_tree: settings.map(|s| s.fair_tree),
    }))
}

/// What pending jobs' priorities are made of.
pub(crate) fn priorities(state: &State) -> Response {
    let Some(scale) = Scale::new(state) else {
        return Response::Priorities(Box::default());
    };
    let mut answer = PrioritiesAnswer {
        settings: Some(scale.settings().clone()),
        jobs: Vec::new(),
    };
    let pending = state.pending.iter().filter_map(|id| state.jobs.get(id));
    // Those that could start, as sprio lists them.
    for job in pending.filter(|job| job.priority > 0 && job.eligible_time.is_some()) {
        for partition in job
            .spec
            .partitions
            .iter()
            .filter_map(|p| state.partition(p))
        {
            let factors = scale.factors(state, job, partition);
            let set = job.priority_fixed.then_some(job.priority);
            answer.jobs.push(JobPriority {
                job: job.id,
                array: job.task_index().map(|index| (job.submission(), index)),
                partition: partition.name.clone(),
                uid: job.spec.owner.uid,
                user: job.spec.owner.user.clone(),
                priority: set.unwrap_or_else(|| scale.kept(job, factors.priority())),
                factors,
            });
        }
    }
    Response::Priorities(Box::new(answer))
}

/// Reservations.
pub(crate) fn reservations(state: &State) -> Response {
    let mut all: Vec<&Reservation> = state.reservations.iter().collect();
    all.sort_by_key(|r| r.start);
    let mut answer = ReservationsAnswer {
        now: now(),
        ..ReservationsAnswer::default()
    };
    for reservation in all {
        let (mut cpus, mut cores) = (0, 0);
        for entry in &reservation.nodes {
            let Some(config) = state.node(entry.node).map(|n| &n.config) else {
                continue;
            };
            let of_node = config.sockets.max(1) * config.cores_per_socket.max(1);
            let threads = u64::from((config.cpus / of_node).max(1));
            let has = u64::from(entry.cpus.as_ref().map_or(config.cpus, CpuSet::len));
            cpus += has;
            cores += has / threads;
        }
        let mut reservation = reservation.clone();
        let shown = reservation.occurrences(answer.now).next();
        if let Some((start, _)) = shown {
            reservation.start = start;
        }
        answer.reservations.push(reservation);
        answer.cpus.push(cpus);
        answer.cores.push(cores);
    }
    Response::Reservations(Box::new(answer))
}

/// Whether a reservation has the node now, and whether for maintenance.
fn reserved(state: &State, node: NodeIdx) -> Option<bool> {
    let active = state.reservations.on_node(node).filter(|r| r.active);
    active
        .map(|r| r.flags.has(Flags::MAINT))
        .reduce(|a, b| a || b)
}

/// The controller, alive.
pub(crate) fn pong(state: &State, started: Timestamp) -> Pong {
    Pong {
        hostname: hostname(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: cluster_name(state),
        started,
    }
}

/// This host's name.
pub(crate) fn hostname() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|n| n.into_string().ok())
        .unwrap_or_default()
}

/// Whether someone may see or touch what is private to a job.
pub(crate) fn may_access(state: &State, identity: &Identity, job: &Job) -> bool {
    identity.uid == job.spec.owner.uid || is_admin(state, identity.uid)
}

/// Root, `SlurmUser`, and the user that the controller runs as.
pub(crate) fn is_admin(state: &State, uid: u32) -> bool {
    uid == 0
        || state
            .config
            .as_ref()
            .is_some_and(|c| c.admin_uids.contains(&uid))
}

/// A job's batch script.
pub(crate) fn script(state: &State, identity: &Identity, id: JobId) -> Response {
    let Some(job) = state.jobs.get(&id) else {
        return Response::Refused(RefusalCode::InvalidJobId.into());
    };
    if !may_access(state, identity, job) {
        return Response::Refused(RefusalCode::AccessDenied.into());
    }
    match job.spec.script.and_then(|id| state.blobs.get(&id)) {
        Some(blob) => Response::Script((*blob.bytes).clone()),
        None => Response::Refused(Refusal::new(
            RefusalCode::InvalidJobId,
            format!("job {id} has no batch script"),
        )),
    }
}

/// An allocation, for its owner.
pub(crate) fn allocation(state: &State, keys: &Keys, identity: &Identity, id: JobId) -> Response {
    let Some(job) = state.jobs.get(&id) else {
        return Response::Refused(RefusalCode::InvalidJobId.into());
    };
    if !may_access(state, identity, job) {
        return Response::Refused(RefusalCode::AccessDenied.into());
    }
    if job.state.is_ended() {
        return Response::Refused(RefusalCode::AlreadyDone.into());
    }
    match started(state, keys, job) {
        Some(response) => response,
        None => Response::Refused(RefusalCode::JobPending.into()),
    }
}

/// What a client is told of a job that has its allocation.
pub(crate) fn started(state: &State, keys: &Keys, job: &Job) -> Option<Response> {
    let alloc = job.alloc.as_ref()?;
    if state.is_configuring(job) || !matches!(job.state, JobState::Running | JobState::Suspended) {
        return None;
    }
    let array = match job.array {
        ArrayRole::Task { base, .. } => state.arrays.get(&base).map(ArrayInfo::without_tasks),
        ArrayRole::None | ArrayRole::Pending { .. } => None,
    };
    Some(Response::JobStarted(Box::new(AllocationInfo {
        addresses: addresses(state, alloc),
        key: keys.job_key(job.id, job.attempt).into(),
        cluster: cluster_name(state),
        array,
        components: components(state, job),
        job: job.clone(),
    })))
}

/// What sdiag shows of the queue.
pub(crate) fn diag(state: &State, started: Timestamp) -> Diag {
    let count = |wanted| {
        state
            .active
            .iter()
            .filter(|id| state.jobs.get(id).is_some_and(|j| j.state == wanted))
            .count()
    };
    Diag {
        now: now(),
        since: started,
        pending: state.pending.len() as u64,
        running: count(JobState::Running) as u64,
        queue: state.jobs.len() as u64,
        ..Diag::default()
    }
}
