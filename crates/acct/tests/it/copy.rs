//! The parts in which a store is copied.

use crate::query::Scene;
use crate::support::spec;
use muster_acct::{AccountingChange, CopyProgress, CopySource, History, Stage, Store};
use muster_core::event::Event;
use muster_model::accounts::Transaction;
use muster_model::ids::JobId;
use muster_model::job::{Hold, Reason};
use muster_model::time::TimeLimit;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Jobs with long command lines.
const JOBS: u32 = 300;

fn submit(scene: &mut Scene) {
    for _ in 0..JOBS {
        let mut spec = spec(1, None, true);
        spec.submit_line = "x".repeat(64 << 10);
        let id = JobId(scene.state.next_job_id);
        scene.happens(Event::JobSubmitted {
            id,
            spec: Arc::new(spec),
            at: crate::support::at(1),
            priority: 1,
            hold: Hold::None,
            time_limit: TimeLimit::Minutes(1),
            waiting_on: Vec::new(),
            reason: Reason::None,
            partition: "batch".to_owned(),
            requeueable: true,
            het: None,
        });
    }
}

/// Copies until nothing is left; the most bytes of a part, and the jobs.
fn copy(source: &mut CopySource, copied: &mut CopyProgress) -> (usize, BTreeSet<JobId>) {
    let (mut most, mut jobs) = (0, BTreeSet::new());
    while let Some((rows, next)) = source.next(*copied, 1000).unwrap() {
        *copied = next;
        let bytes = rows.jobs.iter().map(|(_, job)| job.submit_line.len());
        most = most.max(bytes.sum());
        jobs.extend(rows.jobs.iter().map(|(_, job)| job.id));
    }
    (most, jobs)
}

#[test]
fn a_part_has_a_bounded_number_of_bytes() {
    let mut scene = Scene::new();
    submit(&mut scene);
    let mut source = CopySource::open(&scene.directory.file("acct.db")).unwrap();
    let mut copied = CopyProgress::default();
    // First from the tables, then what the log of changes names.
    for _ in 0..2 {
        let (most, jobs) = copy(&mut source, &mut copied);
        assert_eq!(
            (copied.stage, jobs.len()),
            (Stage::Following, JOBS as usize)
        );
        assert!(most > 4 << 20 && most < 16 << 20, "{most}");
        submit(&mut scene);
    }
}

/// A database that was restored from a backup, or the one of StorageBackupHost, lacked what another had read meanwhile.
#[test]
fn a_copy_that_is_older_than_the_log_begins_anew() {
    let mut scene = Scene::new();
    submit(&mut scene);
    let mut source = CopySource::open(&scene.directory.file("acct.db")).unwrap();
    let mut copied = CopyProgress::default();
    copy(&mut source, &mut copied);
    let backup = copied;
    submit(&mut scene);
    copy(&mut source, &mut copied);
    source.forget(copied, 1_000_000).unwrap();
    // What was read last goes on, whether there is something new or not.
    assert!(source.next(copied, 1000).unwrap().is_none());
    let mut old = backup;
    let (_, jobs) = copy(&mut source, &mut old);
    assert_eq!(jobs.len(), 2 * JOBS as usize);
    assert_eq!(old.stage, Stage::Following);
    submit(&mut scene);
    let (_, jobs) = copy(&mut source, &mut copied);
    assert_eq!(jobs.len(), JOBS as usize);
}

/// Steps without a text counted nothing: the first copy read all of them at once.
#[test]
fn a_part_has_a_bounded_number_of_steps() {
    let mut scene = Scene::new();
    submit(&mut scene);
    let path = scene.directory.file("acct.db");
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "WITH RECURSIVE n (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM n WHERE n < 199)
             INSERT INTO step (job, step, start_ms, nodes, tasks, cpus, mem_mib, state, exit)
             SELECT row, n, 1, 1, 1, 1, 1, 1, 0 FROM job, n;
             UPDATE job SET submit_line = NULL;",
        )
        .unwrap();
    let mut source = CopySource::open(&path).unwrap();
    let (mut copied, mut all, mut most) = (CopyProgress::default(), 0, 0);
    while let Some((rows, next)) = source.next(copied, 1000).unwrap() {
        copied = next;
        all += rows.steps.len();
        most = most.max(rows.steps.len());
    }
    assert_eq!(all, 200 * JOBS as usize);
    assert!(most < all / 3, "{most}");
}

/// Ten thousand changes of which each names many users were a gigabyte in one answer.
#[test]
fn changes_of_records_in_an_answer_are_bounded_in_bytes() {
    let mut scene = Scene::new();
    let logged = |second: i64| AccountingChange::Transaction {
        transaction: Box::new(Transaction {
            target: "x".repeat(64 << 10),
            info: format!("change {second}"),
            actor: if second == 1 { "own" } else { "other" }.to_owned(),
            ..Transaction::default()
        }),
        at: crate::support::at(second),
    };
    let all: Vec<AccountingChange> = (1..=1000).map(logged).collect();
    scene.store.write(&all, 1_000_000).unwrap();
    let found = scene.store.reader().unwrap().transactions(None, None, None);
    let found = found.unwrap();
    assert!(found.left_out);
    let found = found.newest;
    assert!((300..600).contains(&found.len()), "{}", found.len());
    let last = &found.last().unwrap().transaction;
    assert_eq!(last.info, "change 1000", "the newest stay, in order");
    assert!(found.is_sorted_by_key(|logged| logged.at));
    // What others did leaves no less room for what is one's own.
    let mut reader = scene.store.reader().unwrap();
    let own = reader.transactions(None, None, Some("own")).unwrap();
    assert!(!own.left_out);
    assert_eq!(own.newest[0].transaction.info, "change 1");
    assert_eq!(own.newest.len(), 1);
}
