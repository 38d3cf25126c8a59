//! Users: their associations, levels, workload characterization keys, and the accounts that they coordinate.

use super::accounts::check_exists;
use super::{
    Records, check_limits_of_users, check_name, check_terms, edit_list, selects, set_terms,
};
use crate::event::AccountsChange;
use muster_model::account_limits::Scope;
use muster_model::accounts::{AssociationTerms, ROOT, User};
use muster_model::command::{ListEdit, TermsAsk, UsageAsk, WckeysAsk};
use muster_model::job::Job;
use muster_model::refusal::{Refusal, RefusalCode};

/// The request for users that are added or changed.
pub(super) struct UserEditRequest<'a> {
    /// The associations: those to add, or those to change, all if none is named.
    pub(super) accounts: &'a [String],
    /// Partitions of associations that hold in one only.
    pub(super) partitions: &'a [String],
    pub(super) default_account: &'a String,
    pub(super) admin_level: &'a str,
    pub(super) terms: &'a TermsAsk,
    pub(super) wckeys: &'a WckeysAsk,
}

/// The accounts that users are added to: those named, and the default account if there is one.
pub(super) fn added_to<'a>(
    accounts: &'a [String],
    default_account: &'a String,
) -> impl Iterator<Item = &'a String> + Clone {
    let all = accounts.iter().chain([default_account]);
    all.filter(|account| !account.is_empty())
}

/// The accounts of a user, of those that are named if any are.
pub(super) fn accounts_of<'a>(
    records: &'a Records<'a>,
    user: &str,
    named: &[String],
) -> impl Iterator<Item = &'a String> {
    let known = records.accounts.users.get(user);
    let all = known.into_iter().flat_map(|user| {
        let parts = user.partitions.keys();
        let parts = parts.filter(|account| !user.accounts.contains_key(*account));
        user.accounts.keys().chain(parts)
    });
    all.filter(|account| selects(named, account))
}

/// Adds users, and associations to those that are there.
pub(super) fn add(
    records: &Records<'_>,
    names: &[String],
    asked: &UserEditRequest<'_>,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_terms(records.accounts, asked.terms)?;
    let mut changes = Vec::new();
    for name in names {
        let added = add_user(records, name, asked)?;
        changes.extend(with_wckeys(records, name, added, asked.wckeys)?);
    }
    Ok(changes)
}

/// Changes users and those of their associations that are named.
pub(super) fn modify(
    records: &Records<'_>,
    names: &[String],
    asked: &UserEditRequest<'_>,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_limits_of_users(records.accounts, names, asked.terms)?;
    check_terms(records.accounts, asked.terms)?;
    let mut changes = Vec::new();
    for name in names {
        let mut user = user(records, name)?;
        set_wckeys(&mut user, asked.wckeys)?;
        let default_account = asked.default_account;
        if !default_account.is_empty() {
            if !user.is_in(default_account) {
                return Err(Refusal::new(
                    RefusalCode::InvalidAccount,
                    format!("user {name} is not in account {default_account}"),
                ));
            }
            user.default_account.clone_from(default_account);
        }
        if !asked.admin_level.is_empty() {
            user.admin_level = level_of(asked.admin_level)?;
        }
        for (account, partition, own) in user.associations_mut() {
            let named = asked.accounts.is_empty() || asked.accounts.iter().any(|a| a == account);
            let parts = asked.partitions;
            if named && (parts.is_empty() || parts.iter().any(|part| part == partition)) {
                set_terms(own, asked.terms)?;
            }
        }
        changes.push(AccountsChange::User(user));
    }
    Ok(changes)
}

