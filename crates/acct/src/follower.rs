//! The thread that writes accounting behind the controller. The controller passes changes on and never waits for
//! the database; a database that fails is tried again until it works, in the same order, so nothing is lost
//! while the process lives, and unwritten changes come again from the journal after its death.

use crate::change::AccountingChange;
use crate::cut_specs::CutSpecs;
use crate::held_bytes::HeldBytes;
use crate::store::{Store, StoreError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Changes written in one transaction, unless one batch alone has more.
const GROUP_CHANGES_MAX: usize = 8192;
/// Bytes of changes after which no more are written in one transaction.
const GROUP_BYTES_MAX: usize = 32 << 20;
/// Bytes of changes that wait, about, beyond which no more are taken: each may have a command line of a megabyte.
const QUEUE_BYTES_MAX: usize = 256 << 20;
/// Time that changes wait for others to share a transaction with. A query for them does not wait.
const LINGER: Duration = Duration::from_millis(50);
/// Batches without changes count too, so that the queue of them has an end.
const BATCH_COST: usize = 1;
/// First wait after a failure; each further one is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest wait after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

const _: () = assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());

/// A handle on the thread. Dropping it stops the thread without writing queued changes; see [`Follower::shutdown`].
pub struct Follower {
    link: Arc<Link>,
    thread: Option<JoinHandle<()>>,
}

/// State of the writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Position of the last batch that was handed over.
    pub accepted: u64,
    /// Position that readers of the store see.
    pub stored: u64,
    /// Position that survives a loss of power.
    pub synced: u64,
    /// Changes that wait to be written.
    pub waiting: usize,
    /// Since when the store fails, how often it did, and its last error; absent while it works.
    pub failing: Option<(Instant, u32, String)>,
}

/// The queue is full: the batch comes back.
#[derive(Debug)]
pub struct QueueFull(pub Vec<AccountingChange>);

/// The thread is gone; its position will not move any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("accounting has stopped")]
pub struct FollowerStopped;

/// Not everything was written in the time given. The rest is in the journal, from `stored` on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "accounting is written up to {stored}, not up to {accepted}: {why}; the rest follows from the journal at the next start"
)]
pub struct FlushTimeout {
    /// Position that is written.
    pub stored: u64,
    /// Position that was handed over.
    pub accepted: u64,
    /// The store's last error.
    pub why: String,
}

type Waiter = Box<dyn FnOnce(Result<(), FollowerStopped>) + Send>;

/// State that the thread and its callers share.
struct Link {
    shared: Mutex<Shared>,
    /// Something to do, or to stop for.
    work: Condvar,
    /// A position moved, the queue shrank, or the thread ended.
    progress: Condvar,
    room: usize,
}

#[derive(Default)]
struct Shared {
    queue: VecDeque<(u64, Vec<AccountingChange>)>,
    /// Cost of the queue, and of what the thread is writing.
    queued: usize,
    writing: usize,
    /// Bytes of the queue.
    bytes: HeldBytes,
    cut: CutSpecs,
    accepted: u64,
    stored: u64,
    synced: u64,
    sync_wanted: bool,
    /// Someone waits for this position.
    wanted: u64,
    failing: Option<(Instant, u32, String)>,
    /// When to give up what cannot be written.
    stop: Option<Instant>,
    ended: bool,
    waiters: BTreeMap<u64, Vec<Waiter>>,
}

impl Shared {
    fn want(&mut self, position: u64) {
        self.wanted = self.wanted.max(position);
    }

    /// Whether queued changes are to be written now: it is asked for, or they are a transaction's worth.
    fn is_urgent(&self, room: usize) -> bool {
        self.stop.is_some()
            || self.sync_wanted
            || self.wanted > self.stored
            || self.queued >= GROUP_CHANGES_MAX.min(room / 2)
            || self.bytes.total() >= GROUP_BYTES_MAX
    }

    /// Whether a batch has to wait for room.
    fn is_full(&self, cost: usize, room: usize) -> bool {
        self.queued > 0 && (self.queued + cost > room || self.bytes.total() >= QUEUE_BYTES_MAX)
    }
}

