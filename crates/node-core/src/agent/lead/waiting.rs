//! Steps that were asked for and have not begun.

use super::super::job_table::is_owner_key;
use super::{Agent, CreateRequest, LedStepEvent, LedStepState, Waiting};
use crate::agent::node_steps::Early;
use crate::agent::{AfterRead, AgentAction, ConnId, Timer};
use crate::layout::{self, NoLayout};
use crate::messages::JobAttempt;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, Request};
use muster_proto::step::{AgentReply, StepSpec};
use std::collections::HashSet;

/// The client of a step that waits shorter than this is not informed: the step before it is only being cleaned up.
const QUIET_MS: u64 = 200;

impl Agent {
    /// srun asks for a step.
    pub(in crate::agent) fn create_step(&mut self, request: CreateRequest) {
        let checked = layout::check_request(&request.spec);
        let run = match checked.and_then(|()| self.may_create(request.uid, &request.spec)) {
            Ok(Some(run)) => run,
            Ok(None) => return self.wait_early(Early::Create(Box::new(request))),
            Err(refusal) => return request.refuse(&mut self.out, refusal),
        };
        if let Some(het) = &request.spec.het
            && let Err(refusal) = self.take_given_number(run, het)
        {
            return request.refuse(&mut self.out, refusal);
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
        let grant = self.jobs.get(run).and_then(|j| j.grant.as_deref());
        let is_owner = grant.is_some_and(|g| g.spec.owner.uid == uid);
        let (stdio, unused) = match is_owner {
            true => (stdio, None),
            false => (None, stdio),
        };
        self.out.close_stdio(unused);
        self.steps.waiting.push_back(Waiting {
            id,
            conn,
            spec,
            stdio,
            random,
            run,
            has_timer: false,
        });
        self.steps.dirty = true;
    }

    /// The launch that the step is of; none when the bearer of a key knows of one that is yet to come, or the client
    /// of a smaller size of the job.
    pub(super) fn may_create(
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
        let Some((run, job, grant)) = job.and_then(|(run, j)| Some((run, j, j.grant.as_ref()?)))
        else {
            let detail = format!("job {} is not led by this node", spec.job);
            return Err(Refusal::new(RefusalCode::JobNotHere, detail));
        };
        let has_key = by_key.is_some_and(|key| is_owner_key(grant, key));
        let owner = grant.spec.owner.uid;
        if !rights::may_on_node(Request::CreateStep, uid, owner, has_key) {
            return Err(RefusalCode::AccessDenied.into());
        }
        if job.state.is_over() {
            return Err(RefusalCode::AlreadyDone.into());
        }
        if grant.resizes < spec.resizes {
            // The agent does not know of the job's size yet.
            return Ok(None);
        }
        Ok(Some(run))
    }

    /// Starts waiting steps that fit, in the order in which they came. A step that waits holds up later ones of its
    /// job, but for those that share everything. Whether all were looked at: otherwise step daemons are being read.
    pub(in crate::agent) fn try_steps(&mut self) -> bool {
        while std::mem::take(&mut self.steps.dirty) {
            if !self.try_steps_once() {
                self.steps.dirty = true;
                return false;
            }
        }
        self.steps.read.clear();
        true
    }

    fn try_steps_once(&mut self) -> bool {
        let mut blocked: HashSet<JobAttempt> = HashSet::new();
        let mut rest = std::mem::take(&mut self.steps.waiting);
        while let Some(waiting) = rest.pop_front() {
            let run = waiting.run;
            if blocked.contains(&run) && !waiting.spec.overlap {
                self.wait_on(waiting);
                continue;
            }
            let Some(grant) = self.jobs.get(run).and_then(|j| j.grant.clone()) else {
                waiting.refuse(&mut self.out, RefusalCode::JobNotHere.into());
                continue;
            };
            if self.jobs.is_suspended(run) {
                match waiting.spec.immediate {
                    true => waiting.refuse(&mut self.out, RefusalCode::NotImmediate.into()),
                    false => self.wait_on(waiting),
                }
                continue;
            }
            if self.must_wait_for_controller(grant.spec.owner.uid) {
                // It would be one more that the controller does not know of.
                blocked.insert(run);
                self.wait_on(waiting);
                continue;
            }
            let most = self.node.max_tasks_per_node();
            match layout::lay_out(&grant.alloc, &waiting.spec, &self.steps.held(&grant), most) {
                Ok(placed) => self.start_step(&grant, waiting, placed),
                // The client may know of an end by srun, and expects to find what that step had.
                Err(NoLayout::Busy)
                    if !self.steps.read.contains(&run)
                        && self.stepds.read_of(&mut self.out, run) =>
                {
                    self.reading = Some(AfterRead::Placing(run));
                    self.steps.waiting.push_back(waiting);
                    self.steps.waiting.extend(rest);
                    return false;
                }
                Err(NoLayout::Busy) if waiting.spec.immediate => {
                    waiting.refuse(&mut self.out, RefusalCode::NotImmediate.into());
                }
                Err(NoLayout::Busy) => {
                    blocked.insert(run);
                    self.wait_on(waiting);
                }
                Err(NoLayout::Never(refusal)) => waiting.refuse(&mut self.out, refusal),
            }
        }
        true
    }

    /// Leaves a step in the queue.
    fn wait_on(&mut self, mut waiting: Waiting) {
        if !std::mem::replace(&mut waiting.has_timer, true) {
            self.out
                .set_timer(Timer::StepQueued(waiting.conn), QUIET_MS);
        }
        self.steps.waiting.push_back(waiting);
    }

    /// Informs a client that its step waits, if it still does.
    pub(in crate::agent) fn notify_queued(&mut self, conn: ConnId) {
        let mut waiting = self.steps.waiting.iter();
        let Some((id, run)) = waiting.find(|w| w.conn == conn).map(|w| (w.id, w.run)) else {
            return;
        };
        let grant = self.jobs.get(run).and_then(|j| j.grant.as_ref());
        let owner = grant.map_or(0, |g| g.spec.owner.uid);
        let text = if self.jobs.is_suspended(run) {
            "Requested operation is presently disabled"
        } else if self.must_wait_for_controller(owner) {
            "The controller has not acknowledged earlier steps"
        } else {
            "Requested nodes are busy"
        };
        self.out.reply(id, AgentReply::Queued(text.to_owned()));
    }

    /// srun is gone: its step waits no more, or is ended.
    pub(in crate::agent) fn step_client_gone(&mut self, conn: ConnId) {
        for waiting in std::mem::take(&mut self.steps.waiting) {
            if waiting.conn == conn {
                self.out.close_stdio(waiting.stdio);
                self.out.push(AgentAction::EndRequest(waiting.id));
            } else {
                self.steps.waiting.push_back(waiting);
            }
        }
        self.forget_early(conn);
        self.steps.dirty = true;
        let Some(key) = self.steps.of_client(conn).map(|(key, _)| key) else {
            return;
        };
        self.steps.release_client(&mut self.out, key);
        match self.steps.step(key, LedStepEvent::ClientGone) {
            Some(LedStepState::Ending | LedStepState::Failed) => self.end_step_everywhere(key),
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
