//! Accounts: added, changed, deleted.

use super::{Records, check_terms, parent_or_root, set_root_terms, set_terms};
use crate::event::AccountsChange;
use muster_model::accounts::{Account, AssociationTerms, ROOT};
use muster_model::command::TermsAsk;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::visible_text::visible;
use std::collections::BTreeMap;

/// Adds those that are not there. Texts, description and organization, are the name where they are empty.
pub(super) fn add(
    records: &Records<'_>,
    names: &[String],
    parent: &str,
    texts: [&String; 2],
    terms: &TermsAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    let parent = parent_or_root(parent);
    check_exists(records, parent)?;
    check_terms(records.accounts, terms)?;
    let new = names.iter().filter(|name| !exists(records, name));
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
            terms: AssociationTerms::default(),
        };
        set_terms(&mut account.terms, terms)?;
        Ok(AccountsChange::Account(account))
    });
    changes.collect()
}

/// Changes accounts; an empty parent or text stays as it is.
pub(super) fn modify(
    records: &Records<'_>,
    names: &[String],
    parent: &str,
    [description, organization]: [&String; 2],
    terms: &TermsAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_terms(records.accounts, terms)?;
    let mut changes = Vec::new();
    // Accounts as the changes before have left them.
    let mut moved: BTreeMap<String, Account> = BTreeMap::new();
    for name in names {
        if name == ROOT && parent.is_empty() {
            let mut root = records.accounts.root.clone();
            set_root_terms(&mut root, terms)?;
            changes.push(AccountsChange::Root(root));
            continue;
        }
        let known = moved.get(name).cloned();
        let mut account = known.map_or_else(|| account(records, name), Ok)?;
        if !parent.is_empty() {
            check_exists(records, parent)?;
            if let Some(above) = taking_place(records, &moved, &account, parent)? {
                moved.insert(above.name.clone(), above.clone());
                changes.push(AccountsChange::Account(above));
            }
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
        set_terms(&mut account.terms, terms)?;
        moved.insert(name.clone(), account.clone());
        changes.push(AccountsChange::Account(account));
    }
    Ok(changes)
}

/// Deletes accounts and all that are under them.
pub(super) fn delete(
    records: &Records<'_>,
    names: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    for name in names {
        if name == ROOT {
            let text = "account root is there as long as the cluster";
            return Err(Refusal::new(RefusalCode::InvalidAccount, text));
        }
        account(records, name)?;
    }
    let all = records.accounts.accounts.keys();
    let is_below = |account: &&String| {
        let mut above = records.accounts.upwards(account);
        above.any(|account| names.iter().any(|name| name == account))
    };
    let gone: Vec<String> = all.filter(is_below).cloned().collect();
    let concerns = |account: &str| gone.iter().any(|name| name == account);
    super::users::refuse_active(records, |_, account| concerns(account))?;
    Ok(gone.into_iter().map(AccountsChange::AccountGone).collect())
}

fn exists(records: &Records<'_>, name: &str) -> bool {
    name == ROOT || records.accounts.accounts.contains_key(name)
}

/// Refuses an account that is not there.
pub(super) fn check_exists(records: &Records<'_>, name: &str) -> Result<(), Refusal> {
    if exists(records, name) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::InvalidAccount,
        format!("there is no account {name}; add it first"),
    ))
}

/// The record of an account; `root` has none.
fn account(records: &Records<'_>, name: &str) -> Result<Account, Refusal> {
    check_exists(records, name)?;
    records
        .accounts
        .accounts
        .get(name)
        .cloned()
        .ok_or_else(|| Refusal::new(RefusalCode::InvalidAccount, "account root stays as it is"))
}

/// The new parent of an account, if it is below the account now: it takes the account's place in the tree, as Slurm has
/// it, before the account comes under it.
fn taking_place(
    records: &Records<'_>,
    moved: &BTreeMap<String, Account>,
    account: &Account,
    parent: &str,
) -> Result<Option<Account>, Refusal> {
    let name = &account.name;
    if name == parent {
        return Err(Refusal::new(
            RefusalCode::InvalidAccount,
            format!("account {name} cannot be under itself"),
        ));
    }
    let find = |name: &str| {
        let kept = || records.accounts.accounts.get(name);
        moved.get(name).or_else(kept)
    };
    let mut at = parent;
    for _ in 0..=records.accounts.accounts.len() {
        if at == name {
            return Ok(find(parent).map(|above| Account {
                parent: account.parent.clone(),
                ..above.clone()
            }));
        }
        match find(at) {
            Some(account) => at = &account.parent,
            None => break,
        }
    }
    Ok(None)
}
