//! Whether a job is within the limits of its QOS and associations. What a QOS limits its association does not limit as
//! well; that of the partition comes before the job's own. Limits of groups hold at each level of the tree of accounts,
//! others where they are set nearest to the user.

use super::rules::{LimitRule, SubmitRule, reason, submit_reason, written};
use super::{add_billing, submit_partitions};
use crate::state::State;
use crate::state::limit_use::CurrentUse;
use muster_model::account_limits::{Limits, Scope, TresAmount, TresAmounts, TresUsage};
use muster_model::accounts::{Qos, ROOT};
use muster_model::job::{Job, MILLION, Reason};
use muster_model::time::{TimeLimit, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A limit that keeps a job from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// Slurm's word for it.
    pub reason: Reason,
    /// The entity with the limit.
    pub scope: Scope,
    /// The limit as it is written, with its value.
    pub limit: String,
    /// So much of that counts already.
    pub used: u64,
    /// So much the job would add.
    pub asked: u64,
}

/// A job that would start, in the terms of limits.
struct Start<'a> {
    /// The resources that it would have. Without memory they are incomplete.
    tres: &'a TresAmounts,
    minutes: u64,
    nodes: u64,
    wall: TimeLimit,
    /// Factor by which its use counts, in millionths.
    factor: u64,
    /// The factor by which the use up to its time limit counts where jobs must be able to run to their limits.
    safe_factor: u64,
    now: Timestamp,
    /// Jobs must be able to run to their limits.
    safe: bool,
}

impl<'a> Start<'a> {
    fn new(state: &State, job: &Job, tres: &'a TresAmounts, now: Timestamp) -> Start<'a> {
        let of = |name: &str| tres.get(name).unwrap_or(0);
        let factor = state.usage_factor_millionths(job).unwrap_or(MILLION);
        let qos = state.accounts.qos.get(state.qos_of(job));
        let applies = qos.is_some_and(|qos| qos.has(Qos::USAGE_FACTOR_SAFE));
        Start {
            tres,
            minutes: match job.time_limit {
                TimeLimit::Minutes(minutes) => u64::from(minutes),
                TimeLimit::Unlimited => u64::from(u32::MAX),
            },
            nodes: of("node"),
            wall: job.time_limit,
            factor,
            safe_factor: if applies { factor } else { MILLION },
            now,
            safe: (state.config.as_ref()).is_some_and(|c| c.order.enforce_safe),
        }
    }
}

/// The use of a scope.
struct Counts<'a> {
    used: &'a CurrentUse,
    fresh: &'a CurrentUse,
    before: Option<&'a TresUsage>,
    half_life_s: u64,
}

impl<'a> Counts<'a> {
    fn new(
        state: &'a State,
        scope: &Scope,
        beside: Beside<'a>,
        none: &'a CurrentUse,
    ) -> Counts<'a> {
        let (used, fresh) = match beside {
            Beside::Nothing => (None, None),
            Beside::Only(others) => (None, others.get(scope)),
            Beside::Use(more) => (state.limit_use.get(scope), more.get(scope)),
        };
        Counts {
            used: used.unwrap_or(none),
            fresh: fresh.unwrap_or(none),
            before: match beside {
                Beside::Use(_) | Beside::Only(_) => state.accounts.tres_usage.get(scope),
                Beside::Nothing => None,
            },
            half_life_s: state.limits_half_life_s(scope),
        }
    }

    fn jobs(&self) -> u64 {
        u64::from(self.used.jobs.saturating_add(self.fresh.jobs))
    }

    fn of(&self, name: &str) -> u64 {
        self.used.of(name).saturating_add(self.fresh.of(name))
    }

    fn run_minutes(&self, name: &str, now: Timestamp) -> u64 {
        let used = self.used.run_minutes(name, now);
        used.saturating_add(self.fresh.run_minutes(name, now))
    }

    fn minutes(&self, name: &str, now: Timestamp) -> u64 {
        let before = self.before;
        before.map_or(0, |usage| usage.minutes(name, now, self.half_life_s))
    }
}

