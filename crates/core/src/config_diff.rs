//! What a new configuration would change, in lines that an administrator reads before it is put into force.

use crate::apply::dynamic::take_in;
use crate::state::State;
use muster_model::binding::BindDefault;
use muster_model::config::{ClusterConfig, OverSubscribe, PartitionConfig};
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::node::{Node, NodeConfig};
use muster_model::time::TimeLimit;
use muster_model::topology::{Topology, TopologyKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Names and texts of one thing's settings.
type Rows = Vec<(&'static str, String)>;

/// The difference between what is in force and what was read, a line each; nothing if there is none.
pub fn differences(state: &State, new: &ClusterConfig) -> Vec<String> {
    let mut out = Vec::new();
    nodes(state, new, &mut out);
    partitions(state, new, &mut out);
    let old = state.config.as_ref().map_or(&[][..], |c| &c.topologies);
    topologies(old, &new.topologies, &mut out);
    out
}

fn nodes(state: &State, new: &ClusterConfig, out: &mut Vec<String>) {
    let wanted: BTreeMap<&str, &NodeConfig> =
        new.nodes.iter().map(|n| (n.name.as_str(), n)).collect();
    let mut known = BTreeSet::new();
    let (mut gone, mut jobs) = (Vec::new(), BTreeSet::<JobId>::new());
    // Nodes that change in the same way share a line.
    let mut changed: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in state.nodes.iter().filter(|n| !n.removed) {
        let name = node.config.name.as_str();
        known.insert(name);
        match wanted.get(name) {
            // It stays, whatever files say.
            None if node.config.dynamic => {}
            None => {
                gone.push(name);
                jobs.extend(&node.jobs);
            }
            Some(other) => {
                let text = changes(&node_rows(&node.config), &node_rows(other));
                if !text.is_empty() {
                    changed.entry(text).or_default().push(name);
                }
            }
        }
    }
    let fresh: Vec<&str> = wanted
        .keys()
        .filter(|name| !known.contains(*name))
        .copied()
        .collect();
    if !fresh.is_empty() {
        out.push(format!("+ NodeName={}", hostlist::compress_sorted(&fresh)));
    }
    if !gone.is_empty() {
        let jobs = match jobs.len() {
            0 => String::new(),
            n => format!(" ({n} jobs hold them and go on)"),
        };
        out.push(format!(
            "- NodeName={}{jobs}",
            hostlist::compress_sorted(&gone)
        ));
    }
    for (text, names) in changed {
        out.push(format!(
            "~ NodeName={}: {text}",
            hostlist::compress_sorted(&names)
        ));
    }
}

fn partitions(state: &State, new: &ClusterConfig, out: &mut Vec<String>) {
    let mut wanted = new.partitions.clone();
    let in_file: BTreeSet<&str> = new.nodes.iter().map(|n| n.name.as_str()).collect();
    let others = |node: &&Node| !in_file.contains(node.config.name.as_str());
    take_in(&mut wanted, state.nodes.iter().filter(others));
    for partition in &wanted {
        match state.partition(&partition.name) {
            None => out.push(format!("+ PartitionName={}", partition.name)),
            Some(known) => {
                let text = changes(&partition_rows(known), &partition_rows(partition));
                if !text.is_empty() {
                    out.push(format!("~ PartitionName={}: {text}", partition.name));
                }
            }
        }
    }
    for known in &state.partitions {
        if !new.partitions.iter().any(|p| p.name == known.name) {
            out.push(format!("- PartitionName={}", known.name));
        }
    }
}

fn topologies(old: &[Topology], new: &[Topology], out: &mut Vec<String>) {
    let (old, new) = (topology_rows(old), topology_rows(new));
    let names: BTreeSet<&(String, String)> = old.keys().chain(new.keys()).collect();
    for name in names {
        let shown = &name.1;
        match (old.get(name), new.get(name)) {
            (None, Some(text)) => out.push(format!("+ {shown}: {text}")),
            (Some(text), None) => out.push(format!("- {shown}: {text}")),
            (Some(a), Some(b)) if a != b => out.push(format!("~ {shown}: {a} -> {b}")),
            _ => {}
        }
    }
}

/// The lines of topologies, by the topology's name and the line's.
fn topology_rows(all: &[Topology]) -> BTreeMap<(String, String), String> {
    let mut rows = BTreeMap::new();
    for topology in all {
        let (kind, key) = match topology.kind {
            TopologyKind::Flat => ("flat", "SwitchName"),
            TopologyKind::Tree => ("tree", "SwitchName"),
            TopologyKind::Block => ("block", "BlockName"),
        };
        for switch in &topology.switches {
            let children: Vec<&str> = switch
                .children
                .iter()
                .filter_map(|c| topology.switches.get(*c as usize))
                .map(|s| s.name.as_str())
                .collect();
            let text = match switch.nodes.as_str() {
                "" if children.is_empty() => "no nodes".to_owned(),
                "" => format!("Switches={}", hostlist::compress(&children)),
                nodes => format!("Nodes={nodes}"),
            };
            let shown = format!("{key}={}", switch.name);
            rows.insert((topology.name.clone(), shown), text);
        }
        let mut rest = kind.to_owned();
        if !topology.block_sizes.is_empty() {
            let sizes: Vec<String> = topology.block_sizes.iter().map(u32::to_string).collect();
            rest += &format!(", BlockSizes={}", sizes.join(","));
        }
        if topology.optional {
            rest += ", TopoOptional";
        }
        let shown = format!("Topology={}", topology.name);
        rows.insert((topology.name.clone(), shown), rest);
    }
    rows
}

/// `Key old -> new` of all rows that differ.
fn changes(old: &Rows, new: &Rows) -> String {
    let differ = old.iter().zip(new).filter(|(a, b)| a.1 != b.1);
    let texts: Vec<String> = differ
        .map(|((key, a), (_, b))| format!("{key} {} -> {}", shown(a), shown(b)))
        .collect();
    texts.join(", ")
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "(none)" } else { text }
}

fn plain(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let text = text
        .strip_prefix("Some(")
        .map_or(text.as_str(), |t| t.trim_end_matches(')'));
    match text {
        "None" | "[]" => String::new(),
        text => text.trim_matches('"').to_owned(),
    }
}

fn node_rows(n: &NodeConfig) -> Rows {
    let gres: Vec<String> = n
        .gres
        .iter()
        .map(|g| match &g.kind {
            Some(kind) => format!("{}:{kind}:{}", g.name, g.count),
            None => format!("{}:{}", g.name, g.count),
        })
        .collect();
    vec![
        ("NodeHostname", n.hostname.clone()),
        ("NodeAddr", n.addr.clone()),
        ("Port", n.port.to_string()),
        ("CPUs", n.cpus.to_string()),
        ("Boards", n.boards.to_string()),
        ("Sockets", n.sockets.to_string()),
        ("CoresPerSocket", n.cores_per_socket.to_string()),
        ("ThreadsPerCore", n.threads_per_core.to_string()),
        ("RealMemory", n.memory_mib.to_string()),
        ("TmpDisk", n.tmp_disk_mib.to_string()),
        ("Features", n.features.join(",")),
        ("Gres", gres.join(",")),
        ("Weight", n.weight.to_string()),
        ("CpuBind", bind_name(n.cpu_bind).to_owned()),
        ("State", n.state.name().to_owned()),
        ("Reason", n.reason.clone().unwrap_or_default()),
    ]
}

fn partition_rows(p: &PartitionConfig) -> Rows {
    vec![
        ("Nodes", hostlist::compress(&p.nodes)),
        ("Default", plain(&p.default)),
        ("State", plain(&p.state).to_uppercase()),
        ("MaxTime", minutes(p.max_time)),
        (
            "DefaultTime",
            p.default_time.map_or_else(String::new, minutes),
        ),
        ("MinNodes", plain(&p.min_nodes)),
        ("MaxNodes", plain(&p.max_nodes)),
        ("MaxCPUsPerNode", plain(&p.max_cpus_per_node)),
        ("AllowGroups", p.allow_groups.join(",")),
        ("AllowAccounts", p.allow_accounts.join(",")),
        ("DenyAccounts", p.deny_accounts.join(",")),
        ("AllowQos", p.allow_qos.join(",")),
        ("DenyQos", p.deny_qos.join(",")),
        ("AllocNodes", p.alloc_nodes.join(",")),
        ("PriorityTier", plain(&p.priority_tier)),
        ("PriorityJobFactor", plain(&p.priority_job_factor)),
        ("OverSubscribe", over_subscribe(p.over_subscribe)),
        ("DefMem", plain(&p.default_memory)),
        ("MaxMem", plain(&p.max_memory)),
        ("Hidden", plain(&p.hidden)),
        ("RootOnly", plain(&p.root_only)),
        ("DisableRootJobs", plain(&p.disable_root_jobs)),
        ("ExclusiveUser", plain(&p.exclusive_user)),
        ("LLN", plain(&p.lln)),
        ("ReqResv", plain(&p.req_resv)),
        ("QOS", plain(&p.qos)),
        ("GraceTime", plain(&p.grace_time_s)),
        ("PreemptMode", plain(&p.preempt_mode)),
        ("OverTimeLimit", plain(&p.over_time_limit_min)),
        ("TRESBillingWeights", plain(&p.billing_weights)),
        ("Topology", plain(&p.topology)),
        ("JobDefaults", p.job_defaults.to_string()),
        ("MaxCPUsPerSocket", plain(&p.max_cpus_per_socket)),
        ("SelectTypeParameters", plain(&p.whole_sockets)),
        ("CpuBind", bind_name(p.cpu_bind).to_owned()),
    ]
}

/// A limit as slurm.conf has it.
fn minutes(limit: TimeLimit) -> String {
    match limit {
        TimeLimit::Unlimited => "UNLIMITED".to_owned(),
        TimeLimit::Minutes(minutes) => minutes.to_string(),
    }
}

fn over_subscribe(rule: OverSubscribe) -> String {
    match rule {
        OverSubscribe::No => "NO".to_owned(),
        OverSubscribe::Exclusive => "EXCLUSIVE".to_owned(),
        OverSubscribe::Yes(most) => format!("YES:{most}"),
        OverSubscribe::Force(most) => format!("FORCE:{most}"),
    }
}

fn bind_name(bind: Option<BindDefault>) -> &'static str {
    bind.map_or("", BindDefault::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::topology::Switch;

    #[test]
    fn networks_are_listed_as_their_files_have_them() {
        let block = |name: &str, nodes: &str| Switch {
            name: name.into(),
            nodes: nodes.into(),
            ..Switch::default()
        };
        let blocks = Topology {
            name: "default".into(),
            kind: TopologyKind::Block,
            switches: vec![block("b1", "n[1-2]"), block("b2", "")],
            block_sizes: vec![2, 4],
            ..Topology::default()
        };
        let tree = Topology {
            name: "default".into(),
            kind: TopologyKind::Tree,
            switches: vec![
                block("b1", "n[1-2]"),
                Switch {
                    children: vec![0],
                    ..block("top", "")
                },
            ],
            optional: true,
            ..Topology::default()
        };
        let mut lines = Vec::new();
        topologies(&[blocks], &[tree], &mut lines);
        let expected = [
            "- BlockName=b1: Nodes=n[1-2]",
            "- BlockName=b2: no nodes",
            "+ SwitchName=b1: Nodes=n[1-2]",
            "+ SwitchName=top: Switches=b1",
            "~ Topology=default: block, BlockSizes=2,4 -> tree, TopoOptional",
        ];
        assert_eq!(lines, expected);
    }
}
