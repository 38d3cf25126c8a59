//! squeue: jobs and steps of the queue. The controller answers with records; selection, order and columns are made
//! here.

mod pick;
mod sort;

use super::context::{Ctx, uid_of};
use super::document::Dialect;
use super::format::{Complaint, Layout};
use super::job::JobRow;
use super::options::{Opt, Parsed, Value, alias, env, long, opt, parse};
use super::query::Jobs;
use super::states::{self, StateWish};
use super::step_fields::StepRow;
use super::{Failure, complain, failed_call, job_document, job_fields, print, query, step_fields};
use crate::connect::Client;
use std::time::Duration;

static OPTIONS: &[Opt] = &[
    opt('A', "account", Value::Yes),
    opt('a', "all", Value::No),
    opt('r', "array", Value::No),
    long("array-unique", Value::No),
    alias(opt('M', "clusters", Value::Yes), &["cluster"]),
    long("federation", Value::No),
    opt('o', "format", Value::Yes),
    opt('O', "Format", Value::Yes),
    opt('h', "noheader", Value::No),
    long("help", Value::No),
    long("hide", Value::No),
    opt('i', "iterate", Value::Yes),
    alias(opt('j', "jobs", Value::Maybe), &["job"]),
    long("json", Value::Maybe),
    opt('L', "licenses", Value::Yes),
    long("local", Value::No),
    opt('l', "long", Value::No),
    long("me", Value::No),
    alias(opt('n', "name", Value::Yes), &["names"]),
    long("noconvert", Value::No),
    alias(opt('w', "nodelist", Value::Yes), &["nodes", "node"]),
    alias(opt('p', "partition", Value::Yes), &["partitions"]),
    opt('P', "priority", Value::No),
    opt('q', "qos", Value::Yes),
    opt('R', "reservation", Value::Yes),
    long("sibling", Value::No),
    opt('S', "sort", Value::Yes),
    long("start", Value::No),
    alias(opt('t', "states", Value::Yes), &["state"]),
    alias(opt('s', "steps", Value::Maybe), &["step"]),
    long("usage", Value::No),
    alias(opt('u', "user", Value::Yes), &["users"]),
    opt('v', "verbose", Value::No),
    opt('V', "version", Value::No),
    long("yaml", Value::Maybe),
];

const USAGE: &str = "\
Usage: squeue [-A accounts] [-i seconds] [-j jobs] [-L licenses] [-n names] [-o format] [-O Format]
              [-p partitions] [-q qos] [-R reservation] [-s [steps]] [-S sort keys] [-t states] [-u users]
              [-w nodes] [--json[=version]] [--yaml[=version]] [--me] [--start] [-ahlrPvV]
";

const HELP: &str = "\
Usage: squeue [OPTIONS]
Shows jobs that wait and run, and with --states those that ended a short while ago.

  -A, --account=LIST        jobs of these accounts
  -a, --all                 jobs in hidden partitions too
  -r, --array               a line for each task of an array
  -M, --clusters=NAME       this cluster's name, or 'all'
  -o, --format=FORMAT       columns as %[[.]size]letter, see squeue(1)
  -O, --Format=LIST         columns as name[:[.]size|:suffix], see squeue(1)
  -h, --noheader            no line above the columns
      --hide                no jobs in hidden partitions (the default)
  -i, --iterate=SECONDS     again and again
  -j, --jobs=LIST           these jobs: 12, 12_3 (task 3 of array 12), 12_[1-3]
      --json[=VERSION]      as JSON; --json=list names the versions
  -L, --licenses=LIST       jobs that ask for these licenses
  -l, --long                more columns
      --me                  my own jobs
  -n, --name=LIST           jobs of these names
      --noconvert           memory always in megabytes
  -w, --nodelist=HOSTLIST   jobs on these nodes
  -p, --partition=LIST      jobs in these partitions
  -P, --priority            a line for each partition that a job waits in
  -q, --qos=LIST            jobs of these QOS
  -R, --reservation=NAME    jobs in this reservation
  -s, --steps[=LIST]        steps instead of jobs: 12.0, 12_3.batch
  -S, --sort=KEYS           order by letters of --format, each with + or - in front
      --start               expected starts of waiting jobs
  -t, --states=LIST         jobs in these states, long or short names, or 'all'
  -u, --user=LIST           jobs of these users, by name or number
      --usage               the options in short
  -v, --verbose             say what is asked
  -V, --version             the version
      --yaml[=VERSION]      as YAML
      --federation, --local, --sibling   no effect: a cluster here is in no federation
";

const JOBS: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const JOBS_LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const JOBS_START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
const STEPS: &str = "%.15i %.8j %.9P %.8u %.9M %N";

/// Which jobs, which columns.
#[derive(Debug, Default)]
pub(crate) struct Options {
    wishes: pick::Wishes,
    letters: Option<String>,
    names: Option<String>,
    no_header: bool,
    iterate_s: Option<u64>,
    long: bool,
    start: bool,
    steps: bool,
    sort: Option<String>,
    keep_units: bool,
    split_arrays: bool,
    split_partitions: bool,
    cluster_line: bool,
    verbose: bool,
    document: Option<Dialect>,
}

