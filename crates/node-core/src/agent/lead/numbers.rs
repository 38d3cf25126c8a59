//! Step numbers. The agent of a job's first node assigns them in ascending order, each once, up to `MaxStepCount`. A
//! step of a heterogeneous job has the same number in all components: the agent of the leading component assigns it,
//! and agents of other components accept it if srun proves the assignment and no own step has had the number.

use super::super::lead::LedSteps;
use super::super::state::AgentState;
use super::super::steps::Steps;
use super::CreateRequest;
use crate::agent::encode;
use crate::agent::node_steps::Early;
use crate::kept::KEPT_NEXT;
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::node::JobGrant;
use muster_proto::step::{AgentReply, HetStep};
use muster_trust::{is_same_key, prove_step_number};

impl LedSteps {
    /// The number of a job's next step, if it may have another.
    pub(super) fn next_step(&mut self, state: &mut AgentState, grant: &JobGrant) -> Option<StepNo> {
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        let end = state.node.max_step_count();
        let numbers = self.numbers.entry(grant.job).or_default();
        numbers.raise(grant.next_step);
        let number = numbers.assign(end)?;
        let next = numbers.next();
        state.out.keep(attempt, KEPT_NEXT, encode(&next));
        Some(StepNo(number))
    }

    /// A step of a heterogeneous job comes with a number.
    pub(in crate::agent) fn take_given_number(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        het: &HetStep,
    ) -> Result<(), Refusal> {
        let number = het.step;
        let grant = state.jobs.get(attempt).and_then(|job| job.grant.as_ref());
        let components = grant.map_or(&[][..], |grant| &grant.components);
        let Some(leader) = components.first().map(|leader| leader.job) else {
            let detail = "the job is not heterogeneous: its steps are numbered by its node";
            return Err(Refusal::new(RefusalCode::InvalidValue, detail));
        };
        if number >= state.node.max_step_count() {
            return Err(RefusalCode::StepLimit.into());
        }
        let key = grant.and_then(|grant| grant.het_key.as_ref());
        let proof = key.zip(het.proof.as_ref());
        if !proof.is_some_and(|(key, proof)| is_same_key(&prove_step_number(key, number), proof)) {
            let detail = format!("step {number} was not given out by the job's first component");
            return Err(Refusal::new(RefusalCode::InvalidValue, detail));
        }
        let numbers = self.numbers.entry(attempt.job).or_default();
        if !numbers.take(number, leader == attempt.job) {
            let detail = format!("step {number} was not given out, or has been used");
            return Err(Refusal::new(RefusalCode::InvalidValue, detail));
        }
        let next = numbers.next();
        state.out.keep(attempt, KEPT_NEXT, encode(&next));
        Ok(())
    }
}

impl Steps {
    /// srun asks for a number for a step of a heterogeneous job that this node leads.
    pub(in crate::agent) fn take_step_number(
        &mut self,
        state: &mut AgentState,
        request: CreateRequest,
    ) {
        let attempt = match state.may_create(request.uid, &request.spec) {
            Ok(Some(attempt)) => attempt,
            Ok(None) => {
                return self
                    .node_steps
                    .wait_early(state, Early::Number(Box::new(request)));
            }
            Err(refusal) => return request.refuse(&mut state.out, refusal),
        };
        let Some(grant) = state.jobs.get(attempt).and_then(|j| j.grant.clone()) else {
            return request.refuse(&mut state.out, RefusalCode::JobNotHere.into());
        };
        let Some(StepNo(number)) = self.led.next_step(state, &grant) else {
            return request.refuse(&mut state.out, RefusalCode::StepLimit.into());
        };
        let leads = grant
            .components
            .first()
            .is_some_and(|c| c.job == attempt.job);
        if let Some(numbers) = self.led.numbers.get_mut(&attempt.job).filter(|_| leads) {
            numbers.give_out(number);
        }
        // Without a key there are no other components.
        let key = grant.het_key.as_ref();
        let proof = key.map_or_else(Vec::new, |key| prove_step_number(key, number));
        let proof = proof.into();
        state.out.close_stdio(request.stdio);
        state
            .out
            .finish(request.id, AgentReply::StepNumber { number, proof });
    }
}

impl AgentState {
    /// Whether further steps of a user wait until the controller has acknowledged some that were before.
    pub(in crate::agent) fn must_wait_for_controller(&self, uid: u32) -> bool {
        let is_of = |attempt: JobAttempt| {
            let grant = self.jobs.get(attempt).and_then(|job| job.grant.as_ref());
            grant.is_some_and(|grant| grant.spec.owner.uid == uid)
        };
        self.reports.are_too_many(self.reports.step_bytes(is_of))
    }
}
