//! Times of entries, and what crontabs are read as.

use super::*;
use crate::time::Timestamp;
use proptest::prelude::*;

const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

fn schedule(text: &str) -> Schedule {
    Schedule::parse_entry(&format!("{text} true")).unwrap().0
}

fn at(text: &str, zone: &str) -> Timestamp {
    let zone = jiff::tz::TimeZone::posix(zone).unwrap();
    let time: jiff::civil::DateTime = text.parse().unwrap();
    Timestamp(zone.to_timestamp(time).unwrap().as_millisecond())
}

fn next(entry: &str, after: &str, zone: &str) -> String {
    let found = schedule(entry).next(at(after, zone), &Zone::of_rule(zone));
    let zone = jiff::tz::TimeZone::posix(zone).unwrap();
    let show = |t: Timestamp| zone.to_datetime(jiff::Timestamp::from_millisecond(t.0).unwrap());
    found.map_or_else(|| "never".to_owned(), |t| show(t).to_string())
}

#[test]
fn entries_come_when_they_say() {
    for (entry, after, expected) in [
        ("* * * * *", "2026-11-25T03:54:00", "2026-11-25T03:55:00"),
        ("*/5 * * * *", "2026-11-25T03:53:11", "2026-11-25T03:55:00"),
        ("@hourly", "2026-11-25T03:53:11", "2026-11-25T04:00:00"),
        ("0 0 * * 1-5", "2026-11-27T03:53:11", "2026-11-30T00:00:00"),
        ("@yearly", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@weekly", "2026-11-25T00:00:00", "2026-11-29T00:00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 30 2 *", "2026-03-01T00:00:00", "never"),
        // A day of the month and one of the week: either will do.
        ("0 0 13 * fri", "2026-11-25T00:00:00", "2026-11-27T00:00:00"),
        (
            "30 8-17/2 * * wed",
            "2026-11-25T09:00:00",
            "2026-11-25T10:30:00",
        ),
    ] {
        assert_eq!(next(entry, after, "UTC0"), expected, "{entry}");
    }
}

#[test]
fn a_skipped_hour_is_made_up_for_and_one_that_comes_twice_counts_once() {
    // Clocks go from 02:00 to 03:00, and half a year later from 03:00 to 02:00.
    assert_eq!(
        next("30 2 * * *", "2026-03-29T01:00:00", BERLIN),
        "2026-03-29T03:30:00"
    );
    assert_eq!(
        next("30 2 * * *", "2026-03-29T03:30:00", BERLIN),
        "2026-03-30T02:30:00"
    );
    assert_eq!(
        next("0 * * * *", "2026-03-29T01:00:00", BERLIN),
        "2026-03-29T03:00:00"
    );
    let once =
        schedule("30 2 * * *").next(at("2026-10-25T00:00:00", BERLIN), &Zone::of_rule(BERLIN));
    let again = schedule("30 2 * * *").next(once.unwrap(), &Zone::of_rule(BERLIN));
    assert_eq!(again.unwrap().since_ms(once.unwrap()), 25 * 3_600_000);
    // Each hour that passes is one, whatever it is called.
    let zone = Zone::of_rule(BERLIN);
    let mut time = at("2026-10-25T00:30:00", BERLIN);
    for _ in 0..5 {
        let after = schedule("30 * * * *").next(time, &zone).unwrap();
        assert_eq!(after.since_ms(time), 3_600_000);
        time = after;
    }
}

#[test]
fn what_slurm_refuses_is_refused_by_field() {
    for (entry, text) in [
        ("60 * * * * true", "bad minute specification: 60"),
        ("* 24 * * * true", "bad hour specification: 24"),
        ("* * 0 * * true", "bad day of month specification: 0"),
        ("* * * 13 * true", "bad month specification: 13"),
        ("0 0 * foo * true", "bad month specification: foo"),
        (
            "0 0 * January Sunday true",
            "bad month specification: January",
        ),
        ("* * * * 8 true", "bad day of week specification: 8"),
        ("5-1 * * * * true", "bad minute specification: 5-1"),
        ("*/0 * * * * true", "bad step value: 0"),
        ("*/61 * * * * true", "bad step value: 61"),
        ("1-5,*/7 * * * * true", "bad minute specification: 1-5,*/7"),
        ("@reboot true", "invalid @ line: there is no @reboot"),
        ("* * * * true", "bad day of week specification: true"),
        ("~ * * * * true", "bad minute specification: ~"),
    ] {
        assert_eq!(Schedule::parse_entry(entry).unwrap_err().to_string(), text);
    }
    assert_eq!(Schedule::parse_entry("* * * * *").unwrap().1, "");
    assert_eq!(
        schedule("* * * * 7"),
        Schedule {
            weekdays: 1,
            ..schedule("* * * * 0")
        }
    );
}

#[test]
fn a_schedule_is_written_as_scontrol_shows_it() {
    for (entry, shown) in [
        ("*/5 * * * *", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *"),
        ("@hourly", "0 0-23 * * *"),
        ("0 0 * jan mon", "0 0 * 1 1"),
        ("1,2,5-9 * * * *", "1-2,5-9 * * * *"),
    ] {
        assert_eq!(schedule(entry).to_string(), shown);
    }
}

#[test]
fn an_entry_is_taken_out_of_use_with_its_options_alone() {
    let text =
        "#SCRON -t 5\n@daily a\n#SCRON -t 1\n# why\nX=1\n#SCRON -n 2\n0 0 * * * b\n@hourly c";
    assert_eq!(entries(text), [(1, 2), (3, 7), (8, 8)]);
    let out = disable(text, (3, 7));
    assert_eq!(
        out,
        "#SCRON -t 5\n@daily a\n#DISABLED: #SCRON -t 1\n# why\nX=1\n#DISABLED: #SCRON -n 2\n#DISABLED: 0 0 * * * b\n@hourly c"
    );
    assert_eq!(entries(&out), [(1, 2), (8, 8)]);
    assert_eq!(entries(&disable(&out, (8, 8))), [(1, 2)]);
}

fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        2 => (least..=most).prop_map(|n| n.to_string()),
        1 => (least..most, 1..6u32).prop_map(move |(n, step)| format!("{n}-{most}/{step}")),
        1 => (2..=most).prop_map(|n| format!("*/{n}")),
    ]
}

