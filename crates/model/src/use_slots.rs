//! Division of the use of a run over hours, days and months: sums of divisions are exactly the whole.
//!
//! All divisions are of UTC and begin at whole hours: a report on any period of whole hours is a sum of months, of the days that
//! are left at both ends, and of hours at the ends of these, whichever time zone its reader lives in and whatever its clocks do.

use crate::time::Timestamp;

/// Milliseconds of an hour.
pub const HOUR_MS: i64 = 3_600_000;
/// Milliseconds of a day.
const DAY_MS: i64 = 24 * HOUR_MS;
/// Years around 1970 that are divided; times beyond are taken for the bound.
const YEARS_MAX: i64 = 4000;

/// Length of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Length {
    /// An hour.
    Hour,
    /// A day of UTC.
    Day,
    /// A month of UTC.
    Month,
}

impl Length {
    /// All of them, the shortest first.
    pub const ALL: [Length; 3] = [Length::Hour, Length::Day, Length::Month];

    /// Where the division begins that a moment is in, milliseconds since 1970.
    pub fn begin(self, at: Timestamp) -> i64 {
        let at = bounded(at.0);
        match self {
            Length::Hour => at.div_euclid(HOUR_MS) * HOUR_MS,
            Length::Day => at.div_euclid(DAY_MS) * DAY_MS,
            Length::Month => month_begin(month_of(at)),
        }
    }

    /// Where the division after that one begins.
    pub fn next(self, begin: i64) -> i64 {
        match self {
            Length::Hour => begin + HOUR_MS,
            Length::Day => begin + DAY_MS,
            Length::Month => month_begin(month_of(begin) + 1),
        }
    }

    /// The first beginning of a division at or after a moment.
    fn first_from(self, at: i64) -> i64 {
        let begin = self.begin(Timestamp(at));
        match begin == at {
            true => begin,
            false => self.next(begin),
        }
    }
}

/// Divisions of one length that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Their length.
    pub length: Length,
    /// Where the first begins, milliseconds since 1970.
    pub from: i64,
    /// Where the last ends.
    pub to: i64,
}

/// The divisions that a period of whole hours consists of, as long as they can be; parts of hours at its ends count wholly.
pub fn slots(start: Timestamp, end: Timestamp) -> Vec<Slots> {
    let from = Length::Hour.begin(start);
    let to = Length::Hour.first_from(bounded(end.0));
    let mut all = Vec::new();
    divide(&Length::ALL, from, to, &mut all);
    all
}

fn divide(lengths: &[Length], from: i64, to: i64, all: &mut Vec<Slots>) {
    let Some((&length, longer)) = lengths.split_first() else {
        return;
    };
    if from >= to {
        return;
    }
    let (inner_from, inner_to) = match longer.first() {
        Some(next) => (next.first_from(from), next.begin(Timestamp(to))),
        None => (to, to),
    };
    if inner_from >= inner_to {
        all.push(Slots { length, from, to });
        return;
    }
    if from < inner_from {
        let to = inner_from;
        all.push(Slots { length, from, to });
    }
    divide(longer, inner_from, inner_to, all);
    if inner_to < to {
        let from = inner_to;
        all.push(Slots { length, from, to });
    }
}

/// When a run had its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSpan {
    /// Since when.
    pub start: Timestamp,
    /// Until when.
    pub end: Timestamp,
    /// For how long of it it was stopped, milliseconds.
    pub suspended_ms: u64,
}

impl RunSpan {
    /// Milliseconds within a time in which it ran. When it was stopped counts as if it had been so evenly. Of times that follow
    /// each other the sums are exactly what all of them together give.
    pub fn ran_ms(self, from: Timestamp, to: Timestamp) -> u64 {
        let until = |at: Timestamp| -> u64 {
            let all = self.end.since_ms(self.start);
            let ran = all.saturating_sub(self.suspended_ms);
            let passed = at.min(self.end).since_ms(self.start);
            match all {
                0 => 0,
                all => {
                    let part = u128::from(passed) * u128::from(ran) / u128::from(all);
                    u64::try_from(part).unwrap_or(u64::MAX)
                }
            }
        };
        until(to).saturating_sub(until(from))
    }
}

