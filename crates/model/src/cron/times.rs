//! When a schedule comes next, in a zone whose clocks may be changed.

use super::Schedule;
use crate::time::Timestamp;
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, AmbiguousTimestamp, TimeZone};
use std::cell::Cell;
use thiserror::Error;

/// Days that are looked at: the 29th of February comes back within eight years, and once more for good measure.
const DAYS_MAX: u32 = 9 * 366;

/// All hours of a day.
const ALL_HOURS: u32 = (1 << 24) - 1;

/// Why an entry has no times.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// Not one of the words with `@`.
    #[error("invalid @ line: there is no {0}")]
    Shortcut(String),
    /// A field is not there.
    #[error(
        "bad {0} specification: it is missing; an entry is 'MINUTE HOUR DAY MONTH WEEKDAY COMMAND'"
    )]
    Missing(&'static str),
    /// A field that cannot be.
    #[error("bad {name} specification: {word}")]
    Field {
        /// Its name.
        name: &'static str,
        /// The word as written.
        word: String,
    },
    /// A step of zero, or one that is larger than the field.
    #[error("bad step value: {0}")]
    Step(String),
    /// Such a day never comes.
    #[error("the time never comes: {0}")]
    Never(Schedule),
    /// There is nothing to run.
    #[error("an entry has no command")]
    NoCommand,
}

/// A time zone, by its rule.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of a rule as POSIX writes it (`CET-1CEST,M3.5.0,M10.5.0/3`); UTC where it is none.
    pub fn of_rule(rule: &str) -> Zone {
        Zone(TimeZone::posix(rule).unwrap_or(TimeZone::UTC))
    }

    /// Its rule.
    pub(crate) fn rule(&self) -> &TimeZone {
        &self.0
    }
}

/// Lookups in the rule of a zone. They take most of the time in which the next time of a schedule is found.
pub(super) struct Lookups<'z> {
    zone: &'z Zone,
    count: Cell<u32>,
}

impl<'z> Lookups<'z> {
    pub(super) fn of(zone: &'z Zone) -> Lookups<'z> {
        let count = Cell::new(0);
        Lookups { zone, count }
    }

    /// Number of lookups.
    #[cfg(test)]
    pub(super) fn count(&self) -> u32 {
        self.count.get()
    }

    fn look(&self, time: DateTime) -> AmbiguousTimestamp {
        self.count.set(self.count.get().saturating_add(1));
        self.zone.0.to_ambiguous_timestamp(time)
    }

    /// When that is, if it comes once.
    fn plain(&self, time: DateTime) -> Option<jiff::Timestamp> {
        let found = self.look(time);
        match found.offset() {
            AmbiguousOffset::Unambiguous { .. } => found.compatible().ok(),
            AmbiguousOffset::Gap { .. } | AmbiguousOffset::Fold { .. } => None,
        }
    }
}

impl Schedule {
    /// The first time after `after` that this schedule names.
    ///
    /// Where clocks are put forward, an hour that is skipped is made up for right after; where they are put back, an hour
    /// that comes twice counts once. A schedule of every hour is not adjusted: it follows the time that passes.
    pub fn next(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        self.next_by(after, &Lookups::of(zone))
    }

    pub(super) fn next_by(&self, after: Timestamp, zone: &Lookups<'_>) -> Option<Timestamp> {
        let now = jiff::Timestamp::from_millisecond(after.0).ok()?;
        // From the day before on: a time skipped at its end is made up for on this day.
        let mut date = zone.zone.0.to_datetime(now).date().yesterday().ok()?;
        for _ in 0..DAYS_MAX {
            if self.has_day(date) {
                let hours = (0..24i8).filter(|hour| self.hours >> hour & 1 == 1);
                let first =
                    hours.filter_map(|hour| self.first_of_hour(date.at(hour, 0, 0, 0), now, zone));
                let first = first.min();
                if let Some(first) = first {
                    return Some(Timestamp(first.as_millisecond()));
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// Whether something is due on that day.
    fn has_day(&self, date: Date) -> bool {
        let bit = |bits: u32, at: i8| bits >> at & 1 == 1;
        let day = bit(self.days, date.day());
        let weekday = bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        let fits = match self.either_day() {
            true => day || weekday,
            false => day && weekday,
        };
        bit(self.months, date.month()) && fits
    }

    /// The first time of an hour after `now`. The zone's rule is asked for its first and its last minute: the others follow, unless
    /// clocks change between.
    fn first_of_hour(
        &self,
        hour: DateTime,
        now: jiff::Timestamp,
        zone: &Lookups<'_>,
    ) -> Option<jiff::Timestamp> {
        let at = |minute: i8| hour.date().at(hour.hour(), minute, 0, 0);
        let mut minutes = (0..60i8).filter(|minute| self.minutes >> minute & 1 == 1);
        let ends = (zone.plain(at(0)), zone.plain(at(59)));
        if let (Some(first), Some(last)) = ends
            && last.duration_since(first) == SignedDuration::from_mins(59)
        {
            let mut times = minutes.map(|m| first + SignedDuration::from_mins(i64::from(m)));
            return times.find(|time| *time > now);
        }
        let times = minutes
            .by_ref()
            .flat_map(|minute| self.instants(at(minute), zone));
        times.filter(|time| *time > now).min()
    }

    fn instants(
        &self,
        time: DateTime,
        zone: &Lookups<'_>,
    ) -> impl Iterator<Item = jiff::Timestamp> {
        let ambiguous = zone.look(time);
        let goes_on = self.hours & ALL_HOURS == ALL_HOURS;
        let [first, second] = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => [ambiguous.compatible().ok(), None],
            AmbiguousOffset::Gap { .. } if goes_on => [None, None],
            AmbiguousOffset::Fold { .. } if goes_on => {
                [ambiguous.earlier().ok(), ambiguous.later().ok()]
            }
            AmbiguousOffset::Gap { .. } | AmbiguousOffset::Fold { .. } => {
                [ambiguous.compatible().ok(), None]
            }
        };
        first.into_iter().chain(second)
    }
}
