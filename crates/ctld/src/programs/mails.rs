//! Mails that wait to be sent. They have a queue, threads and a time limit of their own, so that no program that jobs
//! wait for stands behind them, and users take turns: ten thousand mails of one delay another's by one.

use super::{Invocation, Room, start};
use log::warn;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Mails that are sent at the same time.
const AT_ONCE: usize = 16;
/// How long `MailProg` may take.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Mails of one user that wait; further ones are not sent.
const WAITING_MAX: usize = 20_000;

/// Waiting mails, in the order of their users' turns.
struct Waiting<T> {
    of_user: BTreeMap<u32, VecDeque<T>>,
    /// The user whose turn it was last.
    last: u32,
    /// Of one user.
    most: usize,
}

impl<T> Waiting<T> {
    fn new(most: usize) -> Waiting<T> {
        Waiting {
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

/// Sends what comes, until nobody can add more.
pub(super) fn send_all(mailbox: &Receiver<(u32, Invocation)>) {
    let room = Arc::new(Room::of(AT_ONCE));
    let mut waiting = Waiting::new(WAITING_MAX);
    let add = |waiting: &mut Waiting<Invocation>, (uid, mail): (u32, Invocation)| {
        if !waiting.push(uid, mail) {
            warn!("a mail of uid {uid} is not sent: {WAITING_MAX} of them wait");
        }
    };
    loop {
        if waiting.is_empty() {
            match mailbox.recv() {
                Ok(mail) => add(&mut waiting, mail),
                Err(_) => return,
            }
        }
        room.wait_for_place();
        // Mails that have come meanwhile have a turn, too.
        while let Ok(mail) = mailbox.try_recv() {
            add(&mut waiting, mail);
        }
        if let Some(mail) = waiting.pop() {
            start(mail, &room, |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_take_turns() {
        let mut waiting = Waiting::new(5);
        for number in 0..10 {
            assert_eq!(waiting.push(7, number), number < 5, "five of one user wait");
        }
        assert!(waiting.push(3, 100) && waiting.push(9, 200) && waiting.push(3, 101));
        let order: Vec<i32> = std::iter::from_fn(|| waiting.pop()).collect();
        assert_eq!(order, [100, 0, 200, 101, 1, 2, 3, 4]);
        assert!(waiting.is_empty() && waiting.pop().is_none());
    }
}
