//! Configuration files as a whole: what loading them says and yields, and that nothing in them makes it panic.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod endpoint;
mod fuzz;
mod golden;
