//! Users' sruns: each asks the agent of its job's first node for a step, lets the tasks begin, and waits for their end. It may be
//! killed at any moment, and loses its agent with the process of that.

use super::nodes::NodeEvent;
use super::{World, WorldEvent, trace};
use crate::controller::keys;
use crate::node::{Asker, Direction, LinkClient, LinkServer, StepLinkId};
use muster_model::ids::StepNo;
use muster_node_core::agent::{AgentEvent, ConnId, view};
use muster_node_core::messages::JobAttempt;
use muster_proto::frame;
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, StepSpec, ToStepd};
use muster_proto::version::Versions;
use std::collections::{BTreeMap, BTreeSet};

/// Number of an srun, and of its connection to the agent.
pub(crate) type SrunId = u64;

/// An srun.
pub(crate) struct Srun {
    /// The first node of its job, on which it runs.
    node: usize,
    run: JobAttempt,
    /// The agent that it is connected to, while it is.
    agent: Option<u64>,
    step: Option<StepNo>,
    /// The request is over.
    is_over: bool,
    /// Connections to step daemons.
    stepds: BTreeMap<u32, StepLinkId>,
    /// Connections to step daemons that are being made.
    connecting: usize,
    /// The number of the last of them.
    last_stepd: u32,
}

/// The connection whose other end goes with srun's streams.
const CHANNEL: u32 = 0;

/// Something that happens to an srun.
pub(crate) enum SrunEvent {
    /// The agent's answer arrives.
    Replied(Box<AgentReply>),
    /// The agent has no more to say.
    Over,
    /// It connects to a step daemon by this address, with the key of the step.
    Connects(String, Vec<u8>),
    /// Something has come on a connection.
    OnLink(u32),
    /// It is killed with the script that has started it.
    Killed,
}

/// Time in which a step gives back what it had on a node that runs nothing of it, milliseconds.
const GIVEN_BACK_MS: u64 = 90_000;

