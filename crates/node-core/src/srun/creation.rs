//! The conversation with agents that makes the step: where they are, the number of a step of a heterogeneous job, the request for
//! each part, and the wait for its turn.

use super::actions::Actions;
use super::config::{Lead, NumberSource, SrunConfig, StepComponent};
use super::interface::{Action, AgentId, ControllerError, Event, StepdIdx};
use minicbor::bytes::ByteVec;
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::ExecContext;
use muster_model::visible_text::debug_beginning;
use muster_proto::client::AllocationInfo;
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, StepCreated, StepSpec};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Transport between srun and the tasks of its step. srun chooses the transport each time it has connected to an agent,
/// before it requests the step ([`Creation::connected`]). *Direct* is for a step of one task in an existing allocation
/// whose first node is this host, if the task cannot distinguish srun's own streams from a copy
/// (`SrunConfig::can_pass_stdio`). All other steps are *attached*. The node may have a reason against direct streams,
/// such as a program of the site before each task: then it declines them (`StepCreated::direct`), and srun attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepTransport {
    /// The task has srun's streams. All that srun need know comes by a connection to the step daemon that is sent with them.
    Direct,
    /// srun connects to the step daemons, which carry the streams.
    Attached,
}

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing that changes the state.
    None,
    /// A part was asked for.
    Asked,
    /// The step waits.
    Waits,
    /// This part was created, others were not yet.
    PartCreated,
    /// All are there.
    Created,
    /// There is no way on.
    Failed {
        /// The step would have to wait, but must start at once.
        is_busy: bool,
    },
}

/// After how long the first request that an agent had no room for is made again; each further wait is twice as long.
const RETRY_FIRST_MS: u64 = 1000;
/// No wait is longer.
const RETRY_MOST_MS: u64 = 8000;
/// Most retries of a request.
const RETRIES_MAX: u32 = 20;

const FAILED: Progress = Progress::Failed { is_busy: false };

/// The connection to the step daemon of a task that may have srun's streams, before the agent has said whether it has.
#[derive(Debug)]
struct Channel {
    id: StepdIdx,
    /// A message other than the expected first one has arrived, so the agent answers itself.
    has_spoken: bool,
    /// The agent has said that all is over: the daemon's messages are on their way, or are lost with it.
    is_done: bool,
}

/// Time limit for the first message of a step daemon whose agent has disconnected.
const DAEMON_ALONE_MS: u64 = 5000;

/// An agent that has disconnected while a step daemon may have its order; such a daemon reports the step.
#[derive(Clone, Debug)]
struct AgentGone {
    error: String,
    /// The time limit for the daemon's message, in milliseconds.
    give_up_at: u64,
}

/// Requests that an agent had no room for.
#[derive(Clone, Copy, Debug, Default)]
struct Retries {
    count: u32,
    /// When the next is made, in milliseconds.
    at: Option<u64>,
}

/// The requested and the created parts of a step.
#[derive(Debug)]
pub(super) struct Creation {
    /// Where the number of the step is to come from.
    number: Option<NumberSource>,
    /// The step number, and the proof of its assignment.
    numbered: Option<(u32, ByteVec)>,
    /// The key of the leader, once it is known.
    number_key: Option<ByteVec>,
    /// Parts that are not begun.
    parts: VecDeque<StepComponent>,
    /// The request that is under way, unless it is lent to the executor; and the agent that gets it.
    spec: Option<Box<StepSpec>>,
    job: JobId,
    lead: Lead,
    has_key: bool,
    is_immediate: bool,
    can_pass_stdio: bool,
    agent: Option<AgentId>,
    address: String,
    transport: StepTransport,
    channel: Option<Channel>,
    agent_gone: Option<AgentGone>,
    is_queued: bool,
    retries: Retries,
    /// Why the controller is asked for the key.
    refused: Option<Refusal>,
    next_agent: u32,
    next_stepd: u32,
    /// The parts that are there.
    created: Vec<CreatedPart>,
    /// The request of the first part.
    first: Option<Box<StepSpec>>,
    /// Connections that keep them.
    leads: Vec<AgentId>,
}

/// A part of a step that is there: all of it, or its tasks in one component of a heterogeneous job.
#[derive(Debug)]
pub(super) struct CreatedPart {
    /// The job, or the component.
    pub(super) job: JobId,
    /// The agent's answer.
    pub(super) created: StepCreated,
}

