//! Steps of jobs that this node leads: laid out, started on their nodes, and followed to their end. They are reported
//! to the controller in batches, and nothing waits for the controller. The launcher stores the data that must survive
//! the agent.

mod ends;
mod numbers;
mod parts;
mod placed;
mod placing;
mod queue;
mod running;
mod waiting;

use super::actions::Actions;
use super::state::AgentState;
use super::steps::Steps;
use super::transition::{LedStepEvent, LedStepState, next_led_step_state};
use super::{Action, ConnId, RequestId, StdioId, encode};
use crate::kept::{KEPT_NEXT, is_kept_of};
use crate::layout::StepNodes;
use crate::messages::{KeptEntries, KeptEntry};
use crate::record::StepRecord;
use crate::step_numbers::StepNumbers;
use minicbor::bytes::ByteVec;
use muster_model::ids::{JobAttempt, JobId, StepId, StepNo};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::node::Report;
use muster_proto::step::{AgentReply, StepSpec};
use placed::PlacedSteps;
use queue::WaitingSteps;
use std::collections::{BTreeSet, HashMap, HashSet};

/// All steps led from here.
#[derive(Debug, Default)]
pub(super) struct LedSteps {
    waiting: WaitingSteps,
    placed: PlacedSteps,
    numbers: HashMap<JobId, StepNumbers>,
    /// Jobs whose step daemons were read since something changed that may let their steps start.
    read: HashSet<JobAttempt>,
    /// Waiting steps that are yet laid out in this event.
    looks_left: u64,
    /// Names, nodes and tasks examined so far to lay steps out.
    work: u64,
    /// There were more. A timer runs after which they are looked at.
    is_paused: bool,
}

/// srun's request for a step, or for the number of one.
#[derive(Debug)]
pub(super) struct CreateRequest {
    pub(super) id: RequestId,
    pub(super) conn: ConnId,
    pub(super) uid: u32,
    pub(super) spec: StepSpec,
    /// srun's own, if it sends them.
    pub(super) stdio: Option<StdioId>,
    /// For the step's key.
    pub(super) random: ByteVec,
}

/// A step that was asked for.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    conn: ConnId,
    spec: StepSpec,
    stdio: Option<StdioId>,
    random: ByteVec,
    /// The launch of the job that it was asked of.
    attempt: JobAttempt,
    /// The client was informed that it waits.
    is_noticed: bool,
    /// The nodes that it names, if they were looked up and are few.
    named: Option<NamedNodes>,
    /// In a job of this size it can start once nothing else is there.
    fits: Option<JobSize>,
}

/// The properties of a job that decide whether a step can ever start in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JobSize {
    resizes: u32,
    tasks_per_node: u32,
}

/// The nodes that a step names.
#[derive(Debug)]
struct NamedNodes {
    /// The size of the job in which they were looked up.
    resizes: u32,
    nodes: StepNodes,
}

/// The request for a step, which ends with the step, and the connection that it came by.
#[derive(Clone, Copy, Debug)]
struct HeldRequest {
    conn: ConnId,
    request: RequestId,
}

/// A step that was laid out.
#[derive(Debug)]
struct LedStep {
    attempt: JobAttempt,
    state: LedStepState,
    record: StepRecord,
    /// Bytes of the record when it was kept first.
    kept_bytes: usize,
    /// The request of srun, while it is there.
    client: Option<HeldRequest>,
    /// The request whose bytes are held, by this node or others, until all nodes have answered.
    charged: Option<RequestId>,
    /// Answers of its nodes that are still out.
    unanswered: usize,
    /// Positions of nodes that are to be asked whether they have their part.
    unknown_parts: BTreeSet<u32>,
    addresses: Vec<String>,
    /// Addresses at which its step daemons listen for each other.
    mesh_addresses: Vec<Option<String>>,
    error: Option<String>,
    /// The width of the tree over its nodes.
    width: u32,
    /// Its task has srun's streams. srun then receives the task's start and exit from the step daemon.
    direct: bool,
    /// Binding of its tasks in words; unknown after the agent that started it is gone.
    cpu_bind: String,
}

impl LedSteps {
    /// Whether steps of a job are led from here that are not over on all nodes.
    pub(super) fn leads_any(&self, attempt: JobAttempt) -> bool {
        self.placed.of_attempt(attempt).next().is_some()
    }
}

impl CreateRequest {
    /// Nothing is done about it any more.
    pub(super) fn end(self, out: &mut Actions) {
        out.close_stdio(self.stdio);
        out.push(Action::EndRequest(self.id));
    }

    pub(super) fn refuse(self, out: &mut Actions, refusal: Refusal) {
        out.close_stdio(self.stdio);
        out.refuse(self.id, refusal);
    }

    /// Refuses the request because the job is unknown here.
    pub(super) fn refuse_unknown_job(self, out: &mut Actions) {
        let detail = format!("job {} is not led by this node", self.spec.job);
        self.refuse(out, Refusal::new(RefusalCode::JobNotHere, detail));
    }
}

