//! From `NodeName` and `DownNodes` lines to single nodes: hostlists side by side, the processor
//! geometry made consistent as Slurm does it, generic resources, states.

use std::collections::HashMap;

use crate::diagnostic::{Findings, Origin};
use crate::keys;
use crate::model::{DownNodes, GresCount, NodeDef};
use crate::reader::{Reader, Record};
use crate::value;
use muster_model::gpu_parts::is_part;
use muster_model::hostlist;
use muster_model::node_state::InitialState;
use muster_model::spec::GPU;

/// The most nodes of a cluster.
pub const MAX_NODES: usize = 100_000;

/// The nodes and where each name is among them.
pub(crate) struct Nodes {
    pub(crate) list: Vec<NodeDef>,
    pub(crate) by_name: HashMap<String, usize>,
}

pub(crate) fn expand(records: &[Record], slurmd_port: u16, findings: &mut Findings) -> Nodes {
    let mut nodes = Nodes {
        list: Vec::new(),
        by_name: HashMap::new(),
    };
    for record in records {
        expand_record(record, slurmd_port, &mut nodes, findings);
    }
    nodes
}

fn expand_record(record: &Record, slurmd_port: u16, nodes: &mut Nodes, findings: &mut Findings) {
    let origin = &record.origin;
    if record.name.eq_ignore_ascii_case("ALL") {
        let help = "ALL stands for all nodes; name these differently";
        return findings.error(origin, "NodeName", "a node cannot be named ALL", help);
    }
    let budget = MAX_NODES.saturating_sub(nodes.list.len());
    let names = match hostlist::parse_limited(&record.name, budget) {
        Ok(names) if !names.is_empty() => names,
        Ok(_) => return findings.error(origin, "NodeName", "NodeName has no value", ""),
        Err(error) => return findings.error(origin, "NodeName", format!("NodeName: {error}"), ""),
    };
    let reader = Reader {
        settings: &record.settings,
        table: &keys::NODE,
    };
    let hostnames = beside(&reader, "NodeHostname", names.len(), findings);
    let addresses = beside(&reader, "NodeAddr", names.len(), findings);
    let ports = ports(&reader, names.len(), slurmd_port, findings);
    let template = template(record, &reader, findings);
    nodes.list.reserve(names.len());
    for (i, name) in names.into_iter().enumerate() {
        if let Some(&first) = nodes.by_name.get(&name) {
            let place = &nodes.list[first].origin;
            let message = format!("node {name} is defined twice, first at {place}");
            findings.error(origin, "NodeName", message, "define each node once");
            continue;
        }
        let hostname = pick(&hostnames, i).unwrap_or(&name).to_owned();
        let addr = pick(&addresses, i).unwrap_or(&hostname).to_owned();
        nodes.by_name.insert(name.clone(), nodes.list.len());
        let port = pick(&ports, i).copied().unwrap_or(slurmd_port);
        nodes.list.push(NodeDef {
            name,
            hostname,
            addr,
            port,
            ..template.clone()
        });
    }
}

fn pick<T>(list: &[T], i: usize) -> Option<&T> {
    if list.len() == 1 {
        list.first()
    } else {
        list.get(i)
    }
}

/// A list that goes along with the names: one entry for all, or one for each.
fn beside(reader: &Reader<'_>, key: &str, names: usize, findings: &mut Findings) -> Vec<String> {
    let Some(text) = reader.given(key) else {
        return Vec::new();
    };
    let list = hostlist::parse_limited(text, MAX_NODES).unwrap_or_default();
    check_count(reader, key, list.len(), names, findings);
    list
}

fn check_count(
    reader: &Reader<'_>,
    key: &str,
    count: usize,
    names: usize,
    findings: &mut Findings,
) {
    if count == 1 || count == names {
        return;
    }
    if let Some(setting) = reader.settings.get(key) {
        let message = format!("{key} stands for {count} entries, NodeName for {names}");
        findings.error(
            &setting.origin,
            key,
            message,
            "give one for all or one for each",
        );
    }
}

fn ports(reader: &Reader<'_>, names: usize, default: u16, findings: &mut Findings) -> Vec<u16> {
    let Some(text) = reader.given("Port") else {
        return vec![default];
    };
    let numbers = hostlist::parse_ranges(text, MAX_NODES).unwrap_or_default();
    check_count(reader, "Port", numbers.len(), names, findings);
    numbers
        .into_iter()
        .map(|port| u16::try_from(port).unwrap_or(default))
        .collect()
}