impl Link {
    /// A panic of one holder leaves nothing half done: every change of `Shared` is a few plain assignments.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Starts the thread. `room` is how many changes may wait; when the store cannot be written for long, more than
    /// that are refused.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn start(store: Box<dyn Store>, room: usize) -> std::io::Result<Follower> {
        let position = store.position();
        let link = Arc::new(Link {
            shared: Mutex::new(Shared {
                accepted: position,
                stored: position,
                ..Shared::default()
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            room,
        });
        let worker = Worker {
            link: link.clone(),
            store,
        };
        let thread = std::thread::Builder::new()
            .name("accounting".to_owned())
            .spawn(move || worker.run())?;
        Ok(Follower {
            link,
            thread: Some(thread),
        })
    }

    /// Passes on the changes by the events up to `position`. A batch at or below an accepted position is dropped:
    /// a replay repeats it. Positions rise; those without changes should be handed over too, as positions that are
    /// waited for. Never blocks.
    ///
    /// # Errors
    /// The queue is full; the caller keeps the batch and may offer it again, later ones after it.
    pub fn offer(
        &self,
        position: u64,
        mut changes: Vec<AccountingChange>,
    ) -> Result<(), QueueFull> {
        let mut shared = self.link.lock();
        if position <= shared.accepted {
            return Ok(());
        }
        let cost = changes.len() + BATCH_COST;
        if shared.is_full(cost, self.link.room) {
            return Err(QueueFull(changes));
        }
        shared.accepted = position;
        let (idle, hurried) = (shared.queue.is_empty(), shared.is_urgent(self.link.room));
        shared.queued += cost;
        shared.cut.cut(&mut changes);
        shared.bytes.add(&changes);
        match shared.queue.back_mut() {
            Some((last, _)) if changes.is_empty() => {
                *last = position;
                shared.queued -= cost;
            }
            _ => shared.queue.push_back((position, changes)),
        }
        if idle || !hurried && shared.is_urgent(self.link.room) {
            self.link.work.notify_one();
        }
        Ok(())
    }

    /// As [`Follower::offer`], but waits for room.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn send(
        &self,
        position: u64,
        changes: Vec<AccountingChange>,
    ) -> Result<(), FollowerStopped> {
        let mut batch = changes;
        loop {
            match self.offer(position, batch) {
                Ok(()) => return Ok(()),
                Err(QueueFull(back)) => batch = back,
            }
            let cost = batch.len() + BATCH_COST;
            let full = |shared: &mut Shared| !shared.ended && shared.is_full(cost, self.link.room);
            let mut shared = self.link.lock();
            let accepted = shared.accepted;
            shared.want(accepted);
            self.link.work.notify_one();
            let shared = self
                .link
                .progress
                .wait_while(shared, full)
                .unwrap_or_else(PoisonError::into_inner);
            if shared.ended {
                return Err(FollowerStopped);
            }
        }
    }

    /// The position that readers of the store see.
    pub fn stored(&self) -> u64 {
        self.link.lock().stored
    }

    /// Whether the thread is gone.
    pub fn has_ended(&self) -> bool {
        self.link.lock().ended
    }

    /// State of the writing.
    pub fn health(&self) -> Health {
        let shared = self.link.lock();
        Health {
            accepted: shared.accepted,
            stored: shared.stored,
            synced: shared.synced,
            waiting: shared.queued + shared.writing,
            failing: shared.failing.clone(),
        }
    }

    /// Calls `then` once readers of the store see `position`: at once if they do, else on the writing thread, where
    /// it must not block.
    pub fn when_stored(
        &self,
        position: u64,
        then: impl FnOnce(Result<(), FollowerStopped>) + Send + 'static,
    ) {
        let mut shared = self.link.lock();
        let outcome = match () {
            () if shared.stored >= position => Ok(()),
            () if shared.ended => Err(FollowerStopped),
            () => {
                let waiters = shared.waiters.entry(position).or_default();
                waiters.push(Box::new(then));
                shared.want(position);
                self.link.work.notify_one();
                return;
            }
        };
        drop(shared);
        then(outcome);
    }

    /// Waits until readers of the store see `position`; false when `patience` ran out first.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn wait_stored(&self, position: u64, patience: Duration) -> Result<bool, FollowerStopped> {
        let mut shared = self.link.lock();
        shared.want(position);
        self.link.work.notify_one();
        self.wait(shared, patience, |shared| shared.stored >= position)
    }

    /// Makes all changes so far survive a loss of power, such as before the journal is cut; false when
    /// `patience` ran out first.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn sync(&self, patience: Duration) -> Result<bool, FollowerStopped> {
        let mut shared = self.link.lock();
        let position = shared.accepted;
        shared.sync_wanted = true;
        self.link.work.notify_one();
        self.wait(shared, patience, |shared| shared.synced >= position)
    }

    fn wait(
        &self,
        shared: MutexGuard<'_, Shared>,
        patience: Duration,
        reached: impl Fn(&Shared) -> bool,
    ) -> Result<bool, FollowerStopped> {
        let waiting = |shared: &mut Shared| !shared.ended && !reached(shared);
        let (shared, _) = self
            .link
            .progress
            .wait_timeout_while(shared, patience, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        match reached(&shared) {
            true => Ok(true),
            false if shared.ended => Err(FollowerStopped),
            false => Ok(false),
        }
    }

    /// Writes queued changes, flushes them to disk and ends the thread.
    ///
    /// # Errors
    /// The store did not take everything within `patience`.
    pub fn shutdown(mut self, patience: Duration) -> Result<(), FlushTimeout> {
        self.end(Instant::now() + patience);
        let shared = self.link.lock();
        if shared.stored >= shared.accepted {
            return Ok(());
        }
        let failing = shared.failing.as_ref().map(|(.., text)| text.clone());
        Err(FlushTimeout {
            stored: shared.stored,
            accepted: shared.accepted,
            why: failing.unwrap_or_else(|| "the writing thread ended early".to_owned()),
        })
    }

    fn end(&mut self, deadline: Instant) {
        self.link.lock().stop = Some(deadline);
        self.link.work.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported, and shows as a position that does not move.
            let _ = thread.join();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.link.lock().queue.clear();
            self.end(Instant::now());
        }
    }
}

