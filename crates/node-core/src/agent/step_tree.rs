//! The tree over the nodes of a step ([`muster_model::tree`]), as agents use it: starts and signals go down, each agent
//! asking a few others, and ends come up, gathered on the way while the one above is busy. An agent passes on only to
//! sockets of agents, and only for a bearer of the job's key. An agent that is lost on the way down fails the
//! start; on the way up it is left out.

use super::actions::Actions;
use super::node_steps::{Listening, Origin, started_reply};
use super::state::AgentState;
use super::steps::Steps;
use super::{Action, PeerRequestId, RequestId, StdioId, Timer};
use crate::now::Now;
use minicbor::bytes::ByteVec;
use muster_model::ids::{AttemptStep, JobAttempt, StepId, StepNo};
use muster_model::job::StepEnd;
use muster_model::refusal::RefusalCode;
use muster_model::tree;
use muster_model::visible_text::debug_beginning;
use muster_proto::step::NodeEnd;
use muster_proto::step::{AgentReply, AgentRequest, BelowStarted, StepLaunch, StepShare};
use std::collections::BTreeMap;
use std::ops::Range;

/// Shortest wait between tries to report ends to the lead.
const DELIVERY_MIN_MS: u64 = 50;
/// Longest delay between two deliveries.
const DELIVERY_MAX_MS: u64 = 5000;
/// Time that the lead of a job that is forgotten here is tried: longer than an agent is away that is replaced by
/// another.
const FORGOTTEN_DELIVERY_MS: u64 = 3_600_000;

/// Requests to other agents, and the operations that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct StepTree {
    next: u64,
    /// Requests without an answer so far.
    asked: BTreeMap<PeerRequestId, PeerRequest>,
    /// Starts of this node and of those below it.
    starts: BTreeMap<u64, TreeStart>,
    /// Ends on their way up. The step of a later attempt does not wait for the lead of an earlier one.
    endings: BTreeMap<AttemptStep, Ending>,
}

/// A request to another agent.
#[derive(Debug)]
enum PeerRequest {
    /// To start a branch of a step that is led here.
    LedBranch(StepId, Branch),
    /// To start a branch below this node.
    BranchBelow {
        start: u64,
        at: usize,
        branch: Branch,
    },
    /// To pass ends on.
    EndsAbove(AttemptStep),
    /// To take note of ends.
    EndsLead(AttemptStep),
    /// Whether it has its part of a step that is led here, by its position.
    Part(StepId, u32),
    /// To signal a step, and to pass that on to these agents.
    Signal(Box<AgentRequest>, String, Vec<String>),
}

/// Consecutive nodes of a step. The first one gets the request for all.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The first node's position.
    pub position: u32,
    /// Where its agent listens.
    pub address: String,
    /// The names of all.
    names: Vec<String>,
}

/// A start of this node and of those below it.
#[derive(Debug)]
struct TreeStart {
    key: StepId,
    position: u32,
    origin: Origin,
    own: Option<Result<Listening, String>>,
    /// Answers by branch.
    below: Vec<Option<Vec<BelowStarted>>>,
}

/// Ends of a step that this node knows and the lead perhaps does not.
#[derive(Debug, Default)]
struct Ending {
    /// They, and the request that brought each; none for this node's own.
    waiting: Vec<(Vec<NodeEnd>, Option<RequestId>)>,
    /// Earlier ones are being reported.
    delivery: Option<EndReport>,
    /// The job is forgotten here: when it is tried no longer.
    until_ms: Option<u64>,
}

/// Ends that are being reported.
#[derive(Debug)]
struct EndReport {
    lead: String,
    /// The request to the lead.
    request: Box<AgentRequest>,
    /// The ends include that of this node's own part.
    own: bool,
    requests: Vec<RequestId>,
    wait_ms: u64,
}

impl StepTree {
    fn ask(&mut self, out: &mut Actions, asked: PeerRequest, address: String, body: AgentRequest) {
        let request = PeerRequestId(self.next);
        self.next += 1;
        self.asked.insert(request, asked);
        out.push(Action::AskPeer {
            request,
            address,
            body: Box::new(body),
        });
    }

