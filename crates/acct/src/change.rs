//! Changes of accounting's rows by events. They are values of their own: they share the job's specification
//! and allocation and need nothing of the state any more, so the job may leave the queue before they are
//! written.

use minicbor::bytes::ByteVec;
use muster_core::event::{AccountsChange, Event, JobChange, NodeChange};
use muster_core::state::State;
use muster_model::account_limits::TresAmount;
use muster_model::accounts::{JobNote, Transaction};
use muster_model::cpuset::CpuSet;
use muster_model::het::HetPlace;
use muster_model::ids::{BlobId, JobId, StepNo};
use muster_model::job::ArrayTask;
use muster_model::job::{
    AfterCompleting, Allocation, ArrayRole, ExitStatus, Job, JobState, Reason, Step, StepEnd,
};
use muster_model::licenses::{self, Counts, LicenseCount};
use muster_model::node::{Node, NodeReason};
use muster_model::node_state::ServiceState;
use muster_model::reservation::{Reservation, ReservedNode};
use muster_model::spec::{ArraySpec, JobKind, JobSpec, MemoryAsk};
use muster_model::storage::StorageScan;
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::acct::{JobTextKind, ReservationRecord};
use std::sync::Arc;

/// A run of a job: its number and how often it had been requeued or made smaller before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The job.
    pub job: JobId,
    /// [`Job::restarts`] and [`Job::resizes`] during the run.
    pub number: u32,
}

/// One thing to write. Writing the same changes again, in order, changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum AccountingChange {
    /// A run as it is now; everything about it may be new.
    Job(Box<JobRow>),
    /// A run as it is now; only the fields of [`JobRow`] about its life are new, not its request.
    Run(Box<JobRow>),
    /// A run begins anew in the queue: like `Job`, and steps that are stored for it are of a launch that failed.
    Fresh(Box<JobRow>),
    /// Script or environment of a job, as the site has it kept.
    Text {
        /// The run.
        run: RunKey,
        /// Which of its texts.
        kind: JobTextKind,
        /// By content.
        id: BlobId,
        /// The text.
        bytes: Arc<ByteVec>,
    },
    /// A step began.
    StepStarted {
        /// The run it is of.
        run: RunKey,
        /// The step.
        step: Arc<Step>,
    },
    /// A step ended.
    StepEnded {
        /// The run it is of.
        run: RunKey,
        /// The step.
        step: StepNo,
        /// End of the step.
        end: Box<StepEnd>,
        /// The worst status of the job's steps now, if this may have changed it.
        derived_exit: Option<ExitStatus>,
    },
    /// The run was stopped.
    Suspended {
        /// The run.
        run: RunKey,
        /// When.
        at: Timestamp,
    },
    /// It goes on.
    Resumed {
        /// The run.
        run: RunKey,
        /// When.
        at: Timestamp,
    },
    /// The run goes on as another, with fewer nodes, and the steps that run with it.
    Resized {
        /// The run that is over.
        run: RunKey,
        /// When.
        at: Timestamp,
        /// The run that follows it.
        next: Box<JobRow>,
    },
    /// A node's new service state.
    Node(Box<NodeServiceRow>),
    /// State of a reservation now.
    Reservation(Box<ReservationRow>),
    /// A user changed records of accounting.
    Transaction {
        /// The user and the change.
        transaction: Box<Transaction>,
        /// When.
        at: Timestamp,
    },
    /// Texts of a job that is over.
    JobNoted {
        /// The job.
        job: JobId,
        /// The only user whose job is changed.
        owner: Option<u32>,
        /// The texts.
        note: Box<JobNote>,
    },
    /// Use of a file system by users.
    Storage {
        /// The file system.
        name: String,
        /// The scan.
        scan: Box<StorageScan>,
    },
}