impl Waiting {
    fn refuse(self, out: &mut Actions, refusal: Refusal) {
        out.close_stdio(self.stdio);
        out.refuse(self.id, refusal);
    }
}

impl LedSteps {
    /// Names, nodes and tasks examined so far to lay steps out.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Something else than the end of a step lets waiting ones of a job start, or refuses them.
    pub(super) fn retry_waiting(&mut self, attempt: JobAttempt) {
        self.waiting.retry(attempt);
    }

    /// The controller has acknowledged reports, for which steps may have waited.
    pub(super) fn controller_acknowledged(&mut self) {
        self.waiting.controller_acknowledged();
    }

    /// The step daemons of a job were read just now.
    pub(super) fn set_read(&mut self, attempt: JobAttempt) {
        self.read.insert(attempt);
    }

    /// The job of the step that hangs on a connection.
    pub(super) fn job_of_client(&self, conn: ConnId) -> Option<JobAttempt> {
        Some(self.placed.first_of_client(conn)?.attempt)
    }

    /// Moves a step to its next state; `None` if the transition does not exist.
    fn step(&mut self, key: StepId, event: LedStepEvent) -> Option<LedStepState> {
        let step = self.placed.get_mut(key)?;
        let next = next_led_step_state(step.state, event)?;
        step.state = next;
        Some(next)
    }

    /// All nodes of a step have started it, and its client knows.
    fn is_created(&self, key: StepId) -> bool {
        let state = self.placed.get(key).map(|step| step.state);
        matches!(state, Some(LedStepState::Running | LedStepState::Ending))
    }

    /// The client of a step whose job is forgotten learns that the step is over, or will not be.
    fn answer_client(&self, out: &mut Actions, key: StepId, was_created: bool) {
        let step = self.placed.get(key);
        if let Some(client) = step.and_then(|step| step.client) {
            let reply = match was_created {
                true => AgentReply::Done,
                false => AgentReply::Refused(RefusalCode::AlreadyDone.into()),
            };
            out.reply(client.request, reply);
        }
    }

    /// The client of a step has all that it gets.
    fn release_client(&mut self, out: &mut Actions, key: StepId) {
        if let Some((step, request)) = self.placed.release_client(key) {
            out.push(match step.charged == Some(request) {
                true => Action::LeaveBytes(request),
                false => Action::EndRequest(request),
            });
        }
    }

    /// No node uses the buffer with the step's request any more.
    fn release_bytes(&mut self, out: &mut Actions, key: StepId) {
        let Some(step) = self.placed.get_mut(key) else {
            return;
        };
        if let Some(request) = step.charged.take() {
            out.push(match step.client {
                Some(_) => Action::ReleaseBytes(request),
                None => Action::EndRequest(request),
            });
        }
    }

    /// Parts of steps that occupy resources: the step, and the node's name.
    pub(super) fn held_parts(&self) -> impl Iterator<Item = (JobAttempt, StepNo, &str)> {
        let holding = self.placed.iter().filter(|(_, s)| s.record.holds);
        holding.flat_map(|(StepId { step, .. }, s)| {
            let held = s.record.nodes.iter().filter(|n| n.end.is_none());
            held.map(move |n| (s.attempt, step, n.name.as_str()))
        })
    }

    /// No step waits or goes on, and of no job is known how many steps it has had.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.placed.is_empty() && self.numbers.is_empty()
    }

    /// The job is over: nothing of it will start any more.
    pub(super) fn refuse_waiting(&mut self, out: &mut Actions, attempt: JobAttempt) {
        for waiting in self.waiting.take_job(attempt) {
            waiting.refuse(out, RefusalCode::AlreadyDone.into());
        }
    }

    /// Number of examinations of waiting steps so far.
    #[cfg(test)]
    pub(super) fn looks(&self) -> usize {
        self.waiting.looks
    }

    /// States of all steps, for tests.
    #[cfg(test)]
    pub(super) fn states(&self) -> Vec<(StepId, LedStepState)> {
        let waiting = self.waiting.jobs();
        let waiting = waiting.map(|attempt| {
            let key = StepId::new(attempt.job, StepNo(u32::MAX));
            (key, LedStepState::Waiting)
        });
        let placed = self.placed.iter().map(|(key, s)| (key, s.state));
        waiting.chain(placed).collect()
    }
}

impl Steps {
    /// The job is forgotten.
    pub(super) fn forget_steps(&mut self, state: &mut AgentState, attempt: JobAttempt) {
        let of_attempt = self.led.placed.of_attempt(attempt);
        let of_attempt: Vec<StepId> = of_attempt.map(|(key, _)| key).collect();
        for key in of_attempt {
            let was_created = self.led.is_created(key);
            if self.led.step(key, LedStepEvent::Forgotten) == Some(LedStepState::Over) {
                // Its srun would wait for an answer for ever: the connection stays.
                self.led.release_bytes(&mut state.out, key);
                self.led.answer_client(&mut state.out, key, was_created);
                self.led.release_client(&mut state.out, key);
                self.led.placed.remove(key);
            }
        }
        // A later launch of the job counts its steps on.
        if state.jobs.latest(attempt.job).is_none() {
            self.led.numbers.remove(&attempt.job);
        }
        self.node_steps.forget(attempt);
        self.tree.limit_deliveries(state.now, attempt);
        self.stepds.forget(&mut state.out, attempt);
    }

