//! Points and spans of time. The core never reads a clock: times come in as arguments.

use crate::limits::TIME_MS_MAX;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// Milliseconds since 1970-01-01 UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate,
)]
#[cbor(transparent)]
pub struct Timestamp(
    #[n(0)]
    #[valid(min = -TIME_MS_MAX, max = TIME_MS_MAX)]
    pub i64,
);

impl Timestamp {
    /// Whole seconds since the epoch, as Slurm prints and stores times.
    pub fn unix_s(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// From whole seconds since the epoch.
    pub fn from_unix_s(s: i64) -> Timestamp {
        Timestamp(s.saturating_mul(1000))
    }

    /// This time plus a number of seconds.
    pub fn plus_s(self, s: u64) -> Timestamp {
        self.plus_ms(s.saturating_mul(1000))
    }

    /// This time plus a number of milliseconds.
    pub fn plus_ms(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Milliseconds from `earlier` to here; 0 if it is later.
    pub fn since_ms(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// A limit on run time, in minutes as Slurm keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
pub enum TimeLimit {
    /// A number of minutes.
    #[n(0)]
    Minutes(#[n(0)] u32),
    /// `UNLIMITED`, `INFINITE`.
    #[n(1)]
    Unlimited,
}

impl TimeLimit {
    /// The limit in seconds, if there is one.
    pub fn seconds(self) -> Option<u64> {
        match self {
            TimeLimit::Minutes(m) => Some(u64::from(m) * 60),
            TimeLimit::Unlimited => None,
        }
    }
}

impl std::str::FromStr for TimeLimit {
    type Err = TimeLimitError;

    /// Slurm's forms: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
    /// `days-hours:minutes:seconds`, `UNLIMITED`, `INFINITE`; seconds are rounded up to minutes.
    fn from_str(text: &str) -> Result<TimeLimit, TimeLimitError> {
        let word = text.trim();
        if ["UNLIMITED", "INFINITE", "-1"]
            .iter()
            .any(|w| word.eq_ignore_ascii_case(w))
        {
            return Ok(TimeLimit::Unlimited);
        }
        let wrong = || TimeLimitError(text.to_owned());
        let (days, rest) = match word.split_once('-') {
            Some((days, rest)) => (Some(number(days).ok_or_else(wrong)?), rest),
            None => (None, word),
        };
        let parts: Vec<u64> = rest
            .split(':')
            .map(number)
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        let seconds = match (days, parts.as_slice()) {
            (Some(d), [h]) => d * 86_400 + h * 3600,
            (Some(d), [h, m]) => d * 86_400 + h * 3600 + m * 60,
            (Some(d), [h, m, s]) => d * 86_400 + h * 3600 + m * 60 + s,
            (None, [m]) => m * 60,
            (None, [m, s]) => m * 60 + s,
            (None, [h, m, s]) => h * 3600 + m * 60 + s,
            _ => return Err(wrong()),
        };
        u32::try_from(seconds.div_ceil(60))
            .map(TimeLimit::Minutes)
            .map_err(|_| wrong())
    }
}

/// A text that is no time limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid time limit; write minutes, [days-]hours:minutes:seconds or UNLIMITED"
)]
pub struct TimeLimitError(String);

/// Digits only, small enough that the sums above cannot overflow.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 10 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}
