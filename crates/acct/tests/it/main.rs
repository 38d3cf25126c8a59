//! Accounting through its public interface: what is written, what the store holds then, what queries find in it.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod bounds;
mod copy;
mod edits;
mod fixtures;
mod follower;
mod import;
mod job_text;
mod licenses;
mod life;
mod owners;
mod purge;
mod query;
mod reservations;
mod storage;
mod support;
mod task_rows;
mod usage;
