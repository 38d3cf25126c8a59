//! The effect of each change of accounting's records.

use crate::event::{AccountsChange, RecordChange};
use muster_model::account_limits::Scope;
use muster_model::accounts::{Account, Accounts, AssociationTerms, Cluster, NORMAL, ROOT, User};
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

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
            leave_account(&mut accounts.users, name);
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
        AccountsChange::UserRenamed { from, to } => rename_user(&mut accounts.users, from, to),
        AccountsChange::Root(terms) => accounts.root = terms.clone(),
        AccountsChange::Cluster(cluster) => {
            let known = accounts.clusters.entry(cluster.name.clone()).or_default();
            known.name.clone_from(&cluster.name);
            known.classification.clone_from(&cluster.classification);
            known.terms = cluster.terms.clone();
        }
        AccountsChange::OfCluster { cluster, change } => {
            if let Some(cluster) = accounts.clusters.get_mut(cluster) {
                apply_to_cluster(cluster, change);
                assign_ids_of_cluster(cluster);
            }
        }
        AccountsChange::ClusterGone(name) => {
            accounts.clusters.remove(name);
            for resource in accounts.resources.values_mut() {
                resource.shares.retain(|share| share.cluster != *name);
            }
            accounts.cluster_features.remove(name);
            for federation in accounts.federations.values_mut() {
                federation.members.retain(|member| member.cluster != *name);
            }
        }
        AccountsChange::Resource(resource) => {
            accounts.last_resource = accounts.last_resource.max(resource.id);
            let key = resource.key();
            accounts.resources.insert(key, resource.clone());
        }
        AccountsChange::ResourceGone(key) => {
            accounts.resources.remove(key);
        }
        AccountsChange::Federation(federation) => {
            let name = federation.name.clone();
            accounts.federations.insert(name, federation.clone());
        }
        AccountsChange::Features(of) => {
            let all = &mut accounts.cluster_features;
            match of.features.is_empty() {
                true => drop(all.remove(&of.cluster)),
                false => drop(all.insert(of.cluster.clone(), of.features.clone())),
            }
        }
        AccountsChange::FederationGone(name) => {
            accounts.federations.remove(name);
        }
        // A change of accounting's store alone.
        AccountsChange::JobNoted { .. } | AccountsChange::StorageRecorded { .. } => {}
        // A change of the queue, made by the caller.
        AccountsChange::JobIdsReserved(_) => {}
        AccountsChange::UsageSet { account, user, raw } => {
            let key = (account.clone(), user.clone());
            let usage = accounts.usage.entry(key).or_default();
            (usage.raw, usage.at) = (*raw as f64, at);
        }
        AccountsChange::Classified(text) => accounts.classification.clone_from(text),
        AccountsChange::ScopeReset(scope) => {
            if let Some(usage) = accounts.tres_usage.get_mut(scope) {
                usage.raw.clear();
                usage.at = at;
            }
        }
        AccountsChange::UsageReset(which) => {
            for (key, usage) in &mut accounts.usage {
                if which.as_ref().is_none_or(|w| w == key) {
                    (usage.raw, usage.at) = (0.0, at);
                }
            }
            let concerns = |scope: &Scope| match (which, scope) {
                (None, _) => true,
                (
                    Some((account, user)),
                    Scope::Association(a, u) | Scope::PartitionAssociation(a, u, _),
                ) => (account, user) == (a, u),
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

/// Applies a change of another cluster's records.
fn apply_to_cluster(cluster: &mut Cluster, change: &RecordChange) {
    match change {
        RecordChange::Account(account) => {
            let name = account.name.clone();
            cluster.accounts.insert(name, account.clone());
        }
        RecordChange::AccountGone(name) => {
            cluster.accounts.remove(name);
            leave_account(&mut cluster.users, name);
        }
        RecordChange::User(user) => {
            cluster.users.insert(user.name.clone(), user.clone());
        }
        RecordChange::UserGone(name) => {
            cluster.users.remove(name);
        }
        RecordChange::Root(terms) => cluster.terms = terms.clone(),
        RecordChange::UserRenamed { from, to } => {
            rename_user(&mut cluster.users, from, to);
        }
    }
}

/// Nobody is in an account any more.
fn leave_account(users: &mut BTreeMap<String, User>, name: &str) {
    for user in users.values_mut() {
        user.accounts.remove(name);
        user.partitions.remove(name);
        user.coordinates.retain(|account| account != name);
        if user.default_account == name {
            user.default_account.clear();
        }
    }
}

/// A user has another name. What it has used is moved before, by `policy::limits::rename_use`.
fn rename_user(users: &mut BTreeMap<String, User>, from: &str, to: &str) {
    if let Some(mut user) = users.remove(from) {
        to.clone_into(&mut user.name);
        users.insert(to.to_owned(), user);
    }
}

/// Gives numbers to associations and QOS that have none: `root` and the user root in it have the first ones, `normal` has
/// the first of the QOS.
pub(crate) fn assign_ids(accounts: &mut Accounts) {
    let last = &mut accounts.last_association;
    *last = (*last).max(2);
    let mut next = |terms: &mut AssociationTerms| {
        if terms.id == 0 {
            *last = last.saturating_add(1);
            terms.id = *last;
        }
    };
    accounts.root.id = 1;
    assign(&mut accounts.accounts, &mut accounts.users, &mut next);
    let last = &mut accounts.last_qos;
    *last = (*last).max(1);
    for qos in accounts.qos.values_mut().filter(|qos| qos.id == 0) {
        if qos.name == NORMAL {
            qos.id = 1;
            continue;
        }
        *last = last.saturating_add(1);
        qos.id = *last;
    }
}

/// Gives numbers to the associations of another cluster, each cluster counting for itself.
fn assign_ids_of_cluster(cluster: &mut Cluster) {
    let last = &mut cluster.last_association;
    *last = (*last).max(2);
    let mut next = |terms: &mut AssociationTerms| {
        if terms.id == 0 {
            *last = last.saturating_add(1);
            terms.id = *last;
        }
    };
    assign(&mut cluster.accounts, &mut cluster.users, &mut next);
}

/// Gives numbers to associations of accounts and users.
fn assign(
    accounts: &mut BTreeMap<String, Account>,
    users: &mut BTreeMap<String, User>,
    next: &mut impl FnMut(&mut AssociationTerms),
) {
    for account in accounts.values_mut() {
        next(&mut account.terms);
    }
    for user in users.values_mut() {
        let is_root = user.name == ROOT;
        for (account, terms) in &mut user.accounts {
            if is_root && account == ROOT {
                terms.id = 2;
            }
            next(terms);
        }
        // The newest comes first in lists: so the first of several partitions does.
        let parts = user.partitions.values_mut();
        parts.for_each(|parts| parts.values_mut().rev().for_each(&mut *next));
    }
}
