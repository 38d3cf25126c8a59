//! Snapshots: the caller's state at a position, so that the log before it can go. A snapshot is
//! written as a stream by any thread while the log goes on, in blocks that are checksummed in a
//! chain; the file gets its name only when it is durable. It deliberately knows nothing of what
//! the bytes mean.

use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::format::{self, FILE_HEADER, FileKind};
use crate::storage::{Storage, StorageFile, read_full};
use crate::{Error, LogId, Position};

/// Payload of a full block, bytes.
const BLOCK: usize = 256 << 10;
/// A snapshot is synced in pieces of this length, bytes: one large sync at the end would hold up
/// the log's own syncs on the same disk.
const SYNC_EVERY: u64 = 8 << 20;
/// Length (u32) and checksum (u32) of a block.
const BLOCK_HEADER: usize = 8;
/// The end: a block header with length 0, then the total payload length (u64).
const TRAILER: usize = BLOCK_HEADER + 8;

const PREFIX: &str = "snapshot-";

/// Name of the snapshot file at `position`.
pub(crate) fn file_name(position: Position) -> String {
    format!("{PREFIX}{position:020}")
}

/// The position in a snapshot file's name.
pub(crate) fn parse_name(name: &str) -> Option<Position> {
    let digits = name.strip_prefix(PREFIX)?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

/// Takes a snapshot's bytes; dropped before [`SnapshotWriter::finish`], it leaves nothing behind.
pub struct SnapshotWriter {
    storage: Arc<dyn Storage>,
    file: Box<dyn StorageFile>,
    id: LogId,
    position: Position,
    block: Vec<u8>,
    offset: u64,
    synced: u64,
    total: u64,
    crc: u32,
    /// The file's name, until the log can rely on it.
    unfinished: Option<String>,
    /// Lets the log see that a snapshot is under way.
    token: Arc<()>,
}

/// A snapshot that is durable; give it to [`crate::Log::finish_snapshot`].
pub struct FinishedSnapshot {
    pub(crate) id: LogId,
    pub(crate) position: Position,
    pub(crate) _token: Arc<()>,
}

impl SnapshotWriter {
    pub(crate) fn start(
        storage: Arc<dyn Storage>,
        id: LogId,
        position: Position,
        token: Arc<()>,
    ) -> Result<SnapshotWriter, Error> {
        let path = format!("{}/{}.tmp", storage.location(), file_name(position));
        let file = storage
            .create(&format!("{}.tmp", file_name(position)))
            .map_err(|error| Error::io("create", path.clone(), error))?;
        let mut writer = SnapshotWriter {
            storage,
            file,
            id,
            position,
            block: Vec::with_capacity(BLOCK_HEADER + BLOCK),
            offset: FILE_HEADER as u64,
            synced: 0,
            total: 0,
            crc: format::seed(id, position),
            unfinished: Some(format!("{}.tmp", file_name(position))),
            token,
        };
        writer.block.resize(BLOCK_HEADER, 0);
        let header = format::file_header(FileKind::Snapshot, id, position);
        let written = writer.file.write_all_at(&header, 0);
        written.map_err(|error| Error::io("write", path, error))?;
        Ok(writer)
    }

    /// The position that the snapshot stands for: it holds the effect of all records up to it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Makes the snapshot durable. From now on a restart uses it, also if
    /// [`crate::Log::finish_snapshot`] is never called.
    pub fn finish(mut self) -> Result<FinishedSnapshot, Error> {
        let name = file_name(self.position);
        let path = format!("{}/{name}", self.storage.location());
        let io = |op| {
            let path = path.clone();
            move |error| Error::io(op, path, error)
        };
        self.write_block().map_err(io("write"))?;
        let total = self.total.to_le_bytes();
        let mut trailer = [0; TRAILER];
        trailer[4..8].copy_from_slice(&format::crc(self.crc, &total).to_le_bytes());
        trailer[8..16].copy_from_slice(&total);
        self.file
            .write_all_at(&trailer, self.offset)
            .map_err(io("write"))?;
        self.file.sync().map_err(io("sync"))?;
        self.storage
            .rename(&format!("{name}.tmp"), &name)
            .map_err(io("rename"))?;
        self.unfinished = Some(name);
        self.storage
            .sync_dir()
            .map_err(io("sync the directory of"))?;
        self.unfinished = None;
        Ok(FinishedSnapshot {
            id: self.id,
            position: self.position,
            _token: Arc::clone(&self.token),
        })
    }

    fn write_block(&mut self) -> io::Result<()> {
        let payload = &self.block[BLOCK_HEADER..];
        if payload.is_empty() {
            return Ok(());
        }
        let len = payload.len() as u32;
        let crc = format::crc(self.crc, payload);
        self.block[0..4].copy_from_slice(&len.to_le_bytes());
        self.block[4..8].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&self.block, self.offset)?;
        self.offset += self.block.len() as u64;
        self.total += u64::from(len);
        self.crc = crc;
        self.block.truncate(BLOCK_HEADER);
        if self.offset - self.synced >= SYNC_EVERY {
            self.file.sync()?;
            self.synced = self.offset;
        }
        Ok(())
    }
}

