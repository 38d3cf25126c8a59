//! Under which names of users use is kept that counts towards limits and shares: as accounting keeps the names, whatever letters a
//! host has them in, and under the new name once a user has another.

use crate::state::State;
use muster_model::account_limits::Scope;
use muster_model::accounts::{Accounts, UserUsage};
use std::collections::btree_map::Entry;

/// The name of a user as accounting keeps it; as it is written where it keeps none.
pub(crate) fn kept_name<'n>(accounts: &'n Accounts, user: &'n str) -> &'n str {
    accounts.user(user).map_or(user, |known| &known.name)
}

/// Moves what counts towards limits to the names that accounting keeps: a user may have run jobs before it had a record.
pub(crate) fn fold_names(state: &mut State) {
    move_limit_use(state, |accounts, name| {
        let kept = kept_name(accounts, name);
        (kept != name).then(|| kept.to_owned())
    });
}

/// Moves all that a user has used to its new name, beside the use under that name. Call it while the record has the old one.
pub(crate) fn rename_use(state: &mut State, from: &str, to: &str) {
    move_limit_use(state, |accounts, name| {
        (kept_name(accounts, name) == from).then(|| to.to_owned())
    });
    let half_life_s = state.half_life_s();
    let all = &state.accounts;
    let own = |(_, user): &&(String, String)| kept_name(all, user) == from;
    let keys: Vec<(String, String)> = all.usage.keys().filter(own).cloned().collect();
    for key in keys {
        let Some(moved) = state.accounts.usage.remove(&key) else {
            continue;
        };
        match state.accounts.usage.entry((key.0, to.to_owned())) {
            Entry::Vacant(place) => drop(place.insert(moved)),
            Entry::Occupied(mut place) => {
                let own = *place.get();
                let at = own.at.max(moved.at);
                let (own, moved) = (own.at(at, half_life_s), moved.at(at, half_life_s));
                place.insert(UserUsage {
                    raw: own.raw + moved.raw,
                    rate_milli: own.rate_milli.saturating_add(moved.rate_milli),
                    ..own
                });
            }
        }
    }
}

/// Moves what counts towards limits of users to other names, where `new_name` gives one.
fn move_limit_use(state: &mut State, new_name: impl Fn(&Accounts, &str) -> Option<String>) {
    let all = &state.accounts;
    let moves = all.tres_usage.keys().filter_map(|scope| {
        let to = new_name(all, scope.user()?)?;
        Some((scope.clone(), scope.clone().with_user(&to)))
    });
    let moves: Vec<(Scope, Scope)> = moves.collect();
    for (from, to) in moves {
        let half_life_s = state.limits_half_life_s(&to);
        let Some(moved) = state.accounts.tres_usage.remove(&from) else {
            continue;
        };
        match state.accounts.tres_usage.entry(to) {
            Entry::Vacant(place) => drop(place.insert(moved)),
            Entry::Occupied(mut place) => place.get_mut().add(moved, half_life_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::account_limits::TresUsage;
    use muster_model::accounts::User;
    use muster_model::ids::JobId;
    use muster_model::job::Job;
    use muster_model::spec::{JobSpec, Owner};
    use muster_model::time::{TimeLimit, Timestamp};
    use std::sync::Arc;

    fn used(at: i64, cpu: f64, rate: u64) -> TresUsage {
        TresUsage {
            at: Timestamp(at),
            raw: [("cpu".to_owned(), cpu)].into(),
            rate: [("cpu".to_owned(), rate)].into(),
            ..TresUsage::default()
        }
    }

    fn known(name: &str) -> State {
        let mut state = State::default();
        let mut user = User {
            name: name.to_owned(),
            ..User::default()
        };
        user.accounts.insert("a".to_owned(), Default::default());
        state.accounts.users.insert(name.to_owned(), user);
        state
    }

    /// A user whose host has a capital in the name had the use of that name and of the one that is kept.
    #[test]
    fn use_is_kept_under_the_name_that_accounting_has() {
        let mut state = known("alice");
        let own = |name: &str| Scope::Association("a".to_owned(), name.to_owned());
        let all = &mut state.accounts.tres_usage;
        all.insert(own("Alice"), used(0, 5.0, 2));
        all.insert(own("alice"), used(10_000, 7.0, 0));
        all.insert(own("Bob"), used(0, 1.0, 0));
        fold_names(&mut state);
        let all = &state.accounts.tres_usage;
        assert_eq!(all.len(), 2);
        assert_eq!(all[&own("alice")], used(10_000, 32.0, 2));
        let owner = Owner {
            user: "Alice".to_owned(),
            ..Owner::default()
        };
        let spec = JobSpec {
            owner,
            account: Some("a".to_owned()),
            ..JobSpec::default()
        };
        let at = Timestamp(0);
        let job = Job::new(JobId(1), Arc::new(spec), TimeLimit::Unlimited, at);
        let scopes = state.scopes_of(&job, "p");
        assert!(scopes.contains(&own("alice")), "{scopes:?}");
        assert!(scopes.iter().all(|scope| scope.user() != Some("Alice")));
    }

    /// Use by the earlier user of the new name was added as if it were new.
    #[test]
    fn use_of_both_names_is_as_of_one_time() {
        let mut state = known("old");
        let life = state.half_life_s();
        let key = |user: &str| ("a".to_owned(), user.to_owned());
        let usage = |at, raw| UserUsage {
            raw,
            at,
            rate_milli: 0,
        };
        let later = Timestamp(0).plus_s(life);
        let all = &mut state.accounts.usage;
        all.insert(key("old"), usage(later, 100.0));
        all.insert(key("new"), usage(Timestamp(0), 100.0));
        rename_use(&mut state, "old", "new");
        assert!(!state.accounts.usage.contains_key(&key("old")));
        assert_eq!(state.accounts.usage[&key("new")], usage(later, 150.0));
    }
}
