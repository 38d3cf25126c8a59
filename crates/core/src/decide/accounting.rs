//! What sacctmgr changes: accounts, users with their associations, and QOS. The commands say what shall be; here it is
//! checked against what there is.

mod rights;

use super::draft::Draft;
use super::submit::too_long;
use crate::account_limits::{LimitAsk, Limits};
use crate::accounts::{Account, AccountsChange, NORMAL, Qos, ROOT, Terms, User};
use crate::command::{AccountsAsk, AccountsEdit, Identity, Reply, TermsAsk, WckeysAsk};
use crate::event::Event;
use crate::limits::NAME_BYTES_MAX;
use crate::preemption::parse_mode;
use crate::refusal::{Refusal, RefusalCode};
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};

/// Carries an edit out, all of it or nothing.
pub(super) fn edit(
    draft: &mut Draft<'_>,
    identity: &Identity,
    edit: &AccountsEdit,
) -> Result<Option<Reply>, Refusal> {
    rights::check(draft.state, identity, edit)?;
    for name in &edit.names {
        check_name(name)?;
    }
    let mut changes = Vec::new();
    match &edit.ask {
        AccountsAsk::AddAccounts {
            parent,
            description,
            organization,
            terms,
        } => {
            let parent = if parent.is_empty() { ROOT } else { parent };
            known_account(draft.state, parent)?;
            check_terms(draft.state, terms)?;
            for name in edit.names.iter().filter(|n| !is_account(draft.state, n)) {
                let text = |text: &String| {
                    if text.is_empty() {
                        name.clone()
                    } else {
                        text.clone()
                    }
                };
                let mut account = Account {
                    name: name.clone(),
                    parent: parent.to_owned(),
                    description: text(description),
                    organization: text(organization),
                    terms: Terms::default(),
                };
                set_terms(&mut account.terms, terms);
                changes.push(AccountsChange::Account(account));
            }
        }
        AccountsAsk::ModifyAccounts {
            parent,
            description,
            organization,
            terms,
        } => {
            check_terms(draft.state, terms)?;
            for name in &edit.names {
                let mut account = account(draft.state, name)?;
                if !parent.is_empty() {
                    known_account(draft.state, parent)?;
                    not_below(draft.state, name, parent)?;
                    account.parent.clone_from(parent);
                }
                for (to, from) in [
                    (&mut account.description, description),
                    (&mut account.organization, organization),
                ] {
                    if !from.is_empty() {
                        to.clone_from(from);
                    }
                }
                set_terms(&mut account.terms, terms);
                changes.push(AccountsChange::Account(account));
            }
        }
        AccountsAsk::DeleteAccounts => {
            for name in &edit.names {
                account(draft.state, name)?;
                let gone = |n: &String| edit.names.contains(n);
                let all = &draft.state.accounts.accounts;
                if let Some(below) = all.values().find(|a| a.parent == *name && !gone(&a.name)) {
                    return Err(Refusal::new(
                        RefusalCode::InvalidAccount,
                        format!(
                            "account {} is under account {name}; delete it first",
                            below.name
                        ),
                    ));
                }
                changes.push(AccountsChange::AccountGone(name.clone()));
            }
        }
        AccountsAsk::AddUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
        } => {
            check_terms(draft.state, terms)?;
            for name in &edit.names {
                let added = add_user(
                    draft.state,
                    name,
                    accounts,
                    default_account,
                    admin_level,
                    terms,
                )?;
                changes.extend(with_wckeys(draft.state, name, added, wckeys)?);
            }
        }
        AccountsAsk::ModifyUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
        } => {
            check_terms(draft.state, terms)?;
            for name in &edit.names {
                let mut user = user(draft.state, name)?;
                set_wckeys(&mut user, wckeys)?;
                if !default_account.is_empty() {
                    if !user.accounts.contains_key(default_account) {
                        return Err(Refusal::new(
                            RefusalCode::InvalidAccount,
                            format!("user {name} is not in account {default_account}"),
                        ));
                    }
                    user.default_account.clone_from(default_account);
                }
                if !admin_level.is_empty() {
                    user.admin_level = level_of(admin_level)?;
                }
                for (account, own) in &mut user.accounts {
                    if accounts.is_empty() || accounts.contains(account) {
                        set_terms(own, terms);
                    }
                }
                changes.push(AccountsChange::User(user));
            }
        }
        AccountsAsk::DeleteUsers { accounts } => {
            for name in &edit.names {
                let mut user = user(draft.state, name)?;
                user.accounts
                    .retain(|a, _| !accounts.is_empty() && !accounts.contains(a));
                changes.push(if user.accounts.is_empty() {
                    AccountsChange::UserGone(name.clone())
                } else {
                    if !user.accounts.contains_key(&user.default_account) {
                        let first = user.accounts.keys().next().cloned();
                        user.default_account = first.unwrap_or_default();
                    }
                    AccountsChange::User(user)
                });
            }
        }
        AccountsAsk::AddCoordinators { accounts } => {
            changes.extend(add_coordinators(draft.state, &edit.names, accounts)?);
        }
        AccountsAsk::DeleteCoordinators { accounts } => {
            changes.extend(delete_coordinators(draft.state, &edit.names, accounts)?);
        }
        AccountsAsk::DeleteWckeys(keys) => {
            let named = |user: &&User| edit.names.is_empty() || edit.names.contains(&user.name);
            for user in draft.state.accounts.users.values().filter(named) {
                let mut user = user.clone();
                if user.wckeys.iter().any(|key| keys.contains(key)) {
                    let ask = WckeysAsk {
                        default: None,
                        keys: Some((Some('-'), keys.clone())),
                    };
                    set_wckeys(&mut user, &ask)?;
                    changes.push(AccountsChange::User(user));
                }
            }
        }
        AccountsAsk::AddQos(ask) => {
            for name in edit
                .names
                .iter()
                .filter(|n| !draft.state.accounts.qos.contains_key(*n))
            {
                let mut qos = Qos {
                    name: name.clone(),
                    description: name.clone(),
                    ..Qos::default()
                };
                set_qos(draft.state, &mut qos, ask, &edit.names)?;
                changes.push(AccountsChange::Qos(qos));
            }
        }
        AccountsAsk::ModifyQos(ask) => {
            for name in &edit.names {
                let mut qos = draft.state.accounts.qos(name).ok_or_else(|| no_qos(name))?;
                set_qos(draft.state, &mut qos, ask, &edit.names)?;
                changes.push(AccountsChange::Qos(qos));
            }
        }
        AccountsAsk::DeleteQos => {
            for name in &edit.names {
                if !draft.state.accounts.qos.contains_key(name) {
                    return Err(no_qos(name));
                }
                changes.push(AccountsChange::QosGone(name.clone()));
            }
        }
        AccountsAsk::ResetUsage { accounts } => {
            for name in &edit.names {
                for key in draft.state.accounts.usage.keys() {
                    if key.1 == *name && (accounts.is_empty() || accounts.contains(&key.0)) {
                        changes.push(AccountsChange::UsageReset(Some(key.clone())));
                    }
                }
            }
        }
    }
    no_circle(draft.state, &changes)?;
    let changed = u32::try_from(changes.len()).unwrap_or(u32::MAX);
    if !changes.is_empty() {
        let at = draft.now;
        draft.emit(Event::AccountsChanged { changes, at });
    }
    Ok(Some(Reply::Done {
        changed,
        refused: Vec::new(),
    }))
}

