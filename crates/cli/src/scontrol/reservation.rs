//! `scontrol create`, `update` and `delete reservation`: what users write becomes one request. Times are read here,
//! where the user's zone is known; what can be had is the controller's to judge.

use super::Session;
use crate::connect::ConnectError;
use crate::options::OptionStatus;
use crate::say;
use crate::zone::LocalZone;
use jiff::Zoned;
use muster_conf::options::values::time;
use muster_model::command::{NameList, Reply, ReservationAsk, UserCommand};
use muster_model::reservation::Flags;
use muster_model::time::{TimeLimit, Timestamp};

const NONE_HERE: OptionStatus = OptionStatus::Refused("this cluster has none to reserve");

/// Fields of `create` and `update ReservationName=`, and their effects here.
pub(crate) const FIELDS: &[(&str, usize, OptionStatus)] = &[
    ("ReservationName", 1, OptionStatus::Works),
    ("StartTime", 1, OptionStatus::Works),
    ("EndTime", 1, OptionStatus::Works),
    ("Duration", 1, OptionStatus::Works),
    ("Nodes", 5, OptionStatus::Works),
    ("NodeCnt", 5, OptionStatus::Works),
    ("NodeCount", 5, OptionStatus::Works),
    ("CoreCnt", 5, OptionStatus::Works),
    ("CoreCount", 5, OptionStatus::Works),
    ("PartitionName", 1, OptionStatus::Works),
    (
        "Features",
        2,
        OptionStatus::Partly("names with & and | between them; no counts and brackets"),
    ),
    ("Flags", 2, OptionStatus::Works),
    ("Users", 1, OptionStatus::Works),
    ("Groups", 1, OptionStatus::Works),
    ("Accounts", 1, OptionStatus::Works),
    (
        "MaxStartDelay",
        1,
        OptionStatus::StoredOnly {
            why: "shown; jobs of others never delay a reservation",
            warn: false,
        },
    ),
    ("Comment", 3, OptionStatus::Works),
    (
        "TRES",
        1,
        OptionStatus::Partly("cpu=, node= and license/NAME=, as CoreCnt, NodeCnt and Licenses"),
    ),
    ("Skip", 2, OptionStatus::Works),
    ("Licenses", 1, OptionStatus::Works),
    ("BurstBuffer", 2, NONE_HERE),
    ("Watts", 1, NONE_HERE),
];

/// Fields that may be added to or taken from.
const SIGNED: [&str; 5] = ["Duration", "Flags", "Users", "Groups", "Accounts"];

/// Flags as they are written, with how few letters stand for each, and what each means.
const FLAGS: &[(&str, usize, Flags)] = &[
    ("MAINTENANCE", 1, Flags::MAINT),
    ("OVERLAP", 1, Flags::OVERLAP),
    ("FLEX", 4, Flags::FLEX),
    ("IGNORE_JOBS", 1, Flags::IGNORE_JOBS),
    ("HOURLY", 1, Flags::HOURLY),
    ("DAILY", 1, Flags::DAILY),
    ("WEEKDAY", 5, Flags::WEEKDAY),
    ("WEEKEND", 5, Flags::WEEKEND),
    ("WEEKLY", 5, Flags::WEEKLY),
    ("ANY_NODES", 1, Flags::ANY_NODES),
    ("LICENSE_ONLY", 1, Flags::ANY_NODES),
    ("STATIC_ALLOC", 1, Flags::STATIC),
    ("PART_NODES", 2, Flags::PART_NODES),
    ("PURGE_COMP", 2, Flags::PURGE_COMP),
    ("FIRST_CORES", 5, Flags::FIRST_CORES),
    ("TIME_FLOAT", 1, Flags::TIME_FLOAT),
    ("REPLACE", 1, Flags::REPLACE),
    ("REPLACE_DOWN", 8, Flags::REPLACE_DOWN),
    ("NO_HOLD_JOBS_AFTER_END", 1, Flags::NO_HOLD_JOBS_AFTER),
    ("MAGNETIC", 3, Flags::MAGNETIC),
];

/// Names of the flags, for the compatibility page.
pub(crate) fn flag_names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().map(|(name, ..)| *name)
}

