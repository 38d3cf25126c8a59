//! The state of a node as a table: what can happen to it, and where that leads. [`crate::state::State`] changes the state of
//! a node by it alone; a test writes it to docs/node-states.md.
//!
//! The state has four parts. What happens changes one of them, whatever the others are: each has a table.

use crate::event::NodeChange;
use muster_model::node::{Node, NodeLink, Reboot};
use muster_model::node_state::ServiceState;
use muster_model::power::Power;

/// The connection to its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// It has never registered.
    #[default]
    Never,
    /// It is connected.
    Up,
    /// It was connected.
    Lost,
}

/// Where it is in power saving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerState {
    /// It is not.
    #[default]
    On,
    /// It is powered down once no job is there.
    DownWanted,
    /// `SuspendProgram` was run.
    GoingDown,
    /// It is powered down.
    Down,
    /// It is powered up as soon as `ResumeRate` lets it be.
    UpWanted,
    /// `ResumeProgram` was run.
    GoingUp,
}

/// Whether it is to be rebooted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebootState {
    /// It is not.
    #[default]
    None,
    /// Once no job is there.
    Requested,
    /// It was ordered to.
    Issued,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCondition {
    /// The connection to its agent.
    pub link: LinkState,
    /// Whether it takes jobs.
    pub service: ServiceState,
    /// Power saving.
    pub power: PowerState,
    /// A reboot.
    pub reboot: RebootState,
}

/// A change of a part of a node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMove {
    /// The connection.
    Link(LinkMove),
    /// Whether it takes jobs.
    Service(ServiceMove),
    /// Power saving.
    Power(PowerMove),
    /// A reboot.
    Reboot(RebootMove),
}

/// A change of the connection to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMove {
    /// `NodeRegistered`.
    Register,
    /// `LinkLost`.
    Lose,
}

/// A change of a flag of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceMove {
    /// `Down`.
    Down,
    /// `Drain`.
    Drain,
    /// `Fail`.
    Fail,
    /// `Resume`.
    Resume,
    /// `Undrain`.
    Undrain,
    /// `Returned`.
    Return,
    /// `Future`.
    LeaveForFuture,
}

/// A change in power saving: `Power` with the state, unless another change is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerMove {
    /// It is to be powered down.
    WantDown,
    /// `SuspendProgram` is run.
    GoDown,
    /// `SuspendTimeout` is over.
    BeDown,
    /// It is to be powered up.
    WantUp,
    /// `ResumeProgram` is run.
    GoUp,
    /// Its agent has come, or it is not powered down after all.
    BeOn,
    /// `ResumeFailed`.
    FailToComeUp,
    /// `Configured` without power saving.
    SavingEnds,
}

/// A change about a reboot: `Reboot` with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootMove {
    /// It is asked for.
    Request,
    /// It is ordered.
    Issue,
    /// It has happened, or was taken back.
    End,
}

impl LinkState {
    /// All of them, in order.
    pub const ALL: [LinkState; 3] = [LinkState::Never, LinkState::Up, LinkState::Lost];
}

impl PowerState {
    /// All of them, in order.
    pub const ALL: [PowerState; 6] = [
        PowerState::On,
        PowerState::DownWanted,
        PowerState::GoingDown,
        PowerState::Down,
        PowerState::UpWanted,
        PowerState::GoingUp,
    ];

    fn of(power: Option<Power>) -> PowerState {
        match power {
            None => PowerState::On,
            Some(Power::DownWanted { .. }) => PowerState::DownWanted,
            Some(Power::GoingDown { .. }) => PowerState::GoingDown,
            Some(Power::Down) => PowerState::Down,
            Some(Power::UpWanted) => PowerState::UpWanted,
            Some(Power::GoingUp { .. }) => PowerState::GoingUp,
        }
    }
}

impl RebootState {
    /// All of them, in order.
    pub const ALL: [RebootState; 3] = [
        RebootState::None,
        RebootState::Requested,
        RebootState::Issued,
    ];