/// Makes users coordinators of accounts; those that are already stay it.
fn add_coordinators(
    state: &State,
    names: &[String],
    accounts: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    for account in accounts {
        known_account(state, account)?;
    }
    let mut changes = Vec::new();
    for name in names {
        let mut user = user(state, name)?;
        edit_list(&mut user.coordinates, Some('+'), accounts);
        user.coordinates.sort_unstable();
        changes.push(AccountsChange::User(user));
    }
    Ok(changes)
}

/// Users named, or all, are coordinators of the accounts named, or of any, no more.
fn delete_coordinators(
    state: &State,
    names: &[String],
    accounts: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    for account in accounts {
        known_account(state, account)?;
    }
    for name in names {
        user(state, name)?;
    }
    if names.is_empty() && accounts.is_empty() {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            "neither users nor accounts are named",
        ));
    }
    let named = |user: &&User| names.is_empty() || names.contains(&user.name);
    let gone = |account: &String| accounts.is_empty() || accounts.contains(account);
    let all = state.accounts.users.values().filter(named);
    let changed = all.filter(|user| user.coordinates.iter().any(gone));
    let changes = changed.map(|user| {
        let mut user = user.clone();
        user.coordinates.retain(|account| !gone(account));
        AccountsChange::User(user)
    });
    Ok(changes.collect())
}

