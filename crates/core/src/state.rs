//! All that the cluster knows, in one value.

pub mod job_table;
pub mod limit_use;
mod priorities;
pub mod queue_size;
pub mod run_times;
mod scale;
pub mod stored_bytes;
pub mod triggers;

pub use self::priorities::Priorities;
pub(crate) use self::scale::AmountsThere;
pub use self::scale::Scale;

use self::job_table::JobTable;
use self::limit_use::{AccrualGroup, CurrentUse};
use self::queue_size::QueueSize;
use self::run_times::RunTimes;
use self::stored_bytes::{BlobOwners, StoredBytes};
use self::triggers::Triggers;
use foldhash::fast::RandomState;
use minicbor::bytes::ByteVec;
use muster_model::account_limits::Scope;
use muster_model::accounts::Accounts;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::cron::Crontab;
use muster_model::het::HetPlace;
use muster_model::ids::{BlobId, JobId, NodeIdx};
use muster_model::job::{ArrayInfo, Job, Reason};
use muster_model::node::Node;
use muster_model::power::PowerRates;
use muster_model::reservation::Reservations;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Where licenses come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LicenseSource {
    /// Their name.
    pub name: String,
    /// The reservation that they are of; empty for none.
    pub pool: String,
}

impl LicenseSource {
    /// Licenses of a reservation, or of none.
    pub fn new(name: &str, pool: &str) -> LicenseSource {
        LicenseSource {
            name: name.to_owned(),
            pool: pool.to_owned(),
        }
    }
}

/// Numbers of licenses in use, by where they come from.
pub type LicenseUse = BTreeMap<LicenseSource, u32>;

/// The cluster. Fields are readable by everyone and written only by [`State::apply`] and [`State::note`].
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The configuration in force; absent before the first `Configured`.
    pub config: Option<Arc<ClusterConfig>>,
    /// Partitions, with changes made by `scontrol update`.
    pub partitions: Vec<PartitionConfig>,
    /// Nodes by index. Never shrinks.
    pub nodes: Vec<Node>,
    /// Every record of the queue: pending, running, and ended ones until they are purged.
    pub jobs: JobTable,
    /// Arrays that have a record left.
    pub arrays: BTreeMap<JobId, ArrayInfo>,
    /// Scripts and contexts in use.
    pub blobs: HashMap<BlobId, Blob>,
    /// Specifications of submissions, each once, and how many submissions have it. An array is one, whatever became of its tasks.
    pub specs: HashMap<Arc<JobSpec>, u32, RandomState>,
    /// The number that the next job or split task gets.
    pub next_job_id: u64,
    /// Accounts, users, QOS, use and shares.
    pub accounts: Accounts,
    /// Reservations.
    pub reservations: Reservations,
    /// Reservations made so far: their number is part of names that are made up.
    pub reservations_made: u64,
    /// Crontabs, by user.
    pub crontabs: BTreeMap<u32, Crontab>,
    /// Triggers, and programs of such that fired.
    pub triggers: Triggers,
    /// Index: records that are not over and ask for a reservation, by its name.
    pub by_reservation: BTreeMap<String, BTreeSet<JobId>>,
    /// Real run times of jobs, by user.
    pub run_times: RunTimes,
    /// Index: node by name.
    pub node_by_name: HashMap<String, NodeIdx>,
    /// Index: jobs that hold nodes and are not completing, by the time their limit ends them.
    pub by_limit: BTreeSet<(Timestamp, JobId)>,
    /// Index: ended jobs in order of their end, for purging.
    pub ended: BTreeSet<(Timestamp, JobId)>,
    /// Index: pending jobs that wait for a time (`--begin`, back-off, `after+minutes`).
    pub by_begin: BTreeSet<(Timestamp, JobId)>,
    /// Index: stopped jobs that wait for their turn on CPUs that others have too, by when it may come.
    pub by_turn: BTreeSet<(Timestamp, JobId)>,
    /// Index: who waits on a job, on the array of that number, or on a task of it.
    pub dependents: BTreeMap<DependencyKey, BTreeSet<JobId>>,
    /// Index: pending records, by number.
    pub pending: BTreeSet<JobId>,
    /// Index: records that hold nodes (running, suspended, completing).
    pub active: BTreeSet<JobId>,
    /// Index: running jobs whose `--signal` is not sent yet, by the time it is due.
    pub by_warning: BTreeSet<(Timestamp, JobId)>,
    /// Index: pending jobs with a `--deadline`, by the last time at which they could start.
    pub by_deadline: BTreeSet<(Timestamp, JobId)>,
    /// Index: nodes that lost their connection and are not down yet.
    pub lost_nodes: BTreeSet<(Timestamp, NodeIdx)>,
    /// Index: nodes with which power saving has something to do, by when.
    pub power_due: BTreeSet<(Timestamp, NodeIdx)>,
    /// Numbers of nodes powered down and up of late.
    pub power_rates: PowerRates,
    /// Index: records that are not over, by owner and job name, as (submission, record), for `singleton` and filters.
    pub by_owner: BTreeMap<u32, BTreeMap<String, BTreeSet<(JobId, JobId)>>>,
    /// Index: pending records that wait for earlier ones of their name, as (submission, record).
    pub singletons: BTreeSet<(JobId, JobId)>,
    /// Index: what counts towards limits, where they are kept.
    pub limit_use: BTreeMap<Scope, CurrentUse>,
    /// Index: pending records that do not all gain age because of a limit, by the group that has the limit, the earliest
    /// eligible first.
    pub accrual_waiting: BTreeMap<AccrualGroup, BTreeSet<(Timestamp, JobId)>>,
    /// Index: what priorities are worked out by, if they are.
    pub scale: Option<Scale>,
    /// Index: licenses that jobs have.
    pub licenses_used: LicenseUse,
    /// When the scheduler looked at what waits in each partition, by position; shown, and not history. Empty where it
    /// has not looked yet.
    pub evaluated: Vec<Timestamp>,
    /// Index: how many jobs there are, in all and of each user.
    pub queue_size: QueueSize,
    /// Index: how many bytes the queue keeps of each user.
    pub stored_bytes: StoredBytes,
    /// Index: positions in `partitions` of the partitions that each node is in.
    pub partitions_of: Vec<Vec<usize>>,
}

