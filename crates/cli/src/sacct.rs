//! sacct: jobs and steps of the accounting store.

mod associations;
pub(crate) mod document;
pub(crate) mod fields;
pub(crate) mod filter;
mod texts;

use crate::clusters::ClusterSelection;
use crate::connect::{Client, ConnectError};
use crate::listing::account::{AcctRow, AmountStyle};
use crate::listing::context::Ctx;
use crate::listing::document::Dialect;
use crate::listing::format::fit;
use crate::listing::text::unit_index;
use crate::listing::{Failure, complain, print, query};
use crate::options::{Arg, HelpForm, Opt, Parsed, Spec, also, env, flag, opt};
use fields::{AcctField, FIELDS, find};
use filter::RowConditions;
use jiff::Zoned;
use muster_model::accounts::NORMAL;
use muster_model::refusal::RefusalCode;
use muster_proto::acct::AcctJob;

/// sacct.
pub(crate) static SPEC: Spec = Spec {
    name: "sacct",
    about: "Shows jobs of the accounting store: by default one's own of today.",
    operands: "",
    form: HelpForm::Values(""),
    options: OPTIONS,
    variables: &[("SACCT_FORMAT", "format")],
    notes: "\
valid start/end time formats are...
       HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY], MM.DD[.YY], YYYY-MM-DD[THH:MM[:SS]], today, midnight, noon,
       fika, teatime, now[{+|-}COUNT[seconds|minutes|hours|days|weeks]]
",
};

const NO_FEDERATION: &str = "clusters do not share jobs: those of this cluster are listed";

static OPTIONS: &[Opt] = &[
    opt("accounts", "LIST", "jobs of these accounts").short('A'),
    flag("allclusters", "jobs of all clusters that are known").short('L'),
    flag("allocations", "jobs without their steps").short('X'),
    flag("allusers", "everybody's jobs").short('a'),
    opt(
        "associations",
        "LIST",
        "jobs of these associations, by the numbers that sacctmgr shows",
    )
    .short('x'),
    flag("batch-script", "the scripts of the jobs that -j names").short('B'),
    flag("brief", "JobID, State and ExitCode").short('b'),
    opt("clusters", "LIST", "jobs of these clusters, or of all").short('M'),
    also("clusters", "cluster", Arg::Required),
    flag("completion", "records of the job completion plugin")
        .short('c')
        .partly("ends as Slurm without JobCompType does: there are no such records"),
    opt(
        "constraints",
        "LIST",
        "jobs that asked for all of these features",
    )
    .short('C'),
    opt("delimiter", "TEXT", "between the columns of -p and -P"),
    flag("duplicates", "every run of requeued jobs").short('D'),
    opt("endtime", "TIME", "jobs before this time").short('E'),
    flag("env-vars", "the environments of the jobs that -j names"),
    flag("federation", "jobs of all clusters of a federation").stored(NO_FEDERATION),
    opt(
        "file",
        "FILE",
        "read this file of the job completion plugin",
    )
    .short('f')
    .refused("there is no such file; leave it out and the accounting store is read"),
    opt("flags", "LIST", "jobs that were started in these ways")
        .short('F')
        .refused("it is not kept which part of the scheduler started a job"),
    opt(
        "format",
        "LIST",
        "these columns; name%20 sets a width, name%-20 pads on the right",
    )
    .short('o'),
    also("format", "fields", Arg::Required),
    opt("gid", "LIST", "jobs of these groups").short('g'),
    also("gid", "group", Arg::Required),
    flag("help", "print this help").short('h'),
    flag("helpformat", "names of the columns").short('e'),
    opt(
        "jobs",
        "LIST",
        "these jobs: 12, 12_3 (task 3 of array 12), 12+1 (component 1 of job 12), 12.0 (a step), 12.batch",
    )
    .short('j'),
    also("jobs", "job", Arg::Required),
    opt("json", "VERSION", "as JSON; --json=list names the versions").optional(),
    flag("local", "jobs of this cluster only").stored(NO_FEDERATION),
    flag("long", "many columns").short('l'),
    opt("name", "LIST", "jobs of these names"),
    also("name", "names", Arg::Required),
    also("name", "jobname", Arg::Required),
    opt("ncpus", "MIN[-MAX]", "jobs that had so many CPUs").short('I'),
    opt("nnodes", "MIN[-MAX]", "jobs that had so many nodes").short('i'),
    flag("noconvert", "used memory in bytes, other in megabytes"),
    opt(
        "nodelist",
        "HOSTLIST",
        "jobs that ran on any of these nodes",
    )
    .short('N'),
    flag("noheader", "no lines above the columns").short('n'),
    flag("parsable", "columns separated by '|', and one at the end").short('p'),
    flag("parsable2", "columns separated by '|'").short('P'),
    opt("partition", "LIST", "jobs in these partitions").short('r'),
    opt("qos", "LIST", "jobs of these QOS").short('q'),
    opt("reason", "LIST", "jobs that waited for these reasons").short('R'),
    opt("starttime", "TIME", "jobs after this time").short('S'),
    opt(
        "state",
        "LIST",
        "jobs that were in these states in the time asked for",
    )
    .short('s'),
    also("state", "states", Arg::Required),
    opt(
        "timelimit-max",
        "TIME",
        "jobs with a limit of no more than this",
    )
    .short('K'),
    opt(
        "timelimit-min",
        "TIME",
        "jobs with a limit of this, or from this to -K",
    )
    .short('k'),
    flag(
        "truncate",
        "start and end no further than the time asked for",
    )
    .short('T'),
    opt("user", "LIST", "jobs of these users, by name or number").short('u'),
    also("user", "uid", Arg::Required),
    opt("units", "KMGTP", "memory in this unit"),
    flag("usage", "print a short summary"),
    flag("use-local-uid", "names of users from this host")
        .stored("names always come from the host that submitted"),
    flag("verbose", "say what is asked").short('v'),
    flag("version", "print the version").short('V'),
    opt("wckeys", "LIST", "jobs with these keys").short('W'),
    opt("whole-hetjob", "yes|no", "all parts of heterogeneous jobs")
        .optional(),
    opt("yaml", "VERSION", "as YAML").optional(),
];

