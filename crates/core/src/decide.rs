//! Commands become events here, or are refused.

use crate::command::{Command, Identity, Reply};
use crate::effect::Effect;
use crate::event::Event;
use crate::job::Job;
use crate::refusal::Refusal;
use crate::spec::JobSpec;
use crate::state::State;
use crate::time::Timestamp;

/// What comes of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What happened, in order; to be made durable and applied.
    pub events: Vec<Event>,
    /// Orders that no event carries: plain signals.
    pub effects: Vec<Effect>,
    /// The answer to a user's command; absent for other commands, and for a valid `--test-only` submission and
    /// `Reconfigure`, which the caller answers.
    pub reply: Option<Reply>,
}

/// Decides on a command. Changes nothing: the caller applies the events, in order.
pub fn decide(state: &State, command: &Command, now: Timestamp) -> Decision {
    let _ = (state, command, now);
    Decision::default()
}

/// The record that a submission would make, for `--test-only` and `--immediate`: the same checks as `Submit`, no
/// change. The record has the number that the next job gets.
///
/// # Errors
/// Why the submission would be refused.
pub fn prospective_job(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    now: Timestamp,
) -> Result<Job, Refusal> {
    let _ = (state, identity, spec, now);
    Err(Refusal::from(crate::refusal::RefusalCode::NotSupported))
}
