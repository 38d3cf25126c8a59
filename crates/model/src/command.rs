//! Requests to the core. A command is a request with an identity; `muster_core::decide` turns it into events or refuses it.

mod accounts;
mod crontab;
mod node;
mod reservation;

pub use accounts::{
    AccountsAsk, AccountsEdit, ClusterAsk, ListEdit, QosAsk, TermsAsk, UsageAsk, WckeysAsk,
};
pub use crontab::CrontabAsk;
pub use node::NodeCommand;
pub use reservation::{NameList, ReservationAsk};

use crate::config::ClusterConfig;
use crate::ids::{Attempt, BlobId, JobId, NodeIdx, StepNo};
use crate::job::{Allocation, ExitStatus, JobState};
use crate::limits::{
    DYNAMIC_NODES_MAX, HET_COMPONENTS_MAX, HOSTLIST_BYTES_MAX, KINDS_MAX, QUERY_ITEMS_MAX,
    SCRIPT_BYTES_MAX, SIGNAL_MAX,
};
use crate::node::NodeConfig;
use crate::node_host::FutureHost;
use crate::refusal::Refusal;
use crate::spec::{Dependency, JobSpec, ResourceAsk};
use crate::time::{TimeLimit, Timestamp};
use crate::trigger::{TriggerAsk, TriggerReport};
use crate::validate::Validate;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use std::borrow::Cow;
use std::sync::Arc;

/// The user who asks, as the transport authenticated it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// User name, the number when there is none.
    pub user: String,
    /// Group name, likewise.
    pub group: String,
    /// All group names the user is in, for `AllowGroups`.
    pub groups: Vec<String>,
    /// The numbers of these groups, in the same order.
    pub gids: Vec<u32>,
    /// The host that the request came from, as far as the transport knows it.
    pub host: Option<String>,
    /// Parts of this one request that a verifier of the site has set: they are allowed for every user.
    pub granted: crate::granted::Granted,
    /// A node says who it is, by a key of its own: whatever the user's role, it is that of an ordinary user.
    pub is_ordinary: bool,
}

impl Identity {
    /// The requester of one of several jobs of a request, by its number, without the grants of the others.
    pub fn for_job(&self, number: usize) -> Cow<'_, Identity> {
        match self.granted.is_empty() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(Identity {
                granted: self.granted.of(number),
                ..self.clone()
            }),
        }
    }
}

/// A request to the core.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "most are of users, and there is one at a time"
)]
pub enum Command {
    /// From a user.
    User(Identity, UserCommand),
    /// From a node's agent.
    Node(NodeIdx, NodeCommand),
    /// The scheduler's plan.
    Commit(Plan),
    /// Time passed: limits, waits and ages are looked at.
    Tick {
        /// Every ended job whose accounting row is durable up to this point may leave the queue.
        accounted: bool,
    },
    /// `PrologSlurmctld` of a job has ended.
    PrologEnded {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// With exit status 0.
        well: bool,
    },
    /// A report about triggers and their events.
    Trigger(TriggerReport),
    /// A job is over and its nodes are clean: what forecasts assume, and how jobs of a replayed workload end. No cluster decides on it.
    AssumeEnded {
        /// The job.
        job: JobId,
    },
    /// The configuration was read.
    Configure {
        /// The configuration.
        config: Arc<ClusterConfig>,
        /// Changes to partitions at run time that are kept.
        keep: KeptPartitions,
    },
}

/// Partitions made, changed or deleted by `scontrol` that are kept when a configuration is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptPartitions {
    /// Nothing: the file alone counts (`scontrol reconfigure`).
    #[default]
    File,
    /// Their `State` (`ReconfigFlags=KeepPartState`).
    States,
    /// All that the new file does not say otherwise: a partition whose line changed in the file is as the file says
    /// (`ReconfigFlags=KeepPartInfo`, and when the controller starts).
    All,
}

