//! Hosts and their resources: nodes, generic resources, licenses, features.

use super::Made;
use super::dump::{Complex, Dump, Object};
use muster_conf::grid_engine::Mapping;
use std::collections::{BTreeMap, HashMap};

/// Counterparts of complexes.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// Generic resources: names.
    pub(super) gres: Vec<String>,
    /// Licenses, with their number.
    pub(super) licenses: Vec<String>,
    /// Lines of sge.conf.
    lines: Vec<String>,
    /// Features: complexes that are true or false.
    features: Vec<String>,
    /// Complexes of memory that jobs use up on hosts.
    memory: Vec<String>,
}

impl Resources {
    /// Puts the lines of sge.conf down.
    pub(super) fn write(&self, made: &mut Made) {
        for line in &self.lines {
            made.sge.push_str(&format!("{line}\n"));
        }
    }
}

/// `name=value,...`, values with parentheses of resource maps among them.
fn values(text: &str) -> Vec<(String, String)> {
    let mut parts = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    let pairs = parts.iter().filter_map(|part| part.trim().split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

pub(super) fn complex_values(host: &Object) -> Vec<(String, String)> {
    values(host.get("complex_values").unwrap_or_default())
}

/// Load values of a host.
pub(super) fn loads_of(host: &Object) -> BTreeMap<String, String> {
    let loads = values(host.get("load_values").unwrap_or_default());
    loads.into_iter().collect()
}

/// Counterpart of each complex of the site's own.
pub(super) fn resources(dump: &Dump, made: &mut Made) -> Resources {
    let mut all = Resources::default();
    let of_hosts: Vec<(String, String)> = dump.hosts.iter().flat_map(complex_values).collect();
    let of_global = dump.global.as_ref().map(complex_values).unwrap_or_default();
    let of_queues: Vec<(String, String)> = dump.queues.iter().flat_map(complex_values).collect();
    let has = |list: &[(String, String)], name: &str| list.iter().any(|(own, _)| own == name);
    let is_memory = |own: &&Complex| own.kind == "MEMORY" && own.consumable != "NO";
    let memory = dump.complexes.iter().filter(is_memory);
    all.memory = memory.map(|own| own.name.clone()).collect();
    let builtin = |name: &str| {
        let mut known = muster_conf::grid_engine::resources::Resources::default();
        let usual = ["slots", "arch", "hostname", "qname"];
        usual.contains(&name)
            || name != "gpu"
                && known
                    .add((name, Some("1")), &Mapping::default(), &[])
                    .is_ok()
    };
    for complex in &dump.complexes {
        let (name, kind) = (complex.name.as_str(), complex.kind.as_str());
        let is_used = has(&of_hosts, name) || has(&of_global, name) || has(&of_queues, name);
        if !is_used || builtin(name) {
            continue;
        }
        let what = format!("complex {name} ({kind})");
        let is_plain = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        let counted = ["INT", "DOUBLE", "RSMAP"].contains(&kind) && complex.consumable != "NO";
        match (has(&of_global, name), has(&of_hosts, name)) {
            _ if !is_plain => made.note(&what, "its name cannot be that of a resource here"),
            (true, _) if counted && kind != "RSMAP" => {
                let found = of_global.iter().find(|(own, _)| own == name);
                let count = found.and_then(|(_, value)| value.parse::<f64>().ok()).unwrap_or_default();
                all.licenses.push(format!("{name}:{count:.0}"));
                all.lines.push(format!("complex {name} license:{name}"));
            }
            (_, true) if counted => {
                let per = match complex.consumable.as_str() {
                    "JOB" => "job",
                    "HOST" => "host",
                    _ => "slot",
                };
                all.gres.push(name.to_owned());
                all.lines.push(format!("complex {name} gres:{name} {per}"));
            }
            (_, true) if kind == "MEMORY" && complex.consumable != "NO" => {
                all.lines.push(format!("complex {name} memory"));
                made.note(&what, "it is memory of a job's slots; amounts of hosts are RealMemory");
            }
            (_, true) if kind == "BOOL" => {
                all.features.push(name.to_owned());
                all.lines.push(format!("complex {name} feature:{name}"));
            }
            _ if has(&of_queues, name) => made.note(&what, "values of queues have no counterpart: give them to hosts"),
            _ if !complex.requestable => {}
            _ => made.note(&what, "values of this kind are not requested here; make a BOOL of it, which becomes a feature"),
        }
    }
    all
}

/// MiB of `128.5G`.
pub(super) fn mib(text: &str) -> Option<u64> {
    let bytes = muster_conf::grid_engine::resources::memory("mem_total", Some(text)).ok()?;
    Some(bytes >> 20).filter(|mib| *mib > 0)
}

/// Slots of hosts by the queues, for hosts of which nothing else is known.
fn slots(dump: &Dump) -> HashMap<String, u32> {
    let (mut of_hosts, known) = (HashMap::new(), dump.known_hosts());
    for queue in &dump.queues {
        let (words, _) = queue.list("slots");
        let Some(slots) = words.first().and_then(|text| text.parse::<u32>().ok()) else {
            continue;
        };
        for host in dump.hosts_of(&queue.list("hostlist").0, &known) {
            let most = of_hosts.entry(host).or_default();
            *most = slots.max(*most);
        }
    }
    of_hosts
}

/// Lines of nodes.
pub(super) fn write(dump: &Dump, resources: &Resources, made: &mut Made) {
    let slots = slots(dump);
    for host in &dump.hosts {
        write_host(host, &slots, resources, made);
    }
    made.slurm.push('\n');
}

fn write_host(host: &Object, slots: &HashMap<String, u32>, resources: &Resources, made: &mut Made) {
    let name = host.name();
    let loads = loads_of(host);
    let own = complex_values(host);
    let mut line = format!("NodeName={name}");
    let cpus = cpus_of(host, &loads, &own).or_else(|| slots.get(name).copied());
    match cpus {
        Some(cpus) => line.push_str(&format!(" CPUs={cpus}")),
        None => made.note(
            &format!("host {name}"),
            "the number of CPUs is unknown: 1 is assumed; 'slurmd -C' prints it",
        ),
    }
    line.push_str(&sockets(&loads, cpus));
    match memory_of(&loads, &own, resources) {
        Some(mib) => line.push_str(&format!(" RealMemory={mib}")),
        None => made.note(
            &format!("host {name}"),
            "the amount of memory is unknown: set RealMemory, as 'slurmd -C' prints it",
        ),
    }
    let gres = write_gres(name, &own, resources, made);
    if !gres.is_empty() {
        line.push_str(&format!(" Gres={}", gres.join(",")));
    }
    let is_true = |value: &str| ["true", "1"].contains(&value.to_ascii_lowercase().as_str());
    let features = own
        .iter()
        .filter(|(key, value)| resources.features.contains(key) && is_true(value));
    let features: Vec<&str> = features.map(|(key, _)| key.as_str()).collect();
    if !features.is_empty() {
        line.push_str(&format!(" Feature={}", features.join(",")));
    }
    made.slurm.push_str(&format!("{line}\n"));
    for key in ["user_lists", "xuser_lists", "projects", "xprojects"] {
        if let Some(value) = host.get(key) {
            made.note(
                &format!("host {name}: {key} {value}"),
                "access is a matter of partitions: AllowGroups, AllowAccounts",
            );
        }
    }
}

/// Memory for jobs: as much as the host has, or less by a consumable.
pub(super) fn memory_of(
    loads: &BTreeMap<String, String>,
    own: &[(String, String)],
    resources: &Resources,
) -> Option<u64> {
    let total = mib(loads.get("mem_total")?)?;
    let counted = own.iter().filter(|(key, _)| resources.memory.contains(key));
    let least = counted.filter_map(|(_, value)| mib(value)).min();
    Some(least.map_or(total, |mib| mib.min(total)))
}

/// A load value that is a number above 0.
fn load_number(loads: &BTreeMap<String, String>, key: &str) -> Option<u32> {
    let number = loads.get(key)?.parse::<u32>().ok();
    number.filter(|n| *n > 0)
}

/// CPUs of a host: as its load says, or its configuration.
pub(super) fn cpus_of(
    host: &Object,
    loads: &BTreeMap<String, String>,
    own: &[(String, String)],
) -> Option<u32> {
    let given = || {
        let (_, value) = own.iter().find(|(key, _)| key == "slots")?;
        value.parse().ok()
    };
    let processors = || host.get("processors")?.parse::<u32>().ok();
    load_number(loads, "num_proc")
        .or_else(processors)
        .or_else(given)
}

/// Sockets, cores and threads. A node that is not what its line says is drained: what does not fit together is left out.
fn sockets(loads: &BTreeMap<String, String>, cpus: Option<u32>) -> String {
    let number = |key: &str| load_number(loads, key);
    if let (Some(sockets), Some(cores), Some(threads)) =
        (number("m_socket"), number("m_core"), number("m_thread"))
        && cores.is_multiple_of(sockets)
        && threads.is_multiple_of(cores)
        && cpus == Some(threads)
    {
        return format!(
            " Sockets={sockets} CoresPerSocket={} ThreadsPerCore={}",
            cores / sockets,
            threads / cores
        );
    }
    String::new()
}

/// Writes lines of gres.conf; gives what the node's line says of its devices.
fn write_gres(
    name: &str,
    own: &[(String, String)],
    resources: &Resources,
    made: &mut Made,
) -> Vec<String> {
    let mut gres = Vec::new();
    for (key, value) in own.iter().filter(|(key, _)| resources.gres.contains(key)) {
        let count = value.split('(').next().unwrap_or_default().trim();
        let Some(count) = count.parse::<f64>().ok().filter(|count| *count >= 1.0) else {
            continue;
        };
        gres.push(format!("{key}:{count:.0}"));
        made.gres.push_str(&format!("NodeName={name} Name={key}"));
        match map(value) {
            Some(map) => made
                .gres
                .push_str(&format!(" ResourceMap=\"{key}={map}\"\n")),
            None => {
                made.gres.push_str(&format!(" Count={count:.0}\n"));
                if value.contains('(') {
                    made.note(&format!("host {name}: {key}={value}"), "masks and characteristics of identifiers have no counterpart: the count alone is kept");
                }
            }
        }
    }
    gres
}

/// A resource map without masks and characteristics, `2(0 1)`.
fn map(value: &str) -> Option<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "() _-.".contains(c);
    (value.ends_with(')') && value.chars().all(is_plain)).then_some(value)
}
