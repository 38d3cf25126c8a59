//! Connections between node agents and the controller: each direction keeps its order, takes its time, and loses
//! messages on the way when the connection breaks. Either end may find that out late. The controller's end does what
//! the daemon's connection task does: a hello first, then reports, at last the loss.

use super::{Outcome, World, WorldEvent, trace};
use crate::Plant;
use crate::classes::FaultClass;
use crate::controller::keys;
use crate::outlets::{Conn, lock};
use muster_ctld::mail::{Link, ToLink, ToWriter};
use muster_ctld::node_link::Outgoing;
use muster_model::cpuset::CpuSet;
use muster_model::ids::NodeIdx;
use muster_model::refusal::Refusal;
use muster_proto::node::{NodeHello, NumberedReport, Order};
use tokio::sync::{mpsc, oneshot};

/// One connection.
pub(crate) struct Connection {
    node: usize,
    /// Nothing arrives any more.
    cut: bool,
    /// The controller's end lives.
    ctld_open: bool,
    /// The node's index, once the writer accepted the hello.
    idx: Option<NodeIdx>,
    /// When that was, milliseconds.
    accepted_ms: u64,
    /// Reports before that.
    early: Vec<NumberedReport>,
    /// The controller's end, once the greeting is there: frames leave by it, sealed.
    outgoing: Option<Outgoing>,
    /// Times of the last delivery in each direction, so that nothing is overtaken.
    last_up: u64,
    last_down: u64,
}

/// Connections of agents to the controller, with the world around them.
pub(super) struct Network<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// Connections of agents to the controller, with the world around them.
    pub(super) fn network(&mut self) -> Network<'_> {
        Network { world: self }
    }
}

impl World {
    /// Time that a message takes, milliseconds.
    pub(crate) fn latency(&mut self) -> u64 {
        let slow = if self.now < self.faults.slow_until {
            2_000
        } else {
            3
        };
        self.random.below(slow)
    }

    /// A connection that was just made.
    pub(crate) fn new_connection(&self, node: usize) -> Connection {
        Connection {
            node,
            cut: false,
            ctld_open: true,
            idx: None,
            accepted_ms: 0,
            early: Vec::new(),
            outgoing: None,
            last_up: self.now,
            last_down: self.now,
        }
    }

    /// The node whose agent receives what arrives on this connection, if it does.
    pub(crate) fn node_receiving(&self, conn: Conn) -> Option<usize> {
        let connection = self.connections.get(&conn).filter(|c| !c.cut)?;
        (self.nodes[connection.node].conn() == Some(conn)).then_some(connection.node)
    }

    /// Since when a node's connection works both ways, if it does; milliseconds.
    pub(crate) fn connected_since(&self, node: usize) -> Option<u64> {
        let connection = self.connections.get(&self.nodes[node].conn()?)?;
        let is_up = self.nodes[node].is_welcomed();
        let works = is_up && !connection.cut && connection.ctld_open && connection.idx.is_some();
        works.then_some(connection.accepted_ms)
    }
}