const DEFAULT: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";
const BRIEF: &str = "jobid,state,exitcode";
const LONG: &str = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,\
    maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,\
    elapsed,state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,\
    maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,\
    alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,\
    tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,\
    tresusageouttot";

/// Separation of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Separation {
    /// Fixed widths.
    #[default]
    Widths,
    /// `-p`.
    WithLast,
    /// `-P`.
    Between,
}

/// The options of sacct.
#[derive(Debug, Default)]
struct Options {
    conditions: RowConditions,
    format: Option<String>,
    /// The columns are of the command line.
    is_format_given: bool,
    brief: bool,
    long: bool,
    no_header: bool,
    separation: Separation,
    delimiter: Option<String>,
    truncate: bool,
    shown: AmountStyle,
    scripts: bool,
    environments: bool,
    verbose: bool,
    document: Option<Dialect>,
    clusters: Option<String>,
    /// Numbers of associations.
    associations: Vec<u32>,
}

/// Runs sacct.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some(text) = information(&parsed) {
        print(&text);
        return Ok(());
    }
    let mut options = Options::new(parsed)?;
    let is_document = options.document.is_some();
    let clusters = ClusterSelection::of_listing("sacct", options.clusters.as_deref(), is_document)?;
    clusters.each(|is_first| {
        // One heading is for all.
        options.no_header |= !is_first;
        once(&options)
    })
}

fn once(options: &Options) -> Result<(), Failure> {
    let columns = options.columns()?;
    let now = Zoned::now();
    let mut question = options
        .conditions
        .to_query(&now, nix::unistd::getuid().as_raw())?;
    let mut client = Client::connect().map_err(failed)?;
    if options.verbose {
        // Slurm's line for a cluster with accounting; the request itself is no text for users.
        complain(
            "sacct: accounting_storage/slurmdbd: init: Accounting storage SLURMDBD plugin loaded",
        );
    }
    check_qos(&mut client, &options.conditions.query.qos)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let asked = match options.associations.is_empty() {
        true => None,
        false => Some(query::accounts(&mut client).map_err(failed)?.accounts),
    };
    if let (Some(accounts), true) = (&asked, question.accounts.is_empty()) {
        question.accounts = associations::accounts_of(accounts, &options.associations);
    }
    let (mut jobs, at, _) = query::accounting(&mut client, question).map_err(failed)?;
    if let Some(accounts) = &asked {
        jobs.retain(|job| associations::is_of(accounts, &options.associations, job));
    }
    ctx.now = at;
    if columns.iter().any(|(field, _)| field.name == "QOSRAW") {
        let qos = query::accounts(&mut client).map_err(failed)?.accounts.qos;
        ctx.qos_ids = qos.into_values().map(|qos| (qos.name, qos.id)).collect();
    }
    in_order(&mut jobs);
    if options.scripts || options.environments {
        return match options.scripts {
            true => texts::scripts(&mut client, &jobs),
            false => texts::environments(&mut client, &jobs),
        };
    }
    print(&options.render(&columns, &jobs, &ctx, &now)?);
    Ok(())
}

