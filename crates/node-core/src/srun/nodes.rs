//! The nodes of a step, and the connections to them: one to each, or, if the step has more nodes than the width of
//! its tree, one to the head of each branch. When a node in the middle of a branch is lost, srun connects directly to
//! the nodes below it, and both sides repeat the messages that were lost with it. If the daemon of a step has srun's
//! streams, there is a connection to it from the start.

use super::actions::Actions;
use super::creation::CreatedPart;
use super::interface::{Action, StepdIdx};
use minicbor::bytes::ByteVec;
use muster_model::hostlist;
use muster_model::ids::{JobId, StepId, StepNo};
use muster_model::tree;
use muster_proto::step::{Attach, FromStepd, StepNode, ToStepd};
use muster_proto::version::Versions;
use std::collections::VecDeque;
use std::ops::Range;

/// Output of a node in a tree is acknowledged after this number of bytes.
const SEEN_EVERY: usize = 256 << 10;
/// srun stops reading input while more than this number of bytes is not acknowledged by all nodes.
pub(super) const BACKLOG_MAX: usize = 256 << 10;

/// Events on a node's connection.
#[derive(Debug)]
pub(super) enum NodeEvent {
    /// A message, and the index of the node that it is from.
    Message(usize, FromStepd),
    /// A node was lost before it had sent all its messages.
    Lost(usize),
}

/// A node of the step, with the positions of its message streams.
#[derive(Debug)]
struct StepNodeState {
    node: StepNode,
    part: usize,
    /// It has sent everything.
    closed: bool,
    /// Nothing comes through it any more: those below are reached otherwise.
    gone: bool,
    /// In a tree: messages received from it, bytes of them not acknowledged yet, and messages that it has
    /// acknowledged.
    received: u64,
    unseen: usize,
    acknowledged: u64,
}

/// The part of a step that is in one component of a heterogeneous job; mostly there is one.
#[derive(Debug)]
struct StepPart {
    job: JobId,
    step: StepNo,
    /// Indices of its nodes.
    nodes: Range<usize>,
    width: usize,
    key: ByteVec,
    /// Addresses at which its step daemons listen for each other; empty once sent to them.
    mesh_addresses: Vec<String>,
    /// Binding of its tasks in words.
    cpu_bind: String,
}

impl StepPart {
    fn is_tree(&self) -> bool {
        self.nodes.len() > self.width
    }
}

/// A connection to a step daemon.
#[derive(Debug)]
struct Peer {
    id: StepdIdx,
    /// The nodes behind the connection: its own node, and those below in a tree.
    nodes: Range<usize>,
    /// It speaks for a branch of a tree, even if that is one node.
    tree: bool,
    /// It knew of srun from the start.
    greeted: bool,
    is_connected: bool,
}

/// A bug that tests plant, to see that they find it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantedBug {
    /// A message that comes again is taken for another one.
    TakesRepeated,
    /// Messages that a lost node had not passed on are not repeated.
    SendsNothingAgain,
}

/// The nodes of a step.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    #[cfg(test)]
    pub(super) plant: Option<PlantedBug>,
    nodes: Vec<StepNodeState>,
    parts: Vec<StepPart>,
    /// Number of parts that were begun to be connected.
    begun: usize,
    peers: Vec<Peer>,
    /// Branches whose heads are to be connected, the next one last: one at a time.
    to_connect: Vec<Range<usize>>,
    next_stepd: u32,
    /// Messages to all nodes of trees, or to the nodes of one part, that some nodes may not have acknowledged; and
    /// the number of the first of them.
    sent: VecDeque<(Option<usize>, ToStepd)>,
    sent_bytes: usize,
    first: u64,
    meshed: bool,
    /// The daemon has reported that the end of its step is recorded.
    recorded: bool,
}

/// A message that came up a tree, as [`FromStepd::ForwardUp`] has it.
struct PassedUp {
    /// The node's position in its part of the step.
    position: u32,
    /// The number of the message among the node's.
    number: u64,
    /// Number of srun's messages that the node has.
    acknowledged: u64,
    message: FromStepd,
}

