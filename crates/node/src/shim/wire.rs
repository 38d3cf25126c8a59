//! Messages between agent and launcher: frames of CBOR over `<spool>/shim.sock`. Whoever connects is root and says which node
//! this is ([`ToShim::Attach`]); the agent, to which the connection is given then, has no rights of its own: what it passes on
//! is sealed by the controller, and what it asks for is checked against the grants that came so.

use super::measure::TaskUsage;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_core::cpuset::CpuSet;
use muster_core::environment::Environment;
use muster_core::ids::{Attempt, JobId, StepNo};
use muster_core::job::{StepEnd, Usage};
use muster_core::limits::FRAME_BYTES_MAX;
use muster_core::time::Timestamp;
use muster_core::validate::Validate;
use muster_proto::frame::Message;
use muster_proto::node::MemoryCount;
use muster_proto::step::StepLaunch;
use muster_proto::version::{Greeting, Versions};

/// One launch of a job: attempts are never launched twice.
pub(crate) type Run = (JobId, Attempt);

/// A process of a job: pid, step, and for a task its local and global number.
pub(crate) type Process = (u32, StepNo, Option<(u32, u32)>);

/// Versions of these messages, and of those to step daemons, that this release speaks. A launcher outlives updates of slurmd, and
/// step daemons outlive launchers: who is newer finds out which version the other speaks, and if that is too old, leaves it alone.
pub(crate) const VERSIONS: Versions = Versions {
    oldest: 1,
    newest: 1,
};

