//! Who may connect: connections of which nobody knows yet whose they are, and what the log says of those that are refused.

mod refusals;
mod strangers;

pub use refusals::Refusals;
pub use strangers::{Bounds, StrangerId, Strangers};
