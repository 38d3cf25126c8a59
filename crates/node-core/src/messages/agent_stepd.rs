//! Messages between agent and step daemon: the agent gives a daemon whose step has ended the next step of the same job, by
//! [`StepdCommand::StartStep`] alone, and learns how steps end, by [`StepdEvent::StepEnded`] alone.
//!
//! [`StepdCommand::StartStep`]: super::StepdCommand::StartStep
//! [`StepdEvent::StepEnded`]: super::StepdEvent::StepEnded

use super::{KeptEntries, StepOrder};
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::frame;

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
    /// Encodes it as a frame of [`StepdCommand::StartStep`].
    pub fn as_command(&self) -> Vec<u8> {
        frame::encode(&StartStepRef::StartStep(self))
    }
}

/// [`StepdCommand::StartStep`] without a copy of the step.
#[derive(Encode)]
enum StartStepRef<'a> {
    #[n(3)]
    StartStep(#[n(0)] &'a NextStep),
}
