//! The order of jobs. With `priority/basic` it is the priority that a job has. With `priority/multifactor` jobs that
//! differ only in age are of one shape, and a lane's rank is that of its shape plus the age of its first job. Where
//! priorities do not go down (`PriorityFlags=INCR_ONLY`) each job has its own, as with `priority/basic`: that of the
//! best partition that it names. In others its lane's rank is as far below as its computed priority there. Ranks are
//! stored as of time 0, so that ageing does not change them: working out priorities anew moves only lanes whose shares
//! changed or whose first job has reached the maximum age.

use muster_core::state::{Scale, State};
use muster_model::config::PartitionConfig;
use muster_model::ids::JobId;
use muster_model::job::Job;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Order of jobs inside a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    /// The job's place in its shape ([`QueueOrder::within`]): higher is earlier.
    pub(crate) within: Reverse<i64>,
    pub(crate) job: JobId,
}

/// Compared before the rank; higher is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PreemptTier {
    /// Preemption level of the QOS.
    pub(crate) level: Reverse<u32>,
    /// PriorityTier of the partition.
    pub(crate) tier: Reverse<u32>,
}

/// Order over all lanes, by their first jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeadKey {
    pub(crate) tier: PreemptTier,
    /// A higher rank is earlier.
    pub(crate) rank: Reverse<i64>,
    pub(crate) job: JobId,
    /// Index of the partition in the job's list.
    pub(crate) ordinal: u32,
}

/// A lane in the order of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneHead {
    pub(crate) key: HeadKey,
    pub(crate) lane: u32,
}

/// Jobs of one class differ in the order only by their age.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OrderClass {
    /// Each job has its own priority.
    Basic,
    /// By the priority that each job has in the best of its partitions, and how far below the others are, which is the same
    /// for all of the user's jobs with that ask.
    Rising { account: String, user: String },
    /// A priority that was set.
    Fixed(u32),
    /// The priority is computed from these fields and the request.
    Ranked {
        account: String,
        user: String,
        qos: String,
        nice: i32,
        site: i32,
    },
}

/// How jobs are ranked.
#[derive(Debug, Default)]
pub(crate) struct QueueOrder {
    scale: Option<Scale>,
    /// Each job has its own priority, which never decreases.
    rises: bool,
    /// Preemption levels by QOS: a job comes before the jobs that it may preempt.
    levels: BTreeMap<String, u32>,
}

impl QueueOrder {
    /// Whether each job has its own priority, which changes when priorities are computed.
    pub(crate) fn rises(&self) -> bool {
        self.rises
    }

    /// Reads the settings from the state; O(nodes, partitions, associations).
    pub(crate) fn new(state: &State) -> QueueOrder {
        let scale = Scale::new(state);
        QueueOrder {
            rises: scale.as_ref().is_some_and(|s| s.settings().incr_only),
            scale,
            levels: state.preempt_levels(),
        }
    }

    /// The preemption level of a QOS: its jobs come before jobs that they may preempt.
    pub(crate) fn level(&self, qos: Option<&str>) -> u32 {
        let level = qos.and_then(|name| self.levels.get(name));
        level.copied().unwrap_or(0)
    }

    /// The order class of a job.
    pub(crate) fn line(&self, state: &State, job: &Job) -> OrderClass {
        if self.scale.is_none() {
            return OrderClass::Basic;
        }
        if self.rises {
            return match job.priority_fixed || job.spec.partitions.len() < 2 {
                true => OrderClass::Basic,
                false => OrderClass::Rising {
                    account: job.spec.account_name().to_owned(),
                    user: job.spec.owner.user.clone(),
                },
            };
        }
        if job.priority_fixed {
            return OrderClass::Fixed(job.priority);
        }
        OrderClass::Ranked {
            account: job.spec.account_name().to_owned(),
            user: job.spec.owner.user.clone(),
            qos: state.qos_of(job).to_owned(),
            nice: job.spec.nice,
            site: job.spec.site_factor,
        }
    }

    /// The job's place in its shape: higher is earlier.
    pub(crate) fn within(&self, state: &State, job: &Job) -> i64 {
        match &self.scale {
            Some(scale) if self.rises => i64::from(state.priority_of(Some(scale), job)),
            None => i64::from(job.priority),
            Some(_) if job.priority_fixed => 0,
            Some(scale) => scale.ages_since(job).map_or(i64::MIN + 1, |since| -since.0),
        }
    }

    /// Highest computed priority of a job, if its rank in other partitions follows from it: asked for once for all
    /// lanes of its shape.
    pub(crate) fn best(&self, state: &State, job: &Job) -> Option<u32> {
        let rising = matches!(self.line(state, job), OrderClass::Rising { .. });
        let scale = self.scale.as_ref().filter(|_| rising)?;
        scale.best(state, job)
    }

    /// The part of the rank that all jobs of a shape have in a partition, in thousandths; where priorities do not go down,
    /// how far it is from `best`.
    pub(crate) fn base(
        &self,
        state: &State,
        job: &Job,
        partition: &PartitionConfig,
        best: Option<u32>,
    ) -> i64 {
        match &self.scale {
            None => 0,
            Some(scale) if self.rises => best.map_or(0, |best| {
                let here = scale.factors(state, job, partition).priority();
                i64::from(here) - i64::from(best)
            }),
            Some(_) if job.priority_fixed => i64::from(job.priority) * 1000,
            Some(scale) => {
                let factors = scale.factors(state, job, partition);
                (factors.without_age() * 1000.0) as i64
            }
        }
    }

    /// The rank of a lane, from its base rank and the place `within` of its first job.
    pub(crate) fn rank(&self, line: &OrderClass, base: i64, within: i64) -> i64 {
        let Some(scale) = self.scale.as_ref().filter(|_| !self.rises) else {
            return match line {
                OrderClass::Rising { .. } => within.saturating_add(base),
                _ => within,
            };
        };
        let settings = scale.settings();
        let full = i128::from(settings.max_age_s.max(1)) * 1000;
        let aged = |ms: i64| -> i64 {
            let grown = i128::from(settings.weight_age) * 1000 * i128::from(ms) / full;
            i64::try_from(grown).unwrap_or(i64::MAX / 4)
        };
        let now = scale.calculated_at().0;
        let gone = match line {
            OrderClass::Basic | OrderClass::Rising { .. } | OrderClass::Fixed(_) => aged(now),
            OrderClass::Ranked { .. } => {
                let since = -within;
                if i128::from(now) - i128::from(since) >= full {
                    // The job has reached the maximum age, so others catch up.
                    return base + i64::from(settings.weight_age) * 1000 - aged(now);
                }
                aged(since.min(now))
            }
        };
        base - gone
    }
}
