//! Users take turns with the programs that the controller runs for their jobs: ten thousand of one delay another's by one.

use log::warn;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::mpsc::Receiver;
use std::sync::{Condvar, Mutex, PoisonError};

/// How many programs run, and who waits for there to be fewer.
pub(super) struct Room {
    size: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Room {
    pub(super) fn of(size: usize) -> Room {
        Room {
            size,
            taken: Mutex::default(),
            freed: Condvar::default(),
        }
    }

    /// Waits until there is room for one more.
    fn wait_for_place(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |taken: &mut usize| *taken >= self.size;
        drop(self.freed.wait_while(taken, full));
    }

    pub(super) fn enter(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self
            .freed
            .wait_while(taken, |taken| *taken >= self.size)
            .unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
    }

    pub(super) fn leave(&self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = taken.saturating_sub(1);
        self.freed.notify_one();
    }
}

/// What waits, in the order of the users' turns.
struct UserTurns<T> {
    of_user: BTreeMap<u32, VecDeque<T>>,
    /// The user whose turn it was last.
    last: u32,
    /// Of one user.
    most: usize,
}

impl<T> UserTurns<T> {
    fn new(most: usize) -> UserTurns<T> {
        UserTurns {
            of_user: BTreeMap::new(),
            last: u32::MAX,
            most,
        }
    }

    /// Appends what is a user's; false if too much of it waits.
    fn push(&mut self, uid: u32, item: T) -> bool {
        let own = self.of_user.entry(uid).or_default();
        let fits = own.len() < self.most;
        if fits {
            own.push_back(item);
        }
        fits
    }

    /// Takes what is next of the user whose turn it is.
    fn pop(&mut self) -> Option<T> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.of_user.range(after).next();
        let uid = *next.or_else(|| self.of_user.first_key_value())?.0;
        self.last = uid;
        let own = self.of_user.get_mut(&uid)?;
        let item = own.pop_front();
        if own.is_empty() {
            self.of_user.remove(&uid);
        }
        item
    }

    fn is_empty(&self) -> bool {
        self.of_user.is_empty()
    }
}

/// Starts what comes of users, who take turns, whenever there is room for one more, until nobody can add more. Of each user so
/// many wait at most; further ones are left out.
pub(super) fn take_turns<T>(
    inbox: &Receiver<(u32, T)>,
    room: &Room,
    most: usize,
    mut start: impl FnMut(T),
) {
    let mut waiting = UserTurns::new(most);
    let add = |waiting: &mut UserTurns<T>, (uid, item): (u32, T)| {
        if !waiting.push(uid, item) {
            warn!("a mail of uid {uid} is not sent: {most} of them wait");
        }
    };
    loop {
        if waiting.is_empty() {
            match inbox.recv() {
                Ok(item) => add(&mut waiting, item),
                Err(_) => return,
            }
        }
        room.wait_for_place();
        // What has come meanwhile has a turn, too.
        while let Ok(item) = inbox.try_recv() {
            add(&mut waiting, item);
        }
        if let Some(item) = waiting.pop() {
            start(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn users_take_turns() {
        let mut waiting = UserTurns::new(5);
        for number in 0..10 {
            assert_eq!(waiting.push(7, number), number < 5, "five of one user wait");
        }
        assert!(waiting.push(3, 100) && waiting.push(9, 200) && waiting.push(3, 101));
        let order: Vec<i32> = std::iter::from_fn(|| waiting.pop()).collect();
        assert_eq!(order, [100, 0, 200, 101, 1, 2, 3, 4]);
        assert!(waiting.is_empty() && waiting.pop().is_none());
    }

    /// What comes while there is no room takes its turn with what came before.
    #[test]
    fn what_waits_for_room_takes_turns() {
        let (send, inbox) = channel();
        (0..5).for_each(|number| send.send((7, number)).unwrap());
        send.send((9, 100)).unwrap();
        drop(send);
        let mut started = Vec::new();
        take_turns(&inbox, &Room::of(1), usize::MAX, |number| {
            started.push(number)
        });
        assert_eq!(started, [0, 100, 1, 2, 3, 4]);
    }
}
