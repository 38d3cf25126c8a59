//! Steps that were asked for and have not begun.

use super::super::job_table::is_owner_key;
use super::super::lead::LedSteps;
use super::super::state::AgentState;
use super::super::steps::Steps;
use super::{CreateRequest, LedStepEvent, LedStepState, Waiting};
use crate::agent::node_steps::Early;
use crate::agent::{Action, AfterRead, ConnId, Timer};
use crate::layout::{self, NoLayout};
use muster_model::ids::JobAttempt;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, AccessRequest};
use muster_proto::step::{AgentReply, StepSpec};
use std::collections::HashSet;

/// The client of a step that waits shorter than this is not informed: the step before it is only being cleaned up.
const QUIET_MS: u64 = 200;

impl Steps {
    /// srun asks for a step.
    pub(in crate::agent) fn create_step(&mut self, state: &mut AgentState, request: CreateRequest) {
        let checked = layout::check_request(&request.spec);
        let attempt = match checked.and_then(|()| state.may_create(request.uid, &request.spec)) {
            Ok(Some(attempt)) => attempt,
            Ok(None) => {
                return self
                    .node_steps
                    .wait_early(state, Early::Create(Box::new(request)));
            }
            Err(refusal) => return request.refuse(&mut state.out, refusal),
        };
        if let Some(het) = &request.spec.het
            && let Err(refusal) = self.led.take_given_number(state, attempt, het)
        {
            return request.refuse(&mut state.out, refusal);
        }
        let CreateRequest {
            id,
            conn,
            uid,
            spec,
            stdio,
            random,
        } = request;
        // A task may do more with an open file than write to it; what somebody else has is not for the job's owner.
        let grant = state.jobs.get(attempt).and_then(|j| j.grant.as_deref());
        let is_owner = grant.is_some_and(|g| g.spec.owner.uid == uid);
        let (stdio, unused) = match is_owner {
            true => (stdio, None),
            false => (None, stdio),
        };
        state.out.close_stdio(unused);
        self.led.clients.insert(conn);
        self.led.waiting.push_back(Waiting {
            id,
            conn,
            spec,
            stdio,
            random,
            attempt,
            has_timer: false,
        });
        self.led.dirty = true;
    }

    /// Starts waiting steps that fit, in the order in which they came. A step that waits holds up later ones of its
    /// job, but for those that share everything. Whether all were looked at: otherwise step daemons are being read.
    pub(in crate::agent) fn try_steps(&mut self, state: &mut AgentState) -> bool {
        while std::mem::take(&mut self.led.dirty) {
            if !self.try_steps_once(state) {
                self.led.dirty = true;
                return false;
            }
        }
        self.led.read.clear();
        true
    }

    pub(super) fn try_steps_once(&mut self, state: &mut AgentState) -> bool {
        let mut blocked: HashSet<JobAttempt> = HashSet::new();
        let mut rest = std::mem::take(&mut self.led.waiting);
        while let Some(waiting) = rest.pop_front() {
            let attempt = waiting.attempt;
            if blocked.contains(&attempt) && !waiting.spec.overlap {
                self.led.wait_on(state, waiting);
                continue;
            }
            let Some(grant) = state.jobs.get(attempt).and_then(|j| j.grant.clone()) else {
                waiting.refuse(&mut state.out, RefusalCode::JobNotHere.into());
                continue;
            };
            if state.jobs.is_suspended(attempt) {
                match waiting.spec.immediate {
                    true => waiting.refuse(&mut state.out, RefusalCode::NotImmediate.into()),
                    false => self.led.wait_on(state, waiting),
                }
                continue;
            }
            if state.must_wait_for_controller(grant.spec.owner.uid) {
                // It would be one more that the controller does not know of.
                blocked.insert(attempt);
                self.led.wait_on(state, waiting);
                continue;
            }
            let most = state.node.max_tasks_per_node();
            match layout::lay_out(&grant.alloc, &waiting.spec, &self.led.held(&grant), most) {
                Ok(placed) => self.start_step(state, &grant, waiting, placed),
                // The client may know of an end by srun, and expects to find what that step had.
                Err(NoLayout::Busy)
                    if !self.led.read.contains(&attempt)
                        && self.stepds.read_of(&mut state.out, attempt) =>
                {
                    state.reading = Some(AfterRead::Placing(attempt));
                    self.led.waiting.push_back(waiting);
                    self.led.waiting.extend(rest);
                    return false;
                }
                Err(NoLayout::Busy) if waiting.spec.immediate => {
                    waiting.refuse(&mut state.out, RefusalCode::NotImmediate.into());
                }
                Err(NoLayout::Busy) => {
                    blocked.insert(attempt);
                    self.led.wait_on(state, waiting);
                }
                Err(NoLayout::Never(refusal)) => waiting.refuse(&mut state.out, refusal),
            }
        }
        true
    }

