//! The event stream: one connection to the controller for each user (each token), whatever the number of pages, and a task for each
//! page. No thread is held while nothing happens. A page that does not read costs nothing but its place: it is written what has
//! changed when it reads on.

use crate::identity::Identity;
use hyper::body::{Body, Bytes, Frame};
use muster_cli::connect::{Client, ConnectError};
use muster_cli::rest::events::{self, StreamFilter, StreamPlace, StreamedChange, StreamedChanges};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Streams of one user.
const STREAMS_OF_ONE: usize = 16;
/// Users who follow changes.
const FEEDS_MAX: usize = 256;
/// Changes that are kept for the pages of a user; a page that is further behind asks the controller.
const KEPT_OF_ONE: usize = 512;
/// Time that a connection to the controller is used: whether the token is still good is found out with the next.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Interval at which a user's pages are given changes.
const PACE: Duration = Duration::from_millis(200);
/// Time before the controller is asked again after it was not there.
const RETRY: Duration = Duration::from_secs(2);
/// Interval at which an idle stream reports that it is there.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// Lifetime of a stream. Clients begin another where it has ended.
const STREAM_LIFE: Duration = Duration::from_secs(540);
/// Bytes that are given to a page at a time, about.
const PART_BYTES: usize = 32 << 10;
/// Connections to the controller that are begun at a time.
const CONNECTING: usize = 4;
/// Time limit for the first answer on one: others wait for the turn.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoStream {
    /// The user has many.
    OfUser,
    /// All places for streams are taken.
    OfAll,
}

/// The users who follow changes.
#[derive(Debug)]
pub(crate) struct Feeds {
    conf: PathBuf,
    feeds: Mutex<HashMap<[u8; 32], Weak<Feed>>>,
    /// Streams that each user may still open.
    users: Mutex<HashMap<u32, Weak<Semaphore>>>,
    /// Streams that there may be.
    all: Arc<Semaphore>,
    connecting: Arc<Semaphore>,
    /// The turns of each user, of which one at a time waits for the common ones.
    connecting_of: Mutex<HashMap<u32, Weak<Semaphore>>>,
}

/// The changes that a user's pages are sent.
#[derive(Debug)]
struct Feed {
    identity: Identity,
    state: Mutex<FeedState>,
    /// Wakes pages.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct FeedState {
    /// Changes, the oldest first.
    kept: VecDeque<Arc<StreamedChange>>,
    /// All changes after this place that there are up to the last are kept; absent before the controller has answered.
    begin: Option<StreamPlace>,
    last: Option<StreamPlace>,
    /// Number of times that changes were missed.
    resets: u64,
    /// Why there will be no more.
    end: Option<String>,
}

impl FeedState {
    fn add(&mut self, new: StreamedChanges) {
        if new.is_reset {
            self.kept.clear();
            self.resets += 1;
            self.begin = Some(new.last);
        }
        self.begin.get_or_insert(new.last);
        self.kept.extend(new.changes.into_iter().map(Arc::new));
        while self.kept.len() > KEPT_OF_ONE {
            if let Some(first) = self.kept.pop_front() {
                self.begin = Some(first.place());
            }
        }
        self.last = Some(new.last);
    }

