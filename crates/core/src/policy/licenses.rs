//! Numbers of licenses left. A reservation's licenses are for its jobs.

use crate::state::{LicenseSource, LicenseUse, State};
use muster_model::job::Allocation;
use muster_model::licenses::{License, LicenseCount, parse};
use muster_model::reservation::{Reservation, RunWindow};
use muster_model::time::Timestamp;

impl State {
    /// Number of a license in all.
    pub fn license_total(&self, name: &str) -> u32 {
        let config = self.config.as_ref();
        let all = config.map_or(&[][..], |c| &c.licenses[..]);
        let found = all.iter().find(|license| license.name == name);
        let shared = || {
            self.accounts
                .resources
                .get(name)?
                .count_of(own_cluster(self))
        };
        found.map_or_else(|| shared().unwrap_or(0), |license| license.count)
    }

    /// The pool of a job's licenses: the reservation that it is in, if that has some of them, else (empty) the
    /// cluster's.
    pub fn license_pool<'r>(&self, name: &str, reservation: Option<&'r str>) -> &'r str {
        let has = |r: &&str| {
            let record = self.reservations.get(r);
            record.is_some_and(|r| reserved_by(r, name).is_some())
        };
        reservation.filter(has).unwrap_or_default()
    }

    /// Number of a license that a job could have now that runs in this window, in that reservation or outside of all.
    /// Below zero if the configuration took some away.
    pub fn licenses_left(&self, name: &str, reservation: Option<&str>, window: RunWindow) -> i64 {
        let used_in = |reservation: &str| {
            let source = LicenseSource::new(name, reservation);
            i64::from(self.licenses_used.get(&source).copied().unwrap_or(0))
        };
        let own = reservation.and_then(|r| self.reservations.get(r));
        if let Some(own) = own
            && let Some(count) = reserved_by(own, name)
        {
            return i64::from(count) - used_in(&own.name);
        }
        let used: i64 = used_everywhere(&self.licenses_used, name)
            .map(i64::from)
            .sum();
        let held_back: i64 = self
            .reservations
            .iter()
            .filter(|r| r.meets(window.now, window.start, window.end))
            .filter_map(|r| Some((r, i64::from(reserved_by(r, name)?))))
            .map(|(r, count)| (count - used_in(&r.name)).max(0))
            .sum();
        i64::from(self.license_total(name)) - used - held_back
    }

    /// All licenses, for listings: those of the configuration, and this cluster's part of those of servers, by name.
    pub fn licenses(&self, now: Timestamp) -> Vec<License> {
        let config = self.config.as_ref();
        let own = config.map_or(&[][..], |c| &c.licenses[..]).iter();
        let own = own.map(|LicenseCount { name, count }| (name.clone(), *count, false));
        let cluster = own_cluster(self);
        let shared = self
            .accounts
            .resources
            .iter()
            .filter_map(|(name, resource)| {
                let of_config =
                    config.is_some_and(|c| c.licenses.iter().any(|own| own.name == *name));
                let total = resource.count_of(cluster).filter(|_| !of_config)?;
                Some((name.clone(), total, true))
            });
        let license = |(name, total, remote): (String, u32, bool)| License {
            used: used_everywhere(&self.licenses_used, &name).sum(),
            reserved: self
                .reservations
                .iter()
                .filter(|r| r.meets(now, now, now.plus_ms(1)))
                .filter_map(|r| reserved_by(r, &name))
                .sum(),
            name,
            total,
            remote,
        };
        let mut all: Vec<License> = own.chain(shared).map(license).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Updates the use of licenses as a record changes.
    pub(crate) fn shift_licenses(
        &mut self,
        before: Option<&Allocation>,
        after: Option<&Allocation>,
    ) {
        for (alloc, more) in [(before, false), (after, true)] {
            let Some(alloc) = alloc else {
                continue;
            };
            let reservation = alloc.reservation.as_deref().unwrap_or_default();
            for LicenseCount { name, count } in &alloc.licenses {
                let source = LicenseSource::new(name, reservation);
                let used = self.licenses_used.entry(source.clone()).or_default();
                *used = if more {
                    used.saturating_add(*count)
                } else {
                    used.saturating_sub(*count)
                };
                if *used == 0 {
                    self.licenses_used.remove(&source);
                }
            }
        }
    }
}

fn own_cluster(state: &State) -> &str {
    let config = state.config.as_ref();
    config.map_or("", |config| config.cluster_name.as_str())
}

/// Numbers of a license in use, of each reservation and of none.
fn used_everywhere<'u>(used: &'u LicenseUse, name: &'u str) -> impl Iterator<Item = u32> + 'u {
    used.range(LicenseSource::new(name, "")..)
        .take_while(move |(source, _)| source.name == name)
        .map(|(_, count)| *count)
}

fn reserved_by(reservation: &Reservation, name: &str) -> Option<u32> {
    let counts = parse(reservation.licenses.as_deref()?)?;
    let found = counts.into_iter().find(|license| license.name == name);
    found.map(|license| license.count)
}
