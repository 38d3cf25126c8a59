//! The log in a directory: creation, opening, appends, segment changes and the cut after a
//! snapshot. See the crate's documentation for the promises and `docs/formats/journal.md` for the
//! files.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use crate::error::{means_full, means_no_descriptor};
use crate::format::{self, FILE_HEADER, FileKind, RECORD_HEADER, RecordHeader, RecordKind};
use crate::identity::Identity;
use crate::recover::{self, Files, RecoveredLog};
use crate::segment::{self, SegmentReader};
use crate::snapshot::{self, FinishedSnapshot, SnapshotWriter};
use crate::storage::dir::DirStorage;
use crate::storage::{Lock, Storage, StorageFile, read_full};
use crate::{Batch, Error, Log, LogId, Position};

/// Space is zeroed ahead only for batches up to this share of it: zeroing writes every byte twice,
/// which pays where many small batches share one growth of the file and costs where few large ones
/// do.
const AHEAD_PER_BATCH: u64 = 32;
/// Memory that is kept for the next batch, bytes.
const KEEP_BUFFER: usize = 4 << 20;

/// Settings of a [`FileLog`]; they may change from one opening to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A segment takes no further batch beyond this length, bytes. A batch that is larger on its
    /// own gets a larger segment.
    pub segment_bytes: u64,
    /// How far the file is filled with zeros ahead of small batches, bytes; 0 for not at all. A
    /// sync is cheaper where it need not write a new file length and new extents.
    pub ahead_bytes: u64,
    /// The largest record, bytes.
    pub max_record_bytes: u32,
    /// Snapshots to keep, at least 1. With 2, a damaged newest snapshot costs nothing.
    pub keep_snapshots: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            ahead_bytes: 1 << 20,
            max_record_bytes: 64 << 20,
            keep_snapshots: 2,
        }
    }
}

/// A log in a directory. Dropping it gives the lock back.
pub struct FileLog {
    storage: Arc<dyn Storage>,
    options: Options,
    identity: Identity,
    active: Active,
    /// Position that the next record gets.
    next: Position,
    /// First positions of all segments, the active one last.
    segments: Vec<Position>,
    /// Positions of all snapshots, ascending.
    snapshots: Vec<Position>,
    /// Alive while a snapshot is being written.
    snapshot: Weak<()>,
    /// Set by the error after which nothing may be appended.
    stopped: Option<String>,
    buffer: Vec<u8>,
    /// Dropped last: the lock outlives the open files.
    _lock: Box<dyn Send>,
}

/// The segment that takes appends.
struct Active {
    file: Box<dyn StorageFile>,
    path: String,
    seed: u32,
    /// End of the last durable batch.
    end: u64,
    /// Length of the file; zeros from `end` on.
    len: u64,
}

impl FileLog {
    /// Creates a journal for `cluster` in an empty or missing directory.
    pub fn create_dir(dir: &Path, cluster: &str, options: Options) -> Result<FileLog, Error> {
        let storage = DirStorage::new(dir);
        let io = |op| move |error| Error::io(op, dir.display().to_string(), error);
        storage.make_dir().map_err(io("create directory"))?;
        let id = LogId::random().map_err(|error| Error::io("read", "/dev/urandom", error))?;
        FileLog::create(Arc::new(storage), cluster, id, options)
    }

    /// Opens the journal of `cluster` in a directory.
    pub fn open_dir(
        dir: &Path,
        cluster: &str,
        options: Options,
    ) -> Result<(FileLog, RecoveredLog), Error> {
        FileLog::open(Arc::new(DirStorage::new(dir)), cluster, options)
    }

    /// True if there is a journal, or any part of one: then open it, or show why it cannot be
    /// opened; never create one in its place.
    pub fn exists(storage: &dyn Storage) -> Result<bool, Error> {
        match Files::list(storage) {
            Ok(files) => Ok(files.identity
                || !files.snapshots.is_empty()
                || files.segments.iter().any(|&first| first != 1)
                || files.segments == [1] && !is_unused_segment(storage)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("list", storage.location(), error)),
        }
    }

    /// Creates a journal for `cluster`. `id` must be new and random: see [`LogId::random`].
    pub fn create(
        storage: Arc<dyn Storage>,
        cluster: &str,
        id: LogId,
        options: Options,
    ) -> Result<FileLog, Error> {
        let identity = Identity::new(cluster, id)?;
        let lock = lock(storage.as_ref())?;
        if FileLog::exists(storage.as_ref())? {
            let what = "journal.id, segments or snapshots".to_owned();
            return Err(Error::Exists {
                dir: storage.location(),
                what,
            });
        }
        let active = new_segment(storage.as_ref(), id, 1, &options)?;
        // The identity comes last: with it the journal exists.
        identity.write(storage.as_ref())?;
        Ok(FileLog {
            storage,
            options,
            identity,
            active,
            next: 1,
            segments: vec![1],
            snapshots: vec![],
            snapshot: Weak::new(),
            stopped: None,
            buffer: Vec::new(),
            _lock: lock,
        })
    }

