//! `scontrol show`: records in full. The rest of scontrol, which changes things, is in `submit::scontrol` and calls this.

mod assoc_mgr;
mod job;
mod node;
#[cfg(test)]
mod show_tests;
mod slurmd;
mod topology;

use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::listing::document::{Dialect, print_document};
use crate::listing::job::JobRow;
use crate::listing::job_names::{EVERY_JOB, parse_job, rows_of};
use crate::listing::node::NodeView;
use crate::listing::query::{self, Jobs};
use crate::listing::step_document;
use crate::listing::step_fields::StepRow;
use crate::listing::{
    Failure, complain, failed_call, job_document, license_document, node_document, own_step, print,
    reservation,
};
use crate::options::OptionStatus;
use crate::rest::CommandDocument;
use job::RecordStyle;
use muster_model::hostlist;
use muster_model::ids::{JobId, StepNo};
use muster_model::licenses::License;
use muster_model::node::Node;
use muster_model::private_data::PrivateData;
use muster_proto::client::JobFilter;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Options of scontrol that `show` reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScontrolFlags {
    /// `-o`: a record is a line.
    pub one_liner: bool,
    /// `-d`: how often it was given.
    pub details: u32,
    /// `-a`: hidden partitions too.
    pub all: bool,
    /// `--hide`: no hidden partitions.
    pub hide: bool,
    /// `--json`, `--yaml`: as a document of this layout.
    pub dialect: Option<Dialect>,
    /// `-F`: nodes in state FUTURE too.
    pub future: bool,
    /// `-v`: how many records there are, and since when, is said.
    pub verbose: bool,
    /// `-Q`: no complaints.
    pub quiet: bool,
}

impl ScontrolFlags {
    /// Whether a node is shown: one that is not there yet only to who asks for those.
    fn shows(self, node: &Node) -> bool {
        self.future || !node.future
    }

    fn style(self) -> RecordStyle {
        RecordStyle {
            one_line: self.one_liner,
            details: self.details,
        }
    }
}

/// Runs `scontrol show` with the words after `show`.
pub(crate) fn scontrol_show(words: &[String], flags: &ScontrolFlags) -> ExitCode {
    match show(words, *flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if flags.quiet => {
            drop(failure);
            ExitCode::FAILURE
        }
        Err(failure) => failure.report(),
    }
}

/// Entities of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entity {
    Job,
    Node,
    Partition,
    Step,
    Config,
    Daemons,
    Reservation,
    Topology,
    Hostnames,
    Hostlist,
    HostlistSorted,
    Licenses,
    Frontend,
    Aliases,
    Slurmd,
    Associations,
    Nothing,
}

/// Names, the least letters of each, the entity shown, and its gaps.
pub(crate) const ENTITIES: &[(&str, usize, Entity, OptionStatus)] = &[
    ("jobs", 1, Entity::Job, OptionStatus::Works),
    ("nodes", 1, Entity::Node, OptionStatus::Works),
    ("partitions", 1, Entity::Partition, OptionStatus::Works),
    ("steps", 2, Entity::Step, OptionStatus::Works),
    ("config", 1, Entity::Config, OptionStatus::Works),
    ("daemons", 2, Entity::Daemons, OptionStatus::Works),
    ("reservations", 1, Entity::Reservation, OptionStatus::Works),
    ("topology", 1, Entity::Topology, OptionStatus::Works),
    ("hostnames", 5, Entity::Hostnames, OptionStatus::Works),
    ("hostlist", 5, Entity::Hostlist, OptionStatus::Works),
    (
        "hostlistsorted",
        9,
        Entity::HostlistSorted,
        OptionStatus::Works,
    ),
    ("licenses", 2, Entity::Licenses, OptionStatus::Works),
    (
        "frontends",
        1,
        Entity::Frontend,
        OptionStatus::Partly("front-end nodes are not supported; prints none"),
    ),
    ("federations", 3, Entity::Nothing, NOTHING),
    ("burstbuffers", 2, Entity::Nothing, NOTHING),
    ("bbstat", 2, Entity::Nothing, NOTHING),
    ("dwstat", 2, Entity::Nothing, NOTHING),
    ("aliases", 2, Entity::Aliases, OptionStatus::Works),
    ("assoc_mgr", 2, Entity::Associations, OptionStatus::Works),
    ("cache", 2, Entity::Associations, OptionStatus::Works),
    (
        "slurmd",
        2,
        Entity::Slurmd,
        OptionStatus::Partly("as the controller knows it: the agent itself is not asked"),
    ),
];

