//! A step daemon. It is a model: it waits for srun, has its tasks started, ends them, reports the end of the step to launcher and
//! agent or leaves it in a file, and waits for the next step of its job. It speaks the messages of the real one and knows nothing
//! but inputs and outputs, so that the real one can take its place.

use super::machine::ChannelId;
use muster_model::ids::StepNo;
use muster_model::job::{ExitStatus, JobState, StepEnd, Usage};
use muster_model::time::Timestamp;
use muster_node_core::messages::{
    JobAttempt, KeptEntries, NextStep, RunningStep, StepBounds, StepdCommand, StepdEvent, VERSIONS,
};
use muster_node_core::signals::{SIGCONT, SIGKILL, SIGTERM};

/// How long srun may take to come, milliseconds.
const HELLO_WAIT_MS: u64 = 30_000;

/// What a daemon finds out of its sockets when it uses them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sockets {
    /// The launcher's end is open.
    pub(crate) is_launcher_open: bool,
    /// The launcher has read all that was sent.
    pub(crate) is_all_read: bool,
    /// The agent's end is open.
    pub(crate) is_agent_open: bool,
}

/// What happens to a daemon.
#[derive(Debug)]
pub(crate) enum StepdInput {
    /// It begins, with this step.
    Begin(Box<NextStep>),
    /// The launcher commands something.
    Launcher(StepdCommand),
    /// The launcher is gone.
    LauncherClosed,
    /// The agent gives it a step.
    Agent(StepdCommand),
    /// The agent is gone.
    AgentClosed,
    /// An srun has come, or its streams.
    Srun(u64),
    /// It is gone.
    SrunGone(u64),
    /// One of its tasks has ended.
    TaskEnded(ExitStatus),
    /// SIGTERM.
    Terminated,
    /// A timer is due.
    Due(u64),
    /// Another launcher asks what runs, by a connection of its own.
    Adopted,
}

/// What a daemon does.
#[derive(Debug)]
pub(crate) enum StepdOutput {
    /// Start tasks with these numbers.
    StartTasks(Vec<u32>),
    /// Signal them.
    SignalTasks(i32),
    /// Send to the launcher.
    ToLauncher(StepdEvent),
    /// Send to the agent.
    ToAgent(StepdEvent),
    /// Leave a file.
    Leave(StepNo, Box<StepEnd>, KeptEntries),
    /// Give a timer after so many milliseconds.
    SetTimer(u64, u64),
    /// A step is over for its srun.
    PartFrom(u64),
    /// End the process.
    Exit,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SimStepd {
    pub(crate) run: JobAttempt,
    pid: i32,
    bounds: StepBounds,
    current: Option<Current>,
    /// The launcher is there, as far as is known.
    has_launcher: bool,
    /// Ends that the launcher may not have read.
    unread: Vec<(StepNo, StepEnd, KeptEntries)>,
    /// A step that came while another ran.
    early: Option<Box<NextStep>>,
    last_timer: u64,
    /// Its ends of channels.
    pub(crate) launcher_channel: Option<ChannelId>,
    pub(crate) agent_channel: Option<ChannelId>,
}

/// The step that it has.
#[derive(Debug)]
struct Current {
    next: Box<NextStep>,
    srun: Option<u64>,
    /// Tasks that run.
    tasks: usize,
    exits: Vec<ExitStatus>,
    is_started: bool,
    is_ending: bool,
    hello_timer: u64,
    kill_timer: u64,
}

impl Current {
    fn step(&self) -> StepNo {
        self.next.order.launch.step
    }
}

impl SimStepd {
    pub(crate) fn new(run: JobAttempt, pid: i32, bounds: StepBounds) -> SimStepd {
        SimStepd {
            run,
            pid,
            bounds,
            current: None,
            has_launcher: true,
            unread: Vec::new(),
            early: None,
            last_timer: 0,
            launcher_channel: None,
            agent_channel: None,
        }
    }

    /// It waits for a step.
    pub(crate) fn is_waiting(&self) -> bool {
        self.current.is_none()
    }

    /// The step that it has.
    pub(crate) fn order(&self) -> Option<&NextStep> {
        self.current.as_ref().map(|c| &*c.next)
    }

