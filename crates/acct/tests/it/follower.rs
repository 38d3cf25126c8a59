//! The writing thread: order, durability, failures.

use crate::support::{Directory, Driver, Op};
use muster_acct::{
    AccountingChange, Follower, FollowerStopped, History, JobRow, QueueFull, Reader, SqliteStore,
    Store, StoreError, changes,
};
use muster_model::accounts::JobNote;
use muster_model::ids::JobId;
use muster_proto::acct::AcctQuery;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A store that fails as often as it is told, and a record of what reached it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<LogState>>);

#[derive(Default)]
struct LogState {
    failures_left: u32,
    position: u64,
    written: Vec<AccountingChange>,
    writes: u32,
    synced: u64,
}

impl Store for Log {
    fn position(&self) -> u64 {
        self.0.lock().unwrap().position
    }

    fn write(&mut self, changes: &[AccountingChange], position: u64) -> Result<(), StoreError> {
        let mut log = self.0.lock().unwrap();
        if log.failures_left > 0 {
            log.failures_left -= 1;
            return Err(StoreError::Stopped);
        }
        log.written.extend_from_slice(changes);
        log.writes += 1;
        log.position = position;
        Ok(())
    }

    fn sync(&mut self) -> Result<u64, StoreError> {
        let mut log = self.0.lock().unwrap();
        log.synced = log.position;
        Ok(log.position)
    }
}

fn history() -> Vec<(u64, Vec<AccountingChange>)> {
    let mut driver = Driver::default();
    let mut history = Vec::new();
    for n in 0..300u16 {
        for event in driver.events(&Op((n % 13) as u8, n.wrapping_mul(31), (n % 11) as u8)) {
            driver.state.apply(&event);
            history.push((history.len() as u64 + 1, changes(&driver.state, &event)));
        }
    }
    history
}

fn flat(history: &[(u64, Vec<AccountingChange>)]) -> Vec<AccountingChange> {
    history
        .iter()
        .flat_map(|(_, changes)| changes.clone())
        .collect()
}

fn count(path: &Path) -> usize {
    let mut count = 0;
    let named = AcctQuery {
        jobs: (1..400).map(|n| (JobId(n), None)).collect(),
        duplicates: true,
        ..AcctQuery::default()
    };
    let mut reader = Reader::open(path).unwrap();
    reader
        .query(&named, 1000, &mut |page| {
            count += page.len();
            ControlFlow::Continue(())
        })
        .unwrap();
    count
}

#[test]
fn everything_arrives_once_in_order_through_failures() {
    let log = Log::default();
    log.0.lock().unwrap().failures_left = 3;
    let follower = Follower::start(Box::new(log.clone()), 100_000).unwrap();
    let history = history();
    for (position, changes) in &history {
        follower.offer(*position, changes.clone()).unwrap();
        // A replay offers again what was accepted.
        follower.offer(*position, changes.clone()).unwrap();
    }
    let last = history.last().unwrap().0;
    assert_eq!(follower.wait_stored(last, LONG), Ok(true));
    assert_eq!(log.0.lock().unwrap().written, flat(&history));
    assert!(
        log.0.lock().unwrap().writes < 300,
        "batches that wait are written together"
    );
    let health = follower.health();
    assert_eq!(
        (health.accepted, health.stored, health.waiting),
        (last, last, 0)
    );
    assert_eq!(health.failing, None);
    follower.shutdown(LONG).unwrap();
    assert_eq!(log.0.lock().unwrap().synced, last, "the end is on disk");
}

#[test]
fn small_batches_share_transactions_until_someone_asks() {
    let log = Log::default();
    let follower = Follower::start(Box::new(log.clone()), 100_000).unwrap();
    let (started, history) = (std::time::Instant::now(), history());
    let last = history.last().unwrap().0;
    assert!(last > 100);
    for (position, changes) in history {
        follower.send(position, changes).unwrap();
    }
    assert_eq!(follower.wait_stored(last, LONG), Ok(true));
    // A transaction waits for company, but not for long.
    let lingers = started.elapsed().as_millis() as u32 / 50;
    let writes = log.0.lock().unwrap().writes;
    assert!(
        writes <= 2 + lingers,
        "{writes} transactions for {last} batches"
    );
}

