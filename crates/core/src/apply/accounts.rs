//! What each change of accounting's records does.

use crate::event::AccountsChange;
use muster_model::account_limits::Scope;
use muster_model::accounts::Accounts;
use muster_model::time::Timestamp;

/// Applies a change.
pub(crate) fn apply_change(accounts: &mut Accounts, change: &AccountsChange, at: Timestamp) {
    match change {
        AccountsChange::Account(account) => {
            accounts
                .accounts
                .insert(account.name.clone(), account.clone());
        }
        AccountsChange::AccountGone(name) => {
            accounts.accounts.remove(name);
            for user in accounts.users.values_mut() {
                user.accounts.remove(name);
                user.coordinates.retain(|account| account != name);
            }
        }
        AccountsChange::User(user) => {
            accounts.users.insert(user.name.clone(), user.clone());
        }
        AccountsChange::UserGone(name) => {
            accounts.users.remove(name);
        }
        AccountsChange::Qos(qos) => {
            accounts.qos.insert(qos.name.clone(), qos.clone());
        }
        AccountsChange::QosGone(name) => {
            accounts.qos.remove(name);
        }
        AccountsChange::UsageReset(which) => {
            for (key, usage) in &mut accounts.usage {
                if which.as_ref().is_none_or(|w| w == key) {
                    (usage.raw, usage.at) = (0.0, at);
                }
            }
            let concerns = |scope: &Scope| match (which, scope) {
                (None, _) => true,
                (Some((account, user)), Scope::Association(a, u)) => (account, user) == (a, u),
                (Some(_), _) => false,
            };
            let all = accounts.tres_usage.iter_mut();
            for (_, usage) in all.filter(|(scope, _)| concerns(scope)) {
                usage.raw.clear();
                usage.at = at;
            }
            if which.is_none() {
                accounts.reset_at = at;
            }
        }
    }
}
