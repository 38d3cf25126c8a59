//! The entries of a calendar.

use super::{Calendar, CalendarState, NONE};
use jiff::civil::Date;

/// Seconds of a day.
pub(super) const DAY_S: i64 = 86_400;
/// Years that dates may have.
const YEARS: std::ops::RangeInclusive<i16> = 1970..=2199;

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// Days from one to another, both included.
#[derive(Debug, PartialEq)]
struct DateRange {
    first: Date,
    last: Date,
}

/// Days that an entry is about.
#[derive(Debug, PartialEq)]
enum Days {
    /// Each day.
    Every,
    /// Days of the calendar.
    Dates(Vec<DateRange>),
    /// Days of the week, Monday first.
    Weekdays([bool; 7]),
}

impl Days {
    fn has(&self, date: Date) -> bool {
        match self {
            Days::Every => true,
            Days::Dates(all) => all.iter().any(|own| (own.first..=own.last).contains(&date)),
            Days::Weekdays(all) => {
                let day = date.weekday().to_monday_zero_offset();
                usize::try_from(day).is_ok_and(|day| all.get(day) == Some(&true))
            }
        }
    }
}

/// Times of a day, seconds, without the second one.
#[derive(Debug, PartialEq)]
struct DayTime {
    start_s: i64,
    end_s: i64,
}

#[derive(Debug, PartialEq)]
struct Entry {
    days: Days,
    times: Vec<DayTime>,
    state: CalendarState,
}

/// All entries.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rules {
    year: Vec<Entry>,
    week: Vec<Entry>,
}

impl Rules {
    /// Reads both parts.
    ///
    /// # Errors
    /// The first entry that is wrong.
    pub(super) fn parse(calendar: &Calendar) -> Result<Rules, String> {
        let part = |text: &str, of: Part| -> Result<Vec<Entry>, String> {
            let all: Result<Vec<Entry>, String> = match text {
                NONE => return Ok(Vec::new()),
                text => text.split(' ').map(|word| entry(word, of)).collect(),
            };
            let key = match of {
                Part::Year => "year",
                Part::Week => "week",
            };
            let name = &calendar.name;
            all.map_err(|why| format!("error in disabled_{key} of calendar \"{name}\": {why}"))
        };
        Ok(Rules {
            year: part(&calendar.year, Part::Year)?,
            week: part(&calendar.week, Part::Week)?,
        })
    }

    /// Whether days differ by more than the day of the week.
    pub(super) fn has_dates(&self) -> bool {
        self.year.iter().any(|own| own.days != Days::Every)
    }

    /// Entries about a day: those of its date, else those of its day of the week.
    fn of(&self, date: Date) -> impl Iterator<Item = &Entry> {
        let is_dated = self.year.iter().any(|own| own.days.has(date));
        let part = if is_dated { &self.year } else { &self.week };
        part.iter().filter(move |own| own.days.has(date))
    }

    pub(super) fn state(&self, date: Date, time_s: i32) -> CalendarState {
        let time_s = i64::from(time_s);
        let applies = |own: &&Entry| {
            let mut times = own.times.iter();
            times.any(|time| (time.start_s..time.end_s).contains(&time_s))
        };
        let states = self.of(date).filter(applies).map(|own| own.state);
        states.min().unwrap_or_default()
    }

