//! Points in time as `--begin` and `--deadline` take them: `now+1hour`, `16:00`, `tomorrow`, `2030-01-20T12:34:00`.
//! The time zone comes in as an argument.

use muster_model::time::Timestamp;

/// A date and time of day in the user's time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year, such as 2030.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
}

/// A time zone.
pub trait CivilZone {
    /// Seconds since the epoch as local date and time.
    fn civil(&self, unix_s: i64) -> Civil;
    /// The first moment that shows this local date and time, in seconds since the epoch.
    fn unix(&self, civil: Civil) -> Option<i64>;
}

/// Universal time.
#[derive(Clone, Copy, Debug)]
pub struct Utc;

impl CivilZone for Utc {
    fn civil(&self, unix_s: i64) -> Civil {
        let (days, rest) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
        let (year, month, day) = date_of(days);
        let part = |n: i64| u32::try_from(n).unwrap_or(0);
        Civil {
            year,
            month,
            day,
            hour: part(rest / 3600),
            minute: part(rest % 3600 / 60),
            second: part(rest % 60),
        }
    }

    fn unix(&self, c: Civil) -> Option<i64> {
        let time = i64::from(c.hour) * 3600 + i64::from(c.minute) * 60 + i64::from(c.second);
        Some(days_of(c.year, c.month, c.day) * 86_400 + time)
    }
}

/// Days since 1970-01-01 of a date.
fn days_of(year: i64, month: u32, day: u32) -> i64 {
    // Years that begin in March put the leap day last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let month = i64::from((month + 9) % 12);
    let of_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of this number of days after 1970-01-01.
fn date_of(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let small = |n: i64| u32::try_from(n).unwrap_or(1);
    (year, small(month), small(day))
}

#[derive(Default)]
struct TimeFields {
    /// Year, month, day; the year may be left out.
    date: Option<(Option<i64>, u32, u32)>,
    /// Days from today.
    days: Option<i64>,
    /// Hour, minute, second.
    time: Option<(u32, u32, u32)>,
    /// Seconds from now.
    offset: Option<i64>,
}

/// Reads a point in time.
pub fn parse(text: &str, now: Timestamp, zone: &dyn CivilZone) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix("uts") {
        return seconds.parse().ok().map(Timestamp::from_unix_s);
    }
    let mut parts = TimeFields::default();
    for word in words(text) {
        read_word(&word, &mut parts)?;
    }
    let now_s = now.unix_s();
    if let Some(offset) = parts.offset {
        if parts.date.is_some() || parts.days.is_some() || parts.time.is_some() {
            return None;
        }
        return Some(Timestamp::from_unix_s(now_s.checked_add(offset)?));
    }
    let today = zone.civil(now_s);
    let (hour, minute, second) = match (parts.time, parts.days) {
        (Some(time), _) => time,
        // `today` and `tomorrow` alone are the beginning of that day, as Slurm 22.05.8 takes them.
        (None, Some(_)) => (0, 0, 0),
        (None, None) => {
            parts.date?;
            (0, 0, 0)
        }
    };
    let at = |(year, month, day): (i64, u32, u32)| {
        zone.unix(Civil {
            year,
            month,
            day,
            hour,
            minute,
            second,
        })
    };
    let this_day = days_of(today.year, today.month, today.day);
    let unix = match (parts.date, parts.days) {
        (Some(_), Some(_)) => return None,
        (Some((Some(year), month, day)), None) => at((year, month, day))?,
        (Some((None, month, day)), None) => {
            let this_year = at((today.year, month, day))?;
            if this_year < now_s {
                at((today.year + 1, month, day))?
            } else {
                this_year
            }
        }
        (None, Some(days)) => at(date_of(this_day + days))?,
        (None, None) => {
            let this = at(date_of(this_day))?;
            if this < now_s {
                at(date_of(this_day + 1))?
            } else {
                this
            }
        }
    };
    Some(Timestamp::from_unix_s(unix))
}

/// Names of days and of times of a day.
const NAMES: [&str; 7] = [
    "today",
    "tomorrow",
    "midnight",
    "noon",
    "fika",
    "teatime",
    "elevenses",
];

