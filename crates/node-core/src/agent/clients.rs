//! Requests of clients: srun, other agents, sstat and scontrol.

use super::actions::Actions;
use super::lead::CreateRequest;
use super::measure::{self, TaskUsages};
use super::node_steps::Origin;
use super::{Action, Agent, ClientRequest, RequestId};
use crate::messages::LauncherCommand;
use crate::signals::SIGTERM;
use minicbor::bytes::ByteVec;
use muster_model::ids::{AttemptStep, JobAttempt, JobId, StepId, StepNo};
use muster_model::refusal::RefusalCode;
use muster_model::rights::{self, AccessRequest};
use muster_proto::step::{AgentReply, AgentRequest, StepCreated, StepSpec};
use muster_proto::step::{NodeEnd, Process};
use std::collections::BTreeMap;

/// Lists of processes that a user may have under way.
const INSPECTIONS_MAX: usize = 16;

/// The question about the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inspection {
    /// The list of processes.
    Processes,
    /// Their resource usage.
    Usage(JobAttempt),
}

/// Questions about processes that the launcher has not answered, by tag: the owner of the job, the question and the request.
#[derive(Debug, Default)]
pub(super) struct Inspections(BTreeMap<u64, OpenInspection>);

/// A question that the launcher has not answered.
#[derive(Debug)]
struct OpenInspection {
    owner: u32,
    inspection: Inspection,
    request: RequestId,
}

impl Inspections {
    /// Number of a user's jobs that are under way.
    fn count_of(&self, owner: u32) -> usize {
        let all = self.0.values();
        all.filter(|open| open.owner == owner).count()
    }

    /// There are no answers for clients that wait.
    pub(super) fn refuse_all(&mut self, out: &mut Actions) {
        for (_, open) in std::mem::take(&mut self.0) {
            out.refuse(open.request, RefusalCode::Busy);
        }
    }

