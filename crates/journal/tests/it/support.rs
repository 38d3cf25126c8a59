//! What the journal's tests share: a log in memory, and a model of what must be in it.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::sync::Arc;

use muster_journal::{
    Batch, Error, FileLog, Log, LogId, MemStorage, Options, Position, RecoveredLog, Storage,
};

pub(crate) const CLUSTER: &str = "test";
pub(crate) const ID: LogId = LogId(*b"0123456789abcdef");

/// Small segments, so that a few batches fill several.
pub(crate) fn small() -> Options {
    Options {
        segment_bytes: 4096,
        ahead_bytes: 1024,
        max_record_bytes: 1 << 20,
        keep_snapshots: 2,
    }
}

pub(crate) fn storage(memory: &MemStorage) -> Arc<dyn Storage> {
    Arc::new(memory.clone())
}

pub(crate) fn create(memory: &MemStorage, options: &Options) -> FileLog {
    FileLog::create(storage(memory), CLUSTER, ID, options.clone()).unwrap()
}

pub(crate) fn open(
    memory: &MemStorage,
    options: &Options,
) -> Result<(FileLog, RecoveredLog), Error> {
    FileLog::open(storage(memory), CLUSTER, options.clone())
}

/// A record that says which position it is meant for, so that mix-ups show.
pub(crate) fn record(position: Position, len: usize) -> Vec<u8> {
    let mut record = format!("record {position} ").into_bytes();
    let at = record.len();
    record.resize(at + len, position as u8);
    record
}

pub(crate) fn batch(first: Position, lens: &[usize]) -> (Batch, Vec<Vec<u8>>) {
    let records: Vec<_> = (first..)
        .zip(lens)
        .map(|(at, &len)| record(at, len))
        .collect();
    (records.iter().collect(), records)
}

/// Appends records of the given lengths.
pub(crate) fn append(log: &mut FileLog, lens: &[usize]) -> Result<Position, Error> {
    let (batch, _) = batch(log.last_position() + 1, lens);
    log.append(&batch)
}

/// The state that the tests snapshot: all records so far.
pub(crate) fn encode_state(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(&(record.len() as u32).to_le_bytes());
        out.extend_from_slice(record);
    }
    out
}

pub(crate) fn snapshot(log: &mut FileLog, records: &[Vec<u8>]) -> Result<(), Error> {
    let mut writer = log.start_snapshot(records.len() as Position)?;
    let state = encode_state(records);
    writer.write_all(&state).map_err(snapshot_error)?;
    let finished = writer.finish()?;
    log.finish_snapshot(finished)
}

fn snapshot_error(source: std::io::Error) -> Error {
    Error::Io {
        op: "write or read",
        file: "snapshot".to_owned(),
        source,
    }
}

/// Everything a log holds, snapshot and records after it together.
pub(crate) fn read_all(recovered: &mut RecoveredLog) -> Result<Vec<Vec<u8>>, Error> {
    let mut all = Vec::new();
    if let Some(snapshot) = &mut recovered.snapshot {
        let mut state = Vec::new();
        snapshot.read_to_end(&mut state).map_err(snapshot_error)?;
        let mut rest = &state[..];
        while !rest.is_empty() {
            let (len, tail) = rest.split_at(4);
            let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
            all.push(tail[..len].to_vec());
            rest = &tail[len..];
        }
        assert_eq!(all.len() as Position, snapshot.position());
    }
    while let Some((position, record)) = recovered.records.next_record()? {
        assert_eq!(position, all.len() as Position + 1);
        all.push(record.to_vec());
    }
    assert_eq!(recovered.records.last_position(), all.len() as Position);
    Ok(all)
}
