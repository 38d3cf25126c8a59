//! Queues: `qstat -f`, `-F`, `-g c`. A queue is a partition, and an instance of it is the partition on one node.

use super::lines::{self, Entry, View, is_pending};
use super::{any_fits, xml};
use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::resources::{self, Resource};
use crate::grid_engine::site;
use crate::listing::context::Ctx;
use muster_conf::grid_engine::Mapping;
use muster_model::calendar::CalendarState;
use muster_model::config::{PartitionConfig, PartitionState};
use muster_model::job::Job;
use muster_model::node::{GresConfig, Node, NodeLink};
use muster_model::time::TimeLimit;
use std::collections::HashMap;
use std::fmt::Write as _;

/// A queue on one host.
#[derive(Clone, Debug, Default)]
pub(in crate::grid_engine) struct Instance {
    /// The queue.
    pub(in crate::grid_engine) queue: String,
    /// The host.
    pub(in crate::grid_engine) host: String,
    /// The partition.
    pub(in crate::grid_engine) partition: String,
    /// Slots that jobs of the queue have there.
    pub(in crate::grid_engine) used: u64,
    /// Slots of the host.
    pub(in crate::grid_engine) total: u64,
    /// Load over a minute; none where the host has not said it.
    pub(in crate::grid_engine) load: Option<f64>,
    /// Letters of its states.
    pub(in crate::grid_engine) states: String,
    /// The resources of its host.
    pub(in crate::grid_engine) resources: Vec<Resource>,
    /// The longest time that a job may run.
    pub(in crate::grid_engine) limit: String,
    /// That time in seconds; none where there is no limit.
    pub(in crate::grid_engine) limit_s: Option<u64>,
    /// The resources of its host, used ones too.
    pub(in crate::grid_engine) has: HostOffer,
    /// Whether its partition starts no jobs.
    pub(in crate::grid_engine) is_closed: bool,
    /// The calendar of the queue.
    pub(in crate::grid_engine) calendar: Option<String>,
    /// Whether its host starts no jobs.
    pub(in crate::grid_engine) is_drained: bool,
    /// Why it is out of service.
    pub(in crate::grid_engine) reason: Option<String>,
}

/// The resources of a host, those in use included.
#[derive(Clone, Debug, Default)]
pub(in crate::grid_engine) struct HostOffer {
    pub(in crate::grid_engine) gres: Vec<GresConfig>,
    pub(in crate::grid_engine) features: Vec<String>,
    pub(in crate::grid_engine) memory_bytes: u64,
    pub(in crate::grid_engine) cpus: u64,
    pub(in crate::grid_engine) cores: u64,
    pub(in crate::grid_engine) sockets: u64,
}

impl HostOffer {
    fn of(node: &Node) -> HostOffer {
        let config = &node.config;
        HostOffer {
            gres: config.gres.clone(),
            features: config.features.clone(),
            memory_bytes: config.memory_mib << 20,
            cpus: config.cpus.into(),
            cores: u64::from(config.sockets) * u64::from(config.cores_per_socket),
            sockets: config.sockets.into(),
        }
    }
}

impl Instance {
    /// `queue@host`.
    pub(in crate::grid_engine) fn name(&self) -> String {
        format!("{}@{}", self.queue, self.host)
    }
}

/// All queues of a cluster, by queue and host.
pub(in crate::grid_engine) fn of_cluster(
    ctx: &Ctx,
    mapping: &Mapping,
    jobs: &[Job],
) -> Vec<Instance> {
    let mut used: HashMap<(&str, &str), u64> = HashMap::new();
    for job in jobs.iter().filter(|job| !is_pending(job)) {
        for (share, _) in job.held() {
            *used.entry((&job.partition, &share.name)).or_default() += u64::from(share.cpus.len());
        }
    }
    let mut all = Vec::new();
    for partition in &ctx.partitions {
        let queue = site::queue_of(mapping, &ctx.partitions, &partition.name);
        for name in &partition.nodes {
            let Some(node) = ctx.nodes.iter().find(|node| node.config.name == *name) else {
                continue;
            };
            let key = (partition.name.as_str(), name.as_str());
            all.push(Instance {
                queue: queue.clone(),
                host: name.clone(),
                partition: partition.name.clone(),
                used: used.get(&key).copied().unwrap_or_default(),
                total: u64::from(node.config.job_cpus().len()),
                load: node
                    .report
                    .as_ref()
                    .map(|report| f64::from(report.load_centi) / 100.0),
                states: states(node, partition),
                calendar: partition
                    .calendar
                    .as_ref()
                    .map(|own| own.calendar.name.clone()),
                resources: resources::of_host(node, &free(node)),
                limit: limit(partition.max_time),
                limit_s: partition
                    .max_time
                    .seconds()
                    .filter(|_| partition.max_time != TimeLimit::Unlimited),
                has: HostOffer::of(node),
                is_closed: partition.state != PartitionState::Up,
                is_drained: node.drain,
                reason: node.reason.as_ref().map(|reason| reason.text.clone()),
            });
        }
    }
    all.sort_by(|a, b| (&a.queue, &a.host).cmp(&(&b.queue, &b.host)));
    all
}