/// A run of a job, as [`muster_proto::acct::AcctJob`] needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Which run.
    pub key: RunKey,
    /// The request.
    pub spec: Arc<JobSpec>,
    /// The array it is a task of, and its index.
    pub array: Option<ArrayTask>,
    /// Its place in a heterogeneous job.
    pub het: Option<HetPlace>,
    /// It is the record of an array's tasks that have none of their own.
    pub array_record: bool,
    /// State.
    pub state: JobState,
    /// The run ended by going back into the queue.
    pub requeued: bool,
    /// Uid of who cancelled it.
    pub cancelled_by: Option<u32>,
    /// Its exit status.
    pub exit: ExitStatus,
    /// The worst status of its steps.
    pub derived_exit: ExitStatus,
    /// When it was submitted.
    pub submit: Timestamp,
    /// When it could first have run.
    pub eligible: Option<Timestamp>,
    /// When it started.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub end: Option<Timestamp>,
    /// Milliseconds it was suspended.
    pub suspended_ms: u64,
    /// Its limit.
    pub time_limit: TimeLimit,
    /// Memory asked for over all nodes, MiB.
    pub req_mem_mib: u64,
    /// Its allocation.
    pub alloc: Option<Arc<Allocation>>,
    /// Licenses that it asks for, as trackable resources; of alternatives none.
    pub req_licenses: Vec<TresAmount>,
    /// Licenses that it has, likewise.
    pub licenses: Vec<TresAmount>,
    /// Partition.
    pub partition: String,
    /// Why it waits or ended.
    pub reason: Reason,
    /// Priority.
    pub priority: u32,
}

/// Whether a node is in service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeServiceRow {
    /// Its name.
    pub node: String,
    /// Since when it is so.
    pub at: Timestamp,
    /// Whether it takes jobs.
    pub service: ServiceState,
    /// Why it is not in service.
    pub reason: Option<NodeReason>,
}

/// A reservation that was made, changed or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRow {
    /// Its name.
    pub name: String,
    /// When.
    pub at: Timestamp,
    /// As it is since; absent once it is gone.
    pub set: Option<ReservationRecord>,
}

/// The changes of accounting by `event`. `state` is the state after the event was applied, and no later one.
pub fn changes(state: &State, event: &Event) -> Vec<AccountingChange> {
    let mut all = meant(state, event);
    if leaves_out(state) {
        all.retain(|change| is_kept(state, change));
    }
    all
}

/// Whether the site wants no rows of jobs, or of steps.
fn leaves_out(state: &State) -> bool {
    let config = state.config.as_ref();
    config.is_some_and(|c| c.order.no_job_rows || c.order.no_step_rows)
}

fn is_kept(state: &State, change: &AccountingChange) -> bool {
    let order = state.config.as_ref().map(|c| &c.order);
    let jobs = order.is_none_or(|order| !order.no_job_rows);
    match change {
        AccountingChange::Node(_)
        | AccountingChange::Reservation(_)
        | AccountingChange::Transaction { .. }
        | AccountingChange::Storage { .. } => true,
        AccountingChange::StepStarted { .. } | AccountingChange::StepEnded { .. } => {
            jobs && order.is_none_or(|order| !order.no_step_rows)
        }
        AccountingChange::Job(_)
        | AccountingChange::Run(_)
        | AccountingChange::Fresh(_)
        | AccountingChange::Text { .. }
        | AccountingChange::Suspended { .. }
        | AccountingChange::Resumed { .. }
        | AccountingChange::Resized { .. }
        | AccountingChange::JobNoted { .. } => jobs,
    }
}

