//! What counts towards a limit: of one record, and of all.

use muster_model::account_limits::{Amounts, Scope};
use muster_model::job::MILLION;
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

/// Jobs that the same limits concern: QOS, account, user.
pub type AccrualGroup = (String, String, String);

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
    pub(crate) scopes: Vec<Scope>,
    pub(crate) jobs: u32,
    pub(crate) submitted: u32,
    pub(crate) accruing: u32,
    /// The partition's QOS, where that is not its own: it does not limit who gains age.
    pub(crate) foreign_qos: Option<String>,
    pub(crate) tres: Amounts,
    /// When it ends at the latest.
    pub(crate) end: Option<Timestamp>,
    /// How far its use counts, in millionths.
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

impl InUse {
    pub(crate) fn shift(&mut self, counted: &Counted, more: bool) {
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
    pub(crate) fn run_minutes(&self, name: &str, now: Timestamp) -> u64 {
        let (all, ends) = self.ends.get(name).copied().unwrap_or_default();
        let now_s = u128::try_from(now.unix_s()).unwrap_or(0);
        let left_s = ends.saturating_sub(u128::from(all) * now_s) / u128::from(MILLION);
        u64::try_from(left_s / 60).unwrap_or(u64::MAX)
    }

    pub(crate) fn of(&self, name: &str) -> u64 {
        self.tres.get(name).copied().unwrap_or(0)
    }
}
