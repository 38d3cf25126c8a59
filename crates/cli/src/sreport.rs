//! sreport: use of the cluster in a period, by account, user, size of jobs and reservation. Reports on clusters and
//! users are made from sums that accounting keeps by hour, day and month, the others from its rows; a period has whole
//! hours.

pub(crate) mod measure;
mod nodes;
mod reports;
mod sizes;
mod used;

use crate::SLURM_VERSION;
use crate::clusters::ClusterSelection;
use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::listing::document::{Dialect, Writer, print_document, versions};
use crate::listing::table::{Cell, Style, Table};
use crate::listing::{Failure, failed_call, print, time_input};
use crate::options::{HelpForm, Spec, flag, opt};
use jiff::Zoned;
use measure::{MINUTES, Period, TimeFormat};
use muster_model::time::Timestamp;
use std::io::BufRead as _;

/// Its commands, for `--help`.
const COMMANDS: &str = "\
     cluster <REPORT> <KEYS>      what was used of the cluster, and by whom
     job <REPORT> <KEYS>          sizes of jobs
     reservation <REPORT> <KEYS>  use of reservations
     user <REPORT> <KEYS>         who used most
     exit, quit                   end
     help                         show this text
     version                      display tool version number
";

/// sreport.
pub(crate) static SPEC: Spec = Spec {
    name: "sreport",
    about: "Reports what was used of the cluster.",
    operands: "[cluster|job|reservation|user REPORT [KEY=VALUE...]]",
    form: HelpForm::Commands(COMMANDS),
    options: &[
        flag("all_clusters", "all clusters; only this one is known").short('a'),
        opt(
            "cluster",
            "NAME",
            "cluster to report on; only this one is known",
        )
        .short('M'),
        flag("federation", "all clusters of the federation")
            .stored("this cluster is not in a federation"),
        flag("help", "print this help").short('h'),
        opt("json", "VERSION", "as JSON; --json=list names the versions").optional(),
        flag("local", "this cluster").stored("there is no other"),
        flag("noheader", "nothing above the rows").short('n'),
        flag("parsable", "fields separated by '|', and one at the end").short('p'),
        flag("parsable2", "fields separated by '|'").short('P'),
        flag("quiet", "say less")
            .short('Q')
            .stored("there is no less to say"),
        opt(
            "time",
            "FORMAT",
            "Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer",
        )
        .short('t'),
        opt("tres", "LIST", "trackable resources to report on, or ALL").short('T'),
        flag("usage", "print a short summary"),
        flag("verbose", "say more")
            .short('v')
            .stored("there is no more to say"),
        flag("version", "print the version").short('V'),
        opt("yaml", "VERSION", "as YAML; as for JSON").optional(),
    ],
    variables: &[],
    notes: "Reports: cluster AccountUtilizationByUser, UserUtilizationByAccount, UserUtilizationByWckey, Utilization, \
            WCKeyUtilizationByUser; job SizesByAccount, SizesByAccountAndWckey, SizesByWckey; reservation Utilization; \
            user TopUsage. Keys: Start, End, Format, Accounts, Users, Wckeys, Tree, Clusters, All_Clusters; of job \
            reports AcctAsParent, FlatView, GID, Grouping, Jobs, Nodes, Partitions, PrintJobCount; of user reports \
            Group, TopCount; of reservation reports Names. Without words, commands are read from standard input. \
            Time planned for reservations is not a part of PlannedDown.\n",
};

/// Settings of all reports of a call.
#[derive(Clone, Debug)]
struct Settings {
    style: Style,
    time: TimeFormat,
    /// Trackable resources that were asked for; none is CPUs, and no column that says so.
    tres: Option<Vec<String>>,
    /// `--json`, `--yaml`.
    document: Option<Dialect>,
}

