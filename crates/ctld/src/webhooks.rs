//! Notices of jobs and nodes that are sent to addresses of the site (webhooks.conf). The replica makes a notice of an
//! event and hands it on; a thread writes it to the disk; a thread for each address sends notices, signed, and again
//! until they are taken. Notices not sent when the controller stopped are sent when it comes back, and those not
//! written yet are made of the journal again: a notice comes at least once, with the same id each time. No user names
//! an address, and redirections are not followed.

mod delivery;
mod notice;
mod spool;
mod trace;

use crate::failure;
use delivery::WebhookDelivery;
use log::{error, warn};
use muster_conf::webhooks::{WebhookFormat, WebhookSettings};
use muster_core::event::Event;
use muster_core::state::State;
use muster_journal::Position;
use notice::{NoticedNodeStates, WebhookNotice};
use spool::{Spool, SpoolState};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::{Duration, Instant};

/// Notices that wait to be written; further ones are left out, and their number is logged.
const WAITING_MAX: usize = 1 << 14;
/// Notices made anew of the journal at a start.
const MISSED_MAX: usize = 100_000;
/// Notices that are written before a sync.
const BATCH_MAX: usize = 1024;
/// Between two syncs of notices, at least.
const PACE: Duration = Duration::from_millis(100);
/// The file in the folder of spools with the last event that needs no further look.
const POSITION_FILE: &str = "position";

/// Message to the writing thread.
enum ToSpool {
    /// One more.
    Notice(SpooledNotice),
    /// The webhooks that there are from now on.
    Configure(Vec<WebhookSettings>),
    /// Everything up to an event must be on disk.
    Sync {
        position: Position,
        done: Sender<()>,
    },
}

/// A notice for some of the webhooks, by their names.
struct SpooledNotice {
    position: Position,
    names: Vec<String>,
    /// The owner of the job that it is about.
    user: Option<String>,
    line: Arc<str>,
}

/// Makes notices of events.
pub(crate) struct Webhooks {
    settings: Vec<WebhookSettings>,
    cluster: String,
    nodes: NoticedNodeStates,
    spooler: SyncSender<ToSpool>,
    left_out: u64,
    /// The last event that was looked at, for a clean end.
    seen: Arc<AtomicU64>,
}

/// Makes sure that notices of events are on disk before the journal forgets these.
#[derive(Clone)]
pub(crate) struct WebhookSync(SyncSender<ToSpool>);

impl WebhookSync {
    /// Where there are no webhooks.
    #[cfg(test)]
    pub(crate) fn none() -> WebhookSync {
        WebhookSync(sync_channel(1).0)
    }

    /// Waits until what events up to this one have caused is on disk. A disk that takes no notices must not keep the journal from
    /// being shortened: that was logged, and they are lost.
    pub(crate) fn sync(&self, position: Position, most: Duration) {
        let (done, written) = channel();
        let sync = ToSpool::Sync { position, done };
        if self.0.send(sync).is_ok() && written.recv_timeout(most) == Err(RecvTimeoutError::Timeout)
        {
            warn!(
                "webhooks: notices are not on disk within {} s",
                most.as_secs()
            );
        }
    }
}

/// Notices of events that a controller had not written when it ended, found while the journal is replayed.
pub(crate) struct Missed {
    settings: Vec<WebhookSettings>,
    cluster: String,
    /// Events up to here need no further look.
    known: Position,
    nodes: NoticedNodeStates,
    found: Vec<SpooledNotice>,
}

impl Missed {
    /// For the spools in a StateSaveLocation.
    pub(crate) fn new(state_dir: &Path, settings: &[WebhookSettings], cluster: &str) -> Missed {
        let known = match settings.is_empty() {
            true => Position::MAX,
            false => known_position(&folder(state_dir), settings),
        };
        Missed {
            settings: settings.to_vec(),
            cluster: cluster.to_owned(),
            known,
            nodes: NoticedNodeStates::default(),
            found: Vec::new(),
        }
    }