/// Takes users out of accounts, all if none is named; those that are in none then are deleted.
pub(super) fn delete(
    records: &Records<'_>,
    names: &[String],
    accounts: &[String],
    partitions: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    let mut changes = Vec::new();
    for name in names {
        let mut user = user(records, name)?;
        let gone = |account: &str| accounts.is_empty() || accounts.iter().any(|a| a == account);
        refuse_active(records, |owner, account| owner == name && gone(account))?;
        for (account, parts) in &mut user.partitions {
            if selects(accounts, account) {
                parts.retain(|part, _| !selects(partitions, part));
            }
        }
        user.partitions.retain(|_, parts| !parts.is_empty());
        if partitions.is_empty() {
            user.accounts
                .retain(|account, _| !selects(accounts, account));
        }
        changes.push(if user.has_associations() {
            if !user.is_in(&user.default_account) {
                user.default_account.clear();
            }
            AccountsChange::User(user)
        } else {
            AccountsChange::UserGone(name.clone())
        });
    }
    Ok(changes)
}

/// Associations stay while jobs run in them, so that their use is booked.
pub(super) fn refuse_active(
    records: &Records<'_>,
    concerns: impl Fn(&str, &str) -> bool,
) -> Result<(), Refusal> {
    refuse_jobs(records, |job, user| {
        !job.nodes_held.is_empty() && concerns(user, job.spec.account_name())
    })
}

/// Refuses an edit while there are jobs that this is true of, given the owner's name in lower case.
fn refuse_jobs(
    records: &Records<'_>,
    concerns: impl Fn(&Job, &str) -> bool,
) -> Result<(), Refusal> {
    let mut lines = Vec::new();
    let jobs = records
        .own
        .into_iter()
        .flat_map(|state| state.jobs.values());
    for job in jobs {
        let (user, account) = (&job.spec.owner.user, job.spec.account_name());
        if lines.len() < ACTIVE_MAX && concerns(job, &user.to_lowercase()) {
            lines.push(format!("JobID {} of {user} in {account}", job.id));
        }
    }
    match lines.is_empty() {
        true => Ok(()),
        false => Err(Refusal::new(RefusalCode::JobsActive, lines.join(", "))),
    }
}

/// Jobs that one refusal names.
const ACTIVE_MAX: usize = 100;

/// Gives the one user named another name, which nobody has.
pub(super) fn rename(
    records: &Records<'_>,
    names: &[String],
    to: &str,
) -> Result<Vec<AccountsChange>, Refusal> {
    let [from] = names else {
        let text = "NewName= is for one user at a time";
        return Err(Refusal::new(RefusalCode::InvalidValue, text));
    };
    check_name(to)?;
    user(records, from)?;
    if records.accounts.users.contains_key(to) {
        return Ok(Vec::new());
    }
    // Jobs have the old name and go on to count under it, those that wait as well: the user could have as many again under the
    // new one, and they would be in the account of the next user who is given the old name.
    let own = from.to_lowercase();
    refuse_jobs(records, |job, user| !job.is_over() && user == own)?;
    Ok(vec![AccountsChange::UserRenamed {
        from: from.clone(),
        to: to.to_owned(),
    }])
}

/// Resets the use of all users in accounts and in those under them, and what counts towards the accounts' limits.
pub(super) fn reset_account_usage(records: &Records<'_>, names: &[String]) -> Vec<AccountsChange> {
    let all = &records.accounts;
    let below = |account: &str| {
        let mut above = all.upwards(account);
        above.any(|name| names.iter().any(|named| named == name))
    };
    let users = all.usage.keys().filter(|(account, _)| below(account));
    let users = users.map(|key| AccountsChange::UsageReset(Some(key.clone())));
    let scopes = all.tres_usage.keys().filter(|scope| match scope {
        Scope::Account(account) => below(account),
        Scope::Association(..)
        | Scope::PartitionAssociation(..)
        | Scope::Qos(_)
        | Scope::QosUser(..)
        | Scope::QosAccount(..) => false,
    });
    let scopes = scopes.cloned().map(AccountsChange::ScopeReset);
    users.chain(scopes).collect()
}

