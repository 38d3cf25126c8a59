//! The life of a job as one table: which event is possible in which phase, and where it leads. [`crate::state::State`]
//! asserts it at every event; a test writes it to docs/job-states.md.

use crate::event::{Event, JobChange};
use muster_model::job::{Job, Phase};

/// The events that change the state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// A task leaves this array's record (`TaskSplit`).
    Split,
    /// `JobChanged`.
    Change,
    /// `JobStarted`.
    Start,
    /// `JobEnding` for good.
    End,
    /// `JobEnding` with a return to the queue.
    EndForRequeue,
    /// `NodeReleased` while other nodes are still held.
    ReleaseOne,
    /// `NodeReleased` of the last node held.
    ReleaseLast,
    /// `JobRequeued`.
    Requeue,
    /// `JobSuspended`.
    Suspend,
    /// `JobResumed`.
    Resume,
    /// `StepStarted`.
    StepStart,
    /// `StepEnded`.
    StepEnd,
    /// `JobsPurged`.
    Purge,
}

impl Move {
    /// All moves, in order.
    pub const ALL: [Move; 13] = [
        Move::Split,
        Move::Change,
        Move::Start,
        Move::End,
        Move::EndForRequeue,
        Move::ReleaseOne,
        Move::ReleaseLast,
        Move::Requeue,
        Move::Suspend,
        Move::Resume,
        Move::StepStart,
        Move::StepEnd,
        Move::Purge,
    ];
}

/// Which step of its life `event` is for this record; `None` if the event is not about a job's life.
pub fn move_of(job: &Job, event: &Event) -> Option<Move> {
    Some(match event {
        Event::TaskSplit { .. } => Move::Split,
        Event::JobChanged { change, .. } => match change {
            JobChange::Spec(_)
            | JobChange::SpecOf(_)
            | JobChange::Hold { .. }
            | JobChange::TimeLimit(_)
            | JobChange::Priority(_)
            | JobChange::WaitingOn { .. }
            | JobChange::DependenciesDecided { .. }
            | JobChange::Requeueable(_)
            | JobChange::Warned
            | JobChange::Eligible
            | JobChange::TermSent
            | JobChange::NotBefore(_)
            | JobChange::SpecialExit(_)
            | JobChange::Detail(_)
            | JobChange::Ready
            | JobChange::ReservationGone { .. }
            | JobChange::EndBy(_)
            | JobChange::Resized(_)
            | JobChange::StepLimit { .. }
            | JobChange::Preempted(_)
            | JobChange::Waking(_)
            | JobChange::NodesUp
            | JobChange::SwitchWait
            | JobChange::Accrues(_) => Move::Change,
            JobChange::TurnDue(_) => Move::Change,
        },
        Event::JobStarted { .. } => Move::Start,
        Event::JobEnding { requeue: None, .. } => Move::End,
        Event::JobEnding {
            requeue: Some(_), ..
        } => Move::EndForRequeue,
        Event::NodeReleased { .. } if job.nodes_held.len() > 1 => Move::ReleaseOne,
        Event::NodeReleased { .. } => Move::ReleaseLast,
        Event::JobRequeued { .. } => Move::Requeue,
        Event::JobSuspended { .. } => Move::Suspend,
        Event::JobResumed { .. } => Move::Resume,
        Event::JobsPurged { .. } => Move::Purge,
        Event::StepStarted { .. } => Move::StepStart,
        Event::StepEnded { .. } => Move::StepEnd,
        Event::Configured { .. }
        | Event::BlobStored { .. }
        | Event::JobSubmitted { .. }
        | Event::NodeRegistered { .. }
        | Event::NodeChanged { .. }
        | Event::PartitionChanged { .. }
        | Event::PartitionRemoved { .. }
        | Event::NodesCreated { .. }
        | Event::NodesDeleted { .. }
        | Event::ReservationSet { .. }
        | Event::ReservationStarted { .. }
        | Event::ReservationGone { .. }
        | Event::CrontabSet { .. }
        | Event::TriggersChanged { .. }
        | Event::AccountsChanged { .. }
        | Event::PrioritiesCalculated { .. } => return None,
    })
}

/// Where `step` leads from `phase`; `None` where it cannot happen.
pub fn next_phase(phase: Phase, step: Move) -> Option<Phase> {
    use Move as S;
    use Phase as P;
    match (phase, step) {
        (P::Pending, S::Split | S::Change) => Some(P::Pending),
        (P::Pending, S::Start) => Some(P::Running),
        (P::Pending, S::End) => Some(P::Ended),
        (P::Pending, S::EndForRequeue | S::ReleaseOne | S::ReleaseLast | S::Requeue) => None,
        (P::Pending, S::Suspend | S::Resume | S::StepStart | S::StepEnd | S::Purge) => None,

        (P::Running, S::Change | S::ReleaseOne | S::StepStart | S::StepEnd) => Some(P::Running),
        (P::Running, S::End) => Some(P::Completing),
        (P::Running, S::EndForRequeue) => Some(P::Requeueing),
        (P::Running, S::Suspend) => Some(P::Suspended),
        // The last node goes only after the end was decided.
        (P::Running, S::Split | S::Start | S::ReleaseLast | S::Requeue) => None,
        (P::Running, S::Resume | S::Purge) => None,

        (P::Suspended, S::Change | S::ReleaseOne | S::StepStart | S::StepEnd) => Some(P::Suspended),
        (P::Suspended, S::End) => Some(P::Completing),
        (P::Suspended, S::EndForRequeue) => Some(P::Requeueing),
        (P::Suspended, S::Resume) => Some(P::Running),
        (P::Suspended, S::Split | S::Start | S::ReleaseLast | S::Requeue) => None,
        (P::Suspended, S::Suspend | S::Purge) => None,

        (P::Completing, S::ReleaseOne | S::StepStart | S::StepEnd) => Some(P::Completing),
        (P::Completing, S::EndForRequeue) => Some(P::Requeueing),
        (P::Completing, S::ReleaseLast) => Some(P::Ended),
        (P::Completing, S::Split | S::Change | S::Start | S::End | S::Requeue) => None,
        (P::Completing, S::Suspend | S::Resume | S::Purge) => None,

        (P::Requeueing, S::Change | S::ReleaseOne | S::ReleaseLast) => Some(P::Requeueing),
        (P::Requeueing, S::EndForRequeue | S::StepStart | S::StepEnd) => Some(P::Requeueing),
        // Cancelled on its way back.
        (P::Requeueing, S::End) => Some(P::Completing),
        (P::Requeueing, S::Requeue) => Some(P::Pending),
        (P::Requeueing, S::Split | S::Start | S::Suspend | S::Resume | S::Purge) => None,

        (P::Ended, S::StepEnd) => Some(P::Ended),
        (P::Ended, S::Requeue) => Some(P::Pending),
        (P::Ended, S::Purge) => Some(P::Gone),
        (P::Ended, S::Split | S::Change | S::Start | S::End | S::EndForRequeue) => None,
        (P::Ended, S::ReleaseOne | S::ReleaseLast | S::Suspend | S::Resume | S::StepStart) => None,

        (P::Gone, S::Split | S::Change | S::Start | S::End | S::EndForRequeue) => None,
        (P::Gone, S::ReleaseOne | S::ReleaseLast | S::Requeue | S::Suspend | S::Resume) => None,
        (P::Gone, S::StepStart | S::StepEnd | S::Purge) => None,
    }
}
