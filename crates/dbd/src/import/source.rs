//! The database of a real slurmdbd, which is only read. Columns that its version does not have are read as NULL.

use super::tres::TresNames;
use crate::database::{DatabaseAddress, DatabaseError};
use crate::mariadb;
use crate::sql::Kind;
use muster_acct::{StoreError, UseKey, UseSum};
use muster_model::command::UsageAsk;
use muster_model::time::Timestamp;
use muster_proto::acct::NodeEvent;
use mysql::prelude::Queryable as _;
use mysql::{Conn, Params, Value};
use std::collections::HashSet;
use std::time::Duration;

/// How long the sums of all jobs may take.
const ANSWER_WAIT: Duration = Duration::from_secs(3600);
/// Texts as they were written: slurmdbd writes UTF-8 whatever the columns say. Months are those of UTC.
const SESSION: [&str; 2] = ["SET NAMES binary", "SET SESSION time_zone = '+00:00'"];
/// Node states of an event: `DOWN`, and flags `DRAIN` and `FAIL`.
const NODE_BASE: u64 = 0xf;
const NODE_DOWN: u64 = 1;
const NODE_DRAIN: u64 = 0x200;
const NODE_FAIL: u64 = 0x800;
/// Events that are kept of one source.
const EVENTS_MAX: usize = 5_000_000;

/// Why an import stopped.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source cannot be read.
    #[error("the database of slurmdbd: {0}")]
    Source(#[from] mysql::Error),
    /// It cannot be reached.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The controller's store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is no database of slurmdbd's.
    #[error(
        "there is no table {0}: this is not a database of slurmdbd's, or not the one that --from names"
    )]
    NoTable(String),
    /// Which cluster is meant is not clear.
    #[error("{0}")]
    Cluster(String),
}

/// Names of users and groups of this machine.
pub trait Names {
    /// A user's name by its number.
    fn user(&self, uid: u32) -> Option<String>;
    /// A group's name by its number.
    fn group(&self, gid: u32) -> Option<String>;
}

/// One cluster of a database.
pub struct Source {
    pub(super) connection: Conn,
    /// The cluster.
    pub(super) cluster: String,
    /// Which it is, for ever.
    key: String,
    pub(super) tres: TresNames,
}

/// A row that is read column after column.
pub(super) struct Fields {
    values: std::vec::IntoIter<Value>,
}

