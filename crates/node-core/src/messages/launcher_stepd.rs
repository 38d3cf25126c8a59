//! Messages between launcher and step daemon: frames of CBOR over a socket pair of which the daemon inherits one end,
//! or, after a restart of the launcher, over the daemon's own socket.

use super::{KeptEntries, NextStep, ProcessIdentity};
use crate::JobTmpDir;
use crate::cgroup::StepGroups;
use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobAttempt;
use muster_model::ids::StepNo;
use muster_model::job::{GresShare, StepEnd};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::spec::SoftLimit;
use muster_model::validate::Validate;
use muster_proto::frame::{self, Message};
use muster_proto::version::Greeting;
use std::path::PathBuf;

/// Input of a step daemon at its start. The daemon executes the same file as the launcher, so both have the same
/// version. Two parts may be of other versions: agents send the [`NextStep`], and later launchers receive the copy
/// that the daemon stores of it.
///
/// Its descriptors, in this order: the listener for srun; the connection to the launcher; if the order says so, the
/// listener for the step's other nodes and the connection to the agent, over which srun's streams of a direct step
/// come.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct FirstOrder {
    /// The step.
    #[n(0)]
    pub step: NextStep,
    /// This node's name.
    #[n(1)]
    pub node: String,
    /// Directories of the step's outside the spool directory.
    #[n(2)]
    pub dirs: Vec<PathBuf>,
    /// There is a listener for the step's other nodes.
    #[n(3)]
    pub has_wire: bool,
    /// There is a connection to the agent.
    #[n(4)]
    pub has_agent: bool,
    /// Soft limits of the tasks where the user asks for none.
    #[n(5)]
    pub first_limits: Vec<SoftLimit>,
    /// The limits for further steps of the job.
    #[n(6)]
    pub bounds: StepBounds,
    /// The spool directory.
    #[n(7)]
    pub spool: PathBuf,
    /// Control groups of the job.
    #[n(8)]
    pub groups: Option<StepGroups>,
}

/// Launcher to step daemon, which may be of another version ([`VERSIONS`](super::VERSIONS)) where the launcher has taken it over.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub enum StepdCommand {
    /// A line for the standard error of the step, sent to all of its daemons; the first of them prints it.
    #[n(0)]
    PrintStepLine(#[n(0)] String),
    /// A line for the standard error of the step, sent to this daemon alone.
    #[n(1)]
    PrintLine(#[n(0)] String),
    /// End this step, or, without a number, any: TERM, after a while KILL. The number keeps a message that was on its
    /// way from the daemon's next step, which an agent may have given meanwhile.
    #[n(5)]
    EndStep(#[n(0)] Option<StepNo>),
    /// Seconds that the tasks of this step may run, from their start on; absent: without end.
    #[n(2)]
    SetTimeLimit(#[n(0)] Option<u64>, #[n(1)] Option<StepNo>),
    /// To a daemon whose step has ended: here is another.
    #[n(3)]
    StartStep(#[n(0)] Box<NextStep>),
    /// To a daemon whose step has ended: there is none, and the launcher has kept the end.
    #[n(4)]
    Exit,
    /// A signal for tasks that have not started: delivered as soon as they run. A daemon of an earlier launcher is not sent it.
    #[n(7)]
    SignalLater(#[n(0)] u32, #[n(1)] Option<StepNo>),
}

impl Message for StepdCommand {}

impl StepdCommand {
    /// The step that it is for; none when it is for any, or from a launcher that does not say.
    pub fn step(&self) -> Option<StepNo> {
        match self {
            StepdCommand::EndStep(step)
            | StepdCommand::SetTimeLimit(_, step)
            | StepdCommand::SignalLater(_, step) => *step,
            StepdCommand::PrintStepLine(_)
            | StepdCommand::PrintLine(_)
            | StepdCommand::StartStep(_)
            | StepdCommand::Exit => None,
        }
    }
}

/// Step daemon to launcher, and to the agent.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub enum StepdEvent {
    /// This step has ended; there may be another.
    #[n(0)]
    StepEnded(#[n(0)] StepNo, #[n(1)] Box<StepEnd>),
    /// To a launcher that did not start it: this it runs.
    #[n(1)]
    StepRunning(#[n(0)] Box<RunningStep>),
}

impl Message for StepdEvent {}

/// The step of a daemon, for a launcher that may not know it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct RunningStep {
    /// The job.
    #[n(0)]
    pub attempt: JobAttempt,
    /// The step.
    #[n(1)]
    pub step: StepNo,
    /// The daemon's process.
    #[n(2)]
    pub pid: i32,
    /// Directories of the step's outside the spool directory.
    #[n(3)]
    pub dirs: Vec<PathBuf>,
    /// See [`NextStep::kept`].
    #[n(4)]
    pub kept: KeptEntries,
    /// The protocol version of the daemon.
    #[n(5)]
    pub greeting: Option<Greeting>,
}

impl StepdEvent {
    /// [`StepdEvent::StepEnded`] as a frame.
    pub fn ended(step: StepNo, end: &StepEnd) -> Vec<u8> {
        frame::encode(&EndedRef::StepEnded(step, end))
    }
}

/// [`StepdEvent::StepEnded`] without a copy of the end.
#[derive(Encode)]
enum EndedRef<'a> {
    #[n(0)]
    StepEnded(#[n(0)] StepNo, #[n(1)] &'a StepEnd),
}

/// Limits for steps of a job on a node. The launcher derives them from the job's sealed grant, and daemons check the
/// agent's orders against them.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct StepBounds {
    /// The job's owner, with all groups.
    #[n(0)]
    pub user: ProcessIdentity,
    /// The job's share of this node.
    #[n(1)]
    pub cpus: CpuSet,
    /// The job's memory on this node, MiB; 0 where memory is not given out.
    #[n(2)]
    pub memory_mib: u64,
    /// The job's devices on this node.
    #[n(3)]
    pub gres: Vec<GresShare>,
    /// Its CPUs by the kernel's numbers, if tasks are bound to CPUs.
    #[n(4)]
    pub threads: Option<CpuSet>,
    /// This node.
    #[n(5)]
    pub node: String,
    /// Numbers of steps are below this.
    #[n(6)]
    pub max_step_count: u32,
    /// Tasks of a step here.
    #[n(7)]
    pub max_tasks: u32,
    /// The job's temporary directory here, if it has one to itself.
    #[n(8)]
    pub tmp_dir: Option<Box<JobTmpDir>>,
}
