//! Resource use of tasks: sums and extremes over a step.

use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// Resources used by the tasks of a step, from wait4(2) and sampling.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct ResourceUsage {
    /// User time over all tasks, microseconds.
    #[n(0)]
    pub user_us: u64,
    /// System time over all tasks, microseconds.
    #[n(1)]
    pub system_us: u64,
    /// Largest resident set of one task, KiB.
    #[n(2)]
    pub max_rss_kib: u64,
    /// Sum over tasks of the largest resident set, KiB, for averages.
    #[n(3)]
    pub total_rss_kib: u64,
    /// Node of the task with the largest resident set.
    #[n(4)]
    pub max_rss_node: String,
    /// Its task number.
    #[n(5)]
    pub max_rss_task: u32,
    /// Major page faults over all tasks.
    #[n(6)]
    pub pages: u64,
    /// Bytes read, when known.
    #[n(7)]
    pub disk_read_bytes: u64,
    /// Bytes written, when known.
    #[n(8)]
    pub disk_write_bytes: u64,
    /// Number of tasks measured.
    #[n(9)]
    pub tasks: u32,
    /// Smallest and total CPU time are derived from these: CPU of the least busy task, microseconds.
    #[n(10)]
    pub min_cpu_us: u64,
    /// Which tasks used most, or least, of what.
    #[n(11)]
    #[cbor(default)]
    pub peaks: Option<Box<Peaks>>,
}

/// The use of one task, and its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct Peak {
    /// Amount of the peak.
    #[n(0)]
    pub amount: u64,
    /// Where it ran.
    #[n(1)]
    pub node: String,
    /// Its number.
    #[n(2)]
    pub task: u32,
}

impl Peak {
    /// The greater of two.
    fn raise(&mut self, other: &Peak) {
        if other.amount > self.amount {
            self.clone_from(other);
        }
    }
}

/// The extremes of a step's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct Peaks {
    /// Largest virtual memory, KiB; 0 where it was not looked at.
    #[n(0)]
    pub vsize_kib: Peak,
    /// Sum over tasks of the largest virtual memory, KiB.
    #[n(1)]
    pub total_vsize_kib: u64,
    /// Most major page faults.
    #[n(2)]
    pub pages: Peak,
    /// Most bytes read.
    #[n(3)]
    pub read_bytes: Peak,
    /// Most bytes written.
    #[n(4)]
    pub write_bytes: Peak,
    /// Least CPU time, microseconds.
    #[n(5)]
    pub min_cpu_us: Peak,
}

impl Peaks {
    /// Raises known values to those of samples: the greater of each.
    fn raise(&mut self, sampled: &Peaks) {
        self.vsize_kib.raise(&sampled.vsize_kib);
        self.total_vsize_kib = self.total_vsize_kib.max(sampled.total_vsize_kib);
        self.pages.raise(&sampled.pages);
        self.read_bytes.raise(&sampled.read_bytes);
        self.write_bytes.raise(&sampled.write_bytes);
    }
}

impl ResourceUsage {
    /// Takes over what samples of the same tasks saw beyond what the kernel reported when they ended: memory of several
    /// processes at a time, virtual memory, bytes that went through caches. CPU time stays the kernel's.
    pub fn raise(&mut self, sampled: &ResourceUsage) {
        if sampled.max_rss_kib > self.max_rss_kib {
            self.max_rss_kib = sampled.max_rss_kib;
            self.max_rss_node.clone_from(&sampled.max_rss_node);
            self.max_rss_task = sampled.max_rss_task;
        }
        self.total_rss_kib = self.total_rss_kib.max(sampled.total_rss_kib);
        self.pages = self.pages.max(sampled.pages);
        self.disk_read_bytes = self.disk_read_bytes.max(sampled.disk_read_bytes);
        self.disk_write_bytes = self.disk_write_bytes.max(sampled.disk_write_bytes);
        match (&mut self.peaks, &sampled.peaks) {
            (Some(peaks), Some(sampled)) => peaks.raise(sampled),
            (peaks @ None, sampled) => peaks.clone_from(sampled),
            (Some(_), None) => {}
        }
    }

    /// Use of one task, from totals that are its own; `vsize_kib` is 0 where it is not known.
    pub fn of_task(self, task: u32, vsize_kib: u64) -> ResourceUsage {
        let peak = |amount| Peak {
            amount,
            node: String::new(),
            task,
        };
        let cpu_us = self.user_us + self.system_us;
        ResourceUsage {
            total_rss_kib: self.max_rss_kib,
            max_rss_task: task,
            tasks: 1,
            min_cpu_us: cpu_us,
            peaks: Some(Box::new(Peaks {
                vsize_kib: peak(vsize_kib),
                total_vsize_kib: vsize_kib,
                pages: peak(self.pages),
                read_bytes: peak(self.disk_read_bytes),
                write_bytes: peak(self.disk_write_bytes),
                min_cpu_us: peak(cpu_us),
            })),
            ..self
        }
    }

    /// Says that all of it was used on one node.
    pub fn set_node(&mut self, node: &str) {
        node.clone_into(&mut self.max_rss_node);
        let Some(peaks) = &mut self.peaks else {
            return;
        };
        for peak in [
            &mut peaks.vsize_kib,
            &mut peaks.pages,
            &mut peaks.read_bytes,
            &mut peaks.write_bytes,
            &mut peaks.min_cpu_us,
        ] {
            node.clone_into(&mut peak.node);
        }
    }

