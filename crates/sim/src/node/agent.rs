//! The process of an agent: the machine, and what its executor holds for it.

use super::machine::ChannelId;
use super::step_link::StepLinkId;
use minicbor::bytes::ByteVec;
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_node_core::agent::{
    self, Agent, DialId, PeerRequestId, RequestId, StdioId, StepdChannelId, view,
};
use muster_node_core::messages::{AttachAgent, LauncherCommand};
use muster_proto::frame::Frames;
use muster_proto::node::NumberedReport;
use muster_trust::{KeyPair, SealedSession};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Message to the launcher.
#[derive(Debug)]
pub(crate) enum ToLauncher {
    /// By root, first on a link.
    Attach(Box<AttachAgent>),
    /// By the agent.
    Command(Box<LauncherCommand>),
    /// The link has ended.
    Closed,
}

/// Stage of a connection to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialStage {
    /// The greeting waits for the launcher's key.
    Dialed,
    /// The greeting was sent.
    Greeted,
    /// The launcher looks at the controller's key.
    Answered,
    /// Orders and reports go.
    Up,
    /// The agent has closed it.
    Closed,
}

/// A connection to the controller.
pub(crate) struct Dial {
    pub(crate) id: DialId,
    pub(crate) conn: u64,
    pub(crate) stage: DialStage,
    pub(crate) pair: KeyPair,
    /// The controller's key, as it has shown it.
    pub(crate) controller: Vec<u8>,
    pub(crate) session: Option<SealedSession>,
    pub(crate) input: Frames,
}

/// Source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestSource {
    /// An srun, by this connection of its.
    Srun(u64, u32),
    /// Another agent, in this life, by its request.
    Peer(usize, u64, PeerRequestId),
}

/// Input that has arrived at an agent.
#[derive(Debug)]
pub(crate) enum AgentInput {
    Event(Box<agent::Event>),
    Dialed(DialId),
    ControllerAnswered(DialId, ByteVec),
    ControllerUp,
    ControllerLost,
    LauncherUp,
    LauncherLost,
    StepChannel(JobAttempt, StepNo, ChannelId),
    StepdReadable(StepdChannelId),
}

/// See the module.
pub(crate) struct AgentProcess {
    pub(crate) machine: Agent,
    /// Which agent of this node it is.
    pub(crate) life: u64,
    pub(crate) inbox: VecDeque<AgentInput>,
    /// A burst of what has arrived will be handled.
    pub(crate) is_waking: bool,
    pub(crate) events: VecDeque<agent::Event>,
    pub(crate) dial: Option<Dial>,
    pub(crate) last_dial: u64,
    /// The launcher has answered on the link of this number.
    pub(crate) launcher: Option<u64>,
    /// Messages to launcher and controller at the end of the burst.
    pub(crate) to_launcher: Vec<ToLauncher>,
    pub(crate) to_controller: Vec<Vec<NumberedReport>>,
    pub(crate) requests: BTreeMap<RequestId, RequestSource>,
    /// Streams, and the connection to srun that goes with them.
    pub(crate) streams: BTreeMap<StdioId, StepLinkId>,
    pub(crate) stepds: BTreeMap<StepdChannelId, ChannelId>,
    /// Channels that the launcher is to make, by the step that the daemon gets.
    pub(crate) expected: BTreeMap<AttemptStep, StepdChannelId>,
    /// Requests of other agents that were answered and are not over.
    pub(crate) answered: BTreeSet<RequestId>,
    /// Requests to other agents that were not answered.
    pub(crate) asked: BTreeSet<PeerRequestId>,
    pub(crate) next_id: u64,
    /// Number of actions before which it is killed.
    pub(crate) dies_in: Option<u64>,
}

impl AgentProcess {
    pub(crate) fn new(machine: Agent, life: u64) -> AgentProcess {
        AgentProcess {
            machine,
            life,
            inbox: VecDeque::new(),
            is_waking: false,
            events: VecDeque::new(),
            dial: None,
            last_dial: 0,
            launcher: None,
            to_launcher: Vec::new(),
            to_controller: Vec::new(),
            requests: BTreeMap::new(),
            streams: BTreeMap::new(),
            stepds: BTreeMap::new(),
            expected: BTreeMap::new(),
            answered: BTreeSet::new(),
            asked: BTreeSet::new(),
            next_id: 0,
            dies_in: None,
        }
    }

    /// Unfinished work, in words.
    pub(crate) fn unfinished(&self) -> String {
        format!(
            "{:?}, requests {:?}, streams {:?}, daemons {:?}, {} inputs",
            view::unfinished(&self.machine).collect::<Vec<_>>(),
            self.requests,
            self.streams,
            self.stepds,
            self.inbox.len()
        )
    }

    /// Nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        view::unfinished(&self.machine).next().is_none()
            && self.inbox.is_empty()
            && self.requests.is_empty()
            && self.streams.is_empty()
            && self.stepds.is_empty()
    }
}
