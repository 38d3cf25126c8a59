//! Use of file systems by users: a row for each scan, and one for each user in it. Scans older than [`KEPT_DAYS`] go.

use super::row::{signed, unsigned};
use crate::store::StoreError;
use muster_model::storage::{
    ScannedFilesystem, StorageAnswer, StorageScan, StorageUse, UserStorage,
};
use muster_model::time::Timestamp;
use rusqlite::Connection;

/// Days until a scan goes.
const KEPT_DAYS: i64 = 400;
/// Days of growth in an answer.
const GROWTH_DAYS: i64 = 30;
const DAY_MS: i64 = 86_400_000;
/// Users of an answer, over all file systems.
const USERS_MAX: usize = 20_000;
/// File systems of an answer.
const FILESYSTEMS_MAX: u32 = 200;

/// Writes a scan, or a part of one. To write it again changes nothing.
pub(super) fn write(
    connection: &Connection,
    name: &str,
    scan: &StorageScan,
) -> Result<(), StoreError> {
    let id: i64 = connection
        .prepare_cached(
            "INSERT INTO storage_scan (name, at_ms, path, size, used) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (name, at_ms) DO UPDATE SET path = excluded.path RETURNING id",
        )?
        .query_row(
            (
                name,
                scan.at.0,
                &scan.path,
                signed(scan.size_bytes),
                signed(scan.used_bytes),
            ),
            |row| row.get(0),
        )?;
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO storage_use (scan, user, bytes, files) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for user in &scan.users {
        insert.execute((id, &user.user, signed(user.bytes), signed(user.files)))?;
    }
    let before = scan.at.0.saturating_sub(KEPT_DAYS * DAY_MS);
    connection
        .prepare_cached(
            "DELETE FROM storage_use WHERE scan IN (SELECT id FROM storage_scan WHERE at_ms < ?1)",
        )?
        .execute([before])?;
    connection
        .prepare_cached("DELETE FROM storage_scan WHERE at_ms < ?1")?
        .execute([before])?;
    Ok(())
}

/// The latest scan of each file system; of one user if it is named.
pub(super) fn read(
    connection: &Connection,
    own: Option<&str>,
) -> Result<StorageAnswer, StoreError> {
    let mut answer = StorageAnswer {
        own_only: own.is_some(),
        ..StorageAnswer::default()
    };
    let mut latest = connection.prepare_cached(
        "SELECT id, name, path, at_ms, size, used FROM storage_scan AS scan
         WHERE at_ms = (SELECT max(at_ms) FROM storage_scan WHERE name = scan.name) ORDER BY name LIMIT ?1",
    )?;
    let found = latest.query_map([FILESYSTEMS_MAX], |row| {
        let filesystem = ScannedFilesystem {
            name: row.get(1)?,
            path: row.get(2)?,
            at: Timestamp(row.get(3)?),
            size_bytes: unsigned(row.get(4)?),
            used_bytes: unsigned(row.get(5)?),
            ..ScannedFilesystem::default()
        };
        Ok((row.get(0)?, filesystem))
    })?;
    let mut room = USERS_MAX;
    for scan in found {
        let (id, mut filesystem): (i64, _) = scan?;
        let all = users(connection, id, &mut filesystem, own, room)?;
        room -= filesystem.users.len();
        answer.left_out += all - filesystem.users.len() as u64;
        answer.filesystems.push(filesystem);
    }
    Ok(answer)
}

/// Adds the users of a scan, the largest first, and how many there are.
fn users(
    connection: &Connection,
    scan: i64,
    filesystem: &mut ScannedFilesystem,
    own: Option<&str>,
    room: usize,
) -> Result<u64, StoreError> {
    let mut before = connection.prepare_cached(
        "SELECT id, at_ms FROM storage_scan WHERE name = ?1 AND at_ms >= ?2 AND at_ms < ?3 ORDER BY at_ms LIMIT 1",
    )?;
    let at = filesystem.at.0;
    let window = (
        &filesystem.name,
        at.saturating_sub(GROWTH_DAYS * DAY_MS),
        at,
    );
    let earlier: Option<(i64, i64)> = before
        .query_map(window, |row| Ok((row.get(0)?, row.get(1)?)))?
        .next()
        .transpose()?;
    filesystem.since = earlier.map(|(_, at)| Timestamp(at));
    let mut rows = connection.prepare_cached(
        "SELECT now.user, now.bytes, now.files, before.bytes FROM storage_use AS now
         LEFT JOIN storage_use AS before ON before.scan = ?2 AND before.user = now.user
         WHERE now.scan = ?1 AND (?3 IS NULL OR now.user = ?3) ORDER BY now.bytes DESC, now.user LIMIT ?4",
    )?;
    let of = (scan, earlier.map(|(id, _)| id), own, signed(room as u64));
    let found = rows.query_map(of, |row| {
        Ok(UserStorage {
            now: StorageUse {
                user: row.get(0)?,
                bytes: unsigned(row.get(1)?),
                files: unsigned(row.get(2)?),
            },
            bytes_before: row.get::<_, Option<i64>>(3)?.map(unsigned),
        })
    })?;
    filesystem.users = found.collect::<Result<_, _>>()?;
    let all: i64 = connection
        .prepare_cached(
            "SELECT count(*) FROM storage_use WHERE scan = ?1 AND (?2 IS NULL OR user = ?2)",
        )?
        .query_row((scan, own), |row| row.get(0))?;
    Ok(unsigned(all))
}
