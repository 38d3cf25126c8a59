//! The end of a step on this node, which the launcher stores and passes on in its encoded form, and the end of a
//! batch script.

use crate::messages::LauncherEvent;
use minicbor::decode::{Decode, Decoder, Error};
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::job::{ExitStatus, JobState, ResourceUsage, StepEnd};
use muster_model::time::Timestamp;
use muster_model::validate::{Bounds, Invalid, Validate};
use muster_proto::frame::{self, Frames, Message};
use std::rc::Rc;

/// [`crate::messages::StepdEvent`] as the launcher decodes it, which does not look into ends.
#[derive(Debug, minicbor::Decode, Validate)]
pub enum StepdEventRef<'b> {
    /// A step has ended.
    #[n(0)]
    StepEnded(#[n(0)] StepNo, #[b(1)] RawCbor<'b>),
    /// An answer to a question that this launcher has not asked.
    #[n(1)]
    StepRunning,
}

impl<'b> StepdEventRef<'b> {
    /// The next complete event in the buffer.
    pub fn next(input: &'b mut Frames) -> Option<StepdEventRef<'b>> {
        let frame = input.take_whole().ok()??;
        frame::decode(&frame[4..]).ok()
    }
}

impl Message for StepdEventRef<'_> {}

/// A value in its encoded form.
#[derive(Clone, Copy, Debug)]
pub struct RawCbor<'b>(&'b [u8]);

impl<'b, C> Decode<'b, C> for RawCbor<'b> {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, Error> {
        let from = d.position();
        d.skip()?;
        Ok(RawCbor(&d.input()[from..d.position()]))
    }
}

/// It is kept and passed on; what looks into it decodes and validates it.
impl Validate for RawCbor<'_> {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

/// The end of a step in its encoded form, shared with the record on file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedEnd(Rc<[u8]>);

impl EncodedEnd {
    /// Encodes an end.
    pub fn of(end: &StepEnd) -> EncodedEnd {
        let bytes = minicbor::to_vec(end).expect("writing to memory cannot fail");
        EncodedEnd(bytes.into())
    }

    /// From a daemon's message. The daemon runs this program, so the encoding is valid.
    pub fn from_daemon(raw: RawCbor) -> EncodedEnd {
        EncodedEnd(raw.0.into())
    }

    /// From a file, if the encoding is valid.
    pub(super) fn checked(bytes: &[u8]) -> Option<EncodedEnd> {
        let is_one = minicbor::decode::<StepEnd>(bytes).is_ok();
        is_one.then(|| EncodedEnd(bytes.into()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The end. One that cannot be understood is none.
    pub(super) fn decoded(&self, now: Timestamp) -> StepEnd {
        minicbor::decode(&self.0).unwrap_or_else(|_| lost(now))
    }
}

/// The end of a step whose daemon left no result: it was killed.
pub(super) fn lost(now: Timestamp) -> StepEnd {
    StepEnd {
        end_time: now,
        exit: ExitStatus {
            code: 0,
            signal: crate::signals::SIGKILL.unsigned_abs(),
        },
        state: JobState::Failed,
        usage: ResourceUsage::default(),
        cancelled_by: None,
        last_lines: None,
    }
}

/// End of a batch script.
#[derive(Clone, Debug)]
pub struct ScriptEnd {
    /// The wait status, waitpid(2).
    pub status: i32,
    /// The resource usage.
    pub usage: ResourceUsage,
    /// When it ended.
    pub end: Timestamp,
    /// Processes that the kernel ended for want of memory.
    pub oom_kills: u64,
    /// The last lines of its standard error; they are on no record.
    pub last_lines: Option<String>,
}

impl ScriptEnd {
    /// The event for the agent.
    pub(super) fn event(self, attempt: JobAttempt) -> LauncherEvent {
        LauncherEvent::BatchEnded {
            attempt,
            status: self.status,
            usage: self.usage,
            end: self.end,
            oom_kills: self.oom_kills,
            last_lines: self.last_lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{KeptEntry, RunningStep, StepdEvent};
    use muster_model::ids::JobAttempt;
    use muster_model::ids::{Attempt, JobId};

    #[test]
    fn events_of_daemons_are_decoded() {
        let end = lost(Timestamp(7));
        let running = RunningStep {
            attempt: JobAttempt::new(JobId(7), Attempt(2)),
            step: StepNo(3),
            pid: 44,
            dirs: Vec::new(),
            kept: vec![KeptEntry {
                key: 3,
                bytes: vec![1, 2].into(),
            }],
            greeting: None,
        };
        let mut input = Frames::default();
        for event in [
            StepdEvent::StepEnded(StepNo(3), Box::new(end.clone())),
            StepdEvent::StepRunning(Box::new(running)),
        ] {
            input.push(&frame::encode(&event));
        }
        match StepdEventRef::next(&mut input) {
            Some(StepdEventRef::StepEnded(step, raw)) => {
                assert_eq!(step, StepNo(3));
                assert_eq!(raw.0, EncodedEnd::of(&end).bytes());
                assert_eq!(EncodedEnd::from_daemon(raw).decoded(Timestamp(8)), end);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            StepdEventRef::next(&mut input),
            Some(StepdEventRef::StepRunning)
        ));
        assert!(StepdEventRef::next(&mut input).is_none());
    }
}