prop_compose! {
    fn schedules()(
        minute in field(0, 59), hour in field(0, 23), day in field(1, 31), month in field(1, 12), weekday in field(0, 6)
    ) -> Schedule {
        schedule(&format!("{minute} {hour} {day} {month} {weekday}"))
    }
}

proptest! {
    /// Against looking at each minute in turn.
    #[test]
    fn no_minute_is_passed_over(schedule in schedules(), after in 1_700_000_000i64..1_900_000_000) {
        let zone = Zone::of_rule("UTC0");
        let found = schedule.next(Timestamp::from_unix_s(after), &zone);
        let named = |minute: i64| {
            let time = jiff::Timestamp::from_second(minute * 60).unwrap();
            let time = jiff::tz::TimeZone::UTC.to_datetime(time);
            let bit = |bits: u64, at: i8| bits >> at & 1 == 1;
            let day = bit(schedule.days.into(), time.day());
            let weekday = bit(schedule.weekdays.into(), time.weekday().to_sunday_zero_offset());
            let either = schedule.any & 0b10100 == 0;
            bit(schedule.minutes, time.minute())
                && bit(schedule.hours.into(), time.hour())
                && bit(schedule.months.into(), time.month())
                && if either { day || weekday } else { day && weekday }
        };
        let first = after.div_euclid(60) + 1;
        let expected = (first..first + 3 * 1440).find(|minute| named(*minute));
        match expected {
            Some(minute) => prop_assert_eq!(found, Some(Timestamp::from_unix_s(minute * 60))),
            None => prop_assert!(found.is_none_or(|t| t.unix_s() >= (first + 3 * 1440) * 60)),
        }
    }

    /// Times only go forward, and no two are less than a minute apart, whatever is done to clocks.
    #[test]
    fn times_go_forward(schedule in schedules(), after in 1_700_000_000i64..1_900_000_000) {
        let zone = Zone::of_rule(BERLIN);
        let mut time = Timestamp::from_unix_s(after - after.rem_euclid(60));
        for _ in 0..20 {
            let Some(following) = schedule.next(time, &zone) else { break };
            prop_assert!(following.since_ms(time) >= 60_000);
            time = following;
        }
    }

    #[test]
    fn what_is_shown_reads_as_the_same(schedule in schedules()) {
        let (again, _) = Schedule::parse_entry(&format!("{schedule} true")).unwrap();
        prop_assert_eq!(Schedule { any: 0, ..again }, Schedule { any: 0, ..schedule });
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "[ -~é\n\t]{0,60}") {
        let _ = Schedule::parse_entry(&text);
        let found = entries(&text);
        let disabled = found.first().map_or(text.clone(), |lines| disable(&text, *lines));
        prop_assert_eq!(disabled.lines().count(), text.lines().count());
    }
}

