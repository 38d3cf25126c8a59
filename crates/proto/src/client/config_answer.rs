//! The configuration in force, as the controller shows it.

use minicbor::{Decode, Encode};
use muster_model::time::Timestamp;

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ConfigAnswer {
    /// `scontrol show config`: key and value in Slurm's order.
    #[n(0)]
    pub pairs: Vec<(String, String)>,
    /// Path of slurm.conf.
    #[n(1)]
    pub path: String,
    /// When it was read.
    #[n(2)]
    pub read_at: Timestamp,
    /// The controller's time.
    #[n(3)]
    pub now: Timestamp,
    /// Controller hosts, for the trailer line.
    #[n(4)]
    pub hosts: Vec<String>,
    /// When the controller started (BOOT_TIME).
    #[n(5)]
    pub started: Timestamp,
}
