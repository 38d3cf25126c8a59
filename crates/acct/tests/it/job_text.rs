//! Scripts and environments of jobs, where the site has them kept: each once, for as long as a run has it.

use crate::support::{Directory, at, config, spec};
use minicbor::bytes::ByteVec;
use muster_acct::{
    AccountingChange, ArchiveHeader, ArchiveReader, ArchiveWriter, History, PurgeKind,
    PurgePosition, Purger, Restorer, SqliteStore, Store, changes, resync,
};
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::ids::{BlobId, JobId};
use muster_model::job::{ExitStatus, Hold, JobState, Reason};
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_proto::acct::JobTextKind::{Environment, Script};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;

/// Jobs that have ended: 1 and 2 are of one script, 3 of another, 4 is no batch job. 5 is a task of array 3.
struct Site {
    state: State,
    changes: Vec<AccountingChange>,
}

impl Site {
    fn new(keeps_scripts: bool, keeps_environments: bool) -> Site {
        let mut config = config(2);
        config.order.keeps_scripts = keeps_scripts;
        config.order.keeps_environments = keeps_environments;
        let mut site = Site {
            state: State::default(),
            changes: Vec::new(),
        };
        site.happen(Event::Configured {
            config: Arc::new(config),
            at: at(0),
            partitions: None,
        });
        for (id, bytes) in [(1, "#!/bin/sh\none"), (2, "#!/bin/sh\nother"), (3, "A=1")] {
            site.happen(Event::BlobStored {
                id: blob(id),
                bytes: Arc::new(ByteVec::from(bytes.as_bytes().to_vec())),
            });
        }
        for (id, script, is_batch) in [(1, 1, true), (2, 1, true), (3, 2, true), (4, 2, false)] {
            site.submit(id, script, is_batch);
        }
        site
    }

    fn happen(&mut self, event: Event) {
        self.state.apply(&event);
        self.changes.extend(changes(&self.state, &event));
    }

    fn submit(&mut self, id: u64, script: u8, is_batch: bool) {
        let array = (id == 3).then_some(2);
        self.happen(Event::JobSubmitted {
            id: JobId(id),
            spec: Arc::new(JobSpec {
                script: Some(blob(script)),
                context: Some(blob(3)),
                ..spec(0, array, is_batch)
            }),
            at: at(1),
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

    fn end_all(&mut self) {
        self.happen(Event::TaskSplit {
            base: JobId(3),
            index: 1,
            id: JobId(5),
        });
        for id in 1..=5 {
            self.happen(Event::JobEnding {
                id: JobId(id),
                at: at(5),
                state: JobState::Cancelled,
                exit: ExitStatus::default(),
                reason: Reason::None,
                cancelled_by: None,
                requeue: None,
            });
        }
    }
}

fn blob(n: u8) -> BlobId {
    BlobId([n; 32])
}

fn stored(file: &Path) -> i64 {
    let connection = Connection::open(file).unwrap();
    let count = "SELECT count(*) FROM stored_text";
    connection.query_row(count, [], |row| row.get(0)).unwrap()
}

#[test]
fn texts_are_kept_that_the_site_asks_for_and_shown_to_their_owner() {
    let directory = Directory::new();
    for (scripts, environments) in [(true, true), (true, false), (false, true), (false, false)] {
        let file = directory.file(&format!("{scripts}{environments}.db"));
        let mut store = SqliteStore::open(&file).unwrap();
        let mut site = Site::new(scripts, environments);
        site.end_all();
        store.write(&site.changes, 1).unwrap();
        // What the state knows of changes nothing.
        store.write(&resync(&site.state, at(9)), 2).unwrap();
        let mut reader = store.reader().unwrap();
        let mut read = |job, kind, owner| {
            let text = reader.job_text(JobId(job), kind, owner).unwrap();
            text.map(|text| String::from_utf8(text).unwrap())
        };
        let one = scripts.then(|| "#!/bin/sh\none".to_owned());
        let other = scripts.then(|| "#!/bin/sh\nother".to_owned());
        assert_eq!(read(1, Script, None), one);
        assert_eq!(read(2, Script, Some(1000)), one);
        assert_eq!(read(2, Script, Some(1001)), None, "another's");
        assert_eq!(read(3, Script, Some(1000)), other);
        assert_eq!(read(5, Script, Some(1000)), other, "a task of an array");
        assert_eq!(read(5, Script, Some(1001)), None);
        assert_eq!(read(4, Script, None), None, "no batch job");
        assert_eq!(read(9, Script, None), None, "no job");
        assert_eq!(
            read(1, Environment, Some(1000)),
            environments.then(|| "A=1".to_owned())
        );
        assert_eq!(read(1, Environment, Some(0)), None);
        let expected = 2 * i64::from(scripts) + i64::from(environments);
        assert_eq!(stored(&file), expected);
    }
}

#[test]
fn texts_go_with_the_last_run_that_has_them_and_come_back_from_archives() {
    let directory = Directory::new();
    let file = directory.file("acct.db");
    let mut store = SqliteStore::open(&file).unwrap();
    let mut site = Site::new(true, true);
    site.end_all();
    store.write(&site.changes, 1).unwrap();
    let mut purger = Purger::open(&file).unwrap();
    let header = ArchiveHeader {
        cluster: "c".to_owned(),
        origin: purger.origin().unwrap(),
        what: "jobs".to_owned(),
        written: at(0),
    };
    let mut writer = ArchiveWriter::begin(Vec::new(), &header).unwrap();
    let mut left = vec![3];
    loop {
        let keys = purger.find(PurgeKind::Jobs, at(100), &mut PurgePosition::default(), 1);
        let keys = keys.unwrap();
        let [key] = keys.as_slice() else { break };
        writer.add(purger.read(*key).unwrap().unwrap()).unwrap();
        assert_eq!(purger.remove(&keys).unwrap(), 1);
        left.push(stored(&file));
    }
    // The script of jobs 1 and 2 is there until both are gone, the environment until all are.
    assert_eq!(left.first(), Some(&3));
    assert_eq!(left.last(), Some(&0));
    assert!(
        left.is_sorted_by(|before, after| before >= after),
        "{left:?}"
    );
    let bytes = writer.finish().unwrap();
    let count = |text: &str| {
        bytes
            .windows(text.len())
            .filter(|part| *part == text.as_bytes())
            .count()
    };
    assert_eq!(
        (count("#!/bin/sh\none"), count("A=1")),
        (1, 1),
        "each is written once"
    );
    let mut reader = ArchiveReader::begin(bytes.as_slice()).unwrap();
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row().unwrap() {
        rows.push(row);
    }
    let mut restorer = Restorer::open(&file).unwrap();
    for again in [false, true] {
        let restored = restorer.write(&rows).unwrap();
        assert_eq!(restored.added == 0, again);
        assert_eq!(stored(&file), 3);
        let mut reader = store.reader().unwrap();
        for job in [1, 2] {
            let script = reader.job_text(JobId(job), Script, None).unwrap().unwrap();
            assert_eq!(script, b"#!/bin/sh\none");
            assert!(
                reader
                    .job_text(JobId(job), Environment, None)
                    .unwrap()
                    .is_some()
            );
        }
    }
}