impl Fields {
    /// A number; none if it is NULL or no number.
    pub(super) fn signed(&mut self) -> Option<i64> {
        match self.values.next()? {
            Value::Int(number) => Some(number),
            Value::UInt(number) => i64::try_from(number).ok(),
            Value::Bytes(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        match self.values.next()? {
            Value::Int(number) => u64::try_from(number).ok(),
            Value::UInt(number) => Some(number),
            Value::Bytes(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// A number of 32 bits; 0 if there is none.
    pub(super) fn small(&mut self) -> u32 {
        let number = self.number().unwrap_or(0);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// A number that may be set or not: slurmdbd writes two numbers for "not set" and "no limit", and NULL.
    pub(super) fn set(&mut self) -> Option<u32> {
        let number = self.number().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| *number < u32::MAX - 1)
    }

    pub(super) fn float(&mut self) -> Option<f64> {
        match self.values.next()? {
            Value::Double(number) => Some(number),
            Value::Float(number) => Some(number.into()),
            Value::Int(number) => Some(number as f64),
            Value::Bytes(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// A text: UTF-8, or else Latin-1.
    pub(super) fn text(&mut self) -> String {
        match self.values.next() {
            Some(Value::Bytes(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => error.as_bytes().iter().map(|b| char::from(*b)).collect(),
            },
            Some(Value::Int(number)) => number.to_string(),
            Some(Value::UInt(number)) => number.to_string(),
            _ => String::new(),
        }
    }

    /// Seconds since 1970; none if that is 0 or not set.
    pub(super) fn time(&mut self) -> Option<Timestamp> {
        let seconds = self
            .number()
            .filter(|s| *s > 0 && *s < u64::from(u32::MAX - 1))?;
        Some(Timestamp(i64::try_from(seconds).ok()?.checked_mul(1000)?))
    }
}

impl Source {
    /// Connects, and finds the cluster; the only one if none is named.
    ///
    /// # Errors
    /// It cannot be reached, is no database of slurmdbd's, or has no such cluster.
    pub fn connect(
        address: &DatabaseAddress,
        cluster: Option<&str>,
    ) -> Result<Source, ImportError> {
        if address.kind != Kind::MariaDb {
            let text = "slurmdbd keeps its database in MariaDB or MySQL: --from mysql://...";
            return Err(ImportError::Cluster(text.to_owned()));
        }
        let connection = mariadb::open(address, &SESSION, ANSWER_WAIT)?;
        let mut source = Source {
            connection,
            cluster: String::new(),
            key: String::new(),
            tres: TresNames::default(),
        };
        source.require("cluster_table")?;
        let rows = source.rows(
            "SELECT name, creation_time FROM cluster_table WHERE deleted = 0 ORDER BY name",
            (),
        )?;
        let mut found: Vec<(String, u64)> = rows
            .map(|mut row| (row.text(), row.number().unwrap_or(0)))
            .collect();
        let known: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        let known = known.join(", ");
        if let Some(wanted) = cluster {
            found.retain(|(name, _)| name == wanted);
        }
        let [(name, created)] = found.as_slice() else {
            return Err(ImportError::Cluster(match cluster {
                Some(cluster) => format!("there is no cluster {cluster} in it; there are: {known}"),
                None => {
                    format!("it has several clusters, or none ({known}): name one with --cluster")
                }
            }));
        };
        let may_stand = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !name.chars().all(may_stand) {
            return Err(ImportError::Cluster(format!(
                "'{name}' is not a valid cluster name"
            )));
        }
        source.key = format!("{name}@{created}");
        source.cluster.clone_from(name);
        let own = ["assoc", "job", "step", "suspend", "event", "resv", "wckey"];
        for table in own {
            source.require(&source.table_name(table))?;
        }
        let rows = source.rows("SELECT id, type, name FROM tres_table", ())?;
        source.tres = TresNames::of(rows.map(|mut row| (row.small(), row.text(), row.text())));
        Ok(source)
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Name of the cluster in the store that its history goes to: another of the same name is another one.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn table_name(&self, table: &str) -> String {
        format!("{}_{table}_table", self.cluster)
    }

    fn require(&mut self, table: &str) -> Result<(), ImportError> {
        match self.columns(table)?.is_empty() {
            true => Err(ImportError::NoTable(table.to_owned())),
            false => Ok(()),
        }
    }

    /// The columns of a table.
    pub(super) fn columns(&mut self, table: &str) -> Result<HashSet<String>, ImportError> {
        let rows = self.rows(
            "SELECT column_name FROM information_schema.columns
             WHERE table_schema = DATABASE() AND table_name = ?",
            (table,),
        )?;
        Ok(rows.map(|mut row| row.text()).collect())
    }

    /// Beginning of a `SELECT` of these columns: NULL for those that the table does not have.
    pub(super) fn select(&mut self, table: &str, columns: &[&str]) -> Result<String, ImportError> {
        let known = self.columns(table)?;
        let columns = columns.iter().map(|column| match known.contains(*column) {
            true => format!("`{column}`"),
            false => "NULL".to_owned(),
        });
        let columns: Vec<String> = columns.collect();
        Ok(format!("SELECT {} FROM `{table}`", columns.join(", ")))
    }

    pub(super) fn rows(
        &mut self,
        sql: &str,
        values: impl Into<Params>,
    ) -> Result<std::vec::IntoIter<Fields>, ImportError> {
        let rows: Vec<mysql::Row> = self.connection.exec(sql, values)?;
        let fields = rows.into_iter().map(|row| Fields {
            values: row.unwrap().into_iter(),
        });
        Ok(fields.collect::<Vec<Fields>>().into_iter())
    }

    fn one(&mut self, sql: &str) -> Result<u64, ImportError> {
        let mut rows = self.rows(sql, ())?;
        Ok(rows.next().and_then(|mut row| row.number()).unwrap_or(0))
    }

    /// The time of its clock, seconds.
    pub(super) fn now_s(&mut self) -> Result<u64, ImportError> {
        self.one("SELECT UNIX_TIMESTAMP()")
    }

    /// The number that a job got last.
    pub(super) fn highest_job(&mut self) -> Result<u64, ImportError> {
        let table = self.table_name("job");
        self.one(&format!("SELECT max(job_db_inx) FROM `{table}`"))
    }

    /// The highest number of a job that users see.
    ///
    /// # Errors
    /// What the database says.
    pub fn highest_job_id(&mut self) -> Result<u64, ImportError> {
        let table = self.table_name("job");
        self.one(&format!("SELECT max(id_job) FROM `{table}`"))
    }

    /// Jobs that are not over.
    pub(super) fn count_unfinished(&mut self) -> Result<u64, ImportError> {
        let table = self.table_name("job");
        self.one(&format!(
            "SELECT count(*) FROM `{table}` WHERE deleted = 0 AND time_end = 0"
        ))
    }

    /// All that is read from now on is of one moment.
    pub(super) fn begin_snapshot(&mut self) -> Result<(), ImportError> {
        let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
        self.connection.query_drop(isolation)?;
        let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
        self.connection.query_drop(begin)?;
        Ok(())
    }

    /// The end of that.
    pub(super) fn end_snapshot(&mut self) -> Result<(), ImportError> {
        self.connection.query_drop("COMMIT")?;
        Ok(())
    }

    /// Sums of jobs that are over, in order.
    pub(super) fn sums(&mut self) -> Result<Vec<(UseKey, UseSum)>, ImportError> {
        let table = self.table_name("job");
        let cpus = "IF(LOCATE(',1=', CONCAT(',', tres_alloc)) = 0, 0, CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(\
            CONCAT(',', tres_alloc), ',1=', -1), ',', 1) AS SIGNED))";
        let run = "IF(time_start = 0, 0, GREATEST(0, CAST(time_end AS SIGNED) - CAST(time_start AS SIGNED) \
            - CAST(time_suspended AS SIGNED)))";
        let rows = self.rows(
            &format!(
                "SELECT DATE_FORMAT(FROM_UNIXTIME(time_end), '%Y-%m') AS month, account, id_user, count(*),
                 sum({cpus} * {run}) FROM `{table}` WHERE deleted = 0 AND time_end > 0
                 GROUP BY month, account, id_user"
            ),
            (),
        )?;
        let mut sums: Vec<(UseKey, UseSum)> = rows
            .map(|mut row| {
                let key = UseKey {
                    month: row.text(),
                    account: row.text(),
                    uid: row.small(),
                };
                let sum = UseSum {
                    jobs: row.number().unwrap_or(0),
                    cpu_s: row.number().unwrap_or(0),
                };
                (key, sum)
            })
            .collect();
        sums.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(sums)
    }

    /// Use by each user in each account, billing units times seconds, half of it after that time; all of it if that is
    /// 0. A job counts when it ended, by the factor of its QOS.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn decayed_use(&mut self, half_life_s: u64) -> Result<Vec<UsageAsk>, ImportError> {
        let (job, assoc) = (self.table_name("job"), self.table_name("assoc"));
        let count = |id: &str| {
            format!(
                "IF(LOCATE(',{id}=', CONCAT(',', j.tres_alloc)) = 0, 0, CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(\
                 CONCAT(',', j.tres_alloc), ',{id}=', -1), ',', 1) AS SIGNED))"
            )
        };
        let (billing, cpus) = (count("5"), count("1"));
        let left = match half_life_s {
            0 => "1".to_owned(),
            life => format!(
                "POW(0.5, GREATEST(0, UNIX_TIMESTAMP() - CAST(j.time_end AS SIGNED)) / {life})"
            ),
        };
        // After so many half-lives less than a millionth is left.
        let since = match half_life_s {
            0 => 0,
            life => self.now_s()?.saturating_sub(life.saturating_mul(20)),
        };
        let rows = self.rows(
            &format!(
                "SELECT a.acct, a.user, CAST(ROUND(SUM(COALESCE(q.usage_factor, 1) * {left}
                 * IF({billing} > 0, {billing}, {cpus}) * GREATEST(0, CAST(j.time_end AS SIGNED)
                 - CAST(j.time_start AS SIGNED) - CAST(j.time_suspended AS SIGNED)))) AS SIGNED)
                 FROM `{job}` j JOIN `{assoc}` a ON a.id_assoc = j.id_assoc LEFT JOIN qos_table q ON q.id = j.id_qos
                 WHERE j.deleted = 0 AND j.time_end > ? AND j.time_start > 0 AND a.deleted = 0 AND a.user <> ''
                 GROUP BY a.acct, a.user"
            ),
            (since,),
        )?;
        Ok(rows
            .map(|mut row| UsageAsk {
                account: row.text(),
                user: row.text(),
                raw: row.number().unwrap_or(0),
            })
            .collect())
    }

    /// Times of nodes out of service that are over.
    pub(super) fn node_events(&mut self) -> Result<Vec<NodeEvent>, ImportError> {
        let table = self.table_name("event");
        let columns = [
            "node_name",
            "time_start",
            "time_end",
            "state",
            "reason",
            "reason_uid",
        ];
        let select = self.select(&table, &columns)?;
        let rows = self.rows(
            &format!(
                "{select} WHERE node_name <> '' AND time_end > 0 ORDER BY time_start LIMIT {EVENTS_MAX}"
            ),
            (),
        )?;
        let events = rows.filter_map(|mut row| {
            let (node, start, end) = (row.text(), row.time()?, row.time()?);
            let state = row.number().unwrap_or(0);
            let (reason, uid) = (row.text(), row.set().unwrap_or(0));
            Some(NodeEvent {
                node,
                start,
                end: Some(end),
                down: state & NODE_BASE == NODE_DOWN,
                drain: state & NODE_DRAIN != 0,
                fail: state & NODE_FAIL != 0,
                reason,
                uid,
            })
        });
        Ok(events.collect())
    }
}
