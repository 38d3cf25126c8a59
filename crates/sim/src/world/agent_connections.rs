//! Connections of agents to the controller, as the agents have them.

use super::events::Victim;
use super::{Outcome, World, trace};
use crate::node::{AgentInput, Dial, DialStage};
use crate::outlets::Conn;
use muster_node_core::agent::{self, DialId};
use muster_proto::client::Response;
use muster_proto::frame::{self, Frames};
use muster_proto::node::{Orders, ToNode};
use muster_trust::{KeyPair, Receiver, SessionPeers};

/// Connections of agents to the controller, with the world around them.
pub(super) struct AgentConnections<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// Connections of agents to the controller, with the world around them.
    pub(super) fn agent_connections(&mut self) -> AgentConnections<'_> {
        AgentConnections { world: self }
    }
}

impl AgentConnections<'_> {
    /// The controller has accepted a connection.
    pub(super) fn dial(&mut self, node: usize, conn: Conn) {
        let pair = KeyPair::of(self.world.random.secret());
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return;
        };
        agent.last_dial += 1;
        let id = DialId(agent.last_dial);
        agent.dial = Some(Dial {
            id,
            conn,
            stage: DialStage::Dialed,
            pair,
            controller: Vec::new(),
            session: None,
            input: Frames::default(),
        });
        self.world.agents().take(node, AgentInput::Dialed(id));
    }

    fn dial_of(&mut self, node: usize, id: DialId, stage: DialStage) -> Option<&mut Dial> {
        let agent = self.world.nodes[node].agent.as_mut()?;
        let dial = agent.dial.as_mut()?;
        (dial.id == id && dial.stage == stage).then_some(dial)
    }

    pub(super) fn greet(
        &mut self,
        node: usize,
        dial: DialId,
        launcher_key: Vec<u8>,
        present: Vec<muster_model::ids::JobAttempt>,
    ) {
        let Some(dial) = self.dial_of(node, dial, DialStage::Dialed) else {
            return;
        };
        dial.stage = DialStage::Greeted;
        let (conn, key) = (dial.conn, dial.pair.public().to_vec());
        let now = self.world.time();
        let hello = self.world.nodes[node].hello(now, present, [key, launcher_key]);
        self.world.network().send_hello(conn, hello);
    }

    pub(super) fn trust(&mut self, node: usize, dial: DialId, result: Result<(), String>) {
        let name = self.world.nodes[node].name.clone();
        let Some(dial) = self.dial_of(node, dial, DialStage::Answered) else {
            return;
        };
        let conn = dial.conn;
        let peers = SessionPeers {
            cluster: crate::controller::CLUSTER,
            node: &name,
            receiver: Receiver::Agent,
        };
        let session = dial.pair.with_controller(peers, &dial.controller);
        match (result, session) {
            (Ok(()), Ok(session)) => {
                dial.session = Some(session);
                dial.stage = DialStage::Up;
                self.world.agents().take(node, AgentInput::ControllerUp);
                self.take_frames(node);
            }
            (Err(why), _) => {
                trace!(self.world, "{name}: the controller is not believed: {why}");
                self.leave(node, conn);
            }
            (_, Err(e)) => {
                trace!(self.world, "{name}: the controller's key: {e}");
                self.leave(node, conn);
            }
        }
    }

    /// Bytes of the controller arrive.
    pub(super) fn controller_sends(&mut self, node: usize, bytes: &[u8]) -> Outcome {
        self.world.machines().message_arrives(node, Victim::Agent)?;
        let agent = self.world.nodes[node].agent.as_mut();
        if let Some(dial) = agent.and_then(|a| a.dial.as_mut()) {
            dial.input.push(bytes);
            self.take_frames(node);
        }
        Ok(())
    }

    fn take_frames(&mut self, node: usize) {
        loop {
            let agent = self.world.nodes[node].agent.as_mut();
            let Some(dial) = agent.and_then(|a| a.dial.as_mut()) else {
                return;
            };
            let conn = dial.conn;
            match dial.stage {
                DialStage::Greeted => match dial.input.take::<Response>() {
                    Ok(Some(Response::Welcome(welcome))) => {
                        dial.stage = DialStage::Answered;
                        dial.controller = welcome.public_key.to_vec();
                        let answered = AgentInput::ControllerAnswered(dial.id, welcome.public_key);
                        self.world.agents().take(node, answered);
                    }
                    Ok(None) => return,
                    Ok(Some(_)) | Err(_) => return self.leave(node, conn),
                },
                DialStage::Up => match dial.input.take::<ToNode>() {
                    Ok(Some(message)) => {
                        if !self.take_controller_message(node, message) {
                            trace!(
                                self.world,
                                "{}: orders are refused, the connection is closed",
                                self.world.nodes[node].name
                            );
                            return self.leave(node, conn);
                        }
                    }
                    Ok(None) => return,
                    Err(_) => return self.leave(node, conn),
                },
                DialStage::Dialed | DialStage::Answered | DialStage::Closed => return,
            }
        }
    }

    /// Takes a message; whether it can be believed.
    fn take_controller_message(&mut self, node: usize, message: ToNode) -> bool {
        let event = match message {
            ToNode::Sealed {
                orders: bytes,
                seal,
                launcher_seal,
            } => {
                let agent = self.world.nodes[node].agent.as_mut();
                let session = agent.and_then(|a| a.dial.as_mut()?.session.as_mut());
                let is_next = session.is_some_and(|s| s.check(&bytes, &seal).is_ok());
                let Ok(orders) = frame::decode::<Orders>(&bytes) else {
                    return false;
                };
                if !is_next || orders.node != self.world.nodes[node].name {
                    return false;
                }
                agent::Event::Orders {
                    orders: Box::new(orders),
                    bytes,
                    launcher_seal,
                }
            }
            other => agent::Event::Controller(other),
        };
        self.world.agents().deliver(node, event);
        true
    }

    pub(super) fn close_controller(&mut self, node: usize) {
        if let Some(conn) = self.world.nodes[node].conn() {
            self.leave(node, conn);
        }
    }

    /// The agent closes the connection.
    fn leave(&mut self, node: usize, conn: Conn) {
        let agent = self.world.nodes[node].agent.as_mut();
        let Some(dial) = agent.and_then(|a| a.dial.as_mut()) else {
            return;
        };
        if dial.conn == conn && dial.stage != DialStage::Closed {
            let was_up = dial.stage == DialStage::Up;
            dial.stage = DialStage::Closed;
            if was_up {
                self.world.agents().take(node, AgentInput::ControllerLost);
            }
            self.world.network().cut_conn(conn, Some(5));
        }
    }

    /// The agent finds a connection closed.
    pub(super) fn closed(&mut self, node: usize, conn: Conn) {
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return;
        };
        let Some(dial) = agent.dial.take_if(|dial| dial.conn == conn) else {
            return;
        };
        if dial.stage == DialStage::Up {
            self.world.agents().take(node, AgentInput::ControllerLost);
        }
        let delay = match dial.stage {
            DialStage::Closed => self.world.random.below(100),
            _ => self.world.random.below(2_000),
        };
        self.world.later(delay, super::WorldEvent::Connect { node });
    }
}
