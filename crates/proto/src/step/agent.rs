//! Requests of srun, sstat, scontrol and agents to an agent, and its replies.

use super::{NodeEnd, Process, StepCreated, StepLaunch, StepShare, StepSpec};
use crate::frame::Message;
use crate::version::Greeting;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ResourceUsage, StepEnd};
use muster_model::limits::{
    AGENT_REQUEST_BYTES_MAX, AGENT_REQUEST_ITEMS_MAX, NOTE_BYTES_MAX, SIGNAL_MAX,
};
use muster_model::refusal::Refusal;
use muster_model::validate::Validate;

/// To an agent's listener, from srun, sstat, scontrol or another agent. One per connection.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum AgentRequest {
    /// Make a step. Answered by [`AgentReply::Queued`] any number of times, then `Created` or `Refused`. The
    /// connection stays open while the step runs; when it closes, the step is ended. The job's owner or root.
    #[n(0)]
    Create(#[n(0)] Box<StepSpec>),
    /// From the lead, or the node above in the tree: start the stepd of this node, and those of the nodes below it, which
    /// are given in the order of their positions. Answered by [`AgentReply::StepdsStarted`] when all have answered. Bearer of
    /// the job's key.
    #[n(1)]
    StartStep(
        #[n(0)] Box<StepLaunch>,
        #[n(1)]
        #[cbor(default)]
        Vec<StepShare>,
    ),
    /// To the lead, or the node above in the tree: this node's part of a step has ended, and those of others below it.
    /// Answered by [`AgentReply::Done`] when the lead knows. Bearer of the job's key.
    #[n(2)]
    StepNodeEnded {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The job's key.
        #[n(1)]
        key: ByteVec,
        /// The step.
        #[n(2)]
        step: StepNo,
        /// Position of the node in the step.
        #[n(3)]
        position: u32,
        /// End of the step.
        #[n(4)]
        end: Box<StepEnd>,
        /// Ends of others.
        #[n(5)]
        #[cbor(default)]
        others: Vec<NodeEnd>,
        /// It is for the lead, to be passed on; otherwise the receiver is the lead.
        #[n(6)]
        #[cbor(default)]
        onwards: bool,
    },
    /// Signal a step, from the lead to other nodes, each of which passes it on to those below it. Answered by
    /// [`AgentReply::Done`]. Bearer of the job's key.
    #[n(3)]
    SignalStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The job's key.
        #[n(1)]
        key: ByteVec,
        /// The step.
        #[n(2)]
        step: StepNo,
        /// Signal number.
        #[n(3)]
        #[valid(min = 1, max = SIGNAL_MAX)]
        signal: u32,
        /// Addresses of the agents to pass it on to.
        #[n(4)]
        #[cbor(default)]
        below: Vec<String>,
    },
    /// Process ids of a job here (`scontrol listpids`).
    #[n(4)]
    Inspect {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// The current usage of a job's steps here (`sstat`).
    #[n(5)]
    Measure {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// To the lead of a heterogeneous job's first component: a number for a step of any of its components. Answered by
    /// [`AgentReply::StepNumber`]. The job's owner or root.
    #[n(260)]
    TakeStepNumber {
        /// The leader.
        #[n(0)]
        job: JobId,
        /// The job's key, when srun has it.
        #[n(1)]
        key: Option<ByteVec>,
    },
    /// First on a connection that slurmd's supervisor makes for the agent of this node: from here on only what agents ask
    /// each other is taken from it. The agent sees root there, which that agent is not. There is no answer. Root.
    #[n(261)]
    ServeNode(#[n(0)] String, #[n(1)] Option<Greeting>),
    /// Before any other request, and on the way of `ServeNode` in that: which version the sender speaks. There is no answer but
    /// [`AgentReply::Refused`]. Anyone.
    #[n(262)]
    Greeting(#[n(0)] Greeting),
    /// From the lead to another node, after the lead's agent was started anew: is a part of this step there? Answered by
    /// [`AgentReply::Done`] if so, whose end will be reported; refused by `JobNotHere` if there is none, and by another code where
    /// that is not known yet. Bearer of the job's key.
    #[n(263)]
    FindStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The job's key.
        #[n(1)]
        key: ByteVec,
        /// The step.
        #[n(2)]
        step: StepNo,
    },
    /// To the lead: where the tasks of a step run and the key to its daemons (`sattach`). Answered by [`AgentReply::Created`].
    /// The job's owner or root.
    #[n(400)]
    LocateStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
    },
}

impl AgentRequest {
    /// The job that a request is about; none for those about the connection.
    pub fn job(&self) -> Option<JobId> {
        match self {
            AgentRequest::Create(spec) => Some(spec.job),
            AgentRequest::StartStep(launch, _) => Some(launch.spec.job),
            AgentRequest::StepNodeEnded { job, .. }
            | AgentRequest::SignalStep { job, .. }
            | AgentRequest::FindStep { job, .. }
            | AgentRequest::Inspect { job }
            | AgentRequest::Measure { job }
            | AgentRequest::LocateStep { job, .. }
            | AgentRequest::TakeStepNumber { job, .. } => Some(*job),
            AgentRequest::ServeNode(..) | AgentRequest::Greeting(_) => None,
        }
    }

    /// The job of a request between agents, and the key by which they know each other.
    pub fn agents_key(&self) -> Option<(JobId, &ByteVec)> {
        match self {
            AgentRequest::StartStep(launch, _) => Some((launch.spec.job, &launch.key)),
            AgentRequest::StepNodeEnded { job, key, .. }
            | AgentRequest::SignalStep { job, key, .. }
            | AgentRequest::FindStep { job, key, .. } => Some((*job, key)),
            _ => None,
        }
    }
}

impl Message for AgentRequest {
    const BYTES_MAX: usize = AGENT_REQUEST_BYTES_MAX;
    const ITEMS_MAX: usize = AGENT_REQUEST_ITEMS_MAX;
}

/// From an agent.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub enum AgentReply {
    /// The step waits: text for `srun: Job step creation temporarily disabled, retrying (...)`.
    #[n(0)]
    Queued(#[n(0)] String),
    /// The step runs or is about to.
    #[n(1)]
    Created(#[n(0)] Box<StepCreated>),
    /// The request is refused.
    #[n(2)]
    Refused(#[n(0)] Refusal),
    /// The stepd listens here.
    #[n(3)]
    StepdsStarted {
        /// `unix:/path` or `host:port`.
        #[n(0)]
        address: String,
        /// Where it listens for the step's other nodes, `ip:port`, if the step's kind of MPI needs that.
        #[n(1)]
        mesh_address: Option<String>,
        /// Addresses of the nodes below, in the order of their positions.
        #[n(2)]
        #[cbor(default)]
        below: Vec<BelowStarted>,
    },
    /// Done. After `Created`: the step is over on all its nodes.
    #[n(4)]
    Done,
    /// To `Inspect`.
    #[n(5)]
    Processes(#[n(0)] Vec<Process>),
    /// To `Measure`.
    #[n(6)]
    Measured(#[n(0)] Vec<MeasuredStep>),
    /// To `TakeStepNumber`.
    #[n(260)]
    StepNumber {
        /// The number.
        #[n(0)]
        number: u32,
        /// See [`super::HetStep::proof`].
        #[n(1)]
        proof: ByteVec,
    },
}

impl Message for AgentReply {}

/// The answer of a node that was asked by another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub struct BelowStarted {
    /// As in [`AgentReply::StepdsStarted`].
    #[n(0)]
    pub address: String,
    /// Likewise.
    #[n(1)]
    pub mesh_address: Option<String>,
    /// Why its stepd is not there.
    #[n(2)]
    pub error: Option<String>,
}

/// The usage of a step's tasks on a node.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub struct MeasuredStep {
    /// The step.
    #[n(0)]
    pub step: StepNo,
    /// Its usage.
    #[n(1)]
    pub usage: ResourceUsage,
}
