//! What agent and launcher agree on where a step daemon has several steps of a job.

use muster_model::ids::{JobAttempt, StepNo};
use std::path::{Path, PathBuf};

/// Daemons of a job that wait for a step, at most.
pub const SPARES_MAX: usize = 16;
/// An order for a daemon that has had a step may have so many bytes: they fit into its control channel.
pub const ORDER_MAX: usize = 64 << 10;

/// The file in which a daemon leaves the end of a step.
pub fn result_path(spool: &Path, attempt: JobAttempt, step: StepNo) -> PathBuf {
    spool.join(format!(
        "step-{}.{}.{}.end",
        attempt.job, attempt.attempt.0, step.0
    ))
}
