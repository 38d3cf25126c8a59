//! What sacct's conditions select.

use crate::support::{self, Directory, allocation, at, config, spec};
use muster_acct::{
    AccountingChange, History, JobRow, Reader, RunKey, SqliteStore, Store, StoreError, changes,
};
use muster_core::event::{Event, JobChange, NodeChange};
use muster_core::state::State;
use muster_model::ids::{Attempt, JobId, NodeIdx, StepNo};
use muster_model::job::{ExitStatus, Hold, JobState, Reason, ResourceUsage, Step, StepEnd};
use muster_model::node::NodeReason;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_proto::acct::{AcctJob, AcctQuery};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A cluster whose history is written down as it is made.
pub(crate) struct Scene {
    pub(crate) state: State,
    pub(crate) store: SqliteStore,
    position: u64,
    pub(crate) directory: Directory,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let directory = Directory::new();
        let mut scene = Scene {
            state: State::default(),
            store: SqliteStore::open(&directory.file("acct.db")).unwrap(),
            position: 0,
            directory,
        };
        scene.happens(Event::Configured {
            config: Arc::new(config(4)),
            at: at(0),
            partitions: None,
        });
        scene
    }

    pub(crate) fn happens(&mut self, event: Event) {
        self.state.apply(&event);
        self.position += 1;
        self.store
            .write(&changes(&self.state, &event), self.position)
            .unwrap();
    }

    pub(crate) fn submit(&mut self, n: u16, array: Option<u32>, s: i64) -> JobId {
        let id = JobId(self.state.next_job_id);
        self.happens(Event::JobSubmitted {
            id,
            spec: Arc::new(spec(n, array, true)),
            at: at(s),
            priority: 1,
            hold: if n == 99 { Hold::User } else { Hold::None },
            time_limit: TimeLimit::Minutes(1),
            waiting_on: Vec::new(),
            reason: Reason::None,
            partition: "batch".to_owned(),
            requeueable: true,
            het: None,
        });
        id
    }

    pub(crate) fn start(&mut self, id: JobId, nodes: &[u32], s: i64) {
        let attempt = Attempt(self.state.jobs[&id].attempt.0 + 1);
        let alloc = Arc::new(allocation(nodes, u32::try_from(id.0).unwrap()));
        self.happens(Event::JobStarted {
            id,
            attempt,
            at: at(s),
            alloc,
            configuring: false,
            priority: None,
        });
    }

    pub(crate) fn end(&mut self, id: JobId, state: JobState, requeue: Option<bool>, s: i64) {
        self.happens(Event::JobEnding {
            id,
            at: at(s),
            state,
            reason: if requeue.is_some() {
                Reason::NodeDown
            } else {
                Reason::None
            },
            exit: ExitStatus::default(),
            cancelled_by: None,
            requeue,
        });
    }

    pub(crate) fn ask(&self, query: &AcctQuery) -> Vec<AcctJob> {
        let mut jobs = Vec::new();
        let mut reader = self.store.reader().unwrap();
        reader
            .query(query, 2, &mut |page| {
                jobs.extend(page);
                ControlFlow::Continue(())
            })
            .unwrap();
        jobs
    }

    /// Numbers, with the index or the pending tasks of an array's records.
    fn shown(&self, query: &AcctQuery) -> Vec<String> {
        self.ask(query)
            .iter()
            .map(|job| match (&job.array, &job.array_pending) {
                (_, Some(pending)) => format!("{}_{pending}", job.id),
                (Some(task), None) => task.to_string(),
                (None, None) if job.restarts > 0 => format!("{} run {}", job.id, job.restarts),
                (None, None) => job.id.to_string(),
            })
            .collect()
    }
}

pub(crate) fn jobs(named: &[(u64, Option<u32>)]) -> AcctQuery {
    AcctQuery {
        jobs: named
            .iter()
            .map(|(job, task)| (JobId(*job), *task))
            .collect(),
        ..AcctQuery::default()
    }
}