/// Requests of users and administrators. This is the wire form too.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum UserCommand {
    /// sbatch, salloc, srun.
    #[n(0)]
    Submit {
        /// The job; its owner is overwritten by the core (root may submit for another with `--uid`).
        #[n(0)]
        spec: Box<JobSpec>,
        /// Script and context that the spec names. In a request any two ids that differ will do; the controller makes them of the content.
        #[n(1)]
        #[valid(max_bytes = SCRIPT_BYTES_MAX, max_items = 2)]
        blobs: Vec<(BlobId, ByteVec)>,
        /// `--test-only`: say when and where it would start; submit nothing.
        #[n(2)]
        test_only: bool,
    },
    /// sbatch, salloc, srun with several components: all are accepted or none.
    #[n(260)]
    SubmitHet {
        /// The components, the leader first.
        #[n(0)]
        #[valid(max_items = HET_COMPONENTS_MAX as usize)]
        specs: Vec<JobSpec>,
        /// Script and context bytes that the specs name.
        #[n(1)]
        #[valid(max_bytes = SCRIPT_BYTES_MAX, max_items = 2 * HET_COMPONENTS_MAX as usize)]
        blobs: Vec<(BlobId, ByteVec)>,
        /// `--test-only`.
        #[n(2)]
        test_only: bool,
    },
    /// scancel without a signal, or with KILL of a whole job: ends jobs.
    #[n(1)]
    Cancel {
        /// Jobs to cancel.
        #[n(0)]
        selection: JobSelection,
    },
    /// scancel with a signal, or of a step.
    #[n(2)]
    Signal {
        /// Jobs to signal.
        #[n(0)]
        selection: JobSelection,
        /// Signal number.
        #[n(1)]
        #[valid(min = 1, max = SIGNAL_MAX)]
        signal: u32,
        /// To whom in the job.
        #[n(2)]
        scope: SignalScope,
    },
    /// scontrol hold, uhold.
    #[n(3)]
    Hold {
        /// Jobs to hold.
        #[n(0)]
        target: JobTarget,
        /// `uhold`, or the caller is no administrator.
        #[n(1)]
        user: bool,
    },
    /// scontrol release.
    #[n(4)]
    Release {
        /// Jobs to release.
        #[n(0)]
        target: JobTarget,
    },
    /// scontrol requeue, requeuehold.
    #[n(5)]
    Requeue {
        /// Jobs to requeue.
        #[n(0)]
        target: JobTarget,
        /// Hold it in the queue.
        #[n(1)]
        hold: bool,
        /// `State=SpecialExit`.
        #[n(2)]
        special_exit: bool,
        /// `Incomplete`: only jobs and tasks that run or are suspended.
        #[n(3)]
        #[cbor(default)]
        incomplete: bool,
    },
    /// scontrol suspend.
    #[n(6)]
    Suspend {
        /// Jobs to suspend.
        #[n(0)]
        target: JobTarget,
    },
    /// scontrol resume.
    #[n(7)]
    Resume {
        /// Jobs to resume.
        #[n(0)]
        target: JobTarget,
    },
    /// scontrol update job.
    #[n(8)]
    UpdateJob {
        /// Jobs to update.
        #[n(0)]
        target: JobTarget,
        /// The changes.
        #[n(1)]
        update: Box<JobUpdate>,
    },
    /// scontrol update node.
    #[n(9)]
    UpdateNodes {
        /// Hostlist.
        #[n(0)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        nodes: String,
        /// The changes.
        #[n(1)]
        update: NodeUpdate,
    },
    /// scontrol update partition.
    #[n(10)]
    UpdatePartition {
        /// Its name.
        #[n(0)]
        name: String,
        /// `Key=Value` pairs, keys as in slurm.conf, checked by the core.
        #[n(1)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        pairs: Vec<(String, String)>,
        /// Values of some of these keys from which the change was made: it is refused where one has another value by
        /// now.
        #[n(2)]
        #[cbor(default)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        read: Vec<(String, String)>,
    },
    /// The holder of an interactive allocation says it is done: `salloc`'s command or `srun` ended.
    #[n(11)]
    EndAllocation {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Exit status to record.
        #[n(1)]
        exit: ExitStatus,
    },
    /// A new configuration file was read on behalf of an administrator; carried out by the shell.
    #[n(12)]
    Reconfigure,
    /// scontrol top: raise the priority of own jobs to the top, as far as an administrator allows.
    #[n(13)]
    Top {
        /// Jobs to move to the top.
        #[n(0)]
        target: JobTarget,
    },
    /// scontrol create partition.
    #[n(14)]
    CreatePartition {
        /// Its name.
        #[n(0)]
        name: String,
        /// As for `UpdatePartition`.
        #[n(1)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        pairs: Vec<(String, String)>,
    },
    /// scontrol reboot: each node once no job is on it.
    #[n(16)]
    Reboot {
        /// Hostlist, or ALL.
        #[n(0)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        nodes: String,
        /// `ASAP`: no further jobs until then.
        #[n(1)]
        asap: bool,
        /// `nextstate=DOWN`.
        #[n(2)]
        down_after: bool,
        /// `reason=`.
        #[n(3)]
        reason: Option<String>,
    },
    /// scontrol cancel_reboot.
    #[n(17)]
    CancelReboot {
        /// Hostlist, or ALL.
        #[n(0)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        nodes: String,
    },
    /// scontrol delete partition: refused while jobs are in it.
    #[n(15)]
    DeletePartition {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// scontrol create NodeName=: nodes that no file names. What their lines say was read where they were written.
    #[n(202)]
    CreateNodes {
        /// The nodes.
        #[n(0)]
        #[valid(max_items = DYNAMIC_NODES_MAX)]
        nodes: Vec<NodeConfig>,
    },
    /// scontrol delete NodeName=: refused unless `scontrol create` or `slurmd -Z` made them, and no job is there.
    #[n(203)]
    DeleteNodes {
        /// Hostlist.
        #[n(0)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        nodes: String,
    },
    /// `slurmd -F`: a host takes a node in state FUTURE, or the one that it has taken before. Its address is that from which it
    /// asks, if that is another host.
    #[n(204)]
    TakeNode(#[n(0)] Box<FutureHost>),
    /// scontrol create reservation.
    #[n(20)]
    CreateReservation(#[n(0)] Box<ReservationAsk>),
    /// scontrol update reservation.
    #[n(21)]
    UpdateReservation(#[n(0)] Box<ReservationAsk>),
    /// sacctmgr add, modify, delete.
    #[n(23)]
    EditAccounts(#[n(0)] Box<AccountsEdit>),
    /// scontrol delete reservation.
    #[n(22)]
    DeleteReservation {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// scontrol update StepId=.
    #[n(200)]
    UpdateStep {
        /// The job.
        #[n(0)]
        target: JobTarget,
        /// One of its steps; all that srun made when absent.
        #[n(1)]
        step: Option<StepNo>,
        /// `TimeLimit=`, counted from the step's start.
        #[n(2)]
        time_limit: TimeLimit,
    },
    /// scontrol notify: a line for the job's standard error, or for the holder of its allocation.
    #[n(201)]
    Notify {
        /// The job.
        #[n(0)]
        target: JobTarget,
        /// The line.
        #[n(1)]
        text: String,
    },
    /// scrontab: a user's crontab with the jobs of its entries, all or none, in place of the one before. Without a text that goes.
    #[n(400)]
    SetCrontab(#[n(0)] Box<CrontabAsk>),
    /// strigger --set and --clear.
    #[n(410)]
    Trigger(#[n(0)] Box<TriggerAsk>),
}

/// One job as users write it: `123`, `123_4`, `123_[1-3]`, `123+1`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct JobTarget {
    /// The number, of a job, of an array, or of an array's task.
    #[n(0)]
    pub job: JobId,
    /// Tasks of the array.
    #[n(1)]
    pub tasks: Option<crate::index_set::IndexSet>,
    /// One component of the heterogeneous job.
    #[n(2)]
    #[cbor(default)]
    pub component: Option<u32>,
}

/// Jobs by id and by filters; all given conditions must hold. Empty ids: all that match the filters.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct JobSelection {
    /// Jobs or tasks.
    #[n(0)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub targets: Vec<JobTarget>,
    /// A step of the (single) target.
    #[n(1)]
    pub step: Option<StepNo>,
    /// `--user`, resolved to a uid.
    #[n(2)]
    pub uid: Option<u32>,
    /// `--name`.
    #[n(3)]
    pub name: Option<String>,
    /// `--state`: PENDING, RUNNING or SUSPENDED.
    #[n(4)]
    pub state: Option<JobState>,
    /// `--partition`.
    #[n(5)]
    pub partition: Option<String>,
    /// `--account`.
    #[n(6)]
    pub account: Option<String>,
    /// `--qos`.
    #[n(7)]
    pub qos: Option<String>,
    /// `--reservation`.
    #[n(8)]
    pub reservation: Option<String>,
    /// `--nodelist`, node names.
    #[n(9)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub nodes: Vec<String>,
    /// `--wckey`.
    #[n(10)]
    pub wckey: Option<String>,
    /// `--hurry`, `--ctld` and the like change nothing here; `--quiet` is the client's.
    #[n(11)]
    pub only_own: bool,
    /// `--cron`: jobs of crontabs too, where that must be said.
    #[n(12)]
    #[cbor(default)]
    pub cron: bool,
}

/// The processes of a job that get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum SignalScope {
    /// All steps, not the batch shell (scancel's default).
    #[n(0)]
    Steps,
    /// Only the batch shell itself (`--batch`).
    #[n(1)]
    Batch,
    /// The batch shell and its children, and all steps (`--full`).
    #[n(2)]
    Full,
}

/// Fields of `scontrol update job` that were given.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct JobUpdate {
    /// `TimeLimit=`.
    #[n(0)]
    pub time_limit: Option<TimeLimit>,
    /// `TimeLimit=+N`, `-N`: minutes.
    #[n(1)]
    pub time_delta_min: Option<i64>,
    /// `Priority=`.
    #[n(2)]
    pub priority: Option<u32>,
    /// `Nice=`.
    #[n(3)]
    pub nice: Option<i32>,
    /// `Partition=`.
    #[n(4)]
    pub partitions: Option<Vec<String>>,
    /// `JobName=`.
    #[n(5)]
    pub name: Option<String>,
    /// `Comment=`.
    #[n(6)]
    pub comment: Option<String>,
    /// `Account=`.
    #[n(7)]
    pub account: Option<String>,
    /// `QOS=`.
    #[n(8)]
    pub qos: Option<String>,
    /// `Dependency=`; empty clears it.
    #[n(9)]
    pub dependency: Option<Dependency>,
    /// `StartTime=`, `EligibleTime=`.
    #[n(10)]
    pub begin: Option<Timestamp>,
    /// `Deadline=`.
    #[n(11)]
    pub deadline: Option<Timestamp>,
    /// `NumNodes=`, `NumTasks=`, `NumCPUs=`, `ReqNodeList=`, `Features=`, ...: the whole new ask, made of the job's own by the client.
    #[n(12)]
    pub ask: Option<ResourceAsk>,
    /// `ArrayTaskThrottle=`; 0 removes it.
    #[n(13)]
    pub array_throttle: Option<u32>,
    /// `Requeue=`.
    #[n(14)]
    pub requeue: Option<bool>,
    /// `StdOut=`, `StdErr=`, `StdIn=`.
    #[n(15)]
    pub stdio: Option<crate::spec::StdioSpec>,
    /// `WorkDir=`.
    #[n(16)]
    pub work_dir: Option<String>,
    /// `WCKey=`.
    #[n(17)]
    pub wckey: Option<String>,
    /// `Reservation=`.
    #[n(18)]
    pub reservation: Option<String>,
    /// `AdminComment=`, `Extra=`, `MailUser=` and other shown-only values.
    #[n(19)]
    #[valid(max_items = KINDS_MAX)]
    pub shown: Vec<(String, String)>,
    /// `TimeMin=`.
    #[n(20)]
    pub time_min: Option<TimeLimit>,
    /// `SiteFactor=`.
    #[n(21)]
    pub site_factor: Option<i32>,
    /// `NodeList=`: the nodes that a running job keeps.
    #[n(22)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub nodelist: Option<String>,
    /// `Licenses`; empty clears.
    #[n(23)]
    #[cbor(default)]
    pub licenses: Option<String>,
}

/// `scontrol update nodename=`.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct NodeUpdate {
    /// `State=`, upper case: DOWN, DRAIN, FAIL, RESUME, IDLE, UNDRAIN, ...
    #[n(0)]
    pub state: Option<String>,
    /// `Reason=`.
    #[n(1)]
    pub reason: Option<String>,
    /// `Weight=`.
    #[n(2)]
    pub weight: Option<u32>,
    /// `ActiveFeatures=`, `AvailableFeatures=`.
    #[n(3)]
    pub features: Option<Vec<String>>,
    /// `Comment=`.
    #[n(4)]
    pub comment: Option<String>,
    /// `CpuBind=`, as it was written.
    #[n(5)]
    pub cpu_bind: Option<String>,
}

/// Why a job waits, as the scheduler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedReason {
    /// The job.
    pub job: JobId,
    /// The reason.
    pub reason: crate::job::Reason,
}

/// When a job is expected to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedExpectation {
    /// The job.
    pub job: JobId,
    /// The time.
    pub start: Timestamp,
}