/// Runs sreport.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some(text) = versions(&parsed) {
        return print_text(&text);
    }
    let mut settings = Settings {
        style: Style::default(),
        time: MINUTES,
        tres: None,
        document: None,
    };
    for (name, value) in &parsed.options {
        let value = value.clone().unwrap_or_default();
        match *name {
            "version" => return print_text(&format!("slurm {SLURM_VERSION}\n")),
            "help" => return print_text(&SPEC.help()),
            "usage" => return print_text(&SPEC.usage()),
            "cluster" => ClusterSelection::choose_one("sreport", &value)?,
            "json" | "yaml" => {
                settings.document = Some(Dialect::parse("sreport", *name == "yaml", &value)?);
            }
            "noheader" => settings.style.bare = true,
            "parsable" => settings.style.bars = Some(true),
            "parsable2" => settings.style.bars = Some(false),
            "time" => settings.time = time_format(&value)?,
            "tres" => settings.tres = Some(words(&value)),
            _ => {}
        }
    }
    match parsed.operands.is_empty() {
        true => interactive(settings),
        false => command(&mut settings, &parsed.operands).map(|_| ()),
    }
}

/// Reads commands until the input ends or one says so.
fn interactive(mut settings: Settings) -> Result<(), Failure> {
    let mut last: Vec<String> = Vec::new();
    let mut input = std::io::stdin().lock();
    loop {
        print("sreport: ");
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(0) | Err(_) => return print_text("\n"),
            Ok(_) => {}
        }
        let given: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match given.first().map(String::as_str) {
            None => continue,
            Some("!!") => {}
            Some(_) => last = given,
        }
        match command(&mut settings, &last) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(failure) => crate::listing::complain(&failure.to_string()),
        }
    }
}

/// Executes a command; false if it ends the program.
fn command(settings: &mut Settings, given: &[String]) -> Result<bool, Failure> {
    let Some((first, rest)) = given.split_first() else {
        return Ok(true);
    };
    let lower = first.to_ascii_lowercase();
    let begins = |name: &str, least: usize| lower.len() >= least && name.starts_with(&lower);
    match lower.as_str() {
        _ if begins("exit", 1) || begins("quit", 4) => return Ok(false),
        "quiet" | "verbose" => {}
        "parsable" => settings.style.bars = Some(true),
        "parsable2" => settings.style.bars = Some(false),
        "nonparsable" => settings.style.bars = None,
        _ if begins("help", 2) => print(&SPEC.help()),
        _ if begins("version", 4) => print(&format!("slurm {SLURM_VERSION}\n")),
        _ if begins("time", 1) => {
            settings.time = time_format(rest.first().map_or("", String::as_str))?;
        }
        _ if begins("cluster", 1) => report("cluster", rest, settings)?,
        _ if begins("job", 1) => report("job", rest, settings)?,
        _ if begins("reservation", 1) => report("reservation", rest, settings)?,
        _ if begins("user", 1) => report("user", rest, settings)?,
        _ => return Err(Failure::new(format!("invalid keyword: {first}"))),
    }
    Ok(true)
}

/// The options of a report.
#[derive(Clone, Debug, Default)]
struct ReportRequest {
    start: Option<String>,
    end: Option<String>,
    format: Option<Vec<String>>,
    accounts: Vec<String>,
    users: Vec<String>,
    wckeys: Vec<String>,
    gids: Vec<u32>,
    jobs: Vec<u64>,
    names: Vec<String>,
    nodes: Vec<String>,
    partitions: Vec<String>,
    /// Sizes at which another column begins; empty where each size has its own.
    grouping: Option<Vec<u64>>,
    top: Option<usize>,
    tree: bool,
    flat: bool,
    as_parent: bool,
    count_jobs: bool,
    group: bool,
}

impl ReportRequest {
    /// Whether it is on all jobs, so that the sums that are kept answer it.
    fn is_of_sums(&self) -> bool {
        self.jobs.is_empty()
            && self.nodes.is_empty()
            && self.partitions.is_empty()
            && self.gids.is_empty()
    }