/// Who may preempt whom has no circles: each would make room for the other for ever.
fn no_circle(state: &State, changes: &[AccountsChange]) -> Result<(), Refusal> {
    let mut lists: BTreeMap<&str, &[String]> = BTreeMap::new();
    for qos in state.accounts.qos.values() {
        lists.insert(&qos.name, &qos.preempt);
    }
    let mut changed = Vec::new();
    for change in changes {
        if let AccountsChange::Qos(qos) = change {
            lists.insert(&qos.name, &qos.preempt);
            changed.push(qos.name.as_str());
        }
    }
    for start in changed {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = vec![start];
        while let Some(name) = next.pop() {
            for below in lists.get(name).into_iter().flat_map(|list| list.iter()) {
                if below == start && name != start {
                    return Err(Refusal::new(
                        RefusalCode::InvalidQos,
                        format!(
                            "Preempt: {start} may preempt {name} or one that may, and {name} may preempt {start}"
                        ),
                    ));
                }
                if seen.insert(below) {
                    next.push(below);
                }
            }
        }
    }
    Ok(())
}

fn add_user(
    state: &State,
    name: &str,
    accounts: &[String],
    default_account: &str,
    admin_level: &str,
    terms: &TermsAsk,
) -> Result<Option<AccountsChange>, Refusal> {
    let known = state.accounts.users.get(name);
    let mut user = known.cloned().unwrap_or_else(|| new_user(name));
    let named = accounts
        .iter()
        .map(String::as_str)
        .chain(Some(default_account));
    let mut new = known.is_none();
    for account in named.filter(|a| !a.is_empty()) {
        known_account(state, account)?;
        if !user.accounts.contains_key(account) {
            let mut own = Terms::default();
            set_terms(&mut own, terms);
            user.accounts.insert(account.to_owned(), own);
            new = true;
        }
    }
    if user.accounts.is_empty() {
        return Err(Refusal::new(
            RefusalCode::InvalidAccount,
            format!("user {name} needs an account; use Account="),
        ));
    }
    if !default_account.is_empty() {
        user.default_account = default_account.to_owned();
    } else if user.default_account.is_empty() {
        let first = accounts.first().or(user.accounts.keys().next()).cloned();
        user.default_account = first.unwrap_or_default();
    }
    if !admin_level.is_empty() {
        user.admin_level = level_of(admin_level)?;
    }
    Ok(new.then_some(AccountsChange::User(user)))
}

/// A user that is added, or is there, with these keys beside those that it has.
fn with_wckeys(
    state: &State,
    name: &str,
    added: Option<AccountsChange>,
    ask: &WckeysAsk,
) -> Result<Option<AccountsChange>, Refusal> {
    let mut user = match (added, state.accounts.users.get(name)) {
        (Some(AccountsChange::User(user)), _) => user,
        (other, None) => return Ok(other),
        (_, Some(_)) if *ask == WckeysAsk::default() => return Ok(None),
        (_, Some(known)) => known.clone(),
    };
    let more = ask.keys.as_ref().map(|(_, keys)| (Some('+'), keys.clone()));
    let ask = WckeysAsk {
        keys: more,
        ..ask.clone()
    };
    set_wckeys(&mut user, &ask)?;
    let same = state.accounts.users.get(name) == Some(&user);
    Ok((!same).then_some(AccountsChange::User(user)))
}

fn set_wckeys(user: &mut User, ask: &WckeysAsk) -> Result<(), Refusal> {
    if let Some((sign, keys)) = &ask.keys {
        keys.iter().try_for_each(|key| check_name(key))?;
        edit_list(&mut user.wckeys, *sign, keys);
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
        user.accounts.insert(ROOT.to_owned(), Terms::default());
        user.default_account = ROOT.to_owned();
    }
    user
}

fn check_name(name: &str) -> Result<(), Refusal> {
    too_long("the name", name, NAME_BYTES_MAX)?;
    let bad = |c: char| c.is_whitespace() || c.is_control() || "=,".contains(c);
    if name.is_empty() || name.contains(bad) {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("'{name}' is no name: it has no blanks, commas or equal signs"),
        ));
    }
    Ok(())
}

fn is_account(state: &State, name: &str) -> bool {
    name == ROOT || state.accounts.accounts.contains_key(name)
}

fn known_account(state: &State, name: &str) -> Result<(), Refusal> {
    if is_account(state, name) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::InvalidAccount,
        format!("there is no account {name}; add it first"),
    ))
}

/// The record of an account; `root` has none until something is set for it.
fn account(state: &State, name: &str) -> Result<Account, Refusal> {
    known_account(state, name)?;
    state
        .accounts
        .accounts
        .get(name)
        .cloned()
        .ok_or_else(|| Refusal::new(RefusalCode::InvalidAccount, "account root stays as it is"))
}

/// An account cannot come under itself.
fn not_below(state: &State, name: &str, parent: &str) -> Result<(), Refusal> {
    let mut at = parent;
    for _ in 0..=state.accounts.accounts.len() {
        if at == name {
            return Err(Refusal::new(
                RefusalCode::InvalidAccount,
                format!("account {parent} is under account {name}"),
            ));
        }
        match state.accounts.accounts.get(at) {
            Some(account) => at = &account.parent,
            None => break,
        }
    }
    Ok(())
}

