//! Figures of merit of a replay, as the literature on parallel job scheduling has them.

use crate::workload::WorkloadJob;

/// Shortest run time that slowdown is counted with, seconds: a job of no length must not weigh without bound.
pub const TAU_S: f64 = 10.0;

/// A job that has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The job.
    pub job: WorkloadJob,
    /// When it started, seconds after the workload's begin.
    pub start_s: i64,
    /// When it ended.
    pub end_s: i64,
}

impl Finished {
    /// Seconds it waited.
    pub fn wait_s(&self) -> f64 {
        self.start_s as f64 - self.job.submit_s as f64
    }

    fn run_s(&self) -> f64 {
        (self.end_s - self.start_s) as f64
    }

    /// `max(1, (wait + run) / max(run, tau))`.
    pub fn bounded_slowdown(&self) -> f64 {
        ((self.wait_s() + self.run_s()) / self.run_s().max(TAU_S)).max(1.0)
    }
}

/// Queue and machine from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Since when, seconds after the workload's begin.
    pub at_s: i64,
    /// Jobs that wait.
    pub waiting: usize,
    /// Processors in use.
    pub busy: u32,
}

/// Quality of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Jobs that ran.
    pub jobs: usize,
    /// Mean of the bounded slowdown.
    pub avg_bounded_slowdown: f64,
    /// Mean of the wait, seconds.
    pub mean_wait_s: f64,
    /// Wait that 95 % of the jobs do not exceed, seconds.
    pub p95_wait_s: f64,
    /// Longest wait, seconds.
    pub max_wait_s: f64,
    /// Share of the processor seconds between the first submission and the last end that jobs used.
    pub utilisation: f64,
}

/// The figures of a set of jobs on this number of processors.
pub fn metrics(jobs: &[Finished], processors: u32) -> Metrics {
    if jobs.is_empty() {
        return Metrics::default();
    }
    let count = jobs.len() as f64;
    let mut waits: Vec<f64> = jobs.iter().map(Finished::wait_s).collect();
    waits.sort_by(f64::total_cmp);
    let rank = ((0.95 * count).ceil() as usize).clamp(1, jobs.len());
    let first = jobs.iter().map(|j| j.job.submit_s).min().unwrap_or(0);
    let last = jobs.iter().map(|j| j.end_s).max().unwrap_or(0);
    let work: f64 = (jobs.iter())
        .map(|j| j.run_s() * f64::from(j.job.processors))
        .sum();
    let span = (last as f64 - first as f64).max(1.0);
    Metrics {
        jobs: jobs.len(),
        avg_bounded_slowdown: jobs.iter().map(Finished::bounded_slowdown).sum::<f64>() / count,
        mean_wait_s: waits.iter().sum::<f64>() / count,
        p95_wait_s: waits[rank - 1],
        max_wait_s: waits[jobs.len() - 1],
        utilisation: work / (span * f64::from(processors.max(1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(submit_s: u64, start_s: i64, end_s: i64, processors: u32) -> Finished {
        let job = WorkloadJob {
            submit_s,
            processors,
            ..WorkloadJob::default()
        };
        Finished {
            job,
            start_s,
            end_s,
        }
    }

    #[test]
    fn figures_by_hand() {
        // Slowdowns 1, (90+10)/10 = 10, and (8+2)/10 bounded by tau = 1.
        let jobs = [
            ran(0, 0, 100, 2),
            ran(10, 100, 110, 4),
            ran(100, 108, 110, 1),
        ];
        let m = metrics(&jobs, 4);
        assert!((m.avg_bounded_slowdown - 4.0).abs() < 1e-9, "{m:?}");
        assert!((m.mean_wait_s - 98.0 / 3.0).abs() < 1e-9, "{m:?}");
        assert_eq!((m.p95_wait_s, m.max_wait_s), (90.0, 90.0));
        assert!((m.utilisation - 242.0 / 440.0).abs() < 1e-9, "{m:?}");
    }

    #[test]
    fn nothing_ran() {
        assert_eq!(metrics(&[], 4), Metrics::default());
    }
}
