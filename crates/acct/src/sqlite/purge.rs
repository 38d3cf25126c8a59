//! Removing rows that are older than a site keeps them: beside the controller, a part at a time, each in a short transaction of
//! its own, which the controller's own wait for. Sums of use stay, until they are purged themselves; rows that are not over are
//! not purged.

use super::job_text;
use super::log::{self, EntrySubject};
use super::row::{IMPORTED_RUN, OPEN, RUN_BITS};
use super::{open_read_only, schema, set_up};
use crate::store::StoreError;
use muster_model::time::Timestamp;
use muster_proto::archive::ArchivedKind;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use std::time::Duration;

/// Time to wait while the controller writes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kinds of rows that are purged, each by its own age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PurgeKind {
    /// Times in which nodes were out of service.
    Events,
    /// Runs of jobs, with their steps and suspensions.
    Jobs,
    /// Steps of runs that have ended.
    Steps,
    /// Suspensions of runs that have ended.
    Suspensions,
    /// Changes of accounting's records.
    Transactions,
    /// Sums of use.
    Usage,
    /// Times of reservations.
    Reservations,
}

impl From<ArchivedKind> for PurgeKind {
    fn from(kind: ArchivedKind) -> PurgeKind {
        match kind {
            ArchivedKind::Events => PurgeKind::Events,
            ArchivedKind::Jobs => PurgeKind::Jobs,
            ArchivedKind::Steps => PurgeKind::Steps,
            ArchivedKind::Suspensions => PurgeKind::Suspensions,
            ArchivedKind::Transactions => PurgeKind::Transactions,
            ArchivedKind::Usage => PurgeKind::Usage,
            ArchivedKind::Reservations => PurgeKind::Reservations,
        }
    }
}

impl PurgeKind {
    /// All, in the order in which they are purged.
    pub const ALL: [PurgeKind; 7] = [
        PurgeKind::Events,
        PurgeKind::Jobs,
        PurgeKind::Steps,
        PurgeKind::Suspensions,
        PurgeKind::Transactions,
        PurgeKind::Usage,
        PurgeKind::Reservations,
    ];

    /// As logs have it.
    pub fn name(self) -> &'static str {
        match self {
            PurgeKind::Events => "events",
            PurgeKind::Jobs => "jobs",
            PurgeKind::Steps => "steps",
            PurgeKind::Suspensions => "suspensions",
            PurgeKind::Transactions => "transactions",
            PurgeKind::Usage => "sums of usage",
            PurgeKind::Reservations => "times of reservations",
        }
    }
}

/// The key of a row that a purge removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    /// An event of a node.
    Event(i64),
    /// A run.
    Job(i64),
    /// A step, by run.
    Step(i64, i64),
    /// A suspension, by run and start.
    Suspension(i64, i64),
    /// A change of accounting's records.
    Transaction(i64),
    /// A sum of use.
    Used(i64),
    /// A sum of outages.
    Out(i64),
    /// A time of a reservation.
    Reservation(i64),
}

/// From where on rows are looked for: after the run of this end and number. Steps and suspensions are found by their runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgePosition {
    end_ms: i64,
    row: i64,
}

impl Default for PurgePosition {
    fn default() -> PurgePosition {
        PurgePosition {
            end_ms: i64::MIN,
            row: i64::MIN,
        }
    }
}

/// Finds old rows and removes them.
pub struct Purger {
    connection: Connection,
    has_begun: bool,
}

impl Purger {
    /// Opens the file that a controller of this release has made.
    ///
    /// # Errors
    /// The file is not there, or is another's, or of another release.
    pub fn open(path: &Path) -> Result<Purger, StoreError> {
        // A file that is not there is not made.
        drop(open_read_only(path)?);
        let failed = |source| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        let connection = Connection::open(path).map_err(failed)?;
        set_up(&connection).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        schema::check_format(&connection, path)?;
        Ok(Purger {
            connection,
            has_begun: false,
        })
    }

    /// Rows that were over before a time, at most a given number, those of runs after a place, which is moved on; none
    /// when there are no more.
    ///
    /// # Errors
    /// What the database says.
    pub fn find(
        &self,
        what: PurgeKind,
        before: Timestamp,
        after: &mut PurgePosition,
        most: usize,
    ) -> Result<Vec<RowKey>, StoreError> {
        let most = i64::try_from(most.max(1)).unwrap_or(i64::MAX);
        match what {
            PurgeKind::Events => self.numbers(
                "SELECT id FROM node_event WHERE end_ms < ?1 ORDER BY id LIMIT ?2",
                (before.0, most),
                RowKey::Event,
            ),
            PurgeKind::Transactions => self.numbers(
                "SELECT id FROM txn WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2",
                (before.0, most),
                RowKey::Transaction,
            ),
            PurgeKind::Reservations => self.numbers(
                "SELECT id FROM reservation WHERE end_ms < ?1 AND is_open = 0 ORDER BY end_ms LIMIT ?2",
                (before.0, most),
                RowKey::Reservation,
            ),
            PurgeKind::Jobs => self.numbers(JOBS, (before.0, most), RowKey::Job),
            PurgeKind::Usage => {
                let used = self.sums("used", before, most, RowKey::Used)?;
                match used.is_empty() {
                    true => self.sums("out_of_service", before, most, RowKey::Out),
                    false => Ok(used),
                }
            }
            PurgeKind::Steps => self.parts(
                "SELECT job, step FROM step WHERE job = ?1",
                before,
                after,
                most,
                RowKey::Step,
            ),
            PurgeKind::Suspensions => self.parts(
                "SELECT job, start_ms FROM suspension WHERE job = ?1",
                before,
                after,
                most,
                RowKey::Suspension,
            ),
        }
    }