    /// An event of the journal was applied.
    pub(crate) fn on_event(&mut self, state: &State, position: Position, event: &Event) {
        if self.settings.is_empty() {
            return;
        }
        let notice = notice::of(state, &mut self.nodes, event);
        let Some(notice) = notice.filter(|_| position > self.known) else {
            return;
        };
        if self.found.len() < MISSED_MAX {
            let spooled = spooled(&self.settings, &notice, position, &self.cluster);
            self.found.extend(spooled);
        }
    }
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("webhooks")
}

/// The last event whose notices are on disk. Where there were no webhooks before, nothing is made up for.
fn known_position(folder: &Path, settings: &[WebhookSettings]) -> Position {
    let written = std::fs::read_to_string(folder.join(POSITION_FILE));
    let written: Option<Position> = written.ok().and_then(|text| text.trim().parse().ok());
    let Some(written) = written else {
        return Position::MAX;
    };
    let spooled = settings
        .iter()
        .filter_map(|hook| spool::last_event(folder, &hook.name));
    spooled.fold(written, Position::max)
}

/// A notice in each format, for the webhooks that want it.
fn spooled(
    settings: &[WebhookSettings],
    notice: &WebhookNotice<'_>,
    position: Position,
    cluster: &str,
) -> Vec<SpooledNotice> {
    let in_format = |format| {
        let names = wanting(settings, notice, format);
        let line = match (names.is_empty(), format) {
            (true, _) => None,
            (false, WebhookFormat::Notices) => Some(notice.line(position, cluster)),
            (false, WebhookFormat::Traces) => notice.job().map(|job| {
                let is_over = notice.event == "job_ended";
                trace::line(job, is_over, cluster)
            }),
        };
        line.map(|line| SpooledNotice {
            position,
            names,
            user: notice.user().map(str::to_owned),
            line,
        })
    };
    [WebhookFormat::Notices, WebhookFormat::Traces]
        .into_iter()
        .filter_map(in_format)
        .collect()
}

/// The webhooks of a format that want a notice.
fn wanting(
    settings: &[WebhookSettings],
    notice: &WebhookNotice<'_>,
    format: WebhookFormat,
) -> Vec<String> {
    let wants = |hook: &&WebhookSettings| {
        let has = |list: &[String], own: Option<&str>| match own {
            Some(own) => list.is_empty() || list.iter().any(|name| name == own),
            None => true,
        };
        hook.format == format
            && hook.wants(notice.event)
            && has(&hook.partitions, notice.partition())
            && has(&hook.users, notice.user())
    };
    let names = settings.iter().filter(wants);
    names.map(|hook| hook.name.clone()).collect()
}

impl Webhooks {
    /// Starts the threads, with the missed notices.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(
        state_dir: &Path,
        state: &State,
        position: Position,
        missed: Missed,
    ) -> io::Result<(Webhooks, WebhookSync)> {
        let (spooler, inbox) = sync_channel(WAITING_MAX);
        let seen = Arc::new(AtomicU64::new(position));
        let settings = missed.settings.clone();
        let thread = SpoolThread {
            folder: folder(state_dir),
            spools: HashMap::new(),
            deliveries: HashMap::new(),
            seen: Arc::clone(&seen),
        };
        let (first, found) = (settings.clone(), missed.found);
        failure::spawn_essential("webhooks", move || {
            thread.run(first, &found, &inbox);
            Ok(())
        })?;
        let sync = WebhookSync(spooler.clone());
        let webhooks = Webhooks {
            settings,
            cluster: missed.cluster,
            nodes: NoticedNodeStates::of(state),
            spooler,
            left_out: 0,
            seen,
        };
        Ok((webhooks, sync))
    }

    /// The configuration was read again.
    pub(crate) fn configure(&mut self, settings: Vec<WebhookSettings>) {
        if settings != self.settings {
            self.settings.clone_from(&settings);
            let _ = self.spooler.send(ToSpool::Configure(settings));
        }
    }

    /// An event was applied to `state`. Nothing waits for a disk or a peer here.
    pub(crate) fn on_event(&mut self, state: &State, position: Position, event: &Event) {
        self.seen.store(position, Ordering::Relaxed);
        let notice = notice::of(state, &mut self.nodes, event);
        let Some(notice) = notice.filter(|_| !self.settings.is_empty()) else {
            return;
        };
        for made in spooled(&self.settings, &notice, position, &self.cluster) {
            match self.spooler.try_send(ToSpool::Notice(made)) {
                Ok(()) if self.left_out > 0 => {
                    let count = std::mem::take(&mut self.left_out);
                    error!(
                        "webhooks: {count} notices were left out, since the disk takes them too slowly"
                    );
                }
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(_)) => self.left_out += 1,
            }
        }
    }
}

