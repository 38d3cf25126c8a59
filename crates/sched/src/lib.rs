//! The scheduler: reads [`State`](muster_core::state::State), proposes a
//! [`Plan`](muster_core::command::Plan). Pure: no clock, no I/O, the same input gives the same plan.
//!
//! Waiting jobs that are alike form a shape; a pass looks only at shapes for which something changed, so its cost is
//! O(changed shapes + starts), not O(jobs). The first job that waits in each partition gets a reservation, and later
//! jobs start only where they do not delay it (EASY backfill). What a plan takes is put right at the next pass if it
//! was not committed.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alike;
mod cores;
mod demand;
mod device_demand;
pub mod engine;
mod explain;
mod fleet;
pub mod forecast;
mod gains;
mod ground;
mod holds;
mod licenses;
mod network;
mod node_map;
mod node_set;
mod noted;
mod order;
mod outlook;
mod part_cpus;
mod pass;
mod place;
mod planned;
mod possible;
mod preempt;
mod queue;
mod reserved;
mod scheduler;
mod settings;
mod sharing;
mod sockets;
mod tenants;
mod together;
mod trial;
mod vacated;

pub use explain::explain;
pub use scheduler::{Cost, Promised, Scheduler};

/// Starts that one plan proposes at most; what is left comes with the next.
pub const STARTS_PER_PASS_MAX: usize = 4096;
/// Nodes that one pass looks at, beyond which it tries no further shape: about a tenth of a second.
pub const NODES_PER_PASS_MAX: u64 = 4_000_000;
