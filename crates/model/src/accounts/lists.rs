//! Lists of accounts and QOS that administrators write, as those of partitions and reservations: which names they have.

use super::{Accounts, ROOT};

impl Accounts {
    /// Whether a list that somebody wrote has an account, as it is kept.
    pub fn lists_account(&self, list: &[String], account: &str) -> bool {
        let is_known = |name: &str| self.accounts.contains_key(name);
        list.iter().any(|name| is_kept_as(name, account, is_known))
    }

    /// Whether it has the account or one that it is under. `root`, which all are under, is there for itself only.
    pub fn lists_account_or_above(&self, list: &[String], account: &str) -> bool {
        let mut all = self.upwards(account).enumerate();
        all.any(|(at, name)| (at == 0 || name != ROOT) && self.lists_account(list, name))
    }

    /// Whether such a list has a QOS, as it is kept.
    pub fn lists_qos(&self, list: &[String], qos: &str) -> bool {
        let is_known = |name: &str| self.qos.contains_key(name);
        list.iter().any(|name| is_kept_as(name, qos, is_known))
    }
}

/// Whether a name that somebody wrote is kept as that one ([`key`]).
fn is_kept_as(name: &str, kept: &str, is_known: impl Fn(&str) -> bool) -> bool {
    let folds =
        || name.eq_ignore_ascii_case(kept) || !name.is_ascii() && name.to_lowercase() == *kept;
    name == kept || folds() && !is_known(name)
}
