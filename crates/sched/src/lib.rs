//! The scheduler: reads [`State`](muster_core::state::State), proposes a
//! [`Plan`](muster_model::command::Plan). Pure: no clock, no I/O, the same input gives the same plan.
//!
//! Waiting jobs that ask for the same form a shape; a pass looks only at shapes for which something changed, so its cost is
//! O(changed shapes + starts), not O(jobs). The first job that waits in each partition gets a reservation, and later
//! jobs start only where they do not delay it (EASY backfill). Resources of planned starts that were not
//! committed are corrected at the next pass.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// Layers, the lowest first: each imports those above it in this list alone. xtask's tidy test keeps that.
mod order;

mod nodes;

mod demand;

mod place;

mod backfill;

mod queue;

mod pass;

pub mod engine;

pub mod forecast;

pub use forecast::explain::explain;
pub use pass::scheduler::{Cost, HeldNode, Scheduler};

/// Starts that one plan proposes at most; what is left comes with the next.
pub const STARTS_PER_PASS_MAX: usize = 4096;
/// Nodes that one pass looks at, beyond which it tries no further shape: about a tenth of a second.
pub const NODES_PER_PASS_MAX: u64 = 4_000_000;
/// A comparison with licenses or limits takes as long as looking at so many nodes.
pub const NODES_PER_CHECK: u64 = 40;