/// A DEFAULT line cannot say what must differ from node to node.
pub(crate) fn check_default(record: &Record, findings: &mut Findings) {
    if !record.name.eq_ignore_ascii_case("DEFAULT") {
        return;
    }
    for key in ["NodeHostname", "NodeAddr", "BcastAddr"] {
        if let Some(setting) = record.settings.get(key) {
            let message = format!("{key} is not allowed with NodeName=DEFAULT");
            findings.error(
                &setting.origin,
                key,
                message,
                "set it on the nodes' own lines",
            );
        }
    }
}

/// Settings that all nodes of a line have in common.
fn template(record: &Record, reader: &Reader<'_>, findings: &mut Findings) -> NodeDef {
    let geometry = geometry(record, reader, findings);
    let features = match reader.given("Features") {
        Some(_) => reader.list("Features"),
        None => reader.list("Feature"),
    };
    let state = reader
        .settings
        .get("State")
        .map_or(InitialState::Unknown, |setting| {
            InitialState::parse(&setting.value).unwrap_or_else(|| {
                let message = format!("State: a node cannot start as `{}`", setting.value);
                let help = "one of UNKNOWN, CLOUD, DOWN, DRAIN, FAIL, FUTURE; UNKNOWN is used";
                findings.warn(&setting.origin, "State", message, help);
                InitialState::Unknown
            })
        });
    let cpu_spec = reader
        .given("CpuSpecList")
        .map(|text| hostlist::parse_ranges(text, 1 << 16));
    NodeDef {
        name: String::new(),
        hostname: String::new(),
        addr: String::new(),
        port: 0,
        cpus: geometry.cpus,
        boards: geometry.boards,
        sockets: geometry.sockets,
        cores_per_socket: geometry.cores,
        threads_per_core: geometry.threads,
        real_memory_mib: reader.number("RealMemory").unwrap_or(1),
        tmp_disk_mib: reader.number("TmpDisk").unwrap_or(0),
        weight: reader.count("Weight"),
        features,
        gres: gres(reader, findings),
        core_spec_count: reader.count("CoreSpecCount"),
        cpu_spec: cpu_spec.and_then(Result::ok).unwrap_or_default(),
        mem_spec_limit_mib: reader
            .text("MemSpecLimit")
            .and_then(|text| value::parse_mem_mib(text).ok())
            .unwrap_or(0),
        cpu_bind: reader.given("CpuBind").map(str::to_ascii_lowercase),
        state,
        reason: reader.given("Reason").map(str::to_owned),
        origin: record.origin.clone(),
    }
}

struct Geometry {
    cpus: u32,
    boards: u32,
    /// On all boards together.
    sockets: u32,
    cores: u32,
    threads: u32,
}

/// Makes CPUs, boards, sockets, cores and threads agree. CPUs may count sockets, cores or threads;
/// where it counts none of them, the product of the others is used in its place.
fn geometry(record: &Record, reader: &Reader<'_>, findings: &mut Findings) -> Geometry {
    let given = |key: &str| {
        let number = reader.number(key).filter(|_| reader.given(key).is_some())?;
        Some(u32::try_from(number).unwrap_or(u32::MAX))
    };
    for key in [
        "Boards",
        "Sockets",
        "SocketsPerBoard",
        "CoresPerSocket",
        "ThreadsPerCore",
    ] {
        if let (Some(0), Some(setting)) = (given(key), record.settings.get(key)) {
            findings.error(&setting.origin, key, format!("{key} cannot be 0"), "");
        }
    }
    let at_least_1 = |key| given(key).filter(|&n| n > 0);
    let cpus = at_least_1("CPUs").or_else(|| at_least_1("Procs"));
    let boards = at_least_1("Boards").unwrap_or(1);
    let cores = at_least_1("CoresPerSocket").unwrap_or(1);
    let threads = at_least_1("ThreadsPerCore").unwrap_or(1);
    let (whole, per_board) = (at_least_1("Sockets"), at_least_1("SocketsPerBoard"));
    let place = |key: &str| record.settings.get(key).map(|setting| &setting.origin);
    let (whole, per_board) = match (place("Sockets"), place("SocketsPerBoard")) {
        (Some(one), Some(other)) if one.file == other.file && one.line == other.line => {
            let message = "Sockets and SocketsPerBoard exclude each other; SocketsPerBoard counts";
            findings.warn(one, "Sockets", message, "remove one of the two");
            (None, per_board)
        }
        // One of them comes from a DEFAULT line, which the line itself overrules.
        (Some(one), Some(_)) if one.line == record.origin.line => (whole, None),
        _ => (whole, per_board),
    };
    // Slurm takes Sockets for all boards together, whatever its documentation says.
    let sockets = match (per_board.map(|n| n.saturating_mul(boards)).or(whole), cpus) {
        (Some(sockets), _) => sockets,
        (None, Some(cpus)) => {
            let per_socket = u64::from(cores) * u64::from(threads);
            u32::try_from(u64::from(cpus) / per_socket)
                .unwrap_or(1)
                .max(boards)
        }
        (None, None) => boards,
    };
    let all_cores = sockets.saturating_mul(cores);
    let all_threads = all_cores.saturating_mul(threads);
    let cpus = match cpus {
        Some(cpus) if [sockets, all_cores, all_threads].contains(&cpus) => cpus,
        Some(cpus) => {
            let origin = record.settings.get("CPUs").or(record.settings.get("Procs"));
            let message = format!(
                "CPUs={cpus} is neither {sockets} (sockets), {all_cores} (cores) nor \
                 {all_threads} (threads); {all_threads} is used"
            );
            let help = "correct CPUs, or Sockets, CoresPerSocket and ThreadsPerCore";
            findings.warn(
                origin.map_or(&record.origin, |s| &s.origin),
                "CPUs",
                message,
                help,
            );
            all_threads
        }
        None => all_threads,
    };
    Geometry {
        cpus,
        boards,
        sockets,
        cores,
        threads,
    }
}

