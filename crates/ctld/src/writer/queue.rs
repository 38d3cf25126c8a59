//! Messages that wait for the writer. Those of the controller itself, of root and SlurmUser go first, in the order of their
//! arrival. Nodes take turns with their reports, and users with their commands, by their cost in events, bytes, orders to nodes
//! and time. A turn has a bound for either, so that a node or user with many messages waits itself, and neither others nor the
//! other side wait for it. Messages of one sender keep their order.

use crate::mail::ToWriter;
use crate::reply::ReplyTo;
use crate::writer::encoded_bytes::encoded_bytes;
use muster_channel::admission::FairQueue;
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::config::ClusterConfig;
use muster_model::ids::NodeIdx;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The cost of users' commands in one turn; the rest, and later ones, wait for the next turn.
pub(super) const TURN_COST_MAX: u64 = 1024;
/// Cost limit of nodes' messages: jobs go on and end by them, so they have more room.
pub(super) const NODES_COST_MAX: u64 = 4096;
/// Bytes that cost as much as an event.
const BYTES_PER_EVENT: u64 = 4 << 10;
/// Microseconds that cost as much as an event: a submission takes less than its events cost, so that time counts only where a
/// command takes more of it than its changes explain.
const MICROS_PER_EVENT: u128 = 10;

/// A sender that takes turns with others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageSource {
    /// A user who has limits.
    User(u32),
    /// A node.
    Node(NodeIdx),
}

/// The sender that is charged for a message.
pub(super) struct Charge {
    source: MessageSource,
    bytes: u64,
}

impl Charge {
    /// The sender.
    #[cfg(test)]
    pub(super) fn source(&self) -> MessageSource {
        self.source
    }
}

/// The cost of a command for the writer.
#[derive(Clone, Copy)]
pub(super) struct Cost<'a> {
    /// Its events.
    pub(super) events: &'a [Event],
    /// Orders for nodes that follow from it.
    pub(super) orders: usize,
    /// Time to decide and apply it.
    pub(super) time: Duration,
}

impl Cost<'_> {
    /// Cost in events, of a command that brought `brought` bytes.
    pub(super) fn total(&self, brought: u64) -> u64 {
        let carried = self.events.iter().map(Event::carried_bytes).sum::<u64>();
        let size = carried.max(brought) / BYTES_PER_EVENT;
        let made = self.events.len() as u64 + self.orders as u64;
        let time = self.time.as_micros() / MICROS_PER_EVENT;
        (1 + made + size).max(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

/// Waiting messages.
#[derive(Default)]
pub(super) struct Queue {
    first: VecDeque<ToWriter>,
    nodes: FairQueue<ToWriter, NodeIdx>,
    users: FairQueue<ToWriter>,
    /// The cost of what nodes said in this turn.
    spent_by_nodes: u64,
    /// The cost of users' commands in this turn.
    spent: u64,
}

impl Queue {
    /// Adds messages that have come.
    pub(super) fn extend(&mut self, messages: impl Iterator<Item = ToWriter>, state: &State) {
        for message in messages {
            match source(&message, state) {
                Some(MessageSource::User(uid)) => self.users.push(uid, message),
                Some(MessageSource::Node(node)) => self.nodes.push(node, message),
                None => self.first.push_back(message),
            }
        }
    }

    /// Another turn begins.
    pub(super) fn begin_turn(&mut self) {
        (self.spent_by_nodes, self.spent) = (0, 0);
    }

    /// The message whose turn it is, and who is to be charged for it. Once there is no room for more, what nodes say waits for the
    /// next turn. So do users' commands, unless this is the last.
    pub(super) fn next(&mut self, is_last: bool) -> Option<(Option<Charge>, ToWriter)> {
        if let Some(message) = self.first.pop_front() {
            return Some((None, message));
        }
        if self.has_room_for_nodes(0)
            && let Some((node, message)) = self.nodes.pop()
        {
            let (source, bytes) = (MessageSource::Node(node), 0);
            return Some((Some(Charge { source, bytes }), message));
        }
        if self.spent >= TURN_COST_MAX && !is_last {
            return None;
        }
        let (uid, message) = self.users.pop()?;
        let bytes = match &message {
            ToWriter::User { command, .. } => encoded_bytes(&**command),
            _ => 0,
        };
        let source = MessageSource::User(uid);
        Some((Some(Charge { source, bytes }), message))
    }

    /// A message was decided, or a part of it.
    pub(super) fn charge(&mut self, Charge { source, bytes }: Charge, cost: &Cost<'_>) {
        let cost = cost.total(bytes);
        match source {
            MessageSource::User(uid) => {
                self.spent = self.spent.saturating_add(cost);
                self.users.charge(uid, cost);
            }
            MessageSource::Node(node) => {
                self.spent_by_nodes = self.spent_by_nodes.saturating_add(cost);
                self.nodes.charge(node, cost);
            }
        }
    }

    /// Whether this turn has room for more messages of nodes, after costs of `uncharged` that are not charged yet.
    pub(super) fn has_room_for_nodes(&self, uncharged: u64) -> bool {
        self.spent_by_nodes.saturating_add(uncharged) < NODES_COST_MAX
    }

    /// Puts the rest of a node's message back for the next turn, before all other messages of the node.
    pub(super) fn put_back(&mut self, node: NodeIdx, rest: ToWriter) {
        self.nodes.put_back(node, rest);
        self.spent_by_nodes = self.spent_by_nodes.max(NODES_COST_MAX);
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.nodes.is_empty() && self.users.is_empty()
    }

    /// Messages that go first.
    pub(super) fn first(&self) -> impl Iterator<Item = &ToWriter> {
        self.first.iter()
    }
}

/// The sender that takes turns with a message, if it does not go first. A node that is not known yet is one of the first.
fn source(message: &ToWriter, state: &State) -> Option<MessageSource> {
    match message {
        ToWriter::User {
            identity, reply, ..
        } => {
            let uid = match reply {
                ReplyTo::Own(user) => (*user)?,
                ReplyTo::Task(..) | ReplyTo::Socket(_) => identity.uid,
            };
            (!goes_first(uid, state)).then_some(MessageSource::User(uid))
        }
        ToWriter::NodeHello { hello, .. } => {
            let known = state.node_named(&hello.name);
            known.map(|node| MessageSource::Node(node.idx))
        }
        ToWriter::Reports { node, .. }
        | ToWriter::NodeConfiguration { node, .. }
        | ToWriter::Health { node, .. }
        | ToWriter::NodeLost { node, .. } => Some(MessageSource::Node(*node)),
        ToWriter::Configure { .. }
        | ToWriter::PrologEnded { .. }
        | ToWriter::Trigger(_)
        | ToWriter::StartSnapshot { .. }
        | ToWriter::FinishSnapshot(_)
        | ToWriter::Stop { .. } => None,
    }
}

/// Whether it is root or SlurmUser.
pub(super) fn goes_first(uid: u32, state: &State) -> bool {
    let is_admin = |config: &Arc<ClusterConfig>| config.admin_uids.contains(&uid);
    uid == 0 || state.config.as_ref().is_some_and(is_admin)
}
