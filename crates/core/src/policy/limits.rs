//! Whether jobs are within the limits of associations and QOS (`AccountingStorageEnforce=limits`): the number that may
//! run or be submitted, their resources at once, and their use in the course of time. The use of each is kept as jobs
//! change, so that a check costs as much as the tree of accounts is deep. Whether a job is within its limits is in
//! `verdict`, the gain of age by waiting jobs in `accrual`, the names under which use is kept in `user_names`, the text
//! form of limits in [`muster_model::account_limits`].

mod accrual;
mod amounts;
mod default_limit;
mod listing;
mod node_range;
mod rates;
mod rules;
mod user_names;
mod verdict;

pub(crate) use amounts::note_counts;
pub use amounts::{add_billing, amounts, amounts_to_start, device_names, license_name};
pub use default_limit::default_limit;
pub use listing::uses;
pub(crate) use node_range::most_nodes;
pub(crate) use rates::settle_rates;
pub(crate) use user_names::{fold_names, kept_name, rename_use};
pub(crate) use verdict::least_of;
pub use verdict::{ExceededLimit, checks_starts};
pub(crate) use verdict::{over_beside, submit_limit_beside};

use crate::state::State;
use crate::state::limit_use::{Counted, CurrentUse};
use muster_model::account_limits::{Scope, TresAmount, TresAmounts, TresUsage};
use muster_model::accounts::Qos;
use muster_model::job::{ArrayRole, Job, JobState, MILLION, Phase};
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::iter;

/// The amounts that a running job is charged with, and the factor by which it counts (`UsageFactor`), in millionths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Charge {
    amounts: TresAmounts,
    factor: u64,
}

/// Shifts the use when a job begins or ceases to have these resources.
fn shift_usage(usage: &mut TresUsage, charge: &Charge, more: bool) {
    let shift = |rates: &mut BTreeMap<String, u64>, name: &str, by: u64| {
        let rate = rates.entry(name.to_owned()).or_default();
        *rate = match more {
            true => rate.saturating_add(by),
            false => rate.saturating_sub(by),
        };
        if *rate == 0 {
            rates.remove(name);
        }
    };
    for TresAmount { name, amount } in &charge.amounts {
        let counts = amount.saturating_mul(charge.factor);
        shift(&mut usage.rate, name, counts / MILLION);
        shift(&mut usage.rate_millionths, name, counts % MILLION);
    }
}