/// 1 ran on n0, 2 runs on n0 and n1, 3 waits, 4 is held, 5 was requeued after the loss of a node and runs again.
fn scene() -> Scene {
    let mut scene = Scene::new();
    for n in [0, 1, 2, 99, 4] {
        scene.submit(n, None, 10);
    }
    scene.start(JobId(1), &[0], 20);
    scene.end(JobId(1), JobState::Completed, None, 30);
    scene.start(JobId(2), &[0, 1], 40);
    scene.start(JobId(5), &[2], 20);
    scene.end(JobId(5), JobState::Pending, Some(false), 25);
    scene.happens(Event::NodeReleased {
        id: JobId(5),
        position: 0,
        at: at(26),
    });
    scene.happens(Event::JobRequeued {
        id: JobId(5),
        at: at(27),
        hold: Hold::None,
        not_before: None,
    });
    scene.start(JobId(5), &[3], 50);
    scene
}

#[test]
fn conditions_select() {
    let scene = scene();
    let all = AcctQuery::default;
    let window = |start: i64, end: i64| AcctQuery {
        start: Some(at(start)),
        end: Some(at(end)),
        ..AcctQuery::default()
    };
    let table: &[(AcctQuery, &[&str])] = &[
        (all(), &["1", "2", "3", "5 run 1"]),
        (
            AcctQuery {
                duplicates: true,
                ..all()
            },
            &["1", "2", "3", "5", "5 run 1"],
        ),
        (jobs(&[(4, None)]), &["4"]),
        (jobs(&[(5, None), (1, None), (77, None)]), &["1", "5 run 1"]),
        (
            AcctQuery {
                duplicates: true,
                ..jobs(&[(5, None)])
            },
            &["5", "5 run 1"],
        ),
        (jobs(&[(1, Some(3))]), &[]),
        (
            AcctQuery {
                uids: vec![1000],
                ..all()
            },
            &["1"],
        ),
        (
            AcctQuery {
                uids: vec![1001, 1000],
                ..window(0, 90)
            },
            &["1", "2", "5 run 1"],
        ),
        (
            AcctQuery {
                gids: vec![7],
                ..all()
            },
            &[],
        ),
        (
            AcctQuery {
                names: vec!["job1".to_owned()],
                ..all()
            },
            &["2"],
        ),
        (
            AcctQuery {
                partitions: vec!["batch".to_owned()],
                ..all()
            },
            &["1", "2", "3", "5 run 1"],
        ),
        (
            AcctQuery {
                partitions: vec!["other".to_owned()],
                ..all()
            },
            &[],
        ),
        (
            AcctQuery {
                accounts: vec!["u2".to_owned()],
                ..all()
            },
            &["3"],
        ),
        (
            AcctQuery {
                qos: vec!["normal".to_owned()],
                ..jobs(&[(3, None)])
            },
            &["3"],
        ),
        (
            AcctQuery {
                wckeys: vec!["k".to_owned()],
                ..all()
            },
            &[],
        ),
        (
            AcctQuery {
                nodes: vec!["n0".to_owned()],
                ..all()
            },
            &["1", "2"],
        ),
        (
            AcctQuery {
                nodes: vec!["n1".to_owned()],
                ..all()
            },
            &["2"],
        ),
        // The run on the lost node is found by that node.
        (
            AcctQuery {
                nodes: vec!["n2".to_owned()],
                ..all()
            },
            &["5"],
        ),
        (window(31, 90), &["2", "3", "5 run 1"]),
        (window(0, 9), &[]),
        (
            AcctQuery {
                states: vec![JobState::Running],
                ..window(21, 24)
            },
            &["1", "5"],
        ),
        (
            AcctQuery {
                states: vec![JobState::Running],
                ..all()
            },
            &["2", "5 run 1"],
        ),
        (
            AcctQuery {
                states: vec![JobState::Pending],
                ..window(90, 90)
            },
            &["3"],
        ),
        (
            AcctQuery {
                states: vec![JobState::Pending],
                ..all()
            },
            &["3", "4"],
        ),
        (
            AcctQuery {
                states: vec![JobState::Completed],
                ..window(0, 90)
            },
            &["1"],
        ),
        (
            AcctQuery {
                states: vec![JobState::NodeFail],
                ..window(0, 90)
            },
            &["5"],
        ),
        (
            AcctQuery {
                states: vec![JobState::Completed],
                end: None,
                ..window(0, 0)
            },
            &[],
        ),
    ];
    for (query, shown) in table {
        assert_eq!(scene.shown(query), *shown, "{query:?}");
    }
}

