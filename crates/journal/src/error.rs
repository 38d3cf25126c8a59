//! Errors of a journal. Every error names the file (and the byte and position where there is one) and ends with a
//! remedy for the administrator. The caller decides whether to go on: see [`Error::is_full`] for the one that a running
//! controller survives.

use std::io;

use crate::Position;

/// An error of the journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk (or quota) has no room. The log took nothing of the batch and stays usable: a
    /// later append works when there is room again.
    #[error(
        "journal {file}: no room for {needed} bytes ({source}); the batch was refused and \
         nothing of it was kept. Free space on the file system of the journal; appends work \
         again then without a restart"
    )]
    Full {
        /// The file that could not grow.
        file: String,
        /// Bytes that the batch needed.
        needed: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// The process or the system has no descriptor or memory for a new file. The log took nothing of the batch and
    /// stays usable.
    #[error(
        "journal {file}: cannot be created now ({source}); nothing of the batch was kept. It is tried again; raise \
         LimitNOFILE of the controller if this stays"
    )]
    NoDescriptor {
        /// The file.
        file: String,
        /// Error of the system.
        source: io::Error,
    },
    /// An operation of the storage failed.
    #[error("journal {file}: cannot {op}: {source}")]
    Io {
        /// The operation, as a verb.
        op: &'static str,
        /// The file or directory.
        file: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Making data durable failed. After that the state of the disk is unknown (the kernel drops the pages and reports
    /// the error once), so the log takes no more appends.
    #[error(
        "journal {file}: sync failed ({source}); whether the last batch is on disk is unknown, so \
         the journal takes no more appends. Check the disk and restart the controller: it reads \
         back what is really there"
    )]
    SyncFailed {
        /// The file that was synced.
        file: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The log stopped taking appends after an earlier error.
    #[error(
        "the journal takes no more appends since an earlier error: {reason}. Restart the \
         controller once the disk is healthy"
    )]
    Stopped {
        /// The earlier error.
        reason: String,
    },
    /// Bytes that were acknowledged as durable are damaged. Nothing was changed on disk.
    #[error(
        "journal {file} is damaged at byte {offset} (position {position}): {what}. Nothing was \
         changed. Check the disk, and bring the journal back from a copy if there is one. To give \
         up position {position} and everything after it: keep a copy of the directory, cut the \
         file with 'truncate -s {keep} {file}' and move journal files with higher numbers away"
    )]
    Damaged {
        /// The segment file.
        file: String,
        /// The first byte of the record that is bad, in bytes from the start of the file.
        offset: u64,
        /// The first position that cannot be read.
        position: Position,
        /// Bytes of the file that hold whole batches before the damage.
        keep: u64,
        /// Description of the damage, and the proof that it was durable once.
        what: String,
    },
    /// A file of the journal other than in its records is damaged. Nothing was changed on disk.
    #[error(
        "journal {file} is damaged at byte {offset}: {what}. Nothing was changed. Check the disk, \
         and bring the file back from a copy"
    )]
    BadFile {
        /// The file.
        file: String,
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// Positions are missing between two files. Nothing was changed on disk.
    #[error(
        "journal in {dir}: positions {first} to {last} are missing: {what}. Nothing was changed. \
         Bring the missing segment file back from a copy of the directory"
    )]
    Missing {
        /// The directory.
        dir: String,
        /// First position missing.
        first: Position,
        /// Last position missing; `first` where the end is not known.
        last: Position,
        /// How it is known that they existed.
        what: String,
    },
    /// There is no journal where there should be one, or only a part of it.
    #[error(
        "no journal in {dir}: {what}. A controller without its state must not run: it would lose \
         track of running jobs. Mount or restore the directory; only for a new cluster, create a \
         new journal in an empty directory"
    )]
    NoState {
        /// The directory.
        dir: String,
        /// The missing part.
        what: String,
    },
    /// A journal was to be created where there is one already.
    #[error(
        "{dir} holds a journal already ({what}); open it, or name an empty directory for a new \
         cluster"
    )]
    Exists {
        /// The directory.
        dir: String,
        /// The part found.
        what: String,
    },
    /// Another process has the journal open.
    #[error(
        "journal in {dir} is in use by process {}; stop that controller first",
        .pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string())
    )]
    Locked {
        /// The directory.
        dir: String,
        /// The holder, as it wrote itself into the lock file.
        pid: Option<u32>,
    },
    /// A newer release wrote the file.
    #[error(
        "journal {file} has format {found}; this release reads formats up to {supported}. Start \
         the release that wrote it"
    )]
    Version {
        /// The file.
        file: String,
        /// Format of the file.
        found: u32,
        /// Newest format that this release reads.
        supported: u32,
    },
    /// The journal belongs to another cluster.
    #[error(
        "journal in {dir} belongs to cluster '{found}', not to '{wanted}'; check ClusterName and \
         the state directory"
    )]
    OtherCluster {
        /// The directory.
        dir: String,
        /// The cluster that the journal was created for.
        found: String,
        /// The cluster that wants to open it.
        wanted: String,
    },
    /// A record is larger than the log takes.
    #[error("record {index} of the batch has {len} bytes; the journal takes at most {max} each")]
    TooLarge {
        /// Index in the batch, from 0.
        index: usize,
        /// Its length in bytes.
        len: usize,
        /// [`crate::Options::max_record_bytes`].
        max: u32,
    },
    /// A snapshot cannot be started or installed.
    #[error("snapshot at position {position}: {what}")]
    Snapshot {
        /// The position that it would stand for.
        position: Position,
        /// Why not.
        what: &'static str,
    },
    /// A cluster name that the identity file cannot hold.
    #[error("invalid cluster name '{name}': it is empty or has control characters")]
    BadName {
        /// The name.
        name: String,
    },
}

impl Error {
    /// True for the error that leaves the log usable: refuse the batch and try again later.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Full { .. })
    }

    /// True for errors after which the same append may work a little later without anything being repaired.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Error::Full { .. } | Error::NoDescriptor { .. })
    }

    /// True if the log refused the batch as it is: nothing of it was kept, other batches are taken.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::TooLarge { .. })
    }

    /// Stable code for logs and documentation.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Full { .. } => "M2001",
            Error::Io { .. } => "M2002",
            Error::SyncFailed { .. } => "M2003",
            Error::Stopped { .. } => "M2004",
            Error::Damaged { .. } => "M2005",
            Error::BadFile { .. } => "M2006",
            Error::Missing { .. } => "M2007",
            Error::NoState { .. } => "M2008",
            Error::Exists { .. } => "M2009",
            Error::Locked { .. } => "M2010",
            Error::Version { .. } => "M2011",
            Error::OtherCluster { .. } => "M2012",
            Error::TooLarge { .. } => "M2013",
            Error::Snapshot { .. } => "M2014",
            Error::BadName { .. } => "M2015",
            Error::NoDescriptor { .. } => "M2016",
        }
    }

    pub(crate) fn io(op: &'static str, file: impl Into<String>, source: io::Error) -> Error {
        Error::Io {
            op,
            file: file.into(),
            source,
        }
    }
}

/// True if there was no descriptor or memory to open a file with.
pub(crate) fn means_no_descriptor(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    let number = error.raw_os_error();
    matches!(number, Some(EMFILE | ENFILE)) || error.kind() == io::ErrorKind::OutOfMemory
}

/// True if the error says that the disk, the quota or the allowed file size is used up.
pub(crate) fn means_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
