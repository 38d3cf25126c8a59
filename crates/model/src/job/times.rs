//! When something of a job is due, as far as its own record says.

use super::{Hold, Job};
use crate::time::Timestamp;

/// Seconds after its start at which a job gets a signal that was due before: a program that is to take it needs time to say so.
/// Slurm looks for such jobs every 30 seconds.
const LATE_WARNING_S: u64 = 15;

impl Job {
    /// When its time limit is reached if it goes on running, without `OverTimeLimit`.
    pub fn time_limit_end(&self) -> Option<Timestamp> {
        let (start, limit_s) = (self.start_time?, self.time_limit.seconds()?);
        Some(start.plus_s(limit_s).plus_ms(self.suspended_ms))
    }

    /// When the signal of `--signal` is due, if it is still to be sent.
    pub fn warning_time(&self) -> Option<Timestamp> {
        let signal = self.spec.warn_signal.filter(|_| !self.warned)?;
        let end = match (self.time_limit_end(), self.spec.deadline) {
            (Some(limit), Some(deadline)) => limit.min(deadline),
            (limit, deadline) => limit.or(deadline)?,
        };
        let due = Timestamp(end.0.saturating_sub(i64::from(signal.before_s) * 1000));
        match self.start_time {
            Some(start) if due <= start => Some(start.plus_s(LATE_WARNING_S).min(end)),
            _ => Some(due),
        }
    }

    /// The first time at which a start would be too late for the deadline. A job that is held may get another limit before its
    /// release: for it, that is the deadline itself, as for Slurm.
    pub fn too_late_at(&self) -> Option<Timestamp> {
        let deadline = self.spec.deadline?;
        if self.hold != Hold::None {
            return Some(deadline);
        }
        let need_s = self
            .spec
            .time_min
            .unwrap_or(self.time_limit)
            .seconds()
            .unwrap_or(0);
        let need_ms = i64::try_from(need_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        Some(Timestamp(
            deadline.0.saturating_sub(need_ms).saturating_add(1),
        ))
    }

    /// When its grace is over, if it was preempted and runs in its grace time.
    pub fn grace_end(&self) -> Option<Timestamp> {
        self.preempted.as_ref()?.end
    }
}
