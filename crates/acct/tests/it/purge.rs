//! Purging: what goes, what stays, and what a copy learns of it.

use crate::support::{Directory, Driver, Op, at};
use muster_acct::{
    AccountingChange, ArchiveError, ArchiveHeader, ArchiveReader, ArchiveWriter, Archived,
    CopyProgress, CopySource, History, ImportMark, ImportedJob, Importer, PurgeKind, PurgePosition,
    Purger, Restorer, RowKey, SqliteStore, Stage, Store, changes,
};
use muster_fixtures::sample;
use muster_model::ids::JobId;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctQuery, NodeEvent, UsageQuery};
use std::ops::ControlFlow;

fn jobs(store: &SqliteStore) -> Vec<AcctJob> {
    let named = AcctQuery {
        jobs: (1..900).map(|n| (JobId(n), None)).collect(),
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
        .query(&named, 100, &mut take)
        .unwrap();
    all
}

/// A run went in one transaction with all of its steps, and a thousand runs with theirs: the controller waited.
#[test]
fn a_transaction_removes_few_steps_however_many_a_run_has() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let store = random_store(&file);
    let mut purger = Purger::open(&file).unwrap();
    let cut = at(86_400 * 3);
    let keys = purger
        .find(PurgeKind::Jobs, cut, &mut PurgePosition::default(), 10)
        .unwrap();
    let RowKey::Job(run) = keys[3] else {
        panic!("{keys:?}");
    };
    let connection = rusqlite::Connection::open(&file).unwrap();
    let add = "WITH RECURSIVE n (step) AS (SELECT 1000 UNION ALL SELECT step + 1 FROM n WHERE step < 12999)
         INSERT INTO step (job, step, start_ms, nodes, tasks, cpus, mem_mib, state, exit)
         SELECT ?1, step, 0, 1, 1, 1, 0, 3, 0 FROM n";
    assert_eq!(connection.execute(add, [run]).unwrap(), 12_000);
    let count = || -> i64 {
        let mut count = connection.prepare("SELECT count(*) FROM step").unwrap();
        count.query_row([], |row| row.get(0)).unwrap()
    };
    let (mut left, mut transactions, mut removed) = (keys.as_slice(), 0, 0);
    while !left.is_empty() {
        let before = count();
        let (done, gone) = purger.remove_some(left).unwrap();
        assert!(before - count() <= 5000);
        left = &left[done..];
        transactions += 1;
        removed += gone;
        // To stop in between would leave the run with a part of its steps.
        assert_eq!(purger.has_begun(), transactions < 3);
    }
    assert_eq!((removed, transactions), (keys.len() as u64, 3));
    assert!(count() < 12_000);
    // A run that is not over keeps its steps.
    let open = jobs(&store)
        .into_iter()
        .find(|job| job.end.is_none() && !job.steps.is_empty());
    let open = open.unwrap();
    let runs = (0..3).map(|run| RowKey::Job((open.id.0 as i64) << 16 | run));
    purger.remove(&runs.collect::<Vec<_>>()).unwrap();
    let after = jobs(&store)
        .into_iter()
        .find(|job| job.id == open.id && job.end.is_none());
    assert_eq!(after.unwrap().steps.len(), open.steps.len());
}

/// Purges all of a kind; how many rows, and in how many steps.
fn purge(purger: &mut Purger, what: PurgeKind, before: Timestamp, most: usize) -> (u64, usize) {
    let (mut after, mut removed, mut steps) = (PurgePosition::default(), 0, 0);
    loop {
        let keys = purger.find(what, before, &mut after, most).unwrap();
        if keys.is_empty() {
            return (removed, steps);
        }
        steps += 1;
        removed += purger.remove(&keys).unwrap();
        assert!(steps < 10_000, "{what:?} does not end");
    }
}

fn random_store(file: &std::path::Path) -> SqliteStore {
    let mut driver = Driver::default();
    driver.pace_s = 600;
    let mut store = SqliteStore::open(file).unwrap();
    let mut all: Vec<AccountingChange> = Vec::new();
    for n in 0..900u16 {
        let op = Op(
            (n % 13).try_into().unwrap(),
            n.wrapping_mul(31),
            (n % 11).try_into().unwrap(),
        );
        for event in driver.events(&op) {
            driver.state.apply(&event);
            all.extend(changes(&driver.state, &event));
        }
    }
    store.write(&all, 1).unwrap();
    store
}

