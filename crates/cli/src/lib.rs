//! Slurm's user commands. Each speaks to the controller over one blocking connection and starts in milliseconds.

pub mod catalogue;
pub mod connect;
pub mod listing;
pub mod options;
pub mod submit;

/// The version of Slurm whose behaviour the commands follow, as `--version` prints it.
pub const SLURM_VERSION: &str = "25.05.4";
