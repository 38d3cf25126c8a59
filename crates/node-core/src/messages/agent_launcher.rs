//! Messages between agent and launcher: frames of CBOR. A root process connects to `<spool>/shim.sock` and identifies
//! the node ([`LauncherCommand::Attach`]); with this message it sends the reading end of a one-way link, a TCP
//! connection within the host. Then it shuts the Unix connection down for writing, and gives it to the agent together
//! with the writing end of the link, on which the agent sends. The link carries no descriptors, which the launcher
//! would have to close; closing can block. The agent has no rights of its own: the orders that it relays are sealed
//! by the controller, and its own requests are checked against the grants in these orders.

use super::{KeptEntries, StepOrder};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::ids::JobAttempt;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ResourceUsage, StepEnd};
use muster_model::limits::{FRAME_BYTES_MAX, TEXT_BYTES_MAX};
use muster_model::time::Timestamp;
use muster_model::validate::Validate;
use muster_proto::frame::Message;
use muster_proto::node::MemoryCount;
use muster_proto::step::Process;
use muster_proto::version::Greeting;

/// Agent to launcher.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub enum LauncherCommand {
    /// First message of a connection, by root: an agent is about to use it, and sends orders by the one-way link whose reading end comes
    /// with this. Answered by [`LauncherEvent::Greeting`] and all parts of [`LauncherEvent::State`], then by every outcome that was not
    /// forgotten; or by [`LauncherEvent::Refused`].
    #[n(0)]
    Attach(#[n(0)] Box<AttachAgent>),
    /// The agent dials the controller: answered by [`LauncherEvent::SessionKey`].
    #[n(16)]
    OpenSession,
    /// The controller has answered with this key: answered by [`LauncherEvent::SessionBegun`].
    #[n(17)]
    BeginSession(#[n(0)] ByteVec),
    /// Orders that the controller has sealed for the launcher, the next ones of this session.
    #[n(18)]
    Sealed {
        /// Encoded [`muster_proto::node::Orders`].
        #[n(0)]
        orders: ByteVec,
        /// The controller's seal of the orders.
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
        attempt: JobAttempt,
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
        attempt: JobAttempt,
        /// The step.
        #[n(1)]
        step: StepNo,
    },
    /// The controller knows how the job ended here.
    #[n(10)]
    Forget(#[n(0)] JobAttempt),
    /// The lead knows how the step ended here.
    #[n(11)]
    ForgetStep(#[n(0)] JobAttempt, #[n(1)] StepNo),
    /// Something that the agent wants back when it attaches again; empty removes it.
    #[n(12)]
    Keep {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// Under which number.
        #[n(1)]
        key: u32,
        /// The entry's bytes.
        #[n(2)]
        bytes: ByteVec,
    },
    /// List the processes of a job: answered by `Processes`.
    #[n(13)]
    Inspect {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Comes back with the answer.
        #[n(1)]
        tag: u64,
    },
    /// Measure the usage of a job's tasks: answered by `Measured`.
    #[n(206)]
    Measure {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Comes back with the answer.
        #[n(1)]
        tag: u64,
        /// The measure of memory; absent: the maximum of each process.
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
    PrintLine {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// The line.
        #[n(1)]
        text: String,
        /// A step other than the script.
        #[n(2)]
        step: Option<StepNo>,
        /// The script is killed once the line is written.
        #[n(3)]
        #[cbor(default)]
        kill: bool,
    },
    /// The agent has given a step to a waiting daemon.
    #[n(203)]
    StepAssigned {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// The daemon's process.
        #[n(2)]
        pid: i32,
    },
    /// A daemon that waits for a step is to end.
    #[n(204)]
    ReleaseStepd {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// The daemon's process.
        #[n(1)]
        pid: i32,
    },
}

impl Message for LauncherCommand {}

impl LauncherCommand {
    /// Whether only root sends this, as the first message of a connection.
    pub fn is_roots(&self) -> bool {
        matches!(
            self,
            LauncherCommand::Attach(_) | LauncherCommand::Stop { .. }
        )
    }
}

/// Root's description of the node when an agent attaches.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct AttachAgent {
    /// `NodeName`.
    #[n(0)]
    pub node: String,
    /// `ClusterName`.
    #[n(1)]
    pub cluster: String,
    /// Version of the agent, for the log.
    #[n(2)]
    pub version: String,
    /// The configuration's statements about the machine.
    #[n(3)]
    pub claim: MachineClaim,
    /// The protocol version of the agent.
    #[n(4)]
    pub greeting: Option<Greeting>,
    /// Path of the node's slurm.conf; empty if it is not known.
    #[n(5)]
    #[cbor(default)]
    #[valid(max_bytes = TEXT_BYTES_MAX)]
    pub conf: String,
}

/// The statements of slurm.conf about a node's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct MachineClaim {
    /// `CPUs`, where they are to be reported instead of the machine's.
    #[n(0)]
    pub cpus: Option<u32>,
    /// Sockets; 0 when it says nothing.
    #[n(1)]
    pub sockets: u32,
    /// Other nodes of the configuration are on this machine too.
    #[n(2)]
    pub shared: bool,
}

/// Launcher to agent.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub enum LauncherEvent {
    /// A part of all it knows: other events follow the last one.
    #[n(0)]
    State {
        /// Jobs. One job may be in several consecutive parts.
        #[n(0)]
        jobs: Vec<KnownJob>,
        /// There are no further parts.
        #[n(1)]
        is_last: bool,
    },
    /// The batch script ended.
    #[n(1)]
    BatchEnded {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// Wait status.
        #[n(1)]
        status: i32,
        /// The resource usage.
        #[n(2)]
        usage: ResourceUsage,
        /// When.
        #[n(3)]
        end: Timestamp,
        /// Processes that the kernel has killed for want of memory.
        #[n(4)]
        #[cbor(default)]
        oom_kills: u64,
        /// The last lines of its standard error, if its job asks for them.
        #[n(5)]
        last_lines: Option<String>,
    },
    /// The batch script could not be started.
    #[n(2)]
    LaunchFailed {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// Why.
        #[n(1)]
        error: String,
        /// The node's fault.
        #[n(2)]
        node_fault: bool,
        /// The prolog failed, not the script.
        #[n(3)]
        #[cbor(default)]
        prolog: bool,
        /// The launcher lacked processes, descriptors or disk space.
        #[n(4)]
        #[cbor(default)]
        lack: bool,
    },
    /// Nothing of the job is left.
    #[n(3)]
    Released(#[n(0)] JobAttempt),
    /// The script is gone and nobody knows how it ended.
    #[n(4)]
    Vanished(#[n(0)] JobAttempt),
    /// The step daemon listens, or runs the task of a direct step.
    #[n(5)]
    StepReady {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// Path of its socket.
        #[n(2)]
        socket: String,
        /// Where it listens for the step's other nodes, `ip:port`.
        #[n(3)]
        mesh_address: Option<String>,
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
        attempt: JobAttempt,
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
        attempt: JobAttempt,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// End of the step.
        #[n(2)]
        end: Box<StepEnd>,
    },
    /// To `Inspect`.
    #[n(8)]
    Processes {
        /// From the request.
        #[n(0)]
        tag: u64,
        /// All processes.
        #[n(1)]
        list: Vec<Process>,
    },
    /// To `Measure`.
    #[n(206)]
    Measured {
        /// From the request.
        #[n(0)]
        tag: u64,
        /// The usage of each task, if it could be read.
        #[n(1)]
        tasks: Option<Vec<TaskUsage>>,
    },
    /// Answer to `Stop`: the number of jobs with processes.
    #[n(9)]
    Busy(#[n(0)] u32),
    /// The epilog failed, or processes survive SIGKILL: the node is unfit for further jobs.
    #[n(10)]
    NodeFault {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// The error.
        #[n(1)]
        error: String,
    },
    /// To `OpenSession`: the launcher's public key for this connection to the controller.
    #[n(12)]
    SessionKey(#[n(0)] ByteVec),
    /// To `BeginSession`: why the controller is not the one that this node knows, if it is not.
    #[n(13)]
    SessionBegun(#[n(0)] Option<String>),
    /// The orders do not bear the controller's seal, or there is no session: the agent must dial the controller
    /// again.
    #[n(14)]
    SessionFailed(#[n(0)] String),
    /// To `Attach`, before all else, where the agent has said its version: the launcher's.
    #[n(15)]
    Greeting(#[n(0)] Greeting),
    /// To `Attach`: the agent's version is too old. The connection ends, and jobs go on.
    #[n(16)]
    Refused(#[n(0)] String),
    /// Comes with the agent's end of a control channel to the step daemon that gets the step, before [`LauncherEvent::StepReady`].
    #[n(17)]
    StepChannel(#[n(0)] JobAttempt, #[n(1)] StepNo),
    /// A step runs, or has run, which neither an earlier launcher nor this one started or was ordered to know.
    #[n(11)]
    StepFound {
        /// The job.
        #[n(0)]
        attempt: JobAttempt,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// The entries of the step that would have been stored.
        #[n(2)]
        kept: KeptEntries,
    },
}

impl Message for LauncherEvent {}

/// A job that the launcher knows.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct KnownJob {
    /// The attempt of the job.
    #[n(0)]
    pub attempt: JobAttempt,
    /// The grant; absent after the launcher itself was lost.
    #[n(1)]
    pub grant: Option<ByteVec>,
    /// The entries of the agent.
    #[n(2)]
    pub kept: KeptEntries,
    /// Steps that run here.
    #[n(3)]
    pub steps: Vec<StepNo>,
}

impl KnownJob {
    /// A job without further data.
    pub fn new(attempt: JobAttempt) -> KnownJob {
        KnownJob {
            attempt,
            grant: None,
            kept: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Adds another part's data.
    pub fn add(&mut self, more: KnownJob) {
        self.grant = self.grant.take().or(more.grant);
        self.kept.extend(more.kept);
        self.steps.extend(more.steps);
    }
}

/// Usage of a task.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct TaskUsage {
    /// The step of the task.
    #[n(0)]
    pub step: StepNo,
    /// The number of the task.
    #[n(1)]
    pub task: u32,
    /// Totals.
    #[n(2)]
    pub usage: ResourceUsage,
    /// Virtual memory, KiB.
    #[n(3)]
    pub vsize_kib: u64,
}
