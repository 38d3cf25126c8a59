//! `sacctmgr show event`: when nodes were out of service. `sacctmgr show problem`: accounts and users that cannot be
//! used as they are.

use super::begins;
use super::session::Invocation;
use crate::listing::context::Ctx;
use crate::listing::table::{Cell, Column, Table};
use crate::listing::{Failure, query, text, time_input};
use jiff::Zoned;
use muster_model::accounts::Accounts;
use muster_model::node_state::ServiceState;
use muster_model::time::Timestamp;
use muster_proto::acct::{NodeEvent, NodeEventQuery};

fn error(text: impl std::fmt::Display) -> Failure {
    Failure::new(format!("sacctmgr: error: {text}"))
}

/// Name in `format=`, its header, its width.
type EventColumn = (&'static str, &'static str, usize);

const EVENT: &[EventColumn] = &[
    ("Cluster", "Cluster", 10),
    ("ClusterNodes", "Cluster Nodes", 20),
    ("Duration", "Duration", 13),
    ("TimeEnd", "TimeEnd", 19),
    ("EventRaw", "EventRaw", 8),
    ("Event", "Event", 7),
    ("NodeName", "NodeName", 15),
    ("Reason", "Reason", 30),
    ("TimeStart", "TimeStart", 19),
    ("StateRaw", "StateRaw", 8),
    ("State", "State", 6),
    ("TRES", "TRES", 20),
    ("User", "User", 10),
];
const USUAL: &str = "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User";

/// Conditions of `sacctmgr show event`.
#[derive(Debug, Default)]
struct EventConditions {
    query: NodeEventQuery,
    format: Option<String>,
    states: Vec<String>,
    reasons: Vec<String>,
    users: Vec<u32>,
    open: bool,
    clusters: Option<Vec<String>>,
    /// The fewest and the most CPUs of nodes.
    cpus: (Option<u32>, Option<u32>),
    all_time: bool,
    /// Events of the cluster as a whole, of which none are kept.
    of_cluster: bool,
}

impl EventConditions {
    fn read(words: &[String], now: &Zoned) -> Result<EventConditions, Failure> {
        let mut conditions = EventConditions::default();
        let list = |value: &str| -> Vec<String> {
            let words = value.split(',').filter(|w| !w.is_empty());
            words.map(str::to_owned).collect()
        };
        for word in words.iter().filter(|w| !w.eq_ignore_ascii_case("where")) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let value = value.trim_matches(['"', '\'']);
            let lower = key.to_ascii_lowercase();
            let time = || {
                let at = time_input::parse(value, now);
                at.map(Some)
                    .ok_or_else(|| error(format!("Invalid time specification: {value}")))
            };
            let is = |name: &str| begins(name, &lower);
            match lower.as_str() {
                "all_clusters" => {}
                "all_time" => conditions.all_time = true,
                _ if is("nodes") => {
                    conditions.query.nodes = muster_model::hostlist::parse(value)
                        .map_err(|e| error(format!("{word}: {e}")))?;
                }
                _ if is("starttime") => conditions.query.start = time()?,
                _ if is("endtime") => conditions.query.end = time()?,
                _ if is("states") => conditions.states = list(value),
                _ if is("reasons") => conditions.reasons = list(value),
                _ if is("users") => {
                    let uids = list(value).into_iter().map(|name| {
                        let known = crate::people::user_named(&name).map(|u| u.uid.as_raw());
                        known.or_else(|| name.parse().ok()).ok_or(name)
                    });
                    let uids: Result<Vec<u32>, String> = uids.collect();
                    conditions.users = uids.map_err(|name| error(format!("no user {name}")))?;
                }
                _ if is("events") => conditions.of_cluster = begins("cluster", value),
                _ if is("condflags") => conditions.open = begins("open", value),
                _ if is("clusters") => conditions.clusters = Some(list(value)),
                _ if is("mincpus") => conditions.cpus.0 = value.parse().ok(),
                _ if is("maxcpus") => conditions.cpus.1 = value.parse().ok(),
                _ if is("format") => conditions.format = Some(value.to_owned()),
                _ => return Err(Failure::new(format!(" Unknown condition: {word}"))),
            }
        }
        if !conditions.states.is_empty() && conditions.query.start.is_none() {
            // A request for states alone is about the present ones.
            conditions.open = true;
        }
        if conditions.query.start.is_none() && !conditions.all_time && !conditions.open {
            let yesterday = now.date().yesterday().ok();
            let midnight = yesterday.and_then(|day| day.to_zoned(now.time_zone().clone()).ok());
            conditions.query.start =
                midnight.map(|at| Timestamp::from_unix_s(at.timestamp().as_second()));
        }
        Ok(conditions)
    }

    fn fits(&self, event: &NodeEvent) -> bool {
        let state = state(event);
        let of = |list: &[String], what: &str| {
            list.is_empty() || list.iter().any(|w| what.eq_ignore_ascii_case(w))
        };
        (!self.open || event.end.is_none())
            && (self.states.is_empty()
                || self
                    .states
                    .iter()
                    .any(|s| begins(state, s) || begins(s, state)))
            && of(&self.reasons, &event.reason)
            && (self.users.is_empty() || self.users.contains(&event.uid))
            && !self.of_cluster
    }
}

