//! qhost: hosts, with their queues and jobs; qselect: names of queues on hosts.

use super::arguments::{self, OperandPosition, Parsed};
use super::qstat::lines::{self, date};
use super::qstat::matching;
use super::qstat::queues::{self, Instance};
use super::qstat::xml::escaped;
use super::resources::{self, Resource};
use super::{fail, fits, selection, site, unreachable};
use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use muster_conf::grid_engine::Mapping;
use muster_model::job::Job;
use muster_model::node::Node;
use std::fmt::Write as _;
use std::process::ExitCode;

/// qhost.
pub(crate) static QHOST: Spec = Spec {
    name: "qhost",
    about: "Shows hosts, as Grid Engine's qhost does.",
    operands: "",
    form: HelpForm::GridEngine,
    options: &[
        opt("F", "resources", "show resources")
            .optional()
            .partly("what hosts report, generic resources and licenses"),
        opt("h", "hosts", "only these hosts"),
        flag("j", "show jobs"),
        opt("l", "resources", "only hosts with these resources").partly(
            "generic resources, features, licenses, memory, processors, names and architecture",
        ),
        flag("ncb", "no columns about sockets, cores and threads"),
        flag("q", "show queues"),
        opt("u", "users", "only jobs of these users"),
        flag("xml", "as XML"),
        flag("help", "print this help"),
    ],
    variables: &[],
    notes: "",
};

/// qselect.
pub(crate) static QSELECT: Spec = Spec {
    name: "qselect",
    about: "Prints the names of queues on hosts.",
    operands: "",
    form: HelpForm::GridEngine,
    options: QSELECT_OPTIONS,
    variables: &[],
    notes: "",
};

static QSELECT_OPTIONS: &[Opt] = &[
    opt(
        "l",
        "resources",
        "only queues whose hosts have these resources",
    )
    .partly("generic resources, features, licenses, memory, slots, h_rt, processors, names and architecture"),
    opt(
        "pe",
        "names",
        "only queues with these parallel environments",
    )
    .partly("all queues have all of them"),
    opt("q", "queues", "only these queues"),
    opt("qs", "states", "only queues in these states: d u E"),
    opt("s", "states", "states of jobs").stored("no jobs are shown"),
    opt("U", "users", "only queues that these users may use"),
    flag("help", "print this help"),
];

/// Reads a command line that has no operands.
fn read(spec: &'static Spec, args: &[String]) -> Result<Parsed, ExitCode> {
    let parsed = arguments::parse(spec, args, OperandPosition::Mixed)
        .map_err(|wrong| fail(wrong.text(), 1))?;
    if parsed.has("help") {
        say::stdout(&spec.help());
        return Err(ExitCode::SUCCESS);
    }
    match parsed.operands.first() {
        Some(word) => Err(fail(
            &format!("{}: invalid option argument \"{word}\"", spec.name),
            1,
        )),
        None => Ok(parsed),
    }
}

/// Runs qhost.
pub(crate) fn main(args: &[String]) -> ExitCode {
    read(&QHOST, args)
        .and_then(|parsed| run(&parsed))
        .unwrap_or_else(|code| code)
}

/// Runs qselect.
pub(crate) fn select_main(args: &[String]) -> ExitCode {
    read(&QSELECT, args)
        .and_then(|parsed| select(&parsed))
        .unwrap_or_else(|code| code)
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mapping = site::mapping()?;
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    let uids = selection::users(parsed.all("u"))
        .map_err(|name| fail(&format!("error: unknown user \"{name}\""), 1))?;
    let jobs = selection::active(&mut client, Vec::new()).map_err(|e| unreachable(&e))?;
    let ctx = site::cluster(&mut client).map_err(|e| unreachable(&e))?;
    let mut nodes: Vec<&Node> = ctx.nodes.iter().collect();
    if let Some(list) = parsed.last("h") {
        for name in list.split(',') {
            if !nodes.iter().any(|node| fits(name, &node.config.name)) {
                return Err(fail(
                    &format!("error: can't resolve hostname \"{name}\""),
                    1,
                ));
            }
        }
        nodes.retain(|node| list.split(',').any(|name| fits(name, &node.config.name)));
    }
    let known = queues::of_cluster(&ctx, &mapping, &jobs);
    if parsed.has("l") {
        // A host without a queue has none of the resources that jobs are given.
        let mut fitting = known.clone();
        matching::choose(&mut fitting, parsed, &mapping, &mut client)?;
        nodes.retain(|node| fitting.iter().any(|own| own.host == node.config.name));
    }
    let mut shown: Vec<&Job> = jobs.iter().collect();
    let of_users = uids.filter(|uids| !uids.is_empty());
    shown.retain(|job| {
        of_users
            .as_ref()
            .is_none_or(|uids| uids.contains(&job.spec.owner.uid))
    });
    let licenses = match parsed.has("F") {
        true => resources::licenses().map_err(|e| unreachable(&e))?,
        false => Vec::new(),
    };
    let shown = HostListing {
        nodes,
        instances: &known,
        licenses: &licenses,
        jobs: shown,
        parsed,
        ctx: &ctx,
        mapping: &mapping,
    };
    let text = match parsed.has("xml") {
        true => xml(&shown),
        false => table(&shown),
    };
    crate::listing::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// The contents of a listing.
struct HostListing<'a> {
    nodes: Vec<&'a Node>,
    instances: &'a [Instance],
    /// Resources of all hosts.
    licenses: &'a [Resource],
    jobs: Vec<&'a Job>,
    parsed: &'a Parsed,
    ctx: &'a Ctx,
    mapping: &'a Mapping,
}