    /// Takes over the entries that the launcher stored for an earlier agent process.
    pub(super) fn adopt_steps(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        all: KeptEntries,
    ) {
        for KeptEntry { key: kept, bytes } in all {
            if state.has_lost_a_launcher && kept != KEPT_NEXT {
                self.drop_if_over(state, attempt, kept);
            } else if kept == KEPT_NEXT {
                if let Ok(next) = minicbor::decode::<u32>(&bytes) {
                    self.led.numbers.entry(attempt.job).or_default().raise(next);
                }
            } else if !self.node_steps.adopt(attempt, kept, &bytes) {
                self.led.adopt_record(state, attempt, StepNo(kept), &bytes);
            }
        }
        for key in self.led.with_unknown_parts(attempt) {
            self.find_parts(state, key);
        }
    }

    /// The launcher returns an entry that this agent stored with an earlier launcher. If the step is not known any more, it is over and
    /// the command to drop the entry was lost.
    pub(super) fn drop_if_over(&mut self, state: &mut AgentState, attempt: JobAttempt, kept: u32) {
        let is_it = |key: &StepId| key.job == attempt.job && is_kept_of(kept, key.step);
        let mut placed = self.led.placed.of_job(attempt.job);
        let goes_on =
            placed.any(|(key, _)| is_it(&key)) || self.node_steps.keys(attempt.job).any(is_it);
        if !goes_on && !state.reports.has_step_end(attempt, StepNo(kept)) {
            state.out.drop_kept(attempt, kept);
        }
    }

    /// Sends the entries of a job's steps to a launcher, which may be a new one.
    pub(super) fn keep_steps(&mut self, state: &mut AgentState, attempt: JobAttempt) {
        if let Some(next) = self.led.numbers.get(&attempt.job).map(StepNumbers::next) {
            state.out.keep(attempt, KEPT_NEXT, encode(&next));
        }
        let of_attempt = self.led.placed.of_attempt(attempt);
        let records: Vec<(u32, ByteVec)> = of_attempt
            .map(|(key, s)| (key.step.0, encode(&s.record)))
            .collect();
        for (step, record) in records {
            state.out.keep(attempt, step, record);
        }
        self.node_steps.keep_of(&mut state.out, attempt);
    }

    /// The entries to store for a step, for its daemon.
    pub(super) fn kept_entries(&self, attempt: JobAttempt, step: StepNo) -> KeptEntries {
        let key = StepId::new(attempt.job, step);
        let placed = self.led.placed.get(key);
        let record = placed.map(|s| KeptEntry {
            key: step.0,
            bytes: encode(&s.record),
        });
        record
            .into_iter()
            .chain(self.node_steps.kept_of(key))
            .collect()
    }
}

impl LedSteps {
    pub(super) fn adopt_record(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        step: StepNo,
        bytes: &[u8],
    ) {
        let key = StepId::new(attempt.job, step);
        // The stored counter may have been lost with a launcher.
        let numbers = self.numbers.entry(attempt.job).or_default();
        numbers.raise(step.0.saturating_add(1));
        let Ok(record) = minicbor::decode::<StepRecord>(bytes) else {
            log::error!("step {key}: its record cannot be read back");
            return;
        };
        if self.placed.get(key).is_some() {
            return;
        }
        if record.is_over() {
            if !state.reports.has_step_end(attempt, step) {
                state.report_end(key, attempt.attempt, &record);
            }
            return;
        }
        if let Some(job) = state.jobs.get_mut(attempt) {
            job.add_nodes_of_step(record.nodes.iter().map(|node| node.name.as_str()));
        }
        // It may be known already; the controller ignores that.
        let started = Report::StepStarted(Box::new(record.step.clone()));
        state.reports.push(attempt.job, attempt.attempt, started);
        // The agent before may have been lost before it asked all nodes for their parts.
        let unended = (0..).zip(&record.nodes).filter(|(_, n)| n.end.is_none());
        let adopted = LedStep {
            attempt,
            state: LedStepState::Running,
            unknown_parts: unended.map(|(position, _)| position).collect(),
            addresses: vec![String::new(); record.nodes.len()],
            mesh_addresses: Vec::new(),
            kept_bytes: bytes.len(),
            record,
            client: None,
            charged: None,
            unanswered: 0,
            error: None,
            width: 0,
            direct: false,
            cpu_bind: String::new(),
        };
        self.placed.insert(key, adopted);
    }
}
