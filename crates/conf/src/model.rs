//! The typed configuration that the rest of Muster reads. Plain data: the loader fills it, and a
//! value that was wrong in the file has its default here.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::diagnostic::Origin;
use crate::keys;
use crate::slurmctld_parameters::RateLimits;
use crate::value::DurationLimit;
use muster_model::config::{EnforcePartLimits, JobDefaults, OverSubscribe, PartitionState};
use muster_model::node_state::InitialState;

/// A whole slurm.conf with its included files.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file that was loaded.
    pub path: PathBuf,
    /// `ClusterName`.
    pub cluster_name: String,
    /// `SlurmctldHost` lines in order; the first is the primary.
    pub slurmctld: Vec<ControlHost>,
    /// `SlurmctldAddr`: what commands connect to in place of `slurmctld`.
    pub slurmctld_addr: Option<String>,
    /// `SlurmctldPort`: one port, or a range of which Muster uses the first.
    pub slurmctld_ports: RangeInclusive<u16>,
    /// `SlurmdPort`.
    pub slurmd_port: u16,
    /// `SlurmdUser`, a name or number: the account of agents.
    pub slurmd_user: String,
    /// `SlurmUser`, a name or number.
    pub slurm_user: String,
    /// Files and directories.
    pub paths: Paths,
    /// `SlurmctldDebug` as a level name.
    pub slurmctld_debug: &'static str,
    /// `SlurmdDebug` as a level name.
    pub slurmd_debug: &'static str,
    /// `SlurmdParameters`.
    pub slurmd_parameters: Vec<String>,
    /// `rl_enable` and its companions in `SlurmctldParameters`.
    pub rate_limits: RateLimits,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Limits of numbers.
    pub limits: ClusterLimits,
    /// `EnforcePartLimits`.
    pub enforce_part_limits: EnforcePartLimits,
    /// `DisableRootJobs`.
    pub disable_root_jobs: bool,
    /// `JobRequeue`: whether batch jobs may be requeued unless they say otherwise.
    pub job_requeue: bool,
    /// `JobFileAppend`: whether output files are appended to.
    pub job_file_append: bool,
    /// `KillOnBadExit`.
    pub kill_on_bad_exit: bool,
    /// `ReturnToService`: 0, 1 or 2.
    pub return_to_service: u8,
    /// `SchedulerType`.
    pub scheduler: SchedulerType,
    /// `SelectType`.
    pub select: SelectType,
    /// `SelectTypeParameters`.
    pub select_parameters: SelectParameters,
    /// `PriorityType`.
    pub priority: PriorityType,
    /// `MpiDefault`, without prefix.
    pub mpi_default: String,
    /// `TaskPlugin`, without prefixes.
    pub task_plugins: Vec<String>,
    /// Whether `AccountingStorageType` asks for job records to be kept.
    pub accounting: bool,
    /// `AccountingStorageEnforce`, with what each word implies; empty for none.
    pub accounting_enforce: Vec<&'static str>,
    /// `LaunchParameters`.
    pub launch_parameters: Vec<String>,
    /// `SchedulerParameters`.
    pub scheduler_parameters: Vec<String>,
    /// `PropagateResourceLimits` less `PropagateResourceLimitsExcept`.
    pub propagate: Propagate,
    /// `GresTypes`.
    pub gres_types: Vec<String>,
    /// All nodes, in the order of the file.
    pub nodes: Vec<NodeDef>,
    /// All partitions, in the order of the file.
    pub partitions: Vec<PartitionDef>,
    /// `DownNodes` lines; their effect is in `nodes` already.
    pub down_nodes: Vec<DownNodes>,
    /// `NodeSet` lines.
    pub node_sets: Vec<NodeSet>,
    /// Settings outside node and partition lines, by the key's documented name.
    pub raw: BTreeMap<&'static str, Setting>,
}

