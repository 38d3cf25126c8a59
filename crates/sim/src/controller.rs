//! The real controller, taken apart from its threads and sockets: its writer is turned by hand, its channels end in
//! [`Outlets`], its journal is in a storage in memory, its recovery is the one that the daemon runs.

use crate::outlets::{Came, Outlets, Shared, Watch, WatchedLog};
use crate::{Plant, Violation};
use muster_core::state::State;
use muster_ctld::disk::DiskReserve;
use muster_ctld::keys::Keys;
use muster_ctld::mail::{ToReplica, ToWriter};
use muster_ctld::recover::recover;
use muster_ctld::stats::Stats;
use muster_ctld::writer::{Writer, WriterSetup};
use muster_journal::{FileLog, LogId, MemStorage, Options, Position};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Name of every simulated cluster.
pub(crate) const CLUSTER: &str = "sim";

/// The controller's keys.
pub(crate) fn keys() -> Keys {
    Keys::from_bytes([7; 64])
}

/// A controller that runs.
pub(crate) struct Controller {
    /// The real one.
    pub(crate) writer: Writer,
    /// Far ends of its channels, and what its journal did.
    pub(crate) watch: Watch,
    /// Messages that wait for the next turn.
    pub(crate) inbox: VecDeque<ToWriter>,
    /// The replica's state, fed only by what the writer sends.
    replica: Arc<Mutex<State>>,
    /// Position of the last event that the replica applied.
    pub(crate) replica_at: Position,
    /// Position up to which accounting has stored, as the writer sees it.
    pub(crate) stored: Arc<AtomicU64>,
    /// Turns at one moment without a message, an event or an answer.
    pub(crate) idle_turns: u32,
}

/// Small, so that segments change, disks fill up and records are too large often.
fn journal_options() -> Options {
    Options {
        segment_bytes: 24 << 10,
        ahead_bytes: 4 << 10,
        max_record_bytes: 64 << 10,
        ..Options::default()
    }
}

/// Makes the journal of a new cluster. Its id is fixed, so that runs are the same.
///
/// # Errors
/// Never, unless the journal is broken.
pub(crate) fn create_journal(storage: &MemStorage) -> Result<(), Violation> {
    let id = LogId(*b"simulated journa");
    FileLog::create(Arc::new(storage.clone()), CLUSTER, id, journal_options())
        .map(drop)
        .map_err(|e| Violation::new("invariant_a_journal_opens", e.to_string()))
}

impl Controller {
    /// Starts on the content of the storage.
    ///
    /// # Errors
    /// When the journal cannot be recovered.
    pub(crate) fn start(
        storage: &MemStorage,
        plant: Option<Plant>,
        accounted: Position,
    ) -> Result<Controller, anyhow::Error> {
        let recovered = recover(
            Arc::new(storage.clone()),
            CLUSTER,
            journal_options(),
            |_, _, _| {},
        )?;
        let (to_replica, replica) = std::sync::mpsc::channel();
        let outlets = Outlets {
            replica,
            links: BTreeMap::new(),
            answers: BTreeMap::new(),
            replies: BTreeMap::new(),
        };
        let watch = Arc::new(Mutex::new(Shared {
            outlets,
            came: Came::default(),
            panics: None,
        }));
        let replica_at = muster_journal::Log::last_position(&recovered.log);
        let log = WatchedLog::new(recovered.log, Arc::clone(&watch), plant);
        let stored = Arc::new(AtomicU64::new(accounted));
        let reached = Arc::clone(&stored);
        let replica = Arc::new(Mutex::new(recovered.state.clone()));
        let copied = Arc::clone(&replica);
        let writer = Writer::new(WriterSetup {
            state: recovered.state,
            log: Box::new(log),
            replica: to_replica,
            keys: keys(),
            stats: Arc::new(Stats::default()),
            accounted: Box::new(move || reached.load(Relaxed)),
            // A place that is not there has room.
            reserve: DiskReserve::new(PathBuf::from("/nonexistent/state")),
            stopwatch: Box::new(|| Duration::ZERO),
        })
        .rebuilt_by(Box::new(move || Some(locked(&copied).clone())));
        Ok(Controller {
            writer,
            watch,
            inbox: VecDeque::new(),
            replica,
            replica_at,
            stored,
            idle_turns: 0,
        })
    }

    /// The replica's state.
    pub(crate) fn replica(&self) -> MutexGuard<'_, State> {
        locked(&self.replica)
    }

    /// Lets the replica follow.
    pub(crate) fn follow(&mut self, messages: &[ToReplica]) {
        for message in messages {
            if let ToReplica::Batch {
                first,
                events,
                notes,
                ..
            } = message
            {
                for (position, event) in (*first..).zip(events.iter()) {
                    self.replica().apply(event);
                    self.replica_at = position;
                }
                notes.iter().for_each(|note| self.replica().note(note));
            }
        }
    }
}

/// A value that one thread uses at a time.
fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
