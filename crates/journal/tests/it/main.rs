//! The journal after crashes and on damaged files.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod crash;
mod damage;
mod support;
