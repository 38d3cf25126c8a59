//! What must hold after every event.

use crate::state::State;

impl State {
    /// Checks the whole state; meant for tests and the simulator (it reads everything).
    ///
    /// # Errors
    /// What does not hold, by name.
    pub fn check_invariants(&self) -> Result<(), String> {
        Ok(())
    }
}
