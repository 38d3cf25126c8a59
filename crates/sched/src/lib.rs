//! The scheduler: reads [`State`](muster_core::state::State), proposes a
//! [`Plan`](muster_model::command::Plan). Pure: no clock, no I/O, the same input gives the same plan.
//!
//! Waiting jobs with equal requests form a shape. A pass looks only at shapes affected by a change,
//! so its cost is O(changed shapes + starts), not O(jobs). The first waiting job of each partition
//! gets a reservation, and later jobs start only if they do not delay it (EASY backfill). If a
//! planned start is not committed, the next pass corrects its resources.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// Layers, the lowest first: each layer imports only those above it in this list. xtask's tidy test
// checks that.
mod order;

mod nodes;

mod demand;

mod place;

mod backfill;

mod queue;

mod pass;

pub mod engine;

pub mod forecast;

pub use forecast::explain::run::{ExplainRun, ExplanationDepth, explain, explain_briefly};
pub use pass::scheduler::{Cost, HeldNode, Scheduler};

/// Maximum number of starts in one plan; the next plan contains the rest.
pub const STARTS_PER_PASS_MAX: usize = 4096;
/// Number of nodes after which a pass tries no further shape: about a tenth of a second.
pub const NODES_PER_PASS_MAX: u64 = 4_000_000;
/// Cost, in nodes, of one comparison with licenses or limits.
pub const NODES_PER_CHECK: u64 = 40;
