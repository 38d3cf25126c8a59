//! One step: its tasks, from their start to the end of their last output.

use super::actions::Actions;
use super::clients::input_of_reader;
use super::host::{Host, note_ahead};
use super::interface::{Action, Event, StartedTasks};
use super::phase::{Move, StepPhase};
use super::upward::Upward;
use crate::cgroup::{GroupUsage, oom_line};
use crate::exit_status::exit_status;
use crate::messages::{KeptEntries, NextStep, StepOrder, StepdCommand};
use crate::signals::{SIGCONT, SIGKILL, SIGTERM};
use muster_model::job::{ExitStatus, ResourceUsage};
use muster_model::limits::SIGNAL_MAX;
use muster_proto::step::FromStepd;
use std::path::PathBuf;
use std::rc::Rc;

/// Time limit for srun to come.
const HELLO_WAIT_MS: u64 = 30_000;
/// Time limit for srun to read the last output of a step that was ordered to end.
const LAST_WORDS_MS: u64 = 5_000;

/// A task.
#[derive(Debug)]
pub(super) struct Task {
    /// Number in the step.
    pub(super) global: u32,
    /// The process id.
    pub(super) pid: i32,
    /// Its exit status.
    pub(super) exit: Option<ExitStatus>,
}

/// Characters of a program's name in a message.
const SHOWN_MAX: usize = 160;

/// The epilogs of a task, whose end is reported afterwards.
#[derive(Debug)]
struct Epilog {
    task: u32,
    /// The process that runs them, once it is there.
    pid: Option<i32>,
    exited: FromStepd,
    /// A further message about the end, sent when the epilogs start.
    failed: Option<FromStepd>,
}

/// Times at which something is due, in milliseconds of the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// srun is awaited until then.
    hello_by: Option<u64>,
    /// The tasks' time is up.
    time_limit: Option<u64>,
    /// The time at which the tasks get SIGKILL.
    kill_at: Option<u64>,
    /// The step ends without waiting for its peers.
    pub(super) give_up_at: Option<u64>,
    /// After an abort of a task, the end of the tasks of this node, unless srun has ended the step before.
    pub(super) abort: Option<PendingAbort>,
}

/// The end of a node's tasks because one of them has aborted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAbort {
    /// When they end, in milliseconds of the monotonic clock.
    pub(super) at_ms: u64,
    /// The step's status then.
    pub(super) exit: ExitStatus,
}

