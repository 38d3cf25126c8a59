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
