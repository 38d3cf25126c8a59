//! Accounting records and queries of them.

pub mod efficiency;

use minicbor::{Decode, Encode};
use muster_model::account_limits::TresAmount;
use muster_model::accounts::Transaction;
use muster_model::het::HetPlace;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::ArrayTask;
use muster_model::job::{ExitStatus, JobState, ResourceUsage};
use muster_model::limits::{KINDS_MAX, QUERY_ITEMS_MAX};
use muster_model::node_state::ServiceState;
use muster_model::reservation::Flags as ReservationFlags;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::use_slots::RunSpan;
use muster_model::validate::Validate;

/// A run of a job. A requeued job has one row per run.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct AcctJob {
    /// Its number (`JobIDRaw`).
    #[n(0)]
    pub id: JobId,
    /// Which run, from 0: how often it had been requeued or made smaller.
    #[n(1)]
    pub restarts: u32,
    /// Array it is of, and its index there.
    #[n(2)]
    pub array: Option<ArrayTask>,
    /// For tasks still in the array's record: `[1-3%2]`, as sacct shows it.
    #[n(3)]
    pub array_pending: Option<String>,
    /// `JobName`.
    #[n(4)]
    pub name: String,
    /// Owner.
    #[n(5)]
    pub uid: u32,
    /// Owner's group.
    #[n(6)]
    pub gid: u32,
    /// Owner's name.
    #[n(7)]
    pub user: String,
    /// Group's name.
    #[n(8)]
    pub group: String,
    /// Account; the user's name where there are no associations.
    #[n(9)]
    pub account: String,
    /// Partition.
    #[n(10)]
    pub partition: String,
    /// QOS.
    #[n(11)]
    pub qos: String,
    /// State.
    #[n(12)]
    pub state: JobState,
    /// Uid of who cancelled it.
    #[n(13)]
    pub cancelled_by: Option<u32>,
    /// `ExitCode`.
    #[n(14)]
    pub exit: ExitStatus,
    /// `DerivedExitCode`.
    #[n(15)]
    pub derived_exit: ExitStatus,
    /// `Submit`.
    #[n(16)]
    pub submit: Timestamp,
    /// `Eligible`.
    #[n(17)]
    pub eligible: Option<Timestamp>,
    /// `Start`.
    #[n(18)]
    pub start: Option<Timestamp>,
    /// `End`.
    #[n(19)]
    pub end: Option<Timestamp>,
    /// `Suspended`, milliseconds.
    #[n(20)]
    pub suspended_ms: u64,
    /// `Timelimit`.
    #[n(21)]
    pub time_limit: TimeLimit,
    /// CPUs asked for.
    #[n(22)]
    pub req_cpus: u32,
    /// Nodes asked for.
    #[n(23)]
    pub req_nodes: u32,
    /// Memory asked for, MiB over all nodes.
    #[n(24)]
    pub req_mem_mib: u64,
    /// CPUs it has or had; 0 if it never started.
    #[n(25)]
    pub alloc_cpus: u32,
    /// Nodes it has or had.
    #[n(26)]
    pub alloc_nodes: u32,
    /// Memory it has or had, MiB; 0 when memory is not a consumable resource.
    #[n(27)]
    pub alloc_mem_mib: u64,
    /// Devices it has or had: `gres/gpu=2` pairs.
    #[n(28)]
    pub gres: Vec<(String, u64)>,
    /// Node names as a hostlist; `None assigned` is the listing's wording for an empty one.
    #[n(29)]
    pub nodelist: String,
    /// `WorkDir`.
    #[n(30)]
    pub work_dir: String,
    /// `SubmitLine`.
    #[n(31)]
    pub submit_line: String,
    /// `Comment`.
    #[n(32)]
    pub comment: String,
    /// `AdminComment`.
    #[n(33)]
    pub admin_comment: String,
    /// `Reason`: why it waited last, or ended.
    #[n(34)]
    pub reason: String,
    /// `Priority`.
    #[n(35)]
    pub priority: u32,
    /// `WCKey`.
    #[n(36)]
    pub wckey: String,
    /// `Constraints`.
    #[n(37)]
    pub constraint: String,
    /// `Reservation`.
    #[n(38)]
    pub reservation: String,
    /// `Layout`-like: tasks of the job.
    #[n(39)]
    pub ntasks: u32,
    /// Its files, patterns expanded where known.
    #[n(40)]
    pub stdio: muster_model::spec::StdioSpec,
    /// Whether it is a batch job.
    #[n(41)]
    pub batch: bool,
    /// Its steps, by start.
    #[n(42)]
    pub steps: Vec<AcctStep>,
    /// Host it was submitted from.
    #[n(43)]
    pub submit_host: String,
    /// The run ended by going back into the queue: shown as `REQUEUED` unless its state says why (`NODE_FAIL`,
    /// `PREEMPTED`).
    #[n(44)]
    #[cbor(default)]
    pub requeued: bool,
    /// Its place in a heterogeneous job.
    #[n(45)]
    #[cbor(default)]
    pub het: Option<HetPlace>,
    /// The run went on with fewer nodes, as another row: shown as `RESIZING`.
    #[n(46)]
    #[cbor(default)]
    pub resized: bool,
    /// It started before others that waited longer for their turn (`SchedBackfill`).
    #[n(47)]
    #[cbor(default)]
    pub backfilled: bool,
    /// Class that it was made of, with its variant.
    #[n(48)]
    #[cbor(default)]
    pub class: String,
    /// Devices it asked for, as `gres` has them.
    #[n(49)]
    #[cbor(default)]
    pub req_gres: Vec<(String, u64)>,
    /// The requests of a job of the Grid Engine commands, under the names of [`muster_model::grid_engine::ACCOUNTED`].
    #[n(50)]
    #[cbor(default)]
    pub grid_engine: Vec<(String, String)>,
    /// `McsLabel`.
    #[n(51)]
    #[cbor(default)]
    pub mcs_label: String,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct AcctStep {
    /// Its number.
    #[n(0)]
    pub step: StepNo,
    /// `JobName` column of the step.
    #[n(1)]
    pub name: String,
    /// State.
    #[n(2)]
    pub state: JobState,
    /// Uid of who cancelled it.
    #[n(3)]
    pub cancelled_by: Option<u32>,
    /// `ExitCode`.
    #[n(4)]
    pub exit: ExitStatus,
    /// `Start`.
    #[n(5)]
    pub start: Timestamp,
    /// `End`.
    #[n(6)]
    pub end: Option<Timestamp>,
    /// `NNodes`.
    #[n(7)]
    pub nodes: u32,
    /// `NTasks`.
    #[n(8)]
    pub tasks: u32,
    /// `AllocCPUS`.
    #[n(9)]
    pub cpus: u32,
    /// Memory, MiB.
    #[n(10)]
    pub mem_mib: u64,
    /// Hostlist.
    #[n(11)]
    pub nodelist: String,
    /// The usage of its tasks; absent while it runs.
    #[n(12)]
    pub usage: Option<ResourceUsage>,
    /// `SubmitLine`.
    #[n(13)]
    pub submit_line: String,
    /// `Layout`.
    #[n(14)]
    pub distribution: String,
    /// Devices that it has, by the names of their TRES.
    #[n(15)]
    #[cbor(default)]
    pub devices: Vec<TresAmount>,
}