/// Writes notices, and starts what sends them.
struct SpoolThread {
    folder: PathBuf,
    spools: HashMap<String, Spool>,
    deliveries: HashMap<String, WebhookDelivery>,
    seen: Arc<AtomicU64>,
}

impl SpoolThread {
    fn run(
        mut self,
        settings: Vec<WebhookSettings>,
        missed: &[SpooledNotice],
        inbox: &Receiver<ToSpool>,
    ) {
        let begun = self.seen.load(Ordering::Relaxed);
        self.configure(settings);
        missed.iter().for_each(|notice| self.append(notice));
        self.sync(begun);
        let mut synced = Instant::now();
        while let Ok(first) = inbox.recv() {
            let mut last = self.take(first);
            for _ in 0..BATCH_MAX {
                let Ok(next) = inbox.try_recv() else {
                    break;
                };
                last = self.take(next).max(last);
            }
            if last.is_some() {
                // The disk is the journal's, too.
                std::thread::sleep(PACE.saturating_sub(synced.elapsed()));
                synced = Instant::now();
                self.spools.values_mut().for_each(Spool::sync);
            }
        }
        // The replica has ended: there is nothing after the last event that it saw.
        self.sync(self.seen.load(Ordering::Relaxed));
    }

    /// The event of a notice that was written.
    fn take(&mut self, message: ToSpool) -> Option<Position> {
        match message {
            ToSpool::Notice(notice) => {
                self.append(&notice);
                Some(notice.position)
            }
            ToSpool::Configure(settings) => {
                self.configure(settings);
                // From here on there is something to make up for.
                self.sync(self.seen.load(Ordering::Relaxed));
                None
            }
            ToSpool::Sync { position, done } => {
                self.sync(position);
                let _ = done.send(());
                None
            }
        }
    }

    fn append(&mut self, notice: &SpooledNotice) {
        for name in &notice.names {
            if let Some(spool) = self.spools.get_mut(name) {
                spool.append(notice.position, notice.user.as_deref(), &notice.line);
            }
        }
    }

    /// Everything is on disk, and that it is up to an event, too.
    fn sync(&mut self, position: Position) {
        self.spools.values_mut().for_each(Spool::sync);
        if self.spools.is_empty() {
            return;
        }
        let file = self.folder.join(POSITION_FILE);
        if let Err(e) = spool::write_whole(&file, &format!("{position}\n")) {
            error!("webhooks: {}: {e}", file.display());
        }
    }

    fn configure(&mut self, settings: Vec<WebhookSettings>) {
        let is_there = |name: &String| settings.iter().any(|hook| hook.name == *name);
        self.deliveries.retain(|name, _| is_there(name));
        self.spools
            .retain(|name, spool| is_there(name) || spool.remove());
        if settings.is_empty() {
            // There is nothing that would be made up for, should webhooks come back.
            let _ = std::fs::remove_file(self.folder.join(POSITION_FILE));
            return;
        }
        if let Err(e) = spool::make_folder(&self.folder) {
            error!(
                "webhooks: no notices are sent: {}: {e}",
                self.folder.display()
            );
            return;
        }
        for hook in settings {
            let name = hook.name.clone();
            let spool = self.spools.entry(name.clone());
            let spool = spool.or_insert_with(|| Spool::open(&self.folder, &name));
            let state: Arc<SpoolState> = spool.state();
            match self.deliveries.get(&name) {
                Some(delivery) => delivery.configure(hook),
                None => match WebhookDelivery::start(&self.folder, hook, state) {
                    Ok(delivery) => drop(self.deliveries.insert(name, delivery)),
                    Err(e) => error!("webhook {name}: cannot start thread: {e}"),
                },
            }
        }
    }
}