    /// Adds what other tasks used. Agents say how much, and may say anything: sums stop at the greatest number.
    pub fn add(&mut self, more: &ResourceUsage) {
        if let Some(theirs) = &more.peaks {
            match &mut self.peaks {
                None => self.peaks = Some(theirs.clone()),
                Some(peaks) => {
                    peaks.vsize_kib.raise(&theirs.vsize_kib);
                    peaks.total_vsize_kib =
                        peaks.total_vsize_kib.saturating_add(theirs.total_vsize_kib);
                    peaks.pages.raise(&theirs.pages);
                    peaks.read_bytes.raise(&theirs.read_bytes);
                    peaks.write_bytes.raise(&theirs.write_bytes);
                    if theirs.min_cpu_us.amount < peaks.min_cpu_us.amount {
                        peaks.min_cpu_us.clone_from(&theirs.min_cpu_us);
                    }
                }
            }
        }
        self.min_cpu_us = match (self.tasks, more.tasks) {
            (0, _) => more.min_cpu_us,
            (_, 0) => self.min_cpu_us,
            _ => self.min_cpu_us.min(more.min_cpu_us),
        };
        for (sum, more) in [
            (&mut self.user_us, more.user_us),
            (&mut self.system_us, more.system_us),
            (&mut self.total_rss_kib, more.total_rss_kib),
            (&mut self.pages, more.pages),
            (&mut self.disk_read_bytes, more.disk_read_bytes),
            (&mut self.disk_write_bytes, more.disk_write_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.tasks = self.tasks.saturating_add(more.tasks);
        if more.max_rss_kib > self.max_rss_kib {
            self.max_rss_kib = more.max_rss_kib;
            self.max_rss_node.clone_from(&more.max_rss_node);
            self.max_rss_task = more.max_rss_task;
        }
    }
}

/// Seconds between samples of tasks that a text such as `30` or `task=30,energy=0` asks for (`JobAcctGatherFrequency`,
/// `--acctg-freq`); `None` if it says nothing of tasks.
pub fn task_interval_s(text: &str) -> Option<u32> {
    let words = text.split(',').map(str::trim);
    words
        .filter_map(|word| match word.split_once('=') {
            Some((kind, seconds)) if kind.trim().eq_ignore_ascii_case("task") => {
                Some(seconds.trim())
            }
            Some(_) => None,
            None => Some(word),
        })
        .find_map(|seconds| seconds.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value reported by an agent ended root's qstat.
    #[test]
    fn sums_stop_at_the_greatest_number() {
        let all = ResourceUsage {
            user_us: u64::MAX,
            system_us: u64::MAX,
            total_rss_kib: u64::MAX,
            pages: u64::MAX,
            disk_read_bytes: u64::MAX,
            disk_write_bytes: u64::MAX,
            tasks: u32::MAX,
            peaks: Some(Box::new(Peaks {
                total_vsize_kib: u64::MAX,
                ..Peaks::default()
            })),
            ..ResourceUsage::default()
        };
        let mut sum = all.clone();
        sum.add(&all);
        assert_eq!(sum, all);
    }

    #[test]
    fn intervals() {
        for (text, seconds) in [
            ("30", Some(30)),
            ("task=5", Some(5)),
            ("energy=10,Task=0", Some(0)),
            ("energy=10", None),
            ("", None),
            ("task=soon", None),
        ] {
            assert_eq!(task_interval_s(text), seconds, "{text}");
        }
    }

    #[test]
    fn samples_raise_what_the_kernel_reported() {
        let mut end = ResourceUsage {
            user_us: 900,
            max_rss_kib: 50,
            disk_read_bytes: 512,
            ..ResourceUsage::default()
        }
        .of_task(0, 0);
        end.set_node("a");
        let mut sampled = ResourceUsage {
            user_us: 400,
            max_rss_kib: 80,
            disk_read_bytes: 100,
            disk_write_bytes: 7,
            ..ResourceUsage::default()
        }
        .of_task(3, 1000);
        sampled.set_node("b");
        end.raise(&sampled);
        assert_eq!((end.user_us, end.tasks, end.min_cpu_us), (900, 1, 900));
        assert_eq!((end.max_rss_kib, end.total_rss_kib), (80, 80));
        assert_eq!((end.max_rss_node.as_str(), end.max_rss_task), ("b", 3));
        assert_eq!((end.disk_read_bytes, end.disk_write_bytes), (512, 7));
        let peaks = end.peaks.expect("both have them");
        assert_eq!(
            (peaks.vsize_kib.amount, peaks.total_vsize_kib),
            (1000, 1000)
        );
        assert_eq!(
            (peaks.read_bytes.amount, peaks.read_bytes.node.as_str()),
            (512, "a")
        );
    }

    #[test]
    fn usage_of_tasks_adds_up() {
        let task = |number: u32, node: &str, cpu_us, rss| {
            let mut usage = ResourceUsage {
                user_us: cpu_us,
                max_rss_kib: rss,
                pages: u64::from(number),
                ..ResourceUsage::default()
            }
            .of_task(number, 10 * rss);
            usage.set_node(node);
            usage
        };
        let mut sum = ResourceUsage::default();
        sum.add(&task(0, "a", 50, 7));
        sum.add(&task(1, "b", 20, 9));
        sum.add(&task(2, "c", 30, 8));
        assert_eq!((sum.tasks, sum.user_us, sum.min_cpu_us), (3, 100, 20));
        assert_eq!((sum.max_rss_kib, sum.total_rss_kib), (9, 24));
        assert_eq!((sum.max_rss_node.as_str(), sum.max_rss_task), ("b", 1));
        let peaks = sum.peaks.expect("all tasks have them");
        assert_eq!((peaks.vsize_kib.amount, peaks.total_vsize_kib), (90, 240));
        assert_eq!((peaks.pages.task, peaks.pages.node.as_str()), (2, "c"));
        assert_eq!((peaks.min_cpu_us.amount, peaks.min_cpu_us.task), (20, 1));
    }
}