    /// The changes after a place, and the place behind them; none if the place is not kept.
    fn after(&self, place: StreamPlace, filter: &StreamFilter) -> Option<(String, StreamPlace)> {
        let (begin, last) = (self.begin?, self.last?);
        if place < begin {
            return None;
        }
        if place > last {
            // The controller's answer arrives here later.
            return Some((String::new(), place));
        }
        let first = self.kept.partition_point(|change| change.place() <= place);
        let mut text = String::new();
        for change in self.kept.range(first..) {
            if filter.has(change) {
                text.push_str(change.text());
            }
            if text.len() >= PART_BYTES {
                return Some((text, change.place()));
            }
        }
        Some((text, last))
    }
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, new: StreamedChanges) {
        self.state().add(new);
        self.changed.send_modify(|count| *count += 1);
    }

    fn end(&self, why: String) {
        self.state().end = Some(why);
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Feeds {
    /// Feeds for a server with this number of connections: half of them may be streams.
    pub(crate) fn new(conf: PathBuf, connections: usize) -> Arc<Feeds> {
        Arc::new(Feeds {
            conf,
            feeds: Mutex::default(),
            users: Mutex::default(),
            all: Arc::new(Semaphore::new(connections.div_ceil(2))),
            connecting: Arc::new(Semaphore::new(CONNECTING)),
            connecting_of: Mutex::default(),
        })
    }

    /// A stream of the changes that a user may see.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn open(
        self: &Arc<Feeds>,
        identity: Identity,
        filter: StreamFilter,
        after: Option<StreamPlace>,
    ) -> Result<EventBody, NoStream> {
        let own = self.streams_of(identity.caller.uid);
        let own = own.try_acquire_owned().map_err(|_| NoStream::OfUser)?;
        let all = Arc::clone(&self.all).try_acquire_owned();
        let all = all.map_err(|_| NoStream::OfAll)?;
        let feed = self.feed_of(identity).ok_or(NoStream::OfAll)?;
        let (parts, receiver) = mpsc::channel(1);
        let resets = feed.state().resets;
        let page = Page {
            feeds: Arc::clone(self),
            seen: feed.changed.subscribe(),
            resets,
            feed,
            filter,
            parts,
            ends: Instant::now() + STREAM_LIFE,
            _permits: [own, all],
        };
        tokio::spawn(page.serve(after));
        Ok(EventBody { parts: receiver })
    }

    fn streams_of(&self, uid: u32) -> Arc<Semaphore> {
        permits_of(&self.users, uid, STREAMS_OF_ONE)
    }

    /// The feed of a user, which begins with the first page and ends with the last.
    fn feed_of(self: &Arc<Feeds>, identity: Identity) -> Option<Arc<Feed>> {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        let key = identity.key();
        let known = feeds.get(&key).and_then(Weak::upgrade);
        if let Some(feed) = known.filter(|feed| feed.state().end.is_none()) {
            return Some(feed);
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        if feeds.len() >= FEEDS_MAX {
            return None;
        }
        let feed = Arc::new(Feed {
            identity,
            state: Mutex::default(),
            changed: watch::channel(0).0,
        });
        feeds.insert(key, Arc::downgrade(&feed));
        tokio::spawn(follow_or_end(Arc::clone(self), Arc::downgrade(&feed)));
        Some(feed)
    }

    /// A connection as the user, and what has changed after a place.
    async fn connect(
        &self,
        identity: &Identity,
        after: Option<StreamPlace>,
    ) -> Result<(Client, StreamedChanges), ConnectError> {
        // Never closed. A user whose own requests have to wait keeps one turn of all at most.
        let own = permits_of(&self.connecting_of, identity.caller.uid, 1);
        let _own_turn = own.acquire().await;
        let _turn = self.connecting.acquire().await;
        let (identity, conf) = (identity.clone(), self.conf.clone());
        blocking(move || {
            let mut client = identity.connect(&conf)?;
            let set_timeout = |client: &Client, timeout| {
                let set = client.stream().set_read_timeout(timeout);
                set.map_err(ConnectError::Broken)
            };
            set_timeout(&client, Some(FIRST_ANSWER_MAX))?;
            events::ask(&mut client, after, false)?;
            let changes = events::receive(&mut client)?;
            set_timeout(&client, None)?;
            Ok((client, changes))
        })
        .await
    }
}

/// The permits of a user, which are there as long as somebody has them.
fn permits_of(
    all: &Mutex<HashMap<u32, Weak<Semaphore>>>,
    uid: u32,
    count: usize,
) -> Arc<Semaphore> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(&uid).and_then(Weak::upgrade) {
        return known;
    }
    all.retain(|_, permits| permits.strong_count() > 0);
    let made = Arc::new(Semaphore::new(count));
    all.insert(uid, Arc::downgrade(&made));
    made
}

