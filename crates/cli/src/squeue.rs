//! squeue: jobs and steps of the queue. The controller answers with records; selection, order and columns are made
//! here.

mod chunked_vec;
mod listing_builder;
mod pick;
mod sort;

use crate::clusters::ClusterSelection;
use crate::connect::Client;
use crate::listing::context::{Ctx, uid_of};
use crate::listing::document::{self, Dialect};
use crate::listing::format::{Complaint, Layout};
use crate::listing::job::JobRow;
use crate::listing::query::Jobs;
use crate::listing::states::{self, JobStateFilter};
use crate::listing::{
    Failure, complain, failed_call, job_document, job_fields, own_step, print, query, step_fields,
};
use crate::options::{Arg, HelpForm, Opt, Parsed, Spec, also, env, flag, opt};
use listing_builder::ListingBuilder;
use muster_model::listing_codec::CompactListing;
use std::time::Duration;

/// squeue.
pub(crate) static SPEC: Spec = Spec {
    name: "squeue",
    about: "Shows jobs that wait and run, and with --states those that ended a short while ago.",
    operands: "",
    form: HelpForm::Options,
    options: OPTIONS,
    variables: VARIABLES,
    notes: "",
};

const NO_FEDERATION: &str = "a cluster here is in no federation";

static OPTIONS: &[Opt] = &[
    opt("account", "LIST", "jobs of these accounts").short('A'),
    flag("all", "jobs in hidden partitions too").short('a'),
    flag("array", "a line for each task of an array").short('r'),
    flag("array-unique", "a line for each array").stored("arrays are one line unless -r is given"),
    opt(
        "clusters",
        "LIST",
        "of these clusters, or of all that are known",
    )
    .short('M'),
    also("clusters", "cluster", Arg::Required),
    flag("federation", "jobs of all clusters of a federation").stored(NO_FEDERATION),
    opt("format", "FORMAT", "columns as %[[.]size]letter").short('o'),
    opt("Format", "LIST", "columns as name[:[.]size|:suffix]").short('O'),
    flag("noheader", "no line above the columns").short('h'),
    flag("help", "print this help"),
    flag("hide", "no jobs in hidden partitions (the default)"),
    opt("iterate", "SECONDS", "again and again").short('i'),
    opt(
        "jobs",
        "LIST",
        "these jobs: 12, 12_3 (task 3 of array 12), 12_[1-3]",
    )
    .short('j')
    .optional(),
    also("jobs", "job", Arg::Optional),
    opt("json", "VERSION", "as JSON; --json=list names the versions").optional(),
    opt("licenses", "LIST", "jobs that ask for these licenses").short('L'),
    flag("local", "jobs of this cluster only").stored(NO_FEDERATION),
    flag("long", "more columns").short('l'),
    flag("me", "one's own jobs"),
    opt("name", "LIST", "jobs of these names").short('n'),
    also("name", "names", Arg::Required),
    flag("noconvert", "memory always in megabytes"),
    opt("nodelist", "HOSTLIST", "jobs on these nodes").short('w'),
    also("nodelist", "nodes", Arg::Required),
    also("nodelist", "node", Arg::Required),
    opt("partition", "LIST", "jobs in these partitions").short('p'),
    also("partition", "partitions", Arg::Required),
    flag("priority", "a line for each partition that a job waits in").short('P'),
    opt("qos", "LIST", "jobs of these QOS").short('q'),
    opt("reservation", "NAME", "jobs in this reservation").short('R'),
    opt(
        "running-over",
        "TIME",
        "jobs that have run for longer than this",
    ),
    opt(
        "running-under",
        "TIME",
        "jobs that have run for less than this",
    ),
    flag("sibling", "jobs of a federation's other clusters").stored(NO_FEDERATION),
    opt(
        "sort",
        "KEYS",
        "order by letters of --format, each with + or - in front",
    )
    .short('S'),
    flag("start", "expected starts of waiting jobs"),
    opt(
        "states",
        "LIST",
        "jobs in these states, long or short names, or 'all'",
    )
    .short('t'),
    also("states", "state", Arg::Required),
    opt("steps", "LIST", "steps instead of jobs: 12.0, 12_3.batch")
        .short('s')
        .optional(),
    also("steps", "step", Arg::Optional),
    flag("usage", "print a short summary"),
    opt("user", "LIST", "jobs of these users, by name or number").short('u'),
    also("user", "users", Arg::Required),
    flag("verbose", "say what is asked").short('v'),
    flag("version", "print the version").short('V'),
    opt("yaml", "VERSION", "as YAML").optional(),
];