/// A fault of a field.
#[derive(Debug, PartialEq)]
enum ReservationError {
    /// A field cannot be read, in scontrol's words.
    Unreadable(String),
    /// A name is nobody's; the controller refuses it in the same words.
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        name: String,
    },
}

impl ReservationError {
    fn text(self) -> String {
        match self {
            ReservationError::Unreadable(text) => text,
            ReservationError::Unknown { kind, name } => {
                format!("Invalid {kind} id: there is no {kind} {name}")
            }
        }
    }
}

impl Session {
    /// `create reservation ...`.
    pub(super) fn create_reservation(&mut self, words: &[String]) {
        let ask = match read(words, &now(), false).and_then(|ask| complete(ask, words)) {
            Ok(ask) => ask,
            Err(ReservationError::Unreadable(text)) => {
                return self.error(&format!("{text}  No reservation created."));
            }
            Err(ReservationError::Unknown { kind, name }) => {
                self.error(&format!("there is no {kind} {name}"));
                return self.complain(&format!(
                    "Error creating the reservation: Invalid {kind} id"
                ));
            }
        };
        let answer = self
            .client()
            .and_then(|c| c.command(UserCommand::CreateReservation(Box::new(ask))));
        match answer {
            Ok(Reply::Reserved { name }) => say::stdout(&format!("Reservation created: {name}\n")),
            Ok(other) => self.error(&format!("unexpected answer {other:.60?}")),
            Err(error) => self.request_failed("Error creating the reservation", &error),
        }
    }

    /// `update ReservationName=...`.
    pub(super) fn update_reservation(&mut self, words: &[String]) {
        let ask = match read(words, &now(), true) {
            Ok(ask) => ask,
            Err(ReservationError::Unreadable(text)) => {
                return self.error(&format!("{text}  No reservation update."));
            }
            Err(ReservationError::Unknown { kind, name }) => {
                self.error(&format!("there is no {kind} {name}"));
                let text = format!("Invalid {kind} id");
                self.complain(&format!("Error updating the reservation: {text}"));
                return self.complain(&format!("slurm_update error: {text}"));
            }
        };
        if ask.name.as_ref().is_none_or(String::is_empty) {
            return self.error("Reservation must be given.  No reservation update.");
        }
        let answer = self
            .client()
            .and_then(|c| c.command(UserCommand::UpdateReservation(Box::new(ask))));
        match answer {
            Ok(_) => say::stdout("Reservation updated.\n"),
            Err(error) => {
                self.request_failed("Error updating the reservation", &error);
                if let ConnectError::Refused(refusal) = &error {
                    let text = super::request_text("slurm_update error", refusal.code);
                    self.complain(&format!("slurm_update error: {text}"));
                }
            }
        }
    }

    /// `delete ReservationName=NAME`, `delete reservation NAME`.
    pub(super) fn delete_reservation(&mut self, name: &str, words: &[String]) {
        let command = UserCommand::DeleteReservation {
            name: name.to_owned(),
        };
        if let Err(error) = self.client().and_then(|c| c.command(command)) {
            let prefix = format!("delete_reservation {}", words.join(" "));
            self.request_failed(&prefix, &error);
        }
    }
}

/// A new reservation of `Key=Value` words, as of `scontrol create reservation`.
///
/// # Errors
/// What is wrong with them, in scontrol's words.
pub(crate) fn of_words(words: &[String]) -> Result<ReservationAsk, String> {
    let made = read(words, &now(), false).and_then(|ask| complete(ask, words));
    made.map_err(ReservationError::text)
}

/// A change of a reservation, of words as of `scontrol update ReservationName=`.
///
/// # Errors
/// What is wrong with them, in scontrol's words.
pub(crate) fn change_of_words(words: &[String]) -> Result<ReservationAsk, String> {
    read(words, &now(), true).map_err(ReservationError::text)
}

fn now() -> Zoned {
    Zoned::now()
}