impl Write for SnapshotWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.block.len() == BLOCK_HEADER + BLOCK {
            self.write_block()?;
        }
        let len = data.len().min(BLOCK_HEADER + BLOCK - self.block.len());
        self.block.extend_from_slice(&data[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if let Some(name) = &self.unfinished {
            // The log does not know it, and would never remove it. It may fail: the next open removes the rest.
            let _ = self.storage.remove(name);
        }
    }
}

/// A snapshot's bytes, read as a stream. It was checked as a whole before it was handed out, and
/// each block is checked again as it is read.
pub struct SnapshotReader {
    file: Box<dyn StorageFile>,
    path: String,
    position: Position,
    len: u64,
    offset: u64,
    crc: u32,
    total: u64,
    block: Vec<u8>,
    at: usize,
    ended: bool,
}

impl SnapshotReader {
    /// Opens and checks the snapshot at `position`.
    pub(crate) fn open(
        storage: &dyn Storage,
        id: LogId,
        position: Position,
    ) -> Result<SnapshotReader, Error> {
        let name = file_name(position);
        let path = format!("{}/{name}", storage.location());
        let io = |op| {
            let path = path.clone();
            move |error| Error::io(op, path, error)
        };
        let file = storage.open(&name).map_err(io("open"))?;
        let len = file.size().map_err(io("read"))?;
        let mut header = [0; FILE_HEADER];
        let got = read_full(file.as_ref(), &mut header, 0).map_err(io("read"))?;
        format::check_file_header(&header[..got], FileKind::Snapshot, id, position, &path)?;
        let mut reader = SnapshotReader {
            file,
            path,
            position,
            len,
            offset: 0,
            crc: 0,
            total: 0,
            block: Vec::new(),
            at: 0,
            ended: false,
        };
        reader.rewind(id);
        while !reader.ended {
            reader.next_block()?;
        }
        reader.rewind(id);
        Ok(reader)
    }

    /// The position that the snapshot stands for.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    fn rewind(&mut self, id: LogId) {
        self.offset = FILE_HEADER as u64;
        self.crc = format::seed(id, self.position);
        self.total = 0;
        self.block.clear();
        self.at = 0;
        self.ended = false;
    }

    fn next_block(&mut self) -> Result<(), Error> {
        let mut header = [0; BLOCK_HEADER];
        self.fetch(&mut header)?;
        let len = format::u32_at(&header, 0) as usize;
        let at_end = len == 0;
        if len > BLOCK {
            return Err(self.bad("a block is longer than blocks are"));
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize(if at_end { 8 } else { len }, 0);
        self.offset += BLOCK_HEADER as u64;
        self.fetch(&mut block)?;
        let crc = format::crc(self.crc, &block);
        if crc != format::u32_at(&header, 4) {
            return Err(self.bad("the checksum of the block before this byte does not match"));
        }
        self.offset += block.len() as u64;
        self.crc = crc;
        self.at = 0;
        if at_end {
            if format::u64_at(&block, 0) != self.total || self.offset != self.len {
                return Err(self.bad("the length is not what the end of the file says"));
            }
            block.clear();
            self.ended = true;
        }
        self.total += block.len() as u64;
        self.block = block;
        Ok(())
    }

    fn fetch(&self, buf: &mut [u8]) -> Result<(), Error> {
        let got = read_full(self.file.as_ref(), buf, self.offset)
            .map_err(|error| Error::io("read", self.path.clone(), error))?;
        if got < buf.len() {
            return Err(self.bad("the file ends inside a block"));
        }
        Ok(())
    }

    fn bad(&self, what: &str) -> Error {
        Error::BadFile {
            file: self.path.clone(),
            offset: self.offset,
            what: what.to_owned(),
        }
    }
}

impl Read for SnapshotReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() && !self.ended {
            self.next_block()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        let len = buf.len().min(self.block.len() - self.at);
        buf[..len].copy_from_slice(&self.block[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}