/// Agent to shim.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) enum ToShim {
    /// First message of a connection, by root: an agent is about to use it. Answered by [`FromShim::Greeting`] and
    /// [`FromShim::State`], then by every outcome that was not forgotten; or by [`FromShim::Refused`].
    #[n(0)]
    Attach(#[n(0)] Box<Attach>),
    /// The agent dials the controller: answered by [`FromShim::SessionKey`].
    #[n(16)]
    OpenSession,
    /// The controller has answered with this key: answered by [`FromShim::SessionBegun`].
    #[n(17)]
    BeginSession(#[n(0)] ByteVec),
    /// What the controller has sealed for the launcher, next on this session.
    #[n(18)]
    Sealed {
        /// Encoded [`muster_proto::node::Orders`].
        #[n(0)]
        orders: ByteVec,
        /// The launcher's seal of them.
        #[n(1)]
        seal: ByteVec,
    },
    /// Start a step daemon: answered by `StepReady` or `StepFailed`.
    #[n(6)]
    StartStep(#[n(0)] Box<StepOrder>),
    /// Signal a step.
    #[n(8)]
    SignalStep {
        /// The job.
        #[n(0)]
        run: Run,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// Signal number.
        #[n(2)]
        signal: i32,
    },
    /// End one step: TERM, after `KillWait` KILL.
    #[n(9)]
    EndStep {
        /// The job.
        #[n(0)]
        run: Run,
        /// The step.
        #[n(1)]
        step: StepNo,
    },
    /// The controller knows how the job ended here.
    #[n(10)]
    Forget(#[n(0)] Run),
    /// The lead knows how the step ended here.
    #[n(11)]
    ForgetStep(#[n(0)] Run, #[n(1)] StepNo),
    /// Something that the agent wants back when it attaches again; empty removes it.
    #[n(12)]
    Keep {
        /// The job.
        #[n(0)]
        run: Run,
        /// Under which number.
        #[n(1)]
        key: u32,
        /// What.
        #[n(2)]
        bytes: ByteVec,
    },
    /// Which processes a job has: answered by `Processes`.
    #[n(13)]
    Inspect {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Comes back with the answer.
        #[n(1)]
        tag: u64,
    },
    /// What the tasks of a job use: answered by `Measured`.
    #[n(206)]
    Measure {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Comes back with the answer.
        #[n(1)]
        tag: u64,
        /// What counts as memory; absent: the most that each process had.
        #[n(2)]
        memory: Option<MemoryCount>,
    },
    /// Exit: refused by `Busy` while processes of jobs run, unless they are to be killed.
    #[n(14)]
    Stop {
        /// Kill them.
        #[n(0)]
        kill: bool,
    },
    /// A line for the standard error of the script, or of a step.
    #[n(201)]
    Tell {
        /// The job.
        #[n(0)]
        run: Run,
        /// The line.
        #[n(1)]
        text: String,
        /// A step other than the script.
        #[n(2)]
        step: Option<StepNo>,
        /// The script is killed once it is told.
        #[n(3)]
        #[cbor(default)]
        kill: bool,
    },
    /// The agent has given a step to a daemon that waited for one.
    #[n(203)]
    StepGiven {
        /// The job.
        #[n(0)]
        run: Run,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// The daemon's process.
        #[n(2)]
        pid: i32,
    },
    /// A daemon that waits for a step is to end.
    #[n(204)]
    Dismiss {
        /// The job.
        #[n(0)]
        run: Run,
        /// The daemon's process.
        #[n(1)]
        pid: i32,
    },
}

impl Message for ToShim {}

impl ToShim {
    /// Whether that is for root to say, as the first message of a connection.
    pub(crate) fn is_roots(&self) -> bool {
        matches!(self, ToShim::Attach(_) | ToShim::Stop { .. })
    }
}

/// What root says of the node when an agent attaches.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct Attach {
    /// `NodeName`.
    #[n(0)]
    pub(crate) node: String,
    /// `ClusterName`.
    #[n(1)]
    pub(crate) cluster: String,
    /// Version of the agent, for the log.
    #[n(2)]
    pub(crate) version: String,
    /// What the configuration claims of the machine.
    #[n(3)]
    pub(crate) claim: MachineClaim,
    /// Which version the agent speaks.
    #[n(4)]
    pub(crate) greeting: Option<Greeting>,
}

/// What slurm.conf claims of a node's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub(crate) struct MachineClaim {
    /// `CPUs`, where they are to be reported instead of the machine's.
    #[n(0)]
    pub(crate) cpus: Option<u32>,
    /// Sockets; 0 when it says nothing.
    #[n(1)]
    pub(crate) sockets: u32,
    /// Other nodes of the configuration are on this machine too.
    #[n(2)]
    pub(crate) shared: bool,
}

/// Programs of the site around a job: none of them is the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct Around {
    /// Run before anything of the job; if one fails, the job does not start.
    #[n(0)]
    pub(crate) prolog: Vec<String>,
    /// Run when nothing of it is left.
    #[n(1)]
    pub(crate) epilog: Vec<String>,
    /// Environment, as `NAME=value`.
    #[n(2)]
    pub(crate) env: Vec<String>,
    /// Seconds after which they are killed, and count as failed.
    #[n(3)]
    pub(crate) prolog_timeout_s: Option<u32>,
    /// See above.
    #[n(4)]
    pub(crate) epilog_timeout_s: Option<u32>,
}

/// An identity to run processes under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct User {
    /// User id.
    #[n(0)]
    pub(crate) uid: u32,
    /// Primary group.
    #[n(1)]
    pub(crate) gid: u32,
    /// All groups.
    #[n(2)]
    pub(crate) groups: Vec<u32>,
    /// Login name.
    #[n(3)]
    pub(crate) name: String,
}

/// A step daemon to start.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct StepOrder {
    /// The job.
    #[n(0)]
    pub(crate) run: Run,
    /// What to run.
    #[n(1)]
    pub(crate) launch: StepLaunch,
    /// Who it runs as.
    #[n(2)]
    pub(crate) user: User,
    /// Environment of all tasks here, as `NAME=value`.
    #[n(3)]
    pub(crate) env: Environment,
    /// Soft limits.
    #[n(4)]
    pub(crate) limits: Vec<(u32, u64)>,
    /// For file patterns.
    #[n(5)]
    pub(crate) array: Option<(JobId, u32)>,
    /// See above.
    #[n(6)]
    pub(crate) job_name: String,
    /// Append to files when the step does not say.
    #[n(7)]
    pub(crate) append: bool,
    /// Programs run as the user before and after each task.
    #[n(8)]
    pub(crate) task_prolog: Option<String>,
    /// See above.
    #[n(9)]
    pub(crate) task_epilog: Option<String>,
    /// CPUs and memory of each task here.
    #[n(10)]
    #[cbor(default)]
    pub(crate) binding: TaskBinding,
    /// How the tasks find each other, if by PMIx.
    #[n(11)]
    pub(crate) pmix: Option<PmixOrder>,
    /// The only task has srun's standard streams, which come with this order as descriptors, and starts at once.
    #[n(12)]
    #[cbor(default)]
    pub(crate) direct: bool,
}