impl Config {
    /// Value of a key in the file, else its default; `None` where there is neither.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.raw.get(key) {
            Some(setting) => Some(&setting.value),
            None => keys::SLURM.find(key)?.default,
        }
    }

    /// The node of that name.
    ///
    /// A linear search; callers with many names build their own index.
    pub fn node(&self, name: &str) -> Option<&NodeDef> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The partition that jobs go to when they name none.
    pub fn default_partition(&self) -> Option<&PartitionDef> {
        self.partitions.iter().find(|partition| partition.default)
    }
}

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Without quotes.
    pub value: String,
    /// The place of the key.
    pub origin: Origin,
}

/// A controller's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlHost {
    /// Name, as `hostname -s` prints it there.
    pub host: String,
    /// Address to connect to, where it differs.
    pub addr: Option<String>,
}

impl ControlHost {
    /// Address to connect to.
    pub fn address(&self) -> &str {
        self.addr.as_deref().unwrap_or(&self.host)
    }
}

/// Files and directories. Those of the node agent may hold `%n` and `%h`: see [`expand_path`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `SlurmctldPidFile`.
    pub slurmctld_pid_file: PathBuf,
    /// `SlurmctldLogFile`; `None` for standard error.
    pub slurmctld_log_file: Option<PathBuf>,
    /// `StateSaveLocation`.
    pub state_save_location: PathBuf,
    /// `SlurmdPidFile`.
    pub slurmd_pid_file: String,
    /// `SlurmdLogFile`; `None` for standard error.
    pub slurmd_log_file: Option<String>,
    /// `SlurmdSpoolDir`.
    pub slurmd_spool_dir: String,
    /// `TmpFS`.
    pub tmp_fs: String,
}

/// Bytes that `SlurmdSpoolDir` may have: a socket's path may have 107, and the longest name of one in it is
/// `step-` with a key of 16 letters, a number of ten digits and `.sock`.
pub const SLURMD_SPOOL_DIR_BYTES_MAX: usize = 107 - "/step-abcdefghijklmnop.4294967295.sock".len();

/// Puts a node's name and host in place of `%n` and `%h`; `%%` is `%`.
pub fn expand_path(template: &str, node: &str, host: &str) -> PathBuf {
    let mut path = String::with_capacity(template.len() + node.len());
    let mut chars = template.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('%', Some('n')) => path.push_str(node),
            ('%', Some('h')) => path.push_str(host),
            ('%', Some('%')) => path.push('%'),
            _ => {
                path.push(c);
                continue;
            }
        }
        chars.next();
    }
    Path::new(&path).to_owned()
}

/// Time limits, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// `SlurmctldTimeout`.
    pub slurmctld_s: u64,
    /// `SlurmdTimeout`; 0 for never.
    pub slurmd_s: u64,
    /// `MessageTimeout`.
    pub message_s: u64,
    /// `KillWait`.
    pub kill_wait_s: u64,
    /// `InactiveLimit`; 0 for never.
    pub inactive_s: u64,
    /// `BatchStartTimeout`.
    pub batch_start_s: u64,
    /// `UnkillableStepTimeout`.
    pub unkillable_step_s: u64,
    /// `CompleteWait`.
    pub complete_wait_s: u64,
    /// `MinJobAge`; 0 for keep for ever.
    pub min_job_age_s: u64,
    /// `WaitTime`; 0 for never.
    pub wait_s: u64,
}

/// Limits of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// `MaxJobCount`.
    pub max_job_count: u32,
    /// `MaxArraySize`: one more than the highest index.
    pub max_array_size: u32,
    /// `MaxNodeCount`: nodes with those that no file names; 0 where nothing is said.
    pub max_node_count: u32,
    /// `FirstJobId`.
    pub first_job_id: u32,
    /// `MaxJobId`.
    pub max_job_id: u32,
    /// `DefMemPerCPU` or `DefMemPerNode`; `None` for all of a node's memory.
    pub def_mem: Option<MemPer>,
    /// `MaxMemPerCPU` or `MaxMemPerNode`; `None` for no limit.
    pub max_mem: Option<MemPer>,
    /// `JobDefaults`, `DefCpuPerGPU`, `DefMemPerGPU`.
    pub job_defaults: JobDefaults,
    /// `OverTimeLimit`; `None` for no limit at all.
    pub over_time_limit_min: Option<u64>,
    /// `ResvOverRun`; `None` for no limit at all.
    pub resv_over_run_min: Option<u64>,
}