/// A limit that a job starts with instead of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortenedLimit {
    /// Its place in [`Plan::starts`].
    pub place: usize,
    /// The limit.
    pub limit: TimeLimit,
}

/// Proposal of the scheduler. Each entry is checked again when it is committed; a stale one is dropped alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Jobs to start.
    pub starts: Vec<PlannedStart>,
    /// Reasons that changed for jobs that stay (not durable: they are worked out anew after a restart).
    pub reasons: Vec<PlannedReason>,
    /// Expected starts of jobs that backfill protects (not durable).
    pub expected: Vec<PlannedExpectation>,
    /// Limits that jobs start with instead of their own (`--time-min`).
    pub limits: Vec<ShortenedLimit>,
    /// Jobs that could start now on more leaf switches than they ask for.
    pub switch_waits: Vec<JobId>,
    /// Jobs that make room for others; before the starts.
    pub preemptions: Vec<PlannedPreemption>,
}

/// A running job makes room for one that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPreemption {
    /// The running job.
    pub victim: JobId,
    /// The job that waits, or the array whose lowest pending task does.
    pub by: JobId,
    /// Where that one is placed.
    pub partition: String,
}

/// One start.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStart {
    /// The job, or the array whose lowest pending task starts.
    pub job: JobId,
    /// Its allocation.
    pub alloc: Allocation,
}

