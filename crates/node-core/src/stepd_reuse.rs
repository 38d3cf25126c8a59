//! Conventions of agent and launcher for the reuse of a step daemon for several steps of a job.

use muster_model::ids::{JobAttempt, StepNo};
use std::path::{Path, PathBuf};

/// Daemons of a job that wait for a step, at most.
pub const SPARES_MAX: usize = 16;
/// Maximum size of an order for a daemon that is reused, so that it fits into the daemon's control channel.
pub const ORDER_MAX: usize = 64 << 10;

/// The file in which a daemon leaves the end of a step.
pub fn result_path(spool: &Path, attempt: JobAttempt, step: StepNo) -> PathBuf {
    spool.join(format!(
        "step-{}.{}.{}.end",
        attempt.job, attempt.attempt.0, step.0
    ))
}
