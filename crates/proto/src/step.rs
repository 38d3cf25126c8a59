//! Steps: srun, node agents and step daemons.
//!
//! srun asks the agent of the job's first node (the lead) for a step; the lead lays it out, has the other agents
//! start their step daemons (stepd), and answers with each stepd's address. srun then talks to every stepd, or to the
//! first ones of a tree of them: standard streams, signals, exits. The lead reports steps to the controller in batches, and nothing
//! waits for it.

mod agent;
mod process;
mod stepd;

pub use agent::{AgentReply, AgentRequest, BelowStarted, MeasuredStep};
pub use process::{Process, TaskNumbers};
pub use stepd::{Attach, FromStepd, ToStepd};

use crate::frame::Message;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{GresShare, StepEnd};
use muster_model::limits::{ARGUMENT_BYTES_MAX, HOSTLIST_BYTES_MAX, SUBMIT_LINE_BYTES_MAX};
use muster_model::spec::{DeviceAsk, ExecContext, GresAsk, MemoryAsk, StdioSpec};
use muster_model::time::TimeLimit;
use muster_model::validate::Validate;

/// End of one node's part of a step.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct NodeEnd {
    /// Position of the node in the step.
    #[n(0)]
    pub position: u32,
    /// End of the part.
    #[n(1)]
    pub end: StepEnd,
}

/// The context of a batch script or a step arrives at nodes as the submitter has sent it.
impl Message for ExecContext {}

