//! Output queue of an agent: messages, and descriptors that go with some of them.

use crate::descriptors;
use muster_node_core::messages::LauncherEvent;
use muster_proto::frame;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

/// Maximum number of bytes that an agent has not read. When it is exceeded the next agent receives
/// what this one has missed.
const BYTES_MAX: usize = 512 << 20;
/// Maximum number of unread descriptors. One event may bring very many: steps that have waited for
/// a prolog start together.
const DESCRIPTORS_MAX: usize = 16 << 10;
/// Number of queued descriptors above which no more orders are read.
const DESCRIPTORS_MANY: usize = 128;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// Each descriptor with the number of queued bytes before its message.
    descriptors: VecDeque<(usize, OwnedFd)>,
}

impl Output {
    /// Adds a message.
    pub(super) fn push(&mut self, event: &LauncherEvent) {
        frame::encode_into(event, &mut self.bytes);
    }

    /// Adds a message and its descriptor.
    pub(super) fn push_with(&mut self, event: &LauncherEvent, with: OwnedFd) {
        self.descriptors.push_back((self.bytes.len(), with));
        self.push(event);
    }

    /// Moves everything from another queue to this one.
    pub(super) fn append(&mut self, other: &mut Output) {
        let before = self.bytes.len();
        let descriptors = other.descriptors.drain(..);
        self.descriptors
            .extend(descriptors.map(|(at, fd)| (before + at, fd)));
        self.bytes.append(&mut other.bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the queue is longer than an agent that reads can leave it.
    pub(super) fn is_too_much(&self) -> bool {
        self.bytes.len() > BYTES_MAX || self.descriptors.len() > DESCRIPTORS_MAX
    }

    /// Whether the output queue is long enough to delay orders.
    pub(super) fn is_much(&self) -> bool {
        self.descriptors.len() > DESCRIPTORS_MANY
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.descriptors.clear();
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn send(&mut self, stream: &UnixStream) -> io::Result<()> {
        let mut sent = 0;
        let result = self.send_from(stream, &mut sent);
        self.bytes.drain(..sent);
        for (at, _) in &mut self.descriptors {
            *at -= sent;
        }
        result
    }

    fn send_from(&mut self, stream: &UnixStream, sent: &mut usize) -> io::Result<()> {
        while *sent < self.bytes.len() {
            let mut next = self.descriptors.iter();
            let goes_now = |(at, _): &&(usize, OwnedFd)| at == sent;
            let with = self.descriptors.front().filter(goes_now);
            let with: Vec<_> = with.map(|(_, fd)| fd.as_raw_fd()).into_iter().collect();
            // Each descriptor has its own message, so that they arrive one by one.
            let until = next.find(|(at, _)| at > sent).map(|(at, _)| *at);
            let until = until.unwrap_or(self.bytes.len());
            match descriptors::send(stream, &self.bytes[*sent..until], &with) {
                Ok(count) => {
                    *sent += count;
                    if !with.is_empty() {
                        self.descriptors.pop_front();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::{Attempt, JobAttempt, JobId, StepNo};
    use muster_proto::frame::Frames;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    fn channel_of(step: u32) -> LauncherEvent {
        let attempt = JobAttempt::new(JobId(1), Attempt(1));
        LauncherEvent::StepChannel(attempt, StepNo(step))
    }

    /// More than a socket takes at once, with messages in between that have none.
    #[test]
    fn each_descriptor_comes_before_its_message_and_after_the_one_before() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let (mut output, mut far_ends) = (Output::default(), Vec::new());
        for step in 0..100 {
            let (mine, theirs) = UnixStream::pair().unwrap();
            far_ends.push(mine);
            let mut more = Output::default();
            more.push(&LauncherEvent::SessionFailed("x".repeat(5000)));
            more.push_with(&channel_of(step), theirs.into());
            output.append(&mut more);
            assert!(more.is_empty());
        }
        assert!(!output.is_too_much());
        let (mut frames, mut received, mut steps) = (Frames::default(), VecDeque::new(), 0);
        while steps < 100 {
            output.send(&near).unwrap();
            let mut chunk = [0; 3000];
            let count = descriptors::receive(&far, &mut chunk, &mut received).unwrap();
            frames.push(&chunk[..count]);
            while let Some(event) = frames.take::<LauncherEvent>().unwrap() {
                let LauncherEvent::StepChannel(_, step) = event else {
                    continue;
                };
                assert_eq!(step.0, steps);
                let mut channel = UnixStream::from(received.pop_front().unwrap());
                channel.write_all(b"x").unwrap();
                drop(channel);
                let end = &mut far_ends[usize::try_from(steps).unwrap()];
                assert_eq!(std::io::read_to_string(end).unwrap(), "x");
                steps += 1;
            }
        }
        assert!(output.is_empty() && received.is_empty());
        for step in 0..=u32::try_from(DESCRIPTORS_MAX).unwrap() {
            let null = std::fs::File::open("/dev/null").unwrap();
            output.push_with(&channel_of(step), null.into());
        }
        assert!(output.is_too_much());
    }
}
