//! Messages that leave the controller because of an event, once the event is durable. Effects are derived, never
//! stored: after a restart the same orders are derived from the state when a node registers.

use crate::command::SignalScope;
use crate::ids::{Attempt, JobId, NodeIdx, StepNo};
use crate::time::TimeLimit;
use crate::validate::Validate;

/// An order for one node's agent. Repeating one does no harm: agents know attempts they have seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give the job its share of the node; on the first node also start the batch script.
    Launch {
        /// The node.
        node: NodeIdx,
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
    },
    /// End all of the job's processes (CONT, TERM, after `KillWait` KILL; at once KILL if `now`), then report
    /// `Released`.
    Terminate {
        /// The node.
        node: NodeIdx,
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// Without waiting.
        now: bool,
        /// Text for the job's standard error, such as `CANCELLED AT ... DUE TO TIME LIMIT`; the agent adds names and time.
        why: TerminateReason,
    },
    /// Send a signal.
    Signal {
        /// The node.
        node: NodeIdx,
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// A step, or by scope.
        step: Option<StepNo>,
        /// Signal number.
        signal: u32,
        /// The receiver.
        scope: SignalScope,
        /// The user who ends the step by it.
        cancelled_by: Option<u32>,
    },
    /// A step may run for another time than it was started with.
    StepLimit {
        /// A node of the job; it may have no part in the step.
        node: NodeIdx,
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// The step.
        step: StepNo,
        /// Counted from the step's start.
        limit: TimeLimit,
    },
    /// A message to the standard error of a batch job, or the holder of an allocation.
    SendMessage {
        /// The job.
        job: JobId,
        /// One line.
        text: String,
    },
    /// Run `RebootProgram`.
    Reboot {
        /// The node.
        node: NodeIdx,
    },
    /// The interactive holder or waiting client of a job must be notified of its state (started, ended).
    Notify {
        /// The job.
        job: JobId,
    },
}

/// Why a job is being ended, as it is written to its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, minicbor::Encode, minicbor::Decode, Validate)]
#[cbor(index_only)]
pub enum TerminateReason {
    /// Cancelled by a user.
    #[n(0)]
    Cancelled,
    /// Time limit.
    #[n(1)]
    TimeLimit,
    /// Requeued.
    #[n(2)]
    Requeued,
    /// Preempted.
    #[n(3)]
    Preempted,
    /// A node was lost.
    #[n(4)]
    NodeFailure,
    /// The job is over; only leftovers are cleaned. Nothing is written.
    #[n(5)]
    Finished,
}
