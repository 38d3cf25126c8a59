//! What running jobs use now, as the agents of their nodes measure it: `qstat -ext`, `-t`, `-j`.

use crate::connect::Client;
use crate::measure::{StepUsage, measure_jobs};
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Job, JobState, Usage};
use muster_proto::client::{Query, Response};
use std::collections::HashMap;
use std::time::Duration;

/// Jobs of which one command asks the agents: each takes a connection to each of its nodes.
const JOBS_MAX: usize = 100;
/// How long one command waits for all agents. What is not known then is `NA`.
const AGENTS_PATIENCE: Duration = Duration::from_secs(3);

/// What steps use, by job. Jobs of others, and those beyond [`JOBS_MAX`], are not among them.
#[derive(Debug, Default)]
pub(super) struct Measured {
    jobs: HashMap<JobId, Vec<StepUsage>>,
}

impl Measured {
    /// Asks for the jobs that run and that the caller may ask about.
    pub(super) fn of<'a>(client: &mut Client, jobs: impl Iterator<Item = &'a Job>) -> Measured {
        let caller = nix::unistd::getuid();
        let may_ask = |job: &&Job| caller.is_root() || job.spec.owner.uid == caller.as_raw();
        let mut infos = Vec::new();
        for job in jobs.filter(may_ask).filter(runs).take(JOBS_MAX) {
            if let Ok(Response::JobStarted(info)) = client.query(Query::Allocation(job.id)) {
                infos.push(info);
            }
        }
        let mut measured = Measured::default();
        let infos = infos.iter().map(|info| &**info);
        for node in measure_jobs(infos, AGENTS_PATIENCE) {
            let steps = measured.jobs.entry(node.job).or_default();
            steps.extend(node.steps);
        }
        measured
    }

    /// What a test says was measured.
    #[cfg(test)]
    pub(super) fn from_steps(job: JobId, steps: Vec<StepUsage>) -> Measured {
        Measured {
            jobs: HashMap::from([(job, steps)]),
        }
    }

    /// What the steps of a job use on each node.
    pub(super) fn steps(&self, job: &Job) -> &[StepUsage] {
        self.jobs.get(&job.id).map_or(&[], Vec::as_slice)
    }

    /// What a job uses altogether; `None` where nothing of it is known.
    pub(super) fn total(&self, job: &Job) -> Option<Usage> {
        let mut steps = self.steps(job).iter();
        let mut total = steps.next()?.usage.clone();
        steps.for_each(|own| total.add(&own.usage));
        Some(total)
    }
}

fn runs(job: &&Job) -> bool {
    let is_started = matches!(job.state, JobState::Running | JobState::Suspended);
    is_started && !job.completing && job.alloc.is_some()
}

/// Whether users start the step by srun, so that it has a number.
pub(super) fn is_numbered(step: StepNo) -> bool {
    step < StepNo::INTERACTIVE
}

/// Seconds of processor time.
pub(super) fn cpu_s(usage: &Usage) -> u64 {
    usage.user_us.saturating_add(usage.system_us) / 1_000_000
}

/// `26:03:01`.
pub(super) fn clock(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// `1:02:03:01`.
pub(super) fn days_and_clock(seconds: u64) -> String {
    format!("{}:{}", seconds / 86_400, clock(seconds % 86_400))
}

/// Bytes read and written, in GiB.
#[allow(clippy::cast_precision_loss)]
pub(super) fn io_gib(usage: &Usage) -> f64 {
    let bytes = usage.disk_read_bytes.saturating_add(usage.disk_write_bytes);
    bytes as f64 / f64::from(1 << 30)
}

/// `30.691M`, `1.500G`.
#[allow(clippy::cast_precision_loss)]
pub(super) fn memory(kib: u64) -> String {
    match kib as f64 {
        kib if kib < 1024.0 => format!("{kib:.3}K"),
        kib if kib < 1024.0 * 1024.0 => format!("{:.3}M", kib / 1024.0),
        kib => format!("{:.3}G", kib / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_grid_engine_writes_them() {
        let usage = Usage {
            user_us: 90_000_000_000,
            system_us: 3_900_000,
            disk_read_bytes: 1 << 29,
            disk_write_bytes: 1 << 28,
            ..Usage::default()
        };
        assert_eq!(clock(cpu_s(&usage)), "25:00:03");
        assert_eq!(days_and_clock(cpu_s(&usage)), "1:01:00:03");
        assert_eq!(format!("{:.5}", io_gib(&usage)), "0.75000");
        for (kib, text) in [(0, "0.000K"), (31_428, "30.691M"), (3 << 19, "1.500G")] {
            assert_eq!(memory(kib), text);
        }
    }
}
