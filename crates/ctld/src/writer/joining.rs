//! Nodes that no file names, and those that hosts take: which parts of their greetings count, their addresses, and the end of their
//! agents when they are deleted or given back.

use super::Writer;
use crate::mail::ToLink;
use crate::network::NodeAddresses;
use log::info;
use muster_core::event::{Event, NodeChange};
use muster_model::command::{Command, Identity, Reply, UserCommand};
use muster_model::ids::NodeIdx;
use muster_model::node::{Node, NodeConfig, NodeLink};
use muster_model::node_state::InitialState;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_proto::node::NodeHello;
use muster_sched::engine::Turn;

/// The writer says here from where nodes connect that no file names.
pub(crate) fn with_addresses(mut writer: Writer, addresses: NodeAddresses) -> Writer {
    addresses.follow(writer.engine.state());
    writer.addresses = addresses;
    writer
}

/// The node of a greeting: a known one, or one that joins by its description of itself.
pub(super) fn node_of(
    writer: &mut Writer,
    hello: &NodeHello,
    now: Timestamp,
    turn: &mut Turn,
) -> Result<NodeIdx, Refusal> {
    let name = &hello.name;
    let known = writer.engine.state().node_named(name);
    let is_announced = |node: &Node| node.config.dynamic && node.future;
    match (known, &hello.dynamic) {
        (Some(node), None) => return Ok(node.idx),
        (Some(node), Some(_)) if !is_announced(node) => return Ok(node.idx),
        (_, Some(config)) => join(writer, name, config, now, turn)?,
        (None, None) => {
            let detail = format!(
                "node {name} is not in the controller's configuration; add a NodeName line and run 'scontrol reconfigure', or \
                 start it by 'slurmd -Z'"
            );
            return Err(Refusal::new(RefusalCode::InvalidNode, detail));
        }
    }
    let node = writer.engine.state().node_named(name);
    let node = node.map(|node| node.idx);
    node.ok_or_else(|| RefusalCode::InvalidNode.into())
}

/// Makes a node from its description of itself. Its agent has proved that it is root's on its host, as that of each node.
fn join(
    writer: &mut Writer,
    name: &str,
    said: &NodeConfig,
    now: Timestamp,
    turn: &mut Turn,
) -> Result<(), Refusal> {
    let announced = writer.engine.state().node_named(name);
    let config = match announced.map(|node| node.config.clone()) {
        Some(announced) => NodeConfig {
            addr: said.addr.clone(),
            hostname: said.hostname.clone(),
            port: said.port,
            state: InitialState::Unknown,
            ..announced
        },
        None => what_counts(name, said),
    };
    info!("node {name} joins from {}", config.addr);
    let root = Identity {
        user: "root".to_owned(),
        ..Identity::default()
    };
    let binds = config.cpu_bind.is_some();
    let nodes = vec![config];
    let command = Command::User(root, UserCommand::CreateNodes { nodes });
    let before = turn.replies.len();
    writer.engine.decide(0, &command, now, turn);
    if let Some((_, Reply::Refused(refusal))) = turn.replies.drain(before..).next() {
        return Err(refusal);
    }
    if binds {
        writer.publish_bindings();
    }
    Ok(())
}

/// Which files its devices are decides what jobs there may open: that is not an agent's to say.
fn what_counts(name: &str, said: &NodeConfig) -> NodeConfig {
    let mut config = NodeConfig {
        name: name.to_owned(),
        state: InitialState::Unknown,
        stays_up: None,
        reason: None,
        ..said.clone()
    };
    for gres in &mut config.gres {
        (gres.files, gres.near, gres.links) = Default::default();
    }
    config
}

/// Follows durable events about such nodes: agents of deleted nodes end, as their nodes would join again otherwise.
pub(super) fn follow(writer: &mut Writer, events: &[Event]) {
    let mut has_changed = false;
    for event in events {
        match event {
            Event::NodesDeleted { nodes, .. } => {
                has_changed = true;
                nodes.iter().for_each(|node| dismiss(writer, *node));
            }
            Event::NodesCreated { .. } | Event::Configured { .. } => has_changed = true,
            Event::NodeChanged {
                change: NodeChange::Taken(_),
                ..
            } => has_changed = true,
            Event::NodeChanged {
                node,
                change: NodeChange::Future,
                ..
            } => {
                has_changed = true;
                // The host that had it has no node any more.
                let state = writer.engine.state();
                if state.node(*node).is_some_and(|n| n.link != NodeLink::Up) {
                    dismiss(writer, *node);
                }
            }
            _ => {}
        }
    }
    if has_changed {
        writer.addresses.follow(writer.engine.state());
    }
}

fn dismiss(writer: &mut Writer, node: NodeIdx) {
    let Some(link) = writer.links.remove(&node) else {
        return;
    };
    if writer.is_current(node, link.generation) {
        writer.generations.remove(&node);
    }
    let _ = link.send.send(ToLink::Stop(true));
}
