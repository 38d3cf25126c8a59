//! Times of reservations. A row is a time in which a reservation had the same nodes: another change of it changes the row, as long as
//! the time has not begun, or begins another. The row of a reservation that was removed before it began goes.

use super::log::{self, EntrySubject};
use super::row::{signed, unsigned};
use crate::change::ReservationRow;
use crate::store::StoreError;
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::reservation::Flags;
use muster_model::time::Timestamp;
use muster_model::visible_text::beginning;
use muster_proto::acct::ReservationRecord;
use rusqlite::{Connection, OptionalExtension as _, Row};

/// Columns of a record, in the order of [`record`].
pub(super) const COLUMNS: &str =
    "name, start_ms, end_ms, is_open, nodes, cpus, flags, users, accounts";

/// The time of a reservation that is not over.
struct OpenTime {
    id: i64,
    start: i64,
    end: i64,
    nodes: String,
    cpus: i64,
}

/// Writes what a reservation is now. To write it again changes nothing.
pub(super) fn write(
    connection: &Connection,
    now: &ReservationRow,
    is_logged: bool,
) -> Result<(), StoreError> {
    let noted = |id: i64| match is_logged {
        true => log::append(connection, EntrySubject::Reservation(id)),
        false => Ok(()),
    };
    let at = now.at.0;
    let open = open_time(connection, &now.name)?;
    let begun = open.as_ref().filter(|open| open.start <= at);
    let Some(set) = &now.set else {
        match (&open, begun) {
            (_, Some(open)) => end(connection, open, at)?,
            (Some(open), None) => {
                remove(connection, open.id)?;
            }
            (None, _) => return Ok(()),
        }
        return Ok(open.map_or(Ok(()), |open| noted(open.id))?);
    };
    let nodes = beginning(&set.nodes, TEXT_BYTES_MAX);
    let cpus = signed(set.cpus);
    match (open, set.start.0) {
        // An equal time: it has not been anything else yet, or only fields that do not count have changed.
        (Some(open), start)
            if open.start >= at || start <= at && open.nodes == nodes && open.cpus == cpus =>
        {
            let start = if open.start > at { start } else { open.start };
            update(connection, &open, start, set)?;
            noted(open.id)?;
        }
        (Some(open), start) => {
            end(connection, &open, at)?;
            noted(open.id)?;
            if let Some(id) = insert(connection, &now.name, start.max(at), set)? {
                noted(id)?;
            }
        }
        (None, start) => {
            if let Some(id) = insert(connection, &now.name, start, set)? {
                noted(id)?;
            }
        }
    }
    Ok(())
}

fn open_time(connection: &Connection, name: &str) -> rusqlite::Result<Option<OpenTime>> {
    connection
        .prepare_cached(
            "SELECT id, start_ms, end_ms, nodes, cpus FROM reservation WHERE name = ?1 AND is_open = 1",
        )?
        .query_row([name], |row| {
            Ok(OpenTime {
                id: row.get(0)?,
                start: row.get(1)?,
                end: row.get(2)?,
                nodes: row.get(3)?,
                cpus: row.get(4)?,
            })
        })
        .optional()
}

fn end(connection: &Connection, open: &OpenTime, at: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE reservation SET end_ms = ?2, is_open = 0 WHERE id = ?1")?
        .execute((open.id, open.end.min(at).max(open.start)))?;
    Ok(())
}

fn update(
    connection: &Connection,
    open: &OpenTime,
    start: i64,
    set: &ReservationRecord,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE OR REPLACE reservation SET start_ms = ?2, end_ms = ?3, nodes = ?4, cpus = ?5, flags = ?6,
                 users = ?7, accounts = ?8 WHERE id = ?1",
        )?
        .execute((
            open.id,
            start,
            set.end.0,
            beginning(&set.nodes, TEXT_BYTES_MAX),
            signed(set.cpus),
            set.flags.0,
            beginning(&set.users, TEXT_BYTES_MAX),
            beginning(&set.accounts, TEXT_BYTES_MAX),
        ))?;
    Ok(())
}

/// A new row; none if there is one of that time, which was written before.
fn insert(
    connection: &Connection,
    name: &str,
    start: i64,
    set: &ReservationRecord,
) -> rusqlite::Result<Option<i64>> {
    let set = ReservationRecord {
        name: name.to_owned(),
        start: Timestamp(start),
        is_over: false,
        ..set.clone()
    };
    put(connection, &set)
}

/// Writes a record, unless there is one of that reservation and time.
pub(super) fn put(
    connection: &Connection,
    record: &ReservationRecord,
) -> rusqlite::Result<Option<i64>> {
    let added = connection
        .prepare_cached(
            "INSERT OR IGNORE INTO reservation (name, start_ms, end_ms, is_open, nodes, cpus, flags, users, accounts)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute((
            &record.name,
            record.start.0,
            record.end.0,
            !record.is_over,
            beginning(&record.nodes, TEXT_BYTES_MAX),
            signed(record.cpus),
            record.flags.0,
            beginning(&record.users, TEXT_BYTES_MAX),
            beginning(&record.accounts, TEXT_BYTES_MAX),
        ))?;
    Ok((added > 0).then(|| connection.last_insert_rowid()))
}

/// Removes a row; whether it was there.
pub(super) fn remove(connection: &Connection, id: i64) -> rusqlite::Result<bool> {
    let removed = connection
        .prepare_cached("DELETE FROM reservation WHERE id = ?1")?
        .execute([id])?;
    Ok(removed > 0)
}

/// A record of the columns that [`COLUMNS`] names.
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<ReservationRecord> {
    let is_open: bool = row.get(3)?;
    Ok(ReservationRecord {
        name: row.get(0)?,
        start: Timestamp(row.get(1)?),
        end: Timestamp(row.get(2)?),
        is_over: !is_open,
        nodes: row.get(4)?,
        cpus: unsigned(row.get(5)?),
        flags: Flags(row.get(6)?),
        users: row.get(7)?,
        accounts: row.get(8)?,
    })
}

/// The record of a row.
pub(super) fn read(
    connection: &Connection,
    id: i64,
) -> rusqlite::Result<Option<ReservationRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM reservation WHERE id = ?1");
    connection
        .prepare_cached(&sql)?
        .query_row([id], record)
        .optional()
}

/// Bytes of records in one answer, which has to fit into a message.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of a record beside its texts, about.
const RECORD_BYTES: usize = 128;

/// Times that touch a window, by start.
pub(super) fn within(
    connection: &Connection,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
) -> Result<Vec<ReservationRecord>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM reservation WHERE start_ms <= ?1 AND end_ms >= ?2 ORDER BY start_ms, id"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let window = (
        end.map_or(i64::MAX, |end| end.0),
        start.map_or(i64::MIN, |start| start.0),
    );
    let (mut found, mut bytes) = (Vec::new(), 0);
    for record in statement.query_map(window, record)? {
        let record = record?;
        let texts = [&record.name, &record.nodes, &record.users, &record.accounts];
        bytes += RECORD_BYTES + texts.into_iter().map(String::len).sum::<usize>();
        if bytes > BYTES_MAX {
            return Err(StoreError::TooMany(
                "more times of reservations than one answer holds: ask for a shorter time (Start=, End=)",
            ));
        }
        found.push(record);
    }
    Ok(found)
}
