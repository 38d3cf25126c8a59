//! Nodes that no file names: `scontrol create NodeName=`, `slurmd -Z` and `scontrol delete NodeName=`. Where lines about nodes
//! are written they are read; here their values are checked again, as they may come from anybody.

use super::draft::Draft;
use super::target;
use crate::event::Event;
use crate::state::State;
use muster_model::command::Reply;
use muster_model::ids::NodeIdx;
use muster_model::node::{Node, NodeConfig};
use muster_model::node_host::NodeHost;
use muster_model::node_state::InitialState;
use muster_model::refusal::{Refusal, RefusalCode};
use std::collections::BTreeSet;

/// Bytes of a node's name: as many as a host's may have.
const NAME_MAX: usize = 255;
/// CPUs of a node.
const CPUS_MAX: u32 = 1 << 16;
/// Kinds of devices of a node.
const GRES_MAX: usize = 64;
/// Instances that have a device file, or another note of their own, of one kind.
const INSTANCES_MAX: usize = 4096;

/// Makes nodes, all or none.
pub(super) fn create(
    draft: &mut Draft<'_>,
    nodes: &[NodeConfig],
) -> Result<Option<Reply>, Refusal> {
    let state = draft.state;
    let (mut names, mut new) = (BTreeSet::new(), 0);
    for node in nodes {
        check(node)?;
        if !names.insert(node.name.as_str()) {
            return Err(invalid(format!("node {} is named twice", node.name)));
        }
        let known = state.node_named(&node.name);
        new += usize::from(known.is_none());
        // One that was announced comes now.
        let is_announced =
            |known: &Node| known.config.dynamic && known.future && known.jobs.is_empty();
        if known.is_some_and(|known| !is_announced(known)) {
            return Err(invalid(format!(
                "node {} exists already: scontrol delete NodeName={} removes it if no file names it",
                node.name, node.name
            )));
        }
    }
    if nodes.is_empty() {
        return Err(invalid("no node is named".to_owned()));
    }
    check_count(state, new)?;
    let mut places = FreeNodeSlots::new(state);
    let mut created = Vec::with_capacity(nodes.len());
    for node in nodes {
        let place = places.take(&node.name)?;
        let config = NodeConfig {
            dynamic: true,
            ..node.clone()
        };
        created.push((place, config));
    }
    let at = draft.now;
    draft.emit(Event::NodesCreated { nodes: created, at });
    done(nodes.len())
}

/// Removes nodes that no file names and that nobody uses, all or none.
pub(super) fn delete(draft: &mut Draft<'_>, nodes: &str) -> Result<Option<Reply>, Refusal> {
    let known = target::known_nodes(draft, nodes)?;
    for idx in &known {
        let Some(node) = draft.node(*idx) else {
            continue;
        };
        let name = &node.config.name;
        if !node.config.dynamic {
            return Err(Refusal::new(
                RefusalCode::NotSupported,
                format!(
                    "node {name} is in slurm.conf: remove its NodeName line, then scontrol reconfigure"
                ),
            ));
        }
        if let Some(job) = node.jobs.first() {
            return Err(Refusal::new(
                RefusalCode::InvalidNodeState,
                format!(
                    "job {job} is on node {name}: drain the node, and delete it when no job is there"
                ),
            ));
        }
        let mut reservations = draft.state.reservations.iter();
        if let Some(reservation) = reservations.find(|r| r.nodes.iter().any(|n| n.node == *idx)) {
            return Err(Refusal::new(
                RefusalCode::InvalidNodeState,
                format!(
                    "reservation {} has node {name}: change or delete that first",
                    reservation.name
                ),
            ));
        }
    }
    let (count, at) = (known.len(), draft.now);
    draft.emit(Event::NodesDeleted { nodes: known, at });
    done(count)
}

fn done(count: usize) -> Result<Option<Reply>, Refusal> {
    Ok(Some(Reply::Done {
        changed: u32::try_from(count).unwrap_or(u32::MAX),
        refused: Vec::new(),
    }))
}

fn invalid(detail: String) -> Refusal {
    Refusal::new(RefusalCode::InvalidNode, detail)
}

/// `MaxNodeCount`, or as many as the file names.
fn check_count(state: &State, more: usize) -> Result<(), Refusal> {
    let config = state.config.as_ref();
    let most = config.map_or(0, |c| c.nodes.len().max(c.max_node_count as usize));
    let now = state.nodes.iter().filter(|node| !node.removed).count();
    if now + more > most {
        return Err(Refusal::new(
            RefusalCode::NotSupported,
            format!(
                "there are {now} nodes, and may be {most}: raise MaxNodeCount in slurm.conf, then scontrol reconfigure"
            ),
        ));
    }
    Ok(())
}

