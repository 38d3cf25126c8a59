//! The executor of sruns: delivers what has come in the order in which the real one takes it, and carries out what the machine
//! decides. The process may be killed before each action.

use super::events::{SrunId, SrunWorldEvent};
use super::{Outcome, World, WorldEvent, trace};
use crate::Violation;
use crate::controller::keys;
use crate::node::{
    AgentConnection, Direction, LinkClient, LinkServer, RequestSource, SrunProcess, TaskKey,
};
use crate::world::turns::panic_text;
use muster_model::ids::JobId;
use muster_node_core::agent::{self, ConnId};
use muster_node_core::srun::interface::{self, AgentId, ControllerError, StepdIdx};
use muster_proto::client::AllocationInfo;
use muster_proto::frame;
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, StepCreated};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rounds of one wake-up: more is a spin.
const ROUNDS_MAX: u32 = 1000;
/// Connections of an srun to agents, at most.
const AGENTS_MAX: u64 = 1024;

/// An srun's process, with the world around it.
pub(super) struct SrunExecutor<'w> {
    pub(super) world: &'w mut World,
    pub(super) id: SrunId,
}

/// Sources with data to read.
#[derive(Debug, Default)]
struct Ready {
    stepds: Vec<StepdIdx>,
    agent: Option<AgentId>,
}