#[test]
fn positions_without_changes_move_without_a_transaction() {
    let log = Log::default();
    let follower = Follower::start(Box::new(log.clone()), 10).unwrap();
    for position in 1..=1000 {
        follower.send(position, Vec::new()).unwrap();
    }
    assert_eq!(follower.wait_stored(1000, LONG), Ok(true));
    assert_eq!(log.0.lock().unwrap().writes, 0);
    assert_eq!(follower.sync(LONG), Ok(true));
    assert_eq!(
        log.0.lock().unwrap().synced,
        1000,
        "what is synced is written"
    );
}

#[test]
fn a_store_that_fails_for_long_fills_the_queue_and_reports() {
    let log = Log::default();
    log.0.lock().unwrap().failures_left = u32::MAX;
    let follower = Follower::start(Box::new(log.clone()), 50).unwrap();
    let history = history();
    let mut accepted = 0;
    for (position, changes) in &history {
        match follower.offer(*position, changes.clone()) {
            Ok(()) => accepted = *position,
            Err(QueueFull(back)) => {
                assert_eq!(&back, changes);
                break;
            }
        }
    }
    assert!(accepted > 0 && accepted < history.last().unwrap().0);
    assert_eq!(
        follower.wait_stored(accepted, Duration::from_millis(50)),
        Ok(false)
    );
    let health = follower.health();
    assert!(health.waiting > 0);
    let (_, times, text) = health.failing.expect("it fails");
    assert!(times > 0 && text == "accounting has stopped", "{text}");
    log.0.lock().unwrap().failures_left = 0;
    for (position, changes) in &history {
        follower.send(*position, changes.clone()).unwrap();
    }
    follower.shutdown(LONG).unwrap();
    assert_eq!(log.0.lock().unwrap().written, flat(&history));
}

#[test]
fn shutting_down_with_a_broken_store_says_how_far_it_came() {
    let log = Log::default();
    log.0.lock().unwrap().failures_left = u32::MAX;
    let follower = Follower::start(Box::new(log), 100_000).unwrap();
    let (tell, told) = mpsc::channel();
    follower.when_stored(5, move |outcome| tell.send(outcome).unwrap());
    for (position, changes) in history() {
        follower.offer(position, changes).unwrap();
    }
    let unflushed = follower.shutdown(Duration::from_millis(60)).unwrap_err();
    assert!(unflushed.stored < unflushed.accepted);
    assert_eq!(unflushed.why, "accounting has stopped");
    assert_eq!(
        told.recv_timeout(LONG),
        Ok(Err(FollowerStopped)),
        "whoever waits hears of it"
    );
}

#[test]
fn those_who_wait_are_called_when_their_position_is_visible() {
    let directory = Directory::new();
    let path = directory.file("acct.db");
    let store = SqliteStore::open(&path).unwrap();
    let reader = Mutex::new(store.reader().unwrap());
    let follower = Follower::start(Box::new(store), 100_000).unwrap();
    let history = history();
    let last = history.last().unwrap().0;
    let (tell, told) = mpsc::channel();
    follower.when_stored(last, move |outcome| {
        tell.send((outcome, reader.lock().unwrap().position().unwrap()))
            .unwrap();
    });
    for (position, changes) in history {
        follower.send(position, changes).unwrap();
    }
    let (outcome, seen) = told.recv_timeout(LONG).unwrap();
    assert_eq!(outcome, Ok(()));
    assert!(seen <= last);
    let (tell, told) = mpsc::channel();
    follower.when_stored(1, move |outcome| tell.send(outcome).unwrap());
    assert_eq!(
        told.try_recv(),
        Ok(Ok(())),
        "at once when it is there already"
    );
}