    /// Opens the journal of `cluster`: checks all of it that a restart needs, removes a torn tail,
    /// and returns what there is to read.
    pub fn open(
        storage: Arc<dyn Storage>,
        cluster: &str,
        options: Options,
    ) -> Result<(FileLog, RecoveredLog), Error> {
        let dir = storage.location();
        let no_state = |what: &str| Error::NoState {
            dir: dir.clone(),
            what: what.to_owned(),
        };
        match Files::list(storage.as_ref()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(no_state("there is no such directory"));
            }
            Err(error) => return Err(Error::io("list", dir, error)),
        }
        let lock = lock(storage.as_ref())?;
        let files =
            Files::list(storage.as_ref()).map_err(|error| Error::io("list", dir.clone(), error))?;
        if !files.identity {
            let empty = files.segments.is_empty() && files.snapshots.is_empty();
            return Err(no_state(if empty {
                "the file journal.id is missing"
            } else {
                "the file journal.id is missing although there are segments or snapshots"
            }));
        }
        let identity = Identity::read(storage.as_ref())?;
        if identity.cluster != cluster {
            let (found, wanted) = (identity.cluster, cluster.to_owned());
            return Err(Error::OtherCluster { dir, found, wanted });
        }
        if files.segments.is_empty() {
            return Err(no_state(
                "journal.id is there, but every segment file is gone",
            ));
        }
        let scan = recover::scan(&storage, identity.id, &files)?;
        let first = *files.segments.last().expect("checked above");
        // A damaged snapshot does not count as one that is kept.
        let snapshots = files
            .snapshots
            .iter()
            .copied()
            .filter(|at| !scan.bad_snapshots.contains(at));
        let active = Active {
            file: scan.file,
            path: scan.path,
            seed: format::seed(identity.id, first),
            end: scan.end,
            len: scan.len,
        };
        let mut log = FileLog {
            storage,
            options,
            identity,
            active,
            next: scan.next,
            snapshots: snapshots.collect(),
            segments: files.segments,
            snapshot: Weak::new(),
            stopped: None,
            buffer: Vec::new(),
            _lock: lock,
        };
        log.settle(scan.recovered.torn.is_some(), scan.doubtful)?;
        log.tidy(&files.unfinished)?;
        Ok((log, scan.recovered))
    }

    /// The cluster that the journal was created for.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.identity.cluster
    }

    /// The journal's id.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.identity.id
    }

    /// Removes a torn tail, and makes durable what will be handed out as recovered. After the
    /// death of a process its last writes may be in memory only; after a failed sync the system
    /// even takes them for written, so a batch in doubt is written once more.
    fn settle(&mut self, torn: bool, doubtful: Option<u64>) -> Result<(), Error> {
        let active = &mut self.active;
        let path = active.path.clone();
        let io = |op| {
            let path = path.clone();
            move |error| Error::io(op, path, error)
        };
        if torn {
            active.file.set_len(active.end).map_err(io("cut"))?;
            active.len = active.end;
        }
        if let Some(start) = doubtful {
            let mut batch = vec![0; (active.end - start) as usize];
            read_full(active.file.as_ref(), &mut batch, start).map_err(io("read"))?;
            active
                .file
                .write_all_at(&batch, start)
                .map_err(io("write"))?;
        }
        active
            .file
            .sync()
            .map_err(|source| active.sync_failed(source))?;
        // The mark is durable here: what an earlier controller failed to take back, and this one
        // did not see, cannot come back behind it.
        let mark = RecordHeader::marker(RecordKind::Mark, self.next).encode(active.seed);
        match active.file.write_all_at(&mark, active.end) {
            Err(error) if !means_full(&error) => return Err(io("write")(error)),
            Err(_) => {}
            Ok(()) => active.len = active.len.max(active.end + mark.len() as u64),
        }
        active
            .file
            .sync()
            .map_err(|source| active.sync_failed(source))
    }

    /// Removes files that were not finished.
    fn tidy(&self, unfinished: &[String]) -> Result<(), Error> {
        for name in unfinished {
            self.storage
                .remove(name)
                .map_err(|error| self.io("remove", name, error))?;
        }
        let synced = self.storage.sync_dir();
        synced.map_err(|error| Error::io("sync the directory", self.storage.location(), error))
    }

    fn io(&self, op: &'static str, name: &str, error: io::Error) -> Error {
        Error::io(op, format!("{}/{name}", self.storage.location()), error)
    }

    /// Remembers an error after which the log takes no more appends.
    fn stop(&mut self, error: Error) -> Error {
        self.stopped = Some(error.to_string());
        error
    }

    /// Writes `buffer` (a batch) behind the last one and syncs.
    fn write_batch(&mut self) -> Result<(), Error> {
        let batch = self.buffer.len() as u64;
        let end = self.active.end;
        let mut len = self.active.len;
        let with_mark = end + batch + RECORD_HEADER as u64;
        if with_mark > len {
            let ahead = self.options.ahead_bytes;
            len = if batch <= ahead / AHEAD_PER_BATCH {
                // The next segment begins at the limit: no zeros beyond.
                with_mark
                    .next_multiple_of(ahead)
                    .min(self.options.segment_bytes)
                    .max(with_mark)
            } else {
                with_mark
            };
            // The zeros go out in the same write.
            self.buffer.resize((len - end) as usize, 0);
        }
        let mut written = self.active.file.write_all_at(&self.buffer, end);
        if written.as_ref().is_err_and(means_full) && self.buffer.len() as u64 > batch {
            // There may be room for the batch alone.
            self.buffer.truncate(batch as usize);
            len = self.active.len.max(end + batch);
            written = self.active.file.write_all_at(&self.buffer, end);
        }
        if let Err(source) = written {
            return Err(self.take_back(source, batch));
        }
        if let Err(source) = self.active.file.sync() {
            let error = self.active.sync_failed(source);
            return Err(self.stop(error));
        }
        self.active.end += batch;
        self.active.len = len;
        Ok(())
    }

    /// After a failed write: removes, durably, what there may be of the batch, so that it cannot
    /// come back at the next start after it was refused.
    fn take_back(&mut self, source: io::Error, needed: u64) -> Error {
        let file = self.active.path.clone();
        let undone = self
            .active
            .file
            .set_len(self.active.end)
            .and_then(|()| self.active.file.sync());
        self.active.len = self.active.end;
        match undone {
            Ok(()) if means_full(&source) => Error::Full {
                file,
                needed,
                source,
            },
            // A disk that fails a write will hardly keep the next one.
            Ok(()) => self.stop(Error::io("write", file, source)),
            Err(undo) => self.stop(Error::io("take back a failed write to", file, undo)),
        }
    }

    /// Goes on in a new segment.
    fn change_segment(&mut self) -> Result<(), Error> {
        let first = self.next;
        let new = match new_segment(
            self.storage.as_ref(),
            self.identity.id,
            first,
            &self.options,
        ) {
            Ok(new) => new,
            Err(error) if error.is_temporary() => return Err(error),
            Err(error) => return Err(self.stop(error)),
        };
        let old = std::mem::replace(&mut self.active, new);
        self.segments.push(first);
        let seal = RecordHeader::marker(RecordKind::Seal, first).encode(old.seed);
        match old.file.write_all_at(&seal, old.end) {
            // The seal only helps to notice that the next segment is gone.
            Err(error) if means_full(&error) => return Ok(()),
            Err(error) => {
                let error = Error::io("seal", old.path, error);
                return Err(self.stop(error));
            }
            Ok(()) => {}
        }
        let synced = old.file.sync();
        synced.map_err(|source| self.stop(old.sync_failed(source)))
    }
}