    /// Makes the first of these agents signal its step and pass the request on to the others. If the first does not
    /// answer, the next one takes its place.
    fn signal_branch(&mut self, out: &mut Actions, mut request: AgentRequest, agents: &[String]) {
        let Some((first, rest)) = agents.split_first() else {
            return;
        };
        if let AgentRequest::SignalStep { below, .. } = &mut request {
            *below = rest.to_vec();
        }
        let asked = PeerRequest::Signal(Box::new(request.clone()), first.clone(), rest.to_vec());
        self.ask(out, asked, first.clone(), request);
    }

    /// Asks a node, by its position and its agent's address, whether it has its part of a step that is led here.
    pub(super) fn ask_for_part(
        &mut self,
        out: &mut Actions,
        key: StepId,
        (position, address): (u32, String),
        job_key: &ByteVec,
    ) {
        let request = AgentRequest::FindStep {
            job: key.job,
            key: job_key.clone(),
            step: key.step,
        };
        self.ask(out, PeerRequest::Part(key, position), address, request);
    }

    /// Reports ends to the lead, however long it takes while the job is known here.
    pub(super) fn report_to_lead(&mut self, out: &mut Actions, key: AttemptStep) {
        let delivery = self.endings.get(&key);
        if let Some(delivery) = delivery.and_then(|e| e.delivery.as_ref()) {
            let (lead, request) = (delivery.lead.clone(), (*delivery.request).clone());
            self.ask(out, PeerRequest::EndsLead(key), lead, request);
        }
    }

    fn delivery_failed(&mut self, state: &mut AgentState, key: AttemptStep, error: &str) {
        let Some(ending) = self.endings.get_mut(&key) else {
            return;
        };
        let Some(delivery) = &mut ending.delivery else {
            return;
        };
        let (lead, step) = (&delivery.lead, key.id());
        if ending.until_ms.is_some_and(|at| at <= state.now.mono_ms) {
            log::error!("{lead}: the end of step {step} is not reported: {error}");
            return self.give_up_delivery(&mut state.out, key);
        }
        let wait_ms = delivery.wait_ms;
        if wait_ms < DELIVERY_MAX_MS {
            log::warn!("{lead}: the end of step {step} cannot be reported: {error}");
        }
        delivery.wait_ms = (wait_ms * 2).min(DELIVERY_MAX_MS);
        state.out.set_timer(Timer::EndDelivery(key), wait_ms);
    }

    /// The agents that wait for an answer turn to the lead.
    fn give_up_delivery(&mut self, out: &mut Actions, key: AttemptStep) {
        let Some(ending) = self.endings.remove(&key) else {
            return;
        };
        let waiting = ending.waiting.into_iter().filter_map(|(_, by)| by);
        let reported = ending.delivery.into_iter().flat_map(|d| d.requests);
        for request in reported.chain(waiting) {
            out.refuse(request, RefusalCode::JobNotHere);
        }
    }

    /// A job is forgotten here. Its lead may still not know how steps have ended, or may have forgotten it, too, and take no
    /// reports.
    pub(super) fn limit_deliveries(&mut self, now: Now, attempt: JobAttempt) {
        let until_ms = now.mono_ms.saturating_add(FORGOTTEN_DELIVERY_MS);
        let all =
            AttemptStep::new(attempt, StepNo(0))..=AttemptStep::new(attempt, StepNo(u32::MAX));
        for (_, ending) in self.endings.range_mut(all) {
            ending.until_ms.get_or_insert(until_ms);
        }
    }

    /// Nothing is asked, and nothing waits for an answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.asked.is_empty() && self.starts.is_empty() && self.endings.is_empty()
    }
}

