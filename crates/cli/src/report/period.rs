//! From when to when a report is, and the hours, days or months that it is divided into.

use crate::sreport::measure::Period;
use jiff::{RoundMode, ToSpan as _, Unit, Zoned, ZonedRound};
use muster_model::time::Timestamp;

/// Divisions of a report at most: a year of hours.
const DIVISIONS_MAX: usize = 8784;

/// Division of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Every {
    /// By hours.
    Hour,
    /// By days.
    Day,
    /// By months.
    Month,
}

/// When a month begins and ends, as times are given: `last`, `this` or `2026-10`.
///
/// # Errors
/// It is no month.
pub(crate) fn month(word: &str, now: &Zoned) -> Result<(String, String), String> {
    let wrong = || format!("'{word:.40}': expected last, this, or a month such as 2026-10");
    let inside = match word {
        "this" => now.clone(),
        "last" => now.checked_sub(1.month()).map_err(|e| e.to_string())?,
        other => {
            let (year, month) = other.split_once('-').ok_or_else(wrong)?;
            let (year, month) = (
                year.parse().map_err(|_| wrong())?,
                month.parse().map_err(|_| wrong())?,
            );
            let day = jiff::civil::Date::new(year, month, 1).map_err(|_| wrong())?;
            day.to_zoned(now.time_zone().clone())
                .map_err(|e| e.to_string())?
        }
    };
    let (begin, next) = Every::Month.around(&inside).map_err(|e| e.to_string())?;
    let shown = |at: &Zoned| at.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    Ok((shown(&begin), shown(&next)))
}

impl Every {
    /// Reads `hour`, `day` or `month`.
    pub(crate) fn parse(word: &str) -> Option<Every> {
        let all = [Every::Hour, Every::Day, Every::Month];
        all.into_iter().find(|every| every.name() == word)
    }

    /// The column's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Every::Hour => "hour",
            Every::Day => "day",
            Every::Month => "month",
        }
    }

    /// Where the division begins that a moment is in, and where the next does.
    fn around(self, at: &Zoned) -> Result<(Zoned, Zoned), jiff::Error> {
        let hour = ZonedRound::new()
            .smallest(Unit::Hour)
            .mode(RoundMode::Trunc);
        let (begin, length) = match self {
            Every::Hour => (at.round(hour)?, 1.hour()),
            Every::Day => (at.start_of_day()?, 1.day()),
            Every::Month => (at.first_of_month()?.start_of_day()?, 1.month()),
        };
        let next = begin.checked_add(length)?;
        Ok((begin, next))
    }

    /// A division as it is shown.
    fn label(self, begin: &Zoned) -> String {
        let form = match self {
            Every::Hour => "%Y-%m-%dT%H:%M%:z",
            Every::Day => "%Y-%m-%d",
            Every::Month => "%Y-%m",
        };
        begin.strftime(form).to_string()
    }
}

/// A part of a period, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) period: Period,
    pub(crate) label: String,
}

/// Divides a period, in the time zone of a moment.
///
/// # Errors
/// There would be too many, or the calendar ends.
pub(crate) fn divide(
    period: Period,
    every: Option<Every>,
    now: &Zoned,
) -> Result<Vec<Division>, String> {
    let Some(every) = every else {
        let label = String::new();
        return Ok(vec![Division { period, label }]);
    };
    let calendar = |e: jiff::Error| format!("the period cannot be divided: {e}");
    let start = jiff::Timestamp::from_millisecond(period.start.0).map_err(calendar)?;
    let mut at = start.to_zoned(now.time_zone().clone());
    let mut divisions = Vec::new();
    loop {
        let (begin, next) = every.around(&at).map_err(calendar)?;
        let moment = |zoned: &Zoned| Timestamp(zoned.timestamp().as_millisecond());
        if moment(&begin) >= period.end {
            return Ok(divisions);
        }
        if divisions.len() == DIVISIONS_MAX {
            let name = every.name();
            return Err(format!(
                "the period has more than {DIVISIONS_MAX} {name}s: name a shorter one, or longer parts"
            ));
        }
        let within = Period {
            start: moment(&begin).max(period.start),
            end: moment(&next).min(period.end),
        };
        divisions.push(Division {
            period: within,
            label: every.label(&begin),
        });
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment, in the time zone of Berlin.
    fn at(text: &str) -> Zoned {
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        text.parse::<jiff::Timestamp>().unwrap().to_zoned(zone)
    }

    fn labels(start: &str, end: &str, every: Every) -> Vec<String> {
        let moment = |text: &str| Timestamp(at(text).timestamp().as_millisecond());
        let period = Period {
            start: moment(start),
            end: moment(end),
        };
        let parts = divide(period, Some(every), &at(start)).unwrap();
        // They follow each other, and are the period.
        assert_eq!(parts[0].period.start, period.start);
        assert_eq!(parts.last().unwrap().period.end, period.end);
        for pair in parts.windows(2) {
            assert_eq!(pair[0].period.end, pair[1].period.start);
        }
        parts.into_iter().map(|part| part.label).collect()
    }

    #[test]
    fn a_period_is_divided_where_clocks_say() {
        let days = labels("2026-01-30T12:00:00Z", "2026-02-01T23:00:00Z", Every::Day);
        assert_eq!(days, ["2026-01-30", "2026-01-31", "2026-02-01"]);
        let months = labels("2025-12-31T00:00:00Z", "2026-03-01T01:00:00Z", Every::Month);
        assert_eq!(months, ["2025-12", "2026-01", "2026-02", "2026-03"]);
        let now: jiff::Timestamp = "2026-03-31T12:00:00Z".parse().unwrap();
        let now = now.to_zoned(jiff::tz::TimeZone::UTC);
        let of = |word| month(word, &now);
        let times = |a: &str, b: &str| Ok((format!("{a}T00:00:00"), format!("{b}T00:00:00")));
        assert_eq!(of("last"), times("2026-02-01", "2026-03-01"));
        assert_eq!(of("this"), times("2026-03-01", "2026-04-01"));
        assert_eq!(of("2025-12"), times("2025-12-01", "2026-01-01"));
        for wrong in ["", "2026", "2026-13", "soon", "2026-1-1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        // An hour comes twice when summer time ends.
        let hours = labels("2026-10-25T00:00:00Z", "2026-10-25T02:30:00Z", Every::Hour);
        assert_eq!(
            hours,
            [
                "2026-10-25T02:00+02:00",
                "2026-10-25T02:00+01:00",
                "2026-10-25T03:00+01:00"
            ]
        );
    }

    #[test]
    fn too_many_parts_are_refused() {
        let period = Period {
            start: Timestamp(0),
            end: Timestamp(2_000_000_000_000),
        };
        let now = at("2026-01-01T00:00:00Z");
        let refused = divide(period, Some(Every::Hour), &now);
        assert!(refused.unwrap_err().contains("8784 hours"));
        assert_eq!(divide(period, None, &now).unwrap().len(), 1);
    }
}