    fn of(reboot: Option<&Reboot>) -> RebootState {
        match reboot {
            None => RebootState::None,
            Some(Reboot { issued: None, .. }) => RebootState::Requested,
            Some(Reboot {
                issued: Some(_), ..
            }) => RebootState::Issued,
        }
    }
}

impl NodeCondition {
    /// The state of a node.
    pub fn of(node: &Node) -> NodeCondition {
        NodeCondition {
            link: match node.link {
                NodeLink::Never => LinkState::Never,
                NodeLink::Up => LinkState::Up,
                NodeLink::Lost(_) => LinkState::Lost,
            },
            service: node.service(),
            power: PowerState::of(node.power),
            reboot: RebootState::of(node.reboot.as_ref()),
        }
    }
}

impl LinkMove {
    /// All of them, in order.
    pub const ALL: [LinkMove; 2] = [LinkMove::Register, LinkMove::Lose];
}

impl ServiceMove {
    /// All of them, in order.
    pub const ALL: [ServiceMove; 7] = [
        ServiceMove::Down,
        ServiceMove::Drain,
        ServiceMove::Fail,
        ServiceMove::Resume,
        ServiceMove::Undrain,
        ServiceMove::Return,
        ServiceMove::LeaveForFuture,
    ];
}

impl PowerMove {
    /// All of them, in order.
    pub const ALL: [PowerMove; 8] = [
        PowerMove::WantDown,
        PowerMove::GoDown,
        PowerMove::BeDown,
        PowerMove::WantUp,
        PowerMove::GoUp,
        PowerMove::BeOn,
        PowerMove::FailToComeUp,
        PowerMove::SavingEnds,
    ];

    fn to(power: PowerState) -> PowerMove {
        match power {
            PowerState::On => PowerMove::BeOn,
            PowerState::DownWanted => PowerMove::WantDown,
            PowerState::GoingDown => PowerMove::GoDown,
            PowerState::Down => PowerMove::BeDown,
            PowerState::UpWanted => PowerMove::WantUp,
            PowerState::GoingUp => PowerMove::GoUp,
        }
    }
}

impl RebootMove {
    /// All of them, in order.
    pub const ALL: [RebootMove; 3] = [RebootMove::Request, RebootMove::Issue, RebootMove::End];

    fn to(reboot: RebootState) -> RebootMove {
        match reboot {
            RebootState::None => RebootMove::End,
            RebootState::Requested => RebootMove::Request,
            RebootState::Issued => RebootMove::Issue,
        }
    }
}

/// The part of a change that concerns the state of a node; none if it is about something else.
pub fn move_of(change: &NodeChange) -> Option<NodeMove> {
    Some(match change {
        NodeChange::LinkLost => NodeMove::Link(LinkMove::Lose),
        NodeChange::Down(_) => NodeMove::Service(ServiceMove::Down),
        NodeChange::Drain(_) => NodeMove::Service(ServiceMove::Drain),
        NodeChange::Fail(_) => NodeMove::Service(ServiceMove::Fail),
        NodeChange::Resume => NodeMove::Service(ServiceMove::Resume),
        NodeChange::Undrain => NodeMove::Service(ServiceMove::Undrain),
        NodeChange::Returned => NodeMove::Service(ServiceMove::Return),
        NodeChange::Future => NodeMove::Service(ServiceMove::LeaveForFuture),
        NodeChange::Reboot(reboot) => {
            NodeMove::Reboot(RebootMove::to(RebootState::of(reboot.as_ref())))
        }
        NodeChange::Power(power) => NodeMove::Power(PowerMove::to(PowerState::of(*power))),
        NodeChange::ResumeFailed => NodeMove::Power(PowerMove::FailToComeUp),
        NodeChange::Reason(_)
        | NodeChange::Weight(_)
        | NodeChange::CpuBind(_)
        | NodeChange::Features(_)
        | NodeChange::Health { .. }
        | NodeChange::LaunchFailed(_)
        | NodeChange::Taken(_)
        | NodeChange::Comment(_) => return None,
    })
}

