//! When a schedule comes next, in a zone whose clocks may be changed.

use super::Schedule;
use crate::time::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
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
        /// What was written.
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
}

impl Schedule {
    /// The first time after `after` that this schedule names.
    ///
    /// Where clocks are put forward, an hour that is skipped is made up for right after; where they are put back, an hour
    /// that comes twice counts once. A schedule of every hour knows no such thing: it goes by the time that passes.
    pub fn next(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let now = jiff::Timestamp::from_millisecond(after.0).ok()?;
        // From the day before on: what was skipped at its end is made up for on this one.
        let mut date = zone.0.to_datetime(now).date().yesterday().ok()?;
        for _ in 0..DAYS_MAX {
            if self.has_day(date) {
                let first = self.minutes_of(date, zone).filter(|time| *time > now).min();
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

    /// The times of a day, in no order.
    fn minutes_of(&self, date: Date, zone: &Zone) -> impl Iterator<Item = jiff::Timestamp> {
        let hours = (0..24i8).filter(move |hour| self.hours >> hour & 1 == 1);
        let minutes = move |hour| {
            let of_hour = (0..60i8).filter(move |minute| self.minutes >> minute & 1 == 1);
            of_hour.map(move |minute| date.at(hour, minute, 0, 0))
        };
        hours
            .flat_map(minutes)
            .flat_map(move |time| self.instants(time, zone))
    }

    fn instants(&self, time: DateTime, zone: &Zone) -> impl Iterator<Item = jiff::Timestamp> {
        let ambiguous = zone.0.to_ambiguous_timestamp(time);
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
