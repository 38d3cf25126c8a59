//! Events and actions of the launcher. Actions are carried out in order, and the result of an action is the next
//! event, before other events.

use super::end::EncodedEnd;
use super::records::RecordedAttempt;
use crate::binding::Machine;
use crate::cgroup::Confinement;
use crate::messages::{
    AttachAgent, FirstOrder, KeptEntries, LauncherCommand, LauncherEvent, ProcessIdentity,
    RunningStep, StepOrder, StepdCommand,
};
use crate::{JobTmpDir, PrologEpilog};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_model::environment::Environment;
use muster_model::ids::{AttemptStep, BlobId, JobAttempt, JobId, StepNo};
use muster_model::job::{ResourceUsage, StepEnd};
use muster_model::spec::SoftLimit;
use muster_model::validate::Validate;
use muster_proto::node::{MemoryCount, NodeSettings};
use muster_trust::KEY;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::rc::Rc;

/// A connection to a step daemon, which the executor holds until [`Action::CloseStepd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepdConnId(pub u64);

/// A connection of root's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootConnId(pub u64);

/// Why something could not be started or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In words.
    pub error: String,
    /// The launcher lacked a resource that may be available again soon, such as descriptors, processes or disk space.
    pub is_temporary: bool,
}

/// A failure to start a script, before its program was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFailure {
    /// The node is at fault.
    pub is_nodes: bool,
    /// In words.
    pub error: String,
}

/// An event.
#[derive(Debug)]
pub enum Event {
    /// The launcher begins: what an earlier one has left.
    Recovered(Box<Recovered>),
    /// Root has given a connection to an agent; and the machine, if [`super::Launcher::needs_machine`] said so.
    Attached(Box<AttachAgent>, Option<Box<Machine>>),
    /// No agent is connected.
    AgentLost,
    /// Root wants this process to end.
    StopRequested {
        /// The connection that sent the request.
        conn: RootConnId,
        /// Kill all jobs.
        kill: bool,
    },
    /// SIGTERM: end once no job has processes.
    ExitWhenIdle,
    /// SIGUSR1: kill all jobs, then end.
    KillAll,
    /// [`LauncherCommand::OpenSession`], and random bytes for a key.
    OpenSession(Result<[u8; KEY], String>),
    /// [`LauncherCommand::Sealed`], and the local time, as people read it.
    Sealed {
        /// See [`LauncherCommand::Sealed`].
        orders: ByteVec,
        /// The controller's seal of the orders.
        seal: ByteVec,
        /// `YYYY-MM-DDTHH:MM:SS`.
        local_time: String,
    },
    /// [`LauncherCommand::StartStep`].
    StartStep {
        /// The order for the daemon.
        order: Box<StepOrder>,
        /// A random number, for names that nobody can guess, if the kernel has given one.
        random: Option<u64>,
    },
    /// Any other command of the agent's.
    Command(LauncherCommand),
    /// To [`Action::CheckControllerKey`]: why it is not the key that this node knows, if it is not.
    ControllerKeyChecked(Result<(), String>),

    /// A child ended, also one that was adopted.
    ChildEnded {
        /// The process.
        pid: i32,
        /// Wait status.
        status: i32,
        /// Its resource usage.
        usage: Box<ResourceUsage>,
        /// It ended before it executed its script.
        failure: Option<ScriptFailure>,
    },
    /// The number of processes of a job's script that the kernel killed for lack of memory. Comes before the script's
    /// end.
    ScriptOutOfMemory(JobAttempt, u64),
    /// Processes of a job that were killed are gone from its control groups.
    GroupsEmptied,
    /// A process ended that is watched and no child.
    WatchedEnded {
        /// The process.
        pid: i32,
        /// Wait status, if anybody knows it.
        status: Option<i32>,
    },
    /// To [`Action::PrepareLaunch`].
    LaunchPrepared(JobAttempt, Result<LaunchFiles, Failure>),
    /// To [`Action::StartScript`]: the process.
    ScriptStarted(JobAttempt, Result<i32, ScriptNotStarted>),
    /// To [`Action::StartPrograms`], [`Action::MakeContainer`], [`Action::RemoveContainer`]: the process.
    ProgramsStarted(JobAttempt, JobProgramKind, Result<i32, Failure>),
    /// To [`Action::StartMessage`]: the process.
    MessageStarted(JobAttempt, MessageKind, Result<i32, String>),
    /// To [`Action::RemoveDirs`]: the process.
    RemovalStarted(JobAttempt, i32),
    /// To [`Action::StartSiteProgram`]: the process.
    SiteProgramStarted(SiteProgram, Result<i32, String>),
    /// To [`Action::StartStepd`].
    StepdStarted(JobAttempt, StepNo, Result<StartedStepd, String>),
    /// To [`Action::GiveStep`]: whether the daemon has it.
    StepGiven(JobAttempt, StepNo, bool),

