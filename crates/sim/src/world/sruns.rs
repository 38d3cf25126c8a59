//! Users' sruns: their begin, their requests, and their wake-ups. One may get signals and be killed at any moment.

use super::events::{NodeEvent, SrunId, SrunWorldEvent};
use super::srun_executor::SrunExecutor;
use super::{Outcome, World, WorldEvent, trace};
use crate::controller::keys;
use crate::node::SrunProcess;
use muster_model::ids::JobAttempt;
use muster_node_core::signals::{SIGINT, SIGTERM};
use muster_node_core::srun::Srun;
use muster_node_core::srun::config::{
    ExitCodes, InputSource, Lead, Sink, SrunConfig, StepComponent, StepRules, Streams,
};
use muster_node_core::srun::interface::AgentId;
use muster_proto::step::{AgentReply, StepSpec};
use std::collections::{BTreeMap, VecDeque};

/// SIGUSR1, which srun passes on.
const SIGUSR1: i32 = 10;

/// All sruns, and the world around them.
pub(super) struct Sruns<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// All sruns, and the world around them.
    pub(super) fn sruns(&mut self) -> Sruns<'_> {
        Sruns { world: self }
    }
}

impl World {
    pub(super) fn srun(&mut self, id: SrunId) -> SrunExecutor<'_> {
        SrunExecutor { world: self, id }
    }
}

