//! The launcher's record of a step and of its step daemon.

use super::end::EncodedEnd;
use super::interface::StepdConnId;
use crate::messages::{NextStep, StepBounds};
use muster_model::time::TimeLimit;
use std::path::PathBuf;

/// A step daemon to which the launcher has a connection.
#[derive(Debug)]
pub(super) struct ConnectedStepd {
    pub(super) id: StepdConnId,
    pub(super) pid: i32,
    /// Where srun reaches it.
    pub(super) socket: PathBuf,
    /// The agent has a connection to it: gives it steps, and receives their ends.
    pub(super) is_owned: bool,
    /// An earlier launcher started it. It gets no other step.
    pub(super) is_adopted: bool,
}

/// A step and its daemon.
#[derive(Debug)]
pub(super) struct StepProcess {
    /// The daemon's process; 0 for one that did not outlive an earlier launcher.
    pub(super) pid: i32,
    /// The connection to it; lost with an earlier launcher, and when the step is over.
    pub(super) stepd: Option<ConnectedStepd>,
    /// The step's directories for MPI outside the spool directory. Their contents are garbage once it has ended.
    pub(super) dirs: Vec<PathBuf>,
    /// End of its part of the step.
    pub(super) ended: Option<EncodedEnd>,
    /// The daemon has reported the step's end here, and so has left no result file.
    pub(super) is_reported: bool,
    /// The limit that its daemon gets next.
    pub(super) new_limit: Option<TimeLimit>,
}

impl StepProcess {
    /// A step that runs in this process.
    pub(super) fn new(pid: i32, stepd: Option<ConnectedStepd>) -> StepProcess {
        StepProcess {
            pid,
            stepd,
            dirs: Vec::new(),
            ended: None,
            is_reported: false,
            new_limit: None,
        }
    }
}

/// A step for which a daemon is started, or to which one is given.
#[derive(Debug)]
pub(super) struct Placing {
    /// The step; none once it was handed to the executor with a new daemon.
    pub(super) next: Option<NextStep>,
    pub(super) bounds: StepBounds,
    pub(super) random: u64,
    pub(super) is_direct: bool,
    pub(super) socket: PathBuf,
    pub(super) dirs: Vec<PathBuf>,
    /// The daemon that gets the step.
    pub(super) spare: Option<ConnectedStepd>,
}
