//! The executor of agents: delivers what happens in bursts, and carries out what the agents decide, as the real one does. It may be
//! killed before each action.

use super::events::{NodeEvent, Victim};
use super::nodes;
use super::{Outcome, StepReports, World, trace};
use crate::node::{AgentInput, AgentProcess, Down, RequestSource, StepLinkId, ToLauncher};
use crate::world::invariants;
use crate::world::turns::panic_text;
use crate::{Plant, Violation};
use muster_model::ids::{AttemptStep, JobAttempt};
use muster_model::spec::JobKind;
use muster_node_core::agent::{
    self, Agent, AgentConfig, ClientRequest, ConnId, RequestId, StdioId, StepdChannelId, Timer,
};
use muster_node_core::binding::Machine;
use muster_node_core::messages::{AgentToStepd, LauncherCommand, LauncherEvent, StepdCommand};
use muster_node_core::signals::{SIGCONT, SIGSTOP};
use muster_proto::frame::Frames;
use muster_proto::node::{NumberedReport, Order, Report, ToNode};
use muster_proto::step::{AgentReply, AgentRequest};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bursts without an end: more is a spin.
const IDLES_MAX: u32 = 1000;

/// The executor of agents, with the world around it.
pub(super) struct AgentExecutor<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// The executor of agents, with the world around it.
    pub(super) fn agents(&mut self) -> AgentExecutor<'_> {
        AgentExecutor { world: self }
    }
}

