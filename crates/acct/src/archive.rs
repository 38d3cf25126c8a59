//! Files of rows that were purged, which a store of the same origin takes back.
//!
//! A file is the line `muster archive 1`, then parts, each its length (4 bytes, the lowest first) and that many bytes of CBOR: the
//! header, one part a row, and at the end, after the length 0, the number of rows (8 bytes) and the CRC-32 of all before it (4
//! bytes). What is added to the format later are fields and kinds of rows; a reader that does not know a kind says so.

use crc32fast::Hasher;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::spec::ArraySpec;
use muster_model::time::Timestamp;
use muster_proto::acct::{
    AcctJob, AcctStep, JobTextKind, LoggedTransaction, NodeEvent, ReservationRecord,
};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};

/// The first line.
const MAGIC: &[u8] = b"muster archive 1\n";
/// Bytes of a part at most: a job may have tens of thousands of steps.
const PART_BYTES_MAX: u32 = 256 << 20;

/// Subject of a file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ArchiveHeader {
    /// The cluster.
    #[n(0)]
    pub cluster: String,
    /// The database that the rows are of, as in [`crate::CopySource::origin`].
    #[n(1)]
    pub origin: i64,
    /// The kind of the rows, as in [`crate::PurgeKind::name`].
    #[n(2)]
    pub what: String,
    /// When it was written.
    #[n(3)]
    pub written: Timestamp,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Archived {
    /// A time in which a node was out of service.
    #[n(0)]
    Event(#[n(0)] NodeEvent),
    /// A run with its steps and suspensions.
    #[n(1)]
    Job(#[n(0)] Box<ArchivedJob>),
    /// A step of a run.
    #[n(2)]
    Step {
        /// The run's row.
        #[n(0)]
        row: i64,
        /// The step.
        #[n(1)]
        step: Box<AcctStep>,
    },
    /// A suspension of a run.
    #[n(3)]
    Suspension {
        /// The run's row.
        #[n(0)]
        row: i64,
        /// Since when.
        #[n(1)]
        start: Timestamp,
        /// Until when.
        #[n(2)]
        end: Option<Timestamp>,
    },
    /// A change of accounting's records.
    #[n(4)]
    Transaction(#[n(0)] LoggedTransaction),
    /// A sum of use.
    #[n(5)]
    Used(#[n(0)] Box<ArchivedUsage>),
    /// A sum of a node's outages.
    #[n(6)]
    Out {
        /// Length of its period: 0 an hour, 1 a day, 2 a month.
        #[n(0)]
        length: u8,
        /// When that begins.
        #[n(1)]
        begin: Timestamp,
        /// The node.
        #[n(2)]
        node: String,
        /// Milliseconds.
        #[n(3)]
        out_ms: i64,
    },
    /// A time of a reservation.
    #[n(7)]
    Reservation(#[n(0)] ReservationRecord),
}

/// A run.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ArchivedJob {
    /// Its row.
    #[n(0)]
    pub row: i64,
    /// The run, with its steps.
    #[n(1)]
    pub job: AcctJob,
    /// Tasks that never started and are in its record.
    #[n(2)]
    pub array: Option<ArraySpec>,
    /// Times in which it was suspended, and were over.
    #[n(3)]
    pub suspensions: Vec<(Timestamp, Timestamp)>,
    /// Its script and environment, where they are kept.
    #[n(4)]
    #[cbor(default)]
    pub texts: Vec<ArchivedText>,
}

/// A script or an environment that a job was submitted with.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ArchivedText {
    /// Which of them.
    #[n(0)]
    pub kind: JobTextKind,
    /// Hash that distinguishes its content.
    #[n(1)]
    pub key: ByteVec,
    /// The content; absent where an earlier row of the file has it.
    #[n(2)]
    pub bytes: Option<ByteVec>,
}

/// The use in an hour, a day or a month, as [`crate::UsedSum`] has it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ArchivedUsage {
    /// 0 an hour, 1 a day, 2 a month.
    #[n(0)]
    pub length: u8,
    /// When that begins.
    #[n(1)]
    pub begin: Timestamp,
    /// The account.
    #[n(2)]
    pub account: String,
    /// The user's number.
    #[n(3)]
    pub uid: u32,
    /// Names of the user and the group, as the store has them.
    #[n(4)]
    pub owner: ByteVec,
    /// Workload characterization key; empty for none.
    #[n(5)]
    pub wckey: String,
    /// The device; empty for what all jobs have.
    #[n(6)]
    pub device: String,
    /// Run times, milliseconds.
    #[n(7)]
    pub run_ms: i64,
    /// Run times multiplied by CPUs.
    #[n(8)]
    pub cpu_ms: i64,
    /// Times MiB of memory.
    #[n(9)]
    pub mem_mib_ms: i64,
    /// Times nodes.
    #[n(10)]
    pub node_ms: i64,
    /// CPUs that were waited for.
    #[n(11)]
    pub planned_cpu_ms: i64,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The system's error.
    #[error("cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("this is not an archive of Muster's, or is one of a later release")]
    Foreign,
    /// A part is malformed, or is missing.
    #[error("the archive is damaged after {rows} rows: {why}")]
    Damaged {
        /// Rows before it.
        rows: u64,
        /// The error.
        why: &'static str,
    },
}

/// Writes a file.
pub struct ArchiveWriter<W: Write> {
    out: W,
    crc: Hasher,
    rows: u64,
    /// Keys of texts that the file has.
    texts: BTreeSet<ByteVec>,
}

impl<W: Write> ArchiveWriter<W> {
    /// Begins with the header.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(out: W, header: &ArchiveHeader) -> io::Result<ArchiveWriter<W>> {
        let mut writer = ArchiveWriter {
            out,
            crc: Hasher::new(),
            rows: 0,
            texts: BTreeSet::new(),
        };
        writer.put(MAGIC)?;
        writer.part(header)?;
        Ok(writer)
    }

    /// Adds a row. A text that many jobs have is written with the first of them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, mut row: Archived) -> io::Result<()> {
        if let Archived::Job(job) = &mut row {
            for text in &mut job.texts {
                if !self.texts.insert(text.key.clone()) {
                    text.bytes = None;
                }
            }
        }
        self.part(&row)?;
        self.rows += 1;
        Ok(())
    }

    /// Ends the file, and gives its writer back.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.put(&0_u32.to_le_bytes())?;
        let rows = self.rows;
        self.put(&rows.to_le_bytes())?;
        let crc = self.crc.clone().finalize();
        self.out.write_all(&crc.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn part<T: Encode<()>>(&mut self, value: &T) -> io::Result<()> {
        let bytes = minicbor::to_vec(value).map_err(io::Error::other)?;
        let length = u32::try_from(bytes.len()).ok();
        let length = length.filter(|length| *length <= PART_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("a row is too long for an archive"))?;
        self.put(&length.to_le_bytes())?;
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.out.write_all(bytes)
    }
}

/// Reads a file.
pub struct ArchiveReader<R: Read> {
    input: R,
    crc: Hasher,
    rows: u64,
    header: ArchiveHeader,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is none of Muster's, or damaged.
    pub fn begin(input: R) -> Result<ArchiveReader<R>, ArchiveError> {
        let mut reader = ArchiveReader {
            input,
            crc: Hasher::new(),
            rows: 0,
            header: ArchiveHeader {
                cluster: String::new(),
                origin: 0,
                what: String::new(),
                written: Timestamp(0),
            },
        };
        let magic: [u8; MAGIC.len()] = reader.take().map_err(|_| ArchiveError::Foreign)?;
        if magic != MAGIC {
            return Err(ArchiveError::Foreign);
        }
        let header = reader.part()?;
        reader.header = header.ok_or_else(|| reader.damaged("it has no header"))?;
        Ok(reader)
    }

    /// Its header.
    pub fn header(&self) -> &ArchiveHeader {
        &self.header
    }

    /// The next row; none after the last, when all has been found to be as it was written.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read.
    pub fn next_row(&mut self) -> Result<Option<Archived>, ArchiveError> {
        if let Some(row) = self.part()? {
            self.rows += 1;
            return Ok(Some(row));
        }
        let rows = u64::from_le_bytes(self.take()?);
        let expected = self.crc.clone().finalize();
        let found = u32::from_le_bytes(self.take()?);
        match (rows == self.rows, found == expected) {
            (true, true) => Ok(None),
            (false, _) => Err(self.damaged("rows are missing")),
            (_, false) => Err(self.damaged("its checksum is another")),
        }
    }

    fn damaged(&self, why: &'static str) -> ArchiveError {
        let rows = self.rows;
        ArchiveError::Damaged { rows, why }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ArchiveError> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged("it ends too early"));
            }
            Err(e) => return Err(e.into()),
        }
        self.crc.update(&bytes);
        Ok(bytes)
    }

    /// A part; none where its length is 0.
    fn part<T: for<'b> Decode<'b, ()>>(&mut self) -> Result<Option<T>, ArchiveError> {
        let length = u32::from_le_bytes(self.take()?);
        if length == 0 {
            return Ok(None);
        }
        if length > PART_BYTES_MAX {
            return Err(self.damaged("a row is too long"));
        }
        // Only as much as there is is held in memory.
        let mut bytes = Vec::new();
        let read = (&mut self.input)
            .take(length.into())
            .read_to_end(&mut bytes)?;
        if u32::try_from(read) != Ok(length) {
            return Err(self.damaged("it ends too early"));
        }
        self.crc.update(&bytes);
        let mut decoder = minicbor::Decoder::new(&bytes);
        let value = decoder.decode();
        match value {
            Ok(value) if decoder.position() == bytes.len() => Ok(Some(value)),
            _ => Err(self.damaged("a row cannot be read, or is of a later release")),
        }
    }
}