    fn read(given: &[String], settings: &mut Settings) -> Result<ReportRequest, Failure> {
        let mut request = ReportRequest::default();
        for word in given {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let key = key.to_ascii_lowercase();
            let bad = |what: &str| Failure::new(format!("sreport: error: {word}: expected {what}"));
            let is = |name: &str, least: usize| key.len() >= least && name.starts_with(&key);
            match key.as_str() {
                "set" | "where" => {}
                _ if is("all_clusters", 2) && value.is_empty() => {}
                _ if is("tree", 2) && value.is_empty() => request.tree = true,
                _ if is("flatview", 2) && value.is_empty() => request.flat = true,
                _ if is("acctasparent", 5) && value.is_empty() => request.as_parent = true,
                _ if is("printjobcount", 2) && value.is_empty() => request.count_jobs = true,
                _ if is("group", 5) && value.is_empty() => request.group = true,
                _ if is("start", 1) => request.start = Some(value.to_owned()),
                _ if is("end", 1) => request.end = Some(value.to_owned()),
                _ if is("format", 1) => request.format = Some(words(value)),
                _ if is("accounts", 1) || is("accts", 2) => request.accounts = words(value),
                _ if is("users", 1) => request.users = words(value),
                _ if is("wckeys", 1) => request.wckeys = words(value),
                _ if is("clusters", 1) => ClusterSelection::choose_one("sreport", value)?,
                _ if is("names", 2) => request.names = words(value),
                _ if is("partitions", 2) => request.partitions = words(value),
                _ if is("tres", 2) => settings.tres = Some(words(value)),
                _ if is("nodes", 2) => {
                    request.nodes =
                        muster_model::hostlist::parse(value).map_err(|e| bad(&e.to_string()))?;
                }
                _ if is("topcount", 2) => {
                    request.top = Some(value.parse().map_err(|_| bad("a number"))?);
                }
                _ if is("gid", 2) => {
                    let ids = words(value).iter().map(|w| gid(w)).collect::<Option<_>>();
                    request.gids = ids.ok_or_else(|| bad("groups"))?;
                }
                _ if is("jobs", 1) => {
                    let ids = words(value)
                        .iter()
                        .map(|w| w.parse().ok())
                        .collect::<Option<_>>();
                    request.jobs = ids.ok_or_else(|| bad("numbers of jobs"))?;
                }
                _ if is("grouping", 3) && value.eq_ignore_ascii_case("individual") => {
                    request.grouping = Some(Vec::new());
                }
                _ if is("grouping", 3) => {
                    let sizes: Option<Vec<u64>> =
                        words(value).iter().map(|w| w.parse().ok()).collect();
                    let sizes = sizes.filter(|s| s.is_sorted_by(|a, b| a < b) && !s.is_empty());
                    request.grouping = Some(sizes.ok_or_else(|| bad("sizes such as 50,100,150"))?);
                }
                _ => return Err(Failure::new(format!("Unknown condition: {word}"))),
            }
        }
        Ok(request)
    }

    /// The hours that the report is about: those of yesterday, if no time is given.
    fn period(&self, now: &Zoned) -> Result<Period, Failure> {
        let today = now
            .start_of_day()
            .ok()
            .map(|day| day.timestamp().as_second());
        let midnight = today.unwrap_or_else(|| now.timestamp().as_second());
        let read = |text: &Option<String>, otherwise: i64| match text {
            None => Ok(otherwise),
            Some(text) => time_input::parse(text, now)
                .map(Timestamp::unix_s)
                .ok_or_else(|| {
                    Failure::new(format!(
                        "sreport: error: Invalid time specification: {text}"
                    ))
                }),
        };
        let start = read(&self.start, midnight - 86_400)?;
        let end = read(&self.end, midnight)?;
        let hour = |s: i64| s.div_euclid(3600) * 3600;
        let latest = hour(now.timestamp().as_second() + 3599);
        let (start, mut end) = (hour(start), hour(end + 3599).min(latest));
        if self.end.is_none() {
            // A time of today begins a report on an hour.
            end = end.max(start + 3600);
        }
        if end <= start {
            return Err(Failure::new(
                "sreport: error: End time is not after the start time",
            ));
        }
        Ok(Period {
            start: Timestamp::from_unix_s(start),
            end: Timestamp::from_unix_s(end),
        })
    }
}

fn gid(word: &str) -> Option<u32> {
    let number = word.parse::<u32>().ok();
    number.or_else(|| Some(crate::people::group_named(word)?.gid.as_raw()))
}

const REPORTS: &[(&str, &[&str])] = &[
    (
        "cluster",
        &[
            "AccountUtilizationByUser",
            "UserUtilizationByAccount",
            "UserUtilizationByWckey",
            "Utilization",
            "WCKeyUtilizationByUser",
        ],
    ),
    (
        "job",
        &["SizesByAccount", "SizesByAccountAndWckey", "SizesByWckey"],
    ),
    ("reservation", &["Utilization"]),
    ("user", &["TopUsage"]),
];

