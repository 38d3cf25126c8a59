//! After a restart of the agent: determines which nodes have their part of a step that the earlier agent process
//! began. That process may have been lost before it had asked all nodes to start their part, and a part that never
//! started does not end. If the start request is still on its way to a node, the node answers that it has no part,
//! and then starts one; such a part ends by itself, because srun does not connect.

use super::super::state::AgentState;
use super::super::steps::Steps;
use super::LedSteps;
use crate::agent::Timer;
use crate::agent::node_steps::{NodeSteps, PartPresence};
use minicbor::bytes::ByteVec;
use muster_model::ids::{JobAttempt, StepId};
use muster_model::job::StepEnd;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::step::AgentReply;
use muster_proto::step::NodeEnd;

/// Time after which the lead asks again a node that does not answer or does not know yet, milliseconds.
const FIND_AGAIN_MS: u64 = 5_000;

impl LedSteps {
    /// Steps of a job of whose parts it is not known whether they are there.
    pub(super) fn with_unknown_parts(&self, attempt: JobAttempt) -> Vec<StepId> {
        let steps = self.placed.of_attempt(attempt);
        let unknown = steps.filter(|(_, step)| !step.unknown_parts.is_empty());
        unknown.map(|(key, _)| key).collect()
    }

    /// A node has said whether it has its part of a step, or has not answered, and is asked again. The end of a part that is not
    /// there.
    pub(in crate::agent) fn part_found(
        &mut self,
        state: &mut AgentState,
        key: StepId,
        position: u32,
        answer: Result<AgentReply, String>,
    ) -> Option<NodeEnd> {
        match answer {
            Ok(AgentReply::Done) => None,
            Ok(AgentReply::Refused(refusal)) if refusal.code == RefusalCode::JobNotHere => {
                let end = StepEnd::never_ran(state.now.wall);
                Some(NodeEnd { position, end })
            }
            Ok(_) | Err(_) => {
                let step = self.placed.get_mut(key)?;
                if step.unknown_parts.is_empty() {
                    let timer = Timer::FindParts(key.job, key.step);
                    state.out.set_timer(timer, FIND_AGAIN_MS);
                }
                step.unknown_parts.insert(position);
                None
            }
        }
    }
}

impl Steps {
    /// Asks nodes for their parts of a step, as far as it is not known whether these exist.
    pub(in crate::agent) fn find_parts(&mut self, state: &mut AgentState, key: StepId) {
        let Some(step) = self.led.placed.get_mut(key) else {
            return;
        };
        let attempt = step.attempt;
        let Some(grant) = state.jobs.get(attempt).and_then(|job| job.grant.clone()) else {
            return;
        };
        let nodes: Vec<(u32, usize)> = std::mem::take(&mut step.unknown_parts)
            .into_iter()
            // A node that the job gave up ends all that it has of the job.
            .filter_map(|position| {
                let node = step.record.nodes.get(position as usize)?;
                Some((position, node.position(&grant.alloc)?))
            })
            .collect();
        let mut ends = Vec::new();
        for (position, node) in nodes {
            if node == 0 {
                let reply = part_reply(self.node_steps.find(key, attempt));
                ends.extend(self.led.part_found(state, key, position, Ok(reply)));
            } else if let Some(address) = grant.addresses.get(node) {
                let node = (position, address.clone());
                self.tree
                    .ask_for_part(&mut state.out, key, node, &grant.key);
            }
        }
        if !ends.is_empty() {
            self.nodes_ended(state, key, ends);
        }
    }
}

impl NodeSteps {
    /// The lead's question whether this node has a part of a step.
    pub(in crate::agent) fn find_part(
        &self,
        state: &AgentState,
        key: StepId,
        job_key: &ByteVec,
    ) -> AgentReply {
        if !state.is_synced {
            return part_reply(PartPresence::Unsettled);
        }
        match state.jobs.with_key(key.job, job_key) {
            Some((attempt, _)) => part_reply(self.find(key, attempt)),
            None if state.jobs.latest(key.job).is_some() => {
                AgentReply::Refused(RefusalCode::AccessDenied.into())
            }
            // The controller may not have said yet that this node has the job.
            None if self.waits_for_job(key.job) => part_reply(PartPresence::Unsettled),
            None => part_reply(PartPresence::Absent),
        }
    }
}

/// A node's answer.
fn part_reply(presence: PartPresence) -> AgentReply {
    match presence {
        PartPresence::Here => AgentReply::Done,
        PartPresence::Unsettled => AgentReply::Refused(RefusalCode::Busy.into()),
        PartPresence::Absent => {
            let detail = "no part of the step is here";
            AgentReply::Refused(Refusal::new(RefusalCode::JobNotHere, detail))
        }
    }
}
