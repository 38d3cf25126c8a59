//! The durable history. State changes only by applying these, in order. Every field that a replay needs is in
//! the event; nothing is looked up outside the state.

mod accounts;
mod size;
mod triggers;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::accounts::Transaction;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::cron::Crontab;
use muster_model::het::HetPlace;
use muster_model::ids::{Attempt, BlobId, JobId, NodeIdx, StepNo};
use muster_model::job::{Allocation, ExitStatus, Hold, JobState, Reason, Step, StepEnd};
use muster_model::node::{NodeConfig, NodeInfo, NodeReason};
use muster_model::reservation::Reservation;
use muster_model::spec::{DependencyTerm, JobSpec};
use muster_model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

pub use self::accounts::{AccountsChange, RecordChange};
pub use self::size::{dependency_bytes, encoded_bytes, spec_bytes, step_bytes};
pub use self::triggers::TriggerChange;

/// One change of the cluster's state. Variant and field numbers are durable: never reuse one.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Event {
    /// The configuration was read (start, `scontrol reconfigure`). Nodes keep their index by name.
    #[n(0)]
    Configured {
        /// The new configuration.
        #[n(0)]
        #[cbor(with = "muster_model::cbor::arc")]
        config: Arc<ClusterConfig>,
        /// When.
        #[n(1)]
        at: Timestamp,
        /// The partitions in force, where changes made at run time are kept; otherwise they are the configuration's.
        #[n(2)]
        partitions: Option<Vec<PartitionConfig>>,
    },
    /// A script or context that was not known yet.
    #[n(1)]
    BlobStored {
        /// SHA-256 of the bytes.
        #[n(0)]
        id: BlobId,
        /// The bytes.
        #[n(1)]
        #[cbor(with = "muster_model::cbor::arc")]
        bytes: Arc<ByteVec>,
    },
    /// A job was accepted.
    #[n(2)]
    JobSubmitted {
        /// Its number.
        #[n(0)]
        id: JobId,
        /// The request, completed by the core (partition, owner, defaults).
        #[n(1)]
        #[cbor(with = "muster_model::cbor::arc")]
        spec: Arc<JobSpec>,
        /// When.
        #[n(2)]
        at: Timestamp,
        /// Its priority; 0 if held.
        #[n(3)]
        priority: u32,
        /// The hold.
        #[n(4)]
        hold: Hold,
        /// Its limit: asked for, or the partition's.
        #[n(5)]
        time_limit: TimeLimit,
        /// Dependencies that are not satisfied yet; `singleton` included while it waits.
        #[n(6)]
        waiting_on: Vec<DependencyTerm>,
        /// First reason to wait.
        #[n(7)]
        reason: Reason,
        /// First partition.
        #[n(8)]
        partition: String,
        /// Whether the system may requeue it.
        #[n(9)]
        requeueable: bool,
        /// Its place in a heterogeneous job.
        #[n(10)]
        #[cbor(default)]
        het: Option<HetPlace>,
    },
    /// A task left its array's record and got its own.
    #[n(3)]
    TaskSplit {
        /// The array.
        #[n(0)]
        base: JobId,
        /// The task.
        #[n(1)]
        index: u32,
        /// Its number; equal to `base` when it is the last, which turns the array's record into the task's.
        #[n(2)]
        id: JobId,
    },
    /// A pending or running job was changed.
    #[n(4)]
    JobChanged {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The change.
        #[n(1)]
        change: JobChange,
        /// When.
        #[n(2)]
        at: Timestamp,
    },
    /// A job got its allocation; launch orders follow.
    #[n(5)]
    JobStarted {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Which launch this is.
        #[n(1)]
        attempt: Attempt,
        /// When.
        #[n(2)]
        at: Timestamp,
        /// Its allocation.
        #[n(3)]
        #[cbor(with = "muster_model::cbor::arc")]
        alloc: Arc<Allocation>,
        /// `PrologSlurmctld` runs first; the launch orders follow [`JobChange::Ready`].
        #[n(4)]
        #[cbor(default)]
        configuring: bool,
        /// The priority that the job's factors make, where jobs are ordered by it.
        #[n(5)]
        priority: Option<u32>,
    },
    /// A running, suspended or pending job ends: its state is final (or it goes back to the queue), its nodes are
    /// being cleaned. A job without nodes has ended with this event.
    #[n(6)]
    JobEnding {
        /// The job.
        #[n(0)]
        id: JobId,
        /// When.
        #[n(1)]
        at: Timestamp,
        /// State of its end.
        #[n(2)]
        state: JobState,
        /// Why.
        #[n(3)]
        reason: Reason,
        /// Its exit status.
        #[n(4)]
        exit: ExitStatus,
        /// Uid of who cancelled it.
        #[n(5)]
        cancelled_by: Option<u32>,
        /// Set if it returns to the queue once its nodes are clean: whether it is held there.
        #[n(6)]
        requeue: Option<bool>,
    },
    /// A node confirmed that nothing of the job is left there; its resources are free.
    #[n(7)]
    NodeReleased {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Position of the node in the job's allocation.
        #[n(1)]
        position: u32,
        /// When.
        #[n(2)]
        at: Timestamp,
    },
    /// A completing job's nodes are all clean and it is pending again.
    #[n(8)]
    JobRequeued {
        /// The job.
        #[n(0)]
        id: JobId,
        /// When.
        #[n(1)]
        at: Timestamp,
        /// Held there, and by whom.
        #[n(2)]
        hold: Hold,
        /// Not before this time (launch failures back off).
        #[n(3)]
        not_before: Option<Timestamp>,
    },
    /// A job was stopped and its CPUs may be used by others, or it waits for its turn.
    #[n(9)]
    JobSuspended {
        /// The job.
        #[n(0)]
        id: JobId,
        /// When.
        #[n(1)]
        at: Timestamp,
        /// It keeps its CPUs, and others that share them run; from this time on they may have to wait for it.
        #[n(2)]
        turn: Option<Timestamp>,
        /// The calendar of its partition stopped it.
        #[n(3)]
        #[cbor(default)]
        by_calendar: bool,
    },
    /// It goes on.
    #[n(10)]
    JobResumed {
        /// The job.
        #[n(0)]
        id: JobId,
        /// When.
        #[n(1)]
        at: Timestamp,
    },
    /// Ended jobs left the queue; accounting keeps them.
    #[n(11)]
    JobsPurged {
        /// The jobs.
        #[n(0)]
        ids: Vec<JobId>,
    },
    /// A step began.
    #[n(12)]
    StepStarted {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The step.
        #[n(1)]
        #[cbor(with = "muster_model::cbor::arc")]
        step: Arc<Step>,
    },
    /// A step ended.
    #[n(13)]
    StepEnded {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// End of the step.
        #[n(2)]
        end: Box<StepEnd>,
    },
    /// A node's agent connected.
    #[n(14)]
    NodeRegistered {
        /// The node.
        #[n(0)]
        node: NodeIdx,
        /// The change.
        #[n(1)]
        info: Box<NodeInfo>,
        /// When.
        #[n(2)]
        at: Timestamp,
    },
    /// Something else about a node changed.
    #[n(15)]
    NodeChanged {
        /// The node.
        #[n(0)]
        node: NodeIdx,
        /// The change.
        #[n(1)]
        change: NodeChange,
        /// When.
        #[n(2)]
        at: Timestamp,
    },
    /// `scontrol update partition`, `scontrol create partition`. Whether it outlives a new configuration is said by
    /// [`muster_model::command::KeptPartitions`].
    #[n(16)]
    PartitionChanged {
        /// The partition as it is now.
        #[n(0)]
        partition: Box<PartitionConfig>,
    },
    /// `scontrol delete partition`.
    #[n(17)]
    PartitionRemoved {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// sacctmgr changed something, or use was forgotten.
    #[n(23)]
    AccountsChanged {
        /// The changes, in order.
        #[n(0)]
        changes: Vec<AccountsChange>,
        /// When.
        #[n(1)]
        at: Timestamp,
        /// The user and the request, for accounting.
        #[n(2)]
        #[cbor(default)]
        log: Vec<Transaction>,
    },
    /// Shares, and with them priorities, are worked out anew.
    #[n(24)]
    PrioritiesCalculated {
        /// As of when.
        #[n(0)]
        at: Timestamp,
    },
    /// A reservation was made or changed, or goes on to its next occurrence.
    #[n(20)]
    ReservationSet {
        /// The reservation as it is now.
        #[n(0)]
        reservation: Box<Reservation>,
        /// When; absent in events of earlier releases.
        #[n(1)]
        #[cbor(default)]
        at: Option<Timestamp>,
    },
    /// The begin of a reservation came.
    #[n(21)]
    ReservationStarted {
        /// Its name.
        #[n(0)]
        name: String,
        /// When.
        #[n(1)]
        at: Timestamp,
    },
    /// A reservation is over or was deleted.
    #[n(22)]
    ReservationGone {
        /// Its name.
        #[n(0)]
        name: String,
        /// When.
        #[n(1)]
        at: Timestamp,
    },
    /// Nodes that no file names were made (`scontrol create NodeName=`), or have registered (`slurmd -Z`). They take the
    /// places of removed ones that nobody refers to, or new ones.
    #[n(25)]
    NodesCreated {
        /// Place and configuration of each.
        #[n(0)]
        nodes: Vec<(NodeIdx, NodeConfig)>,
        /// When.
        #[n(1)]
        at: Timestamp,
    },
    /// Such nodes were removed (`scontrol delete NodeName=`).
    #[n(26)]
    NodesDeleted {
        /// Their places, which they keep until others take them.
        #[n(0)]
        nodes: Vec<NodeIdx>,
        /// When.
        #[n(1)]
        at: Timestamp,
    },
    /// A user's crontab was made, changed or removed, or an entry was taken out of use.
    #[n(400)]
    CrontabSet {
        /// The owner.
        #[n(0)]
        uid: u32,
        /// The new crontab; absent: there is none.
        #[n(1)]
        crontab: Option<Box<Crontab>>,
        /// When.
        #[n(2)]
        at: Timestamp,
    },
    /// Triggers were made or removed, or fire.
    #[n(410)]
    TriggersChanged {
        /// The change.
        #[n(0)]
        change: TriggerChange,
        /// When.
        #[n(1)]
        at: Timestamp,
    },
}

