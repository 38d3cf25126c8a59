//! Views of the agent's state, for comparison with the processes that run.

use super::Agent;
use muster_model::ids::{JobAttempt, StepNo};

/// Launches that it knows.
pub fn known_jobs(agent: &Agent) -> impl Iterator<Item = JobAttempt> {
    agent.state.jobs.iter().map(|(attempt, _)| attempt)
}

/// Parts of steps led from here that occupy resources: the step, and the node's name.
pub fn held_parts(agent: &Agent) -> impl Iterator<Item = (JobAttempt, StepNo, &str)> {
    agent.steps.led.held_parts()
}

/// Counts that the agent reports to unknown clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// The site wants that.
    pub has_metrics: bool,
    /// The controller is connected.
    pub is_controller_up: bool,
    /// The launcher is connected, and has said which jobs it knows.
    pub is_launcher_up: bool,
    /// Jobs on the node.
    pub jobs: usize,
    /// Parts of steps on the node.
    pub steps: usize,
    /// Reports that the controller has not acknowledged.
    pub reports: usize,
}

/// Counts of the moment.
pub fn counts(agent: &Agent) -> AgentCounts {
    let state = &agent.state;
    AgentCounts {
        has_metrics: state.node.settings.has_metrics,
        is_controller_up: state.is_controller_up,
        is_launcher_up: state.is_synced,
        jobs: state.jobs.iter().count(),
        steps: agent.steps.node_steps.count(),
        reports: state.reports.count(),
    }
}

/// Jobs, operations and reports that are unfinished, by kind; none for an idle agent.
pub fn unfinished(agent: &Agent) -> impl Iterator<Item = &'static str> {
    let all = [
        ("jobs", agent.state.jobs.iter().next().is_none()),
        ("reports", agent.state.reports.is_empty()),
        ("steps", agent.steps.led.is_empty()),
        ("parts of steps", agent.steps.node_steps.is_empty()),
        ("questions to agents", agent.steps.tree.is_quiet()),
        ("questions about processes", agent.inspections.is_empty()),
        ("step daemons to read", agent.state.reading.is_none()),
    ];
    all.into_iter()
        .filter(|(_, is_done)| !is_done)
        .map(|(what, _)| what)
}
