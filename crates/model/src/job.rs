//! A job as the cluster knows it: its state, its allocation, its steps.

mod accrual;
mod allocation;
mod array;
mod phase;
mod reason;
mod shares;
mod times;

use crate::account_limits::TresAmount;
use crate::cpuset::CpuSet;
use crate::het::HetPlace;
use crate::ids::{Attempt, JobId, StepNo};
use crate::index_set::IndexSet;
use crate::limits::{
    DEVICE_KINDS_MAX, DEVICE_TEXT_BYTES_MAX, HOSTLIST_BYTES_MAX, PRIORITY_TOP,
    SUBMIT_LINE_BYTES_MAX,
};
use crate::power::PowerUpWait;
use crate::preemption::{PreemptMode, Preempted};
use crate::spec::{DependencyTerm, JobSpec, StdioSpec};
use crate::time::{TimeLimit, Timestamp};
use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::sync::Arc;

pub use self::accrual::Accrual;
pub use self::allocation::{Allocation, GpuEnv, GresShare, MILLION, NodeShare, sum_devices};
pub use self::array::{ArrayInfo, ArrayRole, ArrayTask};
pub use self::phase::Phase;
pub use self::reason::Reason;
pub use crate::usage::{Peak, Peaks, ResourceUsage};

/// One record of the queue: a job, a task of an array, or an array's tasks that have not left it yet.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(context_bound = "crate::shared_spec::SpecCodec")]
pub struct Job {
    /// Its number.
    #[n(0)]
    pub id: JobId,
    /// The specification, with later changes applied.
    #[n(1)]
    #[cbor(with = "crate::shared_spec::field")]
    pub spec: Arc<JobSpec>,
    /// Its part in an array.
    #[n(2)]
    pub array: ArrayRole,
    /// Where it is in its life.
    #[n(3)]
    pub state: JobState,
    /// Its processes are being ended, or nodes have not confirmed that they are gone.
    #[n(4)]
    pub completing: bool,
    /// Why it waits, or why it ended.
    #[n(5)]
    pub reason: Reason,
    /// Its hold.
    #[n(6)]
    pub hold: Hold,
    /// Higher first; 0 when held.
    #[n(7)]
    pub priority: u32,
    /// When it was accepted.
    #[n(8)]
    pub submit_time: Timestamp,
    /// When it could first have run: submission, `--begin`, end of its dependencies.
    #[n(9)]
    pub eligible_time: Option<Timestamp>,
    /// When it got its allocation; the latest time it did if it was requeued.
    #[n(10)]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[n(11)]
    pub end_time: Option<Timestamp>,
    /// Since when it is suspended.
    #[n(12)]
    pub suspend_time: Option<Timestamp>,
    /// Milliseconds it spent suspended in this run, without the current suspension.
    #[n(13)]
    pub suspended_ms: u64,
    /// Number of its requeues (`SLURM_RESTART_COUNT`).
    #[n(14)]
    pub restarts: u32,
    /// The current or latest launch.
    #[n(15)]
    pub attempt: Attempt,
    /// Nodes, CPUs and memory it has, or had when it ran last.
    #[n(16)]
    #[cbor(with = "crate::cbor::opt_arc")]
    pub alloc: Option<Arc<Allocation>>,
    /// Which of the allocation's nodes (positions in `alloc.nodes`) still hold resources for it.
    #[n(17)]
    pub nodes_held: CpuSet,
    /// Exit status: the batch script's or the `salloc` command's; for `srun` the worst step's.
    #[n(18)]
    pub exit: ExitStatus,
    /// The worst status of its steps (`DerivedExitCode`).
    #[n(19)]
    pub derived_exit: ExitStatus,
    /// Limit on its run time.
    #[n(20)]
    pub time_limit: TimeLimit,
    /// Dependencies that are not satisfied yet.
    #[n(21)]
    pub waiting_on: Vec<DependencyTerm>,
    /// Steps that run, by number.
    // Copies of a record share them: some have long texts, and there may be thousands.
    #[n(22)]
    #[cbor(with = "crate::cbor::arcs")]
    pub steps: Vec<Arc<Step>>,
    /// Its state when its nodes are clean: ended, or in the queue again.
    #[n(23)]
    pub after_completing: AfterCompleting,
    /// Uid of who cancelled it.
    #[n(24)]
    pub cancelled_by: Option<u32>,
    /// Partition it runs in, or the first it asked for.
    #[n(25)]
    pub partition: String,
    /// When the warning signal of `--signal` was sent in this run.
    #[n(26)]
    pub warned: bool,
    /// When it ran into its time limit or was ordered to end (TERM sent), for KillWait.
    #[n(27)]
    pub term_time: Option<Timestamp>,
    /// State of `--no-requeue` and friends after updates: whether it may be put back by the system.
    #[n(28)]
    pub requeueable: bool,
    /// `scontrol requeuehold` with `State=SpecialExit`.
    #[n(29)]
    pub special_exit: bool,
    /// When the scheduler looked at it last (`LastSchedEval`).
    #[n(30)]
    pub last_sched_eval: Option<Timestamp>,
    /// Expected start, when the scheduler has one.
    #[n(31)]
    pub expected_start: Option<Timestamp>,
    /// Highest step number given so far plus one.
    #[n(32)]
    pub next_step: u32,
    /// Free text after the reason (`scontrol show job` `Reason=` tail), if any.
    #[n(33)]
    pub reason_detail: Option<String>,
    /// Not to be started before this time: `--begin`, `after:J+minutes`, the back-off of a failed launch. Cleared by
    /// the tick that finds it passed.
    #[n(34)]
    pub begin_at: Option<Timestamp>,
    /// It has its allocation, and `PrologSlurmctld` runs: nothing of it was launched yet.
    #[n(35)]
    #[cbor(default)]
    pub configuring: bool,
    /// Ended at this time whatever its limit says: its reservation ends.
    #[n(37)]
    pub end_by: Option<Timestamp>,
    /// Time since when it could run without its limit of leaf switches (`--switches`).
    #[n(36)]
    pub switch_wait_since: Option<Timestamp>,
    /// Seconds that it is taken to run for planning, fixed at submission; absent where limits alone count.
    #[n(39)]
    #[cbor(default)]
    pub predicted_s: Option<u32>,
    /// Its priority was set and is not worked out.
    #[n(38)]
    #[cbor(default)]
    pub priority_fixed: bool,
    /// The highest priority that was worked out for it, where priorities do not go down (`INCR_ONLY`); else 0.
    #[n(49)]
    #[cbor(default)]
    pub priority_least: u32,
    /// Its place in a heterogeneous job.
    #[n(44)]
    #[cbor(default)]
    pub het: Option<HetPlace>,
    /// It was chosen to make room for another in this run.
    #[n(41)]
    #[cbor(default)]
    pub preempted: Option<Preempted>,
    /// It was stopped: its CPUs are others' to use until it goes on.
    #[n(42)]
    #[cbor(default)]
    pub cpus_released_by_preemption: bool,
    /// It was stopped and goes on in this run: others may have got its CPUs meanwhile, and have them with it now.
    #[n(43)]
    #[cbor(default)]
    pub resumed: bool,
    /// It has its nodes, and some of them are being powered up.
    #[n(40)]
    pub power_up: Option<PowerUpWait>,
    /// It is stopped and waits for its turn on CPUs that others have too, at least until then.
    #[n(45)]
    pub gang_slice_ends: Option<Timestamp>,
    /// When it last gave up nodes in this run.
    #[n(46)]
    pub resize_time: Option<Timestamp>,
    /// Number of times that it gave up nodes, in all its runs.
    #[n(47)]
    #[cbor(default)]
    pub resizes: u32,
    /// The tasks that gain age while it waits, where their number is limited; otherwise all do.
    #[n(48)]
    pub accrual: Option<Box<Accrual>>,
    /// Numbers below `next_step` whose steps were not reported: they are still being made, or never were. Any other one
    /// below it that does not run is over.
    #[n(50)]
    #[cbor(default)]
    pub unreported_steps: IndexSet,
    /// It is stopped because the calendar of its partition says so, and goes on when that says otherwise.
    #[n(51)]
    #[cbor(default)]
    pub stopped_by_calendar: bool,
}

