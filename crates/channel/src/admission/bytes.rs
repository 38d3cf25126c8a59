//! Bytes that a daemon keeps for users, such as requests that have not come whole and answers that nobody has read. They are
//! counted by user and for all. However many users take as much as they can get, another gets some.

#[cfg(feature = "tokio")]
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
#[cfg(feature = "tokio")]
use tokio::sync::Notify;

/// Limits of bytes.
#[derive(Clone, Copy, Debug)]
pub struct ByteBounds {
    /// Bytes of one user.
    pub own: usize,
    /// Bytes of all users together. A quarter of it is for those who have little.
    pub all: usize,
    /// Bytes of one user in any case.
    pub few: usize,
}

/// Why there is no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The user has as much as one may have.
    Own,
    /// Others have the rest.
    All,
}

/// The bytes of one user, and those of all. Clones are the same count.
#[derive(Clone, Debug)]
pub struct ByteCount {
    bounds: ByteBounds,
    of_user: Arc<ByteTotal>,
    of_all: Arc<ByteTotal>,
}

/// Bytes that are kept, and those who wait until they are fewer.
#[derive(Debug, Default)]
struct ByteTotal {
    bytes: AtomicUsize,
    #[cfg(feature = "tokio")]
    fewer: Notify,
}

impl ByteCount {
    /// That of a first user.
    pub fn new(bounds: ByteBounds) -> ByteCount {
        ByteCount {
            bounds,
            of_user: Arc::default(),
            of_all: Arc::default(),
        }
    }

    /// That of another user.
    pub fn of_another(&self) -> ByteCount {
        ByteCount {
            bounds: self.bounds,
            of_user: Arc::default(),
            of_all: Arc::clone(&self.of_all),
        }
    }

