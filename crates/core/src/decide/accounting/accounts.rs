//! Accounts: added, changed, deleted.

use super::{check_terms, parent_or_root, set_terms};
use crate::event::AccountsChange;
use crate::state::State;
use muster_model::accounts::{Account, ROOT, Terms};
use muster_model::command::TermsAsk;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::visible_text::visible;

/// Adds those that are not there. Texts, description and organization, are the name where they are empty.
pub(super) fn add(
    state: &State,
    names: &[String],
    parent: &str,
    texts: [&String; 2],
    terms: &TermsAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    let parent = parent_or_root(parent);
    check_exists(state, parent)?;
    check_terms(state, terms)?;
    let new = names.iter().filter(|name| !exists(state, name));
    let changes = new.map(|name| {
        let [description, organization] =
            texts.map(|text| if text.is_empty() { name } else { text });
        let [description, organization] =
            [description, organization].map(|text| visible(text).into_owned());
        let mut account = Account {
            name: name.clone(),
            parent: parent.to_owned(),
            description,
            organization,
            terms: Terms::default(),
        };
        set_terms(&mut account.terms, terms);
        AccountsChange::Account(account)
    });
    Ok(changes.collect())
}

/// Changes accounts; an empty parent or text stays as it is.
pub(super) fn modify(
    state: &State,
    names: &[String],
    parent: &str,
    [description, organization]: [&String; 2],
    terms: &TermsAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_terms(state, terms)?;
    let mut changes = Vec::new();
    for name in names {
        if name == ROOT && parent.is_empty() {
            let mut root = state.accounts.root.clone();
            set_terms(&mut root, terms);
            changes.push(AccountsChange::Root(root));
            continue;
        }
        let mut account = account(state, name)?;
        if !parent.is_empty() {
            check_exists(state, parent)?;
            check_not_below(state, name, parent)?;
            parent.clone_into(&mut account.parent);
        }
        for (to, from) in [
            (&mut account.description, description),
            (&mut account.organization, organization),
        ] {
            if !from.is_empty() {
                *to = visible(from).into_owned();
            }
        }
        set_terms(&mut account.terms, terms);
        changes.push(AccountsChange::Account(account));
    }
    Ok(changes)
}

/// Deletes accounts and all that are under them.
pub(super) fn delete(state: &State, names: &[String]) -> Result<Vec<AccountsChange>, Refusal> {
    for name in names {
        if name == ROOT {
            let text = "account root is there as long as the cluster";
            return Err(Refusal::new(RefusalCode::InvalidAccount, text));
        }
        account(state, name)?;
    }
    let all = state.accounts.accounts.keys();
    let is_below = |account: &&String| {
        let mut above = state.accounts.upwards(account);
        above.any(|account| names.iter().any(|name| name == account))
    };
    let gone: Vec<String> = all.filter(is_below).cloned().collect();
    let concerns = |account: &str| gone.iter().any(|name| name == account);
    super::users::refuse_active(state, |_, account| concerns(account))?;
    Ok(gone.into_iter().map(AccountsChange::AccountGone).collect())
}

fn exists(state: &State, name: &str) -> bool {
    name == ROOT || state.accounts.accounts.contains_key(name)
}

/// Refuses an account that is not there.
pub(super) fn check_exists(state: &State, name: &str) -> Result<(), Refusal> {
    if exists(state, name) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::InvalidAccount,
        format!("there is no account {name}; add it first"),
    ))
}

/// The record of an account; `root` has none.
fn account(state: &State, name: &str) -> Result<Account, Refusal> {
    check_exists(state, name)?;
    state
        .accounts
        .accounts
        .get(name)
        .cloned()
        .ok_or_else(|| Refusal::new(RefusalCode::InvalidAccount, "account root stays as it is"))
}

/// An account cannot come under itself.
fn check_not_below(state: &State, name: &str, parent: &str) -> Result<(), Refusal> {
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