/// Limits that are looked at one after another, the first that is broken, and those that QOS have set.
struct Check<'a> {
    start: Start<'a>,
    scope: &'a Scope,
    by_qos: BTreeSet<(LimitRule, String)>,
    over: Option<ExceededLimit>,
}

impl Check<'_> {
    /// Checks a limit: `used` counts already, and `asked` would be added. It is broken if the sum is over it.
    fn most(&mut self, rule: LimitRule, most: Option<u64>, used: u64, asked: u64) {
        let broken = |most: u64| used.saturating_add(asked) > most;
        self.look(rule, "", most, used, asked, broken);
    }

    fn look(
        &mut self,
        rule: LimitRule,
        name: &str,
        most: Option<u64>,
        used: u64,
        asked: u64,
        broken: impl Fn(u64) -> bool,
    ) {
        let Some(most) = most else { return };
        let of_qos = self.scope.is_of_qos();
        let key = (rule, name.to_owned());
        // The other limits of one QOS are not in the way of each other: each rule is looked at in one of its scopes.
        if self.by_qos.contains(&key) {
            return;
        }
        if of_qos {
            self.by_qos.insert(key);
        }
        if self.over.is_none() && broken(most) {
            let text = match name {
                "" => format!("{}={most}", written(rule)),
                _ => format!("{}={name}={most}", written(rule)),
            };
            self.over = Some(ExceededLimit {
                reason: reason(rule, name, of_qos),
                scope: self.scope.clone(),
                limit: text,
                used,
                asked,
            });
        }
    }

    fn each(
        &mut self,
        rule: LimitRule,
        limits: &TresAmounts,
        used: impl Fn(&str, u64) -> (u64, u64),
    ) {
        for TresAmount { name, amount: most } in limits {
            let asked = self.start.tres.get(name).unwrap_or(0);
            let (used, more) = used(name, asked);
            // A job that asks for none of it is not kept back by others that have too much.
            self.look(rule, name, Some(*most), used, more, |most| {
                asked > 0 && used.saturating_add(more) > most
            });
        }
    }

    fn group(&mut self, limits: &Limits, counts: &Counts<'_>) {
        let (now, safe) = (self.start.now, self.start.safe);
        let (minutes, factor) = (self.start.minutes, self.start.safe_factor);
        let counted = |asked: u64| counted_minutes(asked, minutes, factor);
        let jobs = limits.grp_jobs.map(u64::from);
        self.most(LimitRule::GrpJobs, jobs, counts.jobs(), 1);
        self.each(LimitRule::GrpTres, &limits.grp_tres, |name, asked| {
            (counts.of(name), asked)
        });
        // Without `safe` a job starts while there is anything left.
        self.each(LimitRule::GrpMins, &limits.grp_tres_mins, |name, asked| {
            let used = counts.minutes(name, now);
            match safe {
                true => (
                    used.saturating_add(counts.run_minutes(name, now)),
                    counted(asked),
                ),
                false => (used, 1),
            }
        });
        self.run_minutes(LimitRule::GrpRunMins, &limits.grp_tres_run_mins, counts);
        let used = counts.minutes("wall", now);
        let asked = if safe { counted(1) } else { 1 };
        self.most(LimitRule::GrpWall, limits.grp_wall_min, used, asked);
    }

    /// Resource minutes that running jobs may still use, this one included.
    fn run_minutes(&mut self, rule: LimitRule, most: &TresAmounts, counts: &Counts<'_>) {
        let (now, minutes, factor) = (self.start.now, self.start.minutes, self.start.factor);
        self.each(rule, most, |name, asked| {
            let used = counts.run_minutes(name, now);
            (used, counted_minutes(asked, minutes, factor))
        });
    }

    /// Limits that the scope has.
    fn scope_limits(&mut self, limits: &Limits, counts: &Counts<'_>) {
        let jobs = |most: Option<u32>| most.map(u64::from);
        match self.scope {
            Scope::Account(_) => self.group(limits, counts),
            Scope::Qos(_) => {
                self.group(limits, counts);
                self.job(limits);
            }
            Scope::Association(..) | Scope::PartitionAssociation(..) => {
                let most = jobs(limits.max_jobs);
                self.most(LimitRule::MaxJobs, most, counts.jobs(), 1);
                self.group(limits, counts);
                self.job(limits);
            }
            Scope::QosUser(..) => {
                let most = jobs(limits.max_jobs);
                self.most(LimitRule::MaxJobs, most, counts.jobs(), 1);
                let used = |name: &str, asked: u64| (counts.of(name), asked);
                self.each(LimitRule::PerUser, &limits.max_tres_user, used);
                let most = &limits.max_tres_run_mins_user;
                self.run_minutes(LimitRule::RunMinsPerUser, most, counts);
            }
            Scope::QosAccount(..) => {
                let most = jobs(limits.max_jobs_account);
                self.most(LimitRule::JobsPerAccount, most, counts.jobs(), 1);
                let used = |name: &str, asked: u64| (counts.of(name), asked);
                self.each(LimitRule::PerAccount, &limits.max_tres_account, used);
                let most = &limits.max_tres_run_mins_account;
                self.run_minutes(LimitRule::RunMinsPerAccount, most, counts);
            }
        }
    }

    /// Limits of each job.
    fn job(&mut self, limits: &Limits) {
        let (minutes, nodes) = (self.start.minutes, self.start.nodes.max(1));
        let asked = match self.start.wall {
            // A job without a time limit has that of `MaxWall`. With none at all no job runs.
            TimeLimit::Minutes(minutes) => u64::from(minutes.max(1)),
            TimeLimit::Unlimited => u64::MAX,
        };
        let most = limits.max_wall_min.map(u64::from);
        self.most(LimitRule::MaxWall, most, 0, asked);
        self.each(LimitRule::MaxTres, &limits.max_tres, |_, asked| (0, asked));
        self.each(LimitRule::MaxMins, &limits.max_tres_mins, |_, asked| {
            (0, asked.saturating_mul(minutes))
        });
        self.each(LimitRule::PerNode, &limits.max_tres_node, |_, asked| {
            (0, asked.div_ceil(nodes))
        });
        // Less than all of it does not show the least that it has.
        let whole = self.start.tres.get("mem").is_some();
        for min in limits.min_tres.iter().filter(|_| whole) {
            let has = self.start.tres.get(&min.name).unwrap_or(0);
            let (rule, least) = (LimitRule::MinTres, Some(min.amount));
            self.look(rule, &min.name, least, 0, has, |least| has < least);
        }
    }
}

