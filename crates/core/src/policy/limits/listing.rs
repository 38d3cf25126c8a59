//! Use of all associations and QOS, for listings.

use crate::state::State;
use crate::state::limit_use::CurrentUse;
use muster_model::account_limits::{Scope, ScopeUse, TresAmounts, TresUsage};
use muster_model::time::Timestamp;
use std::collections::BTreeSet;

/// Hundredths of a minute in a second.
const HUNDREDTHS_PER_S: f64 = 100.0 / 60.0;

/// Use that counts towards limits at that moment, of each scope that has any.
pub fn uses(state: &State, now: Timestamp) -> Vec<ScopeUse> {
    let over_time = state.accounts.tres_usage.keys();
    let scopes: BTreeSet<&Scope> = state.limit_use.keys().chain(over_time).collect();
    let none = CurrentUse::default();
    let of = |scope: &Scope| {
        let used = state.limit_use.get(scope).unwrap_or(&none);
        let mut before = state.accounts.tres_usage.get(scope).cloned();
        if let Some(usage) = &mut before {
            usage.move_to(now, state.limits_half_life_s(scope));
        }
        scope_use(scope, used, &before.unwrap_or_default(), now)
    };
    scopes.into_iter().map(of).collect()
}

fn scope_use(scope: &Scope, used: &CurrentUse, before: &TresUsage, now: Timestamp) -> ScopeUse {
    let names = used.ends.keys();
    let run_minutes = names.map(|name| (name.clone(), used.run_minutes(name, now)));
    let raw = before.raw.iter().filter(|(name, _)| *name != "wall");
    let minutes = raw.map(|(name, seconds)| (name.clone(), (seconds / 60.0) as u64));
    let tres = used
        .tres
        .iter()
        .map(|(name, amount)| (name.clone(), *amount));
    let wall_s = before.raw.get("wall").copied().unwrap_or(0.0);
    ScopeUse {
        scope: scope.clone(),
        jobs: used.jobs,
        submitted: used.submitted,
        accruing: used.accruing,
        tres: tres.collect::<TresAmounts>(),
        run_minutes: run_minutes.collect::<TresAmounts>(),
        minutes: minutes.collect::<TresAmounts>(),
        wall_hundredths: (wall_s * HUNDREDTHS_PER_S) as u64,
    }
}