impl Nodes {
    /// Sets the nodes of all parts, none of which is connected. `next_stepd` is the first number for a connection.
    pub(super) fn set_parts(&mut self, parts: Vec<CreatedPart>, next_stepd: u32) {
        self.next_stepd = next_stepd;
        for (number, CreatedPart { job, created }) in parts.into_iter().enumerate() {
            let first = self.nodes.len();
            let width = created.tree_width();
            self.meshed |= !created.mesh_addresses.is_empty();
            self.nodes
                .extend(created.nodes.into_iter().map(|node| StepNodeState {
                    node,
                    part: number,
                    closed: false,
                    gone: false,
                    received: 0,
                    unseen: 0,
                    acknowledged: 0,
                }));
            self.parts.push(StepPart {
                job,
                step: created.step,
                nodes: first..self.nodes.len(),
                width,
                key: created.key,
                mesh_addresses: created.mesh_addresses,
                cpu_bind: created.cpu_bind,
            });
        }
    }

    /// The steps of all parts.
    pub(super) fn steps(&self) -> impl Iterator<Item = StepId> {
        self.parts
            .iter()
            .map(|part| StepId::new(part.job, part.step))
    }

    /// A node.
    pub(super) fn node(&self, at: usize) -> &StepNode {
        &self.nodes[at].node
    }