/// The request of srun.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct StepSpec {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// The job's key, when srun has it (outside the job's nodes).
    #[n(1)]
    pub key: Option<ByteVec>,
    /// Name: `--job-name`, else the program's.
    #[n(2)]
    pub name: String,
    /// Program and arguments.
    #[n(3)]
    #[valid(max_bytes = ARGUMENT_BYTES_MAX)]
    pub argv: Vec<String>,
    /// Environment, umask and limits of srun.
    #[n(4)]
    pub context: ExecContext,
    /// `--chdir`, or srun's own directory.
    #[n(5)]
    pub work_dir: String,
    /// Least nodes.
    #[n(6)]
    pub min_nodes: Option<u32>,
    /// Most nodes.
    #[n(7)]
    pub max_nodes: Option<u32>,
    /// `-n`.
    #[n(8)]
    pub ntasks: Option<u32>,
    /// `-c`.
    #[n(9)]
    pub cpus_per_task: Option<u32>,
    /// `--ntasks-per-node`.
    #[n(10)]
    pub ntasks_per_node: Option<u32>,
    /// `--nodelist`.
    #[n(11)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub nodelist: Option<String>,
    /// `--exclude`.
    #[n(12)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub exclude: Option<String>,
    /// `--relative`.
    #[n(13)]
    pub relative: Option<u32>,
    /// `--distribution`.
    #[n(14)]
    pub distribution: Option<String>,
    /// `--mem`, `--mem-per-cpu`.
    #[n(15)]
    pub memory: MemoryAsk,
    /// `--gres` and kin.
    #[n(16)]
    pub gres: Vec<GresAsk>,
    /// `--overlap`: shares CPUs with other steps.
    #[n(17)]
    pub overlap: bool,
    /// `--exact`, `--exclusive`, or implied by `-c`: only the CPUs that the tasks need.
    #[n(18)]
    pub exact: bool,
    /// `--whole`.
    #[n(19)]
    pub whole: bool,
    /// `--overcommit`.
    #[n(20)]
    pub overcommit: bool,
    /// `--immediate`: refuse rather than wait.
    #[n(21)]
    pub immediate: bool,
    /// Per-task files that stepds open (patterns with `%t`, `%n`, `%N` and so on); streams without one go to srun.
    #[n(22)]
    pub stdio: StdioSpec,
    /// `--multi-prog`: task set and command line, in file order.
    #[n(23)]
    pub multi_prog: Vec<(String, String)>,
    /// `--pty`: rows and columns of the terminal; only task 0.
    #[n(24)]
    pub pty: Option<(u16, u16)>,
    /// `--kill-on-bad-exit`.
    #[n(25)]
    pub kill_on_bad_exit: bool,
    /// `--time`.
    #[n(26)]
    pub time_limit: Option<TimeLimit>,
    /// `--cpu-bind`, as text.
    #[n(27)]
    pub cpu_bind: Option<String>,
    /// `--mpi`.
    #[n(28)]
    pub mpi: Option<String>,
    /// The command line, for accounting.
    #[n(29)]
    #[valid(max_bytes = SUBMIT_LINE_BYTES_MAX)]
    pub submit_line: String,
    /// `--task-prolog`.
    #[n(30)]
    pub task_prolog: Option<String>,
    /// `--task-epilog`.
    #[n(31)]
    pub task_epilog: Option<String>,
    /// Variables that srun sets itself (`SLURM_LAUNCH_NODE_IPADDR`, `SLURM_SRUN_COMM_HOST`, `SLURM_UMASK`, ...).
    #[n(32)]
    #[valid(max_bytes = ARGUMENT_BYTES_MAX)]
    pub extra_env: Vec<(String, String)>,
    /// `--input=none`-like per-stream choices are the client's; this says which tasks get standard input: all, none
    /// or one.
    #[n(33)]
    pub stdin_task: StdinTask,
    /// The stream of output is unbuffered by line (`--unbuffered`).
    #[n(34)]
    pub unbuffered: bool,
    /// `--open-mode`.
    #[n(35)]
    pub append: Option<bool>,
    /// `--mem-bind`, as text.
    #[n(36)]
    pub mem_bind: Option<String>,
    /// `--threads-per-core`, or implied by `--hint`: threads of each core that tasks use.
    #[n(37)]
    pub threads_per_core: Option<u32>,
    /// `--ntasks-per-socket`.
    #[n(38)]
    pub ntasks_per_socket: Option<u32>,
    /// Its place among the steps of several components that run as one.
    #[n(39)]
    #[cbor(default)]
    pub het: Option<HetStep>,
    /// The srun that asks for it.
    #[n(40)]
    #[cbor(default)]
    pub maker: Option<muster_model::job::StepMaker>,
    /// `--gpus` and its kin: devices that are counted by step or task.
    #[n(41)]
    pub devices: Option<Box<DeviceAsk>>,
    /// `--gpu-bind`, or implied by other options, as text.
    #[n(42)]
    pub gpu_bind: Option<String>,
    /// `--treewidth`: how many nodes each node passes messages on to; else the site's.
    #[n(43)]
    pub tree_width: Option<u32>,
    /// Number of times that its job has lost nodes, as far as the requester knows: a node that does not know of the
    /// last time yet waits for that.
    #[n(44)]
    #[cbor(default)]
    pub resizes: u32,
    /// With this request come srun's standard input, output and error output, and one end of a connection whose other end
    /// srun keeps, as descriptors. A task that is alone may have the streams as they are; then its stepd has the connection, and
    /// sends [`FromStepd::Created`] by it instead of [`AgentReply::Created`].
    #[n(45)]
    #[cbor(default)]
    pub passes_stdio: bool,
    /// The programs of its tasks, as far as srun can tell.
    #[n(47)]
    #[cbor(default)]
    pub program: ProgramKind,
    /// Where srun has found the program in its `PATH`. A task that is alone, and so on srun's host, need not look for it.
    #[n(48)]
    #[cbor(default)]
    pub program_file: Option<String>,
    /// `--gres=none`: it has none of the job's devices.
    #[n(49)]
    #[cbor(default)]
    pub no_devices: bool,
    /// `--label`: lines in files that its tasks write begin with the number of their task.
    #[n(50)]
    #[cbor(default)]
    pub label: bool,
    /// The devices that listings say it was asked to have.
    #[n(51)]
    #[cbor(default)]
    pub device_ask: Option<Box<muster_model::job::StepDeviceAsk>>,
}

/// Whether a program is one of MPI's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum ProgramKind {
    /// It may be.
    #[default]
    #[n(0)]
    Unknown,
    /// It is not, and starts no other.
    #[n(1)]
    Plain,
    /// It is linked to MPI, or to what programs find each other by.
    #[n(2)]
    Mpi,
}

impl StepSpec {
    /// Whether it says which devices it has; a step that does not has all of the job's.
    pub fn wants_devices(&self) -> bool {
        let counted = |d: &DeviceAsk| !d.per_job.is_empty() || !d.per_task.is_empty();
        self.no_devices || !self.gres.is_empty() || self.devices.as_deref().is_some_and(counted)
    }
}

