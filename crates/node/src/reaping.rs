//! Collects children that have ended, a bounded number at a time: orphans of a user's that end as fast as they are collected
//! must not keep a daemon from everything else.

use crate::sys::Reap;

/// Number of processes collected in one turn.
const BURST: usize = 256;

/// Why [`each_ended`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReapResult {
    /// The limit of one call is reached: more children may have ended, and no further signal announces them.
    Burst,
    /// Children run.
    Running,
    /// There are no children.
    Childless,
}

/// Takes what `next` gives, up to a bound.
pub(crate) fn each_ended<T>(
    mut next: impl FnMut() -> Reap<T>,
    mut take: impl FnMut(T),
) -> ReapResult {
    for _ in 0..BURST {
        match next() {
            Reap::Ended(ended) => take(ended),
            Reap::Running => return ReapResult::Running,
            Reap::Childless => return ReapResult::Childless,
        }
    }
    ReapResult::Burst
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> Reap<i32> {
        Reap::Ended(1)
    }

    #[test]
    fn children_that_end_without_end_are_left_for_the_next_time() {
        // Bounded, so that this fails instead of hanging where there is no limit.
        let mut orphans = 100_000;
        let endless = || {
            orphans -= 1;
            if orphans == 0 { Reap::Running } else { ended() }
        };
        let mut taken = 0;
        assert_eq!(each_ended(endless, |_| taken += 1), ReapResult::Burst);
        assert_eq!(taken, BURST);
    }

    #[test]
    fn what_has_ended_is_taken_before_the_rest_is_reported() {
        let mut found = [Reap::Running, ended(), ended()].into_iter().rev();
        let mut taken = 0;
        let after = each_ended(|| found.next().unwrap(), |_| taken += 1);
        assert_eq!((after, taken), (ReapResult::Running, 2));
        assert_eq!(
            each_ended(|| Reap::<i32>::Childless, |_| ()),
            ReapResult::Childless
        );
    }
}
