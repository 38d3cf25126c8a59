//! From `NodeSet` and `PartitionName` lines to node sets and partitions, with node names resolved.

use std::collections::HashMap;

use crate::diagnostic::{Findings, Origin};
use crate::job_defaults;
use crate::keys;
use crate::model::{NodeSet, PartitionDef, SelectUnit};
use crate::nodes::{self, MAX_NODES, Nodes};
use crate::reader::{Reader, Record};
use crate::value::{self, DurationLimit};
use muster_model::config::{OverSubscribe, PartitionState};
use muster_model::hostlist;

/// Number of jobs that share a CPU where `OverSubscribe` does not set it.
const DEFAULT_SHARERS: u16 = 4;

pub(crate) fn node_sets(
    records: &[Record],
    nodes: &Nodes,
    findings: &mut Findings,
) -> Vec<NodeSet> {
    let mut sets: Vec<NodeSet> = Vec::new();
    for record in records {
        let (name, origin) = (&record.name, &record.origin);
        if sets.iter().any(|set| set.name == *name) || nodes.by_name.contains_key(name) {
            let message = format!("NodeSet {name}: the name is taken already");
            findings.error(origin, "NodeSet", message, "choose another name");
            continue;
        }
        let reader = Reader {
            settings: &record.settings,
            table: &keys::NODE_SET,
        };
        let mut members = match reader.given("Nodes") {
            Some(text) => nodes::find_all(text, "Nodes", origin, nodes, findings),
            None => Vec::new(),
        };
        if let Some(feature) = reader.given("Feature") {
            let with = |&i: &usize| nodes.list[i].features.iter().any(|have| have == feature);
            members.extend((0..nodes.list.len()).filter(with));
        }
        if reader.given("Nodes").is_none() && reader.given("Feature").is_none() {
            let message = format!("NodeSet {name} has neither Nodes nor Feature");
            findings.error(origin, "NodeSet", message, "add one of the two");
        }
        members.sort_unstable();
        members.dedup();
        sets.push(NodeSet {
            name: name.clone(),
            nodes: members,
            all: reader
                .given("Nodes")
                .is_some_and(|text| text.eq_ignore_ascii_case("ALL")),
            feature: reader.given("Feature").map(str::to_owned),
        });
    }
    sets
}

pub(crate) fn build(
    records: &[Record],
    nodes: &Nodes,
    sets: &[NodeSet],
    disable_root_jobs: bool,
    findings: &mut Findings,
) -> Vec<PartitionDef> {
    let mut partitions: Vec<PartitionDef> = Vec::new();
    let sets: HashMap<&str, &NodeSet> = sets.iter().map(|set| (set.name.as_str(), set)).collect();
    for record in records {
        let (name, origin) = (&record.name, &record.origin);
        let bad_name = name.is_empty() || name.contains([',', ' ', '[', ']', '/']);
        if bad_name {
            let message = format!("`{name}` cannot be the name of a partition");
            findings.error(origin, "PartitionName", message, "");
            continue;
        }
        if let Some(first) = partitions.iter().find(|partition| partition.name == *name) {
            let message = format!(
                "partition {name} is defined twice, first at {}",
                first.origin
            );
            findings.error(
                origin,
                "PartitionName",
                message,
                "define each partition once",
            );
            continue;
        }
        partitions.push(partition(record, nodes, &sets, disable_root_jobs, findings));
    }
    one_default(&mut partitions, findings);
    check_alternates(&partitions, records, findings);
    partitions
}

