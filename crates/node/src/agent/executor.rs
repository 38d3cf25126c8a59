//! Performs the actions of the agent's state machine and feeds it events. Output caused by a burst
//! of events leaves in one write per peer.

use super::audit::{AuditLog, AuditedRequest};
use super::closing::{Sender, Streams};
use super::controller::ControllerLink;
use super::launcher_link::LauncherOutlet;
use super::listener::Requester;
use super::page::{self, AboutAgent};
use super::peers::Peers;
use super::quota::{Charge, Precedence};
use super::relay_link::AdmissionQuery;
use super::replies::Outbox;
use super::stepd_channels::StepdChannels;
use super::{ClientInput, Input, NodeProbe, mpi_probe};
use crate::options::AgentOptions;
use crate::{info, now, sys, topology};
use minicbor::bytes::ByteVec;
use muster_channel::admission::FairQueue;
use muster_model::audit::SUMMARY_MS;
use muster_model::ids::{AttemptStep, JobAttempt};
use muster_model::refusal::Refusal;
use muster_model::time::Timestamp;
use muster_node_core::agent::view;
use muster_node_core::agent::{
    self, Agent, AgentConfig, ChannelRefusal, ClientRequest, ConnId, DialId, PeerRequestId,
    RequestId, StdioId, StepdChannelId, Timer,
};
use muster_node_core::messages::{LauncherCommand, StepOrder};
use muster_node_core::now::Now;
use muster_proto::client::{Request, RequestBody};
use muster_proto::frame;
use muster_proto::node::{NodeHello, ToCtld};
use muster_proto::step::{AgentReply, AgentRequest};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of relay questions that wait for a job. The relay gives each up after a while.
const QUESTIONS_MAX: usize = 256;

/// Maximum number of client requests that are served before other inputs are handled.
const REQUESTS_AT_ONCE: usize = 64;
/// Number of users' requests served in each turn, however many others wait: an agent that was taken
/// over must not starve users.
const USER_REQUESTS_AT_ONCE: usize = 16;
/// No request is begun after this time, in which first administrators and agents, then users are
/// served.
const SERVICE_TIME: Duration = Duration::from_millis(5);

/// A request that has not been answered completely.
struct OpenRequest {
    /// `None` once the client has disconnected.
    reply: Option<Outbox>,
    /// The request as the audit log shows it if it is refused.
    audited: AuditedRequest,
    /// Counts against the queued bytes and requests of the user.
    charge: Option<Charge>,
}

/// A connection to the controller that waits for its greeting.
struct Dialed {
    /// The agent's public key for the connection.
    key: ByteVec,
    greeting: oneshot::Sender<Vec<u8>>,
}

/// The agent's state machine, and the objects that its numbers stand for.
pub(super) struct Executor {
    agent: Agent,
    options: AgentOptions,
    found: NodeProbe,
    started: Timestamp,
    clock: Instant,
    inputs: mpsc::UnboundedSender<Input>,
    peers: Peers,
    controller: Option<ControllerLink>,
    /// The reason why the controller's configuration is not applied here, or that it is applied;
    /// `None` if not known yet.
    configuration: Option<Option<String>>,
    launcher: Option<LauncherOutlet>,
    /// Frames for launcher and controller from this burst.
    to_launcher: Vec<u8>,
    to_controller: Vec<u8>,
    dialed: HashMap<DialId, Dialed>,
    answered: HashMap<DialId, oneshot::Sender<Result<(), String>>>,
    /// Waiting requests of administrators and other agents.
    first: FairQueue<ClientInput, Sender>,
    /// Waiting requests of users, which have their turn after the others.
    users: FairQueue<ClientInput, Sender>,
    /// Time that each of the two queues is served before other inputs are handled.
    service_time: Duration,
    requests: HashMap<RequestId, OpenRequest>,
    audit: AuditLog,
    /// A summary of omitted audit lines is scheduled.
    is_summary_due: bool,
    streams: HashMap<StdioId, Streams>,
    next_id: u64,
    stepds: StepdChannels,
    /// Results of actions, which are handled before all other events.
    events: VecDeque<agent::Event>,
    /// Questions about clients of other hosts for jobs that are not known here yet.
    questions: BTreeMap<u64, AdmissionQuery>,
    is_stopping: bool,
}

