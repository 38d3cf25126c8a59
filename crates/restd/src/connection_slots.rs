//! The places and the memory of the server, by their holders: connections at a time, bytes of bodies and of answers that were not
//! sent yet. Where there is no more, the holder with the most gives something up, so that no other is kept out.

use muster_channel::admission::HostAddress;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Time that an answer may stand still before its connection is ended where memory is short.
const STALL: Duration = Duration::from_secs(1);
/// Time that it may stand still in any case.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);
/// Requests of one origin that are answered at a time and need much memory.
const LARGE_OF_ONE: usize = 1;

/// Where connections come from, as far as it can be known before a request is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A host.
    Host(HostAddress),
    /// A user of this host.
    User(u32),
    /// A socket that says nothing.
    Unknown,
}

impl Origin {
    /// The origin of an address.
    pub(crate) fn of(address: IpAddr) -> Origin {
        Origin::Host(HostAddress::of(address))
    }
}

/// One connection, as far as others may have to take its place.
#[derive(Debug)]
struct Slot {
    end: Option<AbortHandle>,
    /// A request is being read or answered.
    is_busy: bool,
    /// The controller has confirmed the user of a request.
    is_known: bool,
    /// Bytes that are kept for it.
    bytes: usize,
    /// When it last went on.
    since: Instant,
}

/// All connections from one origin.
#[derive(Debug)]
struct Share {
    slots: HashMap<u64, Slot>,
    requests: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Share {
    fn bytes(&self) -> usize {
        self.slots.values().map(|slot| slot.bytes).sum()
    }
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    shares: HashMap<Origin, Share>,
}

impl State {
    fn slot(&mut self, origin: Origin, number: u64) -> Option<&mut Slot> {
        self.shares.get_mut(&origin)?.slots.get_mut(&number)
    }

    fn count(&self) -> usize {
        self.shares.values().map(|share| share.slots.len()).sum()
    }

    fn bytes(&self) -> usize {
        self.shares.values().map(Share::bytes).sum()
    }

    fn remove(&mut self, origin: Origin, number: u64) -> Option<Slot> {
        let share = self.shares.get_mut(&origin)?;
        let slot = share.slots.remove(&number);
        if share.slots.is_empty() {
            self.shares.remove(&origin);
        }
        slot
    }

    fn end(&mut self, origin: Origin, number: u64) {
        if let Some(handle) = self.remove(origin, number).and_then(|slot| slot.end) {
            handle.abort();
        }
    }

    /// The connection that makes room for another of an origin: of who has the most, if that is still not less afterwards
    /// than what the other has; else one of its own of which nobody knows whose it is. One without a request is first, and
    /// the oldest. Who has none takes that of somebody else of whom nobody knows who it is, where each has one only.
    fn to_give_way(&self, newcomer: Origin, now: Instant) -> Option<(Origin, u64)> {
        let own = self.shares.get(&newcomer);
        let count = own.map_or(0, |share| share.slots.len());
        let others = self
            .shares
            .iter()
            .filter(|(origin, _)| **origin != newcomer);
        let most = others.max_by_key(|(_, share)| share.slots.len());
        if let Some((origin, most)) = most.filter(|(_, most)| most.slots.len() >= count + 2) {
            let first = most.slots.iter();
            let first = first.min_by_key(|(_, s)| (s.is_known, s.is_busy, s.since));
            return first.map(|(number, _)| (*origin, *number));
        }
        if count == 0
            && let Some(stranger) = self.oldest_stranger(now)
        {
            return Some(stranger);
        }
        let unknown = own?.slots.iter().filter(|(_, slot)| !slot.is_known);
        let first = unknown.min_by_key(|(_, s)| (s.is_busy, s.since));
        first.map(|(number, _)| (newcomer, *number))
    }

    /// The oldest connection without a request of which nobody knows whose it is, and on which nothing has come for a while.
    fn oldest_stranger(&self, now: Instant) -> Option<(Origin, u64)> {
        let slots = self.shares.iter().flat_map(|(origin, share)| {
            let slots = share.slots.iter();
            slots.map(move |(number, slot)| (*origin, *number, slot))
        });
        let is_stranger = |slot: &Slot| {
            !slot.is_known && !slot.is_busy && now.duration_since(slot.since) >= STALL
        };
        let strangers = slots.filter(|(.., slot)| is_stranger(slot));
        let oldest = strangers.min_by_key(|(.., slot)| slot.since);
        oldest.map(|(origin, number, _)| (origin, number))
    }