impl HostListing<'_> {
    /// The resources that `-F` asks for: of a host, after those of all hosts; of these alone without a host.
    fn resources(&self, host: Option<&str>) -> Vec<&Resource> {
        let Some(list) = self.parsed.last("F") else {
            return Vec::new();
        };
        let of_host = self
            .instances
            .iter()
            .find(|own| Some(own.host.as_str()) == host);
        let of_host = of_host.map(|own| own.resources.as_slice());
        let all = self.licenses.iter().chain(of_host.unwrap_or_default());
        let is_wanted =
            |one: &&Resource| list.is_empty() || list.split(',').any(|own| fits(own, &one.name));
        all.filter(is_wanted).collect()
    }
}

/// The values of a host's columns: name, architecture, processors, sockets, cores, threads, load, memory, its use, swap, its use.
fn values(node: &Node) -> [String; 11] {
    let config = &node.config;
    let report = node.report.as_ref();
    let used = report.map(|report| config.memory_mib.saturating_sub(report.free_mib));
    let none = || "-".to_owned();
    [
        config.name.clone(),
        site::ARCH.to_owned(),
        config.cpus.to_string(),
        config.sockets.to_string(),
        (config.sockets * config.cores_per_socket).to_string(),
        (config.sockets * config.cores_per_socket * config.threads_per_core).to_string(),
        report.map_or_else(none, |report| {
            format!("{:.2}", f64::from(report.load_centi) / 100.0)
        }),
        memory(config.memory_mib),
        used.map_or_else(none, memory),
        none(),
        none(),
    ]
}

/// `843.1M`, `23.5G`.
fn memory(mib: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let mib = mib as f64;
    match mib {
        mib if mib < 1024.0 => format!("{mib:.1}M"),
        mib if mib < 1024.0 * 1024.0 => format!("{:.1}G", mib / 1024.0),
        mib => format!("{:.1}T", mib / 1024.0 / 1024.0),
    }
}

fn global() -> [String; 11] {
    let mut all = std::array::from_fn(|_| "-".to_owned());
    all[0] = "global".to_owned();
    all
}

fn row(values: &[String; 11], narrow: bool) -> String {
    let [
        name,
        arch,
        cpus,
        sockets,
        cores,
        threads,
        load,
        total,
        used,
        swap,
        swapped,
    ] = values;
    let mut text = format!("{name:<23} {arch:<12} {cpus:>4} ");
    if !narrow {
        let _ = write!(text, "{sockets:>4} {cores:>4} {threads:>4} ");
    }
    let _ = write!(
        text,
        "{load:>5} {total:>7} {used:>7} {swap:>7} {swapped:>7}"
    );
    text
}

fn table(shown: &HostListing) -> String {
    let narrow = shown.parsed.has("ncb");
    let names = [
        "HOSTNAME", "ARCH", "NCPU", "NSOC", "NCOR", "NTHR", "LOAD", "MEMTOT", "MEMUSE", "SWAPTO",
        "SWAPUS",
    ];
    let head = row(&names.map(str::to_owned), narrow);
    let mut text = format!(
        "{head}\n{}\n{}\n",
        "-".repeat(head.len()),
        row(&global(), narrow)
    );
    let list = shown.parsed.last("F").unwrap_or_default();
    text.push_str(&resource_lines(&shown.resources(None), list));
    for node in &shown.nodes {
        let host = &node.config.name;
        let _ = writeln!(text, "{}", row(&values(node), narrow));
        text.push_str(&resource_lines(&shown.resources(Some(host)), list));
        if shown.parsed.has("q") {
            for own in shown.instances.iter().filter(|own| own.host == *host) {
                let counts = format!("0/{}/{}", own.used, own.total);
                let _ = writeln!(
                    text,
                    "   {:<20} BIP   {counts:<13} {}",
                    own.queue, own.states
                );
            }
        }
        if shown.parsed.has("j") {
            host_jobs(&mut text, host, shown);
        }
    }
    text
}

