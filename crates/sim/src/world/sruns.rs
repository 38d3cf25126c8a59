//! Users' sruns: each asks the agent of its job's first node for a step, lets the tasks begin, and waits for their end. It may be
//! killed at any moment, and loses its agent with the process of that.

use super::nodes::NodeEvent;
use super::{World, WorldEvent, trace};
use crate::controller::keys;
use crate::node::{Asker, StepdInput};
use muster_model::ids::StepNo;
use muster_node_core::agent::{AgentEvent, ConnId, view};
use muster_node_core::messages::JobAttempt;
use muster_proto::step::{AgentReply, AgentRequest, StepSpec};
use std::collections::BTreeSet;
use std::path::PathBuf;

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
    /// Step daemons that it is connected to.
    stepds: BTreeSet<(usize, i32)>,
    /// Connections to step daemons that are being made.
    connecting: usize,
}

/// Something that happens to an srun.
pub(crate) enum SrunEvent {
    /// The agent's answer arrives.
    Replied(Box<AgentReply>),
    /// The agent has no more to say.
    Over,
    /// Its connection to a step daemon, by this socket, is made.
    Comes(usize, PathBuf),
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
                let is_it = |stepd: &crate::node::SimStepd| {
                    let order = stepd.order().map(|next| &next.order);
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
            stepds: BTreeSet::new(),
            connecting: 0,
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
        let streams = spec.hands_streams.then_some(id);
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
            SrunEvent::Comes(node, path) => return self.srun_comes(id, node, &path),
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
                for node in &created.nodes {
                    self.connect_srun(id, &node.name, &node.address, created.direct);
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

    fn connect_srun(&mut self, id: SrunId, name: &str, address: &str, is_direct: bool) {
        let node = self.nodes.iter().position(|n| n.name == name);
        let path = address.strip_prefix("unix:").map(PathBuf::from);
        let (Some(node), Some(path)) = (node, path) else {
            return;
        };
        // A direct step's daemon gets its streams from the agent.
        if !is_direct && let Some(srun) = self.sruns.get_mut(&id) {
            srun.connecting += 1;
            let delay = self.latency();
            let event = SrunEvent::Comes(node, path);
            self.later(delay, WorldEvent::Srun { srun: id, event });
        }
    }

    fn srun_comes(&mut self, id: SrunId, node: usize, path: &PathBuf) -> super::Outcome {
        let socket = self.nodes[node].machine.sockets.get(path).copied();
        let Some(srun) = self.sruns.get_mut(&id) else {
            return Ok(());
        };
        srun.connecting -= 1;
        let (run, step) = (srun.run, srun.step);
        let stepd = socket.filter(|pid| {
            let stepd = self.nodes[node].machine.stepds.get(pid);
            let order = stepd.and_then(|stepd| stepd.order()).map(|n| &n.order);
            order.is_some_and(|o| o.run == run && Some(o.launch.step) == step)
        });
        match stepd {
            Some(pid) => {
                srun.stepds.insert((node, pid));
                self.stepd_input(node, pid, StepdInput::Srun(id))?;
            }
            None => {
                trace!(self, "srun {id} finds no step daemon at {}", path.display());
                self.srun_ends(id);
            }
        }
        self.srun_may_end(id);
        Ok(())
    }

    /// A step daemon has no more to say to an srun.
    pub(super) fn srun_loses_stepd(&mut self, id: SrunId, node: usize, pid: i32) {
        if let Some(srun) = self.sruns.get_mut(&id) {
            srun.stepds.remove(&(node, pid));
            self.srun_may_end(id);
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
        // A daemon that has its streams from the agent notices it, too.
        let mut stepds = srun.stepds;
        for (node, here) in self.nodes.iter().enumerate() {
            let hangs = here.machine.stepds.iter();
            let hangs = hangs.filter(|(_, stepd)| stepd.srun() == Some(id));
            stepds.extend(hangs.map(|(pid, _)| (node, *pid)));
        }
        for (node, pid) in stepds {
            let delay = self.hop();
            let gone = Box::new(StepdInput::SrunGone(id));
            self.machine_later(delay, node, NodeEvent::StepdInput(pid, gone));
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
            let Some(srun) = self.sruns.get_mut(&id) else {
                continue;
            };
            srun.stepds.retain(|(on, _)| *on != node);
            match srun.node == node {
                true => self.srun_ends(id),
                false => self.srun_may_end(id),
            }
        }
    }
}
