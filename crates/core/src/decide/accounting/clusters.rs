//! Clusters: the controller's own one, whose settings are those of `root`, and records of others.

use super::{check_terms, set_terms};
use crate::event::AccountsChange;
use crate::state::State;
use muster_model::accounts::Cluster;
use muster_model::command::ClusterAsk;
use muster_model::refusal::{Refusal, RefusalCode};

/// Adds records of clusters that are not there; the controller's own one always is.
pub(super) fn add(
    state: &State,
    names: &[String],
    ask: &ClusterAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_terms(state, &ask.terms)?;
    let known = |name: &&String| is_own(state, name) || state.accounts.clusters.contains_key(*name);
    let new = names.iter().filter(|name| !known(name));
    let changes = new.map(|name| {
        let mut cluster = Cluster {
            name: name.clone(),
            ..Cluster::default()
        };
        set(&mut cluster, ask);
        AccountsChange::Cluster(cluster)
    });
    Ok(changes.collect())
}

/// Changes clusters: of the controller's own one what is set for `root`.
pub(super) fn modify(
    state: &State,
    names: &[String],
    ask: &ClusterAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    check_terms(state, &ask.terms)?;
    let mut changes = Vec::new();
    for name in names {
        if is_own(state, name) {
            let mut root = state.accounts.root.clone();
            set_terms(&mut root, &ask.terms);
            changes.push(AccountsChange::Root(root));
            let classification = ask.classification.iter().cloned();
            changes.extend(classification.map(AccountsChange::Classified));
            continue;
        }
        let known = state.accounts.clusters.get(name);
        let mut cluster = known.cloned().ok_or_else(|| not_found(name))?;
        set(&mut cluster, ask);
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

fn set(cluster: &mut Cluster, ask: &ClusterAsk) {
    set_terms(&mut cluster.terms, &ask.terms);
    if let Some(text) = &ask.classification {
        cluster.classification.clone_from(text);
    }
}

fn is_own(state: &State, name: &str) -> bool {
    let config = state.config.as_ref();
    config.is_some_and(|config| config.cluster_name.eq_ignore_ascii_case(name))
}

fn not_found(name: &str) -> Refusal {
    Refusal::new(
        RefusalCode::InvalidValue,
        format!("there is no cluster {name}"),
    )
}
