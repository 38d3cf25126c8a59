//! The agent's order to a step daemon. The launcher and the daemon check it.

use crate::JobTmpDir;
use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_model::environment::Environment;
use muster_model::ids::JobAttempt;
use muster_model::job::ArrayTask;
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::spec::SoftLimit;
use muster_model::validate::Validate;
use muster_proto::step::StepLaunch;

/// An identity to run processes under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct ProcessIdentity {
    /// User id.
    #[n(0)]
    pub uid: u32,
    /// Primary group.
    #[n(1)]
    pub gid: u32,
    /// All groups.
    #[n(2)]
    pub groups: Vec<u32>,
    /// Login name.
    #[n(3)]
    pub name: String,
}

/// A step daemon to start.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct StepOrder {
    /// The job.
    #[n(0)]
    pub attempt: JobAttempt,
    /// The launch of the step.
    #[n(1)]
    pub launch: StepLaunch,
    /// The user of the step.
    #[n(2)]
    pub user: ProcessIdentity,
    /// Environment of all tasks here, as `NAME=value`.
    #[n(3)]
    pub env: Environment,
    /// Soft limits.
    #[n(4)]
    pub limits: Vec<SoftLimit>,
    /// For file patterns.
    #[n(5)]
    pub array: Option<ArrayTask>,
    /// The job's name, for file patterns.
    #[n(6)]
    pub job_name: String,
    /// Append to output files if the step's request does not decide.
    #[n(7)]
    pub append: bool,
    /// Program run as the user before each task.
    #[n(8)]
    pub task_prolog: Option<String>,
    /// The site's program after each task.
    #[n(9)]
    pub task_epilog: Option<String>,
    /// CPUs and memory of each task here.
    #[n(10)]
    #[cbor(default)]
    pub binding: TaskBinding,
    /// Way in which the tasks find each other, if by PMIx.
    #[n(11)]
    pub pmix: Option<PmixOrder>,
    /// The only task has srun's standard streams, which come with this order as descriptors, and starts at once.
    #[n(12)]
    #[cbor(default)]
    pub direct: bool,
    /// The job's private temporary directory here, if it has one. A value from an agent is ignored.
    #[n(13)]
    pub tmp_dir: Option<Box<JobTmpDir>>,
}

/// Where the tasks of a step on one node may run, by the kernel's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct TaskBinding {
    /// CPUs by local task; empty leaves them as they are.
    #[n(0)]
    pub cpus: Vec<CpuSet>,
    /// Its name in the output of `--cpu-bind=verbose`.
    #[n(1)]
    pub label: String,
    /// Each task prints its binding.
    #[n(2)]
    pub verbose: bool,
    /// Why CPUs are not bound although that is asked for.
    #[n(3)]
    pub note: Option<String>,
    /// Memory.
    #[n(4)]
    pub memory: Option<MemoryPolicy>,
    /// GPUs by local task; empty lets each see all of the step's.
    #[n(5)]
    #[cbor(default)]
    pub gpus: Vec<CpuSet>,
    /// Each task prints its GPUs.
    #[n(6)]
    #[cbor(default)]
    pub report_gpus: bool,
}

/// `--mem-bind` for the tasks of a step on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct MemoryPolicy {
    /// The text after `mem-bind` in the verbose line.
    #[n(0)]
    pub label: String,
    /// Each task prints its binding.
    #[n(1)]
    pub verbose: bool,
    /// Next to the CPU that asks.
    #[n(2)]
    pub local: bool,
    /// Other domains may be used too.
    #[n(3)]
    pub prefer: bool,
    /// NUMA domains by local task; empty for `local` and for no binding.
    #[n(4)]
    pub domains: Vec<CpuSet>,
    /// NUMA domains of the machine.
    #[n(5)]
    pub exist: CpuSet,
}

/// Input of a step's PMIx host beyond the launch.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct PmixOrder {
    /// Name space: unique in the cluster.
    #[n(0)]
    pub nspace: String,
    /// The version that was asked for.
    #[n(1)]
    pub version: Option<u32>,
    /// Slots of the allocation.
    #[n(2)]
    pub universe: u32,
    /// IP address at which the other nodes of the step reach this one.
    #[n(3)]
    pub listen: String,
    /// Directory in which one for this step is made.
    #[n(4)]
    pub tmp_base: String,
    /// `PMIxShareServerTopology`.
    #[n(5)]
    pub share_topology: bool,
    /// `PMIxDirectConnEarly`.
    #[n(6)]
    pub early: bool,
    /// `PMIxTimeout`, seconds.
    #[n(7)]
    pub timeout_s: u32,
    /// `PMIxEnv`, as `NAME=value`.
    #[n(8)]
    pub env: Vec<String>,
    /// PMI-1 and PMI-2 instead of PMIx.
    #[n(9)]
    #[cbor(default)]
    pub pmi: bool,
    /// The value of the variables that switch cross-memory attach on or off for MPI libraries.
    #[n(10)]
    pub cross_memory: Option<bool>,
    /// Open MPI need not look for other networks than TCP.
    #[n(11)]
    #[cbor(default)]
    pub plain_network: bool,
    /// `PMIxDirectConnUCX`.
    #[n(12)]
    pub ucx: Option<UcxOrder>,
    /// hwloc need not look for GPUs.
    #[n(13)]
    #[cbor(default)]
    pub no_gpus: bool,
    /// `CrowdedTimerSlack`, microseconds.
    #[n(14)]
    #[cbor(default)]
    pub crowded_slack_us: u32,
    /// PMI-1 and PMI-2 beside PMIx, which the node may not have.
    #[n(15)]
    #[cbor(default)]
    pub any: bool,
}

/// The UCX settings of mpi.conf, if hosts of step daemons are to use UCX.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct UcxOrder {
    /// `PMIxNetDevicesUCX`.
    #[n(0)]
    pub devices: Option<String>,
    /// `PMIxTlsUCX`.
    #[n(1)]
    pub transports: Option<String>,
}