/// Reads `Key=Value` words.
fn read(words: &[String], now: &Zoned, update: bool) -> Result<ReservationAsk, ReservationError> {
    let mut ask = ReservationAsk {
        utc_offset_s: now.offset().seconds(),
        ..ReservationAsk::default()
    };
    for word in words {
        if update && word.len() >= 2 && "skip".starts_with(&word.to_ascii_lowercase()) {
            ask.skip = true;
            continue;
        }
        let Some((key, value)) = word.split_once('=') else {
            return Err(ReservationError::Unreadable(format!(
                "Unknown parameter {word}."
            )));
        };
        let (key, sign) = match key.strip_suffix(['+', '-']) {
            Some(bare) => (bare, key.chars().next_back()),
            None => (key, None),
        };
        set(&mut ask, word, key, (sign, update), value, now)?;
    }
    Ok(ask)
}

fn field(key: &str) -> Option<(&'static str, OptionStatus)> {
    let key = key.to_ascii_lowercase();
    FIELDS
        .iter()
        .find(|(name, least, _)| {
            let name = name.to_ascii_lowercase();
            name == key || (key.len() >= *least && name.starts_with(&key))
        })
        .map(|(name, _, status)| (*name, *status))
}

fn set(
    ask: &mut ReservationAsk,
    word: &str,
    key: &str,
    (sign, update): (Option<char>, bool),
    value: &str,
    now: &Zoned,
) -> Result<(), ReservationError> {
    let unknown = || ReservationError::Unreadable(format!("Unknown parameter {word}."));
    let (name, status) = field(key).ok_or_else(unknown)?;
    if let OptionStatus::Refused(why) = status {
        return Err(ReservationError::Unreadable(format!(
            "{name} is not supported: {why}."
        )));
    }
    let value = value.trim_matches(['"', '\'']);
    let bad = |what: &str| ReservationError::Unreadable(format!("Invalid {what} {word}."));
    if sign.is_some() && !SIGNED.contains(&name) {
        return Err(ReservationError::Unreadable(format!(
            "Use {name}= without a sign, not {word}."
        )));
    }
    // A time of day that has passed today is tomorrow's.
    let time = || {
        let at = Timestamp::from_unix_s(now.timestamp().as_second());
        let zone = LocalZone::of(now.time_zone().clone());
        time::parse(value, at, &zone).ok_or_else(|| {
            say::stderr(&format!("Invalid time specification (pos=0): {value}\n"));
        })
    };
    match name {
        "ReservationName" => ask.name = Some(value.to_owned()),
        "StartTime" => ask.start = Some(time().map_err(|()| bad("start time"))?),
        "EndTime" => ask.end = Some(time().map_err(|()| bad("end time"))?),
        "Duration" => {
            let limit: TimeLimit = value.parse().map_err(|_| bad("duration"))?;
            if sign.is_some() && (!update || limit == TimeLimit::Unlimited) {
                return Err(bad("duration"));
            }
            (ask.duration, ask.duration_sign) = (Some(limit), sign);
        }
        "Nodes" => ask.nodes = Some(value.to_owned()),
        "NodeCnt" | "NodeCount" => {
            let counts = counts(value).ok_or_else(|| bad("node count"))?;
            ask.node_count = Some(counts.iter().sum());
        }
        "CoreCnt" | "CoreCount" => {
            ask.core_counts = counts(value).ok_or_else(|| bad("core count"))?;
        }
        "PartitionName" => ask.partition = Some(value.to_owned()),
        "Features" => ask.features = Some(value.to_owned()),
        "Flags" => set_flags(ask, sign, value)?,
        "Users" => ask.users = Some(users(sign, value)?),
        "Groups" => ask.groups = Some(groups(sign, value)?),
        "Accounts" => ask.accounts = Some(names(sign, value)),
        "MaxStartDelay" => {
            let limit: TimeLimit = value.parse().map_err(|_| bad("max start delay"))?;
            ask.max_start_delay_s = Some(small(limit.seconds()));
        }
        "Comment" => ask.comment = Some(value.to_owned()),
        "Licenses" => ask.licenses = Some(value.to_owned()),
        "TRES" if value.to_ascii_lowercase().contains("bb/") => {
            let why = "this cluster has none to reserve";
            return Err(ReservationError::Unreadable(format!(
                "BurstBuffer is not supported: {why}."
            )));
        }
        "TRES" => tres(ask, value).ok_or_else(|| bad("TRES"))?,
        _ => return Err(unknown()),
    }
    Ok(())
}

