//! The log of which rows were written: what a copy in another database lacks. The writer keeps it in the transaction of the
//! rows themselves; a copy reads on from the number that it has reached, so that it misses nothing and may read anything twice.

use crate::store::StoreError;
use rusqlite::{Connection, OptionalExtension};
use std::ops::RangeInclusive;

/// Entries after which the log is given up: nobody reads it, and a copy begins anew.
const ENTRIES_MAX: i64 = 20_000_000;

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EntrySubject {
    /// A run, by its row.
    Job(i64),
    /// A step of a run.
    Step(i64, i64),
    /// Steps and suspensions of a run are others than they were.
    Reset(i64),
    /// Suspensions of a run.
    Suspension(i64),
    /// An event of a node.
    NodeEvent(i64),
    /// A change of accounting's records.
    Transaction(i64),
    /// A sum of use.
    Used(i64),
    /// A sum of outages.
    Out(i64),
    /// A time of a reservation.
    Reservation(i64),
}

impl EntrySubject {
    fn columns(self) -> (i64, i64, i64) {
        match self {
            EntrySubject::Job(row) => (1, row, 0),
            EntrySubject::Step(row, step) => (2, row, step),
            EntrySubject::Reset(row) => (3, row, 0),
            EntrySubject::Suspension(row) => (4, row, 0),
            EntrySubject::NodeEvent(id) => (5, id, 0),
            EntrySubject::Transaction(id) => (6, id, 0),
            EntrySubject::Used(id) => (7, id, 0),
            EntrySubject::Out(id) => (8, id, 0),
            EntrySubject::Reservation(id) => (9, id, 0),
        }
    }

    /// The entry with these columns; none of one that a newer release has written.
    pub(super) fn of(kind: i64, first: i64, second: i64) -> Option<EntrySubject> {
        Some(match kind {
            1 => EntrySubject::Job(first),
            2 => EntrySubject::Step(first, second),
            3 => EntrySubject::Reset(first),
            4 => EntrySubject::Suspension(first),
            5 => EntrySubject::NodeEvent(first),
            6 => EntrySubject::Transaction(first),
            7 => EntrySubject::Used(first),
            8 => EntrySubject::Out(first),
            9 => EntrySubject::Reservation(first),
            _ => return None,
        })
    }
}

/// Whether the log is kept. It is asked for in the transaction that writes rows, so that none is missed.
pub(super) fn is_kept(connection: &Connection) -> rusqlite::Result<bool> {
    let value: Option<i64> = connection
        .prepare_cached("SELECT value FROM meta WHERE key = 'log'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(value == Some(1))
}

/// Appends an entry.
pub(super) fn append(connection: &Connection, written: EntrySubject) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO change_log (kind, first, second) VALUES (?1, ?2, ?3)")?
        .execute(written.columns())?;
    Ok(())
}

/// Gives the log up if nobody has read it for too long.
pub(super) fn bound(connection: &Connection) -> rusqlite::Result<()> {
    let (first, last) = ends(connection)?;
    if last - first > ENTRIES_MAX {
        connection
            .execute_batch("UPDATE meta SET value = 0 WHERE key = 'log'; DELETE FROM change_log")?;
    }
    Ok(())
}

/// Numbers of the first entry and of the last; equal in an empty log.
pub(super) fn ends(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let number = |sql: &str| -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached(sql)?
            .query_row([], |row| row.get(0))
    };
    let last = last(connection)?;
    let first = number("SELECT min(number) FROM change_log")?;
    Ok((first.unwrap_or(last), last))
}

/// Numbers after which nothing is missing in the log: a copy that has reached an earlier one, as that of a backup, lacks what
/// another has read and had removed.
pub(super) fn begins(connection: &Connection) -> rusqlite::Result<RangeInclusive<i64>> {
    let last = last(connection)?;
    let first: Option<i64> = connection
        .prepare_cached("SELECT min(number) FROM change_log")?
        .query_row([], |row| row.get(0))?;
    Ok(first.map_or(last, |first| first - 1)..=last)
}

/// The number that was given last.
pub(super) fn last(connection: &Connection) -> rusqlite::Result<i64> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'change_log'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(0))
}

/// Has the log kept from now on, in a transaction of its own; the number from which on it is complete.
pub(super) fn begin(connection: &mut Connection) -> Result<i64, StoreError> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute("UPDATE meta SET value = 1 WHERE key = 'log'", [])?;
    let last = last(&transaction)?;
    transaction.commit()?;
    Ok(last)
}
