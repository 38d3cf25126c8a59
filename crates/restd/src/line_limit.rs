//! Limit of lines that strangers write to the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of requests that are nobody's, in a second.
const STRANGERS_LINES: u32 = 10;

/// Limit of lines that requests write to the log.
#[derive(Debug, Default)]
pub(crate) struct LineLimit(Mutex<Option<(Instant, u32)>>);

impl LineLimit {
    /// Whether a request may write its line: of those that are nobody's, few in a second.
    pub(crate) fn may_write(&self, is_known: bool) -> bool {
        if is_known {
            return true;
        }
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let (since, count) = match *counted {
            Some((since, count)) if now.duration_since(since) < second => (since, count + 1),
            _ => (now, 0),
        };
        *counted = Some((since, count));
        count < STRANGERS_LINES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_strangers_are_few() {
        let limit = LineLimit::default();
        let written = (0..1000).filter(|_| limit.may_write(false)).count();
        // It may have taken more than a second.
        assert!((10..100).contains(&written), "{written}");
        assert!((0..1000).all(|_| limit.may_write(true)));
    }
}
