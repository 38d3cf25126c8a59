//! End of srun: it waits until the end of the step is recorded, runs the epilog, gives back the allocation that it
//! holds, and ends with the status of the worst task.

use super::Srun;
use super::interface::{Action, AgentId};
use super::running::is_due;
use super::transition::{SrunState, SrunStateEvent};

/// Time that srun waits until the end of a step is recorded.
const STEP_OVER_MS: u64 = 2000;

impl Srun {
    /// Ends where the step is over, or is to be left.
    pub(super) fn end_if_over(&mut self) {
        if self.step.leaves {
            self.cx.advance(SrunStateEvent::GivenUp);
        } else if self.step.nodes.are_over() {
            self.cx.advance(SrunStateEvent::NodesClosed);
        } else {
            return;
        }
        if self.has_terminal {
            self.cx.out.push(Action::RestoreTerminal);
        }
        // The step has ended when every node has reported to the lead. Then the next command of a script finds the
        // CPUs free, and the batch script's end finds the step recorded. A lost node must not delay srun. A daemon
        // with a connection from the start reports by itself that the end is recorded.
        if self.step.leaves || self.step.is_lost || self.step.nodes.is_recorded() {
            while let Some(lead) = self.leads.pop_front() {
                self.cx.out.push(Action::CloseAgent(lead));
            }
        }
        match self.step.leaves {
            true => self.finish(),
            false => self.await_lead(),
        }
    }

    /// The lead whose answer is expected.
    pub(super) fn lead(&self) -> Option<AgentId> {
        let lead = self.leads.front().copied();
        lead.filter(|_| self.cx.state == SrunState::Recording)
    }

    fn await_lead(&mut self) {
        if self.leads.is_empty() {
            self.cx.advance(SrunStateEvent::Recorded);
            self.finish();
        } else {
            self.recorded_by = Some(self.cx.now_ms + STEP_OVER_MS);
        }
    }

    /// A lead has recorded the end, or is gone.
    pub(super) fn lead_answered(&mut self, agent: AgentId) {
        if self.lead() == Some(agent) {
            self.leads.pop_front();
            self.cx.out.push(Action::CloseAgent(agent));
            self.await_lead();
        }
    }

    /// Gives up on a lead that takes too long.
    pub(super) fn leads_time(&mut self) {
        if is_due(&mut self.recorded_by, self.cx.now_ms)
            && let Some(lead) = self.lead()
        {
            self.lead_answered(lead);
        }
    }

    fn finish(&mut self) {
        self.step.flush(&mut self.cx);
        match self.step.rules.epilog.take() {
            Some(epilog) => self.cx.out.push(Action::RunProgram(epilog)),
            None => self.exit(),
        }
    }

    /// Ends with the status that the step gives.
    pub(super) fn exit(&mut self) {
        let (exit, code) = self.step.exit();
        self.cx.advance(SrunStateEvent::Finished);
        if self.has_allocation {
            self.cx.out.push(Action::EndAllocation(exit));
        }
        self.cx.out.push(Action::Exit(code));
    }
}