/// Runs what waits for the controller on a thread that may wait.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, ConnectError> + Send + 'static,
) -> Result<T, ConnectError> {
    let done = tokio::task::spawn_blocking(run).await;
    done.unwrap_or_else(|e| Err(ConnectError::Broken(io::Error::other(e))))
}

/// Whether asking again is of no use: the token is not good any more.
fn is_final(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Untrusted { .. })
}

/// [`follow`], which ends the feed where it fails, so that nobody waits for what does not come.
async fn follow_or_end(feeds: Arc<Feeds>, feed: Weak<Feed>) {
    let followed = tokio::spawn(follow(feeds, Weak::clone(&feed))).await;
    if let (Err(failure), Some(feed)) = (followed, feed.upgrade()) {
        log::error!("changes are not followed any more: {failure}");
        feed.end("slurmrestd met a fault; see its log".to_owned());
    }
}

/// Feeds a user's pages until the last is gone.
async fn follow(feeds: Arc<Feeds>, feed: Weak<Feed>) {
    let mut after = None;
    loop {
        let Some(identity) = feed.upgrade().map(|feed| feed.identity.clone()) else {
            return;
        };
        let error = match feeds.connect(&identity, after).await {
            Ok((client, new)) => {
                after = Some(new.last);
                let has_more = new.has_more;
                match feed.upgrade() {
                    Some(feed) => feed.add(new),
                    None => return,
                }
                follow_by(client, &feed, &mut after, has_more).await.err()
            }
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            continue;
        };
        if is_final(&error) {
            if let Some(feed) = feed.upgrade() {
                feed.end(error.to_string());
            }
            return;
        }
        log::debug!("changes are not followed for now: {error}");
        tokio::time::sleep(RETRY).await;
    }
}

/// A duplicate of the socket, to wait until something comes; the connection, which blocks, reads it.
fn readiness_of(client: &Client) -> io::Result<UnixStream> {
    let own = client.stream();
    own.set_nonblocking(true)?;
    let ready = UnixStream::from_std(own.try_clone()?);
    own.set_nonblocking(false)?;
    ready
}

/// Feeds pages by a connection, until it is old.
async fn follow_by(
    client: Client,
    feed: &Weak<Feed>,
    after: &mut Option<StreamPlace>,
    mut has_more: bool,
) -> Result<(), ConnectError> {
    let since = Instant::now();
    let ready = readiness_of(&client).map_err(ConnectError::Broken)?;
    let mut client = Some(client);
    while let Some(mut own) = client.take() {
        let left = AGE_MAX.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        let place = *after;
        let (own, new) = match has_more {
            true => {
                blocking(move || {
                    events::ask(&mut own, place, false)?;
                    let new = events::receive(&mut own)?;
                    Ok((own, new))
                })
                .await?
            }
            false => {
                // The bytes that made it readable were read.
                let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = ready.try_io(Interest::READABLE, nothing);
                events::ask(&mut own, place, true)?;
                let Ok(answered) = tokio::time::timeout(left, ready.readable()).await else {
                    return Ok(());
                };
                answered.map_err(ConnectError::Broken)?;
                blocking(move || {
                    let new = events::receive(&mut own)?;
                    Ok((own, new))
                })
                .await?
            }
        };
        *after = Some(new.last);
        has_more = new.has_more;
        match feed.upgrade() {
            Some(feed) => feed.add(new),
            None => return Ok(()),
        }
        tokio::time::sleep(PACE).await;
        client = Some(own);
    }
    Ok(())
}

/// One stream.
struct Page {
    feeds: Arc<Feeds>,
    feed: Arc<Feed>,
    /// Resets of the feed that the stream has reported.
    resets: u64,
    seen: watch::Receiver<u64>,
    filter: StreamFilter,
    parts: mpsc::Sender<Bytes>,
    ends: Instant,
    _permits: [OwnedSemaphorePermit; 2],
}

