//! The ends of a step's nodes in one, and who tells of it.

use super::{StepKey, Steps};
use crate::agent::Agent;
use crate::now;
use muster_model::ids::{Attempt, StepNo};
use muster_model::job::{ExitStatus, JobState, StepEnd};
use muster_node_core::messages::JobAttempt;
use muster_node_core::record::Record;
use muster_proto::node::Report;
use muster_proto::step::AgentReply;

impl Steps {
    /// The daemon of a step has reported its end here, and sends it to srun as well: where it does so from the start, srun waits
    /// for nothing else.
    pub(in crate::agent) fn mark_exit_delivered_directly(&mut self, key: StepKey) {
        if let Some(running) = self.running.get_mut(&key)
            && running.direct
            && running.exit_sent_by_daemon
        {
            running.client = None;
        }
    }
}

impl Agent {
    /// Whether the daemon of a step that had no other has reported its end, and that is all there is to know of the step's. Then
    /// the shim has all that makes the end, and keeps it until the controller knows: it gets nothing before that.
    pub(in crate::agent) fn only_node_ended(&mut self, key: StepKey, end: &StepEnd) -> bool {
        let Some(running) = self.steps.running.get_mut(&key) else {
            return false;
        };
        let started = running.unanswered == 0 && running.error.is_none();
        let [node] = &mut running.record.nodes[..] else {
            return false;
        };
        if !started || node.end.is_some() || end.state == JobState::OutOfMemory {
            return false;
        }
        node.end = Some(end.clone());
        self.finish_step_if_over(key);
        true
    }

    /// Parts of a step have ended.
    pub(in crate::agent) fn nodes_ended(&mut self, key: StepKey, ends: Vec<(u32, StepEnd)>) {
        let Some(running) = self.steps.running.get_mut(&key) else {
            return;
        };
        // Where one node's part had too much memory, the whole step is ended.
        let mut greedy = false;
        for (position, end) in ends {
            greedy |= end.state == JobState::OutOfMemory;
            if let Some(node) = running.record.nodes.get_mut(position as usize) {
                node.end.get_or_insert(end);
            }
        }
        if greedy {
            self.end_step_everywhere(key);
        }
        self.steps.dirty = true;
        let Some(running) = self.steps.running.get(&key) else {
            return;
        };
        let (run, record) = (running.run, running.record.clone());
        self.keep(run, key.1.0, &record);
        self.finish_step_if_over(key);
    }

    pub(super) fn finish_step_if_over(&mut self, key: StepKey) {
        let Some(running) = self.steps.running.get(&key) else {
            return;
        };
        if running.unanswered > 0 || !running.record.is_over() {
            return;
        }
        let Some(running) = self.steps.running.remove(&key) else {
            return;
        };
        self.steps.dirty = true;
        if running.error.is_some() {
            // It never was: the controller does not know of it.
            return self.drop_kept(running.run, key.1.0);
        }
        self.report_end(key, running.run.attempt, &running.record);
        if let Some((_, reply)) = &running.client {
            let _ = reply.send(AgentReply::Done);
        }
    }

    pub(super) fn report_end(&mut self, key: StepKey, attempt: Attempt, record: &Record) {
        let end = Box::new(total(record));
        let report = Report::StepEnded { step: key.1, end };
        self.reports.push(key.0, attempt, report);
    }

    /// The controller knows of the step's end: nothing need be kept of it.
    pub(in crate::agent) fn step_acknowledged(&mut self, run: JobAttempt, step: StepNo) {
        self.drop_kept(run, step.0);
        let key = (run.job, step);
        let part = self.node_steps.part(key);
        if part.is_some_and(|part| part.run == run) {
            self.end_delivered(key);
        }
    }
}

/// All nodes' ends in one: the worst status, the sum of the usage.
fn total(record: &Record) -> StepEnd {
    let mut ends = record.nodes.iter().filter_map(|n| n.end.as_ref());
    let Some(mut out) = ends.next().cloned() else {
        return StepEnd::never_ran(now());
    };
    let weight = |exit: ExitStatus| {
        if exit.signal == 0 {
            exit.code
        } else {
            128 + exit.signal
        }
    };
    for end in ends {
        out.end_time = out.end_time.max(end.end_time);
        if weight(end.exit) > weight(out.exit) {
            out.exit = end.exit;
        }
        if rank(end.state) > rank(out.state) {
            out.state = end.state;
        }
        out.usage.add(&end.usage);
    }
    out
}

fn rank(state: JobState) -> u32 {
    match state {
        JobState::Completed => 0,
        JobState::Failed => 1,
        JobState::Cancelled => 2,
        JobState::Timeout => 3,
        JobState::OutOfMemory => 4,
        _ => 5,
    }
}
