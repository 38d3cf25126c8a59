//! Crontabs of users (`scrontab`): the times of an entry, which lines a crontab has, and when an entry comes next. All
//! of it is arithmetic: the zone comes as a rule, the time as an argument.

mod times;

pub use times::{ScheduleError, Zone};

use crate::ids::JobId;
use crate::limits::{CRONTAB_BYTES_MAX, CRONTAB_JOBS_MAX, NAME_BYTES_MAX};
use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::fmt;

/// The words that begin a line which was taken out of use because its job was cancelled.
pub const DISABLED: &str = "#DISABLED: ";
/// The word that begins a line of options.
pub const OPTIONS: &str = "#SCRON";

/// `ScronParameters`, and the zone that times are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct CrontabConfig {
    /// `enable`.
    #[n(0)]
    pub enabled: bool,
    /// `explicit_scancel`: `scancel --cron` alone cancels such jobs.
    #[n(1)]
    pub explicit_cancel: bool,
    /// The controller's time zone, a rule as POSIX writes it.
    #[n(2)]
    pub zone: String,
}

/// A user's crontab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct Crontab {
    /// Its text.
    #[n(0)]
    #[valid(max_bytes = CRONTAB_BYTES_MAX)]
    pub text: String,
    /// The jobs of its entries.
    #[n(1)]
    #[valid(max_items = CRONTAB_JOBS_MAX)]
    pub jobs: Vec<JobId>,
    /// The owner.
    #[n(2)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub user: String,
}

/// The place of a job in its user's crontab, and when it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct CronEntry {
    /// Its times.
    #[n(0)]
    pub schedule: Schedule,
    /// The first line of the entry, options included; the first of the text is 1.
    #[n(1)]
    pub first_line: u32,
    /// The line with its times.
    #[n(2)]
    pub last_line: u32,
    /// It goes back to the queue after each run. A job whose entry was removed does not.
    #[n(3)]
    pub recurs: bool,
}

/// When an entry runs: which minutes, hours, days, months and weekdays, bit by bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct Schedule {
    /// Minutes, from 0.
    #[n(0)]
    pub minutes: u64,
    /// Hours, from 0.
    #[n(1)]
    pub hours: u32,
    /// Days of the month; the first is bit 1.
    #[n(2)]
    pub days: u32,
    /// Months; January is bit 1.
    #[n(3)]
    pub months: u32,
    /// Days of the week; Sunday is bit 0.
    #[n(4)]
    pub weekdays: u32,
    /// Fields that were written `*`: bit 0 is the minutes.
    #[n(5)]
    pub any: u32,
}

/// One of the five fields.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        least: 0,
        most: 59,
        names: &[],
    },
    Field {
        name: "hour",
        least: 0,
        most: 23,
        names: &[],
    },
    Field {
        name: "day of month",
        least: 1,
        most: 31,
        names: &[],
    },
    Field {
        name: "month",
        least: 1,
        most: 12,
        names: &MONTHS,
    },
    Field {
        name: "day of week",
        least: 0,
        most: 7,
        names: &WEEKDAYS,
    },
];

/// Words for common times.
const SHORTCUTS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 0-23 * * *"),
];

impl Schedule {
    /// Reads the times with which an entry begins: five fields, or a word. Gives them and the command that follows.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse_entry(line: &str) -> Result<(Schedule, &str), ScheduleError> {
        let line = line.trim_start();
        if line.starts_with('@') {
            let (word, command) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let known = SHORTCUTS.iter().find(|(name, _)| *name == word);
            let (_, times) = known.ok_or_else(|| ScheduleError::Shortcut(word.to_owned()))?;
            let (schedule, _) = Schedule::parse_fields(times)?;
            return Ok((schedule, command.trim()));
        }
        Schedule::parse_fields(line).map(|(schedule, command)| (schedule, command.trim()))
    }

    fn parse_fields(mut rest: &str) -> Result<(Schedule, &str), ScheduleError> {
        let (mut bits, mut any) = ([0u64; 5], 0);
        for (at, field) in FIELDS.iter().enumerate() {
            rest = rest.trim_start();
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let (word, others) = rest.split_at(end);
            bits[at] = field.parse(word)?;
            any |= u32::from(word == "*") << at;
            rest = others;
        }
        let low = |bits: u64| u32::try_from(bits).unwrap_or(u32::MAX);
        let sunday = bits[4] >> 7 & 1;
        let schedule = Schedule {
            minutes: bits[0],
            hours: low(bits[1]),
            days: low(bits[2]),
            months: low(bits[3]),
            weekdays: low(bits[4] & 0x7f | sunday),
            any,
        };
        Ok((schedule, rest))
    }

    /// Whether a day of a month and a day of the week are both given, so that either will do.
    fn either_day(&self) -> bool {
        self.any & 0b10100 == 0
    }
}

