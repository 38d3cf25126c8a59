//! Groups of nodes: `nodes=2:ppn=4:gpus=1+n7:ppn=2` of Torque, `select=2:ncpus=4:mpiprocs=2` of PBS Pro.

use super::AmountUnits;
use super::amounts::memory;

/// Nodes and what each of them must have. All nodes of a job are the same but for the number of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeChunks {
    /// Number of nodes.
    pub(super) nodes: u32,
    /// Tasks of all nodes, if they are said.
    pub(super) tasks: Option<u32>,
    /// Tasks of each node, where they are the same.
    pub(super) tasks_of_each: Option<u32>,
    /// CPUs of each node.
    pub(super) cpus: Option<u32>,
    /// CPUs of each task.
    pub(super) cpus_of_task: Option<u32>,
    /// Memory of each node, MiB.
    pub(super) mib: Option<u64>,
    /// GPUs of each node.
    pub(super) gpus: Option<u32>,
    /// Nodes by name.
    pub(super) hosts: Vec<String>,
    /// Features of each node.
    pub(super) features: Vec<String>,
    /// Whether they were asked for by `select`.
    pub(super) of_select: bool,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeChunk {
    nodes: u32,
    host: Option<String>,
    tasks: Option<u32>,
    cpus: Option<u32>,
    threads: Option<u32>,
    mib: Option<u64>,
    gpus: Option<u32>,
    features: Vec<String>,
}

fn number(name: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{name} is no number"))
}

/// Number of nodes of all groups.
fn total(chunks: &[NodeChunk]) -> Result<u32, String> {
    let mut all: u32 = 0;
    for chunk in chunks {
        all = all
            .checked_add(chunk.nodes)
            .ok_or("there are too many nodes in it")?;
    }
    match all {
        0 => Err("there are no nodes in it".to_owned()),
        all => Ok(all),
    }
}

/// `nodes=`.
pub(super) fn nodes(text: &str) -> Result<NodeChunks, String> {
    let text = with_colons(text);
    let groups = text.split('+').map(node_group);
    let groups: Vec<NodeChunk> = groups.collect::<Result<_, _>>()?;
    let all = total(&groups)?;
    let first = &groups[0];
    if groups.iter().any(|own| own.features != first.features) {
        return Err("all nodes of a job have the same features; use #SBATCH hetjob".to_owned());
    }
    if groups.iter().any(|own| own.gpus != first.gpus) {
        return Err(
            "all nodes of a job have the same number of GPUs; use #SBATCH hetjob".to_owned(),
        );
    }
    let has_tasks = groups.iter().any(|own| own.tasks.is_some());
    let mut tasks: u32 = 0;
    for group in &groups {
        let own = group.nodes.checked_mul(group.tasks.unwrap_or(1));
        let sum = own.and_then(|own| tasks.checked_add(own));
        tasks = sum.ok_or("there are too many tasks in it")?;
    }
    let same = groups.iter().all(|own| own.tasks == first.tasks);
    Ok(NodeChunks {
        nodes: all,
        tasks: has_tasks.then_some(tasks),
        tasks_of_each: first.tasks.filter(|_| same),
        gpus: first.gpus,
        hosts: groups.iter().filter_map(|own| own.host.clone()).collect(),
        features: first.features.clone(),
        ..NodeChunks::default()
    })
}

/// A plus sign before `ppn=` or `gpus=` is read as a colon, as Slurm does: nothing else can be meant.
fn with_colons(text: &str) -> String {
    text.replace("+ppn=", ":ppn=").replace("+gpus=", ":gpus=")
}

/// `2:ppn=4:fat`, `n7:ppn=2`.
fn node_group(text: &str) -> Result<NodeChunk, String> {
    let mut parts = text.split(':');
    let head = parts.next().unwrap_or_default();
    let mut chunk = NodeChunk {
        nodes: 1,
        ..NodeChunk::default()
    };
    match head.parse() {
        Ok(count) => chunk.nodes = count,
        Err(_) if head.is_empty() || head.contains('=') => {
            return Err("a group begins with a number of nodes or a node's name".to_owned());
        }
        Err(_) => chunk.host = Some(head.to_owned()),
    }
    for part in parts {
        match part.split_once('=') {
            Some(("ppn", count)) => chunk.tasks = Some(number("ppn", count)?),
            Some(("gpus", count)) => chunk.gpus = Some(number("gpus", count)?),
            Some((name, _)) => {
                return Err(format!("{name} is not known there: ppn and gpus are"));
            }
            // Mode of sharing GPUs, which the site decides.
            None if ["shared", "exclusive_process", "reseterr"].contains(&part) => {}
            None if part.is_empty() => return Err("there is nothing between two colons".to_owned()),
            None => chunk.features.push(part.to_owned()),
        }
    }
    Ok(chunk)
}

/// `select=`.
pub(super) fn select(text: &str) -> Result<NodeChunks, String> {
    let groups = text.split('+').map(chunk);
    let groups: Vec<NodeChunk> = groups.collect::<Result<_, _>>()?;
    let all = total(&groups)?;
    let first = &groups[0];
    let without_place = |own: &NodeChunk| NodeChunk {
        nodes: 1,
        host: None,
        ..own.clone()
    };
    if groups
        .iter()
        .any(|own| without_place(own) != without_place(first))
    {
        return Err("all chunks of a job are the same; use #SBATCH hetjob".to_owned());
    }
    let tasks = first.tasks.unwrap_or(1).max(1);
    let of_task = first.cpus.map(|cpus| cpus / tasks).filter(|cpus| *cpus > 1);
    Ok(NodeChunks {
        nodes: all,
        tasks: Some(
            all.checked_mul(tasks)
                .ok_or("there are too many tasks in it")?,
        ),
        tasks_of_each: Some(tasks),
        cpus: first.cpus,
        cpus_of_task: of_task.or(first.threads),
        mib: first.mib,
        gpus: first.gpus,
        hosts: groups.iter().filter_map(|own| own.host.clone()).collect(),
        features: first.features.clone(),
        of_select: true,
    })
}

/// `2:ncpus=4:mpiprocs=2:mem=3gb`.
fn chunk(text: &str) -> Result<NodeChunk, String> {
    let mut chunk = NodeChunk {
        nodes: 1,
        ..NodeChunk::default()
    };
    for (place, part) in text.split(':').enumerate() {
        let Some((name, value)) = part.split_once('=') else {
            match part.parse() {
                Ok(count) if place == 0 => chunk.nodes = count,
                _ => return Err(format!("'{part}' has no value")),
            }
            continue;
        };
        match name {
            "ncpus" => chunk.cpus = Some(number(name, value)?),
            "mpiprocs" => chunk.tasks = Some(number(name, value)?),
            "ompthreads" => chunk.threads = Some(number(name, value)?),
            "ngpus" => chunk.gpus = Some(number(name, value)?),
            "naccelerators" => chunk.gpus = Some(number(name, value)?),
            "mem" => chunk.mib = Some(memory(value, AmountUnits::Torque)?),
            "host" | "vnode" => chunk.host = Some(value.to_owned()),
            // A resource of the site that is true or false.
            _ if value.eq_ignore_ascii_case("true") => chunk.features.push(name.to_owned()),
            _ => return Err(format!("{name} is not known in a chunk")),
        }
    }
    Ok(chunk)
}