    /// The connection, other than one, that gives up its bytes: of who keeps the most of them, the largest; first of those
    /// that stand still.
    fn to_give_bytes(&self, now: Instant, but: u64) -> Option<(Origin, u64)> {
        let slots = self.shares.iter().flat_map(|(origin, share)| {
            let of_all = share.bytes();
            let slots = share.slots.iter();
            slots.map(move |(number, slot)| (of_all, *origin, *number, slot))
        });
        let candidates = slots.filter(|(_, _, number, slot)| *number != but && slot.bytes > 0);
        let is_stalled = |slot: &Slot| now.duration_since(slot.since) >= STALL;
        let first =
            candidates.max_by_key(|(of_all, _, _, slot)| (is_stalled(slot), *of_all, slot.bytes));
        first.map(|(_, origin, number, _)| (origin, number))
    }
}

/// The connections that there are.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    most: usize,
    bytes: usize,
    requests_of_one: usize,
    state: Mutex<State>,
    /// Turns of users at requests that need much memory, whichever way they come.
    large_of_users: Mutex<UserSemaphores>,
    /// Turns of users at all requests.
    requests_of_users: Mutex<UserSemaphores>,
}

/// Turns of users, which are there as long as somebody has them or waits.
type UserSemaphores = HashMap<u32, Weak<Semaphore>>;

fn turns_of(all: &Mutex<UserSemaphores>, uid: u32, count: usize) -> Arc<Semaphore> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(&uid).and_then(Weak::upgrade) {
        return known;
    }
    all.retain(|_, turns| turns.strong_count() > 0);
    let made = Arc::new(Semaphore::new(count));
    all.insert(uid, Arc::downgrade(&made));
    made
}

impl ConnectionSlots {
    /// Room for this number of connections and bytes. One origin has at most `requests_of_one` requests answered at a
    /// time.
    pub(crate) fn new(most: usize, bytes: usize, requests_of_one: usize) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots {
            most,
            bytes,
            requests_of_one,
            state: Mutex::default(),
            large_of_users: Mutex::default(),
            requests_of_users: Mutex::default(),
        })
    }

    /// The turns of a user at requests that need much memory. A user who comes by several ways has them once.
    pub(crate) fn large_of_user(&self, uid: u32) -> Arc<Semaphore> {
        turns_of(&self.large_of_users, uid, LARGE_OF_ONE)
    }

    /// The turns of a user at all requests: one less than an origin has, which may be a proxy that others come by.
    pub(crate) fn requests_of_user(&self, uid: u32) -> Arc<Semaphore> {
        let count = self.requests_of_one.saturating_sub(1).max(1);
        turns_of(&self.requests_of_users, uid, count)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection. Absent if there is none, and nobody has more than who asks.
    pub(crate) fn admit(self: &Arc<ConnectionSlots>, origin: Origin) -> Option<ConnectionSlot> {
        let mut state = self.state();
        if state.count() >= self.most {
            let (of, number) = state.to_give_way(origin, Instant::now())?;
            state.end(of, number);
        }
        let number = state.next;
        state.next += 1;
        let share = state.shares.entry(origin).or_insert_with(|| Share {
            slots: HashMap::new(),
            requests: Arc::new(Semaphore::new(self.requests_of_one)),
            large: Arc::new(Semaphore::new(LARGE_OF_ONE)),
        });
        let slot = Slot {
            end: None,
            is_busy: false,
            is_known: false,
            bytes: 0,
            since: Instant::now(),
        };
        share.slots.insert(number, slot);
        let (requests, large) = (share.requests.clone(), share.large.clone());
        Some(ConnectionSlot {
            places: self.clone(),
            origin,
            number,
            requests,
            large,
        })
    }

    /// Says how a connection is ended from outside.
    pub(crate) fn set_end(&self, (origin, number): (Origin, u64), handle: AbortHandle) {
        match self.state().slot(origin, number) {
            Some(slot) => slot.end = Some(handle),
            // Its place was given away, or it has ended.
            None => handle.abort(),
        }
    }

    /// Ends the connections whose answers have stood still for too long.
    pub(crate) fn end_stalled(&self, now: Instant) {
        let mut state = self.state();
        let too_long = |slot: &Slot| slot.bytes > 0 && now.duration_since(slot.since) > STALL_MAX;
        let found: Vec<(Origin, u64)> = state
            .shares
            .iter()
            .flat_map(|(origin, share)| {
                let slots = share.slots.iter().filter(|(_, slot)| too_long(slot));
                slots.map(move |(number, _)| (*origin, *number))
            })
            .collect();
        for (origin, number) in found {
            state.end(origin, number);
        }
    }
}

