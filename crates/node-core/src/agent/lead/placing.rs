//! A step that fits gets its number and its resources, and is started on its nodes.

use super::super::state::AgentState;
use super::super::steps::Steps;
use super::{
    HeldRequest, LedStep, LedStepEvent, LedStepState, LedSteps, Waiting, next_led_step_state,
};
use crate::agent::encode;
use crate::layout::{self, StepUse};
use crate::record::StepRecord;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{JobAttempt, StepId, StepNo};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::node::JobGrant;
use muster_proto::step::{StepLaunch, StepShare};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes of records of one user's running steps: half of the launcher's limit, which also covers steps whose ends the
/// controller has not recorded yet.
const RECORDS_BYTES_MAX: usize = 32 << 20;

impl LedSteps {
    /// Resources that steps of a job occupy, by node of the allocation.
    pub(super) fn held(&self, grant: &JobGrant) -> Vec<StepUse> {
        let mut held = vec![StepUse::default(); grant.alloc.nodes.len()];
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        let of_attempt = self.placed.of_attempt(attempt);
        let of_steps = of_attempt
            .filter(|(_, s)| s.record.holds)
            .flat_map(|(_, s)| s.record.nodes.iter().filter(|n| n.end.is_none()));
        for node in of_steps {
            let position = node.position(&grant.alloc);
            let Some(at) = position.and_then(|at| held.get_mut(at)) else {
                continue;
            };
            at.cpus.union_with(&node.cpus);
            at.memory_mib = at.memory_mib.saturating_add(node.memory_mib);
            at.gres.extend(node.gres.iter().cloned());
        }
        held
    }

    /// Whether `more` bytes of records would exceed the limit of one user on this node.
    fn keeps_too_much(&self, state: &AgentState, uid: u32, more: usize) -> bool {
        let is_of = |attempt: JobAttempt| {
            let grant = state.jobs.get(attempt).and_then(|job| job.grant.as_ref());
            grant.is_some_and(|grant| grant.spec.owner.uid == uid)
        };
        // The owner need be looked at only where there is much.
        let fits = |kept: usize| kept.saturating_add(more) <= RECORDS_BYTES_MAX;
        !fits(self.placed.kept_bytes(|_| true)) && !fits(self.placed.kept_bytes(is_of))
    }
}

fn too_much_kept() -> Refusal {
    let detail = format!(
        "records of your steps on this node would take more than {} MiB: wait until some have ended",
        RECORDS_BYTES_MAX >> 20
    );
    Refusal::new(RefusalCode::StepLimit, detail)
}

/// The step's share of each of its nodes.
fn shares_of(grant: &JobGrant, placed: Vec<layout::NodePlacement>) -> Vec<StepShare> {
    let shares = placed.into_iter().map(|place| StepShare {
        address: grant.addresses.get(place.node).cloned().unwrap_or_default(),
        cpus: place.cpus,
        memory_mib: place.memory_mib,
        gres: place.gres,
    });
    shares.collect()
}

impl Steps {
    pub(super) fn start_step(
        &mut self,
        state: &mut AgentState,
        grant: &Rc<JobGrant>,
        waiting: Waiting,
        mut placed: Vec<layout::NodePlacement>,
    ) {
        let het = waiting.spec.het.as_ref();
        let (given, first) = (het.map(|h| h.step), het.map_or(0, |h| h.first_task));
        let Some(step) = given
            .filter(|_| !grant.components.is_empty())
            .map(StepNo)
            .or_else(|| self.led.next_step(state, grant))
        else {
            return waiting.refuse(&mut state.out, RefusalCode::StepLimit.into());
        };
        // Tasks are numbered over all components.
        placed
            .iter_mut()
            .flat_map(|place| &mut place.tasks)
            .for_each(|task| *task = task.saturating_add(first));
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        let (mut spec, key) = (waiting.spec, waiting.random);
        let cpu_bind = state.node.bind_words(&spec, grant);
        spec.resizes = grant.resizes;
        let width = state.node.tree_width(spec.tree_width);
        let width = u32::try_from(width).unwrap_or(u32::MAX);
        let names: Vec<String> = placed
            .iter()
            .map(|p| grant.alloc.nodes[p.node].name.clone())
            .collect();
        let now = state.now.wall;
        let record = StepRecord::new(step, &spec, key.clone(), (&placed, &names), now);
        let kept = encode(&record);
        let kept_bytes = kept.len();
        if self
            .led
            .keeps_too_much(state, grant.spec.owner.uid, kept_bytes)
        {
            state.out.close_stdio(waiting.stdio);
            return state.out.refuse(waiting.id, too_much_kept());
        }
        state.out.keep(attempt, step.0, kept);
        let placed_event = next_led_step_state(LedStepState::Waiting, LedStepEvent::Placed);
        let led = LedStep {
            attempt,
            state: placed_event.unwrap_or(LedStepState::Starting),
            record,
            kept_bytes,
            client: Some(HeldRequest {
                conn: waiting.conn,
                request: waiting.id,
            }),
            charged: Some(waiting.id),
            unanswered: placed.len(),
            unknown_parts: BTreeSet::new(),
            addresses: vec![String::new(); placed.len()],
            mesh_addresses: vec![None; placed.len()],
            error: None,
            width,
            direct: false,
            cpu_bind,
        };
        self.led.placed.insert(StepId::new(grant.job, step), led);
        let launch = StepLaunch {
            key: grant.key.clone(),
            spec,
            step,
            step_key: key,
            tasks: placed.iter().map(|p| p.tasks.clone()).collect(),
            names,
            lead: grant.addresses.first().cloned().unwrap_or_default(),
            width,
            // The fields that differ by node.
            position: 0,
            cpus: CpuSet::default(),
            memory_mib: 0,
            gres: Vec::new(),
            above: None,
        };
        let shares = shares_of(grant, placed);
        self.start_everywhere(state, launch, &shares, waiting.stdio);
    }
}
