//! The time at which an event happens, as the executor reads it: machines read no clock.

use muster_model::time::Timestamp;

/// Two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, for records and reports.
    pub wall: Timestamp,
    /// Milliseconds of a clock that never goes back, for waits.
    pub mono_ms: u64,
}
