//! `muster report`: numbers of jobs, their ends, run times, waiting times and use, by user, account, application, node
//! and so on, in a period and its parts. All is made from the rows of accounting, as sreport's reports are, so that
//! sums agree.

mod application;
mod mail;
mod output;
mod period;
mod sums;

use crate::connect::{Client, ConnectError};
use crate::listing::{Failure, failed_call, print, query, time_input};
use crate::options::{HelpForm, Spec, flag, opt};
use crate::sacct::filter;
use crate::sreport::measure::Period;
use application::Rules;
use jiff::Zoned;
use muster_conf::endpoint::conf_path;
use muster_model::accounts::Share;
use muster_model::hostlist;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctQuery};
pub(crate) use output::Format;
use output::Report;
use period::{Division, Every, divide};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use sums::{FAIR_SHARE, JobSums, MEASURES, Measure};

/// muster report.
pub(crate) static SPEC: Spec = Spec {
    name: "muster-report",
    about: "Reports how jobs ran and what they used, from accounting.",
    operands: "",
    form: HelpForm::Options,
    options: &[
        opt("accounts", "LIST", "only jobs of these accounts").short('A'),
        opt("application", "LIST", "only jobs of these applications").short('a'),
        opt(
            "by",
            "LIST",
            "a row for each: user, account, application, partition, qos, wckey, class, node, nodes (how many), state (default: user)",
        )
        .short('b'),
        opt(
            "columns",
            "LIST",
            "columns, by the names below, or all (default: those marked *)",
        )
        .short('o'),
        opt(
            "endtime",
            "TIME",
            "until when, as sacct takes it (default: now)",
        )
        .short('E'),
        opt("every", "PART", "rows for each hour, day or month").short('e'),
        opt("format", "FORM", "table, csv, json or svg (default: table)").short('f'),
        flag("help", "print this help").short('h'),
        opt(
            "mail",
            "ADDRESSES",
            "send it there by MailProg of slurm.conf, and print nothing",
        ),
        opt(
            "month",
            "MONTH",
            "that month instead of a start and an end: last, this, or such as 2026-10",
        ),
        opt("nodelist", "NODES", "only jobs that ran on any of these nodes").short('N'),
        opt("partition", "LIST", "only jobs of these partitions").short('r'),
        opt("qos", "LIST", "only jobs of these QOS").short('q'),
        opt(
            "sort",
            "COLUMN",
            "the highest first, by this column (default: by the words of the rows)",
        )
        .short('s'),
        opt(
            "starttime",
            "TIME",
            "since when (default: midnight 30 days ago)",
        )
        .short('S'),
        opt("top", "N", "the first N rows of each part").short('n'),
        opt("uid", "LIST", "only jobs of these users").short('u'),
        flag("usage", "print a short summary"),
    ],
    variables: &[],
    notes: NOTES,
};

const NOTES: &str = "\
A job counts where it ended; what it used counts in each part in which it used it, so that cpu_s, gpu_s and node_s are what sreport shows in \
seconds. With nodes as rows, a job counts for each of its nodes. The application of a job is what its comment says (app=NAME), else the first \
rule of applications.conf beside slurm.conf that fits (lines of APPLICATION FIELD PATTERN, FIELD being name, step, command or comment), else \
the program of its first step, else its name.
Columns: runs*, completed*, failed*, timeout*, out_of_memory*, node_failed*, cancelled*, other, failed_share, mean_s*, median_s*, p95_s*, \
longest_s*, wait_s*, wait_p95_s, cpu_s*, gpu_s*, node_s, cpu_efficiency*, fair_share, last_end.
";

/// Bytes of a row beside its words: its sums, and its part of the answer.
const ROW_BYTES: usize = 512;
/// Days before today with which a report begins.
const DAYS: i32 = 30;

/// Subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    User,
    Account,
    Application,
    Partition,
    Qos,
    Wckey,
    Class,
    Node,
    NodeCount,
    State,
}