fn meant(state: &State, event: &Event) -> Vec<AccountingChange> {
    let job = |id: &JobId| state.jobs.get(id);
    match event {
        Event::JobSubmitted { id, .. } => {
            let mut changes = whole(state, job(id));
            changes.extend(job(id).into_iter().flat_map(|job| texts(state, job)));
            changes
        }
        // The array's own record needs no change: its tasks are those that have no row of their own.
        Event::TaskSplit { id, .. } => whole(state, job(id)),
        Event::JobChanged { id, change, .. } => match change {
            JobChange::Spec(_) | JobChange::SpecOf(_) => whole(state, job(id)),
            JobChange::Resized(_) => job(id)
                .into_iter()
                .flat_map(|j| resized(state, j))
                .collect(),
            JobChange::Warned | JobChange::TermSent | JobChange::Requeueable(_) => Vec::new(),
            // The row of a run that is over keeps what its end said.
            _ => running(state, job(id).filter(|job| job.end_time.is_none())),
        },
        Event::JobStarted { id, .. } => {
            let mut changes = running(state, job(id));
            // A batch job's script is a step from the start.
            changes.extend(job(id).into_iter().flat_map(open_steps));
            changes
        }
        Event::JobEnding { id, .. } => running(state, job(id)),
        Event::JobRequeued { id, .. } => job(id)
            .map(|job| AccountingChange::Fresh(Box::new(JobRow::of(state, job))))
            .into_iter()
            .collect(),
        Event::JobSuspended { id, at, .. } => {
            change_of_run(job(id), |run| AccountingChange::Suspended { run, at: *at })
                .chain(running(state, job(id)))
                .collect()
        }
        Event::JobResumed { id, at } => {
            change_of_run(job(id), |run| AccountingChange::Resumed { run, at: *at })
                .chain(running(state, job(id)))
                .collect()
        }
        Event::StepStarted { id, step } => {
            change_of_run(job(id), |run| AccountingChange::StepStarted {
                run,
                step: Arc::clone(step),
            })
            .collect()
        }
        Event::StepEnded { id, step, end } => {
            let worst = job(id)
                .filter(|job| *step != StepNo::BATCH && !job.derived_exit.is_ok())
                .map(|job| job.derived_exit);
            change_of_run(job(id), |run| AccountingChange::StepEnded {
                run,
                step: *step,
                end: end.clone(),
                derived_exit: worst,
            })
            .collect()
        }
        Event::Configured { at, .. } => {
            state.nodes.iter().map(|node| node_now(node, *at)).collect()
        }
        Event::NodesCreated { nodes, at } => {
            let created = nodes.iter().map(|(idx, _)| idx.0);
            created
                .flat_map(|idx| node_change(state, idx, *at))
                .collect()
        }
        Event::NodesDeleted { nodes, at } => {
            let deleted = nodes.iter().map(|idx| idx.0);
            deleted
                .flat_map(|idx| node_change(state, idx, *at))
                .collect()
        }
        Event::NodeRegistered { node, at, .. } => node_change(state, node.0, *at),
        Event::NodeChanged { node, change, at } => match change {
            NodeChange::LinkLost
            | NodeChange::Health { .. }
            | NodeChange::Weight(_)
            | NodeChange::CpuBind(_)
            | NodeChange::Features(_)
            | NodeChange::Taken(_)
            | NodeChange::Comment(_) => Vec::new(),
            _ => node_change(state, node.0, *at),
        },
        Event::AccountsChanged { changes, at, log } => edited(changes, log, *at),
        Event::ReservationSet { reservation, at } => {
            let change = at.and_then(|at| reservation_set(state, reservation, at));
            change.into_iter().collect()
        }
        Event::ReservationGone { name, at } => {
            let now = ReservationRow {
                name: name.clone(),
                at: *at,
                set: None,
            };
            vec![AccountingChange::Reservation(Box::new(now))]
        }
        Event::BlobStored { .. }
        | Event::NodeReleased { .. }
        | Event::JobsPurged { .. }
        | Event::PartitionChanged { .. }
        | Event::PartitionRemoved { .. }
        | Event::ReservationStarted { .. }
        | Event::CrontabSet { .. }
        | Event::TriggersChanged { .. }
        | Event::PrioritiesCalculated { .. } => Vec::new(),
    }
}

/// A reservation as it is; none of one that never begins, since its begin moves on with time.
fn reservation_set(
    state: &State,
    reservation: &Reservation,
    at: Timestamp,
) -> Option<AccountingChange> {
    if reservation.float_s.is_some() {
        return None;
    }
    let of_node = |entry: &ReservedNode| {
        let node = state.node(entry.node)?;
        let cpus = entry.cpus.as_ref();
        Some(u64::from(cpus.map_or(node.config.cpus, CpuSet::len)))
    };
    let denied = |is_denied: bool, names: &[String]| match is_denied {
        true => names.iter().map(|name| format!("-{name}")).collect(),
        false => names.to_vec(),
    };
    let set = ReservationRecord {
        name: reservation.name.clone(),
        start: reservation.start,
        end: reservation.end,
        is_over: false,
        nodes: reservation.hostlist.clone(),
        cpus: reservation.nodes.iter().filter_map(of_node).sum(),
        flags: reservation.flags,
        users: denied(reservation.users_denied, &reservation.users).join(","),
        accounts: denied(reservation.accounts_denied, &reservation.accounts).join(","),
    };
    Some(AccountingChange::Reservation(Box::new(ReservationRow {
        name: reservation.name.clone(),
        at,
        set: Some(set),
    })))
}

