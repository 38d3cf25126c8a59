//! Random histories through the core: what the store holds is what the state says, also after crashes.

use crate::support::{self, Directory, Driver, Op};
use muster_acct::{AccountingChange, History, Reader, SqliteStore, Store, changes};
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job, JobState};
use muster_proto::acct::{AcctJob, AcctQuery};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

fn all_rows(reader: &mut Reader, duplicates: bool) -> Vec<AcctJob> {
    let query = AcctQuery {
        duplicates,
        ..AcctQuery::default()
    };
    let mut by_run: BTreeMap<(JobId, u32), AcctJob> = BTreeMap::new();
    // Jobs that were never eligible are shown only by name, so every number is named.
    let named = AcctQuery {
        jobs: (1..400).map(|n| (JobId(n), None)).collect(),
        ..query
    };
    reader
        .query(&named, 7, &mut |page| {
            assert!(page.len() <= 7);
            for job in page {
                let key = (job.id, job.restarts);
                assert!(by_run.insert(key, job).is_none(), "{key:?} came twice");
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    by_run.into_values().collect()
}

fn matches_job(row: &AcctJob, job: &Job) -> Result<(), TestCaseError> {
    prop_assert_eq!(row.restarts, job.restarts);
    if job.after_completing == muster_model::job::AfterCompleting::End {
        prop_assert_eq!(row.state, job.state);
        prop_assert!(!row.requeued);
    } else {
        prop_assert!(row.requeued);
    }
    prop_assert_eq!(row.start, job.start_time);
    prop_assert_eq!(row.end, job.end_time);
    prop_assert_eq!(row.eligible, job.eligible_time);
    prop_assert_eq!(row.suspended_ms, job.suspended_ms);
    prop_assert_eq!(&row.name, &job.spec.name);
    prop_assert_eq!(row.uid, job.spec.owner.uid);
    if job.state != JobState::Pending {
        prop_assert_eq!(row.priority, job.priority);
    }
    prop_assert_eq!(row.cancelled_by, job.cancelled_by);
    prop_assert_eq!(row.derived_exit, job.derived_exit);
    prop_assert_eq!(row.time_limit, job.time_limit);
    let hostlist = job.alloc.as_ref().map_or("", |alloc| &alloc.hostlist);
    prop_assert_eq!(&row.nodelist, hostlist);
    match &job.array {
        ArrayRole::None => prop_assert!(row.array.is_none() && row.array_pending.is_none()),
        ArrayRole::Task { .. } => prop_assert_eq!(row.array, job.array.task()),
        ArrayRole::Pending { indices } => {
            let all: Vec<u32> = indices.iter().collect();
            let text = format!("[{}%2]", muster_model::hostlist::ranges(&all));
            prop_assert_eq!(row.array_pending.as_deref(), Some(text.as_str()));
        }
    }
    for step in &job.steps {
        let stored = row.steps.iter().find(|s| s.step == step.step);
        let stored = stored.expect("a step that runs has a row");
        prop_assert_eq!(&stored.name, &step.name);
        prop_assert_eq!(stored.start, step.start_time);
        prop_assert_eq!(stored.end, job.end_time);
    }
    let open = row.steps.iter().filter(|step| step.end.is_none()).count();
    let running = if job.end_time.is_some() {
        0
    } else {
        job.steps.len()
    };
    prop_assert_eq!(open, running);
    Ok(())
}

/// Last known form of every job, purged ones included.
#[derive(Default)]
struct Seen(BTreeMap<JobId, Job>);

impl Seen {
    fn note(&mut self, state: &State) {
        for job in state.jobs.values() {
            self.0.insert(job.id, job.clone());
        }
    }
}

fn history(ops: &[Op]) -> (Vec<(u64, Event, Vec<AccountingChange>)>, Seen) {
    let mut driver = Driver::default();
    let (mut history, mut seen, mut position) = (Vec::new(), Seen::default(), 0);
    for op in ops {
        for event in driver.events(op) {
            driver.state.apply(&event);
            position += 1;
            history.push((position, event.clone(), changes(&driver.state, &event)));
            seen.note(&driver.state);
        }
    }
    (history, seen)
}

fn check(
    reader: &mut Reader,
    seen: &Seen,
    history: &[(u64, Event, Vec<AccountingChange>)],
) -> Result<(), TestCaseError> {
    let rows = all_rows(reader, false);
    prop_assert_eq!(
        rows.len(),
        seen.0.len(),
        "one row for each job that ever was"
    );
    for row in &rows {
        matches_job(row, &seen.0[&row.id])?;
    }
    let runs = all_rows(reader, true);
    let requeues: u32 = seen.0.values().map(|job| job.restarts).sum();
    prop_assert_eq!(
        runs.len(),
        rows.len() + requeues as usize,
        "one row for each run"
    );
    for run in &runs {
        if seen.0[&run.id].restarts > run.restarts {
            prop_assert!(run.end.is_some() && (run.requeued || run.state.is_ended()));
        }
    }
    let started = history
        .iter()
        .filter(|(_, e, _)| matches!(e, Event::JobStarted { .. }))
        .count();
    let batch = runs
        .iter()
        .flat_map(|r| &r.steps)
        .filter(|s| s.name == "batch")
        .count();
    prop_assert!(batch <= started);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn rows_say_what_the_state_says(
        ops in proptest::collection::vec(any::<(u8, u16, u8)>(), 1..250),
        cuts in proptest::collection::vec(1usize..40, 1..20),
    ) {
        let ops: Vec<Op> = ops.iter().map(|op| Op(op.0, op.1, op.2)).collect();
        let (history, seen) = history(&ops);
        let directory = Directory::new();
        let path = directory.file("acct.db");
        let mut store = SqliteStore::open(&path).unwrap();
        let mut rest = history.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (group, later) = rest.split_at((*cut).min(rest.len()));
            rest = later;
            let all: Vec<AccountingChange> = group.iter().flat_map(|(.., c)| c.clone()).collect();
            store.write(&all, group.last().unwrap().0).unwrap();
        }
        check(&mut store.reader().unwrap(), &seen, &history)?;
    }

    #[test]
    fn a_crash_between_batches_loses_and_doubles_nothing(
        ops in proptest::collection::vec(any::<(u8, u16, u8)>(), 1..200),
        lives in proptest::collection::vec((1usize..60, 1usize..9), 1..6),
    ) {
        let ops: Vec<Op> = ops.iter().map(|op| Op(op.0, op.1, op.2)).collect();
        let (history, seen) = history(&ops);
        let directory = Directory::new();
        let path = directory.file("acct.db");
        for (count, group) in lives.iter().copied().chain([(usize::MAX, 11)]) {
            let mut store = SqliteStore::open(&path).unwrap();
            let position = store.position();
            let rest: Vec<_> = history.iter().filter(|(at, ..)| *at > position).collect();
            for part in rest.chunks(group).take(count) {
                let all: Vec<AccountingChange> = part.iter().flat_map(|(.., c)| c.clone()).collect();
                store.write(&all, part.last().unwrap().0).unwrap();
            }
        }
        check(&mut Reader::open(&path).unwrap(), &seen, &history)?;
    }

    #[test]
    fn writing_everything_again_changes_nothing(
        ops in proptest::collection::vec(any::<(u8, u16, u8)>(), 1..120),
    ) {
        let ops: Vec<Op> = ops.iter().map(|op| Op(op.0, op.1, op.2)).collect();
        let (history, _) = history(&ops);
        let directory = Directory::new();
        let mut store = SqliteStore::open(&directory.file("acct.db")).unwrap();
        let all: Vec<AccountingChange> = history.iter().flat_map(|(.., c)| c.clone()).collect();
        store.write(&all, 1).unwrap();
        let before = all_rows(&mut store.reader().unwrap(), true);
        store.write(&all, 2).unwrap();
        prop_assert_eq!(all_rows(&mut store.reader().unwrap(), true), before);
    }
}

#[test]
fn a_store_that_starts_late_has_what_is_in_the_queue() {
    let ops: Vec<Op> = (0..200u16)
        .map(|n| Op((n % 13) as u8, n * 7, (n % 5) as u8))
        .collect();
    let mut driver = Driver::default();
    for op in &ops {
        for event in driver.events(op) {
            driver.state.apply(&event);
        }
    }
    let directory = Directory::new();
    let mut store = SqliteStore::open(&directory.file("acct.db")).unwrap();
    store
        .write(&muster_acct::resync(&driver.state, support::at(0)), 77)
        .unwrap();
    let rows = all_rows(&mut store.reader().unwrap(), false);
    assert_eq!(rows.len(), driver.state.jobs.len());
    for row in rows {
        matches_job(&row, &driver.state.jobs[&row.id]).unwrap();
    }
    assert!(
        driver
            .state
            .jobs
            .values()
            .any(|job| job.state == JobState::Running)
    );
}

/// `nosteps` leaves out steps, `nojobs` jobs and steps; what is told of nodes stays.
#[test]
fn a_site_may_want_no_rows() {
    let written = |no_jobs: bool, no_steps: bool| {
        let mut driver = Driver::default();
        let (mut jobs, mut steps, mut nodes) = (0, 0, 0);
        let mut count = |change: &AccountingChange| match change {
            AccountingChange::Node(_) => nodes += 1,
            AccountingChange::StepStarted { .. } | AccountingChange::StepEnded { .. } => steps += 1,
            _ => jobs += 1,
        };
        for n in 0..200u16 {
            let op = Op((n % 13) as u8, n * 7, (n % 5) as u8);
            for mut event in driver.events(&op) {
                if let Event::Configured { config, .. } = &mut event {
                    let order = &mut std::sync::Arc::make_mut(config).order;
                    (order.no_job_rows, order.no_step_rows) = (no_jobs, no_steps);
                }
                driver.state.apply(&event);
                changes(&driver.state, &event).iter().for_each(&mut count);
            }
        }
        let all = muster_acct::resync(&driver.state, support::at(0));
        all.iter().for_each(&mut count);
        [jobs > 0, steps > 0, nodes > 0]
    };
    assert_eq!(written(false, false), [true, true, true]);
    assert_eq!(written(false, true), [true, false, true]);
    assert_eq!(written(true, true), [false, false, true]);
}
