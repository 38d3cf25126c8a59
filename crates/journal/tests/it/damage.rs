//! Damage and missing files: never silent, named by file, byte and position, and nothing changes
//! on disk.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::support::{
    self, CLUSTER, ID, append, create, encode_state, open, read_all, small, snapshot, storage,
};
use muster_journal::{
    Batch, Crash, Error, FileLog, Log, LogId, MemStorage, Options, RecoveredLog, Storage,
};

const FIRST: &str = "segment-00000000000000000001";

fn names(memory: &MemStorage) -> Vec<String> {
    memory
        .list()
        .unwrap()
        .into_iter()
        .filter(|name| name != "lock")
        .collect()
}

fn fails(memory: &MemStorage) -> Error {
    let before: Vec<_> = names(memory)
        .into_iter()
        .map(|n| memory.contents(&n))
        .collect();
    let error = match open(memory, &small()) {
        Ok((_, mut recovered)) => read_all(&mut recovered).unwrap_err(),
        Err(error) => error,
    };
    let after: Vec<_> = names(memory)
        .into_iter()
        .map(|n| memory.contents(&n))
        .collect();
    assert!(before == after, "the failed open changed files");
    error
}

/// A log of several segments with a snapshot in the middle, and all its records.
fn filled() -> (MemStorage, Vec<Vec<u8>>) {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    let mut records = Vec::new();
    for index in 0..30 {
        let (batch, new) = support::batch(log.last_position() + 1, &[index * 17, 200, 1]);
        log.append(&batch).unwrap();
        records.extend(new);
        if index == 10 {
            snapshot(&mut log, &records).unwrap();
        }
    }
    drop(log);
    (memory, records)
}

#[test]
fn no_flipped_bit_goes_unseen() {
    let (memory, records) = filled();
    let (mut noticed, mut harmless) = (0, 0);
    for name in names(&memory) {
        let bytes = memory.contents(&name).unwrap().len() as u64;
        for byte in 0..bytes {
            let copy = memory.crash(Crash::Process);
            copy.flip_bit(&name, byte * 8 + byte % 8);
            match open(&copy, &small()) {
                Err(_) => noticed += 1,
                // Padding, the mark, or a segment that only the older snapshot would need.
                Ok((_, mut recovered)) => {
                    assert_eq!(read_all(&mut recovered).unwrap(), records, "{name} {byte}");
                    harmless += 1;
                }
            }
        }
    }
    assert!(
        noticed > 10 * harmless / 100 && harmless > 0,
        "{noticed} {harmless}"
    );
}

#[test]
fn without_the_mark_a_flip_costs_at_most_the_last_batch_and_is_reported() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    for _ in 0..3 {
        append(&mut log, &[50, 50]).unwrap();
    }
    let memory = memory.crash(Crash::Power);
    for byte in 64..memory.contents(FIRST).unwrap().len() as u64 {
        let copy = memory.crash(Crash::Process);
        copy.flip_bit(FIRST, byte * 8 + 3);
        match open(&copy, &small()) {
            Err(Error::Damaged { position, .. }) => assert!(position <= 4),
            Err(error) => panic!("{error}"),
            Ok((_, mut recovered)) => match read_all(&mut recovered).unwrap().len() {
                6 => {}
                4 => {
                    let torn = recovered.torn.expect("a report");
                    assert_eq!(torn.position, 5);
                    assert!(torn.bytes > 100, "{torn:?}");
                }
                other => panic!("{other} records"),
            },
        }
    }
}

#[test]
fn damage_in_the_middle_names_file_byte_and_position() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    for _ in 0..3 {
        append(&mut log, &[50, 50]).unwrap();
    }
    drop(log);
    // Records are 32 bytes of header, 9 + 50 of payload and 5 of padding.
    memory.flip_bit(FIRST, (64 + 3 * 96 + 40) * 8);
    let error = fails(&memory);
    let Error::Damaged {
        file,
        offset,
        position,
        keep,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(file.ends_with(FIRST));
    assert_eq!((*offset, *position, *keep), (64 + 3 * 96, 4, 64 + 2 * 96));
    let text = error.to_string();
    assert!(text.contains("truncate -s 256"), "{text}");
}

