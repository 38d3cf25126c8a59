//! qstat: jobs and queues.

pub(super) mod detail;
mod detail_xml;
mod filter;
pub(super) mod lines;
pub(super) mod matching;
mod messages;
mod plain;
pub(super) mod queues;
mod requests;
mod usage;
pub(super) mod xml;

use super::arguments::Parsed;
use super::{fail, fits, resources, run_command, site, unreachable};
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use filter::QstatFilter;
use lines::{Entry, EntrySource, View};
use muster_conf::grid_engine::Mapping;
use muster_model::job::Job;
use queues::Instance;
use std::process::ExitCode;
use usage::Measured;

/// qstat.
pub(crate) static SPEC: Spec = Spec {
    name: "qstat",
    about: "Shows jobs and queues, as Grid Engine's qstat does.",
    operands: "",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "Without -u these are one's own jobs; -u '*' shows all.\n",
};

static OPTIONS: &[Opt] = &[
    flag("ext", "more columns")
        .partly("there are no tickets; use is that of one's own jobs, of 100 at most"),
    opt("explain", "a|c|A|E", "reasons of states of queues")
        .partly("the reason of a node that is out of service"),
    flag("f", "queues with their jobs"),
    opt("F", "resources", "queues with their resources")
        .optional()
        .partly("what hosts report, generic resources, licenses and slots"),
    opt(
        "g",
        "c|d|t",
        "c: a line for each queue; d: each task; t: each slot of a parallel job",
    ),
    opt("j", "jobs", "all of these jobs; what pending jobs wait for").optional(),
    opt("l", "resources", "only queues with these resources, and jobs of these")
        .partly("generic resources, features, licenses, memory, slots, h_rt, processors, names and architecture"),
    flag("ne", "no queues without jobs"),
    flag("ncb", "no lines about binding"),
    opt(
        "pe",
        "names",
        "only queues with these parallel environments",
    )
    .partly("all queues have all of them"),
    flag("pri", "columns of priorities").partly("the one priority that there is, in each column"),
    opt("q", "queues", "only these queues and their jobs"),
    opt(
        "qs",
        "states",
        "only queues in these states: a c d o s u A C D E S",
    ),
    flag("r", "requests of each job"),
    opt(
        "s",
        "states",
        "only pending, running, suspended, ended, held jobs: p r s z h hu ho hs hd hj ha a",
    ),
    flag("t", "as -g t, with what runs in the slots")
        .partly("the steps of one's own jobs, of 100 at most"),
    opt("u", "users", "jobs of these users; * is all"),
    opt(
        "U",
        "users",
        "only queues that these users may use, and jobs of these",
    ),
    flag("urg", "columns of urgency").partly("zeros: there are no urgencies; the deadline is that of --deadline"),
    flag("xml", "as XML"),
    flag("help", "print this help"),
];

