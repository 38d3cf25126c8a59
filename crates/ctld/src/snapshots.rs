//! Snapshots of the state, written while the controller goes on. A snapshot only shortens the journal: one that fails, by an error
//! or by a panic, loses nothing. It is logged, shown by sdiag, and tried again after a while; until then the journal grows, as
//! far as the disk allows.

use crate::clock;
use crate::failure::{Panicked, caught};
use crate::fault;
use crate::mail::ToWriter;
use crate::snapshot_pace::SnapshotPace;
use crate::stats::Stats;
use crate::webhooks::WebhookSync;
use log::{error, info};
use muster_acct::Follower;
use muster_core::state::State;
use muster_journal::{Position, SnapshotWriter};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time after a failure at which the next is tried; twice as long after each further one, up to the most.
const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_MOST: Duration = Duration::from_secs(3600);
/// Time limit for accounting to write the events that a snapshot lets the journal forget.
const SYNC: Duration = Duration::from_secs(300);
/// Time limit for notices, which are few bytes.
const NOTICES_SYNC: Duration = Duration::from_secs(30);

/// Writes snapshots when they are due.
pub(crate) struct Snapshots {
    pace: SnapshotPace,
    /// One is due whatever the journal holds: at start it held events that were left out.
    is_wanted: bool,
    writing: Option<Writing>,
    failed: Option<Failed>,
    writer: Sender<ToWriter>,
    /// Nothing may be forgotten that accounting has not on disk.
    follower: Arc<Follower>,
    /// Nor what webhooks have not.
    notices: WebhookSync,
    /// Time limit for writing that.
    sync: Duration,
    stats: Arc<Stats>,
}

/// A snapshot that is on its way to the disk.
struct Writing {
    thread: JoinHandle<Outcome>,
    position: Position,
    /// The size of the journal before it, which stays if this fails.
    before: SnapshotPace,
    was_wanted: bool,
}

enum Outcome {
    Written,
    /// The log says why.
    Failed,
    /// The writer, or accounting, does not answer: the controller stops, or a turn of the writer's failed.
    Unanswered,
}

/// Failures since the last snapshot that was written.
struct Failed {
    count: u32,
    last: Instant,
}

impl Failed {
    fn retry_after(&self) -> Duration {
        let doubled = self.count.saturating_sub(1).min(16);
        RETRY_FIRST.saturating_mul(1 << doubled).min(RETRY_MOST)
    }
}

impl Snapshots {
    /// Snapshots for a journal of this size. One that `is_wanted` is due at once.
    pub(crate) fn new(
        pace: SnapshotPace,
        is_wanted: bool,
        writer: Sender<ToWriter>,
        follower: Arc<Follower>,
        notices: WebhookSync,
        stats: Arc<Stats>,
    ) -> Snapshots {
        Snapshots {
            pace,
            is_wanted,
            writing: None,
            failed: None,
            writer,
            follower,
            notices,
            sync: SYNC,
            stats,
        }
    }

    /// The journal holds more.
    pub(crate) fn add(&mut self, events: u64, bytes: u64) {
        self.pace.add(events, bytes);
    }

    /// Begins a snapshot of the state as of this position, if one is due. The state is encoded here; a thread of its own writes
    /// it, and makes it valid only when accounting has everything that it lets the log forget.
    pub(crate) fn write_if_due(&mut self, state: &State, position: Position, now: Instant) {
        self.settle(now);
        let is_due = self.is_wanted || self.pace.is_due(state.jobs.len());
        let may_try = self
            .failed
            .as_ref()
            .is_none_or(|failed| now.duration_since(failed.last) >= failed.retry_after());
        if !is_due || !may_try || self.writing.is_some() {
            return;
        }
        let last = self.pace.last_bytes();
        let encoded = caught(|| {
            fault::on_state("snapshot", state);
            let mut bytes = Vec::with_capacity(last + (last >> 3));
            state.encode_snapshot(&mut bytes);
            bytes
        });
        match encoded {
            Ok(bytes) => self.begin(bytes, position, now),
            Err(Panicked(why)) => {
                report(&self.stats, position, &why);
                self.note_failure(now);
            }
        }
    }