impl Executor {
    pub(super) fn new(
        options: AgentOptions,
        found: NodeProbe,
        peers: Peers,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> Executor {
        let started = now();
        let config = AgentConfig {
            conf: options.conf.clone(),
            name: options.name.clone(),
            cluster: options.cluster.clone(),
            address: info::address(&options),
            spool_dir: options.spool_dir.clone(),
            cross_memory_pays: found.cross_memory.as_ref().map(|c| c.pays()),
            listens_at: found.listens_at,
            machine: topology::read_machine(options.claim()),
        };
        Executor {
            agent: Agent::new(config, started),
            options,
            found,
            started,
            clock: Instant::now(),
            inputs,
            peers,
            controller: None,
            configuration: None,
            launcher: None,
            to_launcher: Vec::new(),
            to_controller: Vec::new(),
            dialed: HashMap::new(),
            answered: HashMap::new(),
            first: FairQueue::default(),
            users: FairQueue::default(),
            service_time: SERVICE_TIME,
            requests: HashMap::new(),
            audit: AuditLog::new(),
            is_summary_due: false,
            streams: HashMap::new(),
            next_id: 0,
            stepds: StepdChannels::default(),
            events: VecDeque::new(),
            questions: BTreeMap::new(),
            is_stopping: false,
        }
    }

    /// Data of pages about this agent.
    fn about(&self) -> AboutAgent<'_> {
        AboutAgent {
            node: &self.options.name,
            started: self.started,
            counts: view::counts(&self.agent),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Passes an input to the agent, and performs the resulting actions.
    pub(super) fn take(&mut self, input: Input) {
        let event = match input {
            Input::Event(event) => Some(event),
            Input::Dialed(dial, key, greeting) => {
                self.dialed.insert(dial, Dialed { key, greeting });
                Some(agent::Event::Dialed(dial))
            }
            Input::ControllerAnswered(dial, key, trusted) => {
                self.answered.insert(dial, trusted);
                Some(agent::Event::ControllerAnswered(dial, key))
            }
            Input::ControllerUp(link) => {
                self.controller = Some(link);
                self.to_controller.clear();
                self.send_configuration();
                Some(agent::Event::ControllerUp)
            }
            Input::ControllerLost => {
                self.controller = None;
                Some(agent::Event::ControllerLost)
            }
            Input::Configuration(error) => {
                self.configuration = Some(error);
                self.send_configuration();
                None
            }
            Input::LauncherUp(outlet) => {
                self.launcher = Some(outlet);
                self.to_launcher.clear();
                Some(agent::Event::LauncherUp)
            }
            Input::LauncherLost => {
                self.launcher = None;
                Some(agent::Event::LauncherLost)
            }
            Input::StepChannel(attempt, step, end) => {
                self.stepds
                    .open(AttemptStep::new(attempt, step), end, &self.inputs);
                None
            }
            Input::StepdReadable(stepd) => self.stepds.read(stepd),
            Input::ChannelAsked(question) => {
                self.questions.insert(question.number, question);
                self.answer_questions();
                None
            }
            Input::ChannelGone(gone) => {
                self.questions.remove(&gone.number);
                gone.forget();
                None
            }
            Input::PageAsked(question) => {
                let (status, text) = page::text(question.page, &self.about());
                question.answer(status, text);
                None
            }
            Input::Denied(audited, refusal) => {
                self.note_refusal(&audited, &refusal);
                None
            }
            Input::AuditSummary => {
                self.is_summary_due = false;
                self.audit.write_summary();
                None
            }
            Input::Client(precedence, sender, input) => {
                self.queue(precedence).push(sender, input);
                None
            }
        };
        if let Some(event) = event {
            self.run(event);
        }
    }

    /// Whether clients wait for their turn.
    pub(super) fn has_clients(&self) -> bool {
        !(self.first.is_empty() && self.users.is_empty())
    }

    /// Serves clients for a limited time: administrators and other agents, then users.
    pub(super) fn serve_clients(&mut self) {
        let served = self.serve_some(Precedence::First, REQUESTS_AT_ONCE);
        let left = REQUESTS_AT_ONCE - served;
        self.serve_some(Precedence::Users, left.max(USER_REQUESTS_AT_ONCE));
    }

    /// Serves at most this many requests, but at least one however long it takes; returns their
    /// number.
    fn serve_some(&mut self, precedence: Precedence, most: usize) -> usize {
        let begun = self.clock.elapsed();
        let mut served = 0;
        while served < most && self.serve_next(precedence) {
            served += 1;
            if self.clock.elapsed().saturating_sub(begun) >= self.service_time {
                break;
            }
        }
        served
    }

    /// Serves the client whose turn it is, measured by the time that requests take; returns whether
    /// there was one.
    fn serve_next(&mut self, precedence: Precedence) -> bool {
        let Some((sender, input)) = self.queue(precedence).pop() else {
            return false;
        };
        let begun = self.clock.elapsed();
        self.serve_client(input);
        let cost = self.clock.elapsed().saturating_sub(begun).as_micros();
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        self.queue(precedence).charge(sender, cost.max(1));
        true
    }

    fn queue(&mut self, precedence: Precedence) -> &mut FairQueue<ClientInput, Sender> {
        match precedence {
            Precedence::First => &mut self.first,
            Precedence::Users => &mut self.users,
        }
    }

    fn serve_client(&mut self, input: ClientInput) {
        match input {
            ClientInput::Request {
                asker,
                request,
                streams,
                reply,
                place,
            } => {
                drop(place);
                if reply.may_ask() {
                    let event = self.open_request(asker, request, streams, reply);
                    self.run(event);
                }
            }
            ClientInput::Gone(conn) => drop(self.run(agent::Event::ConnClosed(conn))),
        }
    }

    /// Answers the relay's questions that can be answered: a job may become known here after the
    /// client has connected for it.
    fn answer_questions(&mut self) {
        let mut later = BTreeMap::new();
        for (number, question) in std::mem::take(&mut self.questions) {
            match self.agent.channel_peer(&question.credential) {
                Ok(peer) => question.answer(peer),
                Err(ChannelRefusal::NotHere) => drop(later.insert(number, question)),
                Err(why) => question.refuse(&why.to_string()),
            }
        }
        // A client with a valid key gets an answer soon, so the oldest questions are those of
        // clients without one.
        while later.len() > QUESTIONS_MAX
            && let Some((_, oldest)) = later.pop_first()
        {
            oldest.refuse(&ChannelRefusal::NotHere.to_string());
        }
        self.questions = later;
    }

    /// Sends the output of a burst of events.
    pub(super) fn flush(&mut self) {
        while self.run(agent::Event::Idle) {}
        if !self.questions.is_empty() {
            self.answer_questions();
        }
        self.flush_launcher();
        if let Some(controller) = &self.controller
            && !self.to_controller.is_empty()
        {
            // A closed outlet means that the connection is gone, which arrives as a separate input.
            let _ = controller
                .outlet
                .send(std::mem::take(&mut self.to_controller));
        }
    }

    /// Passes an event to the agent, and then the results of its actions; returns whether there
    /// were any actions.
    fn run(&mut self, event: agent::Event) -> bool {
        self.events.push_back(event);
        let (mut actions, mut count) = (Vec::new(), 0);
        while let Some(event) = self.events.pop_front() {
            count += 1;
            let mono = self.clock.elapsed().as_millis();
            let now = Now {
                wall: now(),
                mono_ms: u64::try_from(mono).unwrap_or(u64::MAX),
            };
            self.agent.on_event(event, now, &mut actions);
            for action in actions.drain(..) {
                self.execute(action);
            }
        }
        count > 1
    }

    fn execute(&mut self, action: agent::Action) {
        match action {
            agent::Action::Greet {
                dial,
                launcher_key,
                present,
            } => self.greet(dial, launcher_key, present),
            agent::Action::TrustController(dial, result) => self.trust_controller(dial, result),
            agent::Action::CloseController => self.close_controller(),
            agent::Action::SendHealth => self.send_health(),
            agent::Action::SendReports(reports) => {
                frame::encode_into(&ToCtld::Reports(reports), &mut self.to_controller);
            }
            agent::Action::Launcher(command) => {
                frame::encode_into(&command, &mut self.to_launcher);
            }
            agent::Action::StartStepd {
                stepd,
                order,
                tmp_bases,
            } => self.start_stepd(stepd, order, tmp_bases),
            agent::Action::OfferStep {
                stepd,
                frame,
                stdio,
            } => self.offer_step(stepd, &frame, stdio),
            agent::Action::SendStdio { stepd, stdio } => self.send_stdio(stepd, stdio),
            agent::Action::ReadStepds(stepds) => self.read_stepds(stepds),
            agent::Action::CloseStepd(stepd) => self.stepds.close(stepd),
            // The closing thread closes these, where nothing waits for it.
            agent::Action::CloseStdio(stdio) => drop(self.streams.remove(&stdio)),
            agent::Action::Reply(request, reply) => self.reply(request, reply),
            agent::Action::ReleaseBytes(request) => {
                if let Some(request) = self.requests.get_mut(&request) {
                    request.charge = None;
                }
            }
            agent::Action::LeaveBytes(request) => {
                if let Some(request) = self.requests.get_mut(&request) {
                    request.reply = None;
                }
            }
            agent::Action::EndRequest(request) => drop(self.requests.remove(&request)),
            agent::Action::AskPeer {
                request,
                address,
                body,
            } => self.ask_peer(request, address, body),
            agent::Action::SetTimer { timer, after_ms } => self.set_timer(timer, after_ms),
            agent::Action::Stop => self.is_stopping = true,
        }
    }

    fn trust_controller(&mut self, dial: DialId, result: Result<(), String>) {
        if let Some(trusted) = self.answered.remove(&dial) {
            // The connection may have ended meanwhile.
            let _ = trusted.send(result);
        }
    }

    fn close_controller(&mut self) {
        if let Some(link) = self.controller.take() {
            link.close();
        }
    }

    fn send_health(&mut self) {
        let (load_centi, free_mib) = info::health();
        let health = ToCtld::Health {
            load_centi,
            free_mib,
            configuration: None,
        };
        frame::encode_into(&health, &mut self.to_controller);
    }

    /// Each new connection to the controller reports the state of the configuration again.
    fn send_configuration(&mut self) {
        if let (Some(error), Some(_)) = (&self.configuration, &self.controller) {
            let (load_centi, free_mib) = info::health();
            let said = ToCtld::Health {
                load_centi,
                free_mib,
                configuration: Some(error.clone().unwrap_or_default()),
            };
            frame::encode_into(&said, &mut self.to_controller);
        }
    }

    fn offer_step(&mut self, stepd: StepdChannelId, frame: &[u8], stdio: Option<StdioId>) {
        // The used step number must be recorded before the step begins; otherwise the next agent
        // would assign it again.
        let is_kept = self.has_sent_launcher();
        let streams = stdio.and_then(|stdio| self.streams.get(&stdio));
        let is_written = is_kept && self.stepds.send(stepd, frame, streams);
        self.events
            .push_back(agent::Event::StepOffered(stepd, is_written));
    }

    fn read_stepds(&mut self, stepds: Vec<StepdChannelId>) {
        for stepd in stepds {
            self.events.extend(self.stepds.read(stepd));
        }
        self.events.push_back(agent::Event::StepdsRead);
    }

    fn reply(&mut self, request: RequestId, reply: AgentReply) {
        let Some(open) = self.requests.get(&request) else {
            return;
        };
        let denied = match &reply {
            AgentReply::Refused(refusal) => Some((open.audited.clone(), refusal.clone())),
            _ => None,
        };
        if let Some(client) = &open.reply {
            client.send(&reply);
        }
        if let Some((audited, refusal)) = denied {
            self.note_refusal(&audited, &refusal);
        }
    }

    /// Writes a line of the audit log, or schedules the count of omitted lines.
    fn note_refusal(&mut self, audited: &AuditedRequest, refusal: &Refusal) {
        if self.audit.note(audited, refusal) && !self.is_summary_due {
            self.is_summary_due = true;
            let inputs = self.inputs.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(SUMMARY_MS)).await;
                let _ = inputs.send(Input::AuditSummary);
            });
        }
    }

    fn ask_peer(&self, request: PeerRequestId, address: String, body: Box<AgentRequest>) {
        let (peers, inputs) = (self.peers.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let answer = peers.ask(&address, &body).await;
            let answer = answer.map_err(|e| format!("{e:#}"));
            let event = agent::Event::PeerAnswered(request, answer);
            let _ = inputs.send(Input::Event(event));
        });
    }

    fn set_timer(&self, timer: Timer, after_ms: u64) {
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let _ = inputs.send(Input::Event(agent::Event::TimerDue(timer)));
        });
    }

    fn start_stepd(
        &mut self,
        stepd: StepdChannelId,
        mut order: Box<StepOrder>,
        tmp_bases: Vec<String>,
    ) {
        if let Some(pmix) = &mut order.pmix {
            mpi_probe::complete(pmix, tmp_bases);
        }
        self.stepds.expect(stepd, order.attempt, order.launch.step);
        frame::encode_into(&LauncherCommand::StartStep(order), &mut self.to_launcher);
    }

    /// Descriptors are sent with the last message.
    fn flush_launcher(&mut self) {
        if let Some(launcher) = &self.launcher
            && !self.to_launcher.is_empty()
        {
            launcher.send(std::mem::take(&mut self.to_launcher));
        }
    }

    /// Sends queued commands; returns whether the launcher will receive everything that was sent,
    /// even if this process is killed now.
    fn has_sent_launcher(&mut self) -> bool {
        let commands = std::mem::take(&mut self.to_launcher);
        let launcher = self.launcher.as_ref();
        launcher.is_some_and(|launcher| launcher.send_now(commands))
    }

    fn send_stdio(&self, stepd: StepdChannelId, stdio: StdioId) {
        let streams = self.streams.get(&stdio);
        if !streams.is_some_and(|streams| self.stepds.send_streams(stepd, streams)) {
            // A daemon without its streams ends by itself, and its end is reported like any other.
            log::warn!("cannot pass a step's streams to its daemon");
        }
    }

    /// Sends the greeting to the controller: the keys of agent and launcher for this connection.
    fn greet(&mut self, dial: DialId, launcher_key: ByteVec, present: Vec<JobAttempt>) {
        let Some(Dialed { key, greeting }) = self.dialed.remove(&dial) else {
            return;
        };
        let mut info = info::collect(&self.options, self.started);
        info.cross_memory = self.found.cross_memory.as_ref().map(ToString::to_string);
        let hello = NodeHello {
            name: self.options.name.clone(),
            info,
            present,
            key,
            launcher_key,
            dynamic: self.options.dynamic.clone(),
        };
        // The connection may have ended meanwhile.
        let _ = greeting.send(frame::encode(&Request {
            version: muster_proto::PROTOCOL,
            client: None,
            body: RequestBody::NodeHello(Box::new(hello)),
        }));
    }

    fn open_request(
        &mut self,
        asker: Requester,
        request: Box<AgentRequest>,
        streams: Option<Streams>,
        reply: Outbox,
    ) -> agent::Event {
        self.next_id += 1;
        let (id, stdio) = (RequestId(self.next_id), StdioId(self.next_id));
        let open = OpenRequest {
            reply: Some(reply),
            audited: AuditedRequest::new(asker.uid, asker.place, asker.is_agent, &request),
            charge: Some(asker.charge),
        };
        self.requests.insert(id, open);
        let stdio = streams.map(|streams| {
            self.streams.insert(stdio, streams);
            stdio
        });
        let random = match *request {
            AgentRequest::Create(_) => sys::random_key(),
            _ => ByteVec::from(Vec::new()),
        };
        agent::Event::Request(ClientRequest {
            id,
            conn: ConnId(asker.conn),
            uid: asker.uid,
            is_agent: asker.is_agent,
            body: request,
            stdio,
            random,
        })
    }
}

#[cfg(test)]
mod tests;