impl Steps {
    pub(super) fn peer_answered(
        &mut self,
        state: &mut AgentState,
        request: PeerRequestId,
        answer: Result<AgentReply, String>,
    ) {
        let Some(asked) = self.tree.asked.remove(&request) else {
            return;
        };
        match asked {
            PeerRequest::LedBranch(key, branch) => {
                let started = branch.answers(answer);
                self.branch_answered(state, key, branch.position, started);
            }
            PeerRequest::BranchBelow { start, at, branch } => {
                let started = branch.answers(answer);
                if let Some(start) = self.tree.starts.get_mut(&start)
                    && let Some(slot) = start.below.get_mut(at)
                {
                    *slot = Some(started);
                }
                self.finish_start(state, start);
            }
            PeerRequest::EndsAbove(key) => match answer {
                Ok(AgentReply::Done) => self.ends_delivered(state, key),
                Ok(_) | Err(_) => self.tree.report_to_lead(&mut state.out, key),
            },
            PeerRequest::EndsLead(key) => match answer {
                Ok(AgentReply::Done) => self.ends_delivered(state, key),
                // The lead has a later launch of the job: nobody waits for an end of this one.
                Ok(AgentReply::Refused(refusal)) if refusal.code == RefusalCode::AccessDenied => {
                    self.ends_delivered(state, key);
                }
                // The node may be busy.
                Ok(AgentReply::Refused(refusal)) => {
                    self.tree.delivery_failed(state, key, &refusal.to_string());
                }
                Ok(_) => self
                    .tree
                    .delivery_failed(state, key, "an answer to something else"),
                Err(error) => self.tree.delivery_failed(state, key, &error),
            },
            PeerRequest::Part(key, position) => {
                let end = self.led.part_found(state, key, position, answer);
                if let Some(end) = end {
                    self.nodes_ended(state, key, vec![end]);
                }
            }
            PeerRequest::Signal(request, address, rest) => {
                if let Err(error) = answer {
                    log::warn!("{address}: a step cannot be signalled: {error}");
                    self.tree.signal_branch(&mut state.out, *request, &rest);
                }
            }
        }
    }

    /// At the lead: starts the daemons of all nodes. `launch` is their common part; `stdio` is for a step on this
    /// node alone.
    pub(super) fn start_everywhere(
        &mut self,
        state: &mut AgentState,
        launch: StepLaunch,
        shares: &[StepShare],
        mut stdio: Option<StdioId>,
    ) {
        let own_address = state.node.config.address.clone();
        if let [share] = shares
            && share.address == own_address
        {
            let here = launch_at(launch, 0, share, None);
            return self.start_here(state, here, Origin::Lead(stdio));
        }
        for range in tree::branches(0..shares.len(), launch.tree_width()) {
            let share = &shares[range.start];
            let head = launch_at(launch.clone(), range.start, share, None);
            let below = shares[range.start + 1..range.end].to_vec();
            let branch = Branch::new(&launch, range, share);
            if share.address != own_address {
                let key = StepId::new(launch.spec.job, launch.step);
                let request = AgentRequest::StartStep(Box::new(head), below);
                let address = branch.address.clone();
                self.tree.ask(
                    &mut state.out,
                    PeerRequest::LedBranch(key, branch),
                    address,
                    request,
                );
            } else if below.is_empty() {
                self.start_here(state, head, Origin::Lead(stdio.take()));
            } else {
                self.start_here(state, head, Origin::LeadBranch(branch.names, below));
            }
        }
        state.out.close_stdio(stdio);
    }

    /// A branch of a step that is led here was started by this node, or not.
    pub(super) fn branch_started(
        &mut self,
        state: &mut AgentState,
        key: StepId,
        position: u32,
        answer: Result<AgentReply, String>,
        names: &[String],
    ) {
        self.branch_answered(state, key, position, answers(answer, names));
    }

    pub(super) fn branch_answered(
        &mut self,
        state: &mut AgentState,
        key: StepId,
        first: u32,
        started: Vec<BelowStarted>,
    ) {
        for (position, answer) in (first..).zip(started) {
            self.node_started(state, key, position, listening(answer));
        }
    }

    /// The start of this node's own part has succeeded or failed.
    pub(super) fn own_node_started(
        &mut self,
        state: &mut AgentState,
        start: u64,
        result: Result<Listening, String>,
    ) {
        if let Some(tree_start) = self.tree.starts.get_mut(&start) {
            tree_start.own = Some(result);
        }
        self.finish_start(state, start);
    }

    /// Answers a start, once all have answered.
    pub(super) fn finish_start(&mut self, state: &mut AgentState, start: u64) {
        let is_complete = |s: &TreeStart| s.own.is_some() && s.below.iter().all(Option::is_some);
        if !self.tree.starts.get(&start).is_some_and(is_complete) {
            return;
        }
        let Some(TreeStart {
            key,
            position,
            origin,
            own: Some(own),
            below,
        }) = self.tree.starts.remove(&start)
        else {
            return;
        };
        let below = below.into_iter().flatten().flatten().collect();
        let reply = started_reply(own, below);
        match origin {
            Origin::Request(request, _) => state.out.finish(request, reply),
            Origin::LeadBranch(names, _) => {
                self.branch_started(state, key, position, Ok(reply), &names)
            }
            Origin::Lead(stdio) => state.out.close_stdio(stdio),
            Origin::Gathered(_) => {}
        }
    }