/// A line for each resource. Where some are asked for by name, Grid Engine has a title before the first.
fn resource_lines(resources: &[&Resource], list: &str) -> String {
    let mut text = String::new();
    for (at, one) in resources.iter().enumerate() {
        let title = match at == 0 && !list.is_empty() {
            true => "    Host Resource(s):      ",
            false => "   ",
        };
        let _ = writeln!(text, "{title}{}:{}={}", one.kind, one.name, one.on_host());
    }
    text
}

/// A line for each slot of a job on a host: the first slot of the job is the master, and the job is shown in the first line.
fn host_jobs(text: &mut String, host: &str, shown: &HostListing) {
    let there: Vec<(&&Job, usize)> = shown
        .jobs
        .iter()
        .filter_map(|job| Some((job, lines::hosts(job).iter().position(|own| own == host)?)))
        .collect();
    if there.is_empty() {
        return;
    }
    // Where the host's queues are shown, Grid Engine has neither a head nor the column of queues.
    let with_queues = shown.parsed.has("q");
    if !with_queues {
        let head = "job-ID  prior   name       user         state submit/start at     queue      master ja-task-ID ";
        let _ = writeln!(text, "   {head}\n   {}", "-".repeat(head.len() - 1));
    }
    for (job, position) in there {
        let queue = site::queue_of(shown.mapping, &shown.ctx.partitions, &job.partition);
        let queue = match with_queues {
            true => String::new(),
            false => format!("{:<10.10} ", format!("{queue}@{host}")),
        };
        let task =
            selection::task(job).map_or_else(|| "       ".to_owned(), |task| task.to_string());
        let at = job.start_time.unwrap_or(job.submit_time);
        let columns = format!(
            "{:>7} {:.5} {:<10.10} {:<12.12} {:<5.5} {} ",
            selection::number(job).0,
            lines::prior(job),
            job.spec.name,
            job.spec.owner.user,
            lines::state(job),
            date(shown.ctx, at),
        );
        for slot in 0..lines::slot_lines_on(job, host) {
            let role = role(position, slot);
            let columns = match slot {
                0 => columns.clone(),
                _ => " ".repeat(columns.chars().count()),
            };
            let _ = writeln!(text, "   {columns}{queue}{role:<6} {task}");
        }
    }
}

fn role(position: usize, slot: usize) -> &'static str {
    match position == 0 && slot == 0 {
        true => "MASTER",
        false => "SLAVE",
    }
}

fn xml(shown: &HostListing) -> String {
    let mut text = String::from(
        "<?xml version='1.0'?>\n<qhost xmlns:xsd=\"http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/\
         schemas/qhost/qhost.xsd\">\n",
    );
    let names = [
        "arch_string",
        "num_proc",
        "m_socket",
        "m_core",
        "m_thread",
        "load_avg",
        "mem_total",
        "mem_used",
        "swap_total",
        "swap_used",
    ];
    let of_hosts = shown.nodes.iter().map(|node| (values(node), Some(node)));
    for (values, node) in std::iter::once((global(), None)).chain(of_hosts) {
        let _ = writeln!(text, " <host name='{}'>", values[0]);
        for (name, value) in names.iter().zip(&values[1..]) {
            let _ = writeln!(text, "   <hostvalue name='{name}'>{value}</hostvalue>");
        }
        let host = node.map(|node| node.config.name.as_str());
        for one in shown.resources(host) {
            let (name, value) = (escaped(&one.name), escaped(&one.on_host()));
            let kind = one.kind;
            let _ = writeln!(
                text,
                "   <resourcevalue name='{name}' dominance='{kind}'>{value}</resourcevalue>"
            );
        }
        if shown.parsed.has("q") {
            let there = shown.instances.iter();
            let there = there.filter(|own| Some(own.host.as_str()) == host);
            there.for_each(|own| queue_xml(&mut text, own));
        }
        if let Some(host) = host.filter(|_| shown.parsed.has("j")) {
            jobs_xml(&mut text, host, shown);
        }
        text.push_str(" </host>\n");
    }
    text + "</qhost>\n"
}

fn queue_xml(text: &mut String, own: &Instance) {
    let queue = escaped(&own.queue);
    let _ = writeln!(text, " <queue name='{queue}'>");
    for (name, value) in [
        ("qtype_string", "BIP".to_owned()),
        ("slots_used", own.used.to_string()),
        ("slots", own.total.to_string()),
        ("slots_resv", "0".to_owned()),
        ("state_string", own.states.clone()),
    ] {
        let _ = writeln!(
            text,
            "   <queuevalue qname='{queue}' name='{name}'>{value}</queuevalue>"
        );
    }
    text.push_str(" </queue>\n");
}