/// `02:00:00`, `infinity`.
fn limit(limit: TimeLimit) -> String {
    let seconds = limit.seconds().filter(|_| limit != TimeLimit::Unlimited);
    seconds.map_or_else(
        || "infinity".to_owned(),
        |seconds| {
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
        },
    )
}

fn states(node: &Node, partition: &PartitionConfig) -> String {
    let mut text = String::new();
    match partition.calendar_state() {
        CalendarState::On => {}
        CalendarState::Off => text.push('D'),
        CalendarState::Suspended => text.push('C'),
    }
    if node.drain || partition.state != PartitionState::Up {
        text.push('d');
    }
    if node.link != NodeLink::Up || node.down {
        text.push('u');
    }
    if node.fail {
        text.push('E');
    }
    text
}

fn free(node: &Node) -> Vec<(String, u64)> {
    let used = node.used_gres.iter().map(|used| u64::from(used.len()));
    let counts = node
        .config
        .gres
        .iter()
        .zip(used.chain(std::iter::repeat(0)));
    let mut all: Vec<(String, u64)> = Vec::new();
    for (gres, used) in counts {
        let free = gres.count.saturating_sub(used);
        match all.iter_mut().find(|(name, _)| *name == gres.name) {
            Some((_, sum)) => *sum += free,
            None => all.push((gres.name.clone(), free)),
        }
    }
    all
}

/// Names of the instances that a list of `queue[@host]` patterns chooses.
pub(in crate::grid_engine) fn chosen(known: &[Instance], list: &str) -> Vec<String> {
    let fitting = known.iter().filter(|own| is_chosen(own, Some(list)));
    fitting.map(Instance::name).collect()
}

fn is_chosen(own: &Instance, list: Option<&str>) -> bool {
    list.is_none_or(|list| any_fits(list, &own.queue) || any_fits(list, &own.name()))
}

/// Resources of a queue on one host, its host's first.
fn of_queue(own: &Instance) -> Vec<Resource> {
    let mut all = own.resources.clone();
    all.extend([
        Resource::text("qf", "qname", &own.queue),
        Resource::text("qf", "hostname", &own.host),
        Resource::count("qc", "slots", own.total.saturating_sub(own.used)),
        Resource::count("qf", "seq_no", 0),
        Resource::text("qf", "calendar", own.calendar.as_deref().unwrap_or("NONE")),
        Resource::text("qf", "h_rt", &own.limit),
    ]);
    all
}

/// `-f`, `-F`, `-explain`; `licenses` are resources of all hosts.
pub(super) fn full(
    known: &[Instance],
    entries: &[Entry],
    licenses: &[Resource],
    parsed: &Parsed,
    view: &View,
) -> String {
    let waiting: Vec<&Entry> = entries
        .iter()
        .filter(|entry| is_pending(entry.job))
        .collect();
    let ended: Vec<&Entry> = entries
        .iter()
        .filter(|entry| lines::has_ended(entry.job))
        .collect();
    let on = |own: &Instance| -> Vec<&Entry> {
        let name = own.name();
        let there = entries.iter().filter(|entry| entry.queue == name);
        there.collect()
    };
    let shown: Vec<&Instance> = known
        .iter()
        .filter(|own| is_chosen(own, parsed.last("q")))
        .filter(|own| {
            parsed
                .last("qs")
                .is_none_or(|letters| own.states.contains(|c| letters.contains(c)))
        })
        .filter(|own| !parsed.has("ne") || !on(own).is_empty())
        .collect();
    let resources = |own: &Instance| -> Vec<Resource> {
        let Some(list) = parsed.last("F") else {
            return Vec::new();
        };
        let mut all = licenses.to_vec();
        all.extend(of_queue(own));
        all.retain(|one| list.is_empty() || any_fits(list, &one.name));
        all
    };
    if parsed.has("xml") {
        let without_queue = [waiting, ended].concat();
        return full_xml(&shown, on, resources, &without_queue, view);
    }
    let mut text = String::new();
    if !shown.is_empty() {
        text.push_str(
            "queuename                      qtype resv/used/tot. load_avg arch          states\n",
        );
    }
    for own in shown {
        let _ = writeln!(text, "{}", "-".repeat(if view.ext { 189 } else { 81 }));
        let counts = format!("0/{}/{}", own.used, own.total);
        let load = own
            .load
            .map_or_else(|| "-NA-".to_owned(), |load| format!("{load:.2}"));
        let _ = writeln!(
            text,
            "{:<30} {:<5} {counts:<14} {load:<8} {:<13} {}",
            own.name(),
            "BIP",
            site::ARCH,
            own.states
        );
        if parsed.has("explain")
            && let Some(reason) = own.reason.as_ref().filter(|_| !own.states.is_empty())
        {
            let _ = writeln!(text, "\t{reason}");
        }
        for one in resources(own) {
            let _ = writeln!(text, "\t{}:{}={}", one.kind, one.name, one.in_queue());
        }
        for entry in on(own) {
            lines::line(&mut text, entry, view, false);
        }
    }
    let bar = "#".repeat(if view.ext { 186 } else { 76 });
    let of_pending = " - PENDING JOBS".repeat(5);
    let of_ended = format!(" --  {}FINISHED JOBS  --  ", "FINISHED JOBS  -  ".repeat(3));
    for (title, jobs) in [(of_pending, waiting), (of_ended, ended)] {
        if !jobs.is_empty() {
            let _ = writeln!(text, "\n{bar}\n{title}\n{bar}");
        }
        for entry in jobs {
            lines::line(&mut text, entry, view, false);
        }
    }
    text
}