impl Job {
    /// Its state, or the flag in its place, as in listings.
    pub fn shown_state(&self) -> &'static str {
        match self.state {
            _ if self.completing => "COMPLETING",
            JobState::Running if self.configuring => "CONFIGURING",
            JobState::Pending if self.special_exit => "SPECIAL_EXIT",
            state => state.name(),
        }
    }

    /// A new record that waits for nothing yet.
    pub fn new(id: JobId, spec: Arc<JobSpec>, time_limit: TimeLimit, at: Timestamp) -> Job {
        let array = match &spec.array {
            Some(array) => ArrayRole::Pending {
                indices: array.indices.clone(),
            },
            None => ArrayRole::None,
        };
        Job {
            array,
            ..Job::single(id, spec, time_limit, at)
        }
    }

    /// As above, but no array whatever the specification says.
    pub fn single(id: JobId, spec: Arc<JobSpec>, time_limit: TimeLimit, at: Timestamp) -> Job {
        Job {
            id,
            array: ArrayRole::None,
            state: JobState::Pending,
            completing: false,
            reason: Reason::None,
            hold: Hold::None,
            priority: 0,
            submit_time: at,
            eligible_time: None,
            start_time: None,
            end_time: None,
            suspend_time: None,
            suspended_ms: 0,
            restarts: 0,
            attempt: Attempt(0),
            alloc: None,
            nodes_held: Default::default(),
            exit: ExitStatus::default(),
            derived_exit: ExitStatus::default(),
            time_limit,
            waiting_on: Vec::new(),
            steps: Vec::new(),
            after_completing: AfterCompleting::End,
            cancelled_by: None,
            partition: spec.partitions.first().cloned().unwrap_or_default(),
            warned: false,
            term_time: None,
            requeueable: false,
            special_exit: false,
            last_sched_eval: None,
            expected_start: None,
            next_step: 0,
            unreported_steps: IndexSet::default(),
            reason_detail: None,
            begin_at: spec.begin.filter(|begin| *begin > at),
            configuring: false,
            power_up: None,
            end_by: None,
            switch_wait_since: None,
            resize_time: None,
            resizes: 0,
            accrual: None,
            predicted_s: None,
            priority_fixed: spec.priority.is_some_and(|p| p > 0),
            priority_least: 0,
            het: None,
            preempted: None,
            cpus_released_by_preemption: false,
            gang_slice_ends: None,
            stopped_by_calendar: false,
            resumed: false,
            spec,
        }
    }

    /// Whether the scheduler may start it now, as far as the job itself is concerned: pending, not held, no
    /// dependency left, its time come. Throttles of arrays and partitions are checked by the scheduler.
    #[inline]
    pub fn is_startable(&self) -> bool {
        self.state == JobState::Pending
            && !self.completing
            && self.hold == Hold::None
            && self.waiting_on.is_empty()
            && self.begin_at.is_none()
    }

    /// Whether this step runs or has run: a further report of its start changes nothing.
    pub fn knows_step(&self, step: StepNo) -> bool {
        let counted = step < StepNo::INTERACTIVE && step.0 < self.next_step;
        (counted && !self.unreported_steps.contains(step.0))
            || self.steps.iter().any(|s| s.step == step)
    }

    /// Whether it has ended and nothing of it is left on a node.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.state.is_ended() && !self.completing
    }

    /// The number of all that were submitted with it: the heterogeneous job's or the array's, else its own.
    #[inline]
    pub fn submitted_as(&self) -> JobId {
        self.het
            .map_or_else(|| self.submission(), |part| part.leader)
    }

    /// Its shares of the nodes that it still holds, with the allocation they are of.
    pub fn held(&self) -> impl Iterator<Item = (&NodeShare, &Allocation)> {
        let alloc = self.alloc.as_deref();
        let shares = alloc.into_iter().flat_map(|alloc| {
            let by_position = (0u32..).zip(&alloc.nodes);
            by_position.map(move |(position, share)| (position, share, alloc))
        });
        shares
            .filter(|(position, ..)| self.nodes_held.contains(*position))
            .map(|(_, share, alloc)| (share, alloc))
    }

    /// Milliseconds it has run, without suspensions, at `now`; to its end if it has ended.
    pub fn run_time_ms(&self, now: Timestamp) -> u64 {
        let Some(start) = self.start_time else {
            return 0;
        };
        let until = self.end_time.or(self.suspend_time).unwrap_or(now);
        until.since_ms(start).saturating_sub(self.suspended_ms)
    }

    /// Whether it is stopped because others that have its CPUs too have their turn.
    pub fn waits_for_turn(&self) -> bool {
        self.state == JobState::Suspended && self.gang_slice_ends.is_some()
    }

    /// Whether it goes on by itself when its CPUs are free.
    pub fn is_stopped_for_another(&self) -> bool {
        let by_preemption = |p: &Preempted| p.mode == PreemptMode::Suspend;
        self.state == JobState::Suspended && self.preempted.as_ref().is_some_and(by_preemption)
    }

    /// The priority that it has when nobody holds it: as asked for, else less for later submissions. Where run times
    /// are predicted, a job's place is that of a later submission by four times its predicted run time, a day at most:
    /// short jobs pass long ones, and none is passed by jobs that are submitted more than a day after it.
    pub fn default_priority(&self) -> u32 {
        match self.spec.priority {
            Some(priority) if priority > 0 => priority,
            Some(_) | None => self.usual_priority(),
        }
    }

    /// As above, whatever priority was asked for.
    pub fn usual_priority(&self) -> u32 {
        let number = u32::try_from(self.submitted_as().0).unwrap_or(u32::MAX);
        let later = match self.predicted_s {
            Some(run_s) => {
                let since_2020 = self.submit_time.unix_s() - 1_577_836_800;
                let submitted = u32::try_from(since_2020.max(0)).unwrap_or(u32::MAX);
                submitted.saturating_add(run_s.saturating_mul(4).min(86_400))
            }
            None => number,
        };
        let by_age = i64::from(PRIORITY_TOP.saturating_sub(later));
        let nice = by_age - i64::from(self.spec.nice);
        u32::try_from(nice.clamp(1, i64::from(PRIORITY_TOP))).unwrap_or(1)
    }
}