/// Jobs that have a part of a host, once for each slot.
fn jobs_xml(text: &mut String, host: &str, shown: &HostListing) {
    for job in &shown.jobs {
        let hosts = lines::hosts(job);
        let Some(position) = hosts.iter().position(|own| own == host) else {
            continue;
        };
        let queue = site::queue_of(shown.mapping, &shown.ctx.partitions, &job.partition);
        let instance = format!("{queue}@{host}");
        for slot in 0..lines::slot_lines_on(job, host) {
            let with_queues = shown.parsed.has("q");
            job_xml(text, job, &instance, with_queues, role(position, slot));
        }
    }
}

/// One job in a slot; its queue is shown once more where the host's queues are not.
fn job_xml(text: &mut String, job: &Job, instance: &str, with_queues: bool, role: &str) {
    let number = selection::number(job);
    let start = job.start_time.unwrap_or(job.submit_time);
    let _ = writeln!(text, " <job name='{number}'>");
    let mut row = |name: &str, value: &str| {
        let value = if name == "priority" {
            value.to_owned()
        } else {
            escaped(value)
        };
        let _ = writeln!(
            text,
            "   <jobvalue jobid='{number}' name='{name}'>{value}</jobvalue>"
        );
    };
    // Its quotes are part of the value, as Grid Engine has them.
    let priority = lines::prior(job);
    row("priority", &format!("'{priority:.6}'"));
    row("qinstance_name", instance);
    row("job_name", &job.spec.name);
    row("job_owner", &job.spec.owner.user);
    row("job_state", &lines::state(job));
    row("start_time", &start.unix_s().to_string());
    if !with_queues {
        row("queue_name", instance);
    }
    row("pe_master", role);
    if let Some(task) = selection::task(job) {
        row("taskid", &task.to_string());
    }
    text.push_str(" </job>\n");
}

fn select(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mapping = site::mapping()?;
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    if let Some(pe) = parsed.last("pe") {
        matching::check_environments(&mapping, pe).map_err(|why| fail(&why, 1))?;
    }
    let jobs = selection::active(&mut client, Vec::new()).map_err(|e| unreachable(&e))?;
    let ctx = site::cluster(&mut client).map_err(|e| unreachable(&e))?;
    let mut known = queues::of_cluster(&ctx, &mapping, &jobs);
    if let Some(list) = parsed.last("q") {
        let chosen = queues::chosen(&known, list);
        known.retain(|own| chosen.contains(&own.name()));
    }
    if let Some(letters) = parsed.last("qs") {
        known.retain(|own| own.states.contains(|state| letters.contains(state)));
    }
    matching::choose(&mut known, parsed, &mapping, &mut client)?;
    let users: Vec<&str> = parsed.all("U").flat_map(|list| list.split(',')).collect();
    if !users.is_empty() {
        matching::retain_of_users(&mut known, &users, &ctx.partitions, &mut client)?;
    }
    if known.is_empty() {
        return Err(fail("No matching queues found.", 1));
    }
    let lines: String = known.iter().map(|own| own.name() + "\n").collect();
    crate::listing::print(&lines);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::licenses::License;

    /// Output of Grid Engine 8.1.9 for `-F gpu,lic` and `-F`.
    #[test]
    fn resources_that_are_named_have_a_title() {
        let licenses = [License {
            remote: false,
            name: "lic".to_owned(),
            total: 3,
            ..License::default()
        }];
        let all = resources::of_all_hosts(&licenses);
        let all: Vec<&Resource> = all.iter().chain(&all).collect();
        assert_eq!(
            resource_lines(&all, "gpu,lic"),
            "    Host Resource(s):      gc:lic=3.000000\n   gc:lic=3.000000\n"
        );
        assert_eq!(
            resource_lines(&all, ""),
            "   gc:lic=3.000000\n   gc:lic=3.000000\n"
        );
    }

    #[test]
    fn columns_are_where_grid_engine_has_them() {
        let want = "global                  -               -    -    -    -     -       -       -       -       -";
        assert_eq!(row(&global(), false), want);
        let vm = [
            "vm", "lx-amd64", "2", "1", "2", "2", "11.20", "23.5G", "843.1M", "0.0", "0.0",
        ];
        assert_eq!(
            row(&vm.map(str::to_owned), false),
            "vm                      lx-amd64        2    1    2    2 11.20   23.5G  843.1M     0.0     0.0"
        );
        assert_eq!(
            (memory(843), memory(24_064)),
            ("843.0M".to_owned(), "23.5G".to_owned())
        );
    }
}
