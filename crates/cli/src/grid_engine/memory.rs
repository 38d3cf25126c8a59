//! Memory of jobs as Grid Engine counts it: virtual, of all processes together, and summed up over CPU time. What there is of steps are
//! the greatest amounts of their tasks, so it is never less than what Grid Engine would have found.

use muster_model::job::ResourceUsage;

/// KiB of all tasks of a step; of resident memory where virtual memory was not measured.
pub(super) fn total_kib(usage: &ResourceUsage) -> u64 {
    let peaks = usage.peaks.as_ref();
    let looked_at = peaks.filter(|peaks| peaks.vsize_kib.amount > 0);
    match looked_at {
        Some(peaks) => peaks.total_vsize_kib.max(peaks.vsize_kib.amount),
        None => usage.total_rss_kib.max(usage.max_rss_kib),
    }
}

/// GiB times seconds of CPU, each task with as much as tasks have on average.
#[allow(clippy::cast_precision_loss)]
pub(super) fn gib_seconds(usage: &ResourceUsage) -> f64 {
    let gib = total_kib(usage) as f64 / f64::from(1 << 20);
    let cpu_s = usage.user_us.saturating_add(usage.system_us) as f64 / 1e6;
    gib / f64::from(usage.tasks.max(1)) * cpu_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::usage::{Peak, Peaks};

    #[test]
    fn virtual_memory_is_counted_for_cpu_time() {
        let mut usage = ResourceUsage {
            user_us: 5_000_000,
            system_us: 1_000_000,
            max_rss_kib: 3 << 20,
            total_rss_kib: 4 << 20,
            tasks: 2,
            ..ResourceUsage::default()
        };
        assert_eq!((total_kib(&usage), gib_seconds(&usage)), (4 << 20, 12.0));
        usage.peaks = Some(Box::new(Peaks {
            vsize_kib: Peak {
                amount: 6 << 20,
                ..Peak::default()
            },
            total_vsize_kib: 8 << 20,
            ..Peaks::default()
        }));
        assert_eq!((total_kib(&usage), gib_seconds(&usage)), (8 << 20, 24.0));
        let most = ResourceUsage {
            max_rss_kib: u64::MAX,
            user_us: u64::MAX,
            system_us: 1,
            ..ResourceUsage::default()
        };
        assert!(total_kib(&most) == u64::MAX && gib_seconds(&most).is_finite());
    }
}
