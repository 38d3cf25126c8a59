//! Reads a journal back: which snapshot, which segments, where the log ends, and whether what
//! stands there is a torn tail or damage (the reasoning is in the crate's documentation). Changes
//! nothing on disk; the caller cuts the tail once all is well.

use std::sync::Arc;

use crate::format::{RECORD_HEADER, RecordKind};
use crate::segment::{SegmentEntry, SegmentReader};
use crate::snapshot::SnapshotReader;
use crate::storage::{Storage, StorageFile};
use crate::{Error, LogId, Position, segment, snapshot};

/// State that [`crate::FileLog::open`] read back.
pub struct RecoveredLog {
    /// The newest usable snapshot.
    pub snapshot: Option<SnapshotReader>,
    /// The records after it.
    pub records: RecordReader,
    /// Rest of a batch that a crash cut off and that was never acknowledged, now removed.
    pub torn: Option<TornTail>,
    /// Warnings for the administrator although all records are there.
    pub warnings: Vec<String>,
}

/// A batch that was being written when the controller or its machine went down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment file.
    pub file: String,
    /// Where it was cut, bytes from the start of the file.
    pub offset: u64,
    /// Bytes that were written behind that place.
    pub bytes: u64,
    /// Position of the first record that is not there; it is given out again.
    pub position: Position,
}

/// The files of a journal directory, sorted.
#[derive(Default)]
pub(crate) struct Files {
    /// First positions of the segments.
    pub(crate) segments: Vec<Position>,
    /// Positions of the snapshots.
    pub(crate) snapshots: Vec<Position>,
    /// Names of files that were not finished.
    pub(crate) unfinished: Vec<String>,
    /// The identity file is there.
    pub(crate) identity: bool,
}

impl Files {
    pub(crate) fn list(storage: &dyn Storage) -> std::io::Result<Files> {
        let mut files = Files::default();
        for name in storage.list()? {
            if let Some(first) = segment::parse_name(&name) {
                files.segments.push(first);
            } else if let Some(position) = snapshot::parse_name(&name) {
                files.snapshots.push(position);
            } else if name == crate::identity::FILE {
                files.identity = true;
            } else if name.strip_suffix(".tmp").is_some_and(is_ours) {
                files.unfinished.push(name);
            }
        }
        files.segments.sort_unstable();
        files.snapshots.sort_unstable();
        Ok(files)
    }
}

fn is_ours(name: &str) -> bool {
    name == crate::identity::FILE
        || segment::parse_name(name).is_some()
        || snapshot::parse_name(name).is_some()
}

/// Everything that opening a log needs to know.
pub(crate) struct Scan {
    pub(crate) recovered: RecoveredLog,
    /// The last segment: file, first position, end of the last whole batch, length of the file.
    pub(crate) file: Box<dyn StorageFile>,
    pub(crate) path: String,
    pub(crate) end: u64,
    pub(crate) len: u64,
    /// Offset of the last whole batch if nothing shows that it is durable.
    pub(crate) doubtful: Option<u64>,
    /// Position that the next record gets.
    pub(crate) next: Position,
    /// Snapshots that are damaged.
    pub(crate) bad_snapshots: Vec<Position>,
}

/// Scans the journal with the given files (at least one segment).
pub(crate) fn scan(storage: &Arc<dyn Storage>, id: LogId, files: &Files) -> Result<Scan, Error> {
    let ChosenSnapshot { snapshot, flaws } = choose_snapshot(storage.as_ref(), id, files)?;
    let base = snapshot.as_ref().map_or(0, SnapshotReader::position);
    let warnings = flaws
        .iter()
        .map(|(_, flaw)| format!("{flaw}. The controller starts from an older state"))
        .collect();
    let bad_snapshots = flaws.iter().map(|&(position, _)| position).collect();
    let needed = match needed_segments(storage.as_ref(), &files.segments, base) {
        Ok(needed) => needed,
        // The segments are gone because of the newest snapshot, so that is the error.
        Err(missing) => return Err(flaws.into_iter().next().map_or(missing, |(_, flaw)| flaw)),
    };
    let mut parts = Vec::with_capacity(needed.len());
    for pair in needed.windows(2) {
        let mut reader = SegmentReader::open(storage.as_ref(), id, pair[0])?;
        let walked = walk(&mut reader, pair[0], Some(pair[1]))?;
        if walked.expected != pair[1] || !walked.at_boundary {
            return Err(inside_flaw(
                storage.as_ref(),
                &mut reader,
                &walked,
                pair[1],
            )?);
        }
        parts.push(SegmentExtent {
            first: pair[0],
            end: walked.end,
        });
    }
    let first = *needed.last().expect("needed_segments returns at least one");
    let mut reader = SegmentReader::open(storage.as_ref(), id, first)?;
    let walked = walk(&mut reader, first, None)?;
    let torn = judge_tail(storage.as_ref(), &mut reader, &walked)?;
    let next = walked.batch_first;
    if let Some(&newest) = files.snapshots.last()
        && newest >= next
    {
        return Err(Error::Missing {
            dir: storage.location(),
            first: next,
            last: newest,
            what: format!(
                "the log ends before them, yet {} was made after them",
                snapshot::file_name(newest)
            ),
        });
    }
    parts.push(SegmentExtent {
        first,
        end: walked.end,
    });
    let records = RecordReader {
        storage: Arc::clone(storage),
        id,
        parts,
        part: 0,
        reader: None,
        base,
        next,
        at: base,
    };
    let (path, len) = (reader.path().to_owned(), reader.file_len());
    Ok(Scan {
        recovered: RecoveredLog {
            snapshot,
            records,
            torn,
            warnings,
        },
        file: reader.into_file(),
        path,
        end: walked.end,
        len,
        doubtful: (!matches!(walked.why, Stop::Mark)).then_some(walked.last_whole),
        next,
        bad_snapshots,
    })
}

