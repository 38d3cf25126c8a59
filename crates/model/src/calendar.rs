//! Calendars of queues, as calendar_conf(5) of Grid Engine has them: times of days and weeks at which a partition starts no jobs, or
//! its jobs are stopped. Nothing here reads a clock: the time and the zone are arguments.

mod rules;

use crate::cron::Zone;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};
use rules::{DAY_S, Rules};

/// Longest text of `year` or `week`, bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 256;
/// Days that are looked at for the next change. After them the calendar is looked at again.
const DAYS_AHEAD: u32 = 400;
/// Days after which weeks repeat, when no date is named.
const DAYS_OF_WEEKS: u32 = 8;
/// Changes of the clocks that are looked at.
const CLOCK_CHANGES: usize = 4;
/// A part that says nothing.
const NONE: &str = "NONE";

/// The state of a partition by its calendar. If several apply, the first one here counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum CalendarState {
    /// It is as its own state says.
    #[default]
    #[n(0)]
    On,
    /// It starts no jobs, and those that run are stopped.
    #[n(1)]
    Suspended,
    /// It starts no jobs; those that run go on.
    #[n(2)]
    Off,
}

impl CalendarState {
    /// The state as calendars write it.
    pub fn name(self) -> &'static str {
        match self {
            CalendarState::On => "on",
            CalendarState::Suspended => "suspended",
            CalendarState::Off => "off",
        }
    }
}

/// The text of a calendar.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Calendar {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Entries for dates, `NONE` for none.
    #[n(1)]
    pub year: String,
    /// Entries for days of the week, `NONE` for none.
    #[n(2)]
    pub week: String,
}

impl Calendar {
    /// A calendar of this name with these entries; empty is `NONE`.
    ///
    /// # Errors
    /// An entry is wrong, or the name.
    pub fn new(name: &str, year: &str, week: &str) -> Result<Calendar, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_keyword = ["year", "week", NONE].contains(&name);
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || !name.chars().all(is_plain)
            || is_keyword
        {
            return Err(format!("'{name:.80}' is not a valid name of a calendar"));
        }
        let part = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            match words.is_empty() || (words.len() == 1 && words[0].eq_ignore_ascii_case(NONE)) {
                true => NONE.to_owned(),
                false => words.join(" "),
            }
        };
        let calendar = Calendar {
            name: name.to_owned(),
            year: part(year),
            week: part(week),
        };
        if calendar.year.len().max(calendar.week.len()) > TEXT_BYTES_MAX {
            return Err(format!("a calendar has more than {TEXT_BYTES_MAX} bytes"));
        }
        Rules::parse(&calendar)?;
        Ok(calendar)
    }

    /// Reads `NAME [year ENTRY...] [week ENTRY...]`.
    ///
    /// # Errors
    /// It is something else, or an entry is wrong.
    pub fn parse(text: &str) -> Result<Calendar, String> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut parts: Vec<(&str, Vec<&str>)> = Vec::new();
        for word in words {
            let is_twice = parts.iter().any(|(own, _)| *own == word);
            match (word, parts.last_mut()) {
                ("year" | "week", _) if is_twice => {
                    return Err(format!("'{word}' is there twice"));
                }
                ("year" | "week", _) => parts.push((word, Vec::new())),
                (_, Some((_, entries))) => entries.push(word),
                (_, None) => {
                    return Err(format!("'{word:.80}': expected NAME year ... week ..."));
                }
            }
        }
        let part = |name: &str| {
            let found = parts.iter().find(|(own, _)| *own == name);
            found.map_or_else(String::new, |(_, entries)| entries.join(" "))
        };
        Calendar::new(name, &part("year"), &part("week"))
    }

    /// The text that [`Calendar::parse`] reads.
    pub fn text(&self) -> String {
        format!("{} year {} week {}", self.name, self.year, self.week)
    }

    /// The state at a time in a zone, and when it is another; `None` if never. After a long time without a change the time is that
    /// at which the calendar is to be asked again.
    pub fn state_at(&self, now: Timestamp, zone: &Zone) -> (CalendarState, Option<Timestamp>) {
        // The text was read when the calendar was made.
        let rules = Rules::parse(self).unwrap_or_default();
        let zone = zone.rule();
        let state = |at: jiff::Timestamp| {
            let time = zone.to_datetime(at);
            let time_s = i32::from(time.hour()) * 3600 + i32::from(time.minute()) * 60;
            rules.state(time.date(), time_s + i32::from(time.second()))
        };
        let Ok(at) = jiff::Timestamp::from_millisecond(now.0) else {
            return (CalendarState::On, None);
        };
        let current = state(at);
        let days = match rules.has_dates() {
            true => DAYS_AHEAD,
            false => DAYS_OF_WEEKS,
        };
        // Where clocks are changed, times are left out or come twice.
        let clocks: Vec<jiff::Timestamp> = zone
            .following(at)
            .take(CLOCK_CHANGES)
            .map(|change| change.timestamp())
            .collect();
        let mut date = zone.to_datetime(at).date();
        let mut last = at;
        for _ in 0..days {
            let mut times = Vec::new();
            for time_s in rules.boundaries(date) {
                let start = match time_s {
                    DAY_S.. => date.tomorrow().ok().map(|date| date.at(0, 0, 0, 0)),
                    time_s => date
                        .at(0, 0, 0, 0)
                        .checked_add(jiff::Span::new().seconds(time_s))
                        .ok(),
                };
                let Some(start) = start else { continue };
                let found = zone.to_ambiguous_timestamp(start);
                times.extend(found.earlier().ok());
                times.extend(found.later().ok());
            }
            let end = times.iter().max().copied().unwrap_or(last);
            times.extend(clocks.iter().filter(|own| **own > last && **own <= end));
            times.sort_unstable();
            if let Some(change) = times
                .into_iter()
                .find(|own| *own > at && state(*own) != current)
            {
                return (current, Some(Timestamp(change.as_millisecond())));
            }
            last = end;
            let Ok(next) = date.tomorrow() else {
                return (current, None);
            };
            date = next;
        }
        let again = rules.has_dates().then(|| Timestamp(last.as_millisecond()));
        (current, again.filter(|again| *again > now))
    }
}

/// The calendar of a partition with its state now.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PartitionCalendar {
    /// The calendar.
    #[n(0)]
    pub calendar: Calendar,
    /// The state when it was asked last.
    #[n(1)]
    pub state: CalendarState,
    /// When it is to be asked again; `None` if it never changes.
    #[n(2)]
    pub next_change: Option<Timestamp>,
}

impl PartitionCalendar {
    /// A calendar that is to be asked at once.
    pub fn new(calendar: Calendar) -> PartitionCalendar {
        PartitionCalendar {
            calendar,
            state: CalendarState::On,
            next_change: Some(Timestamp::default()),
        }
    }

    /// Takes the state of this time.
    pub fn ask(&mut self, now: Timestamp, zone: &Zone) {
        (self.state, self.next_change) = self.calendar.state_at(now, zone);
    }
}

#[cfg(test)]
mod tests;
