//! The process of an srun: the machine, and what its executor holds for it.

use super::step_link::StepLinkId;
use muster_model::ids::{JobAttempt, StepNo};
use muster_node_core::srun::Srun;
use muster_node_core::srun::interface::{self, AgentId, StepdIdx};
use muster_proto::step::AgentReply;
use std::collections::{BTreeMap, VecDeque};

/// A connection to an agent.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    pub(crate) node: usize,
    /// The agent's process.
    pub(crate) life: u64,
    /// Messages that it has sent, and that were not read.
    pub(crate) replies: VecDeque<AgentReply>,
    pub(crate) is_closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SrunProcess {
    pub(crate) machine: Srun,
    /// The first node of its job, on which it runs.
    pub(crate) node: usize,
    pub(crate) attempt: JobAttempt,
    pub(crate) uid: u32,
    /// When it was started, milliseconds.
    pub(crate) started_at: u64,
    pub(crate) agents: BTreeMap<AgentId, AgentConnection>,
    pub(crate) stepds: BTreeMap<StepdIdx, StepLinkId>,
    /// Its step, once it is there, and the numbers of the tasks.
    pub(crate) step: Option<(StepNo, Vec<u32>)>,
    /// Answers to actions, which come before all other events.
    pub(crate) events: VecDeque<interface::Event>,
    /// It catches signals, and those that have come.
    pub(crate) catches_signals: bool,
    pub(crate) signals: VecDeque<i32>,
    /// Number of actions before which it is killed.
    pub(crate) dies_in: Option<u64>,
}
