//! Counts of requests, as sdiag prints them: by kind and by user.

use minicbor::{Decode, Encode};

/// Requests of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct KindRequests {
    /// Name of the kind: `REQUEST_JOB_INFO`.
    #[n(0)]
    pub kind: String,
    /// Number of requests.
    #[n(1)]
    pub count: u64,
    /// Time of all of them, microseconds.
    #[n(2)]
    pub total_us: u64,
}

impl KindRequests {
    /// Average time of one, microseconds.
    pub fn average_us(&self) -> u64 {
        self.total_us / self.count.max(1)
    }
}

/// Requests of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct UserRequests {
    /// The user.
    #[n(0)]
    pub uid: u32,
    /// Number of requests.
    #[n(1)]
    pub count: u64,
    /// Time of all of them, microseconds.
    #[n(2)]
    pub total_us: u64,
}

impl UserRequests {
    /// Average time of one, microseconds.
    pub fn average_us(&self) -> u64 {
        self.total_us / self.count.max(1)
    }
}

/// A user who was refused or made to wait for asking too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ThrottledUser {
    /// The user.
    #[n(0)]
    pub uid: u32,
    /// Number of times.
    #[n(1)]
    pub count: u64,
}
