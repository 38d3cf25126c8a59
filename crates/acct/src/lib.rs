//! Accounting: what jobs, steps and nodes did, kept after they left the controller's memory.
//!
//! [`changes`] says what an event means for accounting; a [`Store`] writes that together with the journal position
//! it reaches, in one transaction, so that a replay from the stored position writes everything exactly once. A
//! [`Follower`] does the writing on a thread of its own; a [`Reader`] answers sacct without blocking it.
//! The store is SQLite; other databases implement [`Store`] and [`History`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod archive;
mod array_text;
mod change;
mod cut_specs;
mod follower;
mod held_bytes;
mod sqlite;
mod store;
mod window;

pub use archive::{
    ArchiveError, ArchiveHeader, ArchiveReader, ArchiveWriter, Archived, ArchivedJob, ArchivedText,
    ArchivedUsage,
};
pub use change::{
    AccountingChange, JobRow, NodeServiceRow, ReservationRow, RunKey, changes, resync,
};
pub use follower::{FlushTimeout, Follower, FollowerStopped, Health, QueueFull};
pub use sqlite::{
    CopyProgress, CopySource, ImportMark, Imported, ImportedJob, Importer, OutSum, PurgeKind,
    PurgePosition, PurgedRowIds, Purger, Reader, Restored, Restorer, RowKey, Rows, SqliteStore,
    Stage, Suspension, UseKey, UseSum, UsedSum, length_name,
};
pub use store::{History, Interrupter, NoStore, Store, StoreError, Transactions, Use};