    /// The srun that hangs on it.
    pub(crate) fn srun(&self) -> Option<u64> {
        self.current.as_ref().and_then(|c| c.srun)
    }

    pub(crate) fn on_input(
        &mut self,
        input: StepdInput,
        sockets: Sockets,
        now: Timestamp,
        out: &mut Vec<StepdOutput>,
    ) {
        match input {
            StepdInput::Begin(next) => self.begin(next, out),
            StepdInput::Launcher(command) => self.take_command(command, sockets, now, out),
            StepdInput::LauncherClosed => self.launcher_closed(out),
            StepdInput::Agent(StepdCommand::StartStep(next)) => {
                if self.current.is_none() && self.bounds.check(self.run, &next.order).is_ok() {
                    self.begin(next, out);
                }
            }
            // All else is for the launcher to say.
            StepdInput::Agent(_) => {}
            StepdInput::AgentClosed => {
                let waits = |c: &Current| c.next.order.direct && !c.is_started;
                if self.current.as_ref().is_some_and(waits) {
                    self.begin_end(sockets, now, out);
                }
            }
            StepdInput::Srun(srun) => self.srun_came(srun, out),
            StepdInput::SrunGone(srun) => {
                if self.srun() == Some(srun) {
                    if let Some(current) = &mut self.current {
                        current.srun = None;
                    }
                    self.begin_end(sockets, now, out);
                }
            }
            StepdInput::TaskEnded(exit) => self.task_ended(exit, sockets, now, out),
            StepdInput::Terminated => self.begin_end(sockets, now, out),
            StepdInput::Due(timer) => self.timer_due(timer, sockets, now, out),
            StepdInput::Adopted => self.adopted(out),
        }
    }

    fn take_command(
        &mut self,
        command: StepdCommand,
        sockets: Sockets,
        now: Timestamp,
        out: &mut Vec<StepdOutput>,
    ) {
        match command {
            StepdCommand::StartStep(next) if self.current.is_none() => self.begin(next, out),
            StepdCommand::StartStep(next) => self.early = Some(next),
            StepdCommand::Exit if self.current.is_none() => {
                // Who says this has taken note of the ends.
                self.unread.clear();
                out.push(StepdOutput::Exit);
            }
            StepdCommand::EndStep | StepdCommand::Exit => self.begin_end(sockets, now, out),
            StepdCommand::PrintStepLine(_)
            | StepdCommand::PrintLine(_)
            | StepdCommand::SetTimeLimit(_) => {}
        }
    }

    fn begin(&mut self, next: Box<NextStep>, out: &mut Vec<StepdOutput>) {
        self.last_timer += 2;
        out.push(StepdOutput::SetTimer(self.last_timer, HELLO_WAIT_MS));
        self.current = Some(Current {
            next,
            srun: None,
            tasks: 0,
            exits: Vec::new(),
            is_started: false,
            is_ending: false,
            hello_timer: self.last_timer,
            kill_timer: self.last_timer + 1,
        });
    }

    fn srun_came(&mut self, srun: u64, out: &mut Vec<StepdOutput>) {
        let is_free = |c: &&mut Current| !c.is_started && !c.is_ending;
        let Some(current) = self.current.as_mut().filter(is_free) else {
            return out.push(StepdOutput::PartFrom(srun));
        };
        let launch = &current.next.order.launch;
        let tasks = launch.tasks.get(launch.position as usize).cloned();
        let tasks = tasks.unwrap_or_default();
        current.srun = Some(srun);
        current.is_started = true;
        current.tasks = tasks.len();
        out.push(StepdOutput::StartTasks(tasks));
    }

    fn task_ended(
        &mut self,
        exit: ExitStatus,
        sockets: Sockets,
        now: Timestamp,
        out: &mut Vec<StepdOutput>,
    ) {
        let Some(current) = &mut self.current else {
            return;
        };
        current.tasks = current.tasks.saturating_sub(1);
        current.exits.push(exit);
        if current.tasks == 0 {
            self.finish(sockets, now, out);
        }
    }