impl Dimension {
    const ALL: [(&'static str, Dimension); 10] = [
        ("user", Dimension::User),
        ("account", Dimension::Account),
        ("application", Dimension::Application),
        ("partition", Dimension::Partition),
        ("qos", Dimension::Qos),
        ("wckey", Dimension::Wckey),
        ("class", Dimension::Class),
        ("node", Dimension::Node),
        ("nodes", Dimension::NodeCount),
        ("state", Dimension::State),
    ];

    fn value_of(self, job: &AcctJob, application: &str, node: &str) -> String {
        match self {
            Dimension::User => job.user.clone(),
            Dimension::Account => job.account.clone(),
            Dimension::Application => application.to_owned(),
            Dimension::Partition => job.partition.clone(),
            Dimension::Qos => job.qos.clone(),
            Dimension::Wckey => job.wckey.clone(),
            Dimension::Class => job.class.clone(),
            Dimension::Node => node.to_owned(),
            Dimension::NodeCount => job.alloc_nodes.to_string(),
            Dimension::State => job.state.name().to_owned(),
        }
    }
}

/// The user's request.
#[derive(Clone)]
pub(crate) struct Request {
    query: AcctQuery,
    by: Vec<(&'static str, Dimension)>,
    every: Option<Every>,
    applications: Vec<String>,
    columns: Vec<&'static Measure>,
    sort: Option<&'static Measure>,
    top: Option<usize>,
    start: Option<String>,
    end: Option<String>,
    /// Bytes of rows that are kept at most.
    pub(crate) row_bytes_max: usize,
    /// Output format.
    pub(crate) format: Format,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            query: AcctQuery {
                duplicates: true,
                usage: true,
                ..AcctQuery::default()
            },
            by: vec![Dimension::ALL[0]],
            every: None,
            applications: Vec::new(),
            columns: MEASURES.iter().filter(|m| m.is_usual).collect(),
            sort: None,
            top: None,
            start: None,
            end: None,
            row_bytes_max: usize::MAX,
            format: Format::Table,
        }
    }
}

impl Request {
    /// Sets what an option says, or a parameter of a query of the same name.
    ///
    /// # Errors
    /// The value is none that the option takes.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let list = || filter::texts(value);
        match name {
            "accounts" => self.query.accounts.extend(list()),
            "application" => self.applications.extend(list()),
            "partition" => self.query.partitions.extend(list()),
            "qos" => self.query.qos.extend(list()),
            "uid" => {
                let users = filter::parse_users(value).map_err(|e| e.to_string())?;
                self.query.uids.extend(users);
            }
            "nodelist" => {
                let nodes = hostlist::parse(value).map_err(|e| e.to_string())?;
                self.query.nodes.extend(nodes);
            }
            "by" => self.by = each_once(&list(), dimension)?,
            "every" => {
                let every = Every::parse(value);
                self.every = Some(every.ok_or("expected hour, day or month")?);
            }
            "columns" if value == "all" => self.columns = MEASURES.iter().collect(),
            "columns" => self.columns = each_once(&list(), column)?,
            "sort" => self.sort = Some(column(value)?),
            "top" => self.top = Some(value.parse().map_err(|_| "expected a number")?),
            "starttime" => self.start = Some(value.to_owned()),
            "endtime" => self.end = Some(value.to_owned()),
            "month" => {
                let (start, end) = period::month(value, &Zoned::now())?;
                (self.start, self.end) = (Some(start), Some(end));
            }
            "format" => {
                let format = Format::parse(value);
                self.format = format.ok_or("expected table, csv, json or svg")?;
            }
            _ => return Err("there is no such option".to_owned()),
        }
        Ok(())
    }

    /// The period that is asked for.
    fn period(&self, now: &Zoned) -> Result<Period, String> {
        let read = |text: &String| {
            let at = time_input::parse(text, now);
            at.ok_or_else(|| format!("'{text}' is not a valid time"))
        };
        let first = || {
            let days = jiff::Span::new().days(DAYS);
            now.checked_sub(days)
                .map_or(Timestamp(0), |at| time_input::midnight(&at))
        };
        let end = self.end.as_ref().map(read).transpose()?;
        let period = Period {
            start: self
                .start
                .as_ref()
                .map(read)
                .transpose()?
                .unwrap_or_else(first),
            end: end.unwrap_or(Timestamp(now.timestamp().as_millisecond())),
        };
        match period.start < period.end {
            true => Ok(period),
            false => Err("the end is not after the start".to_owned()),
        }
    }
}

/// Reads words of a list, each of which may be there once: every row has a value of each.
fn each_once<T>(
    words: &[String],
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let mut known = HashSet::new();
    let read_new = words.iter().map(|word| match known.insert(word) {
        true => read(word),
        false => Err(format!("'{word}' is there twice")),
    });
    read_new.collect()
}

fn dimension(word: &str) -> Result<(&'static str, Dimension), String> {
    let found = Dimension::ALL.into_iter().find(|(name, _)| *name == word);
    let names = Dimension::ALL.map(|(name, _)| name).join(", ");
    found.ok_or_else(|| format!("'{word}': expected {names}"))
}

