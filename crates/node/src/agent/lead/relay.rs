//! What srun and the daemon of a step that has srun's streams say to each other: it goes through the agent.

use super::{Running, StepKey};
use crate::agent::Agent;
use crate::shim::wire::ToShim;
use muster_proto::step::{AgentReply, FromStepd, ToStepd};

impl Running {
    /// Tells srun that the step is over, and how its task has ended where no daemon tells that. What the shim knows of
    /// the end outlives it and the daemon.
    pub(super) fn tell_over(&self) {
        let Some((_, reply)) = &self.client else {
            return;
        };
        let node = self.record.nodes.first().filter(|_| self.direct);
        if let Some((end, task)) = node.and_then(|n| Some((n.end.as_ref()?, *n.tasks.first()?))) {
            let exited = FromStepd::Exited {
                task,
                exit: end.exit,
                oom: false,
            };
            let _ = reply.send(AgentReply::Said(Box::new(exited)));
        }
        let _ = reply.send(AgentReply::Done);
    }
}

impl Agent {
    /// srun has something for the daemon of its step.
    pub(in crate::agent) fn say_to_step(&mut self, conn: u64, message: Box<ToStepd>) {
        let of_conn = |r: &Running| r.client.as_ref().is_some_and(|(c, _)| *c == conn);
        let found = self.steps.running.iter().find(|(_, r)| of_conn(r));
        if let Some((run, step)) = found.map(|(key, r)| (r.run, key.1)) {
            self.shim_order(&ToShim::StepSay { run, step, message });
        }
    }

    /// The daemon has something for srun.
    pub(in crate::agent) fn step_said(&self, key: StepKey, message: Box<FromStepd>) {
        let running = self.steps.running.get(&key);
        if let Some((_, reply)) = running.and_then(|r| r.client.as_ref()) {
            let _ = reply.send(AgentReply::Said(message));
        }
    }
}