#[test]
fn a_missing_segment_is_an_error() {
    let (memory, _) = filled();
    let segments: Vec<_> = names(&memory)
        .into_iter()
        .filter(|name| name.starts_with("segment"))
        .collect();
    assert!(segments.len() > 3);
    for (index, name) in segments.iter().enumerate() {
        let copy = memory.crash(Crash::Process);
        copy.remove(name).unwrap();
        if index == 0 {
            // It only holds what the snapshot holds too, or the first needed record.
            let _ = open(&copy, &small());
            continue;
        }
        let error = fails(&copy);
        assert!(matches!(error, Error::Missing { .. }), "{name}: {error}");
    }
    // The seal that shows it is durable before the first record of the next segment is.
    let copy = memory.crash(Crash::Power);
    copy.remove(segments.last().unwrap()).unwrap();
    let error = fails(&copy);
    assert!(
        error.to_string().contains("another segment follows"),
        "{error}"
    );
    let copy = memory.crash(Crash::Process);
    segments.iter().for_each(|name| copy.remove(name).unwrap());
    let error = fails(&copy);
    assert!(matches!(error, Error::NoState { .. }), "{error}");
    assert!(matches!(
        FileLog::create(storage(&copy), CLUSTER, ID, small()),
        Err(Error::Exists { .. })
    ));
    let copy = memory.crash(Crash::Process);
    copy.remove("journal.id").unwrap();
    let error = fails(&copy);
    assert!(error.to_string().contains("although"), "{error}");
    assert!(matches!(
        FileLog::create(storage(&copy), CLUSTER, ID, small()),
        Err(Error::Exists { .. })
    ));
}

#[test]
fn a_cut_segment_is_an_error() {
    let (memory, _) = filled();
    for name in names(&memory)
        .iter()
        .filter(|name| name.starts_with("segment"))
    {
        let bytes = memory.contents(name).unwrap();
        let copy = memory.crash(Crash::Process);
        copy.put(name, &bytes[..40]);
        let error = fails(&copy);
        assert!(matches!(error, Error::BadFile { .. }), "{name}: {error}");
    }
}

#[test]
fn files_of_another_journal_are_refused() {
    let (memory, _) = filled();
    let other = MemStorage::new();
    let id = LogId([7; 16]);
    let mut log = FileLog::create(storage(&other), CLUSTER, id, small()).unwrap();
    append(&mut log, &[10]).unwrap();
    drop(log);
    other.put("journal.id", &memory.contents("journal.id").unwrap());
    let error = fails(&other);
    assert!(error.to_string().contains("another journal"), "{error}");
    assert!(matches!(
        FileLog::open(storage(&memory), "elsewhere", small()),
        Err(Error::OtherCluster { .. })
    ));
}

#[test]
fn a_newer_format_is_refused_by_number() {
    let memory = MemStorage::new();
    drop(create(&memory, &small()));
    let mut bytes = memory.contents(FIRST).unwrap();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    memory.put(FIRST, &bytes);
    assert!(matches!(
        fails(&memory),
        Error::Version {
            found: 2,
            supported: 1,
            ..
        }
    ));
}

/// A user can put anything into a job script, also the bytes of a journal.
#[test]
fn a_payload_cannot_pass_for_a_record() {
    let (other, _) = filled();
    let last = names(&other)
        .into_iter()
        .rfind(|name| name.starts_with("segment"))
        .unwrap();
    let forged = other.contents(&last).unwrap();
    for seed in 0..50 {
        let memory = MemStorage::new();
        let id = LogId([9; 16]);
        let mut log = FileLog::create(storage(&memory), CLUSTER, id, small()).unwrap();
        append(&mut log, &[10]).unwrap();
        memory.halt_at(2);
        log.append(&[&forged[64..]].into_iter().collect::<Batch>())
            .unwrap_err();
        let memory = memory.crash(Crash::Torn(seed));
        let (log, _) = open(&memory, &small()).unwrap();
        assert!(log.last_position() <= 2);
    }
}

#[test]
fn a_second_controller_is_kept_out() {
    let memory = MemStorage::new();
    let log = create(&memory, &small());
    assert!(matches!(open(&memory, &small()), Err(Error::Locked { .. })));
    drop(log);
    open(&memory, &small()).unwrap();
}

