//! Changes of accounting's records that slurmdbd logged.

use super::source::{ImportError, Source};
use muster_model::accounts::Transaction;
use muster_proto::acct::LoggedTransaction;

/// Rows that one query reads.
const ROWS_MAX: u64 = 2000;

/// sacctmgr's name of an action, by the number that slurmdbd writes; others are called by the number.
const ACTIONS: &[(u64, &str)] = &[
    (1402, "Add Accounts"),
    (1403, "Add Account Coord"),
    (1404, "Add Associations"),
    (1405, "Add Clusters"),
    (1406, "Add Users"),
    (1428, "Modify Accounts"),
    (1429, "Modify Associations"),
    (1430, "Modify Clusters"),
    (1431, "Modify Users"),
    (1435, "Remove Accounts"),
    (1436, "Remove Account Coord"),
    (1437, "Remove Associations"),
    (1438, "Remove Clusters"),
    (1439, "Remove Users"),
    (1447, "Add QOS"),
    (1450, "Remove QOS"),
    (1451, "Modify QOS"),
    (1452, "Add WCKeys"),
    (1455, "Remove WCKeys"),
    (1456, "Modify WCKeys"),
    (1476, "Modify Job"),
    (1485, "Add TRES"),
];

impl Source {
    /// Gives all that concern this cluster, the oldest first, in parts.
    pub(super) fn each_transactions(
        &mut self,
        take: &mut dyn FnMut(Vec<LoggedTransaction>) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let columns = ["id", "timestamp", "action", "name", "actor", "info"];
        let select = self.select("txn_table", &columns)?;
        let sql =
            format!("{select} WHERE id > ? AND cluster IN ('', ?) ORDER BY id LIMIT {ROWS_MAX}");
        let cluster = self.cluster.clone();
        let mut after = 0;
        loop {
            let rows = self.rows(&sql, (after, &cluster))?;
            let mut part = Vec::new();
            let mut count = 0;
            for mut row in rows {
                count += 1;
                after = row.number().unwrap_or(u64::MAX);
                let Some(at) = row.time() else { continue };
                let number = row.number().unwrap_or(0);
                let (target, actor, info) = (row.text(), row.text(), row.text());
                let known = ACTIONS.iter().find(|(known, _)| *known == number);
                part.push(LoggedTransaction {
                    id: 0,
                    at,
                    transaction: Transaction {
                        actor,
                        action: known
                            .map_or_else(|| format!("Action {number}"), |(_, n)| (*n).to_owned()),
                        target,
                        info,
                        users: Vec::new(),
                        accounts: Vec::new(),
                    },
                });
            }
            take(part)?;
            if count < ROWS_MAX {
                return Ok(());
            }
        }
    }
}
