//! Stores of each format, as the version that brought it has written them: `tests/fixtures/store-vN.sql` makes one with a value
//! in every column, and says in comments what is read of it. Each is brought up to date and must read the same.
//! `UPDATE_FIXTURES=1` writes that of the newest format where there is none; the others stay as they are.

use crate::support::{Directory, at};
use minicbor::Decode;
use muster_acct::{
    AccountingChange, ArchiveHeader, Archived, History, JobRow, NodeServiceRow, Reader,
    ReservationRow, RunKey, SqliteStore, Store,
};
use muster_fixtures::{Root, assert_same, check, from_hex, sample, to_hex};
use muster_model::het::HetPlace;
use muster_model::ids::{BlobId, JobId, StepNo};
use muster_model::job::ArrayTask;
use muster_model::job::{Allocation, ExitStatus, JobState, Reason, Step, StepEnd};
use muster_model::node::NodeReason;
use muster_model::node_state::ServiceState;
use muster_model::reservation::Flags;
use muster_model::spec::{JobKind, JobSpec};
use muster_model::storage::{StorageScan, StorageUse};
use muster_model::time::TimeLimit;
use muster_proto::acct::{AcctJob, AcctQuery, JobTextKind, NodeEvent, ReservationRecord};
use rusqlite::Connection;
use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");
const JOB: &str = "proto::acct::AcctJob";
const NODE_EVENT: &str = "proto::acct::NodeEvent";
const TRANSACTION: &str = "proto::acct::LoggedTransaction";
/// Before what is read of a store.
const READS: &str = "-- reads ";

fn file_of(format: i64) -> PathBuf {
    Path::new(PACKAGE).join(format!("tests/fixtures/store-v{format}.sql"))
}

/// A value with every field set.
fn full<T: for<'b> Decode<'b, ()>>(name: &str) -> T {
    minicbor::decode(&sample(PACKAGE, name)).unwrap()
}

/// Everything in a store: type and bytes.
fn everything(store: &SqliteStore) -> Vec<(&'static str, Vec<u8>)> {
    let mut reader: Reader = store.reader().unwrap();
    let query = AcctQuery {
        jobs: (1..10).map(|number| (JobId(number), None)).collect(),
        duplicates: true,
        ..AcctQuery::default()
    };
    let mut jobs: Vec<AcctJob> = Vec::new();
    let mut take = |page: Vec<AcctJob>| {
        jobs.extend(page);
        ControlFlow::Continue(())
    };
    reader.query(&query, 100, &mut take).unwrap();
    let events: Vec<NodeEvent> = reader.node_events(&[], None, None).unwrap();
    let jobs = jobs.iter().map(|job| (JOB, minicbor::to_vec(job).unwrap()));
    let events = events
        .iter()
        .map(|event| (NODE_EVENT, minicbor::to_vec(event).unwrap()));
    let log = reader.transactions(None, None, None).unwrap().newest;
    let log = log.into_iter().map(|entry| {
        let bytes = minicbor::to_vec(&entry).unwrap();
        (TRANSACTION, bytes)
    });
    jobs.chain(events).chain(log).collect()
}

