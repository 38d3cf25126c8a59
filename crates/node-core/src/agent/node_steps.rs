//! This node's part of steps, on whichever node they are led: starts their daemons, and reports to the lead how they ended.

use super::actions::Actions;
use super::early::{EarlyRequests, EarlySender, TURN_MS};
use super::lead::CreateRequest;
use super::state::AgentState;
use super::stepds::StepdEndpoint;
use super::steps::Steps;
use super::transition::{NodeStepEvent, NodeStepState, next_node_step_state};
use super::{Action, ConnId, RequestId, StdioId, StepdChannelId, Timer, encode};
use crate::kept::{self, KeptNodeStep, kept_of_node};
use crate::messages::{KeptEntry, LauncherCommand, NextStep, StepOrder};
use crate::pmix_place;
use crate::step_numbers::UsedStepNumbers;
use crate::stepd_reuse::{ORDER_MAX, result_path};
use muster_model::ids::{AttemptStep, JobAttempt, JobId, StepId, StepNo};
use muster_model::job::StepEnd;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::node::JobGrant;
use muster_proto::step::NodeEnd;
use muster_proto::step::{AgentReply, StepLaunch, StepShare};
use muster_trust::is_same_key;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Time between TERM and KILL before the controller has said one.
const KILL_WAIT_MS: u64 = 30_000;

/// The requester of a step daemon.
#[derive(Debug)]
pub(super) enum Origin {
    /// This agent, which leads the job; with srun's streams, if it has sent them.
    Lead(Option<StdioId>),
    /// This agent, which leads the job, for a branch of nodes that begins with this one, by their names: those below have
    /// still to be asked.
    LeadBranch(Vec<String>, Vec<StepShare>),
    /// Another agent, for this node and those below, which have still to be asked.
    Request(RequestId, Vec<StepShare>),
    /// A start of this node and of those below it, which were asked.
    Gathered(u64),
}

/// A request that arrived before its job was announced: the controller sends orders to all nodes at once, and a
/// client may be faster.
#[derive(Debug)]
pub(super) enum Early {
    /// A step's lead starts it here.
    Start(Box<StepLaunch>, Origin),
    /// srun asks for a step that is to be led from here.
    Create(Box<CreateRequest>),
    /// srun asks for the number of a step that this node leads a part of.
    Number(Box<CreateRequest>),
}

impl Early {
    fn job(&self) -> JobId {
        match self {
            Early::Start(launch, _) => launch.spec.job,
            Early::Create(request) | Early::Number(request) => request.spec.job,
        }
    }

    fn sender(&self) -> EarlySender {
        match self {
            Early::Start(..) => EarlySender::Agent,
            Early::Create(request) | Early::Number(request) => EarlySender::Client {
                conn: request.conn,
                uid: request.uid,
            },
        }
    }
}

/// Whether this node has its part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartPresence {
    /// The node has its part, and reports its end to the lead.
    Here,
    /// The node may still start its part.
    Unsettled,
    /// The node has no part, or the lead has received its end.
    Absent,
}

/// Where a step daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listening {
    /// For srun.
    pub(super) address: String,
    /// For the step's other nodes.
    pub(super) mesh_address: Option<String>,
    /// It does not wait for srun: its task has srun's streams.
    pub(super) direct: bool,
}

/// Parts of steps on this node.
#[derive(Debug, Default)]
pub(super) struct NodeSteps {
    /// Daemons that are being started.
    starting: BTreeMap<AttemptStep, StartRequest>,
    /// Requests that arrived before the job.
    early: EarlyRequests<Early>,
    parts: BTreeMap<StepId, NodeStep>,
    /// Steps that were ordered here, so that none is started twice.
    used: HashMap<JobAttempt, UsedStepNumbers>,
}

/// A part of a step that is to get a daemon.
#[derive(Debug)]
pub(super) struct StartRequest {
    /// The order for the daemon. It is stored for another launcher, in case this one is lost before it answers.
    order: Box<StepOrder>,
    position: u32,
    origin: Origin,
    /// srun's streams, for the daemon of a direct step once there is one. They never pass through the launcher, which
    /// serves all users.
    stdio: Option<StdioId>,
}

/// A step that a daemon which waits for one is being given.
#[derive(Debug)]
pub(super) struct Offer {
    next: NextStep,
    position: u32,
    origin: Origin,
    stdio: Option<StdioId>,
}

