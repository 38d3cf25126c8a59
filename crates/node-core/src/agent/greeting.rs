//! The connections to controller and launcher: a session with the controller needs the launcher's key, and ends when the launcher
//! that has it is lost.

use super::actions::Actions;
use super::state::AgentState;
use super::{Action, Agent, DialId};
use crate::messages::LauncherCommand;
use minicbor::bytes::ByteVec;
use muster_model::ids::JobAttempt;
use muster_proto::node::ToNode;
use std::collections::VecDeque;

/// The reason for closing a connection to the controller whose key belonged to a lost launcher.
const LAUNCHER_LOST: &str = "the launcher was lost";

/// Connections to the controller that are being made.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Dials that wait for the launcher's key, and for its list of jobs and steps.
    dialed: VecDeque<DialId>,
    /// Dials whose controller has answered; the launcher is checking the controller's key.
    answered: VecDeque<DialId>,
    /// The launcher has opened a session for the newest trusted connection.
    has_begun: bool,
}

impl Sessions {
    /// The controller accepted a connection.
    pub(super) fn dial(&mut self, out: &mut Actions, dial: DialId, is_synced: bool) {
        self.dialed.push_back(dial);
        if is_synced {
            out.command(LauncherCommand::OpenSession);
        }
    }

    /// The controller took the greeting, and has shown a key.
    pub(super) fn answer(
        &mut self,
        out: &mut Actions,
        (dial, key): (DialId, ByteVec),
        is_synced: bool,
    ) {
        if is_synced {
            self.answered.push_back(dial);
            out.command(LauncherCommand::BeginSession(key));
        } else {
            // The key that was shown to it was a lost launcher's.
            refuse(out, dial);
        }
    }

    /// Requests a key from the launcher for each connection that waits for one.
    pub(super) fn open(&self, out: &mut Actions) {
        for _ in 0..self.dialed.len() {
            out.command(LauncherCommand::OpenSession);
        }
    }

    /// The launcher has made a key for a connection.
    fn greet(&mut self, out: &mut Actions, launcher_key: ByteVec, present: Vec<JobAttempt>) {
        if let Some(dial) = self.dialed.pop_front() {
            out.push(Action::Greet {
                dial,
                launcher_key,
                present,
            });
        }
    }

    /// The launcher knows the controller that has answered, or why it is another.
    pub(super) fn begun(&mut self, out: &mut Actions, error: Option<String>) {
        if let Some(dial) = self.answered.pop_front() {
            self.has_begun = error.is_none();
            let result = error.map_or(Ok(()), Err);
            out.push(Action::TrustController(dial, result));
        }
    }

    fn launcher_lost(&mut self, out: &mut Actions) {
        self.has_begun = false;
        for dial in std::mem::take(&mut self.answered) {
            refuse(out, dial);
        }
    }
}

fn refuse(out: &mut Actions, dial: DialId) {
    let why = Err(LAUNCHER_LOST.to_owned());
    out.push(Action::TrustController(dial, why));
}

impl Agent {
    /// The launcher has made a key for a connection to the controller.
    pub(super) fn greet(&mut self, launcher_key: ByteVec) {
        let present = self.state.jobs.iter().map(|(attempt, _)| attempt).collect();
        self.sessions
            .greet(&mut self.state.out, launcher_key, present);
    }

    pub(super) fn controller_up(&mut self) {
        if !self.state.is_synced || !self.sessions.has_begun {
            // The launcher that has the session is lost; another may be there already.
            return self.state.out.push(Action::CloseController);
        }
        log::info!(
            "node {} is connected to its controller",
            self.state.node.config.name
        );
        self.state.is_controller_up = true;
        self.state.controller_up_ms = self.state.now.mono_ms;
        self.state.reports.send_all_again();
    }

    pub(super) fn on_controller_message(&mut self, message: ToNode) {
        match message {
            // The connection has converted it into orders.
            ToNode::Sealed { .. } => {}
            ToNode::Ack(seq) => self.acknowledged(seq),
            ToNode::Ping => self.state.out.push(Action::SendHealth),
            ToNode::Stop(agent) => {
                if agent {
                    self.state.out.push(Action::Stop);
                }
            }
        }
    }

    pub(super) fn launcher_up(&mut self) {
        self.state.out.has_launcher = true;
        self.state.known = Vec::new();
        self.state.is_synced = false;
        self.steps.stepds.retire(&mut self.state.out);
    }

    pub(super) fn launcher_lost(&mut self) {
        self.state.out.has_launcher = false;
        self.state.known = Vec::new();
        self.forget_measurements();
        self.state.has_lost_a_launcher |= self.state.is_synced;
        self.state.is_synced = false;
        self.sessions.launcher_lost(&mut self.state.out);
        self.state.leave_controller();
    }
}

impl AgentState {
    /// Closes the connection to the controller, which is then dialled again: this node does not trust the seals of
    /// this session.
    pub(super) fn leave_controller(&mut self) {
        if std::mem::take(&mut self.is_controller_up) {
            self.out.push(Action::CloseController);
        }
    }
}
