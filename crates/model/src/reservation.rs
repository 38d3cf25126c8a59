//! Advance reservations: resources that are kept for some users and accounts for a time. The record, its times (with
//! repetition), and who may use it. Making and changing them is `decide::reservation`'s.

use crate::accounts::Accounts;
use crate::cpuset::CpuSet;
use crate::hostlist;
use crate::ids::NodeIdx;
use crate::node::Node;
use crate::time::Timestamp;
use crate::validate::{Fault, Validate};
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, HashMap};

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// When a job would run, for a question which resources reservations leave to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunWindow {
    /// When the question is asked: reservations that float have moved on until then.
    pub now: Timestamp,
    /// When the job would start.
    pub start: Timestamp,
    /// When it would have ended at the latest.
    pub end: Timestamp,
}

impl RunWindow {
    /// Window of a job that would start now.
    pub fn from_now(now: Timestamp, end: Timestamp) -> RunWindow {
        RunWindow {
            now,
            start: now,
            end,
        }
    }
}

/// A reservation, as `scontrol show reservation` prints it.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Reservation {
    /// `ReservationName`.
    #[n(0)]
    pub name: String,
    /// Begin of this occurrence.
    #[n(1)]
    pub start: Timestamp,
    /// End of this occurrence.
    #[n(2)]
    pub end: Timestamp,
    /// Reserved nodes, in configuration order.
    #[n(3)]
    pub nodes: Vec<ReservedNode>,
    /// The nodes as a hostlist, made once, shown often.
    #[n(4)]
    pub hostlist: String,
    /// `Flags`.
    #[n(5)]
    pub flags: Flags,
    /// `PartitionName`.
    #[n(6)]
    pub partition: Option<String>,
    /// `Features`.
    #[n(7)]
    pub features: Option<String>,
    /// `Users`; empty is no condition.
    #[n(8)]
    pub users: Vec<String>,
    /// All but `users` may use it (`Users=-name`).
    #[n(9)]
    pub users_denied: bool,
    /// `Accounts`; empty is no condition.
    #[n(10)]
    pub accounts: Vec<String>,
    /// All but `accounts` may use it.
    #[n(11)]
    pub accounts_denied: bool,
    /// `Groups`; empty is no condition.
    #[n(12)]
    pub groups: Vec<String>,
    /// `Licenses`, as text.
    #[n(13)]
    pub licenses: Option<String>,
    /// Nodes that it is to have, when they were chosen by number (`NodeCnt`).
    #[n(14)]
    pub node_count: Option<u32>,
    /// `MaxStartDelay`, seconds.
    #[n(15)]
    pub max_start_delay_s: Option<u32>,
    /// `PURGE_COMP`: seconds without a job after which it goes.
    #[n(16)]
    pub purge_s: Option<u32>,
    /// `TIME_FLOAT`: seconds from now at which it always begins.
    #[n(17)]
    pub float_s: Option<u64>,
    /// Seconds east of UTC where it was made: days of the week follow it.
    #[n(18)]
    pub utc_offset_s: i32,
    /// Its begin has been seen.
    #[n(19)]
    pub active: bool,
    /// Since when no job runs in it; set by events, for `PURGE_COMP`.
    #[n(20)]
    pub idle_since: Option<Timestamp>,
    /// `Comment`.
    #[n(21)]
    pub comment: Option<String>,
    /// Cores are reserved, not whole nodes (`CoreCnt`).
    #[n(22)]
    pub by_core: bool,
    /// The user who made it, if that was an ordinary one: it may be deleted by that user.
    #[n(23)]
    pub made_by: Option<u32>,
}

/// A node of a reservation.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ReservedNode {
    /// The node.
    #[n(0)]
    pub node: NodeIdx,
    /// Its name.
    #[n(1)]
    pub name: String,
    /// CPUs that are reserved there; absent: all.
    #[n(2)]
    pub cpus: Option<CpuSet>,
}

