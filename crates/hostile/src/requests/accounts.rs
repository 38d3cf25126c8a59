//! Edits of accounting: one of each kind, and those that a coordinator makes.

use muster_model::command::{
    AccountsAsk, AccountsEdit, ClusterAsk, QosAsk, TermsAsk, UsageAsk, UserCommand, WckeysAsk,
};
use muster_model::ids::JobId;

/// An edit of records with these names.
pub(crate) fn edit(names: &[&str], ask: AccountsAsk) -> UserCommand {
    UserCommand::EditAccounts(Box::new(AccountsEdit {
        cluster: String::new(),
        names: owned(names),
        ask,
    }))
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// An edit of each kind; those that have users make them administrators.
pub(crate) fn edits() -> Vec<AccountsAsk> {
    let name = || "x".to_owned();
    let terms = TermsAsk::default;
    vec![
        AccountsAsk::AddAccounts {
            parent: "root".to_owned(),
            description: name(),
            organization: name(),
            terms: terms(),
        },
        AccountsAsk::ModifyAccounts {
            parent: String::new(),
            description: name(),
            organization: name(),
            terms: terms(),
        },
        AccountsAsk::DeleteAccounts,
        AccountsAsk::AddUsers {
            accounts: vec![name()],
            default_account: String::new(),
            admin_level: "Administrator".to_owned(),
            terms: terms(),
            wckeys: WckeysAsk::default(),
            partitions: Vec::new(),
        },
        AccountsAsk::ModifyUsers {
            accounts: vec![name()],
            default_account: String::new(),
            admin_level: "Administrator".to_owned(),
            terms: terms(),
            wckeys: WckeysAsk::default(),
            partitions: Vec::new(),
        },
        AccountsAsk::DeleteUsers {
            accounts: vec![name()],
            partitions: Vec::new(),
        },
        AccountsAsk::AddQos(QosAsk::default()),
        AccountsAsk::ModifyQos(QosAsk::default()),
        AccountsAsk::DeleteQos,
        AccountsAsk::ResetUsage {
            accounts: vec![name()],
        },
        AccountsAsk::DeleteWckeys(vec![name()]),
        AccountsAsk::RenameUser { to: name() },
        AccountsAsk::AddClusters(ClusterAsk::default()),
        AccountsAsk::ModifyClusters(ClusterAsk::default()),
        AccountsAsk::DeleteClusters,
        AccountsAsk::SetResource(Default::default()),
        AccountsAsk::DeleteResources,
        AccountsAsk::SetFederation(Default::default()),
        AccountsAsk::DeleteFederations,
        AccountsAsk::SetFeatures(Default::default()),
        AccountsAsk::ResetAccountUsage,
        AccountsAsk::ResetQosUsage,
        AccountsAsk::NoteJobs(Default::default()),
        AccountsAsk::SetUsage(vec![UsageAsk {
            account: name(),
            user: name(),
            raw: u64::MAX,
        }]),
        AccountsAsk::ReserveJobIds(JobId(1)),
        AccountsAsk::RecordStorage(Default::default()),
        AccountsAsk::AddCoordinators {
            accounts: vec![name()],
        },
        AccountsAsk::DeleteCoordinators {
            accounts: vec![name()],
        },
    ]
}

/// Shares of an association.
fn shares(count: u32) -> TermsAsk {
    TermsAsk {
        shares: Some(Some(count)),
        ..TermsAsk::default()
    }
}

/// Accounts are added under another.
pub(crate) fn add_accounts(parent: &str) -> AccountsAsk {
    AccountsAsk::AddAccounts {
        parent: parent.to_owned(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    }
}

/// Shares of accounts are set, and the account that they are under if there is one.
pub(crate) fn modify_accounts(parent: &str) -> AccountsAsk {
    AccountsAsk::ModifyAccounts {
        parent: parent.to_owned(),
        description: String::new(),
        organization: String::new(),
        terms: shares(7),
    }
}

/// Users are added to accounts, with a role if there is one.
pub(crate) fn add_users(accounts: &[&str], admin_level: &str, partitions: &[&str]) -> AccountsAsk {
    AccountsAsk::AddUsers {
        accounts: owned(accounts),
        default_account: String::new(),
        admin_level: admin_level.to_owned(),
        terms: TermsAsk::default(),
        wckeys: WckeysAsk::default(),
        partitions: owned(partitions),
    }
}

/// Shares of users in accounts are set, or a role if there is one.
pub(crate) fn modify_users(accounts: &[&str], admin_level: &str) -> AccountsAsk {
    AccountsAsk::ModifyUsers {
        accounts: owned(accounts),
        default_account: String::new(),
        admin_level: admin_level.to_owned(),
        terms: match admin_level {
            "" => shares(7),
            _ => TermsAsk::default(),
        },
        wckeys: WckeysAsk::default(),
        partitions: Vec::new(),
    }
}

/// A user gets another name.
pub(crate) fn rename_user(to: &str) -> AccountsAsk {
    AccountsAsk::RenameUser { to: to.to_owned() }
}

/// Users are removed from accounts.
pub(crate) fn delete_users(accounts: &[&str]) -> AccountsAsk {
    AccountsAsk::DeleteUsers {
        accounts: owned(accounts),
        partitions: Vec::new(),
    }
}

/// Users are made coordinators.
pub(crate) fn add_coordinators(accounts: &[&str]) -> AccountsAsk {
    AccountsAsk::AddCoordinators {
        accounts: owned(accounts),
    }
}

/// Users are coordinators no more.
pub(crate) fn delete_coordinators(accounts: &[&str]) -> AccountsAsk {
    AccountsAsk::DeleteCoordinators {
        accounts: owned(accounts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    kinds!(
        /// Kinds of edits.
        EDITS, edit_name, AccountsAsk:
        AddAccounts ModifyAccounts DeleteAccounts AddUsers ModifyUsers DeleteUsers AddQos ModifyQos DeleteQos ResetUsage
        DeleteWckeys RenameUser AddClusters ModifyClusters DeleteClusters ResetAccountUsage ResetQosUsage NoteJobs SetUsage
        SetResource DeleteResources SetFederation DeleteFederations SetFeatures
        ReserveJobIds RecordStorage AddCoordinators DeleteCoordinators
    );

    #[test]
    fn every_kind_of_edit_is_there() {
        let there: BTreeSet<&str> = edits().iter().map(edit_name).collect();
        assert_eq!(EDITS.iter().copied().collect::<BTreeSet<_>>(), there);
    }
}
