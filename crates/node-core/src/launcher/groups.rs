//! Groups of users, from the system's user database, which may be on other machines and slow. The groups of a user
//! are looked up before a launch, and only jobs of that user wait. This module decides when to look up; a separate
//! process does it.

use super::actions::Actions;
use super::interface::{Action, Timer, UserAccount};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

/// Time that an answer is used without asking again: a burst of jobs asks once, a change is seen soon.
const FRESH_MS: u64 = 10_000;
/// Time that it is used while the next one is on its way.
const USABLE_MS: u64 = 300_000;
/// Look-ups that are under way at a time.
const LOOKUPS_MAX: usize = 32;
/// Time limit of one before it is killed and begun anew.
const LOOKUP_WAIT_MS: u64 = 120_000;

/// Known groups, and look-ups under way.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// With the time of the answer.
    known: HashMap<UserAccount, (u64, Rc<[u32]>)>,
    asked: BTreeSet<UserAccount>,
    /// Are asked when there is room.
    waiting: VecDeque<UserAccount>,
}

impl Groups {
    /// All groups of a user, if they are known; else a look-up will give them.
    pub(super) fn get(
        &mut self,
        account: &UserAccount,
        now_ms: u64,
        actions: &mut Actions,
    ) -> Option<Rc<[u32]>> {
        let known = self.known.get(account);
        let age = known.map(|(at, _)| now_ms.saturating_sub(*at));
        let groups = known.map(|(_, groups)| Rc::clone(groups));
        if age.is_none_or(|age| age >= FRESH_MS) {
            self.ask(account.clone(), now_ms, actions);
        }
        groups.filter(|_| age.is_some_and(|age| age < USABLE_MS))
    }

    fn ask(&mut self, account: UserAccount, now_ms: u64, actions: &mut Actions) {
        if self.asked.contains(&account) || self.waiting.contains(&account) {
            return;
        }
        if self.asked.len() >= LOOKUPS_MAX {
            return self.waiting.push_back(account);
        }
        let timer = Timer::LookUp(account.clone());
        actions.push(Action::SetTimer(timer, now_ms + LOOKUP_WAIT_MS));
        actions.push(Action::LookUpGroups(account.clone()));
        self.asked.insert(account);
    }

    fn ask_next(&mut self, now_ms: u64, actions: &mut Actions) {
        if let Some(next) = self.waiting.pop_front() {
            self.ask(next, now_ms, actions);
        }
    }

    /// Takes an answer; whether one was expected.
    pub(super) fn found(
        &mut self,
        account: &UserAccount,
        groups: Vec<u32>,
        now_ms: u64,
        actions: &mut Actions,
    ) -> bool {
        if !self.asked.remove(account) {
            return false;
        }
        actions.push(Action::StopTimer(Timer::LookUp(account.clone())));
        let is_usable = |at: u64| now_ms.saturating_sub(at) < USABLE_MS;
        self.known.retain(|_, (at, _)| is_usable(*at));
        self.known.insert(account.clone(), (now_ms, groups.into()));
        self.ask_next(now_ms, actions);
        true
    }

    /// Repeats a look-up that has taken too long, after those that wait.
    pub(super) fn repeat_late(&mut self, account: UserAccount, now_ms: u64, actions: &mut Actions) {
        if !self.asked.remove(&account) {
            return;
        }
        let user = &account.name;
        let line = format!("looking up the groups of {user} takes too long");
        actions.push(Action::Log(line));
        actions.push(Action::StopLookUp(account.clone()));
        self.waiting.push_back(account);
        self.ask_next(now_ms, actions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(number: u32) -> UserAccount {
        UserAccount {
            name: format!("u{number}"),
            gid: number,
        }
    }

    fn asked(actions: &mut Actions) -> Vec<u32> {
        let all = actions.list.drain(..).filter_map(|action| match action {
            Action::LookUpGroups(account) => Some(account.gid),
            _ => None,
        });
        all.collect()
    }

    #[test]
    fn a_user_whose_groups_do_not_come_delays_no_other() {
        let (mut groups, mut actions) = (Groups::default(), Actions::default());
        assert_eq!(groups.get(&account(1), 0, &mut actions), None);
        assert_eq!(groups.get(&account(2), 0, &mut actions), None);
        assert_eq!(groups.get(&account(1), 0, &mut actions), None);
        assert_eq!(asked(&mut actions), [1, 2], "each once");
        assert!(groups.found(&account(2), vec![2, 7], 5, &mut actions));
        let found = groups.get(&account(2), 6, &mut actions);
        assert_eq!(found.as_deref(), Some(&[2, 7][..]));
        assert!(asked(&mut actions).is_empty());
        // One that takes too long is begun anew, and an answer of the first is none.
        groups.repeat_late(account(1), LOOKUP_WAIT_MS, &mut actions);
        assert!(
            actions
                .list
                .iter()
                .any(|a| matches!(a, Action::StopLookUp(_)))
        );
        assert_eq!(asked(&mut actions), [1]);
        groups.repeat_late(account(2), LOOKUP_WAIT_MS, &mut actions);
        assert!(asked(&mut actions).is_empty());
    }

    #[test]
    fn an_answer_is_used_while_the_next_is_on_its_way() {
        let (mut groups, mut actions) = (Groups::default(), Actions::default());
        groups.get(&account(1), 0, &mut actions);
        groups.found(&account(1), vec![1], 0, &mut actions);
        asked(&mut actions);
        assert!(groups.get(&account(1), FRESH_MS, &mut actions).is_some());
        assert_eq!(asked(&mut actions), [1]);
        assert!(groups.get(&account(1), USABLE_MS, &mut actions).is_none());
    }

    #[test]
    fn look_ups_beyond_a_number_wait_for_others() {
        let (mut groups, mut actions) = (Groups::default(), Actions::default());
        let number = u32::try_from(LOOKUPS_MAX).unwrap();
        for one in 0..=number {
            groups.get(&account(one), 0, &mut actions);
        }
        assert_eq!(asked(&mut actions).len(), LOOKUPS_MAX);
        groups.found(&account(3), vec![3], 1, &mut actions);
        assert_eq!(asked(&mut actions), [number]);
    }
}