fn column(word: &str) -> Result<&'static Measure, String> {
    let found = MEASURES.iter().find(|measure| measure.name == word);
    let names: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
    found.ok_or_else(|| format!("'{word}': expected {}", names.join(", ")))
}

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let mut request = Request::default();
    let mut addresses = None;
    for (name, value) in &parsed.options {
        match *name {
            "help" => return shown(&SPEC.help()),
            "usage" => return shown(&SPEC.usage()),
            // A client of slurmrestd has no such parameter: nobody has its host write to others.
            "mail" => {
                let read = mail::addresses(value.as_deref().unwrap_or_default());
                addresses = Some(
                    read.map_err(|why| Failure::new(format!("muster report: --mail: {why}")))?,
                );
            }
            name => {
                let value = value.clone().unwrap_or_default();
                let set = request.set(name, &value);
                set.map_err(|why| Failure::new(format!("muster report: --{name}={value}: {why}")))?;
            }
        }
    }
    if let Some(word) = parsed.operands.first() {
        return Err(Failure::new(format!(
            "muster report: '{word}': only options are taken, such as --by\n{}",
            SPEC.usage().trim_end()
        )));
    }
    let mut client = Client::connect().map_err(failed_call("muster report"))?;
    let report = make(&mut client, &request, &conf_path())?;
    let text = report.render(request.format);
    match addresses {
        Some(addresses) => {
            let subject = report.title();
            mail::send(&addresses, &subject, &text)
                .map_err(|why| Failure::new(format!("muster report: --mail: {why}")))
        }
        None => shown(&text),
    }
}

fn shown(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

/// Works a report out.
///
/// # Errors
/// Something of the request cannot be understood, or accounting cannot be asked.
fn make(client: &mut Client, request: &Request, conf: &Path) -> Result<Report, Failure> {
    let failed = |why: String| Failure::new(format!("muster report: {why}"));
    let plan = request.plan(conf).map_err(failed)?;
    let work = plan.read(client).map_err(failed_call("muster report"))?;
    work.report().map_err(failed)
}

/// A report that can be made.
pub(crate) struct Plan<'a> {
    request: &'a Request,
    period: Period,
    divisions: Vec<Division>,
    rules: Rules,
}

impl Request {
    /// Makes the plan of a report, with the rules beside a configuration file.
    ///
    /// # Errors
    /// A part of the request is invalid.
    pub(crate) fn plan(&self, conf: &Path) -> Result<Plan<'_>, String> {
        let now = Zoned::now();
        let period = self.period(&now)?;
        Ok(Plan {
            request: self,
            period,
            divisions: divide(period, self.every, &now)?,
            rules: Rules::read(&conf.with_file_name("applications.conf"))?,
        })
    }
}

impl Plan<'_> {
    /// Reads accounting.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(crate) fn read(&self, client: &mut Client) -> Result<Work<'_>, ConnectError> {
        let mut work = Work::new(self, &client.endpoint.cluster);
        let request = self.request;
        let mut shown = request.columns.iter().chain(&request.sort);
        if shown.any(|measure| measure.name == FAIR_SHARE) {
            work.shares = query::accounts(client)?.accounts.shares;
        }
        let mut query = self.request.query.clone();
        (query.start, query.end) = (Some(self.period.start), Some(self.period.end));
        query::accounting_in_parts(client, query, |jobs, at| {
            jobs.iter().for_each(|job| work.add(job, at));
        })?;
        Ok(work)
    }
}

/// Rows by their division and the words of their dimensions.
type Rows = HashMap<(usize, Vec<String>), JobSums>;

/// Sums that are being made.
pub(crate) struct Work<'a> {
    plan: &'a Plan<'a>,
    cluster: String,
    rows: Rows,
    row_bytes: usize,
    /// Rows are missing, since there was no room for them.
    is_full: bool,
    total: JobSums,
    /// Fair shares, where the report shows them.
    shares: Vec<Share>,
}