/// A connection's place. It is free again when the value goes.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    origin: Origin,
    number: u64,
    /// Requests that this origin may have answered at a time.
    pub(crate) requests: Arc<Semaphore>,
    /// Turns of requests that need much memory.
    pub(crate) large: Arc<Semaphore>,
}

impl ConnectionSlot {
    /// Its key.
    pub(crate) fn key(&self) -> (Origin, u64) {
        (self.origin, self.number)
    }

    /// Says whether a request is read or answered.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        if let Some(slot) = self.places.state().slot(self.origin, self.number) {
            slot.is_busy = is_busy;
            slot.since = Instant::now();
        }
    }

    /// Says that the controller has confirmed whose it is.
    pub(crate) fn set_known(&self) {
        if let Some(slot) = self.places.state().slot(self.origin, self.number) {
            slot.is_known = true;
        }
    }

    /// Keeps bytes; others' connections end if there are too many.
    pub(crate) fn keep(self: &Arc<ConnectionSlot>, bytes: usize) -> ReservedBytes {
        let mut kept = ReservedBytes {
            place: self.clone(),
            bytes: 0,
        };
        kept.add(bytes);
        kept
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.state().remove(self.origin, self.number);
    }
}

/// Bytes that are kept for a connection, until the value goes.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    place: Arc<ConnectionSlot>,
    bytes: usize,
}

