//! Names as accounting keeps them, and what its log says of an edit.

use crate::policy::access::audit;
use crate::state::State;
use muster_model::accounts::{Accounts, Transaction};
use muster_model::command::{AccountsAsk, AccountsEdit, Identity, QosAsk, TermsAsk, UserCommand};
use std::collections::HashSet;

/// The edit with all names of accounts, users and QOS as they are kept: in lower case, unless one of that very name is
/// there.
pub(super) fn folded(all: &Accounts, edit: &AccountsEdit) -> AccountsEdit {
    let account = |name: &mut String| *name = all.account_key(name);
    let user = |name: &mut String| *name = all.user_key(name);
    let qos = |name: &mut String| *name = all.qos_key(name);
    // Repeated names are taken once.
    let each = |list: &mut Vec<String>, fold: &dyn Fn(&mut String)| {
        list.iter_mut().for_each(fold);
        let mut named = HashSet::new();
        list.retain(|name| named.insert(name.clone()));
    };
    let of_terms = |terms: &mut TermsAsk| {
        terms.default_qos.iter_mut().for_each(qos);
        if let Some(edit) = &mut terms.qos {
            each(&mut edit.names, &qos);
        }
        each(&mut terms.qos_less, &qos);
    };
    let of_qos = |ask: &mut QosAsk| {
        if let Some(edit) = &mut ask.preempt {
            each(&mut edit.names, &qos);
        }
    };
    let mut edit = edit.clone();
    let names = &mut edit.names;
    match &mut edit.ask {
        AccountsAsk::AddAccounts { parent, terms, .. }
        | AccountsAsk::ModifyAccounts { parent, terms, .. } => {
            each(names, &account);
            account(parent);
            of_terms(terms);
        }
        AccountsAsk::DeleteAccounts | AccountsAsk::ResetAccountUsage => each(names, &account),
        AccountsAsk::AddUsers {
            accounts,
            default_account,
            terms,
            ..
        }
        | AccountsAsk::ModifyUsers {
            accounts,
            default_account,
            terms,
            ..
        } => {
            each(names, &user);
            each(accounts, &account);
            account(default_account);
            of_terms(terms);
        }
        AccountsAsk::DeleteUsers { accounts, .. }
        | AccountsAsk::ResetUsage { accounts }
        | AccountsAsk::AddCoordinators { accounts }
        | AccountsAsk::DeleteCoordinators { accounts } => {
            each(names, &user);
            each(accounts, &account);
        }
        AccountsAsk::DeleteWckeys(_) => each(names, &user),
        AccountsAsk::RenameUser { to } => {
            each(names, &user);
            user(to);
        }
        AccountsAsk::AddQos(ask) | AccountsAsk::ModifyQos(ask) => {
            each(names, &qos);
            of_qos(ask);
        }
        AccountsAsk::DeleteQos | AccountsAsk::ResetQosUsage => each(names, &qos),
        AccountsAsk::AddClusters(ask) | AccountsAsk::ModifyClusters(ask) => {
            each(names, &|name: &mut String| *name = name.to_lowercase());
            of_terms(&mut ask.terms);
        }
        AccountsAsk::NoteJobs(_)
        | AccountsAsk::RecordStorage(_)
        | AccountsAsk::ReserveJobIds(_) => {}
        AccountsAsk::SetUsage(all) => {
            for one in all {
                user(&mut one.user);
                account(&mut one.account);
            }
        }
        AccountsAsk::DeleteClusters => {
            each(names, &|name: &mut String| *name = name.to_lowercase())
        }
        AccountsAsk::SetResource(_)
        | AccountsAsk::DeleteResources
        | AccountsAsk::SetFederation(_)
        | AccountsAsk::DeleteFederations
        | AccountsAsk::SetFeatures(_) => {}
    }
    // Repeated names are taken once.
    let mut named = HashSet::new();
    edit.names.retain(|name| named.insert(name.clone()));
    edit
}

/// The line of the log for an edit.
pub(super) fn transaction(state: &State, identity: &Identity, edit: &AccountsEdit) -> Transaction {
    let command = UserCommand::EditAccounts(Box::new(edit.clone()));
    let subject = audit::subject(state, &command);
    let info = subject.split_once(' ').map_or("", |(_, info)| info);
    let words = ["add", "modify", "delete"];
    let info = info.trim_start();
    let first = info.split(' ').next().unwrap_or("");
    let info = match words.contains(&first) {
        true => info[first.len()..].trim_start(),
        false => info,
    };
    let (users, accounts) = concerned(edit);
    Transaction {
        actor: identity.user.clone(),
        action: action(state, edit).to_owned(),
        target: shortened(edit.names.join(",")),
        info: shortened(info.to_owned()),
        users: named(users),
        accounts: named(accounts),
    }
}

/// Bytes of each text of the log.
const LOGGED_BYTES_MAX: usize = 1024;