    /// A step daemon that the launcher listens to reports the end of this step.
    StepEnded(StepdConnId, StepNo, EncodedEnd),
    /// A step daemon has closed its connection.
    StepdClosed(StepdConnId),
    /// To [`Action::SendStepd`]: the daemon does not take it.
    NotSent(StepdConnId, StepdCommand),
    /// Answer to [`Action::AskStepds`]: a daemon, the address of its socket, and the step that it runs.
    StepdRunning(StepdConnId, PathBuf, Box<RunningStep>),
    /// To [`Action::AskStepds`]: all that answer at once have answered; also later, when one will not answer any more.
    StepdsAsked,
    /// Answer to [`Action::WatchStepd`]: the job of the process by its audit session, if the process exists. It is
    /// watched then.
    StepdWatched(JobAttempt, StepNo, i32, Option<ProcessOwner>),
    /// To [`Action::ReadResult`].
    ResultRead {
        /// The job.
        attempt: JobAttempt,
        /// The step.
        step: StepNo,
        /// The purpose for which the result was read.
        purpose: ResultPurpose,
        /// The contents of the result file.
        result: Option<StepResult>,
    },
    /// To [`Action::ListResults`].
    ResultsListed(Vec<AttemptStep>),
    /// To [`Action::SignalStep`]: there was no process that could get this signal.
    StepHasNoTasks(JobAttempt, StepNo, i32),

    /// To [`Action::AppendRecords`].
    RecordsAppended(Result<(), Failure>),
    /// To [`Action::RewriteRecords`].
    RecordsRewritten(Result<(), String>),
    /// To [`Action::LookUpGroups`]; only the primary one where they cannot be found out.
    GroupsFound(UserAccount, Vec<u32>),
    /// To [`Action::ReadLastLines`]: the end of the file, as the job's user could read it.
    LastLinesRead(JobAttempt, Vec<u8>),
    /// To [`Action::Measure`]: nothing if it failed.
    Measured(u64, Option<Vec<u8>>),
    /// To [`Action::FindLeftovers`].
    LeftoversFound {
        /// The remaining processes of each job.
        left: Vec<Leftovers>,
        /// There are further processes that cannot be assigned to a job.
        is_unclear: bool,
        /// When the search began.
        since_ms: u64,
    },
    /// A timer is due.
    TimerDue(Timer),
    /// All events of a wake-up of the process were delivered. Repeated until no actions result.
    WakeUpEnded,
}

/// The remains of an earlier launcher.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Its record file.
    pub attempts: BTreeMap<JobAttempt, RecordedAttempt>,
    /// The machine has not rebooted since.
    pub same_boot: bool,
    /// The settings that it had kept.
    pub settings: Option<NodeSettings>,
    /// Recorded processes that still exist, with their start times, milliseconds since boot. They are watched from
    /// now on.
    pub processes: BTreeMap<i32, u64>,
    /// Scripts that have noted themselves.
    pub scripts: BTreeMap<JobAttempt, i32>,
}

/// Files of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchFiles {
    /// Path of the job's script.
    pub script: Option<String>,
    /// Programs that the pattern of `Prolog` fits.
    pub prolog: Vec<String>,
    /// Programs that the pattern of `Epilog` fits.
    pub epilog: Vec<String>,
}

/// Why the process of a script was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptNotStarted {
    /// The job is at fault.
    Wrong(String),
    /// The launcher lacks something, or the node is at fault.
    Failed(Failure),
}

/// A step daemon that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedStepd {
    /// The connection to it.
    pub stepd: StepdConnId,
    /// The process id.
    pub pid: i32,
    /// Where it listens for the step's other nodes.
    pub mesh_address: Option<String>,
}

/// A user, as groups are looked up by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserAccount {
    /// The user's name.
    pub name: String,
    /// The primary group.
    pub gid: u32,
}

/// A question about processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum ProcessQuery {
    /// Memory and CPU use of tasks, with memory counted so. `None`: the peak of resident memory.
    #[n(0)]
    Usage(#[n(0)] Option<MemoryCount>),
    /// The list of processes.
    #[n(1)]
    List,
}