/// At most one partition is the default; the last that says so.
fn one_default(partitions: &mut [PartitionDef], findings: &mut Findings) {
    let mut defaults = partitions.iter_mut().filter(|p| p.default).rev();
    let last = defaults.next().map(|p| p.name.clone());
    for earlier in defaults {
        earlier.default = false;
        let chosen = last.as_deref().unwrap_or("");
        let message = format!(
            "partitions {} and {chosen} both are the default; {chosen} is used",
            earlier.name
        );
        findings.warn(
            &earlier.origin,
            "Default",
            message,
            "set Default=YES on one of them only",
        );
    }
    if let (None, Some(first)) = (last, partitions.first()) {
        let help = "jobs must name a partition, unless one has Default=YES";
        findings.warn(
            &first.origin,
            "Default",
            "no partition is the default",
            help,
        );
    }
}

fn check_alternates(partitions: &[PartitionDef], records: &[Record], findings: &mut Findings) {
    for record in records {
        let Some(setting) = record.settings.get("Alternate") else {
            continue;
        };
        if !partitions
            .iter()
            .any(|partition| partition.name == setting.value)
        {
            let message = format!("Alternate: there is no partition {}", setting.value);
            findings.error(&setting.origin, "Alternate", message, "");
        }
    }
}

fn partition(
    record: &Record,
    nodes: &Nodes,
    sets: &HashMap<&str, &NodeSet>,
    disable_root_jobs: bool,
    findings: &mut Findings,
) -> PartitionDef {
    let reader = Reader {
        settings: &record.settings,
        table: &keys::PARTITION,
    };
    let place = |key: &str| {
        record
            .settings
            .get(key)
            .map_or(&record.origin, |s| &s.origin)
    };
    let nodes_text = reader.given("Nodes").unwrap_or("").to_owned();
    let (members, node_sets) = members(&nodes_text, place("Nodes"), nodes, sets, findings);
    let priority_tier = priority(record, &reader, "PriorityTier", findings);
    let priority_job_factor = priority(record, &reader, "PriorityJobFactor", findings);
    let max_time = limit(&reader, "MaxTime").unwrap_or(DurationLimit::Unlimited);
    let default_time = limit(&reader, "DefaultTime");
    if default_time.is_some_and(|time| time > max_time) {
        let message = format!(
            "DefaultTime of partition {} exceeds its MaxTime",
            record.name
        );
        findings.warn(
            place("DefaultTime"),
            "DefaultTime",
            message,
            "MaxTime is used",
        );
    }
    let max_nodes = reader
        .given("MaxNodes")
        .and_then(|_| reader.number("MaxNodes"));
    let min_nodes = reader.count("MinNodes");
    if max_nodes.is_some_and(|max| max < u64::from(min_nodes)) {
        let message = format!("MinNodes of partition {} exceeds its MaxNodes", record.name);
        findings.error(
            place("MinNodes"),
            "MinNodes",
            message,
            "no job could run there",
        );
    }
    PartitionDef {
        name: record.name.clone(),
        nodes: members,
        nodes_text,
        node_sets,
        default: reader.is_set("Default"),
        state: match reader
            .text("State")
            .unwrap_or("UP")
            .to_ascii_uppercase()
            .as_str()
        {
            "DOWN" => PartitionState::Down,
            "DRAIN" => PartitionState::Drain,
            "INACTIVE" => PartitionState::Inactive,
            _ => PartitionState::Up,
        },
        max_time,
        default_time: default_time.map(|time| time.min(max_time)),
        min_nodes,
        max_nodes: max_nodes.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        allow_groups: reader.allowed("AllowGroups"),
        allow_accounts: reader.allowed("AllowAccounts"),
        allow_qos: reader.allowed("AllowQos"),
        deny_accounts: denied(&reader, "DenyAccounts", "AllowAccounts", findings),
        deny_qos: denied(&reader, "DenyQos", "AllowQos", findings),
        alloc_nodes: alloc_nodes(&reader),
        alternate: reader.given("Alternate").map(str::to_owned),
        priority_tier,
        priority_job_factor,
        over_subscribe: over_subscribe(&reader, place("OverSubscribe"), findings),
        max_cpus_per_node: reader
            .number("MaxCPUsPerNode")
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        max_cpus_per_socket: reader
            .number("MaxCPUsPerSocket")
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        select_unit: select_unit(&reader),
        job_defaults: job_defaults::read(&reader, findings),
        def_mem: reader.mem_per("DefMem", findings),
        max_mem: reader.mem_per("MaxMem", findings),
        hidden: reader.is_set("Hidden"),
        root_only: reader.is_set("RootOnly"),
        disable_root_jobs: match reader.given("DisableRootJobs") {
            Some(_) => reader.is_set("DisableRootJobs"),
            None => disable_root_jobs,
        },
        exclusive_user: reader.is_set("ExclusiveUser"),
        least_loaded_nodes: reader.is_set("LLN"),
        requires_reservation: reader.is_set("ReqResv"),
        qos: reader.text("QOS").map(str::to_owned),
        grace_time_s: reader.count("GraceTime"),
        preempt_mode: reader.text("PreemptMode").map(str::to_ascii_uppercase),
        billing_weights: billing_weights(&reader, place("TRESBillingWeights"), findings),
        billing_weights_text: reader.text("TRESBillingWeights").map(str::to_owned),
        topology: reader.text("Topology").map(str::to_owned),
        cpu_bind: reader.given("CpuBind").map(str::to_ascii_lowercase),
        over_time_limit: reader.given("OverTimeLimit").map(|_| {
            let minutes = reader.number("OverTimeLimit");
            minutes.map_or(DurationLimit::Unlimited, |m| {
                DurationLimit::Seconds(m.saturating_mul(60))
            })
        }),
        origin: record.origin.clone(),
    }
}

