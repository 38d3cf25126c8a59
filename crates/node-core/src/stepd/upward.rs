//! Communication with srun or the node above, and this node's place in the step. It decides what to send when, and
//! when everything has been sent.

use super::actions::Actions;
use super::interface::{Action, ClientId};
use super::recent_output::RecentOutput;
use super::tree::{BranchHead, Tree};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::frame;
use muster_proto::step::{Attach, FromStepd, StepLaunch, ToStepd};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Time that a node whose connection upwards is lost waits for srun.
const ADOPTION_WAIT_MS: u64 = 60_000;

/// Most readers attached to a node's part of a step beside srun.
pub(super) const READERS_MAX: usize = 8;

/// Whether readers receive the message.
fn is_of_a_task(message: &FromStepd) -> bool {
    matches!(
        message,
        FromStepd::Stdout { .. } | FromStepd::Stderr { .. } | FromStepd::Exited { .. }
    )
}

/// Whether nobody is kept waiting if a message comes a little later.
fn may_be_delayed(message: &FromStepd) -> bool {
    match message {
        FromStepd::Created(_) | FromStepd::Started(_) => true,
        FromStepd::Stdout { bytes, .. } | FromStepd::Stderr { bytes, .. } => bytes.is_empty(),
        // The last one is followed by the end of the step.
        FromStepd::Exited { exit, .. } => exit.is_ok(),
        _ => false,
    }
}

/// srun, or the node above.
#[derive(Debug)]
struct Client {
    id: ClientId,
    /// All that it was sent is written.
    is_flushed: bool,
    is_flush_awaited: bool,
    /// The announcement that this connection ends was sent.
    is_over_sent: bool,
    /// The repetition that it requested is not written yet.
    is_repeating: bool,
    /// It has asked again meanwhile: each answer is as much as is kept, and a request is a few bytes.
    asked_again: Option<Vec<u64>>,
}