    fn begin_end(&mut self, sockets: Sockets, now: Timestamp, out: &mut Vec<StepdOutput>) {
        let Some(current) = &mut self.current else {
            return;
        };
        if std::mem::replace(&mut current.is_ending, true) {
            return;
        }
        if !current.is_started {
            return self.finish(sockets, now, out);
        }
        out.push(StepdOutput::SignalTasks(SIGCONT));
        out.push(StepdOutput::SignalTasks(SIGTERM));
        let wait_ms = current.next.kill_wait_ms;
        out.push(StepdOutput::SetTimer(current.kill_timer, wait_ms));
    }

    fn timer_due(
        &mut self,
        timer: u64,
        sockets: Sockets,
        now: Timestamp,
        out: &mut Vec<StepdOutput>,
    ) {
        let Some(current) = &mut self.current else {
            return;
        };
        if timer == current.hello_timer && !current.is_started && !current.is_ending {
            current.is_ending = true;
            self.finish(sockets, now, out);
        } else if timer == current.kill_timer && current.tasks > 0 {
            out.push(StepdOutput::SignalTasks(SIGKILL));
        }
    }

    /// The step is over.
    fn finish(&mut self, sockets: Sockets, now: Timestamp, out: &mut Vec<StepdOutput>) {
        let Some(current) = self.current.take() else {
            return;
        };
        let (step, end) = (current.step(), result(&current, now));
        let kept = current.next.kept.clone();
        let is_reusable = current.is_started && !current.is_ending;
        if self.has_launcher && sockets.is_all_read && sockets.is_launcher_open {
            self.unread.clear();
        }
        if !is_reusable || !self.has_launcher || !sockets.is_launcher_open {
            self.leave_unread(out);
            out.push(StepdOutput::Leave(step, Box::new(end), kept));
            out.extend(current.srun.map(StepdOutput::PartFrom));
            return out.push(StepdOutput::Exit);
        }
        let ended = StepdEvent::StepEnded(step, Box::new(end.clone()));
        out.push(StepdOutput::ToLauncher(ended.clone()));
        if sockets.is_agent_open {
            out.push(StepdOutput::ToAgent(ended));
        }
        out.extend(current.srun.map(StepdOutput::PartFrom));
        self.unread.push((step, end, kept));
        if let Some(next) = self.early.take() {
            self.begin(next, out);
        }
    }

    fn launcher_closed(&mut self, out: &mut Vec<StepdOutput>) {
        self.has_launcher = false;
        self.leave_unread(out);
        if self.current.is_none() {
            out.push(StepdOutput::Exit);
        }
    }

    fn leave_unread(&mut self, out: &mut Vec<StepdOutput>) {
        for (step, end, kept) in self.unread.drain(..) {
            out.push(StepdOutput::Leave(step, Box::new(end), kept));
        }
    }

    fn adopted(&mut self, out: &mut Vec<StepdOutput>) {
        let Some(current) = &self.current else {
            return self.launcher_closed(out);
        };
        let running = RunningStep {
            run: self.run,
            step: current.step(),
            pid: self.pid,
            dirs: Vec::new(),
            kept: current.next.kept.clone(),
            greeting: Some(VERSIONS.greeting()),
        };
        self.leave_unread(out);
        self.has_launcher = true;
        let running = StepdEvent::StepRunning(Box::new(running));
        out.push(StepdOutput::ToLauncher(running));
    }
}

/// How this node's part of the step has ended.
fn result(current: &Current, now: Timestamp) -> StepEnd {
    let weight = |e: &ExitStatus| match e.signal {
        0 => e.code,
        signal => 128 + signal,
    };
    let worst = current.exits.iter().copied().max_by_key(weight);
    let exit = worst.unwrap_or(ExitStatus {
        code: u32::from(!current.is_started && !current.is_ending),
        signal: match current.is_ending {
            true => SIGTERM.unsigned_abs(),
            false => 0,
        },
    });
    let state = match exit {
        exit if exit.is_ok() => JobState::Completed,
        ExitStatus { signal: 0, .. } => JobState::Failed,
        _ => JobState::Cancelled,
    };
    StepEnd {
        end_time: now,
        exit,
        state,
        usage: Usage::default(),
        cancelled_by: None,
    }
}