/// The highest tier and factor; Slurm reserves the values above.
const MAX_PRIORITY: u16 = 65_533;

/// `PriorityTier` or `PriorityJobFactor`, for both of which `Priority` is the old name.
fn priority(record: &Record, reader: &Reader<'_>, key: &str, findings: &mut Findings) -> u16 {
    let key = if reader.given(key).is_none() && reader.given("Priority").is_some() {
        "Priority"
    } else {
        key
    };
    let value = reader.number(key).unwrap_or(1);
    match u16::try_from(value) {
        Ok(value) if value <= MAX_PRIORITY => value,
        _ => {
            let origin = record
                .settings
                .get(key)
                .map_or(&record.origin, |s| &s.origin);
            let message = format!("{key}={value} is too high; {MAX_PRIORITY} is used");
            findings.error(origin, key, message, format!("at most {MAX_PRIORITY}"));
            MAX_PRIORITY
        }
    }
}

fn limit(reader: &Reader<'_>, key: &str) -> Option<DurationLimit> {
    let text = reader
        .given(key)
        .filter(|text| !text.eq_ignore_ascii_case("NONE"))?;
    value::parse_time_limit(text).ok()
}

/// Nodes and node sets of a partition, and the names of the sets.
fn members(
    text: &str,
    origin: &Origin,
    nodes: &Nodes,
    sets: &HashMap<&str, &NodeSet>,
    findings: &mut Findings,
) -> (Vec<usize>, Vec<String>) {
    let (mut found, mut named, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    let parts = match hostlist::split(text) {
        Ok(parts) => parts,
        Err(error) => {
            findings.error(origin, "Nodes", format!("Nodes: {error}"), "");
            return (found, named);
        }
    };
    for part in parts {
        if part.eq_ignore_ascii_case("ALL") {
            found.extend(0..nodes.list.len());
        } else if let Some(set) = sets.get(part) {
            named.push(set.name.clone());
            found.extend(&set.nodes);
        } else {
            for name in hostlist::parse_limited(part, MAX_NODES).unwrap_or_default() {
                match nodes.by_name.get(&name) {
                    Some(&node) => found.push(node),
                    None => unknown.push(name),
                }
            }
        }
    }
    nodes::report_unknown(&unknown, "Nodes", origin, findings);
    found.sort_unstable();
    found.dedup();
    (found, named)
}

fn denied(
    reader: &Reader<'_>,
    deny: &'static str,
    allow: &'static str,
    findings: &mut Findings,
) -> Vec<String> {
    if let (Some(setting), Some(_)) = (reader.settings.get(deny), reader.allowed(allow)) {
        let message = format!("{deny} is not enforced where {allow} is set");
        findings.warn(&setting.origin, deny, message, "remove one of the two");
        return Vec::new();
    }
    reader.list(deny)
}

/// Whether jobs of the partition get whole cores or whole sockets, whatever the cluster says.
fn select_unit(reader: &Reader<'_>) -> Option<SelectUnit> {
    let word = reader.given("SelectTypeParameters")?.to_ascii_lowercase();
    match word.as_str() {
        "cr_core" | "cr_core_memory" => Some(SelectUnit::Core),
        "cr_socket" | "cr_socket_memory" => Some(SelectUnit::Socket),
        _ => None,
    }
}

fn alloc_nodes(reader: &Reader<'_>) -> Option<Vec<String>> {
    let text = reader
        .given("AllocNodes")
        .filter(|text| !text.eq_ignore_ascii_case("ALL"))?;
    hostlist::parse_limited(text, MAX_NODES)
        .ok()
        .filter(|hosts| !hosts.is_empty())
}

fn over_subscribe(reader: &Reader<'_>, origin: &Origin, findings: &mut Findings) -> OverSubscribe {
    let text = reader
        .given("OverSubscribe")
        .or(reader.given("Shared"))
        .unwrap_or("NO");
    let upper = text.to_ascii_uppercase();
    let (word, count) = match upper.split_once(':') {
        Some((word, count)) => (word, count.parse::<u16>().ok().filter(|&n| n > 0)),
        None => (upper.as_str(), Some(DEFAULT_SHARERS)),
    };
    match (word, count) {
        ("NO", Some(_)) => OverSubscribe::No,
        ("EXCLUSIVE", Some(_)) => OverSubscribe::Exclusive,
        ("YES", Some(count)) => OverSubscribe::Yes(count.into()),
        ("FORCE", Some(count)) => OverSubscribe::Force(count.into()),
        _ => {
            let message = format!("OverSubscribe: `{text}` is not understood");
            let help = "one of NO, YES[:COUNT], FORCE[:COUNT], EXCLUSIVE; NO is used";
            findings.error(origin, "OverSubscribe", message, help);
            OverSubscribe::No
        }
    }
}

fn billing_weights(
    reader: &Reader<'_>,
    origin: &Origin,
    findings: &mut Findings,
) -> Vec<(String, f64)> {
    let mut weights = Vec::new();
    for entry in reader.list("TRESBillingWeights") {
        match billing_weight(&entry) {
            Some(weight) => weights.push(weight),
            None => {
                let message = format!("TRESBillingWeights: `{entry}` is not TRES=WEIGHT");
                let help = "for example CPU=1.0,Mem=0.25G";
                findings.error(origin, "TRESBillingWeights", message, help);
            }
        }
    }
    weights
}

/// Reads `mem=0.25G`. Memory is counted in MiB, so a suffix divides by the MiB in its unit.
fn billing_weight(entry: &str) -> Option<(String, f64)> {
    let (tres, weight) = entry.split_once('=')?;
    let tres = tres.trim().to_ascii_lowercase();
    let weight = weight.trim();
    let end = weight
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(weight.len());
    let (number, suffix) = weight.split_at(end);
    let power = match suffix.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    let base = if tres == "mem" || tres.starts_with("bb/") {
        2
    } else {
        0
    };
    let power = if suffix.is_empty() { 0 } else { power - base };
    let number: f64 = number.parse().ok().filter(|n: &f64| n.is_finite())?;
    (!tres.is_empty()).then(|| (tres, number / 1024f64.powi(power)))
}
