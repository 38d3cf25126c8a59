//! Points and spans of time. The core never reads a clock: times come in as arguments.

use minicbor::{Decode, Encode};

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] pub i64);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum TimeLimit {
    /// So many minutes.
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
