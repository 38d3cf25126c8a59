//! Clusters: the controller's own one, whose settings are those of `root`, and records of others with their accounts and
//! users, which nothing but sacctmgr looks at.

use super::{Records, check, check_terms, names, record_changes, set_root_terms};
use crate::event::{AccountsChange, RecordChange};
use crate::policy::access;
use crate::state::State;
use muster_model::accounts::{Accounts, Cluster};
use muster_model::command::{AccountsAsk, AccountsEdit, ClusterAsk, Identity};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;

/// Clusters beside the controller's own.
const CLUSTERS_MAX: usize = 1024;

/// Associations of all clusters beside the controller's own.
const ASSOCIATIONS_MAX: usize = 1 << 16;

/// The cluster whose records an edit names, unless it is the controller's own. Only operators and administrators of accounting
/// change other clusters' records: who coordinates an account there is nobody here. Others do not get to know what there is.
pub(super) fn other<'a>(
    state: &'a State,
    identity: &Identity,
    edit: &AccountsEdit,
) -> Result<Option<&'a Cluster>, Refusal> {
    let name = &edit.cluster;
    if name.is_empty() || is_own(state, name) {
        return Ok(None);
    }
    access::require(state, identity, AccessRequest::from(&edit.ask))?;
    let known = state.accounts.clusters.get(&name.to_lowercase());
    known.map(Some).ok_or_else(|| not_found(name))
}

/// Changes accounts and users of another cluster, which [`other`] has found.
pub(super) fn edit_records(
    state: &State,
    identity: &Identity,
    cluster: &Cluster,
    edit: &AccountsEdit,
) -> Result<Vec<AccountsChange>, Refusal> {
    if let AccountsAsk::AddUsers { admin_level, .. } | AccountsAsk::ModifyUsers { admin_level, .. } =
        &edit.ask
        && !admin_level.is_empty()
    {
        access::require(state, identity, AccessRequest::SetAdminLevel)?;
    }
    let accounts = &cluster.records(&state.accounts.qos);
    let edit = &names::folded(accounts, edit);
    check(edit)?;
    let records = Records {
        accounts,
        own: None,
    };
    let changes = record_changes(&records, edit)?.ok_or_else(|| {
        let text = format!(
            "of cluster {} only accounts and users are kept",
            cluster.name
        );
        Refusal::new(RefusalCode::InvalidValue, text)
    })?;
    let changes: Vec<RecordChange> = changes.into_iter().flat_map(of_records).collect();
    check_room(state, accounts, &changes)?;
    let of_cluster = |change| AccountsChange::OfCluster {
        cluster: cluster.name.clone(),
        change,
    };
    Ok(changes.into_iter().map(of_cluster).collect())
}

/// A change of accounts and users as one of another cluster's records.
fn of_records(change: AccountsChange) -> Vec<RecordChange> {
    match change {
        AccountsChange::Account(account) => vec![RecordChange::Account(account)],
        AccountsChange::AccountGone(name) => vec![RecordChange::AccountGone(name)],
        AccountsChange::User(user) => vec![RecordChange::User(user)],
        AccountsChange::UserGone(name) => vec![RecordChange::UserGone(name)],
        AccountsChange::UserRenamed { from, to } => {
            vec![RecordChange::UserRenamed { from, to }]
        }
        AccountsChange::Root(terms) => vec![RecordChange::Root(terms)],
        _ => Vec::new(),
    }
}

/// Refuses changes after which there would be too many associations of other clusters.
fn check_room(state: &State, accounts: &Accounts, changes: &[RecordChange]) -> Result<(), Refusal> {
    let all = state.accounts.clusters.values();
    let before: usize = all.map(Cluster::association_count).sum();
    let more = changes.iter().map(|change| match change {
        RecordChange::Account(account) => {
            usize::from(!accounts.accounts.contains_key(&account.name))
        }
        RecordChange::User(user) => {
            let known = accounts.users.get(&user.name);
            let known = known.map_or(0, |user| user.associations().count());
            user.associations().count().saturating_sub(known)
        }
        _ => 0,
    });
    let more: usize = more.sum();
    match more == 0 || before + more <= ASSOCIATIONS_MAX {
        true => Ok(()),
        false => Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!(
                "there are {before} associations of other clusters, and may be {ASSOCIATIONS_MAX}"
            ),
        )),
    }
}

/// Adds records of clusters that are not there; the controller's own one always is.
pub(super) fn add(
    state: &State,
    names: &[String],
    ask: &ClusterAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_terms(&state.accounts, &ask.terms)?;
    let known = |name: &&String| is_own(state, name) || state.accounts.clusters.contains_key(*name);
    let new: Vec<&String> = names.iter().filter(|name| !known(name)).collect();
    if state.accounts.clusters.len() + new.len() > CLUSTERS_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("there may be {CLUSTERS_MAX} clusters beside the controller's own"),
        ));
    }
    let changes = new.into_iter().map(|name| {
        let mut cluster = Cluster {
            name: name.clone(),
            ..Cluster::default()
        };
        set(&mut cluster, ask)?;
        Ok(AccountsChange::Cluster(cluster))
    });
    changes.collect()
}

/// Changes clusters: of the controller's own one the settings for `root`.
pub(super) fn modify(
    state: &State,
    names: &[String],
    ask: &ClusterAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_terms(&state.accounts, &ask.terms)?;
    let mut changes = Vec::new();
    for name in names {
        if is_own(state, name) {
            let mut root = state.accounts.root.clone();
            set_root_terms(&mut root, &ask.terms)?;
            changes.push(AccountsChange::Root(root));
            let classification = ask.classification.iter().cloned();
            changes.extend(classification.map(AccountsChange::Classified));
            continue;
        }
        let known = state.accounts.clusters.get(name);
        let known = known.ok_or_else(|| not_found(name))?;
        // Its accounts and users stay as they are.
        let mut cluster = Cluster {
            name: known.name.clone(),
            classification: known.classification.clone(),
            terms: known.terms.clone(),
            ..Cluster::default()
        };
        set(&mut cluster, ask)?;
        changes.push(AccountsChange::Cluster(cluster));
    }
    Ok(changes)
}

/// Deletes records. The controller's own cluster stays while the controller serves it.
pub(super) fn delete(state: &State, names: &[String]) -> Result<Vec<AccountsChange>, Refusal> {
    let changes = names.iter().map(|name| {
        if is_own(state, name) {
            return Err(Refusal::new(
                RefusalCode::InvalidValue,
                format!("{name} is the cluster that this controller serves; it cannot be deleted"),
            ));
        }
        match state.accounts.clusters.contains_key(name) {
            true => Ok(AccountsChange::ClusterGone(name.clone())),
            false => Err(not_found(name)),
        }
    });
    changes.collect()
}

fn set(cluster: &mut Cluster, ask: &ClusterAsk) -> Result<(), Refusal> {
    set_root_terms(&mut cluster.terms, &ask.terms)?;
    if let Some(text) = &ask.classification {
        cluster.classification.clone_from(text);
    }
    Ok(())
}

fn is_own(state: &State, name: &str) -> bool {
    let config = state.config.as_ref();
    config.is_some_and(|config| config.cluster_name.eq_ignore_ascii_case(name))
}

/// Whether there is a cluster of that name.
pub(super) fn is_known(state: &State, name: &str) -> bool {
    is_own(state, name) || state.accounts.clusters.contains_key(name)
}

fn not_found(name: &str) -> Refusal {
    Refusal::new(
        RefusalCode::InvalidValue,
        format!("there is no cluster {name}"),
    )
}
