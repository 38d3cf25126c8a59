//! Events and actions of srun. Connections are numbers here, which the executor maps to its objects.

use super::config::{InputSource, Sink};
use minicbor::bytes::ByteVec;
use muster_model::ids::{JobId, StepId, StepNo};
use muster_model::job::{ExitStatus, JobState};
use muster_model::refusal::Refusal;
use muster_proto::client::AllocationInfo;
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, ToStepd};
use std::net::IpAddr;

/// A connection to an agent, from [`Action::ConnectAgent`] until [`Action::CloseAgent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(pub u32);

/// A connection to a step daemon, from [`Action::ConnectStepd`], or from the request that its other end went with, until
/// [`Action::CloseStepd`] or [`Event::StepdLost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepdIdx(pub u32);

/// One of srun's streams for the output of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputStream {
    /// Standard output, or the file of `--output`.
    Stdout,
    /// Standard error, or the file of `--error`.
    Stderr,
}

/// Why the controller has given no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerError {
    /// The controller refuses.
    Refused(Refusal),
    /// There is no way to ask it.
    NotConfigured(String),
    /// The controller could not be reached.
    Failed(String),
}

/// Something that happens to srun.
#[derive(Debug)]
pub enum Event {
    /// srun begins.
    Started,
    /// The controller's data about an allocation.
    Allocation(Result<Box<AllocationInfo>, ControllerError>),
    /// An agent is connected.
    AgentConnected {
        /// The agent.
        agent: AgentId,
        /// It is on this host.
        is_local: bool,
        /// The address of this host on the way to it.
        own_ip: IpAddr,
    },
    /// An agent cannot be connected.
    AgentUnreachable(AgentId, String),
    /// A request was sent to an agent, or not.
    RequestSent {
        /// The agent.
        agent: AgentId,
        /// The request, which the machine has lent.
        request: Box<AgentRequest>,
        /// Why it was not sent.
        error: Option<String>,
    },
    /// An agent has answered.
    AgentReplied(AgentId, Box<AgentReply>),
    /// The connection to an agent is gone.
    AgentLost(AgentId, String),
    /// The streams are open, or why not.
    StreamsOpened(Result<(), String>),
    /// A program is over, or why it has failed.
    ProgramEnded(Result<(), String>),
    /// A step daemon is connected.
    StepdConnected(StepdIdx),
    /// A step daemon cannot be connected.
    StepdUnreachable(StepdIdx, String),
    /// Messages of a step daemon.
    StepdMessages(StepdIdx, Vec<FromStepd>),
    /// The connection to a step daemon is gone.
    StepdLost(StepdIdx, String),
    /// Signals cannot be caught.
    SignalsFailed(String),
    /// A signal for srun, by its number.
    Signal(i32),
    /// A signal for a whole job, whose steps get it from their nodes.
    JobSignal(i32, JobId),
    /// The new rows and columns of the terminal.
    Window(u16, u16),
    /// Input for the tasks; empty at its end.
    Input(Vec<u8>),
    /// The allocation that srun holds has ended.
    JobEnded(JobState),
    /// The controller does not let srun hold its allocation.
    ControllerFailed(String),
    /// No other event is there. Comes again when time has passed.
    Idle,
}

/// An action of the executor for srun. Actions are carried out in order. The answer to an action comes before other
/// events, except for requests.
#[derive(Debug)]
pub enum Action {
    /// Ask the controller about the allocation of a job. Answered by [`Event::Allocation`].
    AskAllocation(JobId),
    /// Connect to an agent. Answered by [`Event::AgentConnected`] or [`Event::AgentUnreachable`].
    ConnectAgent {
        /// The number of the connection.
        agent: AgentId,
        /// Where it listens.
        address: String,
        /// For which job.
        job: JobId,
        /// The owner's key of the job, if it is known: an agent on another host wants it.
        key: Option<ByteVec>,
    },
    /// Send a request. Answered by [`Event::RequestSent`], and by the agent later.
    SendRequest {
        /// To which agent.
        agent: AgentId,
        /// The request; it is returned with the answer.
        request: Box<AgentRequest>,
        /// Send srun's standard streams with it, and one end of a connection, whose other end is this one to a step daemon.
        channel: Option<StepdIdx>,
    },
    /// Close the connection to an agent.
    CloseAgent(AgentId),
    /// Open files and streams. Answered by [`Event::StreamsOpened`].
    OpenStreams(Box<StreamsToOpen>),
    /// Run a program to its end. Answered by [`Event::ProgramEnded`].
    RunProgram(String),
    /// Connect to a step daemon. Answered by [`Event::StepdConnected`] or [`Event::StepdUnreachable`].
    ConnectStepd {
        /// The number of the connection.
        stepd: StepdIdx,
        /// Where it listens.
        address: String,
        /// The step.
        step: StepId,
        /// The key of the step: a node of another host wants it.
        key: ByteVec,
    },
    /// Send a message to step daemons.
    SendStepds(Vec<StepdIdx>, ToStepd),
    /// Close the connection to a step daemon.
    CloseStepd(StepdIdx),
    /// Catch signals from now on, until srun ends, and have its terminal in raw mode if the tasks have one. Answered by
    /// [`Event::SignalsFailed`] if that is not possible.
    CatchSignals {
        /// The terminal too.
        raw_terminal: bool,
    },
    /// Undo the raw mode.
    RestoreTerminal,
    /// Write output of tasks.
    Write(OutputStream, Vec<u8>),
    /// Write a message to standard error.
    Print(String),
    /// End the allocation that srun holds.
    EndAllocation(ExitStatus),
    /// End the process.
    Exit(u8),
}

/// The streams and files of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsToOpen {
    /// The job.
    pub job: JobId,
    /// The step.
    pub step: StepNo,
    /// The step's name.
    pub name: String,
    /// Files are not truncated.
    pub append: bool,
    /// Where input comes from.
    pub stdin: InputSource,
    /// Where output goes.
    pub stdout: Sink,
    /// Where error output goes; with output if absent.
    pub stderr: Option<Sink>,
}

/// The events that srun waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The answer of an agent.
    pub agent: Option<AgentId>,
    /// Messages of step daemons.
    pub stepds: bool,
    /// Poll the step daemons without waiting.
    pub looks: bool,
    /// Signals, once they are caught.
    pub signals: bool,
    /// Input, if step daemons take more.
    pub input: bool,
    /// Notices of the controller about the allocation that srun holds.
    pub controller: bool,
    /// Likewise, but only read when another event occurs.
    pub reads_controller: bool,
    /// The moment until which to wait, in milliseconds.
    pub until_ms: Option<u64>,
}
