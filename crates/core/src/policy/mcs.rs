//! Labels of jobs (`MCSPlugin`): which one a job gets, on which nodes it runs with it, and who may see it.

use crate::state::State;
use muster_model::accounts::Accounts;
use muster_model::command::Identity;
use muster_model::config::ClusterConfig;
use muster_model::mcs::{MCS_LABEL, McsConfig, McsKind};
use muster_model::node::Node;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobSpec, Sharing};
use std::collections::BTreeSet;

fn settings(state: &State) -> Option<&McsConfig> {
    state.config.as_ref()?.mcs.as_ref()
}

/// Whether nodes may be for jobs of one label alone.
pub fn keeps_labels_apart(state: &State) -> bool {
    settings(state).is_some_and(McsConfig::keeps_any_apart)
}

/// The label that a job's nodes are for alone.
pub fn node_label<'j>(state: &State, spec: &'j JobSpec) -> Option<&'j str> {
    let apart = settings(state).is_some_and(|mcs| mcs.keeps_apart(spec));
    spec.mcs_label().filter(|_| apart)
}

/// Whether a job with these nodes for its label alone, or with none, may be on a node beside its jobs.
pub(crate) fn labels_agree(state: &State, node: &Node, label: Option<&str>) -> bool {
    let all = u32::try_from(node.jobs.len()).unwrap_or(u32::MAX);
    match label {
        _ if !keeps_labels_apart(state) || all == 0 => true,
        None => node.alone_by_label == 0,
        Some(_) => node.alone_by_label == all && node.mcs_label.as_deref() == label,
    }
}

/// Gives a new job its label, or refuses the one that it asks for.
pub(crate) fn set_label(
    config: &ClusterConfig,
    identity: &Identity,
    spec: &mut JobSpec,
) -> Result<(), Refusal> {
    let Some(mcs) = &config.mcs else {
        // Kept, it would be a label that nobody has checked once a site has labels.
        spec.shown.retain(|(key, _)| key != MCS_LABEL);
        return Ok(());
    };
    let asked = spec.mcs_label().map(str::to_owned);
    let is_due = mcs.enforced || asked.is_some() || spec.ask.sharing == Sharing::ExclusiveMcs;
    if !is_due {
        return Ok(());
    }
    let own = own_labels(mcs, identity, spec);
    let label = match &asked {
        Some(label) => own.iter().find(|own| *own == label),
        None => own.first(),
    };
    let Some(label) = label.cloned() else {
        let owner = &spec.owner.user;
        let why = match (asked, own.is_empty()) {
            (_, true) => format!("{owner} is in none of the groups of MCSParameters"),
            (label, false) => format!(
                "{} is not a label of {owner}'s; {} is",
                label.unwrap_or_default(),
                own.join(" or ")
            ),
        };
        return Err(Refusal::new(RefusalCode::InvalidMcsLabel, why));
    };
    spec.shown.retain(|(key, _)| key != MCS_LABEL);
    spec.shown.push((MCS_LABEL.to_owned(), label));
    Ok(())
}

/// Where accounts are labels, a job that gets another account gets its label.
pub(crate) fn follow_account(config: &ClusterConfig, spec: &mut JobSpec) {
    let by_account = (config.mcs.as_ref()).is_some_and(|mcs| mcs.kind == McsKind::Account);
    let account = spec.account_name().to_owned();
    let own = spec.shown.iter_mut().find(|(key, _)| key == MCS_LABEL);
    if let Some((_, label)) = own.filter(|_| by_account) {
        *label = account;
    }
}

/// Labels that a job may have, the first choice first.
fn own_labels(mcs: &McsConfig, identity: &Identity, spec: &JobSpec) -> Vec<String> {
    match mcs.kind {
        McsKind::User => vec![spec.owner.user.clone()],
        McsKind::Account => vec![spec.account_name().to_owned()],
        McsKind::Group => {
            let is_own = identity.uid == spec.owner.uid;
            let of_caller = |name: &String| is_own && is_in(identity, name);
            let groups = mcs.groups.iter();
            let own = groups.filter(|name| **name == spec.owner.group || of_caller(name));
            own.cloned().collect()
        }
    }
}

fn is_in(identity: &Identity, group: &str) -> bool {
    identity.group == group || identity.groups.iter().any(|own| own == group)
}

/// Labels of jobs that a user may see, where those decide which jobs of others are shown.
pub(crate) fn labels_seen(state: &State, identity: &Identity) -> Option<BTreeSet<String>> {
    let mcs = settings(state).filter(|mcs| mcs.private)?;
    Some(match mcs.kind {
        McsKind::User => [identity.user.clone()].into(),
        McsKind::Account => accounts_of(&state.accounts, &identity.user),
        McsKind::Group => {
            let groups = mcs.groups.iter();
            groups
                .filter(|name| is_in(identity, name))
                .cloned()
                .collect()
        }
    })
}

fn accounts_of(accounts: &Accounts, user: &str) -> BTreeSet<String> {
    match accounts.user(user) {
        Some(known) => known
            .account_names()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        None => [user.to_owned()].into(),
    }
}
