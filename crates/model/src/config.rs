//! The part of the configuration that decisions depend on. It is state: it changes by an event, so that a replay makes
//! the same decisions.

use crate::account_limits::TresAmount;
use crate::binding::BindDefault;
use crate::calendar::{CalendarState, PartitionCalendar};
use crate::cron::CrontabConfig;
use crate::licenses::LicenseCount;
use crate::limits::{
    SCRIPT_BYTES_DEFAULT, SCRIPT_BYTES_MAX, SUBMIT_LINE_BYTES_DEFAULT, SUBMIT_LINE_BYTES_MAX,
};
use crate::mcs::McsConfig;
use crate::node::NodeConfig;
use crate::order_config::OrderConfig;
use crate::power::PowerConfig;
use crate::private_data::PrivateData;
use crate::spec::MemoryAsk;
use crate::time::TimeLimit;
use crate::topology::Topology;
use minicbor::{Decode, Encode};

/// The word in `SchedulerParameters` that puts predictions to use.
pub const PREDICT_RUN_TIMES: &str = "predict_run_times";

/// Exit codes from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExitCodeRange {
    /// The first.
    #[n(0)]
    pub first: u32,
    /// It is one of them.
    #[n(1)]
    pub last: u32,
}

impl ExitCodeRange {
    /// Whether it has an exit code.
    pub fn has(self, code: u32) -> bool {
        (self.first..=self.last).contains(&code)
    }
}

