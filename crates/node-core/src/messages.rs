//! Messages between the processes of a node, one file for each pair of peers. Variants and fields are numbered; a number is
//! never given to something else.

mod agent_launcher;
mod agent_stepd;
mod job_attempt;
mod launcher_stepd;
mod step_order;

pub use agent_launcher::{
    Attach, KnownJob, LauncherCommand, LauncherEvent, MachineClaim, TaskUsage,
};
pub use agent_stepd::NextStep;
pub use job_attempt::{JobAttempt, Process};
pub use launcher_stepd::{FirstOrder, RunningStep, StepBounds, StepdCommand, StepdEvent};
pub use step_order::{MemoryPolicy, PmixOrder, StepOrder, TaskBinding, UcxOrder, User};

use minicbor::bytes::ByteVec;

/// What the launcher keeps of a job for the agent, by number.
pub type KeptEntries = Vec<(u32, ByteVec)>;