/// Users and accounts that a line of the log names.
const NAMED_MAX: usize = 64;

fn named(mut names: Vec<String>) -> Vec<String> {
    names.truncate(NAMED_MAX);
    names
}

/// A text as the log keeps it: its beginning, if it is long.
fn shortened(mut text: String) -> String {
    if text.len() > LOGGED_BYTES_MAX {
        let end = (0..=LOGGED_BYTES_MAX).rfind(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

/// The name of the edit in sacctmgr.
fn action(state: &State, edit: &AccountsEdit) -> &'static str {
    let is_known = |name: &String| state.accounts.users.contains_key(name);
    match &edit.ask {
        AccountsAsk::AddUsers { accounts, .. } if edit.names.iter().all(is_known) => {
            if accounts.is_empty() {
                "Add WCKeys"
            } else {
                "Add Associations"
            }
        }
        AccountsAsk::ModifyAccounts {
            description,
            organization,
            ..
        } if description.is_empty() && organization.is_empty() => "Modify Associations",
        AccountsAsk::ModifyUsers { terms, .. } if *terms != TermsAsk::default() => {
            "Modify Associations"
        }
        AccountsAsk::AddAccounts { .. } => "Add Accounts",
        AccountsAsk::ModifyAccounts { .. } => "Modify Accounts",
        AccountsAsk::DeleteAccounts => "Remove Accounts",
        AccountsAsk::AddUsers { .. } => "Add Users",
        AccountsAsk::ModifyUsers { .. } | AccountsAsk::RenameUser { .. } => "Modify Users",
        AccountsAsk::DeleteUsers { accounts, .. } if accounts.is_empty() => "Remove Users",
        AccountsAsk::DeleteUsers { .. } => "Remove Associations",
        AccountsAsk::AddQos(_) => "Add QOS",
        AccountsAsk::ModifyQos(_) => "Modify QOS",
        AccountsAsk::DeleteQos => "Remove QOS",
        AccountsAsk::ResetUsage { .. }
        | AccountsAsk::ResetAccountUsage
        | AccountsAsk::ResetQosUsage
        | AccountsAsk::SetUsage(_) => "Modify Associations",
        AccountsAsk::DeleteWckeys(_) => "Remove WCKeys",
        AccountsAsk::AddCoordinators { .. } => "Add Account Coord",
        AccountsAsk::DeleteCoordinators { .. } => "Remove Account Coord",
        AccountsAsk::AddClusters(_) => "Add Clusters",
        AccountsAsk::ModifyClusters(_) => "Modify Clusters",
        AccountsAsk::DeleteClusters => "Remove Clusters",
        AccountsAsk::SetResource(_) => "Modify Resources",
        AccountsAsk::DeleteResources => "Remove Resources",
        AccountsAsk::SetFederation(_) => "Modify Federations",
        AccountsAsk::DeleteFederations => "Remove Federations",
        AccountsAsk::SetFeatures(_) => "Modify Clusters",
        AccountsAsk::NoteJobs(_) => "Modify Job",
        AccountsAsk::RecordStorage(_) => "Record Storage",
        AccountsAsk::ReserveJobIds(_) => "Modify Clusters",
    }
}

/// Users and accounts that an edit concerns.
fn concerned(edit: &AccountsEdit) -> (Vec<String>, Vec<String>) {
    let names = edit.names.clone();
    match &edit.ask {
        AccountsAsk::AddAccounts { .. }
        | AccountsAsk::ModifyAccounts { .. }
        | AccountsAsk::ResetAccountUsage
        | AccountsAsk::DeleteAccounts => (Vec::new(), names),
        AccountsAsk::AddUsers { accounts, .. }
        | AccountsAsk::ModifyUsers { accounts, .. }
        | AccountsAsk::DeleteUsers { accounts, .. }
        | AccountsAsk::ResetUsage { accounts }
        | AccountsAsk::AddCoordinators { accounts }
        | AccountsAsk::DeleteCoordinators { accounts } => (names, accounts.clone()),
        AccountsAsk::DeleteWckeys(_) | AccountsAsk::RenameUser { .. } => (names, Vec::new()),
        AccountsAsk::AddQos(_)
        | AccountsAsk::ModifyQos(_)
        | AccountsAsk::DeleteQos
        | AccountsAsk::ResetQosUsage
        | AccountsAsk::AddClusters(_)
        | AccountsAsk::ModifyClusters(_)
        | AccountsAsk::NoteJobs(_)
        | AccountsAsk::RecordStorage(_)
        | AccountsAsk::ReserveJobIds(_)
        | AccountsAsk::SetUsage(_)
        | AccountsAsk::SetResource(_)
        | AccountsAsk::DeleteResources
        | AccountsAsk::SetFederation(_)
        | AccountsAsk::DeleteFederations
        | AccountsAsk::SetFeatures(_)
        | AccountsAsk::DeleteClusters => (Vec::new(), Vec::new()),
    }
}