/// Cluster-wide settings, partitions and nodes.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ClusterConfig {
    /// `ClusterName`.
    #[n(0)]
    pub cluster_name: String,
    /// Nodes in configuration order.
    #[n(1)]
    pub nodes: Vec<NodeConfig>,
    /// Partitions in configuration order.
    #[n(2)]
    pub partitions: Vec<PartitionConfig>,
    /// `FirstJobId`.
    #[n(3)]
    pub first_job_id: u64,
    /// `MaxJobCount`: records in the queue.
    #[n(4)]
    pub max_job_count: u32,
    /// `MaxArraySize`: one more than the highest array index.
    #[n(5)]
    pub max_array_size: u32,
    /// `MinJobAge`, seconds an ended job stays in listings.
    #[n(6)]
    pub min_job_age_s: u32,
    /// `KillWait`, seconds between TERM and KILL.
    #[n(7)]
    pub kill_wait_s: u32,
    /// `SlurmdTimeout`, seconds after which a silent node is down; 0 never.
    #[n(8)]
    pub node_timeout_s: u32,
    /// `ReturnToService`: 0, 1 or 2.
    #[n(9)]
    pub return_to_service: u32,
    /// `JobRequeue`.
    #[n(10)]
    pub job_requeue: bool,
    /// `DefMemPerNode` or `DefMemPerCPU`.
    #[n(11)]
    pub default_memory: MemoryAsk,
    /// `MaxMemPerNode` or `MaxMemPerCPU`; `Default` is no limit.
    #[n(12)]
    pub max_memory: MemoryAsk,
    /// `EnforcePartLimits`.
    #[n(13)]
    pub enforce_part_limits: EnforcePartLimits,
    /// Memory is handed out (`CR_*_Memory`).
    #[n(14)]
    pub memory_is_consumable: bool,
    /// Whole nodes only (`select/linear`).
    #[n(15)]
    pub whole_nodes: bool,
    /// `sched/backfill` (true) or `sched/builtin`.
    #[n(16)]
    pub backfill: bool,
    /// `OverTimeLimit`, minutes past the limit before a job is ended.
    #[n(17)]
    pub over_time_limit_min: Option<u32>,
    /// `DependencyParameters=kill_invalid_depend`.
    #[n(18)]
    pub kill_invalid_depend: bool,
    /// `InactiveLimit`, seconds; 0 is off.
    #[n(19)]
    pub inactive_limit_s: u32,
    /// Uids that may act as administrators besides root: SlurmUser.
    #[n(20)]
    pub admin_uids: Vec<u32>,
    /// Cores are handed out whole (`CR_Core`): CPUs of a core go to one job.
    #[n(21)]
    pub whole_cores: bool,
    /// `CR_LLN` and `CR_Pack_Nodes` style hints, kept as text for the scheduler.
    #[n(22)]
    pub select_parameters: Vec<String>,
    /// `SchedulerParameters`, split at commas.
    #[n(23)]
    pub scheduler_parameters: Vec<String>,
    /// `RequeueExit`: exit codes after which batch jobs are run again.
    #[n(24)]
    #[cbor(default)]
    pub requeue_exit: Vec<ExitCodeRange>,
    /// `RequeueExitHold`: the same, but they are held.
    #[n(25)]
    #[cbor(default)]
    pub requeue_exit_hold: Vec<ExitCodeRange>,
    /// There is a `PrologSlurmctld`: jobs are launched when it has ended well.
    #[n(26)]
    #[cbor(default)]
    pub prolog_slurmctld: bool,
    /// There is a `RebootProgram`.
    #[n(27)]
    #[cbor(default)]
    pub can_reboot: bool,
    /// Priorities, preemption, reservations.
    #[n(29)]
    #[cbor(default)]
    pub order: OrderConfig,
    /// Shapes of the network; none for `topology/flat`.
    #[n(28)]
    #[cbor(default)]
    pub topologies: Vec<Topology>,
    /// `Licenses`: name and count.
    #[n(32)]
    #[cbor(default)]
    pub licenses: Vec<LicenseCount>,
    /// Power saving, if there is any.
    #[n(30)]
    pub power: Option<PowerConfig>,
    /// `MaxBatchRequeue`: launches of a batch job that may fail before it is held; absent: any number.
    #[n(31)]
    pub max_batch_requeue: Option<u32>,
    /// `AllowSpecResourcesUsage`: jobs may say what the system keeps of their nodes (`--core-spec`).
    #[n(33)]
    #[cbor(default)]
    pub spec_by_job: bool,
    /// `JobDefaults`.
    #[n(34)]
    #[cbor(default)]
    pub job_defaults: JobDefaults,
    /// `PrivateData`.
    #[n(35)]
    #[cbor(default)]
    pub private: PrivateData,
    /// `MaxNodeCount`: nodes that there may be with dynamic ones; as many as the file names if it says less.
    #[n(36)]
    #[cbor(default)]
    pub max_node_count: u32,
    /// Crontabs of users.
    #[n(37)]
    #[cbor(default)]
    pub crontabs: CrontabConfig,
    /// `PrologFlags=Contain`: jobs have an extern step.
    #[n(38)]
    #[cbor(default)]
    pub extern_steps: bool,
    /// `PrologFlags=ForceRequeueOnFail`: a job that a prolog has failed for goes back to the queue, whatever was asked for.
    #[n(39)]
    #[cbor(default)]
    pub requeue_on_prolog_failure: bool,
    /// `arusers` of sge.conf: users, and groups with `@` before them, who may reserve cores for themselves.
    #[n(40)]
    #[cbor(default)]
    pub reservation_users: Vec<String>,
    /// `SlurmctldParameters=allow_user_triggers` where the controller is root: users may have triggers.
    #[n(41)]
    #[cbor(default)]
    pub user_triggers: bool,
    /// Labels of jobs, if `MCSPlugin` names one.
    #[n(42)]
    pub mcs: Option<McsConfig>,
    /// `JobAcctGatherFrequency`: seconds between samples of tasks; zero if there are none.
    #[n(43)]
    #[cbor(default)]
    pub sample_s: u32,
    /// `cred_expire` of `AuthInfo`, seconds: a job that was put back into the queue waits for this time; 0 is not at all.
    #[n(44)]
    #[cbor(default)]
    pub requeue_wait_s: u32,
    /// Licenses in `AccountingStorageTRES`, which are counted as trackable resources of jobs.
    #[n(45)]
    #[cbor(default)]
    pub accounted_licenses: Vec<String>,
    /// `SlurmctldParameters=enable_expedited_requeue`: jobs may ask for `--requeue=expedite`.
    #[n(46)]
    #[cbor(default)]
    pub expedited_requeue: bool,
}

impl ClusterConfig {
    /// Amounts of the licenses among these that are counted as trackable resources, by their names there.
    pub fn license_tres(&self, licenses: &[LicenseCount]) -> Vec<TresAmount> {
        let is_counted = |of: &&LicenseCount| {
            let mut counted = self.accounted_licenses.iter();
            counted.any(|name| name.eq_ignore_ascii_case(&of.name))
        };
        let all = licenses.iter().filter(is_counted);
        all.map(|of| TresAmount::new(format!("license/{}", of.name), of.count.into()))
            .collect()
    }
}