/// `--whole-hetjob`, which is yes where nothing is said.
fn parse_whole_het(value: &str) -> Result<bool, Failure> {
    match value.to_ascii_lowercase().as_str() {
        "" | "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Failure::new(format!(
            "sacct: error: Invalid --whole-hetjob value \"{value}\". Valid values: [yes|no]."
        ))),
    }
}

/// Refuses unknown QOS: an empty listing would look like an answer.
fn check_qos(client: &mut Client, asked: &[String]) -> Result<(), Failure> {
    if asked.is_empty() {
        return Ok(());
    }
    let answer = query::accounts(client).map_err(failed)?;
    let mut qos: Vec<_> = answer.accounts.qos.values().collect();
    qos.sort_by_key(|qos| qos.id);
    let mut known: Vec<&str> = qos.iter().map(|qos| qos.name.as_str()).collect();
    if !known.contains(&NORMAL) {
        known.insert(0, NORMAL);
    }
    let is_known = |name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    match asked.iter().find(|name| !is_known(name)) {
        Some(unknown) => Err(Failure::new(format!(
            "sacct: error: You gave a bad qos '{unknown}'. Valid QOS's are {}\nsacct: fatal: problem processing qos list",
            known.join(",")
        ))),
        None => Ok(()),
    }
}

/// Tasks of an array stand together, by index, before those that have no record of their own.
pub(crate) fn in_order(jobs: &mut [AcctJob]) {
    jobs.sort_by_key(|job| match (job.array, &job.array_pending) {
        (Some(task), _) => (task.array, task.index),
        (None, Some(_)) => (job.id, u32::MAX),
        (None, None) => (job.id, 0),
    });
}

/// Clients switch to squeue when they read that accounting is off.
fn failed(error: ConnectError) -> Failure {
    match error {
        ConnectError::Refused(refusal) if refusal.code == RefusalCode::AccountingDisabled => {
            Failure::new(refusal.code.text())
        }
        other => Failure::new(format!("sacct: error: {other}")),
    }
}

fn information(parsed: &Parsed) -> Option<String> {
    parsed.options.iter().find_map(|(name, value)| match *name {
        "help" => Some(SPEC.help()),
        "usage" => Some(SPEC.usage()),
        "version" => Some(format!("slurm {}\n", crate::SLURM_VERSION)),
        "helpformat" => Some(help_format()),
        "json" | "yaml" if value.as_deref() == Some("list") => Some(Dialect::list()),
        _ => None,
    })
}

/// Names of the columns, four in a line.
fn help_format() -> String {
    names_in_rows(&FIELDS.iter().map(|f| f.name).collect::<Vec<_>>())
}

/// Names, four in a line.
pub(crate) fn names_in_rows(names: &[&str]) -> String {
    let mut text = String::new();
    for names in names.chunks(4) {
        for (i, name) in names.iter().enumerate() {
            if i > 0 {
                text.push(' ');
            }
            text.push_str(&format!("{name:<19}"));
        }
        text.push('\n');
    }
    text
}

