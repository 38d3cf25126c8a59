//! Processes of the launcher whose answers are awaited: what users could delay is never waited for.

use muster_model::ids::JobAttempt;
use muster_node_core::launcher::UserAccount;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;

/// Maximum answer of a look-up or a measurement: the largest message that the agent receives.
const ANSWER_MAX: usize = muster_model::limits::FRAME_BYTES_MAX / 2;

/// A process whose answer is awaited.
pub(super) struct QueryProcess {
    pub(super) pid: i32,
    pub(super) answer: UnixStream,
    pub(super) bytes: Vec<u8>,
    pub(super) about: About,
}

/// The question that it answers.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum About {
    Groups(UserAccount),
    Measurement(u64),
    /// The last lines of a script's standard error.
    LastLines(JobAttempt),
}

impl QueryProcess {
    /// Receives available bytes; returns whether the answer is complete.
    pub(super) fn read(&mut self) -> bool {
        let mut chunk = [0; 4 << 10];
        loop {
            match self.answer.read(&mut chunk) {
                Ok(n) if n > 0 && self.bytes.len() + n <= ANSWER_MAX => {
                    self.bytes.extend_from_slice(&chunk[..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                _ => return true,
            }
        }
    }
}