#[test]
fn what_is_over_goes_and_sums_stay() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let store = random_store(&file);
    let mut purger = Purger::open(&file).unwrap();
    let all = UsageQuery {
        start: at(-86_400),
        end: at(86_400 * 60),
    };
    let now = at(86_400 * 30);
    let used = || store.reader().unwrap().usage(&all, now).unwrap();
    let (before, sums) = (jobs(&store), used());
    let cut = at(86_400 * 3);
    let old = |job: &AcctJob| job.end.is_some_and(|end| end < cut);
    assert!(before.iter().filter(|job| old(job)).count() > 20);

    let (steps, _) = purge(&mut purger, PurgeKind::Steps, cut, 7);
    assert!(steps > 10, "{steps}");
    let without = jobs(&store);
    assert_eq!(without.len(), before.len());
    for (now, before) in without.iter().zip(&before) {
        assert_eq!(now.steps.is_empty(), before.steps.is_empty() || old(before));
    }
    let (suspensions, _) = purge(&mut purger, PurgeKind::Suspensions, cut, 3);
    assert!(suspensions > 0);
    let (removed, parts) = purge(&mut purger, PurgeKind::Jobs, cut, 10);
    assert!(removed > 20 && parts >= 2, "{removed} in {parts}");
    let left = jobs(&store);
    // Nothing that is not over, or of a job that is not, has gone.
    let is_open = |job: &AcctJob| before.iter().any(|o| o.id == job.id && o.end.is_none());
    let kept: Vec<_> = before
        .iter()
        .filter(|job| !old(job) || is_open(job))
        .collect();
    assert!(kept.iter().all(|job| {
        left.iter()
            .any(|l| l.id == job.id && l.restarts == job.restarts)
    }));
    let gone = before.iter().filter(|job| {
        !left
            .iter()
            .any(|l| l.id == job.id && l.restarts == job.restarts)
    });
    assert!(gone.clone().count() > 20);
    assert!(gone.clone().all(old));
    // No task that is gone is listed as one that waits.
    let pending = |jobs: &[AcctJob]| -> Vec<(JobId, Option<String>)> {
        let records = jobs.iter().filter(|job| job.array_pending.is_some());
        records
            .map(|job| (job.id, job.array_pending.clone()))
            .collect()
    };
    let (pending_before, pending_left) = (pending(&before), pending(&left));
    assert!(pending_left.iter().all(|own| pending_before.contains(own)));
    assert_eq!(used(), sums);
    assert_eq!(purge(&mut purger, PurgeKind::Jobs, cut, 10), (0, 0));

    purge(&mut purger, PurgeKind::Usage, at(86_400 * 400), 50);
    let open: u64 = used().rows.iter().map(|row| row.run_ms).sum();
    let running = left.iter().filter(|job| job.end.is_none());
    let expected: u64 = running
        .map(|job| muster_proto::acct::UsageRow::of(job, all.start, all.end, now).run_ms)
        .sum();
    assert_eq!(open, expected);
}

#[test]
fn an_imported_run_that_was_purged_does_not_come_again() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let store = SqliteStore::open(&file).unwrap();
    let mut importer = Importer::open(&file, "peer@1").unwrap();
    let job: AcctJob =
        minicbor::decode(&sample(env!("CARGO_MANIFEST_DIR"), "proto::acct::AcctJob")).unwrap();
    let batch: Vec<ImportedJob> = [10, 100_000]
        .into_iter()
        .zip(1..)
        .map(|(end_s, number)| ImportedJob {
            number,
            job: AcctJob {
                id: JobId(number),
                array: None,
                eligible: Some(at(1)),
                start: Some(at(2)),
                end: Some(at(end_s)),
                ..job.clone()
            },
            array: None,
            suspensions: Vec::new(),
        })
        .collect();
    importer.write(&batch, ImportMark::default()).unwrap();
    assert_eq!(importer.purged_month().unwrap(), None);
    let period = UsageQuery {
        start: at(-7200),
        end: at(200_000),
    };
    let used = store.reader().unwrap().usage(&period, at(0)).unwrap();
    let mut purger = Purger::open(&file).unwrap();
    assert_eq!(purge(&mut purger, PurgeKind::Jobs, at(1000), 10), (1, 1));
    assert_eq!(importer.purged_month().unwrap().as_deref(), Some("2026-05"));
    let again = importer.write(&batch, ImportMark::default()).unwrap();
    assert_eq!((again.added, again.again), (0, 1));
    assert_eq!((jobs(&store).len(), importer.runs().unwrap()), (1, 1));
    let now = store.reader().unwrap().usage(&period, at(0)).unwrap();
    assert_eq!(now, used);

    let event = NodeEvent {
        node: "n1".to_owned(),
        start: at(10),
        end: Some(at(500)),
        down: true,
        drain: false,
        fail: false,
        reason: String::new(),
        uid: 0,
    };
    let later = NodeEvent {
        end: Some(at(90_000)),
        start: at(600),
        ..event.clone()
    };
    let events = [event, later];
    assert_eq!(importer.write_events(&events).unwrap(), 2);
    let used = store.reader().unwrap().usage(&period, at(0)).unwrap();
    assert_eq!(purge(&mut purger, PurgeKind::Events, at(1000), 10), (1, 1));
    assert_eq!(importer.write_events(&events).unwrap(), 0);
    let now = store.reader().unwrap().usage(&period, at(0)).unwrap();
    assert_eq!(now, used);
}