fn bounded(at: i64) -> i64 {
    let most = YEARS_MAX * 366 * DAY_MS;
    at.clamp(-most, most)
}

/// Months since January 1970 of a moment.
fn month_of(at: i64) -> i64 {
    let days = at.div_euclid(DAY_MS);
    // 400 years have 146,097 days; the month that is found so is right, or the one before is.
    let guess = (days * 4800).div_euclid(146_097) + 1;
    let mut month = guess;
    while month_begin(month) > at {
        month -= 1;
    }
    month
}

/// Begin of the month at this distance from January 1970, milliseconds since then.
fn month_begin(month: i64) -> i64 {
    /// Days of a year before each month, without a leap day.
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let year = 1970 + month.div_euclid(12);
    let place = usize::try_from(month.rem_euclid(12)).unwrap_or(0);
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let is_leap = leaps(year) > leaps(year - 1);
    let mut days = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    days += BEFORE.get(place).copied().unwrap_or(0);
    if is_leap && place >= 2 {
        days += 1;
    }
    days * DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timestamp of seconds as `date -u +%s` prints them.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_s(seconds)
    }

    #[test]
    fn months_begin_where_the_calendar_says() {
        // 1970-01-01, 2000-02-01, 2000-03-01, 2024-03-01, 2026-11-01, 2100-03-01, 1969-12-01
        for begin in [
            0,
            949_363_200,
            951_868_800,
            1_709_251_200,
            1_793_491_200,
            4_107_542_400,
            -2_678_400,
        ] {
            let own = Length::Month.begin(at(begin));
            assert_eq!(own, begin * 1000, "{begin}");
            assert_eq!(Length::Month.begin(at(begin + 1)), begin * 1000);
            assert!(Length::Month.begin(at(begin - 1)) < begin * 1000);
            assert_eq!(
                Length::Month.next(Length::Month.begin(at(begin - 1))),
                begin * 1000
            );
        }
        for month in -30_000..30_000 {
            assert_eq!(month_of(month_begin(month)), month);
            assert_eq!(month_of(month_begin(month + 1) - 1), month);
        }
    }

    #[test]
    fn a_period_is_whole_months_days_and_hours() {
        // 2026-10-30T22:00 to 2027-01-02T03:00, UTC.
        let all = slots(at(1_793_397_600), at(1_798_858_800));
        let lengths: Vec<(Length, i64)> = all
            .iter()
            .map(|s| (s.length, (s.to - s.from) / HOUR_MS))
            .collect();
        let expected = [
            (Length::Hour, 2),
            (Length::Day, 24),
            (Length::Month, 61 * 24),
            (Length::Day, 24),
            (Length::Hour, 3),
        ];
        assert_eq!(lengths, expected);
        for pair in all.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
        }
        assert_eq!(slots(at(3600), at(3600)), []);
        assert_eq!(slots(at(3601), at(3602)).len(), 1);
        assert!(slots(Timestamp(i64::MIN), Timestamp(i64::MAX)).len() <= 5);
    }

    #[test]
    fn parts_of_a_run_are_the_whole() {
        let span = RunSpan {
            start: Timestamp(1_000_007),
            end: Timestamp(90_000_019),
            suspended_ms: 12_345_678,
        };
        let mut sum = 0;
        let mut begin = Length::Hour.begin(span.start);
        while begin < span.end.0 {
            let next = Length::Hour.next(begin);
            sum += span.ran_ms(Timestamp(begin), Timestamp(next));
            begin = next;
        }
        assert_eq!(sum, span.end.since_ms(span.start) - span.suspended_ms);
        let never = RunSpan {
            end: span.start,
            ..span
        };
        assert_eq!(never.ran_ms(Timestamp(0), Timestamp(i64::MAX)), 0);
        let stopped = RunSpan {
            suspended_ms: u64::MAX,
            ..span
        };
        assert_eq!(stopped.ran_ms(Timestamp(0), Timestamp(i64::MAX)), 0);
    }
}
