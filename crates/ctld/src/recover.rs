//! The state as it was: the newest snapshot, then every event after it.

use anyhow::{Context, Result, bail};
use log::{info, warn};
use muster_core::event::Event;
use muster_core::state::State;
use muster_journal::{FileLog, LogId, Options, Position, Storage};
use std::io::Read;
use std::sync::Arc;

/// A recovered controller.
pub struct Recovered {
    /// The open journal.
    pub log: FileLog,
    /// The state as of the last durable event.
    pub state: State,
    /// Position of the snapshot that it began with; 0 if there is none.
    pub snapshot: Position,
}

/// Opens the journal of `cluster`, or creates it where there was never one, and replays it. `each` sees every event
/// after it is applied.
///
/// # Errors
/// When the journal cannot be read: the message says what is wrong, where, and what to do. Nothing is changed then.
pub fn recover(
    storage: Arc<dyn Storage>,
    cluster: &str,
    options: Options,
    mut each: impl FnMut(&State, Position, &Event),
) -> Result<Recovered> {
    if !FileLog::exists(storage.as_ref())? {
        let id = LogId::random().context("cannot read /dev/urandom")?;
        info!(
            "no state yet: a new journal is made in {}",
            storage.location()
        );
        let log = FileLog::create(storage, cluster, id, options)?;
        return Ok(Recovered {
            log,
            state: State::default(),
            snapshot: 0,
        });
    }
    let (log, found) = FileLog::open(storage, cluster, options)?;
    if let Some(torn) = &found.torn {
        info!(
            "journal {}: {} bytes of an unfinished write at byte {} were dropped; nothing in them was acknowledged",
            torn.file, torn.bytes, torn.offset
        );
    }
    found.warnings.iter().for_each(|warning| warn!("{warning}"));
    let mut state = State::default();
    let mut snapshot = 0;
    if let Some(mut reader) = found.snapshot {
        let mut bytes = Vec::new();
        snapshot = reader.position();
        reader
            .read_to_end(&mut bytes)
            .context("cannot read the snapshot")?;
        state = State::decode_snapshot(&bytes)?;
    }
    let mut records = found.records;
    let mut count: u64 = 0;
    while let Some((position, bytes)) = records.next_record()? {
        let event: Event = match minicbor::decode(bytes) {
            Ok(event) => event,
            Err(e) => bail!(
                "event {position} of the journal cannot be understood: {e}. It was written by a newer release, or by \
                 a bug; start the release that wrote it"
            ),
        };
        state.apply(&event);
        each(&state, position, &event);
        count += 1;
    }
    info!(
        "recovered {} jobs: snapshot at event {snapshot}, {count} events after it",
        state.jobs.len()
    );
    Ok(Recovered {
        log,
        state,
        snapshot,
    })
}
