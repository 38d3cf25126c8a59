//! Start-time fair queueing (Goyal et al., 1996) of users' requests. Users are served in turn, by the time that their
//! requests took, so that a user with many or costly requests delays only himself. Requests of one user keep their order.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// Waiting requests, by user: by uid, or by what else names one.
#[derive(Debug)]
pub struct FairQueue<T, U = u32> {
    users: HashMap<U, UserTurn<T>>,
    /// Users who wait, by when it is their turn.
    order: BTreeSet<(u64, U)>,
    /// The start time of the request that was served last: new requests do not come before it. It counts the cost of answers.
    clock: u64,
}

#[derive(Debug)]
struct UserTurn<T> {
    waiting: VecDeque<T>,
    /// The time of the user's next turn.
    at: u64,
}

impl<T, U> Default for FairQueue<T, U> {
    fn default() -> FairQueue<T, U> {
        FairQueue {
            users: HashMap::new(),
            order: BTreeSet::new(),
            clock: 0,
        }
    }
}

impl<T, U: Clone + Ord + Hash> FairQueue<T, U> {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The waiting items, with their users.
    pub fn waiting(&self) -> impl Iterator<Item = (&U, &T)> {
        let of = |uid| self.users.get(uid).map(|user| (uid, user));
        let users = self.order.iter().filter_map(move |(_, uid)| of(uid));
        users.flat_map(|(uid, user)| user.waiting.iter().map(move |question| (uid, question)))
    }

    /// A user asks.
    pub fn push(&mut self, uid: U, question: T) {
        let user = self.users.entry(uid.clone()).or_insert(UserTurn {
            waiting: VecDeque::new(),
            at: self.clock,
        });
        if user.waiting.is_empty() {
            // Nobody saves up turns by being silent.
            user.at = user.at.max(self.clock);
            self.order.insert((user.at, uid));
        }
        user.waiting.push_back(question);
    }

    /// The question whose turn it is. [`FairQueue::charge`] follows when it is answered.
    pub fn pop(&mut self) -> Option<(U, T)> {
        self.pop_of(|_| true)
    }

    /// As above, for users who may have a turn now; the others keep theirs.
    pub fn pop_of(&mut self, may: impl Fn(&U) -> bool) -> Option<(U, T)> {
        self.pop_where(|uid, _| may(uid))
    }

    /// As above, for users whose next question may be answered now.
    pub fn pop_where(&mut self, may: impl Fn(&U, &T) -> bool) -> Option<(U, T)> {
        let users = &self.users;
        let may = |uid: &U| {
            let next = users.get(uid).and_then(|user| user.waiting.front());
            next.is_some_and(|next| may(uid, next))
        };
        let next = self.order.iter().find(|(_, uid)| may(uid))?.clone();
        self.order.remove(&next);
        let (at, uid) = next;
        self.clock = self.clock.max(at);
        let user = self.users.get_mut(&uid)?;
        let question = user.waiting.pop_front()?;
        if !user.waiting.is_empty() {
            self.order.insert((at, uid.clone()));
        }
        Some((uid, question))
    }

    /// The rest of a question that was popped and answered in part: it is the user's next.
    pub fn put_back(&mut self, uid: U, rest: T) {
        let user = self.users.entry(uid.clone()).or_insert(UserTurn {
            waiting: VecDeque::new(),
            at: self.clock,
        });
        if user.waiting.is_empty() {
            self.order.insert((user.at, uid));
        }
        user.waiting.push_front(rest);
    }

    /// Takes out all equal requests, of all users: one answer serves them.
    pub fn take_all(&mut self, same: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        let order = &mut self.order;
        for (uid, user) in &mut self.users {
            if !user.waiting.iter().any(&same) {
                continue;
            }
            for question in std::mem::take(&mut user.waiting) {
                match same(&question) {
                    true => taken.push(question),
                    false => user.waiting.push_back(question),
                }
            }
            if user.waiting.is_empty() {
                order.remove(&(user.at, uid.clone()));
            }
        }
        taken
    }