    fn begin(&mut self, bytes: Vec<u8>, position: Position, now: Instant) {
        let (answer, granted) = std::sync::mpsc::channel();
        let request = ToWriter::StartSnapshot { position, answer };
        if self.writer.send(request).is_err() {
            return;
        }
        let encoded = SnapshotPace::since_snapshot(bytes.len());
        let (follower, sync) = (Arc::clone(&self.follower), self.sync);
        let notices = self.notices.clone();
        let (writer, stats) = (self.writer.clone(), Arc::clone(&self.stats));
        let work = move || {
            let written = caught(|| {
                notices.sync(position, NOTICES_SYNC);
                write(&bytes, position, &granted, &follower, sync)
            });
            let why = match written {
                Ok(Ok(None)) => return Outcome::Unanswered,
                Ok(Ok(Some(finished))) => {
                    info!("snapshot at event {position}, {} KiB", bytes.len() >> 10);
                    stats.snapshot_written();
                    let _ = writer.send(ToWriter::FinishSnapshot(finished));
                    return Outcome::Written;
                }
                Ok(Err(why)) | Err(Panicked(why)) => why,
            };
            report(&stats, position, &why);
            Outcome::Failed
        };
        let thread = std::thread::Builder::new().name("snapshot".to_owned());
        match thread.spawn(work) {
            Ok(thread) => {
                self.writing = Some(Writing {
                    thread,
                    position,
                    before: std::mem::replace(&mut self.pace, encoded),
                    was_wanted: std::mem::take(&mut self.is_wanted),
                });
            }
            Err(e) => {
                report(&self.stats, position, &format!("no thread: {e}"));
                self.note_failure(now);
            }
        }
    }

    /// Takes note of what became of the last one, once it is known.
    fn settle(&mut self, now: Instant) {
        let Some(writing) = self.writing.take_if(|w| w.thread.is_finished()) else {
            return;
        };
        match writing.thread.join() {
            Ok(Outcome::Written) => {
                self.failed = None;
                return;
            }
            // A controller that stops comes here no more.
            Ok(Outcome::Unanswered) => {
                let why = "a turn of the writer's failed, or accounting ended";
                report(&self.stats, writing.position, why);
            }
            Ok(Outcome::Failed) | Err(_) => {}
        }
        self.pace = writing.before.merge(self.pace);
        self.is_wanted |= writing.was_wanted;
        self.note_failure(now);
    }

    fn note_failure(&mut self, now: Instant) {
        let count = self.failed.as_ref().map_or(0, |failed| failed.count);
        self.failed = Some(Failed {
            count: count.saturating_add(1),
            last: now,
        });
    }
}

/// Writes an encoded state after accounting has stored its rows; gives up after `most`.
fn write(
    bytes: &[u8],
    position: Position,
    granted: &Receiver<Option<SnapshotWriter>>,
    follower: &Follower,
    most: Duration,
) -> Result<Option<muster_journal::FinishedSnapshot>, String> {
    let Ok(granted) = granted.recv() else {
        return Ok(None);
    };
    let mut snapshot = granted.ok_or("the journal does not take it")?;
    snapshot
        .write_all(bytes)
        .map_err(|e| format!("it cannot be written: {e}"))?;
    // Events whose rows accounting has not on disk yet must stay in the journal.
    if follower.health().synced < position {
        match follower.sync(most) {
            Ok(_) if follower.health().synced >= position => {}
            Ok(_) => {
                return Err(format!(
                    "accounting has not written what the journal would forget within {} s",
                    most.as_secs()
                ));
            }
            Err(_) => return Ok(None),
        }
    }
    let finished = snapshot.finish();
    finished
        .map(Some)
        .map_err(|e| format!("it cannot be finished: {e}"))
}