/// A step that is there.
pub(super) struct CreatedStep {
    /// The request of the first part.
    pub(super) spec: Box<StepSpec>,
    /// The parts of the step.
    pub(super) parts: Vec<CreatedPart>,
    /// Connections that keep it, and that are answered when its end is recorded.
    pub(super) leads: Vec<AgentId>,
    /// The connection to the step daemon, where the task has srun's streams.
    pub(super) channel: Option<StepdIdx>,
    /// The first number that no connection to a step daemon has had.
    pub(super) next_stepd: u32,
}

impl Creation {
    pub(super) fn new(config: &mut SrunConfig) -> Creation {
        Creation {
            number: config.number.take(),
            numbered: None,
            number_key: None,
            parts: std::mem::take(&mut config.parts).into(),
            spec: None,
            job: JobId::default(),
            lead: Lead::Unknown,
            has_key: false,
            is_immediate: false,
            can_pass_stdio: config.can_pass_stdio,
            agent: None,
            address: String::new(),
            transport: StepTransport::Attached,
            channel: None,
            agent_gone: None,
            is_queued: false,
            retries: Retries::default(),
            refused: None,
            next_agent: 0,
            next_stepd: 0,
            created: Vec::new(),
            first: None,
            leads: Vec::new(),
        }
    }

    /// Begins with the number of the step, if it needs one, or with its first part.
    pub(super) fn begin(&mut self, out: &mut Actions) -> Progress {
        match &self.number {
            Some(number) => {
                // A step that is not to wait for a part does not wait for its number either.
                self.is_immediate = self.parts.iter().any(|part| part.spec.immediate);
                self.job = number.leader;
                self.lead = number.lead.clone();
                self.locate(out);
                Progress::None
            }
            None => self.begin_part(out),
        }
    }

    fn begin_part(&mut self, out: &mut Actions) -> Progress {
        let Some(part) = self.parts.pop_front() else {
            out.error("there is no step");
            return FAILED;
        };
        let mut spec = part.spec;
        if let Some((step, proof)) = &self.numbered {
            let het = spec.het.get_or_insert_default();
            het.step = *step;
            het.proof = Some(proof.clone());
        }
        self.job = spec.job;
        self.lead = part.lead;
        self.has_key = spec.key.is_some();
        self.is_immediate = spec.immediate;
        self.is_queued = false;
        self.retries = Retries::default();
        self.spec = Some(spec);
        self.locate(out);
        Progress::None
    }

    fn locate(&mut self, out: &mut Actions) {
        match &self.lead {
            Lead::Local(address) | Lead::At(address) => {
                self.address = address.clone();
                self.connect(out);
            }
            Lead::Unknown | Lead::Component(_) => out.push(Action::AskAllocation(self.job)),
        }
    }

    fn connect(&mut self, out: &mut Actions) {
        let agent = AgentId(self.next_agent);
        self.next_agent += 1;
        self.agent = Some(agent);
        let key = match &self.spec {
            Some(spec) => spec.key.clone(),
            None => self.number_key.clone(),
        };
        out.push(Action::ConnectAgent {
            agent,
            address: self.address.clone(),
            job: self.job,
            key,
        });
    }

    /// The agent whose answer is expected.
    pub(super) fn agent(&self) -> Option<AgentId> {
        self.agent.filter(|_| !self.is_done())
    }

    /// Messages of the step daemon are expected, too.
    pub(super) fn wants_channel(&self) -> bool {
        self.channel.as_ref().is_some_and(|c| !c.has_spoken)
    }

    fn is_done(&self) -> bool {
        self.channel.as_ref().is_some_and(|c| c.is_done)
    }

    /// The controller has answered.
    pub(super) fn allocation(
        &mut self,
        out: &mut Actions,
        answer: Result<Box<AllocationInfo>, ControllerError>,
    ) -> Progress {
        match (self.refused.take(), answer) {
            (None, Ok(info)) => {
                self.locate_by(out, &info);
                Progress::None
            }
            (None, Err(error)) => {
                let job = self.job;
                out.controller_error(
                    &format!("Unable to confirm allocation for job {job}"),
                    &error,
                );
                if matches!(&error, ControllerError::Refused(refusal)
                    if matches!(refusal.code, RefusalCode::InvalidJobId | RefusalCode::JobPending))
                {
                    out.info(&format!(
                        "Check SLURM_JOB_ID environment variable. Expired or invalid job {job}"
                    ));
                }
                FAILED
            }
            (Some(_), Ok(info)) => {
                self.set_key(&info.key);
                match self.number.is_some() {
                    true => {
                        self.ask_number(out);
                        Progress::None
                    }
                    false => {
                        self.ask(out);
                        Progress::Waits
                    }
                }
            }
            (Some(refusal), Err(_)) => {
                out.refusal(&self.prefix(), &refusal);
                FAILED
            }
        }
    }