/// A part of a step.
#[derive(Debug)]
struct NodeStep {
    state: NodeStepState,
    part: KeptNodeStep,
}

/// Whether a task may have srun's own streams: it is the only one, and nobody else writes to them.
fn may_pass_stdio(order: &StepOrder) -> bool {
    let (launch, spec) = (&order.launch, &order.launch.spec);
    let alone = matches!(&launch.tasks[..], [tasks] if tasks.len() == 1);
    let programs = [
        &order.task_prolog,
        &order.task_epilog,
        &spec.task_prolog,
        &spec.task_epilog,
    ];
    let files = [&spec.stdio.stdin, &spec.stdio.stdout, &spec.stdio.stderr];
    alone
        && order.pmix.is_none()
        && spec.pty.is_none()
        && programs.into_iter().chain(files).all(Option::is_none)
}

impl NodeSteps {
    /// This node's part of a step, until the lead knows of its end.
    pub(super) fn part(&self, key: StepId) -> Option<&KeptNodeStep> {
        self.parts.get(&key).map(|step| &step.part)
    }

    /// Steps of a job with a part on this node.
    pub(super) fn keys(&self, job: JobId) -> impl Iterator<Item = &StepId> {
        self.of_job(job).map(|(key, _)| key)
    }

    /// Whether a part of a step is here.
    pub(super) fn find(&self, key: StepId, attempt: JobAttempt) -> PartPresence {
        match self.state(key, attempt) {
            NodeStepState::Running | NodeStepState::Ended => PartPresence::Here,
            NodeStepState::Ordered | NodeStepState::Offered | NodeStepState::Starting => {
                PartPresence::Unsettled
            }
            NodeStepState::Absent if self.waits_for_job(key.job) => PartPresence::Unsettled,
            NodeStepState::Absent => PartPresence::Absent,
        }
    }

    /// The start of a step waits until the controller announces the job to this node.
    pub(super) fn waits_for_job(&self, job: JobId) -> bool {
        self.early.has_of_agent(job)
    }

    /// Takes over a stored record. Returns whether it is a node's part of a step.
    pub(super) fn adopt(&mut self, attempt: JobAttempt, kept: u32, bytes: &[u8]) -> bool {
        let Some(step) = kept::step_of_node(kept) else {
            return false;
        };
        if let Ok(part) = minicbor::decode::<KeptNodeStep>(bytes) {
            let key = StepId::new(attempt.job, step);
            self.used.entry(attempt).or_default().insert(step);
            if self.step(key, attempt, NodeStepEvent::Adopted) {
                self.set_part(key, part);
            }
        }
        true
    }

    /// A part as the launcher keeps it.
    pub(super) fn kept_of(&self, key: StepId) -> Option<KeptEntry> {
        Some(KeptEntry {
            key: kept_of_node(key.step),
            bytes: encode(self.part(key)?),
        })
    }

    pub(super) fn forget(&mut self, attempt: JobAttempt) {
        self.used.remove(&attempt);
        let keys: Vec<StepId> = self.of_attempt(attempt).map(|(key, _)| *key).collect();
        for key in keys {
            self.step(key, attempt, NodeStepEvent::Forgotten);
        }
    }

    /// Makes the launcher store the entries for this node's parts of a job's steps.
    pub(super) fn keep_of(&self, out: &mut Actions, attempt: JobAttempt) {
        for (key, step) in self.of_attempt(attempt) {
            out.keep(attempt, kept_of_node(key.step), encode(&step.part));
        }
    }

    /// The parts of all launches of a job, by step.
    fn of_job(&self, job: JobId) -> impl Iterator<Item = (&StepId, &NodeStep)> {
        let all = StepId::new(job, StepNo(0))..=StepId::new(job, StepNo(u32::MAX));
        self.parts.range(all)
    }

    fn of_attempt(&self, attempt: JobAttempt) -> impl Iterator<Item = (&StepId, &NodeStep)> {
        let of_job = self.of_job(attempt.job);
        of_job.filter(move |(_, step)| step.part.attempt == attempt)
    }

    fn state(&self, key: StepId, attempt: JobAttempt) -> NodeStepState {
        // The part of another attempt is as good as none.
        let step = self
            .parts
            .get(&key)
            .filter(|step| step.part.attempt == attempt);
        step.map_or(NodeStepState::Absent, |step| step.state)
    }

