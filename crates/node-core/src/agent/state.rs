//! State shared by the parts of the agent: the node, its jobs, pending reports, and pending actions.

use super::actions::Actions;
use super::job_table::Jobs;
use super::node::AgentNode;
use super::reports::Reports;
use super::{AgentConfig, Event};
use crate::messages::KnownJob;
use crate::now::Now;
use muster_model::ids::JobAttempt;
use muster_model::time::Timestamp;

/// An event that waits until step daemons were read.
#[derive(Debug)]
pub(super) enum AfterRead {
    /// This event.
    Event(Box<Event>),
    /// Placing a step of this job.
    Placing(JobAttempt),
}

/// See the module.
pub(super) struct AgentState {
    pub(super) node: AgentNode,
    pub(super) now: Now,
    /// Actions of the event that is being handled.
    pub(super) out: Actions,
    /// Why step daemons are being read.
    pub(super) reading: Option<AfterRead>,
    pub(super) is_controller_up: bool,
    /// Since when, or when it was last, by the clock of [`Now::mono_ms`].
    pub(super) controller_up_ms: u64,
    /// The launcher's list of jobs, as far as it has arrived.
    pub(super) known: Vec<KnownJob>,
    /// The launcher's list has arrived completely.
    pub(super) is_synced: bool,
    /// A launcher that had done so is gone: the next one knows nothing of steps that is news.
    pub(super) has_lost_a_launcher: bool,
    pub(super) jobs: Jobs,
    pub(super) reports: Reports,
    /// The tag of the last question to the launcher.
    pub(super) next_tag: u64,
}

impl AgentState {
    pub(super) fn new(config: AgentConfig, started: Timestamp) -> AgentState {
        AgentState {
            node: AgentNode::new(config),
            now: Now::default(),
            out: Actions::default(),
            reading: None,
            is_controller_up: false,
            controller_up_ms: 0,
            known: Vec::new(),
            is_synced: false,
            has_lost_a_launcher: false,
            jobs: Jobs::default(),
            reports: Reports::new(started),
            next_tag: 0,
        }
    }
}
