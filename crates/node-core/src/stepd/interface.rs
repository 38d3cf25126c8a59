//! Events and actions of a step daemon. Actions are carried out in order, and the result of an action is the next
//! event, before other events. The executor owns processes of the user, streams and connections.

use super::tree::BranchHead;
use crate::cgroup::GroupUsage;
use crate::messages::{KeptEntries, NextStep, RunningStep, StepBounds, StepOrder, StepdCommand};
use minicbor::bytes::ByteVec;
use muster_model::ids::JobAttempt;
use muster_model::job::{ResourceUsage, StepEnd};
use muster_model::refusal::Refusal;
use muster_proto::step::{FromStepd, ToStepd};
use std::path::PathBuf;
use std::rc::Rc;

/// A connection to the daemon, until [`Action::CloseClient`], [`Action::Refuse`] or [`Action::AdoptLauncher`]; or, in the same
/// numbers, one of srun's that comes with its standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Data that is the same for all steps of a daemon.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepdSetup {
    /// This node.
    pub node: String,
    /// The daemon's process.
    pub pid: i32,
    /// The job.
    pub attempt: JobAttempt,
    /// The limits for its steps.
    pub bounds: StepBounds,
    /// The spool directory.
    pub spool: PathBuf,
}

/// The sender of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepSender {
    /// The launcher, as it starts the daemon; with directories of the step's.
    Start(Vec<PathBuf>),
    /// The launcher, which passes on what an agent has given it.
    Launcher,
    /// The agent, which is not trusted.
    Agent,
}

/// The result of [`Action::StartTasks`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartedTasks {
    /// Processes of the tasks, by local number; not of all where one could not be started.
    pub pids: Vec<i32>,
    /// Streams of theirs that are read. Each ends with an [`Event::Output`] without bytes.
    pub outputs: usize,
    /// They wait for [`Action::ReleaseTasks`].
    pub are_held: bool,
    /// Why not all could be started.
    pub error: Option<String>,
}

/// Messages of the MPI host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// Tasks may start: their environments are there.
    Ready,
    /// The tasks cannot start, or cannot go on.
    Failed(String),
    /// A task has connected.
    Connected(u32),
    /// A task has taken its leave.
    Finalized(u32),
    /// A task wants the step to end.
    Abort {
        /// The rank.
        rank: u32,
        /// The status that it gives.
        status: i32,
        /// The text of the abort.
        text: String,
    },
    /// Lines for the step's standard error.
    Message(String),
    /// Output of a step that a task has spawned, error output if true.
    Output(bool, ByteVec),
    /// Signal these tasks; all where none is named.
    Signal(Vec<u32>, i32),
    /// The host of another node is gone without a message.
    PeerLost(u32),
    /// A line about the whole step.
    Note(String),
}

/// Messages to the MPI host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCommand {
    /// Where the hosts of the other nodes are.
    Peers(Vec<String>),
    /// A task has ended before it said that it would.
    TaskFailed(u32),
    /// All tasks have ended: exit.
    Stop,
}

/// An event.
#[derive(Debug)]
pub enum Event {
    /// A step; and the connection of srun's, where it hands its streams over with it.
    StepGiven(Box<NextStep>, StepSender, Option<ClientId>),
    /// Any other command of the launcher's.
    Command(StepdCommand),
    /// The launcher has read all that it was sent.
    LauncherHasRead,
    /// The launcher is gone.
    LauncherLost,
    /// SIGTERM. Earlier messages of the launcher have been delivered.
    Terminate,
    /// To [`Action::ReportEnd`].
    EndReported {
        /// The message was sent while the launcher was connected.
        is_sent: bool,
        /// The launcher had read all earlier messages.
        had_read: bool,
    },
    /// To [`Action::CheckLauncher`]: whether the launcher has read all that it was sent, and is there.
    LauncherChecked(bool),

    /// The first message of a connection. Before [`ToStepd::Adopt`], all messages of the previous launcher's
    /// connection have been delivered.
    Greeted {
        /// The client.
        client: ClientId,
        /// The message.
        message: ToStepd,
        /// The other side is of the daemon's own user.
        is_own: bool,
    },
    /// A further message of srun's, or of the node above.
    Client(ToStepd),
    /// A further message of a reader's.
    Reader(ToStepd),
    /// That reader is gone, or was dropped since it does not keep up.
    ReaderClosed(ClientId),
    /// That connection is gone.
    ClientClosed,
    /// To [`Action::AwaitFlush`].
    Flushed,
    /// To [`Action::ConnectBelow`]: positions of the nodes that cannot be reached.
    BelowConnected(Vec<u32>),
    /// A connection to a node below is gone.
    BelowClosed {
        /// The position of the node.
        position: u32,
        /// It has said that it is over.
        is_over: bool,
    },

