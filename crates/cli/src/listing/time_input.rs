//! Points in time as sacct's `--starttime` and `--endtime` take them.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use muster_model::time::Timestamp;

/// Reads a time: `HH:MM[:SS][AM|PM]`, `MMDD[YY]`, `MM/DD[/YY]`, `MM.DD[.YY]`, `YYYY-MM-DD[THH:MM[:SS]]` (each with
/// `-HH:MM[:SS]` too), `today`, `midnight`, `noon`, `fika`, `teatime`, `tomorrow`, `now[{+|-}count[unit]]`, `uts...`.
/// None when it is not one.
pub(crate) fn parse(text: &str, now: &Zoned) -> Option<Timestamp> {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("uts") {
        return rest.parse().ok().map(Timestamp::from_unix_s);
    }
    if let Some(rest) = lower.strip_prefix("now") {
        return offset(rest).map(|s| Timestamp::from_unix_s(now.timestamp().as_second() + s));
    }
    let (day, rest) = if let Some(rest) = lower.strip_prefix("today") {
        (now.date(), rest)
    } else if let Some(rest) = lower.strip_prefix("tomorrow") {
        (now.date().tomorrow().ok()?, rest)
    } else if let Some(time) = clock(&lower) {
        return local(DateTime::from_parts(now.date(), time), now.time_zone());
    } else {
        date(&lower, now)?
    };
    let time = match rest.strip_prefix(['t', '-', ' ']) {
        Some(time) => clock(time)?,
        None if rest.is_empty() => Time::midnight(),
        None => return None,
    };
    local(DateTime::from_parts(day, time), now.time_zone())
}

fn local(at: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let zoned = at.to_zoned(zone.clone()).ok()?;
    Some(Timestamp::from_unix_s(zoned.timestamp().as_second()))
}

/// `+3days`, `-7200`, empty: seconds.
fn offset(text: &str) -> Option<i64> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if text.is_empty() {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let count: i64 = rest[..digits].parse().ok()?;
    let unit = match &rest[digits..] {
        "" => 1,
        unit if "seconds".starts_with(unit) => 1,
        unit if "minutes".starts_with(unit) => 60,
        unit if "hours".starts_with(unit) => 3600,
        unit if "days".starts_with(unit) => 86_400,
        unit if "weeks".starts_with(unit) => 604_800,
        _ => return None,
    };
    count.checked_mul(unit)?.checked_mul(sign)
}

/// `HH:MM[:SS][AM|PM]` or a word for a time of day.
fn clock(text: &str) -> Option<Time> {
    match text {
        "midnight" => return Some(Time::midnight()),
        "noon" => return Time::new(12, 0, 0, 0).ok(),
        "fika" => return Time::new(15, 0, 0, 0).ok(),
        "teatime" => return Time::new(16, 0, 0, 0).ok(),
        _ => {}
    }
    let text = text.trim();
    let (digits, half) = if let Some(rest) = text.strip_suffix("am") {
        (rest.trim_end(), Some(0))
    } else if let Some(rest) = text.strip_suffix("pm") {
        (rest.trim_end(), Some(12))
    } else {
        (text, None)
    };
    let mut parts = digits.split(':');
    let hour: i8 = two_digits(parts.next()?)?;
    let minute = two_digits(parts.next()?)?;
    let second = parts.next().map_or(Some(0), two_digits)?;
    if parts.next().is_some() {
        return None;
    }
    let hour = match half {
        None => hour,
        Some(add) if (1..=12).contains(&hour) => hour % 12 + add,
        Some(_) => return None,
    };
    Time::new(hour, minute, second, 0).ok()
}

fn two_digits(text: &str) -> Option<i8> {
    (!text.is_empty() && text.len() <= 2).then(|| text.parse().ok())?
}

/// A date at the start of the text, and what follows it.
fn date<'t>(text: &'t str, now: &Zoned) -> Option<(Date, &'t str)> {
    if let Some((head, rest)) = text.split_at_checked(10)
        && let [year, month, day] = *head.split('-').collect::<Vec<_>>()
        && year.len() == 4
    {
        let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
        return Some((date, rest));
    }
    let length = text
        .find(|c: char| !(c.is_ascii_digit() || c == '/' || c == '.'))
        .unwrap_or(text.len());
    let (head, rest) = text.split_at(length);
    let parts: Vec<&str> = if head.contains(['/', '.']) {
        head.split(['/', '.']).collect()
    } else if matches!(head.len(), 4 | 6) {
        head.as_bytes()
            .chunks(2)
            .map(|c| std::str::from_utf8(c).unwrap_or(""))
            .collect()
    } else {
        return None;
    };
    let number = |i: usize| parts.get(i).and_then(|p| p.parse::<i16>().ok());
    let (month, day) = (number(0)?, number(1)?);
    let year = match parts.len() {
        2 => now.year(),
        3 => Some(number(2)?).map(|y| if y < 100 { 2000 + y } else { y })?,
        _ => return None,
    };
    let date = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    Some((date, rest))
}

/// The start of the day.
pub(crate) fn midnight(now: &Zoned) -> Timestamp {
    let at = now
        .start_of_day()
        .unwrap_or_else(|_| now.saturating_sub(1.day()));
    Timestamp::from_unix_s(at.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<String> {
        let now = DateTime::constant(2026, 11, 21, 20, 23, 45, 0)
            .to_zoned(TimeZone::UTC)
            .unwrap();
        parse(text, &now).map(|t| {
            let zoned = jiff::Timestamp::from_second(t.unix_s())
                .unwrap()
                .to_zoned(TimeZone::UTC);
            zoned.strftime("%F %T").to_string()
        })
    }

    #[test]
    fn all_forms() {
        for (text, expected) in [
            ("now", "2026-11-21 20:23:45"),
            ("now-7days", "2026-11-14 20:23:45"),
            ("now-1hour", "2026-11-21 19:23:45"),
            ("now-1hours", "2026-11-21 19:23:45"),
            ("now+90", "2026-11-21 20:25:15"),
            ("now-2weeks", "2026-11-07 20:23:45"),
            ("today", "2026-11-21 00:00:00"),
            ("midnight", "2026-11-21 00:00:00"),
            ("noon", "2026-11-21 12:00:00"),
            ("teatime", "2026-11-21 16:00:00"),
            ("18:30", "2026-11-21 18:30:00"),
            ("6:30:05PM", "2026-11-21 18:30:05"),
            ("12:00AM", "2026-11-21 00:00:00"),
            ("1120", "2026-11-20 00:00:00"),
            ("112025", "2025-11-20 00:00:00"),
            ("11/20", "2026-11-20 00:00:00"),
            ("11.20.25-13:05", "2025-11-20 13:05:00"),
            ("11/20/25-13:05:07", "2025-11-20 13:05:07"),
            ("2026-11-19", "2026-11-19 00:00:00"),
            ("2026-11-19T19:00", "2026-11-19 19:00:00"),
            ("2026-11-19T19:00:01", "2026-11-19 19:00:01"),
            ("2014-07-03-11:40", "2014-07-03 11:40:00"),
            ("uts1795292618", "2026-11-21 20:23:38"),
        ] {
            assert_eq!(at(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "x",
            "25:00",
            "now*3",
            "2026-13-01",
            "13PM",
            "now-3fortnights",
            "é-é-é",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
