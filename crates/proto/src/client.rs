//! Clients and the controller.

mod config_answer;

mod reserved_node;
mod starts_progress;

pub use self::reserved_node::NodeInReservation;
use crate::acct::{AcctJob, AcctQuery, LoggedTransaction, TransactionQuery};
pub use crate::daemon_socket::daemon_socket;
use crate::frame::{FrameError, Message};
pub use crate::request_counts::{KindRequests, ThrottledUser, UserRequests};
pub use config_answer::ConfigAnswer;
use minicbor::{Decode, Encode, bytes::ByteVec};
use muster_model::command::{Reply, UserCommand};
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::explain::{ExpectedStart, Explanation};
use muster_model::factors::Factors;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{ArrayInfo, ArrayTask, ExitStatus, Job, JobState};
use muster_model::job_env::HetComponent;
use muster_model::limits::{KINDS_MAX, QUERY_ITEMS_MAX, REQUEST_BYTES_MAX, REQUEST_ITEMS_MAX};
use muster_model::listing_codec::{CompactListing, ListingWriter};
use muster_model::node::Node;
use muster_model::validate::{Bounds, Invalid, Validate};
use muster_model::{account_limits::ScopeUse, accounts::Accounts};
use muster_model::{order_config::Multifactor, private_data::PrivateData};
use muster_model::{refusal::Refusal, reservation::Reservation};
use muster_model::{shared_spec::SpecCodec, time::Timestamp};
pub use starts_progress::StartsProgress;
use std::{io, net::IpAddr};

/// A client's message to the controller. Several may follow each other on a connection; answers come in order.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct Request {
    /// [`crate::PROTOCOL`] of the sender.
    #[n(0)]
    pub version: u32,
    /// The request.
    #[n(1)]
    pub body: RequestBody,
    /// For whom slurmrestd asks: its client's address, as the sender says. The audit log names it; nothing else follows from it.
    #[n(2)]
    pub client: Option<IpAddr>,
}

