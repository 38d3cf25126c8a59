//! Whether the queue has room for new jobs: `MaxJobCount`, and room beyond it for users with few jobs.

use crate::state::State;
use muster_model::config::ClusterConfig;
use muster_model::refusal::{Refusal, RefusalCode};

/// A full queue takes one part in this many of `MaxJobCount` more, from users who have no more jobs than that part, so that
/// nobody can fill the queue for all others. Who has more finds it full where Slurm's is.
const BEYOND: u64 = 8;

/// Refuses jobs for which the queue has no room. Each task of an array counts as one job, whether it has a record of its own
/// already or not: it can get one at any time.
///
/// # Errors
/// [`RefusalCode::ArrayTooLarge`] where they would not fit into an empty queue, else [`RefusalCode::TooManyJobs`].
pub(super) fn check(
    state: &State,
    config: &ClusterConfig,
    owner: u32,
    jobs: u64,
) -> Result<(), Refusal> {
    let most = u64::from(config.max_job_count);
    if jobs > most {
        return Err(Refusal::new(
            RefusalCode::ArrayTooLarge,
            format!("{jobs} tasks are more than MaxJobCount={most}"),
        ));
    }
    let total = state.queue_size.total().saturating_add(jobs);
    let own = state.queue_size.of_user(owner).saturating_add(jobs);
    let part = most / BEYOND;
    let has_room = total <= most || own <= part && total <= most.saturating_add(part);
    match has_room {
        true => Ok(()),
        false => Err(Refusal::new(
            RefusalCode::TooManyJobs,
            format!("the queue holds MaxJobCount={most} jobs"),
        )),
    }
}
