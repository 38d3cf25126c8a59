//! Small parsers for the values that slurm.conf and the command line share: time limits, memory
//! sizes, yes/no, counts. Each returns its own [`ValueError`]; none knows which key it reads for.

use std::fmt;

/// A time limit: a number of seconds, or none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DurationLimit {
    /// Seconds. Rounding up to Slurm's minutes is left to the caller.
    Seconds(u64),
    /// `INFINITE`, `UNLIMITED` or `-1`.
    Unlimited,
}

impl DurationLimit {
    /// Whole minutes, rounded up as Slurm does; `None` where unlimited.
    pub fn minutes(self) -> Option<u64> {
        match self {
            DurationLimit::Seconds(seconds) => Some(seconds.div_ceil(60)),
            DurationLimit::Unlimited => None,
        }
    }
}

/// Prints `UNLIMITED`, `00:05:00` or `1-00:00:00`.
impl fmt::Display for DurationLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DurationLimit::Unlimited => f.write_str("UNLIMITED"),
            DurationLimit::Seconds(seconds) => f.write_str(&clock(seconds)),
        }
    }
}

/// `[D-]HH:MM:SS` as Slurm prints durations.
pub fn clock(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let time = format!(
        "{:02}:{:02}:{:02}",
        rest / 3600,
        rest % 3600 / 60,
        rest % 60
    );
    if days > 0 {
        format!("{days}-{time}")
    } else {
        time
    }
}

/// Why a value cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {expected}")]
pub struct ValueError {
    /// The text that was given.
    pub value: String,
    /// Form of accepted values.
    pub expected: String,
}

/// Makes a [`ValueError`].
pub(crate) fn wrong<T>(value: &str, expected: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError {
        value: value.to_owned(),
        expected: expected.into(),
    })
}

const TIME_FORMS: &str = "a time limit: minutes, minutes:seconds, hours:minutes:seconds, \
    days-hours, days-hours:minutes, days-hours:minutes:seconds or UNLIMITED";

/// Slurm keeps limits as minutes in 32 bits, the highest values of which are reserved.
const MAX_LIMIT_SECONDS: u64 = (u32::MAX as u64 - 16) * 60;

/// Reads Slurm's forms of a time limit. A part may exceed its usual range: `0:300` is 300 seconds.
pub fn parse_time_limit(text: &str) -> Result<DurationLimit, ValueError> {
    let text = text.trim();
    if is_unlimited(text) {
        return Ok(DurationLimit::Unlimited);
    }
    match time_limit_seconds(text) {
        Some(seconds) if seconds <= MAX_LIMIT_SECONDS => Ok(DurationLimit::Seconds(seconds)),
        _ => wrong(text, TIME_FORMS),
    }
}

/// Whether the text is one of Slurm's words for no limit.
pub fn is_unlimited(text: &str) -> bool {
    text == "-1" || text.eq_ignore_ascii_case("INFINITE") || text.eq_ignore_ascii_case("UNLIMITED")
}

fn time_limit_seconds(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(digits(days)?), clock),
        None => (None, text),
    };
    let parts: Vec<u64> = clock.split(':').map(digits).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match (days.is_some(), parts.as_slice()) {
        (false, &[m]) => (0, m, 0),
        (false, &[m, s]) => (0, m, s),
        (true, &[h]) => (h, 0, 0),
        (true, &[h, m]) => (h, m, 0),
        (_, &[h, m, s]) => (h, m, s),
        _ => return None,
    };
    let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60)?.checked_add(seconds)
}

fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

/// Reads a memory size into MiB: a plain number is MiB; `K`, `M`, `G`, `T`, `P` (either case, with
/// or without `B` or `iB`) scale by 1024; fractions are rounded up.
pub fn parse_mem_mib(text: &str) -> Result<u64, ValueError> {
    let text = text.trim();
    mem_mib(text).map_or_else(
        || {
            wrong(
                text,
                "a memory size: a number of MiB, or one with K, M, G, T",
            )
        },
        Ok,
    )
}