#[test]
fn a_requeued_run_keeps_its_row() {
    let scene = scene();
    let runs = scene.ask(&AcctQuery {
        duplicates: true,
        ..jobs(&[(5, None)])
    });
    let facts: Vec<_> = runs
        .iter()
        .map(|run| {
            (
                run.state,
                run.requeued,
                run.nodelist.as_str(),
                run.start,
                run.end,
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            (JobState::NodeFail, true, "n2", Some(at(20)), Some(at(25))),
            (JobState::Running, false, "n3", Some(at(50)), None),
        ]
    );
    assert_eq!(
        runs[0].steps[0].state,
        JobState::NodeFail,
        "it did not outlive its job"
    );
    assert_eq!(runs[1].steps[0].state, JobState::Running);
}

#[test]
fn a_job_that_was_made_smaller_has_a_row_for_each_size() {
    let mut scene = Scene::new();
    let id = scene.submit(1, None, 10);
    scene.start(id, &[0, 1], 20);
    let step = |no: u32| Event::StepStarted {
        id,
        step: Arc::new(Step {
            step: StepNo(no),
            name: "step".to_owned(),
            hostlist: "n[0-1]".to_owned(),
            nodes: 2,
            tasks: 2,
            cpus: 2,
            memory_mib: 0,
            start_time: at(21),
            stdio: Default::default(),
            submit_line: String::new(),
            time_limit: None,
            distribution: None,
            maker: None,
            devices: Vec::new(),
            device_ask: None,
        }),
    };
    for no in 0..2 {
        scene.happens(step(no));
    }
    let end = Box::new(StepEnd {
        end_time: at(25),
        exit: ExitStatus::default(),
        state: JobState::Completed,
        usage: ResourceUsage::default(),
        cancelled_by: None,
        last_lines: None,
    });
    let ended = |no: u32| Event::StepEnded {
        id,
        step: StepNo(no),
        end: end.clone(),
    };
    scene.happens(ended(0));
    scene.happens(Event::NodeReleased {
        id,
        position: 1,
        at: at(30),
    });
    scene.happens(Event::JobChanged {
        id,
        change: JobChange::Resized(Arc::new(allocation(&[0], 1))),
        at: at(30),
    });
    scene.happens(ended(1));
    scene.end(id, JobState::Completed, None, 40);
    for duplicates in [false, true] {
        let runs = scene.ask(&AcctQuery {
            duplicates,
            ..jobs(&[(id.0, None)])
        });
        let facts: Vec<_> = runs
            .iter()
            .map(|run| {
                let steps: Vec<_> = run.steps.iter().map(|s| s.step).collect();
                (run.resized, run.alloc_nodes, run.start, run.end, steps)
            })
            .collect();
        assert_eq!(
            facts,
            [
                (true, 2, Some(at(20)), Some(at(30)), vec![StepNo(0)]),
                (
                    false,
                    1,
                    Some(at(30)),
                    Some(at(40)),
                    vec![StepNo::BATCH, StepNo(1)]
                ),
            ]
        );
        assert_eq!(runs[1].state, JobState::Completed);
    }
}

#[test]
fn an_array_is_found_by_its_number_and_by_task() {
    let mut scene = Scene::new();
    let base = scene.submit(1, Some(4), 10);
    assert_eq!(scene.shown(&jobs(&[(base.0, None)])), ["1_[1-4%2]"]);
    for (index, id) in [(1, 2), (2, 3)] {
        scene.happens(Event::TaskSplit {
            base,
            index,
            id: JobId(id),
        });
        scene.start(JobId(id), &[0], 20);
    }
    assert_eq!(
        scene.shown(&jobs(&[(1, None)])),
        ["1_[3-4%2]", "1_1", "1_2"]
    );
    assert_eq!(scene.shown(&jobs(&[(1, Some(2))])), ["1_2"]);
    assert_eq!(
        scene.shown(&jobs(&[(1, Some(4)), (1, Some(3)), (1, Some(9))])),
        ["1_3", "1_4"]
    );
    assert_eq!(
        scene.shown(&jobs(&[(1, Some(4)), (1, None)])),
        ["1_[3-4%2]", "1_1", "1_2"]
    );
    assert_eq!(
        scene.shown(&jobs(&[(3, None)])),
        ["1_2"],
        "by its own number"
    );
    scene.happens(Event::TaskSplit {
        base,
        index: 3,
        id: JobId(4),
    });
    scene.happens(Event::TaskSplit {
        base,
        index: 4,
        id: base,
    });
    scene.start(base, &[1], 30);
    assert_eq!(
        scene.shown(&jobs(&[(1, None)])),
        ["1_4", "1_1", "1_2", "1_3"]
    );
    assert_eq!(scene.shown(&jobs(&[(1, Some(4))])), ["1_4"]);
    assert_eq!(scene.shown(&jobs(&[(1, Some(1))])), ["1_1"]);
}

#[test]
fn rows_tell_what_was_asked_and_given() {
    let mut scene = scene();
    let end = support::step_end(&scene.state.jobs[&JobId(2)], 1, at(55));
    scene.happens(end);
    let job = scene.ask(&jobs(&[(2, None)])).remove(0);
    assert_eq!(
        (job.alloc_cpus, job.alloc_nodes, job.alloc_mem_mib),
        (2, 2, 200)
    );
    assert_eq!(
        (job.req_cpus, job.req_nodes, job.req_mem_mib),
        (1, 1, 200),
        "100 MiB per CPU"
    );
    assert_eq!(
        (job.nodelist.as_str(), job.ntasks, job.batch),
        ("n[0-1]", 2, true)
    );
    assert_eq!(
        (job.user.as_str(), job.account.as_str(), job.group.as_str()),
        ("u1", "u1", "g")
    );
    let [step] = job.steps.as_slice() else {
        panic!("one step: {:?}", job.steps)
    };
    assert_eq!(
        (step.step, step.name.as_str(), step.nodelist.as_str()),
        (StepNo::BATCH, "batch", "n0")
    );
    assert_eq!(
        (step.state, step.exit.code, step.end),
        (JobState::Failed, 1, Some(at(55)))
    );
    let usage = step.usage.as_ref().unwrap();
    assert_eq!((usage.user_us, usage.max_rss_kib, usage.tasks), (5, 7, 1));
    let without = AcctQuery {
        allocations_only: true,
        ..jobs(&[(2, None)])
    };
    assert!(scene.ask(&without)[0].steps.is_empty());
}

#[test]
fn suspended_jobs_are_found_by_when_they_were() {
    let mut scene = scene();
    let stopped = |at_s| Event::JobSuspended {
        id: JobId(2),
        at: at(at_s),
        turn: None,
        by_calendar: false,
    };
    scene.happens(stopped(60));
    scene.happens(Event::JobResumed {
        id: JobId(2),
        at: at(70),
    });
    scene.happens(stopped(80));
    scene.end(JobId(2), JobState::Cancelled, None, 90);
    for (start, end, found) in [
        (50, 55, false),
        (55, 65, true),
        (72, 78, false),
        (85, 99, true),
        (91, 99, false),
    ] {
        let query = AcctQuery {
            states: vec![JobState::Suspended],
            start: Some(at(start)),
            end: Some(at(end)),
            ..AcctQuery::default()
        };
        assert_eq!(!scene.shown(&query).is_empty(), found, "{start}..{end}");
    }
    assert_eq!(scene.ask(&jobs(&[(2, None)]))[0].suspended_ms, 20_000);
}

#[test]
fn nodes_out_of_service_have_events() {
    let mut scene = Scene::new();
    let reason = |text: &str, s| NodeReason {
        text: text.to_owned(),
        uid: 0,
        since: at(s),
    };
    let mut node = |change, s| {
        scene.happens(Event::NodeChanged {
            node: NodeIdx(1),
            change,
            at: at(s),
        })
    };
    node(NodeChange::Drain(reason("disk", 10)), 10);
    node(
        NodeChange::Health {
            load_centi: 1,
            free_mib: 1,
        },
        12,
    );
    node(NodeChange::Reason(reason("disk 2", 15)), 15);
    node(NodeChange::Resume, 20);
    node(NodeChange::Down(reason("gone", 30)), 30);
    let mut reader = scene.store.reader().unwrap();
    let events = reader
        .node_events(&["n1".to_owned()], Some(at(12)), None)
        .unwrap();
    let facts: Vec<_> = events
        .iter()
        .map(|e| (e.reason.as_str(), e.drain, e.down, e.start, e.end))
        .collect();
    assert_eq!(
        facts,
        [
            ("disk", true, false, at(10), Some(at(15))),
            ("disk 2", true, false, at(15), Some(at(20))),
            ("gone", false, true, at(30), None),
        ]
    );
    assert_eq!(
        reader.node_events(&[], None, Some(at(11))).unwrap().len(),
        1
    );
    assert_eq!(
        reader.node_events(&["n2".to_owned()], None, None).unwrap(),
        []
    );
}

#[test]
fn an_answer_comes_in_pages_and_stops_when_told() {
    let scene = scene();
    let mut reader = scene.store.reader().unwrap();
    let mut sizes = Vec::new();
    let everything = AcctQuery::default();
    reader
        .query(&everything, 3, &mut |page| {
            sizes.push(page.len());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(sizes, [3, 1]);
    let mut pages = 0;
    reader
        .query(&everything, 1, &mut |_| {
            pages += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(pages, 1);
    // An empty answer is an answer.
    let mut empty = Vec::new();
    reader
        .query(&jobs(&[(77, None)]), 10, &mut |page| {
            empty.push(page.len());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(empty, [0]);
}

#[test]
fn a_read_sees_one_moment_and_does_not_block_the_writer() {
    let mut scene = scene();
    let mut reader = scene.store.reader().unwrap();
    let mut seen = Vec::new();
    reader
        .query(&AcctQuery::default(), 1, &mut |page| {
            seen.extend(page.iter().map(|job| (job.id.0, job.state)));
            if seen.len() == 1 {
                scene.end(JobId(2), JobState::Failed, None, 95);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen[1], (2, JobState::Running));
    assert_eq!(scene.ask(&jobs(&[(2, None)]))[0].state, JobState::Failed);
}

#[test]
fn a_number_that_is_too_high_is_left_out() {
    let mut scene = scene();
    let row = JobRow::of(&scene.state, &scene.state.jobs[&JobId(1)]);
    let high = JobRow {
        key: RunKey {
            job: JobId(1 << 50),
            number: 0,
        },
        ..row
    };
    let high = AccountingChange::Job(Box::new(high));
    scene.store.write(&[high], 1000).unwrap();
    assert_eq!(scene.store.position(), 1000);
    assert_eq!(scene.shown(&jobs(&[(1 << 50, None)])), [""; 0]);
}

#[test]
fn files_of_others_and_of_the_future_are_refused() {
    let directory = Directory::new();
    let path = directory.file("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(
        SqliteStore::open(&path),
        Err(StoreError::Foreign { .. })
    ));
    let path = directory.file("new.db");
    drop(SqliteStore::open(&path).unwrap());
    let new = rusqlite::Connection::open(&path).unwrap();
    new.pragma_update(None, "user_version", 99).unwrap();
    let error = SqliteStore::open(&path).err().unwrap();
    assert!(
        matches!(error, StoreError::Newer { found: 99, .. }),
        "{error}"
    );
    let none = Reader::open(&directory.file("none.db"));
    assert!(matches!(none, Err(StoreError::Open { .. })));
}

#[test]
fn an_older_file_is_brought_up_to_date() {
    let directory = Directory::new();
    let path = directory.file("old.db");
    drop(SqliteStore::open(&path).unwrap());
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(
        "ALTER TABLE job DROP COLUMN backfilled; ALTER TABLE step DROP COLUMN gres; DROP TABLE txn; DROP TABLE change_log; \
         DROP TABLE import_source; DROP TABLE imported; DROP INDEX node_event_start; \
         DROP TABLE used; DROP TABLE out_of_service; DROP TABLE stored_text; \
         DROP TABLE job_text; DROP TABLE reservation; DROP TABLE storage_scan; DROP TABLE storage_use; DROP TABLE known_cluster; DELETE FROM meta WHERE key <> 'position'; PRAGMA user_version = 2",
    )
    .unwrap();
    drop(old);
    drop(SqliteStore::open(&path).unwrap());
    let new = rusqlite::Connection::open(&path).unwrap();
    new.prepare("SELECT backfilled FROM job").unwrap();
}

#[test]
fn a_window_of_one_owner_is_read_through_the_index() {
    let scene = scene();
    let path = scene.directory.file("acct.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let plan: Vec<String> = connection
        .prepare(
            "EXPLAIN QUERY PLAN SELECT row, name FROM job WHERE row IN (SELECT row FROM job
             INDEXED BY job_end WHERE end_ms >= ?1 AND uid IN (1, 2)) ORDER BY row",
        )
        .unwrap()
        .query_map([0], |row| row.get(3))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(
        plan.iter()
            .any(|line| line.contains("COVERING INDEX job_end")),
        "{plan:?}"
    );
    assert!(
        !plan.iter().any(|line| line.contains("SCAN job")),
        "{plan:?}"
    );
}

/// What one submission says once fills the store once, however many tasks and runs there are of it.
#[test]
fn long_texts_are_kept_in_full_once() {
    let mut scene = Scene::new();
    let text = "x".repeat(60_000);
    let id = scene.submit(0, None, 10);
    let long = JobSpec {
        submit_line: text.clone(),
        comment: Some(text.clone()),
        work_dir: text.clone(),
        ..spec(0, None, true)
    };
    scene.happens(Event::JobChanged {
        id,
        change: JobChange::Spec(Arc::new(long)),
        at: at(11),
    });
    for second in 12..112 {
        scene.end(id, JobState::Cancelled, None, second);
        scene.happens(Event::JobRequeued {
            id,
            at: at(second),
            hold: Hold::User,
            not_before: None,
        });
    }
    let runs = scene.ask(&AcctQuery {
        duplicates: true,
        ..jobs(&[(id.0, None)])
    });
    assert_eq!(runs.len(), 101);
    let lengths = |job: &AcctJob| (job.submit_line.len(), job.comment.len(), job.work_dir.len());
    let full = runs
        .iter()
        .filter(|job| lengths(job) == (60_000, 60_000, 4096));
    let cut = runs.iter().filter(|job| lengths(job) == (4096, 4096, 4096));
    assert_eq!((full.count(), cut.count()), (1, 100));
}
