//! `SlurmctldParameters=rl_enable` and its companions (slurm.conf(5)): each user has a bucket of tokens, a request takes one,
//! and tokens come back with time. Without `rl_enable` every request passes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateParameters {
    enabled: bool,
    bucket_size: u64,
    refill_rate: u64,
    period: Duration,
    table_size: usize,
    log_every: Duration,
}

impl Default for RateParameters {
    fn default() -> RateParameters {
        RateParameters {
            enabled: false,
            bucket_size: 30,
            refill_rate: 2,
            period: Duration::from_secs(1),
            table_size: 8192,
            log_every: Duration::from_secs(0),
        }
    }
}

impl RateParameters {
    /// Reads `SlurmctldParameters`.
    ///
    /// # Errors
    /// A value that is no number, or zero where that makes no sense.
    pub(crate) fn read(text: &str) -> Result<RateParameters, String> {
        let mut parameters = RateParameters::default();
        for word in text.split(',').map(str::trim) {
            let lower = word.to_ascii_lowercase();
            if lower == "rl_enable" {
                parameters.enabled = true;
            }
            let Some((name, value)) = lower.split_once('=').filter(|(n, _)| n.starts_with("rl_"))
            else {
                continue;
            };
            let number: u64 = value
                .parse()
                .map_err(|_| format!("SlurmctldParameters: {word}: this is no number"))?;
            if number == 0 && name != "rl_log_freq" {
                return Err(format!(
                    "SlurmctldParameters: {word}: it must be at least 1"
                ));
            }
            match name {
                "rl_bucket_size" => parameters.bucket_size = number,
                "rl_refill_rate" => parameters.refill_rate = number,
                "rl_refill_period" => parameters.period = Duration::from_secs(number),
                "rl_table_size" => {
                    parameters.table_size = usize::try_from(number).unwrap_or(usize::MAX);
                }
                "rl_log_freq" => parameters.log_every = Duration::from_secs(number),
                _ => {
                    return Err(format!(
                        "SlurmctldParameters: {word}: there is no such parameter"
                    ));
                }
            }
        }
        Ok(parameters)
    }
}

/// The buckets of all users.
#[derive(Default)]
pub(crate) struct RateLimit {
    parameters: RefCell<RateParameters>,
    buckets: RefCell<HashMap<u32, Bucket>>,
}

struct Bucket {
    tokens: u64,
    /// When tokens came last.
    filled: Instant,
}

impl RateLimit {
    /// With these parameters.
    pub(crate) fn new(parameters: RateParameters) -> RateLimit {
        RateLimit {
            parameters: RefCell::new(parameters),
            buckets: RefCell::default(),
        }
    }

    /// The configuration was read again.
    pub(crate) fn configure(&self, parameters: RateParameters) {
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
        if buckets.len() >= parameters.table_size && !buckets.contains_key(&uid) {
            // Who has not asked for longest has a full bucket by now, or is nearest to one.
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
        let periods = elapsed.as_secs() / parameters.period.as_secs().max(1);
        if periods > 0 {
            let more = periods.saturating_mul(parameters.refill_rate);
            bucket.tokens = bucket
                .tokens
                .saturating_add(more)
                .min(parameters.bucket_size);
            let whole = u32::try_from(periods).unwrap_or(u32::MAX);
            bucket.filled += parameters.period.saturating_mul(whole).min(elapsed);
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
        self.parameters.borrow().period
    }

    /// How often a user is named in the log.
    pub(crate) fn log_every(&self) -> Duration {
        self.parameters.borrow().log_every
    }

    /// Users that are remembered.
    pub(crate) fn table_size(&self) -> usize {
        self.parameters.borrow().table_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> RateLimit {
        RateLimit::new(RateParameters::read(text).unwrap())
    }

    #[test]
    fn a_user_spends_his_own_tokens_and_gets_them_back_with_time() {
        let limit = limit(
            "enable_configless, rl_enable,rl_bucket_size=3,rl_refill_rate=2,rl_refill_period=10",
        );
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let passed = |uid, s| (0..10).filter(|_| limit.take(uid, at(s))).count();
        assert_eq!((passed(1, 0), passed(2, 0)), (3, 3));
        assert_eq!((passed(1, 9), passed(1, 10), passed(1, 19)), (0, 2, 0));
        assert_eq!(passed(1, 1000), 3, "no more than a bucket");
    }

    #[test]
    fn without_rl_enable_everything_passes() {
        let limit = limit("rl_bucket_size=1");
        assert!((0..1000).all(|_| limit.take(1, Instant::now())));
    }

    #[test]
    fn the_table_is_bounded() {
        let limit = limit("rl_enable,rl_table_size=10");
        let start = Instant::now();
        for uid in 0..1000 {
            limit.take(uid, start + Duration::from_millis(u64::from(uid)));
        }
        assert_eq!(limit.buckets.borrow().len(), 10);
    }

    #[test]
    fn bad_values_are_named() {
        for bad in [
            "rl_enable,rl_bucket_size=x",
            "rl_refill_period=0",
            "rl_nosuch=1",
        ] {
            assert!(RateParameters::read(bad).is_err(), "{bad}");
        }
    }
}
