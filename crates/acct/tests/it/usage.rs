//! Sums of what was used are what the rows give, whatever is written in which order.

use crate::support::{Directory, Driver, Op, at};
use muster_acct::{
    AccountingChange, History, ImportMark, ImportedJob, Importer, NodeServiceRow, Reader,
    SqliteStore, Store, changes,
};
use muster_model::accounts::JobNote;
use muster_model::ids::JobId;
use muster_model::node::NodeReason;
use muster_model::node_state::ServiceState;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctQuery, NodeOutage, UsageQuery, UsageRow};
use proptest::prelude::*;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Hours of a history.
const HOURS: i64 = 24 * 90;

/// All runs of all jobs, by their rows.
fn rows(reader: &mut Reader) -> Vec<AcctJob> {
    let named = AcctQuery {
        jobs: (1..400).map(|n| (JobId(n), None)).collect(),
        duplicates: true,
        ..AcctQuery::default()
    };
    let mut all = Vec::new();
    let mut take = |page: Vec<AcctJob>| {
        all.extend(page);
        ControlFlow::Continue(())
    };
    reader.query(&named, 100, &mut take).unwrap();
    all
}

/// What a report makes of the rows themselves.
fn of_rows(jobs: &[AcctJob], query: &UsageQuery, now: Timestamp) -> Vec<UsageRow> {
    let mut sums: BTreeMap<(String, String, String), UsageRow> = BTreeMap::new();
    for job in jobs {
        let row = UsageRow::of(job, query.start, query.end, now);
        if row.run_ms == 0 && row.planned_cpu_ms == 0 {
            continue;
        }
        let key = (row.account.clone(), row.user.clone(), row.wckey.clone());
        match sums.get_mut(&key) {
            None => drop(sums.insert(key, row)),
            Some(sum) => {
                sum.run_ms += row.run_ms;
                sum.cpu_ms += row.cpu_ms;
                sum.mem_mib_ms += row.mem_mib_ms;
                sum.node_ms += row.node_ms;
                sum.planned_cpu_ms += row.planned_cpu_ms;
                for (name, ms) in row.devices {
                    match sum.devices.iter_mut().find(|(own, _)| *own == name) {
                        Some((_, own)) => *own += ms,
                        None => sum.devices.push((name, ms)),
                    }
                }
            }
        }
    }
    let sorted = sums.into_values().map(|mut row| {
        row.devices.retain(|(_, ms)| *ms > 0);
        row.devices.sort();
        row
    });
    sorted.collect()
}

fn outages_of_rows(reader: &mut Reader, query: &UsageQuery, now: Timestamp) -> Vec<NodeOutage> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for event in reader.node_events(&[], None, None).unwrap() {
        let end = event.end.unwrap_or(now).min(query.end);
        let out_ms = end.since_ms(event.start.max(query.start));
        if out_ms > 0 {
            *sums.entry(event.node).or_default() += out_ms;
        }
    }
    let all = sums.into_iter();
    all.map(|(node, out_ms)| NodeOutage { node, out_ms })
        .collect()
}

/// A period of whole hours.
fn period(from_h: i64, length_h: i64) -> UsageQuery {
    let first = at(0).0.div_euclid(3_600_000) * 3_600_000;
    let hour = |h: i64| Timestamp(first + h * 3_600_000);
    UsageQuery {
        start: hour(from_h),
        end: hour(from_h + length_h),
    }
}

fn check(store: &SqliteStore, periods: &[(i64, i64)], now: Timestamp) {
    let mut reader = store.reader().unwrap();
    let jobs = rows(&mut reader);
    for (from, length) in periods {
        let query = period(*from, *length);
        let found = reader.usage(&query, now).unwrap();
        assert_eq!(found.rows, of_rows(&jobs, &query, now), "{query:?}");
        let outages = outages_of_rows(&mut reader, &query, now);
        assert_eq!(found.outages, outages, "{query:?}");
    }
}

/// A store without rows knows that the cluster exists; a row that is older, as an imported one, shows it earlier.
#[test]
fn a_cluster_exists_since_its_store_or_its_first_row() {
    let directory = Directory::new();
    let mut store = SqliteStore::open(&directory.file("acct.db")).unwrap();
    let since = |store: &SqliteStore| {
        let query = period(0, 1);
        store
            .reader()
            .unwrap()
            .usage(&query, at(10))
            .unwrap()
            .since
            .unwrap()
    };
    assert!(since(&store) > at(0));
    store.write(&[node(1, true, -7000)], 1).unwrap();
    assert_eq!(since(&store), at(-7000));
}

