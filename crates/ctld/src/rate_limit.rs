//! `SlurmctldParameters=rl_enable` and its companions (slurm.conf(5)): each user has a bucket of tokens, a request takes one,
//! and tokens come back with time. Without `rl_enable` every request passes. What the parameters may be, `conf` checks.

use muster_conf::RateLimits;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The buckets of all users.
#[derive(Default)]
pub(crate) struct RateLimit {
    parameters: RefCell<RateLimits>,
    buckets: RefCell<HashMap<u32, Bucket>>,
}

struct Bucket {
    tokens: u64,
    /// When tokens came last.
    filled: Instant,
}

impl RateLimit {
    /// With these parameters.
    pub(crate) fn new(parameters: RateLimits) -> RateLimit {
        RateLimit {
            parameters: RefCell::new(parameters),
            buckets: RefCell::default(),
        }
    }

    /// The configuration was read again.
    pub(crate) fn configure(&self, parameters: RateLimits) {
        *self.parameters.borrow_mut() = parameters;
        self.buckets.borrow_mut().clear();
    }

    /// Takes a token of the user's, if there is one.
    pub(crate) fn take(&self, uid: u32, now: Instant) -> bool {
        let parameters = self.parameters.borrow();
        if !parameters.enabled {
            return true;
        }
        let mut buckets = self.buckets.borrow_mut();
        if buckets.len() as u64 >= parameters.table_size && !buckets.contains_key(&uid) {
            // The user that has not asked for longest has a full bucket by now, or is nearest to one.
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.filled);
            if let Some(uid) = oldest.map(|(uid, _)| *uid) {
                buckets.remove(&uid);
            }
        }
        let bucket = buckets.entry(uid).or_insert(Bucket {
            tokens: parameters.bucket_size,
            filled: now,
        });
        let elapsed = now.saturating_duration_since(bucket.filled);
        let periods = elapsed.as_secs() / parameters.refill_period_s.max(1);
        if periods > 0 {
            let more = periods.saturating_mul(parameters.refill_rate);
            bucket.tokens = bucket
                .tokens
                .saturating_add(more)
                .min(parameters.bucket_size);
            let whole = u32::try_from(periods).unwrap_or(u32::MAX);
            let passed = Duration::from_secs(parameters.refill_period_s).saturating_mul(whole);
            bucket.filled += passed.min(elapsed);
        }
        match bucket.tokens.checked_sub(1) {
            Some(left) => {
                bucket.tokens = left;
                true
            }
            None => false,
        }
    }

    /// When there may be a token again.
    pub(crate) fn period(&self) -> Duration {
        Duration::from_secs(self.parameters.borrow().refill_period_s)
    }

    /// Interval at which a user is named in the log.
    pub(crate) fn log_every(&self) -> Duration {
        Duration::from_secs(self.parameters.borrow().log_freq_s)
    }

    /// Users that are remembered.
    pub(crate) fn table_size(&self) -> usize {
        usize::try_from(self.parameters.borrow().table_size).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled() -> RateLimits {
        RateLimits {
            enabled: true,
            ..RateLimits::default()
        }
    }

    #[test]
    fn a_user_spends_his_own_tokens_and_gets_them_back_with_time() {
        let limit = RateLimit::new(RateLimits {
            bucket_size: 3,
            refill_rate: 2,
            refill_period_s: 10,
            ..enabled()
        });
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let passed = |uid, s| (0..10).filter(|_| limit.take(uid, at(s))).count();
        assert_eq!((passed(1, 0), passed(2, 0)), (3, 3));
        assert_eq!((passed(1, 9), passed(1, 10), passed(1, 19)), (0, 2, 0));
        assert_eq!(passed(1, 1000), 3, "no more than a bucket");
    }

    #[test]
    fn without_rl_enable_everything_passes() {
        let limit = RateLimit::new(RateLimits {
            bucket_size: 1,
            ..RateLimits::default()
        });
        assert!((0..1000).all(|_| limit.take(1, Instant::now())));
    }

    #[test]
    fn the_table_is_bounded() {
        let limit = RateLimit::new(RateLimits {
            table_size: 10,
            ..enabled()
        });
        let start = Instant::now();
        for uid in 0..1000 {
            limit.take(uid, start + Duration::from_millis(u64::from(uid)));
        }
        assert_eq!(limit.buckets.borrow().len(), 10);
    }
}
