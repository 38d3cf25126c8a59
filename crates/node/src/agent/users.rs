//! Groups of users, from the system's user database, which may be on other machines and slow. They are looked up before a
//! launch, so that no forked child has to, and on threads of their own, so that nobody but the user waits.

use super::{Agent, Event};
use nix::unistd::{Gid, getgrouplist};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::CString;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long an answer is used without asking again: a burst of jobs asks once, a change is seen soon.
const FRESH: Duration = Duration::from_secs(10);
/// How long it is used while the next one is on its way.
const USABLE: Duration = Duration::from_secs(300);
/// Look-ups that are under way at a time.
const LOOKUPS_MAX: usize = 32;
/// Stack of the thread of one; NSS modules may need some.
const STACK_BYTES: usize = 1 << 20;

/// A user's name and primary group.
pub(super) type User = (String, u32);
/// Looks up all groups of a user.
type LookUp = fn(&str, u32) -> Vec<u32>;

/// What is known, and what is being asked.
#[derive(Debug)]
pub(super) struct Users {
    known: HashMap<User, (Instant, Vec<u32>)>,
    asked: HashSet<User>,
    /// Are asked when a thread is free.
    waiting: VecDeque<User>,
    look_up: LookUp,
}

impl Default for Users {
    fn default() -> Users {
        Users {
            known: HashMap::new(),
            asked: HashSet::new(),
            waiting: VecDeque::new(),
            look_up,
        }
    }
}

/// All groups of a user, the primary one included. One who is not in the database has only that.
fn look_up(user: &str, gid: u32) -> Vec<u32> {
    let found = CString::new(user)
        .ok()
        .and_then(|name| getgrouplist(&name, Gid::from_raw(gid)).ok());
    found.map_or_else(
        || vec![gid],
        |all| all.into_iter().map(Gid::as_raw).collect(),
    )
}

impl Users {
    /// All groups of a user, if they are known; else [`Event::GroupsFound`] will tell.
    pub(super) fn groups(
        &mut self,
        user: &User,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Option<Vec<u32>> {
        let known = self.known.get(user);
        let age = known.map(|(at, _)| at.elapsed());
        let groups = known.map(|(_, groups)| groups.clone());
        if age.is_none_or(|age| age >= FRESH) {
            self.ask(user, events);
        }
        groups.filter(|_| age.is_some_and(|age| age < USABLE))
    }

    fn ask(&mut self, user: &User, events: &mpsc::UnboundedSender<Event>) {
        if self.asked.contains(user) || self.waiting.contains(user) {
            return;
        }
        if self.asked.len() >= LOOKUPS_MAX {
            self.waiting.push_back(user.clone());
            return;
        }
        let (look_up, asked, found) = (self.look_up, user.clone(), events.clone());
        let thread = std::thread::Builder::new().name("groups".to_owned());
        let started = thread.stack_size(STACK_BYTES).spawn(move || {
            let groups = look_up(&asked.0, asked.1);
            // The agent may have ended.
            let _ = found.send(Event::GroupsFound(asked, groups));
        });
        match started {
            Ok(_) => drop(self.asked.insert(user.clone())),
            Err(e) => log::error!("no thread to look up the groups of {}: {e}", user.0),
        }
    }

    fn found(&mut self, user: User, groups: Vec<u32>, events: &mpsc::UnboundedSender<Event>) {
        self.asked.remove(&user);
        self.known.retain(|_, (at, _)| at.elapsed() < USABLE);
        self.known.insert(user, (Instant::now(), groups));
        if let Some(next) = self.waiting.pop_front() {
            self.ask(&next, events);
        }
    }
}

impl Agent {
    /// The groups of a user are known: what waited for them goes on.
    pub(super) fn groups_found(&mut self, user: User, groups: Vec<u32>) {
        self.users.found(user.clone(), groups, &self.events);
        let is_of =
            |owner: &muster_core::spec::Owner| (&owner.user, owner.gid) == (&user.0, user.1);
        let runs: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.grant.as_ref().is_some_and(|g| is_of(&g.spec.owner)))
            .map(|(run, _)| run)
            .collect();
        for run in runs {
            self.begin_delayed(run);
            self.grant_came(run.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u32) -> User {
        (format!("u{number}"), number)
    }

    /// Of users with an odd number nothing is ever heard.
    fn slow_for_some(_: &str, gid: u32) -> Vec<u32> {
        if gid % 2 == 1 {
            loop {
                std::thread::park();
            }
        }
        vec![gid, 7]
    }

    #[test]
    fn a_user_whose_groups_do_not_come_delays_no_other() {
        let (events, mut inbox) = mpsc::unbounded_channel();
        let mut users = Users {
            look_up: slow_for_some,
            ..Users::default()
        };
        assert_eq!(users.groups(&user(1), &events), None);
        assert_eq!(users.groups(&user(2), &events), None);
        let Some(Event::GroupsFound(found, groups)) = inbox.blocking_recv() else {
            panic!("no groups")
        };
        users.found(found, groups, &events);
        assert_eq!(users.groups(&user(2), &events), Some(vec![2, 7]));
        assert_eq!(users.groups(&user(1), &events), None);
        assert_eq!(users.asked.len(), 1, "once");
    }

    #[test]
    fn an_answer_is_used_while_the_next_is_on_its_way() {
        let (events, _inbox) = mpsc::unbounded_channel();
        let mut users = Users {
            look_up: slow_for_some,
            ..Users::default()
        };
        let ago = |age| Instant::now().checked_sub(age).unwrap();
        users.known.insert(user(1), (ago(FRESH * 2), vec![1]));
        assert_eq!(users.groups(&user(1), &events), Some(vec![1]));
        assert!(users.asked.contains(&user(1)));
        users.known.insert(user(3), (ago(USABLE), vec![3]));
        assert_eq!(users.groups(&user(3), &events), None);
    }
}
