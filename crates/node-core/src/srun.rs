//! srun as a state machine: the conversation with agents that creates a step, its tasks and streams until it has
//! ended, signals to srun, messages for the user, and the exit code.
//!
//! [`Srun::on_event`] takes one event and returns the resulting actions; [`Srun::interest`] lists the events that
//! srun waits for. `muster_cli` executes them. Options, and an allocation of srun's own, are handled before; the
//! request for the step is the result.

mod actions;
pub mod config;
mod creation;
mod ending;
pub mod interface;
mod nodes;
mod output;
mod running;
mod signals;
mod tasks;
#[cfg(test)]
mod tests;
pub mod transition;

use crate::labels;
use actions::Actions;
use config::{ExitCodes, InputSource, SrunConfig, Streams};
use creation::{CreatedStep, Creation, Progress};
use interface::{Action, AgentId, Event, Interest, StepdIdx, StreamsToOpen};
use muster_model::ids::{JobId, StepId};
use muster_model::job::ExitStatus;
use muster_proto::step::{FromStepd, StdinTask};
use output::{OutputRules, Outputs};
use running::ActiveStep;
use std::collections::VecDeque;
use tasks::Tasks;
use transition::{SrunState, SrunStateEvent, next_srun_state};

/// Where srun is, and what follows from the event that is being handled.
#[derive(Debug)]
struct SrunContext {
    state: SrunState,
    now_ms: u64,
    out: Actions,
}

impl SrunContext {
    /// Follows the table of transitions; whether there is one.
    fn advance(&mut self, event: SrunStateEvent) -> bool {
        let next = next_srun_state(self.state, event);
        // Only what ends srun can come when it has ended.
        debug_assert!(
            next.is_some() || event == SrunStateEvent::Failed,
            "{self:?} {event:?}"
        );
        self.state = next.unwrap_or(self.state);
        next.is_some()
    }

    fn is_running(&self) -> bool {
        matches!(self.state, SrunState::Running | SrunState::Ending)
    }

    fn is_ending(&self) -> bool {
        self.state == SrunState::Ending
    }
}

/// All state of srun.
#[derive(Debug)]
pub struct Srun {
    cx: SrunContext,
    streams: Streams,
    exit_codes: ExitCodes,
    has_allocation: bool,
    creation: Creation,
    step: ActiveStep,
    has_terminal: bool,
    is_unbuffered: bool,
    /// Connections that keep the step alive, and the time limit for the first of them that records the end.
    leads: VecDeque<AgentId>,
    recorded_by: Option<u64>,
    /// Messages of step daemons that arrived before the step runs here.
    deferred: VecDeque<Event>,
    /// The connection to the step daemon whose task has srun's streams.
    channel: Option<StepdIdx>,
    /// No event has been handled since the step runs; it may have ended already.
    looks: bool,
}

impl Srun {
    /// srun before it has done anything.
    pub fn new(mut config: SrunConfig) -> Srun {
        Srun {
            cx: SrunContext {
                state: SrunState::Locating,
                now_ms: 0,
                out: Actions::new(config.quiet, config.verbose),
            },
            creation: Creation::new(&mut config),
            step: ActiveStep::new(config.rules),
            streams: config.streams,
            exit_codes: config.exit_codes,
            has_allocation: config.has_allocation,
            has_terminal: false,
            is_unbuffered: false,
            leads: VecDeque::new(),
            recorded_by: None,
            deferred: VecDeque::new(),
            channel: None,
            looks: false,
        }
    }

    /// Takes an event; what follows is added to the actions. The time is that of a clock that never goes back, in milliseconds.
    pub fn on_event(&mut self, event: Event, now_ms: u64, actions: &mut Vec<Action>) {
        self.cx.now_ms = now_ms;
        if self.cx.state != SrunState::Over {
            self.handle(event);
        }
        self.cx.out.move_to(actions);
    }

    /// The steps that srun has made, one for each part, once it has.
    pub fn steps(&self) -> impl Iterator<Item = StepId> {
        self.step.nodes.steps()
    }

