//! Events and actions of the agent. Descriptors, connections and timers are numbers here, which the executor maps to
//! its objects.

use crate::messages::{LauncherCommand, LauncherEvent, StepOrder, StepdEvent};

use minicbor::bytes::ByteVec;
use muster_model::ids::{AttemptStep, JobAttempt, JobId, StepNo};
use muster_proto::node::{NumberedReport, Orders, ToNode};
use muster_proto::step::{AgentReply, AgentRequest};

/// A connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// A request of a client, until [`Action::EndRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Streams that srun has sent with a request, until [`Action::CloseStdio`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StdioId(pub u64);

/// A control channel to a step daemon, from [`Action::StartStepd`] until [`Action::CloseStepd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepdChannelId(pub u64);

/// A connection to the controller that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DialId(pub u64);

/// A request to another agent, until [`Event::PeerAnswered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerRequestId(pub u64);

/// Something that the agent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    /// The job of the oldest early request.
    Grant,
    /// Turns of further early requests whose jobs were announced.
    EarlyTurns,
    /// Further steps that wait and may start.
    PlaceSteps,
    /// The notice to a client that its step waits.
    StepQueued(ConnId),
    /// Reports that wait for others to go with them.
    Reports,
    /// The time limit for ends of a job's steps on other nodes, which delay its release.
    Release(JobAttempt),
    /// The next sample of what jobs use.
    Sample,
    /// Another try to report ends of a step to its lead.
    EndDelivery(AttemptStep),
    /// Time to ask the nodes of a step again whether they have a part of it.
    FindParts(JobId, StepNo),
}

/// A request of a client.
#[derive(Debug)]
pub struct ClientRequest {
    /// The number of the request.
    pub id: RequestId,
    /// The connection on which it arrived.
    pub conn: ConnId,
    /// The user at the other end.
    pub uid: u32,
    /// The client is another agent, and no user, whatever the uid.
    pub is_agent: bool,
    /// The request itself.
    pub body: Box<AgentRequest>,
    /// Streams received with it.
    pub stdio: Option<StdioId>,
    /// Random bytes, for the key of a step that is made.
    pub random: ByteVec,
}

/// Something that happens to the agent.
#[derive(Debug)]
pub enum Event {
    /// The controller accepted a connection, and waits for the greeting.
    Dialed(DialId),
    /// The controller took the greeting, and has shown this key.
    ControllerAnswered(DialId, ByteVec),
    /// The controller that the launcher knows is connected.
    ControllerUp,
    /// A message of the controller, other than orders.
    Controller(ToNode),
    /// Orders whose seal is right, in order.
    Orders {
        /// The decoded orders.
        orders: Box<Orders>,
        /// The orders as received, encoded.
        bytes: ByteVec,
        /// The seal for the launcher.
        launcher_seal: ByteVec,
    },
    /// The connection to the controller is gone.
    ControllerLost,
    /// The launcher is connected.
    LauncherUp,
    /// A message of the launcher.
    Launcher(Box<LauncherEvent>),
    /// The connection to the launcher is gone.
    LauncherLost,
    /// A step daemon was given a step; whether it was written to its channel as a whole.
    StepOffered(StepdChannelId, bool),
    /// Messages of a step daemon.
    StepdEvents {
        /// The channel of the daemon.
        stepd: StepdChannelId,
        /// In order.
        events: Vec<StepdEvent>,
        /// More may come.
        is_open: bool,
    },
    /// [`Action::ReadStepds`] is done: all available messages were delivered as [`Event::StepdEvents`].
    StepdsRead,
    /// A client asks for something.
    Request(ClientRequest),
    /// The connection of a client is gone.
    ConnClosed(ConnId),
    /// Another agent answered, or why it did not.
    PeerAnswered(PeerRequestId, Result<AgentReply, String>),
    /// A timer has run out.
    TimerDue(Timer),
    /// No other event is pending: the agent sends the data that it has collected. Delivered again after answers to
    /// actions that result from it.
    Idle,
}

/// Something that the executor does for the agent, in the order in which actions come.
#[derive(Debug)]
pub enum Action {
    /// Greet the controller.
    Greet {
        /// By which connection.
        dial: DialId,
        /// The launcher's key for it.
        launcher_key: ByteVec,
        /// The jobs that the agent knows.
        present: Vec<JobAttempt>,
    },
    /// Trust the controller that has answered, or close the connection and log why not.
    TrustController(DialId, Result<(), String>),
    /// Close the connection to the controller.
    CloseController,
    /// Send load and free memory to the controller.
    SendHealth,
    /// Send reports to the controller.
    SendReports(Vec<NumberedReport>),
    /// Send a command to the launcher.
    Launcher(LauncherCommand),
    /// Send the launcher an order to start a step daemon, and expect a control channel to it from the launcher.
    StartStepd {
        /// The number of the channel.
        stepd: StepdChannelId,
        /// The order.
        order: Box<StepOrder>,
        /// Candidates for the directory of the step's host; the first that exists is used.
        tmp_bases: Vec<String>,
    },
    /// Send a step daemon its next step. Answered by [`Event::StepOffered`] before anything else happens.
    OfferStep {
        /// The channel of the daemon.
        stepd: StepdChannelId,
        /// The frame of the order.
        frame: Vec<u8>,
        /// Streams that go with it.
        stdio: Option<StdioId>,
    },
    /// Send a step daemon the streams of its first step.
    SendStdio {
        /// The channel of the daemon.
        stepd: StepdChannelId,
        /// The streams.
        stdio: StdioId,
    },
    /// Read the messages that these step daemons have sent so far. Answered by [`Event::StepdEvents`] for each daemon
    /// that has sent any, then by [`Event::StepdsRead`].
    ReadStepds(Vec<StepdChannelId>),
    /// Close the channel of a step daemon.
    CloseStepd(StepdChannelId),
    /// Close streams of srun's.
    CloseStdio(StdioId),
    /// Send an answer to a client.
    Reply(RequestId, AgentReply),
    /// The bytes of a request are not held any more; it will be answered still.
    ReleaseBytes(RequestId),
    /// The client of a request is gone. Its bytes are held until the request is over.
    LeaveBytes(RequestId),
    /// A request is over.
    EndRequest(RequestId),
    /// Ask another agent.
    AskPeer {
        /// The number of the request.
        request: PeerRequestId,
        /// The agent's address.
        address: String,
        /// The request.
        body: Box<AgentRequest>,
    },
    /// Give an event after a while.
    SetTimer {
        /// The timer.
        timer: Timer,
        /// Milliseconds.
        after_ms: u64,
    },
    /// End the process.
    Stop,
}
