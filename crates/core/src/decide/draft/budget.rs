//! Limits of the events that one command of a user's may write: a command is a few bytes, and its jobs are many. Events
//! beyond the bounds are not kept, so that a command that is refused has not used memory before.

use crate::event::Event;
use muster_model::effect::Effect;
use muster_model::limits::REQUEST_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};

/// Bytes of scripts, environments and specifications that the events of a user's command carry at most. The largest request
/// that there can be fits.
pub(super) const DECISION_BYTES_MAX: u64 = 64 << 20;

const _: () = assert!(DECISION_BYTES_MAX >= REQUEST_BYTES_MAX as u64);

/// Events of a user's command for each job and node that there is: ending, holding or changing one takes a few.
const EVENTS_PER_RECORD: u64 = 16;
/// Events of a user's command, however few jobs and nodes there are.
pub(super) const EVENTS_LEAST: u64 = 1 << 18;

/// The bounded properties of a command.
#[derive(Clone, Copy)]
pub(in crate::decide) enum EventBounds {
    /// The bytes that its events carry.
    Bytes,
    /// Bytes, and the number of events.
    BytesAndEvents,
}

/// The bytes and events that a command may still write.
pub(super) struct EventBudget {
    most_events: u64,
    events: u64,
    bytes: u64,
}

impl EventBudget {
    /// Budget of a command where there are this number of jobs and nodes.
    pub(super) fn new(bounds: EventBounds, records: u64) -> EventBudget {
        let events = records.saturating_mul(EVENTS_PER_RECORD);
        EventBudget {
            most_events: match bounds {
                EventBounds::Bytes => u64::MAX,
                EventBounds::BytesAndEvents => events.saturating_add(EVENTS_LEAST),
            },
            events: 0,
            bytes: 0,
        }
    }

    /// Counts an event; whether it is within the bounds, as all before it were.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        if self.is_spent() {
            return false;
        }
        self.events = self.events.saturating_add(1);
        self.bytes = self.bytes.saturating_add(event.carried_bytes());
        !self.is_spent()
    }

    /// Counts the text of an order that no event carries: jobs have nodes, so that their number is bounded.
    pub(super) fn take_order(&mut self, order: &Effect) -> bool {
        if self.is_spent() {
            return false;
        }
        if let Effect::SendMessage { text, .. } = order {
            self.bytes = self.bytes.saturating_add(text.len() as u64);
        }
        !self.is_spent()
    }

    /// Whether an event was beyond the bounds.
    pub(super) fn is_spent(&self) -> bool {
        self.events > self.most_events || self.bytes > DECISION_BYTES_MAX
    }

    /// Refuses what went beyond.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if !self.is_spent() {
            return Ok(());
        }
        let what = match self.bytes > DECISION_BYTES_MAX {
            true => format!(
                "it would write more than {} MiB, which is the limit",
                DECISION_BYTES_MAX >> 20
            ),
            false => format!("it would make more than {} changes", self.most_events),
        };
        let text = format!("{what} for one command; name fewer jobs or tasks at a time");
        Err(Refusal::new(RefusalCode::TooLong, text))
    }
}
