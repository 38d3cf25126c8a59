//! Events of nodes and of sruns.

use muster_model::ids::JobAttempt;
use muster_node_core::agent::{PeerRequestId, Timer};
use muster_node_core::launcher::UserAccount;
use muster_node_core::messages::LauncherEvent;
use muster_node_core::srun::interface::AgentId;
use muster_proto::step::{AgentReply, AgentRequest};

/// Something that will happen to a node.
pub(crate) enum NodeEvent {
    /// Unless the machine was booted since.
    InBoot(u64, Box<NodeEvent>),
    /// The machine starts again.
    MachineStarts,
    /// The supervisor starts the agent.
    AgentStarts,
    /// An agent asks for a connection to the launcher.
    LauncherAsked {
        life: u64,
    },
    /// The agent's next message arrives at the launcher.
    ToLauncher {
        link: u64,
    },
    /// The launcher's next message arrives at the agent.
    FromLauncher {
        link: u64,
        messages: Vec<LauncherEvent>,
    },
    /// The agent finds the link closed.
    LinkClosed {
        link: u64,
        life: u64,
    },
    LauncherWakes {
        life: u64,
    },
    GroupsFound {
        life: u64,
        account: UserAccount,
    },
    /// A step daemon answers a launcher late.
    StepdAnswers {
        life: u64,
        pid: i32,
    },
    AgentWakes {
        life: u64,
    },
    AgentTimer {
        life: u64,
        timer: Timer,
    },
    /// A request of another agent arrives.
    PeerAsks {
        from: usize,
        life: u64,
        request: PeerRequestId,
        body: Box<AgentRequest>,
        /// Its answer is lost.
        is_lost: bool,
    },
    /// An answer of another agent arrives.
    PeerAnswers {
        life: u64,
        request: PeerRequestId,
        answer: Box<Result<AgentReply, String>>,
    },
    ProcessEnds {
        pid: i32,
        timer: u64,
    },
    Killed {
        pid: i32,
        signal: i32,
    },
    StepdWakes(i32),
    /// A user begins a step in a job that this node leads.
    SrunStarts(JobAttempt),
}

/// A process of a node that may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Agent,
    Launcher,
    Stepd,
    Srun,
}

/// Number of an srun.
pub(crate) type SrunId = u64;

/// Something that happens to an srun.
pub(crate) enum SrunWorldEvent {
    /// It looks what there is.
    Wakes,
    /// An agent's answer arrives.
    Replied(AgentId, Box<AgentReply>),
    /// It gets a signal.
    Signal(i32),
    /// It is killed with the script that has started it.
    Killed,
}