    fn locate_by(&mut self, out: &mut Actions, info: &AllocationInfo) {
        self.address = match &self.lead {
            Lead::Component(address) => address.clone(),
            _ => {
                if let Some(spec) = &mut self.spec {
                    spec.resizes = info.job.resizes;
                }
                info.addresses.first().cloned().unwrap_or_default()
            }
        };
        self.set_key(&info.key);
        self.connect(out);
    }

    fn set_key(&mut self, key: &ByteVec) {
        self.has_key = true;
        match &mut self.spec {
            Some(spec) => spec.key = Some(key.clone()),
            None => self.number_key = Some(key.clone()),
        }
    }

    /// The text before errors.
    fn prefix(&self) -> String {
        match self.number.is_some() {
            true => "Unable to create step".to_owned(),
            false => format!("Unable to create step for job {}", self.job),
        }
    }

    /// An agent is connected.
    pub(super) fn connected(
        &mut self,
        out: &mut Actions,
        is_local: bool,
        own_ip: IpAddr,
    ) -> Progress {
        if self.number.is_some() {
            self.ask_number(out);
            return Progress::None;
        }
        self.transport = match self.can_pass_stdio && is_local {
            true => StepTransport::Direct,
            false => StepTransport::Attached,
        };
        if let Some(spec) = &mut self.spec {
            add_addresses(spec, own_ip);
        }
        self.ask(out);
        match self.retries.count {
            0 => Progress::Asked,
            _ => Progress::Waits,
        }
    }

    /// An agent cannot be connected.
    pub(super) fn unreachable(&mut self, out: &mut Actions, error: &str) -> Progress {
        if let Lead::Local(_) = self.lead {
            self.lead = Lead::Unknown;
            self.locate(out);
            return Progress::None;
        }
        out.error(&format!(
            "Unable to reach the agent of the job's first node at {}: {error}",
            self.address
        ));
        FAILED
    }

    fn ask_number(&mut self, out: &mut Actions) {
        let request = AgentRequest::TakeStepNumber {
            job: self.job,
            key: self.number_key.clone(),
        };
        self.send(out, request, None);
    }

    fn ask(&mut self, out: &mut Actions) {
        let Some(mut spec) = self.spec.take() else {
            return;
        };
        let channel = match self.transport {
            StepTransport::Direct => {
                let id = StepdIdx(self.next_stepd);
                self.next_stepd += 1;
                Some(id)
            }
            StepTransport::Attached => None,
        };
        spec.passes_stdio = channel.is_some();
        self.channel = channel.map(|id| Channel {
            id,
            has_spoken: false,
            is_done: false,
        });
        self.send(out, AgentRequest::Create(spec), channel);
    }

    fn send(&self, out: &mut Actions, request: AgentRequest, channel: Option<StepdIdx>) {
        if let Some(agent) = self.agent {
            out.push(Action::SendRequest {
                agent,
                request: Box::new(request),
                channel,
            });
        }
    }

    /// A request was sent, or not; it is back.
    pub(super) fn sent(
        &mut self,
        out: &mut Actions,
        request: AgentRequest,
        error: Option<String>,
    ) -> Progress {
        // The request was lent, because a copy of it with its environment would be a considerable part of srun's
        // cost.
        if let AgentRequest::Create(spec) = request {
            self.spec = Some(spec);
        }
        match error {
            None => Progress::None,
            Some(error) => self.fail_without_agent(out, &error),
        }
    }

    /// The connection to the agent is gone. A daemon that has srun's streams runs the step nevertheless; its messages
    /// may not have been read yet.
    pub(super) fn agent_lost(&mut self, out: &mut Actions, error: String, now_ms: u64) -> Progress {
        if !self.wants_channel() {
            return self.fail_without_agent(out, &error);
        }
        self.close_agent(out);
        let give_up_at = now_ms + DAEMON_ALONE_MS;
        self.agent_gone = Some(AgentGone { error, give_up_at });
        Progress::None
    }

