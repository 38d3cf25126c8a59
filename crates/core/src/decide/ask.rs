//! Whether what a job asks for makes sense and can ever be had: counts, memory, features, devices, node names.

use super::partition_access::{max_memory, within_memory_limit};
use super::target;
use super::texts::one_line;
use crate::state::State;
use muster_model::config::{ClusterConfig, EnforcePartLimits, PartitionConfig};
use muster_model::cpuset::CpuSet;
use muster_model::features::{self, Alternative};
use muster_model::gpu_parts;
use muster_model::grid_engine::waits_if_impossible;
use muster_model::limits::{
    CONSTRAINT_ALTERNATIVES_MAX, CONSTRAINT_COUNTS_MAX, DEVICE_KINDS_MAX, HOSTLIST_BYTES_MAX,
    JOB_DEVICES_MAX, NAME_BYTES_MAX, NODE_COUNT_MAX, NODE_CPUS_MAX, NODE_DEVICES_MAX, NODE_MIB_MAX,
    TASKS_MAX, TEXT_BYTES_MAX,
};
use muster_model::node::Node;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{DeviceBinding, GresAsk, JobSpec, MemoryAsk, ResourceAsk};
use muster_model::task_range::{TaskRange, TaskRangeError};
use muster_model::topology::{Topology, TopologyKind, switch_wait_s};
use std::collections::BTreeSet;

/// Key of `--gpu-freq` in [`JobSpec::shown`].
pub(super) const GPU_FREQUENCY: &str = "gpu-freq";

/// The answer to a request for more than any node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfImpossible {
    Refuse,
    /// Nodes may come.
    Wait,
}

impl IfImpossible {
    pub(super) fn of(spec: &JobSpec) -> IfImpossible {
        match waits_if_impossible(spec) {
            true => IfImpossible::Wait,
            false => IfImpossible::Refuse,
        }
    }

    fn allow(self, checked: Result<(), Refusal>) -> Result<(), Refusal> {
        match checked {
            Err(refusal)
                if self == IfImpossible::Wait
                    && refusal.code == RefusalCode::NodeConfigUnavailable =>
            {
                Ok(())
            }
            checked => checked,
        }
    }
}

/// Checks an ask against the cluster, and completes it: nodes named are nodes needed.
pub(super) fn check(
    state: &State,
    partitions: &[&PartitionConfig],
    ask: &mut ResourceAsk,
    impossible: IfImpossible,
) -> Result<(), Refusal> {
    check_texts(ask)?;
    check_nodelists(state, partitions, ask)?;
    check_counts(ask)?;
    if let Some(first) = partitions.first() {
        fit_memory(max_memory(state.config.as_deref(), first), ask);
    }
    impossible.allow(check_memory(state, partitions, ask))?;
    impossible.allow(check_sizes(state, partitions, ask))?;
    if let Some(constraint) = &ask.constraint {
        check_constraint(state, "--constraint", constraint)?;
    }
    for (option, text) in [("--prefer", &ask.prefer), ("--batch", &ask.batch)] {
        if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
            check_constraint(state, option, text)?;
        }
    }
    check_alternatives(ask)?;
    check_segment(state, partitions, ask)?;
    check_devices(state, ask, impossible)?;
    impossible.allow(check_binding(state, partitions, ask))?;
    if let (Some(asked), Some(config)) = (&mut ask.switches, &state.config) {
        asked.wait_s = Some(switch_wait_s(asked.wait_s, &config.scheduler_parameters));
    }
    Ok(())
}

