//! Nodes as a whole: what their supervisors start, which of their processes die, and how machines boot. Agents and launchers are
//! the real machines; the modules beside this one are their executors.

use super::events::{NodeEvent, Victim};
use super::machines::Machines;
use super::{Outcome, World, trace};
use crate::classes::FaultClass;
use crate::node::{AgentInput, Kind, Link, Parent, Share, ToLauncher};
use crate::random::Random;
use muster_model::ids::{AttemptStep, JobAttempt};
use muster_node_core::messages::{AttachAgent, LauncherEvent, MachineClaim, VERSIONS};
use muster_proto::job_container::ContainerSettings;
use muster_proto::node::{JobGrant, NodeSettings};
use std::collections::{BTreeSet, VecDeque};

impl World {
    /// A job's share of a node.
    pub(super) fn share_of(&self, node: usize, attempt: JobAttempt) -> Share {
        self.truth
            .shares
            .get(&(node, attempt))
            .cloned()
            .unwrap_or_default()
    }
}

impl Machines<'_> {
    pub(crate) fn node_event(&mut self, node: usize, event: NodeEvent) -> Outcome {
        match event {
            NodeEvent::InBoot(boot, event) => match self.world.nodes[node].boot == boot {
                true if self.world.nodes[node].machine_up => self.node_event(node, *event),
                _ => Ok(()),
            },
            NodeEvent::MachineStarts => {
                self.machine_starts(node);
                Ok(())
            }
            NodeEvent::AgentStarts => {
                self.agent_starts(node);
                Ok(())
            }
            NodeEvent::LauncherAsked { life } => self.launcher_asked(node, life),
            NodeEvent::ToLauncher { link } => self.world.launchers().receive(node, link),
            NodeEvent::FromLauncher { link, messages } => {
                self.world.agents().receive_launcher(node, link, messages)
            }
            NodeEvent::LinkClosed { link, life } => {
                self.link_closed(node, link, life);
                Ok(())
            }
            NodeEvent::LauncherWakes { life } => self.world.launchers().wake(node, life),
            NodeEvent::GroupsFound { life, account } => {
                self.world.launchers().groups_found(node, life, account)
            }
            NodeEvent::StepdAnswers { life, pid } => {
                self.world.launchers().stepd_answers_late(node, life, pid)
            }
            NodeEvent::AgentWakes { life } => self.world.agents().wake(node, life),
            NodeEvent::AgentTimer { life, timer } => {
                self.world.agents().timer_due(node, life, timer);
                Ok(())
            }
            NodeEvent::PeerAsks {
                from,
                life,
                request,
                body,
                is_lost,
            } => self
                .world
                .agents()
                .peer_asks(node, (from, life, request), *body, is_lost),
            NodeEvent::PeerAnswers {
                life,
                request,
                answer,
            } => self
                .world
                .agents()
                .peer_answers(node, life, request, *answer),
            NodeEvent::ProcessEnds { pid, timer } => self.process_ends_itself(node, pid, timer),
            NodeEvent::Killed { pid, signal } => self.process_is_killed(node, pid, signal),
            NodeEvent::StepdWakes(pid) => self.world.stepd(node, pid).wake(),
            NodeEvent::SrunStarts(attempt) => self.world.sruns().start(node, attempt),
        }
    }

    /// The supervisor starts an agent.
    pub(super) fn agent_starts(&mut self, node: usize) {
        if !self.world.nodes[node].machine_up || self.world.nodes[node].agent.is_some() {
            return;
        }
        self.world.agents().start(node);
        let life = self.world.nodes[node].agent_lives;
        let delay = self.world.hop();
        self.world
            .machine_later(delay, node, NodeEvent::LauncherAsked { life });
        self.world.later(10, super::WorldEvent::Connect { node });
    }

    /// The supervisor connects an agent to the launcher, and starts one if there is none.
    fn launcher_asked(&mut self, node: usize, life: u64) -> Outcome {
        let is_it = |a: &crate::node::AgentProcess| a.life == life;
        if !self.world.nodes[node].agent.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        let mut is_up = self.world.nodes[node].launcher.is_some();
        if !is_up && self.world.launchers().start(node)? {
            // One that died as it started has nobody's connection.
            is_up = self.world.nodes[node].launcher.is_some();
        }
        if !is_up {
            self.world
                .machine_later(1000, node, NodeEvent::LauncherAsked { life });
            return Ok(());
        }
        self.world.last_link += 1;
        let id = self.world.last_link;
        let (last_up, last_down) = (self.world.now, self.world.now);
        self.world.nodes[node].link = Some(Link {
            id,
            last_up,
            last_down,
            to_launcher: VecDeque::new(),
            written: 0,
        });
        let attach = AttachAgent {
            conf: String::new(),
            node: self.world.nodes[node].name.clone(),
            cluster: crate::controller::CLUSTER.to_owned(),
            version: String::new(),
            claim: MachineClaim::default(),
            greeting: Some(VERSIONS.greeting()),
        };
        self.send_to_launcher(node, vec![ToLauncher::Attach(Box::new(attach))]);
        Ok(())
    }

    /// Sends by the link to the launcher.
    pub(super) fn send_to_launcher(&mut self, node: usize, messages: Vec<ToLauncher>) {
        let hop = self.world.hop();
        let now = self.world.now;
        let Some(link) = &mut self.world.nodes[node].link else {
            return;
        };
        link.last_up = link.last_up.max(now + hop);
        link.to_launcher.push_back(messages);
        let (delay, link) = (link.last_up - now, link.id);
        self.world
            .machine_later(delay, node, NodeEvent::ToLauncher { link });
    }

    /// Messages sent by the link are in the launcher's socket: they arrive even if the agent is killed now.
    pub(super) fn write_to_launcher(&mut self, node: usize) {
        if let Some(link) = &mut self.world.nodes[node].link {
            link.written = link.to_launcher.len();
        }
    }

    /// Sends by the link to the agent.
    pub(super) fn send_to_linked_agent(&mut self, node: usize, messages: Vec<LauncherEvent>) {
        let hop = self.world.hop();
        let now = self.world.now;
        let Some(link) = &mut self.world.nodes[node].link else {
            return;
        };
        link.last_down = link.last_down.max(now + hop);
        let (delay, link) = (link.last_down - now, link.id);
        self.world
            .machine_later(delay, node, NodeEvent::FromLauncher { link, messages });
    }

    fn link_closed(&mut self, node: usize, link: u64, life: u64) {
        let Some(agent) = self.world.nodes[node]
            .agent
            .as_mut()
            .filter(|a| a.life == life)
        else {
            return;
        };
        let was_up = agent.launcher.take_if(|up| *up == link).is_some();
        if was_up {
            self.world.agents().take(node, AgentInput::LauncherLost);
        }
        let delay = match was_up {
            true => self.world.hop(),
            // It may not start.
            false => 1000,
        };
        self.world
            .machine_later(delay, node, NodeEvent::LauncherAsked { life });
    }

    /// The agent's process dies; the launcher and the jobs stay.
    pub(crate) fn agent_dies(&mut self, node: usize) -> Outcome {
        let Some(agent) = self.world.nodes[node].agent.take() else {
            return Ok(());
        };
        trace!(
            self.world,
            "{}: the agent dies", self.world.nodes[node].name
        );
        self.world.nodes[node].disturbed_at = self.world.now;
        self.world.nodes[node].reported.clear();
        if let Some(dial) = &agent.dial {
            self.world.network().cut_conn(dial.conn, None);
        }
        if let Some(mut link) = self.world.nodes[node].link.take() {
            link.to_launcher.truncate(link.written);
            let written = link.to_launcher.into_iter().flatten();
            self.world
                .launchers()
                .lose_agent(node, link.id, written.collect());
        }
        for channel in agent.stepds.values() {
            self.close_upper(node, *channel);
        }
        for input in agent.inbox {
            if let AgentInput::StepChannel(_, _, channel) = input {
                self.close_upper(node, channel);
            }
        }
        for link in agent.streams.into_values() {
            self.world.step_network().release(link);
        }
        for asker in agent.requests.into_values() {
            self.world.agents().request_is_lost(node, asker);
        }
        self.world.sruns().lose_agent(node, agent.life);
        self.forget_unwritten(node);
        let delay = self.world.random.between(100, 30_000);
        self.world
            .machine_later(delay, node, NodeEvent::AgentStarts);
        Ok(())
    }

    /// Agent and launcher of a node are both gone, and its storage did not take their records: nobody knows of the
    /// steps that began since, and their numbers are given again.
    fn forget_unwritten(&mut self, node: usize) {
        let here = &mut self.world.nodes[node];
        if here.agent.is_some() || here.launcher.is_some() {
            return;
        }
        let Some(since) = here.disk.unwritten_since.take() else {
            return;
        };
        let truth = &mut self.world.truth;
        let begun = truth.begun.iter();
        let lost: BTreeSet<AttemptStep> = begun
            .filter(|((on, _, _), at)| *on == node && **at >= since)
            .map(|((_, attempt, step), _)| AttemptStep::new(*attempt, *step))
            .collect();
        truth
            .tasks
            .retain(|key| !lost.contains(&AttemptStep::new(key.attempt, key.step)));
    }

    /// The launcher is killed; its processes go on without it.
    pub(crate) fn launcher_dies(&mut self, node: usize) -> Outcome {
        let Some(launcher) = self.world.nodes[node].launcher.take() else {
            return Ok(());
        };
        trace!(
            self.world,
            "{}: the launcher dies", self.world.nodes[node].name
        );
        self.world.nodes[node].disturbed_at = self.world.now;
        self.forget_unwritten(node);
        self.lose_events(node, &launcher.output);
        for connection in launcher.stepds.values() {
            self.close_upper(node, connection.channel);
        }
        let machine = &mut self.world.nodes[node].machine;
        let children = |p: &crate::node::Process| p.parent == Parent::Launcher;
        machine
            .processes
            .retain(|_, p| !children(p) || p.is_alive());
        for pid in machine.pids(children) {
            if let Some(process) = machine.processes.get_mut(&pid) {
                process.parent = Parent::Init;
            }
        }
        if let Some(link) = self.world.nodes[node].link.take() {
            let life = self.world.nodes[node].agent.as_ref().map(|a| a.life);
            let delay = self.world.hop();
            if let Some(life) = life {
                let event = NodeEvent::LinkClosed {
                    link: link.id,
                    life,
                };
                self.world.machine_later(delay, node, event);
            }
        }
        Ok(())
    }

    /// The machine loses power and comes back with a new boot.
    pub(crate) fn reboot(&mut self, node: usize) -> Outcome {
        if !self.world.nodes[node].machine_up {
            return Ok(());
        }
        trace!(
            self.world,
            "{}: the machine goes down", self.world.nodes[node].name
        );
        self.agent_dies(node)?;
        self.world.sruns().lose_node(node);
        self.world.step_network().close_all_of(node, None);
        let down = &mut self.world.nodes[node];
        down.machine_up = false;
        down.launcher = None;
        down.link = None;
        down.machine = Default::default();
        down.released.clear();
        down.disturbed_at = self.world.now;
        let random = &mut self.world.random;
        down.disk.lose_power(random);
        let delay = self.world.random.between(1_000, 120_000);
        self.world.node_later(delay, node, NodeEvent::MachineStarts);
        Ok(())
    }

    fn machine_starts(&mut self, node: usize) {
        let (now, up) = (self.world.now, &mut self.world.nodes[node]);
        if up.machine_up {
            return;
        }
        up.machine_up = true;
        up.boot += 1;
        up.booted_at = now;
        self.agent_starts(node);
    }

    /// Perhaps a process dies now that something has arrived on a node: the receiver after some of the actions that
    /// follow, or another one at once.
    pub(super) fn message_arrives(&mut self, node: usize, at: Victim) -> Outcome {
        let possible =
            self.world.healing_since.is_none() && self.world.has(FaultClass::DyingProcesses);
        if !possible || !self.world.chaos.one_in(self.world.deaths_in) {
            return Ok(());
        }
        let victims = [Victim::Agent, Victim::Launcher, Victim::Stepd, Victim::Srun];
        let victim = match self.world.chaos.one_in(2) {
            true => at,
            false => *self.world.chaos.pick(&victims),
        };
        let dies_in = Some(self.world.chaos.below(12)).filter(|_| victim == at);
        match victim {
            Victim::Agent => match (&mut self.world.nodes[node].agent, dies_in) {
                (Some(agent), Some(_)) => agent.dies_in = dies_in,
                _ => return self.agent_dies(node),
            },
            Victim::Launcher => match (&mut self.world.nodes[node].launcher, dies_in) {
                (Some(launcher), Some(_)) => launcher.dies_in = dies_in,
                _ => return self.launcher_dies(node),
            },
            Victim::Stepd => return self.kill_a_stepd(node),
            Victim::Srun => self.world.sruns().kill_one(node),
        }
        Ok(())
    }

    fn kill_a_stepd(&mut self, node: usize) -> Outcome {
        let machine = &self.world.nodes[node].machine;
        let stepds = machine.pids(|p| matches!(p.kind, Kind::Stepd(_)));
        if stepds.is_empty() {
            return Ok(());
        }
        let pid = *self.world.chaos.pick(&stepds);
        let dies_in = Some(self.world.chaos.below(12)).filter(|_| self.world.chaos.one_in(2));
        if let (Some(_), Some(stepd)) =
            (dies_in, self.world.nodes[node].machine.stepds.get_mut(&pid))
        {
            stepd.dies_in = dies_in;
            self.world.nodes[node].disturbed_at = self.world.now;
            return Ok(());
        }
        trace!(
            self.world,
            "{}: step daemon {pid} is killed", self.world.nodes[node].name
        );
        self.world.nodes[node].disturbed_at = self.world.now;
        self.end_process(node, pid, muster_node_core::signals::SIGKILL)
    }
}

/// Settings that the controller sends to nodes.
pub(super) fn settings(random: &mut Random) -> NodeSettings {
    NodeSettings {
        kill_wait_s: 5,
        prolog: random.one_in(3).then(|| "/prolog".to_owned()),
        epilog: random.one_in(3).then(|| "/epilog".to_owned()),
        tree_width: 2,
        containers: match random.one_in(4) {
            true => vec![ContainerSettings::default()],
            false => Vec::new(),
        },
        ..NodeSettings::default()
    }
}

/// The node's share of a job.
pub(crate) fn share(grant: &JobGrant) -> Share {
    let share = grant.alloc.nodes.get(grant.position as usize);
    Share {
        cpus: share.map(|share| share.cpus.clone()).unwrap_or_default(),
        shared_with: (grant.alloc.sharers > 1).then(|| grant.alloc.partition.clone()),
        devices: share.map(|share| share.gres.clone()).unwrap_or_default(),
    }
}

/// A launch.
pub(crate) fn attempt_of(grant: &JobGrant) -> JobAttempt {
    JobAttempt::new(grant.job, grant.attempt)
}
