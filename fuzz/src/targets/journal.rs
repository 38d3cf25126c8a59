//! Recovery of a journal whose files were damaged: it never panics, and never gives records that were not written.

use muster_journal::{Batch, FileLog, Log, LogId, MemStorage, Options, RecoveredLog};
use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

const CLUSTER: &str = "test";

fn options() -> Options {
    Options {
        segment_bytes: 1024,
        ahead_bytes: 256,
        max_record_bytes: 1 << 16,
        keep_snapshots: 2,
    }
}

/// Files of a journal, and its records.
struct Whole {
    files: Vec<(String, Vec<u8>)>,
    records: Vec<Vec<u8>>,
}

static WHOLE: LazyLock<Whole> = LazyLock::new(|| {
    let memory = MemStorage::new();
    let id = LogId(*b"0123456789abcdef");
    let mut log =
        FileLog::create(Arc::new(memory.clone()), CLUSTER, id, options()).expect("created");
    let mut records = Vec::new();
    for number in 0..30u8 {
        let mut batch = Batch::new();
        for part in 0..=number % 3 {
            let record = vec![number ^ part; 10 + usize::from(number) * 7 % 90];
            batch.push(&record);
            records.push(record);
        }
        log.append(&batch).expect("appended");
        if number == 14 {
            let mut snapshot = log.start_snapshot(records.len() as u64).expect("started");
            snapshot.write_all(&records.concat()).expect("written");
            let snapshot = snapshot.finish().expect("finished");
            log.finish_snapshot(snapshot).expect("kept");
        }
    }
    drop(log);
    let names = names(&memory);
    let file = |name: String| memory.contents(&name).map(|bytes| (name, bytes));
    Whole {
        files: names.into_iter().filter_map(file).collect(),
        records,
    }
});

fn names(memory: &MemStorage) -> Vec<String> {
    use muster_journal::Storage;
    let mut names = memory.list().unwrap_or_default();
    names.retain(|name| !name.contains("lock"));
    names.sort();
    names
}

/// Damages files: each four bytes of the input name a file, a place in it, and the kind of damage.
fn damaged(data: &[u8]) -> MemStorage {
    let memory = MemStorage::new();
    let mut files = WHOLE.files.clone();
    for edit in data.chunks_exact(4).take(64) {
        let count = files.len().max(1);
        let Some((_, bytes)) = files.get_mut(usize::from(edit[0]) % count) else {
            continue;
        };
        let at = usize::from(edit[1]) << 3 | usize::from(edit[2] & 7);
        match edit[2] >> 5 {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), edit[3]),
            2 if at < bytes.len() => {
                bytes.remove(at);
            }
            3 => bytes.resize(bytes.len() + usize::from(edit[3]), edit[2]),
            // A part of a file over another, as when blocks are mixed up.
            4 if at < bytes.len() => bytes.rotate_left(at),
            5 if at < bytes.len() => {
                let from = bytes[at / 2..at].to_vec();
                let end = (at + from.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&from[..end - at]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= edit[3];
                }
            }
        }
    }
    for (name, bytes) in &files {
        memory.put(name, bytes);
    }
    memory
}

/// Runs the target.
pub(super) fn run(data: &[u8]) {
    let memory = damaged(data);
    let Ok((log, mut recovered)) = FileLog::open(Arc::new(memory), CLUSTER, options()) else {
        return;
    };
    let records = &WHOLE.records;
    let first = match &mut recovered.snapshot {
        None => 0,
        Some(reader) => {
            let position = usize::try_from(reader.position()).unwrap_or(usize::MAX);
            let mut state = Vec::new();
            if reader.read_to_end(&mut state).is_err() {
                return;
            }
            assert!(
                position <= records.len(),
                "a snapshot of what was not written"
            );
            assert!(state == records[..position].concat(), "another snapshot");
            position
        }
    };
    follow(&mut recovered, first);
    drop(log);
}

fn follow(recovered: &mut RecoveredLog, first: usize) {
    let mut rest = WHOLE.records[first..].iter();
    while let Ok(Some((_, record))) = recovered.records.next_record() {
        assert!(
            rest.next().is_some_and(|written| written == record),
            "a record that was not written there"
        );
    }
}

/// Inputs to begin with.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let count = u8::try_from(WHOLE.files.len()).unwrap_or(u8::MAX);
    let edits = (0..count).flat_map(|file| (0..8).map(move |kind| vec![file, 20, kind << 5, 0x55]));
    edits.chain([Vec::new()]).collect()
}
