//! The connections to controller and launcher: a session with the controller needs the launcher's key, and ends when the launcher
//! that has it is lost.

use super::{Agent, AgentAction, DialId};
use crate::binding::SiteBinding;
use crate::messages::LauncherCommand;
use minicbor::bytes::ByteVec;
use muster_proto::node::{NodeSettings, ToNode};

/// What a connection to the controller ends with whose key was a lost launcher's.
const LAUNCHER_LOST: &str = "the launcher was lost";

impl Agent {
    pub(super) fn controller_dialed(&mut self, dial: DialId) {
        self.dialed.push_back(dial);
        if self.is_synced {
            self.command(LauncherCommand::OpenSession);
        }
    }

    pub(super) fn controller_answered(&mut self, dial: DialId, key: ByteVec) {
        if self.is_synced {
            self.answered.push_back(dial);
            self.command(LauncherCommand::BeginSession(key));
        } else {
            // The key that was shown to it was a lost launcher's.
            self.push(AgentAction::TrustController(
                dial,
                Err(LAUNCHER_LOST.to_owned()),
            ));
        }
    }

    /// Has the launcher make a key for each connection that waits for one.
    pub(super) fn open_sessions(&mut self) {
        for _ in 0..self.dialed.len() {
            self.command(LauncherCommand::OpenSession);
        }
    }

    /// The launcher has made a key for a connection to the controller.
    pub(super) fn greet(&mut self, launcher_key: ByteVec) {
        if let Some(dial) = self.dialed.pop_front() {
            let present = self.jobs.iter().map(|(run, _)| (run.job, run.attempt));
            let present = present.collect();
            self.push(AgentAction::Greet {
                dial,
                launcher_key,
                present,
            });
        }
    }

    /// The launcher knows the controller that has answered, or why it is another.
    pub(super) fn session_begun(&mut self, error: Option<String>) {
        if let Some(dial) = self.answered.pop_front() {
            let result = error.map_or(Ok(()), Err);
            self.push(AgentAction::TrustController(dial, result));
        }
    }

    pub(super) fn controller_up(&mut self) {
        if !self.is_synced {
            // The launcher that has the session is lost.
            return self.push(AgentAction::CloseController);
        }
        log::info!("node {} is connected to its controller", self.config.name);
        self.is_controller_up = true;
        self.reports.send_all_again();
    }

    /// Closes the connection to the controller, which is dialled anew: what it seals, this node does not trust.
    pub(super) fn leave_controller(&mut self) {
        if std::mem::take(&mut self.is_controller_up) {
            self.push(AgentAction::CloseController);
        }
    }

    pub(super) fn on_controller_message(&mut self, message: ToNode) {
        match message {
            // The connection has made orders of it.
            ToNode::Sealed { .. } => {}
            ToNode::Ack(seq) => self.acknowledged(seq),
            ToNode::Ping => self.push(AgentAction::SendHealth),
            ToNode::Stop(agent) => {
                if agent {
                    self.push(AgentAction::Stop);
                }
            }
        }
    }

    pub(super) fn apply_settings(&mut self, settings: NodeSettings) {
        self.site_binding = SiteBinding::new(&settings.cpu_bind);
        self.settings = settings;
        self.sample_all();
    }

    pub(super) fn launcher_up(&mut self) {
        self.is_launcher_up = true;
        self.is_synced = false;
        self.retire_stepds();
    }

    pub(super) fn launcher_lost(&mut self) {
        self.is_launcher_up = false;
        self.forget_measurements();
        self.has_lost_a_launcher |= self.is_synced;
        self.is_synced = false;
        for dial in std::mem::take(&mut self.answered) {
            self.push(AgentAction::TrustController(
                dial,
                Err(LAUNCHER_LOST.to_owned()),
            ));
        }
        self.leave_controller();
    }
}