impl Default for ClusterConfig {
    /// The configuration from an empty slurm.conf: no nodes, no partitions.
    fn default() -> ClusterConfig {
        ClusterConfig {
            cluster_name: "cluster".to_owned(),
            nodes: Vec::new(),
            partitions: Vec::new(),
            first_job_id: 1,
            max_job_count: 10_000,
            max_array_size: 1001,
            min_job_age_s: 300,
            kill_wait_s: 30,
            node_timeout_s: 300,
            return_to_service: 0,
            job_requeue: true,
            default_memory: MemoryAsk::Default,
            max_memory: MemoryAsk::Default,
            enforce_part_limits: EnforcePartLimits::No,
            memory_is_consumable: false,
            whole_nodes: false,
            backfill: true,
            over_time_limit_min: None,
            kill_invalid_depend: false,
            inactive_limit_s: 0,
            admin_uids: Vec::new(),
            whole_cores: true,
            select_parameters: Vec::new(),
            scheduler_parameters: Vec::new(),
            requeue_exit: Vec::new(),
            requeue_exit_hold: Vec::new(),
            prolog_slurmctld: false,
            can_reboot: false,
            order: OrderConfig::default(),
            topologies: Vec::new(),
            licenses: Vec::new(),
            power: None,
            max_batch_requeue: None,
            spec_by_job: false,
            job_defaults: JobDefaults::default(),
            private: PrivateData::default(),
            max_node_count: 0,
            crontabs: CrontabConfig::default(),
            extern_steps: false,
            requeue_on_prolog_failure: false,
            reservation_users: Vec::new(),
            user_triggers: false,
            mcs: None,
            sample_s: 0,
            requeue_wait_s: 0,
            accounted_licenses: Vec::new(),
            expedited_requeue: false,
        }
    }
}

impl ClusterConfig {
    /// Whether run times are predicted, for the order of jobs and for planning (`muster_core::state::run_times`).
    pub fn predicts_run_times(&self) -> bool {
        self.has_scheduler_parameter(PREDICT_RUN_TIMES)
    }

    /// Whether `SchedulerParameters` has that word.
    pub fn has_scheduler_parameter(&self, name: &str) -> bool {
        self.scheduler_parameters.iter().any(|word| word == name)
    }

    /// The number that `SchedulerParameters` gives a word; the last one if there are several.
    pub fn scheduler_parameter(&self, name: &str) -> Option<u64> {
        let pairs =
            (self.scheduler_parameters.iter().rev()).filter_map(|word| word.split_once('='));
        let mut values = pairs.filter(|(key, _)| *key == name);
        values.next()?.1.parse().ok()
    }

    /// `SchedulerParameters=max_script_size`: bytes of a batch script.
    pub fn max_script_size(&self) -> usize {
        self.size_parameter("max_script_size", SCRIPT_BYTES_DEFAULT, SCRIPT_BYTES_MAX)
    }

    /// `SchedulerParameters=max_submit_line_size`: bytes of a command line, and of a job's arguments.
    pub fn max_submit_line_size(&self) -> usize {
        let (usual, most) = (SUBMIT_LINE_BYTES_DEFAULT, SUBMIT_LINE_BYTES_MAX);
        self.size_parameter("max_submit_line_size", usual, most)
    }

    fn size_parameter(&self, name: &str, usual: usize, most: usize) -> usize {
        let given = self.scheduler_parameter(name);
        given.map_or(usual, |n| usize::try_from(n).unwrap_or(most).min(most))
    }
}

/// `EnforcePartLimits`: what happens to a job outside the limits of its partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum EnforcePartLimits {
    /// It is accepted and waits.
    #[default]
    #[n(0)]
    No,
    /// It is refused unless one of its partitions would take it.
    #[n(1)]
    Any,
    /// It is refused unless all of its partitions would take it.
    #[n(2)]
    All,
}

