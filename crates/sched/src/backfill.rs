//! Backfill: what nodes have gained, when the first job in line will fit, and which reservations
//! are kept.

pub(crate) mod gains;
pub(crate) mod outlook;
pub(crate) mod together;
