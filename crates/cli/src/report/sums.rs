//! Sums over jobs, and the columns made of them.

use crate::sreport::measure::{self, Period};
use muster_model::job::JobState;
use muster_model::time::Timestamp;
use muster_proto::acct::AcctJob;

/// Sums over jobs. Jobs count where they ended; their use counts where it happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobSums {
    runs: u64,
    completed: u64,
    failed: u64,
    timeout: u64,
    out_of_memory: u64,
    node_failed: u64,
    cancelled: u64,
    other: u64,
    /// Run times of those that ran, seconds; in order once they have been put into it.
    run_s: Vec<u32>,
    /// Waiting times, likewise.
    wait_s: Vec<u32>,
    cpu_s: f64,
    gpu_s: f64,
    node_s: f64,
    /// CPU time that ended jobs used, and that they had.
    used_cpu_s: f64,
    held_cpu_s: f64,
    last_end: Option<Timestamp>,
    /// The fair share now of the user that the row names.
    pub(crate) fair_share: Option<f64>,
}

impl JobSums {
    /// Adds a part of a job's use within a period: all of it, or that on some of its nodes.
    pub(crate) fn add_use(&mut self, job: &AcctJob, period: Period, now: Timestamp, part: f64) {
        let ran = measure::ran_s(job, period, now).max(0.0) * part;
        self.cpu_s += ran * measure::has(job, "cpu");
        self.gpu_s += ran * measure::has(job, "gres/gpu");
        self.node_s += ran * measure::has(job, "node");
    }

    /// Counts a job that has ended.
    pub(crate) fn add_end(&mut self, job: &AcctJob) {
        self.runs += 1;
        let count = match job.state {
            JobState::Completed => &mut self.completed,
            JobState::Failed => &mut self.failed,
            JobState::Timeout | JobState::Deadline => &mut self.timeout,
            JobState::OutOfMemory => &mut self.out_of_memory,
            JobState::NodeFail | JobState::BootFail => &mut self.node_failed,
            JobState::Cancelled => &mut self.cancelled,
            _ => &mut self.other,
        };
        *count += 1;
        self.last_end = self.last_end.max(job.end);
        let (Some(start), Some(end)) = (job.start, job.end) else {
            return;
        };
        let stopped = i64::try_from(job.suspended_ms).unwrap_or(i64::MAX);
        let ran_ms = (end.since_ms(start) as i64).saturating_sub(stopped).max(0);
        self.run_s
            .push(u32::try_from(ran_ms / 1000).unwrap_or(u32::MAX));
        if let Some(eligible) = job.eligible {
            let wait_s = start.since_ms(eligible) / 1000;
            self.wait_s.push(u32::try_from(wait_s).unwrap_or(u32::MAX));
        }
        let used = job.steps.iter().filter_map(|step| step.usage.as_ref());
        let used_us: u64 = used.map(|usage| usage.user_us + usage.system_us).sum();
        self.used_cpu_s += used_us as f64 / 1e6;
        self.held_cpu_s += ran_ms as f64 / 1000.0 * f64::from(job.alloc_cpus);
    }

    /// Puts run and waiting times in order, for the columns that are read from them.
    pub(crate) fn finish(&mut self) {
        self.run_s.sort_unstable();
        self.wait_s.sort_unstable();
    }

    fn share(part: f64, whole: f64) -> Value {
        Value::Share((whole > 0.0).then(|| part / whole))
    }
}

/// The time within which this part of a hundred was over; the times are in order.
fn of_hundred(times_s: &[u32], part: usize) -> Value {
    let place = (times_s.len() * part).div_ceil(100).saturating_sub(1);
    Value::Seconds(times_s.get(place).map(|s| f64::from(*s)))
}

fn mean(times_s: &[u32]) -> Value {
    let sum: f64 = times_s.iter().map(|s| f64::from(*s)).sum();
    let count = times_s.len();
    Value::Seconds((count > 0).then(|| sum / count as f64))
}

/// Content of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// A number.
    Count(u64),
    /// A time, seconds.
    Seconds(Option<f64>),
    /// Seconds of use, shown as hours.
    Hours(f64),
    /// A part of a whole.
    Share(Option<f64>),
    /// A moment.
    Moment(Option<Timestamp>),
}