impl AgentExecutor<'_> {
    pub(super) fn start(&mut self, node: usize) {
        let now = self.world.time();
        let here = &mut self.world.nodes[node];
        let config = AgentConfig {
            conf: String::new(),
            name: here.name.clone(),
            cluster: crate::controller::CLUSTER.to_owned(),
            address: here.address(),
            spool_dir: here.spool().into(),
            cross_memory_pays: None,
            listens_at: None,
            machine: Machine::new(Err("no machine".to_owned()), Default::default()),
        };
        here.agent_lives += 1;
        let life = here.agent_lives;
        here.agent = Some(AgentProcess::new(Agent::new(config, now), life));
        trace!(
            self.world,
            "{}: agent {life} starts", self.world.nodes[node].name
        );
    }

    fn is_agent(&self, node: usize, life: u64) -> bool {
        let agent = self.world.nodes[node].agent.as_ref();
        agent.is_some_and(|a| a.life == life)
    }

    /// Something has happened that concerns the agent: a burst of it is handled soon.
    pub(super) fn take(&mut self, node: usize, input: AgentInput) {
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return;
        };
        agent.inbox.push_back(input);
        let life = agent.life;
        if !std::mem::replace(&mut agent.is_waking, true) {
            let delay = self.world.hop();
            self.world
                .machine_later(delay, node, NodeEvent::AgentWakes { life });
        }
    }

    pub(super) fn deliver(&mut self, node: usize, event: agent::Event) {
        self.take(node, AgentInput::Event(Box::new(event)));
    }

    /// Messages of the launcher arrive.
    pub(super) fn receive_launcher(
        &mut self,
        node: usize,
        link: u64,
        messages: Vec<LauncherEvent>,
    ) -> Outcome {
        let is_current = self.world.nodes[node]
            .link
            .as_ref()
            .is_some_and(|l| l.id == link);
        if !is_current {
            self.world.machines().lose_events(node, &messages);
            return Ok(());
        }
        self.world.machines().message_arrives(node, Victim::Agent)?;
        let Some(agent) = &mut self.world.nodes[node].agent else {
            self.world.machines().lose_events(node, &messages);
            return Ok(());
        };
        if agent.launcher != Some(link) {
            agent.launcher = Some(link);
            self.take(node, AgentInput::LauncherUp);
        }
        for message in messages {
            match message {
                LauncherEvent::Greeting(_) => {}
                LauncherEvent::StepChannel(attempt, step) => {
                    let channel = self.world.machines().take_passed(node, attempt, step);
                    if let Some(channel) = channel {
                        self.take(node, AgentInput::StepChannel(attempt, step, channel));
                    }
                }
                message => self.deliver(node, agent::Event::Launcher(Box::new(message))),
            }
        }
        Ok(())
    }

    pub(super) fn timer_due(&mut self, node: usize, life: u64, timer: Timer) {
        if self.is_agent(node, life) {
            if let Timer::Release(attempt) = timer {
                self.world.truth.waits_over.insert(attempt);
            }
            self.deliver(node, agent::Event::TimerDue(timer));
        }
    }

    /// One burst.
    pub(super) fn wake(&mut self, node: usize, life: u64) -> Outcome {
        if !self.is_agent(node, life) {
            return Ok(());
        }
        if let Some(agent) = &mut self.world.nodes[node].agent {
            agent.is_waking = false;
        }
        while let Some(input) = self.next_input(node, life) {
            self.take_input(node, input)?;
        }
        let mut count = 0;
        while self.run(node, agent::Event::Idle)? {
            count += 1;
            if count > IDLES_MAX {
                let detail = format!("{}: a burst does not end", self.world.nodes[node].name);
                return Err(Violation::new("invariant_agents_sleep", detail));
            }
        }
        let Some(agent) = self.world.nodes[node]
            .agent
            .as_mut()
            .filter(|a| a.life == life)
        else {
            return Ok(());
        };
        agent.dies_in = None;
        self.flush_launcher(node);
        self.flush_controller(node);
        Ok(())
    }

    fn next_input(&mut self, node: usize, life: u64) -> Option<AgentInput> {
        let agent = self.world.nodes[node].agent.as_mut()?;
        if agent.life != life {
            return None;
        }
        agent.inbox.pop_front()
    }

    fn take_input(&mut self, node: usize, input: AgentInput) -> Outcome {
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return Ok(());
        };
        let event = match input {
            AgentInput::Event(event) => {
                if !self.look_at(node, &event)? {
                    return Ok(());
                }
                *event
            }
            AgentInput::Dialed(dial) => agent::Event::Dialed(dial),
            AgentInput::ControllerAnswered(dial, key) => {
                agent::Event::ControllerAnswered(dial, key)
            }
            AgentInput::ControllerUp => {
                agent.to_controller.clear();
                agent::Event::ControllerUp
            }
            AgentInput::ControllerLost => agent::Event::ControllerLost,
            AgentInput::LauncherUp => {
                agent.to_launcher.clear();
                agent::Event::LauncherUp
            }
            AgentInput::LauncherLost => agent::Event::LauncherLost,
            AgentInput::StepChannel(attempt, step, channel) => {
                let Some(stepd) = agent.expected.remove(&AttemptStep::new(attempt, step)) else {
                    self.world.machines().close_upper(node, channel);
                    return Ok(());
                };
                agent.stepds.insert(stepd, channel);
                match self.read_stepd(node, stepd) {
                    Some(event) => event,
                    None => return Ok(()),
                }
            }
            AgentInput::StepdReadable(stepd) => match self.read_stepd(node, stepd) {
                Some(event) => event,
                None => return Ok(()),
            },
        };
        self.run(node, event).map(drop)
    }

    /// Compares what an agent is sent with history; whether it is given it.
    fn look_at(&mut self, node: usize, event: &agent::Event) -> Result<bool, Violation> {
        match event {
            agent::Event::Controller(ToNode::Ack(seq)) => {
                let reports = self.world.nodes[node].acknowledged(*seq);
                for report in &reports {
                    invariants::invariant_observed_ends_are_recorded(self.world, node, report)?;
                    invariants::invariant_reported_steps_are_accounted(self.world, node, report)?;
                }
            }
            agent::Event::Orders { orders, .. } => {
                for order in &orders.orders {
                    self.order_arrives(node, order)?;
                }
            }
            _ => {}
        }
        Ok(true)
    }

    fn order_arrives(&mut self, node: usize, order: &Order) -> Outcome {
        match order {
            Order::Launch(grant) => {
                let attempt = nodes::attempt_of(grant);
                invariants::invariant_a_launch_is_for_this_node(self.world, node, grant)?;
                invariants::invariant_a_released_launch_is_not_ordered_again(
                    self.world, node, attempt,
                )?;
                // If it is to be stopped still, that order follows: others before this one were lost with a launcher that had not begun it.
                self.world.truth.stopped.remove(&(node, attempt));
                let share = nodes::share(grant);
                let known = self
                    .world
                    .truth
                    .shares
                    .insert((node, attempt), share)
                    .is_some();
                if !known && grant.position == 0 && grant.spec.kind == JobKind::Allocation {
                    self.world.sruns().plan(node, attempt, 10_000);
                }
            }
            Order::Terminate { job, attempt, .. } => {
                let attempt = JobAttempt::new(*job, *attempt);
                if self.world.truth.stopped.remove(&(node, attempt)).is_some() {
                    self.world.truth.ended_stopped.insert((node, attempt));
                }
                if self.world.planted(Plant::EarlyRelease) && self.world.random.one_in(3) {
                    let released = LauncherEvent::Released(attempt);
                    self.deliver(node, agent::Event::Launcher(Box::new(released)));
                }
            }
            Order::Signal {
                job,
                attempt,
                step: None,
                signal,
                ..
            } => {
                let key = (node, JobAttempt::new(*job, *attempt));
                match i32::try_from(*signal) {
                    Ok(SIGSTOP) => drop(self.world.truth.stopped.insert(key, self.world.now)),
                    Ok(SIGCONT) => drop(self.world.truth.stopped.remove(&key)),
                    _ => {}
                }
            }
            Order::Signal { .. }
            | Order::Reboot
            | Order::Notify { .. }
            | Order::StepLimit { .. } => {}
        }
        Ok(())
    }

    /// Messages of a step daemon, if it has sent some, or is gone.
    fn read_stepd(&mut self, node: usize, stepd: StepdChannelId) -> Option<agent::Event> {
        let here = &mut self.world.nodes[node];
        let channel = *here.agent.as_ref()?.stepds.get(&stepd)?;
        let (events, is_open) = match here.machine.channels.get_mut(&channel) {
            Some(channel) => (channel.up.drain(..).collect(), !channel.is_lower_closed),
            None => (Vec::new(), false),
        };
        (!is_open || !Vec::is_empty(&events)).then_some(agent::Event::StepdEvents {
            stepd,
            events,
            is_open,
        })
    }

    /// Gives the agent an event, and then what its actions bring; whether they bring any.
    fn run(&mut self, node: usize, event: agent::Event) -> Result<bool, Violation> {
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return Ok(false);
        };
        let life = agent.life;
        agent.events.push_back(event);
        let mut count = 0;
        while let Some(event) = self.next_agent_event(node, life) {
            count += 1;
            let now = self.world.node_now(node);
            let now_ms = self.world.now;
            self.world.trace.process(now_ms, node, "agent", &event);
            let mut actions = Vec::new();
            if let Some(agent) = &mut self.world.nodes[node].agent {
                let machine = &mut agent.machine;
                let handled = AssertUnwindSafe(|| machine.on_event(event, now, &mut actions));
                catch_unwind(handled).map_err(|cause| {
                    let detail = format!("an agent: {}", panic_text(&*cause));
                    Violation::new("invariant_nothing_panics", detail)
                })?;
            }
            for action in &actions {
                self.world.trace.process(now_ms, node, "agent", action);
            }
            for action in actions {
                if self.agent_is_killed(node) {
                    self.lose_action(node, action);
                    self.world.machines().agent_dies(node)?;
                    return Ok(false);
                }
                self.execute(node, action)?;
            }
        }
        Ok(count > 1)
    }

    fn lose_action(&mut self, node: usize, action: agent::Action) {
        if let agent::Action::StartStepd { order, .. } = action {
            trace!(
                self.world,
                "{}: the order for step {}.{} is lost",
                self.world.nodes[node].name,
                order.attempt.job,
                order.launch.step
            );
        }
    }

    fn next_agent_event(&mut self, node: usize, life: u64) -> Option<agent::Event> {
        let agent = self.world.nodes[node].agent.as_mut()?;
        if agent.life != life {
            return None;
        }
        agent.events.pop_front()
    }

    fn agent_is_killed(&mut self, node: usize) -> bool {
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return false;
        };
        match &mut agent.dies_in {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    fn execute(&mut self, node: usize, action: agent::Action) -> Outcome {
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return Ok(());
        };
        match action {
            agent::Action::Greet {
                dial,
                launcher_key,
                present,
            } => self
                .world
                .agent_connections()
                .greet(node, dial, launcher_key.to_vec(), present),
            agent::Action::TrustController(dial, result) => {
                self.world.agent_connections().trust(node, dial, result)
            }
            agent::Action::CloseController => self.world.agent_connections().close_controller(node),
            agent::Action::SendHealth => {
                if let Some(conn) = self.world.nodes[node].conn() {
                    self.world.network().send_health(conn);
                }
            }
            agent::Action::SendReports(reports) => self.send_reports(node, reports),
            agent::Action::Launcher(command) => {
                let command = ToLauncher::Command(Box::new(command));
                agent.to_launcher.push(command);
            }
            agent::Action::StartStepd { stepd, order, .. } => {
                let begun = (node, order.attempt, order.launch.step);
                self.world.truth.begun.insert(begun, self.world.now);
                trace!(
                    self.world,
                    "{}: the launcher is to start step {}.{}",
                    self.world.nodes[node].name,
                    order.attempt.job,
                    order.launch.step
                );
                if let Some(agent) = &mut self.world.nodes[node].agent {
                    agent
                        .expected
                        .insert(AttemptStep::new(order.attempt, order.launch.step), stepd);
                    let command = Box::new(LauncherCommand::StartStep(order));
                    agent.to_launcher.push(ToLauncher::Command(command));
                }
            }
            agent::Action::OfferStep {
                stepd,
                frame,
                stdio,
            } => {
                let is_written = self.flush_launcher(node);
                self.world.machines().write_to_launcher(node);
                let is_written = is_written && self.offer_step(node, stepd, &frame, stdio);
                if let Some(agent) = &mut self.world.nodes[node].agent {
                    let offered = agent::Event::StepOffered(stepd, is_written);
                    agent.events.push_back(offered);
                }
            }
            agent::Action::SendStdio { stepd, stdio } => {
                if let (Some(channel), Some(link)) =
                    (agent.stepds.get(&stepd), agent.streams.get(&stdio))
                {
                    let (channel, link) = (*channel, *link);
                    let streams = Some(self.world.step_network().pass(link));
                    self.send_down(node, channel, streams.into_iter().collect());
                }
            }
            agent::Action::ReadStepds(stepds) => {
                for stepd in stepds {
                    let event = self.read_stepd(node, stepd);
                    if let Some(agent) = &mut self.world.nodes[node].agent {
                        agent.events.extend(event);
                    }
                }
                if let Some(agent) = &mut self.world.nodes[node].agent {
                    agent.events.push_back(agent::Event::StepdsRead);
                }
            }
            agent::Action::CloseStepd(stepd) => {
                let is_expected = agent.expected.values().any(|id| *id == stepd);
                agent.expected.retain(|_, id| *id != stepd);
                match agent.stepds.remove(&stepd) {
                    Some(channel) => self.world.machines().close_upper(node, channel),
                    None if is_expected => {}
                    None => return self.twice(node, &stepd),
                }
            }
            other => return self.execute_requests(node, other),
        }
        Ok(())
    }

    fn twice(&self, node: usize, what: &dyn std::fmt::Debug) -> Outcome {
        let detail = format!("{}: {what:?} is closed twice", self.world.nodes[node].name);
        Err(Violation::new("invariant_handles_are_closed_once", detail))
    }

    fn execute_requests(&mut self, node: usize, action: agent::Action) -> Outcome {
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return Ok(());
        };
        let life = agent.life;
        match action {
            agent::Action::CloseStdio(stdio) => match agent.streams.remove(&stdio) {
                Some(link) => self.world.step_network().release(link),
                None => return self.twice(node, &stdio),
            },
            agent::Action::Reply(request, reply) => {
                if let Some(asker) = agent.requests.get(&request).copied() {
                    self.reply(node, request, asker, reply);
                }
            }
            agent::Action::EndRequest(request) => match agent.requests.remove(&request) {
                Some(asker) => self.request_ends(node, request, asker),
                None => return self.twice(node, &request),
            },
            agent::Action::AskPeer {
                request,
                address,
                body,
            } => {
                agent.asked.insert(request);
                self.ask_peer(node, life, request, &address, body);
            }
            agent::Action::SetTimer { timer, after_ms } => {
                let event = NodeEvent::AgentTimer { life, timer };
                self.world.machine_later(after_ms, node, event);
            }
            agent::Action::ReleaseBytes(_) | agent::Action::LeaveBytes(_) => {}
            // Only the controller's stop, which it is never ordered here, leads to this.
            _ => {}
        }
        Ok(())
    }

    /// Writes a step to a daemon's channel; whether that could be.
    fn offer_step(
        &mut self,
        node: usize,
        stepd: StepdChannelId,
        frame: &[u8],
        stdio: Option<StdioId>,
    ) -> bool {
        let Some(agent) = &self.world.nodes[node].agent else {
            return false;
        };
        let streams = stdio.and_then(|stdio| agent.streams.get(&stdio)).copied();
        let Some(channel) = agent.stepds.get(&stepd).copied() else {
            return false;
        };
        let mut frames = Frames::default();
        frames.push(frame);
        let Ok(Some(AgentToStepd::StartStep(next))) = frames.take() else {
            return false;
        };
        let begun = (node, next.order.attempt, next.order.launch.step);
        self.world.truth.begun.insert(begun, self.world.now);
        let command = Box::new(StepdCommand::StartStep(next));
        let mut down = vec![Down::Command(command, None)];
        down.extend(streams.map(|link| self.world.step_network().pass(link)));
        self.send_down(node, channel, down)
    }

    fn send_down(&mut self, node: usize, channel: u64, down: Vec<Down>) -> bool {
        let open = self.world.nodes[node].machine.channels.get_mut(&channel);
        let Some(open) = open.filter(|c| !c.is_lower_closed) else {
            down.into_iter()
                .for_each(|down| self.world.machines().discard_message_to_stepd(node, down));
            return false;
        };
        open.down.extend(down);
        self.world.machines().wake_stepd_of(node, channel);
        true
    }

    /// Sends the launcher its messages; whether the launcher gets all.
    fn flush_launcher(&mut self, node: usize) -> bool {
        let link = self.world.nodes[node].link.as_ref().map(|l| l.id);
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return false;
        };
        if agent.launcher.is_none() {
            return false;
        }
        let is_there = link.is_some() && link == agent.launcher;
        let messages = std::mem::take(&mut agent.to_launcher);
        match is_there {
            _ if messages.is_empty() => {}
            true => self.world.machines().send_to_launcher(node, messages),
            // That the link has ended comes as an input of its own.
            false => {}
        }
        is_there
    }

    fn send_reports(&mut self, node: usize, mut reports: Vec<NumberedReport>) {
        for report in &reports {
            self.world.nodes[node]
                .reported
                .insert(report.seq, report.clone());
            self.note_report(node, report);
        }
        let loses_steps = self.world.planted(Plant::LostStepEnd);
        let loses_scripts = self.world.planted(Plant::LostScriptEnd);
        let random = &mut self.world.random;
        reports.retain(|numbered| {
            let is_lost = match numbered.report {
                Report::StepEnded { .. } => loses_steps,
                Report::BatchEnded { .. } => loses_scripts,
                _ => false,
            };
            !is_lost || !random.one_in(4)
        });
        if let Some(agent) = &mut self.world.nodes[node].agent {
            agent.to_controller.push(reports);
        }
    }

    fn note_report(&mut self, node: usize, report: &NumberedReport) {
        let attempt = JobAttempt::new(report.job, report.attempt);
        let truth = &mut self.world.truth;
        let (step, end) = match &report.report {
            Report::StepEnded { step, end } => (step, end),
            Report::Released => {
                truth.released.entry(node).or_default().insert(attempt);
                return;
            }
            _ => return,
        };
        // An end that comes after the longest wait, and after the node's release, may come after the controller's own.
        let released = truth.released.get(&node);
        let is_released = released.is_some_and(|attempts| attempts.contains(&attempt));
        if is_released && truth.waits_over.contains(&attempt) {
            return;
        }
        let here = &self.world.nodes[node];
        let (boot, agent_life) = (here.boot, here.agent_lives);
        let ends = truth.step_ends.entry(AttemptStep::new(attempt, *step));
        let ends = ends.or_insert_with(|| StepReports {
            exits: Vec::new(),
            node,
            boot,
            agent_life,
        });
        ends.exits.push(end.exit);
        ends.agent_life = agent_life;
    }

    fn flush_controller(&mut self, node: usize) {
        if !self.world.nodes[node].is_welcomed() {
            return;
        }
        let Some(conn) = self.world.nodes[node].conn() else {
            return;
        };
        if let Some(agent) = &mut self.world.nodes[node].agent {
            for reports in std::mem::take(&mut agent.to_controller) {
                self.world.network().send_to_ctld(conn, reports);
            }
        }
    }

    /// A client or another agent asks for something; the number of the request.
    pub(super) fn open_request(
        &mut self,
        node: usize,
        (asker, conn, uid): (RequestSource, u64, u32),
        body: AgentRequest,
        streams: Option<StepLinkId>,
    ) {
        let random = self.world.random.secret()[..16].to_vec();
        let Some(agent) = &mut self.world.nodes[node].agent else {
            return;
        };
        agent.next_id += 1;
        let (id, stdio) = (RequestId(agent.next_id), StdioId(agent.next_id));
        agent.requests.insert(id, asker);
        let stdio = streams.map(|link| {
            agent.streams.insert(stdio, link);
            stdio
        });
        let request = ClientRequest {
            id,
            conn: ConnId(conn),
            uid,
            is_agent: matches!(asker, RequestSource::Peer(..)),
            body: Box::new(body),
            stdio,
            random: random.into(),
        };
        self.deliver(node, agent::Event::Request(request));
    }

    fn reply(&mut self, node: usize, request: RequestId, asker: RequestSource, reply: AgentReply) {
        match asker {
            RequestSource::Srun(srun, agent) => {
                self.world.sruns().receive_reply(srun, agent, reply)
            }
            RequestSource::Peer(from, life, asked) => {
                // Its first answer is all that it waits for.
                if let Some(agent) = &mut self.world.nodes[node].agent {
                    agent.answered.insert(request);
                }
                self.answer_peer(from, life, asked, Ok(reply));
            }
        }
    }

    fn request_ends(&mut self, node: usize, request: RequestId, asker: RequestSource) {
        match asker {
            // The connection stays.
            RequestSource::Srun(..) => {}
            RequestSource::Peer(..) => {
                let agent = self.world.nodes[node].agent.as_mut();
                let is_answered = agent.is_some_and(|a| a.answered.remove(&request));
                if !is_answered {
                    self.request_is_lost(node, asker);
                }
            }
        }
    }

    /// Nobody will answer a request.
    pub(super) fn request_is_lost(&mut self, _node: usize, asker: RequestSource) {
        if let RequestSource::Peer(from, life, request) = asker {
            let error = "it closed without an answer".to_owned();
            self.answer_peer(from, life, request, Err(error));
        }
    }
}
