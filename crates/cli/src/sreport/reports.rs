//! The reports themselves: sums over rows of accounting, and which of them stand in which column.

use super::measure::{Period, TRES, ran_s, used_ms};
use super::nodes::ReportNode;
use super::used::UsageAnswer;
use super::{ReportRequest, Settings};
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::table::{Cell, Column, Table};
use crate::listing::{Failure, query};
use muster_model::account_limits::TresAmount;
use muster_model::accounts::{Accounts, ROOT};
use muster_model::private_data::PrivateData;
use muster_model::refusal::RefusalCode;
use muster_model::reservation::Flags;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, NodeOutage, ReservationRecord, ReservationTimesQuery, UsageRow};
use std::collections::{BTreeMap, BTreeSet};

/// The data of reports.
pub(super) struct ReportData {
    pub(super) cluster: String,
    pub(super) period: Period,
    pub(super) now: Timestamp,
    /// Jobs, for reports on jobs and reservations.
    pub(super) jobs: Vec<AcctJob>,
    /// Use, for reports on clusters and users.
    pub(super) usage: Vec<UsageRow>,
    pub(super) accounts: Accounts,
    /// Times of reservations, of the report on them.
    pub(super) reservations: Vec<ReservationRecord>,
    pub(super) nodes: Vec<ReportNode>,
    /// Licenses of the cluster that are counted, as trackable resources.
    pub(super) licenses: Vec<TresAmount>,
    pub(super) outages: Vec<NodeOutage>,
    /// Since when the cluster exists, as far as that is known.
    pub(super) since: Option<Timestamp>,
    /// Nothing of it was withheld because of `PrivateData`.
    pub(super) whole: bool,
}

impl ReportData {
    /// Asks for all of it.
    pub(super) fn ask(
        client: &mut Client,
        kind: &str,
        request: &ReportRequest,
        period: Period,
    ) -> Result<ReportData, ConnectError> {
        let mut ctx = Ctx::new("");
        query::cluster(client, &mut ctx)?;
        let accounts = query::accounts(client)?;
        let mut reservations = Vec::new();
        let used = match kind {
            "reservation" => {
                let window = ReservationTimesQuery {
                    start: Some(period.start),
                    end: Some(period.end),
                };
                reservations = query::reservation_times(client, window)?;
                reservations.retain(|record| wanted(&request.names, &record.name));
                UsageAnswer::ask_rows(client, request, whole_times(&reservations, period))?
            }
            "cluster" | "user" if request.is_of_sums() => UsageAnswer::ask(client, period)?,
            _ => UsageAnswer::ask_rows(client, request, period)?,
        };
        let licenses = ctx
            .config
            .as_ref()
            .map_or_else(Vec::new, |config| config.license_tres(&config.licenses));
        let nodes = ctx.nodes.iter().map(|node| ReportNode::new(&node.config));
        Ok(ReportData {
            cluster: accounts.cluster.clone(),
            period,
            now: used.part.now,
            jobs: used.jobs,
            usage: used.part.rows,
            accounts: accounts.accounts,
            reservations,
            nodes: nodes.collect(),
            licenses,
            whole: used.part.outages.is_some()
                && !used.part.withheld
                && !ctx.withheld.has(PrivateData::NODES),
            outages: used.part.outages.unwrap_or_default(),
            since: used.part.since,
        })
    }

    /// Seconds of the period that are over and in which the cluster existed.
    fn so_far_s(&self) -> f64 {
        let since = self.since.unwrap_or(self.period.start);
        self.period.overlap(since, Some(self.now))
    }

    /// Whether the cluster existed at any time of the period.
    fn existed(&self) -> bool {
        self.since.is_none_or(|since| since < self.period.end)
    }

    /// Amount of a trackable resource that the cluster has.
    fn total(&self, tres: &str) -> f64 {
        let licenses = self.licenses.iter().find(|of| of.name == tres);
        let of_nodes: f64 = self.nodes.iter().map(|node| node.amount(tres)).sum();
        licenses.map_or(of_nodes, |of| of.amount as f64)
    }