impl SrunExecutor<'_> {
    fn process(&mut self) -> Option<&mut SrunProcess> {
        self.world.sruns.get_mut(&self.id)
    }

    fn now_ms(&mut self) -> u64 {
        let now = self.world.now;
        self.process().map_or(0, |p| now - p.started_at)
    }

    pub(super) fn begin(&mut self) -> Outcome {
        self.deliver(interface::Event::Started)?;
        self.wake()
    }

    /// One wake-up, with all that has come meanwhile.
    pub(super) fn wake(&mut self) -> Outcome {
        for _ in 0..ROUNDS_MAX {
            if !self.turn()? {
                return Ok(());
            }
        }
        let detail = format!("srun {}", self.id);
        Err(Violation::new("invariant_sruns_sleep", detail))
    }

    /// Once around the loop of the process; whether there was something to do.
    fn turn(&mut self) -> Result<bool, Violation> {
        let now_ms = self.now_ms();
        let Some(process) = self.process() else {
            return Ok(false);
        };
        let interest = process.machine.interest();
        let all: Vec<StepdIdx> = process.stepds.keys().copied().collect();
        let mut ready = Ready::default();
        let mut has_signals = false;
        if interest.looks {
            ready.stepds = all;
        } else {
            has_signals = interest.signals && !process.signals.is_empty();
            let is_ready = |a: &AgentConnection| a.is_closed || !a.replies.is_empty();
            let agent = interest.agent;
            ready.agent = agent.filter(|id| process.agents.get(id).is_some_and(is_ready));
            if interest.stepds {
                ready.stepds = self.ready_stepds(all);
            }
            let is_due = interest.until_ms.is_some_and(|at| at <= now_ms);
            if !has_signals && ready.agent.is_none() && ready.stepds.is_empty() && !is_due {
                if let Some(at) = interest.until_ms {
                    let (srun, event) = (self.id, SrunWorldEvent::Wakes);
                    let delay = at - now_ms;
                    self.world.later(delay, WorldEvent::Srun { srun, event });
                }
                return Ok(false);
            }
        }
        while has_signals && let Some(signal) = self.process().and_then(|p| p.signals.pop_front()) {
            self.deliver(interface::Event::Signal(signal))?;
        }
        self.serve_stepds(ready.stepds)?;
        // The step daemon may have answered for the agent.
        let wanted = self.process().and_then(|p| p.machine.interest().agent);
        if let Some(agent) = ready.agent.filter(|agent| wanted == Some(*agent)) {
            self.receive(agent)?;
        }
        self.deliver(interface::Event::Idle)?;
        Ok(true)
    }

    fn ready_stepds(&mut self, mut all: Vec<StepdIdx>) -> Vec<StepdIdx> {
        let (links, sruns) = (&self.world.links, &self.world.sruns);
        let stepds = sruns.get(&self.id).map(|p| &p.stepds);
        all.retain(|id| {
            let link = stepds.and_then(|stepds| stepds.get(id));
            link.is_some_and(|link| links.is_ready(*link, Direction::Up))
        });
        all
    }

    fn serve_stepds(&mut self, ready: Vec<StepdIdx>) -> Outcome {
        for id in ready {
            // It may have been closed by what another has sent.
            let Some(link) = self.process().and_then(|p| p.stepds.get(&id).copied()) else {
                continue;
            };
            let (mut messages, mut is_closed) = (Vec::new(), true);
            if let Some(open) = self.world.links.get_mut(link) {
                while let Some(message) = open.up.frames.take::<FromStepd>().map_err(|e| {
                    let detail = format!("srun {}: {e}", self.id);
                    Violation::new("invariant_messages_are_understood", detail)
                })? {
                    messages.push(message);
                }
                open.up.is_new = false;
                is_closed = open.up.is_closed;
            }
            if is_closed {
                self.close_stepd(id);
            }
            for message in &messages {
                if let FromStepd::Created(created) = message {
                    self.note_created(created);
                }
            }
            if !messages.is_empty() {
                self.deliver(interface::Event::StepdMessages(id, messages))?;
            }
            if is_closed {
                let error = "end of file".to_owned();
                self.deliver(interface::Event::StepdLost(id, error))?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, id: AgentId) -> Outcome {
        let agent = self.process().and_then(|p| p.agents.get_mut(&id));
        let Some(agent) = agent else { return Ok(()) };
        let event = match agent.replies.pop_front() {
            Some(reply) => {
                match &reply {
                    AgentReply::Created(created) => self.note_created(created),
                    AgentReply::Refused(refusal) => {
                        let srun = self.id;
                        trace!(self.world, "srun {srun} is refused: {refusal}");
                    }
                    _ => {}
                }
                interface::Event::AgentReplied(id, Box::new(reply))
            }
            None => interface::Event::AgentLost(id, "it closed".to_owned()),
        };
        self.deliver(event)
    }

    fn note_created(&mut self, created: &StepCreated) {
        let (srun, step) = (self.id, created.step);
        trace!(self.world, "srun {srun} has step {step}");
        let tasks = created.nodes.iter().flat_map(|node| node.tasks.clone());
        if let Some(process) = self.process() {
            process.step = Some((step, tasks.collect()));
        }
    }

    /// Gives the machine an event, and then what its actions bring.
    fn deliver(&mut self, event: interface::Event) -> Outcome {
        let now_ms = self.now_ms();
        let mut next = Some(event);
        while let Some(event) = next {
            let Some(process) = self.process() else {
                return Ok(());
            };
            let mut actions = Vec::new();
            let machine = &mut process.machine;
            let handled = AssertUnwindSafe(|| machine.on_event(event, now_ms, &mut actions));
            catch_unwind(handled).map_err(|cause| {
                let detail = format!("an srun: {}", panic_text(&*cause));
                Violation::new("invariant_nothing_panics", detail)
            })?;
            for action in actions {
                if self.is_killed() {
                    self.end();
                    return Ok(());
                }
                self.execute(action)?;
            }
            next = self.process().and_then(|p| p.events.pop_front());
        }
        Ok(())
    }

    /// Whether it is killed before it has carried out an action.
    fn is_killed(&mut self) -> bool {
        let dies_in = self.process().and_then(|p| p.dies_in.as_mut());
        match dies_in {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    fn answer(&mut self, event: interface::Event) {
        if let Some(process) = self.process() {
            process.events.push_back(event);
        }
    }

    fn execute(&mut self, action: interface::Action) -> Outcome {
        let Some(process) = self.process() else {
            return Ok(());
        };
        match action {
            interface::Action::AskAllocation(job) => {
                let answer = self.allocation(job);
                self.answer(interface::Event::Allocation(answer));
            }
            interface::Action::ConnectAgent { agent, address, .. } => {
                let event = self.connect_agent(agent, &address);
                self.answer(event);
            }
            interface::Action::SendRequest {
                agent,
                request,
                channel,
            } => self.send_request(agent, request, channel),
            interface::Action::CloseAgent(agent) => self.close_agent(agent),
            interface::Action::OpenStreams(_) => {
                self.answer(interface::Event::StreamsOpened(Ok(())))
            }
            interface::Action::RunProgram(_) => self.answer(interface::Event::ProgramEnded(Ok(()))),
            interface::Action::ConnectStepd { stepd, address, .. } => {
                self.connect_stepd(stepd, &address)
            }
            interface::Action::SendStepds(stepds, message) => {
                let links = stepds.iter().filter_map(|id| process.stepds.get(id));
                let links: Vec<_> = links.copied().collect();
                let frame = frame::encode(&message);
                for link in links {
                    let mut network = self.world.step_network();
                    network.send(link, Direction::Down, &frame);
                }
            }
            interface::Action::CloseStepd(stepd) => self.close_stepd(stepd),
            interface::Action::CatchSignals { .. } => process.catches_signals = true,
            interface::Action::RestoreTerminal | interface::Action::Write(..) => {}
            interface::Action::Print(text) => {
                let srun = self.id;
                trace!(self.world, "srun {srun}: {text}");
            }
            interface::Action::EndAllocation(exit) => {
                let detail = format!("srun {} ends what it does not hold: {exit:?}", self.id);
                return Err(Violation::new("invariant_sruns_end_their_own", detail));
            }
            interface::Action::Exit(code) => {
                self.check_exit(code)?;
                self.end();
            }
        }
        Ok(())
    }

    /// An srun that ends well has seen all its tasks end well.
    fn check_exit(&mut self, code: u8) -> Outcome {
        let srun = self.id;
        trace!(self.world, "srun {srun} exits with {code}");
        let Some(process) = self.world.sruns.get(&srun) else {
            return Ok(());
        };
        let (attempt, Some((step, tasks))) = (process.attempt, &process.step) else {
            return Ok(());
        };
        for task in tasks.iter().filter(|_| code == 0) {
            // A job that was requeued meanwhile may have had the step in a later launch.
            let (step, task) = (*step, *task);
            let first = TaskKey {
                attempt,
                step,
                task,
            };
            let mut ends = self.world.truth.task_ends.range(first..);
            let is_it = |key: &TaskKey| {
                key.attempt.job == attempt.job && key.step == step && key.task == task
            };
            if !ends.any(|(key, end)| is_it(key) && end.is_ok()) {
                let detail = format!(
                    "srun {srun} ends well, task {task} of step {}.{step} has not",
                    attempt.job
                );
                return Err(Violation::new("invariant_sruns_know_how_tasks_end", detail));
            }
        }
        Ok(())
    }

    /// The controller's answer about a job.
    fn allocation(&mut self, id: JobId) -> Result<Box<AllocationInfo>, ControllerError> {
        let failed = |why: &str| ControllerError::Failed(why.to_owned());
        let controller = self.world.controller.as_ref();
        let controller = controller.ok_or_else(|| failed("it does not answer"))?;
        let job = controller.writer.state().jobs.get(&id).cloned();
        let job = job.ok_or_else(|| failed("there is no such job"))?;
        let alloc = job.alloc.as_ref().ok_or_else(|| failed("it waits"))?;
        let names = alloc.nodes.iter().map(|node| &*node.name);
        let address = |name: &str| {
            let nodes = &self.world.nodes;
            let node = nodes.iter().find(|node| node.name == name);
            node.map_or_else(String::new, |node| node.address())
        };
        let addresses = names.map(address).collect();
        let key = keys().owner_key(id, job.attempt).into();
        Ok(Box::new(AllocationInfo {
            job,
            array: None,
            addresses,
            key,
            cluster: crate::controller::CLUSTER.to_owned(),
            components: Vec::new(),
        }))
    }

    fn connect_agent(&mut self, id: AgentId, address: &str) -> interface::Event {
        let nodes = &self.world.nodes;
        let node = nodes.iter().position(|n| n.address() == address);
        let life = node.and_then(|node| nodes[node].agent.as_ref().map(|a| a.life));
        let (Some(node), Some(life), Some(process)) = (node, life, self.process()) else {
            return interface::Event::AgentUnreachable(id, "nobody listens".to_owned());
        };
        let connection = AgentConnection {
            node,
            life,
            replies: VecDeque::new(),
            is_closed: false,
        };
        process.agents.insert(id, connection);
        interface::Event::AgentConnected {
            agent: id,
            is_local: node == process.node,
            own_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// The number of a connection, for agents.
    fn conn(&self, agent: AgentId) -> u64 {
        self.id * AGENTS_MAX + u64::from(agent.0)
    }

    fn send_request(
        &mut self,
        agent: AgentId,
        request: Box<AgentRequest>,
        channel: Option<StepdIdx>,
    ) {
        let (id, conn) = (self.id, self.conn(agent));
        let Some(process) = self.process() else {
            return;
        };
        let open = process.agents.get(&agent).filter(|a| !a.is_closed);
        let node = open.map(|a| a.node);
        let uid = process.uid;
        let error = match node {
            Some(node) => {
                let streams = channel.map(|stepd| {
                    let client = LinkClient::Srun(id, stepd.0);
                    let link = self.world.links.add(client, LinkServer::Passed(1));
                    if let Some(process) = self.process() {
                        process.stepds.insert(stepd, link);
                    }
                    link
                });
                let asker = (RequestSource::Srun(id, agent.0), conn, uid);
                self.world
                    .agents()
                    .open_request(node, asker, (*request).clone(), streams);
                None
            }
            None => Some("it closed".to_owned()),
        };
        self.answer(interface::Event::RequestSent {
            agent,
            request,
            error,
        });
    }

    fn close_agent(&mut self, id: AgentId) {
        let conn = ConnId(self.conn(id));
        let Some(agent) = self.process().and_then(|p| p.agents.remove(&id)) else {
            return;
        };
        let life = self.world.nodes[agent.node].agent.as_ref().map(|a| a.life);
        if life == Some(agent.life) {
            self.world
                .agents()
                .deliver(agent.node, agent::Event::ConnClosed(conn));
        }
    }

    fn connect_stepd(&mut self, stepd: StepdIdx, address: &str) {
        let client = LinkClient::Srun(self.id, stepd.0);
        let Some(node) = self.process().map(|p| p.node) else {
            return;
        };
        let link = self.world.step_network().connect(node, client, address);
        let event = match (link, self.process()) {
            (Some(link), Some(process)) => {
                process.stepds.insert(stepd, link);
                interface::Event::StepdConnected(stepd)
            }
            _ => interface::Event::StepdUnreachable(stepd, "connection refused".to_owned()),
        };
        self.answer(event);
    }

    fn close_stepd(&mut self, stepd: StepdIdx) {
        if let Some(link) = self.process().and_then(|p| p.stepds.remove(&stepd)) {
            self.world.step_network().close(link, Direction::Down);
        }
    }

    /// The process ends, by itself or by force.
    pub(super) fn end(&mut self) {
        let Some(process) = self.process() else {
            return;
        };
        let agents: Vec<AgentId> = process.agents.keys().copied().collect();
        let stepds: Vec<StepdIdx> = process.stepds.keys().copied().collect();
        agents.into_iter().for_each(|agent| self.close_agent(agent));
        stepds.into_iter().for_each(|stepd| self.close_stepd(stepd));
        self.world.sruns.remove(&self.id);
    }
}
