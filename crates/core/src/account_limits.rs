//! Limits of associations and QOS (`AccountingStorageEnforce=limits`): how many jobs may run or be submitted, what they
//! may have at once, and how much they may use in the course of time. What counts towards each is kept as jobs change,
//! so that looking is a matter of the depth of the tree of accounts. How limits are written is in `edit`, whether a job
//! is within them in `verdict`, which of those that wait gain age in `accrual`.

mod accrual;
mod edit;
mod verdict;

pub use accrual::AccrualGroup;
pub use edit::{LimitAsk, NOT_KEPT};
pub use verdict::Over;

use crate::accounts::Qos;
use crate::job::{Allocation, ArrayRole, Job, JobState, MILLION};
use crate::state::State;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// Amounts of what is counted: `cpu`, `mem` (MiB), `node`, `gres/NAME`.
pub type Amounts = Vec<(String, u64)>;

/// The limits of an association or a QOS; absent and empty is no limit.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Limits {
    /// `GrpJobs`: running, of all below an account or with a QOS.
    #[n(0)]
    pub grp_jobs: Option<u32>,
    /// `GrpSubmitJobs`: running and waiting, likewise.
    #[n(1)]
    pub grp_submit: Option<u32>,
    /// `GrpTRES`: in use at once, likewise.
    #[n(2)]
    pub grp_tres: Amounts,
    /// `MaxJobs`: running, of each user in an account; `MaxJobsPerUser` of a QOS.
    #[n(3)]
    pub max_jobs: Option<u32>,
    /// `MaxSubmitJobs`: running and waiting, likewise.
    #[n(4)]
    pub max_submit: Option<u32>,
    /// `MaxTRES` of each job.
    #[n(5)]
    pub max_tres: Amounts,
    /// `MaxWall` of each job, minutes.
    #[n(6)]
    pub max_wall_min: Option<u32>,
    /// `MaxTRESPerUser` of a QOS.
    #[n(7)]
    pub max_tres_user: Amounts,
    /// `GrpWall`: run times of all below an account or with a QOS, added up, minutes.
    #[n(8)]
    pub grp_wall_min: Option<u64>,
    /// `GrpTRESMins`: what they have used times minutes.
    #[n(9)]
    #[cbor(default)]
    pub grp_tres_mins: Amounts,
    /// `GrpTRESRunMins`: what those that run have, times the minutes that they may still run.
    #[n(10)]
    #[cbor(default)]
    pub grp_tres_run_mins: Amounts,
    /// `MaxTRESMins` of each job: what it has times the minutes of its limit.
    #[n(11)]
    #[cbor(default)]
    pub max_tres_mins: Amounts,
    /// `MaxTRESPerNode` of each job, on average over its nodes.
    #[n(12)]
    #[cbor(default)]
    pub max_tres_node: Amounts,
    /// `MaxJobsPerAccount` of a QOS.
    #[n(13)]
    pub max_jobs_account: Option<u32>,
    /// `MaxSubmitJobsPerAccount` of a QOS.
    #[n(14)]
    pub max_submit_account: Option<u32>,
    /// `MaxTRESPerAccount` of a QOS.
    #[n(15)]
    #[cbor(default)]
    pub max_tres_account: Amounts,
    /// `MinTRESPerJob` of a QOS.
    #[n(16)]
    #[cbor(default)]
    pub min_tres: Amounts,
    /// `MinPrioThreshold` of a QOS: no nodes are kept for jobs of a lower priority.
    #[n(17)]
    pub min_priority: Option<u32>,
    /// `GrpJobsAccrue`: waiting, of all below an account or with a QOS, that gain age.
    #[n(18)]
    pub grp_jobs_accrue: Option<u32>,
    /// `MaxJobsAccrue`: likewise, of each user in an account; `MaxJobsAccruePerUser` of a QOS.
    #[n(19)]
    pub max_jobs_accrue: Option<u32>,
    /// `MaxJobsAccruePerAccount` of a QOS.
    #[n(20)]
    pub max_jobs_accrue_account: Option<u32>,
    /// `MaxTRESRunMinsPerUser` of a QOS: what a user's jobs that run have, times the minutes that they may still run.
    #[n(21)]
    #[cbor(default)]
    pub max_tres_run_mins_user: Amounts,
    /// `MaxTRESRunMinsPerAccount` of a QOS: likewise, of an account's jobs.
    #[n(22)]
    #[cbor(default)]
    pub max_tres_run_mins_account: Amounts,
}

