//! What sacctmgr changes: accounts, users with their associations, and QOS. The commands say what shall be; here it is
//! checked against what there is.

mod accounts;
mod qos;
mod rights;
mod users;

use super::draft::Draft;
use super::submit::too_long;
use crate::event::{AccountsChange, Event};
use crate::state::State;
use muster_model::account_limits::{LimitAsk, Limits};
use muster_model::accounts::{ROOT, Terms};
use muster_model::command::{AccountsAsk, AccountsEdit, Identity, Reply, TermsAsk};
use muster_model::limits::NAME_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};

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
    let changes = changes(draft.state, edit)?;
    qos::check_no_circle(draft.state, &changes)?;
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

/// The changes of an edit.
fn changes(state: &State, edit: &AccountsEdit) -> Result<Vec<AccountsChange>, Refusal> {
    let names = &edit.names;
    match &edit.ask {
        AccountsAsk::AddAccounts {
            parent,
            description,
            organization,
            terms,
        } => accounts::add(state, names, parent, [description, organization], terms),
        AccountsAsk::ModifyAccounts {
            parent,
            description,
            organization,
            terms,
        } => accounts::modify(state, names, parent, [description, organization], terms),
        AccountsAsk::DeleteAccounts => accounts::delete(state, names),
        AccountsAsk::AddUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
        } => {
            let asked = users::Asked {
                accounts,
                default_account,
                admin_level,
                terms,
                wckeys,
            };
            users::add(state, names, &asked)
        }
        AccountsAsk::ModifyUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
        } => {
            let asked = users::Asked {
                accounts,
                default_account,
                admin_level,
                terms,
                wckeys,
            };
            users::modify(state, names, &asked)
        }
        AccountsAsk::DeleteUsers { accounts } => users::delete(state, names, accounts),
        AccountsAsk::AddCoordinators { accounts } => {
            users::add_coordinators(state, names, accounts)
        }
        AccountsAsk::DeleteCoordinators { accounts } => {
            users::delete_coordinators(state, names, accounts)
        }
        AccountsAsk::DeleteWckeys(keys) => users::delete_wckeys(state, names, keys),
        AccountsAsk::AddQos(ask) => qos::add(state, names, ask),
        AccountsAsk::ModifyQos(ask) => qos::modify(state, names, ask),
        AccountsAsk::DeleteQos => qos::delete(state, names),
        AccountsAsk::ResetUsage { accounts } => Ok(users::reset_usage(state, names, accounts)),
    }
}

/// Whether a list of names selects this one: an empty list selects all.
fn selects(list: &[String], name: &String) -> bool {
    list.is_empty() || list.contains(name)
}

/// The parent that an account is to get.
fn parent_or_root(parent: &str) -> &str {
    if parent.is_empty() { ROOT } else { parent }
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

fn check_terms(state: &State, ask: &TermsAsk) -> Result<(), Refusal> {
    let named = ask.qos.iter().flat_map(|(_, list)| list);
    for name in named.chain(ask.default_qos.iter().filter(|n| !n.is_empty())) {
        if state.accounts.qos(name).is_none() {
            return Err(qos::not_found(name));
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
