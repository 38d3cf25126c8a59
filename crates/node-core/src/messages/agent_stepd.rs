//! Messages between agent and step daemon: the agent gives a daemon whose step has ended the next step of the same job, by
//! [`AgentToStepd`], and learns how steps end, by [`StepdEvent::StepEnded`] alone.
//!
//! [`StepdEvent::StepEnded`]: super::StepdEvent::StepEnded

use super::{KeptEntries, StepOrder};
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::frame::{self, Message};

/// Agent to step daemon. The numbers are those of [`StepdCommand`](super::StepdCommand), so that a daemon reads a step of the
/// launcher's and one of the agent's from the same bytes.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub enum AgentToStepd {
    /// To a daemon whose step has ended: the next one.
    #[n(3)]
    StartStep(#[n(0)] Box<NextStep>),
}

impl Message for AgentToStepd {}

/// Another step of the job.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct NextStep {
    /// The order for the step.
    #[n(0)]
    pub order: Box<StepOrder>,
    /// Time between TERM and KILL, milliseconds.
    #[n(1)]
    pub kill_wait_ms: u64,
    /// File for the result.
    #[n(2)]
    pub result: String,
    /// The entries that the launcher stores for the step.
    #[n(3)]
    pub kept: KeptEntries,
}

impl NextStep {
    /// Encodes it as a frame of [`AgentToStepd::StartStep`], and of [`StepdCommand::StartStep`](super::StepdCommand::StartStep).
    pub fn as_command(&self) -> Vec<u8> {
        frame::encode(&StartStepRef::StartStep(self))
    }
}

/// [`AgentToStepd::StartStep`] without a copy of the step.
#[derive(Encode)]
enum StartStepRef<'a> {
    #[n(3)]
    StartStep(#[n(0)] &'a NextStep),
}

#[cfg(test)]
mod tests {
    use super::super::StepdCommand;
    use super::*;

    #[test]
    fn other_commands_of_the_launcher_are_not_taken_from_an_agent() {
        let frame = frame::encode(&StepdCommand::SetTimeLimit(None, None));
        assert!(frame::decode::<AgentToStepd>(&frame[4..]).is_err());
    }
}