/// A query of sacct. All given conditions must hold; an empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct AcctQuery {
    /// Jobs: number, and a task's index or all.
    #[n(0)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub jobs: Vec<(JobId, Option<u32>)>,
    /// Owners by uid.
    #[n(1)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub uids: Vec<u32>,
    /// Job names.
    #[n(2)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub names: Vec<String>,
    /// States (with `end`: jobs that were in them during the window, as sacct(1) says).
    #[n(3)]
    #[valid(max_items = KINDS_MAX)]
    pub states: Vec<JobState>,
    /// Partitions.
    #[n(4)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub partitions: Vec<String>,
    /// Accounts.
    #[n(5)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub accounts: Vec<String>,
    /// QOS names.
    #[n(6)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub qos: Vec<String>,
    /// Node names: jobs that ran on any of them.
    #[n(7)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub nodes: Vec<String>,
    /// Start of the window.
    #[n(8)]
    pub start: Option<Timestamp>,
    /// End of the window.
    #[n(9)]
    pub end: Option<Timestamp>,
    /// Every run of a requeued job (`--duplicates`), not only the last.
    #[n(10)]
    pub duplicates: bool,
    /// Without steps (`-X`).
    #[n(11)]
    pub allocations_only: bool,
    /// Groups by gid.
    #[n(12)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub gids: Vec<u32>,
    /// WCKeys.
    #[n(13)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub wckeys: Vec<String>,
    /// For a report of use: `PrivateData=usage` applies as well.
    #[n(14)]
    #[cbor(default)]
    pub usage: bool,
    /// Owners by name, as accounting keeps it: also those that the system does not know any more.
    #[n(15)]
    #[cbor(default)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub users: Vec<String>,
    /// Groups by name, likewise.
    #[n(16)]
    #[cbor(default)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub groups: Vec<String>,
}

