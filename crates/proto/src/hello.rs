//! Messages of both sides of a channel between hosts within its key exchange: versions, and names that neither side has to
//! believe.

use crate::frame::Message;
use crate::version::Greeting;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::ids::{JobId, StepNo};
use muster_model::limits::NAME_BYTES_MAX;
use muster_model::validate::Validate;

/// Bytes of a nonce.
const NONCE_BYTES_MAX: usize = 64;

/// From the side that connects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ChannelHello {
    /// Which version it speaks.
    #[n(0)]
    pub greeting: Greeting,
    /// The host's own name: believed if the name leads to its address.
    #[n(1)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub host: String,
}

impl Message for ChannelHello {
    const BYTES_MAX: usize = 1 << 10;
}

/// From the side that was connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ChannelAnswer {
    /// Which version it speaks.
    #[n(0)]
    pub greeting: Greeting,
    /// `ClusterName`.
    #[n(1)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub cluster: String,
}

impl Message for ChannelAnswer {
    const BYTES_MAX: usize = 1 << 10;
}

/// From a PMIx host that connects to another of its job.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct HostHello {
    /// Which version it speaks.
    #[n(0)]
    pub greeting: Greeting,
    /// Where it listens itself: its name among hosts.
    #[n(1)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub address: String,
    /// Bytes that it has not sent before.
    #[n(2)]
    #[valid(max_bytes = NONCE_BYTES_MAX)]
    pub nonce: ByteVec,
    /// The name of the host that it looks for.
    #[n(3)]
    #[cbor(default)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub wanted: String,
}

impl Message for HostHello {
    const BYTES_MAX: usize = 1 << 10;
}

/// From the host that it connects to.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct HostAnswer {
    /// Which version it speaks.
    #[n(0)]
    pub greeting: Greeting,
    /// Bytes that it has not sent before.
    #[n(1)]
    #[valid(max_bytes = NONCE_BYTES_MAX)]
    pub nonce: ByteVec,
}

impl Message for HostAnswer {
    const BYTES_MAX: usize = 1 << 10;
}

/// The credential of a channel to a node: the key that its secret follows from, and the process that is to be
/// reached there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum JobCredential {
    /// The agent, as the job's owner: the key is the one that the controller gives him.
    #[n(0)]
    Owner(#[n(0)] JobId),
    /// The agent, as another of the job's nodes: the key is the one that agents of the job have.
    #[n(1)]
    Node {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The node that connects.
        #[n(1)]
        #[valid(max_bytes = NAME_BYTES_MAX)]
        node: String,
    },
    /// A step daemon: the key is the step's.
    #[n(2)]
    Step {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// The path of its socket.
        #[n(2)]
        #[valid(max_bytes = NAME_BYTES_MAX)]
        path: String,
    },
}

impl JobCredential {
    /// The job.
    pub fn job(&self) -> JobId {
        match self {
            JobCredential::Owner(job)
            | JobCredential::Node { job, .. }
            | JobCredential::Step { job, .. } => *job,
        }
    }
}

impl Message for JobCredential {
    const BYTES_MAX: usize = 8 << 10;
}
