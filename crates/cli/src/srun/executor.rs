//! Carries out what the state machine of srun decides: connections, files, signals, programs and the terminal are here. One loop
//! waits for whatever the machine is interested in and hands it over.

use super::allocation;
use super::detached;
use super::input::Input;
use super::output::{self, Names, OutputTarget};
use super::peer::Peer;
use super::terminal::{self, Raw};
use crate::agent::AgentStream;
use crate::connect::ConnectError;
use crate::say;
use crate::submit::filters::Filters;
use crate::submit::holder::{Holder, timeout};
use crate::submit::signals::{CaughtSignal, Signals};
use muster_model::ids::StepId;
use muster_node_core::srun::Srun;
use muster_node_core::srun::config::{InputSource, Sink, SrunConfig};
use muster_node_core::srun::interface::{
    self, AgentId, ControllerError, Interest, OutputStream, StepdIdx, StreamsToOpen,
};
use muster_proto::frame;
use muster_proto::step::{AgentRequest, ToStepd};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes not yet taken by a step daemon at which input waits.
const BACKLOG_MAX: usize = 256 << 10;

const CAUGHT: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
];

/// srun, with all that it holds.
pub(super) struct Executor<'f> {
    srun: Srun,
    /// When time began for the machine: when it first could matter. A short step never asks the kernel for it.
    started: Option<Instant>,
    /// Events that follow from actions, in order.
    events: VecDeque<interface::Event>,
    agents: Vec<(AgentId, AgentStream)>,
    stepds: Vec<Peer>,
    stdout: OutputTarget,
    stderr: OutputTarget,
    input: Input,
    signals: Option<Signals>,
    terminal: Option<Raw>,
    holder: Option<Holder>,
    exit: Option<u8>,
    /// Filters to be informed of the step once it is there.
    filters: Option<&'f Filters>,
    /// The srun that was called is to learn which step there is.
    announces: bool,
}

/// Sources with data to read.
#[derive(Default)]
struct Ready {
    signals: bool,
    input: bool,
    agent: bool,
    /// By position.
    stepds: Vec<usize>,
}