impl AcctQuery {
    /// The query with each condition once, in order, so that it is looked up and not searched for.
    pub fn in_order(mut self) -> AcctQuery {
        self.jobs.sort_unstable();
        self.jobs.dedup();
        for list in [&mut self.uids, &mut self.gids] {
            list.sort_unstable();
            list.dedup();
        }
        for list in [
            &mut self.names,
            &mut self.partitions,
            &mut self.accounts,
            &mut self.qos,
            &mut self.nodes,
            &mut self.wckeys,
            &mut self.users,
            &mut self.groups,
        ] {
            list.sort_unstable();
            list.dedup();
        }
        self.states.sort_unstable();
        self.states.dedup();
        self
    }
}

/// A time in which a reservation had the same nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReservationRecord {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Since when.
    #[n(1)]
    pub start: Timestamp,
    /// Until when; while it is not over, until when it is to be.
    #[n(2)]
    pub end: Timestamp,
    /// It is over.
    #[n(3)]
    pub is_over: bool,
    /// The nodes as a hostlist.
    #[n(4)]
    pub nodes: String,
    /// CPUs that it had there.
    #[n(5)]
    pub cpus: u64,
    /// Its flags.
    #[n(6)]
    pub flags: ReservationFlags,
    /// Users who might use it, or, with a '-' before each, who might not; separated by commas.
    #[n(7)]
    pub users: String,
    /// Accounts that might use it, or, with a '-' before each, that might not.
    #[n(8)]
    pub accounts: String,
}

/// Which times of reservations are asked for: those that touch a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ReservationTimesQuery {
    /// Start of the window.
    #[n(0)]
    pub start: Option<Timestamp>,
    /// End of the window.
    #[n(1)]
    pub end: Option<Timestamp>,
}

/// Kind of a text with which a batch job was submitted; accounting keeps those of `AccountingStoreFlags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum JobTextKind {
    /// Its script.
    #[n(0)]
    Script,
    /// Its environment: an encoded [`muster_model::spec::ExecContext`].
    #[n(1)]
    Environment,
}

/// Which text of which job is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct JobTextQuery {
    /// The job, or the task of an array by its own number.
    #[n(0)]
    pub job: JobId,
    /// Which text.
    #[n(1)]
    pub kind: JobTextKind,
}

/// Which changes of accounting are asked for: those made within a window.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct TransactionQuery {
    /// Start of the window.
    #[n(0)]
    pub start: Option<Timestamp>,
    /// End of the window.
    #[n(1)]
    pub end: Option<Timestamp>,
}

/// A change that was made with sacctmgr.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct LoggedTransaction {
    /// Its number.
    #[n(0)]
    pub id: u64,
    /// When it was made.
    #[n(1)]
    pub at: Timestamp,
    /// The user and the change.
    #[n(2)]
    pub transaction: Transaction,
}

/// Which times of nodes out of service are asked for: those that meet a window.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct NodeEventQuery {
    /// Node names; none for all.
    #[n(0)]
    #[valid(max_items = QUERY_ITEMS_MAX)]
    pub nodes: Vec<String>,
    /// Start of the window.
    #[n(1)]
    pub start: Option<Timestamp>,
    /// End of the window.
    #[n(2)]
    pub end: Option<Timestamp>,
}