struct ChosenSnapshot {
    snapshot: Option<SnapshotReader>,
    /// The damaged snapshots that are newer, the newest first.
    flaws: Vec<(Position, Error)>,
}

/// The newest snapshot that is whole. An older one, or none, is as good as long as the segments
/// after it are there; `needed_segments` sees to that.
fn choose_snapshot(
    storage: &dyn Storage,
    id: LogId,
    files: &Files,
) -> Result<ChosenSnapshot, Error> {
    let mut flaws = Vec::new();
    for &position in files.snapshots.iter().rev() {
        match SnapshotReader::open(storage, id, position) {
            Ok(reader) => {
                return Ok(ChosenSnapshot {
                    snapshot: Some(reader),
                    flaws,
                });
            }
            Err(flaw @ Error::BadFile { .. }) => flaws.push((position, flaw)),
            Err(error) => return Err(error),
        }
    }
    Ok(ChosenSnapshot {
        snapshot: None,
        flaws,
    })
}

/// The segments that hold the records after `base`.
fn needed_segments<'a>(
    storage: &dyn Storage,
    segments: &'a [Position],
    base: Position,
) -> Result<&'a [Position], Error> {
    let start = segments.iter().rposition(|&first| first <= base + 1);
    let Some(start) = start else {
        let first = segments[0];
        return Err(Error::Missing {
            dir: storage.location(),
            first: base + 1,
            last: first - 1,
            what: format!("the oldest segment is {}", segment::file_name(first)),
        });
    };
    Ok(&segments[start..])
}

/// How far whole batches go in a segment.
struct Walked {
    /// Position that was expected where reading stopped.
    expected: Position,
    /// First position of the batch in which that was.
    batch_first: Position,
    /// Offset of the batch that was begun last.
    batch_start: u64,
    /// Offset of the last whole batch; `end` if there is none.
    last_whole: u64,
    /// Offset after the last whole batch.
    end: u64,
    /// Reading stopped between two batches.
    at_boundary: bool,
    /// Offset where reading stopped.
    stopped: u64,
    why: Stop,
}

enum Stop {
    /// The positions of the next segment begin.
    Next,
    Mark,
    Seal,
    Flaw(String),
}

fn walk(
    reader: &mut SegmentReader,
    first: Position,
    until: Option<Position>,
) -> Result<Walked, Error> {
    let mut walked = Walked {
        expected: first,
        batch_first: first,
        batch_start: reader.offset(),
        last_whole: reader.offset(),
        end: reader.offset(),
        at_boundary: true,
        stopped: 0,
        why: Stop::Next,
    };
    loop {
        walked.stopped = reader.offset();
        if walked.at_boundary {
            walked.end = reader.offset();
            walked.batch_first = walked.expected;
            if until.is_some_and(|until| walked.expected >= until) {
                return Ok(walked);
            }
        }
        let header = match reader.next()? {
            SegmentEntry::Record(header, _) => header,
            SegmentEntry::Flaw(flaw) => {
                walked.why = Stop::Flaw(flaw.to_owned());
                return Ok(walked);
            }
        };
        let continues =
            header.position == walked.expected && header.durable_before() == walked.batch_first;
        walked.why = match header.kind {
            RecordKind::Data if continues => {
                walked.expected += 1;
                if header.back == 0 {
                    walked.batch_start = walked.stopped;
                }
                walked.at_boundary = header.last;
                if header.last {
                    walked.last_whole = walked.batch_start;
                }
                continue;
            }
            RecordKind::Mark if continues && walked.at_boundary => Stop::Mark,
            RecordKind::Seal if continues && walked.at_boundary => Stop::Seal,
            _ => Stop::Flaw(format!("the record there has position {}", header.position)),
        };
        return Ok(walked);
    }
}