fn mem_mib(text: &str) -> Option<u64> {
    let (number, suffix) = split_number(text);
    let unit = suffix.to_ascii_lowercase();
    let unit = unit
        .strip_suffix("ib")
        .or(unit.strip_suffix('b'))
        .unwrap_or(&unit);
    let kib_per_unit: u128 = match unit {
        "" if suffix.is_empty() => 1 << 10,
        "k" => 1,
        "m" => 1 << 10,
        "g" => 1 << 20,
        "t" => 1 << 30,
        "p" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // Nine decimal places are exact enough; more would only overflow.
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = u128::from(digits(whole)?) * scale + u128::from(digits(fraction)?);
    u64::try_from((scaled.checked_mul(kib_per_unit)?).div_ceil(scale * 1024)).ok()
}

/// Reads a count with an optional `K`, `M`, `G`, `T`, `P` suffix (powers of 1024), as in `Gres=`.
pub fn parse_count(text: &str) -> Result<u64, ValueError> {
    let (number, suffix) = split_number(text.trim());
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        "p" => Some(50),
        _ => None,
    };
    let count = shift
        .and_then(|shift| digits(number)?.checked_mul(1u64 << shift))
        .filter(|_| !number.is_empty());
    count.map_or_else(|| wrong(text, "a count, such as 4 or 2K"), Ok)
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Reads Slurm's booleans: `YES`, `TRUE`, `UP`, `1` and `NO`, `FALSE`, `DOWN`, `0`.
pub fn parse_bool(text: &str) -> Result<bool, ValueError> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "up" | "1" => Ok(true),
        "no" | "false" | "down" | "0" => Ok(false),
        _ => wrong(text, "YES or NO"),
    }
}

/// Reads a whole number of at most `max`; `None` for `INFINITE` or `UNLIMITED`.
pub fn parse_number(text: &str, max: u64) -> Result<Option<u64>, ValueError> {
    if is_unlimited(text) {
        return Ok(None);
    }
    match digits(text).filter(|&n| n <= max && !text.is_empty()) {
        Some(number) => Ok(Some(number)),
        None => wrong(text, format!("a number from 0 to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits() {
        for (text, seconds) in [
            ("90", 5400),
            ("0", 0),
            ("0:300", 300),
            ("2:30", 150),
            ("1:00:00", 3600),
            ("1-0", 86_400),
            ("1-2", 93_600),
            ("1-2:3", 93_780),
            ("1-02:03:04", 93_784),
            ("100:00:00", 360_000),
        ] {
            assert_eq!(
                parse_time_limit(text),
                Ok(DurationLimit::Seconds(seconds)),
                "{text}"
            );
        }
        for text in ["UNLIMITED", "infinite", "-1"] {
            assert_eq!(parse_time_limit(text), Ok(DurationLimit::Unlimited));
        }
        for text in [
            "",
            "abc",
            "1-",
            "-5",
            "1:2:3:4",
            "1.5",
            "99999999999",
            "1-1-1",
            "+5",
            "5m",
        ] {
            assert!(parse_time_limit(text).is_err(), "{text}");
        }
        assert_eq!(DurationLimit::Seconds(61).minutes(), Some(2));
        assert_eq!(DurationLimit::Seconds(93_784).to_string(), "1-02:03:04");
    }

    #[test]
    fn memory_sizes() {
        for (text, mib) in [
            ("100", 100),
            ("1g", 1024),
            ("100M", 100),
            ("1GB", 1024),
            ("1GiB", 1024),
            ("1.5T", 1_572_864),
            ("1K", 1),
            ("1025k", 2),
            ("0", 0),
            ("0.5g", 512),
        ] {
            assert_eq!(parse_mem_mib(text), Ok(mib), "{text}");
        }
        for text in [
            "",
            "g",
            "12Q",
            "-1",
            "1.g",
            ".5g",
            "1..5",
            "1b",
            "99999999999999999999P",
        ] {
            assert!(parse_mem_mib(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_and_booleans() {
        assert_eq!(parse_count("4G"), Ok(4 << 30));
        assert!(parse_count("").is_err() && parse_count("G").is_err());
        assert_eq!(parse_bool("Yes"), Ok(true));
        assert!(parse_bool("maybe").is_err());
        assert_eq!(parse_number("INFINITE", 9), Ok(None));
        assert_eq!(parse_number("9", 9), Ok(Some(9)));
        assert!(parse_number("10", 9).is_err() && parse_number("", 9).is_err());
    }
}