/// Slurm's base job states, squeue(1) "JOB STATE CODES". `CONFIGURING`, `COMPLETING`, `SPECIAL_EXIT` and
/// `REQUEUE_HOLD` are flags beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum JobState {
    /// Waits for resources, a time, a dependency or a release.
    #[n(0)]
    Pending,
    /// Has its allocation.
    #[n(1)]
    Running,
    /// Has an allocation, but its processes are stopped and its CPUs may be given to others.
    #[n(2)]
    Suspended,
    /// Ended with exit code 0.
    #[n(3)]
    Completed,
    /// Ended by a user or administrator.
    #[n(4)]
    Cancelled,
    /// Ended with another exit code or by a signal.
    #[n(5)]
    Failed,
    /// Ended by its time limit.
    #[n(6)]
    Timeout,
    /// Ended by the loss of a node.
    #[n(7)]
    NodeFail,
    /// Ended to make room for another.
    #[n(8)]
    Preempted,
    /// Could not be launched.
    #[n(9)]
    BootFail,
    /// Its `--deadline` passed.
    #[n(10)]
    Deadline,
    /// Ran out of memory.
    #[n(11)]
    OutOfMemory,
}

impl JobState {
    /// All states, in order.
    pub const ALL: [JobState; 12] = [
        JobState::Pending,
        JobState::Running,
        JobState::Suspended,
        JobState::Completed,
        JobState::Cancelled,
        JobState::Failed,
        JobState::Timeout,
        JobState::NodeFail,
        JobState::Preempted,
        JobState::BootFail,
        JobState::Deadline,
        JobState::OutOfMemory,
    ];