/// From which all processes of a job come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobProcesses {
    /// The process of the script.
    pub script: Option<i32>,
    /// The step daemons, which do not count as processes of the job.
    pub daemons: Vec<DaemonProcess>,
}

/// The process of a step daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonProcess {
    /// The step that it runs.
    pub step: StepNo,
    /// Number of the process.
    pub pid: i32,
}

/// Programs of the site around a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobProgramKind {
    /// `Prolog`.
    Prolog,
    /// `Epilog`, with the wait status of the job's script.
    Epilog(Option<i32>),
    /// `UnkillableStepProgram`.
    Unkillable,
    /// The launcher's own, which makes directories of a job.
    Container,
    /// A process that removes private directories.
    ContainerRemoval,
}

/// Programs of the site that have to do with the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiteProgram {
    /// `HealthCheckProgram`.
    HealthCheck,
    /// `RebootProgram`.
    Reboot,
}

/// The consequence of a message to a job's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageKind {
    /// Nothing.
    Notice,
    /// The script is asked to end.
    BeforeTerm,
    /// The script is killed.
    BeforeKill,
}

/// The contents of a result file, by which a step daemon leaves how its step ended.
#[derive(Clone, Debug, PartialEq)]
pub struct StepResult {
    /// The end.
    pub end: StepEnd,
    /// The entries that the launcher is to keep of the step, which it may not know.
    pub kept: KeptEntries,
}

/// The purpose for which the result of a step is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultPurpose {
    /// The daemon has ended.
    DaemonEnded,
    /// The daemon has gone on to another step.
    DaemonWentOn,
    /// The agent has given it to a daemon that is not there.
    Assigned,
    /// It is on no file.
    Found,
}

/// A timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Kill the remaining processes of a job.
    Kill(JobAttempt),
    /// Retry a launch or a program for which a resource was missing.
    Retry(JobAttempt),
    /// A job is stopped to which that was announced.
    Stop(JobAttempt),
    /// The programs around a job have run for too long.
    Programs(JobAttempt),
    /// A process that writes a message of a job or removes its directories is late.
    Writer(JobAttempt, i32),
    /// A look-up of groups is late.
    LookUp(UserAccount),
    /// A measurement is late.
    Measurement(u64),
    /// The process that reads the last lines of a script's standard error is late.
    LastLines(JobAttempt),
    /// More signals wait than a wake-up delivers.
    Signals,
    /// `HealthCheckProgram` is run.
    HealthCheck,
    /// A program of the site has run for too long.
    SiteProgram(i32),
}

/// A job whose processes are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSearch {
    /// The job.
    pub attempt: JobAttempt,
    /// It is root's, whose processes may leave their session.
    pub is_roots: bool,
    /// An earlier launcher has begun it: its processes are no descendants of this one.
    pub is_recovered: bool,
}

/// Processes of a job that are no longer below any that the launcher knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    /// The job.
    pub attempt: JobAttempt,
    /// Numbers of the processes; none if the job has left none.
    pub pids: Vec<i32>,
}

/// The properties of a process that decide which job it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTraits {
    /// Its job by its audit session.
    pub belongs: ProcessOwner,
    /// Its session.
    pub session: Option<i32>,
    /// Its user id.
    pub uid: Option<u32>,
}

/// The owner of a process by its audit session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessOwner {
    /// A job.
    To(JobAttempt),
    /// A program of the site's started it.
    ToSite,
    /// The kernel has no audit sessions.
    #[default]
    Unknown,
}

/// A batch script's process.
#[derive(Debug)]
pub struct ScriptLaunch {
    /// The job.
    pub attempt: JobAttempt,
    /// The user of the process.
    pub user: Rc<ProcessIdentity>,
    /// The script's path.
    pub script: String,
    /// Arguments after the script's name.
    pub args: Vec<String>,
    /// The submitter's environment.
    pub context: Rc<super::context::Context>,
    /// Variables of this job; none of them is in the context.
    pub env: Environment,
    /// Working directory.
    pub work_dir: String,
    /// File for standard input, relative to the working directory.
    pub stdin: String,
    /// File for standard output.
    pub stdout: String,
    /// Joined to standard output when absent.
    pub stderr: Option<String>,
    /// Append to the files.
    pub append: bool,
    /// Soft limits.
    pub limits: Vec<SoftLimit>,
    /// CPUs that it may run on, by the kernel's numbers.
    pub cpus: Option<CpuSet>,
    /// The job's control group limits.
    pub confinement: Option<Box<Confinement>>,
    /// The file of its mount namespace.
    pub namespace: Option<PathBuf>,
    /// The job's private temporary directory, if it has one: `TMPDIR` and `TMP` are then not in the environment.
    pub tmp_dir: Option<JobTmpDir>,
}

