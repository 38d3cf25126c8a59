//! Accounting in one SQLite file, beside the controller.
//!
//! The write-ahead log is not flushed at every transaction (`synchronous=NORMAL`): after a loss of power the file
//! holds some earlier transaction's end, rows and journal position together, and the journal is replayed from
//! there. Only [`Store::sync`] flushes.

mod copy;
mod import;
mod job_text;
mod known_cluster;
mod log;
mod plan;
mod purge;
mod read;
mod records;
mod reservation;
mod restore;
mod rollup;
mod row;
mod schema;
mod storage;
#[cfg(test)]
mod tests;
mod text;
mod text_hash;
mod usage;
mod write;

pub use copy::{
    CopyProgress, CopySource, OutSum, PurgedRowIds, Rows, Stage, Suspension, UsedSum, length_name,
};
pub use import::{ImportMark, Imported, ImportedJob, Importer, UseKey, UseSum};
pub use purge::{PurgeKind, PurgePosition, Purger, RowKey};
pub use read::Reader;
pub use restore::{Restored, Restorer};

use crate::change::AccountingChange;
use crate::store::{Store, StoreError};
use ::log::error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::collections::HashMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prepared statements kept by a connection.
const STATEMENTS_MAX: usize = 64;
/// Time to wait for another process that writes to the file, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// The writer of an SQLite accounting file. One process has one.
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    position: u64,
    /// Up to there changes may be in the file that are not through.
    halves_end: u64,
    texts: text::Interned,
    /// Nodes that are out of service now, with the row that says so.
    open_nodes: HashMap<String, write::OpenNode>,
}

impl SqliteStore {
    /// Opens the file, makes it if there is none, and brings an older format up to date.
    ///
    /// # Errors
    /// The file cannot be opened, is not Muster's, or is of a newer release.
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        let failed = |source| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        keep_from_others(path);
        let mut connection = Connection::open(path).map_err(failed)?;
        set_up(&connection).map_err(failed)?;
        schema::migrate(&mut connection, path)?;
        let position = schema::position(&connection)?;
        let halves_end = schema::halves_end(&connection)?;
        let open_nodes = write::open_nodes(&connection)?;
        Ok(SqliteStore {
            connection,
            path: path.to_owned(),
            position,
            halves_end,
            texts: text::Interned::default(),
            open_nodes,
        })
    }

    /// A reader of the same file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Reader::open(&self.path)
    }

    fn try_write(&mut self, changes: &[AccountingChange], position: u64) -> Result<(), StoreError> {
        // Changes after a run was made smaller are about the run that follows it.
        let parts = changes.split_inclusive(|c| matches!(c, AccountingChange::Resized { .. }));
        let plans = parts.map(plan::Plan::of).collect::<Result<Vec<_>, _>>()?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writer = write::Writer {
            connection: &transaction,
            texts: &mut self.texts,
            open_nodes: &mut self.open_nodes,
            is_logged: log::is_kept(&transaction)?,
            may_be_there: self.position < self.halves_end,
            rollup: rollup::Rollup::default(),
        };
        for plan in &plans {
            writer.carry_out(plan)?;
        }
        let is_logged = writer.is_logged;
        writer.finish()?;
        if is_logged {
            log::bound(&transaction)?;
        }
        schema::set_position(&transaction, position)?;
        transaction.commit()?;
        Ok(())
    }
}

impl SqliteStore {
    /// As [`Self::try_write`], after which nothing is remembered of a transaction that was rolled back.
    fn write_all(&mut self, changes: &[AccountingChange], position: u64) -> Result<(), StoreError> {
        let result = self.try_write(changes, position);
        match result {
            Ok(()) => self.position = position,
            Err(_) => {
                self.texts.clear();
                self.open_nodes = write::open_nodes(&self.connection).unwrap_or_default();
            }
        }
        result
    }

    /// Writes changes of which some can never be written without these, which are found by halves. The position stays: until
    /// all are through, they come again from the journal. The file says up to where, and to write one twice changes nothing.
    fn write_possible(&mut self, changes: &[AccountingChange]) -> Result<(), StoreError> {
        match self.write_all(changes, self.position) {
            Err(error) if error.is_lasting() && changes.len() <= 1 => {
                error!("accounting leaves out a change that it can never write: {error}");
                return Ok(());
            }
            Err(error) if error.is_lasting() => {}
            result => return result,
        }
        let (first, second) = changes.split_at(changes.len() / 2);
        self.write_possible(first)?;
        self.write_possible(second)
    }
}

impl Store for SqliteStore {
    fn position(&self) -> u64 {
        self.position
    }

    fn write(&mut self, changes: &[AccountingChange], position: u64) -> Result<(), StoreError> {
        match self.write_all(changes, position) {
            Err(error) if error.is_lasting() => {
                schema::set_halves_end(&self.connection, position)?;
                self.halves_end = position;
                self.write_possible(changes)?;
                self.write_all(&[], position)
            }
            result => result,
        }
    }

    fn sync(&mut self) -> Result<u64, StoreError> {
        // A transaction is in the log until a checkpoint has moved it into the file and flushed that, so the log is
        // all there is to flush.
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        let path = PathBuf::from(path);
        match std::fs::File::open(&path) {
            Ok(log) => log
                .sync_all()
                .map_err(|source| StoreError::Sync { path, source })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(StoreError::Sync { path, source }),
        }
        Ok(self.position)
    }
}

fn open_read_only(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Open {
        path: path.to_owned(),
        source,
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    set_up(&connection).map_err(failed)?;
    Ok(connection)
}

/// Makes the file, so that only its owner may read it, or takes it from others. The files that SQLite makes beside it have
/// its mode. What fails here fails in SQLite, which says more.
fn keep_from_others(path: &Path) {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path);
    let _ = file.and_then(|file| file.set_permissions(Permissions::from_mode(0o600)));
    for beside in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(beside);
        // An earlier version may have left them.
        let _ = fs::set_permissions(&name, Permissions::from_mode(0o600));
    }
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans must not depend on parameters: SQLite would prepare statements anew at every execution.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}
