//! Answers of a step's nodes, whether they have started it: srun learns where to connect, and a step that is to end early is
//! ended.

use super::super::state::AgentState;
use super::super::steps::Steps;
use super::{LedStep, LedStepEvent, LedStepState, LedSteps};
use crate::agent::node_steps::Listening;
use crate::messages::LauncherCommand;
use crate::signals::SIGTERM;
use muster_model::hostlist;
use muster_model::ids::{StepId, StepNo};
use muster_model::job::StepEnd;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::node::Report;
use muster_proto::step::{AgentReply, AgentRequest, StepCreated, StepNode};

impl LedStep {
    /// The answer to srun for the step.
    fn created(&self, step: StepNo) -> StepCreated {
        let hostlist = self.record.step.hostlist.clone();
        let names = hostlist::parse(&hostlist).unwrap_or_default();
        let nodes = self.addresses.iter().zip(&self.record.nodes);
        StepCreated {
            step,
            nodes: nodes
                .zip(names)
                .map(|((address, node), name)| StepNode {
                    name,
                    address: address.clone(),
                    tasks: node.tasks.clone(),
                })
                .collect(),
            key: self.record.key.clone(),
            hostlist,
            // All listen, or none does.
            mesh_addresses: self.mesh_addresses.iter().flatten().cloned().collect(),
            width: self.width,
            direct: self.direct,
            cpu_bind: self.cpu_bind.clone(),
        }
    }
}

impl LedSteps {
    /// The answer that srun has received for a running step.
    ///
    /// # Errors
    /// The step does not exist; it is being started; or the agent that started it is gone, and the addresses of its
    /// daemons are not known here.
    pub(in crate::agent) fn located(&self, key: StepId) -> Result<StepCreated, RefusalCode> {
        let step = self.placed.get(key).ok_or(RefusalCode::InvalidJobId)?;
        let is_known = !step.addresses.is_empty() && step.addresses.iter().all(|a| !a.is_empty());
        match step.unanswered == 0 && is_known {
            true => Ok(step.created(key.step)),
            false => Err(RefusalCode::Busy),
        }
    }
}

impl Steps {
    /// A node's daemon listens, or cannot be started.
    pub(in crate::agent) fn node_started(
        &mut self,
        state: &mut AgentState,
        key: StepId,
        position: u32,
        result: Result<Listening, String>,
    ) {
        let now = state.now.wall;
        let Some(step) = self.led.placed.get_mut(key) else {
            return;
        };
        if step.unanswered == 0 {
            return;
        }
        step.unanswered -= 1;
        let at = position as usize;
        match result {
            Ok(Listening {
                address,
                mesh_address,
                direct,
            }) => {
                step.direct = direct;
                if let Some(slot) = step.addresses.get_mut(at) {
                    *slot = address;
                }
                if let Some(slot) = step.mesh_addresses.get_mut(at) {
                    *slot = mesh_address;
                }
            }
            Err(error) => {
                step.error.get_or_insert(error);
                if let Some(node) = step.record.nodes.get_mut(at) {
                    node.end.get_or_insert_with(|| StepEnd::never_ran(now));
                }
            }
        }
        if step.unanswered == 0 {
            self.step_answered(state, key);
        }
    }

    /// All nodes have answered.
    pub(in crate::agent) fn step_answered(&mut self, state: &mut AgentState, key: StepId) {
        self.led.release_bytes(&mut state.out, key);
        let Some(step) = self.led.placed.get(key) else {
            return;
        };
        let Some(error) = step.error.clone() else {
            return self.step_created(state, key);
        };
        log::error!("step {}.{}: {error}", key.job, key.step);
        if let Some(client) = step.client {
            let refusal = Refusal::new(RefusalCode::NodeConfigUnavailable, error);
            state
                .out
                .reply(client.request, AgentReply::Refused(refusal));
        }
        self.led.step(key, LedStepEvent::StartFailed);
        self.end_step_everywhere(state, key);
        self.led.finish_step_if_over(state, key);
    }

    pub(in crate::agent) fn step_created(&mut self, state: &mut AgentState, key: StepId) {
        let next = self.led.step(key, LedStepEvent::Started);
        let Some(led) = self.led.placed.get(key) else {
            return;
        };
        let (step, attempt) = (led.record.step.clone(), led.attempt);
        match led.client {
            // Its daemon reports it.
            Some(_) if led.direct => {}
            Some(client) => {
                let created = led.created(key.step);
                state
                    .out
                    .reply(client.request, AgentReply::Created(Box::new(created)));
            }
            None => {}
        }
        if next == Some(LedStepState::Ending) {
            // srun went away while the daemons were started.
            self.end_step_everywhere(state, key);
        }
        state.reports.push(
            attempt.job,
            attempt.attempt,
            Report::StepStarted(Box::new(step)),
        );
        self.led.finish_step_if_over(state, key);
    }

    pub(in crate::agent) fn end_step_everywhere(&mut self, state: &mut AgentState, key: StepId) {
        let Some(step) = self.led.placed.get(key) else {
            return;
        };
        let attempt = step.attempt;
        let Some(grant) = state.jobs.get(attempt).and_then(|j| j.grant.clone()) else {
            return;
        };
        // If a step could not be started, it is unknown which of its parts run below nodes that did not answer.
        let failed = step.error.is_some();
        let nodes: Vec<usize> = step
            .record
            .nodes
            .iter()
            .filter(|n| n.end.is_none() || failed)
            // A node that the job gave up ends all that it has of the job.
            .filter_map(|n| n.position(&grant.alloc))
            .collect();
        if nodes.contains(&0) {
            state.out.command(LauncherCommand::EndStep {
                attempt,
                step: key.step,
            });
        }
        let others = nodes.iter().filter(|node| **node != 0);
        let agents: Vec<String> = others
            .filter_map(|node| grant.addresses.get(*node).cloned())
            .collect();
        let request = AgentRequest::SignalStep {
            job: key.job,
            key: grant.key.clone(),
            step: key.step,
            signal: SIGTERM.unsigned_abs(),
            below: Vec::new(),
        };
        self.tree.signal_below(state, &request, &agents);
    }
}
