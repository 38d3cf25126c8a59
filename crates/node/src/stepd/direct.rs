//! A step of one task that has srun's own streams: what srun receives of it.

use super::Stepd;
use super::client::Client;
use crate::descriptors::SrunStdio;
use muster_proto::step::{FromStepd, StepCreated, StepNode};
use std::os::unix::net::UnixStream;

impl Stepd<'_> {
    /// Starts the only task with srun's streams.
    pub(super) fn start_direct(&mut self, srun: SrunStdio) {
        self.direct = Some([srun.stdin, srun.stdout, srun.stderr]);
        // Where it cannot be used, srun reads its end.
        self.client = Client::new(UnixStream::from(srun.line)).ok();
        if self.order.launch.spec.has_stepd_channel {
            self.tell_created();
        }
        self.start();
    }

    /// What the agent would tell srun of a step of one task.
    fn tell_created(&mut self) {
        let launch = &self.order.launch;
        let at = launch.position as usize;
        let name = launch.names.get(at).cloned().unwrap_or_default();
        let created = StepCreated {
            step: launch.step,
            hostlist: name.clone(),
            nodes: vec![StepNode {
                name,
                // It is connected.
                address: String::new(),
                tasks: launch.tasks.get(at).cloned().unwrap_or_default(),
            }],
            key: launch.step_key.clone(),
            wires: Vec::new(),
            width: launch.width,
            direct: true,
        };
        self.send(&FromStepd::Created(Box::new(created)));
    }
}