    /// Delivers ended parts of a step that another node leads: this node's part, or those of nodes below from
    /// `request`.
    pub(super) fn deliver_ends(
        &mut self,
        state: &mut AgentState,
        key: AttemptStep,
        ends: Vec<NodeEnd>,
        request: Option<RequestId>,
    ) {
        let ending = self.tree.endings.entry(key).or_default();
        ending.waiting.push((ends, request));
        self.deliver_waiting(state, key);
    }

    /// Reports waiting ends, unless a report is under way: ends that arrive meanwhile go together in the next.
    fn deliver_waiting(&mut self, state: &mut AgentState, key: AttemptStep) {
        let part = self.node_steps.part(key.id());
        let part = part.filter(|part| part.attempt == key.attempt);
        let way = part.map(|p| (p.above.clone(), p.lead.clone()));
        let grant = state.jobs.get(key.attempt).and_then(|j| j.grant.clone());
        let is_free = |e: &&mut Ending| e.delivery.is_none();
        let Some(ending) = self.tree.endings.get_mut(&key).filter(is_free) else {
            return;
        };
        let known = way.zip(grant).filter(|_| !ending.waiting.is_empty());
        let Some(((above, lead), grant)) = known else {
            return self.tree.give_up_delivery(&mut state.out, key);
        };
        let waiting = std::mem::take(&mut ending.waiting);
        let own = waiting.iter().any(|(_, request)| request.is_none());
        let (mut requests, mut ends) = (Vec::new(), Vec::new());
        for (more, request) in waiting {
            requests.extend(request);
            ends.extend(more);
        }
        let delivery = EndReport {
            lead,
            request: Box::new(ends_request(key.id(), &grant.key, &ends, false)),
            own,
            requests,
            wait_ms: DELIVERY_MIN_MS,
        };
        ending.delivery = Some(delivery);
        match above {
            Some(above) => {
                let request = ends_request(key.id(), &grant.key, &ends, true);
                self.tree
                    .ask(&mut state.out, PeerRequest::EndsAbove(key), above, request);
            }
            None => self.tree.report_to_lead(&mut state.out, key),
        }
    }

    /// The lead knows of ends.
    fn ends_delivered(&mut self, state: &mut AgentState, key: AttemptStep) {
        let ending = self.tree.endings.get_mut(&key);
        let Some(delivery) = ending.and_then(|e| e.delivery.take()) else {
            return;
        };
        for request in delivery.requests {
            state.out.finish(request, AgentReply::Done);
        }
        self.deliver_waiting(state, key);
        if delivery.own {
            self.node_steps.end_delivered(state, key);
        }
    }
}

impl StepTree {
    /// At a node in the tree: makes the nodes below start, and returns the request to which this node's own answer
    /// belongs.
    pub(super) fn start_below(
        &mut self,
        state: &mut AgentState,
        launch: &StepLaunch,
        mut origin: Origin,
    ) -> Origin {
        let below = match &mut origin {
            Origin::Request(_, below) | Origin::LeadBranch(_, below) => std::mem::take(below),
            Origin::Lead(_) | Origin::Gathered(_) => Vec::new(),
        };
        if below.is_empty() {
            return origin;
        }
        let start = self.next;
        self.next += 1;
        let branches = branches_below(launch, &below, &state.node.config.address);
        let tree_start = TreeStart {
            key: StepId::new(launch.spec.job, launch.step),
            position: launch.position,
            origin,
            own: None,
            below: vec![None; branches.len()],
        };
        self.starts.insert(start, tree_start);
        for (at, (branch, request)) in branches.into_iter().enumerate() {
            let address = branch.address.clone();
            self.ask(
                &mut state.out,
                PeerRequest::BranchBelow { start, at, branch },
                address,
                request,
            );
        }
        Origin::Gathered(start)
    }

