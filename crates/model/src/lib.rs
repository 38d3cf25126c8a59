//! The vocabulary of Muster, which all crates share: what a job, a step, a node, a partition, an account is; how users
//! and slurm.conf write it; how it is stored and sent (CBOR with numbered fields); what of it is valid.
//!
//! No state of a cluster and no rule over one: these are in `muster_core`. No I/O, no clock, no threads, no randomness.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// Derived code uses one name for this crate, from inside and outside.
extern crate self as muster_model;

pub mod account_limits;
pub mod accounts;
pub mod audit;
pub mod batching;
pub mod binding;
pub mod calendar;
pub mod cbor;
pub mod command;
pub mod config;
pub mod cpuset;
pub mod cron;
mod dependency;
pub mod distribution;
pub mod effect;
pub mod environment;
pub mod explain;
pub mod factors;
pub mod features;
pub mod gpu_bind;
pub mod gpu_parts;
pub mod granted;
pub mod grid_engine;
pub mod het;
pub mod hostlist;
pub mod ids;
pub mod index_set;
pub mod job;
pub mod job_class;
pub mod job_counts;
pub mod job_env;
pub mod known_cluster;
pub mod licenses;
pub mod limits;
pub mod listing_codec;
pub mod mail;
pub mod mcs;
pub mod node;
pub mod node_host;
pub mod node_state;
pub mod order_config;
pub mod pending;
pub mod power;
pub mod preemption;
pub mod private_data;
pub mod refusal;
pub mod reservation;
pub mod rights;
pub mod shared_spec;
pub mod site_option;
pub mod spec;
pub mod storage;
pub mod task_range;
pub mod time;
pub mod topology;
pub mod torque;
pub mod tree;
pub mod trigger;
pub mod usage;
pub mod use_slots;
pub mod validate;
pub mod visible_text;