/// Words in lower case; what belongs together though blanks part it is one: `now + 1 hour`, `4 PM`.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_ascii_lowercase();
    if lower.trim_start().starts_with("now") {
        return vec![lower.split_whitespace().collect()];
    }
    let mut words: Vec<String> = Vec::new();
    // A dash parts words as a blank does; dates have dashes of their own.
    let parts = lower.split_whitespace().flat_map(|word| {
        let has_name = word.split('-').any(|part| NAMES.contains(&part));
        let parts: Vec<&str> = match has_name {
            true => word.split('-').collect(),
            false => vec![word],
        };
        parts
    });
    for word in parts {
        match words.last_mut() {
            Some(before) if ["am", "pm"].contains(&word) => before.push_str(word),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn read_word(lower: &str, parts: &mut TimeFields) -> Option<()> {
    if let Some(rest) = lower.strip_prefix("now") {
        parts.offset = Some(if rest.is_empty() { 0 } else { offset(rest)? });
        return Some(());
    }
    match lower {
        "today" => parts.days = Some(0),
        "tomorrow" => parts.days = Some(1),
        "midnight" => parts.time = Some((0, 0, 0)),
        "noon" => parts.time = Some((12, 0, 0)),
        "fika" => parts.time = Some((15, 0, 0)),
        "teatime" | "elevenses" => {
            parts.time = Some(if lower == "teatime" {
                (16, 0, 0)
            } else {
                (11, 0, 0)
            });
        }
        _ => match date_and_time(lower) {
            (Some(date), Some(time)) => {
                parts.date = Some(read_date(date)?);
                parts.time = Some(read_time(time)?);
            }
            (None, Some(time)) => parts.time = Some(read_time(time)?),
            (Some(date), None) => parts.date = Some(read_date(date)?),
            (None, None) => return None,
        },
    }
    Some(())
}

/// Parts of `DATETTIME`, `DATE-TIME`, a date or a time.
fn date_and_time(text: &str) -> (Option<&str>, Option<&str>) {
    let halves = text.split_once('t').or_else(|| {
        // Dates have hyphens, too; what has a colon is a time.
        let halves = text.rsplit_once('-');
        halves.filter(|(_, time)| time.contains(':'))
    });
    match halves {
        Some((date, time)) => (Some(date), Some(time)),
        None if text.contains(':') || text.ends_with('m') => (None, Some(text)),
        None => (Some(text), None),
    }
}

/// `+1hour`, `+90`, `-5minutes`.
fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (number, unit) = rest.split_at(digits);
    let number: i64 = number.parse().ok()?;
    let unit_s = match unit {
        "" => 1,
        u if "seconds".starts_with(u) => 1,
        u if "minutes".starts_with(u) => 60,
        u if "hours".starts_with(u) => 3600,
        u if "days".starts_with(u) => 86_400,
        u if "weeks".starts_with(u) => 604_800,
        _ => return None,
    };
    number.checked_mul(unit_s)?.checked_mul(sign)
}

/// `HH:MM[:SS][am|pm]`, `HHam`, `HHpm`.
fn read_time(text: &str) -> Option<(u32, u32, u32)> {
    let (text, half) = match text.strip_suffix("am") {
        Some(rest) => (rest, Some(false)),
        None => match text.strip_suffix("pm") {
            Some(rest) => (rest, Some(true)),
            None => (text, None),
        },
    };
    let fields: Vec<u32> = text.split(':').map(two_digits).collect::<Option<_>>()?;
    let (hour, minute, second) = match fields[..] {
        [h] if half.is_some() => (h, 0, 0),
        [h, m] => (h, m, 0),
        [h, m, s] => (h, m, s),
        _ => return None,
    };
    let hour = match half {
        Some(pm) => half_day(hour, pm)?,
        None => hour,
    };
    (hour < 24 && minute < 60 && second < 60).then_some((hour, minute, second))
}

fn half_day(hour: u32, pm: bool) -> Option<u32> {
    match hour {
        12 => Some(if pm { 12 } else { 0 }),
        1..=11 => Some(if pm { hour + 12 } else { hour }),
        _ => None,
    }
}

fn two_digits(text: &str) -> Option<u32> {
    (matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// `YYYY-MM-DD`, `MM/DD[/YY]`, `MM.DD[.YY]`, `MMDD[YY]`.
fn read_date(text: &str) -> Option<(Option<i64>, u32, u32)> {
    let date = if text.contains('-') {
        let fields: Vec<&str> = text.split('-').collect();
        let [year, month, day] = fields[..] else {
            return None;
        };
        (Some(full_year(year)?), two_digits(month)?, two_digits(day)?)
    } else if text.contains(['/', '.']) {
        let fields: Vec<&str> = text.split(['/', '.']).collect();
        match fields[..] {
            [month, day] => (None, two_digits(month)?, two_digits(day)?),
            [month, day, year] => (Some(full_year(year)?), two_digits(month)?, two_digits(day)?),
            _ => return None,
        }
    } else if text.bytes().all(|b| b.is_ascii_digit()) && matches!(text.len(), 4 | 6) {
        let year = if text.len() == 6 {
            Some(full_year(&text[4..])?)
        } else {
            None
        };
        (year, two_digits(&text[..2])?, two_digits(&text[2..4])?)
    } else {
        return None;
    };
    let (_, month, day) = date;
    ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(date)
}

fn full_year(text: &str) -> Option<i64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match text.len() {
        2 => text.parse::<i64>().ok().map(|y| y + 2000),
        4 => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-21 20:15:30 UTC, a Saturday.
    const NOW: i64 = 1_795_292_130;

    fn at(text: &str) -> Option<String> {
        let t = parse(text, Timestamp::from_unix_s(NOW), &Utc)?;
        let c = Utc.civil(t.unix_s());
        Some(format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            c.year, c.month, c.day, c.hour, c.minute, c.second
        ))
    }

    #[test]
    fn forms() {
        for (text, want) in [
            ("now", "2026-11-21T20:15:30"),
            ("now+90", "2026-11-21T20:17:00"),
            ("now+1hour", "2026-11-21T21:15:30"),
            ("now+2days", "2026-11-23T20:15:30"),
            ("now+1week", "2026-11-28T20:15:30"),
            ("now-5minutes", "2026-11-21T20:10:30"),
            ("21:00", "2026-11-21T21:00:00"),
            ("16:00", "2026-11-22T16:00:00"),
            ("4:05pm", "2026-11-22T16:05:00"),
            ("16:00:07 today", "2026-11-21T16:00:07"),
            ("midnight", "2026-11-22T00:00:00"),
            ("noon", "2026-11-22T12:00:00"),
            ("teatime tomorrow", "2026-11-22T16:00:00"),
            ("noon-tomorrow", "2026-11-22T12:00:00"),
            ("tomorrow-16:30", "2026-11-22T16:30:00"),
            ("tomorrow", "2026-11-22T00:00:00"),
            ("2030-01-20", "2030-01-20T00:00:00"),
            ("2030-01-20T12:34", "2030-01-20T12:34:00"),
            ("2030-01-20T12:34:56", "2030-01-20T12:34:56"),
            ("01/20", "2027-01-20T00:00:00"),
            ("12/24/26", "2026-12-24T00:00:00"),
            ("122426", "2026-12-24T00:00:00"),
            ("12.24.26 13:00", "2026-12-24T13:00:00"),
            ("now + 2 hours", "2026-11-21T22:15:30"),
            ("NOW+30minute", "2026-11-21T20:45:30"),
            ("now+1d", "2026-11-22T20:15:30"),
            ("20:15:31", "2026-11-21T20:15:31"),
            ("4PM", "2026-11-22T16:00:00"),
            ("4 pm", "2026-11-22T16:00:00"),
            ("11PM", "2026-11-21T23:00:00"),
            ("9:30 PM", "2026-11-21T21:30:00"),
            ("12AM", "2026-11-22T00:00:00"),
            ("12:30:05PM tomorrow", "2026-11-22T12:30:05"),
            ("tomorrow 4PM", "2026-11-22T16:00:00"),
            ("today", "2026-11-21T00:00:00"),
            ("today 9pm", "2026-11-21T21:00:00"),
            ("fika", "2026-11-22T15:00:00"),
            ("teatime", "2026-11-22T16:00:00"),
            ("elevenses", "2026-11-22T11:00:00"),
            ("tomorrow noon", "2026-11-22T12:00:00"),
            ("midnight tomorrow", "2026-11-22T00:00:00"),
            ("1224", "2026-12-24T00:00:00"),
            ("12/24", "2026-12-24T00:00:00"),
            ("11/21 23:00", "2026-11-21T23:00:00"),
            ("11/21 19:00", "2027-11-21T19:00:00"),
            ("12/24/26-13:05:07", "2026-12-24T13:05:07"),
            ("12/24/26 1PM", "2026-12-24T13:00:00"),
            ("2030-01-20T1:30PM", "2030-01-20T13:30:00"),
            ("2030-01-20-12:34", "2030-01-20T12:34:00"),
            ("2030-01-20 noon", "2030-01-20T12:00:00"),
            ("uts1795292618", "2026-11-21T20:23:38"),
        ] {
            assert_eq!(at(text).as_deref(), Some(want), "{text}");
        }
        for bad in [
            "",
            "foo",
            "now+",
            "now+x",
            "now+1fortnight",
            "25:00",
            "12:60",
            "13/01/26",
            "2030-1",
            "now 16:00",
            "13PM",
            "0AM",
            "PM",
            "4",
            "m",
            "T12:00",
            "16:00PM",
            "4PM 5PM extra",
            "2030-13-01",
            "1",
            "+5",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates_round_trip() {
        for days in (-1_000_000..1_000_000).step_by(997) {
            let (y, m, d) = date_of(days);
            assert_eq!(days_of(y, m, d), days);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[0-9a-zT:+/. \\-é]{0,24}") {
            let _ = parse(&text, Timestamp::from_unix_s(NOW), &Utc);
        }
    }
}
