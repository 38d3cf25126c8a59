//! Which jobs gain age while they wait, where `GrpJobsAccrue`, `MaxJobsAccrue` and those of a QOS limit how many may at a time.
//! Places are given when jobs become eligible, and, as they become free, when priorities are worked out: the earliest eligible
//! first. Records that no such limit concerns need no place: they age since they were eligible, and count nevertheless, should
//! a limit be set while they wait.

use super::kept_name;
use crate::state::State;
use crate::state::limit_use::{AccrualGroup, AccrualTurn};
use muster_model::account_limits::{Limits, Scope};
use muster_model::ids::JobId;
use muster_model::job::{Accrual, Job};
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    /// Whether anything limits how many jobs may gain age: O(accounts, users, QOS).
    pub(crate) fn any_limits_accrual(&self) -> bool {
        let accounts = &self.accounts;
        let of_accounts = accounts.accounts.values().map(|a| &a.terms.limits);
        let users = accounts.users.values();
        let users = users.flat_map(|u| u.associations().map(|(.., terms)| terms));
        let of_qos = accounts.qos.values().map(|q| &q.limits);
        let mut all = of_accounts.chain(users.map(|t| &t.limits)).chain(of_qos);
        self.keeps_limits() && all.any(Limits::limits_accrual)
    }

    /// A record may start from now on: it gains age as far as that is not limited. Call it before its indexes follow.
    pub(crate) fn begin_accrual(&self, job: &Job) -> Option<Box<Accrual>> {
        if !accrual_is_limited(self) || !job.is_startable() {
            return None;
        }
        let group = accrual_group(self, job);
        let room = accrual_room(self, &accrual_scopes(self, &group), &BTreeMap::new())?;
        // Jobs of its kind that wait already come before it.
        let room = match self.accrual_waiting.contains_key(&group) {
            true => 0,
            false => room,
        };
        let (all, since) = (job.tasks(), job.eligible_time.unwrap_or(job.submit_time));
        if room >= all {
            return None;
        }
        let first = (room > 0).then_some((since, room));
        Some(Box::new(Accrual {
            since: first.into_iter().collect(),
        }))
    }

    /// The age of a record that changed its QOS or account: it gets its turn there.
    pub(crate) fn accrual_in_new_group(&self, before: &AccrualGroup, job: &Job) -> bool {
        accrual_is_limited(self) && job.is_startable() && accrual_group(self, job) != *before
    }

    /// The group of a record, where it matters.
    pub(crate) fn accrual_group_if_limited(&self, job: &Job) -> Option<AccrualGroup> {
        accrual_is_limited(self).then(|| accrual_group(self, job))
    }

    /// Where a record waits for its turn to gain age.
    pub(crate) fn accrual_key(&self, job: &Job) -> Option<AccrualTurn> {
        if job.accrual.is_none() || job.waits_to_accrue() == 0 {
            return None;
        }
        let since = job.eligible_time.unwrap_or(job.submit_time);
        Some(AccrualTurn {
            group: accrual_group(self, job),
            since,
        })
    }

    /// Brings the index of those that wait for their turn up to date.
    pub(crate) fn shift_accrual(
        &mut self,
        id: JobId,
        before: Option<&AccrualTurn>,
        after: Option<&AccrualTurn>,
    ) {
        if before == after {
            return;
        }
        if let Some(AccrualTurn { group, since }) = before
            && let Some(waiting) = self.accrual_waiting.get_mut(group)
        {
            waiting.remove(&(*since, id));
            if waiting.is_empty() {
                self.accrual_waiting.remove(group);
            }
        }
        if let Some(AccrualTurn { group, since }) = after {
            let waiting = self.accrual_waiting.entry(group.clone()).or_default();
            waiting.insert((*since, id));
        }
    }

    /// The records whose turn it is to gain age, and how many of their tasks: O(groups that wait, turns handed out).
    pub(crate) fn accruals_due(&self) -> Vec<(JobId, u32)> {
        let mut due = Vec::new();
        let mut given: BTreeMap<Scope, u32> = BTreeMap::new();
        let mut heads: BTreeSet<(Timestamp, JobId, &AccrualGroup)> = BTreeSet::new();
        let groups = self.accrual_waiting.iter();
        heads.extend(groups.filter_map(|(group, waiting)| {
            let (since, id) = waiting.first()?;
            Some((*since, *id, group))
        }));
        while let Some((since, id, group)) = heads.pop_first() {
            let scopes = accrual_scopes(self, group);
            let room = accrual_room(self, &scopes, &given).unwrap_or(u32::MAX);
            let wanted = self.jobs.get(&id).map_or(0, Job::waits_to_accrue);
            let tasks = room.min(wanted);
            if tasks == 0 {
                continue;
            }
            due.push((id, tasks));
            for scope in scopes {
                let given = given.entry(scope).or_default();
                *given = given.saturating_add(tasks);
            }
            let waiting = self.accrual_waiting.get(group);
            let behind = (
                std::ops::Bound::Excluded((since, id)),
                std::ops::Bound::Unbounded,
            );
            let next = waiting.and_then(|waiting| waiting.range(behind).next());
            heads.extend(next.map(|(since, id)| (*since, *id, group)));
        }
        due
    }
}
fn accrual_is_limited(state: &State) -> bool {
    state.scale.as_ref().is_some_and(|s| s.limits_accrual())
}

fn accrual_group(state: &State, job: &Job) -> AccrualGroup {
    AccrualGroup {
        qos: state.qos_of(job).to_owned(),
        account: job.spec.account_name().to_owned(),
        user: kept_name(&state.accounts, &job.spec.owner.user).to_owned(),
    }
}

/// The scopes whose limits apply to jobs of a group, without the partition's QOS.
fn accrual_scopes(state: &State, group: &AccrualGroup) -> Vec<Scope> {
    let AccrualGroup { qos, account, user } = group;
    let own = [
        Scope::Qos(qos.clone()),
        Scope::QosUser(qos.clone(), user.clone()),
        Scope::QosAccount(qos.clone(), account.clone()),
        Scope::Association(account.clone(), user.clone()),
    ];
    let above = state.accounts_above(account);
    let above = above.map(|name| Scope::Account(name.to_owned()));
    own.into_iter().chain(above).collect()
}

/// Number of further tasks that may gain age, given the jobs that got a turn beside the state's counts; `None` without
/// a limit. A limit of a QOS replaces those of its associations.
fn accrual_room(state: &State, scopes: &[Scope], given: &BTreeMap<Scope, u32>) -> Option<u32> {
    let mut room: Option<u32> = None;
    let (mut group, mut each) = (false, false);
    for scope in scopes {
        let limits = state.limits_in(scope);
        let used = state.limit_use.get(scope).map_or(0, |used| used.accruing);
        let used = used.saturating_add(given.get(scope).copied().unwrap_or(0));
        let mut most = |most: Option<u32>| {
            let left = most.map(|most| most.saturating_sub(used));
            room = room.into_iter().chain(left).min();
            most.is_some()
        };
        match scope {
            Scope::Qos(_) => group |= most(limits.grp_jobs_accrue),
            Scope::QosUser(..) => each |= most(limits.max_jobs_accrue),
            Scope::QosAccount(..) => {
                most(limits.max_jobs_accrue_account);
            }
            Scope::Association(..) | Scope::PartitionAssociation(..) => {
                most(limits.max_jobs_accrue.filter(|_| !each));
                most(limits.grp_jobs_accrue.filter(|_| !group));
            }
            Scope::Account(_) => {
                most(limits.grp_jobs_accrue.filter(|_| !group));
            }
        }
    }
    room
}
