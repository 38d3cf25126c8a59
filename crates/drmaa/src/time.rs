//! Times of DRMAA: `[[[[CC]YY/]MM/]DD] hh:mm[:ss] [{-|+}UU:uu]`, and amounts of it.

use muster_model::time::Timestamp;

/// `[[hours:]minutes:]seconds`.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let fields: Vec<&str> = text.split(':').collect();
    if fields.len() > 3 {
        return None;
    }
    fields.iter().try_fold(0_u64, |sum, field| {
        let number: u64 = field.parse().ok()?;
        sum.checked_mul(60)?.checked_add(number)
    })
}

/// A point in time. What is left out of the date is today's, or tomorrow's where today's is past.
///
/// # Errors
/// It has another form.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    parse_at(text, now_s())
}

fn now_s() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

fn parse_at(text: &str, now: i64) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "\"{text:.100}\" is not a valid time: [[[[CC]YY/]MM/]DD] hh:mm[:ss] [{{-|+}}UU:uu] is expected"
        )
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let (words, zone) = match words.split_last() {
        Some((last, rest)) if last.starts_with(['+', '-']) => {
            (rest, Some(zone(last).ok_or_else(wrong)?))
        }
        _ => (words.as_slice(), None),
    };
    let (date, clock) = match words {
        [clock] => (None, *clock),
        [date, clock] => (Some(*date), *clock),
        _ => return Err(wrong()),
    };
    let number = |text: &str, least: i32, most: i32| {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|n: &i32| plain && (least..=most).contains(n));
        number.ok_or_else(wrong)
    };
    let mut at = civil(now, zone);
    if let Some(date) = date {
        let fields: Vec<&str> = date.split('/').collect();
        let (day, rest) = fields.split_last().ok_or_else(wrong)?;
        at.tm_mday = number(day, 1, 31)?;
        if let Some((month, rest)) = rest.split_last() {
            at.tm_mon = number(month, 1, 12)? - 1;
            match rest {
                [] => {}
                [year] if year.len() == 4 => at.tm_year = number(year, 1970, 9999)? - 1900,
                [year] => {
                    let year = number(year, 0, 99)?;
                    at.tm_year = if year < 69 { year + 100 } else { year };
                }
                _ => return Err(wrong()),
            }
        }
    }
    let fields: Vec<&str> = clock.split(':').collect();
    let (hour, minute, second) = match fields.as_slice() {
        [hour, minute] => (hour, minute, &"0"),
        [hour, minute, second] => (hour, minute, second),
        _ => return Err(wrong()),
    };
    at.tm_hour = number(hour, 0, 23)?;
    at.tm_min = number(minute, 0, 59)?;
    at.tm_sec = number(second, 0, 60)?;
    let mut point = epoch(at, zone).ok_or_else(wrong)?;
    if date.is_none() && point < now {
        at.tm_mday += 1;
        point = epoch(at, zone).ok_or_else(wrong)?;
    }
    Ok(Timestamp::from_unix_s(point))
}

/// Seconds east of Greenwich.
fn zone(text: &str) -> Option<i64> {
    let (sign, rest) = text.split_at(1);
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let amount = hours * 3600 + minutes * 60;
    ((0..=14).contains(&hours) && (0..60).contains(&minutes)).then_some(if sign == "-" {
        -amount
    } else {
        amount
    })
}

fn civil(now: i64, zone: Option<i64>) -> libc::tm {
    // SAFETY: all bits 0 is a value of the type, and both functions write one of it.
    #[allow(unsafe_code)]
    unsafe {
        let mut at: libc::tm = std::mem::zeroed();
        match zone {
            Some(east) => libc::gmtime_r(&(now + east), &mut at),
            None => libc::localtime_r(&now, &mut at),
        };
        at.tm_isdst = -1;
        at
    }
}

fn epoch(at: libc::tm, zone: Option<i64>) -> Option<i64> {
    let mut at = at;
    // SAFETY: both functions read and write the value they are given.
    #[allow(unsafe_code)]
    let point = unsafe {
        match zone {
            Some(east) => libc::timegm(&mut at) - east,
            None => libc::mktime(&mut at),
        }
    };
    (point >= 0).then_some(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let at = |text: &str| parse_at(text, 1_000_000_000).map(Timestamp::unix_s);
        // 2001-09-09 01:46:40 UTC.
        assert_eq!(at("2001/09/10 00:00 +00:00"), Ok(1_000_080_000));
        assert_eq!(at("01/09/10 00:00:30 +00:00"), Ok(1_000_080_030));
        assert_eq!(at("09/10 01:00 +01:00"), Ok(1_000_080_000));
        assert_eq!(at("10 00:00 -01:00"), Ok(1_000_083_600));
        assert_eq!(at("02:00 +00:00"), Ok(1_000_000_800));
        assert_eq!(at("01:00 +00:00"), Ok(1_000_083_600), "it is past today");
        for text in [
            "",
            "x",
            "1",
            "25:00",
            "00:61",
            "13/01 00:00",
            "1/2/3/4 00:00",
            "00:00 +99:00",
            "a b c d",
        ] {
            assert!(at(text).is_err(), "{text}");
        }
        assert_eq!(
            (seconds("90"), seconds("1:0:1"), seconds("x"), seconds("")),
            (Some(90), Some(3601), None, None)
        );
    }
}
