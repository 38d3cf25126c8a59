//! Jobs by the numbers that users name them by, and the records that a number stands for.

use super::job::JobRow;
use super::query::Jobs;
use muster_model::ids::JobId;
use muster_model::job::ArrayRole;

/// A job as `show job` takes it: `12`, `12_3`.
pub(crate) fn parse_job(text: &str) -> Option<(JobId, Option<u32>)> {
    if let Some((leader, component)) = text.split_once('+') {
        // Components are numbered on from their leader.
        let (leader, component): (u64, u32) = (leader.parse().ok()?, component.parse().ok()?);
        return Some((JobId(leader.checked_add(component.into())?), None));
    }
    let (id, task) = match text.split_once('_') {
        Some((id, task)) => (id, Some(task.parse().ok()?)),
        None => (text, None),
    };
    Some((JobId(id.parse().ok()?), task))
}

/// All jobs, where a job is to be named.
pub(crate) const EVERY_JOB: JobId = JobId(0);

/// Records of a job or an array, or of one task; of job 0, those of all jobs, as Slurm's scontrol takes it.
pub(crate) fn rows_of(
    jobs: &Jobs,
    id: JobId,
    task: Option<u32>,
) -> impl Iterator<Item = JobRow<'_>> {
    jobs.jobs.iter().filter_map(move |job| {
        let row = JobRow::new(job, jobs.array_of(job));
        let led = job.het.is_some_and(|part| part.leader == id);
        if row.base_id() != id && job.id != id && !led && id != EVERY_JOB {
            return None;
        }
        match (task, &job.array) {
            (None, _) => Some(row),
            (Some(task), ArrayRole::Task { base, index }) => {
                ((*base == id || id == EVERY_JOB) && *index == task).then_some(row)
            }
            (Some(task), ArrayRole::Pending { indices }) => {
                indices.contains(task).then_some(JobRow {
                    task: Some(task),
                    ..row
                })
            }
            (Some(_), ArrayRole::None) => None,
        }
    })
}
