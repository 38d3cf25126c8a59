//! Messages that wait for the writer. Those of the controller itself, of agents, root and SlurmUser go first, as they came.
//! Users take turns with their commands by what these cost in events, bytes, orders to nodes and time, and a turn has room for so much of that, so that the commands
//! of one user wait for each other and not others for them.

use crate::mail::ToWriter;
use crate::reply::ReplyTo;
use crate::writer::encoded_bytes::encoded_bytes;
use muster_channel::admission::FairQueue;
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::config::ClusterConfig;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The cost of users' commands in one turn; the rest, and later ones, wait for the next turn.
pub(super) const TURN_COST_MAX: u64 = 1024;
/// Bytes that cost as much as an event.
const BYTES_PER_EVENT: u64 = 4 << 10;
/// Microseconds that cost as much as an event: a submission takes less than its events cost, so that time counts only where a
/// command takes more of it than what it changes explains.
const MICROS_PER_EVENT: u128 = 10;

/// The user who is charged for a command.
pub(super) struct Charge {
    uid: u32,
    bytes: u64,
}

impl Charge {
    /// Who that is.
    #[cfg(test)]
    pub(super) fn uid(&self) -> u32 {
        self.uid
    }
}

/// What a command has cost the writer.
#[derive(Clone, Copy)]
pub(super) struct Cost<'a> {
    /// What it changed.
    pub(super) events: &'a [Event],
    /// Orders for nodes that follow from it.
    pub(super) orders: usize,
    /// How long it took to decide and apply.
    pub(super) time: Duration,
}

impl Cost<'_> {
    /// In events, of a command that brought so many bytes.
    pub(super) fn total(&self, brought: u64) -> u64 {
        let carried = self.events.iter().map(Event::carried_bytes).sum::<u64>();
        let size = carried.max(brought) / BYTES_PER_EVENT;
        let made = self.events.len() as u64 + self.orders as u64;
        let time = self.time.as_micros() / MICROS_PER_EVENT;
        (1 + made + size).max(u64::try_from(time).unwrap_or(u64::MAX))
    }
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
        let (uid, message) = self.users.pop()?;
        let bytes = match &message {
            ToWriter::User { command, .. } => encoded_bytes(&**command),
            _ => 0,
        };
        Some((Some(Charge { uid, bytes }), message))
    }

    /// A command of a user was decided.
    pub(super) fn charge(&mut self, Charge { uid, bytes }: Charge, cost: &Cost<'_>) {
        let cost = cost.total(bytes);
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
    let ToWriter::User {
        identity, reply, ..
    } = message
    else {
        return None;
    };
    let uid = match reply {
        ReplyTo::Own(user) => (*user)?,
        ReplyTo::Task(..) | ReplyTo::Socket(_) => identity.uid,
    };
    (!goes_first(uid, state)).then_some(uid)
}

/// Whether it is root or SlurmUser.
pub(super) fn goes_first(uid: u32, state: &State) -> bool {
    let is_admin = |config: &Arc<ClusterConfig>| config.admin_uids.contains(&uid);
    uid == 0 || state.config.as_ref().is_some_and(is_admin)
}