/// An amount of memory for each CPU or for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemPer {
    /// MiB for each allocated CPU.
    Cpu(u64),
    /// MiB for each allocated node.
    Node(u64),
}

/// `SchedulerType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerType {
    /// Later jobs may fill gaps as long as they delay nobody.
    Backfill,
    /// Strictly in order of priority.
    Builtin,
}

/// `SelectType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectType {
    /// Jobs share nodes (`cons_tres`, `cons_res`).
    ConsTres,
    /// Jobs have nodes to themselves.
    Linear,
}

/// `SelectTypeParameters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectParameters {
    /// The unit of allocation.
    pub unit: SelectUnit,
    /// Whether memory is counted as well.
    pub memory: bool,
    /// The other words, spelled as documented.
    pub others: Vec<String>,
}

/// The unit of allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectUnit {
    /// `CR_CPU`: single threads.
    Cpu,
    /// `CR_Core`.
    Core,
    /// `CR_Socket`.
    Socket,
}

/// `PriorityType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityType {
    /// First come, first served.
    Basic,
    /// Weighted factors.
    Multifactor,
}

/// Which resource limits of the submitter go to the tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Propagate {
    /// Names such as `MEMLOCK`, in upper case; `ALL` or `NONE` alone.
    pub limits: Vec<String>,
    /// All but those of `except`.
    pub except: Vec<String>,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDef {
    /// Name in Slurm.
    pub name: String,
    /// Output of `hostname -s` there.
    pub hostname: String,
    /// Address to connect to.
    pub addr: String,
    /// Port of its agent.
    pub port: u16,
    /// Logical processors.
    pub cpus: u32,
    /// Boards.
    pub boards: u32,
    /// Sockets on all boards together.
    pub sockets: u32,
    /// Cores of each socket.
    pub cores_per_socket: u32,
    /// Threads of each core.
    pub threads_per_core: u32,
    /// Memory in MiB.
    pub real_memory_mib: u64,
    /// Temporary disk in MiB.
    pub tmp_disk_mib: u64,
    /// Nodes of low weight are used first.
    pub weight: u32,
    /// Words that `--constraint` selects by.
    pub features: Vec<String>,
    /// Generic resources.
    pub gres: Vec<GresCount>,
    /// `CoreSpecCount`.
    pub core_spec_count: u32,
    /// `CpuSpecList`.
    pub cpu_spec: Vec<u32>,
    /// `MemSpecLimit` in MiB.
    pub mem_spec_limit_mib: u64,
    /// `CpuBind`, in lower case.
    pub cpu_bind: Option<String>,
    /// The state to start from, `DownNodes` included.
    pub state: InitialState,
    /// Why, where the state is one that takes no jobs.
    pub reason: Option<String>,
    /// The line.
    pub origin: Origin,
}

/// One entry of a node's `Gres`: `gpu:a100:4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresCount {
    /// `gpu`.
    pub name: String,
    /// `a100`.
    pub model: Option<String>,
    /// Whether use does not lower the count.
    pub no_consume: bool,
    /// Number of devices.
    pub count: u64,
}

/// One `DownNodes` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownNodes {
    /// Positions in [`Config::nodes`].
    pub nodes: Vec<usize>,
    /// The state to put them in.
    pub state: InitialState,
    /// Why.
    pub reason: Option<String>,
}

