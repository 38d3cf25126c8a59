//! Batching: how long a message may wait so that later ones can be sent with it. Each constant of this type is where its messages
//! wait, with its reason. Reads no clock.

use std::time::Duration;

/// For how long a message waits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDelay {
    ms: u32,
}

impl BatchDelay {
    /// A delay in milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u32) -> BatchDelay {
        BatchDelay { ms }
    }

    /// The delay in milliseconds, for machines whose time is a count of these.
    #[must_use]
    pub fn as_ms(self) -> u64 {
        u64::from(self.ms)
    }

    /// The delay for what waits on a real clock.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.ms as u64)
    }

    /// Until when something is kept that came at `since_ms`, in milliseconds.
    #[must_use]
    pub fn end_ms(self, since_ms: u64) -> u64 {
        since_ms.saturating_add(self.as_ms())
    }

    /// Whether less than the delay has passed from `since_ms` to `now_ms`.
    #[must_use]
    pub fn is_running(self, since_ms: u64, now_ms: u64) -> bool {
        now_ms.saturating_sub(since_ms) < self.as_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_ends_after_its_milliseconds() {
        let delay = BatchDelay::from_ms(10);
        assert_eq!(delay.end_ms(100), 110);
        assert!(delay.is_running(100, 109));
        assert!(!delay.is_running(100, 110));
        assert!(delay.is_running(100, 99), "a clock that went back");
        assert_eq!(delay.end_ms(u64::MAX), u64::MAX);
        assert_eq!(delay.as_duration(), Duration::from_millis(10));
    }
}
