//! The durable log behind the controller: it takes batches of records (opaque byte strings), makes
//! a batch durable with one write and one sync, reads everything back at start, and takes
//! snapshots so that the log's head can be cut. It knows bytes and positions, not jobs.
//!
//! * [`FileLog`] is the log in a directory; [`Log`] is what the controller sees of it.
//! * [`Storage`] is the file system under it; [`MemStorage`] stands in for one in tests and
//!   simulations, with crashes, torn writes, full disks and failing syncs.
//!
//! # What is promised
//!
//! When [`Log::append`] has returned a position, every record up to it is read back after any
//! crash, in order and once. A batch is read back as a whole or not at all. A batch whose append
//! failed with [`Error::Full`] is never read back. After [`Error::SyncFailed`], or a crash inside
//! an append, it may be there or not; a reader that finds it makes it durable before it hands it
//! out.
//!
//! # The end of the log, or damage?
//!
//! A crash in the middle of a write leaves a batch of which any part may be on disk: the system
//! writes pages in any order, so valid records can stand behind bad ones. Such a torn tail was
//! never acknowledged and is dropped. A bad record that was acknowledged must never be dropped.
//! Telling them apart rests on one rule of the writer: **a batch is written only after the batch
//! before it was synced**. So every record header, which carries its position and how many records
//! of its batch precede it, proves that all positions before its batch were durable once.
//!
//! Reading stops at the first record that is bad or does not continue the one before. Let `q` be
//! the first position of the batch in which that happened. Then
//!
//! 1. if the segment is not the last one, the next segment's name proves that all of this one was
//!    durable: damage (or a missing segment, if this one ends cleanly);
//! 2. else the rest of the segment is searched, at every place where a record could begin, for a
//!    valid header that proves some position `>= q` durable. If there is one: damage, with the
//!    file, byte and position. Nothing is changed on disk;
//! 3. else only the batch `q` and nothing later was being written: a torn tail. The file is cut
//!    after the last whole batch and the loss is reported in [`RecoveredLog::torn`].
//!
//! That leaves the last acknowledged batch, behind which no later batch stands as a proof. So the
//! writer puts a *mark* behind every batch once it is synced: a header without payload that proves
//! the batch durable. The mark is written but not synced, which costs no time, and the next batch
//! overwrites it. Only a loss of power right after a sync, before the mark reaches the disk, and
//! damage to that very batch together can make an acknowledged batch look torn; the report then
//! shows the bytes.
//!
//! A segment that is followed by another ends with a *seal*, so a missing last segment is noticed.
//! Checksums start from the log's random id and the segment's first position: neither bytes of a
//! recycled disk block nor a payload made to look like a record can pass for one.

#![forbid(unsafe_code)]

mod batch;
mod error;
mod file_log;
mod format;
mod identity;
mod log_id;
mod recover;
mod segment;
mod snapshot;
mod storage;

pub use batch::Batch;
pub use error::Error;
pub use file_log::{FileLog, Options};
pub use log_id::LogId;
pub use recover::{RecordReader, RecoveredLog, TornTail};
pub use snapshot::{FinishedSnapshot, SnapshotReader, SnapshotWriter};
pub use storage::dir::DirStorage;
pub use storage::mem::{Crash, MemStorage, Operation};
pub use storage::{Lock, Storage, StorageFile};

/// Sequence number of a record: consecutive, the first record has 1. 0 means "before the first".
pub type Position = u64;

/// The controller's view of a log. One thread owns it.
pub trait Log: Send {
    /// Appends the batch and makes it durable; returns the position of its last record. An empty
    /// batch costs nothing and returns [`Log::last_position`].
    fn append(&mut self, batch: &Batch) -> Result<Position, Error>;

    /// Position of the last durable record; 0 if there is none.
    fn last_position(&self) -> Position;

    /// Starts a snapshot of the state as of `position`, which must be durable. The writer may go
    /// to another thread; appends go on meanwhile. One snapshot at a time.
    fn start_snapshot(&mut self, position: Position) -> Result<SnapshotWriter, Error>;

    /// Cuts the log's head that the finished snapshot makes superfluous. After an error the log
    /// is as usable as before; the files that remain go with the next snapshot.
    fn finish_snapshot(&mut self, snapshot: FinishedSnapshot) -> Result<(), Error>;
}