const NOTHING: OptionStatus = OptionStatus::Partly("there are none: nothing is printed");

/// Whether the word means the configuration.
pub(super) fn is_config(word: &str) -> bool {
    matches!(entity(word), Some((Entity::Config, _)))
}

fn entity(word: &str) -> Option<(Entity, OptionStatus)> {
    let word = word.to_ascii_lowercase();
    // Users also name an entity as its records begin: JobId, NodeName, StepId, ....
    let short = ["id", "name"]
        .iter()
        .find_map(|end| word.strip_suffix(end).filter(|rest| !rest.is_empty()));
    let named = |word: &str| {
        ENTITIES
            .iter()
            .find(|(name, least, ..)| word.len() >= *least && name.starts_with(word))
            .map(|(_, _, entity, status)| (*entity, *status))
    };
    named(&word).or_else(|| short.and_then(named))
}

fn show(words: &[String], flags: ScontrolFlags) -> Result<(), Failure> {
    let (what, which) = match words {
        [] => return Err(Failure::new("too few arguments for keyword:show")),
        [what] => match what.split_once('=') {
            Some((what, which)) => (what, Some(which)),
            None => (what.as_str(), None),
        },
        [what, which] => (what.as_str(), Some(which.as_str())),
        [what, ..] if matches!(entity(what), Some((Entity::Associations, _))) => {
            (what.as_str(), None)
        }
        _ => return Err(Failure::new("too many arguments for keyword:show")),
    };
    let invalid = || Failure::new(format!("invalid entity:{what} for keyword:show "));
    let (entity, status) = entity(what).ok_or_else(invalid)?;
    if let OptionStatus::Refused(why) = status {
        return Err(Failure::new(format!(
            "scontrol: error: show {what} is not supported: {why}"
        )));
    }
    let has_document = matches!(
        entity,
        Entity::Job
            | Entity::Node
            | Entity::Partition
            | Entity::Reservation
            | Entity::Licenses
            | Entity::Step
            | Entity::Topology
    );
    if flags.dialect.is_some() && !has_document {
        return Err(Failure::new(format!(
            "scontrol: error: show {what}: --json and --yaml are there for jobs, steps, nodes, partitions, reservations, licenses, topology and config"
        )));
    }
    match entity {
        Entity::Job => jobs(which, flags),
        Entity::Node => nodes(which, flags),
        Entity::Partition => partitions(which, flags),
        Entity::Step => steps(which, flags),
        Entity::Config => config(),
        Entity::Daemons => daemons(),
        Entity::Reservation => match flags.dialect {
            Some(dialect) => reservation::show_document(which, dialect),
            None => reservation::show(which, flags.one_liner, flags.quiet),
        },
        Entity::Topology => match (flags.dialect, which) {
            (Some(dialect), None) => topology_document(dialect),
            (Some(_), Some(_)) => Err(Failure::new(
                "scontrol: error: show topology: the document has all of the network; no name is taken with --json and --yaml",
            )),
            (None, which) => topology(which),
        },
        Entity::Hostnames => hostnames(which),
        Entity::Hostlist => host_list(which, hostlist::compress),
        Entity::HostlistSorted => host_list(which, hostlist::compress_sorted),
        Entity::Licenses => licenses(which, flags),
        Entity::Aliases => aliases(which),
        Entity::Slurmd => slurmd::show(which),
        Entity::Associations => assoc_mgr::show(&words[1..], flags.one_liner),
        Entity::Frontend => {
            print("No nodes in the system\n");
            Ok(())
        }
        Entity::Nothing => Ok(()),
    }
}

