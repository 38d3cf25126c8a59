//! The connection of srun, or of the node above, and its requests.

use super::actions::Actions;
use super::interface::{Action, ClientId, HostCommand};
use super::phase::StepPhase;
use super::step::Step;
use muster_proto::step::{
    Attach, FromStepd, StdinTask, StepCreated, StepLaunch, StepNode, ToStepd,
};
use muster_proto::version::{Greeting, Versions};

impl Step {
    /// A connection has sent its first message: it is srun's, or the node's above, if that is the key.
    pub(super) fn greeted(&mut self, client: ClientId, message: ToStepd, out: &mut Actions) {
        let is_free = !self.up.is_there() && self.phase == StepPhase::Waiting;
        let key = &self.order.launch.step_key;
        match message {
            ToStepd::Hello(shown, greeting) if is_free && shown == *key => {
                if speaks(client, greeting.as_ref(), out) {
                    self.up.take(client, out);
                    self.start(out);
                }
            }
            ToStepd::Attach(attach)
                if attach.key == *key && (is_free || self.up.tree.is_some()) =>
            {
                if speaks(client, attach.greeting.as_ref(), out) {
                    self.attach(client, &attach, out);
                }
            }
            ToStepd::AttachReader(shown, greeting) if shown == *key => {
                if speaks(client, greeting.as_ref(), out) {
                    self.up.take_reader(client, out);
                }
            }
            // Not the key, or srun is here already.
            ToStepd::Hello(..)
            | ToStepd::Attach(_)
            | ToStepd::Stdin { .. }
            | ToStepd::Signal(_)
            | ToStepd::SetWindowSize(..)
            | ToStepd::SetMeshAddresses(_)
            | ToStepd::FailStep(_)
            | ToStepd::ForwardDown(..)
            | ToStepd::Resend(_)
            | ToStepd::AcknowledgeFrom(..)
            | ToStepd::SrunDisconnected
            | ToStepd::SkipNumber
            | ToStepd::AttachReader(..)
            | ToStepd::Adopt(_) => out.push(Action::CloseClient(client)),
        }
    }

    /// srun has handed its streams over: the only task starts with them.
    pub(super) fn start_direct(&mut self, client: ClientId, out: &mut Actions) {
        self.up.set_direct(client);
        let created = created(&self.order.launch);
        self.up.send(FromStepd::Created(Box::new(created)), out);
        self.start(out);
    }

    /// srun, or the node above, is there: at first, or in the place of one that is lost.
    fn attach(&mut self, client: ClientId, attach: &Attach, out: &mut Actions) {
        self.up.take(client, out);
        if let Some(tree) = &mut self.up.tree {
            tree.set_by_srun(attach.srun);
            return self.up.say_again(&attach.seen, out);
        }
        let below = self.up.join(&self.order.launch, attach);
        match below.is_empty() {
            true => self.start(out),
            false => out.push(Action::ConnectBelow(below)),
        }
    }

    pub(super) fn below_connected(&mut self, lost: Vec<u32>, out: &mut Actions) {
        if let Some(tree) = &mut self.up.tree {
            lost.iter().for_each(|position| tree.close(*position));
        }
        self.lost = lost;
        self.start(out);
    }

    pub(super) fn on_request(&mut self, message: ToStepd, out: &mut Actions) {
        match message {
            ToStepd::Hello(..)
            | ToStepd::Attach(_)
            | ToStepd::AttachReader(..)
            | ToStepd::Adopt(_)
            | ToStepd::SkipNumber => {}
            ToStepd::Stdin { task, bytes } => out.push(Action::Feed(task, bytes)),
            ToStepd::SetMeshAddresses(peers) => self.send_host(HostCommand::Peers(peers), out),
            ToStepd::FailStep(exit) => self.fail(exit, out),
            ToStepd::Signal(signal) => {
                let signal = i32::try_from(signal).unwrap_or(0);
                out.push(Action::SignalAsked(signal));
            }
            ToStepd::SetWindowSize(rows, columns) => out.push(Action::SetWindow(rows, columns)),
            ToStepd::ForwardDown(number, message) => {
                let launch = &self.order.launch;
                if let Some(message) = self.up.pass_down(number, *message, launch, out) {
                    self.on_request(message, out);
                }
                self.up.acknowledge(out);
            }
            ToStepd::Resend(seen) => self.up.say_again(&seen, out),
            ToStepd::AcknowledgeFrom(position, count) => self.up.seen(position, count, out),
            ToStepd::SrunDisconnected => self.srun_left(out),
        }
    }

    /// The connection upwards is gone: where srun is, so is the reason for the tasks to be.
    pub(super) fn client_lost(&mut self, out: &mut Actions) {
        if self.up.lose(out) && !self.phase.has_no_tasks() {
            self.begin_end(out);
        }
    }

    /// The node above reports that srun has disconnected.
    pub(super) fn srun_left(&mut self, out: &mut Actions) {
        self.up.leave(out);
        self.begin_end(out);
    }
}

/// A reader's input goes where srun's would, and does not end it. A reader gives no orders.
pub(super) fn input_of_reader(goes_to: StdinTask, message: ToStepd) -> Option<Action> {
    let ToStepd::Stdin { task, bytes } = message else {
        return None;
    };
    let to = match goes_to {
        StdinTask::All => task,
        StdinTask::One(one) if task.is_none_or(|task| task == one) => Some(one),
        StdinTask::One(_) | StdinTask::None => return None,
    };
    (!bytes.is_empty()).then_some(Action::Feed(to, bytes))
}

/// The answer that the agent would send to srun for a step of one task.
fn created(launch: &StepLaunch) -> StepCreated {
    let at = launch.position as usize;
    let name = launch.names.get(at).cloned().unwrap_or_default();
    StepCreated {
        step: launch.step,
        hostlist: name.clone(),
        nodes: vec![StepNode {
            name,
            // It is connected.
            address: String::new(),
            tasks: launch.tasks.get(at).cloned().unwrap_or_default(),
        }],
        key: launch.step_key.clone(),
        mesh_addresses: Vec::new(),
        width: launch.width,
        direct: true,
        cpu_bind: String::new(),
    }
}

/// Whether srun, or the step daemon above, speaks a version that is spoken here; it gets a refusal if not.
fn speaks(client: ClientId, greeting: Option<&Greeting>, out: &mut Actions) -> bool {
    let checked = Versions::CLUSTER.check_said(greeting, "srun", "the step daemon of this node");
    match checked {
        Ok(()) => true,
        Err(refusal) => {
            out.push(Action::Refuse(client, refusal));
            false
        }
    }
}