    /// Moves a part of a step to its next state. Returns whether the transition exists.
    fn step(&mut self, key: StepId, attempt: JobAttempt, event: NodeStepEvent) -> bool {
        let state = self.state(key, attempt);
        let Some(next) = next_node_step_state(state, event) else {
            return false;
        };
        if next == NodeStepState::Absent {
            if state != NodeStepState::Absent {
                self.parts.remove(&key);
            }
            return true;
        }
        let part = KeptNodeStep {
            attempt,
            position: 0,
            lead: String::new(),
            above: None,
            step_key: None,
        };
        let step = self.parts.entry(key).or_insert(NodeStep { state, part });
        step.state = next;
        step.part.attempt = attempt;
        true
    }

    /// A part is to start; whether it is new.
    fn begin(&mut self, key: StepId, attempt: JobAttempt) -> bool {
        let used = self.used.entry(attempt).or_default();
        if used.contains(key.step) {
            return false;
        }
        used.insert(key.step);
        self.step(key, attempt, NodeStepEvent::Ordered)
    }

    fn set_part(&mut self, key: StepId, part: KeptNodeStep) {
        if let Some(step) = self.parts.get_mut(&key) {
            step.part = part;
        }
    }

    /// States of all parts, for tests.
    #[cfg(test)]
    pub(super) fn states(&self) -> Vec<(StepId, NodeStepState)> {
        self.parts.iter().map(|(k, s)| (*k, s.state)).collect()
    }

    /// Nothing is known of any step.
    pub(super) fn is_empty(&self) -> bool {
        self.is_quiet() && self.parts.is_empty() && self.used.is_empty()
    }

    /// Parts of steps that are here.
    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Nothing is being started, and nothing waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.starting.is_empty() && self.early.is_empty()
    }
}

impl Steps {
    /// Starts the daemon of a step on this node.
    pub(super) fn start_here(
        &mut self,
        state: &mut AgentState,
        launch: StepLaunch,
        origin: Origin,
    ) {
        let job = launch.spec.job;
        let known = state
            .jobs
            .with_key(job, &launch.key)
            .or_else(|| state.jobs.latest(job))
            .map(|(_, j)| j);
        let grant = known.map(|j| (j.grant.clone(), j.state.is_over()));
        let is_suspended = known.is_some_and(|j| j.suspended);
        match grant {
            // The lead's order arrived before the controller's.
            None => self
                .node_steps
                .wait_early(state, Early::Start(Box::new(launch), origin)),
            Some((Some(grant), false)) if grant.resizes < launch.spec.resizes => {
                self.node_steps
                    .wait_early(state, Early::Start(Box::new(launch), origin));
            }
            Some((Some(grant), true)) if !is_same_key(&grant.key, &launch.key) => {
                // This node knows an earlier launch of the job, which is ending.
                self.node_steps
                    .wait_early(state, Early::Start(Box::new(launch), origin));
            }
            Some((None, _)) => self.step_refused(state, &launch, origin, "its grant was lost"),
            Some((_, true)) => self.step_refused(state, &launch, origin, "the job is ending"),
            // The lead does not know it yet.
            Some(_) if is_suspended => {
                self.step_refused(state, &launch, origin, "the job is suspended");
            }
            Some((Some(grant), false)) if !is_same_key(&grant.key, &launch.key) => {
                self.step_refused(state, &launch, origin, "the key is not the job's");
            }
            Some((Some(grant), false)) => self.start_granted(state, &grant, launch, origin),
        }
    }

    /// Starts a step of a job that is known here.
    pub(super) fn start_granted(
        &mut self,
        state: &mut AgentState,
        grant: &JobGrant,
        launch: StepLaunch,
        origin: Origin,
    ) {
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        let (step, position) = (launch.step, launch.position);
        let key = StepId::new(grant.job, step);
        let bound = match state.node.bind(&launch, grant) {
            Ok(bound) => bound,
            Err(why) => return self.step_refused(state, &launch, origin, &why),
        };
        let part = KeptNodeStep {
            attempt,
            position,
            lead: launch.lead.clone(),
            above: launch.above.clone(),
            step_key: Some(launch.step_key.clone()),
        };
        if !self.node_steps.begin(key, attempt) {
            return self.step_refused(state, &launch, origin, "the step has been started here");
        }
        let mut origin = self.tree.start_below(state, &launch, origin);
        let stdio = match &mut origin {
            Origin::Lead(stdio) => stdio.take(),
            Origin::LeadBranch(..) | Origin::Request(..) | Origin::Gathered(_) => None,
        };
        state.out.keep(attempt, kept_of_node(step), encode(&part));
        self.node_steps.set_part(key, part);
        if state.node.kills_over_memory() {
            self.samples.limit_memory(attempt, step, launch.memory_mib);
        }
        let mut order = Box::new(state.node.step_order(grant, launch, bound));
        order.direct = stdio.is_some() && may_pass_stdio(&order);
        let stdio = match order.direct {
            true => stdio,
            false => {
                state.out.close_stdio(stdio);
                None
            }
        };
        let request = StartRequest {
            order,
            position,
            origin,
            stdio,
        };
        self.offer_or_start(state, request);
    }

