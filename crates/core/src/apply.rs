//! Applying events: the only way in which the state changes.

use crate::event::Event;
use crate::state::{Note, State};

impl State {
    /// Applies one event. Total: an event that does not fit the state is a bug and panics by name.
    pub fn apply(&mut self, event: &Event) {
        let _ = event;
    }

    /// Takes note of what is shown but is not history. A reason is taken only for a job that the scheduler may start;
    /// what holds the others back is known better here.
    pub fn note(&mut self, note: &Note) {
        let _ = note;
    }
}
