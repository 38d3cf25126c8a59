//! The nodes of a step, and the connections by which they are reached: one to each, or, where a step has more nodes than
//! its tree is wide, one to the head of each branch. When the node in the middle of a branch is lost, those below it are
//! connected to directly; both sides send again what was lost with it. To the daemon of a step that has srun's streams there is a
//! connection from the start.

use super::super::stdio_passing::StepdChannel;
use super::peer::Peer;
use crate::submit::agent::AgentStream;
use crate::submit::say::Say;
use minicbor::bytes::ByteVec;
use muster_model::tree;
use muster_proto::step::{Attach, FromStepd, StepCreated, StepNode, StepSpec, ToStepd};
use nix::poll::PollFd;
use std::collections::VecDeque;
use std::ops::Range;
use std::process::ExitCode;

/// Output of a node of a tree is acknowledged after so many bytes.
const SEEN_EVERY: usize = 256 << 10;
/// Input waits while so many bytes have not been acknowledged by all nodes, or have not been taken by one.
const BACKLOG_MAX: usize = 256 << 10;

/// What happened on a node's connection.
pub(super) enum NodeEvent {
    /// A message, and the index of the node that it is from.
    Message(usize, FromStepd),
    /// A node is lost that had more to say.
    Lost(usize),
}

/// A node.
struct Node {
    node: StepNode,
    part: usize,
    /// It has sent everything.
    closed: bool,
    /// Nothing comes through it any more: those below are reached otherwise.
    gone: bool,
    /// In a tree: messages that came from it, bytes of them that were not acknowledged, messages that it has acknowledged itself.
    received: u64,
    unseen: usize,
    acknowledged: u64,
}

/// The part of a step that is in one component of a heterogeneous job; mostly there is one.
struct Part {
    /// Indices of its nodes.
    nodes: Range<usize>,
    width: usize,
    key: ByteVec,
}

impl Part {
    fn is_tree(&self) -> bool {
        self.nodes.len() > self.width
    }
}

/// The nodes of a step.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    parts: Vec<Part>,
    peers: Vec<Peer>,
    /// Messages to all nodes of trees, or to those of one part, that some may not have acknowledged; and the number of the
    /// first of it.
    sent: VecDeque<(Option<usize>, ToStepd)>,
    sent_bytes: usize,
    first: u64,
    /// The daemon has reported that the end of its step is recorded.
    recorded: bool,
}

impl Nodes {
    /// Opens the connections, unless `stepd` is one, and proves to each step daemon that it is this step's srun.
    pub(super) fn greet(
        say: &Say,
        parts: Vec<(StepSpec, StepCreated)>,
        mut stepd: Option<StepdChannel>,
    ) -> Result<Nodes, ExitCode> {
        let mut all = Nodes {
            nodes: Vec::new(),
            parts: Vec::new(),
            peers: Vec::new(),
            sent: VecDeque::new(),
            sent_bytes: 0,
            first: 0,
            recorded: false,
        };
        for (spec, created) in parts {
            all.greet_part(say, &spec, created, stepd.take())?;
        }
        Ok(all)
    }

    fn greet_part(
        &mut self,
        say: &Say,
        spec: &StepSpec,
        created: StepCreated,
        stepd: Option<StepdChannel>,
    ) -> Result<(), ExitCode> {
        let (part, first) = (self.parts.len(), self.nodes.len());
        let width = created.tree_width();
        for node in &created.nodes {
            say.verbose(&format!(
                "launching StepId={}.{} on host {}, {} tasks: {}",
                spec.job,
                created.step,
                node.name,
                node.tasks.len(),
                muster_model::hostlist::ranges(&node.tasks)
            ));
        }
        self.nodes
            .extend(created.nodes.into_iter().map(|node| Node {
                node,
                part,
                closed: false,
                gone: false,
                received: 0,
                unseen: 0,
                acknowledged: 0,
            }));
        self.parts.push(Part {
            nodes: first..self.nodes.len(),
            width,
            key: created.key,
        });
        if let Some(line) = stepd {
            let nodes = first..self.nodes.len();
            self.peers.push(Peer::greeted(nodes, line));
            return Ok(());
        }
        for branch in tree::branches(first..self.nodes.len(), width) {
            self.connect(branch.clone()).map_err(|e| {
                let node = &self.nodes[branch.start].node;
                let (name, address) = (&node.name, &node.address);
                say.error(&format!("Unable to reach node {name} at {address}: {e}"));
                say.failed()
            })?;
        }
        if !created.wires.is_empty() {
            let message = ToStepd::Peers(created.wires);
            self.send_to(Some(part), &message);
        }
        Ok(())
    }

    /// Connects to the head of a branch, at first or once the node above it is lost.
    fn connect(&mut self, branch: Range<usize>) -> std::io::Result<()> {
        let head = &self.nodes[branch.start];
        let part = &self.parts[head.part];
        let stream = AgentStream::connect(&head.node.address)?;
        let tree = part.is_tree();
        let mut peer = Peer::new(branch.clone(), tree, stream);
        if !tree {
            peer.send(&ToStepd::Hello(part.key.clone()));
            self.peers.push(peer);
            return Ok(());
        }
        let of_branch = &self.nodes[branch];
        let below = of_branch[1..].iter().map(|n| n.node.address.clone());
        peer.send(&ToStepd::Attach(Box::new(Attach {
            key: part.key.clone(),
            below: below.collect(),
            srun: true,
            seen: of_branch.iter().map(|n| n.received).collect(),
        })));
        let acknowledged = of_branch
            .iter()
            .filter(|n| !n.closed)
            .map(|n| n.acknowledged)
            .min();
        let acknowledged = acknowledged.unwrap_or(self.first);
        let sent = (self.first..).zip(&self.sent);
        for (number, (to, message)) in sent.filter(|(number, _)| *number >= acknowledged) {
            let wanted = to.is_none_or(|part| part == head.part);
            let message = if wanted {
                message.clone()
            } else {
                ToStepd::Nothing
            };
            peer.send(&ToStepd::Down(number, Box::new(message)));
        }
        self.peers.push(peer);
        Ok(())
    }