/// Each entry of a crontab had all times of two days worked out by the zone's rule.
#[test]
fn a_time_is_found_by_few_looks_at_the_rule_of_the_zone() {
    for entry in ["* * * * *", "*/7 * * * *", "30 2 * * *", "1-59 23 * * *"] {
        for zone in ["UTC0", BERLIN] {
            for after in ["2026-03-28T23:59:00", "2026-07-01T12:30:30"] {
                let found = Zone::of_rule(zone);
                let looks = times::Lookups::of(&found);
                let next = schedule(entry).next_by(at(after, zone), &looks);
                assert!(next.is_some());
                assert!(looks.count() <= 3 * 48 + 60, "{entry}: {}", looks.count());
            }
        }
    }
    let plain = Zone::of_rule("UTC0");
    let looks = times::Lookups::of(&plain);
    schedule("* * * * *").next_by(at("2026-07-01T12:30:30", "UTC0"), &looks);
    assert!(looks.count() <= 96, "{}", looks.count());
}

/// Around changes of clocks, also of half an hour, each minute is as its own look at the rule says.
#[test]
fn hours_in_which_clocks_change_are_looked_at_by_the_minute() {
    const HOWE: &str = "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0";
    for zone in [BERLIN, HOWE] {
        let rule = jiff::tz::TimeZone::posix(zone).unwrap();
        for day in ["2026-03-28", "2026-10-24", "2026-04-04", "2026-10-03"] {
            let first = at(&format!("{day}T22:00:00"), zone);
            for entry in ["* * * * *", "*/10 2-4 * * *"] {
                let wanted = schedule(entry);
                let goes_on = entry.starts_with("* *");
                // All times of three days, by the minute.
                let mut times = Vec::new();
                let date: jiff::civil::Date = day.parse().unwrap();
                for date in [
                    date,
                    date.tomorrow().unwrap(),
                    date.tomorrow().unwrap().tomorrow().unwrap(),
                ] {
                    for hour in (0..24i8).filter(|h| wanted.hours >> h & 1 == 1) {
                        for minute in (0..60i8).filter(|m| wanted.minutes >> m & 1 == 1) {
                            let found = rule.to_ambiguous_timestamp(date.at(hour, minute, 0, 0));
                            let gap =
                                matches!(found.offset(), jiff::tz::AmbiguousOffset::Gap { .. });
                            if goes_on {
                                times.extend((!gap).then(|| found.earlier().unwrap()));
                                times.extend((!gap).then(|| found.later().unwrap()));
                            } else {
                                times.push(found.compatible().unwrap());
                            }
                        }
                    }
                }
                times.sort_unstable();
                times.dedup();
                let found = Zone::of_rule(zone);
                let mut now = first;
                for _ in 0..400 {
                    let next = wanted.next(now, &found).unwrap();
                    let expected = times.iter().find(|t| t.as_millisecond() > now.0);
                    let Some(expected) = expected else { break };
                    assert_eq!(
                        next.0,
                        expected.as_millisecond(),
                        "{entry} after {now:?} in {zone}"
                    );
                    now = next;
                }
            }
        }
    }
}