    /// A client is gone: its step, if it has asked for one, waits no more, or is ended.
    pub(in crate::agent) fn step_client_gone(&mut self, state: &mut AgentState, conn: ConnId) {
        self.node_steps.forget_early(state, conn);
        let key = self.led.of_client(conn).map(|(key, _)| key);
        if !self.led.clients.remove(&conn) {
            return;
        }
        for waiting in std::mem::take(&mut self.led.waiting) {
            if waiting.conn == conn {
                state.out.close_stdio(waiting.stdio);
                state.out.push(Action::EndRequest(waiting.id));
            } else {
                self.led.waiting.push_back(waiting);
            }
        }
        self.led.dirty = true;
        let Some(key) = key else {
            return;
        };
        self.led.release_client(&mut state.out, key);
        match self.led.step(key, LedStepEvent::ClientGone) {
            Some(LedStepState::Ending | LedStepState::Failed) => {
                self.end_step_everywhere(state, key)
            }
            // While answers are out, their arrival ends it.
            Some(
                LedStepState::Waiting
                | LedStepState::Starting
                | LedStepState::Abandoned
                | LedStepState::Running
                | LedStepState::Over,
            )
            | None => {}
        }
    }
}

impl AgentState {
    /// The launch that the step is of; none when the bearer of a key knows of one that is yet to come, or the client
    /// of a smaller size of the job.
    pub(in crate::agent) fn may_create(
        &self,
        uid: u32,
        spec: &StepSpec,
    ) -> Result<Option<JobAttempt>, Refusal> {
        let by_key = spec.key.as_ref();
        let unknown_key =
            by_key.is_some_and(|key| self.jobs.with_owner_key(spec.job, key).is_none());
        if unknown_key
            && self
                .jobs
                .latest(spec.job)
                .is_none_or(|(_, j)| j.state.is_over())
        {
            return Ok(None);
        }
        let job = by_key
            .and_then(|key| self.jobs.with_owner_key(spec.job, key))
            .or_else(|| self.jobs.latest(spec.job))
            .filter(|(_, j)| j.leads());
        let Some((attempt, job, grant)) =
            job.and_then(|(attempt, j)| Some((attempt, j, j.grant.as_ref()?)))
        else {
            let detail = format!("job {} is not led by this node", spec.job);
            return Err(Refusal::new(RefusalCode::JobNotHere, detail));
        };
        let has_key = by_key.is_some_and(|key| is_owner_key(grant, key));
        let owner = grant.spec.owner.uid;
        if !rights::may_on_node(AccessRequest::CreateStep, uid, owner, has_key) {
            return Err(RefusalCode::AccessDenied.into());
        }
        if job.state.is_over() {
            return Err(RefusalCode::AlreadyDone.into());
        }
        if grant.resizes < spec.resizes {
            // The agent does not know of the job's size yet.
            return Ok(None);
        }
        Ok(Some(attempt))
    }
}

impl LedSteps {
    /// Leaves a step in the queue.
    pub(super) fn wait_on(&mut self, state: &mut AgentState, mut waiting: Waiting) {
        if !std::mem::replace(&mut waiting.has_timer, true) {
            state
                .out
                .set_timer(Timer::StepQueued(waiting.conn), QUIET_MS);
        }
        self.waiting.push_back(waiting);
    }

    /// Informs a client that its step waits, if it still does.
    pub(in crate::agent) fn notify_queued(&mut self, state: &mut AgentState, conn: ConnId) {
        let mut waiting = self.waiting.iter();
        let Some((id, attempt)) = waiting.find(|w| w.conn == conn).map(|w| (w.id, w.attempt))
        else {
            return;
        };
        let grant = state.jobs.get(attempt).and_then(|j| j.grant.as_ref());
        let owner = grant.map_or(0, |g| g.spec.owner.uid);
        let text = if state.jobs.is_suspended(attempt) {
            "Requested operation is presently disabled"
        } else if state.must_wait_for_controller(owner) {
            "The controller has not acknowledged earlier steps"
        } else {
            "Requested nodes are busy"
        };
        state.out.reply(id, AgentReply::Queued(text.to_owned()));
    }
}