impl World {
    /// What steps hold of their job's nodes is used by some process, or given back soon.
    pub(crate) fn invariant_nothing_is_held_by_nothing(&mut self) -> super::Outcome {
        let mut idle = BTreeSet::new();
        for lead in &self.nodes {
            let Some(agent) = lead.agent.as_ref().filter(|_| lead.is_welcomed()) else {
                continue;
            };
            for (run, step, name) in view::held_parts(&agent.machine) {
                let at = self.nodes.iter().position(|n| n.name == name);
                let Some(at) = at else { continue };
                let is_it = |stepd: &crate::node::StepdProcess| {
                    let order = stepd.order();
                    order.is_some_and(|o| o.run == run && o.launch.step == step)
                };
                let here = &self.nodes[at];
                if !here.machine.stepds.values().any(is_it) && here.is_welcomed() {
                    idle.insert((run, step, at));
                }
            }
        }
        self.truth.held_idle.retain(|key, _| idle.contains(key));
        for key in idle {
            let since = *self.truth.held_idle.entry(key).or_insert(self.now);
            let (run, step, at) = key;
            let disturbed = self.nodes.iter().map(|n| n.disturbed_at).max();
            let since = since.max(disturbed.unwrap_or(0));
            if self.now - since > GIVEN_BACK_MS {
                return Err(crate::Violation::new(
                    "invariant_nothing_is_held_by_nothing",
                    format!(
                        "step {}.{step} of launch {} holds what it had of {}, which runs nothing of it",
                        run.job, run.attempt.0, self.nodes[at].name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Users begin steps in a job that begins.
    pub(super) fn plan_sruns(&mut self, node: usize, run: JobAttempt, within_ms: u64) {
        if self.random.one_in(3) {
            return;
        }
        for _ in 0..self.random.between(1, 5) {
            let delay = self.random.below(within_ms.max(1));
            self.machine_later(delay, node, NodeEvent::SrunStarts(run));
        }
    }

    pub(super) fn srun_starts(&mut self, node: usize, run: JobAttempt) {
        let Some(spec) = self.step_spec(run) else {
            return;
        };
        let Some(life) = self.nodes[node].agent.as_ref().map(|a| a.life) else {
            return;
        };
        let owner = self.ledger.jobs.get(&run.job).map(|j| j.spec.owner.uid);
        let uid = owner.unwrap_or_default();
        self.last_srun += 1;
        let id = self.last_srun;
        let srun = Srun {
            node,
            run,
            agent: Some(life),
            step: None,
            is_over: false,
            stepds: BTreeMap::new(),
            connecting: 0,
            last_stepd: CHANNEL,
        };
        self.sruns.insert(id, srun);
        trace!(
            self,
            "srun {id} of {}/{} asks for {:?} tasks on {:?} nodes",
            run.job,
            run.attempt.0,
            spec.ntasks,
            spec.min_nodes
        );
        let streams = spec.hands_streams.then(|| {
            let link = self
                .links
                .add(LinkClient::Srun(id, CHANNEL), LinkServer::Passed(1));
            if let Some(srun) = self.sruns.get_mut(&id) {
                srun.stepds.insert(CHANNEL, link);
            }
            link
        });
        let body = AgentRequest::Create(Box::new(spec));
        self.open_request(node, (Asker::Srun(id), id, uid), body, streams);
    }

    fn step_spec(&mut self, run: JobAttempt) -> Option<StepSpec> {
        let launch = self.ledger.launch(run.job, run.attempt)?;
        let most = u32::try_from(launch.nodes().len()).ok()?;
        let random = &mut self.random;
        let nodes = random.small(1, most.max(1));
        let ntasks = nodes * random.small(1, 2);
        let has_streams = random.one_in(2);
        let has_key = random.one_in(2);
        Some(StepSpec {
            job: run.job,
            key: has_key.then(|| keys().owner_key(run.job, run.attempt).into()),
            name: "true".to_owned(),
            argv: vec!["true".to_owned()],
            min_nodes: Some(nodes),
            max_nodes: Some(nodes),
            ntasks: Some(ntasks),
            overlap: random.one_in(4),
            exact: random.one_in(2),
            overcommit: random.one_in(3),
            immediate: random.one_in(8),
            hands_streams: has_streams,
            has_stepd_channel: has_streams && random.one_in(2),
            tree_width: random.one_in(2).then_some(2),
            ..StepSpec::default()
        })
    }

    pub(super) fn reply_to_srun(&mut self, srun: SrunId, reply: AgentReply) {
        let delay = self.hop();
        let event = SrunEvent::Replied(Box::new(reply));
        self.later(delay, WorldEvent::Srun { srun, event });
    }

    pub(super) fn srun_request_is_over(&mut self, srun: SrunId) {
        let delay = self.hop() + 40;
        let event = SrunEvent::Over;
        self.later(delay, WorldEvent::Srun { srun, event });
    }

    pub(crate) fn srun_event(&mut self, id: SrunId, event: SrunEvent) -> super::Outcome {
        if !self.sruns.contains_key(&id) {
            return Ok(());
        }
        match event {
            SrunEvent::Replied(reply) => self.srun_receives(id, *reply),
            SrunEvent::Over => {
                if let Some(srun) = self.sruns.get_mut(&id) {
                    srun.is_over = true;
                }
            }
            SrunEvent::Connects(address, key) => self.srun_connects(id, &address, key),
            SrunEvent::OnLink(stepd) => self.srun_reads(id, stepd),
            SrunEvent::Killed => {
                trace!(self, "srun {id} is killed");
                self.srun_ends(id);
            }
        }
        self.srun_may_end(id);
        Ok(())
    }

    fn srun_receives(&mut self, id: SrunId, reply: AgentReply) {
        match reply {
            AgentReply::Created(created) => {
                trace!(self, "srun {id} has step {}", created.step);
                if !created.direct {
                    self.srun_closes(id, CHANNEL);
                    for node in &created.nodes {
                        let delay = self.latency();
                        let key = created.key.to_vec();
                        let event = SrunEvent::Connects(node.address.clone(), key);
                        self.later(delay, WorldEvent::Srun { srun: id, event });
                        if let Some(srun) = self.sruns.get_mut(&id) {
                            srun.connecting += 1;
                        }
                    }
                }
                if let Some(srun) = self.sruns.get_mut(&id) {
                    srun.step = Some(created.step);
                }
            }
            AgentReply::Refused(refusal) => {
                trace!(self, "srun {id} is refused: {refusal}");
                self.srun_ends(id);
            }
            _ => {}
        }
    }

    fn srun_connects(&mut self, id: SrunId, address: &str, key: Vec<u8>) {
        let Some(srun) = self.sruns.get_mut(&id) else {
            return;
        };
        srun.connecting -= 1;
        let (node, stepd) = (srun.node, srun.last_stepd + 1);
        srun.last_stepd = stepd;
        let client = LinkClient::Srun(id, stepd);
        match self.step_network().connect(node, client, address) {
            Some(link) => {
                if let Some(srun) = self.sruns.get_mut(&id) {
                    srun.stepds.insert(stepd, link);
                }
                let greeting = Some(Versions::CLUSTER.greeting());
                let hello = frame::encode(&ToStepd::Hello(key.into(), greeting));
                self.step_network().send(link, Direction::Down, &hello);
            }
            None => {
                trace!(self, "srun {id} finds no step daemon at {address}");
                self.srun_ends(id);
            }
        }
    }

    /// A step daemon has sent something, or is gone.
    fn srun_reads(&mut self, id: SrunId, stepd: u32) {
        let srun = self.sruns.get(&id);
        let Some(link) = srun.and_then(|s| s.stepds.get(&stepd)).copied() else {
            return;
        };
        while let Some(open) = self.links.get_mut(link) {
            match open.up.frames.take::<FromStepd>() {
                Ok(Some(FromStepd::Closed)) => self.srun_closes(id, stepd),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) if open.up.is_closed => self.srun_closes(id, stepd),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn srun_closes(&mut self, id: SrunId, stepd: u32) {
        let srun = self.sruns.get_mut(&id);
        if let Some(link) = srun.and_then(|s| s.stepds.remove(&stepd)) {
            self.step_network().close(link, Direction::Down);
        }
    }

    fn srun_may_end(&mut self, id: SrunId) {
        let is_over =
            |s: &Srun| (s.is_over || s.agent.is_none()) && s.stepds.is_empty() && s.connecting == 0;
        if self.sruns.get(&id).is_some_and(is_over) {
            self.srun_ends(id);
        }
    }

    /// Its process ends, by itself or by force.
    fn srun_ends(&mut self, id: SrunId) {
        let Some(srun) = self.sruns.remove(&id) else {
            return;
        };
        let life = self.nodes[srun.node].agent.as_ref().map(|a| a.life);
        if srun.agent.is_some() && srun.agent == life {
            self.agent_event(srun.node, AgentEvent::ConnClosed(ConnId(id)));
        }
        for link in srun.stepds.into_values() {
            self.step_network().close(link, Direction::Down);
        }
    }

    pub(super) fn kill_an_srun(&mut self, node: usize) {
        let here = self.sruns.iter().filter(|(_, s)| s.node == node);
        let here: Vec<SrunId> = here.map(|(id, _)| *id).collect();
        if !here.is_empty() {
            let id = *self.chaos.pick(&here);
            trace!(self, "FAULT srun {id} is killed");
            self.srun_ends(id);
        }
    }

    /// The script of a job has ended, and its sruns with it.
    pub(super) fn script_is_gone(&mut self, node: usize, run: JobAttempt) {
        let is_of = |s: &Srun| s.node == node && s.run == run;
        let of: Vec<SrunId> = (self.sruns.iter())
            .filter(|(_, s)| is_of(s))
            .map(|(id, _)| *id)
            .collect();
        for srun in of {
            let delay = self.random.below(200);
            let event = SrunEvent::Killed;
            self.later(delay, WorldEvent::Srun { srun, event });
        }
    }

    pub(super) fn sruns_lose_agent(&mut self, node: usize, life: u64) {
        let ids: Vec<SrunId> = self.sruns.keys().copied().collect();
        for id in ids {
            if let Some(srun) = self.sruns.get_mut(&id)
                && srun.node == node
                && srun.agent == Some(life)
            {
                srun.agent = None;
                self.srun_may_end(id);
            }
        }
    }

    /// A machine goes down, with the sruns on it and the step daemons of others.
    pub(super) fn sruns_lose_node(&mut self, node: usize) {
        let ids: Vec<SrunId> = self.sruns.keys().copied().collect();
        for id in ids {
            let Some(srun) = self.sruns.get(&id) else {
                continue;
            };
            match srun.node == node {
                true => self.srun_ends(id),
                false => self.srun_may_end(id),
            }
        }
    }
}