    /// Makes these agents signal a step.
    pub(super) fn signal_below(
        &mut self,
        state: &mut AgentState,
        request: &AgentRequest,
        agents: &[String],
    ) {
        for branch in tree::branches(0..agents.len(), state.node.tree_width(None)) {
            self.signal_branch(&mut state.out, request.clone(), &agents[branch]);
        }
    }
}

/// The request by which an agent reports ends of a step: to the lead, or `onwards` to the node above. There is at least one
/// end.
pub fn ends_request(
    key: StepId,
    job_key: &ByteVec,
    ends: &[NodeEnd],
    onwards: bool,
) -> AgentRequest {
    let NodeEnd { position, end } = ends.first().cloned().unwrap_or_else(|| NodeEnd {
        position: u32::MAX,
        end: StepEnd::never_ran(muster_model::time::Timestamp::default()),
    });
    AgentRequest::StepNodeEnded {
        job: key.job,
        key: job_key.clone(),
        step: key.step,
        position,
        end: Box::new(end),
        others: ends.get(1..).unwrap_or_default().to_vec(),
        onwards,
    }
}

/// The branches below a node, and what their first agents are asked.
pub fn branches_below(
    launch: &StepLaunch,
    below: &[StepShare],
    own_address: &str,
) -> Vec<(Branch, AgentRequest)> {
    let first = launch.position as usize + 1;
    let branches = tree::branches(0..below.len(), launch.tree_width());
    let branches = branches.map(|range: Range<usize>| {
        let at = first + range.start..first + range.end;
        let share = &below[range.start];
        let above = Some(own_address.to_owned());
        let head = launch_at(launch.clone(), at.start, share, above);
        let rest = below[range.start + 1..range.end].to_vec();
        let request = AgentRequest::StartStep(Box::new(head), rest);
        (Branch::new(launch, at, share), request)
    });
    branches.collect()
}

impl Branch {
    fn new(launch: &StepLaunch, positions: Range<usize>, head: &StepShare) -> Branch {
        Branch {
            position: u32::try_from(positions.start).unwrap_or(u32::MAX),
            address: head.address.clone(),
            names: launch.names.get(positions).unwrap_or_default().to_vec(),
        }
    }

    /// The answers of the individual nodes, in order, from that of the first agent.
    pub fn answers(&self, answer: Result<AgentReply, String>) -> Vec<BelowStarted> {
        let answer = answer.map_err(|error| format!("{}: {error}", self.address));
        answers(answer, &self.names)
    }
}

/// The launch of one node.
fn launch_at(
    launch: StepLaunch,
    position: usize,
    share: &StepShare,
    above: Option<String>,
) -> StepLaunch {
    StepLaunch {
        position: u32::try_from(position).unwrap_or(u32::MAX),
        cpus: share.cpus.clone(),
        memory_mib: share.memory_mib,
        gres: share.gres.clone(),
        above,
        ..launch
    }
}

/// The answers of a branch, by node; `names` are the names of its nodes.
fn answers(answer: Result<AgentReply, String>, names: &[String]) -> Vec<BelowStarted> {
    let error = |text: String| BelowStarted {
        error: Some(text),
        ..BelowStarted::default()
    };
    let head = names.first().map_or("", String::as_str);
    let (first, mut rest) = match answer {
        Ok(AgentReply::StepdsStarted {
            address,
            mesh_address,
            below,
        }) => {
            let first = BelowStarted {
                address,
                mesh_address,
                error: None,
            };
            (first, below)
        }
        Ok(AgentReply::Refused(refusal)) => (error(format!("node {head}: {refusal}")), Vec::new()),
        Ok(other) => {
            let shown = debug_beginning(&other, 60);
            let error = error(format!("node {head}: unexpected answer {shown}"));
            (error, Vec::new())
        }
        Err(e) => (error(format!("node {head}: {e}")), Vec::new()),
    };
    for name in names.iter().skip(1 + rest.len()) {
        rest.push(error(format!(
            "node {name}: not asked, as node {head} has failed"
        )));
    }
    rest.insert(0, first);
    rest.truncate(names.len());
    rest
}

fn listening(answer: BelowStarted) -> Result<Listening, String> {
    match answer.error {
        Some(error) => Err(error),
        None => Ok(Listening {
            address: answer.address,
            mesh_address: answer.mesh_address,
            direct: false,
        }),
    }
}