/// Only whole nodes can be counted by sockets; as in Slurm, everything else needs cores or threads.
pub(crate) fn refuse_counting_sockets(nodes: &Nodes, findings: &mut Findings) {
    let mut reported: Option<&Origin> = None;
    for node in &nodes.list {
        let cores = node.sockets.saturating_mul(node.cores_per_socket);
        let threads = cores.saturating_mul(node.threads_per_core);
        if node.cpus == cores || node.cpus == threads || reported == Some(&node.origin) {
            continue;
        }
        reported = Some(&node.origin);
        let message = format!(
            "CPUs={} counts the sockets of {}, which only SelectType=select/linear allows",
            node.cpus, node.name
        );
        let help = match cores == threads {
            true => format!("write CPUs={cores} to count cores"),
            false => format!("write CPUs={cores} to count cores, CPUs={threads} to count threads"),
        };
        findings.error(&node.origin, "CPUs", message, help);
    }
}

fn gres(reader: &Reader<'_>, findings: &mut Findings) -> Vec<GresCount> {
    let mut list = Vec::new();
    for entry in reader.list("Gres") {
        match parse_gres(&entry) {
            Some(gres) => list.push(gres),
            None => {
                if let Some(setting) = reader.settings.get("Gres") {
                    let message = format!("Gres: `{entry}` is not NAME[:TYPE][:no_consume]:COUNT");
                    findings.error(&setting.origin, "Gres", message, "for example gpu:a100:4");
                }
            }
        }
    }
    let parts = list.iter().find(|gres: &&GresCount| is_part(&gres.name));
    if let (Some(parts), Some(setting)) = (parts, reader.settings.get("Gres"))
        && !list.iter().any(|gres| gres.name == GPU)
    {
        let message = format!("Gres: {} are parts of GPUs, and there are none", parts.name);
        findings.error(&setting.origin, "Gres", message, "add gpu:COUNT");
    }
    list
}

/// Reads `name[:type][:no_consume][:count]`; the count is 1 where there is none.
pub fn parse_gres(entry: &str) -> Option<GresCount> {
    // `gpu:a100:4(S:0-1)` is how Slurm prints the sockets of devices; they are not set here.
    let entry = entry.split_once('(').map_or(entry, |(entry, _)| entry);
    let mut parts: Vec<&str> = entry.split(':').collect();
    if parts.len() > 4 || parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    let name = parts.remove(0).to_owned();
    let count = match parts.last().map(|last| value::parse_count(last)) {
        Some(Ok(count)) => {
            parts.pop();
            count
        }
        _ => 1,
    };
    let no_consume = parts
        .last()
        .is_some_and(|part| part.eq_ignore_ascii_case("no_consume"));
    if no_consume {
        parts.pop();
    }
    match parts.as_slice() {
        [] => Some(GresCount {
            name,
            model: None,
            no_consume,
            count,
        }),
        [model] => Some(GresCount {
            name,
            model: Some((*model).to_owned()),
            no_consume,
            count,
        }),
        _ => None,
    }
}

