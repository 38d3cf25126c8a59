//! Which tasks of a waiting record gain age, where the number of those that do is limited.

use super::Job;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};

/// The tasks of a waiting record that gain age, where their number is limited.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Accrual {
    /// Since when, and how many of its tasks; oldest first. Tasks beyond these wait for their turn.
    #[n(0)]
    pub since: Vec<(Timestamp, u32)>,
}

impl Accrual {
    /// Number of its tasks that gain age.
    pub fn tasks(&self) -> u32 {
        let all = self.since.iter().map(|(_, tasks)| *tasks);
        all.fold(0, u32::saturating_add)
    }

    /// The entry of the next task to leave.
    pub fn of_next(&self) -> Accrual {
        let first = self.since.first().map(|(since, _)| (*since, 1));
        Accrual {
            since: first.into_iter().collect(),
        }
    }

    /// That task has left.
    pub fn take_next(&mut self) {
        if let Some((_, tasks)) = self.since.first_mut() {
            *tasks = tasks.saturating_sub(1);
            if *tasks == 0 {
                self.since.remove(0);
            }
        }
    }
}

impl Job {
    /// Since when it gains age; `None` while it does not.
    pub fn accrues_since(&self) -> Option<Timestamp> {
        match &self.accrual {
            None => self.eligible_time,
            Some(accrual) => accrual.since.first().map(|(since, _)| *since),
        }
    }

    /// Number of its tasks that gain age.
    pub fn accruing(&self) -> u32 {
        match &self.accrual {
            _ if !self.is_startable() => 0,
            None => self.tasks(),
            Some(accrual) => accrual.tasks(),
        }
    }

    /// Number of its tasks that wait for their turn to gain age.
    pub fn waits_to_accrue(&self) -> u32 {
        match &self.accrual {
            Some(_) if self.is_startable() => self.tasks().saturating_sub(self.accruing()),
            _ => 0,
        }
    }
}