    /// All nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &StepNode> {
        self.nodes.iter().map(|n| &n.node)
    }

    /// The step's daemons know each other: its tasks may wait for each other by MPI.
    pub(super) fn are_meshed(&self) -> bool {
        self.meshed
    }

    /// Every node has sent everything.
    pub(super) fn are_over(&self) -> bool {
        self.nodes.iter().all(|n| n.closed)
    }

    /// The end of the step is recorded: nobody need be asked.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Whether nodes of trees can take more input.
    pub(super) fn want_input(&self) -> bool {
        self.sent_bytes <= BACKLOG_MAX
    }

    /// Takes the connection to the only daemon, which was made together with the step.
    pub(super) fn adopt(&mut self, out: &mut Actions, stepd: StepdIdx) {
        self.report_launch(out, 0);
        self.begun = self.parts.len();
        self.peers.push(Peer {
            id: stepd,
            nodes: 0..self.nodes.len(),
            tree: false,
            greeted: true,
            is_connected: true,
        });
    }

    /// Goes on to connect to daemons; whether all are connected that are to be.
    pub(super) fn connect_next(&mut self, out: &mut Actions) -> bool {
        loop {
            if self.peers.iter().any(|peer| !peer.is_connected) {
                return false;
            }
            if let Some(branch) = self.to_connect.pop() {
                self.connect(out, branch);
                continue;
            }
            if let Some(part) = self.begun.checked_sub(1) {
                self.send_wires(out, part);
            }
            if self.begun == self.parts.len() {
                return true;
            }
            self.report_launch(out, self.begun);
            let part = &self.parts[self.begun];
            self.to_connect
                .extend(tree::branches(part.nodes.clone(), part.width));
            self.to_connect.reverse();
            self.begun += 1;
        }
    }

    fn report_launch(&self, out: &mut Actions, part: usize) {
        if !out.is_verbose {
            return;
        }
        let part = &self.parts[part];
        let words = Some(part.cpu_bind.as_str()).filter(|words| !words.is_empty());
        out.verbose(&format!("CpuBindType={}", words.unwrap_or("(null type)")));
        for StepNodeState { node, .. } in &self.nodes[part.nodes.clone()] {
            out.verbose(&format!(
                "launching StepId={}.{} on host {}, {} tasks: {}",
                part.job,
                part.step,
                node.name,
                node.tasks.len(),
                hostlist::ranges(&node.tasks)
            ));
        }
    }

    /// Once all daemons of a part are connected, each learns where the others are.
    fn send_wires(&mut self, out: &mut Actions, part: usize) {
        let mesh_addresses = std::mem::take(&mut self.parts[part].mesh_addresses);
        if !mesh_addresses.is_empty() {
            self.send_to(out, Some(part), ToStepd::SetMeshAddresses(mesh_addresses));
        }
    }

    /// Connects to the head of a branch, at first or once the node above it is lost, unless there is no need any more.
    fn connect(&mut self, out: &mut Actions, branch: Range<usize>) {
        let open = self.nodes[branch.clone()].iter().any(|n| !n.closed);
        let head = &self.nodes[branch.start];
        if !open || head.gone {
            return;
        }
        let id = StepdIdx(self.next_stepd);
        self.next_stepd += 1;
        let part = &self.parts[head.part];
        out.push(Action::ConnectStepd {
            stepd: id,
            address: head.node.address.clone(),
            step: StepId::new(part.job, part.step),
            key: part.key.clone(),
        });
        self.peers.push(Peer {
            id,
            tree: self.parts[head.part].is_tree(),
            nodes: branch,
            greeted: false,
            is_connected: false,
        });
    }

    fn position(&self, stepd: StepdIdx) -> Option<usize> {
        self.peers.iter().position(|peer| peer.id == stepd)
    }

    /// A daemon is connected: proves to it that this is its step's srun, and sends it again what may have been lost.
    pub(super) fn connected(&mut self, out: &mut Actions, stepd: StepdIdx) {
        let Some(at) = self.position(stepd) else {
            return;
        };
        let peer = &mut self.peers[at];
        peer.is_connected = true;
        let branch = peer.nodes.clone();
        let part_at = self.nodes[branch.start].part;
        let key = self.parts[part_at].key.clone();
        let greeting = Some(Versions::CLUSTER.greeting());
        let mut send = |message| out.push(Action::SendStepds(vec![stepd], message));
        if !peer.tree {
            send(ToStepd::Hello(key, greeting));
            return;
        }
        let of_branch = &self.nodes[branch];
        let below = of_branch[1..].iter().map(|n| n.node.address.clone());
        send(ToStepd::Attach(Box::new(Attach {
            key,
            below: below.collect(),
            srun: true,
            seen: of_branch.iter().map(|n| n.received).collect(),
            greeting,
        })));
        let acknowledged = of_branch
            .iter()
            .filter(|n| !n.closed)
            .map(|n| n.acknowledged)
            .min();
        let acknowledged = acknowledged.unwrap_or(self.first);
        #[cfg(test)]
        let acknowledged = match self.plant {
            Some(PlantedBug::SendsNothingAgain) => u64::MAX,
            _ => acknowledged,
        };
        let sent = (self.first..).zip(&self.sent);
        for (number, (to, message)) in sent.filter(|(number, _)| *number >= acknowledged) {
            let wanted = to.is_none_or(|part| part == part_at);
            let message = match wanted {
                true => message.clone(),
                false => ToStepd::SkipNumber,
            };
            send(ToStepd::ForwardDown(number, Box::new(message)));
        }
    }

    /// A daemon cannot be connected. Gives the index of its node.
    pub(super) fn unreachable(&mut self, stepd: StepdIdx) -> Option<usize> {
        let at = self.position(stepd)?;
        Some(self.peers.remove(at).nodes.start)
    }

    /// Forgets what all nodes of trees have acknowledged, if it is much.
    pub(super) fn forget_acknowledged(&mut self) {
        if self.sent_bytes <= BACKLOG_MAX {
            return;
        }
        let parts = &self.parts;
        let open = self
            .nodes
            .iter()
            .filter(|n| !n.closed && parts[n.part].is_tree());
        let acknowledged = open.map(|n| n.acknowledged).min().unwrap_or(u64::MAX);
        while self.first < acknowledged
            && let Some((_, message)) = self.sent.pop_front()
        {
            self.sent_bytes -= weight(&message);
            self.first += 1;
        }
    }

    /// Says something to all nodes, but for input that is for one task.
    pub(super) fn send(&mut self, out: &mut Actions, message: ToStepd) {
        self.send_to(out, None, message);
    }

    fn send_to(&mut self, out: &mut Actions, part: Option<usize>, message: ToStepd) {
        let nodes = &self.nodes;
        let task = match &message {
            ToStepd::Stdin { task, .. } => *task,
            _ => None,
        };
        let number = self.first + self.sent.len() as u64;
        let (mut plain, mut heads, mut others) = (Vec::new(), Vec::new(), Vec::new());
        // One that is being connected gets it then.
        for peer in self.peers.iter().filter(|peer| peer.is_connected) {
            let of_peer = &nodes[peer.nodes.clone()];
            let has_task = |n: &StepNodeState| task.is_none_or(|t| n.node.tasks.contains(&t));
            let in_part = |n: &StepNodeState| part.is_none_or(|p| p == n.part);
            let wanted = of_peer.iter().any(|n| in_part(n) && has_task(n));
            match (peer.tree, wanted) {
                (false, true) => plain.push(peer.id),
                (false, false) => {}
                (true, true) => heads.push(peer.id),
                (true, false) => others.push(peer.id),
            }
        }
        // In trees every message has a number, for all nodes.
        if !others.is_empty() {
            let nothing = ToStepd::ForwardDown(number, Box::new(ToStepd::SkipNumber));
            out.push(Action::SendStepds(others, nothing));
        }
        if !heads.is_empty() {
            let message = ToStepd::ForwardDown(number, Box::new(message.clone()));
            out.push(Action::SendStepds(heads, message));
        }
        if self.parts.iter().any(StepPart::is_tree) {
            self.sent_bytes += weight(&message);
            self.sent.push_back((part, message.clone()));
        }
        if !plain.is_empty() {
            out.push(Action::SendStepds(plain, message));
        }
    }

    /// Processes the messages of a daemon.
    pub(super) fn take_messages(
        &mut self,
        out: &mut Actions,
        stepd: StepdIdx,
        messages: Vec<FromStepd>,
    ) -> Vec<NodeEvent> {
        let mut events = Vec::with_capacity(messages.len());
        let Some(at) = self.position(stepd) else {
            return events;
        };
        let (head, greeted) = (self.peers[at].nodes.start, self.peers[at].greeted);
        let mut is_closed = false;
        for message in messages {
            match message {
                FromStepd::ForwardUp {
                    position,
                    number,
                    acknowledged,
                    message,
                } => {
                    let passed = PassedUp {
                        position,
                        number,
                        acknowledged,
                        message: *message,
                    };
                    events.extend(self.take_up(out, stepd, head, passed));
                }
                FromStepd::NodeTasksEnded => {
                    self.nodes[head].closed = true;
                    self.recorded |= greeted;
                    is_closed = true;
                }
                FromStepd::ConnectionFinished => {}
                message => events.push(NodeEvent::Message(head, message)),
            }
        }
        if is_closed {
            self.peers.retain(|peer| peer.id != stepd);
            out.push(Action::CloseStepd(stepd));
        }
        events
    }

    /// Processes a message from a node in the tree whose first node is `head`. It may be a duplicate.
    fn take_up(
        &mut self,
        out: &mut Actions,
        stepd: StepdIdx,
        head: usize,
        passed: PassedUp,
    ) -> Option<NodeEvent> {
        let PassedUp {
            position,
            number,
            acknowledged,
            message,
        } = passed;
        let of_part = self.parts[self.nodes[head].part].nodes.clone();
        let at = |position: u32| {
            Some(of_part.start + position as usize).filter(|at| of_part.contains(at))
        };
        let from = at(position)?;
        let node = &mut self.nodes[from];
        node.acknowledged = node.acknowledged.max(acknowledged);
        let is_next = number == node.received;
        #[cfg(test)]
        let is_next = is_next || self.plant == Some(PlantedBug::TakesRepeated);
        // A duplicate, or a message after a lost one; both will be sent again.
        if !is_next {
            return None;
        }
        node.received += 1;
        node.unseen += match &message {
            FromStepd::Stdout { bytes, .. } | FromStepd::Stderr { bytes, .. } => bytes.len(),
            _ => 0,
        };
        node.closed |= message == FromStepd::NodeTasksEnded;
        if node.closed || node.unseen > SEEN_EVERY {
            node.unseen = 0;
            let seen = ToStepd::AcknowledgeFrom(position, node.received);
            out.push(Action::SendStepds(vec![stepd], seen));
        }
        match message {
            FromStepd::NodeTasksEnded | FromStepd::Acknowledged | FromStepd::ConnectionFinished => {
                None
            }
            FromStepd::ChildLost(position) => {
                let lost = at(position)?;
                self.node_lost(lost)
            }
            message => Some(NodeEvent::Message(from, message)),
        }
    }

    /// The connection to a daemon is gone.
    pub(super) fn lost(&mut self, stepd: StepdIdx) -> Option<NodeEvent> {
        let at = self.position(stepd)?;
        let head = self.peers.remove(at).nodes.start;
        self.node_lost(head)
    }

    /// A node is lost: those below it are to be reached directly from now on.
    pub(super) fn node_lost(&mut self, at: usize) -> Option<NodeEvent> {
        let node = self.nodes.get_mut(at).filter(|n| !n.gone)?;
        node.gone = true;
        let had_more = !std::mem::replace(&mut node.closed, true);
        let part = &self.parts[node.part];
        let (first, width) = (part.nodes.start, part.width);
        let (own, _) = tree::place(at - first, part.nodes.len(), width);
        let below = tree::below(&own, width).map(|b| first + b.start..first + b.end);
        let behind = self.to_connect.len();
        self.to_connect.extend(below);
        self.to_connect[behind..].reverse();
        had_more.then_some(NodeEvent::Lost(at))
    }
}

/// The size of a message in memory.
fn weight(message: &ToStepd) -> usize {
    match message {
        ToStepd::Stdin { bytes, .. } => bytes.len(),
        _ => 0,
    }
}