/// Limits of a scope for a job: `LimitFactor` of its QOS multiplies those on resources that associations have (sacctmgr(1)).
pub(super) fn limits_for(state: &State, scope: &Scope, job: &Job) -> Limits {
    let mut limits = state.limits_in(scope);
    let qos = state.accounts.qos.get(state.qos_of(job));
    let factor = qos.and_then(|qos| qos.limit_factor_millionths);
    if let (Some(factor), false) = (factor.filter(|factor| *factor > 0), scope.is_of_qos()) {
        limits.grp_tres.multiply(factor);
        limits.max_tres.multiply(factor);
    }
    limits
}

impl State {
    /// Limits of a scope, and of what there was set above for a user in an account.
    pub(super) fn limits_in(&self, scope: &Scope) -> Limits {
        let accounts = &self.accounts;
        match scope {
            Scope::Account(name) if name == ROOT => accounts.root.limits.clone(),
            Scope::Account(name) => {
                let record = accounts.accounts.get(name);
                record.map(|a| a.terms.limits.clone()).unwrap_or_default()
            }
            Scope::Association(account, user) => limits_of(self, account, user, ""),
            Scope::PartitionAssociation(account, user, partition) => {
                limits_of(self, account, user, partition)
            }
            Scope::Qos(name) | Scope::QosUser(name, _) | Scope::QosAccount(name, _) => {
                let record = accounts.qos.get(name);
                record.map(|q| q.limits.clone()).unwrap_or_default()
            }
        }
    }