fn jobs(which: Option<&str>, flags: ScontrolFlags) -> Result<(), Failure> {
    let mut wanted = Vec::new();
    for word in which.unwrap_or("").split(',').filter(|w| !w.is_empty()) {
        let job = parse_job(word)
            .ok_or_else(|| Failure::new("scontrol_print_job error: Invalid job id specified"))?;
        wanted.push((word, job));
    }
    let mut ids: Vec<JobId> = wanted.iter().map(|(_, (id, _))| *id).collect();
    if ids.contains(&EVERY_JOB) {
        ids.clear();
    }
    let (ctx, jobs) = load_jobs("slurm_load_jobs", ids, flags.dialect)?;
    let mut out = String::new();
    let mut missing = None;
    let mut rows = Vec::new();
    if wanted.is_empty() {
        rows.extend(jobs.jobs.iter().map(|j| JobRow::new(j, jobs.array_of(j))));
        rows.retain(|row| flags.all || !is_hidden(row, &ctx));
    }
    for (word, (id, task)) in &wanted {
        let before = rows.len();
        let component = component(word);
        let is_meant = |row: &JobRow<'_>| {
            component.is_none() || row.job.het.map(|part| (part.leader, part.offset)) == component
        };
        rows.extend(rows_of(&jobs, *id, *task).filter(is_meant));
        if rows.len() == before {
            missing = Some((*word, task.is_some() || component.is_some()));
        }
    }
    if let Some(dialect) = flags.dialect {
        job_document::write(&mut out, dialect, &rows, &ctx);
    } else {
        for row in &rows {
            job::write_job(&mut out, row, &ctx, flags.style());
        }
        if rows.is_empty() && missing.is_none() && !flags.quiet {
            out.push_str("No jobs in the system\n");
        }
    }
    match missing {
        Some((word, true)) => {
            out.push_str(&format!("Job {word} not found\n"));
            print(&out);
            Err(Failure::silent())
        }
        Some((_, false)) => {
            print(&out);
            Err(Failure::new(
                "slurm_load_jobs error: Invalid job id specified",
            ))
        }
        None => {
            print(&out);
            Ok(())
        }
    }
}

/// The component that `12+1` names.
fn component(word: &str) -> Option<(JobId, u32)> {
    let (leader, offset) = word.split_once('+')?;
    Some((JobId(leader.parse().ok()?), offset.parse().ok()?))
}

fn is_hidden(row: &JobRow<'_>, ctx: &Ctx) -> bool {
    ctx.partition(&row.job.partition)
        .is_some_and(|p| !ctx.shows(p))
}

fn load_jobs(
    call: &str,
    ids: Vec<JobId>,
    document: Option<Dialect>,
) -> Result<(Ctx, Jobs), Failure> {
    let failed = failed_call(call);
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    ctx.mail_domain = client.endpoint.mail_domain.clone();
    let filter = JobFilter {
        ids,
        starts: true,
        ..JobFilter::default()
    };
    let jobs = query::jobs(&mut client, &mut ctx, filter).map_err(&failed)?;
    let is_shown_with_nodes = |job| JobRow::new(job, None).needs_nodes(&ctx);
    let needs_nodes = document.is_some() && jobs.needs_nodes_in_documents()
        || jobs.jobs.iter().any(is_shown_with_nodes);
    if needs_nodes {
        query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    }
    Ok((ctx, jobs))
}