impl Network<'_> {
    /// The agent dials.
    pub(crate) fn connect(&mut self, node: usize) {
        let is_free = |a: &crate::node::AgentProcess| a.dial.is_none();
        if !self.world.nodes[node].agent.as_ref().is_some_and(is_free) {
            return;
        }
        let cut_off_until = self.world.nodes[node].cut_off_until;
        if self.world.controller.is_none() || self.world.now < cut_off_until {
            let delay = self.world.random.between(500, 3_000);
            return self.world.later(delay, WorldEvent::Connect { node });
        }
        let conn = self.world.next_conn;
        self.world.next_conn += 1;
        self.world
            .connections
            .insert(conn, self.world.new_connection(node));
        self.world.agent_connections().dial(node, conn);
    }

    /// The agent greets.
    pub(crate) fn send_hello(&mut self, conn: Conn, hello: NodeHello) {
        trace!(
            self.world,
            "{} connects ({conn}), present {:?}", hello.name, hello.present
        );
        if let Some(delay) = self.way_up(conn) {
            let hello = Box::new(hello);
            self.world.later(delay, WorldEvent::Hello { conn, hello });
        }
    }

    pub(crate) fn hello_arrives(&mut self, conn: Conn, hello: Box<NodeHello>) {
        if !self
            .world
            .connections
            .get(&conn)
            .is_some_and(|c| c.ctld_open && !c.cut)
        {
            return;
        }
        let Some(controller) = &self.world.controller else {
            return;
        };
        if let Some(connection) = self.world.connections.get_mut(&conn) {
            connection.outgoing = Some(Outgoing::new(keys(), &hello));
        }
        let (send, receive) = mpsc::unbounded_channel();
        let (answer, accepted) = oneshot::channel();
        {
            let outlets = &mut lock(&controller.watch).outlets;
            outlets.links.insert(conn, receive);
            outlets.answers.insert(conn, accepted);
        }
        let link = Link {
            generation: conn,
            send,
        };
        self.world.controller_process().mail(ToWriter::NodeHello {
            hello,
            link,
            answer,
        });
    }

    pub(crate) fn hello_is_answered(&mut self, conn: Conn, answer: Result<NodeIdx, Refusal>) {
        let Some(connection) = self.world.connections.get_mut(&conn) else {
            return;
        };
        match answer {
            Ok(idx) => {
                connection.idx = Some(idx);
                connection.accepted_ms = self.world.now;
                let reports = std::mem::take(&mut connection.early);
                if !reports.is_empty() {
                    self.world.controller_process().mail(ToWriter::Reports {
                        node: idx,
                        generation: conn,
                        reports,
                    });
                }
                let closed = self
                    .world
                    .connections
                    .get(&conn)
                    .is_some_and(|c| !c.ctld_open);
                if closed {
                    self.world.controller_process().mail(ToWriter::NodeLost {
                        node: idx,
                        generation: conn,
                    });
                }
            }
            Err(refusal) => {
                trace!(self.world, "connection {conn} is refused: {refusal}");
                self.ctld_lets_go(conn);
            }
        }
    }

    pub(crate) fn reports_arrive(&mut self, conn: Conn, reports: Vec<NumberedReport>) {
        let Some(connection) = self.world.connections.get_mut(&conn) else {
            return;
        };
        if connection.cut || !connection.ctld_open {
            return;
        }
        match connection.idx {
            Some(node) => self.world.controller_process().mail(ToWriter::Reports {
                node,
                generation: conn,
                reports,
            }),
            None => connection.early.extend(reports),
        }
    }

    pub(crate) fn health_arrives(&mut self, conn: Conn, load_centi: u32) {
        let Some(connection) = self.world.connections.get(&conn) else {
            return;
        };
        if let (false, true, Some(node)) = (connection.cut, connection.ctld_open, connection.idx) {
            self.world.controller_process().mail(ToWriter::Health {
                node,
                load_centi,
                free_mib: 1000,
            });
        }
    }

    /// The writer sent something down a connection.
    pub(crate) fn send_to_agent(&mut self, conn: Conn, mut messages: Vec<ToLink>) {
        let is_replaced = messages.iter().any(|m| matches!(m, ToLink::Replaced));
        self.spoil_orders(&mut messages);
        let at = self.world.wall();
        let Some(connection) = self.world.connections.get_mut(&conn) else {
            return;
        };
        let Some(outgoing) = &mut connection.outgoing else {
            return;
        };
        match outgoing.encode(messages.into_iter(), at) {
            Ok((bytes, _)) if !bytes.is_empty() => self.send_bytes(conn, bytes),
            Ok(_) => {}
            // The node's keys are none.
            Err(_) => self.ctld_sees_closed(conn),
        }
        if is_replaced {
            self.ctld_lets_go(conn);
        }
    }

    /// Faults that are planted between the writer and its connections.
    fn spoil_orders(&mut self, messages: &mut Vec<ToLink>) {
        if self.world.planted(Plant::LostLaunch) {
            let random = &mut self.world.random;
            messages.retain(|message| {
                let is_launch = matches!(message, ToLink::Order(Order::Launch(_), _));
                !is_launch || !random.one_in(6)
            });
        }
        let is_core = self.world.planted(Plant::CoreGivenTwice);
        if !is_core && !self.world.planted(Plant::DeviceGivenTwice) {
            return;
        }
        for message in messages {
            if let ToLink::Order(Order::Launch(grant), _) = message
                && self.world.random.one_in(4)
            {
                let mut alloc = (*grant.alloc).clone();
                for share in &mut alloc.nodes {
                    if is_core {
                        share.cpus = CpuSet::first(share.cpus.len());
                        continue;
                    }
                    for device in &mut share.gres {
                        device.ids = CpuSet::first(device.ids.len());
                    }
                }
                grant.alloc = alloc.into();
            }
        }
    }

    fn send_bytes(&mut self, conn: Conn, bytes: Vec<u8>) {
        let delay = self.world.latency();
        let unreliable =
            self.world.healing_since.is_none() && self.world.has(FaultClass::UnreliableMessages);
        let fault = match unreliable {
            true => self.world.chaos.below(30),
            false => u64::MAX,
        };
        let Some(connection) = self.world.connections.get_mut(&conn).filter(|c| !c.cut) else {
            return;
        };
        connection.last_down = connection.last_down.max(self.world.now + delay);
        let delay = connection.last_down - self.world.now;
        match fault {
            0 => {
                trace!(
                    self.world,
                    "FAULT {} bytes of connection {conn} are lost",
                    bytes.len()
                );
                // It breaks in the end; until then later ones arrive.
                let delay = self.world.chaos.below(20_000);
                return self.world.later(delay, WorldEvent::Break { conn });
            }
            1 => {
                trace!(
                    self.world,
                    "FAULT {} bytes of connection {conn} come twice",
                    bytes.len()
                );
                let bytes = bytes.clone();
                self.world.later(delay, WorldEvent::ToAgent { conn, bytes });
            }
            _ => {}
        }
        self.world.later(delay, WorldEvent::ToAgent { conn, bytes });
    }

    /// Bytes of the controller arrive at an agent.
    pub(crate) fn agent_receives(&mut self, conn: Conn, bytes: &[u8]) -> Outcome {
        match self.world.node_receiving(conn) {
            Some(node) => self.world.agent_connections().controller_sends(node, bytes),
            None => Ok(()),
        }
    }

    /// The agent sent reports.
    pub(crate) fn send_to_ctld(&mut self, conn: Conn, reports: Vec<NumberedReport>) {
        if let Some(delay) = self.way_up(conn) {
            self.world
                .later(delay, WorldEvent::Reports { conn, reports });
        }
    }

    /// The agent sent its load.
    pub(crate) fn send_health(&mut self, conn: Conn) {
        let load = self.world.random.small(0, 400);
        if let Some(delay) = self.way_up(conn) {
            self.world.later(delay, WorldEvent::Health { conn, load });
        }
    }

    fn way_up(&mut self, conn: Conn) -> Option<u64> {
        let delay = self.world.latency();
        let connection = self.world.connections.get_mut(&conn).filter(|c| !c.cut)?;
        connection.last_up = connection.last_up.max(self.world.now + delay);
        Some(connection.last_up - self.world.now)
    }

    /// A node's open connection breaks; both ends find out, sooner or later.
    pub(crate) fn cut(&mut self, node: usize) {
        if let Some(conn) = self.world.nodes[node].conn() {
            let delay = self.finds_out();
            self.cut_conn(conn, Some(delay));
        }
    }

    /// A connection breaks; the controller's end finds out, and the agent's after a while if its process lives.
    pub(crate) fn cut_conn(&mut self, conn: Conn, agents_end: Option<u64>) {
        let Some(connection) = self.world.connections.get_mut(&conn) else {
            return;
        };
        connection.cut = true;
        let name = &self.world.nodes[connection.node].name;
        trace!(self.world, "connection {conn} of {name} breaks");
        let delay = self.finds_out();
        self.world.later(delay, WorldEvent::CtldSeesClosed { conn });
        if let Some(delay) = agents_end {
            self.world
                .later(delay, WorldEvent::AgentSeesClosed { conn });
        }
    }

    fn finds_out(&mut self) -> u64 {
        if self.world.random.one_in(3) {
            self.world.random.below(30_000)
        } else {
            self.world.random.below(50)
        }
    }

    pub(crate) fn ctld_sees_closed(&mut self, conn: Conn) {
        let Some(connection) = self.world.connections.get_mut(&conn) else {
            return;
        };
        if !std::mem::replace(&mut connection.ctld_open, false) {
            return;
        }
        // Without an index the hello is still being decided; then the loss is reported after it.
        if let Some(node) = connection.idx {
            self.world.controller_process().mail(ToWriter::NodeLost {
                node,
                generation: conn,
            });
        }
    }

    pub(crate) fn agent_sees_closed(&mut self, conn: Conn) {
        let Some(connection) = self.world.connections.get(&conn) else {
            return;
        };
        let node = connection.node;
        self.world.agent_connections().closed(node, conn);
    }

    /// The writer let go of a connection: its task ends without a word to the writer.
    pub(crate) fn ctld_lets_go(&mut self, conn: Conn) {
        if let Some(connection) = self.world.connections.get_mut(&conn) {
            connection.ctld_open = false;
        }
        if let Some(controller) = &self.world.controller {
            lock(&controller.watch).outlets.links.remove(&conn);
        }
        self.controller_end_is_gone(conn);
    }

    /// The controller's end closed; the agent sees it after all data sent before, or, if power failed, late.
    pub(crate) fn controller_end_is_gone(&mut self, conn: Conn) {
        let late = self.world.random.below(40);
        let Some(connection) = self.world.connections.get_mut(&conn) else {
            return;
        };
        connection.ctld_open = false;
        connection.last_down = connection.last_down.max(self.world.now + late);
        let delay = connection.last_down - self.world.now;
        self.world
            .later(delay, WorldEvent::AgentSeesClosed { conn });
    }
}