fn report(stats: &Stats, position: Position, why: &str) {
    let count = stats.snapshot_failed(clock::now());
    error!(
        "no snapshot of the state at event {position}: {why}. The journal grows until there is one; it is tried again \
         (failure {count})"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::recover;
    use muster_acct::{AccountingChange, NoStore, Store, StoreError};
    use muster_journal::{Batch, Log as _, MemStorage, Options};
    use muster_model::ids::JobId;
    use muster_model::job::Job;
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};
    use muster_proto::client::Diag;
    use std::sync::mpsc::channel;

    fn failures(stats: &Stats) -> u32 {
        let mut diag = Diag::default();
        stats.fill(&mut diag);
        assert_eq!(
            diag.snapshots_failing_since.is_some(),
            diag.snapshots_failed > 0
        );
        diag.snapshots_failed
    }

    fn name_job(state: &mut State, name: &str) {
        let spec = JobSpec {
            name: name.to_owned(),
            ..JobSpec::default()
        };
        let job = Job::new(JobId(7), Arc::new(spec), TimeLimit::Unlimited, Timestamp(0));
        state.jobs.insert(JobId(7), job);
    }

    /// The process ended, and was started again only to end at the next snapshot.
    #[test]
    fn a_snapshot_that_fails_is_tried_again_and_the_journal_goes_on() {
        fault::arm();
        let storage = Arc::new(MemStorage::new());
        let mut log = recover(storage, "t", Options::default(), |_, _, _| {})
            .unwrap()
            .log;
        let mut batch = Batch::default();
        batch.push_with(|bytes| bytes.push(0));
        log.append(&batch).unwrap();
        let (writer, inbox) = channel();
        let stats = Arc::new(Stats::default());
        let follower = Arc::new(Follower::start(Box::new(NoStore::default()), 16).unwrap());
        follower.send(1, Vec::new()).unwrap();
        let counts = Arc::clone(&stats);
        let mut snapshots = Snapshots::new(
            SnapshotPace::default(),
            true,
            writer,
            follower,
            WebhookSync::none(),
            counts,
        );
        let mut state = State::default();
        let mut now = Instant::now();
        name_job(&mut state, "panic-in-snapshot");

        snapshots.write_if_due(&state, 1, now);
        snapshots.write_if_due(&state, 1, now + RETRY_FIRST / 2);
        assert_eq!(failures(&stats), 1, "not again at once");
        now += RETRY_FIRST;
        snapshots.write_if_due(&state, 1, now);
        assert_eq!(failures(&stats), 2);
        assert!(inbox.try_recv().is_err(), "the journal was not asked");

        // A failure where the journal has no room for it.
        name_job(&mut state, "well");
        snapshots.add(5, 5000);
        now += 2 * RETRY_FIRST;
        snapshots.write_if_due(&state, 1, now);
        let Ok(ToWriter::StartSnapshot { answer, .. }) = inbox.recv() else {
            panic!("it was not begun");
        };
        assert_eq!(snapshots.pace.bytes(), 0);
        answer.send(None).unwrap();
        while !snapshots.writing.as_ref().unwrap().thread.is_finished() {
            std::thread::yield_now();
        }
        snapshots.write_if_due(&state, 1, now);
        assert_eq!(failures(&stats), 3);
        assert_eq!(snapshots.pace.bytes(), 5000, "the journal holds it still");

        now += 4 * RETRY_FIRST;
        snapshots.write_if_due(&state, 1, now);
        let Ok(ToWriter::StartSnapshot { position, answer }) = inbox.recv() else {
            panic!("it was not begun");
        };
        answer.send(log.start_snapshot(position).ok()).unwrap();
        let Ok(ToWriter::FinishSnapshot(finished)) = inbox.recv() else {
            panic!("it was not written");
        };
        log.finish_snapshot(finished).unwrap();
        assert_eq!(failures(&stats), 0);
        while !snapshots.writing.as_ref().unwrap().thread.is_finished() {
            std::thread::yield_now();
        }
        snapshots.write_if_due(&state, 1, now + RETRY_MOST);
        assert!(snapshots.writing.is_none() && inbox.try_recv().is_err());
    }

    /// Has written all and flushes nothing: its disk is full.
    #[derive(Default)]
    struct FullStore(NoStore);

    impl Store for FullStore {
        fn position(&self) -> u64 {
            self.0.position()
        }

        fn write(&mut self, changes: &[AccountingChange], position: u64) -> Result<(), StoreError> {
            self.0.write(changes, position)
        }

        fn sync(&mut self) -> Result<u64, StoreError> {
            Err(StoreError::Foreign {
                path: "full".into(),
            })
        }
    }

    fn wait(snapshots: &Snapshots) {
        while !snapshots.writing.as_ref().unwrap().thread.is_finished() {
            std::thread::yield_now();
        }
    }

    /// It was waited for without end, with the state in memory, and nothing said that there was no snapshot.
    #[test]
    fn a_snapshot_for_which_accounting_has_no_room_fails() {
        let storage = Arc::new(MemStorage::new());
        let mut log = recover(storage, "t", Options::default(), |_, _, _| {})
            .unwrap()
            .log;
        let mut batch = Batch::default();
        batch.push_with(|bytes| bytes.push(0));
        log.append(&batch).unwrap();
        let (writer, inbox) = channel();
        let stats = Arc::new(Stats::default());
        let follower = Follower::start(Box::new(FullStore::default()), 16).unwrap();
        follower.send(1, Vec::new()).unwrap();
        let (follower, counts) = (Arc::new(follower), Arc::clone(&stats));
        let mut snapshots = Snapshots::new(
            SnapshotPace::default(),
            true,
            writer,
            follower,
            WebhookSync::none(),
            counts,
        );
        snapshots.sync = Duration::from_millis(1);
        let now = Instant::now();
        snapshots.write_if_due(&State::default(), 1, now);
        let Ok(ToWriter::StartSnapshot { position, answer }) = inbox.recv() else {
            panic!("it was not begun");
        };
        answer.send(log.start_snapshot(position).ok()).unwrap();
        wait(&snapshots);
        snapshots.write_if_due(&State::default(), 1, now);
        assert_eq!(failures(&stats), 1);
        assert!(snapshots.writing.is_none() && inbox.try_recv().is_err());
        assert!(log.start_snapshot(1).is_ok(), "it was given up");
    }

    /// Nothing was counted, and the next was due only when the journal had grown by as much again.
    #[test]
    fn a_snapshot_that_the_writer_does_not_answer_is_tried_again() {
        let (writer, inbox) = channel();
        let stats = Arc::new(Stats::default());
        let follower = Arc::new(Follower::start(Box::new(NoStore::default()), 16).unwrap());
        let counts = Arc::clone(&stats);
        let mut snapshots = Snapshots::new(
            SnapshotPace::default(),
            true,
            writer,
            follower,
            WebhookSync::none(),
            counts,
        );
        let now = Instant::now();
        snapshots.add(5, 5000);
        snapshots.write_if_due(&State::default(), 1, now);
        drop(inbox.recv().unwrap());
        wait(&snapshots);
        snapshots.write_if_due(&State::default(), 1, now);
        assert_eq!((failures(&stats), snapshots.pace.bytes()), (1, 5000));
        snapshots.write_if_due(&State::default(), 1, now + RETRY_FIRST);
        let again = inbox.try_recv();
        assert!(matches!(again, Ok(ToWriter::StartSnapshot { .. })));
    }

    #[test]
    fn failures_make_the_time_to_the_next_longer_up_to_an_hour() {
        let after = |count| {
            let last = Instant::now();
            Failed { count, last }.retry_after()
        };
        assert_eq!((after(1), after(2)), (RETRY_FIRST, 2 * RETRY_FIRST));
        assert_eq!(after(u32::MAX), RETRY_MOST);
    }
}
