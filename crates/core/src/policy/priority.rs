//! `priority/multifactor`: which priority jobs have, and when priorities are worked out anew. All of it is as of the last
//! time that was done ([`muster_model::accounts::Accounts::calculated_at`]), so that every reader gets the same.

use crate::state::{Priorities, Scale, State};
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::order_config::{Multifactor, UsageReset};
use muster_model::time::Timestamp;

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

    /// A pending job's priority now: the one that was set, or the highest over its partitions. Those of many jobs are had from
    /// [`Priorities`].
    pub fn priority_of(&self, scale: Option<&Scale>, job: &Job) -> u32 {
        let Some(scale) = scale.filter(|scale| scale.works_out(job)) else {
            return job.priority;
        };
        let best = scale.best(self, job);
        best.map_or(job.priority, |priority| scale.kept(job, priority))
    }

    /// Before the inputs of priorities change: where they do not go down, jobs that wait keep theirs. O(pending
    /// jobs), once a `PriorityCalcPeriod`.
    pub(crate) fn keep_priorities(&mut self) {
        let Some(scale) = self.scale.take_if(|scale| scale.settings().incr_only) else {
            return;
        };
        let mut priorities = Priorities::by(self, &scale);
        let pending = self.pending.iter().filter_map(|id| self.jobs.get(id));
        let pending = pending.filter(|job| job.priority > 0 && !job.priority_fixed);
        let least: Vec<(JobId, u32)> = pending.map(|job| (job.id, priorities.of(job))).collect();
        for (id, least) in least {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.priority_least = least;
            }
        }
        self.scale = Some(scale);
    }
}
/// The scale of priorities, from the rest of the state.
pub(crate) fn calculate_scale(state: &State) -> Option<Scale> {
    Scale::work_out(state, state.any_limits_accrual())
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
}