/// The error for a segment that does not lead up to the next one, which begins with `next`.
fn inside_flaw(
    storage: &dyn Storage,
    reader: &mut SegmentReader,
    walked: &Walked,
    next: Position,
) -> Result<Error, Error> {
    let following = segment::file_name(next);
    if walked.expected > next {
        return Ok(Error::BadFile {
            file: reader.path().to_owned(),
            offset: walked.stopped,
            what: format!(
                "it holds positions up to {}, yet {following} begins with {next}",
                walked.expected - 1
            ),
        });
    }
    let flaw = match &walked.why {
        Stop::Flaw(flaw) => flaw.as_str(),
        Stop::Next | Stop::Mark | Stop::Seal => "",
    };
    let after = reader.search(walked.stopped, walked.batch_first)?;
    let clean = matches!(walked.why, Stop::Mark | Stop::Seal);
    if walked.at_boundary && after.proof.is_none() && (clean || after.used_end == walked.stopped) {
        return Ok(Error::Missing {
            dir: storage.location(),
            first: walked.expected,
            last: next - 1,
            what: format!(
                "{} ends before them and {following} begins after them",
                reader.path()
            ),
        });
    }
    Ok(Error::Damaged {
        file: reader.path().to_owned(),
        offset: walked.stopped,
        position: walked.expected,
        keep: walked.end,
        what: format!("{flaw}; the records after it are in {following}, so it was durable once"),
    })
}

/// Decides about the end of the last segment: a clean end, a torn tail, or damage.
fn judge_tail(
    storage: &dyn Storage,
    reader: &mut SegmentReader,
    walked: &Walked,
) -> Result<Option<TornTail>, Error> {
    let (flaw, from) = match &walked.why {
        Stop::Next => unreachable!("a walk without an end position does not stop at one"),
        Stop::Seal => {
            return Err(Error::Missing {
                dir: storage.location(),
                first: walked.expected,
                last: walked.expected,
                what: format!("{} says that another segment follows it", reader.path()),
            });
        }
        Stop::Mark => (
            "the log seems to end",
            walked.stopped + RECORD_HEADER as u64,
        ),
        Stop::Flaw(flaw) => (flaw.as_str(), walked.stopped),
    };
    let rest = reader.search(from, walked.batch_first)?;
    if let Some((offset, header)) = rest.proof {
        return Err(Error::Damaged {
            file: reader.path().to_owned(),
            offset: walked.stopped,
            position: walked.expected,
            keep: walked.end,
            what: format!(
                "{flaw}; the record header at byte {offset} shows that all positions before {} \
                 were durable once",
                header.durable_before()
            ),
        });
    }
    let torn = rest.used_end > from || !walked.at_boundary;
    Ok(torn.then(|| TornTail {
        file: reader.path().to_owned(),
        offset: walked.end,
        bytes: rest.used_end - walked.end,
        position: walked.batch_first,
    }))
}

struct SegmentExtent {
    first: Position,
    /// Offset of the end of the last whole batch.
    end: u64,
}

/// The records after the snapshot, in order. They are read from the files as they are asked for.
pub struct RecordReader {
    storage: Arc<dyn Storage>,
    id: LogId,
    parts: Vec<SegmentExtent>,
    part: usize,
    reader: Option<SegmentReader>,
    base: Position,
    next: Position,
    at: Position,
}

impl RecordReader {
    /// Position of the first record, if there is any: one more than the snapshot's.
    #[must_use]
    pub fn first_position(&self) -> Position {
        self.base + 1
    }

    /// Position of the last record; one less than [`RecordReader::first_position`] if there is none.
    #[must_use]
    pub fn last_position(&self) -> Position {
        self.next - 1
    }

    /// The next record, in a buffer that the next call overwrites.
    pub fn next_record(&mut self) -> Result<Option<(Position, &[u8])>, Error> {
        while self.at + 1 < self.next {
            let part = &self.parts[self.part];
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => none.insert(SegmentReader::open(
                    self.storage.as_ref(),
                    self.id,
                    part.first,
                )?),
            };
            let offset = reader.offset();
            if offset >= part.end {
                self.part += 1;
                self.reader = None;
                continue;
            }
            match reader.next()? {
                SegmentEntry::Record(header, _) if header.position <= self.base => {}
                SegmentEntry::Record(header, range) if header.position == self.at + 1 => {
                    self.at += 1;
                    let reader = self.reader.as_ref().expect("it was used just now");
                    return Ok(Some((self.at, reader.payload(range))));
                }
                SegmentEntry::Record(..) | SegmentEntry::Flaw(_) => {
                    return Err(Error::BadFile {
                        file: reader.path().to_owned(),
                        offset,
                        what: "the record was good a moment ago: the disk gives different bytes \
                               each time, or someone changes the file"
                            .to_owned(),
                    });
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for RecordReader {
    type Item = Result<(Position, Vec<u8>), Error>;

    /// Like [`RecordReader::next_record`], with a copy of the record.
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.next_record().transpose()?;
        Some(record.map(|(position, record)| (position, record.to_vec())))
    }
}
