//! Slurm's format of numbers: durations, memory, loads, lists. Everything appends to a string, so that a listing of ten
//! thousand jobs allocates little.

/// Appends formatted text; writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}
pub(crate) use put;

/// A whole number. Listings write several of them for each of a hundred thousand jobs, and the standard formatting takes
/// five times as long.
pub(crate) fn number(out: &mut String, number: u64) {
    let (digits, at) = digits(number);
    out.push_str(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"));
}

/// Appends a number at the right of `width` columns; appends nothing if it needs more or `width` is over 20.
pub(crate) fn number_right(out: &mut String, number: u64, width: usize) -> bool {
    let (digits, at) = digits(number);
    let start = digits.len().checked_sub(width);
    let Some(start) = start.filter(|start| *start <= at) else {
        return false;
    };
    out.push_str(std::str::from_utf8(&digits[start..]).expect("digits and blanks are ASCII"));
    true
}

/// A number with blanks before it, and where it begins.
#[inline]
fn digits(mut number: u64) -> ([u8; 20], usize) {
    let mut digits = [b' '; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return (digits, at);
        }
    }
}

/// Appends a number below a hundred with two digits at least.
fn two_digits(out: &mut String, small: i64) {
    if small < 10 {
        out.push('0');
    }
    number(out, small.unsigned_abs());
}

/// A duration as squeue and sinfo write it: `0:11`, `20:00`, `1:00:00`, `2-00:00:00`.
pub(crate) fn short_duration(out: &mut String, seconds: i64) {
    if seconds < 0 {
        out.push_str("INVALID");
        return;
    }
    let (days, hours, minutes, seconds) = parts(seconds);
    if days > 0 {
        number(out, days.unsigned_abs());
        out.push('-');
        two_digits(out, hours);
    } else if hours > 0 {
        number(out, hours.unsigned_abs());
    }
    match days > 0 || hours > 0 {
        true => {
            out.push(':');
            two_digits(out, minutes);
        }
        false => number(out, minutes.unsigned_abs()),
    }
    out.push(':');
    two_digits(out, seconds);
}

/// A duration as scontrol and sacct write it: `00:00:11`, `2-00:00:00`.
pub(crate) fn long_duration(out: &mut String, seconds: i64) {
    let (days, hours, minutes, seconds) = parts(seconds.max(0));
    if days > 0 {
        put!(out, "{days}-");
    }
    put!(out, "{hours:02}:{minutes:02}:{seconds:02}");
}

/// CPU time as sacct writes it: `00:00.053`, `00:00:02`, `01:02:03`, `1-02:03:04`; milliseconds only below an hour,
/// and then instead of the hours.
pub(crate) fn cpu_time(out: &mut String, microseconds: u64) {
    let total = i64::try_from(microseconds / 1_000_000).unwrap_or(i64::MAX);
    let (days, hours, minutes, seconds) = parts(total);
    if days > 0 {
        put!(out, "{days}-{hours:02}:{minutes:02}:{seconds:02}");
    } else if hours > 0 {
        put!(out, "{hours:02}:{minutes:02}:{seconds:02}");
    } else {
        match microseconds % 1_000_000 / 1000 {
            0 => put!(out, "00:{minutes:02}:{seconds:02}"),
            ms => put!(out, "{minutes:02}:{seconds:02}.{ms:03}"),
        }
    }
}

fn parts(seconds: i64) -> (i64, i64, i64, i64) {
    (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    )
}

const UNITS: &[u8] = b"KMGTPE";

/// Memory in MiB with the largest unit that keeps it whole: `8000M`, `4G`, `0`. With `keep`, always MiB.
pub(crate) fn memory(out: &mut String, mib: u64, keep: bool) {
    let (mut number, mut unit) = (mib, 1);
    while !keep && number >= 1024 && number.is_multiple_of(1024) && unit + 1 < UNITS.len() {
        number /= 1024;
        unit += 1;
    }
    put!(out, "{number}");
    if mib > 0 {
        out.push(char::from(UNITS[unit]));
    }
}

/// An amount that need not stay whole, as sacct writes usage: `11048K`, `1.50M`, `29400`. `unit` is the index in
/// `KMGTPE` that the amount is counted in, or none for plain units; `want` converts to that unit.
pub(crate) fn amount(out: &mut String, number: u64, unit: Option<usize>, want: Option<usize>) {
    let mut value = to_f64(number);
    let mut at = unit.map_or(0, |u| u + 1);
    if let Some(want) = want {
        let want = want + 1;
        while at < want {
            value /= 1024.0;
            at += 1;
        }
        while at > want {
            value *= 1024.0;
            at -= 1;
        }
    }
    if value == 0.0 {
        out.push('0');
        return;
    }
    if value.fract() == 0.0 {
        put!(out, "{value:.0}");
    } else {
        put!(out, "{value:.2}");
    }
    if at > 0 {
        out.push(char::from(UNITS[at - 1]));
    }
}

