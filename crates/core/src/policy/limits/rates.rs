//! Rates of use that counts towards limits, as the jobs that run make them: they change when jobs do, and when an account gets another
//! parent or a user an association for a partition, so that other limits concern jobs that run already.

use super::{Charge, charged, shift_usage};
use crate::state::State;
use muster_model::account_limits::{Scope, TresUsage};
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

/// From now on all that run are charged where their limits are: O(jobs, scopes).
pub(crate) fn settle_rates(state: &mut State, at: Timestamp) {
    let mut rates: BTreeMap<Scope, TresUsage> = BTreeMap::new();
    for job in state.jobs.values() {
        let charge = charged(job);
        if charge == Charge::default() {
            continue;
        }
        for scope in state.scopes_of(job, &job.partition) {
            shift_usage(rates.entry(scope).or_default(), &charge, true);
        }
    }
    let is_rated = |usage: &TresUsage| {
        let TresUsage {
            rate,
            rate_millionths,
            ..
        } = usage;
        !rate.is_empty() || !rate_millionths.is_empty()
    };
    let all = state.accounts.tres_usage.iter();
    let gone = all.filter(|(scope, usage)| is_rated(usage) && !rates.contains_key(scope));
    for scope in gone.map(|(scope, _)| scope.clone()).collect::<Vec<_>>() {
        rates.insert(scope, TresUsage::default());
    }
    for (scope, now) in rates {
        let half_life_s = state.limits_half_life_s(&scope);
        let usage = state.accounts.tres_usage.entry(scope);
        let usage = usage.or_insert_with(|| TresUsage {
            at,
            ..TresUsage::default()
        });
        if (&usage.rate, &usage.rate_millionths) != (&now.rate, &now.rate_millionths) {
            usage.move_to(at, half_life_s);
            (usage.rate, usage.rate_millionths) = (now.rate, now.rate_millionths);
        }
    }
}