/// `--segment` is about blocks: the network of one of the partitions must be made of them, and have such large ones.
fn check_segment(
    state: &State,
    partitions: &[&PartitionConfig],
    ask: &ResourceAsk,
) -> Result<(), Refusal> {
    let Some(segment) = ask.segment else {
        return Ok(());
    };
    let refuse = |why: String| Err(Refusal::new(RefusalCode::InvalidNodeCount, why));
    if segment == 0 || !ask.min_nodes.is_multiple_of(segment) {
        return refuse(format!(
            "--nodes={} is not a multiple of --segment={segment}",
            ask.min_nodes
        ));
    }
    let all = state.config.as_ref().map_or(&[][..], |c| &c.topologies);
    let default = all.iter().find(|t| t.cluster_default);
    let network_of = |partition: &&PartitionConfig| match &partition.topology {
        Some(name) => all.iter().find(|t| t.name == *name),
        None => default,
    };
    let blocks = |topology: &&Topology| topology.kind == TopologyKind::Block;
    let networks = partitions.iter().filter_map(network_of).filter(blocks);
    let largest = networks.map(|topology| {
        let blocks = 0..u32::try_from(topology.switches.len()).unwrap_or(u32::MAX);
        let sizes = blocks.map(|place| topology.nodes_at(place).len());
        u32::try_from(sizes.max().unwrap_or(0)).unwrap_or(u32::MAX)
    });
    match largest.max() {
        None => refuse("--segment needs a partition with a block topology".to_owned()),
        Some(most) if most < segment => refuse(format!(
            "no block has {segment} nodes for a --segment, the largest has {most}"
        )),
        Some(_) => Ok(()),
    }
}

fn check_texts(ask: &ResourceAsk) -> Result<(), Refusal> {
    let texts = [
        ("--constraint", &ask.constraint, TEXT_BYTES_MAX),
        ("--prefer", &ask.prefer, TEXT_BYTES_MAX),
        ("--batch", &ask.batch, TEXT_BYTES_MAX),
        ("--distribution", &ask.distribution, TEXT_BYTES_MAX),
        ("--nodelist", &ask.nodelist, HOSTLIST_BYTES_MAX),
        ("--exclude", &ask.exclude, HOSTLIST_BYTES_MAX),
    ];
    for (option, text, most) in texts {
        one_line(option, text.as_deref().unwrap_or_default(), most)?;
    }
    let lists = ask.device_lists();
    if lists.iter().any(|list| list.len() > DEVICE_KINDS_MAX) {
        return Err(Refusal::new(
            RefusalCode::InvalidGres,
            format!("a job names at most {DEVICE_KINDS_MAX} kinds of devices"),
        ));
    }
    for gres in lists.into_iter().flatten() {
        one_line("the name of a device", &gres.name, NAME_BYTES_MAX)?;
        let kind = gres.kind.as_deref().unwrap_or_default();
        one_line("the type of a device", kind, NAME_BYTES_MAX)?;
    }
    Ok(())
}

fn check_counts(ask: &ResourceAsk) -> Result<(), Refusal> {
    if ask.min_nodes == 0 || ask.max_nodes.is_some_and(|most| most < ask.min_nodes) {
        return Err(Refusal::new(
            RefusalCode::InvalidNodeCount,
            format!(
                "--nodes={}-{} is not a valid range of node counts",
                ask.min_nodes,
                ask.max_nodes.unwrap_or(ask.min_nodes)
            ),
        ));
    }
    if ask.ntasks.is_some_and(|n| n == 0 || n > TASKS_MAX) || ask.min_nodes > TASKS_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidTaskCount,
            format!("--ntasks is between 1 and {TASKS_MAX}"),
        ));
    }
    if let Some(range) = &ask.task_range {
        let refused =
            |why: TaskRangeError| Refusal::new(RefusalCode::InvalidTaskCount, why.to_string());
        check_task_range(ask, range).map_err(refused)?;
    }
    let devices = ask.devices();
    let of_node = [
        ask.cpus_per_task,
        ask.min_cpus_per_node,
        ask.ntasks_per_node,
        ask.ntasks_per_socket,
        ask.ntasks_per_core,
        ask.sockets_per_node,
        ask.cores_per_socket,
        ask.threads_per_core,
        ask.core_spec,
        ask.thread_spec,
        devices.cpus_per_gpu,
        devices.ntasks_per_gpu,
    ];
    if of_node.iter().flatten().any(|n| *n > NODE_CPUS_MAX) {
        return Err(Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!("no node has more than {NODE_CPUS_MAX} CPUs"),
        ));
    }
    let memory = match ask.memory {
        MemoryAsk::PerNode(mib) | MemoryAsk::PerCpu(mib) => mib,
        MemoryAsk::Default => 0,
    };
    if memory.max(devices.mib_per_gpu.unwrap_or(0)) > NODE_MIB_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidMemory,
            format!("no node has more than {NODE_MIB_MAX} MiB"),
        ));
    }
    Ok(())
}