/// Places for nodes in the table.
struct FreeNodeSlots<'a> {
    state: &'a State,
    /// Of removed nodes that no record names, last first; looked for when it is asked for one.
    free: Option<Vec<NodeIdx>>,
    taken: BTreeSet<NodeIdx>,
    end: usize,
}

impl<'a> FreeNodeSlots<'a> {
    fn new(state: &'a State) -> FreeNodeSlots<'a> {
        FreeNodeSlots {
            state,
            free: None,
            taken: BTreeSet::new(),
            end: state.nodes.len(),
        }
    }

    /// The place that a node of this name had, else one that is free, else a new one.
    fn take(&mut self, name: &str) -> Result<NodeIdx, Refusal> {
        let state = self.state;
        let own = state.node_by_name.get(name).copied();
        if let Some(own) = own {
            // Its jobs would be on a node that is another.
            let job = state.node(own).and_then(|node| node.jobs.first());
            if let Some(job) = job {
                return Err(invalid(format!(
                    "job {job} is still on the node {name} that was removed"
                )));
            }
            if self.taken.insert(own) {
                return Ok(own);
            }
        }
        let free = self.free.get_or_insert_with(|| free_places(state));
        while let Some(place) = free.pop() {
            if self.taken.insert(place) {
                return Ok(place);
            }
        }
        let place = NodeIdx(u32::try_from(self.end).unwrap_or(u32::MAX));
        self.end += 1;
        self.taken.insert(place);
        Ok(place)
    }
}

/// Places of removed nodes that neither jobs nor reservations name.
fn free_places(state: &State) -> Vec<NodeIdx> {
    let is_free = |node: &&Node| node.removed && node.config.dynamic && node.jobs.is_empty();
    let mut free: BTreeSet<NodeIdx> = state.nodes.iter().filter(is_free).map(|n| n.idx).collect();
    if free.is_empty() {
        return Vec::new();
    }
    for job in state.jobs.values() {
        for share in job.alloc.iter().flat_map(|alloc| &alloc.nodes) {
            free.remove(&share.node);
        }
    }
    for reservation in state.reservations.iter() {
        for node in &reservation.nodes {
            free.remove(&node.node);
        }
    }
    free.into_iter().rev().collect()
}

/// Checks whether a node can be on such a host.
pub(super) fn check_host(host: &NodeHost) -> Result<(), String> {
    for (key, text) in [("NodeHostname", &host.hostname), ("NodeAddr", &host.addr)] {
        let odd =
            |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '%'));
        if text.len() > NAME_MAX || text.contains(odd) {
            return Err(format!("{key} is not a valid host name"));
        }
    }
    match host.port {
        0 | 65_536.. => Err(format!("invalid port: Port={}", host.port)),
        _ => Ok(()),
    }
}

/// Whether a node can be so.
fn check(node: &NodeConfig) -> Result<(), Refusal> {
    let name = &node.name;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let reserved = ["ALL", "DEFAULT", "localhost"];
    if name.is_empty()
        || name.len() > NAME_MAX
        || !name.chars().all(plain)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || reserved.iter().any(|word| word.eq_ignore_ascii_case(name))
    {
        return Err(invalid(format!(
            "a node cannot have the name \"{}\"",
            name.escape_debug()
        )));
    }
    let wrong = |what: String| {
        Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("node {name}: {what}"),
        ))
    };
    if let Err(what) = check_host(&node.host()) {
        return wrong(what);
    }
    let cores = node.sockets.checked_mul(node.cores_per_socket);
    let threads = cores.and_then(|cores| cores.checked_mul(node.threads_per_core));
    let counts = [cores, threads].map(|count| count.unwrap_or(0));
    if node.cpus == 0 || node.cpus > CPUS_MAX || node.boards == 0 || !counts.contains(&node.cpus) {
        return wrong(format!(
            "CPUs={} is neither {} (cores) nor {} (threads), or more than {CPUS_MAX}",
            node.cpus, counts[0], counts[1]
        ));
    }
    if node.spec_cpus.iter().any(|cpu| cpu >= node.cpus) || node.spec_cpus.len() >= node.cpus {
        return wrong("CPUs for the system leave none for jobs".to_owned());
    }
    if node.gres.len() > GRES_MAX {
        return wrong(format!("more than {GRES_MAX} kinds of Gres"));
    }
    for gres in &node.gres {
        let most = [gres.files.len(), gres.near.len(), gres.links.len()];
        let instances = most.into_iter().max().unwrap_or(0);
        if gres.name.is_empty() || instances > INSTANCES_MAX || gres.count > u64::from(u32::MAX) {
            return wrong(format!(
                "Gres={}: too many of them",
                gres.name.escape_debug()
            ));
        }
    }
    match node.state {
        InitialState::Unknown | InitialState::Cloud | InitialState::Future => Ok(()),
        other => wrong(format!(
            "State={}: a node that is made begins as CLOUD or FUTURE",
            other.name()
        )),
    }
}
