//! The running step: reports of its daemons about tasks and nodes, and reasons to end it before its tasks end.

use super::SrunContext;
use super::config::StepRules;
use super::interface::Event;
use super::nodes::NodeEvent;
use super::nodes::Nodes;
use super::output::Outputs;
use super::tasks::Tasks;
use super::transition::SrunStateEvent;
use crate::signals::{SIGCONT, SIGKILL, SIGTERM};
use muster_model::batching::BatchDelay;
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::job::{ExitStatus, JobState};
use muster_proto::step::{FromStepd, StdinTask, ToStepd};

/// Ends of tasks within this time are reported in one line.
const EXIT_REPORT_DELAY: BatchDelay = BatchDelay::from_ms(50);
/// Time beyond `KillWait` that a step may take to end before srun leaves.
const LEAVE_AFTER_MS: u64 = 2000;

/// Moments at which something is due, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) report: Option<u64>,
    pub(super) first_exit: Option<u64>,
    pub(super) wait: Option<u64>,
    pub(super) interrupted: Option<u64>,
    pub(super) kill: Option<u64>,
    pub(super) leave: Option<u64>,
}

impl Clock {
    /// The next of them that something follows from.
    pub(super) fn next(&self) -> Option<u64> {
        [self.report, self.wait, self.kill, self.leave]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Whether a timer is due; it is then cleared.
pub(super) fn is_due(moment: &mut Option<u64>, now_ms: u64) -> bool {
    moment.take_if(|at| now_ms >= *at).is_some()
}

/// The step, once it is there.
#[derive(Debug)]
pub(super) struct ActiveStep {
    pub(super) rules: StepRules,
    /// The first part's job.
    pub(super) job: JobId,
    /// The step's name for users: `StepId=5.0`.
    pub(super) id: String,
    pub(super) stdin_task: StdinTask,
    pub(super) nodes: Nodes,
    pub(super) tasks: Tasks,
    pub(super) outputs: Outputs,
    pub(super) clock: Clock,
    /// Texts that were printed, and are not printed again.
    printed: Vec<String>,
    /// Some task has joined the others.
    has_joined: bool,
    /// A task that had not joined has ended badly.
    missing: Option<ExitStatus>,
    /// The status of the task whose end ended the step.
    pub(super) failed: Option<ExitStatus>,
    /// A note about the whole step was printed.
    has_note: bool,
    /// A node is lost, and how its tasks ended with it.
    pub(super) is_lost: bool,
    /// srun is not to wait for the step any longer.
    pub(super) leaves: bool,
}

impl ActiveStep {
    /// Before there is one.
    pub(super) fn new(rules: StepRules) -> ActiveStep {
        ActiveStep {
            rules,
            job: JobId::default(),
            id: String::new(),
            stdin_task: StdinTask::None,
            nodes: Nodes::default(),
            tasks: Tasks::new([]),
            outputs: Outputs::default(),
            clock: Clock::default(),
            printed: Vec::new(),
            has_joined: false,
            missing: None,
            failed: None,
            has_note: false,
            is_lost: false,
            leaves: false,
        }
    }

    /// Handles an event of a step daemon.
    pub(super) fn on_stepd_event(&mut self, cx: &mut SrunContext, event: Event) {
        let events = match event {
            Event::StepdMessages(stepd, messages) => {
                self.nodes.take_messages(&mut cx.out, stepd, messages)
            }
            Event::StepdLost(stepd, _) => Vec::from_iter(self.nodes.lost(stepd)),
            _ => Vec::new(),
        };
        for event in events {
            self.on_node_event(cx, event);
        }
        self.nodes.connect_next(&mut cx.out);
    }

    /// Handles an event of the user, or of the allocation that srun holds.
    pub(super) fn on_user_event(&mut self, cx: &mut SrunContext, event: Event) {
        match event {
            Event::Signal(signal) => self.on_signal(cx, signal),
            Event::Window(rows, columns) => {
                let message = ToStepd::SetWindowSize(rows, columns);
                self.nodes.send(&mut cx.out, message);
            }
            Event::Input(bytes) => self.on_input(cx, bytes),
            Event::JobEnded(state) => self.job_ended(cx, state),
            Event::ControllerFailed(error) => {
                cx.out.error(&error);
                cx.advance(SrunStateEvent::EndOrdered);
            }
            _ => {}
        }
    }

    pub(super) fn on_node_event(&mut self, cx: &mut SrunContext, event: NodeEvent) {
        match event {
            NodeEvent::Message(at, message) => self.on_message(cx, at, message),
            NodeEvent::Lost(at) => self.node_lost(cx, at),
        }
    }

    pub(super) fn on_message(&mut self, cx: &mut SrunContext, at: usize, message: FromStepd) {
        match message {
            FromStepd::Started(_) => self.node_started(cx, at),
            FromStepd::Stdout { task, bytes } => {
                self.outputs.stdout(&mut cx.out, task, bytes.into());
            }
            FromStepd::Stderr { task, bytes } => {
                self.outputs.stderr(&mut cx.out, task, bytes.into());
            }
            FromStepd::NodeMessage(text) => {
                cx.out.line(&text);
                if text.contains("*** ") && text.contains("CANCELLED AT") {
                    self.announce_end(cx);
                }
            }
            FromStepd::Refused(refusal) => {
                // Its connection ends with that, which ends the step. Other nodes report the same.
                if !std::mem::replace(&mut self.has_note, true) {
                    cx.out.error(&refusal.detail);
                }
            }
            FromStepd::StepMessage(text) => {
                if !std::mem::replace(&mut self.has_note, true) {
                    cx.out.line(&text);
                }
            }
            FromStepd::Exited { task, exit, oom } => self.task_exited(cx, at, task, exit, oom),
            // These messages concern connections.
            FromStepd::Created(_)
            | FromStepd::NodeTasksEnded
            | FromStepd::ForwardUp { .. }
            | FromStepd::ChildLost(_)
            | FromStepd::ConnectionFinished
            | FromStepd::Acknowledged => {}
            FromStepd::TaskJoinedMpi => {
                self.has_joined = true;
                if let Some(exit) = self.missing {
                    self.fail(cx, exit);
                }
            }
            FromStepd::TaskFailed {
                exit, joined, line, ..
            } => {
                if let Some(line) = line.filter(|_| self.failed.is_none() && !cx.is_ending()) {
                    cx.out.line(&line);
                }
                if joined || self.has_joined {
                    self.fail(cx, exit);
                } else {
                    self.missing.get_or_insert(exit);
                }
            }
        }
    }

    fn node_started(&mut self, cx: &mut SrunContext, at: usize) {
        let node = self.nodes.node(at);
        self.tasks.started(node);
        if cx.out.is_verbose {
            let count = node.tasks.len();
            cx.out
                .verbose(&format!("Node {}, {count} tasks started", node.name));
        }
    }

    /// The others would wait for ever for a task: the step ends everywhere, with that task's status.
    fn fail(&mut self, cx: &mut SrunContext, exit: ExitStatus) {
        if self.failed.is_some() || cx.is_ending() || self.rules.keeps_going {
            return;
        }
        self.failed = Some(exit);
        cx.advance(SrunStateEvent::EndOrdered);
        self.report_exits(cx);
        cx.out.info(&format!("Terminating {}", self.id));
        self.nodes.send(&mut cx.out, ToStepd::FailStep(exit));
        self.clock.leave = Some(self.leave_at(cx.now_ms));
    }

    fn task_exited(
        &mut self,
        cx: &mut SrunContext,
        at: usize,
        task: u32,
        exit: ExitStatus,
        oom: bool,
    ) {
        let name = &self.nodes.node(at).name;
        if !self.tasks.exited(name, task, exit, oom) {
            return;
        }
        cx.advance(SrunStateEvent::TaskExited);
        // After a last task that succeeded there is nothing to report, and no other task to wait for.
        if !exit.is_ok() || !self.tasks.all_exited() {
            self.start_clock(cx);
        }
        if !exit.is_ok() && self.rules.kill_on_bad_exit && !cx.is_ending() {
            self.report_exits(cx);
            if self.nodes.are_meshed() && self.has_joined {
                self.fail(cx, exit);
            } else {
                self.terminate_gently(cx);
            }
        }
    }

    /// A task has exited: reports its end, and starts the time limit of the other tasks.
    fn start_clock(&mut self, cx: &mut SrunContext) {
        let now_ms = cx.now_ms;
        self.clock
            .report
            .get_or_insert(EXIT_REPORT_DELAY.end_ms(now_ms));
        if self.clock.first_exit.is_none() {
            self.clock.first_exit = Some(now_ms);
            if self.rules.wait_s > 0 {
                self.clock.wait = Some(now_ms + u64::from(self.rules.wait_s) * 1000);
            }
        }
    }

    /// Ends the step as one that is cancelled: TERM, after `KillWait` KILL.
    fn terminate_gently(&mut self, cx: &mut SrunContext) {
        cx.advance(SrunStateEvent::EndOrdered);
        cx.out.info(&format!("Terminating {}", self.id));
        self.signal_tasks(cx, SIGTERM);
        self.signal_tasks(cx, SIGCONT);
        self.clock.kill = Some(cx.now_ms + self.kill_wait_ms());
        self.clock.leave = Some(self.leave_at(cx.now_ms));
    }

    /// Ends the step at once.
    fn terminate(&mut self, cx: &mut SrunContext) {
        cx.advance(SrunStateEvent::EndOrdered);
        cx.out.info(&format!("Terminating {}", self.id));
        self.signal_tasks(cx, SIGKILL);
        self.clock.leave = Some(self.leave_at(cx.now_ms));
    }

    pub(super) fn signal_tasks(&mut self, cx: &mut SrunContext, signal: i32) {
        let message = ToStepd::Signal(signal.unsigned_abs());
        self.nodes.send(&mut cx.out, message);
    }

    fn node_lost(&mut self, cx: &mut SrunContext, at: usize) {
        let node = self.nodes.node(at);
        let left = self.tasks.left_on(node);
        if left.is_empty() {
            return;
        }
        self.is_lost = true;
        cx.out.error(&format!("Node failure on {}", node.name));
        cx.out.error(&format!(
            "{}: task {}: connection to the node's step daemon lost, exit status unknown",
            node.name,
            hostlist::ranges(&left)
        ));
        cx.advance(SrunStateEvent::NodeLost);
        let exit = ExitStatus { code: 1, signal: 0 };
        match (self.nodes.are_meshed(), self.has_joined) {
            (true, true) => self.fail(cx, exit),
            // Nobody waits for its tasks, unless tasks are yet to join.
            (true, false) => self.missing = self.missing.or(Some(exit)),
            (false, _) => {}
        }
    }

    /// Passes input on.
    fn on_input(&mut self, cx: &mut SrunContext, bytes: Vec<u8>) {
        let task = match self.stdin_task {
            StdinTask::All => None,
            StdinTask::One(task) => Some(task),
            StdinTask::None => return,
        };
        let bytes = bytes.into();
        self.nodes.send(&mut cx.out, ToStepd::Stdin { task, bytes });
    }

    /// The allocation that srun holds has ended. The nodes end the tasks; srun waits for their reports.
    fn job_ended(&mut self, cx: &mut SrunContext, state: JobState) {
        if state != JobState::Timeout {
            let job = self.job;
            cx.out.info(&format!("Force Terminated job {job}"));
            self.announce_end(cx);
        }
        cx.advance(SrunStateEvent::EndOrdered);
        self.clock.leave = Some(self.leave_at(cx.now_ms));
    }

    pub(super) fn announce_end(&mut self, cx: &mut SrunContext) {
        let wait_s = (self.kill_wait_ms() + LEAVE_AFTER_MS) / 1000;
        let text =
            format!("Job step aborted: Waiting up to {wait_s} seconds for job step to finish.");
        if !self.printed.contains(&text) {
            cx.out.info(&text);
            self.printed.push(text);
        }
    }

    /// Executes the timers that are due.
    pub(super) fn on_time(&mut self, cx: &mut SrunContext) {
        let now_ms = cx.now_ms;
        let over = self.nodes.are_over();
        if is_due(&mut self.clock.report, now_ms) || (over && self.tasks.has_unreported()) {
            self.report_exits(cx);
        }
        if is_due(&mut self.clock.kill, now_ms) {
            self.signal_tasks(cx, SIGKILL);
        }
        if is_due(&mut self.clock.wait, now_ms) && !self.tasks.all_exited() && !cx.is_ending() {
            let ago_ms = now_ms - self.clock.first_exit.unwrap_or(now_ms);
            cx.out
                .info(&format!("First task exited {}s ago", ago_ms / 1000));
            self.show_states(cx);
            self.terminate(cx);
        }
        if is_due(&mut self.clock.leave, now_ms) && !over {
            let id = &self.id;
            cx.out.error(&format!("Timed out waiting for {id} to end"));
            self.leaves = true;
        }
    }

    pub(super) fn show_states(&mut self, cx: &mut SrunContext) {
        for state in self.tasks.states() {
            cx.out.info(&format!("{} {state}", self.id));
        }
    }

    pub(super) fn report_exits(&mut self, cx: &mut SrunContext) {
        self.clock.report = None;
        for line in self.tasks.take_exit_lines() {
            if line.success {
                cx.out.verbose(&line.text);
                continue;
            }
            let kind = line.text.rsplit(": ").next().unwrap_or("").to_owned();
            if self.rules.print_once && self.printed.contains(&kind) {
                continue;
            }
            self.printed.push(kind);
            cx.out.error(&line.text);
        }
    }

    pub(super) fn kill_wait_ms(&self) -> u64 {
        u64::from(self.rules.kill_wait_s) * 1000
    }

    /// When srun gives up on a step that does not end.
    pub(super) fn leave_at(&self, now_ms: u64) -> u64 {
        now_ms + self.kill_wait_ms() + LEAVE_AFTER_MS
    }

    /// Writes all buffered output.
    pub(super) fn flush(&mut self, cx: &mut SrunContext) {
        self.outputs.flush_all(&mut cx.out);
        self.report_exits(cx);
    }

    /// The status of the step, and the exit code that it gives.
    pub(super) fn exit(&self) -> (ExitStatus, u8) {
        let (mut exit, mut code) = match self.failed {
            Some(exit) => (exit, exit.shell_code()),
            None => self.tasks.worst(),
        };
        // The end of a task is not reported if the task could not be started, or its step was ended before.
        let is_incomplete = self.leaves || !self.tasks.all_exited();
        if self.is_lost || (is_incomplete && code == 0) {
            code = code.max(1);
            if exit.is_ok() {
                exit = ExitStatus { code: 1, signal: 0 };
            }
        }
        (exit, u8::try_from(code.min(255)).unwrap_or(255))
    }
}
