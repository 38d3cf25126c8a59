//! The tables, and how older files are brought up to date.

use crate::store::StoreError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use std::path::Path;

/// `PRAGMA application_id`: "Must".
const APPLICATION: i64 = 0x4d75_7374;

/// Each entry brings a file from the format of its index to the next. Entries never change once released.
const MIGRATIONS: &[&str] = &[
    FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5, FORMAT_6, FORMAT_7, FORMAT_8, FORMAT_9,
    FORMAT_10, FORMAT_11,
];

/// A run's key is one number, the job's times 2^16 plus the run's, so that the table itself is the index by number
/// and grows at its end. Texts that repeat are numbers of rows in `text`. A run that has not ended has the highest
/// `end_ms`, so that one index serves both "ended since" and "not ended". Owners are in that index because almost
/// everybody asks for their own jobs.
const FORMAT_1: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('position', 0);

CREATE TABLE text (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, value BLOB NOT NULL);
CREATE INDEX text_hash ON text (hash);

CREATE TABLE job (
    row INTEGER PRIMARY KEY,
    array_id INTEGER, array_index INTEGER, array_spec BLOB,
    name TEXT, uid INTEGER NOT NULL, gid INTEGER NOT NULL, owner INTEGER NOT NULL,
    account INTEGER NOT NULL, qos INTEGER NOT NULL, wckey INTEGER, context INTEGER NOT NULL,
    submit_line TEXT, comment TEXT, admin_comment TEXT,
    req_cpus INTEGER NOT NULL, req_nodes INTEGER NOT NULL, batch INTEGER NOT NULL,
    submit_ms INTEGER NOT NULL,
    partition INTEGER NOT NULL, state INTEGER NOT NULL, requeued INTEGER NOT NULL,
    cancelled_by INTEGER, exit INTEGER NOT NULL, derived_exit INTEGER NOT NULL,
    eligible_ms INTEGER, start_ms INTEGER, suspended_ms INTEGER NOT NULL, time_limit_min INTEGER,
    req_mem_mib INTEGER NOT NULL, alloc_cpus INTEGER NOT NULL, alloc_nodes INTEGER NOT NULL,
    alloc_mem_mib INTEGER NOT NULL, gres BLOB, nodelist TEXT, reason INTEGER NOT NULL,
    priority INTEGER NOT NULL, ntasks INTEGER NOT NULL,
    end_ms INTEGER NOT NULL
);
CREATE INDEX job_end ON job (end_ms, uid);
CREATE INDEX job_array ON job (array_id, array_index) WHERE array_id IS NOT NULL;

CREATE TABLE step (
    job INTEGER NOT NULL, step INTEGER NOT NULL,
    name TEXT, start_ms INTEGER NOT NULL, nodes INTEGER NOT NULL, tasks INTEGER NOT NULL,
    cpus INTEGER NOT NULL, mem_mib INTEGER NOT NULL, nodelist TEXT, submit_line TEXT,
    distribution TEXT,
    state INTEGER NOT NULL, cancelled_by INTEGER, exit INTEGER NOT NULL, end_ms INTEGER,
    user_us INTEGER, system_us INTEGER, max_rss_kib INTEGER, usage BLOB,
    PRIMARY KEY (job, step)
) WITHOUT ROWID;

CREATE TABLE suspension (
    job INTEGER NOT NULL, start_ms INTEGER NOT NULL, end_ms INTEGER,
    PRIMARY KEY (job, start_ms)
) WITHOUT ROWID;

CREATE TABLE node_event (
    id INTEGER PRIMARY KEY, node TEXT NOT NULL, start_ms INTEGER NOT NULL, end_ms INTEGER,
    down INTEGER NOT NULL, drain INTEGER NOT NULL, fail INTEGER NOT NULL,
    reason TEXT NOT NULL, uid INTEGER NOT NULL
);
CREATE INDEX node_event_open ON node_event (node) WHERE end_ms IS NULL;
";

