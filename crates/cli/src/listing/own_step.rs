//! A user who lists steps from within one expects to find that one: its start may still be on its way to the
//! controller, which is informed of steps, and not asked.

use crate::connect::{Client, ConnectError};
use crate::process;
use muster_model::ids::{JobId, StepId, StepNo};
use muster_proto::client::JobFilter;
use std::time::{Duration, Instant};

/// Time limit of the wait for this process's step.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of looks for it. Starts of steps are on their way for ten milliseconds or so.
const LOOKED_EVERY: Duration = Duration::from_millis(4);

/// Waits until the controller knows the step that this process is of, if it is of one.
///
/// # Errors
/// The controller does not answer.
pub(crate) fn wait(client: &mut Client) -> Result<(), ConnectError> {
    let Some(StepId { job, step }) = own() else {
        return Ok(());
    };
    let until = Instant::now() + PATIENCE;
    loop {
        let filter = JobFilter {
            ids: vec![job],
            ..JobFilter::default()
        };
        let jobs = client.query_jobs(filter)?;
        let mut steps = jobs.iter().flat_map(|job| &job.steps);
        // A job that is gone has no steps any more.
        let is_over = jobs.iter().all(|job| job.state.is_ended());
        if is_over || steps.any(|known| known.step == step) || Instant::now() >= until {
            return Ok(());
        }
        std::thread::sleep(LOOKED_EVERY);
    }
}

/// The step in whose environment this process is.
fn own() -> Option<StepId> {
    let number = |name| process::variable(name)?.parse().ok();
    let job: u64 = process::variable("SLURM_JOB_ID")?.parse().ok()?;
    let step: u32 = number("SLURM_STEP_ID")?;
    // The script itself is known.
    (step < StepNo::INTERACTIVE.0).then_some(StepId::new(JobId(job), StepNo(step)))
}