impl Options {
    fn new(parsed: Parsed) -> Result<Options, Failure> {
        if !parsed.operands.is_empty() {
            let mut text = "sacct: error: Unknown arguments:".to_owned();
            for operand in &parsed.operands {
                text.push_str(&format!("\nsacct: error:  {operand}"));
            }
            return Err(Failure::new(text));
        }
        let mut options = Options {
            format: env("SACCT_FORMAT"),
            ..Options::default()
        };
        for (name, value) in parsed.options {
            options.set(name, value.unwrap_or_default())?;
        }
        if options.scripts && options.environments {
            return Err(Failure::new(
                "sacct: fatal: Options --batch-script and --env-vars are mutually exclusive",
            ));
        }
        if options.environments && options.conditions.rows.is_empty() {
            return Err(Failure::new(
                "sacct: fatal: When requesting job environment you must also request specific jobs with the '-j' option.",
            ));
        }
        if options.scripts && options.conditions.rows.is_empty() {
            return Err(Failure::new(
                "sacct: fatal: When requesting job scripts you must also request specific jobs with the '-j' option.",
            ));
        }
        Ok(options)
    }

    fn set(&mut self, name: &'static str, value: String) -> Result<(), Failure> {
        let conditions = &mut self.conditions;
        let query = &mut conditions.query;
        match name {
            "accounts" => query.accounts = filter::texts(&value),
            "allocations" => query.allocations_only = true,
            "allusers" => conditions.everyone = true,
            "associations" => self.associations = associations::parse(&value)?,
            "batch-script" => self.scripts = true,
            "env-vars" => self.environments = true,
            "brief" => self.brief = true,
            "clusters" => self.clusters = Some(value),
            "allclusters" => self.clusters = Some("all".to_owned()),
            "completion" => return Err(Failure::new("Slurm job completion is disabled")),
            "constraints" => conditions.constraints = filter::texts(&value),
            "delimiter" => self.delimiter = Some(value),
            "duplicates" => query.duplicates = true,
            "endtime" => conditions.end = Some(value),
            "format" => (self.format, self.is_format_given) = (Some(value), true),
            "gid" => query.gids = filter::parse_groups(&value)?,
            "jobs" => filter::add_rows(&mut conditions.rows, &value)?,
            "json" | "yaml" => {
                self.document = Some(Dialect::parse("sacct", name == "yaml", &value)?)
            }
            "long" => self.long = true,
            "name" => query.names = filter::texts(&value),
            "timelimit-min" => conditions.limits.0 = Some(filter::parse_limit(&value)?),
            "timelimit-max" => conditions.limits.1 = Some(filter::parse_limit(&value)?),
            "ncpus" => conditions.cpus = Some(filter::parse_range("cpu", &value)?),
            "nnodes" => conditions.nodes = Some(filter::parse_range("node", &value)?),
            "noconvert" => self.shown.keep_units = true,
            "nodelist" => {
                query.nodes = muster_model::hostlist::parse(&value)
                    .map_err(|e| Failure::new(format!("sacct: error: {e}")))?;
            }
            "noheader" => self.no_header = true,
            "parsable" => self.separation = Separation::WithLast,
            "parsable2" => self.separation = Separation::Between,
            "partition" => query.partitions = filter::texts(&value),
            "qos" => query.qos = filter::texts(&value),
            "reason" => conditions.reasons = filter::texts(&value),
            "starttime" => conditions.start = Some(value),
            "state" => conditions.set_states(&value)?,
            "truncate" => self.truncate = true,
            "user" => query.uids = filter::parse_users(&value)?,
            "units" => {
                let letter = value.chars().next().filter(|_| value.len() == 1);
                let unit = letter.and_then(unit_index);
                self.shown.unit = Some(unit.ok_or_else(|| {
                    Failure::new(format!(
                        "sacct: error: Invalid unit type '{value}'. Possible options are 'KMGTP'\nsacct: fatal: Invalid unit type"
                    ))
                })?);
            }
            "whole-hetjob" => conditions.whole_het = Some(parse_whole_het(&value)?),
            "wckeys" => query.wckeys = filter::texts(&value),
            "verbose" => self.verbose = true,
            other => {
                return Err(Failure::new(format!(
                    "sacct: error: option --{other} is not implemented"
                )));
            }
        }
        Ok(())
    }