/// Components of heterogeneous jobs.
const FORMAT_2: &str = "
ALTER TABLE job ADD COLUMN het_id INTEGER;
ALTER TABLE job ADD COLUMN het_offset INTEGER;
ALTER TABLE job ADD COLUMN het_size INTEGER;
CREATE INDEX job_het ON job (het_id) WHERE het_id IS NOT NULL;
";

/// Whether the run passed by others that waited; nothing where that was not known.
const FORMAT_3: &str = "ALTER TABLE job ADD COLUMN backfilled INTEGER;";

/// Changes of accounting's records, with their users.
const FORMAT_4: &str = "
CREATE TABLE txn (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
    target TEXT NOT NULL, info TEXT NOT NULL, users TEXT NOT NULL, accounts TEXT NOT NULL
);
CREATE UNIQUE INDEX txn_once ON txn (at_ms, actor, action, target, info);
";

/// Which rows were written, in order, for a copy in another database; kept while `log` in `meta` is 1. Numbers are not given again
/// when the first entries are gone.
const FORMAT_5: &str = "
INSERT INTO meta VALUES ('log', 0);
CREATE TABLE change_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind INTEGER NOT NULL, first INTEGER NOT NULL, second INTEGER NOT NULL
);
";

/// Where rows were imported from and how far that is; which row a run from there has.
const FORMAT_6: &str = "
CREATE TABLE import_source (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    after INTEGER NOT NULL DEFAULT 0, began_s INTEGER NOT NULL DEFAULT 0, since_s INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE imported (
    source INTEGER NOT NULL, number INTEGER NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (source, number)
) WITHOUT ROWID;
CREATE INDEX node_event_start ON node_event (node, start_ms);
CREATE INDEX txn_at ON txn (at_ms, id);
";

/// Use, by hour, day and month ([`super::rollup`]).
const FORMAT_7: &str = "
CREATE TABLE used (
    id INTEGER PRIMARY KEY, length INTEGER NOT NULL, begin_ms INTEGER NOT NULL,
    account INTEGER NOT NULL, uid INTEGER NOT NULL, owner INTEGER NOT NULL, wckey INTEGER NOT NULL,
    device INTEGER NOT NULL, run_ms INTEGER NOT NULL, cpu_ms INTEGER NOT NULL,
    mem_mib_ms INTEGER NOT NULL, node_ms INTEGER NOT NULL, planned_cpu_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX used_once ON used (length, begin_ms, account, uid, owner, wckey, device);
CREATE TABLE out_of_service (
    id INTEGER PRIMARY KEY, length INTEGER NOT NULL, begin_ms INTEGER NOT NULL, node TEXT NOT NULL,
    out_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX out_of_service_once ON out_of_service (length, begin_ms, node);
CREATE INDEX imported_row ON imported (row);
";

/// The key of the hashes of texts ([`super::text_hash`]).
const FORMAT_8: &str = "
INSERT INTO meta VALUES ('text_key_first', random()), ('text_key_second', random());
";
/// Devices of steps; what jobs were submitted with: scripts and environments, each once, whichever runs have it ([`super::job_text`]); times of
/// reservations ([`super::reservation`]).
const FORMAT_9: &str = "
ALTER TABLE step ADD COLUMN gres BLOB;
CREATE TABLE stored_text (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, value BLOB NOT NULL);
CREATE TABLE job_text (
    row INTEGER NOT NULL, kind INTEGER NOT NULL, text INTEGER NOT NULL,
    PRIMARY KEY (row, kind)
) WITHOUT ROWID;
CREATE INDEX job_text_text ON job_text (text);
CREATE TABLE reservation (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL,
    is_open INTEGER NOT NULL, nodes TEXT NOT NULL, cpus INTEGER NOT NULL, flags INTEGER NOT NULL,
    users TEXT NOT NULL, accounts TEXT NOT NULL
);
CREATE UNIQUE INDEX reservation_once ON reservation (name, start_ms);
CREATE INDEX reservation_open ON reservation (name) WHERE is_open = 1;
CREATE INDEX reservation_end ON reservation (end_ms);
";
/// Use of file systems by users ([`super::storage`]).
const FORMAT_10: &str = "
CREATE TABLE storage_scan (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, at_ms INTEGER NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
    used INTEGER NOT NULL
);
CREATE UNIQUE INDEX storage_scan_once ON storage_scan (name, at_ms);
CREATE INDEX storage_scan_at ON storage_scan (at_ms);
CREATE TABLE storage_use (
    scan INTEGER NOT NULL, user TEXT NOT NULL, bytes INTEGER NOT NULL, files INTEGER NOT NULL,
    PRIMARY KEY (scan, user)
) WITHOUT ROWID;
";
/// Other clusters of the shared database ([`super::known_cluster`]).
const FORMAT_11: &str = "
CREATE TABLE known_cluster (
    name TEXT PRIMARY KEY, addresses TEXT NOT NULL, port INTEGER NOT NULL, seen_ms INTEGER NOT NULL
) WITHOUT ROWID;
";
/// Notes since when there is accounting, once; rows may be older.
const SINCE: &str = "INSERT OR IGNORE INTO meta VALUES ('since_ms', 1000 * unixepoch())";
/// The format that brought a key for hashes, which all texts of an older one get.
const KEYED_SINCE: i64 = 8;
/// The format that brought sums, which are made of the rows then.
const SUMS_SINCE: i64 = 7;

/// Settings of the connection, then the tables.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open {
        path: path.to_owned(),
        source,
    };
    let pragma = |connection: &Connection, name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(failed)
    };
    let application = pragma(connection, "application_id")?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    if application != APPLICATION && (application != 0 || tables != 0) {
        return Err(StoreError::Foreign {
            path: path.to_owned(),
        });
    }
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found = pragma(connection, "user_version")?;
    if found > known {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known,
        });
    }
    connection
        .execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-32768;
             PRAGMA wal_autocheckpoint=16000; PRAGMA journal_size_limit=67108864;",
        )
        .map_err(failed)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(migration)?;
    }
    if found < KEYED_SINCE {
        super::text::rehash(&transaction)?;
    }
    if found < SUMS_SINCE {
        super::rollup::begin(&transaction)?;
    }
    transaction.execute(SINCE, [])?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

