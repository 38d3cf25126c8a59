//! From the loaded files to what the order of jobs depends on.

use crate::model::Config;
use muster_core::order_config::OrderConfig;

impl Config {
    /// Settings of priority, preemption and reservations.
    pub(crate) fn order_config(&self) -> OrderConfig {
        OrderConfig {
            resv_over_run_s: self.limits.resv_over_run_min.map_or(u32::MAX, |minutes| {
                u32::try_from(minutes.saturating_mul(60)).unwrap_or(u32::MAX)
            }),
        }
    }
}