/// A record that others wait for: a job or array, or a task of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DependencyKey {
    /// The job or array.
    pub job: JobId,
    /// The task.
    pub task: Option<u32>,
}

impl DependencyKey {
    pub(crate) fn new(job: JobId, task: Option<u32>) -> DependencyKey {
        DependencyKey { job, task }
    }
}

impl State {
    /// The partition of that name.
    pub fn partition(&self, name: &str) -> Option<&PartitionConfig> {
        self.partitions.iter().find(|p| p.name == name)
    }

    /// The node of that name, if it is still in the configuration.
    pub fn node_named(&self, name: &str) -> Option<&Node> {
        let idx = self.node_by_name.get(name)?;
        self.node(*idx).filter(|node| !node.removed)
    }

    /// The node at that place.
    pub fn node(&self, idx: NodeIdx) -> Option<&Node> {
        self.nodes.get(idx.0 as usize)
    }

    /// Whether limits are kept.
    pub fn keeps_limits(&self) -> bool {
        self.config.as_ref().is_some_and(|c| c.order.enforce_limits)
    }

    /// The QOS of a job: as asked for, else the association's default.
    pub fn qos_of<'a>(&'a self, job: &'a Job) -> &'a str {
        match &job.spec.qos {
            Some(name) => name,
            None => self.accounts.default_qos(
                job.spec.account_name(),
                &job.spec.owner.user,
                &job.partition,
            ),
        }
    }

    /// The components of a heterogeneous job that are still in the queue, in order.
    pub fn het_jobs(&self, place: HetPlace) -> impl DoubleEndedIterator<Item = &Job> {
        place
            .ids()
            .filter_map(|id| self.jobs.get(&id))
            .filter(move |job| job.het.is_some_and(|p| p.leader == place.leader))
    }

    /// Whether nothing of a job is launched yet because `PrologSlurmctld` runs for it or another of its components.
    pub fn is_configuring(&self, job: &Job) -> bool {
        job.configuring
            || job
                .het
                .is_some_and(|place| self.het_jobs(place).any(|other| other.configuring))
    }
}

/// A stored script or context.
#[derive(Clone, Debug)]
pub struct Blob {
    /// The bytes.
    pub bytes: Arc<ByteVec>,
    /// Records that name it.
    pub users: u32,
    /// Index: whose they are.
    pub owners: BlobOwners,
}

impl Blob {
    /// Its length.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Something that listings show but that is not history: worked out anew after a restart. Sent to replicas with the
/// events, not journalled.
#[derive(Clone, Debug, PartialEq)]
pub enum DisplayUpdate {
    /// Why a job waits.
    Reason(JobId, Reason),
    /// Nodes that it names and that take no jobs, a hostlist.
    Unavailable(JobId, String),
    /// When it is expected to start.
    Expected(JobId, Option<Timestamp>),
    /// The scheduler has looked at all that waits in these partitions, by their positions.
    Evaluated(Vec<u32>, Timestamp),
    /// A node's load and free memory.
    Health {
        /// The node.
        node: NodeIdx,
        /// Load average over a minute, times 100.
        load_centi: u32,
        /// Free memory, MiB.
        free_mib: u64,
    },
}