/// Changes of accounting with their users, and texts of jobs.
fn edited(changes: &[AccountsChange], log: &[Transaction], at: Timestamp) -> Vec<AccountingChange> {
    let notes = changes.iter().filter_map(|change| match change {
        AccountsChange::JobNoted { job, owner, note } => Some(AccountingChange::JobNoted {
            job: *job,
            owner: *owner,
            note: Box::new(note.clone()),
        }),
        AccountsChange::StorageRecorded { name, scan } => Some(AccountingChange::Storage {
            name: name.clone(),
            scan: Box::new(scan.clone()),
        }),
        _ => None,
    });
    let log = log.iter().map(|transaction| AccountingChange::Transaction {
        transaction: Box::new(transaction.clone()),
        at,
    });
    notes.chain(log).collect()
}

/// Everything that the state knows, for a store that is new or whose position the journal does not reach back to.
/// Jobs that left the queue meanwhile are not in it.
pub fn resync(state: &State, now: Timestamp) -> Vec<AccountingChange> {
    let nodes = state.nodes.iter().map(|node| node_now(node, now));
    let jobs = state.jobs.values().flat_map(|job| {
        let mut row = JobRow::of(state, job);
        if let (ArrayRole::Pending { indices }, Some(array)) = (&job.array, &job.spec.array) {
            // Tasks that were purged left no row that could be counted off.
            let left = ArraySpec {
                indices: indices.clone(),
                ..array.clone()
            };
            row.spec = Arc::new(JobSpec {
                array: Some(left),
                ..(*job.spec).clone()
            });
        }
        let suspended = job
            .suspend_time
            .map(|at| AccountingChange::Suspended { run: row.key, at });
        std::iter::once(AccountingChange::Job(Box::new(row)))
            .chain(texts(state, job))
            .chain(suspended)
            .chain(open_steps(job))
    });
    let reservations = state.reservations.iter();
    let reservations = reservations.filter_map(|known| reservation_set(state, known, now));
    let all = nodes.chain(jobs).chain(reservations);
    all.filter(|change| is_kept(state, change)).collect()
}

fn whole(state: &State, job: Option<&Job>) -> Vec<AccountingChange> {
    job.map(|job| AccountingChange::Job(Box::new(JobRow::of(state, job))))
        .into_iter()
        .collect()
}

/// Texts of a batch job that the site has kept. Tasks of an array have those of its record.
fn texts(state: &State, job: &Job) -> Vec<AccountingChange> {
    let Some(order) = state.config.as_ref().map(|config| &config.order) else {
        return Vec::new();
    };
    if job.spec.kind != JobKind::Batch {
        return Vec::new();
    }
    let wanted = [
        (JobTextKind::Script, order.keeps_scripts, job.spec.script),
        (
            JobTextKind::Environment,
            order.keeps_environments,
            job.spec.context,
        ),
    ];
    let kept = wanted.into_iter().filter(|(_, is_kept, _)| *is_kept);
    kept.filter_map(|(kind, _, id)| {
        let id = id?;
        Some(AccountingChange::Text {
            run: RunKey::of(job),
            kind,
            id,
            bytes: Arc::clone(&state.blobs.get(&id)?.bytes),
        })
    })
    .collect()
}

fn running(state: &State, job: Option<&Job>) -> Vec<AccountingChange> {
    job.map(|job| AccountingChange::Run(Box::new(JobRow::of(state, job))))
        .into_iter()
        .collect()
}

fn resized(state: &State, job: &Job) -> Option<AccountingChange> {
    let next = JobRow::of(state, job);
    Some(AccountingChange::Resized {
        run: RunKey {
            number: next.key.number.checked_sub(1)?,
            ..next.key
        },
        at: job.resize_time?,
        next: Box::new(next),
    })
}

fn change_of_run(
    job: Option<&Job>,
    make: impl FnOnce(RunKey) -> AccountingChange,
) -> std::option::IntoIter<AccountingChange> {
    job.map(RunKey::of).map(make).into_iter()
}

fn open_steps(job: &Job) -> impl Iterator<Item = AccountingChange> {
    job.steps.iter().map(|step| AccountingChange::StepStarted {
        run: RunKey::of(job),
        step: Arc::clone(step),
    })
}

fn node_change(state: &State, index: u32, at: Timestamp) -> Vec<AccountingChange> {
    state
        .nodes
        .get(index as usize)
        .map(|node| node_now(node, at))
        .into_iter()
        .collect()
}

fn node_now(node: &Node, at: Timestamp) -> AccountingChange {
    AccountingChange::Node(Box::new(NodeServiceRow {
        node: node.config.name.clone(),
        at,
        // Nobody misses a node that is not there yet.
        service: match node.removed || node.future {
            true => ServiceState::default(),
            false => node.service(),
        },
        reason: node.reason.clone(),
    }))
}