macro_rules! flags {
    ($($(#[$doc:meta])* $bit:literal $name:ident = $text:literal,)*) => {
        /// Flags of a reservation.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
        #[cbor(transparent)]
        #[valid(with = Flags::check)]
        pub struct Flags(#[n(0)] pub u32);

        impl Flags {
            $($(#[$doc])* pub const $name: Flags = Flags(1 << $bit);)*

            /// Every flag with its name, in the order in which they are printed.
            pub const ALL: &[(Flags, &'static str)] = &[$((Flags::$name, $text),)*];
        }
    };
}

flags! {
    /// Maintenance; may overlap others.
    0 MAINT = "MAINT",
    /// May overlap others.
    1 OVERLAP = "OVERLAP",
    /// Running jobs are no obstacle when it is made.
    2 IGNORE_JOBS = "IGNORE_JOBS",
    /// Repeats every hour.
    3 HOURLY = "HOURLY",
    /// Repeats every day.
    4 DAILY = "DAILY",
    /// Repeats Monday to Friday.
    5 WEEKDAY = "WEEKDAY",
    /// Repeats on Saturday and Sunday.
    6 WEEKEND = "WEEKEND",
    /// Repeats every week.
    7 WEEKLY = "WEEKLY",
    /// The nodes were named.
    8 SPEC_NODES = "SPEC_NODES",
    /// For licenses: jobs in it may use any node.
    9 ANY_NODES = "ANY_NODES",
    /// Nodes that fail are not replaced.
    10 STATIC = "STATIC",
    /// All nodes of the partition, whatever they are.
    11 PART_NODES = "PART_NODES",
    /// The lowest cores of each node.
    12 FIRST_CORES = "FIRST_CORES",
    /// Begins at the same distance from now, always.
    13 TIME_FLOAT = "TIME_FLOAT",
    /// Nodes that fail or get jobs are replaced.
    14 REPLACE = "REPLACE",
    /// Nodes that fail are replaced.
    15 REPLACE_DOWN = "REPLACE_DOWN",
    /// Goes when no job has used it for a time.
    16 PURGE_COMP = "PURGE_COMP",
    /// Jobs that asked for it run outside of it when it is over.
    17 NO_HOLD_JOBS_AFTER = "NO_HOLD_JOBS_AFTER_END",
    /// Its jobs are bound neither to its nodes nor to its times.
    18 FLEX = "FLEX",
    /// Jobs that may use it do so without asking for it.
    19 MAGNETIC = "MAGNETIC",
}

impl Flags {
    /// Flags that a reservation keeps once it has them (scontrol(1): removal is not supported).
    pub const LASTING: Flags = Flags::FIRST_CORES
        .with(Flags::NO_HOLD_JOBS_AFTER)
        .with(Flags::OVERLAP)
        .with(Flags::REPLACE)
        .with(Flags::REPLACE_DOWN)
        .with(Flags::TIME_FLOAT);

    fn check(&self) -> Result<(), Fault> {
        let known = Flags::ALL.iter().fold(0, |all, (flag, _)| all | flag.0);
        match self.0 & !known {
            0 => Ok(()),
            _ => Err(Fault::Malformed("has a flag that no reservation has")),
        }
    }

    /// Whether any of `other` is set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// With `other` too.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Without `other`.
    #[must_use]
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// Repetitions of a reservation that are looked at when somebody asks about a far future.
const OCCURRENCES_MAX: usize = 400;

impl Reservation {
    /// Whether it comes back after its end.
    pub fn repeats(&self) -> bool {
        let every = Flags::HOURLY
            .with(Flags::DAILY)
            .with(Flags::WEEKDAY)
            .with(Flags::WEEKEND)
            .with(Flags::WEEKLY);
        self.flags.has(every)
    }

    /// Begin and end of the occurrence after one that begins at `start`.
    fn step_s(&self, start: Timestamp) -> Option<i64> {
        let day = weekday(start, self.utc_offset_s);
        Some(if self.flags.has(Flags::HOURLY) {
            3600
        } else if self.flags.has(Flags::DAILY) {
            DAY_S
        } else if self.flags.has(Flags::WEEKDAY) {
            DAY_S
                * match day {
                    5 => 3,
                    6 => 2,
                    _ => 1,
                }
        } else if self.flags.has(Flags::WEEKEND) {
            DAY_S * if day == 6 { 1 } else { i64::from(6 - day) }
        } else if self.flags.has(Flags::WEEKLY) {
            7 * DAY_S
        } else {
            return None;
        })
    }

    /// Begin and end of the next occurrence, if it repeats.
    pub fn next_occurrence(&self) -> Option<(Timestamp, Timestamp)> {
        let step = self.step_s(self.start)?.saturating_mul(1000);
        let moved = |t: Timestamp| Timestamp(t.0.saturating_add(step));
        Some((moved(self.start), moved(self.end)))
    }

    /// Occurrences from this one on. A floating one begins as far from `now` as it was asked for.
    pub fn occurrences(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> + '_ {
        let length = self.end.0.saturating_sub(self.start.0);
        let first = match self.float_s {
            Some(s) => now.plus_s(s).min(self.end),
            None => self.start,
        };
        let mut at = Some(first);
        std::iter::from_fn(move || {
            let start = at?;
            at = self
                .step_s(start)
                .map(|s| Timestamp(start.0.saturating_add(s.saturating_mul(1000))));
            let end = match self.float_s {
                Some(_) => self.end,
                None => Timestamp(start.0.saturating_add(length)),
            };
            Some((start, end))
        })
        .take(OCCURRENCES_MAX)
    }

    /// Whether it has its resources at some time from `from` until `to`. A floating one has gone on by then.
    pub fn meets(&self, now: Timestamp, from: Timestamp, to: Timestamp) -> bool {
        let seen = match self.float_s {
            Some(_) => now.max(from),
            None => now,
        };
        self.occurrences(seen)
            .take_while(|(start, _)| *start < to)
            .any(|(_, end)| end > from)
    }

    /// When its state changes next by itself: begin, end.
    pub fn next_change(&self) -> Timestamp {
        if self.active || self.float_s.is_some() {
            let purge = self
                .idle_since
                .zip(self.purge_s)
                .filter(|_| self.active)
                .map(|(since, s)| since.plus_s(u64::from(s)));
            purge.map_or(self.end, |at| at.min(self.end))
        } else {
            self.start
        }
    }

    /// Whether jobs of that user, group and account may use it. An account that is listed has those under it with it.
    pub fn admits(&self, all: &Accounts, user: &str, groups: &[&str], account: &str) -> bool {
        let listed = |group: &&str| self.groups.iter().any(|name| name == group);
        let group_ok = self.groups.is_empty() || groups.iter().any(listed);
        group_ok && self.still_admits(all, user, account)
    }

    /// Whether a job of that user and account that has asked for it and was let in may have it. All groups of a user are known
    /// only then.
    pub fn still_admits(&self, all: &Accounts, user: &str, account: &str) -> bool {
        let user_listed = || self.users.iter().any(|name| name == user);
        let user_ok = self.users.is_empty() || user_listed() != self.users_denied;
        let account_listed = || all.lists_account_or_above(&self.accounts, account);
        let account_ok = self.accounts.is_empty() || account_listed() != self.accounts_denied;
        user_ok && account_ok
    }

    /// Takes over nodes, whole.
    pub fn set_nodes<'a>(&mut self, nodes: impl Iterator<Item = &'a Node>) {
        let whole = |node: &Node| ReservedNode {
            node: node.idx,
            name: node.config.name.clone(),
            cpus: None,
        };
        self.nodes = nodes.map(whole).collect();
        let names: Vec<&str> = self.nodes.iter().map(|n| n.name.as_str()).collect();
        self.hostlist = hostlist::compress(&names);
    }

    /// Its CPUs of a node with this number of CPUs.
    pub fn cpus_on(&self, node: NodeIdx, cpus: u32) -> Option<CpuSet> {
        let entry = self.nodes.iter().find(|n| n.node == node)?;
        Some(entry.cpus.clone().unwrap_or_else(|| CpuSet::first(cpus)))
    }

    /// Whether it may have what others reserved.
    pub fn overlaps_others(&self) -> bool {
        self.flags.has(Flags::MAINT.with(Flags::OVERLAP))
    }

    /// Whether jobs may begin in it.
    pub fn is_open(&self) -> bool {
        self.active || self.flags.has(Flags::FLEX)
    }

    /// Whether its nodes are chosen by the system and may be changed by it.
    pub fn is_replaceable(&self) -> bool {
        let fixed = Flags::SPEC_NODES
            .with(Flags::STATIC)
            .with(Flags::PART_NODES)
            .with(Flags::ANY_NODES);
        self.node_count.is_some() && !self.by_core && !self.flags.has(fixed)
    }
}

/// Day of the week, 0 is Sunday.
fn weekday(at: Timestamp, utc_offset_s: i32) -> u8 {
    let days = (at.unix_s() + i64::from(utc_offset_s)).div_euclid(DAY_S);
    u8::try_from((days + 4).rem_euclid(7)).expect("a remainder of 7 is small")
}

/// All reservations, and which are on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservations {
    by_name: BTreeMap<String, Reservation>,
    /// Names by node. Only looked up, never iterated.
    on_node: HashMap<NodeIdx, Vec<String>>,
}

impl Reservations {
    /// The reservation of that name.
    pub fn get(&self, name: &str) -> Option<&Reservation> {
        self.by_name.get(name)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Reservation> {
        self.by_name.values()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Reservations that have a part of a node, by name.
    pub fn on_node(&self, node: NodeIdx) -> impl Iterator<Item = &Reservation> {
        let names = self.on_node.get(&node).map_or(&[][..], Vec::as_slice);
        names.iter().filter_map(|name| self.by_name.get(name))
    }

    /// Whether one has a node now, with true one for maintenance.
    pub fn holds_now(&self, node: NodeIdx) -> Option<bool> {
        let now = self.on_node(node).filter(|r| r.active);
        now.map(|r| r.flags.has(Flags::MAINT)).reduce(|a, b| a | b)
    }

    /// Adds a reservation, or puts it in place of the one of that name.
    pub fn insert(&mut self, reservation: Reservation) {
        self.remove(&reservation.name);
        for entry in &reservation.nodes {
            let names = self.on_node.entry(entry.node).or_default();
            names.push(reservation.name.clone());
            names.sort_unstable();
        }
        self.by_name.insert(reservation.name.clone(), reservation);
    }

    /// Takes out the reservation of that name.
    pub fn remove(&mut self, name: &str) -> Option<Reservation> {
        let gone = self.by_name.remove(name)?;
        for entry in &gone.nodes {
            if let Some(names) = self.on_node.get_mut(&entry.node) {
                names.retain(|n| n != name);
                if names.is_empty() {
                    self.on_node.remove(&entry.node);
                }
            }
        }
        Some(gone)
    }

    /// The reservation of that name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Reservation> {
        self.by_name.get_mut(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{Account, ROOT};

    /// Friday 2026-11-20 10:00 UTC.
    const FRIDAY: i64 = 1_795_168_800;

    fn starts(flags: Flags, from_s: i64) -> Vec<i64> {
        let reservation = Reservation {
            start: Timestamp::from_unix_s(from_s),
            end: Timestamp::from_unix_s(from_s + 3600),
            flags,
            ..Reservation::default()
        };
        let all = reservation.occurrences(Timestamp::default()).take(4);
        all.map(|(start, _)| (start.unix_s() - from_s) / 3600)
            .collect()
    }

    #[test]
    fn repetition() {
        assert_eq!(starts(Flags::default(), FRIDAY), [0]);
        assert_eq!(starts(Flags::HOURLY, FRIDAY), [0, 1, 2, 3]);
        assert_eq!(starts(Flags::DAILY, FRIDAY), [0, 24, 48, 72]);
        assert_eq!(starts(Flags::WEEKLY, FRIDAY), [0, 168, 336, 504]);
        // Friday, then Monday, Tuesday, Wednesday.
        assert_eq!(starts(Flags::WEEKDAY, FRIDAY), [0, 72, 96, 120]);
        // Saturday, Sunday, Saturday, Sunday.
        assert_eq!(
            starts(Flags::WEEKEND, FRIDAY + 24 * 3600),
            [0, 24, 168, 192]
        );
    }

    #[test]
    fn overlaps() {
        let reservation = Reservation {
            start: Timestamp::from_unix_s(1000),
            end: Timestamp::from_unix_s(2000),
            flags: Flags::DAILY,
            ..Reservation::default()
        };
        let meets = |from: i64, to: i64| {
            let at = Timestamp::from_unix_s;
            reservation.meets(at(0), at(from), at(to))
        };
        assert!(!meets(0, 1000) && meets(0, 1001) && meets(1999, 3000) && !meets(2000, 80_000));
        assert!(meets(2000, 88_000), "tomorrow's");
        let floating = Reservation {
            float_s: Some(600),
            end: Timestamp::from_unix_s(100_000),
            flags: Flags::TIME_FLOAT,
            ..reservation.clone()
        };
        let now = Timestamp::from_unix_s(5000);
        assert!(
            !floating.meets(now, now, now.plus_s(600)) && floating.meets(now, now, now.plus_s(601))
        );
        let from = now.plus_s(500);
        let meets_by = |s: u64| floating.meets(now, from, from.plus_s(s));
        assert!(!meets_by(600) && meets_by(601), "it floats until then");
        assert!(!floating.meets(now, floating.end, Timestamp(i64::MAX)));
    }

    #[test]
    fn who_may() {
        let none = Accounts::default();
        let open = Reservation {
            users: vec!["ann".into()],
            accounts: vec!["bio".into()],
            ..Reservation::default()
        };
        assert!(open.admits(&none, "ann", &[], "bio"));
        assert!(!open.admits(&none, "ann", &[], "chem") && !open.admits(&none, "bob", &[], "bio"));
        let but = Reservation {
            users: vec!["ann".into()],
            users_denied: true,
            ..Reservation::default()
        };
        assert!(!but.admits(&none, "ann", &[], "x") && but.admits(&none, "bob", &[], "x"));
        let groups = Reservation {
            groups: vec!["staff".into()],
            ..Reservation::default()
        };
        assert!(
            groups.admits(&none, "bob", &["x", "staff"], "x")
                && !groups.admits(&none, "bob", &["x"], "x")
        );
    }

    #[test]
    fn accounts_come_with_those_under_them() {
        let account = |parent: &str| Account {
            parent: parent.into(),
            ..Account::default()
        };
        let all = Accounts {
            accounts: [
                ("bio".to_owned(), account(ROOT)),
                ("bio_lab".to_owned(), account("bio")),
                ("Old".to_owned(), account(ROOT)),
            ]
            .into(),
            ..Accounts::default()
        };
        let admits = |name: &str, denied: bool, account: &str| {
            let reservation = Reservation {
                accounts: vec![name.into()],
                accounts_denied: denied,
                ..Reservation::default()
            };
            reservation.admits(&all, "ann", &[], account)
        };
        for name in ["bio", "Bio"] {
            assert!(admits(name, false, "bio_lab") && !admits(name, true, "bio_lab"));
            assert!(!admits(name, false, "chem") && admits(name, true, "chem"));
        }
        assert!(!admits("bio_lab", false, "bio") && !admits(ROOT, false, "bio"));
        // An account that is known by such a name is no other.
        assert!(!admits("Old", false, "old") && admits("Old", false, "Old"));
    }
}