/// The thread.
struct Worker {
    link: Arc<Link>,
    store: Box<dyn Store>,
}

/// The next work of the thread.
enum FollowerTask {
    Write(u64, Vec<AccountingChange>),
    Sync,
    End,
}

impl Worker {
    fn run(mut self) {
        // Waiting threads must learn of the end, whatever its cause.
        let _ended = Ended(self.link.clone());
        loop {
            match self.next() {
                FollowerTask::Write(position, changes) => {
                    let result = self.persist(|store| write(store, &changes, position));
                    if result.is_none() {
                        return;
                    }
                    self.stored(position);
                }
                FollowerTask::Sync => {
                    if !self.sync() {
                        return;
                    }
                }
                FollowerTask::End => {
                    self.sync();
                    return;
                }
            }
        }
    }

    /// Waits for something to do, and then a little for more of it. Batches that wait are taken together, as far as a
    /// transaction should go.
    fn next(&self) -> FollowerTask {
        let idle = |shared: &mut Shared| {
            shared.queue.is_empty() && !shared.sync_wanted && shared.stop.is_none()
        };
        let shared = self
            .link
            .work
            .wait_while(self.link.lock(), idle)
            .unwrap_or_else(PoisonError::into_inner);
        let calm = |shared: &mut Shared| !shared.is_urgent(self.link.room);
        let (mut shared, _) = self
            .link
            .work
            .wait_timeout_while(shared, LINGER, calm)
            .unwrap_or_else(PoisonError::into_inner);
        let Some((mut position, mut group)) = shared.queue.pop_front() else {
            return match std::mem::take(&mut shared.sync_wanted) {
                true => FollowerTask::Sync,
                false => FollowerTask::End,
            };
        };
        let mut cost = group.len() + BATCH_COST;
        shared.bytes.remove(&group);
        let mut bytes = HeldBytes::default();
        bytes.add(&group);
        while let Some((_, next)) = shared.queue.front()
            && group.len() + next.len() <= GROUP_CHANGES_MAX
            && bytes.total() < GROUP_BYTES_MAX
        {
            let Some((at, next)) = shared.queue.pop_front() else {
                break;
            };
            position = at;
            cost += next.len() + BATCH_COST;
            shared.bytes.remove(&next);
            bytes.add(&next);
            group.extend(next);
        }
        shared.queued = shared.queued.saturating_sub(cost);
        shared.writing = cost;
        drop(shared);
        self.link.progress.notify_all();
        FollowerTask::Write(position, group)
    }

    /// Calls the store until it works; nothing if the time to stop came first.
    fn persist<T>(
        &mut self,
        mut call: impl FnMut(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Option<T> {
        let mut backoff = BACKOFF_MIN;
        loop {
            let error = match call(self.store.as_mut()) {
                Ok(value) => {
                    self.link.lock().failing = None;
                    return Some(value);
                }
                Err(error) => error.to_string(),
            };
            let mut shared = self.link.lock();
            let (since, times) = match &shared.failing {
                Some((since, times, _)) => (*since, times.saturating_add(1)),
                None => (Instant::now(), 1),
            };
            shared.failing = Some((since, times, error));
            let (shared, _) = self
                .link
                .work
                .wait_timeout_while(shared, backoff, |shared| shared.stop.is_none())
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(deadline) = shared.stop {
                if Instant::now() >= deadline {
                    return None;
                }
                // There is no time for long waits any more, but some for another try.
                let pause = BACKOFF_MIN.min(deadline.saturating_duration_since(Instant::now()));
                let _ = self
                    .link
                    .progress
                    .wait_timeout_while(shared, pause, |_| true);
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn stored(&self, position: u64) {
        let mut shared = self.link.lock();
        shared.stored = position;
        shared.writing = 0;
        let later = shared.waiters.split_off(&position.saturating_add(1));
        let due = std::mem::replace(&mut shared.waiters, later);
        drop(shared);
        self.link.progress.notify_all();
        due.into_values().flatten().for_each(|then| then(Ok(())));
    }

    fn sync(&mut self) -> bool {
        let stored = self.link.lock().stored;
        let synced = self.persist(|store| {
            if store.position() < stored {
                // Events that meant nothing moved only the position in memory.
                store.write(&[], stored)?;
            }
            store.sync()
        });
        if let Some(position) = synced {
            self.link.lock().synced = position;
            self.link.progress.notify_all();
        }
        synced.is_some()
    }
}

/// A batch without changes costs no transaction: if its position is lost, replaying it writes nothing.
fn write(
    store: &mut dyn Store,
    changes: &[AccountingChange],
    position: u64,
) -> Result<(), StoreError> {
    match changes {
        [] => Ok(()),
        changes => store.write(changes, position),
    }
}

struct Ended(Arc<Link>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut shared = self.0.lock();
        shared.ended = true;
        let waiters = std::mem::take(&mut shared.waiters);
        drop(shared);
        self.0.progress.notify_all();
        waiters
            .into_values()
            .flatten()
            .for_each(|then| then(Err(FollowerStopped)));
    }
}