fn state(event: &NodeEvent) -> &'static str {
    match event.service() {
        ServiceState { down: true, .. } => "DOWN",
        ServiceState { drain: true, .. } => "DRAIN",
        _ => "FAIL",
    }
}

fn columns(
    format: &str,
    known: &'static [EventColumn],
) -> Result<Vec<(&'static str, Column)>, Failure> {
    let words = format.split(',').map(str::trim).filter(|w| !w.is_empty());
    let column = |word: &str| {
        let (name, width) = word.split_once('%').unwrap_or((word, ""));
        // The times go by short names, too.
        let name = match name.to_ascii_lowercase().as_str() {
            "start" => "TimeStart",
            "end" => "TimeEnd",
            _ => name,
        };
        let exact = known
            .iter()
            .find(|(own, ..)| own.eq_ignore_ascii_case(name));
        let found = exact.or_else(|| known.iter().find(|(own, ..)| begins(own, name)));
        let Some((own, header, usual)) = found else {
            return Err(Failure::new(format!("Unknown field '{name}'")));
        };
        let mut column = Column::new(*header, *usual);
        column.left = *own == "NodeName" || width.starts_with('-');
        if let Ok(width) = width.trim_start_matches('-').parse() {
            column.width = width;
        }
        Ok((*own, column))
    };
    words.map(column).collect()
}

/// Shows when nodes were out of service.
pub(super) fn show(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = EventConditions::read(words, &Zoned::now())?;
    let columns = columns(conditions.format.as_deref().unwrap_or(USUAL), EVENT)?;
    let client = session.ledger.client()?;
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    query::cluster(client, &mut ctx).map_err(error)?;
    let events = query::node_events(client, conditions.query.clone()).map_err(error)?;
    let own = |list: &Vec<String>| list.contains(&ctx.cluster);
    let is_own = conditions.clusters.as_ref().is_none_or(own);
    let has_cpus = |event: &NodeEvent| {
        let node = ctx.nodes.iter().find(|node| node.config.name == event.node);
        let cpus = node.map_or(0, |node| node.config.cpus);
        let (least, most) = conditions.cpus;
        least.is_none_or(|least| cpus >= least) && most.is_none_or(|most| cpus <= most)
    };
    let events = events
        .iter()
        .filter(|e| is_own && conditions.fits(e) && has_cpus(e));
    let rows = events.map(|event| {
        columns
            .iter()
            .map(|(name, _)| Cell::Text(cell(name, event, &ctx)))
            .collect()
    });
    let table = Table {
        title: Vec::new(),
        rows: rows.collect(),
        columns: columns.iter().map(|(_, column)| column.clone()).collect(),
    };
    session.console.say(&table.render(layout(session.style)));
    Ok(())
}

fn layout(style: super::fields::ListingStyle) -> crate::listing::table::Style {
    crate::listing::table::Style {
        bare: style.no_header,
        bars: style.bars,
    }
}

fn cell(name: &str, event: &NodeEvent, ctx: &Ctx) -> String {
    let time = |at: Option<Timestamp>| {
        let mut out = String::new();
        ctx.time_or(&mut out, at, "Unknown");
        out
    };
    let raw = || {
        let ServiceState { down, drain, fail } = event.service();
        2 * u32::from(down) + 512 * u32::from(drain) + 8192 * u32::from(fail)
    };
    match name {
        "Cluster" => ctx.cluster.clone(),
        "NodeName" => event.node.clone(),
        "TimeStart" => time(Some(event.start)),
        "TimeEnd" => time(event.end),
        "Duration" => {
            let mut out = String::new();
            let until = event.end.unwrap_or(ctx.now);
            text::long_duration(&mut out, until.unix_s() - event.start.unix_s());
            out
        }
        "Event" => "Node".to_owned(),
        "EventRaw" => "2".to_owned(),
        "State" => state(event).to_owned(),
        "StateRaw" => raw().to_string(),
        "Reason" => event.reason.clone(),
        "User" => format!("{}({})", ctx.user_name(event.uid), event.uid),
        "TRES" => {
            let node = ctx.nodes.iter().find(|n| n.config.name == event.node);
            node.map_or(String::new(), |n| {
                let (cpus, mib) = (n.config.cpus, n.config.memory_mib);
                format!("billing={cpus},cpu={cpus},mem={mib}M")
            })
        }
        _ => String::new(),
    }
}