impl State {
    /// Accounts from that one up.
    fn accounts_above<'s>(&'s self, account: &'s str) -> impl Iterator<Item = &'s str> {
        let parent = |name: &&'s str| {
            let record = self.accounts.accounts.get(*name)?;
            Some(record.parent.as_str()).filter(|p| !p.is_empty())
        };
        // The tree has no circles; a bound costs nothing.
        std::iter::successors(Some(account), parent).take(64)
    }

    /// QOS whose limits hold for a job: that of its partition and its own, the one that says more first.
    fn qos_of_limits<'s>(&'s self, job: &'s Job, partition: &str) -> Vec<&'s str> {
        let own = self.qos_of(job);
        let of_partition = self.partition(partition).and_then(|p| p.qos.as_deref());
        let mut all = vec![own];
        if let Some(name) = of_partition.filter(|name| *name != own) {
            let own = self.accounts.qos.get(own);
            let at = usize::from(own.is_some_and(|q| q.has(Qos::OVER_PART_QOS)));
            all.insert(at, name);
        }
        all
    }

    /// The scopes of a job in that partition, those with precedence first.
    pub fn scopes_of(&self, job: &Job, partition: &str) -> Vec<Scope> {
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        let known = self.accounts.user(user);
        let user = kept_name(&self.accounts, user);
        let mut scopes = Vec::new();
        for qos in self.qos_of_limits(job, partition) {
            scopes.push(Scope::Qos(qos.to_owned()));
            scopes.push(Scope::QosUser(qos.to_owned(), user.to_owned()));
            scopes.push(Scope::QosAccount(qos.to_owned(), account.to_owned()));
        }
        let parts = known.and_then(|known| known.partitions.get(account));
        let (account, user) = (account.to_owned(), user.to_owned());
        scopes.push(
            match parts.is_some_and(|parts| parts.contains_key(partition)) {
                true => Scope::PartitionAssociation(account, user, partition.to_owned()),
                false => Scope::Association(account, user),
            },
        );
        let account = job.spec.account_name();
        let above = self.accounts_above(account);
        scopes.extend(above.map(|name| Scope::Account(name.to_owned())));
        scopes
    }

    /// The contribution of a record.
    pub(crate) fn counted(&self, job: &Job) -> Counted {
        if !self.keeps_limits() || job.is_over() {
            return Counted::default();
        }
        let runs = !job.nodes_held.is_empty() && !job.state.is_ended() && !job.completing
            || job.state == JobState::Suspended;
        let tasks = match &job.array {
            ArrayRole::Pending { indices } => u32::try_from(indices.len()).unwrap_or(u32::MAX),
            ArrayRole::None | ArrayRole::Task { .. } => 1,
        };
        let accruing = job.accruing();
        let of_partition = self.partition(&job.partition);
        let of_partition = of_partition.and_then(|p| p.qos.as_deref());
        let foreign_qos = of_partition.filter(|qos| *qos != self.qos_of(job));
        let foreign_qos = foreign_qos.map(str::to_owned);
        let scopes = self.scopes_of(job, &job.partition);
        let waits = matches!(job.phase(), Phase::Pending | Phase::Requeueing);
        let mut submitted_in = Vec::new();
        if waits && job.spec.partitions.len() > 1 {
            let all = submit_scopes(self, job, waits).into_iter();
            submitted_in = all.filter(|scope| !scopes.contains(scope)).collect();
        }
        Counted {
            scopes,
            submitted_in,
            jobs: u32::from(runs),
            // A run that is over leaves its place to no other if the job comes back.
            submitted: match job.phase() {
                Phase::Completing | Phase::Ended | Phase::Gone => 0,
                Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing => tasks,
            },
            accruing,
            foreign_qos: foreign_qos.filter(|_| accruing > 0),
            tres: match &job.alloc {
                Some(alloc) if runs => amounts(alloc),
                _ => TresAmounts::new(),
            },
            end: self.limit_end(job).filter(|_| runs),
            factor: match &job.alloc {
                Some(alloc) if runs => alloc.use_counts_millionths(),
                _ => 0,
            },
        }
    }

    /// `UsageFactor` of a job's QOS in millionths, absent where it is 1.
    pub fn usage_factor_millionths(&self, job: &Job) -> Option<u64> {
        let qos = self.accounts.qos.get(self.qos_of(job))?;
        qos.usage_factor_millionths.filter(|f| *f != MILLION)
    }

    /// The priority below which no nodes are kept for a job (`MinPrioThreshold`).
    pub fn min_priority(&self, job: &Job, partition: &str) -> u32 {
        let limits = self.qos_of_limits(job, partition).into_iter();
        let mut limits = limits.filter_map(|name| self.accounts.qos.get(name)?.limits.min_priority);
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        let mut terms = self.accounts.terms(account, user, partition);
        let least = limits
            .next()
            .or_else(|| terms.find_map(|terms| terms.limits.min_priority));
        least.filter(|_| self.keeps_limits()).unwrap_or(0)
    }

    /// Updates use as a record changes.
    pub(crate) fn shift_counted(&mut self, before: &Counted, after: &Counted) {
        if before == after {
            return;
        }
        for (counted, more) in [(before, false), (after, true)] {
            for scope in &counted.scopes {
                let used = self.limit_use.entry(scope.clone()).or_default();
                used.shift(counted, more);
                if counted.accrues_in(scope) {
                    used.accruing = match more {
                        true => used.accruing.saturating_add(counted.accruing),
                        false => used.accruing.saturating_sub(counted.accruing),
                    };
                }
                if *used == CurrentUse::default() {
                    self.limit_use.remove(scope);
                }
            }
            for scope in &counted.submitted_in {
                let used = self.limit_use.entry(scope.clone()).or_default();
                used.submitted = match more {
                    true => used.submitted.saturating_add(counted.submitted),
                    false => used.submitted.saturating_sub(counted.submitted),
                };
                if *used == CurrentUse::default() {
                    self.limit_use.remove(scope);
                }
            }
        }
    }

    /// A job that runs uses this from now on, or no more: kept where limits are, for those of use in the course of time.
    pub(crate) fn charge_limits(
        &mut self,
        scopes: &[Scope],
        (before, after): (&Charge, &Charge),
        at: Timestamp,
    ) {
        for scope in scopes {
            let half_life_s = self.limits_half_life_s(scope);
            let new = || TresUsage {
                at,
                ..TresUsage::default()
            };
            let usage = &mut self.accounts.tres_usage;
            let usage = usage.entry(scope.clone()).or_insert_with(new);
            usage.move_to(at, half_life_s);
            shift_usage(usage, before, false);
            shift_usage(usage, after, true);
        }
    }

    /// Half-life of use that counts towards limits: as for fair share, and none without that.
    fn limits_half_life_s(&self, scope: &Scope) -> u64 {
        let kept = match scope {
            Scope::Qos(name) => self
                .accounts
                .qos
                .get(name)
                .is_some_and(|q| q.has("NoDecay")),
            _ => false,
        };
        let settings = self
            .config
            .as_ref()
            .and_then(|c| c.order.multifactor.as_ref());
        settings.filter(|_| !kept).map_or(0, |s| s.half_life_s)
    }
}

/// The partitions whose limits on submitted jobs hold for a job: where it waits in several, each that has a QOS or an association
/// of its own, and the first of the others.
fn submit_partitions<'s>(state: &'s State, job: &'s Job, waits: bool) -> Vec<&'s str> {
    let named = &job.spec.partitions;
    if !waits || named.len() < 2 {
        return vec![&job.partition];
    }
    let own = state.qos_of(job);
    let qos = state.partitions.iter().filter_map(|p| {
        let qos = p.qos.as_deref().filter(|qos| *qos != own)?;
        Some((p.name.as_str(), qos))
    });
    let qos: HashMap<&str, &str> = qos.collect();
    let known = state.accounts.user(&job.spec.owner.user);
    let parts = known.and_then(|known| known.partitions.get(job.spec.account_name()));
    let of_association = |name: &str| Some(parts?.get_key_value(name)?.0.as_str());
    let mut seen = HashSet::new();
    let all = iter::once(&job.partition).chain(named).map(String::as_str);
    all.filter(|name| seen.insert((qos.get(name), of_association(name))))
        .collect()
}

/// The scopes for which a job counts as submitted: in Slurm, too, a job that waits counts in all of its partitions.
pub(crate) fn submit_scopes(state: &State, job: &Job, waits: bool) -> BTreeSet<Scope> {
    let partitions = submit_partitions(state, job, waits).into_iter();
    let scopes = partitions.flat_map(|partition| state.scopes_of(job, partition));
    scopes.collect()
}

/// The rate at which a running job is charged, and its time.
pub(crate) fn charged(job: &Job) -> Charge {
    match (job.state, &job.alloc) {
        (JobState::Running, Some(alloc)) if !job.completing => {
            let mut all = amounts(alloc);
            all.push("wall", 1);
            Charge {
                amounts: all,
                factor: alloc.use_counts_millionths(),
            }
        }
        _ => Charge::default(),
    }
}