fn nodes(which: Option<&str>, flags: ScontrolFlags) -> Result<(), Failure> {
    let failed = failed_call("slurm_load_node");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let completing: HashSet<_> = query::cluster(&mut client, &mut ctx)
        .map_err(&failed)?
        .into_iter()
        .collect();
    query::not_withheld(&ctx, PrivateData::NODES).map_err(&failed)?;
    let mut shown = Vec::new();
    let mut missing = String::new();
    match which {
        None => shown.extend(ctx.nodes.iter().filter(|node| flags.shows(node))),
        Some(list) => {
            let names =
                hostlist::parse(list).map_err(|e| Failure::new(format!("scontrol: error: {e}")))?;
            for name in names {
                let mut nodes = ctx.nodes.iter().filter(|node| flags.shows(node));
                match nodes.find(|n| n.config.name == name) {
                    Some(node) => shown.push(node),
                    None => missing.push_str(&format!("Node {name} not found\n")),
                }
            }
        }
    }
    let views = shown.into_iter().map(|node| {
        let reserved = ctx.reserved.get(&node.idx).copied();
        NodeView::new(node, completing.contains(&node.idx), reserved)
    });
    let shown: Vec<NodeView<'_>> = views.collect();
    let mut out = String::new();
    match flags.dialect {
        Some(dialect) => node_document::write_nodes(&mut out, dialect, &shown, &ctx),
        None => shown
            .iter()
            .for_each(|v| node::write_node(&mut out, v, &ctx, flags.style())),
    }
    if which.is_none() && shown.is_empty() && flags.dialect.is_none() {
        out.push_str("No nodes in the system\n");
    }
    finish(out, &missing, flags)
}

fn partitions(which: Option<&str>, flags: ScontrolFlags) -> Result<(), Failure> {
    let failed = failed_call("slurm_load_partitions");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    query::not_withheld(&ctx, PrivateData::PARTITIONS).map_err(&failed)?;
    let mut shown = Vec::new();
    let mut missing = String::new();
    match which {
        None => shown.extend(ctx.partitions.iter().filter(|p| flags.all || ctx.shows(p))),
        Some(list) => {
            for name in list.split(',').filter(|n| !n.is_empty()) {
                match ctx.partition(name).filter(|p| flags.all || ctx.shows(p)) {
                    Some(partition) => shown.push(partition),
                    None => missing.push_str(&format!("Partition {name} not found\n")),
                }
            }
        }
    }
    let mut out = String::new();
    if flags.verbose {
        let (now, count) = (ctx.now.unix_s(), shown.len());
        out.push_str(&format!("last_update_time={now}, records={count}\n"));
    }
    match flags.dialect {
        Some(dialect) => node_document::write_partitions(&mut out, dialect, &shown, &ctx),
        None => shown
            .iter()
            .for_each(|p| node::write_partition(&mut out, p, &ctx, flags.style())),
    }
    if which.is_none() && shown.is_empty() && flags.dialect.is_none() {
        out.push_str("No partitions in the system\n");
    }
    finish(out, &missing, flags)
}

fn licenses(which: Option<&str>, flags: ScontrolFlags) -> Result<(), Failure> {
    let failed = failed_call("slurm_load_licenses");
    let mut client = Client::connect().map_err(&failed)?;
    let all = query::licenses(&mut client).map_err(&failed)?;
    let wanted = |name: &str| which.is_none_or(|w| w == name);
    if let Some(dialect) = flags.dialect {
        let ctx = Ctx::new(&client.endpoint.cluster);
        let shown: Vec<&License> = all.iter().filter(|l| wanted(&l.name)).collect();
        print_document(dialect, "scontrol", &ctx, |w| {
            license_document::write(w, &shown);
        });
        return Ok(());
    }
    let between = if flags.one_liner { " " } else { "\n    " };
    let mut out = String::new();
    for license in all.iter().filter(|l| wanted(&l.name)) {
        let _ = writeln!(
            out,
            "LicenseName={}{between}Total={} Used={} Free={} Reserved={} Remote={}",
            license.name,
            license.total,
            license.used,
            license.total.saturating_sub(license.used),
            license.reserved,
            if license.remote { "yes" } else { "no" }
        );
    }
    let missing = match which {
        _ if all.is_empty() => "No licenses configured in Slurm.\n".to_owned(),
        _ => String::new(),
    };
    out.push_str(&missing);
    print(&out);
    Ok(())
}

fn topology(which: Option<&str>) -> Result<(), Failure> {
    let failed = failed_call("slurm_load_topo");
    let mut client = Client::connect().map_err(&failed)?;
    let config = query::settings(&mut client).map_err(&failed)?;
    match topology::rows(&config.topologies, which) {
        Some(rows) if !rows.is_empty() => print(&rows),
        Some(_) => complain("scontrol: error: No topology information available"),
        None => complain(&format!(
            "scontrol: error: Topology information contains no switch or node named {}",
            which.unwrap_or("")
        )),
    }
    Ok(())
}

