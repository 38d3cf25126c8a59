//! `--requeue=expedite`: a job that comes back to the queue after a failure of a node, or of its script and the epilog, waits for
//! nothing and is before all others. The site allows it (`SlurmctldParameters=enable_expedited_requeue`).

use super::draft::Draft;
use crate::event::JobChange;
use muster_model::ids::JobId;
use muster_model::job::{Hold, Job, Reason};
use muster_model::limits::PRIORITY_TOP;

/// Whether the job asked for it, and the site allows it.
pub(super) fn is_wanted(draft: &Draft<'_>, job: &Job) -> bool {
    let config = draft.state.config.as_ref();
    job.spec.expedite && config.is_some_and(|config| config.expedited_requeue)
}

/// Whether a job that goes back to the queue now is expedited: it was lost, it was not put back by somebody.
pub(super) fn is_due(draft: &Draft<'_>, job: &Job) -> bool {
    matches!(job.reason, Reason::NodeDown | Reason::NonZeroExitCode) && is_wanted(draft, job)
}

/// The job is in the queue again: it is before all others, as if an administrator had set its priority.
pub(super) fn raise(draft: &mut Draft<'_>, id: JobId) {
    if draft.job(id).is_some_and(|job| job.hold == Hold::None) {
        draft.change(id, JobChange::Priority(PRIORITY_TOP));
    }
}
