//! Messages that wait for the writer. Those of the controller itself, of agents, root and SlurmUser go first, as they came.
//! Users take turns with their commands by what these cost, and a turn has room for so much of that, so that the commands
//! of one user wait for each other and not others for them.

use crate::fair_queue::FairQueue;
use crate::mail::ToWriter;
use crate::writer::retry::bytes_of;
use muster_core::state::State;
use muster_model::config::ClusterConfig;
use std::collections::VecDeque;
use std::sync::Arc;

/// The cost of users' commands in one turn; the rest, and later ones, wait for the next turn.
pub(super) const TURN_COST_MAX: u64 = 1024;
/// Bytes that cost as much as an event.
const BYTES_PER_EVENT: u64 = 4 << 10;

/// The user who is charged for a command.
pub(super) struct Charge {
    uid: u32,
    bytes: u64,
}

/// Waiting messages.
#[derive(Default)]
pub(super) struct Queue {
    first: VecDeque<ToWriter>,
    users: FairQueue<ToWriter>,
    /// The cost of users' commands in this turn.
    spent: u64,
}

impl Queue {
    /// Adds messages that have come.
    pub(super) fn extend(&mut self, messages: impl Iterator<Item = ToWriter>, state: &State) {
        for message in messages {
            match limited_user(&message, state) {
                Some(uid) => self.users.push(uid, message),
                None => self.first.push_back(message),
            }
        }
    }

    /// Another turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.spent = 0;
    }

    /// The message whose turn it is, and who is to be charged for it. Once there is no room for more, users' commands wait
    /// for the next turn, unless this is the last.
    pub(super) fn next(&mut self, is_last: bool) -> Option<(Option<Charge>, ToWriter)> {
        if let Some(message) = self.first.pop_front() {
            return Some((None, message));
        }
        if self.spent >= TURN_COST_MAX && !is_last {
            return None;
        }
        let (uid, message) = self.users.next()?;
        let bytes = match &message {
            ToWriter::User { command, .. } => bytes_of(command),
            _ => 0,
        };
        Some((Some(Charge { uid, bytes }), message))
    }

    /// A command of a user was decided, and made so many events.
    pub(super) fn charge(&mut self, Charge { uid, bytes }: Charge, events: usize) {
        let cost = 1 + events as u64 + bytes / BYTES_PER_EVENT;
        self.spent = self.spent.saturating_add(cost);
        self.users.charge(uid, cost);
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.users.is_empty()
    }

    /// Messages that go first.
    pub(super) fn first(&self) -> impl Iterator<Item = &ToWriter> {
        self.first.iter()
    }
}

/// The user whose command it is, if commands of that user have limits.
fn limited_user(message: &ToWriter, state: &State) -> Option<u32> {
    let ToWriter::User { identity, .. } = message else {
        return None;
    };
    let uid = identity.uid;
    let is_admin = |config: &Arc<ClusterConfig>| config.admin_uids.contains(&uid);
    let goes_first = uid == 0 || state.config.as_ref().is_some_and(is_admin);
    (!goes_first).then_some(uid)
}