    /// The events that srun waits for.
    pub fn interest(&self) -> Interest {
        let runs = self.cx.is_running();
        let is_asking = matches!(self.cx.state, SrunState::Locating | SrunState::Asking);
        let gives_up = self.cx.is_ending() && self.step.clock.leave.is_some();
        Interest {
            agent: match is_asking {
                true => self.creation.agent(),
                false => self.lead(),
            },
            stepds: runs || (is_asking && self.creation.wants_channel()),
            looks: self.looks,
            signals: runs,
            input: runs
                && self.step.stdin_task != StdinTask::None
                && self.step.nodes.want_input()
                && !self.step.tasks.all_exited(),
            controller: runs && self.has_allocation && !self.cx.is_ending(),
            reads_controller: runs && self.has_allocation && !gives_up,
            until_ms: match self.cx.state {
                SrunState::Recording => self.recorded_by,
                SrunState::Locating | SrunState::Asking => self.creation.timer_at(),
                _ => self.step.clock.next(),
            },
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Started
            | Event::Allocation(_)
            | Event::AgentConnected { .. }
            | Event::AgentUnreachable(..)
            | Event::RequestSent { .. }
            | Event::AgentReplied(..)
            | Event::AgentLost(..) => self.on_agent_event(event),
            event @ (Event::StepdMessages(..) | Event::StepdLost(..)) => {
                self.on_stepd_event(event);
            }
            Event::StreamsOpened(result) => self.streams_opened(result),
            Event::ProgramEnded(result) => self.program_ended(result),
            Event::StepdConnected(stepd) => {
                self.step.nodes.connected(&mut self.cx.out, stepd);
                self.connect();
            }
            Event::StepdUnreachable(stepd, error) => self.stepd_unreachable(stepd, &error),
            Event::SignalsFailed(error) => {
                self.cx.out.fatal(&format!("signalfd: {error}"));
                self.fail_with(self.exit_codes.error);
            }
            Event::JobSignal(signal, job) if self.has_direct_signal(signal, job) => {}
            Event::JobSignal(signal, _) => self.on_event_of_user(Event::Signal(signal)),
            Event::Signal(_)
            | Event::Window(..)
            | Event::Input(_)
            | Event::JobEnded(_)
            | Event::ControllerFailed(_) => self.on_event_of_user(event),
            Event::Idle => self.on_idle(),
        }
    }

    fn on_event_of_user(&mut self, event: Event) {
        // Otherwise the step is over, or not there yet.
        if self.cx.is_running() {
            self.step.on_user_event(&mut self.cx, event);
        }
    }

    /// Whether the tasks get a signal for a whole job without this srun.
    fn has_direct_signal(&self, signal: i32, job: JobId) -> bool {
        signals::is_passed_on(signal) && self.steps().all(|step| step.job == job)
    }

    /// Handles an event of the conversation with agents, or of its end.
    fn on_agent_event(&mut self, event: Event) {
        let (creation, out) = (&mut self.creation, &mut self.cx.out);
        let progress = match event {
            Event::AgentReplied(agent, _) | Event::AgentLost(agent, _)
                if self.cx.state == SrunState::Recording =>
            {
                return self.lead_answered(agent);
            }
            Event::AgentReplied(agent, _) | Event::AgentLost(agent, _)
                if creation.agent() != Some(agent) =>
            {
                return;
            }
            Event::Started => creation.begin(out),
            Event::Allocation(answer) => creation.allocation(out, answer),
            Event::AgentConnected {
                is_local, own_ip, ..
            } => creation.connected(out, is_local, own_ip),
            Event::AgentUnreachable(_, error) => creation.unreachable(out, &error),
            Event::RequestSent { request, error, .. } => creation.sent(out, *request, error),
            Event::AgentReplied(_, reply) => creation.replied(out, *reply, self.cx.now_ms),
            Event::AgentLost(_, error) => creation.agent_lost(out, error, self.cx.now_ms),
            _ => return,
        };
        self.created_more(progress);
    }

    /// Handles an event of a step daemon, or keeps it until the step runs.
    fn on_stepd_event(&mut self, event: Event) {
        let (out, later) = (&mut self.cx.out, &mut self.deferred);
        match (self.cx.state, event) {
            (SrunState::Asking, Event::StepdMessages(stepd, messages)) => {
                let progress = self.creation.channel_messages(out, stepd, messages, later);
                self.created_more(progress);
            }
            (SrunState::Asking, Event::StepdLost(stepd, error)) => {
                let progress = self.creation.channel_lost(out, stepd, error, later);
                self.created_more(progress);
            }
            (SrunState::Running | SrunState::Ending, event) => {
                self.step.on_stepd_event(&mut self.cx, event);
            }
            (state, event) if state < SrunState::Running => later.push_back(event),
            // Nothing of it matters any more.
            _ => {}
        }
    }

    /// Goes on after an event of the conversation that makes the step.
    fn created_more(&mut self, progress: Progress) {
        let event = match progress {
            Progress::None => return,
            Progress::Asked => SrunStateEvent::Asked,
            Progress::Waits => SrunStateEvent::Waits,
            Progress::PartCreated => SrunStateEvent::PartCreated,
            Progress::Created => SrunStateEvent::Created,
            Progress::Failed { is_busy } => {
                let own = self.exit_codes.immediate.filter(|_| is_busy);
                return self.fail_with(own.unwrap_or(self.exit_codes.error));
            }
        };
        self.cx.advance(event);
        if event == SrunStateEvent::Created {
            self.open_streams();
        }
    }

    /// There is no way on.
    fn fail_with(&mut self, code: u8) {
        if !self.cx.advance(SrunStateEvent::Failed) {
            return;
        }
        if self.has_allocation {
            let exit = ExitStatus { code: 1, signal: 0 };
            self.cx.out.push(Action::EndAllocation(exit));
        }
        self.cx.out.push(Action::Exit(code));
    }

