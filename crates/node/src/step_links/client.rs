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

/// Time that a message that is not urgent is held back so that later ones join it: srun then wakes up once for the
/// start, the end of output and the end of a short task.
const NEWS_DELAY: BatchDelay = BatchDelay::from_ms(5);

/// The connection, and output that waits on it.
#[derive(Debug)]
pub(crate) struct StepClient {
    pub(crate) wire: Wire,
    /// All queued output may wait until this time.
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

    /// Sends a message; with `may_wait` it may be held back for others.
    pub(crate) fn send(&mut self, message: &FromStepd, may_wait: bool) {
        self.note(may_wait);
        frame::encode_into(message, &mut self.wire.output);
    }

    /// As above, for an encoded message.
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

    /// Queued output may not wait any longer.
    pub(crate) fn hurry(&mut self) {
        self.patient = None;
    }

    /// The time until which queued output waits for later messages.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.patient.filter(|_| !self.wire.output.is_empty())
    }

    /// Whether output should be written now.
    pub(crate) fn has_output(&self) -> bool {
        !self.wire.output.is_empty() && self.patient.is_none()
    }

    /// Writes as much as the socket takes, unless the output may still wait.
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

    /// Earlier, these lines had no limit: a user who connected to the own step again and again filled the disk.
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
