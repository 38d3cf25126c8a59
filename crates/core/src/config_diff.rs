//! The changes of a new configuration, in lines that an administrator reads before it is put into force.

use crate::apply::dynamic::take_in;
use crate::state::State;
use muster_model::binding::BindDefault;
use muster_model::config::{ClusterConfig, OverSubscribe, PartitionConfig};
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::node::{GresConfig, Node, NodeConfig};
use muster_model::spec::MemoryAsk;
use muster_model::time::TimeLimit;
use muster_model::topology::{Topology, TopologyKind};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Names and texts of one thing's settings.
type Rows = Vec<(&'static str, String)>;

/// The difference between the configuration in force and a new one, a line each; nothing if there is none.
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
                let text = changes(&node_rows(&line_of(node)), &node_rows(other));
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

/// A node's line as configured; for one that a host has taken, without the host's own settings.
fn line_of(node: &Node) -> Cow<'_, NodeConfig> {
    match &node.line_host {
        None => Cow::Borrowed(&node.config),
        Some(host) => {
            let mut line = node.config.clone();
            line.set_host(host);
            Cow::Owned(line)
        }
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

fn yes_or_no(value: bool) -> String {
    if value { "YES" } else { "NO" }.to_owned()
}

fn number<N: ToString>(value: Option<N>) -> String {
    value.map_or_else(String::new, |n| n.to_string())
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

/// A node as its line, gres.conf and the power-saving keys make it. A field that is added has to be shown here, too.
fn node_rows(node: &NodeConfig) -> Rows {
    let NodeConfig {
        name: _,
        hostname,
        addr,
        port,
        cpus,
        boards,
        sockets,
        cores_per_socket,
        threads_per_core,
        memory_mib,
        tmp_disk_mib,
        features,
        gres,
        weight,
        state,
        reason,
        spec_cpus,
        spec_mib,
        stays_up,
        cpu_bind,
        dynamic: _,
    } = node;
    let gres: Vec<String> = gres.iter().map(gres_text).collect();
    let spec_cpus: Vec<String> = spec_cpus.iter().map(|cpu| cpu.to_string()).collect();
    vec![
        ("NodeHostname", hostname.clone()),
        ("NodeAddr", addr.clone()),
        ("Port", port.to_string()),
        ("CPUs", cpus.to_string()),
        ("Boards", boards.to_string()),
        ("Sockets", sockets.to_string()),
        ("CoresPerSocket", cores_per_socket.to_string()),
        ("ThreadsPerCore", threads_per_core.to_string()),
        ("RealMemory", memory_mib.to_string()),
        ("TmpDisk", tmp_disk_mib.to_string()),
        ("Features", features.join(",")),
        ("Gres", gres.join(",")),
        ("Weight", weight.to_string()),
        ("CpuSpecList", spec_cpus.join(",")),
        ("MemSpecLimit", spec_mib.to_string()),
        ("SuspendExc", yes_or_no(stays_up.unwrap_or(false))),
        ("CpuBind", bind_name(*cpu_bind).to_owned()),
        ("State", state.name().to_owned()),
        ("Reason", reason.clone().unwrap_or_default()),
    ]
}

fn gres_text(gres: &GresConfig) -> String {
    let mut text = gres.name.clone();
    if let Some(kind) = &gres.kind {
        text.push_str(&format!(":{kind}"));
    }
    text.push_str(&format!(":{}", gres.count));
    if !gres.files.is_empty() {
        text.push_str(&format!(" ({})", gres.files.join(",")));
    }
    text
}

/// A partition as its line makes it. A field that is added has to be shown here, too.
fn partition_rows(partition: &PartitionConfig) -> Rows {
    let PartitionConfig {
        name: _,
        nodes,
        nodes_text: _,
        default,
        state,
        max_time,
        default_time,
        min_nodes,
        max_nodes,
        max_cpus_per_node,
        allow_groups,
        allow_accounts,
        deny_accounts,
        allow_qos,
        deny_qos,
        alloc_nodes,
        priority_tier,
        priority_job_factor,
        over_subscribe: shared,
        default_memory,
        max_memory,
        hidden,
        root_only,
        disable_root_jobs,
        exclusive_user,
        lln,
        req_resv,
        qos,
        grace_time_s,
        preempt_mode,
        over_time_limit_min,
        billing_weights,
        topology,
        job_defaults,
        max_cpus_per_socket,
        whole_sockets,
        cpu_bind,
        takes_all: _,
        takes_features: _,
        alternate,
        calendar,
    } = partition;
    let calendar = calendar.as_ref().map(|own| own.calendar.text());
    let select = whole_sockets.map(|whole| if whole { "CR_Socket" } else { "CR_Core" });
    vec![
        ("Nodes", hostlist::compress(nodes)),
        ("Default", yes_or_no(*default)),
        ("State", state.name().to_owned()),
        ("MaxTime", minutes(*max_time)),
        (
            "DefaultTime",
            default_time.map_or_else(String::new, minutes),
        ),
        ("MinNodes", min_nodes.to_string()),
        ("MaxNodes", number(*max_nodes)),
        ("MaxCPUsPerNode", number(*max_cpus_per_node)),
        ("AllowGroups", allow_groups.join(",")),
        ("AllowAccounts", allow_accounts.join(",")),
        ("DenyAccounts", deny_accounts.join(",")),
        ("AllowQos", allow_qos.join(",")),
        ("DenyQos", deny_qos.join(",")),
        ("AllocNodes", alloc_nodes.join(",")),
        ("PriorityTier", priority_tier.to_string()),
        ("PriorityJobFactor", priority_job_factor.to_string()),
        ("OverSubscribe", over_subscribe(*shared)),
        ("DefMemPerNode", number(per_node(*default_memory))),
        ("DefMemPerCPU", number(per_cpu(*default_memory))),
        ("MaxMemPerNode", number(per_node(*max_memory))),
        ("MaxMemPerCPU", number(per_cpu(*max_memory))),
        ("Hidden", yes_or_no(*hidden)),
        ("RootOnly", yes_or_no(*root_only)),
        ("DisableRootJobs", yes_or_no(*disable_root_jobs)),
        ("ExclusiveUser", yes_or_no(*exclusive_user)),
        ("LLN", yes_or_no(*lln)),
        ("ReqResv", yes_or_no(*req_resv)),
        ("QOS", text(qos.as_ref())),
        ("GraceTime", grace_time_s.to_string()),
        ("PreemptMode", text(preempt_mode.as_ref())),
        ("OverTimeLimit", number(*over_time_limit_min)),
        ("TRESBillingWeights", text(billing_weights.as_ref())),
        ("Topology", text(topology.as_ref())),
        ("JobDefaults", job_defaults.to_string()),
        ("MaxCPUsPerSocket", number(*max_cpus_per_socket)),
        ("SelectTypeParameters", number(select)),
        ("CpuBind", bind_name(*cpu_bind).to_owned()),
        ("Alternate", text(alternate.as_ref())),
        ("Calendar", text(calendar.as_ref())),
    ]
}

fn per_node(memory: MemoryAsk) -> Option<u64> {
    match memory {
        MemoryAsk::PerNode(mib) => Some(mib),
        MemoryAsk::PerCpu(_) | MemoryAsk::Default => None,
    }
}

fn per_cpu(memory: MemoryAsk) -> Option<u64> {
    match memory {
        MemoryAsk::PerCpu(mib) => Some(mib),
        MemoryAsk::PerNode(_) | MemoryAsk::Default => None,
    }
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
    fn what_changes_of_a_node_or_partition_is_shown_as_slurm_conf_writes_it() {
        let plain = NodeConfig::default();
        let mut special = NodeConfig {
            spec_mib: 1024,
            stays_up: Some(true),
            ..NodeConfig::default()
        };
        special.spec_cpus.insert(0);
        special.spec_cpus.insert(4);
        assert_eq!(
            changes(&node_rows(&plain), &node_rows(&special)),
            "CpuSpecList (none) -> 0,4, MemSpecLimit 0 -> 1024, SuspendExc NO -> YES"
        );
        let before = PartitionConfig::named("p");
        let mut after = before.clone();
        after.default_memory = MemoryAsk::PerCpu(512);
        after.hidden = true;
        after.whole_sockets = Some(true);
        assert_eq!(
            changes(&partition_rows(&before), &partition_rows(&after)),
            "DefMemPerCPU (none) -> 512, Hidden NO -> YES, SelectTypeParameters (none) -> CR_Socket"
        );
    }

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