impl ReservedBytes {
    /// Keeps more.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        let (origin, number) = self.place.key();
        let mut state = self.place.places.state();
        let now = Instant::now();
        if let Some(slot) = state.slot(origin, number) {
            slot.bytes += bytes;
            slot.since = now;
        }
        while state.bytes() > self.place.places.bytes {
            let Some((origin, number)) = state.to_give_bytes(now, number) else {
                break;
            };
            state.end(origin, number);
        }
    }

    /// Notes that `bytes` were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let ConnectionSlot { origin, number, .. } = *self.place;
        if let Some(slot) = self.place.places.state().slot(origin, number) {
            slot.bytes = slot.bytes.saturating_sub(bytes);
            slot.since = Instant::now();
        }
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.sent(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One user had all turns, by TCP and by a socket.
    #[test]
    fn a_user_has_the_same_turns_by_all_ways() {
        let places = ConnectionSlots::new(4, 100, 2);
        let by_socket = places.large_of_user(5);
        let held = by_socket.clone().try_acquire_owned().unwrap();
        assert!(places.large_of_user(5).try_acquire_owned().is_err());
        assert!(places.large_of_user(6).try_acquire_owned().is_ok());
        drop((held, by_socket));
        assert!(places.large_of_user(5).try_acquire_owned().is_ok());
        assert_eq!(places.large_of_users.lock().unwrap().len(), 1);
    }

    const A: Origin = Origin::User(1);
    const B: Origin = Origin::User(2);
    const C: Origin = Origin::User(3);

    fn admit(
        places: &Arc<ConnectionSlots>,
        origin: Origin,
        count: usize,
    ) -> Vec<Arc<ConnectionSlot>> {
        let places = (0..count).map(|_| places.admit(origin).map(Arc::new));
        places.map(|place| place.expect("a place")).collect()
    }

    fn count(places: &ConnectionSlots, origin: Origin) -> usize {
        let state = places.state();
        state.shares.get(&origin).map_or(0, |s| s.slots.len())
    }

    #[test]
    fn who_has_the_most_makes_room() {
        let places = ConnectionSlots::new(8, 0, 1);
        let first = admit(&places, A, 8);
        // Among its own, connections of unknown users give way.
        let again = admit(&places, A, 1);
        assert_eq!(count(&places, A), 8);
        again
            .iter()
            .chain(&first)
            .for_each(|place| place.set_known());
        assert!(places.admit(A).is_none());
        let first: Vec<Arc<ConnectionSlot>> = first.into_iter().chain(again).skip(1).collect();
        first[0].set_busy(true);
        let second = admit(&places, B, 4);
        assert_eq!((count(&places, A), count(&places, B)), (4, 4));
        // A connection with a request stays longest.
        assert!(places.state().slot(A, first[0].number).is_some());
        second.iter().for_each(|place| place.set_known());
        assert!(places.admit(B).is_none());
        let _third = admit(&places, C, 2);
        assert_eq!(count(&places, C), 2);
        assert_eq!(count(&places, A) + count(&places, B), 6);
        drop(first);
        assert_eq!(count(&places, A), 0);
        assert!(places.admit(B).is_some());
    }

    /// Many addresses with one silent connection each kept every newcomer out.
    #[test]
    fn strangers_with_one_connection_each_make_room() {
        let places = ConnectionSlots::new(3, 0, 1);
        let [first, second, known] = [1, 2, 3].map(|uid| {
            let place = places.admit(Origin::User(uid)).unwrap();
            Arc::new(place)
        });
        known.set_known();
        // One that has just come may be about to say who it is.
        assert!(places.admit(Origin::User(4)).is_none());
        let past = Instant::now().checked_sub(STALL).unwrap();
        for place in [&first, &second, &known] {
            let (origin, number) = place.key();
            places.state().slot(origin, number).unwrap().since = past;
        }
        first.set_busy(true);
        let _newcomer = places.admit(Origin::User(4)).unwrap();
        assert_eq!(count(&places, Origin::User(1)), 1);
        assert_eq!(count(&places, Origin::User(2)), 0);
        // Nobody who has one takes another's, and nobody takes a known one's.
        assert!(places.admit(Origin::User(3)).is_none());
        assert!(places.admit(Origin::User(5)).is_none());
    }

    #[test]
    fn who_keeps_the_most_bytes_gives_them_up() {
        let places = ConnectionSlots::new(8, 100, 1);
        let [large, small, other] = [A, B, C].map(|of| Arc::new(places.admit(of).unwrap()));
        let mut of_large = large.keep(60);
        let _of_small = small.keep(15);
        let mut of_other = other.keep(25);
        assert_eq!(count(&places, A), 1);
        of_other.add(1);
        let counts = [A, B, C].map(|of| count(&places, of));
        assert_eq!((counts, places.state().bytes()), ([0, 1, 1], 41));
        // The rest of a connection that has ended changes nothing.
        of_large.sent(10);
        assert_eq!(places.state().bytes(), 41);
        // One that stands still is first; the last stays, however large.
        let past = Instant::now().checked_sub(STALL).unwrap();
        let third = Arc::new(places.admit(A).unwrap());
        let mut of_third = third.keep(40);
        places.state().slot(B, small.number).unwrap().since = past;
        of_third.add(20);
        assert_eq!([A, B, C].map(|of| count(&places, of)), [1, 0, 1]);
        of_third.add(1000);
        assert_eq!([A, B, C].map(|of| count(&places, of)), [1, 0, 0]);
    }

    #[test]
    fn an_answer_does_not_stand_still_for_ever() {
        let places = ConnectionSlots::new(8, 100, 1);
        let before = Instant::now();
        let [idle, stalled] = [A, B].map(|of| Arc::new(places.admit(of).unwrap()));
        let _kept = stalled.keep(10);
        places.end_stalled(before + STALL_MAX);
        assert_eq!(count(&places, B), 1);
        places.end_stalled(Instant::now() + STALL_MAX + STALL);
        assert_eq!((count(&places, A), count(&places, B)), (1, 0));
        drop(idle);
    }
}