/// The core's answer to a [`UserCommand`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Reply {
    /// A job was accepted.
    #[n(0)]
    Submitted {
        /// Its number.
        #[n(0)]
        id: JobId,
        /// Warnings for the user's standard error.
        #[n(1)]
        warnings: Vec<String>,
        /// Lines of a verifier's for the user's standard error.
        #[n(2)]
        #[cbor(default)]
        lines: Vec<String>,
        /// The job's name, where a verifier has changed it.
        #[n(3)]
        name: Option<String>,
    },
    /// Done, with what to tell per job that could not be (id as the user wrote it, why).
    #[n(1)]
    Done {
        /// Jobs or nodes changed.
        #[n(0)]
        changed: u32,
        /// The refused request.
        #[n(1)]
        refused: Vec<(String, Refusal)>,
    },
    /// `--test-only`: when, where, how many CPUs.
    #[n(2)]
    WouldStart {
        /// When.
        #[n(0)]
        at: Timestamp,
        /// Number of processors.
        #[n(1)]
        cpus: u64,
        /// Hostlist.
        #[n(2)]
        nodes: String,
        /// Partition.
        #[n(3)]
        partition: String,
        /// The id that the job would have.
        #[n(4)]
        id: JobId,
    },
    /// Nothing was done.
    #[n(3)]
    Refused(#[n(0)] Refusal),
    /// A reservation was made.
    #[n(10)]
    Reserved {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// A host has this node from now on.
    #[n(11)]
    NodeTaken(#[n(0)] Box<NodeConfig>),
}
