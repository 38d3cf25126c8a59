//! Where a record is in its life. What leads from one phase to the next is in `muster_core::transition`.

use super::{AfterCompleting, Job, JobState};

/// Where a record is in its life. Derived from its state, `completing` and `after_completing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// In the queue.
    Pending,
    /// Has an allocation.
    Running,
    /// Has an allocation, stopped.
    Suspended,
    /// Its end is decided; nodes are being cleaned.
    Completing,
    /// Its nodes are being cleaned, then it goes back to the queue.
    Requeueing,
    /// Over.
    Ended,
    /// The record is gone.
    Gone,
}

impl Phase {
    /// All phases of a record that exists.
    pub const ALL: [Phase; 6] = [
        Phase::Pending,
        Phase::Running,
        Phase::Suspended,
        Phase::Completing,
        Phase::Requeueing,
        Phase::Ended,
    ];
}

impl Job {
    /// Where it is in its life.
    pub fn phase(&self) -> Phase {
        match (self.state, self.completing, self.after_completing) {
            (_, true, AfterCompleting::Requeue { .. }) => Phase::Requeueing,
            (_, true, AfterCompleting::End) => Phase::Completing,
            (JobState::Pending, false, _) => Phase::Pending,
            (JobState::Running, false, _) => Phase::Running,
            (JobState::Suspended, false, _) => Phase::Suspended,
            (
                JobState::Completed
                | JobState::Cancelled
                | JobState::Failed
                | JobState::Timeout
                | JobState::NodeFail
                | JobState::Preempted
                | JobState::BootFail
                | JobState::Deadline
                | JobState::OutOfMemory,
                false,
                _,
            ) => Phase::Ended,
        }
    }
}
