//! `priority/multifactor`: what a job's priority is made of. All of it is as of the last time that priorities were
//! worked out ([`crate::accounts::Accounts::calculated_at`]), so that every reader gets the same.

use crate::config::PartitionConfig;
use crate::ids::JobId;
use crate::job::Job;
use crate::order_config::{Multifactor, UsageReset};
use crate::spec::MemoryAsk;
use crate::state::State;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};

/// Factors of a job in a partition, each times its weight, and what they add up to.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Factors {
    /// Set by the site or an administrator.
    #[n(0)]
    pub site: f64,
    /// Waiting time.
    #[n(1)]
    pub age: f64,
    /// The association's priority.
    #[n(2)]
    pub assoc: f64,
    /// Fair share.
    #[n(3)]
    pub fair_share: f64,
    /// Size.
    #[n(4)]
    pub job_size: f64,
    /// The partition's `PriorityJobFactor`.
    #[n(5)]
    pub partition: f64,
    /// The QOS's priority.
    #[n(6)]
    pub qos: f64,
    /// Resources: name and weighted factor.
    #[n(7)]
    pub tres: Vec<(String, f64)>,
    /// `--nice`, taken away.
    #[n(8)]
    pub nice: i32,
}

impl Factors {
    /// All but age.
    pub fn without_age(&self) -> f64 {
        let tres: f64 = self.tres.iter().map(|(_, f)| f).sum();
        self.site + self.assoc + self.fair_share + self.job_size + self.partition + self.qos + tres
            - f64::from(self.nice)
    }

    /// The priority.
    pub fn priority(&self) -> u32 {
        let sum = self.age + self.without_age();
        // At least 1: 0 is a hold.
        sum.clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

/// What factors are divided by, and what else is the same for all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    settings: Multifactor,
    calculated_at: Timestamp,
    partition_max: f64,
    qos_max: f64,
    assoc_max: f64,
    nodes: f64,
    cpus: f64,
    limits_accrual: bool,
}

impl Scale {
    /// As the state has it; `None` if priority is first come, first served.
    pub fn new(state: &State) -> Option<Scale> {
        state.scale.clone()
    }

    /// From the rest of the state: O(nodes, partitions, QOS, associations), worked out anew when one of these changes.
    pub(crate) fn work_out(state: &State) -> Option<Scale> {
        let settings = state.config.as_ref()?.order.multifactor.clone()?;
        let parts = state.partitions.iter().map(|p| p.priority_job_factor);
        let nodes = state.nodes.iter().filter(|n| !n.removed);
        let accounts = &state.accounts;
        let plain = settings.no_normal;
        let most = |max: u32, normal: bool| if normal { f64::from(max.max(1)) } else { 1.0 };
        Some(Scale {
            calculated_at: accounts.calculated_at,
            partition_max: most(parts.max().unwrap_or(1), !plain.partition),
            qos_max: most(accounts.qos_priority_max(), !plain.qos),
            assoc_max: most(accounts.association_priority_max(), !plain.assoc),
            nodes: nodes.clone().count().max(1) as f64,
            cpus: nodes
                .map(|n| f64::from(n.config.cpus))
                .sum::<f64>()
                .max(1.0),
            limits_accrual: !settings.accrue_always && state.any_limits_accrual(),
            settings,
        })
    }

    /// The settings.
    pub fn settings(&self) -> &Multifactor {
        &self.settings
    }

    /// As of when it is.
    pub fn calculated_at(&self) -> Timestamp {
        self.calculated_at
    }

    /// Since when the job's age counts; `None` while it does not.
    pub fn ages_since(&self, job: &Job) -> Option<Timestamp> {
        if self.settings.accrue_always {
            Some(job.submit_time)
        } else {
            job.accrues_since()
        }
    }

    /// Whether the number of jobs that gain age is limited.
    pub(crate) fn limits_accrual(&self) -> bool {
        self.limits_accrual
    }

    /// What a job has where that much was worked out for it.
    pub fn kept(&self, job: &Job, priority: u32) -> u32 {
        let least = if self.settings.incr_only {
            job.priority_least
        } else {
            0
        };
        priority.max(least)
    }

    /// The weighted age factor of a job that ages since then.
    pub fn age(&self, since: Option<Timestamp>) -> f64 {
        let waited = since.map_or(0, |since| self.calculated_at.since_ms(since));
        let full = self.settings.max_age_s.max(1) * 1000;
        f64::from(self.settings.weight_age) * (waited.min(full) as f64 / full as f64)
    }

