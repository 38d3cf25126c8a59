//! What an event is called, and which job it is about: for messages and for skipping a job at start.

use muster_core::event::Event;
use muster_core::ids::JobId;

/// The name of an event's kind.
pub(crate) fn kind(event: &Event) -> &'static str {
    match event {
        Event::Configured { .. } => "Configured",
        Event::BlobStored { .. } => "BlobStored",
        Event::JobSubmitted { .. } => "JobSubmitted",
        Event::TaskSplit { .. } => "TaskSplit",
        Event::JobChanged { .. } => "JobChanged",
        Event::JobStarted { .. } => "JobStarted",
        Event::JobEnding { .. } => "JobEnding",
        Event::NodeReleased { .. } => "NodeReleased",
        Event::JobRequeued { .. } => "JobRequeued",
        Event::JobSuspended { .. } => "JobSuspended",
        Event::JobResumed { .. } => "JobResumed",
        Event::JobsPurged { .. } => "JobsPurged",
        Event::StepStarted { .. } => "StepStarted",
        Event::StepEnded { .. } => "StepEnded",
        Event::NodeRegistered { .. } => "NodeRegistered",
        Event::NodeChanged { .. } => "NodeChanged",
        Event::PartitionChanged { .. } => "PartitionChanged",
        Event::PartitionRemoved { .. } => "PartitionRemoved",
        Event::AccountsChanged { .. } => "AccountsChanged",
        Event::PrioritiesCalculated { .. } => "PrioritiesCalculated",
        Event::ReservationSet { .. } => "ReservationSet",
        Event::ReservationStarted { .. } => "ReservationStarted",
        Event::ReservationGone { .. } => "ReservationGone",
    }
}

/// The job that an event is about, if it is about one.
pub(crate) fn job(event: &Event) -> Option<JobId> {
    match event {
        Event::JobSubmitted { id, .. }
        | Event::JobChanged { id, .. }
        | Event::JobStarted { id, .. }
        | Event::JobEnding { id, .. }
        | Event::NodeReleased { id, .. }
        | Event::JobRequeued { id, .. }
        | Event::JobSuspended { id, .. }
        | Event::JobResumed { id, .. }
        | Event::StepStarted { id, .. }
        | Event::StepEnded { id, .. } => Some(*id),
        Event::TaskSplit { base, .. } => Some(*base),
        Event::JobsPurged { ids } => match ids[..] {
            [id] => Some(id),
            _ => None,
        },
        Event::Configured { .. }
        | Event::BlobStored { .. }
        | Event::NodeRegistered { .. }
        | Event::NodeChanged { .. }
        | Event::PartitionChanged { .. }
        | Event::PartitionRemoved { .. }
        | Event::AccountsChanged { .. }
        | Event::PrioritiesCalculated { .. }
        | Event::ReservationSet { .. }
        | Event::ReservationStarted { .. }
        | Event::ReservationGone { .. } => None,
    }
}
