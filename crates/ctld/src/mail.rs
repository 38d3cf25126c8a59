//! Messages between the controller's threads.

use crate::backlog::WaitingBytes;
use crate::outbox::Outbox;
use crate::peer::RequestOrigin;
use crate::program_settings::ProgramSettings;
use crate::reply::ReplyTo;
use minicbor::bytes::ByteVec;
use muster_core::event::Event;
use muster_core::state::{DisplayUpdate, State};
use muster_journal::{FinishedSnapshot, Position, SnapshotWriter};
use muster_model::command::{
    Identity, JobSelection, JobTarget, KeptPartitions, Reply, UserCommand,
};
use muster_model::config::ClusterConfig;
use muster_model::ids::{Attempt, BlobId, JobId, NodeIdx};
use muster_model::refusal::Refusal;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use muster_model::trigger::TriggerReport;
use muster_proto::client::Query;
use muster_proto::node::{NodeHello, NodeSettings, NumberedReport, Order, Welcome};
use muster_sched::forecast::Forecast;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// To the one thread that owns the state.
#[expect(
    clippy::large_enum_variant,
    reason = "commands of users are most messages: a box for each would cost more"
)]
pub enum ToWriter {
    /// A user's command.
    User {
        /// The user.
        identity: Identity,
        /// The command.
        command: Box<UserCommand>,
        /// Where the answer goes once it is durable.
        reply: ReplyTo,
    },
    /// A node's agent connected.
    NodeHello {
        /// Its registration.
        hello: Box<NodeHello>,
        /// Where orders for it go.
        link: Link,
        /// Its index, or why it is refused.
        answer: oneshot::Sender<Result<NodeIdx, Refusal>>,
    },
    /// Reports of a node.
    Reports {
        /// The node.
        node: NodeIdx,
        /// Which of its connections says so.
        generation: u64,
        /// The reports.
        reports: Vec<NumberedReport>,
    },
    /// The result of applying a configuration on a node.
    NodeConfiguration {
        /// The node.
        node: NodeIdx,
        /// Which of its connections says so.
        generation: u64,
        /// Why it was not applied, if it was not.
        error: Option<String>,
    },
    /// A node's load.
    Health {
        /// The node.
        node: NodeIdx,
        /// Load average times 100.
        load_centi: u32,
        /// Free memory, MiB.
        free_mib: u64,
    },
    /// A node's connection closed.
    NodeLost {
        /// The node.
        node: NodeIdx,
        /// Which of its connections.
        generation: u64,
    },
    /// A new configuration.
    Configure {
        /// The part of the configuration that decisions depend on.
        config: Arc<ClusterConfig>,
        /// Messages to agents.
        settings: Box<NodeSettings>,
        /// Whether changes made to partitions at run time are kept.
        keep: KeptPartitions,
        /// When it is in force.
        done: Option<oneshot::Sender<()>>,
    },
    /// `PrologSlurmctld` of a job has ended.
    PrologEnded {
        /// The job.
        job: JobId,
        /// Which launch.
        attempt: Attempt,
        /// With exit status 0.
        well: bool,
    },
    /// Something happened that triggers may be for, or the program of one was started.
    Trigger(TriggerReport),
    /// The replica wants to write a snapshot of the state at this position.
    StartSnapshot {
        /// The position.
        position: Position,
        /// The writer, unless the log has a reason against it.
        answer: std::sync::mpsc::Sender<Option<SnapshotWriter>>,
    },
    /// The snapshot is durable.
    FinishSnapshot(FinishedSnapshot),
    /// Stop after all queued messages.
    Stop {
        /// Node agents too.
        nodes: bool,
    },
}

impl ToWriter {
    /// The controller itself ends a job, as a consequence of what this user did, if it is one's.
    pub(crate) fn cancel(job: JobId, because_of: Option<u32>) -> ToWriter {
        let target = JobTarget {
            job,
            tasks: None,
            component: None,
        };
        let selection = JobSelection {
            targets: vec![target],
            ..JobSelection::default()
        };
        ToWriter::User {
            identity: Identity {
                user: "root".to_owned(),
                ..Identity::default()
            },
            command: Box::new(UserCommand::Cancel { selection }),
            reply: ReplyTo::Own(because_of),
        }
    }
}