    /// Whether anything is limited for a scope.
    pub fn is_limited(&self, scope: &Scope) -> bool {
        !self.limits_in(scope).is_empty()
    }

    /// Whether the passing of time alone may let a job start that this keeps back.
    pub fn is_limited_by_use(reason: Reason) -> bool {
        let name = reason.name();
        reason == Reason::QOSUsageThreshold
            || name.contains("Minutes") && name.contains("Grp")
            || name.contains("RunMinsPer")
            || name.ends_with("GrpWallLimit")
    }

    /// Slurm's word for the limit that keeps `tasks` more jobs of this kind from being submitted.
    pub fn submit_limit(&self, job: &Job, tasks: u32) -> Option<&'static str> {
        submit_limit_beside(self, job, true, tasks, |_, used| Some(used))
    }

    /// The limit that a job is over whatever others have, if its QOS or its partition's refuses such jobs (`DenyOnLimit`). As in
    /// Slurm, one that waits must be within those of each of its partitions.
    pub fn denied_by(&self, job: &Job, waits: bool, now: Timestamp) -> Option<ExceededLimit> {
        if !self.keeps_limits() {
            return None;
        }
        let qos = &self.accounts.qos;
        let has_flag = |name: &str| qos.get(name).is_some_and(|qos| qos.has("DenyOnLimit"));
        let is_own = has_flag(self.qos_of(job));
        let denies = |name: &&str| {
            let of_partition = self.partition(name).and_then(|p| p.qos.as_deref());
            is_own || of_partition.is_some_and(has_flag)
        };
        let partitions = submit_partitions(self, job, waits).into_iter();
        let mut denying = partitions.filter(denies);
        denying.find_map(|name| {
            let mut tres = least_of(job);
            add_billing(self, name, &mut tres);
            self.over_limit(job, name, &tres, Beside::Nothing, now)
        })
    }

    /// The limit that keeps a job from starting with these resources in that partition, given the use beside the
    /// state's.
    pub fn start_limit(
        &self,
        job: &Job,
        partition: &str,
        tres: &TresAmounts,
        more: &BTreeMap<Scope, CurrentUse>,
        now: Timestamp,
    ) -> Option<ExceededLimit> {
        missing(self, job, partition)
            .or_else(|| self.over_limit(job, partition, tres, Beside::Use(more), now))
            .or_else(|| below_threshold(self, job))
    }

    /// The limit that keeps a waiting job back, as far as that follows from its request.
    pub fn waits_for_limit(&self, job: &Job, now: Timestamp) -> Option<ExceededLimit> {
        let (tres, none) = (least_of(job), BTreeMap::new());
        let partitions = job.spec.partitions.iter();
        let over = partitions.map(|name| self.start_limit(job, name, &tres, &none, now));
        // One partition in which it may start is enough.
        let all: Option<Vec<ExceededLimit>> = over.collect();
        all?.into_iter().next()
    }

    fn over_limit(
        &self,
        job: &Job,
        partition: &str,
        tres: &TresAmounts,
        beside: Beside<'_>,
        now: Timestamp,
    ) -> Option<ExceededLimit> {
        if !self.keeps_limits() {
            return None;
        }
        let scopes = self.scopes_of(job, partition);
        let mut check = Check {
            start: Start::new(self, job, tres, now),
            scope: scopes.first()?,
            by_qos: BTreeSet::new(),
            over: None,
        };
        let none = CurrentUse::default();
        for scope in &scopes {
            check.scope = scope;
            let limits = limits_for(self, scope, job);
            if limits.is_empty() {
                continue;
            }
            check.scope_limits(&limits, &Counts::new(self, scope, beside, &none));
            if check.over.is_some() {
                return check.over;
            }
        }
        None
    }

    /// Scopes that have used all that they may in the course of time: their jobs are ended, unless none is started
    /// that could come to that (`safe`).
    pub(crate) fn used_up(&self, now: Timestamp) -> BTreeSet<Scope> {
        let config = self.config.as_ref();
        if !self.keeps_limits() || config.is_some_and(|c| c.order.enforce_safe) {
            return BTreeSet::new();
        }
        let all = self.accounts.tres_usage.iter();
        let over = all.filter(|(scope, usage)| {
            if matches!(scope, Scope::QosUser(..) | Scope::QosAccount(..)) {
                return false;
            }
            let (limits, half_life_s) = (self.limits_in(scope), self.limits_half_life_s(scope));
            let used = |name: &str| usage.minutes(name, now, half_life_s);
            let mut tres = limits.grp_tres_mins.iter();
            let wall = limits.grp_wall_min.is_some_and(|most| used("wall") >= most);
            wall || tres.any(|most| used(&most.name) >= most.amount)
        });
        over.map(|(scope, _)| scope.clone()).collect()
    }
}

