//! Use that counts towards a limit: of one record, and of all.

use muster_model::account_limits::{Scope, TresAmount, TresAmounts};
use muster_model::job::MILLION;
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

/// Jobs that the same limits concern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccrualGroup {
    /// Their QOS.
    pub qos: String,
    /// Their account.
    pub account: String,
    /// Their owner.
    pub user: String,
}

/// Where a record waits for its turn to gain age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccrualTurn {
    pub(crate) group: AccrualGroup,
    pub(crate) since: Timestamp,
}

/// The use of a resource by running jobs with a known end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndingUse {
    /// The part of it that counts towards use, in millionths.
    pub amount: u64,
    /// Sum of each amount times its latest end, in seconds since 1970.
    pub amount_seconds: u128,
}

/// Current use that limits compare with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurrentUse {
    /// Jobs that run.
    pub jobs: u32,
    /// Jobs that run or wait, tasks of arrays one by one.
    pub submitted: u32,
    /// Jobs that wait and gain age, likewise.
    pub accruing: u32,
    /// Resources of running jobs.
    pub tres: BTreeMap<String, u64>,
    /// The use by jobs that have limits.
    pub ends: BTreeMap<String, EndingUse>,
}

/// The contribution of one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) scopes: Vec<Scope>,
    /// Scopes of further partitions in which it waits: it only counts as submitted there.
    pub(crate) submitted_in: Vec<Scope>,
    pub(crate) jobs: u32,
    pub(crate) submitted: u32,
    pub(crate) accruing: u32,
    /// The partition's QOS, where that is not its own: it does not limit who gains age.
    pub(crate) foreign_qos: Option<String>,
    pub(crate) tres: TresAmounts,
    /// When it ends at the latest.
    pub(crate) end: Option<Timestamp>,
    /// Factor by which its use counts, in millionths.
    pub(crate) factor: u64,
}

impl Counted {
    pub(crate) fn accrues_in(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Qos(name) | Scope::QosUser(name, _) | Scope::QosAccount(name, _) => {
                self.foreign_qos.as_deref() != Some(name)
            }
            Scope::Account(_) | Scope::Association(..) | Scope::PartitionAssociation(..) => true,
        }
    }
}

impl CurrentUse {
    pub(crate) fn shift(&mut self, counted: &Counted, more: bool) {
        let shift = |value: u32, by: u32| match more {
            true => value.saturating_add(by),
            false => value.saturating_sub(by),
        };
        self.jobs = shift(self.jobs, counted.jobs);
        self.submitted = shift(self.submitted, counted.submitted);
        for TresAmount { name, amount } in &counted.tres {
            let value = self.tres.entry(name.clone()).or_default();
            *value = match more {
                true => value.saturating_add(*amount),
                false => value.saturating_sub(*amount),
            };
        }
        self.tres.retain(|_, amount| *amount > 0);
        let Some(end) = counted.end else { return };
        let end_s = u128::try_from(end.unix_s()).unwrap_or(0);
        for TresAmount { name, amount } in &counted.tres {
            let all = self.ends.entry(name.clone()).or_default();
            let amount = amount.saturating_mul(counted.factor);
            let product = u128::from(amount) * end_s;
            *all = match more {
                true => EndingUse {
                    amount: all.amount.saturating_add(amount),
                    amount_seconds: all.amount_seconds.saturating_add(product),
                },
                false => EndingUse {
                    amount: all.amount.saturating_sub(amount),
                    amount_seconds: all.amount_seconds.saturating_sub(product),
                },
            };
        }
        self.ends.retain(|_, all| all.amount > 0);
    }

    /// Adds a running job with these resources, until `end` at the latest; `factor` weights its use, in millionths.
    pub fn add(&mut self, tres: &TresAmounts, end: Option<Timestamp>, factor: u64) {
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
    pub(crate) fn run_minutes(&self, name: &str, now: Timestamp) -> u64 {
        let all = self.ends.get(name).copied().unwrap_or_default();
        let now_s = u128::try_from(now.unix_s()).unwrap_or(0);
        let now = u128::from(all.amount) * now_s;
        let left_s = all.amount_seconds.saturating_sub(now) / u128::from(MILLION);
        u64::try_from(left_s / 60).unwrap_or(u64::MAX)
    }

    pub(crate) fn of(&self, name: &str) -> u64 {
        self.tres.get(name).copied().unwrap_or(0)
    }
}