/// The document of `GET /muster/v1/topology`.
fn topology_document(dialect: Dialect) -> Result<(), Failure> {
    let client = Client::connect().map_err(failed_call("slurm_load_topo"))?;
    let document = CommandDocument {
        command: "scontrol",
        area: "muster",
        path: "topology".to_owned(),
        query: Vec::new(),
    };
    document.print(client, dialect)
}

/// Prints, and fails if something was not there.
fn finish(mut out: String, missing: &str, flags: ScontrolFlags) -> Result<(), Failure> {
    if !flags.quiet {
        out.push_str(missing);
    }
    print(&out);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Failure::silent())
    }
}

fn steps(which: Option<&str>, flags: ScontrolFlags) -> Result<(), Failure> {
    let invalid = || Failure::new("slurm_get_job_steps error: Invalid job id specified");
    let mut wanted = None;
    if let Some(text) = which {
        let (job, step) = match text.split_once('.') {
            Some((job, step)) => (job, Some(step.parse::<StepNo>().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let (id, task) = parse_job(job).ok_or_else(invalid)?;
        wanted = Some((id, task, step));
    }
    let ids = wanted.iter().map(|(id, _, _)| *id).collect();
    let failed = failed_call("slurm_get_job_steps");
    let own = Client::connect().and_then(|mut client| own_step::wait(&mut client));
    own.map_err(&failed)?;
    if flags.dialect.is_some_and(Dialect::is_old) {
        let why = "scontrol: error: show steps: v0.0.38 and v0.0.39 have no document of steps";
        return Err(Failure::new(why));
    }
    let (ctx, jobs) = load_jobs("slurm_get_job_steps", ids, None)?;
    let mut out = String::new();
    let rows: Vec<JobRow<'_>> = match wanted {
        Some((id, task, _)) => rows_of(&jobs, id, task).collect(),
        None => jobs
            .jobs
            .iter()
            .map(|j| JobRow::new(j, jobs.array_of(j)))
            .collect(),
    };
    if wanted.is_some() && rows.is_empty() {
        return Err(invalid());
    }
    let mut shown = Vec::new();
    for job in rows {
        // Slurm shows the batch script before the steps of srun.
        let mut steps: Vec<_> = job.job.steps.iter().collect();
        steps.sort_by_key(|s| (s.step.0 < StepNo::INTERACTIVE.0, s.step));
        steps.retain(|step| wanted.is_none_or(|(_, _, w)| w.is_none_or(|w| w == step.step)));
        shown.extend(steps.into_iter().map(|step| StepRow { job, step }));
    }
    if let Some(dialect) = flags.dialect {
        print_document(dialect, "scontrol", &ctx, |w| {
            step_document::write(w, &shown, &ctx);
        });
        return Ok(());
    }
    for row in &shown {
        job::write_step(&mut out, row, &ctx, flags.style());
    }
    match (out.is_empty(), which) {
        (true, Some(which)) => {
            print(&format!("Job step {which} not found\n"));
            return Err(Failure::silent());
        }
        (true, None) if !flags.quiet => out.push_str("No job steps in the system\n"),
        _ => {}
    }
    print(&out);
    Ok(())
}

fn config() -> Result<(), Failure> {
    let failed = failed_call("slurm_load_ctl_conf");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let answer = query::config(&mut client).map_err(&failed)?;
    ctx.now = answer.now;
    let mut out = String::from("Configuration data as of ");
    ctx.time(&mut out, answer.now);
    out.push('\n');
    for (key, value) in &answer.pairs {
        out.push_str(&format!("{key:<23} = "));
        match key.as_str() {
            "BOOT_TIME" => ctx.time(&mut out, answer.started),
            "AccountingStorageTRES" => out.push_str(&tracked(value)),
            _ => out.push_str(value),
        }
        out.push('\n');
    }
    if let Some(host) = answer.hosts.first() {
        out.push_str(&format!("\nSlurmctld(primary) at {host} is UP\n"));
    }
    print(&out);
    Ok(())
}

/// Tracked TRES: the usual ones, and additions of the configuration.
fn tracked(configured: &str) -> String {
    const ALWAYS: [&str; 8] = [
        "cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages",
    ];
    let more = configured.split(',').map(str::trim);
    let more = more.filter(|name| !name.is_empty() && !ALWAYS.contains(name));
    ALWAYS.into_iter().chain(more).collect::<Vec<_>>().join(",")
}

/// Daemons that belong on this host.
fn daemons() -> Result<(), Failure> {
    let failed = failed_call("slurm_load_node");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    let host = nix::unistd::gethostname()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let short = host.split('.').next().unwrap_or(&host);
    let here = |name: &str| name == host || name == short || name == "localhost";
    let mut names = Vec::new();
    if client.endpoint.hosts.iter().any(|h| here(h)) {
        names.push("slurmctld");
    }
    if ctx.nodes.iter().any(|n| here(&n.config.hostname)) {
        names.push("slurmd");
    }
    print(&format!("{}\n", names.join(" ")));
    Ok(())
}

/// Nodes on a host; without one, all of them.
fn aliases(host: Option<&str>) -> Result<(), Failure> {
    let failed = failed_call("slurm_load_node");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    query::not_withheld(&ctx, PrivateData::NODES).map_err(&failed)?;
    let on_it = ctx
        .nodes
        .iter()
        .map(|node| &node.config)
        .filter(|config| host.is_none_or(|host| config.hostname == host));
    let names: Vec<&str> = on_it.map(|config| config.name.as_str()).collect();
    if !names.is_empty() {
        print(&format!("{}\n", names.join(" ")));
    }
    Ok(())
}

fn hostnames(which: Option<&str>) -> Result<(), Failure> {
    let from_job = || {
        ["SLURM_JOB_NODELIST", "SLURM_NODELIST"]
            .iter()
            .find_map(|name| crate::options::env(name))
    };
    let Some(list) = which.map(str::to_owned).or_else(from_job) else {
        complain("scontrol: error: host list is empty");
        return Ok(());
    };
    let names =
        hostlist::parse(&list).map_err(|e| Failure::new(format!("scontrol: error: {e}")))?;
    let mut out = String::new();
    for name in names {
        out.push_str(&name);
        out.push('\n');
    }
    print(&out);
    Ok(())
}

/// Names, or a file of names, as one expression.
fn host_list(which: Option<&str>, fold: fn(&[String]) -> String) -> Result<(), Failure> {
    let Some(list) = which else {
        return Err(Failure::new("too few arguments for keyword:hostlist"));
    };
    let text = if list.starts_with('/') {
        std::fs::read_to_string(list).map_err(|_| Failure::new(format!("Can not open {list}")))?
    } else {
        list.to_owned()
    };
    let names =
        hostlist::parse(&text).map_err(|e| Failure::new(format!("scontrol: error: {e}")))?;
    print(&format!("{}\n", fold(&names)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_may_be_shortened() {
        for (word, wanted) in [
            ("jo", Entity::Job),
            ("job", Entity::Job),
            ("jobs", Entity::Job),
            ("JobId", Entity::Job),
            ("nodename", Entity::Node),
            ("PartitionName", Entity::Partition),
            ("reservationname", Entity::Reservation),
            ("StepId", Entity::Step),
            ("node", Entity::Node),
            ("part", Entity::Partition),
            ("hostname", Entity::Hostnames),
            ("hostlist", Entity::Hostlist),
            ("hostlistsorted", Entity::HostlistSorted),
            ("res", Entity::Reservation),
            ("CONFIG", Entity::Config),
            ("top", Entity::Topology),
            ("step", Entity::Step),
        ] {
            assert_eq!(entity(word).map(|e| e.0), Some(wanted), "{word}");
        }
        for word in ["nosuch", "id", "name", "nosuchid"] {
            assert!(entity(word).is_none(), "{word}");
        }
        assert!(entity("host").is_none());
    }
}