/// Shows accounts and users that cannot be used as they are.
pub(super) fn problems(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let mut format = "Cluster,Account,User,Problem".to_owned();
    for text in words {
        let word = super::words::Word::new(text);
        match word.key.as_deref() {
            Some(key) if begins("format", key) => format.clone_from(&word.value),
            _ => {}
        }
    }
    let columns = super::fields::columns(&format, false)?;
    let books = session.book()?.of_all_clusters();
    let mut rows = Vec::new();
    for book in &books {
        let problems = found(&book.all, |user| session.ledger.is_user(user));
        rows.extend(problems.into_iter().map(|(account, user, what)| {
            let mut row = super::row::ListingRow::default();
            if books.len() > 1 {
                row = row.with("Cluster", book.cluster.clone());
            }
            let row = row.with("Account", account).with("User", user);
            row.with("Problem", what).line(&columns)
        }));
    }
    session.print(&columns, &rows);
    Ok(())
}

fn found(all: &Accounts, exists: impl Fn(&str) -> bool) -> Vec<(String, String, &'static str)> {
    let mut out = Vec::new();
    for account in all.accounts.keys() {
        let has_users = all.users.values().any(|u| u.is_in(account));
        let has_accounts = all.accounts.values().any(|a| a.parent == *account);
        if !has_users && !has_accounts {
            out.push((account.clone(), String::new(), "Account has no users"));
        }
    }
    for user in all.users.values() {
        if !user.has_associations() {
            out.push((String::new(), user.name.clone(), "User has no Associations"));
        }
        if !exists(&user.name) {
            let account = user.default_account.clone();
            out.push((account, user.name.clone(), "User does not have a uid"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(node: &str, down: bool, end: Option<i64>) -> NodeEvent {
        NodeEvent {
            node: node.to_owned(),
            start: Timestamp::from_unix_s(1_795_000_000),
            end: end.map(Timestamp::from_unix_s),
            down,
            drain: !down,
            fail: false,
            reason: "x".to_owned(),
            uid: 0,
        }
    }

    fn conditions(words: &str) -> EventConditions {
        let now = jiff::civil::date(2026, 11, 22).at(10, 0, 0, 0);
        let now = now.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        EventConditions::read(&words, &now).unwrap()
    }

    #[test]
    fn events_are_chosen() {
        let (gone, now) = (
            event("n1", true, Some(1_795_000_060)),
            event("n2", false, None),
        );
        let fits = |words: &str| (conditions(words).fits(&gone), conditions(words).fits(&now));
        assert_eq!(fits(""), (true, true));
        assert_eq!(fits("states=drain"), (false, true));
        assert_eq!(fits("states=down start=2026-11-01"), (true, false));
        assert_eq!(fits("condflags=open"), (false, true));
        assert_eq!(fits("reason=y"), (false, false));
        assert_eq!(fits("event=cluster"), (false, false));
        let yesterday = conditions("").query.start.map(Timestamp::unix_s);
        assert_eq!(yesterday, Some(1_795_219_200));
        assert_eq!(conditions("all_time").query.start, None);
    }

    #[test]
    fn what_cannot_be_used_is_found() {
        let mut all = Accounts::default();
        let account = |name: &str, parent: &str| muster_model::accounts::Account {
            name: name.into(),
            parent: parent.into(),
            ..Default::default()
        };
        for (name, parent) in [("a", "root"), ("b", "a"), ("c", "root")] {
            all.accounts.insert(name.into(), account(name, parent));
        }
        let user = muster_model::accounts::User {
            name: "u".into(),
            default_account: "b".into(),
            accounts: [("b".to_owned(), Default::default())].into(),
            ..Default::default()
        };
        all.users.insert("u".into(), user);
        assert_eq!(
            found(&all, |_| false),
            [
                ("c".into(), String::new(), "Account has no users"),
                ("b".into(), "u".into(), "User does not have a uid"),
            ]
        );
    }
}