/// One `NodeSet` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSet {
    /// Name.
    pub name: String,
    /// Positions in [`Config::nodes`], ascending.
    pub nodes: Vec<usize>,
    /// `Nodes=ALL`.
    pub all: bool,
    /// `Feature`.
    pub feature: Option<String>,
}

/// A list that allows: everyone, or the names in it.
pub type Allowed = Option<Vec<String>>;

/// One partition.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionDef {
    /// Name.
    pub name: String,
    /// Positions in [`Config::nodes`], ascending.
    pub nodes: Vec<usize>,
    /// `Nodes` as it was written.
    pub nodes_text: String,
    /// Node sets named in `Nodes`.
    pub node_sets: Vec<String>,
    /// Whether jobs that name no partition go here.
    pub default: bool,
    /// State.
    pub state: PartitionState,
    /// The longest time limit.
    pub max_time: DurationLimit,
    /// Time limit of jobs that give none; `None` for `max_time`.
    pub default_time: Option<DurationLimit>,
    /// The fewest nodes of a job.
    pub min_nodes: u32,
    /// The most nodes of a job; `None` for no limit.
    pub max_nodes: Option<u32>,
    /// `AllowGroups`; `None` for everyone.
    pub allow_groups: Allowed,
    /// `AllowAccounts`; `None` for all.
    pub allow_accounts: Allowed,
    /// `AllowQos`; `None` for all.
    pub allow_qos: Allowed,
    /// `DenyAccounts`.
    pub deny_accounts: Vec<String>,
    /// `DenyQos`.
    pub deny_qos: Vec<String>,
    /// `AllocNodes`, expanded; `None` for all hosts.
    pub alloc_nodes: Allowed,
    /// `Alternate`.
    pub alternate: Option<String>,
    /// `PriorityTier`.
    pub priority_tier: u16,
    /// `PriorityJobFactor`.
    pub priority_job_factor: u16,
    /// `OverSubscribe`.
    pub over_subscribe: OverSubscribe,
    /// `MaxCPUsPerNode`; `None` for no limit.
    pub max_cpus_per_node: Option<u32>,
    /// `MaxCPUsPerSocket`; `None` for no limit.
    pub max_cpus_per_socket: Option<u32>,
    /// `SelectTypeParameters`; `None` for the cluster's.
    pub select_unit: Option<SelectUnit>,
    /// `JobDefaults`, `DefCpuPerGPU`, `DefMemPerGPU`.
    pub job_defaults: JobDefaults,
    /// `DefMemPerCPU` or `DefMemPerNode`; `None` for the cluster's.
    pub def_mem: Option<MemPer>,
    /// `MaxMemPerCPU` or `MaxMemPerNode`; `None` for the cluster's.
    pub max_mem: Option<MemPer>,
    /// `Hidden`.
    pub hidden: bool,
    /// `RootOnly`.
    pub root_only: bool,
    /// `DisableRootJobs`, the cluster's where the partition does not say.
    pub disable_root_jobs: bool,
    /// `ExclusiveUser`.
    pub exclusive_user: bool,
    /// `LLN`.
    pub least_loaded_nodes: bool,
    /// `ReqResv`.
    pub requires_reservation: bool,
    /// `QOS`.
    pub qos: Option<String>,
    /// `GraceTime` in seconds.
    pub grace_time_s: u32,
    /// `PreemptMode`, in upper case; `None` for the cluster's.
    pub preempt_mode: Option<String>,
    /// `TRESBillingWeights`: TRES in lower case and weight, a suffix already applied.
    pub billing_weights: Vec<(String, f64)>,
    /// `TRESBillingWeights` as it was written.
    pub billing_weights_text: Option<String>,
    /// `Topology`.
    pub topology: Option<String>,
    /// `OverTimeLimit`; `None` for the cluster's.
    pub over_time_limit: Option<DurationLimit>,
    /// `CpuBind`, in lower case.
    pub cpu_bind: Option<String>,
    /// The line.
    pub origin: Origin,
}