/// `2`, `1,3`, `1k`.
fn counts(text: &str) -> Option<Vec<u32>> {
    text.split(',')
        .map(|word| match word.strip_suffix(['k', 'K']) {
            Some(thousands) => thousands.parse::<u32>().ok()?.checked_mul(1024),
            None => word.parse().ok(),
        })
        .collect()
}

/// `cpu=5,node=2,license/x=3`; a number alone goes on with the list of the one before.
fn tres(ask: &mut ReservationAsk, text: &str) -> Option<()> {
    let mut current = "";
    for word in text.split(',') {
        let (kind, count) = match word.split_once('=') {
            Some((kind, count)) => (kind, count),
            None => (current, word),
        };
        match kind.to_ascii_lowercase().as_str() {
            lower if lower.len() > 8 && lower.starts_with("license/") => {
                // Names of licenses tell capitals from small letters.
                let name = kind.split_at_checked("license/".len())?.1;
                let count: u32 = count.parse().ok()?;
                let licenses = ask.licenses.get_or_insert_default();
                if !licenses.is_empty() {
                    licenses.push(',');
                }
                licenses.push_str(&format!("{name}:{count}"));
                current = "";
            }
            "cpu" => {
                ask.core_counts.extend(counts(count)?);
                current = "cpu";
            }
            "node" => {
                let more: u32 = counts(count)?.iter().sum();
                ask.node_count = Some(ask.node_count.unwrap_or(0) + more);
                current = "node";
            }
            _ => return None,
        }
    }
    Some(())
}

fn small(seconds: Option<u64>) -> u32 {
    seconds.map_or(u32::MAX, |s| u32::try_from(s).unwrap_or(u32::MAX))
}

fn set_flags(
    ask: &mut ReservationAsk,
    sign: Option<char>,
    value: &str,
) -> Result<(), ReservationError> {
    for word in value.split(',').filter(|w| !w.is_empty()) {
        let (word, argument) = match word.split_once(['=', ':']) {
            Some((word, argument)) => (word, Some(argument)),
            None => (word, None),
        };
        let (word, minus) = match word.strip_prefix('-') {
            Some(word) => (word, true),
            None => (word.strip_prefix('+').unwrap_or(word), false),
        };
        let upper = word.to_ascii_uppercase();
        let known = FLAGS.iter().find(|(name, ..)| *name == upper).or_else(|| {
            FLAGS
                .iter()
                .find(|(name, least, _)| upper.len() >= *least && name.starts_with(&upper))
        });
        let wrong = || {
            let sign = sign.map_or_else(String::new, String::from);
            ReservationError::Unreadable(format!("Error parsing flags {sign}{value}."))
        };
        let (_, _, flag) = known.ok_or_else(wrong)?;
        let removed = minus || sign == Some('-');
        let added_later = !removed && sign == Some('+');
        if (removed && Flags::LASTING.has(*flag)) || (added_later && *flag == Flags::TIME_FLOAT) {
            return Err(wrong());
        }
        if let Some(argument) = argument {
            let limit: TimeLimit = argument.parse().map_err(|_| wrong())?;
            if *flag != Flags::PURGE_COMP {
                return Err(wrong());
            }
            ask.purge_s = Some(small(limit.seconds()));
        }
        if removed {
            ask.flags_removed = ask.flags_removed.with(*flag);
        } else {
            ask.flags = ask.flags.with(*flag);
        }
    }
    Ok(())
}

/// `a,b`, `-a,-b`, or a list that is added or taken away.
fn names(sign: Option<char>, value: &str) -> NameList {
    let words: Vec<&str> = value.split(',').filter(|w| !w.is_empty()).collect();
    let all = |strip: bool| {
        let bare = |w: &&str| {
            w.strip_prefix('-')
                .filter(|_| strip)
                .unwrap_or(w)
                .to_owned()
        };
        words.iter().map(bare).collect()
    };
    match sign {
        Some('+') => NameList::Add(all(false)),
        Some(_) => NameList::Remove(all(false)),
        None if !words.is_empty() && words.iter().all(|w| w.starts_with('-')) => {
            NameList::AllBut(all(true))
        }
        None => NameList::Only(all(false)),
    }
}

