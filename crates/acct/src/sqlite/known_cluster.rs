//! Other clusters of the database that slurmdbd copies to. Its slurmdbd writes them; the controller reads them for `--clusters`.

use crate::store::StoreError;
use muster_model::known_cluster::{CLUSTERS_MAX, KnownCluster};
use muster_model::time::Timestamp;
use rusqlite::Connection;

/// All, by name.
pub(super) fn read(connection: &Connection) -> Result<Vec<KnownCluster>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT name, addresses, port, seen_ms FROM known_cluster ORDER BY name LIMIT ?1",
    )?;
    let most = i64::try_from(CLUSTERS_MAX).unwrap_or(i64::MAX);
    let rows = statement.query_map([most], |row| {
        let addresses: String = row.get(1)?;
        Ok(KnownCluster {
            name: row.get(0)?,
            addresses: addresses.split(',').map(str::to_owned).collect(),
            port: row.get(2)?,
            seen: Timestamp(row.get(3)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Replaces all.
pub(super) fn replace(
    connection: &Connection,
    clusters: &[KnownCluster],
) -> Result<(), StoreError> {
    if read(connection)? == clusters {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    transaction.execute("DELETE FROM known_cluster", [])?;
    let sql = "INSERT INTO known_cluster (name, addresses, port, seen_ms) VALUES (?1, ?2, ?3, ?4)";
    for cluster in clusters.iter().take(CLUSTERS_MAX) {
        let addresses = cluster.addresses.join(",");
        transaction.execute(
            sql,
            (&cluster.name, addresses, cluster.port, cluster.seen.0),
        )?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CopySource, History as _, SqliteStore};

    #[test]
    fn the_controller_reads_the_clusters_that_slurmdbd_has_noted() {
        let dir = std::env::temp_dir().join(format!("muster-known-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("a.db");
        let store = SqliteStore::open(&file).unwrap();
        let mut source = CopySource::open(&file).unwrap();
        let cluster = |name: &str, port| KnownCluster {
            name: name.to_owned(),
            addresses: vec!["ctl1".to_owned(), "fd00::7".to_owned()],
            port,
            seen: Timestamp(5),
        };
        let first = [cluster("beta", 1), cluster("gamma", 2)];
        source.note_clusters(&first).unwrap();
        assert_eq!(store.reader().unwrap().known_clusters().unwrap(), first);
        // One that is gone from the database is gone here.
        source.note_clusters(&first[1..]).unwrap();
        assert_eq!(
            store.reader().unwrap().known_clusters().unwrap(),
            first[1..]
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