/// An amount with the largest unit that keeps it whole: `1697191`, `3436K`, `4M`.
pub(crate) fn exact_amount(out: &mut String, number: u64) {
    let whole = |number: u64| number >= 1024 && number.is_multiple_of(1024);
    let (mut value, mut at) = (number, 0);
    while whole(value) && at < UNITS.len() {
        value /= 1024;
        at += 1;
    }
    put!(out, "{value}");
    if at > 0 {
        out.push(char::from(UNITS[at - 1]));
    }
}

/// The index in `KMGTPE` of a unit's letter.
pub(crate) fn unit_index(letter: char) -> Option<usize> {
    UNITS
        .iter()
        .position(|u| char::from(*u) == letter.to_ascii_uppercase())
}

/// For display only: no amount that Slurm shows needs more than 53 bits.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn to_f64(number: u64) -> f64 {
    number as f64
}

/// Load average: hundredths to `11.10`.
pub(crate) fn load(out: &mut String, centi: u32) {
    put!(out, "{}.{:02}", centi / 100, centi % 100);
}

/// A text or Slurm's word for none.
pub(crate) fn or_null(text: Option<&str>) -> &str {
    text.filter(|t| !t.is_empty()).unwrap_or("(null)")
}

/// Items with a separator between them.
pub(crate) fn join<I: IntoIterator<Item = S>, S: AsRef<str>>(
    out: &mut String,
    separator: char,
    items: I,
) {
    let mut first = true;
    for item in items {
        if !first {
            out.push(separator);
        }
        first = false;
        out.push_str(item.as_ref());
    }
}

/// Items with a comma between them, or `none` when there are none.
pub(crate) fn list_or(out: &mut String, items: &[String], none: &str) {
    if items.is_empty() {
        out.push_str(none);
    } else {
        join(out, ',', items);
    }
}

/// The text that `write` appends, as a string of its own.
pub(crate) fn collect(write: impl FnOnce(&mut String)) -> String {
    let mut text = String::new();
    write(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let short = |s| collect(|o| short_duration(o, s));
        assert_eq!(short(11), "0:11");
        assert_eq!(short(1200), "20:00");
        assert_eq!(short(3600), "1:00:00");
        assert_eq!(short(172_800), "2-00:00:00");
        assert_eq!(short(93_784), "1-02:03:04");
        assert_eq!(short(0), "0:00");
        assert_eq!(short(-1), "INVALID");
        assert_eq!(collect(|o| long_duration(o, 12)), "00:00:12");
        assert_eq!(collect(|o| long_duration(o, 266_400)), "3-02:00:00");
        assert_eq!(collect(|o| cpu_time(o, 53_456)), "00:00.053");
        assert_eq!(collect(|o| cpu_time(o, 3_723_000_000)), "01:02:03");
    }

    #[test]
    fn numbers() {
        for n in [0, 7, 10, 99, 100, 1_234_567, u64::MAX] {
            assert_eq!(collect(|o| number(o, n)), n.to_string());
            for width in 0..30 {
                let mut out = "x".to_owned();
                let fits = n.to_string().len() <= width && width <= 20;
                assert_eq!(number_right(&mut out, n, width), fits);
                let expected = if fits {
                    format!("x{n:>width$}")
                } else {
                    "x".to_owned()
                };
                assert_eq!(out, expected);
            }
        }
    }

    #[test]
    fn exact_amounts_stay_whole() {
        for (number, text) in [
            (0, "0"),
            (1023, "1023"),
            (1_697_191, "1697191"),
            (105_418_752, "102948K"),
            (4 << 20, "4M"),
            (1 << 63, "8E"),
        ] {
            let mut out = String::new();
            exact_amount(&mut out, number);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn memory_keeps_whole_numbers() {
        let of = |mib| collect(|o| memory(o, mib, false));
        assert_eq!(of(0), "0");
        assert_eq!(of(50), "50M");
        assert_eq!(of(8000), "8000M");
        assert_eq!(of(32_000), "32000M");
        assert_eq!(of(4096), "4G");
        assert_eq!(collect(|o| memory(o, 4096, true)), "4096M");
    }

    #[test]
    fn amounts_carry_their_unit() {
        assert_eq!(collect(|o| amount(o, 11_048, Some(0), None)), "11048K");
        assert_eq!(collect(|o| amount(o, 11_264, Some(0), Some(1))), "11M");
        assert_eq!(collect(|o| amount(o, 1536, Some(0), Some(1))), "1.50M");
    }
}
