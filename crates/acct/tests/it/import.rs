//! Rows from another cluster, written beside the controller's.

use crate::support::{Directory, at};
use muster_acct::{CopySource, History, ImportMark, ImportedJob, Importer, SqliteStore, Store};
use muster_fixtures::sample;
use muster_model::ids::JobId;
use muster_proto::acct::{AcctJob, AcctQuery, NodeEvent};
use std::ops::ControlFlow;

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// A run with every field set, of this number there and here.
fn job(number: u64, id: u64) -> ImportedJob {
    let job: AcctJob = minicbor::decode(&sample(PACKAGE, "proto::acct::AcctJob")).unwrap();
    let job = AcctJob {
        id: JobId(id),
        restarts: 0,
        array: None,
        array_pending: None,
        resized: false,
        eligible: Some(at(5)),
        start: Some(at(10)),
        end: Some(at(70)),
        suspended_ms: 10_000,
        alloc_cpus: 3,
        ..job
    };
    ImportedJob {
        number,
        job,
        array: None,
        suspensions: vec![(at(20), at(30))],
    }
}

fn jobs(store: &SqliteStore) -> Vec<AcctJob> {
    let query = AcctQuery {
        duplicates: true,
        ..AcctQuery::default()
    };
    let mut all = Vec::new();
    let mut take = |page: Vec<AcctJob>| {
        all.extend(page);
        ControlFlow::Continue(())
    };
    store
        .reader()
        .unwrap()
        .query(&query, 10, &mut take)
        .unwrap();
    all
}

#[test]
fn a_run_is_imported_once_and_read_as_it_was() {
    let directory = Directory::new();
    let file = directory.file("accounting.db");
    let store = SqliteStore::open(&file).unwrap();
    let mut importer = Importer::open(&file, "peer@1").unwrap();
    let mark = ImportMark {
        after: 9,
        began_s: 8,
        since_s: 7,
    };
    // Two runs of one job, in the order of their numbers.
    let batch = [job(4, 17), job(9, 17)];
    let first = importer.write(&batch, mark).unwrap();
    assert_eq!((first.added, first.again), (2, 0));
    let again = importer.write(&batch, mark).unwrap();
    assert_eq!((again.added, again.again), (0, 2));
    let read = jobs(&store);
    let restarts: Vec<u32> = read.iter().map(|job| job.restarts).collect();
    assert_eq!(restarts, [0, 1]);
    assert_eq!(read[0].steps.len(), batch[0].job.steps.len());
    assert_eq!(
        AcctJob {
            steps: batch[0].job.steps.clone(),
            ..read[0].clone()
        },
        batch[0].job
    );
    // It goes on from there, and another source is another.
    let importer = Importer::open(&file, "peer@1").unwrap();
    assert_eq!(
        (importer.mark().unwrap(), importer.runs().unwrap()),
        (mark, 2)
    );
    let sums = importer.sums().unwrap();
    let sum = sums.first().map(|(_, sum)| (sum.jobs, sum.cpu_s));
    assert_eq!(sum, Some((2, 2 * 3 * 50)));
    let mut other = Importer::open(&file, "peer@2").unwrap();
    assert_eq!(other.mark().unwrap(), ImportMark::default());
    assert_eq!(other.write(&[job(4, 17)], mark).unwrap().added, 1);
    assert_eq!(jobs(&store).len(), 3);
}

#[test]
fn the_controller_writes_beside_it_and_a_copy_sees_both() {
    let directory = Directory::new();
    let file = directory.file("accounting.db");
    let mut store = SqliteStore::open(&file).unwrap();
    let source = CopySource::open(&file).unwrap();
    let mut importer = Importer::open(&file, "peer@1").unwrap();
    let threads = std::thread::spawn(move || {
        for position in 1..200 {
            store.write(&[], position).unwrap();
        }
        store
    });
    for number in 1..200 {
        importer
            .write(&[job(number, number)], ImportMark::default())
            .unwrap();
    }
    let store = threads.join().unwrap();
    assert_eq!(store.position(), 199);
    assert_eq!(jobs(&store).len(), 199);
    drop(source);
}

#[test]
fn an_event_that_is_there_is_not_written_again() {
    let directory = Directory::new();
    let file = directory.file("accounting.db");
    let store = SqliteStore::open(&file).unwrap();
    let mut importer = Importer::open(&file, "peer@1").unwrap();
    let event = NodeEvent {
        node: "n1".to_owned(),
        start: at(1),
        end: Some(at(2)),
        down: true,
        drain: false,
        fail: false,
        reason: "x".to_owned(),
        uid: 0,
    };
    // One that lasts is for a later import.
    let lasting = NodeEvent {
        end: None,
        start: at(3),
        ..event.clone()
    };
    let all = [event.clone(), lasting];
    assert_eq!(importer.write_events(&all).unwrap(), 1);
    assert_eq!(importer.write_events(&all).unwrap(), 0);
    let events = store
        .reader()
        .unwrap()
        .node_events(&[], None, None)
        .unwrap();
    assert_eq!(events, [event]);
}

#[test]
fn no_file_is_made_where_no_controller_has_made_one() {
    let directory = Directory::new();
    let file = directory.file("nosuch.db");
    assert!(Importer::open(&file, "peer@1").is_err());
    assert!(!file.exists());
}