impl Event {
    /// The name of its kind, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Event::Configured { .. } => "Configured",
            Event::BlobStored { .. } => "BlobStored",
            Event::JobSubmitted { .. } => "JobSubmitted",
            Event::TaskSplit { .. } => "TaskSplit",
            Event::JobChanged { .. } => "JobChanged",
            Event::JobStarted { .. } => "JobStarted",
            Event::JobEnding { .. } => "JobEnding",
            Event::NodeReleased { .. } => "NodeReleased",
            Event::JobRequeued { .. } => "JobRequeued",
            Event::JobSuspended { .. } => "JobSuspended",
            Event::JobResumed { .. } => "JobResumed",
            Event::JobsPurged { .. } => "JobsPurged",
            Event::StepStarted { .. } => "StepStarted",
            Event::StepEnded { .. } => "StepEnded",
            Event::NodeRegistered { .. } => "NodeRegistered",
            Event::NodeChanged { .. } => "NodeChanged",
            Event::PartitionChanged { .. } => "PartitionChanged",
            Event::PartitionRemoved { .. } => "PartitionRemoved",
            Event::AccountsChanged { .. } => "AccountsChanged",
            Event::PrioritiesCalculated { .. } => "PrioritiesCalculated",
            Event::ReservationSet { .. } => "ReservationSet",
            Event::ReservationStarted { .. } => "ReservationStarted",
            Event::ReservationGone { .. } => "ReservationGone",
            Event::NodesCreated { .. } => "NodesCreated",
            Event::NodesDeleted { .. } => "NodesDeleted",
            Event::CrontabSet { .. } => "CrontabSet",
            Event::TriggersChanged { .. } => "TriggersChanged",
        }
    }

    /// The jobs that it is about: none, one, or those of a purge.
    #[must_use]
    pub fn jobs(&self) -> &[JobId] {
        match self {
            Event::JobSubmitted { id, .. }
            | Event::JobChanged { id, .. }
            | Event::JobStarted { id, .. }
            | Event::JobEnding { id, .. }
            | Event::NodeReleased { id, .. }
            | Event::JobRequeued { id, .. }
            | Event::JobSuspended { id, .. }
            | Event::JobResumed { id, .. }
            | Event::StepStarted { id, .. }
            | Event::StepEnded { id, .. }
            | Event::TaskSplit { base: id, .. } => std::slice::from_ref(id),
            Event::JobsPurged { ids } => ids,
            Event::Configured { .. }
            | Event::BlobStored { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeChanged { .. }
            | Event::PartitionChanged { .. }
            | Event::PartitionRemoved { .. }
            | Event::AccountsChanged { .. }
            | Event::PrioritiesCalculated { .. }
            | Event::ReservationSet { .. }
            | Event::ReservationStarted { .. }
            | Event::ReservationGone { .. }
            | Event::NodesCreated { .. }
            | Event::NodesDeleted { .. }
            | Event::CrontabSet { .. }
            | Event::TriggersChanged { .. } => &[],
        }
    }

    /// The job that it is about, if it is about a single one.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        match self.jobs() {
            [id] => Some(*id),
            _ => None,
        }
    }
}

