//! Failures that only the connection itself can be made to have.

#[path = "../../tests/it/support.rs"]
mod support;

use super::SqliteStore;
use crate::change::{AccountingChange, NodeServiceRow, changes};
use crate::follower::Follower;
use crate::store::{History, Store, StoreError};
use muster_model::ids::JobId;
use muster_model::node_state::ServiceState;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctQuery, UsageQuery};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Directory, Driver, Op};

/// A file that cannot grow, or cannot be written, as long as `fails` holds a pragma.
struct Failing {
    store: SqliteStore,
    fails: Arc<Mutex<Option<&'static str>>>,
}

impl Store for Failing {
    fn position(&self) -> u64 {
        self.store.position()
    }

    fn write(&mut self, changes: &[AccountingChange], position: u64) -> Result<(), StoreError> {
        let works = "PRAGMA max_page_count = 1000000; PRAGMA query_only = OFF";
        let pragma = self.fails.lock().unwrap().unwrap_or(works);
        self.store.connection.execute_batch(pragma).unwrap();
        self.store.write(changes, position)
    }

    fn sync(&mut self) -> Result<u64, StoreError> {
        self.store.sync()
    }
}

fn history() -> Vec<(u64, Vec<AccountingChange>)> {
    let mut driver = Driver::default();
    let mut history = Vec::new();
    for n in 0..600u16 {
        let (kind, detail) = (n % 13, n % 11);
        let op = Op(
            kind.try_into().unwrap(),
            n.wrapping_mul(31),
            detail.try_into().unwrap(),
        );
        for event in driver.events(&op) {
            driver.state.apply(&event);
            history.push((history.len() as u64 + 1, changes(&driver.state, &event)));
        }
    }
    history
}

fn rows(store: &SqliteStore) -> Vec<AcctJob> {
    let named = AcctQuery {
        jobs: (1..600).map(|n| (JobId(n), None)).collect(),
        duplicates: true,
        ..AcctQuery::default()
    };
    let mut rows = Vec::new();
    let mut reader = store.reader().unwrap();
    reader
        .query(&named, 1000, &mut |page| {
            rows.extend(page);
            ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

#[test]
fn a_disk_that_is_full_or_read_only_delays_and_loses_nothing() {
    let long = Duration::from_secs(60);
    let history = history();
    let last = history.last().unwrap().0;
    let all: Vec<AccountingChange> = history
        .iter()
        .flat_map(|(_, changes)| changes.clone())
        .collect();
    let directory = Directory::new();
    let mut whole = SqliteStore::open(&directory.file("whole.db")).unwrap();
    whole.write(&all, last).unwrap();
    let cases = [
        ("full.db", "PRAGMA max_page_count = 1", "full"),
        ("read.db", "PRAGMA query_only = ON", "readonly"),
    ];
    for (file, pragma, says) in cases {
        let path = directory.file(file);
        let fails = Arc::new(Mutex::new(Some(pragma)));
        let store = Failing {
            store: SqliteStore::open(&path).unwrap(),
            fails: fails.clone(),
        };
        let follower = Follower::start(Box::new(store), 100_000).unwrap();
        for (position, changes) in &history {
            follower.offer(*position, changes.clone()).unwrap();
        }
        while follower.health().failing.is_none() && follower.stored() < last {
            let _ = follower.wait_stored(last, Duration::from_millis(5));
        }
        let (_, _, text) = follower.health().failing.expect("it fails");
        assert!(text.contains(says), "{text}");
        assert!(follower.stored() < last);
        *fails.lock().unwrap() = None;
        assert_eq!(follower.wait_stored(last, long), Ok(true));
        follower.shutdown(long).unwrap();
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.position(), last);
        assert_eq!(rows(&store), rows(&whole), "{file}");
    }
}

#[test]
fn a_transaction_that_failed_leaves_nothing_behind() {
    let all: Vec<AccountingChange> = history()
        .into_iter()
        .flat_map(|(_, changes)| changes)
        .collect();
    let directory = Directory::new();
    let mut store = SqliteStore::open(&directory.file("acct.db")).unwrap();
    store
        .connection
        .execute_batch("PRAGMA max_page_count = 1")
        .unwrap();
    store.write(&all, 7).unwrap_err();
    assert_eq!((store.position(), rows(&store).len()), (0, 0));
    store
        .connection
        .execute_batch("PRAGMA max_page_count = 1000000")
        .unwrap();
    store.write(&all, 7).unwrap();
    // Texts of the failed transaction were not taken for stored ones.
    assert!(
        rows(&store)
            .iter()
            .all(|job| job.partition == "batch" && job.qos == "normal")
    );
}

/// After halves of a transaction were written and the process died, the times of nodes out of service were there twice.
#[test]
fn changes_that_come_again_after_halves_were_written_change_nothing() {
    let node = |at, down| {
        let (node, at, reason) = ("n1".to_owned(), Timestamp(at), None);
        let service = ServiceState {
            down,
            ..ServiceState::default()
        };
        AccountingChange::Node(Box::new(NodeServiceRow {
            node,
            at,
            service,
            reason,
        }))
    };
    const HOUR: i64 = 3_600_000;
    let all = [
        (2, true),
        (3, true),
        (4, false),
        (6, true),
        (8, false),
        (9, true),
    ];
    let all = all.map(|(half, down)| node(half * HOUR / 2, down));
    let used = UsageQuery {
        start: Timestamp(0),
        end: Timestamp(10 * HOUR),
    };
    let state = |store: &SqliteStore| {
        let mut reader = store.reader().unwrap();
        let used = reader.usage(&used, Timestamp(10 * HOUR)).unwrap();
        (reader.node_events(&[], None, None).unwrap(), used)
    };
    let directory = Directory::new();
    let mut whole = SqliteStore::open(&directory.file("whole.db")).unwrap();
    whole.write(&all, 7).unwrap();
    for halves in 0..=all.len() {
        let path = directory.file(&format!("acct{halves}.db"));
        let mut store = SqliteStore::open(&path).unwrap();
        super::schema::set_halves_end(&store.connection, 7).unwrap();
        store.write_all(&all[..halves], 0).unwrap();
        drop(store);
        let mut store = SqliteStore::open(&path).unwrap();
        store.write(&all, 7).unwrap();
        assert_eq!(state(&store), state(&whole), "{halves}");
    }
}

#[test]
fn nobody_else_reads_the_file() {
    use std::fs::{Permissions, metadata, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;
    let directory = Directory::new();
    let path = directory.file("acct.db");
    write(&path, "").unwrap();
    set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let mut store = SqliteStore::open(&path).unwrap();
    store.write(&[], 7).unwrap();
    for name in ["acct.db", "acct.db-wal", "acct.db-shm"] {
        let mode = metadata(directory.file(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
