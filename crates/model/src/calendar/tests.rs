//! Calendars at times of a zone whose clocks are changed.

use super::*;

/// A zone of the rule, and a time of it.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

fn at(text: &str) -> Timestamp {
    let zone = jiff::tz::TimeZone::posix(BERLIN).unwrap();
    let time: jiff::civil::DateTime = text.parse().unwrap();
    Timestamp(zone.to_timestamp(time).unwrap().as_millisecond())
}

fn said(year: &str, week: &str, now: &str) -> String {
    let calendar = Calendar::new("c", year, week).unwrap();
    let (state, next) = calendar.state_at(at(now), &Zone::of_rule(BERLIN));
    let zone = jiff::tz::TimeZone::posix(BERLIN).unwrap();
    let show = |t: Timestamp| zone.to_datetime(jiff::Timestamp::from_millisecond(t.0).unwrap());
    let next = next.map_or_else(|| "never".to_owned(), |next| show(next).to_string());
    format!("{} {next}", state.name())
}

#[test]
fn states_are_those_of_the_manual() {
    let holidays = "1.1.2027,6.1.2027,25.12.2026-26.dec.2026";
    let with = |state: &str| format!("{holidays}={state}");
    // 1 December 2026 is a Tuesday.
    for (year, week, now, want) in [
        ("NONE", "NONE", "2026-12-01T12:00", "on never"),
        (
            "",
            "mon-fri=6-20",
            "2026-12-01T05:59:59",
            "on 2026-12-01T06:00:00",
        ),
        (
            "",
            "mon-fri=6-20",
            "2026-12-01T06:00",
            "off 2026-12-01T20:00:00",
        ),
        (
            "",
            "mon-fri=6-20",
            "2026-12-04T20:00",
            "on 2026-12-07T06:00:00",
        ),
        // The night of a day, and a weekend.
        (
            "",
            "mon-fri=20-6 sat-sun",
            "2026-12-04T20:00",
            "off 2026-12-07T06:00:00",
        ),
        (
            "",
            "mon-fri=20-6 sat-sun",
            "2026-12-07T06:00",
            "on 2026-12-07T20:00:00",
        ),
        (
            "",
            "12-18 tue=13-17=on",
            "2026-12-01T12:30",
            "off 2026-12-01T13:00:00",
        ),
        (
            "",
            "12-18 tue=13-17=on",
            "2026-12-01T13:00",
            "on 2026-12-01T17:00:00",
        ),
        (
            "",
            "12-18 tue=13-17=on",
            "2026-12-02T13:00",
            "off 2026-12-02T18:00:00",
        ),
        // The order in which parts override each other.
        (
            "",
            "off tue=suspended",
            "2026-12-01T13:00",
            "suspended 2026-12-02T00:00:00",
        ),
        ("", "off", "2026-12-01T13:00", "off never"),
        ("", "0-24=off", "2026-12-01T13:00", "off never"),
        (
            "",
            "sat-mon=off",
            "2026-12-05T00:00",
            "off 2026-12-08T00:00:00",
        ),
        ("", "20-24", "2026-12-01T23:00", "off 2026-12-02T00:00:00"),
        (
            "",
            "6:30-7:15:30",
            "2026-12-01T07:00",
            "off 2026-12-01T07:15:30",
        ),
        // A date has nothing of its day of the week.
        (
            &with("on"),
            "mon-fri=6-20",
            "2026-12-24T20:00",
            "on 2026-12-28T06:00:00",
        ),
        (
            &with("on"),
            "mon-fri=6-20",
            "2027-01-05T20:00",
            "on 2027-01-07T06:00:00",
        ),
        (
            holidays,
            "NONE",
            "2026-12-01T00:00",
            "on 2026-12-25T00:00:00",
        ),
        (
            holidays,
            "NONE",
            "2026-12-25T00:00",
            "off 2026-12-27T00:00:00",
        ),
        ("1.1.2029", "", "2026-12-01T00:00", "on 2028-01-05T00:00:00"),
        (
            "12.03.2027=12-11=off",
            "",
            "2027-03-12T10:59:59",
            "off 2027-03-12T11:00:00",
        ),
        (
            "12.03.2027=12-11=off",
            "",
            "2027-03-12T11:00",
            "on 2027-03-12T12:00:00",
        ),
        ("off", "on", "2026-12-01T12:00", "off never"),
        // Clocks are put forward: there is no half past two.
        (
            "28.3.2027=2:30-4",
            "",
            "2027-03-28T01:30",
            "on 2027-03-28T03:00:00",
        ),
    ] {
        assert_eq!(said(year, week, now), want, "{year} {week} {now}");
    }
}

