//! Times of reservations: what is kept of them once they are over.

use crate::support::{Directory, at};
use muster_acct::{
    AccountingChange, Archived, History, PurgeKind, PurgePosition, Purger, ReservationRow,
    Restorer, SqliteStore, Store,
};
use muster_proto::acct::ReservationRecord;

fn set(
    name: &str,
    when: i64,
    (start, end): (i64, i64),
    nodes: &str,
    cpus: u64,
) -> AccountingChange {
    AccountingChange::Reservation(Box::new(ReservationRow {
        name: name.to_owned(),
        at: at(when),
        set: Some(ReservationRecord {
            name: name.to_owned(),
            start: at(start),
            end: at(end),
            nodes: nodes.to_owned(),
            cpus,
            ..ReservationRecord::default()
        }),
    }))
}

fn gone(name: &str, when: i64) -> AccountingChange {
    AccountingChange::Reservation(Box::new(ReservationRow {
        name: name.to_owned(),
        at: at(when),
        set: None,
    }))
}

fn times(store: &SqliteStore) -> Vec<String> {
    let all = store.reader().unwrap().reservations(None, None).unwrap();
    let s = |at_: muster_model::time::Timestamp| (at_.0 - at(0).0) / 1000;
    all.into_iter()
        .map(|r| {
            let state = if r.is_over { "over" } else { "open" };
            format!(
                "{} {}-{} {} {} {state}",
                r.name,
                s(r.start),
                s(r.end),
                r.nodes,
                r.cpus
            )
        })
        .collect()
}

/// What Slurm 22.05 keeps of the same: a row for each time with the same nodes, none of what never began.
fn history() -> Vec<AccountingChange> {
    vec![
        set("rr", 100, (100, 700), "n4", 4),
        // At once, before it was anything else.
        set("rr", 100, (100, 700), "n[1-2]", 8),
        set("later", 101, (4000, 5000), "n3", 4),
        set("idle", 102, (100, 200), "n4", 4),
        // Of the same nodes.
        set("rr", 110, (100, 900), "n[1-2]", 8),
        set("rr", 200, (100, 900), "n1", 4),
        set("later", 250, (4100, 5000), "n3", 4),
        gone("later", 300),
        gone("rr", 400),
        gone("idle", 500),
        // Each hour; the second time has not begun.
        set("hourly", 600, (600, 900), "n5", 4),
        set("hourly", 900, (4200, 4500), "n5", 4),
        gone("never", 950),
    ]
}

const KEPT: [&str; 5] = [
    "rr 100-200 n[1-2] 8 over",
    "idle 100-200 n4 4 over",
    "rr 200-400 n1 4 over",
    "hourly 600-900 n5 4 over",
    "hourly 4200-4500 n5 4 open",
];

#[test]
fn times_of_reservations_are_kept_as_slurm_has_them() {
    let directory = Directory::new();
    let all = history();
    // In one transaction, or in many.
    for part in [all.len(), 1] {
        let mut store = SqliteStore::open(&directory.file(&format!("{part}.db"))).unwrap();
        for (position, part) in (1..).zip(all.chunks(part)) {
            store.write(part, position).unwrap();
        }
        assert_eq!(times(&store), KEPT);
        let mut reader = store.reader().unwrap();
        let mut names = |from, to| -> Vec<String> {
            let found = reader.reservations(Some(at(from)), Some(at(to))).unwrap();
            found.into_iter().map(|record| record.name).collect()
        };
        assert_eq!(names(201, 399), ["rr"]);
        assert_eq!(names(401, 500), Vec::<String>::new());
        assert_eq!(names(4000, 9000), ["hourly"]);
    }
}

#[test]
fn times_that_are_over_are_purged_and_come_back_once() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let mut store = SqliteStore::open(&file).unwrap();
    store.write(&history(), 1).unwrap();
    let mut purger = Purger::open(&file).unwrap();
    let keys = purger
        .find(
            PurgeKind::Reservations,
            at(100_000),
            &mut PurgePosition::default(),
            100,
        )
        .unwrap();
    let rows: Vec<Archived> = (keys.iter())
        .map(|key| purger.read(*key).unwrap().unwrap())
        .collect();
    assert_eq!(purger.remove(&keys).unwrap(), 4);
    assert_eq!(times(&store), KEPT[4..]);
    let mut restorer = Restorer::open(&file).unwrap();
    assert_eq!(restorer.write(&rows).unwrap().added, 4);
    assert_eq!(times(&store), KEPT);
    let again = restorer.write(&rows).unwrap();
    assert_eq!((again.added, again.known), (0, 4));
    assert_eq!(times(&store), KEPT);
}
