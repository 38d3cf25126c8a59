//! The place of this cluster's controller in the database, and the places of others, for `--clusters`.

use muster_acct::CopySource;
use muster_conf::Config;
use muster_dbd::{DatabaseError, Replica};
use muster_model::known_cluster::KnownCluster;
use muster_model::time::Timestamp;
use std::time::{Duration, Instant};

/// Interval of writes of the own place.
const WRITE_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval of looks for other clusters.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct ClusterDirectory {
    own: KnownCluster,
    written: Option<Instant>,
    read: Option<Instant>,
}

impl ClusterDirectory {
    /// The entry of a cluster, by its slurm.conf; nothing is written yet.
    pub(super) fn new(config: &Config) -> ClusterDirectory {
        let addresses = match &config.slurmctld_addr {
            Some(address) => vec![address.clone()],
            None => config
                .slurmctld
                .iter()
                .map(|host| host.address().to_owned())
                .collect(),
        };
        ClusterDirectory {
            own: KnownCluster {
                name: config.cluster_name.clone(),
                addresses,
                port: *config.slurmctld_ports.start(),
                seen: Timestamp::default(),
            },
            written: None,
            read: None,
        }
    }

    /// A connection to the database is new: all is done again.
    pub(super) fn begin(&mut self) {
        (self.written, self.read) = (None, None);
    }

    /// Writes and reads, where that is due.
    ///
    /// # Errors
    /// Those of both databases.
    pub(super) fn keep(
        &mut self,
        replica: &mut Replica,
        source: &mut CopySource,
    ) -> Result<(), DatabaseError> {
        let is_due =
            |last: Option<Instant>, interval| last.is_none_or(|at| at.elapsed() >= interval);
        if is_due(self.written, WRITE_INTERVAL) {
            self.own.seen = Timestamp(jiff::Timestamp::now().as_millisecond());
            replica.register(&self.own)?;
            self.written = Some(Instant::now());
        }
        if is_due(self.read, READ_INTERVAL) {
            source.note_clusters(&replica.other_clusters()?)?;
            self.read = Some(Instant::now());
        }
        Ok(())
    }
}