/// A step in one component of a heterogeneous job.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct HetStep {
    /// The number that the leader's agent gave: the steps of all components have the same.
    #[n(0)]
    #[valid(max = StepNo::COUNTED_MAX)]
    pub step: u32,
    /// Global number of its first task.
    #[n(1)]
    pub first_task: u32,
    /// Tasks over all components; absent for a step in one of them.
    #[n(2)]
    pub total_tasks: Option<u32>,
    /// Proves to the agents of the other components that the leader's agent gave the number.
    #[n(3)]
    pub proof: Option<ByteVec>,
}

/// Which tasks get srun's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub enum StdinTask {
    /// All of them.
    #[default]
    #[n(0)]
    All,
    /// None.
    #[n(1)]
    None,
    /// This one.
    #[n(2)]
    One(#[n(0)] u32),
}

/// A step as it was laid out.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct StepCreated {
    /// Its number.
    #[n(0)]
    pub step: StepNo,
    /// Where its tasks run.
    #[n(1)]
    pub nodes: Vec<StepNode>,
    /// Key that each stepd asks for.
    #[n(2)]
    pub key: ByteVec,
    /// Hostlist.
    #[n(3)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub hostlist: String,
    /// Where the stepds listen for each other, by node of the step; empty when they need not know.
    #[n(4)]
    #[cbor(default)]
    pub mesh_addresses: Vec<String>,
    /// Width of the tree ([`muster_model::tree`]) over its nodes.
    #[n(5)]
    #[cbor(default)]
    pub width: u32,
    /// Its task has the streams that srun handed over, and runs already; its stepd is at the other end of the connection
    /// that came with them. There, [`FromStepd::NodeTasksEnded`] says that the end is recorded as well: srun need not wait for
    /// [`AgentReply::Done`] then.
    #[n(6)]
    #[cbor(default)]
    pub direct: bool,
    /// Binding of its tasks to CPUs, in the words of `--cpu-bind` or of the site's `CpuBind`; empty if nobody says.
    #[n(7)]
    #[cbor(default)]
    pub cpu_bind: String,
}

impl StepCreated {
    /// Width of the tree. One who knows of no tree speaks to every node.
    pub fn tree_width(&self) -> usize {
        match self.width {
            0 => self.nodes.len().max(1),
            width => width as usize,
        }
    }
}

/// A node of a step.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct StepNode {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Its stepd.
    #[n(1)]
    pub address: String,
    /// Global numbers of its tasks, by local number.
    #[n(2)]
    pub tasks: Vec<u32>,
}

/// One node's part of a step.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct StepLaunch {
    /// The job's key.
    #[n(0)]
    pub key: ByteVec,
    /// The request.
    #[n(1)]
    pub spec: StepSpec,
    /// The step.
    #[n(2)]
    pub step: StepNo,
    /// Key for srun's connections.
    #[n(3)]
    pub step_key: ByteVec,
    /// Position of this node in the step.
    #[n(4)]
    pub position: u32,
    /// Global task numbers by node of the step and local number; this node's are at `position`.
    #[n(5)]
    pub tasks: Vec<Vec<u32>>,
    /// Node names of the step.
    #[n(6)]
    pub names: Vec<String>,
    /// CPUs of the step on this node.
    #[n(7)]
    pub cpus: CpuSet,
    /// Memory of the step on this node, MiB.
    #[n(8)]
    pub memory_mib: u64,
    /// Devices of the step on this node.
    #[n(9)]
    pub gres: Vec<GresShare>,
    /// The lead's address, for `StepNodeEnded`.
    #[n(10)]
    pub lead: String,
    /// Width of the tree ([`muster_model::tree`]) over the step's nodes.
    #[n(11)]
    #[cbor(default)]
    pub width: u32,
    /// Address of the agent above in the tree, if that is not the lead.
    #[n(12)]
    pub above: Option<String>,
}

impl StepLaunch {
    /// Width of the tree.
    pub fn tree_width(&self) -> usize {
        match self.width {
            0 => self.names.len().max(1),
            width => width as usize,
        }
    }
}

/// The parts of the launch of a step that differ by node.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct StepShare {
    /// Address of the node's agent.
    #[n(0)]
    pub address: String,
    /// CPUs of the step on this node.
    #[n(1)]
    pub cpus: CpuSet,
    /// Memory of the step on this node, MiB.
    #[n(2)]
    pub memory_mib: u64,
    /// Devices of the step on this node.
    #[n(3)]
    pub gres: Vec<GresShare>,
}