    /// Whether a part of a run was removed last, of which the rest is to follow: the first of the keys that are not done.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// For reading rows.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn numbers(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        key: fn(i64) -> RowKey,
    ) -> Result<Vec<RowKey>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(parameters, |row| row.get(0).map(key))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Sums of hours, days and months that ended before a time.
    fn sums(
        &self,
        table: &str,
        before: Timestamp,
        most: i64,
        key: fn(i64) -> RowKey,
    ) -> Result<Vec<RowKey>, StoreError> {
        use muster_model::use_slots::Length;
        for length in Length::ALL {
            let sql =
                format!("SELECT id FROM {table} WHERE length = ?1 AND begin_ms < ?2 LIMIT ?3");
            // A sum that begins before the one that the time is in has ended by then.
            let from = length.begin(before);
            let found = self.numbers(&sql, (super::rollup::length_key(length), from, most), key)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Steps or suspensions of runs that ended before a time.
    fn parts(
        &self,
        sql: &str,
        before: Timestamp,
        after: &mut PurgePosition,
        most: i64,
        key: fn(i64, i64) -> RowKey,
    ) -> Result<Vec<RowKey>, StoreError> {
        let mut runs = self.connection.prepare_cached(
            "SELECT end_ms, row FROM job INDEXED BY job_end WHERE end_ms < ?1 AND (end_ms, row) > (?2, ?3)
             ORDER BY end_ms, row LIMIT ?4",
        )?;
        let mut parts = self.connection.prepare_cached(sql)?;
        loop {
            let found = runs.query_map((before.0, after.end_ms, after.row, most), |row| {
                Ok(PurgePosition {
                    end_ms: row.get(0)?,
                    row: row.get(1)?,
                })
            })?;
            let found = found.collect::<rusqlite::Result<Vec<PurgePosition>>>()?;
            let mut keys = Vec::new();
            for run in &found {
                let own = parts.query_map([run.row], |row| Ok(key(row.get(0)?, row.get(1)?)))?;
                keys.extend(own.collect::<rusqlite::Result<Vec<RowKey>>>()?);
                *after = *run;
                if i64::try_from(keys.len()).is_ok_and(|count| count >= most) {
                    break;
                }
            }
            if !keys.is_empty() || found.is_empty() {
                return Ok(keys);
            }
        }
    }

    /// Removes rows in one transaction, from the first on, as many as others wait for: of a run with its steps and suspensions
    /// these may be all that goes. How many of the keys are done, and how many of their rows were there.
    ///
    /// # Errors
    /// What the database says; then nothing of it was removed.
    pub fn remove_some(&mut self, keys: &[RowKey]) -> Result<(usize, u64), StoreError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let is_logged = log::is_kept(&transaction)?;
        let (mut done, mut removed, mut room) = (0, 0, TRANSACTION_ROWS);
        let mut has_begun = false;
        for key in keys {
            let before = room;
            if let RowKey::Job(row) = key {
                room -= remove_parts(&transaction, *row, room)?;
            }
            if room == 0 {
                has_begun = before > 0 && matches!(key, RowKey::Job(_));
                break;
            }
            let gone = remove_row(&transaction, *key)?;
            room -= 1;
            done += 1;
            removed += u64::from(gone);
            if gone && is_logged {
                log::append(&transaction, written(*key))?;
            }
        }
        transaction.commit()?;
        self.has_begun = has_begun;
        Ok((done, removed))
    }

    /// Removes rows, in as many transactions as it takes; how many were there.
    ///
    /// # Errors
    /// What the database says; then nothing of the last transaction was removed.
    pub fn remove(&mut self, keys: &[RowKey]) -> Result<u64, StoreError> {
        let (mut left, mut all) = (keys, 0);
        while !left.is_empty() {
            let (done, removed) = self.remove_some(left)?;
            left = left.get(done..).unwrap_or_default();
            all += removed;
        }
        Ok(all)
    }
}

/// Rows of all kinds that one transaction removes at most: a job may have 40,000 steps.
const TRANSACTION_ROWS: usize = 5000;