#[test]
fn a_follower_that_dies_goes_on_from_the_journal() {
    let directory = Directory::new();
    let path = directory.file("acct.db");
    let history = history();
    let last = history.last().unwrap().0;
    for upto in [50, 120, last] {
        let store = SqliteStore::open(&path).unwrap();
        let position = store.position();
        let follower = Follower::start(Box::new(store), 100_000).unwrap();
        for (at, changes) in history
            .iter()
            .filter(|(at, _)| *at > position && *at <= upto)
        {
            follower.send(*at, changes.clone()).unwrap();
        }
        // Dropped without a flush, except the last.
        if upto == last {
            follower.shutdown(LONG).unwrap();
        }
    }
    let whole = directory.file("whole.db");
    SqliteStore::open(&whole)
        .unwrap()
        .write(&flat(&history), last)
        .unwrap();
    assert_eq!(count(&path), count(&whole));
}

/// A change that the store can never take is left out, and what comes with it and after it is written.
#[test]
fn what_can_never_be_written_keeps_nothing_else_waiting() {
    let noted = |number: u64| AccountingChange::JobNoted {
        job: JobId(number),
        owner: Some(1000),
        note: Box::new(JobNote {
            comment: Some("x".to_owned()),
            ..JobNote::default()
        }),
    };
    let directory = Directory::new();
    let (clean, path) = (directory.file("clean.db"), directory.file("acct.db"));
    let history = history();
    let last = history.last().unwrap().0;
    let mut store = SqliteStore::open(&clean).unwrap();
    store.write(&flat(&history), last).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let follower = Follower::start(Box::new(store), 1 << 20).unwrap();
    for (position, mut changes) in history {
        match position % 50 {
            0 => changes.push(noted(1 << 47)),
            20 => changes.insert(0, noted((1 << 47) - 1)),
            40 => changes.push(noted(u64::MAX)),
            _ => {}
        }
        follower.offer(position, changes).unwrap();
    }
    follower.wait_stored(last, LONG).unwrap();
    assert_eq!(follower.health().failing, None);
    follower.shutdown(LONG).unwrap();
    assert_eq!(SqliteStore::open(&path).unwrap().position(), last);
    assert_eq!(count(&path), count(&clean));
}

/// Each change of a job may hold a command line of a megabyte: ten thousand of them took ten gigabytes. Then few hundred of them had
/// everybody wait; no more of a line waits than is written.
#[test]
fn changes_that_wait_are_bounded_in_bytes() {
    let log = Log::default();
    log.0.lock().unwrap().failures_left = u32::MAX;
    let follower = Follower::start(Box::new(log.clone()), 1 << 20).unwrap();
    let row = history().into_iter().flat_map(|(_, changes)| changes);
    let mut row = row.filter_map(|change| match change {
        AccountingChange::Job(row) => Some(row),
        _ => None,
    });
    let row = row.next().unwrap();
    let with = |line: usize| {
        let mut spec = (*row.spec).clone();
        spec.submit_line = "x".repeat(line);
        AccountingChange::Job(Box::new(JobRow {
            spec: Arc::new(spec),
            ..(*row).clone()
        }))
    };
    // What they share counts once.
    let shared = with(8 << 20);
    let mut position = 0;
    while position < 1000 {
        position += 1;
        follower.offer(position, vec![shared.clone()]).unwrap();
    }
    let mut taken = 0;
    while let Ok(()) = follower.offer(position + 1, vec![with(1 << 20)]) {
        (taken, position) = (taken + 1, position + 1);
    }
    assert!((2000..5000).contains(&taken), "{taken}");
    log.0.lock().unwrap().failures_left = 0;
    follower.send(position + 1, vec![with(8 << 20)]).unwrap();
    follower.shutdown(LONG).unwrap();
    let log = log.0.lock().unwrap();
    assert_eq!(log.written.len(), 1000 + taken + 1);
    assert!(
        log.writes >= 9,
        "transactions have a bound as well: {}",
        log.writes
    );
}
