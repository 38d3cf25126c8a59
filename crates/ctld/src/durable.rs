//! The files of a controller: opened, locked and recovered at the start.

use crate::clock::now;
use crate::configuration::Read;
use crate::keys::Keys;
use crate::node_trust::NodeTrust;
use crate::program_settings;
use crate::recover::{self, ExcludedJobs, OpenJournal, RecoveredController};
use crate::webhooks::Missed;
use anyhow::{Context as _, Result, bail};
use log::info;
use muster_acct::{NoStore, Reader, SqliteStore, Store, changes};
use muster_journal::{DirStorage, Log as _};
use muster_model::ids::JobId;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows written at once while accounting catches up at start.
const CATCH_UP: usize = 8192;

/// See the module.
pub(crate) struct Durable {
    /// StateSaveLocation.
    pub(crate) dir: PathBuf,
    pub(crate) keys: Keys,
    pub(crate) trust: NodeTrust,
    pub(crate) store: Box<dyn Store>,
    /// Reads the accounting store, if there is one.
    pub(crate) reader: Option<Reader>,
    pub(crate) recovered: RecoveredController,
    /// Notices that are to be made up for.
    pub(crate) missed: Missed,
    /// Jobs were left out: a snapshot without them is due.
    pub(crate) has_left_out: bool,
}

/// Makes StateSaveLocation, closed to others.
///
/// # Errors
/// It cannot be made, or is somebody else's.
pub(crate) fn make_directory(read: &Read) -> Result<PathBuf> {
    let dir = read.config.paths.state_save_location.clone();
    fs::create_dir_all(&dir).with_context(|| {
        format!(
            "cannot create StateSaveLocation {}; create it or change the setting",
            dir.display()
        )
    })?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("cannot protect {}", dir.display()))?;
    Ok(dir)
}

impl Durable {
    /// Opens and recovers all, without these jobs.
    ///
    /// # Errors
    /// Something cannot be read, or does not belong together. Nothing is changed then.
    pub(crate) fn open(dir: PathBuf, read: &Read, without_jobs: &[JobId]) -> Result<Durable> {
        // The journal's lock comes first: nothing of another controller's state is touched.
        let journal = open_journal(&dir, read)?;
        let keys = Keys::open(&dir)?;
        let trust = NodeTrust::open(&dir, &read.config.cluster_name, keys.clone())?;
        let (mut store, reader) = open_store(&dir, read.config.accounting)?;
        let without = ExcludedJobs::jobs(without_jobs.iter().copied());
        let has_left_out = !without.is_empty();
        let hooks = program_settings::webhooks(&read.config);
        let mut missed = Missed::new(&dir, &hooks, &read.config.cluster_name);
        let recovered = open_state(&dir, read, store.as_mut(), &mut missed, journal, without)?;
        Ok(Durable {
            dir,
            keys,
            trust,
            store,
            reader,
            recovered,
            missed,
            has_left_out,
        })
    }
}

/// The accounting store, and who reads it. Where accounting is off, what there was of it stays as it is.
fn open_store(dir: &Path, on: bool) -> Result<(Box<dyn Store>, Option<Reader>)> {
    if !on {
        return Ok((Box::new(NoStore::default()), None));
    }
    let store = SqliteStore::open(&dir.join("accounting.db"))
        .context("the accounting store cannot be opened")?;
    let reader = store
        .reader()
        .context("the accounting store cannot be read")?;
    Ok((Box::new(store), Some(reader)))
}

/// Opens and locks the journal.
fn open_journal(dir: &Path, read: &Read) -> Result<OpenJournal> {
    let journal = dir.join("journal");
    let storage = DirStorage::new(&journal);
    storage
        .make_dir()
        .with_context(|| format!("cannot create {}", journal.display()))?;
    let options = muster_journal::Options::default();
    recover::open(Arc::new(storage), &read.cluster.cluster_name, options)
}

/// Recovers the state, and writes to accounting the rows that it lacks.
fn open_state(
    dir: &Path,
    read: &Read,
    store: &mut dyn Store,
    notices: &mut Missed,
    journal: OpenJournal,
    without: ExcludedJobs,
) -> Result<RecoveredController> {
    let known = store.position();
    let mut missed = Vec::new();
    let mut reached = known;
    let mut written = Ok(());
    let recovered = journal.replay(without, |state, position, event| {
        notices.on_event(state, position, event);
        if read.config.accounting && position > known && written.is_ok() {
            missed.extend(changes(state, event));
            reached = position;
            if missed.len() > CATCH_UP {
                written = store.write(&missed, reached);
                missed.clear();
            }
        }
    })?;
    if reached > known {
        info!("accounting catches up with {} events", reached - known);
        written
            .and_then(|()| store.write(&missed, reached))
            .context("accounting cannot catch up")?;
    }
    if read.config.accounting && !recovered.withdrawn.is_empty() {
        let withdrawn = recovered.withdrawn.iter().cloned();
        let changes: Vec<_> = withdrawn.map(|job| job.change(now())).collect();
        store
            .write(&changes, reached)
            .context("accounting cannot record which jobs were left out")?;
    }
    let last = recovered.log.last_position();
    if !read.config.accounting {
        // Nothing is owed to a store that keeps nothing.
        store.write(&[], last).context("accounting")?;
    }
    if known > last {
        bail!(
            "accounting.db knows events up to {known}, the journal ends at {last}: they do not belong together. \
             Restore the journal of {}, or move accounting.db away to begin a new history",
            dir.display()
        );
    }
    Ok(recovered)
}
