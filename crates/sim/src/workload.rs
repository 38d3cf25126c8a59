//! Workloads: streams of jobs with the times they really ran, from a recorded trace or from a model, for
//! [`crate::replay`]. What a workload is run on is no part of it, except for how many processors it was made for.

pub mod lublin;
pub mod swf;

/// A stream of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Processors of the machine it was recorded on or made for.
    pub processors: u32,
    /// Nodes of that machine, where known.
    pub nodes: Option<u32>,
    /// Jobs in order of submission.
    pub jobs: Vec<WorkloadJob>,
    /// Records that are no jobs to run: without processors or run time, or cancelled before they started.
    pub skipped: usize,
}

/// A job of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadJob {
    /// Its number in the trace.
    pub number: u64,
    /// Seconds after the workload's begin at which it is submitted.
    pub submit_s: u64,
    /// Seconds it needs, whatever its limit.
    pub run_s: u64,
    /// Processors.
    pub processors: u32,
    /// The time limit its user asked for, seconds; its own run time where the trace has none.
    pub limit_s: u64,
    /// Its user.
    pub user: u32,
    /// Number of the program it runs, where the trace has one.
    pub program: Option<u32>,
}

impl Workload {
    /// Sorts by submission (equal times keep the trace's order) and fills in the machine's size where it is not
    /// known: that of the largest job.
    fn settle(mut self) -> Workload {
        self.jobs.sort_by_key(|job| job.submit_s);
        if self.processors == 0 {
            let most = self.jobs.iter().map(|job| job.processors).max();
            self.processors = self.nodes.or(most).unwrap_or(1);
        }
        self
    }

    /// Processor seconds asked of each processor second between the first submission and the last.
    pub fn offered_load(&self) -> f64 {
        let first = self.jobs.first().map_or(0, |job| job.submit_s);
        let last = self.jobs.last().map_or(0, |job| job.submit_s);
        let work: f64 = self.jobs.iter().map(WorkloadJob::work).sum();
        let span = last.saturating_sub(first).max(1) as f64;
        work / (span * f64::from(self.processors.max(1)))
    }

    /// Stretches or shrinks the time between submissions so that the offered load is `load`.
    pub fn scale_to_load(&mut self, load: f64) {
        let factor = self.offered_load() / load;
        let first = self.jobs.first().map_or(0, |job| job.submit_s);
        for job in &mut self.jobs {
            job.submit_s = first + (((job.submit_s - first) as f64) * factor).round() as u64;
        }
    }
}

impl WorkloadJob {
    /// Processor seconds.
    fn work(&self) -> f64 {
        self.run_s as f64 * f64::from(self.processors)
    }
}