#[test]
fn a_damaged_snapshot_falls_back_to_the_one_before() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    let mut records = Vec::new();
    for index in 0..40 {
        let (batch, new) = support::batch(log.last_position() + 1, &[300]);
        log.append(&batch).unwrap();
        records.extend(new);
        if index % 12 == 11 {
            snapshot(&mut log, &records).unwrap();
        }
    }
    drop(log);
    let snapshots: Vec<_> = names(&memory)
        .into_iter()
        .filter(|name| name.starts_with("snapshot"))
        .collect();
    assert_eq!(snapshots.len(), 2);
    assert!(
        !names(&memory).iter().any(|name| name == FIRST),
        "the head was cut"
    );
    memory.flip_bit(&snapshots[1], 8 * 500);
    let (mut log, mut recovered) = open(&memory, &small()).unwrap();
    assert_eq!(recovered.warnings.len(), 1);
    assert_eq!(recovered.snapshot.as_ref().unwrap().position(), 24);
    assert_eq!(read_all(&mut recovered).unwrap(), records);
    // The damaged one does not count as kept.
    append(&mut log, &[1]).unwrap();
    records.push(support::record(41, 1));
    snapshot(&mut log, &records).unwrap();
    assert!(names(&memory).contains(&snapshots[0]));
    drop(log);
    memory.flip_bit("snapshot-00000000000000000041", 8 * 500);
    memory.flip_bit(&snapshots[0], 8 * 500);
    let error = fails(&memory);
    assert!(matches!(error, Error::BadFile { .. }), "{error}");
}

#[test]
fn a_snapshot_is_written_by_another_thread_while_appends_go_on() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    let mut records = Vec::new();
    let mut add = |log: &mut FileLog, count: usize| {
        for _ in 0..count {
            let (batch, new) = support::batch(log.last_position() + 1, &[70_000]);
            log.append(&batch).unwrap();
            records.extend(new);
        }
        records.clone()
    };
    let state = encode_state(&add(&mut log, 20));
    let mut writer = log.start_snapshot(20).unwrap();
    assert!(matches!(
        log.start_snapshot(20),
        Err(Error::Snapshot { .. })
    ));
    let thread = std::thread::spawn(move || {
        writer.write_all(&state).unwrap();
        writer.finish().unwrap()
    });
    add(&mut log, 5);
    log.finish_snapshot(thread.join().unwrap()).unwrap();
    let all = add(&mut log, 5);
    drop(log);
    let (mut log, mut recovered) = open(&memory, &small()).unwrap();
    assert_eq!(recovered.records.first_position(), 21);
    assert_eq!(read_all(&mut recovered).unwrap(), all);

    // One that is given up leaves nothing, and the next may begin.
    drop(log.start_snapshot(25).unwrap());
    assert!(!names(&memory).iter().any(|name| name.ends_with(".tmp")));
    assert!(log.start_snapshot(31).is_err());
    log.start_snapshot(30).unwrap();
}

/// It stayed for good: the log knows only snapshots that were finished.
#[test]
fn a_snapshot_whose_name_is_not_durable_is_removed() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    let (batch, records) = support::batch(1, &[100]);
    log.append(&batch).unwrap();
    let mut writer = log.start_snapshot(1).unwrap();
    writer.write_all(&encode_state(&records)).unwrap();
    // After a block, the end, their sync and the new name.
    memory.fail_at(5, std::io::ErrorKind::StorageFull);
    let error = writer.finish().err().unwrap().to_string();
    assert!(error.contains("sync the directory of"), "{error}");
    let left = names(&memory);
    assert!(
        !left.iter().any(|name| name.contains("snapshot")),
        "{left:?}"
    );
    support::snapshot(&mut log, &records).unwrap();
}

#[test]
fn limits_and_empty_batches() {
    let memory = MemStorage::new();
    let options = Options {
        max_record_bytes: 100,
        ..small()
    };
    let mut log = create(&memory, &options);
    assert_eq!(log.append(&Batch::new()).unwrap(), 0);
    let error = log
        .append(&[vec![0; 3], vec![0; 101]].iter().collect())
        .unwrap_err();
    assert!(matches!(
        error,
        Error::TooLarge {
            index: 1,
            len: 101,
            max: 100
        }
    ));
    assert_eq!(log.append(&[b"", b""].iter().collect()).unwrap(), 2);
    drop(log);
    let (_, recovered) = open(&memory, &options).unwrap();
    assert_eq!(
        recovered
            .records
            .map(|record| record.unwrap().1.len())
            .sum::<usize>(),
        0
    );
    assert!(FileLog::create(storage(&MemStorage::new()), "", ID, small()).is_err());
}