fn full_xml<'a>(
    shown: &[&Instance],
    on: impl Fn(&Instance) -> Vec<&'a Entry<'a>>,
    resources: impl Fn(&Instance) -> Vec<Resource>,
    waiting: &[&Entry],
    view: &View,
) -> String {
    let mut text = xml::HEAD.to_owned();
    text.push_str("  <queue_info>\n");
    for own in shown {
        text.push_str("    <Queue-List>\n");
        let mut element = |name: &str, value: &str| {
            let _ = writeln!(text, "      <{name}>{}</{name}>", xml::escaped(value));
        };
        element("name", &own.name());
        element("qtype", "BIP");
        element("slots_used", &own.used.to_string());
        element("slots_resv", "0");
        element("slots_total", &own.total.to_string());
        if let Some(load) = own.load {
            element("load_avg", &format!("{load:.5}"));
        }
        element("arch", site::ARCH);
        if !own.states.is_empty() {
            element("state", &own.states);
        }
        for one in resources(own) {
            let (name, value) = (xml::escaped(&one.name), xml::escaped(&one.in_queue()));
            let kind = one.kind;
            let _ = writeln!(
                text,
                "      <resource name=\"{name}\" type=\"{kind}\">{value}</resource>"
            );
        }
        for entry in on(own) {
            xml::job(&mut text, entry, view, 6, false);
        }
        text.push_str("    </Queue-List>\n");
    }
    text.push_str("  </queue_info>\n  <job_info>\n");
    for entry in waiting {
        xml::job(&mut text, entry, view, 4, false);
    }
    text.push_str("  </job_info>\n</job_info>\n");
    text
}

/// The totals of a queue over all hosts.
#[derive(Default)]
struct Sums {
    load: f64,
    loads: u32,
    used: u64,
    free: u64,
    total: u64,
    /// In alarm or disabled by the system.
    alarm: u64,
    /// Disabled, unreachable or in error.
    out: u64,
}

/// `-g c`.
pub(super) fn summary(known: &[Instance], list: Option<&str>, as_xml: bool) -> String {
    let mut sums: Vec<(&str, Sums)> = Vec::new();
    for own in known.iter().filter(|own| is_chosen(own, list)) {
        if sums.last().is_none_or(|(name, _)| *name != own.queue) {
            sums.push((&own.queue, Sums::default()));
        }
        let Some((_, sum)) = sums.last_mut() else {
            continue;
        };
        if let Some(load) = own.load {
            sum.load += load / f64::from(u32::try_from(own.total.max(1)).unwrap_or(u32::MAX));
            sum.loads += 1;
        }
        sum.used += own.used;
        sum.total += own.total;
        match own.states.is_empty() {
            true => sum.free += own.total.saturating_sub(own.used),
            false => sum.out += own.total,
        }
    }
    let load = |sum: &Sums| match sum.loads {
        0 => None,
        count => Some(sum.load / f64::from(count)),
    };
    if as_xml {
        return summary_xml(&sums, load);
    }
    let mut text = String::from(
        "CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE  \n",
    );
    let _ = writeln!(text, "{}", "-".repeat(80));
    for (name, sum) in &sums {
        let load = load(sum).map_or_else(|| "-NA-".to_owned(), |load| format!("{load:.2}"));
        let _ = writeln!(
            text,
            "{name:<30} {load:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} ",
            sum.used, 0, sum.free, sum.total, sum.alarm, sum.out
        );
    }
    text
}

fn summary_xml(sums: &[(&str, Sums)], load: impl Fn(&Sums) -> Option<f64>) -> String {
    let mut text = xml::HEAD.to_owned();
    for (name, sum) in sums {
        text.push_str("  <cluster_queue_summary>\n");
        let mut element = |key: &str, value: String| {
            let _ = writeln!(text, "    <{key}>{}</{key}>", xml::escaped(&value));
        };
        element("name", (*name).to_owned());
        if let Some(load) = load(sum) {
            element("load", format!("{load:.5}"));
        }
        element("used", sum.used.to_string());
        element("resv", "0".to_owned());
        element("available", sum.free.to_string());
        element("total", sum.total.to_string());
        element("temp_disabled", sum.alarm.to_string());
        element("manual_intervention", sum.out.to_string());
        text.push_str("  </cluster_queue_summary>\n");
    }
    text.push_str("</job_info>\n");
    text
}
