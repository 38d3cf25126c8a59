//! Which jobs may be ended or stopped so that others can start, and how. Which of them are chosen is up to the scheduler.

use crate::state::State;
use muster_model::accounts::Qos;
use muster_model::job::{Job, JobState};
use muster_model::preemption::{PreemptMode, PreemptType, Preemption, parse_mode};
use muster_model::spec::JobKind;
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

impl State {
    /// Settings of preemption; `None` where there is none.
    pub fn preemption(&self) -> Option<&Preemption> {
        let settings = &self.config.as_ref()?.order.preemption;
        (settings.kind != PreemptType::None).then_some(settings)
    }

    /// The way in which a running job would be preempted.
    pub fn preempt_mode(&self, victim: &Job) -> PreemptMode {
        let Some(settings) = self.preemption() else {
            return PreemptMode::Off;
        };
        let own = match settings.kind {
            PreemptType::None => None,
            PreemptType::PartitionPrio => self
                .partition(&victim.partition)
                .and_then(|p| p.preempt_mode.as_deref()),
            PreemptType::Qos => self
                .accounts
                .qos
                .get(self.qos_of(victim))
                .and_then(|q| q.preempt_mode.as_deref()),
        };
        let own = own.and_then(|text| parse_mode(text)?.0);
        match own.unwrap_or(settings.mode) {
            PreemptMode::Requeue if !victim.requeueable || victim.spec.kind != JobKind::Batch => {
                PreemptMode::Cancel
            }
            mode => mode,
        }
    }

    /// Whether a running job could be preempted by somebody now or later: it is not on its way out already and
    /// nothing exempts it for good. Gives what would happen to it, and when its exemption ends.
    pub fn preemptable(&self, victim: &Job) -> Option<(PreemptMode, Timestamp)> {
        let settings = self.preemption()?;
        if victim.state != JobState::Running
            || victim.completing
            || victim.configuring
            || victim.preempted.is_some()
        {
            return None;
        }
        let exempt = settings
            .min_exempt_priority
            .is_some_and(|least| victim.priority >= least);
        let mode = self.preempt_mode(victim);
        if exempt || mode == PreemptMode::Off {
            return None;
        }
        let start = victim.start_time?;
        if mode == PreemptMode::Suspend {
            return Some((mode, start));
        }
        let qos = self.accounts.qos.get(self.qos_of(victim));
        let exempt_s = qos.and_then(|q| q.preempt_exempt_s);
        let exempt_s = exempt_s.unwrap_or(settings.exempt_s);
        Some((mode, start.plus_s(u64::from(exempt_s))))
    }

    /// Whether a job that waits, placed in that partition, goes before a running one. Within a QOS that depends on `is_higher`,
    /// whether its priority there is higher than the other's where that runs, as [`crate::state::Scale::priority_in`] or
    /// [`crate::state::Priorities::of_in`] has them: a waiting job's stored priority is its place by its number.
    pub fn outranks(
        &self,
        waiting: &Job,
        partition: &str,
        victim: &Job,
        is_higher: impl FnOnce() -> bool,
    ) -> bool {
        let Some(settings) = self.preemption() else {
            return false;
        };
        match settings.kind {
            PreemptType::None => false,
            PreemptType::PartitionPrio => {
                let tier = |name: &str| self.partition(name).map_or(1, |p| p.priority_tier);
                tier(&victim.partition) < tier(partition)
            }
            PreemptType::Qos => {
                let (own, other) = (self.qos_of(waiting), self.qos_of(victim));
                let Some(qos) = self.accounts.qos.get(own) else {
                    return own == other && settings.within && is_higher();
                };
                let text = qos.preempt_mode.as_deref();
                let within = text.and_then(|t| Some(parse_mode(t)?.1)).unwrap_or(false);
                if own == other {
                    return (settings.within || within) && is_higher();
                }
                qos.preempt.iter().any(|name| name == other)
            }
        }
    }

    /// Levels of QOS in the order of jobs: one above all that they may preempt, so that who made room does not come
    /// before those whom it was made for when it is back in the queue. QOS that may preempt none are at level 0 and not
    /// listed; those that may preempt each other are as if they might not.
    pub fn preempt_levels(&self) -> BTreeMap<String, u32> {
        let mut levels = BTreeMap::new();
        if self.preemption().map(|s| s.kind) != Some(PreemptType::Qos) {
            return levels;
        }
        // Each round finds those that are above one found in the round before; a circle would go on for ever.
        for _ in 0..self.accounts.qos.len() {
            let level = |name: &String| levels.get(name).copied().unwrap_or(0);
            let above = |qos: &Qos| {
                let below = qos.preempt.iter().filter(|name| **name != qos.name);
                let level = below.map(|name| level(name).saturating_add(1)).max()?;
                Some((qos.name.clone(), level))
            };
            let next: BTreeMap<String, u32> =
                (self.accounts.qos.values().filter_map(above)).collect();
            if next == levels {
                break;
            }
            levels = next;
        }
        levels
    }

    /// Whether there may ever be jobs that a waiting one, placed in that partition, goes before.
    pub fn may_preempt(&self, waiting: &Job, partition: &str) -> bool {
        match self.preemption().map(|s| (s.kind, s.within)) {
            Some((PreemptType::PartitionPrio, _)) => {
                let tier = self.partition(partition).map_or(1, |p| p.priority_tier);
                self.partitions.iter().any(|p| p.priority_tier < tier)
            }
            Some((PreemptType::Qos, within)) => {
                let qos = self.accounts.qos.get(self.qos_of(waiting));
                let own = qos.is_some_and(|q| {
                    let mode = q.preempt_mode.as_deref().and_then(parse_mode);
                    !q.preempt.is_empty() || mode.is_some_and(|(_, within)| within)
                });
                within || own
            }
            Some((PreemptType::None, _)) | None => false,
        }
    }

    /// Rank of a running job: lower ones are preempted first. Its QOS' priority or its partition's tier.
    pub fn preempt_rank(&self, victim: &Job) -> u32 {
        match self.preemption().map(|s| s.kind) {
            Some(PreemptType::Qos) => {
                let qos = self.accounts.qos.get(self.qos_of(victim));
                qos.map_or(0, |q| q.priority)
            }
            Some(PreemptType::PartitionPrio | PreemptType::None) | None => self
                .partition(&victim.partition)
                .map_or(1, |p| p.priority_tier),
        }
    }

    /// `GraceTime` of a running job that is preempted, seconds.
    pub fn grace_s(&self, victim: &Job) -> u32 {
        match self.preemption().map(|s| s.kind) {
            Some(PreemptType::Qos) => {
                let qos = self.accounts.qos.get(self.qos_of(victim));
                qos.map_or(0, |q| q.grace_time_s)
            }
            Some(PreemptType::PartitionPrio) => self
                .partition(&victim.partition)
                .map_or(0, |p| p.grace_time_s),
            Some(PreemptType::None) | None => 0,
        }
    }
}