    /// To [`Action::StartTasks`].
    TasksStarted(StartedTasks),
    /// The number of further tasks that are prepared; none: all that have not ended are.
    TasksPrepared(Option<usize>),
    /// Output of a task; no bytes are its end.
    Output {
        /// Global number of the task.
        task: u32,
        /// It is error output.
        is_error: bool,
        /// The bytes.
        bytes: ByteVec,
    },
    /// The number of the step's processes that the kernel killed for lack of memory.
    OutOfMemory(u64),
    /// The usage of the step's group so far.
    GroupUsed(GroupUsage),
    /// A child has ended, also one that was adopted.
    ChildEnded {
        /// The process id.
        pid: i32,
        /// Wait status.
        status: i32,
        /// The usage of the process.
        usage: Box<ResourceUsage>,
    },
    /// The children that have ended for now were collected; whether there are no others.
    ChildrenCollected {
        /// No process of the step is left, as orphans become children of the daemon.
        are_none: bool,
    },
    /// To [`Action::StartEpilog`]: the process that runs the epilogs of a task.
    EpilogStarted(u32, Option<i32>),

    /// To [`Action::StartHost`]: its process.
    HostStarted(Result<i32, String>),
    /// A message of the MPI host.
    Host(HostEvent),
    /// To [`Action::ReadHost`].
    HostRead,

    /// The time of [`super::Stepd::deadline`] is reached; with the local time as text.
    TimeUp(String),
    /// The daemon cannot go on.
    Broken(String),
    /// Everything that a wake-up of the process has brought was delivered.
    WakeUpEnded,
}

/// An action.
#[derive(Debug)]
pub enum Action {
    /// A line for the log.
    Log(String),
    /// From now on it is about this step. srun's connection and streams, if it handed them over, are the step's.
    BeginStep(Rc<StepOrder>, Option<ClientId>),
    /// Start the MPI host. Its files are in these directories.
    StartHost(Vec<PathBuf>),
    /// Start all tasks.
    StartTasks,
    /// Let them go.
    ReleaseTasks,
    /// Start a process that runs the epilogs of a task.
    StartEpilog {
        /// Local number of the task.
        local: u32,
        /// Global number.
        task: u32,
    },
    /// Signal all processes below the daemon but the MPI host.
    SignalTasks(i32),
    /// A signal that srun or the MPI host requests. Repeated requests in one read are delivered once.
    SignalAsked(i32),
    /// Signal one task, which has not ended.
    SignalTask(i32, i32),
    /// Kill the remaining processes of the tasks.
    KillRemnants,
    /// Remove memory that tasks have left; where they may have left some that nobody has noted, look for it.
    RemoveLeftovers {
        /// Look for it.
        is_searched: bool,
    },
    /// Close the tasks' standard input.
    EndInput,
    /// Standard input for one task, or for all; no bytes mean the end of input.
    Feed(Option<u32>, ByteVec),
    /// The terminal's size: rows, columns.
    SetWindow(u16, u16),

    /// Send to the client; it can wait for what follows if that is true.
    Send(FromStepd, bool),
    /// Likewise, as an encoded frame.
    SendFrame(Rc<Vec<u8>>, bool),
    /// Send [`Event::Flushed`] when all that the client was sent is written.
    AwaitFlush,
    /// The refusal is the last that this connection gets.
    Refuse(ClientId, Refusal),
    /// From now on this is the client, whose further messages are taken.
    TakeClient(ClientId),
    /// From now on, this connection receives the output of the tasks in addition to the client; see
    /// [`Event::ReaderClosed`]. It is sent these frames first.
    TakeReader(ClientId, Rc<Vec<u8>>),
    /// Send to all readers. One that is too far behind is dropped, so that it delays nobody.
    SendReaders(Rc<Vec<u8>>),
    /// Write the bytes that the connection takes at once, and close it.
    CloseClient(ClientId),
    /// Connect to nodes below.
    ConnectBelow(Vec<BranchHead>),
    /// Send a frame to the node below at this position.
    SendBelow(u32, Rc<Vec<u8>>),

    /// Send to the MPI host.
    SendHost(HostCommand),
    /// Read the messages of the MPI host, then deliver [`Event::HostRead`].
    ReadHost,
    /// Kill the MPI host.
    KillHost,

    /// This connection is to the launcher, which gets this description of the step.
    AdoptLauncher(ClientId, Box<RunningStep>),
    /// Send the launcher a frame about the end of a step.
    ReportEnd(Rc<Vec<u8>>),
    /// Send the agent the same event, if it is connected.
    SendAgent(Rc<Vec<u8>>),
    /// Check the launcher's connection; see [`Event::LauncherChecked`].
    CheckLauncher,
    /// Leave a result in a file.
    LeaveResult(PathBuf, Box<StepEnd>, KeptEntries),
    /// Remove directories in which users could write, and wait for that, but not for ever.
    RemoveDirs {
        /// Owner of the directories.
        user: u32,
        /// The directories.
        dirs: Vec<PathBuf>,
    },
    /// The step has ended: close its streams, the connections below, connections that have not shown the key, and the
    /// connection to the host.
    EndStep,
    /// End the process.
    Exit,
}
