//! Whose question is answered next. Users take turns by the time that their answers took, so that whoever asks for much,
//! or often, waits for himself and not others for him (start-time fair queueing, Goyal et al., 1996). Questions of one
//! user keep their order. It answers nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// Questions that wait, by user.
pub(crate) struct Turns<T> {
    users: HashMap<u32, User<T>>,
    /// Users who wait, by when it is their turn.
    order: BTreeSet<(u64, u32)>,
    /// Whose turn it was last: who comes now does not come before that. It counts what answers cost.
    clock: u64,
}

struct User<T> {
    waiting: VecDeque<T>,
    /// When it is his turn.
    at: u64,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns {
            users: HashMap::new(),
            order: BTreeSet::new(),
            clock: 0,
        }
    }
}

impl<T> Turns<T> {
    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// A user asks.
    pub(crate) fn push(&mut self, uid: u32, question: T) {
        let user = self.users.entry(uid).or_insert(User {
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

    /// The question whose turn it is. [`Turns::charge`] follows when it is answered.
    pub(crate) fn next(&mut self) -> Option<(u32, T)> {
        let (at, uid) = self.order.pop_first()?;
        self.clock = at;
        let user = self.users.get_mut(&uid)?;
        let question = user.waiting.pop_front()?;
        if !user.waiting.is_empty() {
            self.order.insert((at, uid));
        }
        Some((uid, question))
    }

    /// Takes out all that wait for the same, whoever asks: one answer will do for them.
    pub(crate) fn take_all(&mut self, same: impl Fn(&T) -> bool) -> Vec<T> {
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
                order.remove(&(user.at, *uid));
            }
        }
        taken
    }

    /// What an answer to a user cost.
    pub(crate) fn charge(&mut self, uid: u32, cost: u64) {
        if self.order.is_empty() {
            // There is nobody to whom it would matter.
            self.users.clear();
            return;
        }
        if let Some(user) = self.users.get_mut(&uid) {
            let waits = self.order.remove(&(user.at, uid));
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

    /// Serves so many questions; whose they were.
    fn serve(turns: &mut Turns<u64>, count: usize) -> Vec<u32> {
        let mut served = Vec::new();
        while served.len() < count
            && let Some((uid, cost)) = turns.next()
        {
            turns.charge(uid, cost);
            served.push(uid);
        }
        served
    }

    #[test]
    fn a_flood_delays_the_one_whom_it_comes_from() {
        let mut turns = Turns::default();
        (0..10_000).for_each(|_| turns.push(1, 100));
        assert_eq!(serve(&mut turns, 50), [1; 50]);
        // Others come with small questions, again and again: none of them waits for more than the answer that is being
        // written.
        for uid in 2..200 {
            turns.push(uid, 3);
            assert_eq!(serve(&mut turns, 1), [uid]);
        }
    }

    #[test]
    fn equal_costs_take_turns_and_dear_ones_wait_longer() {
        let mut turns = Turns::default();
        (0..100).for_each(|_| turns.push(1, 10));
        (0..100).for_each(|_| turns.push(2, 10));
        (0..100).for_each(|_| turns.push(3, 40));
        let served = serve(&mut turns, 90);
        let count = |uid| served.iter().filter(|u| **u == uid).count();
        assert_eq!((count(1), count(2), count(3)), (40, 40, 10));
    }

    #[test]
    fn nobody_saves_up_turns() {
        let mut turns = Turns::default();
        turns.push(2, 1);
        (0..100).for_each(|_| turns.push(1, 10));
        serve(&mut turns, 60);
        (0..100).for_each(|_| turns.push(2, 10));
        let served = serve(&mut turns, 20);
        let of_one = served.iter().filter(|uid| **uid == 1).count();
        assert!((9..=11).contains(&of_one), "{served:?}");
    }

    #[test]
    fn one_answer_does_for_all_who_ask_the_same() {
        let mut turns = Turns::default();
        for uid in 0..100 {
            turns.push(uid, 7);
            turns.push(uid, u64::from(uid) + 100);
        }
        let (first, cost) = turns.next().unwrap();
        assert_eq!(
            (cost, turns.take_all(|other| *other == cost).len()),
            (7, 99)
        );
        turns.charge(first, cost);
        // The others' questions are still there, and in turn: who was served comes last.
        let served = serve(&mut turns, 1000);
        assert_eq!((served.len(), served.last()), (100, Some(&first)));
        assert!(turns.is_empty());
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let mut turns = Turns::default();
        for uid in 0..1000 {
            turns.push(uid, 5);
            serve(&mut turns, 1);
        }
        assert!(turns.is_empty() && turns.users.is_empty());
    }

    proptest! {
        /// Whatever others ask: between a user's question and its answer, no other user gets more than a question's
        /// cost beyond what is his due.
        #[test]
        fn nobody_gets_ahead(costs in proptest::collection::vec((0u32..4, 1u64..50), 1..200)) {
            let mut turns = Turns::default();
            (0..200).for_each(|_| turns.push(9, 10));
            for (uid, cost) in &costs {
                turns.push(*uid, *cost);
            }
            let mut got: HashMap<u32, u64> = HashMap::new();
            let mut left = costs.len() + 200;
            while let Some((uid, cost)) = turns.next() {
                turns.charge(uid, cost);
                left -= 1;
                *got.entry(uid).or_default() += cost;
                let waits = |uid: &u32| turns.users.get(uid).is_some_and(|u| !u.waiting.is_empty());
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