/// The next message for a page.
enum Next {
    /// Text, and the place behind it.
    Text(String, StreamPlace),
    /// The controller must be asked.
    Missing(StreamPlace),
    /// No more comes.
    End(String),
}

impl Page {
    async fn serve(mut self, after: Option<StreamPlace>) {
        let mut place = None;
        if let Some(after) = after {
            // Whether the place is one is known to the controller alone.
            let Ok((text, behind)) = self.catch_up(after).await else {
                return;
            };
            if !self.send(text).await {
                return;
            }
            place = Some(behind);
        }
        loop {
            self.seen.mark_unchanged();
            let text = match self.next(place) {
                None => String::new(),
                Some(Next::End(why)) => {
                    let _ = self.send(events::end(&why)).await;
                    return;
                }
                Some(Next::Text(text, behind)) => {
                    let is_first = place.is_none();
                    place = Some(behind);
                    match is_first {
                        true => events::ready(behind),
                        false => text,
                    }
                }
                Some(Next::Missing(from)) => match self.catch_up(from).await {
                    Ok((text, behind)) => {
                        place = Some(behind);
                        text
                    }
                    Err(()) => return,
                },
            };
            let is_idle = text.is_empty();
            if !is_idle && !self.send(text).await {
                return;
            }
            if is_idle && !self.wait(place).await {
                return;
            }
        }
    }

    /// The next message; none yet if the controller has not answered.
    fn next(&mut self, place: Option<StreamPlace>) -> Option<Next> {
        let state = self.feed.state();
        if let Some(why) = &state.end {
            return Some(Next::End(why.clone()));
        }
        let last = state.last?;
        let Some(place) = place else {
            self.resets = state.resets;
            return Some(Next::Text(String::new(), last));
        };
        if self.resets != state.resets {
            self.resets = state.resets;
            return Some(Next::Text(events::reset(last), last));
        }
        Some(match state.after(place, &self.filter) {
            Some((text, behind)) => Next::Text(text, behind),
            None => Next::Missing(place),
        })
    }

    /// Asks the controller for what the feed does not have.
    async fn catch_up(&self, from: StreamPlace) -> Result<(String, StreamPlace), ()> {
        let asked = self.feeds.connect(&self.feed.identity, Some(from)).await;
        match asked {
            Ok((_, new)) if new.is_reset => Ok((events::reset(new.last), new.last)),
            Ok((_, new)) => {
                let wanted = new.changes.iter().filter(|change| self.filter.has(change));
                let text: String = wanted.map(StreamedChange::text).collect();
                // With no text the stream would wait here.
                let text = match text.is_empty() {
                    true => events::heartbeat(new.last),
                    false => text,
                };
                Ok((text, new.last))
            }
            Err(error) => {
                log::debug!("a stream ends: {error}");
                Err(())
            }
        }
    }

    /// Waits for a change; whether the stream goes on.
    async fn wait(&mut self, place: Option<StreamPlace>) -> bool {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let (parts, seen) = (self.parts.clone(), &mut self.seen);
        tokio::select! {
            changed = seen.changed() => changed.is_ok(),
            () = parts.closed() => false,
            () = tokio::time::sleep(left.min(HEARTBEAT)) => {
                // Before the controller has answered there is no place.
                let text = place.map_or_else(|| ":\n\n".to_owned(), events::heartbeat);
                self.send(text).await
            }
        }
    }

    /// Whether somebody takes it.
    async fn send(&self, text: String) -> bool {
        self.parts.send(Bytes::from(text)).await.is_ok()
    }
}

/// The body of a stream.
#[derive(Debug)]
pub(crate) struct EventBody {
    parts: mpsc::Receiver<Bytes>,
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.poll_recv(context);
        part.map(|part| part.map(|bytes| Ok(Frame::data(bytes))))
    }
}