/// Clocks are put back at three: half past two comes twice, and both times it is in the entry.
#[test]
fn an_hour_that_comes_twice_has_its_state_twice() {
    let calendar = Calendar::new("c", "", "2:15-2:45").unwrap();
    let zone = Zone::of_rule(BERLIN);
    let mut now = at("2026-10-25T00:00");
    let mut all = Vec::new();
    for _ in 0..5 {
        let (state, next) = calendar.state_at(now, &zone);
        let next = next.unwrap();
        all.push(format!("{} {}", state.name(), (next.0 - now.0) / 60_000));
        now = next;
    }
    assert_eq!(all, ["on 135", "off 30", "on 30", "off 30", "on 1410"]);
}

#[test]
fn wrong_entries_are_refused_by_name() {
    for (year, week, why) in [
        ("", "mon=6", "missing '-' in daytime range '6'"),
        ("", "mo", "\"mo\" is not a weekday"),
        ("", "mond-fridays", "\"fridays\" is not a weekday"),
        ("", "mon-Mon", "found useless weekday range 'mon-Mon'"),
        (
            "",
            "6-6",
            "range begin is equal to end in '6-6' - use 0-24 instead",
        ),
        ("", "mon=6-25", "'25' is not a time of day"),
        ("", "6-24:01", "'24:01' is not a time of day"),
        ("", "6-20:60", "'20:60' is not a time of day"),
        ("", "6-7:0:0:0", "'7:0:0:0' is not a time of day"),
        ("", "-1-5", "'' is not a time of day"),
        (
            "",
            "off=mon",
            "'off=mon': expected days=times=on|off|suspended",
        ),
        ("", "6-7=mon", "'6-7=mon': expected days"),
        ("", "mon=", "'mon=': expected days"),
        ("", "mon=6-7=off=on", "'mon=6-7=off=on': expected days"),
        ("mon", "", "missing '-' in daytime range 'mon'"),
        ("30.2.2027", "", "'30.2.2027' is not a date"),
        ("1.1.1969", "", "'1.1.1969' is not a date"),
        ("1.1", "", "'1.1' is not a date"),
        (
            "2.1.2027-1.1.2027",
            "",
            "'2.1.2027-1.1.2027' ends before it begins",
        ),
    ] {
        let key = if year.is_empty() { "week" } else { "year" };
        let found = Calendar::new("c", year, week).unwrap_err();
        let want = format!("error in disabled_{key} of calendar \"c\": {why}");
        assert!(found.starts_with(&want), "{year} {week}: {found}");
    }
    for name in ["", "a b", "year", "NONE", "a=b", "é"] {
        Calendar::new(name, "", "").unwrap_err();
    }
    Calendar::new("c", "", &"off ".repeat(10_000)).unwrap_err();
}

#[test]
fn texts_are_read_as_they_are_written() {
    for (text, want) in [
        (
            "night week mon-fri=6-20",
            "night year NONE week mon-fri=6-20",
        ),
        ("n week off year 1.1.2027=on", "n year 1.1.2027=on week off"),
        ("n", "n year NONE week NONE"),
        ("n year none week NONE", "n year NONE week NONE"),
    ] {
        let read = Calendar::parse(text).unwrap();
        assert_eq!(read.text(), want);
        assert_eq!(Calendar::parse(want), Ok(read));
    }
    for text in ["", "n mon", "n week off week off", "week off"] {
        Calendar::parse(text).unwrap_err();
    }
}

proptest::proptest! {
    /// At the time of a change the state is another, and just before it is not.
    #[test]
    fn changes_come_when_it_is_said(
        week in "(((mon|tue|sat-mon|thu-fri)=)?[0-9]-1[0-9](=(on|off|suspended))? ?){1,3}",
        hours in 0_i64..20_000,
    ) {
        let zone = Zone::of_rule(BERLIN);
        if let Ok(calendar) = Calendar::new("c", "25.12.2026", &week) {
            let now = Timestamp(at("2026-01-01T00:00").0 + hours * 3_600_000);
            let (state, next) = calendar.state_at(now, &zone);
            if let Some(next) = next {
                proptest::prop_assert!(next > now);
                proptest::prop_assert_eq!(calendar.state_at(Timestamp(next.0 - 1), &zone).0, state);
                let is_asked_again = next.since_ms(now) > 399 * 86_400_000;
                proptest::prop_assert!(is_asked_again || calendar.state_at(next, &zone).0 != state);
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9.:=, -]{0,40}") {
        let _ = Calendar::parse(&text);
    }
}