/// Whether the range begins with what the job asks for, and all else follows from the number of tasks.
pub(super) fn check_task_range(ask: &ResourceAsk, range: &TaskRange) -> Result<(), TaskRangeError> {
    range.check()?;
    let nodes = range.nodes_of(range.least());
    let nodes_follow =
        ask.ntasks_per_node == range.tasks_of_node && ask.max_nodes == Some(ask.min_nodes);
    if ask.ntasks != Some(range.least())
        || nodes.is_some_and(|nodes| nodes != ask.min_nodes || !nodes_follow)
    {
        return Err(TaskRangeError::AnotherLeast);
    }
    let others = [
        ("--ntasks-per-gpu", ask.devices().ntasks_per_gpu.is_some()),
        ("--segment", ask.segment.is_some()),
    ];
    match others.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(TaskRangeError::With(option)),
        None => Ok(()),
    }
}

/// `MaxMemPerCPU` is kept by more CPUs, not by less memory: a job that wants more for each CPU gets as many more for
/// each task, and one that wants memory of each node as many CPUs there as it takes.
fn fit_memory(most: MemoryAsk, ask: &mut ResourceAsk) {
    let MemoryAsk::PerCpu(most) = most else {
        return;
    };
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match ask.memory {
        MemoryAsk::PerCpu(mib) if most > 0 && mib > most => {
            let times = mib.div_ceil(most);
            ask.memory = MemoryAsk::PerCpu(mib.div_ceil(times));
            ask.cpus_per_task = Some(ask.cpus_of_task().saturating_mul(count(times)));
        }
        MemoryAsk::PerNode(mib) if most > 0 && mib > 0 => {
            let least = count(mib.div_ceil(most));
            if ask.min_cpus_per_node.unwrap_or(1) < least && least > 1 {
                ask.min_cpus_per_node = Some(least);
            }
        }
        _ => {}
    }
}

/// Too much memory for every node is refused at once; it would wait for ever.
fn check_memory(
    state: &State,
    partitions: &[&PartitionConfig],
    ask: &ResourceAsk,
) -> Result<(), Refusal> {
    let of_gpu = ask.devices().mib_per_gpu.filter(|_| ask.wants_gpus());
    let needed = |node: &Node| match ask.memory {
        MemoryAsk::Default => of_gpu.unwrap_or(0),
        MemoryAsk::PerNode(mib) => mib,
        // More CPUs than any node has is another matter: such a job waits.
        MemoryAsk::PerCpu(mib) => {
            mib.saturating_mul(u64::from(ask.cpus_of_task().min(node.config.cpus)))
        }
    };
    if ask.memory == MemoryAsk::Default && of_gpu.is_none() {
        return Ok(());
    }
    let cluster = state.config.as_deref();
    let mut within = (partitions.iter()).map(|p| within_memory_limit(cluster, p, ask));
    let allowed = match cluster.map_or(EnforcePartLimits::No, |c| c.enforce_part_limits) {
        // It waits until the limits are others.
        EnforcePartLimits::No => true,
        EnforcePartLimits::Any => within.any(|fits| fits),
        EnforcePartLimits::All => within.all(|fits| fits),
    };
    if !allowed {
        return Err(Refusal::new(
            RefusalCode::InvalidMemory,
            "the memory asked for is over MaxMemPerNode or MaxMemPerCPU",
        ));
    }
    let fits = nodes_of(state, partitions).any(|node| node.config.memory_mib >= needed(node));
    if !fits {
        return Err(Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            "Memory specification can not be satisfied",
        ));
    }
    Ok(())
}