impl Field {
    fn parse(&self, word: &str) -> Result<u64, ScheduleError> {
        let bad = || ScheduleError::Field {
            name: self.name,
            word: word.to_owned(),
        };
        if word.is_empty() {
            return Err(ScheduleError::Missing(self.name));
        }
        let mut bits = 0;
        for part in word.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                // All values stand alone: in a list they would be the whole list.
                None if range == "*" && part.len() == word.len() => (self.least, self.most),
                None if step.is_none() => {
                    let one = self.value(range).ok_or_else(bad)?;
                    (one, one)
                }
                None => return Err(bad()),
                Some((first, last)) => {
                    let first = self.value(first).ok_or_else(bad)?;
                    let last = self.value(last).ok_or_else(bad)?;
                    if last <= first {
                        return Err(bad());
                    }
                    (first, last)
                }
            };
            let step = match step {
                None => 1,
                Some(text) => number(text)
                    .filter(|step| (1..=self.most).contains(step))
                    .ok_or_else(|| ScheduleError::Step(text.to_owned()))?,
            };
            for value in (first..=last).step_by(step as usize) {
                bits |= 1 << value;
            }
        }
        Ok(bits)
    }

    /// A number within the field's bounds, or a name of three letters.
    fn value(&self, text: &str) -> Option<u32> {
        let lower = text.to_ascii_lowercase();
        if let Some(at) = self.names.iter().position(|name| *name == lower) {
            return u32::try_from(at).ok().map(|at| at + self.least);
        }
        number(text).filter(|value| (self.least..=self.most).contains(value))
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Schedule {
    /// The five fields, each as a list of numbers and ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            self.minutes,
            self.hours.into(),
            self.days.into(),
            self.months.into(),
            self.weekdays.into(),
        ];
        for (at, bits) in fields.into_iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            match self.any >> at & 1 {
                1 => f.write_str("*")?,
                _ => write_ranges(f, bits)?,
            }
        }
        Ok(())
    }
}

fn write_ranges(f: &mut fmt::Formatter<'_>, bits: u64) -> fmt::Result {
    let (mut at, mut comma) = (0, "");
    while at < 64 {
        if bits >> at & 1 == 0 {
            at += 1;
            continue;
        }
        let first = at;
        while at < 63 && bits >> (at + 1) & 1 == 1 {
            at += 1;
        }
        match at - first {
            0 => write!(f, "{comma}{first}")?,
            _ => write!(f, "{comma}{first}-{at}")?,
        }
        comma = ",";
        at += 1;
    }
    Ok(())
}

/// Kind of a line of a crontab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrontabLine<'a> {
    /// Nothing, or a comment.
    Comment,
    /// Options of the entry that follows.
    Options(&'a str),
    /// `NAME=value`.
    Variable(&'a str, &'a str),
    /// Times and a command.
    Entry(&'a str),
}

impl<'a> CrontabLine<'a> {
    /// The kind of a line.
    pub fn of(line: &'a str) -> CrontabLine<'a> {
        let text = line.trim();
        if let Some(options) = text.strip_prefix(OPTIONS) {
            return CrontabLine::Options(options);
        }
        if text.is_empty() || text.starts_with('#') {
            return CrontabLine::Comment;
        }
        if let Some((name, value)) = text.split_once('=') {
            let name = name.trim_end();
            let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if begins_well && name.chars().all(is_name) {
                return CrontabLine::Variable(name, value.trim());
            }
        }
        CrontabLine::Entry(text)
    }
}

/// The lines of entries in a text: the first, options included, and that with the times.
pub fn entries(text: &str) -> Vec<(u32, u32)> {
    let (mut found, mut first) = (Vec::new(), None);
    for (number, line) in (1u32..).zip(text.lines()) {
        match CrontabLine::of(line) {
            CrontabLine::Options(_) => first = first.or(Some(number)),
            CrontabLine::Entry(_) => found.push((first.take().unwrap_or(number), number)),
            CrontabLine::Comment | CrontabLine::Variable(..) => {}
        }
    }
    found
}

/// The text with an entry taken out of use. As many lines as before.
pub fn disable(text: &str, (first, last): (u32, u32)) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    for (number, line) in (1u32..).zip(text.split_inclusive('\n')) {
        let belongs = match CrontabLine::of(line) {
            CrontabLine::Options(_) => (first..=last).contains(&number),
            CrontabLine::Entry(_) => number == last,
            CrontabLine::Comment | CrontabLine::Variable(..) => false,
        };
        if belongs {
            out.push_str(DISABLED);
        }
        out.push_str(line);
    }
    out
}

#[cfg(test)]
mod tests;
