//! Progress of the computation of expected starts.

use minicbor::{Decode, Encode};
use muster_model::time::Timestamp;

/// Progress of the computation of expected starts, as of an answer that has some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StartsProgress {
    /// When their computation began; none if there are no results yet.
    #[n(0)]
    pub at: Option<Timestamp>,
    /// Number of jobs whose start was simulated.
    #[n(1)]
    pub simulated: u32,
    /// Number of jobs whose start is an estimate, because the simulation has not come to them.
    #[n(2)]
    pub estimated: u32,
    /// The controller is at work on a later result.
    #[n(3)]
    pub in_progress: bool,
}