    /// The factors of a job in a partition.
    pub fn factors(&self, state: &State, job: &Job, partition: &PartitionConfig) -> Factors {
        let s = &self.settings;
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        let accounts = &state.accounts;
        let qos = accounts.qos(state.qos_of(job)).map_or(0, |q| q.priority);
        let assoc = accounts.association_priority(account, user);
        let weighted = |weight: u32, factor: f64| f64::from(weight) * factor;
        Factors {
            site: f64::from(job.spec.site_factor),
            age: self.age(self.ages_since(job)),
            assoc: weighted(s.weight_assoc, f64::from(assoc) / self.assoc_max),
            fair_share: weighted(s.weight_fair_share, accounts.fair_share(account, user)),
            job_size: weighted(s.weight_job_size, self.size(job)),
            partition: weighted(
                s.weight_partition,
                f64::from(partition.priority_job_factor) / self.partition_max,
            ),
            qos: weighted(s.weight_qos, f64::from(qos) / self.qos_max),
            tres: self.tres(state, job, partition),
            nice: job.spec.nice,
        }
    }

    /// 0 to 1: nodes and CPUs of all there are.
    fn size(&self, job: &Job) -> f64 {
        let ask = &job.spec.ask;
        let cpus = f64::from(ask.min_cpus());
        if self.settings.small_relative_to_time {
            let minutes = job
                .time_limit
                .seconds()
                .map_or(1.0, |s| (s as f64 / 60.0).max(1.0));
            let factor = (cpus / minutes / self.cpus).min(1.0);
            return if self.settings.favor_small {
                1.0 - factor
            } else {
                factor
            };
        }
        let nodes = f64::from(ask.min_nodes).min(self.nodes);
        if self.settings.favor_small {
            ((self.nodes - nodes) / self.nodes + (self.cpus - cpus.min(self.cpus)) / self.cpus)
                / 2.0
        } else {
            (nodes / self.nodes + cpus.min(self.cpus) / self.cpus) / 2.0
        }
    }

    fn tres(&self, state: &State, job: &Job, partition: &PartitionConfig) -> Vec<(String, f64)> {
        if self.settings.weight_tres.is_empty() {
            return Vec::new();
        }
        let ask = &job.spec.ask;
        let nodes = f64::from(ask.min_nodes);
        let cpus = f64::from(ask.min_cpus());
        let mib = match ask.memory {
            MemoryAsk::Default => 0.0,
            MemoryAsk::PerNode(mib) => mib as f64 * nodes,
            MemoryAsk::PerCpu(mib) => mib as f64 * cpus,
        };
        let of_partition = || partition.nodes.iter().filter_map(|n| state.node_named(n));
        let asked_and_there = |name: &str| -> (f64, f64) {
            match name.to_ascii_lowercase().as_str() {
                "cpu" => (cpus, of_partition().map(|n| f64::from(n.config.cpus)).sum()),
                "mem" => (
                    mib,
                    of_partition().map(|n| n.config.memory_mib as f64).sum(),
                ),
                "node" => (nodes, of_partition().count() as f64),
                other => {
                    let wanted = other.strip_prefix("gres/").unwrap_or(other);
                    let has = |full: &str, kind: &Option<String>| match kind {
                        Some(kind) => full == wanted || format!("{full}:{kind}") == wanted,
                        None => full == wanted,
                    };
                    let all = ask.gres_of_job(ask.min_nodes);
                    let asked = all.iter().filter(|g| has(&g.name, &g.kind));
                    let asked = asked.map(|g| g.count).fold(0, u64::saturating_add);
                    let there = of_partition()
                        .flat_map(|n| &n.config.gres)
                        .filter(|g| has(&g.name, &g.kind))
                        .map(|g| g.count as f64);
                    (asked as f64, there.sum())
                }
            }
        };
        let weights = self.settings.weight_tres.iter();
        weights
            .map(|(name, weight)| {
                let (asked, there) = asked_and_there(name);
                let factor = match (self.settings.no_normal.tres, there > 0.0) {
                    (true, _) => asked,
                    (false, true) => (asked / there).min(1.0),
                    (false, false) => 0.0,
                };
                (name.clone(), weight * factor)
            })
            .collect()
    }
}

/// Reads `CPU=1.0,Mem=0.25G,GRES/gpu=2`: weights of one CPU, one MiB, one device. What cannot be read weighs nothing.
pub fn tres_weights(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.split(',').filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        let (digits, unit) = match value.find(|c: char| !(c.is_ascii_digit() || c == '.')) {
            Some(at) => value.split_at(at),
            None => (value, ""),
        };
        // A weight for a GiB is so much less for a MiB.
        let per_mib = match unit.to_ascii_uppercase().as_str() {
            "" | "M" => 1.0,
            "K" => 1024.0,
            "G" => 1.0 / 1024.0,
            "T" => 1.0 / 1_048_576.0,
            "P" => 1.0 / 1_073_741_824.0,
            _ => return None,
        };
        let per_unit = if name.trim().eq_ignore_ascii_case("mem") {
            per_mib
        } else {
            1.0
        };
        Some((name.trim(), digits.parse::<f64>().ok()? * per_unit))
    })
}