/// Refuses requests beyond every node, or beyond any choice of the requested number of nodes. A request beyond the
/// whole partition waits, as in Slurm: partitions may grow. For nearly all requests, a few nodes are looked at.
fn check_sizes(
    state: &State,
    partitions: &[&PartitionConfig],
    ask: &ResourceAsk,
) -> Result<(), Refusal> {
    let all = || nodes_of(state, partitions);
    let cpus = ask.min_cpus();
    let refuse = |why: &str| Err(Refusal::new(RefusalCode::NodeConfigUnavailable, why));
    let of_task = if ask.overcommit {
        1
    } else {
        ask.cpus_of_task()
    };
    let of_node = of_task
        .saturating_mul(ask.ntasks_per_node.unwrap_or(1).max(1))
        .max(ask.min_cpus_per_node.unwrap_or(1));
    if all().all(|node| node.config.cpus < of_node) {
        return refuse("CPU count per node can not be satisfied");
    }
    if !is_enough(all(), ask.min_nodes, cpus) {
        return Ok(());
    }
    let has_shape = |node: &Node| {
        let shape = [
            (ask.sockets_per_node, node.config.sockets),
            (ask.cores_per_socket, node.config.cores_per_socket),
            (ask.threads_per_core, node.config.threads_per_core),
        ];
        (shape.iter()).all(|(asked, has)| asked.unwrap_or(0) <= (*has).max(1))
    };
    if !all().any(has_shape) {
        return refuse("Socket, core and/or thread specification can not be satisfied");
    }
    if all().all(|node| node.config.tmp_disk_mib < ask.tmp_disk_mib) {
        return refuse("Temporary disk specification can not be satisfied");
    }
    let excluded = match &ask.exclude {
        Some(list) => known_nodes(state, list)?,
        None => Vec::new(),
    };
    let left = || all().filter(|node| !has_node(&excluded, node));
    if !excluded.is_empty() && !is_enough(left(), ask.min_nodes, 0) {
        return refuse("too few nodes are left by --exclude");
    }
    let most = ask.max_nodes.map_or(usize::MAX, |most| most as usize);
    if !is_enough(left().take(most), 0, cpus) {
        // Not any of them will do; the largest may.
        let mut sizes: Vec<u32> = left().map(|node| node.config.cpus).collect();
        sizes.sort_unstable_by_key(|cpus| std::cmp::Reverse(*cpus));
        let largest = sizes.into_iter().take(most).map(u64::from);
        if largest.sum::<u64>() < u64::from(cpus) {
            return refuse("the nodes that it may have do not have so many CPUs");
        }
    }
    Ok(())
}

/// Whether this number of these nodes has this number of CPUs; no more of them are looked at than it takes.
fn is_enough<'a>(nodes: impl Iterator<Item = &'a Node>, least: u32, cpus: u32) -> bool {
    let (mut missing, mut wanted) = (least, u64::from(cpus));
    for node in nodes {
        if missing == 0 && wanted == 0 {
            return true;
        }
        missing = missing.saturating_sub(1);
        wanted = wanted.saturating_sub(u64::from(node.config.cpus));
    }
    missing == 0 && wanted == 0
}

/// Nodes in at least one of the partitions.
fn nodes_of<'a>(
    state: &'a State,
    partitions: &'a [&PartitionConfig],
) -> impl Iterator<Item = &'a Node> {
    let wanted = move |position: &usize| {
        state
            .partitions
            .get(*position)
            .is_some_and(|p| partitions.iter().any(|q| q.name == p.name))
    };
    state
        .nodes
        .iter()
        .zip(&state.partitions_of)
        .filter(move |(node, of)| !node.removed && of.iter().any(&wanted))
        .map(|(node, _)| node)
}

fn check_nodelists(
    state: &State,
    partitions: &[&PartitionConfig],
    ask: &mut ResourceAsk,
) -> Result<(), Refusal> {
    let excluded = match &ask.exclude {
        Some(list) => known_nodes(state, list)?,
        None => Vec::new(),
    };
    let Some(list) = &ask.nodelist else {
        return Ok(());
    };
    let nodes = known_nodes(state, list)?;
    if let Some(node) = excluded.iter().find(|e| has_node(&nodes, e)) {
        return Err(Refusal::new(
            RefusalCode::InvalidNode,
            format!("node {} is both asked for and excluded", node.config.name),
        ));
    }
    let together = partitions.iter().any(|partition| {
        nodes.iter().all(|node| {
            state
                .partitions_of
                .get(node.idx.0 as usize)
                .is_some_and(|of| {
                    of.iter()
                        .any(|p| state.partitions[*p].name == partition.name)
                })
        })
    });
    if !together {
        return Err(Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!("the nodes {list} are not all in the job's partition"),
        ));
    }
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    if ask.max_nodes.is_some_and(|most| most < count) {
        return Err(Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!("--nodelist names {count} nodes, --nodes allows fewer"),
        ));
    }
    ask.min_nodes = ask.min_nodes.max(count);
    Ok(())
}

/// Whether a node is among these, which are in order.
fn has_node(nodes: &[&Node], node: &Node) -> bool {
    nodes.binary_search_by_key(&node.idx, |n| n.idx).is_ok()
}

