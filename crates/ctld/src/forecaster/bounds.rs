//! Limits of the work for one question, and the answer to one that met a fault.

use muster_model::refusal::{Refusal, RefusalCode};
use std::time::Duration;

/// Time that one turn of a forecast, an explanation or a trial takes; an operation that takes longer ends it.
pub(super) const SLICE: Duration = Duration::from_millis(200);
/// Time of work for one forecast or trial.
pub(super) const WORK_MAX: Duration = Duration::from_secs(10);

/// Explanations and trials under way at a time: each holds a copy of the state.
pub(super) const BEGUN_MAX: usize = 4;
/// Trials among them, which may take longer: explanations do not wait for those.
pub(super) const TRIALS_MAX: usize = 3;
/// Time that a question waits to be begun before it is refused.
pub(super) const TURN_WAIT_MAX: Duration = Duration::from_secs(20);

/// The answer to a question that has waited for too long to be begun.
pub(super) fn busy_refusal() -> Refusal {
    let wait = TURN_WAIT_MAX.as_secs();
    let detail = format!(
        "the controller works out starts for {BEGUN_MAX} others at a time, and has not come to this in {wait} seconds; ask again later"
    );
    Refusal::new(RefusalCode::Busy, detail)
}

/// The answer to a question whose work has panicked.
pub(super) fn fault_refusal() -> Refusal {
    let detail = "the request met a fault in the controller; see the log of slurmctld";
    Refusal::new(RefusalCode::InvalidValue, detail)
}