/// Where a move leads; `None` where it cannot happen.
pub fn next_condition(from: NodeCondition, happens: NodeMove) -> Option<NodeCondition> {
    let mut next = from;
    match happens {
        NodeMove::Link(happens) => next.link = next_link(from.link, happens)?,
        NodeMove::Service(happens) => next.service = next_service(from.service, happens)?,
        NodeMove::Power(happens) => next.power = next_power(from.power, happens)?,
        NodeMove::Reboot(happens) => next.reboot = next_reboot(from.reboot, happens)?,
    }
    Some(next)
}

fn next_link(from: LinkState, happens: LinkMove) -> Option<LinkState> {
    use LinkMove as M;
    use LinkState as L;
    match (from, happens) {
        // An agent that was started anew may register before its last connection is known to be lost.
        (L::Never | L::Up | L::Lost, M::Register) => Some(L::Up),
        (L::Up, M::Lose) => Some(L::Lost),
        (L::Never | L::Lost, M::Lose) => None,
    }
}

fn next_service(from: ServiceState, happens: ServiceMove) -> Option<ServiceState> {
    let mut next = from;
    match happens {
        ServiceMove::Down => next.down = true,
        ServiceMove::Drain => next.drain = true,
        ServiceMove::Fail => next.fail = true,
        ServiceMove::Resume => next = ServiceState::default(),
        ServiceMove::Undrain => next.drain = false,
        ServiceMove::Return if !from.down => return None,
        ServiceMove::Return => next.down = false,
        // A node that is not there is down.
        ServiceMove::LeaveForFuture => {
            next = ServiceState {
                down: true,
                ..ServiceState::default()
            };
        }
    }
    Some(next)
}

fn next_power(from: PowerState, happens: PowerMove) -> Option<PowerState> {
    use PowerMove as M;
    use PowerState as P;
    match (from, happens) {
        // One that comes up may be powered down at once.
        (P::On | P::DownWanted | P::UpWanted | P::GoingUp, M::WantDown) => Some(P::DownWanted),
        (P::GoingDown | P::Down, M::WantDown) => None,

        // Nobody has to ask for it where a node has idled for long enough.
        (P::On | P::DownWanted, M::GoDown) => Some(P::GoingDown),
        (P::GoingDown | P::Down | P::UpWanted | P::GoingUp, M::GoDown) => None,

        (P::GoingDown, M::BeDown) => Some(P::Down),
        (P::On | P::DownWanted | P::Down | P::UpWanted | P::GoingUp, M::BeDown) => None,

        (P::Down, M::WantUp) => Some(P::UpWanted),
        (P::On | P::DownWanted | P::GoingDown | P::UpWanted | P::GoingUp, M::WantUp) => None,

        (P::UpWanted, M::GoUp) => Some(P::GoingUp),
        (P::On | P::DownWanted | P::GoingDown | P::Down | P::GoingUp, M::GoUp) => None,

        (P::DownWanted | P::GoingDown, M::BeOn) => Some(P::On),
        // Somebody may have switched it on.
        (P::Down | P::UpWanted | P::GoingUp, M::BeOn) => Some(P::On),
        (P::On, M::BeOn) => None,

        (P::GoingUp, M::FailToComeUp) => Some(P::Down),
        (P::On | P::DownWanted | P::GoingDown, M::FailToComeUp) => None,
        (P::Down | P::UpWanted, M::FailToComeUp) => None,

        // Nobody would power it up.
        (P::On | P::DownWanted | P::GoingDown, M::SavingEnds) => Some(P::On),
        (P::Down | P::UpWanted | P::GoingUp, M::SavingEnds) => Some(P::On),
    }
}

fn next_reboot(from: RebootState, happens: RebootMove) -> Option<RebootState> {
    use RebootMove as M;
    use RebootState as R;
    match (from, happens) {
        // It may be asked for again, with another state afterwards.
        (R::None | R::Requested | R::Issued, M::Request) => Some(R::Requested),
        (R::Requested, M::Issue) => Some(R::Issued),
        (R::None | R::Issued, M::Issue) => None,
        (R::Requested | R::Issued, M::End) => Some(R::None),
        (R::None, M::End) => None,
    }
}