    /// Gives a step to a daemon of its job that waits for one. If there is none, the launcher starts one.
    pub(super) fn offer_or_start(&mut self, state: &mut AgentState, request: StartRequest) {
        let (attempt, step) = (request.order.attempt, request.order.launch.step);
        let possible = state.is_synced && request.order.pmix.is_none();
        let Some(stepd) = self.stepds.idle(attempt).filter(|_| possible) else {
            return self.start_by_launcher(state, request);
        };
        let kill_wait_ms = match state.node.settings.kill_wait_s {
            0 => KILL_WAIT_MS,
            seconds => u64::from(seconds) * 1000,
        };
        let result = result_path(&state.node.config.spool_dir, attempt, step);
        let StartRequest {
            order,
            position,
            origin,
            stdio,
        } = request;
        let next = NextStep {
            order,
            kill_wait_ms,
            result: result.to_string_lossy().into_owned(),
            kept: self.kept_entries(attempt, step),
        };
        let frame = next.as_command();
        if frame.len() > ORDER_MAX {
            let request = StartRequest {
                order: next.order,
                position,
                origin,
                stdio,
            };
            return self.start_by_launcher(state, request);
        }
        let offer = Offer {
            next,
            position,
            origin,
            stdio,
        };
        self.node_steps.step(
            StepId::new(attempt.job, step),
            attempt,
            NodeStepEvent::Offered,
        );
        self.stepds.set_offer(stepd, Box::new(offer));
        state.out.push(Action::OfferStep {
            stepd,
            frame,
            stdio,
        });
    }

    /// A daemon was given a step, or its channel does not take it.
    pub(super) fn step_offered(
        &mut self,
        state: &mut AgentState,
        stepd: StepdChannelId,
        is_written: bool,
    ) {
        let Some((offer, place)) = self.stepds.take_offer(stepd) else {
            return;
        };
        let Offer {
            next,
            position,
            origin,
            stdio,
        } = *offer;
        let order = next.order;
        let (attempt, step, direct) = (order.attempt, order.launch.step, order.direct);
        if !is_written {
            self.stepds.close(&mut state.out, stepd);
            let request = StartRequest {
                order,
                position,
                origin,
                stdio,
            };
            return self.offer_or_start(state, request);
        }
        let StepdEndpoint { pid, address } = place;
        self.stepds.set_step(stepd, step);
        state.out.close_stdio(stdio);
        state
            .out
            .command(LauncherCommand::StepAssigned { attempt, step, pid });
        let key = StepId::new(attempt.job, step);
        self.node_steps.step(key, attempt, NodeStepEvent::Started);
        let listening = Listening {
            address,
            mesh_address: None,
            direct,
        };
        self.answer_start(state, key, position, origin, Ok(listening));
    }

    /// Makes the launcher find a daemon for a step.
    fn start_by_launcher(&mut self, state: &mut AgentState, request: StartRequest) {
        let order = request.order.clone();
        let (attempt, step) = (order.attempt, order.launch.step);
        let before = self
            .node_steps
            .starting
            .insert(AttemptStep::new(attempt, step), request);
        if let Some(before) = before {
            // The transition table excludes this. Without this line the streams would stay open for ever.
            state.out.close_stdio(before.stdio);
        }
        if !state.is_synced {
            // The launcher gets the order once it has sent its list.
            return;
        }
        self.node_steps.step(
            StepId::new(attempt.job, step),
            attempt,
            NodeStepEvent::SentToLauncher,
        );
        let tmp_bases = match &order.pmix {
            Some(_) => pmix_place::bases(&state.node.settings, &state.node.config.name),
            None => Vec::new(),
        };
        let stepd = self.stepds.add(attempt, step);
        state.out.push(Action::StartStepd {
            stepd,
            order,
            tmp_bases,
        });
    }