/// A time in which a node was out of service.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeEvent {
    /// Its name.
    #[n(0)]
    pub node: String,
    /// Since when.
    #[n(1)]
    pub start: Timestamp,
    /// Until when; absent while it lasts.
    #[n(2)]
    pub end: Option<Timestamp>,
    /// It was DOWN.
    #[n(3)]
    pub down: bool,
    /// It was drained.
    #[n(4)]
    pub drain: bool,
    /// It was set FAIL.
    #[n(5)]
    pub fail: bool,
    /// Why.
    #[n(6)]
    pub reason: String,
    /// Uid of who said so.
    #[n(7)]
    pub uid: u32,
}

impl NodeEvent {
    /// Why it took no jobs.
    pub fn service(&self) -> ServiceState {
        ServiceState {
            down: self.down,
            drain: self.drain,
            fail: self.fail,
        }
    }
}

/// A query of use: of a period of whole hours, in whose place one goes that has them wholly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct UsageQuery {
    /// Since when.
    #[n(0)]
    pub start: Timestamp,
    /// Until when.
    #[n(1)]
    pub end: Timestamp,
}

/// The use by jobs of one account, user and key. Amounts are milliseconds times the amount of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct UsageRow {
    /// The account.
    #[n(0)]
    pub account: String,
    /// Owner of the jobs.
    #[n(1)]
    pub uid: u32,
    /// The owner's name.
    #[n(2)]
    pub user: String,
    /// Workload characterization key; empty for none.
    #[n(3)]
    pub wckey: String,
    /// Run times together.
    #[n(4)]
    pub run_ms: u64,
    /// CPUs.
    #[n(5)]
    pub cpu_ms: u64,
    /// MiB of memory.
    #[n(6)]
    pub mem_mib_ms: u64,
    /// Nodes.
    #[n(7)]
    pub node_ms: u64,
    /// CPUs that were waited for by jobs that could have run.
    #[n(8)]
    pub planned_cpu_ms: u64,
    /// Devices, by name and by name and type: `gres/gpu`.
    #[n(9)]
    pub devices: Vec<(String, u64)>,
}

/// Time that a node was out of service.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeOutage {
    /// Its name.
    #[n(0)]
    pub node: String,
    /// Milliseconds.
    #[n(1)]
    pub out_ms: u64,
}

/// Use, in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct UsagePage {
    /// By account, user and key.
    #[n(0)]
    pub rows: Vec<UsageRow>,
    /// Times out of service by node (first part only); absent where `PrivateData=events` hides them.
    #[n(1)]
    pub outages: Option<Vec<NodeOutage>>,
    /// Another part follows.
    #[n(2)]
    pub more: bool,
    /// The controller's time, up to which jobs that run are counted.
    #[n(3)]
    pub now: Timestamp,
    /// The use of others is not among it because of `PrivateData`.
    #[n(4)]
    pub withheld: bool,
    /// Since when the cluster has accounting; before, it did not exist (first part only).
    #[n(5)]
    pub since: Option<Timestamp>,
}

impl UsageRow {
    /// The use of a run in a period, by now.
    pub fn of(job: &AcctJob, start: Timestamp, end: Timestamp, now: Timestamp) -> UsageRow {
        let until = job.end.unwrap_or(now);
        let span = job.start.map(|start| RunSpan {
            start,
            end: until,
            suspended_ms: job.suspended_ms,
        });
        let run_ms = span.map_or(0, |span| span.ran_ms(start, end));
        let waited = job.eligible.map_or(0, |since| {
            let until = job.start.unwrap_or(until).min(end);
            until.since_ms(since.max(start))
        });
        let devices = job.gres.iter();
        UsageRow {
            account: job.account.clone(),
            uid: job.uid,
            user: job.user.clone(),
            wckey: job.wckey.clone(),
            run_ms,
            cpu_ms: run_ms.saturating_mul(job.alloc_cpus.into()),
            mem_mib_ms: run_ms.saturating_mul(job.alloc_mem_mib),
            node_ms: run_ms.saturating_mul(job.alloc_nodes.into()),
            planned_cpu_ms: waited.saturating_mul(job.req_cpus.into()),
            devices: devices
                .map(|(name, count)| (name.clone(), run_ms.saturating_mul(*count)))
                .collect(),
        }
    }
}
