//! Merges the ends of a step on its nodes into one, and reports it.

use super::super::lead::LedSteps;
use super::super::state::AgentState;
use super::super::steps::Steps;
use super::{LedStepEvent, LedStepState};
use crate::agent::{Action, encode};
use crate::record::StepRecord;
use muster_model::ids::{Attempt, AttemptStep, JobAttempt, StepId, StepNo};
use muster_model::job::{JobState, StepEnd};
use muster_model::time::Timestamp;
use muster_proto::node::Report;
use muster_proto::step::AgentReply;
use muster_proto::step::NodeEnd;

impl LedSteps {
    /// The daemon of a step has reported its end here, and sends it to srun as well: srun waits for nothing else where the task
    /// has its streams.
    pub(in crate::agent) fn exit_delivered_directly(
        &mut self,
        state: &mut AgentState,
        key: StepId,
    ) {
        let step = self.placed.get(key);
        if step.is_some_and(|s| s.direct) {
            self.release_client(&mut state.out, key);
        }
    }

    /// Whether the daemon of a step that had no other has reported its end, and that is all there is to know of the step's. Then
    /// the launcher has all that makes the end, and keeps it until the controller knows: it gets nothing before that.
    pub(in crate::agent) fn only_node_ended(
        &mut self,
        state: &mut AgentState,
        key: StepId,
        end: &StepEnd,
    ) -> bool {
        let Some(step) = self.placed.get_mut(key) else {
            return false;
        };
        let started = match step.state {
            LedStepState::Running | LedStepState::Ending => true,
            LedStepState::Waiting
            | LedStepState::Starting
            | LedStepState::Abandoned
            | LedStepState::Failed
            | LedStepState::Over => false,
        };
        let [node] = &mut step.record.nodes[..] else {
            return false;
        };
        if !started || node.end.is_some() || end.state == JobState::OutOfMemory {
            return false;
        }
        node.end = Some(end.clone());
        self.finish_step_if_over(state, key);
        true
    }

    /// A user has ended a step that is led here.
    pub(in crate::agent) fn cancelled(&mut self, attempt: JobAttempt, step: StepNo, uid: u32) {
        let led = self.placed.get_mut(StepId::new(attempt.job, step));
        if let Some(led) = led.filter(|led| led.attempt == attempt) {
            led.record.cancelled_by = Some(uid);
        }
    }

    pub(in crate::agent) fn finish_step_if_over(&mut self, state: &mut AgentState, key: StepId) {
        let step = self.placed.get(key);
        if !step.is_some_and(|s| s.record.is_over())
            || self.step(key, LedStepEvent::AllEnded) != Some(LedStepState::Over)
        {
            return;
        }
        let Some(step) = self.placed.remove(key) else {
            return;
        };
        self.waiting.retry(step.attempt);
        if step.error.is_some() {
            // The step was never reported, so the controller does not know it.
            state.out.drop_kept(step.attempt, key.step.0);
        } else {
            state.report_end(key, step.attempt.attempt, &step.record);
            if let Some(client) = step.client {
                state.out.reply(client.request, AgentReply::Done);
            }
        }
        if let Some(client) = step.client {
            state.out.push(Action::EndRequest(client.request));
        }
        // With its last node the controller ends the steps whose ends it has not got, and can only guess how they ended.
        if !self.leads_any(step.attempt) {
            state.jobs.steps_over(&mut state.reports, step.attempt);
        }
    }
}

impl Steps {
    /// Parts of a step have ended.
    pub(in crate::agent) fn nodes_ended(
        &mut self,
        state: &mut AgentState,
        key: StepId,
        ends: Vec<NodeEnd>,
    ) {
        let Some(step) = self.led.placed.get_mut(key) else {
            return;
        };
        // Where one node's part had too much memory, the whole step is ended.
        let mut over_memory = false;
        for NodeEnd { position, end } in ends {
            over_memory |= end.state == JobState::OutOfMemory;
            if let Some(node) = step.record.nodes.get_mut(position as usize) {
                node.end.get_or_insert(end);
            }
        }
        let (attempt, record) = (step.attempt, encode(&step.record));
        if over_memory {
            self.led.step(key, LedStepEvent::OutOfMemory);
            self.end_step_everywhere(state, key);
        }
        self.led.waiting.retry(attempt);
        state.out.keep(attempt, key.step.0, record);
        self.led.finish_step_if_over(state, key);
    }

    /// The controller has recorded the step's end, so no entries of the step are needed.
    pub(in crate::agent) fn step_acknowledged(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        step: StepNo,
    ) {
        state.out.drop_kept(attempt, step.0);
        self.node_steps
            .end_delivered(state, AttemptStep::new(attempt, step));
    }
}

impl AgentState {
    pub(in crate::agent) fn report_end(
        &mut self,
        key: StepId,
        attempt: Attempt,
        record: &StepRecord,
    ) {
        let end = Box::new(total(record, self.now.wall));
        let report = Report::StepEnded {
            step: key.step,
            end,
        };
        self.reports.push(key.job, attempt, report);
    }
}

/// All nodes' ends in one: the worst status, the sum of the usage.
fn total(record: &StepRecord, now: Timestamp) -> StepEnd {
    let mut ends = record.nodes.iter().filter_map(|n| n.end.as_ref());
    let Some(mut out) = ends.next().cloned() else {
        return StepEnd::never_ran(now);
    };
    for end in ends {
        out.end_time = out.end_time.max(end.end_time);
        if end.exit.shell_code() > out.exit.shell_code() {
            out.exit = end.exit;
        }
        if rank(end.state) > rank(out.state) {
            out.state = end.state;
        }
        out.usage.add(&end.usage);
    }
    if out.state == JobState::Cancelled {
        out.cancelled_by = out.cancelled_by.or(record.cancelled_by);
    }
    out
}

/// The greater, the worse: a step has the state of its worst node.
fn rank(state: JobState) -> u32 {
    match state {
        JobState::Completed => 0,
        JobState::Failed => 1,
        JobState::Cancelled => 2,
        JobState::Timeout => 3,
        JobState::OutOfMemory => 4,
        JobState::Pending
        | JobState::Running
        | JobState::Suspended
        | JobState::NodeFail
        | JobState::Preempted
        | JobState::BootFail
        | JobState::Deadline => 5,
    }
}
