//! srun and step daemons, and step daemons among themselves: streams, signals and ends of tasks.

use super::StepCreated;
use crate::frame::Message;
use crate::version::Greeting;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::job::ExitStatus;
use muster_model::limits::NOTE_BYTES_MAX;
use muster_model::refusal::Refusal;
use muster_model::validate::Validate;

/// srun to stepd.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum ToStepd {
    /// First message: the step's key, and which version the sender speaks; refused without that. Tasks are held until it came
    /// (or the stepd gives up waiting).
    #[n(0)]
    Hello(#[n(0)] ByteVec, #[n(1)] Option<Greeting>),
    /// Standard input for a task, or for all.
    #[n(1)]
    Stdin {
        /// Global task number; all when absent.
        #[n(0)]
        task: Option<u32>,
        /// The bytes; empty is end of file.
        #[n(1)]
        bytes: ByteVec,
    },
    /// A signal for all tasks.
    #[n(2)]
    Signal(#[n(0)] u32),
    /// The terminal's new size: rows, columns.
    #[n(3)]
    SetWindowSize(#[n(0)] u16, #[n(1)] u16),
    /// Where the stepds listen for each other: [`StepCreated::mesh_addresses`].
    #[n(10)]
    SetMeshAddresses(#[n(0)] Vec<String>),
    /// The step has failed as a whole, with this status: end all tasks at once.
    #[n(11)]
    FailStep(#[n(0)] ExitStatus),
    /// First message in a step whose nodes form a tree, instead of `Hello`: from srun to the heads, and from each head to
    /// those below. Also what srun says to a node whose connection upwards was lost.
    #[n(12)]
    Attach(#[n(0)] Box<Attach>),
    /// In a tree: the message's sequence number among those to all nodes, and the message. A duplicate is passed on,
    /// and else ignored.
    #[n(13)]
    ForwardDown(#[n(0)] u64, #[n(1)] Box<ToStepd>),
    /// In a tree, to a node and all below it: repeat all messages after these counts, by position from the node on.
    #[n(14)]
    Resend(#[n(0)] Vec<u64>),
    /// In a tree: number of messages of the node at this position that have come.
    #[n(15)]
    AcknowledgeFrom(#[n(0)] u32, #[n(1)] u64),
    /// In a tree: srun is gone.
    #[n(16)]
    SrunDisconnected,
    /// Nothing, in the place of a message for others.
    #[n(17)]
    SkipNumber,
    /// First message of sattach: the step's key, and which version the sender speaks. Output and exits of tasks follow, and
    /// input that is sent as [`ToStepd::Stdin`] goes to the tasks that srun's input goes to. srun's connection is another one.
    #[n(400)]
    AttachReader(#[n(0)] ByteVec, #[n(1)] Option<Greeting>),
    /// From a new launcher, after the control channel to the former one was lost: this connection takes its place. Accepted only from a process of the daemon's own user.
    #[n(18)]
    Adopt(#[n(0)] Option<Greeting>),
}

impl Message for ToStepd {}

/// Connection of a node of a tree.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct Attach {
    /// The step's key.
    #[n(0)]
    pub key: ByteVec,
    /// Addresses of the stepds below, in the order of their positions.
    #[n(1)]
    pub below: Vec<String>,
    /// This is srun, not a node: when it is gone, it is gone.
    #[n(2)]
    pub srun: bool,
    /// Numbers of messages of this node and of those below that have come, by position; empty at first.
    #[n(3)]
    pub seen: Vec<u64>,
    /// Which version the sender speaks; refused without.
    #[n(4)]
    pub greeting: Option<Greeting>,
}

/// stepd to srun.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub enum FromStepd {
    /// Tasks run: process ids by local number.
    #[n(0)]
    Started(#[n(0)] Vec<u32>),
    /// Standard output of a task.
    #[n(1)]
    Stdout {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// The bytes; empty is end of file.
        #[n(1)]
        bytes: ByteVec,
    },
    /// Standard error of a task.
    #[n(2)]
    Stderr {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// The bytes; empty is end of file.
        #[n(1)]
        bytes: ByteVec,
    },
    /// A line from stepd itself for srun's standard error, such as a program that cannot be executed.
    #[n(3)]
    NodeMessage(#[n(0)] String),
    /// A task ended.
    #[n(4)]
    Exited {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// Its status.
        #[n(1)]
        exit: ExitStatus,
        /// By the out-of-memory killer.
        #[n(2)]
        oom: bool,
    },
    /// Every task of this node has ended and its output is all sent.
    #[n(5)]
    NodeTasksEnded,
    /// To `Hello` or `Attach` of a version that is not spoken here. Nothing else follows on the connection.
    #[n(19)]
    Refused(#[n(0)] Refusal),
    /// A task has joined the others by MPI: from now on they wait for each other.
    #[n(10)]
    TaskJoinedMpi,
    /// A task has ended, or wants all to end, in a way that lets the others wait for ever.
    #[n(11)]
    TaskFailed {
        /// Global task number.
        #[n(0)]
        task: u32,
        /// The status that the step is to have.
        #[n(1)]
        exit: ExitStatus,
        /// It had joined the others. If it had not, it matters only when others do.
        #[n(2)]
        joined: bool,
        /// A line that says so, unless others failed before: what fails afterwards may do so only because those are gone.
        #[n(3)]
        line: Option<String>,
    },
    /// In a tree: what the node at a position says.
    #[n(12)]
    ForwardUp {
        /// Which node.
        #[n(0)]
        position: u32,
        /// The message's sequence number among that node's.
        #[n(1)]
        number: u64,
        /// Messages of srun that it has received.
        #[n(2)]
        acknowledged: u64,
        /// The message.
        #[n(3)]
        message: Box<FromStepd>,
    },
    /// In a tree: the connection to this position, just below, is lost.
    #[n(13)]
    ChildLost(#[n(0)] u32),
    /// In a tree, to the node above: this connection ends as it should.
    #[n(14)]
    ConnectionFinished,
    /// An acknowledgement without a message.
    #[n(15)]
    Acknowledged,
    /// A line for srun's standard error that is about the whole step: of several such, from whatever nodes, one is enough.
    #[n(16)]
    StepMessage(#[n(0)] String),
    /// To an srun with a channel to the step daemon, before anything else.
    #[n(17)]
    Created(#[n(0)] Box<StepCreated>),
}

impl Message for FromStepd {}
