//! Configuration.

pub mod endpoint;
