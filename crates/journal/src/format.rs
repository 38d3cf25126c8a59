//! The bytes of format 1: headers of segments and snapshots, headers of records, and their
//! checksums. `docs/formats/journal.md` has the layout in words. All integers are little-endian.
//! Nothing here does I/O.

use crc32fast::Hasher;

use crate::{Batch, Error, LogId, Position};

/// The format that this release writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 1;
/// Length of the header of a segment or snapshot file, bytes.
pub(crate) const FILE_HEADER: usize = 64;
/// Length of the header of a record, bytes.
pub(crate) const RECORD_HEADER: usize = 32;
/// Records start at multiples of this, bytes.
pub(crate) const ALIGN: usize = 8;

const RECORD_MAGIC: u16 = u16::from_le_bytes(*b"JM");
const FLAG_LAST: u8 = 1;

/// Which kind of file a file header stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment,
    Snapshot,
}

impl FileKind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            FileKind::Segment => b"MstrSeg\0",
            FileKind::Snapshot => b"MstrSnp\0",
        }
    }
}

/// Encodes the header of a file that begins with (segment) or stands for (snapshot) `position`.
pub(crate) fn file_header(kind: FileKind, id: LogId, position: Position) -> [u8; FILE_HEADER] {
    let mut out = [0; FILE_HEADER];
    out[0..8].copy_from_slice(kind.magic());
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&(FILE_HEADER as u32).to_le_bytes());
    out[16..32].copy_from_slice(&id.0);
    out[32..40].copy_from_slice(&position.to_le_bytes());
    let crc = crc32fast::hash(&out[..60]);
    out[60..64].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks the header of `file`, whose name says that it has `position`.
pub(crate) fn check_file_header(
    bytes: &[u8],
    kind: FileKind,
    id: LogId,
    position: Position,
    file: &str,
) -> Result<(), Error> {
    let bad = |offset: u64, what: &str| Error::BadFile {
        file: file.to_owned(),
        offset,
        what: what.to_owned(),
    };
    if bytes.len() < FILE_HEADER {
        return Err(bad(bytes.len() as u64, "the file ends inside its header"));
    }
    if bytes[0..8] != kind.magic()[..] {
        return Err(bad(0, "the header does not begin as it should"));
    }
    // The length and checksum sit at the same place in every format, the version may be newer.
    if u32_at(bytes, 60) != crc32fast::hash(&bytes[..60]) {
        return Err(bad(0, "the header's checksum does not match"));
    }
    let found = u32_at(bytes, 8);
    if found != VERSION {
        return Err(Error::Version {
            file: file.to_owned(),
            found,
            supported: VERSION,
        });
    }
    if bytes[16..32] != id.0[..] {
        return Err(bad(
            16,
            "the file belongs to another journal (its log id differs)",
        ));
    }
    if u64_at(bytes, 32) != position {
        return Err(bad(
            32,
            "the file's name and header name different positions",
        ));
    }
    Ok(())
}

/// Checksums of a file start from this, so that bytes of another log, of another segment, or
/// written into a payload by someone who wants to fake a record never look valid.
pub(crate) fn seed(id: LogId, position: Position) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&id.0);
    hasher.update(&position.to_le_bytes());
    hasher.finalize()
}

/// CRC-32 that goes on from `initial`.
pub(crate) fn crc(initial: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(initial);
    hasher.update(bytes);
    hasher.finalize()
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A record of the caller.
    Data,
    /// Written, not synced, after each commit: all positions below its own are durable.
    Mark,
    /// Written at the end of a segment when the next one exists.
    Seal,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    /// Last of its batch.
    pub(crate) last: bool,
    /// Payload length, bytes.
    pub(crate) len: u32,
    pub(crate) position: Position,
    /// Records of the same batch before this one.
    pub(crate) back: u32,
    /// CRC-32 of the payload, going on from the seed.
    pub(crate) payload_crc: u32,
}

impl RecordHeader {
    /// A mark or seal that says: all positions below `position` are durable.
    pub(crate) fn marker(kind: RecordKind, position: Position) -> RecordHeader {
        RecordHeader {
            kind,
            last: false,
            len: 0,
            position,
            back: 0,
            payload_crc: 0,
        }
    }

    /// All positions below this were durable when the record was written: a batch is written only
    /// after the batch before it was synced.
    pub(crate) fn durable_before(&self) -> Position {
        self.position.saturating_sub(u64::from(self.back))
    }

    pub(crate) fn encode(&self, seed: u32) -> [u8; RECORD_HEADER] {
        let mut out = [0; RECORD_HEADER];
        out[0..2].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        out[2] = match self.kind {
            RecordKind::Data => 1,
            RecordKind::Mark => 2,
            RecordKind::Seal => 3,
        };
        out[3] = if self.last { FLAG_LAST } else { 0 };
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8..16].copy_from_slice(&self.position.to_le_bytes());
        out[16..20].copy_from_slice(&self.back.to_le_bytes());
        out[24..28].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc(seed, &out[..28]);
        out[28..32].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a header; `None` if these bytes are none. `bytes` has at least `RECORD_HEADER`.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Option<RecordHeader> {
        if u16_at(bytes, 0) != RECORD_MAGIC || u32_at(bytes, 28) != crc(seed, &bytes[..28]) {
            return None;
        }
        let kind = match bytes[2] {
            1 => RecordKind::Data,
            2 => RecordKind::Mark,
            3 => RecordKind::Seal,
            _ => return None,
        };
        Some(RecordHeader {
            kind,
            last: bytes[3] & FLAG_LAST != 0,
            len: u32_at(bytes, 4),
            position: u64_at(bytes, 8),
            back: u32_at(bytes, 16),
            payload_crc: u32_at(bytes, 24),
        })
    }
}

/// Length of a record with a payload of `len` bytes, header and padding included.
pub(crate) fn framed_len(len: usize) -> usize {
    (RECORD_HEADER + len).next_multiple_of(ALIGN)
}

/// Encodes a batch whose first record gets `first` to the end of `out`.
pub(crate) fn encode_batch(batch: &Batch, first: Position, seed: u32, out: &mut Vec<u8>) {
    let count = batch.len();
    for (index, payload) in batch.iter().enumerate() {
        let header = RecordHeader {
            kind: RecordKind::Data,
            last: index + 1 == count,
            len: u32::try_from(payload.len()).expect("the caller checked max_record_bytes"),
            position: first + index as u64,
            back: u32::try_from(index).expect("the caller checked the batch's length"),
            payload_crc: crc(seed, payload),
        };
        out.extend_from_slice(&header.encode(seed));
        out.extend_from_slice(payload);
        out.resize(out.len().next_multiple_of(ALIGN), 0);
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a range of 4 bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a range of 8 bytes"))
}