/// Where the tasks of a step on one node may run, by the kernel's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct TaskBinding {
    /// CPUs by local task; empty leaves them as they are.
    #[n(0)]
    pub(crate) cpus: Vec<CpuSet>,
    /// What `--cpu-bind=verbose` calls it.
    #[n(1)]
    pub(crate) label: String,
    /// Each task tells of it.
    #[n(2)]
    pub(crate) verbose: bool,
    /// Why CPUs are not bound although that is asked for.
    #[n(3)]
    pub(crate) note: Option<String>,
    /// Memory.
    #[n(4)]
    pub(crate) memory: Option<MemoryPolicy>,
    /// GPUs by local task; empty lets each see all of the step's.
    #[n(5)]
    #[cbor(default)]
    pub(crate) gpus: Vec<CpuSet>,
    /// Each task tells of its GPUs.
    #[n(6)]
    #[cbor(default)]
    pub(crate) tell_gpus: bool,
}

/// `--mem-bind` for the tasks of a step on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct MemoryPolicy {
    /// What the verbose line says after `mem-bind`.
    #[n(0)]
    pub(crate) label: String,
    /// Each task tells of it.
    #[n(1)]
    pub(crate) verbose: bool,
    /// Next to the CPU that asks.
    #[n(2)]
    pub(crate) local: bool,
    /// Other domains may be used too.
    #[n(3)]
    pub(crate) prefer: bool,
    /// NUMA domains by local task; empty for `local` and for no binding.
    #[n(4)]
    pub(crate) domains: Vec<CpuSet>,
    /// NUMA domains of the machine.
    #[n(5)]
    pub(crate) exist: CpuSet,
}

/// What the PMIx host of a step needs beyond the launch.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct PmixOrder {
    /// Name space: unique in the cluster.
    #[n(0)]
    pub(crate) nspace: String,
    /// The version that was asked for.
    #[n(1)]
    pub(crate) version: Option<u32>,
    /// Slots of the allocation.
    #[n(2)]
    pub(crate) universe: u32,
    /// IP address at which the other nodes of the step reach this one.
    #[n(3)]
    pub(crate) listen: String,
    /// Directory in which one for this step is made.
    #[n(4)]
    pub(crate) tmp_base: String,
    /// `PMIxShareServerTopology`.
    #[n(5)]
    pub(crate) share_topology: bool,
    /// `PMIxDirectConnEarly`.
    #[n(6)]
    pub(crate) early: bool,
    /// `PMIxTimeout`, seconds.
    #[n(7)]
    pub(crate) timeout_s: u32,
    /// `PMIxEnv`, as `NAME=value`.
    #[n(8)]
    pub(crate) env: Vec<String>,
    /// PMI-1 and PMI-2 instead of PMIx.
    #[n(9)]
    #[cbor(default)]
    pub(crate) pmi: bool,
    /// What MPI is told of cross-memory attach.
    #[n(10)]
    pub(crate) cross_memory: Option<bool>,
    /// Open MPI need not look for other networks than TCP.
    #[n(11)]
    #[cbor(default)]
    pub(crate) plain_network: bool,
    /// `PMIxDirectConnUCX`.
    #[n(12)]
    pub(crate) ucx: Option<UcxOrder>,
    /// hwloc need not look for GPUs.
    #[n(13)]
    #[cbor(default)]
    pub(crate) no_gpus: bool,
    /// `CrowdedTimerSlack`, microseconds.
    #[n(14)]
    #[cbor(default)]
    pub(crate) crowded_slack_us: u32,
    /// PMI-1 and PMI-2 beside PMIx, which the node may not have.
    #[n(15)]
    #[cbor(default)]
    pub(crate) any: bool,
}

/// What mpi.conf says of UCX, where step daemons' hosts are to use it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct UcxOrder {
    /// `PMIxNetDevicesUCX`.
    #[n(0)]
    pub(crate) devices: Option<String>,
    /// `PMIxTlsUCX`.
    #[n(1)]
    pub(crate) transports: Option<String>,
}

