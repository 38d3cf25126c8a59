//! The operations of an accounting database, whichever it is.

use crate::change::AccountingChange;
use muster_model::ids::JobId;
use muster_model::known_cluster::KnownCluster;
use muster_model::storage::StorageAnswer;
use muster_model::time::Timestamp;
use muster_proto::acct::{
    AcctJob, AcctQuery, JobTextKind, LoggedTransaction, NodeEvent, NodeOutage, ReservationRecord,
    UsageQuery, UsageRow,
};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// The writing side: one owner.
pub trait Store: Send {
    /// The journal position up to which everything is written (visible to readers, see [`Store::sync`]). Callers
    /// skip changes of events at or below it.
    fn position(&self) -> u64;

    /// Writes changes, in order, and the journal position that they reach, in one transaction.
    ///
    /// A change that can never be written is left out: it must not keep those that follow from being written.
    ///
    /// # Errors
    /// What the database says; then the same call may be repeated.
    fn write(&mut self, changes: &[AccountingChange], position: u64) -> Result<(), StoreError>;

    /// Makes written rows survive a loss of power. Returns the position up to which they do. A snapshot of the
    /// controller's state may replace the journal before it only up to here: rows that are written but not synced
    /// are written again from the journal.
    ///
    /// # Errors
    /// Errors of the database or the file system.
    fn sync(&mut self) -> Result<u64, StoreError>;
}

/// Keeps nothing: accounting is switched off.
#[derive(Debug, Default)]
pub struct NoStore {
    position: u64,
}

impl Store for NoStore {
    fn position(&self) -> u64 {
        self.position
    }

    fn write(&mut self, _changes: &[AccountingChange], position: u64) -> Result<(), StoreError> {
        self.position = position;
        Ok(())
    }

    fn sync(&mut self) -> Result<u64, StoreError> {
        Ok(self.position)
    }
}

/// The reading side; any number, none of which blocks the [`Store`].
pub trait History: Send {
    /// Gives the jobs that `query` selects to `page`, at most `page_len` at a time and at least once, by number and
    /// run. All of them are of one moment. Stops early when `page` breaks.
    ///
    /// # Errors
    /// What the database says.
    fn query(
        &mut self,
        query: &AcctQuery,
        page_len: usize,
        page: &mut dyn FnMut(Vec<AcctJob>) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// Ends a question that is being answered, from another thread.
    fn interrupter(&self) -> Interrupter;

    /// Times in which nodes were out of service that touch the window, by start. No names: all nodes.
    ///
    /// # Errors
    /// What the database says; [`StoreError::TooMany`] where one message does not hold them.
    fn node_events(
        &mut self,
        nodes: &[String],
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Result<Vec<NodeEvent>, StoreError>;

    /// The use within a period, by now.
    ///
    /// # Errors
    /// Errors of the database.
    fn usage(&mut self, query: &UsageQuery, now: Timestamp) -> Result<Use, StoreError>;

    /// Times of reservations that touch the window, by start.
    ///
    /// # Errors
    /// What the database says; [`StoreError::TooMany`] where one message does not hold them.
    fn reservations(
        &mut self,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Result<Vec<ReservationRecord>, StoreError>;

    /// A text that a job was submitted with, of the job of this user if one is named; none where it is not kept.
    ///
    /// # Errors
    /// What the database says.
    fn job_text(
        &mut self,
        job: JobId,
        kind: JobTextKind,
        owner: Option<u32>,
    ) -> Result<Option<Vec<u8>>, StoreError>;

    /// Use of file systems by users at the latest scan of each; of one user if it is named.
    ///
    /// # Errors
    /// What the database says.
    fn storage(&mut self, own: Option<&str>) -> Result<StorageAnswer, StoreError>;

    /// Other clusters of the database that accounting is copied to, by name.
    ///
    /// # Errors
    /// What the database says.
    fn known_clusters(&mut self) -> Result<Vec<KnownCluster>, StoreError>;

    /// Changes of accounting's records within a window, of one user if it is named.
    ///
    /// # Errors
    /// What the database says.
    fn transactions(
        &mut self,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
        actor: Option<&str>,
    ) -> Result<Transactions, StoreError>;
}

/// Changes of accounting's records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transactions {
    /// The newest of them, the oldest first.
    pub newest: Vec<LoggedTransaction>,
    /// Whether older ones are left out, since an answer does not hold them.
    pub left_out: bool,
}

/// Ends a running read, which then fails with an error. It does nothing where there is none.
pub struct Interrupter(pub Box<dyn Fn() + Send + Sync>);

/// The use within a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// By account, user and key, in order.
    pub rows: Vec<UsageRow>,
    /// Time that nodes were out of service, by name.
    pub outages: Vec<NodeOutage>,
    /// Since when there is something that accounting knows: the first row, or the store itself.
    pub since: Option<Timestamp>,
}

/// Why accounting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or made.
    #[error(
        "accounting database {}: {source}; check that the directory exists and that SlurmUser may write there",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// Some other program's database.
    #[error("{} is not an accounting database of Muster; name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Written by a newer release.
    #[error(
        "accounting database {} has format {found}, this release knows up to {known}; use the release that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest known here.
        known: i64,
    },
    /// Written by an older release, and only the controller brings it up to date.
    #[error(
        "accounting database {} has format {found}, this release needs {known}: start slurmctld of this release",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The format of this release.
        known: i64,
    },
    /// The database refused.
    #[error("accounting database: {0}")]
    Sql(#[from] rusqlite::Error),
    /// A stored value that cannot be.
    #[error("accounting database: job {job} has a damaged {column} column: {why}")]
    Damaged {
        /// The job.
        job: JobId,
        /// The column.
        column: &'static str,
        /// The error.
        why: String,
    },
    /// An answer would not fit into a message: what there is too much of, and how to ask for less.
    #[error("{0}")]
    TooMany(&'static str),
    /// A number that does not fit the table's key.
    #[error("accounting database: job number {0} is over the highest that can be stored")]
    JobNumber(JobId),
    /// The write-ahead log could not be flushed.
    #[error("accounting database: cannot flush {} to disk: {source}", path.display())]
    Sync {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The thread that writes accounting is gone.
    #[error("accounting has stopped")]
    Stopped,
}

impl StoreError {
    /// Whether the changes themselves are the cause: they fail again, however often they are tried.
    pub(crate) fn is_lasting(&self) -> bool {
        use rusqlite::{Error, ErrorCode};
        match self {
            StoreError::JobNumber(_) | StoreError::Damaged { .. } => true,
            StoreError::Sql(Error::SqliteFailure(failure, _)) => matches!(
                failure.code,
                ErrorCode::ConstraintViolation
                    | ErrorCode::TypeMismatch
                    | ErrorCode::TooBig
                    | ErrorCode::ParameterOutOfRange
            ),
            StoreError::Sql(error) => matches!(
                error,
                Error::ToSqlConversionFailure(_)
                    | Error::FromSqlConversionFailure(..)
                    | Error::IntegralValueOutOfRange(..)
                    | Error::InvalidColumnType(..)
                    | Error::Utf8Error(..)
                    | Error::NulError(_)
            ),
            StoreError::Open { .. }
            | StoreError::TooMany(_)
            | StoreError::Foreign { .. }
            | StoreError::Newer { .. }
            | StoreError::Older { .. }
            | StoreError::Sync { .. }
            | StoreError::Stopped => false,
        }
    }
}