impl Timers {
    /// The earliest of these times.
    pub(super) fn first(&self) -> Option<u64> {
        let abort_at = self.abort.map(|abort| abort.at_ms);
        [
            self.hello_by,
            self.time_limit,
            self.kill_at,
            self.give_up_at,
            abort_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Processes that the kernel has killed for want of memory.
#[derive(Debug, Default)]
pub(super) struct OomKills {
    /// Number of kills.
    pub(super) kills: u64,
    is_reported: bool,
}

impl OomKills {
    /// The message about it for the user, once.
    fn take_line(&mut self, order: &StepOrder) -> Option<String> {
        if self.kills == 0 || std::mem::replace(&mut self.is_reported, true) {
            return None;
        }
        let line = oom_line(order.attempt.job, order.launch.step, self.kills);
        Some(format!("slurmstepd: error: {line}"))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) order: Rc<StepOrder>,
    /// This node.
    pub(super) node: Rc<str>,
    /// Time between TERM and KILL.
    kill_wait_ms: u64,
    /// File for the result.
    pub(super) result: PathBuf,
    /// Where an MPI step has its files, and where the memory that its tasks share.
    pub(super) dirs: Vec<PathBuf>,
    /// The entries that the agent makes the launcher store of the step.
    pub(super) kept: KeptEntries,
    pub(super) phase: StepPhase,
    pub(super) up: Upward,
    /// Nodes below that are lost, which srun learns once tasks are started.
    pub(super) lost: Vec<u32>,
    pub(super) timers: Timers,
    pub(super) tasks: Vec<Task>,
    epilogs: Vec<Epilog>,
    /// Streams of tasks that are read and have not ended.
    pub(super) outputs: usize,
    /// Forked tasks wait for the common start. `prepared` counts those that are ready.
    are_held: bool,
    prepared: usize,
    are_all_prepared: bool,
    /// Time limit of tasks, and the time since when they run.
    limit_ms: Option<u64>,
    started_ms: Option<u64>,
    pub(super) has_timed_out: bool,
    /// The status of the step when one task's end ended it.
    pub(super) failed: Option<ExitStatus>,
    pub(super) host: Option<Host>,
    /// Why there is none.
    pub(super) host_error: Option<String>,
    /// Tasks, by local number, whose last words to the host were not read when they had ended.
    pub(super) unread: Vec<usize>,
    pub(super) usage: ResourceUsage,
    /// Processes that the kernel has killed for want of memory.
    pub(super) oom: OomKills,
    /// The usage of its control group.
    pub(super) group_usage: GroupUsage,
    /// Signals for the tasks from before they run: each once, in the order of their last requests.
    early_signals: Vec<i32>,
    /// The step is to end, and its srun has not connected.
    is_end_due: bool,
    /// The daemon has no children any more, and so, as orphans become its children, the tasks have left none.
    pub(super) is_childless: bool,
}

impl Step {
    /// A step that waits for srun.
    pub(super) fn new(next: NextStep, dirs: Vec<PathBuf>, node: Rc<str>, out: &Actions) -> Step {
        let limit = next.order.launch.spec.time_limit;
        let limit = limit.and_then(|limit| limit.seconds());
        Step {
            order: Rc::from(next.order),
            node,
            kill_wait_ms: next.kill_wait_ms.min(u32::MAX.into()),
            result: PathBuf::from(next.result),
            dirs,
            kept: next.kept,
            phase: StepPhase::default(),
            up: Upward::default(),
            lost: Vec::new(),
            timers: Timers {
                hello_by: Some(out.after(HELLO_WAIT_MS)),
                ..Timers::default()
            },
            tasks: Vec::new(),
            epilogs: Vec::new(),
            outputs: 0,
            are_held: false,
            prepared: 0,
            are_all_prepared: false,
            limit_ms: limit.map(|seconds| seconds.saturating_mul(1000)),
            started_ms: None,
            has_timed_out: false,
            failed: None,
            host: None,
            host_error: None,
            unread: Vec::new(),
            usage: ResourceUsage::default(),
            oom: OomKills::default(),
            group_usage: GroupUsage::default(),
            early_signals: Vec::new(),
            is_end_due: false,
            is_childless: false,
        }
    }

    pub(super) fn on_event(&mut self, event: Event, out: &mut Actions) {
        match event {
            Event::Command(command) => self.on_command(command, out),
            Event::Terminate => self.begin_end(out),
            Event::Greeted {
                client, message, ..
            } => self.greeted(client, message, out),
            Event::Client(message) => self.on_request(message, out),
            Event::ClientClosed => self.client_lost(out),
            Event::Reader(message) => {
                let goes_to = self.order.launch.spec.stdin_task;
                out.list.extend(input_of_reader(goes_to, message));
            }
            Event::ReaderClosed(reader) => self.up.drop_reader(reader),
            Event::Flushed => self.up.flushed(out),
            Event::BelowConnected(lost) => self.below_connected(lost, out),
            Event::BelowClosed { position, is_over } => {
                if let Some(tree) = &mut self.up.tree {
                    tree.close(position);
                    if !is_over {
                        self.up.send(FromStepd::ChildLost(position), out);
                    }
                }
            }
            Event::TasksStarted(started) => self.tasks_started(started, out),
            Event::TasksPrepared(count) => {
                self.prepared += count.unwrap_or(0);
                self.are_all_prepared |= count.is_none() || self.prepared >= self.tasks.len();
                self.release_tasks(out);
            }
            Event::Output {
                task,
                is_error,
                bytes,
            } => {
                if bytes.is_empty() {
                    self.outputs = self.outputs.saturating_sub(1);
                }
                let message = match is_error {
                    true => FromStepd::Stderr { task, bytes },
                    false => FromStepd::Stdout { task, bytes },
                };
                self.up.send(message, out);
            }
            Event::ChildEnded { pid, status, usage } => {
                self.child_ended(pid, exit_status(status), *usage, out);
            }
            Event::GroupUsed(used) => self.group_usage = used,
            Event::OutOfMemory(kills) => self.oom.kills = self.oom.kills.max(kills),
            Event::ChildrenCollected { are_none } => {
                self.is_childless |= are_none;
                self.check_tasks(out);
            }
            Event::EpilogStarted(task, pid) => self.epilog_started(task, pid, out),
            Event::HostStarted(started) => self.host_started(started, out),
            Event::Host(event) => self.on_host(event, out),
            Event::HostRead => self.host_read(out),
            Event::TimeUp(local_time) => self.time_up(&local_time, out),
            // These events do not belong to a step.
            Event::StepGiven(..)
            | Event::LauncherHasRead
            | Event::LauncherLost
            | Event::EndReported { .. }
            | Event::LauncherChecked(_)
            | Event::Broken(_)
            | Event::WakeUpEnded => {}
        }
    }

    fn on_command(&mut self, command: StepdCommand, out: &mut Actions) {
        match command {
            // Every node receives it; one of them prints it.
            StepdCommand::PrintStepLine(line) if self.order.launch.position == 0 => {
                self.up.message(line, out);
            }
            StepdCommand::PrintLine(line) => self.up.message(line, out),
            // The job ends, and the launcher does not know of this step, which the agent gave.
            StepdCommand::EndStep(_) | StepdCommand::Exit => self.begin_end(out),
            StepdCommand::SignalLater(signal, _) => self.signal_later(signal, out),
            StepdCommand::SetTimeLimit(seconds, _) => {
                self.limit_ms = seconds.map(|seconds| seconds.saturating_mul(1000));
                self.limit_time();
            }
            StepdCommand::PrintStepLine(_) | StepdCommand::StartStep(_) => {}
        }
    }

    /// Changes the phase by the table; whether that happens.
    pub(super) fn move_by(&mut self, happens: Move, out: &mut Actions) -> bool {
        let next = self.phase.after(happens);
        if next.is_none() {
            let (attempt, step) = (self.order.attempt.job, self.order.launch.step);
            let phase = self.phase;
            out.log(format!(
                "step {attempt}.{step}: unexpected event {happens:?} in phase {phase:?}"
            ));
        }
        self.phase = next.unwrap_or(self.phase);
        if self.phase != StepPhase::Waiting {
            self.timers.hello_by = None;
        }
        next.is_some()
    }

    pub(super) fn start(&mut self, out: &mut Actions) {
        if !self.move_by(Move::Start, out) {
            return;
        }
        match self.is_end_due {
            true => self.end_unstarted(out),
            false => out.push(Action::StartTasks),
        }
    }

    /// The step was ended before its srun connected: that learns of its tasks as if they had got the signal.
    fn end_unstarted(&mut self, out: &mut Actions) {
        self.move_by(Move::End, out);
        let launch = &self.order.launch;
        let here = launch.tasks.get(launch.position as usize);
        for task in here.into_iter().flatten().copied() {
            let exit = ExitStatus {
                code: 0,
                signal: SIGTERM.unsigned_abs(),
            };
            let oom = false;
            self.up.send(FromStepd::Exited { task, exit, oom }, out);
        }
        self.tasks_ended(out);
        for position in std::mem::take(&mut self.lost) {
            self.up.send(FromStepd::ChildLost(position), out);
        }
    }

    /// Signals the tasks, or keeps the signal until they run.
    fn signal_later(&mut self, signal: u32, out: &mut Actions) {
        let Ok(signal) = i32::try_from(signal.min(SIGNAL_MAX)) else {
            return;
        };
        match self.phase {
            StepPhase::Waiting | StepPhase::Starting => {
                self.early_signals.retain(|kept| *kept != signal);
                self.early_signals.push(signal);
            }
            StepPhase::Running => out.push(Action::SignalAsked(signal)),
            _ => {}
        }
    }

    fn tasks_started(&mut self, started: StartedTasks, out: &mut Actions) {
        let launch = &self.order.launch;
        let here = launch.tasks.get(launch.position as usize);
        let started_here = here.into_iter().flatten().zip(started.pids);
        self.tasks.extend(started_here.map(|(global, pid)| Task {
            global: *global,
            pid,
            exit: None,
        }));
        self.outputs = started.outputs;
        self.are_held = started.are_held;
        if let Some(e) = started.error {
            let line = format!("slurmstepd: error: cannot start tasks: {e}");
            self.up.message(line, out);
            self.move_by(Move::StartFailed, out);
            out.push(Action::SignalTasks(SIGKILL));
            let exit = ExitStatus { code: 1, signal: 0 };
            self.failed.get_or_insert(exit);
            let launch = &self.order.launch;
            let here = launch.tasks.get(launch.position as usize);
            let failed = FromStepd::TaskFailed {
                task: here.and_then(|tasks| tasks.first()).copied().unwrap_or(0),
                exit,
                joined: true,
                line: None,
            };
            self.up.send(failed, out);
        }
        // Time that srun spends before it comes is not the step's.
        self.started_ms = Some(out.now.mono_ms);
        self.limit_time();
        if self.tasks.is_empty() {
            self.tasks_ended(out);
        } else if !self.are_held {
            self.run_tasks(out);
        }
        for position in std::mem::take(&mut self.lost) {
            self.up.send(FromStepd::ChildLost(position), out);
        }
        self.report_host_error(out);
    }

    /// Works out when the time of the tasks is up.
    fn limit_time(&mut self) {
        let may_run = !self.phase.has_no_tasks() && !self.phase.was_ended();
        let since = self.started_ms.filter(|_| may_run);
        let limit = since.zip(self.limit_ms);
        self.timers.time_limit = limit.and_then(|(at, limit)| at.checked_add(limit));
    }

    /// Releases the tasks, once all of them are prepared and their environment is known.
    pub(super) fn release_tasks(&mut self, out: &mut Actions) {
        let is_unready = self.host.as_ref().is_some_and(|host| !host.is_ready);
        if self.are_all_prepared && !is_unready && std::mem::take(&mut self.are_held) {
            out.push(Action::ReleaseTasks);
            self.run_tasks(out);
        }
    }

    fn run_tasks(&mut self, out: &mut Actions) {
        self.move_by(Move::Release, out);
        // srun knows that the task of a direct step is started with the step.
        if !self.order.direct {
            let note = note_ahead(&self.order);
            note.into_iter().for_each(|note| self.up.send(note, out));
            let pids = self.tasks.iter().map(|t| t.pid.unsigned_abs()).collect();
            self.up.send(FromStepd::Started(pids), out);
        }
        let early = std::mem::take(&mut self.early_signals);
        out.list.extend(early.into_iter().map(Action::SignalAsked));
    }

    fn child_ended(&mut self, pid: i32, exit: ExitStatus, used: ResourceUsage, out: &mut Actions) {
        if let Some(at) = self.epilogs.iter().position(|e| e.pid == Some(pid)) {
            let epilog = self.epilogs.swap_remove(at);
            for line in epilog_errors(&self.order, epilog.task, exit) {
                self.up.message(line, out);
            }
            return self.up.send(epilog.exited, out);
        }
        if let Some(host) = self.host.as_mut().filter(|host| host.is_process(pid)) {
            host.exit = Some(exit);
            return out.push(Action::ReadHost);
        }
        let is_it = |t: &Task| t.pid == pid && t.exit.is_none();
        let Some(local) = self.tasks.iter().position(is_it) else {
            return;
        };
        let task = &mut self.tasks[local];
        task.exit = Some(exit);
        self.usage.add(&used.of_task(task.global, 0));
        match self.host {
            // Messages of the task to the host before its end have arrived by now.
            Some(_) => {
                self.unread.push(local);
                out.push(Action::ReadHost);
            }
            None => self.task_ended(local, out),
        }
    }

    /// A task has ended, and all is known that it has said before.
    pub(super) fn task_ended(&mut self, local: usize, out: &mut Actions) {
        let task = self.tasks[local].global;
        let Some(exit) = self.tasks[local].exit else {
            return;
        };
        let exited = FromStepd::Exited {
            task,
            exit,
            oom: self.oom.kills > 0 && exit.signal == SIGKILL.unsigned_abs(),
        };
        let failed = self.host_task_ended(task, exit, out);
        let epilogs = [&self.order.task_epilog, &self.order.launch.spec.task_epilog];
        if epilogs.into_iter().any(Option::is_some) {
            self.epilogs.push(Epilog {
                task,
                pid: None,
                exited,
                failed,
            });
            let local = u32::try_from(local).unwrap_or(u32::MAX);
            return out.push(Action::StartEpilog { local, task });
        }
        self.up.send(exited, out);
        if let Some(failed) = failed {
            self.up.send(failed, out);
        }
    }

    fn epilog_started(&mut self, task: u32, pid: Option<i32>, out: &mut Actions) {
        let is_it = |e: &Epilog| e.task == task && e.pid.is_none();
        let Some(at) = self.epilogs.iter().position(is_it) else {
            return;
        };
        let failed = self.epilogs[at].failed.take();
        match pid {
            Some(_) => self.epilogs[at].pid = pid,
            None => {
                let epilog = self.epilogs.swap_remove(at);
                self.up.send(epilog.exited, out);
            }
        }
        if let Some(failed) = failed {
            self.up.send(failed, out);
        }
    }

    /// Whether all tasks have ended. If so, their remaining processes are killed.
    fn check_tasks(&mut self, out: &mut Actions) {
        let has_started = !matches!(self.phase, StepPhase::Waiting | StepPhase::Cancelled);
        let ended = self.tasks.iter().all(|t| t.exit.is_some()) && self.epilogs.is_empty();
        if has_started && ended {
            self.tasks_ended(out);
        }
    }

    /// Kills the remaining processes of the tasks, because they hold the tasks' pipes open.
    fn tasks_ended(&mut self, out: &mut Actions) {
        self.move_by(Move::TasksEnded, out);
        self.timers.time_limit = None;
        if let Some(line) = self.oom.take_line(&self.order) {
            self.up.message(line, out);
        }
        if !self.is_childless {
            out.push(Action::KillRemnants);
            // With labels, processes that write the last lines to files are spared.
            if self.order.direct || self.order.launch.spec.label {
                let at = out.after(LAST_WORDS_MS);
                self.timers.give_up_at.get_or_insert(at);
            }
        }
        self.stop_host(out);
        out.push(Action::EndInput);
        if self.phase.was_ended() {
            let at = out.after(LAST_WORDS_MS);
            self.timers.give_up_at.get_or_insert(at);
        }
    }

    /// The step is to end: TERM, after `KillWait` KILL.
    pub(super) fn begin_end(&mut self, out: &mut Actions) {
        if self.phase.was_ended() {
            return;
        }
        if self.phase == StepPhase::Waiting && !std::mem::replace(&mut self.is_end_due, true) {
            let at = out.after(LAST_WORDS_MS);
            self.timers.hello_by = self.timers.hello_by.map(|by| by.min(at));
            return;
        }
        let had_tasks = matches!(self.phase, StepPhase::Starting | StepPhase::Running);
        self.move_by(Move::End, out);
        if had_tasks {
            // In this order a stopped task runs nothing of its program before it learns of the end.
            out.push(Action::SignalTasks(SIGTERM));
            out.push(Action::SignalTasks(SIGCONT));
            self.timers.kill_at = Some(out.after(self.kill_wait_ms));
        } else if self.phase == StepPhase::Closing {
            self.timers.give_up_at = Some(out.after(LAST_WORDS_MS));
        }
    }

    /// The step cannot go well any more: it ends at once, with this status.
    pub(super) fn fail(&mut self, exit: ExitStatus, out: &mut Actions) {
        if self.failed.is_some() || self.has_timed_out {
            return;
        }
        self.failed = Some(exit);
        self.timers.abort = None;
        self.begin_end(out);
        self.timers.kill_at = None;
        out.push(Action::SignalTasks(SIGKILL));
    }

    fn time_up(&mut self, local_time: &str, out: &mut Actions) {
        if self.phase == StepPhase::Waiting && out.has_come(self.timers.hello_by) {
            let (job, step) = (self.order.attempt.job, self.order.launch.step);
            out.log(format!("step {job}.{step}: srun did not connect"));
            self.is_end_due = true;
            self.begin_end(out);
        }
        if out.has_come(self.timers.time_limit) {
            self.timers.time_limit = None;
            self.has_timed_out = true;
            if self.order.launch.position == 0 {
                let line = format!(
                    "slurmstepd: error: *** STEP {}.{} ON {} CANCELLED AT {local_time} DUE TO TIME LIMIT ***",
                    self.order.attempt.job, self.order.launch.step, self.node
                );
                self.up.message(line, out);
            }
            self.begin_end(out);
        }
        if out.has_come(self.timers.kill_at) {
            self.timers.kill_at = None;
            out.push(Action::SignalTasks(SIGKILL));
        }
        if let Some(PendingAbort { at_ms, exit }) = self.timers.abort
            && out.has_come(Some(at_ms))
        {
            self.timers.abort = None;
            self.fail(exit, out);
        }
        if out.has_come(self.up.adoption_by) {
            self.up.adoption_by = None;
            self.srun_left(out);
        }
    }
}

/// The bit in the exit code of the epilogs' process for a user's epilog that took too long.
pub const EPILOG_KILLED: u32 = 1 << 2;

/// Errors for the user, of epilogs that could not be executed, or took too long: their process ends with a bit for each.
fn epilog_errors(order: &StepOrder, task: u32, exit: ExitStatus) -> Vec<String> {
    let programs = [
        ("--task-epilog", &order.launch.spec.task_epilog),
        ("TaskEpilog", &order.task_epilog),
    ];
    let failed = programs.into_iter().enumerate();
    let failed = failed.filter(|(position, _)| exit.code >> position & 1 == 1);
    let line = |(_, (what, program)): (usize, (&str, &Option<String>))| {
        let program = program.as_ref()?.escape_debug();
        let shown: String = program.take(SHOWN_MAX).collect();
        Some(format!(
            "slurmstepd: error: task {task}: {what} {shown} cannot be executed: check that it exists and is executable"
        ))
    };
    let mut lines: Vec<String> = failed.filter_map(line).collect();
    if exit.code & EPILOG_KILLED != 0 {
        lines.push("slurmstepd: error: TaskEpilog failed status=9".to_owned());
    }
    lines
}
