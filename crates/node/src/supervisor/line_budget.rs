//! Limits the amount of another process's output that is logged: a burst of bytes, and a number of
//! bytes per second. Further lines are omitted and counted. Without I/O; times are arguments.

use std::time::{Duration, Instant};

/// Maximum burst: more than an agent logs in a day at the usual level.
pub(super) const BYTES_MAX: u64 = 8 << 20;
/// Bytes restored per second: 1.3 GiB a day.
const BYTES_A_SECOND: u64 = 16 << 10;
/// Bytes that must be available before logging resumes, so that one line reports many omitted ones.
const RESUMED_AT: u64 = 1 << 20;
const NANOS_A_SECOND: u128 = 1_000_000_000;

/// Log budget of a process.
#[derive(Debug)]
pub(super) struct LineBudget {
    bytes: u64,
    /// Time up to which bytes have been restored.
    filled: Instant,
    /// Omitted lines that were not reported yet.
    left_out: u64,
}

impl LineBudget {
    /// A full budget.
    pub(super) fn new(now: Instant) -> LineBudget {
        LineBudget {
            bytes: BYTES_MAX,
            filled: now,
            left_out: 0,
        }
    }

    /// Whether a line of this length may be logged. After an omitted line none may be logged until
    /// the omission is reported.
    pub(super) fn admit(&mut self, bytes: usize, now: Instant) -> bool {
        self.fill(now);
        let left = self.bytes.checked_sub(bytes as u64);
        match left.filter(|_| self.left_out == 0) {
            Some(left) => {
                self.bytes = left;
                true
            }
            None => {
                self.left_out = self.left_out.saturating_add(1);
                false
            }
        }
    }

    /// The number of omitted lines, if it is time to report it.
    pub(super) fn take_left_out(&mut self, now: Instant) -> Option<u64> {
        (self.due_in(now)?.is_zero()).then(|| std::mem::take(&mut self.left_out))
    }

    /// As above, regardless of the time, because no more lines follow.
    pub(super) fn finish(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.left_out)).filter(|lines| *lines > 0)
    }

    /// Time until the report, if there is something to report.
    pub(super) fn due_in(&mut self, now: Instant) -> Option<Duration> {
        if self.left_out == 0 {
            return None;
        }
        self.fill(now);
        let missing = RESUMED_AT.saturating_sub(self.bytes);
        let at = self.filled + time_of(missing);
        Some(match missing {
            0 => Duration::ZERO,
            _ => at.saturating_duration_since(now),
        })
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled).as_nanos();
        let more = elapsed * u128::from(BYTES_A_SECOND) / NANOS_A_SECOND;
        let missing = BYTES_MAX - self.bytes;
        if more >= u128::from(missing) {
            (self.bytes, self.filled) = (BYTES_MAX, self.filled.max(now));
            return;
        }
        // The difference does not exceed the missing bytes, so the sum stays within the maximum.
        let more = u64::try_from(more).unwrap_or(missing);
        self.bytes += more;
        self.filled += time_of(more);
    }
}

/// The time in which this number of bytes is restored, at most the maximum.
fn time_of(bytes: u64) -> Duration {
    let nanos = (u128::from(bytes) * NANOS_A_SECOND).div_ceil(u128::from(BYTES_A_SECOND));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: usize = 100;

    /// Logs without a pause; returns the numbers of admitted lines and of reports.
    fn flood(budget: &mut LineBudget, start: Instant, time: Duration) -> (u64, u64) {
        let (mut admitted, mut reports) = (0, 0);
        let mut passed = Duration::ZERO;
        while passed < time {
            let now = start + passed;
            reports += u64::from(budget.take_left_out(now).is_some());
            admitted += u64::from(budget.admit(LINE, now));
            // Far more bytes than are restored meanwhile.
            passed += Duration::from_millis(2);
        }
        (admitted, reports)
    }

    #[test]
    fn a_flood_is_bounded_and_reported_now_and_then() {
        let now = Instant::now();
        let mut budget = LineBudget::new(now);
        let hour = Duration::from_secs(3600);
        let (admitted, reports) = flood(&mut budget, now, hour);
        let bytes = admitted * LINE as u64;
        let most = BYTES_MAX + 3600 * BYTES_A_SECOND;
        assert!(bytes <= most, "{bytes} of {most}");
        assert!(bytes > most - 3 * RESUMED_AT, "{bytes} of {most}");
        assert!((10..=70).contains(&reports), "{reports} lines an hour");
    }

    #[test]
    fn what_was_left_out_is_counted_and_reported_once_before_more_comes() {
        let now = Instant::now();
        let mut budget = LineBudget::new(now);
        assert_eq!((budget.due_in(now), budget.finish()), (None, None));
        while budget.admit(LINE, now) {}
        assert!(!budget.admit(1, now) && !budget.admit(LINE, now));
        assert_eq!(budget.take_left_out(now), None);
        let due = budget.due_in(now).unwrap();
        assert!(due > Duration::from_secs(60) && due <= Duration::from_secs(64));
        let early = now + due - Duration::from_millis(1);
        assert!(!budget.admit(1, early) && budget.take_left_out(early).is_none());
        let later = now + due + Duration::from_millis(1);
        assert!(!budget.admit(1, later), "that is not reported");
        assert_eq!(budget.due_in(later), Some(Duration::ZERO));
        assert_eq!(budget.take_left_out(later), Some(5));
        assert!(budget.admit(LINE, later));
        assert_eq!((budget.due_in(later), budget.finish()), (None, None));
        while budget.admit(LINE, later) {}
        assert_eq!((budget.finish(), budget.finish()), (Some(1), None));
    }

    #[test]
    fn all_comes_back_and_no_more_whatever_the_clock_does() {
        let now = Instant::now() + Duration::from_secs(10);
        let mut budget = LineBudget::new(now);
        while budget.admit(LINE, now) {}
        budget.finish();
        assert!(!budget.admit(LINE, now - Duration::from_secs(5)));
        budget.finish();
        let full = now + Duration::from_secs(BYTES_MAX / BYTES_A_SECOND);
        let max = usize::try_from(BYTES_MAX).unwrap();
        for at in [full, full + Duration::from_secs(1 << 40)] {
            assert!(budget.admit(max, at), "{at:?}");
            assert!(!budget.admit(LINE, at));
            budget.finish();
        }
        // Frequent checks lose no significant amount.
        let mut budget = LineBudget::new(now);
        budget.admit(max, now);
        for step in 0..=100_000 {
            budget.fill(now + Duration::from_micros(10 * step));
        }
        let lost = BYTES_A_SECOND - budget.bytes;
        assert!(lost <= 10, "{lost}");
    }
}
