//! Steps that were asked for and have not begun.

use super::super::job_table::is_owner_key;
use super::super::lead::LedSteps;
use super::super::state::AgentState;
use super::super::steps::Steps;
use super::queue::WaitingPlace;
use super::{CreateRequest, JobSize, LedStepEvent, LedStepState, NamedNodes, Waiting};
use crate::agent::node_steps::Early;
use crate::agent::{Action, AfterRead, ConnId, Timer};
use crate::layout::{self, NoLayout, NodePlacement, StepNodes};
use muster_model::ids::{JobAttempt, StepId};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, AccessRequest};
use muster_proto::node::JobGrant;
use muster_proto::step::{AgentReply, StepSpec};
use std::collections::BTreeSet;

/// The client of a step that waits shorter than this is not informed: the step before it is only being cleaned up.
const QUIET_MS: u64 = 200;

/// Waiting steps of all jobs that are laid out in one event. Steps that name many nodes or have many tasks count as
/// several.
const LOOKS_AT_ONCE: u64 = 16;
/// Names, nodes and tasks that count as another look: they take about half a millisecond.
const WORK_OF_LOOK: u64 = 4096;
/// The delay before further ones are laid out. Meanwhile the agent handles other events.
const PAUSE_MS: u64 = 1;

/// Outcome of a look at the waiting steps of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacingOutcome {
    /// No more of them start now.
    Over,
    /// Step daemons are read first.
    Reading,
    /// There are too many for one event.
    Paused,
}

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
        let Some(grant) = state.jobs.get(attempt).and_then(|j| j.grant.clone()) else {
            return request.refuse(&mut state.out, RefusalCode::JobNotHere.into());
        };
        let owner = grant.spec.owner.uid;
        let most = state.node.max_tasks_per_node();
        let has_room = self.led.waiting.check_room(attempt, owner);
        let (alloc, spec) = (&grant.alloc, &request.spec);
        let mut work = 0;
        let nodes = has_room.and_then(|()| StepNodes::new_counted(alloc, spec, most, &mut work));
        // A step that can never start does not wait.
        let nodes = nodes.and_then(|nodes| {
            work += layout::layout_work(alloc, spec, &nodes, most);
            layout::lay_out_alone(alloc, spec, &nodes, most).map(|_| nodes)
        });
        self.led.work += work;
        let nodes = match nodes {
            Ok(nodes) => nodes,
            Err(refusal) => return request.refuse(&mut state.out, refusal),
        };
        // The parts of a step in a job that is not heterogeneous are steps with numbers of their own.
        if let Some(het) = &request.spec.het
            && !grant.components.is_empty()
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
        let (stdio, unused) = match owner == uid {
            true => (stdio, None),
            false => (None, stdio),
        };
        state.out.close_stdio(unused);
        let waiting = Waiting {
            id,
            conn,
            spec,
            stdio,
            random,
            attempt,
            is_noticed: false,
            // Many names are looked up again when it is the step's turn.
            named: nodes.is_small().then_some(NamedNodes {
                resizes: grant.resizes,
                nodes,
            }),
            fits: Some(JobSize {
                resizes: grant.resizes,
                tasks_per_node: most,
            }),
        };
        let is_due = self.led.is_paused && self.led.waiting.is_ready(attempt);
        self.led.waiting.push(owner, waiting);
        if state.reading.is_none() && !is_due {
            // This work counts against the turn of the requesting user.
            self.led.begin_looks();
            self.try_job(state, attempt);
        }
    }

    /// Starts waiting steps that fit, in order of arrival, of the jobs with changes. A waiting step delays later
    /// steps of its job, except those that share all resources. Work that exceeds the limit of one event is left to a
    /// later one. Returns whether all of it is done; otherwise step daemons are being read.
    pub(in crate::agent) fn try_steps(&mut self, state: &mut AgentState) -> bool {
        if self.led.is_paused {
            return true;
        }
        while let Some(attempt) = self.led.waiting.next_ready() {
            if self.led.looks_left == 0 {
                self.led.pause_looks(state);
                return true;
            }
            match self.try_job(state, attempt) {
                PlacingOutcome::Reading => return false,
                PlacingOutcome::Paused => {
                    self.led.waiting.set_last(attempt);
                    return true;
                }
                PlacingOutcome::Over => self.led.waiting.set_last(attempt),
            }
        }
        self.led.read.clear();
        true
    }

    /// Starts waiting steps of one job.
    pub(super) fn try_job(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
    ) -> PlacingOutcome {
        self.led.waiting.set_looked_at(attempt);
        let mut awaits_controller = false;
        while let Some(place) = self.led.waiting.candidate(attempt) {
            let Some(grant) = state.jobs.get(attempt).and_then(|j| j.grant.clone()) else {
                for waiting in self.led.waiting.take_job(attempt) {
                    waiting.refuse(&mut state.out, RefusalCode::JobNotHere.into());
                }
                break;
            };
            if state.jobs.is_suspended(attempt) {
                break;
            }
            if state.must_wait_for_controller(grant.spec.owner.uid) {
                // The step would be one more that the controller does not know of.
                self.led.waiting.await_controller(attempt);
                awaits_controller = true;
                break;
            }
            if self.led.looks_left == 0 {
                self.led.waiting.look_again(attempt);
                self.led.pause_looks(state);
                return PlacingOutcome::Paused;
            }
            let most = state.node.max_tasks_per_node();
            match self.led.lay_out(&grant, place, most) {
                Ok(placed) => {
                    if let Some(waiting) = self.led.waiting.remove(attempt, place) {
                        self.start_step(state, &grant, waiting, placed);
                    }
                }
                // srun may already have reported the end of a step to its user, who expects its resources to be free.
                Err(NoLayout::Busy)
                    if !self.led.read.contains(&attempt)
                        && self.stepds.read_of(&mut state.out, attempt) =>
                {
                    state.reading = Some(AfterRead::Placing(attempt));
                    self.led.waiting.look_again(attempt);
                    return PlacingOutcome::Reading;
                }
                Err(NoLayout::Busy) => self.led.waiting.block(attempt, place),
                Err(NoLayout::Never(refusal)) => {
                    if let Some(waiting) = self.led.waiting.remove(attempt, place) {
                        waiting.refuse(&mut state.out, refusal);
                    }
                }
            }
        }
        self.led.leave_waiting(state, attempt, awaits_controller);
        self.led.read.remove(&attempt);
        PlacingOutcome::Over
    }

    /// A client is gone: its step, if it has asked for one, waits no more, or is ended.
    pub(in crate::agent) fn step_client_gone(&mut self, state: &mut AgentState, conn: ConnId) {
        let gone = self.led.waiting.take_client(conn);
        let jobs: BTreeSet<JobAttempt> = gone.iter().map(|waiting| waiting.attempt).collect();
        for waiting in gone {
            state.out.close_stdio(waiting.stdio);
            state.out.push(Action::EndRequest(waiting.id));
        }
        self.node_steps.forget_early(state, conn);
        for key in self.led.placed.of_client(conn) {
            self.placed_client_gone(state, key);
        }
        if self.led.is_paused {
            return;
        }
        self.led.begin_looks();
        for attempt in jobs {
            // They may have held up others of that user. That is the user's time, too.
            if state.reading.is_none() && self.led.waiting.is_ready(attempt) {
                self.try_job(state, attempt);
            }
        }
    }

    fn placed_client_gone(&mut self, state: &mut AgentState, key: StepId) {
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
    /// An event begins in which waiting steps may be laid out.
    pub(in crate::agent) fn begin_looks(&mut self) {
        self.looks_left = LOOKS_AT_ONCE;
    }

    /// Leaves other waiting steps to a later event.
    fn pause_looks(&mut self, state: &mut AgentState) {
        if !std::mem::replace(&mut self.is_paused, true) {
            state.out.set_timer(Timer::PlaceSteps, PAUSE_MS);
        }
        self.read.clear();
    }

    /// The deferred event is being handled: a new budget for laying steps out.
    pub(in crate::agent) fn resume_looks(&mut self) {
        self.is_paused = false;
        self.read.clear();
    }

    /// Lays out the step at a place of a job's queue.
    fn lay_out(
        &mut self,
        grant: &JobGrant,
        place: u64,
        tasks_per_node: u32,
    ) -> Result<Vec<NodePlacement>, NoLayout> {
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        let held = self.held(grant);
        let Some(waiting) = self.waiting.get_mut(attempt, place) else {
            return Err(NoLayout::Busy);
        };
        let Waiting {
            spec, named, fits, ..
        } = waiting;
        let known = named.take().filter(|named| named.resizes == grant.resizes);
        let mut work = 0;
        let nodes = match known {
            Some(NamedNodes { nodes, .. }) => Ok(nodes),
            None => StepNodes::new_counted(&grant.alloc, spec, tasks_per_node, &mut work),
        };
        if let Ok(nodes) = &nodes {
            work += layout::layout_work(&grant.alloc, spec, nodes, tasks_per_node);
        }
        self.work += work;
        let looks = 1 + work / WORK_OF_LOOK;
        self.looks_left = self.looks_left.saturating_sub(looks);
        let nodes = nodes.map_err(NoLayout::Never)?;
        let size = JobSize {
            resizes: grant.resizes,
            tasks_per_node,
        };
        let lay_out = match *fits == Some(size) {
            true => layout::lay_out_beside,
            false => layout::lay_out_on,
        };
        let placed = lay_out(&grant.alloc, spec, &nodes, &held, tasks_per_node);
        if !matches!(placed, Err(NoLayout::Never(_))) {
            *fits = Some(size);
        }
        *named = nodes.is_small().then_some(NamedNodes {
            resizes: grant.resizes,
            nodes,
        });
        placed
    }

    /// Queues the arrived steps of a job that do not start now, or refuses those that may not wait. Steps that only
    /// the controller delays keep their place.
    fn leave_waiting(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        awaits_controller: bool,
    ) {
        let mut places = self.waiting.take_fresh(attempt);
        if !awaits_controller {
            places.extend(self.waiting.take_undecided(attempt));
        }
        for place in places {
            let Some(waiting) = self.waiting.get_mut(attempt, place) else {
                continue;
            };
            let conn = waiting.conn;
            let is_immediate = waiting.spec.immediate;
            if is_immediate && awaits_controller {
                self.waiting.put_off(attempt, place);
            }
            if is_immediate && !awaits_controller {
                if let Some(waiting) = self.waiting.remove(attempt, place) {
                    waiting.refuse(&mut state.out, RefusalCode::NotImmediate.into());
                }
            } else if self.waiting.start_timer(conn) {
                state.out.set_timer(Timer::StepQueued(conn), QUIET_MS);
            }
        }
    }

    /// Informs a client that its steps wait, if they still do.
    pub(in crate::agent) fn notify_queued(&mut self, state: &mut AgentState, conn: ConnId) {
        for WaitingPlace { attempt, place } in self.waiting.timer_over(conn) {
            let Some(waiting) = self.waiting.get_mut(attempt, place) else {
                continue;
            };
            if std::mem::replace(&mut waiting.is_noticed, true) {
                continue;
            }
            let grant = state.jobs.get(attempt).and_then(|j| j.grant.as_ref());
            let owner = grant.map_or(0, |g| g.spec.owner.uid);
            let text = if state.jobs.is_suspended(attempt) {
                "Requested operation is presently disabled"
            } else if state.must_wait_for_controller(owner) {
                "The controller has not acknowledged earlier steps"
            } else {
                "Requested nodes are busy"
            };
            state
                .out
                .reply(waiting.id, AgentReply::Queued(text.to_owned()));
        }
    }
}