    /// Starts steps that arrived before their jobs: those that clients request a few at a time.
    pub(super) fn start_early(&mut self, state: &mut AgentState) {
        while let Some(early) = self.node_steps.early.take_turn() {
            match early {
                Early::Start(launch, origin) => self.start_here(state, *launch, origin),
                Early::Create(request) => {
                    let may = state.may_create(request.uid, &request.spec).is_ok();
                    let before = self.led.work();
                    self.create_step(state, *request);
                    let work = self.led.work() - before;
                    self.node_steps.early.spend(may, work);
                }
                Early::Number(request) => {
                    self.take_step_number(state, *request);
                    self.node_steps.early.spend(false, 0);
                }
            }
        }
        if self.node_steps.early.start_turn_timer() {
            state.out.set_timer(Timer::EarlyTurns, TURN_MS);
        }
    }

    /// The jobs of the oldest requests did not come.
    pub(super) fn grant_wait_over(&mut self, state: &mut AgentState) {
        for early in self.node_steps.early.take_due(state.now.mono_ms) {
            match early {
                Early::Start(launch, origin) => {
                    let why = "the controller has not given it the job";
                    self.step_refused(state, &launch, origin, why);
                }
                Early::Create(request) | Early::Number(request) => {
                    request.refuse_unknown_job(&mut state.out);
                }
            }
        }
        self.node_steps.start_grant_timer(state);
    }

    pub(super) fn step_refused(
        &mut self,
        state: &mut AgentState,
        launch: &StepLaunch,
        origin: Origin,
        why: &str,
    ) {
        let key = StepId::new(launch.spec.job, launch.step);
        self.answer_start(state, key, launch.position, origin, Err(why.to_owned()));
    }

    pub(super) fn answer_start(
        &mut self,
        state: &mut AgentState,
        key: StepId,
        position: u32,
        origin: Origin,
        result: Result<Listening, String>,
    ) {
        match origin {
            Origin::Lead(stdio) => {
                state.out.close_stdio(stdio);
                self.node_started(state, key, position, result);
            }
            Origin::Gathered(start) => self.own_node_started(state, start, result),
            Origin::LeadBranch(names, _) => {
                let reply = started_reply(result, Vec::new());
                self.branch_started(state, key, position, Ok(reply), &names);
            }
            Origin::Request(request, _) => {
                state.out.finish(request, started_reply(result, Vec::new()));
            }
        }
    }

    /// Repeats, to a new launcher, starts of daemons that a lost launcher did not answer. If the launcher knows the
    /// step already, its daemon's address is lost, and the step fails; the launcher refuses a number that was used.
    pub(super) fn repeat_starts(&mut self, state: &mut AgentState, known: &HashSet<AttemptStep>) {
        for (AttemptStep { attempt, step }, request) in
            std::mem::take(&mut self.node_steps.starting)
        {
            self.stepds.close_unplaced(&mut state.out, attempt, step);
            let key = StepId::new(attempt.job, step);
            self.node_steps
                .step(key, attempt, NodeStepEvent::LauncherLost);
            if known.contains(&AttemptStep::new(attempt, step)) {
                state.out.close_stdio(request.stdio);
                self.node_steps.step(key, attempt, NodeStepEvent::Started);
                let result = Err("the node's launcher was lost".to_owned());
                self.answer_start(state, key, request.position, request.origin, result);
            } else {
                self.start_by_launcher(state, request);
            }
        }
    }

    /// The launcher started a daemon, or could not.
    pub(super) fn stepd_started(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        step: StepNo,
        result: Result<Listening, String>,
    ) {
        let key = StepId::new(attempt.job, step);
        let event = match &result {
            Ok(_) => NodeStepEvent::Started,
            Err(_) => NodeStepEvent::Failed,
        };
        if self.node_steps.step(key, attempt, event) && result.is_err() {
            state.out.drop_kept(attempt, kept_of_node(step));
        }
        let Some(request) = self
            .node_steps
            .starting
            .remove(&AttemptStep::new(attempt, step))
        else {
            return;
        };
        if let (Ok(_), Some(stdio)) = (&result, request.stdio)
            && let Some(stepd) = self.stepds.started_with(attempt, step)
        {
            state.out.push(Action::SendStdio { stepd, stdio });
        }
        state.out.close_stdio(request.stdio);
        self.answer_start(state, key, request.position, request.origin, result);
    }