    /// Charges a user with the cost of an answer.
    pub fn charge(&mut self, uid: U, cost: u64) {
        if self.order.is_empty() {
            // There is nobody to whom it would matter.
            self.users.clear();
            return;
        }
        if let Some(user) = self.users.get_mut(&uid) {
            let waits = self.order.remove(&(user.at, uid.clone()));
            user.at = user.at.saturating_add(cost);
            if waits {
                self.order.insert((user.at, uid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Serves `count` questions; returns their users.
    fn serve(queue: &mut FairQueue<u64>, count: usize) -> Vec<u32> {
        let mut served = Vec::new();
        while served.len() < count
            && let Some((uid, cost)) = queue.pop()
        {
            queue.charge(uid, cost);
            served.push(uid);
        }
        served
    }

    #[test]
    fn a_flood_delays_the_one_whom_it_comes_from() {
        let mut queue = FairQueue::default();
        (0..10_000).for_each(|_| queue.push(1, 100));
        assert_eq!(serve(&mut queue, 50), [1; 50]);
        // Others come with small questions, again and again: none of them waits for more than the answer that is being
        // written.
        for uid in 2..200 {
            queue.push(uid, 3);
            assert_eq!(serve(&mut queue, 1), [uid]);
        }
    }

    #[test]
    fn equal_costs_take_turns_and_dear_ones_wait_longer() {
        let mut queue = FairQueue::default();
        (0..100).for_each(|_| queue.push(1, 10));
        (0..100).for_each(|_| queue.push(2, 10));
        (0..100).for_each(|_| queue.push(3, 40));
        let served = serve(&mut queue, 90);
        let count = |uid| served.iter().filter(|u| **u == uid).count();
        assert_eq!((count(1), count(2), count(3)), (40, 40, 10));
    }

    #[test]
    fn nobody_saves_up_turns() {
        let mut queue = FairQueue::default();
        queue.push(2, 1);
        (0..100).for_each(|_| queue.push(1, 10));
        serve(&mut queue, 60);
        (0..100).for_each(|_| queue.push(2, 10));
        let served = serve(&mut queue, 20);
        let of_one = served.iter().filter(|uid| **uid == 1).count();
        assert!((9..=11).contains(&of_one), "{served:?}");
    }

    #[test]
    fn one_answer_does_for_all_who_ask_the_same() {
        let mut queue = FairQueue::default();
        for uid in 0..100 {
            queue.push(uid, 7);
            queue.push(uid, u64::from(uid) + 100);
        }
        let (first, cost) = queue.pop().unwrap();
        assert_eq!(
            (cost, queue.take_all(|other| *other == cost).len()),
            (7, 99)
        );
        queue.charge(first, cost);
        // The others' questions are still there, and in turn: who was served comes last.
        let served = serve(&mut queue, 1000);
        assert_eq!((served.len(), served.last()), (100, Some(&first)));
        assert!(queue.is_empty());
    }

    #[test]
    fn who_may_not_have_a_turn_keeps_it() {
        let mut queue = FairQueue::default();
        (0..3).for_each(|_| queue.push(1, 5));
        (0..3).for_each(|_| queue.push(2, 5));
        queue.push(3, 5);
        let others = |queue: &mut FairQueue<u64>| queue.pop_of(|uid| *uid != 1);
        let mut served = Vec::new();
        while let Some((uid, cost)) = others(&mut queue) {
            queue.charge(uid, cost);
            served.push(uid);
        }
        assert_eq!(served, [2, 3, 2, 2]);
        assert!(!queue.is_empty());
        queue.push(2, 5);
        assert_eq!(serve(&mut queue, 4), [1, 1, 1, 2]);
    }

    #[test]
    fn a_question_that_may_not_be_answered_yet_keeps_its_place() {
        let mut queue = FairQueue::default();
        for (uid, question) in [(1, 9), (1, 2), (2, 3), (3, 8)] {
            queue.push(uid, question);
        }
        let small = |queue: &mut FairQueue<u64>| queue.pop_where(|_, question| *question < 5);
        assert_eq!(small(&mut queue), Some((2, 3)));
        assert_eq!(small(&mut queue), None, "9 comes before 2");
        assert_eq!(queue.pop(), Some((1, 9)));
        assert_eq!(small(&mut queue), Some((1, 2)));
    }

    #[test]
    fn the_rest_of_a_question_comes_before_the_users_next() {
        let mut queue = FairQueue::default();
        queue.push(1, 20);
        queue.push(1, 7);
        queue.push(2, 7);
        let mut served = Vec::new();
        while let Some((uid, cost)) = queue.pop() {
            let part = cost.min(10);
            if cost > part {
                queue.put_back(uid, cost - part);
            }
            queue.charge(uid, part);
            served.push((uid, part));
        }
        assert_eq!(served, [(1, 10), (2, 7), (1, 10), (1, 7)]);
        assert!(queue.is_empty() && queue.users.is_empty());
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let mut queue = FairQueue::default();
        for uid in 0..1000 {
            queue.push(uid, 5);
            serve(&mut queue, 1);
        }
        assert!(queue.is_empty() && queue.users.is_empty());
    }

    proptest! {
        /// Whatever others ask: between a user's question and its answer, no other user gets more than a question's
        /// cost beyond his due.
        #[test]
        fn nobody_gets_ahead(costs in proptest::collection::vec((0u32..4, 1u64..50), 1..200)) {
            let mut queue = FairQueue::default();
            (0..200).for_each(|_| queue.push(9, 10));
            for (uid, cost) in &costs {
                queue.push(*uid, *cost);
            }
            let mut got: HashMap<u32, u64> = HashMap::new();
            let mut left = costs.len() + 200;
            while let Some((uid, cost)) = queue.pop() {
                queue.charge(uid, cost);
                left -= 1;
                *got.entry(uid).or_default() += cost;
                let waits = |uid: &u32| queue.users.get(uid).is_some_and(|u| !u.waiting.is_empty());
                let least = got.iter().filter(|(uid, _)| waits(uid)).map(|(_, got)| *got).min();
                let most = got.iter().filter(|(uid, _)| waits(uid)).map(|(_, got)| *got).max();
                if let (Some(least), Some(most)) = (least, most) {
                    prop_assert!(most - least <= 100, "{least} and {most}");
                }
            }
            prop_assert_eq!(left, 0);
        }
    }
}