static VARIABLES: &[(&str, &str)] = &[
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
];

const JOBS: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const JOBS_LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const JOBS_START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
const STEPS: &str = "%.15i %.8j %.9P %.8u %.9M %N";

/// Which jobs, which columns.
#[derive(Debug, Default)]
pub(crate) struct Options {
    conditions: pick::JobConditions,
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
    clusters: Option<String>,
    is_next_cluster: bool,
    verbose: bool,
    document: Option<Dialect>,
}

/// Runs squeue.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some(text) = document::information(&SPEC, &parsed) {
        print(&text);
        return Ok(());
    }
    if parsed.options.iter().any(|(name, _)| *name == "verbose") {
        print(&SPEC.values(&parsed));
    }
    let mut options = Options::new(parsed)?;
    let clusters = ClusterSelection::of_listing(
        "squeue",
        options.clusters.as_deref(),
        options.document.is_some(),
    )?;
    loop {
        clusters.each(|is_first| {
            options.is_next_cluster = !is_first;
            once(&options)
        })?;
        let Some(seconds) = options.iterate_s else {
            return Ok(());
        };
        print("\n");
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

impl Options {
    fn new(parsed: Parsed) -> Result<Options, Failure> {
        let mut options = Options::default();
        options.environment()?;
        let mut operands = parsed.operands.into_iter();
        let bare_jobs = parsed
            .options
            .iter()
            .any(|(n, v)| *n == "jobs" && v.is_none());
        let is_given = |option: &str| parsed.options.iter().any(|(name, _)| *name == option);
        if is_given("long") && is_given("format") {
            return Err(Failure::new(
                "squeue: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            ));
        }
        for (name, value) in parsed.options {
            // `-j 12` and `-s 12.0`: the value is optional, but a word that follows is meant as one; with `-s -j 12`
            // as the job's.
            let value = match name {
                "jobs" if value.is_none() => operands.next(),
                "steps" if value.is_none() && !bare_jobs => operands.next(),
                _ => value,
            };
            options.set(name, value.unwrap_or_default())?;
        }
        if options.start {
            // Expected starts have columns of their own, unless letters say others.
            options.names = None;
        }
        if let Some(operand) = operands.next() {
            return Err(Failure::new(format!(
                "squeue: error: Unrecognized option: {operand}\n{}",
                SPEC.usage().trim_end()
            )));
        }
        Ok(options)
    }

    fn environment(&mut self) -> Result<(), Failure> {
        for (variable, option) in VARIABLES {
            if let Some(value) = env(variable) {
                self.set(option, value)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &'static str, value: String) -> Result<(), Failure> {
        let list = || -> Vec<String> { words(&value).map(str::to_owned).collect() };
        let conditions = &mut self.conditions;
        match name {
            "account" => conditions.accounts = list(),
            "all" => conditions.hidden = true,
            "hide" => conditions.hidden = false,
            "array" => self.split_arrays = true,
            "clusters" => self.clusters = Some(value),
            "format" => (self.letters, self.names) = (Some(value), None),
            "Format" => (self.names, self.letters) = (Some(value), None),
            "noheader" => self.no_header = true,
            "iterate" => self.iterate_s = Some(interval(&value)?),
            // Without a list it is all jobs.
            "jobs" => {
                conditions.jobs = Some(pick::parse_jobs(&value)?).filter(|jobs| !jobs.is_empty())
            }
            "json" | "yaml" => {
                self.document = Some(Dialect::parse("squeue", name == "yaml", &value)?)
            }
            "licenses" => conditions.licenses = list(),
            "long" => self.long = true,
            "me" => conditions.uids = Some(vec![nix::unistd::getuid().as_raw()]),
            "name" => conditions.names = list(),
            "noconvert" => self.keep_units = true,
            "nodelist" => conditions.nodes = Some(pick::parse_nodes(&value)?),
            "partition" => conditions.partitions = list(),
            "priority" => self.split_partitions = true,
            "qos" => conditions.qos = list(),
            "reservation" => conditions.reservation = Some(value),
            "running-over" => conditions.running_over_s = Some(pick::parse_run_time(name, &value)?),
            "running-under" => {
                conditions.running_under_s = Some(pick::parse_run_time(name, &value)?)
            }
            "sort" => self.sort = Some(value),
            "start" => self.start = true,
            "states" => conditions.states = parse_states(&value)?,
            "steps" => {
                self.steps = true;
                conditions.steps = pick::parse_steps(&value)?;
            }
            "user" => conditions.uids = Some(parse_users(&value)),
            "verbose" => self.verbose = true,
            other => {
                return Err(Failure::new(format!(
                    "squeue: error: option --{other} is not implemented"
                )));
            }
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
fn parse_states(list: &str) -> Result<Option<Vec<JobStateFilter>>, Failure> {
    let mut conditions = Vec::new();
    for word in words(list) {
        if word.eq_ignore_ascii_case("all") {
            return Ok(Some(Vec::new()));
        }
        conditions.push(states::parse(word).ok_or_else(|| {
            Failure::new(format!(
                "squeue: error: Invalid job state specified: {word}\nsqueue: error: Valid job states include: {}\n",
                states::names()
            ))
        })?);
    }
    Ok(Some(conditions))
}

/// Users by number. Unknown ones are named and match nobody, as in Slurm.
fn parse_users(list: &str) -> Vec<u32> {
    let mut uids = Vec::new();
    for word in words(list) {
        match uid_of(word) {
            Some(uid) => uids.push(uid),
            None => complain(&format!("squeue: error: Invalid user: {word}\n")),
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
    if options.steps {
        own_step::wait(&mut client).map_err(&failed)?;
    }
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    ctx.keep_units = options.keep_units;
    let layouts = Layouts::new(options);
    let mut filter = options
        .conditions
        .filter(options.start, options.document.is_some());
    // Programs ask for all jobs as a document often: they do not wait for expected starts.
    let named = options.document.is_some() && !filter.ids.is_empty();
    filter.starts = options.start || named || options.document.is_none() && layouts.shows_starts();
    if options.verbose {
        complain(&format!(
            "squeue: asking {} for {filter:?}",
            client.endpoint.socket.display()
        ));
    }
    if options.document.is_none() && options.conditions.nodes.is_none() && !layouts.shows_tres() {
        // Rows are made of records as they come, and the records are not kept.
        let mut builder = ListingBuilder::new(options, &layouts)?;
        let mut jobs = Jobs::default();
        let look = |part: CompactListing, jobs: &mut Jobs, ctx: &Ctx| builder.add(part, jobs, ctx);
        query::jobs_in_parts(&mut client, &mut ctx, filter, &mut jobs, look).map_err(&failed)?;
        options.conditions.check_jobs(&jobs, call)?;
        builder.write(&ctx, print);
        return Ok(());
    }
    let jobs = query::jobs(&mut client, &mut ctx, filter).map_err(&failed)?;
    options.conditions.check_jobs(&jobs, call)?;
    let is_document = options.document.is_some();
    let needs_nodes = options.conditions.nodes.is_some()
        || is_document && jobs.needs_nodes_in_documents()
        || (layouts.shows_tres() || is_document)
            && jobs
                .jobs
                .iter()
                .any(|job| JobRow::new(job, None).needs_nodes(&ctx));
    if needs_nodes {
        query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    }
    options.conditions.check_nodes(&ctx)?;
    match options.document {
        Some(dialect) => job_document::print(dialect, &pick::rows(options, &jobs, &ctx), &ctx),
        None => print(&render(options, &layouts, &jobs, &ctx)?),
    }
    Ok(())
}

/// The columns.
struct Layouts {
    jobs: Layout<job_fields::JobRecords>,
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

    fn shows_starts(&self) -> bool {
        self.jobs.shows(&["starttime", "endtime", "schednodes"])
    }

    fn shows_tres(&self) -> bool {
        self.jobs.shows(&["tres-alloc"])
    }
}

/// The listing as text.
fn render(options: &Options, layouts: &Layouts, jobs: &Jobs, ctx: &Ctx) -> Result<String, Failure> {
    let mut builder = ListingBuilder::new(options, layouts)?;
    builder.add_jobs(jobs, ctx);
    let mut text = String::new();
    builder.write(ctx, |chunk| text.push_str(chunk));
    Ok(text)
}

#[cfg(test)]
mod tests;
