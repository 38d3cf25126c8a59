//! Jobs and steps as users name them on a command line.

use muster_conf::options::values;
use muster_model::command::JobTarget;
use muster_model::ids::{JobId, StepNo};

/// `J`, `J_1`, `J_[1-3]`, `J_*`, `J+1`.
pub(crate) fn job_target(text: &str) -> Option<JobTarget> {
    let (text, component) = match text.split_once('+') {
        Some((job, component)) if !job.contains('_') => (job, Some(component.parse().ok()?)),
        Some(_) => return None,
        None => (text, None),
    };
    let (job, tasks) = match text.split_once('_') {
        Some((job, "*")) => (job, None),
        Some((job, tasks)) => (job, Some(values::indices(tasks)?)),
        None => (text, None),
    };
    let digits = !job.is_empty() && job.bytes().all(|b| b.is_ascii_digit());
    let job = job.parse().ok().filter(|n| digits && *n > 0)?;
    Some(JobTarget {
        job: JobId(job),
        tasks,
        component,
    })
}

/// A step's number or name.
pub(crate) fn step_number(text: &str) -> Option<StepNo> {
    text.parse().ok()
}