    /// The launcher has listed processes.
    pub(super) fn answer_processes(&mut self, out: &mut Actions, tag: u64, list: Vec<Process>) {
        if let Some(open) = self.0.remove(&tag) {
            out.finish(open.request, AgentReply::Processes(list));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether a request is one of agents, which users have no part in.
pub fn is_of_agents(request: &AgentRequest) -> bool {
    match request {
        AgentRequest::StartStep(..)
        | AgentRequest::StepNodeEnded { .. }
        | AgentRequest::SignalStep { .. }
        | AgentRequest::FindStep { .. } => true,
        AgentRequest::Create(_)
        | AgentRequest::Inspect { .. }
        | AgentRequest::Measure { .. }
        | AgentRequest::LocateStep { .. }
        | AgentRequest::TakeStepNumber { .. }
        | AgentRequest::ServeNode(..)
        | AgentRequest::Greeting(_) => false,
    }
}

impl Agent {
    pub(super) fn on_request(&mut self, request: ClientRequest) {
        let ClientRequest {
            id,
            conn,
            uid,
            is_agent,
            body,
            stdio,
            random,
        } = request;
        if !is_agent && is_of_agents(&body) {
            self.state.out.close_stdio(stdio);
            return self.state.out.refuse(id, RefusalCode::AccessDenied);
        }
        let create = |spec: StepSpec| CreateRequest {
            id,
            conn,
            uid,
            spec,
            stdio,
            random,
        };
        match *body {
            AgentRequest::Create(spec) => self.steps.create_step(&mut self.state, create(*spec)),
            AgentRequest::TakeStepNumber { job, key } => {
                let spec = StepSpec {
                    job,
                    key,
                    argv: vec![String::new()],
                    ..StepSpec::default()
                };
                self.steps.take_step_number(&mut self.state, create(spec));
            }
            other => {
                self.state.out.push(Action::ReleaseBytes(id));
                self.state.out.close_stdio(stdio);
                self.on_short_request(id, uid, other);
            }
        }
    }

    /// A request whose bytes are not kept.
    fn on_short_request(&mut self, id: RequestId, uid: u32, request: AgentRequest) {
        match request {
            AgentRequest::StartStep(launch, below) => {
                self.steps
                    .start_here(&mut self.state, *launch, Origin::Request(id, below));
            }
            AgentRequest::StepNodeEnded {
                job,
                key,
                step,
                position,
                end,
                others,
                onwards,
            } => {
                let mut ends = vec![NodeEnd {
                    position,
                    end: *end,
                }];
                ends.extend(others);
                self.others_ended(StepId::new(job, step), &key, ends, onwards, id);
            }
            AgentRequest::SignalStep {
                job,
                key,
                step,
                signal,
                below,
            } => {
                let Some((attempt, _)) = self.state.jobs.with_key(job, &key) else {
                    return self.state.out.refuse(id, RefusalCode::AccessDenied);
                };
                if !below.is_empty() {
                    let request = AgentRequest::SignalStep {
                        job,
                        key,
                        step,
                        signal,
                        below: Vec::new(),
                    };
                    self.steps
                        .tree
                        .signal_below(&mut self.state, &request, &below);
                }
                self.signal_from_lead(attempt, step, signal);
                self.state.out.finish(id, AgentReply::Done);
            }
            AgentRequest::FindStep { job, key, step } => {
                let reply =
                    self.steps
                        .node_steps
                        .find_part(&self.state, StepId::new(job, step), &key);
                self.state.out.finish(id, reply);
            }
            AgentRequest::Inspect { job } => {
                self.inspect(
                    AccessRequest::Inspect,
                    (job, uid),
                    |_| Inspection::Processes,
                    id,
                );
            }
            AgentRequest::Measure { job } => {
                self.inspect(AccessRequest::Measure, (job, uid), Inspection::Usage, id);
            }
            AgentRequest::LocateStep { job, step } => {
                let reply = match self.locate(uid, StepId::new(job, step)) {
                    Ok(created) => AgentReply::Created(Box::new(created)),
                    Err(code) => AgentReply::Refused(code.into()),
                };
                self.state.out.finish(id, reply);
            }
            // `AgentRequest`s that create a step or take its number are handled before this, others by the connection.
            AgentRequest::Create(_)
            | AgentRequest::TakeStepNumber { .. }
            | AgentRequest::ServeNode(..)
            | AgentRequest::Greeting(_) => self.state.out.push(Action::EndRequest(id)),
        }
    }

    /// Where the tasks of a step run, for a user who may read their output.
    fn locate(&self, uid: u32, key: StepId) -> Result<StepCreated, RefusalCode> {
        let job = self.state.jobs.latest(key.job);
        let grant = job.and_then(|(_, job)| job.grant.as_ref());
        let grant = grant.ok_or(RefusalCode::InvalidJobId)?;
        if !rights::may_on_node(AccessRequest::LocateStep, uid, grant.spec.owner.uid, false) {
            return Err(RefusalCode::AccessDenied);
        }
        self.steps.led.located(key)
    }

    /// Other nodes' parts of a step have ended.
    fn others_ended(
        &mut self,
        key: StepId,
        job_key: &ByteVec,
        ends: Vec<NodeEnd>,
        onwards: bool,
        request: RequestId,
    ) {
        let known = self
            .state
            .jobs
            .with_key(key.job, job_key)
            .map(|(attempt, job)| (attempt, job.leads()));
        match known {
            Some((attempt, false)) if onwards && self.steps.node_steps.part(key).is_some() => {
                let key = AttemptStep::new(attempt, key.step);
                self.steps
                    .deliver_ends(&mut self.state, key, ends, Some(request));
            }
            _ if onwards => self.state.out.refuse(request, RefusalCode::JobNotHere),
            None if self.state.jobs.latest(key.job).is_some() => {
                self.state.out.refuse(request, RefusalCode::AccessDenied);
            }
            // The launcher may not have reported yet that the job is here. The end is then reported again.
            None if !self.state.is_synced => self.state.out.refuse(request, RefusalCode::Busy),
            // A job that is forgotten needs no report of its steps any more.
            _ => {
                self.steps.nodes_ended(&mut self.state, key, ends);
                self.state.out.finish(request, AgentReply::Done);
            }
        }
    }

    fn signal_from_lead(&mut self, attempt: JobAttempt, step: StepNo, signal: u32) {
        let command = if signal == SIGTERM.unsigned_abs() {
            LauncherCommand::EndStep { attempt, step }
        } else {
            LauncherCommand::SignalStep {
                attempt,
                step,
                signal: i32::try_from(signal).unwrap_or(0),
            }
        };
        self.state.out.command(command);
    }

    fn inspect(
        &mut self,
        right: AccessRequest,
        (job, uid): (JobId, u32),
        inspection: impl Fn(JobAttempt) -> Inspection,
        request: RequestId,
    ) {
        let latest = self
            .state
            .jobs
            .latest(job)
            .and_then(|(attempt, j)| Some((attempt, j.grant.as_ref()?.spec.owner.uid)));
        match latest {
            _ if !self.state.out.has_launcher => self.state.out.refuse(request, RefusalCode::Busy),
            None => self.state.out.refuse(request, RefusalCode::InvalidJobId),
            Some((_, owner)) if !rights::may_on_node(right, uid, owner, false) => {
                self.state.out.refuse(request, RefusalCode::AccessDenied);
            }
            Some((_, owner)) if self.inspections.count_of(owner) >= INSPECTIONS_MAX => {
                self.state.out.refuse(request, RefusalCode::Busy);
            }
            Some((attempt, owner)) => {
                self.state.next_tag += 1;
                let tag = self.state.next_tag;
                let open = OpenInspection {
                    owner,
                    inspection: inspection(attempt),
                    request,
                };
                self.state.out.command(match open.inspection {
                    Inspection::Processes => LauncherCommand::Inspect { job, tag },
                    Inspection::Usage(_) => LauncherCommand::Measure {
                        job,
                        tag,
                        memory: None,
                    },
                });
                self.inspections.0.insert(tag, open);
            }
        }
    }

    /// Answers a client: the usage of a job's tasks was read, or could not be.
    pub(super) fn answer_measured(&mut self, tag: u64, tasks: Option<TaskUsages>) {
        let Some(open) = self.inspections.0.remove(&tag) else {
            return;
        };
        let (Inspection::Usage(attempt), Some(tasks)) = (open.inspection, tasks) else {
            return self.state.out.refuse(open.request, RefusalCode::Busy);
        };
        let mut now = measure::sum_up(&tasks, &self.state.node.config.name);
        let seen = self.steps.samples.of(attempt, &self.state.node.config.name);
        for measured in &mut now {
            if let Some(seen) = seen.iter().find(|seen| seen.step == measured.step) {
                measured.usage.raise(&seen.usage);
            }
        }
        self.state
            .out
            .finish(open.request, AgentReply::Measured(now));
    }
}
