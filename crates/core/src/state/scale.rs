//! The divisors of the factors of priorities.

use super::State;
use muster_model::config::PartitionConfig;
use muster_model::factors::Factors;
use muster_model::job::Job;
use muster_model::order_config::Multifactor;
use muster_model::spec::MemoryAsk;
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

/// The divisors of factors, and other values that are the same for all jobs.
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

/// The factors of a job that are the same in all partitions.
pub(super) struct CommonFactors {
    pub(super) factors: Factors,
    /// The job's request of each resource that has a weight.
    asked: Vec<f64>,
}

/// The inputs of the others in a partition.
pub(super) struct PartitionFactors<'a> {
    /// The association's priority there.
    pub(super) assoc: u32,
    pub(super) partition: &'a PartitionConfig,
    /// Its amounts of each resource that has a weight.
    pub(super) there: &'a [f64],
}

/// The amounts of partitions of resources that have a weight, each computed once for the jobs of a command. They hold while
/// neither partitions nor nodes change.
#[derive(Default)]
pub(crate) struct AmountsThere {
    /// By name; none where there is no such partition.
    known: BTreeMap<String, Option<PartitionAmounts>>,
    looked_at: u64,
}

/// Amounts of one partition.
struct PartitionAmounts {
    /// Among the partitions of the state.
    position: usize,
    there: Vec<f64>,
}

impl AmountsThere {
    /// Number of times that the nodes of a partition were looked at.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }
}

impl Scale {
    /// As the state has it; `None` if priority is first come, first served.
    pub fn new(state: &State) -> Option<Scale> {
        state.scale.clone()
    }

