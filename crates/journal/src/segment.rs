//! Reads one segment file record by record, and searches the rest of one for headers that prove durable records.
//! `recover` decides the meaning of a flaw.

use std::ops::Range;

use crate::format::{
    self, ALIGN, FILE_HEADER, FileKind, RECORD_HEADER, RecordHeader, RecordKind, framed_len,
};
use crate::storage::{Storage, StorageFile, read_full};
use crate::{Error, LogId, Position};

const PREFIX: &str = "segment-";
/// Bytes read at a time.
const READ_AHEAD: usize = 256 << 10;

/// Name of the segment file whose first record has `first`.
pub(crate) fn file_name(first: Position) -> String {
    format!("{PREFIX}{first:020}")
}

/// The first position in a segment file's name.
pub(crate) fn parse_name(name: &str) -> Option<Position> {
    let digits = name.strip_prefix(PREFIX)?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

/// Reads a segment in order.
pub(crate) struct SegmentReader {
    file: Box<dyn StorageFile>,
    path: String,
    seed: u32,
    len: u64,
    offset: u64,
    buf: Vec<u8>,
    /// Offset in the file of `buf[0]`.
    base: u64,
}

/// Entry at the reader's offset.
pub(crate) enum SegmentEntry {
    /// A valid record; the range is for [`SegmentReader::payload`] until the next call.
    Record(RecordHeader, Range<usize>),
    /// No valid record, and why.
    Flaw(&'static str),
}

/// Evidence in the rest of a segment.
pub(crate) struct Rest {
    /// Offset and header of a record that proves more durable than was asked.
    pub(crate) proof: Option<(u64, RecordHeader)>,
    /// End of the last byte that is not zero; the start of the search if all are zero.
    pub(crate) used_end: u64,
}

impl SegmentReader {
    /// Opens the segment that begins with `first` and checks its header.
    pub(crate) fn open(
        storage: &dyn Storage,
        id: LogId,
        first: Position,
    ) -> Result<SegmentReader, Error> {
        let name = file_name(first);
        let path = format!("{}/{name}", storage.location());
        let file = storage
            .open(&name)
            .map_err(|error| Error::io("open", path.clone(), error))?;
        let len = file
            .size()
            .map_err(|error| Error::io("read", path.clone(), error))?;
        let mut reader = SegmentReader {
            file,
            path,
            seed: format::seed(id, first),
            len,
            offset: 0,
            buf: Vec::new(),
            base: 0,
        };
        let path = reader.path.clone();
        let header = reader.window(FILE_HEADER)?;
        format::check_file_header(header, FileKind::Segment, id, first, &path)?;
        reader.offset = FILE_HEADER as u64;
        Ok(reader)
    }

    /// True if the file holds nothing behind its header.
    pub(crate) fn is_unused(file: Box<dyn StorageFile>) -> std::io::Result<bool> {
        let mut bytes = vec![0; READ_AHEAD];
        let mut offset = FILE_HEADER as u64;
        loop {
            match read_full(file.as_ref(), &mut bytes, offset)? {
                0 => return Ok(true),
                got if bytes[..got].iter().any(|&byte| byte != 0) => return Ok(false),
                got => offset += got as u64,
            }
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Length of the file when it was opened, bytes.
    pub(crate) fn file_len(&self) -> u64 {
        self.len
    }

    /// Where the next record begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn into_file(self) -> Box<dyn StorageFile> {
        self.file
    }

    /// Reads the record at the offset and goes on behind it if it is valid.
    pub(crate) fn next(&mut self) -> Result<SegmentEntry, Error> {
        let seed = self.seed;
        let bytes = self.window(RECORD_HEADER)?;
        if bytes.len() < RECORD_HEADER {
            return Ok(SegmentEntry::Flaw("the file ends"));
        }
        let Some(header) = RecordHeader::decode(bytes, seed) else {
            let zero = bytes.iter().all(|&byte| byte == 0);
            return Ok(SegmentEntry::Flaw(if zero {
                "there are zeros"
            } else {
                "no record header"
            }));
        };
        let len = header.len as usize;
        let framed = framed_len(len);
        if self.len - self.offset < framed as u64 {
            return Ok(SegmentEntry::Flaw("the file ends inside the record"));
        }
        let bytes = self.window(framed)?;
        if bytes.len() < framed {
            return Ok(SegmentEntry::Flaw("the file ends inside the record"));
        }
        let payload = &bytes[RECORD_HEADER..RECORD_HEADER + len];
        if header.kind == RecordKind::Data && format::crc(seed, payload) != header.payload_crc {
            return Ok(SegmentEntry::Flaw("the payload's checksum does not match"));
        }
        let start = (self.offset - self.base) as usize + RECORD_HEADER;
        self.offset += framed as u64;
        Ok(SegmentEntry::Record(header, start..start + len))
    }

    /// The payload that [`SegmentEntry::Record`] described.
    pub(crate) fn payload(&self, range: Range<usize>) -> &[u8] {
        &self.buf[range]
    }

    /// Searches from `from` to the end of the file for a header which proves that position
    /// `above` was durable.
    pub(crate) fn search(&mut self, from: u64, above: Position) -> Result<Rest, Error> {
        if from < self.base || from > self.base + self.buf.len() as u64 {
            self.buf.clear();
            self.base = from;
        }
        self.offset = from;
        let mut rest = Rest {
            proof: None,
            used_end: from,
        };
        let seed = self.seed;
        loop {
            let offset = self.offset;
            let bytes = self.window(RECORD_HEADER)?;
            if bytes.is_empty() {
                return Ok(rest);
            }
            let step = &bytes[..bytes.len().min(ALIGN)];
            if let Some(last) = step.iter().rposition(|&byte| byte != 0) {
                rest.used_end = offset + last as u64 + 1;
                if rest.proof.is_none()
                    && bytes.len() == RECORD_HEADER
                    && let Some(header) = RecordHeader::decode(bytes, seed)
                    && header.durable_before() > above
                {
                    rest.proof = Some((offset, header));
                }
            }
            self.offset += step.len() as u64;
        }
    }

    /// Up to `want` bytes at the offset; fewer only at the end of the file.
    fn window(&mut self, want: usize) -> Result<&[u8], Error> {
        let mut start = (self.offset - self.base) as usize;
        if self.buf.len() - start < want {
            self.buf.drain(..start);
            self.base = self.offset;
            start = 0;
            let have = self.buf.len();
            // Never more than the file has: small files are the rule in simulations.
            let left = self.len.saturating_sub(self.offset).min(READ_AHEAD as u64) as usize;
            self.buf.resize(want.max(left), 0);
            let got = read_full(
                self.file.as_ref(),
                &mut self.buf[have..],
                self.base + have as u64,
            )
            .map_err(|error| Error::io("read", self.path.clone(), error))?;
            self.buf.truncate(have + got);
        }
        Ok(&self.buf[start..self.buf.len().min(start + want)])
    }
}