    fn columns(&self) -> Result<Vec<(&'static AcctField, i32)>, Failure> {
        let more = match (self.long, self.brief) {
            (true, _) => LONG,
            (_, true) => BRIEF,
            _ => "",
        };
        // Columns of one's own come first; those of the environment make way.
        let own = self
            .format
            .as_deref()
            .filter(|_| self.is_format_given || more.is_empty());
        let format = match (own, more) {
            (Some(own), "") => own.to_owned(),
            (Some(own), more) => format!("{own},{more}"),
            (None, "") => DEFAULT.to_owned(),
            (None, more) => more.to_owned(),
        };
        let mut columns = Vec::new();
        for word in format.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let (name, width) = match word.split_once('%') {
                Some((name, width)) => (name, Some(width)),
                None => (word, None),
            };
            if name.eq_ignore_ascii_case("all") {
                columns.extend(FIELDS.iter().map(|f| (f, f.width)));
                continue;
            }
            let invalid =
                || Failure::new(format!("sacct: error: Invalid field requested: \"{name}\""));
            let field = find(name).ok_or_else(invalid)?;
            let width = match width {
                Some(width) => width
                    .parse()
                    .ok()
                    .filter(|w: &i32| w.abs() < 1 << 16)
                    .ok_or_else(invalid)?,
                None => field.width,
            };
            columns.push((field, if width == 0 { field.width } else { width }));
        }
        Ok(columns)
    }

    fn render(
        &self,
        columns: &[(&'static AcctField, i32)],
        jobs: &[AcctJob],
        ctx: &Ctx,
        now: &Zoned,
    ) -> Result<String, Failure> {
        let mut shown = self.shown;
        if self.truncate {
            shown.window = Some(self.conditions.window(now)?);
        }
        let mut out = String::with_capacity(jobs.len() * 256);
        let row = |job, step| AcctRow { job, step, shown };
        if let Some(dialect) = self.document {
            let rows: Vec<AcctRow<'_>> = jobs
                .iter()
                .map(|job| row(job, None))
                .filter(|r| self.conditions.wants(r))
                .collect();
            document::write(&mut out, dialect, &rows, ctx);
            return Ok(out);
        }
        if !self.no_header {
            self.header(&mut out, columns);
        }
        for job in jobs {
            let steps = job
                .steps
                .iter()
                .filter(|_| !self.conditions.query.allocations_only);
            let rows = std::iter::once(None).chain(steps.map(Some));
            for row in rows
                .map(|step| row(job, step))
                .filter(|r| self.conditions.wants(r))
            {
                self.line(&mut out, columns, |(field, _), out| {
                    (field.render)(&row, ctx, out)
                });
            }
        }
        Ok(out)
    }

    fn header(&self, out: &mut String, columns: &[(&'static AcctField, i32)]) {
        self.line(out, columns, |(field, width), out| {
            // A header is cut without a mark.
            let most = match self.separation {
                Separation::Widths => width.unsigned_abs() as usize,
                Separation::WithLast | Separation::Between => usize::MAX,
            };
            out.extend(field.name.chars().take(most));
        });
        if self.separation == Separation::Widths {
            for (_, width) in columns {
                out.extend(std::iter::repeat_n('-', width.unsigned_abs() as usize));
                out.push(' ');
            }
            out.push('\n');
        }
    }

    fn line(
        &self,
        out: &mut String,
        columns: &[(&'static AcctField, i32)],
        write: impl Fn(&(&'static AcctField, i32), &mut String),
    ) {
        let delimiter = self.delimiter.as_deref().unwrap_or("|");
        for (i, column) in columns.iter().enumerate() {
            if self.separation == Separation::Between && i > 0 {
                out.push_str(delimiter);
            }
            let start = out.len();
            write(column, out);
            match self.separation {
                Separation::Widths => {
                    match column.0.name {
                        // Times are cut without a mark.
                        "Submit" | "Eligible" | "Start" | "End" => {
                            fit(
                                out,
                                start,
                                column.1.unsigned_abs() as usize,
                                column.1 > 0,
                                true,
                            );
                        }
                        _ => cell(out, start, column.1),
                    }
                    out.push(' ');
                }
                Separation::WithLast => out.push_str(delimiter),
                Separation::Between => {}
            }
        }
        out.push('\n');
    }
}

/// Pads, or cuts and marks the cut with a plus.
pub(crate) fn cell(out: &mut String, start: usize, width: i32) {
    let columns = width.unsigned_abs() as usize;
    let cut = out[start..].chars().nth(columns).is_some();
    fit(out, start, columns, width > 0, true);
    if cut && out.pop().is_some() {
        out.push('+');
    }
}

#[cfg(test)]
pub(crate) mod tests;
