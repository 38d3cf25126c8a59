//! The part of its CPUs and memory that a job used, by accounting: for seff and for mails about jobs.

use super::AcctJob;
use muster_model::time::Timestamp;

/// Use of a run that has started, beside its CPU time and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEfficiency {
    /// CPU time that its steps used, seconds.
    pub used_cpu_s: u64,
    /// Its CPUs times its run time, seconds.
    pub had_cpu_s: u64,
    /// Its run time without suspensions, seconds.
    pub elapsed_s: u64,
    /// The most memory that one of its steps used: the sum of what the step's tasks used at most.
    pub used_kib: u64,
    /// Memory that it had on all its nodes, or asked for.
    pub had_kib: u64,
}

impl JobEfficiency {
    /// The use of a run, until `now` if it has not ended; none of one that has not started.
    pub fn of(job: &AcctJob, now: Timestamp) -> Option<JobEfficiency> {
        let start = job.start?;
        let suspended_s = i64::try_from(job.suspended_ms / 1000).unwrap_or(0);
        let elapsed_s = job.end.unwrap_or(now).unix_s() - start.unix_s() - suspended_s;
        let elapsed_s = u64::try_from(elapsed_s).unwrap_or(0);
        let usages = || job.steps.iter().filter_map(|step| step.usage.as_ref());
        let used_us = usages().map(|usage| usage.user_us.saturating_add(usage.system_us));
        let used_kib = usages().map(|usage| usage.total_rss_kib.max(usage.max_rss_kib));
        let first_known = |had: u64, asked: u64| if had > 0 { had } else { asked };
        let cpus = first_known(u64::from(job.alloc_cpus), u64::from(job.req_cpus));
        Some(JobEfficiency {
            used_cpu_s: used_us.fold(0, u64::saturating_add) / 1_000_000,
            had_cpu_s: cpus.saturating_mul(elapsed_s),
            elapsed_s,
            used_kib: used_kib.max().unwrap_or(0),
            had_kib: first_known(job.alloc_mem_mib, job.req_mem_mib).saturating_mul(1024),
        })
    }

    /// The part of its CPU time that it used.
    pub fn cpu_percent(&self) -> f64 {
        percent(self.used_cpu_s, self.had_cpu_s)
    }

    /// The part of its memory that it used.
    pub fn memory_percent(&self) -> f64 {
        percent(self.used_kib, self.had_kib)
    }
}

/// A part of a whole; nothing of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => 100.0 * part as f64 / whole as f64,
    }
}

/// `01:02:03`, `1-02:03:04`.
pub fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let rest = format!("{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    match days {
        0 => rest,
        _ => format!("{days}-{rest}"),
    }
}

/// `1.50 GB`, in powers of 1,024.
pub fn memory(kib: u64) -> String {
    let mut amount = kib as f64;
    for unit in ["KB", "MB", "GB", "TB"] {
        if amount < 1024.0 {
            return format!("{amount:.2} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.2} PB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_unit_that_fits() {
        assert_eq!(memory(0), "0.00 KB");
        assert_eq!(memory(1536), "1.50 MB");
        assert_eq!(memory(5 << 40), "5.00 PB");
        assert_eq!(duration(93_784), "1-02:03:04");
        assert!(percent(1, 0).abs() < f64::EPSILON);
    }
}
