//! Limits of associations and QOS (`AccountingStorageEnforce=limits`) as records, whose use they count, and (in `edit`)
//! how they are written. Whether jobs are within them is in `muster_core::policy::limits`.

mod amounts;
mod edit;
mod scope_use;

pub use amounts::{TresAmount, TresAmounts};
pub use edit::{LimitAsk, NOT_KEPT, is_tres};
pub use scope_use::ScopeUse;

use crate::time::Timestamp;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

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
    pub grp_tres: TresAmounts,
    /// `MaxJobs`: running, of each user in an account; `MaxJobsPerUser` of a QOS.
    #[n(3)]
    pub max_jobs: Option<u32>,
    /// `MaxSubmitJobs`: running and waiting, likewise.
    #[n(4)]
    pub max_submit: Option<u32>,
    /// `MaxTRES` of each job.
    #[n(5)]
    pub max_tres: TresAmounts,
    /// `MaxWall` of each job, minutes.
    #[n(6)]
    pub max_wall_min: Option<u32>,
    /// `MaxTRESPerUser` of a QOS.
    #[n(7)]
    pub max_tres_user: TresAmounts,
    /// `GrpWall`: run times of all below an account or with a QOS, added up, minutes.
    #[n(8)]
    pub grp_wall_min: Option<u64>,
    /// `GrpTRESMins`: TRES used by all of them, times minutes.
    #[n(9)]
    #[cbor(default)]
    pub grp_tres_mins: TresAmounts,
    /// `GrpTRESRunMins`: what those that run have, times the minutes that they may still run.
    #[n(10)]
    #[cbor(default)]
    pub grp_tres_run_mins: TresAmounts,
    /// `MaxTRESMins` of each job: its TRES times the minutes of its limit.
    #[n(11)]
    #[cbor(default)]
    pub max_tres_mins: TresAmounts,
    /// `MaxTRESPerNode` of each job, on average over its nodes.
    #[n(12)]
    #[cbor(default)]
    pub max_tres_node: TresAmounts,
    /// `MaxJobsPerAccount` of a QOS.
    #[n(13)]
    pub max_jobs_account: Option<u32>,
    /// `MaxSubmitJobsPerAccount` of a QOS.
    #[n(14)]
    pub max_submit_account: Option<u32>,
    /// `MaxTRESPerAccount` of a QOS.
    #[n(15)]
    #[cbor(default)]
    pub max_tres_account: TresAmounts,
    /// `MinTRESPerJob` of a QOS.
    #[n(16)]
    #[cbor(default)]
    pub min_tres: TresAmounts,
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
    pub max_tres_run_mins_user: TresAmounts,
    /// `MaxTRESRunMinsPerAccount` of a QOS: likewise, of an account's jobs.
    #[n(22)]
    #[cbor(default)]
    pub max_tres_run_mins_account: TresAmounts,
}

impl Limits {
    /// Whether it says how many jobs may gain age.
    pub fn limits_accrual(&self) -> bool {
        let all = [
            self.grp_jobs_accrue,
            self.max_jobs_accrue,
            self.max_jobs_accrue_account,
        ];
        all.iter().any(Option::is_some)
    }
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
    /// A user in an account, in the one partition that the association is for.
    #[n(5)]
    PartitionAssociation(#[n(0)] String, #[n(1)] String, #[n(2)] String),
}

impl Scope {
    /// Whether it is a QOS, or a part of one.
    pub fn is_of_qos(&self) -> bool {
        matches!(
            self,
            Scope::Qos(_) | Scope::QosUser(..) | Scope::QosAccount(..)
        )
    }

    /// The user whose use it is, where it is one user's.
    pub fn user(&self) -> Option<&str> {
        match self {
            Scope::Association(_, user)
            | Scope::PartitionAssociation(_, user, _)
            | Scope::QosUser(_, user) => Some(user),
            Scope::Account(_) | Scope::Qos(_) | Scope::QosAccount(..) => None,
        }
    }

    /// This scope for another user, if it is one of a user.
    #[must_use]
    pub fn with_user(mut self, name: &str) -> Scope {
        match &mut self {
            Scope::Association(_, user)
            | Scope::PartitionAssociation(_, user, _)
            | Scope::QosUser(_, user) => name.clone_into(user),
            Scope::Account(_) | Scope::Qos(_) | Scope::QosAccount(..) => {}
        }
        self
    }
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

impl TresUsage {
    /// Brings it to a later time.
    pub fn move_to(&mut self, now: Timestamp, half_life_s: u64) {
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

    /// Adds what another scope has used, as of the later of both times.
    pub fn add(&mut self, mut other: TresUsage, half_life_s: u64) {
        self.move_to(other.at, half_life_s);
        other.move_to(self.at, half_life_s);
        for (name, raw) in other.raw {
            *self.raw.entry(name).or_default() += raw;
        }
        for (own, more) in [
            (&mut self.rate, other.rate),
            (&mut self.rate_millionths, other.rate_millionths),
        ] {
            for (name, rate) in more {
                let sum = own.entry(name).or_default();
                *sum = sum.saturating_add(rate);
            }
        }
    }

    /// Amount times minutes at a later time.
    pub fn minutes(&self, name: &str, now: Timestamp, half_life_s: u64) -> u64 {
        let seconds = now.since_ms(self.at) as f64 / 1000.0;
        let (left, grown) = decay(seconds, half_life_s);
        let raw = self.raw.get(name).copied().unwrap_or(0.0);
        let of = |rates: &BTreeMap<String, u64>| rates.get(name).copied().unwrap_or(0) as f64;
        let rate = of(&self.rate) + of(&self.rate_millionths) / 1e6;
        ((raw * left + rate * grown) / 60.0) as u64
    }
}

/// The fraction of earlier use that counts after `seconds`, and the use that one unit adds in that time.
fn decay(seconds: f64, half_life_s: u64) -> (f64, f64) {
    if half_life_s == 0 {
        return (1.0, seconds);
    }
    let life = half_life_s as f64;
    let left = (-seconds / life).exp2();
    (left, life / std::f64::consts::LN_2 * (1.0 - left))
}
