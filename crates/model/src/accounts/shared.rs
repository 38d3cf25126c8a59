//! Records that several clusters share: licenses of a server (`sacctmgr add resource`), and federations, which are kept and
//! shown only.

use crate::limits::{NAME_BYTES_MAX, TEXT_BYTES_MAX};
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// Clusters that a resource or a federation names.
const SHARED_CLUSTERS_MAX: usize = 1024;

/// Clusters of a federation, and its numbers of clusters, as in Slurm.
pub const FEDERATION_CLUSTERS_MAX: u32 = 63;

/// The server of a resource that names none.
pub const RESOURCE_SERVER: &str = "slurmdb";

/// Licenses of a server.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct SharedResource {
    /// Its name.
    #[n(0)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub name: String,
    /// The server that has them.
    #[n(1)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub server: String,
    /// Number of all.
    #[n(2)]
    pub count: u32,
    /// `ServerType`.
    #[n(3)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub server_type: String,
    /// `Description`.
    #[n(4)]
    #[valid(max_bytes = TEXT_BYTES_MAX)]
    pub description: String,
    /// Parts of clusters.
    #[n(5)]
    #[valid(max_items = SHARED_CLUSTERS_MAX)]
    pub shares: Vec<ResourceShare>,
    /// Its number; 0 until it is kept.
    #[n(6)]
    pub id: u32,
}

/// A cluster's part of a resource.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct ResourceShare {
    /// The cluster.
    #[n(0)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub cluster: String,
    /// Percent of all.
    #[n(1)]
    pub percent: u32,
}

impl SharedResource {
    /// The name under which jobs ask for it (`--licenses`).
    pub fn key(&self) -> String {
        format!("{}@{}", self.name, self.server)
    }

    /// Percent that a cluster may use.
    pub fn percent_of(&self, cluster: &str) -> Option<u32> {
        let own = self.shares.iter().find(|share| share.cluster == cluster);
        own.map(|share| share.percent)
    }

    /// Percent that all clusters together may use.
    pub fn percent_allocated(&self) -> u32 {
        let all = self.shares.iter().map(|share| share.percent);
        all.fold(0, u32::saturating_add)
    }

    /// Number that a cluster may use.
    pub fn count_of(&self, cluster: &str) -> Option<u32> {
        let percent = u64::from(self.percent_of(cluster)?);
        Some(u32::try_from(u64::from(self.count) * percent / 100).unwrap_or(u32::MAX))
    }
}

/// A federation of clusters.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct Federation {
    /// Its name.
    #[n(0)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub name: String,
    /// Its clusters, by number.
    #[n(1)]
    #[valid(max_items = SHARED_CLUSTERS_MAX)]
    pub members: Vec<FederationMember>,
}

/// A cluster in a federation.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct FederationMember {
    /// The cluster.
    #[n(0)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub cluster: String,
    /// Its number in the federation, from 1.
    #[n(1)]
    pub id: u32,
    /// `FedState`: `ACTIVE`, `INACTIVE`, `DRAIN`, `DRAIN+REMOVE`.
    #[n(2)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub state: String,
}

/// `Features` of a cluster, for federations.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct ClusterFeatures {
    /// The cluster.
    #[n(0)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub cluster: String,
    /// Its features.
    #[n(1)]
    #[valid(max_items = SHARED_CLUSTERS_MAX)]
    pub features: Vec<String>,
}

impl Federation {
    /// The states that a cluster may be in.
    pub const STATES: [&'static str; 4] = ["ACTIVE", "INACTIVE", "DRAIN", "DRAIN+REMOVE"];
}
