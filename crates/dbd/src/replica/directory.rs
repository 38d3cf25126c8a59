//! Clusters that have this database, and where their controllers are: each slurmdbd writes the place of its own, and reads
//! those of the others.

use super::Replica;
use crate::database::DatabaseError;
use crate::sql::{SqlValue, Statement, upserts};
use muster_model::known_cluster::{CLUSTERS_MAX, KnownCluster};
use muster_model::time::Timestamp;

const CLUSTER: &[&str] = &["cluster", "addresses", "port", "seen_ms"];

impl Replica {
    /// Writes the place of the cluster's controller.
    ///
    /// # Errors
    /// What the database says.
    pub fn register(&mut self, own: &KnownCluster) -> Result<(), DatabaseError> {
        let row = vec![
            SqlValue::text(&self.cluster),
            SqlValue::text(&own.addresses.join(",")),
            i64::from(own.port).into(),
            own.seen.0.into(),
        ];
        let kind = self.database.kind();
        let written = upserts(kind, "muster_cluster", CLUSTER, 1, vec![row]);
        self.database.execute(&written)
    }

    /// All other clusters, by name. Rows that make no sense, which the site's own programs may have written, are left out.
    ///
    /// # Errors
    /// What the database says.
    pub fn other_clusters(&mut self) -> Result<Vec<KnownCluster>, DatabaseError> {
        let sql = format!(
            "SELECT cluster, addresses, port, seen_ms FROM muster_cluster WHERE cluster <> ? ORDER BY cluster LIMIT {CLUSTERS_MAX}"
        );
        let own = vec![SqlValue::text(&self.cluster)];
        let statement = Statement::new(self.database.kind(), &sql, own);
        let rows = self.database.query(&statement)?;
        Ok(rows
            .iter()
            .filter_map(|row| known(row))
            .filter(KnownCluster::is_plausible)
            .collect())
    }
}

fn known(row: &[SqlValue]) -> Option<KnownCluster> {
    let [
        SqlValue::Text(name),
        SqlValue::Text(addresses),
        SqlValue::Integer(port),
        SqlValue::Integer(seen_ms),
    ] = row
    else {
        return None;
    };
    Some(KnownCluster {
        name: name.clone(),
        addresses: addresses.split(',').map(str::to_owned).collect(),
        port: u16::try_from(*port).ok()?,
        seen: Timestamp(*seen_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, addresses: &str, port: i64) -> Vec<SqlValue> {
        vec![
            SqlValue::text(name),
            SqlValue::text(addresses),
            port.into(),
            7_i64.into(),
        ]
    }

    #[test]
    fn rows_that_make_no_sense_are_left_out() {
        let is_taken = |name: &str, addresses: &str, port: i64| {
            known(&row(name, addresses, port)).is_some_and(|cluster| cluster.is_plausible())
        };
        assert!(is_taken("beta", "ctl1,fd00::7", 6817));
        for (name, addresses, port) in [
            ("", "ctl1", 6817),
            ("be ta", "ctl1", 6817),
            ("beta", "", 6817),
            ("beta", "ctl1,", 6817),
            ("beta", "ctl1\n", 6817),
            ("beta", "ctl1", 0),
            ("beta", "ctl1", 65_536),
            ("beta", "ctl1", -1),
        ] {
            assert!(
                !is_taken(name, addresses, port),
                "{name:?} {addresses:?} {port}"
            );
        }
        let many = vec!["ctl"; 17].join(",");
        assert!(!is_taken("beta", &many, 6817));
    }
}