impl Client {
    fn new(id: ClientId) -> Client {
        Client {
            id,
            is_flushed: false,
            is_flush_awaited: false,
            is_over_sent: false,
            is_repeating: false,
            asked_again: None,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Upward {
    client: Option<Client>,
    /// Where srun does not speak to every node itself.
    pub(super) tree: Option<Tree>,
    /// The connection is lost, and srun is awaited until then.
    pub(super) adoption_by: Option<u64>,
    /// srun was sent the last message.
    is_closed_sent: bool,
    /// Clients that receive the output of tasks in addition to srun.
    readers: BTreeSet<ClientId>,
    /// Output that a later reader is sent first.
    recent: RecentOutput,
}

impl Upward {
    /// srun, or the node above, is there.
    pub(super) fn is_there(&self) -> bool {
        self.client.is_some()
    }

    /// The connection.
    pub(super) fn client(&self) -> Option<ClientId> {
        self.client.as_ref().map(|client| client.id)
    }

    /// srun has handed its connection over.
    pub(super) fn set_direct(&mut self, client: ClientId) {
        self.client = Some(Client::new(client));
    }

    /// srun, or the node above, is there: at first, or in the place of one that is lost.
    pub(super) fn take(&mut self, client: ClientId, out: &mut Actions) {
        if let Some(before) = self.client.replace(Client::new(client)) {
            out.push(Action::CloseClient(before.id));
        }
        out.push(Action::TakeClient(client));
        self.adoption_by = None;
    }

    /// Sets the node's place from srun's first message. Returns the nodes below to connect to.
    pub(super) fn join(&mut self, launch: &StepLaunch, attach: &Attach) -> Vec<BranchHead> {
        let (tree, below) = Tree::new(launch, attach);
        self.tree = Some(tree);
        below
    }

    /// Takes a message for all nodes: passes it on, and gives it if it is new here.
    pub(super) fn pass_down(
        &mut self,
        number: u64,
        message: ToStepd,
        launch: &StepLaunch,
        out: &mut Actions,
    ) -> Option<ToStepd> {
        let (new, below) = self.tree.as_mut()?.take(number, message, launch);
        out.send_below(below);
        new
    }

    /// Sends srun how much input was received, where that is due.
    pub(super) fn acknowledge(&mut self, out: &mut Actions) {
        if self.tree.as_mut().is_some_and(Tree::owes_acknowledgement) {
            self.send(FromStepd::Acknowledged, out);
        }
    }

    /// srun has received the first `count` messages of a node.
    pub(super) fn seen(&mut self, position: u32, count: u64, out: &mut Actions) {
        if let Some(tree) = &mut self.tree {
            out.send_below(tree.seen(position, count));
        }
    }

    /// Sends again what srun has not received.
    pub(super) fn say_again(&mut self, seen: &[u64], out: &mut Actions) {
        if let (Some(tree), Some(client)) = (&mut self.tree, &mut self.client) {
            if std::mem::replace(&mut client.is_repeating, true) {
                client.asked_again = Some(seen.to_vec());
                return;
            }
            let (frames, below) = tree.again(seen);
            out.send_below(below);
            client.is_flushed = false;
            out.push(Action::SendFrame(Rc::new(frames), false));
            if !std::mem::replace(&mut client.is_flush_awaited, true) {
                out.push(Action::AwaitFlush);
            }
        }
    }

    /// The connection is gone. Returns whether srun is. If it was the connection to a node above, srun is expected to
    /// connect instead.
    pub(super) fn lose(&mut self, out: &mut Actions) -> bool {
        let Some(client) = self.client.take() else {
            return false;
        };
        out.push(Action::CloseClient(client.id));
        let awaits_srun = self.tree.as_ref().is_some_and(Tree::awaits_srun);
        if !awaits_srun {
            self.leave(out);
        } else if !client.is_over_sent {
            // Otherwise srun has all, and need not come.
            self.adoption_by = Some(out.after(ADOPTION_WAIT_MS));
        }
        !awaits_srun
    }

    /// srun has disconnected: notifies the nodes below.
    pub(super) fn leave(&mut self, out: &mut Actions) {
        if let Some(tree) = &mut self.tree {
            out.send_below(tree.leave());
        }
    }

    /// A connection that has shown the key reads from now on, and the last output before, if there are not too many.
    pub(super) fn take_reader(&mut self, reader: ClientId, out: &mut Actions) {
        if self.readers.len() >= READERS_MAX {
            let text = format!("{READERS_MAX} others are attached to this step");
            let refusal = Refusal::new(RefusalCode::Busy, text);
            return out.push(Action::Refuse(reader, refusal));
        }
        self.readers.insert(reader);
        out.push(Action::TakeReader(reader, Rc::new(self.recent.frames())));
    }

    /// A reader is gone.
    pub(super) fn drop_reader(&mut self, reader: ClientId) {
        self.readers.remove(&reader);
    }

    pub(super) fn send(&mut self, message: FromStepd, out: &mut Actions) {
        if !self.readers.is_empty() && is_of_a_task(&message) {
            out.push(Action::SendReaders(Rc::new(frame::encode(&message))));
        }
        self.recent.keep(&message);
        let may_wait = may_be_delayed(&message);
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
        self.send(FromStepd::NodeMessage(line), out);
    }

    /// All that the client was sent before that was asked for is written.
    pub(super) fn flushed(&mut self, out: &mut Actions) {
        let Some(client) = &mut self.client else {
            return;
        };
        client.is_flushed |= std::mem::take(&mut client.is_flush_awaited);
        client.is_repeating = false;
        if let Some(seen) = client.asked_again.take() {
            self.say_again(&seen, out);
        }
    }

    /// Whether the last messages have been sent, and read. Sends them.
    pub(super) fn send_closed_and_check_read(&mut self, out: &mut Actions) -> bool {
        if self.client.is_none() && (self.tree.is_none() || self.adoption_by.is_none()) {
            return true;
        }
        if !std::mem::replace(&mut self.is_closed_sent, true) {
            self.send(FromStepd::NodeTasksEnded, out);
        }
        let Some(client) = &mut self.client else {
            return false;
        };
        if let Some(tree) = &self.tree {
            if !tree.is_over() {
                return false;
            }
            if !std::mem::replace(&mut client.is_over_sent, true) {
                client.is_flushed = false;
                let frame = frame::encode(&FromStepd::ConnectionFinished);
                out.push(Action::SendFrame(Rc::new(frame), false));
            }
        }
        if !client.is_flushed && !std::mem::replace(&mut client.is_flush_awaited, true) {
            out.push(Action::AwaitFlush);
        }
        client.is_flushed
    }
}