/// The writer's end of a node's connection.
#[derive(Clone)]
pub struct Link {
    /// Distinguishes the connections of a node.
    pub generation: u64,
    /// To the connection's task.
    pub send: mpsc::UnboundedSender<ToLink>,
}

/// To a node's connection.
pub enum ToLink {
    /// First message, and the settings that follow it.
    Welcome(Box<Welcome>, Box<NodeSettings>),
    /// An order, with the blobs it needs.
    Order(Order, Vec<(BlobId, Arc<ByteVec>)>),
    /// Reports up to this number are durable.
    Ack(u64),
    /// Settings changed.
    Settings(Box<NodeSettings>),
    /// The controller stops; the agent too if true.
    Stop(bool),
    /// Another connection of the same node took over.
    Replaced,
}

/// A question that is answered from the state at once.
pub type StateQuery = Box<dyn FnOnce(&State) + Send>;

/// A copy of the replica's state.
pub struct StateCopy {
    pub(crate) state: Box<State>,
    /// Position of the last event that it knows.
    pub(crate) position: Position,
}

/// A forecast.
pub struct ForecastResult {
    pub(crate) forecast: Arc<Forecast>,
    /// Position of the last event that it knows.
    pub(crate) position: Position,
    pub(crate) at: Timestamp,
    /// Time that the thread has spent on it.
    pub(crate) took: Duration,
    /// Nothing is added to it: the simulation is over, or has used its time.
    pub(crate) is_over: bool,
}

/// To the replica.
pub enum ToReplica {
    /// Durable events, the first of them at `first`.
    Batch {
        /// Position of the first event.
        first: Position,
        /// Their length in the journal.
        bytes: u64,
        /// The events.
        events: Arc<Vec<Event>>,
        /// The part of the configuration that only listings show.
        notes: Vec<DisplayUpdate>,
        /// Bytes that count as waiting until all of this is applied.
        counted: WaitingBytes,
    },
    /// A read.
    Query {
        /// The user.
        identity: Identity,
        /// The question.
        query: Box<Query>,
        /// Encoded frames; closed after the last.
        answer: Outbox,
    },
    /// When a job would start if it were submitted now.
    Try {
        /// The user.
        identity: Identity,
        /// A job, or the components of a heterogeneous one.
        specs: Vec<JobSpec>,
        /// Where the client is.
        place: RequestOrigin,
        /// When, or why never.
        reply: oneshot::Sender<Reply>,
    },
    /// A result of the forecaster.
    ForecastResult(Box<ForecastResult>),
    /// Reply when a job has started, or ended, whichever comes first.
    WaitStarted {
        /// The user.
        identity: Identity,
        /// Where the client is.
        place: RequestOrigin,
        /// The job.
        job: JobId,
        /// One encoded frame.
        answer: Outbox,
    },
    /// A short look at the state: a question of rights.
    ReadState(StateQuery),
    /// Reply when a job (or all of an array) has ended.
    WaitEnded {
        /// The user.
        identity: Identity,
        /// The job.
        job: JobId,
        /// A job that went back to the queue has ended as far as its holder is concerned.
        holder: bool,
        /// One encoded frame.
        answer: Outbox,
    },
    /// Reply with the number of connected nodes, now and after each arrival, until this number is reached.
    WaitNodes {
        /// The number of nodes.
        count: u32,
        /// Encoded frames.
        answer: Outbox,
    },
    /// Compare a configuration with the one in force.
    Compare {
        /// The configuration that was read.
        cluster: Arc<ClusterConfig>,
        /// Its pairs for `scontrol show config`.
        pairs: Vec<(String, String)>,
        /// A line for each difference.
        answer: oneshot::Sender<Vec<String>>,
    },
    /// A message for the holder of an allocation.
    Notify {
        /// The job.
        job: JobId,
        /// The text.
        text: String,
        /// Bytes that count as waiting until it is passed on.
        counted: WaitingBytes,
    },
    /// The writer wants a copy of the state as of the last batch.
    Copy {
        /// Where it goes.
        answer: std::sync::mpsc::Sender<StateCopy>,
    },
    /// The text of `scontrol show config`.
    Config(Box<muster_proto::client::ConfigAnswer>),
    /// Programs of the site that the controller runs.
    Programs(Box<ProgramSettings>),
    /// Stop.
    Stop,
}
