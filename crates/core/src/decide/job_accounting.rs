//! Account, QOS and key of a job: those that it is given, and whether its owner may use them.

use super::draft::Draft;
use muster_model::config::ClusterConfig;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{GRANTED_QOS, JobSpec};

/// Account and QOS: the user's default account; the enforced checks.
pub(super) fn check_accounting(
    draft: &Draft<'_>,
    config: &ClusterConfig,
    spec: &mut JobSpec,
) -> Result<(), Refusal> {
    let accounts = &draft.state.accounts;
    if let Some(name) = &mut spec.account {
        *name = accounts.account_key(name);
    }
    if let Some(name) = &mut spec.qos {
        *name = accounts.qos_key(name);
    }
    if let (None, Some(known)) = (&spec.account, accounts.user(&spec.owner.user)) {
        spec.account = Some(known.default_account.clone()).filter(|a| !a.is_empty());
    }
    let (account, user) = (spec.account_name(), &spec.owner.user);
    let default = draft.state.partitions.iter().find(|part| part.default);
    let default = default.map_or("", |part| part.name.as_str());
    let mut parts: Vec<&str> = spec.partitions.iter().map(String::as_str).collect();
    if parts.is_empty() {
        parts.push(default);
    }
    let in_partition = |part: &&str| accounts.has_association_in(account, user, part);
    if config.order.enforce_associations && !parts.iter().any(in_partition) {
        return Err(Refusal::new(
            RefusalCode::InvalidAccount,
            format!(
                "user {user} has no association in account {account}; see sacctmgr show associations"
            ),
        ));
    }
    let qos = match &spec.qos {
        Some(name) => name.as_str(),
        None => accounts.default_qos(account, user, parts[0]),
    };
    let known =
        accounts.qos(qos).is_some() || (accounts.qos.is_empty() && !config.order.enforce_qos);
    if !known {
        return Err(Refusal::new(
            RefusalCode::InvalidQos,
            format!("there is no QOS {qos}"),
        ));
    }
    let allowed = !config.order.enforce_qos || accounts.allows_qos(account, user, parts[0], qos);
    if !allowed && !spec.has_granted_qos() {
        return Err(Refusal::new(
            RefusalCode::InvalidQos,
            format!("user {user} may not use QOS {qos} in account {account}"),
        ));
    }
    if allowed {
        spec.shown.retain(|(key, _)| key != GRANTED_QOS);
    }
    // The default is the job's own from now on, for listings and accounting too.
    if spec.qos.is_none() && qos != spec.qos_name() {
        spec.qos = Some(qos.to_owned());
    }
    check_wckey(draft, config, spec)
}

/// A job without a named key gets the user's default one, with a star before it; where keys are enforced it must be one
/// of the user's.
fn check_wckey(
    draft: &Draft<'_>,
    config: &ClusterConfig,
    spec: &mut JobSpec,
) -> Result<(), Refusal> {
    let user = draft.state.accounts.user(&spec.owner.user);
    let default = user.map_or("", |user| user.default_wckey.as_str());
    let named = spec.wckey.as_deref().filter(|key| !key.starts_with('*'));
    if config.order.enforce_wckeys {
        let known = match named {
            Some(key) => user.is_some_and(|user| user.wckeys.iter().any(|own| own == key)),
            None => !default.is_empty(),
        };
        if !known {
            let owner = &spec.owner.user;
            let why = match named {
                Some(key) => format!("user {owner} has no key {key}"),
                None => format!("user {owner} has no default key; name one with --wckey"),
            };
            let text = format!("{why}; see sacctmgr show wckey");
            return Err(Refusal::new(RefusalCode::InvalidWckey, text));
        }
    }
    if config.order.track_wckeys && named.is_none() {
        spec.wckey = Some(format!("*{default}"));
    }
    Ok(())
}
