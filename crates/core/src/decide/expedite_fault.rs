//! Jobs with `--requeue=expedite` whose script and whose epilog have failed on a node.

use super::draft::Draft;
use super::ending::{self, JobEnding};
use super::expedite::is_wanted;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Phase, Reason};
use muster_model::spec::JobKind;

/// Beginning of a node's report of an epilog that has failed.
const EPILOG_FAILED: &str = "Epilog error";

/// A node has a fault by a job that ends there. A script that has failed where the epilog fails, too, may owe it to the node.
pub(super) fn node_fault(draft: &mut Draft<'_>, id: JobId, error: &str) {
    let Some(job) = draft.job(id) else { return };
    let has_failed = job.phase() == Phase::Completing
        && job.state == JobState::Failed
        && job.cancelled_by.is_none()
        && job.reason == Reason::NonZeroExitCode;
    if has_failed
        && error.starts_with(EPILOG_FAILED)
        && job.spec.kind == JobKind::Batch
        && job.requeueable
        && is_wanted(draft, job)
    {
        ending::end(
            draft,
            id,
            JobEnding::requeue(Reason::NonZeroExitCode, false),
        );
    }
}
