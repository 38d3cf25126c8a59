//! srun, or the node above: who may be it, what it asks for, what it is sent.

use super::actions::Actions;
use super::interface::{Action, ClientId, HostCommand};
use super::phase::Phase;
use super::step::{Client, Step};
use super::tree::Tree;
use muster_proto::step::{Attach, FromStepd, StepCreated, StepNode, ToStepd};
use muster_proto::version::{Greeting, Versions};
use std::rc::Rc;

/// How long a node whose connection upwards is lost waits for srun.
const ADOPTION_WAIT_MS: u64 = 60_000;

/// Whether nobody is kept waiting if a message comes a little later.
fn is_patient(message: &FromStepd) -> bool {
    match message {
        FromStepd::Created(_) | FromStepd::Started(_) => true,
        FromStepd::Stdout { bytes, .. } | FromStepd::Stderr { bytes, .. } => bytes.is_empty(),
        // The last one is followed by the end of the step.
        FromStepd::Exited { exit, .. } => exit.is_ok(),
        _ => false,
    }
}

impl Client {
    fn new(id: ClientId) -> Client {
        Client {
            id,
            is_flushed: false,
            is_flush_awaited: false,
            was_told_over: false,
        }
    }
}

impl Step {
    /// A connection has sent its first message: it is srun's, or the node's above, if that is the key.
    pub(super) fn greeted(&mut self, client: ClientId, message: ToStepd, out: &mut Actions) {
        let is_free = self.client.is_none() && self.phase == Phase::Waiting;
        let key = &self.order.launch.step_key;
        match message {
            ToStepd::Hello(shown, greeting) if is_free && shown == *key => {
                if speaks(client, greeting.as_ref(), out) {
                    self.take_client(client, out);
                    self.start(out);
                }
            }
            ToStepd::Attach(attach) if attach.key == *key && (is_free || self.tree.is_some()) => {
                if speaks(client, attach.greeting.as_ref(), out) {
                    self.attach(client, &attach, out);
                }
            }
            // Not the key, or srun is here already.
            ToStepd::Hello(..)
            | ToStepd::Attach(_)
            | ToStepd::Stdin { .. }
            | ToStepd::Signal(_)
            | ToStepd::Window(..)
            | ToStepd::Peers(_)
            | ToStepd::Fail(_)
            | ToStepd::Down(..)
            | ToStepd::Again(_)
            | ToStepd::Seen(..)
            | ToStepd::Left
            | ToStepd::Nothing
            | ToStepd::Adopt(_) => out.push(Action::CloseClient(client)),
        }
    }

    fn take_client(&mut self, client: ClientId, out: &mut Actions) {
        if let Some(before) = self.client.replace(Client::new(client)) {
            out.push(Action::CloseClient(before.id));
        }
        out.push(Action::TakeClient(client));
    }

    /// srun has handed its streams over: the only task starts with them.
    pub(super) fn start_direct(&mut self, client: ClientId, out: &mut Actions) {
        self.client = Some(Client::new(client));
        if self.order.launch.spec.has_stepd_channel {
            self.tell_created(out);
        }
        self.start(out);
    }

    /// What the agent would tell srun of a step of one task.
    fn tell_created(&mut self, out: &mut Actions) {
        let launch = &self.order.launch;
        let at = self.position();
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
        self.send(FromStepd::Created(Box::new(created)), out);
    }

    /// srun, or the node above, is there: at first, or in the place of one that is lost.
    fn attach(&mut self, client: ClientId, attach: &Attach, out: &mut Actions) {
        self.take_client(client, out);
        self.timers.adoption_by = None;
        if let Some(tree) = &mut self.tree {
            tree.set_by_srun(attach.srun);
            return self.say_again(&attach.seen, out);
        }
        let (tree, below) = Tree::new(&self.order.launch, attach);
        self.tree = Some(tree);
        match below.is_empty() {
            true => self.start(out),
            false => out.push(Action::ConnectBelow(below)),
        }
    }

    pub(super) fn below_connected(&mut self, lost: Vec<u32>, out: &mut Actions) {
        if let Some(tree) = &mut self.tree {
            lost.iter().for_each(|position| tree.close(*position));
        }
        self.lost = lost;
        self.start(out);
    }

    pub(super) fn on_request(&mut self, message: ToStepd, out: &mut Actions) {
        match message {
            ToStepd::Hello(..) | ToStepd::Attach(_) | ToStepd::Adopt(_) | ToStepd::Nothing => {}
            ToStepd::Stdin { task, bytes } => out.push(Action::Feed(task, bytes)),
            ToStepd::Peers(peers) => self.send_host(HostCommand::Peers(peers), out),
            ToStepd::Fail(exit) => self.fail(exit, out),
            ToStepd::Signal(signal) => {
                let signal = i32::try_from(signal).unwrap_or(0);
                out.push(Action::SignalTasks(signal));
            }
            ToStepd::Window(rows, columns) => out.push(Action::SetWindow(rows, columns)),
            ToStepd::Down(number, message) => {
                let Some(tree) = &mut self.tree else { return };
                let (new, below) = tree.take(number, *message, &self.order.launch);
                out.send_below(below);
                if let Some(message) = new {
                    self.on_request(message, out);
                }
                if self.tree.as_mut().is_some_and(Tree::owes_acknowledgement) {
                    self.send(FromStepd::Acknowledged, out);
                }
            }
            ToStepd::Again(seen) => self.say_again(&seen, out),
            ToStepd::Seen(position, count) => {
                if let Some(tree) = &mut self.tree {
                    out.send_below(tree.seen(position, count));
                }
            }
            ToStepd::Left => self.srun_left(out),
        }
    }

    /// Sends again what srun has not received.
    fn say_again(&mut self, seen: &[u64], out: &mut Actions) {
        if let (Some(tree), Some(client)) = (&mut self.tree, &mut self.client) {
            let (frames, below) = tree.again(seen);
            out.send_below(below);
            client.is_flushed = false;
            out.push(Action::SendFrame(Rc::new(frames), false));
        }
    }

    /// The connection upwards is gone. Where it was to a node, srun is awaited, which has others to say so; otherwise srun is
    /// gone, and with it the reason for the tasks to be.
    pub(super) fn client_lost(&mut self, out: &mut Actions) {
        let Some(client) = self.client.take() else {
            return;
        };
        out.push(Action::CloseClient(client.id));
        if let Some(tree) = &mut self.tree {
            if tree.awaits_srun() {
                // srun has all, and need not come.
                if !client.was_told_over {
                    self.timers.adoption_by = Some(out.after(ADOPTION_WAIT_MS));
                }
                return;
            }
            out.send_below(tree.leave());
        }
        if !self.phase.has_no_tasks() {
            self.begin_end(out);
        }
    }

    /// srun is gone, says the node above.
    pub(super) fn srun_left(&mut self, out: &mut Actions) {
        if let Some(tree) = &mut self.tree {
            out.send_below(tree.leave());
        }
        self.begin_end(out);
    }

    pub(super) fn send(&mut self, message: FromStepd, out: &mut Actions) {
        let may_wait = is_patient(&message);
        match (&mut self.tree, &mut self.client) {
            (Some(tree), client) => {
                let frame = tree.say(message);
                if let Some(client) = client {
                    client.is_flushed = false;
                    out.push(Action::SendFrame(frame, may_wait));
                }
            }
            (None, Some(client)) => {
                client.is_flushed = false;
                out.push(Action::Send(message, may_wait));
            }
            (None, None) => {}
        }
    }

    pub(super) fn message(&mut self, line: String, out: &mut Actions) {
        self.send(FromStepd::Message(line), out);
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