impl RunKey {
    /// The run that a job is in, or was in last.
    pub fn of(job: &Job) -> RunKey {
        RunKey {
            job: job.id,
            number: job.restarts + job.resizes,
        }
    }
}

impl JobRow {
    /// A job as it is now.
    pub fn of(state: &State, job: &Job) -> JobRow {
        let requeued =
            job.completing && matches!(job.after_completing, AfterCompleting::Requeue { .. });
        JobRow {
            key: RunKey::of(job),
            spec: job.spec.clone(),
            array: job.array.task(),
            het: job.het,
            array_record: matches!(job.array, ArrayRole::Pending { .. }),
            state: match job.reason {
                Reason::NodeDown if requeued => JobState::NodeFail,
                _ => job.state,
            },
            requeued,
            cancelled_by: job.cancelled_by,
            exit: job.exit,
            derived_exit: job.derived_exit,
            submit: job.submit_time,
            eligible: job.eligible_time,
            start: job.resize_time.or(job.start_time),
            end: job.end_time,
            suspended_ms: job.suspended_ms,
            time_limit: job.time_limit,
            req_mem_mib: memory_asked(state, job),
            req_licenses: license_tres(state, &licenses_asked(&job.spec)),
            licenses: (job.alloc.as_ref())
                .map(|alloc| license_tres(state, &alloc.licenses))
                .unwrap_or_default(),
            alloc: job.alloc.clone(),
            partition: job.partition.clone(),
            reason: job.reason,
            priority: match job.state {
                JobState::Pending => state.priority_of(state.scale.as_ref(), job),
                _ => job.priority,
            },
        }
    }
}

/// The licenses of a request. It is not known which of alternatives it gets.
fn licenses_asked(spec: &JobSpec) -> Counts {
    let asked = spec.licenses.as_deref().and_then(licenses::parse_ask);
    match asked.as_deref() {
        Some([one]) => one.clone(),
        _ => Counts::new(),
    }
}

fn license_tres(state: &State, counts: &[LicenseCount]) -> Vec<TresAmount> {
    let config = state.config.as_ref();
    config.map_or_else(Vec::new, |config| config.license_tres(counts))
}

/// Memory asked for over all nodes, MiB. No particular amount is all that the nodes have.
fn memory_asked(state: &State, job: &Job) -> u64 {
    let ask = &job.spec.ask;
    let partition = || state.partitions.iter().find(|p| p.name == job.partition);
    let default = || {
        partition()
            .map(|p| p.default_memory)
            .filter(|memory| *memory != MemoryAsk::Default)
            .or_else(|| state.config.as_ref().map(|config| config.default_memory))
            .unwrap_or_default()
    };
    match ask.memory {
        MemoryAsk::Default => match default() {
            MemoryAsk::Default | MemoryAsk::PerNode(0) => whole_nodes(state, job),
            memory => total(memory, job),
        },
        MemoryAsk::PerNode(0) => whole_nodes(state, job),
        memory => total(memory, job),
    }
}

/// Memory of the nodes that it got, or of as many as it needs of its partition, MiB.
fn whole_nodes(state: &State, job: &Job) -> u64 {
    let memory = |node: &Node| node.config.memory_mib;
    if let Some(alloc) = &job.alloc {
        let nodes = alloc
            .nodes
            .iter()
            .filter_map(|share| state.node(share.node));
        return nodes.map(memory).sum();
    }
    let first = state
        .partition(&job.partition)
        .and_then(|p| p.nodes.first());
    let node = first.and_then(|name| state.node_named(name));
    node.map_or(0, memory)
        .saturating_mul(u64::from(job.spec.ask.min_nodes.max(1)))
}

fn total(memory: MemoryAsk, job: &Job) -> u64 {
    let ask = &job.spec.ask;
    match memory {
        MemoryAsk::Default => 0,
        MemoryAsk::PerNode(mib) => {
            let nodes = job.alloc.as_ref().map(|alloc| alloc.nodes.len() as u64);
            mib.saturating_mul(nodes.unwrap_or(u64::from(ask.min_nodes)))
        }
        MemoryAsk::PerCpu(mib) => {
            let cpus = job.alloc.as_ref().map(|alloc| alloc.cpus());
            mib.saturating_mul(cpus.unwrap_or(u64::from(ask.min_cpus())))
        }
    }
}