/// A question to the controller.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum RequestBody {
    /// Something that changes state; answered by [`Response::Reply`] once it is durable. Who may call each is
    /// written with the core's decisions.
    #[n(0)]
    Command(#[n(0)] Box<UserCommand>),
    /// Something to read; anyone may call, and sees what `PrivateData` allows. Answered from a replica that has
    /// caught up with everything acknowledged before the request came.
    #[n(1)]
    Query(#[n(0)] Box<Query>),
    /// Answered by [`Response::JobStarted`] when the job has its allocation, or [`Response::JobEnded`] if it ends
    /// first. Owner or administrator.
    #[n(2)]
    WaitStarted(#[n(0)] JobId),
    /// Answered by [`Response::JobEnded`] (`sbatch --wait`, `srun`, `salloc`, `scontrol wait_job` uses the former).
    /// For an array's number: when all of its tasks have ended, with the highest exit code. Anyone.
    #[n(3)]
    WaitEnded(#[n(0)] JobId),
    /// The caller holds this allocation: when the connection closes, the allocation ends. Owner. Answered by
    /// [`Response::Held`] at once and by [`Response::JobEnded`] if the job ends while held.
    #[n(4)]
    Hold(#[n(0)] JobId),
    /// A node's agent introduces itself; from here the connection speaks [`crate::node`]. Root or SlurmUser.
    #[n(5)]
    NodeHello(#[n(0)] Box<crate::node::NodeHello>),
    /// Stop the controller (`scontrol shutdown`); nodes too when true. Administrator.
    #[n(6)]
    Shutdown {
        /// Node agents as well.
        #[n(0)]
        nodes: bool,
    },
    /// Answered by [`Response::NodesUp`] at once, and again with each node that comes, until this number is connected.
    /// Anyone.
    #[n(7)]
    WaitNodes(#[n(0)] u32),
    /// The log level of the controller until it reads its configuration again: a level's name or number (`scontrol
    /// setdebug`). Answered by [`Response::Done`]. Administrator.
    #[n(200)]
    SetDebug(#[n(0)] String),
    /// From here the connection is good for nothing but the [`RequestBody::NodeHello`] of this node: a node's supervisor
    /// says so before it hands the connection over to its agent, which has no rights of root's. There is no answer. Root
    /// or SlurmUser.
    #[n(201)]
    ServeNode(#[n(0)] String),
    /// Makes a token by which commands connect as a user (`scontrol token`). Answered by [`Response::Token`]. For oneself
    /// anyone; for others root or SlurmUser.
    #[n(202)]
    Token {
        /// The user's name; the caller's own if absent.
        #[n(0)]
        user: Option<String>,
        /// For how long it is good, seconds.
        #[n(1)]
        lifespan_s: Option<u32>,
    },
    /// Makes a token by which a node gets a key of its own (`muster node token`). Answered by [`Response::Token`].
    /// Administrator, on the controller's host.
    #[n(203)]
    NodeToken {
        /// The node; none if it is for any that has no key.
        #[n(0)]
        node: Option<String>,
        /// For how long it is good, seconds.
        #[n(1)]
        lifespan_s: Option<u32>,
    },
    /// Forgets keys and tokens of nodes (`muster node forget`). Answered by [`Response::Done`]. Administrator, on the controller's
    /// host.
    #[n(204)]
    ForgetNodeKeys(
        #[n(0)]
        #[valid(max_items = QUERY_ITEMS_MAX)]
        Vec<String>,
    ),
    /// Keys and tokens of nodes (`muster node list`): [`Response::NodeKeys`]. Administrator.
    #[n(205)]
    NodeKeys,
    /// `sacctmgr archive`: [`Response::Archived`] once it is done. Administrator; SlurmUser where it names a directory or a program.
    #[n(206)]
    Archive(#[n(0)] crate::archive::ArchiveRequest),
}

impl Message for Request {
    const BYTES_MAX: usize = REQUEST_BYTES_MAX;
    const ITEMS_MAX: usize = REQUEST_ITEMS_MAX;
}

/// A read.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum Query {
    /// `scontrol ping`: [`Response::Pong`].
    #[n(0)]
    Ping,
    /// Records of the queue: one or more [`Response::Jobs`].
    #[n(1)]
    Jobs(#[n(0)] JobFilter),
    /// Nodes and partitions: one or more [`Response::Cluster`].
    #[n(2)]
    Cluster,
    /// `scontrol show config`: [`Response::Config`].
    #[n(3)]
    Config,
    /// The batch script of a job: [`Response::Script`]. Owner or administrator.
    #[n(4)]
    Script(#[n(0)] JobId),
    /// Where an allocation's agents are and the key to its steps: [`Response::JobStarted`]. Owner or administrator.
    #[n(5)]
    Allocation(#[n(0)] JobId),
    /// sacct: one or more [`Response::Accounting`].
    #[n(6)]
    Accounting(#[n(0)] Box<AcctQuery>),
    /// sdiag: [`Response::Diag`].
    #[n(7)]
    Diag,
    /// Partitions and settings without the nodes, for listings of jobs: one [`Response::Cluster`]. Of the nodes of each
    /// partition, the first is named.
    #[n(8)]
    Partitions,
    /// sdiag --reset: the counters begin again. An administrator. [`Response::Diag`], as they are then.
    #[n(9)]
    ResetDiag,
    /// Reservations: one [`Response::Reservations`].
    #[n(20)]
    Reservations,
    /// When nodes were out of service: [`Response::NodeEvents`].
    #[n(11)]
    NodeEvents(#[n(0)] crate::acct::NodeEventQuery),
    /// Changes made with sacctmgr, with their users: one [`Response::Transactions`].
    #[n(12)]
    Transactions(#[n(0)] TransactionQuery),
    /// The changes that `scontrol reconfigure` would make now: [`Response::Differences`]. Administrator.
    #[n(10)]
    Differences,
    /// Accounts, users, QOS, shares of the controller's cluster: one [`Response::Accounts`].
    #[n(21)]
    Accounts,
    /// Factors of pending jobs' priorities: [`Response::Priorities`], in parts.
    #[n(22)]
    Priorities,
    /// Licenses: one [`Response::Licenses`].
    #[n(220)]
    Licenses,
    /// The data for listings of jobs, asked at once: the answer to `Partitions`, then that to `Jobs`.
    #[n(250)]
    Listing(#[n(0)] JobFilter),
    /// Why a job waits, and what would start it sooner: one [`Response::Why`].
    #[n(240)]
    Why {
        /// Which job.
        #[n(0)]
        job: JobId,
        /// Changes that would start it sooner, each of which takes a forecast, are not asked for.
        #[n(1)]
        #[cbor(default)]
        is_brief: bool,
    },
    /// A crontab: one [`Response::Crontab`]. The caller's own; of others an operator.
    #[n(400)]
    Crontab {
        /// The owner; the caller if absent.
        #[n(0)]
        uid: Option<u32>,
    },
    /// Numbers of jobs, for metrics: one [`Response::JobCounts`].
    #[n(420)]
    JobCounts,
    /// Use in a period, for sreport: one or more [`Response::Usage`].
    #[n(430)]
    Usage(#[n(0)] crate::acct::UsageQuery),
    /// Changes since a position: one [`Response::Changes`], at any time if it waits.
    #[n(440)]
    Changes(#[n(0)] crate::changes::ChangesQuery),
    /// As `Accounts`, with the accounts and users of other clusters.
    #[n(450)]
    AccountsOfClusters,
    /// The site's job classes, for hosts without their file: one [`Response::JobClasses`].
    #[n(460)]
    JobClasses,
    /// The environment that a job was submitted with: [`Response::Environment`]. Owner or administrator.
    #[n(470)]
    Environment(#[n(0)] JobId),
    /// A job's script or environment in accounting: [`Response::JobText`]; for owner and administrators, else empty.
    #[n(480)]
    JobText(#[n(0)] crate::acct::JobTextQuery),
    /// Times of reservations, of those that are over as well: one [`Response::ReservationTimes`].
    #[n(490)]
    ReservationTimes(#[n(0)] crate::acct::ReservationTimesQuery),
    /// Triggers: one [`Response::Triggers`].
    #[n(500)]
    Triggers,
    /// As `Accounts`, with what jobs count towards limits now.
    #[n(510)]
    AccountsInUse,
    /// Other clusters of the database that accounting is copied to: one [`Response::KnownClusters`].
    #[n(530)]
    KnownClusters,
    /// Use of file systems by users: one [`Response::Storage`].
    #[n(520)]
    Storage,
}

/// Which records a client wants. All given conditions must hold; an empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct JobFilter {
    /// Job, array or task numbers: an array's number gives all its records; a task's number gives it.
    #[n(0)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub ids: Vec<JobId>,
    /// Owners.
    #[n(1)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub uids: Vec<u32>,
    /// Base states; a completing job counts with its base state too.
    #[n(2)]
    #[valid(max_items = KINDS_MAX)]
    pub states: Vec<JobState>,
    /// Partitions.
    #[n(3)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub partitions: Vec<String>,
    /// Only records that have not ended, or whose nodes are still being cleaned.
    #[n(4)]
    #[cbor(default)]
    pub active: bool,
    /// With expected starts of those that wait, as of now.
    #[n(5)]
    #[cbor(default)]
    pub starts: bool,
}

impl JobFilter {
    /// The filter with each condition once, in order, so that it is looked up and not searched for.
    pub fn in_order(mut self) -> JobFilter {
        self.ids.sort_unstable();
        self.ids.dedup();
        self.uids.sort_unstable();
        self.uids.dedup();
        self.states.sort_unstable();
        self.states.dedup();
        self.partitions.sort_unstable();
        self.partitions.dedup();
        self
    }
}

/// The controller's answer.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(context_bound = "muster_model::shared_spec::SpecCodec")]
pub enum Response {
    /// To a command.
    #[n(0)]
    Reply(#[n(0)] Box<Reply>),
    /// The request itself was refused.
    #[n(1)]
    Refused(#[n(0)] Refusal),
    /// To `Ping`.
    #[n(2)]
    Pong(#[n(0)] Pong),
    /// To `Jobs`, in parts.
    #[n(3)]
    Jobs(#[n(0)] Box<JobsPage>),
    /// To `Cluster`, in parts.
    #[n(4)]
    Cluster(#[n(0)] Box<ClusterPage>),
    /// To `Config`.
    #[n(5)]
    Config(#[n(0)] Box<ConfigAnswer>),
    /// To `Script`.
    #[n(6)]
    Script(#[n(0)] ByteVec),
    /// To `Accounting`, in parts.
    #[n(7)]
    Accounting(#[n(0)] Box<AccountingPage>),
    /// The job has its allocation.
    #[n(8)]
    JobStarted(#[n(0)] Box<AllocationInfo>),
    /// The job has ended (or went back to the queue: state PENDING, for holders).
    #[n(9)]
    JobEnded {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Its state.
        #[n(1)]
        state: JobState,
        /// Its exit status.
        #[n(2)]
        exit: ExitStatus,
    },
    /// To `Hold`: the caller is the holder now.
    #[n(10)]
    Held,
    /// To `Diag`.
    #[n(11)]
    Diag(#[n(0)] Box<Diag>),
    /// To `Shutdown`: it stops.
    #[n(12)]
    Stopping,
    /// To `NodeHello`: the node may speak.
    #[n(13)]
    Welcome(#[n(0)] Box<crate::node::Welcome>),
    /// To `WaitNodes`: number of connected nodes.
    #[n(14)]
    NodesUp(#[n(0)] u32),
    /// To `Differences`: a line each; warnings about the files come first.
    #[n(15)]
    Differences(#[n(0)] Vec<String>),
    /// To `NodeEvents`, by start.
    #[n(16)]
    NodeEvents(#[n(0)] Vec<crate::acct::NodeEvent>),
    /// To `Transactions`, the oldest first; the newest if there are very many, and whether older ones are left out.
    #[n(27)]
    Transactions(
        #[n(0)] Vec<LoggedTransaction>,
        #[n(1)]
        #[cbor(default)]
        bool,
    ),
    /// To `Reservations`.
    #[n(20)]
    Reservations(#[n(0)] Box<ReservationsAnswer>),
    /// To `Licenses`.
    #[n(220)]
    Licenses(#[n(0)] Vec<muster_model::licenses::License>),
    /// To `Accounts`.
    #[n(21)]
    Accounts(#[n(0)] Box<AccountsAnswer>),
    /// To `Priorities`.
    #[n(22)]
    Priorities(#[n(0)] Box<PrioritiesAnswer>),
    /// To `Why`.
    #[n(240)]
    Why(#[n(0)] Box<Explanation>),
    /// To the holder of an allocation, at any time: somebody has something to say (`scontrol notify`).
    #[n(200)]
    Notice(#[n(0)] String),
    /// To `SetDebug`.
    #[n(201)]
    Done,
    /// To `Token` and `NodeToken`.
    #[n(202)]
    Token(#[n(0)] String),
    /// To `NodeKeys`, by name.
    #[n(203)]
    NodeKeys(#[n(0)] Vec<crate::node_trust::NodeKeyRecord>),
    /// To `Archive`: actions carried out, a line each.
    #[n(206)]
    Archived(#[n(0)] Vec<String>),
    /// To `JobCounts`: of those that the caller may see.
    #[n(420)]
    JobCounts(#[n(0)] Vec<muster_model::job_counts::JobCountGroup>),
    /// To `Usage`, in parts.
    #[n(430)]
    Usage(#[n(0)] Box<crate::acct::UsagePage>),
    /// To `Changes`.
    #[n(440)]
    Changes(#[n(0)] Box<crate::changes::ChangesAnswer>),
    /// To `Crontab`: its text, if there is one.
    #[n(400)]
    Crontab(#[n(0)] Option<String>),
    /// To `JobClasses`: the text of job_classes.conf as the controller has read it last, without comments; empty if there is none.
    #[n(460)]
    JobClasses(#[n(0)] String),
    /// To `Environment`: an encoded [`muster_model::spec::ExecContext`].
    #[n(470)]
    Environment(#[n(0)] ByteVec),
    /// To `JobText`: the text, if it is kept.
    #[n(480)]
    JobText(#[n(0)] Option<ByteVec>),
    /// To `ReservationTimes`, by start.
    #[n(490)]
    ReservationTimes(#[n(0)] Vec<crate::acct::ReservationRecord>),
    /// To `Triggers`: those that the caller may see, by number.
    #[n(500)]
    Triggers(#[n(0)] Vec<muster_model::trigger::Trigger>),
    /// To `Storage`.
    #[n(520)]
    Storage(#[n(0)] Box<muster_model::storage::StorageAnswer>),
    /// To `KnownClusters`, by name.
    #[n(530)]
    KnownClusters(#[n(0)] Vec<muster_model::known_cluster::KnownCluster>),
}

/// Agents receive a welcome and refusals only. Other responses go to users' commands, which trust their controller.
impl Validate for Response {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        match self {
            Response::Welcome(welcome) => welcome.validate_within(bounds),
            _ => Ok(()),
        }
    }
}

impl Message for Response {}

/// The records of sacctmgr, and shares.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct AccountsAnswer {
    /// Everything, with shares as of now or as of the last time that priorities were worked out.
    #[n(0)]
    pub accounts: Accounts,
    /// Cluster name.
    #[n(1)]
    pub cluster: String,
    /// Fair Tree or the classic formula; absent: priority is first come, first served.
    #[n(2)]
    pub fair_tree: Option<bool>,
    /// Whether users are left out because of `PrivateData`.
    #[n(3)]
    #[cbor(default)]
    pub users_withheld: bool,
    /// Use that counts towards limits now; empty where it was not asked for.
    #[n(4)]
    #[cbor(default)]
    pub uses: Vec<ScopeUse>,
}

/// Priorities of pending jobs, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct PrioritiesAnswer {
    /// Settings; absent with `priority/basic`.
    #[n(0)]
    pub settings: Option<Multifactor>,
    /// One for each job and partition.
    #[n(1)]
    pub jobs: Vec<JobPriority>,
    /// Another part follows.
    #[n(2)]
    #[cbor(default)]
    pub more: bool,
}

/// A job's priority in a partition.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct JobPriority {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// The array and index, of a task.
    #[n(1)]
    pub array: Option<ArrayTask>,
    /// The partition.
    #[n(2)]
    pub partition: String,
    /// Owner.
    #[n(3)]
    pub uid: u32,
    /// Owner's name.
    #[n(4)]
    pub user: String,
    /// The priority.
    #[n(5)]
    pub priority: u32,
    /// Its factors.
    #[n(6)]
    pub factors: Factors,
}

/// Reservations.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ReservationsAnswer {
    /// The reservations, by begin.
    #[n(0)]
    pub reservations: Vec<Reservation>,
    /// The controller's time.
    #[n(1)]
    pub now: Timestamp,
    /// CPUs that each of them has.
    #[n(2)]
    pub cpus: Vec<u64>,
    /// Cores that each of them has.
    #[n(3)]
    pub cores: Vec<u64>,
}

/// A controller that answers.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Pong {
    /// Its host.
    #[n(0)]
    pub hostname: String,
    /// Its process id.
    #[n(1)]
    pub pid: u32,
    /// Muster's version.
    #[n(2)]
    pub version: String,
    /// Cluster name.
    #[n(3)]
    pub cluster: String,
    /// When it started.
    #[n(4)]
    pub started: Timestamp,
}

/// Records of the queue. Specifications that records share are written once an answer
/// ([`muster_model::shared_spec::SpecTable`]).
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(context_bound = "muster_model::shared_spec::SpecCodec")]
pub struct JobsPage {
    /// The records, by number.
    #[n(0)]
    pub jobs: CompactListing,
    /// Arrays of which a record is in the answer.
    #[n(1)]
    pub arrays: Vec<(JobId, ArrayInfo)>,
    /// Numbers of the filter that name nothing (last part only).
    #[n(2)]
    pub unknown: Vec<JobId>,
    /// Another part follows.
    #[n(3)]
    pub more: bool,
    /// The controller's time.
    #[n(4)]
    pub now: Timestamp,
    /// Expected starts: place in `jobs`, start.
    #[n(5)]
    #[cbor(default)]
    pub starts: Vec<(u32, ExpectedStart)>,
    /// Progress of expected starts (last part only, where they were asked for).
    #[n(6)]
    #[cbor(default)]
    pub progress: Option<StartsProgress>,
}

/// [`Response::Jobs`] as the controller writes it: from the records where they lie.
#[derive(Debug, Encode)]
pub enum JobsResponse {
    /// One part.
    #[n(3)]
    Jobs(#[n(0)] WrittenJobsPage),
}

/// [`JobsPage`], of records that are written already.
#[derive(Debug, Default, Encode)]
pub struct WrittenJobsPage {
    /// The records, by number.
    #[n(0)]
    pub jobs: ListingWriter,
    /// Arrays of which a record is in the answer.
    #[n(1)]
    pub arrays: Vec<(JobId, ArrayInfo)>,
    /// Numbers of the filter that name nothing (last part only).
    #[n(2)]
    pub unknown: Vec<JobId>,
    /// Another part follows.
    #[n(3)]
    pub more: bool,
    /// The controller's time.
    #[n(4)]
    pub now: Timestamp,
    /// Expected starts: place in `jobs`, start.
    #[n(5)]
    #[cbor(default)]
    pub starts: Vec<(u32, ExpectedStart)>,
    /// Progress of expected starts (last part only, where they were asked for).
    #[n(6)]
    #[cbor(default)]
    pub progress: Option<StartsProgress>,
}

/// Nodes, partitions and settings.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ClusterPage {
    /// Nodes, in configuration order.
    #[n(0)]
    pub nodes: Vec<Node>,
    /// Partitions (first part only).
    #[n(1)]
    pub partitions: Vec<PartitionConfig>,
    /// Settings without their node and partition lists (first part only).
    #[n(2)]
    pub config: Option<Box<ClusterConfig>>,
    /// Another part follows.
    #[n(3)]
    pub more: bool,
    /// The controller's time.
    #[n(4)]
    pub now: Timestamp,
    /// For each node of this part that jobs hold partly or wholly while they complete.
    #[n(5)]
    pub completing: Vec<NodeIdx>,
    /// Nodes of this part that a reservation has now, and whether for maintenance.
    #[n(6)]
    #[cbor(default)]
    pub reserved: Vec<NodeInReservation>,
    /// Which of the lists are empty because of `PrivateData`.
    #[n(7)]
    #[cbor(default)]
    pub withheld: PrivateData,
    /// CPUs of the largest node of each partition, in their order (first part only).
    #[n(8)]
    #[cbor(default)]
    pub largest_node_cpus: Vec<u32>,
}

/// Jobs from accounting.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct AccountingPage {
    /// The jobs with their steps.
    #[n(0)]
    pub jobs: Vec<AcctJob>,
    /// Another part follows.
    #[n(1)]
    pub more: bool,
    /// The controller's time.
    #[n(2)]
    pub now: Timestamp,
    /// Jobs of others are not among them because of `PrivateData`.
    #[n(3)]
    #[cbor(default)]
    pub withheld: bool,
}

/// An allocation and how to reach its agents.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(context_bound = "muster_model::shared_spec::SpecCodec")]
pub struct AllocationInfo {
    /// The job, with its allocation.
    #[n(0)]
    pub job: Job,
    /// The array it is a task of.
    #[n(1)]
    pub array: Option<ArrayInfo>,
    /// Address of each node's agent (`unix:/path`, `host:port`), in the order of the allocation.
    #[n(2)]
    pub addresses: Vec<String>,
    /// Proves to agents that the bearer may make steps of this job.
    #[n(3)]
    pub key: ByteVec,
    /// Cluster name.
    #[n(4)]
    pub cluster: String,
    /// The components of the heterogeneous job that it is one of; empty for others.
    #[n(5)]
    #[cbor(default)]
    pub components: Vec<HetComponent>,
}

/// Counters for sdiag.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Diag {
    /// The controller's time.
    #[n(0)]
    pub now: Timestamp,
    /// Since when it counts.
    #[n(1)]
    pub since: Timestamp,
    /// Jobs submitted since then.
    #[n(2)]
    pub submitted: u64,
    /// Jobs started since then.
    #[n(3)]
    pub started: u64,
    /// Jobs completed since then.
    #[n(4)]
    pub completed: u64,
    /// Jobs cancelled since then.
    #[n(5)]
    pub cancelled: u64,
    /// Jobs failed since then.
    #[n(6)]
    pub failed: u64,
    /// Pending jobs.
    #[n(7)]
    pub pending: u64,
    /// Running jobs.
    #[n(8)]
    pub running: u64,
    /// Scheduler passes.
    #[n(9)]
    pub passes: u64,
    /// Time of the last pass, microseconds.
    #[n(10)]
    pub pass_last_us: u64,
    /// Time of all passes, microseconds.
    #[n(11)]
    pub pass_total_us: u64,
    /// Time of the longest pass, microseconds.
    #[n(12)]
    pub pass_max_us: u64,
    /// Journal commits.
    #[n(13)]
    pub commits: u64,
    /// Events in these commits.
    #[n(14)]
    pub events: u64,
    /// Requests by kind: name, count, microseconds.
    #[n(15)]
    pub requests: Vec<KindRequests>,
    /// Requests by user: uid, count, microseconds.
    #[n(16)]
    pub users: Vec<UserRequests>,
    /// Connections open now.
    #[n(17)]
    pub connections: u64,
    /// Events that accounting has not stored yet.
    #[n(18)]
    pub accounting_lag: u64,
    /// Jobs looked at in the last pass.
    #[n(19)]
    pub depth_last: u64,
    /// Where the queue's record count stands.
    #[n(20)]
    pub queue: u64,
    /// Messages from agents.
    #[n(21)]
    #[cbor(default)]
    pub from_nodes: u64,
    /// Messages to agents.
    #[n(22)]
    #[cbor(default)]
    pub to_nodes: u64,
    /// Jobs started since then that passed by waiting ones.
    #[n(23)]
    #[cbor(default)]
    pub backfilled: u64,
    /// Such jobs since the controller started.
    #[n(24)]
    #[cbor(default)]
    pub backfilled_ever: u64,
    /// Components of heterogeneous jobs among those.
    #[n(25)]
    #[cbor(default)]
    pub backfilled_components: u64,
    /// Numbers of times that users were refused or made to wait because they asked for too much.
    #[n(26)]
    #[cbor(default)]
    pub held_back: Vec<ThrottledUser>,
    /// Snapshots of the state that failed since the last that was written; until there is one, the journal grows.
    #[n(27)]
    #[cbor(default)]
    pub snapshots_failed: u32,
    /// When the first of them failed.
    #[n(28)]
    pub snapshots_failing_since: Option<Timestamp>,
}

/// Decodes what the controller answers a command. Commands trust their controller, so this is neither measured nor
/// validated: listings are long.
///
/// # Errors
/// `InvalidData` when it is no answer.
pub fn decode_answer<C: SpecCodec>(body: &[u8], specs: &mut C) -> io::Result<Response> {
    let malformed = |e: minicbor::decode::Error| FrameError::Malformed(e.to_string());
    Ok(minicbor::decode_with(body, specs).map_err(malformed)?)
}

#[cfg(test)]
mod tests;