/// The entity whose use is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Scope {
    /// An account with all below it.
    #[n(0)]
    Account(#[n(0)] String),
    /// A user in an account.
    #[n(1)]
    Association(#[n(0)] String, #[n(1)] String),
    /// A QOS.
    #[n(2)]
    Qos(#[n(0)] String),
    /// A user with a QOS.
    #[n(3)]
    QosUser(#[n(0)] String, #[n(1)] String),
    /// An account with a QOS.
    #[n(4)]
    QosAccount(#[n(0)] String, #[n(1)] String),
}

/// Use of a scope: over time, and now.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct TresUsage {
    /// As of when `raw` is.
    #[n(0)]
    pub at: Timestamp,
    /// Amounts times seconds, decayed to `at`, by name; `wall` counts jobs.
    #[n(1)]
    pub raw: BTreeMap<String, f64>,
    /// Amounts of jobs that run.
    #[n(2)]
    pub rate: BTreeMap<String, u64>,
    /// And parts of one, in millionths, where a `UsageFactor` makes some.
    #[n(3)]
    #[cbor(default)]
    pub rate_millionths: BTreeMap<String, u64>,
}

/// What a job that runs is charged with, and how far it counts (`UsageFactor`), in millionths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Charge {
    amounts: Amounts,
    factor: u64,
}

impl TresUsage {
    /// Brings it to a later time.
    pub(crate) fn move_to(&mut self, now: Timestamp, half_life_s: u64) {
        let seconds = now.since_ms(self.at) as f64 / 1000.0;
        self.at = self.at.max(now);
        let (left, grown) = decay(seconds, half_life_s);
        self.raw.values_mut().for_each(|raw| *raw *= left);
        for (name, rate) in &self.rate {
            *self.raw.entry(name.clone()).or_default() += *rate as f64 * grown;
        }
        for (name, rate) in &self.rate_millionths {
            *self.raw.entry(name.clone()).or_default() += *rate as f64 / 1e6 * grown;
        }
    }

    /// Amount times minutes at a later time.
    fn minutes(&self, name: &str, now: Timestamp, half_life_s: u64) -> u64 {
        let seconds = now.since_ms(self.at) as f64 / 1000.0;
        let (left, grown) = decay(seconds, half_life_s);
        let raw = self.raw.get(name).copied().unwrap_or(0.0);
        let of = |rates: &BTreeMap<String, u64>| rates.get(name).copied().unwrap_or(0) as f64;
        let rate = of(&self.rate) + of(&self.rate_millionths) / 1e6;
        ((raw * left + rate * grown) / 60.0) as u64
    }

    /// A job begins or ceases to have so much.
    pub(crate) fn shift(&mut self, charge: &Charge, more: bool) {
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
        for (name, amount) in &charge.amounts {
            let counts = amount.saturating_mul(charge.factor);
            shift(&mut self.rate, name, counts / MILLION);
            shift(&mut self.rate_millionths, name, counts % MILLION);
        }
    }
}

/// The part of what was used that counts after so many seconds, and what one unit that is used all that time adds.
fn decay(seconds: f64, half_life_s: u64) -> (f64, f64) {
    if half_life_s == 0 {
        return (1.0, seconds);
    }
    let life = half_life_s as f64;
    let left = (-seconds / life).exp2();
    (left, life / std::f64::consts::LN_2 * (1.0 - left))
}

/// Current use that limits compare with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InUse {
    /// Jobs that run.
    pub jobs: u32,
    /// Jobs that run or wait, tasks of arrays one by one.
    pub submitted: u32,
    /// Jobs that wait and gain age, likewise.
    pub accruing: u32,
    /// Resources of running jobs.
    pub tres: BTreeMap<String, u64>,
    /// What counts of it towards use, in millionths, and the same times the seconds since 1970 at which they end at
    /// the latest, for those that have limits.
    pub ends: BTreeMap<String, (u64, u128)>,
}

/// The contribution of one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    scopes: Vec<Scope>,
    jobs: u32,
    submitted: u32,
    accruing: u32,
    /// The partition's QOS, where that is not its own: it does not limit who gains age.
    foreign_qos: Option<String>,
    tres: Amounts,
    /// When it ends at the latest.
    end: Option<Timestamp>,
    /// How far its use counts, in millionths.
    factor: u64,
}