/// A partition, as configured or changed by `scontrol update`.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct PartitionConfig {
    /// `PartitionName`.
    #[n(0)]
    pub name: String,
    /// Node names, in configuration order.
    #[n(1)]
    pub nodes: Vec<String>,
    /// `Nodes=` as it was written, for listings.
    #[n(2)]
    pub nodes_text: String,
    /// `Default=YES`.
    #[n(3)]
    pub default: bool,
    /// `State`.
    #[n(4)]
    pub state: PartitionState,
    /// `MaxTime`.
    #[n(5)]
    pub max_time: TimeLimit,
    /// `DefaultTime`.
    #[n(6)]
    pub default_time: Option<TimeLimit>,
    /// `MinNodes`.
    #[n(7)]
    pub min_nodes: u32,
    /// `MaxNodes`.
    #[n(8)]
    pub max_nodes: Option<u32>,
    /// `MaxCPUsPerNode`.
    #[n(9)]
    pub max_cpus_per_node: Option<u32>,
    /// `AllowGroups`; empty is ALL.
    #[n(10)]
    pub allow_groups: Vec<String>,
    /// `AllowAccounts`; empty is ALL.
    #[n(11)]
    pub allow_accounts: Vec<String>,
    /// `DenyAccounts`.
    #[n(12)]
    pub deny_accounts: Vec<String>,
    /// `AllowQos`; empty is ALL.
    #[n(13)]
    pub allow_qos: Vec<String>,
    /// `DenyQos`.
    #[n(14)]
    pub deny_qos: Vec<String>,
    /// `AllocNodes`; empty is ALL.
    #[n(15)]
    pub alloc_nodes: Vec<String>,
    /// `PriorityTier`.
    #[n(16)]
    pub priority_tier: u32,
    /// `PriorityJobFactor`.
    #[n(17)]
    pub priority_job_factor: u32,
    /// `OverSubscribe`.
    #[n(18)]
    pub over_subscribe: OverSubscribe,
    /// `DefMemPerNode`, `DefMemPerCPU`.
    #[n(19)]
    pub default_memory: MemoryAsk,
    /// `MaxMemPerNode`, `MaxMemPerCPU`.
    #[n(20)]
    pub max_memory: MemoryAsk,
    /// `Hidden`.
    #[n(21)]
    pub hidden: bool,
    /// `RootOnly`.
    #[n(22)]
    pub root_only: bool,
    /// `DisableRootJobs`.
    #[n(23)]
    pub disable_root_jobs: bool,
    /// `ExclusiveUser`.
    #[n(24)]
    pub exclusive_user: bool,
    /// `LLN`: least loaded node first.
    #[n(25)]
    pub lln: bool,
    /// `ReqResv`.
    #[n(26)]
    pub req_resv: bool,
    /// `QOS`.
    #[n(27)]
    pub qos: Option<String>,
    /// `GraceTime`, seconds.
    #[n(28)]
    pub grace_time_s: u32,
    /// `PreemptMode`.
    #[n(29)]
    pub preempt_mode: Option<String>,
    /// `OverTimeLimit`, minutes.
    #[n(30)]
    pub over_time_limit_min: Option<u32>,
    /// `TRESBillingWeights`, as text.
    #[n(31)]
    pub billing_weights: Option<String>,
    /// `Topology`: which of [`ClusterConfig::topologies`] its jobs are placed by; the default one when absent.
    #[n(32)]
    pub topology: Option<String>,
    /// `JobDefaults`.
    #[n(33)]
    #[cbor(default)]
    pub job_defaults: JobDefaults,
    /// `MaxCPUsPerSocket`.
    #[n(34)]
    pub max_cpus_per_socket: Option<u32>,
    /// `SelectTypeParameters`: whether its jobs get whole sockets (`CR_Socket`) or whole cores (`CR_Core`); absent: as
    /// the cluster says.
    #[n(35)]
    pub whole_sockets: Option<bool>,
    /// `CpuBind`: how tasks are bound whose steps do not say, where the job's nodes do not say the same.
    #[n(36)]
    pub cpu_bind: Option<BindDefault>,
    /// `Nodes=ALL`: nodes that join later are in it as well.
    #[n(37)]
    #[cbor(default)]
    pub takes_all: bool,
    /// Features of node sets in `Nodes`: nodes that join later and have one of them are in it as well.
    #[n(38)]
    #[cbor(default)]
    pub takes_features: Vec<String>,
    /// `Alternate`: the partition that takes new jobs while this one takes none.
    #[n(39)]
    pub alternate: Option<String>,
    /// The calendar by which it is closed and its jobs are stopped.
    #[n(40)]
    pub calendar: Option<PartitionCalendar>,
}

impl PartitionConfig {
    /// Whether a node that no file names is in it.
    pub fn takes(&self, node: &NodeConfig) -> bool {
        let has = |feature: &String| node.features.contains(feature);
        self.takes_all || self.takes_features.iter().any(has)
    }

