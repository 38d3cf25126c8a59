//! A connection of srun, or of the node above.

use super::shown;
use super::wire::Wire;
use crate::stepd_log;
use muster_model::batching::BatchDelay;
use muster_proto::frame::{self, Frames};
use muster_proto::step::{FromStepd, ToStepd};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// How long news that nobody is waiting for are kept, for what follows to go with them: srun is woken once for the start,
/// the output's end and the end of a short task.
const NEWS_DELAY: BatchDelay = BatchDelay::from_ms(5);

/// The connection and what waits on it.
#[derive(Debug)]
pub(crate) struct StepClient {
    pub(crate) wire: Wire,
    /// All that waits may wait until then.
    patient: Option<Instant>,
}

impl StepClient {
    pub(crate) fn new(stream: UnixStream) -> io::Result<StepClient> {
        Ok(StepClient {
            wire: Wire::new(stream)?,
            patient: None,
        })
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Option<ToStepd> {
        self.wire.input.take().unwrap_or_else(|e| {
            let why = shown(&e.to_string());
            stepd_log::line(&format!("invalid message from srun: {why}"));
            self.wire.open = false;
            self.wire.input = Frames::default();
            None
        })
    }

    /// Sends a message; it `may_wait` for others.
    pub(crate) fn send(&mut self, message: &FromStepd, may_wait: bool) {
        self.note(may_wait);
        frame::encode_into(message, &mut self.wire.output);
    }

    /// The same of a message that is a frame.
    pub(crate) fn send_frame(&mut self, frame: &[u8], may_wait: bool) {
        self.note(may_wait);
        self.wire.output.extend_from_slice(frame);
    }

    fn note(&mut self, may_wait: bool) {
        if !may_wait {
            self.hurry();
        } else if self.wire.output.is_empty() {
            self.patient = Some(Instant::now() + NEWS_DELAY.as_duration());
        }
    }

    /// Nothing of what waits can wait any longer.
    pub(crate) fn hurry(&mut self) {
        self.patient = None;
    }

    /// Until when all that is to be written waits for company.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.patient.filter(|_| !self.wire.output.is_empty())
    }

    /// Whether something is to be written now.
    pub(crate) fn has_output(&self) -> bool {
        !self.wire.output.is_empty() && self.patient.is_none()
    }

    /// Writes as much as it takes, unless it waits for company.
    pub(crate) fn write(&mut self) {
        if self.patient.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.patient = None;
        if self.wire.write().is_err() {
            self.wire.open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Each line was written without counting: a user who connected to the own step again and again filled the disk.
    #[test]
    fn who_sends_garbage_again_and_again_does_not_fill_the_log() {
        for _ in 0..1000 {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut client = StepClient::new(near).unwrap();
            far.write_all(&[0, 0, 0, 1, 0xff]).unwrap();
            client.wire.read();
            assert_eq!(client.next(), None);
            assert!(!client.wire.open);
        }
        assert_eq!(stepd_log::bytes_left(), 0);
    }
}
