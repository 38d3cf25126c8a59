//! QOS: added, changed, deleted.

use super::{edit_list, set_limits};
use crate::event::AccountsChange;
use crate::state::State;
use muster_model::account_limits::Scope;
use muster_model::accounts::{NORMAL, Qos};
use muster_model::command::{ListEdit, QosAsk};
use muster_model::preemption::parse_mode;
use muster_model::refusal::{Refusal, RefusalCode};
use std::collections::{BTreeMap, BTreeSet};

/// Adds those that are not there.
pub(super) fn add(
    state: &State,
    names: &[String],
    ask: &QosAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    let new = names
        .iter()
        .filter(|name| state.accounts.qos(name).is_none());
    let changes = new.map(|name| {
        let mut qos = Qos {
            name: name.clone(),
            description: name.clone(),
            ..Qos::default()
        };
        set(state, &mut qos, ask, names)?;
        Ok(AccountsChange::Qos(qos))
    });
    changes.collect()
}

/// Changes QOS.
pub(super) fn modify(
    state: &State,
    names: &[String],
    ask: &QosAsk,
) -> Result<Vec<AccountsChange>, Refusal> {
    let changes = names.iter().map(|name| {
        let mut qos = state.accounts.qos(name).ok_or_else(|| not_found(name))?;
        set(state, &mut qos, ask, names)?;
        Ok(AccountsChange::Qos(qos))
    });
    changes.collect()
}

/// Deletes QOS.
pub(super) fn delete(state: &State, names: &[String]) -> Result<Vec<AccountsChange>, Refusal> {
    let changes = names.iter().map(|name| {
        if !state.accounts.qos.contains_key(name) {
            return Err(not_found(name));
        }
        Ok(AccountsChange::QosGone(name.clone()))
    });
    changes.collect()
}

/// Forgets what counts towards the limits of QOS.
pub(super) fn reset_usage(state: &State, names: &[String]) -> Result<Vec<AccountsChange>, Refusal> {
    if let Some(name) = names.iter().find(|name| state.accounts.qos(name).is_none()) {
        return Err(not_found(name));
    }
    let all = state.accounts.tres_usage.keys();
    let concerned = all.filter(|scope| match scope {
        Scope::Qos(qos) | Scope::QosUser(qos, _) | Scope::QosAccount(qos, _) => names.contains(qos),
        Scope::Account(_) | Scope::Association(..) | Scope::PartitionAssociation(..) => false,
    });
    Ok(concerned.cloned().map(AccountsChange::ScopeReset).collect())
}

/// Preemption of QOS has no circles: each would make room for the other for ever.
pub(super) fn check_no_circle(state: &State, changes: &[AccountsChange]) -> Result<(), Refusal> {
    let mut lists: BTreeMap<&str, &[String]> = BTreeMap::new();
    for qos in state.accounts.qos.values() {
        lists.insert(&qos.name, &qos.preempt);
    }
    let mut changed = Vec::new();
    for change in changes {
        if let AccountsChange::Qos(qos) = change {
            lists.insert(&qos.name, &qos.preempt);
            changed.push(qos.name.as_str());
        }
    }
    for start in changed {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = vec![start];
        while let Some(name) = next.pop() {
            for below in lists.get(name).into_iter().flat_map(|list| list.iter()) {
                if below == start {
                    return Err(Refusal::new(
                        RefusalCode::InvalidQos,
                        format!(
                            "Preempt: {start} may preempt {name} or one that may, and {name} may preempt {start}"
                        ),
                    ));
                }
                if seen.insert(below) {
                    next.push(below);
                }
            }
        }
    }
    Ok(())
}

/// The refusal of a QOS that is not there.
pub(super) fn not_found(name: &str) -> Refusal {
    Refusal::new(RefusalCode::InvalidQos, format!("there is no QOS {name}"))
}

fn set(state: &State, qos: &mut Qos, ask: &QosAsk, new: &[String]) -> Result<(), Refusal> {
    if let Some(text) = &ask.description {
        qos.description.clone_from(text);
    }
    if let Some(priority) = ask.priority {
        qos.priority = priority;
    }
    if let Some(ListEdit { sign, names }) = &ask.preempt {
        let known =
            |n: &String| n == NORMAL || new.contains(n) || state.accounts.qos.contains_key(n);
        if let Some(name) = names.iter().find(|n| !known(n)) {
            return Err(not_found(name));
        }
        edit_list(&mut qos.preempt, *sign, names);
    }
    if let Some(ListEdit { sign, names: words }) = &ask.flags {
        let known = |word: &String| {
            let same = |flag: &&&str| flag.eq_ignore_ascii_case(word);
            Qos::FLAGS.iter().find(same).copied().ok_or_else(|| {
                let all = Qos::FLAGS.join(", ");
                let text = format!("Flags={word} is not kept here; {all} are");
                Refusal::new(RefusalCode::InvalidValue, text)
            })
        };
        let words = words.iter().filter(|word| *word != "-1");
        let flags: Vec<String> = words
            .map(|word| known(word).map(str::to_owned))
            .collect::<Result<_, _>>()?;
        edit_list(&mut qos.flags, *sign, &flags);
        qos.flags.sort_unstable();
    }
    if let Some(mode) = &ask.preempt_mode {
        let upper = mode.to_ascii_uppercase();
        qos.preempt_mode = match parse_mode(&upper) {
            Some((None, false)) => None,
            Some(_) => Some(upper),
            None => {
                return Err(Refusal::new(
                    RefusalCode::InvalidValue,
                    format!(
                        "PreemptMode={mode}: expected CLUSTER, OFF, CANCEL, REQUEUE or SUSPEND, and WITHIN"
                    ),
                ));
            }
        };
    }
    if let Some(seconds) = ask.preempt_exempt_s {
        qos.preempt_exempt_s = seconds;
    }
    if let Some(seconds) = ask.grace_time_s {
        qos.grace_time_s = seconds;
    }
    if let Some(threshold) = ask.usage_threshold_millionths {
        qos.usage_threshold_millionths = threshold;
    }
    if let Some(factor) = ask.limit_factor_millionths {
        qos.limit_factor_millionths = factor;
    }
    if let Some(factor) = ask.usage_factor_millionths {
        qos.usage_factor_millionths = Some(factor);
    }
    set_limits(&mut qos.limits, &ask.limits, true)
}
