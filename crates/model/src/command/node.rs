//! Reports of nodes' agents.

use crate::ids::{Attempt, JobAttempt, JobId, StepNo};
use crate::job::{ExitStatus, Step, StepEnd};
use crate::node::NodeInfo;

/// A report of a node's agent.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeCommand {
    /// It connected; this is its state of each job. Jobs that the controller thinks are there and that are not in the
    /// list were never launched there (same boot) or are lost (`present` lacks them and boot changed).
    Register {
        /// The machine.
        info: Box<NodeInfo>,
        /// Jobs the agent knows, running or ended without acknowledgement.
        present: Vec<JobAttempt>,
    },
    /// Its connection was lost.
    Lost,
    /// Its load and memory.
    Health {
        /// Load average over a minute, times 100.
        load_centi: u32,
        /// Free memory, MiB.
        free_mib: u64,
    },
    /// Outcome of its new configuration: the reason if it was not applied.
    Configuration {
        /// The reason.
        error: Option<String>,
    },
    /// The batch script ended.
    BatchEnded {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// Wait status of the script.
        exit: ExitStatus,
        /// Ended by the out-of-memory killer.
        oom: bool,
        /// The `batch` step's end.
        end: StepEnd,
    },
    /// Nothing of the job is left on the node.
    Released {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
    },
    /// The job could not be started there.
    LaunchFailed {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// Why, for the log, the job's reason and the node's.
        error: String,
        /// The fault is the node's (true) or the job's own, such as a missing working directory (false).
        node_fault: bool,
        /// The site's prolog failed: the node is drained at once and the job held.
        prolog: bool,
        /// It lacked processes, descriptors or room, which users can use up: the job is tried again; the node is not at fault.
        lack: bool,
    },
    /// Something of a job's end went wrong in a way that makes the node unfit for others: it is drained.
    NodeFault {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// The failure, as the node's reason.
        error: String,
    },
    /// The job was there but its processes are gone without a trace (launcher killed, machine rebooted).
    Vanished {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
    },
    /// A step began.
    StepStarted {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// The step.
        step: Box<Step>,
    },
    /// A step ended.
    StepEnded {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// The step.
        step: StepNo,
        /// End of the step.
        end: Box<StepEnd>,
    },
}
