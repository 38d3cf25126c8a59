//! Backfill: CPUs that nodes have gained, the time at which the first job in line will fit, and the
//! reservations made for waiting jobs.

pub(crate) mod gains;
pub(crate) mod outlook;
pub(crate) mod together;