/// Shim to agent.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) enum FromShim {
    /// All it knows.
    #[n(0)]
    State(#[n(0)] Vec<Known>),
    /// The batch script ended.
    #[n(1)]
    BatchEnded {
        /// The job.
        #[n(0)]
        run: Run,
        /// Wait status.
        #[n(1)]
        status: i32,
        /// What it used.
        #[n(2)]
        usage: Usage,
        /// When.
        #[n(3)]
        end: Timestamp,
    },
    /// The batch script could not be started.
    #[n(2)]
    LaunchFailed {
        /// The job.
        #[n(0)]
        run: Run,
        /// Why.
        #[n(1)]
        error: String,
        /// The node's fault.
        #[n(2)]
        node_fault: bool,
        /// It was the prolog that failed.
        #[n(3)]
        #[cbor(default)]
        prolog: bool,
        /// It lacked processes, descriptors or room.
        #[n(4)]
        #[cbor(default)]
        lack: bool,
    },
    /// Nothing of the job is left.
    #[n(3)]
    Released(#[n(0)] Run),
    /// The script is gone and nobody knows how it ended.
    #[n(4)]
    Vanished(#[n(0)] Run),
    /// The step daemon listens, or runs the task of a direct step.
    #[n(5)]
    StepReady {
        /// The job.
        #[n(0)]
        run: Run,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// Path of its socket.
        #[n(2)]
        socket: String,
        /// Where it listens for the step's other nodes, `ip:port`.
        #[n(3)]
        wire: Option<String>,
        /// The task has srun's streams.
        #[n(4)]
        #[cbor(default)]
        direct: bool,
        /// The daemon's process.
        #[n(5)]
        #[cbor(default)]
        pid: i32,
    },
    /// The step daemon could not be started.
    #[n(6)]
    StepFailed {
        /// The job.
        #[n(0)]
        run: Run,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// Why.
        #[n(2)]
        error: String,
    },
    /// This node's part of a step ended.
    #[n(7)]
    StepEnded {
        /// The job.
        #[n(0)]
        run: Run,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// How.
        #[n(2)]
        end: Box<StepEnd>,
    },
    /// To `Inspect`.
    #[n(8)]
    Processes {
        /// From the request.
        #[n(0)]
        tag: u64,
        /// All of them.
        #[n(1)]
        list: Vec<Process>,
    },
    /// To `Measure`.
    #[n(206)]
    Measured {
        /// From the request.
        #[n(0)]
        tag: u64,
        /// What each task uses, if it could be read.
        #[n(1)]
        tasks: Option<Vec<TaskUsage>>,
    },
    /// To `Stop`: so many jobs have processes.
    #[n(9)]
    Busy(#[n(0)] u32),
    /// The epilog failed, or processes survive SIGKILL: the node is unfit for further jobs.
    #[n(10)]
    NodeFault {
        /// The job.
        #[n(0)]
        run: Run,
        /// What.
        #[n(1)]
        error: String,
    },
    /// To `OpenSession`: the launcher's public key for this connection to the controller.
    #[n(12)]
    SessionKey(#[n(0)] ByteVec),
    /// To `BeginSession`: why the controller is not the one that this node knows, if it is not.
    #[n(13)]
    SessionBegun(#[n(0)] Option<String>),
    /// What was passed on does not bear the controller's seal, or there is no session: the controller has to be dialled anew.
    #[n(14)]
    SessionFailed(#[n(0)] String),
    /// To `Attach`, before all else, where the agent has said its version: the launcher's.
    #[n(15)]
    Greeting(#[n(0)] Greeting),
    /// To `Attach`: the agent's version is too old. The connection ends, and jobs go on.
    #[n(16)]
    Refused(#[n(0)] String),
    /// A step runs, or has run, of which neither an earlier shim nor this one was told.
    #[n(11)]
    StepFound {
        /// The job.
        #[n(0)]
        run: Run,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// What would have been kept of it.
        #[n(2)]
        kept: Vec<(u32, ByteVec)>,
    },
}

impl Message for FromShim {}

/// A job that the shim knows.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct Known {
    /// Which.
    #[n(0)]
    pub(crate) run: Run,
    /// Its grant; absent after the shim itself was lost.
    #[n(1)]
    pub(crate) grant: Option<ByteVec>,
    /// What the agent asked to keep.
    #[n(2)]
    pub(crate) kept: Vec<(u32, ByteVec)>,
    /// Steps that run here.
    #[n(3)]
    pub(crate) steps: Vec<StepNo>,
}