fn schema(connection: &Connection) -> Vec<String> {
    let mut statement = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rootpage, name")
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn texts(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn pragma(connection: &Connection, name: &str) -> i64 {
    let value = connection.pragma_query_value(None, name, |row| row.get(0));
    value.unwrap()
}

fn tables(connection: &Connection) -> Vec<(String, Vec<String>)> {
    let names = texts(
        connection,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY rootpage",
    );
    let columns = |table: &str| {
        let sql = format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid");
        texts(connection, &sql)
    };
    names
        .into_iter()
        .map(|table| {
            let columns = columns(&table);
            (table, columns)
        })
        .collect()
}

/// Texts of an older format are found by name, and are not stored again.
fn texts_are_found(mut store: SqliteStore, connection: &Connection) {
    let sql = "SELECT CAST(value AS TEXT) FROM text WHERE id = (SELECT account FROM job)";
    let account: String = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    let of_account = AcctQuery {
        accounts: vec![account],
        duplicates: true,
        ..AcctQuery::default()
    };
    let mut found = 0;
    let mut take = |page: Vec<AcctJob>| {
        found += page.len();
        ControlFlow::Continue(())
    };
    let mut reader = store.reader().unwrap();
    reader.query(&of_account, 100, &mut take).unwrap();
    assert!(found > 0);
    let count = |of: &str| -> i64 {
        let sql = format!("SELECT count({of}) FROM text");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count("*"), count("DISTINCT hash"));
    store.write(&changes(), 43).unwrap();
    assert_eq!(count("*"), count("DISTINCT value"));
}

/// Users choose texts: none must know which have one hash.
#[test]
fn each_store_has_hashes_of_its_own() {
    let directory = Directory::new();
    let hash = |file: &str| -> i64 {
        let path = directory.file(file);
        let mut store = SqliteStore::open(&path).unwrap();
        store.write(&changes(), 42).unwrap();
        let connection = Connection::open(&path).unwrap();
        let sql = "SELECT hash FROM text WHERE value = CAST('batch' AS BLOB)";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_ne!(hash("one.db"), hash("other.db"));
}

/// SQL that makes the store again.
fn dump(connection: &Connection) -> String {
    let mut sql = String::new();
    for name in ["application_id", "user_version"] {
        let _ = writeln!(sql, "PRAGMA {name} = {};", pragma(connection, name));
    }
    for statement in schema(connection) {
        let _ = writeln!(sql, "{statement};");
    }
    for (table, columns) in tables(connection) {
        let quoted: Vec<String> = columns.iter().map(|c| format!("quote({c})")).collect();
        let rows = format!("SELECT {} FROM {table}", quoted.join(" || ', ' || "));
        for row in texts(connection, &rows) {
            let columns = columns.join(", ");
            let _ = writeln!(sql, "INSERT INTO {table} ({columns}) VALUES ({row});");
        }
    }
    sql
}

/// What leaves a value in every column.
fn changes() -> Vec<AccountingChange> {
    let run = |job: u64, number: u32| RunKey {
        job: JobId(job),
        number,
    };
    let spec = |kind: JobKind| {
        let mut spec: JobSpec = full("model::spec::JobSpec");
        spec.kind = kind;
        spec.shown = vec![("AdminComment".to_owned(), "seen".to_owned())];
        Arc::new(spec)
    };
    let alloc: Arc<Allocation> = Arc::new(full("model::job::allocation::Allocation"));
    let row = |key: RunKey| JobRow {
        key,
        spec: spec(JobKind::Batch),
        array: Some(ArrayTask {
            array: JobId(1),
            index: 3,
        }),
        het: None,
        array_record: false,
        state: JobState::Failed,
        requeued: true,
        cancelled_by: Some(1001),
        exit: ExitStatus { code: 3, signal: 0 },
        derived_exit: ExitStatus { code: 0, signal: 9 },
        submit: at(1),
        eligible: Some(at(2)),
        start: Some(at(3)),
        end: Some(at(90)),
        suspended_ms: 4000,
        time_limit: TimeLimit::Minutes(7),
        req_mem_mib: 500,
        req_licenses: Vec::new(),
        licenses: Vec::new(),
        alloc: Some(alloc.clone()),
        partition: "batch".to_owned(),
        reason: Reason::NodeDown,
        priority: 77,
    };
    let record = JobRow {
        array: None,
        array_record: true,
        ..row(run(1, 0))
    };
    let component = JobRow {
        array: None,
        het: Some(HetPlace {
            leader: JobId(3),
            offset: 1,
            size: 2,
        }),
        ..row(run(4, 1))
    };
    let step = Step {
        devices: vec![muster_model::account_limits::TresAmount {
            name: "gres/gpu".to_owned(),
            amount: 2,
        }],
        ..full("model::job::Step")
    };
    let end: StepEnd = full("model::job::StepEnd");
    let started = |number: StepNo| AccountingChange::StepStarted {
        run: run(2, 0),
        step: Arc::new(Step {
            step: number,
            ..step.clone()
        }),
    };
    let node = |s: i64, down: bool| {
        let reason = NodeReason {
            text: "broken".to_owned(),
            uid: 1002,
            ..full("model::node::NodeReason")
        };
        AccountingChange::Node(Box::new(NodeServiceRow {
            node: "n7".to_owned(),
            at: at(s),
            service: ServiceState {
                down,
                drain: true,
                fail: true,
            },
            reason: Some(reason),
        }))
    };
    vec![
        AccountingChange::Job(Box::new(record)),
        AccountingChange::Job(Box::new(row(run(2, 0)))),
        AccountingChange::Job(Box::new(component)),
        AccountingChange::Text {
            run: run(2, 0),
            kind: JobTextKind::Script,
            id: BlobId([7; 32]),
            bytes: Arc::new(b"#!/bin/sh\n".to_vec().into()),
        },
        started(StepNo(0)),
        AccountingChange::StepEnded {
            run: run(2, 0),
            step: StepNo(0),
            end: Box::new(end),
            derived_exit: None,
        },
        started(StepNo(1)),
        AccountingChange::Suspended {
            run: run(2, 0),
            at: at(10),
        },
        AccountingChange::Resumed {
            run: run(2, 0),
            at: at(14),
        },
        AccountingChange::Suspended {
            run: run(2, 0),
            at: at(20),
        },
        AccountingChange::Transaction {
            transaction: full("model::accounts::Transaction"),
            at: at(25),
        },
        node(30, true),
        node(40, false),
        AccountingChange::Reservation(Box::new(ReservationRow {
            name: "resv".to_owned(),
            at: at(50),
            set: Some(ReservationRecord {
                name: "resv".to_owned(),
                start: at(45),
                end: at(95),
                is_over: false,
                nodes: "n[1-2]".to_owned(),
                cpus: 8,
                flags: Flags::MAINT,
                users: "amy".to_owned(),
                accounts: "physics".to_owned(),
            }),
        })),
        AccountingChange::Storage {
            name: "home".to_owned(),
            scan: Box::new(StorageScan {
                at: at(60),
                path: "/home".to_owned(),
                size_bytes: 1 << 40,
                used_bytes: 1 << 30,
                users: vec![StorageUse {
                    user: "amy".to_owned(),
                    bytes: 1 << 20,
                    files: 7,
                }],
            }),
        },
    ]
}

/// Writes an example of the newest format.
fn write(store: &mut SqliteStore, connection: &Connection, path: &Path) {
    let logged = "UPDATE meta SET value = 1 WHERE key = 'log'";
    connection.execute(logged, []).unwrap();
    store.write(&changes(), 42).unwrap();
    connection
        .execute_batch(
            "INSERT INTO import_source (name, after, began_s, since_s) VALUES ('peer@1', 5, 6, 7);
             INSERT INTO imported (source, number, row) VALUES (1, 9, 98304);
             INSERT INTO known_cluster (name, addresses, port, seen_ms) VALUES ('beta', 'ctl2,ctl3', 6817, 8);",
        )
        .unwrap();
    let mut sql = dump(connection);
    for (name, bytes) in everything(store) {
        let name = name.rsplit("::").next().unwrap_or(name);
        let _ = writeln!(sql, "{READS}{name} {}", to_hex(&bytes));
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, sql).unwrap();
}

#[test]
fn stores_of_all_formats_are_read() {
    let directory = Directory::new();
    let fresh = directory.file("fresh.db");
    let mut store = SqliteStore::open(&fresh).unwrap();
    let fresh = Connection::open(&fresh).unwrap();
    let newest = pragma(&fresh, "user_version");
    let expected = schema(&fresh);
    let path = file_of(newest);
    if std::env::var_os("UPDATE_FIXTURES").is_some() && !path.exists() {
        write(&mut store, &fresh, &path);
    }
    for format in 1..=newest {
        let path = file_of(format);
        let sql = fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; UPDATE_FIXTURES=1 writes it", path.display()));
        let file = directory.file(&format!("store-v{format}.db"));
        let old = Connection::open(&file).unwrap();
        old.execute_batch(&sql).unwrap();
        assert_eq!(pragma(&old, "user_version"), format);
        for (table, columns) in tables(&old) {
            for column in columns {
                let set = format!("SELECT count({column}) FROM {table}");
                let set: i64 = old.query_row(&set, [], |row| row.get(0)).unwrap();
                assert!(set > 0, "format {format}: no value in {table}.{column}");
            }
        }
        drop(old);
        let store = SqliteStore::open(&file).unwrap();
        assert_eq!(store.position(), 42);
        let now = everything(&store);
        let kept: Vec<(&str, Vec<u8>)> = sql
            .lines()
            .filter_map(|line| line.strip_prefix(READS)?.split_once(' '))
            .map(|(name, hex)| (name, from_hex(hex)))
            .collect();
        assert!(!kept.is_empty());
        assert_eq!(kept.len(), now.len(), "format {format}");
        for ((name, kept), (of, now)) in kept.iter().zip(&now) {
            assert!(of.ends_with(name), "{name} {of}");
            assert_same(PACKAGE, of, kept, now);
        }
        let migrated = Connection::open(&file).unwrap();
        texts_are_found(store, &migrated);
        assert_eq!(pragma(&migrated, "user_version"), newest);
        assert_eq!(schema(&migrated), expected, "format {format}");
    }
}

#[test]
fn rows_of_archives_are_read() {
    let roots = [
        Root::plain::<ArchiveHeader>("acct::archive::ArchiveHeader"),
        Root::plain::<Archived>("acct::archive::Archived"),
    ];
    check(PACKAGE, "tests/fixtures/archive.txt", &roots, "");
}