/// The counted resources of an allocation.
pub fn amounts(alloc: &Allocation) -> Amounts {
    let mut out = vec![
        ("cpu".to_owned(), alloc.cpus()),
        ("mem".to_owned(), alloc.memory_mib()),
        ("node".to_owned(), alloc.nodes.len() as u64),
    ];
    let mut gres: BTreeMap<&str, u64> = BTreeMap::new();
    for share in alloc.nodes.iter().flat_map(|n| &n.gres) {
        *gres.entry(&share.name).or_default() += u64::from(share.ids.len());
    }
    let named = gres.into_iter();
    out.extend(named.map(|(name, count)| (format!("gres/{name}"), count)));
    out
}

impl Counted {
    fn accrues_in(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Qos(name) | Scope::QosUser(name, _) | Scope::QosAccount(name, _) => {
                self.foreign_qos.as_deref() != Some(name)
            }
            Scope::Account(_) | Scope::Association(..) => true,
        }
    }
}

impl InUse {
    fn shift(&mut self, counted: &Counted, more: bool) {
        let shift = |value: u32, by: u32| match more {
            true => value.saturating_add(by),
            false => value.saturating_sub(by),
        };
        self.jobs = shift(self.jobs, counted.jobs);
        self.submitted = shift(self.submitted, counted.submitted);
        for (name, amount) in &counted.tres {
            let value = self.tres.entry(name.clone()).or_default();
            *value = match more {
                true => value.saturating_add(*amount),
                false => value.saturating_sub(*amount),
            };
        }
        self.tres.retain(|_, amount| *amount > 0);
        let Some(end) = counted.end else { return };
        let end_s = u128::try_from(end.unix_s()).unwrap_or(0);
        for (name, amount) in &counted.tres {
            let (all, ends) = self.ends.entry(name.clone()).or_default();
            let amount = amount.saturating_mul(counted.factor);
            let product = u128::from(amount) * end_s;
            (*all, *ends) = match more {
                true => (all.saturating_add(amount), ends.saturating_add(product)),
                false => (all.saturating_sub(amount), ends.saturating_sub(product)),
            };
        }
        self.ends.retain(|_, (all, _)| *all > 0);
    }

    /// With one more job running that has so much, until then at the latest; how far its use counts, in millionths.
    pub fn add(&mut self, tres: &Amounts, (end, factor): (Option<Timestamp>, u64)) {
        let counted = Counted {
            jobs: 1,
            tres: tres.clone(),
            end,
            factor,
            ..Counted::default()
        };
        self.shift(&counted, true);
    }

    /// Resources of running jobs, times the minutes that they may still run.
    fn run_minutes(&self, name: &str, now: Timestamp) -> u64 {
        let (all, ends) = self.ends.get(name).copied().unwrap_or_default();
        let now_s = u128::try_from(now.unix_s()).unwrap_or(0);
        let left_s = ends.saturating_sub(u128::from(all) * now_s) / u128::from(MILLION);
        u64::try_from(left_s / 60).unwrap_or(u64::MAX)
    }

    fn of(&self, name: &str) -> u64 {
        self.tres.get(name).copied().unwrap_or(0)
    }
}

impl State {
    /// Whether limits are kept.
    pub fn keeps_limits(&self) -> bool {
        self.config.as_ref().is_some_and(|c| c.order.enforce_limits)
    }

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
        let mut scopes = Vec::new();
        for qos in self.qos_of_limits(job, partition) {
            scopes.push(Scope::Qos(qos.to_owned()));
            scopes.push(Scope::QosUser(qos.to_owned(), user.clone()));
            scopes.push(Scope::QosAccount(qos.to_owned(), account.to_owned()));
        }
        scopes.push(Scope::Association(account.to_owned(), user.clone()));
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
        Counted {
            scopes: self.scopes_of(job, &job.partition),
            jobs: u32::from(runs),
            submitted: if job.state.is_ended() { 0 } else { tasks },
            accruing,
            foreign_qos: foreign_qos.filter(|_| accruing > 0),
            tres: match &job.alloc {
                Some(alloc) if runs => amounts(alloc),
                _ => Amounts::new(),
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
        limits.next().filter(|_| self.keeps_limits()).unwrap_or(0)
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
                if *used == InUse::default() {
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
            usage.shift(before, false);
            usage.shift(after, true);
        }
    }

    /// How fast what counts towards limits is forgotten: as for fair share, and not at all without that.
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

/// The rate at which a running job is charged, and its time.
pub(crate) fn charged(job: &Job) -> Charge {
    match (job.state, &job.alloc) {
        (JobState::Running, Some(alloc)) if !job.completing => {
            let mut all = amounts(alloc);
            all.push(("wall".to_owned(), 1));
            Charge {
                amounts: all,
                factor: alloc.use_counts_millionths(),
            }
        }
        _ => Charge::default(),
    }
}