impl Log for FileLog {
    fn append(&mut self, batch: &Batch) -> Result<Position, Error> {
        if let Some(reason) = &self.stopped {
            return Err(Error::Stopped {
                reason: reason.clone(),
            });
        }
        if batch.is_empty() {
            return Ok(self.last_position());
        }
        let max = self.options.max_record_bytes;
        let mut needed = 0;
        for (index, record) in batch.iter().enumerate() {
            if record.len() > max as usize {
                return Err(Error::TooLarge {
                    index,
                    len: record.len(),
                    max,
                });
            }
            needed += format::framed_len(record.len()) as u64;
        }
        let has_records = self.active.end > FILE_HEADER as u64;
        if has_records && self.active.end + needed > self.options.segment_bytes {
            self.change_segment()?;
        }
        self.buffer.clear();
        self.buffer.shrink_to(KEEP_BUFFER);
        format::encode_batch(batch, self.next, self.active.seed, &mut self.buffer);
        self.write_batch()?;
        self.next += batch.len() as u64;
        self.active.mark(self.next);
        Ok(self.last_position())
    }

    fn last_position(&self) -> Position {
        self.next - 1
    }

    fn start_snapshot(&mut self, position: Position) -> Result<SnapshotWriter, Error> {
        let refuse = |what| Err(Error::Snapshot { position, what });
        if self.snapshot.strong_count() > 0 {
            return refuse("another snapshot is under way");
        }
        if position > self.last_position() {
            return refuse("the log does not reach that position yet");
        }
        if self
            .snapshots
            .last()
            .is_some_and(|&newest| position <= newest)
        {
            return refuse("there is a snapshot of that position or a later one");
        }
        if position == 0 {
            return refuse("there is nothing before the first record");
        }
        let token = Arc::new(());
        self.snapshot = Arc::downgrade(&token);
        SnapshotWriter::start(Arc::clone(&self.storage), self.identity.id, position, token)
    }