    /// From the rest of the state: O(nodes, partitions, QOS, associations), worked out anew when one of these changes.
    pub(crate) fn work_out(state: &State, any_limits_accrual: bool) -> Option<Scale> {
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
            limits_accrual: !settings.accrue_always && any_limits_accrual,
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

    /// As of another moment.
    #[cfg(test)]
    pub(crate) fn calculate_at(&mut self, at: Timestamp) {
        self.calculated_at = at;
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

    /// Whether a job's priority is worked out, and not set or that of its start.
    pub(crate) fn works_out(&self, job: &Job) -> bool {
        let runs = !job.is_startable() && job.alloc.is_some();
        let is_over = runs && (job.state.is_ended() || !self.settings.calculate_running);
        job.priority > 0 && !job.priority_fixed && !is_over
    }

    /// A job's priority in one of its partitions, which is no higher for others that it names: the one that was set, or
    /// the computed one.
    pub fn priority_in(&self, state: &State, job: &Job, partition: &str) -> u32 {
        if !self.works_out(job) {
            return job.priority;
        }
        let Some(partition) = state.partition(partition) else {
            return state.priority_of(Some(self), job);
        };
        let here = self.factors(state, job, partition).priority();
        self.kept_in(job, here, || self.best(state, job).unwrap_or(here))
    }

    /// A job's priority in that of its partitions where it is lowest; one that was set holds in all.
    pub(crate) fn lowest(&self, state: &State, job: &Job, there: &mut AmountsThere) -> u32 {
        if !self.works_out(job) {
            return job.priority;
        }
        let (mut lowest, mut most) = (None::<u32>, 0);
        self.in_each(state, job, there, |factors| {
            let here = factors.priority();
            lowest = Some(lowest.map_or(here, |lowest| lowest.min(here)));
            most = most.max(here);
        });
        lowest.map_or(job.priority, |here| self.kept_in(job, here, || most))
    }

    /// The sum of a job's factors but its nice value where it is least; none in no partition. Where a priority is at its bounds
    /// this still shows how far it would go.
    pub(crate) fn least_sum(
        &self,
        state: &State,
        job: &Job,
        there: &mut AmountsThere,
    ) -> Option<f64> {
        let mut least: Option<f64> = None;
        self.in_each(state, job, there, |factors| {
            let sum = factors.age + factors.without_age() + f64::from(factors.nice);
            least = Some(least.map_or(sum, |least| least.min(sum)));
        });
        least
    }

    /// The factors of a job in each of its partitions that there are.
    fn in_each(
        &self,
        state: &State,
        job: &Job,
        there: &mut AmountsThere,
        mut take: impl FnMut(&Factors),
    ) {
        let mut common = self.common(state, job);
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        let named = job.spec.partitions.iter();
        for name in named {
            if !there.known.contains_key(name) {
                let all = &mut state.partitions.iter();
                let position = all.position(|partition| partition.name == *name);
                let found = position.map(|position| PartitionAmounts {
                    position,
                    there: self.partition_amounts(state, &state.partitions[position]),
                });
                there.known.insert(name.clone(), found);
                there.looked_at += 1;
            }
            let Some(amounts) = there.known.get(name).and_then(Option::as_ref) else {
                continue;
            };
            let partition = &state.partitions[amounts.position];
            let place = PartitionFactors {
                assoc: (state.accounts).association_priority(account, user, &partition.name),
                partition,
                there: &amounts.there,
            };
            self.complete(&mut common, &place);
            take(&common.factors);
        }
    }

    /// The computed priority of a job in that of its partitions where it is highest.
    pub fn best(&self, state: &State, job: &Job) -> Option<u32> {
        let named = job.spec.partitions.iter();
        let named = named.filter_map(|name| state.partition(name));
        let all = named.map(|partition| self.factors(state, job, partition).priority());
        all.max()
    }

    /// A job's priority in a partition, given the computed one there, and `most` where it is highest: the highest does
    /// not go down, and those in other partitions stay as far below as they are.
    pub(super) fn kept_in(&self, job: &Job, here: u32, most: impl FnOnce() -> u32) -> u32 {
        if !self.settings.incr_only {
            return here;
        }
        let most = most();
        let raised = self.kept(job, most).saturating_sub(most);
        here.saturating_add(raised)
    }

    /// A job's priority, given the computed one.
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

    /// The factors of a job in a partition. Of many jobs or partitions they are had from [`super::Priorities`].
    pub fn factors(&self, state: &State, job: &Job, partition: &PartitionConfig) -> Factors {
        let mut common = self.common(state, job);
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        let place = PartitionFactors {
            assoc: (state.accounts).association_priority(account, user, &partition.name),
            partition,
            there: &self.partition_amounts(state, partition),
        };
        self.complete(&mut common, &place);
        common.factors
    }

    /// The factors that are the same in all partitions: the others are zero until they are completed.
    pub(super) fn common(&self, state: &State, job: &Job) -> CommonFactors {
        let s = &self.settings;
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        let accounts = &state.accounts;
        let qos = accounts
            .qos
            .get(state.qos_of(job))
            .map_or(0, |q| q.priority);
        let weighted = |weight: u32, factor: f64| f64::from(weight) * factor;
        let weights = s.weight_tres.iter();
        CommonFactors {
            factors: Factors {
                site: f64::from(job.spec.site_factor),
                age: self.age(self.ages_since(job)),
                assoc: 0.0,
                fair_share: weighted(s.weight_fair_share, accounts.fair_share(account, user)),
                job_size: weighted(s.weight_job_size, self.size(job)),
                partition: 0.0,
                qos: weighted(s.weight_qos, f64::from(qos) / self.qos_max),
                tres: weights.map(|(name, _)| (name.clone(), 0.0)).collect(),
                nice: job.spec.nice,
            },
            asked: self.asked(job),
        }
    }

    /// Completes them for a partition.
    pub(super) fn complete(&self, common: &mut CommonFactors, place: &PartitionFactors<'_>) {
        let s = &self.settings;
        let factors = &mut common.factors;
        factors.assoc = f64::from(s.weight_assoc) * (f64::from(place.assoc) / self.assoc_max);
        let job_factor = f64::from(place.partition.priority_job_factor);
        factors.partition = f64::from(s.weight_partition) * (job_factor / self.partition_max);
        let amounts = common.asked.iter().zip(place.there);
        let weights = s.weight_tres.iter().map(|(_, weight)| *weight);
        for (((_, tres), weight), (asked, there)) in
            factors.tres.iter_mut().zip(weights).zip(amounts)
        {
            let factor = match (s.no_normal.tres, *there > 0.0) {
                (true, _) => *asked,
                (false, true) => (asked / there).min(1.0),
                (false, false) => 0.0,
            };
            *tres = weight * factor;
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

    /// A job's request of each resource that has a weight.
    fn asked(&self, job: &Job) -> Vec<f64> {
        let ask = &job.spec.ask;
        let nodes = f64::from(ask.min_nodes);
        let cpus = f64::from(ask.min_cpus());
        let mib = match ask.memory {
            MemoryAsk::Default => 0.0,
            MemoryAsk::PerNode(mib) => mib as f64 * nodes,
            MemoryAsk::PerCpu(mib) => mib as f64 * cpus,
        };
        let of_gres = |wanted: WeightedGres<'_>| {
            let all = ask.gres_of_job(ask.min_nodes);
            let asked = all.iter().filter(|g| wanted.is(&g.name, &g.kind));
            asked.map(|g| g.count).fold(0, u64::saturating_add) as f64
        };
        let weights = self.settings.weight_tres.iter();
        let of = |name: &str| match name.to_ascii_lowercase().as_str() {
            "cpu" => cpus,
            "mem" => mib,
            "node" => nodes,
            other => of_gres(WeightedGres::of(other)),
        };
        weights.map(|(name, _)| of(name)).collect()
    }

    /// A partition's amount of each resource that has a weight; O(nodes of the partition).
    pub(super) fn partition_amounts(&self, state: &State, partition: &PartitionConfig) -> Vec<f64> {
        let nodes = || partition.nodes.iter().filter_map(|n| state.node_named(n));
        let of_gres = |wanted: WeightedGres<'_>| {
            let all = nodes().flat_map(|n| &n.config.gres);
            let there = all.filter(|g| wanted.is(&g.name, &g.kind));
            there.map(|g| g.count as f64).sum()
        };
        let weights = self.settings.weight_tres.iter();
        let of = |name: &str| match name.to_ascii_lowercase().as_str() {
            "cpu" => nodes().map(|n| f64::from(n.config.cpus)).sum(),
            "mem" => nodes().map(|n| n.config.memory_mib as f64).sum(),
            "node" => nodes().count() as f64,
            other => of_gres(WeightedGres::of(other)),
        };
        weights.map(|(name, _)| of(name)).collect()
    }
}

/// Devices that have a weight: all of a name, or of a kind.
#[derive(Clone, Copy)]
struct WeightedGres<'a>(&'a str);

impl<'a> WeightedGres<'a> {
    fn of(name: &'a str) -> WeightedGres<'a> {
        WeightedGres(name.strip_prefix("gres/").unwrap_or(name))
    }

    fn is(self, name: &str, kind: &Option<String>) -> bool {
        let of_kind = |kind: &String| {
            let rest = self.0.strip_prefix(name).and_then(|r| r.strip_prefix(':'));
            rest == Some(kind.as_str())
        };
        name == self.0 || kind.as_ref().is_some_and(of_kind)
    }
}