impl<'a> Work<'a> {
    fn new(plan: &'a Plan<'a>, cluster: &str) -> Work<'a> {
        Work {
            plan,
            cluster: cluster.to_owned(),
            rows: HashMap::new(),
            row_bytes: 0,
            is_full: false,
            total: JobSums::default(),
            shares: Vec::new(),
        }
    }

    /// Gives rows that name a user its fair share: the highest of all accounts, or that of the account that the row names.
    fn add_fair_shares(&mut self) {
        let by = &self.plan.request.by;
        let place = |wanted| by.iter().position(|(_, dimension)| *dimension == wanted);
        let Some(user) = place(Dimension::User) else {
            return;
        };
        let account = place(Dimension::Account);
        for ((_, words), sums) in &mut self.rows {
            let is_of = |share: &&Share| {
                share.user == words[user] && account.is_none_or(|at| share.account == words[at])
            };
            let factors = self.shares.iter().filter(is_of);
            sums.fair_share = factors.map(|share| share.fair_share).max_by(f64::total_cmp);
        }
    }

    /// The report.
    ///
    /// # Errors
    /// It has more rows than there is room for.
    pub(crate) fn report(mut self) -> Result<Report, String> {
        let request = self.plan.request;
        if self.is_full {
            return Err(format!(
                "the report has more than {} MiB of rows: ask for a shorter time, longer parts of it, or fewer kinds of rows",
                request.row_bytes_max >> 20
            ));
        }
        self.total.finish();
        self.add_fair_shares();
        let keys = request.every.iter().map(|every| every.name());
        Ok(Report {
            cluster: self.cluster,
            period: self.plan.period,
            keys: keys
                .chain(request.by.iter().map(|(name, _)| *name))
                .collect(),
            rows: in_order(self.rows, request, &self.plan.divisions),
            total: self.total,
            columns: request.columns.clone(),
        })
    }

    /// The sums of a row; none if there is no room for it.
    fn row(&mut self, division: usize, words: &[String]) -> Option<&mut JobSums> {
        match self.rows.entry((division, words.to_vec())) {
            Entry::Occupied(row) => Some(row.into_mut()),
            Entry::Vacant(row) => {
                let words = words.iter().map(|word| word.len() + size_of::<String>());
                self.row_bytes += ROW_BYTES + words.sum::<usize>();
                self.is_full |= self.row_bytes > self.plan.request.row_bytes_max;
                (!self.is_full).then(|| row.insert(JobSums::default()))
            }
        }
    }

    fn add(&mut self, job: &AcctJob, now: Timestamp) {
        let Plan {
            request,
            divisions,
            rules,
            ..
        } = self.plan;
        if self.is_full {
            return;
        }
        let by = &request.by;
        let has = |wanted| by.iter().any(|(_, dimension)| *dimension == wanted);
        let wanted = &request.applications;
        let application = match has(Dimension::Application) || !wanted.is_empty() {
            true => rules.of(job),
            false => String::new(),
        };
        if !wanted.is_empty() && !wanted.contains(&application) {
            return;
        }
        let nodes = match has(Dimension::Node) {
            true => hostlist::parse(&job.nodelist).unwrap_or_default(),
            false => vec![String::new()],
        };
        let ended = job.end.and_then(|end| self.division_of(end));
        let used = self.divisions_of(job, now);
        let part = 1.0 / nodes.len().max(1) as f64;
        for node in &nodes {
            let words: Vec<String> = by
                .iter()
                .map(|(_, d)| d.value_of(job, &application, node))
                .collect();
            for at in used.clone() {
                let Some(row) = self.row(at, &words) else {
                    return;
                };
                row.add_use(job, divisions[at].period, now, part);
            }
            if let Some(row) = ended.and_then(|at| self.row(at, &words)) {
                row.add_end(job);
            }
        }
        for at in used {
            self.total.add_use(job, divisions[at].period, now, 1.0);
        }
        if ended.is_some() {
            self.total.add_end(job);
        }
    }

    /// The division that a moment is in.
    fn division_of(&self, at: Timestamp) -> Option<usize> {
        let after = self.plan.divisions.partition_point(|d| d.period.end <= at);
        let division = self.plan.divisions.get(after)?;
        (division.period.start <= at).then_some(after)
    }

    /// The divisions in which a job ran.
    fn divisions_of(&self, job: &AcctJob, now: Timestamp) -> std::ops::Range<usize> {
        let Some(start) = job.start else { return 0..0 };
        let end = job.end.unwrap_or(now);
        let first = self
            .plan
            .divisions
            .partition_point(|d| d.period.end <= start);
        let last = self
            .plan
            .divisions
            .partition_point(|d| d.period.start < end);
        first..last.max(first)
    }
}

/// The rows in the order of output: by division, and in each by the requested order.
fn in_order(rows: Rows, request: &Request, divisions: &[Division]) -> Vec<(Vec<String>, JobSums)> {
    let mut rows: Vec<((usize, Vec<String>), JobSums)> = rows.into_iter().collect();
    rows.iter_mut().for_each(|(_, sums)| sums.finish());
    rows.sort_by(|((at, words), sums), ((other_at, other_words), other)| {
        let by_rank = request.sort.map(|measure| {
            let rank = |sums: &JobSums| (measure.read)(sums).rank();
            rank(other).total_cmp(&rank(sums))
        });
        let by_rank = by_rank.unwrap_or(std::cmp::Ordering::Equal);
        at.cmp(other_at)
            .then(by_rank)
            .then_with(|| words.cmp(other_words))
    });
    let (mut last, mut count) = (None, 0);
    let mut shown = Vec::new();
    for ((at, words), sums) in rows {
        count = if last == Some(at) { count + 1 } else { 1 };
        last = Some(at);
        if request.top.is_some_and(|top| count > top) {
            continue;
        }
        let label = request.every.map(|_| divisions[at].label.clone());
        shown.push((label.into_iter().chain(words).collect(), sums));
    }
    shown
}

#[cfg(test)]
mod tests;
