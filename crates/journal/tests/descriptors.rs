//! A process that is out of descriptors. It has a file of its own: no other test can run in such a process.

#![allow(clippy::unwrap_used)]

use muster_journal::{Batch, Error, FileLog, Log, MemStorage, Options};
use std::fs::File;
use std::io;
use std::sync::Arc;

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        ahead_bytes: 0,
        ..Options::default()
    }
}

fn batch() -> Batch {
    let mut batch = Batch::new();
    batch.push(&[7; 3000]);
    batch
}

#[test]
fn a_journal_outlives_a_lack_of_descriptors() {
    an_append_without_a_descriptor_may_be_tried_again();
    a_segment_is_begun_with_the_descriptors_in_reserve();
}

fn a_segment_is_begun_with_the_descriptors_in_reserve() {
    let dir = std::env::temp_dir().join(format!("muster-descriptors-{}", std::process::id()));
    let mut log = FileLog::create_dir(&dir, "c", options()).unwrap();
    log.append(&batch()).unwrap();
    let mut all: Vec<File> = Vec::new();
    let full = loop {
        match File::open("/dev/null") {
            Ok(file) => all.push(file),
            Err(error) => break error,
        }
    };
    // Each needs a new segment. What the old one had goes back into the reserve.
    for position in 2..6 {
        assert_eq!(log.append(&batch()).unwrap(), position, "after {full}");
    }
    drop(all);
    drop(log);
    let (log, _) = FileLog::open_dir(&dir, "c", options()).unwrap();
    assert_eq!(log.last_position(), 5);
    drop(log);
    std::fs::remove_dir_all(&dir).unwrap();
}

fn an_append_without_a_descriptor_may_be_tried_again() {
    let storage = MemStorage::new();
    let id = muster_journal::LogId::random().unwrap();
    let mut log = FileLog::create(Arc::new(storage.clone()), "c", id, options()).unwrap();
    log.append(&batch()).unwrap();
    storage.fail_at(1, io::ErrorKind::OutOfMemory);
    let error = log.append(&batch()).unwrap_err();
    assert!(
        matches!(error, Error::NoDescriptor { .. }) && error.is_temporary(),
        "{error}"
    );
    assert_eq!(log.append(&batch()).unwrap(), 2);
}