/// Runs qstat.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, false, run)
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mapping = site::mapping()?;
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    if parsed.has("j") {
        return detail::show(&mut client, &mapping, parsed);
    }
    let wanted = QstatFilter::read(parsed)?;
    for (option, known) in [("explain", "acAE"), ("qs", "acdosuACDES")] {
        let letters = parsed.last(option).unwrap_or_default();
        if let Some(wrong) = letters.chars().find(|own| !known.contains(*own)) {
            let text = format!("error: unknown queue state: {wrong} found in string: {letters}");
            return Err(fail(&text, 1));
        }
    }
    let view = View::read(parsed);
    let with_queues = parsed.has("f")
        || parsed.has("F")
        || parsed.has("explain")
        || parsed.last("g") == Some("c")
        || ["q", "qs", "l", "pe", "U"]
            .iter()
            .any(|own| parsed.has(own));
    if view == View::default() && !with_queues && !wanted.ended && !parsed.has("xml") {
        let listed = plain::list(&mut client, &mapping, &wanted);
        crate::listing::print(&listed.map_err(|e| unreachable(&e))?);
        return Ok(ExitCode::SUCCESS);
    }
    let loaded = load(&mut client, &wanted, with_queues);
    let (ctx, jobs) = loaded.map_err(|e| unreachable(&e))?;
    let measured = match view.ext || view.steps {
        true => {
            let shown = jobs
                .iter()
                .filter(|job| wanted.has(job, &lines::state(job)));
            Measured::of(&mut client, shown)
        }
        false => Measured::default(),
    };
    let source = EntrySource {
        ctx: &ctx,
        mapping: &mapping,
        view: &view,
        measured: &measured,
    };
    let mut entries = wanted.entries(source, &jobs);
    if let Some(list) = parsed.last("q") {
        let known = queues::of_cluster(&ctx, &mapping, &jobs);
        let chosen = queues::chosen(&known, list);
        if chosen.is_empty() {
            return Err(fail(&format!("error: no queue named \"{list}\" found"), 1));
        }
        entries.retain(|entry| entry.queue.is_empty() || chosen.contains(&entry.queue));
    }
    let mut known = Vec::new();
    if with_queues {
        known = queues::of_cluster(&ctx, &mapping, &jobs);
    }
    if ["l", "pe", "U"].iter().any(|own| parsed.has(own)) {
        choose(&mut known, parsed, &mapping, &ctx)?;
        retain(&mut entries, &known, &ctx);
    }
    let text = if parsed.last("g") == Some("c") {
        queues::summary(&known, parsed.last("q"), parsed.has("xml"))
    } else if with_queues
        && (parsed.has("f") || parsed.has("F") || parsed.has("explain") || parsed.has("qs"))
    {
        let licenses = match parsed.has("F") {
            true => resources::licenses().map_err(|e| unreachable(&e))?,
            false => Vec::new(),
        };
        queues::full(&known, &entries, &licenses, parsed, &view)
    } else if parsed.has("xml") {
        xml::jobs(&entries, &view)
    } else {
        lines::table(&entries, &view)
    };
    crate::listing::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Keeps the queues that `-l`, `-pe` and `-U` choose.
fn choose(
    known: &mut Vec<Instance>,
    parsed: &Parsed,
    mapping: &Mapping,
    ctx: &Ctx,
) -> Result<(), ExitCode> {
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    for list in parsed.all("pe") {
        matching::check_environments(mapping, list).map_err(|why| fail(&why, 1))?;
    }
    matching::choose(known, parsed, mapping, &mut client)?;
    let users: Vec<&str> = parsed.all("U").flat_map(|list| list.split(',')).collect();
    match users.is_empty() {
        true => Ok(()),
        false => matching::retain_of_users(known, &users, &ctx.partitions, &mut client),
    }
}

/// Keeps jobs that run in one of these queues, or that may start in one.
fn retain(entries: &mut Vec<Entry>, known: &[Instance], ctx: &Ctx) {
    let default = ctx.partitions.iter().find(|partition| partition.default);
    let default = default.map_or("", |partition| partition.name.as_str());
    entries.retain(|entry| {
        if !entry.queue.is_empty() {
            return known.iter().any(|own| own.name() == entry.queue);
        }
        let named = &entry.job.spec.partitions;
        known.iter().any(|own| match named.is_empty() {
            true => own.partition == default,
            false => named.contains(&own.partition),
        })
    });
}

fn load(
    client: &mut Client,
    wanted: &QstatFilter,
    nodes: bool,
) -> Result<(Ctx, Vec<Job>), ConnectError> {
    let cluster = client.endpoint.cluster.clone();
    let mut ctx = Ctx::new(&cluster);
    let listed = query::jobs(client, &mut ctx, wanted.query(nodes))?;
    let jobs = listed.jobs.into_vec();
    if nodes {
        let mut client = Client::connect()?;
        query::cluster(&mut client, &mut ctx)?;
    }
    Ok((ctx, jobs))
}

/// Whether one of a list of patterns fits.
pub(super) fn any_fits(list: &str, text: &str) -> bool {
    list.split(',').any(|pattern| fits(pattern, text))
}