/// Whether a file that is there has the format of this release, which its controller has given it.
///
/// # Errors
/// It is another's, or of another release.
pub(super) fn check_format(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let pragma = |name: &str| -> Result<i64, StoreError> {
        Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
    };
    let path = path.to_owned();
    if pragma("application_id")? != APPLICATION {
        return Err(StoreError::Foreign { path });
    }
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    match pragma("user_version")? {
        found if found > known => Err(StoreError::Newer { path, found, known }),
        found if found < known => Err(StoreError::Older { path, found, known }),
        _ => Ok(()),
    }
}

pub(super) fn position(connection: &Connection) -> Result<u64, StoreError> {
    let value: Option<i64> = connection
        .query_row("SELECT value FROM meta WHERE key = 'position'", [], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(u64::try_from(value.unwrap_or(0)).unwrap_or(0))
}

/// The position up to which changes may be there already, of those that are not through: they were written by halves.
pub(super) fn halves_end(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT value FROM meta WHERE key = 'halves_end'";
    let value: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(u64::try_from(value.unwrap_or(0)).unwrap_or(0))
}

pub(super) fn set_halves_end(connection: &Connection, position: u64) -> Result<(), StoreError> {
    let value = i64::try_from(position).unwrap_or(i64::MAX);
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta VALUES ('halves_end', ?1)")?
        .execute([value])?;
    Ok(())
}

pub(super) fn set_position(connection: &Connection, position: u64) -> Result<(), StoreError> {
    let value = i64::try_from(position).unwrap_or(i64::MAX);
    connection
        .prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'position'")?
        .execute([value])?;
    Ok(())
}
