//! Requests of agents to each other. A connection is kept for the next request: one that does not answer is tried once
//! more by another, so a repeated request has to be carried out once.

use super::agents::AgentExecutor;
use super::events::{NodeEvent, Victim};
use super::{Outcome, trace};
use crate::classes::FaultClass;
use crate::node::RequestSource;
use muster_node_core::agent::{self, PeerRequestId};
use muster_proto::step::{AgentReply, AgentRequest};

/// Numbers of connections of agents begin here.
const PEER_CONNS: u64 = 1 << 40;

impl AgentExecutor<'_> {
    pub(super) fn ask_peer(
        &mut self,
        node: usize,
        life: u64,
        request: PeerRequestId,
        address: &str,
        body: Box<AgentRequest>,
    ) {
        let to = self.world.nodes.iter().position(|n| n.address() == address);
        let Some(to) = to else {
            let error = format!("{address} is not an agent");
            return self.answer_peer(node, life, request, Err(error));
        };
        let ask = |body: Box<AgentRequest>, is_lost: bool| NodeEvent::PeerAsks {
            from: node,
            life,
            request,
            body,
            is_lost,
        };
        let unreliable =
            self.world.healing_since.is_none() && self.world.has(FaultClass::UnreliableMessages);
        let repeated = unreliable && self.world.chaos.one_in(6);
        let delay = self.world.latency();
        if repeated {
            trace!(self.world, "FAULT a request to {address} is asked twice");
            self.world.node_later(delay, to, ask(body.clone(), true));
            let again = delay + self.world.latency() + self.world.chaos.below(100);
            return self.world.node_later(again, to, ask(body, false));
        }
        self.world.node_later(delay, to, ask(body, false));
    }

    pub(super) fn peer_asks(
        &mut self,
        node: usize,
        (from, life, request): (usize, u64, PeerRequestId),
        body: AgentRequest,
        is_lost: bool,
    ) -> Outcome {
        let fails = self.world.healing_since.is_none()
            && self.world.has(FaultClass::UnreliableMessages)
            && self.world.chaos.one_in(12);
        let cut_off = |n: usize| self.world.now < self.world.nodes[n].cut_off_until;
        let is_reachable =
            self.world.nodes[node].agent.is_some() && !cut_off(node) && !cut_off(from);
        if fails || !is_reachable {
            if !is_lost {
                self.answer_peer(from, life, request, Err("no connection".to_owned()));
            }
            return Ok(());
        }
        self.world.machines().message_arrives(node, Victim::Agent)?;
        if self.world.nodes[node].agent.is_none() {
            self.answer_peer(from, life, request, Err("it closed".to_owned()));
            return Ok(());
        }
        // To an agent that asks twice, the first answer is lost: nobody waits for it.
        let asked = match is_lost {
            true => PeerRequestId(u64::MAX),
            false => request,
        };
        let asker = RequestSource::Peer(from, life, asked);
        let conn = PEER_CONNS + ((from as u64) << 20) + life;
        self.open_request(node, (asker, conn, 0), body, None);
        Ok(())
    }

    pub(super) fn answer_peer(
        &mut self,
        to: usize,
        life: u64,
        request: PeerRequestId,
        answer: Result<AgentReply, String>,
    ) {
        let unreliable =
            self.world.healing_since.is_none() && self.world.has(FaultClass::UnreliableMessages);
        let answer = match unreliable && self.world.chaos.one_in(12) {
            true => Err("the connection broke".to_owned()),
            false => answer,
        };
        let delay = self.world.latency();
        let answer = Box::new(answer);
        let event = NodeEvent::PeerAnswers {
            life,
            request,
            answer,
        };
        self.world.node_later(delay, to, event);
    }

    pub(super) fn peer_answers(
        &mut self,
        node: usize,
        life: u64,
        request: PeerRequestId,
        answer: Result<AgentReply, String>,
    ) -> Outcome {
        let agent = self.world.nodes[node].agent.as_mut();
        if !agent.is_some_and(|a| a.life == life && a.asked.remove(&request)) {
            return Ok(());
        }
        self.world.machines().message_arrives(node, Victim::Agent)?;
        if self.world.nodes[node]
            .agent
            .as_ref()
            .is_some_and(|a| a.life == life)
        {
            self.deliver(node, agent::Event::PeerAnswered(request, answer));
        }
        Ok(())
    }
}