/// Reads `DownNodes` lines and puts their states into the nodes.
pub(crate) fn apply_down(
    records: &[Record],
    nodes: &mut Nodes,
    findings: &mut Findings,
) -> Vec<DownNodes> {
    let mut lines = Vec::new();
    for record in records {
        let reader = Reader {
            settings: &record.settings,
            table: &keys::DOWN_NODES,
        };
        let text = reader.text("State").unwrap_or("DOWN");
        let state = match InitialState::parse(text) {
            Some(state) if state != InitialState::Unknown && state != InitialState::Cloud => state,
            _ => {
                let origin = record
                    .settings
                    .get("State")
                    .map_or(&record.origin, |s| &s.origin);
                let message = format!("State: DownNodes cannot be `{text}`");
                let help = "one of DOWN, DRAIN, FAIL, FUTURE; DOWN is used";
                findings.error(origin, "State", message, help);
                InitialState::Down
            }
        };
        let reason = reader.given("Reason").map(str::to_owned);
        let found = find_all(&record.name, "DownNodes", &record.origin, nodes, findings);
        for &node in &found {
            nodes.list[node].state = state;
            nodes.list[node].reason.clone_from(&reason);
        }
        lines.push(DownNodes {
            nodes: found,
            state,
            reason,
        });
    }
    lines
}

/// Positions of the nodes of a hostlist; unknown names are errors.
pub(crate) fn find_all(
    text: &str,
    key: &str,
    origin: &Origin,
    nodes: &Nodes,
    findings: &mut Findings,
) -> Vec<usize> {
    if text.eq_ignore_ascii_case("ALL") {
        return (0..nodes.list.len()).collect();
    }
    let names = match hostlist::parse_limited(text, MAX_NODES) {
        Ok(names) => names,
        Err(error) => {
            findings.error(origin, key, format!("{key}: {error}"), "");
            return Vec::new();
        }
    };
    let mut found = Vec::with_capacity(names.len());
    let mut unknown = Vec::new();
    for name in names {
        match nodes.by_name.get(&name) {
            Some(&node) => found.push(node),
            None => unknown.push(name),
        }
    }
    report_unknown(&unknown, key, origin, findings);
    found
}

pub(crate) fn report_unknown(
    unknown: &[String],
    key: &str,
    origin: &Origin,
    findings: &mut Findings,
) {
    if unknown.is_empty() {
        return;
    }
    let (nodes, verb) = if unknown.len() == 1 {
        ("node", "is")
    } else {
        ("nodes", "are")
    };
    let names = hostlist::compress(unknown);
    let message = format!("{key}: {nodes} {names} {verb} not defined by any NodeName line");
    findings.error(
        origin,
        key,
        message,
        "correct the name or add a NodeName line",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_text;
    use std::path::Path;

    fn node(line: &str) -> NodeDef {
        let text = format!("ClusterName=c\nSlurmctldHost=h\nNodeName=n {line}\n");
        load_text(Path::new("slurm.conf"), &text).0.nodes.remove(0)
    }

    /// Geometry of the lines in Slurm 22.05.8.
    #[test]
    fn geometry_is_made_consistent() {
        for (line, expected) in [
            ("", (1, 1, 1, 1)),
            ("CPUs=8", (8, 8, 1, 1)),
            ("CPUs=8 CoresPerSocket=4", (8, 2, 4, 1)),
            ("CPUs=16 CoresPerSocket=4 ThreadsPerCore=2", (16, 2, 4, 2)),
            ("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", (16, 2, 4, 2)),
            (
                "CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2",
                (8, 2, 4, 2),
            ),
            (
                "CPUs=2 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2",
                (2, 2, 4, 2),
            ),
            (
                "CPUs=9 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2",
                (16, 2, 4, 2),
            ),
            ("Boards=2 SocketsPerBoard=2 CoresPerSocket=3", (12, 4, 3, 1)),
            ("Boards=2 Sockets=2 CoresPerSocket=3", (6, 2, 3, 1)),
            ("Procs=4", (4, 4, 1, 1)),
            ("CPUs=4 Sockets=2", (2, 2, 1, 1)),
        ] {
            let n = node(line);
            let found = (n.cpus, n.sockets, n.cores_per_socket, n.threads_per_core);
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn gres_entries() {
        let gres = |text: &str| parse_gres(text).map(|g| (g.name, g.model, g.no_consume, g.count));
        assert_eq!(gres("gpu"), Some(("gpu".into(), None, false, 1)));
        assert_eq!(gres("gpu:4"), Some(("gpu".into(), None, false, 4)));
        assert_eq!(
            gres("gpu:a100:4"),
            Some(("gpu".into(), Some("a100".into()), false, 4))
        );
        assert_eq!(
            gres("gpu:a100"),
            Some(("gpu".into(), Some("a100".into()), false, 1))
        );
        let bandwidth = gres("bandwidth:lustre:no_consume:4G");
        assert_eq!(
            bandwidth,
            Some(("bandwidth".into(), Some("lustre".into()), true, 4 << 30))
        );
        assert_eq!(gres("gpu::4"), None);
        assert_eq!(gres("gpu:a:b:4"), None);
    }
}
