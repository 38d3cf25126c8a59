//! The pure core of Muster: all cluster state in one value that changes only by events.
//!
//! `decide(&State, Command, now) -> events or refusal`, `State::apply(&Event)`, `effects(&State, &Event)`.
//! No I/O, no clock, no threads, no randomness: the same code runs in the controller, in its read replica and in
//! the simulator. Domain types carry their wire and durable encoding (CBOR with numbered fields).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// Derived code uses one name for this crate, from inside and outside.
extern crate self as muster_core;

pub mod account_limits;
pub mod accounts;
mod apply;
pub mod binding;
pub mod cbor;
pub mod command;
pub mod config;
pub mod config_diff;
pub mod cpuset;
pub mod decide;
pub mod distribution;
pub mod effect;
mod effects;
pub mod environment;
pub mod event;
pub mod explain;
pub mod factors;
mod fair_share;
pub mod features;
pub mod gpu_bind;
pub mod gpu_parts;
pub mod het;
pub mod hostlist;
pub mod ids;
mod index;
pub mod index_set;
mod invariants;
pub mod job;
pub mod job_env;
pub mod licenses;
pub mod limits;
pub mod listing_codec;
pub mod node;
pub mod node_state;
pub mod order_config;
pub mod policy;
pub mod power;
pub mod preemption;
pub mod private_data;
pub mod refusal;
pub mod reservation;
pub mod rights;
pub mod shared_spec;
pub mod snapshot;
pub mod spec;
pub mod state;
pub mod time;
pub mod topology;
pub mod transition;
pub mod tree;
pub mod usage;
pub mod validate;
