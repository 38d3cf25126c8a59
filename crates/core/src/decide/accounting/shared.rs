//! Resources and federations: what several clusters share. Commands send each record as it shall be; nothing of federations
//! but their records is kept.

use super::clusters;
use crate::event::AccountsChange;
use crate::state::State;
use muster_model::accounts::{
    ClusterFeatures, FEDERATION_CLUSTERS_MAX, Federation, FederationMember, ResourceShare,
    SharedResource,
};
use muster_model::refusal::{Refusal, RefusalCode};
use std::collections::BTreeSet;

/// Resources, and federations.
const RECORDS_MAX: usize = 1024;

fn refused<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(RefusalCode::InvalidValue, why))
}

fn check_clusters<'n>(
    state: &State,
    names: impl Iterator<Item = &'n String>,
) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !clusters::is_known(state, name) {
            return refused(format!("there is no cluster {name}"));
        }
        if !seen.insert(name) {
            return refused(format!("cluster {name} is named twice"));
        }
    }
    Ok(())
}

/// Keeps a resource as it is given, in place of the one of its name and server.
pub(super) fn set_resource(
    state: &State,
    names: &[String],
    resource: &SharedResource,
) -> Result<Vec<AccountsChange>, Refusal> {
    let SharedResource {
        name,
        server,
        count: _,
        server_type,
        description,
        shares,
        id: _,
    } = resource;
    for text in [name, server] {
        super::check_name(text)?;
        if text.contains(['@', ':', '=', '|', ' ']) {
            return refused("a resource needs a name and a server, without @, :, =, | and blanks");
        }
    }
    for text in [server_type, description] {
        super::super::texts::one_line(
            "text of a resource",
            text,
            muster_model::limits::TEXT_BYTES_MAX,
        )?;
    }
    if *names != [resource.key()] {
        return refused("the edit names another resource");
    }
    check_clusters(
        state,
        shares.iter().map(|ResourceShare { cluster, .. }| cluster),
    )?;
    if resource.percent_allocated() > 100 {
        return refused("You can not allocate more than 100% of a resource");
    }
    let known = state.accounts.resources.get(&resource.key());
    if known.is_none() && state.accounts.resources.len() >= RECORDS_MAX {
        return refused(format!("there may be {RECORDS_MAX} resources"));
    }
    let next = state.accounts.last_resource.saturating_add(1);
    let resource = SharedResource {
        id: known.map_or(next, |known| known.id),
        ..resource.clone()
    };
    Ok(vec![AccountsChange::Resource(resource)])
}

/// Deletes resources by name and server.
pub(super) fn delete_resources(
    state: &State,
    keys: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    let changes = keys
        .iter()
        .map(|key| match state.accounts.resources.get(key) {
            Some(_) => Ok(AccountsChange::ResourceGone(key.clone())),
            None => refused(format!("there is no resource {key}")),
        });
    changes.collect()
}

/// Keeps a federation as it is given; its clusters leave others.
pub(super) fn set_federation(
    state: &State,
    names: &[String],
    federation: &Federation,
) -> Result<Vec<AccountsChange>, Refusal> {
    let Federation { name, members } = federation;
    super::check_name(name)?;
    if *names != [name.clone()] {
        return refused("the edit names another federation");
    }
    check_clusters(state, members.iter().map(|member| &member.cluster))?;
    let mut ids = BTreeSet::new();
    for FederationMember { cluster, id, state } in members {
        if !(1..=FEDERATION_CLUSTERS_MAX).contains(id) || !ids.insert(id) {
            let text = format!("cluster {cluster} has no number of its own in {name}");
            return Err(Refusal::new(RefusalCode::FederationFull, text));
        }
        if !Federation::STATES.contains(&state.as_str()) {
            return refused(format!("{state} is no state of a cluster in a federation"));
        }
    }
    let all = &state.accounts.federations;
    if !all.contains_key(name) && all.len() >= RECORDS_MAX {
        return refused(format!("there may be {RECORDS_MAX} federations"));
    }
    let is_moved = |member: &FederationMember| {
        let mut own = members.iter();
        own.any(|moved| moved.cluster == member.cluster)
    };
    let left = all.values().filter(|other| other.name != *name);
    let left = left.filter(|other| other.members.iter().any(is_moved));
    let mut changes: Vec<AccountsChange> = left
        .map(|other| {
            let mut other = other.clone();
            other.members.retain(|member| !is_moved(member));
            AccountsChange::Federation(other)
        })
        .collect();
    changes.push(AccountsChange::Federation(federation.clone()));
    Ok(changes)
}

/// Deletes federations.
pub(super) fn delete_federations(
    state: &State,
    names: &[String],
) -> Result<Vec<AccountsChange>, Refusal> {
    let changes = names
        .iter()
        .map(|name| match state.accounts.federations.get(name) {
            Some(_) => Ok(AccountsChange::FederationGone(name.clone())),
            None => refused(format!("there is no federation {name}")),
        });
    changes.collect()
}

/// Keeps the features of a cluster as they are given.
pub(super) fn set_features(
    state: &State,
    names: &[String],
    of: &ClusterFeatures,
) -> Result<Vec<AccountsChange>, Refusal> {
    let ClusterFeatures { cluster, features } = of;
    if *names != [cluster.clone()] {
        return refused("the edit names another cluster");
    }
    check_clusters(state, std::iter::once(cluster))?;
    features
        .iter()
        .try_for_each(|name| super::check_name(name))?;
    Ok(vec![AccountsChange::Features(of.clone())])
}
