//! Scripts and environments of jobs, where the site has them kept. One that many jobs have is stored once, by its
//! content, and goes with the last run that has it. Tasks of an array have that of the array's record.

use super::row::{first_row, last_row, signed};
use crate::archive::ArchivedText;
use crate::store::StoreError;
use muster_model::ids::JobId;
use muster_proto::acct::JobTextKind;
use rusqlite::{Connection, OptionalExtension as _};

/// `kind` of a text.
fn kind_key(kind: JobTextKind) -> i64 {
    match kind {
        JobTextKind::Script => 0,
        JobTextKind::Environment => 1,
    }
}

fn key_kind(key: i64) -> Option<JobTextKind> {
    match key {
        0 => Some(JobTextKind::Script),
        1 => Some(JobTextKind::Environment),
        _ => None,
    }
}

/// Stores a text of a run. `key` is what tells its content from others.
pub(super) fn put(
    connection: &Connection,
    row: i64,
    kind: JobTextKind,
    key: &[u8],
    bytes: &[u8],
) -> rusqlite::Result<()> {
    store(connection, key, bytes)?;
    name(connection, row, kind, key)
}

/// Stores a text, unless it is stored.
pub(super) fn store(connection: &Connection, key: &[u8], bytes: &[u8]) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO stored_text (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING",
        )?
        .execute((key, bytes))?;
    Ok(())
}

/// Says which text a run has, of those that are stored.
pub(super) fn name(
    connection: &Connection,
    row: i64,
    kind: JobTextKind,
    key: &[u8],
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO job_text (row, kind, text)
             SELECT ?1, ?2, id FROM stored_text WHERE key = ?3",
        )?
        .execute((row, kind_key(kind), key))?;
    Ok(())
}

/// The texts of a run that is gone are its no more, and those that no other run has go.
pub(super) fn remove(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    let mut removed =
        connection.prepare_cached("DELETE FROM job_text WHERE row = ?1 RETURNING text")?;
    let texts = removed.query_map([row], |row| row.get::<_, i64>(0))?;
    let texts: Vec<i64> = texts.collect::<rusqlite::Result<_>>()?;
    for text in texts {
        connection
            .prepare_cached(
                "DELETE FROM stored_text WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM job_text WHERE text = ?1)",
            )?
            .execute([text])?;
    }
    Ok(())
}

/// The texts of a run, as an archive has them.
pub(super) fn of_run(connection: &Connection, row: i64) -> Result<Vec<ArchivedText>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT x.kind, t.key, t.value FROM job_text AS x JOIN stored_text AS t ON t.id = x.text WHERE x.row = ?1",
    )?;
    let mut rows = statement.query([row])?;
    let mut texts = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(kind) = key_kind(row.get(0)?) else {
            continue;
        };
        let (key, value): (Vec<u8>, Vec<u8>) = (row.get(1)?, row.get(2)?);
        texts.push(ArchivedText {
            kind,
            key: key.into(),
            bytes: Some(value.into()),
        });
    }
    Ok(texts)
}

/// The text that a job was submitted with, of the job of this user if one is named; none where it is not kept.
pub(super) fn find(
    connection: &Connection,
    job: JobId,
    kind: JobTextKind,
    owner: Option<u32>,
) -> Result<Option<Vec<u8>>, StoreError> {
    if let Some(text) = of_job(connection, job, kind, owner)? {
        return Ok(Some(text));
    }
    let array: Option<i64> = connection
        .prepare_cached(
            "SELECT array_id FROM job WHERE row BETWEEN ?1 AND ?2 AND array_id IS NOT NULL
             AND (?3 IS NULL OR uid = ?3) LIMIT 1",
        )?
        .query_row((first_row(job)?, last_row(job)?, owner), |row| row.get(0))
        .optional()?;
    let array = array.and_then(|id| u64::try_from(id).ok());
    match array.filter(|array| signed(*array) != signed(job.0)) {
        Some(array) => of_job(connection, JobId(array), kind, owner),
        None => Ok(None),
    }
}

/// That of the last run that has one.
fn of_job(
    connection: &Connection,
    job: JobId,
    kind: JobTextKind,
    owner: Option<u32>,
) -> Result<Option<Vec<u8>>, StoreError> {
    let rows = (first_row(job)?, last_row(job)?, kind_key(kind), owner);
    let text = connection
        .prepare_cached(
            "SELECT t.value FROM job_text AS x JOIN job AS j ON j.row = x.row JOIN stored_text AS t ON t.id = x.text
             WHERE x.row BETWEEN ?1 AND ?2 AND x.kind = ?3 AND (?4 IS NULL OR j.uid = ?4)
             ORDER BY x.row DESC LIMIT 1",
        )?
        .query_row(rows, |row| row.get(0))
        .optional()?;
    Ok(text)
}