    fn fail_without_agent(&mut self, out: &mut Actions, error: &str) -> Progress {
        out.error(&format!(
            "{}: connection to the agent lost: {error}",
            self.prefix()
        ));
        FAILED
    }

    /// The agent has answered.
    pub(super) fn replied(
        &mut self,
        out: &mut Actions,
        reply: AgentReply,
        now_ms: u64,
    ) -> Progress {
        if self.number.is_some() {
            return self.number_replied(out, reply, now_ms);
        }
        match reply {
            AgentReply::Queued(why) => {
                if !std::mem::replace(&mut self.is_queued, true) {
                    let why = match why.is_empty() {
                        true => "Requested nodes are busy",
                        false => why.as_str(),
                    };
                    out.info(&format!(
                        "Job {} step creation temporarily disabled, retrying ({why})",
                        self.job
                    ));
                }
                Progress::Waits
            }
            AgentReply::Created(created) => self.part_created(out, *created),
            // With the job's key the node waits for its own word of the job.
            AgentReply::Refused(refusal)
                if refusal.code == RefusalCode::JobNotHere && !self.has_key =>
            {
                self.ask_for_key(out, refusal);
                Progress::Waits
            }
            AgentReply::Refused(refusal) => self.refused(out, &refusal, now_ms),
            AgentReply::Done if self.wants_channel() => {
                if let Some(channel) = &mut self.channel {
                    channel.is_done = true;
                }
                Progress::None
            }
            other => unexpected(out, &other),
        }
    }

    /// An agent has refused the request, which is made again later if that may help.
    fn refused(&mut self, out: &mut Actions, refusal: &Refusal, now_ms: u64) -> Progress {
        if self.may_retry(refusal) {
            self.retry_later(out, refusal, now_ms);
            return Progress::Waits;
        }
        out.refusal(&self.prefix(), refusal);
        Progress::Failed {
            is_busy: self.is_immediate,
        }
    }

    /// Whether the node may have room for the request later, and the step may wait.
    fn may_retry(&self, refusal: &Refusal) -> bool {
        let is_made = self
            .channel
            .as_ref()
            .is_some_and(|c| c.is_done || c.has_spoken);
        refusal.code == RefusalCode::Busy
            && !self.is_immediate
            && !is_made
            && self.retries.count < RETRIES_MAX
    }

    fn retry_later(&mut self, out: &mut Actions, refusal: &Refusal, now_ms: u64) {
        self.close_channel(out);
        // The agent closes the connection when it has no room for a request.
        self.close_agent(out);
        if !std::mem::replace(&mut self.is_queued, true) {
            let why = match refusal.detail.is_empty() {
                true => refusal.code.text(),
                false => refusal.detail.as_str(),
            };
            out.info(&format!(
                "Job {} step creation temporarily disabled, retrying ({why})",
                self.job
            ));
        }
        let wait = RETRY_FIRST_MS << self.retries.count.min(16);
        self.retries.count += 1;
        self.retries.at = Some(now_ms + wait.min(RETRY_MOST_MS));
    }

    /// The time of the next request to an agent that had no room, or the time limit for a daemon's message.
    pub(super) fn timer_at(&self) -> Option<u64> {
        let give_up_at = self.agent_gone.as_ref().map(|gone| gone.give_up_at);
        [self.retries.at, give_up_at].into_iter().flatten().min()
    }

    /// Time has passed.
    pub(super) fn on_time(&mut self, out: &mut Actions, now_ms: u64) -> Progress {
        if self.retries.at.take_if(|at| *at <= now_ms).is_some() {
            self.connect(out);
        }
        let gone = self.agent_gone.take_if(|gone| gone.give_up_at <= now_ms);
        match gone {
            Some(gone) => self.fail_without_agent(out, &gone.error),
            None => Progress::None,
        }
    }

    fn number_replied(&mut self, out: &mut Actions, reply: AgentReply, now_ms: u64) -> Progress {
        match reply {
            AgentReply::StepNumber { number, proof } => {
                self.number = None;
                self.numbered = Some((number, proof));
                self.close_agent(out);
                self.begin_part(out)
            }
            AgentReply::Refused(refusal)
                if refusal.code == RefusalCode::JobNotHere && self.number_key.is_none() =>
            {
                self.ask_for_key(out, refusal);
                Progress::None
            }
            AgentReply::Refused(refusal) => self.refused(out, &refusal, now_ms),
            other => unexpected(out, &other),
        }
    }