impl Value {
    /// By what rows are put in order.
    pub(crate) fn rank(self) -> f64 {
        match self {
            Value::Count(count) => count as f64,
            Value::Hours(seconds) => seconds,
            Value::Seconds(value) | Value::Share(value) => value.unwrap_or(-1.0),
            Value::Moment(at) => at.map_or(-1.0, |at| at.0 as f64),
        }
    }
}

/// A column of sums.
#[derive(Debug)]
pub(crate) struct Measure {
    /// Its name, in JSON, in CSV and for `--columns`.
    pub(crate) name: &'static str,
    /// Above the column.
    pub(crate) header: &'static str,
    /// Its description.
    pub(crate) about: &'static str,
    /// Shown if nothing is said.
    pub(crate) is_usual: bool,
    /// Function that reads it.
    pub(crate) read: fn(&JobSums) -> Value,
}

const fn measure(
    name: &'static str,
    header: &'static str,
    about: &'static str,
    is_usual: bool,
    read: fn(&JobSums) -> Value,
) -> Measure {
    Measure {
        name,
        header,
        about,
        is_usual,
        read,
    }
}

/// Name of the column that is not made of jobs.
pub(crate) const FAIR_SHARE: &str = "fair_share";

/// All of them.
#[rustfmt::skip]
pub(crate) static MEASURES: &[Measure] = &[
    measure("runs", "Runs", "jobs that ended", true, |s| Value::Count(s.runs)),
    measure("completed", "OK", "of these, with exit code 0", true, |s| Value::Count(s.completed)),
    measure("failed", "Failed", "with another exit code", true, |s| Value::Count(s.failed)),
    measure("timeout", "Timeout", "at their time limit or deadline", true, |s| Value::Count(s.timeout)),
    measure("out_of_memory", "OOM", "since memory was used up", true, |s| Value::Count(s.out_of_memory)),
    measure("node_failed", "NodeFail", "since a node failed or did not start", true, |s| Value::Count(s.node_failed)),
    measure("cancelled", "Cancelled", "since they were cancelled", true, |s| Value::Count(s.cancelled)),
    measure("other", "Other", "in another way: preempted, requeued", false, |s| Value::Count(s.other)),
    measure("failed_share", "Errors", "part of the jobs that ended with an error", false, |s| {
        JobSums::share((s.failed + s.timeout + s.out_of_memory + s.node_failed) as f64, s.runs as f64)
    }),
    measure("mean_s", "Mean", "mean run time", true, |s| mean(&s.run_s)),
    measure("median_s", "Median", "run time within which half of the jobs ended", true, |s| of_hundred(&s.run_s, 50)),
    measure("p95_s", "P95", "run time within which 95 of a hundred jobs ended", true, |s| of_hundred(&s.run_s, 95)),
    measure("longest_s", "Longest", "longest run time", true, |s| of_hundred(&s.run_s, 100)),
    measure("wait_s", "Wait", "mean time from being eligible to the start", true, |s| mean(&s.wait_s)),
    measure("wait_p95_s", "WaitP95", "time within which 95 of a hundred jobs started", false, |s| of_hundred(&s.wait_s, 95)),
    measure("cpu_s", "CPUHours", "CPUs times the time for which jobs had them", true, |s| Value::Hours(s.cpu_s)),
    measure("gpu_s", "GPUHours", "the same of GPUs", true, |s| Value::Hours(s.gpu_s)),
    measure("node_s", "NodeHours", "the same of nodes", false, |s| Value::Hours(s.node_s)),
    measure("cpu_efficiency", "CPUEff", "CPU time that ended jobs used, of what they had", true, |s| JobSums::share(s.used_cpu_s, s.held_cpu_s)),
    measure(FAIR_SHARE, "FairShare", "fair share now of the user of the row, in its account: the highest of several", false, |s| Value::Share(s.fair_share)),
    measure("last_end", "LastEnd", "when the last of them ended", false, |s| Value::Moment(s.last_end)),
];
