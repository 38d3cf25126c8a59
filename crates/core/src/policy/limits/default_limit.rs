//! The time limit of a job that gives none.

use super::{add_billing, least_of};
use crate::state::State;
use muster_model::account_limits::{Scope, TresAmount};
use muster_model::job::Job;
use muster_model::time::TimeLimit;
use std::collections::BTreeMap;

/// The time limit of a job that gives none, in its partition, if that has no default: the least of the partition's limit, the
/// `MaxWall` of its QOS, or else of its association, and the time that `MaxTRESMins` of these leaves it.
pub fn default_limit(state: &State, job: &Job, of_partition: TimeLimit) -> TimeLimit {
    if !state.keeps_limits() {
        return of_partition;
    }
    let scopes = state.scopes_of(job, &job.partition);
    let wall = |is_qos: bool| {
        let own = scopes
            .iter()
            .filter(|s| matches!(s, Scope::Qos(_)) == is_qos);
        own.filter_map(|scope| state.limits_in(scope).max_wall_min)
            .next()
    };
    let wall = wall(true).or_else(|| wall(false));
    let least = wall.into_iter().chain(longest(state, job, &scopes)).min();
    match (least, of_partition) {
        (None, limit) => limit,
        (Some(wall), TimeLimit::Unlimited) => TimeLimit::Minutes(wall),
        (Some(wall), TimeLimit::Minutes(most)) => TimeLimit::Minutes(most.min(wall)),
    }
}

/// Minutes that a job may run within `MaxTRESMins`, of each resource as the first of the scopes says that has one; none where it
/// could not run at all.
fn longest(state: &State, job: &Job, scopes: &[Scope]) -> Option<u32> {
    let mut tres = least_of(job);
    add_billing(state, &job.partition, &mut tres);
    let mut limits: BTreeMap<String, u64> = BTreeMap::new();
    for scope in scopes {
        for TresAmount { name, amount } in &state.limits_in(scope).max_tres_mins {
            limits.entry(name.clone()).or_insert(*amount);
        }
    }
    let minutes = limits.iter().filter_map(|(name, most)| {
        let asked = tres.get(name).filter(|asked| *asked > 0)?;
        u32::try_from(most / asked).ok()
    });
    minutes.filter(|minutes| *minutes > 0).min()
}