    /// A daemon ended: the lead must know, however long it takes.
    pub(super) fn stepd_ended(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        step: StepNo,
        mut end: StepEnd,
    ) {
        if state.reports.has_step_end(attempt, step) {
            // The part is forgotten when the controller has acknowledged the report.
            return;
        }
        end.usage.set_node(&state.node.config.name);
        let without_samples = end.clone();
        self.samples.add_samples(state, attempt, step, &mut end);
        let key = StepId::new(attempt.job, step);
        let part = self
            .node_steps
            .part(key)
            .filter(|part| part.attempt == attempt);
        let Some(part) = part.cloned() else {
            return state
                .out
                .command(LauncherCommand::ForgetStep(attempt, step));
        };
        self.node_steps.step(key, attempt, NodeStepEvent::Ended);
        let of_attempt = AttemptStep::new(attempt, step);
        let job = state.jobs.get(attempt);
        if job.is_some_and(super::job_table::Job::leads) {
            if end == without_samples && self.led.only_node_ended(state, key, &end) {
                return;
            }
            self.nodes_ended(
                state,
                key,
                vec![NodeEnd {
                    position: part.position,
                    end,
                }],
            );
            return self.node_steps.end_delivered(state, of_attempt);
        }
        if job.is_none_or(|j| j.grant.is_none()) {
            // Agent and launcher were both lost, and the key with them; the lead learns of the job's end otherwise.
            return self.node_steps.end_delivered(state, of_attempt);
        }
        self.deliver_ends(
            state,
            of_attempt,
            vec![NodeEnd {
                position: part.position,
                end,
            }],
            None,
        );
    }
}

impl NodeSteps {
    /// Queues a request that arrived before its job was announced.
    pub(super) fn wait_early(&mut self, state: &mut AgentState, early: Early) {
        let sender = early.sender();
        match (self.early.check_room(sender), early) {
            (Err(refusal), Early::Create(request) | Early::Number(request)) => {
                request.refuse(&mut state.out, refusal);
            }
            (_, early) => {
                let now_ms = state.now.mono_ms;
                self.early.add(early.job(), sender, early, now_ms);
                self.start_grant_timer(state);
            }
        }
    }

    /// The job was announced: early requests for it get their turns.
    pub(super) fn grant_came(&mut self, job: JobId) {
        self.early.give_turns(job);
    }

    /// Others have theirs.
    pub(super) fn turns_come(&mut self) {
        self.early.on_turn_timer();
    }

    /// One timer serves all of them, so it stays when a client disconnects.
    fn start_grant_timer(&mut self, state: &mut AgentState) {
        if let Some(after_ms) = self.early.start_timer(state.now.mono_ms) {
            state.out.set_timer(Timer::Grant, after_ms);
        }
    }

    /// The client has gone: nothing is started for it.
    pub(super) fn forget_early(&mut self, state: &mut AgentState, conn: ConnId) {
        for early in self.early.take_client(conn) {
            if let Early::Create(request) | Early::Number(request) = early {
                request.end(&mut state.out);
            }
        }
    }

    /// The lead knows: the part is forgotten.
    pub(super) fn end_delivered(&mut self, state: &mut AgentState, key: AttemptStep) {
        let AttemptStep { attempt, step } = key;
        let is_here = (self.part(key.id())).is_some_and(|part| part.attempt == attempt);
        if is_here && self.step(key.id(), attempt, NodeStepEvent::Delivered) {
            state.out.drop_kept(attempt, kept_of_node(step));
            state
                .out
                .command(LauncherCommand::ForgetStep(attempt, step));
        }
    }
}

/// The answer to an agent that has a step started.
pub(super) fn started_reply(
    result: Result<Listening, String>,
    below: Vec<muster_proto::step::BelowStarted>,
) -> AgentReply {
    match result {
        Ok(Listening {
            address,
            mesh_address,
            ..
        }) => AgentReply::StepdsStarted {
            address,
            mesh_address,
            below,
        },
        Err(error) => AgentReply::Refused(Refusal::new(RefusalCode::JobNotHere, error)),
    }
}
