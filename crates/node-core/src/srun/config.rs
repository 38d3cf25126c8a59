//! The configuration of srun from its options, its environment and the site.

use muster_model::ids::JobId;
use muster_proto::step::StepSpec;

/// Where one output stream of the tasks goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// srun's own stream.
    Own,
    /// srun's own stream, but only of this task.
    OwnOf(u32),
    /// A file that srun opens; the pattern has nothing that differs by task.
    File(String),
    /// Files that the nodes open.
    Nodes,
}

/// Where srun's input for the tasks comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputSource {
    /// srun's own standard input.
    Own,
    /// A file.
    File(String),
    /// Nothing, or files that the nodes open.
    Nothing,
}

/// The three standard streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Input.
    pub stdin: InputSource,
    /// Output.
    pub stdout: Sink,
    /// Error output.
    pub stderr: Sink,
}

/// Way in which an agent is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lead {
    /// It listens here, on this host. If it does not, the controller knows the address.
    Local(String),
    /// The controller knows the address, and the key of the job.
    Unknown,
    /// It is known from the allocation that srun holds.
    At(String),
    /// The address is known; the controller has the key by which the agent knows srun even if the controller's own order is still
    /// on its way.
    Component(String),
}

/// A part of a step: the step itself, or its share in one component of a heterogeneous job.
#[derive(Clone, Debug)]
pub struct StepComponent {
    /// The request for the part.
    pub spec: Box<StepSpec>,
    /// The agent to ask.
    pub lead: Lead,
}

/// Where the number of a step comes from whose job is heterogeneous: numbers of steps are the whole job's.
#[derive(Clone, Debug)]
pub struct NumberSource {
    /// The first component.
    pub leader: JobId,
    /// The agent of its first node.
    pub lead: Lead,
}

/// Options about a running step.
#[derive(Clone, Debug, Default)]
pub struct StepRules {
    /// `--kill-on-bad-exit`: one task that fails ends all.
    pub kill_on_bad_exit: bool,
    /// `--kill-on-bad-exit=0`: tasks go on even where they wait for one that is gone.
    pub keeps_going: bool,
    /// `--wait`: seconds after the first end; 0 is no limit.
    pub wait_s: u32,
    /// `--disable-status`: the first Ctrl-C is the tasks'.
    pub disable_status: bool,
    /// `--quit-on-interrupt`: the first Ctrl-C ends the step.
    pub quit_on_interrupt: bool,
    /// `--label`: lines begin with the number of their task.
    pub label: bool,
    /// `SLURM_SRUN_REDUCE_TASK_EXIT_MSG`: equal ends are printed once.
    pub print_once: bool,
    /// `--prolog`: a program that srun runs first.
    pub prolog: Option<String>,
    /// `--epilog`: one that it runs last.
    pub epilog: Option<String>,
    /// `KillWait`: seconds between TERM and KILL.
    pub kill_wait_s: u32,
}

/// Exit codes that are not a task's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCodes {
    /// Exit code for errors: 1, or `SLURM_EXIT_ERROR`.
    pub error: u8,
    /// Exit code for a step that must start at once and cannot: `SLURM_EXIT_IMMEDIATE`.
    pub immediate: Option<u8>,
}

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct SrunConfig {
    /// `--quiet`: errors only.
    pub quiet: bool,
    /// `--verbose`.
    pub verbose: bool,
    /// About the running step.
    pub rules: StepRules,
    /// The targets of the streams. Those of the first part apply to all parts.
    pub streams: Streams,
    /// Exit codes.
    pub exit_codes: ExitCodes,
    /// srun holds the allocation, and ends it.
    pub has_allocation: bool,
    /// Nobody would notice that the only task reads and writes srun's own streams.
    pub can_pass_stdio: bool,
    /// The step has a number of the whole heterogeneous job.
    pub number: Option<NumberSource>,
    /// Parts in order; the first one's job names the step.
    pub parts: Vec<StepComponent>,
}
