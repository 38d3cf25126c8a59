//! Room on the disk for what users' commands write. The disk's reserve is asked for each of them, with the encoded size of its
//! events, but for those that end jobs: reports of nodes, which are no commands of users, are never asked about.

use super::queue::goes_first;
use crate::disk::Reserve;
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::command::{Identity, UserCommand};
use muster_model::refusal::{Refusal, RefusalCode};
use std::convert::Infallible;

/// Bytes of the journal beside an event: the head of its record, and what is left over at the end of a block.
const RECORD_BYTES: u64 = 64;

/// Why a command with these events must be refused now, if it must.
///
/// # Errors
/// They would take of the space that is kept for the end of jobs.
pub(super) fn check(reserve: &Reserve, events: &[Event]) -> Result<(), Refusal> {
    let bytes = events.iter().map(|e| RECORD_BYTES + encoded_bytes(e)).sum();
    match reserve.refusal(bytes) {
        None => Ok(()),
        Some(cause) => Err(Refusal::new(RefusalCode::StorageFull, cause)),
    }
}

/// Whether a command is decided however little space is left: it ends jobs, or it is root's or SlurmUser's and takes away what
/// there is.
pub(super) fn ends_jobs(state: &State, identity: &Identity, command: &UserCommand) -> bool {
    match command {
        UserCommand::Cancel { .. }
        | UserCommand::Signal { .. }
        | UserCommand::EndAllocation { .. } => true,
        UserCommand::SetCrontab(ask) => ask.text.is_none(),
        UserCommand::UpdateNodes { update, .. } => {
            update.state.is_some() && goes_first(identity.uid, state)
        }
        UserCommand::DeletePartition { .. }
        | UserCommand::DeleteReservation { .. }
        | UserCommand::DeleteNodes { .. } => goes_first(identity.uid, state),
        _ => false,
    }
}

/// The length of something that is not encoded.
pub(super) fn encoded_bytes(value: &impl minicbor::Encode<()>) -> u64 {
    let mut counter = Counter(0);
    match minicbor::encode(value, &mut counter) {
        Ok(()) => counter.0,
        Err(_) => unreachable!("counting cannot fail"),
    }
}

/// Counts what is written.
struct Counter(u64);

impl minicbor::encode::Write for Counter {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}