    /// An account and those above it, the root last.
    pub(super) fn line_of<'a>(&'a self, account: &'a str) -> Vec<&'a str> {
        let mut line = Vec::new();
        let mut name = account;
        while name != ROOT && !line.contains(&name) {
            line.push(name);
            name = self
                .accounts
                .accounts
                .get(name)
                .map_or(ROOT, |a| a.parent.as_str());
        }
        line.push(ROOT);
        line
    }
}

/// The period and all of the reservations, whose times are not cut.
fn whole_times(reservations: &[ReservationRecord], period: Period) -> Period {
    let starts = reservations.iter().map(|record| record.start);
    let ends = reservations.iter().map(|record| record.end);
    Period {
        start: starts.chain([period.start]).min().unwrap_or(period.start),
        end: ends.chain([period.end]).max().unwrap_or(period.end),
    }
}

/// The trackable resources of a report, and whether a column says which.
fn tres_of(settings: &Settings, facts: &ReportData) -> Result<(Vec<String>, bool), Failure> {
    let Some(asked) = &settings.tres else {
        return Ok((vec!["cpu".to_owned()], false));
    };
    let used = facts.usage.iter().flat_map(|row| &row.devices);
    let used = used.map(|(name, _)| name.clone());
    // Devices that nobody has used yet are reported, too.
    let there = facts.nodes.iter().flat_map(|node| node.devices.keys());
    let mut known: Vec<String> = TRES.iter().map(|t| (*t).to_owned()).collect();
    let licenses = facts.licenses.iter().map(|of| of.name.clone());
    let all = used.chain(there.cloned()).chain(licenses);
    known.extend(all.collect::<BTreeSet<String>>());
    if asked.iter().any(|t| t.eq_ignore_ascii_case("ALL")) {
        return Ok((known, true));
    }
    let chosen: Vec<String> = asked
        .iter()
        .filter(|t| known.contains(t))
        .cloned()
        .collect();
    match chosen.is_empty() {
        true => Err(Failure::new(format!(
            "sreport: fatal: No valid TRES given; these are known: {}",
            known.join(",")
        ))),
        false => Ok((chosen, true)),
    }
}

/// A line before it is laid out: its values by the names of columns.
type ReportLine = BTreeMap<&'static str, Cell>;

/// Name of a column in `Format=`, its header, its width.
type ColumnDefinition = (&'static str, &'static str, usize);

const USE: &[ColumnDefinition] = &[
    ("Cluster", "Cluster", 9),
    ("Account", "Account", 15),
    ("Login", "Login", 9),
    ("Proper", "Proper Name", 15),
    ("WCKey", "WCKey", 15),
    ("TresName", "TRES Name", 14),
    ("TresCount", "TRES Count", 10),
    ("Used", "Used", 8),
    ("Energy", "Energy", 8),
];
const UTILIZATION: &[ColumnDefinition] = &[
    ("Cluster", "Cluster", 9),
    ("TresName", "TRES Name", 14),
    ("TresCount", "TRES Count", 10),
    ("Allocated", "Allocated", 8),
    ("Down", "Down", 8),
    ("PlannedDown", "PLND Down", 8),
    ("Idle", "Idle", 8),
    ("Planned", "Planned", 8),
    ("Reported", "Reported", 8),
    ("OverCommitted", "Over Comm", 8),
];
const RESERVATION: &[ColumnDefinition] = &[
    ("Cluster", "Cluster", 9),
    ("Name", "Name", 9),
    ("Start", "Start", 19),
    ("End", "End", 19),
    ("TresName", "TRES Name", 14),
    ("Allocated", "Allocated", 20),
    ("Idle", "Idle", 20),
    ("Nodes", "Nodes", 15),
    ("Flags", "Flags", 20),
    ("Associations", "Associations", 15),
    ("TotalTime", "TotalTime", 9),
    ("TresCount", "TRES Count", 10),
    ("TresTime", "TRES Time", 20),
];
/// Columns whose width grows where a share stands beside each amount.
const AMOUNTS: [&str; 9] = [
    "Used",
    "Energy",
    "Allocated",
    "Down",
    "PlannedDown",
    "Idle",
    "Planned",
    "Reported",
    "OverCommitted",
];
/// By how much.
const SHARE_WIDTH: usize = 9;

