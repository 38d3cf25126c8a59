//! Times and durations as texts, as commands write them.

#![allow(unsafe_code)]

use crate::error::CallError;
use crate::memory;
use crate::names::INFINITE;
use libc::{c_char, c_int, time_t};
use muster_cli::library;
use muster_model::time::Timestamp;

/// A time in the local zone, `2026-11-21T20:23:38`; `Unknown` for none.
pub fn text_of(at: time_t) -> String {
    match at {
        at if at <= 0 || at == time_t::from(INFINITE) => "Unknown".to_owned(),
        at => library::time_text(Timestamp::from_unix_s(at)),
    }
}

/// `1-00:00:00`, `00:05:00`.
fn duration(seconds: i64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => clock,
        days => format!("{days}-{clock}"),
    }
}

/// Seconds of `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes` and so on.
fn seconds(text: &str) -> Option<i64> {
    let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts = clock.split(':').map(number).collect::<Option<Vec<i64>>>()?;
    let units: &[i64] = match (days, parts.len()) {
        (None, 1) => &[60],
        (None, 2) => &[60, 1],
        (_, 3) => &[3600, 60, 1],
        (Some(_), 1 | 2) => &[3600, 60],
        _ => return None,
    };
    let clock = parts
        .iter()
        .zip(units)
        .try_fold(0_i64, |sum, (part, unit)| {
            sum.checked_add(part.checked_mul(*unit)?)
        })?;
    days.unwrap_or(0).checked_mul(86_400)?.checked_add(clock)
}

fn limit(text: &str, unit: i64) -> Result<c_int, CallError> {
    if ["INFINITE", "UNLIMITED", "-1"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
    {
        return Ok(INFINITE.cast_signed());
    }
    let wrong = || CallError::argument("no duration");
    let whole = seconds(text).ok_or_else(wrong)?;
    // A part of a unit counts as one.
    c_int::try_from((whole + unit - 1) / unit).map_err(|_| wrong())
}

value_functions! {
    /// Minutes of a duration; -2 if it is none.
    fn slurm_time_str2mins(text: *const c_char) -> c_int, else -2, {
        limit(&memory::text(text).unwrap_or_default(), 60)
    }
    /// Seconds of a duration; -2 if it is none.
    fn slurm_time_str2secs(text: *const c_char) -> c_int, else -2, {
        limit(&memory::text(text).unwrap_or_default(), 1)
    }
    /// A time such as `now+1hour`, `midnight` or `2030-01-20T12:34:00`; 0 if it is none.
    fn slurm_parse_time(text: *const c_char, _past: c_int) -> time_t, else 0, {
        let text = memory::text(text).unwrap_or_default();
        if let Some(seconds) = text.strip_prefix("uts").and_then(|own| own.parse().ok()) {
            return Ok(seconds);
        }
        let found = library::time_of_text(&text).map(Timestamp::unix_s);
        found.ok_or_else(|| CallError::new(2054, "no time"))
    }
}

quiet_functions! {
    /// Writes a time.
    fn slurm_make_time_str(at: *mut time_t, buffer: *mut c_char, size: c_int) {
        let at = at.as_ref().copied().unwrap_or(0);
        memory::write_cut(&text_of(at), buffer, usize::try_from(size).unwrap_or(0));
    }
    /// Writes a duration in seconds.
    fn slurm_secs2time_str(at: time_t, buffer: *mut c_char, size: c_int) {
        let text = match at {
            at if at == time_t::from(INFINITE) => "UNLIMITED".to_owned(),
            at if at < 0 => "INVALID".to_owned(),
            at => duration(at),
        };
        memory::write_cut(&text, buffer, usize::try_from(size).unwrap_or(0));
    }
    /// Writes a duration in minutes.
    fn slurm_mins2time_str(minutes: u32, buffer: *mut c_char, size: c_int) {
        let text = match minutes {
            INFINITE => "UNLIMITED".to_owned(),
            minutes => duration(i64::from(minutes) * 60),
        };
        memory::write_cut(&text, buffer, usize::try_from(size).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, whole) in [
            ("5", 300),
            ("5:30", 330),
            ("1:00:00", 3600),
            ("1-12", 129_600),
            ("1-1:1", 90_060),
            ("1-0:0:1", 86_401),
        ] {
            assert_eq!(seconds(text), Some(whole), "{text}");
        }
        for text in ["", "x", "1:2:3:4", "-1", "1-", "1:x"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert_eq!(duration(90_061), "1-01:01:01");
        assert_eq!(limit("0:30", 60), Ok(1));
        assert_eq!(limit("UNLIMITED", 60), Ok(-1));
        assert_eq!(text_of(0), "Unknown");
    }
}
