//! Tests of the scheduler through its public interface, on a state that changes only by events.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

mod cost;
mod drawn;
mod forecast;
mod network;
mod properties;
mod ranked;
mod reserved;
mod shapes;
mod within_node;
mod world;