/// Whether a period of `PriorityUsageResetPeriod` begins after `since` and not after `now`.
pub(crate) fn usage_reset_between(
    settings: &Multifactor,
    since: Timestamp,
    now: Timestamp,
) -> bool {
    let day = |t: Timestamp| (t.unix_s() + i64::from(settings.utc_offset_s)).div_euclid(86_400);
    let period = |t: Timestamp| {
        let (year, month) = civil(day(t));
        match settings.usage_reset {
            UsageReset::None | UsageReset::Now => 0,
            UsageReset::Daily => day(t),
            // 1970-01-04 was a Sunday.
            UsageReset::Weekly => (day(t) + 4).div_euclid(7),
            UsageReset::Monthly => year * 12 + month,
            UsageReset::Quarterly => year * 4 + month / 3,
            UsageReset::Yearly => year,
        }
    };
    since != Timestamp::default() && period(since) < period(now)
}

/// Year and month (0 to 11) of a day since 1970-01-01.
fn civil(day: i64) -> (i64, i64) {
    // Years begin in March here, so that the leap day is the last one.
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = (march_month + 2) % 12;
    (year_of_era + era * 400 + i64::from(month < 2), month)
}

impl State {
    /// When priorities are to be worked out next.
    pub(crate) fn priorities_due(&self) -> Option<Timestamp> {
        let settings = self.config.as_ref()?.order.multifactor.as_ref()?;
        Some(
            self.accounts
                .calculated_at
                .plus_s(settings.calc_period_s.max(1)),
        )
    }

    /// The QOS of a job: as asked for, else the association's default.
    pub fn qos_of<'a>(&'a self, job: &'a Job) -> &'a str {
        match &job.spec.qos {
            Some(name) => name,
            None => self
                .accounts
                .default_qos(job.spec.account_name(), &job.spec.owner.user),
        }
    }

    /// A pending job's priority now: the one that was set, or the highest over its partitions.
    pub fn priority_of(&self, scale: Option<&Scale>, job: &Job) -> u32 {
        let Some(scale) = scale.filter(|_| job.priority > 0 && !job.priority_fixed) else {
            return job.priority;
        };
        let runs = !job.is_startable() && job.alloc.is_some();
        if runs && (job.state.is_ended() || !scale.settings.calculate_running) {
            return job.priority;
        }
        let partitions = job.spec.partitions.iter();
        partitions
            .filter_map(|name| self.partition(name))
            .map(|p| scale.factors(self, job, p).priority())
            .max()
            .map_or(job.priority, |priority| scale.kept(job, priority))
    }

    /// Before what priorities are made of changes: where they do not go down, jobs that wait keep what they have.
    /// O(pending jobs), once a `PriorityCalcPeriod`.
    pub(crate) fn keep_priorities(&mut self) {
        let Some(scale) = self.scale.take_if(|scale| scale.settings.incr_only) else {
            return;
        };
        let pending: Vec<JobId> = self.pending.iter().copied().collect();
        for id in pending {
            let job = self.jobs.get(&id).filter(|job| job.priority > 0);
            let Some(job) = job.filter(|job| !job.priority_fixed) else {
                continue;
            };
            let least = self.priority_of(Some(&scale), job);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.priority_least = least;
            }
        }
        self.scale = Some(scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods() {
        // 2026-11-22T01:00:00 UTC, a Sunday.
        let now = Timestamp::from_unix_s(1_795_309_200);
        let ago = |hours: i64| Timestamp::from_unix_s(1_795_309_200 - hours * 3600);
        let begins = |usage_reset, hours| {
            let settings = Multifactor {
                usage_reset,
                ..Multifactor::default()
            };
            usage_reset_between(&settings, ago(hours), now)
        };
        assert!(begins(UsageReset::Daily, 2) && !begins(UsageReset::Daily, 1));
        assert!(begins(UsageReset::Weekly, 2) && !begins(UsageReset::Weekly, 1));
        assert!(begins(UsageReset::Monthly, 22 * 24) && !begins(UsageReset::Monthly, 21 * 24));
        assert!(begins(UsageReset::Quarterly, 53 * 24) && !begins(UsageReset::Quarterly, 51 * 24));
        assert!(begins(UsageReset::Yearly, 330 * 24) && !begins(UsageReset::Yearly, 324 * 24));
        assert!(!begins(UsageReset::None, 100_000));
        assert_eq!(
            [civil(0), civil(59), civil(20_779)],
            [(1970, 0), (1970, 2), (2026, 10)]
        );
    }

    #[test]
    fn weights() {
        let read: Vec<(&str, f64)> = tres_weights("CPU=1.5,Mem=0.5G,GRES/gpu=2,x=y").collect();
        assert_eq!(
            read,
            [("CPU", 1.5), ("Mem", 0.5 / 1024.0), ("GRES/gpu", 2.0)]
        );
    }
}