    /// In an allocation, srun may know of the job earlier than the node.
    fn ask_for_key(&mut self, out: &mut Actions, refusal: Refusal) {
        self.refused = Some(refusal);
        self.close_channel(out);
        out.push(Action::AskAllocation(self.job));
    }

    fn close_agent(&mut self, out: &mut Actions) {
        if let Some(agent) = self.agent.take() {
            out.push(Action::CloseAgent(agent));
        }
    }

    fn close_channel(&mut self, out: &mut Actions) {
        if let Some(channel) = self.channel.take() {
            out.push(Action::CloseStepd(channel.id));
        }
    }

    /// The step daemon has sent messages while srun waits for the agent's answer. The first one may announce the
    /// step's creation; if it does not, an agent of another version answers itself. All other messages are deferred.
    pub(super) fn channel_messages(
        &mut self,
        out: &mut Actions,
        stepd: StepdIdx,
        messages: Vec<FromStepd>,
        later: &mut VecDeque<Event>,
    ) -> Progress {
        let Some(channel) = self.channel.as_mut().filter(|c| c.id == stepd) else {
            return Progress::None;
        };
        let mut messages = VecDeque::from(messages);
        let created = match messages.pop_front() {
            Some(FromStepd::Created(created)) if !channel.has_spoken => Some(created),
            Some(other) => {
                channel.has_spoken = true;
                messages.push_front(other);
                None
            }
            None => None,
        };
        if !messages.is_empty() {
            later.push_back(Event::StepdMessages(stepd, messages.into()));
        }
        match (created, self.agent_gone.take()) {
            (Some(created), _) => self.part_created(out, *created),
            // The agent would have answered.
            (None, Some(gone)) => self.fail_without_agent(out, &gone.error),
            (None, None) => Progress::None,
        }
    }

    /// The connection to the step daemon is gone. If the step was not created yet, the agent knows its state.
    pub(super) fn channel_lost(
        &mut self,
        out: &mut Actions,
        stepd: StepdIdx,
        error: String,
        later: &mut VecDeque<Event>,
    ) -> Progress {
        let Some(channel) = self.channel.as_ref().filter(|c| c.id == stepd) else {
            return Progress::None;
        };
        if channel.has_spoken {
            later.push_back(Event::StepdLost(stepd, error));
            return Progress::None;
        }
        if channel.is_done {
            return self.fail_without_agent(out, &error);
        }
        self.channel = None;
        match self.agent_gone.take() {
            Some(gone) => self.fail_without_agent(out, &gone.error),
            None => Progress::None,
        }
    }

    fn part_created(&mut self, out: &mut Actions, created: StepCreated) -> Progress {
        if self.is_queued {
            out.info(&format!(
                "Step created for StepId={}.{}",
                self.job, created.step
            ));
        }
        if !created.direct {
            self.close_channel(out);
        }
        // A lead that has reported the end is not needed any more.
        match self.is_done() {
            true => self.close_agent(out),
            false => self.leads.extend(self.agent.take()),
        }
        let job = self.job;
        self.created.push(CreatedPart { job, created });
        let spec = self.spec.take();
        if self.first.is_none() {
            self.first = spec.map(|mut spec| {
                // The tasks have their environment already.
                spec.context = ExecContext::default();
                spec
            });
        }
        if self.parts.is_empty() {
            return Progress::Created;
        }
        match self.begin_part(out) {
            Progress::None => Progress::PartCreated,
            other => other,
        }
    }

    /// The step, once it is there.
    pub(super) fn take_step(&mut self) -> CreatedStep {
        CreatedStep {
            spec: self.first.take().unwrap_or_default(),
            parts: std::mem::take(&mut self.created),
            leads: std::mem::take(&mut self.leads),
            channel: self.channel.take().map(|channel| channel.id),
            next_stepd: self.next_stepd,
        }
    }
}

fn unexpected(out: &mut Actions, reply: &AgentReply) -> Progress {
    let shown = debug_beginning(reply, 60);
    out.error(&format!("unexpected answer of the agent: {shown}"));
    FAILED
}

/// Where the tasks find srun.
fn add_addresses(spec: &mut StepSpec, own: IpAddr) {
    for name in ["SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"] {
        spec.extra_env.push((name.to_owned(), own.to_string()));
    }
    // srun listens to nobody: it connects to the nodes.
    for name in ["SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT"] {
        spec.extra_env.push((name.to_owned(), "0".to_owned()));
    }
}