/// Users named, or all, have these workload characterization keys no more.
pub(super) fn delete_wckeys(
    records: &Records<'_>,
    names: &[String],
    keys: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    let ask = WckeysAsk {
        default: None,
        keys: Some(ListEdit {
            sign: Some('-'),
            names: keys.to_vec(),
        }),
    };
    let all = records.accounts.users.values();
    let named = all.filter(|user| selects(names, &user.name));
    let changed = named.filter(|user| user.wckeys.iter().any(|key| keys.contains(key)));
    let changes = changed.map(|user| {
        let mut user = user.clone();
        set_wckeys(&mut user, &ask)?;
        Ok(AccountsChange::User(user))
    });
    changes.collect()
}

/// Resets the use of users in accounts; of all accounts if none is named.
pub(super) fn reset_usage(
    records: &Records<'_>,
    names: &[String],
    accounts: &[String],
) -> Vec<AccountsChange> {
    let mut changes = Vec::new();
    for name in names {
        for key in records.accounts.usage.keys() {
            if key.1 == *name && selects(accounts, &key.0) {
                changes.push(AccountsChange::UsageReset(Some(key.clone())));
            }
        }
    }
    changes
}

/// Sets the use of associations that are there.
pub(super) fn set_usage(
    records: &Records<'_>,
    all: &[UsageAsk],
) -> Result<Vec<AccountsChange>, Refusal> {
    let changes = all.iter().map(|ask| {
        let UsageAsk { account, user, raw } = ask.clone();
        check_exists(records, &account)?;
        let is_root = user == ROOT && account == ROOT;
        if !is_root && !records.accounts.has_association(&account, &user) {
            return Err(Refusal::new(
                RefusalCode::InvalidAccount,
                format!("user {user} is not in account {account}"),
            ));
        }
        Ok(AccountsChange::UsageSet { account, user, raw })
    });
    changes.collect()
}

/// Makes users coordinators of accounts; those that are already stay it.
pub(super) fn add_coordinators(
    records: &Records<'_>,
    names: &[String],
    accounts: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    for account in accounts {
        check_exists(records, account)?;
    }
    let mut changes = Vec::new();
    for name in names {
        let mut user = user(records, name)?;
        edit_list(&mut user.coordinates, Some('+'), accounts);
        user.coordinates.sort_unstable();
        changes.push(AccountsChange::User(user));
    }
    Ok(changes)
}

/// Users named, or all, are coordinators of the accounts named, or of any, no more.
pub(super) fn delete_coordinators(
    records: &Records<'_>,
    names: &[String],
    accounts: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    for account in accounts {
        check_exists(records, account)?;
    }
    for name in names {
        user(records, name)?;
    }
    if names.is_empty() && accounts.is_empty() {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            "neither users nor accounts are named",
        ));
    }
    let named = |user: &&User| selects(names, &user.name);
    let gone = |account: &String| selects(accounts, account);
    let all = records.accounts.users.values().filter(named);
    let changed = all.filter(|user| user.coordinates.iter().any(gone));
    let changes = changed.map(|user| {
        let mut user = user.clone();
        user.coordinates.retain(|account| !gone(account));
        AccountsChange::User(user)
    });
    Ok(changes.collect())
}

fn add_user(
    records: &Records<'_>,
    name: &str,
    asked: &UserEditRequest<'_>,
) -> Result<Option<AccountsChange>, Refusal> {
    let known = records.accounts.users.get(name);
    let mut user = known.cloned().unwrap_or_else(|| new_user(name));
    let mut new = known.is_none() && name != ROOT;
    for account in added_to(asked.accounts, asked.default_account) {
        check_exists(records, account)?;
        let mut own = AssociationTerms::default();
        set_terms(&mut own, asked.terms)?;
        for partition in asked.partitions {
            let parts = user.partitions.entry(account.clone()).or_default();
            if !parts.contains_key(partition) {
                check_name(partition)?;
                parts.insert(partition.clone(), own.clone());
                new = true;
            }
        }
        if asked.partitions.is_empty() && !user.accounts.contains_key(account) {
            user.accounts.insert(account.clone(), own);
            new = true;
        }
    }
    if !user.has_associations() {
        return Err(Refusal::new(
            RefusalCode::InvalidAccount,
            format!("user {name} needs an account; use Account="),
        ));
    }
    if !asked.default_account.is_empty() {
        user.default_account.clone_from(asked.default_account);
    } else if user.default_account.is_empty() {
        let first = asked
            .accounts
            .first()
            .or(user.accounts.keys().next())
            .or(user.partitions.keys().next())
            .cloned();
        user.default_account = first.unwrap_or_default();
    }
    if !asked.admin_level.is_empty() {
        user.admin_level = level_of(asked.admin_level)?;
    }
    Ok(new.then_some(AccountsChange::User(user)))
}