    fn finish_snapshot(&mut self, snapshot: FinishedSnapshot) -> Result<(), Error> {
        let position = snapshot.position;
        if snapshot.id != self.identity.id {
            return Err(Error::Snapshot {
                position,
                what: "it belongs to another journal",
            });
        }
        self.snapshots.push(position);
        while self.snapshots.len() > self.options.keep_snapshots.max(1) {
            let name = snapshot::file_name(self.snapshots[0]);
            self.storage
                .remove(&name)
                .map_err(|error| self.io("remove", &name, error))?;
            self.snapshots.remove(0);
        }
        let oldest = self.snapshots[0];
        while self
            .segments
            .get(1)
            .is_some_and(|&first| first <= oldest + 1)
        {
            let name = segment::file_name(self.segments[0]);
            self.storage
                .remove(&name)
                .map_err(|error| self.io("remove", &name, error))?;
            self.segments.remove(0);
        }
        let synced = self.storage.sync_dir();
        synced.map_err(|error| Error::io("sync the directory", self.storage.location(), error))
    }
}

impl Active {
    /// Writes, without a sync, that everything before `next` is durable. It is only a help in case
    /// of damage, so it needs no room of its own and may fail.
    fn mark(&mut self, next: Position) {
        if self.end + RECORD_HEADER as u64 <= self.len {
            let mark = RecordHeader::marker(RecordKind::Mark, next).encode(self.seed);
            let _ = self.file.write_all_at(&mark, self.end);
        }
    }

    fn sync_failed(&self, source: io::Error) -> Error {
        Error::SyncFailed {
            file: self.path.clone(),
            source,
        }
    }
}

fn lock(storage: &dyn Storage) -> Result<Box<dyn Send>, Error> {
    match storage.lock() {
        Ok(Lock::Held(lock)) => Ok(lock),
        Ok(Lock::Busy(pid)) => Err(Error::Locked {
            dir: storage.location(),
            pid,
        }),
        Err(error) => Err(Error::io("lock", storage.location(), error)),
    }
}

/// Makes the segment that begins with `first`. It gets its name when its header is durable, so a
/// segment with a bad header is always damage.
fn new_segment(
    storage: &dyn Storage,
    id: LogId,
    first: Position,
    options: &Options,
) -> Result<Active, Error> {
    let name = segment::file_name(first);
    let temporary = format!("{name}.tmp");
    let path = format!("{}/{name}", storage.location());
    let header = format::file_header(FileKind::Segment, id, first);
    let mut content = header.to_vec();
    content.resize(
        options
            .ahead_bytes
            .min(options.segment_bytes)
            .max(header.len() as u64) as usize,
        0,
    );
    let write = || {
        let file = storage.create(&temporary)?;
        let mut written = file.write_all_at(&content, 0);
        let mut len = content.len();
        if written.as_ref().is_err_and(means_full) {
            len = header.len();
            written = file.set_len(0).and_then(|()| file.write_all_at(&header, 0));
        }
        written
            .and_then(|()| file.sync())
            .map(|()| (file, len as u64))
    };
    let (file, len) = match write() {
        Ok(new) => new,
        Err(source) => {
            // Best effort: the next open removes the rest.
            let _ = storage.remove(&temporary);
            let needed = header.len() as u64;
            return Err(if means_full(&source) {
                Error::Full {
                    file: path,
                    needed,
                    source,
                }
            } else if means_no_descriptor(&source) {
                Error::NoDescriptor { file: path, source }
            } else {
                Error::io("create", path, source)
            });
        }
    };
    storage
        .rename(&temporary, &name)
        .map_err(|error| Error::io("rename", path.clone(), error))?;
    storage
        .sync_dir()
        .map_err(|error| Error::io("sync the directory", storage.location(), error))?;
    Ok(Active {
        file,
        path,
        seed: format::seed(id, first),
        end: header.len() as u64,
        len,
    })
}

/// A first segment that holds nothing: what a creation left that did not come to its end.
fn is_unused_segment(storage: &dyn Storage) -> Result<bool, Error> {
    let name = segment::file_name(1);
    let io = |error| Error::io("read", format!("{}/{name}", storage.location()), error);
    let file = storage.open(&name).map_err(io)?;
    SegmentReader::is_unused(file).map_err(io)
}
