//! Connections between node agents and the controller: each direction keeps its order, takes its time, and loses
//! what is on the way when the connection breaks. Either end may find that out late. The controller's end does what
//! the daemon's connection task does: a hello first, then reports, at last the loss.

use super::{World, WorldEvent, trace};
use crate::Plant;
use crate::outlets::{Conn, lock};
use muster_ctld::mail::{Link, ToLink, ToWriter};
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
    /// What came before that.
    early: Vec<NumberedReport>,
    /// Times of the last delivery in each direction, so that nothing is overtaken.
    last_up: u64,
    last_down: u64,
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
            last_up: self.now,
            last_down: self.now,
        }
    }

    /// The agent dials.
    pub(crate) fn connect(&mut self, node: usize) {
        let agent = &self.agents[node];
        if agent.conn.is_some() || !agent.agent_up || !agent.machine_up {
            return;
        }
        let cut_off_until = agent.cut_off_until;
        if self.controller.is_none() || self.now < cut_off_until {
            let delay = self.random.between(500, 3_000);
            return self.later(delay, WorldEvent::Connect { node });
        }
        let conn = self.next_conn;
        self.next_conn += 1;
        let hello = Box::new(self.agents[node].hello(self.time()));
        trace!(
            self,
            "{} connects ({conn}), present {:?}", hello.name, hello.present
        );
        let agent = &mut self.agents[node];
        agent.conn = Some(conn);
        agent.welcomed = false;
        let delay = self.latency();
        let mut connection = self.new_connection(node);
        connection.last_up += delay;
        self.connections.insert(conn, connection);
        self.later(delay, WorldEvent::Hello { conn, hello });
    }

    pub(crate) fn hello_arrives(&mut self, conn: Conn, hello: Box<NodeHello>) {
        if !self
            .connections
            .get(&conn)
            .is_some_and(|c| c.ctld_open && !c.cut)
        {
            return;
        }
        let Some(controller) = &self.controller else {
            return;
        };
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
        self.mail(ToWriter::NodeHello {
            hello,
            link,
            answer,
        });
    }

    pub(crate) fn hello_is_answered(&mut self, conn: Conn, answer: Result<NodeIdx, Refusal>) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        match answer {
            Ok(idx) => {
                connection.idx = Some(idx);
                connection.accepted_ms = self.now;
                let reports = std::mem::take(&mut connection.early);
                if !reports.is_empty() {
                    self.mail(ToWriter::Reports {
                        node: idx,
                        generation: conn,
                        reports,
                    });
                }
                let closed = self.connections.get(&conn).is_some_and(|c| !c.ctld_open);
                if closed {
                    self.mail(ToWriter::NodeLost {
                        node: idx,
                        generation: conn,
                    });
                }
            }
            Err(refusal) => {
                trace!(self, "connection {conn} is refused: {refusal}");
                self.ctld_lets_go(conn);
            }
        }
    }

    pub(crate) fn reports_arrive(&mut self, conn: Conn, reports: Vec<NumberedReport>) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        if connection.cut || !connection.ctld_open {
            return;
        }
        match connection.idx {
            Some(node) => self.mail(ToWriter::Reports {
                node,
                generation: conn,
                reports,
            }),
            None => connection.early.extend(reports),
        }
    }

    pub(crate) fn health_arrives(&mut self, conn: Conn, load_centi: u32) {
        let Some(connection) = self.connections.get(&conn) else {
            return;
        };
        if let (false, true, Some(node)) = (connection.cut, connection.ctld_open, connection.idx) {
            self.mail(ToWriter::Health {
                node,
                load_centi,
                free_mib: 1000,
            });
        }
    }

    /// The writer sent something down a connection.
    pub(crate) fn send_to_agent(&mut self, conn: Conn, mut message: ToLink) {
        if matches!(message, ToLink::Replaced) {
            return self.ctld_lets_go(conn);
        }
        let launch = matches!(&message, ToLink::Order(Order::Launch(_), _));
        if launch && self.planted(Plant::LostLaunch) && self.random.one_in(6) {
            trace!(self, "PLANT: a launch is lost");
            return;
        }
        if let ToLink::Order(Order::Launch(grant), _) = &mut message
            && self.planted(Plant::CoreGivenTwice)
            && self.random.one_in(4)
        {
            let mut alloc = (*grant.alloc).clone();
            for share in &mut alloc.nodes {
                share.cpus = muster_model::cpuset::CpuSet::first(share.cpus.len());
            }
            grant.alloc = alloc.into();
        }
        let delay = self.latency();
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        if connection.cut {
            return;
        }
        connection.last_down = connection.last_down.max(self.now + delay);
        let delay = connection.last_down - self.now;
        self.later(delay, WorldEvent::ToAgent { conn, message });
    }

    /// The agent sent reports.
    pub(crate) fn send_to_ctld(&mut self, conn: Conn, reports: Vec<NumberedReport>) {
        if let Some(delay) = self.way_up(conn) {
            self.later(delay, WorldEvent::Reports { conn, reports });
        }
    }

    /// The agent sent its load.
    pub(crate) fn send_health(&mut self, conn: Conn) {
        let load = self.random.small(0, 400);
        if let Some(delay) = self.way_up(conn) {
            self.later(delay, WorldEvent::Health { conn, load });
        }
    }

    fn way_up(&mut self, conn: Conn) -> Option<u64> {
        let delay = self.latency();
        let connection = self.connections.get_mut(&conn).filter(|c| !c.cut)?;
        connection.last_up = connection.last_up.max(self.now + delay);
        Some(connection.last_up - self.now)
    }

    /// The node whose agent receives what arrives on this connection, if it does.
    pub(crate) fn node_receiving(&self, conn: Conn) -> Option<usize> {
        let connection = self.connections.get(&conn).filter(|c| !c.cut)?;
        (self.agents[connection.node].conn == Some(conn)).then_some(connection.node)
    }

    /// Since when a node's connection works both ways, if it does; milliseconds.
    pub(crate) fn connected_since(&self, node: usize) -> Option<u64> {
        let connection = self.connections.get(&self.agents[node].conn?)?;
        let works = !connection.cut && connection.ctld_open && connection.idx.is_some();
        works.then_some(connection.accepted_ms)
    }

    /// A node's open connection breaks; both ends find out, sooner or later.
    pub(crate) fn cut(&mut self, node: usize, agent_lives: bool) {
        let Some(conn) = self.agents[node].conn else {
            return;
        };
        trace!(
            self,
            "connection {conn} of {} breaks", self.agents[node].name
        );
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.cut = true;
        }
        let delay = self.finds_out();
        self.later(delay, WorldEvent::CtldSeesClosed { conn });
        if agent_lives {
            let delay = self.finds_out();
            self.later(delay, WorldEvent::AgentSeesClosed { conn });
        } else {
            self.agents[node].conn = None;
            self.agents[node].welcomed = false;
        }
    }

    fn finds_out(&mut self) -> u64 {
        if self.random.one_in(3) {
            self.random.below(30_000)
        } else {
            self.random.below(50)
        }
    }

    pub(crate) fn ctld_sees_closed(&mut self, conn: Conn) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        if !std::mem::replace(&mut connection.ctld_open, false) {
            return;
        }
        // Without an index the hello is still being decided; then the loss is reported after it.
        if let Some(node) = connection.idx {
            self.mail(ToWriter::NodeLost {
                node,
                generation: conn,
            });
        }
    }

    pub(crate) fn agent_sees_closed(&mut self, conn: Conn) {
        let Some(connection) = self.connections.get(&conn) else {
            return;
        };
        let node = connection.node;
        let agent = &mut self.agents[node];
        if agent.conn == Some(conn) {
            agent.conn = None;
            agent.welcomed = false;
            let delay = self.random.below(2_000);
            self.later(delay, WorldEvent::Connect { node });
        }
    }

    /// The writer let go of a connection: its task ends without a word to the writer.
    pub(crate) fn ctld_lets_go(&mut self, conn: Conn) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.ctld_open = false;
        }
        if let Some(controller) = &self.controller {
            lock(&controller.watch).outlets.links.remove(&conn);
        }
        self.controller_end_is_gone(conn);
    }

    /// The controller's end closed; the agent sees it after what was sent before, or, if power failed, late.
    pub(crate) fn controller_end_is_gone(&mut self, conn: Conn) {
        let late = self.random.below(40);
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        connection.ctld_open = false;
        connection.last_down = connection.last_down.max(self.now + late);
        let delay = connection.last_down - self.now;
        self.later(delay, WorldEvent::AgentSeesClosed { conn });
    }
}
