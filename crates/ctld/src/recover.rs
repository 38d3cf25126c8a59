//! The state as it was: the newest snapshot, then every event after it. An event that cannot be applied stops the start,
//! and the message says which job to leave out to go on: see [`ExcludedJobs`].

mod without;

pub use without::{ExcludedJob, ExcludedJobs};

use crate::failure::{Panicked, caught};
use crate::fault;
use crate::snapshot_pace::SnapshotPace;
use anyhow::{Context, Result, bail};
use log::{info, warn};
use muster_core::event::Event;
use muster_core::state::State;
use muster_journal::{FileLog, LogId, Options, Position, Storage};
use std::io::Read;
use std::sync::Arc;

/// A recovered controller.
pub struct RecoveredController {
    /// The open journal.
    pub log: FileLog,
    /// The state as of the last durable event.
    pub state: State,
    /// The size of the journal after the snapshot that it began with.
    pub pace: SnapshotPace,
    /// Jobs that were left out, for accounting.
    pub withdrawn: Vec<ExcludedJob>,
}

/// An open journal, which no other controller can open now. Nothing of it was replayed yet.
pub struct OpenJournal {
    log: FileLog,
    found: Option<muster_journal::RecoveredLog>,
}

/// Opens the journal of `cluster`, or creates it where there was never one, and replays it. `each` sees every event
/// after it is applied.
///
/// # Errors
/// When the journal cannot be read: the message names the error, the place and the remedy. Nothing is
/// changed then.
pub fn recover(
    storage: Arc<dyn Storage>,
    cluster: &str,
    options: Options,
    each: impl FnMut(&State, Position, &Event),
) -> Result<RecoveredController> {
    open(storage, cluster, options)?.replay(ExcludedJobs::default(), each)
}

/// Opens the journal of `cluster`, or creates it where there was never one. From then on it is locked.
///
/// # Errors
/// As [`recover`].
pub fn open(storage: Arc<dyn Storage>, cluster: &str, options: Options) -> Result<OpenJournal> {
    if !FileLog::exists(storage.as_ref())? {
        let id = LogId::random().context("cannot read /dev/urandom")?;
        info!(
            "no state yet: a new journal is made in {}",
            storage.location()
        );
        let log = FileLog::create(storage, cluster, id, options)?;
        return Ok(OpenJournal { log, found: None });
    }
    let (log, found) = FileLog::open(storage, cluster, options)?;
    if let Some(torn) = &found.torn {
        info!(
            "journal {}: {} bytes of an unfinished write at byte {} were dropped; nothing in them was acknowledged",
            torn.file, torn.bytes, torn.offset
        );
    }
    found.warnings.iter().for_each(|warning| warn!("{warning}"));
    let found = Some(found);
    Ok(OpenJournal { log, found })
}

impl OpenJournal {
    /// Replays it, without what concerns some jobs. `each` sees every event after it is applied.
    ///
    /// # Errors
    /// As [`recover`]; for an event that cannot be applied the message names the job to leave out.
    pub fn replay(
        self,
        mut without: ExcludedJobs,
        mut each: impl FnMut(&State, Position, &Event),
    ) -> Result<RecoveredController> {
        let OpenJournal { log, found } = self;
        let mut state = State::default();
        let (mut snapshot, mut pace) = (0, SnapshotPace::default());
        let Some(found) = found else {
            let withdrawn = Vec::new();
            return Ok(RecoveredController {
                log,
                state,
                pace,
                withdrawn,
            });
        };
        if let Some(mut reader) = found.snapshot {
            let mut bytes = Vec::new();
            snapshot = reader.position();
            reader
                .read_to_end(&mut bytes)
                .context("cannot read the snapshot")?;
            pace = SnapshotPace::since_snapshot(bytes.len());
            state = State::decode_snapshot(&bytes)?;
            state = without.remove(state)?;
        }
        let mut records = found.records;
        let mut count: u64 = 0;
        while let Some((position, bytes)) = records.next_record()? {
            pace.add(1, bytes.len() as u64);
            let event: Event = match minicbor::decode(bytes) {
                Ok(event) => event,
                Err(e) => bail!(
                    "event {position} of the journal cannot be understood: {e}. It was written by a newer release, or \
                     by a bug; start the release that wrote it"
                ),
            };
            let Some(event) = without.filter(event, &mut state) else {
                continue;
            };
            let applied = caught(|| {
                fault::on_event("replay", &event);
                state.apply(&event);
                each(&state, position, &event);
            });
            if let Err(Panicked(why)) = applied {
                bail!("{}", unusable(&event, position, &state, &why));
            }
            count += 1;
        }
        info!(
            "recovered {} jobs: snapshot at event {snapshot}, {count} events after it",
            state.jobs.len()
        );
        Ok(RecoveredController {
            log,
            state,
            pace,
            withdrawn: without.withdrawn(),
        })
    }
}

/// The error text for an event that cannot be applied.
fn unusable(event: &Event, position: Position, state: &State, why: &str) -> String {
    let kind = event.name();
    let Some(job) = event.job() else {
        return format!(
            "event {position} of the journal ({kind}) cannot be applied: {why}. Nothing was changed. Start the release \
             that wrote it"
        );
    };
    let part = match event {
        Event::JobSubmitted { het, .. } => *het,
        _ => state.jobs.get(&job).and_then(|job| job.het),
    };
    let base = state.jobs.get(&job).map_or(job, |job| job.submission());
    let whole = part.map_or(base, |part| part.leader);
    format!(
        "event {position} of the journal ({kind} of job {job}) cannot be applied: {why}. Nothing was changed. To go on \
         without that job, and lose it, start slurmctld once with --without-job={whole}"
    )
}
