//! Licenses of the cluster: counts of things that jobs hold while they run, wherever they run (`Licenses=`,
//! `--licenses`). Those that a reservation has are for its jobs.

use crate::index::Keys;
use crate::reservation::Reservation;
use crate::state::State;
use crate::time::Timestamp;
use std::collections::BTreeMap;

/// Names and counts; each name once.
pub type Counts = Vec<(String, u32)>;

/// Licenses in use, by name and reservation (empty: none).
pub type InUse = BTreeMap<(String, String), u32>;

/// Reads `foo:4,bar`, as `Licenses=` of slurm.conf has it; `None` if that is not what it is.
pub fn parse(text: &str) -> Option<Counts> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for word in text
        .split([',', ';'])
        .map(str::trim)
        .filter(|w| !w.is_empty())
    {
        let (name, count) = match word.split_once([':', '=']) {
            Some((name, count)) => (name, count.parse().ok()?),
            None => (word, 1),
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        let sum = counts.entry(name).or_default();
        *sum = sum.checked_add(count)?;
    }
    let named = counts.into_iter();
    Some(
        named
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
    )
}

/// Reads `--licenses`: all of what commas separate, or one of what `|` separates; `None` if it is neither.
pub fn parse_ask(text: &str) -> Option<Vec<Counts>> {
    if !text.contains('|') {
        return Some(vec![parse(text)?]);
    }
    if text.contains(',') {
        return None;
    }
    let all = text
        .split('|')
        .map(parse)
        .collect::<Option<Vec<Counts>>>()?;
    all.iter().all(|one| one.len() == 1).then_some(all)
}

/// One license, as `scontrol show licenses` tells it.
#[derive(Clone, Debug, Default, PartialEq, minicbor::Encode, minicbor::Decode)]
pub struct License {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// How many there are.
    #[n(1)]
    pub total: u32,
    /// How many jobs have.
    #[n(2)]
    pub used: u32,
    /// How many reservations have now.
    #[n(3)]
    pub reserved: u32,
}

impl State {
    /// How many of a license there are.
    pub fn license_total(&self, name: &str) -> u32 {
        let config = self.config.as_ref();
        let all = config.map_or(&[][..], |c| &c.licenses[..]);
        all.iter().find(|(n, _)| n == name).map_or(0, |(_, n)| *n)
    }

    /// Where a job's licenses come from: the reservation that it is in, if that has some of them, else (empty) from what
    /// is nobody's.
    pub fn license_pool<'r>(&self, name: &str, reservation: Option<&'r str>) -> &'r str {
        let has = |r: &&str| {
            let record = self.reservations.get(r);
            record.is_some_and(|r| reserved_by(r, name).is_some())
        };
        reservation.filter(has).unwrap_or_default()
    }

    /// How many of a license a job could have now that runs until `end`, in that reservation or outside of all. Less
    /// than nothing if the configuration took some away.
    pub fn licenses_left(
        &self,
        name: &str,
        reservation: Option<&str>,
        (now, from, end): (Timestamp, Timestamp, Timestamp),
    ) -> i64 {
        let used_in = |reservation: &str| {
            let key = (name.to_owned(), reservation.to_owned());
            i64::from(self.licenses_used.get(&key).copied().unwrap_or(0))
        };
        let own = reservation.and_then(|r| self.reservations.get(r));
        if let Some(own) = own
            && let Some(count) = reserved_by(own, name)
        {
            return i64::from(count) - used_in(&own.name);
        }
        let used: i64 = (self.licenses_used.range((name.to_owned(), String::new())..))
            .take_while(|((n, _), _)| n == name)
            .map(|(_, count)| i64::from(*count))
            .sum();
        let held_back: i64 = self
            .reservations
            .iter()
            .filter(|r| r.meets(now, from, end))
            .filter_map(|r| Some((r, i64::from(reserved_by(r, name)?))))
            .map(|(r, count)| (count - used_in(&r.name)).max(0))
            .sum();
        i64::from(self.license_total(name)) - used - held_back
    }

    /// All licenses, for listings.
    pub fn licenses(&self, now: Timestamp) -> Vec<License> {
        let config = self.config.as_ref();
        let all = config.map_or(&[][..], |c| &c.licenses[..]);
        all.iter()
            .map(|(name, total)| License {
                name: name.clone(),
                total: *total,
                used: (self.licenses_used.range((name.clone(), String::new())..))
                    .take_while(|((n, _), _)| n == name)
                    .map(|(_, count)| *count)
                    .sum(),
                reserved: self
                    .reservations
                    .iter()
                    .filter(|r| r.meets(now, now, now.plus_ms(1)))
                    .filter_map(|r| reserved_by(r, name))
                    .sum(),
            })
            .collect()
    }

    /// Updates what is in use as a record changes.
    pub(crate) fn shift_licenses(&mut self, before: &Keys, after: &Keys) {
        for (keys, more) in [(before, false), (after, true)] {
            let Some(alloc) = &keys.licenses else {
                continue;
            };
            let reservation = alloc.reservation.clone().unwrap_or_default();
            for (name, count) in &alloc.licenses {
                let key = (name.clone(), reservation.clone());
                let used = self.licenses_used.entry(key.clone()).or_default();
                *used = if more {
                    used.saturating_add(*count)
                } else {
                    used.saturating_sub(*count)
                };
                if *used == 0 {
                    self.licenses_used.remove(&key);
                }
            }
        }
    }
}

fn reserved_by(reservation: &Reservation, name: &str) -> Option<u32> {
    let counts = parse(reservation.licenses.as_deref()?)?;
    let found = counts.into_iter().find(|(n, _)| n == name);
    found.map(|(_, count)| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let one = |name: &str, count| (name.to_owned(), count);
        assert_eq!(parse("foo:4,bar"), Some(vec![one("bar", 1), one("foo", 4)]));
        assert_eq!(parse("foo=2;foo"), Some(vec![one("foo", 3)]));
        assert_eq!(parse("foo:x"), None);
        assert_eq!(parse(":3"), None);
        let either = vec![vec![one("foo", 2)], vec![one("bar", 1)]];
        assert_eq!(parse_ask("foo:2|bar"), Some(either));
        assert_eq!(parse_ask("foo|bar,baz"), None);
        assert_eq!(parse_ask("foo|"), None);
    }
}