/// Slurm's word for the limit that keeps `tasks` more jobs of this kind from being submitted, to all of their partitions if they wait.
/// `counts` gives the number that counts for a scope, from the state's: `None` where it is no more than before.
pub(crate) fn submit_limit_beside(
    state: &State,
    job: &Job,
    waits: bool,
    tasks: u32,
    counts: impl Fn(&Scope, u32) -> Option<u32>,
) -> Option<&'static str> {
    if !state.keeps_limits() {
        return None;
    }
    let partitions = submit_partitions(state, job, waits).into_iter();
    let mut limits = partitions.filter_map(|partition| {
        let scopes = state.scopes_of(job, partition);
        submit_limit_of(state, scopes, tasks, &counts)
    });
    limits.next()
}

/// As above, for these scopes.
fn submit_limit_of(
    state: &State,
    scopes: Vec<Scope>,
    tasks: u32,
    counts: impl Fn(&Scope, u32) -> Option<u32>,
) -> Option<&'static str> {
    let mut by_qos: BTreeSet<SubmitRule> = BTreeSet::new();
    for scope in scopes {
        let limits = state.limits_in(&scope);
        let used = state.limit_use.get(&scope).map_or(0, |u| u.submitted);
        let used = counts(&scope, used);
        let checks: &[(SubmitRule, Option<u32>)] = match &scope {
            Scope::Account(_) | Scope::Qos(_) => &[(SubmitRule::Group, limits.grp_submit)],
            Scope::Association(..) | Scope::PartitionAssociation(..) => &[
                (SubmitRule::Group, limits.grp_submit),
                (SubmitRule::User, limits.max_submit),
            ],
            Scope::QosUser(..) => &[(SubmitRule::User, limits.max_submit)],
            Scope::QosAccount(..) => &[(SubmitRule::Account, limits.max_submit_account)],
        };
        let of_qos = !matches!(
            scope,
            Scope::Account(_) | Scope::Association(..) | Scope::PartitionAssociation(..)
        );
        for (rule, most) in checks {
            let Some(most) = most else { continue };
            // A limit of a QOS on each user or on each account replaces one of the association.
            let is_set = match (of_qos, rule) {
                (false, SubmitRule::User) => {
                    by_qos.contains(&SubmitRule::User) || by_qos.contains(&SubmitRule::Account)
                }
                _ => by_qos.contains(rule),
            };
            if is_set {
                continue;
            }
            if of_qos {
                by_qos.insert(*rule);
            }
            if used.is_some_and(|used| used.saturating_add(tasks) > *most) {
                return Some(submit_reason(*rule, of_qos));
            }
        }
    }
    None
}

/// An amount times minutes, as far as it counts, in millionths.
fn counted_minutes(asked: u64, minutes: u64, factor: u64) -> u64 {
    let all = u128::from(asked) * u128::from(minutes) * u128::from(factor);
    u64::try_from(all / u128::from(MILLION)).unwrap_or(u64::MAX)
}

