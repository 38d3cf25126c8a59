//! Bytes that a daemon keeps for users, such as requests that have not come whole and answers that nobody has read. They are
//! counted by user and for all. However many users take what they can get, another gets some.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many bytes there may be.
#[derive(Clone, Copy, Debug)]
pub struct ByteBounds {
    /// Of one user.
    pub own: usize,
    /// Of all users together. A quarter of it is for those who have little.
    pub all: usize,
    /// Of one user in any case.
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
    of_user: Arc<AtomicUsize>,
    of_all: Arc<AtomicUsize>,
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

    /// Whether there is room for so many more.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self, bytes: usize) -> Result<(), NoRoom> {
        self.may_be(self.own() + bytes, self.all() + bytes)
    }

    /// Counts so many more.
    ///
    /// # Errors
    /// There is no room for them: they are not counted.
    pub fn take(&self, bytes: usize) -> Result<(), NoRoom> {
        let own = self.of_user.fetch_add(bytes, Relaxed) + bytes;
        let all = self.of_all.fetch_add(bytes, Relaxed) + bytes;
        self.may_be(own, all).inspect_err(|_| self.give_back(bytes))
    }

    /// Gives bytes back that were taken and are no longer kept.
    pub fn give_back(&self, bytes: usize) {
        self.of_user.fetch_sub(bytes, Relaxed);
        self.of_all.fetch_sub(bytes, Relaxed);
    }

    /// Bytes of the user.
    pub fn own(&self) -> usize {
        self.of_user.load(Relaxed)
    }

    /// Bytes of all users.
    pub fn all(&self) -> usize {
        self.of_all.load(Relaxed)
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
}