#[test]
fn a_copy_learns_what_is_gone() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let _store = random_store(&file);
    let mut source = CopySource::open(&file).unwrap();
    let mut copied = CopyProgress::default();
    while let Some((_, next)) = source.next(copied, 500).unwrap() {
        copied = next;
    }
    assert_eq!(copied.stage, Stage::Following);
    let mut purger = Purger::open(&file).unwrap();
    let cut = at(86_400 * 3);
    let (jobs, _) = purge(&mut purger, PurgeKind::Jobs, cut, 100);
    let (sums, _) = purge(&mut purger, PurgeKind::Usage, cut, 100);
    let (mut gone_jobs, mut gone_sums) = (0, 0);
    while let Some((rows, next)) = source.next(copied, 500).unwrap() {
        gone_jobs += rows.gone.jobs.len() as u64;
        gone_sums += (rows.gone.used.len() + rows.gone.out.len()) as u64;
        assert!(rows.gone.jobs.is_subset(&rows.reset));
        copied = next;
    }
    assert_eq!((gone_jobs, gone_sums), (jobs, sums));
}

fn rows_of(purger: &Purger, what: PurgeKind, before: Timestamp) -> Vec<(RowKey, Archived)> {
    let mut after = PurgePosition::default();
    let keys = purger.find(what, before, &mut after, 100_000).unwrap();
    let rows = keys.into_iter();
    rows.map(|key| (key, purger.read(key).unwrap().unwrap()))
        .collect()
}

/// Everything that jobs, events, transactions and sums are read as.
fn everything(store: &SqliteStore) -> String {
    let mut reader = store.reader().unwrap();
    let period = UsageQuery {
        start: at(-86_400),
        end: at(86_400 * 60),
    };
    let events = reader.node_events(&[], None, None).unwrap();
    let used = reader.usage(&period, at(86_400 * 30)).unwrap();
    let log = reader.transactions(None, None, None).unwrap().newest;
    format!("{:?}\n{events:?}\n{used:?}\n{log:?}", jobs(store))
}

#[test]
fn what_was_purged_comes_back_as_it_was_and_only_once() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let store = random_store(&file);
    let before = everything(&store);
    let mut purger = Purger::open(&file).unwrap();
    let cut = at(86_400 * 4);
    let mut restorer = Restorer::open(&file).unwrap();
    assert_eq!(purger.origin().unwrap(), restorer.origin());
    let header = ArchiveHeader {
        cluster: "c".to_owned(),
        origin: restorer.origin(),
        what: "all".to_owned(),
        written: at(0),
    };
    let mut writer = ArchiveWriter::begin(Vec::new(), &header).unwrap();
    let mut count = 0;
    // Steps and suspensions first, then runs without them: they come back in the other order.
    let mut parts = Vec::new();
    for what in PurgeKind::ALL {
        let rows = rows_of(&purger, what, cut);
        let keys: Vec<RowKey> = rows.iter().map(|(key, _)| *key).collect();
        if !matches!(what, PurgeKind::Usage) {
            parts.push((what, rows));
        }
        if matches!(what, PurgeKind::Steps | PurgeKind::Suspensions) {
            purger.remove(&keys).unwrap();
        }
    }
    parts.sort_by_key(|(what, _)| !matches!(what, PurgeKind::Jobs));
    for (_, rows) in &parts {
        for (_, row) in rows {
            writer.add(row.clone()).unwrap();
            count += 1;
        }
        let keys: Vec<RowKey> = rows.iter().map(|(key, _)| *key).collect();
        purger.remove(&keys).unwrap();
    }
    let bytes = writer.finish().unwrap();
    assert_ne!(everything(&store), before);

    let mut reader = ArchiveReader::begin(bytes.as_slice()).unwrap();
    assert_eq!(reader.header(), &header);
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row().unwrap() {
        rows.push(row);
    }
    assert_eq!(rows.len(), count);
    restorer.write(&rows).unwrap();
    assert_eq!(everything(&store), before);
    let again = restorer.write(&rows).unwrap();
    assert_eq!((again.added, again.alone), (0, 0));

    let mut sums: Vec<Archived> = Vec::new();
    loop {
        let rows = rows_of(&purger, PurgeKind::Usage, at(86_400 * 400));
        let keys: Vec<RowKey> = rows.iter().map(|(key, _)| *key).collect();
        if keys.is_empty() {
            break;
        }
        purger.remove(&keys).unwrap();
        sums.extend(rows.into_iter().map(|(_, row)| row));
    }
    assert!(sums.len() > 10);
    assert_ne!(everything(&store), before);
    assert_eq!(restorer.write(&sums).unwrap().added, sums.len() as u64);
    assert_eq!(restorer.write(&sums).unwrap().added, 0);
    assert_eq!(everything(&store), before);

    // A file of which any byte is another, or that ends before its end, is refused and never read as another.
    for place in (0..bytes.len()).step_by(bytes.len() / 300) {
        let mut changed = bytes.clone();
        changed[place] ^= 1 << (place % 8);
        for damaged in [changed.as_slice(), &bytes[..place]] {
            let read = || -> Result<(), ArchiveError> {
                let mut reader = ArchiveReader::begin(damaged)?;
                while reader.next_row()?.is_some() {}
                Ok(())
            };
            assert!(read().is_err(), "{place}");
        }
    }
}
