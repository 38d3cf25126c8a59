//! The process of a step daemon: the machine, and what its executor holds for it.

use super::machine::ChannelId;
use super::step_link::StepLinkId;
use muster_model::ids::{JobAttempt, StepNo};
use muster_node_core::messages::{FirstOrder, StepOrder};
use muster_node_core::stepd::{ClientId, Event, Stepd, StepdSetup};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

/// A connection whose first message is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeted {
    /// srun's, or that of a daemon above.
    Link(StepLinkId),
    /// A launcher's.
    Launcher(ChannelId),
}

/// The connections of a daemon.
#[derive(Debug, Default)]
pub(crate) struct StepdClients {
    /// Connections that were made and not accepted.
    pub(crate) arrived: VecDeque<StepLinkId>,
    /// Connections without a message so far.
    pub(crate) strangers: Vec<(ClientId, StepLinkId)>,
    pub(crate) greeted: Option<(ClientId, Greeted)>,
    /// srun, or the node above.
    pub(crate) client: Option<(ClientId, StepLinkId)>,
    /// Connection that came with the step that is being given.
    pub(crate) handed_over: Option<(ClientId, StepLinkId)>,
    last: u64,
}

impl StepdClients {
    pub(crate) fn next_id(&mut self) -> ClientId {
        self.last += 1;
        ClientId(self.last)
    }
}

/// A stream of a task that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamKey {
    /// The task's number in its step.
    pub(crate) task: u32,
    /// Whether it is error output.
    pub(crate) is_stderr: bool,
}

/// A daemon's state of the tasks of its step.
#[derive(Debug, Default)]
pub(crate) struct StepTasks {
    /// Streams that are read, and the processes that hold them open.
    pub(crate) streams: BTreeMap<StreamKey, BTreeSet<i32>>,
    /// Output written, and not read; nothing is the end of a stream.
    pub(crate) output: VecDeque<(StreamKey, Vec<u8>)>,
    /// Tasks that wait to be let go, and how long they last then, milliseconds.
    pub(crate) held: Vec<(i32, u64)>,
    /// When they are prepared, milliseconds.
    pub(crate) prepared_at: Option<u64>,
}

/// The daemon of a node below.
#[derive(Debug)]
pub(crate) struct BelowNode {
    pub(crate) link: StepLinkId,
    pub(crate) is_over: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct StepdProcess {
    pub(crate) machine: Stepd,
    pub(crate) attempt: JobAttempt,
    /// The order with which it begins, and until when it waits for srun's streams, milliseconds.
    pub(crate) first: Option<(Box<FirstOrder>, u64)>,
    /// The step that it has.
    pub(crate) order: Option<Rc<StepOrder>>,
    /// Files for results, and steps.
    pub(crate) results: BTreeMap<PathBuf, StepNo>,
    pub(crate) launcher_channel: Option<ChannelId>,
    pub(crate) agent_channel: Option<ChannelId>,
    pub(crate) clients: StepdClients,
    /// Nodes below by position.
    pub(crate) below: BTreeMap<u32, BelowNode>,
    pub(crate) tasks: StepTasks,
    /// Children that have ended, and their wait status.
    pub(crate) ended: VecDeque<(i32, i32)>,
    /// It has got SIGTERM.
    pub(crate) is_terminated: bool,
    /// When all is written that the client was sent, if the machine waits for that, milliseconds.
    pub(crate) flushed_at: Option<u64>,
    /// Answers to actions, which come before all other events.
    pub(crate) events: VecDeque<Event>,
    /// Number of actions before which it is killed.
    pub(crate) dies_in: Option<u64>,
}

impl StepdProcess {
    /// A process that has just been started with this order.
    pub(crate) fn new(order: Box<FirstOrder>, pid: i32, streams_by: u64) -> StepdProcess {
        let attempt = order.step.order.attempt;
        let setup = StepdSetup {
            node: order.node.clone(),
            pid,
            attempt,
            bounds: order.bounds.clone(),
            spool: order.spool.clone(),
        };
        StepdProcess {
            machine: Stepd::new(setup),
            attempt,
            first: Some((order, streams_by)),
            order: None,
            results: BTreeMap::new(),
            launcher_channel: None,
            agent_channel: None,
            clients: StepdClients::default(),
            below: BTreeMap::new(),
            tasks: StepTasks::default(),
            ended: VecDeque::new(),
            is_terminated: false,
            flushed_at: None,
            events: VecDeque::new(),
            dies_in: None,
        }
    }

    /// It waits for a step.
    pub(crate) fn is_idle(&self) -> bool {
        self.first.is_none() && self.machine.is_idle()
    }

    /// The step that it has, or begins with.
    pub(crate) fn order(&self) -> Option<&StepOrder> {
        let first = self.first.as_ref().map(|(first, _)| &*first.step.order);
        self.order.as_deref().or(first)
    }
}