/// Runs squeue.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = parse("squeue", OPTIONS, args)?;
    if let Some(text) = information(&parsed) {
        print(&text);
        return Ok(());
    }
    let options = Options::new(parsed)?;
    loop {
        once(&options)?;
        let Some(seconds) = options.iterate_s else {
            return Ok(());
        };
        print("\n");
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

fn information(parsed: &Parsed) -> Option<String> {
    parsed.options.iter().find_map(|(name, value)| match *name {
        "help" => Some(HELP.to_owned()),
        "usage" => Some(USAGE.to_owned()),
        "version" => Some(format!("slurm {}\n", super::SLURM_VERSION)),
        "json" | "yaml" if value.as_deref() == Some("list") => Some(Dialect::list()),
        _ => None,
    })
}

impl Options {
    fn new(parsed: Parsed) -> Result<Options, Failure> {
        let mut options = Options::default();
        options.environment()?;
        let mut operands = parsed.operands.into_iter();
        for (name, value) in parsed.options {
            // `-j 12` and `-s 12.0`: the value is optional, but a word that follows is meant as one.
            let value = match name {
                "jobs" | "steps" if value.is_none() => operands.next(),
                _ => value,
            };
            options.set(name, value.unwrap_or_default())?;
        }
        if let Some(operand) = operands.next() {
            return Err(Failure::new(format!(
                "squeue: error: Unrecognized option: {operand}\n{}",
                USAGE.trim_end()
            )));
        }
        Ok(options)
    }

    fn environment(&mut self) -> Result<(), Failure> {
        for (variable, option) in [
            ("SQUEUE_ACCOUNT", "account"),
            ("SQUEUE_ALL", "all"),
            ("SQUEUE_ARRAY", "array"),
            ("SQUEUE_NAMES", "name"),
            ("SQUEUE_FORMAT", "format"),
            ("SQUEUE_FORMAT2", "Format"),
            ("SQUEUE_LICENSES", "licenses"),
            ("SQUEUE_PARTITION", "partition"),
            ("SQUEUE_PRIORITY", "priority"),
            ("SQUEUE_QOS", "qos"),
            ("SQUEUE_SORT", "sort"),
            ("SQUEUE_STATES", "states"),
            ("SQUEUE_USERS", "user"),
            ("SLURM_CLUSTERS", "clusters"),
        ] {
            if let Some(value) = env(variable) {
                self.set(option, value)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &'static str, value: String) -> Result<(), Failure> {
        let list = || -> Vec<String> { words(&value).map(str::to_owned).collect() };
        let wishes = &mut self.wishes;
        match name {
            "account" => wishes.accounts = list(),
            "all" => wishes.hidden = true,
            "hide" => wishes.hidden = false,
            "array" => self.split_arrays = true,
            "clusters" => self.cluster_line = super::this_cluster("squeue", &value)?,
            "format" => (self.letters, self.names) = (Some(value), None),
            "Format" => (self.names, self.letters) = (Some(value), None),
            "noheader" => self.no_header = true,
            "iterate" => self.iterate_s = Some(interval(&value)?),
            "jobs" => wishes.jobs = Some(pick::parse_jobs(&value)?),
            "json" | "yaml" => {
                self.document = Some(Dialect::parse("squeue", name == "yaml", &value)?)
            }
            "licenses" => wishes.licenses = list(),
            "long" => self.long = true,
            "me" => wishes.uids = Some(vec![nix::unistd::getuid().as_raw()]),
            "name" => wishes.names = list(),
            "noconvert" => self.keep_units = true,
            "nodelist" => wishes.nodes = Some(pick::parse_nodes(&value)?),
            "partition" => wishes.partitions = list(),
            "priority" => self.split_partitions = true,
            "qos" => wishes.qos = list(),
            "reservation" => wishes.reservation = Some(value),
            "sort" => self.sort = Some(value),
            "start" => self.start = true,
            "states" => wishes.states = parse_states(&value)?,
            "steps" => {
                self.steps = true;
                wishes.steps = pick::parse_steps(&value)?;
            }
            "user" => wishes.uids = Some(parse_users(&value)),
            "verbose" => self.verbose = true,
            "array-unique" => {
                return Err(Failure::new(
                    "squeue: error: --array-unique is not implemented; use -r for a line for each task",
                ));
            }
            // A cluster here is in no federation, so its own jobs are all there is.
            _ => {}
        }
        Ok(())
    }

    /// Keys to sort by.
    fn keys(&self) -> &str {
        match (&self.sort, self.steps, self.start) {
            (Some(keys), _, _) => keys,
            (None, true, _) => "P,i",
            (None, _, true) => "S",
            _ => "P,t,-p",
        }
    }
}

/// Items of a comma separated list.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|w| !w.is_empty())
}

fn interval(value: &str) -> Result<u64, Failure> {
    match value.parse() {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(Failure::new(format!("squeue: error: --iterate={value}\n"))),
    }
}

/// The states, or none for all of them.
fn parse_states(list: &str) -> Result<Option<Vec<StateWish>>, Failure> {
    let mut wishes = Vec::new();
    for word in words(list) {
        if word.eq_ignore_ascii_case("all") {
            return Ok(Some(Vec::new()));
        }
        wishes.push(states::parse(word).ok_or_else(|| {
            Failure::new(format!(
                "squeue: error: Invalid job state specified: {word}\nsqueue: error: Valid job states include: {}\n",
                states::names()
            ))
        })?);
    }
    Ok(Some(wishes))
}

/// Users by number. Unknown ones are named and match nobody, as in Slurm.
fn parse_users(list: &str) -> Vec<u32> {
    let mut uids = Vec::new();
    for word in words(list) {
        match uid_of(word) {
            Some(uid) => uids.push(uid),
            None => complain(&format!("squeue: error: Invalid user: {word}")),
        }
    }
    uids
}

fn once(options: &Options) -> Result<(), Failure> {
    let call = if options.steps {
        "slurm_get_job_steps"
    } else {
        "slurm_load_jobs"
    };
    let failed = failed_call(call);
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    ctx.keep_units = options.keep_units;
    let filter = options
        .wishes
        .filter(options.start, options.document.is_some());
    if options.verbose {
        complain(&format!(
            "squeue: asking {} for {filter:?}",
            client.endpoint.socket.display()
        ));
    }
    let jobs = query::jobs(&mut client, &mut ctx, filter).map_err(&failed)?;
    if options.wishes.is_one_unknown(&jobs) {
        return Err(Failure::new(format!(
            "{call} error: Invalid job id specified"
        )));
    }
    let layouts = Layouts::new(options);
    let needs_nodes = options.wishes.nodes.is_some()
        || (layouts.shows_tres() || options.document.is_some())
            && jobs
                .jobs
                .iter()
                .any(|job| JobRow::new(job, None).needs_nodes(&ctx));
    if needs_nodes {
        query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    }
    options.wishes.check_nodes(&ctx)?;
    print(&render(options, &layouts, &jobs, &ctx)?);
    Ok(())
}

/// The columns.
struct Layouts {
    jobs: Layout<job_fields::Jobs>,
    steps: Layout<step_fields::Steps>,
}

impl Layouts {
    fn new(options: &Options) -> Layouts {
        let complaint = Complaint {
            letter: "squeue: error: Invalid job format specification: ",
            name: "squeue: error: Invalid job format specification: ",
        };
        let step_complaint = Complaint {
            letter: "squeue: error: Invalid job step format specification: ",
            name: "squeue: error: Invalid job step format specification: ",
        };
        let default = match (options.start, options.long) {
            (true, _) => JOBS_START,
            (_, true) => JOBS_LONG,
            _ => JOBS,
        };
        let mut jobs = Layout::letters("", job_fields::FIELDS, &complaint);
        let mut steps = Layout::letters("", step_fields::FIELDS, &step_complaint);
        match (&options.names, &options.letters, options.steps) {
            (Some(names), _, false) => jobs = Layout::names(names, job_fields::FIELDS, &complaint),
            (None, letters, false) => {
                let format = letters.as_deref().unwrap_or(default);
                jobs = Layout::letters(format, job_fields::FIELDS, &complaint);
            }
            (Some(names), _, true) => {
                steps = Layout::names(names, step_fields::FIELDS, &step_complaint)
            }
            (None, letters, true) => {
                let format = letters.as_deref().unwrap_or(STEPS);
                steps = Layout::letters(format, step_fields::FIELDS, &step_complaint);
            }
        }
        Layouts { jobs, steps }
    }

    fn shows_tres(&self) -> bool {
        self.jobs.shows(&["tres-alloc"])
    }
}

/// The listing as text.
fn render(options: &Options, layouts: &Layouts, jobs: &Jobs, ctx: &Ctx) -> Result<String, Failure> {
    let mut out = String::with_capacity(jobs.jobs.len() * 128 + 256);
    let rows = pick::rows(options, jobs, ctx);
    if let Some(dialect) = options.document {
        job_document::write(&mut out, dialect, &rows, ctx);
        return Ok(out);
    }
    if !options.no_header && (options.long || options.iterate_s.is_some() || options.verbose) {
        out.push_str(&ctx.stamp());
        out.push('\n');
    }
    if options.cluster_line && !options.no_header {
        out.push_str(&format!("CLUSTER: {}\n", ctx.cluster));
    }
    if options.steps {
        let mut steps = pick::steps(options, &rows);
        sort::steps(&mut steps, options.keys(), ctx)?;
        if !options.no_header {
            layouts.steps.header(&mut out);
        }
        steps
            .iter()
            .for_each(|row: &StepRow<'_>| layouts.steps.row(&mut out, row, ctx));
        return Ok(out);
    }
    let rows = sort::jobs(rows, options.keys(), ctx)?;
    if !options.no_header {
        layouts.jobs.header(&mut out);
    }
    rows.iter()
        .for_each(|row| layouts.jobs.row(&mut out, row, ctx));
    Ok(out)
}

#[cfg(test)]
#[path = "squeue_tests.rs"]
mod tests;