/// A job's script as a file.
#[derive(Debug)]
pub struct ScriptFile {
    /// The identifier of the text.
    pub id: BlobId,
    /// Owner of the script.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// The text of the script.
    pub text: Rc<[u8]>,
}

/// An action.
#[derive(Debug)]
pub enum Action {
    /// A line for the log.
    Log(String),
    /// Send [`Event::TimerDue`] at this time since boot; the time that was set before does not count any more.
    SetTimer(Timer, u64),
    /// Do not.
    StopTimer(Timer),
    /// Append to the record file: everything or nothing.
    AppendRecords(Rc<Vec<u8>>),
    /// Replace the record file.
    RewriteRecords(Vec<u8>),
    /// Send to the agent, with the end of the wake-up.
    SendAgent(LauncherEvent),
    /// Answer root.
    Answer(RootConnId, LauncherEvent),
    /// Keep the settings for a launcher that has to do without the controller.
    KeepSettings(Vec<u8>),
    /// Compare this key with the pinned key of the cluster's controller; the first key is pinned.
    CheckControllerKey {
        /// The cluster.
        cluster: String,
        /// The key.
        key: Vec<u8>,
    },

    /// Write a job's script, and expand patterns of programs.
    PrepareLaunch {
        /// The job.
        attempt: JobAttempt,
        /// The script.
        script: Option<ScriptFile>,
        /// `Prolog`.
        prolog: Option<String>,
        /// `Epilog`.
        epilog: Option<String>,
    },
    /// Remove all scripts but these.
    KeepScripts(HashSet<(BlobId, u32)>),
    /// Remove a script, of all users.
    DropScript(BlobId),
    /// Start a batch script.
    StartScript(Box<ScriptLaunch>),
    /// Start programs of the site around a job, one after the other.
    StartPrograms {
        /// The job.
        attempt: JobAttempt,
        /// The kind of program.
        kind: JobProgramKind,
        /// The programs.
        programs: Vec<String>,
        /// The environment of the programs, as `NAME=value`.
        env: Vec<String>,
    },
    /// Make the directories that a job has to itself, and its mount namespace.
    MakeContainer(JobAttempt, Box<PrologEpilog>),
    /// Remove them.
    RemoveContainer(JobAttempt, Box<PrologEpilog>),
    /// Remove directories of jobs that are not in the list.
    SweepContainers {
        /// The directory that they are in.
        base: PathBuf,
        /// Names of the files to keep.
        kept: BTreeSet<String>,
    },
    /// Have the temporary directory of a job that is over removed, in time, by a process of its user's for which nobody waits.
    RemoveTmpDir(JobTmpDir),
    /// Write lines into a file of a job's, as its user, which may not come to its end.
    StartMessage {
        /// The job.
        attempt: JobAttempt,
        /// The consequence of the message.
        kind: MessageKind,
        /// The user.
        user: Rc<ProcessIdentity>,
        /// The job's working directory.
        work_dir: String,
        /// The file.
        path: String,
        /// The lines.
        line: String,
        /// The file of the job's mount namespace.
        namespace: Option<PathBuf>,
    },
    /// Read the last lines of a script's standard error, as its user, which may not come to its end.
    ReadLastLines {
        /// The job.
        attempt: JobAttempt,
        /// The user.
        user: Rc<ProcessIdentity>,
        /// The job's working directory.
        work_dir: String,
        /// The file.
        path: String,
        /// The file of the job's mount namespace.
        namespace: Option<PathBuf>,
    },
    /// Kill the process that does so.
    StopLastLines(JobAttempt),
    /// Start a program of the site.
    StartSiteProgram {
        /// The program.
        kind: SiteProgram,
        /// The program.
        program: String,
        /// The environment of the program, as `NAME=value`.
        env: Vec<String>,
    },
    /// Remove directories in which users could write.
    RemoveDirs {
        /// The job.
        attempt: JobAttempt,
        /// Owner of the directories.
        user: u32,
        /// The directories.
        dirs: Vec<PathBuf>,
    },
    /// Ask for the groups of a user.
    LookUpGroups(UserAccount),
    /// Kill the look-up.
    StopLookUp(UserAccount),
    /// Have a job measured.
    Measure {
        /// Names the measurement.
        id: u64,
        /// The question.
        wanted: ProcessQuery,
        /// The job's processes.
        of: JobProcesses,
    },
    /// Kill the measurement.
    StopMeasurement(u64),