/// The nodes of a hostlist, each once and in order.
fn known_nodes<'a>(state: &'a State, list: &str) -> Result<Vec<&'a Node>, Refusal> {
    let mut nodes = target::listed_nodes(state, list)?.collect::<Result<Vec<&Node>, _>>()?;
    nodes.sort_by_key(|node| node.idx);
    nodes.dedup_by_key(|node| node.idx);
    Ok(nodes)
}

/// Every feature that the expression names must be on some node; what its operators mean is the scheduler's matter.
pub(super) fn check_constraint(
    state: &State,
    option: &str,
    constraint: &str,
) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::new(RefusalCode::InvalidFeature, why));
    let mut open: Vec<char> = Vec::new();
    for c in constraint.chars() {
        let closes = match c {
            '(' | '[' => {
                open.push(c);
                continue;
            }
            ')' => '(',
            ']' => '[',
            _ => continue,
        };
        if open.pop() != Some(closes) {
            return refuse(format!("{option}={constraint}: unmatched {c}"));
        }
    }
    if let Some(c) = open.last() {
        return refuse(format!("{option}={constraint}: {c} is not closed"));
    }
    if let Some(sign) = lonely_sign(constraint) {
        return refuse(format!("{option}={constraint}: {sign} joins two features"));
    }
    let words = constraint.split(['&', '|', '(', ')', '[', ']', ',']);
    let mut names = BTreeSet::new();
    for word in words.map(str::trim).filter(|w| !w.is_empty()) {
        let (name, count) = match word.split_once('*') {
            Some((name, count)) => (name, Some(count)),
            None => (word, None),
        };
        let is_count = |n: u32| (1..=NODE_COUNT_MAX).contains(&n);
        if count.is_some_and(|count| !count.parse().is_ok_and(is_count)) {
            return refuse(format!("{option}={constraint}: * takes a number of nodes"));
        }
        if name.is_empty() {
            continue;
        }
        // Each is looked for among all nodes once, however often it is named.
        if !names.insert(name) {
            continue;
        }
        let known = state
            .nodes
            .iter()
            .any(|node| !node.removed && node.config.features.iter().any(|f| f == name));
        if !known {
            return refuse(format!("no node has the feature {name}"));
        }
    }
    match names.is_empty() {
        false => Ok(()),
        true => refuse(format!("{option}={constraint} names no feature")),
    }
}

/// The required features are checked with each alternative of the preferred ones, and counts of both come together. The
/// scheduler handles expressions that cannot be read.
fn check_alternatives(ask: &ResourceAsk) -> Result<(), Refusal> {
    let read = |text: &Option<String>| {
        let text = text.as_deref().filter(|text| !text.is_empty());
        text.and_then(features::alternatives).unwrap_or_default()
    };
    let (required, preferred) = (read(&ask.constraint), read(&ask.prefer));
    let refuse = |why: String| Err(Refusal::new(RefusalCode::InvalidFeature, why));
    let together = required.len().max(1) * preferred.len();
    if together > CONSTRAINT_ALTERNATIVES_MAX {
        return refuse(format!(
            "{} alternatives of --constraint with {} of --prefer are more than {CONSTRAINT_ALTERNATIVES_MAX}",
            required.len(),
            preferred.len(),
        ));
    }
    let most_of = |all: &[Alternative]| all.iter().map(|one| one.counts.len()).max().unwrap_or(0);
    let counts = most_of(&required) + most_of(&preferred);
    if counts > CONSTRAINT_COUNTS_MAX {
        return refuse(format!(
            "--constraint and --prefer count {counts} kinds of nodes, the limit is {CONSTRAINT_COUNTS_MAX}"
        ));
    }
    Ok(())
}

/// A sign of a constraint that has nothing on one of its sides.
fn lonely_sign(constraint: &str) -> Option<char> {
    let is_sign = |c: char| matches!(c, '&' | '|' | ',');
    // The position before a name: the beginning, or the start of a group.
    let mut joined = false;
    let mut last = None;
    for c in constraint.chars().filter(|c| !c.is_whitespace()) {
        match c {
            _ if is_sign(c) && !joined => return Some(c),
            _ if is_sign(c) => (joined, last) = (false, Some(c)),
            '(' | '[' => joined = false,
            ')' | ']' if !joined => return last.or(Some(c)),
            _ => joined = true,
        }
    }
    last.filter(|_| !joined)
}