    /// A partition as a `PartitionName` line makes it that says nothing else.
    pub fn named(name: &str) -> PartitionConfig {
        PartitionConfig {
            name: name.to_owned(),
            nodes: Vec::new(),
            nodes_text: String::new(),
            default: false,
            state: PartitionState::Up,
            max_time: TimeLimit::Unlimited,
            default_time: None,
            min_nodes: 0,
            max_nodes: None,
            max_cpus_per_node: None,
            allow_groups: Vec::new(),
            allow_accounts: Vec::new(),
            deny_accounts: Vec::new(),
            allow_qos: Vec::new(),
            deny_qos: Vec::new(),
            alloc_nodes: Vec::new(),
            priority_tier: 1,
            priority_job_factor: 1,
            over_subscribe: OverSubscribe::No,
            default_memory: MemoryAsk::Default,
            max_memory: MemoryAsk::Default,
            hidden: false,
            root_only: false,
            disable_root_jobs: false,
            exclusive_user: false,
            lln: false,
            req_resv: false,
            qos: None,
            grace_time_s: 0,
            preempt_mode: None,
            over_time_limit_min: None,
            billing_weights: None,
            topology: None,
            job_defaults: JobDefaults::default(),
            max_cpus_per_socket: None,
            whole_sockets: None,
            cpu_bind: None,
            takes_all: false,
            takes_features: Vec::new(),
            alternate: None,
            calendar: None,
        }
    }

    /// The partition's state with that of its calendar.
    pub fn effective_state(&self) -> PartitionState {
        match (self.calendar_state(), self.state) {
            (CalendarState::On, state) => state,
            (_, PartitionState::Up | PartitionState::Down) => PartitionState::Down,
            (_, PartitionState::Drain | PartitionState::Inactive) => PartitionState::Inactive,
        }
    }

    /// The state by its calendar.
    pub fn calendar_state(&self) -> CalendarState {
        let calendar = self.calendar.as_ref();
        calendar.map_or(CalendarState::On, |own| own.state)
    }
}

/// `JobDefaults` of slurm.conf and of partitions: what goes with a GPU where the job does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobDefaults {
    /// `DefCpuPerGPU`.
    #[n(0)]
    pub cpus_per_gpu: Option<u32>,
    /// `DefMemPerGPU`, MiB.
    #[n(1)]
    pub mib_per_gpu: Option<u64>,
}

impl JobDefaults {
    /// These defaults, with the other's for missing ones.
    pub fn or(self, other: JobDefaults) -> JobDefaults {
        JobDefaults {
            cpus_per_gpu: self.cpus_per_gpu.or(other.cpus_per_gpu),
            mib_per_gpu: self.mib_per_gpu.or(other.mib_per_gpu),
        }
    }
}

impl std::fmt::Display for JobDefaults {
    /// As `scontrol show partition` prints them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.cpus_per_gpu, self.mib_per_gpu) {
            (None, None) => f.write_str("(null)"),
            (Some(cpus), None) => write!(f, "DefCpuPerGPU={cpus}"),
            (None, Some(mib)) => write!(f, "DefMemPerGPU={mib}"),
            (Some(cpus), Some(mib)) => write!(f, "DefCpuPerGPU={cpus},DefMemPerGPU={mib}"),
        }
    }
}

/// Whether a partition takes and starts jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum PartitionState {
    /// Takes jobs and starts them.
    #[default]
    #[n(0)]
    Up,
    /// Takes jobs, starts none.
    #[n(1)]
    Down,
    /// Takes none, starts those it has.
    #[n(2)]
    Drain,
    /// Takes none, starts none.
    #[n(3)]
    Inactive,
}

impl PartitionState {
    /// Whether jobs may be submitted to it.
    pub fn takes_jobs(self) -> bool {
        match self {
            PartitionState::Up | PartitionState::Down => true,
            PartitionState::Drain | PartitionState::Inactive => false,
        }
    }

    /// The state as slurm.conf and scontrol write it.
    pub fn name(self) -> &'static str {
        match self {
            PartitionState::Up => "UP",
            PartitionState::Down => "DOWN",
            PartitionState::Drain => "DRAIN",
            PartitionState::Inactive => "INACTIVE",
        }
    }
}

/// `OverSubscribe` of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum OverSubscribe {
    /// Resources are given to one job at a time.
    #[default]
    #[n(0)]
    No,
    /// At most this many jobs that ask for it may share.
    #[n(1)]
    Yes(#[n(0)] u32),
    /// At most this many jobs share, whether they ask or not.
    #[n(2)]
    Force(#[n(0)] u32),
    /// Whole nodes.
    #[n(3)]
    Exclusive,
}