fn report(kind: &str, given: &[String], settings: &Settings) -> Result<(), Failure> {
    let Some((name, rest)) = given.split_first() else {
        return Err(Failure::new(format!(
            "too few arguments for keyword:{kind}"
        )));
    };
    let known = REPORTS
        .iter()
        .find(|(k, _)| *k == kind)
        .map_or(&[][..], |(_, names)| names);
    let lower = name.to_ascii_lowercase();
    let begins = |report: &&&str| {
        let report = report.to_ascii_lowercase();
        report.starts_with(&lower) || (report == "topusage" && "topuser".starts_with(&lower))
    };
    // The whole name goes before one that begins equally.
    let exact = known
        .iter()
        .find(|report| report.eq_ignore_ascii_case(name));
    let Some(report) = exact.or_else(|| known.iter().find(begins)) else {
        return Err(Failure::new(format!(
            "Not valid report {name}\nValid {kind} reports are, {}",
            known
                .iter()
                .map(|r| format!("\"{r}\""))
                .collect::<Vec<_>>()
                .join(", ")
        )));
    };
    let mut settings = settings.clone();
    let request = ReportRequest::read(rest, &mut settings)?;
    let period = request.period(&Zoned::now())?;
    let failed = failed_call("sreport");
    let mut client = Client::connect().map_err(&failed)?;
    let facts = reports::ReportData::ask(&mut client, kind, &request, period).map_err(&failed)?;
    let table = reports::make(kind, report, &facts, &request, &settings)?;
    match settings.document {
        Some(dialect) => {
            let ctx = Ctx::new(&client.endpoint.cluster);
            let title = ReportTitle {
                category: kind,
                report,
                period,
            };
            print_document(dialect, "sreport", &ctx, |w| write(w, &title, &table));
        }
        None => print(&table.render(settings.style)),
    }
    Ok(())
}

/// The report that a document has.
struct ReportTitle<'a> {
    category: &'a str,
    report: &'a str,
    period: Period,
}

/// The main part of the document: the rows, each with its cells by the names of the columns.
fn write(w: &mut Writer<'_>, title: &ReportTitle<'_>, table: &Table) {
    w.map("report", |w| {
        w.text("category", title.category);
        w.text("name", title.report);
        w.raw("start", title.period.start.unix_s());
        w.raw("end", title.period.end.unix_s());
        w.list("rows", |w| {
            for row in &table.rows {
                w.item(|w| {
                    for (column, cell) in table.columns.iter().zip(row) {
                        match cell {
                            Cell::Amount(text) if text.parse::<f64>().is_ok() => {
                                w.raw(&column.header, text);
                            }
                            Cell::Amount(text) | Cell::Text(text) => w.text(&column.header, text),
                        }
                    }
                });
            }
        });
    });
}

fn time_format(word: &str) -> Result<TimeFormat, Failure> {
    TimeFormat::parse(word).ok_or_else(|| {
        Failure::new(format!(
            "sreport: error: unknown time format {word}; these exist: Seconds, Minutes, Hours, Percent, SecPer, MinPer, HourPer"
        ))
    })
}

fn words(list: &str) -> Vec<String> {
    let all = list.split(',').map(str::trim).filter(|w| !w.is_empty());
    all.map(str::to_owned).collect()
}

fn print_text(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    /// A start of today came after the end that nobody gave, and was refused.
    #[test]
    fn a_start_of_today_begins_an_hour() {
        let now = jiff::civil::date(2026, 11, 30)
            .at(22, 1, 0, 0)
            .to_zoned(TimeZone::UTC)
            .unwrap();
        let hours = |start: &str, end: Option<&str>| {
            let request = ReportRequest {
                start: Some(start.to_owned()),
                end: end.map(str::to_owned),
                ..ReportRequest::default()
            };
            let period = request.period(&now).ok()?;
            let of_day = |at: Timestamp| at.unix_s().rem_euclid(86_400) / 3600;
            Some([of_day(period.start), of_day(period.end)])
        };
        assert_eq!(hours("now-1hour", None), Some([21, 22]));
        assert_eq!(hours("2026-11-30", None), Some([0, 1]));
        assert_eq!(
            hours("2026-11-30T10:00", Some("2026-11-30T12:20")),
            Some([10, 13])
        );
        assert_eq!(hours("2026-11-30T10:00", Some("2026-11-30T09:00")), None);
    }
}