/// Other jobs use the GPUs that this one gets parts of: it cannot set their frequency (gres.conf(5), MPS and sharding).
pub(super) fn check_gpu_frequency(spec: &JobSpec) -> Result<(), Refusal> {
    let is_set = (spec.shown.iter()).any(|(key, text)| key == GPU_FREQUENCY && !text.is_empty());
    let mut asked = spec.ask.device_lists().into_iter().flatten();
    match asked.find(|gres| is_set && gpu_parts::is_part(&gres.name)) {
        None => Ok(()),
        Some(parts) => Err(Refusal::new(
            RefusalCode::InvalidGres,
            format!("a job with {} cannot set a GPU frequency", parts.name),
        )),
    }
}

/// Devices that the job asks for, however they are counted: what one node must have of them, and all together.
fn check_devices(
    state: &State,
    ask: &ResourceAsk,
    impossible: IfImpossible,
) -> Result<(), Refusal> {
    if !ask.wants_devices() {
        return Ok(());
    }
    let devices = ask.devices();
    if devices.per_job.len() > JOB_DEVICES_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidGres,
            format!("a job counts at most {JOB_DEVICES_MAX} kinds of devices over all nodes"),
        ));
    }
    let all = ask.gres_of_job(ask.min_nodes);
    for gres in &all {
        let typed = |g: &GresAsk| g.name == gres.name && g.kind.is_some() != gres.kind.is_some();
        if all.iter().any(typed) {
            return Err(Refusal::new(
                RefusalCode::InvalidGres,
                format!("give a type to every {} asked for, or to none", gres.name),
            ));
        }
    }
    let parts = all.iter().find(|g| gpu_parts::is_part(&g.name));
    if let (Some(parts), true) = (parts, ask.wants_gpus()) {
        return Err(Refusal::new(
            RefusalCode::InvalidGres,
            format!(
                "{} are parts of GPUs and cannot be had together with whole ones",
                parts.name
            ),
        ));
    }
    // The devices that one node must have at least.
    let of_node = (ask.gres.iter().cloned())
        .chain(devices.per_task.iter().cloned())
        .chain(devices.per_socket.iter().map(|g| {
            GresAsk {
                count: g
                    .count
                    .saturating_mul(u64::from(ask.sockets_per_node.unwrap_or(1))),
                ..g.clone()
            }
        }))
        .chain(devices.per_job.iter().map(|g| {
            let nodes = u64::from(ask.max_nodes.unwrap_or(u32::MAX));
            GresAsk {
                count: g.count.div_ceil(nodes.max(1)),
                ..g.clone()
            }
        }));
    { of_node }.try_for_each(|gres| impossible.allow(check_gres(state, &gres)))?;
    let all_together = (devices.per_job.iter()).try_for_each(|gres| {
        let there: u64 = state
            .nodes
            .iter()
            .map(|node| count_on(node, gres, true))
            .sum();
        if there >= gres.count {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!(
                "all nodes together have {there} of {}, {} are asked for",
                gres_text(gres),
                gres.count
            ),
        ))
    });
    impossible.allow(all_together)
}

/// A job with CPUs next to devices only can have no more of a node than are next to that many of its devices.
fn check_binding(
    state: &State,
    partitions: &[&PartitionConfig],
    ask: &ResourceAsk,
) -> Result<(), Refusal> {
    let of_site = |word: &str| {
        let config = state.config.as_ref();
        config.is_some_and(|c| c.select_parameters.iter().any(|w| w == word))
    };
    let is_enforced = match ask.devices().binding {
        DeviceBinding::Enforced => true,
        DeviceBinding::Preferred => of_site("ENFORCE_BINDING_GRES"),
        DeviceBinding::Disabled => false,
    };
    // Other requests for devices may get any number of a node's.
    if !is_enforced || ask.gres.is_empty() || ask.overcommit {
        return Ok(());
    }
    let of_node = (ask.cpus_of_task())
        .saturating_mul(ask.ntasks_per_node.unwrap_or(1).max(1))
        .max(ask.min_cpus_per_node.unwrap_or(1));
    let mut sizes: Vec<u64> = nodes_of(state, partitions)
        .map(|node| cpus_beside(node, &ask.gres))
        .collect();
    sizes.sort_unstable_by_key(|cpus| std::cmp::Reverse(*cpus));
    let most = ask.max_nodes.map_or(usize::MAX, |most| most as usize);
    let largest = sizes.first().copied().unwrap_or(u64::MAX);
    let all: u64 = sizes.iter().take(most).sum();
    let is_short = ask.max_nodes.is_some() && all < u64::from(ask.min_cpus());
    if largest < u64::from(of_node) || is_short {
        return Err(Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            "too few CPUs are next to the devices asked for (enforce-binding)",
        ));
    }
    Ok(())
}