    /// Whether the job will not run (again).
    #[inline]
    pub fn is_ended(self) -> bool {
        !matches!(
            self,
            JobState::Pending | JobState::Running | JobState::Suspended
        )
    }

    /// The long name, as `squeue %T`.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Pending => "PENDING",
            JobState::Running => "RUNNING",
            JobState::Suspended => "SUSPENDED",
            JobState::Completed => "COMPLETED",
            JobState::Cancelled => "CANCELLED",
            JobState::Failed => "FAILED",
            JobState::Timeout => "TIMEOUT",
            JobState::NodeFail => "NODE_FAIL",
            JobState::Preempted => "PREEMPTED",
            JobState::BootFail => "BOOT_FAIL",
            JobState::Deadline => "DEADLINE",
            JobState::OutOfMemory => "OUT_OF_MEMORY",
        }
    }

    /// The short code, as `squeue %t`.
    pub fn code(self) -> &'static str {
        match self {
            JobState::Pending => "PD",
            JobState::Running => "R",
            JobState::Suspended => "S",
            JobState::Completed => "CD",
            JobState::Cancelled => "CA",
            JobState::Failed => "F",
            JobState::Timeout => "TO",
            JobState::NodeFail => "NF",
            JobState::Preempted => "PR",
            JobState::BootFail => "BF",
            JobState::Deadline => "DL",
            JobState::OutOfMemory => "OOM",
        }
    }
}

