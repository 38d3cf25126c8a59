//! The controller: one thread that owns the state, a replica that answers reads, and a server for connections.
//!
//! Pure decisions are in `muster-core` and `muster-sched`; here they meet the journal, the sockets and the clock.
#![deny(unsafe_code)]

pub mod accounted;
mod accounting;
mod accounting_events;
mod answer;
mod archives;
mod audit;
mod backlog;
mod change_turns;
mod changes;
mod clear;
pub mod client_timeouts;
pub mod clock;
mod configuration;
mod connection;
pub mod debug_level;
pub mod disk;
mod durable;
mod executor;
pub mod failure;
pub mod fault;
pub mod forecaster;
mod frames;
mod identity;
mod job_classes;
pub mod keys;
mod link_queue;
mod links;
mod listeners;
pub mod mail;
mod mail_address;
mod network;
mod node_blobs;
pub mod node_link;
mod node_trust;
pub mod notify;
pub mod outbox;
mod peer;
pub mod priority;
mod program_settings;
pub mod programs;
pub mod quarantine;
mod quota;
mod rate_limit;
pub mod recover;
mod replica;
pub mod reply;
mod run;
mod server;
mod shared;
mod snapshot_pace;
mod snapshots;
pub mod stats;
mod sys;
pub mod trigger_program;
mod verifier;
mod waiting;
pub mod watchdog;
mod webhooks;
pub mod writer;

pub use archives::ARCHIVE_COMMAND;
pub use connection::name_blobs;
pub use network::{HttpAnswer, HttpPages};
pub use run::{Options, run};

/// The Slurm release whose contract is met; what commands print for `--version`.
pub const SLURM_VERSION: &str = "25.05.4";