    /// Checks that there is room for `bytes` more.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self, bytes: usize) -> Result<(), NoRoom> {
        self.may_be(self.own() + bytes, self.all() + bytes)
    }

    /// Counts `bytes` more.
    ///
    /// # Errors
    /// There is no room for them: they are not counted.
    pub fn take(&self, bytes: usize) -> Result<(), NoRoom> {
        let own = self.of_user.bytes.fetch_add(bytes, Relaxed) + bytes;
        let all = self.of_all.bytes.fetch_add(bytes, Relaxed) + bytes;
        self.may_be(own, all).inspect_err(|_| self.give_back(bytes))
    }

    /// Gives bytes back that were taken and are no longer kept.
    pub fn give_back(&self, bytes: usize) {
        self.of_user.bytes.fetch_sub(bytes, Relaxed);
        self.of_all.bytes.fetch_sub(bytes, Relaxed);
        #[cfg(feature = "tokio")]
        self.notify();
    }

    /// Waits until there is room for `bytes` more. They are not counted. Each waiter of a user needs as many.
    #[cfg(feature = "tokio")]
    pub async fn wait_for_room(&self, bytes: usize) {
        if self.check(bytes).is_ok() {
            return;
        }
        loop {
            let mut of_user = pin!(self.of_user.fewer.notified());
            let mut of_all = pin!(self.of_all.fewer.notified());
            // From here on no notice is missed.
            of_user.as_mut().enable();
            of_all.as_mut().enable();
            match self.check(bytes) {
                Ok(()) => break,
                Err(NoRoom::Own) => of_user.await,
                Err(NoRoom::All) => tokio::select! {
                    () = of_user => {}
                    () = of_all => {}
                },
            }
        }
        // There may be room for the next of the user's, too.
        self.of_user.fewer.notify_one();
    }

    /// Wakes what waits: the next of the user's, and that of all users if one with little would have room.
    #[cfg(feature = "tokio")]
    fn notify(&self) {
        self.of_user.fewer.notify_one();
        let few = self.bounds.few.saturating_add(1);
        if self.may_be(few.min(self.bounds.own), self.all()).is_ok() {
            self.of_all.fewer.notify_waiters();
        }
    }

    /// Bytes of the user.
    pub fn own(&self) -> usize {
        self.of_user.bytes.load(Relaxed)
    }

    /// Bytes of all users.
    pub fn all(&self) -> usize {
        self.of_all.bytes.load(Relaxed)
    }

    /// Beyond a few bytes nobody has more than are left, without those for who has little.
    fn may_be(&self, own: usize, all: usize) -> Result<(), NoRoom> {
        let bounds = &self.bounds;
        let left = bounds.all.saturating_sub(all);
        match own {
            _ if own > bounds.own => Err(NoRoom::Own),
            _ if own <= bounds.few || own <= left.saturating_sub(bounds.all / 4) => Ok(()),
            _ => Err(NoRoom::All),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ByteBounds = ByteBounds {
        own: 64 << 10,
        all: 192 << 10,
        few: 2 << 10,
    };

    /// Three users had all room for requests at a node.
    #[test]
    fn however_many_users_take_what_they_can_others_have_room() {
        let first = ByteCount::new(BOUNDS);
        let users: Vec<ByteCount> = (0..20).map(|_| first.of_another()).collect();
        let mut had = Vec::new();
        for user in &users {
            while user.take(1 << 10).is_ok() {}
            had.push(user.own());
        }
        assert_eq!(had[0], BOUNDS.own);
        assert_eq!(users[0].take(1), Err(NoRoom::Own));
        assert_eq!(
            users[1].take(1 << 10),
            Err(NoRoom::All),
            "not its own doing"
        );
        assert!(had.iter().all(|own| *own >= BOUNDS.few), "{had:?}");
        assert!(first.all() < BOUNDS.all, "{}", first.all());
        assert_eq!(first.check(BOUNDS.few), Ok(()));
        assert_eq!(first.check(BOUNDS.few + 1), Err(NoRoom::All));
        for user in &users {
            user.give_back(user.own());
        }
        assert_eq!((first.all(), first.check(BOUNDS.own)), (0, Ok(())));
    }

    /// Relays looked five times a second whether there was room.
    #[cfg(feature = "tokio")]
    #[test]
    fn who_waits_for_room_is_woken_when_bytes_are_given_back() {
        use std::task::{Context, Wake};

        #[derive(Default)]
        struct Woken(AtomicUsize);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let user = ByteCount::new(BOUNDS);
        let (other, third) = (user.of_another(), user.of_another());
        let woken: [Arc<Woken>; 3] = Default::default();
        let wakers = woken.clone().map(std::task::Waker::from);
        let [mut first, mut second, mut foreign] =
            [0, 1, 2].map(|n| Context::from_waker(&wakers[n]));
        let counts = || woken.each_ref().map(|woken| woken.0.load(Relaxed));

        // Two of a user that has all it may have. One that is woken and has room wakes the next.
        user.take(64 << 10).unwrap();
        let mut one = Box::pin(user.wait_for_room(8 << 10));
        let mut two = Box::pin(user.wait_for_room(8 << 10));
        assert!(one.as_mut().poll(&mut first).is_pending());
        assert!(two.as_mut().poll(&mut second).is_pending());
        user.give_back(4 << 10);
        assert!(one.as_mut().poll(&mut first).is_pending(), "not enough");
        user.give_back(20 << 10);
        assert_eq!(counts(), [1, 1, 0]);
        assert!(two.as_mut().poll(&mut second).is_ready());
        assert!(one.as_mut().poll(&mut first).is_ready());
        assert_eq!(counts()[0], 2);

        // One of a user that others leave nothing.
        user.take(24 << 10).unwrap();
        other.take(40 << 10).unwrap();
        let mut three = Box::pin(third.wait_for_room(24 << 10));
        assert!(three.as_mut().poll(&mut foreign).is_pending());
        other.give_back(40 << 10);
        assert_eq!(counts()[2], 1);
        assert!(three.as_mut().poll(&mut foreign).is_ready());
    }
}