    /// Start a step daemon: with a socket there, with a control channel to the agent, which gets the other end once the daemon has
    /// its, and with a listener for other nodes.
    StartStepd {
        /// The order for the daemon, without `has_wire`.
        order: Box<FirstOrder>,
        /// Where it listens for srun.
        socket: PathBuf,
        /// Address of the listener for the step's other nodes.
        listen: Option<String>,
        /// The job's control group limits.
        confinement: Option<Box<Confinement>>,
        /// The file of its mount namespace.
        namespace: Option<PathBuf>,
    },
    /// Give a step, and a control channel to the agent, to a daemon that has had one.
    GiveStep {
        /// The job.
        attempt: JobAttempt,
        /// The step.
        step: StepNo,
        /// The daemon.
        stepd: StepdConnId,
        /// The order.
        frame: Vec<u8>,
    },
    /// Send to a step daemon, which may not read any more.
    SendStepd(StepdConnId, StepdCommand),
    /// Deliver the daemon's reports as events, and those that have arrived already at once.
    ListenTo(StepdConnId),
    /// Leave further reports unread.
    StopListening(StepdConnId),
    /// Close the connection.
    CloseStepd(StepdConnId),
    /// Remove a step daemon's socket.
    RemoveSocket(PathBuf),
    /// Remove a step's result.
    RemoveResult(JobAttempt, StepNo),
    /// Read a step's result.
    ReadResult(JobAttempt, StepNo, ResultPurpose),
    /// List the results of steps.
    ListResults,
    /// Ask the step daemons that listen on these sockets which step they run; without sockets, all in the spool
    /// directory, which earlier launchers started.
    AskStepds(Option<Vec<PathBuf>>),
    /// Remove files of steps of all other jobs.
    RemoveFilesOfOthers(BTreeSet<JobId>),
    /// Watch a step daemon that an earlier launcher has started.
    WatchStepd(JobAttempt, StepNo, i32),
    /// Do not watch a process.
    Unwatch(i32),

    /// Signal a process: a child, or one that is watched.
    Signal(i32, i32),
    /// Signal the process group of a child.
    SignalGroup(i32, i32),
    /// Signal a job's script, the processes that have left it, and everything below them.
    SignalScript {
        /// The job.
        of: ProcessSearch,
        /// The script.
        script: Option<i32>,
        /// The signal.
        signal: i32,
        /// The steps of the job get the signal, too: an srun among these processes need not pass it on.
        steps_too: bool,
    },
    /// Signal everything below these processes of a job.
    SignalBelow {
        /// The job.
        of: ProcessSearch,
        /// The processes.
        roots: Vec<i32>,
        /// The signal.
        signal: i32,
    },
    /// Signal everything below the daemon of a step.
    SignalStep {
        /// The job.
        of: ProcessSearch,
        /// The step.
        step: StepNo,
        /// The process of the daemon.
        pid: i32,
        /// The signal.
        signal: i32,
    },
    /// Signal processes of a job that a search has found, and everything below them.
    SignalFound {
        /// The job.
        of: ProcessSearch,
        /// The processes.
        found: Vec<i32>,
        /// When the search began.
        since_ms: u64,
        /// The signal.
        signal: i32,
    },
    /// Look for processes of these jobs that are no longer below any that the launcher knows.
    FindLeftovers(Vec<ProcessSearch>),
    /// Kill processes that no job has left.
    KillOrphans,
    /// Kill the remaining processes of a step daemon; repeated with each wake-up until no new ones are found.
    KillRemnants(ProcessSearch, i32),
    /// A step daemon has ended: its mark may be used for another.
    RetireMember(JobAttempt, i32),
    /// The script of a job was not started: its mark is free.
    ForgetScript(JobAttempt),
    /// Freeze the control groups of a job's script and tasks, or thaw them.
    FreezeGroups(JobAttempt, bool),
    /// Nothing of a job is left: its control groups go.
    RemoveGroups(JobAttempt),
    /// A job is forgotten: its marks are free.
    ForgetMembers(JobAttempt),
}
