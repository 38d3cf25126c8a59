//! Slurm's user commands. Each speaks to the controller over one blocking connection and starts in milliseconds.

pub mod connect;
pub mod listing;
pub mod submit;
