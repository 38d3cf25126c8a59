//! Steps that come before their job has begun, whose prolog may take long: how much of them is kept.

use super::state::LauncherState;
use crate::messages::StepOrder;
use minicbor::encode::Write;
use muster_model::ids::JobAttempt;
use std::convert::Infallible;

/// Steps that wait for one job to begin.
const STEPS_MAX: usize = 4096;
/// About how many bytes all of those take that are one user's.
const USER_BYTES_MAX: usize = 64 << 20;
/// Approximate memory overhead of a value beyond its encoded bytes.
const VALUE_BYTES: usize = 16;

/// Counts the bytes that are written.
struct Counter(usize);

impl Write for Counter {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        let more = bytes.len().saturating_add(VALUE_BYTES);
        self.0 = self.0.saturating_add(more);
        Ok(())
    }
}

/// About how many bytes an order takes.
pub(super) fn bytes_of(order: &StepOrder) -> usize {
    let mut counter = Counter(0);
    match minicbor::encode(order, &mut counter) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

/// Whether another step with this number of bytes may wait for its job.
///
/// # Errors
/// Why not.
pub(super) fn may_wait(
    state: &LauncherState,
    attempt: JobAttempt,
    bytes: usize,
) -> Result<(), String> {
    let Some(entry) = state.jobs.get(&attempt) else {
        return Ok(());
    };
    if entry.early_steps.len() >= STEPS_MAX {
        return Err("too many steps wait for the job to begin".to_owned());
    }
    let of_user = state.jobs.values().filter(|e| e.uid == entry.uid);
    let waiting: usize = of_user.flat_map(|e| &e.early_steps).map(|e| e.bytes).sum();
    match waiting.saturating_add(bytes) > USER_BYTES_MAX {
        true => Err(format!(
            "steps that wait for jobs of this user to begin would take more than {} MiB on the node",
            USER_BYTES_MAX >> 20
        )),
        false => Ok(()),
    }
}