/// The next state of a completing job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum AfterCompleting {
    /// It has ended.
    #[default]
    #[n(0)]
    End,
    /// It goes back to the queue.
    #[n(1)]
    Requeue {
        /// And waits there for a release (`scontrol requeuehold`).
        #[n(0)]
        hold: bool,
    },
}

/// The hold of a pending job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Hold {
    /// Nobody.
    #[default]
    #[n(0)]
    None,
    /// Its owner (`scontrol uhold`, `sbatch --hold`): `JobHeldUser`.
    #[n(1)]
    User,
    /// An administrator: `JobHeldAdmin`. Its owner cannot release it.
    #[n(2)]
    Admin,
}

/// A wait status taken apart: `code:signal`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate,
)]
pub struct ExitStatus {
    /// Exit code, 0 to 255.
    #[n(0)]
    pub code: u32,
    /// Signal that ended the process, 0 if none.
    #[n(1)]
    pub signal: u32,
}

impl ExitStatus {
    /// Whether it means success.
    pub fn is_ok(self) -> bool {
        self == ExitStatus::default()
    }

    /// The status as a shell has it: the exit code, or 128 and the signal's number. The worst of several is the greatest. An agent
    /// of another node may report any number.
    pub fn shell_code(self) -> u32 {
        match self.signal {
            0 => self.code,
            signal => signal.saturating_add(128),
        }
    }
}

/// A step, running or just ended.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct Step {
    /// Its number.
    #[n(0)]
    pub step: StepNo,
    /// `--job-name` of the srun, the program's name by default; `batch` for the script.
    #[n(1)]
    pub name: String,
    /// Node names as a hostlist.
    #[n(2)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub hostlist: String,
    /// Number of nodes.
    #[n(3)]
    pub nodes: u32,
    /// Number of tasks.
    #[n(4)]
    pub tasks: u32,
    /// CPUs over all nodes.
    #[n(5)]
    pub cpus: u32,
    /// Memory over all nodes, MiB.
    #[n(6)]
    pub memory_mib: u64,
    /// When it started.
    #[n(7)]
    pub start_time: Timestamp,
    /// Its files, for listings.
    #[n(8)]
    pub stdio: StdioSpec,
    /// The command line, for accounting.
    #[n(9)]
    #[valid(max_bytes = SUBMIT_LINE_BYTES_MAX)]
    pub submit_line: String,
    /// Time limit of its own, if any.
    #[n(10)]
    pub time_limit: Option<TimeLimit>,
    /// Distribution of its tasks, as listings show it.
    #[n(11)]
    pub distribution: Option<String>,
    /// The srun that made it.
    #[n(12)]
    #[cbor(default)]
    pub maker: Option<StepMaker>,
    /// Devices that it has over all nodes, by the names of their TRES (`gres/gpu`, `gres/gpu:a100`).
    #[n(13)]
    #[cbor(default)]
    #[valid(max_items = 2 * DEVICE_KINDS_MAX)]
    pub devices: Vec<TresAmount>,
    /// The devices that were asked for, if any were.
    #[n(14)]
    #[cbor(default)]
    pub device_ask: Option<Box<StepDeviceAsk>>,
}