/// Whether anything of accounting may keep a job from starting.
pub fn checks_starts(state: &State) -> bool {
    let order = state.config.as_ref().map(|config| &config.order);
    order.is_some_and(|o| o.enforce_limits || o.enforce_associations || o.enforce_qos)
}

/// The association or the QOS that the job was submitted with and that is gone, where they are enforced.
fn missing(state: &State, job: &Job, partition: &str) -> Option<ExceededLimit> {
    let order = &state.config.as_ref()?.order;
    let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
    let all = &state.accounts;
    let over = |reason: Reason, scope: Scope, limit: String| ExceededLimit {
        reason,
        scope,
        limit,
        used: 0,
        asked: 1,
    };
    if order.enforce_associations && !all.has_association_in(account, user, partition) {
        let scope = Scope::Association(account.to_owned(), user.clone());
        let text = format!("user {user} has no association in account {account}");
        return Some(over(Reason::InvalidAccount, scope, text));
    }
    let qos = state.qos_of(job);
    let is_granted = job.spec.has_granted_qos();
    if order.enforce_qos && !is_granted && !all.allows_qos(account, user, partition, qos) {
        let text = format!("user {user} may not use QOS {qos} in account {account}");
        return Some(over(Reason::InvalidQOS, Scope::Qos(qos.to_owned()), text));
    }
    None
}

/// The threshold of the job's QOS, where the fair share of its association is below it and the QOS enforces it.
fn below_threshold(state: &State, job: &Job) -> Option<ExceededLimit> {
    let name = state.qos_of(job);
    let qos = (state.accounts.qos.get(name)).filter(|_| state.keeps_limits())?;
    let enforced = qos.has(Qos::ENFORCE_USAGE_THRESHOLD);
    let least = qos.usage_threshold_millionths.filter(|_| enforced)? as f64 / MILLION as f64;
    let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
    let share = state.accounts.fair_share(account, user);
    (share < least).then(|| ExceededLimit {
        reason: Reason::QOSUsageThreshold,
        scope: Scope::Qos(name.to_owned()),
        limit: format!("UsageThreshold={least}"),
        used: 0,
        asked: 1,
    })
}

/// Limits of a user in an account, in that partition, with those of the accounts above where it has none.
fn limits_of(state: &State, account: &str, user: &str, partition: &str) -> Limits {
    let accounts = &state.accounts;
    let own = accounts
        .user(user)
        .and_then(|u| u.association(account, partition));
    let mut limits = own.map(|t| t.limits.clone()).unwrap_or_default();
    for above in accounts.terms_of_account(account) {
        limits.inherit(&above.limits);
    }
    limits
}

/// The limit that a job would be over beside the use at that time and the use before, whatever is in use now.
pub(crate) fn over_beside(
    state: &State,
    job: &Job,
    beside: &BTreeMap<Scope, CurrentUse>,
    now: Timestamp,
) -> Option<ExceededLimit> {
    let mut tres = least_of(job);
    // Not worked out, but not nothing: who has used up all has none of it left.
    tres.push("billing", 1);
    state.over_limit(job, &job.partition, &tres, Beside::Only(beside), now)
}

/// The use beside a job.
#[derive(Clone, Copy)]
enum Beside<'u> {
    /// Nothing: as if nobody else had anything.
    Nothing,
    /// This, and the earlier use.
    Only(&'u BTreeMap<Scope, CurrentUse>),
    /// The current and the earlier use, and this.
    Use(&'u BTreeMap<Scope, CurrentUse>),
}

/// CPUs and nodes that a job asks for at least.
pub(crate) fn least_of(job: &Job) -> TresAmounts {
    let ask = &job.spec.ask;
    TresAmounts::from_iter([
        ("cpu", u64::from(ask.min_cpus())),
        ("node", u64::from(ask.min_nodes)),
    ])
}
