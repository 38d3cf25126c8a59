//! The part of the configuration that the order of jobs depends on: priorities, preemption, what a reservation's end
//! means for its jobs.

use minicbor::{Decode, Encode};

/// Settings of priority, preemption and reservations.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct OrderConfig {
    /// `ResvOverRun`, seconds that a job may run past the end of its reservation; `u32::MAX`: as long as it likes.
    #[n(0)]
    pub resv_over_run_s: u32,
}