fn user(state: &State, name: &str) -> Result<User, Refusal> {
    state.accounts.users.get(name).cloned().ok_or_else(|| {
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

fn no_qos(name: &str) -> Refusal {
    Refusal::new(RefusalCode::InvalidQos, format!("there is no QOS {name}"))
}

fn check_terms(state: &State, ask: &TermsAsk) -> Result<(), Refusal> {
    let named = ask.qos.iter().flat_map(|(_, list)| list);
    for name in named.chain(ask.default_qos.iter().filter(|n| !n.is_empty())) {
        if state.accounts.qos(name).is_none() {
            return Err(no_qos(name));
        }
    }
    set_limits(&mut Limits::default(), &ask.limits, false)
}

/// Sets limits, one after another.
fn set_limits(limits: &mut Limits, asked: &[LimitAsk], qos: bool) -> Result<(), Refusal> {
    for ask in asked {
        let wrong = |why| Refusal::new(RefusalCode::InvalidValue, why);
        limits.set(ask, qos).map_err(wrong)?;
    }
    Ok(())
}

fn set_terms(terms: &mut Terms, ask: &TermsAsk) {
    if let Some(shares) = ask.shares {
        terms.shares = shares;
    }
    if let Some(priority) = ask.priority {
        terms.priority = priority;
    }
    if let Some(qos) = &ask.default_qos {
        terms.default_qos = Some(qos.clone()).filter(|q| !q.is_empty());
    }
    for limit in &ask.limits {
        // They were looked at before.
        let _ = terms.limits.set(limit, false);
    }
    if let Some((sign, names)) = &ask.qos {
        edit_list(terms.qos.get_or_insert_default(), *sign, names);
        if terms.qos.as_ref().is_some_and(Vec::is_empty) {
            terms.qos = None;
        }
    }
}

/// `=`, `+=` and `-=` of a list.
fn edit_list(list: &mut Vec<String>, sign: Option<char>, names: &[String]) {
    match sign {
        Some('-') => list.retain(|n| !names.contains(n)),
        Some(_) => {
            let new: Vec<String> = names
                .iter()
                .filter(|n| !list.contains(n))
                .cloned()
                .collect();
            list.extend(new);
        }
        None => *list = names.to_vec(),
    }
}

fn set_qos(
    state: &State,
    qos: &mut Qos,
    ask: &crate::command::QosAsk,
    new: &[String],
) -> Result<(), Refusal> {
    if let Some(text) = &ask.description {
        qos.description.clone_from(text);
    }
    if let Some(priority) = ask.priority {
        qos.priority = priority;
    }
    if let Some((sign, names)) = &ask.preempt {
        let known =
            |n: &String| n == NORMAL || new.contains(n) || state.accounts.qos.contains_key(n);
        if let Some(name) = names.iter().find(|n| !known(n)) {
            return Err(no_qos(name));
        }
        edit_list(&mut qos.preempt, *sign, names);
    }
    if let Some((sign, words)) = &ask.flags {
        let known = |word: &String| {
            let same = |flag: &&&str| flag.eq_ignore_ascii_case(word);
            Qos::FLAGS.iter().find(same).copied().ok_or_else(|| {
                let all = Qos::FLAGS.join(", ");
                let text = format!("Flags={word} is not kept here; {all} are");
                Refusal::new(RefusalCode::InvalidValue, text)
            })
        };
        let words = words.iter().filter(|word| *word != "-1");
        let flags: Vec<String> = words
            .map(|word| known(word).map(str::to_owned))
            .collect::<Result<_, _>>()?;
        edit_list(&mut qos.flags, *sign, &flags);
        qos.flags.sort_unstable();
    }
    if let Some(mode) = &ask.preempt_mode {
        let upper = mode.to_ascii_uppercase();
        qos.preempt_mode = match parse_mode(&upper) {
            Some((None, false)) => None,
            Some(_) => Some(upper),
            None => {
                return Err(Refusal::new(
                    RefusalCode::InvalidValue,
                    format!(
                        "PreemptMode={mode}: expected CLUSTER, OFF, CANCEL, REQUEUE or SUSPEND, and WITHIN"
                    ),
                ));
            }
        };
    }
    if let Some(seconds) = ask.preempt_exempt_s {
        qos.preempt_exempt_s = seconds;
    }
    if let Some(seconds) = ask.grace_time_s {
        qos.grace_time_s = seconds;
    }
    if let Some(factor) = ask.usage_factor_millionths {
        qos.usage_factor_millionths = Some(factor);
    }
    set_limits(&mut qos.limits, &ask.limits, true)
}