/// The devices that a step was asked to have, its CPUs, and resources that are counted by device. Each is text as listings
/// show it: `cpu:2,gres/gpu:1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct StepDeviceAsk {
    /// `--cpus-per-gpu`.
    #[n(0)]
    #[valid(max_bytes = DEVICE_TEXT_BYTES_MAX)]
    pub cpus_per_device: Option<String>,
    /// `--mem-per-gpu`, in MiB.
    #[n(1)]
    #[valid(max_bytes = DEVICE_TEXT_BYTES_MAX)]
    pub memory_per_device: Option<String>,
    /// `--gpu-bind`, or implied by other options.
    #[n(2)]
    #[valid(max_bytes = DEVICE_TEXT_BYTES_MAX)]
    pub bind: Option<String>,
    /// CPUs of all tasks, and `--gpus`.
    #[n(3)]
    #[valid(max_bytes = DEVICE_TEXT_BYTES_MAX)]
    pub per_step: Option<String>,
    /// `--gres`, `--gpus-per-node`.
    #[n(4)]
    #[valid(max_bytes = DEVICE_TEXT_BYTES_MAX)]
    pub per_node: Option<String>,
    /// `--gpus-per-socket`.
    #[n(5)]
    #[valid(max_bytes = DEVICE_TEXT_BYTES_MAX)]
    pub per_socket: Option<String>,
    /// `--cpus-per-task`, `--gpus-per-task`.
    #[n(6)]
    #[valid(max_bytes = DEVICE_TEXT_BYTES_MAX)]
    pub per_task: Option<String>,
}

impl StepDeviceAsk {
    /// The texts that there are, by the names that listings give them, in their order.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("CpusPerTres", &self.cpus_per_device),
            ("MemPerTres", &self.memory_per_device),
            ("TresBind", &self.bind),
            ("TresPerStep", &self.per_step),
            ("TresPerNode", &self.per_node),
            ("TresPerSocket", &self.per_socket),
            ("TresPerTask", &self.per_task),
        ];
        (all.into_iter()).filter_map(|(name, text)| Some((name, text.as_deref()?)))
    }
}

/// The process that made a step.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct StepMaker {
    /// Where it runs.
    #[n(0)]
    pub host: String,
    /// Its number there.
    #[n(1)]
    pub pid: u32,
}

/// End of a step.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct StepEnd {
    /// When.
    #[n(0)]
    pub end_time: Timestamp,
    /// The worst task's status.
    #[n(1)]
    pub exit: ExitStatus,
    /// `Completed`, `Failed`, `Cancelled`, `Timeout`, `OutOfMemory` or `NodeFail`.
    #[n(2)]
    pub state: JobState,
    /// The use of its tasks.
    #[n(3)]
    pub usage: ResourceUsage,
    /// Uid of who cancelled it.
    #[n(4)]
    pub cancelled_by: Option<u32>,
    /// The last lines of the script's standard error, for mails: of batch steps of jobs that ask for it (`--mail-lines`).
    #[n(5)]
    pub last_lines: Option<String>,
}

impl StepEnd {
    /// The end of what never ran: failed.
    pub fn never_ran(end_time: Timestamp) -> StepEnd {
        StepEnd {
            end_time,
            exit: ExitStatus { code: 1, signal: 0 },
            state: JobState::Failed,
            usage: ResourceUsage::default(),
            cancelled_by: None,
            last_lines: None,
        }
    }
}