    /// Seconds of a day at which its state may change, and that of the day's end.
    pub(super) fn boundaries(&self, date: Date) -> Vec<i64> {
        let times = self.of(date).flat_map(|own| &own.times);
        let mut all: Vec<i64> = times.flat_map(|time| [time.start_s, time.end_s]).collect();
        all.push(DAY_S);
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Year,
    Week,
}

/// An entry: `DAYS=TIMES=STATE`, with one of them at least.
fn entry(word: &str, of: Part) -> Result<Entry, String> {
    let (mut days, mut times, mut state) = (None, None, None);
    for part in word.split('=') {
        let named = match part.to_ascii_lowercase().as_str() {
            "on" => Some(CalendarState::On),
            "off" => Some(CalendarState::Off),
            "suspended" => Some(CalendarState::Suspended),
            _ => None,
        };
        let is_days = match of {
            Part::Year => part.contains('.'),
            Part::Week => part.starts_with(|c: char| c.is_ascii_alphabetic()),
        };
        let has_later = state.is_some() || (times.is_some() && named.is_none());
        if part.is_empty() || has_later {
            return Err(format!(
                "'{word:.80}': expected days=times=on|off|suspended"
            ));
        }
        match named {
            Some(named) => state = Some(named),
            None if is_days && days.is_none() => days = Some(self::days(part, of)?),
            None => times = Some(self::times(part)?),
        }
    }
    Ok(Entry {
        days: days.unwrap_or(Days::Every),
        times: times.unwrap_or_else(|| {
            vec![DayTime {
                start_s: 0,
                end_s: DAY_S,
            }]
        }),
        state: state.unwrap_or(CalendarState::Off),
    })
}

fn days(list: &str, of: Part) -> Result<Days, String> {
    match of {
        Part::Year => {
            let ranges = list.split(',').map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let (first, last) = (date(first)?, date(last)?);
                match first <= last {
                    true => Ok(DateRange { first, last }),
                    false => Err(format!("'{range:.80}' ends before it begins")),
                }
            });
            ranges.collect::<Result<_, String>>().map(Days::Dates)
        }
        Part::Week => {
            let mut all = [false; 7];
            for range in list.split(',') {
                let (first, last) = match range.split_once('-') {
                    None => (weekday(range)?, weekday(range)?),
                    Some((first, last)) if first.eq_ignore_ascii_case(last) => {
                        return Err(format!("found useless weekday range '{range:.80}'"));
                    }
                    Some((first, last)) => (weekday(first)?, weekday(last)?),
                };
                // From Saturday to Monday, for example.
                let count = (last + 7 - first) % 7 + 1;
                (0..count).for_each(|day| all[(first + day) % 7] = true);
            }
            Ok(Days::Weekdays(all))
        }
    }
}

fn weekday(name: &str) -> Result<usize, String> {
    let given = name.to_ascii_lowercase();
    let found = WEEKDAYS
        .iter()
        .position(|own| given.len() >= 3 && own.starts_with(&given));
    found.ok_or_else(|| format!("\"{name:.80}\" is not a weekday"))
}

/// A date, `24.12.2026` or `24.dec.2026`.
fn date(text: &str) -> Result<Date, String> {
    let wrong = || format!("'{text:.80}' is not a date: day.month.year");
    let parts: Vec<&str> = text.split('.').collect();
    let [day, month, year] = parts[..] else {
        return Err(wrong());
    };
    let named = MONTHS
        .iter()
        .position(|own| own.eq_ignore_ascii_case(month));
    let month = match named {
        Some(at) => i8::try_from(at + 1).ok(),
        None => number(month),
    };
    let found = number(year)
        .filter(|year| YEARS.contains(year))
        .zip(month)
        .zip(number(day));
    found
        .and_then(|((year, month), day)| Date::new(year, month, day).ok())
        .ok_or_else(wrong)
}

/// A number without a sign.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn times(list: &str) -> Result<Vec<DayTime>, String> {
    let mut all = Vec::new();
    for range in list.split(',') {
        let Some((start, end)) = range.split_once('-') else {
            return Err(format!("missing '-' in daytime range '{range:.80}'"));
        };
        let (start_s, end_s) = (time(start)?, time(end)?);
        if start_s == end_s {
            return Err(format!(
                "range begin is equal to end in '{range:.80}' - use 0-24 instead"
            ));
        }
        if start_s < end_s {
            all.push(DayTime { start_s, end_s });
        } else {
            // The night: its hours are those of the same day.
            let rest = [
                DayTime { start_s: 0, end_s },
                DayTime {
                    start_s,
                    end_s: DAY_S,
                },
            ];
            all.extend(rest.into_iter().filter(|time| time.start_s < time.end_s));
        }
    }
    Ok(all)
}

/// A time of day in seconds; 24 is its end.
fn time(text: &str) -> Result<i64, String> {
    let mut parts = text.split(':').map(number::<i64>);
    let mut next = |most: i64| match parts.next() {
        None => Some(0),
        Some(part) => part.filter(|part| *part <= most),
    };
    let found = next(24).zip(next(59)).zip(next(59));
    let time_s = found.map(|((hours, minutes), seconds)| hours * 3600 + minutes * 60 + seconds);
    let is_whole = parts.next().is_none();
    time_s
        .filter(|time_s| is_whole && *time_s <= DAY_S)
        .ok_or_else(|| format!("'{text:.80}' is not a time of day: hour[:minute[:second]]"))
}
