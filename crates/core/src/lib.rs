//! The pure core of Muster: all cluster state in one value that changes only by events.
//!
//! `decide(&State, Command, now) -> events or refusal`, `State::apply(&Event)`, `effects(&State, &Event)`.
//! No I/O, no clock, no threads, no randomness: the same code runs in the controller, in its read replica and in
//! the simulator. What it is about, jobs, nodes, accounts and what else has a name, is in `muster_model`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod apply;
pub mod config_diff;
pub mod decide;
mod effects;
pub mod event;
mod fair_share;
mod index;
mod invariants;
pub mod node_transition;
pub mod policy;
pub mod snapshot;
pub mod state;
pub mod transition;