/// Most CPUs of a node that are next to devices that an ask gets there.
fn cpus_beside(node: &Node, asked: &[GresAsk]) -> u64 {
    let every = u64::from(node.config.cpus);
    let of_one = |gres: &GresAsk| {
        let (mut sizes, mut union) = (Vec::new(), CpuSet::default());
        let entries = node.config.gres.iter();
        for entry in entries.filter(|g| g.name == gres.name) {
            let is_known = entry.near.len() as u64 == entry.count;
            if !is_known || entry.near.iter().any(CpuSet::is_empty) {
                return every;
            }
            sizes.extend(entry.near.iter().map(|near| u64::from(near.len())));
            (entry.near.iter()).for_each(|near| union.union_with(near));
        }
        sizes.sort_unstable_by_key(|cpus| std::cmp::Reverse(*cpus));
        let count = usize::try_from(gres.count).unwrap_or(usize::MAX);
        let sum: u64 = sizes.into_iter().take(count).sum();
        sum.min(u64::from(union.len()))
    };
    asked.iter().map(of_one).sum::<u64>().min(every)
}

fn count_on(node: &Node, gres: &GresAsk, several: bool) -> u64 {
    let entries = node.config.gres.iter().filter(|_| !node.removed);
    entries
        .filter(|g| g.name == gres.name && (gres.kind.is_none() || g.kind == gres.kind))
        .map(|g| match &g.parts {
            // Parts come from one GPU, unless jobs may have several.
            Some(parts) if !several => u64::from(parts.most()),
            _ => g.count,
        })
        .sum()
}

/// Whether parts of several GPUs of a node may make up what a job asks for.
fn several_gpus(state: &State) -> bool {
    let config = state.config.as_ref();
    config.is_some_and(|c| {
        c.select_parameters
            .iter()
            .any(|w| w == "MULTIPLE_SHARING_GRES_PJ")
    })
}

fn gres_text(gres: &GresAsk) -> String {
    match &gres.kind {
        Some(kind) => format!("{}:{kind}", gres.name),
        None => gres.name.clone(),
    }
}

fn check_gres(state: &State, gres: &GresAsk) -> Result<(), Refusal> {
    if gres.count > NODE_DEVICES_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidGres,
            format!(
                "{} of {} are more than a job can have of a node, {NODE_DEVICES_MAX}",
                gres.count,
                gres_text(gres)
            ),
        ));
    }
    let several = several_gpus(state);
    let (mut most, mut known) = (0, false);
    for node in &state.nodes {
        let count = count_on(node, gres, several);
        known |= count > 0;
        most = most.max(count);
        if most >= gres.count && known {
            return Ok(());
        }
    }
    if !known {
        // Devices of that name, but of other types, are what the nodes lack; the request itself can be read.
        let mut all = state.nodes.iter().flat_map(|node| &node.config.gres);
        let code = match gres.kind.is_some() && all.any(|other| other.name == gres.name) {
            true => RefusalCode::NodeConfigUnavailable,
            false => RefusalCode::InvalidGres,
        };
        return Err(Refusal::new(
            code,
            format!("no node has a {}", gres_text(gres)),
        ));
    }
    Err(Refusal::new(
        RefusalCode::NodeConfigUnavailable,
        format!(
            "no node has {} of {}; the maximum is {most}",
            gres.count,
            gres_text(gres)
        ),
    ))
}

pub(super) fn configuration(state: &State) -> Result<&ClusterConfig, Refusal> {
    let text = "the controller has no configuration yet; try again";
    let config = state.config.as_deref();
    config.ok_or_else(|| Refusal::new(RefusalCode::Busy, text))
}
