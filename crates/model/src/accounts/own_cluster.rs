//! The accounts of the controller's own cluster.

use super::Accounts;
use std::collections::BTreeMap;

impl Accounts {
    /// A copy without the records of other clusters, of which there may be many.
    pub fn of_own_cluster(&self) -> Accounts {
        let Accounts {
            accounts,
            users,
            qos,
            usage,
            shares,
            calculated_at,
            reset_at,
            fair,
            tres_usage,
            root,
            clusters: _,
            last_association,
            last_qos,
            classification,
            resources,
            last_resource,
            federations,
            cluster_features,
        } = self;
        Accounts {
            accounts: accounts.clone(),
            users: users.clone(),
            qos: qos.clone(),
            usage: usage.clone(),
            shares: shares.clone(),
            calculated_at: *calculated_at,
            reset_at: *reset_at,
            fair: fair.clone(),
            tres_usage: tres_usage.clone(),
            root: root.clone(),
            clusters: BTreeMap::new(),
            last_association: *last_association,
            last_qos: *last_qos,
            classification: classification.clone(),
            resources: resources.clone(),
            last_resource: *last_resource,
            federations: federations.clone(),
            cluster_features: cluster_features.clone(),
        }
    }
}
