//! Steps: srun, node agents and step daemons.
//!
//! srun asks the agent of the job's first node (the lead) for a step; the lead lays it out, has the other agents
//! start their step daemons (stepd), and answers with each stepd's address. srun then talks to every stepd
//! directly: standard streams, signals, exits. The lead reports steps to the controller in batches, and nothing
//! waits for it.

use crate::frame::Message;
use crate::version::Greeting;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ExitStatus, GresShare, StepEnd, Usage};
use muster_model::limits::{
    AGENT_REQUEST_BYTES_MAX, AGENT_REQUEST_ITEMS_MAX, ARGUMENT_BYTES_MAX, HOSTLIST_BYTES_MAX,
    NOTE_BYTES_MAX, SIGNAL_MAX, SUBMIT_LINE_BYTES_MAX,
};
use muster_model::refusal::Refusal;
use muster_model::spec::{DeviceAsk, ExecContext, GresAsk, MemoryAsk, StdioSpec};
use muster_model::time::TimeLimit;
use muster_model::validate::Validate;

/// How one node's part of a step has ended.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct NodeEnd {
    /// Position of the node in the step.
    #[n(0)]
    pub position: u32,
    /// How.
    #[n(1)]
    pub end: StepEnd,
}

/// To an agent's listener, from srun, sstat, scontrol or another agent. One per connection.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum AgentRequest {
    /// Make a step. Answered by [`AgentReply::Queued`] any number of times, then `Created` or `Refused`. The
    /// connection stays open while the step runs; when it closes, the step is ended. The job's owner or root.
    #[n(0)]
    Create(#[n(0)] Box<StepSpec>),
    /// From the lead, or the node above in the tree: start the stepd of this node, and those of the nodes below it, which
    /// are given in the order of their positions. Answered by [`AgentReply::Started`] when all have answered. Bearer of
    /// the job's key.
    #[n(1)]
    StartStep(
        #[n(0)] Box<StepLaunch>,
        #[n(1)]
        #[cbor(default)]
        Vec<StepShare>,
    ),
    /// To the lead, or the node above in the tree: this node's part of a step has ended, and those of others below it.
    /// Answered by [`AgentReply::Done`] when the lead knows. Bearer of the job's key.
    #[n(2)]
    StepNodeEnded {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The job's key.
        #[n(1)]
        key: ByteVec,
        /// The step.
        #[n(2)]
        step: StepNo,
        /// Position of the node in the step.
        #[n(3)]
        position: u32,
        /// How.
        #[n(4)]
        end: Box<StepEnd>,
        /// Ends of others.
        #[n(5)]
        #[cbor(default)]
        others: Vec<NodeEnd>,
        /// It is for the lead, to be passed on; otherwise the receiver is the lead.
        #[n(6)]
        #[cbor(default)]
        onwards: bool,
    },
    /// Signal a step, from the lead to other nodes, each of which passes it on to those below it. Answered by
    /// [`AgentReply::Done`]. Bearer of the job's key.
    #[n(3)]
    SignalStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The job's key.
        #[n(1)]
        key: ByteVec,
        /// The step.
        #[n(2)]
        step: StepNo,
        /// Signal number.
        #[n(3)]
        #[valid(min = 1, max = SIGNAL_MAX)]
        signal: u32,
        /// Addresses of the agents to pass it on to.
        #[n(4)]
        #[cbor(default)]
        below: Vec<String>,
    },
    /// Process ids of a job here (`scontrol listpids`).
    #[n(4)]
    Inspect {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// What the steps of a job use here now (`sstat`).
    #[n(5)]
    Measure {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// To the lead of a heterogeneous job's first component: a number for a step of any of its components. Answered by
    /// [`AgentReply::StepNumber`]. The job's owner or root.
    #[n(260)]
    TakeStepNumber {
        /// The leader.
        #[n(0)]
        job: JobId,
        /// The job's key, when srun has it.
        #[n(1)]
        key: Option<ByteVec>,
    },
    /// First on a connection that slurmd's supervisor makes for the agent of this node: from here on only what agents ask
    /// each other is taken from it. The agent sees root there, which that agent is not. There is no answer. Root.
    #[n(261)]
    ServeNode(#[n(0)] String, #[n(1)] Option<Greeting>),
    /// Before any other request, and on the way of `ServeNode` in that: which version the sender speaks. There is no answer but
    /// [`AgentReply::Refused`]. Anyone.
    #[n(262)]
    Greeting(#[n(0)] Greeting),
    /// From the lead to another node, after the lead's agent was started anew: is a part of this step there? Answered by
    /// [`AgentReply::Done`] if so, whose end will be reported; refused by `JobNotHere` if there is none, and by another code where
    /// that is not known yet. Bearer of the job's key.
    #[n(263)]
    FindStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The job's key.
        #[n(1)]
        key: ByteVec,
        /// The step.
        #[n(2)]
        step: StepNo,
    },
    /// To the lead: where the tasks of a step run and the key to its daemons (`sattach`). Answered by [`AgentReply::Created`].
    /// The job's owner or root.
    #[n(400)]
    LocateStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
    },
}

impl AgentRequest {
    /// The job that a request is about; none for those about the connection.
    pub fn job(&self) -> Option<JobId> {
        match self {
            AgentRequest::Create(spec) => Some(spec.job),
            AgentRequest::StartStep(launch, _) => Some(launch.spec.job),
            AgentRequest::StepNodeEnded { job, .. }
            | AgentRequest::SignalStep { job, .. }
            | AgentRequest::FindStep { job, .. }
            | AgentRequest::Inspect { job }
            | AgentRequest::Measure { job }
            | AgentRequest::LocateStep { job, .. }
            | AgentRequest::TakeStepNumber { job, .. } => Some(*job),
            AgentRequest::ServeNode(..) | AgentRequest::Greeting(_) => None,
        }
    }

    /// The job of a request between agents, and the key by which they know each other.
    pub fn agents_key(&self) -> Option<(JobId, &ByteVec)> {
        match self {
            AgentRequest::StartStep(launch, _) => Some((launch.spec.job, &launch.key)),
            AgentRequest::StepNodeEnded { job, key, .. }
            | AgentRequest::SignalStep { job, key, .. }
            | AgentRequest::FindStep { job, key, .. } => Some((*job, key)),
            _ => None,
        }
    }
}

/// What a batch script or a step inherits comes to nodes as the submitter has sent it.
impl Message for ExecContext {}

impl Message for AgentRequest {
    const BYTES_MAX: usize = AGENT_REQUEST_BYTES_MAX;
    const ITEMS_MAX: usize = AGENT_REQUEST_ITEMS_MAX;
}

/// From an agent.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub enum AgentReply {
    /// The step waits: text for `srun: Job step creation temporarily disabled, retrying (...)`.
    #[n(0)]
    Queued(#[n(0)] String),
    /// The step runs or is about to.
    #[n(1)]
    Created(#[n(0)] Box<StepCreated>),
    /// No.
    #[n(2)]
    Refused(#[n(0)] Refusal),
    /// The stepd listens here.
    #[n(3)]
    Started {
        /// `unix:/path` or `host:port`.
        #[n(0)]
        address: String,
        /// Where it listens for the step's other nodes, `ip:port`, if the step's kind of MPI needs that.
        #[n(1)]
        wire: Option<String>,
        /// The same of the nodes below, in the order of their positions.
        #[n(2)]
        #[cbor(default)]
        below: Vec<BelowStarted>,
    },
    /// Done. After `Created`: the step is over on all its nodes.
    #[n(4)]
    Done,
    /// To `Inspect`: of each process its number, its step, and for a task its numbers.
    #[n(5)]
    Processes(#[n(0)] Vec<(u32, StepNo, Option<TaskNumbers>)>),
    /// To `Measure`.
    #[n(6)]
    Measured(#[n(0)] Vec<(StepNo, Usage)>),
    /// To `TakeStepNumber`.
    #[n(260)]
    StepNumber {
        /// The number.
        #[n(0)]
        number: u32,
        /// See [`HetStep::proof`].
        #[n(1)]
        proof: ByteVec,
    },
}

impl Message for AgentReply {}

/// The answer of a node that was asked by another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub struct BelowStarted {
    /// As in [`AgentReply::Started`].
    #[n(0)]
    pub address: String,
    /// Likewise.
    #[n(1)]
    pub wire: Option<String>,
    /// Why its stepd is not there.
    #[n(2)]
    pub error: Option<String>,
}

/// The numbers of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct TaskNumbers {
    /// Among those of the step on its node.
    #[n(0)]
    pub local: u32,
    /// Among all of the step.
    #[n(1)]
    pub global: u32,
}

/// What srun asks for.
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
    /// How often its job has lost nodes, as far as the requester knows: a node that does not know of the last time yet
    /// waits for that.
    #[n(44)]
    #[cbor(default)]
    pub resizes: u32,
    /// With this request come srun's standard input, output and error output, and one end of a connection whose other end
    /// srun keeps, as descriptors. A task that is alone may have the streams as they are; then its stepd has the connection, and
    /// sends [`FromStepd::Created`] by it instead of [`AgentReply::Created`].
    #[n(45)]
    #[cbor(default)]
    pub hands_streams: bool,
    /// What its tasks run, as far as srun can tell.
    #[n(47)]
    #[cbor(default)]
    pub program: ProgramKind,
    /// Where srun has found the program in its `PATH`. A task that is alone, and so on srun's host, need not look for it.
    #[n(48)]
    #[cbor(default)]
    pub program_file: Option<String>,
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
    /// Whether it asks for devices; a step that does not has all of the job's.
    pub fn wants_devices(&self) -> bool {
        let counted = |d: &DeviceAsk| !d.per_job.is_empty() || !d.per_task.is_empty();
        !self.gres.is_empty() || self.devices.as_deref().is_some_and(counted)
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
    pub wires: Vec<String>,
    /// Width of the tree ([`muster_model::tree`]) over its nodes.
    #[n(5)]
    #[cbor(default)]
    pub width: u32,
    /// Its task has the streams that srun handed over, and runs already; its stepd is at the other end of the connection
    /// that came with them. There, [`FromStepd::Closed`] says that the end is recorded as well: srun need not wait for
    /// [`AgentReply::Done`] then.
    #[n(6)]
    #[cbor(default)]
    pub direct: bool,
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
    /// What was asked.
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

/// What differs by node in the launch of a step.
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

/// srun to stepd.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum ToStepd {
    /// First message: the step's key, and which version the sender speaks; refused without that. Tasks are held until it came
    /// (or the stepd gives up waiting).
    #[n(0)]
    Hello(#[n(0)] ByteVec, #[n(1)] Option<Greeting>),
    /// Standard input for a task, or for all.
    #[n(1)]
    Stdin {
        /// Global task number; all when absent.
        #[n(0)]
        task: Option<u32>,
        /// The bytes; empty is end of file.
        #[n(1)]
        bytes: ByteVec,
    },
    /// A signal for all tasks.
    #[n(2)]
    Signal(#[n(0)] u32),
    /// The terminal's new size: rows, columns.
    #[n(3)]
    Window(#[n(0)] u16, #[n(1)] u16),
    /// Where the stepds listen for each other: [`StepCreated::wires`].
    #[n(10)]
    Peers(#[n(0)] Vec<String>),
    /// The step has failed as a whole, with this status: end all tasks at once.
    #[n(11)]
    Fail(#[n(0)] ExitStatus),
    /// First message in a step whose nodes form a tree, instead of `Hello`: from srun to the heads, and from each head to
    /// those below. Also what srun says to a node whose connection upwards was lost.
    #[n(12)]
    Attach(#[n(0)] Box<Attach>),
    /// In a tree: the message's sequence number among those to all nodes, and the message. A duplicate is passed on,
    /// and else ignored.
    #[n(13)]
    Down(#[n(0)] u64, #[n(1)] Box<ToStepd>),
    /// In a tree, to a node and all below it: say again what comes after so many messages, by position from the node on.
    #[n(14)]
    Again(#[n(0)] Vec<u64>),
    /// In a tree: the first so many messages of the node at this position have come.
    #[n(15)]
    Seen(#[n(0)] u32, #[n(1)] u64),
    /// In a tree: srun is gone.
    #[n(16)]
    Left,
    /// Nothing, in the place of what is for others.
    #[n(17)]
    Nothing,
    /// First message of sattach: the step's key, and which version the sender speaks. Output and exits of tasks follow, and what
    /// is sent as [`ToStepd::Stdin`] goes to tasks that srun's input goes to. srun's connection is another one.
    #[n(400)]
    Read(#[n(0)] ByteVec, #[n(1)] Option<Greeting>),
    /// From a new launcher, after the control channel to the former one was lost: this connection takes its place. Accepted only from a process of the daemon's own user.
    #[n(18)]
    Adopt(#[n(0)] Option<Greeting>),
}

impl Message for ToStepd {}

/// How a node of a tree is connected.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct Attach {
    /// The step's key.
    #[n(0)]
    pub key: ByteVec,
    /// Addresses of the stepds below, in the order of their positions.
    #[n(1)]
    pub below: Vec<String>,
    /// This is srun, not a node: when it is gone, it is gone.
    #[n(2)]
    pub srun: bool,
    /// How many messages of this node and of those below have come, by position; empty at first.
    #[n(3)]
    pub seen: Vec<u64>,
    /// Which version the sender speaks; refused without.
    #[n(4)]
    pub greeting: Option<Greeting>,
}

/// stepd to srun.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub enum FromStepd {
    /// Tasks run: process ids by local number.
    #[n(0)]
    Started(#[n(0)] Vec<u32>),
    /// Standard output of a task.
    #[n(1)]
    Stdout {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// The bytes; empty is end of file.
        #[n(1)]
        bytes: ByteVec,
    },
    /// Standard error of a task.
    #[n(2)]
    Stderr {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// The bytes; empty is end of file.
        #[n(1)]
        bytes: ByteVec,
    },
    /// A line from stepd itself for srun's standard error, such as a program that cannot be executed.
    #[n(3)]
    Message(#[n(0)] String),
    /// A task ended.
    #[n(4)]
    Exited {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// Its status.
        #[n(1)]
        exit: ExitStatus,
        /// By the out-of-memory killer.
        #[n(2)]
        oom: bool,
    },
    /// Every task of this node has ended and its output is all sent.
    #[n(5)]
    Closed,
    /// To `Hello` or `Attach` of a version that is not spoken here. Nothing else follows on the connection.
    #[n(19)]
    Refused(#[n(0)] Refusal),
    /// A task has joined the others by MPI: from now on they wait for each other.
    #[n(10)]
    Joined,
    /// A task has ended, or wants all to end, in a way that lets the others wait for ever.
    #[n(11)]
    Failed {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// The status that the step is to have.
        #[n(1)]
        exit: ExitStatus,
        /// It had joined the others. If it had not, it matters only when others do.
        #[n(2)]
        joined: bool,
        /// A line that says so, unless others failed before: what fails afterwards may do so only because those are gone.
        #[n(3)]
        line: Option<String>,
    },
    /// In a tree: what the node at a position says.
    #[n(12)]
    Up {
        /// Which node.
        #[n(0)]
        position: u32,
        /// The message's sequence number among that node's.
        #[n(1)]
        number: u64,
        /// Messages of srun that it has received.
        #[n(2)]
        acknowledged: u64,
        /// The message.
        #[n(3)]
        message: Box<FromStepd>,
    },
    /// In a tree: the connection to this position, just below, is lost.
    #[n(13)]
    Lost(#[n(0)] u32),
    /// In a tree, to the node above: this connection ends as it should.
    #[n(14)]
    Over,
    /// An acknowledgement without a message.
    #[n(15)]
    Acknowledged,
    /// A line for srun's standard error that is about the whole step: of several such, from whatever nodes, one is enough.
    #[n(16)]
    Note(#[n(0)] String),
    /// To an srun with a channel to the step daemon, before anything else.
    #[n(17)]
    Created(#[n(0)] Box<StepCreated>),
}

impl Message for FromStepd {}