    /// A node.
    pub(super) fn node(&self, at: usize) -> &StepNode {
        &self.nodes[at].node
    }

    /// Every node has sent everything.
    pub(super) fn are_over(&self) -> bool {
        self.nodes.iter().all(|n| n.closed)
    }

    /// The end of the step is recorded: nobody need be asked.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// The descriptors to poll.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.peers.iter().map(Peer::poll_fd)
    }

    /// Whether they can take more input.
    pub(super) fn want_input(&mut self) -> bool {
        if self.sent_bytes > BACKLOG_MAX {
            self.forget_acknowledged();
        }
        self.sent_bytes <= BACKLOG_MAX && self.peers.iter().all(|p| p.backlog() < BACKLOG_MAX)
    }

    /// Forgets what all nodes of trees have acknowledged.
    fn forget_acknowledged(&mut self) {
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
    pub(super) fn send(&mut self, message: &ToStepd) {
        self.send_to(None, message);
    }

    fn send_to(&mut self, part: Option<usize>, message: &ToStepd) {
        let nodes = &self.nodes;
        let task = match message {
            ToStepd::Stdin { task, .. } => *task,
            _ => None,
        };
        let number = self.first + self.sent.len() as u64;
        for peer in &mut self.peers {
            let of_peer = &nodes[peer.nodes.clone()];
            let has_task = |n: &Node| task.is_none_or(|t| n.node.tasks.contains(&t));
            let in_part = |n: &Node| part.is_none_or(|p| p == n.part);
            let wanted = of_peer.iter().any(|n| in_part(n) && has_task(n));
            match (peer.tree, wanted) {
                (false, true) => peer.send(message),
                (false, false) => {}
                // Every message has a number, for all nodes.
                (true, true) => peer.send(&ToStepd::Down(number, Box::new(message.clone()))),
                (true, false) => peer.send(&ToStepd::Down(number, Box::new(ToStepd::Nothing))),
            }
        }
        if self.parts.iter().any(Part::is_tree) {
            self.sent_bytes += weight(message);
            self.sent.push_back((part, message.clone()));
        }
    }

    /// Sends and receives what can be without waiting.
    pub(super) fn exchange(&mut self) -> Vec<NodeEvent> {
        let mut out = Vec::new();
        // Those that are added meanwhile are served the next time.
        for at in 0..self.peers.len() {
            for message in self.peers[at].exchange() {
                self.take(at, message, &mut out);
            }
            if self.peers[at].is_broken() {
                let head = self.peers[at].nodes.start;
                self.peers[at].close();
                self.lost(head, &mut out);
            }
        }
        self.peers.retain(|p| !p.is_closed());
        out
    }

    fn take(&mut self, at: usize, message: FromStepd, out: &mut Vec<NodeEvent>) {
        let head = self.peers[at].nodes.start;
        let FromStepd::Up {
            position,
            number,
            acknowledged,
            message,
        } = message
        else {
            if message == FromStepd::Closed {
                self.nodes[head].closed = true;
                self.recorded |= self.peers[at].greeted;
                self.peers[at].close();
            } else if message != FromStepd::Over {
                out.push(NodeEvent::Message(head, message));
            }
            return;
        };
        let from = self.parts[self.nodes[head].part].nodes.start + position as usize;
        let Some(node) = self.nodes.get_mut(from) else {
            return;
        };
        node.acknowledged = node.acknowledged.max(acknowledged);
        // A duplicate, or a message after a lost one; both will be sent again.
        if number != node.received {
            return;
        }
        node.received += 1;
        node.unseen += match &*message {
            FromStepd::Stdout { bytes, .. } | FromStepd::Stderr { bytes, .. } => bytes.len(),
            _ => 0,
        };
        node.closed |= *message == FromStepd::Closed;
        if node.closed || node.unseen > SEEN_EVERY {
            node.unseen = 0;
            let seen = ToStepd::Seen(position, node.received);
            self.peers[at].send(&seen);
        }
        match *message {
            FromStepd::Closed | FromStepd::Acknowledged | FromStepd::Over => {}
            FromStepd::Lost(position) => {
                let lost = self.parts[self.nodes[from].part].nodes.start + position as usize;
                self.lost(lost, out);
            }
            message => out.push(NodeEvent::Message(from, message)),
        }
    }

    /// A node is lost: those below it are reached directly from now on.
    fn lost(&mut self, at: usize, out: &mut Vec<NodeEvent>) {
        let Some(node) = self.nodes.get_mut(at).filter(|n| !n.gone) else {
            return;
        };
        node.gone = true;
        if !std::mem::replace(&mut node.closed, true) {
            out.push(NodeEvent::Lost(at));
        }
        let part = &self.parts[node.part];
        let (first, width) = (part.nodes.start, part.width);
        let (own, _) = tree::place(at - first, part.nodes.len(), width);
        for branch in tree::below(&own, width) {
            let branch = first + branch.start..first + branch.end;
            let open = self.nodes[branch.clone()].iter().any(|n| !n.closed);
            let waits = open && !self.nodes[branch.start].gone;
            if waits && self.connect(branch.clone()).is_err() {
                self.lost(branch.start, out);
            }
        }
    }
}

/// The size of a message in memory.
fn weight(message: &ToStepd) -> usize {
    match message {
        ToStepd::Stdin { bytes, .. } => bytes.len(),
        _ => 0,
    }
}