impl Sruns<'_> {
    /// Users begin steps in a job that begins.
    pub(super) fn plan(&mut self, node: usize, attempt: JobAttempt, within_ms: u64) {
        if self.world.random.one_in(3) {
            return;
        }
        for _ in 0..self.world.random.between(1, 5) {
            let delay = self.world.random.below(within_ms.max(1));
            self.world
                .machine_later(delay, node, NodeEvent::SrunStarts(attempt));
        }
    }

    pub(super) fn start(&mut self, node: usize, attempt: JobAttempt) -> Outcome {
        let Some(spec) = self.step_spec(attempt) else {
            return Ok(());
        };
        let owner = self
            .world
            .ledger
            .jobs
            .get(&attempt.job)
            .map(|j| j.spec.owner.uid);
        self.world.last_srun += 1;
        let id = self.world.last_srun;
        trace!(
            self.world,
            "srun {id} of {}/{} asks for {:?} tasks on {:?} nodes",
            attempt.job,
            attempt.attempt.0,
            spec.ntasks,
            spec.min_nodes
        );
        let config = self.config(node, spec);
        let process = SrunProcess {
            machine: Srun::new(config),
            node,
            attempt,
            uid: owner.unwrap_or_default(),
            started_at: self.world.now,
            agents: BTreeMap::new(),
            stepds: BTreeMap::new(),
            step: None,
            events: VecDeque::new(),
            catches_signals: false,
            signals: VecDeque::new(),
            dies_in: None,
        };
        self.world.sruns.insert(id, process);
        for _ in 0..2 {
            if self.world.random.one_in(10) {
                let delay = self.world.random.around(2_000);
                let signal = *self.world.random.pick(&[SIGINT, SIGTERM, SIGUSR1]);
                let event = SrunWorldEvent::Signal(signal);
                self.world
                    .later(delay, WorldEvent::Srun { srun: id, event });
            }
        }
        self.world.srun(id).begin()
    }

    /// Configuration of an srun at its begin.
    fn config(&mut self, node: usize, spec: StepSpec) -> SrunConfig {
        let random = &mut self.world.random;
        let address = self.world.nodes[node].address();
        let lead = match random.below(6) {
            0 => Lead::Unknown,
            1 => Lead::At(address),
            _ => Lead::Local(address),
        };
        let is_alone = spec.ntasks == Some(1);
        SrunConfig {
            quiet: false,
            verbose: false,
            rules: StepRules {
                kill_on_bad_exit: random.one_in(6),
                wait_s: if random.one_in(6) {
                    random.small(1, 3)
                } else {
                    0
                },
                quit_on_interrupt: random.one_in(4),
                prolog: random.one_in(8).then(|| "/prolog".to_owned()),
                epilog: random.one_in(8).then(|| "/epilog".to_owned()),
                kill_wait_s: self.world.settings.kill_wait_s,
                ..StepRules::default()
            },
            streams: Streams {
                stdin: InputSource::Nothing,
                stdout: Sink::Own,
                stderr: Sink::Own,
            },
            exit_codes: ExitCodes {
                error: 1,
                immediate: None,
            },
            has_allocation: false,
            can_pass_stdio: is_alone && random.one_in(2),
            number: None,
            parts: vec![StepComponent {
                spec: Box::new(spec),
                lead,
            }],
        }
    }

    fn step_spec(&mut self, attempt: JobAttempt) -> Option<StepSpec> {
        let launch = self.world.ledger.launch(attempt.job, attempt.attempt)?;
        let most = u32::try_from(launch.nodes().len()).ok()?;
        let (gres, memory) = (
            self.world.devices.requested(),
            self.world.devices.requested_memory(),
        );
        let random = &mut self.world.random;
        let nodes = match random.one_in(2) {
            true => most.max(1),
            false => random.small(1, most.max(1)),
        };
        let ntasks = nodes * random.small(1, 2);
        let has_key = random.one_in(2);
        Some(StepSpec {
            job: attempt.job,
            key: has_key.then(|| keys().owner_key(attempt.job, attempt.attempt).into()),
            name: "true".to_owned(),
            argv: vec!["true".to_owned()],
            min_nodes: Some(nodes),
            max_nodes: Some(nodes),
            ntasks: Some(ntasks),
            memory,
            gres,
            overlap: random.one_in(4),
            exact: random.one_in(2),
            overcommit: random.one_in(3),
            immediate: random.one_in(8),
            task_epilog: random.one_in(10).then(|| "/epilog".to_owned()),
            tree_width: random.one_in(2).then_some(2),
            ..StepSpec::default()
        })
    }

    /// An agent answers an srun.
    pub(super) fn receive_reply(&mut self, srun: SrunId, agent: u32, reply: AgentReply) {
        let delay = self.world.hop();
        let event = SrunWorldEvent::Replied(AgentId(agent), Box::new(reply));
        self.world.later(delay, WorldEvent::Srun { srun, event });
    }

    pub(crate) fn on_event(&mut self, id: SrunId, event: SrunWorldEvent) -> Outcome {
        let Some(srun) = self.world.sruns.get_mut(&id) else {
            return Ok(());
        };
        match event {
            SrunWorldEvent::Wakes => {}
            SrunWorldEvent::Replied(agent, reply) => {
                if let Some(agent) = srun.agents.get_mut(&agent) {
                    agent.replies.push_back(*reply);
                }
            }
            SrunWorldEvent::Signal(signal) if srun.catches_signals => {
                srun.signals.push_back(signal);
            }
            SrunWorldEvent::Signal(_) | SrunWorldEvent::Killed => {
                trace!(self.world, "srun {id} is killed");
                self.world.srun(id).end();
                return Ok(());
            }
        }
        self.world.srun(id).wake()
    }

    pub(super) fn kill_one(&mut self, node: usize) {
        let here = self.world.sruns.iter().filter(|(_, s)| s.node == node);
        let here: Vec<SrunId> = here.map(|(id, _)| *id).collect();
        if here.is_empty() {
            return;
        }
        let id = *self.world.chaos.pick(&here);
        let dies_in = Some(self.world.chaos.below(12)).filter(|_| self.world.chaos.one_in(2));
        trace!(self.world, "FAULT srun {id} is killed");
        match (dies_in, self.world.sruns.get_mut(&id)) {
            (Some(_), Some(srun)) => srun.dies_in = dies_in,
            _ => self.world.srun(id).end(),
        }
    }

    /// The script of a job has ended, and its sruns with it.
    pub(super) fn lose_script(&mut self, node: usize, attempt: JobAttempt) {
        let of = self.world.sruns.iter();
        let of = of.filter(|(_, s)| s.node == node && s.attempt == attempt);
        let of: Vec<SrunId> = of.map(|(id, _)| *id).collect();
        for srun in of {
            let delay = self.world.random.below(200);
            let event = SrunWorldEvent::Killed;
            self.world.later(delay, WorldEvent::Srun { srun, event });
        }
    }

    pub(super) fn lose_agent(&mut self, node: usize, life: u64) {
        let delay = self.world.hop();
        let mut lost = Vec::new();
        for (id, srun) in &mut self.world.sruns {
            for agent in srun.agents.values_mut() {
                if agent.node == node && agent.life == life {
                    agent.is_closed = true;
                    lost.push(*id);
                }
            }
        }
        for srun in lost {
            let event = SrunWorldEvent::Wakes;
            self.world.later(delay, WorldEvent::Srun { srun, event });
        }
    }

    /// A machine goes down, with the sruns on it.
    pub(super) fn lose_node(&mut self, node: usize) {
        let here = self.world.sruns.iter().filter(|(_, s)| s.node == node);
        let here: Vec<SrunId> = here.map(|(id, _)| *id).collect();
        for id in here {
            self.world.srun(id).end();
        }
    }
}