/// The columns of a report, chosen from those that it knows.
fn columns(
    known: &'static [ColumnDefinition],
    usual: &[&'static str],
    request: &ReportRequest,
    settings: &Settings,
) -> Result<Vec<(&'static str, Column)>, Failure> {
    let named: Vec<String> = match &request.format {
        Some(list) => list.clone(),
        None => usual.iter().map(|w| (*w).to_owned()).collect(),
    };
    let column = |word: &String| {
        let (name, width) = word.split_once('%').unwrap_or((word, ""));
        let lower = name.to_ascii_lowercase();
        let is_plural = |own: &str| {
            let one = lower.strip_suffix('s');
            one.is_some_and(|one| own.eq_ignore_ascii_case(one))
        };
        let exact = known
            .iter()
            .find(|(own, ..)| own.eq_ignore_ascii_case(name) || is_plural(own));
        let begins = || {
            known
                .iter()
                .find(|(own, ..)| own.to_ascii_lowercase().starts_with(&lower))
        };
        let Some((own, header, usual)) = exact.or_else(begins) else {
            let names: Vec<&str> = known.iter().map(|(own, ..)| *own).collect();
            return Err(Failure::new(format!(
                "sreport: error: Unknown field '{name}'; these exist: {}",
                names.join(", ")
            )));
        };
        let wide = settings.time.is_wide() && AMOUNTS.contains(own);
        let mut column = Column::new(*header, usual + if wide { SHARE_WIDTH } else { 0 });
        column.left = width.starts_with('-');
        if let Ok(width) = width.trim_start_matches('-').parse() {
            column.width = width;
        }
        Ok((*own, column))
    };
    named.iter().map(column).collect()
}

fn lay_out(
    columns: Vec<(&'static str, Column)>,
    lines: Vec<ReportLine>,
    title: Vec<String>,
) -> Table {
    let rows = lines.into_iter().map(|mut line| {
        let cell = |(name, _): &(&'static str, Column)| {
            line.remove(name).unwrap_or(Cell::Text(String::new()))
        };
        columns.iter().map(cell).collect()
    });
    Table {
        title,
        rows: rows.collect(),
        columns: columns.into_iter().map(|(_, column)| column).collect(),
    }
}

fn text(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

/// Makes a report.
pub(super) fn make(
    kind: &str,
    report: &str,
    facts: &ReportData,
    request: &ReportRequest,
    settings: &Settings,
) -> Result<Table, Failure> {
    match (kind, report) {
        ("cluster", "Utilization") if !facts.whole => {
            let refusal = RefusalCode::AccessDenied.text();
            Err(Failure::new(format!("sreport: error: {refusal}")))
        }
        ("cluster", "Utilization") => utilization(facts, request, settings),
        ("cluster", "AccountUtilizationByUser") => by_account(facts, request, settings),
        ("cluster", "UserUtilizationByAccount") => by_user(facts, request, settings, None),
        ("cluster", _) => by_wckey(facts, request, settings, report.starts_with("WCKey")),
        ("user", _) => by_user(facts, request, settings, Some(request.top.unwrap_or(10))),
        ("job", _) => super::sizes::make(report, facts, request, settings),
        _ => reservations(facts, request, settings),
    }
}

/// `Cluster Utilization 2026-11-22T09:00:00 - 2026-11-22T09:59:59`
pub(super) fn heading(what: &str, facts: &ReportData, length: bool) -> String {
    let ctx = Ctx::new("");
    let mut line = format!("{what} ");
    ctx.time(&mut line, facts.period.start);
    line.push_str(" - ");
    ctx.time(
        &mut line,
        Timestamp::from_unix_s(facts.period.end.unix_s() - 1),
    );
    if length {
        line.push_str(&format!(" ({:.0} secs)", facts.period.seconds()));
    }
    line
}

fn units(settings: &Settings) -> String {
    let of = if settings.tres.is_some() {
        "TRES"
    } else {
        "CPU"
    };
    match settings.time.is_percent() {
        true => format!("Usage reported in {}", settings.time.name()),
        false => format!("Usage reported in {of} {}", settings.time.name()),
    }
}

fn utilization(
    facts: &ReportData,
    request: &ReportRequest,
    settings: &Settings,
) -> Result<Table, Failure> {
    let (tres, named) = tres_of(settings, facts)?;
    let all = settings
        .tres
        .iter()
        .flatten()
        .any(|t| t.eq_ignore_ascii_case("ALL"));
    if !all && tres.iter().any(|t| t == "node") {
        return Err(Failure::new(
            "sreport: fatal: use of nodes is not reported: several jobs may be on one; report on TRES cpu",
        ));
    }
    let usual: Vec<&'static str> = ["Cluster"]
        .into_iter()
        .chain(named.then_some("TresName"))
        .chain([
            "Allocated",
            "Down",
            "PlannedDown",
            "Idle",
            "Planned",
            "Reported",
        ])
        .collect();
    let columns = columns(UTILIZATION, &usual, request, settings)?;
    let shown = tres.iter().filter(|t| *t != "node" && facts.existed());
    let lines = shown.map(|tres| {
        let count = facts.total(tres);
        let reported = count * facts.so_far_s();
        let sum = |of: fn(&UsageRow, &str) -> u64| -> f64 {
            let rows = facts.usage.iter().map(|row| of(row, tres) as f64);
            rows.sum::<f64>() / 1000.0
        };
        let used = sum(used_ms).min(reported);
        let down = down(facts, tres).min(reported - used);
        let left = reported - used - down;
        let wanted = sum(planned_ms);
        let planned = wanted.min(left);
        let whole = |name: &str| match name {
            "Reported" => count * facts.period.seconds(),
            _ => reported,
        };
        let amounts = [
            ("Allocated", used),
            ("Down", down),
            ("PlannedDown", 0.0),
            ("Idle", left - planned),
            ("Planned", planned),
            ("Reported", reported),
            ("OverCommitted", wanted - planned),
        ];
        let mut line: ReportLine = amounts
            .into_iter()
            .map(|(name, amount)| (name, Cell::Amount(settings.time.text(amount, whole(name)))))
            .collect();
        line.insert("Cluster", text(&facts.cluster));
        line.insert("TresName", text(tres));
        line.insert("TresCount", Cell::Amount(format!("{count:.0}")));
        line
    });
    let title = vec![
        heading("Cluster Utilization", facts, false),
        units(settings),
    ];
    Ok(lay_out(columns, lines.collect(), title))
}

/// Resources of nodes that were out of service, times their time.
fn down(facts: &ReportData, tres: &str) -> f64 {
    let of_node = |name: &str| {
        let node = facts.nodes.iter().find(|node| node.name == name);
        match tres {
            "node" => 0.0,
            tres => node.map_or(0.0, |node| node.amount(tres)),
        }
    };
    let outages = facts.outages.iter();
    let sum: f64 = outages
        .map(|outage| outage.out_ms as f64 * of_node(&outage.node))
        .sum();
    sum / 1000.0
}

/// Planned time of pending jobs; only CPUs are planned for.
fn planned_ms(row: &UsageRow, tres: &str) -> u64 {
    match tres {
        "cpu" => row.planned_cpu_ms,
        _ => 0,
    }
}

/// Use by account and user.
type Uses = BTreeMap<(String, String), Vec<f64>>;

fn uses(facts: &ReportData, tres: &[String], counts: impl Fn(&UsageRow) -> bool) -> Uses {
    let counted = facts.usage.iter().filter(|row| counts(row));
    sums(counted, tres, |row| (row.account.clone(), row.user.clone()))
}

/// Sums, seconds, by two words of each row. Rows in which nothing ran are no rows of a report.
fn sums<'a>(
    rows: impl Iterator<Item = &'a UsageRow>,
    tres: &[String],
    words: impl Fn(&UsageRow) -> (String, String),
) -> Uses {
    let mut uses = Uses::new();
    for row in rows.filter(|row| row.run_ms > 0) {
        let of = uses
            .entry(words(row))
            .or_insert_with(|| vec![0.0; tres.len()]);
        for (sum, tres) in of.iter_mut().zip(tres) {
            *sum += used_ms(row, tres) as f64;
        }
    }
    // Milliseconds are whole numbers, of which no sum loses anything.
    for sum in uses.values_mut().flatten() {
        *sum /= 1000.0;
    }
    uses
}

/// The person's name, as the system knows it.
fn proper_name(user: &str) -> String {
    let known = (!user.is_empty())
        .then(|| crate::people::user_named(user))
        .flatten();
    let gecos = known
        .map(|u| u.gecos.to_string_lossy().into_owned())
        .unwrap_or_default();
    gecos.split(',').next().unwrap_or("").to_owned()
}

/// A line for each trackable resource.
fn lines(
    facts: &ReportData,
    settings: &Settings,
    tres: &[String],
    amounts: &[f64],
    words: &[(&'static str, String)],
) -> Vec<ReportLine> {
    let line = |(tres, amount): (&String, &f64)| {
        let whole = facts.total(tres) * facts.so_far_s();
        let mut line: ReportLine = words
            .iter()
            .map(|(name, word)| (*name, text(word)))
            .collect();
        line.insert("Cluster", text(&facts.cluster));
        line.insert("TresName", text(tres));
        let count = facts.total(tres);
        line.insert("TresCount", Cell::Amount(format!("{count:.0}")));
        line.insert("Used", Cell::Amount(settings.time.text(*amount, whole)));
        line.insert("Energy", Cell::Amount(settings.time.text(0.0, 0.0)));
        line
    };
    tres.iter().zip(amounts).map(line).collect()
}

/// The usual columns of reports on use: what says whose, then how much.
fn usual(words: &[&'static str], named: bool) -> Vec<&'static str> {
    let amounts = if named {
        ["TresName", "Used"]
    } else {
        ["Used", "Energy"]
    };
    words.iter().copied().chain(amounts).collect()
}

fn wanted(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|n| n == name)
}

fn by_account(
    facts: &ReportData,
    request: &ReportRequest,
    settings: &Settings,
) -> Result<Table, Failure> {
    let (tres, named) = tres_of(settings, facts)?;
    let words = ["Cluster", "Account", "Login", "Proper"];
    let mut columns = columns(USE, &usual(&words, named), request, settings)?;
    if request.tree {
        for (_, column) in columns.iter_mut().filter(|(name, _)| *name == "Account") {
            (column.left, column.width) = (true, column.width.max(20));
        }
    }
    let uses = uses(facts, &tres, |_| true);
    let mut out = Vec::new();
    for (account, depth) in tree(facts, &uses) {
        let within = |other: &str| facts.line_of(other).contains(&account.as_str());
        let line = facts.line_of(&account);
        let chosen = request.accounts.is_empty()
            || line.iter().any(|a| request.accounts.iter().any(|w| w == a));
        let mut sum = vec![0.0; tres.len()];
        for (_, of) in uses.iter().filter(|((other, _), _)| within(other)) {
            sum.iter_mut()
                .zip(of)
                .for_each(|(sum, amount)| *sum += amount);
        }
        if !chosen || uses.keys().all(|(other, _)| !within(other)) {
            continue;
        }
        let indent = |depth: usize| match request.tree {
            true => format!("{}{account}", " ".repeat(depth)),
            false => account.clone(),
        };
        if request.users.is_empty() {
            out.extend(lines(
                facts,
                settings,
                &tres,
                &sum,
                &[("Account", indent(depth))],
            ));
        }
        for ((_, user), of) in uses.iter().filter(|((own, _), _)| *own == account) {
            if wanted(&request.users, user) {
                let words = [
                    ("Account", indent(depth + 1)),
                    ("Login", user.clone()),
                    ("Proper", proper_name(user)),
                ];
                out.extend(lines(facts, settings, &tres, of, &words));
            }
        }
    }
    let title = vec![
        heading("Cluster/Account/User Utilization", facts, true),
        units(settings),
    ];
    Ok(lay_out(columns, out, title))
}

/// Accounts from the root down, each before those below it.
fn tree(facts: &ReportData, uses: &Uses) -> Vec<(String, usize)> {
    let known = facts.accounts.accounts.keys().cloned();
    let used = uses.keys().map(|(account, _)| account.clone());
    let all: BTreeSet<String> = known.chain(used).filter(|name| name != ROOT).collect();
    let path = |name: &String| {
        let mut line: Vec<String> = facts.line_of(name).into_iter().map(str::to_owned).collect();
        line.reverse();
        line
    };
    let mut paths: Vec<Vec<String>> = all.iter().map(path).collect();
    paths.sort();
    let below = paths.into_iter().filter_map(|mut path| {
        let depth = path.len().checked_sub(1)?;
        Some((path.pop()?, depth))
    });
    std::iter::once((ROOT.to_owned(), 0)).chain(below).collect()
}

/// Users by use; the first of them up to a limit, or all.
fn by_user(
    facts: &ReportData,
    request: &ReportRequest,
    settings: &Settings,
    top: Option<usize>,
) -> Result<Table, Failure> {
    let (tres, named) = tres_of(settings, facts)?;
    let words = ["Cluster", "Login", "Proper", "Account"];
    let columns = columns(USE, &usual(&words, named), request, settings)?;
    let counts = |row: &UsageRow| {
        wanted(&request.users, &row.user) && wanted(&request.accounts, &row.account)
    };
    let mut rows: Vec<(String, Vec<String>, Vec<f64>)> = Vec::new();
    for ((account, user), amounts) in uses(facts, &tres, counts) {
        match rows
            .iter_mut()
            .find(|(own, ..)| request.group && *own == user)
        {
            Some((_, accounts, sums)) => {
                accounts.push(account);
                sums.iter_mut()
                    .zip(&amounts)
                    .for_each(|(sum, amount)| *sum += amount);
            }
            None => rows.push((user, vec![account], amounts)),
        }
    }
    rows.sort_by(|(a, _, x), (b, _, y)| y[0].total_cmp(&x[0]).then_with(|| a.cmp(b)));
    let lines =
        rows.iter()
            .take(top.unwrap_or(usize::MAX))
            .flat_map(|(user, accounts, amounts)| {
                let words = [
                    ("Login", user.clone()),
                    ("Proper", proper_name(user)),
                    ("Account", accounts.join(",")),
                ];
                lines(facts, settings, &tres, amounts, &words)
            });
    let what = match top {
        Some(count) => format!("Top {count} Users"),
        None => "Cluster/User/Account Utilization".to_owned(),
    };
    let title = vec![heading(&what, facts, true), units(settings)];
    Ok(lay_out(columns, lines.collect(), title))
}

fn by_wckey(
    facts: &ReportData,
    request: &ReportRequest,
    settings: &Settings,
    key_first: bool,
) -> Result<Table, Failure> {
    let (tres, named) = tres_of(settings, facts)?;
    let (what, words) = match key_first {
        true => (
            "Cluster/WCKey/User Utilization",
            ["Cluster", "WCKey", "Login", "Proper"],
        ),
        false => (
            "Cluster/User/WCKey Utilization",
            ["Cluster", "Login", "Proper", "WCKey"],
        ),
    };
    let mut usual: Vec<&'static str> = usual(&words, named);
    usual.retain(|name| *name != "Energy");
    let columns = columns(USE, &usual, request, settings)?;
    let rows = facts.usage.iter().filter(|row| {
        !row.wckey.is_empty()
            && wanted(&request.wckeys, &row.wckey)
            && wanted(&request.users, &row.user)
    });
    let sums = sums(rows, &tres, |row| match key_first {
        true => (row.wckey.clone(), row.user.clone()),
        false => (row.user.clone(), row.wckey.clone()),
    });
    let lines = sums.iter().flat_map(|((first, second), amounts)| {
        let (key, user) = if key_first {
            (first, second)
        } else {
            (second, first)
        };
        let words = [
            ("WCKey", key.clone()),
            ("Login", user.clone()),
            ("Proper", proper_name(user)),
        ];
        lines(facts, settings, &tres, amounts, &words)
    });
    let title = vec![heading(what, facts, true), units(settings)];
    Ok(lay_out(columns, lines.collect(), title))
}

/// `[days-]hours:minutes:seconds`.
fn clock(seconds: u64) -> String {
    let (days, s) = (seconds / 86_400, seconds % 86_400);
    let time = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
    match days {
        0 => time,
        days => format!("{days}-{time}"),
    }
}

fn reservations(
    facts: &ReportData,
    request: &ReportRequest,
    settings: &Settings,
) -> Result<Table, Failure> {
    let usual = [
        "Cluster",
        "Name",
        "Start",
        "End",
        "TresName",
        "Allocated",
        "Idle",
    ];
    let columns = columns(RESERVATION, &usual, request, settings)?;
    let ctx = Ctx::new("");
    let time = |at: Timestamp| {
        let mut out = String::new();
        ctx.time(&mut out, at);
        text(out)
    };
    let met = facts.reservations.iter().filter(|record| {
        let period = &facts.period;
        period.overlap(record.start, Some(record.end)) > 0.0
    });
    let lines = met.map(|record| {
        let whole = Period {
            start: record.start,
            end: record.end,
        };
        let cpus = record.cpus as f64;
        let so_far = whole.overlap(whole.start, Some(facts.now)) * cpus;
        let own = facts.jobs.iter();
        let own = own.filter(|job| job.reservation == record.name);
        let used: f64 = own
            .map(|job| ran_s(job, whole, facts.now) * f64::from(job.alloc_cpus))
            .sum();
        let used = used.min(so_far);
        let amount = |of: f64| Cell::Amount(settings.time.text(of, so_far));
        let flags = Flags::ALL
            .iter()
            .filter(|(flag, _)| record.flags.has(*flag));
        let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
        ReportLine::from([
            ("Cluster", text(&facts.cluster)),
            ("Name", text(&record.name)),
            ("Start", time(record.start)),
            ("End", time(record.end)),
            ("TresName", text("cpu")),
            ("TresCount", Cell::Amount(record.cpus.to_string())),
            ("TresTime", amount(so_far)),
            ("Allocated", amount(used)),
            ("Idle", amount(so_far - used)),
            ("Nodes", text(&record.nodes)),
            ("Flags", text(flags.join(","))),
            (
                "TotalTime",
                text(clock(record.end.since_ms(record.start) / 1000)),
            ),
        ])
    });
    let unit = match settings.time.is_percent() {
        true => format!("Usage reported in {}", settings.time.name()),
        false => format!("Usage reported in TRES {}", settings.time.name()),
    };
    let title = vec![heading("Reservation Utilization", facts, false), unit];
    Ok(lay_out(columns, lines.collect(), title))
}

#[cfg(test)]
mod tests;
