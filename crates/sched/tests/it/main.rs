//! Tests of the scheduler through its public interface, on a state that changes only by events.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

mod access;
mod account_limits;
mod cost;
mod drawn;
mod feasibility_cache;
mod features;
mod forecast;
mod gpu_parts;
mod gpus;
mod het;
mod lanes;
mod licenses;
mod memory_most;
mod network;
mod preempt;
mod properties;
mod qos_flags;
mod ranked;
mod reserved;
mod searches;
mod shapes;
mod sharing;
mod task_ranges;
mod within_node;
mod world;