/// Users must exist.
fn users(sign: Option<char>, value: &str) -> Result<NameList, ReservationError> {
    let list = names(sign, value);
    let (NameList::Only(all) | NameList::AllBut(all) | NameList::Add(all) | NameList::Remove(all)) =
        &list;
    for user in all {
        if crate::people::user_named(user).is_none() {
            return Err(ReservationError::Unknown {
                kind: "user",
                name: user.clone(),
            });
        }
    }
    Ok(list)
}

/// Groups must exist.
fn groups(sign: Option<char>, value: &str) -> Result<NameList, ReservationError> {
    let list = names(sign, value);
    let (NameList::Only(all) | NameList::AllBut(all) | NameList::Add(all) | NameList::Remove(all)) =
        &list;
    for group in all {
        if crate::people::group_named(group).is_none() {
            return Err(ReservationError::Unknown {
                kind: "group",
                name: group.clone(),
            });
        }
    }
    Ok(list)
}

/// Checks that a new reservation has all that it must have.
fn complete(ask: ReservationAsk, words: &[String]) -> Result<ReservationAsk, ReservationError> {
    let missing = |text: &str| Err(ReservationError::Unreadable(text.to_owned()));
    let Some(start) = ask.start else {
        return missing("A start time must be given.");
    };
    if ask.end.is_none() && ask.duration.is_none() {
        return missing("An end time or duration must be given.");
    }
    if ask.end.is_some_and(|end: Timestamp| end < start) && ask.duration.is_none() {
        return missing("Start time cannot be after end time.");
    }
    let resources = ask.nodes.is_some()
        || ask.node_count.is_some()
        || !ask.core_counts.is_empty()
        || ask.partition.is_some()
        || ask.licenses.is_some();
    if !resources {
        return missing(
            "CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.",
        );
    }
    if ask.users.is_none() && ask.groups.is_none() && ask.accounts.is_none() {
        return missing("Either Users/Groups and/or Accounts must be specified.");
    }
    debug_assert!(!words.is_empty());
    Ok(ask)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22 00:33:51 UTC.
    const NOW: i64 = 1_795_307_631;
    const MIDNIGHT: i64 = NOW - NOW % 86_400;

    fn ask(line: &str) -> Result<ReservationAsk, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let now = jiff::Timestamp::from_second(NOW)
            .unwrap()
            .to_zoned(jiff::tz::TimeZone::UTC);
        read(&words, &now, true).map_err(ReservationError::text)
    }

    #[test]
    fn what_users_write() {
        let got = ask(
            "ReservationName=m1 start=now+1hour Dur=1-00:00:00 Nodes=n[1-2] User=root \
             Flags=MAINT,IGNORE_JOBS,PURGE_COMP=10,weekly part=batch",
        )
        .unwrap();
        assert_eq!(got.name.as_deref(), Some("m1"));
        assert_eq!(
            got.start,
            Some(Timestamp::from_unix_s(1_795_307_631 + 3600))
        );
        assert_eq!(got.duration, Some(TimeLimit::Minutes(1440)));
        assert_eq!(got.users, Some(NameList::Only(vec!["root".into()])));
        let flags = Flags::MAINT
            .with(Flags::IGNORE_JOBS)
            .with(Flags::PURGE_COMP)
            .with(Flags::WEEKLY);
        assert_eq!((got.flags, got.purge_s), (flags, Some(600)));
        let got = ask("res=r CoreCnt=1,2 NodeCnt=2k Accounts=-a,-b Users-=root Flags-=DAILY skip")
            .unwrap();
        assert_eq!((got.core_counts, got.node_count), (vec![1, 2], Some(2048)));
        assert_eq!(
            got.accounts,
            Some(NameList::AllBut(vec!["a".into(), "b".into()]))
        );
        assert_eq!(got.users, Some(NameList::Remove(vec!["root".into()])));
        assert!(got.flags_removed == Flags::DAILY && got.skip);
        let got = ask("res=r TRES=cpu=2,3,node=2").unwrap();
        assert_eq!((got.core_counts, got.node_count), (vec![2, 3], Some(2)));
    }

    /// Fields and flags of scontrol(1), each with its result.
    #[test]
    fn each_field_and_flag() {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        type Becomes = fn(&mut ReservationAsk);
        let fields: [(&str, Becomes); 23] = [
            ("Nodes=n[1-2]", |a| a.nodes = Some("n[1-2]".into())),
            ("Nodes=", |a| a.nodes = Some(String::new())),
            ("NodeCnt=2", |a| a.node_count = Some(2)),
            ("NodeCnt=1,2", |a| a.node_count = Some(3)),
            ("CoreCnt=2,3", |a| a.core_counts = vec![2, 3]),
            ("PartitionName=p", |a| a.partition = Some("p".into())),
            ("Features=a&b", |a| a.features = Some("a&b".into())),
            ("Features=", |a| a.features = Some(String::new())),
            ("Licenses=x:2,y", |a| a.licenses = Some("x:2,y".into())),
            ("TRES=cpu=5,node=2", |a| {
                (a.core_counts, a.node_count) = (vec![5], Some(2));
            }),
            ("TRES=node=2,license/Iop=3,license/b=1", |a| {
                (a.node_count, a.licenses) = (Some(2), Some("Iop:3,b:1".into()));
            }),
            ("MaxStartDelay=5", |a| a.max_start_delay_s = Some(300)),
            ("Comment=x", |a| a.comment = Some("x".into())),
            ("Skip", |a| a.skip = true),
            ("Duration=2-0", |a| {
                a.duration = Some(TimeLimit::Minutes(2880))
            }),
            ("Duration=UNLIMITED", |a| {
                a.duration = Some(TimeLimit::Unlimited)
            }),
            ("Duration+=30", |a| {
                (a.duration, a.duration_sign) = (Some(TimeLimit::Minutes(30)), Some('+'));
            }),
            ("Duration-=30", |a| {
                (a.duration, a.duration_sign) = (Some(TimeLimit::Minutes(30)), Some('-'));
            }),
            ("StartTime=now+60", |a| {
                a.start = Some(Timestamp::from_unix_s(NOW + 60))
            }),
            // It is half past midnight: midnight is tomorrow's, teatime today's.
            ("StartTime=midnight", |a| {
                a.start = Some(Timestamp::from_unix_s(MIDNIGHT + 86_400))
            }),
            ("StartTime=teatime", |a| {
                a.start = Some(Timestamp::from_unix_s(MIDNIGHT + 57_600))
            }),
            ("EndTime=4PM", |a| {
                a.end = Some(Timestamp::from_unix_s(MIDNIGHT + 57_600))
            }),
            ("EndTime=11.23.26", |a| {
                a.end = Some(Timestamp::from_unix_s(MIDNIGHT + 86_400))
            }),
        ];
        for (line, becomes) in fields {
            let mut expected = ReservationAsk::default();
            becomes(&mut expected);
            assert_eq!(ask(line), Ok(expected), "{line}");
        }
        for (line, expected) in [
            ("a,b", NameList::Only(list(&["a", "b"]))),
            ("-a,-b", NameList::AllBut(list(&["a", "b"]))),
            ("", NameList::Only(vec![])),
        ] {
            let got = ask(&format!("Accounts={line}")).unwrap();
            assert_eq!(got.accounts, Some(expected), "{line}");
        }
        let groups = |line| ask(line).map(|got| got.groups);
        let root = list(&["root"]);
        assert_eq!(
            groups("Groups=root"),
            Ok(Some(NameList::Only(root.clone())))
        );
        assert_eq!(groups("Groups=-root"), Ok(Some(NameList::AllBut(root))));
        assert_eq!(groups("Groups="), Ok(Some(NameList::Only(vec![]))));
        for (line, expected) in [
            ("Accounts+=a", NameList::Add(list(&["a"]))),
            ("Accounts-=a", NameList::Remove(list(&["a"]))),
        ] {
            assert_eq!(ask(line).unwrap().accounts, Some(expected));
        }
        assert_eq!(
            ask("Users+=root").unwrap().users,
            Some(NameList::Add(list(&["root"])))
        );
        for (word, flag) in [
            ("ANY_NODES", Flags::ANY_NODES),
            ("DAILY", Flags::DAILY),
            ("FLEX", Flags::FLEX),
            ("FIRST_CORES", Flags::FIRST_CORES),
            ("IGNORE_JOBS", Flags::IGNORE_JOBS),
            ("HOURLY", Flags::HOURLY),
            ("LICENSE_ONLY", Flags::ANY_NODES),
            ("MAINT", Flags::MAINT),
            ("MAGNETIC", Flags::MAGNETIC),
            ("NO_HOLD_JOBS_AFTER", Flags::NO_HOLD_JOBS_AFTER),
            ("NO_HOLD_JOBS_AFTER_END", Flags::NO_HOLD_JOBS_AFTER),
            ("OVERLAP", Flags::OVERLAP),
            ("PART_NODES", Flags::PART_NODES),
            ("PURGE_COMP", Flags::PURGE_COMP),
            ("REPLACE", Flags::REPLACE),
            ("REPLACE_DOWN", Flags::REPLACE_DOWN),
            ("STATIC_ALLOC", Flags::STATIC),
            ("TIME_FLOAT", Flags::TIME_FLOAT),
            ("WEEKDAY", Flags::WEEKDAY),
            ("WEEKEND", Flags::WEEKEND),
            ("WEEKLY", Flags::WEEKLY),
        ] {
            for (sign, set, removed) in [
                ("", flag, Flags::default()),
                ("+", flag, Flags::default()),
                ("-", Flags::default(), flag),
            ] {
                let line = format!("Flags{sign}={}", word.to_lowercase());
                let kept = sign == "-" && Flags::LASTING.has(flag);
                if kept || (sign == "+" && flag == Flags::TIME_FLOAT) {
                    let why = format!("Error parsing flags {sign}{}.", word.to_lowercase());
                    assert_eq!(ask(&line), Err(why));
                    continue;
                }
                let got = ask(&line).unwrap();
                assert_eq!(
                    (got.flags, got.flags_removed),
                    (set, removed),
                    "{word} {sign}"
                );
            }
        }
        let got = ask("Flags=PURGE_COMP=1:30").unwrap();
        assert_eq!((got.flags, got.purge_s), (Flags::PURGE_COMP, Some(120)));
        for (line, why) in [
            ("BurstBuffer=1TB", "BurstBuffer is not supported"),
            ("TRES=bb/cray=4", "BurstBuffer is not supported"),
            ("TRES=gres/gpu=4", "Invalid TRES"),
            ("TRESPerNode=gres/gpu:1", "Unknown parameter TRESPerNode"),
            ("CorePerNode=1", "Unknown parameter CorePerNode"),
            ("Flags=-REPLACE", "Error parsing flags -REPLACE."),
            ("Flags=SPEC_NODES", "Error parsing flags SPEC_NODES."),
            ("Watts=5", "Watts is not supported"),
            ("Nodes+=n1", "Use Nodes= without a sign, not Nodes+=n1."),
            ("NodeCnt-=1", "Use NodeCnt= without a sign, not NodeCnt-=1."),
            ("Duration+=UNLIMITED", "Invalid duration"),
            ("Flags=DAILY=5", "Error parsing flags"),
        ] {
            let text = ask(line).unwrap_err();
            assert!(text.starts_with(why), "{line}: {text}");
        }
    }

    #[test]
    fn what_is_wrong() {
        for (line, text) in [
            ("starttime=foo", "Invalid start time starttime=foo."),
            ("duration=foo", "Invalid duration duration=foo."),
            ("bogus=1", "Unknown parameter bogus=1."),
            ("flags=foo", "Error parsing flags foo."),
        ] {
            assert_eq!(ask(line), Err(text.to_owned()));
        }
        let incomplete = |line: &str| {
            let words: Vec<String> = vec![line.to_owned()];
            complete(ask(line).unwrap(), &words).map_err(ReservationError::text)
        };
        assert!(
            incomplete("duration=5")
                .unwrap_err()
                .starts_with("A start time")
        );
        assert!(
            incomplete("starttime=now nodes=n1")
                .unwrap_err()
                .starts_with("An end time")
        );
        let line = "starttime=now duration=5 nodes=n1";
        assert!(
            incomplete(line)
                .unwrap_err()
                .starts_with("Either Users/Groups")
        );
    }
}
