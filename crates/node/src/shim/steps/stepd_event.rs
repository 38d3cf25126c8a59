//! Events of step daemons as the launcher decodes them. An end it only keeps and passes on, so that stays encoded as it came.

use super::lost;
use minicbor::decode::{Decode, Decoder, Error};
use muster_model::ids::StepNo;
use muster_model::job::StepEnd;
use muster_model::validate::{Bounds, Invalid, Validate};
use muster_proto::frame::{self, Frames, Message};
use std::rc::Rc;

/// [`StepdEvent`].
#[derive(Debug, minicbor::Decode, Validate)]
pub(super) enum StepdEventRef<'b> {
    #[n(0)]
    StepEnded(#[n(0)] StepNo, #[b(1)] Raw<'b>),
    #[n(1)]
    StepRunning,
}

impl<'b> StepdEventRef<'b> {
    /// The next whole event of those that have come.
    pub(super) fn next(input: &'b mut Frames) -> Option<StepdEventRef<'b>> {
        let frame = input.take_whole().ok()??;
        frame::decode(&frame[4..]).ok()
    }
}

impl Message for StepdEventRef<'_> {}

/// A value as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'b>(pub(super) &'b [u8]);

impl<'b, C> Decode<'b, C> for Raw<'b> {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, Error> {
        let from = d.position();
        d.skip()?;
        Ok(Raw(&d.input()[from..d.position()]))
    }
}

/// It is kept and passed on; who looks into it decodes and validates it.
impl Validate for Raw<'_> {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

/// How a step ended: encoded, and shared with what is on file.
#[derive(Clone, Debug)]
pub(in crate::shim) struct EncodedEnd(Rc<[u8]>);

impl EncodedEnd {
    /// That of an end.
    pub(in crate::shim) fn of(end: &StepEnd) -> EncodedEnd {
        let bytes = minicbor::to_vec(end).expect("writing to memory cannot fail");
        EncodedEnd(bytes.into())
    }

    /// As a daemon has sent it, which is of this program.
    pub(super) fn from_daemon(raw: Raw) -> EncodedEnd {
        EncodedEnd(raw.0.into())
    }

    /// As it stands in a file, if it is one.
    pub(in crate::shim) fn checked(bytes: &[u8]) -> Option<EncodedEnd> {
        let is_one = minicbor::decode::<StepEnd>(bytes).is_ok();
        is_one.then(|| EncodedEnd(bytes.into()))
    }

    pub(in crate::shim) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The end.
    pub(in crate::shim) fn decoded(&self) -> StepEnd {
        // One that cannot be understood is none.
        minicbor::decode(&self.0).unwrap_or_else(|_| lost())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::{Attempt, JobId};
    use muster_node_core::messages::{JobAttempt, RunningStep, StepdEvent};

    fn receive(input: &mut Frames, events: &[StepdEvent]) {
        for event in events {
            input.push(&frame::encode(event));
        }
    }

    #[test]
    fn events_of_daemons_are_decoded() {
        let end = lost();
        let running = RunningStep {
            run: JobAttempt::new(JobId(7), Attempt(2)),
            step: StepNo(3),
            pid: 44,
            dirs: Vec::new(),
            kept: vec![(3, vec![1, 2].into())],
            greeting: None,
        };
        let mut input = Frames::default();
        receive(
            &mut input,
            &[
                StepdEvent::StepEnded(StepNo(3), Box::new(end.clone())),
                StepdEvent::StepRunning(Box::new(running)),
            ],
        );
        match StepdEventRef::next(&mut input) {
            Some(StepdEventRef::StepEnded(step, raw)) => {
                assert_eq!(step, StepNo(3));
                assert_eq!(raw.0, EncodedEnd::of(&end).bytes());
                assert_eq!(EncodedEnd::from_daemon(raw).decoded(), end);
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