#[test]
fn a_real_directory() {
    let dir = std::env::temp_dir().join(format!("muster-journal-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let open = || FileLog::open_dir(&dir, CLUSTER, small());
    let error = open().err().unwrap();
    assert!(matches!(error, Error::NoState { .. }), "{error}");
    let mut log = FileLog::create_dir(&dir, CLUSTER, small()).unwrap();
    let Err(Error::Locked { pid, .. }) = open() else {
        panic!("not locked")
    };
    assert_eq!(pid, Some(std::process::id()));
    for _ in 0..50 {
        append(&mut log, &[10, 300]).unwrap();
    }
    drop(log);
    assert!(matches!(
        FileLog::create_dir(&dir, CLUSTER, small()),
        Err(Error::Exists { .. })
    ));
    let (log, mut recovered) = open().unwrap();
    assert_eq!(read_all(&mut recovered).unwrap().len(), 100);
    assert!(recovered.torn.is_none());
    drop(log);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A directory of format 1 as a release wrote it. It must stay readable for good.
#[test]
fn format_1_stays_readable() {
    let (mut log, mut recovered, memory) = fixture();
    let mut state = String::new();
    let snapshot = recovered.snapshot.as_mut().unwrap();
    assert_eq!(snapshot.position(), 2);
    snapshot.read_to_string(&mut state).unwrap();
    assert_eq!(state, "state after two records");
    let records: Vec<_> = recovered.records.map(Result::unwrap).collect();
    assert_eq!(
        records,
        [(3, b"third".to_vec()), (4, vec![]), (5, vec![0xff; 20])]
    );
    assert!(recovered.torn.is_none() && recovered.warnings.is_empty());
    assert_eq!(append(&mut log, &[1]).unwrap(), 6);
    drop((log, memory));
}

/// What this release writes is the same, byte for byte.
#[test]
fn format_1_is_what_is_written() {
    let memory = write_fixture();
    assert_eq!(names(&memory), FIXTURE.map(|(name, _)| name));
    let written = FIXTURE.map(|(name, _)| hex(&memory.contents(name).unwrap()));
    // To make the first fixture of a new format.
    if std::env::var_os("MUSTER_WRITE_FIXTURE").is_some() {
        for ((name, _), hex) in FIXTURE.iter().zip(&written) {
            std::fs::write(format!("tests/fixtures/v1/{name}.hex"), hex).unwrap();
        }
    }
    assert_eq!(written, FIXTURE.map(|(_, hex)| hex.to_owned()));
}

const FIXTURE: [(&str, &str); 3] = [
    ("journal.id", include_str!("../fixtures/v1/journal.id.hex")),
    (
        FIRST,
        include_str!("../fixtures/v1/segment-00000000000000000001.hex"),
    ),
    (
        "snapshot-00000000000000000002",
        include_str!("../fixtures/v1/snapshot-00000000000000000002.hex"),
    ),
];

fn write_fixture() -> MemStorage {
    let memory = MemStorage::new();
    let options = Options {
        ahead_bytes: 0,
        ..Options::default()
    };
    let mut log = create(&memory, &options);
    log.append(&[&b"first"[..], b"second"].into_iter().collect())
        .unwrap();
    let mut writer = log.start_snapshot(2).unwrap();
    writer.write_all(b"state after two records").unwrap();
    let finished = writer.finish().unwrap();
    log.finish_snapshot(finished).unwrap();
    log.append(&[&b"third"[..], b"", &[0xff; 20]].into_iter().collect())
        .unwrap();
    drop(log);
    memory
}

fn fixture() -> (FileLog, RecoveredLog, MemStorage) {
    let memory = MemStorage::new();
    for (name, hex) in FIXTURE {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        memory.put(name, &bytes);
    }
    let shared: Arc<dyn Storage> = Arc::new(memory.clone());
    let (log, recovered) = FileLog::open(shared, CLUSTER, Options::default()).unwrap();
    (log, recovered, memory)
}

/// 32 bytes a line.
fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| {
        line.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    bytes.chunks(32).map(|chunk| line(chunk) + "\n").collect()
}