/// Removes steps and suspensions of a run that has ended, at most a number of them; how many there were. The run goes once they are gone.
fn remove_parts(connection: &Connection, row: i64, most: usize) -> rusqlite::Result<usize> {
    let mut removed = 0;
    for (table, key) in [("step", "step"), ("suspension", "start_ms")] {
        let sql = format!(
            "DELETE FROM {table} WHERE job = ?1 AND {key} IN (SELECT {key} FROM {table} WHERE job = ?1 LIMIT ?2)
             AND EXISTS (SELECT 1 FROM job WHERE row = ?1 AND end_ms <> ?3)"
        );
        let left = i64::try_from(most.saturating_sub(removed)).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(&sql)?;
        removed += statement.execute((row, left, OPEN))?;
    }
    Ok(removed)
}

/// Runs that have ended, but not those of jobs that wait or run again, and tasks of arrays only after the record that says which of
/// them are left.
const JOBS: &str = "SELECT row FROM job AS j INDEXED BY job_end WHERE end_ms < ?1
     AND NOT EXISTS (SELECT 1 FROM job AS o WHERE o.row BETWEEN (j.row & ~65535) AND (j.row | 65535)
         AND o.end_ms = 9223372036854775807)
     AND (j.array_id IS NULL OR NOT EXISTS (SELECT 1 FROM job AS r
         WHERE r.row BETWEEN (j.array_id << 16) AND ((j.array_id << 16) | 65535)
         AND r.array_spec IS NOT NULL AND r.row <> j.row))
     ORDER BY end_ms LIMIT ?2";

const _: () = assert!(RUN_BITS == 16 && OPEN == 9_223_372_036_854_775_807);

/// Removes a row; whether it was there. What was imported is not imported again.
fn remove_row(connection: &Connection, key: RowKey) -> rusqlite::Result<bool> {
    let one = |sql: &str, number: i64| connection.prepare_cached(sql)?.execute([number]);
    let two = |sql: &str, first: i64, second: i64| {
        connection.prepare_cached(sql)?.execute((first, second))
    };
    note_purged(connection, key)?;
    let count = match key {
        RowKey::Event(id) => one(
            "DELETE FROM node_event WHERE id = ?1 AND end_ms IS NOT NULL",
            id,
        )?,
        RowKey::Transaction(id) => one("DELETE FROM txn WHERE id = ?1", id)?,
        RowKey::Used(id) => one("DELETE FROM used WHERE id = ?1", id)?,
        RowKey::Out(id) => one("DELETE FROM out_of_service WHERE id = ?1", id)?,
        RowKey::Reservation(id) => {
            one("DELETE FROM reservation WHERE id = ?1 AND is_open = 0", id)?
        }
        RowKey::Step(job, step) => two("DELETE FROM step WHERE job = ?1 AND step = ?2", job, step)?,
        RowKey::Suspension(job, start) => two(
            "DELETE FROM suspension WHERE job = ?1 AND start_ms = ?2",
            job,
            start,
        )?,
        RowKey::Job(row) => {
            let sql = "DELETE FROM job WHERE row = ?1 AND end_ms <> ?2";
            let count = two(sql, row, OPEN)?;
            if count > 0 {
                one("DELETE FROM step WHERE job = ?1", row)?;
                one("DELETE FROM suspension WHERE job = ?1", row)?;
                job_text::remove(connection, row)?;
                one("UPDATE imported SET row = -1 WHERE row = ?1", row)?;
            }
            count
        }
    };
    Ok(count > 0)
}

/// Until when what an import brings is gone here by intention, milliseconds: runs, events of nodes, changes of accounting's records.
pub(super) const PURGED: [&str; 3] = ["imported_purged", "events_purged", "txn_purged"];

/// Notes until when rows are gone by intention, before one goes that ended then.
fn note_purged(connection: &Connection, key: RowKey) -> rusqlite::Result<()> {
    let [runs, events, transactions] = PURGED;
    let (name, ends, row) = match key {
        RowKey::Job(row) if row & i64::from(IMPORTED_RUN) != 0 => {
            (runs, "SELECT ?2, end_ms FROM job WHERE row = ?1", row)
        }
        RowKey::Event(id) => (
            events,
            "SELECT ?2, end_ms FROM node_event WHERE id = ?1 AND end_ms IS NOT NULL",
            id,
        ),
        RowKey::Transaction(id) => (transactions, "SELECT ?2, at_ms FROM txn WHERE id = ?1", id),
        _ => return Ok(()),
    };
    let sql = format!(
        "INSERT INTO meta {ends} ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"
    );
    connection.prepare_cached(&sql)?.execute((row, name))?;
    Ok(())
}

/// The log's key of a row that is gone.
fn written(key: RowKey) -> EntrySubject {
    match key {
        RowKey::Event(id) => EntrySubject::NodeEvent(id),
        RowKey::Job(row) => EntrySubject::Job(row),
        RowKey::Step(job, _) => EntrySubject::Reset(job),
        RowKey::Suspension(job, _) => EntrySubject::Suspension(job),
        RowKey::Transaction(id) => EntrySubject::Transaction(id),
        RowKey::Used(id) => EntrySubject::Used(id),
        RowKey::Out(id) => EntrySubject::Out(id),
        RowKey::Reservation(id) => EntrySubject::Reservation(id),
    }
}