/// Makes sums anew, as of a store that an earlier release has written.
fn make_anew(file: &std::path::Path) -> SqliteStore {
    let connection = Connection::open(file).unwrap();
    connection
        .execute_batch(
            "DROP TABLE used; DROP TABLE out_of_service; DROP INDEX imported_row;
             DROP TABLE stored_text; DROP TABLE job_text; DROP TABLE reservation;
             DROP TABLE storage_scan; DROP TABLE storage_use; DROP TABLE known_cluster; ALTER TABLE step DROP COLUMN gres;
             DELETE FROM meta WHERE key LIKE 'text_key%'; PRAGMA user_version = 6;",
        )
        .unwrap();
    drop(connection);
    SqliteStore::open(file).unwrap()
}

fn node(name: u8, out: bool, s: i64) -> AccountingChange {
    AccountingChange::Node(Box::new(NodeServiceRow {
        node: format!("n{name}"),
        at: at(s),
        service: ServiceState {
            down: out,
            drain: false,
            fail: false,
        },
        reason: out.then(|| NodeReason {
            text: "broken".to_owned(),
            uid: 0,
            since: at(s),
        }),
    }))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn sums_are_what_the_rows_give(
        ops in proptest::collection::vec((any::<(u8, u16, u8)>(), 0i64..40_000), 1..180),
        groups in proptest::collection::vec(1usize..30, 1..9),
        periods in proptest::collection::vec((-50i64..HOURS, 1i64..HOURS), 1..12),
        outages in proptest::collection::vec((0u8..3, any::<bool>(), 1i64..90_000), 0..12),
    ) {
        let mut driver = Driver::default();
        let (mut history, mut position) = (Vec::new(), 0);
        for ((kind, which, detail), pace_s) in ops {
            driver.pace_s = pace_s;
            for event in driver.events(&Op(kind, which, detail)) {
                driver.state.apply(&event);
                position += 1;
                history.push((position, changes(&driver.state, &event)));
            }
        }
        let directory = Directory::new();
        let file = directory.file("acct.db");
        let mut store = SqliteStore::open(&file).unwrap();
        let mut rest = history.as_slice();
        for group in groups.iter().cycle() {
            let (now, later) = rest.split_at((*group).min(rest.len()));
            rest = later;
            let Some((position, _)) = now.last() else { break };
            let all: Vec<AccountingChange> = now.iter().flat_map(|(_, c)| c.clone()).collect();
            store.write(&all, *position).unwrap();
        }
        let mut s = 0;
        let nodes: Vec<AccountingChange> = outages.iter().map(|(name, out, after)| {
            s += after;
            node(*name, *out, s)
        }).collect();
        store.write(&nodes, position + 1).unwrap();
        let now = at(HOURS * 3600 / 2);
        check(&store, &periods, now);
        // A key that is set later moves what was used; nothing else does.
        let noted: Vec<AccountingChange> = (1..20).map(|job| AccountingChange::JobNoted {
            job: JobId(job),
            owner: None,
            note: Box::new(JobNote { wckey: Some("late".to_owned()), ..JobNote::default() }),
        }).collect();
        store.write(&noted, position + 2).unwrap();
        check(&store, &periods, now);
        drop(store);
        check(&make_anew(&file), &periods, now);
    }
}

fn imported(number: u64, start_s: i64, end_s: i64) -> ImportedJob {
    let package = env!("CARGO_MANIFEST_DIR");
    let sample = muster_fixtures::sample(package, "proto::acct::AcctJob");
    let job: AcctJob = minicbor::decode(&sample).unwrap();
    ImportedJob {
        number,
        job: AcctJob {
            id: JobId(number),
            array: None,
            resized: false,
            eligible: Some(at(start_s - 60)),
            start: Some(at(start_s)),
            end: Some(at(end_s)),
            suspended_ms: 4321,
            ..job
        },
        array: None,
        suspensions: Vec::new(),
    }
}

#[test]
fn an_import_is_summed_once_and_again_where_it_changed() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let store = SqliteStore::open(&file).unwrap();
    let mut importer = Importer::open(&file, "peer@1").unwrap();
    let periods = [(-2, 9000), (0, 1), (30, 700), (700, 2000)];
    let long = imported(7, 100, 200 * 86_400);
    for jobs in [
        vec![long.clone(), imported(8, 3500, 3700)],
        vec![long],
        vec![imported(7, 100, 86_400)],
    ] {
        importer.write(&jobs, ImportMark::default()).unwrap();
        check(&store, &periods, at(0));
    }
    let used = store.reader().unwrap().usage(&period(-2, 9000), at(0));
    let run_ms: u64 = used.unwrap().rows.iter().map(|row| row.run_ms).sum();
    assert_eq!(run_ms, 86_300_000 - 4321 + 200_000 - 4321);
}
