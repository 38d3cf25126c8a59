//! Room on the disk for what users' commands write. The disk's reserve is asked for each of them, with the encoded size of its
//! events. Those that end jobs may take half of it, each user a part; the rest is for reports of nodes, which are never asked about.

use super::encoded_bytes::encoded_bytes;
use super::queue::goes_first;
use crate::disk::{DiskReserve, ReservedSpace};
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::command::{Identity, JobTarget, UserCommand};
use muster_model::job::ArrayRole;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobKind;

/// Bytes of the journal beside an event: the head of its record, and the unused end of a block.
const RECORD_BYTES: u64 = 64;

/// Why a command with these events must be refused now, if it must.
///
/// # Errors
/// They would take of the space that is kept.
pub(super) fn check(
    reserve: &DiskReserve,
    kept: ReservedSpace,
    events: &[Event],
) -> Result<(), Refusal> {
    if kept == ReservedSpace::Nothing || events.is_empty() {
        return Ok(());
    }
    let bytes = events.iter().map(|e| RECORD_BYTES + encoded_bytes(e)).sum();
    match reserve.refusal(bytes, kept) {
        None => Ok(()),
        Some(cause) => Err(Refusal::new(RefusalCode::StorageFull, cause)),
    }
}

/// The part of the reserved space that a command must leave. A user who ends the tasks of an array one by one could use up the
/// space for reports of nodes; root can always end them. So can the controller, but where it ends a job that a user had held
/// (`because_of`), that counts as if the user ended it.
pub(super) fn kept(
    state: &State,
    identity: &Identity,
    command: &UserCommand,
    because_of: Option<u32>,
) -> ReservedSpace {
    if let (Some(uid), UserCommand::Cancel { selection }) = (because_of, command)
        && !selection.targets.iter().all(|t| is_allocation(state, t))
    {
        return ReservedSpace::ForReports(uid);
    }
    let is_roots = goes_first(identity.uid, state);
    match command {
        UserCommand::EndAllocation { .. } => ReservedSpace::Nothing,
        UserCommand::Cancel { .. } | UserCommand::Signal { .. } => match is_roots {
            true => ReservedSpace::Nothing,
            false => ReservedSpace::ForReports(identity.uid),
        },
        UserCommand::SetCrontab(ask) if ask.text.is_none() => {
            ReservedSpace::ForReports(identity.uid)
        }
        UserCommand::UpdateNodes { update, .. } if update.state.is_some() && is_roots => {
            ReservedSpace::Nothing
        }
        UserCommand::Hold { .. } | UserCommand::Requeue { .. } if is_roots => {
            ReservedSpace::Nothing
        }
        UserCommand::DeletePartition { .. }
        | UserCommand::DeleteReservation { .. }
        | UserCommand::DeleteNodes { .. }
            if is_roots =>
        {
            ReservedSpace::Nothing
        }
        _ => ReservedSpace::All,
    }
}

/// Whether a target is one allocation, which its user could end whatever is free.
fn is_allocation(state: &State, target: &JobTarget) -> bool {
    let job = state.jobs.get(&target.job);
    job.is_some_and(|job| job.spec.kind == JobKind::Allocation && job.array == ArrayRole::None)
}
