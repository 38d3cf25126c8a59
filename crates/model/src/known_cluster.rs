//! Other clusters that share a database of accounting, for `--clusters` (slurmdbd of each writes its own there).

use crate::time::Timestamp;
use minicbor::{Decode, Encode};

/// Controllers of one cluster that are noted: a primary and its backups.
pub const ADDRESSES_MAX: usize = 16;
/// Clusters that one database is expected to be of.
pub const CLUSTERS_MAX: usize = 1000;

/// A cluster, and the place of its controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct KnownCluster {
    /// `ClusterName`.
    #[n(0)]
    pub name: String,
    /// Addresses for connections from other hosts, in order: `SlurmctldAddr`, else those of each `SlurmctldHost`.
    #[n(1)]
    pub addresses: Vec<String>,
    /// `SlurmctldPort`.
    #[n(2)]
    pub port: u16,
    /// The time at which its slurmdbd wrote this last.
    #[n(3)]
    pub seen: Timestamp,
}

impl KnownCluster {
    /// Whether its texts can be a name and addresses: they have no spaces, commas and control characters, and the length of
    /// names.
    pub fn is_plausible(&self) -> bool {
        let is_word = |text: &String| {
            (1..=255).contains(&text.len())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
        };
        is_word(&self.name)
            && (1..=ADDRESSES_MAX).contains(&self.addresses.len())
            && self.addresses.iter().all(is_word)
            && self.port > 0
    }
}