impl<'f> Executor<'f> {
    /// srun with its configuration at its begin; `holder` keeps the allocation, if it is ours.
    pub(super) fn new(
        config: SrunConfig,
        holder: Option<Holder>,
        filters: &'f Filters,
    ) -> Executor<'f> {
        Executor {
            srun: Srun::new(config),
            started: None,
            events: VecDeque::new(),
            agents: Vec::new(),
            stepds: Vec::new(),
            stdout: OutputTarget::Stdout,
            stderr: OutputTarget::Stderr,
            input: Input::None,
            signals: None,
            terminal: None,
            holder,
            exit: None,
            filters: Some(filters).filter(|filters| !filters.is_empty()),
            announces: false,
        }
    }

    /// Says which step there is as soon as it is known.
    pub(super) fn announcing(self) -> Executor<'f> {
        Executor {
            announces: true,
            ..self
        }
    }

    /// Stays until the step has ended.
    pub(super) fn run(mut self) -> ExitCode {
        self.handle(interface::Event::Started);
        loop {
            match self.exit {
                Some(code) => return ExitCode::from(code),
                None => self.turn(),
            }
        }
    }

    /// Handles an event, and all events that its actions cause.
    fn handle(&mut self, event: interface::Event) {
        let mut actions = Vec::new();
        let mut next = Some(event);
        while let Some(event) = next {
            let since = self.started.map_or(Duration::ZERO, |at| at.elapsed());
            let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            self.srun.on_event(event, now_ms, &mut actions);
            for action in actions.drain(..) {
                self.execute(action);
            }
            next = self.events.pop_front();
        }
        self.inform_filters();
        if self.announces
            && let Some(step) = self.srun.steps().next()
        {
            self.announces = false;
            detached::announce(step);
        }
    }

    /// Filters of the command line are informed of the step once.
    fn inform_filters(&mut self) {
        let Some(filters) = self.filters else {
            return;
        };
        for (component, StepId { job, step }) in self.srun.steps().enumerate() {
            filters.post_submit(component, job.0, Some(step.0));
            self.filters = None;
        }
    }

    /// Waits for something to happen and deals with it.
    fn turn(&mut self) {
        let interest = self.srun.interest();
        let ready = match interest.looks {
            true => Ready {
                stepds: (0..self.stepds.len()).collect(),
                ..Ready::default()
            },
            false => self.wait(&interest),
        };
        while ready.signals
            && let Some(signal) = self.signals.as_ref().and_then(Signals::take_with_job)
        {
            self.on_signal(signal);
        }
        if ready.input
            && let Some(bytes) = self.input.read()
        {
            self.handle(interface::Event::Input(bytes));
        }
        self.serve_stepds(ready.stepds);
        // The step daemon may have answered for the agent.
        if ready.agent
            && let Some(agent) = self.srun.interest().agent
            && Some(agent) == interest.agent
        {
            self.receive(agent);
        }
        if self.holder.is_some() && self.srun.interest().reads_controller {
            self.read_controller();
        }
        self.handle(interface::Event::Idle);
    }

    fn wait(&mut self, interest: &Interest) -> Ready {
        if interest.until_ms.is_some() || self.signals.is_some() {
            self.started.get_or_insert_with(Instant::now);
        }
        let due = interest.until_ms.map(Duration::from_millis);
        let due = self
            .started
            .zip(due)
            .map(|(started, since)| started + since);
        let holder = self.holder.as_ref().filter(|_| interest.reads_controller);
        let until = [due, holder.and_then(Holder::wake)];
        let until = until.into_iter().flatten().min();
        let mut fds = Vec::with_capacity(4 + self.stepds.len());
        let mut add = |fd| {
            fds.push(PollFd::new(fd, PollFlags::POLLIN));
            fds.len() - 1
        };
        let signals = self.signals.as_ref().filter(|_| interest.signals);
        let signals = signals.map(|signals| add(signals.fd()));
        let takes_input = self.stepds.iter().all(|p| p.backlog() < BACKLOG_MAX);
        let input = self.input.fd().filter(|_| interest.input && takes_input);
        let input = input.map(&mut add);
        let agent = interest.agent.and_then(|id| self.agent(id));
        let agent = agent.map(|stream| add(stream.as_fd()));
        if let Some(fd) = holder.and_then(Holder::fd).filter(|_| interest.controller) {
            add(fd);
        }
        let first = fds.len();
        if interest.stepds {
            fds.extend(self.stepds.iter().map(Peer::poll_fd));
        }
        let _ = poll(&mut fds, timeout(until));
        let is_ready = |at: usize| fds[at].any().unwrap_or(false);
        Ready {
            signals: signals.is_some_and(is_ready),
            input: input.is_some_and(is_ready),
            agent: agent.is_some_and(is_ready),
            stepds: (first..fds.len())
                .filter(|at| is_ready(*at))
                .map(|at| at - first)
                .collect(),
        }
    }

    fn on_signal(&mut self, caught: CaughtSignal) {
        let signal = caught.signal as i32;
        if caught.signal != Signal::SIGWINCH {
            self.handle(match caught.job {
                Some(job) => interface::Event::JobSignal(signal, job),
                None => interface::Event::Signal(signal),
            });
        } else if let Some((rows, columns)) = terminal::size() {
            self.handle(interface::Event::Window(rows, columns));
        }
    }

    fn serve_stepds(&mut self, ready: Vec<usize>) {
        let ready: Vec<StepdIdx> = ready.into_iter().map(|at| self.stepds[at].id).collect();
        for id in ready {
            // It may have been closed by what another has sent.
            let Some(at) = self.stepds.iter().position(|peer| peer.id == id) else {
                continue;
            };
            let (messages, end) = self.stepds[at].exchange();
            if end.is_some() {
                self.stepds.remove(at);
            }
            if !messages.is_empty() {
                self.handle(interface::Event::StepdMessages(id, messages));
            }
            if let Some(error) = end {
                self.handle(interface::Event::StepdLost(id, error.to_string()));
            }
        }
    }

    fn receive(&mut self, agent: AgentId) {
        let found = self.agents.iter_mut().find(|(id, _)| *id == agent);
        let Some((_, stream)) = found else {
            return;
        };
        let event = match stream.read_reply() {
            Ok(reply) => interface::Event::AgentReplied(agent, Box::new(reply)),
            Err(error) => interface::Event::AgentLost(agent, error.to_string()),
        };
        self.handle(event);
    }

    fn read_controller(&mut self) {
        let Some(holder) = &mut self.holder else {
            return;
        };
        let known = holder.ended.is_some();
        let error = holder.read().err();
        let ended = holder.ended.filter(|_| !known);
        if let Some(error) = error {
            self.handle(interface::Event::ControllerFailed(error.to_string()));
        }
        if let Some(ended) = ended {
            self.handle(interface::Event::JobEnded(ended.state));
        }
    }

    fn agent(&self, agent: AgentId) -> Option<&AgentStream> {
        let mut agents = self.agents.iter();
        let found = agents.find(|(id, _)| *id == agent);
        found.map(|(_, stream)| stream)
    }

    fn execute(&mut self, action: interface::Action) {
        match action {
            interface::Action::AskAllocation(job) => {
                let answer = allocation(job).map_err(controller_error);
                self.events.push_back(interface::Event::Allocation(answer));
            }
            interface::Action::ConnectAgent {
                agent,
                address,
                job,
                key,
            } => {
                let stream =
                    AgentStream::connect_agent(&address, job, key.as_ref().map(|key| &***key));
                self.connect_agent(agent, stream);
            }
            interface::Action::SendRequest {
                agent,
                request,
                channel,
            } => self.send_request(agent, request, channel),
            interface::Action::CloseAgent(agent) => self.agents.retain(|(id, _)| *id != agent),
            interface::Action::OpenStreams(streams) => {
                let result = self.open_streams(&streams);
                self.events
                    .push_back(interface::Event::StreamsOpened(result));
            }
            interface::Action::RunProgram(path) => {
                let result = run_program(&path);
                self.events
                    .push_back(interface::Event::ProgramEnded(result));
            }
            interface::Action::ConnectStepd {
                stepd,
                address,
                step,
                key,
            } => self.connect_stepd(stepd, AgentStream::connect_stepd(&address, step, &key)),
            interface::Action::SendStepds(stepds, message) => self.send_stepds(&stepds, &message),
            interface::Action::CloseStepd(stepd) => self.stepds.retain(|peer| peer.id != stepd),
            interface::Action::CatchSignals { raw_terminal } => self.catch_signals(raw_terminal),
            interface::Action::RestoreTerminal => self.terminal = None,
            interface::Action::Write(OutputStream::Stdout, bytes) => self.stdout.write(&bytes),
            interface::Action::Write(OutputStream::Stderr, bytes) => self.stderr.write(&bytes),
            interface::Action::Print(text) => say::stderr(&text),
            interface::Action::EndAllocation(exit) => {
                if let Some(holder) = self.holder.take() {
                    holder.finish(exit);
                }
            }
            interface::Action::Exit(code) => self.exit = Some(code),
        }
    }

    fn connect_agent(&mut self, agent: AgentId, stream: io::Result<AgentStream>) {
        self.events.push_back(match stream {
            Ok(stream) => {
                let (is_local, own_ip) = (stream.is_local(), stream.own_ip());
                self.agents.push((agent, stream));
                interface::Event::AgentConnected {
                    agent,
                    is_local,
                    own_ip,
                }
            }
            Err(error) => interface::Event::AgentUnreachable(agent, error.to_string()),
        });
    }

    fn send_request(
        &mut self,
        agent: AgentId,
        request: Box<AgentRequest>,
        channel: Option<StepdIdx>,
    ) {
        let found = self.agents.iter_mut().find(|(id, _)| *id == agent);
        let sent = match (found, channel) {
            (Some((_, stream)), Some(id)) => stream
                .send_with_streams(&request)
                .map(|near| self.stepds.push(Peer::new(id, near))),
            (Some((_, stream)), None) => stream.send(&request),
            (None, _) => Err(io::ErrorKind::NotConnected.into()),
        };
        let found = self.agents.iter_mut().find(|(id, _)| *id == agent);
        let reply = match (&sent, found) {
            (Err(error), Some((_, stream))) => stream.reply_before_close(error),
            _ => None,
        };
        let error = sent.err().filter(|_| reply.is_none());
        let error = error.map(|error| error.to_string());
        self.events.push_back(interface::Event::RequestSent {
            agent,
            request,
            error,
        });
        let reply = reply.map(|reply| interface::Event::AgentReplied(agent, Box::new(reply)));
        self.events.extend(reply);
    }

    fn connect_stepd(&mut self, stepd: StepdIdx, stream: io::Result<AgentStream>) {
        self.events.push_back(match stream {
            Ok(stream) => {
                self.stepds.push(Peer::new(stepd, stream));
                interface::Event::StepdConnected(stepd)
            }
            Err(error) => interface::Event::StepdUnreachable(stepd, error.to_string()),
        });
    }

    fn send_stepds(&mut self, stepds: &[StepdIdx], message: &ToStepd) {
        let frame = frame::encode(message);
        for peer in &mut self.stepds {
            if stepds.contains(&peer.id) {
                peer.send(&frame);
            }
        }
    }

    fn catch_signals(&mut self, raw_terminal: bool) {
        match Signals::catch(&CAUGHT) {
            Ok(signals) => {
                self.signals = Some(signals);
                self.terminal = if raw_terminal { Raw::enter() } else { None };
            }
            Err(error) => {
                let event = interface::Event::SignalsFailed(error.to_string());
                self.events.push_back(event);
            }
        }
    }

    fn open_streams(&mut self, streams: &StreamsToOpen) -> Result<(), String> {
        let names = Names {
            job: streams.job,
            step: streams.step,
            user: super::own_user,
            job_name: &streams.name,
        };
        let open = |sink: &Sink, own: OutputTarget| match sink {
            Sink::Nodes | Sink::Own | Sink::OwnOf(_) => Ok(own),
            Sink::File(pattern) => {
                let path = output::expand(pattern, &names);
                let file = output::open(&path, streams.append);
                let failed = |e| format!("Could not open stdout file {path}: {e}");
                file.map(OutputTarget::File).map_err(failed)
            }
        };
        self.stdout = open(&streams.stdout, OutputTarget::Stdout)?;
        if let Some(stderr) = &streams.stderr {
            self.stderr = open(stderr, OutputTarget::Stderr)?;
        }
        self.input = match &streams.stdin {
            InputSource::Nothing => Input::None,
            InputSource::Own => Input::Own(io::stdin()),
            InputSource::File(pattern) => {
                let path = output::expand(pattern, &names);
                let file = std::fs::File::open(&path);
                Input::File(file.map_err(|e| format!("Could not open stdin file {path}: {e}"))?)
            }
        };
        Ok(())
    }
}

fn controller_error(error: ConnectError) -> ControllerError {
    match error {
        ConnectError::Refused(refusal) => ControllerError::Refused(refusal),
        ConnectError::Config(_) => ControllerError::NotConfigured(error.to_string()),
        other => ControllerError::Failed(other.to_string()),
    }
}

/// `--prolog`, `--epilog`, `SrunProlog`, `SrunEpilog`.
fn run_program(path: &str) -> Result<(), String> {
    match std::process::Command::new(path).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{path}: {status}")),
        Err(e) => Err(format!("cannot run {path}: {e}")),
    }
}