/// A change of one job.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum JobChange {
    /// `scontrol update` of the request: the new specification.
    #[n(0)]
    Spec(
        #[n(0)]
        #[cbor(with = "muster_model::cbor::arc")]
        Arc<JobSpec>,
    ),
    /// The specification that this job has now: another task of the same array has got it with the same change.
    #[n(23)]
    SpecOf(#[n(0)] JobId),
    /// Held or released; the priority that goes with it.
    #[n(1)]
    Hold {
        /// The hold from now on.
        #[n(0)]
        hold: Hold,
        /// Its priority now.
        #[n(1)]
        priority: u32,
    },
    /// A new time limit.
    #[n(2)]
    TimeLimit(#[n(0)] TimeLimit),
    /// A new priority.
    #[n(3)]
    Priority(#[n(0)] u32),
    /// Dependencies that are left, and the reason that goes with them.
    #[n(4)]
    WaitingOn {
        /// The remaining allocation.
        #[n(0)]
        terms: Vec<DependencyTerm>,
        /// `Dependency`, `DependencyNeverSatisfied` or `None`.
        #[n(1)]
        reason: Reason,
    },
    /// Dependencies that are decided and fall away, and the reason that goes with those that are left. It is as short as what
    /// has happened, however long the list is.
    #[n(15)]
    DependenciesDecided {
        /// The dependencies that fall away.
        #[n(0)]
        terms: Vec<DependencyTerm>,
        /// `Dependency` or `DependencyNeverSatisfied`.
        #[n(1)]
        reason: Reason,
    },
    /// Whether the system may requeue it.
    #[n(5)]
    Requeueable(#[n(0)] bool),
    /// The warning signal was sent.
    #[n(6)]
    Warned,
    /// It may run from now on (`--begin` passed, dependencies done).
    #[n(7)]
    Eligible,
    /// A running job has reached its time limit; TERM was sent.
    #[n(8)]
    TermSent,
    /// Not to be started before this time (`after:J+minutes`).
    #[n(9)]
    NotBefore(#[n(0)] Timestamp),
    /// `scontrol requeuehold` with `State=SpecialExit`.
    #[n(10)]
    SpecialExit(#[n(0)] bool),
    /// Text that goes with the reason, such as why a launch failed.
    #[n(11)]
    Detail(#[n(0)] String),
    /// `PrologSlurmctld` has ended well.
    #[n(12)]
    Ready,
    /// It runs on with fewer nodes: its new allocation. The others were released before.
    #[n(14)]
    Resized(
        #[n(0)]
        #[cbor(with = "muster_model::cbor::arc")]
        Arc<Allocation>,
    ),
    /// The reservation that it asked for is gone: its specification without it, and whether it is held for that.
    #[n(20)]
    ReservationGone {
        /// The new specification.
        #[n(0)]
        #[cbor(with = "muster_model::cbor::arc")]
        spec: Arc<JobSpec>,
        /// It waits for a release.
        #[n(1)]
        hold: bool,
    },
    /// A running job is ended at this time because its reservation ends.
    #[n(21)]
    EndBy(#[n(0)] Option<Timestamp>),
    /// From now on only its limit on leaf switches keeps it waiting.
    #[n(13)]
    SwitchWait,
    /// That many more of its tasks gain age from now on; their number was limited.
    #[n(222)]
    Accrues(#[n(0)] u32),
    /// It waits for its turn at least until then.
    #[n(221)]
    TurnDue(#[n(0)] Timestamp),
    /// It has its nodes, but some of them must be powered up before it is launched.
    #[n(201)]
    Waking(#[n(0)] muster_model::power::PowerUpWait),
    /// All of its nodes are up: its time begins.
    #[n(202)]
    NodesUp,
    /// A new time limit for a step that runs.
    #[n(200)]
    StepLimit {
        /// The step.
        #[n(0)]
        step: StepNo,
        /// Counted from its start.
        #[n(1)]
        limit: TimeLimit,
    },
    /// It was chosen to make room for another job: stopped or ended with the next event, or warned that it must end.
    #[n(220)]
    Preempted(#[n(0)] muster_model::preemption::Preempted),
}

/// A change of one node.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum NodeChange {
    /// The agent's connection was lost.
    #[n(0)]
    LinkLost,
    /// DOWN by an administrator or the system.
    #[n(1)]
    Down(#[n(0)] NodeReason),
    /// DRAIN.
    #[n(2)]
    Drain(#[n(0)] NodeReason),
    /// FAIL.
    #[n(3)]
    Fail(#[n(0)] NodeReason),
    /// RESUME, IDLE, UNDRAIN: back in service.
    #[n(4)]
    Resume,
    /// UNDRAIN only: DOWN stays.
    #[n(5)]
    Undrain,
    /// Only the reason.
    #[n(6)]
    Reason(#[n(0)] NodeReason),
    /// Weight, features: `scontrol update nodename`.
    #[n(7)]
    Weight(#[n(0)] u32),
    /// Active and available features.
    #[n(8)]
    Features(#[n(0)] Vec<String>),
    /// Load and free memory.
    #[n(9)]
    Health {
        /// Load average over a minute, times 100.
        #[n(0)]
        load_centi: u32,
        /// Free memory, MiB.
        #[n(1)]
        free_mib: u64,
    },
    /// A launch failed (true) or succeeded after failures (false).
    #[n(10)]
    LaunchFailed(#[n(0)] bool),
    /// POWER_DOWN and other flags are refused by name; a comment is stored.
    #[n(11)]
    Comment(#[n(0)] String),
    /// A node that was down answered again: DOWN ends, DRAIN stays.
    #[n(12)]
    Returned,
    /// A reboot was asked for, ordered, taken back or has happened.
    #[n(13)]
    Reboot(#[n(0)] Option<muster_model::node::Reboot>),
    /// It goes on in power saving; absent: it is up.
    #[n(200)]
    Power(#[n(0)] Option<muster_model::power::Power>),
    /// It did not come up in time, and counts as powered down.
    #[n(201)]
    ResumeFailed,
    /// Default binding of tasks there.
    #[n(202)]
    CpuBind(#[n(0)] Option<muster_model::binding::BindDefault>),
    /// FUTURE: it is not there until somebody takes it or sets another state.
    #[n(203)]
    Future,
    /// `slurmd -F`: it is on this host.
    #[n(204)]
    Taken(#[n(0)] Box<muster_model::node_host::NodeHost>),
}
