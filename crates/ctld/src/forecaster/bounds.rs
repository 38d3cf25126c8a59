//! Limits of the work for one question, and the answer to one that met a fault.

use muster_model::refusal::{Refusal, RefusalCode};
use std::time::Duration;

/// Time that one turn of a forecast, an explanation or a trial takes; an operation that takes longer ends it.
pub(super) const SLICE: Duration = Duration::from_millis(200);
/// Time of work for one forecast or trial.
pub(super) const WORK_MAX: Duration = Duration::from_secs(10);

/// The answer to a question whose work has panicked.
pub(super) fn fault_refusal() -> Refusal {
    let detail = "the request met a fault in the controller; see the log of slurmctld";
    Refusal::new(RefusalCode::InvalidValue, detail)
}