/// A user that is added, or is there, with these keys beside those that it has.
fn with_wckeys(
    records: &Records<'_>,
    name: &str,
    added: Option<AccountsChange>,
    ask: &WckeysAsk,
) -> Result<Option<AccountsChange>, Refusal> {
    let mut user = match (added, records.accounts.users.get(name)) {
        (Some(AccountsChange::User(user)), _) => user,
        (other, None) => return Ok(other),
        (_, Some(_)) if *ask == WckeysAsk::default() => return Ok(None),
        (_, Some(known)) => known.clone(),
    };
    let more = ask.keys.as_ref().map(|edit| ListEdit {
        sign: Some('+'),
        names: edit.names.clone(),
    });
    let ask = WckeysAsk {
        keys: more,
        ..ask.clone()
    };
    set_wckeys(&mut user, &ask)?;
    let same = records.accounts.users.get(name) == Some(&user);
    Ok((!same).then_some(AccountsChange::User(user)))
}

fn set_wckeys(user: &mut User, ask: &WckeysAsk) -> Result<(), Refusal> {
    let had_none = user.wckeys.is_empty();
    if let Some(ListEdit { sign, names: keys }) = &ask.keys {
        keys.iter().try_for_each(|key| check_name(key))?;
        edit_list(&mut user.wckeys, *sign, keys);
        // The first key that a user gets is its default one.
        let first = keys.first().filter(|_| had_none && *sign != Some('-'));
        if let (Some(first), None) = (first, &ask.default) {
            user.default_wckey.clone_from(first);
        }
    }
    if let Some(key) = &ask.default {
        user.default_wckey.clone_from(key);
        if !key.is_empty() && !user.wckeys.contains(key) {
            check_name(key)?;
            user.wckeys.push(key.clone());
        }
    }
    if !user.wckeys.contains(&user.default_wckey) {
        user.default_wckey.clear();
    }
    Ok(())
}

/// A user without associations. Root, who is in the account root before anybody adds anything, stays there.
fn new_user(name: &str) -> User {
    let mut user = User {
        name: name.to_owned(),
        admin_level: "None".to_owned(),
        ..User::default()
    };
    if name == ROOT {
        user.accounts
            .insert(ROOT.to_owned(), AssociationTerms::default());
        user.default_account = ROOT.to_owned();
    }
    user
}

/// The record of a user.
pub(super) fn user(records: &Records<'_>, name: &str) -> Result<User, Refusal> {
    let known = records.accounts.users.get(name).cloned();
    let root = || (name == ROOT).then(|| new_user(ROOT));
    known.or_else(root).ok_or_else(|| {
        Refusal::new(
            RefusalCode::InvalidValue,
            format!("there is no user {name} in accounting"),
        )
    })
}

fn level_of(text: &str) -> Result<String, Refusal> {
    let known = ["None", "Operator", "Administrator"];
    let lower = text.to_ascii_lowercase();
    let found = known
        .iter()
        .find(|k| k.to_ascii_lowercase().starts_with(&lower) && !lower.is_empty());
    found.map(|k| (*k).to_owned()).ok_or_else(|| {
        Refusal::new(
            RefusalCode::InvalidValue,
            format!("AdminLevel={text}: expected None, Operator or Administrator"),
        )
    })
}