    fn open_streams(&mut self) {
        let CreatedStep {
            spec,
            parts,
            leads,
            channel,
            next_stepd,
        } = self.creation.take_step();
        let Some(step) = parts.first().map(|part| part.created.step) else {
            return;
        };
        self.step.job = spec.job;
        self.step.id = format!("StepId={}.{step}", spec.job);
        self.step.stdin_task = spec.stdin_task;
        self.has_terminal = spec.pty.is_some();
        self.is_unbuffered = spec.unbuffered || spec.pty.is_some();
        self.leads = leads.into();
        self.step.nodes.set_parts(parts, next_stepd);
        self.step.tasks = Tasks::new(self.step.nodes.iter());
        self.channel = channel;
        let stdin = match channel.is_some() {
            true => InputSource::Nothing,
            false => self.streams.stdin.clone(),
        };
        self.cx
            .out
            .push(Action::OpenStreams(Box::new(StreamsToOpen {
                job: spec.job,
                step,
                append: spec.append.unwrap_or(false),
                name: spec.name,
                stdin,
                stdout: self.streams.stdout.clone(),
                stderr: output::own_stderr(&self.streams).cloned(),
            })));
    }

    fn streams_opened(&mut self, result: Result<(), String>) {
        if let Err(error) = result.and_then(|()| self.check_input()) {
            self.cx.out.error(&error);
            self.fail_with(self.exit_codes.error);
            return;
        }
        let count = self.step.tasks.count();
        let rules = OutputRules {
            label: self.step.rules.label.then(|| labels::width(count)),
            unbuffered: self.is_unbuffered || count <= 1,
        };
        self.step.outputs = Outputs::new(&self.streams, rules);
        match self.step.rules.prolog.take() {
            Some(prolog) => self.cx.out.push(Action::RunProgram(prolog)),
            None => self.opened(),
        }
    }

    /// Input is for a task that there is.
    fn check_input(&self) -> Result<(), String> {
        let count = self.step.tasks.count();
        match self.step.stdin_task {
            StdinTask::One(task) if task as usize >= count => Err(format!(
                "--input={task}: the step has {count} tasks, numbered from 0"
            )),
            _ => Ok(()),
        }
    }

    fn program_ended(&mut self, result: Result<(), String>) {
        if let Err(error) = result {
            self.cx.out.error(&error);
        }
        match self.cx.state {
            SrunState::Opening => self.opened(),
            SrunState::Finishing => self.exit(),
            _ => {}
        }
    }

    fn opened(&mut self) {
        self.cx.advance(SrunStateEvent::Opened);
        if let Some(channel) = self.channel {
            self.step.nodes.adopt(&mut self.cx.out, channel);
        }
        self.connect();
    }

    /// Goes on to connect to step daemons, until all are.
    fn connect(&mut self) {
        let all = self.step.nodes.connect_next(&mut self.cx.out);
        if all && self.cx.state == SrunState::Connecting {
            self.cx.advance(SrunStateEvent::Connected);
            self.run();
        }
    }

    fn run(&mut self) {
        if self.channel.is_some() {
            self.step
                .on_message(&mut self.cx, 0, FromStepd::Started(Vec::new()));
        }
        self.looks = self.deferred.is_empty();
        for event in std::mem::take(&mut self.deferred) {
            self.on_stepd_event(event);
        }
        if !self.looks {
            self.look_over();
        }
    }

    /// All messages of step daemons that have arrived were handled. A short step may have ended.
    fn look_over(&mut self) {
        self.looks = false;
        if self.has_allocation || !self.step.nodes.are_over() {
            let raw_terminal = self.has_terminal;
            self.cx.out.push(Action::CatchSignals { raw_terminal });
        }
        self.end_if_over();
    }

    fn stepd_unreachable(&mut self, stepd: StepdIdx, error: &str) {
        let Some(at) = self.step.nodes.unreachable(stepd) else {
            return;
        };
        if self.cx.state == SrunState::Connecting {
            let node = self.step.nodes.node(at);
            let (name, address) = (&node.name, &node.address);
            let text = format!("Unable to reach node {name} at {address}: {error}");
            self.cx.out.error(&text);
            self.fail_with(self.exit_codes.error);
            return;
        }
        if let Some(event) = self.step.nodes.node_lost(at)
            && self.cx.is_running()
        {
            self.step.on_node_event(&mut self.cx, event);
        }
        self.connect();
    }

    fn on_idle(&mut self) {
        match self.cx.state {
            SrunState::Running | SrunState::Ending if self.looks => self.look_over(),
            SrunState::Running | SrunState::Ending => {
                self.step.on_time(&mut self.cx);
                self.step.nodes.forget_acknowledged();
                self.end_if_over();
            }
            SrunState::Recording => self.leads_time(),
            SrunState::Locating | SrunState::Asking => {
                let progress = self.creation.on_time(&mut self.cx.out, self.cx.now_ms);
                self.created_more(progress);
            }
            _ => {}
        }
    }
}
